"""Real pictures and real crowds, read from files, and a drawn stand-in for both that needs no file."""

import importlib.util
import os
import re
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from course_lib.annotations import Annotations, as_images, as_labels
from course_lib.annotators import hammer_spammers, similar_class_confuser
from course_lib.data import Images
from course_lib.files import base_folder, download, found

VIEWS = ("long axis", "short axis", "2 chambers", "3 chambers", "4 chambers", "5 chambers")
WORKLOAD = (4.0, 3.0, 2.0, 2.0, 1.0, 0.5, 6.0, 5.0)
"""How much each of the `eight_readers` works: the two who are no experts, 6 and 7, do nearly half of it."""

LABELME_FILES = {
    "answers.txt": "what 59 people said of 1,000 images, -1 for nothing",
    **{f"LabelMe_VGG_avg_{part}.npy": "512 features an image" for part in ("train", "valid", "test")},
    **{f"LabelMe_Z_{part}.txt": "the true class of each image" for part in ("train", "valid", "test")},
}
_LABELME_BY_HAND = (
    "It is not downloaded for you, because nobody publishes a checksum of it. By hand: the folder data/LabelMe of "
    "https://github.com/fmenat/PyLearningCrowds has these files; they come from Rodrigues and Pereira's "
    "http://fprodrigues.com/deep_LabelMe.tar.gz"
)
_UNREADABLE = (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error)


class Part(NamedTuple):
    """images float32 (N, C, H, W) in [0, 1], or features (N, D), and the true class of each, int64 (N,)."""

    images: Tensor
    labels: Tensor


class Pictures(NamedTuple):
    """Three parts that share no image, and the names of the L classes."""

    train: Part
    validation: Part
    test: Part
    classes: tuple[str, ...]


class Crowd(NamedTuple):
    """Training items with what a crowd said of them (and the truth, for measuring), and two parts with the truth."""

    train: Annotations
    validation: Part
    test: Part


# ---- MedMNIST --------------------------------------------------------------------------------------------------------


def medmnist(name: str, size: int = 28, root: str | Path | None = None, *, fetch: bool = True) -> Pictures:
    """One set of MedMNIST, grey or in colour, with one class an image: read with numpy, downloaded once if need be.

    Looked for as NAME.npz (NAME_64.npz at size 64) in `root`, else $COURSE_DATA, else ~/.cache/course_lib: in its
    folders NAME and `medmnist`, then in the folder itself. A file that is there is read as it is; the package medmnist
    then only adds the names of the classes. One that is not there is downloaded to `medmnist`, from the address and
    with the md5 that the package publishes; fetch=False: never.
    Source: Yang et al. 2023. Arguments: name, such as "breastmnist"; size 28 or 64.
    Raises: ValueError for an unknown name or size, a damaged file, several labels an image (chestmnist) or volumes;
    FileNotFoundError when it is not there and fetch=False; ImportError when the package is not there either;
    RuntimeError when the download fails.
    """
    if size not in (28, 64):
        raise ValueError(f"`size` must be 28, or 64 with 5 times the memory (224 would take 64 times); got {size!r}.")
    info, base, file = _medmnist_info(), base_folder(root), f"{name}{'' if size == 28 else '_64'}.npz"
    known = ", ".join(sorted(info or ("breastmnist, ...",)))
    if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9]+", name) or (info is not None and name not in info):
        raise ValueError(f"`name` must be a set of MedMNIST, without its size ({known}); got {name!r}.")
    about = (info or {}).get(name, {})
    if "multi-label" in about.get("task", ""):
        raise ValueError(_several(name))
    path = next((p for p in (base / name / file, base / "medmnist" / file, base / file) if os.path.isfile(p)), None)
    if path is None and not fetch:
        raise FileNotFoundError(f"{file} is not in {base / name}, {base / 'medmnist'} or {base}, and fetch=False")
    if path is None:
        path = _fetched(name, file, about, "" if size == 28 else "_64", base)
    return _read_medmnist(path, size, name, tuple(about["label"].values()) if about else None)


def _fetched(name: str, file: str, about: dict, suffix: str, base: Path) -> Path:
    if not about:
        raise ImportError(
            f"{file} is not in {base / name}, {base / 'medmnist'} or {base}, and its address is known to the package "
            'medmnist, which is not installed: `pip install medmnist` (or the extra: pip install -e ".[medical-io]"). '
            f"Without it: put {file} from https://medmnist.com into {base / 'medmnist'}"
        )
    mirrors = [about[f"url{suffix}"].split(file)[0]]
    return download(file, mirrors, md5=about[f"MD5{suffix}"], folder=base / "medmnist", variable="COURSE_DATA")


