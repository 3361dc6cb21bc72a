"""The checks of chapter 5, the gallery of rivals. Built like those of `classes`: each mistake has its sentence."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.checks import CheckFailed, answer, judge
from course_lib.checks.classes import _numbers, _tensor

P3, SAID, BETA = torch.tensor([0.5, 0.3, 0.2]), 1, 0.7
LOG_HEADS = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]]).log()  # (R, L)
LOG_W = torch.tensor([0.8, 0.2]).log()
JOINT = torch.tensor([[0.4, 0.0, 0.1], [0.1, 0.3, 0.1]])  # neither square nor symmetric, and with a zero


def _label(p: Tensor, said: int) -> Tensor:
    return torch.eye(len(p))[said]


TARGET_MISTAKES = {
    "the weights are swapped: beta belongs to the label.": lambda p, i, b: (1 - b) * _label(p, i) + b * p,
    "this is the hard target; soft takes p itself, not the class that p favours.": (
        lambda p, i, b: b * _label(p, i) + (1 - b) * _label(p, int(p.argmax()))
    ),
    "it does not sum to 1: p must be weighted with 1 - beta.": lambda p, i, b: b * _label(p, i) + p,
    "it does not sum to 1: the label must be weighted with beta.": lambda p, i, b: _label(p, i) + (1 - b) * p,
    "that is the label alone; the network's own answer is missing.": lambda p, i, b: _label(p, i),
    "the entry of the label was overwritten; p's part of it stays, so add beta to it.": (
        lambda p, i, b: torch.where(_label(p, i) > 0, b, (1 - b) * p)
    ),
    "wanted is the target, (L,); that is the loss.": (
        lambda p, i, b: -((b * _label(p, i) + (1 - b) * p) * p.log()).sum()
    ),
}


def bootstrap_target(function: Callable[[Tensor, int, float], Tensor]) -> None:
    """Exercise 5.1: p (L,), said, beta -> the soft target (L,)."""
    given = _tensor("5.1", answer("5.1", function, P3.clone(), SAID, BETA))
    mistakes = {sentence: wrong(P3, SAID, BETA) for sentence, wrong in TARGET_MISTAKES.items()}
    right = BETA * _label(P3, SAID) + (1 - BETA) * P3
    judge("5.1", given, right, mistakes, "right. It is a distribution, and leans towards the label.")


START_MISTAKES = {
    "that is chance; the diagonal of I is larger than the rest, so softmax puts more there.": lambda L: 1 / L,
    "one of the L entries is the e itself: L - 1 others remain.": lambda L: math.e / (math.e + L),
    "a zero does not vanish in a softmax: exp(0) = 1, L - 1 times.": lambda L: 1.0,
    "the numerator is exp(1) = e, not 1.": lambda L: 1 / (math.e + L - 1),
    "that is off the diagonal of the other column sum; each column holds one e and L - 1 ones.": (
        lambda L: math.e / (L - 1)
    ),
}


def start_diagonal(function: Callable[[int], float]) -> None:
    """Exercise 5.2: L -> the diagonal of softmax(I)."""
    sizes = (3, 7)
    given = _numbers("5.2", [answer("5.2", function, L) for L in sizes])
    mistakes = {sentence: _numbers("5.2", [wrong(L) for L in sizes]) for sentence, wrong in START_MISTAKES.items()}
    right = _numbers("5.2", [math.e / (math.e + L - 1) for L in sizes])
    judge("5.2", given, right, mistakes, "right. It is e / (e + L - 1), .23 for ten classes.")


MIXTURE_MISTAKES = {
    "you averaged the log-probabilities, which is a geometric mean, and does not sum to 1.": (
        lambda log_p, log_w: (log_w.exp()[:, None] * log_p).sum(0)
    ),
    "you averaged logits: normalised, it is a distribution, but a geometric mean; add probabilities.": (
        lambda log_p, log_w: (log_w.exp()[:, None] * log_p).sum(0).log_softmax(0)
    ),
    "wrong axis: that sums over the classes; the mean runs over the R heads.": (
        lambda log_p, log_w: (log_p + log_w[:, None]).logsumexp(1)
    ),
    "the weights are missing: this sums all heads.": lambda log_p, log_w: log_p.logsumexp(0),
    "the weights are missing: this is the plain mean of all heads.": (lambda log_p, log_w: log_p.exp().mean(0).log()),
    "`log_w` are logarithms already; it was multiplied where it must be added.": (
        lambda log_p, log_w: (log_p * log_w[:, None]).logsumexp(0)
    ),
    "right, but these are probabilities; wanted is their logarithm.": (
        lambda log_p, log_w: (log_w.exp()[:, None] * log_p.exp()).sum(0)
    ),
    "that adds the logarithms, a product of all heads; a sum of probabilities is a logsumexp.": (
        lambda log_p, log_w: (log_p + log_w[:, None]).sum(0)
    ),
}


def mixture(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Exercise 5.3: log_p (R, L), log_w (R,) -> log of the weighted mean, (L,)."""
    given = _tensor("5.3", answer("5.3", function, LOG_HEADS.clone(), LOG_W.clone()))
    mistakes = {sentence: wrong(LOG_HEADS, LOG_W) for sentence, wrong in MIXTURE_MISTAKES.items()}
    right = (LOG_HEADS + LOG_W[:, None]).logsumexp(0)
    judge("5.3", given, right, mistakes, "right. Its exponential sums to 1.")


def _ratio(P: Tensor) -> Tensor:
    return P / (P.sum(1, keepdim=True) * P.sum(0, keepdim=True))


def _plog(weight: Tensor, of: Tensor) -> Tensor:
    """Sum of weight times log of, where `of` is positive."""
    return torch.where(of > 0, weight * of.clamp(min=1e-30).log(), 0).sum()


NAN = "nan: 0 log 0 counts as 0 here, but a computer says nan; leave out the pairs that never occur."
INFORMATION_MISTAKES = {
    NAN: lambda P: (P * _ratio(P).log()).sum(),
    "that is in bits; nats use the natural logarithm.": lambda P: _plog(P, _ratio(P)) / math.log(2),
    "that is the entropy of the table; divide P by the product of its margins first.": lambda P: -_plog(P, P),
    "the sign is turned: information is never negative.": lambda P: -_plog(P, _ratio(P)),
    "each pair counts with its own probability; you weighted all pairs alike.": (
        lambda P: _plog(torch.full_like(P, 1 / P.numel()), _ratio(P))
    ),
    "only one margin was divided out; both are needed.": lambda P: _plog(P, P / P.sum(1, keepdim=True)),
    "only one margin was divided out, that of the columns; both are needed.": (
        lambda P: _plog(P, P / P.sum(0, keepdim=True))
    ),
    "the weights are the joint P, not the product of the margins.": (
        lambda P: _plog(P.sum(1, keepdim=True) * P.sum(0, keepdim=True), _ratio(P))
    ),
}


def mutual_information(function: Callable[[Tensor], float]) -> None:
    """Exercise 5.4: joint (I, J) -> mutual information in nats."""
    given = _numbers("5.4", [answer("5.4", function, JOINT.clone())])
    if given.isnan().any():
        raise CheckFailed(f"Exercise 5.4: {NAN}")
    mistakes = {sentence: _numbers("5.4", [wrong(JOINT)]) for sentence, wrong in INFORMATION_MISTAKES.items()}
    right = _numbers("5.4", [_plog(JOINT, _ratio(JOINT))])
    judge("5.4", given, right, mistakes, "right. It is 0 only where nothing is shared.")
