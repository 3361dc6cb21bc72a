"""`course report` with pictures: networks are compared on the same labels laid aside, and used only where they help."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn.functional import one_hot
from typer.testing import CliRunner

from course_lib.annotations import MISSING, Annotations
from course_lib.annotators import annotate
from course_lib.cli import app
from course_lib.confusion import count_matrices
from course_lib.mask_files import Case
from course_lib.metrics import accuracy
from course_lib.networks import seeded
from course_lib.report import advice, analyse, networks, read
from course_lib.report.analysis import cases_of
from course_lib.report.held_out import (
    CHANCE,
    EACH,
    NET_EACH,
    NET_PIXELS,
    NET_SHARED,
    NETWORKS,
    Fit,
    _ranked,
    choice,
    left_out,
)
from course_lib.report.networks import OfClasses, OfMasks, OneForAll, counted, flat, parted, why_not

A_TWO = torch.tensor([[[0.9, 0.2], [0.1, 0.8]], [[0.7, 0.4], [0.3, 0.6]]])
"""Two annotators, neither symmetric."""


@pytest.fixture
def brief(monkeypatch):
    """Half the steps, since these pictures are easy."""
    monkeypatch.setattr(networks, "STEPS", {"classes": 120, "masks": 110})


def course(*words) -> str:
    """What `course` says; errors come last."""
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    return done.output


def blobs(N: int, size: int = 24) -> torch.Tensor:
    """(N, size, size) bool: a square of 8 to 13 pixels a side in each picture."""
    draw = lambda low, high: torch.randint(low, high, (N, 1, 1), generator=seeded(low * high))  # noqa: E731
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    top, left, side = draw(1, 10), draw(0, 10), draw(8, 14)
    return (y >= top) & (y < top + side) & (x >= left) & (x < left + side)


def noisy(truth: torch.Tensor, spread: float) -> torch.Tensor:
    return (truth.float() + spread * torch.randn(truth.shape, generator=seeded(3)))[:, None]


def flipped(truth: torch.Tensor, wrong: torch.Tensor, seed: int = 1) -> torch.Tensor:
    """Labels (N, R, H, W), each wrong with a probability broadcastable to that."""
    wrong = wrong.expand(len(truth), -1, *truth.shape[1:])
    errs = torch.rand(wrong.shape, generator=seeded(seed)) < wrong
    return (truth[:, None] ^ errs).long()


def scores(found) -> dict[str, float]:
    return {fit["model"]: fit["score"] for fit in found.summary["held_out"]}


# ---- masks ----------------------------------------------------------------------------------------------------------


def test_a_folder_whose_pictures_decide_is_fused_by_a_network(tmp_path, brief):
    truth = blobs(24)
    said = flipped(truth, torch.tensor([0.3, 0.35, 0.4])[None, :, None, None])
    for n, x in enumerate(noisy(truth, 0.15)):
        picture = (x[0].clamp(-1, 2) * 60 + 70).byte().numpy()
        for path, values in [("images", picture), *zip("abc", said[n].byte().numpy(), strict=True)]:
            (tmp_path / "in" / path).mkdir(parents=True, exist_ok=True)
            Image.fromarray(values).save(tmp_path / f"in/{path}/c{n}.png")
    told = course("report", tmp_path / "in", "--out", tmp_path / "out")
    found = json.loads((tmp_path / "out/report.json").read_text())
    assert found["fused_by"] in NETWORKS and found["matrices_by"] == found["fused_by"]
    fused = np.stack([np.array(Image.open(tmp_path / f"out/masks/c{n}.png")) for n in range(24)]) > 0
    voted = said.sum(1).numpy() > 1
    assert np.mean(voted == truth.numpy()) < 0.75 < 0.95 < np.mean(fused == truth.numpy())
    assert {run["model"] for run in found["networks"]["runs"]} == {NET_EACH, NET_PIXELS}
    assert all(run["seconds"] > 0 and run["epochs"] > 0 and run["device"] for run in found["networks"]["runs"])
    assert found["networks"]["runs"][-1]["all_labels"] and "training a network" in told
    page = (tmp_path / "out/report.html").read_text()
    assert f"By the {found['fused_by']}: what it says of the picture" in page and f"{NET_PIXELS}" in page
    assert any(line.startswith("The pictures help") for line in found["next"])


def test_an_annotator_blind_where_the_picture_is_dark_needs_a_matrix_for_each_pixel(brief):
    truth = blobs(40)
    dark = (torch.arange(24) < 4 + torch.randint(17, (40, 1, 1), generator=seeded(8))).expand(40, 24, 24)
    blind = torch.stack([dark, ~dark, dark], 1)
    said = flipped(truth, torch.where(blind, 0.4, 0.03))
    pictures = torch.cat([noisy(truth, 0.15), dark.float()[:, None]], 1)
    found = analyse(Annotations(pictures, said, 2), progress=False)
    told = scores(found)
    assert max(told, key=told.get) == NET_PIXELS and told[NET_PIXELS] > told[NET_EACH] + 0.02
    assert found.summary["fused_by"] == NET_PIXELS
    assert float((found.p.argmax(1) == truth).float().mean()) > 0.97
    A = count_matrices(flat(said), one_hot(truth.flatten().long(), 2).float())  # what they did, over all pixels
    assert torch.allclose(found.A, A, atol=0.13)  # the network is not sure of all pixels, and the truth is rare
    assert int(found.A.diagonal(dim1=1, dim2=2).sum(1).argmax()) == 1
    assert any("a wrong truth" in line for line in found.summary["next"])


def test_pictures_that_tell_nothing_leave_the_choice_to_the_labels(brief):
    truth = torch.rand(20, 24, 24, generator=seeded(5)) < 0.4
    data = Annotations(
        torch.rand(20, 1, 24, 24, generator=seeded(6)), flipped(truth, torch.full((1, 4, 1, 1), 0.15)), 2
    )
    found, plain = analyse(data, progress=False), analyse(data, networks=False)
    assert {NET_EACH, NET_PIXELS} <= scores(found).keys() and NET_EACH not in scores(plain)
    assert found.summary["fused_by"] == plain.summary["fused_by"] not in NETWORKS
    assert found.p.equal(plain.p) and found.A.equal(plain.A)
    assert advice.PICTURES_DID_NOT_HELP in found.summary["next"]
    assert plain.summary["networks"] == {"why_not": "they were switched off", "runs": []}


class Fixed(nn.Module):
    """What a trained network of masks answers: p .6, .4 where the picture is 0, else .1, .9; A_TWO everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.none = nn.Parameter(torch.zeros(1))

    def log_p(self, x):
        first = torch.where(x > 0, 0.1, 0.6)
        return torch.cat([first, 1 - first], 1).log()

    def log_A(self, x):
        return A_TWO.log()[None, ..., None, None].expand(-1, -1, -1, -1, *x.shape[2:])

    def confusion(self):
        return A_TWO


