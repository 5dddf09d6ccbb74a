"""The table as it is stored: its lines, and the line of a row. Chapter 12."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rope_lessons.lab.rows import OWN
from rope_lessons.lab.table.scoring import SETS
from rope_lessons.stored import DATA, read_rows

PACKAGED = DATA / "table_gau-0.3m.json"


class Line(NamedTuple):
    """One line of the table: a row, a set, a length and a metric. The lines of a row share what it is trained with."""

    row: str
    training: str
    set: str
    length: int
    times: int
    metric: str
    value: float
    low: float
    high: float
    along: tuple[float, ...]
    seeds: int
    documents: int
    predictions: int


def read_table(path: Path | str = PACKAGED) -> list[Line]:
    """The lines of a table that ``lab.table`` wrote; by default of the one that travels with the package.

    Args:
        path: of the file.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file without the columns of a table, or damaged.

    Chapter 12 shows them.
    """
    found = []
    for number, values in enumerate(read_rows(Path(path), "lines", Line._fields), start=1):
        try:
            found.append(_line(values))
        except (TypeError, ValueError) as error:  # a number that is none, or is not there
            raise ValueError(f"{path} is damaged: line {number} of the table, {error}") from error
    return found


def recipe_of(path: Path | str = PACKAGED) -> dict[str, Any]:
    """The columns that are the same in every line: the training, the corpus, hardware and date.

    Args:
        path: of the file.
    """
    lines = read_rows(Path(path), "lines", Line._fields)
    columns = {name: lines[name] for name in lines.columns}
    return {name: values[0] for name, values in columns.items() if values.count(values[0]) == len(values)}


def _line(values: Mapping[str, Any]) -> Line:
    kinds: dict[str, Callable[[Any], Any]] = {
        **dict.fromkeys(("length", "times", "seeds", "documents", "predictions"), int),
        **dict.fromkeys(("value", "low", "high"), float),
        "along": lambda parts: tuple(map(float, parts)),
    }
    return Line(**{name: kinds.get(name, str)(values[name]) for name in Line._fields})


def row_names(lines: Iterable[Line]) -> list[str]:
    """The rows of a table in its order, but for the plan of training itself."""
    return list(dict.fromkeys(line.row for line in lines if line.row != OWN))


def pick(lines: Iterable[Line], row: str, kind: str = SETS[0], times: int = 8, metric: str = "accuracy") -> Line:
    """The line of a row.

    Args:
        lines: of a table.
        row: its name.
        kind: ``"not repeated"``, ``"repeated"`` or ``"passkey"``.
        times: of the training length.
        metric: ``"accuracy"``, ``"loss"``, ``"found"`` or ``"tax"``.

    Raises:
        ValueError: there is none.
    """
    wanted = (row, kind, times, metric)
    for line in lines:
        if (line.row, line.set, line.times, line.metric) == wanted:
            return line
    raise ValueError(f"the table has no line for row {row!r}, {kind}, {times} times the length, {metric}")
