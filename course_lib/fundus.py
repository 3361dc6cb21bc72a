"""Optic disc and cup, drawn: pictures like the back of an eye with exact truth, and raters who draw a cup too large.

A stand-in for REFUGE and RIGA (Wu et al., section 5.1), whose pictures may not be passed on.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor
from torch.nn.functional import affine_grid, grid_sample, interpolate

from .mask_annotators import MaskAnnotator
from .scenes import Scene

BACKGROUND, RIM, CUP = range(3)
"""The classes; the disc is rim and cup together."""


def disc_and_cup(N: int, *, size: int = 32, noise: float = 0.05, faint: float = 0.3, generator: Generator) -> Scene:
    """A bright disc with a brighter cup in it, vessels across, uneven light: images (N, 3, size, size). 3 classes.

    The rim is soft and the edge of the cup faint, in some pictures more than in others. faint: how much so; with 1 not
    even a network taught by the truth sees where the cup ends.
    """
    if N < 1 or size < 16:
        raise ValueError(f"wanted N >= 1 pictures of size >= 16; got {N} and {size}.")
    uniform = lambda least, most, *more: least + (most - least) * torch.rand(N, *more, generator=generator)  # noqa: E731
    line = (torch.arange(size) + 0.5) / size
    y, x = (grid[None] for grid in torch.meshgrid(line, line, indexing="ij"))  # (1, H, W)
    at = lambda v: v[:, None, None]  # noqa: E731
    cy, cx, radius, share = uniform(0.42, 0.58), uniform(0.42, 0.58), uniform(0.25, 0.32), uniform(0.4, 0.68)
    flat, dy, dx = uniform(0.9, 1.1), uniform(-0.06, 0.06), uniform(-0.06, 0.06)

    def ring(radius: Tensor, cy: Tensor, cx: Tensor) -> Tensor:
        """How far from the middle of an ellipse, 1 on its edge."""
        return (((y - at(cy)) / at(radius * flat)) ** 2 + ((x - at(cx)) / at(radius)) ** 2).sqrt()

    disc, cup = ring(radius, cy, cx), ring(radius * share, cy + dy * radius, cx + dx * radius)
    truth = (disc < 1).long() + ((cup < 1) & (disc < 1)).long()
    soft, edge = uniform(0.04, 0.08) / radius, faint * uniform(0.1, 0.25) / (radius * share)
    step = lambda ring, width: torch.sigmoid((1 - ring) / at(width / 4))  # noqa: E731
    contrast, pale = uniform(0.45, 0.9), uniform(0.25, 0.45)
    glow = at(pale) * step(disc, soft) + 0.35 * at(contrast) * step(cup, edge)
    vessels = torch.zeros(N, size, size)
    for _ in range(5):  # from the middle of the disc outwards, bent
        angle, bend, width = uniform(0, 6.283), uniform(-1.5, 1.5), uniform(0.012, 0.025)
        away = ((y - at(cy)) ** 2 + (x - at(cx)) ** 2).sqrt()
        turn = at(angle) + at(bend) * away
        beside = (y - at(cy)) * turn.cos() - (x - at(cx)) * turn.sin()
        ahead = (y - at(cy)) * turn.sin() + (x - at(cx)) * turn.cos()
        vessels = torch.maximum(vessels, torch.exp(-((beside / at(width)) ** 2)) * (ahead > 0))
    tilt = 0.1 * (at(uniform(-1, 1)) * (y - 0.5) + at(uniform(-1, 1)) * (x - 0.5))
    mottled = 0.03 * interpolate(torch.randn(N, 1, 6, 6, generator=generator), (size, size), mode="bicubic")[:, 0]
    light = 0.3 + tilt + mottled + glow - 0.18 * vessels
    colour = torch.tensor([1.0, 0.7, 0.4]).reshape(1, 3, 1, 1)
    images = (light[:, None] * colour + noise * torch.randn(N, 3, size, size, generator=generator)).clamp(0, 1)
    return Scene(images, truth, 3)


def rater(
    *,
    cup: float = 0.0,
    disc: float = 0.0,
    spread: float = 0.05,
    shift: float = 0.02,
    shared: float = 0.0,
    anchored: float = 0.0,
) -> MaskAnnotator:
    """Draws disc and cup larger or smaller by habit, each picture a little otherwise, and beside the place.

    Arguments: cup, disc: log of the factor by which they draw it too large, on average. spread: the standard deviation
    of that log from picture to picture. shift: of the outline's middle, in parts of the picture. shared: 0 to 1, how
    much of the spread comes from the picture: raters who share are fooled by the same pictures, in the same way.
    anchored: 0 to 1, how much they draw the cup that they always draw, `USUAL` of the disc, instead of this one.
    """
    if not (0 <= shared <= 1 and 0 <= anchored <= 1):
        raise ValueError(f"wanted `shared` and `anchored` of 0 to 1; got {shared} and {anchored}.")
    if spread < 0 or shift < 0:
        raise ValueError(f"wanted `spread` and `shift` >= 0; got {spread} and {shift}.")

    def draw(truth: Tensor, images: Tensor, generator: Generator) -> Tensor:
        N = len(truth)
        own = torch.randn(2, N, generator=generator)
        fooled = _of_picture(images)  # (N,)
        log = spread * (shared * fooled + (1 - shared**2) ** 0.5 * own)  # (2, N)
        middle = shift * torch.randn(N, 2, generator=generator)
        whole = _scaled(truth >= RIM, (disc + log[0]).exp(), middle)
        inner = _scaled(truth >= CUP, (cup + log[1]).exp() * (USUAL / cup_share(truth)) ** anchored, middle)
        return whole.long() + (inner & whole).long()

    return MaskAnnotator("rater", draw)


def specialist(small: MaskAnnotator, large: MaskAnnotator) -> MaskAnnotator:
    """Draws as `small` where the cup is less than `USUAL` of its disc, and as `large` where it is more."""

    def draw(truth: Tensor, images: Tensor, generator: Generator) -> Tensor:
        both = [one.draw(truth, images, generator) for one in (small, large)]
        return torch.where((cup_share(truth) < USUAL)[:, None, None], *both)

    return MaskAnnotator("specialist", draw)


def cup_share(masks: Tensor) -> Tensor:
    """The cup's radius as a share of the disc's: masks (N, H, W) -> (N,)."""
    cup, disc = ((masks >= least).sum((1, 2)).clamp(min=1) for least in (CUP, RIM))
    return (cup / disc).sqrt()


USUAL = 0.54
"""A cup's share of its disc's radius, on average."""

GOOD, CARELESS = {"spread": 0.04, "shift": 0.01}, {"spread": 0.25, "shift": 0.07}
PANELS: dict[str, tuple[MaskAnnotator, ...]] = {
    "dominant": (
        rater(**GOOD), rater(cup=0.05, **GOOD),
        *[rater(cup=bias, disc=0.08, spread=0.15, shift=0.02, shared=0.7) for bias in (0.3, 0.25, 0.35, 0.25, 0.3)],
    ),
    "jitter": (rater(**GOOD), rater(cup=0.05, **GOOD), *[rater(**CARELESS) for _ in range(5)]),
    "equal": tuple(rater(spread=0.12, shift=0.02) for _ in range(7)),
    "specialists": (
        *[specialist(rater(**GOOD), rater(**CARELESS))] * 2, *[specialist(rater(**CARELESS), rater(**GOOD))] * 2,
        *[rater(**CARELESS)] * 3,
    ),
    "generous": (
        *[specialist(rater(**GOOD), rater(cup=0.45, **CARELESS))] * 2,
        *[specialist(rater(cup=0.45, **CARELESS), rater(**GOOD))] * 2, *[rater(cup=0.45, **CARELESS)] * 3,
    ),
    "anchored": (rater(**GOOD), rater(cup=0.05, **GOOD), *[rater(spread=0.08, anchored=0.9) for _ in range(5)]),
}  # fmt: skip
"""Seven raters. `dominant`: two are good, five draw the cup too large, and are fooled by the same pictures. `jitter`:
the five are careless, each in their own way. `equal`: nobody stands out. `specialists`: two are good with small cups,
two with large ones, and are as careless as the three others with the rest. `generous`: these, and whoever is careless
draws the cup too large as well. `anchored`: the five draw nearly the same
cup in every disc, too large for small cups and too small for large ones."""


def _of_picture(images: Tensor) -> Tensor:
    """A number for each picture, as if from a standard normal distribution, that depends on nothing but the picture."""
    share = (images.flatten(1).double().mean(1) * 1e4) % 1  # (N,): digits that nobody sees
    return torch.erfinv((2 * share - 1).clamp(-0.999, 0.999)).float() * 2**0.5


def _scaled(marked: Tensor, factor: Tensor, shift: Tensor) -> Tensor:
    """Marks (N, H, W) drawn larger by `factor` (N,) about their own middle, then moved by `shift` (N, 2)."""
    N, H, W = marked.shape
    line = lambda n: (torch.arange(n) + 0.5) / n * 2 - 1  # noqa: E731
    weight = marked.float()
    area = weight.sum((1, 2)).clamp(min=1)
    cy = (weight * line(H)[:, None]).sum((1, 2)) / area
    cx = (weight * line(W)).sum((1, 2)) / area
    turn = torch.zeros(N, 2, 3)  # where each pixel of the new mask looks in the old one, x before y
    turn[:, 0, 0] = turn[:, 1, 1] = 1 / factor
    turn[:, 0, 2] = cx - (cx + 2 * shift[:, 1]) / factor
    turn[:, 1, 2] = cy - (cy + 2 * shift[:, 0]) / factor
    grid = affine_grid(turn, [N, 1, H, W], align_corners=False)
    return grid_sample(weight[:, None], grid, align_corners=False)[:, 0] > 0.5
