"""The small networks. Each maps images (B, C, H, W), or features (B, D), to logits (B, L), and draws its weights on
the CPU."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import interpolate, max_pool2d


@torch.random.fork_rng(devices=[])  # layers draw weights when made, which ours replace
def mlp(n_inputs: int, n_classes: int, *, hidden: int = 64, generator: Generator) -> nn.Module:
    """Two hidden layers; for sweeps on 14x14 digits: n_inputs = 196."""
    return initialised(
        nn.Sequential(
            nn.Flatten(),
            nn.Linear(n_inputs, hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, n_classes),
        ),
        generator,
    )  # fmt: skip


@torch.random.fork_rng(devices=[])  # layers draw weights when made, which ours replace
def small_cnn(n_channels: int, n_classes: int, *, size: int = 28, generator: Generator) -> nn.Module:
    """Two strided 5x5 convolutions (8, 16 kernels), after LeCun et al. 1998; any size of at least 4."""
    side = math.ceil(math.ceil(size / 2) / 2)
    return initialised(
        nn.Sequential(
            nn.Conv2d(n_channels, 8, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv2d(8, 16, 5, stride=2, padding=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(16 * side * side, n_classes),
        ),
        generator,
    )  # fmt: skip


@torch.random.fork_rng(devices=[])  # layers draw weights when made, which ours replace
def paper_cnn(
    n_channels: int, n_classes: int, *, kernels: tuple[int, ...] = (32, 32, 64, 64), generator: Generator
) -> nn.Module:
    """Four 3x3 convolutions, max-pooling after the first two, global average pooling.

    Source: Tanno 2019, appendix A.
    """
    a, b, c, d = kernels
    return initialised(
        nn.Sequential(
            nn.Conv2d(n_channels, a, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(b, c, 3, padding=1), nn.ReLU(),
            nn.Conv2d(c, d, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(d, n_classes),
        ),
        generator,
    )  # fmt: skip


class UNet(nn.Module):
    """A U-Net of three scales for images of any size: logits (B, L, H, W), and the `features` before them.

    Source: Ronneberger et al. 2015. Differs: the scales are added instead of laid side by side, which costs half; what
    comes up is resized to what it meets, so that 28x28 and 27x31 work without padding; batch norm after each 3x3
    convolution. Without it the network is slower to find the object than annotators' matrices are to explain it away.
    """

    def __init__(self, n_channels: int, n_classes: int, width: int = 8) -> None:
        super().__init__()
        layer = lambda i, o: (nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())  # noqa: E731
        block = lambda i, o: nn.Sequential(*layer(i, o), *layer(o, o))  # noqa: E731
        self.down = nn.ModuleList([block(n_channels, width), block(width, 2 * width), block(2 * width, 4 * width)])
        self.squeeze = nn.ModuleList([nn.Conv2d(4 * width, 2 * width, 1), nn.Conv2d(2 * width, width, 1)])
        self.up = nn.ModuleList([block(2 * width, 2 * width), block(width, width)])
        self.head = nn.Conv2d(width, n_classes, 1)

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Before the last layer, (B, width, H, W), and at the coarsest scale, (B, 4 width, H / 4, W / 4)."""
        fine = self.down[0](x)  # (B, width, H, W)
        middle = self.down[1](max_pool2d(fine, 2, ceil_mode=True))  # half
        coarse = self.down[2](max_pool2d(middle, 2, ceil_mode=True))  # a quarter
        middle = self.up[0](middle + interpolate(self.squeeze[0](coarse), middle.shape[2:]))
        return self.up[1](fine + interpolate(self.squeeze[1](middle), fine.shape[2:])), coarse

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x)[0])


@torch.random.fork_rng(devices=[])  # layers draw weights when made, which ours replace
def unet(n_channels: int, n_classes: int, *, width: int = 8, generator: Generator) -> UNet:
    """A `UNet` with weights drawn from `generator`; width 8 has some 24,000 of them."""
    return initialised(UNet(n_channels, n_classes, width), generator)


def initialised(network: nn.Module, generator: Generator) -> nn.Module:
    """Draws every layer's weights from `generator` (uniform, variance 1 / (3 fan-in), torch's default), in place."""
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            bound = 1 / math.sqrt(layer.weight[0].numel())
            nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
            if layer.bias is not None:
                nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return network


def seeded(seed: int) -> Generator:
    """A CPU generator: the same numbers on every machine and beside every device."""
    return torch.Generator().manual_seed(seed)


def n_parameters(module: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)
