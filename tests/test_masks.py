"""Scenes with exact truth and annotators of masks: what they draw, calibrated, legal, the same on every machine."""

import numpy as np
import pytest
import torch
from skimage.measure import label

from course_lib import data, scenes
from course_lib.annotations import MISSING, Annotations
from course_lib.fusion import majority, staple
from course_lib.mask_annotators import (
    PANELS,
    blank,
    draw_masks,
    faint,
    faithful,
    fractured,
    left,
    over,
    small,
    sometimes,
    swapped,
    target_columns,
    thin,
    under,
    where,
)
from course_lib.methods.pixels import Pixels
from course_lib.metrics import dice, ged
from course_lib.networks import seeded, unet
from course_lib.pixel_cms import EverywhereCM
from course_lib.training import fit

SCENES = {
    "digits": lambda N, g, **size: scenes.digits(data.mnist5k().take(torch.arange(N) * 61), generator=g, **size),
    "shapes": lambda N, g, **size: scenes.shapes(N, generator=g, **size),
    "lesions": lambda N, g, **size: scenes.lesions(N, generator=g, **size),
    "tumours": lambda N, g, **size: scenes.tumours(N, generator=g, **size),
    "two_digits": lambda N, g, **size: scenes.two_digits(N, data.mnist5k(), generator=g, **size),
    "streets": lambda N, g, **size: scenes.streets(N, generator=g, **size),
    "vessels": lambda N, g, **size: scenes.vessels(N, generator=g, **size),
}  # fmt: skip


def square(size: int = 15, least: int = 5, most: int = 10) -> torch.Tensor:
    truth = torch.zeros(1, size, size, dtype=torch.long)
    truth[:, least:most, least:most] = 1
    return truth


def drawn(
    annotator, truth: torch.Tensor, seed: int = 0, L: int = 2, images: torch.Tensor | None = None
) -> torch.Tensor:
    images = truth[:, None].float() if images is None else images
    return draw_masks(truth, images, [annotator], n_classes=L, generator=seeded(seed))[:, 0]


# Scenes


def test_two_digits_are_a_zero_and_a_one():
    scene = SCENES["two_digits"](40, seeded(1))
    left, right = (part.flatten(1).amax(1) for part in scene.truth.split(24, 2))
    assert ((left + right) == 3).all() and 5 < (left == 1).sum() < 35
    hole = lambda k: ~(scene.truth == k)[:, 8:20].flatten(1).any(1)  # noqa: E731
    assert not hole(1).any() and not hole(2).any()
    assert scene.images.shape == (40, 1, 28, 48) and scene.n_classes == 3
    with pytest.raises(ValueError, match="zeros and ones"):
        scenes.two_digits(3, data.mnist5k().take(torch.arange(1)), generator=seeded(0))


def test_streets_have_sky_above_and_cars_on_the_road():
    scene = SCENES["streets"](40, seeded(1))
    assert (scene.truth[:, 0] == 2).float().mean() > 0.6 and not (scene.truth[:, -1] == 2).any()
    rows = torch.arange(scene.truth.shape[1])[None, :, None].expand_as(scene.truth).float()
    mean_row = [float(rows[scene.truth == k].mean()) for k in range(4)]  # road, buildings, sky, cars
    assert mean_row[2] < mean_row[1] < mean_row[3] < mean_row[0]
    assert (scene.truth == 3).flatten(1).any(1).all()


