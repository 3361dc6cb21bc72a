"""The rivals: each loss against a slow loop, by hand, alone and in a stack, and each recovers what it should."""

import copy
import math

import pytest
import torch
from torch import nn

from course_lib import annotators, metrics
from course_lib.annotations import MISSING, Annotations
from course_lib.confusion import count_matrices
from course_lib.methods.crowd_layer import CrowdLayer
from course_lib.methods.doctor import DoctorNet
from course_lib.methods.em import GEM, MBEM, fit_em
from course_lib.methods.max_mig import MaxMIG
from course_lib.methods.noisy import Bootstrap
from course_lib.methods.trace import Vanilla
from course_lib.networks import mlp, seeded
from course_lib.training import fit, predict, predict_log_p

N, L, R, D = 400, 3, 4, 6
TRUTH = torch.arange(N) % L
IMAGES = 3 * torch.eye(L, D)[TRUTH] + torch.randn(N, D, generator=seeded(0))
A = annotators.pairwise_flippers(R, L, 0.7, generator=seeded(1))


def crowd(per_item: int | None, A: torch.Tensor = A) -> Annotations:
    labels = annotators.annotate(TRUTH, A, per_item=per_item, generator=seeded(2))
    return Annotations(IMAGES, labels, n_classes=L)


DENSE, ONE = crowd(None), crowd(1)


def net(seed: int = 0, n: int = L) -> nn.Module:
    return mlp(D, n, hidden=8, generator=seeded(seed))


RIVALS = {
    "bootstrap_soft": lambda s, d: Bootstrap(net(s)),
    "bootstrap_hard": lambda s, d: Bootstrap(net(s), hard=True),
    "doctor_net": lambda s, d: DoctorNet(net(s, R * L), R, L),
    "crowd_layer": lambda s, d: CrowdLayer(net(s), R, L),
    "max_mig": lambda s, d: MaxMIG(net(s), R, L),
    "gem": lambda s, d: GEM(net(s), d),
    "mbem": lambda s, d: MBEM(net(s), d),
}


def batch(B: int = 7, seed: int = 3) -> tuple[torch.Tensor, ...]:
    """Two labels an item of four annotators, some missing."""
    g = seeded(seed)
    who = torch.rand(B, R, generator=g).argsort(1)[:, :2]
    labels = torch.randint(-1, L, (B, 2), generator=g)
    return torch.randn(B, D, generator=g), labels, who, torch.arange(B)


def probabilities(logits: torch.Tensor) -> list[list[float]]:
    rows = [[math.exp(v) for v in row] for row in logits.tolist()]
    return [[v / sum(row) for v in row] for row in rows]


def seen(labels: torch.Tensor, who: torch.Tensor) -> list[tuple[int, int, int]]:
    pairs = zip(labels.tolist(), who.tolist(), strict=True)
    return [
        (b, r, i) for b, (says, people) in enumerate(pairs) for i, r in zip(says, people, strict=True) if i != MISSING
    ]


# Slow loops


@pytest.mark.parametrize("hard", [False, True])
def test_bootstrap_is_the_slow_loop(hard):
    method, (x, labels, who, index) = Bootstrap(net(), hard=hard, beta=0.7), batch()
    p, total = probabilities(method.network(x).detach()), 0.0
    for b, _, i in seen(labels, who):
        own = [float(k == p[b].index(max(p[b]))) for k in range(L)] if hard else p[b]
        total -= sum((0.7 * (k == i) + 0.3 * own[k]) * math.log(p[b][k]) for k in range(L))
    wanted = total / len(seen(labels, who))
    assert float(method.loss((x, labels, who, index)).detach()) == pytest.approx(wanted, abs=1e-5)


def test_bootstrap_that_trusts_the_label_alone_is_vanilla():
    some = batch()
    assert torch.allclose(Bootstrap(net(), beta=1.0).loss(some), Vanilla(net()).loss(some))


def test_doctor_net_is_the_slow_loop():
    method, (x, labels, who, index) = DoctorNet(net(0, R * L), R, L), batch()
    with torch.no_grad():
        method.weight_logits.copy_(torch.tensor([0.3, -1.0, 0.5, 0.0]))
    w = probabilities(method.weight_logits[None].detach())[0]
    heads = [probabilities(row.view(R, L)) for row in method.network(x).detach()]
    total = 0.0
    for b, r, i in seen(labels, who):
        total -= math.log(heads[b][r][i]) + math.log(sum(w[s] * heads[b][s][i] for s in range(R)))
    found = method.loss((x, labels, who, index))
    assert float(found.detach()) == pytest.approx(total / len(seen(labels, who)), abs=1e-5)


