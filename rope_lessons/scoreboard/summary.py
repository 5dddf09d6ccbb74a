"""What chapters read from the table of the scoreboard: their own rows, orders that are compared, models that are tuned.

The table is ``results("scoreboard")["rows"]``. Chapter 12.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rope_lessons._checks import check_choice
from rope_lessons.lab.table.published import published_rows
from rope_lessons.scoreboard.intervals import Interval
from rope_lessons.scoreboard.recipe import RUNGS, SHARES
from rope_lessons.scoreboard.rows import TUNED
from rope_lessons.stored import Table

# The rows of each lesson, without the window in their names and without what is added to them: log n, the control.
CHAPTERS: dict[str, tuple[str, ...]] = {
    "01": ("rope", "nope", "sinusoidal", "sinusoidal-shifted", "sinusoidal-pi", "learned", "learned-pi"),
    "02": ("rope", "nope", "nope-every-fourth", "partial-rotary", "rope-per-head",
           "rope-b100", "rope-b1000", "rope-b100000", "rope-b1e+06"),
    "03": ("rope", "pi", "ntk-old", "ntk-fixed", "ntk-aware", "dynamic-ntk", "pi-x2", "pi-x4", "ntk-aware-x2",
           "ntk-aware-x4"),
    "04": ("rope", "ntk-fixed", "ntk-mixed"),
    "05": ("rope", "ntk-by-parts", "by-parts-half", "by-parts-half-factor", "yarn", "yarn-without-factor", "llama3",
           "longrope", "longrope-without-factor", "slowed-below-a-quarter", "slowed-from-a-quarter", "slowed-open",
           "slowed-closed", "llama3-x2", "llama3-x4", "yarn-x2", "yarn-x4"),
    "06": ("rope", "ntk-fixed", "ntk-mixed", "yarn", "rerope"),
    "07": ("rope", "lambda", "streaming", "lm-infinite", "window-8", "alibi", "alibi-random", "hwfa"),
    "08": ("rope", "rerope", "leaky-rerope", "self-extend"),
    "09": ("rope", "rerope", "invleaky", "invleaky-moving", "invleaky-same-residue", "invleaky-slopes",
           "invleaky-quarter-gaps", "invleaky-four-slopes", "invleaky-r8", "invleaky-r11"),
    "10": ("rope", "random-positions", "random-positions-ordinary", "equal-mean", "equal-mean-pi",
           "equal-mean-rerope", "skip-positions"),
    "12": ("rope", "hwfa", "hwfa2"),
    "14": ("rope", "alibi", "t5", "kerple", "sandwich", "fire", "shaw", "xpos", "p-rope", "partial-rotary", "nope",
           "nope-every-fourth", "rope-per-head", "hwfa"),
}  # fmt: skip


def plain_name(row: str) -> str:
    """A row's name without its window and without what is added to it.

    >>> plain_name("rerope-w32-logn-test"), plain_name("rope-window")
    ('rerope', 'rope')
    """
    return re.sub("(-logn-test|-logn)?(-window)?$", "", re.sub(r"-w\d+", "", row))


def stored_rows(lines: Table, names: Mapping[str, str], rung: str = "small") -> dict[str, str]:
    """Those of some rows that are stored, in their order: what a lesson shows of trainings that are still to come.

    Args:
        lines: the table of the scoreboard.
        names: of the rows; what each is called.
        rung: of the scoreboard.

    Raises:
        ValueError: a rung that is not in the table.

    Chapter 14.
    """
    there = set(lines.where(rung=rung)["row"])
    return {row: name for row, name in names.items() if row in there}


def find(lines: Table, row: str, metric: str, length: int) -> Interval | None:
    """A line of one rung: its mean and interval; None if there is none."""
    for line in lines:
        if (line["row"], line["metric"], line["length"]) == (row, metric, length):
            return Interval(line["mean"], line["low"], line["high"])
    return None


# --- orders ----------------------------------------------------------------------------------------------------------


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1, the largest value; equal values share the mean of theirs.

    >>> ranks([0.2, 0.5, 0.2])
    [2.5, 1.0, 2.5]
    """
    return [1 + sum(b > a for b in values) + (sum(b == a for b in values) - 1) / 2 for a in values]


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's: the correlation of the ranks.

    Args:
        a, b: values of the same things, not all equal.
    """
    x, y = ([rank - (len(a) + 1) / 2 for rank in ranks(values)] for values in (a, b))
    product = sum(i * j for i, j in zip(x, y, strict=True))
    return product / (sum(i * i for i in x) * sum(j * j for j in y)) ** 0.5


class Pair(NamedTuple):
    """A row in two tables: a percentage or a share in each."""

    row: str
    there: float
    here: float


class Agreement(NamedTuple):
    """How two orders agree: over all rows, and over those that are in the better half there."""

    rows: int
    all: float
    better_half: float


def agreement(pairs: Sequence[Pair]) -> Agreement:
    """Rank correlations. What is bad in both tables makes them agree; the better half says whether the good ones do.

    Args:
        pairs: at least four rows.

    Raises:
        ValueError: fewer rows.

    Chapter 12.
    """
    if len(pairs) < 4:
        raise ValueError(f"pairs must be at least four rows, got {len(pairs)}")
    better = sorted(pairs, key=lambda pair: -pair.there)[: (len(pairs) + 1) // 2]
    whole, half = (rank_correlation([p.there for p in some], [p.here for p in some]) for some in (pairs, better))
    return Agreement(len(pairs), whole, half)


def on_two_rungs(lines: Table, metric: str, first: str = "second", second: str = "small") -> list[Pair]:
    """A metric of the rows that two rungs have, at the longest length of each. Windows are the same shares of the
    training length, so the names of rows are not the same.

    Args:
        lines: the table of the scoreboard.
        metric: of the lines.
        first, second: the rungs; of the first come the names, and what is ``there``.

    Raises:
        ValueError: a rung that is not in the table.

    Chapter 12.
    """
    there, here = lines.where(rung=first), lines.where(rung=second)
    (home, longest), (own_home, own_longest) = (_lengths(part) for part in (there, here))
    pairs = []
    for row in dict.fromkeys(there["row"]):
        same = re.sub(r"-w(\d+)", lambda window: f"-w{int(window[1]) * own_home // home}", row)
        a, b = find(there, row, metric, longest), find(here, same, metric, own_longest)
        if a is not None and b is not None:
            pairs.append(Pair(row, a.mean, b.mean))
    return pairs


def _lengths(lines: Table) -> tuple[int, int]:
    """The training length and the longest one."""
    return int(lines.min("length")), int(lines.max("length"))


def beside_published(lines: Table, metric: str, rung: str = "small") -> list[Pair]:
    """The rows that the articles published and that the scoreboard has too, at eight times the training length.

    Args:
        lines: the table of the scoreboard.
        metric: ``"natural"`` or ``"repeated"``.
        rung: of the scoreboard.

    Raises:
        ValueError: another metric; a rung that is not in the table.

    Chapter 12.
    """
    check_choice("metric", metric, ("natural", "repeated"))
    own, recipe = lines.where(rung=rung), RUNGS[rung]
    longest, pairs = _lengths(own)[1], []
    for row in published_rows():
        name = row.ours(recipe.home, recipe.factor, recipe.config.layers)
        # The scoreboard has one divisor of far distances, and one full layer: its names do not say which.
        name = re.sub(f"-k{2 * recipe.factor:g}(?=-)|-f1$", "", name)
        found = find(own, name, metric, longest)
        if found is not None:
            pairs.append(Pair(name, getattr(row, metric), 100 * found.mean))
    return pairs


# --- models that are tuned -------------------------------------------------------------------------------------------


def tuned_curves(
    lines: Table, metric: str, length: int, methods: Sequence[str] = TUNED
) -> dict[str, dict[float, Interval]]:
    """What tuning does for a method: the metric by the percentage of the pretraining bytes, from 0 on.

    Args:
        lines: the table of the scoreboard.
        metric, length: of the lines.
        methods: rows; those that were not tuned are left out.

    Returns:
        by row and percentage; ``0`` is the method at test only, on the same models.

    Chapter 12.
    """
    rungs = {0.0: "small", **{percent: f"small-tuned-{percent:g}" for percent in sorted(SHARES)}}
    there = {percent: lines.where(rung=rung) for percent, rung in rungs.items() if rung in lines["rung"]}
    curves: dict[str, dict[float, Interval]] = {}
    for method in methods:
        found = {percent: find(part, method, metric, length) for percent, part in there.items()}
        curve = {percent: mean for percent, mean in found.items() if mean is not None}
        if len(curve) > 1:
            curves[method] = curve
    return curves
