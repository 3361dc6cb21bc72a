"""Part I: the checks of chapters 1 and 3. Each calls the reader's function on small numbers.

A table of mistakes maps the sentence that the reader sees to the wrong function that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.annotations import MISSING
from course_lib.checks import CheckFailed, answer, judge
from course_lib.networks import seeded

# Two annotators, three classes; [said, truth]. Nothing is symmetric, so that a transposed answer differs.
A2 = torch.tensor([
    [[0.7, 0.1, 0.2], [0.2, 0.6, 0.3], [0.1, 0.3, 0.5]],
    [[0.5, 0.0, 0.3], [0.1, 0.9, 0.2], [0.4, 0.1, 0.5]],
])  # fmt: skip
# The diagonal leads every column, but not every row: what is called 1 is mostly a 0.
ONLY_COLUMNS = torch.tensor([[0.55, 0.3, 0.3], [0.43, 0.37, 0.3], [0.02, 0.33, 0.4]])
OFF = ~torch.eye(3, dtype=torch.bool)

# ---- chapter 1 -------------------------------------------------------------------------------------------------------

COLUMN_MISTAKES = {
    "these are rows, and do not sum to 1; the truth is the last axis of A, look up columns.": (
        lambda A, truth: A.permute(1, 0, 2)[truth]
    ),
    "`A[:, truth]` looks up what is said; the truth is the last axis of A. And items come first.": (
        lambda A, truth: A[:, truth]
    ),
    "the right numbers, but items stand last, (R, L, N); bring them to the front with permute.": (
        lambda A, truth: A[:, :, truth]
    ),
    "the right numbers, but annotators come first, (R, N, L); wanted (N, R, L).": (
        lambda A, truth: A.permute(0, 2, 1)[:, truth]
    ),
    "the right numbers, but annotators stand last, (N, L, R); wanted (N, R, L).": (
        lambda A, truth: A.permute(2, 1, 0)[truth]
    ),
}


def what_they_say(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Exercise 1.1: A (R, L, L) and truth (N,) -> p(annotator r says i of item n), (N, R, L)."""
    truth = torch.tensor([0, 2, 1, 1])
    given = _tensor("1.1", answer("1.1", function, A2.clone(), truth.clone()))
    mistakes = {sentence: wrong(A2, truth) for sentence, wrong in COLUMN_MISTAKES.items()}
    judge("1.1", given, A2.permute(2, 0, 1)[truth], mistakes, "right. Each [n, r] is a column, and sums to 1.")


def fair_vote(function: Callable[[Tensor, int, torch.Generator], Tensor]) -> None:
    """Exercise 1.2: labels (N, R), L and a generator -> the vote (N,): ties broken fairly, -1 where nobody spoke."""
    few = torch.tensor([[2, MISSING, MISSING, MISSING], [MISSING] * 4])
    many = torch.tensor([[2, 1, 1, 0], [3, 0, 3, 3], [1, 2, 2, 1], [3, 1, MISSING, MISSING]]).repeat(200, 1)  # (800, R)
    labels = torch.cat([few, many])
    given, again = (_classes("1.2", answer("1.2", function, labels.clone(), 4, seeded(7)), len(labels)) for _ in "ab")
    single, nobody = given[:2].tolist()
    is_1, is_3, of_1_2, of_1_3 = given[2:].view(200, 4).unbind(1)  # two clear winners, two ties, 200 times each
    first = float((of_1_2 == 1).double().mean())  # fair: .5, with a standard error of .035
    problems = (
        (single == 0, "a missing label, -1, was counted as a vote for class 0; mask it."),
        (single == 3, "a missing label, -1, was counted for the last class: as an index, -1 means the last; mask it."),
        (nobody != MISSING, "an item that nobody labelled must give -1; your vote names a class."),
        (
            single != 2 or not (_within(is_1, 1) and _within(is_3, 3)),
            "a clear winner lost; what breaks ties must be smaller than one vote.",
        ),
        (first == 1, "ties always go to the lowest class, as in a plain argmax; add a little noise to the counts."),
        (first == 0, "ties always go to the highest class; draw one of the tied classes at random."),
        (not (_within(of_1_2, 1, 2) and _within(of_1_3, 1, 3)), "a tie was won by a class that is not among the tied."),
        (not torch.equal(given, again), "equal generators gave different votes; draw with `generator=generator`."),
        (not 0.3 < first < 0.7, f"of two tied classes, one wins {first:.0%} of the time; it should be half."),
    )
    for found, sentence in problems:
        if found:
            raise CheckFailed(f"Exercise 1.2: {sentence}")
    print("✓ Exercise 1.2: right. Winners win, ties are fair, and silence is no vote.")


