"""`course report` on data that cannot be read: one clear line, and nothing written."""

import re
from pathlib import Path

import numpy as np
import pytest
from test_mask_folders import SQUARE, saved
from typer.testing import CliRunner

from course_lib.cli import app

HEAD = "item,annotator,label\n"
GOOD = HEAD + "a,r,0\na,s,1\nb,r,1\nb,s,1\n"
TURNED = (0, 1, 0, 1, 0, 0, 0, 0, 1)

TABLES = {  # what is wrong: (the file, what the error says)
    "empty file": ("", "is empty; wanted a line of column names"),
    "blank lines only": ("\n \n\n", "is empty"),
    "only column names": (HEAD, "no row below them"),
    "no label column": ("item,annotator,verdict\na,r,0\n", "no column for the label, one of label"),
    "no annotator column": ("item,who,label\na,r,0\n", "no column for the annotator, one of annotator, worker"),
    "no item column": ("picture,annotator,label\na,r,0\n", "no column for the item, one of item, task"),
    "no column names": ("a,r,0\na,s,1\n", "no column for the item"),
    "duplicate label": (GOOD + "a,r,1\n", "lines 2 and 6: two labels of 'a' by 'r'"),
    "duplicate item": ("item,r,s\na,0,1\na,1,1\n", "lines 2 and 3: two rows of the item 'a'"),
    "duplicate column": ("item,r,r\na,0,1\n", "two columns of one name (r); give each"),
    "nameless column": (",item,r,s\n0,a,0,1\n", "column 1 has no name in the first line"),
    "one annotator": (HEAD + "a,r,0\nb,r,1\n", "there is one annotator, r"),
    "one class": (HEAD + "a,r,cat\na,s,cat\n", "all labels are 'cat'"),
    "no label at all": (
        HEAD + "a,r,\na,s,NaN\n",
        "holds no label at all: where one could stand, cells are blank or one of n/a, na, nan",
    ),
    "ragged rows": (GOOD + "c,r\n", "line 6, has 2 cells, but there are 3 columns"),
    "comma in a name": (GOOD + "c,Doe, Jane,1\n", "a comma inside a name needs quotes"),
    "no annotator's name": (GOOD + "c,,1\n", "line 6, names no annotator"),
    "no item's name": (GOOD + ",r,1\n", "line 6, names no item"),
    "negative label": (GOOD + "c,r,-1\n", "line 6: the label -1 is below 0"),
    "probabilities": (GOOD + "c,r,0.5\n", "line 6: a label is a name or a whole number; 0.5 is neither"),
    "labels of another column": (
        HEAD + "".join(f"i{n},r,x{n}\n" for n in range(40)),
        "40 different labels among 40",
    ),
    "two truths": ("item,annotator,label,truth\na,r,0,1\na,s,1,0\n", "line 3: another truth of 'a'"),
    "an open quote": (HEAD + 'a,"r,0\n', "line 2, has 2 cells"),
    "one column": ("label\n0\n1\n", "one column, 'label'"),
    "blanks between cells": ("-1 2 " * 40 + "\n1 -1\n", "one column, '-1 2 -1 2 -1 2 -1 2 -1 2 -1 2 -1 2 -1 2 '; are"),
    "rows without names": ("al,bo\n0,1\n1,1\n", "Or number the rows in a column `item`"),
    "Latin-1": (GOOD.replace("s", "J\u00f6rg").encode("latin-1"), "cannot be read as utf-8-sig"),
    "UTF-16": (GOOD.encode("utf-16"), "cannot be read as utf-8-sig"),
    "a picture": (b"\x89PNG\r\n\x1a\n\xff\xfe\x00", "cannot be read as utf-8-sig"),
}


def pair(one: np.ndarray, other: np.ndarray, suffix: str = ".png", **options):
    """A maker of two annotators' folders with one case each."""

    def make(root):
        saved(root / f"al/c1{suffix}", one)
        saved(root / f"bo/c1{suffix}", other, **options)

    return make


def whole(root):
    pair(SQUARE, SQUARE)(root)


def changed(change, make=whole):
    def made(root):
        make(root)
        change(root)

    return made


