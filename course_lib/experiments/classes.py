"""Part I: the experiments of Tanno et al. 2019 on digits. Every method on every setting and seed, in paired rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial

import torch
from torch import Tensor, nn

from .. import annotators, data, fusion, metrics, networks
from ..annotations import Annotations
from ..confusion import count_matrices, dominance
from ..confusion import log as log_of
from ..methods.crowd_layer import CrowdLayer
from ..methods.doctor import DoctorNet
from ..methods.em import GEM, MBEM, fit_em
from ..methods.max_mig import MaxMIG
from ..methods.noisy import Bootstrap
from ..methods.trace import Trace, Vanilla
from ..networks import seeded
from ..training import fit, predict, sized
from .units import HERE, Units

# ---- what a run sees -------------------------------------------------------------------------------------------------


class Digits:
    """Images of a split, ready for a network, and the network that fits them: network(seed, n_outputs)."""

    def __init__(self, images: dict[str, Tensor], truth: dict[str, Tensor], network: Callable) -> None:
        self.images, self.truth, self.network = images, truth, network


@cache
def small_digits() -> Digits:
    """5,000 shipped digits at 14x14 and the small MLP: 3,600 / 400 / 1,000."""
    parts = data.split(data.mnist5k())
    images = {name: data.small(getattr(parts, name).images) for name in ("train", "validation", "test")}
    truth = {name: getattr(parts, name).labels for name in images}
    return Digits(images, truth, lambda seed, n=10: networks.mlp(196, n, generator=seeded(seed)))


@cache
def paper_digits() -> Digits:
    """MNIST 60k and the paper's network: 54,000 / 6,000 / 10,000 (10 % held out, as in section 3.1)."""
    train, test = data.mnist60k()
    images = {"train": train.images[:54000], "validation": train.images[54000:], "test": test.images}
    truth = {"train": train.labels[:54000], "validation": train.labels[54000:], "test": test.labels}
    scaled = {name: data.scaled(x) for name, x in images.items()}
    return Digits(scaled, truth, lambda seed, n=10: networks.paper_cnn(1, n, generator=seeded(seed)))


class Run:
    """One draw of annotators and of what they said."""

    def __init__(self, setting: dict, seed: int, A: Tensor, crowd: Annotations, held_out: Annotations) -> None:
        self.setting, self.seed, self.A, self.crowd, self.held_out = setting, seed, A, crowd, held_out

    @cached_property
    def vote(self) -> Annotations:
        return self._voted(self.crowd)

    @cached_property
    def held_out_vote(self) -> Annotations:
        return self._voted(self.held_out)

    @cached_property
    def dawid_skene(self) -> Annotations:
        if int(self.crowd.observed.sum(1).max()) == 1:  # it returns the label
            return self.vote
        fused = fusion.dawid_skene(self.crowd.labels, self.crowd.n_classes)
        return self.crowd.with_labels(fused.p.argmax(1)[:, None])

    def _voted(self, crowd: Annotations) -> Annotations:
        voted = fusion.majority(crowd.labels, crowd.n_classes, generator=seeded(self.seed))
        return crowd.with_labels(voted[:, None])


PANELS: dict[str, Callable[[float, torch.Generator], Tensor]] = {
    "pairwise_flippers": lambda skill, g: annotators.pairwise_flippers(5, 10, skill, generator=g),
    "hammer_spammers": lambda skill, g: annotators.hammer_spammers(5, 10, skill, generator=g),
    "diverse": lambda skill, g: annotators.diverse(generator=g),
}


def prepare(digits: Digits, setting: dict, seed: int) -> Run:
    """Draws annotators, then their labels of the training and validation images, from one generator."""
    generator = seeded(10_000 + seed)
    A = PANELS[setting["annotators"]](setting["skill"], generator)
    parts = []
    for name in ("train", "validation"):
        labels = annotators.annotate(digits.truth[name], A, per_item=setting["per_item"], generator=generator)
        parts.append(Annotations(digits.images[name], labels, n_classes=A.shape[1]))
    return Run(setting, seed, A, *parts)


# ---- methods ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """How a method is built, from network(n_outputs) and a run; what it is fitted to; whether it is stopped early on a
    vote of noisy held-out labels; for EM, its rounds. Ways of one `kind` differ only in numbers and train together."""

    build: Callable[[Callable[..., nn.Module], Run], nn.Module]
    kind: str
    sees: str = "crowd"
    stops: bool = False
    rounds: int | None = None


Job = tuple[str, dict, int]
"""A method's name, a setting and a seed."""


def traced(lam: float, **more: object) -> Callable:
    return lambda net, run: Trace(net(), *run.A.shape[:2], lam=lam, **more)


def started_at_truth(net: Callable, run: Run) -> Trace:
    method = Trace(net(), *run.A.shape[:2], lam=0.02)
    with torch.no_grad():
        method.cm.logits.copy_(log_of(0.999 * run.A + 0.001 / run.A.shape[1]))
    return method


