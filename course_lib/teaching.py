"""What the instructor's guide draws from the chapters: minutes, points, outcomes, exercises, likely mistakes."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from course_lib.book import ROOT, chapters
from course_lib.edition import EXERCISE, EditionError, tags

WORDS = {"one hour": 60, "an hour": 60, "an hour and a half": 90, "two hours": 120, "three hours": 180}
TITLE = re.compile(r"```\{exercise\} (?P<title>[^\n]*?) \((?P<stars>★+)")
TIME = re.compile(r"\*\*Time\*\* about ((?P<minutes>\d+) minutes|(?P<words>[a-z ]+?)) with the exercises")
OUTCOMES = re.compile(r"\*\*You will be able to\*\*\s*\n(?P<list>(?:\s*- [^\n]*\n(?:  [^\n]*\n)*)+)")
# Which outcome of its chapter, counted from 1, each exercise tests, in order; 0 for one that tests good practice.
TESTED = {
    0: (4, 4, 4, 4), 1: (1, 2, 2, 2), 2: (2, 2, 2, 3), 3: (1, 1, 3, 3), 4: (1, 4, 4), 5: (1, 1, 1, 2), 6: (3, 2, 3),
    7: (4, 1, 3, 3), 8: (1, 2, 3, 4), 9: (1, 2, 4, 2), 10: (2, 1, 3), 11: (3, 2, 3, 4), 12: (1, 1, 2, 3),
    13: (1, 2, 2, 4), 14: (1, 2, 4, 3), 15: (1, 3, 2, 5), 16: (1, 1, 2, 3), 17: (1, 1, 2, 6), 18: (1, 5, 0),
    19: (2, 2, 3, 3), 20: (1, 2, 1, 3), 21: (2, 3),
}  # fmt: skip
PROPERTIES = "many answers are right; the check says which rule is broken"
DAY = (1, 3, 7, 8)


class Task(NamedTuple):
    """One exercise as its card says it."""

    number: str
    title: str
    points: int
    minutes: int
    check: str


class Lesson(NamedTuple):
    """One chapter as its card says it; minutes are an estimate, exercises included."""

    number: int
    title: str
    kind: str  # core, elective or reference
    minutes: int
    outcomes: list[str]
    tasks: list[Task]


def lesson(path: Path) -> Lesson:
    """The card and the exercises of a chapter. Raises EditionError where its card lacks a part."""
    import nbformat

    cells = nbformat.read(path, 4).cells
    text = "".join(cell.source + "\n\n" for cell in cells if cell.cell_type == "markdown")
    time, outcomes = TIME.search(text), OUTCOMES.search(text)
    minutes = time and (int(time["minutes"] or 0) or WORDS.get(time["words"] or ""))
    kind = re.search(r"^\*(Core|Elective|Reference)\b", text, re.M)
    if not (minutes and outcomes and kind):
        raise EditionError(
            f"{path.name}: wanted a card with *Core*, *Elective* or *Reference chapter*, **You will be able to** and "
            "**Time** about N minutes or hours"
        )
    found = re.split(r"^\s*- ", outcomes["list"], flags=re.M)[1:]
    return Lesson(
        int(path.name[:2]),
        re.search(r"^# \d+\. ([^\n]*)", text, re.M)[1],
        kind[1].lower(),
        minutes,
        [" ".join(one.split()).rstrip(";.") for one in found],
        _tasks(text, [cell.source for cell in cells if "check" in tags(cell)]),
    )


def _tasks(text: str, checks: list[str]) -> list[Task]:
    found = zip(EXERCISE.finditer(text), TITLE.finditer(text), checks, strict=True)
    called = lambda source: re.search(r"\bchecks\.(\w+)\(", source)[1]  # noqa: E731
    return [Task(e["number"], t["title"], len(e["stars"]), int(e["minutes"]), called(check)) for e, t, check in found]


def lessons(root: Path = ROOT) -> list[Lesson]:
    """Every chapter that has exercises, in order."""
    import nbformat

    has = lambda path: any("stub" in tags(cell) for cell in nbformat.read(path, 4).cells)  # noqa: E731
    return [lesson(path) for path in chapters(root) if has(path)]


def _table(*rows: tuple) -> str:
    lines = ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def chapter_table(root: Path = ROOT) -> str:
    """Minutes and points of every chapter, with those of its exercises, and their sums."""
    rows = [("chapter", "", "minutes", "of these for exercises", "points")]
    all_ = lessons(root)
    for one in all_:
        spent, points = (sum(getattr(task, what) for task in one.tasks) for what in ("minutes", "points"))
        rows.append((f"{one.number} {one.title}", one.kind, one.minutes, spent, points))
    sums = [sum(row[k] for row in rows[1:]) for k in (2, 3, 4)]
    return _table(*rows, ("**all**", "", *(f"**{total}**" for total in sums)))


def outcome_table(root: Path = ROOT) -> str:
    """Every learning outcome with the exercises that test it and their points."""
    rows = [("chapter", "who has worked through it can", "tested by", "points")]
    for one in lessons(root):
        tested = list(zip(one.tasks, TESTED[one.number], strict=True))
        for n, outcome in enumerate(one.outcomes, 1):
            own = [task for task, which in tested if which == n]
            numbers = ", ".join(task.number for task in own) or "question or discussion"
            rows.append((one.number, outcome, numbers, sum(task.points for task in own) or "-"))
        rows += [(one.number, "(good practice)", task.number, task.points) for task, which in tested if not which]
    return _table(*rows)


def day_table(root: Path = ROOT) -> str:
    """A day of the chapters in `DAY`: each without its exercises of two and three stars."""
    rows: list[tuple] = [("what", "minutes")]
    for one in lessons(root):
        if one.number in DAY:
            kept = [task for task in one.tasks if task.points == 1]
            left = sum(task.minutes for task in one.tasks if task.points > 1)
            does = f", exercise {', '.join(task.number for task in kept)}"
            rows.append((f"chapter {one.number}, {one.title}{does}", one.minutes - left))
    rows += [('chapter 16, section 5: the "not class k" demonstration', 20), ("your own labels", 45)]
    total = sum(row[1] for row in rows[1:])
    return _table(*rows, ("**together**", f"**{total}**"))


def mistakes(root: Path = ROOT) -> str:
    """The mistakes that the checks name, one fold a chapter."""
    folds = []
    for one in lessons(root):
        module = importlib.import_module(f"course_lib.checks.{_module(one, root)}")
        lines = []
        for task in one.tasks:
            named = sentences(getattr(module, task.check), module)
            lines += [f"*{task.number} {task.title}*", "", *(f"- {_plain(s)}" for s in named or [PROPERTIES]), ""]
        text = "\n".join(lines)
        folds.append(f"<details><summary>Chapter {one.number}, {one.title}</summary>\n\n{text}\n</details>\n")
    return "\n".join(folds)


def _plain(sentence: str) -> str:
    """A sentence that means no emphasis, formula or markup in Markdown; code keeps its characters."""
    parts = re.split(r"(`[^`]+`)", sentence)
    return "".join(part if k % 2 else re.sub(r"([*_<$\[\\])", r"\\\1", part) for k, part in enumerate(parts))


def _module(one: Lesson, root: Path) -> str:
    import nbformat

    path = next(path for path in chapters(root) if path.name.startswith(f"{one.number:02d}_"))
    code = "\n".join(cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "code")
    return re.search(r"course_lib\.checks(?: import |\.)(\w+) as checks", code)[1]


def sentences(check: Callable, module: object) -> list[str]:
    """The sentences of the table of mistakes that a check reads; none where it has no table."""
    tables = [name for name in check.__code__.co_names if name.endswith("_MISTAKES")]
    return [sentence for name in tables for sentence in getattr(module, name)]


DRAWN: dict[str, Callable[[], str]] = {
    "chapters and points": chapter_table,
    "outcomes and exercises": outcome_table,
    "a day": day_table,
    "mistakes": mistakes,
}
"""What a page draws where it holds `<!-- drawn: NAME -->`."""
