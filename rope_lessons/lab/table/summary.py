"""From counts to the lines of the table: means, intervals, the tax, and where they come from. Chapter 12."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rope_lessons.lab import sizes
from rope_lessons.lab.rows import OWN, TableRow
from rope_lessons.lab.table.counts import read_counts
from rope_lessons.lab.table.finished import TableError, Trained, about_of, rows_of
from rope_lessons.lab.table.intervals import interval
from rope_lessons.lab.table.jobs import check_rows
from rope_lessons.lab.table.scoring import SETS, Counts, Evaluation, factors_of
from rope_lessons.lab.text import Corpus
from rope_lessons.lab.training import Recipe
from rope_lessons.stored import write_results


def records(
    models: Sequence[Trained],
    corpus: Corpus,
    tests: Evaluation,
    wanted: Sequence[str] | None = None,
    script: str = "python -m rope_lessons.lab table",
) -> Iterator[dict[str, Any]]:
    """The lines of the table, from what :func:`~rope_lessons.lab.table.jobs.count_all` has counted.

    The metrics are ``accuracy`` and ``loss`` in nats per token; ``found``, the share of passkeys with all digits right;
    and ``tax``, what a method costs inside the training length: the accuracy with the plan of training less that with
    the plan of test. ``along`` has the means along the positions, a sixteenth of the length at a time, and for passkeys
    along the depths.

    Args:
        models, corpus, tests, wanted: as for :func:`~rope_lessons.lab.table.jobs.count_all`.
        script: what made the table, for its provenance.

    Raises:
        TableError: something is not counted yet, or damaged; a row that none of the models serves.
    """
    check_rows(models, wanted)
    groups: dict[Recipe, list[Trained]] = {}
    for model in models:
        groups.setdefault(model.group, []).append(model)
    for group, unsorted in groups.items():
        members = sorted(unsorted, key=lambda model: model.recipe.seed)
        about = {"script": script, **_provenance(group, members, corpus, tests)}
        own: list[Counts] = []
        for row in rows_of(group, wanted):
            counts = [read_counts(model, row, corpus, tests) for model in members]
            own = counts if row.name == OWN else own
            for values in _values(row, counts, own, group.train_length, tests):
                yield {"size": group.size, "row": row.name, "training": group.scheme, **values, **about}


def _values(
    row: TableRow, counts: Sequence[Counts], own: Sequence[Counts], train_length: int, tests: Evaluation
) -> Iterator[dict[str, Any]]:
    """The lines of one row: where, what, mean and interval, and the means along the positions or the depths."""

    def line(where: tuple[str, int, str], sums: np.ndarray, number: np.ndarray) -> dict[str, Any]:
        """From sums ``(seeds, documents, parts)`` and how many each is of, ``(documents, parts)``."""
        kind, factor, metric = where
        value, low, high = interval(sums.sum(axis=2), number.sum(axis=1))
        parts = sums.sum(axis=(0, 1)) / (len(sums) * number.sum(axis=0))
        return {
            "set": kind, "length": factor * train_length, "times": factor, "metric": metric,
            "value": round(value, 6), "low": round(low, 6), "high": round(high, 6),
            "along": [round(part, 4) for part in parts.tolist()],
            "seeds": len(sums), "documents": len(number), "predictions": int(number.sum()),
        }  # fmt: skip

    def all_of(name: str, of: Sequence[Counts] = counts) -> np.ndarray:
        return np.stack([one[name] for one in of])  # (seeds, documents, parts)

    for factor in factors_of(row, tests):
        for kind in SETS:
            tokens = counts[0][f"{factor} {kind} tokens"]
            yield line((kind, factor, "accuracy"), all_of(f"{factor} {kind} hits"), tokens)
            yield line((kind, factor, "loss"), all_of(f"{factor} {kind} losses"), tokens)
        names = [f"{factor} depth {depth:g}" for depth in tests.depths]
        if names:
            found = np.concatenate([all_of(f"{name} found") for name in names], axis=2)
            asked = np.concatenate([counts[0][f"{name} tokens"] for name in names], axis=1)
            yield line(("passkey", factor, "found"), found, asked)
    if row.name != OWN:
        kind = f"1 {SETS[0]}"
        paid = all_of(f"{kind} hits", own) - all_of(f"{kind} hits")
        yield line((SETS[0], 1, "tax"), paid, counts[0][f"{kind} tokens"])


def _provenance(group: Recipe, members: Sequence[Trained], corpus: Corpus, tests: Evaluation) -> dict[str, Any]:
    recipe = {name: value for name, value in asdict(group).items() if name not in ("size", "scheme", "seed")}
    tested = [_tested(model) for model in members]
    return {
        "parameters": sizes.parameters(group.config),
        **recipe,
        "windows": tests.windows,
        "depths": " ".join(f"{depth:g}" for depth in tests.depths),
        "seed_list": " ".join(str(model.recipe.seed) for model in members),
        "checkpoints": " ".join(model.sha256[:12] for model in members),
        "corpus": corpus.about["name"],
        "corpus_sha256": corpus.about["sha256"],
        **{name: " / ".join(sorted({where[name] for where in tested})) for name in tested[0]},  # of several machines
    }


def _tested(model: Trained) -> dict[str, str]:
    try:
        where: dict[str, str] = about_of(model.folder)["tested"]
    except FileNotFoundError as error:
        raise TableError(f"{model.folder} is not tested yet") from error
    except ValueError as error:
        raise TableError(f"{error}. Test {model.folder} again") from error
    return where


def write_table(lines: Iterable[Mapping[str, Any]], path: Path) -> int:
    """Write the table, for :func:`~rope_lessons.lab.table.lines.read_table`; the number of its lines."""
    found = list(lines)
    if not found:
        raise TableError("there is no line to write: no row of the table is among those that were tested")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_results(path, {}, lines=found)
    return len(found)
