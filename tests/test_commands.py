"""Every command that the README, the front page and the instructor's guide name is run by a test; TESTED says by which.

The commands of the pages that no other file tests are tried here.
"""

import ast
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from itertools import pairwise
from pathlib import Path

import jupytext
import pytest
from conftest import REPO
from test_instructor import copied_course
from typer.main import get_command

from course_lib import book
from course_lib.cli import app

NAMES = ("README.md", "book/intro.md", "book/instructor.md")
PAGES = {name: (REPO / name).read_text(encoding="utf-8") for name in NAMES}
TESTED = {
    "course start": "test_cli::test_start_runs_the_first_experiment_and_chapter_1_and_names_what_is_next",
    "course lab": "test_cli::test_the_lab_serves_chapter_1_and_ends_when_it_is_told_to",
    "course book": "test_cli::test_the_book_is_executed_built_and_opened",
    "course book --out": "test_cli::test_the_book_is_executed_built_and_opened",
    "course book --no-open": "test_cli::test_the_book_is_executed_built_and_opened",
    "course doctor": "test_instructor::test_a_carried_copy_installs_and_runs_with_the_network_off",
    "course report": "test_commands::test_a_report_on_the_readmes_table",
    "course report --out": "test_commands::test_a_report_on_the_readmes_table",
    "course run": "test_instructor::test_a_carried_copy_installs_and_runs_with_the_network_off",
    "course run --seeds": "test_instructor::test_a_carried_copy_installs_and_runs_with_the_network_off",
    "course run --commit": "test_cli::test_only_a_run_to_be_committed_is_written_among_the_books_results",
    "course run --scheduler": "test_cluster::test_a_worker_that_is_killed_midway_costs_no_row_and_changes_none",
    "course bench": "test_cli::test_the_bench_prints_and_writes_a_row_for_each_of_its_pairs",
    "course edition student": "test_instructor::test_the_commands_of_a_class_run_as_printed",
    "course edition instructor": "test_instructor::test_the_commands_of_a_class_run_as_printed",
    "course grade": "test_instructor::test_the_commands_of_a_class_run_as_printed",
    "course grade --out": "test_instructor::test_the_commands_of_a_class_run_as_printed",
    "course grade --chapter": "test_instructor::test_the_commands_of_a_class_run_as_printed",
    "course grade --seed": "test_instructor::test_the_commands_of_a_class_run_as_printed",
    "course grade --seconds": "test_instructor::test_the_commands_of_a_class_run_as_printed",
    "COURSE_DATA": "test_data::test_npz_files_named_by_course_data_are_joined_in_order",
    "COURSE_DEVICE": "test_training::test_the_device_comes_from_the_argument_or_the_environment",
    "COURSE_SIZE": "test_training::test_the_size_comes_from_the_environment",
    "jupytext": "test_commands::test_a_notebook_is_made_from_its_twin_by_the_readmes_line",
    "jupytext --to": "test_commands::test_a_notebook_is_made_from_its_twin_by_the_readmes_line",
    "jupytext --update": "test_commands::test_a_notebook_is_made_from_its_twin_by_the_readmes_line",
    "jupytext --output": "test_commands::test_a_notebook_is_made_from_its_twin_by_the_readmes_line",
    "pytest": "test_commands::test_ci_takes_its_command_from_the_readme",
    "pytest -m gpu": "test_commands::test_on_a_card_every_chapter_is_among_the_tests",
    "uv run": "test_commands::test_uv_does_the_same_as_the_first_command",
    # The lines that install, on a machine with nothing else: .ci/run does the README's, the test named the guide's.
    "mkdir": "test_instructor::test_a_carried_copy_installs_and_runs_with_the_network_off",
    "mkdir -p": "test_instructor::test_a_carried_copy_installs_and_runs_with_the_network_off",
    "venv": "test_instructor::test_the_whole_wheelhouse_installs_with_the_network_off",
    "pip install": "test_instructor::test_the_whole_wheelhouse_installs_with_the_network_off",
    "pip install -e": "test_instructor::test_the_whole_wheelhouse_installs_with_the_network_off",
    "pip install --no-index": "test_instructor::test_the_whole_wheelhouse_installs_with_the_network_off",
    "pip install --find-links": "test_instructor::test_the_whole_wheelhouse_installs_with_the_network_off",
    "pip wheel": "test_instructor::test_the_whole_wheelhouse_installs_with_the_network_off",
    "pip wheel --wheel-dir": "test_instructor::test_the_whole_wheelhouse_installs_with_the_network_off",
    "extra dev": "test_commands::test_an_extra_of_the_pages_is_one_of_the_package",
    "extra cluster": "test_commands::test_an_extra_of_the_pages_is_one_of_the_package",
}
PROGRAMMES = ("course", "jupytext", "pip", "pytest", "python", "uv")


# ---- what is a command -----------------------------------------------------------------------------------------------