BY_HAND = {  # prior, the other's label -> p(first says 0)
    0: (0.6 * 0.3 * 0.9 + 0.4 * 0.6 * 0.2) / (0.6 * 0.3 + 0.4 * 0.6),  # the second said 1, the picture is 0
    1: (0.1 * 0.3 * 0.9 + 0.9 * 0.6 * 0.2) / (0.1 * 0.3 + 0.9 * 0.6),  # the same, where the picture is 1
}


def test_a_pixel_is_scored_by_the_prior_of_its_own_place_by_hand(monkeypatch):
    x = torch.zeros(12, 1, 8, 8)
    x[5, 0, 2, 3] = 1
    labels = torch.zeros(12, 2, 8, 8, dtype=torch.long)
    labels[:, 1] = 1
    nets = OfMasks(Annotations(x, labels, 2), progress=False)
    monkeypatch.setattr(nets, "_trained", lambda name, labels: Fixed())
    n, y, x = torch.tensor([[5, 5, 11], [2, 3, 7], [3, 2, 7]])
    p = nets.scores(torch.zeros(12, 8, 8, dtype=torch.bool), n, y, x)[NET_EACH].exp()  # (first, second) of each pixel
    assert p[0::2].tolist() == pytest.approx([BY_HAND[1], BY_HAND[0], BY_HAND[0]])


