"""Grades a folder of submissions: each exercise in a process of its own, with a time limit, into one row of a CSV.

Only the cell that an exercise asks for is taken from a submission. Exercises, checks and solutions come from the
lecturer's chapters, so that nothing a student writes elsewhere counts. Points are the stars of an exercise, all or
none.
"""

import contextlib
import csv
import hashlib
import multiprocessing
import os
import pkgutil
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from course_lib import checks
from course_lib.book import ROOT, chapters
from course_lib.edition import EXERCISE, EditionError, tags
from course_lib.files import whole_file
from course_lib.judging import Exercise, judge, statements

SECONDS = 60.0
NUMBERED = re.compile(r"(\d\d)_.*\.ipynb")
DEFINED = r"^def {}\s*\("


class Row(NamedTuple):
    """One line of the score file."""

    student: str
    chapter: int | str
    exercise: str
    points: int
    of: int
    message: str


class Submission(NamedTuple):
    """What one student handed in for one chapter: the code cells, or why there are none."""

    cells: list | None
    message: str = ""


def exercises(path: Path) -> list[Exercise]:
    """The exercises of the lecturer's chapter at `path`, in order. Raises EditionError where one is not whole."""
    import nbformat

    found, before, heading, parts = [], [], None, {}
    for cell in nbformat.read(path, 4).cells:
        kind = next((tag for tag in ("stub", "check", "solution") if tag in tags(cell)), "")
        heading = (list(EXERCISE.finditer(cell.source)) or [heading])[-1]
        if cell.cell_type != "code":
            continue
        if kind == "stub":
            if heading is None:
                raise EditionError(f"{path.name}: the stub {cell.source.split('(')[0]!r} has no exercise above it")
            parts, name = {"stub": cell}, re.search(r"^def (\w+)", cell.source, re.M)[1]
        elif kind:
            parts[kind] = cell
        if kind == "solution":
            own = statements(cell.source)
            found.append(
                Exercise(
                    chapter=int(path.name[:2]),
                    number=heading["number"],
                    name=name,
                    points=len(heading["stars"]),
                    cell=parts["stub"].id,
                    stub=parts["stub"].source,
                    check=parts["check"].source,
                    solution=cell.source,
                    before=tuple(before),
                )
            )
            before += [s for s in own if name in s.gives]  # a later answer may call this one
        elif not kind:
            with contextlib.suppress(SyntaxError):  # a cell for IPython alone gives no name that an answer reads
                before += statements(cell.source)
    return found


def submissions(folder: Path, course: dict[int, list[Exercise]]) -> dict[str, dict[int, Submission]]:
    """What lies in `folder`, by student and chapter: STUDENT/NN_*.ipynb or STUDENT.ipynb; -1 is an unknown chapter.

    Raises EditionError where the folder is none or holds no notebook.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise EditionError(f"wanted a folder of submissions, {folder} is none")
    found: dict[str, dict[int, Submission]] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            found[path.name] = _of_a_folder(path, course)
        elif path.suffix == ".ipynb":
            found.setdefault(path.stem, {}).update(_of_a_file(path, course))
    if not found:
        raise EditionError(
            f"no submission lies in {folder}: wanted {folder}/STUDENT/NN_name.ipynb, as `course edition student` names "
            f"the chapters, or {folder}/STUDENT.ipynb"
        )
    return found


def _of_a_folder(folder: Path, course: dict[int, list[Exercise]]) -> dict[int, Submission]:
    found: dict[int, list[Path]] = {}
    for path in sorted(p for p in folder.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts):
        match = NUMBERED.fullmatch(path.name)
        number = int(match[1]) if match and int(match[1]) in course else next(iter(_of_a_file(path, course)), -1)
        found.setdefault(number, []).append(path)
    return {
        number: _read(paths[0])
        if len(paths) == 1
        else Submission(None, "several notebooks of one chapter: " + ", ".join(p.name for p in paths))
        for number, paths in found.items()
    }


def _of_a_file(path: Path, course: dict[int, list[Exercise]]) -> dict[int, Submission]:
    """A notebook under any name belongs to the chapter most of whose exercises it has."""
    read = _read(path)
    if read.cells is None:
        return {-1: read}
    ids = {cell.get("id") for cell in read.cells}
    has = {n: sum(e.cell in ids or _answers(e, read.cells) is not None for e in all_) for n, all_ in course.items()}
    best = max(has, key=has.get)
    return {best: read} if has[best] else {-1: Submission(None, f"no exercise of this book is in {path.name}")}


def _read(path: Path) -> Submission:
    import nbformat

    try:
        cells = nbformat.read(path, 4).cells
        return Submission([cell for cell in cells if cell.cell_type == "code" and isinstance(cell.source, str)])
    except Exception as error:  # whatever a broken file makes of its reader
        why = (str(error).strip().splitlines() or ["no message"])[0][:200]
        return Submission(None, f"{path.name} cannot be read as a notebook: {type(error).__name__}: {why}")


def _answers(exercise: Exercise, cells: list) -> str | None:
    """The student's code for an exercise: its cell by id, else the last that defines its function."""
    defines = re.compile(DEFINED.format(exercise.name), re.M)
    cells = [c for c in cells if not {"check", "solution"} & set(tags(c)) and defines.search(c.source)]
    own = [c for c in cells if c.get("id") == exercise.cell] or cells
    return own[-1].source if own else None


