"""The search for LongRoPE's factors, on a loss that is known, and of a model to the end."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rope_lessons as rl
from experiments import longrope
from experiments.result import Result
from rope_lessons.kinds import KINDS
from rope_lessons.scoreboard import rows
from rope_lessons.scoreboard.recipe import RUNGS
from rope_lessons.stored import read_results

OWN = RUNGS["small"]
BEST = np.geomspace(1.0, 12.0, 16)


def distance(factors: longrope.Factors) -> float:
    return float(np.square(np.log(factors) - np.log(BEST)).mean())


def result(path: Path) -> Result:
    return Result(path, "longrope", {"dim": 32}, {"evaluations": {}, "searches": []})


def searched(path: Path, most: int = 300, loss: Any = distance) -> list[dict[str, Any]]:
    assert longrope.search("longrope", OWN, loss, result(path), most, math.inf)
    return list(read_results(path)["searches"])


def test_it_begins_with_what_is_known_and_ends_near_the_best(tmp_path: Path) -> None:
    found = searched(tmp_path / "x.json")
    known = list(longrope.beginnings(OWN))
    assert (1.0,) * 16 in known
    assert (8.0,) * 16 in known
    yarn = rl.scheme("yarn", dim=32, **KINDS["yarn"].extended(32, 8.0, 64)).frequencies  # type: ignore[call-overload]
    assert any(np.allclose(rl.rope_frequencies(32) / yarn(), factors, atol=1e-4) for factors in known)
    losses = [row["loss"] for row in found]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.3 * min(map(distance, known))


def test_factors_grow_within_their_bounds(tmp_path: Path) -> None:
    tried: list[longrope.Factors] = []

    def loss(factors: longrope.Factors) -> float:
        tried.append(factors)
        return distance(factors)

    searched(tmp_path / "x.json", loss=loss)
    values = np.array(tried)
    assert values.shape == (300, 16)
    assert (np.diff(values, axis=1) >= 0).all()
    assert values.min() >= 1
    assert values.max() <= 16


def test_an_interrupted_search_finds_the_same(tmp_path: Path) -> None:
    """Killed at any evaluation, however long after the last one that was written."""
    whole = searched(tmp_path / "whole.json", most=60)
    calls = 0

    def dying(factors: longrope.Factors) -> float:
        nonlocal calls
        calls += 1
        if calls in (1, 5, 33, 50):
            raise KeyboardInterrupt
        return distance(factors)

    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            searched(tmp_path / "parts.json", most=60, loss=dying)
    assert searched(tmp_path / "parts.json", most=60, loss=dying) == whole
    assert not longrope.search("longrope", OWN, distance, result(tmp_path / "parts.json"), 61, end=0.0)


def test_of_a_model_and_the_rows_of_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = ["--out", str(tmp_path), "--models", str(tmp_path / "models")]
    line = [*places, "--steps", "2", "--windows", "2", "--evaluations", "11"]
    assert longrope.main(line) == 0
    stored = read_results(tmp_path / "longrope.json")
    assert stored["evaluations"] == dict.fromkeys(longrope.SEARCHES, 11)
    monkeypatch.setattr(rows, "LONGROPE", tmp_path / "none.json")
    assert rows.searched(32, 64, 8.0) == {}
    monkeypatch.setattr(rows, "LONGROPE", tmp_path / "longrope.json")
    assert rows.searched(32, 128, 8.0) == {}
    found = rows.searched(32, 64, 8.0)
    assert set(found) == set(longrope.SEARCHES)
    table = rows.rows(3, 32, 64)  # of a size that no other test asks for: tables are kept
    for name, factors in found.items():
        own = longrope.row_of(name, OWN, factors)
        assert table[name].method.test[0] == own.method.test[0]
        assert table[name].training == table["rope"].training
        assert table[f"{name}-logn"].training == table["rope-logn"].training
    assert table["longrope"].method.test[0].rotary_scale == pytest.approx(1.5**0.5)
    assert table["longrope-without-factor"].method.test[0].rotary_scale == 1.0
    before = (tmp_path / "longrope.json").read_bytes()
    assert longrope.main(line) == 0
    assert (tmp_path / "longrope.json").read_bytes() == before
