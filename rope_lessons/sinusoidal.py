"""The sinusoidal position encoding, and the kernel that two encodings make. Derived in chapter 01."""

from __future__ import annotations

import torch
from torch import Tensor

from rope_lessons._checks import (
    as_float,
    check_device,
    check_dim,
    check_float_dtype,
    check_frequencies,
    check_positions,
    check_positive,
)
from rope_lessons._float64 import exact, float64_device

ENCODING_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def rope_frequencies(dim: int, base: float = 10_000.0, *, device: torch.device | str | None = None) -> Tensor:
    r"""Frequencies :math:`\omega_t = B^{-2t/d}` of the sinusoidal encoding and of RoPE.

    Pair :math:`t = 0` turns by one radian per position; every next pair is slower by :math:`B^{2/d}`.

    Args:
        dim: number of channels :math:`d` that carry the position; even.
        base: :math:`B`, positive. Hugging Face calls it ``rope_theta``.
        device: where the result lives (the CPU for MPS, which has no float64).

    Returns:
        float64 tensor ``(dim/2,)``, in radians per position.

    Raises:
        TypeError, ValueError: odd ``dim``; ``base`` not a positive finite number.

    Source: Vaswani et al. 2017, section 3.5; Su et al. 2021, equation 15. Chapters 01 and 02.

    >>> rope_frequencies(4)
    tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    check_dim(dim)
    check_positive("base", base)
    exponents = torch.arange(0, dim, 2, dtype=torch.float64, device=float64_device(device)) / dim
    return as_float(base) ** -exponents


def sinusoidal_encoding(
    positions: Tensor,
    dim: int,
    base: float = 10_000.0,
    *,
    frequencies: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    r"""Sinusoidal encoding :math:`\mathbf{e}_m`: channel :math:`2t` is :math:`\sin m\omega_t`, :math:`2t+1` its cosine.

    Angles are computed in float64, so a float32 result is right to :math:`6\cdot 10^{-8}` at any position.

    Args:
        positions: int64, or float64 when fractional; any shape ``(...)``.
        dim: number of channels :math:`d`; even.
        base: :math:`B`; not used when ``frequencies`` is given.
        frequencies: float64 ``(dim/2,)``, in radians per position, in place of :math:`B^{-2t/d}`. Gradients flow to it.
        dtype: of the result: a floating-point type.

    Returns:
        tensor ``(..., dim)``.

    Raises:
        TypeError, ValueError: positions of another dtype; odd ``dim``; frequencies that don't match ``dim``.

    Source: Vaswani et al. 2017, section 3.5. Chapter 01.

    >>> sinusoidal_encoding(torch.tensor([0, 1]), 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    check_positions("positions", positions)
    check_dim(dim)
    check_float_dtype(dtype, ENCODING_DTYPES)
    if frequencies is None:
        frequencies = rope_frequencies(dim, base, device=positions.device)
    check_frequencies(frequencies, dims=(1,))
    if frequencies.shape[0] * 2 != dim:
        raise ValueError(f"frequencies must have shape (dim/2,) = ({dim // 2},), got {tuple(frequencies.shape)}")
    where = exact(positions)
    check_device("frequencies", frequencies, where.device, like="positions")
    angles = where.unsqueeze(-1) * frequencies  # (..., dim/2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2).to(dtype).to(positions.device)


def sinusoidal_kernel(distance: Tensor, frequencies: Tensor) -> Tensor:
    r"""Kernel :math:`K(\Delta) = \frac{2}{d}\sum_t \cos(\Delta\,\omega_t)`: the inner product of two encodings
    at distance :math:`\Delta`, divided by its value :math:`d/2` at distance 0.

    Args:
        distance: int64 or float64, any shape ``(...)``.
        frequencies: float64 ``(dim/2,)``, in radians per position.

    Returns:
        float64 tensor ``(...)``.

    Raises:
        TypeError, ValueError: distances or frequencies of another dtype or shape.

    Chapter 01 derives it and how it decays.

    >>> sinusoidal_kernel(torch.tensor([0, 1, 10, 100]), rope_frequencies(64))
    tensor([1.0000, 0.9662, 0.6579, 0.5586], dtype=torch.float64)
    """
    check_positions("distance", distance)
    check_frequencies(frequencies, dims=(1,))
    distance = exact(distance)
    check_device("frequencies", frequencies, distance.device, like="distance")
    return (distance.unsqueeze(-1) * frequencies).cos().mean(dim=-1)
