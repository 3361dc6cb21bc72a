"""The `course` command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .edition import writable

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Learning When Experts Disagree: its commands.")
edition_app = typer.Typer(no_args_is_help=True, help="Editions of the chapters for a class.")
app.add_typer(edition_app, name="edition")
console = Console()
HOME = Path(".course")
"""Everything that commands write by default lies in this folder of the working directory."""

Out = Annotated[Path, typer.Option(help="Folder for the result.", callback=writable)]
Size = Annotated[str | None, typer.Option(help="ci, lesson or paper; default $COURSE_SIZE, else lesson.")]
Seeds = Annotated[int, typer.Option(min=1, help="How many draws of annotators, labels, weights and order.")]


@app.command()
def start() -> None:
    """Checks the machine, runs the first experiment, executes chapter 1, and says what to do next."""
    from . import book

    began, root = time.perf_counter(), _fresh(HOME / "start")
    doctor()
    console.print(
        "\n[bold]The first experiment[/]: five annotators, each right 45 % (then 35 %) of the time, one label an image."
    )
    _show(_run("trace-mnist5k", seeds=3, size="lesson"))
    console.print("\n[bold]Chapter 1[/], executed at `ci` size:")
    try:
        book.vendor(book.scratch(root))
        chapter = book.chapter(1, root)
        book.execute(chapter, "ci")
        page = book.page(chapter)
    except book.BookError as error:
        raise _stop(error) from None
    console.print(f"{page.resolve()}", soft_wrap=True)
    minutes = (time.perf_counter() - began) / 60
    whole = sum(one["cpu"]["seconds"] for one in book.ledger().values() if one["cpu"]) / 60
    console.print(
        f"\nDone in {minutes:.1f} minutes; from here on nothing needs a network. Next:\n"
        f"  {_me('lab')}    opens chapter 1 in JupyterLab\n"
        f"  {_me('book')}   executes all chapters at `lesson` size and builds the book "
        f"({whole:.0f} minutes on one core, half of that on two)",
        soft_wrap=True,
    )


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(context: typer.Context) -> None:
    """Opens JupyterLab on chapter 1; further options go to JupyterLab (--no-browser, --port 8890, ...)."""
    from . import book

    try:
        first = book.chapter(1)
    except book.BookError as error:
        raise _stop(error) from None
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={book.ROOT}"]
    command += [f"--LabApp.default_url=/lab/tree/{first.relative_to(book.ROOT).as_posix()}", *context.args]
    with subprocess.Popen(command) as jupyter:
        while True:
            try:
                raise typer.Exit(jupyter.wait())
            except KeyboardInterrupt:  # it reached JupyterLab too, which asks whether to shut down, and needs time
                continue


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="The experiment; a wrong name lists them.")],
    seeds: Seeds = 5,
    size: Size = None,
    device: Annotated[
        str | None, typer.Option(help="auto, cpu, cuda or mps; default $COURSE_DEVICE, else auto.")
    ] = None,
    out: Out = HOME / "results",
    commit: Annotated[
        bool, typer.Option("--commit", help="Write to book/results, where only deliberate runs live.")
    ] = False,
    scheduler: Annotated[
        str | None,
        typer.Option(help="Address of a Dask cluster to spread the runs over, or `local`."),
    ] = None,
) -> None:
    """Runs an experiment, prints its table and writes NAME.SIZE.json; interrupted, the same call again goes on."""
    from . import book, experiments

    result = _run(name, seeds=seeds, size=size, device=device, scheduler=scheduler, keep=out)
    _show(result)
    path = experiments.write(result, book.ROOT / "book/results" if commit else out, keep=out)
    console.print(f"{path}", soft_wrap=True)


@app.command("book")
def build_book(
    size: Size = None,
    out: Out = HOME / "book",
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open the first page in a browser.")] = True,
) -> None:
    """Executes every chapter and builds the book; a cell that raises or a missing page is an error."""
    from tqdm.auto import tqdm

    from . import book
    from .training import size as current_size

    began = time.perf_counter()
    root = _fresh(out)
    try:
        if not book.vendor(book.scratch(root)):
            console.print(
                "npm is not here: widgets will ask the network for their scripts, the pictures beside them will not."
            )
        for chapter, seconds in book.execute_all(book.chapters(root), current_size(size)):
            tqdm.write(f"{chapter.stem}: {seconds:.0f} s of one core")  # between the bars of those that still run
        page = book.build(root)
    except book.BookError as error:
        raise _stop(error) from None
    console.print(f"{page.resolve()} ({(time.perf_counter() - began) / 60:.1f} minutes)", soft_wrap=True)
    if show:
        webbrowser.open(page.resolve().as_uri())


@app.command()
def bench(out: Out = HOME / "bench") -> None:
    """Times what must stay fast against what it replaces, as ratios within one run; writes bench.json."""
    from . import bench as benches

    result = benches.all_benches()
    table = Table("what", "seconds", "against", "seconds", "ratio", "memory ratio", "answers differ by")
    for row in result["rows"]:
        keys = ("seconds", "against_seconds", "ratio", "mb_ratio")
        numbers = [f"{row[key]:.3f}" if key in row else "-" for key in keys]
        note = row.get("skipped") or (f"{row['difference']:.0e}" if "difference" in row else "-")
        table.add_row(row["what"], numbers[0], row["against"], *numbers[1:], note)
    console.print(table)
    out.mkdir(parents=True, exist_ok=True)
    (out / "bench.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    console.print(f"{out / 'bench.json'}")


@app.command()
def doctor() -> None:
    """Says what this machine has, versions, kernel, device, disk, data, and how to mend what is wrong."""
    from . import doctor as looks

    found = looks.findings()
    for one in found:
        console.print(one.there, soft_wrap=True, markup=False)
    broken = [f"{one.what}: {one.there}; to mend it: {one.mend}" for one in found if one.mend]
    if broken:
        raise _stop("\n        ".join(broken))


@app.command("report")
def make_report(
    data: Annotated[Path, typer.Argument(help="A CSV file, or a folder with a folder of masks for each annotator.")],
    out: Out = HOME / "report",
    classes: Annotated[str, typer.Option(help="All classes in order, with commas between; else those said.")] = "",
    missing: Annotated[list[str] | None, typer.Option(help="A value that means no label; may be repeated.")] = None,
    encoding: Annotated[str, typer.Option(help="Of a CSV file.")] = "utf-8-sig",
    images: Annotated[Path | None, typer.Option(help="Folder with a picture of each item, called like it.")] = None,
    item: Annotated[str | None, typer.Option(help="The column of the items in a CSV file.")] = None,
    annotator: Annotated[str | None, typer.Option(help="The column of the annotators.")] = None,
    label: Annotated[str | None, typer.Option(help="The column of the labels.")] = None,
    no_networks: Annotated[
        bool, typer.Option("--no-networks", help="Train none, though there are pictures: a minute less.")
    ] = False,
) -> None:
    """Tells of your own annotators: agreement, skills, matrices, the model that fits, the fused truth and doubts."""
    from . import report

    names = [name.strip() for name in classes.split(",") if name.strip()]
    options = {"images": images, "item": item, "annotator": annotator, "label": label, "encoding": encoding}
    try:
        page = report.report(data, out, networks=not no_networks, classes=names, missing=missing or [], **options)
    except (ValueError, OSError, ImportError) as error:
        raise _stop(error) from None
    for line in json.loads(page.with_name("report.json").read_text(encoding="utf-8"))["next"]:
        console.print(f"- {line}", markup=False)
    console.print(f"{page.resolve()}", soft_wrap=True, markup=False)


@edition_app.command()
def student(out: Annotated[Path, typer.Argument(help="A new folder.", callback=writable)]) -> None:
    """The chapters without their solutions."""
    _edition("student", out)


@edition_app.command()
def instructor(out: Annotated[Path, typer.Argument(help="A new folder.", callback=writable)]) -> None:
    """The chapters with every solution in the place of its stub."""
    _edition("instructor", out)


@app.command()
def grade(
    folder: Annotated[Path, typer.Argument(help="Submissions: STUDENT/NN_name.ipynb, or STUDENT.ipynb.")],
    out: Annotated[Path, typer.Option(help="The score file, CSV.", callback=writable)] = HOME / "scores.csv",
    chapter: Annotated[list[int] | None, typer.Option(help="Only this chapter; may be given again.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Time limit of each exercise.")] = 60.0,
    seed: Annotated[str, typer.Option(help="Any word of yours: it draws each student's numbers.")] = "",
) -> None:
    """Grades a folder of submissions into a CSV: student, chapter, exercise, points, of, message."""
    from . import grading

    try:
        rows = grading.grade(folder, only=chapter, seconds=seconds, seed=seed)
        path = grading.write(rows, out)
    except (RuntimeError, OSError) as error:
        raise _stop(error) from None
    table = Table("student", "points", "of")
    for student in dict.fromkeys(row.student for row in rows):
        own = [row for row in rows if row.student == student]
        table.add_row(escape(student), f"{sum(row.points for row in own)}", f"{sum(row.of for row in own)}")
    console.print(table)
    console.print(f"{path}", soft_wrap=True, markup=False)


def _edition(kind: str, out: Path) -> None:
    from . import edition

    try:
        written = getattr(edition, kind)(out)
    except RuntimeError as error:
        raise _stop(error) from None
    console.print(f"{len(written)} chapters in {out}")


def _run(name: str, **options: object) -> dict:
    from . import experiments

    try:
        return experiments.run(name, **options)
    except (ValueError, OSError, RuntimeError) as error:
        raise _stop(error) from None


def _show(result: dict) -> None:
    """One line a method and setting: mean and standard deviation over the draws."""
    import numpy as np

    shown = ("accuracy", "cm_error", "skill_mae", "count_cm_error", "dice", "miou", "area")
    metrics = [m for m in shown if any(m in row["metrics"] for row in result["rows"])]
    groups: dict[str, dict[str, list[dict]]] = {}
    for row in result["rows"]:
        setting = ", ".join(f"{key} {value}" for key, value in row["setting"].items())
        groups.setdefault(setting, {}).setdefault(row["method"], []).append(row["metrics"])
    for setting, methods in groups.items():
        table = Table("method", *[m.replace("_", " ") for m in metrics], title=setting)
        for method, runs in methods.items():
            cells = [np.array([run[m] for run in runs if m in run]) for m in metrics]
            table.add_row(method, *[f"{c.mean():.3f} ± {c.std():.3f}" if len(c) else "-" for c in cells])
        console.print(table)
    console.print(f"{result['experiment']}, {result['size']} size, {result['device']}: {result['seconds']} s")
    console.print(f"mean ± standard deviation over {len(runs)} draws of annotators")


def _me(command: str) -> str:
    """How the reader calls a command from where they stand: the full path of `course` where it is not on the PATH."""
    if os.environ.get("UV"):  # `uv run` has put it on the PATH of this process only
        return f"uv run course {command}"
    here = Path(sys.executable).with_name("course.exe" if sys.platform == "win32" else "course")
    if shutil.which("course") == str(here):
        return f"course {command}"
    return f"{here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here} {command}"


def _fresh(folder: Path) -> Path:
    """An empty folder for a scratch copy; only ever removes one that a command of this file made."""
    mark = writable(folder) / ".made-by-course"
    if folder.exists():
        if not mark.exists() and any(folder.iterdir()):
            raise _stop(f"{folder} is not empty and was not made by `course`; name another with --out.")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    mark.touch()
    return folder


def _stop(error: object) -> typer.Exit:
    """One clear line on the standard error, and exit code 1."""
    Console(stderr=True).print(f"course: {error}", style="red", soft_wrap=True, markup=False)
    return typer.Exit(1)
