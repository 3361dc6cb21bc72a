"""Chapter 4: its exercises accept the solutions and name each mistake; the code it shows is the library's."""

import ast
import importlib
import inspect
import re
import textwrap

import torch
from exercises import cells, defined, functions, printed

from course_lib.annotators import pairwise_flippers
from course_lib.checks import em
from course_lib.confusion import dominance
from course_lib.networks import seeded


def test_five_who_share_one_flip_at_skill_a_half_win_the_contest(capsys):
    em.contest(lambda: em._shared(0.5))
    assert "margin +0.000" in capsys.readouterr().out


def test_the_contest_names_all_classes_of_a_dominant_panel_right_and_not_of_a_lost_one():
    assert em.classes_right(em._honest(0.4)) == 10
    assert em.classes_right(em._shared(0.4)) <= 5


def test_the_contest_leaves_the_random_state_alone():
    before = torch.random.get_rng_state()
    em.classes_right(em._honest(0.5), steps=3)
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_count_of_sharers_is_what_dominance_measures():
    how_many = defined(4, "solution")["how_many"]
    for p in (0.3, 0.41):
        k = how_many(p, 5)
        for sharers, lost in ((k - 1, False), (k, True)):
            A = pairwise_flippers(5, 10, p, share=1, spread=0.0, generator=seeded(0))
            A[:sharers, :, 3] = 0.0
            A[:sharers, 3, 3], A[:sharers, 7, 3] = p, 1 - p
            A[sharers:, 7, 3] = 0.0  # the others slip elsewhere
            A[sharers:, 8, 3] = 1 - A[sharers:, :, 3].sum(1) + A[sharers:, 8, 3]
            margin = A.mean(0)[7, 7] - A.mean(0)[7, 3]
            assert (margin <= 0) == lost and (dominance(A) <= 0 or not lost)


def test_code_shown_is_code_shipped():
    (cell,) = cells(4, "shipped")
    module, owner = re.match(r"# shipped: (\S+)\.(\w+)\n", cell.source).groups()
    owner = getattr(importlib.import_module(module), owner)
    plain = lambda node: re.sub(r"\b(confusion|training)\.", "", "\n".join(map(ast.unparse, without_doc(node))))  # noqa: E731
    shown = functions(cell.source)
    assert shown
    for name, node in shown.items():
        library = functions(textwrap.dedent(inspect.getsource(getattr(owner, name))))[name]
        assert plain(node) == plain(library), f"{name} differs from {owner.__name__}.{name}"


def without_doc(node: ast.FunctionDef) -> list:
    return node.body[1:] if ast.get_docstring(node) is not None else node.body


def test_at_ci_size_no_outcome_differs(executed):
    said = printed(4, executed.root)
    assert "share a flip, margin" in said and "your run differed" not in said
