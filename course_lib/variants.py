"""Other numbers for an exercise: arguments of the same kind as those that its check uses, drawn from a seed.

Probabilities still sum to 1, a symmetric table stays symmetric, sorted numbers stay sorted, shares stay below 1, and
labels stay labels: they change their places, never their range.
"""

import copy

import numpy as np
import torch
from torch import Tensor

PERMUTED = (
    3  # up to this strength; above, places are drawn with replacement, which also changes what does not mind order
)
CLOSE = 1e-4


def varied(call: tuple, rng: np.random.Generator, strength: int = 1) -> tuple:
    """Other arguments in the place of those of `call`; a larger `strength`, 1 to 6, moves them further."""
    other = tuple(_vary(value, rng, strength) for value in copied(call))
    if not all(same(a, b) for a, b in zip(call, other, strict=True)):
        return other
    more = int(rng.integers(1, 4))  # counts alone: all grow alike, so that a part never outgrows its whole
    return tuple(v + more if type(v) is int else v for v in other)


def _vary(value: object, rng: np.random.Generator, strength: int) -> object:
    if isinstance(value, torch.Generator):
        return torch.Generator().manual_seed(int(rng.integers(2**31)))
    if isinstance(value, float):
        return value * rng.uniform(1 - 0.15 * strength, 1)
    if isinstance(value, np.ndarray):
        return _vary(torch.as_tensor(value), rng, strength).numpy()
    if isinstance(value, Tensor) and value.ndim:
        whole = not value.is_floating_point() or bool((value == value.round()).all())
        return _placed(value, rng, strength) if whole else _moved(value.detach(), rng, strength)
    if type(value) in (tuple, list) and any(isinstance(v, Tensor | np.ndarray) for v in value):
        return type(value)(_vary(v, rng, strength) for v in value)
    if type(value) is list and value and not isinstance(value[0], int | float):
        rows = [value[i] for i in rng.permutation(len(value))]
        return [_vary(row, rng, strength) if isinstance(row, dict) else row for row in rows]
    if isinstance(value, dict):  # a run of an experiment: its words and seeds stay, its fractions do not
        return {key: _vary(entry, rng, strength) for key, entry in value.items()}
    return value


def _placed(x: Tensor, rng: np.random.Generator, strength: int) -> Tensor:
    """The same entries in other places along the first or the second axis."""
    axis = int(rng.integers(min(x.ndim, 2)))
    return x.index_select(axis, torch.as_tensor(rng.choice(x.shape[axis], x.shape[axis], replace=strength > PERMUTED)))


def _moved(x: Tensor, rng: np.random.Generator, strength: int) -> Tensor:
    """Other fractions, under whatever sum, symmetry, order and bounds the given ones keep."""
    noise = 0.1 * strength * torch.as_tensor(rng.normal(size=tuple(x.shape)), dtype=x.dtype)
    if (axis := _axis(x.logsumexp, x, 0.0)) is not None:
        return (x + noise).log_softmax(axis)
    y = x * noise.exp()
    if (axis := _axis(x.sum, x, 1.0)) is not None:
        y = y / y.sum(axis, keepdim=True)
    elif abs(float(x.sum()) - 1) < CLOSE:
        y = y / y.sum()
    elif x.ndim == 2 and x.shape[0] == x.shape[1] and torch.equal(x, x.T):
        y = (y + y.T) / 2
    elif x.ndim == 1 and torch.equal(x, x.sort().values):
        return y.sort().values
    y = y.clamp(0, 1) if x.min() >= 0 and x.max() <= 1 else y
    return _placed(y, rng, 1) if x.ndim == 1 else y


def _axis(total, x: Tensor, wanted: float) -> int | None:
    """The axis along which x is normalised: said, the last but one of a stack of matrices, before all others."""
    axes = ([x.ndim - 2] if x.ndim > 2 else []) + list(reversed(range(x.ndim)))
    return next((a for a in axes if bool((total(a) - wanted).abs().max() < CLOSE)), None)


def copied(value: object) -> object:
    """A copy that a called function may spoil; a gradient is not carried along, the wish for one is."""
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, torch.Generator):
        twin = torch.Generator()
        twin.set_state(value.get_state())
        return twin
    if type(value) in (tuple, list):
        return type(value)(copied(v) for v in value)
    return copy.deepcopy(value)


def flat(x: object) -> Tensor:
    """All numbers of an answer in one row, (n,). Raises TypeError, ValueError or RuntimeError where it holds others."""
    if type(x) in (tuple, list):
        return torch.cat([flat(v) for v in x]) if x else torch.zeros(0, dtype=torch.float64)
    return torch.as_tensor(x).detach().double().flatten()


def same(a: object, b: object) -> bool:
    """Are two answers the same numbers, whatever holds them?"""
    try:
        a, b = flat(a), flat(b)
        return a.shape == b.shape and bool(torch.allclose(a, b, rtol=1e-3, atol=CLOSE, equal_nan=True))
    except (TypeError, ValueError, RuntimeError):
        return type(a) is type(b) and bool(a == b)


def finite(x: object) -> bool:
    """Is every number of an answer finite?"""
    try:
        return bool(flat(x).isfinite().all())
    except (TypeError, ValueError, RuntimeError):
        return x is not None


def short(x: object) -> str:
    """An answer in a few words, for a message."""
    try:
        numbers = [round(v, 3) for v in flat(x).tolist()]
        return f"{numbers[:3]}".replace("]", ", ...]" if len(numbers) > 3 else "]")
    except (TypeError, ValueError, RuntimeError):
        return f"a {type(x).__name__}"
