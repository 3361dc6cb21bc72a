"""The house stands as the design draws it: who may import whom, how long a page is, what an import does, what ships."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile

import pytest
from conftest import REPO
from packaging.requirements import Requirement

LIBRARY = sorted((REPO / "course_lib").rglob("*.py"))
FLOORS = [  # a file imports only files of earlier floors
    {"__init__"},
    {"annotations", "files"},
    {"confusion", "patterns", "style"},
    {"metrics", "agreement", "asking", "confidence", "annotators", "data", "diagnose", "fusion", "networks", "plots"},
    {
        "runs",
        "widgets",
        "cityscapes",
        "crowds",
        "folders",
        "mask_files",
        "mask_folders",
        "tables",
        "lidc",
        "mask_annotators",
        "observers",
        "pixel_cms",
        "prism_networks",
        "scenes",
    },
    {"fundus", "strokes", "training", "sliders"},
    {"methods", "propagation"},
    {"experiments", "paint"},
    {"checks", "bench", "book", "report", "variants"},
    {"edition", "judging", "doctor"},
    {"grading", "teaching"},
    {"cli"},
]


def floor_of(module: str) -> int:
    (floor,) = [n for n, names in enumerate(FLOORS) if module in names]
    return floor


def module_of(path) -> str:
    return path.relative_to(REPO / "course_lib").parts[0].removesuffix(".py")


def imported(path) -> set[str]:
    """Modules of the library that a file names at its top level, as the first part below course_lib."""
    found, package = set(), ("course_lib", *path.relative_to(REPO / "course_lib").parts[:-1])
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            parts = (*base, *(node.module or "").split("."))
            parts = tuple(p for p in parts if p)
            if parts[:1] == ("course_lib",):
                found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("course_lib.")}
    return {
        name for name in found if (REPO / "course_lib" / name).exists() or (REPO / f"course_lib/{name}.py").exists()
    }


@pytest.mark.parametrize("path", LIBRARY, ids=lambda p: str(p.relative_to(REPO)))
def test_a_file_imports_only_lower_floors(path):
    own = floor_of(module_of(path))
    above = {name for name in imported(path) - {module_of(path)} if floor_of(name) > own or name == "cli"}
    assert not above, f"{path.name} on floor {own} imports {above}"


def test_methods_never_import_plots():
    for path in (REPO / "course_lib/methods").glob("*.py"):
        assert "plots" not in imported(path)


@pytest.mark.parametrize("path", LIBRARY, ids=lambda p: str(p.relative_to(REPO)))
def test_a_file_is_a_page(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300


def lines_of_code(path) -> int:
    """Lines that hold code: no docstrings, comments or blank lines."""
    text = path.read_text(encoding="utf-8")
    texts = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
    apart = {line for node in texts for line in range(node.lineno, node.end_lineno + 1)}
    lines = enumerate(text.splitlines(), 1)
    return sum(n not in apart and bool(line.strip()) and not line.lstrip().startswith("#") for n, line in lines)


def test_the_library_is_readable_in_an_afternoon():
    """What a reader reads: not the experiments, and nothing on the floors of the checks and tools.

    Planned were 4,000 lines; the rivals of Part III, strokes with what spreads and paints them, and the reading of a
    reader's own tables and folders with every fault that they may have took more.
    """
    tools = set().union(*FLOORS[[n for n, floor in enumerate(FLOORS) if "checks" in floor][0] :]) | {"experiments"}
    assert sum(lines_of_code(p) for p in LIBRARY if module_of(p) not in tools) < 5300


def test_nothing_happens_at_import(tmp_path):
    probe = """
import socket, sys
import numpy, torch
before = (torch.random.get_rng_state().sum().item(), numpy.random.get_state()[1].sum())
def refuse(*a, **k): raise OSError("network at import")
socket.socket.connect = refuse
import matplotlib
rc = dict(matplotlib.rcParams)
from course_lib import annotators, book, checks, cli, confusion, data, edition, experiments, fusion, grading, metrics
from course_lib import mask_annotators, networks, observers, plots, report, scenes, sliders, training, widgets
from course_lib.checks import classes
from course_lib.methods import trace
assert before == (torch.random.get_rng_state().sum().item(), numpy.random.get_state()[1].sum())
assert rc == dict(matplotlib.rcParams) and "matplotlib.pyplot" not in sys.modules
assert "torchvision" not in sys.modules and "jupyter_book" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", probe], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1500:]
    assert not list(tmp_path.iterdir())


