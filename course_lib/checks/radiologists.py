"""Part II: the checks of chapter 12. Each calls the reader's function on a few readings, and names the mistake."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor

from course_lib.agreement import ratings
from course_lib.checks import CheckFailed, answer, judge
from course_lib.checks.classes import _judge_number, _tensor
from course_lib.networks import seeded

GRADES = torch.tensor([[1, 2, 2], [5, 4, 5], [3, 3, 1], [2, 4, 3], [5, 5, 5], [1, 1, 2]])
FIRST, SECOND = torch.triu_indices(3, 3, 1)

ALPHA_MISTAKES = {
    "that is alpha of same or not; on a scale, square how far two grades are apart.": lambda s: ratings(s).alpha,
    "subtract the ratio from 1: readers who never differ get 1.": lambda s: 1 - _alpha(s),
    "within a nodule divide by R - 1: a pair has two different readers.": (
        lambda s: 1 - s.double().var(1, correction=0).mean() / s.double().var()
    ),
    "over all ratings divide by their number less 1: a pair has two different ratings.": (
        lambda s: 1 - s.double().var(1).mean() / s.double().var(correction=0)
    ),
    "by chance means any two of all ratings, not the means of two nodules.": (
        lambda s: 1 - s.double().var(1).mean() / s.double().mean(1).var()
    ),
    "you took how far grades are apart; take its square.": lambda s: 1 - _apart(s, 1),
}


def _alpha(said: Tensor) -> Tensor:
    return 1 - said.double().var(1).mean() / said.double().var()


def _apart(said: Tensor, power: int) -> Tensor:
    """Mean |difference|^power of two readers of an item, over that of any two ratings."""
    x = said.double()
    far = (x.flatten()[:, None] - x.flatten()).abs() ** power
    return ((x[:, FIRST] - x[:, SECOND]).abs() ** power).mean() / (far.sum() / (far.numel() - len(far)))


def alpha_interval(function: Callable[[Tensor], float]) -> None:
    """Exercise 12.1: grades (N, R), nothing missing -> Krippendorff's alpha with squared differences."""
    praise = "right. One minus a ratio of two variances."
    _judge_number(
        "12.1", function, (GRADES.clone(),), ratings(GRADES, distance="interval").alpha, ALPHA_MISTAKES, praise
    )


AREAS = torch.tensor([[30.0, 36.0, 27.0], [80.0, 101.0, 90.0], [12.0, 12.5, 17.0], [55.0, 43.0, 61.0]])

LIMIT_MISTAKES = {
    "that is about the mean of the differences; of anonymous readers none comes first, so the middle is 0.": (
        lambda a: 1.96 * (a[:, FIRST] - a[:, SECOND]).double().std()
    ),
    "that is how far a reading is from the mean of its nodule; of a difference, two variances add up.": (
        lambda a: _limit(a) / 2**0.5
    ),
    "the root is missing.": lambda a: 1.96 * ((a[:, FIRST] - a[:, SECOND]).double() ** 2).mean(),
    "1.96 is missing.": lambda a: _limit(a) / 1.96,
    "you took the size of the differences; take the root of their mean square.": (
        lambda a: 1.96 * (a[:, FIRST] - a[:, SECOND]).double().abs().mean()
    ),
    "slots 1 and 2 alone are one pair of three; use all pairs.": (
        lambda a: 1.96 * ((a[:, 0] - a[:, 1]).double() ** 2).mean().sqrt()
    ),
    "within a nodule divide by R - 1, not by R.": (
        lambda a: 1.96 * (2 * a.double().var(1, correction=0).mean()).sqrt()
    ),
    "a root for each nodule and then their mean is too small; take the mean first.": (
        lambda a: 1.96 * (2 * a.double().var(1)).sqrt().mean()
    ),
}


def _limit(areas: Tensor) -> Tensor:
    return 1.96 * (2 * areas.double().var(1).mean()).sqrt()


def limit(function: Callable[[Tensor], float]) -> None:
    """Exercise 12.2: areas (N, R) of anonymous readers -> 95 % of differences lie within -+ this."""
    praise = "right. No slot was first, and every pair was asked."
    _judge_number("12.2", function, (AREAS.clone(),), _limit(AREAS), LIMIT_MISTAKES, praise)


PATIENT = torch.tensor([0, 0, 0, 1, 2, 2, 3, 3, 3, 3, 4, 5, 5])
VALUES = 10 * torch.arange(len(PATIENT))[:, None] + torch.arange(4)  # row and slot can be read off each number
Shuffle = Callable[[Tensor, Tensor, Generator], Tensor]

