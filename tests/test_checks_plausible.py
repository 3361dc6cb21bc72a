"""Chapter 11: what its exercises and sections rest on; its exercises themselves are tested with all others."""

import ast

import pytest
import torch
from exercises import code_cells, defined, functions, printed

from course_lib import metrics, networks
from course_lib.checks import plausible
from course_lib.methods.probabilistic_unet import ProbabilisticUNet, kl, one_at_random
from course_lib.networks import seeded


def from_the_chapter(*names: str) -> dict:
    space = {"torch": torch, "one_at_random": one_at_random}
    for cell in code_cells(11):
        for name, node in functions(cell.source).items():
            if name in names:
                exec(ast.unparse(node), space)
    return space


def test_the_answers_are_the_librarys():
    solved, (between, own, theirs) = defined(11, "solution"), plausible.CASE
    far = metrics.distances(plausible.ONE[None], plausible.OTHER[None], 3, by="dice")[0]
    assert torch.allclose(solved["apart"](plausible.ONE, plausible.OTHER, 3), far)
    a, b = torch.randint(2, (2, 1, 4, 3, 3), generator=seeded(111))
    assert float(solved["fair_energy"](between, own, theirs)) == pytest.approx(
        metrics.ged(a[:, :3], b[:, :4], unbiased=True), abs=1e-5
    )
    masks, samples = torch.randint(2, (2, 1, 4, 3, 3), generator=seeded(1))
    matched = solved["best_match"](metrics.distances(samples, masks)[0])
    assert float(matched) == pytest.approx(metrics.matched_iou(samples, masks), abs=1e-6)


def test_the_mean_over_draws_is_the_kl():
    noise = torch.randn(200_000, plausible.D, generator=seeded(3))
    exact = float(kl(*((m[None], s[None]) for m, s in (plausible.Q, plausible.PRIOR))))
    assert float(defined(11, "solution")["kl_by_draws"](plausible.Q, plausible.PRIOR, noise)) == pytest.approx(
        exact, rel=0.02
    )


def test_the_distances_of_the_chapter_are_the_librarys():
    chapter = from_the_chapter("slow_distance", "slow_ged", "iou_distances", "fast_ged")
    samples, masks = torch.randint(2, (2, 3, 5, 4, 4), generator=seeded(5))
    masks[0, :2] = 0
    samples[0, 0] = 0  # a pair of empty masks
    assert torch.allclose(chapter["iou_distances"](samples, masks), metrics.distances(samples, masks))
    wanted = metrics.ged(samples, masks)
    slow = [chapter["slow_ged"](s.bool(), y.bool()) for s, y in zip(samples, masks, strict=True)]
    assert float(sum(slow)) / 3 == pytest.approx(wanted, abs=1e-5)
    assert float(chapter["fast_ged"](samples, masks)) == pytest.approx(wanted, abs=1e-5)


def test_the_loss_of_the_chapter_is_the_librarys():
    chapter = from_the_chapter("decoded", "gaussian_kl", "minus_elbo")
    method = ProbabilisticUNet(networks.unet(1, 2, width=2, generator=seeded(0)), 1, 2, latent=3, generator=seeded(1))
    x, labels = torch.randn(4, 1, 12, 12, generator=seeded(2)), torch.randint(2, (4, 3, 12, 12), generator=seeded(3))
    found = []
    for loss in (lambda: chapter["minus_elbo"](method, x, labels), lambda: method.loss((x, labels, None, None))):
        torch.manual_seed(4)
        found.append(loss())
    assert torch.isclose(*found)


def test_similarities_with_plus_signs_put_the_perfect_answer_last():
    chapter = from_the_chapter("with_plus")
    chapter["metrics"] = metrics
    people = torch.zeros(1, 3, 6, 6, dtype=torch.long)
    people[:, :, 1:4, 1:4], people[:, 1, 4, 1:4] = 1, 1
    assert chapter["with_plus"](people, people) > 2 > chapter["with_plus"](1 - people, people)
    assert metrics.ged(people, people, by="dice") == pytest.approx(0, abs=1e-6)


def test_at_ci_size_every_outcome_that_the_chapter_reports_of_its_runs_is_printed(executed):
    text = printed(11, executed.root)
    assert text.count("seen: ") + text.count("your run differed: ") == 7
