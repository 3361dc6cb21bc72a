"""Chapter 14: what its exercises and sections rest on; its exercises themselves are tested with all others."""

import ast

import pytest
import torch
from exercises import code_cells, defined
from torch.nn.functional import one_hot

from course_lib import confusion, fundus, metrics
from course_lib.annotations import MISSING
from course_lib.checks import CheckFailed
from course_lib.checks import recurrence as checks
from course_lib.confusion import label_log_likelihood, posterior
from course_lib.edition import tags
from course_lib.mask_annotators import draw_masks
from course_lib.methods.aggnet import AggNet
from course_lib.methods.prism import Prism, Step
from course_lib.networks import seeded, unet


def the_chapter() -> dict:
    """The functions and classes that the chapter defines outside of its exercises."""
    space = {"torch": torch, "K": 3, "R": 7, "Prism": Prism, "AggNet": AggNet, "Step": Step, "metrics": metrics}
    space |= {name: getattr(confusion, name) for name in ("apply", "log", "posterior")}
    for cell in code_cells(14):
        if not {*tags(cell)} & {"stub", "solution"}:
            for node in ast.parse(cell.source).body:
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    exec(ast.unparse(node), space)
    return space


@pytest.fixture(scope="module")
def chapter():
    return the_chapter()


@pytest.fixture(scope="module")
def batch():
    scene = fundus.disc_and_cup(4, size=16, generator=seeded(1))
    said = draw_masks(scene.truth, scene.images, fundus.PANELS["jitter"], n_classes=3, generator=seeded(2))
    return scene.images, said, torch.arange(7).expand(4, 7), torch.arange(4)


def small(make=Prism, **how) -> Prism:
    return make(3, 7, 3, **({"width": 4, "n_heads": 2, "generator": seeded(0)} | how))


def test_the_target_is_the_librarys_posterior_whoever_is_missing():
    solution = defined(14, "solution")["next_target"]
    for seed in range(3):
        labels = torch.randint(MISSING, 3, checks.LABELS.shape, generator=seeded(seed))
        right = posterior(checks.LOG_A, checks.LOG_Y, labels).exp()
        assert torch.allclose(solution(checks.LOG_A, checks.LOG_Y, labels), right)
    nobody = torch.full_like(checks.LABELS, MISSING)
    assert torch.allclose(solution(checks.LOG_A, checks.LOG_Y, nobody), checks.LOG_Y.exp())


def test_the_loss_of_the_heads_is_the_librarys(batch):
    solution, (x, said, who, index) = defined(14, "solution")["loss_of_heads"], batch
    said = said.masked_fill(torch.rand(said.shape, generator=seeded(3)) < 0.3, MISSING)
    both = [
        float(small(losses=losses, zeta=1.0, recurrences=1).loss((x, said, who, index)).detach())
        for losses in (("heads",), ())
    ]
    step = small(losses=(), recurrences=1).steps(x, 1)[0]
    found = float(solution(step.log_z, step.log_y, said).detach())
    assert found == pytest.approx(both[0] - both[1], abs=1e-5)
    seen = label_log_likelihood(step.log_z, step.log_y, said)[said != MISSING]
    assert found == pytest.approx(-float(seen.mean().detach()), abs=1e-5)


def test_a_number_without_a_gradient_is_no_loss():
    with pytest.raises(CheckFailed, match="no gradient reaches DivP"):
        checks.loss_of_heads(lambda A, y, z: defined(14, "solution")["loss_of_heads"](A, y, z).detach())


def test_what_stands_still_has_not_moved_and_what_is_exchanged_moves_by_two():
    solution = defined(14, "solution")["moved"]
    a = one_hot(torch.zeros(2, 4, 4, dtype=torch.long), 3).movedim(-1, 1).double()
    b = a.roll(1, 1)
    log_p = torch.stack([a, a, b], 1).clamp(min=1e-30).log()
    assert solution(log_p).tolist() == pytest.approx([0, 2])


def test_only_the_loss_of_the_heads_tells_raters_apart(batch, chapter):
    solution = defined(14, "solution")["told_apart"]
    torch.manual_seed(0)
    apart = {
        losses: solution(small(losses=losses), batch) for losses in (("heads",), ("shuffle",), ("heads", "shuffle"))
    }
    assert apart["shuffle",] < 1e-6 < 1e-4 < apart["heads",]
    assert apart["heads", "shuffle"] > 1e-4


def test_the_loop_from_scratch_is_the_librarys(batch, chapter):
    model = small(recurrences=1).eval()
    for ours, theirs in zip(chapter["recur"](model, batch[0], 3), model.steps(batch[0], 3), strict=True):
        assert torch.allclose(ours[0], theirs.log_y, atol=1e-5) and torch.allclose(ours[1], theirs.log_z, atol=1e-5)
    model.train()
    by_hand, library = chapter["loss_slow"](model, *batch[:2]), model.loss(batch)
    assert float(by_hand.detach()) == pytest.approx(float(library.detach()), abs=1e-5)


def test_the_self_fusion_has_no_label_in_it(batch, chapter):
    x, said, *_ = batch
    for make, same in ((Prism, False), (chapter["SelfTaught"], True)):
        model = small(make).eval()
        step = model.steps(x, 1)[0]
        first, other = (model.fused(step, z, prior=step.log_y) for z in (said, (said + 1) % 3))
        assert torch.equal(first, other) == same


def test_as_released_the_loss_is_the_similarity(batch, chapter):
    q = one_hot(batch[1][:, 0], 3).movedim(-1, 1).float()
    losses = [make(unet(3, 3, width=4, generator=seeded(0)), q).loss(batch) for make in (AggNet, chapter["AsReleased"])]
    assert float(sum(losses).detach()) == pytest.approx(1, abs=1e-5)


def test_whose_confidences_are_handed_on(batch, chapter):
    model = small().eval()
    found = chapter["handed"](model, batch[0])
    assert torch.allclose(found["its own"], model.steps(batch[0], 2)[1].log_y, atol=1e-5)
    model.divp.forward = lambda y: (
        3 * torch.randn(len(y), 63, *y.shape[2:], generator=seeded(1))
    )  # each picture has its own
    found = chapter["handed"](model, batch[0])
    assert not torch.allclose(found["its own"], found["another picture's"], atol=1e-4)
