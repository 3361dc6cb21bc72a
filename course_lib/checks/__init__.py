"""Checks of the exercises: one file a part. A check calls the reader's function and names the likely mistake.

Right: a line is printed. Wrong: CheckFailed. Untouched stub: NotDone. In a notebook both show as one line, not as a
traceback.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class CheckFailed(AssertionError):
    """The answer is wrong; the message says how."""

    def _render_traceback_(self) -> list[str]:  # IPython shows this in the place of a traceback
        return [f"✗ {self}"]


class NotDone(NotImplementedError):
    """The stub still stands."""

    def _render_traceback_(self) -> list[str]:
        return [f"… {self}"]


def answer(exercise: str, function: Callable, *arguments: object) -> object:
    """Calls the reader's function. NotDone where the stub still raises; any other error becomes one named line."""
    try:
        given = function(*arguments)
    except NotImplementedError:
        raise NotDone(
            f"Exercise {exercise} is not done yet: write your answer in the cell above, then run this one again."
        ) from None
    except CheckFailed:
        raise
    except Exception as error:
        raise CheckFailed(f"Exercise {exercise}: your function stopped with {type(error).__name__}: {error}") from None
    if given is None:
        raise CheckFailed(f"Exercise {exercise}: your function returned None; is there a `return`?")
    return given


def like(given: object, right: Tensor, tolerance: float = 1e-4) -> bool:
    """Is the answer the right numbers in the right shape?"""
    given = torch.as_tensor(given)
    return given.shape == right.shape and bool(torch.allclose(given.double(), right.double(), atol=tolerance))


def judge(exercise: str, given: object, right: Tensor, mistakes: dict[str, Tensor], praise: str) -> None:
    """Compares with the right answer, then with what each likely mistake gives. Raises CheckFailed that names it.

    Arguments: mistakes: sentence -> the answer that this mistake leads to.
    """
    if like(given, right):
        print(f"✓ Exercise {exercise}: {praise}")
        return
    for sentence, wrong in mistakes.items():
        if like(given, wrong):
            raise CheckFailed(f"Exercise {exercise}: {sentence}")
    shape = tuple(torch.as_tensor(given).shape)
    if shape != tuple(right.shape):
        raise CheckFailed(f"Exercise {exercise}: wanted shape {tuple(right.shape)}, got {shape}.")
    got = _short(torch.as_tensor(given))
    raise CheckFailed(f"Exercise {exercise}: right shape, wrong numbers: wanted {_short(right)}, got {got}.")


def _short(numbers: Tensor) -> str:
    flat = [round(x, 3) for x in numbers.flatten().tolist()]
    return f"{flat[:4]}{'...' if len(flat) > 4 else ''}".replace("]...", ", ...]")