def test_the_fused_mask_is_the_posterior_of_the_picture_and_all_labels(monkeypatch):
    labels = torch.tensor([0, 1]).reshape(1, 2, 1, 1).repeat(12, 1, 8, 8)
    labels[3, 0] = MISSING
    nets = OfMasks(Annotations(torch.zeros(12, 1, 8, 8), labels, 2), progress=False)
    nets.runs.append({})
    monkeypatch.setattr(nets, "_trained", lambda name, labels: Fixed())
    p, A = nets.fused(NET_PIXELS)
    assert float(p[0, 0, 4, 4]) == pytest.approx(0.6 * 0.9 * 0.3 / (0.6 * 0.9 * 0.3 + 0.4 * 0.2 * 0.6))
    assert float(p[3, 0, 4, 4]) == pytest.approx(0.6 * 0.3 / (0.6 * 0.3 + 0.4 * 0.6))
    assert A.tolist() == [[[1, 1], [0, 0]], [[0, 0], [1, 1]]]  # each said one thing, whatever is true


def test_large_pictures_are_reduced_and_every_pixel_keeps_its_prior(monkeypatch):
    x = torch.zeros(10, 1, 300, 200)
    x[:, :, :150] = 1
    nets = OfMasks(Annotations(x, torch.zeros(10, 2, 300, 200, dtype=torch.long), 2), progress=False)
    assert nets.stride == 2  # 60,000 pixels, at most 16,384
    monkeypatch.setattr(nets, "_trained", lambda name, labels: Fixed())
    nets.runs.append({})
    p, _ = nets.fused(NET_EACH)
    assert p.shape == (10, 2, 300, 200)
    post = lambda a: a * 0.9 * 0.7 / (a * 0.9 * 0.7 + (1 - a) * 0.2 * 0.4)  # noqa: E731
    assert float(p[0, 0, 149, 0]) == pytest.approx(post(0.1)) and float(p[0, 0, 150, 199]) == pytest.approx(post(0.6))


def test_no_network_sees_a_pixel_laid_aside(monkeypatch):
    seen = []
    labels = flipped(blobs(12), torch.full((1, 3, 1, 1), 0.1))

    def watch(self, name, method, data, *, validation, **options):
        assert not (data.observed & validation.observed).any()
        seen.append(data.labels.maximum(validation.labels))  # MISSING is the least
        self.runs.append({"model": name})

    monkeypatch.setattr(networks.Networks, "fitted", watch)
    aside = torch.rand(12, 24, 24, generator=seeded(0)) < 0.2
    nets = OfMasks(Annotations(noisy(blobs(12), 0.1), labels, 2), progress=False)
    nets.scores(aside, *aside.nonzero(as_tuple=True))
    assert len(seen) == 2
    for learned in seen:
        assert learned.equal(torch.where(aside[:, None], MISSING, labels))


def test_labels_too_few_to_be_parted_are_learned_and_watched_alike():
    labels = torch.full((10, 2, 8, 8), MISSING)
    labels[4, 0, 3, 3] = 1
    few = Annotations(torch.zeros(10, 1, 8, 8), labels, 2)
    assert all(part is few for part in parted(few))


# ---- classes --------------------------------------------------------------------------------------------------------


