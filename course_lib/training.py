"""One loop trains every method, and many runs of it at once.

A method is an `nn.Module` with `log_p(x)` -> (B, L, *S), `log_A(x)` -> broadcastable to (B, R, L, L, *S) or None, and
`loss(batch)` -> scalar for batch = (x, labels, who, index), averaged over observed labels; it may have
`param_groups()` -> [{"params": [names], "lr": ..., "frozen_epochs": ...}]. Labels are (B, G, *S), of annotators who
(B, G): as many as the item with the most labels has. Data are checked once, before; `loss` checks no values.
"""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from .annotations import Annotations, as_images
from .diagnose import collapse_warnings, identifiability_warnings
from .networks import seeded
from .runs import Keeper, Labelled, Runs, peak_mb, read_tensors, settings, threads_for, write_tensors

SIZES = ("ci", "lesson", "paper")


def size(name: str | None = None) -> str:
    """The size of this run: `name`, else $COURSE_SIZE, else "lesson"."""
    name = name or os.environ.get("COURSE_SIZE") or "lesson"
    if name not in SIZES:
        raise ValueError(f"the size (COURSE_SIZE) must be one of {', '.join(SIZES)}; got {name!r}.")
    return name


def sized(name: str | None = None, **columns: tuple) -> SimpleNamespace:
    """Picks one column of a table whose rows are name=(ci, lesson, paper).

    >>> sized("ci", epochs=(2, 20, 200)).epochs
    2
    """
    column = SIZES.index(size(name))
    return SimpleNamespace(**{key: values[column] for key, values in columns.items()})


def pick_device(name: str | None = None) -> torch.device:
    """`name`, else $COURSE_DEVICE, else "auto": cuda where there is one, else mps, else cpu.

    Raises: ValueError for a device that this machine does not have.
    """
    name = name or os.environ.get("COURSE_DEVICE") or "auto"
    here = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, there in here.items() if there)
    if not here.get(name.split(":")[0], False):
        raise ValueError(
            f"device {name!r} is not on this machine, which has {[k for k in here if here[k]]} (COURSE_DEVICE)."
        )
    return torch.device(name)


@dataclass(frozen=True, eq=False)
class History:
    """What a fit did: loss and validation (epochs, K), the epoch whose weights were kept (K,), and its cost."""

    loss: Tensor
    validation: Tensor | None
    kept_epoch: Tensor
    steps: int
    device: str
    seconds: float
    peak_mb: float

    def __str__(self) -> str:
        epochs, K = self.loss.shape
        return (
            f"{K} run{'s' * (K > 1)} x {epochs} epochs ({self.steps:,} steps) on {self.device}: {self.seconds:.1f} s, "
            f"peak memory {self.peak_mb:,.0f} MB, mean loss {self.loss[0].mean():.3f} -> {self.loss[-1].mean():.3f}"
        )


