"""Painted strokes: lines, files, training as plain functions first, then the widget in a browser and in JupyterLab."""

import os
import re
import time

import numpy as np
import pytest
import torch
from pages import jupyter_lab, page_of, run_all, show_alone, write_notebook

from course_lib import metrics, paint, strokes
from course_lib.annotations import MISSING
from course_lib.training import predict, predict_log_p

H, W = 20, 30  # not square, so that x and y cannot be exchanged unseen


def pictures(N: int = 3, C: int = 1) -> torch.Tensor:
    return torch.rand(N, C, H, W, generator=torch.Generator().manual_seed(0))


def drawn(*rows: str) -> torch.Tensor:
    """A canvas of one picture, as text."""
    return torch.tensor([[".+-".index(mark) for mark in row] for row in rows], dtype=torch.uint8)


def blank(height: int, width: int) -> torch.Tensor:
    return torch.zeros(height, width, dtype=torch.uint8)


# --- lines


@pytest.mark.parametrize(
    ("radius", "rows"),
    [
        (0, ["......", "......", "...+..", "......", "......", "......"]),
        (1, ["......", "..+++.", "..+++.", "..+++.", "......", "......"]),
        (2, ["..+++.", ".+++++", ".+++++", ".+++++", "..+++.", "......"]),
    ],
)
def test_a_dot_is_a_disc_as_wide_as_the_brush(radius, rows):
    assert torch.equal(paint.paint_line(blank(6, 6), (3, 2), (3, 2), radius, 1), drawn(*rows))


def test_a_line_has_no_gap_whatever_its_slope():
    assert torch.equal(paint.paint_line(blank(3, 6), (0, 0), (5, 2), 0, 2), drawn("--....", "..--..", "....--"))
    for x, y in ((29, 3), (7, 19), (29, 19), (0, 19), (29, 0)):
        painted = paint.paint_line(blank(H, W), (0, 0), (x, y), 0, 1)
        assert (painted.any(0).sum(), painted.any(1).sum()) == (x + 1, y + 1)
        assert torch.equal(painted, paint.paint_line(blank(H, W), (x, y), (0, 0), 0, 1))


def test_a_line_may_leave_the_picture():
    assert torch.equal(paint.paint_line(blank(2, 4), (-5, 1), (1, 1), 0, 1), drawn("....", "++.."))
    assert not paint.paint_line(blank(2, 4), (-5, -5), (-2, -9), 1, 1).any()


def test_the_last_stroke_wins_and_nothing_rubs_out():
    line = {"picture": 1, "kind": "positive", "radius": 0, "points": [[0, 1], [4, 1]]}
    cross = {"picture": 1, "kind": "negative", "radius": 0, "points": [[2, 0], [2, 2], [3, 2]]}
    rub = {"picture": 1, "kind": "nothing", "radius": 0, "points": [[0, 1]]}
    canvas = paint.replay([line, cross, rub], 2, 3, 5)
    assert canvas.dtype == torch.uint8 and not canvas[0].any()
    assert torch.equal(canvas[1], drawn("..-..", ".+-++", "..--."))


@pytest.mark.parametrize(
    "fault", [{"picture": 2}, {"picture": -1}, {"kind": "maybe"}, {"radius": -1}, {"points": []}, {"points": [[1]]}]
)
def test_a_stroke_that_cannot_be_painted_is_named(fault):
    stroke = {"picture": 0, "kind": "positive", "radius": 0, "points": [[0, 1]]}
    with pytest.raises(ValueError, match="stroke 1 cannot be painted"):
        paint.replay([stroke, stroke | fault], 2, 3, 5)


# --- labels


def test_labels_are_those_of_draw_strokes():
    truth = torch.zeros(2, 4, 4, dtype=torch.long)
    truth[:, 1:3, 1:3] = 2
    theirs = strokes.draw_strokes(
        truth, 2, n_classes=3, positive=strokes.box(), negative=strokes.outside_box(), generator=torch.Generator()
    )
    canvas = torch.where(truth == 2, 1, 2).to(torch.uint8)
    ours = paint.labels_of(canvas, 2)
    assert torch.equal(ours, theirs) and ours.dtype == theirs.dtype
    each = paint.labels_of(canvas, torch.tensor([0, 2]))
    assert each[0].max() == 0 and torch.equal(each[1], theirs[1])


