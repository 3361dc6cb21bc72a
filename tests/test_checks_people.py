"""Chapter 6: its exercises accept the solutions and name each mistake; what it says, the committed results say."""

import ast
import re

import nbformat
import pytest
import torch
from conftest import REPO
from test_checks_chapter1 import functions

from course_lib.checks import CheckFailed, NotDone, people
from course_lib.data import shipped
from course_lib.edition import tags
from course_lib.experiments import read, values

CHAPTER = REPO / "notebooks/06_real_people.ipynb"
TABLES = {
    "skill_interval": people.INTERVAL_MISTAKES,
    "weighted_vote": people.VOTE_MISTAKES,
    "too_few": people.THIN_MISTAKES,
}
LISTED = [(name, sentence, wrong) for name, table in TABLES.items() for sentence, wrong in table.items()]


def defined(tag: str) -> dict:
    space = {"torch": torch}
    for cell in nbformat.read(CHAPTER, 4).cells:
        for node in functions(cell.source).values() if tag in tags(cell) else ():
            exec(ast.unparse(node), space)
    return space


@pytest.mark.parametrize("name", TABLES)
def test_the_solution_passes_and_the_stub_is_not_done(name, capsys):
    getattr(people, name)(defined("solution")[name])
    assert re.match(r"✓ Exercise 6\.\d: right\.", capsys.readouterr().out)
    with pytest.raises(NotDone):
        getattr(people, name)(defined("stub")[name])


@pytest.mark.parametrize(("name", "sentence", "wrong"), LISTED, ids=[f"{n}: {s[:40]}" for n, s, _ in LISTED])
def test_each_listed_mistake_is_named(name, sentence, wrong):
    with pytest.raises(CheckFailed) as stop:
        getattr(people, name)(wrong)
    assert str(stop.value).endswith(sentence)


@pytest.mark.parametrize("name", TABLES)
def test_nonsense_is_refused_in_words(name):
    for nonsense in ("seven", None, torch.zeros(2, 2), 3):
        with pytest.raises(CheckFailed):
            getattr(people, name)(lambda *arguments, nonsense=nonsense: nonsense)


def test_the_interval_of_wilson_covers_as_it_says():
    right = torch.distributions.Binomial(20, torch.tensor(0.9)).sample((4000,)).tolist()
    covered = [low <= 0.9 <= high for low, high in (people._wilson(k, 20) for k in right)]
    assert 0.92 < sum(covered) / len(covered) < 0.98


def test_the_committed_results_meet_what_the_chapter_says():
    labelme, views = (read(shipped(f"results/{name}.lesson.json")) for name in ("labelme-crowd", "six-views"))
    for result, setting in ((labelme, {"network": "dropout"}), (views, {})):
        score = lambda m, result=result, setting=setting: values(result, m, "accuracy", **setting)  # noqa: E731
        assert len(score("trace")) >= 5
        assert (score("trace") - score("vanilla")).mean() > 0 < (score("truth") - score("trace")).mean()
    plain = lambda m: values(labelme, m, "accuracy", network="plain").mean()  # noqa: E731
    assert plain("trace") < plain("vanilla")  # a network that learns by heart explains every mistake by itself
    assert (values(views, "trace", "separation") > 0).all()


def test_at_ci_size_no_outcome_differs(executed):
    notebook = nbformat.read(executed.root / "notebooks" / CHAPTER.name, 4)
    printed = "".join(o.get("text", "") for c in notebook.cells if c.cell_type == "code" for o in c.outputs)
    assert "labels" in printed and "your run differed" not in printed
