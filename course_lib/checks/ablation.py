"""Part III: the checks of chapter 15. Each calls the reader's function on a few numbers, and names the mistake."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from course_lib.checks import CheckFailed, answer, judge
from course_lib.checks.classes import _judge_number, _numbers, _tensor

# In points: four draws of three seeds. A draw is worth more than the method, and the two methods follow it unlike.
A43 = np.array([[84.0, 86, 85], [79, 80, 84], [91, 88, 90], [83, 86, 81]])
B43 = np.array([[83.0, 82, 84], [80, 78, 79], [88, 89, 86], [80, 84, 83]])
Interval = tuple[float, float, float]


def _about(mean: float, half: float) -> Interval:
    return float(mean), float(mean - half), float(mean + half)


def _from(d: np.ndarray, *, ddof: int = 1, t: float | None = None, root: bool = True) -> Interval:
    """The interval of the mean of differences (n,), or one that is off in a single place."""
    t = stats.t.ppf(0.975, len(d) - 1) if t is None else t
    return _about(d.mean(), t * d.std(ddof=ddof) / (np.sqrt(len(d)) if root else 1))


def _unpaired(a: np.ndarray, b: np.ndarray) -> Interval:
    x, y = a.mean(1), b.mean(1)
    welch = stats.ttest_ind(x, y, equal_var=False).confidence_interval()
    return float(x.mean() - y.mean()), float(welch.low), float(welch.high)


INTERVAL_MISTAKES = {
    "all runs were taken for draws; average the seeds of each draw first.": lambda a, b: _from((a - b).ravel()),
    "that is the interval of unpaired draws; take differences draw by draw.": _unpaired,
    "the spread was divided by n; with `ddof=1` it is n - 1.": lambda a, b: _from((a - b).mean(1), ddof=0),
    "1.96 is for many draws; for a few it is Student's t with n - 1 degrees of freedom.": lambda a, b: _from(
        (a - b).mean(1), t=1.96
    ),
    "Student's t was asked for n degrees of freedom; it is n - 1.": lambda a, b: _from(
        (a - b).mean(1), t=stats.t.ppf(0.975, len(a))
    ),
    "t was asked at .95; two tails of 2.5 % each mean .975.": lambda a, b: _from(
        (a - b).mean(1), t=stats.t.ppf(0.95, len(a) - 1)
    ),
    "that is the spread of single draws; the mean's is smaller by the root of n.": lambda a, b: _from(
        (a - b).mean(1), root=False
    ),
    "the axes are exchanged: draws come first, seeds second.": lambda a, b: _from((a - b).mean(0)),
    "the sign is turned: a - b is wanted.": lambda a, b: _from((b - a).mean(1)),
}


def paired_interval(function: Callable[[np.ndarray, np.ndarray], Interval]) -> None:
    """Exercise 15.1: a, b (draws, seeds) -> (mean, low, high) of a - b."""
    given = answer("15.1", function, A43.copy(), B43.copy())
    try:
        given = list(given)
    except TypeError:
        raise CheckFailed(f"Exercise 15.1: wanted (mean, low, high), got a {type(given).__name__}.") from None
    if len(given) != 3:
        raise CheckFailed(f"Exercise 15.1: wanted three numbers, (mean, low, high); got {len(given)}.")
    mistakes = {sentence: torch.tensor(wrong(A43, B43)).double() for sentence, wrong in INTERVAL_MISTAKES.items()}
    right = torch.tensor(_from((A43 - B43).mean(1))).double()
    praise = "right. As many differences as draws, however many runs."
    judge("15.1", _numbers("15.1", given), right, mistakes, praise)


# room, before, inside, between, frugal: kept, made again, and two in which not even one fits
ROOMS = (
    (100.0, 9.0, 12.0, 1.5, False),
    (100.0, 9.0, 12.0, 1.5, True),
    (20.0, 9.0, 12.0, 1.5, False),
    (20.0, 9.0, 12.0, 1.5, True),
)


def _fit(room: float, before: float, inside: float, between: float, frugal: bool) -> int:
    n = (room - before - inside) // between if frugal else (room - before) // inside
    return max(int(n), 0)


FIT_MISTAKES = {
    "if arrays are made again, one recurrence still has to fit whole: take `inside` off once.": (
        lambda room, before, inside, between, frugal: max(int((room - before) // (between if frugal else inside)), 0)
    ),
    "frugal and not were exchanged.": lambda room, before, inside, between, frugal: _fit(
        room, before, inside, between, not frugal
    ),
    "`before` is needed whatever happens: take it off first.": lambda room, before, inside, between, frugal: _fit(
        room, 0, inside, between, frugal
    ),
    "that is negative where nothing fits; return 0.": (
        lambda room, before, inside, between, frugal: int(
            (room - before - inside) // between if frugal else (room - before) // inside
        )
    ),
    "rounded up: the last recurrence does not fit.": lambda *given: _fit(*given) + 1,
    "`inside` was taken off when all is kept, too; there it is paid for each recurrence alone.": (
        lambda room, before, inside, between, frugal: max(
            int((room - before - inside) // (between if frugal else inside)), 0
        )
    ),
    "if arrays are made again, a recurrence costs `between`, not `inside` and `between`.": (
        lambda room, before, inside, between, frugal: max(
            int((room - before) // (inside + between) if frugal else (room - before) // inside), 0
        )
    ),
}


def that_fit(function: Callable[[float, float, float, float, bool], int]) -> None:
    """Exercise 15.2: room, before, inside, between (MB), frugal -> how many recurrences can be trained."""
    given = _numbers("15.2", [answer("15.2", function, *room) for room in ROOMS])
    counted = lambda of: torch.tensor([float(of(*room)) for room in ROOMS]).double()  # noqa: E731
    mistakes = {sentence: counted(wrong) for sentence, wrong in FIT_MISTAKES.items()}
    judge("15.2", given, counted(_fit), mistakes, "right. One whole, and what is handed on of the others.")


USUAL = {"losses": ("heads",), "integration": "concat", "where": "picture"}
VARIED: list[dict] = [
    {},
    {"integration": "attention"},
    {"integration": "attention", "losses": ("shuffle",)},
    {"where": "pixel", "integration": "concat"},  # names what it leaves at its default
    {"losses": ("heads", "shuffle")},
    {"integration": "convlstm", "where": "pixel", "losses": ("shuffle",)},
    {"where": "picture"},  # the default, in other words
]


def _count(variants: list[dict], fill: dict, keys: Callable[[dict, dict], set]) -> Tensor:
    full = [fill | v for v in variants]
    return torch.tensor([[sum(a.get(k) != b.get(k) for k in keys(a, b)) for b in full] for a in full])


def _of_all(a: dict, b: dict) -> set:
    return {*a, *b}


CHANGE_MISTAKES = {
    "a key that is left out has the default's value: fill both up with `default` first.": lambda v, d: (
        _count(v, {}, _of_all) == 1
    ),
    "keys that only one of the two names were passed over; left out means the default's value.": lambda v, d: (
        _count(v, {}, lambda a, b: {*a} & {*b}) == 1
    ),
    "each was compared with the default alone; compare every two.": lambda v, d: (
        _count([*v, {}], d, _of_all)[:-1, -1:] == 1
    ).expand(len(v), len(v)),
    "that is at most one thing; a variant does not differ from itself.": lambda v, d: _count(v, d, _of_all) <= 1,
    "that is where they differ at all; wanted is in exactly one thing.": lambda v, d: _count(v, d, _of_all) > 0,
    "these are numbers of differences; wanted is whether it is one.": lambda v, d: _count(v, d, _of_all),
    "only one half of the pairs is marked; differing is the same both ways.": lambda v, d: (
        _count(v, d, _of_all) == 1
    ).triu(),
    "the default's values won: `default | variant`, in this order.": lambda v, d: torch.zeros(len(v), len(v)),
}


def one_thing(function: Callable[[list[dict], dict], Tensor]) -> None:
    """Exercise 15.3: V variants and the default -> (V, V), True where two differ in exactly one thing."""
    given = _tensor("15.3", answer("15.3", function, [dict(v) for v in VARIED], dict(USUAL)))
    right = _count(VARIED, USUAL, _of_all) == 1
    mistakes = {sentence: wrong(VARIED, USUAL) for sentence, wrong in CHANGE_MISTAKES.items()}
    judge("15.3", given, right, mistakes, "right. Only such pairs say what a change is worth.")


# Five draws of four variants: the last is best on one draw only, by luck.
SCORES = torch.tensor(
    [
        [0.82, 0.85, 0.83, 0.80],
        [0.78, 0.80, 0.82, 0.77],
        [0.88, 0.87, 0.86, 0.98],
        [0.81, 0.84, 0.83, 0.79],
        [0.80, 0.79, 0.83, 0.78],
    ]
).double()


def _blind(scores: Tensor, rule: Callable[[Tensor], Tensor]) -> Tensor:
    """The mean over draws of what the variant scores that `rule` chooses on the other draws."""
    found = []
    for s in range(len(scores)):
        others = torch.cat([scores[:s], scores[s + 1 :]])
        found.append(scores[s, rule(others)])
    return torch.stack(found).mean()


CHOICE_MISTAKES = {
    "each draw chose for itself: that is peeking.": lambda x: x.amax(1).mean(),
    "the draw that tells the score had a say in the choice; leave it out.": lambda x: x[:, x.mean(0).argmax()].mean(),
    "the worst was chosen.": lambda x: _blind(x, lambda others: others.mean(0).argmin()),
    "you noted what the choice scored on the draws that made it; note the one that was left out.": lambda x: (
        torch.stack([torch.cat([x[:s], x[s + 1 :]]).mean(0).max() for s in range(len(x))]).mean()
    ),
    "draws and variants are exchanged: draws come first.": lambda x: _blind(
        x.T, lambda others: others.mean(0).argmax()
    ),
    "the best single score of the other draws chose; it is their mean.": lambda x: _blind(
        x, lambda others: others.amax(0).argmax()
    ),
    "that is the mean of all variants; nothing was chosen.": lambda x: x.mean(),
}


def chosen_blind(function: Callable[[Tensor], float]) -> None:
    """Exercise 15.4: scores (draws, variants) -> mean score of variants that are chosen on the other draws."""
    right = _blind(SCORES, lambda others: others.mean(0).argmax())
    praise = "right. The draw that tells had no say."
    _judge_number("15.4", function, (SCORES.clone(),), float(right), CHOICE_MISTAKES, praise)
