"""Part I: the checks of chapter 2. Each calls the reader's function on small numbers and names the likely mistake."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.annotations import MISSING
from course_lib.checks import answer, judge
from course_lib.checks.classes import _judge_number, _numbers, _tensor
from course_lib.confusion import count_matrices, joint_log_likelihood, label_log_likelihood, posterior

# Three annotators, three classes; [said, truth]. Nothing is symmetric or zero, so that a transposed answer differs.
A3 = torch.tensor([
    [[0.70, 0.10, 0.20], [0.20, 0.60, 0.30], [0.10, 0.30, 0.50]],
    [[0.50, 0.05, 0.30], [0.10, 0.85, 0.20], [0.40, 0.10, 0.50]],
    [[0.30, 0.40, 0.10], [0.60, 0.35, 0.15], [0.10, 0.25, 0.75]],
], dtype=torch.float64)  # fmt: skip
PRIOR = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
SAID = torch.tensor([1, 2, MISSING])
LABELS = torch.tensor([[0, 1, 0], [1, MISSING, 2], [2, 2, MISSING], [0, 0, 1], [1, 2, 2]])
Q = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.1, 0.7], [0.6, 0.3, 0.1], [0.1, 0.4, 0.5]]).double()


def _rows(A: Tensor, said: Tensor) -> Tensor:
    """The said row of every annotator who spoke: (spoke, L)."""
    return torch.stack([A[r, i] for r, i in enumerate(said.tolist()) if i != MISSING])


def _share(weight: Tensor) -> Tensor:
    return weight / weight.sum()


ITEM_MISTAKES = {
    "you read columns: p of what they say if the truth is `said`. You need row `said` of each matrix.": (
        lambda A, prior, said: _share(prior * _rows(A.transpose(1, 2), said).prod(0))
    ),
    "the prior is missing: how frequent is each class before anybody speaks?": (
        lambda A, prior, said: _share(_rows(A, said).prod(0))
    ),
    "a missing label, -1, was read as the last class; who said nothing must not change the answer.": (
        lambda A, prior, said: _share(prior * A[torch.arange(len(A)), said].prod(0))
    ),
    "a missing label was read as class 0; who said nothing must not change the answer.": (
        lambda A, prior, said: _share(prior * A[torch.arange(len(A)), said.clamp(min=0)].prod(0))
    ),
    "right but for the last step: divide by the sum, so that the answer sums to 1.": (
        lambda A, prior, said: prior * _rows(A, said).prod(0)
    ),
    "you added the rows; independent annotators multiply.": (
        lambda A, prior, said: _share(prior * _rows(A, said).sum(0))
    ),
}


def one_item(function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """Exercise 2.1: A (R, L, L), prior (L,), said (R,) with -1 -> p(truth | said), (L,)."""
    given = _tensor("2.1", answer("2.1", function, A3.clone(), PRIOR.clone(), SAID.clone()))
    right = posterior(A3.log()[None], PRIOR.log()[None], SAID[None])[0].exp()
    mistakes = {sentence: wrong(A3, PRIOR, SAID) for sentence, wrong in ITEM_MISTAKES.items()}
    judge("2.1", given, right, mistakes, "right. Prior times one row of each annotator, divided by the sum.")


def _strokes(labels: Tensor, q: Tensor) -> Tensor:
    """Soft counts [r, said, truth] of what was said: (R, L, L)."""
    said = torch.nn.functional.one_hot(labels.clamp(min=0), q.shape[1]).to(q)  # (N, R, L)
    return torch.einsum("nri,nj->rij", said * (labels != MISSING)[..., None], q)


def _as(code: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda labels, q: count_matrices(torch.where(labels == MISSING, code, labels), q)


COUNT_MISTAKES = {
    "it is transposed: first what is said, then the truth; columns must sum to 1.": (
        lambda labels, q: count_matrices(labels, q).transpose(1, 2)
    ),
    "missing labels were counted as the last class, which -1 means as an index; leave them out.": _as(2),
    "missing labels were counted as class 0; leave them out.": _as(0),
    "you divided by all items; divide by those that this annotator labelled, so that columns sum to 1.": (
        lambda labels, q: _strokes(labels, q) / q.sum(0)
    ),
    "you divided by the number of items; divide each column by its own sum.": (
        lambda labels, q: _strokes(labels, q) / len(q)
    ),
    "these are counts; divide each column by its sum.": _strokes,
    "rows sum to 1 here: that is p(truth | said). Divide each column by its sum, over what is said.": (
        lambda labels, q: _strokes(labels, q) / _strokes(labels, q).sum(2, keepdim=True)
    ),
    "you took the most probable class for the truth; count every class, by its probability.": (
        lambda labels, q: count_matrices(labels, torch.nn.functional.one_hot(q.argmax(1), q.shape[1]).to(q))
    ),
}


def counted_matrices(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Exercise 2.2: labels (N, R) with -1 and a soft truth q (N, L) -> matrices (R, L, L)."""
    given = _tensor("2.2", answer("2.2", function, LABELS.clone(), Q.clone()))
    mistakes = {sentence: wrong(LABELS, Q) for sentence, wrong in COUNT_MISTAKES.items()}
    judge("2.2", given, count_matrices(LABELS, Q), mistakes, "right. Every column sums to 1.")


