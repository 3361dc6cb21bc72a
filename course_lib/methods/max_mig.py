"""Two witnesses who must agree: mutual information between image and labels (Max-MIG, Cao et al. 2019)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..confusion import GlobalCM, posterior


class MaxMIG(nn.Module):
    """A network h looks at the image, an aggregator g at the labels; both are trained to tell each other's items apart.

    T_ij = sum_c h_c(x_i) g_c(labels_j) / prior_c says how well image i and the labels of item j go together, and
    loss = mean over i != j of T_ij - mean over i of (1 + log T_ii), minus a bound on their mutual information.
    The aggregator is a posterior whose matrices need not be normalised: g = softmax(log prior + sum_r W_r[said_r]).
    Source: Cao et al. 2019, with the KL divergence. Differs: W starts at the log of a near-identity, and the prior is
    uniform and fixed.

    Arguments: network: images -> logits (B, L, *S). aggregator_lr: W's own learning rate. With axes *S an item is a
    pixel, and each step compares `PIXELS` of its batch, drawn at random.
    """

    PIXELS = 512

    def __init__(self, network: nn.Module, n_annotators: int, n_classes: int, *, aggregator_lr: float = 1e-2) -> None:
        super().__init__()
        self.network, self.aggregator_lr = network, aggregator_lr
        self.W = nn.Parameter(GlobalCM(n_annotators, n_classes).logits.detach().log_softmax(1))  # (R, L, L)

    def log_p(self, x: Tensor) -> Tensor:
        return self.network(x).log_softmax(1)  # (B, L, *S)

    def log_A(self, x: Tensor) -> None:
        return None

    def log_fused(self, labels: Tensor, who: Tensor | None = None) -> Tensor:
        """What the aggregator makes of labels (B, G, *S): log g (B, L, *S)."""
        L, S = self.W.shape[1], labels.shape[2:]
        log_prior = torch.full((len(labels), L, *S), -math.log(L), device=labels.device)
        return posterior(self.W[(None, ..., *[None] * len(S))], log_prior, labels, who)

    def loss(self, batch: tuple[Tensor, ...]) -> Tensor:
        x, labels, who, _ = batch
        log_h, log_g = self.log_p(x), self.log_fused(labels, who)
        if log_h.ndim > 2:
            log_h, log_g = (t.movedim(1, -1).flatten(0, -2) for t in (log_h, log_g))  # (B H W, L)
            some = torch.randperm(len(log_h), device=x.device)[: self.PIXELS]
            log_h, log_g = log_h[some], log_g[some]
        B, L = log_h.shape
        log_T = (log_h[:, None] + (log_g + math.log(L))[None]).logsumexp(2)  # (B, B)
        same = torch.eye(B, dtype=torch.bool, device=x.device)
        apart = torch.where(same, 0, log_T.exp()).sum() / max(B * (B - 1), 1)
        return apart - (1 + log_T.diagonal()).mean()

    def param_groups(self) -> list[dict]:
        return [{"params": ["W"], "lr": self.aggregator_lr}]