def test_vessels_are_thin_dark_lines_that_hang_together():
    scene = SCENES["vessels"](20, seeded(1), size=64)
    share = (scene.truth == 1).float().mean((1, 2))
    assert (share > 0.05).all() and (share < 0.3).all()
    inside, outside = scene.images[:, 0][scene.truth == 1].mean(), scene.images[:, 0][scene.truth == 0].mean()
    assert inside < outside - 0.03
    assert all(label((mask == 1).numpy(), connectivity=2).max() <= 3 for mask in scene.truth)


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("size", [28, (27, 31), 64])
def test_scenes_have_any_size_and_a_legal_truth(name, size):
    scene = SCENES[name](3, seeded(0), size=size)
    H, W = (size, size) if isinstance(size, int) else size
    assert scene.images.shape[0] == 3 and scene.images.shape[2:] == scene.truth.shape[1:] == (H, W)
    assert scene.images.dtype == torch.float32 and scene.images.min() >= 0 and scene.images.max() <= 1
    assert scene.truth.dtype == torch.int64 and set(scene.truth.unique().tolist()) <= set(range(scene.n_classes))


@pytest.mark.parametrize("name", SCENES)
def test_scenes_repeat_and_every_class_is_common(name):
    scene = SCENES[name](40, seeded(3))
    again = SCENES[name](40, seeded(3))
    assert torch.equal(scene.images, again.images) and torch.equal(scene.truth, again.truth)
    assert not torch.equal(scene.images, SCENES[name](40, seeded(4)).images)
    for k in range(scene.n_classes):
        assert (scene.truth == k).flatten(1).any(1).float().mean() > 0.9


@pytest.mark.parametrize("name", ["digits", "shapes"])
def test_no_pixel_alone_tells_the_class(name):
    """The best threshold on one pixel is far from the truth: a network has to look around."""
    scene = SCENES[name](40, seeded(0))
    best = max(
        dice((scene.images[:, 0] > t).long(), (scene.truth > 0).long()).foreground for t in np.linspace(0.1, 0.9, 17)
    )
    assert 0.3 < best < 0.8


def test_tumours_lie_in_one_another():
    scene = SCENES["tumours"](20, seeded(0))
    assert scene.images.shape[1] == 4 and scene.n_classes == 4
    for k in (2, 3):  # grown by a pixel, a region meets only the one around it and itself
        inner = scene.truth == k
        around = torch.nn.functional.max_pool2d(inner[:, None].float(), 3, 1, 1)[:, 0] > 0
        assert not (scene.truth[around] < k - 2).any()


@pytest.mark.parametrize("wrong", [{"size": 4}, {"size": (28, 3)}])
def test_tiny_scenes_are_refused(wrong):
    for name in SCENES:
        with pytest.raises(ValueError, match="at least 8 pixels"):
            SCENES[name](2, seeded(0), **wrong)
    with pytest.raises(ValueError, match="at least one picture"):
        scenes.lesions(0, generator=seeded(0))


# Annotators


@pytest.mark.parametrize("size", [15, 16])
def test_thick_contains_thin_lies_within_and_neither_runs_along_an_edge(size):
    truth = square(size, 0, 6)  # touches two edges of the picture
    thick, narrow = drawn(over(1, 1), truth), drawn(under(1, 1), truth)
    assert (thick >= truth).all() and (narrow <= truth).all()
    assert thick.sum() == 36 + 12 and narrow.sum() == 25  # only the two free sides move
    assert (thick[:, 8:] == 0).all() and (thick[:, :, 8:] == 0).all()


@pytest.mark.filterwarnings("ignore:the network predicts no foreground")
def test_a_thin_stroke_vanishes_and_every_consumer_lives_with_it():
    stroke = torch.zeros(1, 16, 16, dtype=torch.long)
    stroke[:, 2:14, 7:9] = 1
    gone = drawn(under(2, 2), stroke)
    assert gone.sum() == 0
    assert dice(gone, stroke).foreground == 0 and dice(gone, gone, empty=1.0).foreground == 1
    assert ged(gone[:, None], stroke[:, None]) == 2 and ged(gone[:, None], gone[:, None]) == 0
    said = torch.cat([gone, stroke, stroke])[None]
    assert staple(said, 2).labels.equal(stroke) and majority(said, 2).equal(stroke)
    model = Pixels(unet(1, 2, width=4, generator=seeded(0)), EverywhereCM(3, 2), lam=0.1)
    history = fit(model, Annotations(stroke[:, None].float(), said, n_classes=2), epochs=2, progress=False)
    assert torch.isfinite(history.loss).all()


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.float32])
@pytest.mark.parametrize("annotator", [over(1, 1), under(1, 1), fractured(1, 1)])
def test_a_truth_of_any_type_is_drawn_alike(annotator, dtype):
    truth = square(16, 0, 6)  # touches two edges of the picture
    assert drawn(annotator, truth.to(dtype)).equal(drawn(annotator, truth))


