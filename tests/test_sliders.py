"""The sliders: their numbers as plain functions, their twins, and in a browser the same numbers without Python."""

import numpy as np
import pytest
import torch
from pages import page_of, show_alone

from course_lib import confusion, sliders

P4 = [0.6, 0.2, 0.15, 0.05]


def runs(X: int = 4, L: int = 10):
    A = torch.rand(X, L, L, generator=torch.Generator().manual_seed(0))
    lambdas = [0.0, 0.01, 0.1, 1.0][:X]
    return lambdas, A / A.sum(1, keepdim=True), torch.linspace(0.9, 0.1, X), torch.linspace(0.2, 1, X)


# --- plain functions


@pytest.mark.parametrize("kind", sliders.KINDS)
@pytest.mark.parametrize("L", [2, 4, 10])
def test_columns_sum_to_one_and_full_skill_is_the_identity(kind, L):
    for skill in (0.0, 0.3, 1.0):
        confusion.check_cm(sliders.matrix(kind, skill, L))
    assert torch.equal(sliders.matrix(kind, 1.0, L), torch.eye(L))


def test_each_kind_does_what_its_name_says():
    guess, flip, slip = (sliders.matrix(kind, 0.4, 4) for kind in sliders.KINDS)
    assert torch.allclose(guess[:, 0], torch.tensor([0.55, 0.15, 0.15, 0.15]))
    assert torch.allclose(flip[:, 3], torch.tensor([0.6, 0.0, 0.0, 0.4]))
    assert torch.allclose(slip[:, 0], torch.tensor([0.4, 0.3, 0.0, 0.3]))


def test_what_is_said_is_A_p_with_the_margin_of_the_rows():
    A, said, margin = sliders.what_is_said("pairwise flip", 0.7, P4)
    assert torch.allclose(said, A @ torch.tensor(P4)) and said.sum() == pytest.approx(1, abs=1e-6)
    assert margin == pytest.approx(0.4, abs=1e-6)


def test_bad_arguments_are_refused_in_words():
    with pytest.raises(ValueError, match="hammer-spammer"):
        sliders.matrix("saint", 0.5, 4)
    with pytest.raises(ValueError, match="per cent"):
        sliders.matrix("pairwise flip", 45, 4)
    with pytest.raises(ValueError, match="sum to 1"):
        sliders.MatrixSlider([0.5, 0.6])
    lambdas, A, accuracies, errors = runs()
    for bad in (
        (lambdas[:2], A, accuracies, errors),
        (lambdas, A[0], accuracies, errors),
        (0.1, A, accuracies, errors),
    ):
        with pytest.raises(ValueError, match=r"\(X, L, L\)"):
            sliders.LambdaSlider(*bad)
    with pytest.raises(ValueError, match="one of the 4 runs"):
        sliders.LambdaSlider(*runs(), at=4)


def test_the_twin_says_the_numbers_of_the_widget():
    widget = sliders.MatrixSlider(P4, "neighbour confuser", 0.3)
    assert widget.numbers().margin == pytest.approx(-0.05, abs=1e-6)
    assert "truth 0.60, says 0.27" in widget.still().get_label() and "dominance -0.05" in widget.still().get_label()
    widget.skill = 1.0
    assert torch.equal(widget.numbers().A, torch.eye(4))


def test_the_lambda_twin_shows_the_chosen_runs():
    widget = sliders.LambdaSlider(*runs(), at=1)
    assert widget.numbers().lam == pytest.approx(0.01) and widget.numbers().cm_error == pytest.approx(0.4667, abs=1e-3)
    assert "Lambda 0.01, accuracy 0.633" in widget.still().get_label()
    three = widget.still([0, 2, 3]).get_label()
    assert "Lambda 0, " in three and "Lambda 0.01" not in three and "Lambda 1, " in three


# --- in a browser


def shown(page) -> np.ndarray:
    return np.array(page.evaluate("() => [...document.querySelectorAll('tr')].slice(1).map("
                                  "(r) => [...r.querySelectorAll('td')].map((c) => Number(c.dataset.p)))"))  # fmt: skip


@pytest.mark.parametrize("L", [2, 4, 10])
def test_the_browser_draws_pythons_numbers(browser, L):
    p = torch.arange(1.0, L + 1) / torch.arange(1.0, L + 1).sum()
    with page_of(browser) as page:
        show_alone(page, sliders.MatrixSlider(p))
        for kind in sliders.KINDS:
            page.get_by_label(kind).check()
            for skill in (0, 33, 90):
                page.get_by_label("skill", exact=True).fill(str(skill))
                A, said, margin = sliders.what_is_said(kind, skill / 100, p)
                assert np.allclose(shown(page), A, atol=1e-6)
                found = page.get_by_role("status").get_attribute("data-margin")
                assert float(found) == pytest.approx(margin, abs=1e-6)
                words = page.get_by_role("img").get_attribute("aria-label")
                heard = [float(part.split("says ")[1]) for part in words.split(";")]
                assert np.allclose(heard, said, atol=0.0051)


def test_keys_alone_move_skill_kind_and_lambda(browser):
    with page_of(browser) as page:
        show_alone(page, sliders.MatrixSlider(P4, skill=0.45))
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowRight")
        assert page.evaluate("() => [model.get('kind'), model.get('skill')]") == [1, 0.46]
        assert np.allclose(shown(page), sliders.matrix("pairwise flip", 0.46, 4), atol=1e-6)
        show_alone(page, sliders.LambdaSlider(*runs()))
        page.keyboard.press("Tab")
        page.keyboard.press("End")
        assert page.evaluate("() => model.get('at')") == 3


def test_the_lambda_slider_shows_the_run_it_was_given(browser):
    lambdas, A, accuracies, errors = runs()
    with page_of(browser) as page:
        show_alone(page, sliders.LambdaSlider(lambdas, A, accuracies, errors))
        for k in range(4):
            page.get_by_label("lambda", exact=True).fill(str(k))
            assert np.allclose(shown(page), A[k], atol=1e-4)
            text = page.get_by_role("status").inner_text()
            assert text == f"Lambda {lambdas[k]:g}: accuracy {accuracies[k]:.3f}, CM error {errors[k]:.3f}."


@pytest.mark.parametrize("dark", [False, True])
def test_sliders_fit_a_phone_and_are_accessible(browser, dark):
    axe = pytest.importorskip("axe_core_python.sync_playwright")
    widgets = (sliders.MatrixSlider(P4), sliders.MatrixSlider([0.1] * 10), sliders.LambdaSlider(*runs()))
    with page_of(browser, viewport={"width": 390, "height": 844}) as page:
        for widget in widgets:
            show_alone(page, widget, dark=dark)
            faults = axe.Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa"]})["violations"]
            assert not [(fault["id"], [n["html"] for n in fault["nodes"]][:2]) for fault in faults]
            assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
            assert (
                page.evaluate("() => Math.min(...[...document.querySelectorAll('label')].map((l) => l.offsetHeight))")
                >= 44
            )
            page.keyboard.press("Tab")
            assert page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") == "solid"
