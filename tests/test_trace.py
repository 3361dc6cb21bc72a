"""The trace-regularised loss: slow loops, hand-worked numbers, what lambda means, and what a fit recovers."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course_lib import confusion
from course_lib.annotations import MISSING, Annotations, as_labels
from course_lib.annotators import annotate, hammer_spammers, pairwise_flippers
from course_lib.confusion import GlobalCM, count_matrices, skills
from course_lib.methods.trace import Trace, Vanilla, trace_loss
from course_lib.metrics import accuracy, cm_error
from course_lib.networks import mlp, seeded
from course_lib.training import check_fit, fit, predict

A = torch.tensor([[0.9, 0.4], [0.1, 0.6]])  # A[said, truth]
P = torch.tensor([[0.7, 0.3]])
SHAPES = [(5, 2, 3, "global"), (5, 2, 3, "own"), (3, 3, 3, "global"), (3, 3, 3, "own"), (1, 1, 2, "global")]


def drawn(B: int, R: int, L: int, kind: str = "global", seed: int = 0, gaps: float = 0.3):
    generator = seeded(seed)
    log_A = (2 * torch.randn((1 if kind == "global" else B, R, L, L), generator=generator)).log_softmax(2)
    log_p = (2 * torch.randn((B, L), generator=generator)).log_softmax(1)
    labels = torch.randint(L, (B, R), generator=generator)
    labels[torch.rand((B, R), generator=generator) < gaps] = MISSING
    return log_A, log_p, labels


def slow_loss(log_A, log_p, labels, lam: float, joint: bool) -> float:
    B, R = labels.shape
    L = log_p.shape[1]
    a = log_A.exp().expand(B, R, L, L).tolist()
    p = log_p.exp().tolist()
    total, observed = 0.0, 0
    for b in range(B):
        together = list(p[b])
        for r in range(R):
            said = int(labels[b, r])
            if said == MISSING:
                continue
            observed += 1
            total += lam * sum(a[b][r][i][i] for i in range(L))
            if not joint:
                total -= math.log(sum(a[b][r][said][j] * p[b][j] for j in range(L)))
            together = [together[j] * a[b][r][said][j] for j in range(L)]
        if joint:
            total -= math.log(sum(together))
    return total / max(observed, 1)


class Table(nn.Module):
    """A "network" whose logits are a table: row x[b]. Lets a test choose p, with gradients."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits.clone().float())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits[x[:, 0].long()]


def rows(N: int) -> torch.Tensor:
    return torch.arange(N, dtype=torch.float32)[:, None]


def method_of(log_p: torch.Tensor, matrices: torch.Tensor, lam: float, **more) -> Trace:
    method = Trace(Table(log_p), *matrices.shape[:2], lam=lam, **more)
    with torch.no_grad():
        method.cm.logits.copy_(confusion.log(matrices))
    return method


@pytest.mark.parametrize(("B", "R", "L", "kind"), SHAPES)
@pytest.mark.parametrize("joint", [False, True])
def test_the_loss_of_a_few_annotators_is_that_of_all_with_the_others_silent(B, R, L, kind, joint):
    log_A, log_p, labels = drawn(B, R, L, kind, seed=1)
    who = torch.arange(R).expand(B, R)[:, [R - 1]]  # the last alone
    silent = labels.clone()
    silent[:, :-1] = MISSING
    wanted = trace_loss(log_A, log_p, silent, 0.3, joint=joint)
    found = trace_loss(log_A, log_p, labels[:, -1:], 0.3, who, joint=joint)
    assert float(found) == pytest.approx(float(wanted), abs=1e-5)


def loss_and_gradient(method: Trace, labels: torch.Tensor) -> tuple[float, torch.Tensor, torch.Tensor]:
    method.zero_grad()
    loss = method.loss((rows(len(labels)), labels, None, torch.arange(len(labels))))
    loss.backward()
    return float(loss.detach()), method.cm.logits.grad.clone(), method.network.logits.grad.clone()


