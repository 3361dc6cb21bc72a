"""How far readers agree, before anything is learned: the numbers that a radiologist would ask for.

Of masks, `metrics.pairwise_dice`; of ratings, Fleiss' kappa and Krippendorff's alpha; of areas, Bland and Altman's
limits.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from .annotations import MISSING, spoken

DISTANCES = ("nominal", "interval")


class Ratings(NamedTuple):
    """exact: the share of pairs of readers of one item who say the same. kappa, alpha: 0 by chance, 1 never apart."""

    exact: float
    kappa: float
    alpha: float


def ratings(said: Tensor, *, distance: str = "nominal", times: Tensor | None = None) -> Ratings:
    """Fleiss' kappa and Krippendorff's alpha of said (N, R), whole numbers or MISSING, from how often each was said.

    kappa is of the items that all R rated, and asks only for same or not; alpha is of all that two or more rated,
    with `distance`: nominal, same or not, or interval, the squared difference, for scales.
    Both are of readers who may be others from item to item. Source: Fleiss 1971, Krippendorff 2011.
    times (N,): how often each row occurs, once by default; pixels are many, and their patterns few.
    Raises: ValueError if nothing can be compared, and for a code below 0 that is not MISSING. Warns where all say the
    same of everything: kappa and alpha are NaN then, beside `exact` 1.

    >>> ratings(torch.tensor([[1, 1, 1], [2, 2, 2], [1, 2, 2]])).exact.__round__(3)
    0.778
    """
    if distance not in DISTANCES:
        raise ValueError(f"`distance` must be one of {DISTANCES}; got {distance!r}.")
    if said.ndim != 2 or said.is_floating_point():
        raise ValueError(f"`said` must be whole numbers (N, R), one column a reader; got {tuple(said.shape)}.")
    several = spoken(said).sum(1) >= 2
    shared, R = said[several], said.shape[1]
    if not len(shared):
        raise ValueError("no item was rated by two readers, so there is nothing to agree on.")
    item, reader = (shared != MISSING).nonzero(as_tuple=True)
    values, code = shared[item, reader].unique(return_inverse=True)  # (L,)
    if len(values) == 1:
        warnings.warn("no variation: all say the same, as chance would; kappa and alpha are not defined.", stacklevel=2)
        return Ratings(1.0, float("nan"), float("nan"))
    n = torch.ones(len(shared), dtype=torch.double) if times is None else times[several].double()
    counts = torch.bincount(item * len(values) + code, minlength=len(shared) * len(values))
    counts, values = counts.reshape(len(shared), -1).double(), values.double()  # (N, L)
    rated, same = counts.sum(1), (counts**2).sum(1)  # (N,): ratings of an item, and their pairs that say the same
    exact = (n * (same - rated)).sum() / (n * rated * (rated - 1)).sum()
    whole = n * (rated == R)  # (N,); kappa is NaN where no item was rated by everybody
    share = whole @ counts / (whole.sum() * R)  # (L,)
    observed, chance = whole @ ((same - R) / (R * (R - 1))) / whole.sum(), (share**2).sum()
    kappa = (observed - chance) / (1 - chance)
    squared = lambda c: 2 * (c.sum(-1) * (c * values**2).sum(-1) - (c * values).sum(-1) ** 2)  # noqa: E731
    apart = squared if distance == "interval" else lambda c: c.sum(-1) ** 2 - (c**2).sum(-1)  # over ordered pairs
    total = n @ counts  # (L,)
    alpha = 1 - (n * apart(counts) / (rated - 1)).sum() / (apart(total) / (total.sum() - 1))
    return Ratings(float(exact), float(kappa), float(alpha))


class BlandAltman(NamedTuple):
    """middle, difference (n,): of each pair of readings; bias: the mean difference; low, high: the limits between which
    95 % of differences lie, bias -+ 1.96 standard deviations."""

    middle: Tensor
    difference: Tensor
    bias: float
    low: float
    high: float


def bland_altman(first: Tensor, second: Tensor) -> BlandAltman:
    """Two readings of the same quantity, (n,) each: do they differ by a constant, and by how much at most?

    Source: Bland and Altman 1986. Which reader is first decides the sign; among anonymous readers it means nothing, and
    only the width says something.
    """
    if first.shape != second.shape or first.ndim != 1 or len(first) < 2:
        raise ValueError(f"wanted two readings (n,) of the same n >= 2 items; got {first.shape} and {second.shape}.")
    first, second = first.double(), second.double()
    apart = first - second
    half = 1.96 * float(apart.std())
    bias = float(apart.mean())
    return BlandAltman((first + second) / 2, apart, bias, bias - half, bias + half)
