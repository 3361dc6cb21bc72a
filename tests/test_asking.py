"""Whom to ask next: information is what the formula says, choices are legal, nobody is asked twice, runs are paired."""

import math

import pytest
import torch

from course_lib import asking, experiments
from course_lib.annotations import MISSING
from course_lib.confusion import log, posterior
from course_lib.experiments import asking as trial
from course_lib.networks import seeded

A = torch.tensor([[[0.9, 0.2], [0.1, 0.8]], [[0.6, 0.1], [0.4, 0.9]], [[0.5, 0.5], [0.5, 0.5]]])
P = torch.tensor([[0.7, 0.3], [0.5, 0.5], [1.0, 0.0]])


def entropy(*p):
    return -sum(x * math.log(x) for x in p if x > 0)


def some(N=30, R=4, L=3, asked=0.3, seed=0):
    """Labels with gaps, beliefs and counts."""
    g = seeded(seed)
    labels = torch.where(torch.rand(N, R, generator=g) < asked, torch.randint(L, (N, R), generator=g), MISSING)
    pseudo = asking.pseudo_counts(R, L)
    p, counts = asking.believe(labels, torch.full((N, L), 1 / L).log(), pseudo)
    return labels, p, counts


# ---- information -----------------------------------------------------------------------------------------------------


def test_information_of_a_two_by_two_matrix_by_hand():
    said = 0.9 * 0.7 + 0.2 * 0.3  # .69
    by_hand = entropy(said, 1 - said) - 0.7 * entropy(0.9, 0.1) - 0.3 * entropy(0.2, 0.8)
    assert float(asking.information(P, A)[0, 0]) == pytest.approx(by_hand, abs=1e-6)


def test_information_is_the_doubt_that_goes_away_on_average():
    for n in range(len(P)):
        for r in range(len(A)):
            left = 0.0
            for i in range(2):
                after = posterior(log(A[r])[None, None], log(P[n])[None], torch.tensor([[i]])).exp()[0]
                left += float(A[r, i] @ P[n]) * entropy(*after.tolist())
            assert float(asking.information(P, A)[n, r]) == pytest.approx(entropy(*P[n].tolist()) - left, abs=1e-5)


def test_who_guesses_tells_nothing_and_a_clear_image_has_nothing_to_tell():
    worth = asking.information(P, A)
    assert worth[:, 2].abs().max() < 1e-6 and worth[2].abs().max() < 1e-6
    assert worth[1, 0] > worth[1, 1] > 0.1  # the better annotator of the two


def test_one_who_turns_all_names_round_tells_as_much_as_one_who_does_not():
    turned = A[:1].flip(1)
    assert torch.allclose(asking.information(P, turned), asking.information(P, A[:1]), atol=1e-6)


def test_matrices_of_their_own_for_each_image_are_taken_image_by_image():
    own = torch.stack([A, A.flip(0), A])  # (N, R, L, L)
    worth = asking.information(P, own)
    assert torch.allclose(worth[1], asking.information(P, A)[1].flip(0))


def test_classes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"must end in \(L, L\) = \(2, 2\)"):
        asking.information(P, torch.ones(1, 3, 3) / 3)


# ---- what is believed ------------------------------------------------------------------------------------------------


def test_pseudo_counts_weigh_what_was_said_and_are_right_so_often():
    pseudo = asking.pseudo_counts(2, 5, skill=0.6, weight=4.0)
    assert torch.allclose(pseudo.sum(1), torch.full((2, 5), 4.0))
    assert pseudo[1, 3, 3] == pytest.approx(2.4) and pseudo[1, 0, 3] == pytest.approx(0.4)


@pytest.mark.parametrize(("skill", "weight"), [(0, 4), (1, 4), (0.5, 0)])
def test_impossible_pseudo_counts_are_refused(skill, weight):
    with pytest.raises(ValueError, match="between 0 and 1"):
        asking.pseudo_counts(2, 3, skill=skill, weight=weight)


def test_without_a_label_everything_is_as_it_was_believed():
    prior = torch.tensor([[0.2, 0.8], [0.6, 0.4]])
    pseudo = asking.pseudo_counts(3, 2)
    p, counts = asking.believe(torch.full((2, 3), MISSING), prior.log(), pseudo)
    assert torch.allclose(p, prior) and torch.equal(counts, pseudo)


