"""The student's edition stops only at its unfilled exercises; the instructor's runs through."""

import nbformat
import pytest
from conftest import REPO, run_chapters
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib import edition
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
    """Run an edition away from the repository, as a reader who was handed single files does."""
    (folder / "notebooks").mkdir(parents=True)
    for path in written:
        (folder / "notebooks" / path.name).write_bytes(path.read_bytes())
    return run_chapters(folder), [nbformat.read(folder / "notebooks" / path.name, 4) for path in written]


def errors(notebook):
    return [
        (cell, output.ename)
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "error"
    ]


def test_in_the_student_edition_exactly_the_checks_stop_each_with_not_done(tmp_path):
    written = edition.student(tmp_path / "student")
    outcomes, notebooks = runs_elsewhere(tmp_path / "away", written)
    for path, notebook in zip(written, notebooks, strict=True):
        assert not outcomes[path.stem].error
        stopped = errors(notebook)
        assert {name for _, name in stopped} == {"NotDone"}
        assert [cell.id for cell, _ in stopped] == [cell.id for cell in notebook.cells if "check" in tags(cell)]


def test_the_student_edition_holds_no_solution(tmp_path):
    for path in edition.student(tmp_path / "out"):
        assert not [cell.source for cell in nbformat.read(path, 4).cells if "solution" in tags(cell)]


def test_the_instructor_edition_runs_through_with_nothing_allowed_to_raise(tmp_path):
    written = edition.instructor(tmp_path / "instructor")
    outcomes, notebooks = runs_elsewhere(tmp_path / "away", written)
    for path, notebook in zip(written, notebooks, strict=True):
        assert not outcomes[path.stem].error
        assert not errors(notebook)
        assert not [cell for cell in notebook.cells if "NotImplementedError" in cell.source and "stub" in tags(cell)]


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
