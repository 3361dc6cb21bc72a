"""Part III's rivals on masks: each loss against a loop or by hand, and the rows of its experiments."""

import math
import types

import pytest
import torch
from torch import nn
from torch.nn.functional import one_hot

from course_lib import fundus, metrics
from course_lib.annotations import MISSING, Annotations
from course_lib.confusion import posterior
from course_lib.experiments import EXPERIMENTS, recurrence, rivals
from course_lib.methods.aggnet import AggNet
from course_lib.methods.crowd_layer import CrowdLayer
from course_lib.methods.em import fit_em
from course_lib.methods.max_mig import MaxMIG
from course_lib.methods.mrnet import MRNet
from course_lib.methods.prism import Prism
from course_lib.networks import seeded, unet
from course_lib.training import fit, load, predict_log_p, save

SETTING = {"scene": "disc_and_cup", "annotators": "dominant"}


def drawn(n: int = 12) -> rivals.Drawn:
    return rivals.prepare(SETTING, 3, n, 6, 16)


def net(seed: int = 0) -> nn.Module:
    return unet(3, 3, width=4, generator=seeded(seed))


def batch_of(data: Annotations, some: slice = slice(None)) -> tuple[torch.Tensor, ...]:
    index = torch.arange(data.n_items)[some]
    return data.images[some], data.labels[some], torch.arange(7).expand(len(index), 7), index


def test_aggnet_learns_its_own_masks_and_a_turn_is_one_round_of_em():
    data = drawn().crowd
    q = one_hot(data.labels[:, 2], 3).movedim(-1, 1).float()
    for score in ("ssim", "ce"):
        model = AggNet(net(), q, score=score).eval()
        x, *rest = batch_of(data, slice(4, 9))
        log_p = model.log_p(x).detach()
        want = 1 - metrics.ssim(log_p.exp(), q[4:9]) if score == "ssim" else -(q[4:9] * log_p).sum(1).mean()
        assert float(model.loss((x, *rest)).detach()) == pytest.approx(float(want))
    log_p = predict_log_p(model, data.images)
    A = torch.zeros(7, 3, 3)
    for r in range(7):
        for k in range(3):
            for said in range(3):
                A[r, said, k] = (q[:, k] * (data.labels[:, r] == said)).sum() / q[:, k].sum()
    want = log_p.clone()
    for r in range(7):
        want += A[r].clamp(min=1e-12).log()[data.labels[:, r]].movedim(-1, 1)
    model.turn(data)
    assert torch.allclose(model.q, want.softmax(1), atol=1e-4)


def test_aggnet_trains_in_turns_saves_and_loads(tmp_path):
    data = drawn().crowd
    model = AggNet(net(), rivals.fused("mode_label", drawn(), 0), rounds=2)
    before = model.q.clone()
    fit_em(model, data, rounds=2, epochs=2, batch_size=4, progress=False)
    assert not torch.allclose(model.q, before)
    save(model, tmp_path / "a.pt")
    again = load(AggNet(net(1), torch.zeros_like(before)), tmp_path / "a.pt")
    assert predict_log_p(again, data.images).equal(predict_log_p(model, data.images))
    with pytest.raises(ValueError, match="ssim or ce"):
        AggNet(net(), before, score="dice")


def test_mrnet_mixes_masks_by_the_weights_that_it_is_told(monkeypatch):
    data = drawn(4).crowd
    model = MRNet(3, 7, 3, width=4, generator=seeded(0))
    monkeypatch.setattr(torch, "rand", lambda *shape, device=None: torch.linspace(0.1, 0.9, 7).expand(*shape))
    x, labels, who, index = batch_of(data)
    w = -torch.linspace(0.1, 0.9, 7).log()
    w = (w / w.sum()).expand(4, 7)
    target = sum(w[0, r] * one_hot(labels[:, r], 3).movedim(-1, 1) for r in range(7))
    want = 1 - metrics.ssim(model.log_p_for(x, w).exp(), target)
    assert float(model.loss((x, labels, who, index)).detach()) == pytest.approx(float(want), abs=1e-5)
    order = torch.tensor([3, 1, 0, 2, 6, 5, 4])  # whoever comes in another order keeps their weight
    assert float(model.loss((x, labels[:, order], who[:, order], index)).detach()) == pytest.approx(
        float(want), abs=1e-5
    )


def test_mrnet_trains_with_one_label_a_picture(tmp_path):
    scene = fundus.disc_and_cup(12, size=16, generator=seeded(0))
    said = rivals.draw_masks(
        scene.truth, scene.images, fundus.PANELS["jitter"], n_classes=3, per_item=1, generator=seeded(1)
    )
    model = MRNet(3, 7, 3, width=4, generator=seeded(0))
    history = fit(model, Annotations(scene.images, said, n_classes=3), epochs=2, batch_size=4, progress=False)
    assert torch.isfinite(history.loss).all() and model.log_p(scene.images).shape == (12, 3, 16, 16)
    save(model, tmp_path / "m.pt")
    again = load(MRNet(3, 7, 3, width=4, generator=seeded(5)), tmp_path / "m.pt")
    assert predict_log_p(again, scene.images).equal(predict_log_p(model, scene.images))


