"""The bent distance and its smooth form against the definitions, and against the author's way of computing."""

from __future__ import annotations

import math

import pytest
import torch

import rope_lessons as rl

WHOLE = torch.arange(-40, 41)


def by_definition(distance: float, window: float, slope: float) -> float:
    size = abs(distance)
    return math.copysign(size if size < window else window + slope * (size - window), distance)


@pytest.mark.parametrize("window", [0, 1, 7, 39, 100])
@pytest.mark.parametrize("slope", [0.0, 1 / 8, 1.0, 16.0])
def test_leaky_distance_is_the_definition(window: int, slope: float, device: torch.device) -> None:
    found = rl.rerope.leaky_distance(WHOLE.to(device), window, slope)
    assert found.dtype == torch.float64
    assert found.device.type == device.type
    assert found.tolist() == [by_definition(x, window, slope) for x in WHOLE.tolist()]


def test_leaky_distance_at_the_edge() -> None:
    assert rl.rerope.leaky_distance(torch.tensor([6, 7, 8]), 7, 0.5).tolist() == [6, 7, 7.5]
    fractions = torch.tensor([6.75, 7.0, 7.5], dtype=torch.float64)
    assert rl.rerope.leaky_distance(fractions, 7, 0.5).tolist() == [6.75, 7.0, 7.25]
    assert rl.rerope.leaky_distance(torch.tensor([2**40]), 4, 1.0).item() == 2**40


def test_the_authors_far_distance() -> None:
    """Article 12's positions: query (i - w)/k + w, key j/k."""
    i, j, w, k = 50, torch.arange(30), 16, 8
    assert torch.allclose(rl.rerope.leaky_distance(i - j, w, 1 / k), ((i - w) / k + w - j / k).double())


@pytest.mark.parametrize("slope", [0.0, 1 / 8, 1.0, 4.0])
@pytest.mark.parametrize(("window", "sigma"), [(16, 4.0), (16, 16.0), (7.5, 1.6)])
def test_smooth_distance_is_hermites_cubic(window: float, sigma: float, slope: float) -> None:
    """The cubic as document 004 has it, in its own four basis polynomials, with the widths of the interval."""
    x = torch.linspace(-3 * window, 3 * window, 601, dtype=torch.float64)
    t = (x.abs() - (window - sigma)) / (2 * sigma)
    hermite = (
        (1 - t) ** 2 * (1 + 2 * t) * (window - sigma)
        + t**2 * (3 - 2 * t) * (window + slope * sigma)
        + (1 - t) ** 2 * t * 2 * sigma
        + t**2 * (t - 1) * 2 * sigma * slope
    )
    inside = (t > 0) & (t < 1)
    expected = torch.where(inside, x.sign() * hermite, rl.rerope.leaky_distance(x, window, slope))
    assert torch.allclose(rl.rerope.smooth_leaky_distance(x, window, slope, sigma), expected, atol=1e-12)
    assert inside.any()


def test_smooth_distance_without_smoothing_is_leaky(device: torch.device) -> None:
    x = WHOLE.to(device)
    assert torch.equal(rl.rerope.smooth_leaky_distance(x, 9, 0.25, 0.0), rl.rerope.leaky_distance(x, 9, 0.25))
    assert torch.equal(rl.rerope.smooth_leaky_distance(x, 9, 1.0, 5.0), rl.rerope.leaky_distance(x, 9, 1.0))
    found = rl.rerope.smooth_leaky_distance(x, 9, 0.25, 5)
    assert found.device.type == device.type
    assert torch.equal(found, -found.flip(0))
