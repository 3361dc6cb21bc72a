"""The claims as tables and their filter: text is escaped, the rule is a function, the browser hides the same rows."""

import numpy as np
import pytest
from pages import page_of, show_alone

from course_lib.experiments import claims
from course_lib.experiments.claim_tables import ALL, ClaimFilter, matching, tables
from course_lib.experiments.claims import Judged


def judged(claim: str, verdict: str, paper: str = "002", why: str = "because") -> Judged:
    row = {"id": claim, "paper": paper, "where": "Fig. 1", "claim": claim, "theirs": "9 < 10", "why": why}
    return (
        Judged(row, 0.1, 0.05, 0.15, 5, verdict) if verdict != "not tested" else Judged(row, *[np.nan] * 3, 0, verdict)
    )


FOUR = [
    judged("Trace beats EM", "holds"),
    judged("Trace needs nothing", "not reproduced"),
    judged("Strokes <b>win</b>", "holds", "003"),
    judged("On CIFAR", "not tested", "003", why="no data & no GPU"),
]


def names(found: list[Judged]) -> list[str]:
    return [j.claim["id"] for j in found]


def test_words_and_verdict_must_both_fit():
    assert names(matching(FOUR)) == names(FOUR)
    assert names(matching(FOUR, "trace")) == ["Trace beats EM", "Trace needs nothing"]
    assert names(matching(FOUR, "EM trace")) == ["Trace beats EM"]
    assert names(matching(FOUR, "", "holds")) == ["Trace beats EM", "Strokes <b>win</b>"]
    assert names(matching(FOUR, "trace", "not tested")) == []
    assert names(matching(FOUR, "gpu")) == ["On CIFAR"]


def test_an_unknown_verdict_and_an_empty_list_are_refused_in_words():
    with pytest.raises(ValueError, match="all verdicts, holds.*'true'"):
        matching(FOUR, "", "true")
    with pytest.raises(ValueError, match="at least one claim"):
        ClaimFilter([])


def test_text_is_escaped_and_papers_come_in_the_order_of_the_book():
    html = tables(FOUR)._repr_html_()
    assert "<b>" not in html and "Strokes &lt;b&gt;win&lt;/b&gt;" in html and "9 &lt; 10" in html
    assert "no data &amp; no GPU" in html
    assert html.index("Tanno et al. 2019, claims: <span>2</span>") < html.index(
        "Zhang et al. 2025, claims: <span>2</span>"
    )
    assert (
        html.count("<details>") == 2
        and html.count("<tr data-verdict") == 4
        and "+0.100 [+0.050, +0.150], n = 5" in html
    )


def test_the_still_twin_holds_every_claim_of_the_book():
    everything = [claims.judge(claim) for claim in claims.claims()]
    widget = ClaimFilter(everything)
    assert widget.still().html == widget.html == tables(everything).html
    assert widget.html.count("<tr data-verdict") == len(everything) >= 180
    widget.verdict = "holds"
    assert names(widget.shown()) == [c["id"] for c in claims.claims() if c["verdict"] == "holds"]


# --- in a browser


def shown(page) -> list[str]:
    return page.evaluate(
        """() => [...document.querySelectorAll("tbody tr")]
          .filter((r) => r.checkVisibility()).map((r) => r.cells[0].textContent)"""
    )


@pytest.mark.parametrize(("words", "verdict"), [("trace", ALL), ("EM  trace", ALL), ("", "holds"), ("win", "holds")])
def test_the_browser_shows_what_the_function_says(browser, words, verdict):
    with page_of(browser) as page:
        show_alone(page, ClaimFilter(FOUR))
        assert shown(page) == []  # all folds are shut
        page.get_by_label("words").fill(words)
        page.get_by_label("verdict").select_option(verdict)
        wanted = names(matching(FOUR, words, verdict))
        assert shown(page) == wanted
        assert page.get_by_role("status").inner_text() == f"{len(wanted)} of 4 claims"
        assert page.evaluate("() => [model.get('words'), model.get('verdict')]") == [words, verdict]


def test_no_hit_says_so_and_clearing_brings_all_back(browser):
    with page_of(browser) as page:
        show_alone(page, ClaimFilter(FOUR))
        status, fold = page.get_by_role("status"), page.locator("summary").first
        page.get_by_label("words").fill("zebra")
        assert status.inner_text() == "0 of 4 claims" and not fold.is_visible()
        page.get_by_label("words").fill("")
        assert status.inner_text() == "4 of 4 claims" and fold.is_visible()


def test_keys_alone_filter_and_unfold(browser):
    with page_of(browser) as page:
        show_alone(page, ClaimFilter(FOUR))
        page.keyboard.press("Tab")
        page.keyboard.type("nothing")
        assert shown(page) == ["Trace needs nothing"]
        for _ in range(7):
            page.keyboard.press("Backspace")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert shown(page) == ["Trace beats EM", "Trace needs nothing"]


@pytest.mark.parametrize("dark", [False, True])
def test_the_filter_fits_a_phone_and_is_accessible(browser, dark):
    axe = pytest.importorskip("axe_core_python.sync_playwright")
    with page_of(browser, viewport={"width": 390, "height": 844}) as page:
        show_alone(page, ClaimFilter(FOUR), dark=dark)
        page.get_by_label("verdict").select_option("holds")
        faults = axe.Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa"]})["violations"]
        assert not [(fault["id"], [n["html"] for n in fault["nodes"]][:2]) for fault in faults]
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
        page.keyboard.press("Tab")
        assert page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") == "solid"
