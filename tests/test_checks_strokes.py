"""Chapter 16: what its exercises and sections rest on; its exercises themselves are tested with all others."""

import ast
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from exercises import code_cells, defined, printed

from course_lib import confusion, experiments, networks, paint, plots, scenes, strokes, training
from course_lib.annotations import MISSING
from course_lib.checks import strokes as checks
from course_lib.edition import tags
from course_lib.experiments import claims
from course_lib.experiments.coarse import BENT
from course_lib.methods.coarse import StrokeCM, complementary
from course_lib.methods.pixels import Pixels
from course_lib.networks import seeded
from course_lib.pixel_cms import PixelCM


def the_chapter(**given: object) -> dict:
    """What the chapter defines outside of its exercises, functions and tables, in a space that holds `given`."""
    space = {"torch": torch, "np": np, "MISSING": MISSING, "claims": claims, "plots": plots, "paint": paint}
    space |= {name: getattr(confusion, name) for name in ("apply", "log")}
    space |= {"training": training, "device": training.pick_device(), "cache": lambda function: function}
    space |= {"school": None, "StrokeCM": StrokeCM} | given
    for cell in code_cells(16):
        if not {*tags(cell)} & {"stub", "solution"}:
            for node in ast.parse(cell.source).body:
                table = isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in ("STEPS", "RATIOS")
                if table or isinstance(node, ast.FunctionDef):
                    exec(ast.unparse(node), space)
    return space


def defined_again(space: dict, name: str, **given: object) -> object:
    """A function of the chapter, in whose space `given` stands for what is there."""
    space.update(given)
    return space[name]


@pytest.fixture(scope="module")
def chapter():
    return the_chapter()


def test_the_loss_of_the_chapter_is_the_librarys(chapter):
    L = 3
    rung = PixelCM(2, L, 8, generator=seeded(1))
    torch.nn.init.normal_(rung.last.weight, std=0.5, generator=seeded(2))
    drawn = scenes.shapes(3, size=16, generator=seeded(3))
    labels = strokes.denied(drawn.truth, BENT, share=0.5, generator=seeded(4))
    labels[:, 0, :4] = drawn.truth[:, :4]  # somebody speaks positively, too
    model = Pixels(networks.unet(1, L, generator=seeded(0)), StrokeCM(rung, BENT), lam=0.3)
    with torch.no_grad():
        log_p, log_A = model.log_p(drawn.images), rung(*model.network.features(drawn.images))
        shown = chapter["stroke_loss"](log_p, log_A, BENT, labels, torch.tensor([False, True]), 0.3)
        assert torch.isclose(shown, model.loss((drawn.images, labels, None, None)))
        only = torch.full_like(labels, MISSING)
        only[1, 1, 7, 5] = 2
        shown = chapter["stroke_loss"](log_p, log_A, BENT, only, torch.tensor([False, True]), 0.0)
        slow = chapter["negative_word"](2, BENT, log_A[1, 1, :, :, 7, 5].exp(), log_p[1, :, 7, 5].exp())
    assert torch.isclose(shown, slow, atol=1e-5)


def test_a_denial_costs_at_least_the_toss_between_the_others():
    loss = defined(16, "solution")["negative_loss"]
    for L in (2, 3, 5):
        truth = torch.randint(0, L, (40, 40), generator=seeded(L))
        words = strokes.denied(truth[None], complementary(L), generator=seeded(9))[0, 1]
        perfect = torch.nn.functional.one_hot(truth, L).movedim(-1, 0).float()
        assert float(loss(perfect, torch.eye(L), complementary(L), words)) == pytest.approx(np.log(L - 1), abs=1e-5)


def test_counts_of_many_words_are_the_matrix_that_drew_them():
    truth = torch.randint(0, 3, (1, 200, 200), generator=seeded(5))
    words = strokes.denied(truth, BENT, generator=seeded(6))[0, 1].flatten()
    M = defined(16, "solution")["counted_M"](words, truth.flatten(), 3)
    assert torch.allclose(M.float(), BENT, atol=0.02) and torch.allclose(M.sum(0), torch.ones(3).double())


def test_with_two_classes_a_denial_tells_as_much_as_an_assertion():
    bits = defined(16, "solution")["information"]
    p = torch.tensor([0.8, 0.2])
    assert float(bits(p, complementary(2))) == pytest.approx(float(bits(p, torch.eye(2))))
    even = torch.full((10,), 0.1)
    assert float(bits(even, torch.eye(10))) == pytest.approx(np.log2(10), abs=1e-5)
    assert float(bits(even, complementary(10))) == pytest.approx(np.log2(10 / 9), abs=1e-5)
    assert float(bits(even, torch.full((10, 10), 0.1))) == pytest.approx(0, abs=1e-5)


def test_silence_of_two_classes_is_read_as_the_library_does():
    read = defined(16, "solution")["other_class"]
    for seed in range(3):
        labels = torch.randint(-1, 2, (4, 2, 5, 5), generator=seeded(seed))
        labels = torch.where(labels == -1, MISSING, torch.arange(2)[None, :, None, None])
        labels[seed, 1] = MISSING
        assert torch.equal(read(labels), strokes.read_unmarked(labels, 2)[0])


