"""The instructor's guide: what it draws from the chapters is whole, and each of its commands runs as printed."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from conftest import OFFLINE, REPO

from course_lib import edition, teaching
from course_lib.edition import EditionError

PAGE = (REPO / "book/instructor.md").read_text(encoding="utf-8")
README = (REPO / "README.md").read_text(encoding="utf-8")
LESSONS = teaching.lessons()
COURSE = f'"{sys.executable}" -c "from course_lib.cli import app; app()"'


def commands(mark):
    (block,) = re.findall(rf"<!-- command: {mark} -->\n```bash\n(.*?)```", PAGE, re.S)
    return block.strip().splitlines()


def shell(line, folder, **env):
    done = subprocess.run(line, shell=True, cwd=folder, capture_output=True, text=True, env=os.environ | env)
    assert done.returncode == 0, f"{line}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
    return done.stdout


# ---- what is drawn ---------------------------------------------------------------------------------------------------


def test_every_mark_of_the_page_is_drawn_and_every_drawing_has_its_mark():
    assert sorted(re.findall(r"<!-- drawn: (.+?) -->", PAGE)) == sorted(teaching.DRAWN)
    assert all(draw().count("\n") > 5 for draw in teaching.DRAWN.values())


def test_a_card_by_hand():
    (trace,) = [one for one in LESSONS if one.number == 3]
    assert (trace.title, trace.kind, trace.minutes) == ("The trace: truth and annotators together", "core", 120)
    assert trace.outcomes[3] == "recognise the three ways in which it goes wrong"
    assert trace.tasks[0] == ("3.1", "One label by hand", 1, 5, "one_label")
    assert "| 3 The trace: truth and annotators together | core | 120 | 45 | 8 |" in teaching.chapter_table()
    assert "| chapter 3, The trace: truth and annotators together, exercise 3.1 | 80 |" in teaching.day_table()


@pytest.mark.parametrize("one", LESSONS, ids=lambda one: str(one.number))
def test_each_exercise_tests_an_outcome_and_leaves_time_for_the_chapter(one):
    assert one.number in teaching.TESTED, f"say in teaching.TESTED what the exercises of chapter {one.number} test"
    assert len(teaching.TESTED[one.number]) == len(one.tasks)
    assert max(teaching.TESTED[one.number]) <= len(one.outcomes)
    assert sum(task.minutes for task in one.tasks) < one.minutes


def test_the_day_is_no_longer_than_a_day_and_the_weeks_name_every_core_chapter():
    assert int(re.findall(r"\*\*(\d+)\*\*", teaching.day_table())[-1]) <= 8 * 60
    weeks = " ".join(re.findall(r"^\| \d [A-Z].*$", PAGE, re.M))
    named = {int(n) for n in re.findall(r"\b\d+\b", weeks)}
    assert {one.number for one in LESSONS if one.kind == "core"} - {0, 6} <= named


def test_no_meeting_of_the_four_weeks_is_longer_than_two_hours():
    alone = {one.number: one.minutes - sum(task.minutes for task in one.tasks) for one in LESSONS}
    meetings = [m for row in re.findall(r"^\| \d [A-Z].*$", PAGE, re.M) for m in row.split("|")[2].split(";")]
    assert len(meetings) == 9
    assert all(sum(alone[int(n)] for n in re.findall(r"\d+", meeting)) <= 120 for meeting in meetings)


def test_each_table_of_mistakes_is_on_the_page_and_its_sentences_mean_no_markup():
    from course_lib.checks import classes

    assert teaching.sentences(classes.one_label, classes) == list(classes.LABEL_MISTAKES)
    assert teaching.sentences(classes.fair_vote, classes) == []
    drawn = teaching.mistakes()
    assert "- that is the network's cross-entropy alone; the annotator's matrix is missing." in drawn
    assert drawn.count("<details>") == len(LESSONS) and drawn.count(teaching.PROPERTIES) < 6


def test_a_chapter_without_a_card_is_named(tmp_path):
    import nbformat

    cells = [nbformat.v4.new_markdown_cell("# 1. Bare"), nbformat.v4.new_code_cell("1", metadata={"tags": ["stub"]})]
    (tmp_path / "notebooks").mkdir()
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "notebooks/01_bare.ipynb")
    with pytest.raises(EditionError, match="01_bare.ipynb: wanted a card"):
        teaching.lessons(tmp_path)


# ---- what is typed ---------------------------------------------------------------------------------------------------


def test_the_commands_of_a_class_run_as_printed(tmp_path):
    for line in commands("editions"):
        shell(line.replace("course", COURSE, 1), tmp_path)
    assert {path.name for path in (tmp_path / "handout").iterdir()} == {
        path.name for path in (tmp_path / "solutions").iterdir()
    }
    for student, source in (("ada", "solutions"), ("ben", "handout")):
        (tmp_path / "submissions" / student).mkdir(parents=True)
        shutil.copy(tmp_path / source / "03_the_trace.ipynb", tmp_path / "submissions" / student)
    (line,) = commands("grade")
    shell(line.replace("course", COURSE, 1), tmp_path)
    rows = (tmp_path / "scores.csv").read_text().splitlines()
    assert "`" + rows[0].replace(",", ", ") + "`" in PAGE
    assert rows[1:5] == ["ada,3,3.1,1,1,", "ada,3,3.2,2,2,", "ada,3,3.3,3,3,", "ada,3,3.4,2,2,"]
    assert all(row.endswith("not attempted") for row in rows[5:])


def test_the_cell_for_colab_installs_once_and_only_where_it_must(tmp_path, monkeypatch):
    import importlib.util

    (cell,) = re.findall(r"<!-- cell: colab -->\n```python\n(.*?)```", PAGE, re.S)
    ran = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(subprocess, "run", lambda words, check: ran.append(words))
    exec(cell, {})
    assert ran == []  # here the course is installed
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    exec(cell, {})
    assert ran[0] == ["git", "clone", "--depth", "1", "https://github.com/ORGANISATION/REPOSITORY", "course"]
    assert ran[1] == [sys.executable, "-m", "pip", "install", "--quiet", "-e", "course"]
    assert sys.path[0] == str(tmp_path / "course")
    (tmp_path / "course").mkdir()
    exec(cell, {})
    assert len(ran) == 3 and ran[2] == ran[1]


def copied_course(folder):
    """What a lecturer carries: the folder of the book, without what is built in it."""
    skip = shutil.ignore_patterns(".git", "_build", "__pycache__", ".venv", ".course", ".*_cache", "*.egg-info")
    return shutil.copytree(REPO, folder, ignore=skip)


def offline(folder):
    (folder / ".offline").mkdir()
    (folder / ".offline/sitecustomize.py").write_text(OFFLINE, encoding="utf-8")
    nowhere = "http://127.0.0.1:9"  # the port of nobody, for what does not listen to Python
    no_pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_INDEX_URL": nowhere, "PIP_EXTRA_INDEX_URL": ""}
    return {"PYTHONPATH": str(folder / ".offline"), "npm_config_registry": nowhere, **no_pip}


@pytest.mark.skipif(sys.platform == "win32", reason="the page's commands are for a POSIX shell")
def test_a_carried_copy_installs_and_runs_with_the_network_off(tmp_path):
    """The page's commands, but the packages that are here already are seen through a .pth file and not carried."""
    editables = pytest.importorskip(
        "editables", reason="editables, which an editable install needs, is missing: pip install '.[dev]'"
    )
    course, quick = copied_course(tmp_path / "course"), {"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    env = offline(tmp_path)
    shell(f'"{sys.executable}" -m pip wheel --wheel-dir lab/wheels .', course, **env, **quick)
    assert list((course / "lab/wheels").glob("course_lib-*.whl"))
    shell(commands("carry")[-1], course)
    make, install, doctor = commands("arrive")
    assert make == "python3 -m venv .venv"
    venv.create(course / ".venv", with_pip=True)
    own = shell(".venv/bin/python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))'", course).strip()
    with open(f"{own}/here.pth", "w") as file:
        file.writelines(f"{place}\n" for place in {sysconfig.get_path("purelib"), Path(editables.__file__).parents[1]})
    shell(install, course, **env, **quick)
    said = shell(doctor, course, **env, COLUMNS="300")
    assert "5,000 digits" in said and f"({course}/" in said.replace("\n", "")
    shell(".venv/bin/course run trace-mnist5k --seeds 1 --size ci", course, **env)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the page's commands are for a POSIX shell")
def test_the_whole_wheelhouse_installs_with_the_network_off(tmp_path):
    """Downloads every package once; then the room, in which nothing may be fetched; the README's line there, too."""
    course = copied_course(tmp_path / "course")
    wheel, built, folder = commands("carry")
    assert built == ".venv/bin/course book --out lab/book --no-open"  # its own tests build the book
    shell(wheel.replace(".venv/bin/python", f'"{sys.executable}"'), course)
    shell(folder, course)
    make, install, doctor = commands("arrive")
    env = offline(tmp_path)
    for line in (make, install):
        shell(line, course, **env)
    assert "5,000 digits" in shell(doctor, course, **env)
    assert re.match(r"4\.\d+", shell(".venv/bin/course lab --version", course, **env))
    (start,) = re.findall(r"<!-- command: start -->\n```bash\n(.*?)\n```", README, re.S)
    said = shell(start, course, **env | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(course / "lab/wheels")})
    assert "Done in" in said and list((course / ".course/start").rglob("01_annotators_disagree.html"))


def test_the_guide_names_only_commands_and_options_that_exist():
    from typer.main import get_command

    from course_lib.cli import app

    known = get_command(app).commands
    for line in (line for mark in ("editions", "grade", "carry", "arrive") for line in commands(mark)):
        found = re.search(r"(?:^|/)course (\w+)(.*)", line)
        if found:
            options = {o for p in known[found[1]].params for o in (*p.opts, *p.secondary_opts)}
            assert set(re.findall(r"--[\w-]+", found[2])) <= options
    assert edition.__doc__
