"""Part V: whom to ask next. Four ways to choose the image by two to choose the annotator, at an equal budget."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from .. import annotators, asking, data, metrics, networks
from ..annotations import MISSING, Annotations
from ..networks import seeded
from ..runs import peak_mb
from ..training import History, fit, pick_device, predict_log_p, sized
from .units import HERE, Units

DIGITS = (3, 4, 5, 8, 9)
"""Digits that look alike: the five classes."""

KNOWS = {"unequal": [0.95] + 3 * [0.6] + 4 * [0.0], "equal": 8 * [0.6], "hard_images": 8 * [0.85]}
"""How often each of eight annotators knows; else they guess. In `by_class` it depends on the class (`panel`)."""

REGIMES = ("unequal", "by_class", "equal", "hard_images")
"""One expert, three fair and four who guess; each knows two classes; all alike; all alike, and half of the images are
grainy: there they know one in ten."""


class Rule(NamedTuple):
    """Which image, whom (`asking.IMAGES`, `asking.PEOPLE`), and how many labels the pseudo-counts weigh."""

    images: str
    people: str
    weight: float = 4.0


BUDGET = [Rule(i, p) for i, p in product(asking.IMAGES, ("random", "draw"))]
BELIEFS = [Rule("information", p, w) for p, w in product(asking.PEOPLE, (4.0, 0.04))]


@dataclass(frozen=True, eq=False)
class World:
    """A draw: the pool (N, 1, 14, 14) and its truth (N,), and images that nobody labels.

    says (N, R): what each annotator *would* say. Who asks the same person about the same image gets the same answer,
    whatever the rule, so that runs are paired. right (N, R): how likely it is to be right; hard (N,): grainy images.
    """

    images: Tensor
    truth: Tensor
    test: Tensor
    test_truth: Tensor
    says: Tensor
    right: Tensor
    hard: Tensor


def world(regime: str, seed: int, *, n: int = 500, n_test: int = 500) -> World:
    """Draws images, annotators and their answers. Raises: ValueError for a regime that there is not."""
    if regime not in REGIMES:
        raise ValueError(f"`regime` must be one of {', '.join(REGIMES)}; got {regime!r}.")
    generator = seeded(50_000 + seed)
    digits = data.mnist5k()
    at = torch.isin(digits.labels, torch.tensor(DIGITS)).nonzero()[:, 0]
    at = at[torch.randperm(len(at), generator=generator)[: n + n_test]]
    x, truth = data.small(digits.images[at]), torch.searchsorted(torch.tensor(DIGITS), digits.labels[at])
    A = panel(regime, generator)
    says, right = annotators.annotate(truth[:n], A, generator=generator), A.diagonal(dim1=1, dim2=2).T[truth[:n]]
    hard = torch.zeros(len(x), dtype=torch.bool)
    if regime == "hard_images":
        hard = torch.rand(len(x), generator=generator) < 0.5
        grainy = (x + 0.6 * torch.randn(x.shape, generator=generator)).clamp(0, 1)
        x = torch.where(hard[:, None, None, None], grainy, x)
        guessing = _of(torch.full((8, len(DIGITS)), 0.1))
        guesses, here = annotators.annotate(truth[:n], guessing, generator=generator), hard[:n, None]
        says, right = torch.where(here, guesses, says), torch.where(here, guessing[0, 0, 0], right)
    return World(x[:n], truth[:n], x[n:], truth[n:], says, right, hard[:n])


def panel(regime: str, generator: Generator) -> Tensor:
    """Eight annotators in random order: (8, 5, 5)."""
    L = len(DIGITS)
    if regime == "by_class":
        r = torch.arange(8)
        knows = torch.full((8, L), 0.3)
        knows[r, r % L] = knows[r, (r + 1) % L] = 0.95  # each class has three or four who know it
    else:
        knows = torch.tensor(KNOWS[regime])[:, None].expand(8, L)
    return _of(knows)[torch.randperm(8, generator=generator)]


def _of(knows: Tensor) -> Tensor:
    """(R, L) how often each knows a class, else any class with equal chance -> (R, L, L)."""
    return knows[:, None] * torch.eye(knows.shape[1]) + (1 - knows[:, None]) / knows.shape[1]


class Soft(nn.Module):
    """A network trained on soft labels q (N, L), each with a weight (N,)."""

    def __init__(self, network: nn.Module, q: Tensor, weight: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("q", q)
        self.register_buffer("weight", weight)

    def log_p(self, x: Tensor) -> Tensor:
        return self.network(x).log_softmax(1)  # (B, L)

    def log_A(self, x: Tensor) -> None:
        return None

    def loss(self, batch: tuple[Tensor, ...]) -> Tensor:
        x, _, _, index = batch
        nll = -(self.q[index] * self.log_p(x)).sum(1)
        return (self.weight[index] * nll).sum() / self.weight[index].sum().clamp(min=1)


class Asker:
    """One rule's run: the labels it has so far, and what it believes: p (N, L) and counts (R, L, L)."""

    def __init__(self, rule: Rule, labels: Tensor, *, n_classes: int, generator: Generator) -> None:
        self.rule, self.labels, self.generator = rule, labels.clone(), generator
        self.pseudo = asking.pseudo_counts(labels.shape[1], n_classes, weight=rule.weight)
        self.log_prior = torch.full((len(labels), n_classes), 1 / n_classes).log()
        self.nets: list[Soft] = []
        self.update()

    def update(self) -> None:
        self.p, self.counts = asking.believe(self.labels, self.log_prior, self.pseudo)

    def ask(self, says: Tensor, n: int) -> Tensor:
        """Buys n labels of `says` (N, R) and returns whose: (n, 2)."""
        images, people, _ = self.rule
        pairs = asking.choose(images, people, self.labels, self.p, self.counts, n=n, generator=self.generator)
        at = tuple(pairs.T)
        self.labels[at] = says[at]
        return pairs


