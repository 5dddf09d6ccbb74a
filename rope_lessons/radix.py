"""A position as a number in base β: digits, and the frequencies that write larger numbers with the same digits.

Position interpolation (PI), the NTK-RoPE variants and dynamic NTK. Derived in chapter 03.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rope_lessons._checks import (
    MOST,
    TINIEST,
    as_float,
    check_bases,
    check_choice,
    check_count,
    check_device,
    check_dim,
    check_frequencies,
    check_int64,
    check_positive,
    check_readable,
    check_tensor,
    check_whole,
)
from rope_lessons.sinusoidal import rope_frequencies

NTK_VARIANTS = ("old", "fixed", "aware")


def digits(n: int | Tensor, base: int, length: int) -> Tensor:
    r"""The first ``length`` digits of ``n`` in a base, units first: :math:`\lfloor n/\beta^t\rfloor \bmod \beta`.

    Args:
        n: int, or int64 tensor ``(...)``, from 0 to ``base**length - 1``.
        base: :math:`\beta`, an int of at least 2.
        length: number of digits, at most 63: those of the largest int64 in base 2.

    Returns:
        int64 tensor ``(..., length)``; digit :math:`t` is worth :math:`\beta^t`.

    Raises:
        TypeError, ValueError: a negative ``n``, or one that needs more digits; a base or a length out of range.

    Chapter 03.

    >>> digits(2026, base=10, length=6)
    tensor([6, 2, 0, 2, 0, 0])
    """
    check_count("base", base, least=2)
    check_count("length", length, least=1, most=63, why="the digits of the largest int64 in base 2")
    n = check_whole(n)
    if n.numel() and not 0 <= int(n.min()) <= int(n.max()) < base**length:
        low, high = int(n.min()), int(n.max())
        found = str(low) if low == high else f"{low} to {high}"
        raise ValueError(f"n must be from 0 to base**length - 1 = {base**length - 1}, got {found}")
    found_digits = []
    for _ in range(length):  # one division a digit: base**t itself can be too large for int64
        found_digits.append(n % base)
        n = n // base
    return torch.stack(found_digits, dim=-1)


def from_digits(digits: Tensor, base: int | list[int] | tuple[int, ...]) -> Tensor:
    r"""The number :math:`\sum_t a_t \beta^t` with the digits :math:`a_t`, units first. The inverse of :func:`digits`.

    With a list of bases, digit :math:`t` is worth :math:`\beta_0\cdots\beta_{t-1}` instead: the inverse of
    :func:`~rope_lessons.mixed_radix.mixed_digits`.

    Args:
        digits: int64 ``(..., length)``, each from 0 to its base minus 1.
        base: :math:`\beta`, an int of at least 2; or a list or tuple of such ints, one for each digit, units first.

    Returns:
        int64 tensor ``(...)``.

    Raises:
        TypeError, ValueError: digits of another dtype, outside 0 … base - 1, or more than fit in int64.

    >>> from_digits(torch.tensor([6, 2, 0, 2]), base=10)
    tensor(2026)
    >>> from_digits(torch.tensor([0, 5, 5, 4]), base=(60, 60, 24, 7))  # 5 minutes, 5 hours, 4 days in seconds
    tensor(363900)
    """
    length = digits.shape[-1] if isinstance(digits, Tensor) and digits.ndim else 0
    if isinstance(base, (list, tuple)):
        check_bases("base", base)
        bases, wanted = list(base), f"{len(base)}) with a product of the bases of"
    else:
        check_count("base", base, least=2)
        bases, wanted = [base] * length, "length) with base**length"
    check_int64("digits", digits)
    check_readable("digits", digits)
    if digits.ndim < 1 or len(bases) != length or math.prod(bases) > 2**63:
        raise ValueError(
            f"digits must have shape (..., {wanted} at most 2**63, got shape {tuple(digits.shape)} in base {base}"
        )
    largest = torch.tensor([radix - 1 for radix in bases], dtype=torch.int64, device=digits.device)
    if bool(((digits < 0) | (digits > largest)).any()):
        limit = largest.tolist() if isinstance(base, (list, tuple)) else base - 1
        raise ValueError(f"digits must be from 0 to base - 1 = {limit}, got {digits.tolist()}")
    worth = [math.prod(bases[:t]) for t in range(length)]
    return (digits * torch.tensor(worth, dtype=torch.int64, device=digits.device)).sum(dim=-1)


def decode_position(encoding: Tensor, frequencies: Tensor) -> Tensor:
    r"""Read the position back from a sinusoidal encoding, as one reads a clock: slow hand first.

    The slowest pair gives a rough position; every faster pair knows the position more finely but only up to whole
    turns, and the pair before it says which turn. It works while the error of each angle stays below
    :math:`\pi/(1 + \omega_t/\omega_{t+1})`. (See chapter 03.)

    Args:
        encoding: ``(..., dim)`` with sine in the even and cosine in the odd channels, as from
            :func:`~rope_lessons.sinusoidal_encoding`; may be noisy, and scaled by a positive number.
        frequencies: float64 ``(dim/2,)`` that made it, decreasing, in radians per position.

    Returns:
        float64 tensor ``(...)``; right for positions from :math:`-\pi/\omega` to :math:`\pi/\omega` with
        :math:`\omega` the lowest frequency, and one of the aliases in that range for others.

    Raises:
        TypeError, ValueError: shapes that don't match; frequencies that don't decrease.

    Chapter 03 derives it.

    >>> from rope_lessons import sinusoidal_encoding
    >>> decode_position(sinusoidal_encoding(torch.tensor([0, 7, 4096]), 64), rope_frequencies(64)).round()
    tensor([   0.,    7., 4096.], dtype=torch.float64)
    """
    check_tensor("encoding", encoding)
    check_frequencies(frequencies, dims=(1,))
    check_device("frequencies", frequencies, encoding.device, like="encoding")
    check_readable("frequencies", frequencies)
    pairs = frequencies.shape[0]
    if encoding.ndim < 1 or encoding.shape[-1] != 2 * pairs:
        raise ValueError(
            f"encoding must have 2 * {pairs} channels for these frequencies, got shape {tuple(encoding.shape)}"
        )
    if not bool((frequencies > 0).all()) or bool((frequencies.diff() >= 0).any()):
        raise ValueError(f"frequencies must be positive and decrease, got {frequencies.tolist()}")
    sin, cos = encoding[..., 0::2].to(torch.float64), encoding[..., 1::2].to(torch.float64)
    fine = torch.atan2(sin, cos) / frequencies  # (..., dim/2): the position, up to whole turns of each pair
    period = 2 * math.pi / frequencies
    position = fine[..., -1]
    for t in range(frequencies.shape[0] - 2, -1, -1):
        turns = ((position - fine[..., t]) / period[t]).round()
        position = fine[..., t] + turns * period[t]
    return position


def pi_frequencies(
    dim: int, factor: float, base: float = 10_000.0, *, device: torch.device | str | None = None
) -> Tensor:
    r"""Position interpolation (PI): :math:`\omega_t / \kappa`, every pair slower by the same factor.

    Args:
        dim: number of channels :math:`d`; even.
        factor: :math:`\kappa`, by which the context is extended; positive.
        base: :math:`B`; positive.
        device: where the result lives.

    Returns:
        float64 tensor ``(dim/2,)``.

    Raises:
        TypeError, ValueError: odd ``dim``; ``factor`` or ``base`` not a positive finite number.

    Source: Chen et al. 2023 (arXiv 2306.15595), equation 4. Chapter 03.

    >>> pi_frequencies(4, factor=8)
    tensor([0.1250, 0.0013], dtype=torch.float64)
    """
    check_positive("factor", factor)
    return rope_frequencies(dim, base, device=device) / as_float(factor)


def ntk_frequencies(
    dim: int,
    factor: float,
    base: float = 10_000.0,
    variant: str = "fixed",
    *,
    device: torch.device | str | None = None,
) -> Tensor:
    r"""NTK-RoPE: write positions in base :math:`\beta\lambda` instead of :math:`\beta = B^{2/d}`.

    ========  =====================================  ==================  ===========================
    variant   frequency of pair t                    first ratio to ω₀   last ratio
    ========  =====================================  ==================  ===========================
    old       (βλ)^-t with λ = κ^(2/d)               1                   κ^-(1 - 2/d)
    fixed     (βλ)^-t / λ with λ = κ^(2/d)           κ^-(2/d)            1/κ
    aware     (βλ)^-t with λ = κ^(2/(d-2))           1                   1/κ
    ========  =====================================  ==================  ===========================

    Args:
        dim: number of channels :math:`d`; even, and at least 4 for ``"aware"``.
        factor: :math:`\kappa`, by which the context is extended; positive.
        base: :math:`B`; positive.
        variant: ``"old"``, ``"fixed"`` or ``"aware"`` (the form that most libraries call NTK-aware).
        device: where the result lives.

    Returns:
        float64 tensor ``(dim/2,)``.

    Raises:
        TypeError, ValueError: odd ``dim``; ``factor`` not positive; unknown ``variant``.

    Source: Su, articles 10 and 11 (spaces.ac.cn/archives/9675 and 9706); ``"aware"`` is the post by bloc97, 2023.
    Chapter 03.

    >>> ratio = ntk_frequencies(128, factor=8, variant="fixed") / rope_frequencies(128)
    >>> ratio[0], ratio[-1]
    (tensor(0.9680, dtype=torch.float64), tensor(0.1250, dtype=torch.float64))
    """
    check_choice("variant", variant, NTK_VARIANTS)
    check_dim(dim, least=4 if variant == "aware" else 2)
    check_positive("base", base)
    check_positive("factor", factor)
    if variant == "aware":
        return rope_frequencies(dim, _larger_base(base, factor, dim / (dim - 2)), device=device)
    frequencies = rope_frequencies(dim, _larger_base(base, factor), device=device)
    return frequencies / factor ** (2 / dim) if variant == "fixed" else frequencies


def _larger_base(base: float, times: float, power: float = 1.0) -> float:
    """``base * times**power``, of checked numbers."""
    try:
        larger = base * times**power
    except OverflowError:
        larger = math.inf
    if not TINIEST <= larger <= MOST:
        raise ValueError(f"factor must be smaller with a base of {base}: {times:g}**{power:g} times it is {larger}")
    return larger


def dynamic_ntk_frequencies(
    dim: int,
    length: int,
    train_length: int,
    factor: float,
    base: float = 10_000.0,
    *,
    device: torch.device | str | None = None,
) -> Tensor:
    r"""Dynamic NTK: the NTK-aware base with a factor that grows with the text.

    The base is multiplied by :math:`(\kappa L/N - (\kappa - 1))^{d/(d-2)}` once the length :math:`L` exceeds the
    training length :math:`N`; up to :math:`N` the frequencies are those of RoPE.

    Args:
        dim: number of channels :math:`d`; even, at least 4.
        length: :math:`L`, number of tokens so far (the largest position plus 1).
        train_length: :math:`N`.
        factor: :math:`\kappa`; positive.
        base: :math:`B`; positive.
        device: where the result lives.

    Returns:
        float64 tensor ``(dim/2,)``.

    Raises:
        TypeError, ValueError: odd ``dim``; a length below 1; ``factor`` not positive.

    Source: emozilla, 2023, as in Hugging Face transformers (``rope_type="dynamic"``). Chapter 03.

    >>> dynamic_ntk_frequencies(4, length=1024, train_length=512, factor=2)
    tensor([1.0000, 0.0033], dtype=torch.float64)
    """
    check_dim(dim, least=4)
    check_count("length", length, least=1)
    check_count("train_length", train_length, least=1)
    check_positive("base", base)
    check_positive("factor", factor)
    if length <= train_length:
        return rope_frequencies(dim, base, device=device)
    growth = factor * length / train_length - (factor - 1)
    return rope_frequencies(dim, _larger_base(base, growth, dim / (dim - 2)), device=device)
