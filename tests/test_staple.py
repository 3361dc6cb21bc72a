"""STAPLE and Spatial STAPLE: SimpleITK and the slow loop as oracles, and every mask that made other libraries fail."""

import warnings

import numpy as np
import pytest
import SimpleITK as sitk
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib import bench, fusion
from course_lib.annotations import MISSING
from course_lib.confusion import count_matrices, log, posterior
from course_lib.fusion import dawid_skene, majority, mean_label, spatial_staple, staple
from course_lib.mask_annotators import PANELS, draw_masks
from course_lib.networks import seeded
from course_lib.patterns import EM, Patterns
from course_lib.scenes import lesions, shapes

pytestmark = pytest.mark.filterwarnings("ignore:STAPLE (contradicts|finds)", "ignore:.*not identifiable")


def disc(size: int, radius: float, y: float = 0, x: float = 0) -> torch.Tensor:
    line = torch.arange(size) - size // 2
    return ((line[:, None] - y) ** 2 + (line - x) ** 2 <= radius * abs(radius)).long()


def random_masks(seed: int, N: int = 3, R: int = 4, L: int = 2, size=(7, 9), gaps: bool = False) -> torch.Tensor:
    generator = seeded(seed)
    truth = torch.randint(L, (N, 1, *size), generator=generator)
    wrong = torch.rand(N, R, *size, generator=generator) < torch.linspace(0.1, 0.4, R)[:, None, None]
    said = torch.where(wrong, torch.randint(L, (N, R, *size), generator=generator), truth)
    if gaps:
        said[torch.rand(said.shape, generator=generator) < 0.2] = MISSING
    return said


# Oracles


def simple_itk(masks: torch.Tensor) -> tuple[np.ndarray, tuple, tuple]:
    found = sitk.STAPLEImageFilter()
    found.SetForegroundValue(1)
    image = found.Execute([sitk.GetImageFromArray(mask.numpy().astype(np.uint8)) for mask in masks])
    return sitk.GetArrayFromImage(image), found.GetSensitivity(), found.GetSpecificity()


@pytest.mark.parametrize("seed", range(3))
def test_without_smoothing_staple_is_simple_itks(seed):
    masks = bench.volume(N=4, side=48)[seed]
    p, sensitivity, specificity = simple_itk(masks)
    found = staple(masks, 2, smoothing=0, tolerance=1e-9)
    assert np.abs(found.p[0, 1].numpy() - p).max() < 1e-4
    assert found.sensitivity[0, :, 1].tolist() == pytest.approx(sensitivity, abs=1e-4)
    assert found.sensitivity[0, :, 0].tolist() == pytest.approx(specificity, abs=1e-4)


def slow_staple(masks: torch.Tensor, L: int, steps: int, smoothing: float) -> torch.Tensor:
    """(H W, L): pixel by pixel with the four functions of the book; the prior stays."""
    items = masks.flatten(1).T  # (H W, R)
    p = mean_label(items, L)
    prior = p[(items != MISSING).any(1)].mean(0)
    for _ in range(steps):
        A = count_matrices(items, p, smoothing=smoothing)
        p = posterior(log(A)[None], log(prior).expand_as(p), items).exp()
    return p


@pytest.mark.parametrize(
    ("L", "gaps", "smoothing"), [(2, False, 0.0), (2, True, 0.01), (3, False, 0.3), (4, True, 0.0)]
)
def test_staple_is_the_slow_loop_on_pixels(L, gaps, smoothing):
    masks = random_masks(L, N=2, L=L, gaps=gaps)
    with pytest.warns(UserWarning, match="still moved"):
        found = staple(masks, L, smoothing=smoothing, max_iterations=5, tolerance=0)
    for n in range(2):
        wanted = slow_staple(masks[n], L, 5, smoothing).T.reshape(L, *masks.shape[2:])
        assert torch.allclose(found.p[n].double(), wanted, atol=1e-5)


