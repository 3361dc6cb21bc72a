"""Rivals that hear of no annotators, only of labels that may be wrong: bootstrapping (Reed et al. 2014)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..annotations import MISSING


class Bootstrap(nn.Module):
    """The network trusts its own answer a little: the target is beta of the label and 1 - beta of itself.

    loss = mean over observed labels of -sum_j [beta 1(said j) + (1 - beta) t_j] log p_j, where t is p itself (soft) or
    p's most probable class (hard).
    Source: Reed et al. 2014, Eq. 6 and 7; beta = .95 for both, as in Tanno 2019, section 3.2.
    Soft, the second part is the network's entropy, and its gradient flows through both factors.

    Arguments: network: images -> logits (B, L, *S). beta in [0, 1]; 1 is `Vanilla`.
    """

    def __init__(self, network: nn.Module, *, hard: bool = False, beta: float = 0.95) -> None:
        super().__init__()
        if not 0 <= beta <= 1:
            raise ValueError(f"`beta` is the weight of the given label and must lie in [0, 1]; got {beta}.")
        self.network, self.hard, self.beta = network, hard, beta

    def log_p(self, x: Tensor) -> Tensor:
        return self.network(x).log_softmax(1)  # (B, L, *S)

    def log_A(self, x: Tensor) -> None:
        return None

    def loss(self, batch: tuple[Tensor, ...]) -> Tensor:
        x, labels, _, _ = batch
        log_p, observed = self.log_p(x), (labels != MISSING).float()  # (B, L, *S), (B, G, *S)
        said = torch.take_along_dim(log_p[:, None], labels.clamp(min=0)[:, :, None], 2).squeeze(2)  # (B, G, *S)
        own = log_p.amax(1) if self.hard else (log_p.exp() * log_p).sum(1)  # (B, *S)
        mixed = self.beta * said + (1 - self.beta) * own[:, None]  # (B, G, *S)
        return -(mixed * observed).sum() / observed.sum().clamp(min=1)
