"""Part III: MrPrism and its rivals on disc and cup, with the same pictures, raters, loss and number of steps."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from .. import fundus, fusion, metrics, networks
from ..annotations import Annotations
from ..confusion import log as log_of
from ..confusion import posterior
from ..mask_annotators import draw_masks
from ..methods.aggnet import AggNet
from ..methods.crowd_layer import CrowdLayer
from ..methods.em import fit_em
from ..methods.max_mig import MaxMIG
from ..methods.mrnet import MRNet
from ..methods.pixels import Pixels
from ..methods.prism import Prism
from ..methods.probabilistic_unet import LabelSampling
from ..methods.separate import Heads
from ..networks import seeded
from ..pixel_cms import EverywhereCM, PixelCM
from ..training import fit, peak_mb, pick_device, predict_log_p, sized
from . import masks, pixels
from .masks import Drawn

WIDTH, EVALUATED = 12, 4
"""Of every network; and how many recurrences are looked at, one more than are trained."""


def prepare(setting: dict, seed: int, n_train: int, n_test: int, side: int) -> Drawn:
    train, test = (
        fundus.disc_and_cup(n, size=side, generator=seeded(40_000 + 2 * seed + part))
        for part, n in enumerate((n_train, n_test))
    )
    said = _said(train, setting, seeded(50_000 + seed))
    return Drawn(train, test, Annotations(train.images, said, n_classes=3))


def _said(scene: masks.Scene, setting: dict, generator: torch.Generator) -> Tensor:
    return draw_masks(scene.truth, scene.images, fundus.PANELS[setting["annotators"]], n_classes=3, generator=generator)


def fused(how: str, drawn: Drawn, seed: int) -> Tensor:
    """Soft masks q (N, L, H, W) from the raters' masks by a rule that looks at no picture."""
    said, L, truth = drawn.crowd.labels, drawn.train.n_classes, drawn.train.truth
    hard = lambda y: one_hot(y, L).movedim(-1, 1).float()  # noqa: E731
    if how == "mean_label":
        return torch.stack([hard(said[:, r]) for r in range(said.shape[1])]).mean(0)
    if how == "known_matrices":  # of each rater, counted against the truth: what no reader has
        A = pixels.counted(said, truth, L)[0, ..., 0, 0]
        share = hard(truth).mean((0, 2, 3)).log()[None, :, None, None]
        return posterior(log_of(A)[None, ..., None, None], share.expand(len(said), L, *said.shape[2:]), said).exp()
    rules = {
        "truth": lambda: truth,
        "mode_label": lambda: fusion.majority(said, L, generator=seeded(seed)),
        "staple": lambda: masks.quietly(masks.FUSIONS["staple"], said, L),
        "dawid_skene": lambda: masks.quietly(masks.FUSIONS["staple_pooled"], said, L),
        "spatial_staple": lambda: masks.quietly(masks.FUSIONS["spatial_staple"], said, L),
    }
    return hard(rules[how]())


FUSED = ("truth", "mode_label", "mean_label", "staple", "dawid_skene")
"""A plain network, taught by masks that are fused before."""


class Structured(nn.Module):
    """A rival that scores labels one by one, given MrPrism's loss besides: 1 - SSIM of its segmentation with the labels
    fused by its own matrices, so that no rival lacks what alone is worth several points of soft Dice."""

    def __init__(self, method: nn.Module) -> None:
        super().__init__()
        self.method = method
        self.log_p, self.log_A = method.log_p, method.log_A

    def loss(self, batch: tuple[Tensor, ...]) -> Tensor:
        x, labels, who, _ = batch
        log_p = self.method.log_p(x)
        with torch.no_grad():
            if isinstance(self.method, MaxMIG):
                target = self.method.log_fused(labels, who).exp()
            elif (log_A := self.method.log_A(x)) is None:  # a random rater's mask
                one = torch.randint(labels.shape[1], (len(labels), 1, 1, 1), device=labels.device)
                y = torch.take_along_dim(labels, one.expand(-1, 1, *labels.shape[2:]), 1)[:, 0]
                target = one_hot(y, log_p.shape[1]).movedim(-1, 1).float()
            else:
                target = posterior(log_A, log_p, labels, who).exp()
        return self.method.loss(batch) + 1 - metrics.ssim(log_p.exp(), target)

    def param_groups(self) -> list[dict]:
        groups = self.method.param_groups() if hasattr(self.method, "param_groups") else []
        return [group | {"params": [f"method.{name}" for name in group["params"]]} for group in groups]


def prism(drawn: Drawn, seed: int, **how: object) -> Prism:
    C, L, R = drawn.train.images.shape[1], drawn.train.n_classes, drawn.crowd.n_annotators
    return Prism(C, R, L, **({"width": WIDTH, "generator": seeded(seed)} | how))


