"""Part II: the checks of chapter 11. Each calls the reader's function on small masks and names the likely mistake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations

import torch
from torch import Tensor

from course_lib import metrics
from course_lib.checks import CheckFailed, answer, judge
from course_lib.checks.classes import _judge_number, _tensor
from course_lib.networks import seeded

# Three masks of 2 x 4 pixels against four, three classes: overlaps of several sizes, and masks that lack a class.
CLASSES = 3
ONE = torch.tensor([[[1, 1, 0, 2], [1, 0, 0, 2]], [[0, 0, 0, 0], [0, 0, 0, 0]], [[0, 1, 1, 0], [0, 0, 1, 1]]])
OTHER = torch.tensor(
    [
        [[1, 1, 0, 0], [1, 0, 2, 2]],
        [[0, 0, 1, 0], [0, 0, 1, 0]],
        [[0, 0, 0, 0], [0, 0, 0, 0]],
        [[1, 1, 2, 2], [1, 1, 2, 2]],
    ]
)


def _dices(a: Tensor, b: Tensor, both_lack: float = 1.0, classes: Sequence[int] = (1, 2)) -> Tensor:
    """Dice of each pair in each class: (S, T, classes)."""
    scores = []
    for k in classes:
        one, two = (a == k).flatten(1).float(), (b == k).flatten(1).float()
        total = one.sum(1)[:, None] + two.sum(1)  # (S, T)
        scores.append(torch.where(total > 0, 2 * (one @ two.T) / total, both_lack))
    return torch.stack(scores, -1)


LACKING = "a class that both lack gave nan, 0 / 0; they agree that it is not there, so they are 0 apart in it."
APART_MISTAKES = {
    LACKING: lambda a, b, L: 1 - _dices(a, b, torch.nan).mean(-1),
    "two masks that both lack a class are 1 apart in it in yours; they agree, so they are 0 apart.": (
        lambda a, b, L: 1 - _dices(a, b, 0.0).mean(-1)
    ),
    "classes that both lack were left out of the mean; they count, as 0 apart.": (
        lambda a, b, L: (1 - _dices(a, b, torch.nan)).nanmean(-1).nan_to_num(0)
    ),
    "these are similarities; a distance is 1 minus the Dice.": lambda a, b, L: _dices(a, b).mean(-1),
    "that is 1 - IoU; wanted is 1 - Dice: twice the overlap over the sum of the areas.": (
        lambda a, b, L: metrics.distances(a[None], b[None], L)[0]
    ),
    "the factor 2 is missing: equal masks must be 0 apart.": lambda a, b, L: 1 - _dices(a, b, 2.0).mean(-1) / 2,
    "the background is averaged in; wanted is the mean over classes 1 to L - 1.": (
        lambda a, b, L: 1 - _dices(a, b, classes=(0, 1, 2)).mean(-1)
    ),
    "all foreground was taken for one class; each class has a distance of its own.": (
        lambda a, b, L: 1 - _dices((a > 0).long(), (b > 0).long(), classes=(1,)).mean(-1)
    ),
    "you summed over the classes; take their mean.": lambda a, b, L: (1 - _dices(a, b)).sum(-1),
    "it is transposed: one row for each mask of a, one column for each of b.": (
        lambda a, b, L: 1 - _dices(b, a).mean(-1)
    ),
}


def apart(function: Callable[[Tensor, Tensor, int], Tensor]) -> None:
    """Exercise 11.1: masks a (S, H, W), b (T, H, W), L -> 1 - Dice, the mean over classes 1 to L - 1, (S, T)."""
    case = (ONE, OTHER, CLASSES)
    given = _tensor("11.1", answer("11.1", function, ONE.clone(), OTHER.clone(), CLASSES)).float()
    right = 1 - _dices(ONE, OTHER).mean(-1)
    if given.shape == right.shape and given.isnan().any():
        raise CheckFailed(f"Exercise 11.1: {LACKING}")
    mistakes = {sentence: wrong(*case) for sentence, wrong in APART_MISTAKES.items() if sentence != LACKING}
    judge("11.1", given, right, mistakes, "right. Silence is an answer, and agrees with silence.")


Normal = tuple[Tensor, Tensor]
D = 3
Q: Normal = torch.tensor([0.5, -1.0, 0.3]), torch.tensor([-0.7, 0.2, -0.3])
PRIOR: Normal = torch.tensor([0.1, 0.2, -0.4]), torch.tensor([0.3, -0.2, 0.1])
NOISE = torch.randn(50, D, generator=seeded(110))


def _log_density(z: Tensor, p: Normal, half: float = 0.5, spread: float = 1.0) -> Tensor:
    """log of the normal density of z (n, D), less its constant, which cancels: (n, D)."""
    mean, log_sd = p
    return -half * ((z - mean) / log_sd.exp()) ** 2 - spread * log_sd


def _by_draws(q: Normal, p: Normal, noise: Tensor, *, z: Tensor | None = None, **how: float) -> float:
    z = q[0] + q[1].exp() * noise if z is None else z
    return float((_log_density(z, q, **how) - _log_density(z, p, **how)).sum(1).mean())


KL_MISTAKES = {
    "it is turned round: log q - log p, since q is on the left of KL(q || p).": lambda q, p, e: -_by_draws(q, p, e),
    "z was drawn from p; the mean is over draws from q.": lambda q, p, e: _by_draws(q, p, e, z=p[0] + p[1].exp() * e),
    "that is KL(p || q): q comes first.": lambda q, p, e: _by_draws(p, q, e),
    "you averaged over the numbers of z; densities multiply, so their logarithms add: sum over D.": (
        lambda q, p, e: _by_draws(q, p, e) / D
    ),
    "you summed over the draws; take their mean.": lambda q, p, e: _by_draws(q, p, e) * len(e),
    "the noise was multiplied by the logarithm of the standard deviation; take exp first.": (
        lambda q, p, e: _by_draws(q, p, e, z=q[0] + q[1] * e)
    ),
    "the noise was multiplied by the variance; z is mean + standard deviation * noise.": (
        lambda q, p, e: _by_draws(q, p, e, z=q[0] + (2 * q[1]).exp() * e)
    ),
    "-log sd is missing in the densities: a narrow one is high.": lambda q, p, e: _by_draws(q, p, e, spread=0.0),
    "the factor 1/2 is missing in the exponents.": lambda q, p, e: _by_draws(q, p, e, half=1.0),
}


def kl_by_draws(function: Callable[[Normal, Normal, Tensor], float]) -> None:
    """Exercise 11.2: q and p, each mean (D,) and log standard deviation (D,), noise (n, D) -> KL(q || p)."""
    copied = lambda p: tuple(x.clone() for x in p)  # noqa: E731
    given = answer("11.2", function, copied(Q), copied(PRIOR), NOISE.clone())
    praise = "right. Only log q and log p were needed, so this works where no formula is known."
    _judge_number("11.2", lambda *_: given, (Q, PRIOR, NOISE), _by_draws(Q, PRIOR, NOISE), KL_MISTAKES, praise)


def _distances(seed: int, S: int, R: int) -> tuple[Tensor, Tensor, Tensor]:
    """Between, among samples, among people; the diagonals of the last two are 0."""
    a, b = torch.randint(2, (2, 1, 4, 3, 3), generator=seeded(seed))
    a, b = a[:, :S], b[:, :R]
    return tuple(metrics.distances(x, y)[0] for x, y in ((a, b), (a, a), (b, b)))


CASE = _distances(111, 3, 4)
_pairs = lambda own: own.sum() / (len(own) * (len(own) - 1))  # noqa: E731


def _fair(between: Tensor, own: Tensor, theirs: Tensor) -> float:
    return float(2 * between.mean() - _pairs(own) - theirs.mean())


ENERGY_MISTAKES = {
    "the pairs of a sample with itself are still in: the mean over S S pairs counts S zeros.": (
        lambda b, o, t: float(2 * b.mean() - o.mean() - t.mean())
    ),
    "people's pairs with themselves belong in: the panel is all there is, not a draw from it.": (
        lambda b, o, t: float(2 * b.mean() - _pairs(o) - _pairs(t))
    ),
    "you dropped the wrong ones: samples' pairs with themselves go, people's stay.": (
        lambda b, o, t: float(2 * b.mean() - o.mean() - _pairs(t))
    ),
    "the factor 2 is missing: twice the distance between, less both among.": (
        lambda b, o, t: float(b.mean() - _pairs(o) - t.mean())
    ),
    "these are added; the distances among are subtracted.": lambda b, o, t: float(2 * b.mean() + _pairs(o) + t.mean()),
    "you divided by S pairs more than there are: S (S - 1) are left without the diagonal, not S S + S.": (
        lambda b, o, t: float(2 * b.mean() - o.sum() / (len(o) * (len(o) + 1)) - t.mean())
    ),
    "you divided by half the pairs: own holds each pair twice, S (S - 1) entries.": (
        lambda b, o, t: float(2 * b.mean() - 2 * _pairs(o) - t.mean())
    ),
    "it is turned round: far apart must be a large number.": lambda b, o, t: -_fair(b, o, t),
    "the samples' own spread was forgotten.": lambda b, o, t: float(2 * b.mean() - t.mean()),
}


def fair_energy(function: Callable[[Tensor, Tensor, Tensor], float]) -> None:
    """Exercise 11.3: distances between (S, R), own (S, S), theirs (R, R) -> GED without samples' own pairs."""
    given = answer("11.3", function, *(x.clone() for x in CASE))
    praise = "right. The number no longer depends on how many masks were drawn."
    _judge_number("11.3", lambda *_: given, CASE, _fair(*CASE), ENERGY_MISTAKES, praise)


