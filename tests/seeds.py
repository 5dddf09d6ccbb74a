"""What every seed of the scoreboard has right on its first rung, or tuned, from its stored bits; and by how much a row
is ahead."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from experiments import scoreboard_hits as hits
from experiments import scoreboard_table as table
from rope_lessons.scoreboard import live
from rope_lessons.scoreboard.scoring import Settings
from rope_lessons.stored import results

STORED = Path(__file__).parents[1] / "experiments" / "stored" / "scoreboard"


@cache
def questions() -> dict[tuple[str, int], Any]:
    """What each metric asks of the test text, by its name and a length."""
    return table.questions(live.windows(), Settings(), Settings().lengths)


@cache
def bits(row: str, rung: str = "small") -> dict[int, Any]:
    """The bits of a row by the number of the seed, of all seeds that were tested with it."""
    training = results("scoreboard")["rows"].where(rung=rung, row=row)["training"][0]
    paths = (STORED / rung / training).glob("seed-*.npz")
    seeds = {int(path.stem.removeprefix("seed-")): hits.read(path)[1] for path in paths}
    return {seed: seeds[seed][row] for seed in sorted(seeds) if row in seeds[seed]}


def right(row: str, metric: str, length: int = 512) -> dict[int, float]:
    """Percent of each seed."""
    counted = {seed: table.sums(found, questions()[metric, length]) for seed, found in bits(row).items()}
    return {seed: 100 * float(hit.sum() / of.sum()) for seed, (hit, of) in counted.items()}


def ahead(
    row: str, other: str, metric: str, length: int = 512, rung: str = "small", other_rung: str | None = None
) -> tuple[float, float, float]:
    """Points by which a row is ahead, and their 95 % interval, to one decimal: paired, on the seeds that both have."""
    one, two = bits(row, rung), bits(other, other_rung or rung)
    both = [seed for seed in one if seed in two]
    found = table.measured([one[k] for k in both], questions()[metric, length], [two[k] for k in both])
    mean, low, high = (round(100 * value, 1) for value in found)
    return mean, low, high
