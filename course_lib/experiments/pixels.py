"""Part II: a matrix for each annotator, everywhere, by place, by patch or by pixel, on masks that disagree."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .. import metrics, networks
from ..confusion import count_matrices, joint_log_likelihood, label_log_likelihood
from ..mask_annotators import PANELS, draw_masks, target_columns
from ..methods.pixels import Pixels
from ..networks import seeded
from ..pixel_cms import CoarseCM, EverywhereCM, FixedCM, LowRankCM, PixelCM, PlaceCM, true_columns
from . import masks
from .masks import Drawn

WIDTH = 8

LADDER = {
    "global": lambda R, L, g: EverywhereCM(R, L),
    "place": lambda R, L, g: PlaceCM(R, L, generator=g),
    "coarse": lambda R, L, g: CoarseCM(R, L, 4 * WIDTH, generator=g),
    "pixel": lambda R, L, g: PixelCM(R, L, WIDTH, generator=g),
    "low_rank": lambda R, L, g: LowRankCM(R, L, WIDTH, generator=g),
}
"""From one matrix everywhere to one for each pixel: R, L, generator -> module."""

METHODS = ("global", "place", "coarse", "pixel", "pixel_no_trace", "oracle")


def built(method: str, drawn: Drawn, seed: int, *, lam: float = 0.01, joint: bool = False) -> tuple[nn.Module, Tensor]:
    """A rung by its name; `pixel_no_trace` has lambda 0; the oracle knows each annotator's mean matrix."""
    said, L = drawn.crowd.labels, drawn.train.n_classes
    R, C = said.shape[1], drawn.train.images.shape[1]
    net = networks.unet(C, L, width=WIDTH, generator=seeded(seed))  # the first weights of `masks.built`
    if method == "oracle":
        return Pixels(net, FixedCM(mean_matrices(drawn)), lam=0.0), said
    rung = LADDER[method.removesuffix("_no_trace")](R, L, seeded(77 + seed))
    weight = 0.0 if method.endswith("_no_trace") else lam
    return Pixels(net, rung, lam=weight, joint=joint), said


def mean_matrices(drawn: Drawn) -> Tensor:
    """Each annotator's true matrix over all pixels, (1, R, L, L, 1, 1), counted against the truth."""
    said, truth, L = drawn.crowd.labels, drawn.train.truth, drawn.train.n_classes
    items, q = said.movedim(1, -1).flatten(0, -2), nn.functional.one_hot(truth.flatten(), L).float()
    A = count_matrices(items, q)  # (R, L, L)
    return A[None, ..., None, None]


@torch.no_grad()
def judged(method: nn.Module, drawn: Drawn, setting: dict, seed: int, *, most: int = 60) -> dict[str, float]:
    """On the first `most` test pictures: how far the matrices are off, and how well labels that were not trained on are
    explained, each on its own and all of a pixel together (which needs no truth)."""
    scene = drawn.test
    images, truth, L, panel = scene.images[:most], scene.truth[:most], scene.n_classes, PANELS[setting["annotators"]]
    method.eval()
    x = images.to(next(method.parameters()).device)
    log_A, log_p = method.log_A(x).cpu(), method.log_p(x).cpu()
    target = target_columns(truth, images, panel, n_classes=L, draws=16, generator=seeded(60_000 + seed))
    said = draw_masks(truth, images, panel, n_classes=L, generator=seeded(70_000 + seed))
    identity = nn.functional.one_hot(truth, L).movedim(-1, 1)[:, None].expand_as(target).float()
    own = log_A.exp().diagonal(dim1=2, dim2=3).sum(-1).mean()
    return {
        "cm_rmse": metrics.cm_rmse(true_columns(log_A, truth), target, truth),
        "cm_rmse_identity": metrics.cm_rmse(identity, target, truth),
        "cm_rmse_constant": metrics.cm_rmse(metrics.best_constant(target, truth), target, truth),
        "label_nll": -float(label_log_likelihood(log_A, log_p, said).mean()),
        "joint_nll": -float(joint_log_likelihood(log_A, log_p, said).mean()) / len(panel),
        "mean_trace": float(own),
        "foreground": float((log_p.argmax(1) > 0).float().mean()),
        "largest_annotator": float((said > 0).float().mean((0, 2, 3)).max()),
    }


def pixels(scene: str, panel: str, methods: tuple[str, ...] = METHODS, **how: object) -> list[dict]:
    """The ladder on one scene and panel, dense and one label a picture.

    Source: Zhang 2020, Tables 1, 2, 4 and 5; the authors' reply, global against pixel.
    """
    settings = [{"scene": scene, "annotators": panel, "per_item": n} for n in (5, 1)]
    return masks.compare(settings, methods, build=built, also=judged, **how)
