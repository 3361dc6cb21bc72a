"""Part V: the checks of chapter 21. Each calls the reader's function on a few numbers, and names the mistake."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from course_lib.checks import CheckFailed, answer

# low, high, min_diff of intervals; the last two are of claims that something costs little
CASES = (
    (0.06, 0.1, 0.05),
    (0.02, 0.08, 0.05),
    (-0.1, 0.3, 0.0),
    (-0.2, -0.1, 0.0),
    (-0.02, 0.03, -0.05),
    (-0.08, 0.4, -0.05),
)


def _verdict(low: float, high: float, min_diff: float) -> str:
    return "holds" if low > min_diff else "weaker" if low > 0 else "not reproduced"


VERDICT_MISTAKES: dict[str, Callable[[float, float, float], str]] = {
    "the whole interval must lie above min_diff: its lower end decides.": lambda low, high, min_diff: (
        "holds" if high > min_diff else "weaker" if high > 0 else "not reproduced"
    ),
    "the middle of the interval does not decide; its lower end does.": lambda low, high, min_diff: _verdict(
        (low + high) / 2, high, min_diff
    ),
    "min_diff is not looked at: above 0 alone may be `weaker`.": lambda low, high, min_diff: (
        "holds" if low > 0 else "not reproduced"
    ),
    "compare with min_diff first: what costs little may lie below 0.": lambda low, high, min_diff: (
        "not reproduced" if low <= 0 else "holds" if low > min_diff else "weaker"
    ),
    "an interval that holds 0 is `not reproduced`, not `weaker`.": lambda low, high, min_diff: (
        "holds" if low > min_diff else "weaker" if high > 0 else "not reproduced"
    ),
}


def verdict(function: Callable[[float, float, float], str]) -> None:
    """Exercise 21.1: low, high, min_diff -> "holds", "weaker" or "not reproduced"."""
    given = [answer("21.1", function, *case) for case in CASES]
    right = [_verdict(*case) for case in CASES]
    if not all(isinstance(word, str) for word in given):
        raise CheckFailed("Exercise 21.1: return one of the words 'holds', 'weaker', 'not reproduced'.")
    if given == right:
        print("✓ Exercise 21.1: right. The lower end decides, against min_diff first and then against 0.")
        return
    for sentence, wrong in VERDICT_MISTAKES.items():
        if given == [wrong(*case) for case in CASES]:
            raise CheckFailed(f"Exercise 21.1: {sentence}")
    k = next(k for k in range(len(CASES)) if given[k] != right[k])
    low, high, min_diff = CASES[k]
    raise CheckFailed(
        f"Exercise 21.1: the interval [{low:+.2f}, {high:+.2f}] with min_diff {min_diff:+.2f} is {right[k]!r}; "
        f"got {given[k]!r}."
    )


def _row(method: str, draw: int, seed: int, accuracy: float) -> dict:
    return {"method": method, "draw": draw, "seed": seed, "metrics": {"accuracy": accuracy, "loss": 1 - accuracy / 2}}


# Two methods, three draws, two seeds each; in no order, as a cluster would hand them back
ROWS = [
    _row("b", 2, 0, 0.5), _row("a", 0, 1, 0.95), _row("a", 2, 0, 0.55), _row("b", 0, 0, 0.8), _row("a", 1, 0, 0.7),
    _row("c", 0, 0, 0.1), _row("b", 1, 1, 0.71), _row("a", 2, 1, 0.61), _row("b", 2, 1, 0.54), _row("a", 0, 0, 0.85),
    _row("b", 0, 1, 0.82), _row("b", 1, 0, 0.69), _row("a", 1, 1, 0.74), _row("c", 1, 0, 0.2),
]  # fmt: skip


def _each(rows: Sequence[dict], method: str, metric: str, key: str) -> np.ndarray:
    mine = [row for row in rows if row["method"] == method]
    labels = sorted({row[key] for row in mine})
    return np.array([np.mean([row["metrics"][metric] for row in mine if row[key] == label]) for label in labels])


def _runs(rows: Sequence[dict], method: str, metric: str) -> np.ndarray:
    mine = sorted((row for row in rows if row["method"] == method), key=lambda row: (row["draw"], row["seed"]))
    return np.array([row["metrics"][metric] for row in mine])


def _unsorted(rows: Sequence[dict], method: str, metric: str) -> np.ndarray:
    mine = [row for row in rows if row["method"] == method]
    draws = dict.fromkeys(row["draw"] for row in mine)
    return np.array([np.mean([row["metrics"][metric] for row in mine if row["draw"] == draw]) for draw in draws])


DIFFERENCE_MISTAKES: dict[str, Callable] = {
    "all runs were taken for draws; average the seeds of each draw first.": lambda rows, a, b, metric: (
        _runs(rows, a, metric) - _runs(rows, b, metric)
    ),
    "rows come in any order: sort by draw, or no pair is a pair.": lambda rows, a, b, metric: (
        _unsorted(rows, a, metric) - _unsorted(rows, b, metric)
    ),
    "that is one mean for each seed; draws are what counts.": lambda rows, a, b, metric: (
        _each(rows, a, metric, "seed") - _each(rows, b, metric, "seed")
    ),
    "only the first seed was taken; average all seeds of a draw.": lambda rows, a, b, metric: (
        _each([r for r in rows if r["seed"] == 0], a, metric, "draw")
        - _each([r for r in rows if r["seed"] == 0], b, metric, "draw")
    ),
    "the sign is turned: a - b is wanted.": lambda rows, a, b, metric: (
        _each(rows, b, metric, "draw") - _each(rows, a, metric, "draw")
    ),
    "the metric is fixed in your code; take the one that is asked for.": lambda rows, a, b, metric: (
        _each(rows, a, "accuracy", "draw") - _each(rows, b, "accuracy", "draw")
    ),
}


def differences(function: Callable) -> None:
    """Exercise 21.2: rows, a, b, metric -> (draws,), a - b of each draw, seeds averaged."""
    asked = ("a", "b", "loss")
    given = answer("21.2", function, [dict(row) for row in ROWS], *asked)
    try:
        given = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        raise CheckFailed("Exercise 21.2: return numbers, one for each draw.") from None
    right = _each(ROWS, "a", "loss", "draw") - _each(ROWS, "b", "loss", "draw")
    if given.shape == right.shape and np.allclose(given, right):
        print("✓ Exercise 21.2: right. One difference a draw, from the same draw, whatever the order of the rows.")
        return
    for sentence, wrong in DIFFERENCE_MISTAKES.items():
        found = wrong(ROWS, *asked)
        if given.shape == found.shape and np.allclose(given, found):
            raise CheckFailed(f"Exercise 21.2: {sentence}")
    if given.shape != right.shape:
        raise CheckFailed(f"Exercise 21.2: wanted one number for each of 3 draws, shape (3,), got shape {given.shape}.")
    raise CheckFailed(f"Exercise 21.2: right shape, wrong numbers: wanted {right.round(3)}, got {given.round(3)}.")
