"""The data that ships, the data that downloads, and every way in which either goes wrong."""

import gzip
import hashlib
import os
import re
import shutil
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

from course_lib import data, files

REPOSITORY = Path(__file__).resolve().parent.parent
LOGIN_PAGE = b"<html><body>Please log in to the campus network</body></html>"


def idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return header + array.tobytes()


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


@pytest.fixture
def tiny(monkeypatch):
    """A stand-in for MNIST, 7 + 3 images under the official names; the bytes of each gz file."""
    generator = np.random.default_rng(0)
    arrays = [
        generator.integers(0, 256, (7, 28, 28), dtype=np.uint8),
        np.array([5, 0, 4, 1, 9, 2, 1], np.uint8),
        generator.integers(0, 256, (3, 28, 28), dtype=np.uint8),
        np.array([7, 2, 1], np.uint8),
    ]
    content = {name: gzip.compress(idx(array), mtime=0) for name, array in zip(data.MNIST_GZ_MD5, arrays, strict=True)}
    monkeypatch.setattr(data, "MNIST_GZ_MD5", {name: md5(part) for name, part in content.items()})
    monkeypatch.setattr(data, "MNIST_IDX_MD5", tuple(md5(idx(array)) for array in arrays))
    monkeypatch.delenv("COURSE_DATA", raising=False)
    return content


@pytest.fixture
def server(tiny, monkeypatch):
    """A loopback mirror whose first path part says how it behaves. `.asked` lists the paths in order."""
    release = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            _, behaviour, name = self.path.split("/")
            body = LOGIN_PAGE if behaviour == "html" else tiny[name]
            if behaviour.isdigit():
                return self.send_error(int(behaviour))
            if behaviour == "silent":
                release.wait(5)
                return None
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if behaviour in ("cut", "stall") else body)
            if behaviour == "stall":
                release.wait(5)
            return None

        def log_message(self, *args):
            pass

    asked = []
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    monkeypatch.setenv("no_proxy", "*")
    httpd.asked = asked

    def use(*behaviours):
        urls = tuple(f"http://127.0.0.1:{httpd.server_port}/{behaviour}/" for behaviour in behaviours)
        monkeypatch.setattr(data, "MIRRORS", urls)

    httpd.use = use
    yield httpd
    release.set()
    httpd.shutdown()
    httpd.server_close()


@pytest.fixture
def offline(monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError("Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def everything_below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


# what ships


def test_mnist5k_has_500_of_each_digit_as_uint8_and_int64_of_shape_n():
    digits = data.mnist5k()
    assert digits.images.dtype == torch.uint8 and digits.images.shape == (5000, 28, 28)
    assert digits.labels.dtype == torch.int64 and digits.labels.shape == (5000,)
    assert torch.bincount(digits.labels).tolist() == [500] * 10 and digits.n_classes == 10 and len(digits) == 5000
    assert int(digits.images[0].sum()) == 31_095, "the first image is another"
    assert repr(digits) == "Images(5,000 of 28x28, 10 classes)"


def test_every_shipped_data_file_is_listed_with_its_sum_and_the_code_has_the_same_sums():
    folder = data.shipped("SHA256SUMS").parent
    sums = {name: sha for sha, name in (line.split() for line in (folder / "SHA256SUMS").read_text().splitlines())}
    shipped = {path.name for path in folder.iterdir() if path.suffix in {".npz", ".csv"}}
    assert set(sums) == shipped
    assert sums == data.SHIPPED_SHA256
    for name, sha in sums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == sha
        assert name in (folder / "README.md").read_text(encoding="utf-8")
    assert sum((folder / name).stat().st_size for name in sums) < 2_000_000


def test_the_anaesthesia_script_writes_the_bytes_that_ship(tmp_path):
    script = tmp_path / "make_anaesthesia.py"
    shutil.copy(data.shipped("make_anaesthesia.py"), script)
    exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), {"__file__": str(script)})
    assert (tmp_path / "anaesthesia.csv").read_bytes() == data.shipped("anaesthesia.csv").read_bytes()


