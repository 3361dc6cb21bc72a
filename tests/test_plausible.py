"""Methods with more than one answer: each learns, and its samples are what they are said to be."""

import math

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from course_lib.annotations import MISSING, Annotations
from course_lib.data import mnist5k
from course_lib.mask_annotators import draw_masks, faithful, over, sometimes
from course_lib.methods.probabilistic_unet import (
    LabelSampling,
    ProbabilisticUNet,
    cross_entropy,
    kl,
    one_at_random,
)
from course_lib.methods.separate import Heads, Separate
from course_lib.methods.trace import Vanilla
from course_lib.metrics import distances
from course_lib.networks import seeded, unet
from course_lib.scenes import digits
from course_lib.training import fit, load, predict_log_p, save

METHODS = {
    "probabilistic": lambda: ProbabilisticUNet(unet(1, 2, width=2, generator=seeded(0)), 1, 2, generator=seeded(1)),
    "label sampling": lambda: LabelSampling([unet(1, 2, width=2, generator=seeded(0))]),
    "ensemble": lambda: LabelSampling([unet(1, 2, width=2, generator=seeded(k)) for k in range(3)]),
    "separate": lambda: Separate([unet(1, 2, width=2, generator=seeded(k)) for k in range(3)]),
    "heads": lambda: Heads(unet(1, 2, width=2, generator=seeded(0)), 3, 2, generator=seeded(1)),
}


def crowd(N: int = 24, seed: int = 0) -> Annotations:
    """Each of three annotators draws a digit as it is, or too wide, at the toss of a coin; some are missing."""
    scene = digits(mnist5k().take(torch.arange(N)), generator=seeded(seed))
    said = draw_masks(
        scene.truth, scene.images, [sometimes(0.5, over(2, 2), faithful())] * 3, n_classes=2, generator=seeded(1)
    )
    said[::3, 1] = MISSING
    return Annotations(scene.images, said, n_classes=2)


@pytest.mark.parametrize("name", METHODS)
def test_each_learns_answers_samples_saves_and_loads(name, tmp_path):
    data, method = crowd(), METHODS[name]()
    history = fit(method, data, epochs=12, lr=1e-2, batch_size=6, progress=False)
    assert history.loss[-1] < 0.9 * history.loss[0]
    method.eval()
    log_p = predict_log_p(method, data.images)
    assert log_p.shape == (24, 2, 28, 28) and torch.allclose(log_p.exp().sum(1), torch.ones(()), atol=1e-5)
    drawn = method.samples(data.images, 5, seeded(2))
    assert drawn.shape == (24, 5, 28, 28) and drawn.dtype == torch.int64 and set(drawn.unique().tolist()) <= {0, 1}
    assert drawn.equal(method.samples(data.images, 5, seeded(2)))
    save(method, tmp_path / "m.pt")
    again = load(METHODS[name](), tmp_path / "m.pt")
    assert torch.equal(predict_log_p(again, data.images), log_p)


def test_one_label_a_step_is_drawn_from_those_who_saw_the_picture():
    labels = torch.arange(3)[None, :, None, None].expand(600, 3, 2, 2).clone()
    labels[:, 1] = MISSING
    chosen = one_at_random(labels)
    assert set(chosen.unique().tolist()) == {0, 2} and 0.4 < float((chosen[:, 0, 0] == 0).float().mean()) < 0.6
    assert (one_at_random(torch.full((2, 3, 2, 2), MISSING)) == MISSING).all()


def test_the_two_terms_by_hand():
    log_p = torch.tensor([[[[0.9, 0.4]], [[0.1, 0.6]]]]).log()  # (1, L, 1, 2)
    assert float(cross_entropy(log_p, torch.tensor([[[0, 1]]]))) == pytest.approx(-math.log(0.9 * 0.6))
    assert float(cross_entropy(log_p, torch.tensor([[[0, MISSING]]]))) == pytest.approx(-math.log(0.9))
    q, p = [(torch.randn(4, 3, generator=seeded(s)), torch.randn(4, 3, generator=seeded(s + 1))) for s in (0, 5)]
    wanted = kl_divergence(*(Normal(m, s.exp()) for m, s in (q, p))).sum(1)
    assert torch.allclose(kl(q, p), wanted, atol=1e-5)


def test_an_ensembles_samples_are_its_networks_and_dropout_stays_on():
    ensemble, x = METHODS["ensemble"]().eval(), crowd().images[:2]
    with torch.no_grad():
        each = torch.stack([net(x).argmax(1) for net in ensemble.networks], 1)
    assert ensemble.samples(x, 3, seeded(0)).equal(each)
    last = torch.nn.Conv2d(1, 2, 1)
    last.weight.data, last.bias.data = torch.tensor([-1.0, 1.0])[:, None, None, None], torch.tensor([0.5, -0.5])
    noisy = LabelSampling([torch.nn.Sequential(torch.nn.Dropout(0.5), last)]).eval()  # class 1 where nothing is dropped
    drawn = noisy.samples(x + 1, 6, seeded(0))
    assert any(not drawn[:, 0].equal(drawn[:, k]) for k in range(1, 6)) and not noisy.networks[0][0].training


@pytest.mark.slow
def test_of_two_equally_likely_masks_it_draws_both_where_the_mean_label_blurs():
    """The textbook check: narrow or wide, never in between; one network on all labels says one half in the rim."""
    scene = digits(mnist5k().take(torch.arange(240)), generator=seeded(0))
    either = [sometimes(0.5, over(2, 2), faithful())] * 4
    said = draw_masks(scene.truth, scene.images, either, n_classes=2, generator=seeded(1))
    wide = draw_masks(scene.truth, scene.images, [over(2, 2)], n_classes=2, generator=seeded(2))
    data = Annotations(scene.images, said, n_classes=2)
    method = ProbabilisticUNet(unet(1, 2, generator=seeded(0)), 1, 2, latent=2, generator=seeded(3))
    fit(method, data, epochs=12, batch_size=8, lr=5e-3, progress=False)
    drawn = method.eval().samples(scene.images[:40], 32, seeded(4))
    to_wide, to_narrow = (distances(drawn, masks[:40])[:, :, 0] for masks in (wide, scene.truth[:, None]))
    assert abs(float((to_wide < to_narrow).float().mean()) - 0.5) < 0.1
    assert float(torch.minimum(to_wide, to_narrow).mean()) < 0.3
    plain = Vanilla(unet(1, 2, generator=seeded(0)))
    fit(plain, data, epochs=12, batch_size=8, lr=5e-3, progress=False)
    rim = (wide[:40, 0] == 1) & (scene.truth[:40] == 0)
    assert 0.3 < float(predict_log_p(plain, scene.images[:40]).exp()[:, 1][rim].mean()) < 0.7


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="latent >= 1"):
        ProbabilisticUNet(unet(1, 2, width=2, generator=seeded(0)), 1, 2, latent=0, generator=seeded(1))
