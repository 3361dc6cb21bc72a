"""Part IV: positive and negative strokes and their rivals, as rows: Zhang et al.'s tables, ratio curves, "not k"."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from .. import data, metrics, networks, observers, propagation, scenes, strokes
from ..annotations import MISSING, Annotations
from ..methods.coarse import StrokeCM, biased, complementary
from ..methods.pixels import Pixels
from ..networks import seeded
from ..pixel_cms import EverywhereCM, FixedCM, PixelCM
from ..strokes import NEGATIVE, POSITIVE
from ..training import fit, peak_mb, pick_device, predict, sized
from . import masks
from .masks import Drawn

WIDTH = 8
HANDS: dict[str, tuple[strokes.Hand, strokes.Hand]] = {
    "coarse": (strokes.coarse(), strokes.coarse(share=0.4, cuts=4)),
    "scribble": (strokes.scribble(), strokes.scribble()),
    "box": (strokes.box(), strokes.outside_box()),
    "shared": (strokes.grown(2), strokes.grown(-2)),
}
"""Who draws positive and negative strokes. `shared`: both draw the object two pixels too wide, everywhere."""
BENT = torch.tensor([[0.0, 0.9, 0.2], [0.8, 0.0, 0.8], [0.2, 0.1, 0.0]])
"""How people deny three classes who have favourites."""

SPREAD = {
    "random_walker": propagation.random_walker,
    "superpixels": propagation.superpixels,
    "grabcut": propagation.grabcut,
}
CHANNELS = {"positive": (POSITIVE,), "negative": (NEGATIVE,), "both": (POSITIVE, NEGATIVE)}


# ---- data ------------------------------------------------------------------------------------------------------------


def prepare(setting: dict, seed: int, n_train: int, n_test: int) -> Drawn:
    """Pictures, and strokes of the hands that the setting names; or words "not k", if it says how they are `denied`."""
    train, test = (scene(setting["scene"], n, seed, part) for n, part in ((n_train, "train"), (n_test, "test")))
    g, L = seeded(50_000 + seed), train.n_classes
    if "denied" in setting:
        labels = strokes.denied(train.truth, _denial(setting, L), share=setting.get("share", 1.0), generator=g)
    else:
        positive, negative = HANDS[setting["hands"]]
        target = torch.randint(L, (n_train,), generator=g) if L > 2 else 1
        labels = strokes.draw_strokes(
            train.truth, target, n_classes=L, positive=positive, negative=negative, ratio=setting.get("ratio", 1.0),
            generator=g,
        )  # fmt: skip
    return Drawn(train, test, Annotations(train.images, labels, n_classes=L))


def _denial(setting: dict, L: int) -> Tensor:
    return BENT if setting["denied"] == "bent" else complementary(L)


def scene(name: str, N: int, seed: int, part: str) -> scenes.Scene:
    generator = seeded(40_000 + 2 * seed + (part == "test"))
    if name == "chase":
        return retina_patches(N, part, generator)[0]
    if name in ("digits", "two_digits"):
        source = getattr(data.split(data.mnist5k()), part)
        if name == "two_digits":
            return scenes.two_digits(N, source, generator=generator)
        return scenes.digits(source.take(torch.arange(N)), noise=0.3, generator=generator)
    return getattr(scenes, name)(N, generator=generator)


def retina_patches(N: int, part: str, generator: torch.Generator, *, side: int = 48) -> tuple[scenes.Scene, Tensor]:
    """Patches of photographs of the retina with one observer's vessels as the truth, and what the other drew of them.

    The last three of fourteen children are kept for the test, both eyes. Raises: FileNotFoundError without CHASE_DB1.
    """
    eyes = _eyes()
    children = sorted(set(eyes.groups))
    those = [i for i, child in enumerate(eyes.groups) if (child in children[-3:]) == (part == "test")]
    H, W = eyes.masks.shape[-2:]
    eye = torch.tensor(those)[torch.randint(len(those), (N,), generator=generator)]
    middle = 0.7 * torch.rand(2, N, generator=generator) + 0.15  # the photographs are round; their corners are black
    y, x = (corner.long() for corner in middle * torch.tensor([[H - side], [W - side]]))
    rows, columns = (start[:, None] + torch.arange(side) for start in (y, x))
    at = eye[:, None, None], rows[:, :, None], columns[:, None]
    first, second = (eyes.masks[:, r][at] for r in (0, 1))
    return scenes.Scene(eyes.images.movedim(1, -1)[at].movedim(-1, 1), first, 2), second


@cache
def _eyes() -> observers.Readings:
    return observers.chase_db1(shrink=4)


# ---- methods ---------------------------------------------------------------------------------------------------------


def built(method: str, drawn: Drawn, setting: dict, seed: int) -> tuple[nn.Module, Tensor]:
    """A method by its name with fresh weights, and the labels that it is fitted to.

    strong: the true masks. semi: true masks for the `first` pictures, a share that the setting names, strokes for the
    rest, of which all other methods see nothing. positive, negative, both: those strokes; with _cm a matrix for each
    pixel, with _global one for all. random_walker, superpixels, grabcut: strokes spread over the picture, then a
    network. naive, uniform, biased, transposed: how words "not k" are read.
    """
    said, L, truth = drawn.crowd.labels, drawn.train.n_classes, drawn.train.truth
    first = (torch.arange(len(truth)) < round(setting.get("first", 1) * len(truth)))[:, None, None]  # (N, 1, 1)
    masks = torch.where(first, truth, MISSING)[:, None]
    said = torch.where(first[:, None] != (method == "semi"), said, MISSING)
    nothing = torch.full_like(said[:, :1], MISSING)
    if method == "strong":
        return _network(drawn, seed, ("mask",), "none"), masks
    if method == "semi":
        labels, kinds = _read(said, L, setting)
        return _network(drawn, seed, (*kinds, "mask"), "pixel"), torch.cat([labels, masks], 1)
    if method in SPREAD:
        return _network(drawn, seed, ("positive", "negative"), "none"), SPREAD[method](drawn.train.images, said)
    if method in ("naive", "uniform", "biased", "transposed"):
        M = {"biased": lambda: biased(said, L), "transposed": lambda: _denial(setting, L)}
        M = M.get(method, lambda: complementary(L))()
        kinds = ("positive", "positive" if method == "naive" else "negative")
        return _network(drawn, seed, kinds, "none", M=M, transposed=method == "transposed"), said
    which, _, rung = method.partition("_")
    kept = torch.cat([said[:, c : c + 1] if c in CHANNELS[which] else nothing for c in (POSITIVE, NEGATIVE)], 1)
    labels, kinds = _read(kept, L, setting)
    return _network(drawn, seed, kinds, {"": "none", "cm": "pixel", "global": "global"}[rung]), labels


def _read(labels: Tensor, L: int, setting: dict) -> tuple[Tensor, tuple[str, ...]]:
    if setting.get("unmarked", "other") == "missing":
        return labels, ("positive", "negative")
    return strokes.read_unmarked(labels, L)


def _network(
    drawn: Drawn, seed: int, kinds: Sequence[str], rung: str, *, M: Tensor | None = None, transposed: bool = False
) -> Pixels:
    C, L, R = drawn.train.images.shape[1], drawn.train.n_classes, len(kinds)
    net = networks.unet(C, L, width=WIDTH, generator=seeded(seed))
    cm = {
        "none": lambda: FixedCM(torch.eye(L).expand(1, R, L, L)[..., None, None]),
        "global": lambda: EverywhereCM(R, L),
        "pixel": lambda: PixelCM(R, L, WIDTH, generator=seeded(77 + seed)),
    }[rung]()
    stroke_cm = (Transposed if transposed else StrokeCM)(cm, complementary(L) if M is None else M, kinds=kinds)
    return Pixels(net, stroke_cm, lam=0.01 if rung != "none" else 0.0)


class Transposed(StrokeCM):
    """M^T A p as the paper prints it, whatever its entries sum to."""

    def log_M(self) -> Tensor:
        return super().log_M().T


# ---- a run -----------------------------------------------------------------------------------------------------------


def one_run(setting: dict, seed: int, method: str, *, size: str, device: str | None = None) -> dict:
    """One method on one draw, as a row: IoU with the truth of unseen pictures, and the share called foreground."""
    P = sized(
        size, train=(16, 320, 400), test=(8, 160, 300), epochs=(2, 12, 60), settle=(1, 2, 10), batch_size=(4, 16, 16)
    )
    drawn = prepare(setting, seed, P.train, P.test)
    start = time.perf_counter()
    if method == "second_observer":
        found = retina_patches(P.test, "test", seeded(40_001 + 2 * seed))[1]
    else:
        found = _learned(method, drawn, setting, seed, P, device)
    truth, L = drawn.test.truth, drawn.train.n_classes
    overlap = metrics.iou(found, truth, L, empty=1.0)
    scores = {"miou": overlap.macro, "iou_foreground": overlap.foreground}
    scores |= {"foreground": float((found > 0).float().mean()), "foreground_truth": float((truth > 0).float().mean())}
    key = {"method": method, "setting": setting, "draw": seed, "seed": seed}
    cost = {"seconds": round(time.perf_counter() - start, 3), "peak_mb": round(peak_mb(pick_device(device)))}
    return {**key, **cost, "metrics": {name: round(float(value), 5) for name, value in scores.items()}}


def _learned(method: str, drawn: Drawn, setting: dict, seed: int, P: SimpleNamespace, device: str | None) -> Tensor:
    """Classes (N, H, W) that a network calls the pixels of unseen pictures."""
    model, labels = built(method, drawn, setting, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a single run; here many draws judge
        fit(
            model, drawn.crowd.with_labels(labels), epochs=P.epochs + P.settle, settle=P.settle,
            batch_size=P.batch_size, lr=1e-2, seeds=seed, device=device, progress=False,
        )  # fmt: skip
    return predict(model, drawn.test.images)


def compare(settings: Sequence[dict], methods: Sequence[str], **how: object) -> list[dict]:
    return masks.compare(settings, methods, run=one_run, **how)


def given(*names: str, hands: str = "coarse", **more: object) -> list[dict]:
    return [{"scene": name, "hands": hands} | more for name in names]


# ---- the paper's tables ----------------------------------------------------------------------------------------------


def table1(where: str, **how: object) -> list[dict]:
    """What coarse strokes are made of. Source: Zhang et al., Table 1."""
    propagation.opencv()  # before any work
    methods = (
        "strong", "positive", "positive_cm", "negative", "negative_cm", "both", "both_global", "both_cm",
        "random_walker", "superpixels", "grabcut",
    )  # fmt: skip
    return compare(given(where), methods, **how)


def table2(**how: object) -> list[dict]:
    """Scribbles, boxes and coarse strokes. Source: Zhang et al., Table 2."""
    rows = compare(given("digits", hands="scribble", unmarked="missing"), ("superpixels", "both", "both_cm"), **how)
    rows += compare(given("digits", hands="box"), ("positive", "both", "both_cm"), **how)
    return rows + compare(given("digits"), ("both_cm",), **how)


def table3(**how: object) -> list[dict]:
    """Strokes, masks, and masks with strokes for half as many pictures more. Source: Zhang et al., Table 3."""
    return compare(given("digits", "streets", first=2 / 3), ("both_cm", "strong", "semi"), **how)


def table_s2(**how: object) -> list[dict]:
    """The same for thin vessels. Source: Zhang et al., Table S2."""
    return compare(given("vessels", first=2 / 3), ("both_cm", "strong", "semi"), **how)


def retina(**how: object) -> list[dict]:
    """Real vessels, drawn strokes, and what a second person's masks are worth; needs CHASE_DB1 (`observers`)."""
    _eyes()  # before any work
    return compare(given("chase", first=2 / 3), ("both", "both_cm", "strong", "semi", "second_observer"), **how)


