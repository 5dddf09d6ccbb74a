"""Hits in a file, and what is counted of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments import scoreboard_hits as hits
from experiments import scoreboard_table as table
from rope_lessons.lab import sizes
from rope_lessons.lab.text import periods
from rope_lessons.models.transformer import TransformerConfig
from rope_lessons.scoreboard import rows, scoring
from rope_lessons.scoreboard.scoring import Settings

TESTS = Settings(home=32, lengths=(32, 64, 128), windows=3, depths=(0.0, 1.0))
ABOUT = {"tests": {"windows": 3, "lengths": [32, 64, 128]}, "rows": {"rope": "as it is", "pi": "as it is"}}


def some_text() -> torch.Tensor:
    return torch.randint(97, 101, (3, 129), generator=torch.Generator().manual_seed(0))


def measured() -> tuple[scoring.Hits, torch.Tensor]:
    model = sizes.build(TransformerConfig(width=8, layers=2, heads=2, kv_heads=2, head_dim=4, hidden=8), seed=0)
    row = rows.rows(2, 4, 32)["rope"]
    return scoring.hits_of(model, row, some_text(), TESTS, TESTS.lengths), some_text()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    found, _ = measured()
    hits.write(tmp_path / "seed-0.npz", ABOUT, {"rope": found, "pi": found})
    about, read = hits.read(tmp_path / "seed-0.npz")
    assert about == ABOUT
    for row in ("rope", "pi"):
        assert read[row].keys() == found.keys()
        for name in found:
            assert read[row][name].dtype == found[name].dtype
            assert np.array_equal(read[row][name], found[name])


def test_a_bit_per_byte(tmp_path: Path) -> None:
    """Of 64 windows of 512 bytes at four lengths, two sets: 32 KB, and little beside it."""
    random = np.random.default_rng(0)
    found = {f"natural {n}": random.random((64, 512)) < 0.5 for n in range(8)}
    about = {"tests": {"windows": 64, "lengths": [512]}, "rows": {"rope": ""}}
    hits.write(tmp_path / "x.npz", about, {"rope": found})
    assert 32_768 < (tmp_path / "x.npz").stat().st_size < 40_000


def test_what_has_one_shape_lies_in_one_array(tmp_path: Path) -> None:
    """Three arrays for a row and not eighteen: bits of texts, bits of needles, losses."""
    found, _ = measured()
    hits.write(tmp_path / "seed-0.npz", ABOUT, {"rope": found, "pi": found})
    assert len(found) == 3 * 3 + 3 * 2
    with np.load(tmp_path / "seed-0.npz") as file:
        assert {name: file[name].shape for name in file if name.startswith("rope|")} == {
            "rope|natural 32;repeated 32;natural 64;repeated 64;natural 128;repeated 128": (6, 3, 16),
            "rope|loss 32;loss 64;loss 128": (3, 3),
            "rope|needle 32 0;needle 32 1;needle 64 0;needle 64 1;needle 128 0;needle 128 1": (6, 1),
        }


@pytest.mark.parametrize("damage", ["cut", "bit", "other"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "seed-0.npz"
    hits.write(path, ABOUT, {"rope": measured()[0], "pi": measured()[0]})
    content = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(content[:-100])
    elif damage == "bit":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    else:
        hits.write(path, {"tests": {}}, {})
    with pytest.raises(ValueError, match=r"seed-0\.npz (is damaged|must be a file of hits)"):
        hits.read(path)


def test_the_same_bytes_at_every_length() -> None:
    """At 128 nothing is cut; at 32 every piece begins anew. Whole windows at their own length are the model's own."""
    found, text = measured()
    model = sizes.build(TransformerConfig(width=8, layers=2, heads=2, kv_heads=2, head_dim=4, hidden=8), seed=0)
    with torch.no_grad():
        right = model(text[:, :-1]).argmax(-1) == text[:, 1:]
        first = model(text[:, :32]).argmax(-1) == text[:, 1:33]
    assert np.array_equal(found["natural 128"], right.numpy())
    assert np.array_equal(found["natural 32"][:, :32], first.numpy())
    assert found["loss 64"].shape == (3,)
    assert found["needle 64 1"].shape == (3,)


