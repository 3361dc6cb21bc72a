"""What must stay fast, timed against what it replaces within one run: the median ratio of pairs, timed in turn."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from . import annotators, confusion, fusion, networks, report, tables
from .annotations import Annotations
from .experiments import costs, device_name
from .methods.trace import Trace
from .networks import seeded
from .training import fit


def all_benches(repeats: int = 7) -> dict:
    """{"device", "rows": [{"what", "seconds", "against", "against_seconds", "ratio", "difference"}]}."""
    rows = [
        *fusions(),
        against("10 runs stacked", lambda: train(10), "1 run", lambda: train(1), repeats),
        against("10 runs stacked", lambda: train(10), "10 runs in turn", lambda: [train(1) for _ in range(10)], 1),
        against(
            "said row looked up", lambda: rows_of(lookup), "product over all said", lambda: rows_of(product), repeats
        ),
        *pixel_loss(repeats),
        crowd_report(),
    ]
    return {"device": device_name(), "torch": torch.__version__, "rows": rows}


def against(what: str, new: Callable, other_name: str, other: Callable, repeats: int) -> dict:
    """Times both in turn, after a first call of each that does not count.

    The median of the pairs' ratios, not the ratio of two medians: a machine that others use is slow for seconds at a
    time, and then both of a pair are.
    """
    new(), other()
    times = [(timed(new), timed(other)) for _ in range(repeats)]
    seconds, other_seconds = map(statistics.median, zip(*times, strict=True))
    ratio = statistics.median(new_time / other_time for new_time, other_time in times)
    return {"what": what, "seconds": seconds, "against": other_name, "against_seconds": other_seconds, "ratio": ratio}


def pixel_loss(repeats: int) -> list[dict]:
    """The loss of a matrix for each pixel, B8 R5 L4 192 x 192, forward and backward, from the same logits: time and
    memory against a plain cross-entropy and against the product over all that could have been said."""
    what, others = "pixel loss", ("cross_entropy", "einsum")
    ours, *theirs = (costs.loss_alone(how) for how in ("ours", *others))
    rows = [against(what, ours, other, run, repeats) for other, run in zip(others, theirs, strict=True)]
    mb = {how: costs.in_own_process(costs.loss_alone, how)[1] for how in ("ours", *others)}
    for row, other in zip(rows, others, strict=True):
        row |= {"mb": mb["ours"], "against_mb": mb[other], "mb_ratio": mb["ours"] / mb[other]}
    return rows


def fusions() -> list[dict]:
    """STAPLE against SimpleITK's and Dawid-Skene against crowd-kit's, on one thread, with the largest difference of
    their answers; without those packages (the extra `dev`) a row says so."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [_against_simpleitk(), *[_against_crowdkit(R, per_item) for R, per_item in ((5, 5), (50, 5))]]
    finally:
        torch.set_num_threads(before)


def volume(N: int = 64, side: int = 256) -> torch.Tensor:
    """What five annotators with errors of their own marked of a cone: (N, 5, side, side), uint8."""
    generator = seeded(0)
    y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    radius = side / 8 + torch.arange(N)[:, None, None] * side / (8 * N)
    truth = (y - side / 2) ** 2 + (x - side / 2.2) ** 2 < radius**2
    errors = ((0.9, 0.98), (0.8, 0.95), (0.7, 0.99), (0.95, 0.9), (0.6, 0.97))  # sensitivity, specificity
    chance = [torch.rand(truth.shape, generator=generator) for _ in errors]
    said = [torch.where(truth, u < sens, u > spec) for u, (sens, spec) in zip(chance, errors, strict=True)]
    return torch.stack(said, 1).to(torch.uint8)


def _against_simpleitk() -> dict:
    what, other = "STAPLE, 5 raters, 64 x 256 x 256", "SimpleITK"
    try:
        import SimpleITK as sitk
    except ImportError:
        return {"what": what, "against": other, "skipped": "SimpleITK is not installed (the extra dev)"}
    masks, answers = volume(), {}
    images = [sitk.GetImageFromArray(masks[:, r].numpy()) for r in range(masks.shape[1])]
    theirs = sitk.STAPLEImageFilter()
    theirs.SetForegroundValue(1)
    theirs.SetNumberOfThreads(1)

    def run_theirs() -> None:
        answers["theirs"] = sitk.GetArrayFromImage(theirs.Execute(images))

    def run_ours() -> None:
        answers["ours"] = fusion.staple(masks, 2, pooled=True, smoothing=0)

    row = against(what, run_ours, other, run_theirs, 3)
    ours = answers["ours"]
    sensitivity = np.abs(ours.sensitivity[0, :, 1].numpy() - np.array(theirs.GetSensitivity())).max()
    difference = np.abs(ours.p[:, 1].numpy() - answers["theirs"]).max()
    return row | {"difference": float(difference), "sensitivity_difference": float(sensitivity)}


