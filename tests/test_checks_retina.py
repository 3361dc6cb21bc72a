"""Chapter 18: what its exercises and sections rest on; its exercises themselves are tested with all others."""

import ast

import numpy as np
import pytest
import torch
from exercises import code_cells, defined, functions
from skimage.morphology import opening
from torch.nn.functional import one_hot

from course_lib import metrics, scenes, strokes
from course_lib.checks import CheckFailed
from course_lib.checks import retina as checks
from course_lib.edition import tags
from course_lib.experiments.coarse import HANDS
from course_lib.methods.coarse import StrokeCM, complementary
from course_lib.networks import seeded
from course_lib.pixel_cms import FixedCM


def the_chapter() -> dict:
    """The functions that the chapter defines outside of its exercises."""
    space = {"torch": torch, "np": np, "strokes": strokes, "metrics": metrics, "opening": opening, "one_hot": one_hot}
    space |= {"StrokeCM": StrokeCM, "FixedCM": FixedCM, "complementary": complementary, "HANDS": HANDS}
    space |= {"LEVELS": {5: 1.0}, "train": scenes.vessels(6, generator=seeded(1)), "cache": lambda f: f}
    space["skeletons"] = lambda masks: strokes.scribble()(masks > 0, None)
    space["inside"] = lambda line, area: float((line & (area > 0)).sum() / line.sum().clamp(min=1))
    for cell in code_cells(18):
        if not {*tags(cell)} & {"stub", "solution"}:
            for node in functions(cell.source).values():
                exec(ast.unparse(node), space)
    return space


@pytest.fixture(scope="module")
def chapter():
    return the_chapter()


@pytest.fixture(scope="module")
def tree():
    return scenes.vessels(8, generator=seeded(2)).truth


def wider(masks: torch.Tensor, by: int = 1) -> torch.Tensor:
    return strokes.grown(by)(masks > 0, None).long()


@pytest.mark.parametrize("e", [-3, -1, -0.5, 0, 0.5, 2])
def test_the_iou_of_a_tree_is_that_of_bars_as_long_and_wide(e):
    tree_iou = defined(18, "solution")["tree_iou"]
    given = float(tree_iou(checks.LENGTHS, checks.WIDTHS, e))
    small, large = [], []
    for length, w in zip(checks.LENGTHS.tolist(), checks.WIDTHS.tolist(), strict=True):
        w2 = max(w + 2 * e, 0)
        small.append(length * min(w, w2))
        large.append(length * max(w, w2))
    assert given == pytest.approx(sum(small) / sum(large))
    assert 0 <= given <= 1 and (given == 1) == (e == 0)


def test_an_answer_that_is_right_for_too_wide_only_is_not_taken():
    with pytest.raises(CheckFailed, match="one sign"):
        checks.tree_iou(lambda a, w, e: (a * w).sum() / (a * (w + 2 * e).clamp(min=0)).sum())


def test_recall_by_width_over_one_wide_bin_is_the_recall_of_the_chapter(chapter):
    recall_by_width = defined(18, "solution")["recall_by_width"]
    all_of_it = recall_by_width(checks.LINE, checks.WIDTH, checks.FOUND, [0, 99])
    assert all_of_it.shape == (1,)
    assert float(all_of_it[0]) == pytest.approx(chapter["inside"](checks.LINE, checks.FOUND))


@pytest.mark.parametrize("folds", [2, 3, 5])
def test_no_child_is_on_both_sides_and_every_patch_is_tested_once(folds):
    tested_patches = defined(18, "solution")["tested_patches"]
    tested = torch.stack([tested_patches(checks.CHILD, checks.EYE, folds, k) for k in range(folds)])
    assert (tested.sum(0) == 1).all()
    whose = checks.CHILD[checks.EYE]
    for side in tested:
        assert not {*whose[side].tolist()} & {*whose[~side].tolist()}


def test_rim_and_recall_by_loops_are_what_the_library_gives(chapter, tree):
    masks = tree > 0
    rim = masks & ~strokes.grown(-1)(masks, None)
    assert torch.equal(torch.stack([chapter["rim_slow"](m) for m in masks]), rim)
    found = wider(tree) > 0
    line = chapter["skeletons"](tree)
    assert chapter["recall_slow"](found[0], line[0]) == pytest.approx(chapter["tree"](found[:1], tree[:1])["recall"])