def test_counts_are_pseudo_counts_and_one_for_each_label():
    labels, p, counts = some()
    pseudo = asking.pseudo_counts(4, 3)
    by_hand = pseudo.clone()
    for n, r in (labels != MISSING).nonzero().tolist():
        by_hand[r, labels[n, r]] += p[n]
    assert torch.allclose(by_hand, counts, atol=1e-4)


def test_one_label_moves_a_belief_as_bayes_says():
    labels = torch.tensor([[1, MISSING]])
    p, _ = asking.believe(labels, torch.tensor([[0.5, 0.5]]).log(), asking.pseudo_counts(2, 2, skill=0.6), steps=1)
    assert p[0].tolist() == pytest.approx([0.4, 0.6])


def test_draws_have_the_mean_of_the_counts_and_scatter_less_where_more_is_known():
    pseudo = asking.pseudo_counts(1, 3)
    few, many = (asking.drawn(c, 4000, generator=seeded(0)) for c in (pseudo, 50 * pseudo))
    assert few.shape == (4000, 1, 3, 3) and torch.allclose(few.sum(2), torch.ones(4000, 1, 3))
    assert torch.allclose(few.mean(0), pseudo / 4, atol=0.02)
    assert few.std(0).mean() > 4 * many.std(0).mean()


# ---- choices ---------------------------------------------------------------------------------------------------------

EVERY_RULE = [(i, w) for i in asking.IMAGES for w in asking.PEOPLE]


@pytest.mark.parametrize(("images", "people"), EVERY_RULE)
def test_a_batch_has_no_image_twice_and_no_pair_that_was_asked(images, people):
    labels, p, counts = some(asked=0.7)
    pairs = asking.choose(images, people, labels, p, counts, n=15, generator=seeded(1))
    assert pairs.shape == (15, 2) and len(pairs[:, 0].unique()) == 15
    assert (labels[tuple(pairs.T)] == MISSING).all()


@pytest.mark.parametrize(("images", "people"), EVERY_RULE)
def test_where_few_are_open_fewer_are_asked(images, people):
    labels, p, counts = some(asked=1.0)
    labels[3, 2] = labels[8, 0] = labels[8, 1] = MISSING
    pairs = asking.choose(images, people, labels, p, counts, n=15, generator=seeded(1))
    assert sorted(pairs[:, 0].tolist()) == [3, 8] and dict(pairs.tolist())[3] == 2


def test_rules_that_do_not_exist_are_refused():
    labels, p, counts = some()
    for images, people in (("hardest", "random"), ("random", "oldest")):
        with pytest.raises(ValueError, match="wanted an image rule"):
            asking.choose(images, people, labels, p, counts, n=1, generator=seeded(0))


def test_the_least_labelled_come_first_and_then_the_tied():
    labels = torch.tensor([[0, 0, -1, -1], [0, 1, -1, -1], [0, -1, -1, -1], [1, 1, 1, -1]])
    p, counts = asking.believe(labels, torch.full((4, 2), 0.5).log(), asking.pseudo_counts(4, 2))
    first = lambda rule: asking.choose(rule, "random", labels, p, counts, n=1, generator=seeded(0))[0, 0]  # noqa: E731
    assert first("least") == 2 and first("disagree") == 1


def test_information_picks_the_doubtful_image_and_the_best_open_person():
    labels = torch.full((3, 3), MISSING)
    counts = 100 * A
    pairs = asking.choose("information", "best", labels, P, counts, n=2, generator=seeded(0))
    assert pairs.tolist() == [[1, 0], [0, 0]]
    labels[1, 0] = 0  # was asked: the second best is next
    pairs = asking.choose("information", "best", labels, P, counts, n=3, generator=seeded(0))
    assert dict(pairs.tolist())[1] == 1


