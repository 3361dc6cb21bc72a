"""Real crowds from files, every way in which such a file is wrong, and the drawn stand-in."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from course_lib import confusion, crowds, experiments, files
from course_lib.annotators import annotate
from course_lib.experiments import people
from course_lib.networks import seeded

LOGIN_PAGE = b"<html><body>Please log in to the campus network</body></html>"
INFO = """
INFO = {
    "breastmnist": {
        "task": "binary-class", "label": {"0": "malignant", "1": "normal, benign"},
        "url": "http://127.0.0.1:9/files/breastmnist.npz?download=1", "MD5": "0" * 32,
        "url_64": "http://127.0.0.1:9/files/breastmnist_64.npz?download=1", "MD5_64": "1" * 32,
    },
    "chestmnist": {
        "task": "multi-label, binary-class", "label": {"0": "a", "1": "b"},
        "url": "http://127.0.0.1:9/chestmnist.npz", "MD5": "2" * 32,
    },
}
"""


def arrays(size=28, colour=False, classes=2) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    shape = (size, size, 3) if colour else (size, size)
    found = {}
    for part, n in (("train", 6), ("val", 2), ("test", 3)):
        found[f"{part}_images"] = draw.integers(0, 256, (n, *shape), dtype=np.uint8)
        found[f"{part}_labels"] = (np.arange(n)[:, None] % classes).astype(np.uint8)
    return found


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of data of one's own; the package medmnist is not there, whatever this machine has."""
    monkeypatch.delenv("COURSE_DATA", raising=False)
    monkeypatch.setattr(crowds, "_medmnist_info", lambda: None)
    return tmp_path


@pytest.fixture
def package(folder, monkeypatch):
    """A package medmnist whose __init__ must not run: the real one wants torchvision."""
    place = folder / "site" / "medmnist"
    place.mkdir(parents=True)
    (place / "__init__.py").write_text("raise RuntimeError('imported the whole package')")
    (place / "info.py").write_text(INFO)
    monkeypatch.undo()
    monkeypatch.delenv("COURSE_DATA", raising=False)
    monkeypatch.syspath_prepend(str(place.parent))
    return folder


def put(folder: Path, name: str = "breastmnist.npz", **content) -> Path:
    np.savez(folder / name, **content)
    return folder / name


# ---- MedMNIST --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("below", ["", "medmnist", "breastmnist"])
def test_a_file_that_is_there_loads_without_the_package(folder, below):
    (folder / below).mkdir(exist_ok=True)
    content = arrays()
    put(folder / below, **content)
    found = crowds.medmnist("breastmnist", root=folder)
    assert found.train.images.shape == (6, 1, 28, 28) and found.train.images.dtype == torch.float32
    assert found.test.labels.tolist() == [0, 1, 0] and found.validation.labels.shape == (2,)
    assert found.classes == ("class 0", "class 1")
    assert torch.allclose(found.train.images[0, 0] * 255, torch.as_tensor(content["train_images"][0]).float())


def test_colour_comes_with_the_channel_first_and_64_from_its_own_file(folder, monkeypatch):
    content = arrays(64, colour=True, classes=3)
    put(folder, "bloodmnist_64.npz", **content)
    monkeypatch.setenv("COURSE_DATA", str(folder))
    found = crowds.medmnist("bloodmnist", 64)
    assert found.train.images.shape == (6, 3, 64, 64) and len(found.classes) == 3
    pixel = torch.as_tensor(content["train_images"][4, 5, 6]).float()
    assert torch.allclose(found.train.images[4, :, 5, 6] * 255, pixel)


def test_labels_may_have_one_axis(folder):
    put(folder, **{k: v.reshape(-1) if "labels" in k else v for k, v in arrays().items()})
    assert crowds.medmnist("breastmnist", root=folder).train.labels.shape == (6,)


def test_with_the_package_the_classes_have_names_and_the_package_is_not_imported(package):
    put(package, **arrays())
    assert crowds.medmnist("breastmnist", root=package).classes == ("malignant", "normal, benign")


