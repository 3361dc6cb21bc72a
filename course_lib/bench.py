"""What must stay fast, timed against what it replaces within one run: the median ratio of pairs, timed in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from . import annotators, confusion, networks
from .annotations import Annotations
from .experiments import device_name
from .methods.trace import Trace
from .networks import seeded
from .training import fit


def all_benches(repeats: int = 7) -> dict:
    """{"device", "rows": [{"what", "seconds", "against", "against_seconds", "ratio"}]}."""
    rows = [
        against("10 runs stacked", lambda: train(10), "1 run", lambda: train(1), repeats),
        against("10 runs stacked", lambda: train(10), "10 runs in turn", lambda: [train(1) for _ in range(10)], 1),
        against(
            "said row looked up", lambda: rows_of(lookup), "product over all said", lambda: rows_of(product), repeats
        ),
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


def train(K: int, epochs: int = 20) -> None:
    """K small networks with their annotators on 3,600 noise images of 14x14: the cost of `fit`, whatever is learned."""
    generator = seeded(0)
    data = Annotations(torch.rand(3600, 1, 14, 14, generator=generator), torch.zeros(3600, 5), n_classes=10)
    truth = torch.randint(10, (3600,), generator=generator)
    A = annotators.hammer_spammers(5, 10, 0.5, generator=generator)
    labelled = [data.with_labels(annotators.annotate(truth, A, per_item=1, generator=generator)) for _ in range(K)]
    methods = [Trace(networks.mlp(196, 10, generator=generator), 5, 10) for _ in range(K)]
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
