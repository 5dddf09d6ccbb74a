"""A way to choose frequencies that is not in the package: one function and one row, put into the table before anything
reads it. ``pytest -p tests.toy_kind`` runs tests with it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor


def toy_frequencies(
    dim: int, squeeze: float, length: int, train_length: int, base: float = 10_000.0, *, device: Any = None
) -> Tensor:
    """PI, but only past the training length."""
    from rope_lessons.sinusoidal import rope_frequencies

    return rope_frequencies(dim, base, device=device) / (squeeze if length > train_length else 1)


def pytest_configure() -> None:
    """Importing a part of the package imports the package, which reads the table: an empty one stands in for it."""
    assert "rope_lessons" not in sys.modules
    empty = ModuleType("rope_lessons")
    empty.__path__ = [str(Path(__file__).parents[1] / "rope_lessons")]
    sys.modules["rope_lessons"] = empty
    from rope_lessons.kinds import KINDS, TRAINED, Kind, RopeType

    del sys.modules["rope_lessons"]
    KINDS["toy"] = Kind(
        toy_frequencies,
        "The Toy",
        lambda dim, factor, train_length: {"squeeze": factor, "train_length": train_length},
        lambda squeeze: 1 + squeeze / 8,
        RopeType("toyish", ("squeeze", TRAINED), ("attention_factor",)),
    )
