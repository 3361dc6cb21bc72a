"""Part V: the checks of chapter 20. Each calls the reader's function on a small table and names the likely mistake."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.annotations import MISSING
from course_lib.checks import CheckFailed, answer, judge
from course_lib.checks.classes import _judge_number, _tensor

# ---- 20.1 ------------------------------------------------------------------------------------------------------------

WORTH = torch.tensor([[0.40, 0.44, 0.05], [0.38, 0.42, 0.26], [0.60, 0.10, 0.12], [0.35, 0.25, 0.16]])
LABELS = torch.full((4, 3), MISSING)
LABELS[1, 2], LABELS[2, 0] = 1, 0
PRICE = torch.tensor([5.0, 3.0, 1.0])


def _best(table: Tensor, labels: Tensor | None = None) -> Tensor:
    """(image, annotator) of the largest number, of pairs without a label where labels are given."""
    left = table if labels is None else table.masked_fill(labels != MISSING, -torch.inf)
    return torch.tensor(divmod(int(left.argmax()), table.shape[1]))


PRICE_MISTAKES = {
    "that pair was asked already: who is asked again gives the same answer.": lambda w, y, c: _best(w / c),
    "the price did not come in: what counts is information for a unit of money.": lambda w, y, c: _best(w, y),
    "you multiplied by the price; divide.": lambda w, y, c: _best(w * c, y),
    "annotator and image are exchanged: return (image, annotator).": lambda w, y, c: _best(w / c, y).flip(0),
    "that is the pair worth least.": lambda w, y, c: _best(-w / c, y),
    "that is a place in the flattened table; return (image, annotator).": lambda w, y, c: (
        (w / c).masked_fill(y != MISSING, 0).argmax()
    ),
}


def per_price(function: Callable[[Tensor, Tensor, Tensor], tuple[int, int]]) -> None:
    """Exercise 20.1: worth (N, R), labels (N, R), price (R,) -> (image, annotator)."""
    given = _tensor("20.1", answer("20.1", function, WORTH.clone(), LABELS.clone(), PRICE.clone()))
    mistakes = {sentence: wrong(WORTH, LABELS, PRICE) for sentence, wrong in PRICE_MISTAKES.items()}
    judge("20.1", given, _best(WORTH / PRICE, LABELS), mistakes, "right. A cheap word may be the better bargain.")


# ---- 20.2 ------------------------------------------------------------------------------------------------------------

YEARS = torch.tensor([0.0, 3.0, 12.0])
TOP, SPEED = 0.95, 5.0


def _skill(years: Tensor, L: int) -> Tensor:
    return 1 / L + (TOP - 1 / L) * (1 - (-years / SPEED).exp())


def _matrices(right: Tensor, wrong: Tensor, L: int) -> Tensor:
    """(R,) on the diagonal, (R,) beside it -> (R, L, L)."""
    eye = torch.eye(L)
    return right[:, None, None] * eye + wrong[:, None, None] * (1 - eye)


def _prior(s: Tensor, L: int, weight: float) -> Tensor:
    return _matrices(weight * s, weight * (1 - s) / (L - 1), L)


YEARS_MISTAKES = {
    "columns sum to 1: multiply by `weight`, these are counts.": lambda y, L, w: _prior(_skill(y, L), L, 1.0),
    "mistakes are spread over the L - 1 wrong classes; you divided by L.": lambda y, L, w: _matrices(
        w * _skill(y, L), w * (1 - _skill(y, L)) / L, L
    ),
    "each wrong class got all the mistakes; they share them.": lambda y, L, w: _matrices(
        w * _skill(y, L), w * (1 - _skill(y, L)), L
    ),
    "only the diagonal is weighed: mistakes are counts, too.": lambda y, L, w: _matrices(
        w * _skill(y, L), (1 - _skill(y, L)) / (L - 1), L
    ),
    "without experience one is right in 1 / L, not never: start the curve there.": lambda y, L, w: _prior(
        TOP * (1 - (-y / SPEED).exp()), L, w
    ),
    "skill falls with the years: it is 1 - exp(-years / 5).": lambda y, L, w: _prior(
        1 / L + (TOP - 1 / L) * (-y / SPEED).exp(), L, w
    ),
    "the curve ends at 1 / L + .95; the second part is (.95 - 1 / L).": lambda y, L, w: _prior(
        1 / L + TOP * (1 - (-y / SPEED).exp()), L, w
    ),
    "you let the weight grow with the years; here they move the skill only.": lambda y, L, w: (
        y[:, None, None] * _prior(_skill(y, L), L, w)
    ),
}


def years_prior(function: Callable[[Tensor, int, float], Tensor]) -> None:
    """Exercise 20.2: years (R,), L, weight -> pseudo-counts (R, L, L)."""
    given = _tensor("20.2", answer("20.2", function, YEARS.clone(), 4, 6.0))
    right = _prior(_skill(YEARS, 4), 4, 6.0)
    mistakes = {sentence: wrong(YEARS, 4, 6.0) for sentence, wrong in YEARS_MISTAKES.items()}
    judge("20.2", given, right, mistakes, "right. Years are a first guess, which labels overrule.")


# ---- 20.3 ------------------------------------------------------------------------------------------------------------

TABLE = torch.tensor([
    [0.90, 0.72, 0.20], [0.85, 0.60, 0.58], [0.80, 0.30, 0.25], [0.75, 0.70, 0.10], [0.15, 0.05, 0.95]
])  # fmt: skip
ASKED = torch.full((5, 3), MISSING)
ASKED[1, 0] = 2
ASK, MOST = 4, 2


def _greedy(table: Tensor, labels: Tensor, n: int, most: int, *, images: int = 1) -> Tensor:
    """The n best pairs, one after the other: at most `most` an annotator and `images` an image."""
    pairs: list[tuple[int, int]] = []
    for at in table.flatten().argsort(descending=True).tolist():
        image, who = divmod(at, table.shape[1])
        free = labels[image, who] == MISSING and sum(w == who for _, w in pairs) < most
        if free and sum(i == image for i, _ in pairs) < images and len(pairs) < n:
            pairs.append((image, who))
    return torch.tensor(pairs)


def _favourites(table: Tensor, labels: Tensor, n: int, most: int) -> Tensor:
    """Each image's best annotator only: where that one is busy, the image waits."""
    left = table.masked_fill(labels != MISSING, -torch.inf)
    best = left == left.max(1, keepdim=True).values
    return _greedy(table, torch.where(best, MISSING, 0), n, most)