def test_pooled_images_are_one_tall_image():
    masks = random_masks(0, N=3)
    tall = masks.transpose(0, 1).flatten(1, 2)[None]  # (1, R, N H, W)
    together, one = staple(masks, 2, pooled=True), staple(tall, 2)
    assert torch.allclose(together.p.transpose(0, 1).flatten(1, 2), one.p[0], atol=1e-6)
    assert together.A.shape == (1, 4, 2, 2) and staple(masks, 2).A.shape == (3, 4, 2, 2)


def test_images_do_not_disturb_one_another():
    masks = random_masks(1, N=4)
    together = staple(masks, 2)
    for n in range(4):
        assert torch.allclose(staple(masks[n], 2).p[0], together.p[n], atol=1e-4)


def test_staple_is_dawid_skene_where_the_prior_is_right():
    """A cone of which everybody marks as much as there is: then the share of labels is the share of the truth."""
    generator = seeded(0)
    truth = disc(64, 20).bool()
    miss = torch.rand(5, 64, 64, generator=generator) < 0.1 * float((~truth).sum() / truth.sum())
    add = torch.rand(5, 64, 64, generator=generator) < 0.1
    masks = torch.where(truth, ~miss, add).long()
    items = masks.flatten(1).T
    assert (staple(masks, 2).p[0, 1].flatten() - dawid_skene(items, 2).p[:, 1]).abs().max() < 0.05


def test_leaps_end_where_plain_steps_end(monkeypatch):
    three = torch.stack([disc(18, 3, 0, -4), disc(18, 3, 0, 4), disc(18, 3, 4, 0)])
    fast = staple(three, 2)
    monkeypatch.setattr("course_lib.patterns.PLAIN", 10**9)
    plain = staple(three, 2, max_iterations=20_000, tolerance=1e-9)
    assert fast.converged and plain.converged and fast.iterations < plain.iterations / 4
    assert torch.allclose(fast.p, plain.p, atol=2e-3)


def test_patterns_found_by_counting_sorting_and_not_at_all_give_one_answer(monkeypatch):
    masks = random_masks(2, R=4, L=3, gaps=True)
    counted = staple(masks, 3)
    monkeypatch.setattr("course_lib.patterns.DIRECT", 0)
    sorted_ = staple(masks, 3)
    patterns = Patterns(masks, 3)
    assert (patterns.table[patterns.index] == np.moveaxis(masks.numpy(), 1, -1)).all()
    assert torch.allclose(counted.p, sorted_.p, atol=1e-6) and torch.allclose(counted.A, sorted_.A)
    crowd = torch.full((30, 80), MISSING)
    crowd[:, :3] = masks[0, :3].flatten(1).T[:30]
    assert torch.allclose(dawid_skene(crowd, 3).p, dawid_skene(crowd[:, :3], 3).p)


def test_em_sees_each_pattern_once():
    masks = bench.volume(N=2, side=64)
    assert Patterns(masks, 2).U <= 32 and Patterns(masks, 2).counts().sum() == 2 * 64 * 64


# Masks that made others fail: finite, legal, settled


def check(masks: torch.Tensor, L: int = 2, *, settles: bool = True) -> list[fusion.Fused]:
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for fuse in (
            staple,
            lambda m, L: staple(m, L, pooled=True),
            lambda m, L: staple(m, L, box=True),
            spatial_staple,
        ):
            found.append(fuse(masks, L))
            assert torch.isfinite(found[-1].p).all() and torch.isfinite(found[-1].A).all()
            assert torch.allclose(found[-1].p.sum(1), torch.ones(()), atol=1e-5)
            assert torch.allclose(found[-1].A.sum(2), torch.ones((), dtype=torch.float64))
            assert found[-1].labels.min() >= 0 and found[-1].labels.max() < L
            assert found[-1].converged or not settles, found[-1].change
    masks = masks if masks.ndim == 4 else masks[None]
    vote = majority(masks, L)
    assert ((vote >= 0) | (masks == MISSING).all(1)).all() and (vote < L).all()
    return found


