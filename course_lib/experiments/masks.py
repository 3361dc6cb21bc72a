"""Part II: masks that disagree. Fusing what was drawn, and networks trained on what came of it."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .. import data, fusion, metrics, networks, scenes
from ..annotations import Annotations
from ..mask_annotators import PANELS, MaskAnnotator, draw_masks, faithful, sometimes
from ..methods.separate import Separate
from ..methods.trace import Vanilla
from ..networks import seeded
from ..scenes import Scene
from ..training import fit, peak_mb, pick_device, predict, sized
from .units import HERE, Units

FUSIONS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "vote": fusion.majority,
    "staple": lambda labels, L: fusion.staple(labels, L).labels,
    "staple_pooled": lambda labels, L: fusion.staple(labels, L, pooled=True).labels,
    "spatial_staple": lambda labels, L: fusion.spatial_staple(labels, L).labels,
}
"""labels (N, R, H, W), L -> one mask an image, (N, H, W)."""

METHODS = ("truth", "mean_label", "mode_label", "separate", "staple", "spatial_staple")
"""What a network learns from: the truth (the ceiling), all masks at once, their vote, each annotator apart, STAPLE."""


class Drawn(NamedTuple):
    """One draw: pictures and truth to train and to test on, and what the panel drew of the first."""

    train: Scene
    test: Scene
    crowd: Annotations


Builder = Callable[[str, Drawn, int], tuple[nn.Module, Tensor]]
"""method, draw, seed -> the method with fresh weights, and the labels (N, R, H, W) that it is fitted to."""


def scene(name: str, N: int, seed: int, part: str, source: data.Images | None = None) -> Scene:
    """N pictures of a kind; digits are the first N of a fixed part, in this seed's noise."""
    generator = seeded(40_000 + 2 * seed + (part == "test"))
    if name == "digits":
        return scenes.digits(source.take(torch.arange(N)), generator=generator)
    return getattr(scenes, name)(N, generator=generator)


def panel_of(setting: dict) -> tuple[MaskAnnotator, ...]:
    """The setting's annotators; with `careless` they are themselves in that share of the pictures, else good."""
    panel, share = PANELS[setting["annotators"]], setting.get("careless", 1.0)
    return panel if share == 1 else tuple(sometimes(share, annotator, faithful(0.3)) for annotator in panel)


def prepare(setting: dict, seed: int, n_train: int, n_test: int, size: str) -> Drawn:
    """Draws pictures, then masks, from generators of this seed."""
    sources = (None, None)
    if setting["scene"] == "digits":
        split = data.split(data.mnist5k()) if size != "paper" else None
        sources = (split.train, split.test) if split else data.mnist60k()
    train = scene(setting["scene"], n_train, seed, "train", sources[0])
    test = scene(setting["scene"], n_test, seed, "test", sources[1])
    said = draw_masks(
        train.truth,
        train.images,
        panel_of(setting),
        n_classes=train.n_classes,
        per_item=setting.get("per_item"),
        generator=seeded(50_000 + seed),
    )
    return Drawn(train, test, Annotations(train.images, said, n_classes=train.n_classes))


def mask_fusion(
    *, seeds: int, size: str, device: str | None = None, progress: bool = True, each: Units = HERE
) -> list[dict]:
    """What each annotator draws, and what each fusion makes of it, against the truth; nothing is trained.

    Source: Zhang 2020, section 4.1: the labels that its baselines are trained on.
    """
    P = sized(size, train=(16, 200, 4000))
    settings = [
        {"scene": "digits", "annotators": panel} for panel in PANELS if panel not in ("three_classes", "by_contrast")
    ]
    settings += [
        {"scene": "lesions", "annotators": panel} for panel in ("as_released", "missing_foreground", "by_contrast")
    ]
    settings += [{"scene": name, "annotators": "three_classes"} for name in ("shapes", "tumours")]
    tasks = [(setting, seed) for setting in settings for seed in range(seeds)]
    return each(partial(fused_rows, n=P.train, size=size), tasks, progress=progress)


def fused_rows(setting: dict, seed: int, *, n: int, size: str) -> list[dict]:
    """A row for each annotator of one draw, and for each fusion."""
    drawn = prepare(setting, seed, n, 1, size)
    labels, L, truth = drawn.crowd.labels, drawn.train.n_classes, drawn.train.truth
    masks = {f"annotator {r + 1}": labels[:, r] for r in range(labels.shape[1])}
    rows = []
    for method in (*masks, *FUSIONS):
        start = time.perf_counter()
        found = masks[method] if method in masks else quietly(FUSIONS[method], labels, L)
        rows.append(_row(method, setting, seed, time.perf_counter() - start, "cpu", found, truth, L))
    return rows


def mask_training(panel: str, **how: object) -> list[dict]:
    """Networks trained on fused masks of digits, dense. Source: Zhang 2020, Table 1, the baselines."""
    return compare([{"scene": "digits", "annotators": panel}], METHODS, **how)


