"""Chapter 6: its checks. Each calls the reader's function on small numbers; see `checks.classes`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from course_lib.annotations import MISSING
from course_lib.checks import CheckFailed, answer, judge

# ---- 6.1 -------------------------------------------------------------------------------------------------------------


def _wilson(right: float, n: float, z: float = 1.96) -> tuple[float, float]:
    centre = (right + z**2 / 2) / (n + z**2)
    half = z / (n + z**2) * (right * (n - right) / n + z**2 / 4) ** 0.5
    return centre - half, centre + half


def _wald(right: float, n: float, z: float = 1.96) -> tuple[float, float]:
    p = right / n
    half = z * (p * (1 - p) / n) ** 0.5
    return p - half, p + half


INTERVAL_MISTAKES = {
    "that is p ± 1.96 standard errors, which passes 1 for good people and has no width for perfect ones; see the "
    "formula of Wilson.": _wald,
    "one standard error covers two thirds, not 95 %: z is 1.96.": lambda right, n: _wilson(right, n, 1.0),
    "the square root is missing in the half width.": lambda right, n: tuple(
        (right + 1.9208) / (n + 3.8416) + s * 1.96 / (n + 3.8416) * (right * (n - right) / n + 0.9604) for s in (-1, 1)
    ),
    "the ends are turned round: the lower one comes first.": lambda right, n: _wilson(right, n)[::-1],
    "the middle is not right / n: two successes and two failures, or nearly, are added first.": lambda right, n: tuple(
        right / n + s * (_wilson(right, n)[1] - _wilson(right, n)[0]) / 2 for s in (-1, 1)
    ),
}


def skill_interval(function: Callable[[int, int], tuple[float, float]]) -> None:
    """Exercise 6.1: how many labels were right, of how many -> (low, high), Wilson's 95 % interval."""
    cases = ((18, 20), (7, 7))
    given = torch.stack([_numbers("6.1", answer("6.1", function, *case), 2) for case in cases])
    wanted = lambda f: torch.tensor([f(*case) for case in cases], dtype=torch.float64)  # noqa: E731
    mistakes = {sentence: wanted(wrong) for sentence, wrong in INTERVAL_MISTAKES.items()}
    judge("6.1", given, wanted(_wilson), mistakes, "right. Seven of seven is not a skill of 1.")


# ---- 6.2 -------------------------------------------------------------------------------------------------------------


def _weighted(labels: Tensor, weight: Tensor, L: int) -> Tensor:
    seen = (labels != MISSING)[..., None]
    return (one_hot(labels.clamp(min=0), L) * seen * weight[:, None]).sum(1)  # (N, L)


def _vote(labels: Tensor, weight: Tensor, L: int) -> Tensor:
    return torch.where((labels != MISSING).any(1), _weighted(labels, weight, L).argmax(1), MISSING)


VOTE_MISTAKES = {
    "the weights are not used: this is the plain vote.": lambda y, w, L: _vote(y, torch.ones_like(w), L),
    "that is the label of the heaviest annotator alone; the weights of all who agree add up.": (
        lambda y, w, L: y.gather(1, torch.where(y != MISSING, w, -1.0).argmax(1, keepdim=True))[:, 0]
    ),
    "a missing label, -1, was counted for class 0; mask it.": lambda y, w, L: torch.where(
        (y != MISSING).any(1), _weighted(y.clamp(min=0), w, L).argmax(1), MISSING
    ),
    "a missing label, -1, was counted for the last class: as an index, -1 means the last; mask it.": (
        lambda y, w, L: torch.where((y != MISSING).any(1), _weighted(y % L, w, L).argmax(1), MISSING)
    ),
    "an item that nobody labelled must give -1; your vote names a class.": lambda y, w, L: _weighted(y, w, L).argmax(1),
    "these are the sums, (N, L); wanted is the class with the largest, (N,).": _weighted,
}


def weighted_vote(function: Callable[[Tensor, Tensor, int], Tensor]) -> None:
    """Exercise 6.2: labels (N, R), weights (R,), L -> the class with the largest sum of weights, (N,)."""
    labels = torch.tensor([[1, 2, -1, 2], [2, 1, 1, -1], [1, -1, -1, 2], [-1, 1, -1, -1], [-1] * 4, [0, 1, 1, 1]])
    weight = torch.tensor([2.5, 1.0, 1.2, 1.6])
    given = _tensor("6.2", answer("6.2", function, labels.clone(), weight.clone(), 4))
    mistakes = {sentence: wrong(labels, weight, 4) for sentence, wrong in VOTE_MISTAKES.items()}
    judge("6.2", given, _vote(labels, weight, 4), mistakes, "right. With equal weights it is the plain vote.")


# ---- 6.3 -------------------------------------------------------------------------------------------------------------


THIN_MISTAKES = {
    "turned round: these are the annotators with enough labels.": lambda y, L: (y != MISSING).sum(0) >= L,
    "as many labels as classes is not fewer: use <.": lambda y, L: (y != MISSING).sum(0) <= L,
    "a missing label was counted as a label: -1 says that somebody was silent.": lambda y, L: (y >= -1).sum(0) < L,
    "you counted how many people labelled each image, (N,); wanted is each annotator, (R,).": (
        lambda y, L: (y != MISSING).sum(1) < L
    ),
    "you counted the different classes that somebody used; count labels.": lambda y, L: torch.tensor([
        len(set(column[column != MISSING].tolist())) < L for column in y.T
    ]),
    "these are counts; wanted is True or False for each annotator.": lambda y, L: (y != MISSING).sum(0),
}  # fmt: skip


def too_few(function: Callable[[Tensor, int], Tensor]) -> None:
    """Exercise 6.3: labels (N, R), L -> who has fewer labels than there are classes, bool (R,)."""
    labels = torch.tensor([
        [0, -1, 2, 1, 0], [1, -1, 2, -1, 1], [2, 1, 2, -1, 2], [0, 0, 2, 0, 1], [2, -1, -1, -1, -1], [-1, -1, 1, 2, -1],
    ])  # fmt: skip
    given = _tensor("6.3", answer("6.3", function, labels.clone(), 3))
    mistakes = {sentence: wrong(labels, 3) for sentence, wrong in THIN_MISTAKES.items()}
    judge("6.3", given, (labels != MISSING).sum(0) < 3, mistakes, "right. Their matrices have columns nobody saw.")


def _tensor(exercise: str, given: object) -> Tensor:
    """The answer as a tensor; CheckFailed where it is none."""
    try:
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        raise CheckFailed(f"Exercise {exercise}: wanted a tensor, got a {type(given).__name__}.") from None


def _numbers(exercise: str, given: object, n: int) -> Tensor:
    """n numbers; CheckFailed where the answer is anything else."""
    try:
        numbers = torch.tensor([float(x) for x in given], dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise CheckFailed(f"Exercise {exercise}: wanted {n} numbers, got a {type(given).__name__}.") from None
    if len(numbers) != n:
        raise CheckFailed(f"Exercise {exercise}: wanted {n} numbers, got {len(numbers)}.")
    return numbers