def crowd_with_pictures(N: int = 300, spread: float = 0.3, wrong: float = 0.25, per_item: int = 2) -> Annotations:
    """Two classes, seen in which half of a picture is bright; four annotators, of whom two swap the names."""
    truth = torch.randint(2, (N,), generator=seeded(0))
    x = spread * torch.randn(N, 1, 8, 8, generator=seeded(4))
    x[truth == 1, :, :4] += 1
    x[truth == 0, :, 4:] += 1
    good = torch.tensor([[1 - wrong, wrong + 0.1], [wrong, 0.9 - wrong]])
    A = torch.stack([good, good, good.flip(0) * 0.3 + good * 0.7, good])
    return Annotations(x, annotate(truth, A, per_item=per_item, generator=seeded(2)), 2, truth=truth)


def test_pictures_of_classes_that_decide_are_used(brief):
    data = crowd_with_pictures()
    found = analyse(data, progress=False)
    assert {NET_SHARED, NET_EACH} <= scores(found).keys() and found.summary["fused_by"] in (NET_SHARED, NET_EACH)
    told = found.summary["accuracy_on_given_truth"]
    assert told["fused"] > 0.8 and told["fused"] > max(told["vote"], told[EACH]) + 0.15
    assert accuracy(found.p.argmax(1), data.truth) == pytest.approx(told["fused"])
    (shared, each) = found.summary["networks"]["runs"]
    assert shared["times"] == 6 and each["parameters"] == shared["parameters"] + 3 * 4


def test_the_same_report_twice_is_the_same(brief):
    data = crowd_with_pictures(120)
    one, two = analyse(data, progress=False), analyse(data, progress=False)
    assert one.p.equal(two.p) and scores(one) == scores(two)


def test_pictures_of_noise_leave_the_crowd_to_dawid_skene(brief):
    good = torch.tensor([[0.95, 0.15], [0.05, 0.85]])
    A = torch.stack([good, good, torch.full((2, 2), 0.5), good])
    said = annotate(torch.randint(2, (300,), generator=seeded(0)), A, generator=seeded(2))
    found = analyse(Annotations(torch.rand(300, 1, 8, 8, generator=seeded(5)), said, 2), progress=False).summary
    assert found["fused_by"] == EACH == found["held_out"][0]["model"]
    assert advice.COPIES in found["next"]  # what binds these labels together is not in the pictures


def test_three_who_copy_are_given_away_by_pictures_that_do_not_help(brief):
    data = crowd_with_pictures(300, per_item=None)
    good = annotate(data.truth, torch.tensor([[[0.8, 0.2], [0.2, 0.8]]]).expand(4, 2, 2), generator=seeded(7))
    one = annotate(data.truth, torch.tensor([[[0.6, 0.4], [0.4, 0.6]]]), generator=seeded(8))
    honest = analyse(data.with_labels(good, tuple("abcd")), progress=False).summary
    assert advice.COPIES not in honest["next"] and honest["fused_by"] in (NET_SHARED, NET_EACH)
    copied = analyse(data.with_labels(torch.cat([good, one.expand(-1, 3)], 1), tuple("abcdefg")), progress=False)
    assert copied.summary["fused_by"] == EACH and copied.summary["next"][0] == advice.COPIES  # the gravest first
    assert accuracy(copied.p.argmax(1), data.truth) < 0.7  # which nobody could know who has labels alone


def test_a_training_that_breaks_off_leaves_the_report_without_networks(brief, monkeypatch):
    def broken(*_, **__):
        raise FloatingPointError("the loss of run(s) [0] is not finite after epoch 1; is `lr`=0.1 too large?")

    monkeypatch.setattr(networks, "fit", broken)
    found = analyse(crowd_with_pictures(120), progress=False).summary
    assert "broke off (the loss of run(s) [0] is not finite" in found["networks"]["why_not"]
    assert found["held_out"] and not {NET_SHARED, NET_EACH} & {fit["model"] for fit in found["held_out"]}


