"""Chapter 13: what its exercises and sections rest on; its exercises themselves are tested with all others."""

import ast

import pytest
import torch
from exercises import code_cells, defined, functions, printed
from torch.nn.functional import one_hot

from course_lib import confidence, confusion, fundus, fusion, metrics
from course_lib.annotations import MISSING
from course_lib.checks import confidence as checks
from course_lib.confusion import log, posterior
from course_lib.edition import tags
from course_lib.experiments.masks import quietly
from course_lib.mask_annotators import draw_masks
from course_lib.networks import seeded


def the_chapter() -> dict:
    """The functions that the chapter defines outside of its exercises."""
    space = {"torch": torch, "K": 3, "CUP": fundus.CUP, "spatial": lambda x: x[None, ..., None, None]}
    space |= {"one_hot": one_hot, "confidence": confidence, "fusion": fusion, "metrics": metrics, "quietly": quietly}
    space |= {name: getattr(confusion, name) for name in ("count_matrices", "log", "posterior")}
    for cell in code_cells(13):
        if not {*tags(cell)} & {"stub", "solution"}:
            for node in functions(cell.source).values():
                exec(ast.unparse(node), space)
    return space


@pytest.fixture(scope="module")
def chapter():
    return the_chapter()


@pytest.fixture(scope="module")
def scene():
    drawn = fundus.disc_and_cup(30, generator=seeded(500))
    return drawn, draw_masks(drawn.truth, drawn.images, fundus.PANELS["dominant"], n_classes=3, generator=seeded(501))


def test_one_pixel_is_the_librarys_posterior_whoever_is_silent():
    one_pixel = defined(13, "solution")["one_pixel"]
    for seed in range(5):
        said = torch.randint(MISSING, 3, (4,), generator=seeded(seed))
        right = posterior(checks.A4.log()[None], checks.PRIOR.log()[None], said[None]).exp()[0]
        assert torch.allclose(one_pixel(checks.A4, checks.PRIOR, said), right)
    assert torch.allclose(one_pixel(checks.A4, checks.PRIOR, torch.full((4,), MISSING)), checks.PRIOR)


def test_at_the_tipping_prior_both_classes_are_equal():
    prior = defined(13, "solution")["tipping_prior"](checks.A2, checks.SAID2)
    both = torch.stack([1 - prior, prior])
    half = posterior(checks.A2.log()[None], both.log()[None], checks.SAID2[None]).exp()[0]
    assert half.tolist() == pytest.approx([0.5, 0.5])


def test_any_shift_of_rows_is_another_solution(capsys):
    for seed in range(3):
        checks.another(lambda A, seed=seed: A.log() + torch.randn(4, 3, 1, generator=seeded(seed)).double())
    assert capsys.readouterr().out.count("✓") == 3


def test_raters_who_roll_their_own_dice_share_nothing(scene):
    drawn, said = scene
    shared = defined(13, "solution")["shared"]
    off = ~torch.eye(5, dtype=torch.bool)
    assert shared(said[:, 2:], drawn.truth, 2, 1)[off].min() > 1.3
    truth = torch.ones(40, 32, 32, dtype=torch.long)
    rolled = torch.where(torch.rand(40, 5, 32, 32, generator=seeded(1)) < 0.3, 2, 1)
    assert torch.allclose(shared(rolled, truth, 2, 1)[off], torch.ones(20).double(), atol=0.05)


def test_the_functions_of_the_chapter_are_bayes(chapter, scene):
    drawn, said = scene
    A, prior = chapter["known"](said, drawn.truth)
    right = posterior(log(A)[None, ..., None, None], log(prior)[None, :, None, None], said).exp()
    assert torch.allclose(chapter["fuse"](A, prior, said), right)
    for n, y, x in [(0, 0, 0), (3, 16, 16), (9, 12, 20)]:
        assert torch.allclose(chapter["one_pixel_slow"](A, prior, said[n, :, y, x]), right[n, :, y, x])


def test_for_two_classes_the_row_ratio_is_exact(chapter):
    A = torch.rand(4, 2, 2, generator=seeded(3)).double() + 0.1
    A = A / A.sum(1, keepdim=True)
    said = torch.randint(0, 2, (2, 4, 5, 5), generator=seeded(4))
    right = posterior(A.log()[None, ..., None, None], torch.zeros(1, 2, 1, 1).double(), said).exp()
    assert torch.allclose(chapter["own_class"](chapter["row_ratio"](A), said), right)


def test_columns_mislead_and_rows_do_not(chapter, scene):
    drawn, said = scene
    score = {name: chapter["cup_dice"](q, drawn.truth) for name, q in chapter["fusions"](said, drawn.truth).items()}
    assert score["as printed"] < 0.1 and score["log-odds"] < score["vote"]
    assert min(score[name] for name in ("row ratio", "diagonal by Bayes", "Bayes, K x K")) > score["log-odds"] + 0.15
    assert score["STAPLE"] < score["vote"] < score["Bayes, K x K"] - 0.1


@pytest.mark.parametrize("rater", [0, 4])
def test_weights_that_come_from_an_answer_give_it_back(chapter, scene, rater):
    _, said = scene
    answer = said[:, rater]
    back = {name: chapter["cup_dice"](q, answer) for name, q in chapter["given_back"](answer, said).items()}
    assert back["log-odds"] > 0.97 and back["Bayes"] > 0.97 and back["as released"] > 0.8


def test_at_ci_size_every_outcome_that_the_chapter_reports_is_seen(executed):
    said = printed(13, executed.root)
    assert said.count("seen: ") >= 9 and "your run differed" not in said
