"""What a user should hear before trusting learned matrices: two things that the data, or the matrices, give away."""

from __future__ import annotations

from torch import Tensor

from .annotations import Annotations
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
