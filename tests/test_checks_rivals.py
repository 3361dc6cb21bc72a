"""Chapter 5: its exercises accept the solutions and name each mistake; its loops and its claims stand."""

import torch
from exercises import defined

from course_lib import annotators
from course_lib.confusion import apply
from course_lib.methods.crowd_layer import CrowdLayer
from course_lib.methods.max_mig import MaxMIG
from course_lib.networks import mlp, seeded


def test_a_solution_does_not_change_what_it_was_given():
    p = torch.tensor([0.5, 0.3, 0.2])
    defined(5, "solution")["bootstrap_target"](p, 1, 0.7)
    assert torch.equal(p, torch.tensor([0.5, 0.3, 0.2]))


def test_knowing_who_spoke_is_never_worse():
    for seed in range(20):
        A = annotators.pairwise_flippers(5, 10, 0.35, generator=seeded(seed))
        assert A.amax(2).sum(1).mean() >= A.mean(0).amax(1).sum() - 1e-5


def test_a_crowd_layer_of_log_a_is_exact_for_a_sure_network_only():
    A = annotators.diverse(generator=seeded(0)).clamp(min=1e-6)
    A = A / A.sum(1, keepdim=True)
    layer = CrowdLayer(mlp(6, 10, generator=seeded(0)), 4, 10)
    layer.W.data = A.log()
    for p, equal in ((torch.eye(10)[:1], True), (torch.arange(1.0, 11)[None] / 55, False)):
        says = torch.einsum("rij,bj->bri", layer.W, p).softmax(2)
        wanted = apply(A.log()[None], p.clamp(min=1e-30).log()).exp()
        assert torch.allclose(says, wanted, atol=1e-4) == equal


def test_max_mig_does_not_know_the_names_of_the_classes():
    method, order = MaxMIG(mlp(6, 4, generator=seeded(0)), 3, 4), torch.tensor([1, 2, 3, 0])
    x, labels = torch.randn(9, 6, generator=seeded(1)), torch.randint(-1, 4, (9, 3), generator=seeded(2))
    before = method.loss((x, labels, None, torch.arange(9)))
    last = method.network[-1]
    last.weight.data, last.bias.data = last.weight.data[order], last.bias.data[order]
    method.W.data = method.W.data[:, :, order]
    assert torch.allclose(before, method.loss((x, labels, None, torch.arange(9))), atol=1e-5)
