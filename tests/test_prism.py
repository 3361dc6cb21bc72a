"""MrPrism: its parts against loops and libraries, its three readings, and what a recurrence costs."""

import warnings

import pytest
import torch
from skimage.metrics import structural_similarity
from torch.nn.functional import one_hot

from course_lib import fundus
from course_lib.annotations import MISSING, Annotations
from course_lib.confusion import posterior
from course_lib.mask_annotators import draw_masks
from course_lib.methods.prism import VARIANTS, Prism, Step
from course_lib.metrics import soft_dice, ssim
from course_lib.networks import seeded
from course_lib.prism_networks import INTEGRATIONS, PatchAttention, drawn
from course_lib.training import fit, load, predict_log_p, save


def prism(**how) -> Prism:
    how = {"width": 4, "n_heads": 2, "recurrences": 2, "generator": seeded(0)} | how
    return Prism(3, 7, 3, **how)


def crowd(N: int = 16, panel: str = "dominant", per_item: int | None = None) -> Annotations:
    scene = fundus.disc_and_cup(N, size=24, generator=seeded(1))
    said = draw_masks(
        scene.truth, scene.images, fundus.PANELS[panel], n_classes=3, per_item=per_item, generator=seeded(2)
    )
    return Annotations(scene.images, said, n_classes=3)


def batch_of(data: Annotations) -> tuple[torch.Tensor, ...]:
    return data.images, data.labels, torch.arange(7).expand(data.n_items, 7), torch.arange(data.n_items)


# ---- parts -----------------------------------------------------------------------------------------------------------


def test_ssim_is_that_of_skimage_and_a_similarity():
    a, b = (torch.rand(1, 1, 20, 17, generator=seeded(s)) for s in (0, 1))
    how = {"win_size": 7, "use_sample_covariance": False, "data_range": 1.0}
    assert float(ssim(a, b)) == pytest.approx(structural_similarity(a[0, 0].numpy(), b[0, 0].numpy(), **how), abs=1e-4)
    assert float(ssim(a, a)) == pytest.approx(1) and float(ssim(a, 1 - a)) < float(ssim(a, b)) < 0.5


def test_attention_is_a_loop_over_patches_and_heads():
    C, p, heads = 3, 2, 2
    attention = drawn(PatchAttention(C, p, heads), seeded(0))
    q, k, v = (torch.randn(1, C, 4, 5, generator=seeded(s)) for s in (1, 2, 3))  # 5 is padded to 6
    found = attention(q, k, v)
    assert found.shape == v.shape

    def tokens(x):
        x = torch.nn.functional.pad(x, (0, 1))[0]
        return torch.stack([x[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].flatten() for i in range(2) for j in range(3)])

    Q, K, V = (layer(tokens(x)) for layer, x in zip(attention.maps, (q, k, v), strict=False))
    half, out = C * p * p // heads, []
    for h in range(heads):
        part = slice(h * half, (h + 1) * half)
        out.append((Q[:, part] @ K[:, part].T / half**0.5).softmax(1) @ V[:, part])
    rows = attention.maps[3](torch.cat(out, 1))  # (6 tokens, C p p)
    whole = torch.zeros(C, 4, 6)
    for n, (i, j) in enumerate((i, j) for i in range(2) for j in range(3)):
        whole[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2] = rows[n].reshape(C, p, p)
    assert torch.allclose(found[0], whole[:, :, :5], atol=1e-5)


def test_soft_dice_by_hand():
    p = torch.tensor([[[[0.8, 0.2]], [[0.1, 0.2]], [[0.1, 0.6]]]]).log()  # (1, 3, 1, 2)
    truth = torch.tensor([[[0, 2]]])
    disc = [(2 / 3), (1 * 2) / 2, 1, 1, 0]  # p(disc) = .2, .8 over .1 .3 .5 .7 .9
    assert soft_dice(p, truth, 1) == pytest.approx(sum(disc) / 5)
    assert soft_dice(p, truth, 2) == pytest.approx((1 + 1 + 1 + 0 + 0) / 5)


