"""Confusion matrices that change from place to place: a ladder from one matrix to one for each pixel of each image.

Each rung is a module that sees what a `networks.UNet` saw: fine (B, F, H, W) and coarse (B, C, h, w) features. It gives
`forward(fine, coarse)` -> log_A (B|1, R, L, L, H, W), said before truth, for looking at; and for training
`heard(fine, coarse, labels, who)` -> what the loss needs of it, without log_A: the said rows (B, G, L, H, W), the
traces (B|1, G, H, W), and the labels in the order of both.
Every rung starts near the identity, by the bias of a last layer whose weights are zero.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, softplus

from .confusion import of_annotators
from .networks import initialised

Heard = tuple[Tensor, Tensor, Tensor]


class HeardRows(torch.autograd.Function):
    """log_A (B, R, L, L, *S), labels (B, R, *S) -> rows log A[said, j] (B, R, L, *S), traces of A (B, R, *S).

    What autograd would do, in one array the size of log_A going back instead of one for each entry that is read. The
    weight that comes back to row `said` is that of the E-step: p(truth = j | label).
    """

    @staticmethod
    def forward(ctx, log_A: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        said = labels.clamp(min=0)
        rows = log_A.gather(2, said[:, :, None, None].expand(-1, -1, 1, *log_A.shape[3:])).squeeze(2)
        own = log_A.diagonal(dim1=2, dim2=3).movedim(-1, 2).exp()  # (B, R, L, *S)
        ctx.save_for_backward(said, own)
        return rows, own.sum(2)

    @staticmethod
    def backward(ctx, to_rows: Tensor, to_traces: Tensor) -> tuple[Tensor, None]:
        said, own = ctx.saved_tensors
        L = own.shape[2]
        back = torch.empty((*own.shape[:2], L, *own.shape[2:]), dtype=own.dtype, device=own.device)
        for i in range(L):
            torch.mul(to_rows, (said == i)[:, :, None], out=back[:, :, i])
            back[:, :, i, i].addcmul_(own[:, :, i], to_traces)
        return back, None


class _Logits(nn.Module):
    """What rungs share whose matrices are a softmax, over the said axis, of `logits(fine, coarse)`."""

    def __init__(self, n_annotators: int, n_classes: int, start: float) -> None:
        super().__init__()
        if n_annotators < 1 or n_classes < 2 or not 1 / n_classes < start < 1:
            raise ValueError(
                f"wanted at least 1 annotator, 2 classes, and `start` between 1/L and 1; got R={n_annotators}, "
                f"L={n_classes}, {start}."
            )
        self.R, self.L = n_annotators, n_classes
        diagonal = math.log(start * (n_classes - 1) / (1 - start))  # as in confusion.GlobalCM
        self.register_buffer("identity", diagonal * torch.eye(n_classes).reshape(1, 1, n_classes, n_classes, 1, 1))

    def forward(self, fine: Tensor, coarse: Tensor) -> Tensor:
        return self.logits(fine, coarse).log_softmax(2)  # (B|1, R, L, L, H, W)

    def heard(self, fine: Tensor, coarse: Tensor, labels: Tensor, who: Tensor | None) -> Heard:
        labels, who = _in_order(labels, who, self.R)
        log_A = of_annotators(self.logits(fine, coarse), who).log_softmax(2)
        return *HeardRows.apply(log_A.expand(len(labels), *log_A.shape[1:]), labels), labels

    def _split(self, flat: Tensor) -> Tensor:
        return flat.unflatten(1, (self.R, self.L, self.L)) + self.identity


def _in_order(labels: Tensor, who: Tensor | None, R: int) -> tuple[Tensor, Tensor | None]:
    """Labels (B, G, *S) of all R annotators, in their order and without `who`, where each item names as many."""
    if who is None or who.shape[1] < R:
        return labels, who
    place = who.reshape(*who.shape, *[1] * (labels.ndim - 2)).expand_as(labels)
    return torch.zeros_like(labels).scatter(1, place, labels), None


class PlaceCM(_Logits):
    """A matrix for each place, the same in every image: a small network of the coordinates alone."""

    def __init__(
        self, n_annotators: int, n_classes: int, *, hidden: int = 32, start: float = 0.9, generator: torch.Generator
    ) -> None:
        super().__init__(n_annotators, n_classes, start)
        layers = nn.Conv2d(2, hidden, 1), nn.Tanh(), nn.Conv2d(hidden, hidden, 1), nn.Tanh()
        self.body = initialised(nn.Sequential(*layers), generator)
        with torch.no_grad():
            self.body[0].weight.mul_(4)  # else the coordinates hardly bend
        self.last = _zero(nn.Conv2d(hidden, n_annotators * n_classes**2, 1))

    def logits(self, fine: Tensor, coarse: Tensor) -> Tensor:
        return self._split(self.last(self.body(coordinates(fine)[:1])))  # (1, R, L, L, H, W)


class PixelCM(_Logits):
    """A matrix for each pixel of each image: from the U-Net's finest features and the coordinates.

    Source: Zhang 2020, section 3. Differs: the matrices share the trunk of the network that segments; a convolution
    does not know where it is, so the coordinates come in, too.
    """

    kernel = 3

    def __init__(
        self,
        n_annotators: int,
        n_classes: int,
        n_features: int,
        *,
        hidden: int = 16,
        start: float = 0.9,
        generator: torch.Generator,
    ) -> None:
        super().__init__(n_annotators, n_classes, start)
        look = nn.Conv2d(n_features + 2, hidden, self.kernel, padding=self.kernel // 2)
        self.body = initialised(nn.Sequential(look, nn.ReLU()), generator)
        self.last = _zero(nn.Conv2d(hidden, n_annotators * n_classes**2, 1))

    def logits(self, fine: Tensor, coarse: Tensor) -> Tensor:
        return self._split(self._seen(fine))

    def _seen(self, features: Tensor) -> Tensor:
        return self.last(self.body(torch.cat([features, coordinates(features)], 1)))


class CoarseCM(PixelCM):
    """A matrix for each patch of each image: from the U-Net's coarsest features and the coordinates, then enlarged."""

    kernel = 1

    def logits(self, fine: Tensor, coarse: Tensor) -> Tensor:
        return self._split(interpolate(self._seen(coarse), fine.shape[2:], mode="bilinear"))


