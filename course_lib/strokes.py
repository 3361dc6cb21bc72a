"""Coarse annotations: strokes that say "this is k", strokes that say "this is not k", and silence about other pixels.

A `Hand` draws on a region (N, H, W), true where it may draw, and gives what it marked. `draw_strokes` lets one hand
mark a class and another what is not that class. All randomness is drawn on the CPU from the generator that comes in.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from skimage.morphology import dilation, disk, erosion, skeletonize
from torch import Generator, Tensor
from torch.nn.functional import interpolate

from .annotations import MISSING, as_labels
from .mask_annotators import cut

Hand = Callable[[Tensor, Generator], Tensor]
"""regions (N, H, W) bool, generator -> marked (N, H, W) bool."""

POSITIVE, NEGATIVE = 0, 1
"""The two channels of strokes."""


def coarse(*, grow: int = 1, share: float = 0.8, cuts: int = 2, width: int = 1) -> Hand:
    """Draws `grow` pixels too wide in a `share` of the picture, and leaves `cuts` gaps, discs of radius `width`.

    Source: Zhang et al., section 4.2: fractures and over-segmentation. Differs: where it is too wide changes smoothly;
    a whole background that is one pixel too wide would rub out every thin stroke of the object.
    """
    if grow < 0 or cuts < 0 or width < 0 or not 0 <= share <= 1:
        raise ValueError(f"wanted grow, cuts, width >= 0, share of 0 to 1; got {grow}, {cuts}, {width}, {share}.")

    def hand(regions: Tensor, generator: Generator) -> Tensor:
        N, H, W = regions.shape
        field = torch.randn(N, 1, max(2, H // 5), max(2, W // 5), generator=generator)
        field = interpolate(field, (H, W), mode="bicubic")[:, 0]
        wide = field <= field.flatten(1).quantile(share, 1)[:, None, None] if share > 0 else torch.zeros_like(regions)
        marked = torch.where(wide, _grown(regions, grow), regions)
        return cut(marked.long(), (cuts, cuts), width, generator) > 0

    return hand


def grown(pixels: int) -> Hand:
    """Draws too wide by as many pixels everywhere, in every picture; too narrow for a negative number."""
    return lambda regions, generator: _grown(regions, pixels)


def scribble() -> Hand:
    """One thin line along the middle of everything: the skeleton."""

    def hand(regions: Tensor, generator: Generator) -> Tensor:
        return torch.from_numpy(np.stack([skeletonize(region) for region in regions.numpy()]))

    return hand


def box() -> Hand:
    """The upright rectangle around the region."""

    def hand(regions: Tensor, generator: Generator) -> Tensor:
        rows, columns = regions.any(2), regions.any(1)  # (N, H), (N, W)
        reach = lambda x: (x.cumsum(1) > 0) & (x.flip(1).cumsum(1).flip(1) > 0)  # noqa: E731
        return reach(rows)[:, :, None] & reach(columns)[:, None]

    return hand


def outside_box() -> Hand:
    """Everything beyond the upright rectangle around what it may not draw on."""
    return lambda regions, generator: ~box()(~regions, generator)


def draw_strokes(
    truth: Tensor,
    target: int | Tensor,
    *,
    n_classes: int,
    positive: Hand | None = None,
    negative: Hand | None = None,
    ratio: float = 1.0,
    generator: Generator,
) -> Tensor:
    """Two channels (N, 2, H, W) int64: `POSITIVE`, "this is the target"; `NEGATIVE`, "this is not the target". Both
    hold the target's number where there is a mark, and MISSING elsewhere.

    Arguments: truth (N, H, W); target: the class that is asked for, one for all or (N,). positive, negative: hands,
    None marks nothing. ratio: how much of what each hand marked stays, see `reduced`.
    Raises: ValueError for values and shapes that do not fit, and where nobody draws.

    >>> truth = torch.zeros(1, 4, 4, dtype=torch.long); truth[0, 1:3, 1:3] = 1
    >>> draw_strokes(truth, 1, n_classes=2, positive=box(), negative=outside_box(), generator=Generator())[0, :, 1]
    tensor([[-1,  1,  1, -1],
            [ 1, -1, -1,  1]])
    """
    truth = as_labels(truth, n_classes, what="truth")
    if truth.ndim != 3 or (truth == MISSING).any():
        raise ValueError(f"`truth` must be (N, H, W) with no gap; got {tuple(truth.shape)}.")
    target = as_labels(torch.as_tensor(target).expand(len(truth)), n_classes, what="target")
    if positive is None and negative is None:
        raise ValueError("nobody draws: give a hand for `positive`, for `negative`, or both.")
    theirs, labels = truth == target[:, None, None], torch.full((len(truth), 2, *truth.shape[1:]), MISSING)
    for channel, hand, region in ((POSITIVE, positive, theirs), (NEGATIVE, negative, ~theirs)):
        if hand is not None:
            marked = reduced(hand(region, generator), ratio, generator)
            labels[:, channel] = torch.where(marked, target[:, None, None], MISSING)
    return labels


def denied(truth: Tensor, M: Tensor, *, share: float = 1.0, generator: Generator) -> Tensor:
    """Of each pixel one class that it is not: labels (N, 2, H, W) with `NEGATIVE` words only, drawn from M[:, truth].

    Arguments: truth (N, H, W); M (L, L) as in `methods.coarse`; share: of the pixels that get one.
    """
    if not 0 < share <= 1:
        raise ValueError(f"`share` must be above 0 and at most 1; got {share}.")
    chance = torch.rand(truth.shape, generator=generator)
    words = (chance[..., None] > M.cumsum(0).T[truth][..., :-1]).sum(-1)  # (N, H, W)
    asked = torch.rand(truth.shape, generator=generator) < share
    return torch.stack([torch.full_like(truth, MISSING), torch.where(asked, words, MISSING)], 1)


def reduced(marked: Tensor, ratio: float, generator: Generator, *, least: int = 4) -> Tensor:
    """The `ratio` of the marked pixels (N, H, W) nearest to one of them, which is chosen at random; at least `least`.

    Source: Zhang et al., section 4.5: a ratio of .01 stands for a scribble.
    """
    if not 0 < ratio <= 1:
        raise ValueError(f"`ratio` must be above 0 and at most 1; got {ratio}.")
    if ratio == 1:
        return marked
    N, H, W = marked.shape
    chance = torch.rand(N, H * W, generator=generator).where(marked.flatten(1), -1)
    middle = chance.argmax(1)
    y, x = torch.arange(H * W) // W, torch.arange(H * W) % W
    far = (y - (middle // W)[:, None]) ** 2 + (x - (middle % W)[:, None]) ** 2  # (N, H W)
    order = far.where(marked.flatten(1), H * H + W * W).argsort(dim=1, stable=True).argsort(1)  # rank of each pixel
    n = marked.sum((1, 2))
    keep = (n * ratio).round().long().clamp(min=least).minimum(n)
    return (order < keep[:, None]).view_as(marked) & marked


def read_unmarked(labels: Tensor, n_classes: int) -> tuple[Tensor, tuple[str, ...]]:
    """Unmarked pixels as words: whoever marked an object meant that the rest is something else.

    Two classes: the silence of either channel is filled with the other class, in the channel itself. More classes: "the
    rest is not k" and "the rest is k" are two more channels, since "something else" is no class.
    Arguments: labels (N, 2, H, W) of `draw_strokes`. Returns: labels (N, 2 or 4, H, W), and the kind of each channel,
    for `methods.coarse.StrokeCM`. A picture in which a channel has no mark was not shown to it, and stays silent.
    """
    if labels.ndim != 4 or labels.shape[1] != 2:
        raise ValueError(f"`labels` must be (N, 2, H, W), positive and negative; got {tuple(labels.shape)}.")
    target = labels.amax((2, 3))  # (N, 2), MISSING without a mark
    silent = (labels == MISSING) & (target != MISSING)[:, :, None, None]
    filled = target[:, :, None, None].expand_as(labels)
    if n_classes == 2:
        return torch.where(silent, 1 - filled, labels), ("positive", "negative")
    more = torch.where(silent, filled, MISSING)
    return torch.cat([labels, more], 1), ("positive", "negative", "negative", "positive")


def _grown(regions: Tensor, pixels: int) -> Tensor:
    if pixels == 0:
        return regions
    filtered = dilation if pixels > 0 else erosion
    moved = filtered(regions.to(torch.uint8).numpy(), disk(abs(pixels))[None], mode="ignore")
    return torch.from_numpy(moved) > 0
