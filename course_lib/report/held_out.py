"""Which model fits these annotators? The likelihood of labels that it did not see; no truth is needed.

A fifth of the items, or of the pixels, is laid aside; in small tables each fifth in turn. The model learns its matrices
from the rest, and foretells each label laid aside from what the others said of the same item:
log sum_j p(j | the others' labels) A[r, said, j].
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .. import fusion
from ..annotations import MISSING, Annotations
from ..confusion import count_matrices, log, posterior
from ..networks import seeded

if TYPE_CHECKING:
    from .networks import OfClasses, OfMasks

CHANCE, VOTE, SHARED, EACH = "class shares", "vote", "one shared matrix", "a matrix for each annotator"
CASES, PLACES = "STAPLE for each case", "spatial STAPLE"
NET_SHARED, NET_EACH = "network with one shared matrix", "network with a matrix for each annotator"
NET_PIXELS = "network with a matrix for each pixel"
NETWORKS = (NET_SHARED, NET_EACH, NET_PIXELS)
"""These look at the pictures, where there are some: see `networks`."""

IN_WORDS = {
    CHANCE: "nobody looks at the item: labels follow the shares of the classes",
    VOTE: "the vote of the others is the truth, and each annotator errs about it in a fixed way",
    SHARED: "all annotators make the same mistakes, equally often",
    EACH: "each annotator has a matrix of their own (Dawid-Skene; STAPLE where items are pixels)",
    CASES: "each annotator has a matrix for each case",
    PLACES: "an annotator's matrix changes from place to place in the picture",
    NET_SHARED: "the picture tells of the truth; all annotators make the same mistakes",
    NET_EACH: "the picture tells of the truth; each annotator has a matrix of their own",
    NET_PIXELS: "the picture tells of the truth, and of where each annotator errs",
}
"""The models, from the simplest on: among equals the earliest is taken."""

FOLDS, SMALL, PIXELS, CELLS = 5, 50_000, 200_000, 5_000_000


@dataclass(frozen=True)
class Fit:
    """score: mean log-likelihood of a label laid aside (nats); behind: by how much it is behind the best, with half
    its 95 % interval over items (NaN where there are fewer than five items); lost: why it must not be taken, however
    well it scores. The best is the best of those that are not lost."""

    model: str
    score: float
    behind: float = 0.0
    half: float = 0.0
    lost: str = ""


def smoothing_for(n_classes: int) -> float:
    """One label more for each class of truth, spread over what is said: what was never seen is rare, not impossible."""
    return 1 / n_classes


def flat(x: Tensor) -> Tensor:
    """(N, K, H, W) -> (N H W, K): pixels as items."""
    return x.movedim(1, -1).flatten(0, -2)


def each_label(labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(K,) three times: item, annotator and label of each label that there is. A crowd's table is nearly all gaps."""
    n, r = (labels != MISSING).nonzero(as_tuple=True)
    return n, r, labels[n, r]


def window_for(masks: Tensor) -> int:
    """Of spatial STAPLE: 9 pixels, or more where pictures are so many and large that the windows were too many."""
    return 3 * max(3, math.ceil(math.sqrt(masks[:, 0].numel() / 50_000)))


def dawid_skene(labels: Tensor, n_classes: int, *, shared: bool = False) -> fusion.Fused:
    """Of labels (N, R); shared: all annotators have one and the same matrix."""
    people = [0] * labels.shape[1] if shared else None
    return fusion.dawid_skene(labels, n_classes, people=people, smoothing=smoothing_for(n_classes))


