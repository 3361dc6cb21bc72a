"""Truth and annotators together: a network, one confusion matrix an annotator, and a small trace (Tanno et al.
2019)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..annotations import MISSING
from ..confusion import GlobalCM, joint_log_likelihood, label_log_likelihood, of_annotators, skills, trace


class Trace(nn.Module):
    """The network says p, annotator r's matrix turns it into A_r p, and each label is scored under that.

    loss = mean over observed labels of [ -log (A_r p)[said] + lam * trace(A_r) ].
    Source: Tanno 2019, Eq. 4 and Algorithm 1. Differs: Eq. 4 sums the first part over labels and the trace over
    annotators, the listing averages the first over images and the trace over annotators; here both are per observed
    label, so that lambda means the same with one label an image and with many, and annotators who labelled little are
    not shrunk.
    The same weight elsewhere: lam = lambda R / n_observed for Eq. 4; lam = lambda / (labels per image) for the listing.

    Arguments:
        network: images -> logits (B, L, *S).
        lam: >= 0; 0 is the paper's "no trace". Unit: nats for each unit of trace.
        joint: score all labels of an item together (Raykar et al. 2010) instead of each on its own (Eq. 3).
        cm: your own matrices, such as GlobalCM.fixed(A) for the oracle.
        cm_lr, frozen_epochs: the matrices' own learning rate, and how long they stay at the identity; at the
        network's rate
            they hardly leave it, and without the frozen start classes may swap.
    """

    def __init__(
        self,
        network: nn.Module,
        n_annotators: int,
        n_classes: int,
        *,
        lam: float = 0.02,
        joint: bool = False,
        cm: GlobalCM | None = None,
        cm_lr: float = 2e-2,
        frozen_epochs: int = 5,
    ) -> None:
        super().__init__()
        if lam < 0:
            raise ValueError(f"`lam` must be at least 0, it weighs the trace that is made small; got {lam}.")
        self.network, self.cm = network, cm if cm is not None else GlobalCM(n_annotators, n_classes)
        self.register_buffer("lam", torch.tensor(float(lam)))
        self.joint, self.cm_lr, self.frozen_epochs = joint, cm_lr, frozen_epochs

    @classmethod
    def oracle(cls, network: nn.Module, A: Tensor) -> Trace:
        """The true matrices are known and fixed: how well the network can do at best. A (R, L, L)."""
        return cls(network, *A.shape[:2], lam=0.0, cm=GlobalCM.fixed(A))

    def log_p(self, x: Tensor) -> Tensor:
        return self.network(x).log_softmax(1)  # (B, L, *S)

    def log_A(self, x: Tensor) -> Tensor:
        return self.cm(spatial=0)  # (1, R, L, L)

    def loss(self, batch: tuple[Tensor, ...]) -> Tensor:
        x, labels, who, _ = batch
        return trace_loss(self.log_A(x), self.log_p(x), labels, self.lam, who, joint=self.joint)

    def param_groups(self) -> list[dict]:
        return [{"params": ["cm.logits"], "lr": self.cm_lr, "frozen_epochs": self.frozen_epochs}]

    def confusion(self) -> Tensor:
        """(R, L, L) learned matrices, on the CPU."""
        return self.cm.A.cpu()

    def skills(self) -> Tensor:
        """(R,) means of their diagonals."""
        return skills(self.confusion())


def trace_loss(
    log_A: Tensor,
    log_p: Tensor,
    labels: Tensor,
    lam: Tensor | float,
    who: Tensor | None = None,
    *,
    joint: bool = False,
) -> Tensor:
    """Mean over observed labels of NLL + lam * trace; 0 where nothing is observed, and 0 for a perfect fit with lam =
    0.

    Arguments: log_A (B|1, R, L, L), log_p (B, L), labels (B, R) with MISSING, or (B, G) of the annotators who (B, G).
    Returns: scalar, at least 0.

    >>> A, p = torch.tensor([[.9, .4], [.1, .6]]), torch.tensor([[.5, .5]])
    >>> trace_loss(A.log()[None, None], p.log(), torch.tensor([[1]]), 0.1)  # -log .35 + .1 x 1.5
    tensor(1.1998)
    """
    observed = (labels != MISSING).float()  # (B, R)
    if joint:
        nll = -joint_log_likelihood(log_A, log_p, labels, who).sum()
    else:
        nll = -label_log_likelihood(log_A, log_p, labels, who).sum()
    traces = (of_annotators(trace(log_A.exp()), who) * observed).sum()  # each label pays for its own annotator
    return (nll + lam * traces) / observed.sum().clamp(min=1)


class Vanilla(nn.Module):
    """The network alone, trained on labels as if they were the truth: on the vote (N, 1), or on all labels at once."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def log_p(self, x: Tensor) -> Tensor:
        return self.network(x).log_softmax(1)  # (B, L, *S)

    def log_A(self, x: Tensor) -> None:
        return None

    def loss(self, batch: tuple[Tensor, ...]) -> Tensor:
        x, labels, _, _ = batch
        observed = (labels != MISSING).float()  # (B, R, *S)
        said = torch.take_along_dim(self.log_p(x)[:, None], labels.clamp(min=0)[:, :, None], 2).squeeze(2)  # (B, R, *S)
        return -(said * observed).sum() / observed.sum().clamp(min=1)
