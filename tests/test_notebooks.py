"""Every chapter runs, and is written as a chapter of this book must be; every rule is shown to catch a bad notebook."""

import ast
import builtins
import os
import re
import statistics
import subprocess
import symtable
import sys

import jupytext
import nbformat
import pytest
from conftest import REPO, SECONDS_PER_CHAPTER, run_chapters
from IPython.core.inputtransformer2 import TransformerManager
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib.edition import tags

CHAPTERS = sorted((REPO / "notebooks").glob("*.ipynb"))
every_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)

HEADINGS = (
    "idea in one picture",
    "predict",
    "maths",
    "from scratch",
    "experiment",
    "break it",
    "exercises",
    "paper claims",
    "three questions",
    "further reading",
)
OWN_HEADINGS = ("00", "19", "20", "21")  # front matter and reference chapters use the headings that make sense
MEDIAN_LINES, MOST_LINES = 8, 25
NEEDS_NO_PROSE = {"card", "check", "solution", "hide-input", "hide-cell", "parameters"}
GIVEN = {*dir(builtins), "display", "get_ipython", "In", "Out", "_", "__file__", "__name__"}

# Names of scopes that run where they stand; the body of a function runs later.
RUNS_NOW = {"listcomp", "setcomp", "dictcomp", "genexpr"}


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def python(source: str) -> str:
    """The Python that IPython makes of a cell with magics."""
    return TransformerManager().transform_cell(source)


def content(notebook) -> list[tuple]:
    """What a twin must share: text, tags and hidden sources. Not ids, kernels' display names, or how a cell scrolls."""
    return [
        (
            cell.cell_type,
            cell.source.replace("\r\n", "\n").strip(),
            sorted(tags(cell)),
            bool(cell.metadata.get("jupyter", {}).get("source_hidden")),
        )
        for cell in notebook.cells
    ]


def difference(notebook, twin) -> str:
    ours, theirs = content(notebook), content(twin)
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return f"cell {i} differs:\n  notebook: {a}\n  twin:     {b}"
    return "" if len(ours) == len(theirs) else f"the notebook has {len(ours)} cells, its twin {len(theirs)}"


def left_over(notebook) -> list[int]:
    """Cells with outputs or execution counts."""
    return [i for i, c in enumerate(notebook.cells) if c.get("outputs") or c.get("execution_count") is not None]


def lines_of_code(cell) -> int:
    return sum(1 for line in cell.source.splitlines() if line.strip() and not line.strip().startswith("#"))


def too_long(notebook) -> list[str]:
    sizes = [lines_of_code(cell) for cell in code_cells(notebook)]
    bad = [f"a cell has {n} lines, at most {MOST_LINES}" for n in sizes if n > MOST_LINES]
    if sizes and statistics.median(sizes) > MEDIAN_LINES:
        bad.append(f"the median cell has {statistics.median(sizes)} lines, at most {MEDIAN_LINES}")
    return bad


def without_prose(notebook) -> list[int]:
    """Code cells that follow another code cell with no word between them."""
    return [
        i
        for i, (a, b) in enumerate(zip(notebook.cells, notebook.cells[1:], strict=False), 1)
        if a.cell_type == b.cell_type == "code" and not NEEDS_NO_PROSE & {*tags(a), *tags(b)}
    ]


def addresses(notebook) -> list[str]:
    """Web addresses in code: a chapter reads what ships, never the network. Comments may cite."""
    return [
        node.value
        for cell in code_cells(notebook)
        for node in ast.walk(ast.parse(python(cell.source)))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"https?://|ftp://", node.value)
    ]


def neighbours(notebook) -> list[str]:
    """Paths in code that only hold where the notebook lies in the repository."""
    beside = re.compile(r"(\.\.?|notebooks|book|data|tests|course_lib)[/\\\\]")
    return [
        node.value
        for cell in code_cells(notebook)
        for node in ast.walk(ast.parse(python(cell.source)))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and beside.match(node.value)
    ]