def test_the_crowd_layer_on_masks_is_the_crowd_layer_on_pixels():
    data = drawn(4).crowd
    model = CrowdLayer(net(), 7, 3, spatial=2).eval()
    with torch.no_grad():
        model.W.add_(torch.randn(7, 3, 3, generator=seeded(1)))
    x, labels, who, index = batch_of(data)
    labels = labels.clone()
    labels[0, 3] = MISSING
    p, total, n = model.log_p(x).exp().movedim(1, -1), 0.0, 0
    for r in range(7):
        says = (p @ model.W[r].T).log_softmax(-1)  # (B, H, W, L)
        seen = labels[:, r] != MISSING
        total -= float(says.gather(-1, labels[:, r].clamp(min=0)[..., None])[..., 0][seen].sum())
        n += int(seen.sum())
    assert float(model.loss((x, labels, who, index)).detach()) == pytest.approx(total / n, rel=1e-4)
    assert model.log_A(x).shape == (1, 7, 3, 3, 1, 1)
    fit(model, data, epochs=1, batch_size=2, progress=False)


def test_max_mig_on_masks_is_max_mig_on_pixels(monkeypatch):
    data = drawn(2).crowd
    model = MaxMIG(net(), 7, 3).eval()
    x, labels, who, index = batch_of(data)
    monkeypatch.setattr(torch, "randperm", lambda n, **_: torch.arange(n))
    monkeypatch.setattr(MaxMIG, "PIXELS", 40)
    h = model.log_p(x).exp().movedim(1, -1).flatten(0, -2)[:40]
    g = posterior(model.W[None], torch.full((512, 3), 1 / 3).log(), labels.movedim(1, -1).flatten(0, -2)).exp()[:40]
    T = 3 * h @ g.T
    want = float((T.sum() - T.diagonal().sum()) / (40 * 39) - (1 + T.diagonal().log()).mean())
    assert float(model.loss((x, labels, who, index)).detach()) == pytest.approx(want, rel=1e-4)
    assert model.log_fused(labels).exp().sum(1).allclose(torch.ones(2, 16, 16))
    fit(model, data, epochs=1, batch_size=2, progress=False)


@pytest.mark.parametrize("how", [*rivals.FUSED, "known_matrices", "spatial_staple"])
def test_fused_masks_are_shares(how):
    one = drawn()
    q = rivals.fused(how, one, 0)
    assert q.shape == (12, 3, 16, 16) and torch.allclose(q.sum(1), torch.ones(12, 16, 16), atol=1e-5)
    if how == "truth":
        assert q.argmax(1).equal(one.train.truth)
    if how == "mean_label":
        assert torch.allclose(q[:, 1], (one.crowd.labels == 1).float().mean(1))


def test_the_sizes_of_the_paper_train_for_a_step():
    data = drawn(2).crowd
    model = Prism(3, 7, 3, **rivals.AT_PAPER, generator=seeded(0))
    widths = [layer[0].out_channels for layer in model.encoder.down]
    assert widths == [64, 128, 256, 512] and len(model.divp.blocks) == 4 and model.frugal
    fit(model, data, epochs=1, batch_size=2, progress=False)


def test_fewer_raters_a_picture_may_be_asked():
    one = rivals.prepare(SETTING | {"per_item": 2}, 3, 6, 4, 16)
    assert ((one.crowd.labels[:, :, 0, 0] != MISSING).sum(1) == 2).all()
    assert torch.allclose(rivals.fused("mode_label", one, 0).sum(1), torch.ones(6, 16, 16))


@pytest.fixture
def tiny(monkeypatch):
    few = types.SimpleNamespace(train=6, test=3, side=16, epochs=2, settle=1, batch_size=3, width=4, jobs=1)
    for module in (recurrence, recurrence.masks):
        monkeypatch.setattr(module, "sized", lambda *_, **__: few)
    for module in (recurrence, rivals):
        monkeypatch.setattr(module, "WIDTH", 4)


def run(name):
    return EXPERIMENTS[name](seeds=1, size="ci", device="cpu", progress=False)


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name.startswith("prism-")])
def test_every_method_has_a_row_on_every_draw(name, tiny):
    rows = run(name)
    kinds = {(str(row["setting"]), row["method"], row["draw"]) for row in rows}
    assert len(rows) == len(kinds) == len({str(row["setting"]) for row in rows}) * len({row["method"] for row in rows})
    for row in rows:
        found = row["metrics"]
        assert {"soft_dice_disc", "soft_dice_cup", "soft_dice_cup_vote", "dice_cup_rater_7"} <= set(found)
        assert all(math.isfinite(v) and v >= 0 for v in found.values())
        if row["method"] in rivals.PRISMS:
            assert {f"soft_dice_cup_rec{i}" for i in range(4)} | {"moved_rec3", "fused_soft_dice_cup"} <= set(found)
    pupils = {row["method"] for row in rows if row["method"].endswith("_taught")}
    asked = [
        m
        for m in recurrence.PUPILS
        if name in ("prism-table3", "prism-search", "prism-search-more") and m in {r["method"] for r in rows}
    ]
    assert pupils == {f"{m}_taught" for m in asked}


def test_rows_repeat(tiny):
    assert [row["metrics"] for row in run("prism-fig4")] == [row["metrics"] for row in run("prism-fig4")]
