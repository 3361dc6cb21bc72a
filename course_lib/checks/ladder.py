"""Part II: the checks of chapter 9. Each calls the reader's function on small numbers and names the likely mistake."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib.checks import CheckFailed, answer, judge
from course_lib.checks.classes import _tensor
from course_lib.networks import seeded

N, R, L, H, W, SIDE = 12, 5, 3, 28, 20, 4

FREEDOM_MISTAKES = {
    "a column sums to 1, so the last of its L numbers is not free.": lambda N, R, L, H, W, s: _free(N, H, W, s) * L**2,
    "that is one column; a matrix has L of them.": lambda N, R, L, H, W, s: _free(N, H, W, s) * (L - 1),
    "upside down: free numbers for each label, not labels for each free number.": (
        lambda N, R, L, H, W, s: 1 / _per_label(N, R, L, H, W, s)
    ),
    "these are the free numbers; divide by how many labels there are.": (
        lambda N, R, L, H, W, s: _per_label(N, R, L, H, W, s) * N * R * H * W
    ),
    "there are N R H W labels; you forgot that each annotator labels.": (
        lambda N, R, L, H, W, s: _per_label(N, R, L, H, W, s) * R
    ),
    "each annotator has matrices of their own: count all R of them.": (
        lambda N, R, L, H, W, s: _per_label(N, R, L, H, W, s) / R
    ),
    "a patch has side * side pixels.": (
        lambda N, R, L, H, W, s: _per_label(N, R, L, H, W, s) * torch.tensor([1.0, 1, s, 1])
    ),
    "place is the same in every picture: there N does not multiply the matrices.": (
        lambda N, R, L, H, W, s: _per_label(N, R, L, H, W, s) * torch.tensor([1.0, N, 1, 1])
    ),
}


def _free(N: int, H: int, W: int, side: int) -> Tensor:
    """Matrices for each label: global, place, patch, pixel."""
    return torch.tensor([1 / (N * H * W), 1 / N, 1 / side**2, 1.0])


def _per_label(N: int, R: int, L: int, H: int, W: int, side: int) -> Tensor:
    return _free(N, H, W, side) * L * (L - 1)


def freedom(function: Callable[..., Tensor]) -> None:
    """Exercise 9.1: N, R, L, H, W, side -> free numbers for each label: global, place, patch, pixel (4,)."""
    case = (N, R, L, H, W, SIDE)
    given = _tensor("9.1", answer("9.1", function, *case))
    mistakes = {sentence: wrong(*case) for sentence, wrong in FREEDOM_MISTAKES.items()}
    praise = "right. A matrix for each pixel has more free numbers than it has labels to learn from."
    judge("9.1", given, _per_label(*case), mistakes, praise)


MANY, RANK = 30, 2
B1, B2 = torch.rand(2, MANY, RANK, generator=seeded(90))
B1, B2 = B1 + 0.05, 0.4 * B2 + 0.05
P = torch.rand(MANY, generator=seeded(91))
P = P / P.sum()  # (L,)


class _Largest(TorchDispatchMode):
    """Remembers how many numbers the largest tensor holds that is made under it."""

    most = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for made in out if isinstance(out, tuple | list) else (out,):
            if isinstance(made, Tensor):
                self.most = max(self.most, made.numel())
        return out


def _whole(B1: Tensor, B2: Tensor) -> Tensor:
    """The matrix that nobody should need: (L, L), columns sum to 1."""
    A = B1 @ B2.T + torch.eye(len(B1))
    return A / A.sum(0)


def _thin(B1: Tensor, B2: Tensor, p: Tensor) -> Tensor:
    weight = p / (B2 @ B1.sum(0) + 1)  # (L,): p over the columns' sums
    return B1 @ (B2.T @ weight) + weight


WHOLE = "the numbers are right, but an L x L matrix was formed on the way; multiply p first."
SAYS_MISTAKES = {
    WHOLE: lambda B1, B2, p: _whole(B1, B2) @ p,
    "the identity is missing: in rank 1 all columns would be equal.": lambda B1, B2, p: (
        B1 @ (B2.T @ (p / (B2 @ B1.sum(0))))
    ),
    "the identity was added after the division; it is part of the column that is divided.": lambda B1, B2, p: (
        B1 @ (B2.T @ (p / (B2 @ B1.sum(0)))) + p
    ),
    "each thin matrix was normalised by itself; normalise the columns of their product.": lambda B1, B2, p: (
        B1 / B1.sum(0) @ ((B2 / B2.sum(0)).T @ p)
    ),
    "the answer was divided by its sum at the end; each column has a sum of its own, divide p by them first.": (
        lambda B1, B2, p: (B1 @ (B2.T @ p) + p) / (B1 @ (B2.T @ p) + p).sum()
    ),
    "nothing was divided: the columns must sum to 1.": lambda B1, B2, p: B1 @ (B2.T @ p) + p,
    "B1 and B2 changed places: rows of B1 are what is said, rows of B2 are the truth.": (
        lambda B1, B2, p: _thin(B2, B1, p)
    ),
    "rows were divided; a column is the truth's, and sums to 1.": (
        lambda B1, B2, p: (B1 @ (B2.T @ p) + p) / (B1 @ B2.sum(0) + 1)
    ),
}


def says(function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """Exercise 9.2: B1, B2 (L, k), p (L,) -> A p (L,) without the L x L matrix."""
    with _Largest() as seen:
        given = answer("9.2", function, B1.clone(), B2.clone(), P.clone())
    given, right = _tensor("9.2", given), _thin(B1, B2, P)
    if seen.most >= MANY**2 and given.shape == right.shape and torch.allclose(given.float(), right, atol=1e-5):
        raise CheckFailed(f"Exercise 9.2: {WHOLE}")
    mistakes = {sentence: wrong(B1, B2, P) for sentence, wrong in SAYS_MISTAKES.items() if sentence != WHOLE}
    praise = f"right. No array had more than {seen.most} numbers; the matrix has {MANY**2}."
    judge("9.2", given.float(), right, mistakes, praise)


# Four candidates each: two are suspicious for too much, one for too little, all, and one that is not the best anyway.
MOST = 0.4
NLL = torch.tensor([[0.30, 0.12, 0.10, 0.25], [0.20, 0.05, 0.30, 0.40], [0.30, 0.20, 0.28, 0.25], [0.1, 0.2, 0.3, 0.4]])
FOREGROUND = torch.tensor(
    [[0.15, 0.39, 0.38, 0.16], [0.14, 0.02, 0.30, 0.12], [0.38, 0.39, 0.01, 0.37], [0.1, 0.39, 0.2, 0.3]]
)

PICK_MISTAKES = {
    "you took the largest; a smaller -log likelihood explains better.": lambda nll, fg, most: _pick(-nll, fg, most),
    "suspicious candidates were not left out.": lambda nll, fg, most: int(nll.argmin()),
    "hardly any foreground is suspicious, too: at most .2 of what the largest annotator marks.": (
        lambda nll, fg, most: _first(nll, fg / most < 0.9)
    ),
    "nearly as much foreground as the annotator who marks most is suspicious, too.": (
        lambda nll, fg, most: _first(nll, fg / most > 0.2)
    ),
    "the share is that of the largest annotator's foreground, not of the picture: divide by it.": (
        lambda nll, fg, most: _first(nll, (fg > 0.2) & (fg < 0.9))
    ),
    "that is the number among those that were left; wanted is the number among all.": lambda nll, fg, most: (
        int(nll[_fine(fg, most)].argmin()) if _fine(fg, most).any() else int(nll.argmin())
    ),
    "it is turned round: the suspicious ones were kept.": lambda nll, fg, most: _first(nll, ~_fine(fg, most)),
    "where all are suspicious, choose among all.": lambda nll, fg, most: (
        _first(nll, _fine(fg, most)) if _fine(fg, most).any() else 0
    ),
}


def _fine(foreground: Tensor, most: float) -> Tensor:
    return (foreground / most > 0.2) & (foreground / most < 0.9)


def _first(nll: Tensor, kept: Tensor) -> int:
    return int(torch.where(kept if kept.any() else ~kept, nll, torch.inf).argmin())


def _pick(nll: Tensor, foreground: Tensor, most: float) -> int:
    return _first(nll, _fine(foreground, most))


def pick(function: Callable[[Tensor, Tensor, float], int]) -> None:
    """Exercise 9.3: -log likelihoods (K,), foregrounds (K,), the largest annotator's -> which one to take."""
    given = []
    for nll, foreground in zip(NLL, FOREGROUND, strict=True):
        one = _tensor("9.3", answer("9.3", function, nll.clone(), foreground.clone(), MOST))
        if one.numel() != 1:
            raise CheckFailed(f"Exercise 9.3: wanted one number, which candidate; got shape {tuple(one.shape)}.")
        given.append(float(one))
    run = lambda rule: torch.tensor([rule(nll, fg, MOST) for nll, fg in zip(NLL, FOREGROUND, strict=True)])  # noqa: E731
    mistakes = {sentence: run(wrong) for sentence, wrong in PICK_MISTAKES.items()}
    judge("9.3", torch.tensor(given), run(_pick), mistakes, "right. It sees no truth; section 5 says what that costs.")


