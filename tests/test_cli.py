"""The `course` command: what it writes, and what it says when something is wrong."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import webbrowser
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import nbformat
import psutil
import pytest
from conftest import REPO
from test_book import tiny
from typer.testing import CliRunner

from course_lib import bench, book, cli, doctor, experiments
from course_lib.cli import app


@pytest.fixture
def course(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, list(words))


def test_an_experiment_prints_its_table_and_writes_the_rows(course, tmp_path, monkeypatch):
    row = {"method": "trace", "setting": {"skill": 0.4}, "draw": 0, "seed": 0, "seconds": 1.0, "peak_mb": 1}
    rows = lambda **options: [{**row, "metrics": {"accuracy": 0.9, "cm_error": 0.01}}]  # noqa: E731
    monkeypatch.setitem(__import__("course_lib.experiments").experiments.EXPERIMENTS, "trace-mnist5k", rows)
    done = course("run", "trace-mnist5k", "--seeds", "1", "--size", "ci")
    assert done.exit_code == 0 and "0.900" in done.output
    written = json.loads((tmp_path / ".course/results/trace-mnist5k.ci.json").read_text())
    assert written["rows"][0]["metrics"]["accuracy"] == 0.9 and written["size"] == "ci"


def test_only_a_run_to_be_committed_is_written_among_the_books_results(course, tmp_path, monkeypatch):
    row = {"method": "trace", "setting": {}, "draw": 0, "seed": 0, "seconds": 1.0, "peak_mb": 1, "metrics": {}}
    seeds = lambda *, seeds, **how: [row | {"draw": k} for k in range(seeds)]  # noqa: E731
    monkeypatch.setitem(experiments.EXPERIMENTS, "trace-mnist5k", seeds)
    monkeypatch.setattr(book, "ROOT", tmp_path / "course")
    real = REPO / "book/results/trace-mnist5k.lesson.json"
    before = real.read_bytes()
    there = tmp_path / "course/book/results/trace-mnist5k.lesson.json"
    words = ("run", "trace-mnist5k", "--seeds", "10", "--size", "lesson")
    assert course(*words).exit_code == 0 and not there.exists()
    (tmp_path / ".course/results/trace-mnist5k.lesson.json").unlink()
    assert course(*words, "--commit").exit_code == 0
    assert [row["draw"] for row in json.loads(there.read_text())["rows"]] == list(range(10))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [there] and real.read_bytes() == before


def test_a_scheduler_and_the_folder_of_finished_runs_reach_the_experiment(course, tmp_path, monkeypatch):
    asked = {}
    result = {"experiment": "trace-mnist5k", "size": "ci", "device": "cpu", "seconds": 1.0}
    row = {"method": "trace", "setting": {}, "draw": 0, "seed": 0, "seconds": 1.0, "peak_mb": 1, "metrics": {}}
    experiments = __import__("course_lib.experiments").experiments
    monkeypatch.setattr(experiments, "run", lambda name, **how: asked.update(how) or {**result, "rows": [row]})
    kept = experiments.partial_path(tmp_path / "mine", "trace-mnist5k", "ci")
    kept.parent.mkdir()
    kept.write_text("finished runs")
    assert course("run", "trace-mnist5k", "--scheduler", "tcp://h:8786", "--out", "mine").exit_code == 0
    assert asked["scheduler"] == "tcp://h:8786" and str(asked["keep"]) == "mine"
    assert [path.name for path in kept.parent.iterdir()] == ["trace-mnist5k.ci.json"]  # whole: nothing to go on with


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run", "no-such"), "there are trace-mnist5k"),
        (("run", "trace-mnist5k", "--size", "huge"), "huge"),
        (("run", "trace-mnist5k", "--seeds", "0"), "seeds"),
        (("run", "trace-mnist5k", "--device", "abacus"), "abacus"),
        (
            ("run", "trace-mnist5k", "--size", "ci", "--scheduler", "next-door"),
            "no Dask scheduler answers at 'next-door'",
        ),
    ],
)
def test_a_wrong_word_is_one_clear_line_and_nothing_is_written(course, tmp_path, words, says):
    done = course(*words)
    assert done.exit_code != 0 and says in re.sub(r"\s+", " ", done.output)
    assert "Traceback" not in done.output and not list(tmp_path.iterdir())


def test_doctor_names_python_torch_and_data(course):
    done = course("doctor")
    assert done.exit_code == 0
    assert all(word in done.output for word in ("Python", "torch", "5,000 digits", "chapters: "))


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [("COURSE_DATA", "nowhere/at/all", "make it, or unset"), ("COURSE_DEVICE", "abacus", "unset COURSE_DEVICE")],
)
def test_doctor_says_how_to_mend_a_setting(course, monkeypatch, variable, value, says):
    monkeypatch.setenv(variable, value)
    done = course("doctor")
    assert done.exit_code == 1 and f"to mend it: {says}" in done.output and value in done.output
    assert "5,000 digits" in done.output


def test_doctor_names_a_package_out_of_range_a_strange_kernel_a_full_disk_and_lost_data(monkeypatch):
    def lost():
        raise FileNotFoundError("mnist5k.npz is missing")

    monkeypatch.setattr(doctor.metadata, "requires", lambda name: ["torch>=99", "no-such-package-here", "numpy>=1"])
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=2**29))
    monkeypatch.setattr(doctor.data, "mnist5k", lost)
    monkeypatch.setattr(
        "jupyter_client.kernelspec.KernelSpecManager.get_kernel_spec",
        lambda self, name: SimpleNamespace(argv=["/elsewhere/bin/python"]),
    )
    found = {one.what: one for one in doctor.findings()}
    assert "wanted torch>=99 (here " in found["versions"].there and "no-such-package-here" in found["versions"].there
    assert "numpy" not in found["versions"].there and "pip install -e ." in found["versions"].mend
    assert "ipykernel install" in found["kernel"].mend and "free some" in found["disk"].mend
    assert "git checkout -- data" in found["data"].mend and not found["chapters"].mend


def test_doctor_survives_a_look_that_raises(monkeypatch):
    monkeypatch.setattr(doctor, "disk", lambda: 1 / 0)
    (found,) = [one for one in doctor.findings() if one.what == "disk"]
    assert "ZeroDivisionError" in found.there and found.mend


def test_doctor_without_chapters_says_to_clone(course, monkeypatch):
    def none(root=None):
        raise book.BookError("no chapter lies here; clone the repository")

    monkeypatch.setattr(book, "chapters", none)
    done = course("doctor")
    assert done.exit_code == 1 and "clone" in done.output


def test_an_edition_goes_into_a_new_folder_only(course, tmp_path):
    assert course("edition", "student", "out").exit_code == 0
    assert len(list((tmp_path / "out").rglob("*.ipynb"))) == len(book.chapters())
    again = course("edition", "student", "out")
    assert again.exit_code == 1 and "Traceback" not in again.output


def test_a_folder_that_course_did_not_make_is_never_removed(course, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years of work")
    done = course("book", "--out", "mine", "--no-open")
    assert done.exit_code == 1 and (tmp_path / "mine/thesis.txt").exists()


@pytest.mark.parametrize(
    "words",
    ["start", "run trace-mnist5k", "book", "bench", "grade .", "report t.csv", "edition student .course/new"],
)
@pytest.mark.parametrize("why", ["is a file", "may not be written to"])
def test_a_folder_that_cannot_be_written_stops_each_command_before_its_work(course, tmp_path, monkeypatch, words, why):
    for module, work in ((experiments, "run"), (book, "scratch"), (bench, "all_benches"), (doctor, "findings")):
        monkeypatch.setattr(module, work, lambda *a, **k: pytest.fail("it began to work"))
    (tmp_path / "t.csv").write_text("item,annotator,label\na,r,0\na,s,1\n")
    if why == "is a file":
        (tmp_path / ".course").touch()
    else:  # an administrator, as in many containers, could write anywhere
        (tmp_path / ".course").mkdir()
        monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    before = sorted(tmp_path.rglob("*"))
    done = course(*words.split())
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit), done.output
    told = " ".join(done.output.split())
    assert told.startswith("course: cannot write to .course") and why in told and "--out" in told
    assert sorted(tmp_path.rglob("*")) == before


def test_the_book_stops_with_the_message_of_the_chapter_that_failed(course, monkeypatch):
    def fails_on_the_third(path, *args, **options):
        if path == book.chapters(path.parents[1])[2]:
            time.sleep(0.5)
            raise book.BookError(f"{path.stem}, cell 4 (f()): ValueError: planted")
        return 12.3

    monkeypatch.setattr(book, "vendor", lambda root: True)
    monkeypatch.setattr(book, "execute", fails_on_the_third)
    done = course("book", "--no-open")
    assert done.exit_code == 1 and "02_labels_only, cell 4 (f()): ValueError: planted" in done.output
    assert "00_start_here: 12 s" in done.output and "Traceback" not in done.output


def test_start_runs_the_first_experiment_and_chapter_1_and_names_what_is_next(course, tmp_path, monkeypatch):
    """All of it, but one seed at `ci`, the first cells of the chapter (it runs whole elsewhere), and no scripts."""

    def first_cells(dest, true=book.scratch):
        path = book.chapter(1, true(dest))
        notebook = nbformat.read(path, 4)
        notebook.cells = notebook.cells[:20]
        nbformat.write(notebook, path)
        return dest

    small = lambda name, **how: experiments.run(name, **how | {"seeds": 1, "size": "ci", "progress": False})  # noqa: E731
    monkeypatch.setattr(cli, "_run", small)
    monkeypatch.setattr(book, "scratch", first_cells)
    monkeypatch.setattr(book, "vendor", lambda root: False)
    done = course("start")
    assert done.exit_code == 0, done.output
    said = done.output.replace("\n", "")
    assert all(word in said for word in ("5,000 digits", "trace-mnist5k, ci size", "oracle", "vanilla"))
    page = tmp_path / ".course/start/book/_build/html/notebooks/01_annotators_disagree.html"
    assert str(page) in said and "cell_output" in page.read_text(encoding="utf-8")
    assert re.search(r"Done in \d+\.\d minutes; .* Next:.*course lab .*course book ", said)
    assert [path.name for path in tmp_path.iterdir()] == [".course"]


def test_the_lab_serves_chapter_1_and_ends_when_it_is_told_to(tmp_path, monkeypatch):
    for name in ("CONFIG", "RUNTIME", "DATA"):
        monkeypatch.setenv(f"JUPYTER_{name}_DIR", str(tmp_path / name))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        here = f"http://127.0.0.1:{free.getsockname()[1]}"
    words = [sys.executable, "-c", "from course_lib.cli import app; app()", "lab", "--no-browser", "--allow-root"]
    words += ["--port", here.split(":")[-1], "--ServerApp.port_retries=0", "--IdentityProvider.token=word"]

    def ask(path, method="GET"):
        request = urllib.request.Request(here + path, method=method, headers={"Authorization": "token word"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.geturl(), answer.read()

    began = time.monotonic()
    with open(tmp_path / "log", "w") as log, subprocess.Popen(words, cwd=tmp_path, stdout=log, stderr=log) as lab:
        try:
            while True:
                try:
                    url, _ = ask("/")
                    break
                except OSError:
                    late = lab.poll() is not None or time.monotonic() - began > 60
                    assert not late, (tmp_path / "log").read_text()
                    time.sleep(0.2)
            assert url == f"{here}/lab/tree/notebooks/01_annotators_disagree.ipynb"
            chapter = json.loads(ask("/api/contents/notebooks/01_annotators_disagree.ipynb")[1])
            assert "Annotators disagree" in chapter["content"]["cells"][0]["source"]
            assert "python3" in json.loads(ask("/api/kernelspecs")[1])["kernelspecs"]
            ask("/api/shutdown", "POST")
            assert lab.wait(timeout=60) == 0
        finally:
            for left in psutil.Process(lab.pid).children(recursive=True) if lab.poll() is None else ():
                left.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="an interrupt is sent another way there")
def test_an_interrupt_leaves_the_lab_time_to_ask_and_to_close(tmp_path):
    (tmp_path / "jupyterlab").mkdir()  # in the place of JupyterLab, which takes a while to shut down
    (tmp_path / "jupyterlab/__init__.py").touch()
    (tmp_path / "jupyterlab/__main__.py").write_text(
        "import pathlib, signal, sys, time\n"
        "def asked(*_):\n"
        "    time.sleep(1.5)\n"
        "    pathlib.Path('closed').touch()\n"
        "    sys.exit(5)\n"
        "signal.signal(signal.SIGINT, asked)\n"
        "pathlib.Path('up').touch()\n"
        "time.sleep(60)\n",
        encoding="utf-8",
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, "-c", "from course_lib.cli import app; app()", "lab"]
    with subprocess.Popen(words, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, start_new_session=True) as lab:
        began = time.monotonic()
        while not (tmp_path / "up").exists() and time.monotonic() - began < 60:
            time.sleep(0.1)
        os.killpg(lab.pid, signal.SIGINT)  # as a terminal does
        assert lab.wait(timeout=60) == 5
    assert (tmp_path / "closed").exists()


def test_the_next_command_is_printed_as_the_reader_can_type_it(monkeypatch, tmp_path):
    own = Path(sys.executable).with_name("course.exe" if sys.platform == "win32" else "course")
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setattr(cli.shutil, "which", lambda name: str(own))
    assert cli._me("lab") == "course lab"
    monkeypatch.setattr(cli.shutil, "which", lambda name: None)
    assert cli._me("lab").endswith("course.exe lab" if sys.platform == "win32" else "/course lab")
    monkeypatch.setenv("UV", "uv")
    assert cli._me("lab") == "uv run course lab"


def test_the_book_is_executed_built_and_opened(course, tmp_path, monkeypatch):
    """All of it for a book of one page and one small chapter; tests/test_book.py builds the whole one."""
    monkeypatch.setattr(book, "scratch", tiny)
    monkeypatch.setattr(book, "vendor", lambda root: False)
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    done = course("book", "--size", "ci", "--out", "lab/book", "--no-open")
    (named,) = re.findall(r"`(lab/book/\S+)`", (REPO / "book/instructor.md").read_text(encoding="utf-8"))
    page = tmp_path / named
    assert done.exit_code == 0 and str(page) in done.output.replace("\n", "") and not opened
    assert "fine" in (page.parent / "notebooks/01_tiny.html").read_text(encoding="utf-8")
    monkeypatch.setattr(book, "build", lambda root: root / "book/_build/html/index.html")
    assert course("book", "--size", "ci").exit_code == 0
    assert opened == [(tmp_path / ".course/book/book/_build/html/index.html").as_uri()]


def test_the_bench_prints_and_writes_a_row_for_each_of_its_pairs(course, tmp_path, monkeypatch):
    """All of it on small inputs: whether something is fast, only a run by hand tells."""
    for module, name, less in (
        (bench, "volume", {"N": 4, "side": 24}),
        (bench, "_against_crowdkit", {"labels": 500}),
        (bench, "crowd_report", {"labels": 500, "R": 10}),
        (bench, "train", {"epochs": 1}),
        (bench, "rows_of", {"B": 4}),
        (bench, "all_benches", {"repeats": 1}),
        (bench.costs, "loss_alone", {"B": 1, "R": 2, "L": 3, "side": 6}),
    ):
        monkeypatch.setattr(module, name, partial(getattr(module, name), **less))
    monkeypatch.setattr(bench.costs, "in_own_process", lambda set_up, how: (set_up(how)(), 2.0))
    done = course("bench")
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / ".course/bench/bench.json").read_text())["rows"]
    assert len(rows) == 9 and all(row["ratio"] > 0 for row in rows if "skipped" not in row)
    assert "bench.json" in done.output and [path.name for path in tmp_path.iterdir()] == [".course"]


def test_bench_rows_are_the_median_of_the_pairs_ratios(monkeypatch):
    """A machine that is slow for a while is slow for both of a pair."""
    times = iter([2.0, 1.0, 20.0, 10.0, 3.0, 1.0])
    monkeypatch.setattr(bench, "timed", lambda call: next(times))
    row = bench.against("twice", lambda: None, "once", lambda: None, 3)
    assert row == {"what": "twice", "seconds": 3.0, "against": "once", "against_seconds": 1.0, "ratio": 2.0}


def test_the_bench_times_a_report_on_a_small_crowd():
    row = bench.crowd_report(labels=500, R=10)
    assert row["what"] == "report on 500 labels of 10 people" and row["seconds"] > row["against_seconds"] > 0
