"""Table 3 and the LIDC rows: who runs on what, and that the numbers are of what they say."""

import math
import types

import pytest
import torch

from course_lib import experiments, metrics
from course_lib.annotations import MISSING
from course_lib.confusion import log
from course_lib.experiments import masks, pixels, plausible
from course_lib.methods.separate import Separate
from course_lib.networks import seeded

LIDC_SETTING = {"scene": "lidc", "annotators": "readers"}


@pytest.fixture
def tiny(monkeypatch):
    """Twelve pictures, one epoch: what an experiment runs, not how well."""
    few = types.SimpleNamespace(train=24, test=16, epochs=1, settle=0, batch_size=6, jobs=1)
    monkeypatch.setattr(masks, "sized", lambda *_, **__: few)


def ran(name: str) -> list[dict]:
    return experiments.run(name, seeds=1, size="ci", device="cpu", progress=False)["rows"]


@pytest.mark.parametrize("scene", ["digits", "tumours", "lidc"])
def test_every_method_of_table_3_is_judged_by_its_masks(scene, tiny):
    rows = ran(f"plausible-{scene}")
    assert [r["method"] for r in rows] == list(plausible.MANY_LIDC if scene == "lidc" else plausible.MANY)
    for row in rows:
        m = row["metrics"]
        assert all(math.isfinite(v) for v in m.values()) and m["ged_all_pairs"] >= -1e-5  # rounding
        assert m["ged"] <= m["ged_all_pairs"] + 1e-6  # only where masks are drawn do they differ
        assert m["ged"] == m["ged_all_pairs"] or row["method"] in ("probabilistic", "mc_dropout")
    masks_each = {r["method"]: r["metrics"]["n_masks"] for r in rows}
    assert masks_each["probabilistic"] == 16 and masks_each["ensemble"] == 3 and masks_each["label_sampling"] == 1
    assert masks_each["heads"] == masks_each["pixel"] == (4 if scene == "lidc" else 5)


@pytest.mark.parametrize(
    ("name", "methods"), [("lidc-dense", plausible.LIDC_DENSE), ("lidc-one-label", plausible.LIDC_ONE)]
)
def test_the_lidc_tables_have_every_method_and_every_stand_in_for_the_truth(name, methods, tiny):
    rows = ran(name)
    wanted = [(per_item, method) for per_item, names in methods.items() for method in names]
    assert [(r["setting"]["per_item"], r["method"]) for r in rows] == wanted
    for row in rows:
        assert {"dice", "dice_vote", "dice_spatial_staple", "dice_reader", "cm_error"} <= set(row["metrics"])
        assert all(math.isfinite(v) and v >= 0 for v in row["metrics"].values())


def test_draws_of_lidc_part_patients_and_differ():
    parts = [plausible.lungs(seed, 12, 8) for seed in (0, 1)]
    for train, test in parts:
        assert len(train.patients) == 12 and len(test.patients) == 8 and not set(train.patients) & set(test.patients)
    assert parts[0][1].patients != parts[1][1].patients
    drawn = plausible.prepare(LIDC_SETTING | {"per_item": 1}, 0, 12, 8, "ci")
    assert ((drawn.crowd.labels != MISSING).flatten(2).any(2).sum(1) == 1).all()
    assert plausible.masks_of_test(drawn, LIDC_SETTING, 0).equal(parts[0][1].masks)
    assert metrics.dice(drawn.test.truth, parts[0][1].masks[:, 0], 2, empty=1.0).foreground > 0.7


class Says(Separate):
    """Five annotators who always say the same of the pictures they know."""

    def __init__(self, said: torch.Tensor):
        torch.nn.Module.__init__(self)
        self.said, self.weight = said, torch.nn.Parameter(torch.zeros(1))

    def log_p_each(self, x: torch.Tensor) -> torch.Tensor:
        return log(torch.nn.functional.one_hot(self.said[: len(x)], 2).movedim(-1, 2).float())


def test_whoever_says_what_people_say_has_distance_0():
    setting = {"scene": "digits", "annotators": "missing_foreground"}
    drawn = plausible.prepare(setting, 0, 8, 6, "ci")
    said = plausible.masks_of_test(drawn, setting, 0)
    found = plausible.spread(Says(said), drawn, setting, 0)
    assert found["ged"] == pytest.approx(0, abs=1e-6) and found["matched_iou"] == pytest.approx(1)
    assert found["diversity"] == pytest.approx(found["diversity_people"]) and found["calibration_error"] < 0.01
    turned = plausible.spread(Says(said.roll(1, 0)), drawn, setting, 0)
    assert turned["ged"] > 0.3 and turned["matched_iou"] < 0.7


def test_mean_columns_are_means_over_the_pixels_of_each_class():
    log_A = torch.randn(2, 3, 2, 2, 4, 5, generator=seeded(0)).log_softmax(2)
    truth = torch.randint(2, (2, 4, 5), generator=seeded(1))
    found = plausible.mean_columns(log_A, truth)
    wanted = torch.zeros(3, 2, 2)
    for j in range(2):
        places = [(n, y, x) for n in range(2) for y in range(4) for x in range(5) if truth[n, y, x] == j]
        wanted[:, :, j] = sum(log_A[n, :, :, j, y, x].exp() for n, y, x in places) / len(places)
    assert torch.allclose(found, wanted, atol=1e-6) and torch.allclose(found.sum(1), torch.ones(3, 2), atol=1e-5)
    same = torch.randn(1, 3, 2, 2, 1, 1, generator=seeded(2)).log_softmax(2)
    assert torch.allclose(plausible.mean_columns(same, truth), same[0, ..., 0, 0].exp(), atol=1e-6)


def test_what_an_annotator_says_is_the_mean_over_annotators():
    drawn = plausible.prepare({"scene": "digits", "annotators": "missing_foreground"}, 0, 8, 4, "ci")
    for name in ("pixel", "heads", "probabilistic", "pixel_shared"):
        method, _ = plausible.built(name, drawn, 0)
        says = plausible.spoken(method.eval(), drawn.test.images).exp()
        assert says.shape == (4, 2, 28, 28) and torch.allclose(says.sum(1), torch.ones(()), atol=1e-5)
    method, _ = plausible.built("pixel", drawn, 0)
    each = method.eval().log_says(drawn.test.images).exp()
    assert torch.allclose(plausible.spoken(method, drawn.test.images).exp(), each.mean(1), atol=1e-6)
    assert pixels.built("pixel", drawn, 0)[1].equal(drawn.crowd.labels)
