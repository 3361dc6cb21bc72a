"""Simulated annotators of masks: people who draw too much, too little, in pieces, or nothing.

A `MaskAnnotator` turns truths (N, H, W) into masks; no two drawings of one picture need be the same. Every kind works
for two and for more classes: outlines grow and shrink as a whole, a higher class over a lower. All randomness is drawn
on the CPU from the generator that comes in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from skimage.measure import label
from skimage.morphology import dilation, disk, erosion, opening
from torch import Generator, Tensor
from torch.nn.functional import interpolate

from .annotations import MISSING, as_labels
from .annotators import chosen

Draw = Callable[[Tensor, Tensor, Generator], Tensor]
"""truth (N, H, W), images (N, C, H, W), generator -> mask (N, H, W)."""


class MaskAnnotator(NamedTuple):
    """Somebody who draws: a name, and how."""

    name: str
    draw: Draw


def faithful(tremor: float = 0.0) -> MaskAnnotator:
    """Draws the truth, with a hand that trembles by `tremor` pixels."""
    return MaskAnnotator("good", lambda truth, images, generator: _trembled(truth, tremor, generator))


def over(least: int = 1, most: int = 2, *, tremor: float = 0.0) -> MaskAnnotator:
    """Draws every outline `least` to `most` pixels too wide. Source: Zhang 2020, appendix A.1."""
    _check_range(least, most)
    return MaskAnnotator("over", lambda truth, images, g: _grown(_trembled(truth, tremor, g), least, most, g))


def under(least: int = 1, most: int = 1, *, tremor: float = 0.0) -> MaskAnnotator:
    """Draws every outline too narrow: thin things vanish. Source: Zhang 2020, appendix A.1."""
    _check_range(least, most)
    return MaskAnnotator("under", lambda truth, images, g: _grown(_trembled(truth, tremor, g), -most, -least, g))


def fractured(
    least: int = 1, most: int = 2, *, cuts: tuple[int, int] = (1, 3), width: int = 1, tremor: float = 0.0
) -> MaskAnnotator:
    """Draws too wide and with gaps: `cuts` of them, discs of radius `width`. The paper's "wrong" segmentation.

    Source: Zhang 2020, appendix A.1.
    """
    _check_range(least, most)
    _check_range(*cuts)
    draw = lambda truth, images, g: cut(_grown(_trembled(truth, tremor, g), least, most, g), cuts, width, g)  # noqa: E731
    return MaskAnnotator("wrong", draw)


def blank() -> MaskAnnotator:
    """Says background everywhere. Source: Zhang 2020, appendix A.1."""
    return MaskAnnotator("blank", lambda truth, images, generator: torch.zeros_like(truth))


def swapped(share: float, *, tremor: float = 0.0) -> MaskAnnotator:
    """Calls each foreground class by the next one's name, in a `share` of the pictures; needs three classes."""

    def draw(truth: Tensor, images: Tensor, generator: Generator) -> Tensor:
        top = int(truth.max())
        renamed = torch.where(truth > 0, truth % max(top, 1) + 1, 0)
        which = torch.rand(len(truth), 1, 1, generator=generator) < share
        return _trembled(torch.where(which, renamed, truth), tremor, generator)

    return MaskAnnotator("swapped", draw)


def sometimes(share: float, careless: MaskAnnotator, else_: MaskAnnotator) -> MaskAnnotator:
    """Draws like `careless` in a `share` of the pictures, like `else_` in the others."""

    def draw(truth: Tensor, images: Tensor, generator: Generator) -> Tensor:
        first, second = (a.draw(truth, images, generator) for a in (careless, else_))
        return torch.where(torch.rand(len(truth), 1, 1, generator=generator) < share, first, second)

    return MaskAnnotator(careless.name, draw)


def where(place: Callable[[Tensor, Tensor], Tensor], there: MaskAnnotator, elsewhere: MaskAnnotator) -> MaskAnnotator:
    """Draws like `there` where place(truth, images) (N, H, W) is True, like `elsewhere` in the rest of the picture."""

    def draw(truth: Tensor, images: Tensor, generator: Generator) -> Tensor:
        first, second = (a.draw(truth, images, generator) for a in (there, elsewhere))
        return torch.where(place(truth, images), first, second)

    return MaskAnnotator(f"{there.name} / {elsewhere.name}", draw)