def _read_medmnist(path: Path, size: int, name: str, classes: tuple[str, ...] | None) -> Pictures:
    keys = [f"{part}_{what}" for part in ("train", "val", "test") for what in ("images", "labels")]
    arrays = _read(path, lambda p: _npz(p, keys), f"a MedMNIST file with {', '.join(keys)}")
    for images, labels in (arrays[:2], arrays[2:4], arrays[4:]):
        if images.shape[1:] not in ((size, size), (size, size, 3)) or images.dtype != np.uint8:
            volume = "; a volume has no place in a network for pictures" if images.ndim == 4 else ""
            raise ValueError(
                f"expected {path} to hold uint8 images (N, {size}, {size}), or (N, {size}, {size}, 3) in colour; got "
                f"{images.dtype} {images.shape}{volume}."
            )
        if labels.ndim == 2 and labels.shape[1] > 1:
            raise ValueError(_several(name))
        if labels.shape not in ((len(images),), (len(images), 1)) or not len(images):
            raise ValueError(f"expected {path} to hold one label for each of {len(images)} images; got {labels.shape}.")
    # without the package the classes are those that occur: all of a published set's do
    L = len(classes) if classes else max(2, 1 + max(int(arrays[k].max()) for k in (1, 3, 5)))
    parts = [
        Part(as_images(images.transpose(0, 3, 1, 2) if images.ndim == 4 else images), as_labels(labels.reshape(-1), L))
        for images, labels in (arrays[:2], arrays[2:4], arrays[4:])
    ]
    return Pictures(*parts, classes or tuple(f"class {k}" for k in range(L)))


def _several(name: str) -> str:
    return (
        f"{name} has several labels an image, each there or not; this course has one class an image. Take one of the "
        "findings as a set of two classes, or another set."
    )


def _medmnist_info() -> dict | None:
    """medmnist.INFO, or None where the package is absent. Reads that one file: the package itself needs torchvision."""
    package = importlib.util.find_spec("medmnist")
    folder = package and package.submodule_search_locations and Path(package.submodule_search_locations[0])
    if not folder or not (folder / "info.py").is_file():
        return None
    spec = importlib.util.spec_from_file_location("_medmnist_info", folder / "info.py")
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.INFO


# ---- LabelMe ---------------------------------------------------------------------------------------------------------


def labelme(root: str | Path | None = None) -> Crowd:
    """1,000 photographs of scenes with the labels of 59 paid strangers, 2.5 an image; 500 and 1,188 with the truth.

    Eight classes: highway, inside city, tall building, street, forest, coast, mountain, open country (the files do not
    say which number is which). The pictures themselves are not there, only 512 features of each from a network trained
    on other photographs; here each feature has mean 0 and deviation 1 over the training images.
    Looked for in the folder `labelme_crowd` of `root`, else $COURSE_DATA, else ~/.cache/course_lib, then in the folder
    itself. Source: Rodrigues and Pereira 2018. Raises: FileNotFoundError that says where to get it; ValueError for a
    damaged file, or sizes that do not fit.
    """
    base = base_folder(root)
    folder = next((f for f in (base / "labelme_crowd", base) if os.path.isfile(f / "answers.txt")), None)
    missing = [n for n in LABELME_FILES if folder is None or not os.path.isfile(folder / n)]
    if missing:
        raise FileNotFoundError(
            f"the LabelMe crowd is not whole in {folder or base / 'labelme_crowd'}: no {', '.join(missing)}. "
            f"{_LABELME_BY_HAND}. Put them into {folder or base / 'labelme_crowd'}, or name their folder's parent in "
            "COURSE_DATA"
        )
    table = lambda p: np.loadtxt(p, dtype=np.int64, ndmin=2)  # noqa: E731
    arrays = {
        name: _read(folder / name, table if name.endswith("txt") else lambda p: np.load(p, allow_pickle=False), what)
        for name, what in LABELME_FILES.items()
    }
    parts = []
    for part in ("train", "valid", "test"):
        x, truth = arrays[f"LabelMe_VGG_avg_{part}.npy"], arrays[f"LabelMe_Z_{part}.txt"]
        if x.ndim != 2 or truth.size != len(x) or (parts and x.shape[1] != parts[0].images.shape[1]):
            raise ValueError(
                f"expected features (N, D) and N true classes in {folder}, {part}; got {x.shape} and {truth.size}."
            )
        parts.append(Part(as_images(x), as_labels(truth.reshape(-1), 8, what=f"LabelMe_Z_{part}.txt")))
    mean, deviation = parts[0].images.mean(0), parts[0].images.std(0)
    train, validation, test = (p._replace(images=(p.images - mean) / deviation.clamp(min=1e-6)) for p in parts)
    crowd = Annotations(train.images, arrays["answers.txt"], n_classes=8, truth=train.labels)
    return Crowd(crowd, validation, test)


# ---- drawn pictures and readers --------------------------------------------------------------------------------------

_CHAMBERS = {  # of each view: dark ellipses, as centre x, y and half-axes, where the picture is 2 x 2
    "long axis": ((-0.1, 0.0, 0.5, 0.2), (0.42, -0.25, 0.17, 0.15), (0.38, 0.28, 0.24, 0.17)),
    "short axis": ((-0.05, 0.05, 0.38, 0.34), (0.42, -0.25, 0.13, 0.2)),
    "2 chambers": ((0.0, -0.15, 0.24, 0.45), (0.0, 0.55, 0.24, 0.2)),
    "3 chambers": ((0.0, -0.15, 0.24, 0.45), (-0.1, 0.55, 0.2, 0.2), (0.3, 0.42, 0.14, 0.2)),
    "4 chambers": (
        (-0.28, -0.1, 0.2, 0.4), (0.28, -0.1, 0.17, 0.36), (-0.28, 0.53, 0.18, 0.18), (0.28, 0.53, 0.2, 0.18),
    ),
    "5 chambers": (
        (-0.28, -0.1, 0.2, 0.4), (0.28, -0.1, 0.17, 0.36), (-0.32, 0.53, 0.16, 0.18), (0.34, 0.53, 0.16, 0.18),
        (0.02, 0.42, 0.12, 0.2),
    ),
}  # fmt: skip


