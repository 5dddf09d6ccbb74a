"""How the models of the scoreboard are trained. Chapter 12."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from rope_lessons._checks import check_share
from rope_lessons.lab import training
from rope_lessons.lab.rows import TableRow
from rope_lessons.lab.sizes import SIZES
from rope_lessons.scoreboard import rows
from rope_lessons.scoreboard.metrics import with_needles

HELD_OUT = 2  # files in twenty: test text, and text to choose settings on


@dataclass(frozen=True)
class Recipe(training.Recipe):
    """A training for the scoreboard. See :class:`rope_lessons.lab.training.Recipe` for what both share.

    Args:
        home: the length that the methods of the rows are set for; that of the training where it is no control.
        needles: share of the windows that hold a needle and the question for it.
        tuned: whether the plan of the test is trained, as when a trained model is tuned for a method.
        start: what the weights are before the first step: the SHA-256 of a checkpoint; a draw of the seed if empty.

    Raises:
        TypeError, ValueError: as there; a share that is none.

    Chapter 12.

    >>> RUNGS["small"].train_length, RUNGS["small-at-512"].train_length
    (64, 512)
    """

    home: int = 64
    needles: float = 0.0
    tuned: bool = False
    start: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("needles", self.needles)

    @property
    def rows(self) -> dict[str, TableRow]:
        size = SIZES[self.size]
        found = rows.rows(size.layers, size.head_dim, self.home, self.factor)
        return {name: rows.as_tuned(row) for name, row in found.items()} if self.tuned else found

    def windows(self, text: np.ndarray, step: int, rows: slice = slice(None)) -> Tensor:
        windows = super().windows(text, step)
        # Another stream of random numbers than that of the windows, from the same seed and step.
        random = np.random.Generator(np.random.Philox(key=self.seed + 2**65, counter=[0, 0, 0, step]))
        return with_needles(windows, self.needles, random)[rows]


# Settings chosen on validation text: the cheapest with which RoPE and RoPE with log n find their needles at home for
# every seed that was tried. With 16 windows in a step, or one question in a window, some seeds never learn to copy.
_SMALL = Recipe(
    "plain-0.3m",
    train_length=64,
    batch=64,
    steps=2000,
    learning_rate=4e-3,
    warmup=100,
    copies=0.5,
    needles=0.5,
)
# Shares of the bytes of the training that a method may be tuned with, in percent.
SHARES = (10.0, 1.0, 0.1)


def tuned(whole: Recipe, length: int, percent: float) -> Recipe:
    """A trained model is trained on at a longer length, with the plan of the test: as many bytes in a step, and a share
    of the steps. The learning rate of each method is chosen apart; that of the recipe says nothing.

    >>> tuned(RUNGS["small"], 512, percent=1).steps * 100 == RUNGS["small"].steps
    True
    """
    steps = max(1, round(whole.steps * percent / 100))
    batch = max(1, whole.batch * whole.train_length // length)
    return replace(whole, train_length=length, batch=batch, steps=steps, warmup=steps // 10, tuned=True)


RUNGS: dict[str, Recipe] = {
    "small": _SMALL,
    # Upper bounds: as many bytes, read in windows of the test length.
    "small-at-512": replace(_SMALL, train_length=512, batch=8),
    **{f"small-tuned-{percent:g}": tuned(_SMALL, 512, percent) for percent in SHARES},
    # A larger model and longer texts, 8 MB of it. Twice as wide: half the rate, as wider models want smaller steps.
    "second": replace(_SMALL, size="plain-2m", home=256, train_length=256, batch=16, steps=1950, learning_rate=2e-3),
}
