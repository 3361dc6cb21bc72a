"""Labels only: the mean, the vote, Dawid-Skene, STAPLE and Spatial STAPLE. The truth without looking at an image.

The last three are one EM. It never sees an item or a pixel, only the patterns of labels that occur (five annotators of
two classes: at most 32) and how often each occurs in a group: in all items for Dawid-Skene, in an image for STAPLE, in
a window for Spatial STAPLE. So its steps cost the same for a thumbnail and for a volume.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor

from .annotations import MISSING, as_labels
from .patterns import EM, Patterns, warn_doubtful


@dataclass(frozen=True, eq=False)
class Fused:
    """p (N, L, *S): probability of each truth; A (G|1, R, L, L): the matrices, and prior (G|1, L), estimated on the
    way, without the first axis for classes; n_labels (N, *S): how many labels an item had (0: its row is the prior,
    nobody spoke); converged after `iterations`, the last time that p moved by `change`."""

    p: Tensor
    A: Tensor
    prior: Tensor
    n_labels: Tensor
    converged: bool
    iterations: int
    change: float = 0.0

    @property
    def labels(self) -> Tensor:
        """(N, *S) int64: the most probable class; of equals the lowest."""
        return self.p.argmax(1)

    @property
    def sensitivity(self) -> Tensor:
        """How often each annotator says j where the truth is j; NaN for a class that nobody ever said.

        (R, L) for classes, (G, R, L) for masks, (N, R, L, h, w) in windows. Of two classes, 1 has what medicine calls
        sensitivity, 0 specificity.
        """
        if self.A.ndim == 3:
            return torch.where(self.prior > 0, self.A.diagonal(dim1=1, dim2=2), torch.nan)
        diagonal = self.A.diagonal(dim1=2, dim2=3).movedim(-1, 2)  # (G, R, L, ...)
        return torch.where(self.prior[:, None] > 0, diagonal, torch.nan)


def mean_label(labels: Tensor, n_classes: int) -> Tensor:
    """Share of an item's labels that each class got: (N, R, *S) -> (N, L, *S), float64.

    Source: Tanno 2019, Algorithm 2, the start. Differs: the paper divides by R even where labels are missing, and its
    q0 then sums to less than 1; here by the labels observed. An item nobody labelled gets the class shares of all
    labels.

    >>> mean_label(torch.tensor([[0, 1, 1, -1]]), 2)
    tensor([[0.3333, 0.6667]], dtype=torch.float64)
    """
    counts = _counts(labels, n_classes)  # (N, L, *S)
    n = counts.sum(1, keepdim=True)
    shares = counts.transpose(0, 1).flatten(1).sum(1)  # (L,)
    if shares.sum() == 0:
        raise ValueError("`labels` holds no label at all; is the missing code right?")
    shares = (shares / shares.sum()).reshape(1, -1, *[1] * (counts.ndim - 2))
    return torch.where(n > 0, counts / n.clamp(min=1), shares)


def majority(labels: Tensor, n_classes: int, *, generator: Generator | None = None) -> Tensor:
    """The class most annotators said: (N, R, *S) -> (N, *S) int64; MISSING where nobody labelled.

    Ties: the lowest class, so that a vote is repeatable; with a generator, one of the tied classes at random, so that
    low classes are not favoured (use this for training labels).

    >>> majority(torch.tensor([[2, 1, 1], [2, 0, -1], [-1, -1, -1]]), 3)
    tensor([ 1,  0, -1])
    """
    counts = _counts(labels, n_classes)  # (N, L, *S)
    seen = counts.sum(1) > 0
    if generator is not None:
        counts = counts + torch.rand(counts.shape, generator=generator, dtype=counts.dtype) / 2  # only breaks ties
    return torch.where(seen, counts.argmax(1), MISSING)


def dawid_skene(
    labels: Tensor,
    n_classes: int,
    *,
    people: Sequence[int] | None = None,
    smoothing: float = 0.01,
    max_iterations: int = 200,
    tolerance: float = 1e-6,
) -> Fused:
    """The truth and every annotator's matrix from labels alone, by EM started at the mean label.

    M-step: A and prior by counting against p (`confusion.count_matrices`); E-step: p by Bayes (`confusion.posterior`).
    Source: Dawid & Skene 1979. Differs: `smoothing` is added to each count, so that a class that an annotator never
    used is not vetoed for everybody; 0 gives the paper's estimate.
    Arguments: labels (N, R); people, R integers: columns of one number are readings by one person, and share a matrix.
    Returns: Fused, with one matrix a column.
    Raises: ValueError for max_iterations < 1, negative smoothing, or `people` that are not R. Warns when EM has not
    settled, when no item has two labels (then nothing shows who is reliable, and the labels are returned), when nobody
    ever said a class, and where the answer contradicts the vote on most items in dispute, or finds most annotators
    worse than guessing.
    """
    labels = _checked(labels, n_classes)
    _check_em(max_iterations, smoothing)
    if labels.ndim != 2:
        raise ValueError(f"`labels` must be (N, R), one column an annotator; got {tuple(labels.shape)}.")
    if people is not None and len(people) != labels.shape[1]:
        raise ValueError(
            f"`people` must name who wrote each of R={labels.shape[1]} columns; got {len(people)} numbers."
        )
    patterns = Patterns(labels, n_classes, people)
    em = EM(patterns, patterns.counts(), smoothing=smoothing)
    steps = em.run(max_iterations, tolerance)
    _warn_alone(em.several)
    warn_doubtful("Dawid-Skene", [em.doubts()])
    p = torch.from_numpy(em.W[patterns.index, 0])  # (N, L)
    found = Fused(p, em.matrices()[0], torch.from_numpy(em.prior[0]), patterns.n_labels(), *steps)
    return _warned(found, "Dawid-Skene")


def staple(
    labels: Tensor,
    n_classes: int,
    *,
    pooled: bool = False,
    box: bool = False,
    smoothing: float = 0.01,
    max_iterations: int = 5000,
    tolerance: float = 1e-6,
) -> Fused:
    """Dawid-Skene whose items are pixels, and whose prior, the class shares of all labels, stays as it is.

    Source: Warfield et al. 2004 (two classes), Rohlfing et al. 2004 (several). Differs: `smoothing`, as above; ties and
    empty masks need no special case, since the answer is a distribution over the classes that there are.
    Arguments: labels (N, R, H, W), or (R, H, W) for one image. pooled: one matrix an annotator for all images, as for
    the slices of a volume; else one for each image. box: let EM see only the rectangle round everything that anybody
    marked, so that the answer does not hang on how much background the picture happens to show.
    Returns: Fused, p float32. Raises, warns: as `dawid_skene`.
    """
    labels = _masks(labels, n_classes)
    _check_em(max_iterations, smoothing)
    parts = []
    for some in [labels] if pooled else _chunks(labels, n_classes):
        patterns = Patterns(some, n_classes)
        counts = patterns.counts(each=not pooled, where=_union_box(some, pooled) if box else None)
        em = EM(patterns, counts, smoothing=smoothing, keep_prior=True)
        steps = em.run(max_iterations, tolerance)
        p = patterns.look_up(em.W)  # (N, L, H, W)
        parts.append(
            (p, em.matrices(), torch.from_numpy(em.prior), patterns.n_labels(), steps, em.several, em.doubts())
        )
    found = _joined(parts)
    _warn_alone(np.concatenate([part[5] for part in parts]))
    warn_doubtful("STAPLE", [part[6] for part in parts])
    return _warned(found, "STAPLE")


def spatial_staple(
    labels: Tensor,
    n_classes: int,
    *,
    window: int = 9,
    prior_weight: float = 1.0,
    max_iterations: int = 500,
    tolerance: float = 1e-3,
) -> Fused:
    """STAPLE in windows: matrices that change from place to place.

    Each block of window / 3 pixels has an EM of its own, over the window round it, started at the image's STAPLE. That
    global matrix also counts as `prior_weight` further pixels of each class, and stands alone where a window holds
    nothing. The class prior is the window's label shares. Between the middles of blocks the answers are blended.
    Source: Asman & Landman 2012. Differs: they blend the matrices, we the posteriors.
    Arguments: labels (N, R, H, W) or (R, H, W); window in pixels, a multiple of 3.
    Returns: Fused, p float32, A (N, R, L, L, h, w) and prior (N, L, h, w): one for each block.
    Raises: ValueError for another window or a negative weight; warns as `dawid_skene`.
    """
    labels = _masks(labels, n_classes)
    _check_em(max_iterations, prior_weight)
    if window < 3 or window % 3:
        raise ValueError(f"`window` must be a positive multiple of 3 pixels; got {window}.")
    side, parts = window // 3, []
    h, w = -(-labels.shape[2] // side), -(-labels.shape[3] // side)
    for some in _chunks(labels, n_classes, h * w):
        patterns, n = Patterns(some, n_classes), len(some)
        world = EM(patterns, patterns.counts(each=True), smoothing=0.01, keep_prior=True)
        world.run(5000, 1e-6)
        blocks = np.pad(patterns.block_counts(side), ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = sum(blocks[:, :, a : a + h, b : b + w] for a in range(3) for b in range(3))  # (U, n, h, w)
        spread = lambda x, axis: np.repeat(x, h * w, axis)  # noqa: E731
        em = EM(
            patterns,
            windows.reshape(patterns.U, -1),
            smoothing=prior_weight * spread(world.A, 2),
            keep_prior=True,
        )
        steps = em.run(max_iterations, tolerance)
        p = patterns.blend(em.W.reshape(patterns.U, n, h, w, n_classes), side)
        A = em.matrices().unflatten(0, (n, h, w)).movedim((1, 2), (-2, -1))  # (n, R, L, L, h, w)
        prior = torch.from_numpy(em.prior).unflatten(0, (n, h, w)).movedim(-1, 1)  # (n, L, h, w)
        parts.append((p, A, prior, patterns.n_labels(), steps, world.several, em.doubts(n)))
    _warn_alone(np.concatenate([part[5] for part in parts]))
    warn_doubtful("Spatial STAPLE", [part[6] for part in parts])
    return _warned(_joined(parts), "Spatial STAPLE")


def _checked(labels: Tensor, n_classes: int) -> Tensor:
    """As integers with MISSING; whole tensors of legal integers pass as they are, without a copy."""
    if isinstance(labels, np.ndarray) and labels.dtype in (np.uint8, np.int64):
        labels = torch.from_numpy(labels)
    if (
        isinstance(labels, Tensor)
        and labels.numel()
        and labels.dtype in (torch.uint8, torch.int64)
        and isinstance(n_classes, int)
        and n_classes > 1
        and MISSING <= int(labels.min()) <= int(labels.max()) < n_classes
    ):
        found = labels.cpu()
    else:
        found = as_labels(labels, n_classes)
    if found.numel() and int(found.max()) == MISSING:
        raise ValueError("`labels` holds no label at all; is the missing code right?")
    if found.ndim < 2 or not found.numel():
        raise ValueError(f"`labels` must be (N, R) or (N, R, H, W), one column an annotator; got {tuple(found.shape)}.")
    return found


def _masks(labels: Tensor, n_classes: int) -> Tensor:
    labels = _checked(labels, n_classes)
    if labels.ndim not in (3, 4):
        raise ValueError(f"`labels` must be (N, R, H, W), or (R, H, W) for one image; got {tuple(labels.shape)}.")
    return labels if labels.ndim == 4 else labels[None]


def _check_em(max_iterations: int, smoothing: float) -> None:
    if max_iterations < 1 or smoothing < 0:
        raise ValueError(f"wanted max_iterations >= 1 and smoothing >= 0; got {max_iterations} and {smoothing}.")


def _chunks(labels: Tensor, n_classes: int, groups: int = 1, cells: int = 4_000_000) -> Sequence[Tensor]:
    """Images in parts, so that patterns x groups x classes stay a few megabytes."""
    U = min((n_classes + 1) ** labels.shape[1], labels[0, 0].numel())
    return labels.split(max(1, cells // (U * groups * n_classes)))


def _union_box(labels: Tensor, pooled: bool) -> Tensor:
    """(N, H, W) bool: the rectangle round all that was marked, in each image or, pooled, round the whole stack."""
    marked = (labels > 0).any(1)  # (N, H, W)
    if not pooled:
        rows, columns = marked.any(2), marked.any(1)
        return _hull(rows)[:, :, None] & _hull(columns)[:, None]
    z, y, x = marked.any(2).any(1), marked.any(2).any(0), marked.any(1).any(0)
    return _hull(z)[:, None, None] & _hull(y)[:, None] & _hull(x)


def _hull(marked: Tensor) -> Tensor:
    """Everything between the first and the last True of the last axis; all of it where there is none."""
    between = marked.cumsum(-1).bool() & marked.flip(-1).cumsum(-1).flip(-1).bool()
    return between | ~marked.any(-1, keepdim=True)


def _joined(parts: list[tuple]) -> Fused:
    tensors = [torch.cat(column) if len(column) > 1 else column[0] for column in list(zip(*parts, strict=True))[:4]]
    settled, iterations, change = zip(*(part[4] for part in parts), strict=True)
    return Fused(*tensors, all(settled), max(iterations), max(change))


def _warn_alone(several: np.ndarray) -> None:
    if not several.all():
        of = "" if len(several) == 1 else f" in {(~several).sum()} of {len(several)} images"
        warnings.warn(
            f"no item has two labels{of}: the labels stand, and reliability is not identifiable.", stacklevel=3
        )


def _warned(found: Fused, name: str) -> Fused:
    prior = found.prior if found.prior.ndim > 1 else found.prior[None]  # (G, L, ...)
    if unsaid := [k for k in range(prior.shape[1]) if not (prior[:, k] > 0).any()]:
        warnings.warn(f"nobody ever said {unsaid}: no sensitivity for such a class, it is NaN.", stacklevel=3)
    if not found.converged:
        warnings.warn(f"{name} still moved by {found.change:.1e} after {found.iterations} iterations.", stacklevel=3)
    return found


def _counts(labels: Tensor, n_classes: int) -> Tensor:
    """(N, L, *S) float64: how often each class was said."""
    labels = _checked(labels, n_classes)
    return torch.stack([(labels == k).sum(1, dtype=torch.float64) for k in range(n_classes)], 1)
