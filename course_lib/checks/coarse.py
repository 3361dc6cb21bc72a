"""Part IV: the checks of chapter 17. Each calls the reader's function on a few masks or numbers; names the mistake."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from course_lib import strokes
from course_lib.checks import CheckFailed, answer, judge
from course_lib.checks.classes import _numbers, _tensor
from course_lib.networks import seeded


def _objects() -> Tensor:
    """Three masks of 6 x 9: two dots in opposite corners of their box, a bar that touches the edge, and nothing."""
    masks = torch.zeros(3, 6, 9, dtype=torch.bool)
    masks[0, 1, 6] = masks[0, 4, 2] = masks[0, 4, 3] = True
    masks[1, 3, 5:] = True
    return masks


OBJECTS = _objects()
Masks = Callable[[Tensor], Tensor]


def _box(masks: Tensor) -> Tensor:
    return strokes.box()(masks, seeded(0))


def _spans(x: Tensor) -> Tensor:
    """(N, n) bool: from the first that is true to the last."""
    return (x.long().cumsum(1) > 0) & (x.flip(1).long().cumsum(1).flip(1) > 0)


BOX_MISTAKES = {
    "rows and columns without a pixel lie inside the box, too: fill up from the first to the last.": (
        lambda m: m.any(2)[:, :, None] & m.any(1)[:, None]
    ),
    "a pixel is in the box if its row *and* its column are; you took *or*.": (
        lambda m: _spans(m.any(2))[:, :, None] | _spans(m.any(1))[:, None]
    ),
    "one box was put around all pictures together; each has its own.": (
        lambda m: _box(m.any(0)[None]).expand(len(m), -1, -1)
    ),
    "the box of an empty mask is empty; yours is the whole picture.": lambda m: (
        _box(m) | ~m.any(2).any(1)[:, None, None]
    ),
    "the last row and column are missing: a slice ends before its end.": (
        lambda m: _box(m) & _box(m).roll(-1, 1) & _box(m).roll(-1, 2)
    ),
    "these are the masks themselves.": lambda m: m.clone(),
    "that is what lies outside of the box.": lambda m: ~_box(m),
}


def boxes(function: Masks) -> None:
    """Exercise 17.1: masks (N, H, W) bool -> the upright rectangle around each, (N, H, W) bool."""
    given = _tensor("17.1", answer("17.1", function, OBJECTS.clone()))
    mistakes = {sentence: wrong(OBJECTS).double() for sentence, wrong in BOX_MISTAKES.items()}
    judge("17.1", given, _box(OBJECTS).double(), mistakes, "right. Two corners say all that a box says.")


DISCS = ((3.0, 1.0), (10.0, 2.0), (1.5, 2.0))  # radius, grow

DISC_MISTAKES = {
    "that is the share that is right; wanted is the share that is wrong.": lambda r, g: (r / (r + g)) ** 2,
    "divide by the area that was drawn, not by that of the disc.": lambda r, g: ((r + g) / r) ** 2 - 1,
    "areas grow with the square of the radius; you compared radii.": lambda r, g: g / (r + g),
    "that is the rim for a short step only, 2 g / r; take the two discs themselves.": lambda r, g: 2 * g / r,
    "this is an area in pixels; divide by what was drawn.": lambda r, g: torch.pi * ((r + g) ** 2 - r**2),
    "the disc became wider on one side only: its radius grows by g, its diameter by 2 g.": (
        lambda r, g: 1 - (r / (r + g / 2)) ** 2
    ),
    "these are per cent; wanted is a share, 0 to 1.": lambda r, g: 100 * (1 - (r / (r + g)) ** 2),
}


def wrong_share(function: Callable[[float, float], float]) -> None:
    """Exercise 17.2: a disc of this radius, drawn with a radius larger by grow -> the share of wrong pixels."""
    given = _numbers("17.2", [answer("17.2", function, *case) for case in DISCS])
    all_of = lambda f: torch.tensor([float(f(*case)) for case in DISCS]).double()  # noqa: E731
    mistakes = {sentence: all_of(wrong) for sentence, wrong in DISC_MISTAKES.items()}
    praise = "right. The smaller the thing, the more of what is drawn is rim."
    judge("17.2", given, all_of(_disc), mistakes, praise)


def _disc(radius: float, grow: float) -> float:
    return 1 - (radius / (radius + grow)) ** 2


WORDS = tuple((ratio, 0.8, 0.1, hands) for ratio in (1.0, 0.3) for hands in ("positive", "negative", "both"))
Words = Callable[[float, float, float, str], Tensor]


def _words(ratio: float, recall: float, spill: float, hands: str) -> Tensor:
    positive = torch.tensor([ratio * spill, ratio * recall]).double()
    negative = torch.tensor([1 - ratio * recall, 1 - ratio * spill]).double()
    return {"positive": positive, "negative": negative, "both": (positive + negative) / 2}[hands]


def _wrong_words(change: Callable[[Tensor, float, float, float, str], Tensor]) -> Words:
    return lambda ratio, recall, spill, hands: change(
        _words(ratio, recall, spill, hands), ratio, recall, spill, hands
    ).double()


def _unfilled(right: Tensor, r: float, c: float, s: float, hands: str) -> Tensor:
    """The negative hand's silence is taken for background, as the positive hand's."""
    negative = torch.zeros(2)
    return {"positive": right, "negative": negative, "both": (_words(r, c, s, "positive") + negative) / 2}[hands]


def _same_region(right: Tensor, r: float, c: float, s: float, hands: str) -> Tensor:
    """The negative hand with recall and spill of the object in place of the background."""
    negative = torch.tensor([1 - r * s, 1 - r * c]).double()
    return {"positive": right, "negative": negative, "both": (_words(r, c, s, "positive") + negative) / 2}[hands]


WORD_MISTAKES = {
    "the ratio does not come in: of all that the hand marks, only this share stays.": _wrong_words(
        lambda right, r, c, s, hands: _words(1.0, c, s, hands)
    ),
    "background comes first: (a background pixel, a foreground pixel).": _wrong_words(
        lambda right, r, c, s, hands: right.flip(0)
    ),
    "these are the shares of words that say background.": _wrong_words(lambda right, r, c, s, hands: 1 - right),
    "silence of the negative hand means foreground: it did not say that this is not it.": _wrong_words(_unfilled),
    "the negative hand's own region is the background: there it marks `recall`, on the object `spill`.": _wrong_words(
        _same_region
    ),
    "with both hands a pixel has two words; you added them up, the share is their mean.": _wrong_words(
        lambda right, r, c, s, hands: 2 * right if hands == "both" else right
    ),
    "spill is missing: a hand also marks some of what it may not.": _wrong_words(
        lambda right, r, c, s, hands: _words(r, c, 0.0, hands)
    ),
}


def foreground_words(function: Words) -> None:
    """Exercise 17.3: ratio, recall, spill, hands -> share of words "foreground" (of background, of foreground)."""
    given = [_tensor("17.3", answer("17.3", function, *case)) for case in WORDS]
    for one in given:
        if one.shape != (2,):
            raise CheckFailed(
                f"Exercise 17.3: wanted two numbers, (background, foreground), got shape {tuple(one.shape)}."
            )
    all_of = lambda f: torch.stack([f(*case) for case in WORDS])  # noqa: E731
    mistakes = {sentence: all_of(wrong) for sentence, wrong in WORD_MISTAKES.items()}
    praise = "right. With one hand the ratio decides the majority, with both only by how much."
    judge("17.3", torch.stack([one.double() for one in given]), all_of(_words), mistakes, praise)


# Five draws: masks, and strokes of four ratios. Draws differ far more than ratios do; .3 is within three points on the
# mean and not surely, .5 surely, .8 not (two draws failed), 1 surely.
RATIOS = np.array([0.3, 0.5, 0.8, 1.0])
MASKS = np.array([0.90, 0.84, 0.95, 0.88, 0.92])
LOSSES = np.array([
    [0.005, 0.015, 0.000, 0.012],
    [0.060, 0.020, 0.080, 0.010],
    [0.000, 0.018, 0.005, 0.014],
    [0.045, 0.022, 0.060, 0.008],
    [0.010, 0.016, 0.004, 0.011],
])  # fmt: skip
STROKES = MASKS[:, None] - LOSSES
EASY = MASKS[:, None] - LOSSES[:, [1, 3, 1, 3]], 0.03  # every ratio will do
HARD = MASKS[:, None] - LOSSES - 0.1, 0.03  # none
Coarsest = Callable[[np.ndarray, np.ndarray, np.ndarray, float], float]


def _highest(strokes_: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Upper ends of the paired intervals of what is lost, one a ratio."""
    d = masks[:, None] - strokes_
    return d.mean(0) + _half(d)


