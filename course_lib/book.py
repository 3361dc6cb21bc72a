"""Executes the chapters and builds the book, always in a scratch copy; fails when a cell raises or a page is missing.

Imports of the book's tools stand inside the functions, so that importing this file costs nothing.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from course_lib.files import whole_file

ROOT = Path(__file__).resolve().parents[1]
CONFIG, TOC, HTML = "book/_config.yml", "book/_toc.yml", "book/_build/html"
MAY_RAISE = "raises-exception"  # the only cells whose errors are part of the lesson
SECONDS_PER_CELL = 900
COMPLAINT = re.compile(r"\b(WARNING|ERROR|CRITICAL):|^\w*[eE]rror\b")
VENDORED = {"requirejs@2.3": "require.js", "@jupyter-widgets/html-manager@1.0": "dist/embed-amd.js"}


class BookError(RuntimeError):
    """A chapter or the book could not be made; the message says which page or cell."""


def chapters(root: Path = ROOT) -> list[Path]:
    """The chapters' notebooks under `root`, in reading order."""
    found = sorted((Path(root) / "notebooks").glob("[0-9]*.ipynb"))
    if not found:
        raise BookError(
            f"no chapter lies in {Path(root) / 'notebooks'}: an installed wheel holds the library only; "
            "clone the repository to get the chapters"
        )
    return found


def chapter(number: int, root: Path = ROOT) -> Path:
    """The notebook of one chapter."""
    return next(path for path in chapters(root) if path.stem.startswith(f"{number:02d}_"))


def scratch(dest: Path, root: Path = ROOT) -> Path:
    """Copy all that the book needs to `dest`, so that no output is ever written into the repository."""
    skip = shutil.ignore_patterns("_build", ".ipynb_checkpoints", "__pycache__")
    chapters(root)
    for folder in ("notebooks", "book"):
        shutil.copytree(Path(root) / folder, Path(dest) / folder, ignore=skip, dirs_exist_ok=True)
    return Path(dest)


def execute_all(
    paths: Sequence[Path], size: str = "lesson", *, keep_going: bool = False, env: dict | None = None, **options: object
) -> Iterator[tuple[Path, float | Exception]]:
    """Run chapters, two at a time where there are two cores, and yield each with what `execute` returns as it ends.

    The first that fails raises and stops the others; with `keep_going` its error is yielded instead.
    """
    at_once, clients, env = min(2, os.cpu_count() or 1, len(paths)), [], env or {}
    if at_once > 1:  # two that each start a thread for every core are slower than one after the other
        env = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")} | env
    waiting, running = iter(paths), {}
    with ThreadPoolExecutor(at_once) as pool:

        def begin():
            for path in islice(waiting, at_once - len(running)):
                running[pool.submit(execute, path, size, env=env, clients=clients, **options)] = path

        try:
            begin()
            while running:
                run = next(as_completed(running))
                error, path = run.exception(), running.pop(run)
                if error and not keep_going:
                    raise error
                begin()
                yield path, error or run.result()
        finally:  # also when the reader interrupts: no waiting for a cell that may take minutes
            while not all(run.done() for run in running):
                for client in clients:
                    with contextlib.suppress(AttributeError):  # its kernel has ended
                        client.km.provisioner.process.kill()
                time.sleep(0.1)


