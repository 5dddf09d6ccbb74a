"""Differences of two rows, document by document. Chapter 12."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rope_lessons.lab.rows import OWN
from rope_lessons.lab.table.counts import read_counts
from rope_lessons.lab.table.finished import Trained, rows_of
from rope_lessons.lab.table.intervals import interval
from rope_lessons.lab.table.scoring import SETS, Evaluation
from rope_lessons.lab.text import Corpus
from rope_lessons.stored import DATA, read_results

DOCUMENTS = DATA / "table_documents.json"


def document_hits(models: Sequence[Trained], corpus: Corpus, tests: Evaluation, times: int = 8) -> dict[str, Any]:
    """How many tokens of each document every row has right, from what ``lab.table`` has counted.

    Args:
        models: trainings, of one recipe but for row and seed.
        corpus, tests: that they were tested with.
        times: length as a multiple of the training length.

    Returns:
        what :func:`difference` reads: ``{"tokens": [...], "hits": {row: {set: [[...], ...]}}}``, the tokens of each
        document and the hits by seed and document.

    Raises:
        TableError: something is not counted yet.
    """
    hits: dict[str, dict[str, list[list[int]]]] = {}
    tokens: list[int] = []
    for model in sorted(models, key=lambda model: model.recipe.seed):
        for row in rows_of(model.recipe):
            if row.name == OWN:
                continue
            counts = read_counts(model, row, corpus, tests)
            tokens = [int(value) for value in counts[f"{times} {SETS[0]} tokens"].sum(axis=1)]
            for kind in SETS:
                of_document = [int(value) for value in counts[f"{times} {kind} hits"].sum(axis=1)]
                hits.setdefault(row.name, {}).setdefault(kind, []).append(of_document)
    return {"times": times, "tokens": tokens, "hits": hits}


def difference(
    first: str, second: str, kind: str = SETS[0], stored: Mapping[str, Any] | None = None
) -> tuple[float, float, float]:
    """How much more of the tokens one row has right than another at 8 times the training length, with a 95 % interval.

    Both rows are tested on the same documents, and the interval draws documents and seeds for both together. So what
    makes a document hard for every row drops out, and the interval is much narrower than those of the two accuracies.

    Args:
        first, second: names of rows.
        kind: ``"not repeated"`` or ``"repeated"``.
        stored: as :func:`document_hits` gives it; by default what travels with the package.

    Returns:
        difference, lower end, upper end, as shares.

    Raises:
        KeyError: an unknown row or set.

    Chapter 12.
    """
    stored = read_results(DOCUMENTS) if stored is None else stored
    sums = np.subtract(stored["hits"][first][kind], stored["hits"][second][kind]).astype(float)
    return interval(sums, np.array(stored["tokens"], dtype=float))
