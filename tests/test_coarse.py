"""Complementary labels: M A p against a loop, two classes as one, the printed transpose, and training."""

import warnings

import pytest
import torch
from torch import nn

from course_lib import scenes
from course_lib.annotations import MISSING, Annotations
from course_lib.confusion import apply, check_p
from course_lib.methods.coarse import StrokeCM, biased, check_complementary, complementary
from course_lib.methods.pixels import Pixels
from course_lib.networks import seeded, unet
from course_lib.pixel_cms import EverywhereCM, FixedCM, PixelCM
from course_lib.strokes import draw_strokes, grown, read_unmarked
from course_lib.training import fit, load, predict_log_p, save

SHAPES = scenes.shapes(8, size=16, generator=seeded(0))
BENT = torch.tensor([[0.0, 0.9, 0.2], [0.8, 0.0, 0.8], [0.2, 0.1, 0.0]])
"""A complement matrix that is not symmetric."""


def rung(n: int, L: int, kind: str) -> nn.Module:
    if kind == "none":
        return FixedCM(torch.eye(L).expand(1, n, L, L)[..., None, None])
    return EverywhereCM(n, L) if kind == "global" else PixelCM(n, L, 4, generator=seeded(1))


def method(L: int, *, kind: str = "pixel", M=None, joint=False, lam=0.05, **how) -> Pixels:
    kinds = how.get("kinds", ("positive", "negative"))
    M = complementary(L) if M is None else M
    net = unet(SHAPES.images.shape[1], L, width=4, generator=seeded(0))
    cm = rung(len(kinds), L, kind)
    for p in cm.parameters():
        with torch.no_grad():
            p.add_(0.3 * torch.randn(p.shape, generator=seeded(5)))  # away from the start
    return Pixels(net, StrokeCM(cm, M, **how), lam=lam, joint=joint)


def batch_of(labels: torch.Tensor, images=SHAPES.images) -> tuple:
    return images, labels, torch.arange(labels.shape[1]).expand(len(labels), -1), torch.arange(len(labels))


def some_labels(L: int, n: int = 2) -> torch.Tensor:
    return torch.randint(-1, L, (8, n, 16, 16), generator=seeded(9))


@pytest.mark.parametrize("learn_M", [False, True])
@pytest.mark.parametrize("kind", ["none", "global", "pixel"])
def test_the_loss_is_a_loop_over_pixels(kind, learn_M):
    model, labels = method(3, kind=kind, M=BENT, learn_M=learn_M), some_labels(3)
    labels[1:] = MISSING
    with torch.no_grad():
        p, (fine, rough) = model.log_p(SHAPES.images).exp()[0], model.network.features(SHAPES.images)
        A = model.cm.cm(fine, rough).exp()
        A = A.expand(8, -1, -1, -1, 16, 16)[0]
        loss = float(model.loss(batch_of(labels)))
    total, n = 0.0, 0
    for r in range(2):
        for y in range(16):
            for x in range(16):
                k = int(labels[0, r, y, x])
                if k == MISSING:
                    continue
                u = A[r, :, :, y, x] @ p[:, y, x]
                v = BENT @ u if r == 1 else u
                total += -float(v[k].log()) + 0.05 * float(A[r, :, :, y, x].trace())
                n += 1
    assert loss == pytest.approx(total / n, abs=1e-3)


def test_what_annotators_will_say_sums_to_one_and_a_negative_one_never_denies_what_they_believe():
    model = method(3, kind="none", M=BENT)
    with torch.no_grad():
        says, log_A = model.log_says(SHAPES.images).exp(), model.log_A(SHAPES.images).exp()
    assert torch.allclose(says.sum(2), torch.ones(()), atol=1e-4)
    assert torch.allclose(log_A.sum(2), torch.ones(()), atol=1e-4)
    assert torch.allclose(log_A[0, 1, :, :, 0, 0], BENT, atol=1e-4)
    assert torch.allclose(log_A[0, 0, :, :, 0, 0], torch.eye(3), atol=1e-4)


