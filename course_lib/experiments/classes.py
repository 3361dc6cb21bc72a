"""Part I: the experiments of Tanno et al. 2019 on digits."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from .. import annotators, data, fusion, metrics, networks
from ..annotations import Annotations
from ..confusion import count_matrices, dominance
from ..methods.trace import Trace, Vanilla
from ..networks import seeded
from ..training import fit, predict, sized

METHODS: dict[str, Callable[[nn.Module, Tensor], nn.Module]] = {
    "oracle": lambda net, A: Trace.oracle(net, A),
    "trace": lambda net, A: Trace(net, *A.shape[:2], lam=0.02),
    "no_trace": lambda net, A: Trace(net, *A.shape[:2], lam=0.0),
    "joint": lambda net, A: Trace(net, *A.shape[:2], lam=0.0, joint=True),
    "vanilla": lambda net, A: Vanilla(net),
}
"""name -> (network, the annotators' true matrices, which only the oracle reads) -> method."""

STACKS = (("trace", "no_trace"), ("joint",), ("oracle",), ("vanilla",))
"""Methods that differ only in numbers train together."""


def trace_mnist5k(*, seeds: int, size: str, device: str | None = None, progress: bool = True) -> list[dict]:
    """Five pairwise flippers, at most two sharing a flip, one label an image; skill .45, and .35 where draws fail.

    Source: Tanno 2019, Fig. 3 and 6 (b), on 5,000 digits.
    """
    draw = lambda skill, generator: annotators.pairwise_flippers(5, 10, skill, generator=generator)  # noqa: E731
    settings = [{"annotators": "pairwise_flippers", "skill": skill, "per_item": 1} for skill in (0.45, 0.35)]
    return compare(draw, settings, ("oracle", "trace", "no_trace", "vanilla"), seeds, size, device, progress)


def trace_spammers(*, seeds: int, size: str, device: str | None = None, progress: bool = True) -> list[dict]:
    """Five hammer-spammers of skill .2, one label an image and dense: where the trace does its work.

    Source: Tanno 2019, Fig. 9 and 11, on 5,000 digits.
    """
    draw = lambda skill, generator: annotators.hammer_spammers(5, 10, skill, generator=generator)  # noqa: E731
    settings = [{"annotators": "hammer_spammers", "skill": 0.2, "per_item": per_item} for per_item in (1, 5)]
    return compare(draw, settings, ("oracle", "trace", "no_trace", "joint", "vanilla"), seeds, size, device, progress)


def compare(
    draw: Callable,
    settings: list[dict],
    methods: tuple[str, ...],
    seeds: int,
    size: str,
    device: str | None,
    progress: bool,
) -> list[dict]:
    """Every method on every setting and seed, with the same digits, annotators, labels and weights: paired rows."""
    budget = sized(size, epochs=(12, 20, 200), batch_size=(64, 64, 50))
    digits = paper_digits() if size == "paper" else small_digits()
    runs = [prepare(digits, draw, setting, seed) for setting in settings for seed in range(seeds)]
    rows = []
    for stack in STACKS:
        names = [name for name in stack if name in methods]
        jobs = [(name, run) for name in names for run in runs]
        if not jobs:
            continue
        built = [METHODS[name](digits.network(run.seed), run.A) for name, run in jobs]
        vote = names == ["vanilla"]  # early-stopped on the vote of noisy held-out labels: its best honest form
        history = fit(
            built,
            [run.voted if vote else run.train for _, run in jobs],
            seeds=[run.seed for _, run in jobs],
            validation=[run.voted_validation for _, run in jobs] if vote else None,
            device=device, progress=progress, **vars(budget),
        )  # fmt: skip
        cost = {"seconds": round(history.seconds / len(jobs), 3), "peak_mb": round(history.peak_mb)}
        for (name, run), method in zip(jobs, built, strict=True):
            key = {"method": name, "setting": run.setting, "draw": run.seed, "seed": run.seed}
            rows.append({**key, **cost, "metrics": score(method, run, digits)})
    return rows


class Digits:
    """Images of a split, ready for a network, and the network that fits them."""

    def __init__(
        self, images: dict[str, Tensor], truth: dict[str, Tensor], network: Callable[[int], nn.Module]
    ) -> None:
        self.images, self.truth, self.network = images, truth, network


def small_digits() -> Digits:
    """5,000 shipped digits at 14x14 and the small MLP: 3,600 / 400 / 1,000."""
    parts = data.split(data.mnist5k())
    images = {name: data.small(getattr(parts, name).images) for name in ("train", "validation", "test")}
    truth = {name: getattr(parts, name).labels for name in images}
    return Digits(images, truth, lambda seed: networks.mlp(196, 10, generator=seeded(seed)))


def paper_digits() -> Digits:
    """MNIST 60k and the paper's network: 54,000 / 6,000 / 10,000 (10 % held out, as in section 3.1)."""
    train, test = data.mnist60k()
    images = {"train": train.images[:54000], "validation": train.images[54000:], "test": test.images}
    truth = {"train": train.labels[:54000], "validation": train.labels[54000:], "test": test.labels}
    scaled = {name: data.scaled(x) for name, x in images.items()}
    return Digits(scaled, truth, lambda seed: networks.paper_cnn(1, 10, generator=seeded(seed)))


class Run:
    """One draw of annotators and of what they said."""

    def __init__(self, setting: dict, seed: int, A: Tensor, train: Annotations, validation: Annotations) -> None:
        self.setting, self.seed, self.A, self.train = setting, seed, A, train
        vote = lambda d: d.with_labels(fusion.majority(d.labels, d.n_classes, generator=seeded(seed))[:, None])  # noqa: E731
        self.voted, self.voted_validation = vote(train), vote(validation)


def prepare(digits: Digits, draw: Callable, setting: dict, seed: int) -> Run:
    """Draws annotators, then their labels of the training and validation images, from one generator."""
    generator = seeded(10_000 + seed)
    A = draw(setting["skill"], generator)
    parts = []
    for name in ("train", "validation"):
        labels = annotators.annotate(digits.truth[name], A, per_item=setting["per_item"], generator=generator)
        parts.append(Annotations(digits.images[name], labels, n_classes=A.shape[1]))
    return Run(setting, seed, A, *parts)


def score(method: nn.Module, run: Run, digits: Digits) -> dict[str, float]:
    """Test accuracy; for methods with matrices their errors; and the count matrix's, which has no shrinkage."""
    found = {"accuracy": metrics.accuracy(predict(method, digits.images["test"]), digits.truth["test"])}
    if isinstance(method, Trace):
        A_hat = method.confusion()
        found |= {"cm_error": metrics.cm_error(run.A, A_hat), "skill_mae": metrics.skill_mae(run.A, A_hat)}
    q = nn.functional.one_hot(predict(method, digits.images["train"]), run.A.shape[1]).float()
    counted = count_matrices(run.train.labels, q)
    found |= {"count_cm_error": metrics.cm_error(run.A, counted), "dominance": dominance(run.A)}
    return {name: round(value, 5) for name, value in found.items()}
