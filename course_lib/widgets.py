"""The reader as annotator six: a widget to label blurred digits, its still twin, and the answers kept for later.

The widget's logic is JavaScript (`static/label_digits.js`), so that it lives in JupyterLab and in the page of a built
book alike. What Python does with the answers are plain functions, which run unattended with a stand-in's answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anywidget
import numpy as np
import torch
import torch.nn.functional as F
import traitlets
from matplotlib.figure import Figure
from torch import Tensor

from course_lib import plots
from course_lib.annotations import MISSING, as_images, as_labels
from course_lib.files import keep_json, kept_file, kept_json

Numbers = Tensor | np.ndarray | Sequence
STATIC = Path(__file__).parent / "static"


class LabelDigits(anywidget.AnyWidget):
    """Ask the reader for the label of each picture; `answers` holds them, -1 where there is none yet.

    Arguments: `images` (N, H, H) grey pictures; `index` (N,), their places in the data set, 0..N-1 by default.
    """

    _esm = STATIC / "label_digits.js"
    _css = STATIC / "label_digits.css"
    # Bytes from the browser arrive as a memoryview, which Bytes would refuse in silence
    images = traitlets.Bytes().tag(sync=True, from_json=lambda value, widget: bytes(value))
    answers = traitlets.List(traitlets.Int()).tag(sync=True)

    def __init__(self, images: Numbers, index: Numbers | None = None) -> None:
        self.pictures = _grey(images)  # (N, H, H)
        N = len(self.pictures)
        if self.pictures.shape[1] != self.pictures.shape[2]:
            raise ValueError(f"`images` must be square, (N, H, H); got {tuple(self.pictures.shape)}")
        self.index = _integers(range(N) if index is None else index)
        if len(self.index) != N:
            raise ValueError(f"`index` must say where each of the {N} images came from; got {len(self.index)} numbers")
        ink = (255 * self.pictures / self.pictures.max().clamp(min=1e-9)).round().to(torch.uint8)
        super().__init__(images=ink.numpy().tobytes(), answers=[MISSING] * N)

    @traitlets.validate("answers")
    def _checked(self, proposal: dict) -> list[int]:
        return checked_answers(proposal["value"], len(self.pictures)).tolist()

    def still(self, truth: Numbers | None = None) -> Figure:
        """Draw the pictures with the answers so far, and the truth where given."""
        return still(self.pictures, self.answers, truth)

    def keep(self, path: Path | None = None) -> Path | None:
        """Save the answers for later chapters; return the file, or None where nothing has been answered yet."""
        return save_answers(path, self.index, self.answers) if max(self.answers) > MISSING else None


def blurred(images: Numbers, sigma: float) -> Tensor:
    """Return grey pictures (N, H, W) seen through frosted glass, float32: a Gaussian blur of `sigma` pixels.

    >>> blurred(torch.ones(1, 28, 28), 2.0)[0, 14, 14].round(decimals=4)
    tensor(1.)
    """
    pictures = _grey(images)
    if sigma < 0:
        raise ValueError(f"`sigma` must be at least 0 pixels; got {sigma}")
    if sigma == 0:
        return pictures
    reach = int(np.ceil(3 * sigma))
    weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / sigma) ** 2)
    weights = weights / weights.sum()
    x = F.conv2d(
        pictures[:, None], weights[None, None, :, None], padding=(reach, 0)
    )  # (N, 1, H, W): beyond the edge, 0
    return F.conv2d(x, weights[None, None, None, :], padding=(0, reach))[:, 0]  # (N, H, W)


def stand_in(images: Numbers, train_images: Numbers, train_labels: Numbers) -> Tensor:
    """Return the answers (N,) of a stand-in for the reader: the class whose mean picture is nearest.

    It is a program, not a person. It sees what the reader sees: blur `train_images` as `images` are blurred.
    """
    x, train = _grey(images).flatten(1), _grey(train_images).flatten(1)  # (N, H*W), (M, H*W)
    labels = _integers(train_labels)
    if x.shape[1] != train.shape[1] or len(labels) != len(train):
        raise ValueError(
            f"`train_images` need the pictures' size and a label each; got {x.shape[1]} and {train.shape[1]} pixels, "
            f"{len(train)} training images and {len(labels)} labels"
        )
    classes = labels.unique()
    means = torch.stack([train[labels == c].mean(0) for c in classes])  # (L, H*W)
    return classes[torch.cdist(x, means).argmin(1)]


def still(
    images: Numbers, answers: Numbers, truth: Numbers | None = None, *, title: str = "", whose: str = "you"
) -> Figure:
    """Draw the widget's still twin: the pictures, the answers beneath, and the truth above where given."""
    pictures = _grey(images)
    answers = checked_answers(answers, len(pictures))
    return plots.digits_grid(pictures, answers[:, None], truth, title=title, names=[whose], first=plots.READER)


def checked_answers(answers: Numbers, n_images: int) -> Tensor:
    """Return answers (N,) as int64; raise ValueError unless there are N of them, each a digit or -1."""
    answers = as_labels(answers, 10, what="answers")
    if answers.shape != (n_images,):
        raise ValueError(f"`answers` must hold one answer for each of {n_images} images; got {tuple(answers.shape)}")
    return answers


def answers_or_stand_in(widget_answers: Numbers, stand_in_answers: Numbers) -> tuple[Tensor, str]:
    """Return (answers, "you") as soon as the reader has answered once, else (the stand-in's answers, "the stand-in").

    So a notebook that runs unattended goes on. Pictures that the reader skipped stay -1.
    """
    theirs = as_labels(stand_in_answers, 10, what="stand_in_answers")
    yours = checked_answers(widget_answers, len(theirs))
    return (yours, "you") if (yours != MISSING).any() else (theirs, "the stand-in")


def answers_file() -> Path:
    """Return where answers are kept: annotator-six.json in the folder COURSE_HOME, or else in ./.course."""
    return kept_file("annotator-six.json")


def save_answers(path: Path | str | None, index: Numbers, answers: Numbers) -> Path:
    """Write the answers to the pictures `index` (N,) of the data set, whole or not at all; return the file."""
    index = _integers(index)
    content = {"index": index.tolist(), "answers": checked_answers(answers, len(index)).tolist()}
    return keep_json(Path(path or answers_file()), content, "answers")


def load_answers(path: Path | str | None = None) -> tuple[Tensor, Tensor] | None:
    """Return (index, answers), both (N,) int64, or None where nothing has been saved.

    Raises ValueError, in one line, for a file that is not what `save_answers` writes.
    """

    def understood(content: dict) -> tuple[Tensor, Tensor]:
        index = _integers(content["index"])
        return index, checked_answers(content["answers"], len(index))

    return kept_json(Path(path or answers_file()), understood, "answers", "label")


def _grey(images: Numbers) -> Tensor:
    x = as_images(images)
    if x.ndim != 4 or x.shape[1] != 1:
        raise ValueError(f"`images` must be grey pictures, (N, H, W) or (N, 1, H, W); got {tuple(x.shape)}")
    return x[:, 0].detach().cpu()


def _integers(values: Numbers) -> Tensor:
    x = torch.as_tensor(values)
    if x.ndim != 1 or x.is_floating_point() or (x < 0).any():
        raise ValueError(f"wanted a list of integers of at least 0; got {x.dtype} {tuple(x.shape)}")
    return x.long().cpu()
