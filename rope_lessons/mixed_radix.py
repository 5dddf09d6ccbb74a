"""Mixed radix: digits that need not all have the same base, and NTK-RoPE whose pairs take unequal shares.

Derived in chapter 04.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rope_lessons._checks import as_float, check_bases, check_not_negative, check_positive, check_whole, shown
from rope_lessons.sinusoidal import rope_frequencies


def mixed_digits(n: int | Tensor, bases: list[int] | tuple[int, ...]) -> Tensor:
    r"""The digits of ``n`` in a mixed radix, units first: :math:`\lfloor n/(\beta_0\cdots\beta_{t-1})\rfloor \bmod
    \beta_t`.

    The inverse is :func:`~rope_lessons.radix.from_digits` with the same ``bases``.

    Args:
        n: int, or int64 tensor ``(...)``, from 0 to the product of the bases minus 1.
        bases: :math:`\beta_0, \beta_1, \dots`, the radix of each digit, units first; ints of at least 2.

    Returns:
        int64 tensor ``(..., len(bases))``; digit :math:`t` is worth :math:`\beta_0\cdots\beta_{t-1}`.

    Raises:
        TypeError, ValueError: bases that are not a list or tuple of such ints; an ``n`` that they cannot write.

    Chapter 04.

    >>> mixed_digits(363_900, bases=(60, 60, 24, 7))  # seconds, minutes, hours, days
    tensor([0, 5, 5, 4])
    """
    check_bases("bases", bases)
    n = check_whole(n)
    largest = math.prod(bases) - 1
    if n.numel() and not 0 <= int(n.min()) <= int(n.max()) <= largest:
        low, high = int(n.min()), int(n.max())
        found = str(low) if low == high else f"{low} to {high}"
        raise ValueError(f"n must be from 0 to the product of bases minus 1 = {shown(largest)}, got {found}")
    digits = []
    for base in bases:
        digits.append(n % base)
        n = n // base
    return torch.stack(digits, dim=-1)


def mixed_radix_frequencies(
    dim: int,
    factor: float,
    exponent: float = 0.625,
    base: float = 10_000.0,
    *,
    device: torch.device | str | None = None,
) -> Tensor:
    r"""NTK-RoPE-mixed: pair t takes its own share :math:`\lambda_t` of the factor, and shares add up along the pairs.

    .. math::
        \omega'_t = \frac{\omega_t}{\lambda_0\lambda_1\cdots\lambda_t}, \qquad
        \lambda_0\cdots\lambda_t = \exp\bigl(a\,(t+1)^b\bigr), \qquad a = \frac{\ln\kappa}{(d/2)^b}

    The last pair turns :math:`\kappa` times slower. With :math:`b = 0` every pair does (PI); with :math:`b = 1` all
    shares are equal (NTK-RoPE-fixed). The shares decrease along the pairs, and none is below 1, exactly if
    :math:`0 \le b \le 1` (for :math:`\kappa > 1` and at least two pairs).

    Args:
        dim: number of channels :math:`d`; even.
        factor: :math:`\kappa`, by which the context is extended; positive.
        exponent: :math:`b`; at least 0. Su found 0.625 on his model, and set 0.75 in his patch for LLaMA.
        base: :math:`B`; positive.
        device: where the result lives.

    Returns:
        float64 tensor ``(dim/2,)``.

    Raises:
        TypeError, ValueError: odd ``dim``; ``factor`` or ``base`` not positive; a negative ``exponent``.

    Source: Su, article 11 (spaces.ac.cn/archives/9706). Chapter 04 derives it.

    >>> ratio = mixed_radix_frequencies(128, factor=8, exponent=0.75) / rope_frequencies(128)
    >>> ratio[0], ratio[1], ratio[-1]
    (tensor(0.9122, dtype=torch.float64), tensor(0.8568, dtype=torch.float64), tensor(0.1250, dtype=torch.float64))
    """
    check_positive("factor", factor)
    check_not_negative("exponent", exponent)
    frequencies = rope_frequencies(dim, base, device=device)
    # (t+1)/(d/2) before the power: a large exponent must not overflow.
    place = torch.arange(1, dim // 2 + 1, dtype=torch.float64) / (dim // 2)
    share = place.to(frequencies.device) ** as_float(exponent)  # of log κ, taken by pairs 0 to t together
    return frequencies / as_float(factor) ** share