def test_the_address_and_the_checksum_are_the_packages(package, monkeypatch):
    asked = {}
    monkeypatch.setattr(crowds, "download", lambda *a, **k: asked.update(k, a=a) or put(package, "x.npz", **arrays(64)))
    crowds.medmnist("breastmnist", 64, root=package)
    assert asked["a"] == ("breastmnist_64.npz", ["http://127.0.0.1:9/files/"]) and asked["md5"] == "1" * 32
    assert asked["folder"] == package / "medmnist" and asked["variable"] == "COURSE_DATA"


def test_a_download_that_fails_says_the_manual_route_and_leaves_nothing(package, monkeypatch):
    monkeypatch.setattr(files, "TIMEOUT", 1.0)
    with pytest.raises(RuntimeError, match="could not download breastmnist.npz.*COURSE_DATA"):
        try:
            crowds.medmnist("breastmnist", root=package)
        except RuntimeError as error:
            raise RuntimeError(str(error).replace("\n", " ")) from None
    assert not list((package / "medmnist").iterdir())


def test_without_file_and_package_one_error_says_what_to_install(folder):
    with pytest.raises(ImportError, match=r"pip install medmnist.*put breastmnist.npz"):
        crowds.medmnist("breastmnist", root=folder)


def test_without_fetching_nothing_is_asked_of_the_network(package, monkeypatch):
    monkeypatch.setattr(crowds, "download", lambda *a, **k: pytest.fail("reached for the network"))
    with pytest.raises(FileNotFoundError, match="fetch=False"):
        crowds.medmnist("breastmnist", root=package, fetch=False)


@pytest.mark.parametrize(
    ("content", "cause"),
    [(b"", "is empty"), (LOGIN_PAGE, "web page"), (b"PK\x03\x04 not whole", "cut short"), (b"\x93NUMPY", "cut short")],
)
def test_what_is_no_npz_is_named_with_its_cause(folder, content, cause):
    (folder / "breastmnist.npz").write_bytes(content)
    with pytest.raises(ValueError, match=f"breastmnist.npz.*{cause}"):
        crowds.medmnist("breastmnist", root=folder)


def test_a_truncated_npz_is_named(folder):
    path = put(folder, **arrays())
    for share in (0.3, 0.7, 0.99):
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
        with pytest.raises(ValueError, match="cut short or another file"):
            crowds.medmnist("breastmnist", root=folder)


def test_a_lone_array_or_missing_keys_are_named(folder):
    np.save(folder / "breastmnist.npz", np.zeros(3))
    os.replace(folder / "breastmnist.npz.npy", folder / "breastmnist.npz")
    with pytest.raises(ValueError, match="train_images"):
        crowds.medmnist("breastmnist", root=folder)
    put(folder, **{k: v for k, v in arrays().items() if k != "val_labels"})
    with pytest.raises(ValueError, match="val_labels"):
        crowds.medmnist("breastmnist", root=folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"train_images": np.zeros((6, 28, 28, 28), np.uint8)}, "volume"),
        ({"train_images": np.zeros((6, 32, 32), np.uint8)}, r"\(6, 32, 32\)"),
        ({"test_images": np.zeros((3, 28, 28))}, "float64"),
        ({"val_labels": np.zeros((5, 1), np.uint8)}, "one label for each of 2"),
        ({"train_labels": np.zeros((6, 14), np.uint8)}, "several labels an image"),
    ],
)
def test_wrong_shapes_and_several_labels_are_refused(folder, change, words):
    put(folder, **(arrays() | change))
    with pytest.raises(ValueError, match=words):
        crowds.medmnist("breastmnist", root=folder)


def test_a_set_with_several_labels_is_refused_before_any_download(package):
    with pytest.raises(ValueError, match="chestmnist has several labels"):
        crowds.medmnist("chestmnist", root=package)


def test_an_unknown_set_lists_the_known(package):
    with pytest.raises(ValueError, match=r"a set of MedMNIST, .*breastmnist, chestmnist.*got 'dogmnist'"):
        crowds.medmnist("dogmnist", root=package)