def test_exercise_1_wants_what_the_librarys_loss_is():
    log_W = (checks.M3 @ checks.A3).log()[None, None, ..., None, None].expand(-1, -1, -1, -1, 4, 5)
    word = confusion.label_log_likelihood(log_W, checks.P3.log()[None], checks.SAID3[None, None])
    checks.negative_loss(lambda p, A, M, said: -word.sum() / (said >= 0).sum())


ROWS = [
    {"method": m, "setting": {"unmarked": "other", "ratio": r}, "draw": d, "seed": d,
     "metrics": {"miou": 0.5 + up + 0.01 * d, "iou_foreground": 0.4 + up, "foreground": 0.2, "foreground_truth": 0.1}}
    for m, up in (("positive", 0.0), ("both", 0.2), ("both_cm", 0.21), ("both_global", 0.2), ("positive_cm", 0.0),
                  ("negative", 0.1), ("negative_cm", 0.1))
    for r in (1.0, 0.3) for d in range(3)
]  # fmt: skip


def test_sentences_and_tables_are_drawn_from_the_rows(monkeypatch):
    space = the_chapter()
    monkeypatch.setitem(space, "rows_of", lambda name: [r for r in ROWS if r["setting"]["ratio"] == 1.0])
    assert np.allclose(space["gain"]("x", "both", "positive"), 0.2)
    sentence = space["the_answer"]("x", "Digits")
    assert (
        sentence.startswith("**Digits.** The second map brings more than matrices per pixel do")
        and "+0.200" in sentence
    )
    assert space["told"](-0.2, -0.3, -0.1).endswith("(loss)") and "not decided" in space["told"](0.0, -0.1, 0.1)
    assert space["league"]("x").count("\n") == 8 and "| both cm |" in space["league"]("x")
    assert space["steps"]("x").count("\n") == 8


def test_the_two_readings_of_silence_are_not_mixed():
    space = the_chapter()
    missing = [row | {"setting": row["setting"] | {"unmarked": "missing"}} for row in ROWS if row["method"] != "both"]
    missing += [row | {"method": "both"} for row in missing if row["method"] == "positive"]  # here it adds nothing
    table = defined_again(space, "by_ratio", rows_of=lambda name: ROWS + missing, RATIOS=(1.0, 0.3))("x").splitlines()
    assert len(table) == 6 and all("| 0.510 | 0.510 | +0.000" in row for row in table[2:4])
    assert all("| 0.510 | 0.710 | +0.200" in row for row in table[4:])


def test_a_draw_whose_matrices_fall_back_to_one_hand_is_counted():
    space = the_chapter()
    fallen = [{**r, "metrics": {"miou": 0.52}} if (r["method"], r["draw"]) == ("both_cm", 0) else r for r in ROWS]
    rows = lambda name: [r for r in fallen if r["setting"]["ratio"] == 1.0] if name == "table1" else []  # noqa: E731
    assert "In 1 of 3 draws" in defined_again(space, "draw_by_draw", rows_of=rows)()


def test_a_world_costs_what_the_hands_it_contradicts_say(chapter):
    said = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0]])
    cost = chapter["cost"]
    assert cost(said[0], said) == pytest.approx(
        2 * np.log(2) / 4
    )  # one word of two is odd where the first hand sees digit
    assert cost(said[1], said) == pytest.approx(
        (np.log(3) + 2 * np.log(1.5)) / 4
    )  # one of three, where the second sees none


def test_what_has_not_been_computed_is_no_error():
    def absent(name):
        raise FileNotFoundError(name)

    nothing = the_chapter(experiments=experiments, data=SimpleNamespace(shipped=absent))
    assert nothing["rows_of"]("table1") == []


def test_the_buttons_callback_trains_outlines_keeps_and_draws(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_HOME", str(tmp_path))
    pictures = paint.example()
    recorded = paint.replay(paint.recorded(), *pictures.truth.shape)
    widget, shown = paint.PaintStrokes(pictures.images), SimpleNamespace(value="")
    button = SimpleNamespace(disabled=False, description="")
    given = {"pictures": pictures, "recorded": recorded, "widget": widget, "shown": shown, "button": button}
    pressed = the_chapter(P=SimpleNamespace(painting=1), **given)["pressed"]
    (labels, who, p, matrices), figures = pressed(None)
    assert who == "recorded" and not list(tmp_path.rglob("*.json"))  # nothing of a reader's to keep
    assert len(widget.overlay) == p.numel() and shown.value.count("<figure") == len(figures) == 2
    assert torch.allclose(matrices.sum(1), torch.ones(3, 2)) and torch.allclose(matrices[2], complementary(2))
    canvas = torch.zeros_like(recorded)
    canvas[0, 10:14, 10:14], canvas[0, :3] = 1, 2
    widget.strokes = canvas.numpy().tobytes()
    (labels, who, _, _), _ = pressed(None)
    assert who == "you" and torch.equal(labels, paint.labels_of(canvas)) and "with your strokes" in shown.value
    assert torch.equal(paint.load_strokes(), canvas)
    assert not button.disabled and button.description == "Train on my strokes"


def test_at_ci_size_every_outcome_that_the_chapter_reports_is_seen(executed):
    said = printed(16, executed.root)
    assert said.count("seen: ") >= 5 and "your run differed" not in said
