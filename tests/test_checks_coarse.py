"""Chapter 17: what its exercises and sections rest on; its exercises themselves are tested with all others."""

import ast
import math

import numpy as np
import pytest
import torch
from exercises import code_cells, defined

from course_lib import strokes
from course_lib.annotations import MISSING
from course_lib.checks import coarse as checks
from course_lib.edition import tags
from course_lib.networks import seeded

SHOWN = ("HANDS =", "RATIOS =", "PLACES =", "UP =", "COLOURS =", "GIVEN =")


@pytest.fixture(scope="module")
def chapter() -> dict:
    """Imports, functions and short tables of the chapter, outside of its exercises."""
    space: dict = {}
    for cell in code_cells(17):
        if not {*tags(cell)} & {"stub", "solution", "training"}:
            for node in ast.parse(cell.source).body:
                imports = isinstance(node, ast.Try) and "ImportError" in ast.unparse(node)
                if imports and "course_lib" in ast.unparse(node.body):
                    exec("\n".join(ast.unparse(line) for line in node.body), space)
                elif isinstance(node, ast.FunctionDef) or ast.unparse(node).startswith(SHOWN):
                    exec(ast.unparse(node), space)
    return space


def blobs(n: int = 6, seed: int = 0) -> torch.Tensor:
    """Masks (n, 12, 15) of 0 and 1: smooth blobs."""
    noise = torch.randn(n, 1, 4, 5, generator=seeded(seed))
    return (torch.nn.functional.interpolate(noise, (12, 15), mode="bicubic")[:, 0] > 0.3).long()


# ---- the exercises ---------------------------------------------------------------------------------------------------


def test_a_box_is_that_of_the_library():
    masks = torch.cat([blobs() == 1, torch.zeros(1, 12, 15, dtype=torch.bool)])
    assert defined(17, "solution")["boxes"](masks).equal(strokes.box()(masks, seeded(0)))


def test_a_large_disc_is_counted_as_the_formula_says():
    y, x = torch.meshgrid(torch.arange(161) - 80.0, torch.arange(161) - 80.0, indexing="ij")
    disc = (y**2 + x**2 <= 50**2)[None]
    wide = strokes.grown(5)(disc, seeded(0))
    counted = float((wide & ~disc).sum() / wide.sum())
    assert defined(17, "solution")["wrong_share"](50, 5) == pytest.approx(counted, abs=0.02)


def test_words_of_a_thousand_pictures_are_as_the_forecast_says():
    ratio, recall, spill = 0.4, 0.9, 0.2
    g, truth = seeded(1), torch.randint(0, 2, (1000, 6, 6), generator=seeded(2))
    chance, kept = torch.rand(1000, 2, 6, 6, generator=g), torch.rand(1000, 2, 6, 6, generator=g) < ratio
    own = torch.stack([truth == 1, truth == 0], 1)
    labels = torch.where((chance < torch.where(own, recall, spill)) & kept, 1, MISSING)
    words, _ = strokes.read_unmarked(labels, 2)
    belief = torch.stack([words[:, 0], 1 - words[:, 1]], 1).double()
    said = {"positive": belief[:, :1], "negative": belief[:, 1:], "both": belief}
    for hands, x in said.items():
        counted = torch.stack([x.mean(1)[truth == j].mean() for j in (0, 1)])
        assert torch.allclose(checks._words(ratio, recall, spill, hands), counted, atol=0.02)


def test_one_hand_falls_over_below_a_ratio_and_two_never_do():
    words = defined(17, "solution")["foreground_words"]
    for ratio in (0.9, 0.6, 0.4, 0.1, 0.01):
        low, high = words(ratio, 0.8, 0.1, "both").tolist()
        assert low < 0.5 < high
        assert (words(ratio, 0.8, 0.1, "positive")[1] > 0.5) == (ratio * 0.8 > 0.5)
        assert (words(ratio, 0.8, 0.1, "negative")[0] < 0.5) == (ratio * 0.8 > 0.5)


def test_who_can_bear_to_lose_more_may_go_coarser():
    coarsest = defined(17, "solution")["coarsest"]
    found = [coarsest(checks.RATIOS, checks.STROKES, checks.MASKS, allowed) for allowed in (0.001, 0.02, 0.03, 0.08)]
    assert math.isnan(found[0]) and found[1:] == [1.0, 1.0, 0.3]


