"""The parts of MrPrism (Wu et al.): what segments given confidences (ConP), and what gives confidences (DivP)."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import interpolate, max_pool2d, scaled_dot_product_attention

from .networks import initialised

INTEGRATIONS = ("attention", "concat", "convlstm")


def block(n_in: int, n_out: int) -> nn.Sequential:
    """Two 3x3 convolutions with batch norm. With group norm the network is slower to find the cup than the raters'
    matrices are to explain it away."""
    layers = []
    for i in (n_in, n_out):
        layers += [nn.Conv2d(i, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU()]
    return nn.Sequential(*layers)


class Encoder(nn.Module):
    """Pictures (B, C, H, W) -> features of `depth` scales, the finest first: (B, width 2^s, H / 2^s, W / 2^s)."""

    def __init__(self, n_channels: int, width: int, depth: int) -> None:
        super().__init__()
        widths = [n_channels] + [width * 2**s for s in range(depth)]
        self.down = nn.ModuleList(block(i, o) for i, o in zip(widths, widths[1:], strict=False))

    def forward(self, x: Tensor) -> list[Tensor]:
        found = [self.down[0](x)]
        for layer in self.down[1:]:
            found.append(layer(max_pool2d(found[-1], 2, ceil_mode=True)))
        return found


def positions(like: Tensor) -> Tensor:
    """Sines of place, (C, H, W) for like (B, C, H, W): half the channels for rows, half for columns."""
    C, H, W = like.shape[1:]
    channel = torch.arange(C, device=like.device)
    place = torch.where(
        (channel < C // 2)[:, None, None],
        torch.arange(H, device=like.device)[None, :, None].expand(C, H, W),
        torch.arange(W, device=like.device)[None, None].expand(C, H, W),
    )
    step = channel % max(C // 2, 1)
    phase = math.pi / 2 * (step % 2)  # sine and cosine in turn
    return (place / 100 ** (step / max(C // 2, 1))[:, None, None] + phase[:, None, None]).sin()


class PatchAttention(nn.Module):
    """Attention of the patches of one map to those of another: query, key, value (B, C, H, W) -> (B, C, H, W).

    A token is a patch, all its pixels in a row. Source: Wu et al., Eq. 7. Differs: maps are padded to whole patches.
    """

    def __init__(self, channels: int, patch: int, heads: int) -> None:
        super().__init__()
        dim = channels * patch**2
        if dim % heads:
            raise ValueError(f"{heads} heads do not divide the {dim} numbers of a {patch} x {patch} patch.")
        self.patch, self.heads = patch, heads
        self.maps = nn.ModuleList(nn.Linear(dim, dim) for _ in range(4))

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = (
            layer(self._tokens(x)).unflatten(2, (self.heads, -1)).transpose(1, 2)  # (B, heads, tokens, dim / heads)
            for layer, x in zip(self.maps, (query, key, value), strict=False)
        )
        found = scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self._map(self.maps[3](found), value.shape)

    def _tokens(self, x: Tensor) -> Tensor:
        p, (H, W) = self.patch, x.shape[2:]
        x = nn.functional.pad(x, (0, -W % p, 0, -H % p))
        x = x.unflatten(3, (-1, p)).unflatten(2, (-1, p))  # (B, C, h, p, w, p)
        return x.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)  # (B, h w, C p p)

    def _map(self, tokens: Tensor, shape: torch.Size) -> Tensor:
        p, (C, H, W) = self.patch, shape[1:]
        x = tokens.unflatten(1, (-(-H // p), -1)).unflatten(3, (C, p, p))  # (B, h, w, C, p, p)
        return x.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)[:, :, :H, :W]


class AttentionBlock(nn.Module):
    """Attention, add and norm, two linear maps of each pixel, add and norm. Source: Wu et al., section 4.1, Table 5."""

    def __init__(self, channels: int, patch: int, heads: int) -> None:
        super().__init__()
        self.attention = PatchAttention(channels, patch, heads)
        self.norms = nn.ModuleList(nn.GroupNorm(1, channels) for _ in range(2))  # layer norm of a map
        self.mlp = nn.Sequential(nn.Conv2d(channels, channels, 1), nn.ReLU(), nn.Conv2d(channels, channels, 1))

    def forward(self, asked: Tensor, features: Tensor) -> Tensor:
        """asked: the query's map, as large as `features` (B, C, H, W); the same map for self-attention."""
        found = self.attention(asked + positions(asked), features + positions(features), features)
        found = self.norms[0](features + found)
        return self.norms[1](found + self.mlp(found))


