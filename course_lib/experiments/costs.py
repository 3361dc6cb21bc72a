"""Part II: what a matrix for each pixel costs when there are many classes, and what a low rank saves."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import partial
from multiprocessing import get_context

import torch
from torch.nn.functional import interpolate

from .. import networks
from ..methods.pixels import Pixels
from ..methods.trace import Vanilla
from ..networks import n_parameters, seeded
from ..pixel_cms import HeardRows
from ..training import peak_mb, sized
from . import masks, pixels
from .units import HERE, Units, here

CPU = torch.device("cpu")


def low_rank(**how: object) -> list[dict]:
    """Two thin matrices in the place of a square one, on tumours. Source: Zhang 2020, appendix A.4 and Table 6."""
    setting = {"scene": "tumours", "annotators": "three_classes", "per_item": 5}
    methods = ("pixel_joint", "low_rank_joint", "low_rank_2_joint", "pixel", "low_rank")
    return masks.compare([setting], methods, build=pixels.built, also=pixels.judged, **how)


def low_rank_memory(
    *, seeds: int, size: str, device: str | None = None, progress: bool = True, each: Units = HERE
) -> list[dict]:
    """Peak memory of two training steps, each on the CPU in a process of its own; at `lesson` the largest takes 10 GB.

    Never on a cluster, whose workers may not start processes. `cross_entropy` is the same network without any matrix.
    Source: Zhang 2020, Table 6, GPU memory.
    """
    P = sized(size, L=(5, 20, 20), side=(16, 192, 192), batches=((1,), (1, 10), (1, 10)))
    methods = ("cross_entropy", "low_rank", "pixel")
    tasks = [(method, batch, seed) for batch in P.batches for method in methods for seed in range(seeds)]
    return replace(each, by=here)(partial(memory_row, L=P.L, side=P.side), tasks, progress=progress)


def memory_row(method: str, batch: int, seed: int, *, L: int, side: int) -> dict:
    start = time.perf_counter()
    numbers, peak = in_own_process(steps, method, L, batch, side, seed)
    key = {"method": method, "setting": {"classes": L, "batch": batch, "side": side}, "draw": seed, "seed": seed}
    cost = {"seconds": round(time.perf_counter() - start, 3), "peak_mb": round(peak)}
    return {**key, **cost, "metrics": numbers | {"step_mb": round(peak, 1)}}


def steps(method: str, L: int, batch: int, side: int, seed: int, n: int = 2) -> Callable[[], dict[str, float]]:
    """Sets up n steps of Adam with five annotators on patches of L kinds: call it to take them."""
    generator = seeded(seed)
    truth = interpolate(torch.rand(batch, 1, 6, 6, generator=generator), (side, side))[:, 0].mul(L).long()
    x = truth[:, None] / L + 0.02 * torch.randn(batch, 1, side, side, generator=generator)
    slip = torch.rand(batch, 5, side, side, generator=generator) < torch.linspace(0.1, 0.5, 5)[:, None, None]
    said = torch.where(slip, (truth[:, None] + 1) % L, truth[:, None])
    net = networks.unet(1, L, width=pixels.WIDTH, generator=generator)
    model = Vanilla(net) if method == "cross_entropy" else Pixels(net, pixels.LADDER[method](5, L, generator))
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)
    who, index = torch.arange(5).expand(batch, 5), torch.arange(batch)

    def take() -> dict[str, float]:
        losses = []
        for _ in range(n):
            adam.zero_grad()
            loss = model.loss((x, said, who, index))
            loss.backward()
            adam.step()
            losses.append(float(loss.detach()))
        return {"first_loss": losses[0], "last_loss": losses[-1], "parameters": n_parameters(model)}

    return take


def in_own_process(set_up: Callable[..., Callable], *arguments: object) -> tuple[object, float]:
    """What set_up(*arguments)() gives, and by how many MB it raised the peak of a fresh process that did nothing else.

    Raises: MemoryError if the system ended that process, as it does with one that asks for too much.
    """
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            return pool.submit(_measured, set_up, arguments).result()
    except BrokenProcessPool:
        raise MemoryError(
            f"{set_up.__name__}{arguments} was ended from outside, most likely for want of memory; close other "
            "programs or take a smaller size."
        ) from None


def _measured(set_up: Callable[..., Callable], arguments: tuple) -> tuple[object, float]:
    torch.set_num_threads(1)
    call = set_up(*arguments)
    before = peak_mb(CPU)
    return call(), peak_mb(CPU) - before


# ---- the loss alone --------------------------------------------------------------------------------------------------


def loss_alone(how: str, B: int = 8, R: int = 5, L: int = 4, side: int = 192) -> Callable[[], object]:
    """Sets up one forward and backward pass from the logits of all matrices (B, R, L, L, side, side): call it to go."""
    generator = seeded(0)
    logits = torch.randn(B, R, L, L, side, side, generator=generator).requires_grad_()
    log_p = torch.randn(B, L, side, side, generator=generator).log_softmax(1)
    said = torch.randint(L, (B, R, side, side), generator=generator)
    log_p.requires_grad_(how != "cross_entropy")

    def ours() -> torch.Tensor:
        rows, traces = HeardRows.apply(logits.log_softmax(2), said)
        return 0.01 * traces.mean() - (rows + log_p[:, None]).logsumexp(2).mean()

    def cross_entropy() -> torch.Tensor:
        labels = said.flatten(0, 1)[:, None].expand(-1, L, -1, -1)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels)

    def einsum() -> torch.Tensor:
        said_p = torch.einsum("brijhw,bjhw->brihw", logits.softmax(2), log_p.exp())
        traces = torch.einsum("briihw->brhw", logits.softmax(2))
        return 0.01 * traces.mean() - said_p.gather(2, said[:, :, None]).log().mean()

    loss = {"ours": ours, "cross_entropy": cross_entropy, "einsum": einsum}[how]

    def go() -> None:
        logits.grad = log_p.grad = None
        loss().backward()

    return go
