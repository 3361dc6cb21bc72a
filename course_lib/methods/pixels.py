"""Truth and annotators together, pixel by pixel (Zhang et al. 2020): any rung of the ladder in `pixel_cms`."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from ..annotations import MISSING
from ..confusion import apply
from ..networks import UNet
from ..pixel_cms import SharedCM


class Pixels(nn.Module):
    """The network says p at a pixel, annotator r's matrix there turns it into A_r p, each label is scored under that.

    loss = mean over observed labels of [ -log (A_r p)[said] + lam * trace(A_r) ], both at the label's own pixel.
    Source: Zhang 2020, Eq. 4. Differs: the mean over labels, so that lambda means the same with one label an image and
    with five; the public code of that paper scores log-softmax of A p, a probability already, and has no lambda at
    which a perfect fit costs nothing.
    Arguments: network: a UNet, whose features the matrices share. cm: see `pixel_cms`. lam >= 0. joint: all labels of a
    pixel scored together. cm_lr: the matrices' own learning rate, 3e-3 beside a network's 1e-2; as fast as the network,
    they soon explain whoever marks most as always right.
    """

    def __init__(
        self,
        network: UNet,
        cm: nn.Module,
        *,
        lam: float = 0.01,
        joint: bool = False,
        cm_lr: float = 3e-3,
    ) -> None:
        super().__init__()
        if lam < 0:
            raise ValueError(f"`lam` must be at least 0, it weighs the trace that is made small; got {lam}.")
        self.network, self.cm, self.joint, self.cm_lr = network, cm, joint, cm_lr
        self.exchangeable = isinstance(cm, SharedCM)
        self.register_buffer("lam", torch.tensor(float(lam)))

    def log_p(self, x: Tensor) -> Tensor:
        return self.network(x).log_softmax(1)  # (B, L, H, W)

    def log_A(self, x: Tensor) -> Tensor:
        return self.cm(*self.network.features(x))  # (B|1, R, L, L, H, W)

    def log_says(self, x: Tensor) -> Tensor:
        """What each annotator will say: (B, R, L, H, W)."""
        return apply(self.log_A(x), self.log_p(x))

    @torch.no_grad()
    def samples(self, x: Tensor, n: int, generator: Generator | None = None) -> Tensor:
        """What the first n would most likely say, beginning again after the last: (B, n, H, W). Nothing is drawn: with
        one matrix a pixel, and no word of how neighbours go together, draws are salt and pepper."""
        each = self.log_says(x).argmax(2)  # (B, R, H, W)
        return each[:, torch.arange(n) % each.shape[1]]

    def loss(self, batch: tuple[Tensor, ...]) -> Tensor:
        x, labels, who, _ = batch
        fine, coarse = self.network.features(x)
        log_p = self.network.head(fine).log_softmax(1)  # (B, L, H, W)
        rows, traces, labels = self.cm.heard(fine, coarse, labels, who)  # (B, G, L, H, W), (B|1, G, H, W)
        observed = (labels != MISSING).to(log_p.dtype)  # (B, G, H, W)
        if self.joint:
            nll = -((rows * observed[:, :, None]).sum(1) + log_p).logsumexp(1).sum()
        else:
            nll = -((rows + log_p[:, None]).logsumexp(2) * observed).sum()
        return (nll + self.lam * (traces * observed).sum()) / observed.sum().clamp(min=1)

    def param_groups(self) -> list[dict]:
        names = [name for name, p in self.named_parameters() if name.startswith("cm.") and p.requires_grad]
        return [{"params": names, "lr": self.cm_lr}]
