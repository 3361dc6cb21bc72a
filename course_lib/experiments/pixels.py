"""Part II: a matrix for each annotator, everywhere, by place, by patch or by pixel, on masks that disagree."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from .. import metrics, networks
from ..confusion import apply, count_matrices, joint_log_likelihood, label_log_likelihood
from ..confusion import log as log_of
from ..mask_annotators import draw_masks, target_columns
from ..methods.pixels import Pixels
from ..networks import n_parameters, seeded
from ..pixel_cms import CoarseCM, EverywhereCM, FixedCM, LowRankCM, PixelCM, PlaceCM, true_columns
from ..training import predict_log_p
from . import masks
from .masks import Drawn, panel_of

WIDTH = 8

LADDER = {
    "global": lambda R, L, g: EverywhereCM(R, L),
    "place": lambda R, L, g: PlaceCM(R, L, generator=g),
    "coarse": lambda R, L, g: CoarseCM(R, L, 4 * WIDTH, generator=g),
    "pixel": lambda R, L, g: PixelCM(R, L, WIDTH, generator=g),
    "low_rank": lambda R, L, g: LowRankCM(R, L, WIDTH, generator=g),
    "low_rank_2": lambda R, L, g: LowRankCM(R, L, WIDTH, rank=2, generator=g),
}
"""From one matrix everywhere to one for each pixel: R, L, generator -> module."""

JOINT = ("global_joint", "place_joint", "coarse_joint", "pixel_joint")
"""The ladder with all labels of a pixel scored together; without `_joint` each label on its own, as in the paper."""

FULL = (
    ("truth", "mode_label", "staple", "spatial_staple", "oracle", "global", "pixel", "pixel_no_trace", *JOINT),
    (),
)
"""Methods with five labels a picture and with one, whose vote and STAPLE are that label; `joint` is no difference."""
ONE_LABEL = (("pixel",), ("mean_label", "oracle", "global", "place", "coarse", "pixel", "pixel_no_trace"))
SHORT = (
    ("mode_label", "staple", "oracle", "global", "pixel", "pixel_no_trace", "global_joint", "pixel_joint"),
    ("mean_label", "oracle", "global", "pixel", "pixel_no_trace"),
)
SEARCH = (("mode_label", "staple", "pixel", *JOINT), ())
"""Where might a matrix for each pixel win?"""
PLACES = (SEARCH[0], ("mean_label", "global", "place", "pixel"))

LAMBDAS = (0.0, 0.001, 0.01, 0.1, 0.4, 0.7, 0.9)


def built(method: str, drawn: Drawn, seed: int, *, lam: float = 0.01) -> tuple[nn.Module, Tensor]:
    """A rung by its name, or a baseline; `_no_trace` has lambda 0; the oracle knows each annotator's mean matrix."""
    said, L = drawn.crowd.labels, drawn.train.n_classes
    R, C = said.shape[1], drawn.train.images.shape[1]
    if method in masks.METHODS:
        return masks.built(method, drawn, seed)
    net = networks.unet(C, L, width=WIDTH, generator=seeded(seed))  # the first weights of `masks.built`
    if method == "oracle":
        return Pixels(net, FixedCM(counted(said, drawn.train.truth, L)), lam=0.0, joint=True), said
    rung = LADDER[method.removesuffix("_no_trace").removesuffix("_joint")](R, L, seeded(77 + seed))
    weight = 0.0 if method.endswith("_no_trace") else lam
    return Pixels(net, rung, lam=weight, joint=method.endswith("_joint")), said


def counted(said: Tensor, truth: Tensor, n_classes: int) -> Tensor:
    """Each annotator's mean matrix, (1, R, L, L, 1, 1): said (N, R, H, W) counted against truth (N, H, W)."""
    q = nn.functional.one_hot(truth.flatten(), n_classes).float()
    return count_matrices(said.movedim(1, -1).flatten(0, -2), q)[None, ..., None, None]


