"""Labels only: the mean, the vote and Dawid-Skene. What can be said of the truth without looking at an image."""

from __future__ import annotations

import warnings
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
    labels: Tensor, n_classes: int, *, smoothing: float = 0.01, max_iterations: int = 200, tolerance: float = 1e-6
) -> Fused:
    """The truth and every annotator's matrix from labels alone, by EM started at the mean label.

    M-step: A and prior by counting against p; E-step: p by Bayes (`confusion.posterior`).
    Source: Dawid & Skene 1979. Differs: `smoothing` is added to each count, so that a class that an annotator never
    used is not vetoed for everybody; 0 gives the paper's estimate.
    Arguments: labels (N, R). Returns: Fused.
    Raises: ValueError for max_iterations < 1 or negative smoothing. Warns when EM has not settled, and when no item
    has two labels: then nothing shows who is reliable, and the labels are returned.
    """
    labels = _table(labels, n_classes)
    if max_iterations < 1 or smoothing < 0:
        raise ValueError(f"wanted max_iterations >= 1 and smoothing >= 0; got {max_iterations} and {smoothing}.")
    p = mean_label(labels, n_classes)  # (N, L)
    seen = labels != MISSING
    if seen.sum(1).max() == 1:  # the start already explains every label; smoothing would only pull towards one class
        warnings.warn("no item has two labels: the labels stand, and reliability is not identifiable.", stacklevel=2)
        return Fused(p, count_matrices(labels, p, smoothing=smoothing), p[seen.any(1)].mean(0), seen.sum(1), True, 0)
    change, iteration = float("inf"), 0
    while iteration < max_iterations and change > tolerance:
        A = count_matrices(labels, p, smoothing=smoothing)  # (R, L, L)
        prior = p[seen.any(1)].mean(0)  # (L,)
        new = posterior(log(A)[None], log(prior).expand_as(p), labels).exp()
        change, p, iteration = float((new - p).abs().max()), new, iteration + 1
    if change > tolerance:
        warnings.warn(f"Dawid-Skene still moved by {change:.1e} after {iteration} iterations.", stacklevel=2)
    return Fused(p, A, prior, seen.sum(1), change <= tolerance, iteration)


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