THREE_MISTAKES = {
    "you left out the ties: one right makes three names, and the right one wins a third of the time.": (
        lambda s: s**3 + 3 * s**2 * (1 - s)
    ),
    "this is the chance that at least one is right; a tie of three names is won a third of the time.": (
        lambda s: s**3 + 3 * s**2 * (1 - s) + 3 * s * (1 - s) ** 2
    ),
    "in a tie three names are level, not two: the right one wins a third of the time.": (
        lambda s: s**3 + 3 * s**2 * (1 - s) + 1.5 * s * (1 - s) ** 2
    ),
    "exactly two can be right in three ways; you counted one.": (lambda s: s**3 + s**2 * (1 - s) + s * (1 - s) ** 2),
    "exactly one can be right in three ways; you counted one.": (
        lambda s: s**3 + 3 * s**2 * (1 - s) + s * (1 - s) ** 2 / 3
    ),
    "exactly two can be right in three ways, and there are ties as well.": (lambda s: s**3 + s**2 * (1 - s)),
    "this is the chance that all three are right; two are enough.": (lambda s: s**3),
}


def vote_of_three(function: Callable[[float], float]) -> None:
    """Exercise 1.3: p(a vote of three is right) where wrong names all differ and ties are broken at random."""
    s = torch.tensor([0.2, 0.45, 0.8], dtype=torch.float64)
    given = _numbers("1.3", [answer("1.3", function, skill) for skill in s.tolist()])
    mistakes = {sentence: wrong(s) for sentence, wrong in THREE_MISTAKES.items()}
    judge("1.3", given, s * (1 + s - s**2), mistakes, "right. It is s (1 + s - s²), more than s itself.")


def _lead(A: Tensor) -> Tensor:
    """The diagonal minus the rest of its row, without the diagonal: (..., 3, 3) -> (..., 6)."""
    return (A.diagonal(0, -2, -1)[..., None] - A)[..., OFF]


MARGIN_MISTAKES = {
    "you went down the column of a truth; wanted is along the row of what is said: diagonal()[:, None].": (
        lambda A: (A.mean(0).diagonal()[None] - A.mean(0))[OFF].min()
    ),
    "the diagonal was compared with itself, which gives 0; leave out i = j.": (
        lambda A: (A.mean(0).diagonal()[:, None] - A.mean(0)).min()
    ),
    "this is the largest lead; wanted is the smallest.": lambda A: _lead(A.mean(0)).max(),
    "this is the mean lead; wanted is the smallest.": lambda A: _lead(A.mean(0)).mean(),
    "the sign is turned: it is the diagonal minus the others.": lambda A: -_lead(A.mean(0)).min(),
    "this is the smallest margin of any one annotator; wanted is the margin of their mean matrix.": (
        lambda A: _lead(A).min()
    ),
    "this is the mean of the annotators' margins; wanted is the margin of their mean matrix.": (
        lambda A: _lead(A).min(1).values.mean()
    ),
}


def margin(function: Callable[[Tensor], float]) -> None:
    """Exercise 1.4: the margin of dominance of A (R, L, L), along the rows of the mean matrix."""
    cases = (A2, ONLY_COLUMNS.repeat(2, 1, 1))  # a positive margin and a negative one
    given = _numbers("1.4", [answer("1.4", function, A.clone()) for A in cases])
    mistakes = {sentence: torch.stack([wrong(A) for A in cases]) for sentence, wrong in MARGIN_MISTAKES.items()}
    right = torch.stack([_lead(A.mean(0)).min() for A in cases])
    judge("1.4", given, right, mistakes, "right. If it is positive, every diagonal entry leads its row.")


# ---- chapter 3 -------------------------------------------------------------------------------------------------------

LABEL_MISTAKES = {
    "that is column `said`: what they say when the truth is `said`. You need row `said`, over all truths.": (
        lambda A, p, said: -(A[:, said] @ p).log()
    ),
    "that is the network's cross-entropy alone; the annotator's matrix is missing.": lambda A, p, said: -p[said].log(),
    "that is the likelihood; the loss is minus its logarithm.": lambda A, p, said: A[said] @ p,
    "the logarithm, but with the wrong sign: a loss is positive.": lambda A, p, said: (A[said] @ p).log(),
    "the mean of logarithms is not the logarithm of the mean: sum over truths first.": (
        lambda A, p, said: -(p * A[said].log()).sum()
    ),
}


def one_label(function: Callable[[Tensor, Tensor, int], Tensor]) -> None:
    """Exercise 3.1: A (L, L), p (L,), said -> the label's negative log-likelihood."""
    case = (A2[0], torch.tensor([0.5, 0.3, 0.2]), 1)
    right = -(case[0][1] @ case[1]).log()
    _judge_number("3.1", function, case, right, LABEL_MISTAKES, "right. Every truth contributes.")


