"""Draws book/_static/teaser.png, the picture of the README, from the committed results."""

from pathlib import Path

from course_lib import plots
from course_lib.data import shipped
from course_lib.experiments import read

rows = [r for r in read(shipped("results/trace-mnist5k.lesson.json"))["rows"] if r["setting"]["skill"] == 0.45]
figure = plots.bars_with_spread(
    rows,
    "accuracy",
    ["oracle", "trace", "vanilla"],
    title="Five annotators, right 45 % of the time, one label an image",
    xlabel="accuracy on unseen digits",
)
figure.savefig(Path(__file__).parent / "_static/teaser.png", dpi=150)
