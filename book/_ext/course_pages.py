"""What pages take from the code: the notation table, plain-text docstrings, and the switch of the launch buttons."""

import re

from course_lib.book import notation_table

NOTATION_MARK = "<!-- notation table -->"
# Code keeps its characters; everything else may not start an emphasis, a link or a substitution in reStructuredText.
CODE = re.compile(r"(``.+?``|`[^`]+`)")


def no_address_no_buttons(app, config):
    # The theme stops with a bare TypeError when there are launch buttons but no address to launch from.
    if not config.html_theme_options.get("repository_url"):
        config.html_theme_options["launch_buttons"] = {}


def fill_notation(app, docname, source):
    if NOTATION_MARK in source[0]:
        source[0] = source[0].replace(NOTATION_MARK, notation_table())


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
    app.connect("source-read", fill_notation)
    app.connect("autodoc-process-docstring", plain_docstring, priority=100)  # before napoleon, which is at 500
    return {"parallel_read_safe": True, "parallel_write_safe": True}
