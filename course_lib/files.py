"""Files that can be trusted: a checksum before reading, and a download that leaves a whole file or none."""

import gzip
import hashlib
import http.client
import io
import json
import math
import os
import queue
import re
import shutil
import tempfile
import threading
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image, UnidentifiedImageError
from tqdm.auto import tqdm

T = TypeVar("T")
TIMEOUT = 10.0  # seconds that a mirror may stay silent


def base_folder(root: str | Path | None = None) -> Path:
    """Where a reader's own data lie: `root`, else $COURSE_DATA, else ~/.cache/course_lib."""
    return Path(root or os.environ.get("COURSE_DATA") or "~/.cache/course_lib").expanduser().absolute()


def kept_file(name: str) -> Path:
    """Where a reader's own work lies: `name` in the folder COURSE_HOME, or else in ./.course."""
    return Path(os.environ.get("COURSE_HOME") or ".course") / name


def keep_json(path: Path, content: object, what: str) -> Path:
    """Writes `content`, the reader's own `what`, whole or not at all; returns the path. Raises OSError in one line."""
    try:
        with whole_file(path) as part:
            part.write_text(json.dumps(content), encoding="utf-8")
    except OSError as error:
        why = f"cannot keep the {what} in {path} ({error.strerror}); set COURSE_HOME to a folder you may write to"
        raise OSError(why) from None
    return path


def kept_json(path: Path, understood: Callable[[dict], T], what: str, again: str) -> T | None:
    """What `understood` makes of a file of `keep_json`, or None without a file. Raises ValueError in one line."""
    if not path.exists():
        return None
    try:
        return understood(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"{path} is no file of saved {what} ({why}); delete it and {again} again") from None


def verified(
    path: str | Path, *, sha256: str | None = None, md5: str | None = None, fix: str = "Delete it and fetch it again"
) -> Path:
    """The path, once the file has this checksum: call it before np.load.

    Exactly one of `sha256`, `md5`; `fix`, what the reader can do, ends the error.
    Raises FileNotFoundError (no file) or ValueError (empty, cut short, a web page, another file).
    """
    path = Path(path).absolute()
    if (sha256 is None) == (md5 is None):
        raise ValueError(f"expected exactly one of sha256 and md5, got {'neither' if md5 is None else 'both'}")
    kind, wanted = ("md5", md5) if sha256 is None else ("sha256", sha256)
    if not path.is_file():
        raise FileNotFoundError(f"expected {path.name} in the folder {path.parent}, but {path} does not exist. {fix}")
    with open(path, "rb") as file:
        # usedforsecurity: some hospital machines refuse md5 otherwise
        got = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
    if got != wanted:
        raise ValueError(
            f"expected {path.name} in the folder {path.parent} with {kind} {wanted}, but {path} {found(path)} "
            f"({kind} {got}). {fix}"
        )
    return path


def write_npz(path: str | Path, arrays: dict[str, np.ndarray], *, sha256: str) -> str:
    """Writes arrays as an npz of the same bytes on each run with the same zlib, and tells its size and checksum.

    sha256: of all arrays' bytes in order, since another zlib may pack them into other bytes. Raises ValueError, before
    anything is written, if they have another.
    """
    got = hashlib.sha256(b"".join(array.tobytes() for array in arrays.values())).hexdigest()
    if got != sha256:
        raise ValueError(f"expected arrays {', '.join(arrays)} with sha256 {sha256}, got {got}; is the source another?")
    with zipfile.ZipFile(path, "w") as archive:  # np.savez_compressed would store the time of day
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # else Windows and Unix write different bytes
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, buffer.getvalue(), compresslevel=9)
    raw = Path(path).read_bytes()
    return f"{Path(path).name}: {len(raw):,} bytes, sha256 {hashlib.sha256(raw).hexdigest()}"


def read_idx(path: str | Path) -> np.ndarray:
    """The uint8 array in a gzipped idx file, MNIST's own format: 0, 0, 8, the number of axes, the shape, the values.

    Raises ValueError when the header is another, or the values are too few or too many.
    """
    raw = gzip.decompress(Path(path).read_bytes())
    if len(raw) < 4 or raw[:3] != b"\0\0\x08" or len(raw) < 4 + 4 * raw[3]:
        raise ValueError(f"expected {path} to begin with 0, 0, 8 and a shape (idx, uint8), got {list(raw[:4])}")
    shape = np.frombuffer(raw, ">i4", raw[3], offset=4).tolist()
    start = 4 + 4 * raw[3]
    if len(raw) - start != math.prod(shape):
        raise ValueError(
            f"expected {path} to hold {math.prod(shape)} values for its shape {shape}, got {len(raw) - start}"
        )
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy()  # a copy: torch wants writable memory