def test_classes_grow_and_shrink_together():
    scene = scenes.tumours(4, generator=seeded(0))
    thick = drawn(over(1, 1), scene.truth, L=4, images=scene.images)
    narrow = drawn(under(1, 1), scene.truth, L=4, images=scene.images)
    assert (thick >= scene.truth).all() and (narrow <= scene.truth).all()
    for k in (1, 2, 3):
        assert (thick >= k).sum() > (scene.truth >= k).sum() > (narrow >= k).sum()


def test_fractures_are_gaps_in_what_is_too_wide():
    truth = square()
    whole, broken = drawn(over(1, 1), truth), drawn(fractured(1, 1, cuts=(2, 2), width=1), truth)
    assert (broken <= whole).all() and 0 < (whole - broken).sum() <= 10
    assert drawn(fractured(1, 1, cuts=(0, 0)), truth).equal(whole)


def test_blank_says_nothing_and_swapped_the_other_name():
    scene = scenes.shapes(60, generator=seeded(0))
    assert drawn(blank(), scene.truth, L=3).sum() == 0
    said = drawn(swapped(0.7), scene.truth, L=3)
    renamed = torch.tensor([0, 2, 1])[scene.truth]
    share = (said == renamed).flatten(1).all(1).float().mean()
    assert 0.5 < share < 0.9 and ((said == renamed) | (said == scene.truth)).flatten(1).all()


def test_who_is_sometimes_careless_is_so_in_that_share_of_the_pictures():
    truth = square().expand(400, -1, -1)
    said = drawn(sometimes(0.25, blank(), faithful()), truth)
    empty = said.flatten(1).sum(1) == 0
    assert 0.17 < float(empty.float().mean()) < 0.33 and said[~empty].equal(truth[~empty])
    assert drawn(sometimes(0.0, blank(), faithful()), truth).equal(truth)


def test_by_contrast_who_is_right_depends_on_the_picture():
    scene = scenes.lesions(60, generator=seeded(0))
    pale = faint(0.3)(scene.truth, scene.images)[:, 0, 0]
    said = draw_masks(scene.truth, scene.images, PANELS["by_contrast"], n_classes=2, generator=seeded(1))
    assert 0.3 < float(pale.float().mean()) < 0.7
    assert said[~pale][:, 2:].sum() == 0 and dice(said[pale][:, 4], scene.truth[pale]).foreground > 0.8
    assert dice(said[~pale][:, 0], scene.truth[~pale]).foreground > 0.8
    assert said[pale][:, 0].sum() > 2 * scene.truth[pale].sum()


def test_a_steady_hand_draws_the_truth_and_a_trembling_one_nearly():
    scene = SCENES["digits"](50, seeded(0))
    assert drawn(faithful(), scene.truth).equal(scene.truth)
    few, many = (dice(drawn(faithful(t), scene.truth), scene.truth).foreground for t in (0.3, 1.0))
    assert many < few < 1 and few > 0.9


def test_errors_can_hang_on_the_place():
    truth = square(20, 5, 15)
    said = drawn(where(left, blank(), faithful()), truth)
    assert said[:, :, :10].sum() == 0 and said[:, :, 10:].equal(truth[:, :, 10:])


