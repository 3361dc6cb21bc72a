"""Every erratum has its cell, every entry of a chapter's list a row, every table and figure of the papers a claim."""

import re
from functools import cache

import jupytext
import pytest
from conftest import REPO
from nbformat.v4 import new_code_cell, new_markdown_cell

from course_lib.edition import tags
from course_lib.experiments import claims, errata, papers

CHAPTERS = {int(path.stem[:2]): path for path in sorted((REPO / "notebooks/src").glob("[0-9]*.py"))}
ERRATA = errata.errata()


def joined(text: str) -> str:
    """Without comment marks and line breaks."""
    return re.sub(r"\s+", " ", re.sub(r"(?m)^# ?", "", text))


def list_of_errata(text: str) -> list[str]:
    """The entries of a chapter's list: bullets where it has bullets, else all of its text as one."""
    section = re.search(r"(?ms)^# ## 10\. Further reading.*", text)
    after = re.search(r"(?ms)^# (?:\*\*)?Errata.*?(?=^# \*\*Next|\Z)", section[0]) if section else None
    if after is None:
        return []
    bullets = re.split(r"(?m)^# - ", after[0])
    return [joined(entry) for entry in (bullets[1:] or bullets)]


def listed(row: dict) -> list[str]:
    return [row["listed"]] if isinstance(row["listed"], str) else row["listed"]


@cache
def with_assert(chapter: int) -> list[str]:
    return asserting(jupytext.read(CHAPTERS[chapter]).cells)


def asserting(cells: list) -> list[str]:
    """Code with an assert that every reader runs: a solution stays folded, and a student edition has none."""
    run = [cell for cell in cells if cell.cell_type == "code" and "solution" not in tags(cell)]
    return [cell.source for cell in run if re.search(r"(?m)^\s*assert ", cell.source)]


def test_an_erratum_has_all_its_parts():
    for row in ERRATA:
        assert {"paper", "where", "printed", "right", "chapter", "listed", "asserts"} <= row.keys() <= {*row, "why"}
        assert row["paper"] in papers.TITLES and row["chapter"] in CHAPTERS, row
        assert bool(row["asserts"]) != bool(row.get("why")), f"either a cell or a reason: {row}"


@pytest.mark.parametrize("row", [row for row in ERRATA if row["asserts"]], ids=lambda row: listed(row)[0][:50])
def test_an_erratum_is_asserted_by_a_cell_of_its_chapter(row):
    assert any(row["asserts"] in source for source in with_assert(row["chapter"])), row["asserts"]


def test_an_assert_in_a_solution_or_in_prose_does_not_count():
    folded = new_code_cell("assert 1", metadata={"tags": ["solution", "hide-cell"]})
    cells = [
        folded,
        new_markdown_cell("assert 2"),
        new_code_cell("x = 'assert 3'"),
        new_code_cell("if x:\n    assert 4"),
    ]
    assert asserting(cells) == ["if x:\n    assert 4"]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_entry_of_a_chapters_list_has_a_row(chapter):
    for entry in list_of_errata(CHAPTERS[chapter].read_text(encoding="utf-8")):
        assert any(words in entry for row in ERRATA for words in listed(row)), (
            f"no row of errata.yaml for: {entry[:120]}"
        )


def test_no_row_is_about_an_entry_that_is_gone():
    entries = " ".join(
        entry for path in CHAPTERS.values() for entry in list_of_errata(path.read_text(encoding="utf-8"))
    )
    assert [words for row in ERRATA for words in listed(row) if words not in entries] == []


def test_a_list_is_read_whole():
    head = "# ## 10. Further reading\n#\n# - A book.\n#\n"
    text = f"{head}# **Errata** of it.\n#\n# - One\n#   and on.\n# - Two.\n# **Next.** No."
    assert list_of_errata(text) == ["One and on. ", "Two. "]
    assert list_of_errata("# ## 10. Further reading\n#\n# Errata found: a\n# slip.") == ["Errata found: a slip."]
    assert list_of_errata("# ## 9. Questions\n# Errata") == []


def test_the_table_links_the_chapter_and_shows_the_line(monkeypatch):
    row = {"paper": "002", "where": "Eq. 1", "printed": "a | b", "right": "c", "chapter": 3}
    monkeypatch.setattr(
        errata, "errata", lambda paper: [row | {"asserts": "assert c"}, row | {"asserts": None, "why": "text"}]
    )
    first, second = errata.table("002", pages={3: "there.ipynb"}).splitlines()[2:]
    assert first == "| Eq. 1 | a \\| b | c | [3](there.ipynb) | `assert c` |"
    assert second.endswith("| text |") and "| 3 |" in errata.table("002")


# ---- tables and figures


def test_every_table_and_figure_of_the_papers_has_a_claim_or_a_reason():
    assert papers.missing() == []


def test_what_is_not_covered_is_named(monkeypatch):
    monkeypatch.setitem(papers.SHOWN, "002", {**papers.SHOWN["002"], "Fig. 99": ""})
    assert papers.missing() == ["002 Fig. 99: no claim and no reason"]
    rows = [{"id": "x", "paper": "003", "where": "Fig. 9 (a)"}]
    monkeypatch.setattr(papers, "claims", lambda: rows)
    assert "003 Fig. 9: named by x, not listed in SHOWN" in papers.missing()


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("Fig. 3 (d), Fig. 4", {"Fig. 3", "Fig. 4"}),
        ("Fig. 3, the grey regions; Fig. 4", {"Fig. 3", "Fig. 4"}),
        ("Fig. 3, 5, 6, 9, 10, 11", {"Fig. 3", "Fig. 5", "Fig. 6", "Fig. 9", "Fig. 10", "Fig. 11"}),
        ("Tables 1 and 2, MNIST", {"Table 1", "Table 2"}),
        ("Fig. 5 and 7 (appendix), MNIST", {"Fig. 5", "Fig. 7 (appendix)"}),
        ("Fig. 5 (d to f)", {"Fig. 5"}),
        ("Table S2, LES-AV", {"Table S2"}),
        ("section 3.2, read strictly", set()),
        ("table in the reply, MS", {"table in the reply"}),
    ],
)
def test_tables_and_figures_are_read_out_of_where(where, found):
    assert papers.named(where) == found


def test_rows_come_in_the_order_of_the_papers_with_their_claims():
    rows = papers.rows()
    assert [row.name for row in rows if row.paper == "002"] == [f"Fig. {n}" for n in range(1, 12)] + ["Table 1"]
    table1 = next(row for row in rows if (row.paper, row.name) == ("002", "Table 1"))
    assert "one-label-beats-ignoring" in [claim["id"] for claim in table1.claims]
    assert sum(len(row.claims) for row in rows) >= len([c for c in claims.claims() if papers.named(c["where"])])
