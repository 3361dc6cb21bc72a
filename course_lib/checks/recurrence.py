"""Part III: the checks of chapter 14. Each calls the reader's function on a few maps and names the likely mistake."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.annotations import MISSING
from course_lib.checks import CheckFailed, answer, judge
from course_lib.checks.classes import _judge_number, _numbers, _tensor
from course_lib.confusion import label_log_likelihood, posterior
from course_lib.methods.prism import Prism
from course_lib.networks import seeded

B, R, K, SIDE = 2, 3, 3, (2, 4)


def _case() -> tuple[Tensor, Tensor, Tensor]:
    """log matrices (B, R, K, K, H, W), log p (B, K, H, W), and labels (B, R, H, W), a fifth of which are missing."""
    generator = seeded(14)
    log_A = torch.randn(B, R, K, K, *SIDE, generator=generator).double().log_softmax(2)
    log_y = torch.randn(B, K, *SIDE, generator=generator).double().log_softmax(1)
    labels = torch.randint(0, K, (B, R, *SIDE), generator=generator)
    return log_A, log_y, labels.masked_fill(torch.rand(labels.shape, generator=generator) < 0.2, MISSING)


LOG_A, LOG_Y, LABELS = _case()


def _rows(log_A: Tensor, labels: Tensor, axis: int = 2) -> Tensor:
    """log A[said, truth] for every truth: (B, R, K, H, W); class 0's where a label is missing."""
    log_A = log_A if axis == 2 else log_A.transpose(2, 3)
    return torch.take_along_dim(log_A, labels.clamp(min=0)[:, :, None, None], 2)[:, :, 0]


def _evidence(log_A: Tensor, labels: Tensor, axis: int = 2) -> Tensor:
    return torch.where((labels != MISSING)[:, :, None], _rows(log_A, labels, axis), 0).sum(1)


def _graph() -> tuple[Tensor, Tensor, Tensor]:
    """The case, as networks hand it over: with gradients."""
    return LOG_A.clone().requires_grad_(), LOG_Y.clone().requires_grad_(), LABELS.clone()


# ---- 14.1 ------------------------------------------------------------------------------------------------------------

NOT_DETACHED = (
    "right numbers, but a gradient flows into the target: detach it, or the loss can move the target instead."
)
TARGET_MISTAKES = {
    NOT_DETACHED: lambda A, y, z: (y + _evidence(A, z)).softmax(1),
    "the prior is missing: ConP's own answer comes in once.": lambda A, y, z: _evidence(A, z).softmax(1).detach(),
    "those are columns; a label picks the row that was said: axis 2 of `log_A`.": (
        lambda A, y, z: (y + _evidence(A, z, 3)).softmax(1).detach()
    ),
    "-1 was taken for class 0: who was not asked adds 0 for every class.": (
        lambda A, y, z: (y + _rows(A, z).sum(1)).softmax(1).detach()
    ),
    "-1 picked the last class: who was not asked adds 0 for every class.": (
        lambda A, y, z: (y + _rows(A, z % K).sum(1)).softmax(1).detach()
    ),
    "the prior was added as a probability; all terms are logarithms.": (
        lambda A, y, z: (y.exp() + _evidence(A, z)).softmax(1).detach()
    ),
    "that is its logarithm; the target is a map of probabilities.": (
        lambda A, y, z: (y + _evidence(A, z)).log_softmax(1).detach()
    ),
    "it does not sum to 1 over classes: a softmax over axis 1.": lambda A, y, z: (y + _evidence(A, z)).exp().detach(),
    "the evidence was averaged over raters; independent raters add up.": (
        lambda A, y, z: (y + _evidence(A, z) / R).softmax(1).detach()
    ),
    "the prior was added once for each rater; it counts once.": (
        lambda A, y, z: (R * y + _evidence(A, z)).softmax(1).detach()
    ),
}