SHUFFLE_MISTAKES = {
    "a row holds other numbers than before; each reading stays with its nodule, once.": lambda v, p, g: v[
        torch.randperm(len(v), generator=g)
    ],
    "nothing moved.": lambda v, p, g: v.clone(),
    "the nodules of one patient got different orders; whoever read one read the others.": lambda v, p, g: v.gather(
        1, torch.rand(v.shape, generator=g).argsort(1)
    ),
    "all patients got the same order; their readers are other people.": lambda v, p, g: v[
        :, torch.randperm(v.shape[1], generator=g)
    ],
    "draw from the generator that comes in: the same seed must give the same orders.": lambda v, p, g: v.gather(
        1, torch.rand(int(p.max()) + 1, v.shape[1]).argsort(1)[p]
    ),
    "some orders never occur; each of the R! must be possible.": lambda v, p, g: v.gather(
        1, (torch.arange(v.shape[1]) + torch.randint(v.shape[1], (int(p.max()) + 1, 1), generator=g))[p] % v.shape[1]
    ),
}


def by_patient(function: Shuffle) -> None:
    """Exercise 12.3: values (N, R), patient (N,), generator -> slots shuffled, alike for all nodules of a patient."""
    said = list(SHUFFLE_MISTAKES)
    refuse = lambda k: CheckFailed(f"Exercise 12.3: {said[k]}")  # noqa: E731
    orders, same, alike = set(), True, True
    for seed in range(60):
        given = _tensor("12.3", answer("12.3", function, VALUES.clone(), PATIENT.clone(), seeded(seed)))
        if given.shape != VALUES.shape:
            raise CheckFailed(f"Exercise 12.3: wanted shape {tuple(VALUES.shape)}, got {tuple(given.shape)}.")
        if not given.sort(1).values.equal(VALUES):
            raise refuse(0)
        order = given % 10  # (N, R)
        first = torch.stack([order[p == PATIENT][0] for p in range(6)])  # (patients, R)
        if not order.equal(first[PATIENT]):
            raise refuse(2)
        again = function(VALUES.clone(), PATIENT.clone(), seeded(seed))
        if not torch.as_tensor(again).equal(given):
            raise refuse(4)
        orders |= set(map(tuple, first.tolist()))
        same, alike = same and given.equal(VALUES), alike and bool((first == first[0]).all())
    for wrong, k in ((same, 1), (alike, 3), (len(orders) < 24, 5)):
        if wrong:
            raise refuse(k)
    print(
        "✓ Exercise 12.3: right. What is shuffled is what could have been otherwise: who sat in which slot of a scan."
    )


COUNTS = {"p3": 1, "p8": 6, "p1": 4, "p5": 2, "p9": 5, "p2": 3}  # 21 nodules: three folds of 7 are possible
PATIENTS = tuple(patient for patient, n in COUNTS.items() for _ in range(n))
FOLDS = 3


def _dealt(patients: Sequence[str], K: int, order: Sequence[str], to_smallest: bool = True) -> Tensor:
    size, where = [0] * K, {}
    for turn, patient in enumerate(order):
        fold = size.index(min(size)) if to_smallest else turn % K
        where[patient] = fold
        size[fold] += patients.count(patient)
    return torch.tensor([where[patient] for patient in patients])


UNEVEN = "the folds are uneven; begin with the patients who have most nodules, and give each to the smallest fold."
FOLD_MISTAKES = {
    "a patient is in two folds.": lambda patients, K: torch.arange(len(patients)) % K,
    "folds are numbered 0 to K - 1.": lambda patients, K: _folds(patients, K) + 1,
    "a fold is empty.": lambda patients, K: torch.zeros(len(patients), dtype=torch.long),
    UNEVEN: lambda patients, K: _dealt(patients, K, sorted(set(patients)), to_smallest=False),
}


def _folds(patients: Sequence[str], K: int) -> Tensor:
    return _dealt(patients, K, sorted(set(patients), key=patients.count, reverse=True))


def folds(function: Callable[[Sequence[str], int], Tensor]) -> None:
    """Exercise 12.4: a patient for each nodule (N,), K -> a fold for each nodule (N,), no patient in two."""
    given = _tensor("12.4", answer("12.4", function, PATIENTS, FOLDS))
    refuse = lambda k: CheckFailed(f"Exercise 12.4: {list(FOLD_MISTAKES)[k]}")  # noqa: E731
    if given.shape != (len(PATIENTS),) or given.is_floating_point():
        raise CheckFailed(f"Exercise 12.4: wanted a whole number for each nodule, ({len(PATIENTS)},).")
    if any(len({f for f, q in zip(given.tolist(), PATIENTS, strict=True) if q == p}) > 1 for p in COUNTS):
        raise refuse(0)
    if int(given.min()) < 0 or int(given.max()) >= FOLDS:
        raise refuse(1)
    size = torch.bincount(given, minlength=FOLDS)
    if not size.all():
        raise refuse(2)
    if int(size.max() - size.min()) > 1:
        raise refuse(3)
    judge("12.4", size, torch.full((FOLDS,), 7), {}, "right. No patient is in two folds, and the folds are even.")
