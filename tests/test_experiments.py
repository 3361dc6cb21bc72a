"""Experiments: the rows are what the schema says, they come out the same twice, and verdicts are computed from them."""

import json
import math
import os
import types

import numpy as np
import pytest
import torch
from scipy import stats

from course_lib import experiments, fusion
from course_lib.experiments import claims, classes, matrices
from course_lib.methods.trace import Trace, Vanilla

HEAD = ["experiment", "size", "device", "commit", "versions", "seconds", "rows"]
ROW = ["method", "setting", "draw", "seed", "seconds", "peak_mb", "metrics"]
PLAIN = {"accuracy", "count_cm_error", "dominance"}
LEARNERS = PLAIN | {"cm_error", "skill_mae", "estimated_dominance"}


@pytest.fixture(scope="module")
def result() -> dict:
    """The real thing at `ci` size, run once."""
    return experiments.run("trace-mnist5k", seeds=2, size="ci", progress=False)


@pytest.fixture
def tiny(monkeypatch):
    """The same experiments on a few digits for one epoch."""
    full = classes.small_digits()
    cut = {"train": slice(None, None, 18), "validation": slice(None, None, 8), "test": slice(None, None, 10)}
    few = classes.Digits(
        {name: x[cut[name]] for name, x in full.images.items()},
        {name: y[cut[name]] for name, y in full.truth.items()},
        full.network,
    )
    monkeypatch.setattr(classes, "small_digits", lambda: few)
    monkeypatch.setattr(classes, "sized", lambda *_, **__: types.SimpleNamespace(epochs=1, batch_size=64))
    return few


def without_costs(result: dict) -> list[dict]:
    return [{key: value for key, value in row.items() if key not in ("seconds", "peak_mb")} for row in result["rows"]]


# The result


def test_the_result_has_the_schema_of_the_design(result):
    assert list(result) == HEAD
    assert (result["experiment"], result["size"]) == ("trace-mnist5k", "ci")
    assert result["seconds"] > 0 and result["device"] and result["commit"]
    assert set(result["versions"]) == {"course_lib", "torch", "numpy", "python"}
    for row in result["rows"]:
        assert list(row) == ROW
        assert set(row["setting"]) == {"annotators", "skill", "per_item"}
        assert isinstance(row["draw"], int) and isinstance(row["seed"], int)
        assert row["seconds"] > 0 and row["peak_mb"] > 0
    assert json.loads(json.dumps(result)) == result


def test_there_is_a_row_for_every_method_setting_and_draw_and_nothing_is_averaged(result):
    keys = [(r["method"], r["setting"]["skill"], r["draw"], r["seed"]) for r in result["rows"]]
    wanted = {
        (method, skill, draw, draw)
        for method in ("oracle", "trace", "no_trace", "vanilla")
        for skill in (0.45, 0.35)
        for draw in (0, 1)
    }
    assert len(keys) == len(set(keys)) == 16 and set(keys) == wanted
    assert {r["setting"]["annotators"] for r in result["rows"]} == {"pairwise_flippers"}
    assert {r["setting"]["per_item"] for r in result["rows"]} == {1}


def test_metrics_are_named_as_in_the_design_and_lie_in_their_ranges(result):
    for row in result["rows"]:
        found = row["metrics"]
        assert set(found) == (LEARNERS if row["method"] != "vanilla" else PLAIN)
        assert all(math.isfinite(value) for value in found.values())
        assert 0 <= found["accuracy"] <= 1 and 0 <= found["count_cm_error"] <= 2
        assert 0 <= found.get("cm_error", 0) <= 2 and 0 <= found.get("skill_mae", 0) <= 1
        assert -1 <= found["dominance"] <= 1
        assert all(round(value, 5) == value for value in found.values())


def test_rows_of_one_draw_saw_the_same_annotators(result):
    """Paired: dominance is of the draw, not of the method."""
    for skill in (0.45, 0.35):
        by_draw = {}
        for row in result["rows"]:
            if row["setting"]["skill"] == skill:
                by_draw.setdefault(row["draw"], set()).add(row["metrics"]["dominance"])
        assert all(len(values) == 1 for values in by_draw.values())
        assert by_draw[0] != by_draw[1]


