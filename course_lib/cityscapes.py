"""Streets with coarse and fine masks: your own copy of Cityscapes (Cordts et al. 2016), whose licence asks everybody to
register, so that it cannot be fetched for you."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, one_hot

from .annotations import MISSING
from .files import base_folder, decoded, found

CATEGORIES = ("flat", "human", "vehicle", "construction", "object", "nature", "sky")
"""The seven classes, in the order of their numbers."""
_OF_LABEL = {
    **dict.fromkeys((7, 8, 9, 10), 0), **dict.fromkeys((24, 25), 1), **dict.fromkeys(range(26, 34), 2),
    **dict.fromkeys(range(11, 17), 3), **dict.fromkeys(range(17, 21), 4), **dict.fromkeys((21, 22), 5), 23: 6,
}  # fmt: skip
_PARTS = {
    "picture": ("leftImg8bit", "leftImg8bit"),
    "coarse": ("gtCoarse", "gtCoarse_labelIds"),
    "fine": ("gtFine", "gtFine_labelIds"),
}
_MODES = {"picture": "RGB"}
_ZIPS = {"picture": "leftImg8bit_trainvaltest.zip", "coarse": "gtCoarse.zip", "fine": "gtFine_trainvaltest.zip"}


class Streets(NamedTuple):
    """images (N, 3, H, W) in [0, 1]; coarse, fine (N, H, W) int64 in 0..6, MISSING where nobody said; names of the N,
    which begin with the city: a city should not be split between training and test."""

    images: Tensor
    coarse: Tensor
    fine: Tensor
    names: tuple[str, ...]


def cityscapes(
    root: str | Path | None = None, *, split: str = "train", shrink: int = 16, limit: int | None = None
) -> Streets:
    """Pictures of one split (`train` or `val`) that have a coarse and a fine mask, in seven categories.

    Looked for in the folder `cityscapes` of `root`, else $COURSE_DATA, else ~/.cache/course_lib, then in the folder
    itself: leftImg8bit_trainvaltest.zip, gtCoarse.zip and gtFine_trainvaltest.zip, or the folders leftImg8bit, gtCoarse
    and gtFine of them. shrink: the mean of blocks of so many pixels of 2048 x 1024, of masks the class with most
    pixels. limit: the first so many, by name.
    Raises: FileNotFoundError that says where to get it; ValueError for a damaged or incomplete copy.
    """
    if split not in ("train", "val") or shrink < 1 or (limit is not None and limit < 1):
        raise ValueError(f"wanted split train or val, shrink and limit >= 1; got {split!r}, {shrink} and {limit}.")
    base = base_folder(root)
    folder = next((f for f in (base / "cityscapes", base) if _there(f)), None)
    if folder is None:
        raise FileNotFoundError(
            f"Cityscapes is not here. Register at https://www.cityscapes-dataset.com/, as its licence asks; then put "
            f"{', '.join(_ZIPS.values())} into {base / 'cityscapes'}, or name their folder's parent in COURSE_DATA."
        )
    read = {part: _files(folder, part, split) for part in _PARTS}
    names = sorted(set.intersection(*(set(files) for files in read.values())))[:limit]
    if not names:
        counts = {part: len(files) for part, files in read.items()}
        raise ValueError(
            f"no picture of {split} under {folder} has both masks; got {counts}. Are all three parts there?"
        )
    images, coarse, fine = [], [], []
    for name in names:
        picture, *masks = (decoded(read[p][name](), f"{name} ({p})", folder, _MODES.get(p)) for p in _PARTS)
        if any(mask.shape != picture.shape[:2] for mask in masks):
            raise ValueError(f"{name} under {folder} has a mask of another size than its picture. Copy the set again.")
        images.append(avg_pool2d(torch.from_numpy(picture).movedim(-1, 0).float() / 255, shrink))
        for kept, mask in zip((coarse, fine), masks, strict=True):
            kept.append(_shrunk(torch.from_numpy(_TABLE[mask]), shrink))
    return Streets(torch.stack(images), torch.stack(coarse), torch.stack(fine), tuple(names))


_TABLE = np.array([_OF_LABEL.get(label, MISSING) for label in range(256)])


def _there(folder: Path) -> bool:
    return all((folder / _ZIPS[part]).is_file() or (folder / _PARTS[part][0]).is_dir() for part in _PARTS)


def _files(folder: Path, part: str, split: str) -> dict[str, Callable[[], bytes]]:
    """Name of a picture -> how to read its file of this part."""
    top, ending = _PARTS[part]
    wanted = re.compile(rf"(?:.*/)?{top}/{split}/[^/]+/([^/]+)_{ending}\.png")
    path = folder / _ZIPS[part]
    if (folder / top).is_dir():
        files = {f.relative_to(folder).as_posix(): f.read_bytes for f in (folder / top / split).glob("*/*.png")}
    else:
        try:
            archive = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile):
            raise ValueError(f"expected {path} to be a whole zip, but it {found(path)}. Copy it again.") from None
        files = {name: (lambda name=name: archive.read(name)) for name in archive.namelist()}
    return {m[1]: read for name, read in files.items() if (m := wanted.fullmatch(name))}


def _shrunk(mask: Tensor, shrink: int) -> Tensor:
    """The class with most pixels of each block (H, W); silence counts as one."""
    counts = avg_pool2d(one_hot(mask + 1, len(CATEGORIES) + 1).movedim(-1, 0).float(), shrink)
    return counts.argmax(0) - 1
