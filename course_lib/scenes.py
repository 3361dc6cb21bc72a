"""Drawn pictures whose truth is exact: digits in noise, shapes, lesions, nested tumours. Any size, any number.

Each function returns a `Scene`. All randomness is drawn on the CPU from the generator that comes in.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn.functional import interpolate

from .data import Images


class Scene(NamedTuple):
    """images (N, C, H, W) float32 in [0, 1], truth (N, H, W) int64 in 0..n_classes-1, 0 the background."""

    images: Tensor
    truth: Tensor
    n_classes: int


def digits(source: Images, *, size: int | tuple[int, int] = 28, noise: float = 0.4, generator: Generator) -> Scene:
    """Handwritten digits in Gaussian noise; the truth is where the clean digit is brighter than one half. 2 classes.

    Source: Zhang 2020, section 4.1. Differs: there the truth is a threshold of the very picture that the network sees,
    which one pixel at a time can learn; here the noise (standard deviation `noise`, clipped) makes it look around.
    """
    clean = interpolate(source.images[:, None].float() / 255, _sides(size), mode="bilinear")  # (N, 1, H, W)
    return Scene(_noisy(clean, noise, generator), (clean[:, 0] > 0.5).long(), 2)


def shapes(N: int, *, size: int | tuple[int, int] = 48, noise: float = 0.3, generator: Generator) -> Scene:
    """A disc (class 1) and a square (class 2), a little darker: less than the noise, so a pixel alone does not tell."""
    y, x = _grid(N, size)
    truth = torch.zeros(y.shape, dtype=torch.long)
    place, turn = _uniform((2, 2, N), 0.22, 0.78, generator), _uniform((N,), 0, 3.14, generator)
    radius = _uniform((2, N), 0.12, 0.2, generator)
    dy, dx = _turned(y, x, *place[1], turn)
    truth[torch.maximum(dy.abs(), dx.abs()) < radius[1, :, None, None]] = 2
    truth[((y - _at(place[0, 0])) ** 2 + (x - _at(place[0, 1])) ** 2).sqrt() < _at(radius[0])] = 1
    return Scene(_noisy(torch.tensor([0.25, 0.8, 0.6])[truth][:, None], noise, generator), truth, 3)


def lesions(N: int, *, size: int | tuple[int, int] = 64, noise: float = 0.08, generator: Generator) -> Scene:
    """Three to nine small bright blobs on a textured ground; how bright changes from picture to picture. 2 classes.

    A stand-in for the white-matter lesions of Zhang 2020, section 4.2, whose pictures may not be passed on.
    """
    y, x = _grid(N, size)
    most = 9
    there = torch.arange(most) < torch.randint(3, most + 1, (N, 1), generator=generator)  # (N, most)
    place, turn = _uniform((2, N, most), 0.1, 0.9, generator), _uniform((N, most), 0, 3.14, generator)
    radii = _uniform((2, N, most), 0.02, 0.07, generator)
    depth = torch.full(y.shape, 2.0)  # 1 on the rim of the nearest blob, 0 in its middle
    for k in range(most):
        dy, dx = _turned(y, x, *place[:, :, k], turn[:, k])
        ring = ((dy / _at(radii[0, :, k])) ** 2 + (dx / _at(radii[1, :, k])) ** 2).sqrt()
        depth = torch.where(_at(there[:, k]), torch.minimum(depth, ring), depth)
    glow = (1.5 - depth).clamp(0, 1)  # soft across the rim
    contrast = _uniform((N,), 0.2, 0.6, generator)
    ground = 0.35 + 0.12 * _texture(y.shape, 6, generator) + 0.06 * _texture(y.shape, 14, generator)
    return Scene(_noisy((ground + _at(contrast) * glow)[:, None], noise, generator), (depth < 1).long(), 2)


def tumours(N: int, *, size: int | tuple[int, int] = 48, noise: float = 0.1, generator: Generator) -> Scene:
    """A core (3) in a rim (2) in a swelling (1), each in the next, in four channels that show different parts.

    A stand-in for the multi-modal brain scans of Zhang 2020, section 4.2 (BraTS). 4 classes.
    """
    y, x = _grid(N, size)
    middle, turn = _uniform((2, N), 0.35, 0.65, generator), _uniform((N,), 0, 3.14, generator)
    radii = _uniform((2, N), 0.2, 0.3, generator)
    truth = torch.zeros(y.shape, dtype=torch.long)
    for k, (least, most) in enumerate(((1.0, 1.0), (0.55, 0.75), (0.25, 0.45)), 1):
        share = _uniform((N,), least, most, generator)
        shift = middle + (1 - share) * radii.min(0).values * _uniform((2, N), -0.35, 0.35, generator)
        dy, dx = _turned(y, x, *shift, turn)
        inside = (dy / _at(radii[0] * share)) ** 2 + (dx / _at(radii[1] * share)) ** 2 < 1
        truth[inside & (truth == k - 1)] = k  # only ever inside the one before
    brain = (((y - 0.5) / 0.48) ** 2 + ((x - 0.5) / 0.42) ** 2 < 1).float()  # (N, H, W)
    shown = torch.tensor([  # channel x class: background, swelling, rim, core
        [0.35, 0.75, 0.70, 0.65],
        [0.45, 0.35, 0.40, 0.15],
        [0.45, 0.40, 0.85, 0.20],
        [0.35, 0.65, 0.50, 0.85],
    ])  # fmt: skip
    ground = brain[:, None] * shown[:, truth].movedim(0, 1) + 0.05 * _texture(y.shape, 8, generator)[:, None]
    return Scene(_noisy(ground, noise, generator), truth, 4)


def two_digits(
    N: int, source: Images, *, size: int | tuple[int, int] = (28, 48), noise: float = 0.3, generator: Generator
) -> Scene:
    """A zero (class 1) and a one (class 2) of `source`, side by side in noise, in either order. 3 classes."""
    H, W = _sides(size)
    halves, names = [], torch.stack([torch.randperm(2, generator=generator) for _ in range(N)])  # (N, 2)
    kinds = [torch.where(source.labels == k)[0] for k in (0, 1)]
    if N < 1 or not all(map(len, kinds)):
        raise ValueError(f"wanted N >= 1, and zeros and ones in `source`; got {N}, {[len(k) for k in kinds]} of them.")
    for side in range(2):
        chosen = [kinds[k][torch.randint(len(kinds[k]), (1,), generator=generator)] for k in names[:, side].tolist()]
        grey = source.images[torch.cat(chosen), None].float() / 255  # (N, 1, h, w)
        halves.append(interpolate(grey, (H, W // 2 if side == 0 else W - W // 2), mode="bilinear")[:, 0])
    bright = torch.cat(halves, 2)  # (N, H, W)
    left = torch.arange(W)[None, None] < W // 2
    which = torch.where(left, _at(names[:, 0]), _at(names[:, 1])) + 1
    return Scene(_noisy(bright[:, None], noise, generator), torch.where(bright > 0.5, which, 0), 3)


def streets(N: int, *, size: int | tuple[int, int] = (32, 48), noise: float = 0.08, generator: Generator) -> Scene:
    """Road (0), buildings (1), sky (2) and cars (3), in colours that overlap. 4 classes.

    A stand-in for the street scenes of Zhang et al., section 4.1 (Cityscapes), which ask for a registration.
    """
    y, x = _grid(N, size)
    truth = torch.zeros(y.shape, dtype=torch.long)
    horizon = _uniform((N,), 0.5, 0.62, generator)
    truth[y < _at(horizon)] = 2
    blocks, most = 5, 3
    edges, height = _uniform((N, blocks), -0.3, 1.3, generator), _uniform((N, blocks), 0.08, 0.42, generator)
    width = _uniform((N, blocks), 0.1, 0.25, generator)
    for k in range(blocks):
        wide = (x - _at(edges[:, k])).abs() < _at(width[:, k])
        truth[wide & (y < _at(horizon)) & (y > _at(horizon - height[:, k]))] = 1
    there = torch.arange(most) < torch.randint(1, most + 1, (N, 1), generator=generator)
    near, place = _uniform((N, most), 0.0, 1.0, generator), _uniform((N, most), -0.1, 1.1, generator)
    for k in range(most):  # the nearer, the lower and the larger
        bottom, half = horizon + 0.08 + 0.26 * near[:, k], 0.06 + 0.09 * near[:, k]
        car = ((x - _at(place[:, k])).abs() < _at(half)) & (y < _at(bottom)) & (y > _at(bottom - 1.1 * half))
        truth[car & _at(there[:, k])] = 3
    shown = torch.tensor([[0.42, 0.42, 0.44], [0.55, 0.45, 0.38], [0.55, 0.62, 0.72], [0.50, 0.30, 0.34]])
    light = _uniform((N, 1, 1, 1), 0.8, 1.15, generator)
    own = 0.1 * torch.randn(N, 4, 3, generator=generator)  # of this picture's sky, houses, ...
    colour = (shown + own)[torch.arange(N)[:, None, None], truth].movedim(-1, 1)  # (N, 3, H, W)
    return Scene(_noisy(light * colour + 0.06 * _texture(y.shape, 9, generator)[:, None], noise, generator), truth, 4)


def vessels(N: int, *, size: int | tuple[int, int] = 48, noise: float = 0.06, generator: Generator) -> Scene:
    """Dark bent lines that start at a bright disc and grow thinner, on an uneven ground. 2 classes.

    A stand-in for the fundus photographs of Zhang et al., section 4.6 (LES-AV).
    """
    y, x = _grid(N, size)
    n, steps = 7, 48
    disc = torch.stack([_uniform((N,), 0.35, 0.65, generator), _uniform((N,), 0.1, 0.3, generator)])  # y, x
    turn = torch.linspace(0, 2 * math.pi, n + 1)[:n] + _uniform((N, n), -0.35, 0.35, generator)
    bend, wide = _uniform((N, n), -1.8, 1.8, generator), _uniform((N, n), 0.02, 0.045, generator)
    depth = torch.full(y.shape, 2.0)  # 1 on the wall of the nearest vessel, 0 in its middle
    for k in range(n):
        at, heading = disc.clone(), turn[:, k].clone()
        for i in range(steps):
            depth = torch.minimum(depth, _far(y, x, at) / _at(wide[:, k] * (1 - 0.6 * i / steps)).clamp(min=0.012))
            at = at + 0.02 * torch.stack([heading.sin(), heading.cos()])
            heading = heading + bend[:, k] / steps
    ground = 0.55 + 0.08 * _texture(y.shape, 5, generator) + 0.3 * (1.3 - _far(y, x, disc) / 0.09).clamp(0, 1)
    dark = _at(_uniform((N,), 0.12, 0.24, generator)) * (1.5 - depth).clamp(0, 1)
    return Scene(_noisy((ground - dark)[:, None], noise, generator), (depth < 1).long(), 2)


def _far(y: Tensor, x: Tensor, at: Tensor) -> Tensor:
    return ((y - _at(at[0])) ** 2 + (x - _at(at[1])) ** 2).sqrt()


def _sides(size: int | tuple[int, int]) -> tuple[int, int]:
    H, W = (size, size) if isinstance(size, int) else size
    if min(H, W) < 8:
        raise ValueError(f"`size` must be at least 8 pixels a side, one number or (H, W); got {size}.")
    return H, W


def _grid(N: int, size: int | tuple[int, int]) -> tuple[Tensor, Tensor]:
    """y, x (N, H, W), the shorter side from 0 to 1 and the longer about its middle."""
    if N < 1:
        raise ValueError(f"wanted at least one picture; got N={N}.")
    H, W = _sides(size)
    line = lambda n: (torch.arange(n) + 0.5 - n / 2) / min(H, W) + 0.5  # noqa: E731
    return line(H)[None, :, None].expand(N, H, W), line(W)[None, None].expand(N, H, W)


def _at(values: Tensor) -> Tensor:
    return values[:, None, None]  # (N,) -> (N, 1, 1)


def _turned(y: Tensor, x: Tensor, cy: Tensor, cx: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates about (cy, cx), turned."""
    dy, dx, c, s = y - _at(cy), x - _at(cx), _at(angle.cos()), _at(angle.sin())
    return c * dy - s * dx, s * dy + c * dx


def _uniform(shape: tuple[int, ...], least: float, most: float, generator: Generator) -> Tensor:
    return least + (most - least) * torch.rand(shape, generator=generator)


def _texture(shape: tuple[int, ...], cells: int, generator: Generator) -> Tensor:
    """Smooth noise, (N, H, W), about -1 to 1."""
    coarse = torch.randn(shape[0], 1, cells, cells, generator=generator)
    return interpolate(coarse, shape[1:], mode="bicubic")[:, 0].clamp(-2, 2) / 2


def _noisy(clean: Tensor, noise: float, generator: Generator) -> Tensor:
    return (clean + noise * torch.randn(clean.shape, generator=generator)).clamp(0, 1)
