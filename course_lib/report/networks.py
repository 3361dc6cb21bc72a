"""The book's networks among the models that `held_out` compares, where pictures came along.

A network says p(truth | picture) in the place of the shares of the classes, and learns its annotators' matrices
together with it: one for all, one for each (chapters 3 and 8), or one for each pixel (chapter 8). What is laid aside is
MISSING while it learns, and is scored as every other model's: log sum_j p(j | x, the others' labels) A[r, said, j].
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d
from tqdm.auto import tqdm

from ..annotations import MISSING, Annotations
from ..confusion import GlobalCM, count_matrices, dominance, log, posterior
from ..diagnose import collapse_warnings
from ..methods.pixels import Pixels
from ..methods.trace import Trace
from ..networks import mlp, n_parameters, seeded, small_cnn, unet
from ..pixel_cms import EverywhereCM, PixelCM
from ..training import fit, pick_device, predict_log_p
from .held_out import NET_EACH, NET_PIXELS, NET_SHARED, PIXELS, counted, flat, left_out

ITEMS, PICTURES, SIDE = 100, 10, 8  # the fewest items with labels, or pictures with masks, and pixels a side
BATCH, STEPS = {"classes": 64, "masks": 8}, {"classes": 300, "masks": 200}  # steps: about so many, and at most so many
MOST = 8000  # items that are learned from: four epochs of them, the fewest, are 500 steps
AREA, MATRICES = 128 * 128, 3_000_000  # a picture with masks is reduced to so many pixels, and numbers in its matrices
WORK = 8e8  # pixels times channels of a whole training on masks, at most: a quarter of a minute on one core
WIDTH, CHANNELS = 8, 60  # of the U-Net; channels: of all layers, those at half the side counted as a quarter


def why_not(data: Annotations) -> str:
    """Why no network can be trained on these pictures, as half a sentence; empty if one can."""
    masks, size = data.labels.ndim == 4, data.images.shape[2:]
    what, fewest = ("pictures", PICTURES) if masks else ("items", ITEMS)
    heard = int(data.observed.flatten(1).any(1).sum())
    if not data.identities:
        return "annotators are anonymous slots, and a matrix for each would describe nobody"
    if masks and size != data.labels.shape[2:]:
        return "the pictures are not as large as the masks"
    if masks and min(size) < SIDE:
        return f"pictures of {' x '.join(map(str, size))} pixels are too small"
    if heard < fewest:
        return f"{heard} {what} are too few to train one; it takes {fewest}"
    return ""


@dataclass(eq=False)
class Networks:
    """What both kinds share. runs: of each training its model, device, epochs, seconds; lost: model -> why it must not
    be used, however well it foretells labels."""

    data: Annotations
    progress: bool = True
    runs: list[dict[str, Any]] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)

    def fitted(self, name: str, method: nn.Module, data: Annotations, *, epochs: int, **options: Any) -> None:
        """Trains in place, and keeps the cost."""
        if self.progress and name not in [run["model"] for run in self.runs]:  # said once, not for each part
            tqdm.write(f"training a {name}, {epochs} epochs on {pick_device()}", file=sys.stderr)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # whether the truth is lost, `lost` says
            history = fit(method, data, epochs=epochs, progress=self.progress, **options)
        run = {"model": name, "device": history.device, "epochs": epochs, "steps": history.steps}
        run |= {"seconds": round(history.seconds, 1), "parameters": n_parameters(method), "all_labels": False}
        self.runs.append(run)


class OneForAll(GlobalCM):
    """One matrix that all R annotators share, as if each had one like it."""

    def __init__(self, n_annotators: int, n_classes: int) -> None:
        super().__init__(1, n_classes)
        self.R = n_annotators

    @property
    def A(self) -> Tensor:
        return super().A.expand(self.R, -1, -1)

    def forward(self, spatial: int = 0) -> Tensor:
        log_A = super().forward(spatial)
        return log_A.expand(-1, self.R, *log_A.shape[2:])


@dataclass(eq=False)
class OfClasses(Networks):
    """Networks for labels (N, R) of pictures (N, C, H, W) or features (N, D). dominant: whether the matrices of
    Dawid-Skene are; methods: the networks that learned from all items."""

    dominant: bool = True
    methods: dict[str, nn.Module] = field(default_factory=dict)

    def scores(self, aside: Sequence[Tensor]) -> dict[str, Tensor]:
        """model -> (K,) log-likelihood of the labels of the items in `aside`, one part after the other; each part is
        scored by a network that learned from all other items. A last network learns from all, for `fused`."""
        known = self.data.observed.any(1).nonzero().flatten()
        known = known[torch.randperm(len(known), generator=seeded(2))]
        tenth = len(known) // 10
        watched, learned = known[:tenth], known[tenth:][:MOST]  # the noisy labels of `watched` tell when to stop
        found = {}
        for name in (NET_SHARED, NET_EACH):
            before = len(self.runs)
            found[name] = torch.cat([self._foretold(name, part, learned, watched) for part in aside])
            method = self.methods[name] = self._trained(name, learned, watched)
            runs = self.runs[before:]  # they become one entry
            cost = {"seconds": round(sum(run["seconds"] for run in runs), 1), "times": len(runs), "items": len(learned)}
            self.runs[before:] = [runs[-1] | cost]
            if self.dominant and dominance(method.confusion()) <= 0:  # else labels alone have lost it, too
                self.lost[name] = "its mean matrix is not row dominant: classes may have changed names"
        return found

    def fused(self, name: str) -> tuple[Tensor, Tensor]:
        """p (N, L) from the picture and all labels of an item, and the matrices (R, L, L)."""
        method = self.methods[name]
        A, log_p = method.confusion(), predict_log_p(method, self.data.images)
        return posterior(log(A)[None], log_p, self.data.labels).exp(), A

    def _foretold(self, name: str, part: Tensor, learned: Tensor, watched: Tensor) -> Tensor:
        """(K,) log-likelihood of the labels of the items in `part`, by a network that saw none of these items."""
        method = self._trained(name, *(items[~torch.isin(items, part)] for items in (learned, watched)))
        prior = predict_log_p(method, self.data.images[part]).exp()  # (M, L)
        return left_out(method.confusion()[None], prior, self.data.labels[part])

    def _trained(self, name: str, learned: Tensor, watched: Tensor) -> Trace:
        R, L, batch = self.data.n_annotators, self.data.n_classes, BATCH["classes"]
        learned, watched = self.data.items(learned), self.data.items(watched)
        epochs = min(20, max(4, round(STEPS["classes"] * batch / learned.n_items)))  # an item comes 4 to 20 times
        cm = (OneForAll if name == NET_SHARED else GlobalCM)(R, L)
        method = Trace(self._network(), R, L, joint=True, cm=cm, frozen_epochs=epochs // 5)
        self.fitted(name, method, learned, validation=watched, epochs=epochs, batch_size=batch, lr=3e-3)
        start = cm.logits.detach().softmax(1).cpu()  # (R, L, L), or (1, L, L)
        A = counted(predict_log_p(method, learned.images), learned.labels, start)
        with torch.no_grad():
            cm.logits.copy_(log(A))
        return method

    def _network(self) -> nn.Module:
        """A small convolutional network for square pictures, which is all that it takes; else a perceptron."""
        L, x = self.data.n_classes, self.data.images
        if x.ndim == 4 and x.shape[2] == x.shape[3] >= 4:
            return small_cnn(x.shape[1], L, size=x.shape[2], generator=seeded(0))
        return mlp(x[0].numel(), L, generator=seeded(0))


class OfMasks(Networks):
    """Networks for masks (N, R, H, W). Large pictures are reduced, and of many some are trained on (`AREA`, `WORK`)."""

    def scores(self, aside: Tensor, n: Tensor, y: Tensor, x: Tensor) -> dict[str, Tensor]:
        """model -> (K,) log-likelihood of the labels at the pixels n, y, x (M,), n ascending, by networks that did not
        see the pixels in aside (N, H, W)."""
        seen = torch.where(aside[:, None], MISSING, self.data.labels)
        hidden = self.data.labels[n, :, y, x]  # (M, R)
        found = {}
        for name in (NET_EACH, NET_PIXELS):
            A, prior = self._at(self._trained(name, seen), n, y, x)
            found[name] = left_out(A, prior, hidden)
        return found

    def fused(self, name: str) -> tuple[Tensor, Tensor]:
        """p (N, L, H, W) from the picture and all labels; and what each annotator says for each truth, counted about p,
        (R, L, L)."""
        labels = self.data.labels
        method = self._trained(name, labels)
        self.runs[-1]["all_labels"] = True
        p = []
        for (log_p, log_A), said in zip(self._answers(method), labels, strict=True):
            p.append(posterior(self._whole(log_A)[None], self._whole(log_p)[None], said[None]).exp())
        p = torch.cat(p)
        return p, count_matrices(flat(labels), flat(p).double()).float()

    @property
    def stride(self) -> int:
        """Every so manieth pixel of a large picture is looked at, along each side."""
        R, L, (H, W) = self.data.n_annotators, self.data.n_classes, self.data.images.shape[2:]
        most = max(1, min(AREA, MATRICES // (R * L * L)))
        return min(math.ceil(math.sqrt(H * W / most)), min(H, W) // SIDE)

    def _small(self, images: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, C, h, w): means of blocks."""
        return avg_pool2d(images, self.stride, ceil_mode=True)

    def _middles(self, labels: Tensor) -> Tensor:
        """(N, R, H, W) -> (N, R, h, w): the label in the middle of each block, since a mean of labels is none."""
        s, (H, W) = self.stride, labels.shape[2:]
        y, x = (torch.arange(s // 2, side + s // 2, s).clamp(max=side - 1) for side in (H, W))
        return labels[:, :, y][..., x]

    def _whole(self, answer: Tensor) -> Tensor:
        """(..., h, w) -> (..., H, W): what was said of a block holds for each of its pixels."""
        s, (H, W) = self.stride, self.data.labels.shape[2:]
        return answer.repeat_interleave(s, -2).repeat_interleave(s, -1)[..., :H, :W]

    def _trained(self, name: str, labels: Tensor) -> Pixels:
        R, L = self.data.n_annotators, self.data.n_classes
        data, batch, steps = self._some(name, labels)
        epochs = round(steps * batch / data.n_items)
        network = unet(data.images.shape[1], L, width=WIDTH, generator=seeded(0))
        cm = PixelCM(R, L, WIDTH, generator=seeded(77)) if name == NET_PIXELS else EverywhereCM(R, L)
        method = Pixels(network, cm, joint=True)
        learned, watched = parted(data)
        how = {"epochs": epochs, "settle": epochs // 5, "batch_size": batch, "lr": 1e-2}
        self.fitted(name, method, learned, validation=watched, **how)
        self.runs[-1] |= {"pictures": data.n_items, "reduced": self.stride}
        if name == NET_EACH:
            recount(method, data)
        if told := collapsed(method, data.items(slice(0, 32))):
            self.lost[name] = told
        return method

    def _some(self, name: str, labels: Tensor) -> tuple[Annotations, int, int]:
        """What can be afforded: some pictures with labels, reduced; how many at a step; how many steps."""
        R, L = self.data.n_annotators, self.data.n_classes
        images, labels = self._small(self.data.images), self._middles(labels)
        heard = (labels != MISSING).flatten(1).any(1).nonzero().flatten()
        batch = min(BATCH["masks"], len(heard))
        # matrices of pixels are there four times: logits, log A, and the gradients of both
        channels = CHANNELS + (4 * R * L * L if name == NET_PIXELS else R * L)
        affordable = int(WORK / (batch * images[0, 0].numel() * channels))
        steps = max(20, min(STEPS["masks"], affordable))
        most = steps * batch // 4  # so that each picture comes at least four times
        kept = heard[torch.randperm(len(heard), generator=seeded(3))[:most]].sort().values
        return Annotations(images[kept], labels[kept], L, names=self.data.names), batch, steps

    def _answers(self, method: Pixels) -> Iterator[tuple[Tensor, Tensor]]:
        """log_p (L, h, w) and log_A (R, L, L, h, w) of one picture after the other: for all at once they are large."""
        for images in self._small(self.data.images).split(4):
            yield from zip(*ask(method, images), strict=True)

    def _at(self, method: Pixels, n: Tensor, y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """At the pixels n, y, x (M,), n ascending: A (M, R, L, L) and p (M, L)."""
        counts = torch.bincount(n, minlength=self.data.n_items).tolist()
        places = zip((y // self.stride).split(counts), (x // self.stride).split(counts), strict=True)
        A, p = [], []
        for (log_p, log_A), (row, column) in zip(self._answers(method), places, strict=True):
            p.append(log_p[:, row, column].movedim(-1, 0))
            A.append(log_A[..., row, column].movedim(-1, 0))
        return torch.cat(A).exp(), torch.cat(p).exp()


@torch.no_grad()
def ask(method: Pixels, images: Tensor) -> tuple[Tensor, Tensor]:
    """log_p (B, L, H, W) and log_A (B, R, L, L, H, W), on the CPU."""
    method.eval()
    x = images.to(next(method.parameters()).device)
    log_A = method.log_A(x).cpu()
    return method.log_p(x).cpu(), log_A.expand(len(x), *log_A.shape[1:])


def parted(data: Annotations) -> tuple[Annotations, Annotations]:
    """To learn from, and a tenth of the pixels of some pictures, whose noisy labels tell when to stop: few pictures
    are soon known by heart, with all mistakes of their annotators."""
    numbers = data.labels[0, 0].numel() * max(64, data.n_annotators * data.n_classes**2)  # that one picture takes
    some = min(data.n_items, 64, 16 * MATRICES // numbers)  # they are asked all at once
    stop = torch.rand(data.n_items, 1, *data.labels.shape[2:], generator=seeded(4)) < 0.1
    stop[some:] = False
    if not (data.observed & stop).any():  # labels are so few that none of them was drawn
        return data, data
    learned = data.with_labels(torch.where(stop, MISSING, data.labels), data.names)
    watched = data.with_labels(torch.where(stop, data.labels, MISSING), data.names)
    return learned, watched.items(slice(0, some))


def recount(method: Pixels, data: Annotations) -> None:
    """The matrices of an `EverywhereCM`, in place, as `counted` finds them at some pixels of `data`."""
    cm, labels = method.cm, flat(data.labels)  # (P, R)
    log_p = flat(predict_log_p(method, data.images, batch_size=32))  # (P, L)
    some = torch.randperm(len(labels), generator=seeded(5))[:PIXELS]
    with torch.no_grad():
        start = (cm.last + cm.identity).softmax(2)[0, ..., 0, 0]  # (R, L, L)
        A = counted(log_p[some], labels[some], start.cpu())
        cm.last.copy_(log(A)[None, ..., None, None] - cm.identity.cpu())


def collapsed(method: Pixels, data: Annotations) -> str:
    """Why the truth is lost, and the model with it; empty if it is not."""
    log_p, log_A = ask(method, data.images)
    rim = ~data.observed.any(1, keepdim=True)  # (B, 1, H, W), of a smaller case: no foreground is claimed there
    log_p[:, 1:].masked_fill_(rim, -math.inf)
    told = collapse_warnings(log_p, log_A, data.labels)
    return told[0].split(":")[0] if told else ""