def next_target(function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """Exercise 14.1: log_A (B, R, K, K, H, W), log_y (B, K, H, W), labels (B, R, H, W) -> p (B, K, H, W), detached."""
    given = _tensor("14.1", answer("14.1", function, *_graph()))
    right = posterior(LOG_A, LOG_Y, LABELS).exp()
    if given.requires_grad and given.shape == right.shape and torch.allclose(given.detach().double(), right, atol=1e-4):
        raise CheckFailed(f"Exercise 14.1: {NOT_DETACHED}")
    mistakes = {sentence: wrong(LOG_A, LOG_Y, LABELS) for sentence, wrong in TARGET_MISTAKES.items()}
    judge("14.1", given.detach(), right, mistakes, "right. Bayes for a target, and nothing can pull at it.")


# ---- 14.2 ------------------------------------------------------------------------------------------------------------


def _said(A: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """log p(label) (B, R, H, W), 0 where it is missing."""
    return label_log_likelihood(A, y, z)


PULLS = "right number, but its gradient reaches ConP: detach `log_y`, the heads teach DivP only."
HEADS_MISTAKES = {
    PULLS: lambda A, y, z: -_said(A, y, z).sum() / (z != MISSING).sum(),
    "missing labels were counted as well: divide by how many labels there are.": lambda A, y, z: (
        -_said(A, y.detach(), z).mean()
    ),
    "-1 was taken for class 0: leave missing labels out.": lambda A, y, z: (
        -(_rows(A, z) + y.detach()[:, None]).logsumexp(2).mean()
    ),
    "-1 picked the last class: leave missing labels out.": lambda A, y, z: (
        -(_rows(A, z % K) + y.detach()[:, None]).logsumexp(2).mean()
    ),
    "that is the sum; the mean over labels is wanted.": lambda A, y, z: -_said(A, y.detach(), z).sum(),
    "a mean over each rater and then over raters; all labels count alike.": lambda A, y, z: (
        -(_said(A, y.detach(), z).sum((0, 2, 3)) / (z != MISSING).sum((0, 2, 3))).mean()
    ),
    "it is negative: a loss is minus the log-likelihood.": lambda A, y, z: (
        _said(A, y.detach(), z).sum() / (z != MISSING).sum()
    ),
    "those are columns; a label picks the row that was said: axis 2 of `log_A`.": lambda A, y, z: (
        -(_rows(A, z, 3) + y.detach()[:, None]).logsumexp(2)[z != MISSING].mean()
    ),
    "the logarithm was averaged over the truth; add probabilities first, then take the logarithm.": lambda A, y, z: (
        -(_rows(A, z) * y.detach().exp()[:, None]).sum(2)[z != MISSING].mean()
    ),
    "ConP's answer did not come in: rows are weighed with it.": lambda A, y, z: (
        -_rows(A, z).logsumexp(2)[z != MISSING].mean()
    ),
    "only the likeliest truth was used; add up over all of them.": lambda A, y, z: (
        -(_rows(A, z) + y.detach()[:, None]).amax(2)[z != MISSING].mean()
    ),
}


def loss_of_heads(function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """Exercise 14.2: log_A (B, R, K, K, H, W), log_y (B, K, H, W), labels (B, R, H, W) -> mean of -log p(label)."""
    log_A, log_y, labels = _graph()
    given = answer("14.2", function, log_A, log_y, labels)
    number = _numbers("14.2", [given.detach() if isinstance(given, Tensor) else given])
    right = _numbers("14.2", [-_said(LOG_A, LOG_Y, LABELS).sum() / (LABELS != MISSING).sum()])
    if torch.allclose(number, right, atol=1e-4):
        if not isinstance(given, Tensor) or not given.requires_grad:
            raise CheckFailed(
                "Exercise 14.2: right number, but no gradient reaches DivP: return a tensor, as it comes."
            )
        given.backward()
        if log_y.grad is not None and log_y.grad.any():
            raise CheckFailed(f"Exercise 14.2: {PULLS}")
    mistakes = {s: _numbers("14.2", [wrong(LOG_A, LOG_Y, LABELS)]) for s, wrong in HEADS_MISTAKES.items()}
    judge("14.2", number, right, mistakes, "right. Each label once, and each teaches the head of its own rater.")


# ---- 14.3 ------------------------------------------------------------------------------------------------------------

MAPS = torch.randn(2, 4, K, 3, 5, generator=seeded(3)).double().log_softmax(2)


def _steps(p: Tensor) -> Tensor:
    return p[:, 1:] - p[:, :-1]


MOVED_MISTAKES = {
    "logarithms were compared; take probabilities.": lambda x: _steps(x).abs().sum(2).mean((0, 2, 3)),
    "the mean over classes was taken; add up over them.": lambda x: _steps(x.exp()).abs().mean((0, 2, 3, 4)),
    "without absolute values the changes of the classes cancel.": lambda x: _steps(x.exp()).sum(2).mean((0, 2, 3)),
    "the differences were squared; absolute values are wanted.": lambda x: (
        _steps(x.exp()).square().sum(2).mean((0, 2, 3))
    ),
    "that is how far each is from Rec0; wanted is the distance to the one before.": lambda x: (
        (x.exp()[:, 1:] - x.exp()[:, :1]).abs().sum(2).mean((0, 2, 3))
    ),
    "pixels were added up; take the mean over pictures and pixels.": lambda x: (
        _steps(x.exp()).abs().sum((2, 3, 4)).mean(0)
    ),
    "pictures were added up; take the mean over pictures and pixels.": lambda x: (
        _steps(x.exp()).abs().sum(2).mean((2, 3)).sum(0)
    ),
    "only the change of the likeliest class was counted: 1 where it changed; the maps move more finely than that.": (
        lambda x: (x.argmax(2)[:, 1:] != x.argmax(2)[:, :-1]).double().mean((0, 2, 3))
    ),
    "half of it: the sum over classes is not divided by 2 here.": lambda x: (
        _steps(x.exp()).abs().sum(2).mean((0, 2, 3)) / 2
    ),
    "that is a number for each picture; take the mean over pictures, too.": lambda x: (
        _steps(x.exp()).abs().sum(2).mean((2, 3))
    ),
}


def moved(function: Callable[[Tensor], Tensor]) -> None:
    """Exercise 14.3: log_p (B, n, K, H, W) -> (n - 1,), the sum over classes, the mean over pictures and pixels."""
    given = _tensor("14.3", answer("14.3", function, MAPS.clone()))
    right = _steps(MAPS.exp()).abs().sum(2).mean((0, 2, 3))
    mistakes = {sentence: wrong(MAPS) for sentence, wrong in MOVED_MISTAKES.items()}
    judge("14.3", given, right, mistakes, "right. Between 0, nothing, and 2, everything.")


# ---- 14.4 ------------------------------------------------------------------------------------------------------------

BEFORE = 3.0
"""An old gradient, which must not count; it differs between raters."""


def _batch() -> tuple[Tensor, ...]:
    generator = seeded(41)
    x = torch.rand(2, 3, 16, 16, generator=generator)
    said = torch.randint(0, K, (2, R, 16, 16), generator=generator)
    said[:, 1], said[:, 2] = 0, 2  # two who always say the same, unlike each other
    return x, said, torch.arange(R).expand(2, R), torch.arange(2)


def _used(*losses: str) -> Prism:
    """A small Prism, heads alike, with an old gradient in its last layer."""
    model = Prism(3, R, K, width=4, n_heads=2, recurrences=1, losses=losses, zeta=30.0, generator=seeded(5))
    weight = model.divp.head.weight
    weight.grad = BEFORE * torch.arange(weight.numel(), dtype=weight.dtype).reshape(weight.shape) / weight.numel()
    return model


def _gradient(model: Prism, batch: tuple[Tensor, ...]) -> Tensor:
    """(R, entries), of the weights of DivP's last layer; old gradients are dropped."""
    model.zero_grad()
    model.loss(batch).backward()
    return model.divp.head.weight.grad.reshape(model.R, -1)


def _dirty(model: Prism, batch: tuple[Tensor, ...]) -> float:
    model.loss(batch).backward()
    g = model.divp.head.weight.grad.reshape(model.R, -1)
    return float((g.amax(0) - g.amin(0)).max())


def _weights(model: Prism, batch: tuple[Tensor, ...]) -> float:
    model.zero_grad()
    model.loss(batch).backward()
    w = model.divp.head.weight.detach().reshape(model.R, -1)
    return float((w.amax(0) - w.amin(0)).max())


def _number_of(change: Callable[[Tensor], Tensor]) -> Callable:
    return lambda model, batch: float(change(_gradient(model, batch)))


TOLD_MISTAKES = {
    "old gradients were counted: `zero_grad` first.": _dirty,
    "those are the weights, all 0 at first; the gradient is wanted.": _weights,
    "that is the largest gradient, not the largest difference between raters.": _number_of(lambda g: g.abs().max()),
    "the difference was taken over all entries, or within raters; take it between raters, for each entry.": _number_of(
        lambda g: g.max() - g.min()
    ),
    "the differences of the entries were averaged; the largest is wanted.": _number_of(
        lambda g: (g.amax(0) - g.amin(0)).mean()
    ),
    "raters come one after the other: unflatten into (R, K K), not (K K, R).": _number_of(
        lambda g: (lambda h: (h.amax(1) - h.amin(1)).max())(g.reshape(K * K, R, -1))
    ),
    "each rater was held against the first only; two others may differ more.": _number_of(
        lambda g: (g - g[:1]).abs().max()
    ),
}


def told_apart(function: Callable[[Prism, tuple], float]) -> None:
    """Exercise 14.4: a Prism with heads alike, a batch -> the largest difference between raters of the gradient."""
    case = lambda: (_used("heads"), _batch())  # noqa: E731
    right = _number_of(lambda g: (g.amax(0) - g.amin(0)).max())(*case())
    praise = "right. The heads' loss knows who is who."

    def on_a_fresh_model(*_: object) -> object:
        return function(*case())

    mistakes = {sentence: (lambda wrong=wrong: wrong(*case())) for sentence, wrong in TOLD_MISTAKES.items()}
    _judge_number("14.4", on_a_fresh_model, (), right, mistakes, praise)
