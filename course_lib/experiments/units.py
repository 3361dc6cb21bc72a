"""What an experiment is divided into: calls that give rows. They run here, in processes beside one another or on a
cluster (`cluster`), and what has been finished is kept, so that a run that was interrupted goes on where it ended."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm.auto import tqdm

from ..files import whole_file
from ..training import pick_device

Rows = dict | list[dict]
By = Callable[[Callable[..., object], Sequence[tuple], Callable[[], int]], Iterator[tuple[int, object]]]
"""work, tasks, jobs -> (i, work(*tasks[i])) as they end, in any order. jobs(): how many at a time, if not a cluster."""


def one() -> int:
    return 1


def here(work: Callable, tasks: Sequence[tuple], jobs: Callable[[], int] = one) -> Iterator[tuple[int, object]]:
    """In this process if there is one job at a time, else in so many processes of one thread each."""
    n = jobs()
    if n == 1 or not tasks:
        yield from ((i, work(*task)) for i, task in enumerate(tasks))
        return
    spawned = multiprocessing.get_context("spawn")  # a forked process would hold locks of threads that it lacks
    with ProcessPoolExecutor(n, spawned, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        asked = {pool.submit(work, *task): i for i, task in enumerate(tasks)}
        try:
            yield from ((asked[done], done.result()) for done in as_completed(asked))
        finally:  # after an error, or where nobody wants the rest
            pool.shutdown(wait=False, cancel_futures=True)


def side_by_side(work: Callable, tasks: Sequence[tuple], *, jobs: int, progress: bool = True) -> list:
    """[work(*task) for task in tasks], `jobs` at a time in processes of one thread each; with one job, here."""
    done = dict(_bar(here(work, tasks, lambda: jobs), len(tasks), progress))
    return [done[i] for i in range(len(tasks))]


def _bar(pairs: Iterator, total: int, progress: bool, initial: int = 0) -> Iterator:
    return tqdm(pairs, total=total, initial=initial, desc="runs", disable=not progress, leave=False)


@dataclass(frozen=True)
class Units:
    """Runs an experiment's units: each(work, tasks) gives the rows of all work(*task), in order.

    by: where they run. kept: those that are finished. progress: whether to show a bar, else as the experiment says.
    """

    by: By = here
    kept: Kept | None = None
    progress: bool | None = None

    def __call__(
        self, work: Callable[..., Rows], tasks: Sequence[tuple], *, jobs: Callable[[], int] = one, progress: bool = True
    ) -> list[dict]:
        """work: gives a row or a list of rows, the same whenever and wherever it is called. tasks: plain data."""
        keys = self.kept.keys(tasks) if self.kept else list(range(len(tasks)))
        found: dict[object, Rows] = dict(self.kept.found) if self.kept else {}
        missing = [i for i, key in enumerate(keys) if key not in found]
        pairs = self.by(work, [tasks[i] for i in missing], jobs)
        shown = progress if self.progress is None else self.progress
        for i, rows in _bar(pairs, len(tasks), shown, len(tasks) - len(missing)):
            key = keys[missing[i]]
            found[key] = rows
            if self.kept:
                self.kept.add(key, rows)
        return [row for key in keys for row in (found[key] if isinstance(found[key], list) else [found[key]])]


HERE = Units()


def partial_path(folder: str | Path, name: str, size: str) -> Path:
    """Where the finished units of an experiment lie until its result is whole."""
    return Path(folder) / f"{name}.{size}.partial.jsonl"


class Kept:
    """Rows of finished units, in a file whose first line says what they belong to; each further line is a unit.

    A file of another run (other code, versions, seeds, device) or a damaged one is set aside with a warning. A unit's
    key is the number of the call among those of the experiment, and the task: the code fixes their order.
    """

    def __init__(self, path: Path, head: dict) -> None:
        self.path, self.head, self.calls, self.found = path, head, 0, {}
        self.lines: list[str] = []
        self.before, self.start = 0.0, time.perf_counter()
        if path.exists():
            self._read()

    def keys(self, tasks: Sequence[tuple]) -> list[str]:
        self.calls += 1
        return [f"{self.calls} {json.dumps(task)}" for task in tasks]

    def seconds(self) -> float:
        """In all calls of this run together."""
        return self.before + time.perf_counter() - self.start

    def add(self, key: str, rows: Rows) -> None:
        """Keeps a unit's rows; the file is replaced at once, so that it is whole at any time."""
        self.found[key] = rows
        self.lines.append(json.dumps({"unit": key, "rows": rows}))
        first = json.dumps({**self.head, "seconds": round(self.seconds(), 1)})
        try:
            with whole_file(self.path) as part:
                part.write_text("\n".join([first, *self.lines, ""]), encoding="utf-8")
        except OSError as error:
            raise OSError(f"cannot keep finished runs in {self.path} ({error.strerror}); name another --out.") from None

    def _read(self) -> None:
        try:
            first, *lines = self.path.read_text(encoding="utf-8").splitlines()
            head, units = json.loads(first), [json.loads(line) for line in lines]
            self.before = float(head.pop("seconds"))
            self.found = {unit["unit"]: _checked(unit["rows"]) for unit in units}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._set_aside(f"it is damaged ({type(error).__name__})")
            return
        other = [key for key in self.head if head.get(key) != self.head[key]]
        if other:
            self._set_aside(f"it belongs to a run that differs in {', '.join(other)}")
        else:
            self.lines = lines

    def _set_aside(self, why: str) -> None:
        self.before, self.found = 0.0, {}
        aside = self.path.with_suffix(".old")
        os.replace(self.path, aside)
        warnings.warn(
            f"{self.path} cannot be gone on with: {why}. It is now {aside}; the run starts anew.", stacklevel=2
        )


def _checked(rows: Rows) -> Rows:
    if not all("method" in row and "metrics" in row for row in (rows if isinstance(rows, list) else [rows])):
        raise ValueError("no rows")
    return rows


def code() -> str:
    """A checksum of this library's files: the same on two machines that run the same code."""
    root, found = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).as_posix()):
        text = path.read_text(encoding="utf-8")  # line ends as one kind
        found.update(f"{path.relative_to(root).as_posix()}\n{text}\n".encode())
    return found.hexdigest()[:16]


def device_name(device: str | None = None) -> str:
    """The chosen device in words: the card's name, or the number of threads."""
    picked = pick_device(device)
    return (
        torch.cuda.get_device_name(picked)
        if picked.type == "cuda"
        else f"{picked.type} ({torch.get_num_threads()} threads)"
    )
