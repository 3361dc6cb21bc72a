"""Masks in a folder for each annotator, as PNG, NPY, NIfTI or what SimpleITK reads; and fused ones written back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .annotations import MISSING, Annotations
from .files import natural, whole_folder
from .folders import check_channels
from .mask_files import (
    FLAT,
    LOSSY,
    VOLUMES,
    Case,
    check_alike,
    name_of,
    picture_of,
    read_numbers,
    suffix_of,
    to_image,
    whole_numbers,
    write_file,
)

KINDS = (".npy", *FLAT, *VOLUMES)
"""What a mask may be."""

IMAGES = ("images", "image", "pictures")
"""A folder of one of these names holds the pictures, not an annotator's masks."""

VALUES = 64
"""More values than this in masks, and they are pictures."""


def read_masks(
    root: str | Path,
    *,
    images: str | Path | None = None,
    classes: Sequence[str] = (),
    missing: int | None = None,
    box: int | None = None,
) -> Annotations:
    """root/ANNOTATOR/CASE.nii.gz, .png, .npy, ... as labels (N, R, H, W), matched by the name of the case.

    An item is a picture, or a slice of a volume. Class 0 is the file's 0; the other values that occur, 255 or 1, 2, 5,
    are classes in their order. A case that an annotator has no file of is MISSING there, and so is the rim of cases
    that are smaller than others. `sources` keeps each case's format and geometry for `write_masks`.
    Arguments: images: a folder with a picture of every case; root/images where there is one; else there are none.
    classes: their names; more than the values that occur, if files hold 0..L-1 and nobody used some. missing: a value
    that means no label. box: keep only the box round all that anybody marked in a case, and so many voxels more:
    volumes are mostly background. `.nii` and others need SimpleITK.
    Raises: FileNotFoundError, ImportError, or ValueError that names the file; see tests/test_broken_input.py.
    """
    root = Path(root).expanduser()
    annotators, pictures = _annotators(root, images)
    names = sorted({case for paths in annotators.values() for case in paths}, key=natural)
    cases, said, seen = [], [], []
    for name in names:
        case, masks = _case(
            name, {who: files[name] for who, files in annotators.items() if name in files}, missing, box
        )
        cases.append(case)
        said.append(masks)
        if pictures is not None:
            seen.append(picture_of(pictures[name], case))
    values = _classes(root, _values(root, said, missing), classes)
    cases = [replace(case, values=values) for case in cases]
    sources = [(case, z) for case in cases for z in range(case.size[0])]
    return Annotations(
        _stacked(root, cases, seen) if seen else None,
        _labels(cases, said, list(annotators), values),
        n_classes=len(values),
        names=tuple(annotators),
        classes=tuple(classes) or tuple(map(str, values)),
        item_names=[c.name if len(c.shape) == 2 else f"{c.name}, slice {c.corner[0] + z}" for c, z in sources],
        sources=sources,
    )


def write_masks(folder: str | Path, data: Annotations, masks: Tensor) -> list[Path]:
    """Masks (N, H, W) of the items of `read_masks`, a file a case, in the format and geometry that they came in.

    Whole numbers are classes, written as the values that the files had for them. Floating numbers, such as an
    uncertainty, are written as float32, or as NPY where the format has no such numbers. DICOM becomes NIfTI.
    Raises: ValueError for other items or half a volume; FileExistsError if `folder` holds something. All or nothing.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists and is not an empty folder; name a new one.")
    volumes = _volumes(data, masks)
    with whole_folder(folder.resolve()) as part:  # of a link, the folder it leads to
        for case, volume in volumes:
            write_file(part, case, volume)
    return sorted(folder.iterdir())


def to_sitk(data: Annotations, masks: Tensor) -> dict[str, Any]:
    """Masks (N, H, W) of the items of `read_masks` as SimpleITK images by the name of the case, in their geometry."""
    return {case.name: to_image(case, volume) for case, volume in _volumes(data, masks)}


def _annotators(root: Path, images: str | Path | None) -> tuple[dict[str, dict[str, Path]], dict[str, Path] | None]:
    """Each annotator's files by the name of the case, and the pictures', if there are any."""
    if not root.is_dir():
        raise FileNotFoundError(f"wanted a folder that holds one folder of masks an annotator; {root} is none.")
    folders = sorted((p for p in root.iterdir() if p.is_dir() and p.name[0] != "."), key=lambda p: natural(p.name))
    chosen = None if images is None else Path(images).expanduser().resolve()
    annotators = {p.name: _files(p) for p in folders if p.name.lower() not in IMAGES and p.resolve() != chosen}
    if not annotators:
        raise FileNotFoundError(
            f"{root} holds no folder; wanted one for each annotator, such as {root.name}/alice/case1.png."
        )
    pictures = _pictures(folders, images)
    names = {case for files in annotators.values() for case in files}
    if pictures is not None and (odd := names ^ set(pictures)):
        one = min(odd, key=natural)
        lacks = "a picture but no mask" if one in pictures else "masks but no picture"
        raise ValueError(f"{root}: {one} has {lacks}; pictures and masks must have the same names.")
    return annotators, pictures


def _files(folder: Path) -> dict[str, Path]:
    """The masks in an annotator's folder by the name of their case."""
    if lossy := [path for path in folder.iterdir() if suffix_of(path) in LOSSY]:
        raise ValueError(f"{lossy[0]}: {suffix_of(lossy[0])} changes the values of a mask; save it as PNG.")
    return _by_case(folder, KINDS, "mask")


