"""The grader: perfect, blank, mistaken, endless, crashing, broken and dishonest submissions, each with what it says."""

import csv
import subprocess
import sys
import time

import jupytext
import nbformat
import numpy as np
import pytest
import torch
from conftest import REPO

from course_lib import book, edition, grading, judging
from course_lib.checks import classes
from course_lib.edition import EditionError, tags
from course_lib.variants import copied, same, varied

COURSE = {int(path.name[:2]): grading.exercises(path) for path in book.chapters()}
QUICK = (0, 3, 6)
each_chapter = pytest.mark.parametrize(
    "chapter", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in COURSE]
)
each_quick_chapter = pytest.mark.parametrize(  # a second or less; so a new chapter is looked at by default
    "chapter", [pytest.param(n, marks=pytest.mark.slow if n in (4, 14) else []) for n in COURSE]
)
TABLES = {
    "3.1": classes.LABEL_MISTAKES,
    "3.2": classes.LAMBDA_MISTAKES,
    "3.3": classes.SHRINK_MISTAKES,
    "3.4": classes.SHARER_MISTAKES,
}
TABLE_NAMES = {"3.1": "LABEL", "3.2": "LAMBDA", "3.3": "SHRINK", "3.4": "SHARER"}
MISTAKES = [(number, k, sentence) for number, table in TABLES.items() for k, sentence in enumerate(table)]
RIGHT = "def one_label(A, p, said):\n    return -(A[said] @ p).log()"


@pytest.fixture(scope="module")
def editions(tmp_path_factory):
    out = tmp_path_factory.mktemp("editions")
    return {"perfect": edition.instructor(out / "perfect"), "blank": edition.student(out / "blank")}


def one_of(paths, chapter):
    (path,) = [path for path in paths if path.name.startswith(f"{chapter:02d}_")]
    return path


def exercise(number):
    (found,) = [e for e in COURSE[int(number.split(".")[0])] if e.number == number]
    return found


def hand_in(folder, paths, *chapters):
    folder.mkdir(parents=True)
    for chapter in chapters:
        path = one_of(paths, chapter)
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def answered(number, source):
    """The cells of a submission that holds one answer."""
    e = exercise(number)
    return [nbformat.v4.new_code_cell(source, id=e.cell, metadata={"tags": ["stub"]})]


def scored(source, number="3.1", seconds=30.0):
    return grading.score(exercise(number), answered(number, source), seed=1, seconds=seconds)


# ---- what the lecturer's chapters hold -------------------------------------------------------------------------------


def test_every_exercise_of_the_book_is_found_with_its_stars_as_points():
    assert [e.number for e in COURSE[3]] == ["3.1", "3.2", "3.3", "3.4"]
    assert [e.points for e in COURSE[3]] == [1, 2, 3, 2]
    stubs = sum("stub" in tags(c) for path in book.chapters() for c in nbformat.read(path, 4).cells)
    assert sum(map(len, COURSE.values())) == stubs
    assert len({e.number for all_ in COURSE.values() for e in all_}) == stubs


def test_of_a_chapter_only_what_a_name_needs_is_run():
    code = judging.statements(
        "import math\nR = 2\nraise SystemExit\ndef area(r):\n    return math.pi * r**R\nprint(area(1))"
    )
    assert judging.needed(code, ["area"]) == "import math\nR = 2\ndef area(r):\n    return math.pi * r ** R"
    assert judging.needed(code, ["R"]) == "R = 2"


def test_what_a_function_holds_itself_is_not_looked_for_outside():
    code = judging.statements("x = 1 / 0\ndef f(x):\n    return [y for y in x]")
    assert judging.space(code, ["f"])["f"]((1, 2)) == [1, 2]


# ---- whole submissions -----------------------------------------------------------------------------------------------


@each_chapter
def test_the_instructors_edition_gets_all_points_and_the_students_none(editions, tmp_path, chapter):
    hand_in(tmp_path / "in/ada", editions["perfect"], chapter)
    hand_in(tmp_path / "in/ben", editions["blank"], chapter)
    rows = grading.grade(tmp_path / "in")
    assert [row.exercise for row in rows] == 2 * [e.number for e in COURSE[chapter]]
    ada, ben = rows[: len(COURSE[chapter])], rows[len(COURSE[chapter]) :]
    assert all(row.points == row.of and not row.message for row in ada), ada
    assert all(row.points == 0 < row.of and row.message == "not attempted" for row in ben), ben


