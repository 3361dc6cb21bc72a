"""Two editions of the chapters for a class: the student's without solutions, the instructor's with them in place."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from course_lib.book import MAY_RAISE, ROOT, chapters, write_whole


class EditionError(RuntimeError):
    """An edition could not be written; nothing was."""


def student(out: Path, root: Path = ROOT) -> list[Path]:
    """Write the chapters without their solutions to the new folder `out`; the stubs wait to be filled in."""
    return _write(Path(out), root, without_solutions)


def instructor(out: Path, root: Path = ROOT) -> list[Path]:
    """Write the chapters with every solution in the place of its stub; their checks must then pass."""
    return _write(Path(out), root, with_solutions)


def tags(cell) -> list[str]:
    return cell.metadata.get("tags", [])


def without_solutions(cells: list) -> list:
    """All cells but the solutions."""
    return [cell for cell in cells if "solution" not in tags(cell)]


def with_solutions(cells: list) -> list:
    """Each stub replaced by the solution that follows it, and no check that may raise."""
    out, waiting = [], None
    for cell in cells:
        if "stub" in tags(cell):
            if waiting is not None:
                raise EditionError(f"the stub {_first_line(waiting)!r} has no solution before the next stub")
            waiting = cell
            out.append(cell)
        elif "solution" in tags(cell) and cell.cell_type == "code":
            if waiting is None:
                raise EditionError(f"the solution {_first_line(cell)!r} has no stub before it")
            waiting.source, waiting = cell.source, None
        elif "solution" not in tags(cell):
            out.append(_strict(cell))
    if waiting is not None:
        raise EditionError(f"the stub {_first_line(waiting)!r} has no solution after it")
    return out


def _strict(cell):
    if "check" in tags(cell):
        cell.metadata["tags"] = [tag for tag in tags(cell) if tag != MAY_RAISE]
    return cell


def _first_line(cell) -> str:
    return cell.source.strip().splitlines()[0]


def _write(out: Path, root: Path, edit: Callable[[list], list]) -> list[Path]:
    import nbformat

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise EditionError(f"{out} exists and is not an empty folder; name a new one, nothing was written")
    out.parent.mkdir(parents=True, exist_ok=True)
    # Written beside `out` and moved there whole: an error in the last chapter leaves no half edition behind.
    part = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}-"))
    try:
        for path in chapters(root):
            notebook = nbformat.read(path, 4)
            notebook.cells = edit(notebook.cells)
            write_whole(part / path.name, nbformat.writes(notebook))
        part.chmod(0o755)
        if out.exists():
            out.rmdir()
        os.replace(part, out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return sorted(out.glob("*.ipynb"))
