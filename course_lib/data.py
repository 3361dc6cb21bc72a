"""Real data: what ships with the course, and MNIST's 70,000 digits by a checked download."""

import csv
import hashlib
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from course_lib.files import base_folder, download, found, read_idx, verified

SHIPPED_SHA256 = {
    "mnist5k.npz": "63818dc867dd7ee1181196c2588842f34debadc19cc80dc16b1dc1401cbb62c4",
    "anaesthesia.csv": "904bb3043d0059b17d9801bbdd90c48ce0932eb35c8be32524b16c43452c9629",
    "lidc_masks.npz": "77412a4770e451fc5b936901f133e8419c7832c277322780655366a47a918061",
}
MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
MNIST_GZ_MD5 = {  # in the order train images, train labels, test images, test labels
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
MNIST_IDX_MD5 = (  # of the same four, unpacked
    "6bbc9ace898e44ae57da46a324031adb",
    "a25bea736e30d166cdddb491f175f624",
    "2646ac647ad5339dbf082846283269ea",
    "27ae3e4e09519cfbb04c329615203637",
)
MNIST_NPZ = ("train-0of3.npz", "train-1of3.npz", "train-2of3.npz", "t10k.npz")
_PACKAGE = Path(__file__).resolve().parent
_RESTORE = "Restore the file: `git checkout -- data` in a checkout, else reinstall the package"


# eq=False: comparing tensors with == gives a tensor, not a truth value
@dataclass(frozen=True, eq=False, repr=False)
class Images:
    """Grey images and the true class of each.

    images: uint8 (N, H, W), 0..255. labels: whole numbers (N,), 0..n_classes-1, kept as int64. From torch or numpy.
    Raises ValueError when a shape, a type or a label is another.

    >>> Images(np.zeros((3, 28, 28), np.uint8), np.array([2, 0, 1], np.uint8), n_classes=3).labels
    tensor([2, 0, 1])
    """

    images: Tensor
    labels: Tensor
    n_classes: int = 10

    def __post_init__(self) -> None:
        images, labels = _grey(self.images), torch.as_tensor(self.labels)
        if labels.shape != images.shape[:1]:
            cause = "; did you forget `labels.squeeze(1)`?" if labels.ndim == 2 else ""
            raise ValueError(f"expected `labels` of shape ({len(images)},), got {tuple(labels.shape)}{cause}")
        whole = labels.to(torch.int64)
        if labels.is_floating_point() and not torch.equal(whole.to(labels.dtype), labels):
            raise ValueError(f"expected `labels` to be whole numbers, got {labels.dtype} with fractions or NaN")
        wrong = whole[(whole < 0) | (whole >= self.n_classes)]
        if len(wrong):
            raise ValueError(
                f"`labels` holds {int(wrong[0])} but there are {self.n_classes} classes, 0..{self.n_classes - 1}; "
                "did you forget to shift them, or to pass n_classes?"
            )
        object.__setattr__(self, "images", images)
        object.__setattr__(self, "labels", whole)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Images({len(self):,} of {self.images.shape[1]}x{self.images.shape[2]}, {self.n_classes} classes)"

    def take(self, index: Tensor) -> "Images":
        """The images at `index` (a slice, int64 (M,) or bool (N,)) in that order."""
        return Images(self.images[index], self.labels[index], self.n_classes)


class Split(NamedTuple):
    """Three `Images` that share no image."""

    train: Images
    validation: Images
    test: Images


def split(digits: Images, *, train: int = 3600, validation: int = 400, test: int = 1000, seed: int = 0) -> Split:
    """The same three parts on every machine, each with equally many images of every class (stratified).

    Each class is shuffled and cut, then each part is shuffled, by one CPU generator started at `seed`.
    Raises ValueError when a size is no multiple of the number of classes, or a class has too few images.

    >>> split(mnist5k())
    Split(train=Images(3,600 of 28x28, 10 classes), validation=Images(400 of 28x28, 10 classes), \
test=Images(1,000 of 28x28, 10 classes))
    """
    classes, sizes = digits.n_classes, (train, validation, test)
    if any(size < 0 or size % classes for size in sizes):
        raise ValueError(f"expected train, validation, test to be multiples of the {classes} classes, got {sizes}")
    counts = torch.bincount(digits.labels, minlength=classes)
    if int(counts.min()) * classes < sum(sizes):
        raise ValueError(
            f"expected {sum(sizes) // classes} images of each class for {sizes}, "
            f"got {int(counts.min())} of class {int(counts.argmin())}; ask for smaller parts"
        )
    generator = torch.Generator().manual_seed(seed)
    members = [torch.nonzero(digits.labels == k)[:, 0] for k in range(classes)]
    members = [some[torch.randperm(len(some), generator=generator)] for some in members]
    each = [size // classes for size in sizes]
    pieces = [some[: sum(each)].split(each) for some in members]
    parts = [torch.cat(part) for part in zip(*pieces, strict=True)]
    return Split(*(digits.take(part[torch.randperm(len(part), generator=generator)]) for part in parts))


def scaled(images: Tensor) -> Tensor:
    """Network input x = images / 255: uint8 (N, 28, 28) from torch or numpy -> float32 (N, 1, 28, 28) in [0, 1].

    Raises ValueError for another type or shape.
    """
    return _grey(images, (28, 28))[:, None].float() / 255  # (N, 1, 28, 28)


def small(images: Tensor, size: int = 14) -> Tensor:
    """`scaled`, then the mean of each block of 28/size x 28/size pixels: float32 (N, 1, size, size) in [0, 1].

    `size` divides 28. Raises ValueError otherwise, and as `scaled` does.

    >>> image = np.zeros((1, 28, 28), np.uint8)
    >>> image[0, 0, 0] = 255  # one white pixel of the four in its block
    >>> small(image)[0, 0, 0, 0].item()
    0.25
    """
    if size < 1 or 28 % size:
        raise ValueError(f"expected `size` to divide 28 (1, 2, 4, 7, 14, 28), got {size}")
    return avg_pool2d(scaled(images), 28 // size)  # (N, 1, size, size)


def mnist5k() -> Images:
    """The 5,000 MNIST digits that ship with the course, 500 of each, sorted by digit. Needs no network.

    Source: MNIST, (c) LeCun and Cortes, CC BY-SA 3.0; see data/README.md. Raises as `verified` does.

    >>> mnist5k()
    Images(5,000 of 28x28, 10 classes)
    """
    with np.load(verified(shipped("mnist5k.npz"), sha256=SHIPPED_SHA256["mnist5k.npz"], fix=_RESTORE)) as file:
        return Images(file["images"], file["labels"])


def anaesthetists() -> tuple[Tensor, tuple[str, ...]]:
    """The grades of 45 patients by five anaesthetists: labels int64 (45, 7), 0..3 for the printed 1..4, and 7 names.

    The first gave three readings, some weeks apart: columns 0, 1, 2, named "1a", "1b", "1c". No grade is missing.
    Source: Dawid and Skene 1979, Table 1. Differs: grades start at 0. Raises as `verified` does.

    >>> labels, names = anaesthetists()
    >>> labels[1] + 1, names
    (tensor([3, 3, 3, 4, 3, 3, 4]), ('1a', '1b', '1c', '2', '3', '4', '5'))
    """
    path = verified(shipped("anaesthesia.csv"), sha256=SHIPPED_SHA256["anaesthesia.csv"], fix=_RESTORE)
    grades = [int(row["grade"]) - 1 for row in csv.DictReader(path.read_text("ascii").splitlines())]
    return torch.tensor(grades).reshape(45, 7), ("1a", "1b", "1c", "2", "3", "4", "5")


def mnist60k(root: str | Path | None = None) -> tuple[Images, Images]:
    """All of MNIST: 60,000 training and 10,000 test images, downloaded once (11 MB).

    Looked for in `root`, else $COURSE_DATA, else ~/.cache/course_lib: in its folder `mnist`, then in the folder
    itself; as the four idx .gz files, or as npz files (`MNIST_NPZ`, keys images and labels). Found in neither, the four
    are downloaded to `mnist`. Source: `MIRRORS`; `mnist5k` is a part of its training images. Raises RuntimeError when
    every mirror fails, PermissionError when the folder cannot be written, ValueError when a file is damaged.
    """
    base = base_folder(root)
    for folder in (base / "mnist", base):
        # os.path.isfile: Path.is_file raises when the folder may not be read
        if all(os.path.isfile(folder / name) for name in MNIST_GZ_MD5):
            return _from_idx(folder)
        if all(os.path.isfile(folder / name) for name in MNIST_NPZ):
            return _from_npz(folder)
    mirrors = list(MIRRORS)
    for name, md5 in MNIST_GZ_MD5.items():
        if not os.path.isfile(base / "mnist" / name):
            download(name, mirrors, md5=md5, folder=base / "mnist", variable="COURSE_DATA", together=MNIST_GZ_MD5)
    return _from_idx(base / "mnist")


def shipped(name: str) -> Path:
    """The path of a file that ships: data/NAME or book/NAME in a checkout, course_lib/shipped/NAME once installed.

    Does not depend on the working directory. Raises FileNotFoundError.
    """
    checkout = _PACKAGE.parent
    places = [_PACKAGE / "shipped" / name]
    if (checkout / "pyproject.toml").is_file():  # else `checkout` is site-packages, where data/ is someone else's
        places += [checkout / "data" / name, checkout / "book" / name]
    for place in places:
        if place.exists():
            return place
    raise FileNotFoundError(
        f"expected the shipped file {name!r} at {checkout / 'data' / name} or {checkout / 'book' / name} (a checkout) "
        f"or at {places[0]} (an installed package), found none; usual cause: course_lib copied without its data, or a "
        "misspelt name. Clone the whole repository, or reinstall the package"
    )


def _grey(images: Tensor, size: tuple[int, int] | None = None) -> Tensor:
    """`images` as a uint8 tensor (N, H, W), or ValueError."""
    if isinstance(images, Images):
        raise ValueError("expected a uint8 array (N, 28, 28), got an Images; did you mean its `.images`?")
    images = torch.as_tensor(images)
    if images.dtype != torch.uint8:
        raise ValueError(f"expected `images` of uint8, 0..255, got {images.dtype}; were they scaled to [0, 1] already?")
    if images.ndim != 3 or (size and images.shape[1:] != size):
        wanted = "(N, 28, 28)" if size else "(N, H, W)"
        cause = "; a single image needs images[None]" if images.ndim == 2 else ""
        raise ValueError(f"expected grey `images` of shape {wanted}, got {tuple(images.shape)}{cause}")
    return images


def _from_idx(folder: Path) -> tuple[Images, Images]:
    fix = "Delete it: the next call fetches it again"
    parts = [read_idx(verified(folder / name, md5=md5, fix=fix)) for name, md5 in MNIST_GZ_MD5.items()]
    return Images(parts[0], parts[1]), Images(parts[2], parts[3])


def _from_npz(folder: Path) -> tuple[Images, Images]:
    shards = []
    for name in MNIST_NPZ:
        try:
            with open(folder / name, "rb") as raw, np.load(raw) as file:
                shards.append((file["images"], file["labels"]))
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error):
            raise ValueError(
                f"expected {folder / name} to hold `images` and `labels`, but it {found(folder / name)}. Copy it again"
            ) from None
    *train, test = shards
    parts = [np.concatenate(some) for some in zip(*train, strict=True)] + list(test)
    for part, md5, gz in zip(parts, MNIST_IDX_MD5, MNIST_GZ_MD5, strict=True):
        # these npz files have no published checksum, so compare what they hold with the official files
        header = bytes([0, 0, 8, part.ndim]) + np.array(part.shape, ">i4").tobytes()
        if part.dtype != np.uint8 or hashlib.md5(header + part.tobytes(), usedforsecurity=False).hexdigest() != md5:
            raise ValueError(f"the npz files in {folder} differ from MNIST's {gz}; copy them again, or remove them")
    return Images(parts[0], parts[1]), Images(parts[2], parts[3])
