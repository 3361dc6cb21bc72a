"""Real masks: made files in every state, and the sets themselves where COURSE_DATA has them."""

import io
import os
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from course_lib import fusion
from course_lib.metrics import pairwise_dice
from course_lib.observers import chase_db1


def png(values: np.ndarray, mode: str = "1", kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.fromarray(values).convert(mode).save(out, kind)
    return out.getvalue()


def eye(name: str, seed: int) -> dict[str, bytes]:
    """A photograph of 12 x 10 pixels and two masks of it, as CHASE_DB1 names them."""
    random = np.random.default_rng(seed)
    masks = (random.random((2, 12, 10)) < 0.3).astype(np.uint8) * 255
    photograph = random.integers(0, 255, (12, 10, 3)).astype(np.uint8)
    return {
        f"Image_{name}.jpg": png(photograph, "RGB", "JPEG"),
        f"Image_{name}_1stHO.png": png(masks[0]),
        f"Image_{name}_2ndHO.png": png(masks[1]),
    }


FILES = {**eye("01L", 1), **eye("01R", 2), **eye("02L", 3)}


def packed(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "CHASEDB1.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(f"CHASEDB1/{'images' if name.endswith('jpg') else 'labels'}/{name}", content)
    return folder


def test_a_zip_and_its_files_give_the_same(tmp_path):
    one = chase_db1(packed(tmp_path / "a" / "chase_db1", FILES).parent)
    (tmp_path / "b").mkdir()
    for name, content in FILES.items():
        (tmp_path / "b" / name).write_bytes(content)
    two = chase_db1(tmp_path / "b")
    assert torch.equal(one.masks, two.masks) and torch.equal(one.images, two.images)
    assert one.masks.shape == (3, 2, 12, 10) and one.images.shape == (3, 3, 12, 10)
    assert set(one.masks.unique().tolist()) == {0, 1} and 0 <= one.images.min() and one.images.max() <= 1  # noqa: SIM300
    assert one.groups == ("01", "01", "02") and one.identities


def test_shrinking_takes_means_of_blocks(tmp_path):
    full, half = (chase_db1(packed(tmp_path, FILES), shrink=s) for s in (1, 2))
    assert half.masks.shape == (3, 2, 6, 5)
    block = full.masks[1, 0, 2:4, 4:6].float().mean()
    assert int(half.masks[1, 0, 1, 2]) == int(block >= 0.5)
    with pytest.raises(ValueError, match="shrink"):
        chase_db1(tmp_path, shrink=0)


def test_what_is_not_there_is_told_with_the_way_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"(?s)not here.*COURSE_DATA"):
        chase_db1()


def test_a_damaged_set_is_named(tmp_path):
    short = {n: c for n, c in FILES.items() if n != "Image_01R_2ndHO.png"}
    with pytest.raises(ValueError, match="Image_01R_2ndHO"):
        chase_db1(packed(tmp_path / "short", short))
    broken = FILES | {"Image_02L.jpg": b"<html>"}
    with pytest.raises(ValueError, match=r"Image_02L\.jpg .*damaged"):
        chase_db1(packed(tmp_path / "broken", broken))
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut/CHASEDB1.zip").write_bytes(b"PK\3\4 half a zip")
    with pytest.raises(ValueError, match="whole zip"):
        chase_db1(tmp_path / "cut")
    other = FILES | {"Image_02L_1stHO.png": png(np.zeros((5, 5), np.uint8))}
    with pytest.raises(ValueError, match=r"one size.*\(5, 5\)"):
        chase_db1(packed(tmp_path / "other", other))


def real(load, *args, **options):
    root = os.environ.get("COURSE_DATA")
    if not root:
        pytest.skip("COURSE_DATA is not set: no real masks here")
    try:
        return load(*args, **options)
    except FileNotFoundError as error:
        pytest.skip(f"COURSE_DATA has no such set: {str(error)[:60]}")


def test_the_two_observers_of_chase_go_through_fusion():
    readings = real(chase_db1, shrink=4)
    assert len(readings.masks) == 28 and len(set(readings.groups)) == 14
    assert float(pairwise_dice(readings.masks)[0, 1]) == pytest.approx(0.785, abs=0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for found in (fusion.staple(readings.masks, 2), fusion.spatial_staple(readings.masks, 2, window=15)):
            agreed = readings.masks[:, 0] == readings.masks[:, 1]
            assert found.converged and (found.labels == readings.masks[:, 0])[agreed].double().mean() > 0.99
