"""How good are the truth and the matrices? Every function checks shapes, and says what it counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import avg_pool2d

from .annotations import MISSING, as_labels, spoken
from .confusion import check_cm, skills


def accuracy(predicted: Tensor, truth: Tensor) -> float:
    """Share of items whose class is right: both (N,) or (N, H, W) integers.

    Raises: ValueError for unequal shapes; (N, 1) against (N,) would compare every item with every other.

    >>> accuracy(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]))  # doctest: +ELLIPSIS
    0.666...
    """
    predicted, truth = torch.as_tensor(predicted), torch.as_tensor(truth)
    if predicted.shape != truth.shape:
        raise ValueError(
            f"`predicted` and `truth` must have one shape; got {tuple(predicted.shape)} and {tuple(truth.shape)}. "
            "Labels of shape (N, 1) need labels[:, 0]."
        )
    if predicted.numel() == 0:
        raise ValueError("no items to compare: the accuracy of nothing is not a number.")
    return float((predicted == truth).float().mean())


def annotator_accuracy(labels: Tensor, truth: Tensor) -> Tensor:
    """Share of each annotator's own labels that are right: labels (N, R), truth (N,) -> (R,); NaN where none."""
    _one_truth_each(labels, truth)
    seen = spoken(labels)
    return ((labels == truth[:, None]) & seen).sum(0) / seen.sum(0)  # (R,); 0 / 0 is NaN in torch


def cm_error(A: Tensor, A_hat: Tensor) -> float:
    """Mean squared distance of matrices: (1 / (R L)) sum_r sum_ij (a_ij - â_ij)^2.

    Source: Tanno 2019, section 3.2. Differs: the paper says the range is [0, 1]; the largest value is 2 (every class
    called by another's name, against the identity). Arguments: both (R, L, L).

    >>> cm_error(torch.eye(3)[None], torch.eye(3)[[1, 2, 0]][None])
    2.0
    """
    A, A_hat = check_cm(A), check_cm(A_hat)
    if A.shape != A_hat.shape:
        raise ValueError(f"both must be (R, L, L); got {tuple(A.shape)} and {tuple(A_hat.shape)}.")
    return float(((A - A_hat) ** 2).sum((-2, -1)).mean() / A.shape[-1])


def skill_mae(A: Tensor, A_hat: Tensor) -> float:
    """Mean absolute error of the R skills (means of the diagonals)."""
    A, A_hat = check_cm(A), check_cm(A_hat)
    if A.shape != A_hat.shape:
        raise ValueError(f"both must be (R, L, L); got {tuple(A.shape)} and {tuple(A_hat.shape)}.")
    return float((skills(A) - skills(A_hat)).abs().mean())


def pairwise_agreement(labels: Tensor) -> Tensor:
    """Share of common items on which two annotators say the same: labels (N, R) -> (R, R); NaN without any."""
    seen = spoken(labels)
    same = (labels[:, :, None] == labels[:, None]) & seen[:, :, None] & seen[:, None]  # (N, R, R)
    return same.sum(0) / (seen[:, :, None] & seen[:, None]).sum(0)  # (R, R)


@dataclass(frozen=True)
class Overlap:
    """Per class: score (L,), NaN where no image counted, and count (L,), how many did. Class 0 is the background."""

    score: Tensor
    count: Tensor

    @property
    def foreground(self) -> float:
        """Mean over the classes but the background. An all-background answer gets no credit here."""
        return float(self.score[1:].nanmean())

    @property
    def macro(self) -> float:
        """Mean over all classes, the background too: .48 for an empty answer, when an object fills a twentieth."""
        return float(self.score.nanmean())


