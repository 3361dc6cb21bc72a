"""Part IV: the checks of chapter 16. Each calls the reader's function on a few words and names the likely mistake."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.annotations import MISSING
from course_lib.checks import answer, judge
from course_lib.checks.classes import _judge_number, _tensor
from course_lib.networks import seeded
from course_lib.strokes import read_unmarked

# Three classes, [said, believed] and [believed, truth]; nothing is symmetric, and no p is even.
M3 = torch.tensor([[0.0, 0.9, 0.2], [0.8, 0.0, 0.8], [0.2, 0.1, 0.0]]).double()
A3 = torch.tensor([[0.8, 0.1, 0.25], [0.15, 0.7, 0.05], [0.05, 0.2, 0.7]]).double()
P3 = torch.rand(3, 4, 5, generator=seeded(16)).double().add(0.1)
P3 = P3 / P3.sum(0)
SAID3 = torch.randint(MISSING, 3, (4, 5), generator=seeded(17))


def _scored(W: Tensor, p: Tensor, said: Tensor) -> Tensor:
    """-log (W p)[said] (H, W), with -1 looked up as class 0."""
    says = torch.einsum("ij,jhw->ihw", W, p)
    return -says.gather(0, said.clamp(min=0)[None])[0].log()


def _mean(W: Tensor, p: Tensor, said: Tensor) -> Tensor:
    return _scored(W, p, said)[said >= 0].mean()


def _not_said(A: Tensor, p: Tensor, said: Tensor) -> Tensor:
    return -(1 - (-_scored(A, p, said)).exp())[said >= 0].log().mean()


NEGATIVE_MISTAKES = {
    "M is missing: that is the loss of somebody who says what it *is*.": lambda p, A, M, s: _mean(A, p, s),
    "M is transposed, as the paper prints it; columns of M sum to 1, so the product is M A p.": (
        lambda p, A, M, s: _mean(M.T @ A, p, s)
    ),
    "M and A are exchanged: first A gives the belief, then M puts it into a word, M A p.": (
        lambda p, A, M, s: _mean(A @ M, p, s)
    ),
    "A is missing: this annotator errs.": lambda p, A, M, s: _mean(M, p, s),
    "A is transposed: its second axis is the truth, over which you sum.": lambda p, A, M, s: _mean(M @ A.T, p, s),
    "-log (1 - (A p)[said]) is right for a uniform M only, and up to a constant; here M has favourites.": (
        lambda p, A, M, s: _not_said(A, p, s)
    ),
    "-1 was taken for class 0; pixels without a word do not count.": (
        lambda p, A, M, s: _scored(M @ A, p, s.clamp(min=0)).mean()
    ),
    "-1 was taken for the last class; pixels without a word do not count.": (
        lambda p, A, M, s: _scored(M @ A, p, s % 3).mean()
    ),
    "that is the sum over the words; return their mean.": lambda p, A, M, s: _scored(M @ A, p, s)[s >= 0].sum(),
    "you divided by all pixels; divide by the number of words.": (
        lambda p, A, M, s: _scored(M @ A, p, s)[s >= 0].sum() / s.numel()
    ),
    "the sign: a loss is minus the logarithm.": lambda p, A, M, s: -_mean(M @ A, p, s),
}


def negative_loss(function: Callable[[Tensor, Tensor, Tensor, Tensor], float]) -> None:
    """Exercise 16.1: p (L, H, W), A (L, L), M (L, L), said (H, W) with MISSING -> mean of -log (M A p)[said]."""
    given = P3.clone(), A3.clone(), M3.clone(), SAID3.clone()
    praise = "right. A negative word is a word, and its matrix is M A."
    _judge_number("16.1", function, given, _mean(M3 @ A3, P3, SAID3), NEGATIVE_MISTAKES, praise)


TRUTH = torch.randint(0, 3, (300,), generator=seeded(18))
CHANCE = torch.rand(300, 1, generator=seeded(19)).double()
WORDS = ((M3 @ A3).cumsum(0).T[TRUTH][:, :-1] < CHANCE).sum(1)  # of somebody who errs at times
WORDS = torch.where(torch.arange(300) % 7 == 3, MISSING, WORDS)


def _counts(said: Tensor, truth: Tensor, L: int) -> Tensor:
    """[said, truth] of those who spoke."""
    said, truth = said[said >= 0], truth[said >= 0]
    return torch.bincount(L * said + truth, minlength=L * L).view(L, L).double()


def _off(counts: Tensor) -> Tensor:
    return counts * (1 - torch.eye(len(counts), dtype=counts.dtype))


def _of_words(said: Tensor, L: int) -> Tensor:
    M = _off(torch.bincount(said[said >= 0], minlength=L).double()[:, None].expand(L, L))
    return M / M.sum(0)


DENIAL_MISTAKES = {
    "rows sum to 1, but columns must: of each truth, where do the words go?": (
        lambda s, t, L: _off(_counts(s, t, L)) / _off(_counts(s, t, L)).sum(1, keepdim=True)
    ),
    "it is transposed: said comes first, truth second.": lambda s, t, L: _shares(s, t, L).T,
    "the diagonal must be 0: who says of a k that it is not k has erred, and errors belong to A.": (
        lambda s, t, L: _counts(s, t, L) / _counts(s, t, L).sum(0)
    ),
    "set the diagonal to 0 *before* you divide, or the columns do not sum to 1.": (
        lambda s, t, L: _off(_counts(s, t, L) / _counts(s, t, L).sum(0))
    ),
    "-1 was counted as the last class.": lambda s, t, L: _shares(s % L, t, L),
    "-1 was counted as class 0.": lambda s, t, L: _shares(s.clamp(min=0), t, L),
    "these are counts; divide each column by its sum.": lambda s, t, L: _off(_counts(s, t, L)),
    "you divided by all words; divide each column by its own sum.": (
        lambda s, t, L: _off(_counts(s, t, L)) / _off(_counts(s, t, L)).sum()
    ),
    "that is how often each word occurs at all; count for each truth apart.": lambda s, t, L: _of_words(s, L),
    "that is a uniform M; count.": lambda s, t, L: (1 - torch.eye(L)).double() / (L - 1),
}


def _shares(said: Tensor, truth: Tensor, L: int) -> Tensor:
    counts = _off(_counts(said, truth, L))
    return counts / counts.sum(0)


def counted(function: Callable[[Tensor, Tensor, int], Tensor]) -> None:
    """Exercise 16.2: words said (N,) with MISSING, truth (N,), L -> M (L, L), zeros on its diagonal."""
    given = _tensor("16.2", answer("16.2", function, WORDS.clone(), TRUTH.clone(), 3))
    mistakes = {sentence: wrong(WORDS, TRUTH, 3) for sentence, wrong in DENIAL_MISTAKES.items()}
    praise = "right. Columns sum to 1, and nobody denies the truth."
    judge("16.2", given, _shares(WORDS, TRUTH, 3), mistakes, praise)


P_OF_CLASSES = torch.tensor([0.6, 0.3, 0.1]).double()


def _bits(p: Tensor) -> Tensor:
    """Entropy along axis 0, with 0 log 0 = 0."""
    return -(p * torch.where(p > 0, p, 1).log2()).sum(0)


def _information(p: Tensor, W: Tensor) -> Tensor:
    return _bits(W @ p) - (p * _bits(W)).sum()


INFORMATION_MISTAKES = {
    "these are nats; take the logarithm to base 2.": lambda p, W: _information(p, W) * torch.tensor(2.0).log(),
    "that is how uncertain the word is; take away how uncertain it is once the truth is known.": (
        lambda p, W: _bits(W @ p)
    ),
    "that is how uncertain the word is once the truth is known; it is what to take *away*.": (
        lambda p, W: (p * _bits(W)).sum()
    ),
    "that is how uncertain the truth is; a word does not tell all of it.": lambda p, W: _bits(p),
    "that is what is still unknown after the word; return what the word has told.": (
        lambda p, W: _bits(p) - _information(p, W)
    ),
    "the columns count as often as their class occurs: weigh their entropies by p.": (
        lambda p, W: _bits(W @ p) - _bits(W).mean()
    ),
    "it is not a number: 0 log 0 counts as 0, and M has zeros.": lambda p, W: torch.tensor(torch.nan),
    "the sign: a word cannot take information away.": lambda p, W: -_information(p, W),
}


def information(function: Callable[[Tensor, Tensor], float]) -> None:
    """Exercise 16.3: p (L,) of the classes, W (L, L) of what is said -> bits that a word tells of the truth."""

    def named(p: Tensor, W: Tensor) -> Tensor:  # a nan is equal to nothing, so it gets a number of its own
        given = torch.as_tensor(function(p, W))
        return torch.where(given.isnan(), -999.0, given.double())

    mistakes = dict(INFORMATION_MISTAKES)
    (nan,) = [sentence for sentence in mistakes if "0 log 0" in sentence]
    mistakes[nan] = lambda p, W: torch.tensor(-999.0)
    praise = "right. Truth and word share so much, and no more."
    _judge_number("16.3", named, (P_OF_CLASSES.clone(), M3.clone()), _information(P_OF_CLASSES, M3), mistakes, praise)


STROKES = torch.randint(0, 3, (3, 2, 4, 4), generator=seeded(20))
STROKES = torch.where(STROKES == 2, 1, MISSING)
STROKES[1, 0] = MISSING  # a picture in which nobody drew a positive stroke
STROKES[2] = torch.where(STROKES[2] == 1, 0, MISSING)  # here background is the target


def _filled(labels: Tensor, fill: Callable[[Tensor], Tensor], shown: Callable[[Tensor], Tensor]) -> Tensor:
    target = labels.amax((2, 3), keepdim=True)
    return torch.where((labels == MISSING) & shown(target), fill(target).expand_as(labels), labels)


UNMARKED_MISTAKES = {
    "a channel without any mark was not shown that picture; it stays silent.": (
        lambda x: _filled(x, lambda t: 1 - x.amax((1, 2, 3), keepdim=True), lambda t: t < 9)
    ),
    "without any mark, the largest label is -1, and 1 - (-1) = 2 is no class; such a channel stays silent.": (
        lambda x: _filled(x, lambda t: 1 - t, lambda t: t < 9)
    ),
    "you filled in the target itself; the rest is the *other* class.": (
        lambda x: _filled(x, lambda t: t, lambda t: t != MISSING)
    ),
    "you filled in 0 everywhere; where background is the target, the rest is the digit.": (
        lambda x: _filled(x, lambda t: 0 * t, lambda t: t != MISSING)
    ),
    "the marks have changed, too; fill only where nobody marked.": (
        lambda x: torch.where(x == MISSING, x.amax((2, 3), keepdim=True), 1 - x)
    ),
    "only the positive channel is filled; the negative one is silent elsewhere, too.": (
        lambda x: torch.cat([_filled(x, lambda t: 1 - t, lambda t: t != MISSING)[:, :1], x[:, 1:]], 1)
    ),
    "only the negative channel is filled; the positive one is silent elsewhere, too.": (
        lambda x: torch.cat([x[:, :1], _filled(x, lambda t: 1 - t, lambda t: t != MISSING)[:, 1:]], 1)
    ),
    "nothing was filled.": lambda x: x,
}


def other_class(function: Callable[[Tensor], Tensor]) -> None:
    """Exercise 16.4: strokes (N, 2, H, W) of two classes -> the same, silence read as "the rest is something else"."""
    given = _tensor("16.4", answer("16.4", function, STROKES.clone()))
    mistakes = {sentence: wrong(STROKES) for sentence, wrong in UNMARKED_MISTAKES.items()}
    praise = "right. Silence is read where somebody spoke at all."
    judge("16.4", given, read_unmarked(STROKES, 2)[0], mistakes, praise)