EDGE = (np.arange(10) == 2).astype(np.uint8)  # a column of the square
VOLUME = np.stack([SQUARE] * 4)
FOLDERS = {
    "nothing there": (lambda root: None, "there is no"),
    "an empty folder": (lambda root: root.mkdir(), "holds no folder; wanted one for each annotator"),
    "masks without folders": (lambda root: saved(root / "c1.png", SQUARE), "holds no folder"),
    "an annotator's empty folder": (changed(lambda root: (root / "cy").mkdir()), "cy holds no mask (nothing)"),
    "notes in place of masks": (
        changed(lambda root: ((root / "cy").mkdir(), (root / "cy/notes.txt").touch())),
        "cy holds no mask (notes.txt)",
    ),
    "one annotator": (lambda root: saved(root / "al/c1.png", SQUARE), "there is one annotator, al"),
    "sizes differ": (pair(SQUARE, SQUARE[:-1]), "bo/c1.png has the size (11, 10)"),
    "volumes of other depths": (pair(VOLUME, VOLUME[:3], ".nii.gz"), "has the size (3, 12, 10)"),
    "spacing differs": (pair(VOLUME, VOLUME, ".nii.gz", spacing=(0.7, 0.9, 3.0)), "has the spacing (0.7, 0.9, 3)"),
    "direction differs": (pair(VOLUME, VOLUME, ".nii.gz", direction=TURNED), "has the direction (0, 1, 0, 1"),
    "formats differ": (
        changed(lambda root: ((root / "bo/c1.png").unlink(), saved(root / "bo/c1.mha", SQUARE))),
        "of two formats",
    ),
    "unreadable PNG": (
        changed(lambda root: (root / "bo/c1.png").write_bytes(b"\x89PNG\r\n\x1a\n")),
        "bo/c1.png cannot be read",
    ),
    "unreadable NIfTI": (
        changed(lambda root: (root / "bo/c1.nii.gz").write_bytes(b"no"), pair(VOLUME, VOLUME, ".nii.gz")),
        "bo/c1.nii.gz cannot be read",
    ),
    "a pickle": (
        changed(lambda root: np.save(root / "bo/c1.npy", np.array([{}])), pair(SQUARE, SQUARE, ".npy")),
        "bo/c1.npy cannot be read",
    ),
    "probabilities": (pair(SQUARE, SQUARE * np.float32(0.4), ".npy"), "holds 0.4, and 20 more such numbers"),
    "NaN": (pair(SQUARE, np.where(SQUARE, np.nan, 0), ".npy"), "holds nan"),
    "colours": (pair(SQUARE, np.stack([SQUARE] * 3, 2)), "bo/c1.png has 3 colours a pixel"),
    "JPEG": (changed(lambda root: (root / "bo/c2.jpg").touch()), ".jpg changes the values of a mask"),
    "negative labels": (pair(SQUARE, SQUARE.astype(np.int16) - 1, ".npy"), "holds -1, below 0"),
    "pictures in place of masks": (
        pair(SQUARE, np.arange(120, dtype=np.uint8).reshape(12, 10)),
        "Are these pictures?",
    ),
    "blank masks": (pair(SQUARE * 0, SQUARE * 0), "are blank: nobody marked anything"),
    "smooth edges": (
        pair(SQUARE * 255, SQUARE * 255 - SQUARE // 2 - SQUARE * (EDGE * 100)),
        "resized with smooth edges",
    ),
    "four axes": (pair(SQUARE, np.zeros((2, 2, 12, 10), np.uint8), ".npy"), "wanted (H, W), or (D, H, W)"),
    "other names in each folder": (
        lambda root: [saved(root / f"{who}/c1_{who}.png", SQUARE) for who in ("al", "bo")],
        "no case has masks by two annotators (al: c1_al; bo: c1_bo)",
    ),
    "two masks of a case": (changed(lambda root: saved(root / "al/c1.npy", SQUARE)), "two masks of one case"),
    "a picture without a mask": (
        changed(lambda root: [saved(root / f"images/c{n}.png", SQUARE) for n in (1, 2)]),
        "c2 has a picture but no mask",
    ),
    "masks without a picture": (changed(lambda root: saved(root / "images/c0.png", SQUARE)), "c0 has a picture but"),
    "two pictures of a case": (
        changed(lambda root: [saved(root / f"images/c1{suffix}", SQUARE) for suffix in (".png", ".tif")]),
        "c1.tif and c1.png are two pictures of one case; keep one of them",
    ),
    "pictures of another kind": (
        changed(lambda root: ((root / "images").mkdir(), (root / "images/c1.webp").touch())),
        "images holds no picture (c1.webp); wanted one of each case",
    ),
    "grey pictures and one of colour": (
        changed(
            lambda root: (
                [saved(root / f"{who}/c2.png", SQUARE) for who in ("al", "bo", "images")],
                saved(root / "images/c1.png", np.stack([SQUARE] * 3, 2)),
            )
        ),
        "one number of channels: that of c2 has 1, that of c1 has 3. Save all grey",
    ),
    "a picture of another size": (
        changed(lambda root: saved(root / "images/c1.png", SQUARE[:5])),
        "images/c1.png has the size (5, 10)",
    ),
}


def gallery(**sizes):
    """A maker of a folder with a picture of each name, grey where a size has two numbers."""
    return lambda root: [saved(root / f"{name}.png", np.zeros(size, np.uint8)) for name, size in sizes.items()]


GALLERIES = {  # of the items a and b
    "no folder of pictures": (lambda root: None, "wanted a folder of pictures; p is none"),
    "an empty folder": (lambda root: root.mkdir(), "p holds no picture (nothing); wanted one of each item"),
    "notes in place of pictures": (
        lambda root: (root.mkdir(), (root / "a.txt").touch(), (root / ".b.png").touch()),
        "p holds no picture (.b.png, a.txt)",
    ),
    "an item without a picture": (
        gallery(a=(8, 8), c=(8, 8)),
        "p has no picture of 1 of 2 items, such as 'b'; pictures there are a, a.png, c, c.png",
    ),
    "two pictures of an item": (
        changed(lambda root: saved(root / "a.tif", SQUARE), gallery(a=(8, 8), b=(8, 8))),
        "a.png and a.tif are two pictures of the item 'a'",
    ),
    "grey and colour": (gallery(a=(8, 8), b=(8, 8, 3)), "one number of channels: a.png has 1, b.png has 3"),
    "a picture of no size": (gallery(a=(8, 8), b=(3, 8)), "b.png has 3 x 8 pixels; a picture has at least 4 a side"),
    "an unreadable picture": (
        changed(lambda root: (root / "b.png").write_bytes(b"\x89PNG\r\n\x1a\n"), gallery(a=(8, 8))),
        "b.png cannot be read as a picture",
    ),
}


def refused(words, says, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    done = CliRunner().invoke(app, ["report", *words])
    told = re.sub(r"\s+", " ", done.output)
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit), done.output
    assert says in told and told.count("course: ") == 1 and "Traceback" not in told
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("content", "says"), TABLES.values(), ids=TABLES)
def test_a_table_that_is_none_is_refused_in_words(tmp_path, monkeypatch, content, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(["t.csv"], says, tmp_path)


@pytest.mark.parametrize(("make", "says"), FOLDERS.values(), ids=FOLDERS)
def test_a_folder_that_does_not_fit_is_refused_in_words(tmp_path, monkeypatch, make, says):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "m")
    refused(["m"], says, tmp_path)


