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
from ..confusion import GlobalCM, count_matrices, dominance, posterior
from ..diagnose import collapse_warnings
from ..methods.pixels import Pixels
from ..methods.trace import Trace
from ..networks import mlp, n_parameters, seeded, small_cnn, unet
from ..pixel_cms import EverywhereCM, PixelCM
from ..training import fit, pick_device, predict_log_p
from .held_out import NET_EACH, NET_PIXELS, NET_SHARED, left_out, smoothing_for

ITEMS, PICTURES, SIDE = 100, 10, 8
"""So many items with labels, or pictures with masks, are needed at least; and so many pixels a side."""

WIDTH, BATCH = 8, {"classes": 64, "masks": 8}
STEPS = {"classes": 1200, "masks": 240}
"""Steps of a training, at most; fewer where a step is dear (`WORK`)."""

AREA, CELLS, WORK = 128 * 128, 3_000_000, 1.0e9
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
    """What both kinds share. runs: of each training its model, device, epochs, seconds; lost: model -> why it must not
    be used, however well it foretells labels."""

    data: Annotations
    progress: bool = True
    runs: list[dict[str, Any]] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)

    def fitted(self, name: str, methods: list[nn.Module], data: Any, *, epochs: int, **options: Any) -> None:
        """Trains in place, and keeps the cost. Warnings wait: `lost` judges."""
        if self.progress:
            tqdm.write(f"training: {name}, {epochs} epochs on {pick_device()}", file=sys.stderr)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            history = fit(methods, data, epochs=epochs, progress=self.progress, **options)
        self.runs.append(
            {
                "model": name,
                "device": history.device,
                "epochs": epochs,
                "steps": history.steps,
                "seconds": round(history.seconds, 1),
                "parameters": n_parameters(methods[0]),
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
        labels, said = self.data.labels, self.data.observed.any(1)
        seen = said.repeat(len(aside) + 1, 1)
        for k, part in enumerate(aside):
            seen[k, part] = False
        known = said.nonzero().flatten()
        stop = torch.zeros_like(said)
        stop[known[torch.randperm(len(known), generator=seeded(2))[: len(known) // 10]]] = True
        part_of = lambda keep: self.data.with_labels(torch.where(keep[:, None], labels, MISSING), self.data.names)  # noqa: E731
        train, validation = ([part_of(rows & keep) for rows in seen] for keep in (~stop, stop))
        batch = min(BATCH["classes"], self.data.n_items)
        epochs = min(40, max(4, round(STEPS["classes"] * batch / self.data.n_items)))
        self.methods, found = {}, {}
        for name in (NET_SHARED, NET_EACH):
            methods = [self._method(name) for _ in seen]
            self.fitted(
                name,
                methods,
                train,
                validation=validation,
                epochs=epochs,
                batch_size=batch,
                lr=3e-3,
                seeds=[0] * len(seen),
            )
            parts = []
            for method, items in zip(methods, aside, strict=False):
                prior = predict_log_p(method, self.data.images[items]).exp()
                parts.append(left_out(method.confusion()[None], prior, labels[items]))
            found[name], self.methods[name] = torch.cat(parts), methods[-1]
            if dominance(methods[-1].confusion()) <= 0:
                self.lost[name] = "its mean matrix is not row dominant, so classes may have changed names"
        return found

    def fused(self, name: str) -> tuple[Tensor, Tensor]:
        """p (N, L) from the picture and all labels of an item, and the matrices (R, L, L)."""
        A, log_p = self.methods[name].confusion(), predict_log_p(self.methods[name], self.data.images)
        return posterior(A.log()[None], log_p, self.data.labels).exp(), A

    def _method(self, name: str) -> Trace:
        R, L, x = self.data.n_annotators, self.data.n_classes, self.data.images
        if x.ndim == 4 and x.shape[2] == x.shape[3] >= 4:
            network = small_cnn(x.shape[1], L, size=x.shape[2], generator=seeded(0))
        else:
            network = mlp(x[0].numel(), L, generator=seeded(0))
        return Trace(network, R, L, joint=True, cm=OneForAll(R, L) if name == NET_SHARED else None)


@torch.no_grad()
def counted(method: Pixels, data: Annotations, rounds: int = 5) -> None:
    """Gives the method the matrices that EM finds when p(truth | picture) is fixed at what the network says: so short a
    training leaves them near the start, where annotators of a rare class are far more often right than that."""
    log_p = predict_log_p(method, data.images, batch_size=32)
    flat = lambda t: t.movedim(1, -1).flatten(0, -2)  # noqa: E731  (P, ...)
    cm, labels, few = method.cm, flat(data.labels), smoothing_for(data.n_classes)
    for _ in range(rounds):
        log_A = (cm.last + cm.identity).log_softmax(2).cpu()  # (1, R, L, L, 1, 1)
        q = posterior(log_A, log_p, data.labels).exp()
        A = count_matrices(labels, flat(q).double(), smoothing=few).float()
        cm.last.copy_(A.log()[None, ..., None, None].to(cm.last.device) - cm.identity)


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
        """p (N, L, H, W) from the picture and all labels, and each annotator's mean matrix (R, L, L) over pixels."""
        labels, s = self.data.labels, self.stride
        L, (H, W) = self.data.n_classes, labels.shape[2:]
        method, found = self._trained(name, labels), []
        total, weight = 0, 0
        for items, log_p, log_A in self._answers(method):
            whole = lambda t: t.repeat_interleave(s, -2).repeat_interleave(s, -1)[..., :H, :W]  # noqa: E731
            for k, said in enumerate(labels[items]):
                p = posterior(whole(log_A[k, None]), whole(log_p[k, None]), said[None]).exp()  # (1, L, H, W)
                found.append(p)
                q = p * (said != MISSING)[:, None]  # (R, L, H, W)
                total = total + (whole(log_A[k]).exp() * q[:, None]).double().sum((-2, -1))
                weight = weight + q.double().sum((-2, -1))  # (R, L)
        eye = torch.eye(L, dtype=torch.double)
        A = torch.where(weight[:, None] > 0, total / weight[:, None].clamp(min=1e-9), eye)
        return torch.cat(found), (A / A.sum(1, keepdim=True)).float()

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
        epochs = max(1, round(steps * batch / len(kept)))
        network = unet(small.shape[1], L, width=WIDTH, generator=seeded(0))
        rung = PixelCM(R, L, WIDTH, generator=seeded(77)) if name == NET_PIXELS else EverywhereCM(R, L)
        method = Pixels(network, rung, lam=0.01, joint=True)
        self.fitted(name, [method], data, epochs=epochs, settle=epochs // 5, batch_size=batch, lr=1e-2)
        self.runs[-1] |= {"pictures": len(kept), "reduced": s}
        if name == NET_EACH:
            counted(method, data)
        few = data.items(slice(0, 32))
        log_p, log_A = next(self._asked(method, few.images, 32))[1:]
        nobody = ~few.observed.any(1, keepdim=True)  # the rim of a smaller case: no foreground is claimed there
        log_p = torch.where(nobody & (torch.arange(L) > 0).reshape(1, -1, 1, 1), -math.inf, log_p)
        if told := collapse_warnings(log_p, log_A, few.labels):
            self.lost[name] = told[0].split(":")[0]
        return method

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
