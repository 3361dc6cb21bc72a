"""What `training.fit` stands on: labels on the device, K methods as one stacked model, and what is kept."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from .annotations import MISSING, Annotations
from .confusion import of_annotators
from .files import whole_file


class Labelled:
    """Images once and labels K times on the device; no worker processes, no copies for runs that share their labels.

    Of each item only what was said is kept, and who said it: (N, G) of (N, R) where nobody labelled more than G times.
    With one label an item of five annotators the loss is a fifth of the work; with a crowd of fifty, a fiftieth.
    """

    def __init__(self, data: Annotations | Sequence[Annotations], K: int, device: torch.device, what: str) -> None:
        self.data = [data] * K if isinstance(data, Annotations) else list(data)
        first = self.data[0] if self.data else None
        if len(self.data) != K or any(d.images is not first.images for d in self.data):
            raise ValueError(
                f"`{what}` must be one Annotations, or K={K} that share one images tensor; got {len(self.data)}. "
                "Make them from one: data.with_labels(...)."
            )
        shapes = {(d.n_classes, *d.labels.shape[1:]) for d in self.data}
        if len(shapes) > 1:
            raise ValueError(
                f"`{what}` of one stack must agree in classes, annotators and sizes; got {sorted(shapes)}."
            )
        self.N, self.device = first.n_items, device
        distinct = {id(d): d for d in self.data}
        place = {key: k for k, key in enumerate(distinct)}
        self.first_row = torch.tensor([[place[id(d)] * self.N] for d in self.data], device=device)  # (K, 1)
        self.images = first.images.to(device)
        labels = torch.cat([d.labels for d in distinct.values()])  # (distinct N, R, *S)
        spoke = (labels != MISSING).flatten(2).any(2) if labels.ndim > 2 else labels != MISSING  # (distinct N, R)
        who = spoke.sort(dim=1, descending=True, stable=True).indices[:, : spoke.sum(1).max()]  # (distinct N, G)
        self.who, self.labels = who.to(device), of_annotators(labels, who).to(device)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(K, B) item numbers -> x (K, B, ...), labels (K, B, G, *S), who said them (K, B, G), index (K, B)."""
        take = lambda rows, at: rows.index_select(0, at.flatten()).unflatten(0, at.shape)  # noqa: E731  (copies whole rows)
        row = index + self.first_row
        return take(self.images, index), take(self.labels, row), take(self.who, row), index

    @torch.no_grad()
    def mean_loss(self, runs: Runs, chunk: int = 1024) -> Tensor:
        """(K,) loss over all items, each chunk weighted by its observed labels."""
        runs.train(False)
        total, weight = 0, 0
        for index in torch.arange(self.N, device=self.device).split(chunk):
            batch = self.batch(index.expand(len(self.data), -1))
            n = (batch[1] != MISSING).flatten(1).sum(1)  # (K,)
            total, weight = total + runs.losses(batch) * n, weight + n
        return total / weight


class _Loss(nn.Module):
    """functional_call calls `forward`; ours is the method's loss."""

    def __init__(self, method: nn.Module) -> None:
        super().__init__()
        self.method = method

    def forward(self, batch: tuple[Tensor, ...]) -> Tensor:
        return self.method.loss(batch)


