"""Chapter 3: its exercises accept the solutions and name each mistake; the code it shows is the library's."""

import importlib
import inspect
import re
import textwrap

import torch
from exercises import cells, functions, printed
from test_checks_chapter1 import body

from course_lib.annotators import pairwise_flippers
from course_lib.checks import classes
from course_lib.confusion import dominance
from course_lib.data import shipped
from course_lib.experiments import claims, read, values
from course_lib.networks import seeded


def test_the_closed_form_margin_is_what_dominance_measures():
    A = pairwise_flippers(5, 10, 0.4, share=2, spread=0.0, generator=seeded(0))
    assert abs(dominance(A) - (0.4 - 0.6 * 2 / 5)) < 1e-6


def test_the_closed_form_shrinkage_is_what_descent_finds():
    a, lam, L = 0.55, 0.02, 10
    wrong = torch.full((L,), (1 - a) / (L - 1))
    target = wrong.clone()
    target[0] = a
    logits = torch.zeros(L, requires_grad=True)
    optimiser = torch.optim.LBFGS([logits], max_iter=200, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        log_column = logits.log_softmax(0)
        value = -(target * log_column).sum() + lam * L * log_column[0].exp()
        value.backward()
        return value

    optimiser.step(loss)
    assert abs(float(logits.detach().softmax(0)[0]) - classes._column(a, lam * L)[0]) < 1e-3


def test_code_shown_is_code_shipped():
    shown = cells(3, "shipped")
    assert len(shown) >= 2
    strip = lambda text: re.sub(r"\bconfusion\.", "", text)  # noqa: E731  (the notebook calls it by its module)
    for cell in shown:
        module = importlib.import_module(re.match(r"# shipped: (\S+)\n", cell.source)[1])
        for name, node in functions(cell.source).items():
            library = functions(textwrap.dedent(inspect.getsource(getattr(module, name))))[name]
            assert strip(body(node)) == strip(body(library)), f"{name} differs from {module.__name__}.{name}"


def test_at_ci_size_no_outcome_differs(executed):
    said = printed(3, executed.root)
    assert "runs in" in said and "your run differed" not in said


def test_no_result_of_the_claims_table_is_out_of_date():
    for claim in claims.claims():
        assert claims.judge(claim).verdict == claim["verdict"], claim["id"]
        assert claim["paper"] in {"000", "001", "002", "003", "004"} and claim["why"] and claim["theirs"]


def test_the_committed_results_meet_what_the_chapter_says():
    result = read(shipped("results/trace-mnist5k.lesson.json"))
    trace, oracle, vanilla = (values(result, m, "accuracy", skill=0.45).mean() for m in ("trace", "oracle", "vanilla"))
    assert trace >= 0.88 and oracle - trace <= 0.03 and trace - vanilla >= 0.08
