"""The student's edition stops only at its unfilled exercises; the instructor's runs through."""

import nbformat
import pytest
from conftest import REPO, run_chapters
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from test_notebooks import every_chapter, too_early

from course_lib import book, edition
from course_lib.edition import EditionError, tags

ALL_DONE = "def f():\n    return 1\n\n\nprint(f())"


def code(source, *names):
    return new_code_cell(source, metadata={"tags": [*names]})


def exercise():
    return [
        new_markdown_cell("task"),
        code("def f():\n    raise NotImplementedError", "stub"),
        new_markdown_cell("the solution in words", metadata={"tags": ["solution"]}),
        code("check(f)", "check", "raises-exception"),
        code(ALL_DONE, "solution", "hide-cell"),
        new_markdown_cell("what you should see"),
    ]


def tiny_course(root, cells):
    (root / "notebooks").mkdir()
    nbformat.write(new_notebook(cells=cells), root / "notebooks/01_tiny.ipynb")
    return root


def runs_elsewhere(folder, written):
    """Run a chapter of an edition away from the repository, as a reader who was handed single files does."""
    (folder / "notebooks").mkdir(parents=True)
    (folder / "notebooks" / written.name).write_bytes(written.read_bytes())
    return run_chapters(folder)[written.stem], nbformat.read(folder / "notebooks" / written.name, 4)


def cells_of(path):
    return nbformat.read(path, 4).cells


def stopped_by(notebook):
    """(id of the cell, name) of every error, in order."""
    return [
        (cell.id, output.ename)
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "error"
    ]


# Executing an edition shows little that the executed chapter and tests/test_exercises.py do not show for each stub and
# each solution, and takes as long as the chapter: so by default for one chapter only, for the others with `-m slow`.
QUICKEST = "00_start_here"
each_executed = pytest.mark.parametrize(
    "stem",
    [pytest.param(p.stem, marks=[] if p.stem == QUICKEST else pytest.mark.slow) for p in book.chapters()],
)


def one_of(written, stem):
    (path,) = [path for path in written if path.stem == stem]
    return path


@every_chapter
def test_the_student_edition_is_the_chapter_without_its_solutions(path, tmp_path):
    chapter, student = cells_of(path), cells_of(one_of(edition.student(tmp_path / "out"), path.stem))
    for cell in student:
        assert ("nbgrader" in cell.metadata) == bool({"stub", "check"} & {*tags(cell)})
        cell.metadata.pop("nbgrader", None)
    assert student == [cell for cell in chapter if "solution" not in tags(cell)]
    solutions = [cell.source for cell in chapter if "solution" in tags(cell)]
    assert solutions and not [cell.source for cell in student if cell.source in solutions]
    assert [c.source for c in student if "stub" in tags(c)] == [c.source for c in chapter if "stub" in tags(c)]


@every_chapter
def test_the_instructor_edition_is_the_chapter_with_each_solution_in_its_stub(path, tmp_path):
    chapter, instructor = cells_of(path), cells_of(one_of(edition.instructor(tmp_path / "out"), path.stem))
    solutions = iter([cell.source for cell in chapter if "solution" in tags(cell) and cell.cell_type == "code"])
    kept = [cell for cell in chapter if "solution" not in tags(cell)]
    for ours, theirs in zip(kept, instructor, strict=True):
        if "stub" in tags(ours):
            assert theirs.source == next(solutions) and "NotImplementedError" not in theirs.source
            ours.source = theirs.source
        elif "check" in tags(ours):
            assert tags(theirs) == [tag for tag in tags(ours) if tag != "raises-exception"]
            ours.metadata.tags = tags(theirs)
        assert ours == theirs
    assert not list(solutions)


@every_chapter
def test_no_edition_reads_a_name_that_only_the_other_gives(path, tmp_path):
    for write in (edition.student, edition.instructor):
        assert not too_early(nbformat.read(one_of(write(tmp_path / write.__name__), path.stem), 4))


@every_chapter
def test_where_the_stubs_stay_exactly_the_checks_stop_each_with_not_done(path, executed):
    """In the chapter itself, which has run anyway: each check stands before its solution."""
    notebook = nbformat.read(executed.root / "notebooks" / path.name, 4)
    assert stopped_by(notebook) == [(cell.id, "NotDone") for cell in notebook.cells if "check" in tags(cell)]


@each_executed
def test_in_the_student_edition_exactly_the_checks_stop_each_with_not_done(stem, tmp_path):
    outcome, notebook = runs_elsewhere(tmp_path / "away", one_of(edition.student(tmp_path / "student"), stem))
    assert not outcome.error
    assert stopped_by(notebook) == [(cell.id, "NotDone") for cell in notebook.cells if "check" in tags(cell)]


@each_executed
def test_the_instructor_edition_runs_through_with_nothing_allowed_to_raise(stem, tmp_path):
    outcome, notebook = runs_elsewhere(tmp_path / "away", one_of(edition.instructor(tmp_path / "instructor"), stem))
    assert not outcome.error
    assert not stopped_by(notebook)


def test_the_two_edits_by_hand(tmp_path):
    root = tiny_course(tmp_path, exercise())
    student = nbformat.read(edition.student(tmp_path / "s", root)[0], 4).cells
    assert [c.source for c in student] == ["task", exercise()[1].source, "check(f)", "what you should see"]
    teacher = nbformat.read(edition.instructor(tmp_path / "i", root)[0], 4).cells
    assert [c.source for c in teacher] == ["task", ALL_DONE, "check(f)", "what you should see"]
    assert tags(teacher[2]) == ["check"]


@pytest.mark.parametrize("lost", ["stub", "solution"])
def test_a_stub_or_solution_without_its_partner_is_named_and_nothing_is_written(tmp_path, lost):
    cells = [cell for cell in exercise() if not (lost in tags(cell) and cell.cell_type == "code")]
    root = tiny_course(tmp_path, exercise())
    nbformat.write(new_notebook(cells=cells), root / "notebooks/02_broken.ipynb")
    with pytest.raises(EditionError, match=f"has no {lost}"):
        edition.instructor(tmp_path / "out", root)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notebooks"]


def test_a_folder_that_holds_something_is_refused_and_left_alone(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("mine")
    with pytest.raises(EditionError, match="not an empty folder"):
        edition.student(tmp_path / "full", REPO)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]
    with pytest.raises(EditionError, match="not an empty folder"):
        edition.student(tmp_path / "full/mine.txt", REPO)


def test_an_empty_folder_is_accepted(tmp_path):
    (tmp_path / "out").mkdir()
    assert edition.student(tmp_path / "out", REPO)
