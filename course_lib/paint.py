"""The reader paints strokes, "this is it" and "this is not it", and a network learns from them in seconds.

The widget's logic is JavaScript (`static/paint_strokes.js`), so that it lives in JupyterLab and in the page of a built
book alike. What Python does with the strokes are plain functions, which run unattended with recorded strokes.
A canvas (N, H, W) uint8 holds what each pixel was marked as: 0 nothing, 1 "this is it", 2 "this is not it".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import anywidget
import matplotlib
import numpy as np
import torch
import traitlets
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from course_lib import data, networks, scenes, style
from course_lib.annotations import MISSING, Annotations, as_images, as_labels
from course_lib.files import keep_json, kept_file, kept_json
from course_lib.methods.coarse import StrokeCM, complementary
from course_lib.methods.pixels import Pixels
from course_lib.pixel_cms import EverywhereCM
from course_lib.strokes import NEGATIVE, POSITIVE
from course_lib.training import fit
from course_lib.widgets import STATIC

Numbers = Tensor | np.ndarray | Sequence
KINDS = ("nothing", "positive", "negative")
"""What a byte of a canvas says, and, of a recorded stroke, what it paints; "nothing" rubs out."""


class PaintStrokes(anywidget.AnyWidget):
    """Let the reader paint on pictures; `strokes` holds a canvas as bytes.

    Arguments: `images` (N, H, W), (N, 1, H, W) or, in colours, (N, 3, H, W); `strokes`, a canvas to go on with.
    """

    _esm = STATIC / "paint_strokes.js"
    _css = STATIC / "paint_strokes.css"
    shape = traitlets.List(traitlets.Int()).tag(sync=True)  # N, H, W, C
    # Bytes from the browser arrive as a memoryview, which Bytes would refuse in silence
    images = traitlets.Bytes().tag(sync=True, from_json=lambda value, widget: bytes(value))
    strokes = traitlets.Bytes().tag(sync=True, from_json=lambda value, widget: bytes(value))
    overlay = traitlets.Bytes().tag(sync=True, from_json=lambda value, widget: bytes(value))

    def __init__(self, images: Numbers, strokes: Numbers | None = None) -> None:
        self.pictures = _pictures(images)  # (N, C, H, W)
        N, C, H, W = self.pictures.shape
        self._size = (N, H, W)
        canvas = torch.zeros(N, H, W, dtype=torch.uint8) if strokes is None else torch.as_tensor(strokes)
        ink = (255 * self.pictures).round().to(torch.uint8).movedim(1, -1)
        super().__init__(shape=[N, H, W, C], images=_bytes(ink), strokes=_bytes(checked_canvas(canvas, self._size)))

    @traitlets.validate("strokes")
    def _checked(self, proposal: dict) -> bytes:
        return _bytes(checked_canvas(proposal["value"], self._size))

    def canvas(self) -> Tensor:
        """Return the strokes so far as a canvas (N, H, W)."""
        return checked_canvas(self.strokes, self._size)

    def labels(self, target: int | Tensor = 1) -> Tensor:
        """Return the strokes so far as labels (N, 2, H, W), see `labels_of`."""
        return labels_of(self.canvas(), target)

    def show(self, p: Numbers | None) -> None:
        """Outline in the widget where p (N, H, W), the probability of the target, is above one half; None: nowhere."""
        self.overlay = b"" if p is None else _bytes((255 * _found(p, self._size)).round().to(torch.uint8))

    def still(self, p: Numbers | None = None) -> Figure:
        """Draw the pictures with the strokes so far, and what was found where given."""
        return still(self.pictures, self.labels(), p)

    def keep(self, path: Path | str | None = None) -> Path | None:
        """Save the strokes; return the file, or None where nothing has been painted yet."""
        return save_strokes(path, self.canvas()) if any(self.strokes) else None


# --- painting without a browser


def paint_line(canvas: Tensor, start: Sequence[int], end: Sequence[int], radius: int, kind: int) -> Tensor:
    """Give every pixel of canvas (H, W) nearer to the line than radius + 1/2 its kind, in place; points are (x, y).

    >>> paint_line(torch.zeros(3, 4, dtype=torch.uint8), (0, 0), (2, 2), radius=0, kind=1)
    tensor([[1, 0, 0, 0],
            [0, 1, 0, 0],
            [0, 0, 1, 0]], dtype=torch.uint8)
    """
    H, W = canvas.shape
    y, x = torch.arange(H, dtype=torch.float64)[:, None], torch.arange(W, dtype=torch.float64)
    (x0, y0), (x1, y1) = start, end
    dx, dy = x1 - x0, y1 - y0
    length = max(dx * dx + dy * dy, 1)  # squared: all numbers are whole, so the widget gives the same pixels
    along = ((x - x0) * dx + (y - y0) * dy).clamp(0, length)
    far_x, far_y = 2 * ((x - x0) * length - along * dx), 2 * ((y - y0) * length - along * dy)
    canvas[far_x**2 + far_y**2 <= ((2 * radius + 1) * length) ** 2] = kind
    return canvas


def replay(recorded: Sequence[dict], N: int, H: int, W: int) -> Tensor:
    """Return the canvas (N, H, W) after recorded strokes, one over the other.

    A stroke: {"picture": n, "kind": one of `KINDS`, "radius": r, "points": [[x, y], ...]}, pixels from the upper left.
    """
    canvas = torch.zeros(N, H, W, dtype=torch.uint8)
    for k, stroke in enumerate(recorded):
        try:
            n, kind, radius, points = stroke["picture"], KINDS.index(stroke["kind"]), stroke["radius"], stroke["points"]
            if not 0 <= n < N or radius < 0 or not points:
                raise ValueError(f"wanted a picture of 0..{N - 1}, radius >= 0 and points")
            for start, end in zip(points[:1] + points, points, strict=False):
                paint_line(canvas[n], start, end, radius, kind)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"stroke {k} cannot be painted ({type(error).__name__}: {error}): {stroke}") from None
    return canvas


def example() -> scenes.Scene:
    """Sixteen digits in noise, two of each from 0 to 7, to paint on: those of `recorded`."""
    source = data.mnist5k()
    chosen = source.take(torch.arange(16) * 250 + 7)
    return scenes.digits(chosen, noise=0.3, generator=networks.seeded(16))


def recorded() -> list[dict]:
    """Return recorded strokes on `example`: along each digit, and around it. A program drew them, not a person."""
    return json.loads((STATIC / "recorded_strokes.json").read_text(encoding="utf-8"))


# --- what becomes of strokes


def checked_canvas(strokes: bytes | Numbers, size: Sequence[int]) -> Tensor:
    """Return strokes, bytes or numbers, as a canvas (N, H, W); raise ValueError unless they have that size and 0..2."""
    if isinstance(strokes, bytes):
        strokes = torch.tensor(list(strokes), dtype=torch.uint8)
        strokes = strokes.view(*size) if len(strokes) == np.prod(size) else strokes
    canvas = torch.as_tensor(strokes)
    if tuple(canvas.shape) != tuple(size) or canvas.is_floating_point() or (canvas < 0).any() or (canvas > 2).any():
        raise ValueError(
            f"`strokes` must be {tuple(size)} whole numbers, 0 nothing, 1 this is it, 2 this is not it; got "
            f"{tuple(canvas.shape)} of {canvas.dtype}, {sorted(set(canvas.flatten().tolist()))[:5]}"
        )
    return canvas.to("cpu", torch.uint8)


def labels_of(canvas: Tensor, target: int | Tensor = 1) -> Tensor:
    """Return a canvas as labels (N, 2, H, W) of `strokes.draw_strokes`: `target`, one or (N,), where there is a mark.

    >>> labels_of(torch.tensor([[[0, 1, 2]]], dtype=torch.uint8)).tolist()
    [[[[-1, 1, -1]], [[-1, -1, 1]]]]
    """
    target = torch.as_tensor(target).expand(len(canvas))[:, None, None]
    return torch.stack([torch.where(canvas == KINDS.index(kind), target, MISSING) for kind in KINDS[1:]], 1)


def strokes_or_recorded(strokes: bytes, recorded: Tensor, target: int | Tensor = 1) -> tuple[Tensor, str]:
    """Return (labels, "you") as soon as the reader has painted once, else (those of a canvas `recorded`, "recorded").

    So a notebook that runs unattended goes on.
    """
    yours = checked_canvas(strokes, recorded.shape)
    return (labels_of(yours, target), "you") if yours.any() else (labels_of(recorded, target), "recorded")


def train_on(images: Numbers, labels: Tensor, n_classes: int = 2, *, epochs: int = 30, seed: int = 0) -> Pixels:
    """Fit a small U-Net, one matrix for each kind of stroke, and M, to strokes (N, 2, H, W); unmarked means nothing."""
    annotations = Annotations(images, labels, n_classes=n_classes, names=KINDS[1:])
    net = networks.unet(annotations.images.shape[1], n_classes, width=8, generator=networks.seeded(seed))
    cm = StrokeCM(EverywhereCM(2, n_classes), complementary(n_classes), learn_M=n_classes > 2)
    model = Pixels(net, cm, lam=0.01)
    fit(model, annotations, epochs=epochs, settle=epochs // 4, batch_size=4, lr=1e-2, seeds=seed, progress=False)
    return model


# --- the still twin


@matplotlib.rc_context(style.STYLE)
def still(images: Numbers, labels: Tensor, p: Numbers | None = None, *, title: str = "", whose: str = "you") -> Figure:
    """Draw the widget's still twin: strokes, labels (N, 2, H, W), over pictures; outlined, where p (N, H, W) > 1/2."""
    pictures = _pictures(images)
    N, C, H, W = pictures.shape
    marks = as_labels(labels, 256) != MISSING
    if marks.shape != (N, 2, H, W):
        raise ValueError(f"`labels` must be {(N, 2, H, W)} beside the images; got {tuple(marks.shape)}")
    columns = max(2, min(N, 4))
    lines = -(-N // columns)
    fig = Figure(figsize=(style.WIDTH, lines * style.WIDTH / columns * H / W + 0.9), layout="constrained")
    style.headline(fig, title)
    axes = fig.subplots(lines, columns, squeeze=False).ravel()
    size = 0.9 * 72 * style.WIDTH / columns / W  # of a pixel, in points
    found = None if p is None else _found(p, (N, H, W))
    keys, words = [], []
    for ax in axes:
        ax.set_axis_off()
    for n, ax in enumerate(axes[:N]):
        ax.imshow(pictures[n].movedim(0, -1).numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        keys = [_marks(ax, marks[n, channel], channel, size) for channel in (POSITIVE, NEGATIVE)]
        words.append(f"picture {n + 1}: {marks[n, POSITIVE].sum()} and {marks[n, NEGATIVE].sum()} pixels")
        if found is not None:
            outside = np.pad(found[n].numpy(), 1)  # an outline that touches the edge is closed there
            grid = np.arange(-1, W + 1), np.arange(-1, H + 1)
            if (outside > 0.5).any():
                ax.contour(*grid, outside, [0.5], colors="white", linewidths=2.4)
                ax.contour(*grid, outside, [0.5], colors="black", linewidths=1, linestyles="dashed")
            words[-1] += f", outlined {(found[n] > 0.5).sum()}"
        ax.set(xlim=(-0.5, W - 0.5), ylim=(H - 0.5, -0.5))
    fig.legend(handles=keys, loc="outside lower left", ncols=2, frameon=False)
    return style.with_words(fig, f"Strokes ({whose}) that say this is it, and this is not it: {'; '.join(words)}.")


def _marks(ax: Axes, marked: Tensor, channel: int, size: float) -> tuple:
    """Colour, and a sign on it: plus or minus. Returns what a legend needs."""
    y, x = np.nonzero(marked.numpy())
    name = ("this is it", "this is not it")[channel]
    look = {"color": style.ANNOTATORS[channel], "markersize": size, "markeredgewidth": 0, "alpha": 0.6}
    ax.plot(x, y, "s", **look)
    sign = {"marker": "+_"[channel], "markersize": 0.7 * size, "markeredgecolor": style.INK, "markeredgewidth": 0.7}
    ax.plot(x, y, linestyle="none", **sign)
    return Line2D([], [], linestyle="none", label=name, **look | sign | {"marker": "s", "markersize": 9, "alpha": 1})


# --- kept for later


def save_strokes(path: Path | str | None, canvas: Tensor) -> Path:
    """Write a canvas (N, H, W), whole or not at all, by default to strokes.json in COURSE_HOME; return the file."""
    canvas = checked_canvas(canvas, canvas.shape)
    rows = ["".join(map(str, picture.flatten().tolist())) for picture in canvas]
    return keep_json(Path(path or kept_file("strokes.json")), {"shape": list(canvas.shape), "strokes": rows}, "strokes")


def load_strokes(path: Path | str | None = None) -> Tensor | None:
    """Return the canvas (N, H, W) that was saved, or None. Raises ValueError, in one line, for any other file."""

    def understood(content: dict) -> Tensor:
        marks = bytes(int(mark) for row in content["strokes"] for mark in row)
        return checked_canvas(marks, content["shape"])

    return kept_json(Path(path or kept_file("strokes.json")), understood, "strokes", "paint")


def _pictures(images: Numbers) -> Tensor:
    x = as_images(images).detach().cpu()
    if x.ndim != 4 or x.shape[1] not in (1, 3) or x.min() < 0 or x.max() > 1:
        raise ValueError(
            f"`images` must be (N, H, W), (N, 1, H, W) or (N, 3, H, W), in 0..1; got {tuple(x.shape)}, "
            f"{x.min():.3g} to {x.max():.3g}"
        )
    return x


def _found(p: Numbers, size: Sequence[int]) -> Tensor:
    p = torch.as_tensor(p).detach().cpu().float()
    if tuple(p.shape) != tuple(size) or not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"`p` must be {tuple(size)} probabilities of the target, in 0..1; got {tuple(p.shape)}")
    return p


def _bytes(values: Tensor) -> bytes:
    return values.contiguous().numpy().tobytes()
