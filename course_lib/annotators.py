"""Simulated annotators of classes: confusion matrices A (R, L, L) to draw, and labels drawn from them.

All randomness is drawn on the CPU from the generator that comes in, so that every machine simulates the same people.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from .annotations import MISSING, as_labels
from .confusion import check_cm


def pairwise_flippers(
    n_annotators: int,
    n_classes: int,
    skill: float,
    *,
    share: int | None = 2,
    spread: float = 0.01,
    generator: Generator,
) -> Tensor:
    """Annotators who are right with probability `skill` and otherwise call class j always by one wrong name.

    Source: Tanno 2019, section 3.1 and appendix B. Differs: at most `share` annotators give a class the same wrong name
    (None: no limit, as in the paper). With k sharing, the mean matrix is dominant only above skill k / (R + k).
    Arguments: skill in [0, 1], each annotator's own is drawn from Normal(skill, spread). Returns: (R, L, L).
    Raises: ValueError where the limit leaves too few wrong names.
    """
    R, L = _sizes(n_annotators, n_classes, skill)
    limit = R if share is None else share
    if limit * (L - 1) < R:
        raise ValueError(f"{R} annotators cannot flip {L} classes with at most {limit} sharing a name; raise `share`.")
    own = _own_skills(R, skill, spread, generator)
    A = torch.zeros(R, L, L)
    for j in range(L):
        A[:, j, j] = own
        names = torch.tensor([i for i in range(L) if i != j]).repeat(limit)  # each wrong name `limit` times
        chosen = names[torch.randperm(len(names), generator=generator)[:R]] if share else _free(R, L, j, generator)
        A[torch.arange(R), chosen, j] = 1 - own
    return A


def _free(R: int, L: int, j: int, generator: Generator) -> Tensor:
    wrong = torch.randint(L - 1, (R,), generator=generator)  # (R,)
    return wrong + (wrong >= j)


def hammer_spammers(
    n_annotators: int, n_classes: int, skill: float, *, spread: float = 0.01, generator: Generator
) -> Tensor:
    """Annotators who know with probability `skill` and otherwise answer uniformly at random, the right class included.

    So the diagonal is skill + (1 - skill) / L: a "noise rate" of .5 gives 45 % wrong labels at L = 10, not 50 %.
    Source: Khetan et al. 2018; Tanno 2019, section 3.1. Returns: (R, L, L).
    """
    R, L = _sizes(n_annotators, n_classes, skill)
    own = _own_skills(R, skill, spread, generator)[:, None, None]
    return own * torch.eye(L) + (1 - own) / L


def similar_class_confuser(n_classes: int, skill: float, pairs: list[tuple[int, int]]) -> Tensor:
    """One annotator who mixes up the two classes of each pair, and knows the others. Source: Tanno 2019, section 3.1
    (ii).

    Returns: (1, L, L): in a paired class `skill` on the diagonal, the rest with its partner.
    """
    _sizes(1, n_classes, skill)
    flat = [c for pair in pairs for c in pair]
    if len(set(flat)) != len(flat) or not all(0 <= c < n_classes for c in flat):
        raise ValueError(f"`pairs` must be disjoint pairs of classes 0..{n_classes - 1}; got {pairs}.")
    A = torch.eye(n_classes)
    for a, b in pairs:
        A[a, a] = A[b, b] = skill
        A[a, b] = A[b, a] = 1 - skill
    return A[None]


def neighbour_confuser(n_classes: int, skill: float) -> Tensor:
    """One annotator who slips to the class before or after, cyclically, with equal chance.

    Source: Tanno 2019, section 3.1 (iii). Returns: (1, L, L).
    """
    _sizes(1, n_classes, skill)
    I = torch.eye(n_classes)  # noqa: E741  (the identity is I)
    return (skill * I + (1 - skill) / 2 * (I.roll(1, 0) + I.roll(-1, 0)))[None]


def adversary(n_classes: int, skill: float, *, generator: Generator) -> Tensor:
    """One annotator with wrong names for things: right with probability `skill`, else the name in a fixed permutation.

    Source: Tanno 2019, section 3.1 (iv). The permutation moves every class. Returns: (1, L, L).
    """
    L = _sizes(1, n_classes, skill)[1]
    order = torch.randperm(L, generator=generator)
    names = torch.empty(L, dtype=torch.long)
    names[order] = order.roll(1)  # one cycle through all classes: nobody keeps their own name
    return (skill * torch.eye(L) + (1 - skill) * torch.eye(L)[:, names])[None]


def diverse(*, generator: Generator) -> Tensor:
    """Four annotators of ten digits, one of each kind, mean skill about .46. Source: after Tanno 2019, Fig. 2."""
    return torch.cat([
        hammer_spammers(1, 10, 0.40, generator=generator),
        similar_class_confuser(10, 0.50, [(3, 5), (4, 9), (1, 7), (0, 6), (2, 8)]),
        neighbour_confuser(10, 0.50),
        adversary(10, 0.40, generator=generator),
    ])  # fmt: skip


def annotate(
    truth: Tensor,
    A: Tensor,
    *,
    per_item: int | None = None,
    workload: Tensor | list[float] | None = None,
    who: Tensor | None = None,
    generator: Generator,
) -> Tensor:
    """Draws what each annotator says of each item.

    Arguments:
        truth: (N,) classes 0..L-1.
        A: (R, L, L).
        per_item: how many annotators label an item, chosen at random; None is all of them (dense labels).
        workload: (R,) positive weights of being chosen; equal by default. Needs `per_item`.
        who: (N, R) bool, any subset of your own in the place of the two above.
    Returns: (N, R) int64 with MISSING.
    Raises: ValueError for sizes that do not fit.
    """
    A = check_cm(A)
    R, L = A.shape[:2]
    truth = as_labels(truth, L, what="truth")
    if truth.ndim != 1 or (truth == MISSING).any():
        raise ValueError(
            f"`truth` must be (N,) with no gap; got {tuple(truth.shape)}. A column (N, 1) needs truth[:, 0]."
        )
    N = len(truth)
    columns = A.permute(2, 0, 1)[truth]  # (N, R, L): the column of each item's truth
    said = torch.multinomial(columns.reshape(N * R, L), 1, generator=generator).view(N, R)
    who = None if who is None else torch.as_tensor(who, dtype=torch.bool)
    if who is None:
        who = chosen(N, R, per_item, workload, generator)
    elif who.shape != (N, R) or per_item is not None or workload is not None:
        raise ValueError(
            f"`who` must be ({N}, {R}) and comes alone, without per_item or workload; got {tuple(who.shape)}."
        )
    return torch.where(who, said, MISSING)


def chosen(N: int, R: int, per_item: int | None, workload: Tensor | list[float] | None, generator: Generator) -> Tensor:
    """(N, R) bool: who labels what; `per_item` annotators an item, drawn by `workload`."""
    if per_item is None:
        if workload is not None:
            raise ValueError("unequal `workload` needs `per_item`: with dense labels everybody labels everything.")
        return torch.ones(N, R, dtype=torch.bool)
    if not 1 <= per_item <= R:
        raise ValueError(f"`per_item` must be 1..R={R} annotators for each item; got {per_item}.")
    weight = torch.ones(R) if workload is None else torch.as_tensor(workload, dtype=torch.float32)
    if weight.shape != (R,) or not ((weight > 0) & torch.isfinite(weight)).all():
        raise ValueError(f"`workload` must be {R} positive weights; got {weight.tolist()}.")
    chosen = torch.multinomial(weight.expand(N, R), per_item, generator=generator)  # (N, per_item), no repeats
    return torch.zeros(N, R, dtype=torch.bool).scatter_(1, chosen, True)


def _own_skills(R: int, skill: float, spread: float, generator: Generator) -> Tensor:
    return (skill + spread * torch.randn(R, generator=generator)).clamp(0, 1)


def _sizes(n_annotators: int, n_classes: int, skill: float) -> tuple[int, int]:
    if n_annotators < 1 or n_classes < 2:
        raise ValueError(f"wanted at least 1 annotator and 2 classes; got R={n_annotators}, L={n_classes}.")
    if not 0 <= skill <= 1:
        raise ValueError(f"`skill` is a probability in [0, 1]; got {skill}. Is it in per cent?")
    return n_annotators, n_classes
