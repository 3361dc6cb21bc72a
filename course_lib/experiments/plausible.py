"""Part II: many plausible masks of one picture, and four anonymous radiologists."""

from __future__ import annotations

from functools import cache, partial

import torch
from torch import Tensor, nn

from .. import fusion, lidc, metrics, networks
from ..annotations import MISSING, Annotations
from ..annotators import chosen
from ..confusion import apply
from ..mask_annotators import draw_masks
from ..methods.pixels import Pixels
from ..methods.probabilistic_unet import LabelSampling, ProbabilisticUNet
from ..methods.separate import Heads
from ..networks import seeded
from ..pixel_cms import PixelCM, SharedCM
from ..scenes import Scene
from ..training import predict_log_p
from . import masks, pixels
from .masks import Drawn, panel_of

DRAWS = 16
"""Masks of a picture from a method that draws them."""

MANY = ("probabilistic", "label_sampling", "mc_dropout", "ensemble", "heads", "global_joint", "pixel", "pixel_joint")
"""Methods with more than one answer; one network taught by label sampling has one, for comparison."""
MANY_LIDC = (*MANY[:5], "pixel", "pixel_shared")

LIDC_DENSE = {
    4: (
        "mean_label", "mode_label", "probabilistic", "staple", "spatial_staple", "oracle", "global", "pixel",
        "pixel_no_trace", "pixel_shared", "pixel_joint",
    )
}  # fmt: skip
LIDC_ONE = {
    4: ("pixel",),
    1: ("mean_label", "probabilistic", "oracle", "global", "pixel", "pixel_no_trace", "pixel_shared"),
}


@cache
def readings() -> lidc.Nodules:
    return lidc.nodules()


def lungs(seed: int, n_train: int, n_test: int) -> tuple[lidc.Nodules, lidc.Nodules]:
    """The first nodules of two parts that share no patient; another division for each seed."""
    train, test = lidc.split(readings(), seed=seed)
    first = lambda part, n: part.take(torch.randperm(len(part.patients), generator=seeded(seed))[:n])  # noqa: E731
    return first(train, n_train), first(test, n_test)


def prepare(setting: dict, seed: int, n_train: int, n_test: int, size: str) -> Drawn:
    """As `masks.prepare`; of LIDC drawn pictures, real masks, and STAPLE of the four readings for a truth, as in the
    paper. The columns are slots; that they pass for people is the paper's doing, repeated to see what comes of it.
    """
    if setting["scene"] != "lidc":
        return masks.prepare(setting, seed, n_train, n_test, size)
    parts = []
    for part, generator in zip(
        lungs(seed, n_train, n_test), (seeded(40_000 + seed), seeded(41_000 + seed)), strict=True
    ):
        truth = masks.quietly(masks.FUSIONS["staple"], part.masks, 2)
        parts.append((Scene(lidc.rendered(part, generator=generator), truth, 2), part.masks))
    (train, said), (test, _) = parts
    shown = chosen(*said.shape[:2], setting.get("per_item"), None, seeded(50_000 + seed))
    said = torch.where(shown[:, :, None, None], said, MISSING)
    return Drawn(train, test, Annotations(train.images, said, n_classes=2, identities=True))


def built(method: str, drawn: Drawn, seed: int) -> tuple[nn.Module, Tensor]:
    """A method of many answers by its name; else as `pixels.built`."""
    said, L = drawn.crowd.labels, drawn.train.n_classes
    R, C = said.shape[1], drawn.train.images.shape[1]
    net = lambda r=0: networks.unet(C, L, width=pixels.WIDTH, generator=seeded(1000 * r + seed))  # noqa: E731
    makers = {
        "probabilistic": lambda: ProbabilisticUNet(net(), C, L, latent=2, generator=seeded(77 + seed)),
        "label_sampling": lambda: LabelSampling([net()]),
        "mc_dropout": lambda: LabelSampling([_dropping(net())]),
        "ensemble": lambda: LabelSampling([net(r) for r in range(3)]),
        "heads": lambda: Heads(net(), R, L, generator=seeded(77 + seed)),
        "pixel_shared": lambda: Pixels(
            net(), SharedCM(PixelCM(1, L, pixels.WIDTH, generator=seeded(77 + seed)), R), joint=True
        ),
    }
    return (makers[method](), said) if method in makers else pixels.built(method, drawn, seed)


def plausible(scene: str, panel: str, **how: object) -> list[dict]:
    """How well the masks of each method are spread: as people's are? Source: Zhang 2020, Table 3."""
    methods = MANY_LIDC if scene == "lidc" else MANY
    return masks.compare(
        [{"scene": scene, "annotators": panel}], methods, draw=prepare, build=built, also=spread, settle=True, **how
    )


def lidc_table(methods: dict[int, tuple[str, ...]], **how: object) -> list[dict]:
    """Networks on anonymous readings of drawn pictures; methods for so many readings of each nodule, of four.

    Source: Zhang 2020, Tables 4 and 5, LIDC-IDRI.
    """
    rows = []
    for per_item, names in methods.items():
        setting = {"scene": "lidc", "annotators": "readers", "per_item": per_item}
        rows += masks.compare([setting], names, draw=prepare, build=built, also=against_all, settle=True, **how)
    return rows


