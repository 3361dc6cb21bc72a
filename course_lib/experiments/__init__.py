"""The papers' tables and figures as runnable rows: `run` gives a result, `write` a JSON file, `claims` judges them.

A result is {"experiment", "size", "device", "commit", "versions", "seconds", "rows"}, a row {"method", "setting",
"draw", "seed", "seconds", "peak_mb", "metrics"}: one row a run, nothing averaged.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import torch

from .. import __version__
from ..files import whole_file
from ..training import pick_device
from ..training import size as current_size
from . import asking, classes, cluster, coarse, costs, masks, matrices, people, pixels, plausible, recurrence
from .units import Kept, Units, code, device_name, here, partial_path

EXPERIMENTS: dict[str, Callable[..., list[dict]]] = {
    "trace-mnist5k": classes.trace_mnist5k,
    "trace-spammers": classes.trace_spammers,
    "diverse-table": classes.diverse_table,
    "skill-flippers": partial(classes.skill_curve, "pairwise_flippers"),
    "skill-spammers": partial(classes.skill_curve, "hammer_spammers"),
    "robust-flippers": partial(classes.robust_curve, "pairwise_flippers"),
    "robust-spammers": partial(classes.robust_curve, "hammer_spammers"),
    "break-point": classes.break_point,
    "mean-matrices": matrices.mean_matrices,
    "annotator-groups": matrices.annotator_groups,
    "sensitivity": classes.sensitivity,
    "labelme-crowd": people.labelme_crowd,
    "six-views": people.six_views,
    "mask-fusion": masks.mask_fusion,
    "masks-as-released": partial(masks.mask_training, "as_released"),
    "masks-missing-foreground": partial(masks.mask_training, "missing_foreground"),
    "ladder-as-released": partial(pixels.ladder, "digits", "as_released"),
    "ladder-missing-foreground": partial(pixels.ladder, "digits", "missing_foreground"),
    "one-label-as-released": partial(pixels.ladder, "digits", "as_released", pixels.ONE_LABEL),
    "one-label-missing-foreground": partial(pixels.ladder, "digits", "missing_foreground", pixels.ONE_LABEL),
    "ladder-by-place": partial(pixels.ladder, "digits", "by_place", pixels.PLACES),
    "ladder-lesions": partial(pixels.ladder, "lesions", "missing_foreground", pixels.SHORT),
    "ladder-shapes": partial(pixels.ladder, "shapes", "three_classes", pixels.SHORT),
    "ladder-tumours": partial(pixels.ladder, "tumours", "three_classes", pixels.SHORT),
    "ladder-thin-strokes": partial(pixels.ladder, "digits", "thin_strokes", pixels.SEARCH),
    "ladder-by-contrast": partial(pixels.ladder, "lesions", "by_contrast", pixels.SEARCH),
    "ladder-misses-only": partial(pixels.ladder, "digits", "misses_only", pixels.SEARCH),
    "plausible-digits": partial(plausible.plausible, "digits", "missing_foreground"),
    "plausible-lesions": partial(plausible.plausible, "lesions", "missing_foreground"),
    "plausible-tumours": partial(plausible.plausible, "tumours", "three_classes"),
    "plausible-lidc": partial(plausible.plausible, "lidc", "readers"),
    "lidc-dense": partial(plausible.lidc_table, plausible.LIDC_DENSE),
    "lidc-one-label": partial(plausible.lidc_table, plausible.LIDC_ONE),
    "lambda-curve": pixels.lambda_curve,
    "noise-curve": pixels.noise_curve,
    "low-rank": costs.low_rank,
    "low-rank-memory": costs.low_rank_memory,
    "prism-table1": partial(recurrence.table1, "dominant", recurrence.RIVALS),
    "prism-table1-jitter": partial(recurrence.table1, "jitter", recurrence.BEST),
    "prism-table2": recurrence.table2,
    "prism-table3": recurrence.table3,
    "prism-table4": partial(recurrence.table4, recurrence.ABLATION),
    "prism-table4-losses": partial(recurrence.table4, recurrence.LOSSES_OF_PRISM),
    "prism-readings": recurrence.readings,
    "prism-fig4": recurrence.fig4,
    "prism-search": partial(recurrence.search, 1),
    "prism-search-more": partial(recurrence.search, 4),
    "prism-losses": recurrence.losses,
    "coarse-table1": partial(coarse.table1, "digits"),
    "coarse-table1-streets": partial(coarse.table1, "streets"),
    "coarse-table2": coarse.table2,
    "coarse-table3": coarse.table3,
    "coarse-fig3": partial(coarse.ratios, ("positive", "negative", "both", "both_cm", "random_walker")),
    "coarse-fig4": partial(coarse.ratios, ("positive", "positive_cm", "superpixels")),
    "coarse-fig5": partial(coarse.ratios, ("strong", "positive_cm", "both_cm", "random_walker"), "vessels"),
    "coarse-tableS2": coarse.table_s2,
    "coarse-retina": coarse.retina,
    "coarse-negatives-streets": coarse.negatives,
    "coarse-unmarked": coarse.unmarked,
    "coarse-shared": coarse.shared,
    "coarse-not-k": coarse.not_k,
    "ask-budget": asking.ask_budget,
    "ask-beliefs": asking.ask_beliefs,
}


def run(
    name: str,
    *,
    seeds: int = 5,
    size: str | None = None,
    device: str | None = None,
    progress: bool = True,
    scheduler: str | None = None,
    keep: str | Path | None = None,
) -> dict:
    """Runs one experiment; each seed is a new draw of annotators, labels, weights and order.

    A script of your own calls it under `if __name__ == "__main__":`, since runs side by side import the script again.
    scheduler: the address of a Dask cluster that the runs are spread over, or `local` for one on this machine: the same
    rows. keep: a folder for finished runs; the same call again runs what is missing (`write` removes the file).
    Raises: ValueError for an unknown name, seeds < 1, or a cluster that does not answer or has other code.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"no experiment {name!r}; there are {', '.join(EXPERIMENTS)}.")
    if seeds < 1:
        raise ValueError(f"`seeds` must be at least 1; got {seeds}.")
    size, device = current_size(size), device or os.environ.get("COURSE_DEVICE")
    start = time.perf_counter()
    versions = {
        "course_lib": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    head = {"experiment": name, "size": size, "commit": _commit(), "versions": versions}
    how = {"seeds": seeds, "size": size, "device": device, "progress": progress and not scheduler}
    with ExitStack() as stack:
        if scheduler:
            by, words, kind = stack.enter_context(cluster.on(scheduler, device))
        else:
            by, words, kind = here, device_name(device), pick_device(device).type
        same = {**head, "seeds": seeds, "device": kind, "code": code()}
        kept = Kept(partial_path(keep, name, size), same) if keep else None
        if kept or scheduler:
            how["each"] = Units(by, kept, progress if scheduler else None)
        rows = EXPERIMENTS[name](**how)
    seconds = kept.seconds() if kept else time.perf_counter() - start
    return {
        "experiment": name, "size": size, "device": words, "commit": head["commit"], "versions": versions,
        "seconds": round(seconds, 1), "rows": rows,
    }  # fmt: skip


def write(result: dict, out: str | Path, *, keep: str | Path | None = None) -> Path:
    """Writes OUT/NAME.SIZE.json, whole or not at all, and returns its path; then removes what `run` kept in `keep`."""
    path = Path(out) / f"{result['experiment']}.{result['size']}.json"
    rows = ",\n  ".join(json.dumps(row) for row in result["rows"])  # a row a line: a readable diff
    head = json.dumps({key: value for key, value in result.items() if key != "rows"})
    with whole_file(path) as part:
        part.write_text(f'{head[:-1]}, "rows": [\n  {rows}\n]}}\n', encoding="utf-8")
    if keep:
        partial_path(keep, result["experiment"], result["size"]).unlink(missing_ok=True)
    return path


def read(path: str | Path) -> dict:
    """Reads a result; ValueError that names the file if it is none."""
    try:
        result = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError:
        raise ValueError(f"{path} is no result of `course run`: it is not whole JSON.") from None
    if not isinstance(result, dict) or "rows" not in result:
        raise ValueError(f"{path} is no result of `course run`: it has no rows.")
    return result


def select(result: dict, method: str, **setting: object) -> list[dict]:
    """The rows of one method's runs in order of draw and seed, where `setting` holds.

    Raises: ValueError that lists what there is, if nothing fits.
    """
    rows = [r for r in result["rows"] if r["method"] == method and setting.items() <= r["setting"].items()]
    if not rows:
        there = sorted({(r["method"], json.dumps(r["setting"])) for r in result["rows"]})
        raise ValueError(f"no run of {method!r} with {setting} in {result['experiment']}; there are {there[:6]}.")
    return sorted(rows, key=lambda r: (r["draw"], r["seed"]))


def values(result: dict, method: str, metric: str, **setting: object) -> np.ndarray:
    """One metric of the selected runs: (runs,)."""
    return np.array([row["metrics"][metric] for row in select(result, method, **setting)])


def _commit() -> str:
    """The checkout's commit, with + where files differ from it; the version outside a checkout."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        commit = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        dirty = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "course_lib"], capture_output=True).returncode
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return commit + "+" * dirty
