"""Part I: the checks of chapter 4, and its contest."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.annotations import MISSING
from course_lib.checks import CheckFailed, answer, judge
from course_lib.checks.classes import A2, _numbers, _tensor
from course_lib.confusion import check_cm, dominance, skills
from course_lib.networks import seeded

# ---- 4.1: one E-step -------------------------------------------------------------------------------------------------

A3 = torch.cat([A2, torch.tensor([[[0.6, 0.3, 0.1], [0.3, 0.5, 0.2], [0.1, 0.2, 0.7]]])])  # (3, 3, 3)
ONE_IMAGE = (A3, torch.tensor([0.5, 0.3, 0.2]), torch.tensor([1, MISSING, 2]))


def _posterior(A: Tensor, p: Tensor, said: Tensor) -> Tensor:
    q = p.clone()
    for r, i in enumerate(said.tolist()):
        q = q * (A[r, i] if i != MISSING else 1)
    return q / q.sum()


def _flat(A: Tensor, p: Tensor, said: Tensor) -> Tensor:
    return _posterior(A, torch.ones_like(p), said)


STEP_MISTAKES = {
    "the labels alone: the network's p, the prior, is missing.": _flat,
    "nearly: q must sum to 1, divide by its sum.": lambda A, p, said: p * A[0, said[0]] * A[2, said[2]],
    "that is column `said`: what they say when the truth is `said`. Wanted is row `said`, over all truths.": (
        lambda A, p, said: _posterior(A.transpose(1, 2), p, said)
    ),
    "a missing label, -1, was read as the last class; leave that annotator out.": (
        lambda A, p, said: _posterior(A, p, said % A.shape[1])
    ),
    "a missing label, -1, was read as class 0; leave that annotator out.": (
        lambda A, p, said: _posterior(A, p, said.clamp(min=0))
    ),
    "evidence multiplies: you added the annotators' rows.": (
        lambda A, p, said: _posterior((A[0, said[0]] + A[2, said[2]]).expand(1, 3, 3), p, said[:1])
    ),
    "that is the prior, unchanged: what was said plays no part.": lambda A, p, said: p.clone(),
}


def e_step(function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """Exercise 4.1: A (R, L, L), p (L,), said (R,) with -1 -> q (L,), the truth given network and labels."""
    given = _tensor("4.1", answer("4.1", function, *(x.clone() for x in ONE_IMAGE)))
    mistakes = {sentence: wrong(*ONE_IMAGE) for sentence, wrong in STEP_MISTAKES.items()}
    judge("4.1", given, _posterior(*ONE_IMAGE), mistakes, "right. Prior times one row for each label, then normalise.")


# ---- 4.2: how many sharers -------------------------------------------------------------------------------------------

SHARER_CASES = ((0.3, 5), (0.25, 5), (0.41, 5), (0.3, 20))  # none of them a tie
COUNT_MISTAKES = {
    "one too few: with that many the margin is still positive; round up.": (
        lambda p, R: math.floor(p * R / (1 - p) + 1e-9)
    ),
    "the mean is over all R annotators; R is missing.": lambda p, R: math.ceil(p / (1 - p)),
    "upside down: p / (1 - p), not (1 - p) / p.": lambda p, R: math.ceil((1 - p) * R / p),
    "the sharers send 1 - p each, not 1: k (1 - p) / R against p.": lambda p, R: math.ceil(p * R),
    "a number of people is whole: round up.": lambda p, R: p * R / (1 - p),
}


def how_many(function: Callable[[float, int], int]) -> None:
    """Exercise 4.2: skill p, R annotators -> the smallest k that, sharing a flip, breaks dominance."""
    given = _numbers("4.2", [answer("4.2", function, *case) for case in SHARER_CASES])
    right = _numbers("4.2", [math.ceil(p * R / (1 - p)) for p, R in SHARER_CASES])
    wrong = {s: _numbers("4.2", [mistake(*case) for case in SHARER_CASES]) for s, mistake in COUNT_MISTAKES.items()}
    judge("4.2", given, right, wrong, "right. Two of five are enough at skill .25.")


# ---- 4.3: the contest ------------------------------------------------------------------------------------------------

PEOPLE, CLASSES, LEAST_SKILL = 5, 10, 0.5


def _honest(skill: float) -> Tensor:
    """(5, 10, 10): annotator r slips to class j + r + 1, so that nobody shares a flip."""
    I = torch.eye(CLASSES)  # noqa: E741
    return torch.stack([skill * I + (1 - skill) * I.roll(r + 1, 0) for r in range(PEOPLE)])


def _shared(skill: float) -> Tensor:
    I = torch.eye(CLASSES)  # noqa: E741
    return (skill * I + (1 - skill) * I.roll(1, 0)).repeat(PEOPLE, 1, 1)


def _rows(skill: float) -> Tensor:
    A = _shared(skill)
    A[:, :, 3] = torch.eye(CLASSES)[3]  # column 3 is certain, so that rows and columns are not alike
    return A.transpose(1, 2)


CONTEST_MISTAKES = {
    "the matrices must be (5, 10, 10): five annotators, said before truth; got (10, 10).": lambda: _shared(0.5)[0],
    "rows sum to 1 and columns do not: A is [said, truth], yours is transposed.": lambda: _rows(0.5),
    "every column of A[said, truth] must sum to 1, and every entry lie in [0, 1].": lambda: 0.9 * _shared(0.6),
    "the mean skill is 0.450; the rule is at least 0.5.": lambda: _shared(0.45),
    "fair, but not fooled: the mean matrix is dominant by +0.400, and all 10 classes are named right.": (
        lambda: _honest(0.5)
    ),
}


def contest(design: Callable[[], Tensor]) -> None:
    """Exercise 4.3: design() -> A (5, 10, 10), mean skill >= .5. Prints the margin and how many classes went wrong."""
    A = _tensor("4.3", answer("4.3", design))
    refuse = lambda why: CheckFailed(f"Exercise 4.3: {why}")  # noqa: E731
    if tuple(A.shape) != (PEOPLE, CLASSES, CLASSES):
        want = f"({PEOPLE}, {CLASSES}, {CLASSES}): five annotators, said before truth"
        raise refuse(f"the matrices must be {want}; got {tuple(A.shape)}.")
    A = A.float()
    try:
        check_cm(A)
    except ValueError as error:
        if "transposed" in str(error):
            raise refuse("rows sum to 1 and columns do not: A is [said, truth], yours is transposed.") from None
        raise refuse("every column of A[said, truth] must sum to 1, and every entry lie in [0, 1].") from None
    skill, margin = float(skills(A).mean()), dominance(A)
    if skill < LEAST_SKILL - 1e-4:
        raise refuse(f"the mean skill is {skill:.3f}; the rule is at least {LEAST_SKILL}.")
    wrong = CLASSES - classes_right(A)
    if margin > 1e-6 and wrong == 0:
        raise refuse(
            f"fair, but not fooled: the mean matrix is dominant by {margin:+.3f}, and all {CLASSES} classes are named "
            "right."
        )
    print(
        f"✓ Exercise 4.3: right. Mean skill {skill:.3f}, margin {margin:+.3f}; score: {wrong} of {CLASSES} classes "
        "named wrong."
    )


def classes_right(A: Tensor, *, lam: float = 0.02, steps: int = 300) -> int:
    """Of L classes, how many the recipe of chapter 3 names right, when the network is a table and data have no end.

    The network knows which of L groups an image is in, and learns p (L, L) for them; what is said of each group is A
    itself, one label an image. A third of the steps the matrices stay at the identity, as in the recipe.
    """
    R, L = A.shape[:2]
    logits = (0.01 * torch.randn(L, L, generator=seeded(0))).requires_grad_()  # (groups, L)
    matrices = (math.log(0.95 * (L - 1) / 0.05) * torch.eye(L).repeat(R, 1, 1)).requires_grad_()
    weight = A.permute(2, 0, 1)  # (groups, R, said): how often this is said of that group
    optimiser = torch.optim.Adam([logits, matrices], lr=0.05)
    for step in range(steps):
        log_A, log_p = matrices.log_softmax(1), logits.log_softmax(1)
        expected = (log_A[None] + log_p[:, None, None]).logsumexp(3)  # (groups, R, said)
        traces = log_A.exp().diagonal(dim1=1, dim2=2).sum(1).mean()
        loss = -(weight * expected).sum() / (L * R) + lam * traces
        optimiser.zero_grad()
        loss.backward()
        if step < steps // 3:
            matrices.grad = None
        optimiser.step()
    return int((logits.argmax(1) == torch.arange(L)).sum())
