r"""Means with their 95 % intervals over seeds *and* documents, honest for few seeds. Chapter 12.

Every seed is tested with the same documents: a table with a row per seed and a column per document. Its cells vary by
seed, by document, and by both together; other seeds and other documents would give another mean. The classical
analysis of variance of such a table estimates that variance as

.. math:: \frac{M_S + M_D - M_E}{S\,D},

with the mean squares of :math:`S` seeds, of :math:`D` documents and of what is left, and Satterthwaite's formula says
how many degrees of freedom the estimate has. With three seeds that differ much it has two, and the interval is 4.3
standard errors wide on either side, not 1.96.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

_NODES = np.polynomial.legendre.leggauss(60)


class Interval(NamedTuple):
    """A mean and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float


def interval(sums: np.ndarray, counts: np.ndarray) -> Interval:
    """The share of hits, or a mean loss, and its 95 % interval.

    Documents have different numbers of bytes that are asked for, so what varies is the ratio of two sums; its
    deviations are linear in those of the sums, to first order.

    Args:
        sums: ``(seeds, documents)``; hits, for instance. With one seed the interval is over documents alone.
        counts: ``(documents,)``, of how many values each is the sum; not all 0.

    Returns:
        mean, lower end and upper end. A difference of two methods on the same seeds and documents is the interval of
        the difference of their sums.

    Raises:
        ValueError: other shapes; nothing counted; one document.

    >>> interval(np.array([[30.0, 52.0], [34.0, 56.0]]), np.array([50.0, 100.0])).mean
    0.5733333333333334
    """
    if sums.ndim != 2 or counts.shape != sums.shape[1:]:
        raise ValueError(f"sums must be (seeds, documents) and counts (documents,), got {sums.shape}, {counts.shape}")
    if not counts.any():
        raise ValueError("counts must not be all 0")
    if len(counts) < 2:
        raise ValueError(f"sums must have at least two documents, got {len(counts)}")
    mean = float(sums.mean(axis=0).sum() / counts.sum())
    cells = (sums - mean * counts) / counts.mean()  # deviations of the ratio, cell by cell; they sum to 0
    variance, freedom = _variance(cells)
    half = _t(freedom) * math.sqrt(variance)
    return Interval(mean, mean - half, mean + half)


def _variance(cells: np.ndarray) -> tuple[float, float]:
    """Variance of the mean of all cells, and its degrees of freedom."""
    seeds, documents = cells.shape
    by_document = documents - 1
    if seeds == 1:
        return float(cells.var(ddof=1) / documents), by_document
    by_seed, left = seeds - 1, (seeds - 1) * (documents - 1)
    of_seed, of_document = cells.mean(axis=1, keepdims=True), cells.mean(axis=0, keepdims=True)
    mean_squares = [
        documents * float(((of_seed - cells.mean()) ** 2).sum()) / by_seed,
        seeds * float(((of_document - cells.mean()) ** 2).sum()) / by_document,
        float(((cells - of_seed - of_document + cells.mean()) ** 2).sum()) / left,
    ]
    s, d, e = mean_squares
    total = max(s + d - e, s, d)  # where chance makes the rest the largest, not less than either alone
    if not total:
        return 0.0, by_document
    freedom = total**2 / (s**2 / by_seed + d**2 / by_document + e**2 / left)
    return total / (seeds * documents), max(1.0, freedom)


def _t(freedom: float) -> float:
    """The 97.5 % point of Student's t distribution: from its distribution function, by bisection."""
    low, high = 0.0, 100.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _two_sided(middle, freedom) < 0.95 else (low, middle)
    return (low + high) / 2


def _two_sided(t: float, freedom: float) -> float:
    """The chance that a variable of Student's distribution is within ±t: the integral of its density."""
    x, weight = _NODES
    angle = math.atan2(t, math.sqrt(freedom)) * (x + 1) / 2  # t = sqrt(freedom) tan(angle): a finite interval
    area = float((weight * np.cos(angle) ** (freedom - 1)).sum()) * math.atan2(t, math.sqrt(freedom)) / 2
    log_norm = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(math.pi) / 2
    return 2 * area * math.exp(log_norm)