def test_a_size_in_the_name_and_a_size_that_is_none_say_what_there_is(package):
    with pytest.raises(ValueError, match=r"without its size \(breastmnist, chestmnist.*got 'breastmnist_224'"):
        crowds.medmnist("breastmnist_224", root=package)
    with pytest.raises(ValueError, match="28, or 64 with 5 times the memory.*got 100"):
        crowds.medmnist("breastmnist", size=100, root=package)


@pytest.mark.parametrize(("name", "size"), [("../secret", 28), ("BreastMNIST", 28), ("", 28), ("breastmnist", 32)])
def test_odd_names_and_sizes_are_refused(folder, name, size):
    with pytest.raises(ValueError, match="must be"):
        crowds.medmnist(name, size, root=folder)


def test_the_real_breastmnist():
    try:
        found = crowds.medmnist("breastmnist", fetch=False)
    except FileNotFoundError:
        pytest.skip("COURSE_DATA does not hold breastmnist.npz")
    assert [len(part.labels) for part in found[:3]] == [546, 78, 156]
    assert torch.bincount(found.train.labels).tolist() == [147, 399]


# ---- LabelMe ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def labelme(folder):
    place, draw = folder / "labelme_crowd", np.random.default_rng(0)
    place.mkdir()
    answers = draw.integers(0, 8, (12, 5))
    answers[draw.random((12, 5)) < 0.5] = -1
    np.savetxt(place / "answers.txt", answers, fmt="%d")
    for part, n in (("train", 12), ("valid", 4), ("test", 6)):
        np.save(place / f"LabelMe_VGG_avg_{part}.npy", draw.random((n, 7), dtype=np.float32))
        np.savetxt(place / f"LabelMe_Z_{part}.txt", draw.integers(0, 8, n), fmt="%d")
    return place


def test_a_crowd_is_read_with_its_gaps_and_scaled_by_its_training_images(labelme):
    found = crowds.labelme(labelme.parent)
    assert found.train.labels.tolist() == np.loadtxt(labelme / "answers.txt", dtype=int).tolist()
    assert found.train.truth.tolist() == np.loadtxt(labelme / "LabelMe_Z_train.txt", dtype=int).tolist()
    assert torch.allclose(found.train.images.mean(0), torch.zeros(7), atol=1e-5)
    assert torch.allclose(found.train.images.std(0), torch.ones(7), atol=1e-5)
    assert found.test.images.shape == (6, 7) and found.validation.labels.shape == (4,)
    assert torch.equal(crowds.labelme(labelme).train.labels, found.train.labels)  # the folder itself will do


def test_without_files_the_error_says_where_from_and_where_to(folder):
    with pytest.raises(FileNotFoundError, match=r"no answers.txt.*github.com/fmenat.*labelme_crowd.*COURSE_DATA"):
        crowds.labelme(folder)


def test_a_missing_file_is_named(labelme):
    (labelme / "LabelMe_Z_valid.txt").unlink()
    with pytest.raises(FileNotFoundError, match="no LabelMe_Z_valid.txt"):
        crowds.labelme(labelme.parent)


@pytest.mark.parametrize("name", sorted(crowds.LABELME_FILES))
def test_a_web_page_in_the_place_of_a_file_is_named(labelme, name):
    (labelme / name).write_bytes(LOGIN_PAGE)
    with pytest.raises(ValueError, match=f"{name}.*web page"):
        crowds.labelme(labelme.parent)


def test_sizes_that_do_not_fit_are_refused(labelme):
    np.savetxt(labelme / "LabelMe_Z_test.txt", np.zeros(5), fmt="%d")
    with pytest.raises(ValueError, match=r"test; got \(6, 7\) and 5"):
        crowds.labelme(labelme.parent)


def test_a_label_of_a_ninth_class_is_refused(labelme):
    answers = np.loadtxt(labelme / "answers.txt", dtype=int)
    answers[0, 0] = 8
    np.savetxt(labelme / "answers.txt", answers, fmt="%d")
    with pytest.raises(ValueError, match="8"):
        crowds.labelme(labelme.parent)