class Runs:
    """K methods as one. With K = 1 it is the method itself, so that any network trains (batch norm, dropout, ...)."""

    def __init__(self, methods: list[nn.Module], device: torch.device) -> None:
        _check_stack(methods)
        self.methods, self.K, self.graph = [m.to(device) for m in methods], len(methods), None
        if self.K == 1:
            methods[0].to(memory_format=torch.channels_last)  # narrow convolutions run twice as fast
            self.parameters = {n: p for n, p in methods[0].named_parameters() if p.requires_grad}
            return
        parameters, buffers = stack_module_state(methods)  # name -> (K, ...)
        self.parameters = {n: p for n, p in parameters.items() if p.requires_grad}
        self.constants = {**buffers, **{n: p for n, p in parameters.items() if not p.requires_grad}}
        self.loss = _Loss(copy.deepcopy(methods[0]).to("meta"))  # structure only: the numbers come from the stacks

    def _one(self, parameters: dict, constants: dict, batch: tuple) -> Tensor:
        state = {f"method.{name}": tensor for name, tensor in {**parameters, **constants}.items()}
        return functional_call(self.loss, state, (batch,))

    def losses(self, batch: tuple[Tensor, ...]) -> Tensor:
        """(K,) losses."""
        if self.K == 1:
            return self.methods[0].loss(tuple(t[0] for t in batch))[None]
        return vmap(self._one, randomness="different")(self.parameters, self.constants, batch)

    def gradients(self, batch: tuple[Tensor, ...]) -> Tensor:
        """(K,) losses; leaves each run's own gradient in `.grad`."""
        if self.K == 1:
            loss = self.losses(batch)
            for parameter in self.parameters.values():
                parameter.grad = None
            loss.sum().backward()
            return loss.detach()
        if self.graph is None:  # traced once for the batch's shape: replaying costs a third of calling vmap each step
            step = vmap(grad_and_value(self._one), randomness="different")
            detached = {n: p.detach() for n, p in self.parameters.items()}
            self.graph = _without_repeats(make_fx(lambda *a: step(*a))(detached, self.constants, batch))
        with torch.no_grad():
            gradients, losses = self.graph(self.parameters, self.constants, batch)
        for name, parameter in self.parameters.items():
            parameter.grad = gradients[name].contiguous()  # fused Adam reads memory in order, whatever the strides
        return losses

    def train(self, mode: bool = True) -> None:
        for method in [*self.methods[:1], *([self.loss.method] if self.K > 1 else [])]:
            method.train(mode)

    def state(self) -> dict[str, Tensor]:
        """name -> (K, ...), views of everything that training changes."""
        if self.K == 1:
            return {name: tensor.detach()[None] for name, tensor in self.methods[0].state_dict().items()}
        return {name: tensor.detach() for name, tensor in {**self.parameters, **self.constants}.items()}

    def unstack(self) -> None:
        if self.K == 1:  # as it came, so that a saved method answers to the last digit what this one does
            self.methods[0].to(memory_format=torch.contiguous_format)
        else:
            for k, method in enumerate(self.methods):
                method.load_state_dict({name: tensor[k] for name, tensor in self.state().items()})


VIEWS = {getattr(torch.ops.aten, name).default for name in ("view", "_unsafe_view", "expand", "permute", "unsqueeze")}
VIEWS |= {torch.ops.aten.transpose.int, torch.ops.aten.squeeze.dims}  # none of these moves the first element