def test_what_is_asked() -> None:
    """By hand: hits at the asked bytes over the number of them."""
    found, text = measured()
    asked = table.questions(text, TESTS, TESTS.lengths)
    natural = table.measured([found], asked["natural", 64])
    assert natural.mean == pytest.approx(found["natural 64"].mean())
    needle = table.measured([found], asked["needle", 64])
    assert needle.mean == pytest.approx((found["needle 64 0"].mean() + found["needle 64 1"].mean()) / 2)
    repeated = asked["repeated", 64].mask
    assert repeated is not None
    for piece in range(6):  # pieces of 64 take turns: 16 and 32 bytes are repeated
        row, begin = divmod(piece * 64, 128)
        period = periods(64, 32)[piece % 2]
        expected = np.arange(64) + 1 >= period
        assert np.array_equal(repeated[row, begin : begin + 64], expected)


def test_repeated_bytes_stood_there_before() -> None:
    """The mask of the table and the text of the test are made apart: every byte that is asked for is a copy."""
    from rope_lessons.lab.table.scoring import cut
    from rope_lessons.lab.text import repeated_windows

    text = torch.randint(256, (3, 129), generator=torch.Generator().manual_seed(1))
    for length in TESTS.lengths:
        pieces = repeated_windows(cut(text, length), TESTS.home)
        mask = table.questions(text, TESTS, (length,))["repeated", length].mask
        assert mask is not None
        for number, (piece, wanted) in enumerate(zip(pieces, mask.reshape(len(pieces), -1), strict=True)):
            period = periods(length, TESTS.home)[number % len(periods(length, TESTS.home))]
            places = np.flatnonzero(wanted) + 1
            assert torch.equal(piece[places], piece[places - period])
            assert len(places) == length + 1 - period


def test_the_difference_of_a_row_to_itself_is_nothing() -> None:
    found, text = measured()
    asked = table.questions(text, TESTS, TESTS.lengths)["natural", 128]
    assert table.measured([found, found], asked, [found, found]) == (0, 0, 0)
    with pytest.raises(ValueError, match="against must have as many seeds, 2, got 1"):
        table.measured([found, found], asked, [found])


def test_each_seed_has_its_own_lines() -> None:
    """The second seed gets everything wrong: the mean of both is half, and each seed has its own."""
    found, text = measured()
    text = text[:, :65].repeat(1, 2)[:, :129]  # a far copy of every passage
    wrong = {name: np.zeros_like(values) for name, values in found.items()}
    both = {"rope": {0: {"rope": found, "rope-window": found}, 1: {"rope": wrong, "rope-window": found}}}
    lines = list(table.each_seed(both, text, TESTS))
    asked = {"row": "rope", "metric": "natural", "length": 128}
    first, second = (line for line in lines if asked.items() <= line.items())
    assert [first["seed"], second["seed"]] == [0, 1]
    assert [first["mean"], second["mean"]] == [round(float(found["natural 128"].mean()), 5), 0]
    assert [first["ahead_mean"], second["ahead_mean"]] == [0, -first["mean"]]
    (joint,) = (line for line in table.lines(both, text, TESTS) if asked.items() <= line.items())
    assert joint["mean"] == pytest.approx(first["mean"] / 2, abs=1e-5)
    assert {line["metric"] for line in lines} == {"natural", "far copies", "needle"}


def test_needles_of_each_seed() -> None:
    """At the longest length, over all places; a row that does not go so far has no line."""
    found, _ = measured()
    longest = [name for name in found if name.startswith("needle 128 ")]
    short = {name: values for name, values in found.items() if name not in longest}
    half = {name: np.full_like(values, name == longest[0]) for name, values in found.items()}  # one place of two
    none = {name: np.zeros_like(values) for name, values in found.items()}
    lines = list(table.needles_by_seed({"rope": {1: {"rope": none}, 0: {"rope": half, "learned": short}}}, TESTS))
    assert [(line["row"], line["seed"], line["mean"]) for line in lines] == [("rope", 0, 0.5), ("rope", 1, 0)]


def test_tests_that_are_none() -> None:
    with pytest.raises(ValueError, match="lengths must begin with home = 64"):
        Settings(lengths=(32, 64))
    with pytest.raises(ValueError, match="depths must be from 0 to 1"):
        Settings(depths=(2.0,))
    with pytest.raises(ValueError, match="windows must be an int of at least 2"):
        replace(TESTS, windows=1)
