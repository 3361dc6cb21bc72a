"""The warnings name the pair of classes, the margin and the people, and stay silent where nothing is known."""

import pytest
import torch

from course_lib.annotations import MISSING, Annotations
from course_lib.annotators import annotate, pairwise_flippers
from course_lib.confusion import GlobalCM, dominance
from course_lib.diagnose import collapse_warnings, identifiability_warnings
from course_lib.methods.pixels import Pixels
from course_lib.methods.trace import Trace
from course_lib.networks import mlp, seeded, unet
from course_lib.pixel_cms import EverywhereCM
from course_lib.training import fit


def crowd(labels, n_classes, **more):
    labels = torch.as_tensor(labels)
    return Annotations(torch.zeros(len(labels), 2), labels, n_classes=n_classes, **more)


def panel(skill, n=200):
    A = pairwise_flippers(5, 10, skill, generator=seeded(0))
    return A, crowd(annotate(torch.arange(n) % 10, A, generator=seeded(1)), 10)


def test_a_dominant_panel_with_many_labels_is_met_with_silence():
    A, data = panel(0.45)
    assert dominance(A) > 0 and identifiability_warnings(data, A) == []


def test_a_lost_dominance_names_the_pair_and_the_margin():
    # of what is called 1, as much is a 0 (.6) as a 1 (.5): row 1 is lost, the others are not
    A = torch.tensor([[[0.4, 0.2, 0.1], [0.6, 0.5, 0.1], [0.0, 0.3, 0.8]]])
    (warning,) = identifiability_warnings(crowd([[0], [1], [2], [1]], 3), A)
    assert "1 of 3 rows" in warning and "what is called class 1 is at least as often class 0" in warning
    assert "A[1, 1] = 0.500" in warning and "A[1, 0] = 0.600" in warning and "-0.100" in warning


def test_the_margin_is_that_of_dominance_and_of_the_mean_matrix():
    A, data = panel(0.2)
    (warning,) = identifiability_warnings(data, A)
    assert dominance(A) < 0 and f"{dominance(A):+.3f}" in warning
    fooled = torch.tensor([[[0.2, 0.8], [0.8, 0.2]], [[1.0, 0.0], [0.0, 1.0]]])  # one is lost, their mean is not
    assert identifiability_warnings(crowd([[0, 1], [1, 0]] * 3, 2), fooled) == []


def test_a_tie_is_not_dominant():
    (warning,) = identifiability_warnings(crowd([[0], [1]], 2), torch.full((1, 2, 2), 0.5))
    assert "margin +0.000" in warning and "2 of 2 rows" in warning


def test_it_runs_along_rows_not_columns():
    A = torch.tensor([[[0.55, 0.3, 0.3], [0.43, 0.37, 0.3], [0.02, 0.33, 0.4]]])  # each column leads with its diagonal
    assert "class 1 is at least as often class 0" in identifiability_warnings(crowd([[0], [1], [2]], 3), A)[0]


def test_annotators_with_fewer_labels_than_classes_are_named():
    labels = torch.tensor([[0, 1, 2], [1, MISSING, 2], [2, MISSING, MISSING], [0, 1, MISSING]])
    data = crowd(labels, 3, names=("Ada", "Ben", "Cleo"))
    (warning,) = identifiability_warnings(data, torch.eye(3).repeat(3, 1, 1))
    assert "Ben (2), Cleo (2):" in warning and "Ada" not in warning


def test_of_many_such_annotators_five_are_named_and_the_rest_counted():
    (warning,) = identifiability_warnings(crowd([list(range(3)) * 3], 3), torch.eye(3).repeat(9, 1, 1))
    assert warning.count("annotator ") == 5 and "and 4 more" in warning


def test_masks_are_counted_by_image():
    labels = torch.zeros(4, 2, 3, 3, dtype=torch.long)
    labels[1:, 1] = MISSING
    data = Annotations(torch.zeros(4, 1, 3, 3), labels, n_classes=2)
    (warning,) = identifiability_warnings(data, torch.eye(2).repeat(2, 1, 1))
    assert "annotator 2 (1)" in warning and "annotator 1" not in warning


