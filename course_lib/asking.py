"""Whom to ask next: which image, and which annotator, for the next label.

What is believed after some labels is p, the truth of each image (N, L), and for each annotator the counts of a
Dirichlet distribution over matrices (R, L, L): what they said so far, and pseudo-counts for what nobody has seen yet.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from .annotations import MISSING
from .confusion import evidence, log

IMAGES = ("random", "least", "disagree", "information")
"""Which image: any; the least labelled; the one whose votes are closest to a tie; the one whose next label is
expected to tell most of the truth, whoever gives it."""

PEOPLE = ("random", "best", "draw")
"""Whom: anyone; the one whose label is expected to tell most of *this* image's truth, by the matrices as they are
believed; the same in matrices drawn at random from what is believed, so that who may yet be the best gets a turn."""


def information(p: Tensor, A: Tensor) -> Tensor:
    """Expected information about the truth in each annotator's next label, in nats.

    I(truth; label) = H(A p) - sum_j p[j] H(A[:, j]).
    Source: Lindley 1956; for choosing items Houlsby et al. 2011, for the label of a person with a matrix here.
    Arguments: p (N, L), A (R, L, L) or, other matrices for each image, (N, R, L, L). Returns: (N, R), at least 0, at
    most log L.
    Raises: ValueError where classes do not fit.

    >>> sure, guess = torch.eye(2), torch.full((2, 2), 0.5)
    >>> information(torch.tensor([[0.5, 0.5]]), torch.stack([sure, guess]))
    tensor([[0.6931, 0.0000]])
    """
    if A.shape[-2:] != 2 * p.shape[-1:]:
        raise ValueError(f"`A` must end in (L, L) = {tuple(2 * p.shape[-1:])}, p's classes; got {tuple(A.shape)}.")
    A = A.expand(len(p), *A.shape[-3:])  # (N, R, L, L)
    entropy = lambda x: -torch.xlogy(x, x).sum(2)  # noqa: E731  (over what is said)
    said = (A * p[:, None, None]).sum(3)  # (N, R, L)
    return (entropy(said) - (entropy(A) * p[:, None]).sum(2)).clamp(min=0)


def pseudo_counts(n_annotators: int, n_classes: int, *, skill: float = 0.6, weight: float = 4.0) -> Tensor:
    """What is believed of an annotator before the first label: each column `weight` labels, `skill` of them right.

    Returns: (R, L, L). Raises: ValueError for skill outside (0, 1) or a weight of 0.

    >>> pseudo_counts(1, 3, skill=0.5, weight=4)[0, :, 0]
    tensor([2., 1., 1.])
    """
    if not 0 < skill < 1 or weight <= 0:
        raise ValueError(f"wanted a skill between 0 and 1 and a positive weight; got {skill} and {weight}.")
    wrong = (1 - skill) / (n_classes - 1)
    return weight * (wrong + (skill - wrong) * torch.eye(n_classes)).repeat(n_annotators, 1, 1)


def believe(labels: Tensor, log_prior: Tensor, pseudo: Tensor, *, steps: int = 10) -> tuple[Tensor, Tensor]:
    """The truth and the Dirichlet counts of every annotator, from the labels so far: EM whose matrices have a prior.

    Source: after Raykar et al. 2010. Differs: the E-step takes the mean of the matrices, not the most probable ones, so
    that somebody of whom little is known weighs little.
    Arguments: labels (N, R) with MISSING, log_prior (N, L) from a network that did not see these labels, pseudo (R, L,
    L). Returns: p (N, L), counts (R, L, L).
    """
    said = torch.stack([labels == i for i in range(pseudo.shape[1])], 2).float()  # (N, R, L)
    counts = pseudo
    for _ in range(steps):
        p = (log_prior + evidence(log(counts / counts.sum(1, keepdim=True))[None], labels)).softmax(1)  # (N, L)
        counts = pseudo + torch.einsum("nri,nj->rij", said, p)
    return p, counts


def drawn(counts: Tensor, n: int, *, generator: Generator) -> Tensor:
    """`n` matrices of each annotator that fit the counts (R, L, L): (n, R, L, L); they differ where little is known.

    Source: Thompson 1933. Asking who is best *in a draw* gives everybody who may be the best a turn.
    """
    gamma = torch._standard_gamma(counts.expand(n, *counts.shape), generator=generator).clamp(min=1e-30)
    return gamma / gamma.sum(2, keepdim=True)


def choose(
    images: str, people: str, labels: Tensor, p: Tensor, counts: Tensor, *, n: int, generator: Generator
) -> Tensor:
    """The next `n` pairs (image, annotator) to ask, at most one an image, none that was asked before: (n, 2).

    Arguments: images one of IMAGES, people one of PEOPLE, labels (N, R) with MISSING, p (N, L) and counts (R, L, L) as
    `believe` gives them. Returns: fewer than n pairs where fewer images are open.
    Raises: ValueError for an unknown rule.
    """
    if images not in IMAGES or people not in PEOPLE:
        raise ValueError(f"wanted an image rule of {IMAGES} and a people rule of {PEOPLE}; got {images!r}, {people!r}.")
    open_ = labels == MISSING  # (N, R)
    A = counts / counts.sum(1, keepdim=True)
    chance = torch.rand(len(labels), labels.shape[1] + 1, generator=generator)  # drawn whatever the rules are
    if people == "random":
        worth = chance[:, 1:]
    else:
        worth = information(p, A if people == "best" else drawn(counts, len(p), generator=generator))
    who = worth.masked_fill(~open_, -1).argmax(1)  # (N,)
    votes = torch.stack([(labels == j).sum(1) for j in range(p.shape[1])], 1).float()  # (N, L)
    first, second = votes.topk(2, 1).values.unbind(1)
    score = {
        "random": lambda: chance[:, 0],
        "least": lambda: chance[:, 0] - votes.sum(1),
        "disagree": lambda: chance[:, 0] - (first - second),
        "information": lambda: (information(p, A) * open_).sum(1) / open_.sum(1).clamp(min=1),
    }[images]()
    best = score.masked_fill(~open_.any(1), -torch.inf).topk(min(n, int(open_.any(1).sum()))).indices
    return torch.stack([best, who[best]], 1)
