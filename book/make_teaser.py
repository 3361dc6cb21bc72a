"""Draws the README's teaser.png from the committed results, and the front page's not_k.png from one run."""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from course_lib import plots, style
from course_lib.data import shipped
from course_lib.experiments import coarse, read
from course_lib.strokes import NEGATIVE
from course_lib.training import fit, predict

STATIC = Path(__file__).parent / "_static"
CLASSES = {"background": "#000000", "a zero": "#0072B2", "a one": "#E69F00"}


def teaser() -> Figure:
    rows = [r for r in read(shipped("results/trace-mnist5k.lesson.json"))["rows"] if r["setting"]["skill"] == 0.45]
    return plots.bars_with_spread(
        rows,
        "accuracy",
        ["oracle", "trace", "vanilla"],
        title="Five annotators, right 45 % of the time, one label an image",
        xlabel="accuracy on unseen digits",
    )


def not_k(unseen: int = 0) -> Figure:
    """Draw 0 of the experiment coarse-not-k at lesson size: what was said, and what two networks make of it."""
    setting = {"scene": "two_digits", "denied": "uniform", "share": 1.0}
    drawn = coarse.prepare(setting, 0, 320, 8)
    found = {}
    for method in ("uniform", "naive"):
        model, labels = coarse.built(method, drawn, setting, 0)
        fit(
            model, drawn.crowd.with_labels(labels), epochs=14, settle=2, batch_size=16, lr=1e-2, seeds=0, progress=False
        )
        found[method] = predict(model, drawn.test.images)[unseen]
    panels = {
        "a picture": drawn.train.images[0, 0],
        "“not this class”": drawn.crowd.labels[0, NEGATIVE],
        "an unseen one": drawn.test.images[unseen, 0],
        "read rightly": found["uniform"],
        "read as “this”": found["naive"],
    }
    palette = np.array([matplotlib.colors.to_rgb(colour) for colour in CLASSES.values()])
    fig = Figure(figsize=(style.WIDTH, 2.9), layout="constrained")
    axes = fig.subplots(2, 3).ravel()
    for ax, (name, pixels) in zip(axes[[0, 1, 3, 4, 5]], panels.items(), strict=True):
        grey = pixels.is_floating_point()
        ax.imshow(pixels if grey else palette[pixels], cmap="gray" if grey else None, interpolation="nearest")
        ax.set(title=name, xticks=[], yticks=[])
    keys = [Patch(facecolor=colour, label=name) for name, colour in CLASSES.items()]
    axes[2].legend(handles=keys, loc="center", frameon=False)
    axes[2].set_axis_off()
    return fig


if __name__ == "__main__":
    with matplotlib.rc_context(style.STYLE):
        teaser().savefig(STATIC / "teaser.png", dpi=150)
        not_k().savefig(STATIC / "not_k.png", dpi=150)
