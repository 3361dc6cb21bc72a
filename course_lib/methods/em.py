"""The network and the truth in turns: EM with a network (Raykar et al. 2010; Khetan et al. 2018).

In rounds: train the network on soft labels q, count each annotator's matrix, and let Bayes rewrite q. `fit_em` is the
loop; the two methods differ in what the matrices are counted against and in what the prior is.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..annotations import Annotations
from ..confusion import count_matrices, log, posterior, skills
from ..fusion import mean_label
from ..training import History, fit, predict_log_p, warn_of


class GEM(nn.Module):
    """Generalised EM: the network is the prior of the E-step, matrices are counted against the last q.

    Source: Tanno 2019, Algorithm 2, after Raykar et al. 2010. Differs: the first q is the mean over the labels that
    are there, so that it sums to 1. With one label an item, matrices counted against that q are the identity, and the
    E-step returns the label for ever: EM stands still. `first_from="network"` counts the first matrices against what
    the network answers, and gets away.

    Arguments: network: images -> logits (B, L). data: the labels that it will be fitted to; q follows their order.
    """

    def __init__(self, network: nn.Module, data: Annotations, *, first_from: str = "labels") -> None:
        super().__init__()
        if first_from not in ("labels", "network"):
            raise ValueError(f"`first_from` must be 'labels' (as printed) or 'network'; got {first_from!r}.")
        if data.labels.ndim != 2:
            raise ValueError(f"EM takes one label an item and annotator, (N, R); got {tuple(data.labels.shape)}.")
        self.network, self.first_from, self.rounds = network, first_from, 0
        L = data.n_classes
        self.register_buffer("q", mean_label(data.labels, L).float())  # (N, L)
        self.register_buffer("A", torch.eye(L).repeat(data.n_annotators, 1, 1))  # (R, L, L)

    def log_p(self, x: Tensor) -> Tensor:
        return self.network(x).log_softmax(1)  # (B, L)

    def log_A(self, x: Tensor) -> Tensor:
        return log(self.A)[None]  # (1, R, L, L)

    def loss(self, batch: tuple[Tensor, ...]) -> Tensor:
        """Cross-entropy against q, which belongs to the training items: `fit` with validation is not for EM."""
        x, _, _, index = batch
        return -(self.q[index] * self.log_p(x)).sum(1).mean()

    @torch.no_grad()
    def turn(self, data: Annotations) -> None:
        """M-step of the matrices, then E-step: after the network was trained on q, rewrite both."""
        log_p = predict_log_p(self, data.images)  # (N, L)
        q = log_p.exp() if self.rounds == 0 and self.first_from == "network" else self.q.cpu()
        self._rewrite(count_matrices(data.labels, q), log_p, data)

    def _rewrite(self, A: Tensor, log_prior: Tensor, data: Annotations) -> None:
        self.A.copy_(A)
        self.q.copy_(posterior(log(A)[None], log_prior, data.labels).exp())
        self.rounds += 1

    def confusion(self) -> Tensor:
        """(R, L, L) counted matrices, on the CPU."""
        return self.A.cpu()

    def skills(self) -> Tensor:
        """(R,) means of their diagonals."""
        return skills(self.confusion())


class MBEM(GEM):
    """Model-bootstrapped EM: matrices are counted against the network's decisions, the prior is one for all images.

    Source: Tanno 2019, Algorithm 3, after Khetan et al. 2018. `prior="counted"` is the printed one, the share of each
    class among the decisions: it feeds back, and with more rounds classes die out. `prior="uniform"` does not.
    """

    def __init__(self, network: nn.Module, data: Annotations, *, prior: str = "counted") -> None:
        super().__init__(network, data)
        if prior not in ("counted", "uniform"):
            raise ValueError(f"`prior` must be 'counted' (as printed) or 'uniform'; got {prior!r}.")
        self.prior = prior

    @torch.no_grad()
    def turn(self, data: Annotations) -> None:
        decided = nn.functional.one_hot(predict_log_p(self, data.images).argmax(1), data.n_classes).float()  # (N, L)
        share = decided.mean(0) if self.prior == "counted" else torch.full((data.n_classes,), 1 / data.n_classes)
        self._rewrite(count_matrices(data.labels, decided), log(share).expand_as(decided), data)


def fit_em(
    methods: nn.Module | Sequence[nn.Module],
    data: Annotations | Sequence[Annotations],
    *,
    rounds: int,
    epochs: int,
    seeds: int | Sequence[int] = 0,
    **options: object,
) -> list[History]:
    """`rounds` (T) times: `fit` for `epochs` in all divided by rounds (G), then `turn`. One method, or K at once.

    Adam starts afresh in each round. Options go to `fit`. Returns: the History of each round.
    Raises: ValueError if there are fewer epochs than rounds; what `fit` raises.
    """
    methods = [methods] if isinstance(methods, nn.Module) else list(methods)
    tables = [data] * len(methods) if isinstance(data, Annotations) else list(data)
    if not 1 <= rounds <= epochs:
        raise ValueError(f"each round trains for at least one epoch; got {rounds} rounds and {epochs} epochs.")
    seeds = [seeds + k for k in range(len(methods))] if isinstance(seeds, int) else list(seeds)
    histories = []
    for t in range(rounds):
        share = epochs * (t + 1) // rounds - epochs * t // rounds
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of matrices that the next lines rewrite
            histories.append(fit(methods, tables, epochs=share, seeds=[s + 7919 * t for s in seeds], **options))
        for method, own in zip(methods, tables, strict=True):
            method.turn(own)
    warn_of(methods, tables)
    return histories