def _image_by_image(table: Tensor, labels: Tensor, n: int, most: int) -> Tensor:
    """Images in their order, each with the best annotator who is still free."""
    pairs: list[tuple[int, int]] = []
    for image in range(min(n, len(table))):
        free = (labels[image] == MISSING) & torch.tensor([sum(w == r for _, w in pairs) < most for r in range(3)])
        pairs.append((image, int(table[image].masked_fill(~free, -1).argmax())))
    return torch.tensor(pairs)


LIMIT_MISTAKES = {
    "somebody was asked more than `most` times.": lambda t, y, n, m: _greedy(t, y, n, n),
    "an image stands in the batch twice.": lambda t, y, n, m: _greedy(t, y, n, m, images=3),
    "a pair was asked that has a label already.": lambda t, y, n, m: _greedy(t, torch.full_like(y, MISSING), n, m),
    "an image whose best annotator is busy was dropped; its second best may still be worth the label.": _favourites,
    "you went through the images in their order; go through the *pairs*, best first.": _image_by_image,
    "these are the pairs worth least.": lambda t, y, n, m: _greedy(-t, y, n, m),
    "each pair is (image, annotator); yours are turned round.": lambda t, y, n, m: _greedy(t, y, n, m).flip(1),
}


def _sorted(pairs: Tensor) -> Tensor:
    """Rows in order of their first number, then of the second, so that any order of the pairs is right."""
    return torch.tensor(sorted(pairs.tolist()))


def with_limits(function: Callable[[Tensor, Tensor, int, int], Tensor]) -> None:
    """Exercise 20.3: worth (N, R), labels (N, R), n, most -> (n, 2) pairs (image, annotator), in any order."""
    given = _tensor("20.3", answer("20.3", function, TABLE.clone(), ASKED.clone(), ASK, MOST))
    if given.ndim != 2 or given.shape[1] != 2:
        raise CheckFailed(f"Exercise 20.3: wanted ({ASK}, 2), a row for each pair; got {tuple(given.shape)}.")
    mistakes = {sentence: _sorted(wrong(TABLE, ASKED, ASK, MOST)) for sentence, wrong in LIMIT_MISTAKES.items()}
    right = _sorted(_greedy(TABLE, ASKED, ASK, MOST))
    judge("20.3", _sorted(given), right, mistakes, "right. Experts are busy, and the plan goes on without them.")


# ---- 20.4 ------------------------------------------------------------------------------------------------------------

BUDGETS = torch.tensor([100.0, 250.0, 400.0, 550.0, 700.0])
CURVE = torch.tensor([0.50, 0.62, 0.71, 0.68, 0.80])
GOAL = 0.70


def _crossing(budgets: Tensor, curve: Tensor, goal: float, *, last: bool = False) -> tuple[int, float]:
    """The step that ends at or above the goal, and which part of it is walked by then."""
    up = [k for k in range(1, len(curve)) if curve[k] >= goal and (k == 1 or curve[k - 1] < goal)]
    k = up[-1 if last else 0]
    return k, float((goal - curve[k - 1]) / (curve[k] - curve[k - 1]))


def _needed(budgets: Tensor, curve: Tensor, goal: float, *, last: bool = False, turned: bool = False) -> float:
    k, part = _crossing(budgets, curve, goal, last=last)
    return float(budgets[k - 1] + (1 - part if turned else part) * (budgets[k] - budgets[k - 1]))


NEEDED_MISTAKES = {
    "that is the budget of the first point above the goal; interpolate between it and the one before.": (
        lambda b, c, g: float(b[_crossing(b, c, g)[0]])
    ),
    "that is the last budget below the goal; interpolate between it and the next.": (
        lambda b, c, g: float(b[_crossing(b, c, g)[0] - 1])
    ),
    "that is the *last* time the curve crosses the goal; the first one counts.": (
        lambda b, c, g: _needed(b, c, g, last=True)
    ),
    "the two ends of the step are exchanged.": lambda b, c, g: _needed(b, c, g, turned=True),
    "that is a number of rounds; return labels.": lambda b, c, g: sum(_crossing(b, c, g)) - 1,
    "that is where the straight line from the first to the last point crosses; use the step that does.": (
        lambda b, c, g: float(b[0] + (g - c[0]) / (c[-1] - c[0]) * (b[-1] - b[0]))
    ),
    "that is infinite: this curve does reach the goal.": lambda b, c, g: math.inf,
}


def labels_needed(function: Callable[[Tensor, Tensor, float], float]) -> None:
    """Exercise 20.4: budgets (T,), accuracies (T,), goal -> labels at which the goal is first reached."""
    case, right = (BUDGETS.clone(), CURVE.clone(), GOAL), _needed(BUDGETS, CURVE, GOAL)
    _judge_number("20.4", function, case, right, NEEDED_MISTAKES, "right. Read curves sideways: labels are money.")