def compare(
    settings: Sequence[dict],
    methods: Sequence[str],
    *,
    seeds: int,
    size: str,
    progress: bool = True,
    run: Callable[..., dict | list[dict]] | None = None,
    each: Units = HERE,
    **how: object,
) -> list[dict]:
    """Every method on every setting and seed: the same pictures, masks, first weights and order for each.

    At `lesson` on a CPU as many runs side by side as there are cores, each in a process and on a thread of its own;
    the rows are the same as one after the other. run: gives the row of a setting, seed and method, or a list of rows;
    else `one_run`. each: runs them somewhere else. how: what `run` takes besides.
    """
    tasks = [(setting, seed, method) for setting in settings for seed in range(seeds) for method in methods]
    jobs = partial(jobs_for, size, how.get("device"))
    return each(partial(run or one_run, size=size, **how), tasks, jobs=jobs, progress=progress)


def jobs_for(size: str, device: str | None) -> int:
    """As many runs at once as there are cores for this process, at most eight (each holds half a gigabyte), if a run is
    long enough to be worth a process."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return sized(size, jobs=(1, min(here, 8), min(here, 8))).jobs if pick_device(device).type == "cpu" else 1


def one_run(
    setting: dict,
    seed: int,
    method: str,
    *,
    size: str,
    device: str | None = None,
    lr: float = 1e-2,
    settle: bool = False,
    draw: Callable[..., Drawn] | None = None,
    build: Builder | None = None,
    also: Callable[[nn.Module, Drawn, dict, int], dict] | None = None,
) -> dict:
    """One method on one draw, as a row.

    settle: further epochs at a tenth of the rate; without, some networks end at a bad moment. draw: makes data, else
    `prepare`. build: makes a method and what it is fitted to, else `built`. also: further numbers for its metrics.
    All are functions of a module, which another process can find.
    """
    P = sized(
        size, train=(160, 800, 60_000), test=(64, 400, 10_000), epochs=(4, 6, 20), settle=(1, 1, 4),
        batch_size=(10, 32, 64),
    )  # fmt: skip
    more = P.settle if settle else 0
    part = 1 if setting["scene"] == "digits" else 4  # of as many pictures, which have five times the pixels
    drawn = (draw or prepare)(setting, seed, P.train // part, P.test // part, size)
    model, labels = (build or built)(method, drawn, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a single run; here many draws judge
        history = fit(
            model,
            drawn.crowd.with_labels(labels),
            epochs=P.epochs + more,
            settle=more,
            batch_size=max(2, P.batch_size // part),
            lr=lr,
            seeds=seed,
            device=device,
            progress=False,
        )
    found = predict(model, drawn.test.images)
    row = _row(method, setting, seed, history.seconds, device, found, drawn.test.truth, drawn.train.n_classes)
    further = also(model, drawn, setting, seed) if also else {}
    return row | {"metrics": row["metrics"] | {name: round(value, 5) for name, value in further.items()}}


def built(method: str, drawn: Drawn, seed: int) -> tuple[nn.Module, Tensor]:
    """The method with fresh weights, and the labels (N, R, H, W) that it is fitted to."""
    C, L, said = drawn.train.images.shape[1], drawn.train.n_classes, drawn.crowd.labels
    net = lambda r=0: networks.unet(C, L, generator=seeded(1000 * r + seed))  # noqa: E731
    if method == "separate":
        return Separate([net(r) for r in range(said.shape[1])]), said
    labels = {
        "truth": lambda: drawn.train.truth[:, None],
        "mean_label": lambda: said,  # the mean over all labels of their cross-entropies is that of the mean label
        "mode_label": lambda: fusion.majority(said, L, generator=seeded(seed))[:, None],
    }
    return Vanilla(net()), labels[method]() if method in labels else quietly(FUSIONS[method], said, L)[:, None]


def quietly(fuse: Callable, labels: Tensor, n_classes: int) -> Tensor:
    """Without the warnings to look at the masks: an experiment looks at many draws instead."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return fuse(labels, n_classes)


def _row(
    method: str, setting: dict, seed: int, seconds: float, device: str | None, found: Tensor, truth: Tensor, L: int
) -> dict:
    overlap = metrics.dice(found, truth, L, empty=1.0)
    scores = {"dice": overlap.foreground, "miou": metrics.iou(found, truth, L, empty=1.0).macro}
    scores |= {f"dice_{k}": float(overlap.score[k]) for k in range(1, L)} if L > 2 else {}
    scores["area"] = float((found > 0).sum() / (truth > 0).sum())
    key = {"method": method, "setting": setting, "draw": seed, "seed": seed}
    cost = {"seconds": round(seconds, 3), "peak_mb": round(peak_mb(pick_device(device)))}
    return {**key, **cost, "metrics": {name: round(value, 5) for name, value in scores.items()}}
