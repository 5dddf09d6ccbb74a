"""The tables that the articles published, beside ours. Chapter 12."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from rope_lessons.lab import training
from rope_lessons.lab.rows import hwfa_window
from rope_lessons.lab.table.lines import Line, pick
from rope_lessons.lab.table.scoring import SETS
from rope_lessons.stored import DATA

PUBLISHED = DATA / "published.csv"  # its first lines say where the numbers come from


class Published(NamedTuple):
    """A row of the sources' tables: accuracies in percent, and the pattern of the row of ours that stands for it.

    ``trained`` is the accuracy at 512 tokens; ``repeated`` and ``natural`` are those at 4096. ``window`` is the
    article's, of 512 tokens; 0 where the row has none.
    """

    name: str
    article: int
    trained: float
    repeated: float
    natural: float
    pattern: str
    window: int

    def ours(self, train_length: int, factor: float, layers: int) -> str:
        """The name of our row. A window is the same share of the training length."""
        return self.pattern.format(
            w=self.window * train_length // 512,
            base=f"{10_000 * factor:g}",
            hwfa=hwfa_window(train_length, layers),
        )


@cache
def published_rows() -> tuple[Published, ...]:
    """The tables of Su's articles 9 to 15, from 512 to 4096 tokens, each row once.

    The model has about 100 million parameters. The articles print one number each, and neither data nor code was
    published. Two rows of article 15, Baseline and Baseline-logn with NTK, are left out: the article does not say with
    which factor, and they equal no row of articles 10 and 11. HWFA2 stands for our rows without log n in the full
    layers; article 14 does not say whether it has it there.

    Source: spaces.ac.cn/archives/9603, 9675, 9706, 9708, 9728, 9731, 9859. Chapter 12.

    >>> rows = {row.name: row for row in published_rows()}
    >>> rows["ReRoPE-w256"].ours(64, 8.0, 4)
    'rerope-w32'
    """
    with PUBLISHED.open(newline="", encoding="utf8") as file:
        table = csv.DictReader(line for line in file if not line.startswith("#"))
        return tuple(map(_row, table))


def _row(values: dict[str, str]) -> Published:
    trained, repeated, natural = (float(values[name]) for name in ("trained", "repeated", "natural"))
    window = int(values["window"] or 0)
    return Published(values["name"], int(values["article"]), trained, repeated, natural, values["pattern"], window)


def beside_published(lines: Iterable[Line], kind: str, times: int = 8) -> list[tuple[str, float, float]]:
    """Our row, the published accuracy and ours, in percent, for every published row.

    Args:
        lines: of a table of ``gau-0.3m``.
        kind: ``"not repeated"`` or ``"repeated"``.
        times: length as a multiple of the training length.
    """
    lines, recipe = list(lines), training.CONFIGS["gau-0.3m"]
    found = []
    for row in published_rows():
        name = row.ours(recipe.train_length, recipe.factor, recipe.config.layers)
        theirs = row.natural if kind == SETS[0] else row.repeated
        found.append((name, theirs, 100 * pick(lines, name, kind, times).value))
    return found