def test_one_notebook_a_student_is_known_by_its_exercises(editions, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/cleo.ipynb").write_bytes(one_of(editions["perfect"], 3).read_bytes())
    rows = grading.grade(tmp_path / "in")
    assert [(r.student, r.chapter, r.exercise, r.points) for r in rows] == [
        ("cleo", 3, e.number, e.points) for e in COURSE[3]
    ]


def test_a_copy_under_another_name_and_without_ids_and_tags_is_still_found(editions, tmp_path):
    notebook = nbformat.read(one_of(editions["perfect"], 3), 4)
    for cell in notebook.cells:
        cell.id, cell.metadata = nbformat.v4.new_code_cell("").id, {}
    (tmp_path / "in/dan").mkdir(parents=True)
    nbformat.write(notebook, tmp_path / "in/dan/final version (2).ipynb")
    assert [row.points for row in grading.grade(tmp_path / "in")] == [1, 2, 3, 2]


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "cannot be read"), ("{", "cannot be read"), ("[1, 2]", "cannot be read"), ('{"cells": 3}', "cannot be read")],
)
def test_a_broken_file_costs_its_own_points_only(editions, tmp_path, text, says):
    name = one_of(editions["perfect"], 3).name
    hand_in(tmp_path / "in/ada", editions["blank"], 3)
    (tmp_path / "in/eve").mkdir()
    (tmp_path / "in/eve" / name).write_text(text)
    (tmp_path / "in/fay.ipynb").write_text(text)
    rows = grading.grade(tmp_path / "in")
    assert [row.student for row in rows] == ["ada"] * 4 + ["eve"] * 4 + ["fay"] * 4
    assert all(says in row.message and row.points == 0 for row in rows[4:])


def test_two_notebooks_of_one_chapter_a_missing_one_and_none_at_all_are_named(editions, tmp_path):
    hand_in(tmp_path / "in/ada", editions["perfect"], 3)
    copy = tmp_path / "in/ada/03_the_trace-Copy1.ipynb"
    copy.write_bytes(one_of(editions["perfect"], 3).read_bytes())
    (tmp_path / "in/ben").mkdir()
    rows = grading.grade(tmp_path / "in", only=[3])
    assert {row.message for row in rows[:4]} == {
        "several notebooks of one chapter: 03_the_trace-Copy1.ipynb, 03_the_trace.ipynb"
    }
    assert {row.message for row in rows[4:]} == {"not attempted: no notebook of this chapter"}


@pytest.mark.parametrize(("make", "says"), [(False, "is none"), (True, "no submission lies in")])
def test_a_folder_without_submissions_is_refused(tmp_path, make, says):
    if make:
        (tmp_path / "in").mkdir()
    with pytest.raises(EditionError, match=says):
        grading.grade(tmp_path / "in")


def test_a_chapter_that_does_not_exist_is_refused_before_anything_is_graded(tmp_path):
    with pytest.raises(EditionError, match="no chapter 77"):
        grading.grade(tmp_path, only=[77])


# ---- single answers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "k", "sentence"), MISTAKES, ids=[f"{n} {k}" for n, k, _ in MISTAKES])
def test_each_named_mistake_of_chapter_3_is_named_in_the_message(number, k, sentence):
    source = (
        f"from course_lib.checks.classes import {TABLE_NAMES[number]}_MISTAKES as table\n"
        f"def {exercise(number).name}(*arguments):\n    return list(table.values())[{k}](*arguments)"
    )
    assert scored(source, number) == (0, sentence)


def test_a_crash_a_wrong_grammar_and_a_missing_return_say_so():
    assert scored("def one_label(A, p, said):\n    return 1 / 0")[1].endswith(
        "stopped with ZeroDivisionError: division by zero"
    )
    assert "SyntaxError" in scored("def one_label(A, p, said):\n    return (1")[1]
    assert "is there a `return`" in scored("def one_label(A, p, said):\n    A.sum()")[1]
    assert "NameError: name 'tabel'" in scored("x = tabel\ndef one_label(A, p, said):\n    return x")[1]
    assert scored("one_label = 3") == (0, "not attempted: no cell defines one_label")


def test_what_a_cell_prints_trains_or_breaks_beside_its_function_costs_nothing():
    assert scored(RIGHT + "\nprint('x' * 10**6)\n1 / 0\nwhile True:\n    pass") == (1, "")


def test_an_answer_may_use_what_the_chapter_imports_and_defines_and_an_earlier_answer():
    assert scored("def one_label(A, p, said):\n    return -torch.log((A[said] * p).sum())") == (1, "")
    source = "def our_lambda(lam, R, n):\n    one_label(torch.eye(2), torch.ones(2), 0)\n    return lam * R / n"
    assert scored(source, "3.2") == (2, "")