METHODS: dict[str, Way] = {
    "oracle": Way(lambda net, run: Trace.oracle(net(), run.A), "oracle"),
    "trace": Way(traced(0.02), "trace"),
    "no_trace": Way(traced(0.0), "trace"),
    "trace_from_truth": Way(started_at_truth, "trace"),
    "joint": Way(traced(0.0, joint=True), "joint"),
    "gem": Way(lambda net, run: GEM(net(), run.crowd), "gem", rounds=5),
    "gem_net": Way(lambda net, run: GEM(net(), run.crowd, first_from="network"), "gem_net", rounds=5),
    "mbem": Way(lambda net, run: MBEM(net(), run.crowd), "mbem", rounds=2),
    "mbem_uniform": Way(lambda net, run: MBEM(net(), run.crowd, prior="uniform"), "mbem_uniform", rounds=5),
    "vanilla": Way(lambda net, run: Vanilla(net()), "stopped", sees="vote", stops=True),
    "vanilla_last": Way(lambda net, run: Vanilla(net()), "last", sees="vote"),
    "soft_labels": Way(lambda net, run: Vanilla(net()), "soft"),
    "dawid_skene": Way(lambda net, run: Vanilla(net()), "last", sees="dawid_skene"),
    "bootstrap_soft": Way(lambda net, run: Bootstrap(net()), "bootstrap_soft", sees="vote", stops=True),
    "bootstrap_hard": Way(lambda net, run: Bootstrap(net(), hard=True), "bootstrap_hard", sees="vote", stops=True),
    "single_cm": Way(lambda net, run: Trace(net(), 1, run.A.shape[1], lam=0.02), "single_cm", sees="vote"),
    "doctor_net": Way(lambda net, run: DoctorNet(net(run.A.shape[0] * run.A.shape[1]), *run.A.shape[:2]), "doctor_net"),
    "crowd_layer": Way(lambda net, run: CrowdLayer(net(), *run.A.shape[:2]), "crowd_layer"),
    "max_mig": Way(lambda net, run: MaxMIG(net(), *run.A.shape[:2]), "max_mig"),
}


def compare(
    settings: Sequence[dict],
    methods: Sequence[str] | dict[str, Way],
    *,
    seeds: int,
    size: str,
    device: str | None = None,
    progress: bool = True,
    also: Callable[[nn.Module, Run], dict] = lambda method, run: {},
    each: Units = HERE,
) -> list[dict]:
    """Every method on every setting and seed: the same digits, annotators, labels and first weights for each.

    also: further numbers for a row's metrics. each: runs the stacks, else here, one after the other.
    """
    ways = methods if isinstance(methods, dict) else {name: METHODS[name] for name in methods}
    work = partial(stack_rows, ways=ways, size=size, device=device, progress=progress, also=also)
    return each(work, [(stack,) for stack in _stacks(ways, settings, seeds)], progress=False)


def stack_rows(stack: list[Job], *, ways: dict[str, Way], size: str, also: Callable, **how: object) -> list[dict]:
    """The rows of methods of one kind, trained together. how: for `fit`."""
    how |= vars(sized(size, epochs=(12, 20, 200), batch_size=(64, 64, 50)))
    digits = paper_digits() if size == "paper" else small_digits()
    draw = cache(lambda setting, seed: prepare(digits, dict(setting), seed))  # once for all methods
    jobs = [(name, draw(tuple(setting.items()), seed)) for name, setting, seed in stack]
    way = ways[jobs[0][0]]
    built = [ways[name].build(lambda n=10, s=run.seed: digits.network(s, n), run) for name, run in jobs]
    how["seeds"] = [run.seed for _, run in jobs]
    given = [getattr(run, ways[name].sees) for name, run in jobs]
    if way.rounds is not None:
        histories = fit_em(built, given, rounds=way.rounds, **how)
    else:
        held_out = [run.held_out_vote for _, run in jobs] if way.stops else None
        histories = [fit(built, given, validation=held_out, **how)]
    seconds = sum(history.seconds for history in histories)
    cost = {"seconds": round(seconds / len(jobs), 3), "peak_mb": round(histories[-1].peak_mb)}
    rows = []
    for (name, run), method in zip(jobs, built, strict=True):
        key = {"method": name, "setting": run.setting, "draw": run.seed, "seed": run.seed}
        rows.append({**key, **cost, "metrics": score(method, run, digits) | also(method, run)})
    return rows


def _stacks(ways: dict[str, Way], settings: Sequence[dict], seeds: int, most: int = 40) -> list[list[Job]]:
    """Jobs of one kind and one density together, at most 40: more no longer fit a small cache."""
    kinds = dict.fromkeys((way.kind, setting["per_item"]) for way in ways.values() for setting in settings)
    jobs = [
        [
            (name, setting, seed)
            for name, way in ways.items()
            for setting in settings
            for seed in range(seeds)
            if (way.kind, setting["per_item"]) == (kind, per_item)
        ]
        for kind, per_item in kinds
    ]
    return [stack[i : i + most] for stack in jobs for i in range(0, len(stack), most)]