def test_the_real_labelme_crowd():
    try:
        found = crowds.labelme()
    except FileNotFoundError:
        pytest.skip("COURSE_DATA does not hold labelme_crowd")
    assert found.train.labels.shape == (1000, 59) and found.train.n_observed == 2547
    assert [len(found.validation.labels), len(found.test.labels)] == [500, 1188]
    right = (found.train.labels == found.train.truth[:, None]).sum() / found.train.n_observed
    assert abs(float(right) - 0.740) < 5e-4


# ---- drawn -----------------------------------------------------------------------------------------------------------


def test_views_are_the_same_for_the_same_generator_and_hold_every_class():
    a, b = crowds.six_views(300, seeded(3)), crowds.six_views(300, seeded(3))
    assert torch.equal(a.images, b.images) and torch.equal(a.labels, b.labels)
    assert a.n_classes == len(crowds.VIEWS) == 6 and torch.bincount(a.labels, minlength=6).min() > 20
    assert not torch.equal(a.images, crowds.six_views(300, seeded(4)).images)


def test_neighbouring_views_resemble_each_other_most():
    views = crowds.six_views(3000, seeded(0))
    means = torch.stack([views.images[views.labels == k].float().mean(0).flatten() for k in range(6)])
    apart = torch.cdist(means, means) + 1e9 * torch.eye(6)
    assert [int(apart[k].argmin()) for k in (2, 3, 4, 5)] == [3, 2, 5, 4]


def test_no_view_and_no_picture_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        crowds.six_views(0, seeded(0))


@pytest.mark.parametrize("seed", range(5))
def test_six_are_experts_and_two_are_not(seed):
    A = confusion.check_cm(crowds.eight_readers(seeded(seed)))
    skills = confusion.skills(A)
    assert A.shape == (8, 6, 6) and skills[:6].min() >= 0.799 and skills[:6].max() <= 0.951
    assert 0.24 < skills[7] < skills[6] < 0.5 and confusion.dominance(A) > 0
    assert not torch.allclose(A[0], A[0].T)


def test_the_busiest_readers_are_no_experts():
    said = annotate(
        torch.zeros(2000, dtype=torch.long),
        crowds.eight_readers(seeded(0)),
        per_item=2,
        workload=crowds.WORKLOAD,
        generator=seeded(1),
    )
    n = (said >= 0).sum(0)
    assert ((said >= 0).sum(1) == 2).all() and n[6:].min() > n[:6].max()


# ---- experiments -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def views_result():
    return experiments.run("six-views", seeds=2, size="ci", progress=False)


def test_every_method_has_a_row_a_draw_with_the_metrics(views_result):
    rows = views_result["rows"]
    assert {(r["method"], r["draw"]) for r in rows} == {
        (m, k) for m in ("truth", "trace", "no_trace", "dawid_skene", "vanilla") for k in (0, 1)
    }
    assert all({"accuracy", "cm_error", "skill_mae", "separation"} <= set(r["metrics"]) for r in rows)
    assert experiments.values(views_result, "truth", "accuracy").min() > 0.7


def test_what_is_held_out_is_never_trained_on():
    crowd = people.Annotations(torch.zeros(20, 3), torch.zeros(20, 2, dtype=torch.long), n_classes=2)
    held = people._tenth(20, 1)
    task = people.Task(crowd, held, torch.eye(2).repeat(2, 1, 1), torch.ones(2, dtype=torch.bool), 1)
    train, rest = people.only(task, crowd.labels, ~held), people.only(task, crowd.labels, held)
    assert int(held.sum()) == 2 and not (train.observed & rest.observed).any() and train.images is rest.images
    assert int(train.n_observed + rest.n_observed) == crowd.n_observed


def test_labelme_without_its_files_stops_before_the_work(folder, monkeypatch):
    monkeypatch.setenv("COURSE_DATA", str(folder))
    with pytest.raises(FileNotFoundError, match="answers.txt"):
        experiments.run("labelme-crowd", seeds=1, size="ci", progress=False)