def _items(A: Tensor, prior: Tensor, labels: Tensor) -> Tensor:
    """log p of each item's labels together: (N,)."""
    return joint_log_likelihood(A.log()[None], prior.log().expand(len(labels), -1), labels)


FIT_MISTAKES = {
    "the product stands inside of the sum over truths: all labels of an item share one truth.": (
        lambda A, prior, labels: label_log_likelihood(A.log()[None], prior.log().expand(len(labels), -1), labels).sum()
    ),
    "that is the mean over items; wanted is the sum.": lambda A, prior, labels: _items(A, prior, labels).mean(),
    "the prior is missing: each truth counts by how frequent it is.": (
        lambda A, prior, labels: _items(A, torch.ones_like(prior), labels).sum()
    ),
    "the sign is turned: a log-likelihood is at most 0.": lambda A, prior, labels: -_items(A, prior, labels).sum(),
    "the logarithm stands outside of the sum over truths, not inside.": (
        lambda A, prior, labels: sum(prior @ _rows(A, said).log().sum(0) for said in labels)
    ),
    "you read columns; of each matrix the row `said` is needed.": (
        lambda A, prior, labels: _items(A.transpose(1, 2), prior, labels).sum()
    ),
    "a missing label, -1, was read as the last class; it must not count.": (
        lambda A, prior, labels: _items(A, prior, torch.where(labels == MISSING, A.shape[1] - 1, labels)).sum()
    ),
}


def fit_score(function: Callable[[Tensor, Tensor, Tensor], float]) -> None:
    """Exercise 2.3: A (R, L, L), prior (L,), labels (N, R) with -1 -> the log-likelihood of all labels, a number."""
    case = (A3.clone(), PRIOR.clone(), LABELS.clone())
    right = _items(A3, PRIOR, LABELS).sum()
    _judge_number("2.3", function, case, right, FIT_MISTAKES, "right. This is what EM climbs.")


def _room(R: Tensor, L: Tensor) -> Tensor:
    return L**R - 1 - (R * L * (L - 1) + L - 1)


ROOM_MISTAKES = {
    "frequencies sum to 1, so one of the L^R is no news: L^R - 1.": lambda R, L: _room(R, L) + 1,
    "there are L^R different rows of labels, not R^L.": lambda R, L: _room(R, L) - L**R + R**L,
    "the class frequencies are unknown as well: L - 1 of them.": lambda R, L: _room(R, L) + L - 1,
    "the L class frequencies sum to 1, so only L - 1 are free.": lambda R, L: _room(R, L) - 1,
    "every column sums to 1, so a matrix has L (L - 1) free numbers, not L L.": lambda R, L: _room(R, L) - R * L,
    "you counted one matrix; there are R.": lambda R, L: _room(R, L) + (R - 1) * L * (L - 1),
    "the sign is turned: known minus unknown.": lambda R, L: -_room(R, L),
}


def room(function: Callable[[int, int], int]) -> None:
    """Exercise 2.4: R, L -> observable frequencies minus unknown numbers, where all R label everything."""
    cases = ((2, 3), (3, 2), (4, 3))
    given = _numbers("2.4", [answer("2.4", function, R, L) for R, L in cases])
    R, L = torch.tensor(cases, dtype=torch.float64).T
    mistakes = {sentence: wrong(R, L) for sentence, wrong in ROOM_MISTAKES.items()}
    judge("2.4", given, _room(R, L), mistakes, "right. Two annotators are too few, three may do.")