def found(path: Path) -> str:
    """What a wrong file looks like, with the usual cause."""
    with open(path, "rb") as file:
        head = file.read(200).decode("latin-1").strip()
    if path.stat().st_size == 0:
        return "is empty (0 bytes); usual cause: an interrupted copy or a full disk"
    if head.startswith("<"):
        return (
            f"begins with {head[:14]!r}; usual cause: a web page, such as the login page of the network, saved instead"
        )
    return (
        f"is corrupted: {path.stat().st_size:,} bytes, cut short or another file; usual cause: an interrupted download"
    )


def decoded(content: bytes, name: str, folder: Path, mode: str | None = None) -> np.ndarray:
    """The pixels of a picture's bytes, in a mode of PIL or as they are. Raises ValueError for what is no picture."""
    try:
        image = Image.open(io.BytesIO(content))
        return np.array(image.convert(mode) if mode else image)
    except (OSError, UnidentifiedImageError):
        raise ValueError(f"expected {name} in {folder} to be a picture; it is damaged. Copy the set again.") from None


def download(
    name: str, mirrors: list[str], *, md5: str, folder: str | Path, variable: str, together: Iterable[str] = ()
) -> Path:
    """The path folder/name, fetched from the first of `mirrors` that gives the file with this md5.

    A mirror that fails is moved to the end of `mirrors`, so that the next file does not wait for it again. The bytes go
    to a temporary name in `folder` and get their own name once whole and verified. For the errors: `variable` is the
    environment variable that chooses the folder, `together` all the files that the reader would have to fetch by hand.
    Raises RuntimeError when every mirror fails, PermissionError when `folder` cannot be written.
    """
    folder = Path(folder)
    part = folder / f".{name}.{os.getpid()}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part.touch()
    except OSError as error:
        raise PermissionError(
            f"expected to write {name} to the folder {folder}, but it cannot be written ({error.strerror}); usual "
            f"cause: a shared or read-only home. Set the environment variable {variable} to a folder that you can "
            "write to, or that has the file already"
        ) from None
    failures = []
    try:
        for mirror in tuple(mirrors):
            try:
                _fetch(mirror + name, part)
                verified(part, md5=md5)
                os.replace(part, folder / name)
                return folder / name
            except (OSError, http.client.HTTPException, ValueError) as error:
                if isinstance(error, urllib.error.HTTPError):
                    error.close()  # it is also the open answer
                # verified's own error would name the temporary file
                reason = f"what came {found(part)}" if type(error) is ValueError else str(error) or type(error).__name__
            failures.append(f"  {mirror}{name}: {reason}")
            mirrors.append(mirrors.pop(0))
            if len(failures) < len(mirrors):
                tqdm.write(f"{name}: no luck at {mirror}, trying {mirrors[0]}")
    finally:
        part.unlink(missing_ok=True)
    raise RuntimeError(
        f"could not download {name} (md5 {md5}) to the folder {folder}:\n" + "\n".join(failures) + "\n"
        f"Without a network: fetch {', '.join(together) or name} on another machine from one of these addresses, and "
        f"put what you fetched in {folder} or in a folder of your own that {variable} names"
    )


def _fetch(url: str, target: Path) -> None:
    with _opened(url) as answer, open(target, "wb") as file:
        size = int(answer.headers.get("Content-Length") or 0) or None
        with tqdm(total=size, unit="B", unit_scale=True, desc=url.rsplit("/", 1)[-1], leave=False) as bar:
            while block := answer.read(1 << 16):
                file.write(block)
                bar.update(len(block))


def _opened(url: str) -> http.client.HTTPResponse:
    """urlopen in a thread: its own timeout starts anew at each address of a host, and leaves out the name look-up."""
    answers = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(urllib.request.urlopen(url, timeout=TIMEOUT))
        except Exception as error:  # handed to the caller, below
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=TIMEOUT + 1)
    except queue.Empty:
        raise TimeoutError(f"no answer in {TIMEOUT:.0f} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def natural(text: str) -> list:
    """A key for sorting that puts 10 after 9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to; it becomes `path` at the end, and after an error nothing is left of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        os.replace(part, path)
    finally:
        with suppress(OSError):  # it has its own name by now, or could not be written
            part.unlink()


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` to write into; it takes that name at the end, and after an error nothing is left of it.

    What `folder` held is removed then, and not before: look first at what that is.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        yield part
        part.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