def test_an_endless_answer_ends_at_its_limit_with_all_that_it_started(tmp_path):
    mark = tmp_path / "alive"
    source = f"""def one_label(A, p, said):
    import subprocess, sys
    subprocess.Popen([sys.executable, "-c", "import time, pathlib; time.sleep(5); pathlib.Path({str(mark)!r}).touch()"])
    while True:
        try:
            while True: print("working")
        except BaseException:
            pass"""
    began = time.monotonic()
    points, message = scored(source, seconds=2)
    assert points == 0 and message == "stopped after 2 s: does a loop never end?"
    assert time.monotonic() - began < 30
    time.sleep(6)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("import sys; sys.exit(0)", "SystemExit"),
        ("import os; os._exit(0)", "ended before the check"),
        ("return [0] * 10**12", "MemoryError"),
        ("return one_label(A, p, said)", "RecursionError"),
        ("import urllib.request as u; u.urlopen('http://127.0.0.1:9')", "no network"),
    ],
)
def test_an_answer_that_leaves_or_grows_or_calls_out_gets_its_message(body, says):
    points, message = scored(f"def one_label(A, p, said):\n    {body}")
    assert points == 0 and says in message


@pytest.mark.parametrize(
    "patch",
    [
        "checks.one_label = lambda f: None",
        "import course_lib.checks.classes as c; c.judge = lambda *a: None",
        "import course_lib.checks as c; c.like = lambda *a: True",
        "torch.allclose = lambda *a, **k: True",
    ],
)
def test_who_overwrites_the_check_gets_nothing_from_it(patch):
    beside = f"{patch}\ndef one_label(A, p, said):\n    return p.sum()"
    assert scored(beside)[0] == 0  # not run at all, since the answer does not need it
    points, message = scored(f"def one_label(A, p, said):\n    {patch}\n    return -(A[said] @ p).log()")
    assert points == 0 and "changes the check" in message


def test_checks_written_into_another_cell_do_not_count(editions, tmp_path):
    notebook = nbformat.read(one_of(editions["blank"], 3), 4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell("class checks:\n    one_label = print"))
    for cell in notebook.cells:
        if "stub" in tags(cell):
            cell.source = cell.source.replace("raise NotImplementedError", "return 0")
        elif "check" in tags(cell):
            cell.source = "print('✓ Exercise 3.1: right.')"
    hand_in(tmp_path / "in/gus", editions["blank"], 3)
    nbformat.write(notebook, one_of(sorted((tmp_path / "in/gus").iterdir()), 3))
    assert [row.points for row in grading.grade(tmp_path / "in")] == [0, 0, 0, 0]


# ---- other numbers for each student ----------------------------------------------------------------------------------


def answers_of(e):
    """The solution, and the arguments with which the check calls it."""
    solution, calls = judging.space([*e.before, *judging.statements(e.solution)], [e.name])[e.name], []

    def recorded(*arguments):
        calls.append(copied(arguments))
        return solution(*arguments)

    code = judging.statements(e.check)
    names = frozenset().union(*(s.reads for s in code)) - {e.name}
    exec(e.check, judging.space([*e.before, *code], names) | {e.name: recorded})
    return solution, calls


def by_heart(known):
    """A function that knows its answers by heart, and has one for everything else."""
    return lambda *given: next((right for call, right in known if same(given, call)), known[0][1])


@each_quick_chapter
def test_an_answer_learned_by_heart_passes_the_check_and_not_the_second_look(chapter, capsys):
    for e in COURSE[chapter]:
        solution, calls = answers_of(e)
        if e.name in judging.MANY_RIGHT or calls == [()]:
            continue
        heart = by_heart([(call, solution(*copied(call))) for call in calls])
        for seed in range(3):
            judging.look_again(solution, solution, calls[:4], np.random.default_rng(seed))
            with pytest.raises(judging.Refused, match="right for the check's numbers"):
                judging.look_again(heart, solution, calls[:4], np.random.default_rng(seed))


def test_an_answer_written_for_one_students_numbers_fails_for_another():
    solution, calls = answers_of(exercise("3.1"))
    known = [(calls[0], solution(*calls[0]))]
    rng = lambda: np.random.default_rng(grading.seed_of("ada", exercise("3.1")))  # noqa: E731
    known += judging.drawn(solution, calls[0], rng())
    judging.look_again(by_heart(known), solution, calls, rng())
    for other in (grading.seed_of("ben", exercise("3.1")), grading.seed_of("ada", exercise("3.1"), "autumn")):
        with pytest.raises(judging.Refused):
            judging.look_again(by_heart(known), solution, calls, np.random.default_rng(other))


def test_a_number_for_an_answer_is_refused_in_words():
    points, message = scored("def our_lambda(lam, R, n):\n    return 0.0375", "3.2")
    assert points == 0 and message.startswith("right for the check's numbers, wrong for others (wanted [")


