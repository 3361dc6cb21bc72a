"""Part V: the checks of chapter 19. Each calls the reader's function on a small table and names the likely mistake."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from course_lib.annotations import MISSING
from course_lib.checks import CheckFailed, answer, judge
from course_lib.checks.classes import _judge_number, _numbers, _tensor
from course_lib.networks import seeded

# ---- 19.1 ------------------------------------------------------------------------------------------------------------

PRIOR = torch.tensor([0.5, 0.3, 0.2])
A = torch.tensor([
    [[0.8, 0.1, 0.3], [0.1, 0.7, 0.1], [0.1, 0.2, 0.6]],
    [[0.6, 0.2, 0.1], [0.3, 0.7, 0.3], [0.1, 0.1, 0.6]],
    [[0.7, 0.3, 0.2], [0.2, 0.5, 0.2], [0.1, 0.2, 0.6]],
    [[0.9, 0.2, 0.1], [0.05, 0.7, 0.2], [0.05, 0.1, 0.7]],
])  # fmt: skip
SAID = torch.tensor([0, 1, MISSING, 1])


def _belief(prior: Tensor, rows: list[Tensor]) -> Tensor:
    """prior (L,) times each row, not normalised."""
    return torch.stack([prior, *rows]).prod(0)


def _others(prior: Tensor, A: Tensor, said: Tensor, r: int, *, leave: bool = True) -> Tensor:
    """(L,): what the labels of the others make of the truth."""
    p = _belief(prior, [A[s, y] for s, y in enumerate(said.tolist()) if y != MISSING and not (leave and s == r)])
    return p / p.sum()


def _foretold(prior: Tensor, A: Tensor, said: Tensor, r: int, *, leave: bool = True) -> Tensor:
    return _others(prior, A, said, r, leave=leave) @ A[r, said[r]]


FORETELL_MISTAKES = {
    "the label of r was heard before it was foretold: leave it out of the belief.": lambda p, A, y, r: _foretold(
        p, A, y, r, leave=False
    ).log(),
    "the belief does not sum to 1: divide by its sum before the last step.": lambda p, A, y, r: (
        _belief(p, [A[s, k] for s, k in enumerate(y.tolist()) if k != MISSING]).sum().log()
    ),
    "the prior is missing; the others' labels alone are no belief.": lambda p, A, y, r: _foretold(
        torch.ones_like(p), A, y, r
    ).log(),
    "that is the probability; return its logarithm.": lambda p, A, y, r: _foretold(p, A, y, r),
    "somebody without a label was heard: -1 as an index means the last class.": lambda p, A, y, r: _foretold(
        p, A, y % len(p), r
    ).log(),
    "matrices are A[said, truth]; you read columns where rows belong.": lambda p, A, y, r: _foretold(
        p, A.transpose(1, 2), y, r
    ).log(),
    "the others were not heard: that is what r says of an item of which nothing is known.": lambda p, A, y, r: (
        p @ A[r, y[r]]
    ).log(),
    "that is the mean of a logarithm; sum over the truths first, then take the logarithm.": lambda p, A, y, r: (
        _others(p, A, y, r) @ A[r, y[r]].log()
    ),
    "only the likeliest truth was asked; all of them count, each as far as it is believed.": lambda p, A, y, r: A[
        r, y[r], _others(p, A, y, r).argmax()
    ].log(),
    "that is how likely the label is to be true; r says it also of other truths: use the matrix of r.": (
        lambda p, A, y, r: _others(p, A, y, r)[y[r]].log()
    ),
    "the sign is turned round: this is a score, not a loss.": lambda p, A, y, r: -_foretold(p, A, y, r).log(),
}


def foretell(function: Callable[[Tensor, Tensor, Tensor, int], float]) -> None:
    """Exercise 19.1: prior (L,), A (R, L, L), said (R,), r -> log p(label of r | the others')."""
    case = (PRIOR.clone(), A.clone(), SAID.clone(), 3)
    right = float(_foretold(PRIOR, A, SAID, 3).log())
    _judge_number("19.1", function, case, right, FORETELL_MISTAKES, "right. A score that needs no truth.")


# ---- 19.2 ------------------------------------------------------------------------------------------------------------


def _scores(means: tuple[float, ...], noise: float, seed: int, K: int = 60) -> Tensor:
    """(M, K): labels differ much in how hard they are, models much less on the same label."""
    generator = seeded(seed)
    hard = torch.randn(K, generator=generator)
    own = torch.randn(len(means), K, generator=generator)
    own = own - own.mean(1, keepdim=True)
    return torch.tensor(means)[:, None] + hard + noise * own


SCORES = (
    # The second is the best in both: by more than its interval, and with the first level with the last.
    torch.tensor([[-2.1, -1.5, -2.1, -1.5], [-1.3, -1.3, -1.3, -1.3], [-1.4, -1.4, -1.4, -1.4]]),
    torch.tensor([6 * [-1.9], 6 * [-1.3], 6 * [-1.9]]),
    _scores((-1.5, -1.25, -1.2), 0.15, 0),  # the first is behind, the second cannot be told from the third
    _scores((-2.2, -2.1, -1.2), 0.6, 4),  # only the last will do, although single labels differ by more
    _scores((-1.2, -1.21, -1.4), 0.15, 1),  # the first is the best
    _scores((-2.3, -2.1, -1.2), 0.1, 2),  # only the last will do, and even the intervals of two means tell
    _scores((-1.21, -1.4, -1.2), 0.2, 3),  # the first cannot be told from the last
)


def _halves(scores: Tensor, best: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """(M,) how far each is behind the best, (M,) half its interval, (M, K) label by label."""
    d = scores[scores.mean(1).argmax() if best is None else best] - scores
    behind = d.mean(1)
    return behind, 1.96 * (d - behind[:, None]).square().sum(1).sqrt() / scores.shape[1], d


def _first(good: Tensor) -> int:
    return int(good.int().argmax())


def _simplest(scores: Tensor, factor: float = 1.0, best: int | None = None) -> int:
    behind, half, _ = _halves(scores, best)
    return _first(behind <= factor * half)


def _not_centred(scores: Tensor) -> int:
    behind, _, d = _halves(scores)
    return _first(behind <= 1.96 * d.square().sum(1).sqrt() / scores.shape[1])


def _below(scores: Tensor) -> int:
    behind, half, _ = _halves(scores)
    return _first(behind < half)


def _unpaired(scores: Tensor) -> int:
    half = 1.96 * scores.std(1) / scores.shape[1] ** 0.5
    best = int(scores.mean(1).argmax())
    return _first(scores.mean(1) + half >= scores.mean(1)[best] - half[best])


SIMPLEST_MISTAKES = {
    "that is the best mean; take the simplest model that cannot be told from it.": lambda s: int(s.mean(1).argmax()),
    "intervals of two means were compared; take the difference label by label first.": _unpaired,
    "the spread of the labels is no interval of their mean: divide by K, after the root.": lambda s: _simplest(
        s, s.shape[1] ** 0.5
    ),
    "the mean was not taken off the differences before they were squared.": _not_centred,
    "the best model is behind by 0 and its interval is 0: take it too, by <=, where no simpler one will do.": _below,
    "each model is held against the best, which need not be the last.": lambda s: _simplest(s, best=-1),
    "the interval is too narrow; its half width has a factor 1.96.": lambda s: _simplest(s, 1 / 1.96),
    "that is the most complex of those that cannot be told from the best; take the first.": lambda s: (
        len(s) - 1 - _simplest(s.flip(0))
    ),
    "always the first model; is it the best model's score minus this one's?": lambda s: 0,
    "models are rows and labels columns: take the means along the labels.": lambda s: int(s.mean(0).argmax()),
}


def simplest(function: Callable[[Tensor], int]) -> None:
    """Exercise 19.2: scores (M, K), the simplest model first -> the number of the one to take."""
    given = _numbers("19.2", [answer("19.2", function, scores.clone()) for scores in SCORES])
    right = _numbers("19.2", [_simplest(scores) for scores in SCORES])
    wrong = {text: _numbers("19.2", [one(scores) for scores in SCORES]) for text, one in SIMPLEST_MISTAKES.items()}
    judge("19.2", given, right, wrong, "right. Paired differences decide with few labels.")


# ---- 19.3 ------------------------------------------------------------------------------------------------------------

P = torch.tensor([
    [0.9, 0.06, 0.04], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8], [0.45, 0.35, 0.2], [0.05, 0.9, 0.05], [0.3, 0.3, 0.4],
    [0.97, 0.02, 0.01], [0.1, 0.25, 0.65],
])  # fmt: skip
ITEMS, TRUTH = torch.tensor([0, 2, 3, 6, 7]), torch.tensor([1, 2, 1, 0, 1])


def _looked(p: Tensor, items: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """How many fused labels are wrong, and u (M,)."""
    q = p[items]
    return (q.argmax(1) != truth).sum(), 1 - q.amax(1)


def _by(formula: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor, Tensor], float]:
    """The answer that a formula of the wrong ones and of u (M,) gives."""
    return lambda p, items, truth: float(formula(*_looked(p, items, truth)))


_surprise = _by(lambda wrong, u: (wrong - u.sum()) / (u * (1 - u)).sum().sqrt())
SURPRISE_MISTAKES = {
    "the variance stands below the line; take its root.": _by(lambda wrong, u: (wrong - u.sum()) / (u * (1 - u)).sum()),
    "the sign is turned round: more wrong than expected is positive.": lambda p, n, t: -_surprise(p, n, t),
    "you counted the right ones; the wrong ones are held against what is expected to be wrong.": _by(
        lambda wrong, u: (len(u) - wrong - u.sum()) / (u * (1 - u)).sum().sqrt()
    ),
    "u is the probability of being wrong, 1 - max p; you took max p.": _by(
        lambda wrong, u: (wrong - (1 - u).sum()) / (u * (1 - u)).sum().sqrt()
    ),
    "only the trusted items count; you summed the doubt over all of them.": lambda p, n, t: float(
        (_looked(p, n, t)[0] - (1 - p.amax(1)).sum()) / ((1 - p.amax(1)) * p.amax(1)).sum().sqrt()
    ),
    "each item has its own u; with the mean of them the spread comes out too large.": _by(
        lambda wrong, u: (wrong - u.sum()) / (len(u) * u.mean() * (1 - u.mean())).sqrt()
    ),
    "that is a number of items; divide by the standard deviation.": _by(lambda wrong, u: wrong - u.sum()),
    "roots do not add up, variances do: sum u (1 - u) first, then take the root.": _by(
        lambda wrong, u: (wrong - u.sum()) / (u * (1 - u)).sqrt().sum()
    ),
    "these are the first items of p; take those whose numbers are in `items`.": lambda p, n, t: _surprise(
        p, torch.arange(len(n)), t
    ),
    "the spread of a sum of coins is the root of the sum of u (1 - u); you took the root of the sum of u.": _by(
        lambda wrong, u: (wrong - u.sum()) / u.sum().sqrt()
    ),
}


def surprise(function: Callable[[Tensor, Tensor, Tensor], float]) -> None:
    """Exercise 19.3: p (N, L), items (M,), truth (M,) -> (wrong - expected) / standard deviation."""
    case, right = (P.clone(), ITEMS.clone(), TRUTH.clone()), _surprise(P, ITEMS, TRUTH)
    praise = "right. Twenty items tell whether to trust a thousand."
    _judge_number("19.3", function, case, right, SURPRISE_MISTAKES, praise)


# ---- 19.4 ------------------------------------------------------------------------------------------------------------


def _hearsay(N: int = 100, L: int = 4) -> Tensor:
    """(N, 5) labels with gaps: the first two copy each other."""
    generator = seeded(4)
    truth = torch.randint(L, (N,), generator=generator)
    said = torch.randint(L, (N, 5), generator=generator)
    know = torch.rand(N, 5, generator=generator) < 0.6
    labels = torch.where(know, truth[:, None], said)
    labels[:, 1] = torch.where(torch.rand(N, generator=generator) < 0.9, labels[:, 0], labels[:, 1])
    return labels.masked_fill(torch.rand(N, 5, generator=generator) < 0.2, MISSING)


HEARSAY, LEAST = _hearsay(), 5


def clear(labels: Tensor) -> Tensor:
    """labels (N, R) -> the class that more than half of those who spoke said (N,), MISSING where there is none."""
    votes = torch.stack([(labels == k).sum(1) for k in range(4)], 1)  # (N, L)
    most, which = votes.max(1)
    return torch.where(2 * most > votes.sum(1), which, MISSING)


def _copies(
    labels: Tensor,
    fuse: Callable[[Tensor], Tensor],
    least: int,
    *,
    leave: Callable[[int, int], tuple[int, ...]] = lambda r, s: (r, s),
    wrong: Callable[[Tensor, Tensor], Tensor] = lambda a, b: a & b,
    gaps: bool = False,
    unsure: bool = False,
    of_all: bool = False,
) -> Tensor:
    R = labels.shape[1]
    shares = torch.zeros(R, R)
    for r, s in product(range(R), repeat=2):
        others = fuse(labels[:, [k for k in range(R) if k not in leave(r, s)]])
        spoke = ((labels[:, [r, s]] != MISSING).all(1) | gaps) & ((others != MISSING) | unsure)
        both = spoke & wrong(labels[:, r] != others, labels[:, s] != others)
        if r != s and both.sum() >= least:
            shares[r, s] = (labels[both, r] == labels[both, s]).sum() / (spoke if of_all else both).sum()
    return shares


COPIES_MISTAKES = {
    "the pair was heard in the truth that it is held against: leave both out.": lambda y, f, n: _copies(
        y, f, n, leave=lambda r, s: ()
    ),
    "only one of the two was left out; the other still speaks in the truth.": lambda y, f, n: _copies(
        y, f, n, leave=lambda r, s: (r,)
    ),
    "that is how often two agree on anything; count the items on which both are wrong.": lambda y, f, n: _copies(
        y, f, n, wrong=lambda a, b: a | True
    ),
    "one of the two was wrong; both have to be.": lambda y, f, n: _copies(y, f, n, wrong=lambda a, b: a | b),
    "two gaps are not the same answer: take the items that both labelled.": lambda y, f, n: _copies(y, f, n, gaps=True),
    "where the others are not sure, -1, nobody is wrong: leave such items out.": lambda y, f, n: _copies(
        y, f, n, unsure=True
    ),
    "a share of very few items was kept; `least` of them are wanted.": lambda y, f, n: _copies(y, f, 1),
    "that is a share of all items that both labelled; divide by those on which both are wrong.": lambda y, f, n: (
        _copies(y, f, n, of_all=True)
    ),
    "the table is as it began, all 0.": lambda y, f, n: torch.zeros(y.shape[1], y.shape[1]),
    "one half of the table is empty; it is symmetric.": lambda y, f, n: _copies(y, f, n).tril(),
    "the diagonal is 0: nobody copies from themselves.": lambda y, f, n: _copies(y, f, n) + torch.eye(y.shape[1]),
}


def copies(function: Callable[[Tensor, Callable[[Tensor], Tensor], int], Tensor]) -> None:
    """Exercise 19.4: labels (N, R), fuse, least -> (R, R), how often two who are both wrong say the same."""
    given = _tensor("19.4", answer("19.4", function, HEARSAY.clone(), clear, LEAST))
    if given.shape != (5, 5):
        raise CheckFailed(f"Exercise 19.4: wanted (R, R) = (5, 5), a number for each pair; got {tuple(given.shape)}.")
    mistakes = {sentence: wrong(HEARSAY, clear, LEAST) for sentence, wrong in COPIES_MISTAKES.items()}
    praise = "right. Common mistakes give copies away, common knowledge does not."
    judge("19.4", given, _copies(HEARSAY, clear, LEAST), mistakes, praise)