def fit(
    methods: nn.Module | Sequence[nn.Module],
    data: Annotations | Sequence[Annotations],
    *,
    epochs: int = 20,
    batch_size: int = 64,
    lr: float = 1e-3,
    settle: int = 0,
    seeds: int | Sequence[int] = 0,
    validation: Annotations | Sequence[Annotations] | None = None,
    device: str | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = True,
) -> History:
    """Trains one method, or K of one kind at once, in place, with Adam.

    K runs are one stacked model: parameters get a leading K axis and the loss is vmapped, so that ten small networks
    cost little more than one. One run is the case of one, and gives the numbers that it gives in a stack (up to
    rounding).

    Arguments:
        methods: one, or K that differ only in numbers (weights, lambda, matrices).
        data: one for all, or K that share the images tensor and differ in labels.
        settle: so many of the last epochs at a tenth of every rate, so that no run ends in the middle of a large step.
        seeds: order of the items, for all runs or K of them; drawn on the CPU.
        validation: keeps, for each run, the weights of the epoch with the lowest `loss` on it (early stopping on noisy
            labels); without it, the last epoch's.
        checkpoint: a file written after each epoch; if it is there, training goes on from it and ends with the same
        weights.
    Raises: ValueError before training if method and data do not fit; FloatingPointError if a loss is no longer finite.
    Warns after a single run whose matrices should not be trusted yet (`diagnose.identifiability_warnings`).
    """
    methods = [methods] if isinstance(methods, nn.Module) else list(methods)
    K, device = len(methods), pick_device(device)
    if K == 0:
        raise ValueError("`methods` is empty; give one method, or a list of at least one.")
    train = Labelled(data, K, device, "data")
    held_out = None if validation is None else Labelled(validation, K, device, "validation")
    if epochs < 1 or batch_size < 1 or not 0 <= settle <= epochs:
        wanted = "epochs >= 1, batch_size >= 1 and settle of 0 to epochs"
        raise ValueError(f"wanted {wanted}; got {epochs}, {batch_size} and {settle}.")
    seeds = [int(seeds) + k for k in range(K)] if isinstance(seeds, int | np.integer) else [int(s) for s in seeds]
    if len(seeds) != K:
        raise ValueError(f"{len(seeds)} seeds for K={K} methods; give one number, or one for each.")
    for labelled in (train, *([held_out] if held_out else [])):
        for method, its_data in zip(methods, labelled.data, strict=True):
            check_fit(method, its_data)
    for ours, theirs in zip(train.data, held_out.data if held_out else (), strict=False):
        ours.check_same_annotators(theirs, "validation")
    runs = Runs(methods, device)
    optimiser, frozen = _optimiser(methods[0], runs, lr)
    rates = [group["lr"] for group in optimiser.param_groups]
    keeper = Keeper(
        runs,
        optimiser,
        checkpoint,
        _fingerprint(methods, train, held_out, seeds, batch_size, lr, epochs - settle if settle else None),
    )
    batch_size = min(batch_size, train.N)
    steps = train.N // batch_size  # the rest waits for the next epoch's order: all batches have one shape
    start = time.perf_counter()
    cards = [device] if device.type == "cuda" else []
    with threads_for(methods, device), torch.random.fork_rng(devices=cards):
        quiet = not progress or bool(os.environ.get("TQDM_DISABLE"))  # which a notebook bar ignores
        name = f"{K} run{'s' * (K > 1)} on {device}"
        bar = tqdm(range(keeper.epoch, epochs), leave=False, desc=name, disable=quiet)
        for epoch in bar:
            order = torch.stack(
                [torch.randperm(train.N, generator=seeded(s * 1_000_003 + epoch)) for s in seeds]
            )  # (K, N)
            order = order[:, : steps * batch_size].view(K, steps, batch_size).to(device)
            total = torch.zeros(K, device=device)
            runs.train()
            for group, rate in zip(optimiser.param_groups, rates, strict=True):
                group["lr"] = rate / 10 if epoch >= epochs - settle else rate
            torch.manual_seed(seeds[0] * 1_000_003 + epoch)  # for dropout and the like, resumed or not
            for step in range(steps):
                total += runs.gradients(train.batch(order[:, step]))
                for parameter in frozen.get(epoch, ()):  # no gradient, no Adam moments: as if not there yet
                    parameter.grad = None
                optimiser.step()
            if not torch.isfinite(total).all():
                bad = (~torch.isfinite(total)).nonzero().flatten().tolist()
                raise FloatingPointError(
                    f"the loss of run(s) {bad} is not finite after epoch {epoch}; is `lr`={lr} too large?"
                )
            keeper.end_of_epoch(epoch, total / steps, None if held_out is None else held_out.mean_loss(runs))
            bar.set_postfix(loss=f"{float(total.mean()) / steps:.3f}")
    keeper.restore_best()
    runs.unstack()
    warn_of(methods, train.data)
    seconds, losses = time.perf_counter() - start, torch.stack(keeper.losses)
    checks = torch.stack(keeper.validations) if keeper.validations else None
    return History(losses, checks, keeper.kept_epoch, steps * len(losses), str(device), seconds, peak_mb(device))


def warn_of(methods: list[nn.Module], data: Sequence[Annotations]) -> None:
    """Warns a reader's own run, one method, of matrices not to be trusted yet; experiments judge by many draws."""
    sentences = []
    if len(methods) == 1 and hasattr(methods[0], "confusion"):
        sentences = identifiability_warnings(data[0], methods[0].confusion())
    elif len(methods) == 1 and data[0].labels.ndim == 4:
        few = data[0].items(slice(0, 32))
        with torch.no_grad():
            log_A = methods[0].log_A(few.images.to(next(methods[0].parameters()).device))
        if log_A is not None:
            sentences = collapse_warnings(predict_log_p(methods[0], few.images), log_A.cpu(), few.labels)
    for sentence in sentences:
        warnings.warn(sentence, stacklevel=3)


