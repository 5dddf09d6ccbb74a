"""The results of the benchmark: one CSV, a row for each job, way to test and test length, with where it comes from."""

from __future__ import annotations

import csv
import io
import os
import platform
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

from rope_lessons.chomsky.grid import Job
from rope_lessons.chomsky.training import PUBLISHED, Protocol

PACKAGED = Path(__file__).parent.parent / "checkpoints" / "chomsky_reduced.csv"
KEY = ("task", "model", "positions", "variant", "seed", "learning_rate")  # a job, in the columns of the file
COLUMNS = (
    *KEY, "level", "test_positions", "length", "accuracy", "samples", "reduced", "steps", "train_loss", "protocol",
    "changes", "side_by_side", "seconds", "date", "version", "torch", "python", "hardware",
)  # fmt: skip


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


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[bool]:
    """Hold a lock file; False in place of waiting if another process has it. The system frees it when a process ends,
    however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            if sys.platform == "win32":
                msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            yield False
            return
        yield True  # closing the file gives the lock back


def append(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to a file, all or none: one write, by one process at a time. A new file gets its header first."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(f".{path.name}.lock")):
        content = path.read_bytes() if path.exists() else b""
        if not content:
            writer.writeheader()
        writer.writerows(rows)
        whole = content[: content.rfind(b"\n") + 1]  # a machine that died in the middle of a line leaves a part of it
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        unfinished.write_bytes(whole + text.getvalue().encode())
        unfinished.replace(path)


def read(path: Path | str | None = None) -> list[Row]:
    """The rows of a results file; by default those of the reduced grid that travel with the package.

    Args:
        path: of a CSV that ``python -m rope_lessons.chomsky`` wrote.

    Returns:
        list of :class:`Row`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file with other columns.

    Chapter 11 shows them.
    """
    rows = []
    for line in lines(PACKAGED if path is None else Path(path)):
        values = {name: line[name] for name in Row._fields}
        numbers = {
            "seed": int(line["seed"]), "learning_rate": float(line["learning_rate"]), "length": int(line["length"]),
            "accuracy": float(line["accuracy"]), "reduced": line["reduced"] == "True",
        }  # fmt: skip
        rows.append(Row(**(values | numbers)))  # type: ignore[arg-type]
    return rows


def lines(path: Path) -> list[dict[str, str]]:
    """The lines of a results file with all their columns, as text."""
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        found = list(reader)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ValueError(f"{path} must have the columns {', '.join(COLUMNS)}, got {reader.fieldnames}")
    return found


def done(path: Path, protocol: Protocol) -> set[str]:
    """Names of the jobs that a file has the results of, under this protocol."""
    if not path.exists():
        return set()
    names = set()
    for line in lines(path):
        if line["protocol"] == protocol.digest():
            task, model, positions, variant, seed, rate = (line[name] for name in KEY)
            names.add(Job(task, model, positions, variant, int(seed), float(rate)).name)
    return names


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
    where = provenance(device)
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
        result |= {"accuracy": round(row["accuracy"], 5), "train_loss": round(losses[job], 5)}
        lines.append(key | result | shared)
    return lines


def provenance(device: torch.device) -> dict[str, str]:
    """When, with which code and on what a result was made."""
    if device.type == "cuda":
        hardware = torch.cuda.get_device_name(device)
    else:
        threads = torch.get_num_threads()
        hardware = f"{platform.machine()}, {threads} CPU thread{'s' if threads > 1 else ''}"
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%MZ"),
        "version": code_version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "hardware": hardware,
    }


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
