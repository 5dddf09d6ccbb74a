"""Which distances a training visits and which texts it covers: by writing every distance out, in exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rope_lessons as rl

LENGTHS, WINDOWS = st.integers(1, 60), st.integers(0, 70)
SLOPES = st.one_of(st.sampled_from([0, 1, 16]), st.integers(0, 20), st.integers(0, 160).map(lambda n: n / 8))


def visited(train_length: int, window: int, slope: float) -> list[Fraction]:
    """g of every distance between two tokens of a training text."""
    r = Fraction(slope)
    return [x if x < window else window + r * (x - window) for x in map(Fraction, range(train_length))]


@given(LENGTHS, WINDOWS, SLOPES)
def test_trained_distances_are_those_of_every_pair(train_length: int, window: int, slope: float) -> None:
    found = rl.invleaky.trained_distances(train_length, window, slope)
    assert found.dtype == torch.float64
    assert [Fraction(x) for x in found.tolist()] == visited(train_length, window, slope)
    index = torch.arange(train_length)
    pairs = rl.rerope.leaky_distance(index[:, None] - index, window, slope)
    assert set(found.tolist()) == set(pairs[pairs >= 0].tolist())


@given(LENGTHS, WINDOWS, SLOPES)
def test_covered_length_by_adding_tokens(train_length: int, window: int, slope: float) -> None:
    """Add tokens as long as the largest true distance, one less than their number, is at most the largest trained."""
    largest, length = max(visited(train_length, window, slope)), 1
    while length <= largest:
        length += 1
    assert rl.invleaky.covered_length(train_length, window, slope) == length
    if slope == 1 or window >= train_length:
        assert length == train_length
    if slope == 0 and window < train_length:
        assert length == window + 1  # the bend is for the test then, not for training
    if window < train_length:
        assert length == math.floor(window + 1 + Fraction(slope) * (train_length - 1 - window))


@given(st.integers(2, 60), st.integers(0, 70), st.integers(0, 600))
def test_slope_for_is_the_smallest(train_length: int, window: int, more: int) -> None:
    window %= train_length - 1
    length = train_length + more
    slope = rl.invleaky.slope_for(train_length, window, length)
    exact = Fraction(length - 1 - window, train_length - 1 - window)
    assert slope >= 1
    assert rl.invleaky.covered_length(train_length, window, slope) >= length
    assert math.isclose(slope, exact, rel_tol=1e-14)
    assert rl.invleaky.covered_length(train_length, window, slope * (1 - 1e-12)) < length or more == 0
    if more == 0:
        assert slope == 1


def test_fractional_windows() -> None:
    """A window need not be whole: 2.5 of 6 tokens, slope 3: 0, 1, 2, then 2.5 + 3 (x - 2.5)."""
    assert rl.invleaky.trained_distances(6, 2.5, 3).tolist() == [0, 1, 2, 4, 7, 10]
    assert rl.invleaky.covered_length(6, 2.5, 3) == 11
    assert rl.invleaky.covered_length(6, 2.5, rl.invleaky.slope_for(6, 2.5, 30)) == 30


@pytest.mark.parametrize(("train_length", "factor"), [(512, 8), (64, 8), (4096, 4), (2048, 2.5)])
def test_the_rule_covers(train_length: int, factor: float) -> None:
    rule = rl.invleaky.invleaky_rule(train_length, factor)
    assert rule == {"window": train_length // 4, "slope": 2 * factor}
    tokens = rl.invleaky.covered_length(train_length, **rule)
    assert tokens >= factor * train_length
    method = rl.METHODS["invleaky"](layers=1, dim=8, **rule)
    trained = rl.rerope.leaky_distance(torch.arange(train_length), method.train[0].window, method.train[0].slope)
    assert torch.equal(trained, rl.invleaky.trained_distances(train_length, **rule))


def test_numbers_of_the_article() -> None:
    assert rl.invleaky.covered_length(512, 128, 16) == 6257
    assert rl.invleaky.covered_length(512, 128, 8) == 3193
    assert rl.invleaky.slope_for(512, 128, 4096) == pytest.approx(3967 / 383)
    seen = torch.isin(torch.arange(128, 4096), rl.invleaky.trained_distances(512, 128, 16).long())
    assert (len(seen), seen.sum().item()) == (3968, 248)
