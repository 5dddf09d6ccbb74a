"""Counts without the weights, in one small file: so seeds of several machines come into one table. Chapter 12."""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path, PurePosixPath

from rope_lessons.lab import checkpoint
from rope_lessons.lab.table.counts import read_zip
from rope_lessons.lab.table.finished import ABOUT, TableError, Trained
from rope_lessons.stored import sealed, unsealed, write_whole

CONTENTS = "contents.json"  # in a file of packed counts: the SHA-256 of every other file
PACKED = re.compile(rf"([^/\\:]+/)+({ABOUT}|tests/[^/\\:]+\.npz)")  # names in a file of packed counts


def pack(root: Path, models: Iterable[Trained], path: Path) -> None:
    """Put what is counted of some models into one zip file, without their weights.

    Args:
        root: a folder that holds the folders of all of them; the names in the file begin there.
        models: trainings that :func:`~rope_lessons.lab.table.jobs.count_all` has tested.
        path: of the file.

    Chapter 12.
    """

    found: dict[str, bytes] = {}
    for model in models:
        for file in (*sorted(model.folder.glob("tests/*.npz")), model.folder / ABOUT):
            found[file.relative_to(root).as_posix()] = file.read_bytes()
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in found.items()}
    found[CONTENTS] = sealed(digests).encode()

    def write(unfinished: Path) -> None:
        with zipfile.ZipFile(unfinished, "w") as file:
            for name, content in found.items():
                file.writestr(zipfile.ZipInfo(name), content)  # always with the same date: the same file

    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, write)


def unpack(path: Path, root: Path) -> None:
    """Put what :func:`pack` packed into folders again. A training that is there already is left as it is.

    Args:
        path: of the file.
        root: the folder where the names in the file begin.

    Raises:
        TableError: no such file, or one of another kind; more bytes than counts of a seed can have; a name that leads
            out of the folder; other counts in the place of these. Nothing is written then.
        OSError: the disk is full.

    Chapter 12.
    """
    contents = _unpacked(path)
    there = {PurePosixPath(name).parent for name in contents if name.endswith(ABOUT) and _is_there(root / name)}
    new = {root / name: content for name, content in contents.items() if not there & set(PurePosixPath(name).parents)}
    for target, content in new.items():
        if not target.resolve().is_relative_to(root.resolve()):
            raise TableError(f"{path} must be a file of packed counts: {str(target)!r} would be outside of {root}")
        if target.exists() and (target.is_dir() or target.read_bytes() != content):
            raise TableError(f"{target} is there already, and is not what {path} has for it. Delete it first")
    for target, content in new.items():  # ABOUT comes after the counts: an interrupted call is made good by the next
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, partial(Path.write_bytes, data=content))


def _unpacked(path: Path) -> dict[str, bytes]:
    """The files in a packed file, by name."""
    try:
        found = read_zip(path)
        digests = unsealed(found.pop(CONTENTS, b"{}"))
        if digests != {name: hashlib.sha256(content).hexdigest() for name, content in found.items()}:
            raise ValueError("its files are not those that were packed")
        for name in found:
            if not PACKED.fullmatch(name) or ".." in name.split("/"):
                raise ValueError(f"it has {name!r}")
    except (OSError, ValueError) as error:
        raise TableError(f"{path} must be a file of packed counts: {error}") from error
    return found


def _is_there(about: Path) -> bool:
    return bool(checkpoint.stored(about.parent)) or about.exists()
