"""Which model fits these annotators? The likelihood of labels that it did not see; no truth is needed.

A fifth of the items, or of the pixels, is laid aside; in small tables each fifth in turn. The model learns its matrices
from the rest, and foretells each label laid aside from what the others said of the same item:
log sum_j p(j | the others' labels) A[r, said, j].
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .. import fusion
from ..annotations import MISSING, Annotations
from ..confusion import count_matrices, log, said_rows
from ..networks import seeded

CHANCE, VOTE, SHARED, EACH = "class shares", "vote", "one shared matrix", "a matrix for each annotator"
CASES, PLACES = "STAPLE for each case", "spatial STAPLE"
IN_WORDS = {
    CHANCE: "nobody looks at the item: labels follow the shares of the classes",
    VOTE: "the vote of the others is the truth, and each annotator errs about it in a fixed way",
    SHARED: "all annotators make the same mistakes, equally often",
    EACH: "each annotator has a matrix of their own (Dawid-Skene; STAPLE where items are pixels)",
    CASES: "each annotator has a matrix for each case",
    PLACES: "an annotator's matrix changes from place to place in the picture",
}
"""The models, from the simplest on: among equals the earliest is taken."""

FOLDS, SMALL, PIXELS, CELLS = 5, 50_000, 200_000, 5_000_000


@dataclass(frozen=True)
class Fit:
    """score: mean log-likelihood of a label laid aside (nats); behind: by how much it is behind the best, with half
    its 95 % interval over items (NaN where there are fewer than five items)."""

    model: str
    score: float
    behind: float = 0.0
    half: float = 0.0


def smoothing_for(n_classes: int) -> float:
    """One label more for each class of truth, spread over what is said: what was never seen is rare, not impossible."""
    return 1 / n_classes


def compare_labels(data: Annotations) -> list[Fit]:
    """The models of labels (N, R), best first, on items with two labels or more. An empty list if there are too few."""
    labels, L = data.labels[data.observed.sum(1) > 1], data.n_classes
    if len(labels) < 2 * FOLDS:
        return []
    fold = torch.randperm(len(labels), generator=seeded(0)) % FOLDS
    scores: dict[str, list[Tensor]] = {name: [] for name in (CHANCE, VOTE, SHARED, EACH)}
    seen = [labels[fold == k] for k in range(FOLDS)]
    turns = FOLDS if data.n_observed <= SMALL else 1
    for k, aside in enumerate(seen[:turns]):
        rest = torch.cat(seen[:k] + seen[k + 1 :])
        for name, scored in _plain(rest, L, aside).items():
            scores[name].append(scored)
    observed = torch.cat(seen[:turns]) != MISSING
    return _ranked({name: torch.cat(parts) for name, parts in scores.items()}, observed, torch.arange(len(observed)))


def compare_masks(data: Annotations, cases: Sequence[slice], *, window: int) -> list[Fit]:
    """The models of masks (N, R, H, W), best first, on a fifth of the pixels; `cases`: which slices are one volume."""
    labels, L = data.labels, data.n_classes
    heard = (labels != MISSING).sum(1) > 1  # (N, H, W)
    aside = heard & (torch.rand(heard.shape, generator=seeded(0)) < 1 / FOLDS)
    n, y, x = aside.nonzero(as_tuple=True)
    if len(n) < 100:
        return []
    most = min(PIXELS, 4 * CELLS // (data.n_annotators * L * L))
    kept = torch.randperm(len(n), generator=seeded(1))[:most].sort().values
    n, y, x = n[kept], y[kept], x[kept]
    hidden, rest = labels[n, :, y, x], labels.movedim(1, -1)[heard & ~aside]  # (M, R) each
    scores = _plain(rest, L, hidden)
    masked = torch.where(aside[:, None], MISSING, labels)
    if len(cases) > 1:
        found = fuse_cases(masked, L, cases)
        scores[CASES] = _left_out(found.A[n], found.prior[n], hidden)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the whole data say is told of the whole data
        found = fusion.spatial_staple(masked, L, window=window)
    block = n, y // (window // 3), x // (window // 3)
    A = found.A.movedim((-2, -1), (1, 2))[block]  # (M, R, L, L)
    scores[PLACES] = _left_out(A, found.prior.movedim(1, -1)[block], hidden)
    owner = torch.empty(len(labels), dtype=torch.long)
    for k, where in enumerate(cases):
        owner[where] = k
    return _ranked(scores, hidden != MISSING, owner[n] if len(cases) >= 5 else n)


def choice(fits: Sequence[Fit]) -> str:
    """The simplest model that cannot be told from the best; the vote where nothing could be compared."""
    good = {fit.model for fit in fits if fit.behind == 0 or fit.behind <= fit.half}
    return next((model for model in IN_WORDS if model in good - {CHANCE}), VOTE)


def fuse_cases(labels: Tensor, n_classes: int, cases: Sequence[slice]) -> fusion.Fused:
    """STAPLE with the matrices of each case, given once for each of its slices: A (N, R, L, L), prior (N, L)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if all(where.stop - where.start == 1 for where in cases):
            return fusion.staple(labels, n_classes)
        parts = [(where.stop - where.start, fusion.staple(labels[where], n_classes, pooled=True)) for where in cases]
    join = lambda pick: torch.cat([pick(found, depth) for depth, found in parts])  # noqa: E731
    return fusion.Fused(
        join(lambda found, _: found.p),
        join(lambda found, depth: found.A.expand(depth, -1, -1, -1)),
        join(lambda found, depth: found.prior.expand(depth, -1)),
        join(lambda found, _: found.n_labels),
        all(found.converged for _, found in parts),
        max(found.iterations for _, found in parts),
        max(found.change for _, found in parts),
    )