def test_the_oracle_knows_the_matrices_and_leads_by_a_margin(result):
    oracle = experiments.values(result, "oracle", "cm_error")
    assert oracle.shape == (4,) and (oracle < 1e-5).all()
    lead = experiments.values(result, "oracle", "accuracy") - experiments.values(result, "vanilla", "accuracy")
    assert lead.mean() > 0.03
    assert experiments.values(result, "oracle", "accuracy").min() > 0.75  # chance is .1


def test_twice_gives_the_same_rows_whatever_torch_has_drawn_before(tiny):
    found = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        found.append(without_costs(experiments.run("trace-mnist5k", seeds=2, size="ci", progress=False)))
    assert found[0] == found[1]
    assert len(found[0]) == 16


def test_the_other_experiment_runs_dense_and_single_labels(tiny):
    rows = experiments.run("trace-spammers", seeds=1, size="ci", progress=False)["rows"]
    assert {(r["method"], r["setting"]["per_item"]) for r in rows} == {
        (method, k) for method in ("oracle", "trace", "no_trace", "joint", "vanilla") for k in (1, 5)
    }
    assert len(rows) == 10


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="'trace-mnist'.*trace-mnist5k, trace-spammers, "):
        experiments.run("trace-mnist")


@pytest.mark.parametrize("seeds", [0, -1])
def test_there_is_at_least_one_seed(seeds):
    with pytest.raises(ValueError, match="seeds"):
        experiments.run("trace-mnist5k", seeds=seeds)


def test_an_unknown_size_is_refused():
    with pytest.raises(ValueError, match="ci, lesson, paper"):
        experiments.run("trace-mnist5k", seeds=1, size="huge")


def test_an_absent_device_is_refused_before_the_work(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="'cuda' is not on this machine"):
        experiments.run("trace-mnist5k", seeds=1, size="ci", device="cuda", progress=False)


# What a run sees


SETTING = {"annotators": "pairwise_flippers", "skill": 0.45, "per_item": 1}


def test_a_run_never_sees_the_truth(tiny):
    run = classes.prepare(tiny, SETTING, seed=3)
    for part in (run.crowd, run.vote, run.held_out_vote, run.dawid_skene):
        assert part.truth is None
    assert ((run.crowd.labels >= 0).sum(1) == 1).all()
    assert run.vote.labels.shape == (len(tiny.truth["train"]), 1)
    vote = fusion.majority(run.crowd.labels, 10)
    assert torch.equal(run.vote.labels[:, 0], vote)  # with one label an item there are no ties
    assert run.vote.images is run.crowd.images
    wrong = (vote != tiny.truth["train"]).float().mean()
    assert 0.4 < wrong < 0.7
    again = classes.prepare(tiny, SETTING, seed=3)
    assert torch.equal(again.crowd.labels, run.crowd.labels) and torch.equal(again.A, run.A)
    assert not torch.equal(classes.prepare(tiny, SETTING, seed=4).A, run.A)


def test_dawid_skene_is_the_vote_with_one_label_and_better_with_five(tiny):
    one, dense = (classes.prepare(tiny, SETTING | {"per_item": k}, seed=3) for k in (1, 5))
    assert torch.equal(one.dawid_skene.labels, one.vote.labels)
    right = [(d.labels[:, 0] == tiny.truth["train"]).float().mean() for d in (dense.vote, dense.dawid_skene)]
    assert right[0] + 0.05 < right[1]


def test_digits_are_split_without_overlap_and_in_the_sizes_of_the_chapter():
    digits = classes.small_digits()
    sizes = {name: len(x) for name, x in digits.images.items()}
    assert sizes == {"train": 3600, "validation": 400, "test": 1000}
    together = torch.cat(list(digits.images.values())).flatten(1)
    assert len(torch.unique(together, dim=0)) == 5000
    assert all(torch.bincount(y, minlength=10).unique().numel() == 1 for y in digits.truth.values())


