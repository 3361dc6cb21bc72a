"""How good are the truth and the matrices? Every function checks shapes, and says what it counts."""

from __future__ import annotations

import torch
from torch import Tensor

from .annotations import MISSING
from .confusion import check_cm, skills


def accuracy(predicted: Tensor, truth: Tensor) -> float:
    """Share of items whose class is right: both (N,) or (N, H, W) integers.

    Raises: ValueError for unequal shapes; (N, 1) against (N,) would compare every item with every other.

    >>> accuracy(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]))  # doctest: +ELLIPSIS
    0.666...
    """
    predicted, truth = torch.as_tensor(predicted), torch.as_tensor(truth)
    if predicted.shape != truth.shape:
        raise ValueError(
            f"`predicted` and `truth` must have one shape; got {tuple(predicted.shape)} and {tuple(truth.shape)}. "
            "Labels of shape (N, 1) need labels[:, 0]."
        )
    if predicted.numel() == 0:
        raise ValueError("no items to compare: the accuracy of nothing is not a number.")
    return float((predicted == truth).float().mean())


def annotator_accuracy(labels: Tensor, truth: Tensor) -> Tensor:
    """Share of each annotator's own labels that are right: labels (N, R), truth (N,) -> (R,); NaN where none."""
    _one_truth_each(labels, truth)
    seen = labels != MISSING
    return ((labels == truth[:, None]) & seen).sum(0) / seen.sum(0)  # (R,); 0 / 0 is NaN in torch


def cm_error(A: Tensor, A_hat: Tensor) -> float:
    """Mean squared distance of matrices: (1 / (R L)) sum_r sum_ij (a_ij - â_ij)^2.

    Source: Tanno 2019, section 3.2. Differs: the paper says the range is [0, 1]; the largest value is 2 (every class
    called by another's name, against the identity). Arguments: both (R, L, L).

    >>> cm_error(torch.eye(3)[None], torch.eye(3)[[1, 2, 0]][None])
    2.0
    """
    A, A_hat = check_cm(A), check_cm(A_hat)
    if A.shape != A_hat.shape:
        raise ValueError(f"both must be (R, L, L); got {tuple(A.shape)} and {tuple(A_hat.shape)}.")
    return float(((A - A_hat) ** 2).sum((-2, -1)).mean() / A.shape[-1])


def skill_mae(A: Tensor, A_hat: Tensor) -> float:
    """Mean absolute error of the R skills (means of the diagonals)."""
    A, A_hat = check_cm(A), check_cm(A_hat)
    if A.shape != A_hat.shape:
        raise ValueError(f"both must be (R, L, L); got {tuple(A.shape)} and {tuple(A_hat.shape)}.")
    return float((skills(A) - skills(A_hat)).abs().mean())


def pairwise_agreement(labels: Tensor) -> Tensor:
    """Share of common items on which two annotators say the same: labels (N, R) -> (R, R); NaN without any."""
    seen = labels != MISSING
    same = (labels[:, :, None] == labels[:, None]) & seen[:, :, None] & seen[:, None]  # (N, R, R)
    return same.sum(0) / (seen[:, :, None] & seen[:, None]).sum(0)  # (R, R)


def calibration_error(log_p: Tensor, truth: Tensor, *, bins: int = 10) -> float:
    """Expected calibration error: mean |accuracy - confidence| over bins of confidence, weighted by their size.

    Arguments: log_p (N, L), truth (N,). Returns: 0 (honest) to 1.
    """
    _one_truth_each(log_p, truth)
    confidence, predicted = log_p.exp().max(1)
    right = (predicted == truth).float()
    which = (confidence * bins).long().clamp(max=bins - 1)  # (N,)
    gap = torch.zeros(bins).index_add_(0, which, right - confidence)
    return float(gap.abs().sum() / len(truth))


def _one_truth_each(items: Tensor, truth: Tensor) -> None:
    if truth.shape != items.shape[:1]:
        raise ValueError(
            f"`truth` must be (N,) = ({len(items)},); got {tuple(truth.shape)}. A column needs truth[:, 0]."
        )