def test_other_numbers_keep_what_the_given_ones_are():
    A, said = torch.tensor([[0.7, 0.1, 0.2], [0.2, 0.6, 0.3], [0.1, 0.3, 0.5]]), torch.tensor([[0, 2, -1], [1, 1, 2]])
    far, edges = torch.tensor([[0.0, 0.3], [0.3, 0.0]]), np.array([0.1, 0.4, 0.9])
    for seed in range(20):
        B, words, apart, cuts, n = varied((A, said, far, edges, 5), np.random.default_rng(seed), strength=6)
        assert torch.allclose(B.sum(0), torch.ones(3)) and not torch.allclose(B, A)
        assert set(words.flatten().tolist()) <= {-1, 0, 1, 2} and words.shape == said.shape
        assert torch.equal(apart, apart.T) and (apart.diagonal() == 0).all()
        assert (np.diff(cuts) >= 0).all() and n == 5
    right, of = varied((18, 20), np.random.default_rng(0))
    assert 0 < right - 18 == of - 20


def test_rows_of_runs_get_other_fractions_and_keep_their_words_and_seeds():
    rows = [{"method": "a", "draw": k, "seed": 0, "metrics": {"accuracy": 0.5 + k / 10}} for k in range(4)]
    (other, name) = varied((rows, "a"), np.random.default_rng(0))
    assert name == "a" and sorted(row["draw"] for row in other) == [0, 1, 2, 3]
    before = {row["draw"]: row["metrics"]["accuracy"] for row in rows}
    assert all(0.85 * before[row["draw"]] <= row["metrics"]["accuracy"] < before[row["draw"]] for row in other)
    assert {(row["method"], row["seed"]) for row in other} == {("a", 0)} and rows[1]["metrics"]["accuracy"] == 0.6


# ---- the score file, the command, nbgrader ---------------------------------------------------------------------------


def test_the_score_file_is_whole_and_never_a_formula(tmp_path):
    rows = [grading.Row("=cmd()", 3, "3.1", 1, 1, ""), grading.Row("zoë", 3, "3.1", 0, 1, 'a "quoted", long one')]
    grading.write(rows, tmp_path / "new/scores.csv")
    with (tmp_path / "new/scores.csv").open(encoding="utf-8", newline="") as file:
        found = list(csv.reader(file))
    assert found[0] == ["student", "chapter", "exercise", "points", "of", "message"]
    assert found[1][0] == "'=cmd()" and found[2] == ["zoë", "3", "3.1", "0", "1", 'a "quoted", long one']
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["scores.csv"]


def test_the_command_grades_a_folder_and_refuses_a_wrong_one_in_one_line(editions, tmp_path):
    hand_in(tmp_path / "in/ada", editions["perfect"], 0)
    course = [sys.executable, "-c", "from course_lib.cli import app; app()", "grade"]
    words = [str(tmp_path / "in"), "--out", str(tmp_path / "scores.csv"), "--seed", "autumn", "--seconds", "30"]
    done = subprocess.run([*course, *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "ada" in done.stdout and len((tmp_path / "scores.csv").read_text().splitlines()) == 1 + len(COURSE[0])
    done = subprocess.run([*course, "nowhere"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "wanted a folder of submissions" in done.stderr and "Traceback" not in done.stderr


def test_the_students_edition_carries_what_nbgrader_asks_for(editions):
    for path in editions["blank"]:
        cells = [c for c in nbformat.read(path, 4).cells if "nbgrader" in c.metadata]
        entries = [c.metadata["nbgrader"] for c in cells]
        assert len({e["grade_id"] for e in entries}) == len(entries) == 2 * len(COURSE[int(path.name[:2])])
        for e, cell in zip(entries, cells, strict=True):
            check = "check" in tags(cell)
            assert (e["schema_version"], e["task"], e["cell_type"]) == (3, False, "code")
            assert (e["grade"], e["locked"], e["solution"]) == (check, check, not check)
            assert ("points" in e) == check
        points = [e["points"] for e in entries if e["grade"]]
        assert points == [e.points for e in COURSE[int(path.name[:2])]]


def test_what_nbgrader_asks_for_survives_the_pairing_with_a_script(editions):
    notebook = nbformat.read(one_of(editions["blank"], 3), 4)
    entries = lambda book_: [c.metadata["nbgrader"] for c in book_.cells if "nbgrader" in c.metadata]  # noqa: E731
    again = jupytext.reads(jupytext.writes(notebook, "py:percent"), "py:percent")
    assert entries(again) == entries(notebook) and len(entries(again)) == 8
    assert [tags(c) for c in again.cells] == [tags(c) for c in notebook.cells]
    assert "nbgrader" not in (REPO / "notebooks/src/03_the_trace.py").read_text(encoding="utf-8")