# The loss


@pytest.mark.parametrize(("B", "R", "L", "kind"), SHAPES)
@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("lam", [0.0, 0.3])
def test_the_loss_is_the_slow_loop(B, R, L, kind, joint, lam):
    problem = drawn(B, R, L, kind, seed=1)
    assert float(trace_loss(*problem, lam, joint=joint)) == pytest.approx(slow_loss(*problem, lam, joint), abs=1e-5)


def test_the_loss_by_hand():
    found = trace_loss(A.log()[None, None], P.log(), torch.tensor([[1]]), 0.1)
    assert float(found) == pytest.approx(-math.log(0.25) + 0.1 * 1.5, abs=1e-6)


def test_the_joint_loss_by_hand():
    both = torch.stack([A, torch.tensor([[0.8, 0.3], [0.2, 0.7]])]).log()[None]
    found = trace_loss(both, P.log(), torch.tensor([[0, 1]]), 0.1, joint=True)
    assert float(found) == pytest.approx(-math.log(0.7 * 0.9 * 0.2 + 0.3 * 0.4 * 0.7) / 2 + 0.1 * 1.5, abs=1e-6)


def test_the_trace_is_of_the_annotator_who_spoke():
    lazy = torch.stack([A, torch.tensor([[0.6, 0.5], [0.4, 0.5]])]).log()[None]  # traces 1.5 and 1.1
    for r, own in enumerate((1.5, 1.1)):
        labels = torch.tensor([[0, 0]]).index_fill(1, torch.tensor([1 - r]), MISSING)
        difference = trace_loss(lazy, P.log(), labels, 1.0) - trace_loss(lazy, P.log(), labels, 0.0)
        assert float(difference) == pytest.approx(own, abs=1e-5)


def test_methods_compute_this_loss_from_their_own_network_and_matrices():
    log_A, log_p, labels = drawn(6, 2, 3, seed=2)
    for joint in (False, True):
        method = method_of(log_p, log_A[0].exp(), 0.25, joint=joint)
        found = loss_and_gradient(method, labels)[0]
        assert found == pytest.approx(slow_loss(log_A, log_p, labels, 0.25, joint), abs=1e-5)


@pytest.mark.parametrize("sizes", [(7, 2, 3), (3, 3, 3)])
def test_vanilla_is_the_mean_cross_entropy_of_the_labels_observed(sizes):
    _, log_p, labels = drawn(*sizes, seed=3)
    seen = [(b, int(y)) for b, row in enumerate(labels) for y in row if y != MISSING]
    wanted = -sum(float(log_p[b, y]) for b, y in seen) / len(seen)
    found = Vanilla(Table(log_p)).loss((rows(sizes[0]), labels, None, None))
    assert float(found.detach()) == pytest.approx(wanted, abs=1e-5)


def test_vanilla_takes_masks():
    logits = torch.randn(2, 3, 4, 5, generator=seeded(0))
    labels = torch.randint(-1, 3, (2, 2, 4, 5), generator=seeded(1))
    found = Vanilla(nn.Identity()).loss((logits, labels, None, None))
    flat = logits.log_softmax(1).movedim(1, -1).reshape(-1, 3)  # (B H W, L)
    each = labels.movedim(1, -1).reshape(-1, 2)
    seen = [(n, int(y)) for n, row in enumerate(each) for y in row if y != MISSING]
    assert float(found) == pytest.approx(-sum(float(flat[n, y]) for n, y in seen) / len(seen), abs=1e-5)


# A perfect fit


