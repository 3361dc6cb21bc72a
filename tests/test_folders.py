"""A reader's own folders: read as they come, and refused in words where something does not fit."""

import numpy as np
import pytest
import SimpleITK
import torch
from skimage.io import imsave

from course_lib.annotations import MISSING
from course_lib.folders import LAYOUTS, masks_of_raters

DISC, CUP = slice(4, 28), slice(10, 20)


def filled(where: slice, size: int = 32) -> np.ndarray:
    mask = np.zeros((size, size), np.uint8)
    mask[where, where] = 255
    return mask


def written(root, case, raters=("1", "2"), *, cup=CUP, disc=DISC):
    (root / case).mkdir(parents=True)
    picture = np.full((32, 32, 3), int(case[-1]) * 20, np.uint8)
    imsave(root / case / f"{case}.jpg", picture, check_contrast=False)
    for rater in raters:
        imsave(root / case / f"{case}_seg_disc_{rater}.png", filled(disc), check_contrast=False)
        imsave(root / case / f"{case}_seg_cup_{rater}.png", filled(cup), check_contrast=False)


def test_refuge_folders_become_annotations(tmp_path):
    for case in ("0009", "0010", "0002"):
        written(tmp_path, case, ("1", "2", "10"))
    found = masks_of_raters(tmp_path, "refuge", size=32)
    assert found.images.shape == (3, 3, 32, 32) and found.labels.shape == (3, 3, 32, 32)
    assert found.names == ("1", "2", "10") and found.n_classes == 3
    assert found.images[:, 0, 0, 0].tolist() == pytest.approx([40 / 255, 180 / 255, 0], abs=0.01)  # cases in order
    want = torch.zeros(32, 32, dtype=torch.long)
    want[DISC, DISC], want[CUP, CUP] = 1, 2
    assert all(label.equal(want) for label in found.labels.flatten(0, 1))


def test_pictures_and_masks_are_made_smaller_together(tmp_path):
    written(tmp_path, "0001")
    found = masks_of_raters(tmp_path, "refuge", size=16)
    assert found.images.shape[2:] == found.labels.shape[2:] == (16, 16)
    assert found.labels[0, 0, 1, 1] == 0 and found.labels[0, 0, 3, 3] == 1 and found.labels[0, 0, 7, 7] == 2


def test_a_rater_who_did_not_see_a_case_is_missing_there(tmp_path):
    written(tmp_path, "0001", ("1", "2"))
    written(tmp_path, "0002", ("2",))
    found = masks_of_raters(tmp_path, "refuge", size=32)
    assert (found.labels[1, 0] == MISSING).all() and not (found.labels[1, 1] == MISSING).any()


def test_qubiq_and_own_patterns(tmp_path):
    for case in ("case01", "case02"):
        (tmp_path / case).mkdir()
        volume = np.random.default_rng(0).random((1, 32, 32)).astype(np.float32) * 900
        SimpleITK.WriteImage(SimpleITK.GetImageFromArray(volume), str(tmp_path / case / "image.nii.gz"))
        for rater in range(1, 4):
            mask = SimpleITK.GetImageFromArray((filled(DISC)[None] > 0).astype(np.uint8))
            SimpleITK.WriteImage(mask, str(tmp_path / case / f"task01_seg0{rater}.nii.gz"))
    found = masks_of_raters(tmp_path, "qubiq", size=32)
    assert found.images.shape == (2, 1, 32, 32) and float(found.images.max()) == pytest.approx(1)
    assert found.labels.shape == (2, 3, 32, 32) and found.n_classes == 2 and found.names == ("01", "02", "03")
    own = masks_of_raters(tmp_path, ("{case}/image.nii.gz", ("{case}/task01_seg{rater}.nii.gz",)), size=32)
    assert own.labels.equal(found.labels)


def test_what_does_not_fit_is_told(tmp_path):
    with pytest.raises(ValueError, match="refuge, riga, qubiq"):
        masks_of_raters(tmp_path, "drishti")
    with pytest.raises(FileNotFoundError, match="is it the folder that holds the cases"):
        masks_of_raters(tmp_path, "refuge")
    written(tmp_path, "0001")
    with pytest.raises(FileNotFoundError, match="seg_rim"):
        masks_of_raters(tmp_path, (LAYOUTS["refuge"][0], ("{case}/{case}_seg_rim_{rater}.png",)))
    (tmp_path / "0001" / "0001_seg_cup_2.png").unlink()
    with pytest.raises(ValueError, match="rater 2 drew only a part"):
        masks_of_raters(tmp_path, "refuge")
    written(tmp_path / "b", "0001")
    written(tmp_path / "b", "0002", ())
    with pytest.raises(ValueError, match="0002.jpg has no masks"):
        masks_of_raters(tmp_path / "b", "refuge")
    written(tmp_path / "c", "0001", cup=slice(0, 12))
    with pytest.raises(ValueError, match="lies outside"):
        masks_of_raters(tmp_path / "c", "refuge")
    written(tmp_path / "d", "0001")
    imsave(tmp_path / "d" / "0001" / "0001_seg_cup_1.png", filled(CUP, 40), check_contrast=False)
    with pytest.raises(ValueError, match=r"\(40, 40\), its picture \(32, 32\)"):
        masks_of_raters(tmp_path / "d", "refuge")
    written(tmp_path / "f", "0001")
    smooth = filled(CUP)
    smooth[9, CUP], smooth[20, CUP] = 17, 128
    imsave(tmp_path / "f" / "0001" / "0001_seg_cup_1.png", smooth, check_contrast=False)
    with pytest.raises(ValueError, match=r"seg_cup_1.png holds 0, 0.0667, 0.502, 1 of full brightness.*smooth edges"):
        masks_of_raters(tmp_path / "f", "refuge")
    written(tmp_path / "e", "0001")
    whole = (tmp_path / "e" / "0001" / "0001_seg_cup_1.png").read_bytes()
    (tmp_path / "e" / "0001" / "0001_seg_cup_1.png").write_bytes(whole[:40])
    with pytest.raises(ValueError, match="0001_seg_cup_1.png cannot be read"):
        masks_of_raters(tmp_path / "e", "refuge")