def test_an_unattended_run_goes_on_with_recorded_strokes_until_the_reader_paints():
    recorded = drawn("+.", "-.")[None]
    labels, whose = paint.strokes_or_recorded(bytes(4), recorded)
    assert whose == "recorded" and labels[0, 0].tolist() == [[1, -1], [-1, -1]]
    labels, whose = paint.strokes_or_recorded(bytes([0, 2, 0, 0]), recorded)
    assert whose == "you" and labels.amax((2, 3)).tolist() == [[MISSING, 1]]
    with pytest.raises(ValueError, match="strokes"):
        paint.strokes_or_recorded(bytes(5), recorded)


def test_recorded_strokes_say_the_truth_but_for_a_few_pixels():
    scene = paint.example()
    labels = paint.labels_of(paint.replay(paint.recorded(), *scene.truth.shape))
    positive, negative = (labels[:, c] != MISSING for c in (0, 1))
    assert (positive.sum((1, 2)) >= 10).all() and (negative.sum((1, 2)) >= 50).all()
    assert scene.truth[positive].float().mean() > 0.98 and scene.truth[negative].float().mean() < 0.01


def test_training_on_recorded_strokes_takes_seconds_and_finds_the_digits():
    scene = paint.example()
    labels = paint.labels_of(paint.replay(paint.recorded(), *scene.truth.shape))
    start = time.process_time()
    model = paint.train_on(scene.images, labels)
    assert time.process_time() - start < 10
    assert metrics.iou(predict(model, scene.images), scene.truth, 2, empty=1.0).foreground > 0.45
    p, log_A = predict_log_p(model, scene.images).exp()[:, 1], model.log_A(scene.images)
    assert log_A.shape[1:4] == (2, 2, 2)
    widget = paint.PaintStrokes(scene.images)
    widget.show(p)
    outlined = (np.frombuffer(widget.overlay, np.uint8) > 127).mean()
    assert outlined == pytest.approx((p > 0.5).double().mean().item(), abs=0.01)


def test_with_more_classes_M_is_learned():
    labels = paint.labels_of(torch.randint(3, (2, H, W)), torch.tensor([1, 2]))
    model = paint.train_on(pictures(2), labels, 3, epochs=1)
    assert model.cm.logits.requires_grad and model.log_p(pictures(2)).shape == (2, 3, H, W)


# --- the twin and the files


@pytest.mark.parametrize("C", [1, 3])
def test_still_twin_shows_strokes_and_outline(C):
    canvas = paint.replay([{"picture": 1, "kind": "negative", "radius": 0, "points": [[0, 0], [9, 0]]}], 3, H, W)
    fig = paint.still(pictures(3, C), paint.labels_of(canvas), title="Strokes")
    assert "(you)" in fig.get_label() and "picture 2: 0 and 10 pixels" in fig.get_label()
    p = torch.zeros(3, H, W)
    p[1] = 1.0  # up to the edge
    fig = paint.still(pictures(3, C), paint.labels_of(canvas), p, whose="recorded")
    assert "(recorded)" in fig.get_label() and f"picture 2: 0 and 10 pixels, outlined {H * W}" in fig.get_label()
    assert [len(ax.collections) > 0 for ax in fig.axes[:3]] == [False, True, False]


def test_widget_draws_its_own_still_twin():
    widget = paint.PaintStrokes(pictures())
    widget.strokes = bytes([2] + [1] * (3 * H * W - 1))
    assert widget.still().get_label() == paint.still(pictures(), widget.labels()).get_label()


def test_saved_strokes_come_back(tmp_path, monkeypatch):
    canvas = torch.randint(3, (2, H, W), dtype=torch.uint8)
    path = paint.save_strokes(tmp_path / "deep" / "s.json", canvas)
    assert torch.equal(paint.load_strokes(path), canvas) and [p.name for p in path.parent.iterdir()] == ["s.json"]
    monkeypatch.setenv("COURSE_HOME", str(tmp_path / "home"))
    assert paint.load_strokes() is None
    widget = paint.PaintStrokes(pictures(2))
    assert widget.keep() is None
    widget.strokes = canvas.numpy().tobytes()
    assert widget.keep() == tmp_path / "home" / "strokes.json"
    assert torch.equal(paint.PaintStrokes(pictures(2), paint.load_strokes()).canvas(), canvas)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "{}", '{"shape": [1, 1, 2], "strokes": ["0"]}', '{"shape": [1, 1, 1], "strokes": ["3"]}']
    + ['{"shape": 2, "strokes": ["00"]}', '{"shape": [1, 1, 1], "strokes": "x"}', '{"shape": null, "strokes": [1]}']
    + ['{"shape": [1, -1, 2], "strokes": ["00"]}', '{"shape": ["a"], "strokes": ["0"]}', "\0"],
)
def test_a_bad_file_of_strokes_is_one_clear_line(tmp_path, text):
    path = tmp_path / "strokes.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="delete it and paint again") as error:
        paint.load_strokes(path)
    assert "\n" not in str(error.value) and str(path) in str(error.value)


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="set COURSE_HOME"):
        paint.save_strokes(tmp_path / "file" / "strokes.json", blank(H, W)[None])


