"""Runs on a cluster and runs that were interrupted: the same rows, nothing twice, nothing left."""

import os
import signal
import threading
import time

import pytest

from course_lib import experiments
from course_lib.experiments import classes, masks, units

# What a worker runs before anything else, in a new process too; `tiny` does the same here.
FEW = """
import types
from course_lib.experiments import classes, masks
classes.sized = lambda *_, **__: types.SimpleNamespace(epochs=1, batch_size=256)
masks.sized = lambda *_, **__: types.SimpleNamespace(train=48, test=8, epochs=4, settle=0, batch_size=6, jobs=1)
"""
PART_I = "trace-spammers"  # five stacks
MASKS = "masks-as-released"  # six runs


@pytest.fixture
def tiny(monkeypatch):
    for module in (classes, masks):
        monkeypatch.setattr(module, "sized", module.sized)  # restored afterwards
    exec(FEW, {})


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory):
    """Two worker processes, which start anew when they are killed; `tiny` there, and torch loaded."""
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "few.py").write_text(FEW)
    config = {"temporary_directory": str(folder), "distributed.worker.preload": [str(folder / "few.py")]}
    how = {"threads_per_worker": 1, "processes": True, "memory_limit": None, "dashboard_address": None}
    with dask.config.set(config), distributed.LocalCluster(n_workers=2, **how) as started:
        with distributed.Client(started, set_as_default=False) as client:
            yield client


def without_costs(result: dict) -> list[dict]:
    return [{key: value for key, value in row.items() if key not in ("seconds", "peak_mb")} for row in result["rows"]]


def here(name: str, **more: object) -> dict:
    return experiments.run(name, seeds=1, size="ci", device="cpu", progress=False, **more)


def kill_one_at_work(client, path, killed: list) -> None:
    """Once a run is finished and kept, ends a worker that is in the middle of another."""
    while not killed:
        time.sleep(0.01)
        if path.exists() and (busy := [address for address, work in client.processing().items() if work]):
            pids = client.run(os.getpid, workers=busy[:1])
            os.kill(pids[busy[0]], signal.SIGKILL)
            killed.append(pids[busy[0]])


@pytest.mark.parametrize("name", [PART_I, MASKS])
def test_a_worker_that_is_killed_midway_costs_no_row_and_changes_none(name, tiny, two_workers, tmp_path):
    path, killed = units.partial_path(tmp_path, name, "ci"), []
    threading.Thread(target=kill_one_at_work, args=(two_workers, path, killed), daemon=True).start()
    found = here(name, scheduler=two_workers.scheduler.address, keep=tmp_path)
    assert killed, "no worker was killed; the test proves nothing"
    assert without_costs(found) == without_costs(here(name))
    written = experiments.write(found, tmp_path, keep=tmp_path)
    assert list(tmp_path.iterdir()) == [written] and experiments.read(written)["rows"] == found["rows"]