def code_of(page):
    """(is a line of a shell's block, text) of all that a page prints as code, but for Python and directives."""
    blocks = re.findall(r"^```(\S*)\n(.*?)^```", page, re.M | re.S)
    prose = re.sub(r"^```.*?^```", "", page, flags=re.M | re.S)
    lines = [(True, line) for kind, text in blocks if kind == "bash" for line in text.strip().splitlines()]
    spans = [span for role, span in re.findall(r"(\{[\w:]+\})?`([^`]+)`", prose) if not role]
    return lines + [(False, re.sub(r"\s+", " ", span)) for span in spans]


def keys_of(line, typed):
    """The commands of a line, each as `programme word` and `programme word --option`; in prose only those we know."""
    for part in re.split(r"&&|;", line.replace("\\", "/")):
        words = [word.strip("\"'") for word in part.split()]
        while words and re.match(r"[A-Z_]+=", words[0]):
            yield words.pop(0).split("=")[0]
        if words:
            yield from keys_of_words(words, typed)


def keys_of_words(words, typed):
    programme, rest = re.sub(r"^(python3?|py)$", "python", words[0].split("/")[-1]), words[1:]
    if not typed and (programme not in PROGRAMMES or not rest):
        if re.fullmatch("COURSE_[A-Z]+|--.+", programme):
            yield programme
        return
    if programme == "python" and rest[0] == "-m":
        programme, rest = rest[1], rest[2:]
    if programme == "uv":
        yield f"uv {rest[0]}"
        yield from keys_of_words(rest[1:], True)
        return
    if programme in ("course", "pip"):
        deep = 2 if rest[0] == "edition" else 1
        programme, rest = " ".join([programme, *rest[:deep]]), rest[deep:]
    yield programme
    for word, following in pairwise([*rest, ""]):
        if word.startswith("-"):
            yield f"{programme} {word} {following}" if word == "-m" else f"{programme} {word}"
        elif extra := re.fullmatch(r"\.\[(\w+)\]", word):
            yield f"extra {extra[1]}"


def commands(page):
    return {key for typed, text in code_of(page) for key in keys_of(text, typed)}


FOUND = set().union(*map(commands, PAGES.values()))


def test_every_command_of_the_pages_has_its_test():
    alone = {key for key in FOUND if key.startswith("--")}  # an option that the prose comes back to
    with_one = {key for key in TESTED if key.split()[-1] in alone}
    assert FOUND - alone - set(TESTED) == set(), "name in TESTED the test that runs it"
    assert alone == {key.split()[-1] for key in with_one}, "name in TESTED the test that runs it"
    assert set(TESTED) - FOUND - with_one == set(), "no page names it any more"


