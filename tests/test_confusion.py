"""The one matrix: slow loops over Python numbers as the oracle, numbers worked by hand, and what must never change."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix

from course_lib import confusion
from course_lib.annotations import MISSING
from course_lib.confusion import (
    GlobalCM,
    apply,
    by_annotator,
    check_cm,
    check_p,
    count_matrices,
    dominance,
    evidence,
    joint_log_likelihood,
    label_log_likelihood,
    posterior,
    said_rows,
    skills,
    to_sklearn,
    trace,
)

A1 = torch.tensor([[0.9, 0.4], [0.1, 0.6]])  # A[said, truth]
A2 = torch.tensor([[0.8, 0.3], [0.2, 0.7]])
P = torch.tensor([[0.7, 0.3]])
LOG_A1, LOG_A2, LOG_BOTH, LOG_P = A1.log()[None, None], A2.log()[None, None], torch.stack([A1, A2]).log()[None], P.log()

# name -> B, R, L, S; the last two have equal sizes, where only the numbers show a swapped axis
SHAPES = {
    "classes": (5, 2, 3, ()),
    "pixels": (2, 5, 3, (4, 6)),
    "equal classes": (3, 3, 3, ()),
    "equal pixels": (3, 3, 3, (3, 3)),
}
KINDS = ("global", "own")  # one matrix for everything, or one for each image (and pixel)
CASES = [(name, kind) for name in SHAPES for kind in KINDS]


def drawn(B: int, R: int, L: int, S: tuple[int, ...], kind: str, seed: int = 0, gaps: float = 0.3):
    """log_A, log_p, labels in double precision: no matrix symmetric, no p uniform, `gaps` of the labels missing."""
    generator = torch.Generator().manual_seed(seed)
    where = (1, R, L, L, *[1] * len(S)) if kind == "global" else (B, R, L, L, *S)
    log_A = (2 * torch.randn(where, generator=generator, dtype=torch.float64)).log_softmax(2)
    log_p = (2 * torch.randn((B, L, *S), generator=generator, dtype=torch.float64)).log_softmax(1)
    labels = torch.randint(L, (B, R, *S), generator=generator)
    labels[torch.rand(labels.shape, generator=generator) < gaps] = MISSING
    return log_A, log_p, labels


def places(S: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(product(*[range(n) for n in S]))


def looped(log_A, log_p, labels):
    """Plain numbers: A(b, r, i, j, s), p(b, j, s), label(b, r, s)."""
    B, S = len(log_p), tuple(log_p.shape[2:])
    A = log_A.exp().expand(B, *log_A.shape[1:4], *S)
    p = log_p.exp()
    return (
        lambda b, r, i, j, s: float(A[(b, r, i, j, *s)]),
        lambda b, j, s: float(p[(b, j, *s)]),
        lambda b, r, s: int(labels[(b, r, *s)]),
    )


def close(found, wanted, tolerance=1e-9):
    found, wanted = torch.as_tensor(found).double(), torch.as_tensor(wanted).double()
    assert found.shape == wanted.shape
    assert torch.allclose(found, wanted, rtol=0, atol=tolerance), f"{found} is not {wanted}"


# Slow loops


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_apply_is_the_sum_over_truths(name, kind):
    B, R, L, S = SHAPES[name]
    log_A, log_p, labels = drawn(B, R, L, S, kind)
    A, p, _ = looped(log_A, log_p, labels)
    wanted = torch.zeros(B, R, L, *S, dtype=torch.float64)
    for b, r, i, s in product(range(B), range(R), range(L), places(S)):
        wanted[(b, r, i, *s)] = sum(A(b, r, i, j, s) * p(b, j, s) for j in range(L))
    close(apply(log_A, log_p).exp(), wanted)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_said_rows_are_the_rows_of_the_labels(name, kind):
    B, R, L, S = SHAPES[name]
    log_A, log_p, labels = drawn(B, R, L, S, kind)
    A, _, label = looped(log_A, log_p, labels)
    rows = said_rows(log_A, labels).exp()
    assert rows.shape == (B, R, L, *S)
    for b, r, j, s in product(range(B), range(R), range(L), places(S)):
        if label(b, r, s) != MISSING:
            assert float(rows[(b, r, j, *s)]) == pytest.approx(A(b, r, label(b, r, s), j, s))


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_label_log_likelihood_scores_each_label_on_its_own(name, kind):
    B, R, L, S = SHAPES[name]
    log_A, log_p, labels = drawn(B, R, L, S, kind)
    A, p, label = looped(log_A, log_p, labels)
    wanted = torch.zeros(B, R, *S, dtype=torch.float64)
    for b, r, s in product(range(B), range(R), places(S)):
        if label(b, r, s) != MISSING:
            likelihood = sum(A(b, r, label(b, r, s), j, s) * p(b, j, s) for j in range(L))
            wanted[(b, r, *s)] = math.log(likelihood)
    close(label_log_likelihood(log_A, log_p, labels), wanted)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_labels_of_a_few_annotators_count_as_if_the_others_were_silent(name, kind):
    B, R, L, S = SHAPES[name]
    log_A, log_p, labels = drawn(B, R, L, S, kind)
    G = max(1, R - 1)
    who = torch.rand(B, R, generator=torch.Generator().manual_seed(3)).argsort(1)[:, :G]  # in any order
    few = torch.stack([labels[b, who[b]] for b in range(B)])  # (B, G, *S)
    silent = torch.full_like(labels, MISSING)
    for b in range(B):
        silent[b, who[b]] = labels[b, who[b]]
    alone = label_log_likelihood(log_A, log_p, silent)
    close(label_log_likelihood(log_A, log_p, few, who), torch.stack([alone[b, who[b]] for b in range(B)]))
    close(evidence(log_A, few, who), evidence(log_A, silent))
    close(joint_log_likelihood(log_A, log_p, few, who), joint_log_likelihood(log_A, log_p, silent))
    close(posterior(log_A, log_p, few, who), posterior(log_A, log_p, silent))


def test_labels_and_who_must_agree():
    with pytest.raises(ValueError, match="`who` names 2 an item"):
        said_rows(torch.zeros(1, 5, 3, 3), torch.zeros(4, 1, dtype=torch.long), torch.zeros(4, 2, dtype=torch.long))


def weights(A, p, label, b, s, R, L) -> list[float]:
    """p[j] prod_r A[r, said, j] over the annotators who spoke, for every truth j."""
    found = []
    for j in range(L):
        product_ = p(b, j, s)
        for r in range(R):
            if label(b, r, s) != MISSING:
                product_ *= A(b, r, label(b, r, s), j, s)
        found.append(product_)
    return found


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_evidence_is_the_product_of_what_was_said(name, kind):
    B, R, L, S = SHAPES[name]
    log_A, log_p, labels = drawn(B, R, L, S, kind)
    A, _, label = looped(log_A, log_p, labels)
    wanted = torch.zeros(B, L, *S, dtype=torch.float64)
    for b, s in product(range(B), places(S)):
        for j, weight in enumerate(weights(A, lambda *_: 1.0, label, b, s, R, L)):
            wanted[(b, j, *s)] = math.log(weight)
    close(evidence(log_A, labels), wanted)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_joint_log_likelihood_scores_all_labels_together(name, kind):
    B, R, L, S = SHAPES[name]
    log_A, log_p, labels = drawn(B, R, L, S, kind)
    A, p, label = looped(log_A, log_p, labels)
    wanted = torch.zeros(B, *S, dtype=torch.float64)
    for b, s in product(range(B), places(S)):
        wanted[(b, *s)] = math.log(sum(weights(A, p, label, b, s, R, L)))
    close(joint_log_likelihood(log_A, log_p, labels), wanted)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_posterior_is_bayes(name, kind):
    B, R, L, S = SHAPES[name]
    log_A, log_p, labels = drawn(B, R, L, S, kind)
    A, p, label = looped(log_A, log_p, labels)
    wanted = torch.zeros(B, L, *S, dtype=torch.float64)
    for b, s in product(range(B), places(S)):
        each = weights(A, p, label, b, s, R, L)
        for j in range(L):
            wanted[(b, j, *s)] = each[j] / sum(each)
    close(posterior(log_A, log_p, labels).exp(), wanted)


@pytest.mark.parametrize(("R", "L"), [(2, 5), (3, 3)])
@pytest.mark.parametrize("smoothing", [0.0, 0.7])
def test_count_matrices_count_what_was_said_against_a_soft_truth(R, L, smoothing):
    N = 11
    _, log_q, labels = drawn(N, R, L, (), "global", seed=3)
    q = log_q.exp()
    wanted = torch.zeros(R, L, L, dtype=torch.float64)
    for r, j in product(range(R), range(L)):
        met = sum(float(q[n, j]) for n in range(N) if labels[n, r] != MISSING)
        for i in range(L):
            said = sum(float(q[n, j]) for n in range(N) if labels[n, r] == i)
            wanted[r, i, j] = (said + smoothing) / (met + L * smoothing)
    close(count_matrices(labels, q, smoothing=smoothing), wanted)


def test_trace_and_skills_walk_the_diagonal():
    A = torch.rand(2, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    for b, r in product(range(2), range(4)):
        wanted = sum(float(A[b, r, i, i]) for i in range(3))
        assert float(trace(A)[b, r]) == pytest.approx(wanted)
        assert float(skills(A)[b, r]) == pytest.approx(wanted / 3)


def test_dominance_is_the_smallest_margin_along_the_row_of_the_mean():
    log_A, _, _ = drawn(1, 4, 5, (), "global", seed=1)
    A = log_A[0].exp().float()
    mean = [[sum(float(A[r, i, j]) for r in range(4)) / 4 for j in range(5)] for i in range(5)]
    wanted = min(mean[i][i] - mean[i][j] for i, j in product(range(5), range(5)) if i != j)
    assert dominance(A) == pytest.approx(wanted, abs=1e-6)


# Numbers worked by hand


def test_apply_by_hand():
    close(apply(LOG_A1, LOG_P).exp(), [[[0.63 + 0.12, 0.07 + 0.18]]], 1e-6)


def test_the_row_stochastic_reading_would_give_other_numbers():
    one_hot = confusion.log(torch.tensor([[1.0, 0.0]]))
    close(apply(LOG_A1, one_hot).exp(), [[[0.9, 0.1]]], 1e-6)  # and not (.9, .4), which sums to 1.3


def test_label_log_likelihood_by_hand():
    close(label_log_likelihood(LOG_A1, LOG_P, torch.tensor([[1]])).exp(), [[0.25]], 1e-6)
    both = label_log_likelihood(LOG_BOTH, LOG_P, torch.tensor([[1, 0]])).exp()
    close(both, [[0.25, 0.8 * 0.7 + 0.3 * 0.3]], 1e-6)


def test_evidence_by_hand():
    close(evidence(LOG_BOTH, torch.tensor([[0, 1]])).exp(), [[0.9 * 0.2, 0.4 * 0.7]], 1e-6)


def test_joint_log_likelihood_by_hand():
    close(joint_log_likelihood(LOG_BOTH, LOG_P, torch.tensor([[0, 1]])).exp(), [0.7 * 0.18 + 0.3 * 0.28], 1e-6)


def test_posterior_by_hand():
    close(posterior(LOG_A1, LOG_P, torch.tensor([[0]])).exp(), [[0.84, 0.16]], 1e-6)  # .63 : .12
    close(posterior(LOG_A1, LOG_P, torch.tensor([[1]])).exp(), [[0.28, 0.72]], 1e-6)  # .07 : .18


def test_trace_and_skills_by_hand():
    close(trace(torch.stack([A1, A2])), [1.5, 1.5], 1e-6)
    close(skills(A1), 0.75, 1e-6)


def test_dominance_by_hand_runs_along_the_row():
    A = torch.tensor([[0.9, 0.7], [0.1, 0.3]])  # rows: .9 - .7, .3 - .1; down the columns it would be .8 and -.4
    assert dominance(A[None]) == pytest.approx(0.2, abs=1e-6)


def test_dominance_down_the_column_is_not_enough():
    A = torch.tensor([[0.40, 0.45, 0], [0.30, 0.55, 0], [0.30, 0, 1]])
    P = torch.tensor([[0.6, 0, 0], [0.4, 1, 0], [0, 0, 1]])
    true = A @ P
    for matrix in (A, true):  # the right label is the commonest of every truth in both
        assert (matrix.argmax(0) == torch.arange(3)).all()
    assert dominance(A[None]) == pytest.approx(-0.05, abs=1e-6)
    assert float(trace(A)) == pytest.approx(1.95) and float(trace(true)) == pytest.approx(1.97)


def test_dominance_is_of_the_mean_not_of_each():
    good, bad = torch.tensor([[0.9, 0.2], [0.1, 0.8]]), torch.tensor([[0.4, 0.5], [0.6, 0.5]])
    assert dominance(bad[None]) < 0 < dominance(torch.stack([good, bad]))


def test_count_matrices_by_hand():
    labels = torch.tensor([[0], [0], [1], [MISSING]])
    q = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.5, 0.5], [0.2, 0.8]], dtype=torch.float64)
    close(count_matrices(labels, q), [[[0.75, 0.5], [0.25, 0.5]]], 1e-9)
    smooth = [[[2.5 / 4, 1.5 / 3], [1.5 / 4, 1.5 / 3]]]
    close(count_matrices(labels, q, smoothing=1), smooth, 1e-9)


def test_a_class_never_met_leaves_the_identity_or_the_uniform_column():
    labels, q = torch.tensor([[0], [1]]), torch.tensor([[1.0, 0, 0], [1.0, 0, 0]])
    close(count_matrices(labels, q), [[[0.5, 0, 0], [0.5, 1, 0], [0, 0, 1]]], 1e-6)
    close(count_matrices(labels, q, smoothing=0.5)[0, :, 1], [1 / 3] * 3, 1e-6)


@pytest.mark.parametrize("little", [1e-20, 1e-35, 1e-300])
def test_a_class_met_with_hardly_any_probability_still_has_a_column(little):
    q = torch.tensor([[1 - little, little], [1 - little, little]], dtype=torch.float64)
    close(count_matrices(torch.tensor([[0], [1]]), q), [[[0.5, 0.5], [0.5, 0.5]]], 1e-6)


def test_an_annotator_who_never_labelled_has_no_say_in_their_matrix():
    labels, q = torch.tensor([[0, MISSING], [1, MISSING]]), torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    close(count_matrices(labels, q)[1], torch.eye(2), 1e-6)
    close(count_matrices(labels, q, smoothing=0.1)[1], torch.full((2, 2), 0.5), 1e-6)
    close(count_matrices(labels, q)[0], count_matrices(labels[:, :1], q)[0], 1e-6)


def test_count_matrices_keep_the_precision_of_q():
    for dtype in (torch.float32, torch.float64):
        assert count_matrices(torch.tensor([[0], [1]]), torch.eye(2, dtype=dtype)).dtype == dtype


def test_to_sklearn_is_what_scikit_learn_prints():
    generator = np.random.default_rng(0)
    truth, said = generator.integers(0, 4, 200), generator.integers(0, 4, 200)
    said = np.where(generator.random(200) < 0.6, truth, said // 2)  # classes 2 and 3 are hardly said: not symmetric
    A = count_matrices(torch.tensor(said)[:, None], torch.eye(4, dtype=torch.float64)[truth])
    close(to_sklearn(A)[0], confusion_matrix(truth, said, normalize="true"), 1e-9)
    close(to_sklearn(to_sklearn(A)), A)


def test_counts_are_divided_by_the_total_of_each_truth():
    truth = torch.tensor([0] * 10 + [1] * 4)
    said = torch.tensor([0] * 8 + [1] * 2 + [0] + [1] * 3)[:, None]
    close(to_sklearn(count_matrices(said, torch.eye(2)[truth]))[0], [[0.8, 0.2], [0.25, 0.75]], 1e-6)


def test_log_of_zero_is_finite():
    close(confusion.log(torch.tensor([0.0, 0.5, 1.0])), [-30 * math.log(10), math.log(0.5), 0.0], 1e-4)


# What must hold whatever the numbers


@st.composite
def problems(draw, pixels=None, most_labels=None):
    """log_A, log_p, labels of any small shape, with any labels missing."""
    B, R, L = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(2, 5))
    pixels = draw(st.booleans()) if pixels is None else pixels
    S = (draw(st.integers(1, 3)), draw(st.integers(1, 3))) if pixels else ()
    log_A, log_p, labels = drawn(B, R, L, S, draw(st.sampled_from(KINDS)), seed=draw(st.integers(0, 10**6)), gaps=0)
    flat = draw(st.lists(st.integers(-1, L - 1), min_size=labels.numel(), max_size=labels.numel()))
    labels = torch.tensor(flat).reshape(labels.shape)
    if most_labels == 1:  # one annotator an item, the rest is missing
        who = torch.tensor(draw(st.lists(st.integers(0, R - 1), min_size=B, max_size=B)))
        keep = torch.arange(R) == who[:, None]
        labels = torch.where(keep.reshape(B, R, *[1] * len(S)), labels, MISSING)
    return log_A, log_p, labels


quick = settings(max_examples=25, deadline=None)


@quick
@given(problems())
def test_what_annotators_say_stays_a_distribution(problem):
    log_A, log_p, _ = problem
    total = apply(log_A, log_p).exp().sum(2)
    close(total, torch.ones_like(total))


@quick
@given(problems())
def test_the_likelihoods_of_all_possible_labels_sum_to_one(problem):
    log_A, log_p, labels = problem
    total = sum(label_log_likelihood(log_A, log_p, torch.full_like(labels, i)).exp() for i in range(log_p.shape[1]))
    close(total, torch.ones_like(total))


@quick
@given(problems())
def test_the_likelihood_of_a_label_is_what_apply_says(problem):
    log_A, log_p, labels = problem
    said = torch.take_along_dim(apply(log_A, log_p), labels.clamp(min=0)[:, :, None], 2)[:, :, 0]
    close(label_log_likelihood(log_A, log_p, labels), torch.where(labels == MISSING, 0.0, said))


@quick
@given(problems())
def test_the_posterior_sums_to_one(problem):
    total = posterior(*problem).exp().sum(1)
    close(total, torch.ones_like(total))


@quick
@given(problems())
def test_items_that_nobody_labelled_keep_their_prior(problem):
    log_A, log_p, labels = problem
    silent = (labels == MISSING).all(1)[:, None].expand_as(log_p)
    close(posterior(log_A, log_p, labels)[silent], log_p[silent])
    assert (evidence(log_A, labels)[silent] == 0).all()
    close(joint_log_likelihood(log_A, log_p, labels)[silent[:, 0]], torch.zeros(int(silent[:, 0].sum())))


@quick
@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_annotators_does_not_matter(problem, random):
    log_A, log_p, labels = problem
    order = list(range(labels.shape[1]))
    random.shuffle(order)
    for function in (posterior, joint_log_likelihood):
        close(function(log_A[:, order], log_p, labels[:, order]), function(log_A, log_p, labels))
    for function in (label_log_likelihood,):
        close(function(log_A[:, order], log_p, labels[:, order]), function(log_A, log_p, labels)[:, order])


@quick
@given(problems(), st.randoms(use_true_random=False))
def test_renaming_the_classes_renames_everything(problem, random):
    log_A, log_p, labels = problem
    order = list(range(log_p.shape[1]))
    random.shuffle(order)
    new_name = torch.tensor(np.argsort(order))  # class order[k] is now called k
    renamed = torch.where(labels == MISSING, MISSING, new_name[labels.clamp(min=0)])
    log_B = log_A[:, :, order][:, :, :, order]
    close(apply(log_B, log_p[:, order]), apply(log_A, log_p)[:, :, order])
    close(posterior(log_B, log_p[:, order], renamed), posterior(log_A, log_p, labels)[:, order])
    for function in (label_log_likelihood, joint_log_likelihood):
        close(function(log_B, log_p[:, order], renamed), function(log_A, log_p, labels))
    if labels.ndim == 2:
        counted = count_matrices(labels, log_p.exp())
        close(count_matrices(renamed, log_p[:, order].exp()), counted[:, order][:, :, order])


@quick
@given(problems(most_labels=1))
def test_with_one_label_an_item_joint_and_marginal_agree(problem):
    close(joint_log_likelihood(*problem), label_log_likelihood(*problem).sum(1))


@quick
@given(problems())
def test_where_the_truth_is_certain_joint_and_marginal_agree(problem):
    log_A, log_p, labels = problem
    certain = confusion.log(torch.zeros_like(log_p).scatter_(1, log_p.argmax(1, keepdim=True), 1.0))
    close(joint_log_likelihood(log_A, certain, labels), label_log_likelihood(log_A, certain, labels).sum(1), 1e-6)


def test_with_two_labels_joint_and_marginal_differ():
    labels = torch.tensor([[0, 1]])
    joint = float(joint_log_likelihood(LOG_BOTH, LOG_P, labels).exp())
    marginal = float(label_log_likelihood(LOG_BOTH, LOG_P, labels).sum(1).exp())
    assert joint == pytest.approx(0.21, abs=1e-6) and marginal == pytest.approx(0.75 * 0.35, abs=1e-6)


@quick
@given(problems())
def test_a_label_more_is_a_step_of_bayes_more(problem):
    log_A, log_p, labels = problem
    one_by_one = log_p
    for r in range(labels.shape[1]):
        one_by_one = posterior(log_A[:, r : r + 1], one_by_one, labels[:, r : r + 1])
    close(one_by_one, posterior(log_A, log_p, labels))


@quick
@given(problems(pixels=True))
def test_a_pixel_is_an_item(problem):
    log_A, log_p, labels = problem
    B, L, *S = log_p.shape
    flat = lambda x: x.movedim((-2, -1), (1, 2)).flatten(0, 2)  # noqa: E731  (B, ..., H, W) -> (B H W, ...)
    full = log_A.expand(B, *log_A.shape[1:4], *S)
    for function in (posterior, label_log_likelihood):
        close(flat(function(log_A, log_p, labels)), function(flat(full), flat(log_p), flat(labels)))


@quick
@given(problems(pixels=False), st.floats(0, 3))
def test_columns_of_counted_matrices_sum_to_one(problem, smoothing):
    _, log_p, labels = problem
    A = count_matrices(labels, log_p.exp(), smoothing=smoothing)
    assert check_cm(A, tolerance=1e-9) is A


@quick
@given(problems(pixels=False), st.integers(2, 4))
def test_counting_every_item_several_times_changes_nothing(problem, times):
    _, log_p, labels = problem
    many = count_matrices(labels.repeat(times, 1), log_p.exp().repeat(times, 1))
    close(many, count_matrices(labels, log_p.exp()))


# Recovery


def test_counting_against_the_truth_recovers_the_matrices():
    log_A, _, _ = drawn(1, 2, 3, (), "global", seed=5)
    A, N = log_A[0].exp(), 60_000
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(3, (N,), generator=generator)
    labels = torch.stack([torch.multinomial(A[r].T[truth], 1, generator=generator)[:, 0] for r in range(2)], 1)
    close(count_matrices(labels, torch.eye(3, dtype=torch.float64)[truth]), A, 0.02)


def test_gradient_descent_on_the_likelihood_ends_at_the_counted_matrices():
    labels = torch.tensor([[0, 1]] * 5 + [[0, 0]] * 2 + [[1, 1]] * 3 + [[1, MISSING]] * 4 + [[0, 0]] * 3 + [[0, 1]] * 3)
    truth = torch.tensor([0] * 10 + [1] * 10)
    log_p = confusion.log(torch.eye(2)[truth])
    cm = GlobalCM(2, 2)
    optimiser = torch.optim.Adam(cm.parameters(), lr=0.1)
    for _ in range(200):
        optimiser.zero_grad()
        (-label_log_likelihood(cm(), log_p, labels).sum()).backward()
        optimiser.step()
    wanted = count_matrices(labels, torch.eye(2)[truth])
    close(wanted[0], [[0.7, 0.6], [0.3, 0.4]], 1e-6)
    close(cm.A, wanted, 5e-3)


# GlobalCM


@pytest.mark.parametrize("L", [2, 10, 100])
def test_the_identity_start_is_on_the_diagonal_whatever_the_number_of_classes(L):
    A = GlobalCM(3, L).A
    assert A.shape == (3, L, L)
    close(A.diagonal(dim1=1, dim2=2), torch.full((3, L), 0.95), 1e-5)
    close(A.sum(1), torch.ones(3, L), 1e-5)
    off = A[0][~torch.eye(L, dtype=torch.bool)]
    close(off, torch.full((L * L - L,), 0.05 / (L - 1)), 1e-6)


def test_another_start_is_reached_too():
    close(GlobalCM(1, 7, start=0.6).A.diagonal(dim1=1, dim2=2), torch.full((1, 7), 0.6), 1e-5)


@pytest.mark.parametrize("start", [1.0, 1 / 4, 0.1, 0.0, -1.0, 2.0, float("nan")])
def test_a_start_outside_of_chance_and_certainty_is_refused(start):
    with pytest.raises(ValueError, match="`start`"):
        GlobalCM(2, 4, start=start)


@pytest.mark.parametrize(("R", "L"), [(0, 3), (2, 1), (-1, 2)])
def test_a_matrix_needs_an_annotator_and_two_classes(R, L):
    with pytest.raises(ValueError, match="annotator"):
        GlobalCM(R, L)


def test_columns_sum_to_one_after_any_step():
    cm = GlobalCM(4, 3)
    with torch.no_grad():
        cm.logits.add_(5 * torch.randn(cm.logits.shape, generator=torch.Generator().manual_seed(0)))
    close(cm.A.sum(1), torch.ones(4, 3), 1e-5)
    assert ((cm.A.sum(2) - 1).abs() > 0.01).any()  # and rows do not
    close(cm().exp()[0], cm.A, 1e-6)


def test_fixed_matrices_are_reproduced_and_not_trained():
    A = torch.stack([A1, A2, torch.tensor([[1.0, 0.0], [0.0, 1.0]])])
    cm = GlobalCM.fixed(A)
    close(cm.A, A, 1e-6)
    close(cm().exp()[0], A, 1e-6)
    assert torch.isfinite(cm()).all()
    assert [p for p in cm.parameters() if p.requires_grad] == []


def test_fixed_takes_double_precision():
    cm = GlobalCM.fixed(torch.stack([A1, A2]).double())
    assert cm.logits.dtype == torch.float32


def test_fixed_refuses_a_transposed_matrix():
    with pytest.raises(ValueError, match="transposed"):
        GlobalCM.fixed(torch.stack([A1.T, A2.T]))


def test_fixed_refuses_a_matrix_without_the_axis_of_annotators():
    with pytest.raises(ValueError, match="R, L, L"):
        GlobalCM.fixed(torch.tensor([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8]]))


def test_the_matrix_of_all_pixels_broadcasts_over_them():
    cm = GlobalCM(2, 3)
    assert cm().shape == (1, 2, 3, 3)
    assert cm(spatial=2).shape == (1, 2, 3, 3, 1, 1)
    _, log_p, labels = drawn(2, 2, 3, (4, 5), "global")
    assert apply(cm(spatial=2), log_p.float()).shape == (2, 2, 3, 4, 5)
    assert label_log_likelihood(cm(spatial=2), log_p.float(), labels).shape == (2, 2, 4, 5)


def test_reading_the_matrices_leaves_the_graph():
    assert not GlobalCM(2, 3).A.requires_grad
    assert GlobalCM(2, 3)().requires_grad


# Zeros


def test_an_impossible_label_still_moves_the_matrix():
    cm = GlobalCM(1, 2)
    with torch.no_grad():
        cm.logits.copy_(confusion.log(torch.eye(2))[None])
    loss = -label_log_likelihood(cm(), confusion.log(torch.tensor([[1.0, 0.0]])), torch.tensor([[1]])).sum()
    loss.backward()
    assert torch.isfinite(loss) and loss > 50
    assert torch.isfinite(cm.logits.grad).all()
    assert cm.logits.grad[0, 1, 0] < -0.5 < 0.5 < cm.logits.grad[0, 0, 0]  # descent makes "says 1" likelier


def test_an_impossible_label_still_moves_the_network():
    logits = torch.tensor([[50.0, 0.0]], requires_grad=True)
    log_p = logits.log_softmax(1)
    assert float(log_p.detach().exp()[0, 0]) == 1.0  # p = (1, 0) in float32
    loss = -label_log_likelihood(GlobalCM.fixed(torch.eye(2)[None])(), log_p, torch.tensor([[1]])).sum()
    loss.backward()
    assert torch.isfinite(loss)
    close(logits.grad, [[1.0, -1.0]], 1e-4)


def test_a_missing_label_adds_nothing_where_the_matrix_holds_zeros():
    never_says_0 = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).log()[None, None]  # -inf in the row that a gap would read
    gap = torch.tensor([[MISSING]])
    close(label_log_likelihood(never_says_0, LOG_P, gap), [[0.0]])
    close(evidence(never_says_0, gap), [[0.0, 0.0]])
    close(posterior(never_says_0, LOG_P, gap).exp(), P, 1e-6)


def test_the_gradient_of_a_missing_label_is_zero():
    cm = GlobalCM(3, 2)
    labels = torch.tensor([[0, MISSING, 1], [1, MISSING, MISSING]])
    label_log_likelihood(cm(), P.log().expand(2, 2), labels).sum().backward()
    assert (cm.logits.grad[1] == 0).all()
    assert (cm.logits.grad[0] != 0).any() and (cm.logits.grad[2] != 0).any()


# Refusals


def test_a_transposed_matrix_is_called_transposed():
    with pytest.raises(ValueError, match="transposed"):
        check_cm(A1.T)
    with pytest.raises(ValueError, match="transposed"):
        dominance(torch.stack([A1.T, A2.T]))


@pytest.mark.parametrize("sizes", [(5, 3), (3, 3)])
def test_a_softmax_over_the_wrong_axis_is_refused(sizes):
    R, L = sizes
    logits = torch.randn(R, L, L, generator=torch.Generator().manual_seed(0))
    check_cm(logits.softmax(-2))
    with pytest.raises(ValueError, match="transposed"):
        check_cm(logits.softmax(-1))
    with pytest.raises(ValueError, match="sum to 1"):
        check_cm(logits.softmax(0))


def test_a_matrix_that_is_neither_is_told_how_to_normalise():
    with pytest.raises(ValueError, match=r"A / A\.sum\(-2\)"):
        check_cm(torch.tensor([[0.9, 0.1], [0.4, 0.2]]))


def test_counts_and_logits_are_no_probabilities():
    for wrong in ([[8.0, 2.0], [1.0, 3.0]], [[1.2, 0.0], [-0.2, 1.0]], [[float("nan"), 0.5], [0.5, 0.5]]):
        with pytest.raises(ValueError, match=r"\[0, 1\]"):
            check_cm(torch.tensor(wrong))


@pytest.mark.parametrize("shape", [(3,), (2, 3), (4, 2, 3)])
def test_a_matrix_is_square(shape):
    with pytest.raises(ValueError, match="L, L"):
        check_cm(torch.full(shape, 0.5))


def test_one_bad_matrix_among_many_is_found():
    A = torch.stack([A1, A2, A1])
    assert check_cm(A) is A
    A = A.clone()
    A[1, 0, 0] += 0.01
    with pytest.raises(ValueError, match="1.010"):
        check_cm(A)


def test_logits_are_no_p():
    logits = torch.tensor([[2.0, -1.0, 0.5]])
    p = logits.softmax(1)
    assert check_p(p) is p
    for wrong in (logits, logits.log_softmax(1), 2 * p):
        with pytest.raises(ValueError, match="logits"):
            check_p(wrong)


def test_p_normalised_along_another_axis_is_refused():
    raw = torch.rand(3, 3, 3, 3, generator=torch.Generator().manual_seed(0))
    check_p(raw / raw.sum(1, keepdim=True))
    for axis in (0, 2, 3):
        with pytest.raises(ValueError, match="axis 1"):
            check_p(raw / raw.sum(axis, keepdim=True))
        check_p(raw / raw.sum(axis, keepdim=True), axis=axis)


def test_nan_is_no_p():
    with pytest.raises(ValueError, match="`p`"):
        check_p(torch.tensor([[float("nan"), 0.5]]))


@pytest.mark.parametrize("function", [lambda a, p, y: label_log_likelihood(a, p, y), joint_log_likelihood, posterior])
def test_one_column_of_labels_does_not_stand_for_several_annotators(function):
    log_A, log_p, labels = drawn(4, 3, 2, (), "global", gaps=0)
    with pytest.raises(ValueError, match="annotators"):
        function(log_A, log_p, labels[:, :1])


# Devices


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_no_function_makes_tensors_on_another_device(name, kind):
    B, R, L, S = SHAPES[name]
    log_A, log_p, labels = (x.to("meta") for x in drawn(B, R, L, S, kind))
    found = (
        apply(log_A, log_p),
        said_rows(log_A, labels),
        label_log_likelihood(log_A, log_p, labels),
        evidence(log_A, labels),
        joint_log_likelihood(log_A, log_p, labels),
        posterior(log_A, log_p, labels),
    )
    assert all(x.device.type == "meta" for x in found)


def test_counting_follows_the_device_of_the_labels():
    _, log_q, labels = (x.to("meta") for x in drawn(5, 2, 3, (), "global"))
    assert count_matrices(labels, log_q.exp()).device.type == "meta"


# The table of symbols


def test_the_notation_table_has_a_meaning_a_shape_and_the_papers_symbol_for_each():
    assert all(len(row) == 4 and all(row) for row in confusion.NOTATION)
    names = [row[0] for row in confusion.NOTATION]
    assert len(set(names)) == len(names) and {"A", "log_A", "p", "labels", "lam"} <= set(names)


def test_labels_of_a_few_find_their_annotators():
    labels, who = torch.tensor([[5, 6], [7, 8]]), torch.tensor([[2, 0], [1, 3]])
    assert by_annotator(labels, who, 4).tolist() == [[6, -1, 5, -1], [-1, 7, -1, 8]]
    assert by_annotator(labels, None, 2) is labels
    pixels = labels[..., None, None].expand(2, 2, 3, 3)
    assert by_annotator(pixels, who, 4)[:, :, 1, 2].equal(by_annotator(labels, who, 4))
