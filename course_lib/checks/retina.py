"""Part IV: the checks of chapter 18. Each calls the reader's function on a few pixels and names the likely mistake."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from course_lib.checks import answer, judge
from course_lib.checks.classes import _numbers, _tensor
from course_lib.networks import seeded

LENGTHS, WIDTHS = torch.tensor([50.0, 120.0, 30.0, 90.0]), torch.tensor([5.0, 2.0, 8.0, 1.0])


def _areas(lengths: Tensor, widths: Tensor, e: float, sides: int = 2) -> tuple[Tensor, Tensor]:
    """What both masks share of each vessel, and what either covers: (V,) twice."""
    drawn = (widths + sides * e).clamp(min=0)
    return lengths * torch.minimum(widths, drawn), lengths * torch.maximum(widths, drawn)


def _iou(lengths: Tensor, widths: Tensor, e: float, sides: int = 2) -> Tensor:
    both, one = _areas(lengths, widths, e, sides)
    return both.sum() / one.sum()


def _of_each(lengths: Tensor, widths: Tensor, e: float) -> Tensor:
    both, one = _areas(lengths, widths, e)
    return both / one


def _unclamped(lengths: Tensor, widths: Tensor, e: float) -> Tensor:
    drawn = widths + 2 * e
    return (lengths * torch.minimum(widths, drawn)).sum() / (lengths * torch.maximum(widths, drawn)).sum()


IOU_MISTAKES = {
    "that is one side only; a hand that is too wide is so on either side: 2 e.": lambda a, w, e: _iou(a, w, e, 1),
    "it is the right way round for one sign of e only: the smaller area over the larger.": (
        lambda a, w, e: (a * w).sum() / (a * (w + 2 * e).clamp(min=0)).sum()
    ),
    "that is the large area over the small one; IoU is at most 1.": lambda a, w, e: 1 / _iou(a, w, e),
    "that is the mean of the vessels' IoUs; add up areas first, and divide once.": (
        lambda a, w, e: _of_each(a, w, e).mean()
    ),
    "that is the mean of the vessels' IoUs, weighed by length; add up areas first, and divide once.": (
        lambda a, w, e: (a * _of_each(a, w, e)).sum() / a.sum()
    ),
    "lengths did not come in: a long vessel has more pixels.": lambda a, w, e: _iou(torch.ones_like(a), w, e),
    "a vessel has a negative width; what is drawn too narrow by more than its width is gone.": _unclamped,
    "that is Dice, 2 small / (small + large); IoU is small / large.": (
        lambda a, w, e: 2 * _iou(a, w, e) / (1 + _iou(a, w, e))
    ),
}


SLIPS = (0.5, -1.0)  # too wide, and so narrow that some vessels vanish


def tree_iou(function: Callable[[Tensor, Tensor, float], float]) -> None:
    """Exercise 18.1: lengths (V,), widths (V,), e -> the IoU of the tree drawn e pixels too wide on either side."""

    def both(f: Callable) -> Tensor:
        return _numbers("18.1", [answer("18.1", f, LENGTHS.clone(), WIDTHS.clone(), e) for e in SLIPS])

    mistakes = {sentence: both(wrong) for sentence, wrong in IOU_MISTAKES.items()}
    praise = "right. The small area over the large one, and a vessel without a width is gone."
    judge("18.1", both(function), both(_iou), mistakes, praise)


def _scene() -> tuple[Tensor, Tensor, Tensor]:
    """Skeletons, widths and what was found, of two pictures; the second has more pixels of the line."""
    generator = seeded(18)
    line = torch.rand(2, 9, 12, generator=generator) < torch.tensor([0.25, 0.6])[:, None, None]
    width = torch.randint(1, 7, line.shape, generator=generator).float()
    found = torch.rand(line.shape, generator=generator) < width / 8
    return line, width, found


LINE, WIDTH, FOUND = _scene()
EDGES = [1.0, 3.0, 4.0, 7.0]
Shares = Callable[[Tensor, Tensor, Tensor, Sequence[float]], Tensor]


def _parts(line: Tensor, width: Tensor, edges: Sequence[float]) -> list[Tensor]:
    return [line & (width >= a) & (width < b) for a, b in zip(edges, edges[1:], strict=False)]


def _recall(line: Tensor, width: Tensor, found: Tensor, edges: Sequence[float]) -> Tensor:
    return torch.stack([(part & found).sum() / part.sum() for part in _parts(line, width, edges)])


def _upper(line: Tensor, width: Tensor, found: Tensor, edges: Sequence[float]) -> Tensor:
    parts = [line & (width > a) & (width <= b) for a, b in zip(edges, edges[1:], strict=False)]
    return torch.stack([(part & found).sum() / part.sum() for part in parts])


def _of_pictures(line: Tensor, width: Tensor, found: Tensor, edges: Sequence[float]) -> Tensor:
    return torch.stack([_recall(*(x[n] for x in (line, width, found)), edges) for n in range(len(line))]).mean(0)


WIDTH_MISTAKES = {
    "all pixels of that width were counted; only those of the skeleton count.": (
        lambda s, w, f, e: _recall(torch.ones_like(s), w, f, e)
    ),
    "you divided by the whole skeleton; divide by its pixels of that width.": (
        lambda s, w, f, e: torch.stack([(part & f).sum() / s.sum() for part in _parts(s, w, e)])
    ),
    "you divided by what was found; recall divides by what is there.": (
        lambda s, w, f, e: torch.stack([(p & f).sum() / f[(w >= a) & (w < b)].sum()
                                        for p, a, b in zip(_parts(s, w, e), e, e[1:], strict=False)])
    ),
    "the wrong edge belongs to a bin: the lower one does, the upper one does not.": _upper,
    "that is a share of each picture, and then their mean; count over all pictures first.": _of_pictures,
    "these are counts; divide by the skeleton's pixels of that width.": (
        lambda s, w, f, e: torch.stack([(part & f).sum() for part in _parts(s, w, e)]).float()
    ),
    "that is the share that was missed.": lambda s, w, f, e: 1 - _recall(s, w, f, e),
    "the upper edges did not come in: each bin ends where the next begins.": (
        lambda s, w, f, e: torch.stack([(s & (w >= a) & f).sum() / (s & (w >= a)).sum() for a in e[:-1]])
    ),
}  # fmt: skip


def recall_by_width(function: Shares) -> None:
    """Exercise 18.2: line, width, found (N, H, W), K + 1 edges -> the share of each bin's skeleton that was found."""
    arguments = (LINE.clone(), WIDTH.clone(), FOUND.clone(), list(EDGES))
    given = _tensor("18.2", answer("18.2", function, *arguments))
    mistakes = {sentence: wrong(LINE, WIDTH, FOUND, EDGES) for sentence, wrong in WIDTH_MISTAKES.items()}
    judge("18.2", given, _recall(*arguments), mistakes, "right. Each width has its own number.")