class Integration(nn.Module):
    """Confidences into the features of one scale, by attention, side by side, or by the gates of a ConvLSTM."""

    def __init__(self, channels: int, n_maps: int, kind: str, patch: int, heads: int, scale: int) -> None:
        super().__init__()
        self.kind, self.scale = kind, scale
        # separable: each confidence map by itself, then a mix of all at each pixel
        self.embed = nn.Sequential(
            nn.Conv2d(n_maps, n_maps, 3, padding=1, groups=n_maps), nn.Conv2d(n_maps, channels, 1)
        )
        self.mix = {
            "attention": lambda: AttentionBlock(channels, patch, heads),
            "concat": lambda: nn.Conv2d(2 * channels, channels, 1),
            "convlstm": lambda: nn.Conv2d(2 * channels, 4 * channels, 3, padding=1),
        }[kind]()

    def forward(self, features: Tensor, confidences: Tensor) -> Tensor:
        size = features.shape[2:]
        asked = self.embed(interpolate(confidences, size, mode="bilinear") if self.scale else confidences)
        if self.kind == "attention":
            return self.mix(asked, features)
        both = torch.cat([asked, features], 1)
        if self.kind == "concat":
            return features + self.mix(both)  # without the sum, a run may never find the smallest class
        into, forget, out, new = self.mix(both).chunk(4, 1)  # the features are the state that the cell remembers
        return out.sigmoid() * (forget.sigmoid() * features + into.sigmoid() * new.tanh()).tanh()


class ConP(nn.Module):
    """Features of the picture and confidences (B, maps, H, W) -> logits (B, L, H, W). Source: Wu et al., 4.1."""

    def __init__(
        self, width: int, depth: int, n_maps: int, n_classes: int, *, integration: str, patch: int, heads: int
    ) -> None:
        super().__init__()
        if integration not in INTEGRATIONS:
            raise ValueError(f"`integration` must be one of {INTEGRATIONS}; got {integration!r}.")
        scales = range(depth - 1, -1, -1)  # the coarsest first
        self.heard = nn.ModuleList(Integration(width * 2**s, n_maps, integration, patch, heads, s) for s in scales)
        self.up = nn.ModuleList(nn.Conv2d(width * 2**s, width * 2 ** (s - 1), 1) for s in scales if s)
        self.merge = nn.ModuleList(block(width * 2**s, width * 2 ** (s - 1)) for s in scales if s)
        self.head = nn.Conv2d(width, n_classes, 1)

    def forward(self, features: list[Tensor], confidences: Tensor) -> Tensor:
        found = self.heard[0](features[-1], confidences)
        for skip, up, merge, heard in zip(features[-2::-1], self.up, self.merge, self.heard[1:], strict=True):
            wide = interpolate(up(found), skip.shape[2:])
            found = heard(merge(torch.cat([wide, skip], 1)), confidences)
        return self.head(found)


class DivP(nn.Module):
    """A segmentation (B, L, H, W) -> numbers for each rater (B, maps, H, W), at a coarser scale and enlarged again.

    Source: Wu et al., section 4.2. The last layer starts at zero: at first, no rater is told from another.
    """

    def __init__(self, n_classes: int, n_maps: int, *, width: int, blocks: int, patch: int, heads: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(n_classes, width, 5, stride=2, padding=2), nn.ReLU(), nn.MaxPool2d(2))
        self.blocks = nn.ModuleList(AttentionBlock(width, patch, heads) for _ in range(blocks))
        self.head = nn.Conv2d(width + n_classes, n_maps, 1)

    def forward(self, y: Tensor) -> Tensor:
        found = self.stem(y)
        for layer in self.blocks:
            found = layer(found, found)
        return self.head(torch.cat([interpolate(found, y.shape[2:], mode="bilinear"), y], 1))


def drawn(network: nn.Module, generator: Generator) -> nn.Module:
    """Weights from `generator`; the last layer of a DivP stays at zero."""
    initialised(network, generator)
    for part in network.modules():
        if isinstance(part, DivP):
            nn.init.zeros_(part.head.weight)
            nn.init.zeros_(part.head.bias)
    return network
