"""The results of the benchmark: a row for each job, way to test and test length, with where it comes from."""

from __future__ import annotations

import math
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rope_lessons._checks import check_bool, check_count, check_share
from rope_lessons.chomsky.grid import Job
from rope_lessons.chomsky.training import PUBLISHED, Protocol
from rope_lessons.stored import DATA, Table, locked, provenance, read_rows, write_results

PACKAGED = DATA / "chomsky_reduced.json"
KEY = ("task", "model", "positions", "variant", "seed", "learning_rate")  # a job, in the columns of the file
COLUMNS = (
    *KEY, "level", "test_positions", "length", "accuracy", "samples", "reduced", "steps", "train_loss", "protocol",
    "changes", "side_by_side", "seconds", "date", "version", "torch", "python", "hardware",
)  # fmt: skip
IDENTITY = (*KEY, "test_positions", "length", "protocol")  # a line: a file has each once


class Row(NamedTuple):
    """What one line says about a result; the rest of a line is where it comes from."""

    task: str
    model: str
    positions: str
    variant: str
    seed: int
    learning_rate: float
    test_positions: str
    length: int
    accuracy: float
    reduced: bool
    protocol: str
    exact: float | None = None  # share of whole answers; None in a file from before they were counted


def append(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to a file, all or none, by one process at a time. Rows that a file has already, under the same
    protocol, are not written twice.

    Args:
        path: of the file. One that is not there is made.
        rows: as :func:`lines_of` gives them.

    Raises:
        ValueError: a file that was not written by this function, or is damaged.
        OSError: the file cannot be written; it is then as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(f".{path.name}.lock")):
        # Files from before whole answers were counted have no such column.
        there = [{"exact": None, **line} for line in lines(path)] if path.exists() else []
        known = set(map(_identity, there))
        write_results(path, {}, rows=[*there, *(row for row in rows if _identity(row) not in known)])


def _identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in IDENTITY)


def read(path: Path | str | None = None) -> list[Row]:
    """The rows of a file of results; by default those of the reduced grid that travel with the package.

    Args:
        path: of a file that ``python -m rope_lessons.chomsky`` wrote.

    Returns:
        list of :class:`Row`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another file, or a damaged one.

    Chapter 11 shows them.
    """
    path = PACKAGED if path is None else Path(path)
    return [_row(path, number, line) for number, line in enumerate(lines(path), start=1)]


def _row(path: Path, number: int, line: Mapping[str, Any]) -> Row:
    """What a line says, after a look at each value."""
    row = Row(**{name: line[name] for name in Row._fields if name in line})  # an old one has no "exact"
    try:
        Job(row.task, row.model, row.positions, row.variant, row.seed, row.learning_rate)
        check_count("length", row.length, least=1)
        check_share("accuracy", row.accuracy)
        if row.exact is not None:
            check_share("exact", row.exact)
        check_bool("reduced", row.reduced)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged: row {number}: {error}. Put the right file there, or delete it: what is missing is "
            f"then measured again"
        ) from error
    return row


def lines(path: Path) -> Table:
    """The rows of a file of results with all their columns.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another file, or a damaged one.
    """
    return read_rows(path, "rows", COLUMNS)


def done(path: Path, protocol: Protocol) -> set[str]:
    """Names of the jobs that a file has all results of, under this protocol; of a file that is not there, none.

    Raises:
        ValueError: another file, or a damaged one.
    """
    found: dict[Job, set[tuple[str, int]]] = defaultdict(set)
    for row in read(path) if path.exists() else []:
        if row.protocol == protocol.digest():
            job = Job(row.task, row.model, row.positions, row.variant, row.seed, row.learning_rate)
            found[job].add((row.test_positions, row.length))
    return {job.name for job, tests in found.items() if tests >= set(protocol.tests(job.random))}


def score(accuracies: Mapping[int, float], low: int = 41, high: int = 500) -> float:
    """The benchmark's score: mean accuracy over all lengths from ``low`` to ``high``.

    Lengths that were not tested are filled in by straight lines between those that were, so that a dozen
    log-spaced lengths weigh as the 460 published ones do.

    Args:
        accuracies: by test length; at least ``low`` and ``high`` themselves.
        low, high: the range, 41…500 as published.

    Returns:
        the mean.

    Raises:
        ValueError: a range whose ends were not tested.

    >>> round(score({41: 1.0, 270: 0.75, 500: 0.5}), 3)
    0.75
    """
    for end in (low, high):
        if end not in accuracies:
            raise ValueError(f"accuracies must contain length {end}, got {sorted(accuracies)}")
    known = sorted(length for length in accuracies if low <= length <= high)
    total = accuracies[low]
    for a, b in pairwise(known):
        slope = (accuracies[b] - accuracies[a]) / (b - a)
        total += sum(accuracies[a] + slope * (length - a) for length in range(a + 1, b + 1))
    return total / (high - low + 1)


def scores(rows: Iterable[Row], low: int = 41, high: int = 500) -> dict[tuple[str, ...], dict[int, float]]:
    """Scores by configuration and seed, ``{(task, model, positions, variant, test_positions): {seed: score}}``. Where
    a seed was trained with several learning rates, its best one.

    Args:
        rows: of one protocol.
        low, high: as for :func:`score`.

    Raises:
        ValueError: rows of several protocols, which do not compare.
    """
    by_job: dict[tuple[Any, ...], dict[int, float]] = defaultdict(dict)
    protocols = set()
    for row in rows:
        where = (row.task, row.model, row.positions, row.variant, row.test_positions)
        by_job[where, row.seed, row.learning_rate][row.length] = row.accuracy
        protocols.add(row.protocol)
    if len(protocols) > 1:
        raise ValueError(f"rows must be of one protocol, got {', '.join(sorted(protocols))}")
    found: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    for (where, seed, _), accuracies in by_job.items():
        value = score(accuracies, low, high)
        found[where][seed] = max(value, found[where].get(seed, 0.0))
    return dict(found)


def lines_of(
    found: Iterable[Mapping[str, Any]], protocol: Protocol, level: str, losses: Mapping[Job, float], seconds: float,
    device: torch.device,
) -> list[dict[str, Any]]:  # fmt: skip
    """The lines to append for what an evaluation found."""
    where = {**provenance(device), "version": code_version()}
    shared = {
        "level": level, "samples": protocol.samples, "reduced": protocol.steps < PUBLISHED.steps,
        "steps": protocol.steps, "protocol": protocol.digest(), "changes": protocol.changes(),
        "side_by_side": len(losses), "seconds": round(seconds, 1), **where,
    }  # fmt: skip
    lines = []
    for row in found:
        job = row["job"]
        key = {name: getattr(job, name) for name in KEY}
        result = {"test_positions": row["test_positions"], "length": row["length"]}
        result |= {name: round(row[name], 5) for name in ("accuracy", "exact")}
        loss = losses[job]  # of a training that went astray, NaN or infinite
        result["train_loss"] = round(loss, 5) if math.isfinite(loss) else None
        lines.append(key | result | shared)
    return lines


def code_version() -> str:
    """The git commit of a checkout, with a + if files of the package differ from it; else the package's version."""
    import rope_lessons

    folder = Path(rope_lessons.__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != folder.parent:
            return rope_lessons.__version__  # installed somewhere below another project's checkout
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return rope_lessons.__version__
