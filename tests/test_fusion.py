"""Labels only: the vote, the mean and Dawid-Skene, with crowd-kit and the anaesthetists of 1979 as oracles."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from crowdkit.aggregation import DawidSkene, MajorityVote
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib import data
from course_lib.annotations import MISSING
from course_lib.annotators import annotate, hammer_spammers, pairwise_flippers
from course_lib.confusion import count_matrices, log, posterior
from course_lib.fusion import dawid_skene, majority, mean_label
from course_lib.metrics import accuracy, cm_error
from course_lib.networks import seeded

pytestmark = [
    pytest.mark.filterwarnings("ignore:Dawid-Skene still moved"),
    pytest.mark.filterwarnings("ignore:The (inplace|copy) keyword"),  # crowd-kit's
    pytest.mark.filterwarnings("ignore:.*reliability is not identifiable"),
]
quick = settings(max_examples=25, deadline=None)


@st.composite
def tables(draw, least_annotators=1):
    """Labels (N, R) with any gaps, not all missing, and L."""
    N, R, L = draw(st.integers(1, 8)), draw(st.integers(least_annotators, 5)), draw(st.integers(2, 4))
    flat = draw(st.lists(st.integers(-1, L - 1), min_size=N * R, max_size=N * R).filter(lambda x: max(x) >= 0))
    return torch.tensor(flat).reshape(N, R), L


def simulated(seed: int, N: int = 60, R: int = 4, L: int = 3, gaps: float = 0.25) -> torch.Tensor:
    """Labels of unevenly good people of unevenly common classes; every item has one, every class is said."""
    generator = seeded(seed)
    truth = torch.multinomial(torch.tensor([0.5, 0.3, 0.2, 0.1, 0.1])[:L].expand(N, L), 1, generator=generator)[:, 0]
    A = torch.cat(
        [hammer_spammers(R - 2, L, 0.5, generator=generator), pairwise_flippers(2, L, 0.7, generator=generator)]
    )
    labels = annotate(truth, A, generator=generator)
    gap = torch.rand(N, R, generator=generator) < gaps
    gap[torch.arange(N), torch.randint(R, (N,), generator=generator)] = False
    return torch.where(gap, MISSING, labels)


def crowdkit_frame(labels: torch.Tensor) -> pd.DataFrame:
    n, r = np.nonzero(labels.numpy() != MISSING)
    return pd.DataFrame({"task": n, "worker": r, "label": labels.numpy()[n, r]})


# The mean and the vote


@quick
@given(tables())
def test_the_mean_label_is_the_share_of_what_was_said(table):
    labels, L = table
    found = mean_label(labels, L)
    everything = [y for y in labels.flatten().tolist() if y != MISSING]
    for n, row in enumerate(labels.tolist()):
        said = [y for y in row if y != MISSING] or everything
        assert found[n].tolist() == pytest.approx([said.count(i) / len(said) for i in range(L)])


def test_the_mean_label_by_hand():
    found = mean_label(torch.tensor([[0, 1, 1, MISSING], [2, MISSING, MISSING, MISSING], [MISSING] * 4]), 3)
    assert found.dtype == torch.float64
    assert found[0].tolist() == pytest.approx([1 / 3, 2 / 3, 0])  # and not divided by 4
    assert found[1].tolist() == [0, 0, 1]
    assert found[2].tolist() == pytest.approx([1 / 4, 2 / 4, 1 / 4])  # nobody spoke: the shares of all labels


@quick
@given(tables())
def test_the_vote_is_among_the_commonest_and_the_lowest_of_a_tie(table):
    labels, L = table
    for row, vote in zip(labels.tolist(), majority(labels, L).tolist(), strict=True):
        said = [y for y in row if y != MISSING]
        counts = [said.count(i) for i in range(L)]
        assert vote == (counts.index(max(counts)) if said else MISSING)


@quick
@given(tables(), st.integers(0, 10**6))
def test_a_vote_with_a_generator_only_differs_in_ties(table, seed):
    labels, L = table
    for row, vote in zip(labels.tolist(), majority(labels, L, generator=seeded(seed)).tolist(), strict=True):
        counts = [row.count(i) for i in range(L)]
        assert vote == MISSING if max(row) == MISSING else counts[vote] == max(counts)


def test_ties_are_broken_evenly_with_a_generator():
    votes = majority(torch.tensor([[2, 0, 1, 0, 2, MISSING]]).expand(6000, 6), 4, generator=seeded(0))
    shares = torch.bincount(votes, minlength=4) / 6000
    assert shares.tolist() == pytest.approx([0.5, 0, 0.5, 0], abs=0.04)
    again = majority(torch.tensor([[2, 0, 1, 0, 2, MISSING]]).expand(6000, 6), 4, generator=seeded(0))
    assert torch.equal(votes, again)


@quick
@given(tables(least_annotators=2))
def test_the_vote_is_crowd_kits_where_there_is_no_tie(table):
    labels, L = table
    wanted = MajorityVote().fit_predict(crowdkit_frame(labels))
    votes = majority(labels, L)
    for n, label in wanted.items():
        counts = sorted(labels[n].tolist().count(i) for i in range(L))
        if counts[-1] > counts[-2]:
            assert int(votes[n]) == label


def test_unanimous_vote_wins():
    labels = torch.tensor([[1, 1, 1], [0, 0, MISSING], [MISSING, 2, MISSING]])
    for vote in (majority(labels, 3), majority(labels, 3, generator=seeded(0)), mean_label(labels, 3).argmax(1)):
        assert vote.tolist() == [1, 0, 2]


@pytest.mark.parametrize("function", [mean_label, majority, dawid_skene])
def test_labels_are_checked(function):
    with pytest.raises(ValueError, match="3: 1"):
        function(torch.tensor([[0, 3], [1, 1]]), 3)
    with pytest.raises(ValueError, match=r"\(N, R\)"):
        function(torch.tensor([0, 1, 1]), 2)


@pytest.mark.parametrize("function", [mean_label, dawid_skene])
def test_no_label_at_all_is_refused(function):
    with pytest.raises(ValueError, match="no label at all"):
        function(torch.full((3, 2), MISSING), 2)


# Dawid-Skene against the slow loop, crowd-kit and the paper


def slow_dawid_skene(labels: list[list[int]], L: int, iterations: int, smoothing: float):
    N, R = len(labels), len(labels[0])
    rows = [[y for y in row if y != MISSING] for row in labels]
    every = [y for row in rows for y in row]
    p = [[(row or every).count(j) / len(row or every) for j in range(L)] for row in rows]
    for _ in range(iterations):
        prior = [sum(p[n][j] for n in range(N) if rows[n]) / sum(map(bool, rows)) for j in range(L)]
        A = {}
        for r in range(R):
            for j in range(L):
                met = sum(p[n][j] for n in range(N) if labels[n][r] != MISSING) + L * smoothing
                for i in range(L):
                    said = sum(p[n][j] for n in range(N) if labels[n][r] == i) + smoothing
                    A[r, i, j] = said / met if met else float(i == j)
        p = []
        for row in labels:
            weight = [prior[j] * math.prod(A[r, y, j] for r, y in enumerate(row) if y != MISSING) for j in range(L)]
            p.append([w / sum(weight) for w in weight])
    return p, A, prior


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("seed", [0, 1])
def test_dawid_skene_is_the_slow_loop(seed, smoothing):
    labels = simulated(seed, N=25, R=3, L=3)
    labels[3] = MISSING
    found = dawid_skene(labels, 3, smoothing=smoothing, max_iterations=4, tolerance=0)
    p, A, prior = slow_dawid_skene(labels.tolist(), 3, 4, smoothing)
    assert np.allclose(found.p, p, atol=1e-9)
    assert np.allclose(found.prior, prior, atol=1e-9)
    for (r, i, j), value in A.items():
        assert float(found.A[r, i, j]) == pytest.approx(value, abs=1e-9)
    assert found.iterations == 4


@pytest.mark.parametrize(("seed", "R", "L"), [(0, 4, 3), (1, 5, 2), (2, 3, 4), (3, 6, 3), (4, 4, 4), (5, 5, 5)])
@pytest.mark.parametrize("iterations", [1, 25])
def test_without_smoothing_dawid_skene_is_crowd_kits(seed, R, L, iterations):
    labels = simulated(seed, N=80, R=R, L=L)
    found = dawid_skene(labels, L, smoothing=0, max_iterations=iterations, tolerance=0)
    oracle = DawidSkene(n_iter=iterations, tol=-math.inf).fit(crowdkit_frame(labels))
    wanted = oracle.probas_.sort_index()[list(range(L))].to_numpy()
    assert np.abs(found.p.numpy() - wanted).max() < 1e-6
    assert (labels == MISSING).any()


def test_the_seven_readings_of_1979_as_seven_people():
    labels, _ = data.anaesthetists()
    found = dawid_skene(labels, 4, smoothing=0)
    assert found.converged
    assert [round(x, 2) for x in found.p.mean(0).tolist()] == [0.42, 0.40, 0.11, 0.07]


def test_the_five_anaesthetists_of_1979_have_the_prevalences_of_the_paper():
    """As in the paper, the three readings of the first are of one person: one matrix for columns 0, 1 and 2."""
    labels, _ = data.anaesthetists()
    found = dawid_skene(labels, 4, people=[0, 0, 0, 1, 2, 3, 4], smoothing=0)
    assert [round(x, 2) for x in found.p.mean(0).tolist()] == [0.40, 0.42, 0.11, 0.07]
    assert torch.equal(found.A[0], found.A[2]) and not torch.equal(found.A[2], found.A[3])
    p = mean_label(labels, 4)
    for _ in range(found.iterations):  # the same by a plain loop
        A = count_matrices(labels, p)
        A[:3] = count_matrices(labels[:, :3].reshape(-1, 1), p.repeat_interleave(3, 0))
        p = posterior(log(A)[None], log(p.mean(0)).expand_as(p), labels).exp()
    assert torch.allclose(found.p, p, atol=1e-9)


def test_people_name_each_column():
    with pytest.raises(ValueError, match="R=7.*got 2"):
        dawid_skene(data.anaesthetists()[0], 4, people=[0, 1])


def test_dawid_skene_recovers_matrices_and_beats_the_vote():
    truth = torch.arange(3000) % 3
    A = torch.cat([pairwise_flippers(3, 3, 0.55, generator=seeded(1)), hammer_spammers(2, 3, 0.8, generator=seeded(1))])
    labels = annotate(truth, A, per_item=4, generator=seeded(2))
    found = dawid_skene(labels, 3)
    assert cm_error(A, found.A.float()) < 0.005
    assert accuracy(found.p.argmax(1), truth) > accuracy(majority(labels, 3), truth) + 0.02


def test_a_step_by_hand():
    labels = torch.tensor([[0, 0], [0, 1], [1, 1]])
    # start p = (1, 0), (.5, .5), (0, 1); A1 = [[1, 1/3], [0, 2/3]], A2 = [[2/3, 0], [1/3, 1]], prior (.5, .5)
    found = dawid_skene(labels, 2, smoothing=0, max_iterations=1)
    assert torch.allclose(found.A[0], torch.tensor([[1.0, 1 / 3], [0.0, 2 / 3]], dtype=torch.float64))
    assert torch.allclose(found.A[1], torch.tensor([[2 / 3, 0.0], [1 / 3, 1.0]], dtype=torch.float64))
    assert found.p[:, 0].tolist() == pytest.approx([1, 0.5, 0])
    assert found.prior.tolist() == pytest.approx([0.5, 0.5])


# What must hold whatever the labels


@quick
@given(tables(), st.sampled_from([0.0, 0.01, 1.0]))
def test_the_result_is_made_of_distributions(table, smoothing):
    labels, L = table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = dawid_skene(labels, L, smoothing=smoothing, max_iterations=20)
    assert torch.allclose(found.p.sum(1), torch.ones(len(labels), dtype=torch.float64))
    assert torch.allclose(found.A.sum(1), torch.ones(labels.shape[1], L, dtype=torch.float64))
    assert float(found.prior.sum()) == pytest.approx(1)
    assert found.n_labels.tolist() == (labels != MISSING).sum(1).tolist()
    silent = found.n_labels == 0
    assert torch.allclose(found.p[silent], found.prior.expand_as(found.p)[silent])


@quick
@given(tables(least_annotators=2), st.randoms(use_true_random=False))
def test_the_order_of_annotators_and_items_does_not_matter(table, random):
    labels, L = table
    people, items = list(range(labels.shape[1])), list(range(len(labels)))
    random.shuffle(people)
    random.shuffle(items)
    first = dawid_skene(labels, L, max_iterations=5, tolerance=0)
    second = dawid_skene(labels[items][:, people], L, max_iterations=5, tolerance=0)
    assert torch.allclose(first.p[items], second.p, atol=1e-7)
    assert torch.allclose(first.A[people], second.A, atol=1e-7)


@quick
@given(tables(least_annotators=2), st.randoms(use_true_random=False))
def test_renaming_the_classes_renames_the_result(table, random):
    labels, L = table
    order = list(range(L))
    random.shuffle(order)
    renamed = torch.where(labels == MISSING, MISSING, torch.tensor(np.argsort(order))[labels.clamp(min=0)])
    first = dawid_skene(labels, L, max_iterations=5, tolerance=0)
    second = dawid_skene(renamed, L, max_iterations=5, tolerance=0)
    assert torch.allclose(first.p[:, order], second.p, atol=1e-7)
    assert torch.allclose(first.A[:, order][:, :, order], second.A, atol=1e-7)


@quick
@given(tables(least_annotators=2), st.integers(2, 3))
def test_every_item_twice_is_the_same_result_twice(table, times):
    labels, L = table
    once = dawid_skene(labels, L, smoothing=0, max_iterations=4, tolerance=0)
    more = dawid_skene(labels.repeat(times, 1), L, smoothing=0, max_iterations=4, tolerance=0)
    assert torch.allclose(more.p, once.p.repeat(times, 1), atol=1e-7)


# What users ran into


def test_items_and_annotators_without_labels_disturb_nobody():
    labels = torch.tensor([[0, MISSING, 0], [1, MISSING, 1], [0, MISSING, MISSING], [1, MISSING, 0]])
    found = dawid_skene(labels, 2, max_iterations=8, tolerance=0)
    without = dawid_skene(labels[:, [0, 2]], 2, max_iterations=8, tolerance=0)
    assert torch.allclose(found.p, without.p)
    more = dawid_skene(torch.cat([labels, torch.full((2, 3), MISSING)]), 2, max_iterations=8, tolerance=0)
    assert torch.allclose(more.p[:4], found.p)
    assert more.n_labels.tolist() == [2, 2, 1, 2, 0, 0]
    assert torch.allclose(more.p[4:], more.prior.expand(2, 2))


def test_an_annotator_who_never_labelled_gets_a_matrix_that_says_nothing_was_seen():
    labels = torch.tensor([[0, MISSING, 0], [1, MISSING, 1], [1, MISSING, 0]])
    assert torch.allclose(dawid_skene(labels, 2).A[1], torch.full((2, 2), 0.5, dtype=torch.float64))
    assert torch.equal(dawid_skene(labels, 2, smoothing=0).A[1], torch.eye(2, dtype=torch.float64))


def test_one_annotator_is_returned_with_a_warning():
    labels = torch.tensor([[0], [1], [MISSING], [1]])
    with pytest.warns(UserWarning, match="not identifiable"):
        found = dawid_skene(labels, 2)
    assert found.p.argmax(1)[[0, 1, 3]].tolist() == [0, 1, 1]
    assert (found.p[[0, 1, 3]].max(1).values > 0.9).all()
    assert found.p.shape == (4, 2)  # missing is no class


def test_with_one_label_an_item_the_fused_label_is_that_label():
    A = pairwise_flippers(4, 3, 0.6, generator=seeded(0))
    labels = annotate(torch.arange(45) % 3, A, per_item=1, generator=seeded(1))
    assert torch.equal(dawid_skene(labels, 3).p.argmax(1), labels.max(1).values)


def test_two_annotators_who_mostly_agree_keep_what_they_agree_on():
    labels = torch.tensor([[0, 0]] * 5 + [[1, 1]] * 4 + [[0, 1], [1, MISSING]])
    found = dawid_skene(labels, 2)
    assert found.p.argmax(1)[:9].tolist() == [0] * 5 + [1] * 4
    assert int(found.p.argmax(1)[10]) == 1


def test_unanimous_items_keep_their_label():
    labels = torch.cat([torch.ones(140, 5), torch.randint(2, (60, 5), generator=seeded(0))]).long()
    found = dawid_skene(labels, 2)
    assert (found.p[:140].argmax(1) == 1).all()
    zeros = (labels[140:] == 0).all(1)
    assert (found.p[140:][zeros].argmax(1) == 0).all()


def test_a_consensus_that_inverts_people_is_never_silent():
    """50 annotators little better than chance, three labels an item: the warnings are just what the answer is."""
    spoke = []
    for seed in range(8):
        generator = seeded(seed)
        truth = (torch.rand(300, 1, generator=generator) < 0.1).long()
        said = torch.where(torch.rand(300, 50, generator=generator) < 0.55, truth, 1 - truth)
        labels = torch.where(torch.rand(300, 50, generator=generator).argsort(1) < 3, said, MISSING)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = dawid_skene(labels, 2)
        heard = " ".join(str(w.message) for w in caught)
        disputed = mean_label(labels, 2).max(1).values < 1  # of three labels none can tie
        against = float((found.labels != majority(labels, 2))[disputed].double().mean()) > 0.5
        worse = float((found.A.diagonal(dim1=1, dim2=2).sum(1) < 1 - 1e-9).double().mean()) > 0.5
        assert ("contradicts the vote on most items" in heard) == against
        assert ("most annotators worse than guessing" in heard) == worse
        spoke.append(against or worse)
    assert any(spoke) and not all(spoke)


def test_people_who_never_spoke_are_not_called_worse_than_guessing():
    labels = torch.full((9, 12), MISSING)
    labels[:, :2] = (torch.arange(9) % 3)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dawid_skene(labels, 3)


def test_a_class_that_nobody_said_is_told_once():
    with pytest.warns(UserWarning, match=r"nobody ever said \[1\]") as caught:
        found = dawid_skene(torch.tensor([[0, 0], [2, 2], [0, 2], [2, 2]]), 3)
    assert len(caught) == 1 and found.A.shape == (2, 3, 3) and found.sensitivity[:, 1].isnan().all()


@pytest.mark.filterwarnings("ignore:nobody ever said")
def test_one_class_only_is_that_class_and_settles():
    for k in (0, 1):
        found = dawid_skene(torch.full((6, 3), k), 2)
        assert found.converged
        assert (found.p.argmax(1) == k).all() and torch.isfinite(found.p).all()


def test_who_never_used_a_class_does_not_veto_it_for_everybody():
    labels = torch.cat([
        torch.tensor([[0, 0, 0, 0, 0]] * 20 + [[1, 1, 1, 1, 0]] * 10),  # the fifth never says 1 ...
        torch.tensor([[0, 0, 0, 0, 1]] * 3),  # ... but where the others say 0
        torch.tensor([[1, 1, 1, 1, 1]]),  # until here
    ])  # fmt: skip
    found = dawid_skene(labels, 2)
    assert float(found.p[-1, 1]) > 0.5
    zero = torch.eye(2, dtype=torch.float64).expand(5, 2, 2) * 0.8 + 0.1
    zero = zero.clone()
    zero[4] = torch.tensor([[0.9, 1.0], [0.1, 0.0]])  # a fifth whose A[1, 1] is exactly 0
    vetoed = posterior(log(zero)[None], log(torch.tensor([[0.5, 0.5]], dtype=torch.float64)), labels[-1:])
    assert torch.isfinite(vetoed.exp()).all()


def test_without_smoothing_nothing_is_divided_by_zero():
    for seed in range(20):
        labels = torch.randint(-1, 4, (6, 3), generator=seeded(seed))
        found = dawid_skene(labels, 4, smoothing=0)
        assert torch.isfinite(found.p).all() and torch.isfinite(found.A).all()
        assert torch.allclose(found.p.sum(1), torch.ones(6, dtype=torch.float64))


def test_em_that_has_not_settled_says_so_and_is_repeatable():
    labels = simulated(0)
    with pytest.warns(UserWarning, match="still moved by"):
        found = dawid_skene(labels, 3, max_iterations=2)
    assert not found.converged and found.iterations == 2
    with pytest.warns(UserWarning):
        again = dawid_skene(labels, 3, max_iterations=2)
    assert torch.equal(found.p, again.p)


def test_em_that_has_settled_says_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = dawid_skene(simulated(0), 3, max_iterations=1000)
    assert found.converged and 1 < found.iterations < 1000
    again = dawid_skene(simulated(0), 3, max_iterations=found.iterations + 50, tolerance=0)
    assert torch.allclose(found.p, again.p, atol=1e-3)


@pytest.mark.parametrize("wrong", [{"max_iterations": 0}, {"max_iterations": -3}, {"smoothing": -0.1}])
def test_no_iterations_and_negative_smoothing_are_refused(wrong):
    with pytest.raises(ValueError, match="max_iterations >= 1 and smoothing >= 0"):
        dawid_skene(torch.tensor([[0, 1], [1, 1]]), 2, **wrong)