def started(world: World, seed: int, rules: list[Rule], *, each: int) -> list[Asker]:
    """Every rule from one start: each annotator was asked about `each` images, at random."""
    order = torch.rand(world.says.shape, generator=seeded(60_000 + seed)).argsort(0).argsort(0)
    labels = torch.where(order < each, world.says, MISSING)
    return [Asker(rule, labels, n_classes=len(DIGITS), generator=seeded(70_000 + seed)) for rule in rules]


def learn(
    askers: list[Asker], world: World, seed: int, *, epochs: int, device: str | None = None, progress: bool = True
) -> History:
    """Trains two networks for each asker, each on half of the images that have a label, and rewrites what is believed.

    The prior of an image is the answer of the network that did not see its labels: they are evidence once, not twice.
    """
    half = torch.arange(len(world.truth)) % 2  # the images stand in random order
    for asker in askers:
        seen, fresh = (asker.labels != MISSING).any(1), range(2 * seed, 2 * seed + 2)
        networks_ = [networks.mlp(196, len(DIGITS), hidden=32, generator=seeded(s)) for s in fresh]
        asker.nets = [Soft(net, asker.p, (seen & (half == k)).float()) for k, net in enumerate(networks_)]
    nets = [net for asker in askers for net in asker.nets]
    pool = Annotations(world.images, askers[0].labels, n_classes=len(DIGITS))  # only its images are read
    how = {"epochs": epochs, "batch_size": 100, "lr": 4e-3, "seeds": [seed] * len(nets)}
    history = fit(nets, pool, device=device, progress=progress, **how)
    for asker in askers:
        first, second = (predict_log_p(net, world.images) for net in asker.nets)
        asker.log_prior = torch.where((half == 0)[:, None], second, first)
        asker.update()
    return history


def scores(asker: Asker, world: World, asked: Tensor) -> dict[str, float]:
    """Accuracy of both networks together on unseen images, and of what is believed of the pool (`fused`); of the
    labels asked last, how likely they were to be `right`, and the share that went to grainy images (`hard`)."""
    unseen = torch.stack([predict_log_p(net, world.test) for net in asker.nets]).logsumexp(0).argmax(1)
    found = {
        "accuracy": metrics.accuracy(unseen, world.test_truth),
        "fused": metrics.accuracy(asker.p.argmax(1), world.truth),
        "right": float(world.right[tuple(asked.T)].mean()),
    }
    return found | ({"hard": float(world.hard[asked[:, 0]].float().mean())} if world.hard.any() else {})


