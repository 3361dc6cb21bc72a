"""Part I, matrices to look at: the groups of annotators, and the mean matrix on both sides of the break."""

from __future__ import annotations

import torch
from torch import Tensor

from ..confusion import dominance
from ..networks import seeded
from .classes import PANELS, compare, settings_of
from .units import HERE, Units


def mean_matrices(**how: object) -> list[dict]:
    """The mean matrix on both sides of the break, true and learned, one label. Source: Tanno 2019, Fig. 4."""
    also = lambda method, run: entries("true", run.A.mean(0)) | entries("mean", method.confusion().mean(0))  # noqa: E731
    settings = settings_of("pairwise_flippers", (0.25, 0.3), (1,))
    return compare(settings, ("trace", "trace_from_truth", "gem"), also=also, **how)


def annotator_groups(
    *, seeds: int, size: str, device: str | None = None, progress: bool = True, each: Units = HERE
) -> list[dict]:
    """Five annotators of each kind, entry by entry; nothing is trained. Source: Tanno 2019, Fig. 2 and 8."""
    return each(group_row, [(panel, seed) for panel in PANELS for seed in range(seeds)], progress=False)


def group_row(panel: str, seed: int) -> dict:
    A = PANELS[panel](0.45, seeded(10_000 + seed))  # as `prepare` draws them
    numbers = {"dominance": round(dominance(A), 5)}
    for r, own in enumerate(A):
        numbers |= entries(f"a{r}", own)
    key = {"method": panel, "setting": {"skill": 0.45}, "draw": seed, "seed": seed}
    return {**key, "seconds": 0.0, "peak_mb": 0, "metrics": numbers}


def entries(name: str, A: Tensor) -> dict[str, float]:
    """A matrix (L, L) as metrics NAME_SAID_TRUTH."""
    return {f"{name}_{i}_{j}": round(float(value), 4) for i, row in enumerate(A) for j, value in enumerate(row)}


def matrix(numbers: dict[str, float], name: str) -> Tensor:
    """The matrix (L, L) that `entries` wrote."""
    L = max(int(key.split("_")[1]) for key in numbers if key.startswith(f"{name}_")) + 1
    return torch.tensor([[numbers[f"{name}_{i}_{j}"] for j in range(L)] for i in range(L)])
