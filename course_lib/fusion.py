"""Labels only: the mean, the vote and Dawid-Skene. What can be said of the truth without looking at an image."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from .annotations import MISSING, as_labels
from .confusion import count_matrices, log, posterior


@dataclass(frozen=True, eq=False)
class Fused:
    """p (N, L): probability of each truth; A (R, L, L) and prior (L,): what was estimated on the way; n_labels (N,):
    how many labels an item had (0: its row is the prior, nobody spoke); converged after `iterations`."""

    p: Tensor
    A: Tensor
    prior: Tensor
    n_labels: Tensor
    converged: bool
    iterations: int


def mean_label(labels: Tensor, n_classes: int) -> Tensor:
    """Share of an item's labels that each class got: (N, R) -> (N, L), float64.

    Source: Tanno 2019, Algorithm 2, the start. Differs: the paper divides by R even where labels are missing, and its
    q0 then sums to less than 1; here by the labels observed. An item nobody labelled gets the class shares of all
    labels.

    >>> mean_label(torch.tensor([[0, 1, 1, -1]]), 2)
    tensor([[0.3333, 0.6667]], dtype=torch.float64)
    """
    counts, n = _counts(labels, n_classes)
    if n.sum() == 0:
        raise ValueError("`labels` holds no label at all; is the missing code right?")
    return torch.where(n[:, None] > 0, counts / n[:, None].clamp(min=1), counts.sum(0) / n.sum())


def majority(labels: Tensor, n_classes: int, *, generator: Generator | None = None) -> Tensor:
    """The class most annotators said: (N, R) -> (N,) int64; MISSING where nobody labelled.

    Ties: the lowest class, so that a vote is repeatable; with a generator, one of the tied classes at random, so that
    low classes are not favoured (use this for training labels).

    >>> majority(torch.tensor([[2, 1, 1], [2, 0, -1], [-1, -1, -1]]), 3)
    tensor([ 1,  0, -1])
    """
    counts, n = _counts(labels, n_classes)
    if generator is not None:
        counts = counts + torch.rand(counts.shape, generator=generator, dtype=counts.dtype) / 2  # only breaks ties
    return torch.where(n > 0, counts.argmax(1), MISSING)


def dawid_skene(
    labels: Tensor,
    n_classes: int,
    *,
    people: Sequence[int] | None = None,
    smoothing: float = 0.01,
    max_iterations: int = 200,
    tolerance: float = 1e-6,
) -> Fused:
    """The truth and every annotator's matrix from labels alone, by EM started at the mean label.

    M-step: A and prior by counting against p; E-step: p by Bayes (`confusion.posterior`).
    Source: Dawid & Skene 1979. Differs: `smoothing` is added to each count, so that a class that an annotator never
    used is not vetoed for everybody; 0 gives the paper's estimate.
    Arguments: labels (N, R); people, R integers: columns of one number are readings by one person, and share a matrix.
    Returns: Fused, with one matrix a column.
    Raises: ValueError for max_iterations < 1, negative smoothing, or `people` that are not R. Warns when EM has not
    settled, and when no item has two labels: then nothing shows who is reliable, and the labels are returned.
    """
    labels = _table(labels, n_classes)
    if max_iterations < 1 or smoothing < 0:
        raise ValueError(f"wanted max_iterations >= 1 and smoothing >= 0; got {max_iterations} and {smoothing}.")
    people = list(range(labels.shape[1]) if people is None else people)
    if len(people) != labels.shape[1]:
        raise ValueError(
            f"`people` must name who wrote each of R={labels.shape[1]} columns; got {len(people)} numbers."
        )
    p = mean_label(labels, n_classes)  # (N, L)
    seen = labels != MISSING
    if seen.sum(1).max() == 1:  # the start already explains every label; smoothing would only pull towards one class
        warnings.warn("no item has two labels: the labels stand, and reliability is not identifiable.", stacklevel=2)
        return Fused(p, _matrices(labels, p, people, smoothing), p[seen.any(1)].mean(0), seen.sum(1), True, 0)
    change, iteration = float("inf"), 0
    while iteration < max_iterations and change > tolerance:
        A = _matrices(labels, p, people, smoothing)  # (R, L, L)
        prior = p[seen.any(1)].mean(0)  # (L,)
        new = posterior(log(A)[None], log(prior).expand_as(p), labels).exp()
        change, p, iteration = float((new - p).abs().max()), new, iteration + 1
    if change > tolerance:
        warnings.warn(f"Dawid-Skene still moved by {change:.1e} after {iteration} iterations.", stacklevel=2)
    return Fused(p, A, prior, seen.sum(1), change <= tolerance, iteration)


def _matrices(labels: Tensor, p: Tensor, people: list[int], smoothing: float) -> Tensor:
    """(R, L, L): counted over all columns of a person, whose readings stand below one another."""
    if len(set(people)) == len(people):
        return count_matrices(labels, p, smoothing=smoothing)
    A = {}
    for person in set(people):
        own = labels[:, [c for c, name in enumerate(people) if name == person]]  # (N, readings)
        q = p.repeat_interleave(own.shape[1], 0)  # (N readings, L)
        A[person] = count_matrices(own.reshape(-1, 1), q, smoothing=smoothing)[0]
    return torch.stack([A[person] for person in people])


def _table(labels: Tensor, n_classes: int) -> Tensor:
    labels = as_labels(labels, n_classes)
    if labels.ndim != 2:
        raise ValueError(f"`labels` must be (N, R), one column an annotator; got {tuple(labels.shape)}.")
    return labels


def _counts(labels: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    labels = _table(labels, n_classes)
    seen = labels != MISSING
    counts = torch.zeros(len(labels), n_classes, dtype=torch.float64)
    counts.scatter_add_(1, labels.clamp(min=0), seen.double())
    return counts, seen.sum(1)