def _without_repeats(traced: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """vmap turns and reshapes tensors that need neither: a third of all steps, and each costs as much as a small sum.

    Two views of one tensor that agree in shape and strides are the same view.
    """
    roots, first = {}, {}
    for node in traced.graph.nodes:
        if isinstance(value := node.meta.get("val"), Tensor):
            roots[node] = roots[node.args[0]] if node.target in VIEWS else node
            twin = first.setdefault((roots[node], value.shape, value.stride()), node)
            if twin is not node:
                node.replace_all_uses_with(twin)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced


def settings(method: nn.Module) -> list:
    """All of a method but the numbers in its tensors: its parts, their plain settings, shapes, what is trained."""
    plain = {bool, int, float, str, tuple, type(None)}
    parts = [
        (name, type(part).__qualname__, {k: v for k, v in vars(part).items() if k[0] != "_" and type(v) in plain})
        for name, part in method.named_modules()
    ]
    for _, _, values in parts:
        values.pop("training", None)
    trained = {name: p.requires_grad for name, p in method.named_parameters()}
    return [*parts, trained, {n: (tuple(t.shape), str(t.dtype)) for n, t in method.state_dict().items()}]


def _check_stack(methods: list[nn.Module]) -> None:
    """Methods in a stack run through the first one's code: they may differ in tensors only, and share none."""
    if any(settings(method) != settings(methods[0]) for method in methods):
        raise ValueError(
            "methods trained together must be of one kind and size, with the same settings; call fit for each."
        )
    tensors = [id(p) for method in methods for p in method.parameters()]
    if len(set(tensors)) < len(tensors):
        raise ValueError("methods trained together must not share a network; build one for each.")
    norms = any(getattr(part, "track_running_stats", False) for part in methods[0].modules())
    if len(methods) > 1 and norms:
        raise ValueError("batch norm keeps running averages, which a stack cannot; train these methods one at a time.")


class Keeper:
    """Losses, the best epoch's weights, and the checkpoint."""

    def __init__(self, runs: Runs, optimiser: torch.optim.Optimizer, path: str | Path | None, fingerprint: str) -> None:
        self.runs, self.optimiser, self.fingerprint = runs, optimiser, fingerprint
        self.path = None if path is None else Path(path)
        self.epoch, self.losses, self.validations, self.best = 0, [], [], None
        self.kept_epoch = torch.full((runs.K,), -1)
        if self.path is not None and self.path.exists():
            self._resume()

    def end_of_epoch(self, epoch: int, loss: Tensor, validation: Tensor | None) -> None:
        self.losses.append(loss.cpu())
        better = torch.ones(self.runs.K, dtype=torch.bool)
        if validation is not None:
            self.validations.append(validation.cpu())
            better = self.validations[-1] <= torch.stack(self.validations).min(0).values  # (K,)
            self._keep(better)
        self.kept_epoch[better] = epoch
        self.epoch = epoch + 1
        if self.path is not None:
            kept = ("epoch", "losses", "validations", "best", "kept_epoch", "fingerprint")
            write_tensors(
                {
                    **{k: getattr(self, k) for k in kept},
                    "state": self.runs.state(),
                    "adam": self.optimiser.state_dict(),
                },
                self.path,
            )

    def _keep(self, better: Tensor) -> None:
        state = self.runs.state()
        if self.best is None:
            self.best = {name: tensor.clone() for name, tensor in state.items()}
        for name, tensor in state.items():
            self.best[name][better.to(tensor.device)] = tensor[better.to(tensor.device)]

    def restore_best(self) -> None:
        if self.best is not None:
            for name, tensor in self.runs.state().items():
                tensor.copy_(self.best[name])

    def _resume(self) -> None:
        saved = read_tensors(self.path)
        if saved.get("fingerprint") != self.fingerprint:
            raise ValueError(
                f"{self.path} belongs to another run (other data, seeds or settings); delete it or name another."
            )
        for name, tensor in self.runs.state().items():
            tensor.copy_(saved["state"][name])
        self.optimiser.load_state_dict(saved["adam"])
        self.epoch, self.losses, self.validations = saved["epoch"], saved["losses"], saved["validations"]
        self.best, self.kept_epoch = saved["best"], saved["kept_epoch"]
        if self.best is not None:
            self.best = {name: tensor.to(self.runs.state()[name].device) for name, tensor in self.best.items()}


@contextmanager
def threads_for(methods: list[nn.Module], device: torch.device) -> Iterator[None]:
    """One thread for narrow networks on the CPU, while the loop runs.

    Their operations are so small that threads wait for one another longer than they work: one small MLP takes 1.8 s on
    one thread and 3.2 s on two; a narrow U-Net 10 s on one and 7.5 s on two, but 118 s where another program wants one
    of the two.
    """
    before = torch.get_num_threads()
    wide = any(isinstance(m, nn.Conv2d) and m.weight.numel() > 20_000 for m in methods[0].modules())
    if device.type == "cpu" and not wide:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def write_tensors(content: dict, path: Path) -> None:
    with whole_file(path) as part:
        torch.save(content, part)


def read_tensors(path: Path) -> dict:
    if not path.exists():
        raise FileNotFoundError(f"no saved tensors at {path}; `save` writes them.")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(found, dict):
            raise TypeError(f"holds a {type(found).__name__}")
        return found
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read as saved tensors ({type(error).__name__}): it was cut short, or not written by "
            "`save`. Delete it and train again."
        ) from None


def peak_mb(device: torch.device) -> float:
    """Peak memory so far: the device's on cuda, else this process's; NaN where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    status = Path("/proc/self/status")
    if status.exists():  # Linux, whose ru_maxrss begins with the size of whatever program started this one
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) / 2**10
    try:
        import resource
    except ImportError:  # Windows
        return float("nan")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