def _pictures(folders: list[Path], images: str | Path | None) -> dict[str, Path] | None:
    inside = [p for p in folders if p.name.lower() in IMAGES]
    if images is None and not inside:
        return None
    folder = inside[0] if images is None else Path(images).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"wanted a folder of pictures; {folder} is none.")
    return _by_case(folder, (*KINDS, ".jpg", ".jpeg"), "picture")


def _by_case(folder: Path, kinds: Sequence[str], what: str) -> dict[str, Path]:
    """The files of these kinds by the name of their case; others, notes for instance, are left out."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir(), key=lambda p: natural(p.name)):
        if path.name[0] == "." or path.is_dir() or suffix_of(path) not in kinds:
            continue
        if (first := found.setdefault(name_of(path), path)) != path:
            raise ValueError(f"{path} and {first.name} are two {what}s of one case; keep one of them.")
    if not found:
        there = ", ".join(sorted(p.name for p in folder.iterdir())[:4]) or "nothing"
        raise FileNotFoundError(f"{folder} holds no {what} ({there}); wanted one of each case: {', '.join(kinds)}.")
    return found


def _case(
    name: str, files: dict[str, Path], missing: int | None, box: int | None
) -> tuple[Case, dict[str, np.ndarray]]:
    """What a case's files have in common, and the masks (D, H, W) by annotator. Raises ValueError where they differ."""
    masks: dict[str, np.ndarray] = {}
    first: tuple[Path, tuple[int, ...], dict | None] | None = None
    for who, path in files.items():
        mask, geometry = read_numbers(path)
        if first is None:
            first, dtype = (path, mask.shape, geometry), mask.dtype.name
        mask = whole_numbers(path, mask, missing)
        check_alike(path, mask.shape, geometry, *first)
        masks[who] = mask.reshape(-1, *mask.shape[-2:])
    path, shape, geometry = first
    whole = next(iter(masks.values())).shape
    where = _box(masks, missing, box) if box is not None else tuple(slice(0, n) for n in whole)
    corner, size = tuple(s.start for s in where), tuple(s.stop - s.start for s in where)
    return (
        Case(name, suffix_of(path), shape, dtype, geometry, corner, size),
        {who: mask[where].copy() for who, mask in masks.items()},
    )


def _box(masks: dict[str, np.ndarray], missing: int | None, margin: int) -> tuple[slice, ...]:
    """The box (z, y, x) round all that anybody marked, and `margin` more; everything where nobody marked anything."""
    marked = np.any([(mask != 0) & (mask != (-1 if missing is None else missing)) for mask in masks.values()], axis=0)
    where = []
    for axis, n in enumerate(marked.shape):
        along = np.flatnonzero(marked.any(tuple(a for a in range(3) if a != axis)))
        some = (along[0] - margin, along[-1] + 1 + margin) if along.size else (0, n)
        where.append(slice(max(0, int(some[0])), min(n, int(some[1]))))
    return tuple(where)


def _values(root: Path, said: list[dict[str, np.ndarray]], missing: int | None) -> tuple[int, ...]:
    """What all masks hold, 0 first: the classes."""
    found = {0}
    for mask in (mask for case in said for mask in case.values()):
        found |= set(np.unique(mask).astype(np.int64).tolist()) - {missing}
        if len(found) > VALUES:
            raise ValueError(
                f"masks under {root} hold {len(found)} values and more; wanted a class for each. Are these pictures?"
            )
    if len(found) < 2:
        raise ValueError(f"all masks under {root} are blank: nobody marked anything, and nothing can be compared.")
    return tuple(sorted(found))


