"""Runs on a cluster and runs that were interrupted: the same rows, nothing twice, nothing left."""

import json
import os
import sys
import tempfile
import threading
import time
import warnings

import pytest
import torch

from course_lib import experiments
from course_lib.experiments import classes, cluster, masks, units

dask = pytest.importorskip("dask", reason="dask is not installed: pip install '.[dev]'")
distributed = pytest.importorskip("distributed", reason="distributed is not installed: pip install '.[dev]'")

# Few pictures, few epochs: here, and in every new process of a worker, where it is run twice.
FEW = """
import types
from course_lib.experiments import classes, masks

full = classes.small_digits()
if len(full.truth["train"]) == 3600:
    every = {"train": 18, "validation": 8, "test": 10}
    parts = ({name: x[:: every[name]] for name, x in part.items()} for part in (full.images, full.truth))
    few = classes.Digits(*parts, full.network)
    classes.small_digits = lambda: few
classes.sized = lambda *_, **__: types.SimpleNamespace(epochs=2, batch_size=32)
masks.sized = lambda *_, **__: types.SimpleNamespace(train=12, test=4, epochs=1, settle=0, batch_size=6, jobs=1)
"""
# Where the file `doom` names one that is there by then, the process ends by force within a run, once.
DOOM = """
import os, signal
from pathlib import Path

doom = Path({folder!r}) / "doom"

def doomed(fit):
    def fit_and_perhaps_die(*arguments, **options):
        history = fit(*arguments, **options)
        if doom.exists() and Path(doom.read_text()).exists():
            doom.rename(doom.with_name(f"killed.{{os.getpid()}}"))
            os.kill(os.getpid(), signal.SIGKILL)
        return history
    return fit_and_perhaps_die

classes.fit, masks.fit = doomed(classes.fit), doomed(masks.fit)
"""
PART_I = "trace-mnist5k"  # three stacks
MASKS = "masks-as-released"  # six runs


@pytest.fixture
def tiny(monkeypatch):
    for module, name in ((classes, "small_digits"), (classes, "sized"), (masks, "sized")):
        monkeypatch.setattr(module, name, getattr(module, name))  # put back afterwards
    exec(FEW, {})


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    """A client of two worker processes, and the folder where `doom` may lie; killed workers start anew."""
    folder = tmp_path_factory.mktemp("workers")
    (folder / "few.py").write_text(FEW + DOOM.format(folder=str(folder)))
    config = {"temporary_directory": str(folder), "distributed.worker.preload": [str(folder / "few.py")]}
    how = {"threads_per_worker": 1, "processes": True, "memory_limit": None, "dashboard_address": "127.0.0.1:0"}
    with (
        dask.config.set(config),
        distributed.LocalCluster(n_workers=2, **how) as started,
        distributed.Client(started, set_as_default=False) as client,
    ):
        yield client, folder


def without_costs(result: dict) -> list[dict]:
    return [{key: value for key, value in row.items() if key not in ("seconds", "peak_mb")} for row in result["rows"]]


def run(name: str, **more: object) -> dict:
    return experiments.run(name, **{"seeds": 1, "size": "ci", "device": "cpu", "progress": False} | more)


# On a cluster


@pytest.mark.parametrize(("name", "work"), [(PART_I, "stack_rows"), (MASKS, "one_run")])
def test_a_worker_that_is_killed_midway_costs_no_row_and_changes_none(name, work, tiny, workers, tmp_path, monkeypatch):
    client, folder = workers
    client.wait_for_workers(2)
    pids = set(client.run(os.getpid).values())
    (folder / "doom").write_text(str(units.partial_path(tmp_path, name, "ci")))  # once a run is finished, and kept
    found = run(name, scheduler=client.scheduler.address, keep=tmp_path)
    (killed,) = folder.glob("killed.*")
    assert int(killed.suffix[1:]) in pids and len(pids) == 2
    killed.unlink()
    assert without_costs(found) == without_costs(run(name))
    monkeypatch.setattr(classes if name == PART_I else masks, work, lambda *_, **__: pytest.fail("was run again"))
    assert run(name, keep=tmp_path)["rows"] == found["rows"]  # what the cluster finished, seconds and all
    written = experiments.write(found, tmp_path, keep=tmp_path)
    assert list(tmp_path.iterdir()) == [written] and experiments.read(written)["rows"] == found["rows"]


def test_what_an_experiment_makes_up_travels_too(tiny, workers, monkeypatch):
    def made_up(**how: object) -> list[dict]:
        ways = {f"trace_{lam}": classes.Way(classes.traced(lam), "trace") for lam in (0.01, 0.1)}
        settings = classes.settings_of("pairwise_flippers", (0.45,), (1,))
        return classes.compare(settings, ways, also=lambda method, run: {"trace": float(run.A[0].trace())}, **how)

    monkeypatch.setitem(experiments.EXPERIMENTS, PART_I, made_up)
    found = run(PART_I, scheduler=workers[0].scheduler.address)
    assert without_costs(found) == without_costs(run(PART_I)) and found["device"] == "cpu (1 threads)"
    assert [row["method"] for row in found["rows"]] == ["trace_0.01", "trace_0.1"]
    assert all(3 < row["metrics"]["trace"] < 6 for row in found["rows"])  # ten times .45, give or take


def test_peoples_labels_travel_too(workers):
    found = run("six-views", scheduler=workers[0].scheduler.address)
    assert without_costs(found) == without_costs(run("six-views"))