def test_with_two_classes_a_negative_stroke_is_a_positive_one_of_the_other_class():
    u = torch.rand(50, generator=seeded(2))
    log_u = torch.stack([u, 1 - u], 1).log()
    swap = complementary(2)
    assert swap.equal(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    v = apply(swap.clamp(min=1e-30).log()[None, None], log_u)[:, 0]
    assert torch.allclose(-v[:, 1], -log_u[:, 0], atol=1e-6) and torch.allclose(-v[:, 0], -log_u[:, 1], atol=1e-6)
    labels = some_labels(2)
    turned = torch.where((labels == MISSING) | (torch.arange(2) == 0)[None, :, None, None], labels, 1 - labels)
    images = SHAPES.images
    net = unet(images.shape[1], 2, width=4, generator=seeded(0))
    cm = rung(2, 2, "pixel")
    ours = Pixels(net, StrokeCM(cm, swap))
    theirs = Pixels(net, cm)
    assert float(ours.loss(batch_of(labels)).detach()) == pytest.approx(
        float(theirs.loss(batch_of(turned)).detach()), abs=1e-4
    )


def test_the_printed_transpose_of_a_bent_M_gives_no_probabilities():
    u = torch.tensor([0.6, 0.3, 0.1])
    assert torch.allclose(BENT @ u, torch.tensor([0.29, 0.56, 0.15])) and float((BENT @ u).sum()) == pytest.approx(1)
    assert float((BENT.T @ u).sum()) == pytest.approx(1.17)
    with pytest.raises(ValueError, match="transposed"):
        check_complementary(BENT.T)
    with pytest.raises(ValueError, match="diagonal"):
        check_complementary(torch.eye(3))
    for M in (complementary(2), complementary(5), BENT):
        assert check_complementary(M) is M


def test_a_complementary_label_is_foretold_from_probabilities_and_not_from_scores():
    p, scores = torch.tensor([[0.7, 0.2, 0.1]]), torch.tensor([[3.0, 1.0, 0.0]])
    assert torch.allclose(apply(complementary(3).log()[None, None], p.log()).exp(), torch.tensor([0.15, 0.4, 0.45]))
    assert (complementary(3) @ scores[0]).tolist() == [0.5, 1.5, 2.0]
    with pytest.raises(ValueError, match="Are these logits"):
        check_p(complementary(3) @ scores.T, axis=0)


def test_M_of_counts_by_hand():
    M = biased(torch.tensor([[0, 0, 1], [MISSING, 2, 0]]), 3)  # counts 3, 1, 1
    want = torch.tensor([[0.0, 3 / 4, 3 / 4], [1 / 2, 0.0, 1 / 4], [1 / 2, 1 / 4, 0.0]])
    assert torch.allclose(check_complementary(M), want)
    with pytest.raises(ValueError, match="two classes"):
        biased(torch.tensor([1, 1, MISSING]), 3)
    with pytest.raises(ValueError, match="2 classes"):
        complementary(1)


def test_a_mask_is_taken_as_the_truth_and_learns_no_matrix():
    kinds = ("positive", "negative", "mask")
    model = method(3, kinds=kinds, lam=0.0)
    labels = some_labels(3, 3)
    labels[:, :2] = MISSING
    want = nn.functional.nll_loss(model.log_p(SHAPES.images), labels[:, 2], ignore_index=MISSING)
    loss = model.loss(batch_of(labels))
    assert float(loss.detach()) == pytest.approx(float(want.detach()), abs=1e-4)
    loss.backward()
    assert all(p.grad is None or not p.grad.any() for p in model.cm.cm.parameters())
    with pytest.raises(ValueError, match="kinds"):
        StrokeCM(rung(1, 3, "global"), complementary(3), kinds=("maybe",))


@pytest.mark.parametrize("L", [2, 3])
@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("unmarked", ["missing", "other"])
def test_strokes_train_save_and_load(L, joint, unmarked, tmp_path):
    truth = SHAPES.truth.clamp(max=L - 1)
    target = torch.randint(L, (8,), generator=seeded(1)) if L > 2 else 1
    labels = draw_strokes(truth, target, n_classes=L, positive=grown(1), negative=grown(0), generator=seeded(3))
    kinds = ("positive", "negative")
    if unmarked == "other":
        labels, kinds = read_unmarked(labels, L)
    model = method(L, joint=joint, kinds=kinds, learn_M=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a single short run
        data = Annotations(SHAPES.images, labels, n_classes=L)
        history = fit(model, data, epochs=4, batch_size=4, lr=1e-2, progress=False)
    assert history.loss.isfinite().all() and history.loss[-1] < history.loss[0]
    assert model.cm.log_M().exp().sum(0).allclose(torch.ones(L)) and model.cm.log_M().exp().diagonal().max() < 1e-9
    save(model, tmp_path / "m.pt")
    again = load(method(L, joint=joint, kinds=kinds, learn_M=True), tmp_path / "m.pt")
    assert torch.allclose(predict_log_p(again, SHAPES.images), predict_log_p(model, SHAPES.images), atol=1e-6)