def test_methods_start_from_the_same_weights_and_differ_in_what_they_are(tiny):
    run, network = classes.prepare(tiny, SETTING, seed=4), classes.small_digits().network
    built = {name: way.build(lambda n=10: network(4, n), run) for name, way in classes.METHODS.items()}
    start = built["trace"].network.state_dict()
    for name, method in built.items():
        if name != "doctor_net":  # ten outputs for each annotator
            assert all(torch.equal(start[key], tensor) for key, tensor in method.network.state_dict().items())
    assert isinstance(built["vanilla"], Vanilla)
    lambdas = {name: round(float(m.lam), 3) for name, m in built.items() if isinstance(m, Trace)}
    assert lambdas.pop("single_cm") == lambdas.pop("trace_from_truth") == 0.02
    assert lambdas == {"oracle": 0.0, "trace": 0.02, "no_trace": 0.0, "joint": 0.0}
    assert [name for name, m in built.items() if isinstance(m, Trace) and m.joint] == ["joint"]
    for name in ("oracle", "trace_from_truth"):
        assert torch.allclose(built[name].confusion(), run.A, atol=1.1e-3)
    assert {name for name, way in classes.METHODS.items() if way.stops} >= {"vanilla", "bootstrap_soft"}


@pytest.fixture
def short(monkeypatch, tiny):
    """One skill, one epoch: what an experiment runs, not how well."""
    sized = lambda size, epochs, batch_size: types.SimpleNamespace(epochs=5, batch_size=256)  # noqa: E731
    monkeypatch.setattr(classes, "sized", sized)
    monkeypatch.setattr(classes, "SKILLS", (0.45,))
    monkeypatch.setattr(classes, "LAMBDAS", (0.0, 0.02))
    monkeypatch.setattr(classes, "ROUNDS", (2,))


def home(name: str) -> str:
    """The module of `experiments` that an experiment is written in."""
    function = experiments.EXPERIMENTS[name]
    return getattr(function, "func", function).__module__.rpartition(".")[2]


ON_DIGITS = [n for n in sorted(experiments.EXPERIMENTS) if home(n) == "classes" or n == "mean-matrices"]  # Part I


@pytest.mark.parametrize("name", ON_DIGITS)
def test_every_experiment_gives_every_method_on_every_setting_once(name, short):
    rows = experiments.run(name, seeds=1, size="ci", progress=False)["rows"]
    methods, settings = ({json.dumps(row[key]) for row in rows} for key in ("method", "setting"))
    assert len(rows) == len({(r["method"], json.dumps(r["setting"])) for r in rows}) == len(methods) * len(settings)
    assert all(math.isfinite(value) for row in rows for value in row["metrics"].values())
    assert all({"accuracy", "count_cm_error", "dominance"} <= set(row["metrics"]) for row in rows)


def test_matrices_are_written_entry_by_entry_and_read_back(short):
    row = experiments.run("mean-matrices", seeds=1, size="ci", progress=False)["rows"][0]
    for name in ("true", "mean"):
        A = matrices.matrix(row["metrics"], name)
        assert A.shape == (10, 10) and torch.allclose(A.sum(0), torch.ones(10), atol=2e-3)
    A = torch.rand(3, 3).round(decimals=4)
    assert torch.equal(matrices.matrix(matrices.entries("x", A), "x"), A)


def test_groups_are_those_that_the_experiments_draw():
    rows = experiments.run("annotator-groups", seeds=2, size="ci", progress=False)["rows"]
    assert [(row["method"], row["draw"]) for row in rows] == [(panel, s) for panel in classes.PANELS for s in (0, 1)]
    run = classes.prepare(classes.small_digits(), {"annotators": "diverse", "skill": 0.45, "per_item": 1}, 1)
    for r in range(4):
        assert torch.allclose(matrices.matrix(rows[-1]["metrics"], f"a{r}"), run.A[r], atol=1e-4)


