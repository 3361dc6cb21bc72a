"""Looks at a machine: versions, kernel, device, disk, data and chapters; for each what is there and how to mend it."""

import os
import platform
import shutil
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from course_lib import __version__, book, data, experiments

LEAST_GB = 1
INSTALL = f'"{sys.executable}" -m pip install -e . in the folder that holds pyproject.toml'


class Finding(NamedTuple):
    """What was looked at, what is there, and what to do about it; nothing to do where all is well."""

    what: str
    there: str
    mend: str = ""


def findings() -> list[Finding]:
    """One finding for each part of the machine, in order; none of the looks raises."""
    looks: dict[str, Callable[[], Finding]] = {
        "versions": versions,
        "kernel": kernel,
        "device": device,
        "disk": disk,
        "data": shipped_data,
        "own data": own_data,
        "chapters": chapters,
    }
    found = []
    for what, look in looks.items():
        try:
            found.append(look())
        except Exception as error:  # a machine may be broken in ways that nobody has thought of
            found.append(Finding(what, f"{type(error).__name__}: {error}", f"install again: {INSTALL}"))
    return found


def versions() -> Finding:
    """Python, torch, and each required package that is missing or outside its range."""
    from packaging.requirements import Requirement

    there = f"course_lib {__version__}, Python {platform.python_version()} ({sys.executable})"
    try:
        required = [Requirement(line) for line in metadata.requires("course-lib") or ()]
    except metadata.PackageNotFoundError:
        return Finding("versions", f"{there}; used from its folder, not installed", "")
    wrong = [f"{r} (here {_version(r.name)})" for r in required if not r.marker and not _fits(r)]
    return Finding("versions", "; wanted ".join([there, *wrong]), INSTALL if wrong else "")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _fits(requirement) -> bool:
    version = _version(requirement.name)
    return version is not None and requirement.specifier.contains(version, prereleases=True)


def kernel() -> Finding:
    """Whether notebooks run in this Python."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    mend = f'"{sys.executable}" -m ipykernel install --sys-prefix'
    try:
        runs = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        return Finding("kernel", "there is none with the name python3", mend)
    # A bare "python" is the Python that starts it; compared unresolved, since environments link to one executable.
    if runs.startswith("python") or Path(runs).absolute() == Path(sys.executable).absolute():
        return Finding("kernel", "notebooks run in this Python")
    return Finding("kernel", f"notebooks run in {runs}, not in this Python", mend)


def device() -> Finding:
    """What networks train on."""
    import torch

    where = f"{platform.system()} {platform.machine()}"
    try:
        return Finding("device", f"torch {torch.__version__} on {experiments.device_name()}; {where}")
    except (ValueError, RuntimeError) as error:
        return Finding("device", f"torch {torch.__version__}; {error}", "unset COURSE_DEVICE, or set it to cpu")


def disk() -> Finding:
    """Free disk where results are written, and whether pages can keep live widgets without a network."""
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    scripts = "npm" if shutil.which("npm") else "from the network, no npm"
    mend = "" if free >= LEAST_GB else f"free some: results, a built book and a first download want {LEAST_GB} GB"
    return Finding("disk", f"{free:.0f} GB of disk free; browser scripts: {scripts}", mend)


def shipped_data() -> Finding:
    """The digits that come with the course, against their checksum."""
    try:
        count = len(data.mnist5k().images)
    except (OSError, ValueError, RuntimeError) as error:
        return Finding("data", str(error), "restore the folder data/ from the repository: git checkout -- data")
    return Finding("data", f"data: {count:,} digits, checksum right ({data.shipped('mnist5k.npz')})")


def own_data() -> Finding:
    """The folder that COURSE_DATA names."""
    named = os.environ.get("COURSE_DATA")
    if not named:
        return Finding("own data", "COURSE_DATA is not set; own data are looked for in ~/.cache/course_lib")
    if not Path(named).expanduser().is_dir():
        return Finding("own data", f"COURSE_DATA names {named}, which is no folder", "make it, or unset COURSE_DATA")
    return Finding("own data", f"COURSE_DATA: {named}")


def chapters() -> Finding:
    """The notebooks, which an installed wheel does not have."""
    try:
        return Finding("chapters", f"chapters: {len(book.chapters())} in {book.ROOT / 'notebooks'}")
    except book.BookError as error:
        return Finding("chapters", str(error), "clone the repository, and install from its folder with -e")
