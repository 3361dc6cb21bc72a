"""Part III: the checks of chapter 13. Each calls the reader's function on a few labels and names the likely mistake."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.annotations import MISSING
from course_lib.checks import CheckFailed, answer, judge
from course_lib.checks.classes import _judge_number, _tensor
from course_lib.confusion import evidence, posterior
from course_lib.networks import seeded

# Four raters, three classes, [said, truth]; nothing is symmetric. Rater 2 overdraws class 2, rater 3 is a poor one.
A4 = torch.tensor([
    [[0.80, 0.15, 0.05], [0.15, 0.70, 0.25], [0.05, 0.15, 0.70]],
    [[0.90, 0.20, 0.10], [0.07, 0.75, 0.10], [0.03, 0.05, 0.80]],
    [[0.85, 0.10, 0.02], [0.10, 0.50, 0.03], [0.05, 0.40, 0.95]],
    [[0.45, 0.30, 0.20], [0.35, 0.40, 0.25], [0.20, 0.30, 0.55]],
]).double()  # fmt: skip
PRIOR = torch.tensor([0.6, 0.3, 0.1]).double()
SAID = torch.tensor([1, MISSING, 2, 0])
WHO = torch.arange(4)


def _rows(A: Tensor, said: Tensor) -> Tensor:
    """Row `said` of each matrix, ones where nobody spoke: (R, K)."""
    return torch.where((said >= 0)[:, None], A[torch.arange(len(said)), said.clamp(min=0)], 1)


def _normalised(p: Tensor) -> Tensor:
    return p / p.sum()


def _named(A: Tensor, said: Tensor, odds: bool = False) -> Tensor:
    """Logits (K,) in which a vote counts for its own class only: the log of the diagonal, or its log-odds."""
    total = torch.zeros(A.shape[1], dtype=A.dtype)
    for r, i in enumerate(said.tolist()):
        if i != MISSING:
            d = A[r, i, i]
            total[i] += (d * (len(total) - 1) / (1 - d)).log() if odds else d.log()
    return total


PIXEL_MISTAKES = {
    "the prior is missing: it stands in front of the product.": lambda A, p, s: _normalised(_rows(A, s).prod(0)),
    "that is the column of what was said; A[r, said] is a row: what the word is worth under each truth.": (
        lambda A, p, s: _normalised(p * _rows(A.transpose(1, 2), s).prod(0))
    ),
    "-1 picked the last class: who did not speak multiplies by 1, for every class.": (
        lambda A, p, s: _normalised(p * A[torch.arange(len(s)), s].prod(0))
    ),
    "-1 was taken for class 0: who did not speak multiplies by 1, for every class.": (
        lambda A, p, s: _normalised(p * A[torch.arange(len(s)), s.clamp(min=0)].prod(0))
    ),
    "it does not sum to 1: divide by the sum.": lambda A, p, s: p * _rows(A, s).prod(0),
    "rows were added up; independent raters multiply.": (
        lambda A, p, s: _normalised(p * torch.where((s >= 0)[:, None], _rows(A, s), 0).sum(0))
    ),
    "the prior was multiplied in once for each rater; it counts once.": (
        lambda A, p, s: _normalised((p[None] * _rows(A, s)).prod(0))
    ),
    "a vote moved its own class only, as in the printed formula; each row has a number for every class.": (
        lambda A, p, s: (_named(A, s) + p.log()).softmax(0)
    ),
    "log-odds of the diagonal move the class that is named only; each row has a number for every class.": (
        lambda A, p, s: (_named(A, s, odds=True) + p.log()).softmax(0)
    ),
    "that is its logarithm; return probabilities.": lambda A, p, s: _normalised(p * _rows(A, s).prod(0)).log(),
}


def one_pixel(function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """Exercise 13.1: A (R, K, K), prior (K,), said (R,) with MISSING -> posterior (K,)."""
    given = _tensor("13.1", answer("13.1", function, A4.clone(), PRIOR.clone(), SAID.clone()))
    right = posterior(A4.log()[None], PRIOR.log()[None], SAID[None]).exp()[0]
    mistakes = {sentence: wrong(A4, PRIOR, SAID) for sentence, wrong in PIXEL_MISTAKES.items()}
    judge("13.1", given, right, mistakes, "right. A row for everybody who spoke, and the prior once.")


A2 = torch.tensor([[[0.9, 0.2], [0.1, 0.8]], [[0.6, 0.1], [0.4, 0.9]], [[0.7, 0.25], [0.3, 0.75]]]).double()
SAID2 = torch.tensor([0, 1, 1])

TIPPING_MISTAKES = {
    "that is the posterior of class 1 at even priors; the likelier class 1 is, the *smaller* a prior it needs.": (
        lambda A, s: 1 - _tip(A, s)
    ),
    "these are the odds; a prior is a share: divide by the sum of both.": lambda A, s: _tip(A, s) / (1 - _tip(A, s)),
    "you picked columns; A[r, said] is a row.": lambda A, s: _tip(A.transpose(1, 2), s),
    "rows were added up; independent raters multiply.": lambda A, s: _normalised(_rows(A, s).sum(0))[0],
    "you took one skill a rater for both classes; the two of a diagonal differ.": (
        lambda A, s: _tip(_even(A.diagonal(dim1=1, dim2=2).mean(1)), s)
    ),
    "that is the log of the odds; undo the logarithm, and divide by the sum of both.": (
        lambda A, s: (_tip(A, s) / (1 - _tip(A, s))).log()
    ),
    "that is the share of raters who say 0; matrices did not come in.": lambda A, s: (s == 0).double().mean(),
}


def _tip(A: Tensor, said: Tensor) -> Tensor:
    return _normalised(_rows(A, said).prod(0))[0]


def _even(skill: Tensor) -> Tensor:
    """Two-class matrices that are right with one probability, whatever the truth."""
    return torch.stack([torch.stack([skill, 1 - skill], 1), torch.stack([1 - skill, skill], 1)], 1)


def tipping_prior(function: Callable[[Tensor, Tensor], float]) -> None:
    """Exercise 13.2: A (R, 2, 2), said (R,) -> the prior of class 1 at which both classes are equally likely."""
    praise = "right. The labels say how far the prior has to lean."
    _judge_number("13.2", function, (A2.clone(), SAID2.clone()), _tip(A2, SAID2), TIPPING_MISTAKES, praise)


LABELS = torch.randint(MISSING, 3, (40, 4), generator=seeded(13))
Table = Callable[[Tensor], Tensor]

ANOTHER_MISTAKES = {
    "some entries are those of log A; every one must differ.": lambda A: A.log(),
    "that is another fusion: what you add may depend on the rater and on what is said, not on the truth k.": (
        lambda A: A.log() + torch.arange(1.0, A.shape[2] + 1)
    ),
    "that is another fusion: a factor changes how much a vote weighs; add instead.": lambda A: 2 * A.log(),
    "these are probabilities; the softmax wants logarithms, shifted.": lambda A: A / A.sum(2, keepdim=True),
    "the table is transposed: said on axis 1, truth on axis 2.": lambda A: (A.log() + 1).transpose(1, 2),
    "columns were shifted or normalised (axis 1); shift rows, over the truth (axis 2).": (
        lambda A: A.log() - A.log().mean(1, keepdim=True)
    ),
    "W must be finite: the softmax of infinite numbers is none.": lambda A: A.log() - torch.inf,
}


def _fused(W: Tensor, prior: Tensor) -> Tensor:
    return (evidence(W[None], LABELS) + prior.log()).softmax(1)


def another(function: Table) -> None:
    """Exercise 13.3: A (R, K, K) -> W (R, K, K), not log A anywhere, that fuses all labels as log A does."""
    given = _tensor("13.3", answer("13.3", function, A4.clone()))
    sentences = list(ANOTHER_MISTAKES)
    refuse = lambda k: CheckFailed(f"Exercise 13.3: {sentences[k]}")  # noqa: E731
    if given.shape != A4.shape:
        raise CheckFailed(f"Exercise 13.3: wanted shape {tuple(A4.shape)}, got {tuple(given.shape)}.")
    given = given.double()
    if not given.isfinite().all():
        raise refuse(6)
    priors = PRIOR, torch.tensor([0.2, 0.2, 0.6]).double()
    same = lambda W: all(torch.allclose(_fused(W, p), _fused(A4.log(), p), atol=1e-6) for p in priors)  # noqa: E731
    if not same(given):
        if torch.allclose(given, ANOTHER_MISTAKES[sentences[5]](A4), atol=1e-5):
            raise refuse(5)
        if same(given.transpose(1, 2)):
            raise refuse(4)
        if (given > 0).all() and same(given.log()):
            raise refuse(3)
        change = given / A4.log()
        raise refuse(2 if torch.allclose(change, change[:1, :1, :1].expand_as(change), atol=1e-4) else 1)
    if ((given - A4.log()).abs() < 1e-6).any():
        raise refuse(0)
    print("✓ Exercise 13.3: right. What a word says lies in the ratios of its row.")


def _masks() -> tuple[Tensor, Tensor]:
    """Three raters on two pictures of 6 x 8: 0 and 1 share mistakes, 2 errs elsewhere; and the truth."""
    generator = seeded(31)
    truth = torch.randint(0, 3, (2, 6, 8), generator=generator)
    fooled, own = (torch.rand(2, n, 6, 8, generator=generator) for n in (1, 3))
    wrong = torch.cat([torch.where(own[:, :2] < 0.7, fooled, own[:, :2]), own[:, 2:]], 1) < 0.5
    said = torch.where(wrong, 2, truth[:, None])
    return torch.where(torch.rand(said.shape, generator=generator) < 0.15, 1, said), truth


DRAWN, TRUTH = _masks()
SAYS, TRULY = 2, 1


def _together(said: Tensor, truth: Tensor, i: int, j: int | None) -> tuple[Tensor, Tensor, int]:
    """Counts of pixels (of truth j, or all) on which both say i (R, R), on which each does (R,), and how many."""
    pixels = said.movedim(1, -1)
    x = (pixels.flatten(0, 2) if j is None else pixels[truth == j]).eq(i).double()
    return x.T @ x, x.sum(0), len(x)


def _ratios(said: Tensor, truth: Tensor, i: int, j: int | None) -> Tensor:
    both, alone, n = _together(said, truth, i, j)
    return n * both / (alone[:, None] * alone)


def _correlation(said: Tensor, truth: Tensor, i: int, j: int) -> Tensor:
    return torch.corrcoef((said.movedim(1, -1)[truth == j] == i).double().T)


def _of_each_picture(said: Tensor, truth: Tensor, i: int, j: int) -> Tensor:
    return torch.stack([_ratios(said[n : n + 1], truth[n : n + 1], i, j) for n in range(len(said))]).mean(0)


SHARED_MISTAKES = {
    "all pixels were counted; given the truth means: only those whose truth is j.": lambda s, t, i, j: _ratios(
        s, t, i, None
    ),
    "i and j are exchanged: i is said, j is true.": lambda s, t, i, j: _ratios(s, t, j, i),
    "you divided by one of the two raters only; by chance both probabilities multiply.": lambda s, t, i, j: (
        _together(s, t, i, j)[0] / _together(s, t, i, j)[1]
    ),
    "these are counts; make them shares of the pixels whose truth is j.": lambda s, t, i, j: (
        _ratios(s, t, i, j) / _together(s, t, i, j)[2]
    ),
    "that is how often both say it; divide by what it would be by chance.": lambda s, t, i, j: (
        _together(s, t, i, j)[0] / _together(s, t, i, j)[2]
    ),
    "that is a correlation: 0 by chance. Wanted is a ratio: 1 by chance.": _correlation,
    "it is upside down: together, divided by chance.": lambda s, t, i, j: 1 / _ratios(s, t, i, j),
    "a ratio of each picture and then their mean; count over all pictures first.": _of_each_picture,
}


def shared(function: Callable[[Tensor, Tensor, int, int], Tensor]) -> None:
    """Exercise 13.4: said (N, R, H, W), truth (N, H, W), i, j -> p(both say i | j) over chance, (R, R)."""
    given = _tensor("13.4", answer("13.4", function, DRAWN.clone(), TRUTH.clone(), SAYS, TRULY))
    mistakes = {sentence: wrong(DRAWN, TRUTH, SAYS, TRULY) for sentence, wrong in SHARED_MISTAKES.items()}
    judge(
        "13.4", given, _ratios(DRAWN, TRUTH, SAYS, TRULY), mistakes, "right. 1 is chance, and more is a shared mistake."
    )
