"""Real masks of two readers: the vessels of the retina, CHASE_DB1."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from .files import base_folder, decoded, found

_CHASE_BY_HAND = (
    "Nobody publishes a checksum, so it is not fetched for you: get it by hand from Kingston University, "
    "https://researchdata.kingston.ac.uk/96/ (CC BY 4.0; Fraz et al. 2012), put CHASEDB1.zip, or the 84 files, into "
    "{folder}, or name their folder's parent in COURSE_DATA"
)


class Readings(NamedTuple):
    """masks (N, R, H, W) int64 of 0 and 1; images (N, C, H, W) in [0, 1] or None; groups (N,): which child or patient,
    never to be split between training and test; identities: is reader r the same person throughout?"""

    masks: Tensor
    images: Tensor | None
    groups: tuple[str, ...]
    identities: bool


def chase_db1(root: str | Path | None = None, *, shrink: int = 1) -> Readings:
    """28 photographs of the retina, 960 x 999, with the vessels as each of two observers drew them.

    Looked for in the folder `chase_db1` of `root`, else $COURSE_DATA, else ~/.cache/course_lib, then in the folder
    itself, as CHASEDB1.zip or as its files. shrink: the mean of blocks of so many pixels; of masks, at least one half.
    Source: Fraz et al. 2012; groups are children, two eyes each.
    Raises: FileNotFoundError that says where to get it; ValueError for a damaged file or sizes that do not fit.
    """
    if shrink < 1:
        raise ValueError(f"`shrink` must be at least 1 pixel; got {shrink}.")
    folder = _folder(root, "chase_db1", lambda f: (f / "CHASEDB1.zip").is_file() or any(f.rglob("*_1stHO.png")))
    if folder is None:
        raise FileNotFoundError(
            "CHASE_DB1 is not here. " + _CHASE_BY_HAND.format(folder=base_folder(root) / "chase_db1")
        )
    files = _zipped(folder / "CHASEDB1.zip") if (folder / "CHASEDB1.zip").is_file() else _loose(folder)
    eyes = sorted(m[1] for name in files if (m := re.fullmatch(r"Image_(\d+[LR])\.jpg", name)))
    missing = [f"Image_{e}_{o}HO.png" for e in eyes for o in ("1st", "2nd") if f"Image_{e}_{o}HO.png" not in files]
    if not eyes or missing:
        raise ValueError(
            f"expected Image_01L.jpg, Image_01L_1stHO.png, Image_01L_2ndHO.png, ... in {folder}; got {len(eyes)} "
            f"photographs, without {missing[:3]}. Copy the set again."
        )
    pixels = lambda name, mode: torch.from_numpy(decoded(files[name], name, folder, mode))  # noqa: E731
    images = [pixels(f"Image_{e}.jpg", "RGB").movedim(-1, 0).float() / 255 for e in eyes]
    drawn = [[(pixels(f"Image_{e}_{o}HO.png", "L") > 0).float() for o in ("1st", "2nd")] for e in eyes]
    sizes = {tuple(x.shape[-2:]) for x in (*images, *(mask for pair in drawn for mask in pair))}
    if len(sizes) > 1:
        raise ValueError(f"expected photographs and masks of one size in {folder}; got {sorted(sizes)}.")
    images = avg_pool2d(torch.stack(images), shrink)
    masks = (avg_pool2d(torch.stack([torch.stack(pair) for pair in drawn]), shrink) >= 0.5).long()
    return Readings(masks, images, tuple(e[:2] for e in eyes), identities=True)


def _folder(root: str | Path | None, name: str, there: Callable[[Path], bool]) -> Path | None:
    return next((f for f in (base_folder(root) / name, base_folder(root)) if f.is_dir() and there(f)), None)


def _zipped(path: Path) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(path) as archive:
            return {Path(i.filename).name: archive.read(i) for i in archive.infolist() if not i.is_dir()}
    except (OSError, zipfile.BadZipFile, EOFError):
        raise ValueError(f"expected {path} to be a whole zip, but it {found(path)}. Copy it again.") from None


def _loose(folder: Path) -> dict[str, bytes]:
    return {f.name: f.read_bytes() for f in folder.rglob("Image_*")}