def test_an_error_in_a_run_is_told_as_it_is_and_what_was_finished_stays(tiny, workers, tmp_path, monkeypatch):
    settings = [{"scene": "digits", "annotators": name} for name in ("as_released", "nobody")]
    broken = lambda **how: masks.compare(settings, ("truth",), **how)  # noqa: E731
    monkeypatch.setitem(experiments.EXPERIMENTS, MASKS, broken)
    with pytest.raises(KeyError, match="nobody"):
        run(MASKS, scheduler=workers[0].scheduler.address, keep=tmp_path)
    with pytest.raises(KeyError, match="nobody"):
        run(MASKS, keep=tmp_path)
    (kept,) = tmp_path.iterdir()
    assert [json.loads(line)["rows"]["setting"] for line in kept.read_text().splitlines()[1:]] == settings[:1]


def test_a_worker_with_other_code_is_refused_by_name():
    mine = cluster.installed()
    cluster.same_as_here(mine, "tcp://h:1")
    with pytest.raises(
        ValueError, match=f"worker tcp://h:1 has torch 0.4 instead of {torch.__version__.split('+')[0]}"
    ):
        cluster.same_as_here(mine | {"torch": "0.4"}, "tcp://h:1")
    with pytest.raises(ValueError, match="course_lib"):  # one that came late
        cluster.unit(lambda: {}, (), mine | {"course_lib": "other"})


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:1", "next-door", "ftp://somewhere:21", "no.such.host.invalid:8786"]
)
def test_an_address_where_nobody_answers_is_one_clear_error_and_leaves_nothing(address, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "SECONDS", 0.5)
    threads, start = set(threading.enumerate()), time.perf_counter()
    with pytest.raises(ValueError, match="no Dask scheduler answers at '.*`local`"):
        run(PART_I, scheduler=address, keep=tmp_path)
    assert time.perf_counter() - start < 5 and not list(tmp_path.iterdir())
    assert not [t for t in threading.enumerate() if t not in threads and "asyncio" not in t.name]


def test_a_scheduler_without_workers_says_how_to_start_one(monkeypatch, tmp_path):
    monkeypatch.setattr(cluster, "SECONDS", 0.5)
    with (
        dask.config.set(temporary_directory=str(tmp_path / "dask")),
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as empty,
        pytest.raises(ValueError, match="has no workers.*dask worker inproc://"),
    ):
        run(PART_I, scheduler=empty.scheduler_address, keep=tmp_path)


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ValueError, match=r"distributed.*\[cluster\]"):
        run(PART_I, scheduler="local")


def test_the_word_local_starts_a_cluster_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)  # one worker
    found = run("annotator-groups", scheduler="local")
    assert without_costs(found) == without_costs(run("annotator-groups")) and not list(tmp_path.iterdir())


# Interrupted


@pytest.mark.parametrize(("name", "work", "n"), [(PART_I, "stack_rows", 3), (MASKS, "one_run", 6)])
def test_a_run_that_was_interrupted_computes_only_what_is_missing(name, work, n, tiny, tmp_path, monkeypatch):
    module, calls, stop_at = classes if name == PART_I else masks, [], 2
    true_work = getattr(module, work)

    def counted(*task, **how):
        if len(calls) == stop_at:
            raise KeyboardInterrupt
        calls.append(json.dumps(task))
        return true_work(*task, **how)

    monkeypatch.setattr(module, work, counted)
    with pytest.raises(KeyboardInterrupt):
        run(name, keep=tmp_path)
    (kept,) = tmp_path.iterdir()
    assert kept.name == f"{name}.ci.partial.jsonl" and len(kept.read_text().splitlines()) == 1 + 2
    stop_at = None
    found = run(name, keep=tmp_path)
    assert len(calls) == len(set(calls)) == n
    stop_at, calls = None, []
    assert without_costs(found) == without_costs(run(name)) and len(calls) == n  # without `keep` all of them


@pytest.fixture
def kept(tiny, tmp_path):
    """The file of a finished but unwritten run."""
    run("annotator-groups", keep=tmp_path)
    return units.partial_path(tmp_path, "annotator-groups", "ci")


DAMAGE = {
    "cut short": lambda text: text[:-30],
    "empty": lambda text: "",
    "no rows": lambda text: text + '{"unit": "1 []", "rows": [3]}\n',
    "not text": lambda text: "\0\1" + text,
    "a list": lambda text: "[1, 2]\n" + text,
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_file_is_set_aside_with_a_warning(what, kept):
    before = kept.read_text()
    kept.write_text(damaged := DAMAGE[what](before))
    with pytest.warns(UserWarning, match="it is damaged.*starts anew"):
        run("annotator-groups", keep=kept.parent)
    assert kept.with_suffix(".old").read_text() == damaged and len(kept.read_text()) > len(before) // 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run("annotator-groups", keep=kept.parent)


def test_runs_of_other_code_or_other_seeds_are_not_mixed_in(kept, monkeypatch):
    with pytest.warns(UserWarning, match="differs in seeds"):
        run("annotator-groups", keep=kept.parent, seeds=2)
    monkeypatch.setattr(experiments, "code", lambda: "changed")
    with pytest.warns(UserWarning, match="differs in code"):
        run("annotator-groups", keep=kept.parent, seeds=2)


def test_the_seconds_of_all_calls_are_counted(kept):
    first, rest = kept.read_text().split("\n", 1)
    kept.write_text(json.dumps(json.loads(first) | {"seconds": 5000.0}) + "\n" + rest)
    assert 5000 <= run("annotator-groups", keep=kept.parent)["seconds"] < 5010


def test_a_folder_that_cannot_be_written_to_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="name another --out"):
        run("annotator-groups", keep=tmp_path / "file")
