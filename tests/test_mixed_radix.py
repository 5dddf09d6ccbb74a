"""Digits in a mixed radix, and NTK-RoPE-mixed against the formulas as their author published them."""

from __future__ import annotations

import math

import pytest
import torch

import rope_lessons as rl
from rope_lessons import FrequencySpec

CLOCK = (60, 60, 24, 7)  # seconds, minutes, hours, days of a week


def test_clock_by_hand(device: torch.device) -> None:
    assert rl.mixed_radix.mixed_digits(0, CLOCK).tolist() == [0, 0, 0, 0]
    assert rl.mixed_radix.mixed_digits(86_399, CLOCK).tolist() == [59, 59, 23, 0]
    assert rl.mixed_radix.mixed_digits(86_400, CLOCK).tolist() == [0, 0, 0, 1]
    assert rl.mixed_radix.mixed_digits(604_799, list(CLOCK)).tolist() == [59, 59, 23, 6]
    grid = torch.tensor([[59, 60], [3600, 400_000]], device=device)
    written = rl.mixed_radix.mixed_digits(grid, CLOCK)
    assert written.shape == (2, 2, 4)
    assert written.device.type == device.type
    assert written[1, 1].tolist() == [40, 6, 15, 4]
    assert torch.equal(rl.radix.from_digits(written, CLOCK), grid)
    assert rl.mixed_radix.mixed_digits(torch.zeros(0, dtype=torch.int64), CLOCK).shape == (0, 4)
    assert rl.radix.from_digits(torch.zeros(0, 4, dtype=torch.int64), CLOCK).shape == (0,)


@pytest.mark.parametrize("bases", [(2, 3, 5, 7), (7, 5, 3, 2), (60, 2), (9,)])
def test_every_number_has_its_own_digits(bases: tuple[int, ...]) -> None:
    n = torch.arange(math.prod(bases))
    written = rl.mixed_radix.mixed_digits(n, bases)
    assert torch.equal(rl.radix.from_digits(written, bases), n)
    assert len({tuple(row) for row in written.tolist()}) == len(n)
    assert written.amax(dim=0).tolist() == [base - 1 for base in bases]


def test_equal_bases_are_ordinary_digits() -> None:
    n = torch.arange(3**5)
    assert torch.equal(rl.mixed_radix.mixed_digits(n, (3,) * 5), rl.radix.digits(n, base=3, length=5))
    assert torch.equal(rl.radix.from_digits(rl.radix.digits(n, base=3, length=5), (3,) * 5), n)


def test_the_largest_int64() -> None:
    bases, n = (2**21, 2**21, 2**21), 2**63 - 1
    written = rl.mixed_radix.mixed_digits(n, bases)
    assert written.tolist() == [2**21 - 1] * 3
    assert int(rl.radix.from_digits(written, bases)) == n
    # More places than an int64 has: those digits are 0.
    assert rl.mixed_radix.mixed_digits(n, (10,) * 25).tolist() == rl.radix.digits(n, base=10, length=25).tolist()


def article(dim: int, factor: float, exponent: float, base: float) -> list[float]:
    """Article 11, letter for letter: θ_m = n / (β^(m-1) λ_1 … λ_m) for n = 1, with the pairs counted from 1."""
    beta, a = base ** (2 / dim), math.log(factor) / (dim / 2) ** exponent
    return [1 / (beta ** (m - 1) * math.exp(a * m**exponent)) for m in range(1, dim // 2 + 1)]


def patch(dim: int, factor: float, exponent: float, base: float) -> torch.Tensor:
    """The same in two steps, as the author's patch for LLaMA does: RoPE's frequencies, then divided."""
    plain = 1.0 / base ** (torch.arange(0, dim, 2).double() / dim)
    order = torch.arange(1, dim // 2 + 1).double()
    return plain * (-(math.log(factor) / (dim / 2) ** exponent) * order**exponent).exp()


@pytest.mark.parametrize(("dim", "base"), [(128, 10_000.0), (64, 500_000.0), (2, 10_000.0)])
@pytest.mark.parametrize(("factor", "exponent"), [(8, 0.625), (12, 0.75), (8, 0), (8, 1), (0.5, 0.625), (3, 2)])
def test_both_published_formulas(dim: int, base: float, factor: float, exponent: float, device: torch.device) -> None:
    ours = rl.mixed_radix_frequencies(dim, factor, exponent, base, device=device)
    assert ours.device.type == device.type
    assert ours.dtype == torch.float64
    assert ours.tolist() == pytest.approx(article(dim, factor, exponent, base), rel=1e-12)
    assert torch.allclose(ours.cpu(), patch(dim, factor, exponent, base), rtol=1e-12)


def test_golden_ratios() -> None:
    ratio = rl.mixed_radix_frequencies(128, 8, exponent=0.75) / rl.rope_frequencies(128)
    assert [round(float(ratio[t]), 5) for t in (0, 1, -1)] == [0.91220, 0.85680, 0.125]


@pytest.mark.parametrize("factor", [1.5, 8, 64])
def test_both_ends_of_the_family(factor: float) -> None:
    rope = rl.rope_frequencies(64)
    exact = {"rtol": 1e-13, "atol": 0}
    torch.testing.assert_close(rl.mixed_radix_frequencies(64, factor, 0), rl.pi_frequencies(64, factor), **exact)
    torch.testing.assert_close(rl.mixed_radix_frequencies(64, factor, 1), rl.ntk_frequencies(64, factor), **exact)
    assert float(rl.mixed_radix_frequencies(64, factor, 0.625)[-1] / rope[-1]) == pytest.approx(1 / factor)
    # An exponent without bound leaves all but the last pair alone: no overflow on the way.
    torch.testing.assert_close(rl.mixed_radix_frequencies(64, factor, 1e6)[:-1], rope[:-1], **exact)


def test_a_name_in_the_table() -> None:
    spec = FrequencySpec("ntk-mixed", dim=64, factor=8)
    assert torch.equal(spec(), rl.mixed_radix_frequencies(64, 8))
    assert spec == FrequencySpec("ntk-mixed", dim=64, factor=8, exponent=0.625)
    assert repr(FrequencySpec("ntk-mixed", dim=64, factor=8, exponent=0.75)) == (
        "FrequencySpec('ntk-mixed', dim=64, factor=8, exponent=0.75)"
    )
    method = rl.METHODS["ntk-mixed"](layers=2, dim=64, factor=8, exponent=0.75)
    assert method.train == (rl.scheme("rope", dim=64),) * 2
    assert method.test == (rl.scheme("ntk-mixed", dim=64, factor=8, exponent=0.75),) * 2
