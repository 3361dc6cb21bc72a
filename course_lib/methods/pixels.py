"""Truth and annotators together, pixel by pixel (Zhang et al. 2020): any rung of the ladder in `pixel_cms`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..annotations import MISSING
from ..confusion import apply
from ..networks import UNet


class Pixels(nn.Module):
    """The network says p at a pixel, annotator r's matrix there turns it into A_r p, each label is scored under that.

    loss = mean over observed labels of [ -log (A_r p)[said] + lam * trace(A_r) ], both at the label's own pixel.
    Source: Zhang 2020, Eq. 4. Differs: the mean over labels, so that lambda means the same with one label an image and
    with five; the public code of that paper scores log-softmax of A p, a probability already, and has no lambda at
    which a perfect fit costs nothing.
    Arguments: network: a UNet, whose features the matrices share. cm: see `pixel_cms`. lam >= 0. joint: all labels of a
    pixel scored together. cm_lr, frozen_epochs: the matrices' own learning rate (None: the network's), and how long
    they stay at the start; without that pause they may explain every mark as a slip before the network has learned any.
    """

    def __init__(
        self,
        network: UNet,
        cm: nn.Module,
        *,
        lam: float = 0.01,
        joint: bool = False,
        cm_lr: float | None = None,
        frozen_epochs: int = 0,
    ) -> None:
        super().__init__()
        if lam < 0:
            raise ValueError(f"`lam` must be at least 0, it weighs the trace that is made small; got {lam}.")
        self.network, self.cm, self.joint = network, cm, joint
        self.cm_lr, self.frozen_epochs = cm_lr, frozen_epochs
        self.register_buffer("lam", torch.tensor(float(lam)))

    def log_p(self, x: Tensor) -> Tensor:
        return self.network(x).log_softmax(1)  # (B, L, H, W)

    def log_A(self, x: Tensor) -> Tensor:
        return self.cm(*self.network.features(x))  # (B|1, R, L, L, H, W)

    def log_says(self, x: Tensor) -> Tensor:
        """What each annotator will say: (B, R, L, H, W)."""
        return apply(self.log_A(x), self.log_p(x))

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
        rate = {} if self.cm_lr is None else {"lr": self.cm_lr}
        return [{"params": names, "frozen_epochs": self.frozen_epochs, **rate}]
