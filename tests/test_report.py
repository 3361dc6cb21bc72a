"""`course report` from end to end: a reader's masks and tables in, a page, a JSON file and fused truth out."""

import csv
import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
import SimpleITK
import torch
from PIL import Image
from test_mask_folders import saved

from course_lib.annotations import MISSING, Annotations
from course_lib.annotators import annotate, hammer_spammers
from course_lib.metrics import dice
from course_lib.networks import seeded
from course_lib.report import advice, analyse, report
from course_lib.report.held_out import CASES, CHANCE, EACH, PLACES, SHARED, VOTE, Fit, _by_vote, choice, left_out
from course_lib.tables import write_crowdkit

A_TURN = 0.3
TURNED = (math.cos(A_TURN), -math.sin(A_TURN), 0, math.sin(A_TURN), math.cos(A_TURN), 0, 0, 0, -1)
SPACING = (0.7, 0.9, 2.5)


def course(*words, cwd):
    command = [sys.executable, "-c", "from course_lib.cli import app; app()", *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)


def ball(radius: float, shape=(8, 40, 36)) -> np.ndarray:
    z, y, x = np.meshgrid(*map(np.arange, shape), indexing="ij")
    return (((z - 4) * 3) ** 2 + (y - 18) ** 2 + (x - 15) ** 2 < radius**2).astype(np.uint8)


def crowd(N=300, R=6, L=3, *, A=None, per_item=4) -> Annotations:
    truth = torch.randint(L, (N,), generator=seeded(0))
    A = hammer_spammers(R, L, 0.7, generator=seeded(1)) if A is None else A
    return Annotations(None, annotate(truth, A, per_item=per_item, generator=seeded(2)), L, truth=truth)