def vote(labels: Tensor, n_classes: int) -> Tensor:
    """(N, L): the class that most said, shared by those that tie."""
    shares = fusion.mean_label(labels, n_classes)
    most = (shares == shares.max(1, keepdim=True).values).double()
    return most / most.sum(1, keepdim=True)


def _plain(rest: Tensor, L: int, aside: Tensor) -> dict[str, Tensor]:
    """The models that know no place: learned from labels `rest` (N, R), scores of the labels `aside` (M, R)."""
    few = smoothing_for(L)
    shares = torch.stack([(rest == k).sum() for k in range(L)]).double() + few
    found = {CHANCE: log(shares / shares.sum())[aside.clamp(min=0)]}
    voted = count_matrices(rest, vote(rest, L), smoothing=few)
    found[VOTE] = _by_vote(log(voted), aside, L)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, people in ((SHARED, [0] * rest.shape[1]), (EACH, None)):
            fit = fusion.dawid_skene(rest, L, people=people, smoothing=few)
            found[name] = _left_out(fit.A[None], fit.prior[None], aside)
    return found


def _left_out(A: Tensor, prior: Tensor, labels: Tensor) -> Tensor:
    """Log-likelihood of each label (M, R), given the other labels of its item: A (M|1, R, L, L), prior (M|1, L)."""

    def score(log_A: Tensor, log_prior: Tensor, part: Tensor) -> Tensor:
        rows = torch.where((part != MISSING)[:, :, None], said_rows(log_A, part), 0)  # (M, R, L)
        others = ((log_prior + rows.sum(1))[:, None] - rows).log_softmax(2)
        return (others + rows).logsumexp(2)

    return _in_parts(score, log(A.double()), log(prior.double()), labels)


def _by_vote(log_A: Tensor, labels: Tensor, L: int) -> Tensor:
    """As `_left_out`, where the truth is the vote of the others, and any class where there are no others."""

    def score(log_A: Tensor, part: Tensor) -> Tensor:
        one = torch.stack([part == k for k in range(L)], 2).double()  # (M, R, L)
        others = one.sum(1, keepdim=True) - one
        most = (others == others.max(2, keepdim=True).values).double()
        return (log(most / most.sum(2, keepdim=True)) + said_rows(log_A, part)).logsumexp(2)

    return _in_parts(score, log_A[None], labels)


def _in_parts(score: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """score(...) over few items at a time, so that items x annotators x classes stay in memory."""
    labels, L = tensors[-1], tensors[0].shape[-1]
    step = max(1, CELLS // (labels.shape[1] * L))
    pick = lambda x, k: x if len(x) == 1 and len(labels) > 1 else x[k : k + step]  # noqa: E731
    return torch.cat([score(*(pick(x, k) for x in tensors)) for k in range(0, len(labels), step)])


def _ranked(scores: dict[str, Tensor], observed: Tensor, owner: Tensor) -> list[Fit]:
    """Best first. scores (M, R) of each model; `owner` (M,): items of one owner are not independent."""
    total = {name: torch.where(observed, score, 0).sum(1) for name, score in scores.items()}  # (M,)
    count = observed.sum(1).double()
    mean = {name: float(s.sum() / count.sum()) for name, s in total.items()}
    best = max(mean, key=mean.get)
    groups, per = len(owner.unique()), int(owner.max()) + 1
    found = []
    for name, score in mean.items():
        behind = mean[best] - score
        off = total[best] - total[name] - behind * count
        summed = torch.zeros(per, dtype=torch.double).index_add_(0, owner, off)
        half = 1.96 * float(summed.square().sum().sqrt() / count.sum()) if groups >= 5 else float("nan")
        found.append(Fit(name, score, behind, half if np.isfinite(half) else float("nan")))
    return sorted(found, key=lambda fit: -fit.score)