def left(truth: Tensor, images: Tensor) -> Tensor:
    """A place: the left half of the picture."""
    return (torch.arange(truth.shape[2]) < truth.shape[2] // 2).expand(truth.shape)


def thin(width: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A place: in and around strokes too thin for a disc of radius `width`, away from all that it fits into."""

    def place(truth: Tensor, images: Tensor) -> Tensor:
        marked = (truth > 0).numpy()
        body = dilation(opening(marked, disk(width)[None], mode="ignore"), disk(width + 1)[None], mode="ignore")
        around = dilation(marked & ~body, disk(width + 2)[None], mode="ignore")
        return torch.from_numpy(around & ~body)

    return place


def small(area: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A place: in and around objects of at most `area` pixels."""

    def place(truth: Tensor, images: Tensor) -> Tensor:
        found = torch.zeros(truth.shape, dtype=torch.bool)
        for n, marked in enumerate((truth > 0).numpy()):
            parts = label(marked)  # (H, W), 0 the background; parts may touch at a corner
            few = np.bincount(parts.ravel()) <= area
            few[0] = False
            found[n] = torch.from_numpy(dilation(few[parts], disk(3), mode="ignore"))
        return found

    return place


def faint(contrast: float) -> Callable[[Tensor, Tensor], Tensor]:
    """A place: all of every picture whose foreground is brighter than its background by less than `contrast`."""

    def place(truth: Tensor, images: Tensor) -> Tensor:
        marked, grey = truth > 0, images[:, 0]
        mean = lambda what: (grey * what).sum((1, 2)) / what.sum((1, 2)).clamp(min=1)  # noqa: E731
        return ((mean(marked) - mean(~marked)).abs() < contrast)[:, None, None].expand(truth.shape)

    return place


def draw_masks(
    truth: Tensor,
    images: Tensor,
    panel: Sequence[MaskAnnotator],
    *,
    n_classes: int,
    per_item: int | None = None,
    generator: Generator,
) -> Tensor:
    """What each annotator draws: (N, R, H, W) int64; MISSING for whole pictures that they were not shown.

    Arguments: truth (N, H, W), images (N, C, H, W); per_item: how many annotators see a picture, None is all.
    Raises: ValueError for shapes and values that do not fit.

    >>> square = torch.zeros(1, 8, 8, dtype=torch.long); square[:, 3:5, 3:5] = 1
    >>> masks = draw_masks(square, square[:, None], [faithful(), over(1, 1)], n_classes=2, generator=Generator())
    >>> masks.sum((2, 3))
    tensor([[ 4, 12]])
    """
    truth = as_labels(truth, n_classes, what="truth")
    if truth.ndim != 3 or (truth == MISSING).any():
        raise ValueError(f"`truth` must be (N, H, W) with no gap; got {tuple(truth.shape)}.")
    if images.ndim != 4 or len(images) != len(truth) or images.shape[2:] != truth.shape[1:]:
        raise ValueError(f"`images` must be (N, C, H, W) beside truth {tuple(truth.shape)}; got {tuple(images.shape)}.")
    if not panel:
        raise ValueError("`panel` is empty; give at least one MaskAnnotator.")
    masks = torch.stack([annotator.draw(truth, images, generator) for annotator in panel], 1)  # (N, R, H, W)
    shown = chosen(len(truth), len(panel), per_item, None, generator)  # (N, R)
    return torch.where(shown[:, :, None, None], masks, MISSING)


def target_columns(
    truth: Tensor,
    images: Tensor,
    panel: Sequence[MaskAnnotator],
    *,
    n_classes: int,
    draws: int = 32,
    generator: Generator,
) -> Tensor:
    """How often each annotator says i of a pixel, over `draws` drawings of each picture: (N, R, L, H, W).

    This is the column of the true class of the pixel's confusion matrix. The others do not exist: nobody can redraw a
    picture in which the same pixel is something else.
    """
    total = torch.zeros(len(truth), len(panel), n_classes, *truth.shape[1:])
    for _ in range(draws):
        masks = draw_masks(truth, images, panel, n_classes=n_classes, generator=generator)
        total.scatter_add_(2, masks[:, :, None], torch.ones(1).expand(masks[:, :, None].shape))
    return total / draws


def _check_range(least: int, most: int) -> None:
    if not 0 <= least <= most:
        raise ValueError(f"wanted whole numbers 0 <= least <= most; got {least} and {most}.")


def _grown(masks: Tensor, least: int, most: int, generator: Generator) -> Tensor:
    """Outlines moved outwards by `least` to `most` pixels, drawn for each picture; inwards for negative numbers."""
    radius = torch.randint(least, most + 1, (len(masks),), generator=generator)
    y, grown = masks.to(torch.uint8).numpy(), masks.clone()
    for pixels in range(least, most + 1):
        which = radius == pixels
        if pixels and which.any():
            filtered = dilation if pixels > 0 else erosion
            moved = filtered(y[which.numpy()], disk(abs(pixels))[None], mode="ignore")  # of what lies outside, nothing
            grown[which] = torch.from_numpy(moved).long()
    return grown


def cut(masks: Tensor, cuts: tuple[int, int], width: int, generator: Generator) -> Tensor:
    """Discs of background, with their middles on marked pixels."""
    least, most = cuts
    n = torch.randint(least, most + 1, (len(masks), 1), generator=generator)
    chance = torch.rand(masks.shape, generator=generator) * (masks > 0)
    middles = chance.flatten(1).topk(most).indices  # (N, most)
    hit = torch.zeros(masks[:, 0, 0].shape + (masks[0].numel(),), dtype=torch.bool)
    hit.scatter_(1, middles, torch.arange(most) < n)
    gaps = dilation(hit.view(masks.shape).numpy(), disk(width)[None], mode="ignore")
    return torch.where(torch.from_numpy(gaps), 0, masks)


def _trembled(masks: Tensor, tremor: float, generator: Generator) -> Tensor:
    """Each pixel takes the class of one near it: smooth shifts whose standard deviation is about `tremor` pixels."""
    if tremor < 0:
        raise ValueError(f"`tremor` is a number of pixels, at least 0; got {tremor}.")
    if tremor == 0:
        return masks.clone()
    N, H, W = masks.shape
    coarse = torch.randn(N, 2, max(2, H // 4), max(2, W // 4), generator=generator)
    shift = (tremor * interpolate(coarse, (H, W), mode="bicubic")).round().long()  # (N, 2, H, W)
    y = (torch.arange(H)[:, None] + shift[:, 0]).clamp(0, H - 1)
    x = (torch.arange(W) + shift[:, 1]).clamp(0, W - 1)
    return masks[torch.arange(N)[:, None, None], y, x]


PANELS: dict[str, tuple[MaskAnnotator, ...]] = {
    "as_released": (faithful(), over(2, 3), under(), fractured(2, 2, cuts=(2, 4), width=2), blank()),
    "missing_foreground": (faithful(0.3), over(1, 2), under(), fractured(1, 1, cuts=(6, 10), width=3), blank()),
    "by_place": (
        *[where(left, faithful(0.3), over(3, 3)) for _ in range(2)],
        *[where(left, blank(), faithful(0.3)) for _ in range(3)],
    ),
    "thin_strokes": (faithful(0.3), *[where(thin(1), blank(), over(1, 1)) for _ in range(3)], over(1, 2)),
    "misses_only": (faithful(0.3), under(), fractured(0, 0, cuts=(6, 10), width=3), faithful(0.3), blank()),
    "by_contrast": (
        *[where(faint(0.3), over(3, 3), faithful(0.3)) for _ in range(2)],
        *[where(faint(0.3), faithful(0.3), blank()) for _ in range(3)],
    ),
    "three_classes": (faithful(0.3), over(1, 2), under(1, 2), swapped(0.7), blank()),
}
"""Panels of five. `as_released`: on digits their Dice with the truth is that of the examples published with Zhang 2020
(1, .51, .42, .53, 0), and the vote is good. `missing_foreground`: three of five miss most of what is there, and the
vote with them. `by_place`: two draw well on the left and too wide on the right, three see nothing on the left.
`thin_strokes`: three pass over what is thin. `misses_only`: some miss much, nobody draws too wide. `by_contrast`: for
lesions; as `by_place`, but by how faint the picture is. `three_classes`: one calls things by each other's names."""
