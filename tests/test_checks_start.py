"""Chapter 0: the readiness check marks as it says; the exercises accept the solutions and name each mistake."""

import pytest
import torch

from course_lib.checks import CheckFailed, start

RIGHT = [question.right for question in start.QUESTIONS]


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