def test_running_an_experiment_needs_no_jupyter_and_no_cluster(tmp_path):
    loaded = "[m for m in sys.modules if m.startswith(('jupyter', 'IPython', 'dask', 'distributed'))]"
    probe = f"import sys; import course_lib.experiments; print({loaded})"
    done = subprocess.run([sys.executable, "-c", probe], cwd=tmp_path, capture_output=True, text=True)
    found = ast.literal_eval(done.stdout.strip().splitlines()[-1])
    assert not [name for name in found if "widgets" not in name], done.stdout


def test_versions_that_are_known_to_fail_are_out_of_range():
    """NumPy 2 beside a torch built for NumPy 1; Jupyter Book 2, which ignores our configuration; other widgets."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = {r.name: r.specifier for r in map(Requirement, project["dependencies"])}
    for name, bad, good in (
        ("torch", "2.2.2", "2.4"),
        ("jupyter-book", "2.0", "1.0.4"),
        ("ipywidgets", "7.7", "8.1"),
        ("ipywidgets", "9.0", "8.1.9"),
        ("jupyterlab", "3.6", "4.4"),
        ("jupytext", "1.15", "1.19"),
    ):
        assert bad not in required[name] and good in required[name], name
    assert not [name for name in required if "nvidia" in name or "cuda" in name]


def test_no_file_hides_a_second_openmp():
    texts = [*LIBRARY, *(REPO / "notebooks/src").glob("*.py"), REPO / "tests/conftest.py", REPO / ".ci/run"]
    assert not [p for p in texts if "KMP_DUPLICATE" in p.read_text(encoding="utf-8")]


def test_line_endings_are_one_everywhere():
    assert "* text=auto eol=lf" in (REPO / ".gitattributes").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("command", (["check"], ["format", "--check"]), ids=" ".join)
def test_lint_and_format(command):
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *command, "course_lib", "tests", "book", "data"],
        cwd=REPO,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:]


def test_no_page_holds_a_path_of_the_machine_it_was_written_on():
    home = re.compile(r"(/home/\w+/|/Users/\w+/|/root/|C:\\\\Users)")
    texts = [*REPO.glob("*.md"), *LIBRARY, *(REPO / "notebooks/src").glob("*.py"), *(REPO / "book").glob("*.*")]
    assert not [p for p in texts if p.is_file() and home.search(p.read_text(encoding="utf-8"))]


def test_paths_are_short_enough_for_windows():
    assert all(
        len(str(p.relative_to(REPO))) < 120
        for folder in ("course_lib", "notebooks", "book", "data", "tests")
        for p in (REPO / folder).rglob("*")
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, unpacked into a folder of its own, with nothing of the checkout beside it."""
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    done = subprocess.run(build, cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (path,) = out.glob("*.whl")
    zipfile.ZipFile(path).extractall(out / "site")
    return out / "site"


def test_an_installed_wheel_has_its_data_results_and_pages_from_any_folder(wheel, tmp_path):
    probe = """
import course_lib, sys
from pathlib import Path
assert course_lib.__file__.startswith(sys.argv[1]), course_lib.__file__
from course_lib import book, data
from course_lib.experiments import claim_tables, claims, errata, papers
assert len(data.mnist5k().images) == 5000 and len(claims.claims()) >= 8 and claims.table("002")
assert errata.table("001") and claim_tables.tables([claims.judge(claims.claims()[0])]) and papers.missing() == []
assert "GPU" in str(book.card(3))
assert (Path(course_lib.__file__).parent / "report/page.html").is_file()
try:
    book.chapters()
except book.BookError as error:
    assert "clone" in str(error)
else:
    raise SystemExit("a wheel holds no chapters")
"""
    code = f"import sys; sys.path.insert(0, {str(wheel)!r}); sys.argv = ['', {str(wheel)!r}]\n" + probe
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