def test_anaesthetists_are_45_patients_by_seven_readings_counted_from_zero():
    labels, names = data.anaesthetists()
    assert labels.dtype == torch.int64 and labels.shape == (45, 7)
    assert names == ("1a", "1b", "1c", "2", "3", "4", "5")
    assert torch.bincount(labels.flatten()).tolist() == [128, 124, 48, 15]
    assert (labels[35] + 1).tolist() == [4, 3, 3, 4, 3, 4, 3]  # patient 36
    assert (labels[:, 3] + 1).bincount().tolist() == [0, 16, 15, 11, 3]  # observer 2


def test_shipped_data_load_with_the_network_off_from_any_folder(offline, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(data.split(data.mnist5k()).train) == 3600
    assert data.anaesthetists()[0].shape == (45, 7)
    assert data.shipped("mnist5k.npz").is_absolute()


def test_an_installed_wheel_reads_its_own_shipped_folder(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "course_lib"
    (package / "shipped" / "results").mkdir(parents=True)
    for name in data.SHIPPED_SHA256:
        shutil.copy(data.shipped(name), package / "shipped" / name)
    (package / "shipped" / "results" / "a.json").write_text("{}")
    monkeypatch.setattr(data, "_PACKAGE", package)
    assert data.shipped("mnist5k.npz") == package / "shipped" / "mnist5k.npz"
    assert data.shipped("results/a.json").parent.name == "results"
    assert len(data.mnist5k()) == 5000 and data.anaesthetists()[0].shape == (45, 7)


def test_a_checkout_finds_files_of_data_and_of_book(tmp_path, monkeypatch):
    for name in ("pyproject.toml", "data/x.npz", "book/results/y.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(data, "_PACKAGE", tmp_path / "course_lib")
    assert data.shipped("x.npz") == tmp_path / "data" / "x.npz"
    assert data.shipped("results/y.json") == tmp_path / "book" / "results" / "y.json"


def test_an_unrelated_data_folder_beside_the_installed_package_is_not_ours(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mnist5k.npz").write_bytes(b"another package's")
    monkeypatch.setattr(data, "_PACKAGE", tmp_path / "course_lib")
    with pytest.raises(FileNotFoundError):
        data.mnist5k()


def test_a_missing_shipped_file_is_one_error_with_both_places_and_the_usual_cause(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "_PACKAGE", tmp_path / "course_lib")
    with pytest.raises(FileNotFoundError) as caught:
        data.mnist5k()
    text = str(caught.value)
    assert str(tmp_path / "data" / "mnist5k.npz") in text
    assert str(tmp_path / "course_lib" / "shipped" / "mnist5k.npz") in text
    assert "usual cause" in text and "reinstall" in text


# checksums before reading


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda whole: b"", "is empty (0 bytes)"),
        (lambda whole: whole[: len(whole) // 2], "cut short or another file"),
        (lambda whole: whole[:1000] + b"\0" + whole[1001:], "cut short or another file"),
        (lambda whole: LOGIN_PAGE, "begins with '<html>"),
        (lambda whole: b"\n<!DOCTYPE html><p>Sign in", "begins with '<!DOCTYPE html"),
    ],
    ids=["empty", "half", "one byte", "html", "doctype"],
)
def test_a_damaged_npz_is_named_before_numpy_opens_it(damage, says, tmp_path, monkeypatch):
    (tmp_path / "course_lib" / "shipped").mkdir(parents=True)
    path = tmp_path / "course_lib" / "shipped" / "mnist5k.npz"
    path.write_bytes(damage(data.shipped("mnist5k.npz").read_bytes()))
    monkeypatch.setattr(data, "_PACKAGE", tmp_path / "course_lib")
    monkeypatch.setattr(np, "load", lambda *args, **kwargs: pytest.fail("np.load before the checksum"))
    with pytest.raises(ValueError) as caught:
        data.mnist5k()
    text = str(caught.value)
    assert says in text and f"the folder {path.parent}" in text and str(path) in text
    assert "usual cause" in text and "git checkout -- data" in text


def test_an_html_page_in_place_of_data_names_the_login_page(tmp_path):
    (tmp_path / "a.npz").write_bytes(LOGIN_PAGE)
    with pytest.raises(ValueError, match="login page of the network"):
        data.verified(tmp_path / "a.npz", sha256="0" * 64)


def test_a_file_that_is_not_there_names_file_and_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"expected a\.npz in the folder .*does not exist"):
        data.verified(tmp_path / "a.npz", md5="0" * 32)


def test_a_right_file_passes_by_either_checksum_but_one_must_be_given(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"abc")
    assert data.verified(path, md5="900150983cd24fb0d6963f7d28e17f72") == path
    assert data.verified(str(path), sha256=hashlib.sha256(b"abc").hexdigest()) == path
    with pytest.raises(ValueError, match="exactly one"):
        data.verified(path)
    with pytest.raises(ValueError, match="exactly one"):
        data.verified(path, md5="a", sha256="b")


# the container


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.int32, np.int64, np.float32])
def test_labels_of_any_whole_number_type_become_the_same_int64(kind):
    images = data.Images(np.zeros((3, 28, 28), np.uint8), np.array([9, 0, 1], kind))
    assert images.labels.dtype == torch.int64 and images.labels.tolist() == [9, 0, 1]


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (np.zeros((3, 1), np.uint8), r"expected `labels` of shape \(3,\), got \(3, 1\); did you forget"),
        (np.zeros(2, np.int64), r"expected `labels` of shape \(3,\), got \(2,\)"),
        (np.array([0, 1, 10]), "holds 10 but there are 10 classes, 0..9"),
        (np.array([0, 255, 1], np.uint8), "holds 255 but"),
        (np.array([0, -1, 1]), "holds -1 but"),
        (np.array([0, 0.5, 1]), "whole numbers"),
        (np.array([0, np.nan, 1]), "whole numbers"),
    ],
)
def test_labels_that_cannot_be_right_are_refused(labels, says):
    with pytest.raises(ValueError, match=says):
        data.Images(np.zeros((3, 28, 28), np.uint8), labels)