def ratios(methods: Sequence[str], where: str = "digits", **how: object) -> list[dict]:
    """How much of the strokes is needed. Source: Zhang et al., Fig. 3, 4 and 5."""
    settings = [s for r in (1.0, 0.8, 0.5, 0.3, 0.01) for s in given(where, ratio=r)]
    return compare(settings, methods, **how)


def negatives(**how: object) -> list[dict]:
    """What "not k" adds where there are four classes, by how much is marked, in both readings of what is not."""
    ways = [(u, r) for u in ("missing", "other") for r in (1.0, 0.8, 0.5, 0.3, 0.01)]
    settings = [s for u, r in ways for s in given("streets", ratio=r, unmarked=u)]
    return compare(settings, ("positive", "both", "both_cm"), **how)


def unmarked(**how: object) -> list[dict]:
    """The two readings of unmarked pixels, by ratio."""
    settings = [s for u in ("missing", "other") for r in (1.0, 0.3, 0.01) for s in given("digits", ratio=r, unmarked=u)]
    return compare(settings, ("positive", "both", "both_cm"), **how)


def shared(**how: object) -> list[dict]:
    """Both hands draw too wide in the same way: nothing can tell. And coarse strokes beside them."""
    return compare(given("digits", hands="shared"), ("strong", "both", "both_cm"), **how)


def not_k(**how: object) -> list[dict]:
    """Three classes and nothing but "this is not k", read in four ways. Source: the idea of Ishida et al. 2017."""
    settings = [
        {"scene": "two_digits", "denied": M, "share": share} for M in ("uniform", "bent") for share in (1.0, 0.05)
    ]
    return compare(settings, ("strong", "naive", "uniform", "biased", "transposed"), **how)