def test_three_annotators_volumes_become_fused_masks_in_their_place(tmp_path):
    truth, noise = ball(11), np.random.default_rng(0)
    for name, radius in (("al", 9.5), ("bo", 11), ("cy", 11.5)):
        for case in ("scan1", "scan2"):
            drawn = ball(radius) ^ (noise.random(truth.shape) < 0.01) * (ball(14))
            saved(tmp_path / f"in/{name}/{case}.nii.gz", drawn.astype(np.uint8) * 4, direction=TURNED)
    done = course("report", "in", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "out/report.html" in done.stdout.replace("\n", "")
    for case in ("scan1", "scan2"):
        mine = SimpleITK.ReadImage(str(tmp_path / f"in/al/{case}.nii.gz"))
        fused = SimpleITK.ReadImage(str(tmp_path / f"out/masks/{case}.nii.gz"))
        doubt = SimpleITK.ReadImage(str(tmp_path / f"out/uncertainty/{case}.nii.gz"))
        for image in (fused, doubt):
            for what in ("Size", "Spacing", "Origin", "Direction"):
                assert getattr(image, f"Get{what}")() == pytest.approx(getattr(mine, f"Get{what}")(), abs=1e-6), what
        assert fused.GetPixelID() == mine.GetPixelID() and doubt.GetPixelID() == SimpleITK.sitkFloat32
        values = SimpleITK.GetArrayFromImage(fused)
        assert set(np.unique(values)) == {0, 4}
        score = dice(
            torch.from_numpy(values.astype(np.int64) // 4), torch.from_numpy(truth.astype(np.int64)), pooled=True
        )
        assert score.foreground > 0.95
        assert 0 <= SimpleITK.GetArrayFromImage(doubt).min() < SimpleITK.GetArrayFromImage(doubt).max() <= 1
    found = json.loads((tmp_path / "out/report.json").read_text())
    assert found["cases"] == 2 and found["classes"] == ["0", "4"] and len(found["annotators"]) == 3
    smallest = min(found["annotators"], key=lambda a: a["area_ratio"])
    assert smallest["name"] == "al" and smallest["area_ratio"] < 0.85


def test_a_hundred_thousand_labels_of_a_crowd_find_the_truth(tmp_path):
    """The issue asks for 10 s, which the benchmark measures; a shared machine may need longer."""
    N, R, L, draw = 20_000, 150, 4, np.random.default_rng(0)
    truth, skill = draw.integers(L, size=N), draw.uniform(0.3, 0.9, R)
    with open(tmp_path / "crowd.csv", "w", newline="") as file:
        write = csv.writer(file).writerow
        write(["task", "worker", "label"])
        for n in range(N):
            for r in draw.choice(R, 5, replace=False):
                said = truth[n] if draw.random() < skill[r] else draw.integers(L)
                write([f"picture {n}", f"worker {r}", ("cat", "dog", "fox", "owl")[said]])
    done = subprocess.run(
        [sys.executable, "-c", "import time; t = time.time(); from course_lib.report import report; "
         "report('crowd.csv', 'out'); print(time.time() - t)"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout) < 60
    with open(tmp_path / "out/fused.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    right = np.mean([row["label"] == ("cat", "dog", "fox", "owl")[k] for row, k in zip(rows, truth, strict=True)])
    votes = Annotations.from_csv(tmp_path / "crowd.csv").labels
    vote = np.mean(np.array([(votes == k).sum(1).numpy() for k in range(L)]).argmax(0) == truth)
    assert right > vote > 0.8 and len(rows) == N
    found = json.loads((tmp_path / "out/report.json").read_text())
    told = {a["name"]: a["skill"] for a in found["annotators"]}
    assert np.corrcoef([told[f"worker {r}"] for r in range(R)], skill)[0, 1] > 0.9
    assert found["fused_by"] == EACH and abs(found["fused"]["expected_errors"] - (1 - right)) < 0.02


def test_what_an_annotator_says_is_foretold_from_the_others_by_hand():
    A = torch.tensor([[[0.9, 0.2], [0.1, 0.8]], [[0.7, 0.4], [0.3, 0.6]]])
    prior, labels = torch.tensor([[0.6, 0.4]]), torch.tensor([[0, 1], [0, MISSING]])
    p = left_out(A[None], prior, labels).exp()
    # of the first annotator, after the second said 1: truths .6 x .3 and .4 x .6
    assert float(p[0]) == pytest.approx((0.18 * 0.9 + 0.24 * 0.2) / 0.42)
    assert float(p[1]) == pytest.approx((0.54 * 0.3 + 0.08 * 0.6) / 0.62)
    assert float(p[2]) == pytest.approx(0.6 * 0.9 + 0.4 * 0.2)  # nobody else spoke: the prior
    voted = _by_vote(A.double().log(), labels).exp()
    assert float(voted[0]) == pytest.approx(0.2) and float(voted[1]) == pytest.approx(0.3)
    assert float(voted[2]) == pytest.approx((0.9 + 0.2) / 2)


def test_each_matrix_where_annotators_differ_one_where_they_do_not_and_chance_where_nobody_looks():
    A = torch.tensor([[0.95, 0.1], [0.05, 0.9]]), torch.tensor([[0.55, 0.45], [0.45, 0.55]])
    differ = crowd(800, L=2, A=torch.stack([A[0], A[0], A[1], A[1], A[1], A[1]]))
    assert analyse(differ).summary["fused_by"] == EACH
    alike = crowd(800, L=2, A=torch.tensor([[0.8, 0.4], [0.2, 0.6]]).repeat(6, 1, 1))
    assert analyse(alike).summary["fused_by"] in (VOTE, SHARED)
    blind = analyse(crowd(800, L=2, A=torch.full((6, 2, 2), 0.5))).summary
    assert blind["held_out"][0]["model"] == CHANCE
    assert blind["held_out"][0]["score"] == pytest.approx(-math.log(2), abs=0.005)
    assert any(line.startswith("No model foretells a label better") for line in blind["next"])


def test_the_simplest_of_those_that_cannot_be_told_apart_is_taken():
    fits = [Fit(EACH, -0.5), Fit(SHARED, -0.51, 0.01, 0.02), Fit(VOTE, -0.6, 0.1, 0.02), Fit(CHANCE, -0.7, 0.2, 0.3)]
    assert choice(fits) == SHARED
    assert choice(fits[:1] + fits[2:]) == EACH
    assert choice([Fit(EACH, -0.5), Fit(VOTE, -0.6, 0.1, float("nan"))]) == EACH
    assert choice([]) == VOTE


def test_an_annotator_who_errs_in_one_half_of_the_picture_needs_matrices_of_places():
    truth = (torch.rand(6, 36, 36, generator=seeded(0)) < 0.5).long()
    wrong = torch.rand(6, 4, 36, 36, generator=seeded(1)) < torch.tensor([0.02, 0.5]).repeat_interleave(18)
    wrong[:, 2:] = wrong[:, 2:].flip(-1)  # two annotators are blind on the right, two on the left
    data = Annotations(None, torch.where(wrong, 1 - truth[:, None], truth[:, None]), 2)
    found = analyse(data)
    assert found.summary["fused_by"] == PLACES
    scores = {fit["model"]: fit["score"] for fit in found.summary["held_out"]}
    assert scores[PLACES] > scores[EACH] + 0.02
    assert float((found.p.argmax(1) == truth).float().mean()) > 0.9


def test_an_annotator_who_changes_from_case_to_case_needs_matrices_of_cases():
    truth = (torch.rand(8, 24, 24, generator=seeded(0)) < 0.4).long()
    good = torch.tensor([[1, 1, 0, 0], [0, 0, 1, 1]]).repeat(4, 1).bool()  # (8, 4): who looks, by case
    wrong = torch.rand(8, 4, 24, 24, generator=seeded(1)) < torch.where(good, 0.05, 0.45)[:, :, None, None]
    found = analyse(Annotations(None, torch.where(wrong, 1 - truth[:, None], truth[:, None]), 2)).summary
    assert found["held_out"][0]["model"] in (CASES, PLACES)
    scores = {fit["model"]: fit["score"] for fit in found["held_out"]}
    assert scores[CASES] > scores[EACH] + 0.02


def test_a_guesser_and_one_who_takes_names_the_other_way_are_named():
    A = torch.tensor([[0.9, 0.2], [0.1, 0.8]]).repeat(5, 1, 1)
    A[3], A[4] = A[3].flip(0), 0.5
    data = crowd(1200, L=2, A=A, per_item=None)
    data = Annotations(None, data.labels, 2, names=("al", "bo", "cy", "dee", "ed"), classes=("no", "yes"))
    told = analyse(data).summary["next"]
    assert [line for line in told if line.startswith("ed: labels that say next to nothing")]
    assert [line for line in told if line.startswith("dee mostly says")]
    assert not [line for line in told if line.startswith(("al", "bo", "cy"))]


def test_very_few_items_are_told_to_be_few():
    few, some = analyse(crowd(N=12)).summary, analyse(crowd(N=100)).summary
    assert few["next"][0].startswith("12 items are very few") and "very few" not in " ".join(some["next"])


def test_labels_without_a_second_opinion_are_told_to_be_so():
    found = analyse(crowd(60, per_item=1)).summary
    assert found["next"][0].startswith("No item has two labels") and found["held_out"] == []
    assert found["agreement"]["same_label"] is None and any("not identifiable" in line for line in found["warnings"])


def test_little_agreement_and_lost_dominance_are_told():
    found = analyse(crowd(400, L=3, A=torch.full((5, 3, 3), 1 / 3), per_item=None)).summary
    assert any(line.startswith("Annotators agree little") for line in found["next"])
    lost = {**found, "dominance": -0.1}
    assert any("not row dominant" in line for line in advice.sentences(lost))


def test_two_names_exchanged_and_one_given_too_rarely_are_told_apart():
    A = torch.tensor([[0.9, 0.1], [0.1, 0.9]]).repeat(5, 1, 1)
    A[3], A[4] = A[3].flip(0), torch.tensor([[0.95, 0.7], [0.05, 0.3]])
    told = analyse(crowd(2000, L=2, A=A, per_item=None)).summary["next"]
    assert any(line.startswith("annotator 4 mostly says") and "exchange the two" in line for line in told)
    (rare,) = (line for line in told if line.startswith("annotator 5 mostly says 0 where the truth seems to be 1"))
    assert "not the other way round" in rare and "exchange" not in rare
    drawn = {"kind": "masks", "classes": ["0", "1"], "matrices": {"bo": A[4].tolist()}}
    narrow = {"name": "bo", "worst_confusion": {"says": "0", "truth": "1", "probability": 0.7}}
    assert advice._mostly(drawn, narrow).endswith("ask where they take the border to be, or what they leave out.")


def test_who_marks_a_small_part_rightly_is_no_guesser():
    drawn = analyse(crowd(60, L=2)).summary | {"kind": "masks", "classes": ["0", "1"], "annotators": []}
    worst = {"says": "0", "truth": "1", "probability": 0.85}
    person = {"name": "bo", "labels": 9, "skill": 0.57, "worst_confusion": worst}
    few, any_way = [[0.99, 0.85], [0.01, 0.15]], [[0.86, 0.8], [0.14, 0.2]]
    for A, guesses in ((few, False), (any_way, True)):
        told = advice.sentences({**drawn, "annotators": [person], "matrices": {"bo": A}})
        assert any(line.startswith("bo: labels that say next to nothing") for line in told) == guesses
        assert any(line.startswith("bo mostly says 0") for line in told) != guesses


def test_two_annotators_are_told_that_labels_alone_cannot_say_who_is_right():
    A = torch.tensor([[[0.9, 0.3], [0.1, 0.7]], [[0.7, 0.1], [0.3, 0.9]]])
    found = analyse(crowd(400, R=2, L=2, A=A, per_item=None)).summary
    assert advice.TWO in advice.sentences({**found, "fused_by": EACH})
    assert advice.TWO not in advice.sentences({**found, "fused_by": VOTE})  # the vote claims no more than it counts
    assert advice.TWO not in analyse(crowd(200)).summary["next"]


def test_doubts_that_the_given_truth_shows_too_small_are_told():
    found = analyse(crowd(300)).summary
    wrong = {"items": 100, "vote": 0.85, EACH: 0.8, "fused": 0.8}  # 20 wrong of 100, where 5 are expected: 6.9 sd
    held = {**found, "fused_by": EACH, "accuracy_on_given_truth": wrong, "fused": {**found["fused"]}}
    held["fused"]["expected_errors"] = 0.05
    told = advice.sentences(held)[0]
    assert told.startswith("Of the 100 items whose truth came along, 20.0% of the fused labels are wrong; the model")
    assert "expects 5.0%" in told and told.endswith("Even the vote is right more often (85.0%).")
    assert "vote" not in advice.sentences({**held, "accuracy_on_given_truth": {**wrong, "vote": 0.8}})[0]
    for honest in ({**wrong, "fused": 0.89}, {}):  # 11 wrong are 2.8 sd
        assert "whose truth" not in " ".join(advice.sentences({**held, "accuracy_on_given_truth": honest}))
    assert "whose truth" not in " ".join(advice.sentences({**held, "fused_by": VOTE}))


def test_the_given_truth_is_only_scored_never_read():
    data = crowd()
    blind, seen = analyse(Annotations(None, data.labels, 3)), analyse(data)
    assert blind.p.equal(seen.p) and blind.summary["accuracy_on_given_truth"] == {}
    scored = seen.summary["accuracy_on_given_truth"]
    assert scored["items"] == 300 and scored["fused"] == pytest.approx(
        float((seen.p.argmax(1) == data.truth).float().mean())
    )


class Page(HTMLParser):
    """Tags in their order, images without words, and everything that would ask a network."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings, self.silent, self.outside, self.tags = [], 0, [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.add(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        self.silent += tag == "img" and not found.get("alt", "").strip()
        links = [found.get(key) or "" for key in ("src", "href", "data", "action")]
        self.outside += [link for link in links if link and not link.startswith(("data:", "#"))]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The page of a table whose names are full of signs, and of masks with pictures."""
    root = tmp_path_factory.mktemp("pages")
    data = crowd(120)
    names = ("<script>alert(1)</script>", "a&b", "$x$", '"quoted"', "Jörg", "O'Neil")
    items = [f"<b>item {n}</b>" for n in range(120)]
    named = Annotations(None, data.labels, 3, names=names, classes=("<i>", "$y_1", "z"), item_names=items)
    write_crowdkit(root / "a<b>.csv", named)
    noise = np.random.default_rng(0)
    for name in ("al", "bo", "cy"):
        for k in range(5):
            mask = (ball(9 + k)[4] ^ (noise.random((40, 36)) < 0.03)).astype(np.uint8)
            saved(root / f"masks/{name}/eye{k}.png", mask * 255)
            saved(root / f"masks/images/eye{k}.png", noise.integers(0, 255, (40, 36)).astype(np.uint8))
    report(root / "a<b>.csv", root / "table")
    report(root / "masks", root / "drawn")
    return root


@pytest.mark.parametrize("kind", ["table", "drawn"])
def test_a_page_stands_alone_and_can_be_heard(pages, kind):
    text = (pages / kind / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.headings[0] == 1 and page.headings.count(1) == 1
    assert all(b - a <= 1 for a, b in zip(page.headings, page.headings[1:], strict=False))
    assert page.outside == [] and page.silent == 0 and "img" in page.tags
    assert not page.tags & {"script", "link", "iframe", "i", "b"}
    assert not re.search(r"url\(|@import|\bnan\b", re.sub('"data:[^"]*"', "", text), re.I)


def test_names_are_escaped_and_kept(pages):
    text = (pages / "table/report.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text and "a&amp;b" in text and "Jörg" in text
    found = json.loads((pages / "table/report.json").read_text(encoding="utf-8"))
    assert "<script>alert(1)</script>" in found["matrices"] and found["classes"] == ["$y_1", "<i>", "z"]
    assert "p_<i>" in (pages / "table/fused.csv").read_text(encoding="utf-8").splitlines()[0]


@pytest.mark.parametrize("kind", ["table", "drawn"])
def test_a_browser_finds_no_barrier_and_asks_nobody(pages, kind, browser):
    from test_book import axe

    tab, asked = browser.new_page(viewport={"width": 390, "height": 800}), []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto((pages / kind / "report.html").resolve().as_uri())
    assert axe(tab) == []
    assert [url for url in asked if not url.startswith("data:")] == [tab.url]
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    tab.close()


def test_masks_come_back_as_pictures_of_their_size(pages):
    assert sorted(p.name for p in (pages / "drawn").iterdir()) == [
        ".made-by-course", "masks", "report.html", "report.json", "uncertainty",
    ]  # fmt: skip
    fused = np.array(Image.open(pages / "drawn/masks/eye4.png"))
    assert fused.shape == (40, 36) and set(np.unique(fused)) == {0, 255}
    assert np.mean((fused > 0) == (ball(13)[4] > 0)) > 0.98
    assert np.load(pages / "drawn/uncertainty/eye4.npy").shape == (40, 36)


def test_a_second_report_takes_the_place_of_the_first(tmp_path):
    data = crowd(60)
    write_crowdkit(tmp_path / "t.csv", data)
    report(tmp_path / "t.csv", tmp_path / "out")
    (tmp_path / "out/fused.csv").unlink()
    page = report(tmp_path / "t.csv", tmp_path / "out")
    assert page.exists() and (tmp_path / "out/fused.csv").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "t.csv"]
    (tmp_path / "link").symlink_to("out")
    (tmp_path / "out/fused.csv").unlink()
    assert report(tmp_path / "t.csv", tmp_path / "link").exists()
    assert (tmp_path / "link").is_symlink() and (tmp_path / "out/fused.csv").exists()
