"""What labels alone tell of annotators and of the truth, as one dictionary that JSON can hold."""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from .. import fusion
from ..agreement import ratings
from ..annotations import MISSING, Annotations
from ..confusion import dominance, skills
from ..diagnose import identifiability_warnings
from ..metrics import accuracy, pairwise_dice
from ..patterns import Patterns
from . import advice
from .held_out import (
    CASES,
    EACH,
    IN_WORDS,
    NETWORKS,
    PLACES,
    SHARED,
    VOTE,
    choice,
    compare_labels,
    compare_masks,
    fuse_cases,
    smoothing_for,
)

DOUBTED, CERTAIN = 20, 0.01
"""So many items, those most in doubt, are listed, but none whose doubt is less than this."""

DOUBT = (
    "the fused label is wrong with a probability above 0.2, if the model is right",
    "more than a fifth of the labels speak against the vote",
)
"""What it means that an item is in doubt: by a model, and by the vote, which knows shares and no probabilities."""

NOT_COMPARED = "too few labels could be laid aside"

FEW = 40
"""Up to so many annotators are compared pair by pair."""


@dataclass(frozen=True, eq=False)
class Found:
    """summary: all that is said, for JSON and the page; p (N, L, *S): the fused truth; A (R, L, L): the matrices."""

    summary: dict[str, Any]
    p: Tensor
    A: Tensor


def analyse(data: Annotations, *, networks: bool = True, progress: bool = True) -> Found:
    """Agreement, skills, matrices, warnings, which model fits, the fused truth, the items in doubt, what to do next.

    networks: where `data` has pictures, train the book's networks and compare them, too; progress: bars meanwhile.
    Raises: ValueError for a single annotator, of whom labels alone tell nothing, and for masks of which no two meet.
    """
    _check_comparable(data)
    masks = data.labels.ndim == 4
    cases = cases_of(data)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        each = fusion.staple(data.labels, data.n_classes, pooled=True) if masks else _dawid_skene(data.labels, data)
        A = each.A[0] if masks else each.A
        window = _window(data)
        nets, absent = _networks(data, networks, progress, dominance(A) > 0)
        compared = lambda nets: (  # noqa: E731
            compare_masks(data, cases, window=window, networks=nets) if masks else compare_labels(data, nets)
        )
        try:
            fits = compared(nets)
        except FloatingPointError as error:
            nets, absent = None, f"a training broke off ({str(error).split('.')[0]})"
            fits = compared(None)
        chosen = choice(fits)
        if chosen in NETWORKS:
            p, A = nets.fused(chosen)
        else:
            p = _fused(data, chosen, each, cases, window)
    summary = {
        "kind": "masks" if masks else "classes",
        "items": data.n_items,
        "cases": len(cases),
        "classes": list(data.classes) or [str(k) for k in range(data.n_classes)],
        "labels": int(_labelled(data).sum()),
        "agreement": _agreement(data),
        "annotators": _annotators(data, A, p),
        "matrices": {name: matrix.tolist() for name, matrix in zip(data.names, A, strict=True)},
        "dominance": dominance(A),
        "warnings": identifiability_warnings(data, A) + list(dict.fromkeys(str(w.message) for w in heard)),
        "held_out": [{**asdict(fit), "half": _number(fit.half), "in_words": IN_WORDS[fit.model]} for fit in fits],
        "fused_by": chosen,
        "matrices_by": chosen if chosen in NETWORKS else "STAPLE" if masks else "Dawid-Skene",
        "networks": {
            "why_not": absent if nets is None or nets.runs else NOT_COMPARED,
            "runs": nets.runs if nets else [],
        },
        "fused": _certainty(data, p),
        "doubt": DOUBT[chosen == VOTE],
        "in_doubt": _in_doubt(data, p),
        "accuracy_on_given_truth": _accuracy(data, p, each),
    }
    summary["next"] = advice.sentences(summary)
    return Found(summary, p, A)