def test_a_training_that_breaks_off_after_the_comparison_leaves_the_choice_to_labels(brief, monkeypatch):
    def broken(*_):
        raise FloatingPointError("the loss of run(s) [0] is not finite after epoch 1")

    data = crowd_with_pictures(120)
    monkeypatch.setattr(OfClasses, "fused", broken)
    found, plain = analyse(data, progress=False), analyse(data, networks=False)
    assert "broke off" in found.summary["networks"]["why_not"] and found.summary["networks"]["runs"] == []
    assert found.p.equal(plain.p) and scores(found) == scores(plain)


def test_a_network_that_loses_the_truth_once_it_hears_all_labels_is_not_used(brief, monkeypatch):
    def loses(nets, name):
        nets.lost[name] = "the columns of its matrices are nearly equal"
        return None, None

    data = crowd_with_pictures(120)
    monkeypatch.setattr(OfClasses, "fused", loses)
    found, plain = analyse(data, progress=False), analyse(data, networks=False)
    assert "lost the truth" in found.summary["networks"]["why_not"] and found.p.equal(plain.p)


def test_a_part_of_two_volumes_is_still_two_cases():
    volume = lambda name: Case(name, ".npy", (6, 4, 4), "uint8", None, (0, 0, 0), (6, 4, 4), (0, 1))  # noqa: E731
    sources = [(volume(name), z) for name in "ab" for z in range(6)]
    data = Annotations(None, torch.zeros(12, 2, 4, 4, dtype=torch.long), 2, sources=sources)
    assert cases_of(data) == [slice(0, 6), slice(6, 12)]
    assert cases_of(data.items(slice(3, 10))) == [slice(0, 3), slice(3, 7)]


def test_an_item_is_scored_by_the_prior_of_its_own_picture_by_hand(monkeypatch):
    x = torch.zeros(100, 1, 1)
    x[7] = 1
    labels = torch.tensor([[0, 1]]).repeat(100, 1)
    nets = OfClasses(Annotations(x.reshape(100, 1), labels, 2), progress=False)

    def trained(name, learned, watched):
        nets.runs.append({"seconds": 0.0})
        return Fixed()

    monkeypatch.setattr(nets, "_trained", trained)
    p = nets.scores([torch.tensor([7, 8])])[NET_SHARED].exp()
    assert p[0::2].tolist() == pytest.approx([BY_HAND[1], BY_HAND[0]])
    fused, A = nets.fused(NET_SHARED)
    assert float(fused[8, 0]) == pytest.approx(0.6 * 0.9 * 0.3 / (0.6 * 0.9 * 0.3 + 0.4 * 0.2 * 0.6))
    assert A.equal(A_TWO)


def test_no_network_sees_an_item_laid_aside(monkeypatch):
    """Every item has labels that no other has: a row of its own number, in ones and zeros."""
    codes = (torch.arange(128)[:, None] >> torch.arange(7)) % 2
    data, calls = Annotations(torch.rand(128, 1, 8, 8), codes, 2), []

    def watch(self, name, method, data, *, validation, **options):
        number = lambda labels: set((labels * 2 ** torch.arange(7)).sum(1).tolist())  # noqa: E731
        calls.append((number(data.labels), number(validation.labels)))
        self.runs.append({"model": name, "seconds": 0.0})

    monkeypatch.setattr(networks.Networks, "fitted", watch)
    parts = list(torch.randperm(128, generator=seeded(1)).split(32))
    OfClasses(data, progress=False).scores(parts)
    assert len(calls) == 2 * 5
    for (learned, watched), part in zip(calls, [*parts, torch.tensor([])] * 2, strict=True):
        assert not learned & watched and learned | watched == set(range(128)) - set(map(int, part))


def test_one_matrix_for_all_is_seen_as_one_for_each():
    cm = OneForAll(3, 2)
    assert cm(spatial=0).shape == (1, 3, 2, 2) and cm.A.shape == (3, 2, 2)
    assert sum(p.numel() for p in cm.parameters()) == 4


