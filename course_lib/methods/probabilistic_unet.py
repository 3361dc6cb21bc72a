"""Many plausible masks from one picture: a U-Net with a latent variable, and cheaper ways to more than one answer.

Each has `samples(x, n, generator)` -> (B, n, H, W), n masks of each picture, and learns in each step from the mask of
one annotator, drawn at random.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import one_hot

from ..annotations import MISSING
from ..networks import UNet, initialised


def one_at_random(labels: Tensor) -> Tensor:
    """Of each picture's labels (B, G, H, W) those of one annotator who saw it: (B, H, W); MISSING if nobody did."""
    saw = (labels != MISSING).flatten(2).any(2).float() + 1e-9  # (B, G)
    chosen = torch.multinomial(saw, 1)  # from torch's own state, which `fit` seeds in each epoch
    return labels[torch.arange(len(labels), device=labels.device), chosen[:, 0]]


def cross_entropy(log_p: Tensor, labels: Tensor) -> Tensor:
    """Sum of -log p[said] over each picture's pixels: log_p (B, L, H, W), labels (B, H, W) with MISSING -> (B,)."""
    said = log_p.gather(1, labels.clamp(min=0)[:, None]).squeeze(1)
    return -torch.where(labels != MISSING, said, 0).flatten(1).sum(1)


class Gaussian(nn.Module):
    """Pictures (B, C, H, W) -> mean and log standard deviation (B, D) of a normal distribution without correlations."""

    def __init__(self, n_channels: int, width: int, latent: int, generator: Generator) -> None:
        super().__init__()
        layer = lambda i, o: (nn.Conv2d(i, o, 3, stride=2, padding=1), nn.BatchNorm2d(o), nn.ReLU())  # noqa: E731
        self.body = nn.Sequential(*layer(n_channels, width), *layer(width, 2 * width), *layer(2 * width, 4 * width))
        self.last = nn.Linear(4 * width, 2 * latent)
        initialised(self, generator)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_sd = self.last(self.body(x).mean((2, 3))).chunk(2, 1)
        return mean, log_sd.clamp(-5, 2)


class ProbabilisticUNet(nn.Module):
    """A U-Net whose last layers also read z, a few numbers drawn for the whole picture: one z, one consistent mask.

    loss = mean over pictures of [ sum over pixels of -log p(y | x, z) + beta KL(q(z | x, y) || p(z | x)) ], z drawn
    from q, y one annotator's mask. Source: Kohl 2018, Eq. 4. Differs: a smaller U-Net; z enters by two 1x1 layers.
    Arguments: network: a UNet. n_channels: of the pictures. latent: how many numbers z has. beta > 0: weight of the KL.
    How often each kind of mask is drawn settles last, and only at a small learning rate: end with one.
    """

    def __init__(
        self,
        network: UNet,
        n_channels: int,
        n_classes: int,
        *,
        latent: int = 4,
        beta: float = 10.0,
        draws: int = 16,
        generator: Generator,
    ) -> None:
        super().__init__()
        if latent < 1 or draws < 1 or beta <= 0:
            raise ValueError(f"wanted latent >= 1, draws >= 1 and beta > 0; got {latent}, {draws} and {beta}.")
        width = network.head.in_channels
        self.network, self.L, self.beta = network, n_classes, beta
        self.prior = Gaussian(n_channels, width, latent, generator)
        self.posterior = Gaussian(n_channels + n_classes, width, latent, generator)
        mix = nn.Sequential(nn.Conv2d(width + latent, width, 1), nn.ReLU(), nn.Conv2d(width, width, 1), nn.ReLU())
        self.mix = initialised(mix, generator)
        self.register_buffer("noise", torch.randn(draws, latent, generator=generator))

    def log_p(self, x: Tensor) -> Tensor:
        """The mean over fixed draws of z from the prior: (B, L, H, W)."""
        fine, (mean, log_sd) = self.network.features(x)[0], self.prior(x)
        each = torch.stack([self._given(fine, mean + log_sd.exp() * e) for e in self.noise])  # (draws, B, L, H, W)
        return each.logsumexp(0) - torch.tensor(float(len(self.noise))).log()

    def log_A(self, x: Tensor) -> None:
        return None

    @torch.no_grad()
    def samples(self, x: Tensor, n: int, generator: Generator) -> Tensor:
        fine, (mean, log_sd) = self.network.features(x)[0], self.prior(x)
        noise = torch.randn(n, *mean.shape, generator=generator).to(x.device)
        return torch.stack([self._given(fine, mean + log_sd.exp() * e).argmax(1) for e in noise], 1)

    def loss(self, batch: tuple[Tensor, ...]) -> Tensor:
        x, labels, _, _ = batch
        y = one_at_random(labels)
        shown = one_hot(y.clamp(min=0), self.L).movedim(-1, 1).to(x.dtype) * (y != MISSING)[:, None]
        mean, log_sd = self.posterior(torch.cat([x, shown], 1))
        z = mean + log_sd.exp() * torch.randn_like(mean)
        log_p = self._given(self.network.features(x)[0], z)
        return (cross_entropy(log_p, y) + self.beta * kl((mean, log_sd), self.prior(x))).mean()

    def _given(self, fine: Tensor, z: Tensor) -> Tensor:
        everywhere = z[:, :, None, None].expand(-1, -1, *fine.shape[2:])
        return self.network.head(self.mix(torch.cat([fine, everywhere], 1))).log_softmax(1)


def kl(q: tuple[Tensor, Tensor], p: tuple[Tensor, Tensor]) -> Tensor:
    """KL(q || p) of normal distributions given as mean and log standard deviation, (B, D) each -> (B,).

    >>> one, zero = torch.ones(1, 1), torch.zeros(1, 1)
    >>> kl((one, zero), (zero, zero))  # (1 - 0)^2 / 2
    tensor([0.5000])
    """
    (m, s), (n, t) = q, p
    return (t - s + ((2 * s).exp() + (m - n) ** 2) / (2 * (2 * t).exp()) - 0.5).sum(1)


class LabelSampling(nn.Module):
    """One or several networks, each taught in each step by one random annotator. Several: an ensemble.

    Samples of several are their answers; of one, the same answer n times, unless it has dropout, which then stays on.
    Source: Lakshminarayanan 2017 for ensembles, Gal 2016 for dropout.
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def log_p(self, x: Tensor) -> Tensor:
        each = torch.stack([network(x).log_softmax(1) for network in self.networks])
        return each.logsumexp(0) - torch.tensor(float(len(each))).log()

    def log_A(self, x: Tensor) -> None:
        return None

    @torch.no_grad()
    def samples(self, x: Tensor, n: int, generator: Generator) -> Tensor:
        dropouts = [m for m in self.modules() if isinstance(m, nn.Dropout2d | nn.Dropout)]
        for dropout in dropouts:
            dropout.train()
        with torch.random.fork_rng(devices=[x.device] if x.device.type == "cuda" else []):
            torch.manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
            answers = [self.networks[k % len(self.networks)](x).argmax(1) for k in range(n)]
        for dropout in dropouts:
            dropout.eval()
        return torch.stack(answers, 1)

    def loss(self, batch: tuple[Tensor, ...]) -> Tensor:
        x, labels, _, _ = batch
        losses = []
        for network in self.networks:
            y = one_at_random(labels)
            losses.append(cross_entropy(network(x).log_softmax(1), y).sum() / (y != MISSING).sum().clamp(min=1))
        return torch.stack(losses).mean()
