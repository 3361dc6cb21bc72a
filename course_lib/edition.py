"""Two editions of the chapters for a class: the student's without solutions, the instructor's with them in place."""

import os
import re
from collections.abc import Callable
from pathlib import Path

from course_lib.book import MAY_RAISE, ROOT, chapters, write_whole
from course_lib.files import whole_folder

EXERCISE = re.compile(
    r"```\{exercise\} [^\n]*\((?P<stars>★+), (?P<minutes>\d+) minutes\)\n(?::label: [^\n]*\n)?"
    r"\s*Exercise (?P<number>\d+\.\d+)\."
)


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
    """All cells but the solutions; stubs and checks carry what nbgrader asks for."""
    out, heading, name = [], None, ""
    for cell in cells:
        heading = (list(EXERCISE.finditer(cell.source)) or [heading])[-1]
        if "solution" in tags(cell):
            continue
        if "stub" in tags(cell):
            name = re.search(r"^def (\w+)", cell.source, re.M)[1]
            cell.metadata["nbgrader"] = _nbgrader(name, solution=True)
        elif "check" in tags(cell):
            points = len(heading["stars"]) if heading else 1
            cell.metadata["nbgrader"] = _nbgrader(f"check_{name}", grade=True, locked=True, points=points)
        out.append(cell)
    return out


def _nbgrader(grade_id: str, **other: object) -> dict:
    """A cell's entry for nbgrader, in version 3 of its schema."""
    none = {"grade": False, "locked": False, "solution": False, "task": False}
    return none | {"schema_version": 3, "cell_type": "code", "grade_id": grade_id} | other


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


def writable(path: Path) -> Path:
    """The path, if something can be written at it or below; else the command ends in one line, before its work."""
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    if not os.access(there, os.W_OK) or not (there.is_dir() or there == path.absolute()):
        why = "may not be written to" if there.is_dir() else "is a file"
        raise SystemExit(f"course: cannot write to {path}: {there} {why}; name another with --out, or work elsewhere.")
    return path


def _strict(cell):
    if "check" in tags(cell):
        cell.metadata["tags"] = [tag for tag in tags(cell) if tag != MAY_RAISE]
    return cell


def _first_line(cell) -> str:
    return cell.source.strip().splitlines()[0]


def _keep_on_pairing(notebook) -> None:
    """Lets jupytext carry nbgrader's entries to a paired script and back; the chapters themselves have none."""
    pairing = notebook.metadata.get("jupytext", {})
    if any("nbgrader" in cell.metadata for cell in notebook.cells) and "cell_metadata_filter" in pairing:
        pairing["cell_metadata_filter"] = "nbgrader," + pairing["cell_metadata_filter"]


def _write(out: Path, root: Path, edit: Callable[[list], list]) -> list[Path]:
    import nbformat

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise EditionError(f"{out} exists and is not an empty folder; name a new one, nothing was written")
    with whole_folder(out) as part:  # an error in the last chapter leaves no half edition behind
        for path in chapters(root):
            notebook = nbformat.read(path, 4)
            notebook.cells = edit(notebook.cells)
            _keep_on_pairing(notebook)
            write_whole(part / path.name, nbformat.writes(notebook))
    return sorted(out.glob("*.ipynb"))
