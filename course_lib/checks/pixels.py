"""Part II: the checks of chapter 8. Each calls the reader's function on a few pixels and names the likely mistake."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.annotations import MISSING
from course_lib.checks import answer, judge
from course_lib.checks.classes import _judge_number, _numbers, _tensor
from course_lib.confusion import apply, joint_log_likelihood, label_log_likelihood
from course_lib.networks import seeded

# Two pictures of 2 x 3 pixels, three annotators, three classes; the second picture was not shown to annotator 1.
LOG_P = torch.randn(2, 3, 2, 3, generator=seeded(80)).log_softmax(1)  # (N, L, H, W)
LOG_A = (1.5 * torch.randn(2, 3, 3, 3, 2, 3, generator=seeded(81))).log_softmax(2)  # (N, R, L, L, H, W)
LABELS = torch.randint(0, 3, (2, 3, 2, 3), generator=seeded(82))  # (N, R, H, W)
LABELS[1, 1] = MISSING
SEEN = LABELS != MISSING

# ---- 8.1: the loss of the labels -------------------------------------------------------------------------------------


def _per_label(log_A: Tensor, log_p: Tensor, labels: Tensor) -> Tensor:
    return -label_log_likelihood(log_A, log_p, labels)


def _said(scores: Tensor, labels: Tensor) -> Tensor:
    """scores (N, R, L, *S) at what was said, (N, R, *S)."""
    return scores.gather(2, labels.clamp(min=0)[:, :, None]).squeeze(2)


def _column(log_A: Tensor, truth: Tensor) -> Tensor:
    """log_A of one truth (N, *S) at each pixel: (N, R, L, *S)."""
    return log_A.gather(3, truth[:, None, None, None].expand(*log_A.shape[:3], 1, *log_A.shape[4:])).squeeze(3)


def _observed_mean(values: Tensor, labels: Tensor) -> Tensor:
    return values[labels != MISSING].mean()


LOSS_MISTAKES = {
    "you took the column `said`; the truth is the last axis of a matrix, what is said the one before.": (
        lambda A, p, said: _observed_mean(_per_label(A.transpose(2, 3), p, said), said)
    ),
    "a missing label, -1, was scored as class 0; leave it out.": (
        lambda A, p, said: -_said(apply(A, p), said).mean()
    ),
    "a missing label, -1, was scored as the last class: as an index, -1 means the last; leave it out.": (
        lambda A, p, said: _per_label(A, p, torch.where(said == MISSING, A.shape[2] - 1, said)).mean()
    ),
    "the sum is right, but it was divided by the number of all labels, the missing ones among them.": (
        lambda A, p, said: _per_label(A, p, said).mean()
    ),
    "that is the sum over labels; wanted is the mean.": lambda A, p, said: _per_label(A, p, said).sum(),
    "the sign: a loss is minus the log-likelihood.": lambda A, p, said: -_observed_mean(_per_label(A, p, said), said),
    "you averaged logarithms over the truth; sum probabilities, then take the logarithm (logsumexp).": (
        lambda A, p, said: _observed_mean(-_said((A * p.exp()[:, None, None]).sum(3), said), said)
    ),
    "A p is a distribution already; a second softmax (as in `cross_entropy`) has no perfect score of 0.": (
        lambda A, p, said: _observed_mean(-_said(apply(A, p).exp().log_softmax(2), said), said)
    ),
    "only the most probable truth was scored; every truth contributes.": (
        lambda A, p, said: _observed_mean(-_said(_column(A, p.argmax(1)), said), said)
    ),
    "these are log-likelihoods of all labels of a pixel together; here each label is scored on its own.": (
        lambda A, p, said: -joint_log_likelihood(A, p, said).sum() / (said != MISSING).sum()
    ),
}  # fmt: skip


def label_loss(function: Callable[[Tensor, Tensor, Tensor], float]) -> None:
    """Exercise 8.1: log_A (N, R, L, L, H, W), log_p (N, L, H, W), labels (N, R, H, W) -> mean loss of a label."""
    right = _observed_mean(_per_label(LOG_A, LOG_P, LABELS), LABELS)
    praise = "right. One row of each matrix was read, and no A p was formed."
    _judge_number("8.1", function, (LOG_A.clone(), LOG_P.clone(), LABELS.clone()), right, LOSS_MISTAKES, praise)


# ---- 8.2: all labels of a pixel together -----------------------------------------------------------------------------


def _rows(log_A: Tensor, labels: Tensor) -> Tensor:
    """Row `said` (N, R, L, *S), 0 where nobody spoke."""
    index = labels.clamp(min=0)[:, :, None, None].expand(-1, -1, 1, *log_A.shape[3:])
    return log_A.gather(2, index).squeeze(2) * (labels != MISSING)[:, :, None]


JOINT_MISTAKES = {
    "that multiplies R sums: each label on its own. One truth stands behind all of them, so sum over it last.": (
        lambda A, p, said: label_log_likelihood(A, p, said).sum(1)
    ),
    "a missing label, -1, was scored as class 0; it says nothing, its row counts 0.": (
        lambda A, p, said: joint_log_likelihood(A, p, said.clamp(min=0))
    ),
    "p was counted once for every annotator; it counts once.": (
        lambda A, p, said: (_rows(A, said) + p[:, None]).sum(1).logsumexp(1)
    ),
    "p is missing: before any label is read, the network has a say.": (
        lambda A, p, said: _rows(A, said).sum(1).logsumexp(1)
    ),
    "that is the most probable truth's share alone; sum over all truths (logsumexp).": (
        lambda A, p, said: (_rows(A, said).sum(1) + p).amax(1)
    ),
    "the sign: wanted is the log-likelihood, at most 0.": lambda A, p, said: -joint_log_likelihood(A, p, said),
    "these are probabilities; wanted is their logarithm.": lambda A, p, said: joint_log_likelihood(A, p, said).exp(),
    "that is the posterior of each truth, (N, L, H, W); wanted is what it was divided by.": (
        lambda A, p, said: (_rows(A, said).sum(1) + p).log_softmax(1)
    ),
    "you took the column `said`; the truth is the last axis of a matrix, what is said the one before.": (
        lambda A, p, said: joint_log_likelihood(A.transpose(2, 3), p, said)
    ),
}  # fmt: skip


def together(function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """Exercise 8.2: as 8.1 -> log-likelihood of all labels of each pixel together, (N, H, W)."""
    given = _tensor("8.2", answer("8.2", function, LOG_A.clone(), LOG_P.clone(), LABELS.clone()))
    mistakes = {sentence: wrong(LOG_A, LOG_P, LABELS) for sentence, wrong in JOINT_MISTAKES.items()}
    right = joint_log_likelihood(LOG_A, LOG_P, LABELS)
    judge("8.2", given, right, mistakes, "right. One truth for a pixel, whoever speaks of it.")


# ---- 8.3: the bias of the identity -----------------------------------------------------------------------------------

STARTS = ((0.9, 2), (0.8, 4), (0.95, 10))
BIAS_MISTAKES = {
    "right for two classes only: L - 1 others share what is left.": lambda start, L: math.log(start / (1 - start)),
    "`start` is a probability; softmax makes much less of it.": lambda start, L: start,
    "the sign: that is least probable on the diagonal.": lambda start, L: -math.log(start * (L - 1) / (1 - start)),
    "that is the odds; a logit is their logarithm.": lambda start, L: start * (L - 1) / (1 - start),
    "the logarithm of `start` would do if the other logits were those of (1 - start) / (L - 1); they are 0.": (
        lambda start, L: math.log(start)
    ),
    "L - 1 stands on the wrong side: each of the others gets less, so the odds of the diagonal are larger.": (
        lambda start, L: math.log(start / (1 - start) / (L - 1))
    ),
    "L classes are one that is right and L - 1 others.": lambda start, L: math.log(start * L / (1 - start)),
}


def raised_by(function: Callable[[float, int], float]) -> None:
    """Exercise 8.3: start, L -> the number d for which softmax(d I) has `start` on the diagonal."""
    given = _numbers("8.3", [answer("8.3", function, *case) for case in STARTS])
    mistakes = {
        sentence: _numbers("8.3", [wrong(*case) for case in STARTS]) for sentence, wrong in BIAS_MISTAKES.items()
    }
    right = _numbers("8.3", [math.log(start * (L - 1) / (1 - start)) for start, L in STARTS])
    judge("8.3", given, right, mistakes, "right. Whatever the picture, everybody starts as a good annotator.")


# ---- 8.4: the guard --------------------------------------------------------------------------------------------------

# What a network finds, and three annotators of whom each saw two of three pictures. The last one marks most.
FOUND = (torch.rand(3, 6, 6, generator=seeded(84)) < 0.4).long()
MARKED = (torch.rand(3, 3, 6, 6, generator=seeded(85)) < torch.tensor([0.2, 0.3, 0.6])[:, None, None]).long()
MARKED[0, 0] = MARKED[1, 1] = MARKED[2, 2] = MISSING

GUARD_MISTAKES = {
    "pictures that an annotator was not shown were counted as empty; divide by the pixels that they saw.": (
        lambda found, said: found.float().mean() / (said > 0).float().mean((0, 2, 3)).max()
    ),
    "-1 was counted as marked: ask for `labels > 0`, not `!= 0`.": (
        lambda found, said: found.float().mean() / (said != 0).float().mean((0, 2, 3)).max()
    ),
    "you compared with the mean annotator; wanted is the one who marks most.": (
        lambda found, said: found.float().mean() / _shares(said).mean()
    ),
    "you compared with the one who marks least.": lambda found, said: found.float().mean() / _shares(said).min(),
    "it is turned round: the network's share stands above.": (
        lambda found, said: _shares(said).max() / found.float().mean()
    ),
    "-1 was added up with the marks: it is no number of pixels.": (
        lambda found, said: found.float().mean() / said.float().mean((0, 2, 3)).max()
    ),
    "that is the network's share; divide it by that of the annotator who marks most.": (
        lambda found, said: found.float().mean()
    ),
}


def _shares(labels: Tensor) -> Tensor:
    return (labels > 0).sum((0, 2, 3)) / (labels != MISSING).sum((0, 2, 3))  # (R,)


def swelling(function: Callable[[Tensor, Tensor], float]) -> None:
    """Exercise 8.4: found (N, H, W), labels (N, R, H, W) -> the network's share of foreground by the largest share."""
    right = FOUND.float().mean() / _shares(MARKED).max()
    praise = "right. It needs no truth, so you can ask it of your own data."
    _judge_number("8.4", function, (FOUND.clone(), MARKED.clone()), right, GUARD_MISTAKES, praise)
