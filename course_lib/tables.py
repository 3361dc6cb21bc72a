"""Tables of labels: read as a row a label or a row an item, and written as crowd-kit and as a spreadsheet want them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .annotations import MISSING, Annotations
from .files import natural, whole_file

COLUMNS = {
    "item": ("item", "task", "item_id", "task_id", "image", "image_id", "case", "example", "id"),
    "annotator": ("annotator", "worker", "annotator_id", "worker_id", "rater", "reader", "observer", "user"),
    "label": ("label", "class", "answer", "rating", "response", "annotation"),
    "truth": ("truth", "gold", "ground_truth"),
}
"""What the columns of a table may be called, in any case; crowd-kit's are task, worker, label."""

BLANK = ("", "nan", "na", "n/a")
"""A cell of any of these, in any case, is no label. Not `none`: in medicine that is often a finding."""

CELLS = 100_000_000
"""Items times annotators, beyond which labels do not fit the memory of a usual machine."""


def read_labels(
    path: str | Path,
    *,
    item: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    classes: Sequence[str] = (),
    missing: Sequence[str] = (),
    encoding: str = "utf-8-sig",
) -> Annotations:
    """Labels without images from a CSV file: names of items, annotators and classes are kept.

    A row a label (`item,annotator,label`; crowd-kit's `task,worker,label`) where a column is called like an annotator
    and one like a label, see `COLUMNS`; else a row an item, with a column for each annotator. Commas, semicolons and
    tabs separate. A column called truth is kept as `truth`. A blank cell is MISSING.
    Arguments: item, annotator, label: what these columns are called, if otherwise. classes: all classes in their order;
    else those that were said or are true, numbers in the order of numbers. missing: further cells that mean no label.
    Raises: FileNotFoundError; ValueError with the line, for what is no such table; see tests/test_broken_input.py.
    """
    path = Path(path).expanduser()
    header, rows, lines = _table(path, encoding)
    place = _places(path, header, {"item": item, "annotator": annotator, "label": label, "truth": None})
    absent = {word.strip().lower() for word in (*BLANK, *missing)} - {str(c).lower() for c in classes}
    long = place["annotator"] is not None
    read = _long if long else _wide
    items, names, n, r, said, where = read(path, header, rows, lines, place)
    gap = [word.lower() in absent for word in said]
    truths = [row[place["truth"]] for row in rows] if place["truth"] is not None else []
    no_truth = [word.lower() in absent for word in truths]
    known = [w for w, g in zip(said, gap, strict=True) if not g]
    if not known:
        codes = ", ".join(sorted(absent - {""}))
        raise ValueError(f"{path} holds no label at all: where one could stand, cells are blank or one of {codes}.")
    code = _codes(path, known, [w for w, g in zip(truths, no_truth, strict=True) if not g], classes, where, gap)
    labels = np.full((len(items), len(names)), MISSING)
    n, r = np.asarray(n), np.asarray(r)
    labels[n, r] = [MISSING if g else code[w] for w, g in zip(said, gap, strict=True)]
    found = list(dict.fromkeys(sorted(code.values())))
    shown = list(map(str, classes)) or [min((w for w, c in code.items() if c == k), key=len) for k in found]
    truth = None
    if truths:
        truth = _truth(path, items, n if long else np.arange(len(items)), truths, no_truth, code, lines)
    return Annotations(
        None, labels, n_classes=len(shown), truth=truth, names=tuple(names), classes=shown, item_names=items
    )


def _table(path: Path, encoding: str) -> tuple[list[str], list[list[str]], list[int]]:
    """Header, rows and the line of each; every row is as long as the header."""
    if not path.is_file():
        raise FileNotFoundError(f"wanted a table of labels; there is no file {path}.")
    try:
        text = path.read_text(encoding=encoding)
    except (UnicodeError, LookupError) as error:
        raise ValueError(
            f"{path} cannot be read as {encoding}. Save it as UTF-8 (in Excel: CSV UTF-8), or name its encoding, such "
            f"as encoding='latin-1' or 'utf-16' (--encoding latin-1). The first fault: {error}."
        ) from None
    if not text.strip():
        raise ValueError(f"{path} is empty; wanted a line of column names, then a row a label.")
    first = text.lstrip().splitlines()[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count), skipinitialspace=True)
    rows, lines = [], []
    try:
        for row in reader:
            if any(map(str.strip, row)):
                rows.append([cell.strip() for cell in row])
                lines.append(reader.line_num)
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}, is no row of a CSV file ({error}).") from None
    top = int(len(rows) > 1 and rows[0][0].lower().startswith("sep="))  # Excel's own first line
    header, rows, lines = rows[top], rows[top + 1 :], lines[top + 1 :]
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(header):
            raise ValueError(
                f"{path}, line {line}, has {len(row)} cells, but there are {len(header)} columns "
                f"({', '.join(header)}); a comma inside a name needs quotes round it."
            )
    if not rows:
        raise ValueError(f"{path} has column names ({', '.join(header)}) but no row below them.")
    if len(header) < 2:
        raise ValueError(
            f"{path} has one column, {header[0][:40]!r}; are its cells separated by , or ; or a tab, not by blanks?"
        )
    if "" in header:
        raise ValueError(
            f"{path}: column {header.index('') + 1} has no name in the first line; name it or take it out."
        )
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise ValueError(f"{path} has two columns of one name ({', '.join(twice)}); give each a name of its own.")
    return header, rows, lines