# The nearest of each row is the same column for two rows, and taking the nearest pair first leaves a poor rest.
FAR = torch.tensor([[0.10, 0.35, 0.90, 0.80], [0.15, 0.85, 0.95, 0.90], [0.7, 0.6, 0.4, 0.5], [0.6, 0.9, 0.2, 0.75]])


def _assigned(far: Tensor, best: Callable = min) -> float:
    n = range(len(far))
    return best(sum(float(far[i, p[i]]) for i in n) for p in permutations(n)) / len(far)


def _greedy(far: Tensor) -> float:
    left, total = far.clone(), 0.0
    for _ in range(len(far)):
        i, j = divmod(int(left.argmin()), len(far))
        total += float(far[i, j])
        left[i], left[:, j] = torch.inf, torch.inf
    return total / len(far)


MATCH_MISTAKES = {
    "each sample took its nearest mask, and some mask was taken twice; each may be taken once.": (
        lambda far: 1 - float(far.min(1).values.mean())
    ),
    "each mask took its nearest sample, and some sample was taken twice; each may be taken once.": (
        lambda far: 1 - float(far.min(0).values.mean())
    ),
    "you took the nearest pair first, and what was left was poor: try all orders.": lambda far: 1 - _greedy(far),
    "that is the mean distance of the match; the IoU is 1 minus it.": lambda far: _assigned(far),
    "that is the worst of all matches.": lambda far: 1 - _assigned(far, max),
    "sample i was compared with mask i; which belongs to which is for you to find.": (
        lambda far: 1 - float(far.diagonal().mean())
    ),
    "you summed over the pairs; take their mean.": lambda far: len(far) - len(far) * _assigned(far),
    "that is the mean over all pairs, without a match.": lambda far: 1 - float(far.mean()),
}


def best_match(function: Callable[[Tensor], float]) -> None:
    """Exercise 11.4: distances (S, S) of samples and masks -> mean IoU of the best one-to-one match."""
    given = answer("11.4", function, FAR.clone())
    praise = "right. 24 orders here; for sixteen masks take scipy's linear_sum_assignment."
    _judge_number("11.4", lambda *_: given, (FAR,), 1 - _assigned(FAR), MATCH_MISTAKES, praise)