# ---- one exercise of one student -------------------------------------------------------------------------------------


def score(exercise: Exercise, cells: list, *, seed: int, seconds: float = SECONDS) -> tuple[int, str]:
    """The points of one answer and what to say about it; at most `seconds` long."""
    source = _answers(exercise, cells)
    if source is None:
        return 0, f"not attempted: no cell defines {exercise.name}"
    if source.strip() == exercise.stub.strip():
        return 0, "not attempted"
    try:
        statements(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        return 0, f"your cell is not Python: {type(error).__name__}: {error}"
    right, message = _in_a_process(exercise, source, seed, seconds)
    return (exercise.points, "") if right else (0, message)


def _in_a_process(exercise: Exercise, source: str, seed: int, seconds: float) -> tuple[bool, str]:
    kinds = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in kinds else "spawn")
    modules = pkgutil.iter_modules(checks.__path__, "course_lib.checks.")
    context.set_forkserver_preload(["course_lib.judging", *(m.name for m in modules)])  # once, not for every answer
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=judge, args=(exercise, source, seed, theirs), daemon=False)
    process.start()
    theirs.close()
    try:
        if not mine.poll(seconds):
            return False, f"stopped after {seconds:g} s: does a loop never end?"
        return mine.recv()
    except (EOFError, OSError):
        return False, "the process ended before the check did: out of memory, or the answer leaves Python"
    finally:
        mine.close()
        _end(process)


def _end(process: multiprocessing.Process) -> None:
    """Ends the process, and all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg") and os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join(10)


# ---- the whole folder ------------------------------------------------------------------------------------------------


def grade(
    folder: Path,
    *,
    root: Path = ROOT,
    only: list[int] | None = None,
    seed: str = "",
    seconds: float = SECONDS,
    after: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """One row for each exercise of each chapter that anybody handed in, or of the chapters in `only`; by student.

    Raises EditionError, before anything is graded, where the folder or a chapter is not what it should be.
    """
    course = {int(path.name[:2]): exercises(path) for path in chapters(root)}
    unknown = sorted(set(only or ()) - set(course))
    if unknown:
        raise EditionError(f"there is no chapter {unknown[0]}; there are {min(course)} to {max(course)}")
    handed_in = submissions(folder, course)
    wanted = sorted(only or {n for chapters_ in handed_in.values() for n in chapters_ if n >= 0})
    rows = []
    for student, found in handed_in.items():
        for row in _rows(student, found, [(n, course[n]) for n in wanted], seed, seconds):
            after(row)
            rows.append(row)
    return rows


def _rows(student: str, found: dict, wanted: list, seed: str, seconds: float) -> Iterator[Row]:
    lost = found.get(-1)
    for chapter, all_ in wanted:
        submission = found.get(chapter) or lost or Submission(None, "not attempted: no notebook of this chapter")
        for e in all_:
            points, message = 0, submission.message
            if submission.cells is not None:
                points, message = score(e, submission.cells, seed=seed_of(student, e, seed), seconds=seconds)
            yield Row(student, chapter, e.number, points, e.points, " ".join(message.split())[:500])
    if lost and not wanted:
        yield Row(student, "", "", 0, 0, lost.message)


def seed_of(student: str, exercise: Exercise, word: str = "") -> int:
    """The seed of a student's numbers: another for each student, exercise and `word`, the same on every machine."""
    return int.from_bytes(hashlib.sha256(f"{word}/{student}/{exercise.number}".encode()).digest()[:8])


def write(rows: list[Row], out: Path) -> Path:
    """Write the score file whole, or not at all; a name or message that a spreadsheet would calculate is quoted."""
    out = Path(out)
    with whole_file(out) as part, open(part, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Row._fields)
        writer.writerows([_plain(value) for value in row] for row in rows)
    return out


def _plain(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value[:1] in set("=+-@") else value