LOGITS = torch.randn(2, 3, 2, 2, generator=seeded(92))  # (half, R, L, L)
TALL, WIDE = 4, 7

HALVES_MISTAKES = {
    "softmax ran over the truth: columns, over what is said, must sum to 1 (axis 2 of the logits).": (
        lambda logits, H, W: _halves(logits, H, W, axis=3)
    ),
    "softmax ran over the annotators; it runs over what is said (axis 2 of the logits).": (
        lambda logits, H, W: _halves(logits, H, W, axis=1)
    ),
    "left and right have changed places.": lambda logits, H, W: _halves(logits.flip(0), H, W),
    "that is top and bottom; the last axis runs from left to right.": (
        lambda logits, H, W: _halves(logits, W, H).transpose(-1, -2)
    ),
    "these are logits; take log_softmax over what is said.": lambda logits, H, W: _spread(logits, H, W),
    "these are probabilities; wanted is their logarithm.": lambda logits, H, W: _halves(logits, H, W).exp(),
    "the middle column belongs to the right: left is w < W // 2.": (
        lambda logits, H, W: _halves(logits, H, W, first=W // 2 + 1)
    ),
    "the axis of pictures is missing: (1, R, L, L, H, W), the same for all of them.": (
        lambda logits, H, W: _halves(logits, H, W)[0]
    ),
}


def _spread(logits: Tensor, H: int, W: int, first: int | None = None) -> Tensor:
    right = (torch.arange(W) >= (W // 2 if first is None else first)).long()
    return logits[right].permute(1, 2, 3, 0)[None, :, :, :, None].repeat(1, 1, 1, 1, H, 1)


def _halves(logits: Tensor, H: int, W: int, axis: int = 2, first: int | None = None) -> Tensor:
    return _spread(logits.log_softmax(axis), H, W, first)


def halves(function: Callable[[Tensor, int, int], Tensor]) -> None:
    """Exercise 9.4: logits (2, R, L, L) of the left and the right half, H, W -> log_A (1, R, L, L, H, W)."""
    given = _tensor("9.4", answer("9.4", function, LOGITS.clone(), TALL, WIDE))
    mistakes = {sentence: wrong(LOGITS, TALL, WIDE) for sentence, wrong in HALVES_MISTAKES.items()}
    praise = "right. A rung of your own: what you know of people, written down."
    judge("9.4", given, _halves(LOGITS, TALL, WIDE), mistakes, praise)