@pytest.mark.parametrize(("make", "says"), GALLERIES.values(), ids=GALLERIES)
def test_pictures_that_do_not_fit_the_table_are_refused_in_words(tmp_path, monkeypatch, make, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(GOOD)
    make(tmp_path / "p")
    refused(["t.csv", "--images", "p"], says, tmp_path)


def test_pictures_of_masks_that_lie_elsewhere_are_looked_at_as_well(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole(tmp_path / "m")
    refused(["m", "--images", "p"], "wanted a folder of pictures; p is none", tmp_path)
    gallery(c1=(5, 10))(tmp_path / "m/photos")  # not an annotator, though in the folder of annotators
    refused(["m", "--images", "m/photos"], "c1.png has the size (5, 10)", tmp_path)


def test_a_wrong_name_of_a_column_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(GOOD)
    whole(tmp_path / "m")
    for kind in ("item", "annotator", "label"):
        refused(["t.csv", f"--{kind}", "wer"], "has no column 'wer'; its columns are item, annotator, label", tmp_path)
    refused(["m", "--label", "wer"], "--label wer names a column of a CSV file, but m is a folder", tmp_path)
    (tmp_path / "t.csv").write_text(GOOD.replace("label", "verdict"))
    refused(["t.csv"], "say which it is: label=... (--label)", tmp_path)


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(GOOD)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.txt").write_text("years")
    refused(["t.csv", "--out", "thesis"], "thesis is not empty and was not made by `course`", tmp_path)


def test_a_folder_that_cannot_be_replaced_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(GOOD)
    (tmp_path / "disk").mkdir()
    monkeypatch.setattr("os.path.ismount", lambda path: Path(path).name == "disk")
    refused(["t.csv", "--out", "disk"], "disk cannot be replaced as a whole", tmp_path)
    assert CliRunner().invoke(app, ["report", "t.csv", "--out", "disk/report"]).exit_code == 0


def test_a_report_among_the_masks_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole(tmp_path / "m")
    refused(["m", "--out", "m/report"], "would be read as an annotator's folder", tmp_path)
    monkeypatch.chdir(tmp_path / "m")
    assert CliRunner().invoke(app, ["report", "."]).exit_code == 0  # .course is no annotator


def test_what_fails_while_it_is_written_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(GOOD)

    def full(*words):
        raise OSError("no space left on the disk")

    monkeypatch.setattr("course_lib.tables.write_crowdkit", full)
    refused(["t.csv", "--out", "r"], "no space left", tmp_path)


def test_a_wrong_code_or_class_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(GOOD)
    whole(tmp_path / "m")
    refused(["t.csv", "--classes", "cat,dog"], "['0', '1'], which are not among the classes", tmp_path)
    refused(["m", "--missing", "none"], "one whole number can mean no label; got none", tmp_path)
    refused(["m", "--classes", "a"], "hold the values (0, 1), but there are 1 names of classes", tmp_path)
    refused(["t.csv", "--encoding", "klingon"], "cannot be read as klingon", tmp_path)
