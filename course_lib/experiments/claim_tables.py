"""The claims as tables of a page, and a filter over them that lives without Python; its still twin is the tables.

What the filter does is JavaScript (`static/claims.js`): it hides rows. `matching` is the same rule as a plain function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import anywidget
import traitlets

from ..widgets import STATIC
from .claims import VERDICTS, Judged
from .papers import TITLES

ALL = "all verdicts"
HEAD = ("claim", "verdict", "ours (difference, 95 %)", "theirs", "where", "why")


@dataclass(frozen=True)
class Page:
    """HTML for the output of a cell."""

    html: str

    def _repr_html_(self) -> str:
        return self.html


def tables(judged: Sequence[Judged]) -> Page:
    """One folded table a paper, in the order of the book; whatever the claims hold is shown as text."""
    style = f"<style>{(STATIC / 'claims.css').read_text(encoding='utf-8')}</style>"
    folds = [_fold(paper, [j for j in judged if j.claim["paper"] == paper]) for paper in TITLES]
    return Page(f'{style}<div class="claims">{"".join(folds)}</div>')


def matching(judged: Sequence[Judged], words: str = "", verdict: str = ALL) -> list[Judged]:
    """The claims of this verdict that hold each of the words anywhere in their row, in any case.

    Raises: ValueError for a verdict that there is not.
    """
    if verdict not in (ALL, *VERDICTS):
        raise ValueError(f"`verdict` must be one of {', '.join((ALL, *VERDICTS))}; got {verdict!r}.")
    wanted = words.lower().split()
    return [
        j for j in judged if verdict in (ALL, j.verdict) and all(word in " ".join(_cells(j)).lower() for word in wanted)
    ]


class ClaimFilter(anywidget.AnyWidget):
    """The same tables under a field for words and a choice of verdicts. Raises: ValueError for no claims."""

    _esm = STATIC / "claims.js"
    _css = STATIC / "claims.css"
    html = traitlets.Unicode().tag(sync=True)
    verdicts = traitlets.List(traitlets.Unicode()).tag(sync=True)
    words = traitlets.Unicode("").tag(sync=True)
    verdict = traitlets.Unicode(ALL).tag(sync=True)

    def __init__(self, judged: Sequence[Judged]) -> None:
        if not judged:
            raise ValueError("want at least one claim to show; got none: is claims.yaml empty?")
        self.judged = list(judged)
        super().__init__(html=self.still().html, verdicts=[ALL, *VERDICTS])

    def shown(self) -> list[Judged]:
        """The claims that the widget shows now."""
        return matching(self.judged, self.words, self.verdict)

    def still(self) -> Page:
        """Every claim, unfiltered."""
        return tables(self.judged)


def _cells(judged: Judged) -> list[str]:
    c = judged.claim
    return [str(x) for x in (c["claim"], judged.verdict, judged.ours, c["theirs"], c["where"], c["why"])]


def _fold(paper: str, judged: Sequence[Judged]) -> str:
    if not judged:
        return ""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in HEAD)
    rows = "".join(
        f'<tr data-verdict="{escape(j.verdict)}">{"".join(f"<td>{escape(cell)}</td>" for cell in _cells(j))}</tr>'
        for j in judged
    )
    title = escape(TITLES[paper])
    table = f"<table><caption>Claims of {title}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    scrolls = f'<div class="wide" role="region" tabindex="0" aria-label="Claims of {title}">{table}</div>'
    return f"<details><summary>{title}, claims: <span>{len(judged)}</span></summary>{scrolls}</details>"
