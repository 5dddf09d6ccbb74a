"""What a trained model had right, in a file for each training and seed: a bit per byte. Chapter 12."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from rope_lessons.lab.table.counts import open_file, write_file
from rope_lessons.scoreboard.scoring import Hits

_BETWEEN = "|"  # the row and what was asked, in the names of a file


def write(path: Path, about: dict[str, Any], rows: dict[str, Hits]) -> None:
    """Write what is known of a model, whole or not at all.

    Args:
        path: of the file.
        about: the training and the tests, and under ``"rows"`` what each row was; JSON can hold it.
        rows: by name, what :func:`~rope_lessons.scoreboard.scoring.hits_of` gave.

    Raises:
        OSError: the file cannot be written.
    """
    packed = {
        f"{row}{_BETWEEN}{asked}": np.packbits(values, axis=-1) if values.dtype == bool else values
        for row, found in rows.items()
        for asked, values in found.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, json.dumps(about, sort_keys=True), packed)


def read(path: Path) -> tuple[dict[str, Any], dict[str, Hits]]:
    """What :func:`write` wrote.

    Raises:
        FileNotFoundError: there is no file.
        ValueError: a damaged file, or one of another kind.
    """
    key, packed = open_file(path)
    try:
        about = json.loads(key)
        tests = about["tests"]
        rows: dict[str, Hits] = {name: {} for name in about["rows"]}
        for name, values in packed.items():
            row, asked = name.split(_BETWEEN)
            rows[row][asked] = _unpacked(values, tests["windows"], tests["lengths"][-1])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} must be a file of hits: {error!r}") from error
    return about, rows


def _unpacked(values: np.ndarray, windows: int, longest: int) -> np.ndarray:
    if values.dtype != np.uint8:
        return values
    size = longest if values.ndim == 2 else windows
    return np.unpackbits(values, axis=-1, count=size).astype(bool)
