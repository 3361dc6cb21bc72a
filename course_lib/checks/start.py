"""Chapter 0: the readiness check, and the checks of its exercises.

A table of mistakes maps the sentence that the reader sees to the wrong function that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Tensor

from course_lib.checks import CheckFailed, answer, judge

# ---- are you ready? --------------------------------------------------------------------------------------------------

PROBABILITY = "conditional probability and Bayes' rule, in any first book on statistics"
LOGISTIC = "softmax, cross-entropy and logistic regression, in any first book on machine learning"
ALGEBRA = "matrices and vectors, in any first book on linear algebra"
TRAINING = "the first tutorial of PyTorch, \"Learn the Basics\""  # fmt: skip


class Question(NamedTuple):
    """One question: a number is the right answer, or a letter; why; and where to read up."""

    text: str
    right: float | str
    why: str
    where: str


QUESTIONS = (
    Question(
        "A test is right for 90 % of the ill and 90 % of the healthy, and 10 % of the people are ill. You test "
        "positive. How probable is it that you are ill? (a number)",
        0.5, "0.09 of all people are ill and positive, and 0.09 are healthy and positive", PROBABILITY,
    ),
    Question(
        "$p(a, b) = 0.2$ and $p(b) = 0.5$. What is $p(a \\mid b)$? (a number)",
        0.4, "it is 0.2 / 0.5", PROBABILITY,
    ),
    Question(
        "A matrix without negative entries has columns that sum to 1. It is multiplied, from the left, to a vector of "
        "probabilities. What comes out? (a) a vector of probabilities, (b) a vector of length 1, (c) it depends",
        "a", "each column only shares out its probability", ALGEBRA,
    ),
    Question(
        "What is the first entry of the softmax of $(0, 0, 0)$? (a number)",
        1 / 3, "all three are equal", LOGISTIC,
    ),
    Question(
        "7 is added to every logit. The softmax (a) becomes more certain, (b) becomes less certain, (c) stays as it is",
        "c", "the factor e to the 7 stands above and below, and cancels", LOGISTIC,
    ),
    Question(
        "The true class has predicted probability 1. What is its negative log-likelihood? (a number)",
        0.0, "the logarithm of 1 is 0", LOGISTIC,
    ),
    Question(
        "Why does one add logarithms instead of multiplying a thousand probabilities? (a) it is faster, (b) the "
        "product becomes 0 in floating point, (c) the sum of the logarithms is 1",
        "b", "0.1 to the power 1000 is smaller than any number that the machine knows", LOGISTIC,
    ),
    Question(
        "What is the trace of the identity matrix with ten rows? (a number)",
        10.0, "it is the sum of ten ones", ALGEBRA,
    ),
    Question(
        "In a training step one calls, in this order, (a) `backward`, `zero_grad`, `step`, "
        "(b) `step`, `zero_grad`, `backward`, (c) `zero_grad`, `backward`, `step`",
        "c", "clear the old gradients, compute new ones, move the parameters", TRAINING,
    ),
    Question(
        "The training loss falls while the validation loss rises. That is (a) overfitting, (b) underfitting, (c) too "
        "small a learning rate",
        "a", "the network learns its examples by heart", TRAINING,
    ),
)  # fmt: skip


def questions() -> str:
    """Return the ten questions as a Markdown list."""
    return "\n".join(f"{n}. {question.text}" for n, question in enumerate(QUESTIONS, 1))


def readiness(answers: Mapping[int, object] | Sequence[object]) -> int:
    """Print how many of the ten answers are right and, for each wrong one, why and where to read up; return the score.

    Arguments: answers: ten in a list, or a dict from the question's number, 1 to 10. A number ("1/2" and "50 %" are
    numbers too), a letter, or None for no answer.
    """
    given = _ten(answers)
    if all(value is None for value in given):
        print("No answer yet: write yours into the cell above, and run both cells.")
        return 0
    wrong = [n for n, (value, q) in enumerate(zip(given, QUESTIONS, strict=True)) if not _is_right(value, q.right)]
    score = len(QUESTIONS) - len(wrong)
    print(f"{score} of {len(QUESTIONS)} right.", _advice(score))
    for n in wrong:
        said = "no answer" if given[n] is None else f"you said {given[n]}"
        print(f"{n + 1}: {said}; right is {_shown(QUESTIONS[n].right)}: {QUESTIONS[n].why}.")
        print(f"   Read up: {QUESTIONS[n].where}.")
    return score


def _ten(answers: Mapping[int, object] | Sequence[object]) -> list:
    if isinstance(answers, Mapping):
        odd = [key for key in answers if key not in range(1, len(QUESTIONS) + 1)]
        if odd:
            raise CheckFailed(f"Readiness: the questions have the numbers 1 to 10; there is no {odd[0]!r}.")
        return [answers.get(n) for n in range(1, len(QUESTIONS) + 1)]
    if isinstance(answers, str) or not isinstance(answers, Sequence) or len(answers) != len(QUESTIONS):
        raise CheckFailed("Readiness: wanted a list of ten answers, or a dict from the question's number, 1 to 10.")
    return list(answers)


def _is_right(given: object, right: float | str) -> bool:
    text = str(given).strip().lower()
    if isinstance(right, str):
        return text.strip("().") == right
    try:
        number = float(Fraction(text.rstrip("% "))) / (100 if text.endswith("%") else 1)
    except (ValueError, ZeroDivisionError):
        return False
    return abs(number - right) < 0.005


def _shown(right: float | str) -> str:
    return right if isinstance(right, str) else f"{right:.3g}"


def _advice(score: int) -> str:
    if score >= 8:
        return "You are ready."
    return "Begin, and read up on the way." if score >= 5 else "Read up first; the book will be easier then."


# ---- the exercises ---------------------------------------------------------------------------------------------------

SHARE_MISTAKES = {
    "this is how many are right; divide by how many there are.": lambda said, truth: (said == truth).sum(),
    "this is the share that is wrong.": lambda said, truth: (said != truth).double().mean(),
    "one answer for each image is not yet a share; take the mean.": lambda said, truth: (said == truth).double(),
}


def share_right(function: Callable[[Tensor, Tensor], float]) -> None:
    """Exercise 0.1: said (N,) and truth (N,) -> the share that is right."""
    case = (torch.tensor([3, 1, 4, 1, 5]), torch.tensor([3, 1, 4, 2, 5]))
    given = _tensor("0.1", answer("0.1", function, *(x.clone() for x in case)))
    mistakes = {sentence: wrong(*case) for sentence, wrong in SHARE_MISTAKES.items()}
    judge("0.1", given, torch.tensor(0.8), mistakes, "right. That is how every exercise of this book works.")


BAYES_MISTAKES = {
    "that is p(positive | ill), the other way round; turn it with Bayes' rule.": lambda prior, ill, well: ill,
    "that is p(ill and positive); divide by p(positive).": lambda prior, ill, well: prior * ill,
    "that is p(positive); it belongs below the line.": lambda prior, ill, well: prior * ill + (1 - prior) * (1 - well),
    "you forgot the prior: ill and healthy people are not equally frequent.": (
        lambda prior, ill, well: ill / (ill + 1 - well)
    ),
    "a healthy person is positive with probability 1 - right_if_healthy.": (
        lambda prior, ill, well: prior * ill / (prior * ill + (1 - prior) * well)
    ),
    "those are the odds; divide by all who are positive, not only by the healthy ones.": (
        lambda prior, ill, well: prior * ill / ((1 - prior) * (1 - well))
    ),
    "that is p(healthy | positive).": (
        lambda prior, ill, well: (1 - prior) * (1 - well) / (prior * ill + (1 - prior) * (1 - well))
    ),
}


def ill_if_positive(function: Callable[[float, float, float], float]) -> None:
    """Exercise 0.2: prior, p(positive | ill), p(negative | healthy) -> p(ill | positive)."""
    case = (0.02, 0.9, 0.8)
    given = _tensor("0.2", answer("0.2", function, *case))
    mistakes = {sentence: torch.tensor(wrong(*case)) for sentence, wrong in BAYES_MISTAKES.items()}
    right = torch.tensor(0.018 / (0.018 + 0.98 * 0.2))
    judge("0.2", given, right, mistakes, "right. The prior decides: most positives are healthy here.")


LOGITS = torch.tensor([[1.0, 2.0, 3.0], [1000.0, 1001.0, 999.0], [-1000.0, -1003.0, 0.0]])
SOFTMAX_MISTAKES = {
    "overflow: exp of a large logit is infinite. Subtract each row's largest logit first.": (
        lambda z: z - z.exp().sum(1, keepdim=True).log()
    ),
    "overflow or underflow: the softmax was computed first, its logarithm after. Stay with logarithms.": (
        lambda z: (z.exp() / z.exp().sum(1, keepdim=True)).log()
    ),
    "underflow: the softmax became 0 before you took its logarithm. Subtract a logarithm instead of dividing.": (
        lambda z: z.softmax(1).log()
    ),
    "underflow: you subtracted the largest logit of the whole table; each row needs its own.": (
        lambda z: z - z.max() - (z - z.max()).exp().sum(1, keepdim=True).log()
    ),
    "wrong axis: classes are the last axis, so each row must be normalised, not each column.": (
        lambda z: z.log_softmax(0)
    ),
    "that is the softmax; wanted is its logarithm.": lambda z: z.softmax(1),
    "the largest logit was subtracted, but the row's logarithm of the sum is missing.": (
        lambda z: z - z.max(1, keepdim=True).values
    ),
    "that is logsumexp alone, one number a row; subtract it from the logits.": lambda z: z.logsumexp(1),
    "the sign is turned: it is the logit minus logsumexp.": lambda z: z.logsumexp(1, keepdim=True) - z,
}


def log_softmax(function: Callable[[Tensor], Tensor]) -> None:
    """Exercise 0.3: logits (B, L), however large -> log softmax along the classes."""
    given = _tensor("0.3", answer("0.3", function, LOGITS.clone()))
    for sentence, wrong in SOFTMAX_MISTAKES.items():  # those with inf and nan, which a comparison of numbers misses
        mistake = wrong(LOGITS)
        odd = given.shape == mistake.shape and not mistake.isfinite().all()
        if odd and torch.allclose(given.double(), mistake.double(), equal_nan=True):
            raise CheckFailed(f"Exercise 0.3: {sentence}")
    if given.shape == LOGITS.shape and not given.isfinite().all():
        raise CheckFailed("Exercise 0.3: some of it is infinite or not a number; where is a logit's exp taken?")
    mistakes = {sentence: wrong(LOGITS) for sentence, wrong in SOFTMAX_MISTAKES.items()}
    judge("0.3", given, LOGITS.log_softmax(1), mistakes, "right, and with logits of 1000, too.")


def _gradient(W: Tensor, x: Tensor, y: int) -> Tensor:
    error = (W @ x).softmax(0)
    error[y] -= 1
    return error[:, None] * x  # (L, D)


STEP_MISTAKES = {
    "uphill: the gradient points to a larger loss; subtract it.": lambda W, x, y, lr: W + lr * _gradient(W, x, y),
    "that is the gradient; wanted are the new weights.": lambda W, x, y, lr: _gradient(W, x, y),
    "lr is missing: the step is the gradient times lr.": lambda W, x, y, lr: W - _gradient(W, x, y),
    "the true class is missing: the error is p minus 1 at y, not p alone.": (
        lambda W, x, y, lr: W - lr * (W @ x).softmax(0)[:, None] * x
    ),
    "only the row of the true class moved; all rows have a gradient.": (
        lambda W, x, y, lr: W - lr * _gradient(W, x, y) * (torch.arange(len(W)) == y)[:, None]
    ),
    "the error is p minus one-hot; you took the logits, without the softmax.": (
        lambda W, x, y, lr: W - lr * ((W @ x) - torch.eye(len(W))[y])[:, None] * x
    ),
    "x is missing: the gradient is the error times x, an outer product.": (
        lambda W, x, y, lr: W - lr * (_gradient(W, x, y) / x)
    ),
}


def one_step(function: Callable[[Tensor, Tensor, int, float], Tensor]) -> None:
    """Exercise 0.4: W (L, D), x (D,), y, lr -> W after one step of gradient descent on -log softmax(W x)[y]."""
    case = (torch.tensor([[0.5, -0.2], [0.1, 0.3], [-0.4, 0.2]]), torch.tensor([2.0, -1.5]), 1, 0.1)
    given = _tensor("0.4", answer("0.4", function, case[0].clone(), case[1].clone(), *case[2:]))
    mistakes = {sentence: wrong(*case) for sentence, wrong in STEP_MISTAKES.items()}
    right = case[0] - 0.1 * _gradient(*case[:3])
    judge("0.4", given.detach(), right, mistakes, "right. Autograd finds the same.")


def _tensor(exercise: str, given: object) -> Tensor:
    try:
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        raise CheckFailed(f"Exercise {exercise}: wanted numbers, got a {type(given).__name__}.") from None
