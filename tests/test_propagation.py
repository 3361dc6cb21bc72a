"""Strokes that spread over pictures: an easy picture is solved, hard input is refused, nothing stays silent."""

import pytest
import torch

from course_lib.annotations import MISSING
from course_lib.networks import seeded
from course_lib.propagation import grabcut, random_walker, superpixels
from course_lib.strokes import NEGATIVE, POSITIVE, draw_strokes, scribble

TRUTH = torch.zeros(3, 32, 32, dtype=torch.long)
TRUTH[0, 8:24, 10:26] = TRUTH[1, 4:14, 6:28] = TRUTH[2, 12:30, 3:15] = 1
IMAGES = (TRUTH[:, None].float().expand(-1, 3, -1, -1) * torch.tensor([0.8, 0.5, 0.2])[None, :, None, None]).clone()
IMAGES += 0.03 * torch.randn(IMAGES.shape, generator=seeded(0))
STROKES = draw_strokes(TRUTH, 1, n_classes=2, positive=scribble(), negative=scribble(), generator=seeded(1))


@pytest.mark.parametrize("spread", [random_walker, superpixels, grabcut])
def test_bright_rectangles_are_found_from_scribbles(spread):
    if spread is grabcut:
        pytest.importorskip("cv2", reason="GrabCut needs OpenCV, an extra")
    before = STROKES.clone()
    found = spread(IMAGES, STROKES)
    assert STROKES.equal(before) and found.equal(spread(IMAGES, STROKES))
    inside = found[:, POSITIVE] == 1
    assert (inside == (found[:, NEGATIVE] == MISSING)).all()
    assert ((inside == (TRUTH == 1)).float().mean((1, 2)) > 0.95).all()


def test_a_picture_with_one_kind_of_mark_stays_as_it_is():
    labels = STROKES.clone()
    labels[1, NEGATIVE] = MISSING
    found = random_walker(IMAGES, labels)
    assert found[1].equal(labels[1]) and not found[0].equal(labels[0])


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="labels"):
        random_walker(IMAGES, STROKES[:, :1])
    with pytest.raises(ValueError, match="images"):
        superpixels(IMAGES[:2], STROKES)
