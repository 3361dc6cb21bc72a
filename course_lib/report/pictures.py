"""A picture for each item of a table, found by the item's name in a folder."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import interpolate
from tqdm.auto import tqdm

from ..folders import read_picture
from ..mask_files import FLAT, suffix_of

KNOWN = (".jpg", ".jpeg", *FLAT, ".nii", ".nii.gz")
SMALLEST, LARGEST, BAR = 4, 48, 1000
"""Pixels a side of a picture; from so many pictures on, reading them has a bar."""


def pictures_of(items: Sequence[str], folder: str | Path) -> Tensor:
    """(N, C, S, S) in [0, 1]: the picture of each item, called like it with or without its suffix; folders within the
    folder are part of the name. All are resized to S: the largest side that occurs, or 48 if that is less.

    Raises: FileNotFoundError if there is no folder or no picture in it; ValueError for an item without a picture or
    with two, pictures too small, or of grey and of colour.
    """
    folder = Path(folder).expanduser()
    found = _found(folder)
    called = [unicodedata.normalize("NFC", item) for item in items]
    lacking = [item for item, name in zip(items, called, strict=True) if name not in found]
    if lacking:
        raise ValueError(
            f"{folder} has no picture of {len(lacking):,} of {len(items):,} items, such as {lacking[0]!r}; pictures "
            f"there are {', '.join(sorted(map(str, found))[:4])}, ... Are pictures called as items are?"
        )
    paths = [found[name] for name in called]
    for item, own in zip(items, paths, strict=True):
        if len(own) > 1:
            raise ValueError(f"{own[0]} and {own[1].name} are two pictures of the item {item!r}; keep one of them.")
    read, channels = [], {}
    for (path,) in tqdm(paths, desc="reading pictures", leave=False, disable=None if len(paths) >= BAR else True):
        x = read_picture(path)
        channels.setdefault(len(x), path)
        if len(channels) > 1:
            told = ", ".join(f"{own.name} has {n}" for n, own in channels.items())
            raise ValueError(
                f"pictures in {folder} must have one number of channels: {told}. Save all grey, or all RGB."
            )
        if min(x.shape[1:]) < SMALLEST:
            size = " x ".join(map(str, x.shape[1:]))
            raise ValueError(f"{path} has {size} pixels; a picture has at least {SMALLEST} a side. Is it whole?")
        read.append(_resized(x, LARGEST) if max(x.shape[1:]) > LARGEST else x)  # so that many large ones fit the memory
    side = max(max(x.shape[1:]) for x in read)
    return torch.stack([_resized(x, side) for x in read])


def _found(folder: Path) -> dict[str, list[Path]]:
    """Pictures by what an item may call them: the path below the folder, with the suffix and without."""
    if not folder.is_dir():
        raise FileNotFoundError(f"wanted a folder of pictures; {folder} is none.")
    whole, found = {}, {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if suffix_of(path) in KNOWN and not path.is_dir() and not any(part.startswith(".") for part in inside.parts):
            name = unicodedata.normalize("NFC", inside.as_posix())
            whole[name] = [path]
            found.setdefault(name[: -len(suffix_of(path))], []).append(path)
    if not found:
        there = ", ".join(sorted(path.name for path in folder.iterdir())[:4]) or "nothing"
        raise FileNotFoundError(f"{folder} holds no picture ({there}); wanted one of each item: {', '.join(KNOWN)}.")
    return found | whole  # who says the suffix, too, means this file


def _resized(x: Tensor, side: int) -> Tensor:
    if tuple(x.shape[1:]) == (side, side):
        return x
    return interpolate(x[None], (side, side), mode="bilinear", antialias=True)[0]