def reads(table, deferred: bool = False):
    """(name, whether it is read only later) for each module-level name that a scope or one inside it reads."""
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (table.get_type() == "module" or symbol.is_global()):
            yield symbol.get_name(), deferred
    for child in table.get_children():
        now = child.get_type() == "class" or child.get_name() in RUNS_NOW
        yield from reads(child, deferred or not now)


def writes(table, top: bool = True) -> set[str]:
    names = {
        s.get_name() for s in table.get_symbols() if (s.is_assigned() or s.is_imported()) and (top or s.is_global())
    }
    return names.union(*(writes(child, False) for child in table.get_children()))


def too_early(notebook) -> list[str]:
    """Names that are read before an earlier statement has given them a value."""
    known, later, bad = set(GIVEN), set(), []
    for cell in code_cells(notebook):
        for statement in ast.parse(python(cell.source)).body:
            table = symtable.symtable(ast.unparse(statement), "cell", "exec")
            new = writes(table)
            # A loop or a `with` reads what it has just set, so only plain statements are held to the order within them.
            own = set() if isinstance(statement, ast.Assign | ast.Expr) else new
            for name, deferred in reads(table):
                if deferred:
                    later.add(name)
                elif name not in known | own:
                    bad.append(name)
            known |= new
    return bad + sorted(later - known)


def with_tag(notebook, tag: str) -> list:
    return [cell for cell in notebook.cells if tag in tags(cell)]


def headings_missing(notebook) -> list[str]:
    """Headings of the fixed chapter skeleton that are absent or out of order."""
    found = [
        line[3:].lower()
        for cell in notebook.cells
        if cell.cell_type == "markdown"
        for line in cell.source.splitlines()
        if line.startswith("## ")
    ]
    missing, start = [], 0
    for wanted in HEADINGS:
        at = next((i for i in range(start, len(found)) if wanted in found[i]), None)
        if at is None:
            missing.append(wanted)
        else:
            start = at + 1
    return missing


def before_section(prose: str) -> str:
    """The part of a Markdown cell before its first second-level heading."""
    return re.split(r"^## ", prose, maxsplit=1, flags=re.M)[0]


def card_missing(notebook) -> list[str]:
    """What the card at the top does not say."""
    top = ""
    for cell in notebook.cells:
        top += before_section(cell.source) if cell.cell_type == "markdown" else ""
        if re.search(r"^## ", cell.source, re.M):
            break
    wanted = {
        "what one will be able to do": "able to",
        "what one needs to know": "need to know",
        "how long it takes": r"\b(minutes|hours?)\b",
        "core, elective or reference": r"\b(core|elective|reference)\b",
    }
    missing = [what for what, words in wanted.items() if not re.search(words, top, re.I)]
    return missing + ([] if with_tag(notebook, "card") else ["a cell tagged card"])


def exercises(notebook) -> list[list]:
    """The cells of each exercise, from its card to the next one or the next section."""
    out, current = [], None
    for cell in notebook.cells:
        # One Markdown cell may end an exercise and open the next, or the next section.
        is_prose = cell.cell_type == "markdown"
        parts = re.split(r"(?m)^(?=#+ |`{3,}\{exercise\})", cell.source) if is_prose else [cell.source]
        for part in parts:
            if is_prose and part.startswith("## "):
                current = None
            elif is_prose and "{exercise}" in part:
                current = [new_markdown_cell(part)]
                out.append(current)
            elif current is not None and part.strip():
                current.append(new_markdown_cell(part) if is_prose else cell)
    return out


def incomplete(cells: list) -> list[str]:
    """What an exercise lacks: stub, three hints, check, solution, and an ending, in this order."""
    found = [
        kind
        for cell in cells
        for kind, here in (
            ("stub", "stub" in tags(cell) and "NotImplementedError" in cell.source),
            ("hints", cell.cell_type == "markdown" and cell.source.count("<details") == 3),
            ("check", {"check", "raises-exception"} <= {*tags(cell)}),
            ("solution", {"solution", "hide-cell"} <= {*tags(cell)} and bool(cell.metadata.get("jupyter"))),
        )
        if here
    ]
    bad = [] if found == ["stub", "hints", "check", "solution"] else [f"has {found}"]
    if cells[-1].cell_type != "markdown" or len(cells) < 5:
        bad.append("does not end with what one should see and why")
    return bad


