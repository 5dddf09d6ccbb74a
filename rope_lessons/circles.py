"""Circles: which pairs have been all the way round within the training length, and what to do with the others.

NTK-by-parts, YaRN, Llama-3's rule and LongRoPE. Derived in chapter 05.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from rope_lessons._checks import (
    as_float,
    check_bool,
    check_count,
    check_frequencies,
    check_not_negative,
    check_positive,
)
from rope_lessons.sinusoidal import rope_frequencies


def turns(frequencies: Tensor, length: int) -> Tensor:
    r"""How often each pair goes round within a length: :math:`\tau_t = L\,\omega_t / 2\pi`.

    Below 1, some angles of the pair are never seen within the length.

    Args:
        frequencies: float64 ``(dim/2,)`` or ``(heads, dim/2)``, in radians per position.
        length: :math:`L`, number of positions.

    Returns:
        float64 tensor of the same shape.

    Raises:
        TypeError, ValueError: frequencies of another dtype or shape; a ``length`` below 1.

    Source: Peng et al. 2023 (arXiv 2309.00071). Chapter 05.

    >>> turns(rope_frequencies(8), length=512)
    tensor([81.4873,  8.1487,  0.8149,  0.0815], dtype=torch.float64)
    """
    check_frequencies(frequencies)
    check_count("length", length, least=1)
    return frequencies * length / (2 * math.pi)


def _slow_down(frequencies: Tensor, kept: Tensor, factor: float) -> Tensor:
    """A share ``kept`` (1: all, 0: nothing) of each pair's own speed, the rest of it divided by the factor."""
    return frequencies * (kept + (1 - kept) / as_float(factor))


def ntk_by_parts_frequencies(
    dim: int,
    factor: float,
    train_length: int,
    base: float = 10_000.0,
    alpha: float = 1.0,
    beta: float = 32.0,
    *,
    device: torch.device | str | None = None,
) -> Tensor:
    r"""NTK-by-parts: pairs that went round often keep their speed, pairs that never did are interpolated.

    With :math:`\tau_t` turns within the training length (:func:`~rope_lessons.circles.turns`), a share
    :math:`\mu_t = (\tau_t - \alpha)/(\beta - \alpha)`, cut to 0 … 1, of the speed is kept:

    .. math:: \omega'_t = \bigl(\mu_t + (1 - \mu_t)/\kappa\bigr)\,\omega_t.

    The ramp is linear in the number of turns, as in the paper. The code that most libraries share has another one:
    see :func:`yarn_frequencies`.

    Args:
        dim: number of channels :math:`d`; even.
        factor: :math:`\kappa`, by which the context is extended; positive.
        train_length: :math:`N`.
        base: :math:`B`; positive.
        alpha: turns up to which a pair is interpolated like PI; at least 0.
        beta: turns from which on a pair keeps its speed; above ``alpha``.
        device: where the result lives.

    Returns:
        float64 tensor ``(dim/2,)``.

    Raises:
        TypeError, ValueError: odd ``dim``; ``factor`` or ``base`` not positive; ``train_length`` below 1; ``beta``
            not above ``alpha``.

    Source: Peng et al. 2023 (arXiv 2309.00071), with its values for LLaMA (:math:`\alpha = 1`,
    :math:`\beta = 32`). Chapter 05.

    >>> ntk_by_parts_frequencies(8, factor=8, train_length=512) / rope_frequencies(8)
    tensor([1.0000, 0.3268, 0.1250, 0.1250], dtype=torch.float64)
    """
    check_positive("factor", factor)
    check_count("train_length", train_length, least=1)
    check_not_negative("alpha", alpha)
    check_positive("beta", beta)
    if beta <= alpha:
        raise ValueError(f"beta must be above alpha = {alpha}, got {beta}")
    frequencies = rope_frequencies(dim, base, device=device)
    kept = ((turns(frequencies, train_length) - as_float(alpha)) / (as_float(beta) - as_float(alpha))).clamp(0, 1)
    return _slow_down(frequencies, kept, factor)


