"""Part III: MrPrism and its rivals on disc and cup: what is measured, and the paper's tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from .. import fundus, fusion, metrics
from ..confusion import posterior
from ..methods.aggnet import AggNet
from ..methods.crowd_layer import CrowdLayer
from ..methods.max_mig import MaxMIG
from ..methods.pixels import Pixels
from ..methods.prism import Prism
from ..networks import seeded
from ..training import peak_mb, pick_device, predict_log_p, sized
from . import masks
from .masks import Drawn
from .rivals import AT_PAPER, WIDTH, drawn_by, prepare, pupil_of, trained

EVALUATED = 4
"""Recurrences that are looked at, one more than are trained."""


# ---- what is measured ------------------------------------------------------------------------------------------------


def one_run(
    setting: dict, seed: int, method: str, *, size: str, device: str | None = None, taught: Sequence[str] = ()
) -> list[dict]:
    """One method on one draw, as a row: soft Dice of disc and cup with the truth and with the vote of unseen masks.

    Of a method in `taught` a second row, `_taught`: a plain network, taught by the masks that it made of the training
    labels. A setting with `pictures` has as many times more of them, and the same number of steps.
    """
    P = sized(
        size, train=(24, 160, 1000), test=(12, 60, 400), side=(24, 24, 256), epochs=(4, 10, 60), settle=(1, 2, 10),
        batch_size=(8, 8, 8), width=(WIDTH, WIDTH, AT_PAPER["width"]),
    )  # fmt: skip
    more = setting.get("pictures", 1)
    drawn = prepare(setting, seed, more * P.train, P.test, P.side)
    settle = max(P.settle // more, 1)
    budget = {"epochs": max(P.epochs // more, 1) + settle, "settle": settle, "batch_size": P.batch_size}
    rows, start = [], time.perf_counter()
    how = {"width": P.width, "lr": 1e-2, "device": device}
    model = trained(method, drawn, setting, seed, prism=AT_PAPER if size == "paper" else {}, **how, **budget)
    rows.append(_row(method, model, drawn, setting, seed, time.perf_counter() - start, device))
    if method in taught:
        start = time.perf_counter()
        pupil = pupil_of(masks_learned_from(model, drawn), drawn, setting, seed, **how, **budget)
        rows.append(_row(f"{method}_taught", pupil, drawn, setting, seed, time.perf_counter() - start, device))
    return rows


def _row(
    method: str, model: nn.Module, drawn: Drawn, setting: dict, seed: int, seconds: float, device: str | None
) -> dict:
    scores = judged(model, drawn, setting, seed)
    cost = {"seconds": round(seconds, 3), "peak_mb": round(peak_mb(pick_device(device)))}
    key = {"method": method, "setting": setting, "draw": seed, "seed": seed}
    return {**key, **cost, "metrics": {name: round(float(value), 5) for name, value in scores.items()}}


@torch.no_grad()
def judged(model: nn.Module, drawn: Drawn, setting: dict, seed: int) -> dict[str, float]:
    scene, said = drawn.test, drawn_by(drawn.test, setting, seeded(70_000 + seed))
    vote = fusion.majority(said, 3, generator=seeded(seed))
    log_p = predict_log_p(model, scene.images)  # (N, L, H, W)
    scores = overlaps(log_p, scene.truth) | {f"{k}_vote": v for k, v in overlaps(log_p, vote).items()}
    answer = log_p.argmax(1)
    for least, part in ((fundus.RIM, "disc"), (fundus.CUP, "cup")):
        same = lambda a, b, least=least: metrics.dice((a >= least).long(), (b >= least).long(), 2).foreground  # noqa: E731
        scores[f"dice_{part}"] = same(answer, scene.truth)
        scores |= {f"dice_{part}_rater_{r + 1}": same(answer, said[:, r]) for r in range(said.shape[1])}
    if isinstance(model, Prism):
        scores |= recurring(model, drawn, said)
    q = masks_learned_from(model, drawn)
    if q is not None:
        fit_of = overlaps(q.clamp(min=1e-12).log(), drawn.train.truth)
        scores |= {f"fused_{k}": v for k, v in fit_of.items()}
    return scores


def overlaps(log_p: Tensor, truth: Tensor) -> dict[str, float]:
    return {
        "soft_dice_disc": metrics.soft_dice(log_p, truth, fundus.RIM),
        "soft_dice_cup": metrics.soft_dice(log_p, truth, fundus.CUP),
    }


def recurring(model: Prism, drawn: Drawn, said: Tensor) -> dict[str, float]:
    """Of recurrences 0 to 3: soft Dice, each rater's cup, and how far the map moved, summed over classes."""
    scene, scores, last = drawn.test, {}, None
    each = _by_parts(lambda x: model.log_p_each(x, EVALUATED), model, scene.images)  # (N, n, L, H, W)
    for i, log_p in enumerate(each.unbind(1)):
        scores |= {f"{k}_rec{i}": v for k, v in overlaps(log_p, scene.truth).items()}
        if last is not None:
            scores[f"moved_rec{i}"] = float((log_p.exp() - last.exp()).abs().sum(1).mean())
        cup = (log_p.argmax(1) >= fundus.CUP).long()
        for r in range(said.shape[1]):
            scores[f"dice_cup_rater_{r + 1}_rec{i}"] = metrics.dice(
                cup, (said[:, r] >= fundus.CUP).long(), 2
            ).foreground
        last = log_p
    return scores


