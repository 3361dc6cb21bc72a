"""Two sliders over confusion matrices, alive on a page without Python; each with its numbers as a function and a twin.

What they draw is JavaScript (`static/sliders.js`). The formulas stand here as plain functions too; a test moves the
sliders in a browser and compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import anywidget
import matplotlib
import numpy as np
import torch
import traitlets
from matplotlib.figure import Figure
from torch import Tensor

from course_lib import annotators, plots, style
from course_lib.confusion import check_cm, check_p, dominance
from course_lib.networks import seeded
from course_lib.widgets import STATIC

Numbers = Tensor | np.ndarray | Sequence
KINDS = ("hammer-spammer", "pairwise flip", "neighbour confuser")
"""What an annotator does who does not know: guess uniformly; say the next class; say the one before or after."""


class Said(NamedTuple):
    """An annotator seen through one p: their matrix (L, L), A p (L,), and the margin of dominance along rows."""

    A: Tensor
    said: Tensor
    margin: float


def matrix(kind: str, skill: float, n_classes: int) -> Tensor:
    """Return the matrix (L, L) of an annotator of one of `KINDS`, who knows with probability `skill`.

    >>> matrix("pairwise flip", 0.7, 3)[:, 0]
    tensor([0.7000, 0.3000, 0.0000])
    """
    if kind not in KINDS:
        raise ValueError(f"`kind` must be one of {', '.join(KINDS)}; got {kind!r}")
    if kind == KINDS[0]:
        return annotators.hammer_spammers(1, n_classes, skill, spread=0.0, generator=seeded(0))[0]
    if kind == KINDS[2]:
        return annotators.neighbour_confuser(n_classes, skill)[0]
    annotators.neighbour_confuser(n_classes, skill)  # the same checks of the sizes
    I = torch.eye(n_classes)  # noqa: E741  (the identity is I)
    return skill * I + (1 - skill) * I.roll(1, 0)


def what_is_said(kind: str, skill: float, p: Numbers) -> Said:
    """Return what such an annotator says where the truth has the distribution p (L,): the numbers of the slider."""
    p = check_p(torch.as_tensor(p, dtype=torch.float32), axis=0)
    A = matrix(kind, skill, len(p))
    return Said(A, A @ p, dominance(A[None]))


@matplotlib.rc_context(style.STYLE)
def matrix_still(kind: str, skill: float, p: Numbers, *, title: str = "") -> Figure:
    """Draw the still twin of `MatrixSlider`: the matrix, and below it the bars of p and A p."""
    A, said, margin = what_is_said(kind, skill, p)
    p = torch.as_tensor(p).numpy()
    fig = Figure(figsize=(style.WIDTH, 6.2), layout="constrained")
    style.headline(fig, title or f"{kind}, skill {skill:.2f}: margin {margin:.2f}")
    above, below = fig.subplots(2, 1, height_ratios=(2, 1))
    plots.confusion_matrix(A, above)
    x = np.arange(len(p))
    below.bar(x - 0.2, p, 0.38, color=plots.TRUTH)
    below.bar(x + 0.2, said.numpy(), 0.38, color=plots.ANNOTATORS[0], hatch="//", edgecolor=style.INK)
    for j, (truth, heard) in enumerate(zip(p.tolist(), said.tolist(), strict=True) if len(p) <= 5 else ()):
        below.text(j - 0.2, truth, f"{truth:.2f}".lstrip("0"), ha="center", va="bottom")
        below.text(j + 0.2, heard, f"{heard:.2f}".lstrip("0"), ha="center", va="bottom")
    below.set(xticks=x, ylim=(0, 1.15), title="black: truth p; orange, hatched: says A p")
    bars = "; ".join(f"class {j}: truth {p[j]:.2f}, says {said[j]:.2f}" for j in range(len(p)))
    return style.with_words(fig, f"Bars: {bars}. Margin of dominance {margin:.2f}.")


class MatrixSlider(anywidget.AnyWidget):
    """Move an annotator's skill and kind; see the matrix, what is said of the truths p (L,), and the margin."""

    _esm = STATIC / "sliders.js"
    _css = STATIC / "sliders.css"
    view = traitlets.Unicode("matrix", read_only=True).tag(sync=True)
    p = traitlets.List(traitlets.Float()).tag(sync=True)
    kind = traitlets.Int(0, min=0, max=len(KINDS) - 1).tag(sync=True)
    skill = traitlets.Float(0.0, min=0, max=1).tag(sync=True)

    def __init__(self, p: Numbers, kind: str = KINDS[0], skill: float = 0.45) -> None:
        what_is_said(kind, skill, p)  # its checks
        super().__init__(p=torch.as_tensor(p).tolist(), kind=KINDS.index(kind), skill=skill)

    def numbers(self) -> Said:
        """What the widget shows now."""
        return what_is_said(KINDS[self.kind], self.skill, self.p)

    def still(self) -> Figure:
        """Draw the widget as it stands."""
        return matrix_still(KINDS[self.kind], self.skill, self.p)


