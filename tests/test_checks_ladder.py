"""Chapter 9: what its exercises and sections rest on; its exercises themselves are tested with all others."""

import ast

import torch
from exercises import code_cells, defined, functions, printed

from course_lib import confusion
from course_lib.checks import ladder
from course_lib.experiments import pixels
from course_lib.networks import seeded
from course_lib.pixel_cms import LowRankCM, PlaceCM


def from_the_chapter(*names: str) -> dict:
    space = {"torch": torch}
    for cell in code_cells(9):
        for name, node in functions(cell.source).items():
            if name in names:
                exec(ast.unparse(node), space)
    return space


def test_what_an_annotator_says_needs_no_matrix():
    A = ladder._whole(ladder.B1, ladder.B2)
    assert confusion.check_cm(A) is A
    assert torch.allclose(defined(9, "solution")["says"](ladder.B1, ladder.B2, ladder.P), A @ ladder.P, atol=1e-6)


def test_the_rule_of_the_exercise_is_that_of_the_experiments():
    rule = defined(9, "solution")["pick"]
    for seed in range(50):
        generator = seeded(seed)
        nll, foreground = torch.rand(2, 6, generator=generator)
        most = 0.9
        candidates = {
            str(k): {"joint_nll": float(nll[k]), "foreground": float(foreground[k]), "largest_annotator": most}
            for k in range(6)
        }
        assert str(int(rule(nll, foreground, most))) == pixels.picked(candidates)


def test_plain_rank_one_gives_every_truth_the_same_column():
    B1, B2 = torch.rand(2, 7, 1, generator=seeded(1)) + 0.1
    A = B1 @ B2.T
    A = A / A.sum(0)
    assert torch.allclose(A, A[:, :1].expand(-1, 7)) and not torch.allclose(*ladder._whole(B1, B2)[:, :2].T)


def test_the_said_row_of_the_chapter_is_the_librarys():
    cm = LowRankCM(2, 5, 4, rank=2, generator=seeded(0))
    torch.nn.init.normal_(cm.last.weight, std=0.5, generator=seeded(1))
    fine = torch.randn(3, 4, 6, 6, generator=seeded(2))
    said = torch.randint(5, (3, 2, 6, 6), generator=seeded(3))
    rows, _, _ = cm.heard(fine, fine, said, None)
    B1, B2 = cm.factors(fine)
    found = from_the_chapter("said_row")["said_row"](B1, B2, said)
    assert torch.allclose(found.log(), rows, atol=1e-5)
    assert torch.allclose(rows, confusion.said_rows(cm(fine, fine), said), atol=1e-5)


def test_a_matrix_for_each_half_is_a_place_and_not_a_picture():
    log_A = defined(9, "solution")["halves"](ladder.LOGITS, 28, 28)
    assert log_A.shape == PlaceCM(3, 2, generator=seeded(0))(*[torch.zeros(2, 1, 28, 28)] * 2).shape
    assert (log_A[..., 13] != log_A[..., 14]).any() and (log_A[..., 0] == log_A[..., 13]).all()
    confusion.check_cm(log_A.exp().movedim((2, 3), (-2, -1)))


def test_at_ci_size_every_outcome_that_the_chapter_reports_of_its_runs_is_printed(executed):
    assert printed(9, executed.root).count("seen: ") + printed(9, executed.root).count("your run differed: ") >= 3
