"""The table of the scoreboard: shares and losses with their intervals, from the hits of every model. Chapter 12."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from torch import Tensor

from rope_lessons.lab.text import periods
from rope_lessons.scoreboard.intervals import Interval, interval
from rope_lessons.scoreboard.metrics import far_copies
from rope_lessons.scoreboard.scoring import Hits, Settings


@dataclass(frozen=True)
class Asked:
    """What a metric asks for at one length.

    Args:
        hits: the names of the hits that are counted together.
        mask: which of them, ``(documents, …)``; all if None.
    """

    hits: tuple[str, ...]
    mask: np.ndarray | None = None


def questions(windows: Tensor, tests: Settings, lengths: Sequence[int]) -> dict[tuple[str, int], Asked]:
    """What every metric asks for, by metric and length.

    Args:
        windows: the test text.
        tests: that it belongs to.
        lengths: at which was tested.
    """
    copies = far_copies(windows, tests.home)[0].numpy()
    found: dict[tuple[str, int], Asked] = {}
    for length in lengths:
        found["natural", length] = Asked((f"natural {length}",))
        found["far copies", length] = Asked((f"natural {length}",), copies)
        found["repeated", length] = Asked((f"repeated {length}",), _again(len(windows), length, tests))
        found["needle", length] = Asked(tuple(f"needle {length} {depth:g}" for depth in tests.depths))
        for depth in tests.depths:
            found[f"needle {depth:g}", length] = Asked((f"needle {length} {depth:g}",))
        found["loss", length] = Asked((f"loss {length}",))
    return found


def _again(windows: int, length: int, tests: Settings) -> np.ndarray:
    """Of repeated text, the bytes that were there before: all but the first period of every piece."""
    pieces = windows * tests.lengths[-1] // length
    period = np.resize(periods(length, tests.home), pieces)  # the pieces take turns
    places = np.arange(1, length + 1)  # of the predicted bytes
    return (places >= period[:, None]).reshape(windows, -1)


def sums(found: Hits, asked: Asked) -> tuple[np.ndarray, np.ndarray]:
    """Of one seed: hits or losses by document, and of how many bytes they are the sum."""
    values = np.stack([found[name] for name in asked.hits], axis=-1).astype(float)  # (documents, …, parts)
    mask = np.ones(values.shape, bool) if asked.mask is None else np.broadcast_to(asked.mask[..., None], values.shape)
    beyond = tuple(range(1, values.ndim))
    return (values * mask).sum(axis=beyond), mask.sum(axis=beyond).astype(float)


def measured(seeds: Sequence[Hits], asked: Asked, against: Sequence[Hits] | None = None) -> Interval:
    """A mean with its interval; of the difference to another row, where there is one.

    Args:
        seeds: the hits of a row, one for each seed.
        asked: what is counted.
        against: those of the other row, for the same seeds.

    Raises:
        ValueError: another number of seeds.
    """
    if against is not None and len(against) != len(seeds):
        raise ValueError(f"against must have as many seeds, {len(seeds)}, got {len(against)}")
    own = [sums(found, asked) for found in seeds]
    total = np.stack([values for values, _ in own])
    if against is not None:
        total = total - np.stack([sums(found, asked)[0] for found in against])
    return interval(total, own[0][1])


Measured = Mapping[int, Mapping[str, Hits]]  # of a training: by seed and row


def lines(
    trainings: Mapping[str, Measured], windows: Tensor, tests: Settings, control: str = "-window"
) -> Iterator[dict[str, Any]]:
    """The table, a line for each row, metric and length: the mean with its interval, and by how much the row is ahead
    of its own training tested with a plain window. One line more is the tax: by how much plain RoPE with the same seeds
    is ahead of the row at home, over all bytes.

    Args:
        trainings: by name.
        windows: the test text.
        tests: that it belongs to.
        control: how the name of a training's control ends.
    """
    asked_at = cache(partial(questions, windows, tests))  # most rows are tested at the same lengths
    rope = trainings.get("rope", {})
    for training, of_seed in trainings.items():
        names = dict.fromkeys(name for found in of_seed.values() for name in found)
        for row in names:
            seeds = sorted(seed for seed, found in of_seed.items() if row in found)
            own = [of_seed[seed][row] for seed in seeds]
            about = {"row": row, "training": training, "seeds": len(seeds)}
            lengths = tuple(length for length in tests.lengths if f"natural {length}" in own[0])
            there = all(training + control in of_seed[seed] for seed in seeds) and row != training + control
            plain = [of_seed[seed][training + control] for seed in seeds] if there else None
            for (metric, length), asked in asked_at(lengths).items():
                mean = measured(own, asked)
                # A learned table goes no farther than training, and its control neither.
                both = plain is not None and all(name in found for found in plain for name in asked.hits)
                ahead = measured(own, asked, plain) if both else None
                yield {**about, "metric": metric, "length": length, **_rounded("", mean), **_rounded("ahead_", ahead)}
            if tests.home in lengths and (paid := _tax(of_seed, row, rope, asked_at(lengths)["natural", tests.home])):
                yield {**about, "metric": "tax", "length": tests.home, **_rounded("", paid), **_rounded("ahead_", None)}


def each_seed(trainings: Mapping[str, Measured], windows: Tensor, tests: Settings) -> Iterator[dict[str, Any]]:
    """The lines of every seed alone, in the metrics that the book compares; intervals are over documents.

    Args:
        trainings, windows, tests: as for :func:`lines`.
    """
    for seed in sorted({seed for of_seed in trainings.values() for seed in of_seed}):
        alone = {name: {seed: of_seed[seed]} for name, of_seed in trainings.items() if seed in of_seed}
        for line in lines(alone, windows, tests):
            if line["metric"] in ("natural", "far copies", "needle"):
                yield {"seed": seed, **{name: value for name, value in line.items() if name != "seeds"}}


def needles_by_seed(trainings: Mapping[str, Measured], tests: Settings) -> Iterator[dict[str, Any]]:
    """The share of needles that every seed of a row finds at the longest length, over all places; rows that do not go
    so far have no line."""
    names = [f"needle {tests.lengths[-1]} {depth:g}" for depth in tests.depths]
    for training, of_seed in trainings.items():
        for seed, found in sorted(of_seed.items()):
            for row, hits in found.items():
                if names[0] in hits:
                    share = np.mean([hits[name].mean() for name in names])
                    yield {"row": row, "training": training, "seed": seed, "mean": round(float(share), 5)}


def _tax(of_seed: Measured, row: str, rope: Measured, asked: Asked) -> Interval | None:
    """By how much plain RoPE is ahead at home, over the seeds that both have; None without one."""
    seeds = [seed for seed in sorted(of_seed) if row in of_seed[seed] and "rope" in rope.get(seed, {})]
    if not seeds:
        return None
    return measured([rope[seed]["rope"] for seed in seeds], asked, [of_seed[seed][row] for seed in seeds])


def _rounded(prefix: str, found: Interval | None) -> dict[str, float | None]:
    return {
        prefix + name: None if found is None else round(value, 5)
        for name, value in zip(Interval._fields, found or Interval(0, 0, 0), strict=True)
    }
