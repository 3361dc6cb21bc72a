"""The one matrix of this book: A[r, i, j] = p(annotator r says i | truth is j). Every column sums to 1.

Axis letters are fixed: N items, B batch, R annotators, L classes, H, W; *S stands for no axis (classes) or H, W
(pixels). Networks give logits; `log_p` (B, L, *S) and `log_A` (broadcastable to (B, R, L, L, *S), said before truth)
are log-probabilities. Four functions carry the library: what an annotator will say, how likely a label is, what the
labels say of the truth, and the trace.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .annotations import MISSING

NOTATION = (
    # ours, meaning, shape, paper 002 (Tanno et al. 2019)
    (
        "A",
        "confusion matrix: p(says i | truth is j), columns sum to 1",
        "(R, L, L)",
        r"$\mathbf{A}^{(r)}$, $a^{(r)}_{ij}$",
    ),
    ("log_A", "its logarithm, as the losses use it", "(B, R, L, L, *S)", "-"),
    ("p", "the network's p(truth | image)", "(B, L, *S)", r"$\hat{\mathbf{p}}_\theta(\mathbf{x})$"),
    ("labels", "what was said; MISSING = -1 where nobody spoke", "(N, R, *S)", r"$\tilde y^{(r)}_i$"),
    ("who", "whose labels these are, where each item was shown to a few (G) of many", "(B, G)", "-"),
    ("truth", "the true class; only metrics read it", "(N, *S)", r"$y_i$"),
    ("lam", "weight of the trace, per observed label", "number", r"$\lambda$ (see `Trace` for the factor)"),
    ("skills", "mean of a matrix's diagonal", "(R,)", "skill level"),
    ("N, R, L", "items, annotators, classes", "numbers", "$N, R, L$"),
)


def log(p: Tensor) -> Tensor:
    """Logarithm of probabilities whose zeros become 1e-30 (log = -69). For constants: a clamp has no gradient there."""
    return p.clamp(min=1e-30).log()


def check_cm(A: Tensor, *, tolerance: float = 1e-4) -> Tensor:
    """Returns A unchanged if it is (..., L, L), in [0, 1], and every column (axis -2) sums to 1.

    Raises: ValueError; if the rows sum to 1 instead, it says that the matrix is transposed.

    >>> check_cm(torch.tensor([[.9, .4], [.1, .6]])).shape
    torch.Size([2, 2])
    """
    A = torch.as_tensor(A)
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise ValueError(f"a confusion matrix must be (..., L, L), said before truth; got {tuple(A.shape)}.")
    if (-tolerance > A).any() or (1 + tolerance < A).any() or not torch.isfinite(A).all():
        raise ValueError(
            f"probabilities lie in [0, 1]; got {A.min():.3g} to {A.max():.3g}. Are these logits or counts?"
        )
    columns, rows = A.sum(-2), A.sum(-1)
    if ((columns - 1).abs() > tolerance).any():
        worst = columns.flatten()[(columns - 1).abs().flatten().argmax()]
        cause = "its rows do: it is transposed" if ((rows - 1).abs() <= tolerance).all() else "normalise A / A.sum(-2)"
        raise ValueError(f"every column of A[said, truth] must sum to 1; one sums to {worst:.3f} ({cause}).")
    return A


def check_p(p: Tensor, *, axis: int = 1, tolerance: float = 1e-4) -> Tensor:
    """Returns p unchanged if it is a distribution along `axis`.

    Raises: ValueError that asks whether logits came in the place of probabilities.
    """
    p = torch.as_tensor(p)
    off = (p.sum(axis) - 1).abs().max()
    if (p < -tolerance).any() or not off <= tolerance:  # NaN is not within any tolerance
        raise ValueError(
            f"`p` must be probabilities that sum to 1 along axis {axis}; the smallest is {p.min():.3g}, "
            f"a sum is off by {off:.3g}. Are these logits (take log_softmax), or is the class axis elsewhere?"
        )
    return p


def apply(log_A: Tensor, log_p: Tensor) -> Tensor:
    """What each annotator will say: log sum_j A[i, j] p[j].

    Source: Tanno 2019, Eq. 2. Arguments: log_A (B|1, R, L, L, *S), log_p (B, L, *S). Returns: (B, R, L, *S).

    >>> A = torch.tensor([[.9, .4], [.1, .6]])
    >>> apply(A.log()[None, None], torch.tensor([[.5, .5]]).log()).exp()
    tensor([[[0.6500, 0.3500]]])
    """
    return (log_A + log_p[:, None, None]).logsumexp(3)  # (B, R, L, *S)


def of_annotators(x: Tensor, who: Tensor | None) -> Tensor:
    """x (B|1, R, ...) of the annotators `who` (B, G) of each item: (B, G, ...). None: of all R, in order."""
    if who is None:
        return x
    return torch.take_along_dim(x, who.reshape(*who.shape, *[1] * (x.ndim - 2)), 1)  # (B, G, ...)


def by_annotator(labels: Tensor, who: Tensor | None, R: int) -> Tensor:
    """Labels (B, G, *S) of the annotators who (B, G) as (B, R, *S), MISSING where somebody was not asked. None: all."""
    if who is None:
        return labels
    place = who.reshape(*who.shape, *[1] * (labels.ndim - 2)).expand_as(labels)
    return labels.new_full((len(labels), R, *labels.shape[2:]), MISSING).scatter(1, place, labels)


def said_rows(log_A: Tensor, labels: Tensor, who: Tensor | None = None) -> Tensor:
    """Row `said` of each annotator's matrix: log A[r, said, j] for every truth j; for a missing label any row.

    Arguments: log_A (B|1, R, L, L, *S), labels (B, R, *S); or, where each item was labelled by a few of many, labels
    (B, G, *S) of the annotators who (B, G). Returns: (B, R, L, *S), or (B, G, L, *S).
    Only the said row is ever read, so no (B, R, L, L, *S) product is formed.
    """
    R, L = log_A.shape[1:3]
    if labels.shape[1] != (R if who is None else who.shape[1]):
        raise ValueError(
            f"labels of {labels.shape[1]} annotators, but "
            + (f"matrices of {R}; both are axis 1." if who is None else f"`who` names {who.shape[1]} an item.")
        )
    said = labels.clamp(min=0)
    if log_A[:, :, 0, 0].numel() != R:  # a matrix for each image or pixel
        return torch.take_along_dim(of_annotators(log_A, who), said[:, :, None, None], 2).squeeze(2)  # (B, G, L, *S)
    who = torch.arange(R, device=said.device)[None] if who is None else who  # (B|1, G)
    row = said + L * who.reshape(*who.shape, *[1] * (said.ndim - 2))  # (B, G, *S), into R L rows
    rows = log_A.reshape(R * L, L)[row]  # (B, G, *S, L)
    return rows.movedim(-1, 2)  # (B, G, L, *S)


def label_log_likelihood(log_A: Tensor, log_p: Tensor, labels: Tensor, who: Tensor | None = None) -> Tensor:
    """How likely each label is on its own: log sum_j A[said, j] p[j]; 0 where the label is missing.

    Source: Tanno 2019, one factor of Eq. 2. Arguments: log_A (B|1, R, L, L, *S), log_p (B, L, *S), labels (B, R, *S),
    or (B, G, *S) of the annotators who (B, G). Returns: as labels, at most 0; a perfect fit gives 0.

    >>> A = torch.tensor([[.9, .4], [.1, .6]])
    >>> label_log_likelihood(A.log()[None, None], torch.tensor([[.5, .5]]).log(), torch.tensor([[1]])).exp()
    tensor([[0.3500]])
    """
    rows = said_rows(log_A, labels, who)  # (B, R, L, *S)
    return torch.where(labels != MISSING, (rows + log_p[:, None]).logsumexp(2), 0)  # (B, R, *S)


def evidence(log_A: Tensor, labels: Tensor, who: Tensor | None = None) -> Tensor:
    """What all labels of an item say together of each truth: sum_r log A[r, said_r, j]. Returns: (B, L, *S)."""
    return torch.where((labels != MISSING)[:, :, None], said_rows(log_A, labels, who), 0).sum(1)  # (B, L, *S)


def joint_log_likelihood(log_A: Tensor, log_p: Tensor, labels: Tensor, who: Tensor | None = None) -> Tensor:
    """How likely all labels of an item are together: log sum_j p[j] prod_r A[r, said_r, j].

    Source: Raykar et al. 2010. Differs: Tanno 2019, Eq. 2, multiplies the sums instead (`label_log_likelihood`); the
    two are equal with one label per item or where p is one-hot. Returns: (B, *S).
    """
    return (log_p + evidence(log_A, labels, who)).logsumexp(1)  # (B, *S)


def posterior(log_A: Tensor, log_prior: Tensor, labels: Tensor, who: Tensor | None = None) -> Tensor:
    """log p(truth | labels): Bayes with a prior from class frequencies, a vote or a network. The E-step.

    Source: Dawid & Skene 1979, Eq. 2.5; Tanno 2019, Algorithm 2. An item without labels keeps its prior. Returns: (B,
    L, *S).

    >>> A = torch.tensor([[.9, .4], [.1, .6]])
    >>> posterior(A.log()[None, None], torch.tensor([[.5, .5]]).log(), torch.tensor([[0]])).exp()
    tensor([[0.6923, 0.3077]])
    """
    return (log_prior + evidence(log_A, labels, who)).log_softmax(1)  # (B, L, *S)


def trace(A: Tensor) -> Tensor:
    """Sum over the diagonal: (..., L, L) -> (...). Source: Tanno 2019, Eq. 4."""
    return A.diagonal(dim1=-2, dim2=-1).sum(-1)


def skills(A: Tensor) -> Tensor:
    """Mean of the diagonal, the paper's skill level: (..., L, L) -> (...)."""
    return trace(A) / A.shape[-1]