def six_views(N: int, generator: Generator) -> Images:
    """N drawn pictures, 28x28, of six classes named after standard views of the heart: dark chambers in a bright fan.

    These are drawings, not ultrasound: a stand-in for the private data of Tanno 2019, section 3.4, so that the chapter
    runs offline. Neighbours (2 and 3, 4 and 5 chambers) differ by one small chamber; place, turn, size and grey vary;
    speckle covers all. Returns: Images whose `n_classes` is 6; `VIEWS` are the names.

    >>> six_views(4, torch.Generator().manual_seed(0))
    Images(4 of 28x28, 6 classes)
    """
    if N < 1:
        raise ValueError(f"`N` must be at least 1 picture; got {N}.")
    truth = torch.randint(len(VIEWS), (N,), generator=generator)
    uniform = lambda low, high: low + (high - low) * torch.rand(N, 1, 1, generator=generator)  # noqa: E731
    at = torch.linspace(-1, 1, 28)
    angle, size = uniform(-0.15, 0.15), uniform(0.9, 1.1)
    x, y = at[None, None] - uniform(-0.1, 0.1), at[None, :, None] - uniform(-0.1, 0.1)  # (N, 1, 28), (N, 28, 1)
    u, v = (angle.cos() * x + angle.sin() * y) / size, (angle.cos() * y - angle.sin() * x) / size  # (N, 28, 28)
    inside, wall = torch.zeros(N, 28, 28), torch.zeros(N, 28, 28)
    most = max(map(len, _CHAMBERS.values()))
    shapes = torch.tensor([[*c, *[(9.0, 9.0, 0.1, 0.1)] * (most - len(c))] for c in _CHAMBERS.values()])  # (6, most, 4)
    for k in range(most):
        cx, cy, a, b = shapes[truth, k].T[:, :, None, None]  # (N, 1, 1) each; those out of sight draw nothing
        r = (((u - cx) / a) ** 2 + ((v - cy) / b) ** 2).sqrt()
        inside = torch.maximum(inside, ((1 - r) * 6).sigmoid())
        wall = torch.maximum(wall, (-(((r - 1.15) / 0.2) ** 2)).exp())
    fan = (at[:, None] + 1.3 > 1.1 * at.abs()[None]).float()  # the field of view, narrow at the top
    grey = fan * (uniform(0.3, 0.5) + 0.35 * wall) * (1 - 0.85 * inside)
    speckle = 1 + 0.4 * torch.randn(N, 28, 28, generator=generator)
    noisy = grey * speckle + 0.06 * torch.randn(N, 28, 28, generator=generator)
    return Images((noisy.clamp(0, 1) * 255).to(torch.uint8), truth, n_classes=len(VIEWS))


def eight_readers(generator: Generator) -> Tensor:
    """Eight drawn readers of the six views: six experts of skill .8 to .95, then two who are none. (8, 6, 6).

    Experts mix up views that look alike, each view in a measure of its own. The other two know the view with
    probability .35 and .1 and guess otherwise. Invented in the spirit of Tanno 2019, section 3.4: nobody's real matrix.
    Let them label with `annotators.annotate(truth, A, per_item=2, workload=WORKLOAD, generator=...)`.
    """
    experts = []
    for skill, *share in torch.rand(6, 7, generator=generator):
        share = torch.stack(share)  # (L,), one for each truth: what is called by another's name need not call it back
        one = similar_class_confuser(6, float(0.8 + 0.15 * skill), [(0, 1), (2, 3), (4, 5)])  # (1, L, L)
        other = similar_class_confuser(6, float(0.8 + 0.15 * skill), [(0, 1), (2, 4), (3, 5)])
        experts.append(share * one + (1 - share) * other)
    others = [hammer_spammers(1, 6, know, spread=0.0, generator=generator) for know in (0.35, 0.1)]
    return torch.cat([*experts, *others])


# ---- files -----------------------------------------------------------------------------------------------------------


def _read(path: Path, reader: Callable, what: str) -> object:
    try:
        return reader(path)
    except _UNREADABLE:
        raise ValueError(f"expected {path} to hold {what}, but it {found(path)}. Copy it again") from None


def _npz(path: Path, keys: list[str]) -> list[np.ndarray]:
    with open(path, "rb") as raw:
        if not zipfile.is_zipfile(raw):  # np.load takes a lone array, too
            raise zipfile.BadZipFile
        raw.seek(0)
        with np.load(raw, allow_pickle=False) as file:
            return [file[key] for key in keys]
