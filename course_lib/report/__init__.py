"""`course report`: what a reader's own labels or masks tell, as a page, a JSON file and fused truth to go on with."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import mask_folders, tables
from ..annotations import Annotations
from ..files import whole_folder
from .analysis import Found, analyse
from .pictures import pictures_of

__all__ = ["Found", "analyse", "read", "report", "write"]

MARK = ".made-by-course"
MARGIN, MANY = 8, 20_000
"""Voxels kept round what anybody marked; numbers in matrices from which on the JSON file is one line."""


def report(path: str | Path, out: str | Path, *, networks: bool = True, **options: Any) -> Path:
    """Reads a CSV file or a folder of annotators' folders, and writes the report into the folder `out`; its page.

    networks: where there are pictures, train networks on them and compare these, too. options: as for `read`. Nothing
    is written but whole.
    Raises: FileNotFoundError, ValueError, ImportError for what cannot be read; FileExistsError if `out` is not ours.
    """
    check_out(Path(out))
    inside, place = Path(path).expanduser().resolve(), Path(out).resolve()
    if place.is_relative_to(inside) and not place.relative_to(inside).as_posix().startswith("."):
        raise ValueError(f"{out} lies inside {path}, and would be read as an annotator's folder the next time.")
    data = read(path, **options)
    return write(data, analyse(data, networks=networks), out, name=Path(path).absolute().name)


def read(
    path: str | Path,
    *,
    images: str | Path | None = None,
    item: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    classes: Sequence[str] = (),
    missing: Sequence[str] = (),
    encoding: str = "utf-8-sig",
) -> Annotations:
    """A CSV file, or a folder that holds a folder of masks for each annotator.

    images: a folder with a picture of every item, or of every case of masks, called like it. The other options are
    those of `Annotations.from_csv`; masks have classes and one whole number for missing. Raises: as the readers.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"wanted a CSV file or a folder of annotators' folders; there is no {path}.")
    columns = {"item": item, "annotator": annotator, "label": label}
    if not path.is_dir():
        data = Annotations.from_csv(path, **columns, classes=classes, missing=missing, encoding=encoding)
        return data if images is None else replace(data, images=pictures_of(data.item_names, images))
    if named := [f"--{kind} {name}" for kind, name in columns.items() if name is not None]:
        raise ValueError(
            f"{', '.join(named)} names a column of a CSV file, but {path} is a folder: there, cases are named by files "
            "and annotators by folders."
        )
    if len(missing) > 1 or any(not word.lstrip("-").isdecimal() for word in missing):
        raise ValueError(f"in masks, one whole number can mean no label; got {', '.join(missing)}.")
    gap = int(missing[0]) if missing else None
    return Annotations.from_masks(path, images=images, classes=classes, missing=gap, box=MARGIN)


def check_out(out: Path) -> None:
    """Raises FileExistsError if `out` holds what an earlier report did not write, OSError if it cannot be replaced."""
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / MARK).exists())):
        raise FileExistsError(f"{out} is not empty and was not made by `course`; name another folder with --out.")
    place = out.resolve()
    if os.path.ismount(place) or (place.exists() and not os.access(place.parent, os.W_OK)):
        raise OSError(
            f"{out} cannot be replaced as a whole, as a report is; name a folder within it: --out {out}/report."
        )


def write(data: Annotations, found: Found, out: str | Path, *, name: str = "your annotators") -> Path:
    """report.html, report.json and the fused truth in the folder `out`, whole or not at all; returns the page."""
    from . import page

    out = Path(out)
    check_out(out)
    text = page.html(data, found, name)
    with whole_folder(out.resolve()) as part:  # of a link, the folder it leads to
        (part / "report.html").write_text(text, encoding="utf-8", newline="\n")
        lines = 1 if found.A.numel() < MANY else None  # a crowd's matrices would be a million lines
        content = json.dumps(_plain(found.summary), indent=lines, ensure_ascii=False, allow_nan=False)
        (part / "report.json").write_text(content + "\n", encoding="utf-8", newline="\n")
        if data.labels.ndim == 2:
            tables.write_fused(part / "fused.csv", data, found.p)
            tables.write_crowdkit(part / "crowdkit.csv", data)
        elif data.sources:
            mask_folders.write_masks(part / "masks", data, found.p.argmax(1))
            mask_folders.write_masks(part / "uncertainty", data, 1 - found.p.amax(1).float())
        (part / MARK).touch()
    return out / "report.html"


def _plain(value: Any) -> Any:
    """Without NaN, which JSON does not know, and in six digits."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