@pytest.mark.parametrize("joint", [False, True])
def test_a_perfect_fit_has_loss_0(joint):
    truth = torch.tensor([0, 2, 1, 1, 3])
    p = torch.eye(4)[truth]
    names = torch.tensor(
        [[0, 1, 2, 3], [2, 0, 3, 1], [1, 1, 0, 0]]
    )  # what each says of each truth; the last two never say 2, 3
    matrices = torch.stack([torch.eye(4)[n].T for n in names])
    confusion.check_cm(matrices)
    labels = names[:, truth].T.clone()
    labels[1, 2] = labels[4, 0] = MISSING
    exact = trace_loss(confusion.log(matrices)[None], confusion.log(p), labels, 0.0, joint=joint)
    learned = loss_and_gradient(method_of(200 * p, matrices, 0.0, joint=joint), labels)[0]
    assert abs(float(exact)) < 1e-6 and abs(learned) < 1e-6
    wrong = loss_and_gradient(method_of(200 * p, matrices[[1, 0, 2]], 0.0, joint=joint), labels)[0]
    assert wrong > 1


def test_a_perfect_fit_pays_the_trace_only():
    method = method_of(200 * torch.eye(3), torch.eye(3)[None], 0.02)
    assert loss_and_gradient(method, torch.tensor([[0], [1], [2]]))[0] == pytest.approx(0.02 * 3, abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 4), st.integers(2, 5), st.booleans(), st.floats(0, 2))
def test_the_loss_is_never_negative_and_ignores_repetition_order_and_names(seed, B, R, L, joint, lam):
    log_A, log_p, labels = drawn(B, R, L, seed=seed, gaps=0.4)
    loss = lambda a, p, y: float(trace_loss(a, p, y, lam, joint=joint))  # noqa: E731
    once = loss(log_A, log_p, labels)
    assert once >= -1e-6
    same = pytest.approx(once, abs=1e-4)
    assert loss(log_A, log_p.repeat(3, 1), labels.repeat(3, 1)) == same
    items, people, names = (torch.randperm(n, generator=seeded(seed)) for n in (B, R, L))
    assert loss(log_A, log_p[items], labels[items]) == same
    assert loss(log_A[:, people], log_p, labels[:, people]) == same
    renamed = torch.where(labels == MISSING, MISSING, names.argsort()[labels.clamp(min=0)])
    assert loss(log_A[:, :, names][:, :, :, names], log_p[:, names], renamed) == same
    silent = torch.full((2, R), MISSING)
    assert loss(log_A, torch.cat([log_p, log_p[:1].expand(2, L)]), torch.cat([labels, silent])) == same


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 4), st.integers(2, 5))
def test_joint_and_marginal_agree_with_one_label_an_item(seed, B, R, L):
    log_A, log_p, labels = drawn(B, R, L, seed=seed, gaps=0)
    who = torch.randint(R, (B, 1), generator=seeded(seed))
    one = torch.where(torch.arange(R) == who, labels, MISSING)
    pair = [float(trace_loss(log_A, log_p, one, 0.1, joint=joint)) for joint in (False, True)]
    assert pair[0] == pytest.approx(pair[1], abs=1e-5)


# What lambda means


@pytest.mark.parametrize("lam", [0.0, 0.4])
def test_lambda_means_the_same_with_one_and_with_five_labels_an_image(lam):
    log_A, log_p, labels = drawn(12, 1, 3, seed=4, gaps=0)
    one = loss_and_gradient(method_of(log_p, log_A[0].exp(), lam), labels)
    five = loss_and_gradient(method_of(log_p, log_A[0].exp().repeat(5, 1, 1), lam), labels.repeat(1, 5))
    assert five[0] == pytest.approx(one[0], abs=1e-6)
    assert torch.allclose(five[1].sum(0), one[1][0], atol=1e-6)  # five people, a fifth of the labels each
    assert torch.allclose(five[1], five[1][:1].expand(5, 3, 3), atol=1e-7)
    assert torch.allclose(five[2], one[2], atol=1e-6)
    assert one[1].abs().max() > 0.01


