"""The small networks: what goes in, what comes out, and the same weights on every machine."""

import math

import pytest
import torch
from torch import nn

from course_lib import networks
from course_lib.annotations import Annotations
from course_lib.methods.trace import Trace, Vanilla
from course_lib.networks import initialised, mlp, n_parameters, paper_cnn, seeded, small_cnn, unet
from course_lib.training import fit, predict, predict_log_p

MAKERS = {
    "mlp": lambda generator: mlp(12, 5, hidden=7, generator=generator),
    "small_cnn": lambda generator: small_cnn(3, 5, size=8, generator=generator),
    "paper_cnn": lambda generator: paper_cnn(3, 5, kernels=(2, 3, 4, 6), generator=generator),
    "unet": lambda generator: unet(3, 5, width=2, generator=generator),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_the_same_generator_draws_the_same_weights_whatever_torch_has_drawn_before(kind):
    built = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        built.append(MAKERS[kind](seeded(3)).state_dict())
    assert all(torch.equal(built[0][name], built[1][name]) for name in built[0])
    other = MAKERS[kind](seeded(4)).state_dict()
    layers = [n for n, m in MAKERS[kind](seeded(4)).named_modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    drawn = [name for name in other if name.rpartition(".")[0] in layers]  # the rest: batch norms, which start equal
    assert drawn and all(not torch.equal(built[0][name], other[name]) for name in drawn)


@pytest.mark.parametrize("kind", MAKERS)
def test_the_global_random_state_is_left_alone(kind):
    before = torch.get_rng_state()
    MAKERS[kind](seeded(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_weights_are_uniform_with_variance_one_over_three_times_the_inputs():
    net = mlp(400, 3, hidden=300, generator=seeded(0))
    weight = net[1].weight.detach()
    assert float(weight.abs().max()) <= 1 / math.sqrt(400)
    assert float(weight.var()) == pytest.approx(1 / (3 * 400), rel=0.03)
    kernel = initialised(nn.Conv2d(16, 200, 5), seeded(0)).weight.detach()  # fan-in 16 x 5 x 5
    assert float(kernel.var()) == pytest.approx(1 / (3 * 400), rel=0.03)


def test_a_layer_without_bias_is_initialised_too():
    a, b = (initialised(nn.Linear(4, 3, bias=False), seeded(0)).weight for _ in "ab")
    assert torch.equal(a, b)


@pytest.mark.parametrize("size", [4, 7, 14, 28])
@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_any_size_become_logits(size, channels):
    x = torch.rand(2, channels, size, size)
    for net in (
        mlp(channels * size * size, 5, hidden=8, generator=seeded(0)),
        small_cnn(channels, 5, size=size, generator=seeded(0)),
        paper_cnn(channels, 5, kernels=(2, 2, 3, 3), generator=seeded(0)),
    ):
        assert net(x).shape == (2, 5)


@pytest.mark.parametrize("size", [(28, 28), (27, 31), (9, 8), (4, 4), (65, 40)])
@pytest.mark.parametrize("channels", [1, 4])
def test_a_u_net_answers_each_pixel_of_images_of_any_size(size, channels):
    net = unet(channels, 3, generator=seeded(0))
    x = torch.rand(2, channels, *size)
    fine, coarse = net.features(x)
    assert net(x).shape == (2, 3, *size) and fine.shape == (2, 8, *size)
    assert coarse.shape == (2, 32, *(math.ceil(math.ceil(side / 2) / 2) for side in size))


def test_a_u_net_looks_around():
    """The answer at a pixel hangs on pixels many steps away, and all weights on the loss."""
    net = unet(1, 2, generator=seeded(0))
    x = torch.rand(1, 1, 32, 32).requires_grad_()
    net(x)[0, 1, 16, 16].backward()
    reach = x.grad[0, 0].nonzero()
    assert reach.min() <= 8 and reach.max() >= 24
    net(torch.rand(2, 1, 16, 16)).square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())


def test_an_mlp_takes_features():
    assert mlp(6, 3, generator=seeded(0))(torch.rand(4, 6)).shape == (4, 3)


def test_the_answer_is_logits_not_probabilities():
    out = small_cnn(1, 4, size=8, generator=seeded(0))(torch.rand(5, 1, 8, 8))
    assert (out < 0).any() and not torch.allclose(out.sum(1), torch.ones(5))


def test_the_paper_network_has_the_papers_size():
    wanted = (9 * 1 + 1) * 32 + (9 * 32 + 1) * 32 + (9 * 32 + 1) * 64 + (9 * 64 + 1) * 64 + 65 * 10
    assert n_parameters(paper_cnn(1, 10, generator=seeded(0))) == wanted


def test_only_trained_numbers_are_counted():
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    net[1].requires_grad_(False)
    assert n_parameters(net) == 8


def test_seeded_generators_live_on_the_cpu_and_repeat():
    assert seeded(5).device.type == "cpu"
    assert torch.equal(torch.rand(3, generator=seeded(5)), torch.rand(3, generator=seeded(5)))


@pytest.mark.parametrize("method", [Vanilla, lambda net: Trace(net, 2, 3)])
@pytest.mark.parametrize(
    ("net", "images"),
    [
        (lambda: small_cnn(3, 3, size=8, generator=seeded(0)), (6, 1, 8, 8)),  # grey images for a colour network
        (lambda: small_cnn(1, 3, size=8, generator=seeded(0)), (6, 3, 8, 8)),
        (lambda: mlp(64, 3, generator=seeded(0)), (6, 1, 14, 14)),
        (lambda: small_cnn(1, 3, size=28, generator=seeded(0)), (6, 1, 14, 14)),
    ],
)
def test_images_that_do_not_fit_are_refused_in_plain_words(method, net, images):
    built = method(net())
    x = torch.rand(images)
    labels = torch.randint(3, (6, 2), generator=seeded(0))
    with pytest.raises(ValueError, match="size or number of channels") as caught:
        fit(built, Annotations(x, labels, n_classes=3), epochs=1, progress=False)
    assert str(images[1:]) in str(caught.value)
    for ask in (predict, predict_log_p):
        with pytest.raises(ValueError, match="size or number of channels"):
            ask(built, x)


def test_every_public_network_is_tested_here():
    public = {
        name
        for name, value in vars(networks).items()
        if callable(value) and getattr(value, "__module__", "") == networks.__name__ and not name.startswith("_")
    }
    assert public == {*MAKERS, "UNet", "initialised", "seeded", "n_parameters"}
