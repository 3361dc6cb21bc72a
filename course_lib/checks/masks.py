"""Part II: the checks of chapter 7. Each calls the reader's function on small masks and names the likely mistake."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, pad

from course_lib import fusion, metrics, scenes
from course_lib.checks import CheckFailed, answer, judge
from course_lib.checks.classes import _judge_number, _tensor
from course_lib.confusion import count_matrices
from course_lib.data import mnist5k, split
from course_lib.mask_annotators import MaskAnnotator, blank, draw_masks, faithful, over, under
from course_lib.networks import seeded

# Four pictures of 3 x 4 pixels: partly found, found, missed, and nothing to find.
TRUTH, DRAWN = torch.zeros(2, 4, 3, 4, dtype=torch.long)
TRUTH[0, :2, :3], DRAWN[0, 1:, 1:] = 1, 1
TRUTH[1, 0, :2], DRAWN[1, 0, :2] = 1, 1
TRUTH[2, 2, 3] = 1

DICE_MISTAKES = {
    "0 / 0 of the picture in which both are empty makes the mean nan; that picture counts 1.": (
        lambda P, T: (2 * (P * T).sum((1, 2)) / (P.sum((1, 2)) + T.sum((1, 2)))).mean()
    ),
    "the picture in which both are empty counts 0 in yours; it counts 1.": (
        lambda P, T: metrics.dice(P, T, empty=0.0).foreground
    ),
    "the picture in which both are empty was left out; it counts 1.": lambda P, T: metrics.dice(P, T).foreground,
    "all pixels were pooled; wanted is a Dice for each picture, and their mean.": (
        lambda P, T: metrics.dice(P, T, pooled=True).foreground
    ),
    "the background is averaged in; wanted is the foreground alone.": lambda P, T: metrics.dice(P, T, empty=1.0).macro,
    "that is the intersection over the union; Dice divides twice the overlap by the sum of the areas.": (
        lambda P, T: metrics.iou(P, T, empty=1.0).foreground
    ),
    "the factor 2 is missing: two equal masks must get 1.": (
        lambda P, T: torch.where(
            P.sum((1, 2)) + T.sum((1, 2)) > 0, (P * T).sum((1, 2)) / (P.sum((1, 2)) + T.sum((1, 2))).clamp(min=1), 1.0
        ).mean()
    ),
}


def mean_dice(function: Callable[[Tensor, Tensor], float]) -> None:
    """Exercise 7.1: predicted and truth (N, H, W) of 0 and 1 -> mean foreground Dice, empty against empty counts 1."""
    given = answer("7.1", function, DRAWN.clone(), TRUTH.clone())
    if isinstance(given, float | Tensor) and torch.as_tensor(given).numel() == 1 and torch.as_tensor(given).isnan():
        raise CheckFailed(f"Exercise 7.1: {next(iter(DICE_MISTAKES))}")
    right = torch.tensor(metrics.dice(DRAWN, TRUTH, empty=1.0).foreground)
    praise = "right. Each picture counts alike, and silence counts where there is nothing to say."
    _judge_number("7.1", lambda *_: given, (DRAWN, TRUTH), right, DICE_MISTAKES, praise)


# Three annotators, three classes, five patterns; no two columns or classes alike.
TABLE = torch.tensor([[0, 0, 0], [0, 1, 0], [2, 1, 1], [2, 2, 2], [1, 0, 2]])
TIMES = torch.tensor([40, 3, 7, 2, 5])
BELIEF = torch.tensor(
    [[0.9, 0.06, 0.04], [0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.05, 0.15, 0.8], [0.2, 0.5, 0.3]]
).double()

PATTERN_MISTAKES = {
    "every pattern counted once; each stands for n pixels.": lambda table, n, q: count_matrices(table, q),
    "it is transposed: first what is said, then the truth; columns must sum to 1.": (
        lambda table, n, q: count_matrices(table, n[:, None] * q).transpose(1, 2)
    ),
    "rows sum to 1 here: that is p(truth | said). Divide each column by its sum, over what is said.": (
        lambda table, n, q: _strokes(table, n, q) / _strokes(table, n, q).sum(2, keepdim=True)
    ),
    "these are counts; divide each column by its sum.": lambda table, n, q: _strokes(table, n, q),
    "you divided by the number of pixels; divide each column by its own sum.": (
        lambda table, n, q: _strokes(table, n, q) / n.sum()
    ),
    "n was squared: it counts once, in the weight.": lambda table, n, q: count_matrices(table, n[:, None] ** 2 * q),
    "you took the most probable class for the truth; count every class, by its probability.": (
        lambda table, n, q: count_matrices(
            table, n[:, None] * torch.nn.functional.one_hot(q.argmax(1), q.shape[1]).to(q)
        )
    ),
}


def _strokes(table: Tensor, n: Tensor, q: Tensor) -> Tensor:
    """Soft counts [r, said, truth]: (R, L, L)."""
    said = torch.nn.functional.one_hot(table, q.shape[1]).to(q)  # (U, R, L)
    return torch.einsum("uri,uj->rij", said, n[:, None] * q)


def pattern_matrices(function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """Exercise 7.2: patterns (U, R), how many pixels have each (U,), beliefs (U, L) -> matrices (R, L, L)."""
    given = _tensor("7.2", answer("7.2", function, TABLE.clone(), TIMES.clone(), BELIEF.clone()))
    right = count_matrices(TABLE, TIMES[:, None] * BELIEF)
    mistakes = {sentence: wrong(TABLE, TIMES, BELIEF) for sentence, wrong in PATTERN_MISTAKES.items()}
    judge("7.2", given, right, mistakes, "right. Five rows did the work of 57 pixels.")


def _strokes_of(H: int, W: int) -> Tensor:
    """A thick bar with a thin tail, a thick corner at the edge, a lone square, a stroke two pixels wide."""
    truth = torch.zeros(2, H, W, dtype=torch.long)
    truth[0, 2:6, 2:8] = 1
    truth[0, 3, 8:12] = 1
    truth[0, 9:, 9:] = 1  # at the edge: 3 x 3
    truth[1, 1:4, 1:4] = 1
    truth[1, 5:7, 1:11] = 1
    truth[1, 9:12, 0:2] = 1  # two columns wide, and at the edge: a square may reach over it
    truth[1, 2, 3] = truth[1, 1, 5] = 1
    return truth


STROKES = _strokes_of(12, 12)
_grown = lambda x, side=3: max_pool2d(x.float(), side, 1, side // 2)  # noqa: E731
_shrunk = lambda x, side=3: -max_pool2d(-x.float(), side, 1, side // 2)  # noqa: E731

THIN_MISTAKES = {
    "only the middles of the squares are left; now draw the squares round them.": lambda T: _shrunk(T).long(),
    "you grew first and shrank then: that closes gaps. Shrink first.": lambda T: _shrunk(_grown(T)).long(),
    "that is the strokes which should vanish, not what should stay.": lambda T: T - _grown(_shrunk(T)).long(),
    "your squares are 5 x 5; wanted are 3 x 3.": lambda T: _grown(_shrunk(T, 5), 5).long(),
    "what lies outside was taken for background; a square may reach over the edge.": (
        lambda T: _grown(_shrunk(pad(T, (1,) * 4)))[:, 1:-1, 1:-1].long()
    ),
    "you grew more than you shrank: no pixel outside of the truth may be marked.": lambda T: _grown(
        _shrunk(T), 5
    ).long(),
    "nothing was removed: strokes of less than three pixels must vanish.": lambda T: T.clone(),
}


def thick_only(function: Callable[[Tensor], Tensor]) -> None:
    """Exercise 7.3: truth (N, H, W) of 0 and 1 -> what is left where a square of 3 x 3 fits."""
    given = _tensor("7.3", answer("7.3", function, STROKES.clone()))
    mistakes = {sentence: wrong(STROKES) for sentence, wrong in THIN_MISTAKES.items()}
    judge("7.3", given, _grown(_shrunk(STROKES)).long(), mistakes, "right. Thick strokes stay, thin ones are not seen.")


PANEL, LEAST_DICE, LEAST_GAP, SHOWN = 5, 0.3, 0.1, 40
Panels = Callable[[], tuple[Sequence[MaskAnnotator], Sequence[MaskAnnotator]]]


def _missing() -> list[MaskAnnotator]:
    return [faithful(0.3), faithful(0.3), under(), under(), under()]


def _adding() -> list[MaskAnnotator]:
    return [faithful(), faithful(0.3), under(), over(2, 2), over(2, 2)]


PANEL_MISTAKES = {
    "return two lists, of five annotators each: `faithful()`, `over(1, 2)`, and so on.": lambda: _missing(),
    "the first panel's annotator 5 (blank) has a Dice of 0.00; the rule is at least 0.3.": (
        lambda: (_missing()[:4] + [blank()], _adding())
    ),
    "the panels are in the wrong order: first the one on which STAPLE wins.": lambda: (_adding(), _missing()),
    "on the first panel STAPLE is ahead of the vote by +0.000; wanted is +0.1.": (
        lambda: ([faithful()] * PANEL, _adding())
    ),
    "on the second panel STAPLE is behind the vote by +0.000; wanted is +0.1.": (
        lambda: (_missing(), [faithful()] * PANEL)
    ),
}


def two_panels(design: Panels) -> None:
    """Exercise 7.4: design() -> two panels of five; STAPLE beats the vote on the first, loses on the second, by .1."""
    refuse = lambda why: CheckFailed(f"Exercise 7.4: {why}")  # noqa: E731
    panels = answer("7.4", design)
    if not (
        isinstance(panels, tuple | list)
        and len(panels) == 2
        and all(isinstance(p, tuple | list) and len(p) == PANEL for p in panels)
        and all(isinstance(a, MaskAnnotator) for p in panels for a in p)
    ):
        raise refuse("return two lists, of five annotators each: `faithful()`, `over(1, 2)`, and so on.")
    gaps = []
    for which, panel in zip(("first", "second"), panels, strict=True):
        own, gap = ahead(panel)
        for r, score in enumerate(own):
            if score < LEAST_DICE:
                who = f"annotator {r + 1} ({panel[r].name})"
                raise refuse(f"the {which} panel's {who} has a Dice of {score:.2f}; the rule is at least {LEAST_DICE}.")
        gaps.append(gap)
    first, second = gaps[0], 0.0 - gaps[1]
    if min(first, second) < LEAST_GAP and max(-first, -second) > LEAST_GAP and first < 0 and second < 0:
        raise refuse("the panels are in the wrong order: first the one on which STAPLE wins.")
    if first < LEAST_GAP:
        raise refuse(f"on the first panel STAPLE is ahead of the vote by {first:+.3f}; wanted is +{LEAST_GAP}.")
    if second < LEAST_GAP:
        raise refuse(f"on the second panel STAPLE is behind the vote by {second:+.3f}; wanted is +{LEAST_GAP}.")
    print(
        f"✓ Exercise 7.4: right. STAPLE ahead by {first:.3f}, behind by {second:.3f}; score: {min(first, second):.3f}."
    )


def ahead(panel: Sequence[MaskAnnotator]) -> tuple[list[float], float]:
    """Each annotator's Dice on fixed digits, and by how much STAPLE is ahead of the vote."""
    scene = scenes.digits(split(mnist5k()).validation.take(torch.arange(SHOWN)), generator=seeded(70))
    masks = draw_masks(scene.truth, scene.images, panel, n_classes=2, generator=seeded(71))
    score = lambda drawn: metrics.dice(drawn, scene.truth, empty=1.0).foreground  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        staple = fusion.staple(masks, 2).labels
    return [score(masks[:, r]) for r in range(len(panel))], score(staple) - score(fusion.majority(masks, 2))