# Files


def made_up(name: str = "made-up", size: str = "lesson", **numbers: dict) -> dict:
    """A result whose methods have the given numbers: method -> (draw, seed, skill) -> accuracy."""
    rows = [
        {
            "method": method, "setting": {"skill": skill}, "draw": draw, "seed": seed, "seconds": 1.0, "peak_mb": 1,
            "metrics": {"accuracy": value, "cm_error": 1 - value},
        }
        for method, cells in numbers.items()
        for (draw, seed, skill), value in cells.items()
    ]  # fmt: skip
    return {
        "experiment": name, "size": size, "device": "cpu", "commit": "-", "versions": {}, "seconds": 1.0, "rows": rows,
    }  # fmt: skip


def per_draw(*values: float, skill: float = 0.45) -> dict:
    return {(draw, 0, skill): value for draw, value in enumerate(values)}


def test_what_is_written_is_read_back(tmp_path):
    result = made_up(trace=per_draw(0.9, 0.8), vanilla=per_draw(0.7, 0.6))
    path = experiments.write(result, tmp_path / "deep" / "out")
    assert path == tmp_path / "deep" / "out" / "made-up.lesson.json"
    assert experiments.read(path) == result
    assert [p.name for p in path.parent.iterdir()] == ["made-up.lesson.json"]
    lines = path.read_text().splitlines()
    assert len(lines) == 1 + 4 + 1 and json.loads(path.read_text()) == result  # a row a line


def test_a_real_result_survives_the_file(result, tmp_path):
    assert experiments.read(experiments.write(result, tmp_path)) == result


def test_a_result_without_rows_is_still_whole_json(tmp_path):
    result = made_up()
    assert experiments.read(experiments.write(result, tmp_path)) == result


def test_a_result_that_cannot_be_written_leaves_the_old_file(tmp_path):
    good = made_up(trace=per_draw(0.9))
    path = experiments.write(good, tmp_path)
    bad = made_up(trace=per_draw(0.9))
    bad["rows"][0]["metrics"]["accuracy"] = torch.tensor(0.9)
    with pytest.raises(TypeError):
        experiments.write(bad, tmp_path)
    assert experiments.read(path) == good
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_result_is_not_seen_before_it_is_whole(tmp_path, monkeypatch):
    good = made_up(trace=per_draw(0.9))
    path = experiments.write(good, tmp_path)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("stopped just before")))
    with pytest.raises(OSError, match="stopped just before"):
        experiments.write(made_up(trace=per_draw(0.1)), tmp_path)
    assert experiments.read(path) == good


@pytest.mark.parametrize("content", ["", '{"experiment": "x", "rows": [', "<html></html>", "[1, 2]", "{}", '"text"'])
def test_a_file_that_is_no_result_is_named(content, tmp_path):
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="broken.json"):
        experiments.read(path)


def test_selecting_takes_the_rows_of_a_method_where_the_setting_holds_in_order():
    result = made_up(
        trace={(1, 0, 0.45): 0.1, (0, 1, 0.45): 0.2, (0, 0, 0.45): 0.3, (0, 0, 0.35): 0.4},
        vanilla=per_draw(0.9),
    )
    assert experiments.values(result, "trace", "accuracy", skill=0.45).tolist() == [0.3, 0.2, 0.1]
    assert experiments.values(result, "trace", "accuracy", skill=0.35).tolist() == [0.4]
    assert len(experiments.select(result, "trace")) == 4


@pytest.mark.parametrize(("method", "setting"), [("tracee", {}), ("trace", {"skill": 0.5}), ("trace", {"per_item": 1})])
def test_selecting_nothing_lists_what_there_is(method, setting):
    result = made_up(trace=per_draw(0.9))
    with pytest.raises(ValueError, match="made-up.*trace"):
        experiments.select(result, method, **setting)


# Claims


