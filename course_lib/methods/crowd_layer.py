"""A layer for each annotator on top of the network's answer: the crowd layer (Rodrigues & Pereira 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..annotations import MISSING
from ..confusion import of_annotators, skills


class CrowdLayer(nn.Module):
    """W_r p, read as logits of what annotator r will say. Nothing makes W_r a confusion matrix.

    loss = mean over observed labels of -log softmax(W_r p)[said].
    Source: Rodrigues & Pereira 2018, matrix weights ("MW"), started at the identity. A column of softmax(W_r) is what
    the layer says for a sure network; at the start, e / (e + L - 1) on the diagonal: .23 for ten classes.

    Arguments: network: images -> logits (B, L, *S). layer_lr: W's own learning rate; None: the network's. spatial: how
    many axes *S has; 2 for masks.
    """

    def __init__(
        self, network: nn.Module, n_annotators: int, n_classes: int, *, layer_lr: float | None = None, spatial: int = 0
    ) -> None:
        super().__init__()
        self.network, self.layer_lr, self.spatial = network, layer_lr, spatial
        self.W = nn.Parameter(torch.eye(n_classes).repeat(n_annotators, 1, 1))  # (R, L, L)

    def log_p(self, x: Tensor) -> Tensor:
        return self.network(x).log_softmax(1)  # (B, L, *S)

    def log_A(self, x: Tensor) -> Tensor:
        return self.W.log_softmax(1)[(None, ..., *[None] * self.spatial)]  # (1, R, L, L, *1)

    def loss(self, batch: tuple[Tensor, ...]) -> Tensor:
        x, labels, who, _ = batch
        observed = (labels != MISSING).float()  # (B, G, *S)
        says = torch.einsum("rij,bj...->bri...", self.W, self.log_p(x).exp()).log_softmax(2)  # (B, R, L, *S)
        said = torch.take_along_dim(of_annotators(says, who), labels.clamp(min=0)[:, :, None], 2).squeeze(
            2
        )  # (B, G, *S)
        return -(said * observed).sum() / observed.sum().clamp(min=1)

    def param_groups(self) -> list[dict]:
        return [] if self.layer_lr is None else [{"params": ["W"], "lr": self.layer_lr}]

    def confusion(self) -> Tensor:
        """(R, L, L) what each layer says where the network is sure, on the CPU."""
        return self.W.detach().softmax(1).cpu()

    def skills(self) -> Tensor:
        """(R,) means of their diagonals."""
        return skills(self.confusion())