CHILD = torch.tensor([7, 3, 3, 12, 7, 22, 12, 22, 31, 31])  # eyes are in no order, and children have gaps
EYE = torch.tensor([0, 0, 1, 2, 2, 3, 4, 5, 6, 7, 7, 8, 9, 9, 4, 1])
FOLDS, K = 3, 1
Split = Callable[[Tensor, Tensor, int, int], Tensor]


def _rank(child: Tensor) -> Tensor:
    return child.unique(return_inverse=True)[1]


def _by_appearance(child: Tensor) -> Tensor:
    seen = list(dict.fromkeys(child.tolist()))
    return torch.tensor([seen.index(c) for c in child.tolist()])


CHILD_MISTAKES = {
    "eyes were dealt out, so a child's two eyes may lie on either side; deal out children.": (
        lambda c, e, folds, k: e % folds == k
    ),
    "patches were dealt out, so one eye lies on both sides; deal out children.": (
        lambda c, e, folds, k: torch.arange(len(e)) % folds == k
    ),
    "the child's number was dealt out, not its place among the children: numbers have gaps.": (
        lambda c, e, folds, k: c[e] % folds == k
    ),
    "children were dealt out in the order in which their eyes come; the order is that of their numbers.": (
        lambda c, e, folds, k: _by_appearance(c)[e] % folds == k
    ),
    "that is the training set: True is for testing.": lambda c, e, folds, k: _rank(c)[e] % folds != k,
    "that is an answer for each eye; wanted is one for each patch.": lambda c, e, folds, k: _rank(c) % folds == k,
    "that is one child, not a fold of children.": lambda c, e, folds, k: _rank(c)[e] == k,
    "these are the numbers of the folds; say True where it is fold k.": lambda c, e, folds, k: _rank(c)[e] % folds,
    "neighbouring children went to one fold; the first goes to fold 0, the second to fold 1.": (
        lambda c, e, folds, k: _rank(c)[e] * folds // len(c.unique()) == k
    ),
}


def tested_patches(function: Split) -> None:
    """Exercise 18.3: child (E,), eye (P,), folds, k -> which patches are tested on in fold k, by child."""
    given = _tensor("18.3", answer("18.3", function, CHILD.clone(), EYE.clone(), FOLDS, K))
    mistakes = {sentence: wrong(CHILD, EYE, FOLDS, K) for sentence, wrong in CHILD_MISTAKES.items()}
    judge("18.3", given, _rank(CHILD)[EYE] % FOLDS == K, mistakes, "right. No child is on both sides.")