def claim(a="trace", b="vanilla", metric="accuracy", min_diff=0.05, **where) -> dict:
    return {
        "id": "x", "paper": "002", "where": "Fig. 3", "claim": "better", "theirs": "+10", "why": "because",
        "experiment": "made-up.lesson",
        "check": {"metric": metric, "a": a, "b": b, "where": where, "min_diff": min_diff},
    }  # fmt: skip


@pytest.fixture
def ship(monkeypatch, tmp_path):
    """ship(result): the result that `judge` will find; ship.claims(rows): the claims it will find."""
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(claims, "shipped", lambda name: tmp_path / name)

    def put(result: dict) -> None:
        experiments.write(result, tmp_path / "results")

    put.claims = lambda rows: (tmp_path / "claims.yaml").write_text(json.dumps(rows))  # JSON is YAML
    return put


def test_the_interval_by_hand():
    # mean 2, standard deviation 1, t(.975, 2) = 4.3027, 4.3027 / sqrt 3 = 2.4841
    mean, low, high = claims.interval(np.array([1.0, 2.0, 3.0]))
    assert (mean, low, high) == (pytest.approx(2), pytest.approx(-0.4841, abs=1e-4), pytest.approx(4.4841, abs=1e-4))


def test_the_interval_is_scipys():
    x = np.random.default_rng(0).normal(3, 2, 7)
    wanted = stats.ttest_1samp(x, 0).confidence_interval(0.95)
    assert claims.interval(x)[1:] == (pytest.approx(wanted.low), pytest.approx(wanted.high))


@pytest.mark.parametrize("n", [0, 1])
def test_an_interval_needs_two_draws(n):
    with pytest.raises(ValueError, match="at least 2 draws"):
        claims.interval(np.ones(n))


@pytest.mark.parametrize(
    ("trace", "verdict"),
    [
        ((0.90, 0.91, 0.92), "holds"),  # +.20 with a narrow interval
        ((0.73, 0.74, 0.75), "weaker"),  # +.03: above 0, not above .05
        ((0.70, 0.90, 0.80), "not reproduced"),  # +.09, but the interval holds 0
        ((0.60, 0.61, 0.62), "not reproduced"),  # worse
    ],
)
def test_the_verdict_follows_from_the_paired_interval(ship, trace, verdict):
    ship(made_up(trace=per_draw(*trace), vanilla=per_draw(0.70, 0.71, 0.72)))
    judged = claims.judge(claim())
    assert judged.verdict == verdict and judged.n == 3
    difference = np.array(trace) - [0.70, 0.71, 0.72]
    assert (judged.mean, judged.low, judged.high) == tuple(pytest.approx(x) for x in claims.interval(difference))
    assert verdict in claims.VERDICTS


def test_pairs_of_a_draw_are_subtracted_before_the_interval(ship):
    """Draws differ by far more than methods do: unpaired, nothing would be seen."""
    ship(made_up(trace=per_draw(0.3, 0.6, 0.9), vanilla=per_draw(0.2, 0.51, 0.81)))
    assert claims.judge(claim()).verdict == "holds"


def test_a_metric_where_less_is_better_is_judged_with_a_and_b_swapped(ship):
    ship(made_up(trace=per_draw(0.95, 0.96, 0.95), no_trace=per_draw(0.5, 0.52, 0.51)))  # cm_error = 1 - accuracy
    swapped = claims.judge(claim(a="no_trace", b="trace", metric="cm_error", min_diff=0.1))
    assert swapped.verdict == "holds" and swapped.mean == pytest.approx(0.4433, abs=1e-3)
    assert claims.judge(claim(a="trace", b="no_trace", metric="cm_error")).verdict == "not reproduced"


def test_two_numbers_of_one_run_are_compared_by_two_metrics(ship):
    ship(made_up(trace=per_draw(0.90, 0.91, 0.92)))  # cm_error = 1 - accuracy
    two = claim(b="trace")
    two["check"] |= {"metric_a": "accuracy", "metric_b": "cm_error"}
    assert claims.judge(two).mean == pytest.approx(0.91 - 0.09) and claims.judge(two).verdict == "holds"


