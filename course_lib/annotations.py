"""The one data container: images, what each annotator said of them, and how many classes there are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

MISSING = -1
"""The value that stands in `labels` where an annotator did not label an item."""


@dataclass(frozen=True, eq=False)
class Annotations:
    """N items and the labels that R annotators gave them.

    Arguments:
        images: (N, C, H, W), or (N, H, W) for grey pictures, or (N, D) for features; uint8 becomes float32 in [0, 1].
            None where there are labels only: features (N, 0), which fusion does without and no network can learn from.
        labels: (N, R) for classes or (N, R, H, W) for masks; integers in 0..L-1, or `missing`.
        n_classes: L. It is never guessed from the labels, since a class that nobody used would be lost.
        truth: (N,) or (N, H, W), where it is known; no method reads it, only metrics do.
        names: R names of annotators; "annotator 1", ... by default.
        identities: False where column r is not one and the same person throughout (anonymous reader slots).
        missing: the code for "no label" in the `labels` that come in; inside it is always MISSING = -1. NaN and None
            count too.
        classes, item_names: L and N names, or none; what was read from files keeps those of the files.
        sources: N entries that say where masks came from, so that fused ones can be written back; or none.

    Raises:
        ValueError: with what was wanted, what came and the usual cause, if shapes, values or counts do not fit.

    >>> data = Annotations(np.zeros((2, 3), np.float32), [[0, 1], [1, -1]], n_classes=2)
    >>> data.n_items, data.n_annotators, data.n_observed
    (2, 2, 3)
    """

    images: Tensor | None
    labels: Tensor
    n_classes: int
    truth: Tensor | None = None
    names: tuple[str, ...] = ()
    identities: bool = True
    missing: int = MISSING
    classes: tuple[str, ...] = ()
    item_names: tuple[str, ...] = ()
    sources: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        put = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731  (the dataclass is frozen)
        put("images", torch.zeros(len(self.labels), 0) if self.images is None else as_images(self.images))
        labels = as_labels(self.labels, self.n_classes, missing=self.missing)
        if labels.ndim not in (2, 4):
            raise ValueError(
                f"`labels` must be (N, R) or (N, R, H, W), one column an annotator; got {tuple(labels.shape)}. "
                "With a single annotator write labels[:, None]."
            )
        if len(labels) != len(self.images):
            raise ValueError(f"{len(self.images)} images but {len(labels)} rows of labels; is `labels` transposed?")
        if not (labels != MISSING).any():
            raise ValueError("`labels` holds no label at all: every entry is the missing code.")
        put("labels", labels)
        put("missing", MISSING)
        if self.truth is not None:
            put("truth", self._checked_truth(labels))
        names = tuple(map(str, self.names)) or tuple(f"annotator {r + 1}" for r in range(labels.shape[1]))
        if len(names) != labels.shape[1]:
            raise ValueError(f"{len(names)} names for R={labels.shape[1]} annotators; is `labels` (N, R)?")
        put("names", names)
        for name, want in (("classes", self.n_classes), ("item_names", len(labels)), ("sources", len(labels))):
            put(name, tuple(getattr(self, name) if name == "sources" else map(str, getattr(self, name))))
            if getattr(self, name) and len(getattr(self, name)) != want:
                raise ValueError(
                    f"`{name}` must be none or {want} beside these labels; got {len(getattr(self, name))}."
                )

    @classmethod
    def from_csv(cls, path: str | Path, **options: Any) -> Annotations:
        """Labels of a table, a row a label or a row an item: see `tables.read_labels` for columns and options."""
        from .tables import read_labels  # a higher floor: the container itself knows nobody

        return read_labels(path, **options)

    @classmethod
    def from_masks(cls, root: str | Path, **options: Any) -> Annotations:
        """Masks of a folder with one folder an annotator: see `mask_folders.read_masks` for files and options."""
        from .mask_folders import read_masks

        return read_masks(root, **options)

    def _checked_truth(self, labels: Tensor) -> Tensor:
        truth = as_labels(self.truth, self.n_classes, what="truth")
        want = labels.shape[:1] + labels.shape[2:]
        if truth.shape != want:
            raise ValueError(
                f"`truth` must be {tuple(want)} beside labels {tuple(labels.shape)}; got {tuple(truth.shape)}. "
                "A column (N, 1), as in MedMNIST files, needs truth[:, 0]."
            )
        return truth

    @property
    def n_items(self) -> int:
        return len(self.labels)

    @property
    def n_annotators(self) -> int:
        return self.labels.shape[1]

    @property
    def observed(self) -> Tensor:
        """(N, R, *S) bool: where somebody said something."""
        return self.labels != MISSING

    @property
    def n_observed(self) -> int:
        return int(self.observed.sum())

    def check_identities(self) -> None:
        """Raises ValueError if what is learned for each annotator would describe nobody: columns are slots."""
        if not self.identities and self.n_annotators > 1:
            raise ValueError(
                "these labels come from anonymous readers (identities=False): column r is a slot, filled now by one "
                "person, now by another, so a matrix for each column describes nobody. Fuse each item on its own "
                "(vote, STAPLE), let all share a matrix (pixel_cms.SharedCM), or learn plausible masks. If the "
                "columns are people after all, say identities=True."
            )

    def check_same_annotators(self, other: Annotations, what: str) -> None:
        """Raises ValueError if named columns of `other` are not these people in this order."""
        named = [data.names != tuple(f"annotator {r + 1}" for r in range(data.n_annotators)) for data in (self, other)]
        if all(named) and self.names != other.names:
            strangers = ", ".join([name for name in other.names if name not in self.names][:8])
            told = f"nothing is known of {strangers}" if strangers else "the order must be the same"
            ours, theirs = (", ".join(data.names[:8]) for data in (self, other))
            raise ValueError(f"`{what}` has the annotators {theirs}, but there are matrices of {ours}; {told}.")

    def items(self, index: Tensor | np.ndarray | slice | list[int]) -> Annotations:
        """The same annotators on the items in `index`."""
        index = index if isinstance(index, slice) else torch.as_tensor(index)
        truth = None if self.truth is None else self.truth[index]
        kept = torch.arange(self.n_items)[index].tolist() if self.item_names or self.sources else []
        pick = lambda values: tuple(values[n] for n in kept) if values else ()  # noqa: E731
        named = {"item_names": pick(self.item_names), "sources": pick(self.sources)}
        return replace(self, images=self.images[index], labels=self.labels[index], truth=truth, **named)

    def with_labels(self, labels: Tensor | np.ndarray, names: tuple[str, ...] = ()) -> Annotations:
        """The same items with other labels, for instance a vote (N, 1) or a sixth annotator's column added."""
        return replace(self, labels=labels, names=names)


