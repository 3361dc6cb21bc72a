"""Strokes of both kinds: where they lie, how many are left, and what silence is read as."""

import pytest
import torch

from course_lib import scenes
from course_lib.annotations import MISSING
from course_lib.networks import seeded
from course_lib.strokes import (
    NEGATIVE,
    POSITIVE,
    box,
    coarse,
    denied,
    draw_strokes,
    grown,
    outside_box,
    read_unmarked,
    reduced,
    scribble,
)  # fmt: skip

SHAPES = scenes.shapes(6, size=32, generator=seeded(0))
TRUTH = SHAPES.truth
L = SHAPES.n_classes
HANDS = {"coarse": coarse(), "grown": grown(2), "scribble": scribble(), "box": box(), "outside": outside_box()}


@pytest.mark.parametrize("name", HANDS)
def test_hands_mark_the_same_for_the_same_generator_and_leave_the_region_alone(name):
    region = TRUTH > 0
    before = region.clone()
    one, two = (HANDS[name](region, seeded(3)) for _ in range(2))
    assert one.dtype == torch.bool and one.shape == region.shape and one.equal(two) and region.equal(before)


def test_each_hand_is_what_it_is_called():
    region = TRUTH > 0
    drawn = {name: hand(region, seeded(1)) for name, hand in HANDS.items()}
    assert (drawn["grown"] & region).equal(region) and (drawn["grown"].sum() > region.sum())
    assert (~grown(-2)(~region, seeded(0))).equal(drawn["grown"])  # shared: what one adds, the other leaves out
    assert (drawn["scribble"] & ~region).sum() == 0 and 0 < drawn["scribble"].sum() < 0.4 * region.sum()
    assert (drawn["box"] & region).equal(region)
    for b, mask in enumerate(drawn["box"]):
        y, x = torch.where(region[b])
        want = torch.zeros_like(mask)
        want[y.min() : y.max() + 1, x.min() : x.max() + 1] = True
        assert mask.equal(want)
    assert drawn["outside"].equal(~box()(~region, seeded(1)))
    missed, added = (region & ~drawn["coarse"]).float().mean(), (drawn["coarse"] & ~region).float().mean()
    assert 0 < missed < 0.1 and added > 0.02  # gaps, and too wide
    exact = coarse(grow=0, cuts=0)(region, seeded(2))
    assert exact.equal(region)
    assert not coarse(share=0.0, cuts=0)(region, seeded(2)).logical_xor(region).any()


def test_strokes_carry_the_target_in_both_channels():
    target = torch.tensor([0, 1, 2, 1, 2, 0])
    labels = draw_strokes(
        TRUTH, target, n_classes=L, positive=grown(0), negative=grown(0), generator=seeded(0)
    )  # faithful hands
    assert labels.shape == (6, 2, 32, 32)
    for b, k in enumerate(target.tolist()):
        assert (labels[b, POSITIVE] == k).equal(TRUTH[b] == k) and (labels[b, NEGATIVE] == k).equal(TRUTH[b] != k)
        assert set(labels[b].unique().tolist()) <= {MISSING, k}
    only = draw_strokes(TRUTH, 1, n_classes=L, negative=grown(0), generator=seeded(0))
    assert (only[:, POSITIVE] == MISSING).all() and (only[:, NEGATIVE] == 1).any()


@pytest.mark.parametrize("ratio", [0.01, 0.3, 0.5, 0.8, 1.0])
def test_a_ratio_keeps_the_nearest_to_one_marked_pixel(ratio):
    marked = TRUTH > 0
    marked[3] = False  # nothing to keep
    marked[4] = False
    marked[4, 5, 5:7] = True  # fewer than the least
    kept = reduced(marked, ratio, seeded(4))
    assert not (kept & ~marked).any()
    for b in range(6):
        n = int(marked[b].sum())
        assert int(kept[b].sum()) == min(n, max(4, round(n * ratio)))
    if ratio < 1:
        y, x = torch.where(kept[0])
        ym, xm = torch.where(marked[0])
        centres = [(y - yy).pow(2) + (x - xx).pow(2) for yy, xx in zip(ym, xm, strict=True)]
        others = [
            (yo - yy).pow(2) + (xo - xx).pow(2)
            for yy, xx in zip(ym, xm, strict=True)
            for yo, xo in [torch.where(marked[0] & ~kept[0])]
        ]
        assert any(float(i.max()) <= float(o.min()) for i, o in zip(centres, others, strict=True))


def test_words_that_deny_are_drawn_from_the_column_of_the_truth():
    M = torch.tensor([[0.0, 0.9, 0.2], [0.8, 0.0, 0.8], [0.2, 0.1, 0.0]])
    truth = torch.randint(3, (40, 40, 40), generator=seeded(6))
    labels = denied(truth, M, share=0.5, generator=seeded(7))
    assert (labels[:, POSITIVE] == MISSING).all()
    said, asked = labels[:, NEGATIVE], labels[:, NEGATIVE] != MISSING
    assert float(asked.float().mean()) == pytest.approx(0.5, abs=0.01) and not (said == truth)[asked].any()
    counted = torch.stack([torch.bincount(said[asked & (truth == k)], minlength=3) for k in range(3)], 1).float()
    assert torch.allclose(counted / counted.sum(0), M, atol=0.02)


def test_silence_of_two_classes_is_the_other_class():
    truth = (TRUTH > 0).long()
    labels = draw_strokes(truth, 1, n_classes=2, positive=grown(0), negative=grown(0), generator=seeded(0))
    labels[2, POSITIVE] = MISSING  # was not shown this picture
    read, kinds = read_unmarked(labels, 2)
    assert kinds == ("positive", "negative") and read[:, POSITIVE][[0, 1, 3, 4, 5]].equal(truth[[0, 1, 3, 4, 5]])
    assert (read[2, POSITIVE] == MISSING).all()
    assert read[:, NEGATIVE].equal(1 - truth)  # "not 1" on the background, "not 0" on the object


def test_silence_of_more_classes_is_two_more_channels():
    target = torch.tensor([0, 1, 2, 1, 2, 0])
    labels = draw_strokes(TRUTH, target, n_classes=L, positive=grown(0), negative=grown(0), generator=seeded(0))
    read, kinds = read_unmarked(labels, L)
    assert kinds == ("positive", "negative", "negative", "positive") and read[:, :2].equal(labels)
    assert read[:, 2].equal(labels[:, NEGATIVE]) and read[:, 3].equal(labels[:, POSITIVE])  # faithful hands


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: coarse(share=2), "share"),
        (lambda: denied(TRUTH, torch.eye(3), share=0.0, generator=seeded(0)), "share"),
        (lambda: reduced(TRUTH > 0, 0.0, seeded(0)), "ratio"),
        (lambda: draw_strokes(TRUTH, 1, n_classes=L, generator=seeded(0)), "nobody draws"),
        (lambda: draw_strokes(TRUTH, 9, n_classes=L, positive=box(), generator=seeded(0)), "target"),
        (lambda: draw_strokes(TRUTH[0], 1, n_classes=L, positive=box(), generator=seeded(0)), "truth"),
        (lambda: read_unmarked(TRUTH, 2), "positive and negative"),
    ],
)
def test_bad_input_is_refused(call, what):
    with pytest.raises(ValueError, match=what):
        call()
