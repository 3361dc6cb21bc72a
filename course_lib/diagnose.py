"""What a user should hear before trusting learned matrices: what data and matrices give away without a truth."""

from __future__ import annotations

from torch import Tensor

from .annotations import MISSING, Annotations
from .confusion import check_cm


def identifiability_warnings(data: Annotations, A: Tensor) -> list[str]:
    """Sentences on why the learned matrices A (R, L, L) may not be the annotators'; an empty list if none is known.

    It looks at (a) the margin by which the mean matrix is row dominant, which the trace's theorem asks for, and (b)
    how many labels each annotator gave, which should at least be as many as there are classes.
    Source: (a) Tanno 2019, Theorem 1. Differs: the theorem speaks of true and learned matrices, and only the latter are
    known here. So a warning is a reason to look, and silence is no proof: a collapsed model can look dominant.
    Arguments: A is `confusion()` of a trained method, or a count matrix. Raises: ValueError if it is not of `data`.
    """
    A, L = check_cm(A), data.n_classes
    if tuple(A.shape) != (data.n_annotators, L, L):
        raise ValueError(f"`A` must be (R, L, L) = {(data.n_annotators, L, L)} for these labels; got {tuple(A.shape)}.")
    found = []
    mean = A.mean(0)  # (L, L)
    margin = mean.diagonal()[:, None] - mean  # (L, L), along the row of what is said
    margin.fill_diagonal_(float("inf"))
    said, other = divmod(int(margin.argmin()), L)
    if margin.min() <= 0:
        lost = int((margin <= 0).any(1).sum())
        found.append(
            f"the mean matrix is not row dominant in {lost} of {L} rows: what is called class {said} is at least as "
            f"often class {other} (mean A[{said}, {said}] = {mean[said, said]:.3f}, A[{said}, {other}] = "
            f"{mean[said, other]:.3f}, margin {margin.min():+.3f}). These labels may be explained by another naming of "
            "the classes; compare with a few items whose truth you know."
        )
    given = data.observed.flatten(2).any(2).sum(0) if data.labels.ndim > 2 else data.observed.sum(0)  # (R,)
    few = (given < L).nonzero().flatten().tolist()
    if few:
        names = ", ".join(f"{data.names[r]} ({int(given[r])})" for r in few[:5])
        more = f" and {len(few) - 5} more" if len(few) > 5 else ""
        found.append(
            f"fewer labels than the {L} classes from {names}{more}: whole columns of their matrices are still at the "
            "start. Read nothing into them, or pool these annotators into one."
        )
    return found


def collapse_warnings(log_p: Tensor, log_A: Tensor, labels: Tensor) -> list[str]:
    """Sentences on why a model of masks has lost the truth, however well it fits the annotators; else an empty list.

    It looks at (a) how much foreground the network finds: more than the annotator who marks most is a flipped or a
    swollen truth, none at all a truth that was given up; and (b) whether the matrices' columns differ: where they do
    not, A p is the same for every p, and the labels say nothing of the truth.
    Source: both by trial, on runs whose truth was known; silence is no proof.
    Arguments: log_p (N, L, H, W), log_A (N|1, R, L, L, H, W), labels (N, R, H, W) with MISSING; class 0 the background.
    """
    marked, seen = (labels > 0).float(), (labels != MISSING).float()
    shares = marked.sum((0, 2, 3)) / seen.sum((0, 2, 3)).clamp(min=1)  # (R,)
    found, own = [], float((log_p.argmax(1) > 0).float().mean())
    if own > float(shares.max()):
        found.append(
            f"the predicted foreground fills {own:.1%} of the pictures, more than the {float(shares.max()):.1%} of the "
            "annotator who marks most: truth and background may have changed places. Usual causes: lambda too large, "
            "or matrices that do not start at the identity."
        )
    if own == 0 and float(shares.max()) > 0:
        found.append(
            "the network predicts no foreground anywhere, though annotators mark some: every mark is explained as a "
            "slip. Usual causes: most annotators miss most of it, too few steps, or matrices that learn too fast."
        )
    A = log_A.exp()
    apart = (A[:, :, :, :1] - A[:, :, :, 1:]).abs().sum(2).mean() / 2  # total variation between columns
    if apart < 0.1:
        found.append(
            f"the columns of the matrices are nearly equal (they differ by {float(apart):.2f} of at most 1): the "
            "labels say nothing of the truth. Give the matrices less freedom, or lambda less weight."
        )
    return found