def test_matrices_are_counted_about_a_sure_network_by_hand():
    sure = torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 2).clamp(min=1e-12).log()
    labels = torch.tensor([[0, 1], [0, 0], [1, MISSING], [1, 1], [1, 1]])
    each = counted(sure, labels, A_TWO)  # half a label more for each thing said and truth
    assert torch.allclose(each[0], torch.tensor([[2.5 / 4, 0.5 / 3], [1.5 / 4, 2.5 / 3]]), atol=1e-4)
    assert torch.allclose(each[1], torch.tensor([[1.5 / 3, 0.5 / 3], [1.5 / 3, 2.5 / 3]]), atol=1e-4)
    shared = counted(sure, labels, A_TWO[:1])
    assert torch.allclose(shared[0], torch.tensor([[3.5 / 6, 0.5 / 5], [2.5 / 6, 4.5 / 5]]), atol=1e-4)


# ---- choice and words -----------------------------------------------------------------------------------------------


def test_a_network_that_lost_the_truth_is_shown_but_not_taken():
    labels = torch.zeros(10, 1, dtype=torch.long)
    told = {name: torch.full((10,), x).double() for name, x in ((EACH, -0.5), (CHANCE, -0.7), (NET_PIXELS, -0.4))}
    fits = _ranked(told, labels, torch.arange(10), {NET_PIXELS: "the columns are nearly equal"})
    assert [fit.model for fit in fits] == [NET_PIXELS, EACH, CHANCE] and choice(fits) == EACH
    assert fits[0].behind == pytest.approx(-0.1) and fits[1].behind == 0
    assert choice([Fit(NET_PIXELS, -0.4), Fit(EACH, -0.41, 0.01, 0.005)]) == NET_PIXELS


def test_the_advice_names_a_network_that_lost_the_truth():
    data = crowd_with_pictures(100)
    found = analyse(data, networks=False).summary
    lost = {"model": NET_EACH, "behind": -0.1, "lost": "its mean matrix is not row dominant"}
    told = advice.sentences({**found, "fused_by": EACH, "held_out": [*found["held_out"], lost]})
    assert any(line.startswith(f"The {NET_EACH} foretold labels better, but it is not used") for line in told)


def test_networks_that_all_lost_the_truth_say_nothing_of_the_pictures():
    found = analyse(crowd_with_pictures(100), networks=False).summary
    fits = [{"model": name, "behind": 0.1, "half": 0.01, "lost": "it marks nothing"} for name in (NET_EACH, NET_PIXELS)]
    fits, looked = [*found["held_out"], *fits], {"why_not": "", "runs": [{"model": NET_EACH, "reduced": 8}]}
    blind = {**found, "fused_by": EACH, "held_out": fits, "networks": looked}
    told = advice.sentences(blind)[-1]
    assert told.startswith(
        "The networks cannot show whether the pictures help: it marks nothing. They saw one pixel in 8"
    )
    fits[-1] = {**fits[-1], "lost": ""}
    assert "cannot show" not in " ".join(advice.sentences(blind))


def test_left_out_takes_a_prior_of_each_item():
    prior = torch.tensor([[0.6, 0.4], [0.1, 0.9]])
    p = left_out(A_TWO[None], prior, torch.tensor([[0, 1], [0, 1]])).exp()
    assert p[0::2].tolist() == pytest.approx([BY_HAND[0], BY_HAND[1]])


@pytest.mark.parametrize(
    ("images", "labels", "says"),
    [
        (torch.rand(99, 1, 8, 8), torch.zeros(99, 2, dtype=torch.long), "99 items are too few"),
        (torch.rand(9, 1, 8, 8), torch.zeros(9, 2, 8, 8, dtype=torch.long), "9 pictures are too few"),
        (torch.rand(20, 1, 7, 9), torch.zeros(20, 2, 7, 9, dtype=torch.long), "7 x 9 pixels are too small"),
        (torch.rand(20, 1, 9, 9), torch.zeros(20, 2, 8, 8, dtype=torch.long), "not as large as the masks"),
        (torch.rand(20, 5), torch.zeros(20, 2, 8, 8, dtype=torch.long), "not as large as the masks"),
        (torch.rand(100, 1, 8, 8), torch.zeros(100, 2, dtype=torch.long), ""),
    ],
)
def test_too_little_for_a_network_is_said(images, labels, says):
    told = why_not(Annotations(images, labels, 2))
    assert says in told and bool(says) == bool(told)