def _check_comparable(data: Annotations) -> None:
    if data.n_annotators < 2:
        raise ValueError(
            f"there is one annotator, {data.names[0]}; a report compares at least two. Is each annotator a column, "
            "a name in the annotator's column, or a folder?"
        )
    given = _labelled(data)  # (N, R)
    if data.labels.ndim == 4 and not (given.sum(1) > 1).any():
        names = data.item_names or [str(n) for n in range(data.n_items)]
        first = [f"{who}: {names[int(given[:, r].int().argmax())]}" for r, who in enumerate(data.names[:3])]
        raise ValueError(
            f"no case has masks by two annotators ({'; '.join(first)}); files of one case must have the same name in "
            "each annotator's folder."
        )


def _networks(data: Annotations, wanted: bool, progress: bool, dominant: bool) -> tuple[Any, str]:
    """What trains networks on these pictures; or None, and why not."""
    if not data.images.numel():  # nothing of what trains is imported then
        return None, "no pictures came along"
    if not wanted:
        return None, "they were switched off"
    from . import networks

    if why := networks.why_not(data):
        return None, why
    kind = networks.OfMasks if data.labels.ndim == 4 else networks.OfClasses
    return kind(data, progress, dominant), ""


def cases_of(data: Annotations) -> list[slice]:
    """Which items are one case: the slices of a volume, else each item by itself."""
    if not data.sources:
        return [slice(n, n + 1) for n in range(data.n_items)] if data.labels.ndim == 4 else []
    starts = [n for n, (_, z) in enumerate(data.sources) if z == 0]
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], data.n_items], strict=True)]


def _dawid_skene(labels: Tensor, data: Annotations, people: list[int] | None = None) -> fusion.Fused:
    return fusion.dawid_skene(labels, data.n_classes, people=people, smoothing=smoothing_for(data.n_classes))


def _window(data: Annotations) -> int:
    """Of spatial STAPLE: 9 pixels, or more where pictures are so many and large that the windows were too many."""
    if data.labels.ndim == 2:
        return 0
    pixels = data.labels[:, 0].numel()
    return 3 * max(3, math.ceil(math.sqrt(pixels / 50_000)))


def _fused(data: Annotations, model: str, each: fusion.Fused, cases: list[slice], window: int) -> Tensor:
    """(N, L, *S): p(truth) by the chosen model."""
    labels, L = data.labels, data.n_classes
    if model == EACH:
        return each.p
    if model == VOTE:
        return fusion.mean_label(labels, L)
    if model == CASES:
        return fuse_cases(labels, L, cases).p
    if model == PLACES:
        return fusion.spatial_staple(labels, L, window=window).p
    assert model == SHARED
    people = [0] * data.n_annotators
    if labels.ndim == 2:
        return _dawid_skene(labels, data, people).p
    flat = labels.movedim(1, -1)  # (N, H, W, R)
    p = _dawid_skene(flat.flatten(0, 2), data, people).p
    return p.unflatten(0, flat.shape[:3]).movedim(-1, 1).float()


def _labelled(data: Annotations) -> Tensor:
    """(N, R) bool: whether an annotator labelled an item."""
    return data.observed.flatten(2).any(2) if data.labels.ndim == 4 else data.observed


def _agreement(data: Annotations) -> dict[str, Any]:
    said, times = data.labels, None
    if said.ndim == 4:
        patterns = Patterns(said, data.n_classes)
        said, times = torch.from_numpy(patterns.table), torch.from_numpy(patterns.counts()[:, 0])
    try:
        exact, kappa, alpha = ratings(said, times=times)
    except ValueError:
        exact = kappa = alpha = float("nan")
    found = {
        "of": "pixels" if data.labels.ndim == 4 else "items",
        "same_label": _number(exact),
        "fleiss_kappa": _number(kappa),
        "krippendorff_alpha": _number(alpha),
    }
    if data.labels.ndim == 4 and data.n_annotators <= FEW:
        table = pairwise_dice(data.labels, data.n_classes)
        found["dice"] = [[_number(x) for x in row] for row in table.tolist()]
        apart = table[~torch.eye(len(table), dtype=torch.bool)]
        found["mean_dice"] = _number(apart.nanmean())
    return found