def parameters_at_each_size(notebook, monkeypatch) -> list[dict]:
    """What the parameters cell's names hold at each size: it is run with all before it, as plain Python."""
    last = next(i for i, cell in enumerate(notebook.cells) if "parameters" in tags(cell))
    sources = [python(cell.source) for cell in notebook.cells[: last + 1] if cell.cell_type == "code"]
    names = sorted(writes(symtable.symtable(sources[-1], "cell", "exec")))
    monkeypatch.chdir(REPO / "notebooks")
    found = []
    for size in ("ci", "lesson", "paper"):
        monkeypatch.setenv("COURSE_SIZE", size)
        space = {"__name__": "__main__"}
        for source in sources:
            exec(source, space)
        found.append({name: repr(space[name]) for name in names})
    return found


def all_differ(values: list) -> bool:
    return all(a != b for i, a in enumerate(values) for b in values[:i])


# ---- the chapters ----------------------------------------------------------------------------------------------------


def test_there_are_chapters():
    assert CHAPTERS


@every_chapter
def test_the_chapter_runs_offline_within_its_time(path, executed):
    outcome = executed.outcomes[path.stem]
    assert not outcome.error, f"{path.stem}: {outcome.error}"
    limit = SECONDS_PER_CHAPTER * executed.busy
    used = outcome.cpu_seconds
    assert used < limit, f"{path.stem} took {used:.1f} s of one core in its cells, at most {limit:.0f}"


@every_chapter
def test_notebook_and_twin_say_the_same(path):
    twin = path.parent / "src" / f"{path.stem}.py"
    assert twin.exists(), f"write notebooks/src/{path.stem}.py, the notebook is made from it"
    remedy = f"jupytext --to notebook --update --output notebooks/{path.name} notebooks/src/{twin.name}"
    found = difference(nbformat.read(path, 4), jupytext.read(twin))
    assert not found, f"{found}\nif the .py is right: {remedy}"


@every_chapter
def test_the_endings_of_lines_and_the_age_of_files_do_not_matter(path, tmp_path):
    notebook, twin = tmp_path / path.name, tmp_path / f"{path.stem}.py"
    for copy, source in ((notebook, path), (twin, path.parent / "src" / f"{path.stem}.py")):
        copy.write_bytes(source.read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))
    for older in (notebook, twin):
        os.utime(notebook, (2e9, 2e9))
        os.utime(twin, (2e9, 2e9))
        os.utime(older, (1e9, 1e9))
        assert not difference(nbformat.read(notebook, 4), jupytext.read(twin))
    changed = twin.read_bytes().replace(b"import", b"import os, ", 1)
    twin.write_bytes(changed)
    assert difference(nbformat.read(notebook, 4), jupytext.read(twin))


@every_chapter
def test_a_chapter_may_lie_alone_in_a_folder(path):
    """Its checks, data and results come with the library; nothing is looked for beside the notebook."""
    assert not neighbours(nbformat.read(path, 4))


@every_chapter
def test_widgets_need_no_manager_of_their_own(path):
    notebook = nbformat.read(path, 4)
    text = "\n".join(cell.source for cell in code_cells(notebook))
    assert not re.search(
        r"%matplotlib|enable_custom_widget_manager|google\.colab|ipympl|ipycanvas|tqdm\.notebook", text
    )


@every_chapter
def test_no_outputs_are_committed(path):
    assert not left_over(nbformat.read(path, 4))


@every_chapter
def test_the_kernel_is_plain_python3(path):
    assert nbformat.read(path, 4).metadata.kernelspec.name == "python3"


@every_chapter
def test_cells_are_short(path):
    assert not too_long(nbformat.read(path, 4))


@every_chapter
def test_prose_stands_between_code_cells(path):
    notebook = nbformat.read(path, 4)
    assert not [notebook.cells[i].source[:80] for i in without_prose(notebook)]


@every_chapter
def test_no_code_cell_holds_an_address(path):
    assert not addresses(nbformat.read(path, 4))


