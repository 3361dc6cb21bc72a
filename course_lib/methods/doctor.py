"""One head an annotator, and how much to trust each: the weighted doctor net (Guan et al. 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..annotations import MISSING
from ..confusion import of_annotators


class DoctorNet(nn.Module):
    """Each annotator's head learns to answer as they do; the truth is a weighted mean of the heads.

    loss = mean over observed labels of [-log p_r(said)] + [-log sum_s w_s p_s(said)], where the second part moves the
    weights w alone. With one label an item a head can only vouch for its own annotator: w tends to the share of labels.
    Source: Guan et al. 2018, as described in Tanno 2019, section 3.2. Differs: both parts train together, with the
    heads cut off from the second, instead of one after the other.

    Arguments: network: images -> R L numbers, read as (B, R, L) logits. weight_lr: the weights' own learning rate.
    """

    def __init__(self, network: nn.Module, n_annotators: int, n_classes: int, *, weight_lr: float = 1e-2) -> None:
        super().__init__()
        self.network, self.shape, self.weight_lr = network, (n_annotators, n_classes), weight_lr
        self.weight_logits = nn.Parameter(torch.zeros(n_annotators))  # (R,)

    def heads(self, x: Tensor) -> Tensor:
        """log p_r(x): (B, R, L)."""
        out = self.network(x)  # (B, R L)
        if out.shape[1] != self.shape[0] * self.shape[1]:
            raise ValueError(
                f"the network must give R L = {self.shape[0] * self.shape[1]} numbers; got {out.shape[1]}."
            )
        return out.unflatten(1, self.shape).log_softmax(2)

    def _mean(self, heads: Tensor) -> Tensor:
        return (heads + self.weight_logits.log_softmax(0)[:, None]).logsumexp(1)  # (B, L)

    def log_p(self, x: Tensor) -> Tensor:
        return self._mean(self.heads(x))  # (B, L)

    def log_A(self, x: Tensor) -> None:
        return None

    def loss(self, batch: tuple[Tensor, ...]) -> Tensor:
        x, labels, who, _ = batch
        heads, observed = self.heads(x), (labels != MISSING).float()  # (B, R, L), (B, G)
        said = labels.clamp(min=0)[:, :, None]  # (B, G, 1)
        own = torch.take_along_dim(of_annotators(heads, who), said, 2).squeeze(2)  # (B, G)
        mean = torch.take_along_dim(self._mean(heads.detach())[:, None], said, 2).squeeze(2)  # (B, G)
        return -((own + mean) * observed).sum() / observed.sum().clamp(min=1)

    def param_groups(self) -> list[dict]:
        return [{"params": ["weight_logits"], "lr": self.weight_lr}]

    def weights(self) -> Tensor:
        """(R,) how much each head counts; they sum to 1."""
        return self.weight_logits.detach().softmax(0).cpu()