def dice(
    predicted: Tensor, truth: Tensor, n_classes: int = 2, *, empty: float = math.nan, pooled: bool = False
) -> Overlap:
    """Dice = 2 |P and T| / (|P| + |T|) of each class: the mean over images, or of all pixels together.

    Arguments: both (N, H, W) integers; pixels whose truth is MISSING are left out. empty: the score of an image in
    which neither has the class; NaN leaves that image out of the mean and of the count. pooled: one image of all
    pixels; big objects then outweigh small ones.
    Raises: ValueError for unequal shapes and for values that are no class.

    >>> dice(torch.tensor([[[0, 1, 1, 0]]]), torch.tensor([[[0, 1, 0, 0]]])).foreground  # doctest: +ELLIPSIS
    0.666...
    """
    both, one = _overlaps(predicted, truth, n_classes, pooled)
    return _averaged(2 * both, one, empty)


def iou(
    predicted: Tensor, truth: Tensor, n_classes: int = 2, *, empty: float = math.nan, pooled: bool = False
) -> Overlap:
    """Intersection over union = |P and T| / |P or T| of each class; else as `dice`.

    >>> iou(torch.tensor([[[0, 1, 1, 0]]]), torch.tensor([[[0, 1, 0, 0]]])).foreground
    0.5
    """
    both, one = _overlaps(predicted, truth, n_classes, pooled)
    return _averaged(both, one - both, empty)


def pairwise_dice(labels: Tensor, n_classes: int = 2) -> Tensor:
    """Foreground Dice of every two annotators over the images both marked: (N, R, H, W) -> (R, R); NaN without any."""
    R = labels.shape[1]
    found = torch.full((R, R), torch.nan)
    for r in range(R):
        for s in range(r, R):
            common = ((labels[:, r] != MISSING) & (labels[:, s] != MISSING)).flatten(1).any(1)
            if common.any():
                found[r, s] = found[s, r] = dice(labels[common, r], labels[common, s], n_classes).foreground
    return found


def cm_rmse(columns: Tensor, target: Tensor, truth: Tensor) -> float:
    """How far predicted matrices are off at each pixel, in the one column that exists there: that of its true class.

    sqrt of the mean over classes of the mean over that class's pixels, images, annotators and i of (said - target)^2.
    So the background does not drown the rest; a class that is nowhere is left out. Source: Zhang 2020, section 4.
    Differs: the public code of that paper compares a joint [truth, said] with a conditional, of the last image only.
    Arguments: columns, target (N, R, L, H, W), p(says i | true class); truth (N, H, W). Returns: 0 to 1 at L = 2.

    >>> cm_rmse(torch.tensor([[.9, .6], [.1, .4]]).reshape(1, 1, 2, 1, 2), torch.eye(2).reshape(1, 1, 2, 1, 2),
    ...         torch.tensor([[[0, 1]]]))  # sqrt((.1^2 + .6^2) / 2)  # doctest: +ELLIPSIS
    0.430...
    """
    if columns.shape != target.shape or columns.ndim != 5 or truth.shape != (len(target), *target.shape[3:]):
        raise ValueError(
            f"wanted columns and target (N, R, L, H, W) beside truth (N, H, W); got {tuple(columns.shape)}, "
            f"{tuple(target.shape)} and {tuple(truth.shape)}."
        )
    off = ((columns - target) ** 2).mean((1, 2))  # (N, H, W)
    return math.sqrt(sum(float(off[truth == k].mean()) for k in truth.unique()) / len(truth.unique()))


def best_constant(target: Tensor, truth: Tensor) -> Tensor:
    """The columns (N, R, L, H, W) of the best matrices that are the same everywhere: each class's mean target."""
    columns = torch.empty_like(target)
    for k in truth.unique():
        there = (truth == k)[:, None, None]  # (N, 1, 1, H, W)
        mean = (target * there).sum((0, 3, 4)) / there.sum()  # (R, L)
        columns = torch.where(there, mean[None, :, :, None, None], columns)
    return columns


