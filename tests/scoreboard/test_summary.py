"""What is read from the table, on tables that are made up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from experiments import scoreboard_table as table
from experiments.scoreboard_jobs import SECOND
from rope_lessons.figures import scoreboard as figures
from rope_lessons.lab.table.published import published_rows
from rope_lessons.scoreboard import summary
from rope_lessons.scoreboard.recipe import RUNGS
from rope_lessons.scoreboard.scoring import Settings
from rope_lessons.scoreboard.summary import Pair
from rope_lessons.stored import Table


def line(row: str, metric: str, length: int, mean: float, rung: str = "small") -> dict[str, Any]:
    found = {"rung": rung, "row": row, "metric": metric, "length": length}
    return {**found, "seeds": 5, "mean": mean, "low": mean - 0.01, "high": mean + 0.02}


def test_every_row_belongs_to_a_lesson() -> None:
    """And every name that a lesson asks for is one of a row."""
    names = {summary.plain_name(row) for row in RUNGS["small"].rows}
    taught = {name for chapter in summary.CHAPTERS.values() for name in chapter}
    assert names == taught


def test_the_tax_is_what_plain_rope_has_more_at_home() -> None:
    """Paired by seed and document: a difference that is the same everywhere has no interval."""
    tests, random = Settings(home=32, lengths=(32, 64), windows=3, depths=(1.0,)), np.random.default_rng(0)
    text = torch.randint(97, 123, (3, 65))
    text[:, 50:62] = text[:, :12]  # something to copy from far

    def hits() -> dict[str, np.ndarray]:
        natural = random.random((3, 64)) < 0.5
        natural[:, :8] = True
        found = {f"{kind} {length}": natural for kind in ("natural", "repeated") for length in (32, 64)}
        needles = {f"needle {length} 1": np.ones(3, bool) for length in (32, 64)}
        return {**found, **needles, **{f"loss {length}": np.ones(3) for length in (32, 64)}}

    rope = {seed: {"rope": hits()} for seed in (0, 1, 2)}
    other = {}
    for seed in (0, 1):  # wrong in 8 bytes of 64 in which plain RoPE is right
        fewer = rope[seed]["rope"]["natural 32"].copy()
        fewer[:, :8] = False
        other[seed] = {"alibi": {**rope[seed]["rope"], "natural 32": fewer}}
    found = list(table.lines({"rope": rope, "alibi": other}, text, tests))
    taxes = {row["row"]: row for row in found if row["metric"] == "tax"}
    assert taxes["rope"]["mean"] == 0
    assert taxes["alibi"]["mean"] == taxes["alibi"]["low"] == taxes["alibi"]["high"] == 0.125
    assert taxes["alibi"]["length"] == 32
    # A control that goes no farther than training says nothing of what is beyond it.
    near = {name: found for name, found in rope[0]["rope"].items() if " 64" not in name}
    learned = {0: {"learned-pi": rope[0]["rope"], "learned-window": near}}
    found = list(table.lines({"learned": learned}, text, tests))
    ahead = {(row["metric"], row["length"]): row["ahead_mean"] for row in found if row["row"] == "learned-pi"}
    assert (ahead["natural", 32], ahead["natural", 64]) == (0, None)


# --- orders ----------------------------------------------------------------------------------------------------------


def test_agreement_of_the_whole_and_of_the_better_half() -> None:
    """Bad rows at the end make two orders agree of which the good ones do not."""
    values = [(9, 6), (8, 7), (7, 8), (6, 9), (4, 4), (3, 3), (2, 2), (1, 1)]
    found = summary.agreement([Pair(str(n), *both) for n, both in enumerate(values)])
    assert found.rows == 8
    assert found.better_half == pytest.approx(-1)
    assert 0.5 < found.all < 1
    with pytest.raises(ValueError, match="pairs must be at least four rows, got 3"):
        summary.agreement([Pair("a", 1, 2)] * 3)


def test_windows_are_shares_on_another_rung() -> None:
    names = {"rope": "rope", "hwfa2-w64-logn": "hwfa2-w16-logn", "rerope-w128": "rerope-w32"}
    lines = [line(row, "natural", length, 0.1, "second") for row in names for length in (256, 2048)]
    lines += [line(row, "natural", length, 0.2) for row in (*names.values(), "pi") for length in (64, 512)]
    found = summary.on_two_rungs(Table(lines), "natural")
    assert found == [Pair(row, 0.1, 0.2) for row in names]
    shared = set(RUNGS["small"].rows)
    for training, tested in SECOND.items():
        for row in (training, *tested):
            assert row.replace("w64", "w16").replace("w128", "w32") in shared


def test_published_rows_that_the_scoreboard_has() -> None:
    lines = [line(row, metric, length, 0.4) for row in RUNGS["small"].rows for metric in ("natural", "repeated")
             for length in (64, 512)]  # fmt: skip
    found = summary.beside_published(Table(lines), "repeated")
    published = {row.ours(64, 8.0, 4): row for row in published_rows()}
    other = {"hwfa2-w16": "hwfa2-w16-f1", "leaky-rerope-w32-logn": "leaky-rerope-w32-k16-logn"}
    assert set(other) <= {pair.row for pair in found}
    assert len(found) == len({pair.row for pair in found}) == 24
    for pair in found:
        assert pair == (pair.row, published[other.get(pair.row, pair.row)].repeated, 40)
    with pytest.raises(ValueError, match="metric must be one of 'natural', 'repeated'"):
        summary.beside_published(Table(lines), "loss")


def test_the_figure_of_an_order() -> None:
    pairs = [Pair(name, there, here) for name, there, here in (("a", 4, 1), ("b", 3, 4), ("c", 2, 3), ("d", 1, 2))]
    drawn = figures.scoreboard_order(pairs, there="published", here="ours", named={"a": "Method A"})
    assert "Method A 1 and 4" in drawn.alt
    assert "rank correlation is -0.20" in drawn.alt
    assert "-1.00 over the better half" in drawn.alt
    with pytest.raises(ValueError, match="named must be of a, b, c, d, got 'e'"):
        figures.scoreboard_order(pairs, there="published", here="ours", named={"e": "E"})


# --- models that are tuned -------------------------------------------------------------------------------------------

CURVES = Table(
    [
        line(row, metric, 512, value + more, rung)
        for metric in ("natural", "far copies")
        for more, rung in enumerate(("small", "small-tuned-0.1", "small-tuned-1", "small-tuned-10"))
        for row, value in (("rope", 0.3), ("yarn", 0.5))
    ]
    + [line("pi", "natural", 512, 0.1), line("rope", "natural", 512, 4.5, "small-at-512")]
)


def test_curves_of_tuning_begin_without_it() -> None:
    found = summary.tuned_curves(CURVES, "natural", 512)
    assert list(found) == ["rope", "yarn"]  # of pi nothing is tuned
    assert {percent: interval.mean for percent, interval in found["yarn"].items()} == {
        0.0: 0.5, 0.1: 1.5, 1.0: 2.5, 10.0: 3.5,
    }  # fmt: skip
    part = Table(row for row in CURVES if row["rung"] != "small-tuned-1")
    assert list(summary.tuned_curves(part, "natural", 512)["rope"]) == [0.0, 0.1, 10.0]


def test_the_figure_of_tuning() -> None:
    drawn = figures.scoreboard_tuned(CURVES, {"rope": "RoPE", "yarn": "YaRN"})
    assert "all bytes, YaRN: 50.0, 150.0, 250.0, 350.0" in drawn.alt
    assert "all bytes, trained there: 450.0" in drawn.alt
    assert "At 0.0, 0.1, 1.0, 10.0 percent" in drawn.alt
    assert [tick.get_text() for tick in drawn.figure.axes[1].get_xticklabels()] == ["0", "0.1", "1", "10"]
    assert drawn.figure.axes[1].get_xlabel() == "tuning at 512, % of pretraining bytes"
    with pytest.raises(ValueError, match="names must be of rows that were tuned, got 'pi'"):
        figures.scoreboard_tuned(CURVES, {"pi": "PI"})
