"""What labels alone tell of annotators and of the truth, as one dictionary that JSON can hold."""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass, replace
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
from .held_out import EACH, IN_WORDS, NETWORKS, VOTE, Fit, choice, compare_labels, compare_masks, dawid_skene, fuse_by

DOUBTED, CERTAIN = 20, 0.01
"""So many items, those most in doubt, are listed, but none whose doubt is less than this."""

DOUBT_BY_MODEL = "the fused label is wrong with a probability above 0.2, if the model is right"
DOUBT_BY_VOTE = "more than a fifth of the labels speak against the vote"
"""What it means that an item is in doubt; the vote knows shares, and no probabilities."""

NOT_COMPARED = "too few labels could be laid aside"

FEW = 40
"""Up to so many annotators are compared pair by pair."""


@dataclass(frozen=True, eq=False)
class Found:
    """summary: all that is said, for JSON and the page; p (N, L, *S): the fused truth; A (R, L, L): the matrices."""

    summary: dict[str, Any]
    p: Tensor
    A: Tensor


@dataclass(frozen=True, eq=False)
class Compared:
    """each: Dawid-Skene, or STAPLE of masks; fits: the models; chosen: one of them, with its p (N, L, *S) and A
    (R, L, L); networks: which were trained, or why none."""

    each: fusion.Fused
    fits: list[Fit]
    chosen: str
    p: Tensor
    A: Tensor
    networks: dict[str, Any]


def analyse(data: Annotations, *, networks: bool = True, progress: bool = True) -> Found:
    """Agreement, skills, matrices, warnings, which model fits, the fused truth, the items in doubt, what to do next.

    networks: where `data` has pictures, train the book's networks and compare them, too; progress: bars meanwhile.
    Raises: ValueError for a single annotator, of whom labels alone tell nothing, and for masks of which no two meet.
    """
    _check_comparable(data)
    cases = cases_of(data)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        compared = _compared(data, cases, networks, progress)
    summary = _summary(data, cases, compared, list(dict.fromkeys(str(w.message) for w in heard)))
    summary["next"] = advice.sentences(summary)
    return Found(summary, compared.p, compared.A)


def _compared(data: Annotations, cases: list[slice], networks: bool, progress: bool) -> Compared:
    """By labels alone, too, if a training breaks off: one for the comparison, or one on all labels after it."""
    if data.labels.ndim == 4:
        each = fusion.staple(data.labels, data.n_classes, pooled=True)
        each = replace(each, A=each.A[0])  # (R, L, L), the same in all pictures
    else:
        each = dawid_skene(data.labels, data.n_classes)
    nets, why_not = _networks(data, networks, progress, dominance(each.A) > 0)
    try:
        return _chosen(data, cases, each, nets, why_not)
    except FloatingPointError as error:
        return _chosen(data, cases, each, None, f"a training broke off ({str(error).split('.')[0]})")


def _chosen(data: Annotations, cases: list[slice], each: fusion.Fused, nets: Any, why_not: str) -> Compared:
    fits = compare_masks(data, cases, nets) if data.labels.ndim == 4 else compare_labels(data, nets)
    chosen, A = choice(fits), each.A
    if chosen in NETWORKS:
        p, A = nets.fused(chosen)  # trained anew, on all labels
        if told := nets.lost.get(chosen):
            return _chosen(
                data, cases, each, None, f"the {chosen} lost the truth once it learned from all labels: {told}"
            )
    elif chosen == EACH:
        p = each.p
    else:
        p = fuse_by(chosen, data.labels, data.n_classes, cases)
    runs = nets.runs if nets else []
    if nets and not runs:
        why_not = NOT_COMPARED
    return Compared(each, fits, chosen, p, A, {"why_not": why_not, "runs": runs})


def _summary(data: Annotations, cases: list[slice], compared: Compared, heard: list[str]) -> dict[str, Any]:
    masks, chosen, p, A = data.labels.ndim == 4, compared.chosen, compared.p, compared.A
    return {
        "kind": "masks" if masks else "classes",
        "items": data.n_items,
        "cases": len(cases),
        "classes": _classes(data),
        "labels": int(_labelled(data).sum()),
        "agreement": _agreement(data),
        "annotators": _annotators(data, A, p),
        "matrices": {name: matrix.tolist() for name, matrix in zip(data.names, A, strict=True)},
        "dominance": dominance(A),
        "warnings": identifiability_warnings(data, A) + heard,
        "held_out": [asdict(f) | {"half": _number(f.half), "in_words": IN_WORDS[f.model]} for f in compared.fits],
        "fused_by": chosen,
        "matrices_by": chosen if chosen in NETWORKS else "STAPLE" if masks else "Dawid-Skene",
        "networks": compared.networks,
        "fused": _certainty(data, p),
        "doubt": DOUBT_BY_VOTE if chosen == VOTE else DOUBT_BY_MODEL,
        "in_doubt": _in_doubt(data, p),
        "accuracy_on_given_truth": _accuracy(data, p, compared.each),
    }


