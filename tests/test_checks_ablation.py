"""Chapter 15: what its exercises and sections rest on; its exercises themselves are tested with all others."""

import ast

import numpy as np
import pytest
import torch
from exercises import code_cells, defined
from scipy import stats

from course_lib import fundus
from course_lib.checks import CheckFailed
from course_lib.checks import ablation as checks
from course_lib.edition import tags
from course_lib.experiments import claims, rivals
from course_lib.mask_annotators import draw_masks
from course_lib.methods.prism import Prism
from course_lib.networks import seeded


@pytest.fixture
def chapter() -> dict:
    """Imports, functions, classes and PARTS of the chapter, outside of its exercises."""
    space: dict = {"CUPS": "soft_dice_cup"}
    for cell in code_cells(15):
        if not {*tags(cell)} & {"stub", "solution"}:
            for node in ast.parse(cell.source).body:
                if isinstance(node, ast.Try):
                    exec("\n".join(ast.unparse(line) for line in node.body), space)
                elif isinstance(node, ast.FunctionDef | ast.ClassDef) or ast.unparse(node).startswith("PARTS ="):
                    exec(ast.unparse(node), space)
    return space


# ---- the exercises ---------------------------------------------------------------------------------------------------


def test_a_paired_interval_of_one_seed_is_that_of_the_claims():
    paired = defined(15, "solution")["paired_interval"]
    a, b = np.random.default_rng(0).normal(size=(2, 6, 1))
    assert np.allclose(paired(a, b), claims.interval((a - b)[:, 0]))
    assert np.allclose(paired(a.repeat(3, 1), b.repeat(3, 1)), paired(a, b))  # the same run thrice is no news


def test_the_number_that_fits_is_the_largest():
    fit = defined(15, "solution")["that_fit"]
    memory = lambda n, frugal: 5 + (n * 2 + 11 if frugal else n * 11)  # noqa: E731
    for room in range(1, 120, 7):
        for frugal in (False, True):
            n = fit(room, 5, 11, 2, frugal)
            assert n == 0 or memory(n, frugal) <= room
            assert memory(n + 1, frugal) > room


def test_a_variant_that_names_the_default_is_the_default():
    one_thing = defined(15, "solution")["one_thing"]
    found = one_thing(checks.VARIED, checks.USUAL)
    assert found.dtype == torch.bool and found.equal(found.T) and not found.diagonal().any()
    assert found[0].equal(found[6])


def test_who_chooses_blind_gains_nothing_where_there_is_nothing_to_choose():
    blind = defined(15, "solution")["chosen_blind"]
    noise = torch.randn(400, 5, 20, generator=seeded(0))
    gains = torch.stack([blind(x) for x in noise])
    assert abs(float(gains.mean())) < 4 * float(gains.std()) / 20
    assert noise.amax(2).mean() > 1.5
    better = noise + torch.nn.functional.one_hot(torch.tensor(3), 20) * 20
    assert all(float(blind(x)) == pytest.approx(float(x[:, 3].mean()), abs=1e-4) for x in better[:5])


def test_a_tuple_of_the_wrong_length_is_refused():
    with pytest.raises(CheckFailed, match="three numbers"):
        checks.paired_interval(lambda a, b: (0.0, 0.1))
    with pytest.raises(CheckFailed, match="wanted"):
        checks.paired_interval(lambda a, b: 0.1)


# ---- the sections ----------------------------------------------------------------------------------------------------


def test_the_intervals_by_hand_are_the_librarys(chapter):
    a, b = np.random.default_rng(1).normal(size=(2, 7))
    assert np.allclose(chapter["paired_by_hand"](a, b), claims.interval(a - b))
    welch = stats.ttest_ind(a, b, equal_var=False).confidence_interval()
    assert np.allclose(chapter["unpaired_by_hand"](a, b)[1:], (welch.low, welch.high))


def test_a_function_made_again_has_the_same_gradients(chapter):
    Again, net = chapter["Again"], torch.nn.Sequential(torch.nn.Linear(3, 9), torch.nn.Tanh(), torch.nn.Linear(9, 3))
    found = []
    for how in (net, lambda x: Again.apply(net, x)):
        net.zero_grad()
        x = torch.rand(5, 3, generator=seeded(0)).requires_grad_()
        how(how(x)).square().sum().backward()
        found.append([x.grad, *(p.grad.clone() for p in net.parameters())])
    assert all(torch.allclose(p, q, atol=1e-6) for p, q in zip(*found, strict=True))


def test_bytes_are_counted_while_an_array_lives(chapter):
    with chapter["Alive"]() as alive:
        a = torch.ones(1000)  # 4000 bytes
        b = a.view(10, 100)  # the same
        c = b + 1
        del c
        d = torch.zeros(500)
    assert (alive.now, alive.peak) == (6000, 8000) and len(d) == 500


def test_a_recurrence_more_is_flat_in_measured_bytes_and_batch_norm_sees_its_batch_twice(chapter):
    scene = fundus.disc_and_cup(4, size=16, generator=seeded(1))
    said = draw_masks(scene.truth, scene.images, fundus.PANELS["jitter"], n_classes=3, generator=seeded(2))
    batch = scene.images, said, torch.arange(7).expand(4, 7), torch.arange(4)
    peak, counted = {}, {}
    for frugal in (False, True):
        for n in (1, 3):
            method = Prism(3, 7, 3, width=8, recurrences=n, frugal=frugal, generator=seeded(0)).train()
            with chapter["Alive"]() as alive:
                method.loss(batch).backward()
            peak[frugal, n] = alive.peak
            counted[frugal, n] = int(method.conp.merge[0][1].num_batches_tracked)
    rise = {frugal: peak[frugal, 3] - peak[frugal, 1] for frugal in (False, True)}
    assert rise[True] < 0.4 * rise[False]
    assert counted == {(False, 1): 1, (False, 3): 3, (True, 1): 2, (True, 3): 6}


def test_each_pair_that_is_said_to_change_one_thing_does():
    """The chapter's list of contrasts against what the settings say."""
    (cell,) = [c for c in code_cells(15) if c.source.startswith("ONE_THING = ")]
    contrasts = ast.literal_eval(ast.parse(cell.source).body[0].value)
    usual = {"variant": "corrected", "integration": "concat", "losses": ("heads",), "where": "picture"}
    for a, b in contrasts.values():
        clean = defined(15, "solution")["one_thing"]([rivals.PRISMS[a], rivals.PRISMS[b]], usual)
        assert bool(clean[0, 1]), (a, b)


def test_a_chapter_without_its_results_says_so_and_no_more(chapter):
    def nowhere(name):
        raise FileNotFoundError(name)

    chapter["data"] = type("Nowhere", (), {"shipped": staticmethod(nowhere)})
    assert chapter["rows_of"]("table1") == [] and len(chapter["each"]("table1", "prism")) == 0
    for table in (chapter["league"]("table1"), chapter["contrasts"]("table1", {"vote - truth": ()})):
        assert "has not been run" in table.data


def test_a_difference_is_decided_in_words(chapter):
    x = np.array([0.5, 0.52, 0.51, 0.5])
    found = [chapter["versus"](x + d, x).split()[-1] for d in (0.1, -0.1, np.array([0.1, -0.1, 0.05, -0.04]))]
    assert found == ["ahead", "behind", "undecided"]
    assert chapter["versus"](x[:1], x[:1]) == chapter["versus"](x, x[:2]) == ""