def _half(d: np.ndarray, ddof: int = 1) -> np.ndarray:
    return stats.t.ppf(0.975, len(d) - 1) * d.std(0, ddof=ddof) / np.sqrt(len(d))


def _smallest(ratios: np.ndarray, fine: np.ndarray, *, upwards: bool = True) -> float:
    """The smallest ratio that is fine, and all above it, too."""
    if upwards:
        fine = np.flip(np.cumprod(np.flip(fine))) > 0
    return float(ratios[fine].min()) if fine.any() else float("nan")


def _coarsest(ratios: np.ndarray, strokes_: np.ndarray, masks: np.ndarray, allowed: float) -> float:
    return _smallest(ratios, _highest(strokes_, masks) < allowed)


def _unpaired(strokes_: np.ndarray, masks: np.ndarray) -> np.ndarray:
    ends = [stats.ttest_ind(masks, x, equal_var=False).confidence_interval().high for x in strokes_.T]
    return np.array(ends)


COARSEST_MISTAKES = {
    "you compared means; the whole interval of what is lost must lie below `allowed`.": (
        lambda x, s, m, a: _smallest(x, (m[:, None] - s).mean(0) < a)
    ),
    "that is the smallest ratio that passes, though a larger one fails; all above it must pass, too.": (
        lambda x, s, m, a: _smallest(x, _highest(s, m) < a, upwards=False)
    ),
    "the interval was not paired: take differences draw by draw.": lambda x, s, m, a: _smallest(x, _unpaired(s, m) < a),
    "that is the largest ratio that will do; the smallest was asked for.": (
        lambda x, s, m, a: float(x.max()) if (_highest(s, m) < a)[-1] else float("nan")
    ),
    "where no ratio will do, return nan.": lambda x, s, m, a: (
        found if (found := _coarsest(x, s, m, a)) == found else float(x.max())
    ),
    "wanted the ratio itself, you returned its place in the list.": lambda x, s, m, a: (
        float(np.flatnonzero(x == found)[0]) if (found := _coarsest(x, s, m, a)) == found else found
    ),
}


def coarsest(function: Coarsest) -> None:
    """Exercise 17.4: ratios (X,), strokes (draws, X), masks (draws,), allowed -> the smallest that will do."""
    cases = [(RATIOS, STROKES, MASKS, 0.03), (RATIOS, EASY[0], MASKS, EASY[1]), (RATIOS, HARD[0], MASKS, HARD[1])]
    copied = lambda case: tuple(x.copy() if isinstance(x, np.ndarray) else x for x in case)  # noqa: E731
    given = _numbers("17.4", [answer("17.4", function, *copied(case)) for case in cases])
    plain = lambda numbers: torch.nan_to_num(numbers, nan=-1.0)  # noqa: E731  (nan is not equal to itself)
    all_of = lambda f: plain(torch.tensor([float(f(*case)) for case in cases]).double())  # noqa: E731
    mistakes = {sentence: all_of(wrong) for sentence, wrong in COARSEST_MISTAKES.items()}
    praise = "right. How coarse you can go depends on what you can bear to lose, and on how surely you know it."
    judge("17.4", plain(given), all_of(_coarsest), mistakes, praise)