@every_chapter
def test_no_name_is_read_before_it_is_assigned(path):
    assert not too_early(nbformat.read(path, 4))


@every_chapter
def test_one_parameters_and_one_training_cell(path):
    notebook = nbformat.read(path, 4)
    assert [len(with_tag(notebook, tag)) for tag in ("parameters", "training")] == [1, 1]


@every_chapter
def test_each_size_reaches_the_notebook(path, monkeypatch):
    found = parameters_at_each_size(nbformat.read(path, 4), monkeypatch)
    assert all_differ(found), f"two sizes give the same parameters: {found}"


@every_chapter
def test_the_skeleton_of_a_core_chapter_is_whole(path):
    notebook = nbformat.read(path, 4)
    assert not card_missing(notebook)
    if path.stem[:2] in OWN_HEADINGS:
        return
    if re.search(r"\bcore\b", notebook.cells[0].source + notebook.cells[1].source, re.I):
        assert not headings_missing(notebook)


@every_chapter
def test_each_exercise_is_whole(path):
    found = exercises(nbformat.read(path, 4))
    assert found, "no {exercise} in this chapter"
    assert not {cells[0].source[:60]: incomplete(cells) for cells in found if incomplete(cells)}


# ---- each rule catches a planted bad notebook ------------------------------------------------------------------------


def code(source, *names, **metadata):
    return new_code_cell(source, metadata={"tags": [*names], **metadata})


def book_of(*cells):
    return new_notebook(cells=[new_markdown_cell(c) if isinstance(c, str) else c for c in cells])


def test_a_changed_twin_is_seen_and_harmless_metadata_is_not():
    a, b = book_of("text", code("x = 1\ny = 2")), book_of("text", code("x = 1\r\ny = 2", scrolled=True))
    b.metadata["kernelspec"] = {"display_name": "somebody's"}
    b.metadata["vscode"] = {"interpreter": {"hash": "0"}}
    b.cells[1].metadata["vscode"] = {"languageId": "python"}
    b.cells[1].metadata["collapsed"] = False
    assert not difference(a, b)
    assert difference(a, book_of("text", code("x = 2\ny = 2")))
    assert difference(a, book_of("text", code("x = 1\ny = 2", "check")))
    assert difference(a, book_of("text"))


def test_a_left_output_or_count_is_seen():
    cell, counted = new_code_cell("1", outputs=[new_output("stream", text="1")]), new_code_cell("1", execution_count=3)
    assert left_over(book_of(cell, "text", counted, code("1"))) == [0, 2]


def test_long_cells_are_seen():
    assert too_long(book_of(code("x = 1\n" * 26), code("x"), code("x")))
    assert too_long(book_of(code("x = 1\n" * 9)))
    assert not too_long(book_of(code("x = 1\n# why\n\n" * 8)))


def test_neighbours_without_prose_are_seen():
    assert without_prose(book_of(code("1"), code("2"), "text", code("3"), code("4", "check"))) == [1]


def test_addresses_are_seen_but_comments_may_cite():
    bad = code("import pandas as pd\npd.read_csv('https://example.org/a.csv')  # https://example.org")
    assert addresses(book_of(bad, code("# see http://example.org\nx = 1"))) == ["https://example.org/a.csv"]


def test_paths_beside_the_notebook_are_seen():
    bad = code("open('../data/x.csv')\nload('book/results')\nopen('tests/a.py')\nprint('and/or', 'bookish', 'a ./b')")
    assert neighbours(book_of(bad)) == ["../data/x.csv", "book/results", "tests/a.py"]


def test_names_read_too_early_are_seen():
    assert too_early(book_of(code("print(x)"), code("x = 1"))) == ["x"]
    assert too_early(book_of(code("y = [a * k for a in range(3)]\nk = 2"))) == ["k"]
    assert too_early(book_of(code("z = z + 1"))) == ["z"]
    assert too_early(book_of(code("def f():\n    return never"))) == ["never"]


