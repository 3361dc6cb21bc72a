"""A network for each annotator, and their mean: what one would do without any model of mistakes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..annotations import MISSING


class Separate(nn.Module):
    """Network r learns what annotator r says; the truth is the mean of what all of them would say.

    loss = mean over observed labels of -log p_r[said]. Source: Zhang 2020, section 4, baseline "separate CNNs".
    Arguments: networks, one an annotator: images -> logits (B, L, *S).
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def log_p_each(self, x: Tensor) -> Tensor:
        """What each annotator would say: (B, R, L, *S)."""
        return torch.stack([network(x).log_softmax(1) for network in self.networks], 1)

    def log_p(self, x: Tensor) -> Tensor:
        return self.log_p_each(x).logsumexp(1) - torch.tensor(float(len(self.networks))).log()  # (B, L, *S)

    def log_A(self, x: Tensor) -> None:
        return None

    def loss(self, batch: tuple[Tensor, ...]) -> Tensor:
        x, labels, who, _ = batch
        observed = (labels != MISSING).float()  # (B, G, *S)
        each = self.log_p_each(x)  # (B, R, L, *S)
        each = torch.take_along_dim(each, who.reshape(*who.shape, *[1] * (each.ndim - 2)), 1)  # (B, G, L, *S)
        said = torch.take_along_dim(each, labels.clamp(min=0)[:, :, None], 2).squeeze(2)  # (B, G, *S)
        return -(said * observed).sum() / observed.sum().clamp(min=1)
