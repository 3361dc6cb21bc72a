"""What matrices for each pixel cost: what the bench times against is the same loss, and peaks are a process's own."""

import os

import pytest
import torch

from course_lib import bench, experiments
from course_lib.experiments import costs
from course_lib.training import peak_mb


def value_and_gradient(how: str) -> tuple[torch.Tensor, torch.Tensor]:
    go = costs.loss_alone(how, B=2, R=3, L=4, side=5)
    go()
    logits = next(c.cell_contents for c in go.__closure__ if getattr(c.cell_contents, "ndim", 0) == 6)
    return logits.grad


def test_the_loss_that_is_timed_is_the_loss_of_the_product_it_replaces():
    ours, product, other = (value_and_gradient(how) for how in ("ours", "einsum", "cross_entropy"))
    assert torch.allclose(ours, product, atol=1e-7) and not torch.allclose(ours, other, atol=1e-5)


def test_the_bench_has_time_and_memory_of_the_pixel_loss(monkeypatch):
    small = {"ours": 2.0, "cross_entropy": 1.0, "einsum": 4.0}
    alone = costs.loss_alone
    monkeypatch.setattr(bench.costs, "loss_alone", lambda how: alone(how, B=1, R=2, L=3, side=6))
    monkeypatch.setattr(bench.costs, "in_own_process", lambda set_up, how: (None, small[how]))
    rows = bench.pixel_loss(1)
    assert [(row["against"], row["mb_ratio"]) for row in rows] == [("cross_entropy", 2.0), ("einsum", 0.5)]
    assert all(row["seconds"] > 0 and row["ratio"] > 0 for row in rows)


def test_a_fresh_process_measures_its_own_peak_and_not_its_parents():
    block = torch.ones(40_000_000)  # 160 MB here, which are not the child's
    held = peak_mb(torch.device("cpu"))
    _, peak = costs.in_own_process(costs.loss_alone, "ours", 2, 5, 4, 64)
    floats = 2 * 5 * 4 * 4 * 64 * 64 * 4 / 2**20  # MB of one array of all logits
    assert 1.5 * floats < peak < min(20 * floats, held) and block[0] == 1


def test_a_process_that_is_ended_says_why():
    with pytest.raises(MemoryError, match="want of memory"):
        costs.in_own_process(os._exit, 1)


def test_low_rank_memory_has_a_row_for_each_and_every_one_learns(monkeypatch):
    monkeypatch.setattr(costs, "in_own_process", lambda set_up, *arguments: (set_up(*arguments)(), 1.0))
    rows = experiments.run("low-rank-memory", seeds=2, size="ci", progress=False)["rows"]
    assert [(r["method"], r["draw"]) for r in rows] == [
        (m, d) for m in ("cross_entropy", "low_rank", "pixel") for d in (0, 1)
    ]
    assert all(r["metrics"]["last_loss"] < r["metrics"]["first_loss"] for r in rows)
    size = {r["method"]: r["metrics"]["parameters"] for r in rows}
    assert size["cross_entropy"] < size["low_rank"] < size["pixel"]
