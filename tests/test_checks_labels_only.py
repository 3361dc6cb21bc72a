"""Chapter 2: its exercises accept the solutions and name each mistake; the code it shows is the library's."""

import ast
import importlib
import inspect
import re
import textwrap

import nbformat
import pytest
import torch
from conftest import REPO
from test_checks_chapter1 import body, functions

from course_lib import fusion
from course_lib.annotations import MISSING
from course_lib.checks import CheckFailed, NotDone, labels_only
from course_lib.confusion import count_matrices, joint_log_likelihood, posterior
from course_lib.edition import tags

CHAPTER = REPO / "notebooks/02_labels_only.ipynb"
TABLES = {
    "one_item": labels_only.ITEM_MISTAKES,
    "counted_matrices": labels_only.COUNT_MISTAKES,
    "fit_score": labels_only.FIT_MISTAKES,
    "room": labels_only.ROOM_MISTAKES,
}
LISTED = [(name, sentence, wrong) for name, table in TABLES.items() for sentence, wrong in table.items()]


def cells(tag: str) -> list:
    return [cell for cell in nbformat.read(CHAPTER, 4).cells if tag in tags(cell)]


def defined(tag: str) -> dict:
    space = {"torch": torch, "MISSING": MISSING}
    for cell in cells(tag):
        for node in functions(cell.source).values():
            exec(ast.unparse(node), space)
    return space


@pytest.mark.parametrize("name", TABLES)
def test_the_solution_passes_and_the_stub_is_not_done(name, capsys):
    getattr(labels_only, name)(defined("solution")[name])
    assert re.match(r"✓ Exercise 2\.\d: right\.", capsys.readouterr().out)
    with pytest.raises(NotDone):
        getattr(labels_only, name)(defined("stub")[name])


@pytest.mark.parametrize(("name", "sentence", "wrong"), LISTED, ids=[f"{n}: {s[:40]}" for n, s, _ in LISTED])
def test_each_listed_mistake_is_named(name, sentence, wrong):
    with pytest.raises(CheckFailed) as stop:
        getattr(labels_only, name)(wrong)
    assert str(stop.value).endswith(sentence)


@pytest.mark.parametrize("name", TABLES)
def test_nonsense_is_refused_in_words(name):
    for nonsense in ("seven", None, torch.zeros(2, 2), object()):
        with pytest.raises(CheckFailed):
            getattr(labels_only, name)(lambda *arguments, nonsense=nonsense: nonsense)


def test_the_librarys_own_functions_are_right_answers(capsys):
    labels_only.one_item(lambda A, prior, said: posterior(A.log()[None], prior.log()[None], said[None]).exp()[0])
    labels_only.counted_matrices(count_matrices)
    labels_only.fit_score(lambda A, prior, labels: joint_log_likelihood(A.log()[None], prior.log()[None], labels).sum())
    assert capsys.readouterr().out.count("✓") == 3


def test_the_fit_never_falls_on_random_labels():
    labels = torch.randint(-1, 3, (40, 4), generator=torch.Generator().manual_seed(0))
    p, fits = fusion.mean_label(labels, 3), []
    for _ in range(30):
        seen = (labels != MISSING).any(1)
        A, prior = count_matrices(labels, p), p[seen].mean(0)
        fits.append(float(labels_only._items(A, prior, labels).sum()))
        p = posterior(A.log()[None], prior.log().expand_as(p), labels).exp()
    assert all(b >= a - 1e-9 for a, b in zip(fits, fits[1:], strict=False))


def test_code_shown_is_code_shipped():
    shown = cells("shipped")
    assert len(shown) >= 2
    for cell in shown:
        module = importlib.import_module(re.match(r"# shipped: (\S+)\n", cell.source)[1])
        assert functions(cell.source)
        for name, node in functions(cell.source).items():
            library = functions(textwrap.dedent(inspect.getsource(getattr(module, name))))[name]
            assert body(node) == body(library), f"{name} differs from {module.__name__}.{name}"


def test_no_cell_outside_the_exercises_needs_a_solution():
    skipped = {"stub", "check", "solution"}
    notebook = nbformat.read(CHAPTER, 4)
    rest = "\n".join(c.source for c in notebook.cells if c.cell_type == "code" and not {*tags(c)} & skipped)
    assert not [name for name in TABLES if re.search(rf"\b{name}\(", rest)]


def test_at_ci_size_every_outcome_that_the_chapter_reports_is_seen(executed):
    notebook = nbformat.read(executed.root / "notebooks" / CHAPTER.name, 4)
    printed = "".join(o.get("text", "") for c in notebook.cells if c.cell_type == "code" for o in c.outputs)
    assert printed.count("seen: ") >= 4 and "your run differed" not in printed
