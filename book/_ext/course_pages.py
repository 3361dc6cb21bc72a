"""What pages take from code and results: the API, two tables, and the switch of the launch buttons."""

import re

from course_lib.book import notation_table
from course_lib.data import shipped
from course_lib.experiments import read, values
from course_lib.experiments.claims import claims, judge
from course_lib.teaching import DRAWN

# Code keeps its characters; everything else may not start an emphasis, a link or a substitution in reStructuredText.
CODE = re.compile(r"(``.+?``|`[^`]+`)")


def no_address_no_buttons(app, config):
    # The theme stops with a bare TypeError when there are launch buttons but no address to launch from.
    if not config.html_theme_options.get("repository_url"):
        config.html_theme_options["launch_buttons"] = {}


def not_k_table() -> str:
    """The front page's demonstration in numbers: what each kind of label teaches about unseen pictures."""
    result = read(shipped("results/coarse-not-k.lesson.json"))
    lines = ["| every pixel's label says | mIoU on unseen pictures, lowest to highest |", "| --- | --- |"]
    for words, method, share in (
        ("what it is", "strong", 1.0),
        ("one class that it is *not*, drawn at random", "uniform", 1.0),
        ("the same, for one pixel in twenty", "uniform", 0.05),
        ('the same for every pixel, read as "it is"', "naive", 1.0),
    ):
        miou = values(result, method, "miou", denied="uniform", share=share)
        lines.append(f"| {words} | **{miou.mean():.3f}**, {miou.min():.3f} to {miou.max():.3f} |")
    (claim,) = (c for c in claims("003") if c["id"] == "coarse-not-k-near-strong")
    found = judge(claim)
    return "\n".join(lines) + (
        f"\n\nOver {found.n} draws. Denials minus true masks, paired: {found.mean:+.3f}, "
        f"95 % interval {found.low:+.3f} to {found.high:+.3f}."
    )


MARKS = {"<!-- notation table -->": notation_table, "<!-- not k table -->": not_k_table}
MARKS |= {f"<!-- drawn: {name} -->": drawn for name, drawn in DRAWN.items()}  # the instructor's guide


MODULE = re.compile(r"<!-- module ([\w.]+) -->")


def module_page(found: re.Match) -> str:
    """A section of the API's page, from the docstrings of one module."""
    return f"\n### `{found[1]}`\n\n```{{eval-rst}}\n.. automodule:: course_lib.{found[1]}\n   :members:\n```\n"


def fill_tables(app, docname, source):
    source[0] = MODULE.sub(module_page, source[0])
    for mark, table in MARKS.items():
        if mark in source[0]:
            source[0] = source[0].replace(mark, table())


def _plain(line: str) -> str:
    line = re.sub(r"(: )(\w\. )", r"\1\\\2", line)  # "n: L. It is" is no list that starts at L
    parts = CODE.split(line)
    for i, part in enumerate(parts):
        if i % 2:  # `code` in our docstrings, ``code`` in reStructuredText
            parts[i] = f"``{part.strip('`')}``"
        else:
            parts[i] = re.sub(r"([*|]|\\(?!\w\. ))|(?<=\w)_(?!\w)", lambda m: "\\" + m.group(0), part)
    return "".join(parts)


def plain_docstring(app, what, name, obj, options, lines):
    in_example = False
    for i, line in enumerate(lines):
        in_example = line.lstrip().startswith(">>>") or (in_example and bool(line.strip()))
        if not in_example:
            lines[i] = _plain(line)


def setup(app):
    app.connect("config-inited", no_address_no_buttons)
    app.connect("source-read", fill_tables)
    app.connect("autodoc-process-docstring", plain_docstring, priority=100)  # before napoleon, which is at 500
    return {"parallel_read_safe": True, "parallel_write_safe": True}