SIZES = (18, 64, 512)
AWKWARD = {
    "all background": lambda n: torch.zeros(3, n, n).long(),
    "all foreground": lambda n: torch.ones(3, n, n).long(),
    "one rater": lambda n: disc(n, 5)[None],
    "two who never agree": lambda n: torch.stack([disc(n, 5), 1 - disc(n, 5)]),
    "two who tie on half": lambda n: torch.stack([disc(n, 6, 0, -3), disc(n, 6, 0, 3)]),
    "two discs apart": lambda n: torch.stack([disc(n, 3, -5), disc(n, 3, 5)]),
    "three discs apart": lambda n: torch.stack([disc(n, 2, -5), disc(n, 2, 5), disc(n, 2, 0, 5)]),
    "three discs that touch": lambda n: torch.stack([disc(n, 3, 0, -4), disc(n, 3, 0, 4), disc(n, 3, 4, 0)]),
    "discs in one another": lambda n: torch.stack([disc(n, r) for r in (2, 4, 7)]),
    "a blank one and a full one": lambda n: torch.stack([disc(n, r) for r in (5, -1, 2 * n * n)]),
    "one pixel": lambda n: torch.stack([disc(n, 0), disc(n, 0, 1), disc(n, 0)]),
    "thin lines": lambda n: torch.stack([(torch.arange(n) == n // 2 + d).expand(n, n).long() for d in (-1, 0, 0, 1)]),
    "nobody saw half of it": lambda n: torch.where(
        torch.arange(n) < n // 2, MISSING, torch.stack([disc(n, 5), disc(n, 4)])
    ),
}  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", AWKWARD)
def test_fusion_gives_finite_legal_settled_labels(name, size):
    check(AWKWARD[name](size))


@pytest.mark.parametrize("name", AWKWARD)
def test_fusion_is_repeatable_to_the_byte(name):
    assert torch.equal(staple(AWKWARD[name](18), 2).p, staple(AWKWARD[name](18), 2).p)


def test_labels_nobody_uses_never_come_out():
    """Classes 0 and 2 of three, a tie between them, and a true consensus on 0 (labels {0, 2})."""
    masks = 2 * torch.stack([disc(18, 5), disc(18, 3), torch.zeros(18, 18).long(), disc(18, 6)])
    for found in check(masks, 3):
        assert set(found.labels.unique().tolist()) <= {0, 2}
    tie = torch.tensor([[[1, 1]], [[1, 2]]])  # ITK answers its "undecided" label here
    for found in check(tie, 3):
        assert int(found.labels[0, 0, 0]) == 1 and int(found.labels[0, 0, 1]) in (1, 2)


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_no_masks_break_fusion(data):
    N, R, L = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 4)), data.draw(st.integers(2, 3))
    H, W = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    least = data.draw(st.sampled_from([0, MISSING]))
    flat = data.draw(st.lists(st.integers(least, L - 1), min_size=N * R * H * W, max_size=N * R * H * W))
    masks = torch.tensor(flat).reshape(N, R, H, W)
    if masks.max() >= 0:
        check(masks, L)


def test_what_is_undefined_is_nan_and_stays_out_of_the_map():
    for k in (0, 1):
        for fuse in (staple, spatial_staple):
            with pytest.warns(UserWarning, match=rf"nobody ever said \[{1 - k}\]") as caught:
                found = fuse(torch.full((3, 4, 4), k), 2)
            assert len(caught) == 1 and (found.labels == k).all() and torch.isfinite(found.p).all()
        with pytest.warns(UserWarning):
            found = staple(torch.full((3, 4, 4), k), 2)
        assert found.converged and (found.labels == k).all()
        assert found.sensitivity[0, :, 1 - k].isnan().all() and not found.sensitivity[0, :, k].isnan().any()


def test_one_label_an_image_is_returned_with_a_warning():
    masks = random_masks(3)
    only = torch.where((torch.arange(4) == 2)[:, None, None], masks, MISSING)
    for fuse in (staple, spatial_staple):
        with pytest.warns(UserWarning, match="reliability is not identifiable") as caught:
            assert torch.equal(fuse(only, 2).labels, masks[:, 2])
        assert len([w for w in caught if "identifiable" in str(w.message)]) == 1


def test_within_the_box_padding_changes_nothing():
    nested = lambda n: torch.stack([disc(n, r) for r in (2, 4, 7)])  # noqa: E731
    inside = [staple(nested(n), 2, box=True).p[0, 1, n // 2 - 8 : n // 2 + 8, n // 2 - 8 : n // 2 + 8] for n in SIZES]
    outside = [staple(nested(n), 2).sensitivity[0, 1, 1] for n in SIZES]
    assert all(torch.allclose(inside[0], other, atol=1e-6) for other in inside[1:])
    assert abs(outside[0] - outside[2]) > 0.02  # without it the canvas decides


def test_doubtful_consensus_is_never_silent():
    """50 readers little better than chance, three a pixel, a small object: the warnings are just what the answer is."""
    spoke = []
    for seed in range(12):
        generator = seeded(seed)
        right = torch.rand(1, 50, 24, 24, generator=generator) < 0.55
        said = torch.where(right, disc(24, 4), 1 - disc(24, 4))
        masks = torch.where(torch.rand(said.shape, generator=generator) < 0.06, said, MISSING)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = staple(masks, 2)
        shares = mean_label(masks, 2)
        disputed = (shares.max(1).values < 1) & (shares.max(1).values > 0.5) & (masks != MISSING).any(1)
        against = (found.labels != majority(masks, 2))[disputed].double().mean() > 0.5
        worse = (found.A[0].diagonal(dim1=1, dim2=2).sum(1) < 1).double().mean() > 0.5
        said = " ".join(str(w.message) for w in caught)
        assert ("contradicts the vote" in said) == against and ("worse than guessing" in said) == worse
        spoke.append(bool(against or worse))
    assert any(spoke) and not all(spoke)


def test_windows_in_doubt_are_told_for_the_image_that_they_make_up():
    """Two images of nine windows: in one the answer is the minority's, in the other three of five are turned round."""
    patterns = Patterns(torch.randint(0, 2, (2, 5, 6, 6), generator=seeded(0)), 2)
    em = EM(patterns, patterns.block_counts(2).reshape(patterns.U, -1), smoothing=0.01, keep_prior=True)
    em.W[:, :9] = em.mean[:, None, ::-1]
    em.A[:] = torch.eye(2).numpy()[:, None]
    em.A[:3, :, 9:] = 1 - torch.eye(2).numpy()[:, None]
    against, worse = em.doubts(2)
    assert against.tolist() == [True, False] and worse.tolist() == [False, True]


def test_unanimous_pixels_keep_their_label():
    masks = torch.ones(5, 10, 20, dtype=torch.long)
    masks[:, :3] = torch.randint(2, (5, 3, 20), generator=seeded(0))
    for found in check(masks):
        assert (found.labels[0, 3:] == 1).all()


def test_an_answer_against_the_vote_is_never_silent():
    scene = lesions(4, generator=seeded(1))
    masks = draw_masks(scene.truth, scene.images, PANELS["as_released"], n_classes=2, generator=seeded(2))
    with pytest.warns(UserWarning, match="contradicts the vote on most pixels in dispute in . of 4 images"):
        staple(masks, 2)


@pytest.mark.parametrize("seed", [83, 284, 310, 540])
def test_where_likelihood_is_flat_em_does_not_wander_for_ever(seed):
    """Two annotators of three classes say nothing of who is right; a thousand more steps would change no likelihood."""
    masks = torch.randint(0, 3, (1, 2, 4, 5), generator=seeded(seed))
    found = staple(masks, 3)
    assert found.converged and found.iterations > 300


def test_em_that_has_not_settled_says_so():
    with pytest.warns(UserWarning, match="STAPLE still moved by"):
        found = staple(random_masks(0), 2, max_iterations=1)
    assert not found.converged and found.iterations == 1


# Spatial STAPLE


def test_windows_find_annotators_who_err_in_one_place():
    scene = shapes(6, size=48, generator=seeded(0))
    truth = (scene.truth > 0).long()
    half = (torch.arange(48) < 24).expand(truth.shape)
    noise = lambda seed: torch.rand(truth.shape, generator=seeded(seed)) < 0.03  # noqa: E731
    good_left = [torch.where(half, truth ^ noise(s).long(), 1) for s in (1, 2)]
    good_right = [torch.where(half, 0, truth ^ noise(s).long()) for s in (3, 4, 5)]
    masks = torch.stack([*good_left, *good_right], 1)
    right = lambda found: float((found.labels == truth).double().mean())  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert right(spatial_staple(masks, 2)) > right(staple(masks, 2)) + 0.02
    found = spatial_staple(masks, 2, window=12)
    assert found.A.shape == (6, 5, 2, 2, 12, 12) and found.prior.shape == (6, 2, 12, 12)
    assert found.sensitivity.shape == (6, 5, 2, 12, 12)
    seen = found.prior[:, 1] > 0  # (N, h, w)
    assert torch.equal(found.sensitivity[:, 3, 1][seen], found.A[:, 3, 1, 1][seen])
    left_of, right_of = (found.sensitivity[:, 3, 1, :, part].nanmean() for part in (slice(0, 5), slice(7, 12)))
    assert right_of > left_of + 0.05  # the fourth sees nothing on the left


def test_a_heavy_prior_gives_the_global_matrices():
    masks = random_masks(5, N=2, size=(12, 12))
    found, world = spatial_staple(masks, 2, prior_weight=1e9), staple(masks, 2)
    assert torch.allclose(found.A, world.A[..., None, None].expand_as(found.A), atol=1e-4)


def test_an_image_smaller_than_its_window_is_one_window():
    masks = random_masks(6, N=1, size=(5, 5))
    assert spatial_staple(masks, 2, window=15).p.shape == (1, 2, 5, 5)


# Bad input


@pytest.mark.parametrize("fuse", [staple, spatial_staple])
def test_masks_are_checked(fuse):
    with pytest.raises(ValueError, match="255"):
        fuse(torch.tensor([[[0, 255]]]), 2)
    with pytest.raises(ValueError, match=r"\(N, R, H, W\)"):
        fuse(torch.zeros(4, 3).long(), 2)
    with pytest.raises(ValueError, match="no label at all"):
        fuse(torch.full((2, 3, 3), MISSING), 2)
    with pytest.raises(ValueError, match="max_iterations >= 1"):
        fuse(torch.zeros(2, 3, 3).long(), 2, max_iterations=0)


@pytest.mark.parametrize("window", [0, -3, 4, 10])
def test_windows_are_thirds(window):
    with pytest.raises(ValueError, match="multiple of 3"):
        spatial_staple(torch.zeros(2, 6, 6).long(), 2, window=window)


def test_masks_of_any_integer_type_give_one_answer():
    masks = random_masks(0)
    wanted = staple(masks, 2).p
    for dtype in (torch.uint8, torch.int16, torch.int32, torch.bool):
        assert torch.equal(staple(masks.to(dtype), 2).p, wanted)
    assert torch.equal(staple(masks.numpy().astype(np.uint8), 2).p, wanted)


def test_the_masks_that_come_in_are_left_alone():
    masks = random_masks(0)
    before = masks.clone()
    staple(masks, 2)
    spatial_staple(masks, 2)
    assert torch.equal(masks, before)


def test_what_others_do_is_timed_with_equal_answers():
    """The rows of `course bench`: the same map and sensitivities as SimpleITK, the same posterior as crowd-kit."""
    row = bench._against_crowdkit(5, 5, labels=2000)
    assert row["difference"] < 1e-6 and row["ratio"] < 1