def test_one_label_from_a_random_annotator_weighs_the_trace_like_dense_labels():
    log_A, log_p, dense = drawn(10, 5, 3, seed=5, gaps=0)
    log_A = log_A[:, :1].expand(1, 5, 3, 3)  # five alike
    who = torch.arange(10)[:, None] % 5
    single = torch.where(torch.arange(5) == who, dense, MISSING)
    price = [float(trace_loss(log_A, log_p, y, 1.0) - trace_loss(log_A, log_p, y, 0.0)) for y in (dense, single)]
    assert price[0] == pytest.approx(price[1], abs=1e-5)


@pytest.mark.parametrize("lam", [0.0, 0.5])
@pytest.mark.parametrize("joint", [False, True])
def test_a_rare_annotator_gets_the_same_gradient_for_each_label(lam, joint):
    log_p = (2 * torch.randn(10, 3, generator=seeded(0))).log_softmax(1)
    said = torch.randint(3, (10, 1), generator=seeded(1))
    busy = torch.cat([said, torch.full_like(said, MISSING)], 1).repeat(9, 1)  # annotator 1: every item nine times
    rare = torch.cat([torch.full_like(said, MISSING), said], 1)  # annotator 2: every item once
    matrices = drawn(1, 1, 3, seed=6)[0][0].exp().repeat(2, 1, 1)
    method = method_of(log_p.repeat(10, 1), matrices, lam, joint=joint)
    gradient = loss_and_gradient(method, torch.cat([busy, rare]))[1]
    assert torch.allclose(gradient[0] / 90, gradient[1] / 10, atol=1e-7)
    assert gradient[1].abs().max() > 1e-3


@pytest.mark.parametrize("per_item", [1, 2, 4])
def test_the_factors_of_the_paper_in_the_docstring(per_item):
    """Equal workloads, the paper's lambda .7: Eq. 4 is a sum, the listing a mean over images and over annotators."""
    N, R, L, theirs = 8, 4, 3, 0.7
    log_A, log_p, labels = drawn(N, R, L, seed=7, gaps=0)
    turn = (torch.arange(R) - torch.arange(N)[:, None]) % R  # item n is labelled by n, n + 1, ...
    labels = torch.where(turn < per_item, labels, MISSING)
    n_observed = int((labels != MISSING).sum())
    a, p = log_A[0].exp().tolist(), log_p.exp().tolist()
    entropy = [
        -math.log(sum(a[r][int(labels[n, r])][j] * p[n][j] for j in range(L)))
        for n in range(N)
        for r in range(R)
        if labels[n, r] != MISSING
    ]
    traces = [sum(a[r][i][i] for i in range(L)) for r in range(R)]
    equation_4 = sum(entropy) + theirs * sum(traces)
    listing = sum(entropy) / N + theirs * sum(traces) / R
    as_equation_4 = float(trace_loss(log_A, log_p, labels, theirs * R / n_observed))
    as_listing = float(trace_loss(log_A, log_p, labels, theirs / per_item))
    assert as_equation_4 * n_observed == pytest.approx(equation_4, rel=1e-5)
    assert as_listing * n_observed / N == pytest.approx(listing, rel=1e-5)
    assert n_observed / N == per_item