def test_a_draw_asks_the_unknown_now_and_then_and_the_mean_never():
    labels, p = torch.full((300, 2), MISSING), torch.full((300, 2), 0.5)
    known, unknown = 200 * torch.tensor([[0.8, 0.2], [0.2, 0.8]]), asking.pseudo_counts(1, 2)[0]
    ask = lambda people: asking.choose(  # noqa: E731
        "random", people, labels, p, torch.stack([known, unknown]), n=300, generator=seeded(0)
    )[:, 1]
    assert not ask("best").any() and 0.1 < ask("draw").float().mean() < 0.6


def test_the_image_rule_is_the_same_whoever_is_asked():
    labels, p, counts = some()
    chosen = {
        people: asking.choose("information", people, labels, p, counts, n=8, generator=seeded(2))[:, 0].tolist()
        for people in asking.PEOPLE
    }
    assert chosen["random"] == chosen["best"] == chosen["draw"]


# ---- the experiment --------------------------------------------------------------------------------------------------


def test_every_rule_buys_as_many_labels_from_the_same_start_and_hears_what_the_world_says():
    world = trial.world("by_class", 1, n=60, n_test=20)
    askers = trial.started(world, 1, trial.BUDGET, each=3)
    assert all(torch.equal(a.labels, askers[0].labels) for a in askers)
    assert ((askers[0].labels != MISSING).sum(0) == 3).all()
    for a in askers:
        a.ask(world.says, 20)
        a.ask(world.says, 20)
        seen = a.labels != MISSING
        assert seen.sum() == 8 * 3 + 40 and torch.equal(a.labels[seen], world.says[seen])


@pytest.mark.parametrize("regime", trial.REGIMES)
def test_annotators_are_right_as_often_as_the_world_says(regime):
    world = trial.world(regime, 0, n=1500, n_test=10)
    right = (world.says == world.truth[:, None]).float()
    assert torch.allclose(right.mean(0), world.right.mean(0), atol=0.04)
    assert bool(world.hard.any()) == (regime == "hard_images")
    if world.hard.any():
        assert right[~world.hard].mean() - right[world.hard].mean() > 0.5


def test_a_world_is_drawn_again_from_its_seed_and_another_from_another():
    one, two, other = (trial.world("unequal", seed, n=40, n_test=10) for seed in (3, 3, 4))
    assert torch.equal(one.says, two.says) and torch.equal(one.images, two.images)
    assert not torch.equal(one.says, other.says)
    with pytest.raises(ValueError, match="must be one of unequal"):
        trial.world("lazy", 0)


def test_the_prior_of_an_image_comes_from_the_network_that_did_not_see_its_labels():
    world = trial.world("equal", 0, n=60, n_test=10)
    (a,) = trial.started(world, 0, [trial.Rule("random", "random")], each=8)
    trial.learn([a], world, 0, epochs=2, device="cpu", progress=False)
    seen = (a.labels != MISSING).any(1)
    weights = torch.stack([net.weight for net in a.nets])
    assert torch.equal(weights.sum(0), seen.float()) and weights[0, 1::2].sum() == weights[1, ::2].sum() == 0
    first, second = (trial.predict_log_p(net, world.images) for net in a.nets)
    assert torch.equal(a.log_prior[::2], second[::2]) and torch.equal(a.log_prior[1::2], first[1::2])


def test_unlabelled_images_have_no_part_in_the_loss():
    world = trial.world("equal", 0, n=30, n_test=10)
    q, weight = torch.full((30, 5), 0.2), torch.zeros(30)
    weight[4] = 1
    net = trial.Soft(trial.networks.mlp(196, 5, generator=seeded(0)), q, weight)
    index = torch.arange(30)
    alone = -(q[4] * net.log_p(world.images)[4]).sum()
    assert torch.allclose(net.loss((world.images, None, None, index)), alone)


def test_the_area_is_the_mean_height():
    assert trial.area([0.5]) == 0.5 and trial.area([0.0, 1.0, 1.0]) == pytest.approx(0.75)


def test_a_result_has_a_row_a_run_with_its_curve():
    result = experiments.run("ask-beliefs", seeds=1, size="ci", device="cpu", progress=False)
    assert len(result["rows"]) == 3 * 6
    found = result["rows"][0]["metrics"]
    curve = [found[f"fused_{n}"] for n in (40, 85, 130)]
    assert found["fused"] == curve[-1] and found["fused_area"] == pytest.approx(trial.area(curve), abs=2e-4)
