"""Simulated people: they make the mistakes that their matrices say, and the same ones on every machine."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.annotations import MISSING
from course_lib.annotators import (
    adversary,
    annotate,
    diverse,
    hammer_spammers,
    neighbour_confuser,
    pairwise_flippers,
    similar_class_confuser,
)
from course_lib.confusion import check_cm, count_matrices, dominance, skills
from course_lib.networks import seeded


def everybody(generator) -> dict[str, torch.Tensor]:
    return {
        "pairwise_flippers": pairwise_flippers(4, 6, 0.6, generator=generator),
        "pairwise_flippers, free": pairwise_flippers(4, 6, 0.6, share=None, generator=generator),
        "hammer_spammers": hammer_spammers(4, 6, 0.5, generator=generator),
        "similar_class_confuser": similar_class_confuser(6, 0.7, [(0, 3), (5, 1)]),
        "neighbour_confuser": neighbour_confuser(6, 0.7),
        "adversary": adversary(6, 0.2, generator=generator),
        "diverse": diverse(generator=generator),
    }


KINDS = list(everybody(seeded(0)))
UNEVEN = torch.tensor(
    [[[0.7, 0.1, 0.3], [0.2, 0.9, 0.2], [0.1, 0.0, 0.5]], [[0.2, 0.3, 0.1], [0.7, 0.3, 0], [0.1, 0.4, 0.9]]]
)


def truth_of(N: int, L: int) -> torch.Tensor:
    return torch.arange(N) % L


# Matrices


@pytest.mark.parametrize("kind", KINDS)
def test_columns_sum_to_one(kind):
    A = everybody(seeded(1))[kind]
    assert A.ndim == 3 and A.dtype == torch.float32
    check_cm(A, tolerance=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(3, 7), st.integers(1, 3), st.floats(0.1, 0.9))
def test_at_most_the_allowed_number_share_a_wrong_name_in_every_class(seed, R, L, share, skill):
    if share * (L - 1) < R:
        with pytest.raises(ValueError, match="raise `share`"):
            pairwise_flippers(R, L, skill, share=share, generator=seeded(seed))
        return
    A = pairwise_flippers(R, L, skill, share=share, spread=0, generator=seeded(seed))
    flips = (A > 0) & ~torch.eye(L, dtype=torch.bool)
    assert (flips.sum(1) == 1).all()  # always by one wrong name
    assert (flips.sum(0) <= share).all()
    check_cm(A)


def test_without_a_limit_some_draw_shares_more_than_two():
    most = []
    for seed in range(20):
        A = pairwise_flippers(5, 3, 0.5, share=None, spread=0, generator=seeded(seed))
        assert ((A > 0).sum(1) == 2).all()
        most.append(int(((A > 0) & ~torch.eye(3, dtype=torch.bool)).sum(0).max()))
    assert max(most) > 2


def test_flippers_are_right_as_often_as_their_own_skill():
    A = pairwise_flippers(2000, 3, 0.45, share=None, spread=0.01, generator=seeded(0))
    diagonal = A.diagonal(dim1=1, dim2=2)
    assert torch.allclose(diagonal, diagonal[:, :1].expand_as(diagonal))  # one skill a person, in every class
    assert float(diagonal.mean()) == pytest.approx(0.45, abs=4 * 0.01 / math.sqrt(2000))
    assert float(diagonal[:, 0].std()) == pytest.approx(0.01, rel=0.1)


def test_skills_stay_probabilities():
    for skill in (0.0, 1.0):
        A = pairwise_flippers(50, 3, skill, share=None, spread=0.3, generator=seeded(0))
        assert ((A >= 0) & (A <= 1)).all()


@pytest.mark.parametrize(("R", "k", "L"), [(5, 2, 10), (5, 3, 10), (4, 1, 6)])
def test_dominance_begins_at_skill_k_over_R_plus_k(R, k, L):
    threshold = k / (R + k)
    for seed in range(30):
        shared = pairwise_flippers(R, L, threshold, share=k, spread=0, generator=seeded(seed))
        most = round(float((shared.mean(0) * (1 - torch.eye(L))).max()) * R / (1 - threshold))  # k where it is reached
        for skill in (threshold - 0.02, threshold + 0.02):
            A = pairwise_flippers(R, L, skill, share=k, spread=0, generator=seeded(seed))
            assert dominance(A) == pytest.approx(skill - most * (1 - skill) / R, abs=1e-5)
        if most == k:
            assert dominance(shared) == pytest.approx(0, abs=1e-5)
            assert dominance(A) > 0  # just above


def test_hammer_spammers_redraw_the_right_class_too():
    A = hammer_spammers(3, 10, 0.5, spread=0, generator=seeded(0))
    assert torch.allclose(A.diagonal(dim1=1, dim2=2), torch.tensor(0.55))  # .5 + .5 / 10: 45 % wrong, not 50 %
    assert torch.allclose(A[0][~torch.eye(10, dtype=torch.bool)], torch.tensor(0.05))


def test_a_noise_rate_of_a_half_gives_45_per_cent_wrong_labels():
    A = hammer_spammers(1, 10, 0.5, spread=0, generator=seeded(0))
    truth = truth_of(100_000, 10)
    wrong = (annotate(truth, A, generator=seeded(1))[:, 0] != truth).float().mean()
    assert float(wrong) == pytest.approx(0.45, abs=0.01)


def test_hammer_spammers_differ_by_their_spread_only():
    A = hammer_spammers(2000, 4, 0.4, spread=0.02, generator=seeded(0))
    assert float(skills(A).mean()) == pytest.approx(0.4 + 0.6 / 4, abs=0.002)
    assert float(skills(A).std()) == pytest.approx(0.02 * 3 / 4, rel=0.1)


def test_a_confuser_of_similar_classes_mixes_up_the_pairs_only():
    A = similar_class_confuser(5, 0.7, [(0, 3), (4, 1)])[0]
    wanted = torch.eye(5)
    for a, b in ((0, 3), (3, 0), (4, 1), (1, 4)):
        wanted[a, a], wanted[b, a] = 0.7, 0.3  # the column of truth a
    assert torch.allclose(A, wanted)


@pytest.mark.parametrize("pairs", [[(0, 0)], [(0, 1), (1, 2)], [(0, 5)], [(-1, 2)]])
def test_pairs_are_disjoint_and_of_real_classes(pairs):
    with pytest.raises(ValueError, match="pairs"):
        similar_class_confuser(5, 0.7, pairs)


def test_a_neighbour_confuser_slips_to_either_side_and_around_the_end():
    A = neighbour_confuser(5, 0.6)[0]
    assert A[:, 0].tolist() == pytest.approx([0.6, 0.2, 0, 0, 0.2])
    assert A[:, 3].tolist() == pytest.approx([0, 0, 0.2, 0.6, 0.2])
    assert neighbour_confuser(2, 0.6)[0].tolist() == [pytest.approx([0.6, 0.4]), pytest.approx([0.4, 0.6])]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 12), st.floats(0, 0.4))
def test_an_adversary_has_a_wrong_name_of_its_own_for_every_class(seed, L, skill):
    A = adversary(L, skill, generator=seeded(seed))[0]
    names = A.argmax(0)  # what is said of each truth
    assert (names != torch.arange(L)).all()
    assert sorted(names.tolist()) == list(range(L))  # a permutation: rows sum to 1 as well
    assert torch.allclose(A.diagonal(), torch.full((L,), float(skill)))
    assert torch.allclose(A[names, torch.arange(L)], torch.tensor(1 - skill))


def test_the_diverse_four_have_mean_skill_46_and_a_dominant_mean():
    for seed in range(30):
        A = diverse(generator=seeded(seed))
        assert A.shape == (4, 10, 10)
        assert float(skills(A).mean()) == pytest.approx(0.46, abs=0.02)
        assert dominance(A) > 0


def test_confusers_and_spammers_are_told_apart_by_which_way_the_matrix_is_read():
    A = torch.cat([pairwise_flippers(3, 5, 0.6, generator=seeded(0)), similar_class_confuser(5, 0.6, [(0, 1)])])
    with pytest.raises(ValueError, match="every column"):
        check_cm(A.transpose(1, 2))  # a flipper's rows do not sum to 1


@pytest.mark.parametrize("skill", [-0.1, 1.1, 45])
def test_skill_is_a_probability(skill):
    makers = [
        lambda: pairwise_flippers(3, 4, skill, generator=seeded(0)),
        lambda: hammer_spammers(3, 4, skill, generator=seeded(0)),
        lambda: similar_class_confuser(4, skill, [(0, 1)]),
        lambda: neighbour_confuser(4, skill),
        lambda: adversary(4, skill, generator=seeded(0)),
    ]
    for make in makers:
        with pytest.raises(ValueError, match="per cent"):
            make()


def test_there_is_at_least_one_annotator_and_two_classes():
    for R, L in ((0, 4), (3, 1)):
        with pytest.raises(ValueError, match="at least 1 annotator and 2 classes"):
            hammer_spammers(R, L, 0.5, generator=seeded(0))


# Labels


@pytest.mark.parametrize("kind", KINDS)
def test_realised_frequencies_equal_the_matrix(kind):
    A = everybody(seeded(2))[kind]
    L, n = A.shape[1], 4000  # labels of each class
    truth = truth_of(n * L, L)
    found = count_matrices(annotate(truth, A, generator=seeded(3)), torch.eye(L)[truth])
    error = 5 * (A * (1 - A) / n).sqrt() + 1e-6  # five standard deviations of a binomial
    assert ((found - A).abs() <= error).all()


def test_annotators_err_independently():
    A = torch.tensor([[[0.6, 0.3], [0.4, 0.7]]]).expand(2, 2, 2)
    truth = torch.zeros(40_000, dtype=torch.long)
    right = (annotate(truth, A, generator=seeded(0)) == 0).float()
    assert float((right[:, 0] * right[:, 1]).mean()) == pytest.approx(0.36, abs=0.015)


def test_dense_labels_leave_no_gap():
    labels = annotate(truth_of(50, 3), UNEVEN, generator=seeded(0))
    assert labels.shape == (50, 2) and labels.dtype == torch.int64
    assert (labels != MISSING).all()


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("workload", [None, [1.0, 2, 3, 4, 90]])
def test_an_item_gets_exactly_k_labels(k, workload):
    A = hammer_spammers(5, 3, 0.5, generator=seeded(0))
    labels = annotate(truth_of(200, 3), A, per_item=k, workload=workload, generator=seeded(1))
    assert ((labels != MISSING).sum(1) == k).all()


def test_with_one_label_an_item_the_workload_is_the_share_of_labels():
    weights, N = torch.tensor([1.0, 2.0, 3.0, 14.0]), 20_000
    A = hammer_spammers(4, 3, 0.5, generator=seeded(0))
    seen = annotate(truth_of(N, 3), A, per_item=1, workload=weights, generator=seeded(1)) != MISSING
    share = weights / weights.sum()
    error = 5 * (share * (1 - share) / N).sqrt()
    assert ((seen.float().mean(0) - share).abs() <= error).all()
    equal = annotate(truth_of(N, 3), A, per_item=1, generator=seeded(1)) != MISSING
    assert torch.allclose(equal.float().mean(0), torch.full((4,), 0.25), atol=0.02)


def test_who_labels_what_can_be_given():
    who = torch.tensor([[True, False], [False, False], [True, True]])
    labels = annotate(torch.tensor([0, 1, 2]), UNEVEN, who=who, generator=seeded(0))
    assert ((labels != MISSING) == who).all()


def test_who_comes_alone_and_fits():
    truth = torch.tensor([0, 1, 2])
    who = torch.ones(3, 2, dtype=torch.bool)
    for more in ({"who": who.T}, {"who": who, "per_item": 1}, {"who": who, "workload": [1.0, 1.0]}):
        with pytest.raises(ValueError, match="`who`"):
            annotate(truth, UNEVEN, generator=seeded(0), **more)


@pytest.mark.parametrize("k", [0, -1, 3])
def test_k_is_between_1_and_the_number_of_annotators(k):
    with pytest.raises(ValueError, match="per_item"):
        annotate(torch.tensor([0, 1]), UNEVEN, per_item=k, generator=seeded(0))


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, -1.0], [1.0, float("nan")], [1.0, float("inf")]])
def test_workload_is_a_positive_weight_for_each(weights):
    with pytest.raises(ValueError, match="workload"):
        annotate(torch.tensor([0, 1]), UNEVEN, per_item=1, workload=weights, generator=seeded(0))


def test_workload_without_per_item_has_no_meaning():
    with pytest.raises(ValueError, match="per_item"):
        annotate(torch.tensor([0, 1]), UNEVEN, workload=[1.0, 2.0], generator=seeded(0))


@pytest.mark.parametrize("truth", [[[0], [1]], [0, MISSING], [0, 3], [0.5, 1.0]])
def test_the_truth_is_a_row_of_classes_without_gaps(truth):
    with pytest.raises(ValueError, match="truth"):
        annotate(torch.tensor(truth), UNEVEN, generator=seeded(0))


def test_a_truth_of_any_integer_type_gives_the_same_labels():
    wanted = annotate(truth_of(60, 3), UNEVEN, generator=seeded(0))
    for dtype in (torch.uint8, torch.int32, torch.float32):
        assert torch.equal(annotate(truth_of(60, 3).to(dtype), UNEVEN, generator=seeded(0)), wanted)


def test_a_transposed_matrix_is_refused():
    with pytest.raises(ValueError, match="transposed"):
        annotate(torch.tensor([0, 1]), torch.tensor([[[0.9, 0.1], [0.4, 0.6]]]), generator=seeded(0))


# The same people on every machine


def test_the_same_seed_simulates_the_same_people_whatever_torch_has_drawn_before():
    runs = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        generator = seeded(7)
        people = everybody(generator)
        labels = annotate(truth_of(80, 6), people["adversary"], generator=generator)
        few = annotate(truth_of(80, 10), people["diverse"], per_item=2, workload=[1.0, 2, 3, 4], generator=generator)
        runs.append([*people.values(), labels, few])
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_another_seed_simulates_others():
    a, b = (everybody(seeded(s)) for s in (0, 1))
    for kind in ("pairwise_flippers", "hammer_spammers", "adversary", "diverse"):
        assert not torch.equal(a[kind], b[kind])
    A = a["hammer_spammers"]
    first, second = (annotate(truth_of(80, 6), A, generator=seeded(s)) for s in (0, 1))
    assert not torch.equal(first, second)


def test_the_global_random_state_is_left_alone():
    before = torch.get_rng_state()
    people = everybody(seeded(0))
    annotate(truth_of(20, 6), people["hammer_spammers"], per_item=2, generator=seeded(1))
    assert torch.equal(torch.get_rng_state(), before)


def test_who_may_be_zeros_and_ones():
    truth, who = torch.tensor([0, 1, 1]), [[1, 0], [0, 1], [1, 1]]
    drawn = annotate(truth, UNEVEN, who=who, generator=seeded(0))
    assert ((drawn != MISSING) == torch.tensor(who, dtype=torch.bool)).all()
