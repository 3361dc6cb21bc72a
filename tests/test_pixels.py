"""Matrices that change from place to place: every rung of the ladder against the four functions of the book."""

import math

import pytest
import torch

from course_lib.annotations import MISSING, Annotations
from course_lib.confusion import check_cm, label_log_likelihood, log
from course_lib.methods.pixels import Pixels
from course_lib.networks import seeded, unet
from course_lib.pixel_cms import CoarseCM, EverywhereCM, FixedCM, HeardRows, LowRankCM, PixelCM, PlaceCM, coordinates
from course_lib.training import fit, load, predict_log_p, save

R, L = 3, 4
RUNGS = {
    "everywhere": lambda: EverywhereCM(R, L),
    "place": lambda: PlaceCM(R, L, generator=seeded(1)),
    "coarse": lambda: CoarseCM(R, L, 8, generator=seeded(1)),
    "pixel": lambda: PixelCM(R, L, 2, generator=seeded(1)),
    "low rank 1": lambda: LowRankCM(R, L, 2, rank=1, generator=seeded(1)),
    "low rank 3": lambda: LowRankCM(R, L, 2, rank=3, generator=seeded(1)),
}


def net() -> torch.nn.Module:
    return unet(1, L, width=2, generator=seeded(0))


def stirred(cm: torch.nn.Module, seed: int = 5) -> torch.nn.Module:
    """Away from the start, so that no two matrices are alike and none is symmetric."""
    generator = seeded(seed)
    with torch.no_grad():
        for p in cm.parameters():
            p.add_(0.7 * torch.randn(p.shape, generator=generator))
    return cm


def batch(size=(9, 11), B: int = 2, gaps: bool = True) -> tuple[torch.Tensor, ...]:
    generator = seeded(3)
    x = torch.rand(B, 1, *size, generator=generator)
    labels = torch.randint(L, (B, R, *size), generator=generator)
    if gaps:
        labels[torch.rand(labels.shape, generator=generator) < 0.3] = MISSING
    return x, labels, torch.arange(R).expand(B, R), torch.arange(B)


@pytest.mark.parametrize("rung", RUNGS)
def test_every_rung_is_column_stochastic_and_starts_near_the_identity(rung):
    cm = RUNGS[rung]()
    fine, coarse = net().features(batch()[0])
    for change, diagonal in ((lambda cm: cm, 0.88), (stirred, 0)):
        A = change(cm)(fine, coarse).exp().detach()  # (B|1, R, L, L, H, W)
        assert A.shape[1:] == (R, L, L, 9, 11) and len(A) in (1, 2)
        check_cm(A.movedim((2, 3), (-2, -1)))
        assert A.diagonal(dim1=2, dim2=3).min() >= diagonal
    assert not torch.allclose(A, A.transpose(2, 3), atol=0.01)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("rung", RUNGS)
def test_the_loss_is_the_slow_loop(rung, joint):
    method = Pixels(net(), stirred(RUNGS[rung]()), lam=0.3, joint=joint)
    x, labels, who, index = batch((3, 4))
    A, p = (t.detach().exp() for t in (method.log_A(x), method.log_p(x)))
    A = A.expand(2, *A.shape[1:])
    total, n = 0.0, 0
    for b in range(2):
        for y in range(3):
            for w in range(4):
                each = torch.ones(L)
                for r in range(R):
                    said = int(labels[b, r, y, w])
                    if said != MISSING:
                        n += 1
                        row = A[b, r, said, :, y, w]
                        each = each * row
                        total += 0.3 * float(A[b, r, :, :, y, w].trace())
                        total -= 0 if joint else math.log(float(row @ p[b, :, y, w]))
                total -= math.log(float(each @ p[b, :, y, w])) if joint else 0
    assert float(method.loss((x, labels, who, index)).detach()) == pytest.approx(total / n, rel=1e-4)


@pytest.mark.parametrize("rung", RUNGS)
def test_whoever_is_named_is_whose_matrix_is_read(rung):
    """(B, G) of the annotators `who`, in any order, is (B, R) with gaps."""
    method = Pixels(net(), stirred(RUNGS[rung]()), lam=0.3)
    x, labels, who, index = batch()
    labels[0, 1], labels[1, 0] = MISSING, MISSING
    whole = float(method.loss((x, labels, who, index)).detach())
    two = torch.tensor([[2, 0], [1, 2]])
    few = torch.stack([labels[0, [2, 0]], labels[1, [1, 2]]])
    assert float(method.loss((x, few, two, index)).detach()) == pytest.approx(whole, rel=1e-5)
    mixed = torch.tensor([[2, 1, 0], [1, 2, 0]])
    reordered = torch.stack([labels[0, mixed[0]], labels[1, mixed[1]]])
    assert float(method.loss((x, reordered, mixed, index)).detach()) == pytest.approx(whole, rel=1e-5)


def test_heard_rows_have_the_gradient_of_what_they_are():
    log_A = torch.randn(2, R, L, L, 3, 2, generator=seeded(0), dtype=torch.double).log_softmax(2).requires_grad_()
    labels = batch((3, 2))[1]
    assert torch.autograd.gradcheck(lambda a: HeardRows.apply(a, labels), (log_A,))


def test_the_gradient_at_the_said_row_is_the_e_step():
    """d(-log sum_j A[said, j] p[j]) / d log A[said, j] = -p(truth = j | said): STAPLE's W, by backpropagation."""
    A, p = torch.tensor([[0.9, 0.4], [0.1, 0.6]]), torch.tensor([0.7, 0.3])
    log_A = A.log().reshape(1, 1, 2, 2, 1, 1).clone().requires_grad_()
    rows, _ = HeardRows.apply(log_A, torch.zeros(1, 1, 1, 1).long())
    (-(rows + p.log().reshape(1, 1, 2, 1, 1)).logsumexp(2)).sum().backward()
    joint = A[0] * p
    assert torch.allclose(log_A.grad[0, 0, 0, :, 0, 0], -joint / joint.sum(), atol=1e-6)
    assert (log_A.grad[0, 0, 1] == 0).all()