def trained(method: str, drawn: Drawn, setting: dict, seed: int, **budget: object) -> nn.Module:
    """A method by its name, trained. `budget` goes to `fit`: every network gets the same number of steps in all."""
    C, L, R = drawn.train.images.shape[1], drawn.train.n_classes, drawn.crowd.n_annotators
    net = lambda: networks.unet(C, L, width=WIDTH, generator=seeded(seed))  # noqa: E731
    score = setting.get("loss", "ssim")
    quiet = lambda m: _fitted(m, drawn.crowd, seed, **budget)  # noqa: E731
    if method in FUSED or method in ("known_matrices", "spatial_staple"):
        return quiet(AggNet(net(), fused(method, drawn, seed), score=score))
    if method in ("aggnet", "aggnet_once"):
        many = method == "aggnet"
        model = AggNet(net(), fused("mode_label", drawn, seed), score=score, rounds=1 if many else 5)
        return _in_turns(model, drawn.crowd, seed, rounds=4 if many else 2, **budget)
    if method.startswith("prism"):
        return quiet(prism(drawn, seed, **PRISMS[method]))
    makers = {
        "label_sampling": lambda: LabelSampling([net()]),
        "heads": lambda: Heads(net(), R, L, generator=seeded(77 + seed)),
        "crowd_layer": lambda: CrowdLayer(net(), R, L, layer_lr=3e-3, spatial=2),
        "max_mig": lambda: MaxMIG(net(), R, L, aggregator_lr=3e-3),
        "global": lambda: Pixels(net(), EverywhereCM(R, L)),
        "global_joint": lambda: Pixels(net(), EverywhereCM(R, L), joint=True),
        "pixel_joint": lambda: Pixels(net(), PixelCM(R, L, WIDTH, generator=seeded(77 + seed)), joint=True),
    }
    if method == "mrnet":
        return quiet(MRNet(C, R, L, width=WIDTH, generator=seeded(seed)))
    return quiet(Structured(makers[method]()) if score == "ssim" else makers[method]())


PRISMS: dict[str, dict] = {
    "prism": {},
    "prism_pixel": {"where": "pixel"},
    "prism_printed": {"variant": "printed", "integration": "attention"},
    "prism_released": {"variant": "released", "integration": "attention"},
    "prism_attention": {"integration": "attention"},
    "prism_convlstm": {"integration": "convlstm"},
    "prism_shuffle": {"losses": ("shuffle",)},
    "prism_both": {"losses": ("heads", "shuffle")},
    "prism_attention_shuffle": {"integration": "attention", "losses": ("shuffle",)},
}
"""`prism` is the corrected reading with concat and the multi-head loss."""


def _fitted(model: nn.Module, data: Annotations, seed: int, **budget: object) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a single run; here many draws judge
        fit(model, data, seeds=seed, progress=False, **budget)
    return model


def _in_turns(model: AggNet, data: Annotations, seed: int, *, rounds: int, epochs: int, **budget: object) -> AggNet:
    """EM, and at its end the network settles on the last q."""
    settle = budget.pop("settle")
    fit_em(model, data, rounds=rounds, epochs=epochs - settle, seeds=seed, progress=False, **budget)
    return _fitted(model, data, seed, epochs=settle, **(budget | {"lr": budget["lr"] / 10}))


# ---- what is measured ------------------------------------------------------------------------------------------------


def one_run(setting: dict, seed: int, method: str, *, size: str, device: str | None = None) -> dict:
    """One method on one draw, as a row: soft Dice of disc and cup with the truth and with the vote of unseen masks."""
    P = sized(
        size, train=(24, 160, 1000), test=(12, 60, 400), side=(24, 24, 256), epochs=(4, 8, 60), settle=(1, 1, 10),
        batch_size=(8, 8, 8),
    )  # fmt: skip
    drawn = prepare(setting, seed, setting.get("pictures", 1) * P.train, P.test, P.side)
    start = time.perf_counter()
    epochs = max(P.epochs // setting.get("pictures", 1), 1)
    model = trained(
        method, drawn, setting, seed, epochs=epochs + P.settle, settle=P.settle, batch_size=P.batch_size, lr=1e-2,
        device=device,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    scores = judged(model, drawn, setting, seed, again=method)
    cost = {"seconds": round(seconds, 3), "peak_mb": round(peak_mb(pick_device(device)))}
    key = {"method": method, "setting": setting, "draw": seed, "seed": seed}
    return {**key, **cost, "metrics": {name: round(float(value), 5) for name, value in scores.items()}}


@torch.no_grad()
def judged(model: nn.Module, drawn: Drawn, setting: dict, seed: int, *, again: str) -> dict[str, float]:
    scene, said = drawn.test, _said(drawn.test, setting, seeded(70_000 + seed))
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


def compare(
    settings: Sequence[dict], methods: Sequence[str], *, seeds: int, size: str, progress: bool = True, **how: object
) -> list[dict]:
    jobs = masks.jobs_for(size, how.get("device"))
    tasks = [(setting, seed, method) for setting in settings for seed in range(seeds) for method in methods]
    return masks.side_by_side(partial(one_run, size=size, **how), tasks, jobs=jobs, progress=progress)


def panels(*names: str, **more: object) -> list[dict]:
    return [{"scene": "disc_and_cup", "annotators": name} | more for name in names]


RIVALS = (
    "truth", "mode_label", "mean_label", "staple", "dawid_skene", "label_sampling", "heads", "crowd_layer", "aggnet",
    "aggnet_once", "global_joint", "pixel_joint", "max_mig", "mrnet",
)  # fmt: skip


def table1(**how: object) -> list[dict]:
    """Learning from many raters, by panel. Source: Wu et al., Table 1."""
    return compare(panels("dominant", "jitter", "equal"), (*RIVALS, "prism"), **how)