# --- the widget without a browser


def test_widget_takes_strokes_from_the_browser_and_refuses_others():
    widget = paint.PaintStrokes(pictures(2, 3))
    assert widget.shape == [2, H, W, 3] and len(widget.images) == 2 * H * W * 3 and widget.strokes == bytes(2 * H * W)
    assert widget.images[3:6] == bytes((255 * pictures(2, 3)[0, :, 0, 1]).round().byte().tolist())  # colours together
    painted = bytes([1, 2]) + bytes(2 * H * W - 2)
    widget.set_state({"strokes": memoryview(painted)})  # as the browser sends them
    assert widget.strokes == painted and widget.labels()[0, :, 0, :3].tolist() == [[1, -1, -1], [-1, 1, -1]]
    for bad in (painted[1:], bytes([3]) + painted[1:], b""):
        with pytest.raises(ValueError, match="0 nothing, 1 this is it, 2 this is not it"):
            widget.strokes = bad
    assert widget.strokes == painted


@pytest.mark.parametrize("images", [torch.rand(2, 2, H, W), torch.rand(2, 600), 2 * torch.ones(2, 1, H, W)])
def test_widget_refuses_what_are_no_pictures(images):
    with pytest.raises(ValueError, match="images"):
        paint.PaintStrokes(images)


def test_overlay_must_be_probabilities_of_the_pictures():
    widget = paint.PaintStrokes(pictures())
    for bad in (torch.rand(3, H, W + 1), 2 * torch.ones(3, H, W), torch.full((3, H, W), torch.nan)):
        with pytest.raises(ValueError, match="probabilities"):
            widget.show(bad)
    widget.show(np.ones((3, H, W)))
    assert widget.overlay == bytes([255] * 3 * H * W)
    widget.show(None)
    assert widget.overlay == b""


# --- in a browser


def canvas_in(page, N: int = 3) -> torch.Tensor:
    marks = page.evaluate("() => Array.from(new Uint8Array(window.model.get('strokes').buffer))")
    return torch.tensor(marks, dtype=torch.uint8).view(N, H, W)


def drag(page, points) -> None:
    """Press the mouse in the first pixel, go to each of the others in a straight line, and let go."""
    page.locator("canvas").scroll_into_view_if_needed()
    box = page.locator("canvas").bounding_box()
    at = [(box["x"] + (x + 0.5) * box["width"] / W, box["y"] + (y + 0.5) * box["height"] / H) for x, y in points]
    page.mouse.move(*at[0])
    page.mouse.down()
    for place in at[1:]:
        page.mouse.move(*place)
        page.evaluate("() => new Promise(requestAnimationFrame)")  # moves within one frame would come as one
    page.mouse.up()


def test_both_languages_paint_the_same_lines(browser):
    g = torch.Generator().manual_seed(1)
    lines = [[*torch.randint(-10, 40, (4,), generator=g).tolist(), k % 4] for k in range(200)]
    lines += [[3, 4, 3, 4, 1], [-60, 7, 60, 7, 0]]
    with page_of(browser) as page:
        show_alone(page, paint.PaintStrokes(pictures()))
        theirs = page.evaluate(
            """([lines, H, W]) => lines.map(([x0, y0, x1, y1, radius]) => {
              const cells = new Uint8Array(H * W);
              window.script.paintLine(cells, H, W, [x0, y0], [x1, y1], radius, 1);
              return Array.from(cells);
            })""",
            [lines, H, W],
        )
    for (x0, y0, x1, y1, radius), marks in zip(lines, theirs, strict=True):
        ours = paint.paint_line(blank(H, W), (x0, y0), (x1, y1), radius, 1)
        assert ours.flatten().tolist() == marks


