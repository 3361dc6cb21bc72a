"""From strokes to whole masks without learning: what a network could be trained on in the place of strokes.

Each takes images (N, C, H, W) and labels (N, 2, H, W) of `strokes.draw_strokes`, and gives labels of the same shape
with no silence left: in every pixel either "this is the target" or "this is not". A picture without a positive or
without a negative mark has nothing to spread, and stays as it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType

import numpy as np
import torch
from skimage.segmentation import random_walker as walk
from skimage.segmentation import slic
from torch import Tensor

from .annotations import MISSING
from .strokes import NEGATIVE, POSITIVE


def random_walker(images: Tensor, labels: Tensor, *, beta: float = 100.0) -> Tensor:
    """A pixel belongs to the kind of mark that a random walk from it meets first; it seldom crosses edges.

    Source: Grady 2006, as in scikit-image. It stands in the place of LazySnapping's graph cut, too: both solve for the
    mask whose border crosses the strongest edges. beta: how strongly edges repel.
    """

    def one(image: np.ndarray, is_in: np.ndarray, is_out: np.ndarray) -> np.ndarray:
        seeds = np.where(is_in, 1, np.where(is_out, 2, 0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of the solver's speed, and of seeds that leave nothing to do
            return walk(image, seeds, beta=beta, mode="cg_j", tol=1e-3, channel_axis=0) == 1

    return _spread(one, images, labels)


def superpixels(
    images: Tensor, labels: Tensor, *, size: int = 12, compactness: float = 0.1, rounds: int = 50
) -> Tensor:
    """Marks spread over superpixels of about `size` pixels, and from those to their neighbours of like colour.

    Source: the idea of Lin et al. 2016 (ScribbleSup). Differs: labels are passed along the graph of superpixels in
    place of a graph cut, and once, before training, in place of in turns with it.
    """

    def one(image: np.ndarray, is_in: np.ndarray, is_out: np.ndarray) -> np.ndarray:
        n = max(2, is_in.size // size)
        colours = np.moveaxis(image, 0, -1)
        parts = slic(colours, n, compactness=compactness, start_label=0, channel_axis=-1, convert2lab=False)
        n, flat = parts.max() + 1, parts.ravel()
        count = lambda weights: np.bincount(flat, weights, n)  # noqa: E731
        colour = np.stack([count(c.ravel()) for c in image], 1) / count(None)[:, None]  # (n, C)
        alike = np.zeros((n, n))
        for a, b in ((parts[1:], parts[:-1]), (parts[:, 1:], parts[:, :-1])):
            alike[a, b] = alike[b, a] = 1.0
        np.fill_diagonal(alike, 0)
        apart = ((colour[:, None] - colour[None]) ** 2).sum(-1)
        alike *= np.exp(-apart / max(2 * apart[alike > 0].mean(), 1e-9)) if (alike > 0).any() else 1.0
        seen = count((is_in | is_out).ravel().astype(float))
        known = seen > 0
        belief = np.where(known, count(is_in.ravel().astype(float)) / np.maximum(seen, 1), 0.5)
        for _ in range(rounds):
            spread = (alike @ belief) / np.maximum(alike.sum(1), 1e-9)
            belief = np.where(known, belief, spread)
        return belief[parts] > 0.5

    return _spread(one, images, labels)


def grabcut(images: Tensor, labels: Tensor, *, rounds: int = 5) -> Tensor:
    """GrabCut, with marks as sure, and the rest as likely, foreground. Source: Rother et al. 2004, as in OpenCV.

    Raises: ImportError where OpenCV is missing.
    """
    cv2 = opencv()

    def one(image: np.ndarray, is_in: np.ndarray, is_out: np.ndarray) -> np.ndarray:
        low, high = image.min(), image.max()
        grey = np.uint8(255 * (image - low) / max(high - low, 1e-9))
        colours = np.ascontiguousarray(np.moveaxis(grey if len(grey) == 3 else np.repeat(grey[:1], 3, 0), 0, -1))
        mask = np.full(is_in.shape, cv2.GC_PR_FGD, np.uint8)
        mask[is_out], mask[is_in] = cv2.GC_BGD, cv2.GC_FGD
        cv2.setRNGSeed(0)  # its clustering draws
        try:
            cv2.grabCut(colours, mask, None, np.zeros((1, 65)), np.zeros((1, 65)), rounds, cv2.GC_INIT_WITH_MASK)
        except cv2.error:  # too few pixels for its mixture of colours
            return is_in
        return np.isin(mask, (cv2.GC_FGD, cv2.GC_PR_FGD))

    return _spread(one, images, labels)


def opencv() -> ModuleType:
    """OpenCV. Raises: ImportError that says how to install it."""
    try:
        import cv2
    except ImportError:
        raise ImportError("GrabCut needs OpenCV, an extra of the course: pip install -e '.[coarse]'") from None
    return cv2


def _spread(one: Callable, images: Tensor, labels: Tensor) -> Tensor:
    if labels.ndim != 4 or labels.shape[1] != 2 or images.ndim != 4 or images.shape[::2] + images.shape[3:] != (
        labels.shape[0], *labels.shape[2:]
    ):  # fmt: skip
        raise ValueError(
            f"wanted images (N, C, H, W) and labels (N, 2, H, W); got {tuple(images.shape)} and {tuple(labels.shape)}."
        )
    found = labels.clone()
    for image, mine, out in zip(images.double().numpy(), labels, found, strict=True):
        target, is_in, is_out = mine.max(), mine[POSITIVE] != MISSING, mine[NEGATIVE] != MISSING
        if is_in.any() and is_out.any():
            inside = torch.from_numpy(one(image, (is_in & ~is_out).numpy(), (is_out & ~is_in).numpy()))
            out[POSITIVE] = torch.where(inside, target, MISSING)
            out[NEGATIVE] = torch.where(inside, MISSING, target)
    return found