def test_the_cases_tell_means_pairs_and_gaps_apart():
    high = checks._highest(checks.STROKES, checks.MASKS)
    assert (high < 0.03).tolist() == [False, True, False, True]
    assert (checks._unpaired(checks.STROKES, checks.MASKS) > 0.03).all()


# ---- the sections ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [0.9, 0.5, 0.05])
def test_the_loop_and_the_fast_one_are_the_shipped_one(chapter, ratio):
    marked = torch.cat([blobs(seed=3) == 1, torch.zeros(1, 12, 15, dtype=torch.bool)])
    slow, fast, ours = (
        f(marked, ratio, seeded(4)) for f in (chapter["reduced_slow"], chapter["reduced_fast"], strokes.reduced)
    )
    assert slow.equal(fast) and fast.equal(ours)


def test_rates_of_a_box_are_those_of_a_box(chapter):
    truth = blobs(seed=5)
    (recall, spill), (recall_n, spill_n) = chapter["rates"](truth, chapter["marks"](truth, "box"))
    assert recall == 1 and spill_n == 0 and spill == pytest.approx(1 - recall_n)


def test_any_mask_whatever_explains_what_both_hands_share(chapter):
    truth = blobs(1, seed=6)
    words, kinds = strokes.read_unmarked(chapter["marks"](truth, "shared"), 2)
    space = chapter | {"words": words, "wide": words[0, 0], "kinds_said": kinds}
    exec(
        ast.unparse(
            next(n for c in code_cells(17) for n in ast.parse(c.source).body if getattr(n, "name", "") == "explained")
        ),
        space,
    )
    for mask in (truth[0], blobs(1, seed=7)[0], torch.zeros_like(truth[0]), 1 - words[0, 0], words[0, 0]):
        likely, trace = space["explained"](mask)
        assert abs(likely) < 1e-2
        assert trace == pytest.approx(2 * float((mask == words[0, 0]).double().mean()))


def test_a_coarse_mask_is_both_kinds_of_stroke(chapter):
    masks = torch.tensor([[[0, 2, MISSING], [2, 2, 1]]])
    found = chapter["as_strokes"](masks, 2)[0]
    assert found[0].tolist() == [[-1, 2, -1], [2, 2, -1]]
    assert found[1].tolist() == [[2, -1, -1], [-1, -1, 2]]


def test_a_missing_result_says_how_to_make_it(chapter):
    assert chapter["rows_of"]("no such experiment") == []
    assert len(chapter["each"]("no such experiment", "both")) == 0
    assert "course run coarse-fig3" in chapter["later"]("fig3").data
    assert "course run coarse-fig3" in chapter["curves"]("no such experiment", ("both",), "x").data.replace(
        "no such experiment", "fig3"
    )


def test_differences_are_of_the_draws_that_both_have(chapter):
    a, b = np.array([0.5, 0.6, 0.7, 9.0]), np.array([0.4, 0.51, 0.6])
    mean, low, high = chapter["compared"](a, b)
    assert mean == pytest.approx(0.0967, abs=1e-3) and 0 < low < mean < high
    assert chapter["versus"](a, b).endswith("ahead") and chapter["versus"](b, a).endswith("behind")
    assert chapter["versus"](a, b[:1]) == "" and chapter["compared"](a, np.array([])) is None
    assert chapter["advice"](a, b, "yes", "no")[1] == "yes" and chapter["advice"](b, a, "yes", "no")[1] == "no"
    assert chapter["advice"](np.array([0.0, 1.0]), np.array([1.0, 0.0]), "yes", "no")[1] == "undecided"
    assert chapter["order_of"](a, b, "masks", "boxes") == "masks ahead of boxes"


def test_the_best_cut_is_perfect_without_noise_only(chapter):
    clean, noisy = (
        chapter["scenes"].digits(chapter["data"].mnist5k().take(torch.arange(20)), noise=n, generator=seeded(0))
        for n in (0.0, 0.3)
    )
    assert chapter["best_cut"](clean.images, clean.truth)[0] == 1
    assert chapter["best_cut"](noisy.images, noisy.truth)[0] < 0.9