def test_a_mouse_paints_what_replay_paints_and_undo_takes_it_back(browser):
    path = [[3, 3], [20, 9], [-4, 12], [10, 15]]  # out on the left, and in again
    first = {"picture": 0, "kind": "positive", "radius": 1, "points": path}
    second = {"picture": 0, "kind": "negative", "radius": 0, "points": [[12, 0], [12, 19]]}
    third = {"picture": 0, "kind": "nothing", "radius": 2, "points": [[3, 3], [9, 3]]}
    with page_of(browser) as page:
        show_alone(page, paint.PaintStrokes(pictures()))
        button = lambda name: page.get_by_role("button", name=name, exact=True)  # noqa: E731
        assert button("undo the last stroke").is_disabled() and button("outline what the network found").count() == 0
        drag(page, path)
        assert torch.equal(canvas_in(page), paint.replay([first], 3, H, W))
        button("this is not it").click()
        button("brush 1 pixel wide").click()
        drag(page, second["points"])
        button("eraser").click()
        button("brush 5 pixels wide").click()
        drag(page, third["points"])
        whole = paint.replay([first, second, third], 3, H, W)
        assert torch.equal(canvas_in(page), whole)
        said = (
            f"Picture 1 of 3. Pixels marked: {(whole == 1).sum()} of “this is it”, {(whole == 2).sum()} of “this is not"
        )
        assert said in page.get_by_role("status").inner_text()
        button("undo the last stroke").click()
        assert torch.equal(canvas_in(page), paint.replay([first, second], 3, H, W))
        button("next picture").click()
        button("this is it").click()
        drag(page, [[5, 5]])
        button("clear this picture").click()
        assert torch.equal(canvas_in(page), paint.replay([first, second], 3, H, W))
        for _ in range(3):  # the clearing, the dot, the second line: undo goes back to its picture
            button("undo the last stroke").click()
        assert torch.equal(canvas_in(page), paint.replay([first], 3, H, W))
        assert "Picture 1 of 3" in page.get_by_role("status").inner_text()
        page.mouse.click(*[page.locator("canvas").bounding_box()[k] + 9 for k in "xy"], button="right")
        assert torch.equal(canvas_in(page), paint.replay([first], 3, H, W))


def test_keys_alone_paint(browser):
    with page_of(browser) as page:
        show_alone(page, paint.PaintStrokes(pictures()))
        page.keyboard.press("Tab")
        for key in ("1", "n", "ArrowUp", "Space", "ArrowLeft", "p", "Shift+ArrowDown", "Shift+ArrowDown"):
            page.keyboard.press(key)
        where = "Cursor in row 12, column 15: this is it."
        assert where in page.get_by_role("status").inner_text()
        x, y = W // 2, H // 2
        want = blank(H, W)
        want[y - 1, x], want[y - 1 : y + 2, x - 1] = 2, 1
        assert torch.equal(canvas_in(page)[0], want)
        for key in ("e", "Space", "Control+z", "u", "PageDown", "p", "Space", "Control+p"):
            page.keyboard.press(key)
        want[y + 1, x - 1] = 0
        assert torch.equal(canvas_in(page)[0], want) and canvas_in(page)[1, y + 1, x - 1] == 1
        for key in ("u", "u", "u", "u"):  # nothing is left but the first dot, then nothing, and the keys still work
            page.keyboard.press(key)
        assert not canvas_in(page).any()
        page.keyboard.press("Space")
        assert canvas_in(page)[0, y + 1, x - 1] == 1


def pixels_of(page) -> np.ndarray:
    drawn = "() => { const c = document.querySelector('canvas'); return [c.width, c.height, "
    drawn += "...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]; }"
    width, height, *values = page.evaluate(drawn)
    return np.array(values).reshape(height, width, 4)[..., :3]


