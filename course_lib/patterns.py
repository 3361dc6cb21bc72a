"""The EM under every fusion, on patterns of labels instead of items.

A pattern is what all annotators said of an item, a row of (U, R). EM treats items of one pattern alike, so it needs
each pattern once, with the number of items in each of G groups that have matrices of their own. Both of its steps are
then one product with a sparse table of who says what: `confusion.count_matrices` and `confusion.posterior`, for all
groups at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from .annotations import MISSING

DIRECT = 4096
"""Up to so many thinkable patterns, they are found by counting; beyond, by sorting."""

PLAIN = 30
"""After so many plain steps, which settle nearly everything, EM begins to leap."""


class Patterns:
    """labels (N, R, *S) -> table (U, R), index (N, *S) into it, said (R L, U): sparse, 1 where a pattern's r says i.

    people: R integers; columns of one number are readings by one person, whose rows of `said` are one.
    """

    def __init__(self, labels: Tensor, n_classes: int, people: Sequence[int] | None = None) -> None:
        R, self.n_classes, base = labels.shape[1], n_classes, n_classes + int(labels.min() == MISSING)
        y = labels.numpy()
        if base**R <= DIRECT:
            dtype = np.uint8 if base**R <= 256 else np.int16
            self.index = np.zeros((len(y), *y.shape[2:]), dtype)
            for r in range(R):  # digits of a number to the base of L, or L + 1 with gaps
                self.index = self.index * dtype(base) + (y[:, r] + (base - n_classes)).astype(dtype)
            digits = np.arange(base**R)[:, None] // base ** np.arange(R)[::-1] % base
            self.table = digits - (base - n_classes)  # (U, R)
            there = torch.bincount(torch.from_numpy(self.index.ravel()), minlength=base**R).numpy() > 0
            if not there.all():
                self.table, self.index = self.table[there], (there.cumsum() - 1).astype(dtype)[self.index]
        else:  # by sorting; where even a number for each is too long, a crowd's, no two items are alike anyway
            rows = np.moveaxis(y, 1, -1).reshape(-1, R)  # (N x pixels, R)
            short = base**R < 2**62
            code = (rows.astype(np.int64) + 1) @ base ** np.arange(R) if short else np.arange(len(rows))
            _, first, index = np.unique(code, return_index=True, return_inverse=True)
            self.table, self.index = rows[first].astype(np.int64, copy=False), index.reshape(len(y), *y.shape[2:])
        self.U, self.heard = len(self.table), (self.table != MISSING).sum(1)  # (U,): labels in a pattern
        people = range(R) if people is None else people
        self.row_of = np.unique(people, return_inverse=True)[1]  # (R,): whose matrix a column has
        u, r = np.nonzero(self.table != MISSING)
        place = self.row_of[r] * n_classes + self.table[u, r], u
        self.said = csr_array((np.ones(len(u)), place), shape=((self.row_of.max() + 1) * n_classes, self.U))

    def counts(self, *, each: bool = False, where: Tensor | None = None) -> np.ndarray:
        """(U, G): how many items have a pattern, in all (G = 1) or in each of N; only where (N, *S) is True."""
        group = np.arange(len(self.index)) if each else np.zeros(len(self.index), int)
        group = group.reshape(-1, *[1] * (self.index.ndim - 1))
        return self._histogram(group, int(group[-1].max()) + 1, where)

    def block_counts(self, side: int) -> np.ndarray:
        """(U, N, h, w): in each block of side x side pixels."""
        N, H, W = self.index.shape
        h, w = -(-H // side), -(-W // side)
        block = (np.arange(H) // side)[:, None] * w + np.arange(W) // side  # (H, W)
        group = np.arange(N)[:, None, None] * (h * w) + block
        return self._histogram(group, N * h * w).reshape(self.U, N, h, w)

    def _histogram(self, group: np.ndarray, G: int, where: Tensor | None = None) -> np.ndarray:
        key = self.index if G == 1 else group * self.U + self.index
        key = torch.from_numpy(key.ravel() if where is None else key[where.numpy()])
        return torch.bincount(key, minlength=G * self.U).reshape(G, self.U).T.double().numpy()

    def look_up(self, W: np.ndarray) -> Tensor:
        """W (U, G|1, L) of each pattern -> float32 (N, L, H, W) of each pixel."""
        table = W.transpose(1, 2, 0).astype(np.float32)  # (G, L, U)
        p = np.empty((len(self.index), table.shape[1], *self.index.shape[1:]), np.float32)
        for n, where in enumerate(self.index):
            for k, column in enumerate(table[n % len(table)]):
                np.take(column, where, out=p[n, k], mode="clip")  # "clip" writes straight into `out`
        return torch.from_numpy(p)

    def blend(self, W: np.ndarray, side: int) -> Tensor:
        """W (U, N, h, w, L) at the middles of blocks -> float32 (N, L, H, W), bilinear between them."""
        (y0, y1, fy), (x0, x1, fx) = (_between(n, side) for n in self.index.shape[1:])
        item, p = np.arange(len(self.index))[:, None, None], 0
        for y, wy in ((y0, 1 - fy), (y1, fy)):
            for x, wx in ((x0, 1 - fx), (x1, fx)):
                p = p + (wy[:, None] * wx)[..., None] * W[self.index, item, y[:, None], x]  # (N, H, W, L)
        return torch.from_numpy(p.astype(np.float32)).movedim(-1, 1).contiguous()

    def n_labels(self) -> Tensor:
        """(N, *S): how many labels each item had."""
        if (self.heard == self.heard[0]).all():
            return torch.tensor(int(self.heard[0])).expand(self.index.shape)
        return torch.from_numpy(self.heard[self.index])


def _between(pixels: int, side: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each pixel the block before and after it, and how far it is on the way."""
    last = -(-pixels // side) - 1
    place = ((np.arange(pixels) + 0.5) / side - 0.5).clip(0, last)
    before = place.astype(int)
    return before, np.minimum(before + 1, last), place - before


class EM:
    """W (U, G, L): p(truth | pattern) in each group; A (people, L, G, L), said before truth; prior (G, L).

    counts (U, G). smoothing: added to each count of the M-step, a number or as A. keep_prior: the shares of the labels
    stay the prior (STAPLE); else the prior is counted too (Dawid-Skene). start: as W; the mean label by default.
    """

    def __init__(
        self,
        patterns: Patterns,
        counts: np.ndarray,
        *,
        smoothing: float | np.ndarray,
        keep_prior: bool = False,
        start: np.ndarray | None = None,
    ) -> None:
        self.patterns, self.smoothing, self.keep_prior = patterns, smoothing, keep_prior
        self.counts = np.where(patterns.heard[:, None] > 0, counts, 0)  # an item without a label counts for nothing
        there, L = patterns.said.tocoo(), patterns.n_classes
        place = there.col.astype(np.int64) * L + there.row % L
        said = np.bincount(place, weights=there.data, minlength=patterns.U * L).reshape(patterns.U, L)
        heard, met = patterns.heard[:, None], self.counts.sum(1) @ said
        self.mean = np.where(heard > 0, said / np.maximum(heard, 1), met / max(met.sum(), 1))  # (U, L)
        self.never = np.where((self.mean > 0).any(0), 0, -np.inf)  # (L,): log of no chance for what nobody ever said
        self.W = np.broadcast_to(self.mean[:, None], (patterns.U, counts.shape[1], patterns.n_classes)).copy()
        self.prior = self._shares(self.W * self.counts[:, :, None], self.counts)
        if start is not None:
            self.W = start.copy()
        self.A = self._count(self.W * self.counts[:, :, None], self.smoothing)

    @property
    def several(self) -> np.ndarray:
        """(G,) bool: groups in which some item has two labels; elsewhere nothing shows who is reliable."""
        return ((self.counts > 0) & (self.patterns.heard[:, None] > 1)).any(0)

    def run(self, max_iterations: int, tolerance: float) -> tuple[bool, int, float]:
        """Until no W moves by more than `tolerance`; or, on a flat ridge where it could wander for ever, until a leap
        gains no more than ten times that in likelihood (nats of all items). Returns: settled, steps taken, last move.
        """
        several = self.several  # where the start already explains all labels, smoothing would only pull to one class
        active, change, iteration = np.flatnonzero(several), np.zeros(len(several)), 0
        change[active] = np.inf
        while iteration < max_iterations and active.size:
            g = slice(None) if active.size == len(several) else active
            far = iteration >= PLAIN and iteration + 3 <= max_iterations
            moved, gain = self._leap(g) if far else (self._step(g), np.inf)
            change[active] = moved
            wanders = iteration >= 10 * PLAIN and tolerance > 0
            on = (moved > tolerance) & (gain > 10 * tolerance) if wanders else moved > tolerance
            active, iteration = active[on], iteration + (3 if far else 1)
        return not active.size, iteration, float(change.max())

    def _step(self, g: slice | np.ndarray) -> np.ndarray:
        """One step of EM for the groups g. Returns: (g,) the furthest that a W moved."""
        W, A, prior, _ = self._stepped(self.W[:, g], g)
        moved = self._moved(self.W[:, g], W, g)
        self.W[:, g], self.A[:, :, g], self.prior[g] = W, A, prior
        return moved

    def _leap(self, g: slice | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Two steps, and a third from where they point to (SQUAREM; Varadhan & Roland 2008), if likelihood gains by it.

        For the slow ends of EM, where thousands of steps each go a thousandth of what is left. Returns: (g,) how far W
        moves in a step, and how much likelihood all three gained.
        """
        W0 = self.W[:, g]
        W1, _, _, score1 = self._stepped(W0, g)
        second = W2, _, _, score2 = self._stepped(W1, g)
        r, v = W1 - W0, W2 - 2 * W1 + W0
        size = lambda x: np.sqrt((x**2).sum((0, 2)))  # noqa: E731  (g,)
        length = np.maximum(size(r) / np.maximum(size(v), 1e-300), 1)[:, None]
        ahead = np.clip(W0 + 2 * length * r + length**2 * v, 0, 1) + 1e-30 * np.exp(self.never)
        third = self._stepped(ahead / ahead.sum(2, keepdims=True), g)
        gained, moved = third[3] >= score2, self._moved(W0, W1, g)  # (g,)
        pick = lambda i, where: np.where(where, third[i], second[i])  # noqa: E731
        self.W[:, g], self.A[:, :, g] = pick(0, gained[:, None]), pick(1, gained[:, None])
        self.prior[g] = pick(2, gained[:, None])
        return moved, np.maximum(score2, third[3]) - score1

    def _moved(self, old: np.ndarray, new: np.ndarray, g: slice | np.ndarray) -> np.ndarray:
        return np.where(self.counts[:, g, None] > 0, np.abs(new - old), 0).max((0, 2))

    def _stepped(self, W: np.ndarray, g: slice | np.ndarray) -> tuple[np.ndarray, ...]:
        """M-step, then E-step: W, A, prior of the groups g, and the log-likelihood of A with that of `smoothing`."""
        counts, smoothing = self.counts[:, g], self.smoothing
        smoothing = smoothing if np.isscalar(smoothing) else smoothing[:, :, g]
        weighted = W * counts[:, :, None]  # (U, g, L)
        A = self._count(weighted, smoothing)
        prior = self.prior[g] if self.keep_prior else self._shares(weighted, counts)
        log = lambda x: np.log(np.maximum(x, 1e-30))  # noqa: E731  (as confusion.log)
        log_A = log(A)
        log_W = (self.patterns.said.T @ log_A.reshape(-1, prior.size)).reshape(-1, *prior.shape)
        log_W += log(prior) + self.never
        most = log_W.max(2, keepdims=True)
        W = np.exp(log_W - most)  # (U, g, L)
        total = W.sum(2, keepdims=True)
        score = (counts * (most + np.log(total))[:, :, 0]).sum(0) + (smoothing * log_A).sum((0, 1, 3))  # (g,)
        return W / total, A, prior, score

    def _count(self, weighted: np.ndarray, smoothing: float | np.ndarray) -> np.ndarray:
        """The M-step. A column that nothing was counted for is the identity's."""
        U, G, L = weighted.shape
        counted = (self.patterns.said @ weighted.reshape(U, G * L)).reshape(-1, L, G, L) + smoothing
        total = counted.sum(1, keepdims=True)  # (people, 1, G, L)
        return np.where(total > 0, counted / np.where(total > 0, total, 1), np.eye(L)[:, None])

    @staticmethod
    def _shares(weighted: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return weighted.sum(0) / np.maximum(counts.sum(0), 1e-300)[:, None]  # (G, L)

    def matrices(self) -> Tensor:
        """(G, R, L, L): one a column of the labels."""
        return torch.from_numpy(self.A[self.patterns.row_of].transpose(2, 0, 1, 3).copy())

    def doubts(self, images: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """(G,) bool twice: W contradicts the vote on most items in dispute; most annotators are worse than guessing.

        images: so many images, each of which the groups are windows of; then one answer for each image.
        """
        ranked = np.sort(self.mean, 1)
        disputed = (ranked[:, -1] < 1) & (ranked[:, -1] > ranked[:, -2]) & (self.patterns.heard > 0)  # (U,), no ties
        against = self.W.argmax(2) != self.mean.argmax(1)[:, None]  # (U, G)
        n = self.counts * disputed[:, None]
        worse = np.trace(self.A, axis1=1, axis2=3) < 1 - 1e-9  # (people, G); who never spoke has 1, up to rounding
        each = lambda x: x.reshape(len(x), images or x.shape[1], -1)  # noqa: E731
        return each(n * against).sum((0, 2)) > each(n).sum((0, 2)) / 2, each(worse).mean((0, 2)) > 0.5


def warn_doubtful(name: str, doubts: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
    """Warns of an answer that `EM.doubts`, given once for each part of the images, finds hard to believe."""
    what, look = ("items", "labels") if name == "Dawid-Skene" else ("pixels", "masks")
    said = (f"contradicts the vote on most {what} in dispute", "finds most annotators worse than guessing")
    for doubt, told in zip(map(np.concatenate, zip(*doubts, strict=True)), said, strict=True):
        of = "" if len(doubt) == 1 else f" in {doubt.sum()} of {len(doubt)} images"
        if doubt.any():
            warnings.warn(f"{name} {told}{of}: look at the {look} before you believe it.", stacklevel=3)