def execute(
    path: Path,
    size: str = "lesson",
    *,
    timeout: int = SECONDS_PER_CELL,
    env: dict | None = None,
    clients: list | None = None,
) -> float:
    """Run a chapter from its own folder at `size` and store its outputs in it; on an error it is left as it was.

    Returns the CPU seconds of its cells: those of a clock would grow with whatever else the machine does. Its client
    joins `clients`, through which another thread can end the kernel.
    """
    import nbformat
    import psutil
    from nbclient import NotebookClient
    from tqdm.auto import tqdm

    path = Path(path)
    notebook, at, cpu = nbformat.read(path, 4), [0], [0.0]
    bar = tqdm(total=len(notebook.cells), desc=path.stem, unit="cell", leave=False)

    def now_at(cell, cell_index, execute_reply=None):
        at[0] = cell_index
        if clients is not None and client not in clients:  # only now: nbclient leaves a mess when a kernel dies earlier
            clients.append(client)
        bar.update(cell_index - bar.n)
        used = psutil.Process(client.km.provisioner.pid).cpu_times()
        cpu.append(sum(used[:4]))  # user and system, its own and that of children it has waited for

    client = NotebookClient(notebook, timeout=timeout, kernel_name="python3", extra_arguments=["--log-level=40"])
    client.on_cell_start = client.on_cell_executed = now_at
    # Without the reader's MPLBACKEND, which would send the figures elsewhere than into the notebook.
    quiet = {"PYDEVD_DISABLE_FILE_VALIDATION": "1", "MPLBACKEND": "", "TQDM_DISABLE": "1"}
    try:
        client.execute(cwd=str(path.parent), env=os.environ | {"COURSE_SIZE": size} | quiet | (env or {}))
    except Exception as error:  # a raising cell, a cell that takes too long, a kernel that dies: one line for each
        raise BookError(f"{path.stem}, {cell_name(notebook, at[0])}: {_why(error)}") from error
    finally:
        bar.close()
    write_whole(path, nbformat.writes(notebook))
    return cpu[-1] - cpu[min(1, len(cpu) - 1)]


def _why(error: Exception) -> str:
    name, value = getattr(error, "ename", type(error).__name__), getattr(error, "evalue", str(error))
    return f"{name}: {(str(value).strip().splitlines() or ['no message'])[0]}"


def cell_name(notebook, index: int) -> str:
    """How an error names a cell: its place and its first line of code."""
    first = (notebook.cells[index].source.strip().splitlines() or [""])[0]
    return f"cell {index} ({first[:60]})"


def write_whole(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old one or the new one, never half of it."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def unfinished(path: Path) -> list[str]:
    """What keeps an executed chapter out of the book: no outputs, or an error in a cell that may not raise."""
    import nbformat

    notebook = nbformat.read(path, 4)
    code = [(i, c) for i, c in enumerate(notebook.cells) if c.cell_type == "code"]
    if not any(c.outputs for _, c in code):
        return [f"{path.stem}: has no outputs; execute it first"]
    raised = [
        (i, o)
        for i, c in code
        for o in c.outputs
        if o.output_type == "error" and MAY_RAISE not in c.metadata.get("tags", [])
    ]
    return [f"{path.stem}, {cell_name(notebook, i)}: {o.ename}: {o.evalue}" for i, o in raised]


def pages(root: Path = ROOT) -> list[str]:
    """Every page of the table of contents, as a path without its ending."""
    import yaml

    toc = yaml.safe_load((Path(root) / TOC).read_text(encoding="utf-8"))
    return [toc["root"]] + [entry["file"] for part in toc["parts"] for entry in part["chapters"]]


def build(root: Path) -> Path:
    """Build the book of an executed scratch copy and return its first page; warnings are errors."""
    bad = [problem for path in chapters(root) for problem in unfinished(path)]
    if bad:
        raise BookError("the book was not built:\n  " + "\n  ".join(bad))
    status, log = _jupyter_book(root, TOC, "-W", "--keep-going")
    missing = [page for page in pages(root) if not (Path(root) / HTML / f"{page}.html").exists()]
    bad = [f"{page}: no such page was made" for page in missing]
    if status:
        bad += [line for line in log.splitlines() if COMPLAINT.search(line)] or [log[-2000:]]
    if bad:
        raise BookError("the book is not whole:\n  " + "\n  ".join(bad))
    return Path(root) / HTML / "index.html"


def _jupyter_book(root: Path, toc: str, *options: str) -> tuple[int, str]:
    # Sphinx warns about a page only when it reads it: with an old build in place a broken book would look whole.
    shutil.rmtree(Path(root) / "book/_build", ignore_errors=True)
    # Called through this interpreter, so that the script of another environment on the PATH is never taken.
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", "."]
    done = subprocess.run(
        [*command, "--config", CONFIG, "--toc", toc, "--path-output", "book", *options],
        cwd=root,
        text=True,
        encoding="utf-8",
        errors="replace",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"PYTHONUTF8": "1"},
    )
    return done.returncode, re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)


