"""Frequencies for longer contexts, at values known from elsewhere."""

from __future__ import annotations

import math

import pytest
import torch

import rope_lessons as rl


@pytest.mark.parametrize(
    ("variant", "first", "last"), [("old", 1.0, 0.1291), ("fixed", 0.9680, 0.125), ("aware", 1.0, 0.125)]
)
def test_first_and_last_ratio(variant: str, first: float, last: float, device: torch.device) -> None:
    """d = 128, κ = 8."""
    frequencies = rl.ntk_frequencies(128, factor=8, variant=variant, device=device)
    ratio = frequencies / rl.rope_frequencies(128, device=device)
    assert ratio.dtype == torch.float64
    assert round(float(ratio[0]), 4) == first
    assert round(float(ratio[-1]), 4) == last


def test_fixed_is_the_default_and_lies_below_old() -> None:
    old, fixed, aware = (rl.ntk_frequencies(128, 8, variant=variant) for variant in ("old", "fixed", "aware"))
    assert torch.equal(rl.ntk_frequencies(128, 8), fixed)
    torch.testing.assert_close(fixed, old / 8 ** (2 / 128), rtol=1e-14, atol=0)
    assert (aware[1:] < old[1:]).all()
    assert (fixed[:-1] < aware[:-1]).all()


def test_pi() -> None:
    assert torch.equal(rl.pi_frequencies(64, 4, 500.0), rl.rope_frequencies(64, 500.0) / 4)


def test_dynamic_ntk_by_hand() -> None:
    """d = 4, twice the length, κ = 2: the base grows by (2·2 - 1)^(4/2) = 9, the second frequency is 1/300."""
    frequencies = rl.dynamic_ntk_frequencies(4, length=1024, train_length=512, factor=2)
    torch.testing.assert_close(frequencies, torch.tensor([1, 1 / 300], dtype=torch.float64), rtol=1e-14, atol=0)


def test_digits_by_hand(device: torch.device) -> None:
    assert rl.radix.digits(2026, base=10, length=6).tolist() == [6, 2, 0, 2, 0, 0]
    assert rl.radix.digits(0, base=7, length=2).tolist() == [0, 0]
    grid = rl.radix.digits(torch.arange(8, device=device).view(2, 4), base=2, length=3)
    assert grid.shape == (2, 4, 3)
    assert grid[1, 2].tolist() == [0, 1, 1]
    assert torch.equal(rl.radix.from_digits(grid, base=2), torch.arange(8, device=device).view(2, 4))
    assert rl.radix.digits(torch.zeros(0, dtype=torch.int64), base=2, length=3).shape == (0, 3)


def test_more_digits_than_an_int64_has() -> None:
    """base**t does not fit in int64 for the last digits; they are 0 all the same."""
    assert rl.radix.digits(2**63 - 1, base=10, length=25).tolist() == [*map(int, reversed(str(2**63 - 1))), *[0] * 6]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_decode_position(dtype: torch.dtype, device: torch.device) -> None:
    frequencies = rl.rope_frequencies(64, device=device)
    where = torch.tensor([[0, 1, 7, 512], [4096, 12_345, -3, -9999]], device=device)
    decoded = rl.radix.decode_position(rl.sinusoidal_encoding(where, 64, dtype=dtype), frequencies)
    assert decoded.dtype == torch.float64
    assert torch.equal(decoded.round().long(), where)


def test_decode_position_beyond_the_slowest_hand() -> None:
    """Positions further than π/ω of the lowest frequency come back as an alias within it."""
    frequencies = torch.tensor([1.0, 0.1], dtype=torch.float64)
    turn = 2 * math.pi / 0.1  # a whole turn of both: 20π
    encoding = rl.sinusoidal_encoding(torch.tensor([5 + turn], dtype=torch.float64), 4, frequencies=frequencies)
    assert math.isclose(float(rl.radix.decode_position(encoding, frequencies)), 5, abs_tol=1e-4)


def test_one_pair_decodes() -> None:
    encoding = rl.sinusoidal_encoding(torch.tensor([2]), 2)
    assert math.isclose(float(rl.radix.decode_position(encoding, rl.rope_frequencies(2))[0]), 2, abs_tol=1e-6)
