"""Networks on masks that disagree: what each method learns from, and the rows that come out."""

import math
import types
from functools import partial

import pytest
import torch

from course_lib import experiments, fusion
from course_lib.annotations import MISSING, Annotations
from course_lib.confusion import log
from course_lib.experiments import masks, pixels, units
from course_lib.methods.separate import Separate
from course_lib.methods.trace import Vanilla
from course_lib.networks import seeded, unet
from course_lib.training import fit, load, predict_log_p, save


@pytest.fixture
def tiny(monkeypatch):
    """Twelve pictures, one epoch: what an experiment runs, not how well."""
    few = types.SimpleNamespace(train=12, test=6, epochs=1, settle=0, batch_size=6, jobs=1)
    monkeypatch.setattr(masks, "sized", lambda *_, **__: few)


@pytest.mark.parametrize("name", ["mask-fusion", "masks-as-released", "masks-missing-foreground"])
def test_every_method_has_a_row_on_every_draw_and_the_rows_repeat(name, tiny):
    one, two = (experiments.run(name, seeds=2, size="ci", device="cpu", progress=False)["rows"] for _ in "ab")
    kinds = {(str(row["setting"]), row["method"], row["draw"]) for row in one}
    settings = {str(row["setting"]) for row in one}
    methods = {row["method"] for row in one}
    assert len(one) == len(kinds) == len(settings) * len(methods) * 2
    assert methods >= ({*masks.FUSIONS} if name == "mask-fusion" else {*masks.METHODS})
    for row, again in zip(one, two, strict=True):
        assert {"dice", "miou", "area"} <= set(row["metrics"])
        assert all(math.isfinite(v) and v >= 0 for v in row["metrics"].values())
        assert row["metrics"] == again["metrics"]


def test_runs_side_by_side_give_the_rows_of_runs_one_after_the_other():
    setting = {"scene": "digits", "annotators": "missing_foreground"}
    tasks = [(setting, seed, method) for seed in (0, 1) for method in ("mode_label", "pixel_joint")]
    work = partial(masks.one_run, size="ci", device="cpu", build=pixels.built, also=pixels.judged)
    alone, beside = (units.side_by_side(work, tasks, jobs=jobs, progress=False) for jobs in (1, 2))
    for task, one, two in zip(tasks, alone, beside, strict=True):
        assert (one["setting"], one["seed"], one["method"]) == task
        assert one["metrics"] == two["metrics"]


def test_an_error_in_one_of_many_runs_is_told_as_it_is():
    with pytest.raises(AttributeError, match="no_such_scene"):
        units.side_by_side(
            partial(masks.one_run, size="ci"),
            [({"scene": "no_such_scene", "annotators": "as_released"}, 0, "truth")],
            jobs=2,
            progress=False,
        )


def test_each_method_learns_from_what_its_name_says():
    drawn = masks.prepare({"scene": "digits", "annotators": "missing_foreground"}, 0, 6, 2, "ci")
    said = drawn.crowd.labels
    given = {method: masks.built(method, drawn, 0)[1] for method in masks.METHODS}
    assert given["truth"][:, 0].equal(drawn.train.truth)
    assert given["mean_label"].equal(said) and given["separate"].equal(said)
    assert given["mode_label"][:, 0].equal(fusion.majority(said, 2, generator=seeded(0)))
    assert given["staple"][:, 0].equal(fusion.staple(said, 2).labels)
    assert given["spatial_staple"][:, 0].equal(fusion.spatial_staple(said, 2).labels)
    first = {method: masks.built(method, drawn, 3)[0] for method in masks.METHODS}
    weights = [dict(m.named_parameters()) for name, m in first.items() if isinstance(m, Vanilla)]
    assert all(torch.equal(weights[0][k], w[k]) for w in weights for k in w)  # paired: the same first weights
    assert len(first["separate"].networks) == said.shape[1]


def test_draws_differ_in_noise_and_masks_and_share_the_digits():
    one, two = (masks.prepare({"scene": "digits", "annotators": "as_released"}, seed, 6, 4, "ci") for seed in (0, 1))
    assert one.train.truth.equal(two.train.truth) and not one.train.images.equal(two.train.images)
    assert not one.crowd.labels.equal(two.crowd.labels)
    assert not one.train.truth[:4].equal(one.test.truth)