def page(notebook: Path) -> Path:
    """Build one executed chapter of a scratch copy as a page that needs no network; returns the html file."""
    import yaml

    notebook = Path(notebook).resolve()
    root = notebook.parents[1]
    toc = {"format": "jb-book", "root": f"notebooks/{notebook.stem}", "chapters": [{"file": "book/references"}]}
    (root / "book/_one_page.yml").write_text(yaml.safe_dump(toc), encoding="utf-8")
    # Links to the other chapters have no target here, so warnings are no errors.
    _, log = _jupyter_book(root, "book/_one_page.yml")
    made = root / HTML / f"notebooks/{notebook.stem}.html"
    if not made.exists():
        raise BookError(f"no page was made from {notebook.name}:\n{log[-2000:]}")
    return made


def vendor(root: Path = ROOT) -> bool:
    """Fetch the widgets' scripts into the git-ignored book/_static/vendor; False where npm or a network is missing."""
    npm, home = shutil.which("npm"), Path(root) / "book/_static/vendor"
    if all((home / Path(member).name).exists() for member in VENDORED.values()):
        return True
    if npm is None:
        return False
    with tempfile.TemporaryDirectory() as temporary:
        for name, member in VENDORED.items():
            command = [npm, "pack", "--silent", "--fetch-retries=0", "--fetch-timeout=60000", name]
            done = subprocess.run(command, cwd=temporary, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            if done.returncode:
                return False
            shutil.unpack_archive(Path(temporary) / done.stdout.split()[-1], temporary, "gztar")
            home.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(temporary) / "package" / member, home / Path(member).name)
            shutil.rmtree(Path(temporary) / "package")
    return True


def notation_table() -> str:
    """The table of symbols of the page "Notation", in Markdown, from `course_lib.confusion.NOTATION`."""
    from course_lib.confusion import NOTATION

    head = ("ours", "meaning", "shape", "in Tanno et al.")
    rows = [head, ("---",) * 4, *([cell.replace("|", "\\|") for cell in row] for row in NOTATION)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


@dataclass(frozen=True)
class Card:
    """The measured part of a chapter's card, read from the ledger."""

    number: int
    cpu: dict | None = None
    gpu: dict | None = None

    def __str__(self) -> str:
        return f"**Measured.** {_measured(self.cpu, 'a CPU', 'machine')}; {_measured(self.gpu, 'a GPU', 'card')}."

    _repr_markdown_ = __str__


def _measured(entry: dict | None, device: str, name: str) -> str:
    if not entry:
        return f"not yet run on {device}"
    memory = f", {entry['peak_mb']:.0f} MB at most" if entry.get("peak_mb") else ""
    return f"{entry['seconds']:.0f} s on {device} ({entry[name]}, size `{entry['size']}`{memory})"


def ledger() -> dict:
    """Seconds and memory per chapter (`01_annotators_disagree: {cpu: {...}, gpu: {...}}`); empty where none ships."""
    import yaml

    from course_lib.data import shipped

    try:
        return yaml.safe_load(Path(shipped("gpu-ledger.yaml")).read_text(encoding="utf-8")) or {}
    except FileNotFoundError:
        return {}


def card(number: int) -> Card:
    """The measured part of chapter `number`'s card: seconds on CPU and GPU, or "not yet run on a GPU"."""
    found = [v for k, v in ledger().items() if str(k).split("_")[0] == f"{number:02d}"]
    entry = found[0] if found else {}
    return Card(number, entry.get("cpu"), entry.get("gpu"))