def score(method: nn.Module, run: Run, digits: Digits) -> dict[str, float]:
    """Test accuracy; for methods with a matrix an annotator their errors; the count matrix's, which never shrinks."""
    found = {"accuracy": metrics.accuracy(predict(method, digits.images["test"]), digits.truth["test"])}
    if hasattr(method, "confusion") and len(method.confusion()) == len(run.A):
        A_hat = method.confusion()
        found |= {"cm_error": metrics.cm_error(run.A, A_hat), "skill_mae": metrics.skill_mae(run.A, A_hat)}
        found |= {"estimated_dominance": dominance(A_hat)}
    q = nn.functional.one_hot(predict(method, digits.images["train"]), run.A.shape[1]).float()
    counted = count_matrices(run.crowd.labels, q)
    found |= {"count_cm_error": metrics.cm_error(run.A, counted), "dominance": dominance(run.A)}
    return {name: round(value, 5) for name, value in found.items()}


# ---- the papers' tables and figures ----------------------------------------------------------------------------------


def settings_of(panel: str, skills: Sequence[float], per_item: Sequence[int]) -> list[dict]:
    return [{"annotators": panel, "skill": s, "per_item": n} for n in per_item for s in skills]


SKILLS = (0.2, 0.25, 0.3, 0.35, 0.45, 0.6)


def trace_mnist5k(**how: object) -> list[dict]:
    """Five pairwise flippers, at most two sharing a flip, one label an image; skill .45, and .35 near the edge.

    Source: Tanno 2019, Fig. 3 and 6 (b), on 5,000 digits.
    """
    settings = settings_of("pairwise_flippers", (0.45, 0.35), (1,))
    return compare(settings, ("oracle", "trace", "no_trace", "vanilla"), **how)


def trace_spammers(**how: object) -> list[dict]:
    """Five hammer-spammers of skill .2, one label an image and dense: where the trace does its work.

    Source: Tanno 2019, Fig. 9 and 11, on 5,000 digits.
    """
    settings = settings_of("hammer_spammers", (0.2,), (1, 5))
    return compare(settings, ("oracle", "trace", "no_trace", "joint", "vanilla"), **how)


EVERYBODY = ("oracle", "trace", "no_trace", "joint", "gem", "gem_net", "mbem", "mbem_uniform", "max_mig", "crowd_layer")
EVERYBODY += ("doctor_net", "dawid_skene", "single_cm", "soft_labels", "vanilla", "vanilla_last")


def diverse_table(**how: object) -> list[dict]:
    """Four annotators of different kinds, dense and one label an image; all methods. Source: Tanno 2019, Table 1."""
    return compare(settings_of("diverse", (0.45,), (4, 1)), EVERYBODY, **how)


def skill_curve(panel: str, **how: object) -> list[dict]:
    """Accuracy and CM error against skill, with the trace on and off, dense and one label.

    Source: Tanno 2019, Fig. 3 (flippers), Fig. 9 (hammer-spammers), Fig. 11 (trace on and off).
    """
    methods = ("oracle", "trace", "no_trace", "joint", "gem", "gem_net", "mbem", "mbem_uniform", "vanilla")
    return compare(settings_of(panel, SKILLS, (5, 1)), methods, **how)


def robust_curve(panel: str, **how: object) -> list[dict]:
    """Against rivals that know of noise but not of annotators. Source: Tanno 2019, Fig. 6 and 10."""
    methods = ("oracle", "trace", "single_cm", "bootstrap_soft", "bootstrap_hard", "doctor_net", "soft_labels")
    return compare(settings_of(panel, SKILLS, (5, 1)), (*methods, "vanilla", "vanilla_last"), **how)


def break_point(**how: object) -> list[dict]:
    """Where dominance ends: matrices started at the identity and at the truth. Source: Tanno 2019, Fig. 4."""
    settings = settings_of("pairwise_flippers", (0.2, 0.25, 0.3, 0.35), (5, 1))
    return compare(settings, ("oracle", "trace", "trace_from_truth", "gem", "mbem_uniform"), **how)


LAMBDAS = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0)
ROUNDS = (1, 2, 5, 10)


def sensitivity(**how: object) -> list[dict]:
    """The trace's lambda, and EM's rounds T at one budget of epochs. Source: Tanno 2019, Fig. 5."""
    ways = {f"trace_{lam:g}": Way(traced(lam), "trace") for lam in LAMBDAS}
    for name in ("gem", "gem_net", "mbem", "mbem_uniform"):
        ways |= {f"{name}_{T}": Way(METHODS[name].build, f"{name}_{T}", rounds=T) for T in ROUNDS}
    settings = settings_of("pairwise_flippers", (0.35,), (5, 1)) + settings_of("hammer_spammers", (0.2,), (5, 1))
    return compare(settings, ways, **how)