def test_a_number_stands_for_itself_on_either_side(ship):
    ship(made_up(trace=per_draw(0.90, 0.91, 0.92)))
    assert claims.judge(claim(b=0.8)).mean == pytest.approx(0.11)
    assert claims.judge(claim(b=1)).verdict == "not reproduced"
    less = claims.judge(claim(a=0.5, b="trace", metric="cm_error"))
    assert less.mean == pytest.approx(0.41) and less.verdict == "holds"


def test_seeds_of_a_draw_are_averaged_and_count_once(ship):
    cells = {(draw, seed, 0.45): 0.9 + 0.01 * draw + 0.02 * seed for draw in range(3) for seed in range(4)}
    ship(made_up(trace=cells, vanilla={key: 0.5 for key in cells}))
    judged = claims.judge(claim())
    assert judged.n == 3
    assert judged.mean == pytest.approx(0.9 + 0.01 + 0.03 - 0.5)


def test_where_picks_the_setting(ship):
    trace = per_draw(0.90, 0.91, 0.92) | per_draw(0.5, 0.51, 0.52, skill=0.35)
    ship(made_up(trace=trace, vanilla=per_draw(0.7, 0.7, 0.7) | per_draw(0.7, 0.7, 0.7, skill=0.35)))
    assert claims.judge(claim(skill=0.45)).verdict == "holds"
    assert claims.judge(claim(skill=0.35)).verdict == "not reproduced"


def test_two_settings_of_one_draw_make_a_pair(ship):
    ship(made_up(trace=per_draw(0.90, 0.91, 0.92) | per_draw(0.8, 0.82, 0.81, skill=0.35)))
    one = claim(b="trace")
    one["check"] |= {"where_a": {"skill": 0.45}, "where_b": {"skill": 0.35}}
    judged = claims.judge(one)
    assert judged.verdict == "holds" and judged.mean == pytest.approx(0.1)


def test_settings_are_never_mixed_as_if_they_were_seeds(ship):
    trace = per_draw(0.90, 0.91, 0.92) | per_draw(0.5, 0.51, 0.52, skill=0.35)
    ship(made_up(trace=trace, vanilla=per_draw(0.7, 0.7, 0.7) | per_draw(0.7, 0.7, 0.7, skill=0.35)))
    with pytest.raises(ValueError, match="where|setting"):
        claims.judge(claim())


def test_draws_that_do_not_pair_are_refused(ship):
    ship(
        made_up(
            trace={(draw, 0, 0.45): 0.9 for draw in (0, 1, 2)}, vanilla={(draw, 0, 0.45): 0.7 for draw in (1, 2, 3)}
        )
    )
    with pytest.raises(ValueError, match="draw"):
        claims.judge(claim())


def test_one_draw_is_no_evidence(ship):
    ship(made_up(trace=per_draw(0.9), vanilla=per_draw(0.7)))
    with pytest.raises(ValueError, match="at least 2 draws"):
        claims.judge(claim())


def test_a_claim_without_a_check_is_not_tested():
    untested = {key: value for key, value in claim().items() if key != "check"}
    judged = claims.judge(untested)
    assert (judged.verdict, judged.n, judged.ours) == ("not tested", 0, "-")


def test_the_table_puts_our_numbers_beside_theirs(ship):
    ship(made_up(trace=per_draw(0.90, 0.91, 0.92), vanilla=per_draw(0.70, 0.71, 0.72)))
    untested = {key: value for key, value in claim().items() if key != "check"} | {"paper": "001"}
    ship.claims([claim(), untested])
    table = claims.table().splitlines()
    assert len(table) == 4
    assert "+0.200 [+0.200, +0.200], n = 3" in table[2] and "**holds**" in table[2] and "+10" in table[2]
    assert "**not tested**" in table[3] and "| - |" in table[3]
    assert len(claims.table("002").splitlines()) == 3
    assert len({line.count("|") for line in table}) == 1
    assert [c["paper"] for c in claims.claims("001")] == ["001"] and len(claims.claims()) == 2