def test_training_on_all_masks_is_training_on_their_mean():
    """The mean over labels of the cross-entropies is the cross-entropy against the mean label."""
    x, said = torch.rand(3, 1, 8, 8, generator=seeded(0)), torch.randint(2, (3, 4, 8, 8), generator=seeded(1))
    method = Vanilla(unet(1, 2, width=2, generator=seeded(2)))
    who = torch.arange(4).expand(3, 4)
    loss = method.loss((x, said, who, torch.arange(3)))
    soft = -(fusion.mean_label(said, 2) * method.log_p(x)).sum(1).mean()
    assert float(loss.detach()) == pytest.approx(float(soft.detach()), rel=1e-5)


# Separate networks


class Fixed(torch.nn.Module):
    """A network that always answers the same probabilities."""

    def __init__(self, p: list[float]) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(log(torch.tensor(p)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits[None, :, None, None].expand(len(x), -1, *x.shape[2:])


def test_each_annotators_network_is_scored_on_their_labels_alone():
    method = Separate([Fixed([0.9, 0.1]), Fixed([0.25, 0.75])])
    x = torch.zeros(1, 1, 1, 2)
    labels = torch.tensor([[[[0, 1]], [[1, MISSING]]]])
    wanted = -(math.log(0.9) + math.log(0.1) + math.log(0.75)) / 3
    assert float(method.loss((x, labels, torch.tensor([[0, 1]]), torch.arange(1))).detach()) == pytest.approx(wanted)
    short = method.loss((x, labels[:, 1:], torch.tensor([[1]]), torch.arange(1)))  # only annotator 2 was asked
    assert float(short.detach()) == pytest.approx(-math.log(0.75))
    assert float(method.loss((x, labels.fill_(MISSING), torch.tensor([[0, 1]]), torch.arange(1))).detach()) == 0


def test_their_truth_is_the_mean_of_what_all_would_say():
    method = Separate([Fixed([0.9, 0.1]), Fixed([0.25, 0.75])])
    found = method.log_p(torch.zeros(2, 1, 3, 3)).exp()
    assert found.shape == (2, 2, 3, 3) and torch.allclose(found[:, 0], torch.tensor(0.575))


def test_separate_networks_learn_save_and_load(tmp_path):
    drawn = masks.prepare({"scene": "digits", "annotators": "as_released"}, 0, 40, 2, "ci")
    method = Separate([unet(1, 2, width=2, generator=seeded(r)) for r in range(5)])
    some = drawn.crowd.labels.clone()
    some[::2, 1] = MISSING  # annotator 2 saw every other picture
    history = fit(
        method, Annotations(drawn.crowd.images, some, n_classes=2), epochs=6, lr=1e-2, batch_size=8, progress=False
    )
    assert history.loss[-1] < history.loss[0] - 0.1
    save(method, tmp_path / "m.pt")
    again = load(Separate([unet(1, 2, width=2, generator=seeded(9)) for _ in range(5)]), tmp_path / "m.pt")
    assert torch.equal(predict_log_p(again, drawn.test.images), predict_log_p(method, drawn.test.images))


def test_the_ladder_gives_a_row_a_method_a_draw_with_what_needs_no_truth(tiny):
    rows = pixels.ladder("digits", "as_released", pixels.PLACES, seeds=1, size="ci", device="cpu", progress=False)
    wanted = [(n, m) for n, methods in zip((5, 1), pixels.PLACES, strict=True) for m in methods]
    assert [(r["setting"]["per_item"], r["method"]) for r in rows] == wanted
    for row in rows:
        assert {"dice", "cm_rmse", "label_nll", "joint_nll", "foreground", "largest_annotator"} <= set(row["metrics"])
        assert all(math.isfinite(value) for value in row["metrics"].values())
    assert {m for methods in (*pixels.FULL, *pixels.ONE_LABEL) for m in methods} >= set(masks.METHODS) - {"separate"}
    drawn = masks.prepare({"scene": "digits", "annotators": "as_released"}, 0, 12, 6, "ci")
    method, _ = pixels.built("oracle", drawn, 0)
    oracle = pixels.judged(method, drawn, rows[0]["setting"], 0)
    assert oracle["cm_rmse"] < 1.3 * oracle["cm_rmse_constant"] < oracle["cm_rmse_identity"]


def test_the_oracle_knows_each_annotators_mean_matrix():
    drawn = masks.prepare({"scene": "digits", "annotators": "as_released"}, 0, 12, 2, "ci")
    A = pixels.counted(drawn.crowd.labels, drawn.train.truth, 2)[0, ..., 0, 0]
    marked = drawn.train.truth == 1
    assert torch.equal(A[0], torch.eye(2)) and torch.equal(A[4], torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
    share = drawn.crowd.labels[:, 2][marked].float().mean()
    assert float(A[2, 1, 1]) == pytest.approx(float(share), abs=1e-5)


@pytest.mark.parametrize("name", ["ladder-by-place", "ladder-by-contrast", "ladder-shapes", "low-rank"])
def test_each_ladder_has_every_method_once_on_every_setting(name, tiny):
    rows = experiments.run(name, seeds=1, size="ci", device="cpu", progress=False)["rows"]
    assert len(rows) == len({(r["method"], str(r["setting"])) for r in rows}) >= 5
    assert all(math.isfinite(v) for r in rows for v in r["metrics"].values())
    assert len({(r["setting"]["scene"], r["setting"]["annotators"]) for r in rows}) == 1


def test_careless_annotators_are_themselves_in_a_share_of_the_pictures(tiny):
    rows = pixels.noise_curve(seeds=1, size="ci", device="cpu", progress=False)
    share = [row["setting"]["careless"] for row in rows]
    assert sorted(set(share)) == [0.2, 0.4, 0.6, 0.8, 1.0] and len(rows) == 25
    dice = {row["setting"]["careless"]: row["metrics"]["annotator_dice"] for row in rows}
    assert dice[0.2] > dice[0.6] > dice[1.0]


def test_the_lambda_curve_gives_each_run_the_lambda_of_its_setting(tiny, monkeypatch):
    seen, built = [], pixels.built
    monkeypatch.setattr(pixels, "built", lambda *a, lam: seen.append(lam) or built(*a, lam=lam))
    rows = pixels.lambda_curve(seeds=1, size="ci", device="cpu", progress=False)
    assert [row["setting"]["lam"] for row in rows] == seen and sorted(set(seen)) == list(pixels.LAMBDAS)


def test_a_method_without_matrices_is_judged_by_counted_ones(tiny):
    drawn = masks.prepare({"scene": "digits", "annotators": "as_released"}, 0, 12, 6, "ci")

    class Knows(torch.nn.Module):
        """Says the truth, and nothing of anybody."""

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def log_p(self, x):
            part = drawn.train if len(x) == 12 else drawn.test
            return log(torch.nn.functional.one_hot(part.truth[: len(x)], 2).movedim(-1, 1).float())

        def log_A(self, x):
            return None

    numbers = pixels.judged(Knows(), drawn, {"annotators": "as_released"}, 0)
    assert numbers["cm_rmse"] < 1.3 * numbers["cm_rmse_constant"] and 0.3 < numbers["annotator_dice"] < 0.7


def numbers(foreground: float, joint_nll: float) -> dict[str, float]:
    return {"foreground": foreground, "largest_annotator": 0.2, "joint_nll": joint_nll}


def test_the_rule_leaves_out_who_finds_nothing_or_all_and_then_takes_the_likeliest():
    runs = {
        "none": numbers(0.0, 0.05),
        "wide": numbers(0.19, 0.04),
        "good": numbers(0.1, 0.2),
        "fair": numbers(0.1, 0.3),
    }
    assert [pixels.suspicious(n) for n in runs.values()] == [True, True, False, False]
    assert pixels.picked(runs) == "good"
    assert pixels.picked({name: runs[name] for name in ("none", "wide")}) == "wide"  # all are suspect