def distances(a: Tensor, b: Tensor, n_classes: int = 2, *, by: str = "iou") -> Tensor:
    """How far apart masks (N, S, H, W) and (N, T, H, W) are, 1 - IoU or 1 - Dice, the mean over classes but the
    background: (N, S, T), 0 to 1; two masks that both lack a class are 0 apart in it. NaN where either is MISSING.

    >>> distances(torch.tensor([[[[1, 1, 0]], [[0, 0, 0]]]]), torch.tensor([[[[0, 1, 0]], [[0, 0, 0]]]]))
    tensor([[[0.5000, 1.0000],
             [1.0000, 0.0000]]])
    """
    if by not in ("iou", "dice"):
        raise ValueError(f"`by` must be 'iou' or 'dice'; got {by!r}.")
    if a.ndim != 4 or b.ndim != 4 or len(a) != len(b) or a.shape[2:] != b.shape[2:]:
        raise ValueError(
            f"wanted masks (N, S, H, W) and (N, T, H, W) of the same pictures; got {tuple(a.shape)} and "
            f"{tuple(b.shape)}. A single mask a picture is masks[:, None]."
        )
    a, b = as_labels(a, n_classes, what="a"), as_labels(b, n_classes, what="b")
    far = torch.zeros(len(a), a.shape[1], b.shape[1])
    for k in range(1, n_classes):
        one, two = ((x == k).flatten(2).float() for x in (a, b))  # (N, S, pixels)
        both = torch.einsum("nsp,ntp->nst", one, two)
        total = one.sum(2)[:, :, None] + two.sum(2)[:, None]  # (N, S, T)
        near = 2 * both / total if by == "dice" else both / (total - both)
        far += torch.where(total > 0, 1 - near, 0) / (n_classes - 1)
    absent = [(x == MISSING).flatten(2).all(2) for x in (a, b)]
    return far.masked_fill(absent[0][:, :, None] | absent[1][:, None], math.nan)


def ged(samples: Tensor, masks: Tensor, n_classes: int = 2, *, by: str = "iou", unbiased: bool = False) -> float:
    """Generalised energy distance, 2 E d(S, Y) - E d(S, S') - E d(Y, Y'), the mean over pictures: 0 for the same sets.

    Source: Kohl 2018, Eq. 3; d as `distances`. Differs from the public code of Zhang 2020, which adds similarities, so
    that a perfect answer has the highest number, and changes its arguments.
    Arguments: samples (N, S, H, W) of a model, masks (N, R, H, W) of people, MISSING where somebody was not asked.
    unbiased: leave out the pairs of a sample with itself, as a model that draws S masks at random needs, not one that
    gives one mask a person: else it looks worse the fewer it draws. May then lie below 0.
    """
    if unbiased and samples.shape[1] < 2:
        raise ValueError(f"without pairs of a sample with itself two samples are needed; got {samples.shape[1]}.")
    between = distances(samples, masks, n_classes, by=by).nanmean((1, 2))
    own = distances(samples, samples, n_classes, by=by)  # (N, S, S), 0 on the diagonal
    among = own.nanmean((1, 2)) * (samples.shape[1] / (samples.shape[1] - 1) if unbiased else 1)
    return float((2 * between - among - distances(masks, masks, n_classes, by=by).nanmean((1, 2))).nanmean())