def test_images_cannot_be_reassigned_and_take_keeps_images_with_their_labels():
    digits = data.mnist5k()
    with pytest.raises(AttributeError):
        digits.labels = None
    some = digits.take(torch.tensor([4999, 0]))
    assert some.labels.tolist() == [9, 0] and torch.equal(some.images[0], digits.images[4999])


# the split


def test_the_split_is_stratified_disjoint_shuffled_and_the_same_each_time():
    digits = data.mnist5k()
    numbered = data.Images(
        torch.arange(5000).view(torch.uint8).reshape(5000, 2, 4), digits.labels
    )  # an image = its index
    before = torch.random.get_rng_state()
    parts = data.split(numbered)
    assert torch.equal(before, torch.random.get_rng_state()), "the split must not touch the global generator"
    assert [len(part) for part in parts] == [3600, 400, 1000]
    assert [torch.bincount(part.labels).tolist() for part in parts] == [[360] * 10, [40] * 10, [100] * 10]
    index = torch.cat([part.images.reshape(len(part), 8).view(torch.int64)[:, 0] for part in parts])
    assert torch.equal(index.sort().values, torch.arange(5000)), "each image is in exactly one part"
    assert torch.equal(digits.labels[index], torch.cat([part.labels for part in parts])), "labels moved with the images"
    assert len(parts.train.labels[:100].unique()) == 10, "the parts are shuffled"
    again = data.split(numbered)
    assert all(torch.equal(a.images, b.images) for a, b in zip(parts, again, strict=True))
    assert not torch.equal(parts.train.images, data.split(numbered, seed=1).train.images)


def test_a_split_that_cannot_be_balanced_is_refused():
    digits = data.mnist5k()
    with pytest.raises(ValueError, match=r"multiples of the 10 classes, got \(3601, 400, 1000\)"):
        data.split(digits, train=3601)
    with pytest.raises(ValueError, match="expected 510 images of each class .* got 500 of class 0"):
        data.split(digits, train=3700)


# network input


def test_scaled_is_pixels_over_255_with_one_channel():
    images = np.zeros((2, 28, 28), np.uint8)
    images[1, 3, 4] = 51
    x = data.scaled(images)
    assert x.shape == (2, 1, 28, 28) and x.dtype == torch.float32
    assert x[1, 0, 3, 4].item() == pytest.approx(0.2) and x.sum().item() == pytest.approx(0.2)
    assert torch.equal(data.scaled(torch.as_tensor(images)), x)


