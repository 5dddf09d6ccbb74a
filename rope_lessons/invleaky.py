"""Bend the distance in training, so that plain RoPE serves at test (InvLeaky ReRoPE): which distances training visits,
and which texts they cover."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rope_lessons._checks import check_count, check_not_negative, check_positive, check_size
from rope_lessons.rerope import leaky_distance


def trained_distances(train_length: int, window: float, slope: float) -> Tensor:
    r"""The distances that a training text visits: :math:`g(0), g(1), \dots, g(N - 1)`, with :math:`g` the map of
    :func:`~rope_lessons.rerope.leaky_distance`.

    Args:
        train_length: :math:`N`, at least 1.
        window: :math:`w`, at least 0.
        slope: :math:`r` in training, at least 0.

    Returns:
        float64 ``(train_length,)``, in order.

    Raises:
        TypeError, ValueError: a ``train_length`` that is no int of at least 1; a negative window or slope.

    Source: Su, article 13 (spaces.ac.cn/archives/9728). Chapter 09 derives it.

    >>> trained_distances(6, window=2, slope=3)
    tensor([ 0.,  1.,  2.,  5.,  8., 11.], dtype=torch.float64)
    """
    check_size("train_length", train_length)
    _farthest(train_length, window, slope)
    return leaky_distance(torch.arange(train_length), window, slope)


def _farthest(train_length: int, window: float, slope: float) -> float:
    """The largest of the trained distances."""
    found = leaky_distance(torch.tensor([train_length - 1]), window, slope).item()
    if found == math.inf:
        raise ValueError(f"slope must be smaller: distances are beyond the numbers of float64, got {slope}")
    return found


def covered_length(train_length: int, window: float, slope: float) -> int:
    r"""The longest text whose true distances, those of plain RoPE, are all at most the largest of training:
    :math:`\lfloor g(N - 1) \rfloor + 1`, that is :math:`w + 1 + r(N - 1 - w)` for :math:`w < N` (rounded down).

    Covered means within the range. Most distances in it may be unseen: :func:`trained_distances` lists the seen ones.

    Args:
        train_length: :math:`N`, at least 1.
        window: :math:`w`, at least 0.
        slope: :math:`r` in training, at least 0.

    Returns:
        the number of tokens.

    Raises:
        TypeError, ValueError: as for :func:`trained_distances`.

    Source: Su, article 13 (spaces.ac.cn/archives/9728), has the method; chapter 09 proves the formula.

    >>> covered_length(512, window=128, slope=16)
    6257
    """
    check_count("train_length", train_length, least=1)
    return math.floor(_farthest(train_length, window, slope)) + 1


def slope_for(train_length: int, window: float, length: int) -> float:
    r"""The smallest slope whose :func:`covered_length` is at least ``length``:
    :math:`r = (L - 1 - w)/(N - 1 - w)`, rounded up where float64 cannot hold it.

    Args:
        train_length: :math:`N`, at least 1.
        window: :math:`w`, from 0 to below :math:`N - 1`.
        length: :math:`L`, at least :math:`N`.

    Returns:
        the slope, at least 1.

    Raises:
        TypeError, ValueError: lengths that are no ints; a negative window; a window so large that no distance lies
            beyond it; a ``length`` below ``train_length``.

    Source: chapter 09 derives it.

    >>> round(slope_for(512, window=128, length=4096), 2)
    10.36
    """
    check_count("train_length", train_length, least=1)
    check_count("length", length, least=1)
    if length < train_length:
        raise ValueError(f"length must be at least train_length = {train_length}, got {length}")
    check_not_negative("window", window)
    beyond = train_length - 1 - window
    if beyond <= 0:
        raise ValueError(f"window must be below train_length - 1 = {train_length - 1}, got {window!r}")
    slope = (length - 1 - window) / beyond
    while covered_length(train_length, window, slope) < length:
        slope = math.nextafter(slope, math.inf)
    return slope


def invleaky_rule(train_length: int, factor: float) -> dict[str, float]:
    r"""The rule of thumb of article 13 for a text :math:`\kappa` times as long: a window of :math:`N/4`, rounded down,
    and the slope :math:`2\kappa`.

    Args:
        train_length: :math:`N`, at least 1.
        factor: :math:`\kappa`, positive.

    Returns:
        ``window`` and ``slope``, as ``METHODS["invleaky"]`` takes them.

    Raises:
        TypeError, ValueError: a ``train_length`` that is no int of at least 1; a factor that is not positive.

    Source: Su, article 13 (spaces.ac.cn/archives/9728). Chapter 09 compares it with the slope that is needed.

    >>> invleaky_rule(512, factor=8)
    {'window': 128, 'slope': 16}
    """
    check_count("train_length", train_length, least=1)
    check_positive("factor", factor)
    slope = 2 * factor
    if slope == math.inf:
        raise ValueError(f"factor must be smaller: the slope is twice as much, got {factor}")
    return {"window": train_length // 4, "slope": slope}
