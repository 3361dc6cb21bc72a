"""Chapter 2: its exercises accept the solutions and name each mistake; the code it shows is the library's."""

import importlib
import inspect
import re
import textwrap

import torch
from exercises import cells, functions, printed
from test_checks_chapter1 import body

from course_lib import fusion
from course_lib.annotations import MISSING
from course_lib.checks import labels_only
from course_lib.confusion import count_matrices, joint_log_likelihood, posterior


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
    shown = cells(2, "shipped")
    assert shown
    for cell in shown:
        module = importlib.import_module(re.match(r"# shipped: (\S+)\n", cell.source)[1])
        assert functions(cell.source)
        for name, node in functions(cell.source).items():
            library = functions(textwrap.dedent(inspect.getsource(getattr(module, name))))[name]
            assert body(node) == body(library), f"{name} differs from {module.__name__}.{name}"


def test_at_ci_size_every_outcome_that_the_chapter_reports_is_seen(executed):
    said = printed(2, executed.root)
    assert said.count("seen: ") >= 4 and "your run differed" not in said