def test_small_is_the_mean_of_each_block_of_four():
    images = data.mnist5k().images[::500]
    x = data.small(images)
    by_hand = images.reshape(10, 14, 2, 14, 2).double().mean((2, 4)) / 255
    assert x.shape == (10, 1, 14, 14) and x.dtype == torch.float32
    assert torch.allclose(x[:, 0].double(), by_hand, atol=1e-6)
    assert x.min() >= 0 and x.max() <= 1
    assert data.small(images, size=7).shape == (10, 1, 7, 7)


@pytest.mark.parametrize("function", [data.scaled, data.small])
@pytest.mark.parametrize(
    ("images", "says"),
    [
        (np.zeros((2, 28, 28), np.float32), r"of uint8, 0\.\.255, got torch.float32; were they scaled"),
        (np.zeros((28, 28), np.uint8), r"shape \(N, 28, 28\), got \(28, 28\); a single image needs"),
        (np.zeros((2, 1, 28, 28), np.uint8), r"got \(2, 1, 28, 28\)"),
        (np.zeros((2, 28, 28, 3), np.uint8), r"grey `images` of shape \(N, 28, 28\), got \(2, 28, 28, 3\)"),
        (np.zeros((2, 32, 32), np.uint8), r"got \(2, 32, 32\)"),
        (data.Images(np.zeros((1, 28, 28), np.uint8), [0]), r"did you mean its `\.images`"),
    ],
)
def test_other_types_and_shapes_get_a_clear_error(function, images, says):
    with pytest.raises(ValueError, match=says):
        function(images)


def test_small_refuses_a_size_that_does_not_divide_28():
    with pytest.raises(ValueError, match="divide 28 .* got 10"):
        data.small(np.zeros((1, 28, 28), np.uint8), size=10)


# MNIST 60k from a folder


def test_the_full_mnist_is_read_from_course_data_when_the_folder_has_it():
    folder = os.environ.get("COURSE_DATA")
    places = [Path(folder).expanduser() / "mnist", Path(folder).expanduser()] if folder else []
    if not any(all((place / name).is_file() for name in data.MNIST_NPZ) for place in places):
        pytest.skip("COURSE_DATA names no folder with MNIST as npz files")
    train, test = data.mnist60k()
    assert train.images.shape == (60000, 28, 28) and test.images.shape == (10000, 28, 28)
    assert train.labels.dtype == torch.int64 and train.labels[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]
    assert test.labels[:4].tolist() == [7, 2, 1, 0]


@pytest.mark.parametrize("inside", ["", "mnist"])
def test_idx_files_are_read_from_root_or_its_folder_mnist_without_a_network(inside, tiny, offline, tmp_path):
    (tmp_path / inside).mkdir(exist_ok=True)
    for name, content in tiny.items():
        (tmp_path / inside / name).write_bytes(content)
    train, test = data.mnist60k(tmp_path)
    assert train.labels.tolist() == [5, 0, 4, 1, 9, 2, 1] and test.labels.tolist() == [7, 2, 1]
    assert train.images.dtype == torch.uint8 and train.images.shape == (7, 28, 28)


def shards(tiny, folder: Path) -> None:
    arrays = []
    for name, content in tiny.items():
        (folder / name).write_bytes(content)
        arrays.append(files.read_idx(folder / name))
        (folder / name).unlink()
    for k, rows in enumerate((slice(0, 3), slice(3, 5), slice(5, 7))):
        np.savez_compressed(folder / f"train-{k}of3.npz", images=arrays[0][rows], labels=arrays[1][rows])
    np.savez_compressed(folder / "t10k.npz", images=arrays[2], labels=arrays[3])


def test_npz_files_named_by_course_data_are_joined_in_order(tiny, offline, tmp_path, monkeypatch):
    shards(tiny, tmp_path)
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    train, test = data.mnist60k()
    assert train.labels.tolist() == [5, 0, 4, 1, 9, 2, 1] and test.labels.tolist() == [7, 2, 1]


