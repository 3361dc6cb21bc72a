"""Chapter 8: what its exercises and sections rest on; its exercises themselves are tested with all others."""

import ast

import torch
from exercises import code_cells, defined, functions, printed

from course_lib import confusion, networks, pixel_cms
from course_lib.checks import pixels
from course_lib.confusion import joint_log_likelihood, label_log_likelihood
from course_lib.methods.pixels import Pixels
from course_lib.networks import seeded


def shown(*names: str, **space) -> dict:
    """Functions as the chapter's cells show them."""
    space |= {"torch": torch, "confusion": confusion}
    for cell in code_cells(8):
        for name, node in functions(cell.source).items():
            if name in names:
                exec(ast.unparse(node), space)
    return space


def test_the_librarys_own_functions_are_right_answers(capsys):
    pixels.label_loss(lambda A, p, said: -label_log_likelihood(A, p, said)[said >= 0].mean())
    pixels.together(joint_log_likelihood)
    pixels.raised_by(lambda start, L: pixel_cms.EverywhereCM(1, L, start=start).identity.max())
    assert capsys.readouterr().out.count("✓") == 3


def model() -> tuple[Pixels, torch.Tensor, torch.Tensor]:
    """A network and matrices off their start, pictures, and masks of which one is missing."""
    cm = pixel_cms.PixelCM(3, 2, 8, generator=seeded(1))
    torch.nn.init.normal_(cm.last.weight, generator=seeded(2))
    net = Pixels(networks.unet(1, 2, generator=seeded(0)), cm, lam=0.0).eval()
    said = torch.randint(0, 2, (2, 3, 8, 8), generator=seeded(3))
    said[1, 2] = -1
    return net, torch.rand(2, 1, 8, 8, generator=seeded(4)), said


@torch.no_grad()
def test_the_loop_of_the_chapter_its_gather_and_the_exercise_are_the_librarys_loss():
    net, x, said = model()
    wanted = float(net.loss((x, said, None, torch.arange(2))))
    space = shown("loss_slow", "loss_gathered")
    for name in ("loss_slow", "loss_gathered"):
        assert abs(float(space[name](net.log_A(x), net.log_p(x), said)) - wanted) < 1e-5, name
    assert abs(float(defined(8, "solution")["label_loss"](net.log_A(x), net.log_p(x), said)) - wanted) < 1e-5


@torch.no_grad()
def test_the_exercises_joint_likelihood_is_the_librarys():
    net, x, said = model()
    net.joint = True
    mine = -defined(8, "solution")["together"](net.log_A(x), net.log_p(x), said).sum() / (said >= 0).sum()
    assert abs(float(net.loss((x, said, None, torch.arange(2)))) - float(mine)) < 1e-5


def test_the_head_of_the_chapter_starts_where_the_librarys_does():
    head = shown("head")["head"](6, 3, 4, 0.8)
    logits = head(torch.randn(2, 6, 5, 5, generator=seeded(5))).unflatten(1, (3, 4, 4))
    wanted = pixel_cms.EverywhereCM(3, 4, start=0.8)(torch.zeros(1, 6, 5, 5), torch.zeros(1, 6, 1, 1)).exp()
    assert torch.allclose(logits.softmax(2), wanted.expand(2, -1, -1, -1, -1, -1), atol=1e-6)


def test_at_ci_size_every_outcome_that_the_chapter_reports_is_seen(executed):
    said = printed(8, executed.root)
    assert said.count("seen: ") >= 4 and "your run differed" not in said
