"""The README's example runs as printed, and its commands are the ones that are tested."""

import json
import re
import runpy
import tomllib
from pathlib import Path

from conftest import REPO

README = (REPO / "README.md").read_text(encoding="utf-8")


def test_the_example_runs_as_printed_and_learns(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", README, re.S)
    space = {}
    exec(example, space)
    assert len(example.strip().splitlines()) <= 20
    accuracy = float(re.search(r"^(0\.\d+|1\.0) tensor", capsys.readouterr().out, re.M)[1])
    assert accuracy > 0.85
    for a, b in zip(space["model"].parameters(), space["again"].parameters(), strict=True):
        assert (a == b).all()


def test_each_command_stands_once_on_one_line_after_its_mark():
    for mark, end in (("start", ".venv/bin/course start"), ("test", ".venv/bin/python -m pytest")):
        (block,) = re.findall(rf"<!-- command: {mark} -->\n```bash\n(.*?)```", README, re.S)
        assert block.count("\n") == 1 and block.strip().endswith(end)


def test_numbers_have_been_filled_in_and_pictures_are_there():
    assert "_NUMBERS" not in README
    assert all((REPO / path).exists() for path in re.findall(r"\]\(([^)]+\.png)\)", README))


def test_the_teaser_is_drawn_by_the_script_that_the_page_names_from_the_results_it_names():
    script, results = re.search(r"\*Drawn by `(.+?)` from `(.+?)`", README).groups()
    assert (REPO / results).exists() and Path(results).name in (REPO / script).read_text(encoding="utf-8")
    (axes,) = runpy.run_path(str(REPO / script))["teaser"]().axes
    rows = json.loads((REPO / results).read_text(encoding="utf-8"))["rows"]
    trace = [r["metrics"]["accuracy"] for r in rows if r["method"] == "trace" and r["setting"]["skill"] == 0.45]
    assert [word.get_text() for word in axes.get_yticklabels()] == ["oracle", "trace", "vanilla"]
    assert axes.texts[1].get_text() == f"{sum(trace) / len(trace):.3f}" and "![Accuracy of three ways" in README


def test_every_top_level_folder_is_explained():
    folders = {p.name for p in REPO.iterdir() if p.is_dir() and not p.name.startswith((".", "_"))}
    folders -= {p for p in folders if p.endswith(".egg-info")}
    assert folders == {"notebooks", "course_lib", "book", "data", "tests"}
    assert all(f"`{folder}/`" in README for folder in folders)


def test_the_lowest_python_is_the_same_everywhere():
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    assert project["requires-python"].removeprefix(">=") in README


def test_what_users_ran_into_has_its_remedy():
    for trouble, remedy in (
        ("Kernel without the package", "first cell of each chapter prints the line to run"),
        ("model not found", "`jupyterlab_widgets` and `ipywidgets` must sit in the environment that runs JupyterLab"),
        ("OpenMP", "a fresh environment with pip alone"),
        ("260 characters", "clone into a short folder"),
        ("CPU build", ".ci/run"),
    ):
        text = " ".join(README.split())
        assert trouble in text and remedy in text, trouble


def test_nothing_tells_jupytext_to_let_the_newer_file_win():
    texts = [README, *((REPO / folder).glob("*.md") for folder in ("book", "data"))]
    texts = [t if isinstance(t, str) else "".join(p.read_text(encoding="utf-8") for p in t) for t in texts]
    assert "jupytext --to notebook --update" in README and not any("--sync" in text for text in texts)