def test_the_weights_of_doctor_net_do_not_move_its_heads():
    """The second part is cut off from the heads: their gradient is that of the first part alone."""
    method, some = DoctorNet(net(0, R * L), R, L), batch()
    method.loss(some).backward()
    with_both = method.network[1].weight.grad.clone()
    other = copy.deepcopy(method)
    other.zero_grad()
    with torch.no_grad():
        other.weight_logits.copy_(torch.tensor([3.0, -1.0, 0.0, 1.0]))
    other.loss(some).backward()
    assert torch.allclose(with_both, other.network[1].weight.grad, atol=1e-6)
    assert method.weight_logits.grad.abs().sum() > 0


def test_crowd_layer_is_the_slow_loop():
    method, (x, labels, who, index) = CrowdLayer(net(), R, L), batch()
    with torch.no_grad():
        method.W.copy_(torch.randn(R, L, L, generator=seeded(4)))
    W, p, total = method.W.tolist(), probabilities(method.network(x).detach()), 0.0
    for b, r, i in seen(labels, who):
        z = [sum(W[r][k][j] * p[b][j] for j in range(L)) for k in range(L)]
        total -= z[i] - math.log(sum(map(math.exp, z)))
    found = method.loss((x, labels, who, index))
    assert float(found.detach()) == pytest.approx(total / len(seen(labels, who)), abs=1e-5)


def test_a_new_crowd_layer_reads_as_a_poor_hammer_spammer():
    diagonal = CrowdLayer(net(0, 10), 2, 10).confusion().diagonal(dim1=1, dim2=2)
    assert torch.allclose(diagonal, torch.tensor(math.e / (math.e + 9)))


def test_max_mig_is_the_slow_loop():
    method, (x, labels, who, index) = MaxMIG(net(), R, L), batch()
    with torch.no_grad():
        method.W.copy_(torch.randn(R, L, L, generator=seeded(4)))
    W, h, B = method.W.tolist(), probabilities(method.network(x).detach()), len(x)
    g = []
    for b in range(B):
        scores = [1 / L] * L
        for c, r, i in seen(labels, who):
            if c == b:
                scores = [scores[j] * math.exp(W[r][i][j]) for j in range(L)]
        g.append([v / sum(scores) for v in scores])
    T = [[sum(h[i][c] * g[j][c] * L for c in range(L)) for j in range(B)] for i in range(B)]
    apart = sum(T[i][j] for i in range(B) for j in range(B) if i != j) / (B * (B - 1))
    wanted = apart - sum(1 + math.log(T[i][i]) for i in range(B)) / B
    assert float(method.loss((x, labels, who, index)).detach()) == pytest.approx(wanted, abs=1e-4)


# EM


def test_the_loss_of_em_is_cross_entropy_against_its_own_q():
    method = GEM(net(), DENSE)
    index = torch.tensor([5, 0, 9])
    p = predict_log_p(method, IMAGES[index])
    wanted = -(method.q[index] * p).sum(1).mean()
    found = method.loss((IMAGES[index], DENSE.labels[index], None, index))
    assert float(found.detach()) == pytest.approx(float(wanted), abs=1e-5)


def test_a_turn_of_gem_is_algorithm_2_by_a_slow_loop():
    data = crowd(2)
    method = GEM(net(), data)
    q, p = method.q.tolist(), predict_log_p(method, data.images).exp().tolist()
    a = [[[0.0] * L for _ in range(L)] for _ in range(R)]
    for r in range(R):
        for j in range(L):
            rows = [(n, int(i)) for n, i in enumerate(data.labels[:, r]) if i != MISSING]
            total = sum(q[n][j] for n, _ in rows)
            for i in range(L):
                a[r][i][j] = sum(q[n][j] for n, said in rows if said == i) / total
    method.turn(data)
    assert torch.allclose(method.confusion(), torch.tensor(a), atol=1e-5)
    for n in range(10):
        scores = list(p[n])
        for r, i in enumerate(data.labels[n].tolist()):
            if i != MISSING:
                scores = [scores[j] * a[r][i][j] for j in range(L)]
        assert method.q[n].tolist() == pytest.approx([v / sum(scores) for v in scores], abs=1e-4)


def test_a_turn_of_mbem_counts_decisions_and_forgets_the_image():
    method = MBEM(net(), DENSE)
    decided = predict(method, IMAGES)
    method.turn(DENSE)
    wanted = count_matrices(DENSE.labels, nn.functional.one_hot(decided, L).float())
    assert torch.allclose(method.confusion(), wanted, atol=1e-6)
    same = [n for n in range(N) if torch.equal(DENSE.labels[n], DENSE.labels[0])]
    assert len(same) > 1 and all(torch.equal(method.q[n], method.q[0]) for n in same)  # other images, same labels


