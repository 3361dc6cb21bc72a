"""Part I, real people: the LabelMe crowd, and drawn readers of drawn views in the place of Tanno's private data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from .. import annotators, crowds, data, fusion, metrics, networks
from ..annotations import MISSING, Annotations
from ..confusion import count_matrices, skills
from ..methods.trace import Trace, Vanilla
from ..networks import seeded
from ..training import fit, predict, sized
from .units import HERE, Units

MATRICES = {"trace": 0.02, "no_trace": 0.0}
"""method -> lambda: one network and one matrix an annotator, on the raw labels."""

FUSED = ("truth", "dawid_skene", "vanilla")
"""A plain network on one label an image: the truth (the ceiling), what Dawid-Skene makes of the labels, the vote."""

NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "dropout": lambda seed: dropout_mlp(seed),
    "plain": lambda seed: networks.mlp(512, 8, generator=seeded(seed)),
}
"""What looks at the 512 features: one that cannot learn 900 images by heart, and one that can.

The first and its epochs were chosen with true validation labels, after the second had been seen on the test images.
"""


class Task(NamedTuple):
    """What one draw learns from, and what it is measured with.

    crowd: labels of the training items, MISSING for the held-out ones; held_out (N,) bool: a tenth, on whose noisy
    labels plain networks stop early; A (R, L, L): what the annotators are; known (R,) bool: whose skill is well known;
    experts (R,) bool, where one knows who is.
    """

    crowd: Annotations
    held_out: Tensor
    A: Tensor
    known: Tensor
    seed: int
    experts: Tensor | None = None


def labelme_crowd(
    *, seeds: int, size: str, device: str | None = None, progress: bool = True, each: Units = HERE
) -> list[dict]:
    """59 real people, 1,000 photographs, 2.5 labels each; needs the files (`crowds.labelme`).

    The labels are what they are: a draw is another tenth held out, other weights and another order. Skills are compared
    with what people scored on their own items, where those are at least five for each class.
    Source: Rodrigues and Pereira 2018 (data); Tanno 2019, section 3.4 (question).
    """
    crowd, _, test = crowds.labelme()
    A = count_matrices(crowd.labels, one_hot(crowd.truth, 8).double()).float()
    known = crowd.observed.sum(0) >= 5 * 8
    tasks = [Task(crowd, _tenth(crowd.n_items, seed), A, known, seed) for seed in range(seeds)]
    options = {"device": device, "progress": progress, **vars(sized(size, epochs=(10, 40, 100)))}
    rows = []
    for name, network in NETWORKS.items():
        rows += compare(tasks, network, test, {"crowd": "labelme", "network": name}, options, each)
    return rows


def six_views(
    *, seeds: int, size: str, device: str | None = None, progress: bool = True, each: Units = HERE
) -> list[dict]:
    """Eight drawn readers of six drawn views, two labels an image, and two readers who are no experts do half the work.

    Source: Tanno 2019, Fig. 7. Differs: theirs are 262,000 real ultrasound pictures; a draw is another set of readers.
    """
    views = crowds.six_views(2700, seeded(0))
    x, truth = data.small(views.images), views.labels
    tasks = []
    for seed in range(seeds):
        generator = seeded(20_000 + seed)
        A = crowds.eight_readers(generator)
        said = annotators.annotate(truth[:1700], A, per_item=2, workload=crowds.WORKLOAD, generator=generator)
        crowd = Annotations(x[:1700] if not tasks else tasks[0].crowd.images, said, n_classes=6, truth=truth[:1700])
        tasks.append(Task(crowd, _tenth(1700, seed), A, torch.ones(8, dtype=torch.bool), seed, torch.arange(8) < 6))
    network = lambda seed: networks.mlp(196, 6, generator=seeded(seed))  # noqa: E731
    options = {"device": device, "progress": progress, **vars(sized(size, epochs=(12, 40, 200)))}
    return compare(tasks, network, crowds.Part(x[1700:], truth[1700:]), {"crowd": "six_views"}, options, each)


@torch.random.fork_rng(devices=[])  # layers draw weights when made, which ours replace
def dropout_mlp(seed: int, n_inputs: int = 512, n_classes: int = 8) -> nn.Module:
    """One hidden layer behind dropout, for features of few images."""
    layers = nn.Dropout(0.5), nn.Linear(n_inputs, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, n_classes)
    return networks.initialised(nn.Sequential(*layers), seeded(seed))


def compare(
    tasks: list[Task],
    network: Callable[[int], nn.Module],
    test: crowds.Part,
    setting: dict,
    options: dict,
    each: Units = HERE,
) -> list[dict]:
    """Every method on every task, from the same weights and in the same order: paired rows. options: for `fit`."""
    work = partial(stack_rows, tasks=tasks, network=network, test=test, setting=setting, options=options)
    return each(work, [(False,), (True,)], progress=False)


def stack_rows(
    plain: bool, *, tasks: list[Task], network: Callable, test: crowds.Part, setting: dict, options: dict
) -> list[dict]:
    """The rows of one stack: plain networks on fused labels, or networks with a matrix an annotator."""
    jobs = [(m, task) for m in (FUSED if plain else MATRICES) for task in tasks]
    fit_to = [fused(m, task) if plain else None for m, task in jobs]
    labels = [
        task.crowd.labels if own is None else own[0][:, None] for own, (_, task) in zip(fit_to, jobs, strict=True)
    ]
    train = [only(task, said, ~task.held_out) for (_, task), said in zip(jobs, labels, strict=True)]
    # only plain networks are stopped early, else they learn each mistake by heart
    held = [only(task, said, task.held_out) for (_, task), said in zip(jobs, labels, strict=True)]
    built = [
        Vanilla(network(task.seed)) if plain else Trace(network(task.seed), *task.A.shape[:2], lam=MATRICES[m])
        for m, task in jobs
    ]
    seeds = [task.seed for _, task in jobs]
    history = fit(built, train, validation=held if plain else None, seeds=seeds, **options)
    cost = {"seconds": round(history.seconds / len(jobs), 3), "peak_mb": round(history.peak_mb)}
    rows = []
    for (m, task), own, method in zip(jobs, fit_to, built, strict=True):
        found = score(method.confusion() if own is None else own[1], task)
        found["accuracy"] = metrics.accuracy(predict(method, test.images), test.labels)
        key = {"method": m, "setting": setting, "draw": task.seed, "seed": task.seed}
        rows.append({**key, **cost, "metrics": {name: round(value, 5) for name, value in found.items()}})
    return rows


def fused(method: str, task: Task) -> tuple[Tensor, Tensor]:
    """One label for each item, (N,), and every annotator's matrix, (R, L, L), counted against it."""
    labels, L = task.crowd.labels, task.crowd.n_classes
    if method == "dawid_skene":
        found = fusion.dawid_skene(labels, L, max_iterations=2000, tolerance=1e-4)
        return found.p.argmax(1), found.A.float()
    y = task.crowd.truth if method == "truth" else fusion.majority(labels, L, generator=seeded(task.seed))
    return y, count_matrices(labels, one_hot(y, L).double()).float()


def score(A_hat: Tensor, task: Task) -> dict[str, float]:
    """How far the matrices and skills are off, over annotators whose own are known well enough to compare with."""
    mine, theirs = task.A[task.known], A_hat[task.known]
    found = {"cm_error": metrics.cm_error(mine, theirs), "skill_mae": metrics.skill_mae(mine, theirs)}
    if task.experts is not None:  # above 0: every expert is ranked above everybody else
        guess = skills(A_hat)
        found["separation"] = float(guess[task.experts].min() - guess[~task.experts].max())
    return found | {"skill_bias": float((skills(theirs) - skills(mine)).mean())}


def only(task: Task, labels: Tensor, where: Tensor) -> Annotations:
    """The labels of some items; the others stay, as items that nobody labelled, so that all runs share the images."""
    names = task.crowd.names if labels.shape[1] == task.crowd.n_annotators else ("fused",)
    return task.crowd.with_labels(torch.where(where[:, None], labels, MISSING), names)


def _tenth(N: int, seed: int) -> Tensor:
    held_out = torch.zeros(N, dtype=torch.bool)
    held_out[torch.randperm(N, generator=seeded(30_000 + seed))[: N // 10]] = True
    return held_out
