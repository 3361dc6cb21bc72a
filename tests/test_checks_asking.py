"""Chapter 20: what its exercises rest on; the exercises themselves are tested with all others."""

import pytest
import torch
from exercises import defined

from course_lib import asking, data, experiments
from course_lib.annotations import MISSING
from course_lib.checks import CheckFailed
from course_lib.checks import asking as checks
from course_lib.experiments import asking as trial
from course_lib.networks import seeded
from course_lib.style import interval


def test_at_one_price_for_all_the_best_pair_is_the_most_informative_one():
    per_price = defined(20, "solution")["per_price"]
    worth = torch.rand(6, 3, generator=seeded(0))
    labels = torch.full((6, 3), MISSING)
    image, who = per_price(worth, labels, torch.full((3,), 7.0))
    assert worth[image, who] == worth.max()
    labels[image, who] = 0
    assert per_price(worth, labels, torch.ones(3)) != (image, who)


def test_a_very_dear_annotator_is_not_asked():
    per_price = defined(20, "solution")["per_price"]
    assert per_price(checks.WORTH, checks.LABELS, torch.tensor([1.0, 1.0, 1000.0]))[1] != 2


def test_years_are_pseudo_counts_that_the_library_takes():
    years_prior = defined(20, "solution")["years_prior"]
    prior = years_prior(torch.tensor([0.0, 5.0, 100.0]), 5, 4.0)
    assert torch.allclose(prior.sum(1), torch.full((3, 5), 4.0))
    assert torch.allclose(prior[0], torch.full((5, 5), 0.8))  # no years: a guess
    assert prior[2, 1, 1] / 4 == pytest.approx(0.95, abs=1e-4)
    p, counts = asking.believe(torch.tensor([[1, MISSING, 0]]), torch.full((1, 5), 0.2).log(), prior)
    assert p[0].argmax() == 0 and counts.shape == (3, 5, 5)  # the one with years is believed


def test_limits_are_kept_and_the_batch_is_whole_where_it_can_be():
    with_limits = defined(20, "solution")["with_limits"]
    worth, labels = torch.rand(20, 4, generator=seeded(1)), torch.full((20, 4), MISSING)
    pairs = with_limits(worth, labels, 12, 3)
    assert len(pairs) == 12 and pairs[:, 1].bincount().max() <= 3 and len(pairs[:, 0].unique()) == 12
    assert len(with_limits(worth, labels, 12, 2)) == 8  # four people, two each
    assert worth[tuple(with_limits(worth, labels, 1, 1)[0])] == worth.max()


def test_pairs_are_right_in_any_order(capsys):
    with_limits = defined(20, "solution")["with_limits"]
    checks.with_limits(lambda *a: with_limits(*a).flip(0))
    assert "right" in capsys.readouterr().out


def test_a_flat_list_of_pairs_is_refused_with_its_shape():
    with pytest.raises(CheckFailed, match=r"wanted \(4, 2\)"):
        checks.with_limits(lambda *a: torch.arange(8))


def test_labels_needed_is_the_first_crossing():
    labels_needed = defined(20, "solution")["labels_needed"]
    assert labels_needed(torch.tensor([0.0, 10.0]), torch.tensor([0.0, 1.0]), 0.3) == pytest.approx(3.0)
    assert labels_needed(checks.BUDGETS, checks.CURVE, checks.GOAL) == pytest.approx(250 + 150 * 8 / 9, abs=1e-3)


def gaps(method: str, metric: str = "fused_area", other: str = "random_random") -> dict[str, tuple[float, float]]:
    """Of each world, the paired difference in the committed results: mean and half width of its 95 % interval."""
    result = experiments.read(data.shipped("results/ask-budget.lesson.json"))
    value = lambda m, regime: experiments.values(result, m, metric, regime=regime)  # noqa: E731
    return {regime: interval(value(method, regime) - value(other, regime)) for regime in trial.REGIMES}


def ahead(found: dict[str, tuple[float, float]]) -> set[str]:
    return {regime for regime, (mean, half) in found.items() if mean > half}


def test_the_chapters_sentences_on_the_four_worlds_are_what_the_results_say():
    assert ahead(gaps("information_random")) >= {"by_class", "equal", "hard_images"}  # the image, nearly everywhere
    assert ahead(gaps("random_draw")) == {"unequal"}  # the person, where few are good
    assert ahead(gaps("information_draw")) == set(trial.REGIMES)
    for rule in ("least_random", "disagree_random"):  # no better than chance where people differ
        assert not ahead(gaps(rule)) & {"unequal", "by_class"} and gaps(rule)["unequal"][0] < -gaps(rule)["unequal"][1]
    pool, network = gaps("information_draw"), gaps("information_draw", "area")
    assert all(network[regime][0] < pool[regime][0] for regime in trial.REGIMES)  # the network gains less
    assert ahead(gaps("information_draw", other="random_draw")) == {"unequal", "by_class", "equal"}


def test_every_run_of_the_results_has_bought_the_same_number_of_labels():
    for name in ("ask-budget", "ask-beliefs"):
        rows = experiments.read(data.shipped(f"results/{name}.lesson.json"))["rows"]
        assert {max(int(m.split("_")[1]) for m in r["metrics"] if m.startswith("fused_1")) for r in rows} == {1320}
        assert len({r["draw"] for r in rows}) >= 5