def check_fit(method: nn.Module, data: Annotations) -> None:
    """Asks the method about one image: do classes, sizes and annotators fit the data? One clear ValueError if not."""
    if not data.images.numel():
        raise ValueError("these are labels without images, and a network has nothing to look at; fuse them instead.")
    want, mode = (1, data.n_classes, *data.labels.shape[2:]), method.training
    method.eval()  # asking must not change running averages
    with torch.no_grad():
        x = data.images[:1].to(next(method.parameters()).device)
        got = tuple(_ask(method, x).shape)
        log_A = method.log_A(x)
    method.train(mode)
    if got != want:
        raise ValueError(
            f"log_p must be (B, L, *S) = {want} for one image; the network gives {got}. Is `n_classes` right?"
        )
    if log_A is not None and log_A.shape[1:4] != (data.n_annotators, data.n_classes, data.n_classes):
        raise ValueError(
            f"the data hold R={data.n_annotators} annotators and L={data.n_classes} classes; the method's matrices are "
            f"{tuple(log_A.shape[1:4])} (R, L, L)."
        )
    if log_A is not None and not getattr(method, "exchangeable", False):
        data.check_identities()
    if log_A is not None and log_A.ndim != data.labels.ndim + 2:
        raise ValueError(f"labels {tuple(data.labels.shape)} need matrices for as many axes; got {tuple(log_A.shape)}.")


def predict_log_p(method: nn.Module, images: Tensor | np.ndarray, *, batch_size: int = 1024) -> Tensor:
    """log p(truth | image) for unseen images: (N, L, *S) on the CPU."""
    method.eval()
    device = next(method.parameters()).device
    with torch.no_grad():
        return torch.cat([_ask(method, x.to(device)).cpu() for x in as_images(images).split(batch_size)])


def predict(method: nn.Module, images: Tensor | np.ndarray) -> Tensor:
    """The most probable class of each unseen image (or pixel): (N, *S) int64."""
    return predict_log_p(method, images).argmax(1)


def save(method: nn.Module, path: str | Path) -> None:
    """Writes the method's tensors, from the CPU, whole or not at all."""
    write_tensors({name: tensor.cpu() for name, tensor in method.state_dict().items()}, Path(path))


def load(method: nn.Module, path: str | Path) -> nn.Module:
    """Reads tensors that `save` wrote into an equally built method, and returns it.

    Raises: FileNotFoundError; ValueError if the file is no such file, or was written by a differently built method.
    """
    state, own = read_tensors(Path(path)), method.state_dict()
    if not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{path} is a checkpoint of `fit`, not a saved method; call fit with it to go on, then save.")
    shapes = lambda tensors: {name: tuple(t.shape) for name, t in tensors.items()}  # noqa: E731
    if shapes(state) != shapes(own):
        odd = sorted(set(shapes(state).items()) ^ set(shapes(own).items()))
        raise ValueError(f"{path} was saved from a differently built method; they differ in {odd[:4]}.")
    method.load_state_dict(state)
    return method


def _ask(method: nn.Module, x: Tensor) -> Tensor:
    try:
        return method.log_p(x)
    except RuntimeError as error:
        cause = str(error).splitlines()[0]
        raise ValueError(
            f"the network refuses images of shape {tuple(x.shape[1:])} ({cause}). "
            "Was it built for another size or number of channels?"
        ) from None


def _optimiser(method: nn.Module, runs: Runs, lr: float) -> tuple[torch.optim.Optimizer, dict[int, list[nn.Parameter]]]:
    """Adam with the method's own groups, and epoch -> parameters that are still frozen in it."""
    groups = method.param_groups() if hasattr(method, "param_groups") else []
    rest = dict(runs.parameters)
    built, frozen = [], {}
    for group in groups:
        own = [rest.pop(name) for name in group["params"] if name in rest]
        if own:
            built.append({"params": own, "lr": group.get("lr", lr)})
        for epoch in range(group.get("frozen_epochs", 0)):
            frozen.setdefault(epoch, []).extend(own)
    built.append({"params": list(rest.values())})
    return torch.optim.Adam([g for g in built if g["params"]], lr=lr, fused=True), frozen


def _fingerprint(methods: list[nn.Module], train: Labelled, held_out: Labelled | None, *numbers: object) -> str:
    """Of all that decides how training goes on, but for the number of epochs and the first weights."""
    moving = ("running_mean", "running_var", "num_batches_tracked")  # batch norm's: weights in all but name
    fixed = lambda name, tensor: not (tensor.requires_grad or name.endswith(moving))  # noqa: E731
    constants = [
        {name: t.tolist() for name, t in [*m.named_buffers(), *m.named_parameters()] if fixed(name, t)} for m in methods
    ]
    groups = methods[0].param_groups() if hasattr(methods[0], "param_groups") else None
    digest = hashlib.sha256(repr((settings(methods[0]), constants, groups, *numbers)).encode())
    for data in (train, held_out):
        for tensor in () if data is None else (data.images, data.labels, data.first_row):
            digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()