@pytest.mark.parametrize(
    ("content", "says"), [(b"", "is empty"), (LOGIN_PAGE, "begins with '<html>"), (b"PK\x03\x04cut", "is corrupted")]
)
def test_a_damaged_npz_of_ones_own_is_named(content, says, tiny, tmp_path):
    shards(tiny, tmp_path)
    (tmp_path / "train-1of3.npz").write_bytes(content)
    with pytest.raises(ValueError, match=rf"train-1of3\.npz to hold `images` and `labels`, but it {says}"):
        data.mnist60k(tmp_path)


def test_npz_files_in_another_order_are_not_mnist(tiny, tmp_path):
    shards(tiny, tmp_path)
    os.replace(tmp_path / "train-1of3.npz", tmp_path / "x.npz")
    os.replace(tmp_path / "train-2of3.npz", tmp_path / "train-1of3.npz")
    os.replace(tmp_path / "x.npz", tmp_path / "train-2of3.npz")
    with pytest.raises(ValueError, match="differ from MNIST's train-images"):
        data.mnist60k(tmp_path)


def test_a_truncated_gz_in_the_folder_is_named_with_the_way_out(tiny, offline, tmp_path):
    for name, content in tiny.items():
        (tmp_path / name).write_bytes(content)
    name = "t10k-labels-idx1-ubyte.gz"
    (tmp_path / name).write_bytes(tiny[name][:20])
    with pytest.raises(ValueError, match=r"is corrupted.*Delete it: the next call fetches it again") as caught:
        data.mnist60k(tmp_path)
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "begin with 0, 0, 8"),
        (b"\0\0\x0d\x01\0\0\0\x01\0\0\0\0", "begin with 0, 0, 8"),
        (b"\0\0\x08\x03\0\0\0\x02", "begin with 0, 0, 8"),
        (b"\0\0\x08\x01\0\0\0\x03ab", r"hold 3 values for its shape \[3\], got 2"),
        (b"\0\0\x08\x01\0\0\0\x03abcd", "got 4"),
    ],
)
def test_an_idx_file_of_the_wrong_length_is_refused(raw, says, tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(raw))
    with pytest.raises(ValueError, match=says):
        files.read_idx(tmp_path / "a.gz")


# MNIST 60k by download


def test_the_mirrors_are_two_and_https():
    assert len(data.MIRRORS) == 2 and all(url.startswith("https://") and url.endswith("/") for url in data.MIRRORS)


def test_a_download_is_whole_and_the_second_call_needs_no_network(server, tiny, tmp_path, capsys):
    server.use("good")
    train, test = data.mnist60k(tmp_path)
    assert train.labels.tolist() == [5, 0, 4, 1, 9, 2, 1] and test.labels.tolist() == [7, 2, 1]
    assert everything_below(tmp_path / "mnist") == sorted(tiny)
    assert capsys.readouterr().out == ""
    asked = len(server.asked)
    data.mnist60k(tmp_path)
    assert len(server.asked) == asked == 4


@pytest.mark.parametrize("first", ["403", "503", "404", "cut", "html", "stall", "silent"])
def test_when_the_first_mirror_fails_there_is_one_short_notice_and_the_second_serves(
    first, server, tiny, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(files, "TIMEOUT", 0.2)
    server.use(first, "good")
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    train, _ = data.mnist60k()
    assert len(train) == 7
    notice = capsys.readouterr().out.strip()
    assert len(notice.splitlines()) == 1 and "trying http://127.0.0.1" in notice
    assert sum(path.startswith(f"/{first}/") for path in server.asked) == 1, (
        "the bad mirror is asked once, not per file"
    )
    assert everything_below(tmp_path) == sorted(tiny)


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        ("403", "HTTP Error 403"),
        ("503", "HTTP Error 503"),
        ("cut", "is corrupted"),
        ("html", "begins with '<html>"),
        ("stall", "timed out"),
        ("silent", "timed out"),
    ],
)
def test_when_every_mirror_fails_there_is_one_error_and_no_half_file(behaviour, says, server, tmp_path, monkeypatch):
    monkeypatch.setattr(
        files, "TIMEOUT", 0.2 if says == "timed out" else 10
    )  # a busy machine must not time out the others
    server.use(behaviour, behaviour)
    with pytest.raises(RuntimeError) as caught:
        data.mnist60k(tmp_path)
    text, name = str(caught.value), "train-images-idx3-ubyte.gz"
    for part in (
        name,
        f"{data.MIRRORS[0]}{name}",
        data.MNIST_GZ_MD5[name],
        ", ".join(data.MNIST_GZ_MD5),
        str(tmp_path / "mnist"),
        "COURSE_DATA",
        says,
    ):
        assert part in text
    assert "Without a network" in text and text.count(says) == 2
    assert caught.value.__cause__ is None and (caught.value.__context__ is None or caught.value.__suppress_context__)
    assert everything_below(tmp_path) == []


