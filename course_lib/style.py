"""Our colours and the frame of a figure: a size for phones, caption and alternative text, nothing global changed."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import fill

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

# Okabe and Ito's colours, which most colour-blind readers tell apart. The sixth annotator is the reader.
INK, TRUTH, MODEL, BASELINES = "#222222", "#000000", "#0072B2", ("#5F5F5F", "#949494")
ANNOTATORS = ("#E69F00", "#56B4E9", "#009E73", "#D55E00", "#CC79A7", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "*")
PIXELS = {  # what a drawn pixel is beside the truth; in grey they run black, blue, grey, orange, yellow, white
    "right": "#FFFFFF", "missed": "#0072B2", "too much": "#E69F00", "background": "#000000",
    "another class": "#F0E442", "not drawn": "#7F7F7F",
}  # fmt: skip
READER = 5  # index of annotator six
WIDTH = 5.0  # inches, 480 CSS pixels: shrunk to a phone's 350, 11 points are still 11 pixels
STYLE = {f"{name}.facecolor": "white" for name in ("figure", "axes", "savefig")} | {
    **{name: INK for name in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")},
    **{"font.size": 11, "axes.titlesize": 11, "figure.titlesize": 12, "figure.titleweight": "bold"},
    **{"axes.titlelocation": "left", "axes.spines.top": False, "axes.spines.right": False},
}


@dataclass(frozen=True)
class Described:
    """A figure as a web page wants it: picture, alternative text, caption. Lab, Colab and the book show it alike."""

    png: bytes = field(repr=False)
    caption: str
    alt: str
    width: int

    def _repr_html_(self) -> str:
        source = "data:image/png;base64," + base64.b64encode(self.png).decode()
        style = f"width:100%;max-width:{self.width}px;height:auto"
        picture = f'<img src="{source}" alt="{html.escape(self.alt)}" style="{style}">'
        # The theme's own pale captions cannot be read on the light box that it puts behind outputs in dark mode
        caption = f'<figcaption style="color:inherit;font-weight:inherit">{html.escape(self.caption)}</figcaption>'
        return f'<figure style="margin:1em 0">{picture}{caption}</figure>'


@matplotlib.rc_context(STYLE)
def described(fig: Figure, caption: str, alt: str = "") -> Described:
    """Return `fig` with a caption and alternative text, to be the last line of a cell.

    `alt` says what the picture shows to someone who cannot see it; left out, the figure's own words are used.
    Raises ValueError where caption or alt is missing.
    """
    alt = alt or fig.get_label()
    if not caption.strip() or not alt.strip():
        raise ValueError(f"a figure needs a caption and an alt text; got {caption=} and {alt=}; say what it shows")
    raw, out = io.BytesIO(), io.BytesIO()
    fig.savefig(raw, format="png", dpi=150)
    # 256 colours take a third of the bytes; maximum coverage keeps rare ones, such as a single marker's
    picture = Image.open(raw).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    picture.save(out, format="png", optimize=True)
    return Described(out.getvalue(), caption.strip(), alt.strip(), width=round(fig.get_figwidth() * 96))


def text_colour(background: Sequence[float]) -> str:
    """Return black or white, whichever is easier to read on `background` (r, g, b in 0..1): at least 4.5 to 1."""
    r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in background[:3])
    return "black" if 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 else "white"


def interval(runs: Sequence[float]) -> tuple[float, float]:
    """Return the mean of independent runs and the half width of its 95 % interval (Student's t; 0 for one run).

    >>> interval([1.0, 2.0, 3.0])[0], round(interval([1.0, 2.0, 3.0])[1], 2)
    (2.0, 2.48)
    """
    df = len(runs) - 1
    t = (0, 12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)[df] if df < 10 else 1.96 + 2.7 / df
    return float(np.mean(runs)), float(t * np.std(runs, ddof=min(df, 1)) / np.sqrt(len(runs)))


def canvas(ax: Axes | None, title: str, height: float) -> tuple[Figure, Axes]:
    """Return the figure and axes to draw on: `ax` if there is one, else a new figure of our width."""
    if ax is not None:
        ax.set_title(title)
        return ax.figure, ax
    fig = Figure(figsize=(WIDTH, height), layout="constrained")
    headline(fig, title)
    return fig, fig.subplots()


def headline(fig: Figure, title: str) -> None:
    """Write the message of a figure above it, in lines that fit."""
    if title:
        fig.suptitle(fill(title, 46), x=0.01, ha="left")


def with_words(fig: Figure, words: str) -> Figure:
    """Add `words` to the figure's own alternative text (several drawings on one figure make one text)."""
    fig.set_label(f"{fig.get_label()} {words}".strip())
    return fig


def annotator_look(r: int) -> dict:
    """Return marker and colour of annotator r = 0, 1, ...; 5 is the reader, and after that they repeat."""
    look = {"color": ANNOTATORS[r % 6], "marker": MARKERS[r % 6], "markersize": 9 if r % 6 == READER else 7}
    return look | {"linestyle": "none", "markeredgecolor": INK, "markeredgewidth": 0.7}


def method_look(method: str, model: str, k: int) -> dict:
    """Return the line of a method: `model` blue, what knows the truth black, the k-th of the others grey."""
    if method in (model, "oracle", "truth"):
        return {"color": MODEL if method == model else TRUTH, "marker": "o" if method == model else "s"}
    return {"color": BASELINES[k % 2], "linestyle": ("--", ":", "-.")[k % 3], "marker": "^vDPX<>"[k % 7]}


def apart(places: Mapping[str, float], gap: float = 0.08) -> dict[str, float]:
    """Names moved, upwards first and then back below 1, until none prints on another; their order stays."""
    names, up, down = sorted(places, key=places.get), -1.0, 1.0 + gap
    moved = {name: (up := max(up + gap, places[name])) for name in names}
    return {name: (down := min(down - gap, moved[name])) for name in reversed(names)}
