"""Positive and negative strokes (Zhang et al.): a stroke that says "not k" is a word of an annotator, too.

Whoever believes class j says "not i" with probability M[i, j], and never "not j": columns of M sum to 1, its diagonal
is zero. So the matrix of a negative annotator is M A, and everything of `methods.pixels` holds for it:

    Pixels(network, StrokeCM(PixelCM(2, L, F, generator=g), M=complementary(L)))
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..annotations import MISSING
from ..confusion import by_annotator, check_cm, log
from ..pixel_cms import Heard

KINDS = ("positive", "negative", "mask")


def complementary(n_classes: int) -> Tensor:
    """M (L, L) of somebody who names any of the other classes with the same chance. Source: Ishida et al. 2017."""
    if n_classes < 2:
        raise ValueError(f"wanted at least 2 classes; got {n_classes}.")
    return (1 - torch.eye(n_classes)) / (n_classes - 1)


def biased(labels: Tensor, n_classes: int) -> Tensor:
    """M (L, L) of somebody who names classes as often as the words "not k" occur in labels (any shape).

    Source: Yu et al. 2018. Differs: their M is estimated from items whose class is known.
    """
    said = labels[labels != MISSING].flatten()
    counts = torch.bincount(said, minlength=n_classes).float()
    if (counts > 0).sum() < 2:
        raise ValueError(f"words of at least two classes are needed; got counts {counts.long().tolist()}.")
    M = counts[:, None] * (1 - torch.eye(n_classes))
    return M / M.sum(0)


def check_complementary(M: Tensor) -> Tensor:
    """M unchanged if it is (L, L), its columns sum to 1, and its diagonal is 0: nobody says of a k that it is not k.

    Raises: ValueError; if the rows sum to 1 instead, it says that the matrix is transposed, as the paper prints it.
    """
    M = check_cm(M)
    if M.ndim != 2 or M.diagonal().abs().max() > 1e-6:
        raise ValueError(f"`M` must be (L, L) with zeros on its diagonal, p('not i' | j); got {M.tolist()}.")
    return M


class StrokeCM(nn.Module):
    """A rung of the ladder (`pixel_cms`) whose annotators speak of what is, of what is not, or draw the truth.

    The matrix of a positive annotator is the rung's own A, of a negative one M A, of a mask the identity; traces are
    those of A, before M. Source: Zhang et al., Eq. 4, 5. Differs: M A p where M^T A p is printed, whose entries are no
    probabilities unless M is symmetric.

    Arguments: cm: a rung for as many annotators as there are kinds. M (L, L): of all negative annotators, see
    `complementary`. learn_M: M is trained from there. kinds: of "positive", "negative", "mask".
    """

    def __init__(
        self, cm: nn.Module, M: Tensor, *, kinds: Sequence[str] = ("positive", "negative"), learn_M: bool = False
    ) -> None:
        super().__init__()
        if not set(kinds) <= set(KINDS):
            raise ValueError(f"`kinds` are of {KINDS}; got {tuple(kinds)}.")
        self.cm, self.kinds, self.R = cm, tuple(kinds), len(kinds)
        self.L = len(check_complementary(M))
        which = lambda kind: torch.tensor([k == kind for k in kinds])[:, None, None]  # noqa: E731  (R, 1, 1)
        self.register_buffer("is_negative", which("negative"))
        self.register_buffer("is_mask", which("mask")[None, ..., None, None])  # (1, R, 1, 1, 1, 1)
        self.register_buffer("eye", torch.eye(self.L))
        self.logits = nn.Parameter(log(M).clamp(min=-9.0), requires_grad=learn_M)

    def log_M(self) -> Tensor:
        """(L, L), columns sum to 1, the diagonal is as good as zero."""
        return (self.logits - 99 * self.eye).log_softmax(0)

    def beliefs(self, fine: Tensor, coarse: Tensor) -> Tensor:
        """log A (B|1, R, L, L, H, W) of what they believe, before it is put into words."""
        return torch.where(self.is_mask, log(self.eye)[..., None, None], self.cm(fine, coarse))

    def words(self) -> Tensor:
        """log p(word | belief) (R, L, L): the identity, or M."""
        return torch.where(self.is_negative, self.log_M(), log(self.eye))

    def forward(self, fine: Tensor, coarse: Tensor) -> Tensor:
        log_A = self.beliefs(fine, coarse)
        words = self.words()[None, :, :, :, None, None, None]  # (1, R, L, L, 1, 1, 1)
        return (words + log_A[:, :, None]).logsumexp(3)  # (B|1, R, L, L, H, W)

    def heard(self, fine: Tensor, coarse: Tensor, labels: Tensor, who: Tensor | None) -> Heard:
        labels = by_annotator(labels, who, self.R)
        log_A = self.beliefs(fine, coarse)
        offset = self.L * torch.arange(self.R, device=labels.device)[None, :, None, None]
        words = self.words().flatten(0, 1)[labels.clamp(min=0) + offset].movedim(-1, 2)  # (B, R, L, H, W): of the said
        rows = (words[:, :, :, None] + log_A).logsumexp(2)  # (B, R, L, H, W)
        return rows, log_A.diagonal(dim1=2, dim2=3).exp().sum(-1), labels
