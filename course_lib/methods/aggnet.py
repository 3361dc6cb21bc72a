"""A network taught by fused masks, and helping to fuse them: AggNet (Albarqouni et al. 2016), pixel by pixel."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..annotations import Annotations
from ..confusion import count_matrices, log, posterior
from ..metrics import ssim
from ..training import predict_log_p


class AggNet(nn.Module):
    """The network learns soft masks q; `turn` counts each rater's matrix against q, and lets Bayes rewrite q with the
    network's answer for a prior. `em.fit_em` does both in turns.

    loss = 1 - SSIM(p, q), or with score "ce" the cross-entropy of p with q. Without a turn: a network taught by
    whatever fusion q is. With one turn of several rounds: its one-pass form, taught by the vote and then once more.
    Source: Albarqouni et al. 2016, section III. Differs: one K x K matrix a rater instead of sensitivity and
    specificity; no second network.

    Arguments: network: images -> logits (B, L, H, W). q (N, L, H, W): of the pictures that it will be fitted to, in
    their order. rounds: of M- and E-step in one turn.
    """

    def __init__(self, network: nn.Module, q: Tensor, *, score: str = "ssim", rounds: int = 1) -> None:
        super().__init__()
        if score not in ("ssim", "ce") or rounds < 1:
            raise ValueError(f"wanted `score` ssim or ce, rounds >= 1; got {score!r} and {rounds}.")
        self.network, self.score, self.rounds = network, score, rounds
        self.register_buffer("q", q.float().clone())

    def log_p(self, x: Tensor) -> Tensor:
        return self.network(x).log_softmax(1)  # (B, L, H, W)

    def log_A(self, x: Tensor) -> None:
        return None

    def loss(self, batch: tuple[Tensor, ...]) -> Tensor:
        x, _, _, index = batch
        log_p, q = self.log_p(x), self.q[index]
        return 1 - ssim(log_p.exp(), q) if self.score == "ssim" else -(q * log_p).sum(1).mean()

    @torch.no_grad()
    def turn(self, data: Annotations) -> None:
        log_p, said = predict_log_p(self, data.images), data.labels  # (N, L, H, W), (N, R, H, W)
        items = said.movedim(1, -1).flatten(0, -2)  # a pixel is an item: (N H W, R)
        for _ in range(self.rounds):
            A = count_matrices(items, self.q.cpu().movedim(1, -1).flatten(0, -2))  # (R, L, L)
            self.q.copy_(posterior(log(A)[None, ..., None, None], log_p, said).exp())