def test_the_printed_prior_of_mbem_loses_a_class_that_nobody_is_given():
    class Never(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.tensor([0.0, 0.5, -50.0]))

        def forward(self, x):
            return x[:, :L] * torch.tensor([1.0, 1.0, 0.0]) + self.bias

    printed, uniform = MBEM(Never(), DENSE), MBEM(Never(), DENSE, prior="uniform")
    for method in (printed, uniform):
        method.turn(DENSE)
    assert printed.q[:, 2].max() < 1e-6 < uniform.q[:, 2].max()


def test_with_one_label_an_item_gem_stands_still_and_is_vanilla():
    method, plain = GEM(net(), ONE), Vanilla(net())
    fit_em(method, ONE, rounds=1, epochs=3, progress=False)
    fit(plain, ONE, epochs=3, progress=False)
    assert torch.allclose(method.q, nn.functional.one_hot(ONE.labels.amax(1), L).float(), atol=1e-6)
    assert torch.allclose(method.confusion(), torch.eye(L).expand(R, L, L), atol=1e-6)
    assert torch.allclose(predict_log_p(method, IMAGES), predict_log_p(plain, IMAGES), atol=1e-4)


def test_first_matrices_from_the_network_get_it_going():
    method = GEM(net(), ONE, first_from="network")
    fit_em(method, ONE, rounds=4, epochs=60, lr=3e-3, progress=False)
    still = metrics.cm_error(A, torch.eye(L).expand(R, L, L))
    assert metrics.cm_error(A, method.confusion()) < still / 2


def test_rounds_share_the_epochs():
    histories = fit_em(GEM(net(), DENSE), DENSE, rounds=3, epochs=8, progress=False)
    assert [len(h.loss) for h in histories] == [2, 3, 3]
    with pytest.raises(ValueError, match="at least one epoch; got 3 rounds and 2 epochs"):
        fit_em(GEM(net(), DENSE), DENSE, rounds=3, epochs=2)


def test_em_warns_once_of_its_last_matrices():
    few = DENSE.items(slice(0, 2))  # two labels each, of three classes
    with pytest.warns(UserWarning, match="fewer labels") as heard:
        fit_em(GEM(net(), few), few, rounds=2, epochs=2, progress=False)
    assert len([w for w in heard if "fewer labels" in str(w.message)]) == 1 and heard[0].filename == __file__


# All


@pytest.mark.parametrize("name", RIVALS)
def test_a_stack_trains_as_each_would_alone(name):
    stack = [RIVALS[name](k, d) for k, d in enumerate((ONE, DENSE))]
    alone = copy.deepcopy(stack)
    fit(stack, [ONE, DENSE], epochs=2, seeds=[5, 6], progress=False)
    for method, data, seed in zip(alone, (ONE, DENSE), (5, 6), strict=True):
        fit(method, data, epochs=2, seeds=seed, progress=False)
    for method, other in zip(stack, alone, strict=True):
        for key, tensor in other.state_dict().items():
            assert torch.allclose(tensor, method.state_dict()[key], atol=2e-4), key


@pytest.mark.parametrize("name", RIVALS)
def test_dense_labels_are_learned_better_than_one_annotator_knows_them(name):
    method = RIVALS[name](0, DENSE)
    if isinstance(method, GEM):
        fit_em(method, DENSE, rounds=2, epochs=40, lr=3e-3, progress=False)
    else:
        fit(method, DENSE, epochs=40, lr=3e-3, progress=False)
    assert metrics.accuracy(predict(method, IMAGES), TRUTH) > 0.85 > 0.7  # each annotator is right 70 % of the time
    if hasattr(method, "skills"):
        assert method.skills().shape == (R,)
    if name in ("gem", "mbem"):
        assert metrics.cm_error(A, method.confusion()) < 0.05


@pytest.mark.parametrize("name", RIVALS)
def test_a_batch_without_a_label_costs_nothing_and_moves_nothing_to_nan(name):
    method, (x, labels, who, index) = RIVALS[name](0, DENSE), batch()
    loss = method.loss((x, torch.full_like(labels, MISSING), who, index))
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in method.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Bootstrap(net(), beta=1.5), "`beta`.*got 1.5"),
        (lambda: GEM(net(), DENSE, first_from="vote"), "'labels' .* or 'network'; got 'vote'"),
        (lambda: MBEM(net(), DENSE, prior="flat"), "'counted' .* or 'uniform'; got 'flat'"),
        (lambda: fit(DoctorNet(net(), R, L), DENSE, epochs=1), "R L = 12 numbers.*got 3"),
    ],
)
def test_wrong_settings_are_one_clear_line(make, says):
    with pytest.raises(ValueError, match=says) as error:
        make()
    assert "\n" not in str(error.value)