def counted(log_p: Tensor, labels: Tensor, A: Tensor) -> Tensor:
    """The matrices (R, L, L), or (1, L, L) that all share, that EM finds from A on, while p(truth | picture) stays what
    a network says: log_p (P, L), labels (P, R). A training so short leaves matrices near their start, at the identity.
    """
    n, _, said = each_label(labels)
    R, shared = labels.shape[1], len(A) == 1
    for _ in range(10):  # in trials, entries then moved by 0.002 at most
        q = posterior(log(A).expand(R, -1, -1)[None], log_p, labels).exp().double()  # (P, L)
        # what all share is counted as if one annotator had given all labels
        heard, q = (said[:, None], q[n]) if shared else (labels, q)
        A = count_matrices(heard, q, smoothing=smoothing_for(q.shape[1])).float()
    return A


def compare_labels(data: Annotations, networks: OfClasses | None = None) -> list[Fit]:
    """The models of labels (N, R), best first, on items with two labels or more. An empty list if there are too few."""
    items, L = (data.observed.sum(1) > 1).nonzero().flatten(), data.n_classes
    if len(items) < 2 * FOLDS:
        return []
    fold = torch.randperm(len(items), generator=seeded(0)) % FOLDS
    parts = [items[fold == k] for k in range(FOLDS)]
    seen = [data.labels[part] for part in parts]
    turns = FOLDS if data.n_observed <= SMALL else 1
    found = [_plain(torch.cat(seen[:k] + seen[k + 1 :]), L, aside) for k, aside in enumerate(seen[:turns])]
    scores = {name: torch.cat([scored[name] for scored in found]) for name in found[0]}
    if networks is not None:
        scores |= networks.scores(parts[:turns])
    aside = torch.cat(seen[:turns])
    return _ranked(scores, aside, torch.arange(len(aside)), networks.lost if networks else {})