def test_no_network_is_one_error_in_a_moment(tiny, offline, tmp_path):
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="unreachable") as caught:
        data.mnist60k(tmp_path)
    assert time.monotonic() - start < 1
    assert str(caught.value).count("https://") == 2
    assert everything_below(tmp_path) == []


def test_a_name_look_up_that_hangs_is_given_up(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "TIMEOUT", -0.9)  # the wait is TIMEOUT + 1
    monkeypatch.setattr(files.urllib.request, "urlopen", lambda *args, **kwargs: time.sleep(2))
    with pytest.raises(RuntimeError, match="no answer in"):
        data.mnist60k(tmp_path)
    assert everything_below(tmp_path) == []


def test_an_interrupted_download_leaves_nothing(server, tmp_path, monkeypatch):
    server.use("good")

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "verified", interrupt)
    with pytest.raises(KeyboardInterrupt):
        data.mnist60k(tmp_path)
    assert everything_below(tmp_path) == []


def test_a_folder_that_cannot_be_written_names_path_and_variable(tiny, offline, tmp_path, monkeypatch):
    (tmp_path / "home").write_text("a file where a folder should be: fails for every user, root too")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    with pytest.raises(PermissionError) as caught:
        data.mnist60k()
    text = str(caught.value)
    assert str(tmp_path / "home" / ".cache" / "course_lib" / "mnist") in text and "COURSE_DATA" in text
    assert caught.value.__suppress_context__


def test_a_read_only_folder_names_path_and_variable(tiny, offline, tmp_path):
    tmp_path.chmod(0o500)
    try:
        if os.access(tmp_path, os.W_OK):
            pytest.skip("this user may write to any folder (root, or Windows)")
        with pytest.raises(PermissionError, match="COURSE_DATA"):
            data.mnist60k(tmp_path)
    finally:
        tmp_path.chmod(0o700)


def test_the_home_cache_is_used_when_nothing_else_is_named(server, tiny, tmp_path, monkeypatch):
    server.use("good")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    data.mnist60k()
    assert everything_below(tmp_path / ".cache" / "course_lib" / "mnist") == sorted(tiny)


@pytest.mark.parametrize("name", ["mnist5k", "lidc_masks"])
def test_a_shipped_npz_is_written_from_its_arrays_alike_each_time_or_not_at_all(name, tmp_path):
    script = data.shipped(f"make_{name}.py").read_text(encoding="utf-8")
    sha256 = re.search(r'^ARRAYS_SHA256 = "(\w+)"', script, re.M)[1]
    with np.load(data.shipped(f"{name}.npz")) as file:
        arrays = {key: file[key] for key in file.files}
    told = files.write_npz(tmp_path / "a.npz", arrays, sha256=sha256)
    time.sleep(2.1)  # a zip keeps times in steps of two seconds
    assert files.write_npz(tmp_path / "b.npz", arrays, sha256=sha256) == told.replace("a.npz", "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with np.load(tmp_path / "a.npz") as again:
        assert all((again[key] == arrays[key]).all() and again[key].dtype == arrays[key].dtype for key in arrays)
    other = arrays | {next(iter(arrays)): next(iter(arrays.values()))[:-1]}
    with pytest.raises(ValueError, match="is the source another"):
        files.write_npz(tmp_path / "c.npz", other, sha256=sha256)
    assert not (tmp_path / "c.npz").exists()
