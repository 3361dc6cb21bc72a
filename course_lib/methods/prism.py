"""MrPrism (Wu et al.): segmentation and raters' confidences refine each other, in recurrences.

Three readings of it, a few lines apart. `printed`: its formulas as they stand. `released`: what its public code does,
with the sign of SSIM mended. `corrected`: a confidence is a row of a confusion matrix, and fusing is Bayes' rule.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..annotations import MISSING
from ..confidence import printed, weighted
from ..confusion import by_annotator, label_log_likelihood, posterior
from ..metrics import ssim
from ..prism_networks import ConP, DivP, Encoder, drawn

VARIANTS = ("printed", "released", "corrected")
START = 0.8
"""How far a rater is trusted before the first recurrence: on the diagonal of every matrix."""


class Step(NamedTuple):
    """One recurrence: log p of the segmentation (B, L, H, W), and of the raters, log p(says) (B, R, L, H, W) or
    matrices (B, R, L, L, H, W)."""

    log_y: Tensor
    log_z: Tensor


class Prism(nn.Module):
    """ConP segments, given confidences; DivP looks at the segmentation and says how far each rater is to be trusted.

    loss = mean over recurrences of [ 1 - SSIM(segmentation, labels fused with the last confidences) + zeta x what
    `losses` names ]. heads: each rater's labels under DivP. shuffle: fusions of labels and of foretold labels agree
    with the raters' confidences exchanged at random. em (corrected only): heads again, but a rater is held against the
    fused labels, as in EM's M-step, and not against the segmentation. Each recurrence has its own gradient: what goes
    into the next is detached; `frugal` makes its arrays again when needed, and memory does not grow with recurrences.
    Source: Wu et al., Algorithm 1. Differs: (all) hard thresholds have no gradient, so the foretold labels stay soft;
    batch norm; (corrected) the fusion of Proposition 1, `confusion.posterior`, with the segmentation for a prior.

    Arguments: n_channels, n_raters, n_classes. losses: of "heads", "shuffle" and "em", None: the variant's own. width,
    depth: of the encoder; patch, n_heads: of attention; blocks: of attention, in DivP.
    """

    def __init__(
        self,
        n_channels: int,
        n_raters: int,
        n_classes: int,
        *,
        variant: str = "corrected",
        integration: str = "concat",
        losses: tuple[str, ...] | None = None,
        where: str = "picture",
        recurrences: int = 3,
        zeta: float = 0.3,
        frugal: bool = False,
        width: int = 12,
        depth: int = 3,
        patch: int = 4,
        n_heads: int = 4,
        blocks: int = 2,
        generator: Generator,
    ) -> None:
        super().__init__()
        if variant not in VARIANTS:
            raise ValueError(f"`variant` must be one of {VARIANTS}; got {variant!r}.")
        own = ("heads",) if variant == "corrected" else ("shuffle",)
        losses = own if losses is None else tuple(losses)
        known = {"heads", "shuffle"} | ({"em"} if variant == "corrected" else set())
        if not set(losses) <= known or recurrences < 1:
            raise ValueError(f"wanted `losses` of {sorted(known)}, recurrences >= 1; got {losses}, {recurrences}.")
        if where not in ("picture", "pixel"):
            raise ValueError(f"`where` must be 'picture' or 'pixel'; got {where!r}.")
        self.variant, self.losses, self.recurrences, self.zeta = variant, losses, recurrences, zeta
        self.frugal, self.where = frugal, where if variant == "corrected" else "pixel"
        self.R, self.L = n_raters, n_classes
        n_maps = n_raters * n_classes * (n_classes if variant == "corrected" else 1)
        self.encoder = Encoder(n_channels, width, depth)
        self.conp = ConP(width, depth, n_maps, n_classes, integration=integration, patch=patch, heads=n_heads)
        self.divp = DivP(n_classes, n_maps, width=width, blocks=blocks, patch=patch, heads=n_heads)
        drawn(self, generator)
        start = math.log(START / (1 - START) * (n_classes - 1))
        self.register_buffer("identity", start * torch.eye(n_classes).reshape(1, 1, n_classes, n_classes, 1, 1))

    # ---- the recurrence ----------------------------------------------------------------------------------------------

    def first(self, x: Tensor) -> Tensor:
        """Before anything is known: all raters alike (B, maps, H, W)."""
        B, _, H, W = x.shape
        if self.variant == "corrected":
            return self._flat(self.identity.log_softmax(2).expand(B, self.R, -1, -1, H, W))
        return torch.full((B, self.R * self.L, H, W), math.log(1 / self.L), device=x.device)

    def step(self, features: list[Tensor], confidences: Tensor) -> Step:
        log_y = self.conp(features, confidences).log_softmax(1)
        maps = self.divp(log_y.exp().detach())
        if self.where == "picture":
            maps = maps.mean((2, 3), keepdim=True).expand_as(maps)
        if self.variant == "corrected":
            return Step(log_y, (maps.unflatten(1, (self.R, self.L, self.L)) + self.identity).log_softmax(2))
        return Step(log_y, maps.unflatten(1, (self.R, self.L)).log_softmax(2))

    def steps(self, x: Tensor, n: int) -> list[Step]:
        """Recurrences 0 to n - 1. Nobody's labels are needed: the confidences come from the segmentation."""
        features, confidences, found = self.encoder(x), self.first(x), []
        for _ in range(n):
            found.append(self.step(features, confidences))
            confidences = self._flat(found[-1].log_z).detach()
        return found

    def log_p_each(self, x: Tensor, n: int) -> Tensor:
        """Rec0, Rec1, ...: (B, n, L, H, W)."""
        return torch.stack([step.log_y for step in self.steps(x, n)], 1)

    def log_p(self, x: Tensor) -> Tensor:
        return self.steps(x, self.recurrences)[-1].log_y

    def log_A(self, x: Tensor) -> Tensor | None:
        """(B, R, L, L, H, W) of the corrected reading; the others have no matrix, only p(says)."""
        return self.steps(x, self.recurrences)[-1].log_z if self.variant == "corrected" else None

    def fused(self, step: Step, labels: Tensor, *, prior: Tensor | None = None) -> Tensor:
        """What labels (B, R, H, W) come to with these confidences: p (B, L, H, W)."""
        if self.variant == "corrected":
            prior = torch.zeros_like(step.log_y) if prior is None else prior
            return posterior(step.log_z, prior, labels).exp()
        return (printed if self.variant == "printed" else weighted)(step.log_z, labels)

    # ---- learning ----------------------------------------------------------------------------------------------------

    def loss(self, batch: tuple[Tensor, ...]) -> Tensor:
        x, labels, who, _ = batch
        labels = by_annotator(labels, who, self.R)
        features, confidences = self.encoder(x), self.first(x)
        log_z = confidences.unflatten(1, (self.R, self.L, self.L) if self.variant == "corrected" else (self.R, self.L))
        target = self.fused(Step(torch.zeros_like(log_z[:, 0]) if log_z.ndim == 5 else log_z[:, 0, 0], log_z), labels)
        total = 0
        for _ in range(self.recurrences):
            again = lambda f, c, t: self._one(f, c, t, labels)  # noqa: E731
            if self.frugal:
                part, log_z, target = checkpoint(again, features, confidences, target, use_reentrant=False)
            else:
                part, log_z, target = again(features, confidences, target)
            confidences, target, total = self._flat(log_z).detach(), target.detach(), total + part
        return total / self.recurrences

    def _one(self, features: list[Tensor], confidences: Tensor, target: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        step = self.step(features, confidences)
        y, log_y = step.log_y.exp(), step.log_y.detach()
        fused = self.fused(step, labels, prior=log_y)
        part = 1 - ssim(y, target)
        if self.variant != "corrected":
            part = part + 1 - ssim(fused, y.detach())  # DivP is to make the fusion agree
        if "heads" in self.losses:
            part = part + self.zeta * self._heads(step, log_y, labels)
        if "em" in self.losses:
            part = part + self.zeta * self._against(fused.detach(), step, labels)
        if "shuffle" in self.losses:
            part = part + self.zeta * self._shuffled(step, log_y, labels)
        return part, step.log_z, fused

    def _heads(self, step: Step, log_y: Tensor, labels: Tensor) -> Tensor:
        """Mean over observed labels of -log p(label): under A y, or under what the head says. Eq. 9."""
        observed = (labels != MISSING).float()
        if self.variant == "corrected":
            said = label_log_likelihood(step.log_z, log_y, labels)
        else:
            said = step.log_z.gather(2, labels.clamp(min=0)[:, :, None]).squeeze(2)
        return -(said * observed).sum() / observed.sum().clamp(min=1)

    def _against(self, q: Tensor, step: Step, labels: Tensor) -> Tensor:
        """Mean over observed labels of - sum_k q_k log A[label, k]: q (B, L, H, W) is what they are held against."""
        observed = (labels != MISSING).float()
        row = labels.clamp(min=0)[:, :, None, None].expand(-1, -1, 1, self.L, -1, -1)
        said = (q[:, None] * step.log_z.gather(2, row).squeeze(2)).sum(2)  # (B, R, H, W)
        return -(said * observed).sum() / observed.sum().clamp(min=1)

    def _shuffled(self, step: Step, log_y: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy between two fusions with exchanged confidences: of the labels, of the foretold ones. Eq. 10."""
        order = torch.randperm(self.R, device=labels.device)
        exchanged = step.log_z[:, order]
        if self.variant == "corrected":  # the foretold label is soft, and so is its evidence
            says = (step.log_z + log_y[:, None, None]).logsumexp(3).exp()  # (B, R, L, H, W)
            soft = (exchanged * says[:, :, :, None]).sum((1, 2)) + log_y
            log_self = soft.log_softmax(1)
            target = posterior(exchanged, log_y, labels).exp()
        else:
            votes = exchanged if self.variant == "printed" else exchanged.exp()
            soft = (votes * step.log_z.exp()).sum(1)  # (B, L, H, W)
            log_self = soft.log_softmax(1) if self.variant == "printed" else (soft / soft.sum(1, keepdim=True)).log()
            target = (printed if self.variant == "printed" else weighted)(exchanged, labels)
        return -(target.detach() * log_self).sum(1).mean()

    def _flat(self, log_z: Tensor) -> Tensor:
        return log_z.flatten(1, -3)