def _against_crowdkit(R: int, per_item: int, labels: int = 1_000_000, steps: int = 10) -> dict:
    what, other = f"Dawid-Skene, {labels:,} labels, {R} people, {per_item} an item", "crowd-kit"
    try:
        import pandas as pd
        from crowdkit.aggregation import DawidSkene
    except ImportError:
        return {"what": what, "against": other, "skipped": "crowd-kit is not installed (the extra dev)"}
    generator, L = seeded(0), 4
    truth = torch.multinomial(torch.tensor([0.4, 0.3, 0.2, 0.1]), labels // per_item, True, generator=generator)
    A = annotators.pairwise_flippers(R, L, 0.7, share=None, generator=generator)
    said = annotators.annotate(truth, A, per_item=per_item, generator=generator)
    n, r = np.nonzero(said.numpy() >= 0)
    frame = pd.DataFrame({"task": n, "worker": r, "label": said.numpy()[n, r]})
    theirs, answers = DawidSkene(n_iter=steps, tol=-math.inf), {}

    def run_ours() -> None:
        answers["ours"] = fusion.dawid_skene(said, L, smoothing=0, max_iterations=steps, tolerance=0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs of pandas; ours that so few steps do not settle
        row = against(what, run_ours, other, lambda: theirs.fit(frame), 1)
    wanted = theirs.probas_.sort_index()[list(range(L))].to_numpy()
    return row | {"difference": float(np.abs(answers["ours"].p.numpy() - wanted).max())}


def crowd_report(labels: int = 100_000, R: int = 200, L: int = 4) -> dict:
    """`course report` on a table of a crowd, five labels an item, against only reading that table with pandas.

    The issue that asked for it allows 10 s on two cores.
    """
    what, other = f"report on {labels:,} labels of {R} people", "pandas.read_csv"
    try:
        import pandas as pd
    except ImportError:
        return {"what": what, "against": other, "skipped": "pandas is not installed (the extra dev)"}
    generator = seeded(0)
    A = annotators.hammer_spammers(R, L, 0.6, generator=generator)
    truth = torch.randint(L, (labels // 5,), generator=generator)
    said = annotators.annotate(truth, A, per_item=5, generator=generator)
    with tempfile.TemporaryDirectory() as folder:
        table = tables.write_crowdkit(Path(folder) / "crowd.csv", Annotations(None, said, L))
        return against(what, lambda: report.report(table, Path(folder) / "out"), other, lambda: pd.read_csv(table), 1)


def train(K: int, epochs: int = 20) -> None:
    """K small networks with their annotators on 3,600 noise images of 14x14: the cost of `fit`, whatever is learned."""
    generator = seeded(0)
    data = Annotations(torch.rand(3600, 1, 14, 14, generator=generator), torch.zeros(3600, 5), n_classes=10)
    truth = torch.randint(10, (3600,), generator=generator)
    A = annotators.hammer_spammers(5, 10, 0.5, generator=generator)
    labelled = [data.with_labels(annotators.annotate(truth, A, per_item=1, generator=generator)) for _ in range(K)]
    methods = [Trace(networks.mlp(196, 10, generator=generator), 5, 10) for _ in range(K)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that matrices of noise are not to be trusted
        fit(methods, labelled, epochs=epochs, progress=False)


def rows_of(how: Callable, B: int = 256, R: int = 5, L: int = 10) -> None:
    """Forward and backward of one batch's label likelihood."""
    generator = seeded(0)
    log_A = torch.randn(1, R, L, L, generator=generator).log_softmax(2).requires_grad_()
    log_p = torch.randn(B, L, generator=generator).log_softmax(1).requires_grad_()
    labels = torch.randint(L, (B, R), generator=generator)
    for _ in range(50):
        how(log_A, log_p, labels).sum().backward()


lookup = confusion.label_log_likelihood


def product(log_A: torch.Tensor, log_p: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The obvious way: what everybody would say of everything, and then the entry that was said."""
    return confusion.apply(log_A, log_p).gather(2, labels[:, :, None]).squeeze(2)  # (B, R)


def timed(call: Callable) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
