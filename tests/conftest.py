"""What all tests share: a quiet environment, and one executed scratch copy of the chapters."""

import os
import shutil
import statistics
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

# Before anything imports torch or starts a kernel; kernels inherit this. The networks are small: one thread was a third
# faster than two on two cores that other work kept busy (21 s against 32 s for chapter 1).
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ["COURSE_SIZE"] = "ci"
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
os.environ.setdefault("MPLBACKEND", "Agg")

REPO = Path(__file__).resolve().parents[1]
SECONDS_PER_CELL = 60
SECONDS_PER_CHAPTER = 30
QUIET_SECONDS = 0.45  # of the small training that `busy` times
NO_REASON = {"", "Skipped", "unconditional skip"}
CHROMIUM_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# Imported by every kernel through PYTHONPATH: a chapter that reaches for the network fails, whatever library it uses.
OFFLINE = """
import socket

LOCAL = {"127.0.0.1", "::1", "localhost", "", None, socket.gethostname()}
connect, look_up = socket.socket.connect, socket.getaddrinfo


def local_connect(self, address):
    if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in LOCAL:
        raise OSError(f"a chapter reached for the network: {address[0]}")
    return connect(self, address)


def local_look_up(host, *args, **kwargs):
    if host not in LOCAL:
        raise OSError(f"a chapter reached for the network: {host}")
    return look_up(host, *args, **kwargs)


socket.socket.connect, socket.getaddrinfo = local_connect, local_look_up
"""


@dataclass(frozen=True)
class Outcome:
    """How one chapter ended; starting the kernel is not the chapter's fault."""

    error: str
    seconds: float  # spent in cells, by the clock
    cpu_seconds: float  # the same, when it may have shared the machine


@dataclass(frozen=True)
class Executed:
    """A scratch copy whose chapters have run."""

    root: Path
    outcomes: dict[str, Outcome]
    busy: float  # how many times slower than two quiet cores the machine was meanwhile


def run_chapters(root: Path, size: str = "ci", *, after_each=lambda: None, **env: str) -> dict[str, Outcome]:
    """Run the chapters of a scratch copy as readers do, but offline, and keep their outputs in it."""
    from course_lib import book

    (root / ".offline").mkdir(exist_ok=True)
    (root / ".offline/sitecustomize.py").write_text(OFFLINE, encoding="utf-8")
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root / ".offline"), os.environ.get("PYTHONPATH")]))
    outcomes = {}
    for path, ended in book.execute_all(book.chapters(root), size, keep_going=True, timeout=SECONDS_PER_CELL, env=env):
        failed = isinstance(ended, Exception)
        error = f"{ended}\n{ended.__cause__}" if failed else ""
        outcomes[path.stem] = Outcome(error, seconds_in_cells(path), 0.0 if failed else ended)
        after_each()
    return dict(sorted(outcomes.items()))


def seconds_in_cells(path: Path) -> float:
    import nbformat

    total = 0.0
    for cell in nbformat.read(path, 4).cells:
        times = cell.metadata.get("execution", {})
        if "shell.execute_reply" in times:
            begin, end = (times[k].replace("Z", "+00:00") for k in ("iopub.execute_input", "shell.execute_reply"))
            total += (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()
    return total


def busy() -> float:
    """How many times slower than two quiet cores this machine is now: that must not look like a slow chapter.

    By the CPU seconds of a small training, since neighbours on the same host and the same core do not show in the load.
    """
    from course_lib import bench

    start = time.thread_time()
    bench.train(1, epochs=5)
    return (time.thread_time() - start) / QUIET_SECONDS


@pytest.fixture(scope="session")
def executed(tmp_path_factory) -> Executed:
    """Every chapter, executed once at `ci` size; the notebook tests and the book share it."""
    from course_lib import book

    if os.environ.get("CI"):
        book.vendor()  # so that CI sees live widgets; elsewhere the tests fetch nothing
    root = book.scratch(tmp_path_factory.mktemp("book"))
    busy()  # the first call does not count
    slower = []
    outcomes = run_chapters(root, after_each=lambda: slower.append(busy()))
    return Executed(root, outcomes, max(1.0, statistics.median(slower)))


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium; without one the browser tests are skipped, but never in CI."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None and os.environ.get("CI"):
        pytest.fail("CI is set but no chromium is on the PATH; .ci/run installs Debian's")
    if path is None:
        pytest.skip("no Chromium on this machine, so the built pages are not opened (Debian: apt install chromium)")
    return path


@pytest.fixture(scope="session")
def browser(chromium):
    """One Chromium for all tests: a second Playwright cannot start while a first one is open."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[dev]'")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        yield opened
        opened.close()


_without_reason: list[str] = []


def pytest_runtest_logreport(report):
    skipped = report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple)
    if skipped and report.longrepr[2].removeprefix("Skipped:").strip() in NO_REASON:
        _without_reason.append(report.nodeid)


def pytest_sessionfinish(session, exitstatus):
    if _without_reason and exitstatus == 0:
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter):
    for nodeid in _without_reason:
        terminalreporter.write_line(f"ERROR {nodeid} was skipped without a reason; say why in the skip", red=True)