def as_images(images: Tensor | np.ndarray | list) -> Tensor:
    """Images or features as float32, with a channel axis: (N, C, H, W) or (N, D).

    Raises: ValueError for fewer than two or more than four axes, for NaN and infinity.
    """
    x = torch.as_tensor(images)
    x = x.float() / 255 if x.dtype == torch.uint8 else x.float()  # float64 does not exist on mps
    if not 2 <= x.ndim <= 4:
        raise ValueError(f"`images` must be (N, C, H, W), (N, H, W) or features (N, D); got {tuple(x.shape)}.")
    if not torch.isfinite(x).all():
        raise ValueError("`images` holds NaN or infinity; a division by a zero standard deviation is the usual cause.")
    return x[:, None] if x.ndim == 3 else x


def as_labels(
    labels: Tensor | np.ndarray | list, n_classes: int, *, missing: int = MISSING, what: str = "labels"
) -> Tensor:
    """Integer labels as int64 with MISSING = -1, checked against the classes 0..L-1.

    Arguments:
        labels: any shape; any integer type, bool, or floats that are whole numbers (NaN and None are missing).
        n_classes: L >= 2.
        missing: the one other value allowed; only that code is skipped.

    Raises: ValueError that lists the values that do not fit and how many there are.

    >>> as_labels([[0, 255]], 2, missing=255)
    tensor([[ 0, -1]])
    """
    if not isinstance(n_classes, int | np.integer) or n_classes < 2:
        raise ValueError(f"`n_classes` must be an integer of at least 2; got {n_classes!r}.")
    y = np.asarray(labels.cpu() if isinstance(labels, Tensor) else labels)
    if y.dtype.kind == "O" and all(v is None or isinstance(v, int | float | np.number) for v in y.flat):
        y = np.array([np.nan if v is None else v for v in y.flat], float).reshape(y.shape)  # a list with None in it
    if y.dtype.kind not in "iufb":
        found = sorted(set(map(str, y.ravel().tolist())))[:6]
        raise ValueError(
            f"`{what}` must be integers 0..{n_classes - 1}; got {y.dtype} such as {found}. "
            "Map names to integers first: np.unique(names, return_inverse=True)."
        )
    gap = np.isnan(y) if y.dtype.kind == "f" else np.zeros(y.shape, bool)
    if y.dtype.kind == "f" and (bad := ~gap & ~(np.isfinite(y) & (y == np.floor(y)))).any():
        raise ValueError(
            f"`{what}` must be whole numbers; {bad.sum()} are not, such as {y[bad][:4].tolist()}. "
            "Probabilities are no labels: take their argmax, or train on several labels."
        )
    missing = MISSING if np.isnan(missing) else missing  # NaN counts anyway
    y = np.where(gap, missing, y).astype(np.int64)
    gap = y == missing
    if (bad := ~gap & ((y < 0) | (y >= n_classes))).any():
        values, counts = np.unique(y[bad], return_counts=True)
        found = dict(zip(values[:6].tolist(), counts[:6].tolist(), strict=True))
        raise ValueError(
            f"`{what}` holds {found} (value: how often), but there are "
            f"L={n_classes} classes, 0..{n_classes - 1}, and {missing} for missing; {_usual_cause(values, n_classes)}"
        )
    return torch.from_numpy(np.where(gap, MISSING, y))


def spoken(labels: Tensor) -> Tensor:
    """Where somebody said something. Raises ValueError for labels below 0 that are not MISSING: they are no class."""
    if (odd := labels[(labels < 0) & (labels != MISSING)]).numel():
        raise ValueError(f"`labels` holds {odd.unique().tolist()}, {odd.numel()} in all; only {MISSING} is no label.")
    return labels != MISSING


def _usual_cause(values: np.ndarray, n_classes: int) -> str:
    if 255 in values:
        return "is 255 your code for missing (missing=255), or are these masks stored as 0 and 255 (divide by 255)?"
    if n_classes in values and len(values) == 1:
        return "did you forget to shift labels that start at 1?"
    return "is `n_classes` right, or is a negative code for missing not declared (missing=...)?"
