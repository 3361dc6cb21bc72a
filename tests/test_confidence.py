"""Three readings of one formula: a unanimous vote wins by two of them and loses by the printed one."""

import pytest
import torch

from course_lib import confidence
from course_lib.annotations import MISSING
from course_lib.confusion import posterior
from course_lib.networks import seeded


@pytest.mark.parametrize("L", [2, 3])
@pytest.mark.parametrize("R", [1, 3, 7])
def test_a_unanimous_vote_wins_but_as_printed_it_loses(R, L):
    A = torch.full((L, L), 0.1 / (L - 1)).fill_diagonal_(0.9)
    labels = torch.full((1, R), L - 1)
    log_z = A[:, L - 1].log().expand(1, R, L)  # how likely each is to say each class, the truth being L - 1
    assert int(confidence.printed(log_z, labels).argmax()) != L - 1
    assert int(confidence.weighted(log_z, labels).argmax()) == L - 1
    prior = torch.full((1, L), 1 / L).log()
    assert int(posterior(A.log().expand(1, R, L, L), prior, labels).argmax()) == L - 1


def test_the_printed_numbers_of_three_votes_at_09():
    for L, wanted in ((2, 0.42), (3, 0.27)):
        log_z = torch.full((1, 3, L), 0.1 / (L - 1)).log()
        log_z[:, :, 0] = torch.tensor(0.9).log()
        assert float(confidence.printed(log_z, torch.zeros(1, 3, dtype=torch.long))[0, 0]) == pytest.approx(
            wanted, abs=0.005
        )


def bayes(log_z, labels):
    """The posterior where z is the row that is said; nothing else of the matrices is read."""
    A = torch.zeros(*log_z.shape[:2], 2, 2) - torch.inf
    A[:, :, [0, 1], [0, 1]] = log_z  # (N, R, L, L), said before truth
    return posterior(A.clamp(min=-69), torch.tensor([[0.5, 0.5]]).log(), labels).exp()


@pytest.mark.parametrize("fuse", [bayes, confidence.weighted])
def test_a_confidence_of_exactly_0_or_1_leaves_a_distribution(fuse):
    """As printed it does not, where a rater did not name the class: that is an exhibit of chapter 13."""
    sure, other = torch.tensor([0.0, 1.0]).log(), torch.tensor([0.3, 0.7]).log()
    log_z = torch.stack([sure, other])[None]  # (1, R, L)
    for labels in ([[0, 1]], [[1, 1]], [[0, 0]], [[MISSING, MISSING]]):
        p = fuse(log_z, torch.tensor(labels))
        assert torch.isfinite(p).all() and float(p.sum()) == pytest.approx(1)
    alone = fuse(log_z[:, 1:], torch.tensor([[1]]))
    assert torch.allclose(fuse(log_z, torch.tensor([[MISSING, 1]])), alone)  # whose mask says nothing has no effect
    assert confidence.printed(log_z, torch.tensor([[1, 1]])).isnan().all()


@pytest.mark.parametrize("fuse", [confidence.printed, confidence.weighted])
def test_each_is_its_loop_and_a_distribution(fuse):
    log_z = torch.randn(2, 4, 3, 2, 5, generator=seeded(0)).log_softmax(2)
    labels = torch.randint(-1, 3, (2, 4, 2, 5), generator=seeded(1))
    labels[0, :, 0, 0] = MISSING
    found = fuse(log_z, labels)
    assert found.shape == (2, 3, 2, 5) and torch.allclose(found.sum(1), torch.ones(2, 2, 5))
    for n, y, x in [(0, 0, 0), (0, 1, 3), (1, 0, 2), (1, 1, 4)]:
        total = torch.zeros(3)
        for m in range(4):
            k = int(labels[n, m, y, x])
            if k != MISSING:
                total[k] += log_z[n, m, k, y, x] if fuse is confidence.printed else log_z[n, m, k, y, x].exp()
        if fuse is confidence.printed:
            wanted = total.softmax(0)
        else:
            wanted = total / total.sum() if total.sum() > 0 else torch.full((3,), 1 / 3)
        assert torch.allclose(found[n, :, y, x], wanted, atol=1e-5)


def test_only_the_posterior_knows_that_a_timid_raters_no_is_weak():
    A = torch.tensor([[0.95, 0.5], [0.05, 0.5]])
    said = torch.tensor([[0]])
    p = posterior(A.log()[None, None], torch.tensor([[0.5, 0.5]]).log(), said).exp()
    assert p[0].tolist() == pytest.approx([0.95 / 1.45, 0.5 / 1.45])
    assert confidence.weighted(torch.tensor([[[0.725, 0.275]]]).log(), said)[0].tolist() == [1, 0]


def test_shapes_that_do_not_fit_are_told():
    with pytest.raises(ValueError, match=r"wanted log_z \(N\|1, R, L"):
        confidence.printed(torch.zeros(1, 3, 2), torch.zeros(2, 4, dtype=torch.long))