@torch.no_grad()
def masks_learned_from(model: nn.Module, drawn: Drawn) -> Tensor | None:
    """Soft masks (N, L, H, W) that the method makes of the training labels, or None if it makes none."""
    model = getattr(model, "method", model)
    said, images = drawn.crowd.labels, drawn.train.images
    if isinstance(model, AggNet):
        return model.q.cpu()
    if isinstance(model, MaxMIG):
        return model.log_fused(said.to(model.W.device)).exp().cpu()
    if isinstance(model, Prism):
        device, found = next(model.parameters()).device, []
        for x, labels in zip(images.split(64), said.split(64), strict=True):
            step = model.steps(x.to(device), model.recurrences)[-1]
            found.append(model.fused(step, labels.to(device), prior=step.log_y).cpu())
        return torch.cat(found)
    if isinstance(model, Pixels | CrowdLayer):
        log_A = _by_parts(model.log_A, model, images)
        return posterior(log_A, predict_log_p(model, images), said).exp()
    return None


def _by_parts(ask: Callable[[Tensor], Tensor], model: nn.Module, images: Tensor) -> Tensor:
    model.eval()
    device = next(model.parameters()).device
    parts = [ask(x.to(device)).cpu() for x in images.split(64)]
    return parts[0] if len(parts[0]) == 1 else torch.cat(parts)  # matrices that are the same everywhere come once


# ---- the paper's tables ----------------------------------------------------------------------------------------------


def panels(*names: str, **more: object) -> list[dict]:
    return [{"scene": "disc_and_cup", "annotators": name} | more for name in names]


RIVALS = (
    "truth", "mode_label", "mean_label", "staple", "dawid_skene", "label_sampling", "heads", "crowd_layer", "aggnet",
    "aggnet_once", "global_joint", "pixel_joint", "max_mig", "mrnet",
)  # fmt: skip
BEST = ("truth", "mode_label", "staple", "dawid_skene", "aggnet", "global_joint", "max_mig", "mrnet")
"""Those of them that win somewhere, or that stand in the paper's table."""
FUSIONS = (
    "mode_label", "staple", "spatial_staple", "dawid_skene", "known_matrices", "max_mig", "aggnet", "aggnet_once",
)  # fmt: skip
ABLATION = ("prism", "prism_shuffle", "prism_convlstm_shuffle", "prism_attention_shuffle", "prism_attention")
LOSSES_OF_PRISM = ("prism", "prism_em", "prism_attention_shuffle", "prism_attention_both")
SEARCH = ("truth", "mode_label", "staple", "dawid_skene", "known_matrices", "aggnet", "prism", "prism_em")
PUPILS = ("aggnet", "prism", "prism_em")
LOSSES = ("truth", "mode_label", "mean_label", "staple", "dawid_skene", "label_sampling", "aggnet")


def table1(panel: str, methods: Sequence[str], **how: object) -> list[dict]:
    """Learning from many raters. Source: Wu et al., Table 1."""
    return masks.compare(panels(panel), (*methods, "prism"), run=one_run, **how)


def table2(**how: object) -> list[dict]:
    """Networks that all raters are equal to, and MrPrism. Source: Wu et al., Table 2."""
    methods = ("mode_label", "mean_label", "heads", "mrnet", "prism")
    return masks.compare(panels("equal", "specialists"), methods, run=one_run, **how)


def table3(**how: object) -> list[dict]:
    """What each makes of the training labels, and a network taught by that. Source: Wu et al., Table 3."""
    settings = panels("dominant", "specialists")
    return masks.compare(settings, (*FUSIONS, "prism"), run=one_run, taught=PUPILS, **how)


def table4(methods: Sequence[str], **how: object) -> list[dict]:
    """Ways for the confidences into the network, and losses. Source: Wu et al., Table 4."""
    return masks.compare(panels("jitter"), methods, run=one_run, **how)


def readings(**how: object) -> list[dict]:
    """The formulas as printed, what the released code does, and the corrected reading."""
    methods = ("prism_printed", "prism_released", "prism")
    return masks.compare(panels("dominant"), methods, run=one_run, **how)


def fig4(**how: object) -> list[dict]:
    """Dice with each rater's own masks. Source: Wu et al., Fig. 4."""
    methods = ("global_joint", "max_mig", "mrnet", "prism")
    return masks.compare(panels("dominant", "anchored"), methods, run=one_run, **how)


def search(pictures: int, **how: object) -> list[dict]:
    """Where might MrPrism win? Specialists who are careless and generous with what is not theirs; more pictures."""
    return masks.compare(panels("generous", pictures=pictures), SEARCH, run=one_run, taught=PUPILS, **how)


def losses(**how: object) -> list[dict]:
    """What MrPrism's loss alone is worth to its rivals."""
    settings = [setting for loss in ("ce", "ssim") for setting in panels("dominant", loss=loss)]
    return masks.compare(settings, LOSSES, run=one_run, **how)