def _classes(root: Path, values: tuple[int, ...], names: Sequence[str]) -> tuple[int, ...]:
    """The value of each class. Raises ValueError for values that are no classes by the look of them, unless named."""
    if names and len(names) > len(values) and values[-1] < len(names):
        return tuple(range(len(names)))  # the files write numbers of classes, and nobody used one of them
    if names and len(names) != len(values):
        raise ValueError(f"{root}: masks hold the values {values}, but there are {len(names)} names of classes.")
    even = all(abs(v - 255 * k / (len(values) - 1)) <= 1 for k, v in enumerate(values))  # 0, 128, 255: greys of classes
    if not names and 255 in values and not even:
        cause = "is 255 a code for no label (missing=255), or were masks of 0 and 255 resized with smooth edges"
        raise ValueError(f"{root}: masks hold the values {values}; {cause}? If all are classes, name them.")
    return values


def _labels(cases: list[Case], said: list[dict], annotators: list[str], values: tuple[int, ...]) -> Tensor:
    """(N, R, H, W): numbers of classes, MISSING where an annotator has no file and where a case ends."""
    high, wide = (max(case.size[axis] for case in cases) for axis in (1, 2))
    labels = np.full((sum(case.size[0] for case in cases), len(annotators), high, wide), MISSING)
    start = 0
    for case, masks in zip(cases, said, strict=True):
        depth, h, w = case.size
        for who, mask in masks.items():
            place = np.searchsorted(values, mask)
            known = np.take(values, place, mode="clip") == mask  # the code for missing is no class
            labels[start : start + depth, annotators.index(who), :h, :w] = np.where(known, place, MISSING)
        start += depth
    return torch.from_numpy(labels)


def _stacked(root: Path, cases: list[Case], seen: list[Tensor]) -> Tensor:
    """(N, C, H, W), smaller pictures filled up with zeros."""
    check_channels(root, {x.shape[1]: case.name for case, x in zip(reversed(cases), reversed(seen), strict=True)})
    high, wide = (max(case.size[axis] for case in cases) for axis in (1, 2))
    pad = lambda x: torch.nn.functional.pad(x, (0, wide - x.shape[3], 0, high - x.shape[2]))  # noqa: E731
    return torch.cat([pad(x) for x in seen])


def _dtype(case: Case) -> np.dtype:
    """The first file's, or the next that holds every value: another annotator's file may have larger ones."""
    dtype, most = np.dtype(case.dtype), max(case.values)
    largest = {"b": 1, "f": most}.get(dtype.kind) or np.iinfo(dtype).max
    return dtype if most <= largest else np.min_scalar_type(most)


def _volumes(data: Annotations, masks: Tensor) -> list[tuple[Case, np.ndarray]]:
    """Each case and what belongs into its file, in the file's shape: class numbers as its values, or floats."""
    if not data.sources:
        raise ValueError("these items did not come from mask files (Annotations.from_masks), so nothing says how to.")
    if masks.shape != (data.n_items, *data.labels.shape[2:]):
        raise ValueError(
            f"`masks` must be {(data.n_items, *data.labels.shape[2:])} (N, H, W); got {tuple(masks.shape)}."
        )
    slices: dict[str, dict[int, Tensor]] = {}
    cases = {case.name: case for case, _ in data.sources}
    for (case, z), mask in zip(data.sources, masks, strict=True):
        slices.setdefault(case.name, {})[z] = mask
    found = []
    for name, case in cases.items():
        depth, h, w = case.size
        if len(slices[name]) != depth:
            raise ValueError(f"{len(slices[name])} of {depth} slices of {name} are here; a file needs them all.")
        inside = torch.stack([slices[name][z][:h, :w] for z in range(depth)]).numpy()  # (D, H, W)
        if inside.dtype.kind == "f":
            volume = np.zeros(case.shape[-3:] if len(case.shape) == 3 else (1, *case.shape), np.float32)
        elif inside.min() < 0 or inside.max() >= len(case.values):
            raise ValueError(f"`masks` of {name} must be classes 0..{len(case.values) - 1}; got {inside.min()}.")
        else:
            inside = np.array(case.values)[inside]
            volume = np.zeros(case.shape if len(case.shape) == 3 else (1, *case.shape), _dtype(case))
        z, y, x = case.corner
        volume[z : z + depth, y : y + h, x : x + w] = inside
        found.append((case, volume.reshape(case.shape)))
    return found
