"""The reader as annotator six: plain functions first, then the widget in a browser, alone and in JupyterLab."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import REPO
from pages import jupyter_lab, page_of, run_all, show_alone, write_notebook

from course_lib import widgets
from course_lib.annotations import MISSING


def pictures(N: int = 20) -> torch.Tensor:
    return torch.rand(N, 28, 28, generator=torch.Generator().manual_seed(0))


# --- plain functions


def test_blur_keeps_the_ink_and_spreads_it_as_a_gaussian():
    dot = torch.zeros(1, 28, 28)
    dot[0, 14, 14] = 1
    seen = widgets.blurred(dot, 2.0)
    assert seen.shape == (1, 28, 28) and seen.dtype == torch.float32
    assert seen.sum() == pytest.approx(1, abs=1e-5)
    assert seen[0, 14, 16] / seen[0, 14, 14] == pytest.approx(np.exp(-0.5), rel=1e-4)
    assert torch.allclose(seen, seen.mT) and torch.equal(widgets.blurred(dot, 0), dot)


def test_blur_takes_bytes_and_a_channel_axis():
    ink = (255 * pictures(2)).to(torch.uint8)
    assert torch.allclose(widgets.blurred(ink.numpy(), 1.0), widgets.blurred(ink[:, None], 1.0))


@pytest.mark.parametrize(("shape", "sigma"), [((2, 3, 28, 28), 1.0), ((2, 784), 1.0), ((2, 28, 28), -1.0)])
def test_blur_refuses_colours_vectors_and_a_negative_width(shape, sigma):
    with pytest.raises(ValueError, match="grey pictures|sigma"):
        widgets.blurred(torch.rand(shape), sigma)


def test_stand_in_says_the_class_with_the_nearest_mean():
    train = torch.stack([torch.full((4, 4), v) for v in (0.0, 0.2, 0.8, 1.0)])
    said = widgets.stand_in(torch.full((2, 4, 4), 0.3) + torch.tensor([0.0, 0.5])[:, None, None], train, [3, 3, 7, 7])
    assert said.tolist() == [3, 7]
    with pytest.raises(ValueError, match="3 labels"):
        widgets.stand_in(pictures(2), pictures(4), [1, 2, 3])


def test_unattended_run_goes_on_with_the_stand_in():
    assert widgets.answers_or_stand_in([-1, -1], [3, 4])[0].tolist() == [3, 4]
    assert widgets.answers_or_stand_in([-1, -1], [3, 4])[1] == "the stand-in"


def test_one_answer_makes_them_the_readers_and_skips_stay_missing():
    answers, whose = widgets.answers_or_stand_in([-1, 0], torch.tensor([3, 4]))
    assert answers.tolist() == [MISSING, 0] and whose == "you"


@pytest.mark.parametrize("answers", [[1], [1, 10], [1, -2], [[1, 2]], [1, 0.5]])
def test_answers_that_are_no_digits_are_refused(answers):
    with pytest.raises(ValueError, match="answers"):
        widgets.checked_answers(answers, 2)


def test_still_twin_shows_answers_truth_and_mistakes():
    fig = widgets.still(pictures(3), [5, 1, -1], [5, 2, 3])
    shown = [text.get_text() for text in fig.axes[0].texts]
    assert shown == ["truth 5", "5", "truth 2", "1", "truth 3", "–"]
    assert [text.get_text() for text in fig.axes[0].texts if text.get_bbox_patch()] == ["1"]
    assert "Labels of you" in fig.get_label()
    assert "Labels of the stand-in" in widgets.still(pictures(1), [5], whose="the stand-in").get_label()


def test_widget_draws_its_own_still_twin():
    widget = widgets.LabelDigits(pictures(2))
    widget.answers = [4, -1]
    assert widget.still([4, 9]).get_label() == widgets.still(pictures(2), [4, -1], [4, 9]).get_label()


def test_saved_answers_come_back(tmp_path):
    path = widgets.save_answers(tmp_path / "deep" / "six.json", [40, 7, 9], torch.tensor([1, MISSING, 0]))
    index, answers = widgets.load_answers(path)
    assert index.tolist() == [40, 7, 9] and answers.tolist() == [1, MISSING, 0]
    assert [p.name for p in path.parent.iterdir()] == ["six.json"]


def test_answers_live_in_course_home_or_beside_the_notebook(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COURSE_HOME", raising=False)
    assert widgets.load_answers() is None
    assert widgets.save_answers(None, [0], [1]) == Path(".course/annotator-six.json")
    monkeypatch.setenv("COURSE_HOME", str(tmp_path / "home"))
    assert widgets.load_answers() is None
    assert widgets.save_answers(None, [0], [1]) == tmp_path / "home" / "annotator-six.json"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", '{"index": [0]}', '{"index": [0, 1], "answers": [1]}', '{"index": [0], "answers": [11]}']
    + ['{"index": [-4], "answers": [1]}', '{"index": null, "answers": [1]}', '{"index": ["a"], "answers": [1]}', "\0"],
)
def test_a_bad_file_of_answers_is_one_clear_line(tmp_path, text):
    path = tmp_path / "six.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="delete it and label again") as error:
        widgets.load_answers(path)
    assert "\n" not in str(error.value) and str(path) in str(error.value)


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="set COURSE_HOME"):
        widgets.save_answers(tmp_path / "file" / "six.json", [0], [1])


# --- the widget without a browser


def test_widget_sends_bytes_and_starts_unanswered():
    widget = widgets.LabelDigits(0.5 * pictures(3), index=[5, 6, 7])
    assert len(widget.images) == 3 * 28 * 28 and max(widget.images) == 255
    assert widget.answers == [MISSING] * 3
    widget.set_state({"images": memoryview(bytes(3 * 28 * 28)), "answers": [1, 2, 3]})  # as the browser sends them
    assert widget.answers == [1, 2, 3] and widget.images == bytes(3 * 28 * 28)


def test_widget_keeps_its_answers_once_there_are_some(tmp_path):
    widget = widgets.LabelDigits(pictures(2), index=[5, 6])
    assert widget.keep(tmp_path / "six.json") is None
    widget.answers = [9, MISSING]
    index, answers = widgets.load_answers(widget.keep(tmp_path / "six.json"))
    assert index.tolist() == [5, 6] and answers.tolist() == [9, MISSING]


@pytest.mark.parametrize(
    ("images", "index"), [(torch.rand(2, 28, 20), None), (pictures(2), [1]), (pictures(2), [0.5, 1])]
)
def test_widget_refuses_pictures_or_places_that_do_not_fit(images, index):
    with pytest.raises(ValueError, match="square|came from|integers"):
        widgets.LabelDigits(images, index)


def test_importing_the_widget_writes_nothing(tmp_path):
    code = "import course_lib.widgets"
    env = os.environ | {"PYTHONPATH": str(REPO), "COURSE_HOME": str(tmp_path / "home"), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=env)
    assert not list(tmp_path.iterdir())


# --- in a browser


def answers_in(page) -> list[int]:
    return page.evaluate("() => window.model.get('answers')")


def test_widget_labels_by_click_and_key_goes_back_skips_and_shows_the_answers(browser):
    with page_of(browser) as page:
        show_alone(page, widgets.LabelDigits(pictures(5)))
        page.get_by_role("button", name="it is a 7").click()
        page.keyboard.press("3")
        assert page.get_by_role("status").inner_text() == "Picture 3 of 5: which digit is it?"
        page.get_by_role("button", name="back to the picture before").click()
        assert page.get_by_role("button", name="it is a 3").get_attribute("aria-pressed") == "true"
        page.keyboard.press("4")  # corrects the second
        page.get_by_role("button", name="skip this picture").click()
        page.keyboard.press("0")
        page.keyboard.press("Control+1")  # the browser's key, not an answer
        assert answers_in(page) == [7, 4, -1, 0, -1]
        page.keyboard.press("9")
        assert page.get_by_role("status").inner_text() == "Done: you labelled 4 of 5 pictures."
        assert page.locator(".grid button").all_inner_texts() == ["7", "4", "–", "0", "9"]
        page.get_by_role("button", name="change picture 3: no answer").click()
        page.keyboard.press("5")  # and back to the end at once
        assert page.locator(".grid button").all_inner_texts() == ["7", "4", "5", "0", "9"]
        page.get_by_role("button", name="forget all answers and start again").click()
        assert answers_in(page) == [-1] * 5 and page.locator("canvas[aria-label*='picture 1']").is_visible()


def test_widget_draws_the_pictures_it_was_given(browser):
    with page_of(browser) as page:
        show_alone(page, widgets.LabelDigits(pictures(5)))
        drawn = page.evaluate(
            "() => [...document.querySelector('canvas').getContext('2d').getImageData(0, 0, 28, 28).data]"
        )
    ink = 255 - np.array(drawn).reshape(28, 28, 4)[..., 0]
    shown = pictures(5) / pictures(5).max()  # the darkest pixel of all pictures is black
    assert np.array_equal(ink, (255 * shown[0]).round().int().numpy())


@pytest.mark.parametrize("dark", [False, True])
def test_widget_fits_a_phone_and_is_accessible(browser, dark):
    axe = pytest.importorskip("axe_core_python.sync_playwright")
    with page_of(browser, viewport={"width": 390, "height": 844}) as page:
        show_alone(page, widgets.LabelDigits(pictures(20)), dark=dark)
        for finished in (False, True):
            faults = axe.Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa"]})["violations"]
            assert not [fault["id"] for fault in faults]
            assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
            sizes = page.evaluate("() => [...document.querySelectorAll('button')].map((b) => b.offsetHeight)")
            assert min(size for size in sizes if size) >= 44  # a finger
            if not finished:
                page.keyboard.press("Tab")
                assert page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") == "solid"
                for n in range(20):
                    page.keyboard.press(str(n % 10))
        assert answers_in(page) == [n % 10 for n in range(20)]


def test_widget_is_alive_in_jupyterlab_and_python_gets_the_answers(browser, tmp_path):
    first = "import torch\nfrom course_lib.widgets import LabelDigits\nw = LabelDigits(torch.rand(20, 28, 28))\nw"
    write_notebook(tmp_path / "six.ipynb", first, "print('got', w.answers[:5])")
    with jupyter_lab(tmp_path) as (address, token), page_of(browser, viewport={"width": 1200, "height": 900}) as page:
        page.goto(f"{address}/lab/tree/six.ipynb?token={token}", timeout=60_000)
        page.locator(".jp-CodeCell").nth(1).wait_for(timeout=60_000)
        run_all(page, until=page.get_by_role("button", name="it is a 7"))
        page.get_by_role("button", name="it is a 7").click()
        page.keyboard.press("1")  # in a notebook, this key makes a heading,
        page.keyboard.press("x")  # and this one cuts the cell
        page.get_by_role("button", name="it is a 0").focus()
        page.keyboard.press("Enter")  # and this one leaves for the code
        page.get_by_text("Picture 4 of 20").wait_for()
        assert page.locator(".jp-CodeCell").count() == 2 and page.locator(".jp-MarkdownCell").count() == 0
        if folder := os.environ.get("COURSE_SCREENSHOTS"):
            page.screenshot(path=f"{folder}/lab.png")
        page.locator(".jp-CodeCell .cm-content").nth(1).click()
        page.keyboard.press("Shift+Enter")
        page.get_by_text(re.compile(r"got \[7, 1, 0, -1, -1\]")).wait_for()