def test_without_pictures_no_network_is_loaded(tmp_path):
    """Neither the networks nor what trains them, which takes a second to import."""
    (tmp_path / "t.csv").write_text("item,r,s\n" + "".join(f"i{n},{n % 2},{n % 3 % 2}\n" for n in range(40)))
    probe = (
        "import sys; from course_lib.report import report; report('t.csv', 'out'); "
        "assert not {'course_lib.training', 'course_lib.report.networks'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", probe], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads((tmp_path / "out/report.json").read_text())
    assert found["networks"] == {"why_not": "no pictures came along", "runs": []}
    assert "No network was trained: no pictures came along." in (tmp_path / "out/report.html").read_text()


# ---- pictures of a table --------------------------------------------------------------------------------------------


def table(root, items) -> None:
    with open(root / "t.csv", "w", newline="") as file:
        rows = [(item, who, n % 2) for n, item in enumerate(items) for who in ("al", "bo")]
        csv.writer(file).writerows([("scan", "who", "verdict"), *rows])


NAMED = {"item": "scan", "annotator": "who", "label": "verdict"}


def test_pictures_are_found_with_and_without_their_suffix(tmp_path):
    table(tmp_path, ["a", "b.png", "left/c", "left/d.jpg"])
    (tmp_path / "p/left").mkdir(parents=True)
    for k, name in enumerate(["a.png", "b.png", "left/c.tif", "left/d.jpg", "unused.png"]):
        Image.fromarray(np.full((10, 6 + 2 * k), 20 * k, np.uint8)).save(tmp_path / "p" / name)
    data = read(tmp_path / "t.csv", images=tmp_path / "p", **NAMED)
    assert data.images.shape == (4, 1, 12, 12)  # resized to the largest side of those used
    means = data.images.mean((1, 2, 3)) * 255
    assert means.tolist() == pytest.approx([0, 20, 40, 60], abs=1)
    assert data.names == ("al", "bo") and data.item_names[2] == "left/c"


def test_large_pictures_of_classes_are_made_small(tmp_path):
    table(tmp_path, ["a", "b"])
    (tmp_path / "p").mkdir()
    for name in "ab":
        Image.fromarray(np.zeros((90, 200, 3), np.uint8)).save(tmp_path / f"p/{name}.png")
    assert read(tmp_path / "t.csv", images=tmp_path / "p", **NAMED).images.shape == (2, 3, 48, 48)


def test_a_crowd_and_its_pictures_become_a_report(tmp_path, brief):
    data = crowd_with_pictures(150)
    (tmp_path / "p").mkdir()
    with open(tmp_path / "t.csv", "w", newline="") as file:
        write = csv.writer(file).writerow
        write(NAMED.values())
        for n, said in enumerate(data.labels.tolist()):
            values = (data.images[n, 0].clamp(-1, 2) * 60 + 70).byte().numpy()
            Image.fromarray(values).save(tmp_path / f"p/i{n}.png")
            for r, k in enumerate(said):
                if k != MISSING:
                    write([f"i{n}", f"r{r}", ["no", "yes"][k]])
    flags = [word for kind, name in NAMED.items() for word in (f"--{kind}", name)]
    words = ["report", tmp_path / "t.csv", "--images", tmp_path / "p", *flags, "--out"]
    assert "training a network" in course(*words, tmp_path / "out")
    found = json.loads((tmp_path / "out/report.json").read_text())
    assert {NET_SHARED, NET_EACH} <= {fit["model"] for fit in found["held_out"]}
    assert "training" not in course(*words, tmp_path / "off", "--no-networks")
    assert "No network was trained: they were switched off." in (tmp_path / "off/report.html").read_text()