@pytest.mark.parametrize("test", sorted(set(TESTED.values())))
def test_each_test_that_is_named_is_there(test):
    file, name = test.split("::")
    tree = ast.parse((REPO / f"tests/{file}.py").read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_word_and_option_of_course_on_the_pages_exists():
    for key in FOUND:
        known = get_command(app)
        programme, *words = key.split()
        for word in words if programme == "course" else ():
            if word.startswith("-"):
                assert word in {o for p in known.params for o in (*p.opts, *p.secondary_opts)}, key
            else:
                assert word in known.commands, key
                known = known.commands[word]


def test_a_new_command_is_seen_wherever_it_stands_and_other_code_is_none():
    page = (
        "Type `course mend --hard` or `.venv\\Scripts\\python -m pytest -m slow`, `COURSE_MOOD=calm` and `--soft`, or\n"
        "`course edition\nstudent OUT`. Not `course`, `course_lib`, `{doc}`, `DATA --out`, {doc}`course x`.\n"
        '```python\ncourse = "course python"\n```\n'
        '```bash\nmkdir -p x && COURSE_DATA=x .venv/bin/course start\nmake all; pip install -e ".[all]"\n```\n'
    )
    assert commands(page) == {
        "course mend", "course mend --hard", "pytest -m slow", "COURSE_MOOD", "--soft", "course edition student",
        "pytest", "mkdir", "mkdir -p", "COURSE_DATA", "course start", "make", "pip install", "pip install -e",
        "extra all",
    }  # fmt: skip


# ---- tried here ------------------------------------------------------------------------------------------------------


def the_span(beginning):
    """The one span of the README that begins so."""
    (span,) = {text for _, text in code_of(PAGES["README.md"]) if text.startswith(beginning)}
    return span


def course(*words, cwd):
    command = [sys.executable, "-c", "from course_lib.cli import app; app()", *words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_a_report_on_the_readmes_table(tmp_path):
    """Three people, of whom two agree on every item: what they say is the fused truth."""
    truth = ["cat", "dog", "cat", "dog", "dog", "cat"]
    said = {"al": truth, "bo": truth, "cy": ["dog", *truth[1:]]}
    rows = [f"{n},{who},{labels[n]}" for n in range(len(truth)) for who, labels in said.items()]
    (tmp_path / "mine.csv").write_text("\n".join([the_span("item,"), *rows]) + "\n")
    words = the_span("course report DATA --out").replace("DATA", "mine.csv").replace("DIR", "told").split()
    assert "told/report.html" in course(*words[1:], cwd=tmp_path).replace("\n", "")
    with open(tmp_path / "told/fused.csv", newline="", encoding="utf-8") as file:
        assert [row["label"] for row in csv.DictReader(file)] == truth
    found = json.loads((tmp_path / "told/report.json").read_text(encoding="utf-8"))
    assert [one["name"] for one in found["annotators"]] == ["al", "bo", "cy"]


def test_a_notebook_is_made_from_its_twin_by_the_readmes_line(tmp_path):
    stem = "00_start_here"
    for name in ("pyproject.toml", f"notebooks/{stem}.ipynb", f"notebooks/src/{stem}.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, tmp_path / name)
    twin = tmp_path / f"notebooks/src/{stem}.py"
    before = jupytext.read(tmp_path / f"notebooks/{stem}.ipynb")
    twin.write_text(twin.read_text(encoding="utf-8") + "\n# %%\nprint('one cell more')\n", encoding="utf-8")
    words = the_span("jupytext ").replace("X", stem).split()
    assert words[0] == "jupytext"
    subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, check=True, capture_output=True)
    after = jupytext.read(tmp_path / f"notebooks/{stem}.ipynb")
    assert [c.id for c in after.cells[:-1]] == [c.id for c in before.cells]  # links to cells go on working
    assert after.cells[-1].source == "print('one cell more')"


def test_on_a_card_every_chapter_is_among_the_tests():
    words = the_span("pytest -m gpu").split()
    command = [sys.executable, "-m", *words, "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, "tests/test_gpu_chapters.py"], cwd=REPO, capture_output=True, text=True)
    collected = re.findall(r"::test_the_chapter_trains_on_the_gpu\[(.+)\]", done.stdout)
    assert collected == [path.stem for path in book.chapters()], done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.skipif(not (shutil.which("bash") and shutil.which("awk")), reason="no bash or no awk on this machine")
def test_ci_takes_its_command_from_the_readme():
    """Continuous integration installs and tests by the README's own line; what it runs is what stands there."""
    script = (REPO / ".ci/run").read_text(encoding="utf-8")
    (look_up,) = re.findall(r"^command=\$\(awk .*?README\.md\)$", script, re.M | re.S)
    done = subprocess.run(["bash", "-c", f'{look_up}; printf %s "$command"'], cwd=REPO, capture_output=True, text=True)
    (line,) = re.findall(r"<!-- command: test -->\n```bash\n(.*?)\n```", PAGES["README.md"], re.S)
    assert done.stdout == line and re.search(r'^bash .*-c "\$command"', script, re.M)


def test_the_windows_lines_are_the_same_commands():
    windows = [re.sub(r"\s+", " ", span) for span in re.findall(r"`(py -m venv[^`]*)`", PAGES["README.md"])]
    for mark, line in zip(("start", "test"), windows, strict=True):
        (ours,) = re.findall(rf"<!-- command: {mark} -->\n```bash\n(.*?)\n```", PAGES["README.md"], re.S)
        posix = ours.replace("python3 -m venv", "py -m venv").replace(" &&", ";").replace("/bin/", "/Scripts/")
        assert line == posix.replace(".venv/Scripts/", ".venv\\Scripts\\")


def test_uv_would_find_the_command():
    """Where uv is not: `uv run course` installs the project and calls its script of that name."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    script = metadata.EntryPoint("course", project["scripts"]["course"], "console_scripts")
    assert script.load() is app


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("uv"), reason="uv is not on this machine")
def test_uv_does_the_same_as_the_first_command(tmp_path):
    """By uv's own settings, and the constraints that pip would keep."""
    copy = copied_course(tmp_path / "course")
    if path := os.environ.get("PIP_CONSTRAINT"):
        lines = [line for line in Path(path).read_text(encoding="utf-8").split("\n") if line and line[0] != "#"]
        with open(copy / "pyproject.toml", "a", encoding="utf-8") as file:
            file.write(f"\n[tool.uv]\nconstraint-dependencies = {json.dumps(lines)}\n")
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(the_span("uv run").split(), cwd=copy, capture_output=True, text=True, env=clean)
    assert done.returncode == 0 and "Done in" in done.stdout, done.stderr[-2000:]
    assert list((copy / ".course/start").rglob("01_annotators_disagree.html"))


def test_an_extra_of_the_pages_is_one_of_the_package():
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {key.split()[1] for key in FOUND if key.startswith("extra ")}
    assert named <= set(project["optional-dependencies"])
    assert any("distributed" in one for one in project["optional-dependencies"]["cluster"])
