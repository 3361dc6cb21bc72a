"""Seven drawings that say one thing each. They read in grey and on a phone, and carry their alternative text.

Every drawing goes on a Figure of its own (or on the `ax` you pass), is returned as a Figure and leaves matplotlib's
settings as they were. Show it with `described(figure, caption)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
import matplotlib.colors
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor

from course_lib import style
from course_lib.annotations import as_images
from course_lib.confusion import check_cm
from course_lib.style import ANNOTATORS, BASELINES, MARKERS, MODEL, READER, TRUTH, described, interval

__all__ = ["ANNOTATORS", "BASELINES", "MARKERS", "MODEL", "READER", "TRUTH", "described", "interval"]
__all__ += ["bars_with_spread", "confusion_matrix", "confusion_row", "curve", "digits_grid", "history", "masks"]

Numbers = Tensor | np.ndarray | Sequence


@matplotlib.rc_context(style.STYLE)
def confusion_matrix(
    A: Numbers, ax: Axes | None = None, *, title: str = "", names: Sequence[str] | None = None
) -> Figure:
    """Draw one confusion matrix, A[said, truth] (L, L), as shades with the numbers on them; `names` of the classes."""
    (A,) = _matrices(A, 2)[None]
    fig, ax = style.canvas(ax, title, height=4.6)
    _draw_matrix(ax, A, names)
    return style.with_words(fig, f"Confusion matrix: {_in_words(A, names)}.")


@matplotlib.rc_context(style.STYLE)
def confusion_row(
    A: Numbers, names: Sequence[str] | None = None, *, title: str = "", classes: Sequence[str] | None = None
) -> Figure:
    """Draw R confusion matrices (R, L, L) with one colour bar; `names` of the annotators, `classes` names of classes.

    A phone is narrow: three stand side by side where twelve letters hold a row's numbers and names, else two.
    """
    A = _matrices(A, 3)
    R, L = A.shape[:2]
    names = _names(names, R)
    letters = L * max(4, 1 + max(len(str(c)) for c in classes or range(L)))
    columns = min(R, 3 if letters <= 12 else 2)
    lines = -(-R // columns)
    fig = Figure(figsize=(style.WIDTH, lines * (style.WIDTH / columns + 0.3) + 1.1), layout="constrained")
    style.headline(fig, title)
    axes = fig.subplots(lines, columns, squeeze=False).ravel()
    for r, ax in enumerate(axes[:R]):
        shade = _draw_matrix(ax, A[r], classes, says=r % columns == 0, truth=r + columns >= R)
        ax.set_title(f"     {names[r]}")
        ax.plot(0.05, 1.08, **style.annotator_look(r), transform=ax.transAxes, clip_on=False)
    for ax in axes[R:]:
        ax.set_axis_off()
    fig.colorbar(shade, ax=axes, location="bottom", fraction=0.04, aspect=30, label="p(says | truth)")
    return style.with_words(fig, "; ".join(f"{names[r]}: {_in_words(A[r], classes)}" for r in range(R)) + ".")


@matplotlib.rc_context(style.STYLE)
def digits_grid(
    images: Numbers,
    labels: Numbers | None = None,
    truth: Numbers | None = None,
    *,
    title: str = "",
    names: Sequence[str] | None = None,
    first: int = 0,
) -> Figure:
    """Draw grey pictures (N, H, W) with what each annotator said, labels (N, R), beneath; -1 is drawn as a dash.

    A label in a dark box is not the truth (N,) or, where the truth is not given, not the most frequent label.
    `first` is the annotator of the first column, for instance `READER`.
    """
    images = _numbers(as_images(images))[:, 0]  # (N, H, W)
    labels = np.empty((len(images), 0), int) if labels is None else _numbers(labels).astype(int)
    right = [_most(row) for row in labels] if truth is None else _numbers(truth).tolist()
    if labels.ndim != 2 or not len(labels) == len(right) == len(images):
        got = f"labels {labels.shape}" + f" and {len(right)} truths" * (truth is not None)
        raise ValueError(f"want `labels` (N, R) and `truth` (N,) for the N={len(images)} images; got {got}")
    heads = [""] * len(images) if truth is None else [f"truth {t}" for t in right]
    N, R = labels.shape
    names, columns = _names(names, R, first), min(max(N, 3), 5 if R < 5 else 4)
    wide, above = 1.12, 0.25 * (truth is not None)  # in pictures: each is 1 x 1
    high, lines = 1.05 + above + (0.06, 0.3, 0.5)[min(R, 2)], -(-N // columns)
    height = lines * high * style.WIDTH / (columns * wide) + 0.3 * bool(title) + 0.3 * -(-R // 3)
    fig, ax = style.canvas(None, title, height)
    for n in range(N):
        x, y = n % columns * wide, n // columns * high + above
        ax.imshow(images[n], cmap="gray_r", vmin=0, vmax=images.max(), extent=(x, x + 1, y + 1, y))
        ax.plot([x, x + 1, x + 1, x, x], [y, y, y + 1, y + 1, y], color="#BBBBBB", linewidth=0.6)
        ax.text(x, y - 0.04, heads[n], va="bottom")
        _labels_beneath(ax, x, y + 1, labels[n], right[n], first)
    ax.set(xlim=(-0.02, columns * wide - 0.1), ylim=(lines * high, -0.02))
    ax.set_axis_off()
    if R:
        keys = [ax.plot([], [], **style.annotator_look(r + first), label=names[r])[0] for r in range(R)]
        fig.legend(handles=keys, loc="outside lower left", ncols=min(R, 3), frameon=False, handletextpad=0.1)
        said = [f"{heads[n] or f'picture {n + 1}'}: {' '.join(map(str, labels[n]))}" for n in range(N)]
        style.with_words(fig, f"Labels of {', '.join(names)}, in this order: {'; '.join(said)}.".replace("-1", "none"))
    return style.with_words(fig, f"{N} pictures.")


@matplotlib.rc_context(style.STYLE)
def bars_with_spread(
    rows: Sequence[Mapping],
    metric: str,
    methods: Sequence[str] | None = None,
    *,
    title: str = "",
    xlabel: str = "",
    model: str = "trace",
    ax: Axes | None = None,
) -> Figure:
    """Draw a metric by method: a dot for every run, the mean as a stroke, its 95 % interval as a line.

    `rows` are those of a result, one a run: {"method", "draw", "metrics": {metric: number}}. Where annotators were
    drawn several times, runs with the same draw are averaged first: only draws are independent.
    """
    rows = [row for row in rows if metric in row["metrics"]]
    methods = list(methods or dict.fromkeys(row["method"] for row in rows))
    fig, ax = style.canvas(ax, title, height=1.2 + 0.5 * len(methods))
    words = []
    for y, method in enumerate(methods):
        draws: dict = {}
        for row in (row for row in rows if row["method"] == method):
            draws.setdefault(row.get("draw"), []).append(row["metrics"][metric])
        if not draws:
            raise ValueError(f"no row has {metric=} for {method=}; these have: {sorted({r['method'] for r in rows})}")
        runs = sum(draws.values(), [])
        mean, half = interval([np.mean(draw) for draw in draws.values()] if len(draws) > 1 else runs)
        color = style.method_look(method, model, y)["color"]
        jitter = y + 0.22 * np.sin(2.4 * np.arange(len(runs)))  # no chance in a figure
        ax.plot(runs, jitter, "o", color=color, markersize=5, alpha=0.55, markeredgewidth=0)
        ax.plot([mean - half, mean + half], [y, y], color=color, linewidth=2.5)
        ax.plot(mean, y, "|", color=color, markersize=18, markeredgewidth=3)
        ax.text(1.02, y, f"{mean:.3f}", transform=ax.get_yaxis_transform(), va="center")
        words.append(f"{method} {mean:.3f} (95 % interval {mean - half:.3f} to {mean + half:.3f}, {len(runs)} runs)")
    ax.set(yticks=range(len(methods)), ylim=(len(methods) - 0.4, -0.6), xlabel=xlabel or metric.replace("_", " "))
    ax.set_yticklabels([method.replace("_", " ") for method in methods])
    ax.grid(axis="x", color="#DDDDDD", linewidth=0.7)
    return style.with_words(fig, f"{xlabel or metric} by method: {'; '.join(words)}.")


@matplotlib.rc_context(style.STYLE)
def curve(
    x: Numbers,
    lines: Mapping[str, Numbers],
    *,
    title: str = "",
    xlabel: str = "",
    ylabel: str = "",
    log: bool = False,
    model: str = "trace",
    ax: Axes | None = None,
) -> Figure:
    """Draw lines {name: (X,) or (runs, X)} over x, named at their ends: mean, and band from lowest to highest run.

    `log=True` spaces x by its logarithm, with a straight piece near 0 so that lambda = 0 has its place.
    """
    x = _numbers(x).astype(float)
    fig, ax = style.canvas(ax, title, height=3.4)
    ends, words = {}, []
    for k, (name, values) in enumerate(lines.items()):
        y = np.atleast_2d(_numbers(values))
        if y.shape[-1] != len(x):
            raise ValueError(f"line {name!r} needs one value for each of {len(x)} x, on its last axis; got {y.shape}")
        mean, look = y.mean(0), style.method_look(name, model, k)
        ax.plot(x, mean, **look, linewidth=2, markersize=5 if len(x) <= 15 else 0)
        ax.fill_between(x, y.min(0), y.max(0), color=look["color"], alpha=0.18, linewidth=0)
        ends[name] = mean[-1]
        words.append(f"{name} goes from {mean[0]:.3g} to {mean[-1]:.3g}")
    if log:
        ax.set_xscale("symlog", linthresh=x[x > 0].min())
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.grid(color="#E5E5E5", linewidth=0.7)
    to_axes = lambda end: ax.transAxes.inverted().transform(ax.transData.transform((x[-1], end)))[1]  # noqa: E731
    for name, at in style.apart({name: float(to_axes(end)) for name, end in ends.items()}).items():
        ax.text(1.02, at, name.replace("_", " "), transform=ax.transAxes, va="center")
    return style.with_words(fig, f"{ylabel} over {xlabel} from {x[0]:g} to {x[-1]:g}: {'; '.join(words)}.")


def history(record: Mapping[str, Numbers], *, title: str = "", ylabel: str = "loss", model: str = "loss") -> Figure:
    """Draw training curves, {name: one number an epoch}, over the epochs; `model` names the blue one."""
    epochs = 1 + np.arange(len(next(iter(record.values()))))
    return curve(epochs, record, title=title, xlabel="epoch", ylabel=ylabel, model=model)


@matplotlib.rc_context(style.STYLE)
def masks(
    drawn: Numbers, truth: Numbers, names: Sequence[str] | None = None, *, image: Numbers | None = None, title: str = ""
) -> Figure:
    """Draw masks (M, H, W) beside the truth (H, W): found white, missed blue, too much orange, background black.

    With more than two classes, white is the right class and yellow another class than the true one; which class it is,
    is not shown. -1, a pixel that was not drawn, is grey. A grey picture, `image` (H, W), comes first.
    """
    drawn, truth = _numbers(drawn), _numbers(truth)
    if drawn.ndim != 3 or drawn.shape[1:] != truth.shape:
        raise ValueError(f"`drawn` must be (M, H, W) beside truth (H, W); got {drawn.shape} and {truth.shape}.")
    names, first, kinds = _names(names, len(drawn)), int(image is not None), list(style.PIXELS)
    nothing = (drawn == 0) & (truth == 0)
    kind = np.select([drawn < 0, nothing, drawn == truth, drawn == 0, truth == 0], [5, 3, 0, 1, 2], 4)  # into PIXELS
    columns, lines = 3, -(-(len(drawn) + first) // 3)
    height = lines * (style.WIDTH / columns * truth.shape[0] / truth.shape[1] + 0.2 * (1 + names[0].count("\n")))
    fig = Figure(figsize=(style.WIDTH, height + 0.7), layout="constrained")
    style.headline(fig, title)
    axes = fig.subplots(lines, columns, squeeze=False).ravel()
    for ax in axes:
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set(visible=True, color="#BBBBBB")
    if first:
        axes[0].imshow(_numbers(image), cmap="gray", interpolation="nearest")
        axes[0].set_title("image")
    palette = np.array([matplotlib.colors.to_rgb(colour) for colour in style.PIXELS.values()])
    for ax, name, pixels in zip(axes[first:], names, kind, strict=False):
        ax.imshow(palette[pixels], interpolation="nearest")
        ax.set_title(name)
    for ax in axes[first + len(drawn) :]:
        ax.set_axis_off()
    shown = [k for k in range(len(kinds)) if k < 4 or (kind == k).any()]
    keys = [Patch(facecolor=palette[k], edgecolor=style.INK, label=kinds[k]) for k in shown]
    tight = {"frameon": False, "handlelength": 1.2, "columnspacing": 1}
    fig.legend(handles=keys, loc="outside lower left", ncols=4 if len(keys) == 4 else 3, **tight)
    words = [
        f"{n}: " + ", ".join(f"{(k == i).sum()} {kinds[i]}" for i in shown if i != 3)
        for n, k in zip(names, kind, strict=True)
    ]
    return style.with_words(fig, "; ".join(words).replace("\n", " ") + ".")


def _numbers(values) -> np.ndarray:
    return torch.as_tensor(values).detach().cpu().numpy()


def _matrices(A, ndim: int) -> np.ndarray:
    A = _numbers(check_cm(torch.as_tensor(A), tolerance=1e-3))
    if A.ndim != ndim:
        raise ValueError(f"`A` must be {'(R, L, L)' if ndim == 3 else '(L, L)'}, A[..., said, truth]; got {A.shape}")
    return A


def _names(names: Sequence[str] | None, R: int, first: int = 0) -> list[str]:
    names = names or ["you" if r == READER else f"annotator {r + 1}" for r in range(first, first + R)]
    if len(names) != R:
        raise ValueError(f"`names` must name the R={R} annotators; got {len(names)}: {list(names)}")
    return list(names)


def _most(labels: np.ndarray) -> int:
    return int(np.bincount(labels[labels >= 0]).argmax()) if (labels >= 0).any() else -1


def _labels_beneath(ax: Axes, x: float, y: float, labels: np.ndarray, right: int, first: int) -> None:
    R = len(labels)
    down, aside = (0.15, 0.12) if R == 1 else (0.36, 0)  # a single label stands beside its marker, others under it
    for r, label in enumerate(labels):
        at = x + (r + 0.5) / R
        ax.plot(at - aside, y + 0.14, **style.annotator_look(r + first))
        wrong = {"facecolor": style.INK, "edgecolor": "none", "pad": 1.2} if 0 <= label != right else None
        look = {"ha": "center", "va": "center", "color": "white" if wrong else style.INK, "bbox": wrong}
        ax.text(at + aside, y + down, "–" if label < 0 else label, **look)


def _draw_matrix(ax: Axes, A: np.ndarray, names, *, says: bool = True, truth: bool = True):
    L, few = len(A), len(A) <= 5
    shade = ax.imshow(A, cmap="cividis", vmin=0, vmax=1)
    printed = A >= 0.005
    for i, j in np.argwhere(printed):
        number = f"{A[i, j]:.2f}" if few else f"{A[i, j]:.2f}".lstrip("0").replace("1.00", "1")
        look = {"fontsize": 11 if few else 8, "color": style.text_colour(shade.to_rgba(A[i, j]))}
        ax.text(j, i, number, ha="center", va="center", **look)
    i, j = np.nonzero(~printed)  # a dot each, as one mark: hundreds of texts take seconds
    ax.plot(j, i, ".", color=style.text_colour(shade.to_rgba(0.0)), markersize=2, markeredgewidth=0)
    ax.set(xticks=range(L), yticks=range(L), xlabel="truth" if truth else "", ylabel="says" if says else "")
    ax.set_xticklabels(names or range(L))
    ax.set_yticklabels(names or range(L))
    ax.tick_params(length=0, labelsize=11 if few else 9)
    ax.spines[:].set_visible(False)
    return shade


def _in_words(A: np.ndarray, names) -> str:
    said, truth = np.unravel_index((A - 2 * np.eye(len(A))).argmax(), A.shape)
    names = names or range(len(A))
    right = f"right with probability {A.diagonal().min():.2f} to {A.diagonal().max():.2f}"
    return f"{right}; worst confusion, says {names[said]} when the truth is {names[truth]}: {A[said, truth]:.2f}"