@pytest.mark.parametrize(("lam", "diagonal"), [(0.01, 0.525), (0.02, 0.500), (0.1, 0.329)])
def test_the_trace_shrinks_the_diagonal_as_the_closed_form_says(lam, diagonal):
    """One-hot correct predictions, true diagonal .55 at L = 10: t = lam / (1/L), a / (t + m)."""
    t, a = lam * 10, 0.55
    m = ((1 - t) + math.sqrt((1 - t) ** 2 + 4 * t * (1 - a))) / 2
    assert a / (t + m) == pytest.approx(diagonal, abs=5e-4)
    truth = torch.arange(10).repeat_interleave(20)
    said = torch.cat([torch.tensor([j] * 11 + [i for i in range(10) if i != j]) for j in range(10)])[:, None]
    method = method_of(60 * torch.eye(10)[truth], torch.full((1, 10, 10), 0.05) + 0.5 * torch.eye(10), lam)
    method.network.requires_grad_(False)
    optimiser = torch.optim.LBFGS(method.cm.parameters(), max_iter=60, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        loss = method.loss((rows(200), said, None, None))
        loss.backward()
        return loss

    optimiser.step(closure)
    found = method.confusion()[0]
    assert found.diagonal().tolist() == pytest.approx([diagonal] * 10, abs=2e-3)
    assert float(found[3, 7]) == pytest.approx(0.05 / m, abs=2e-3)


@pytest.mark.parametrize("lam", [-0.1, -1e-9])
def test_a_negative_lambda_is_refused(lam):
    with pytest.raises(ValueError, match="`lam`"):
        Trace(mlp(4, 3, generator=seeded(0)), 2, 3, lam=lam)


# Gaps


@pytest.mark.parametrize("joint", [False, True])
def test_a_batch_without_labels_has_loss_0_and_gradient_0(joint):
    log_A, log_p, labels = drawn(4, 3, 2, seed=8)
    method = method_of(log_p, log_A[0].exp(), 0.5, joint=joint)
    loss = method.loss((rows(4), torch.full_like(labels, MISSING), None, None))
    assert loss.requires_grad and abs(float(loss.detach())) < 1e-6
    loss.backward()
    for gradient in (method.cm.logits.grad, method.network.logits.grad):
        assert torch.isfinite(gradient).all() and gradient.abs().max() < 1e-6


def test_vanilla_without_labels_has_loss_0_and_gradient_0():
    method = Vanilla(Table(torch.randn(4, 3, generator=seeded(0))))
    loss = method.loss((rows(4), torch.full((4, 2), MISSING), None, None))
    assert loss.requires_grad and float(loss.detach()) == 0
    loss.backward()
    assert (method.network.logits.grad == 0).all()


@pytest.mark.parametrize("joint", [False, True])
def test_an_annotator_missing_from_the_batch_adds_nothing_and_learns_nothing(joint):
    log_A, log_p, labels = drawn(4, 3, 2, seed=9, gaps=0)
    labels[:, 1] = MISSING
    with_gap = loss_and_gradient(method_of(log_p, log_A[0].exp(), 0.5, joint=joint), labels)
    without = loss_and_gradient(method_of(log_p, log_A[0, [0, 2]].exp(), 0.5, joint=joint), labels[:, [0, 2]])
    assert with_gap[0] == pytest.approx(without[0], abs=1e-6)
    assert (with_gap[1][1] == 0).all()
    assert torch.allclose(with_gap[1][[0, 2]], without[1], atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.uint8, torch.bool, torch.float32])
def test_every_label_type_gives_the_same_loss(dtype):
    log_A, log_p, labels = drawn(6, 2, 2, seed=10, gaps=0)
    wanted = float(trace_loss(log_A, log_p, labels, 0.1))
    data = Annotations(rows(6), labels.to(dtype), n_classes=2)
    assert float(trace_loss(log_A, log_p, data.labels, 0.1)) == wanted
    assert float(trace_loss(log_A, log_p, as_labels(labels.to(dtype), 2), 0.1)) == wanted


def test_one_column_of_labels_does_not_stand_for_several_annotators():
    log_A, log_p, labels = drawn(4, 3, 2, gaps=0)
    with pytest.raises(ValueError, match="annotators"):
        trace_loss(log_A, log_p, labels[:, :1], 0.1)


# Zeros


@pytest.mark.parametrize("joint", [False, True])
def test_an_impossible_label_has_a_finite_loss_and_a_gradient_that_moves(joint):
    method = method_of(torch.tensor([[200.0, 0.0]]), torch.eye(2)[None], 0.0, joint=joint)
    assert method.log_p(rows(1)).exp().tolist() == [[1.0, 0.0]]
    loss, matrices, network = loss_and_gradient(method, torch.tensor([[1]]))
    assert math.isfinite(loss) and loss > 10
    assert torch.isfinite(matrices).all() and torch.isfinite(network).all()
    assert matrices.abs().max() > 0.5


