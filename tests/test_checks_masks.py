"""Chapter 7: what its exercises and sections rest on; its exercises themselves are tested with all others."""

import ast
import warnings

import torch
from exercises import code_cells, defined, functions, printed

from course_lib import fusion, metrics, networks
from course_lib.checks import masks
from course_lib.confusion import count_matrices, log, posterior
from course_lib.mask_annotators import PANELS, faithful


def test_the_librarys_own_functions_are_right_answers(capsys):
    masks.mean_dice(lambda P, T: metrics.dice(P, T, empty=1.0).foreground)
    masks.pattern_matrices(lambda table, n, q: count_matrices(table, n[:, None] * q))
    assert capsys.readouterr().out.count("✓") == 2


def test_counting_patterns_with_their_numbers_is_counting_pixels():
    pixels, n = masks.TABLE.repeat_interleave(masks.TIMES, 0), masks.TIMES
    long = count_matrices(pixels, masks.BELIEF.repeat_interleave(n, 0))
    assert torch.allclose(long, count_matrices(masks.TABLE, n[:, None] * masks.BELIEF))


def test_the_panels_of_the_library_would_score_as_the_chapter_says():
    for name, wins in (("as_released", False), ("missing_foreground", True)):
        own, gap = masks.ahead(PANELS[name])
        assert own[4] == 0 and own[0] > 0.9
        assert gap > masks.LEAST_GAP if wins else gap < -masks.LEAST_GAP


def test_people_who_draw_alike_give_no_gap():
    own, gap = masks.ahead([faithful()] * 5)
    assert own == [1.0] * 5 and gap == 0


def test_the_loops_of_the_chapter_are_the_librarys_staple():
    space = {"fusion": fusion, "count_matrices": count_matrices, "posterior": posterior, "log": log, "torch": torch}
    for cell in code_cells(7):
        for name, node in functions(cell.source).items():
            if name in ("staple_slow", "staple_patterns"):
                exec(ast.unparse(node), space)
    truth = (torch.rand(2, 12, 12, generator=networks.seeded(0)) < 0.3).long()
    wrong = torch.rand(5, 2, 12, 12, generator=networks.seeded(1)) < 0.2
    said = torch.where(wrong, 1 - truth, truth).movedim(0, 1)  # (N, R, H, W)
    for one in said:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = fusion.staple(one, 2, smoothing=0)
        slow, A = space["staple_slow"](one, 2, found.iterations)
        quick, rows = space["staple_patterns"](one, 2, found.iterations)
        assert torch.allclose(slow.float(), found.p[0], atol=1e-4) and torch.allclose(quick, slow, atol=1e-9)
        assert torch.allclose(A, found.A[0], atol=1e-3) and rows <= 32


def test_a_blind_annotator_only_ever_leaves_out():
    thick = defined(7, "solution")["thick_only"](masks.STROKES)
    assert (thick <= masks.STROKES).all() and (thick < masks.STROKES).any() and thick.any()


def test_at_ci_size_every_outcome_that_the_chapter_reports_is_seen(executed):
    said = printed(7, executed.root)
    assert said.count("seen: ") >= 2 and "your run differed" not in said