def test_errors_can_hang_on_what_is_drawn():
    truth = square(24, 3, 10)
    truth[:, 14:22, 15] = 1  # a stroke of one pixel beside a square of seven
    strokes = drawn(where(thin(1), blank(), faithful()), truth)
    assert strokes[:, 14:22, 15].sum() == 0 and strokes[:, 4:9, 4:9].all()
    specks = drawn(where(small(10), blank(), faithful()), truth)
    assert specks[:, 14:22, 15].sum() == 0 and specks[:, 3:10, 3:10].all()


def test_errors_can_hang_on_the_picture():
    truth = square().expand(2, -1, -1)
    images = torch.stack([0.2 + 0.6 * truth[0], 0.2 + 0.1 * truth[0]])[:, None]
    said = drawn(where(faint(0.3), blank(), faithful()), truth, images=images)
    assert said[0].equal(truth[0]) and said[1].sum() == 0


def test_the_panels_are_calibrated():
    """`as_released` to the 100 examples published with Zhang 2020: Dice 1, .51, .42, .53, 0 and areas."""
    digits = data.split(data.mnist5k()).train.take(torch.arange(300))
    scene = scenes.digits(digits, generator=seeded(0))
    masks = draw_masks(scene.truth, scene.images, PANELS["as_released"], n_classes=2, generator=seeded(1))
    found = [dice(masks[:, r], scene.truth).foreground for r in range(5)]
    area = [float(masks[:, r].sum() / scene.truth.sum()) for r in range(5)]
    assert found == pytest.approx([1, 0.508, 0.424, 0.534, 0], abs=0.03)
    assert area == pytest.approx([1, 2.9, 0.31, 2.0, 0], abs=0.2)


# Drawing


def test_drawing_repeats_and_changes_with_the_seed():
    scene = SCENES["digits"](10, seeded(0))
    panel = PANELS["missing_foreground"]
    one, two, other = (
        draw_masks(scene.truth, scene.images, panel, n_classes=2, generator=seeded(s)) for s in (1, 1, 2)
    )
    assert one.equal(two) and not one.equal(other) and one.dtype == torch.int64 and one.shape == (10, 5, 28, 28)


def test_each_picture_is_shown_to_as_many_as_asked():
    scene = SCENES["digits"](20, seeded(0))
    masks = draw_masks(scene.truth, scene.images, PANELS["as_released"], n_classes=2, per_item=2, generator=seeded(0))
    seen = masks != MISSING
    assert (seen.flatten(2).any(2).sum(1) == 2).all() and (seen.flatten(2).any(2) == seen.flatten(2).all(2)).all()


def test_the_target_is_how_often_each_says_what():
    truth = square()
    panel = [faithful(), over(1, 2), blank()]
    found = target_columns(truth, truth[:, None].float(), panel, n_classes=2, draws=40, generator=seeded(0))
    assert found.shape == (1, 3, 2, 15, 15) and torch.allclose(found.sum(2), torch.ones(()))
    assert found[0, 0, 1].equal(truth[0].float()) and found[0, 2, 0].min() == 1
    ring = found[0, 1, 1, 3, 7]  # two pixels outside: only those who go two too far
    assert 0.25 < float(ring) < 0.75 and found[0, 1, 1, 4, 7] == 1


def test_bad_input_is_refused_in_plain_words():
    truth, images = square(), square()[:, None].float()
    with pytest.raises(ValueError, match="0 <= least <= most"):
        over(3, 2)
    with pytest.raises(ValueError, match="0 <= least <= most"):
        fractured(cuts=(-1, 2))
    with pytest.raises(ValueError, match="tremor"):
        drawn(faithful(-1.0), truth)
    with pytest.raises(ValueError, match="panel` is empty"):
        draw_masks(truth, images, [], n_classes=2, generator=seeded(0))
    with pytest.raises(ValueError, match=r"\(N, C, H, W\)"):
        draw_masks(truth, images[:, :, :5], [blank()], n_classes=2, generator=seeded(0))
    with pytest.raises(ValueError, match="255"):
        draw_masks(truth * 255, images, [blank()], n_classes=2, generator=seeded(0))
