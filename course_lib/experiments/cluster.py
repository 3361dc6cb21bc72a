"""Units of work on a Dask cluster: the same calls, the same rows, on workers that may be lost meanwhile.

`distributed` is asked for when a cluster is (the extra `cluster`). Workers need this library in the same version, and
where data do not ship the same files (COURSE_DATA).
"""

from __future__ import annotations

import asyncio
import os
import platform
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from importlib import import_module
from tempfile import TemporaryDirectory
from types import ModuleType

import numpy as np
import torch

from ..training import pick_device
from . import units

SECONDS = 10.0
"""How long a scheduler may be silent, and a cluster without a worker."""

_alone = threading.Lock()  # a worker may have threads; units count on being alone with torch's random numbers


def dask() -> ModuleType:
    """The package `distributed`. Raises: ValueError that names the extra, if it is not there."""
    try:
        import distributed
    except ImportError:
        raise ValueError(
            "a cluster needs the package `distributed`, which is not installed; pip install 'course-lib[cluster]', or "
            "in a clone pip install -e '.[cluster]'."
        ) from None
    return distributed


@contextmanager
def on(scheduler: str, device: str | None) -> Iterator[tuple[units.By, str, str]]:
    """What runs units on the cluster, its workers' device in words, and its kind.

    scheduler: `local` starts a worker for each core of this machine (one where there is a card), else an address.
    Raises: ValueError if nobody answers there, nobody works, or workers have other code or versions than this process.
    """
    distributed = dask()
    with ExitStack() as stack:
        if scheduler == "local":
            client = stack.enter_context(distributed.Client(_local(distributed, stack, device), set_as_default=False))
        else:
            client = stack.enter_context(_client(distributed, scheduler))
        machines = _machines(client, scheduler, device)
        devices = ", ".join(sorted({machine["device"] for machine in machines}))
        kinds = ", ".join(sorted({machine["kind"] for machine in machines}))
        yield partial(_submitted, client), devices, kinds


def _local(distributed: ModuleType, stack: ExitStack, device: str | None) -> object:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    n = min(cores, 8) if pick_device(device).type == "cpu" else 1
    folder = stack.enter_context(TemporaryDirectory(prefix="course-"))
    stack.enter_context(import_module("dask").config.set(temporary_directory=folder))  # of which nothing shall stay
    how = {"threads_per_worker": 1, "processes": True, "memory_limit": None, "dashboard_address": "127.0.0.1:0"}
    return stack.enter_context(distributed.LocalCluster(n_workers=n, **how))


def _client(distributed: ModuleType, address: str) -> object:
    try:  # a client that fails to connect leaves threads behind; so first a knock, from a thread without a loop
        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, _knock(distributed, address)).result()
        return distributed.Client(address, timeout=SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"no Dask scheduler answers at {address!r} ({type(error).__name__}; waited at most {SECONDS:g} s); "
            "`dask scheduler` prints its address, such as tcp://HOST:8786, and the word `local` starts a cluster here."
        ) from None


async def _knock(distributed: ModuleType, address: str) -> None:
    security = distributed.Security().get_connection_args("client")
    comm = await distributed.comm.connect(address, timeout=SECONDS, **security)
    await comm.close()


def machine(device: str | None) -> dict[str, str]:
    """What a process would run units with."""
    return {"device": units.device_name(device), "kind": pick_device(device).type, **installed()}


@cache
def installed() -> dict[str, str]:
    """What must be the same everywhere, so that rows are the same."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"course_lib": units.code(), "torch": torch.__version__, "numpy": np.__version__, "python": python}


def _machines(client: object, address: str, device: str | None) -> list[dict[str, str]]:
    try:
        client.wait_for_workers(1, timeout=SECONDS)
    except TimeoutError:
        raise ValueError(
            f"the scheduler at {address!r} has no workers, and none came in {SECONDS:g} s; start some with "
            f"`dask worker {address} --nthreads 1`."
        ) from None
    try:
        found = client.run(machine, device)
    except ImportError as error:
        raise ValueError(f"a worker of {address!r} lacks a package ({error}); install there what is here.") from None
    for who, there in found.items():
        same_as_here(there, who)
    return list(found.values())


def same_as_here(there: dict[str, str], who: str, wanted: dict[str, str] | None = None) -> None:
    wanted = wanted or installed()
    other = [f"{name} {there[name]} instead of {wanted[name]}" for name in wanted if there[name] != wanted[name]]
    if other:
        raise ValueError(
            f"worker {who} has {', '.join(other)}: its rows would not be the same; install the same there."
        )


def _submitted(
    client: object, work: Callable, tasks: Sequence[tuple], jobs: Callable[[], int] = units.one
) -> Iterator[tuple[int, object]]:
    """As `units.By`; the workers say how many at a time. Units of a worker that is lost go to another."""
    distributed = dask()
    calls = [partial(unit, work, task, installed()) for task in tasks]
    asked = {client.submit(call, pure=False): i for i, call in enumerate(calls)}
    try:
        for done, rows in distributed.as_completed(list(asked), loop=client.loop, with_results=True):
            if done.status != "finished":  # cancelled or lost: an error in a unit raises by itself
                raise RuntimeError("the scheduler is gone; finished runs are kept: give the same command again.")
            yield asked[done], rows
    except distributed.KilledWorker as error:
        raise RuntimeError(
            f"a run ended every worker that it was given to, most likely for want of memory ({error}); finished runs "
            "are kept."
        ) from None
    finally:  # after an error, or where nobody wants the rest
        if left := [future for future in asked if not future.done()]:
            client.cancel(left)


def unit(work: Callable, task: tuple, wanted: dict[str, str]) -> object:
    """On a worker, which may have come late: one unit, alone in its process and on one thread."""
    same_as_here(installed(), platform.node(), wanted)
    with _alone:
        torch.set_num_threads(1)
        return work(*task)