def matched_iou(samples: Tensor, masks: Tensor, n_classes: int = 2) -> float:
    """Mean IoU of the best one-to-one match of samples (N, S, H, W) with masks (N, R, H, W), the mean over pictures.

    If there are more of one, each set is repeated until both are as large (the least common multiple).
    Source: Kohl 2019, the Hungarian-matched IoU.
    """
    apart, scores = distances(samples, masks, n_classes), []
    for one in apart:
        there = one[~one.isnan().all(1)][:, ~one.isnan().all(0)]
        if there.numel():
            S, T = there.shape
            whole = there.repeat_interleave(math.lcm(S, T) // S, 0).repeat_interleave(math.lcm(S, T) // T, 1)
            rows, columns = linear_sum_assignment(whole.numpy())
            scores.append(1 - float(whole[rows, columns].mean()))
    return float(torch.tensor(scores).mean())


def _overlaps(predicted: Tensor, truth: Tensor, n_classes: int, pooled: bool) -> tuple[Tensor, Tensor]:
    """(N, L) pixels of each class in both, and the sum of those in either."""
    predicted, truth = as_labels(predicted, n_classes, what="predicted"), as_labels(truth, n_classes, what="truth")
    if predicted.shape != truth.shape or truth.ndim != 3 or not truth.numel():
        raise ValueError(
            f"`predicted` and `truth` must both be (N, H, W), one at least; got {tuple(predicted.shape)} and "
            f"{tuple(truth.shape)}. For a single picture write mask[None]."
        )
    seen = (truth != MISSING) & (predicted != MISSING)
    image = torch.zeros(len(truth), 1, 1, dtype=torch.long) if pooled else torch.arange(len(truth))[:, None, None]
    pairs = ((image * n_classes + predicted) * n_classes + truth)[seen]
    table = torch.bincount(pairs, minlength=(1 if pooled else len(truth)) * n_classes**2)
    table = table.view(-1, n_classes, n_classes)  # (N, predicted, truth)
    return table.diagonal(dim1=1, dim2=2), table.sum(1) + table.sum(2)


def _averaged(part: Tensor, whole: Tensor, empty: float) -> Overlap:
    scores = torch.where(whole > 0, part / whole.clamp(min=1), empty)  # (N, L)
    return Overlap(scores.nanmean(0), (~scores.isnan()).sum(0))


def calibration_error(log_p: Tensor, truth: Tensor, *, bins: int = 10) -> float:
    """Expected calibration error: mean |accuracy - confidence| over bins of confidence, weighted by their size.

    Arguments: log_p (N, L), truth (N,). Returns: 0 (honest) to 1.
    """
    _one_truth_each(log_p, truth)
    confidence, predicted = log_p.exp().max(1)
    right = (predicted == truth).float()
    which = (confidence * bins).long().clamp(max=bins - 1)  # (N,)
    gap = torch.zeros(bins).index_add_(0, which, right - confidence)
    return float(gap.abs().sum() / len(truth))


def _one_truth_each(items: Tensor, truth: Tensor) -> None:
    if truth.shape != items.shape[:1]:
        raise ValueError(
            f"`truth` must be (N,) = ({len(items)},); got {tuple(truth.shape)}. A column needs truth[:, 0]."
        )


def soft_dice(log_p: Tensor, truth: Tensor, least: int) -> float:
    """Mean over thresholds .1, .3, .5, .7, .9 of the Dice of {p(class >= least) > threshold} with {truth >= least}.

    Source: Wu et al., section 5.2, after Ji 2021. Arguments: log_p (N, L, H, W), truth (N, H, W). `least` 1: the disc.
    """
    p, marked = log_p.exp()[:, least:].sum(1), truth >= least  # (N, H, W)
    scores = []
    for threshold in (0.1, 0.3, 0.5, 0.7, 0.9):
        found = p > threshold
        both, total = (found & marked).sum((1, 2)), found.sum((1, 2)) + marked.sum((1, 2))
        scores.append(torch.where(total > 0, 2 * both / total.clamp(min=1), 1).mean())
    return float(torch.stack(scores).mean())


def ssim(a: Tensor, b: Tensor, *, window: int = 7) -> Tensor:
    """Structural similarity of maps a, b (B, L, H, W) in [0, 1]: 1 where they are equal, the mean over all windows.

    Source: Wang 2004, with flat windows. It is a similarity: 1 - ssim is the loss.
    """
    window = min(window, *a.shape[2:])
    mean = lambda x: avg_pool2d(x, window, 1)  # noqa: E731
    ma, mb = mean(a), mean(b)
    va, vb, cov = mean(a * a) - ma**2, mean(b * b) - mb**2, mean(a * b) - ma * mb
    near = (2 * ma * mb + 1e-4) * (2 * cov + 9e-4) / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4))
    return near.mean()
