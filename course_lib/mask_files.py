"""One file of a mask: its class numbers and its geometry, as PNG, NPY, NIfTI or what SimpleITK reads."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from .folders import read_picture, simpleitk

FLAT = (".png", ".bmp", ".tif", ".tiff")
VOLUMES = (".nii.gz", ".nii", ".nrrd", ".nhdr", ".mha", ".mhd", ".gipl", ".vtk", ".dcm")
LOSSY = (".jpg", ".jpeg", ".webp", ".gif")


@dataclass(frozen=True)
class Case:
    """One mask file of every annotator: what is needed to write another one like them.

    shape: the file's, (H, W) or (D, H, W); corner, size: the box (z, y, x) that was kept of it; values: what the file
    writes for each class; geometry: spacing, origin and direction of a file that has them.
    """

    name: str
    suffix: str
    shape: tuple[int, ...]
    dtype: str
    geometry: dict[str, tuple[float, ...]] | None
    corner: tuple[int, int, int]
    size: tuple[int, int, int]
    values: tuple[int, ...] = ()


def suffix_of(path: Path) -> str:
    return ".nii.gz" if path.name.lower().endswith(".nii.gz") else path.suffix.lower()


def name_of(path: Path) -> str:
    """Its name without the suffix, an umlaut as one letter: a Mac writes it as two, and one name would not be found by
    the other."""
    return unicodedata.normalize("NFC", path.name)[: -len(suffix_of(path)) or None]


def read_numbers(path: Path) -> tuple[np.ndarray, dict[str, tuple[float, ...]] | None]:
    """The numbers in a file, (H, W) or (D, H, W) with colours last if any, and its geometry if it has one."""
    geometry, pages, colours = None, 1, 1
    sitk = None if suffix_of(path) in (".npy", *FLAT) else simpleitk(path)
    try:
        if sitk is not None:
            image = sitk.ReadImage(str(path))
            values, colours = sitk.GetArrayFromImage(image), image.GetNumberOfComponentsPerPixel()
            geometry = {"spacing": image.GetSpacing(), "origin": image.GetOrigin(), "direction": image.GetDirection()}
        elif suffix_of(path) == ".npy":
            values = np.load(path, allow_pickle=False)
        else:
            with Image.open(path) as file:
                pages = getattr(file, "n_frames", 1)
                values = np.array(file)  # of a palette its numbers, not its colours
                colours = 1 if values.ndim == 2 else values.shape[2]
    except Exception as error:
        raise ValueError(f"{path} cannot be read ({type(error).__name__}): is it whole?") from None
    if pages > 1:
        raise ValueError(f"{path} has {pages} pages; save a volume as NIfTI or NPY.")
    if colours > 1:
        raise ValueError(
            f"{path} has {colours} colours a pixel; wanted one number, the class: save the mask as a grey picture."
        )
    return values, geometry


def whole_numbers(path: Path, mask: np.ndarray, missing: int | None) -> np.ndarray:
    """The mask, once it holds whole numbers from 0 on in two or three axes."""
    if mask.ndim not in (2, 3) or 0 in mask.shape:
        raise ValueError(f"{path} has the shape {mask.shape}; wanted (H, W), or (D, H, W) for a volume.")
    if mask.dtype.kind not in "buif":
        raise ValueError(f"{path} holds {mask.dtype}; wanted whole numbers, the class of each pixel.")
    if mask.dtype.kind == "f":
        odd = mask[~(np.isfinite(mask) & (mask == np.floor(mask)))]
        if odd.size:
            raise ValueError(
                f"{path} holds {odd[0]:.3g}, and {odd.size} more such numbers that are no class; for probabilities, "
                "choose a threshold and save mask > threshold."
            )
    if mask.dtype.kind in "if" and (below := mask[(mask < 0) & (mask != missing)]).size:
        raise ValueError(f"{path} holds {below[0]:.0f}, below 0; if it means no label, say missing={below[0]:.0f}.")
    return mask.astype(np.uint8) if mask.dtype.kind == "b" else mask


def check_alike(
    path: Path, shape: tuple[int, ...], geometry: dict | None, first: Path, want: tuple[int, ...], place: dict | None
) -> None:
    """Raises ValueError if a file does not lie where the case's first file lies."""
    if shape != want:
        raise ValueError(f"{path} has the size {shape}, {first} {want}; masks of one case must have one size.")
    if (geometry is None) != (place is None):
        raise ValueError(f"{path} and {first} are of two formats; one has a spacing and the other has none.")
    for key in geometry or ():
        scale = 1.0 if key == "direction" else min(place["spacing"])
        if not np.allclose(geometry[key], place[key], rtol=1e-4, atol=1e-3 * scale):
            show = lambda numbers: "(" + ", ".join(f"{x:.4g}" for x in numbers) + ")"  # noqa: E731
            raise ValueError(
                f"{path} has the {key} {show(geometry[key])}, {first} {show(place[key])}; masks of one case must lie "
                "in one place: was one of them resampled, or saved without its header?"
            )


def picture_of(path: Path, case: Case) -> Tensor:
    """A case's picture in its box, (D, C, H, W) in [0, 1]."""
    if suffix_of(path) in VOLUMES or suffix_of(path) == ".npy":
        values, geometry = read_numbers(path)
        x = torch.from_numpy(values.astype(np.float32) / max(float(values.max()), 1e-12))
        x = x.reshape(-1, 1, *x.shape[-2:])
        shape = values.shape
    else:
        x, geometry = read_picture(path)[None], None
        shape = tuple(x.shape[-2:])
    check_alike(
        path, shape, geometry, Path(f"the mask of {case.name}"), case.shape, case.geometry if geometry else None
    )
    (z, y, left), (d, h, w) = case.corner, case.size
    return x[z : z + d, :, y : y + h, left : left + w]


def to_image(case: Case, volume: np.ndarray) -> Any:
    sitk = simpleitk(case.name)
    image = sitk.GetImageFromArray(volume)
    for key, value in (case.geometry or {}).items():
        getattr(image, f"Set{key.title()}")(value)
    return image


def write_file(folder: Path, case: Case, volume: np.ndarray) -> None:
    suffix = ".nii.gz" if case.suffix == ".dcm" else case.suffix
    if case.geometry is not None:
        simpleitk(case.name).WriteImage(to_image(case, volume), str(folder / f"{case.name}{suffix}"))
    elif suffix == ".npy" or volume.dtype.kind == "f":
        np.save(folder / f"{case.name}.npy", volume)
    else:
        Image.fromarray(volume).save(folder / f"{case.name}{suffix}")
