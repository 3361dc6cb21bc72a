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
from .held_out import NET_EACH, NET_PIXELS, NET_SHARED, PIXELS, left_out, smoothing_for

ITEMS, PICTURES, SIDE, MOST = 100, 10, 8, 8000
"""So many items with labels, or pictures with masks, are needed at least, and so many pixels a side; and so many items
are learned from at most."""

WIDTH, BATCH = 8, {"classes": 64, "masks": 8}
STEPS = {"classes": 300, "masks": 200}
"""Steps of a training, at most; fewer where a step is dear (`WORK`)."""

AREA, CELLS, WORK = 128 * 128, 3_000_000, 8e8
"""Of masks: pixels of a picture, numbers in its matrices, and pixels times channels of a whole training, at most."""


def why_not(data: Annotations) -> str:
    """Why no network can be trained on these pictures, as half a sentence; empty if one can."""
    masks, heard = data.labels.ndim == 4, int(data.observed.flatten(1).any(1).sum())
    if not data.identities:
        return "annotators are anonymous slots, and a matrix for each would describe nobody"
    if masks and data.images.ndim == 4 and min(data.images.shape[-2:]) < SIDE:
        return f"pictures of {' x '.join(map(str, data.images.shape[-2:]))} pixels are too small"
    if heard < (few := PICTURES if masks else ITEMS):
        return f"{heard} {'pictures' if masks else 'items'} are too few to train one; it takes {few}"
    return ""


@dataclass(eq=False)
class Networks:
    """What both kinds share. dominant: whether the matrices of Dawid-Skene are; runs: of each training its model,
    device, epochs, seconds; lost: model -> why it must not be used, however well it foretells labels; methods: the
    trained ones."""

    data: Annotations
    progress: bool = True
    dominant: bool = True
    runs: list[dict[str, Any]] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)
    methods: dict[str, nn.Module] = field(default_factory=dict)

    def fitted(self, name: str, method: nn.Module, data: Annotations, *, epochs: int, **options: Any) -> None:
        """Trains in place, and keeps the cost. Warnings wait: `lost` judges."""
        if self.progress and name not in [run["model"] for run in self.runs]:
            tqdm.write(f"training a {name}, {epochs} epochs on {pick_device()}", file=sys.stderr)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            history = fit(method, data, epochs=epochs, progress=self.progress, **options)
        self.runs.append(
            {
                "model": name,
                "device": history.device,
                "epochs": epochs,
                "steps": history.steps,
                "seconds": round(history.seconds, 1),
                "parameters": n_parameters(method),
                "all_labels": False,
            }
        )


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