def test_names_in_good_order_are_not_flagged():
    good = """
%matplotlib inline
import numpy as np
from os import path as p
def f(a, *, b=np.pi):
    return a + later + b
class C:
    size = 3
    def g(self): return self.size
later = 2
for i, (j, k) in enumerate([(1, 2)]):
    print(i, j, k, [m for m in range(i)], (lambda q: q + later)(1))
with open(p.devnull) as file:
    text = file.read()
try:
    f(1)
except ValueError as error:
    print(error)
if (w := 3) > 2:
    print(w)
"""
    assert not too_early(book_of(code(good)))


def test_missing_headings_are_seen():
    whole = ["## 1. The idea in one picture"] + [f"text\n\n## {heading.capitalize()}" for heading in HEADINGS[1:]]
    assert not headings_missing(book_of(*whole))
    assert headings_missing(book_of(*whole[:3], *whole[4:])) == ["from scratch"]
    assert headings_missing(book_of(*whole[::-1]))


def test_a_poor_card_is_seen():
    text = "# 1\n\nCore. You will be able to read. You need to know Bayes. 40 minutes."
    assert not card_missing(book_of(text, code("card(1)", "card"), "## 1. The idea"))
    assert card_missing(book_of("# 1\n\nElective", "## You will be able to ... minutes")) == [
        "what one will be able to do",
        "what one needs to know",
        "how long it takes",
        "a cell tagged card",
    ]


def whole_exercise():
    hidden = {"jupyter": {"source_hidden": True}}
    return [
        new_markdown_cell("```{exercise}\n:label: ex\n```"),
        code("def f():\n    raise NotImplementedError", "stub"),
        new_markdown_cell("<details>1</details><details>2</details><details>3</details>"),
        code("check(f)", "check", "raises-exception"),
        code("def f():\n    return 1", "solution", "hide-cell", **hidden),
        new_markdown_cell("You should see 1."),
    ]


def test_one_cell_may_end_an_exercise_and_open_the_next():
    *first, ending = whole_exercise()
    opening, *second = whole_exercise()
    found = exercises(book_of(*first, f"{ending.source}\n\n{opening.source}", *second[:-1], "Seen.\n\n## 8. Claims"))
    assert len(found) == 2 and not incomplete(found[0]) and not incomplete(found[1])
    assert incomplete(exercises(book_of(*first, opening.source, *second, "## 8"))[0])


def test_incomplete_exercises_are_seen():
    assert not incomplete(exercises(book_of(*whole_exercise(), "## 8"))[0])
    for missing in range(1, 6):
        cells = whole_exercise()
        del cells[missing]
        assert incomplete(exercises(book_of(*cells, "## 8"))[0]), missing


def test_a_size_that_does_not_arrive_is_seen(monkeypatch):
    good = "import os\nSTEPS = {'ci': 1, 'lesson': 2, 'paper': 3}[os.environ['COURSE_SIZE']]"
    found = parameters_at_each_size(book_of(code("x = 1"), code(good, "parameters")), monkeypatch)
    assert [values["STEPS"] for values in found] == ["1", "2", "3"]
    assert not all_differ(parameters_at_each_size(book_of(code("STEPS = 2", "parameters")), monkeypatch))


def test_a_raising_and_a_networking_chapter_turn_the_run_red(tmp_path):
    (tmp_path / "notebooks").mkdir()
    planted = {
        "1_bad": "raise ValueError('planted')",
        "2_net": "import urllib.request\nurllib.request.urlopen('http://example.org')",
        "3_good": "print('fine')",
    }
    for stem, source in planted.items():
        nbformat.write(book_of(new_code_cell(source)), tmp_path / f"notebooks/{stem}.ipynb")
    outcomes = run_chapters(tmp_path)
    assert "planted" in outcomes["1_bad"].error
    assert "reached for the network" in outcomes["2_net"].error
    assert not outcomes["3_good"].error


def test_a_skip_without_a_reason_turns_the_run_red(tmp_path):
    (tmp_path / "conftest.py").write_text((REPO / "tests/conftest.py").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def status(call: str) -> int:
        (tmp_path / "test_it.py").write_text(f"import pytest\ndef test_skipped():\n    {call}\n")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True).returncode

    assert status("pytest.skip()") == 1
    assert status("pytest.skip('no GPU on this machine')") == 0
