"""What the tests of the exercises share: the functions that a chapter's cells define."""

import ast
from pathlib import Path

import nbformat
import torch
from conftest import REPO

from course_lib import book
from course_lib.annotations import MISSING
from course_lib.edition import tags


def functions(source: str) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}


def code_cells(chapter: int, root: Path = REPO) -> list:
    notebook = nbformat.read(book.chapter(chapter, root), 4)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def cells(chapter: int, tag: str) -> list:
    return [cell for cell in code_cells(chapter) if tag in tags(cell)]


def outside(chapter: int) -> str:
    """The code that a reader runs who does no exercise."""
    return "\n".join(c.source for c in code_cells(chapter) if not {*tags(c)} & {"stub", "check", "solution"})


def printed(chapter: int, root: Path) -> str:
    """What an executed copy of the chapter printed."""
    return "".join(o.get("text", "") for cell in code_cells(chapter, root) for o in cell.outputs)


def defined(chapter: int, tag: str) -> dict:
    """The functions that the cells with this tag define, without whatever else these cells run."""
    space = {"torch": torch, "MISSING": MISSING}
    for cell in cells(chapter, tag):
        for node in functions(cell.source).values():
            exec(ast.unparse(node), space)
    return space
