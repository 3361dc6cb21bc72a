"""Disc and cup: exact truth, raters with habits, and mistakes that come from the picture."""

import math

import pytest
import torch

from course_lib import fundus, metrics
from course_lib.fundus import CUP, RIM, disc_and_cup, rater
from course_lib.mask_annotators import draw_masks
from course_lib.networks import seeded

SCENE = disc_and_cup(60, generator=seeded(0))


def area(masks: torch.Tensor, least: int) -> torch.Tensor:
    return (masks >= least).float().mean((-1, -2))


def test_the_cup_lies_in_the_disc_and_is_brighter():
    x, truth, L = SCENE
    assert x.shape == (60, 3, 32, 32) and L == 3 and 0 <= float(x.min()) and float(x.max()) <= 1  # noqa: SIM300
    assert set(truth.unique().tolist()) == {0, RIM, CUP} and (area(truth, CUP) < area(truth, RIM)).all()
    assert all((truth[n] == k).any() for n in range(60) for k in range(3))
    mean = [float(x[:, 1][truth == k].mean()) for k in range(3)]
    assert mean[0] < mean[1] < mean[2]
    assert x.equal(disc_and_cup(60, generator=seeded(0)).images)
    assert disc_and_cup(2, size=48, generator=seeded(0)).truth.shape == (2, 48, 48)


def drawn(one: fundus.MaskAnnotator, seed: int = 1) -> torch.Tensor:
    return draw_masks(SCENE.truth, SCENE.images, [one], n_classes=3, generator=seeded(seed))[:, 0]


def test_without_habit_or_spread_a_rater_draws_the_truth():
    assert drawn(rater(spread=0, shift=0)).equal(SCENE.truth)


def test_a_habit_scales_the_outline_about_its_middle():
    wide = drawn(rater(cup=0.3, spread=0, shift=0))
    ratio = (area(wide, CUP) / area(SCENE.truth, CUP)).mean()
    assert float(ratio) == pytest.approx(math.exp(0.6), rel=0.1)  # of areas, e^(2 x .3)
    assert (wide >= RIM).equal(SCENE.truth >= RIM)  # the disc as it is, and the cup in it
    small = drawn(rater(disc=-0.2, cup=-0.2, spread=0, shift=0))
    assert (area(small, RIM) < area(SCENE.truth, RIM)).all() and not ((small > 0) & (SCENE.truth == 0)).any()


def test_shared_mistakes_come_from_the_picture_and_own_ones_do_not():
    def wrong(shared: float, seed: int) -> torch.Tensor:
        return area(drawn(rater(spread=0.2, shift=0, shared=shared), seed), CUP) / area(SCENE.truth, CUP)

    together = [torch.corrcoef(torch.stack([wrong(s, 1), wrong(s, 2)]))[0, 1] for s in (0.0, 0.7, 1.0)]
    assert abs(together[0]) < 0.35 and 0.25 < together[1] < 0.85 and together[2] > 0.99


def test_an_anchored_rater_draws_the_same_cup_into_every_disc():
    share = lambda masks: (area(masks, CUP) / area(masks, RIM)).sqrt()  # noqa: E731
    said = drawn(rater(spread=0, shift=0, anchored=1.0))
    assert float(share(said).std()) < 0.04 < float(share(SCENE.truth).std())
    assert float(share(said).mean()) == pytest.approx(fundus.USUAL, abs=0.03)
    small, large = share(SCENE.truth).argmin(), share(SCENE.truth).argmax()
    assert area(said, CUP)[small] > area(SCENE.truth, CUP)[small]
    assert area(said, CUP)[large] < area(SCENE.truth, CUP)[large]


def test_panels_are_what_they_are_called():
    scores = {}
    for name, panel in fundus.PANELS.items():
        said = draw_masks(SCENE.truth, SCENE.images, panel, n_classes=3, generator=seeded(1))
        cup = [metrics.dice((said[:, r] == CUP).long(), (SCENE.truth == CUP).long(), 2).foreground for r in range(7)]
        scores[name] = torch.tensor(cup)
        habit = area(said, CUP).mean(0) / area(SCENE.truth, CUP).mean()
        assert (habit[2:] > 1.2).all() == (name in ("dominant", "generous"))
    for name in ("dominant", "jitter"):
        assert scores[name][:2].min() > scores[name][2:].max() + 0.1
    assert scores["equal"].max() - scores["equal"].min() < 0.08


@pytest.mark.parametrize(
    "call",
    [
        lambda: disc_and_cup(0, generator=seeded(0)),
        lambda: disc_and_cup(2, size=8, generator=seeded(0)),
        lambda: rater(shared=1.2),
        lambda: rater(spread=-1),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(ValueError, match="wanted"):
        call()
