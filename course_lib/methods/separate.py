"""A network, or a head, for each annotator, and their mean: what one would do without any model of mistakes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from ..annotations import MISSING
from ..networks import UNet, initialised


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
        each = self.log_p_each(x)
        return each.logsumexp(1) - torch.tensor(float(each.shape[1])).log()  # (B, L, *S)

    def log_A(self, x: Tensor) -> None:
        return None

    @torch.no_grad()
    def samples(self, x: Tensor, n: int, generator: Generator | None = None) -> Tensor:
        """What the first n would say, beginning again after the last: (B, n, *S). Nothing is drawn."""
        each = self.log_p_each(x).argmax(2)  # (B, R, *S)
        return each[:, torch.arange(n) % each.shape[1]]

    def loss(self, batch: tuple[Tensor, ...]) -> Tensor:
        x, labels, who, _ = batch
        observed = (labels != MISSING).float()  # (B, G, *S)
        each = self.log_p_each(x)  # (B, R, L, *S)
        each = torch.take_along_dim(each, who.reshape(*who.shape, *[1] * (each.ndim - 2)), 1)  # (B, G, L, *S)
        said = torch.take_along_dim(each, labels.clamp(min=0)[:, :, None], 2).squeeze(2)  # (B, G, *S)
        return -(said * observed).sum() / observed.sum().clamp(min=1)


class Heads(Separate):
    """As `Separate`, but the annotators share a U-Net up to its last layer, of which each has one. Source: Guan 2018.

    Arguments: network: a UNet. n_annotators, n_classes: R, L.
    """

    def __init__(self, network: UNet, n_annotators: int, n_classes: int, *, generator: Generator) -> None:
        nn.Module.__init__(self)
        self.network, self.shape = network, (n_annotators, n_classes)
        self.heads = initialised(nn.Conv2d(network.head.in_channels, n_annotators * n_classes, 1), generator)
        network.head.requires_grad_(False)  # nobody's

    def log_p_each(self, x: Tensor) -> Tensor:
        return self.heads(self.network.features(x)[0]).unflatten(1, self.shape).log_softmax(2)  # (B, R, L, H, W)