def compare_masks(data: Annotations, cases: Sequence[slice], networks: OfMasks | None = None) -> list[Fit]:
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
        _, A, prior = fuse_cases(masked, L, cases)
        scores[CASES] = left_out(A[n], prior[n], hidden)
    window = window_for(labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the whole data say is told of the whole data
        found = fusion.spatial_staple(masked, L, window=window)
    block = n, y // (window // 3), x // (window // 3)
    A = found.A.movedim((-2, -1), (1, 2))[block]  # (M, R, L, L)
    scores[PLACES] = left_out(A, found.prior.movedim(1, -1)[block], hidden)
    if networks is not None:
        scores |= networks.scores(aside, n, y, x)
    owner = torch.empty(len(labels), dtype=torch.long)
    for k, where in enumerate(cases):
        owner[where] = k
    return _ranked(scores, hidden, owner[n] if len(cases) >= 5 else n, networks.lost if networks else {})


def choice(fits: Sequence[Fit]) -> str:
    """The simplest model that cannot be told from the best; the vote where nothing could be compared."""
    good = {fit.model for fit in fits if not fit.lost and (fit.behind == 0 or fit.behind <= fit.half)}
    return next((model for model in IN_WORDS if model in good - {CHANCE}), VOTE)


def fuse_by(model: str, labels: Tensor, n_classes: int, cases: Sequence[slice]) -> Tensor:
    """(N, L, *S): p(truth) by the vote or a model of labels alone; of `EACH`, `dawid_skene` and STAPLE tell more."""
    if model == VOTE:
        return fusion.mean_label(labels, n_classes)
    if model == CASES:
        return fuse_cases(labels, n_classes, cases)[0]
    if model == PLACES:
        return fusion.spatial_staple(labels, n_classes, window=window_for(labels)).p
    if labels.ndim == 2:  # and `SHARED`, as below
        return dawid_skene(labels, n_classes, shared=True).p
    p = dawid_skene(flat(labels), n_classes, shared=True).p  # (N H W, L)
    return p.unflatten(0, (len(labels), *labels.shape[2:])).movedim(-1, 1).float()


def fuse_cases(labels: Tensor, n_classes: int, cases: Sequence[slice]) -> tuple[Tensor, Tensor, Tensor]:
    """STAPLE with the matrices of each case: p (N, L, H, W); A (N, R, L, L) and prior (N, L), once for each slice."""
    depths = torch.tensor([where.stop - where.start for where in cases])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if (depths == 1).all():
            found = fusion.staple(labels, n_classes)  # the same for pictures, all at once
            return found.p, found.A, found.prior
        parts = [fusion.staple(labels[where], n_classes, pooled=True) for where in cases]
    p, A, prior = (torch.cat([getattr(part, name) for part in parts]) for name in ("p", "A", "prior"))
    return p, A.repeat_interleave(depths, 0), prior.repeat_interleave(depths, 0)


def _votes(labels: Tensor, L: int) -> Tensor:
    """(N, L): how often each class was said of an item."""
    n, _, said = each_label(labels)
    return torch.bincount(n * L + said, minlength=len(labels) * L).reshape(-1, L).double()


def _winners(votes: Tensor) -> Tensor:
    """The class that most said has probability 1, or an equal part of it with those that tie."""
    most = (votes == votes.max(-1, keepdim=True).values).double()
    return most / most.sum(-1, keepdim=True)


def _plain(rest: Tensor, L: int, aside: Tensor) -> dict[str, Tensor]:
    """The models that know no place: learned from labels `rest` (N, R); (K,) scores of the labels in `aside` (M, R)."""
    few, (n, r, said), spoken = smoothing_for(L), each_label(rest), each_label(aside)[2]
    shares = torch.bincount(said, minlength=L).double() + few
    counts = torch.zeros(rest.shape[1] * L, L, dtype=torch.double)
    counts.index_add_(0, r * L + said, _winners(_votes(rest, L))[n])
    counts = counts.unflatten(0, (-1, L)) + few  # (R, L, L), as confusion.count_matrices
    found = {
        CHANCE: log(shares / shares.sum())[spoken],
        VOTE: _by_vote(log(counts / counts.sum(1, keepdim=True)), aside),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in (SHARED, EACH):
            fit = dawid_skene(rest, L, shared=name == SHARED)
            found[name] = left_out(fit.A[None], fit.prior[None], aside)
    return found


def left_out(A: Tensor, prior: Tensor, labels: Tensor) -> Tensor:
    """(K,): log-likelihood of each label in labels (M, R), row by row, given the other labels of its item.

    A (M|1, R, L, L), prior (M|1, L).
    """
    n, r, said = each_label(labels)
    of = n if len(A) > 1 else torch.zeros_like(n)
    rows = log(A[of, r, said].double())  # (K, L)
    total = log(prior.double()).expand(len(labels), -1).index_add(0, n, rows)
    return ((total[n] - rows).log_softmax(1) + rows).logsumexp(1)


def _by_vote(log_A: Tensor, labels: Tensor) -> Tensor:
    """As `left_out`, where the truth is the vote of the others, and any class where there are no others."""
    n, r, said = each_label(labels)
    others = _votes(labels, log_A.shape[-1])[n]  # (K, L)
    others[torch.arange(len(n)), said] -= 1
    return (log(_winners(others)) + log_A[r, said]).logsumexp(1)


def _ranked(scores: dict[str, Tensor], labels: Tensor, owner: Tensor, lost: dict[str, str]) -> list[Fit]:
    """Best first, but for lost ones. scores (K,) of labels (M, R); `owner` (M,): items of one are not independent."""
    owner = owner[each_label(labels)[0]]  # (K,)
    mean = {name: float(score.mean()) for name, score in scores.items()}
    best = max((name for name in mean if name not in lost), key=mean.get)
    groups, per = len(owner.unique()), int(owner.max()) + 1
    found = []
    for name, score in mean.items():
        behind = mean[best] - score
        off = scores[best] - scores[name] - behind
        summed = torch.zeros(per, dtype=torch.double).index_add_(0, owner, off)
        half = 1.96 * float(summed.square().sum().sqrt()) / len(off) if groups >= 5 else float("nan")
        found.append(Fit(name, score, behind, half, lost.get(name, "")))
    return sorted(found, key=lambda fit: -fit.score)