def yarn_frequencies(
    dim: int,
    factor: float,
    train_length: int,
    base: float = 10_000.0,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
    *,
    device: torch.device | str | None = None,
) -> Tensor:
    r"""YaRN's frequencies as common code has them: NTK-by-parts with a ramp that is linear in the pair's number.

    A pair that goes round :math:`\tau` times would have the number :math:`t(\tau) = d\,\ln(N/2\pi\tau) / (2\ln B)`.
    Up to :math:`t(\beta_\text{fast})` pairs keep their speed, from :math:`t(\beta_\text{slow})` on they are
    interpolated, and in between the share kept falls linearly in :math:`t`, so in the *logarithm* of the turns. The
    paper's ramp (:func:`ntk_by_parts_frequencies`) is linear in the turns themselves: between the two ends they
    differ.

    Three details of the code are kept, since models are trained and served with it:

    - ``truncate`` rounds the two ends outwards to whole pair numbers.
    - The ends are cut to 0 … :math:`d - 1` (although the last pair has the number :math:`d/2 - 1`). So where no pair
      makes :math:`\beta_\text{fast}` turns, as with a short training length, pair 0 keeps its speed all the same.
    - If both ends are equal, the upper one is moved up by 0.001.

    Where the cut puts the ends in the wrong order, the code's ramp runs backwards: that is an error here.

    The scores are also scaled: see :func:`yarn_attention_factor`.

    Args:
        dim: number of channels :math:`d`; even.
        factor: :math:`\kappa`, by which the context is extended; positive.
        train_length: :math:`N`, before the extension (``original_max_position_embeddings``).
        base: :math:`B`; above 1.
        beta_fast: turns from which on a pair keeps its speed; at least ``beta_slow``.
        beta_slow: turns up to which a pair is interpolated; positive.
        truncate: round the ends of the ramp.
        device: where the result lives.

    Returns:
        float64 tensor ``(dim/2,)``.

    Raises:
        TypeError, ValueError: odd ``dim``; ``factor`` not positive; ``base`` at most 1; ``beta_fast`` below
            ``beta_slow``; values for which the code's ramp runs backwards.

    Source: the paper's repository, jquesnelle/yarn, and Hugging Face transformers (``rope_type="yarn"``). Chapter 05.

    >>> yarn_frequencies(8, factor=8, train_length=512) / rope_frequencies(8)
    tensor([1.0000, 0.5625, 0.1250, 0.1250], dtype=torch.float64)
    """
    check_positive("factor", factor)
    check_count("train_length", train_length, least=1)
    check_positive("base", base)
    check_positive("beta_fast", beta_fast)
    check_positive("beta_slow", beta_slow)
    check_bool("truncate", truncate)
    if base <= 1:
        raise ValueError(f"base must be above 1 (pairs must differ in speed), got {base}")
    if beta_fast < beta_slow:
        raise ValueError(f"beta_fast must be at least beta_slow = {beta_slow}, got {beta_fast}")
    frequencies = rope_frequencies(dim, base, device=device)

    def pair_number(turns: float) -> float:
        ratio = train_length / (turns * 2 * math.pi)
        if not ratio > 0:
            raise ValueError(f"beta_fast must be smaller: train_length / (2π beta_fast) is 0, got {beta_fast}")
        return dim * math.log(ratio) / (2 * math.log(base))

    first, last = pair_number(beta_fast), pair_number(beta_slow)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    if first > last:
        raise ValueError(
            f"train_length must be such that the common code's ramp does not run backwards (here from pair {first} to "
            f"pair {last}; ntk_by_parts_frequencies has no such limit), got {train_length}"
        )
    if first == last:
        last += 0.001
    t = torch.arange(dim // 2, dtype=torch.float64, device=frequencies.device)
    kept = 1 - ((t - first) / (last - first)).clamp(0, 1)
    return _slow_down(frequencies, kept, factor)


def yarn_attention_factor(factor: float, mscale: float = 1.0) -> float:
    r"""YaRN's attention factor :math:`0.1\,\ln\kappa + 1`: multiplies turned queries *and* keys.

    So every logit is multiplied by its square, once: at :math:`\kappa = 8` by 1.46. It is 1 for :math:`\kappa \le 1`,
    as in common code (the formula would go on below 1).

    DeepSeek's variant divides two of them: ``yarn_attention_factor(factor, mscale) /
    yarn_attention_factor(factor, mscale_all_dim)``.

    Args:
        factor: :math:`\kappa`, by which the context is extended; positive.
        mscale: multiplies the logarithm; positive.

    Returns:
        float, to be used as ``rotary_scale`` of a :class:`~rope_lessons.Scheme`.

    Raises:
        TypeError, ValueError: ``factor`` or ``mscale`` not positive.

    Source: Peng et al. 2023 (arXiv 2309.00071). Chapter 05.

    >>> round(yarn_attention_factor(8), 4), round(yarn_attention_factor(8) ** 2, 4)
    (1.2079, 1.4591)
    """
    check_positive("factor", factor)
    check_positive("mscale", mscale)
    return 0.1 * as_float(mscale) * math.log(factor) + 1 if factor > 1 else 1.0


def llama3_frequencies(
    dim: int,
    factor: float,
    train_length: int,
    base: float = 10_000.0,
    low_freq_factor: float = 1.0,
    high_freq_factor: float = 4.0,
    *,
    device: torch.device | str | None = None,
) -> Tensor:
    r"""Llama 3's rule: NTK-by-parts with :math:`\beta = 4` turns instead of 32.

    Its code compares wavelengths :math:`2\pi/\omega_t` with :math:`N/4` and :math:`N`. Read as turns that is the
    *paper's* ramp, :func:`ntk_by_parts_frequencies` with ``alpha=low_freq_factor`` and ``beta=high_freq_factor``. It
    has no attention factor.

    Args:
        dim: number of channels :math:`d`; even.
        factor: :math:`\kappa`; positive. Llama 3.1 has 8.
        train_length: :math:`N`. Llama 3.1 has 8192.
        base: :math:`B`; positive. Llama 3 has 500,000; the default is that of all functions here.
        low_freq_factor: turns up to which a pair is interpolated; positive.
        high_freq_factor: turns from which on a pair keeps its speed; above ``low_freq_factor``.
        device: where the result lives.

    Returns:
        float64 tensor ``(dim/2,)``.

    Raises:
        TypeError, ValueError: as :func:`ntk_by_parts_frequencies`; ``high_freq_factor`` not above ``low_freq_factor``.

    Source: Llama 3.1's code, and Hugging Face transformers (``rope_type="llama3"``). Chapter 05.

    >>> ratio = llama3_frequencies(128, factor=8, train_length=8192, base=500_000) / rope_frequencies(128, 500_000)
    >>> ratio[28:37]
    tensor([1.0000, 0.8282, 0.6437, 0.4935, 0.3711, 0.2714, 0.1902, 0.1250, 0.1250],
           dtype=torch.float64)
    """
    check_positive("low_freq_factor", low_freq_factor)
    check_positive("high_freq_factor", high_freq_factor)
    if high_freq_factor <= low_freq_factor:
        raise ValueError(f"high_freq_factor must be above low_freq_factor = {low_freq_factor}, got {high_freq_factor}")
    return ntk_by_parts_frequencies(
        dim, factor, train_length, base, alpha=low_freq_factor, beta=high_freq_factor, device=device
    )


def longrope_frequencies(
    dim: int,
    short_factor: Sequence[float],
    long_factor: Sequence[float],
    length: int,
    train_length: int,
    base: float = 10_000.0,
    *,
    device: torch.device | str | None = None,
) -> Tensor:
    r"""LongRoPE: every pair has its own factor, found by search, and there are two sets of them.

    :math:`\omega'_t = \omega_t / \kappa_t`, with the short factors up to the training length and the long ones beyond.
    A text that grows past it changes all its frequencies at once: keys turned before do not fit queries turned after.

    Args:
        dim: number of channels :math:`d`; even.
        short_factor: ``dim/2`` positive numbers, used while ``length`` is at most ``train_length``.
        long_factor: ``dim/2`` positive numbers, used beyond.
        length: :math:`L`, number of tokens so far (the largest position plus 1).
        train_length: :math:`N`, before the extension (``original_max_position_embeddings``).
        base: :math:`B`; positive.
        device: where the result lives.

    Returns:
        float64 tensor ``(dim/2,)``.

    Raises:
        TypeError, ValueError: factors that are not a list or tuple of ``dim/2`` positive numbers; a length below 1.

    Source: Ding et al. 2024 (arXiv 2402.13753), and Hugging Face transformers (``rope_type="longrope"``). Chapter 05.

    >>> longrope_frequencies(4, short_factor=(1, 1), long_factor=(1, 8), length=512, train_length=512)
    tensor([1.0000, 0.0100], dtype=torch.float64)
    >>> longrope_frequencies(4, short_factor=(1, 1), long_factor=(1, 8), length=513, train_length=512)
    tensor([1.0000, 0.0013], dtype=torch.float64)
    """
    check_count("length", length, least=1)
    check_count("train_length", train_length, least=1)
    frequencies = rope_frequencies(dim, base, device=device)
    for name, factors in (("short_factor", short_factor), ("long_factor", long_factor)):
        if not isinstance(factors, (list, tuple)):
            raise TypeError(f"{name} must be a list or tuple of dim/2 numbers, got {type(factors).__name__}")
        if len(factors) != dim // 2:
            raise ValueError(f"{name} must have dim/2 = {dim // 2} numbers, got {len(factors)}")
        for t, factor in enumerate(factors):
            check_positive(f"{name}[{t}]", factor)
    factors = long_factor if length > train_length else short_factor
    divisors = [as_float(factor) for factor in factors]
    return frequencies / torch.tensor(divisors, dtype=torch.float64, device=frequencies.device)


def longrope_attention_factor(factor: float, train_length: int) -> float:
    r"""LongRoPE's attention factor :math:`\sqrt{1 + \ln\kappa/\ln N}`: multiplies turned queries *and* keys.

    So the logits get :math:`1 + \ln\kappa/\ln N = \log_N(\kappa N)`: the scale of
    :func:`~rope_lessons.log_n_scale` at the extended length, for every query alike. It is 1 for
    :math:`\kappa \le 1`, as in common code.

    Args:
        factor: :math:`\kappa`, by which the context is extended; positive.
        train_length: :math:`N`, at least 2.

    Returns:
        float, to be used as ``rotary_scale`` of a :class:`~rope_lessons.Scheme`.

    Raises:
        TypeError, ValueError: ``factor`` not positive; ``train_length`` below 2.

    Source: Hugging Face transformers (``rope_type="longrope"``). Chapter 05.

    >>> round(longrope_attention_factor(32, train_length=4096), 4)
    1.1902
    """
    check_positive("factor", factor)
    check_count("train_length", train_length, least=2)
    return math.sqrt(1 + math.log(factor) / math.log(train_length)) if factor > 1 else 1.0


def proportional_frequencies(
    dim: int,
    share: float = 1.0,
    factor: float = 1.0,
    base: float = 10_000.0,
    *,
    device: torch.device | str | None = None,
) -> Tensor:
    r"""Proportional RoPE: the fast pairs keep their place among all pairs, and the slow ones do not turn at all.

    .. math::

        \omega'_t = \begin{cases} \omega_t / \kappa & t < \lfloor s\,d/2 \rfloor \\ 0 & \text{otherwise.} \end{cases}

    The slow pairs, which over a long text turn to angles that no training showed, are left to content alone: what they
    add to a score does not depend on the distance. Turning only a part of the channels is something else: there the
    few pairs that turn span all speeds, from the fastest to the slowest. Gemma 4 has it in the layers that see
    everything, with :math:`s = 1/4`.

    Args:
        dim: number of channels :math:`d`, the still ones among them; even.
        share: :math:`s`, of the pairs that turn; above 0, at most 1, and large enough for one pair.
        factor: :math:`\kappa`, by which their positions are interpolated; positive.
        base: :math:`B`; positive.
        device: where the result lives.

    Returns:
        float64 tensor ``(dim/2,)``.

    Raises:
        TypeError, ValueError: odd ``dim``; a ``share`` outside (0, 1] or for no pair; ``factor`` or ``base`` not
            positive.

    Source: Barbero et al. 2024 (arXiv 2410.06205), who call it p-RoPE; the factor is that of transformers' rope type
    ``"proportional"``, and Gemma 4's share the default of its class ``Gemma4TextConfig`` there. Chapter 05.

    >>> proportional_frequencies(8, share=0.5)
    tensor([1.0000, 0.1000, 0.0000, 0.0000], dtype=torch.float64)
    """
    check_positive("share", share)
    check_positive("factor", factor)
    frequencies = rope_frequencies(dim, base, device=device) / as_float(factor)
    turning = int(min(share, 1) * dim // 2)
    if share > 1 or turning < 1:
        raise ValueError(f"share must be at most 1, and of dim = {dim} leave a pair or more to turn, got {share}")
    frequencies[turning:] = 0
    return frequencies
