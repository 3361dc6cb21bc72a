"""Masks in folders of annotators: read in every format, and written back where they lay."""

import sys

import numpy as np
import pytest
import SimpleITK
import torch
from PIL import Image

from course_lib.annotations import MISSING, Annotations
from course_lib.files import whole_folder
from course_lib.mask_folders import to_sitk, write_masks

SQUARE = np.zeros((12, 10), np.uint8)
SQUARE[3:8, 2:6] = 1


def saved(path, values, *, spacing=(0.7, 0.9, 2.5), direction=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix in (".png", ".tif"):
        Image.fromarray(values).save(path)
    else:
        image = SimpleITK.GetImageFromArray(values)
        image.SetSpacing(spacing[: values.ndim])
        image.SetOrigin((-12.5, 3.25, 77.0)[: values.ndim])
        if direction is not None:
            image.SetDirection(direction)
        SimpleITK.WriteImage(image, str(path))
    return path


@pytest.mark.parametrize("suffix", [".png", ".npy", ".tif", ".nii", ".nii.gz", ".mha", ".nrrd", ".mhd"])
def test_masks_come_back_in_their_format_with_their_values(tmp_path, suffix):
    for name, shift in (("al", 0), ("bo", 1), ("cy", 0)):
        saved(tmp_path / f"in/{name}/one{suffix}", np.roll(SQUARE, shift, 0) * 255)
    found = Annotations.from_masks(tmp_path / "in")
    assert found.labels.shape == (1, 3, 12, 10) and found.n_classes == 2 and found.classes == ("0", "255")
    assert found.labels[0, 1].equal(torch.from_numpy(np.roll(SQUARE, 1, 0).astype(np.int64)))
    written = write_masks(tmp_path / "out", found, found.labels[:, 0])
    assert written[0].name == f"one{suffix}"
    back = Annotations.from_masks(_alone(tmp_path))
    assert back.labels[:, 0].equal(found.labels[:, 0]) and back.classes == ("0", "255")
    assert back.sources[0][0].geometry == found.sources[0][0].geometry
    assert back.sources[0][0].dtype == "uint8"


def _alone(tmp_path):
    (tmp_path / "again").mkdir()
    (tmp_path / "out").rename(tmp_path / "again/fused")
    return tmp_path / "again"


def test_a_palette_is_read_by_its_numbers(tmp_path):
    picture = Image.fromarray(SQUARE).convert("P")
    picture.putdata(SQUARE.ravel().tolist())
    picture.putpalette([0, 0, 0, 250, 10, 10])
    for name in ("al", "bo"):
        (tmp_path / name).mkdir()
        picture.save(tmp_path / name / "one.png")
    assert Annotations.from_masks(tmp_path).labels[0, 0].equal(torch.from_numpy(SQUARE.astype(np.int64)))


def test_an_annotator_without_a_file_is_missing_there_and_small_cases_have_a_rim(tmp_path):
    saved(tmp_path / "al/c2.png", SQUARE)
    saved(tmp_path / "al/c10.png", SQUARE[:9, :8])
    saved(tmp_path / "bo/c10.png", SQUARE[:9, :8])
    found = Annotations.from_masks(tmp_path)
    assert found.item_names == ("c2", "c10") and found.names == ("al", "bo")
    assert (found.labels[0, 1] == MISSING).all() and not (found.labels[0, 0] == MISSING).any()
    assert (found.labels[1, :, 9:] == MISSING).all() and (found.labels[1, :, :, 8:] == MISSING).all()
    assert not (found.labels[1, :, :9, :8] == MISSING).any()


def test_a_volume_in_a_box_goes_back_to_its_place(tmp_path):
    volume = np.zeros((7, 20, 22), np.int16)
    volume[2:5, 6:9, 10:16] = 3
    for name in ("al", "bo"):
        saved(tmp_path / f"in/{name}/scan.nii.gz", volume)
    found = Annotations.from_masks(tmp_path / "in", box=1)
    assert found.labels.shape == (5, 2, 5, 8) and found.item_names[0] == "scan, slice 1"
    (path,) = write_masks(tmp_path / "out", found, found.labels[:, 0])
    back = SimpleITK.ReadImage(str(path))
    assert back.GetPixelID() == SimpleITK.sitkInt16 and (SimpleITK.GetArrayFromImage(back) == volume).all()
    assert (SimpleITK.GetArrayFromImage(to_sitk(found, found.labels[:, 1])["scan"]) == volume).all()


def test_three_classes_and_a_code_for_no_label(tmp_path):
    mask = SQUARE * 2
    mask[0, 0], mask[11, 9] = 5, 255
    for name in ("al", "bo"):
        saved(tmp_path / name / "one.png", mask)
    found = Annotations.from_masks(tmp_path, classes=("none", "disc", "cup"), missing=255)
    assert found.n_classes == 3 and found.classes[2] == "cup"
    assert found.labels[0, 0, 0, 0] == 2 and found.labels[0, 0, 11, 9] == MISSING and found.labels[0, 0, 4, 4] == 1


def test_a_class_that_nobody_used_is_kept_where_it_is_named(tmp_path):
    for name in ("al", "bo"):
        saved(tmp_path / f"in/{name}/one.png", SQUARE * 2)
    found = Annotations.from_masks(tmp_path / "in", classes=("none", "disc", "cup"))
    assert found.n_classes == 3 and found.labels.unique().tolist() == [0, 2]
    (path,) = write_masks(tmp_path / "out", found, found.labels[:, 0])
    assert (np.array(Image.open(path)) == SQUARE * 2).all()


@pytest.mark.parametrize("values", [(0, 255), (0, 128, 255), (0, 85, 170, 255), (0, 1, 2), (0, 3), (0, 50, 100)])
def test_values_that_look_like_classes_are_classes(tmp_path, values):
    mask = np.resize(np.array(values, np.uint8), (12, 10))
    for name in ("al", "bo"):
        saved(tmp_path / name / "one.png", mask)
    assert Annotations.from_masks(tmp_path).classes == tuple(map(str, values))


@pytest.mark.parametrize("values", [(0, 17, 128, 254, 255), (0, 254, 255), (0, 1, 2, 255), (0, 64, 255)])
def test_smooth_edges_and_a_code_for_no_label_are_no_classes_unless_named(tmp_path, values):
    mask = np.resize(np.array(values, np.uint8), (12, 10))
    for name in ("al", "bo"):
        saved(tmp_path / name / "one.png", mask)
    with pytest.raises(ValueError, match=rf"hold the values \({', '.join(map(str, values))}\); is 255"):
        Annotations.from_masks(tmp_path)
    names = [f"class {value}" for value in values]
    assert Annotations.from_masks(tmp_path, classes=names).n_classes == len(values)
    if values == (0, 1, 2, 255):
        assert Annotations.from_masks(tmp_path, missing=255).n_classes == 3


def test_only_the_declared_code_means_no_label(tmp_path):
    odd = SQUARE.astype(np.int16)
    odd[0, :2] = 255, -4
    for name in ("al", "bo"):
        saved(tmp_path / name / "one.npy", odd)
    for missing in (None, -1, 255):
        with pytest.raises(ValueError, match="one.npy holds -4, below 0"):
            Annotations.from_masks(tmp_path, missing=missing)


def test_pictures_of_the_same_names_become_images(tmp_path):
    for case in ("a", "b"):
        saved(tmp_path / f"al/{case}.png", SQUARE)
        saved(tmp_path / f"images/{case}.png", np.full((12, 10, 3), 51, np.uint8))
    found = Annotations.from_masks(tmp_path)
    assert found.names == ("al",) and found.images.shape == (2, 3, 12, 10)
    assert float(found.images.max()) == pytest.approx(0.2)


@pytest.mark.parametrize("suffix", [".png", ".npy", ".tif"])
def test_masks_of_one_bit_come_back_as_one_bit(tmp_path, suffix):
    for name in ("al", "bo"):
        saved(tmp_path / f"in/{name}/one{suffix}", SQUARE > 0)
    found = Annotations.from_masks(tmp_path / "in")
    (path,) = write_masks(tmp_path / "out", found, found.labels[:, 0])
    back = np.load(path) if suffix == ".npy" else np.array(Image.open(path))
    assert back.dtype == bool and (back == (SQUARE > 0)).all()


def test_a_value_that_only_the_second_annotators_format_holds_is_written_whole(tmp_path):
    saved(tmp_path / "in/al/one.png", SQUARE * 0)
    saved(tmp_path / "in/bo/one.png", SQUARE.astype(np.uint16) * 300)
    found = Annotations.from_masks(tmp_path / "in")
    (path,) = write_masks(tmp_path / "out", found, found.labels[:, 1])
    assert np.unique(np.array(Image.open(path))).tolist() == [0, 300]  # in 8 bits it would be 44


def test_a_name_is_one_whether_its_umlaut_is_a_letter_or_two(tmp_path):
    saved(tmp_path / "al/K\u00fche.png", SQUARE)
    saved(tmp_path / "bo/Ku\u0308he.png", SQUARE)  # as a Mac writes it
    saved(tmp_path / "images/Ku\u0308he.png", SQUARE)
    (tmp_path / "bo/c2.png").mkdir()  # a folder is no mask, whatever its name
    found = Annotations.from_masks(tmp_path)
    assert found.item_names == ("K\u00fche",) and found.observed.all() and len(found.images) == 1


def test_an_uncertainty_is_written_as_floats(tmp_path):
    saved(tmp_path / "in/al/one.png", SQUARE)
    saved(tmp_path / "in/al/two.png", SQUARE)
    found = Annotations.from_masks(tmp_path / "in")
    paths = write_masks(tmp_path / "out", found, torch.full((2, 12, 10), 0.25))
    assert [p.name for p in paths] == ["one.npy", "two.npy"] and np.load(paths[0]).max() == 0.25


def test_half_a_volume_and_a_full_folder_are_refused(tmp_path):
    saved(tmp_path / "in/al/scan.nii.gz", np.stack([SQUARE] * 3))
    found = Annotations.from_masks(tmp_path / "in")
    with pytest.raises(ValueError, match="2 of 3 slices of scan"):
        write_masks(tmp_path / "out", found.items([0, 2]), found.labels[[0, 2], 0])
    with pytest.raises(FileExistsError, match="name a new one"):
        write_masks(tmp_path / "in", found, found.labels[:, 0])
    with pytest.raises(ValueError, match="did not come from mask files"):
        write_masks(tmp_path / "out", Annotations(None, found.labels, 2), found.labels[:, 0])
    assert [p.name for p in tmp_path.iterdir()] == ["in"]


def test_without_simpleitk_one_error_names_the_extra(tmp_path, monkeypatch):
    saved(tmp_path / "al/scan.nii.gz", SQUARE)
    monkeypatch.setitem(sys.modules, "SimpleITK", None)
    with pytest.raises(ImportError, match=r"pip install 'course_lib\[medical-io\]'"):
        Annotations.from_masks(tmp_path)


def test_a_folder_is_written_whole_or_not_at_all(tmp_path):
    old = tmp_path / "out"
    old.mkdir()
    (old / "before").touch()
    with pytest.raises(RuntimeError, match="midway"), whole_folder(old) as part:
        (part / "after").touch()
        raise RuntimeError("midway")
    assert [p.relative_to(tmp_path).as_posix() for p in sorted(tmp_path.rglob("*"))] == ["out", "out/before"]
    with whole_folder(old) as part:
        (part / "after").touch()
    assert [p.relative_to(tmp_path).as_posix() for p in sorted(tmp_path.rglob("*"))] == ["out", "out/after"]