def test_widget_shows_pictures_marks_and_what_python_found(browser):
    with page_of(browser) as page:
        show_alone(page, paint.PaintStrokes(pictures(3, 3)))
        plain = pixels_of(page)
        side = plain.shape[1] // W
        corners = plain[1::side, 1::side]
        assert np.array_equal(corners, (255 * pictures(3, 3)[0]).round().byte().movedim(0, -1).numpy())
        give = "([name, bytes]) => window.model.set(name, new DataView(Uint8Array.from(bytes).buffer))"
        page.evaluate(give, ["strokes", [1, 2] + [0] * (3 * H * W - 2)])  # as from Python
        seen = pixels_of(page)
        changed = (seen != plain).any(-1)
        assert changed[:side, : 2 * side].all() and changed.sum() == 2 * side**2
        black = lambda k: (seen[:side, k * side : (k + 1) * side] == 0).all(-1)  # noqa: E731
        assert black(0).any(1).sum() > 2 * black(1).any(1).sum() > 0  # a plus is tall, a minus is flat
        found = torch.zeros(3, H, W, dtype=torch.uint8)
        found[0, 5:10, 5:11] = 200
        page.evaluate(give, ["overlay", found.flatten().tolist()])
        outlined = (pixels_of(page) != seen).any(-1)
        assert outlined[5 * side - 1 : 5 * side + 1, 6 * side : 10 * side].all() and not outlined[7 * side, 7 * side]
        assert "Outlined, 5 % of the picture" in page.get_by_role("status").inner_text()
        page.get_by_role("button", name="outline what the network found").click()
        assert np.array_equal(pixels_of(page), seen)


@pytest.mark.parametrize("dark", [False, True])
def test_widget_fits_a_phone_takes_a_finger_and_is_accessible(browser, dark):
    axe = pytest.importorskip("axe_core_python.sync_playwright")
    scene = paint.example()
    with page_of(browser, viewport={"width": 390, "height": 844}, has_touch=True) as page:
        widget = paint.PaintStrokes(scene.images, paint.replay(paint.recorded(), 16, 28, 28))
        widget.show(scene.truth)
        show_alone(page, widget, dark=dark)
        faults = axe.Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa"]})["violations"]
        assert not [(fault["id"], [n["html"] for n in fault["nodes"]][:2]) for fault in faults]
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
        assert (
            page.evaluate("() => Math.min(...[...document.querySelectorAll('button')].map((b) => b.offsetHeight))")
            >= 44
        )
        assert page.evaluate("() => getComputedStyle(document.querySelector('canvas')).touchAction") == "none"
        if folder := os.environ.get("COURSE_SCREENSHOTS"):
            page.screenshot(path=f"{folder}/paint-{'dark' if dark else 'light'}.png")
        before = page.get_by_role("status").inner_text()
        page.locator("canvas").tap(position={"x": 20, "y": 200})
        assert page.get_by_role("status").inner_text() != before
        page.keyboard.press("Tab")
        assert page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_widget_is_alive_in_jupyterlab_and_python_trains_on_the_strokes(browser, tmp_path):
    first = "import torch\nfrom course_lib import paint\nfrom course_lib.training import predict_log_p\n"
    first += f"x = torch.rand(2, {H}, {W})\nw = paint.PaintStrokes(x)\nw"
    second = "m = paint.train_on(x, w.labels(), epochs=2)\np = predict_log_p(m, x).exp()[:, 1]\nw.show(p)\n"
    second += "print('marked', (w.labels() >= 0).sum((0, 2, 3)).tolist(), 'mean', round(p.mean().item(), 3))"
    write_notebook(tmp_path / "paint.ipynb", first, second)
    with jupyter_lab(tmp_path) as (address, token), page_of(browser, viewport={"width": 1200, "height": 1100}) as page:
        page.goto(f"{address}/lab/tree/paint.ipynb?token={token}", timeout=60_000)
        page.locator(".jp-CodeCell").nth(1).wait_for(timeout=60_000)
        page.locator(".jp-CodeCell .cm-content").nth(0).click()
        run_all(page, until=page.get_by_role("button", name="eraser"))
        page.get_by_role("button", name="brush 1 pixel wide").click()
        drag(page, [[2, 2], [2, 6]])
        page.keyboard.press("n")
        drag(page, [[8, 2], [8, 4]])
        page.keyboard.press("x")  # in a notebook, this key cuts the cell
        assert page.locator(".jp-CodeCell").count() == 2
        page.locator(".jp-CodeCell .cm-content").nth(1).click()
        page.keyboard.press("Shift+Enter")
        page.get_by_text(re.compile(r"marked \[5, 3\] mean 0\.\d+")).wait_for(timeout=90_000)
        page.get_by_text(re.compile(r"Outlined, \d+ % of the picture")).wait_for()
        if folder := os.environ.get("COURSE_SCREENSHOTS"):
            page.screenshot(path=f"{folder}/paint-lab.png")
