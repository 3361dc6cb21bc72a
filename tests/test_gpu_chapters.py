"""On a GPU: every chapter trains there, and the ledger learns what it cost."""

import json
import subprocess

import nbformat
import pytest
import yaml
from conftest import REPO, run_chapters
from nbformat.v4 import new_code_cell

from course_lib import book

CHAPTERS = sorted((REPO / "notebooks").glob("[0-9]*.ipynb"))
LEDGER = REPO / "book/gpu-ledger.yaml"
SIZE = "lesson"

# Added at the end of the scratch copy: only the chapter's own kernel knows what it used.
METER = """import json
import torch

used = {"card": torch.cuda.get_device_name(), "peak_mb": torch.cuda.max_memory_allocated() / 1e6}
print("METER", json.dumps(used))"""

HEAD = """\
# What each chapter cost, measured: `pytest -m gpu` writes the gpu entries. A chapter with `gpu: null` has not yet been
# run on a GPU, and its card says so.
"""


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=REPO, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def reading(notebook) -> dict:
    text = "".join(output.get("text", "") for output in notebook.cells[-1].outputs)
    return json.loads(text.split("METER", 1)[1])


def with_gpu_entry(ledger: dict, chapter: str, entry: dict) -> dict:
    return dict(sorted((ledger | {chapter: {"cpu": None} | ledger.get(chapter, {}) | {"gpu": entry}}).items()))


def test_an_entry_joins_the_ledger_and_keeps_the_rest():
    old = {"03_b": {"cpu": {"seconds": 5}, "gpu": None}}
    new = with_gpu_entry(with_gpu_entry(old, "03_b", {"seconds": 1}), "01_a", {"seconds": 2})
    assert list(new) == ["01_a", "03_b"]
    assert new["03_b"] == {"cpu": {"seconds": 5}, "gpu": {"seconds": 1}}
    assert new["01_a"] == {"cpu": None, "gpu": {"seconds": 2}}


def test_the_ledger_lists_every_chapter():
    listed = yaml.safe_load(LEDGER.read_text(encoding="utf-8")) or {}
    assert list(listed) == [path.stem for path in CHAPTERS]


@pytest.mark.gpu
@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_the_chapter_trains_on_the_gpu(path, tmp_path):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine; run `pytest -m gpu` where there is one")
    root = book.scratch(tmp_path)
    for other in book.chapters(root):
        if other.stem != path.stem:
            other.unlink()
    copy = root / "notebooks" / path.name
    notebook = nbformat.read(copy, 4)
    notebook.cells.append(new_code_cell(METER))
    nbformat.write(notebook, copy)

    outcome = run_chapters(root, SIZE, COURSE_DEVICE="cuda")[path.stem]
    assert not outcome.error, outcome.error
    used = reading(nbformat.read(copy, 4))
    assert used["peak_mb"] > 0, f"{path.stem} never put a tensor on the GPU"
    entry = {
        "card": used["card"],
        "commit": commit(),
        "seconds": round(outcome.seconds, 1),
        "peak_mb": round(used["peak_mb"], 1),
        "size": SIZE,
    }
    ledger = yaml.safe_load(LEDGER.read_text(encoding="utf-8")) or {}
    new = with_gpu_entry(ledger, path.stem, entry)
    book.write_whole(LEDGER, HEAD + yaml.safe_dump(new, sort_keys=False))
