"""Intervals that hold as often as they say, also with three seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rope_lessons.scoreboard.intervals import _t, _two_sided, interval


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.7062), (2, 4.3027), (4, 2.7764), (10, 2.2281), (63, 1.9983), (1e6, 1.9600)]
)
def test_student(freedom: float, value: float) -> None:
    """From the printed tables."""
    assert _t(freedom) == pytest.approx(value, abs=1e-4)
    assert _two_sided(value, freedom) == pytest.approx(0.95, abs=1e-5)


@pytest.mark.parametrize("of_seed", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("seeds", [3, 5])
def test_coverage(seeds: int, of_seed: float) -> None:
    """Drawn from known variances, 95 of 100 intervals hold the truth, or more; never fewer than 93. The standard
    deviation of documents is 1, that of what is left 1, that of seeds none, some, or more than all else."""
    random, held, documents, draws = np.random.default_rng(seeds), 0, 24, 600
    for _ in range(draws):
        cells = (
            of_seed * random.standard_normal((seeds, 1)) / math.sqrt(documents)
            + random.standard_normal((1, documents))
            + random.standard_normal((seeds, documents))
        )
        found = interval(cells, np.ones(documents))
        held += found.low <= 0 <= found.high
    assert held / draws > 0.93


def test_documents_of_different_sizes() -> None:
    """The mean is that of all bytes; a document of many counts for many. Ten times the bytes, the same interval."""
    random = np.random.default_rng(0)
    counts = random.integers(1, 200, 64).astype(float)
    sums = random.binomial(counts.astype(int), 0.3, (3, 64)).astype(float)
    found = interval(sums, counts)
    assert found.mean == pytest.approx(sums.sum() / (3 * counts.sum()))
    assert interval(10 * sums, 10 * counts) == pytest.approx(found)
    assert found.low < 0.3 < found.high < found.low + 0.06


def test_one_seed() -> None:
    """Over documents alone: the usual interval of a mean."""
    values = np.array([[1.0, 2.0, 4.0, 9.0]])
    found = interval(values, np.ones(4))
    half = 3.1824 * values.std(ddof=1) / 2  # three degrees of freedom
    assert (found.mean, found.high) == (4.0, pytest.approx(4 + half, abs=1e-3))


def test_equal_cells_have_no_width() -> None:
    assert interval(np.full((3, 4), 0.5), np.ones(4)) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("sums", "counts", "told"),
    [
        (np.ones(3), np.ones(3), "sums must be"),
        (np.ones((2, 3)), np.ones(2), "counts"),
        (np.ones((2, 3)), np.zeros(3), "not be all 0"),
        (np.ones((2, 1)), np.ones(1), "at least two documents"),
    ],
)
def test_bad_input(sums: np.ndarray, counts: np.ndarray, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        interval(sums, counts)
