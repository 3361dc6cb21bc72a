"""The report as one HTML page that needs no network and no script: tables, and figures within it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from .. import plots, style
from ..annotations import MISSING, Annotations
from .analysis import Found, doubt
from .held_out import VOTE

ROWS, MATRICES, CLASSES, PICTURES = 25, 6, 12, 3
"""At most so many annotators in the table, matrices in the figure, classes in a matrix, doubtful masks."""


def html(data: Annotations, found: Found, name: str) -> str:
    """The page; every name from the reader's files is escaped."""
    from jinja2 import Environment, StrictUndefined  # comes with Jupyter
    from markupsafe import Markup

    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(
        Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    )
    f, masks = found.summary, data.labels.ndim == 4
    shown = sorted(f["annotators"], key=lambda a: -a["labels"])[:ROWS]
    picture = lambda figure: Markup(figure._repr_html_())  # noqa: E731  (it escapes its words)
    volumes = f["cases"] != f["items"]
    return page.render(
        f=f,
        name=name,
        masks=masks,
        things=("slices" if volumes else "pictures") if masks else "items",
        num=lambda x: "–" if x is None else f"{x:.3f}",
        shown=sorted(shown, key=lambda a: -a["skill"]),
        skills=picture(_skills(shown, len(f["classes"]))),
        matrices=Markup("").join(map(picture, _matrices(data, found))),
        doubts=Markup("").join(
            picture(figure) for figure in (_masks(data, found) if masks else [_doubts(data, found)])
        ),
    )


@matplotlib.rc_context(style.STYLE)
def _skills(annotators: list[dict[str, Any]], L: int) -> style.Described:
    ranked = sorted(annotators, key=lambda a: a["skill"])
    fig = Figure(figsize=(style.WIDTH, 1.3 + 0.22 * len(ranked)), layout="constrained")
    ax = fig.subplots()
    ax.plot([a["skill"] for a in ranked], range(len(ranked)), "o", color=style.INK)
    ax.axvline(1 / L, color=style.BASELINES[0], linestyle="--")
    ax.text(1 / L, len(ranked) - 0.4, " a guess", va="bottom", color=style.BASELINES[0])
    ax.set(xlim=(0, 1.02), ylim=(-0.6, len(ranked) + 0.4), xlabel="skill", yticks=range(len(ranked)))
    ax.set_yticklabels([_plain(a["name"]) for a in ranked])
    best, worst = ranked[-1], ranked[0]
    alt = (
        f"Skills of {len(ranked)} annotators, from {worst['name']} with {worst['skill']:.2f} to {best['name']} with "
        f"{best['skill']:.2f}; a guess has {1 / L:.2f}."
    )
    return style.described(fig, "The skill of each annotator; the numbers are in the table below.", alt)


def _matrices(data: Annotations, found: Found) -> list[style.Described]:
    """Of those with most labels; none where the classes are too many to draw."""
    if data.n_classes > CLASSES:
        return []
    R = data.n_annotators
    busy = sorted(range(R), key=lambda r: -found.summary["annotators"][r]["labels"])[: MATRICES if R <= MATRICES else 4]
    fig = plots.confusion_row(
        found.A[sorted(busy)],
        [_plain(data.names[r]) for r in sorted(busy)],
        classes=[_plain(c, 8) for c in found.summary["classes"]],
    )
    return [style.described(fig, "What each annotator says, for each truth: a column sums to 1.")]


@matplotlib.rc_context(style.STYLE)
def _doubts(data: Annotations, found: Found) -> style.Described:
    wrong = doubt(data, found.p)[data.observed.any(1)].numpy()
    counts, edges = np.histogram(wrong, bins=20, range=(0, 1))
    fig = Figure(figsize=(style.WIDTH, 2.6), layout="constrained")
    ax = fig.subplots()
    ax.bar(edges[:-1], counts, width=0.05, align="edge", color=style.BASELINES[1], edgecolor=style.INK)
    what = "share of labels against the vote" if found.summary["fused_by"] == VOTE else "probability that it is wrong"
    ax.set(xlabel=f"of the fused label: {what}", ylabel="items", xlim=(0, max(0.55, wrong.max() + 0.05)))
    alt = (
        f"Histogram over items of the fused label's {what}: {np.mean(wrong < 0.05):.0%} of items lie below 0.05, "
        f"{np.mean(wrong > 0.2):.0%} above 0.2."
    )
    return style.described(fig, "How sure the fused labels are.", alt)


def _masks(data: Annotations, found: Found) -> list[style.Described]:
    """The most doubtful items: what each annotator drew beside the fused mask."""
    figures = []
    for entry in found.summary["in_doubt"][:PICTURES]:
        n = entry["index"]
        drew = (data.labels[n] != MISSING).flatten(1).any(1).nonzero().flatten()[:MATRICES]
        here = (data.labels[n] != MISSING).any(0)
        high, wide = int(here.any(1).sum()), int(here.any(0).sum())  # without the rim of a smaller case
        fused = found.p[n].argmax(0)
        picture = data.images[n].mean(0)[:high, :wide] if data.images.numel() else 1 - found.p[n].amax(0)[:high, :wide]
        fig = plots.masks(
            data.labels[n, drew][:, :high, :wide],
            fused[:high, :wide],
            [_plain(data.names[r]) for r in drew.tolist()],
            image=picture,
        )
        if not data.images.numel():
            fig.axes[0].set_title("doubt", loc="left")
        caption = (
            f"{entry['item']}: what annotators drew, beside the fused mask. White is marked in both, blue only in the "
            "fused mask, orange only by the annotator."
        )
        figures.append(style.described(fig, caption))
    return figures


def _plain(name: str, most: int = 16) -> str:
    """A name short enough for an axis, and without the signs that matplotlib takes for formulas."""
    name = name if len(name) <= most else name[: most - 1] + "…"
    return name.replace("$", r"\$")