class AtLambda(NamedTuple):
    """What was learned at one lambda: the mean matrix (L, L), the accuracy and the CM error."""

    lam: float
    A: Tensor
    accuracy: float
    cm_error: float


def runs_over_lambda(lambdas: Numbers, matrices: Numbers, accuracies: Numbers, errors: Numbers) -> list[AtLambda]:
    """Return the runs one by one: lambdas (X,), mean matrices (X, L, L), accuracies (X,), CM errors (X,), checked."""
    A = check_cm(torch.as_tensor(matrices).detach().cpu().float(), tolerance=1e-3)
    # As written: 0.01 that went through float32 would show its rounding
    columns = [_as_written(values) for values in (lambdas, accuracies, errors)]
    sizes = [len(column) for column in columns]
    if A.ndim != 3 or len(A) == 0 or sizes != [len(A)] * 3:
        raise ValueError(
            "want `lambdas`, `accuracies`, `errors` (X,) and `matrices` (X, L, L); "
            f"got {sizes[0]}, {sizes[1]}, {sizes[2]} and {tuple(A.shape)}"
        )
    return [AtLambda(lam, a, acc, err) for lam, a, acc, err in zip(columns[0], A, *columns[1:], strict=True)]


def _as_written(values: Numbers) -> list[float]:
    return [float(f"{value:.6g}") for value in torch.as_tensor(values).flatten().tolist()]


@matplotlib.rc_context(style.STYLE)
def lambda_still(runs: Sequence[AtLambda], at: Sequence[int] | None = None, *, title: str = "") -> Figure:
    """Draw the still twin of `LambdaSlider`: the matrices of the runs `at` (default all), two side by side."""
    shown = [runs[k] for k in (range(len(runs)) if at is None else at)]
    columns = min(2, len(shown))
    lines = -(-len(shown) // columns)
    fig = Figure(figsize=(style.WIDTH, lines * (style.WIDTH / columns + 0.7) + 0.5), layout="constrained")
    style.headline(fig, title)
    axes = fig.subplots(lines, columns, squeeze=False).ravel()
    for run, ax in zip(shown, axes, strict=False):
        head = f"$\\lambda$ = {run.lam:g}\naccuracy {run.accuracy:.3f}\nCM error {run.cm_error:.3f}"
        style.with_words(fig, f"Lambda {run.lam:g}, accuracy {run.accuracy:.3f}, CM error {run.cm_error:.3f}.")
        plots.confusion_matrix(run.A, ax, title=head)
    for ax in axes[len(shown) :]:
        ax.set_axis_off()
    return fig


class LambdaSlider(anywidget.AnyWidget):
    """Move lambda through runs that were made before: the learned mean matrix, the accuracy and the CM error."""

    _esm = STATIC / "sliders.js"
    _css = STATIC / "sliders.css"
    view = traitlets.Unicode("lambda", read_only=True).tag(sync=True)
    lambdas = traitlets.List(traitlets.Float()).tag(sync=True)
    matrices = traitlets.List().tag(sync=True)
    accuracies = traitlets.List(traitlets.Float()).tag(sync=True)
    errors = traitlets.List(traitlets.Float()).tag(sync=True)
    at = traitlets.Int(0, min=0).tag(sync=True)

    def __init__(self, lambdas: Numbers, matrices: Numbers, accuracies: Numbers, errors: Numbers, at: int = 0) -> None:
        self.runs = runs_over_lambda(lambdas, matrices, accuracies, errors)
        lam, A, accuracy, error = (list(column) for column in zip(*self.runs, strict=True))
        rounded = [np.round(a.double().numpy(), 4).tolist() for a in A]  # a page holds them all
        super().__init__(lambdas=lam, matrices=rounded, accuracies=accuracy, errors=error, at=at)

    @traitlets.validate("at")
    def _checked(self, proposal: dict) -> int:
        if proposal["value"] >= len(self.runs):
            raise ValueError(f"`at` must be one of the {len(self.runs)} runs; got {proposal['value']}")
        return proposal["value"]

    def numbers(self) -> AtLambda:
        """What the widget shows now."""
        return self.runs[self.at]

    def still(self, at: Sequence[int] | None = None, *, title: str = "") -> Figure:
        """Draw the runs `at`; by default the one that the widget shows."""
        return lambda_still(self.runs, [self.at] if at is None else at, title=title)
