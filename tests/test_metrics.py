"""The measures: scikit-learn and slow loops as oracles, numbers worked by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, cohen_kappa_score, confusion_matrix, f1_score, jaccard_score

from course_lib.annotations import MISSING
from course_lib.confusion import count_matrices, to_sklearn
from course_lib.metrics import (
    accuracy,
    annotator_accuracy,
    calibration_error,
    cm_error,
    dice,
    iou,
    pairwise_agreement,
    pairwise_dice,
    skill_mae,
)

A = torch.tensor([[[0.9, 0.4], [0.1, 0.6]], [[0.7, 0.2], [0.3, 0.8]]])
A_HAT = torch.tensor([[[0.8, 0.1], [0.2, 0.9]], [[0.7, 0.2], [0.3, 0.8]]])


def labels_with_gaps(N: int, R: int, L: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(L, (N, R), generator=generator)
    labels[torch.rand((N, R), generator=generator) < 0.4] = MISSING
    return labels


# Accuracy


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=30))
def test_accuracy_is_scikit_learns(pairs):
    predicted, truth = np.array(pairs).T
    assert accuracy(torch.tensor(predicted), torch.tensor(truth)) == pytest.approx(accuracy_score(truth, predicted))


def test_accuracy_takes_arrays_lists_and_masks():
    assert accuracy(np.array([0, 1, 1]), [0, 1, 0]) == pytest.approx(2 / 3)
    masks = torch.zeros(2, 3, 4, dtype=torch.long)
    assert accuracy(masks, masks.clone().index_fill_(2, torch.tensor([0]), 1)) == pytest.approx(3 / 4)


@pytest.mark.parametrize("which", [0, 1])
def test_a_column_is_never_compared_with_a_row(which):
    pair = [torch.zeros(8, dtype=torch.long), torch.zeros(8, dtype=torch.long)]
    pair[which] = pair[which][:, None]
    with pytest.raises(ValueError, match=r"\(8, 1\).*labels\[:, 0\]|labels\[:, 0\]"):
        accuracy(*pair)


def test_the_accuracy_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no items"):
        accuracy(torch.zeros(0), torch.zeros(0))


@pytest.mark.parametrize("sizes", [(7, 3, 4), (4, 4, 4)])
def test_annotator_accuracy_counts_only_what_they_labelled(sizes):
    labels, truth = labels_with_gaps(*sizes, seed=1), torch.arange(sizes[0]) % sizes[2]
    found = annotator_accuracy(labels, truth)
    assert found.shape == (sizes[1],)
    for r in range(sizes[1]):
        own = [(int(y), int(t)) for y, t in zip(labels[:, r], truth, strict=True) if y != MISSING]
        assert float(found[r]) == pytest.approx(sum(y == t for y, t in own) / len(own))


def test_who_never_labelled_has_no_accuracy():
    found = annotator_accuracy(torch.tensor([[0, MISSING], [1, MISSING]]), torch.tensor([0, 0]))
    assert float(found[0]) == 0.5 and math.isnan(found[1])


def test_a_missing_truth_code_does_not_reward_a_missing_label():
    found = annotator_accuracy(torch.tensor([[0, MISSING], [MISSING, 1]]), torch.tensor([0, MISSING]))
    assert found.tolist() == [1.0, 0.0]


def test_annotator_accuracy_refuses_a_truth_with_an_extra_axis():
    with pytest.raises(ValueError, match="truth"):
        annotator_accuracy(torch.zeros(4, 2, dtype=torch.long), torch.zeros(4, 1, dtype=torch.long))


def test_counted_matrices_and_accuracy_agree_with_scikit_learn():
    labels, truth = labels_with_gaps(300, 3, 4, seed=2), torch.arange(300) % 4
    counted = to_sklearn(count_matrices(labels, torch.eye(4)[truth]))
    for r in range(3):
        seen = labels[:, r] != MISSING
        wanted = confusion_matrix(truth[seen], labels[seen, r], normalize="true")
        assert np.allclose(counted[r], wanted, atol=1e-6)
        assert float(annotator_accuracy(labels, truth)[r]) == pytest.approx(
            accuracy_score(truth[seen], labels[seen, r])
        )


# Errors of matrices


def test_cm_error_by_hand():
    # annotator 1: .01 + .01 + .09 + .09 = .2; annotator 2: 0; over R L = 4
    assert cm_error(A, A_HAT) == pytest.approx(0.05, abs=1e-6)


@pytest.mark.parametrize("sizes", [(2, 5), (3, 3)])
def test_cm_error_is_the_squared_distance_over_annotators_and_truths(sizes):
    R, L = sizes
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn((R, L, L), generator=generator).softmax(1) for _ in "ab")
    total = sum(float(a[r, i, j] - b[r, i, j]) ** 2 for r in range(R) for i in range(L) for j in range(L))
    assert cm_error(a, b) == pytest.approx(total / (R * L))
    assert cm_error(b, a) == pytest.approx(cm_error(a, b))


@pytest.mark.parametrize("L", [2, 3, 10])
def test_the_largest_cm_error_is_2(L):
    identity, names = torch.eye(L)[None], torch.eye(L).roll(1, 0)[None]
    assert cm_error(identity, identity) == 0
    assert cm_error(identity, names) == pytest.approx(2)


def test_cm_error_refuses_a_transposed_matrix_on_either_side():
    for pair in ((A.transpose(1, 2), A), (A, A.transpose(1, 2))):
        with pytest.raises(ValueError, match="transposed"):
            cm_error(*pair)


def test_cm_error_refuses_other_annotators():
    with pytest.raises(ValueError, match=r"\(2, 2, 2\) and \(1, 2, 2\)"):
        cm_error(A, A_HAT[:1])


def test_skill_mae_by_hand():
    # skills .75 and .75 against .85 and .75
    assert skill_mae(A, A_HAT) == pytest.approx(0.05, abs=1e-6)


def test_skill_mae_refuses_other_annotators():
    with pytest.raises(ValueError, match=r"\(2, 2, 2\)"):
        skill_mae(A, A_HAT[:1])


# Agreement


def test_missing_labels_are_no_category_of_their_own():
    labels = torch.tensor([[1, 1, MISSING], [1, 1, 1], [2, MISSING, 2]])
    assert pairwise_agreement(labels).tolist() == [[1.0] * 3] * 3


@pytest.mark.parametrize("sizes", [(9, 4, 3), (4, 4, 4)])
def test_agreement_is_the_share_of_common_items(sizes):
    labels = labels_with_gaps(*sizes, seed=3)
    found = pairwise_agreement(labels)
    assert found.shape == (sizes[1], sizes[1])
    for r in range(sizes[1]):
        for s in range(sizes[1]):
            both = [(a, b) for a, b in labels[:, [r, s]].tolist() if MISSING not in (a, b)]
            wanted = sum(a == b for a, b in both) / len(both) if both else math.nan
            assert float(found[r, s]) == pytest.approx(wanted, nan_ok=True)


def test_agreement_without_a_common_item_is_nan():
    found = pairwise_agreement(torch.tensor([[0, MISSING], [MISSING, 1]]))
    assert math.isnan(found[0, 1]) and math.isnan(found[1, 0])
    assert found[0, 0] == found[1, 1] == 1


def test_raw_agreement_is_what_kappa_starts_from():
    a, b = np.array([0, 1, 1, 2, 0, 1]), np.array([0, 1, 2, 2, 1, 1])
    raw = float(pairwise_agreement(torch.tensor(np.stack([a, b], 1)))[0, 1])
    chance = sum((a == k).mean() * (b == k).mean() for k in range(3))
    assert cohen_kappa_score(a, b) == pytest.approx((raw - chance) / (1 - chance))


# Calibration


def test_calibration_by_hand():
    p = torch.tensor([[0.95, 0.05], [0.05, 0.95], [0.65, 0.35], [0.65, 0.35]])
    truth = torch.tensor([0, 0, 0, 1])
    # bin .9 to 1: accuracy .5, confidence .95, half of the items; bin .6 to .7: accuracy .5, confidence .65
    assert calibration_error(p.log(), truth) == pytest.approx(0.5 * 0.45 + 0.5 * 0.15, abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(2, 5), st.sampled_from([1, 5, 10]))
def test_calibration_is_the_weighted_gap_of_the_bins(seed, N, L, bins):
    generator = torch.Generator().manual_seed(seed)
    log_p = (2 * torch.randn((N, L), generator=generator)).log_softmax(1)
    truth = torch.randint(L, (N,), generator=generator)
    groups: dict[int, list] = {}
    for row, t in zip(log_p.exp(), truth, strict=True):
        best = int(row.argmax())
        groups.setdefault(min(int(row[best] * bins), bins - 1), []).append((best == int(t), float(row[best])))
    wanted = sum(abs(sum(r for r, _ in g) - sum(c for _, c in g)) for g in groups.values()) / N
    assert calibration_error(log_p, truth, bins=bins) == pytest.approx(wanted, abs=1e-5)


def test_honest_is_0_and_sure_but_wrong_is_1():
    sure = torch.tensor([[0.0, -100.0]] * 4)
    assert calibration_error(sure, torch.tensor([0] * 4)) == pytest.approx(0)
    assert calibration_error(sure, torch.tensor([1] * 4)) == pytest.approx(1)
    honest = torch.tensor([[0.75, 0.25]] * 4).log()
    assert calibration_error(honest, torch.tensor([0, 0, 0, 1])) == pytest.approx(0, abs=1e-6)


def test_calibration_refuses_a_truth_with_an_extra_axis():
    with pytest.raises(ValueError, match="truth"):
        calibration_error(torch.rand(4, 2).log_softmax(1), torch.zeros(4, 1, dtype=torch.long))


# Overlap of masks


def mask(*rows: str) -> torch.Tensor:
    return torch.tensor([[[int(c) for c in row] for row in rows]])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 4))
def test_dice_and_iou_are_scikit_learns(seed, L):
    generator = torch.Generator().manual_seed(seed)
    p, t = torch.randint(L, (2, 3, 4, 5), generator=generator)
    for function, oracle in ((dice, f1_score), (iou, jaccard_score)):
        wanted = [
            oracle(t[n].flatten(), p[n].flatten(), labels=range(L), average=None, zero_division=0) for n in range(3)
        ]
        there = torch.stack([((p == k) | (t == k)).flatten(1).any(1) for k in range(L)], 1)  # (N, L)
        found = function(p, t, L)
        for k in range(L):
            if there[:, k].any():
                assert float(found.score[k]) == pytest.approx(
                    np.mean([w[k] for w, e in zip(wanted, there[:, k], strict=True) if e])
                )
        assert found.count.tolist() == there.sum(0).tolist()
        pooled = function(p, t, L, pooled=True)
        assert pooled.score[t.unique()].tolist() == pytest.approx(
            oracle(t.flatten(), p.flatten(), labels=t.unique(), average=None, zero_division=0).tolist()
        )


def test_overlap_by_hand():
    found = dice(mask("0110"), mask("0011"))
    assert found.foreground == 0.5 and found.macro == 0.5
    assert iou(mask("0110"), mask("0011")).foreground == pytest.approx(1 / 3)


@pytest.mark.parametrize("function", [dice, iou])
def test_two_empty_masks_score_as_asked(function):
    nothing = torch.zeros(1, 4, 4).long()
    assert math.isnan(function(nothing, nothing).foreground) and function(nothing, nothing).count.tolist() == [1, 0]
    assert (
        function(nothing, nothing, empty=1.0).foreground == 1 and function(nothing, nothing, empty=0.0).foreground == 0
    )
    assert function(nothing, nothing).macro == 1  # the background is there, and right


def test_a_class_that_is_nowhere_is_left_out_of_the_mean():
    truth = torch.zeros(1000, 2, 2).long()
    truth[0, 0, 0], truth[:, 1, 1] = 2, 1
    predicted = torch.where(truth == 2, 0, truth)
    found = dice(predicted, truth, 4)
    assert float(found.score[2]) == 0 and int(found.count[2]) == 1  # over one image, not .999 over a thousand
    assert math.isnan(found.score[3]) and int(found.count[3]) == 0
    assert found.foreground == pytest.approx((1 + 0) / 2)


def test_the_mean_over_images_and_the_pool_of_pixels_are_two_things():
    truth, predicted = torch.zeros(2, 10, 10).long(), torch.zeros(2, 10, 10).long()
    truth[0, 0, 0] = 1  # missed
    truth[1, :9, :] = truth[1, 9, :9] = 1
    predicted[1] = truth[1]
    assert dice(predicted, truth).foreground == 0.5
    assert dice(predicted, truth, pooled=True).foreground == pytest.approx(198 / 199)


def test_an_empty_answer_earns_no_foreground():
    truth = torch.zeros(1, 10, 10).long()
    truth[0, 0, :5] = 1
    found = dice(torch.zeros_like(truth), truth)
    assert found.foreground == 0 and found.macro == pytest.approx(0.487, abs=1e-3)


def test_missing_pixels_are_in_no_count():
    assert dice(mask("2101"), mask("2100").where(mask("2100") > 0, MISSING), 3).foreground == 1
    with pytest.raises(ValueError, match="255"):
        dice(mask("21"), mask("21") * 255, 3)


def test_where_all_pixels_are_ignored_nothing_counts():
    for score in (dice, iou):
        found = score(mask("0110"), torch.full((1, 1, 4), MISSING))
        assert found.score.isnan().all() and found.count.tolist() == [0, 0]


def test_masks_of_unequal_shape_are_refused():
    for p, t in ((mask("01"), mask("011")), (mask("01")[0], mask("01")[0])):
        with pytest.raises(ValueError, match=r"\(N, H, W\)"):
            dice(p, t)


def test_overlap_changes_none_of_its_arguments():
    p, t = mask("0110"), mask("0011")
    before = p.clone(), t.clone()
    assert dice(p, t).foreground == dice(p, t).foreground
    iou(p, t)
    assert torch.equal(p, before[0]) and torch.equal(t, before[1])


def test_annotators_overlap_where_both_drew():
    masks = torch.stack([mask("0110"), mask("0110"), mask("0011")], 1).repeat(2, 1, 1, 1)
    masks[1, 2] = MISSING
    found = pairwise_dice(masks)
    assert found.tolist() == [[1, 1, 0.5], [1, 1, 0.5], [0.5, 0.5, 1]]
    masks[0, 2] = MISSING
    assert pairwise_dice(masks)[2].isnan().all()
