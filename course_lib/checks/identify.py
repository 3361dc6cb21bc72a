"""Part II: the checks of chapter 10. Each calls the reader's function on small matrices and names the mistake."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.checks import CheckFailed, answer, judge
from course_lib.checks.classes import _tensor
from course_lib.networks import seeded

# What five pixels' annotators say on average: clear, split, clear, nobody ahead of the rest by much, two classes.
VOTES = [
    torch.tensor([0.45, 0.3, 0.25]),
    torch.tensor([0.5, 0.4, 0.1]),
    torch.tensor([0.1, 0.1, 0.8]),
    torch.tensor([0.22, 0.24, 0.3, 0.24]),
    torch.tensor([0.6, 0.4]),
]

REST_MISTAKES = {
    "you looked at row k alone; each other row i must lead too, and there 1 / L stands against q_i.": (
        lambda q: q >= 1 / len(q)
    ),
    "that is the class said most often; dominance with columns of 1 / L asks for more.": lambda q: q == q.max(),
    "that is a majority of more than half; the bar is 1 / L.": lambda q: q > 0.5,
    "class k itself must not lie below 1 / L: leave out i = k.": (
        lambda q: (q <= 1 / len(q)).all().expand(len(q)).clone()
    ),
    "it is turned round: True where k is possible.": lambda q: ~_possible(q),
    "not every class is possible: look at the row of a class that is said more than 1 / L of the time.": (
        lambda q: torch.ones(len(q), dtype=torch.bool)
    ),
}


def _possible(q: Tensor) -> Tensor:
    """(L,) -> (L,): every class other than k is said at most 1 / L of the time, and then k at least that often."""
    above = q > 1 / len(q)
    return above.sum() - above.long() == 0


def uniform_rest(function: Callable[[Tensor], Tensor]) -> None:
    """Exercise 10.1: q (L,) -> (L,), True where column k may be q, all others 1 / L, and the diagonal leads rows."""
    given = []
    for q in VOTES:
        one = _tensor("10.1", answer("10.1", function, q.clone()))
        if one.shape != q.shape:
            raise CheckFailed(
                f"Exercise 10.1: wanted one answer for each class, {tuple(q.shape)}; got {tuple(one.shape)}."
            )
        given.append(one.double())
    mistakes = {sentence: torch.cat([wrong(q) for q in VOTES]).double() for sentence, wrong in REST_MISTAKES.items()}
    right = torch.cat([_possible(q) for q in VOTES]).double()
    judge(
        "10.1", torch.cat(given), right, mistakes, "right. With two classes it is the vote; with more, often nothing."
    )


SAID = torch.tensor([0.5, 0.3, 0.2])
BELIEFS = [torch.tensor([0.0, 0.0, 1.0]), torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.2, 0.5, 0.3])]
MARGIN = 0.05

IMPOSTOR_MISTAKES = {
    "it is transposed: first what is said, then the truth; columns sum to 1.": lambda q, p, eps: _impostor(q, p, eps).T,
    "the columns do not sum to 1; what you add on the diagonal must be taken away elsewhere.": (
        lambda q, p, eps: q[:, None].expand(len(q), len(q)) + eps * torch.eye(len(q))
    ),
    "A p is not q: the labels would notice.": (
        lambda q, p, eps: (1 - eps) * q[:, None].expand(len(q), len(q)) + eps * torch.eye(len(q))
    ),
    "the rows are level; each a_ii must lead its row by eps.": (
        lambda q, p, eps: q[:, None].repeat(1, len(q))
    ),
    "an entry is negative; these are probabilities.": lambda q, p, eps: _impostor(q, p, 1.5),
    "it fits and it is dominant, but a smaller trace is possible: 1 + eps (L - 1).": (
        lambda q, p, eps: _impostor(q, p, 2 * eps)
    ),
}  # fmt: skip


def _impostor(q: Tensor, p: Tensor, eps: float) -> Tensor:
    return q[:, None] + eps * (torch.eye(len(q)) - p[:, None])


def impostor(function: Callable[[Tensor, Tensor, float], Tensor]) -> None:
    """Exercise 10.2: q, p (L,), eps -> A (L, L): A p = q, rows led by eps, and no trace smaller."""
    sentences = list(IMPOSTOR_MISTAKES)
    for p in BELIEFS:
        A = _tensor("10.2", answer("10.2", function, SAID.clone(), p.clone(), MARGIN))
        if A.shape != (3, 3):
            raise CheckFailed(f"Exercise 10.2: wanted a matrix (3, 3), got {tuple(A.shape)}.")
        A, q, p = A.double(), SAID.double(), p.double()
        wrong = _flaw(A, q, p)
        if wrong is not None:
            raise CheckFailed(f"Exercise 10.2: {sentences[0 if _flaw(A.T, q, p) is None else wrong]}")
    print("✓ Exercise 10.2: right. Whatever p you are given, the labels cannot tell, and the trace does not mind.")


def _flaw(A: Tensor, q: Tensor, p: Tensor) -> int | None:
    """Which sentence of IMPOSTOR_MISTAKES is true of A, the first that is; None for a right answer."""
    lead = (A.diagonal()[:, None] - A)[~torch.eye(len(q), dtype=torch.bool)]
    flaws = {
        1: (A.sum(0) - 1).abs().max() > 1e-5,
        2: (A @ p - q).abs().max() > 1e-5,
        4: A.min() < -1e-6,
        3: lead.min() < MARGIN - 1e-5,
        5: A.trace() > 1 + MARGIN * (len(q) - 1) + 1e-5,
    }
    return next((which for which, found in flaws.items() if found), None)


PIXELS = torch.rand(7, 3, 3, generator=seeded(100)).double()
PIXELS = PIXELS / PIXELS.sum(1, keepdim=True)  # (N, L, L)
CLASSES = torch.tensor([0, 2, 1, 1, 0, 1, 1])

MEAN_MISTAKES = {
    "that is the plain mean; column j exists only at the items whose class is j.": lambda A, truth: A.mean(0),
    "you averaged rows; the truth is the last axis of A, take A[:, :, j].": (
        lambda A, truth: torch.stack([A[truth == j][:, j].mean(0) for j in range(A.shape[1])])
    ),
    "the right columns, but they stand as rows: stack them along the last axis.": (
        lambda A, truth: _by_class(A, truth).T
    ),
    "these are sums; wanted are means.": lambda A, truth: _by_class(A, truth) * torch.bincount(truth),
    "each column was divided by the number of all items; divide by the number of its own.": (
        lambda A, truth: _by_class(A, truth) * torch.bincount(truth) / len(truth)
    ),
    "you averaged the columns of the other classes: those saw no label.": (
        lambda A, truth: torch.stack([A[truth != j][:, :, j].mean(0) for j in range(A.shape[1])], 1)
    ),
}


def _by_class(A: Tensor, truth: Tensor) -> Tensor:
    return torch.stack([A[truth == j][:, :, j].mean(0) for j in range(A.shape[1])], 1)


def per_class(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Exercise 10.3: A (N, L, L), truth (N,) -> (L, L), column j the mean over the items of class j."""
    given = _tensor("10.3", answer("10.3", function, PIXELS.clone(), CLASSES.clone()))
    mistakes = {sentence: wrong(PIXELS, CLASSES) for sentence, wrong in MEAN_MISTAKES.items()}
    judge("10.3", given, _by_class(PIXELS, CLASSES), mistakes, "right. Only columns that saw a label are averaged.")
