"""Cityscapes from made files: zips and folders alike, categories, what is missing and what is broken."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from course_lib.annotations import MISSING
from course_lib.cityscapes import CATEGORIES, cityscapes

NAMES = ("aachen_000000_000019", "aachen_000001_000019", "bochum_000000_000313")


def png(values: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(values).save(out, "PNG")
    return out.getvalue()


def fine_of(k: int) -> np.ndarray:
    mask = np.full((16, 32), 7, np.uint8)  # road
    mask[:8] = 23  # sky
    mask[6:12, 4 * k : 4 * k + 8] = 26  # a car
    mask[15, :3] = 3  # out of the region of interest
    return mask


def written(folder: Path, *, zipped: bool, split: str = "train") -> Path:
    parts = {"leftImg8bit": {}, "gtFine": {}, "gtCoarse": {}}
    for k, name in enumerate(NAMES):
        city = name.split("_")[0]
        colour = np.zeros((16, 32, 3), np.uint8)
        colour[..., k % 3] = 255
        coarse = np.where(fine_of(k) == 26, 26, 0).astype(np.uint8)  # the car, and silence
        parts["leftImg8bit"][f"leftImg8bit/{split}/{city}/{name}_leftImg8bit.png"] = png(colour)
        parts["gtFine"][f"gtFine/{split}/{city}/{name}_gtFine_labelIds.png"] = png(fine_of(k))
        parts["gtFine"][f"gtFine/{split}/{city}/{name}_gtFine_instanceIds.png"] = b"something else"
        parts["gtCoarse"][f"gtCoarse/{split}/{city}/{name}_gtCoarse_labelIds.png"] = png(coarse)
    zips = {"leftImg8bit": "leftImg8bit_trainvaltest", "gtFine": "gtFine_trainvaltest", "gtCoarse": "gtCoarse"}
    for part, files in parts.items():
        if zipped:
            folder.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(folder / f"{zips[part]}.zip", "w") as archive:
                for name, content in files.items():
                    archive.writestr(name, content)
        for name, content in files.items() if not zipped else ():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("zipped", [True, False])
def test_pictures_come_with_both_masks_in_categories(tmp_path, zipped):
    written(tmp_path / "cityscapes", zipped=zipped)
    found = cityscapes(tmp_path, shrink=1)
    assert found.names == NAMES and found.images.shape == (3, 3, 16, 32)
    assert found.coarse.shape == found.fine.shape == (3, 16, 32) and found.fine.dtype == torch.int64
    flat, vehicle, sky = (CATEGORIES.index(name) for name in ("flat", "vehicle", "sky"))
    for k in range(3):
        fine, coarse = torch.from_numpy(fine_of(k)), found.coarse[k]
        assert ((found.fine[k] == sky) == (fine == 23)).all() and ((found.fine[k] == flat) == (fine == 7)).all()
        assert ((coarse == vehicle) == (fine == 26)).all() and (coarse[fine != 26] == MISSING).all()
        assert (found.fine[k, 15, :3] == MISSING).all()
        assert found.images[k, k % 3].min() == 1 and found.images[k].sum() == 16 * 32


def test_pictures_are_made_smaller_and_fewer(tmp_path):
    written(tmp_path, zipped=True)
    found = cityscapes(tmp_path, shrink=4, limit=2)
    assert found.images.shape == (2, 3, 4, 8) and found.names == NAMES[:2]
    assert found.fine[0, 0].eq(CATEGORIES.index("sky")).all() and found.fine[0, 3, 3:].eq(0).all()
    assert set(found.fine.unique().tolist()) <= {MISSING, *range(7)}


def test_what_is_not_there_is_told_with_the_way_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError, match="Register"):
        cityscapes(tmp_path)
    written(tmp_path, zipped=True)
    with pytest.raises(ValueError, match="val"):
        cityscapes(tmp_path, split="val")
    with pytest.raises(ValueError, match="split"):
        cityscapes(tmp_path, split="test")


def test_a_broken_copy_is_named(tmp_path):
    written(tmp_path, zipped=True)
    whole = (tmp_path / "gtCoarse.zip").read_bytes()
    (tmp_path / "gtCoarse.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="gtCoarse.zip"):
        cityscapes(tmp_path)
    other = written(tmp_path / "b", zipped=False)
    next((other / "gtFine").rglob("*labelIds.png")).write_bytes(b"no picture")
    with pytest.raises(ValueError, match="damaged"):
        cityscapes(other)
    third = written(tmp_path / "c", zipped=False)
    next((third / "gtFine").rglob("*labelIds.png")).write_bytes(png(np.zeros((8, 8), np.uint8)))
    with pytest.raises(ValueError, match="another size"):
        cityscapes(third)
