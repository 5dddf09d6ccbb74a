"""What a trained model had right, in a file for each training and seed: a bit per byte. Chapter 12."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from rope_lessons.lab.table.counts import open_file, write_file
from rope_lessons.scoreboard.scoring import Hits

# In the names of a file: the row, and what was asked. What has one shape lies in one array, in this order: an array has
# 200 bytes of heads, more than the bits of twelve needles.
_ROW, _AND = "|", ";"


def write(path: Path, about: dict[str, Any], rows: dict[str, Hits]) -> None:
    """Write what is known of a model, whole or not at all.

    Args:
        path: of the file.
        about: the training and the tests, and under ``"rows"`` what each row was; JSON can hold it.
        rows: by name, what :func:`~rope_lessons.scoreboard.scoring.hits_of` gave.

    Raises:
        OSError: the file cannot be written.
    """
    packed = {}
    for row, found in rows.items():
        for asked in _alike(found):
            values = np.stack([found[each] for each in asked])
            packed[row + _ROW + _AND.join(asked)] = np.packbits(values, axis=-1) if values.dtype == bool else values
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
            row, asked = name.split(_ROW)
            unpacked = _unpacked(values, tests["windows"], tests["lengths"][-1])
            rows[row] |= dict(zip(asked.split(_AND), unpacked, strict=True))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} must be a file of hits: {error!r}") from error
    return about, rows


def _alike(found: Hits) -> list[list[str]]:
    """What was asked, together where dtype and shape are the same."""
    groups: dict[Any, list[str]] = {}
    for asked, values in found.items():
        groups.setdefault((values.dtype, values.shape), []).append(asked)
    return list(groups.values())


def _unpacked(values: np.ndarray, windows: int, longest: int) -> np.ndarray:
    if values.dtype != np.uint8:
        return values
    size = longest if values.ndim == 3 else windows
    return np.unpackbits(values, axis=-1, count=size).astype(bool)