@pytest.mark.parametrize("joint", [False, True])
def test_an_impossible_label_moves_the_network_where_the_matrix_is_known(joint):
    method = Trace(
        Table(torch.tensor([[50.0, 0.0]])), 1, 2, lam=0.0, cm=GlobalCM.fixed(torch.eye(2)[None]), joint=joint
    )
    loss = method.loss((rows(1), torch.tensor([[1]]), None, None))
    loss.backward()
    assert math.isfinite(float(loss.detach()))
    assert method.network.logits.grad.tolist() == [[pytest.approx(1, abs=1e-3), pytest.approx(-1, abs=1e-3)]]


# Devices


def float64_made(function) -> list[str]:
    """Names of the operations in `function` that made a float64 tensor."""
    from torch.utils._python_dispatch import TorchDispatchMode

    found = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            out = operation(*args, **(kwargs or {}))
            for x in out if isinstance(out, tuple | list) else (out,):
                if isinstance(x, torch.Tensor) and x.dtype == torch.float64:
                    found.append(str(operation))
            return out

    with Watch():
        function()
    return found


METHODS = {
    "trace": lambda: Trace(mlp(4, 3, hidden=5, generator=seeded(0)), 2, 3),
    "joint": lambda: Trace(mlp(4, 3, hidden=5, generator=seeded(0)), 2, 3, joint=True),
    "oracle": lambda: Trace.oracle(
        mlp(4, 3, hidden=5, generator=seeded(0)), pairwise_flippers(2, 3, 0.6, generator=seeded(0)).double()
    ),
    "vanilla": lambda: Vanilla(mlp(4, 3, hidden=5, generator=seeded(0))),
}


@pytest.mark.parametrize("kind", METHODS)
def test_everything_a_loss_makes_lies_where_its_inputs_lie(kind):
    method = METHODS[kind]().to("meta")
    batch = (
        torch.rand(6, 4, device="meta"),
        torch.zeros(6, 2, dtype=torch.long, device="meta"),
        torch.zeros(6, 2, dtype=torch.long, device="meta"),
        torch.zeros(6, device="meta"),
    )
    loss = method.loss(batch)
    assert loss.device.type == "meta" and loss.shape == ()
    loss.backward()
    assert all(p.grad.device.type == "meta" for p in method.parameters() if p.requires_grad)
    assert all(t.device.type == "meta" for t in method.state_dict().values())  # nothing escapes .to(device)


@pytest.mark.parametrize("kind", METHODS)
def test_no_loss_makes_double_precision(kind):
    method = METHODS[kind]()
    labels, who = torch.tensor([[0, 2], [1, MISSING]] * 3), torch.tensor([[0, 1]] * 6)
    batch = torch.rand(6, 4), labels, who, torch.arange(6)
    assert all(t.dtype != torch.float64 for t in method.state_dict().values())
    assert float64_made(lambda: method.loss(batch).backward()) == []
    assert float64_made(lambda: torch.zeros(1).double()) != []  # the watch works


# What a method tells and what a fit recovers


def test_skills_and_confusion_are_read_from_the_matrices():
    method = method_of(P, torch.stack([A, torch.tensor([[0.8, 0.3], [0.2, 0.7]])]), 0.1)
    assert torch.allclose(method.confusion()[0], A, atol=1e-6)
    assert method.skills().tolist() == pytest.approx([0.75, 0.75], abs=1e-6)
    assert not method.confusion().requires_grad


def test_the_oracle_keeps_the_true_matrices():
    true = pairwise_flippers(3, 4, 0.5, generator=seeded(0))
    method = Trace.oracle(mlp(6, 4, generator=seeded(0)), true)
    assert float(method.lam) == 0
    assert torch.allclose(method.confusion(), true, atol=1e-6)


