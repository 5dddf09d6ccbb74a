"""Files that are there whole or not at all, whatever ends the process that writes them; and locks for them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rope_lessons._extras import extra

DATA = Path(__file__).parent / "data"  # the stored results and small models of the book


class InUseError(RuntimeError):
    """Files that another process works on."""


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under another name, ``NAME.unfinished`` beside it; it gets its own when all of it is on the disk.

    What is at the path stays as it is until then, also when the disk is full or the process is killed. An error removes
    the unfinished file; what a killed process left is overwritten by the next one. Processes that write the same file
    at the same time need a lock, :func:`locked`.

    Args:
        path: of the file, in a folder that is there.
        write: writes the file whose path it is given.

    Raises:
        OSError: the file cannot be written, or the disk is full. It names the file, and has the number of the cause.

    Chapter 12 keeps its trainings with it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "numbers.txt"
    ...     write_whole(path, lambda unfinished: unfinished.write_text("1 2 3"))
    ...     path.read_text()
    '1 2 3'
    """
    unfinished = path.with_name(f"{path.name}.unfinished")
    with naming(path):
        try:
            write(unfinished)
            flush(unfinished)
            unfinished.replace(path)
            flush(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):  # the first error is the one to be told
                unfinished.unlink(missing_ok=True)
            raise


def tidy(folder: Path) -> None:
    """Remove what processes that were killed have left of :func:`write_whole`.

    Args:
        folder: in which no other process writes.
    """
    for pattern in ("*.unfinished", ".tmp*"):  # safetensors writes under a name of its own first
        for path in folder.glob(pattern):
            if not path.is_dir():
                path.unlink()


def sealed(content: Mapping[str, Any]) -> str:
    """A dictionary as JSON, with a SHA-256 of what it says.

    Args:
        content: what JSON can hold, without the name ``"seal"``.
    """
    return json.dumps({**content, "seal": _seal(content)}, indent=1) + "\n"


def unsealed(text: str | bytes) -> dict[str, Any]:
    """What :func:`sealed` was given.

    Raises:
        ValueError: the text does not say that.
    """
    content = json.loads(text)
    if not isinstance(content, dict) or content.pop("seal", None) != _seal(content):
        raise ValueError("its SHA-256 is not the one that it was written with")
    return content


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write what :func:`sealed` gives, whole or not at all.

    Raises:
        OSError: as :func:`write_whole`.
    """
    write_whole(path, lambda unfinished: unfinished.write_text(sealed(content), "utf8"))


def read_sealed(path: Path) -> dict[str, Any]:
    """What :func:`write_sealed` wrote.

    Raises:
        OSError: the file cannot be read.
        ValueError: it does not say what was written.
    """
    return unsealed(path.read_bytes())


def _seal(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the disk name a file: those of writing name none, and safetensors has a kind of its own for them.

    Args:
        path: of the file, as it is to be told.

    Raises:
        OSError: with the number of the cause.
    """
    try:
        yield
    except OSError as error:
        number, reason = error.errno, error.strerror or str(error)
        raise OSError(number or errno.EIO, f"{reason}, so this was not written", str(path)) from error
    except Exception as error:
        told = re.search(r"\(os error (\d+)\)", str(error))
        if type(error).__name__ != "SafetensorError" or told is None:
            raise
        number = int(told[1])
        raise OSError(number, f"{os.strerror(number)}, so this was not written", str(path)) from error


def flush(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder."""
    if path.is_dir() and os.name == "nt":  # Windows opens no folders
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)  # Windows flushes only what it may write
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(path: Path, told: str | None = None) -> Iterator[None]:
    """Work as the only process that holds a lock. It ends with the block, or with the process, however that ends.

    Args:
        path: of the lock, a file that stays. Its folder is made if it is not there.
        told: where another process holds it, this is the error; None waits.

    Raises:
        InUseError: another process holds it.

    Chapter 12.
    """
    with extra("lab", "a lock"):
        from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=-1 if told is None else 0)
    except Timeout as error:
        raise InUseError(told) from error
    try:
        yield
    finally:
        lock.release()


def check_writable(name: str, path: Path, folder: bool = False) -> None:
    """Find out before hours of work, and not after them, that their result cannot be written. Nothing is made.

    Args:
        name: of the argument that the path comes from.
        path: of a file, which may be there or not.
        folder: the path is that of a folder for files.

    Raises:
        ValueError: there can be no such file, or its folder takes none.
    """
    what = "a folder that can be written to" if folder else "a file that can be written"
    inside = path if folder else path.parent
    try:
        if not folder and path.is_dir():
            raise OSError("it is a folder")
        while not inside.exists():
            inside = inside.parent
        with tempfile.TemporaryFile(dir=inside):
            pass
        with contextlib.suppress(FileNotFoundError):
            path.stat()  # a name can be too long
    except OSError as error:
        raise ValueError(f"{name} must be {what}, got {str(path)!r}: {error}") from error
