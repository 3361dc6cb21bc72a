"""Part III: MrPrism's rivals by their names, with the same pictures, raters, loss and number of steps."""

from __future__ import annotations

import warnings

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
from ..training import fit
from . import masks, pixels
from .masks import Drawn

WIDTH = 12
"""Of every network at `ci` and `lesson`."""
AT_PAPER = {"width": 64, "depth": 4, "patch": 2, "n_heads": 8, "blocks": 4, "frugal": True}
"""MrPrism with the channels, heads and blocks of the paper's Table 5. Its patches of 8 x 8 pixels at 512 channels would
be tokens of 32,768 numbers; they are smaller here."""

PACE = 0.5
"""MrPrism's learning rate, in parts of its rivals'. At theirs its cups are worse, and some runs find none; compared on
draw 7, which no table uses."""


def prepare(setting: dict, seed: int, n_train: int, n_test: int, side: int) -> Drawn:
    train, test = (
        fundus.disc_and_cup(n, size=side, generator=seeded(40_000 + 2 * seed + part))
        for part, n in enumerate((n_train, n_test))
    )
    said = drawn_by(train, setting, seeded(50_000 + seed), per_item=setting.get("per_item"))
    return Drawn(train, test, Annotations(train.images, said, n_classes=3))


def drawn_by(scene: masks.Scene, setting: dict, generator: torch.Generator, *, per_item: int | None = None) -> Tensor:
    panel = fundus.PANELS[setting["annotators"]]
    return draw_masks(scene.truth, scene.images, panel, n_classes=3, per_item=per_item, generator=generator)


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


def trained(
    method: str,
    drawn: Drawn,
    setting: dict,
    seed: int,
    *,
    width: int = WIDTH,
    prism: dict | None = None,
    **budget: object,
) -> nn.Module:
    """A method by its name, trained. `budget` goes to `fit`: every network gets the same number of steps in all.
    prism: MrPrism's sizes."""
    C, L, R = drawn.train.images.shape[1], drawn.train.n_classes, drawn.crowd.n_annotators
    net = lambda: networks.unet(C, L, width=width, generator=seeded(seed))  # noqa: E731
    score = setting.get("loss", "ssim")
    quiet = lambda m: fitted(m, drawn.crowd, seed, **budget)  # noqa: E731
    if method in FUSED or method in ("known_matrices", "spatial_staple"):
        return pupil_of(fused(method, drawn, seed), drawn, setting, seed, width=width, **budget)
    if method in ("aggnet", "aggnet_once"):
        many = method == "aggnet"
        model = AggNet(net(), fused("mode_label", drawn, seed), score=score, rounds=1 if many else 5)
        return _in_turns(model, drawn.crowd, seed, rounds=4 if many else 2, **budget)
    if method.startswith("prism"):
        how = {"width": width, "generator": seeded(seed)} | (prism or {}) | PRISMS[method]
        return fitted(Prism(C, R, L, **how), drawn.crowd, seed, **(budget | {"lr": PACE * budget["lr"]}))
    makers = {
        "label_sampling": lambda: LabelSampling([net()]),
        "heads": lambda: Heads(net(), R, L, generator=seeded(77 + seed)),
        "crowd_layer": lambda: CrowdLayer(net(), R, L, layer_lr=3e-3, spatial=2),
        "max_mig": lambda: MaxMIG(net(), R, L, aggregator_lr=3e-3),
        "global_joint": lambda: Pixels(net(), EverywhereCM(R, L), joint=True),
        "pixel_joint": lambda: Pixels(net(), PixelCM(R, L, width, generator=seeded(77 + seed)), joint=True),
    }
    if method == "mrnet":
        return quiet(MRNet(C, R, L, width=width, generator=seeded(seed)))
    return quiet(Structured(makers[method]()) if score == "ssim" else makers[method]())


def pupil_of(q: Tensor, drawn: Drawn, setting: dict, seed: int, *, width: int = WIDTH, **budget: object) -> AggNet:
    """A plain network, taught by soft masks q (N, L, H, W) of the training pictures."""
    net = networks.unet(drawn.train.images.shape[1], drawn.train.n_classes, width=width, generator=seeded(seed))
    return fitted(AggNet(net, q, score=setting.get("loss", "ssim")), drawn.crowd, seed, **budget)


PRISMS: dict[str, dict] = {
    "prism": {},
    "prism_em": {"losses": ("em",)},
    "prism_pixel": {"where": "pixel"},
    "prism_printed": {"variant": "printed", "integration": "attention"},
    "prism_released": {"variant": "released", "integration": "attention"},
    "prism_attention": {"integration": "attention"},
    "prism_shuffle": {"losses": ("shuffle",)},
    "prism_convlstm_shuffle": {"integration": "convlstm", "losses": ("shuffle",)},
    "prism_attention_shuffle": {"integration": "attention", "losses": ("shuffle",)},
    "prism_attention_both": {"integration": "attention", "losses": ("heads", "shuffle")},
}
"""`prism` is the corrected reading with concat and the multi-head loss."""


def fitted(model: nn.Module, data: Annotations, seed: int, **budget: object) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a single run; here many draws judge
        fit(model, data, seeds=seed, progress=False, **budget)
    return model


def _in_turns(model: AggNet, data: Annotations, seed: int, *, rounds: int, epochs: int, **budget: object) -> AggNet:
    """EM, and at its end the network settles on the last q."""
    settle = budget.pop("settle")
    epochs -= settle
    fit_em(model, data, rounds=min(rounds, epochs), epochs=epochs, seeds=seed, progress=False, **budget)
    return fitted(model, data, seed, epochs=settle, **(budget | {"lr": budget["lr"] / 10}))