def dominance(A: Tensor) -> float:
    """Margin by which the mean matrix is diagonally dominant: min over i != j of mean_r A[r, i, i] - A[r, i, j].

    Source: Tanno 2019, Lemma 1 and Theorem 1. It runs along the row of what is *said* ("of all images called i, class
    i is the commonest"), not down the column of a truth. Arguments: A (R, L, L). Positive: the theorem applies.

    >>> round(dominance(torch.tensor([[[.9, .4], [.1, .6]]])), 3)
    0.5
    """
    mean = check_cm(A).mean(0)  # (L, L)
    margin = mean.diagonal()[:, None] - mean  # (L, L)
    return float(margin[~torch.eye(len(mean), dtype=torch.bool)].min())


def count_matrices(labels: Tensor, q: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Each annotator's matrix by counting labels against a (soft) truth: the M-step, and the count matrix after
    training.

    A[r, i, j] = (sum_n q[n, j] 1[said i] + smoothing) / (sum_n q[n, j] 1[observed] + L smoothing).
    Source: Dawid & Skene 1979, Eq. 2.3; Tanno 2019, Algorithm 2 (which writes the transpose).
    Arguments: labels (N, R) with MISSING, q (N, L) rows sum to 1. Returns: (R, L, L) in q's dtype; a column of a
    class that the annotator never met is the identity's when smoothing is 0 (nothing was seen to doubt them), uniform
    otherwise.
    """
    L = q.shape[1]
    flat = torch.where(labels == MISSING, L, labels)  # (N, R), class L collects the missing
    counts = torch.zeros(labels.shape[1], L + 1, L, dtype=q.dtype, device=q.device)  # (R, L + 1, L)
    for r, said in enumerate(flat.unbind(1)):
        counts[r].index_add_(0, said, q)
    counts = counts[:, :L] + smoothing  # (R, L, L)
    total = counts.sum(1, keepdim=True)
    return torch.where(
        total > 0, counts / torch.where(total > 0, total, 1), torch.eye(L, dtype=q.dtype, device=q.device)
    )


def to_sklearn(A: Tensor) -> Tensor:
    """The transpose, [truth, said], as scikit-learn prints it. The only place in this library that transposes."""
    return A.transpose(-1, -2)


class GlobalCM(nn.Module):
    """One confusion matrix an annotator, the same for every image: softmax over the said axis of R x L x L logits.

    Starts at the identity, so far as a softmax can: `start` on the diagonal whatever L is. Source: Tanno 2019,
    Algorithm 1. Differs: the paper's softplus(6 I - 5), normalised, is .956 on the diagonal at L = 10 but .664 at L =
    100.

    >>> round(float(GlobalCM(1, 100).A[0, 7, 7]), 4)
    0.95
    """

    def __init__(self, n_annotators: int, n_classes: int, *, start: float = 0.95) -> None:
        super().__init__()
        if n_annotators < 1 or n_classes < 2:
            raise ValueError(f"wanted at least 1 annotator and 2 classes; got R={n_annotators}, L={n_classes}.")
        if not 1 / n_classes < start < 1:
            raise ValueError(f"`start` must lie between 1/L={1 / n_classes:.3g} and 1; got {start}.")
        diagonal = math.log(start * (n_classes - 1) / (1 - start))  # solves e^d / (e^d + L - 1) = start
        self.logits = nn.Parameter(diagonal * torch.eye(n_classes).repeat(n_annotators, 1, 1))  # (R, L, L)

    @classmethod
    def fixed(cls, A: Tensor) -> GlobalCM:
        """Known matrices A (R, L, L), not trained: the oracle. Zeros become 1e-30."""
        A = check_cm(A).float()
        if A.ndim != 3:
            raise ValueError(
                f"wanted one matrix an annotator, (R, L, L); got {tuple(A.shape)}. Write A[None] for a single one."
            )
        cm = cls(A.shape[0], A.shape[1])
        cm.logits = nn.Parameter(log(A), requires_grad=False)
        return cm

    @property
    def A(self) -> Tensor:
        """(R, L, L) probabilities, detached."""
        return self.logits.detach().softmax(1)

    def forward(self, spatial: int = 0) -> Tensor:
        """log_A (1, R, L, L, 1 x spatial); spatial = 2 for pixels."""
        log_A = self.logits.log_softmax(1)[None]  # (1, R, L, L)
        return log_A.reshape(*log_A.shape, *[1] * spatial)