@torch.no_grad()
def spread(method: nn.Module, drawn: Drawn, setting: dict, seed: int, *, most: int = 100) -> dict[str, float]:
    """On the first `most` test pictures: the energy distance and the best match between the method's masks and masks
    that it was not trained on, and whether it is as sure as it is right.

    `ged` leaves out pairs of a mask with itself where masks are drawn, not where a method has one for each annotator.
    """
    images, said = drawn.test.images[:most], masks_of_test(drawn, setting, seed)[:most]
    L, random = drawn.test.n_classes, draws_masks(method)
    n = DRAWS if random else len(method.networks) if isinstance(method, LabelSampling) else said.shape[1]
    method.eval()
    x = images.to(next(method.parameters()).device)
    found = method.samples(x, n, seeded(80_000 + seed)).cpu()
    says = spoken(method, x).cpu()  # (N, L, H, W)
    flat = says.movedim(1, -1)[:, None].expand(*said.shape, L).flatten(0, -2)
    distance = partial(metrics.ged, found, said, L)
    return {
        "ged": distance(by="dice", unbiased=random),
        "ged_all_pairs": distance(by="dice"),
        "ged_iou": distance(unbiased=random),
        "matched_iou": metrics.matched_iou(found, said, L),
        "diversity": float(metrics.distances(found, found, L, by="dice").mean()),
        "diversity_people": float(metrics.distances(said, said, L, by="dice").mean()),
        "calibration_error": metrics.calibration_error(flat, said.flatten()),
        "n_masks": n,
    }


def masks_of_test(drawn: Drawn, setting: dict, seed: int) -> Tensor:
    """What people say of the test pictures, (N, R, H, W): the panel's drawings, or the four readings."""
    scene = drawn.test
    if setting["scene"] == "lidc":
        return lungs(seed, len(drawn.train.truth), len(scene.truth))[1].masks
    panel = panel_of(setting)
    return draw_masks(scene.truth, scene.images, panel, n_classes=scene.n_classes, generator=seeded(70_000 + seed))


def draws_masks(method: nn.Module) -> bool:
    """Whether `samples` are draws; else they are an answer for each annotator, or each network."""
    dropped = any(isinstance(m, nn.Dropout2d | nn.Dropout) for m in method.modules())
    return isinstance(method, ProbabilisticUNet) or dropped


def spoken(method: nn.Module, x: Tensor) -> Tensor:
    """log p of what an annotator says, whoever it is: (N, L, H, W)."""
    log_p, log_A = method.log_p(x), method.log_A(x)
    return log_p if log_A is None else apply(log_A, log_p).exp().mean(1).log()


@torch.no_grad()
def against_all(method: nn.Module, drawn: Drawn, setting: dict, seed: int) -> dict[str, float]:
    """Dice of the same answers with other stand-ins for the truth, and how far the mean matrices are from counted ones.

    `dice` is with STAPLE of the four test readings; `dice_reader` the mean with each of the four, which no method had.
    """
    scene, said = drawn.test, masks_of_test(drawn, setting, seed)
    log_p = predict_log_p(method, scene.images)
    found, R = log_p.argmax(1), said.shape[1]
    dice = lambda mask: metrics.dice(found, mask, 2, empty=1.0).foreground  # noqa: E731
    vote = fusion.majority(said, 2, generator=seeded(seed))
    spatial = masks.quietly(masks.FUSIONS["spatial_staple"], said, 2)
    result = {
        "dice_vote": dice(vote),
        "dice_spatial_staple": dice(spatial),
        "dice_reader": sum(dice(said[:, r]) for r in range(R)) / R,
        "area_staple": float((scene.truth > 0).sum() / (said > 0).float().sum((0, 2, 3)).mean()),
    }
    A = pixels.counted(said, scene.truth, 2)[0, ..., 0, 0]
    log_A = method.log_A(scene.images.to(next(method.parameters()).device))
    learned = pixels.counted(said, found, 2)[0, ..., 0, 0] if log_A is None else mean_columns(log_A.cpu(), scene.truth)
    apart = lambda M: float((M - M.mean(0)).abs().mean())  # noqa: E731
    return result | {
        "cm_error": metrics.cm_error(A, learned),
        "slots_apart": apart(learned),
        "slots_apart_counted": apart(A),
    }


def mean_columns(log_A: Tensor, truth: Tensor) -> Tensor:
    """Matrices (R, L, L) whose column j is the mean over pixels of class j: log_A (N|1, R, L, L, H, W)."""
    A, L = log_A.exp().expand(len(truth), *log_A.shape[1:4], *truth.shape[1:]), log_A.shape[2]
    return torch.stack([A[:, :, :, k].movedim(0, -3)[..., truth == k].mean(-1) for k in range(L)], -1)


def _dropping(network: networks.UNet, share: float = 0.3) -> networks.UNet:
    network.head = nn.Sequential(nn.Dropout2d(share), network.head)
    return network