@torch.no_grad()
def judged(method: nn.Module, drawn: Drawn, setting: dict, seed: int, *, most: int = 60) -> dict[str, float]:
    """On the first `most` test pictures: how far the matrices are off, and how well masks that were not trained on are
    explained, each on its own and all of a pixel together (which needs no truth). For a method without matrices they
    are counted: its own answers on the training pictures against the masks there."""
    scene, panel = drawn.test, panel_of(setting)
    images, truth, L = scene.images[:most], scene.truth[:most], scene.n_classes
    method.eval()
    x = images.to(next(method.parameters()).device)
    log_A, log_p = method.log_A(x), method.log_p(x).cpu()
    if log_A is None:
        answers = predict_log_p(method, drawn.train.images).argmax(1)
        log_A = log_of(counted(drawn.crowd.labels, answers, L))
    log_A = log_A.cpu()
    target = target_columns(truth, images, panel, n_classes=L, draws=16, generator=seeded(60_000 + seed))
    said = draw_masks(truth, images, panel, n_classes=L, generator=seeded(70_000 + seed))
    identity = nn.functional.one_hot(truth, L).movedim(-1, 1)[:, None].expand_as(target).float()
    will_say = apply(log_A, log_p).argmax(2)  # (N, R, H, W)
    marked = (said > 0).float().mean((0, 2, 3))  # (R,)
    dice = lambda a, b: metrics.dice(a, b, L, empty=1.0).foreground  # noqa: E731
    return {
        "cm_rmse": metrics.cm_rmse(true_columns(log_A, truth), target, truth),
        "cm_rmse_identity": metrics.cm_rmse(identity, target, truth),
        "cm_rmse_constant": metrics.cm_rmse(metrics.best_constant(target, truth), target, truth),
        "label_nll": -float(label_log_likelihood(log_A, log_p, said).mean()),
        "joint_nll": -float(joint_log_likelihood(log_A, log_p, said).mean()) / len(panel),
        "mean_trace": float(log_A.exp().diagonal(dim1=2, dim2=3).sum(-1).mean()),
        "foreground": float((log_p.argmax(1) > 0).float().mean()),
        "largest_annotator": float(marked.max()),
        "annotator_dice": sum(dice(said[:, r], truth) for r in range(len(panel))) / len(panel),
        "said_dice": sum(dice(will_say[:, r], said[:, r]) for r in range(len(panel))) / len(panel),
        "parameters": n_parameters(method),
    }


def ladder(scene: str, panel: str, methods: tuple[tuple, tuple] = FULL, **how: object) -> list[dict]:
    """The ladder and its baselines on one scene and panel, with five labels a picture and with one.

    Source: Zhang 2020, Tables 1, 2, 4 and 5; the authors' reply, global against pixel.
    """
    rows = []
    for per_item, names in zip((5, 1), methods, strict=True):
        setting = {"scene": scene, "annotators": panel, "per_item": per_item}
        rows += masks.compare([setting], names, build=built, also=judged, **how)
    return rows


def lambda_curve(**how: object) -> list[dict]:
    """Dice against the weight of the trace, digits of which three of five miss most. Source: Zhang 2020, Fig. 3."""
    rows = []
    for lam in LAMBDAS:
        for per_item, methods in ((5, ("pixel", "pixel_joint")), (1, ("pixel",))):
            setting = {"scene": "digits", "annotators": "missing_foreground", "per_item": per_item, "lam": lam}
            rows += masks.compare([setting], methods, build=partial(built, lam=lam), also=judged, **how)
    return rows


def noise_curve(**how: object) -> list[dict]:
    """Dice against how often annotators are careless: else all five draw well. Source: Zhang 2020, Fig. 4."""
    settings = [
        {"scene": "digits", "annotators": "missing_foreground", "per_item": 5, "careless": share}
        for share in (0.2, 0.4, 0.6, 0.8, 1.0)
    ]
    methods = ("mode_label", "staple", "global_joint", "pixel", "pixel_joint")
    return masks.compare(settings, methods, build=built, also=judged, **how)


# ---- which matrix? without the truth ---------------------------------------------------------------------------------


def suspicious(numbers: dict[str, float]) -> bool:
    """Whether a run looks lost: hardly any foreground, or nearly as much as the annotator who marks most.

    The second takes for granted that whoever marks most marks too much; where nobody does, it accuses good runs.
    """
    most = numbers["largest_annotator"]
    return not 0.2 * most < numbers["foreground"] < 0.9 * most


def picked(candidates: dict[str, dict[str, float]]) -> str:
    """The name of the candidate, by its `judged` numbers, to trust: of those that are not suspicious (of all, if all
    are) the one that explains masks best that it was not trained on, all of a pixel together."""
    trusted = {name: n for name, n in candidates.items() if not suspicious(n)} or candidates
    return min(trusted, key=lambda name: trusted[name]["joint_nll"])
