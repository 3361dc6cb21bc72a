"""Fusing masks with a confidence for each rater and class: two readings of a formula of MrPrism (Wu et al.).

What its Proposition 1 really proves is the third, Bayes' rule, and stands in `confusion.posterior`: there a rater's
confidence is a row of a matrix, a number for each class that the truth may have, also for those not voted for.
Both take log_z (N|1, R, L, *S), how likely rater m is to say each class, and labels (N, R, *S) with MISSING; they
return p (N, L, *S).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .annotations import MISSING


def printed(log_z: Tensor, labels: Tensor) -> Tensor:
    """softmax over k of sum_m [z^m = k] log p(rater m says k): an exhibit, since the class that is voted for loses.

    Source: Wu et al., Eq. 1 and 4, "." element by element as the text defines it; the uniform prior p_u changes nothing
    in a softmax. log p is at most 0, and a class that nobody names keeps 0, which is log 1.

    >>> log_z = torch.tensor([.05, .9, .05]).log()[None, None].expand(1, 3, 3)
    >>> printed(log_z, torch.tensor([[1, 1, 1]]))  # three votes for class 1
    tensor([[0.3664, 0.2671, 0.3664]])
    """
    said = _said(log_z, labels)
    return (log_z * said).sum(1).softmax(1)


def weighted(log_z: Tensor, labels: Tensor) -> Tensor:
    """Votes with weight p(rater m says k), in shares of all that is voted: the fusion of the released code.

    No logarithm and no other classes: a vote for k counts for k, the more the likelier rater m was to say k at all.
    Where nobody said anything, every class is as likely.

    >>> log_z = torch.tensor([[.05, .9, .05], [.2, .2, .6]]).log()[None]
    >>> weighted(log_z, torch.tensor([[1, 2]]))
    tensor([[0.0000, 0.6000, 0.4000]])
    """
    votes = (log_z.exp() * _said(log_z, labels)).sum(1)  # (N, L, *S)
    total = votes.sum(1, keepdim=True)
    return torch.where(total > 0, votes / total.clamp(min=1e-12), 1 / votes.shape[1])


def _said(log_z: Tensor, labels: Tensor) -> Tensor:
    if log_z.ndim != labels.ndim + 1 or log_z.shape[1] != labels.shape[1]:
        raise ValueError(
            f"wanted log_z (N|1, R, L, *S) beside labels (N, R, *S); got {tuple(log_z.shape)} and "
            f"{tuple(labels.shape)}."
        )
    classes = torch.arange(log_z.shape[2], device=labels.device).reshape(1, 1, -1, *[1] * (labels.ndim - 2))
    return ((labels[:, :, None] == classes) & (labels != MISSING)[:, :, None]).to(log_z.dtype)  # (N, R, L, *S)