def _places(path: Path, header: list[str], named: dict[str, str | None]) -> dict[str, int | None]:
    """Which column holds the items, annotators, labels and truth. Raises ValueError for half of a long table."""
    place = {kind: _column(path, header, kind, name) for kind, name in named.items()}
    wanted = ("item",) if place["annotator"] is place["label"] is None else ("annotator", "label", "item")
    for kind in wanted:
        if place[kind] is None:
            numbered = " Or number the rows in a column `item`." if kind == "item" and len(wanted) == 1 else ""
            raise ValueError(
                f"{path} has no column for the {kind}, one of {', '.join(COLUMNS[kind])}; its columns are "
                f"{', '.join(header)}. Rename it, or say which it is: {kind}=... (--{kind}).{numbered}"
            )
    return place


def _column(path: Path, header: list[str], kind: str, name: str | None) -> int | None:
    """Which column holds the items, annotators, labels or truth; None if none is called so."""
    if name is not None:
        if name not in header:
            raise ValueError(f"{path} has no column {name!r}; its columns are {', '.join(header)}.")
        return header.index(name)
    plain = [re.sub(r"[\s-]+", "_", column.lower()) for column in header]
    return next((plain.index(word) for word in COLUMNS[kind] if word in plain), None)


def _long(path: Path, header: list[str], rows: list[list[str]], lines: list[int], place: dict) -> tuple:
    """A row a label: items in the order they come, annotators in that of their names."""
    who = [row[place["annotator"]] for row in rows]
    what = [row[place["item"]] for row in rows]
    for kind, words in (("item", what), ("annotator", who)):
        if "" in words:
            raise ValueError(f"{path}, line {lines[words.index('')]}, names no {kind}.")
    items = {name: n for n, name in enumerate(dict.fromkeys(what))}
    names = {name: r for r, name in enumerate(sorted(set(who), key=natural))}
    _check_size(path, len(items), len(names))
    n, r = [items[name] for name in what], [names[name] for name in who]
    first: dict[int, int] = {}
    for k, pair in enumerate(np.asarray(n) * len(names) + np.asarray(r)):
        if (before := first.setdefault(int(pair), k)) != k:
            raise ValueError(
                f"{path}, lines {lines[before]} and {lines[k]}: two labels of {what[k]!r} by {who[k]!r}; keep one, or "
                "give a second reading an annotator's name of its own."
            )
    return list(items), list(names), n, r, [row[place["label"]] for row in rows], lines


def _wide(path: Path, header: list[str], rows: list[list[str]], lines: list[int], place: dict) -> tuple:
    """A row an item, and all columns but the item's and the truth's are annotators."""
    columns = [c for c in range(len(header)) if c not in (place["item"], place["truth"])]
    items = [row[place["item"]] for row in rows]
    if not columns:
        raise ValueError(f"{path} has no column for an annotator; its columns are {', '.join(header)}.")
    if "" in items:
        raise ValueError(f"{path}, line {lines[items.index('')]}, names no item.")
    first: dict[str, int] = {}
    for k, name in enumerate(items):
        if (before := first.setdefault(name, k)) != k:
            raise ValueError(f"{path}, lines {lines[before]} and {lines[k]}: two rows of the item {name!r}.")
    _check_size(path, len(items), len(columns))
    n = np.repeat(np.arange(len(rows)), len(columns))
    r = np.tile(np.arange(len(columns)), len(rows))
    said = [row[c] for row in rows for c in columns]
    return items, [header[c] for c in columns], n, r, said, np.repeat(lines, len(columns)).tolist()


