"""Chapter 10: what its exercises and sections rest on; its exercises themselves are tested with all others."""

import ast

import numpy as np
import pytest
import torch
from exercises import code_cells, functions
from scipy.optimize import linprog

from course_lib import confusion
from course_lib.checks import identify
from course_lib.confusion import label_log_likelihood
from course_lib.networks import seeded


@pytest.fixture(scope="module")
def least_trace():
    """The chapter's own linear programme."""
    space = {"np": np, "linprog": linprog, "torch": torch}
    for cell in code_cells(10):
        for name, node in functions(cell.source).items():
            if name == "least_trace":
                exec(ast.unparse(node), space)
    return space["least_trace"]


def simplex(L: int, generator: torch.Generator, least: float = 0.0) -> torch.Tensor:
    x = torch.rand(L, generator=generator, dtype=torch.float64) + 0.05
    return least + (1 - L * least) * x / x.sum()


@pytest.mark.parametrize("L", [2, 3, 4, 5])
def test_an_impostor_fits_leads_its_rows_and_has_the_bound_as_its_trace(L, least_trace):
    generator = seeded(L)
    for _ in range(5):
        q, p, eps = simplex(L, generator, 0.05), simplex(L, generator), 0.02
        A = identify._impostor(q, p, eps)
        assert torch.allclose(A @ p, q) and torch.allclose(A.sum(0), torch.ones(L, dtype=A.dtype)) and A.min() >= 0
        assert confusion.dominance(A[None]) == pytest.approx(eps)
        assert A.trace().item() == pytest.approx(1 + eps * (L - 1))
        assert least_trace(p[:, None], q[:, None], eps)[0] == pytest.approx(1 + eps * (L - 1), abs=1e-6)


def test_a_dominant_truth_has_a_trace_above_one_and_many_pixels_sharing_it_find_it(least_trace):
    generator, L = seeded(1), 3
    for _ in range(20):
        A = 0.5 * torch.eye(L) + 0.5 * torch.stack([simplex(L, generator) for _ in range(L)], 1)
        if confusion.dominance(A[None]) <= 1e-3:
            continue
        assert A.trace() > 1
        assert least_trace(torch.eye(L), A)[0] == pytest.approx(float(A.trace()), abs=1e-5)
        assert np.isnan(least_trace(torch.eye(L)[[1, 2, 0]], A)[0])  # renamed: no dominant matrix is left
        P = 0.95 * torch.eye(L) + 0.05 / L  # a network that hesitates
        more = least_trace(P, A)[0]
        assert np.isnan(more) or more > A.trace()


def test_without_dominance_the_least_said_class_is_preferred(least_trace):
    q = torch.tensor([0.5, 0.3, 0.2])
    traces = [least_trace(torch.eye(3)[:, [k]], q[:, None], dominant=False)[0] for k in range(3)]
    assert traces == pytest.approx(q.tolist(), abs=1e-6)


def test_columns_of_one_over_L_turn_the_theorem_into_a_vote():
    for L in (2, 3, 4):
        generator = seeded(10 + L)
        for _ in range(50):
            q = simplex(L, generator).float()
            for k, possible in enumerate(identify._possible(q).tolist()):
                A = torch.full((L, L), 1 / L)
                A[:, k] = q
                assert possible == bool((A.diagonal()[:, None] >= A).all())
                assert not possible or k == q.argmax()


def test_equal_columns_say_nothing_of_the_truth():
    logits = torch.randn(5, 3, generator=seeded(2), requires_grad=True)
    A = identify.SAID[:, None].repeat(1, 3)
    said = torch.tensor([[0], [1], [2], [0], [1]])
    (-label_log_likelihood(A.log()[None, None], logits.log_softmax(1), said).sum()).backward()
    assert logits.grad.abs().max() < 1e-6