# ---- the three readings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("integration", INTEGRATIONS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_each_reading_and_integration_trains_saves_and_loads(variant, integration, tmp_path):
    data, method = crowd(), prism(variant=variant, integration=integration)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a single short run
        history = fit(method, data, epochs=3, lr=1e-2, batch_size=8, progress=False)
    assert history.loss.isfinite().all() and history.loss[-1] < history.loss[0]
    log_p = predict_log_p(method, data.images)
    assert log_p.shape == (16, 3, 24, 24) and torch.allclose(log_p.exp().sum(1), torch.ones(()), atol=1e-5)
    with torch.no_grad():
        each, log_A = method.log_p_each(data.images, 4), method.log_A(data.images)
    assert each.shape == (16, 4, 3, 24, 24) and torch.allclose(each[:, 1], log_p, atol=1e-5)
    assert (log_A is not None) == (variant == "corrected")
    if log_A is not None:
        assert log_A.shape == (16, 7, 3, 3, 24, 24)
        assert torch.allclose(log_A.exp().sum(2), torch.ones(()), atol=1e-5)
    save(method, tmp_path / "m.pt")
    again = load(prism(variant=variant, integration=integration), tmp_path / "m.pt")
    assert torch.allclose(predict_log_p(again, data.images), log_p, atol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_unanimous_vote_wins_but_not_as_printed(variant):
    method = prism(variant=variant).eval()
    x = torch.rand(1, 3, 8, 8, generator=seeded(0))
    A = torch.full((3, 3), 0.05).fill_diagonal_(0.9).log()
    log_z = (
        A[:, :, None, None].expand(1, 7, 3, 3, 8, 8)
        if variant == "corrected"
        else A[:, 2, None, None].expand(1, 7, 3, 8, 8)
    )
    step = Step(method.steps(x, 1)[0].log_y, log_z)
    found = method.fused(step, torch.full((1, 7, 8, 8), 2))
    assert (found.argmax(1) == 2).all() == (variant != "printed")


def test_each_recurrence_has_its_own_gradient():
    """Without a loss on the raters DivP learns nothing: what ConP is given and held against is detached."""
    method = prism(losses=(), recurrences=3)
    method.loss(batch_of(crowd(4))).backward()
    assert all(p.grad is None or not p.grad.any() for p in method.divp.parameters())
    assert any(p.grad is not None and p.grad.any() for p in method.conp.parameters())


def test_the_heads_loss_is_the_likelihood_of_part_two():
    data = crowd(3)
    method = prism(recurrences=1, zeta=1.0)
    part = lambda losses: prism(recurrences=1, zeta=1.0, losses=losses).loss(batch_of(data)).detach()  # noqa: E731
    step = method.steps(data.images, 1)[0]
    says = (step.log_z.exp() * step.log_y.exp()[:, None, None]).sum(3)  # (B, R, L, H, W)
    wanted = -says.gather(2, data.labels[:, :, None]).log().mean().detach()
    assert float(part(("heads",)) - part(())) == pytest.approx(float(wanted), abs=1e-4)


def test_the_em_loss_counts_raters_against_the_fused_labels():
    data = crowd(3)
    labels = data.labels.clone()
    labels[0, 2] = MISSING

    def part(losses):
        return prism(recurrences=1, zeta=1.0, losses=losses).loss((data.images, labels, *batch_of(data)[2:])).detach()

    step = prism(recurrences=1).steps(data.images, 1)[0]
    q, total, n = posterior(step.log_z, step.log_y, labels).exp(), 0.0, 0
    for b in range(3):
        for r in range(7):
            for i in range(0 if labels[b, r, 0, 0] == MISSING else 3):
                said = labels[b, r] == i
                total -= float((q[b] * step.log_z[b, r, i])[:, said].sum().detach())
                n += int(said.sum())
    assert float(part(("em",)) - part(())) == pytest.approx(total / n, abs=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_while_all_heads_are_alike_the_shuffle_loss_does_not_know_who_is_who(variant):
    data, losses = crowd(3), []
    for order in ([0, 1, 2, 3, 4, 5, 6], [6, 2, 0, 1, 5, 4, 3]):
        method = prism(variant=variant, losses=("shuffle",), recurrences=1)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            losses.append(float(method.loss((data.images, data.labels[:, order], *batch_of(data)[2:])).detach()))
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_one_label_a_picture_is_enough_to_run():
    data = crowd(per_item=1)
    method = prism()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        history = fit(method, data, epochs=2, lr=1e-2, batch_size=8, progress=False)
    assert history.loss.isfinite().all()
    full, few = crowd(4), crowd(4, per_item=1)
    who = (few.labels != MISSING).flatten(2).any(2).float().argmax(1)[:, None]  # (B, 1)
    short = torch.take_along_dim(few.labels, who[:, :, None, None], 1)
    index = torch.arange(4)
    assert float(method.loss((full.images, short, who, index)).detach()) == pytest.approx(
        float(method.loss((full.images, few.labels, torch.arange(7).expand(4, 7), index)).detach()), abs=1e-6
    )


def held_by(n: int, **how) -> int:
    """Numbers that autograd keeps for the way back, of n recurrences; each array once."""
    kept, method = {}, prism(recurrences=n, **how)

    def remember(x):
        kept[x.data_ptr()] = x.numel()
        return x

    with torch.autograd.graph.saved_tensors_hooks(remember, lambda x: x):
        loss = method.loss(batch_of(crowd(4)))
    assert loss.requires_grad
    return sum(kept.values())


def test_a_frugal_recurrence_more_keeps_its_confidences_and_little_else():
    grows = held_by(4, frugal=True) - held_by(3, frugal=True)
    assert grows < 1.2 * 4 * (7 * 3 * 3 + 3) * 24 * 24  # (B, maps + classes, H, W)
    assert grows < 0.25 * (held_by(4, frugal=False) - held_by(3, frugal=False))


def test_frugal_or_not_the_gradients_are_the_same():
    found = []
    for frugal in (False, True):
        method = prism(frugal=frugal, recurrences=3)
        method.loss(batch_of(crowd(4))).backward()
        found.append({name: p.grad for name, p in method.named_parameters()})
    assert all(torch.allclose(found[0][name], found[1][name], atol=1e-6) for name in found[0])


def test_one_matrix_a_picture_or_one_a_pixel():
    maps = []
    for where, spread in (("picture", False), ("pixel", True)):
        method = prism(where=where).eval()
        torch.nn.init.normal_(method.divp.head.weight, generator=seeded(1))
        y = one_hot(crowd(3).labels[:, 0], 3).movedim(-1, 1).float()
        method.conp.forward = lambda *_, y=y: 5 * y  # segmentations that differ
        A = method.log_A(crowd(3).images).detach().exp()
        assert A.shape == (3, 7, 3, 3, 24, 24) and torch.allclose(A.sum(2), torch.ones(()))
        assert (float(A.std((-1, -2)).max()) > 1e-3) == spread
        maps.append(A)
    assert float((maps[0][0] - maps[0][1]).abs().max()) > 1e-3  # another segmentation, other matrices


def test_settings_that_do_not_exist_are_named():
    for how, what in (
        ({"variant": "official"}, "variant"), ({"integration": "sum"}, "integration"),
        ({"losses": ("trace",)}, "heads"),
        ({"variant": "printed", "losses": ("em",)}, "heads"),
        ({"where": "patch"}, "where"), ({"recurrences": 0}, "recurrences"), ({"n_heads": 5}, "do not divide"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=what):
            prism(**how)
