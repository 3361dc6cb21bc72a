"""Agreement: against published examples, by hand, and on bad input."""

import math

import pytest
import torch

from course_lib.agreement import bland_altman, ratings
from course_lib.annotations import MISSING
from course_lib.networks import seeded

M = MISSING
KRIPPENDORFF = torch.tensor(  # the example of Krippendorff 2011, "Computing Krippendorff's alpha-reliability", C
    [
        [1, 1, M, 1], [2, 2, 3, 2], [3, 3, 3, 3], [3, 3, 3, 3], [2, 2, 2, 2], [1, 2, 3, 4],
        [4, 4, 4, 4], [1, 1, 2, 1], [2, 2, 2, 2], [M, 5, 5, 5], [M, M, 1, 1], [M, M, 3, M],
    ]
)  # fmt: skip


@pytest.mark.parametrize(("distance", "alpha"), [("nominal", 0.743), ("interval", 0.849)])
def test_alpha_is_that_of_the_published_example(distance, alpha):
    assert ratings(KRIPPENDORFF, distance=distance).alpha == pytest.approx(alpha, abs=5e-4)


def test_kappa_by_hand():
    """Three readers, 2 classes: the mean agreement of pairs against that of the pooled shares."""
    said = torch.tensor([[0, 0, 0], [0, 0, 1], [1, 1, 1], [0, 1, 1]])
    observed, share = (1 + 1 / 3 + 1 + 1 / 3) / 4, 6 / 12
    chance = share**2 + (1 - share) ** 2
    found = ratings(said)
    assert found.exact == pytest.approx(observed) and found.kappa == pytest.approx((observed - chance) / (1 - chance))


def test_readers_who_guess_agree_by_chance_and_those_who_do_not_agree_wholly():
    guesses = torch.randint(3, (400, 4), generator=seeded(0))
    assert abs(ratings(guesses).kappa) < 0.05 and abs(ratings(guesses).alpha) < 0.05
    assert ratings(guesses[:, :1].expand(-1, 4)).kappa == pytest.approx(1)
    assert ratings(guesses).kappa == pytest.approx(ratings(guesses[:, [2, 0, 3, 1]]).kappa)  # slots have no order


def test_one_class_alone_leaves_no_chance_to_correct_for():
    for said in (torch.ones(5, 3, dtype=torch.long), torch.zeros(3, 2, dtype=torch.long), torch.tensor([[0, 0, M]])):
        with pytest.warns(UserWarning, match="no variation") as caught:
            found = ratings(said)
        assert len(caught) == 1 and found.exact == 1 and math.isnan(found.kappa) and math.isnan(found.alpha)


def test_a_gap_is_no_category():
    """Each gap as a category of its own would make three readers who never differ agree in a third."""
    found = ratings(torch.tensor([[1, 1, M], [1, 1, 1], [2, M, 2]]))
    assert found.exact == 1 and found.alpha == 1


def test_bland_altman_by_hand_and_its_sign():
    first, second = torch.tensor([3.0, 5.0, 7.0]), torch.tensor([2.0, 5.0, 4.0])
    found = bland_altman(first, second)
    half = 1.96 * torch.tensor([1.0, 0.0, 3.0]).std()
    assert found.bias == pytest.approx(4 / 3) and found.high - found.bias == pytest.approx(float(half), rel=1e-6)
    assert found.middle.tolist() == [2.5, 5.0, 5.5] and bland_altman(second, first).bias == -found.bias


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: ratings(torch.tensor([[1, M], [M, 2]])), "two readers"),
        (lambda: ratings(torch.tensor([1, 2])), r"\(N, R\)"),
        (lambda: ratings(torch.rand(3, 2)), "whole numbers"),
        (lambda: ratings(torch.ones(3, 2, dtype=torch.long), distance="ratio"), "distance"),
        (lambda: bland_altman(torch.ones(3), torch.ones(2)), "same n"),
    ],
)
def test_bad_input_is_told(call, what):
    with pytest.raises(ValueError, match=what):
        call()


@pytest.mark.parametrize("distance", ["nominal", "interval"])
def test_kappa_and_alpha_are_those_of_nltk(distance):
    from nltk.metrics.agreement import AnnotationTask
    from nltk.metrics.distance import binary_distance, interval_distance

    said = torch.randint(4, (60, 5), generator=seeded(3))
    said[:40] = torch.where(torch.rand(40, 5, generator=seeded(4)) < 0.6, said[:40, :1], said[:40])
    told = lambda y, far: AnnotationTask(  # noqa: E731
        [(str(r), str(n), v) for n, row in enumerate(y.tolist()) for r, v in enumerate(row) if v != M], distance=far
    )
    assert ratings(said).kappa == pytest.approx(told(said, binary_distance).pi())
    said[torch.rand(60, 5, generator=seeded(5)) < 0.3] = M
    said = said[(said != M).sum(1) >= 2]
    far = {"nominal": binary_distance, "interval": interval_distance}[distance]
    assert ratings(said, distance=distance).alpha == pytest.approx(told(said, far).alpha())


def test_a_row_that_occurs_three_times_counts_as_three_rows():
    said = torch.tensor([[0, 1, 1], [2, 2, M], [0, 0, 0], [1, 2, 1]])
    times = torch.tensor([3, 1, 2, 1])
    for distance in ("nominal", "interval"):
        repeated = ratings(said.repeat_interleave(times, 0), distance=distance)
        assert ratings(said, distance=distance, times=times) == pytest.approx(repeated)
