"""Bend the distance: keep it near, compress it far (ReRoPE, Leaky ReRoPE, InvLeaky ReRoPE)."""

from __future__ import annotations

import torch
from torch import Tensor

from rope_lessons._checks import as_float, check_not_negative, check_positions
from rope_lessons._float64 import exact


def leaky_distance(distance: Tensor, window: float, slope: float) -> Tensor:
    r"""The distance map :math:`f(\Delta) = \operatorname{sign}(\Delta)\,g(|\Delta|)` with :math:`g(x) = x` for
    :math:`x < w` and :math:`w + \text{slope}\cdot(x - w)` beyond.

    Slope 1 is RoPE, slope 0 ReRoPE, :math:`1/k` Leaky ReRoPE, above 1 InvLeaky ReRoPE; a window of 0 with slope
    :math:`1/\kappa` is position interpolation.

    Args:
        distance: int64 or float64, any shape.
        window: :math:`w`, at least 0.
        slope: at least 0.

    Returns:
        float64 tensor like ``distance``.

    Raises:
        TypeError, ValueError: distances of another dtype; a negative window or slope.

    Source: Su, articles 12 and 13 (spaces.ac.cn/archives/9708 and 9728). Chapter 08 derives it.

    >>> leaky_distance(torch.tensor([-6, 2, 4, 8]), window=4, slope=0.5)
    tensor([-5.,  2.,  4.,  6.], dtype=torch.float64)
    """
    check_positions("distance", distance)
    check_not_negative("window", window)
    check_not_negative("slope", slope)
    window, slope = as_float(window), as_float(slope)
    distance = exact(distance)
    size = distance.abs()
    return distance.sign() * torch.where(size < window, size, window + slope * (size - window))


def smooth_leaky_distance(distance: Tensor, window: float, slope: float, sigma: float) -> Tensor:
    r"""The distance map of :func:`leaky_distance` with its corner rounded off between :math:`w - \sigma` and
    :math:`w + \sigma`:

    .. math:: g(x) = x - (1 - \text{slope})\,\frac{(x - w + \sigma)^2}{4\sigma} \quad\text{there.}

    This parabola is the cubic that has the values and the slopes of the two lines at both ends: its cubic term is 0.

    Args:
        distance: int64 or float64, any shape.
        window: :math:`w`, at least 0.
        slope: at least 0.
        sigma: half the width of the transition, from 0 (no rounding) to ``window``.

    Returns:
        float64 tensor like ``distance``.

    Raises:
        TypeError, ValueError: distances of another dtype; a negative window, slope or sigma; sigma above the window.

    Source: an unreviewed extension of Su's article 13 (spaces.ac.cn/archives/9728). Chapter 08 derives it.

    >>> smooth_leaky_distance(torch.tensor([2, 4, 6, -8]), window=4, slope=0.0, sigma=2.0)
    tensor([ 2.0000,  3.5000,  4.0000, -4.0000], dtype=torch.float64)
    """
    check_not_negative("sigma", sigma)
    bent = leaky_distance(distance, window, slope)
    if sigma > window:
        raise ValueError(f"sigma must be at most the window, {window:g}, got {sigma!r}")
    if sigma == 0:
        return bent
    window, slope, sigma = as_float(window), as_float(slope), as_float(sigma)
    size = exact(distance).abs()
    into = size - (window - sigma)  # way into the transition
    rounded = size - (1 - slope) * into.square() / (4 * sigma)
    return torch.where((size - window).abs() < sigma, distance.sign() * rounded, bent)