def budget_run(
    rules: list[Rule], regime: str, seed: int, size: str, *, device: str | None = None, progress: bool = True
) -> tuple[list[int], list[list[dict]], float]:
    """All rules from one start, in rounds of equal batches. Returns: budgets (T,) in labels; for each rule its `scores`
    at each; seconds."""
    P = sized(size, n=(150, 500, 1500), each=(5, 15, 45), batch=(45, 150, 450), rounds=(2, 8, 8), epochs=(5, 20, 30))
    start, here = time.perf_counter(), world(regime, seed, n=P.n)
    askers = started(here, seed, rules, each=P.each)
    budgets, curves = [], [[] for _ in rules]
    for t in range(P.rounds + 1):
        asked = [a.ask(here.says, P.batch) if t else (a.labels != MISSING).nonzero() for a in askers]
        learn(askers, here, seed, epochs=P.epochs, device=device, progress=progress)
        budgets.append(int((askers[0].labels != MISSING).sum()))
        for asker, pairs, curve in zip(askers, asked, curves, strict=True):
            curve.append(scores(asker, here, pairs))
    return budgets, curves, time.perf_counter() - start


def compare(
    rules: list[Rule],
    regimes: tuple[str, ...],
    *,
    seeds: int,
    size: str,
    device: str | None,
    progress: bool,
    each: Units = HERE,
) -> list[dict]:
    """Every rule in every regime: a row a run; the rules of a draw train side by side, as one unit."""
    tasks = [(rules, *task) for task in product(regimes, range(seeds))]
    return each(partial(draw_rows, size=size, device=device, progress=progress), tasks, progress=progress)


def draw_rows(
    rules: list[Rule], regime: str, seed: int, *, size: str, device: str | None = None, progress: bool = True
) -> list[dict]:
    """A row for each rule, with `fused_270` for the score at 270 labels, the last ones without a number, and the `area`
    under accuracy and fused divided by the labels bought: the mean accuracy on the way."""
    rules = [Rule(*rule) for rule in rules]  # a unit's task is plain data
    budgets, curves, seconds = budget_run(rules, regime, seed, size, device=device, progress=progress)
    cost = {"seconds": round(seconds / len(rules), 3), "peak_mb": round(peak_mb(pick_device(device)))}
    rows = []
    for rule, curve in zip(rules, curves, strict=True):
        found = {"area": area([c["accuracy"] for c in curve]), "fused_area": area([c["fused"] for c in curve])}
        found |= curve[-1]
        found |= {f"{name}_{n}": x for n, c in zip(budgets, curve, strict=True) for name, x in c.items()}
        key = {"method": "_".join(rule[:2]), "setting": {"regime": regime, "weight": rule.weight}}
        row = {**key, "draw": seed, "seed": seed, **cost}
        rows.append(row | {"metrics": {name: round(x, 4) for name, x in found.items()}})
    return rows


def area(curve: list[float]) -> float:
    """The mean height of a curve over equal steps, by the trapezoid rule; of one point, that point.

    >>> area([0.4, 0.6, 0.8])
    0.6
    """
    y = torch.tensor(curve, dtype=torch.float64)
    return float(torch.trapezoid(y) / (len(y) - 1)) if len(y) > 1 else float(y[0])


def ask_budget(
    *,
    seeds: int,
    size: str,
    device: str | None = None,
    progress: bool = True,
    regimes: tuple[str, ...] = REGIMES,
    each: Units = HERE,
) -> list[dict]:
    """Four image rules by two annotator rules."""
    return compare(BUDGET, regimes, seeds=seeds, size=size, device=device, progress=progress, each=each)


def ask_beliefs(
    *, seeds: int, size: str, device: str | None = None, progress: bool = True, each: Units = HERE
) -> list[dict]:
    """Images by information; whom to ask, with a prior on the matrices and nearly without."""
    return compare(BELIEFS, REGIMES[:3], seeds=seeds, size=size, device=device, progress=progress, each=each)