def _annotators(data: Annotations, A: Tensor, p: Tensor) -> list[dict[str, Any]]:
    """Of each annotator: how many labels, skill, agreement with the fused truth, the worst confusion."""
    given, skill, fused = _labelled(data).sum(0).tolist(), skills(A).tolist(), p.argmax(1)
    classes = data.classes or [str(k) for k in range(data.n_classes)]
    n, r, *place = data.observed.nonzero(as_tuple=True)
    same = (data.labels[n, r, *place] == fused[n, *place]).double()
    agrees = torch.bincount(r, weights=same, minlength=data.n_annotators) / torch.bincount(r, minlength=len(given))
    found = []
    for r, name in enumerate(data.names):
        off = A[r] - 2 * torch.eye(data.n_classes, dtype=A.dtype)
        i, j = divmod(int(off.argmax()), data.n_classes)
        found.append(
            {
                "name": name,
                "labels": given[r],
                "skill": skill[r],
                "diagonal": A[r].diagonal().tolist(),
                "agrees_with_fused": _number(agrees[r]),
                "worst_confusion": {"says": classes[i], "truth": classes[j], "probability": float(A[r, i, j])},
            }
        )
        if data.labels.ndim == 4:
            said, seen = data.labels[:, r], data.observed[:, r]
            area = float((fused > 0)[seen].sum())
            found[-1]["area_ratio"] = float((said > 0).sum()) / area if area else None
    return found


def _certainty(data: Annotations, p: Tensor) -> dict[str, Any]:
    """How often each class is the fused label, and how likely a fused label is wrong, on the mean."""
    wrong, heard = 1 - p.amax(1), data.observed.any(1)
    labels = p.argmax(1)[heard]
    share = torch.bincount(labels.flatten(), minlength=data.n_classes).double() / max(labels.numel(), 1)
    wrong = wrong[heard]
    return {
        "share_of_classes": share.tolist(),
        "expected_errors": float(wrong.double().mean()),
        "share_in_doubt": float((wrong > 0.2).double().mean()),
    }


def doubt(data: Annotations, p: Tensor) -> Tensor:
    """(N,): how likely the fused label is wrong; of masks, how many pixels are expected to be."""
    wrong = torch.where(data.observed.any(1), 1 - p.amax(1), 0)
    return wrong if wrong.ndim == 1 else wrong.flatten(1).sum(1)


def _in_doubt(data: Annotations, p: Tensor) -> list[dict[str, Any]]:
    wrong = doubt(data, p)
    classes = data.classes or [str(k) for k in range(data.n_classes)]
    found = []
    for n in wrong.argsort(descending=True, stable=True)[:DOUBTED].tolist():
        if wrong[n] < CERTAIN:
            break
        entry = {"index": n, "item": str(data.item_names[n] if data.item_names else n)}
        if data.labels.ndim == 4:
            marked = int((p[n].argmax(0) > 0).sum())
            entry |= {"expected_wrong_pixels": float(wrong[n]), "fused_pixels": marked}
        else:
            said = {data.names[r]: classes[k] for r, k in enumerate(data.labels[n].tolist()) if k != MISSING}
            order = p[n].argsort(descending=True)[:3].tolist()
            entry |= {"label": classes[order[0]], "p": {classes[k]: float(p[n, k]) for k in order}, "said": said}
        found.append(entry)
    return found


def _accuracy(data: Annotations, p: Tensor, each: fusion.Fused) -> dict[str, float]:
    """Against the truth that came with the labels, which no model has read."""
    if data.truth is None or not (known := data.truth != MISSING).any():
        return {}
    voted = fusion.majority(data.labels, data.n_classes)
    named = {"vote": voted, EACH: each.labels, "fused": p.argmax(1)}
    return {"items": int(known.sum())} | {k: accuracy(v[known], data.truth[known]) for k, v in named.items()}


def _number(x: Tensor | float) -> float | None:
    """NaN is no number in JSON."""
    return float(x) if math.isfinite(float(x)) else None