def test_matrices_of_another_size_are_found_before_training():
    data = Annotations(torch.rand(4, 6), torch.zeros(4, 3, dtype=torch.long), n_classes=4)
    for method in (
        Trace(mlp(6, 4, generator=seeded(0)), 2, 4),
        Trace(mlp(6, 4, generator=seeded(0)), 3, 5),
        Trace(mlp(6, 4, generator=seeded(0)), 3, 4, cm=GlobalCM(2, 4)),
    ):
        with pytest.raises(ValueError, match="R=3 annotators and L=4"):
            check_fit(method, data)
    with pytest.raises(ValueError, match="n_classes"):
        check_fit(Trace(mlp(6, 5, generator=seeded(0)), 3, 4), data)


def test_masks_are_scored_right_or_refused():
    """B = R = H = W, where a wrong broadcast would go unnoticed."""
    net = nn.Conv2d(1, 3, 1)
    method = Trace(net, 3, 3, lam=0.4)
    x, labels = torch.rand(3, 1, 3, 3, generator=seeded(0)), torch.randint(-1, 3, (3, 3, 3, 3), generator=seeded(1))
    with torch.no_grad():
        method.cm.logits.copy_(2 * torch.randn(3, 3, 3, generator=seeded(2)))
        log_p = method.log_p(x).movedim(1, -1).reshape(27, 3)
        wanted = slow_loss(method.cm(), log_p, labels.movedim(1, -1).reshape(27, 3), 0.4, False)
    data = Annotations(x, labels, n_classes=3)
    try:
        check_fit(method, data)
        loss = method.loss((x, data.labels, None, None))
    except ValueError:
        return
    assert float(loss.detach()) == pytest.approx(wanted, abs=1e-5)


def easy(N: int, L: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Features that tell the class almost always."""
    truth = torch.arange(N) % L
    return 4 * torch.eye(L)[truth] + torch.randn(N, L, generator=seeded(0)), truth


@pytest.mark.parametrize(("kind", "per_item"), [("trace", 1), ("joint", 3), ("oracle", 1)])
def test_a_fit_on_easy_data_recovers_truth_and_matrices(kind, per_item):
    x, truth = easy(1500, 4)
    true = torch.cat([
        pairwise_flippers(2, 4, 0.6, generator=seeded(1)), hammer_spammers(1, 4, 0.6, generator=seeded(1))
    ])  # fmt: skip
    data = Annotations(x, annotate(truth, true, per_item=per_item, generator=seeded(2)), n_classes=4)
    net = mlp(4, 4, hidden=16, generator=seeded(3))
    method = {
        "trace": lambda: Trace(net, 3, 4, lam=0.01, frozen_epochs=2),
        "joint": lambda: Trace(net, 3, 4, lam=0.0, joint=True, frozen_epochs=2),
        "oracle": lambda: Trace.oracle(net, true),
    }[kind]()
    fit(method, data, epochs=14, batch_size=64, lr=1e-2, progress=False)
    new, new_truth = easy(2000, 4)
    assert accuracy(predict(method, new[1500:]), new_truth[1500:]) > 0.97
    q = nn.functional.one_hot(predict(method, x), 4).float()
    assert cm_error(true, count_matrices(data.labels, q)) < 0.01
    assert cm_error(true, method.confusion()) < (1e-6 if kind == "oracle" else 0.02)
    assert torch.allclose(method.skills(), skills(true), atol=0.07)


def test_a_fit_of_vanilla_on_true_labels_recovers_the_truth():
    x, truth = easy(600, 4)
    method = Vanilla(mlp(4, 4, hidden=16, generator=seeded(3)))
    fit(method, Annotations(x, truth[:, None], n_classes=4), epochs=10, lr=1e-2, progress=False)
    assert accuracy(predict(method, x), truth) > 0.97
