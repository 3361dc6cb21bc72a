"""A reader's own folders: pictures, and of each a mask file for every rater and structure, as REFUGE and QUBIQ come."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from .annotations import MISSING, Annotations
from .files import natural

LAYOUTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "refuge": ("{case}/{case}.jpg", ("{case}/{case}_seg_disc_{rater}.png", "{case}/{case}_seg_cup_{rater}.png")),
    "riga": ("{case}.png", ("{case}_disc_{rater}.png", "{case}_cup_{rater}.png")),
    "qubiq": ("{case}/image.nii.gz", ("{case}/task01_seg{rater}.nii.gz",)),
}
"""Where the picture of a case lies, and where its masks: a pattern for each structure, each inside the one before.

`refuge`: REFUGE-MultiRater (Ji et al. 2021), seven raters. `qubiq`: the QUBIQ challenge; other tasks of a case by
another pattern. RIGA's raters drew outlines on the pictures; `riga` reads masks that you filled from them.
"""


def masks_of_raters(root: str | Path, layout: str | tuple[str, tuple[str, ...]], *, size: int = 256) -> Annotations:
    """Pictures and every rater's masks under `root`: images (N, C, size, size) in [0, 1], labels (N, R, size, size).

    A pixel's class is the number of structures that the rater drew there: of disc and cup 0, 1 or 2. A rater who did
    not draw a case is MISSING there. A mask file is 0 outside and one other value inside; a volume needs one slice.
    Arguments: layout: a name of `LAYOUTS`, or your own pair of patterns with {case} and {rater}. `.nii`: by SimpleITK.
    Raises: FileNotFoundError if nothing fits the patterns; ValueError for a picture without masks, half of a rater's
    structures, a structure outside the one that should hold it, a mask of another size than its picture or more values.
    """
    root = Path(root).expanduser()
    if isinstance(layout, str) and layout not in LAYOUTS:
        raise ValueError(f"`layout` must be one of {', '.join(LAYOUTS)} or your own patterns; got {layout!r}.")
    picture, structures = LAYOUTS[layout] if isinstance(layout, str) else layout
    cases = _matching(root, picture)
    found = [_matching(root, pattern) for pattern in structures]
    raters = sorted({rater for structure in found for _, rater in structure}, key=natural)
    if not cases or not raters:
        looked = picture if not cases else " and ".join(structures)
        raise FileNotFoundError(f"nothing under {root} is called like {looked}; is it the folder that holds the cases?")
    images, labels, names = [], [], sorted({case for case, _ in cases}, key=natural)
    for case in names:
        x = read_picture(cases[case, ""])
        said = []
        for rater in raters:
            files = [structure.get((case, rater)) for structure in found]
            if any(files) != all(files):
                raise ValueError(f"rater {rater} drew only a part of the structures of case {case} under {root}.")
            said.append(_drawn(files, x, case, rater, size) if all(files) else torch.full((size, size), MISSING))
        if all((s == MISSING).all() for s in said):
            raise ValueError(f"{cases[case, '']} has no masks; the pattern was {' and '.join(structures)}.")
        images.append(interpolate(x[None], (size, size), mode="bilinear", antialias=True)[0])
        labels.append(torch.stack(said))
    check_channels(root, {len(x): case for x, case in zip(images, names, strict=True)})
    return Annotations(torch.stack(images), torch.stack(labels), n_classes=len(structures) + 1, names=tuple(raters))


def check_channels(root: Path, channels: dict[int, str]) -> None:
    """Raises ValueError where there are several numbers of channels, each given with the name of a picture of it."""
    if len(channels) > 1:
        told = ", ".join(f"that of {name} has {n}" for n, name in sorted(channels.items()))
        raise ValueError(f"pictures of {root} must have one number of channels: {told}. Save all grey, or all RGB.")


def simpleitk(path: Path | str) -> ModuleType:
    try:
        import SimpleITK
    except ImportError:
        raise ImportError(f"{path} needs SimpleITK: pip install 'course_lib[medical-io]'.") from None
    return SimpleITK


def _matching(root: Path, pattern: str) -> dict[tuple[str, str], Path]:
    """(case, rater) -> file, for all that is called like the pattern."""
    wanted = re.escape(pattern).replace(r"\{case\}", "(?P<case>[^/]+)", 1).replace(r"\{case\}", "(?P=case)")
    wanted = re.compile(wanted.replace(r"\{rater\}", "(?P<rater>[^/_]+)"))
    glob = pattern.replace("{case}", "*").replace("{rater}", "*")
    found = {}
    for path in sorted(root.glob(glob)):
        if match := wanted.fullmatch(path.relative_to(root).as_posix()):
            found[match["case"], match.groupdict().get("rater", "")] = path
    return found


def read_picture(path: Path) -> Tensor:
    """A picture as float (C, H, W), its brightest value 1 (255 of 8-bit files)."""
    sitk = simpleitk(path) if ".nii" in path.suffixes else None
    try:
        if sitk is not None:
            values = sitk.GetArrayFromImage(sitk.ReadImage(str(path))).astype(np.float32).squeeze()
        else:
            from skimage.io import imread

            values = imread(path)
    except Exception as error:
        raise ValueError(f"{path} cannot be read as a picture ({type(error).__name__}): is it whole?") from None
    if values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] > 4):
        raise ValueError(f"{path} has the shape {values.shape}; wanted one picture, or one slice of a volume.")
    whole = 255 if values.dtype == np.uint8 else max(float(values.max()), 1e-12)
    x = torch.from_numpy(values.astype(np.float32) / whole)
    return x[None] if x.ndim == 2 else x.movedim(2, 0)[:3]  # without a fourth channel, which is transparency


def _drawn(files: list[Path], x: Tensor, case: str, rater: str, size: int) -> Tensor:
    """Of each pixel, how many structures the rater drew there: (size, size)."""
    grey = [read_picture(file).amax(0) for file in files]
    masks = [values > 0 for values in grey]
    for file, mask, values in zip(files, masks, grey, strict=True):
        if len(found := values.unique().tolist()) > 2 or min(found) < 0:
            shown = ", ".join(f"{value:.3g}" for value in found[:6])
            raise ValueError(f"{file} holds {shown} of full brightness; wanted two values. Has it smooth edges?")
        if mask.shape != x.shape[1:]:
            raise ValueError(f"{file} is {tuple(mask.shape)}, its picture {tuple(x.shape[1:])}.")
    for outer, inner, file in zip(masks, masks[1:], files[1:], strict=False):
        if (inner & ~outer).sum() > 0.05 * inner.sum():
            raise ValueError(f"{file}: a twentieth or more of it lies outside {files[0].name}; are patterns exchanged?")
    inside, depth = torch.ones_like(masks[0]), 0
    for mask in masks:
        inside = inside & mask
        depth = depth + inside.long()
    return interpolate(depth[None, None].float(), (size, size), mode="nearest-exact")[0, 0].long()
