"""A step of the queue: what it does, with what, and what it finds."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

SCALES = ("full", "small", "tiny")  # for a card; for an hour of a CPU; for the tests
Row = dict[str, Any]

# Who may work at the same time. Times are measured on a quiet machine; several steps whose times do not count work side
# by side; a training has the card for itself; small models share it; and the cores of the processor train their own
# while the card trains.
LANES = ("quiet", "several", "card", "shared", "cores")


class OutOfTime(Exception):
    """The minutes are over in the middle of a step."""


@dataclass(frozen=True)
class Setting:
    """What all steps are done with.

    Args:
        device: where.
        scale: one of ``SCALES``.
        work: a folder for what does not leave the machine: checkpoints, prepared text.
        end: when to stop, by ``time.time()``.
        commit: of the code, as it was given.
    """

    device: torch.device
    scale: str
    work: Path
    end: float
    commit: str | None = None

    @property
    def left(self) -> float:
        """Seconds."""
        return self.end - time.time()

    def check_time(self) -> None:
        """Called between two pieces of a step.

        Raises:
            OutOfTime: there is none left.
        """
        if self.left <= 0:
            raise OutOfTime

    def by_scale(self, full: Any, small: Any, tiny: Any) -> Any:
        """What belongs to the scale."""
        return {"full": full, "small": small, "tiny": tiny}[self.scale]


@dataclass
class Found:
    """What a step found.

    Args:
        tables: rows, by the name of their table.
        about: what else is to be said: settings, seeds.
        files: what is no JSON, by name.
        wrong: what is not as it must be. A step with an entry here has failed, and what it found is kept.
    """

    tables: dict[str, list[Row]] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Step:
    """A piece of the queue.

    Args:
        name: tells it from all others; what stands before the first slash is the file that its result is in.
        minutes: about how long it takes on an H200.
        run: does it. It can be sent to another process.
        needs: packages beyond PyTorch and NumPy.
        lane: one of ``LANES``.
        pauses: it may be begun where its minutes are not left, since it goes on where it stopped.
    """

    name: str
    minutes: float
    run: Callable[[Setting], Found]
    needs: Sequence[str] = ()
    lane: str = "quiet"
    pauses: bool = False

    @property
    def group(self) -> str:
        return self.name.partition("/")[0]

    def missing(self) -> list[str]:
        """The packages that are not here."""
        return absent(self.needs)


def absent(packages: Sequence[str]) -> list[str]:
    """Those that cannot be imported."""
    return [name for name in packages if importlib.util.find_spec(name) is None]


def could_not(reasons: Mapping[str, str]) -> list[Row]:
    """The table of what could not be compared with."""
    return [{"what": what, "why": why} for what, why in reasons.items()]
