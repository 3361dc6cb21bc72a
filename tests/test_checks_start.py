"""Chapter 0: the readiness check marks as it says; the exercises accept the solutions and name each mistake."""

import ast
import re

import nbformat
import pytest
import torch
from conftest import REPO
from test_checks_chapter1 import functions

from course_lib.checks import CheckFailed, NotDone, start
from course_lib.edition import tags

CHAPTER = REPO / "notebooks/00_start_here.ipynb"
TABLES = {
    "share_right": start.SHARE_MISTAKES,
    "ill_if_positive": start.BAYES_MISTAKES,
    "log_softmax": start.SOFTMAX_MISTAKES,
    "one_step": start.STEP_MISTAKES,
}
LISTED = [(name, sentence, wrong) for name, table in TABLES.items() for sentence, wrong in table.items()]
RIGHT = [question.right for question in start.QUESTIONS]


def cells(tag: str) -> list:
    return [cell for cell in nbformat.read(CHAPTER, 4).cells if tag in tags(cell)]


def defined(tag: str) -> dict:
    space = {"torch": torch}
    for cell in cells(tag):
        for node in functions(cell.source).values():
            exec(ast.unparse(node), space)
    return space


@pytest.mark.parametrize("name", TABLES)
def test_the_solution_passes_and_the_stub_is_not_done(name, capsys):
    getattr(start, name)(defined("solution")[name])
    assert re.match(r"✓ Exercise 0\.\d: right", capsys.readouterr().out)
    with pytest.raises(NotDone):
        getattr(start, name)(defined("stub")[name])


@pytest.mark.parametrize(("name", "sentence", "wrong"), LISTED, ids=[f"{n}: {s[:40]}" for n, s, _ in LISTED])
def test_each_listed_mistake_is_named(name, sentence, wrong):
    with pytest.raises(CheckFailed) as stop:
        getattr(start, name)(wrong)
    assert str(stop.value).endswith(sentence)


@pytest.mark.parametrize("name", TABLES)
def test_nonsense_is_refused_in_words(name):
    for nonsense in ("seven", None, torch.zeros(2, 2), object()):
        with pytest.raises(CheckFailed):
            getattr(start, name)(lambda *arguments, nonsense=nonsense: nonsense)


def test_an_infinite_answer_of_another_kind_is_named():
    with pytest.raises(CheckFailed, match="infinite or not a number"):
        start.log_softmax(lambda z: torch.full_like(z, float("inf")))


def test_the_step_by_hand_is_autograds():
    W = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    x, y = torch.tensor([0.3, -1.0, 2.0]), 2
    (-(W @ x).log_softmax(0)[y]).backward()
    assert torch.allclose(start._gradient(W.detach(), x, y), W.grad, atol=1e-6)


def test_ten_right_answers_are_ten_of_ten(capsys):
    assert start.readiness(RIGHT) == 10
    assert capsys.readouterr().out.strip() == "10 of 10 right. You are ready."
    assert start.readiness({n: right for n, right in enumerate(RIGHT, 1)}) == 10
    assert start.readiness(["1/2", "40 %", "(A)", 0.333, "c.", 0, "b", "10", "c", " a "]) == 10


def test_each_wrong_answer_says_why_and_where_to_read_up(capsys):
    for n, question in enumerate(start.QUESTIONS):
        answers = [*RIGHT]
        answers[n] = "z"
        assert start.readiness(answers) == 9
        out = capsys.readouterr().out
        assert f"{n + 1}: you said z" in out and question.why in out and question.where in out


def test_no_answer_is_no_mistake_until_there_is_one(capsys):
    assert start.readiness([None] * 10) == 0 and "No answer yet" in capsys.readouterr().out
    assert start.readiness({1: 0.5}) == 1 and "10: no answer" in capsys.readouterr().out


@pytest.mark.parametrize("answers", [[1, 2], "abcdefghij", 7, {11: "a"}, {"one": "a"}])
def test_another_shape_of_answers_is_refused_in_words(answers):
    with pytest.raises(CheckFailed, match="1 to 10"):
        start.readiness(answers)


def test_there_are_ten_questions_and_the_choices_are_letters_a_to_c():
    assert len(start.QUESTIONS) == 10 and start.questions().count("\n") == 9
    for question in start.QUESTIONS:
        assert ("(a number)" in question.text) != all(f"({c})" in question.text for c in "abc")
        assert isinstance(question.right, float) == ("(a number)" in question.text)