class OfClasses(Networks):
    """Networks for labels (N, R) of pictures (N, C, H, W) or features (N, D)."""

    def scores(self, aside: Sequence[Tensor]) -> dict[str, Tensor]:
        """model -> (K,) log-likelihood of the labels of the items in `aside`, one part after the other; each part is
        scored by a network that learned from all other items. A last network learns from all, for `fused`."""
        known = self.data.observed.any(1).nonzero().flatten()
        known = known[torch.randperm(len(known), generator=seeded(2))]
        stop, found = known[: len(known) // 10], {}  # of the first tenth, the noisy labels tell when to stop
        for name in (NET_SHARED, NET_EACH):
            scored, before = [], len(self.runs)
            for part in (*aside, None):
                learned, watched = (_without(items, part) for items in (known[len(stop) :][:MOST], stop))
                method = self._trained(name, learned, watched)
                if part is not None:
                    prior = predict_log_p(method, self.data.images[part]).exp()
                    scored.append(left_out(method.confusion()[None], prior, self.data.labels[part]))
            found[name], self.methods[name] = torch.cat(scored), method
            seconds = round(sum(run["seconds"] for run in self.runs[before:]), 1)
            self.runs[before:] = [self.runs[-1] | {"seconds": seconds, "times": len(aside) + 1, "items": len(learned)}]
            if self.dominant and dominance(method.confusion()) <= 0:
                self.lost[name] = "its mean matrix is not row dominant: classes may have changed names"
        return found

    def _trained(self, name: str, learned: Tensor, watched: Tensor) -> Trace:
        R, L, x = self.data.n_annotators, self.data.n_classes, self.data.images
        if x.ndim == 4 and x.shape[2] == x.shape[3] >= 4:
            network = small_cnn(x.shape[1], L, size=x.shape[2], generator=seeded(0))
        else:
            network = mlp(x[0].numel(), L, generator=seeded(0))
        batch = min(BATCH["classes"], len(learned))
        epochs = min(20, max(4, round(STEPS["classes"] * batch / len(learned))))
        cm = OneForAll(R, L) if name == NET_SHARED else None
        method = Trace(network, R, L, joint=True, cm=cm, frozen_epochs=epochs // 5)
        data, watched = self.data.items(learned), self.data.items(watched)
        self.fitted(name, method, data, validation=watched, epochs=epochs, batch_size=batch, lr=3e-3)
        start = method.cm.logits.detach().softmax(1).cpu()
        A = counted(predict_log_p(method, data.images), data.labels, start)
        method.cm.logits = nn.Parameter(log(A).to(method.cm.logits.device))
        return method

    def fused(self, name: str) -> tuple[Tensor, Tensor]:
        """p (N, L) from the picture and all labels of an item, and the matrices (R, L, L)."""
        A, log_p = self.methods[name].confusion(), predict_log_p(self.methods[name], self.data.images)
        return posterior(log(A)[None], log_p, self.data.labels).exp(), A


def _without(items: Tensor, part: Tensor | None) -> Tensor:
    return items if part is None else items[~torch.isin(items, part)]


def counted(log_p: Tensor, labels: Tensor, A: Tensor, rounds: int = 10) -> Tensor:
    """The matrices (R, L, L), or (1, L, L) that all share, that EM finds from A on, while p(truth | picture) stays what
    the network says: (P, L), labels (P, R). A training so short leaves matrices near their start, at the identity."""
    n, r = (labels != MISSING).nonzero(as_tuple=True)
    for _ in range(rounds):
        q = posterior(log(A).expand(labels.shape[1], -1, -1)[None], log_p, labels).exp()  # (P, L)
        said, q = (labels, q) if len(A) > 1 else (labels[n, r][:, None], q[n])
        A = count_matrices(said, q.double(), smoothing=smoothing_for(q.shape[1])).float()
    return A


def flat(x: Tensor) -> Tensor:
    """(N, K, H, W) -> (N H W, K)."""
    return x.movedim(1, -1).flatten(0, -2)


class OfMasks(Networks):
    """Networks for masks (N, R, H, W). Large pictures are reduced, and of many some are trained on (`AREA`, `WORK`)."""

    def scores(self, aside: Tensor, n: Tensor, y: Tensor, x: Tensor) -> dict[str, Tensor]:
        """model -> (K,) log-likelihood of the labels at the pixels n, y, x (M,), by networks that did not see the
        pixels in aside (N, H, W)."""
        masked, found = torch.where(aside[:, None], MISSING, self.data.labels), {}
        for name in (NET_EACH, NET_PIXELS):
            method = self._trained(name, masked)
            priors, matrices = [], []
            for items, log_p, log_A in self._answers(method):
                here = (n >= items.start) & (n < items.stop)
                k, at = n[here] - items.start, (y[here] // self.stride, x[here] // self.stride)
                priors.append(log_p[k, :, *at].exp())
                matrices.append(log_A[k, :, :, :, *at].exp())
            found[name] = left_out(torch.cat(matrices), torch.cat(priors), self.data.labels[n, :, y, x])
        return found

    @property
    def stride(self) -> int:
        """Every so manieth pixel of a large picture is looked at, along each side."""
        R, L, (H, W) = self.data.n_annotators, self.data.n_classes, self.data.images.shape[2:]
        most = min(AREA, CELLS // (R * L * L))
        return max(1, min(math.ceil(math.sqrt(H * W / most)), min(H, W) // SIDE))

    def fused(self, name: str) -> tuple[Tensor, Tensor]:
        """p (N, L, H, W) from the picture and all labels; and what each annotator says for each truth, counted about p,
        (R, L, L)."""
        labels, s, (H, W) = self.data.labels, self.stride, self.data.labels.shape[2:]
        whole = lambda t: t.repeat_interleave(s, -2).repeat_interleave(s, -1)[..., :H, :W]  # noqa: E731
        method, found = self._trained(name, labels), []
        self.runs[-1]["all_labels"] = True
        for items, log_p, log_A in self._answers(method):
            for k, said in enumerate(labels[items]):  # one by one: at full size, matrices of each pixel are large
                found.append(posterior(whole(log_A[k, None]), whole(log_p[k, None]), said[None]).exp())
        p = torch.cat(found)
        return p, count_matrices(flat(labels), flat(p).double()).float()

    def _trained(self, name: str, labels: Tensor) -> Pixels:
        R, L, s = self.data.n_annotators, self.data.n_classes, self.stride
        small = self._small(self.data.images)
        place = lambda side: torch.arange(s // 2, side + s // 2, s).clamp(max=side - 1)  # noqa: E731
        labels = labels[:, :, place(labels.shape[2])][..., place(labels.shape[3])]
        said = (labels != MISSING).flatten(1).any(1).nonzero().flatten()
        batch = min(BATCH["masks"], len(said))
        work = batch * small[0, 0].numel() * (60 + (4 * R * L * L if name == NET_PIXELS else R * L))
        steps = max(20, min(STEPS["masks"], int(WORK / work)))
        kept = said[torch.randperm(len(said), generator=seeded(3))[: max(batch, steps * batch // 4)]].sort().values
        data = Annotations(small[kept], labels[kept], L, names=self.data.names)
        learned, watched = self._split(data)
        epochs = max(1, round(steps * batch / len(kept)))
        network = unet(small.shape[1], L, width=WIDTH, generator=seeded(0))
        rung = PixelCM(R, L, WIDTH, generator=seeded(77)) if name == NET_PIXELS else EverywhereCM(R, L)
        method = Pixels(network, rung, lam=0.01, joint=True)
        how = {"epochs": epochs, "settle": epochs // 5, "batch_size": batch, "lr": 1e-2}
        self.fitted(name, method, learned, validation=watched, **how)
        self.runs[-1] |= {"pictures": len(kept), "reduced": s}
        if name == NET_EACH:
            log_p, labels = (flat(part) for part in (predict_log_p(method, data.images, batch_size=32), data.labels))
            start = (rung.last + rung.identity).detach().softmax(2)[0, ..., 0, 0].cpu()
            some = torch.randperm(len(labels), generator=seeded(5))[:PIXELS]
            A = log(counted(log_p[some], labels[some], start)).to(rung.identity.device)
            rung.last = nn.Parameter(A[None, ..., None, None] - rung.identity)
        self._look(name, method, data.items(slice(0, 32)))
        return method

    @staticmethod
    def _split(data: Annotations) -> tuple[Annotations, Annotations]:
        """To learn from, and a tenth of the pixels of some pictures, whose noisy labels tell when to stop: few pictures
        are soon known by heart, with all mistakes of their annotators."""
        each = data.labels[0, 0].numel() * max(64, data.n_annotators * data.n_classes**2)
        some = max(1, min(data.n_items, 64, CELLS * 16 // each))
        stop = torch.rand(data.n_items, 1, *data.labels.shape[2:], generator=seeded(4)) < 0.1
        stop[some:] = False
        if not data.observed[:some][stop[:some].expand_as(data.observed[:some])].any():
            return data, data
        watched = torch.where(stop, data.labels, MISSING)
        learned = data.with_labels(torch.where(stop, MISSING, data.labels), data.names)
        return learned, data.with_labels(watched, data.names).items(slice(0, some))

    def _look(self, name: str, method: Pixels, few: Annotations) -> None:
        """Is the truth lost? Then the model is, too."""
        log_p, log_A = next(self._asked(method, few.images, 32))[1:]
        nobody = ~few.observed.any(1, keepdim=True)  # the rim of a smaller case: no foreground is claimed there
        log_p = torch.where(nobody & (torch.arange(few.n_classes) > 0).reshape(1, -1, 1, 1), -math.inf, log_p)
        if told := collapse_warnings(log_p, log_A, few.labels):
            self.lost[name] = told[0].split(":")[0]

    def _small(self, images: Tensor) -> Tensor:
        return avg_pool2d(images, self.stride, ceil_mode=True) if self.stride > 1 else images

    def _answers(self, method: Pixels) -> Iterator[tuple[slice, Tensor, Tensor]]:
        return self._asked(method, self._small(self.data.images), 4)

    @staticmethod
    @torch.no_grad()
    def _asked(method: Pixels, images: Tensor, size: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Some pictures after others: which, log_p (B, L, H, W), log_A (B, R, L, L, H, W), on the CPU."""
        method.eval()
        device = next(method.parameters()).device
        for start in range(0, len(images), size):
            x = images[start : start + size].to(device)
            log_A = method.log_A(x).cpu()
            yield slice(start, start + len(x)), method.log_p(x).cpu(), log_A.expand(len(x), *log_A.shape[1:])