LAMBDA_MISTAKES = {
    "upside down: you converted our lambda into the paper's.": lambda lam, R, n: lam * n / R,
    "R is missing: each annotator's trace is paid for by n / R labels in our loss, not by all n.": (
        lambda lam, R, n: lam / n
    ),
    "that divides by the annotators, but never by the number of labels.": lambda lam, R, n: lam / R,
    "unchanged? Eq. 4 sums over labels, ours is a mean.": lambda lam, R, n: lam,
}


def our_lambda(function: Callable[[float, int, int], float]) -> None:
    """Exercise 3.2: the paper's lambda (Eq. 4), R, observed labels -> ours."""
    _judge_number("3.2", function, (0.3, 5, 40), 0.3 * 5 / 40, LAMBDA_MISTAKES, "right. It is lambda R / n.")


def _column(a: float, t: float) -> tuple[float, float]:
    """Diagonal and m of the column that the trace leaves, t = lambda / class share."""
    m = ((1 - t) + ((1 - t) ** 2 + 4 * t * (1 - a)) ** 0.5) / 2
    return a / (t + m), m


SHRINK_MISTAKES = {
    "t is lambda times L, since a column sees one label in L; you took lambda alone.": (
        lambda a, lam, L: _column(a, lam)[0]
    ),
    "t is lambda times L, not divided by L: the class share is 1 / L.": lambda a, lam, L: _column(a, lam / L)[0],
    "that is m; the diagonal is a / (t + m).": lambda a, lam, L: _column(a, lam * L)[1],
    "you divided by m alone, which is right off the diagonal.": lambda a, lam, L: a / _column(a, lam * L)[1],
    "unchanged? A finite lambda always shrinks.": lambda a, lam, L: a,
}


def shrunken(function: Callable[[float, float, int], float]) -> None:
    """Exercise 3.3: a, lambda, L -> the diagonal that the trace leaves."""
    right = _column(0.55, 0.03 * 8)[0]
    praise = "right. The price of lambda is known in advance."
    _judge_number("3.3", function, (0.55, 0.03, 8), right, SHRINK_MISTAKES, praise)


SHARER_MISTAKES = {
    "all R were taken to share the flip; only k do.": lambda p, k, R: p - (1 - p),
    "the mean is over all R annotators; you did not divide.": lambda p, k, R: p - (1 - p) * k,
    "a flipper sends the whole rest, 1 - p, to one name; it is not spread over others.": (
        lambda p, k, R: p - (1 - p) / (R - 1)
    ),
    "that is the skill at which the margin is zero, not the margin.": lambda p, k, R: k / (R + k),
    "the sign is turned: positive means dominant.": lambda p, k, R: (1 - p) * k / R - p,
}


def sharers_margin(function: Callable[[float, int, int], float]) -> None:
    """Exercise 3.4: skill, sharers, R -> margin of the mean matrix."""
    right = 0.45 - 0.55 * 3 / 7
    _judge_number("3.4", function, (0.45, 3, 7), right, SHARER_MISTAKES, "right. It is zero at p = k / (R + k).")


def _judge_number(exercise: str, function: Callable, case: tuple, right: float, mistakes: dict, praise: str) -> None:
    """A function of numbers with one number as its answer, held against what each mistake gives."""
    given = _numbers(exercise, [answer(exercise, function, *case)])
    wrong = {sentence: _numbers(exercise, [mistake(*case)]) for sentence, mistake in mistakes.items()}
    judge(exercise, given, _numbers(exercise, [right]), wrong, praise)


# ---- what several checks need ----------------------------------------------------------------------------------------


def _tensor(exercise: str, given: object) -> Tensor:
    """The answer as a tensor; CheckFailed where it is none."""
    try:
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        raise CheckFailed(f"Exercise {exercise}: wanted a tensor, got a {type(given).__name__}.") from None


def _numbers(exercise: str, given: list) -> Tensor:
    """One number for each call, (calls,); CheckFailed where a call returned anything else."""
    try:
        return torch.tensor([float(number) for number in given], dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        shape = f" of shape {tuple(given[0].shape)}" if hasattr(given[0], "shape") else ""
        raise CheckFailed(f"Exercise {exercise}: wanted a number, got a {type(given[0]).__name__}{shape}.") from None


def _classes(exercise: str, given: object, n: int) -> Tensor:
    """The answer as n integers; CheckFailed where it is anything else."""
    found = _tensor(exercise, given)
    if found.shape != (n,):
        raise CheckFailed(f"Exercise {exercise}: wanted one class for each item, ({n},); got {tuple(found.shape)}.")
    if found.is_floating_point() and not torch.equal(found, found.round()):
        raise CheckFailed(f"Exercise {exercise}: wanted whole numbers, got {found.dtype} with fractions.")
    return found.long()


def _within(found: Tensor, *classes: int) -> bool:
    return bool(torch.isin(found, torch.tensor(classes)).all())
