"""Sets of masks against sets of masks: the energy distance has the right signs and touches nothing it is given."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.annotations import MISSING
from course_lib.metrics import distances, ged, matched_iou
from course_lib.networks import seeded


def drawn(N: int, S: int, L: int, seed: int, side: int = 3) -> torch.Tensor:
    return torch.randint(0, L, (N, S, side, side), generator=seeded(seed))


def slow(a: torch.Tensor, b: torch.Tensor, L: int, by: str) -> float:
    """1 - IoU or 1 - Dice of two masks (H, W), pixel by pixel."""
    far = 0.0
    for k in range(1, L):
        pairs = list(zip((a == k).flatten().tolist(), (b == k).flatten().tolist(), strict=True))
        both, either, total = (
            sum(x and y for x, y in pairs),
            sum(x or y for x, y in pairs),
            sum(x + y for x, y in pairs),
        )
        near = 1.0 if total == 0 else 2 * both / total if by == "dice" else both / either
        far += (1 - near) / (L - 1)
    return far


def brute(S: torch.Tensor, Y: torch.Tensor, L: int, by: str) -> float:
    mean = lambda a, b: sum(slow(x, y, L, by) for x, y in itertools.product(a, b)) / (len(a) * len(b))  # noqa: E731
    return sum(2 * mean(s, y) - mean(s, s) - mean(y, y) for s, y in zip(S, Y, strict=True)) / len(S)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(2, 4), st.integers(0, 999))
def test_it_is_the_slow_loop_it_is_symmetric_and_identical_sets_are_0_apart(N, S, R, L, seed):
    a, b = drawn(N, S, L, seed), drawn(N, R, L, seed + 1)
    before = a.clone(), b.clone()
    for by in ("iou", "dice"):
        assert ged(a, b, L, by=by) == pytest.approx(brute(a, b, L, by), abs=1e-5)
        assert ged(a, b, L, by=by) == pytest.approx(ged(b, a, L, by=by), abs=1e-5)
        assert ged(a, b, L, by=by) > -1e-5
        assert ged(a, a.flip(1), L, by=by) == pytest.approx(0, abs=1e-5)
    assert a.equal(before[0]) and b.equal(before[1])


def test_by_hand_on_two_by_two():
    """One sample, left column; two people: left column, top row. d(left, top) = 1 - 1/3.

    2 (0 + 2/3) / 2 - 0 - (0 + 2/3 + 2/3 + 0) / 4 = 1/3.
    """
    left, top = torch.tensor([[1, 0], [1, 0]]), torch.tensor([[1, 1], [0, 0]])
    assert ged(left[None, None], torch.stack([left, top])[None]) == pytest.approx(1 / 3)


def test_two_empty_masks_agree_and_one_alone_is_as_far_as_can_be():
    empty, full = torch.zeros(1, 1, 2, 2, dtype=torch.long), torch.ones(1, 1, 2, 2, dtype=torch.long)
    assert ged(empty, empty) == 0 and ged(empty, full) == pytest.approx(2)
    three_of_four = torch.cat([empty, empty, empty, full], 1)  # 2 / 4 - 0 - 6 / 16
    assert ged(empty, three_of_four) == pytest.approx(0.125)


def test_without_self_pairs_a_perfect_answer_of_few_may_lie_below_0():
    both = torch.tensor([[[[1, 0]], [[0, 1]]]])
    assert ged(both, both) == 0 and ged(both, both, unbiased=True) == pytest.approx(-0.5)


def test_who_was_not_asked_does_not_count():
    a, b = drawn(3, 2, 2, 0), drawn(3, 4, 2, 1)
    gaps = torch.cat([b, torch.full((3, 1, 3, 3), MISSING)], 1)
    assert ged(a, gaps) == pytest.approx(ged(a, b), abs=1e-6)
    assert matched_iou(a, gaps) == pytest.approx(matched_iou(a, b), abs=1e-6)
    assert distances(a, gaps)[:, :, 4].isnan().all()


def test_without_self_pairs_few_draws_are_worth_as_much_as_many():
    """Masks drawn like the people's: the plain estimate falls with the number of draws, the unbiased one does not."""
    people = drawn(400, 8, 2, 5)
    plain, fair = ([ged(drawn(400, S, 2, S), people, unbiased=u) for S in (2, 16)] for u in (False, True))
    assert plain[0] - plain[1] > 0.1 and abs(fair[0] - fair[1]) < 0.02


def test_the_match_is_the_best_of_all():
    a, b = drawn(4, 3, 2, 7), drawn(4, 3, 2, 8)
    far = distances(a, b)
    best = [
        min(sum(float(one[i, p[i]]) for i in range(3)) for p in itertools.permutations(range(3))) / 3 for one in far
    ]
    assert matched_iou(a, b) == pytest.approx(1 - sum(best) / 4, abs=1e-6)
    assert matched_iou(a[:, :1].expand(-1, 2, -1, -1), a[:, :1]) == pytest.approx(1)
    assert matched_iou(a, a.flip(1)) == pytest.approx(1) and not math.isnan(matched_iou(a[:, :2], b))


def test_bad_input_is_refused():
    a = drawn(2, 3, 2, 0)
    with pytest.raises(ValueError, match=r"masks\[:, None\]"):
        ged(a, a[:, 0])
    with pytest.raises(ValueError, match="same pictures"):
        ged(a, a[:1])
    with pytest.raises(ValueError, match="'iou' or 'dice'"):
        ged(a, a, by="hausdorff")
    with pytest.raises(ValueError, match="two samples"):
        ged(a[:, :1], a, unbiased=True)
    with pytest.raises(ValueError, match="255"):
        ged(a * 255, a)
