"""The one data container: what it accepts, what it refuses, and what it says then."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.agreement import ratings
from course_lib.annotations import MISSING, Annotations, as_images, as_labels
from course_lib.confusion import GlobalCM, count_matrices
from course_lib.metrics import annotator_accuracy, pairwise_agreement

N, R, L, H, W = 4, 3, 5, 2, 6  # all different: a swapped axis cannot fit by chance
LABELS = np.array([[0, 4, 1], [2, -1, 2], [3, 3, -1], [1, 0, 4]])
FEATURES = np.arange(N * 7, dtype=np.float32).reshape(N, 7)


def annotations(labels=LABELS, images=FEATURES, n_classes=L, **more) -> Annotations:
    return Annotations(images, labels, n_classes=n_classes, **more)


def refusal(function, *arguments, **named) -> str:
    with pytest.raises(ValueError) as caught:
        function(*arguments, **named)
    return str(caught.value)


# What comes out


def test_labels_become_int64_with_minus_one_for_missing():
    data = annotations()
    assert data.labels.dtype == torch.int64
    assert data.labels.tolist() == LABELS.tolist()
    assert MISSING == -1


def test_sizes_count_items_annotators_and_observed_labels():
    data = annotations()
    assert (data.n_items, data.n_annotators, data.n_classes, data.n_observed) == (N, R, L, 10)
    assert data.observed.tolist() == (LABELS != -1).tolist()


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "float32", "float64"])
@pytest.mark.parametrize("torchy", [False, True])
def test_every_number_type_gives_the_same_labels(dtype, torchy):
    raw = np.abs(LABELS).astype(dtype)
    labels = as_labels(torch.from_numpy(raw) if torchy else raw, L)
    assert labels.dtype == torch.int64
    assert labels.tolist() == np.abs(LABELS).tolist()


def test_bool_masks_are_classes_zero_and_one():
    raw = np.array([[True, False], [False, True]])
    for labels in (raw, torch.from_numpy(raw), raw.tolist()):
        assert as_labels(labels, 2).tolist() == [[1, 0], [0, 1]]


def test_nested_lists_are_labels_too():
    assert annotations(LABELS.tolist(), FEATURES.tolist()).labels.tolist() == LABELS.tolist()


def test_nan_is_missing():
    raw = np.where(LABELS == -1, np.nan, LABELS)
    assert annotations(raw).labels.tolist() == LABELS.tolist()
    assert annotations(torch.tensor(raw, dtype=torch.float32)).labels.tolist() == LABELS.tolist()


def test_255_is_missing_where_it_is_declared():
    raw = np.where(LABELS == -1, 255, LABELS).astype(np.uint8)
    data = annotations(raw, missing=255)
    assert data.labels.tolist() == LABELS.tolist()
    assert data.missing == MISSING  # inside there is one code only


def test_nan_may_be_declared_though_it_counts_anyway():
    assert as_labels([[np.nan, 2.0, 1.0]], 3, missing=np.nan).tolist() == [[-1, 2, 1]]


def test_nan_and_a_declared_code_can_both_be_missing():
    assert as_labels([[np.nan, 9.0, 1.0]], 3, missing=9).tolist() == [[-1, -1, 1]]


@settings(max_examples=50, deadline=None)
@given(
    data=st.data(),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 4)),
    classes=st.integers(2, 7),
    code=st.sampled_from([-1, -9, 99, 255]),
)
def test_whatever_the_missing_code_is_it_comes_back_as_minus_one(data, shape, classes, code):
    values = st.lists(st.integers(-1, classes - 1), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1])
    clean = np.array(data.draw(values)).reshape(shape)
    raw = np.where(clean == -1, code, clean)
    assert as_labels(raw, classes, missing=code).tolist() == clean.tolist()
    assert as_labels(raw.astype(float), classes, missing=code).tolist() == clean.tolist()


def test_the_array_that_came_in_is_not_changed_and_not_shared():
    raw = np.where(LABELS == -1, 255, LABELS)
    before = raw.copy()
    data = annotations(raw, missing=255)
    assert (raw == before).all()
    raw[0, 0] = 3
    assert data.labels[0, 0] == 0


def test_a_class_that_nobody_used_is_kept():
    data = annotations([[0, 2], [2, 0], [0, 0], [2, 2]], n_classes=3)
    assert data.n_classes == 3
    assert GlobalCM(data.n_annotators, data.n_classes).A.shape == (2, 3, 3)
    q = torch.eye(3)[data.labels[:, 0]]
    assert count_matrices(data.labels, q).shape == (2, 3, 3)


def test_masks_keep_their_pixels():
    masks = np.random.default_rng(0).integers(0, L, (N, R, H, W))
    data = annotations(masks, np.zeros((N, 3, H, W), np.float32), truth=masks[:, 0])
    assert data.labels.shape == (N, R, H, W)
    assert data.truth.shape == (N, H, W)
    assert data.n_observed == N * R * H * W


def test_masks_of_0_and_255_are_refused_with_both_likely_causes():
    masks = np.random.default_rng(0).choice([0, 255], (N, R, H, W)).astype(np.uint8)
    message = refusal(annotations, masks, np.zeros((N, H, W), np.float32), n_classes=2)
    assert "255" in message and "missing=255" in message and "divide by 255" in message
    count = int((masks == 255).sum())
    assert f"255: {count}" in message


def test_names_default_to_numbers_and_are_kept():
    assert annotations().names == ("annotator 1", "annotator 2", "annotator 3")
    assert annotations(names=["Ada", "Bo", 7]).names == ("Ada", "Bo", "7")


def test_the_container_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        annotations().labels = torch.zeros(1)


# What is refused: values


@pytest.mark.parametrize("value", [L, -4, 255, 1000])
@pytest.mark.parametrize("torchy", [False, True])
def test_a_label_out_of_range_is_named_with_its_count_and_the_classes(value, torchy):
    raw = LABELS.copy()
    raw[0, 0] = raw[3, 2] = value
    message = refusal(annotations, torch.from_numpy(raw) if torchy else raw)
    assert f"{value}: 2" in message
    assert f"0..{L - 1}" in message and f"L={L}" in message


def test_only_the_declared_code_is_skipped():
    message = refusal(annotations, [[0, 1], [-1, 1], [1, 0], [1, 1]], n_classes=2, missing=255)
    assert "-1: 1" in message and "255" in message
    message = refusal(annotations, [[0, 1], [-4, -1], [1, 0], [1, 1]], n_classes=2)
    assert "-4: 1" in message and "-1: " not in message


def test_labels_that_start_at_1_get_the_hint_to_shift():
    assert "start at 1" in refusal(annotations, [[1, 2], [2, 1], [1, 1], [2, 2]], n_classes=2)


def test_an_undeclared_negative_code_gets_the_hint_to_declare_it():
    assert "missing=" in refusal(annotations, np.where(LABELS == -1, -9, LABELS))


def test_halves_are_no_labels():
    message = refusal(annotations, np.where(LABELS == 4, 0.5, LABELS))
    assert "2 are not" in message and "0.5" in message and "argmax" in message


def test_infinity_is_named_in_the_refusal():
    raw = LABELS.astype(float)
    raw[0, 0] = np.inf
    assert "inf" in refusal(annotations, raw)


@pytest.mark.parametrize(
    "labels",
    [
        [["cat", "dog"]] * N,
        np.array([["cat", "dog"]] * N, dtype=object),
        np.array([[b"a", b"b"]] * N),
    ],
)
def test_strings_get_the_fix_with_np_unique(labels):
    message = refusal(annotations, labels, n_classes=2)
    assert "np.unique" in message and "return_inverse=True" in message


def test_numbers_as_names_become_words_everywhere():
    n = len(LABELS)
    data = annotations(classes=range(3, 3 + L), item_names=range(n), sources=[("case", z) for z in range(n)])
    assert data.classes == tuple(str(3 + k) for k in range(L)) and data.item_names[1] == "1"
    assert data.sources[1] == ("case", 1)  # these are no words


def test_none_is_missing_among_numbers_and_shown_among_names():
    for raw in ([[0, None]] * N, np.array([[0, None]] * N, dtype=object), [[0.0, None], [None, 1]] * (N // 2)):
        wanted = [[MISSING if y is None else int(y) for y in row] for row in raw]
        assert annotations(raw, n_classes=2).labels.tolist() == wanted
    assert "None" in refusal(annotations, [["cat", None]] * N, n_classes=2)
    assert "0.5" in refusal(annotations, [[0.5, None]] * N, n_classes=2)


@pytest.mark.parametrize(
    "function", [ratings, pairwise_agreement, lambda y: annotator_accuracy(y, torch.tensor([0, 1]))]
)
@pytest.mark.parametrize("code", [-2, -4, -999])
def test_what_compares_labels_refuses_a_code_that_is_no_class(function, code):
    function(torch.tensor([[0, MISSING, 0], [1, 1, MISSING]]))
    assert f"[{code}], 2 in all" in refusal(function, torch.tensor([[0, code, 0], [1, 1, code]]))


def test_annotators_of_other_data_must_be_the_same_in_the_same_order():
    data = annotations(names=("101", "7", "205"))
    data.check_same_annotators(annotations(names=(101, 7, 205)), "validation")
    data.check_same_annotators(annotations(), "validation")  # who gives no names says nothing of who they are
    message = refusal(data.check_same_annotators, annotations(names=("101", "9", "205")), "validation")
    assert "nothing is known of 9." in message and "101, 7, 205" in message
    assert "order must be the same" in refusal(
        data.check_same_annotators, annotations(names=("7", "101", "205")), "validation"
    )


@pytest.mark.parametrize("n_classes", [1, 0, -2, 2.0, "2", None, True])
def test_the_number_of_classes_is_an_integer_of_at_least_2(n_classes):
    assert "n_classes" in refusal(annotations, [[0, 0]] * N, n_classes=n_classes)


def test_a_numpy_integer_is_a_number_of_classes():
    assert annotations(n_classes=np.int64(L)).n_classes == L


def test_no_label_at_all_is_refused():
    for raw in (np.full((N, R), -1), np.full((N, R), np.nan)):
        assert "no label at all" in refusal(annotations, raw)


# What is refused: shapes


def test_a_single_annotator_needs_a_column():
    assert "labels[:, None]" in refusal(annotations, LABELS[:, 0])
    assert annotations(LABELS[:, :1]).n_annotators == 1


def test_three_axes_are_neither_classes_nor_masks():
    assert "(N, R, H, W)" in refusal(annotations, np.zeros((N, R, H), int))


def test_transposed_labels_are_recognised():
    message = refusal(annotations, LABELS.T)
    assert f"{N} images" in message and f"{R} rows" in message and "transposed" in message


def test_a_truth_with_an_extra_axis_gets_the_medmnist_hint():
    message = refusal(annotations, truth=np.zeros((N, 1), np.uint8))
    assert "truth[:, 0]" in message and str((N, 1)) in message and str((N,)) in message


def test_a_truth_of_another_length_or_out_of_range_is_refused():
    assert "truth" in refusal(annotations, truth=np.zeros(N + 1, int))
    assert f"{L}: 1" in refusal(annotations, truth=[0, 1, L, 2])
    masks = np.zeros((N, R, H, W), int)
    assert str((N, H, W)) in refusal(
        annotations, masks, np.zeros((N, H, W), np.float32), truth=np.zeros((N, W, H), int)
    )


def test_the_number_of_names_must_be_that_of_annotators():
    message = refusal(annotations, names=["a", "b"])
    assert "2 names" in message and f"R={R}" in message


# Images


def test_uint8_images_are_scaled_to_0_1():
    raw = np.array([[[0, 51], [102, 255]]], np.uint8)
    images = as_images(raw)
    assert images.dtype == torch.float32
    assert images.shape == (1, 1, 2, 2)
    assert torch.allclose(images.flatten(), torch.tensor([0.0, 0.2, 0.4, 1.0]))


@pytest.mark.parametrize(
    ("shape", "becomes"),
    [((N, 3, H, W), (N, 3, H, W)), ((N, H, W), (N, 1, H, W)), ((N, 7), (N, 7))],
)
def test_images_get_a_channel_axis_and_float32(shape, becomes):
    raw = np.random.default_rng(0).random(shape)
    images = as_images(raw)
    assert images.shape == becomes
    assert images.dtype == torch.float32  # float64 does not exist on every device
    assert np.allclose(images.numpy().reshape(shape), raw)


@pytest.mark.parametrize("shape", [(N,), (N, 1, 2, 3, 4)])
def test_too_few_or_too_many_axes_are_refused(shape):
    message = refusal(as_images, np.zeros(shape, np.float32))
    assert str(shape) in message and "(N, C, H, W)" in message


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_images_that_are_not_finite_are_refused(bad):
    raw = FEATURES.copy()
    raw[1, 2] = bad
    assert "NaN or infinity" in refusal(annotations, images=raw)


def test_float32_images_are_shared_not_copied():
    images = torch.rand(N, 1, 2, 2)
    assert annotations(images=images).images is images
    assert annotations(images=images).with_labels(LABELS[:, :1]).images is images


# Subsets and other labels


@pytest.mark.parametrize(
    "index",
    [
        slice(1, 3),
        [1, 2],
        np.array([1, 2]),
        torch.tensor([1, 2]),
        np.array([False, True, True, False]),
        torch.tensor([False, True, True, False]),
    ],
)
def test_items_takes_the_same_rows_of_everything(index):
    data = annotations(truth=[0, 2, 3, 1], names=["a", "b", "c"], identities=False)
    part = data.items(index)
    assert part.labels.tolist() == LABELS[1:3].tolist()
    assert part.images.tolist() == FEATURES[1:3].tolist()
    assert part.truth.tolist() == [2, 3]
    assert (part.names, part.identities, part.n_classes) == (("a", "b", "c"), False, L)


def test_items_without_truth_have_none():
    assert annotations().items([0]).truth is None


def test_gaps_declared_as_255_stay_gaps_in_a_subset():
    raw = np.where(LABELS == -1, 255, LABELS)
    data = annotations(raw, missing=255)
    assert data.items([1, 2]).labels.tolist() == LABELS[1:3].tolist()


def test_other_labels_keep_images_truth_and_classes():
    data = annotations(truth=[0, 2, 3, 1], names=["a", "b", "c"])
    vote = data.with_labels([[0], [2], [3], [-1]])
    assert vote.labels.tolist() == [[0], [2], [3], [-1]]
    assert (vote.names, vote.n_classes, vote.truth.tolist()) == (("annotator 1",), L, [0, 2, 3, 1])
    six = data.with_labels(np.hstack([LABELS, LABELS[:, :1]]), names=("a", "b", "c", "reader"))
    assert six.names[-1] == "reader"
    assert data.labels.shape == (N, R)  # the first container is as it was


def test_other_labels_are_checked_too():
    assert f"{L}: 4" in refusal(annotations().with_labels, np.full((N, 1), L))
    assert "transposed" in refusal(annotations().with_labels, LABELS[:2])


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(N)))
def test_items_in_another_order_are_the_same_items(order):
    data = annotations(truth=[0, 2, 3, 1])
    shuffled = data.items(list(order))
    back = shuffled.items(np.argsort(order))
    assert torch.equal(back.labels, data.labels)
    assert torch.equal(back.images, data.images)
    assert torch.equal(back.truth, data.truth)
