"""Part IV's experiments on a few small pictures: every method has a row, what is named is what is trained."""

import math
import types

import pytest
import torch

from course_lib.annotations import MISSING
from course_lib.experiments import EXPERIMENTS, coarse, masks
from course_lib.observers import Readings
from course_lib.strokes import NEGATIVE, POSITIVE

MINE = [name for name in EXPERIMENTS if name.startswith("coarse-")]


def photographs():
    """Fourteen children's eyes; each has its own grey, and the second observer draws the next row."""
    masks = torch.zeros(28, 2, 80, 80, dtype=torch.long)
    masks[:, 0, ::5], masks[:, 1, 1::5] = 1, 1
    greys = (torch.arange(28) / 28)[:, None, None, None].expand(28, 3, 80, 80)
    return Readings(masks, greys, tuple(f"{i // 2:02d}" for i in range(28)), identities=True)


@pytest.fixture
def tiny(monkeypatch):
    few = types.SimpleNamespace(train=4, test=2, epochs=1, settle=1, batch_size=4, jobs=1)
    for module in (coarse, masks):
        monkeypatch.setattr(module, "sized", lambda *_, **__: few)
    monkeypatch.setattr(coarse, "WIDTH", 4)
    monkeypatch.setattr(coarse, "_eyes", photographs)  # CHASE_DB1 does not ship


@pytest.mark.parametrize("name", MINE)
def test_every_method_has_a_row_on_every_draw(name, tiny):
    rows = EXPERIMENTS[name](seeds=1, size="ci", device="cpu", progress=False)
    kinds = {(str(row["setting"]), row["method"], row["draw"]) for row in rows}
    assert len(rows) == len(kinds)
    for row in rows:
        assert set(row["metrics"]) == {"miou", "iou_foreground", "foreground", "foreground_truth"}
        assert all(math.isfinite(v) and 0 <= v <= 1 for v in row["metrics"].values())


def test_a_method_is_given_its_own_strokes_alone():
    setting = coarse.given("digits")[0]
    drawn = coarse.prepare(setting, 0, 6, 2)
    for method, shown in (("positive_cm", POSITIVE), ("negative", NEGATIVE)):
        labels = coarse.built(method, drawn, setting, 0)[1]
        assert (labels[:, 1 - shown] == MISSING).all() and (labels[:, shown] != MISSING).all()
    missing = setting | {"unmarked": "missing"}
    assert coarse.built("both", drawn, missing, 0)[1].equal(drawn.crowd.labels)
    assert coarse.built("strong", drawn, setting, 0)[1][:, 0].equal(drawn.train.truth)


def test_semi_has_strokes_where_the_others_have_nothing():
    setting = coarse.given("digits", first=2 / 3, unmarked="missing")[0]
    drawn = coarse.prepare(setting, 0, 6, 2)
    said = drawn.crowd.labels
    semi, strong, both = (coarse.built(m, drawn, setting, 0)[1] for m in ("semi", "strong", "both"))
    assert semi[:4, 2].equal(drawn.train.truth[:4]) and semi[4:, :2].equal(said[4:])
    assert (semi[4:, 2] == MISSING).all() and (semi[:4, :2] == MISSING).all()
    assert strong[:4, 0].equal(drawn.train.truth[:4]) and (strong[4:] == MISSING).all()
    assert both[:4].equal(said[:4]) and (both[4:] == MISSING).all()


def test_no_child_is_in_training_and_test(tiny):
    parts = [coarse.retina_patches(40, part, coarse.seeded(0)) for part in ("train", "test")]
    greys = [set(part[0].images.mean((1, 2, 3)).mul(28).round().div(2).floor().tolist()) for part in parts]
    assert greys[1] == {11, 12, 13} and not greys[0] & greys[1]
    first, second = parts[1][0].truth, parts[1][1]
    assert first.shape == second.shape == (40, 48, 48) and (first * second).sum() == 0


def test_without_a_matrix_nothing_but_the_network_is_learned():
    setting = coarse.given("streets")[0]
    drawn = coarse.prepare(setting, 0, 3, 2)
    learned = lambda m: [n for n, p in coarse.built(m, drawn, setting, 0)[0].cm.named_parameters() if p.requires_grad]  # noqa: E731
    assert not learned("both") and not learned("strong")
    assert learned("both_cm") and learned("both_global") == ["cm.last"]


def test_the_transpose_is_that_of_how_people_deny():
    setting = {"scene": "two_digits", "denied": "bent", "share": 1.0}
    drawn = coarse.prepare(setting, 0, 4, 2)
    M = coarse.built("transposed", drawn, setting, 0)[0].cm.log_M().exp()
    assert torch.allclose(M, coarse.BENT.T, atol=1e-3)
    naive = coarse.built("naive", drawn, setting, 0)[0].cm
    assert naive.kinds == ("positive", "positive")


def test_both_sides_of_a_street_come_from_other_seeds():
    drawn = coarse.prepare(coarse.given("streets")[0], 0, 3, 3)
    assert not drawn.train.images.equal(drawn.test.images)


def test_grabcut_says_what_it_needs_before_any_work(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cv2", None)
    monkeypatch.setattr(coarse, "one_run", lambda *_, **__: pytest.fail("work was begun"))
    with pytest.raises(ImportError, match="coarse"):
        EXPERIMENTS["coarse-table1"](seeds=1, size="ci", progress=False)