def test_one_matrix_everywhere_is_the_loss_of_part_one():
    x, labels, who, index = batch()
    A = torch.tensor([[[0.8, 0.3], [0.2, 0.7]], [[0.6, 0.1], [0.4, 0.9]], [[0.5, 0.2], [0.5, 0.8]]])
    labels = labels.clamp(max=1)
    method = Pixels(unet(1, 2, width=2, generator=seeded(0)), FixedCM(A[None, ..., None, None]), lam=0.2)
    log_p = method.log_p(x)
    spread = log(A)[None, ..., None, None]
    flat = label_log_likelihood(spread, log_p, labels)
    seen = labels != MISSING
    wanted = (-flat.sum() + 0.2 * (A.diagonal(dim1=1, dim2=2).sum(1)[:, None, None] * seen).sum()) / seen.sum()
    assert float(method.loss((x, labels, who, index)).detach()) == pytest.approx(float(wanted.detach()), rel=1e-5)


def test_a_perfect_fit_costs_nothing_and_lambda_means_the_same_with_one_label_and_five():
    x, labels, who, index = batch(gaps=False)

    class Sure(torch.nn.Module):
        features = lambda self, x: (x, x)  # noqa: E731
        head = lambda self, x: 40.0 * torch.nn.functional.one_hot(labels[:, 0], L).movedim(-1, 1)  # noqa: E731

        def forward(self, x):
            return self.head(x)

    one = labels[:, :1].expand_as(labels)
    eye = torch.eye(L).reshape(1, 1, L, L, 1, 1).expand(1, R, L, L, 1, 1)
    for lam in (0.0, 0.5):
        method = Pixels(Sure(), FixedCM(eye), lam=lam)
        for G in (1, R):
            loss = float(method.loss((x, one[:, :G], who[:, :G], index)))
            assert loss == pytest.approx(lam * L, abs=1e-4)


def test_who_saw_nothing_gets_no_gradient_and_no_label_is_no_loss():
    method = Pixels(net(), RUNGS["pixel"]())
    x, labels, who, index = batch()
    labels[:, 1] = MISSING
    method.loss((x, labels, who, index)).backward()
    own = method.cm.last.bias.grad.reshape(R, -1)
    assert (own[1] == 0).all() and (own[0] != 0).any()
    nothing = method.loss((x, torch.full_like(labels, MISSING), who, index))
    assert float(nothing.detach()) == 0 and nothing.requires_grad


def test_a_place_is_the_same_in_every_image_and_a_pixel_is_not():
    fine, coarse = net().features(batch()[0])
    assert len(stirred(RUNGS["place"]())(fine, coarse)) == 1
    for rung in ("coarse", "pixel", "low rank 1"):
        A = stirred(RUNGS[rung]())(fine, coarse)
        assert not torch.allclose(A[0], A[1], atol=1e-3)
    at = coordinates(fine)[0]
    assert at[0, 0, 0] == -1 and at[0, -1, 0] == 1 and at[1, 0, -1] == 1 and at.shape == (2, 9, 11)


def test_low_rank_never_holds_the_square_and_depends_on_the_truth_even_at_rank_one():
    cm = LowRankCM(2, 20, 2, rank=1, generator=seeded(0))
    held = []
    hook = torch.autograd.graph.saved_tensors_hooks(lambda t: held.append(t.numel()) or t, lambda t: t)
    fine, coarse = unet(1, 20, width=2, generator=seeded(0)).features(torch.rand(1, 1, 16, 16))
    with hook:
        cm.heard(fine, coarse, torch.zeros(1, 2, 16, 16).long(), None)
    assert max(held) < 2 * 20 * 20 * 16 * 16 / 4
    A = stirred(cm)(fine, coarse).exp()
    assert (A[0, 0, :, 0] - A[0, 0, :, 1]).abs().max() > 0.1
    with pytest.raises(ValueError, match="rank"):
        LowRankCM(2, 4, 2, rank=4, generator=seeded(0))


@pytest.mark.parametrize("rung", RUNGS)
def test_every_rung_trains_saves_and_loads(rung, tmp_path):
    x, labels, _, _ = batch(B=12)
    labels = torch.where(labels == MISSING, 0, labels)
    build = lambda: Pixels(net(), RUNGS[rung](), cm_lr=3e-2)  # noqa: E731
    method = build()
    start = {n: p.detach().clone() for n, p in method.named_parameters()}
    history = fit(method, Annotations(x, labels, n_classes=L), epochs=6, lr=1e-2, batch_size=4, progress=False)
    assert history.loss[-1] < history.loss[0]
    still = [n for n, p in method.named_parameters() if torch.equal(p, start[n])]
    assert not still, f"{still} did not move"
    save(method, tmp_path / "m.pt")
    assert torch.equal(predict_log_p(load(build(), tmp_path / "m.pt"), x), predict_log_p(method, x))
    assert method.log_says(x).exp().sum(2).allclose(torch.ones(()), atol=1e-5)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="lam"):
        Pixels(net(), RUNGS["pixel"](), lam=-0.1)
    with pytest.raises(ValueError, match="start"):
        EverywhereCM(2, 2, start=0.4)
    with pytest.raises(ValueError, match=r"R=2 annotators.*\(3, 4, 4\)"):
        fit(Pixels(net(), RUNGS["pixel"]()), Annotations(*batch()[:1], batch()[1][:, :2], n_classes=L), progress=False)