def test_matrices_of_other_annotators_are_refused():
    with pytest.raises(ValueError, match=r"must be \(R, L, L\) = \(1, 2, 2\)"):
        identifiability_warnings(crowd([[0], [1]], 2), torch.eye(2).repeat(3, 1, 1))
    with pytest.raises(ValueError, match="transposed"):
        identifiability_warnings(crowd([[0], [1]], 2), torch.tensor([[[0.9, 0.1], [0.4, 0.6]]]))


def test_a_fit_says_so_by_itself():
    """Two annotators who both call every 0 a 1, and a third with two labels for three classes."""
    truth = torch.arange(300) % 3
    labels = torch.stack([torch.where(truth == 0, 1, truth)] * 2 + [torch.full((300,), -1)], 1)
    labels[:2, 2] = truth[:2]
    images = 3 * torch.eye(3)[truth]
    data = Annotations(images, labels, n_classes=3)
    method = Trace(mlp(3, 3, hidden=8, generator=seeded(0)), 3, 3, cm=GlobalCM.fixed(identity_but_for_zero()))
    with pytest.warns(UserWarning) as heard:
        fit(method, data, epochs=1, progress=False)
    said = " ".join(str(w.message) for w in heard)
    assert "not row dominant" in said and "fewer labels than the 3 classes from annotator 3 (2)" in said


def identity_but_for_zero() -> torch.Tensor:
    A = torch.eye(3).repeat(3, 1, 1)
    A[:, :, 0] = torch.tensor([0.0, 1.0, 0.0])
    return A


# Masks


def masks_of(share: float) -> torch.Tensor:
    """(4, 1, 10, 10): the first rows marked."""
    return (torch.arange(10) < 10 * share).long()[None, None, :, None].expand(4, 1, 10, 10)


def sure(mask: torch.Tensor) -> torch.Tensor:
    return torch.stack([1 - mask, mask], 1).float().clamp(min=1e-6).log()


SHARP = torch.tensor([[0.9, 0.2], [0.1, 0.8]]).log().reshape(1, 1, 2, 2, 1, 1)
LABELS = torch.cat([masks_of(0.2), masks_of(0.4), masks_of(0.0)], 1)


def test_a_sound_model_hears_nothing():
    assert collapse_warnings(sure(masks_of(0.3)[:, 0]), SHARP, LABELS) == []


def test_more_foreground_than_anybody_marks_is_told():
    (said,) = collapse_warnings(sure(masks_of(0.5)[:, 0]), SHARP, LABELS)
    assert "50.0%" in said and "40.0%" in said and "changed places" in said


def test_an_annotator_who_saw_little_counts_by_what_they_saw():
    labels = LABELS.clone()
    labels[1:, 1] = -1
    assert collapse_warnings(sure(masks_of(0.3)[:, 0]), SHARP, labels) == []
    labels[:, 1] = -1
    assert collapse_warnings(sure(masks_of(0.3)[:, 0]), SHARP, labels)


def test_a_truth_given_up_is_told_and_an_empty_picture_is_not():
    (said,) = collapse_warnings(sure(masks_of(0.0)[:, 0]), SHARP, LABELS)
    assert "no foreground anywhere" in said
    assert collapse_warnings(sure(masks_of(0.0)[:, 0]), SHARP, torch.zeros_like(LABELS)) == []


def test_columns_that_are_equal_are_told():
    flat = torch.tensor([[0.6, 0.55], [0.4, 0.45]]).log().reshape(1, 1, 2, 2, 1, 1)
    (said,) = collapse_warnings(sure(masks_of(0.3)[:, 0]), flat, LABELS)
    assert "0.05" in said and "nearly equal" in said


def test_fit_passes_it_on_for_a_single_model_of_masks():
    x = torch.rand(8, 1, 8, 8, generator=seeded(0))
    labels = (x[:, :1] > 0.95).long().expand(8, 3, 8, 8)
    method = Pixels(unet(1, 2, width=2, generator=seeded(0)), EverywhereCM(3, 2, start=0.52))
    with pytest.warns(UserWarning, match="nearly equal"):
        fit(method, Annotations(x, labels, n_classes=2), epochs=1, lr=1e-4, progress=False)
