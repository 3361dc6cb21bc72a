"""Segment for a given trust in each rater: MRNet's idea (Ji et al. 2021), on the encoder and decoder of MrPrism."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from ..annotations import MISSING
from ..confidence import weighted
from ..metrics import ssim
from ..prism_networks import ConP, Encoder, drawn


class MRNet(nn.Module):
    """Taught with random weights of the raters, the masks mixed by these for a target; asked with equal ones.

    loss = 1 - SSIM(p(x, w), sum_r w_r [label_r]), w uniform on the simplex, anew for each picture and step. The
    weights enter at every scale by the gates of a ConvLSTM.
    Source: Ji et al. 2021, "expertise-aware inferring". Differs: without its two further modules of soft attention.
    """

    def __init__(
        self, n_channels: int, n_raters: int, n_classes: int, *, width: int = 12, depth: int = 3, generator: Generator
    ) -> None:
        super().__init__()
        self.R, self.L = n_raters, n_classes
        self.encoder = Encoder(n_channels, width, depth)
        self.conp = ConP(width, depth, n_raters, n_classes, integration="convlstm", patch=4, heads=4)
        drawn(self, generator)

    def log_p_for(self, x: Tensor, weights: Tensor) -> Tensor:
        """The segmentation for weights (B, R) that sum to 1: (B, L, H, W)."""
        maps = weights[:, :, None, None].expand(*weights.shape, *x.shape[2:])
        return self.conp(self.encoder(x), self.R * maps).log_softmax(1)  # 1 where all are equal

    def log_p(self, x: Tensor) -> Tensor:
        return self.log_p_for(x, torch.full((len(x), self.R), 1 / self.R, device=x.device))

    def log_A(self, x: Tensor) -> None:
        return None

    def loss(self, batch: tuple[Tensor, ...]) -> Tensor:
        x, labels, who, _ = batch
        parts = -torch.rand(len(x), self.R, device=x.device).clamp(min=1e-6).log()
        weights = parts / parts.sum(1, keepdim=True)  # (B, R), uniform on the simplex
        own = torch.take_along_dim(weights, who, 1)  # of those who labelled, (B, G)
        target = weighted(own.log()[:, :, None, None, None].expand(-1, -1, self.L, *labels.shape[2:]), labels)
        observed = (labels != MISSING).any(1, keepdim=True)  # a pixel that nobody labelled teaches nothing
        p = self.log_p_for(x, weights).exp()
        return 1 - ssim(p, torch.where(observed, target, p.detach()))
