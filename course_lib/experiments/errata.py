"""Mistakes found in the papers, each with the chapter that shows it and the code that asserts it."""

from __future__ import annotations

import yaml

from ..data import shipped


def errata(paper: str | None = None) -> list[dict]:
    """The rows of errata.yaml, of one paper or of all."""
    rows = yaml.safe_load(shipped("errata.yaml").read_text(encoding="utf-8"))
    return [row for row in rows if paper is None or row["paper"] == paper]


def table(paper: str | None = None, *, pages: dict[int, str] | None = None) -> str:
    """The errata as a Markdown table; `pages` gives the address of each chapter, {3: "03_the_trace.ipynb"}.

    The last column is the line that asserts it, or why none can.
    """
    lines = ["| where | printed | right | chapter | asserted by |", "| --- | --- | --- | --- | --- |"]
    for row in errata(paper):
        page = (pages or {}).get(row["chapter"])
        chapter = f"[{row['chapter']}]({page})" if page else str(row["chapter"])
        proof = f"`{row['asserts']}`" if row["asserts"] else row["why"]
        cells = (row["where"], row["printed"], row["right"], chapter, proof)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