class LowRankCM(nn.Module):
    """A matrix for each pixel from two thin ones: A = B1 B2^T + identity, each column then divided by its sum.

    Source: Zhang 2020, appendix A.4. Differs: normalised after the product, for training and for looking alike; the
    identity stays in, since without it a rank of 1 gives every truth the same column, and the labels say nothing of p.
    B1, B2 (B, R, L, rank, H, W) are positive; `heard` never forms the L x L product: memory grows with L, not L^2.
    """

    def __init__(
        self,
        n_annotators: int,
        n_classes: int,
        n_features: int,
        *,
        rank: int = 1,
        hidden: int = 16,
        start: float = 0.9,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        if not 1 <= rank < n_classes:
            raise ValueError(f"`rank` must lie in 1..L-1 = {n_classes - 1}; got {rank}.")
        self.R, self.L, self.rank = n_annotators, n_classes, rank
        self.body = initialised(nn.Sequential(nn.Conv2d(n_features + 2, hidden, 3, padding=1), nn.ReLU()), generator)
        self.last = _zero(nn.Conv2d(hidden, 2 * n_annotators * n_classes * rank, 1))
        entry = math.sqrt((1 - start) / (rank * (n_classes * start - 1)))  # B1 B2^T = entry^2 rank everywhere
        nn.init.constant_(self.last.bias, math.log(math.expm1(entry)))
        with torch.no_grad():  # the columns of B differ a little from the start, else they would stay equal
            self.last.bias.mul_(1 + 0.2 * torch.rand(self.last.bias.shape, generator=generator))

    def factors(self, fine: Tensor) -> tuple[Tensor, Tensor]:
        flat = softplus(self.last(self.body(torch.cat([fine, coordinates(fine)], 1))))
        return flat.unflatten(1, (2, self.R, self.L, self.rank)).unbind(1)  # each (B, R, L, rank, H, W)

    def forward(self, fine: Tensor, coarse: Tensor) -> Tensor:
        B1, B2 = self.factors(fine)
        eye = torch.eye(self.L, device=fine.device).reshape(1, 1, self.L, self.L, 1, 1)
        A = sum(B1[:, :, :, None, k] * B2[:, :, None, :, k] for k in range(self.rank)) + eye  # (B, R, L, L, H, W)
        return (A / A.sum(2, keepdim=True)).log()

    def heard(self, fine: Tensor, coarse: Tensor, labels: Tensor, who: Tensor | None) -> Heard:
        labels, who = _in_order(labels, who, self.R)
        B1, B2 = (of_annotators(B, who) for B in self.factors(fine))
        said = labels.clamp(min=0)[:, :, None]  # (B, G, 1, *S)
        row = torch.take_along_dim(B1, said[:, :, :, None], 2)  # (B, G, 1, rank, *S)
        truth = torch.arange(self.L, device=fine.device).reshape(1, 1, -1, 1, 1)
        column = (B1.sum(2, keepdim=True) * B2).sum(3) + 1  # (B, G, L, *S)
        rows = ((row * B2).sum(3) + (said == truth)).log() - column.log()
        return rows, (((B1 * B2).sum(3) + 1) / column).sum(2), labels


class SharedCM(nn.Module):
    """One and the same matrix for all readers, where nobody knows who is who: any rung made for a single annotator."""

    def __init__(self, cm: nn.Module, n_annotators: int) -> None:
        super().__init__()
        if cm.R != 1:
            raise ValueError(f"the rung that all share is made with n_annotators=1; got one for R={cm.R}.")
        self.cm, self.R = cm, n_annotators

    def forward(self, fine: Tensor, coarse: Tensor) -> Tensor:
        return self.cm(fine, coarse).expand(-1, self.R, -1, -1, -1, -1)

    def heard(self, fine: Tensor, coarse: Tensor, labels: Tensor, who: Tensor | None) -> Heard:
        log_A = self.cm(fine, coarse)
        return *HeardRows.apply(log_A.expand(*labels.shape[:2], *log_A.shape[2:]), labels), labels


class FixedCM(nn.Module):
    """Known matrices, not trained: A broadcastable to (B, R, L, L, H, W). The oracle."""

    def __init__(self, A: Tensor) -> None:
        super().__init__()
        self.register_buffer("log_A", A.clamp(min=1e-6).log())

    def forward(self, fine: Tensor, coarse: Tensor) -> Tensor:
        return self.log_A.expand(*self.log_A.shape[:4], *fine.shape[2:])

    def heard(self, fine: Tensor, coarse: Tensor, labels: Tensor, who: Tensor | None) -> Heard:
        labels, who = _in_order(labels, who, self.log_A.shape[1])
        log_A = of_annotators(self.forward(fine, coarse), who)
        return *HeardRows.apply(log_A.expand(len(labels), *log_A.shape[1:]), labels), labels


class EverywhereCM(_Logits):
    """One matrix an annotator, the same everywhere: `confusion.GlobalCM` as the lowest rung of the ladder."""

    def __init__(self, n_annotators: int, n_classes: int, *, start: float = 0.9) -> None:
        super().__init__(n_annotators, n_classes, start)
        self.last = nn.Parameter(torch.zeros(1, n_annotators, n_classes, n_classes, 1, 1))

    def logits(self, fine: Tensor, coarse: Tensor) -> Tensor:
        logits = self.last + self.identity
        return logits.expand(*logits.shape[:4], *fine.shape[2:])


def true_columns(log_A: Tensor, truth: Tensor) -> Tensor:
    """p(says i | true class) at each pixel: log_A (B|1, R, L, L, H, W), truth (B, H, W) -> (B, R, L, H, W)."""
    log_A = log_A.expand(len(truth), *log_A.shape[1:4], *truth.shape[1:])
    at = truth[:, None, None, None].expand(*log_A.shape[:3], 1, *truth.shape[1:])
    return log_A.gather(3, at).squeeze(3).exp()


def coordinates(x: Tensor) -> Tensor:
    """Two channels as large as x (B, C, H, W): how far down and how far right, from -1 to 1."""
    line = lambda n: torch.linspace(-1, 1, n, device=x.device)  # noqa: E731
    y, x_ = torch.meshgrid(line(x.shape[2]), line(x.shape[3]), indexing="ij")
    return torch.stack([y, x_]).expand(len(x), -1, -1, -1)


def _zero(layer: nn.Conv2d) -> nn.Conv2d:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