def test_a_tree_drawn_too_wide_is_found_whole_and_one_that_is_cut_is_not(chapter, tree):
    fat, cut = chapter["tree"](wider(tree), tree), tree.clone()
    assert fat["recall"] == 1 and fat["clDice"] > 0.9 > metrics.iou(wider(tree), tree).foreground
    cut[:, 24:] = 0
    assert chapter["tree"](cut, tree)["recall"] < 0.8
    assert chapter["tree"](cut, tree)["precision"] > 0.95
    assert chapter["tree"](torch.zeros_like(tree), tree)["clDice"] == 0


@pytest.mark.parametrize("by", [1, 2])
def test_two_hands_who_differ_about_a_width_are_explained_either_way(chapter, tree, by):
    T, G = tree[0], wider(tree, by)[0]
    said = torch.stack([G, T])
    (narrow, t1), (wide, t2), (neither, t3) = (chapter["story"](y, said) for y in (T, G, 1 - T))
    assert max(narrow, wide, neither) < 1e-4 and t1 == pytest.approx(t2, abs=1e-4) and t3 < t1
    other = torch.roll(T, 5, 0)
    assert chapter["story"](T, torch.stack([other, other]))[0] < 1e-4  # matrices for each pixel explain anything


def test_the_wide_story_is_cheaper_by_the_difference_of_entropies(chapter, tree):
    T, G = tree[0], wider(tree)[0]
    H = chapter["entropy"]
    assert H(T) == pytest.approx(-sum(x * np.log(x) for x in (float(T.double().mean()), 1 - float(T.double().mean()))))
    assert H(G, T) == pytest.approx(H(T, G)) and max(H(T), H(G)) < H(G, T) < H(T) + H(G)
    assert (H(G, T) - H(T)) - (H(G, T) - H(G)) == pytest.approx(H(G) - H(T)) and H(G) > H(T)


def test_the_loss_of_both_hands_by_hand(chapter):
    p = torch.tensor([0.3, 0.7]).reshape(2, 1, 1)
    A = torch.tensor([[[0.9, 0.4], [0.1, 0.6]], [[0.8, 0.1], [0.2, 0.9]]])[..., None, None]
    words = torch.tensor([1, 1]).reshape(2, 1, 1)
    # A p = (.55, .45) of the first; of the second (.31, .69), so it denies class 1 with probability .31
    by_hand = -(np.log(0.45) + np.log(0.31)) / 2
    assert float(chapter["loss_slow"](p, A, complementary(2), words)) == pytest.approx(by_hand)
    silent = torch.tensor([1, -1]).reshape(2, 1, 1)
    assert float(chapter["loss_slow"](p, A, complementary(2), silent)) == pytest.approx(-np.log(0.45))


def test_blind_hands_draw_what_good_hands_draw_in_another_world(chapter, tree):
    wide = chapter["wide"]
    positive, negative = HANDS["coarse"]
    draw = lambda truth, p, n: strokes.draw_strokes(  # noqa: E731
        truth, 1, n_classes=2, positive=p, negative=n, generator=seeded(4)
    )
    blind = draw(tree, lambda r, g: positive(wide(r), g), lambda r, g: negative(~wide(~r), g))
    assert torch.equal(blind, draw(wide(tree).long(), positive, negative))
    assert 0.2 < wide(tree).sum() / tree.sum() < 0.9 and not (wide(tree) & (tree == 0)).any()


def test_patches_come_from_their_picture(chapter):
    images = torch.arange(3.0)[:, None, None, None].expand(3, 1, 30, 40).contiguous()
    masks = torch.arange(3)[:, None, None].expand(3, 30, 40)
    x, y = chapter["cut"](images, masks, 20, 8, seeded(0))
    assert x.shape == (20, 1, 8, 8) and y.shape == (20, 8, 8) and torch.equal(x[:, 0].long(), y)
    assert {*y.flatten().tolist()} == {0, 1, 2}