def _check_comparable(data: Annotations) -> None:
    if data.n_annotators < 2:
        raise ValueError(
            f"there is one annotator, {data.names[0]}; a report compares at least two. Is each annotator a column, "
            "a name in the annotator's column, or a folder?"
        )
    given = _labelled(data)  # (N, R)
    if data.labels.ndim == 4 and not (given.sum(1) > 1).any():
        items = _items(data)
        first = [f"{who}: {items[int(given[:, r].int().argmax())]}" for r, who in enumerate(data.names[:3])]
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
    if data.labels.ndim == 4:
        return networks.OfMasks(data, progress), ""
    return networks.OfClasses(data, progress, dominant=dominant), ""


def cases_of(data: Annotations) -> list[slice]:
    """Which items are one case: the slices of a volume, else each item by itself."""
    if not data.sources:
        return [slice(n, n + 1) for n in range(data.n_items)] if data.labels.ndim == 4 else []
    names = [case.name for case, _ in data.sources]
    starts = [n for n, name in enumerate(names) if n == 0 or name != names[n - 1]]
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], data.n_items], strict=True)]


def _classes(data: Annotations) -> list[str]:
    return list(data.classes) or [str(k) for k in range(data.n_classes)]


def _items(data: Annotations) -> list[str]:
    return list(map(str, data.item_names or range(data.n_items)))


def _labelled(data: Annotations) -> Tensor:
    """(N, R) bool: whether an annotator labelled an item."""
    return data.observed.unsqueeze(-1).flatten(2).any(2)


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
    fused, given, skill = p.argmax(1), _labelled(data).sum(0).tolist(), skills(A).tolist()
    right = data.labels == fused[:, None]  # (N, R, *S), and MISSING is never right
    agrees = _per_annotator(right) / _per_annotator(data.observed)
    found = [
        {
            "name": name,
            "labels": given[r],
            "skill": skill[r],
            "diagonal": A[r].diagonal().tolist(),
            "agrees_with_fused": _number(agrees[r]),
            "worst_confusion": _worst_confusion(A[r], _classes(data)),
        }
        for r, name in enumerate(data.names)
    ]
    if data.labels.ndim == 4:
        marked = _per_annotator(data.labels > 0)
        area = _per_annotator(data.observed & (fused > 0)[:, None])  # of the fused truth, where the annotator looked
        for r, told in enumerate(found):
            told["area_ratio"] = float(marked[r] / area[r]) if area[r] else None
    return found


def _per_annotator(there: Tensor) -> Tensor:
    """(N, R, *S) bool -> (R,): at how many places."""
    return there.unsqueeze(-1).flatten(2).sum((0, 2)).double()


def _worst_confusion(A: Tensor, classes: list[str]) -> dict[str, Any]:
    """The largest entry beside the diagonal."""
    off = A - 2 * torch.eye(len(A), dtype=A.dtype)  # no entry of the diagonal is the largest now
    i, j = divmod(int(off.argmax()), len(A))
    return {"says": classes[i], "truth": classes[j], "probability": float(A[i, j])}


def _certainty(data: Annotations, p: Tensor) -> dict[str, Any]:
    """How often each class is the fused label, and how likely a fused label is wrong, on the mean."""
    heard = data.observed.any(1)  # (N, *S)
    labels, wrong = p.argmax(1)[heard], (1 - p.amax(1))[heard]  # (K,)
    return {
        "share_of_classes": (torch.bincount(labels, minlength=data.n_classes).double() / len(labels)).tolist(),
        "expected_errors": float(wrong.double().mean()),
        "share_in_doubt": float((wrong > 0.2).double().mean()),
    }


def doubt(data: Annotations, p: Tensor) -> Tensor:
    """(N,): how likely the fused label is wrong; of masks, how many pixels are expected to be."""
    wrong = torch.where(data.observed.any(1), 1 - p.amax(1), 0)
    return wrong.reshape(len(wrong), -1).sum(1)


def _in_doubt(data: Annotations, p: Tensor) -> list[dict[str, Any]]:
    wrong, items = doubt(data, p), _items(data)
    worst = wrong.argsort(descending=True, stable=True)[:DOUBTED]
    found = []
    for n in worst[wrong[worst] >= CERTAIN].tolist():
        about = _about_mask(p[n], wrong[n]) if data.labels.ndim == 4 else _about_item(data, n, p[n])
        found.append({"index": n, "item": items[n], **about})
    return found


def _about_mask(p: Tensor, wrong: Tensor) -> dict[str, Any]:
    return {"expected_wrong_pixels": float(wrong), "fused_pixels": int((p.argmax(0) > 0).sum())}


def _about_item(data: Annotations, n: int, p: Tensor) -> dict[str, Any]:
    """The likeliest classes, and what was said."""
    classes, order = _classes(data), p.argsort(descending=True)[:3].tolist()
    said = {name: classes[k] for name, k in zip(data.names, data.labels[n].tolist(), strict=True) if k != MISSING}
    return {"label": classes[order[0]], "p": {classes[k]: float(p[k]) for k in order}, "said": said}


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
