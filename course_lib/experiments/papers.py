"""Every table and figure of the papers, and which claims speak of it: what is not claimed, the book says why."""

from __future__ import annotations

import re
from typing import NamedTuple

from .claims import claims

TITLES = {
    "002": "Tanno et al. 2019",
    "000": "Zhang et al. 2020",
    "004": "reply to the reviewers of Zhang et al. 2020",
    "001": "Wu et al. 2022",
    "003": "Zhang et al. 2025",
}
"""The papers by their number here, in the order of the book's parts."""

SHOWN: dict[str, dict[str, str]] = {
    "002": {
        "Fig. 1": "a drawing of the model; chapter 3",
        "Fig. 8": "examples of annotators, no claim; chapter 1 draws such panels",
    }
    | dict.fromkeys(("Fig. 2", "Fig. 3", "Fig. 4", "Fig. 5", "Fig. 6", "Fig. 7", "Fig. 9"), "")
    | dict.fromkeys(("Fig. 10", "Fig. 11", "Table 1"), ""),
    "000": {"Fig. 1": "a drawing of the model; chapter 8"}
    | {f"Fig. {n}": "" for n in range(2, 9)}
    | {"Fig. 7 (appendix)": ""}  # the draft has two figures of this number
    | {f"Table {n}": "" for n in range(1, 7)},
    "004": {
        "table in the reply": "",
        "Fig. 14": "named there, not in the draft that we read; chapter 12 measures how readers agree",
    },
    "001": {
        "Fig. 1": "an example and a drawing of the idea; chapter 14",
        "Fig. 2": "a drawing of the architecture; chapter 14",
        "Fig. 3": "a drawing of the losses; chapter 14",
        "Fig. 4": "",
        "Fig. 5": "",
        "Fig. 6": "",
        "Fig. 7": "a drawing of a layer; chapter 14",
        "Table 1": "",
        "Table 2": "",
        "Table 3": "",
        "Table 4": "",
        "Table 5": "a list of layers, no claim; its sizes are among the errata",
    },
    "003": {
        "Fig. 1": "a drawing of the model; chapter 16",
        "Fig. 2": "",
        "Fig. 3": "",
        "Fig. 4": "",
        "Fig. 5": "",
        "Table 1": "",
        "Table 2": "",
        "Table 3": "",
        "Fig. S2": "examples of smaller strokes, no claim; chapter 17 draws such strokes",
        "Fig. S3": "pictures to Table 3, in an appendix that we have not seen",
        "Fig. S4": "pictures to Table 3, in an appendix that we have not seen",
        "Table S2": "",
    },
}
"""Each table and figure, and in a word why there is nothing to claim; empty where a claim must speak of it.

The two appendices' figures are those that the papers' texts name.
"""


class Row(NamedTuple):
    """A table or figure of a paper, the claims about it, and why there is none where there is none."""

    paper: str
    name: str
    claims: list[dict]
    why_none: str


def named(where: str) -> set[str]:
    """The tables and figures that a claim's `where` names.

    >>> sorted(named("Fig. 3 (d), Fig. 9 and 10, Table 1 (b)"))
    ['Fig. 10', 'Fig. 3', 'Fig. 9', 'Table 1']
    """
    found = {"table in the reply"} if "table in the reply" in where else set()
    number = r"S?\d+(?: \([a-z](?: to [a-z])?\)| \(appendix\))?"  # of panels, only the figure counts
    for kind, numbers in re.findall(rf"(Fig|Table)(?:\.|s)? ({number}(?:(?:, (?=S?\d)| and ){number})*)", where):
        for digits, appendix in re.findall(r"(S?\d+)(?: \([a-z](?: to [a-z])?\))?( \(appendix\))?", numbers):
            found.add(f"{kind}{'.' * (kind == 'Fig')} {digits}{appendix}")
    return found


def rows() -> list[Row]:
    """Every table and figure with its claims, in the order of the papers."""
    spoken = [(claim["paper"], named(claim["where"]), claim) for claim in claims()]
    return [
        Row(paper, name, [claim for of, names, claim in spoken if of == paper and name in names], why)
        for paper, shown in SHOWN.items()
        for name, why in sorted(shown.items(), key=_by_number)
    ]


def missing() -> list[str]:
    """What is not covered: a table or figure with neither claim nor reason, or a claim about one that is not listed."""
    bare = [f"{row.paper} {row.name}: no claim and no reason" for row in rows() if not row.claims and not row.why_none]
    unknown = [
        f"{claim['paper']} {name}: named by {claim['id']}, not listed in SHOWN"
        for claim in claims()
        for name in sorted(named(claim["where"]) - SHOWN[claim["paper"]].keys())
    ]
    return bare + unknown


def _by_number(item: tuple[str, str]) -> tuple:
    kind, number = re.match(r"(\D+?)(S?\d*)(?: \(appendix\))?$", item[0]).groups()
    return kind, number.startswith("S"), int(number.lstrip("S") or 0), item[0]