def _codes(
    path: Path, known: list[str], true: list[str], classes: Sequence[str], lines: list[int], gap: list[bool]
) -> dict[str, int]:
    """Number of each class as it is written. Raises ValueError for what cannot be classes."""
    words = dict.fromkeys([*known, *true])
    at = lambda word: [line for line, g in zip(lines, gap, strict=True) if not g][known.index(word)]  # noqa: E731
    numbers = {word: _number(word) for word in words}
    if classes:
        order = {str(name): k for k, name in enumerate(classes)}
        if odd := [w for w in words if w not in order]:
            raise ValueError(f"{path} holds the labels {odd[:5]}, which are not among the classes {list(order)}.")
        return order
    if None in numbers.values():
        order = {name: k for k, name in enumerate(sorted(words, key=natural))}
    else:
        odd = [w for w, x in numbers.items() if x != int(x)]
        if odd:
            where = f", line {at(odd[0])}" if odd[0] in known else ""
            raise ValueError(
                f"{path}{where}: a label is a name or a whole number; {odd[0]} is neither. Round it first."
            )
        below = [w for w in known if numbers[w] < 0]
        if below:
            raise ValueError(
                f"{path}, line {at(below[0])}: the label {below[0]} is below 0; if it means no label, say "
                f"missing=[{below[0]!r}] (--missing={below[0]})."
            )
        place = {x: k for k, x in enumerate(sorted(set(numbers.values())))}
        order = {word: place[x] for word, x in numbers.items()}
    L = len(set(order.values()))
    if L < 2:
        raise ValueError(
            f"{path}: all labels are {known[0]!r}, and one class leaves nothing to disagree about; if others could "
            "have been said, name them all by classes=[...] (--classes)."
        )
    if max(20, len(known) // 5) < L:
        raise ValueError(
            f"{path} holds {L} different labels among {len(known)}; is the column of the labels another one?"
        )
    return order


def _number(word: str) -> float | None:
    try:
        number = float(word)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def _truth(
    path: Path, items: list[str], n: np.ndarray, truths: list[str], gone: list[bool], code: dict, lines: list[int]
) -> Tensor | None:
    """(N,) the true class of each item, MISSING where no row gives it. Raises ValueError where two rows differ."""
    truth = np.full(len(items), MISSING)
    for k, (item, word, none) in enumerate(zip(n.tolist(), truths, gone, strict=True)):
        if not none:
            if truth[item] not in (MISSING, code[word]):
                raise ValueError(f"{path}, line {lines[k]}: another truth of {items[item]!r} than in a row above.")
            truth[item] = code[word]
    return torch.from_numpy(truth)


def _check_size(path: Path, n_items: int, n_annotators: int) -> None:
    if n_items * n_annotators > CELLS:
        raise ValueError(
            f"{path} has {n_items:,} items and {n_annotators:,} annotators, a table too large for memory; split it."
        )


def write_fused(path: str | Path, data: Annotations, p: Tensor) -> Path:
    """A table with a row an item: `item,label,<p of each class>`, from p (N, L); the label is the most probable class.

    Raises: ValueError if p is not of these items; OSError, and no half file, where it cannot be written.
    """
    if tuple(p.shape) != (data.n_items, data.n_classes):
        raise ValueError(
            f"`p` must be (N, L) = {(data.n_items, data.n_classes)} for these items; got {tuple(p.shape)}."
        )
    classes = data.classes or tuple(map(str, range(data.n_classes)))
    items = data.item_names or range(data.n_items)
    rows = zip(items, p.argmax(1).tolist(), p.tolist(), strict=True)
    head = ["item", "label", *(f"p_{name}" for name in classes)]
    return _written(path, head, ([item, classes[k], *(f"{x:.6g}" for x in row)] for item, k, row in rows))


def write_crowdkit(path: str | Path, data: Annotations) -> Path:
    """All labels as crowd-kit's table `task,worker,label`; `pandas.read_csv(path)` gives what its models take.

    Raises: ValueError for masks, which are no crowd's table; OSError, and no half file, where it cannot be written.
    """
    if data.labels.ndim != 2:
        raise ValueError(f"crowd-kit's table holds classes (N, R); these labels are {tuple(data.labels.shape)}.")
    items, classes = data.item_names or range(data.n_items), data.classes or range(data.n_classes)
    n, r = data.observed.nonzero(as_tuple=True)
    said = data.labels[n, r].tolist()
    rows = ([items[a], data.names[b], classes[k]] for a, b, k in zip(n.tolist(), r.tolist(), said, strict=True))
    return _written(path, ["task", "worker", "label"], rows)


def _written(path: str | Path, head: list[str], rows: Iterable[list]) -> Path:
    path = Path(path)
    with whole_file(path) as part, open(part, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])
    return path
