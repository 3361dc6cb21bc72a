"""Judges one answer to one exercise: the student's function, the lecturer's check, and a second look on other numbers.

`judge` runs in a process of its own, which `course_lib.grading` starts and ends. Of a student's cell it runs only what
the asked function needs; what the function needs of the chapter comes from the lecturer's notebook.
"""

import ast
import os
import socket
import symtable
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path

import numpy as np
import torch

from course_lib import checks
from course_lib.variants import copied, finite, same, short, varied

MANY_RIGHT = {"fair_vote", "impostor", "folds", "by_patient", "another"}
"""Checks that test what must hold of an answer, since many are right: they get no second look."""
LOOKS, TRIES, ROOM = 4, 6, 4 * 2**30


@dataclass(frozen=True)
class Statement:
    """One statement of a chapter: its text, the names that it gives and the names that it reads."""

    text: str
    gives: frozenset[str]
    reads: frozenset[str]


@dataclass(frozen=True)
class Exercise:
    """One exercise as the lecturer's chapter has it; `before` is the code that stands above it, answers included."""

    chapter: int
    number: str
    name: str
    points: int
    cell: str
    stub: str
    check: str
    solution: str
    before: tuple[Statement, ...]


class Refused(Exception):
    """No points; the message says why."""


# ---- what an answer needs --------------------------------------------------------------------------------------------


def statements(source: str) -> list[Statement]:
    """The statements of a cell, in order, with one import each. Raises SyntaxError."""
    return [_statement(ast.unparse(part)) for node in ast.parse(source).body for part in _parts(node)]


def _parts(node: ast.stmt) -> list[ast.stmt]:
    if isinstance(node, ast.Import):
        return [ast.Import([alias]) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [ast.ImportFrom(node.module, [alias], node.level) for alias in node.names]
    if isinstance(node, ast.Try) and all(isinstance(inner, ast.Import | ast.ImportFrom) for inner in node.body):
        return [part for inner in node.body for part in _parts(inner)]  # a chapter's first cell
    return [node]


def _statement(text: str) -> Statement:
    table = symtable.symtable(text, "cell", "exec")
    gives = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    return Statement(text, frozenset(gives), frozenset(_reads(table)))


def _reads(table: symtable.SymbolTable) -> set[str]:
    """Names that a piece of code looks up outside itself, those inside its functions included."""
    top = table.get_type() == "module"
    own = {s.get_name() for s in table.get_symbols() if s.is_referenced() and (top or s.is_global())}
    return own.union(*(_reads(inner) for inner in table.get_children()))


def needed(code: Iterable[Statement], names: Iterable[str]) -> str:
    """The statements that give `names`, and what those need in turn; nothing that only prints, plots or trains."""
    names, kept = set(names), []
    for statement in reversed(list(code)):
        if statement.gives & names:
            kept.append(statement.text)
            names |= statement.reads
    return "\n".join(reversed(kept))


def space(code: Iterable[Statement], names: Iterable[str]) -> dict:
    """The names of a chapter, as running what they need gives them."""
    found = {"__name__": "chapter"}
    exec(compile(needed(code, names), "<chapter>", "exec"), found)
    return found


# ---- the verdict -----------------------------------------------------------------------------------------------------


def verdict(exercise: Exercise, source: str, seed: int) -> None:
    """Nothing where the answer is right on the check's numbers and on those of `seed`. Raises Refused or NotDone."""
    code = statements(exercise.check)
    lecturer = space([*exercise.before, *code], frozenset().union(*(s.reads for s in code)) - {exercise.name})
    solution = space([*exercise.before, *statements(exercise.solution)], [exercise.name])[exercise.name]
    before = _untouched()
    try:
        function = space([*exercise.before, *statements(source)], [exercise.name])[exercise.name]
    except Exception as error:
        raise Refused(f"your cell stopped with {_named(error)}") from None
    calls: list[tuple] = []

    @wraps(function)
    def recorded(*arguments: object) -> object:
        if arguments:
            calls.append(copied(arguments))
        return function(*arguments)

    try:
        exec(exercise.check, lecturer | {exercise.name: recorded})
    except checks.CheckFailed as error:
        raise Refused(str(error).removeprefix(f"Exercise {exercise.number}: ")) from None
    if before.items() - _untouched().items():
        raise Refused("the answer changes the check or the library; it must only return a value")
    if exercise.name not in MANY_RIGHT:
        look_again(function, solution, calls[:LOOKS], np.random.default_rng(seed))


def _untouched() -> dict[tuple[str, str], int]:
    """What judges: all that the library defines, and how torch compares (others torch itself replaces at first use)."""
    library = [name for name in sys.modules if name.split(".")[0] == "course_lib"]
    found = {(m, k): id(v) for m in library for k, v in vars(sys.modules[m]).items() if callable(v)}
    return found | {("torch", k): id(getattr(torch, k)) for k in ("allclose", "as_tensor", "equal", "tensor")}


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def look_again(function: Callable, solution: Callable, calls: list[tuple], rng: np.random.Generator) -> None:
    """Holds the function against the solution on other numbers than the check's. Raises Refused."""
    for call in calls:
        for arguments, right in drawn(solution, call, rng):
            try:
                given = function(*copied(arguments))
            except Exception as error:
                raise Refused(f"right for the check's numbers; for others it stopped with {_named(error)}") from None
            if not same(given, right):
                got = f"wanted {short(right)}, got {short(given)}"
                raise Refused(
                    f"right for the check's numbers, wrong for others ({got}); does it use all its arguments?"
                )


def drawn(solution: Callable, call: tuple, rng: np.random.Generator) -> list[tuple[tuple, object]]:
    """Two sets of other arguments with their right answers, or fewer where the solution has none for them."""
    found: list[tuple[tuple, object]] = []
    for strength in range(1, TRIES + 1):
        arguments = varied(call, rng, strength)
        try:
            right = solution(*copied(arguments))
        except Exception:
            continue  # not numbers that this exercise is about
        if finite(right) and not same(right, solution(*copied(call))):
            found.append((arguments, right))
    return found[:2]


# ---- the process of its own ------------------------------------------------------------------------------------------


def judge(exercise: Exercise, source: str, seed: int, pipe: object) -> None:
    """Sends (right, message) through `pipe`. Prints nowhere, has no network and not more than 4 GB more memory."""
    _alone()
    torch.set_num_threads(1)
    try:
        torch.default_generator.manual_seed(seed % 2**31)
        verdict(exercise, source, seed)
        pipe.send((True, ""))
    except checks.NotDone:
        pipe.send((False, "not attempted"))
    except Refused as error:
        pipe.send((False, str(error)))
    except BaseException as error:  # also an answer that calls sys.exit
        pipe.send((False, f"your cell stopped with {_named(error)}"))
    finally:
        pipe.close()


def _alone() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if hasattr(os, "setsid"):
        os.setsid()  # so that what an answer starts ends with it
    if sys.platform == "linux":
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    def refuse(*_: object, **__: object) -> None:
        raise OSError("an answer has no network while it is graded")

    socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
