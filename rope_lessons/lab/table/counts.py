"""What is counted of a model and a row, kept beside its checkpoint. Chapter 12."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rope_lessons.lab.rows import TableRow
from rope_lessons.lab.table.finished import TableError, Trained
from rope_lessons.lab.table.scoring import BINS, Counts, Evaluation
from rope_lessons.lab.text import Corpus
from rope_lessons.stored import write_whole

LARGEST = 2**28  # bytes of counts in a file: those of a seed are a few millions


def read_counts(model: Trained, row: TableRow, corpus: Corpus, tests: Evaluation) -> Counts:
    """What :func:`~rope_lessons.lab.table.jobs.count_all` has kept of a model and a row.

    Raises:
        TableError: it is not counted yet, or the file is damaged.
    """
    try:
        found = find_counts(model, row, corpus, tests)
    except ValueError as error:
        raise TableError(f"{error}. Test {model.folder} again") from error
    if found is None:
        raise TableError(f"{model.folder} is not tested with {row.name!r} yet")
    return found


def find_counts(model: Trained, row: TableRow, corpus: Corpus, tests: Evaluation) -> Counts | None:
    """What is counted of a model and a row; None if nothing is, or of another checkpoint, text or test.

    Raises:
        ValueError: a damaged file.
    """
    return read_file(_path(model, row), _key(model, row, corpus, tests))


def keep_counts(model: Trained, row: TableRow, corpus: Corpus, tests: Evaluation, counts: Counts) -> None:
    """Write what :func:`find_counts` finds."""
    path = _path(model, row)
    path.parent.mkdir(exist_ok=True)
    write_file(path, _key(model, row, corpus, tests), counts)


def _path(model: Trained, row: TableRow) -> Path:
    return model.folder / "tests" / f"{row.name}.npz"


def _key(model: Trained, row: TableRow, corpus: Corpus, tests: Evaluation) -> str:
    """What the counts depend on."""
    drawn = row.method.test_positions
    parts = {
        "checkpoint": model.sha256,
        "corpus": corpus.about["sha256"],
        "plan": repr(row.method.test),
        "positions": None if drawn is None else repr(drawn.keywords),  # type: ignore[attr-defined]
        "normalized": row.normalized,
        "tests": asdict(tests),
        "bins": BINS,
    }
    return json.dumps(parts, sort_keys=True)


def read_file(path: Path, key: str) -> Counts | None:
    """What :func:`write_file` wrote; None if there is no file, or one with another key.

    Raises:
        ValueError: a damaged file.
    """
    try:
        of, found = open_file(path)
    except FileNotFoundError:
        return None
    return found if of == key else None


def open_file(path: Path) -> tuple[str, Counts]:
    """What :func:`write_file` wrote: the key and the counts.

    Raises:
        FileNotFoundError: there is no file.
        ValueError: a damaged file.
    """
    try:
        files = read_zip(path).items()
        found = {name.removesuffix(".npy"): np.load(io.BytesIO(content)) for name, content in files}
        of, seal = str(found.pop("key")), str(found.pop("seal"))
        if seal != _seal(of, found):
            raise ValueError("its SHA-256 is not the one that it was written with")
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    return of, found


def write_file(path: Path, key: str, counts: Counts) -> None:
    """Write counts, whole or not at all."""

    def write(unfinished: Path) -> None:
        contents: dict[str, Any] = {"key": np.array(key), "seal": np.array(_seal(key, counts)), **counts}
        with unfinished.open("wb") as file:
            np.savez_compressed(file, **contents)

    write_whole(path, write)


def _seal(key: str, counts: Counts) -> str:
    """A SHA-256 of counts, for a zip file that has lost some of its files may still be one."""
    found = hashlib.sha256(key.encode())
    for name in sorted(counts):
        found.update(f"{name} {counts[name].dtype} {counts[name].shape}".encode() + counts[name].tobytes())
    return found.hexdigest()


def read_zip(path: Path) -> dict[str, bytes]:
    """The files in a zip file, by name, if they are not too much. Zip files have checksums, which are compared.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, or too large.
    """
    try:
        with zipfile.ZipFile(path) as file:
            if (size := sum(entry.file_size for entry in file.infolist())) > LARGEST:
                raise ValueError(f"it has {size:,} bytes, more than {LARGEST:,}")
            names = file.namelist()
            if len(set(names)) < len(names):
                raise ValueError("it has a name twice")
            return {name: file.read(name) for name in names}  # never more bytes than it says
    except OSError:
        raise
    except Exception as error:  # zipfile and its codecs have a dozen kinds of them
        raise ValueError(str(error)) from error
