"""Other ways to say how far away a key is: biases on the scores, for ``bias=``, and xPos. Derived in chapter 14."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from rope_lessons._checks import (
    as_float,
    check_bool,
    check_count,
    check_device,
    check_dim,
    check_frequencies,
    check_heads,
    check_int64,
    check_parts,
    check_positive,
    check_size,
    check_tensor,
    device_named,
    shown,
)
from rope_lessons._float64 import float64_device
from rope_lessons.rotary import apply_rotary

MOST_FIRE = 1e9  # of FIRE's two numbers: in float32, one more and the logarithms lose the distances


def distances(q_len: int, k_len: int | None = None, *, device: torch.device | str | None = None) -> Tensor:
    r"""Distances :math:`m - n` from each key to each query, where the queries are the last of the tokens.

    Args:
        q_len: number of queries.
        k_len: number of keys, at least ``q_len``; as many by default.
        device: where the result lives.

    Returns:
        int64 tensor ``(q_len, k_len)``; negative for keys that come later.

    Raises:
        TypeError, ValueError: lengths that are not ints of at least 1; fewer keys than queries.

    Chapter 14.

    >>> distances(2, 3)
    tensor([[ 1,  0, -1],
            [ 2,  1,  0]])
    """
    check_count("q_len", q_len, least=1)
    k_len = q_len if k_len is None else k_len
    check_count("k_len", k_len, least=1)
    if k_len < q_len:
        raise ValueError(f"k_len must be at least q_len = {q_len}, got {k_len}")
    check_size("q_len times k_len", q_len * k_len)
    keys = torch.arange(k_len, device=device_named(device))
    return keys[k_len - q_len :].unsqueeze(1) - keys


# --- tables: one learned number for each distance, or for a range of them --------------------------------------------


def t5_buckets(distance: Tensor, *, buckets: int = 32, farthest: int = 128, causal: bool = True) -> Tensor:
    r"""The bucket of each distance, as T5 sorts them: half of the buckets hold one distance each, the others grow with
    the logarithm, and the last takes everything from ``farthest`` on.

    With :math:`h = \text{buckets}/2`: bucket :math:`\Delta` for :math:`\Delta < h`, and beyond
    :math:`h + \lfloor h \ln(\Delta/h) / \ln(\text{farthest}/h) \rfloor`, at most ``buckets - 1``. Where ``causal`` is
    False each side has half of the buckets, those of later keys behind.

    Args:
        distance: int64, query minus key, of any shape; later keys count as distance 0 when ``causal``.
        buckets: how many; a multiple of 2, of 4 when not causal.
        farthest: the distance from which on there is one bucket; above the number of buckets of one distance.
        causal: keys come before their query.

    Returns:
        int64 tensor like ``distance``, from 0 to ``buckets - 1``.

    Raises:
        TypeError, ValueError: distances that are not int64; numbers out of range.

    Source: Raffel et al. 2020 (arXiv 1910.10683), section 2.1, and transformers' T5, with which it agrees bit for bit.
    Chapter 14.

    >>> t5_buckets(torch.tensor([0, 1, 15, 16, 20, 127, 128, 1000]))
    tensor([ 0,  1, 15, 16, 17, 31, 31, 31])
    """
    check_int64("distance", distance)
    check_bool("causal", causal)
    check_count("buckets", buckets, least=2 if causal else 4)
    if buckets % (2 if causal else 4):
        raise ValueError(f"buckets must be a multiple of {2 if causal else 4}, got {buckets}")
    own = buckets if causal else buckets // 2
    single = own // 2
    check_count("farthest", farthest, least=1)
    if farthest <= single:
        raise ValueError(f"farthest must be above the {single} buckets of one distance, got {farthest}")
    away = distance.clamp(min=0) if causal else distance.abs()
    # in float32, as in T5: at the edges of buckets the rounding decides
    grown = torch.log(away.clamp(min=1).float() / single) / math.log(farthest / single) * (own - single)
    bucket = torch.where(away < single, away, (single + grown.long()).clamp(max=own - 1))
    return bucket if causal else bucket + own * (distance < 0)


def t5_bias(distance: Tensor, table: Tensor, *, farthest: int = 128, causal: bool = True) -> Tensor:
    r"""T5's bias: one learned number for each head and bucket. T5 does not divide its scores by :math:`\sqrt d`; take
    a scheme with ``base_scale=1`` for that.

    Args:
        distance: int64 ``(q_len, k_len)``, of :func:`distances`.
        table: ``(buckets, heads)``, learned.
        farthest, causal: as for :func:`t5_buckets`.

    Returns:
        tensor ``(heads, q_len, k_len)`` of the dtype of the table. Gradients flow to it.

    Raises:
        TypeError, ValueError: a table or distances of another shape or dtype; as :func:`t5_buckets`.

    Source: Raffel et al. 2020 (arXiv 1910.10683). Chapter 14.

    >>> t5_bias(distances(3), torch.arange(32.0).unsqueeze(1))[0]
    tensor([[0., 0., 0.],
            [1., 0., 0.],
            [2., 1., 0.]])
    """
    _check_matrix(distance)
    check_tensor("table", table)
    if table.ndim != 2 or table.shape[0] % 2 or not table.shape[0]:
        raise ValueError(f"table must have shape (buckets, heads), an even number of buckets, got {tuple(table.shape)}")
    check_device("table", table, distance.device, like="distance")
    return table[t5_buckets(distance, buckets=table.shape[0], farthest=farthest, causal=causal)].movedim(-1, 0)


def shaw_bias(q: Tensor, table: Tensor, distance: Tensor) -> Tensor:
    r"""Shaw's relative keys as a bias: :math:`\langle\mathbf{q}_i, \mathbf{a}_{c}\rangle/\sqrt d`, where :math:`c` is
    :math:`n - m`, cut off at :math:`\pm k`.

    Args:
        q: ``(batch, heads, q_len, head_dim)``.
        table: ``(2k + 1, head_dim)``, learned: the vectors of :math:`-k, \dots, k`.
        distance: int64 ``(q_len, k_len)``, of :func:`distances`.

    Returns:
        tensor ``(batch, heads, q_len, k_len)`` of the dtype of ``q``.

    Raises:
        TypeError, ValueError: tensors of other shapes; a table with an even number of rows.

    Source: Shaw et al. 2018 (arXiv 1803.02155), equations 2 and 4 (the keys; the relative values are no bias).
    Chapter 14.

    >>> q, table = torch.ones(1, 1, 3, 4), torch.arange(-1.0, 2.0).unsqueeze(1).expand(3, 4)
    >>> shaw_bias(q, table, distances(3))[0, 0]
    tensor([[ 0.,  2.,  2.],
            [-2.,  0.,  2.],
            [-2., -2.,  0.]])
    """
    check_heads("q", q)
    _check_matrix(distance)
    check_tensor("table", table)
    if table.ndim != 2 or table.shape[1] != q.shape[3] or table.shape[0] % 2 == 0:
        raise ValueError(f"table must have shape (2k + 1, {q.shape[3]}) to match q, got {tuple(table.shape)}")
    if distance.shape[0] != q.shape[2]:
        raise ValueError(f"distance must have shape ({q.shape[2]}, k_len) to match q, got {tuple(distance.shape)}")
    for name, tensor in (("table", table), ("distance", distance)):
        check_device(name, tensor, q.device, like="q")
    most = table.shape[0] // 2
    at = (-distance).clamp(-most, most) + most  # (q_len, k_len)
    scores = q @ table.to(q.dtype).T / q.shape[3] ** 0.5  # (batch, heads, q_len, 2k + 1)
    return scores.gather(-1, at.expand(*q.shape[:2], *at.shape))


# --- formulas: a number or two for each head -------------------------------------------------------------------------


def kerple_log_bias(distance: Tensor, amount: Tensor, rate: Tensor) -> Tensor:
    r"""KERPLE's logarithmic kernel: :math:`-r_1 \ln(1 + r_2\,\lvert m - n\rvert)`.

    Args:
        distance: int64 ``(q_len, k_len)``, of :func:`distances`.
        amount, rate: :math:`r_1` and :math:`r_2` of each head, ``(heads,)``, positive, learned.

    Returns:
        tensor ``(heads, q_len, k_len)`` of their dtype. Gradients flow to both.

    Raises:
        TypeError, ValueError: tensors of other shapes or dtypes.

    Source: Chi et al. 2022 (arXiv 2205.09921), table 1, and the code of GPT-NeoX. Chapter 14.

    >>> kerple_log_bias(distances(3), torch.ones(1), torch.ones(1))[0, -1]  # -log 3, -log 2, 0
    tensor([-1.0986, -0.6931, -0.0000])
    """
    away = _per_head(distance, amount=amount, rate=rate)
    return -amount.view(-1, 1, 1) * torch.log1p(rate.view(-1, 1, 1) * away)


def kerple_power_bias(distance: Tensor, amount: Tensor, power: Tensor) -> Tensor:
    r"""KERPLE's power kernel: :math:`-r_1 \lvert m - n\rvert^{r_2}`. ALiBi is the case :math:`r_2 = 1`.

    Args:
        distance: int64 ``(q_len, k_len)``, of :func:`distances`.
        amount, power: :math:`r_1` and :math:`r_2` of each head, ``(heads,)``; positive, the power at most 2; learned.

    Returns:
        tensor ``(heads, q_len, k_len)`` of their dtype. Gradients flow to both.

    Raises:
        TypeError, ValueError: tensors of other shapes or dtypes.

    Source: Chi et al. 2022 (arXiv 2205.09921), table 1, and the code of GPT-NeoX. Chapter 14.

    >>> kerple_power_bias(distances(3), torch.ones(1), torch.full((1,), 0.5))[0, -1]
    tensor([-1.4142, -1.0000, -0.0000])
    """
    away = _per_head(distance, amount=amount, power=power)
    # 0 to a power has no gradient towards the power that is a number: log 0. Its bias is 0 whatever the power.
    safe = away.clamp(min=1)
    return -amount.view(-1, 1, 1) * torch.where(away == 0, 0.0, safe ** power.view(-1, 1, 1))


def sandwich_bias(distance: Tensor, heads: int, *, dim: int = 128, base: float = 10_000.0) -> Tensor:
    r"""Sandwich: the kernel of sinusoidal positions as a bias, less its height at distance 0, and flatter from head to
    head.

    .. math:: b_h(\Delta) = \frac{H}{8h} \Big( \sum_{t=1}^{d/2} \cos\big(\Delta\, B^{-2t/d}\big) - \frac{d}{2} \Big)

    Args:
        distance: int64 ``(q_len, k_len)``, of :func:`distances`.
        heads: :math:`H`.
        dim: :math:`d`, how many sines and cosines the kernel has; a number of its own, no head dimension.
        base: :math:`B`.

    Returns:
        float64 tensor ``(heads, q_len, k_len)``.

    Raises:
        TypeError, ValueError: distances that are not int64; numbers out of range.

    Source: Chi et al. 2023 (arXiv 2212.10356), and NVIDIA NeMo's implementation, whose sum begins at :math:`t = 1`.
    Chapter 14; the kernel is that of chapter 1.

    >>> sandwich_bias(distances(3), 1)[0, -1]
    tensor([-0.6502, -0.1808,  0.0000], dtype=torch.float64)
    """
    _check_matrix(distance)
    check_parts("heads", heads)
    check_dim(dim)
    check_positive("base", base)
    where = distance.to(float64_device(distance.device)).to(torch.float64)
    kernel = torch.zeros_like(where)
    for t in range(1, dim // 2 + 1):  # one at a time: no tensor over all of them
        kernel += torch.cos(where * base ** (-2 * t / dim)) - 1
    flatter = 8 / heads * torch.arange(1, heads + 1, device=kernel.device, dtype=torch.float64)
    return kernel / flatter.view(-1, 1, 1)


def fire_bias(
    distance: Tensor, mlp: Callable[[Tensor], Tensor], *, rate: Tensor | float, threshold: Tensor | float
) -> Tensor:
    r"""FIRE: a small network of the distance as a share of the longest one,

    .. math:: b(m, n) = f_\theta\!\left(\frac{\psi(m - n)}{\psi(\max(m, L))}\right), \qquad \psi(x) = \ln(cx + 1)

    so that its input is never above 1, however long the text.

    Args:
        distance: int64 ``(q_len, k_len)``, of :func:`distances` (the position of a query is its largest distance).
        mlp: :math:`f_\theta`, ``(..., 1)`` to ``(..., heads)``.
        rate: :math:`c`, positive; learned where it is a tensor.
        threshold: :math:`L`, positive: up to it the divisor stays the same; learned where it is a tensor.

    Returns:
        tensor ``(heads, q_len, k_len)``.

    Raises:
        TypeError, ValueError: distances that are not int64; a rate or threshold that is not positive; a network of
            another shape.

    Source: Li et al. 2024 (arXiv 2310.04418), equation 8 and the code in its appendix. Chapter 14.

    >>> fire_bias(distances(3), lambda share: -share, rate=1.0, threshold=1.0)[0]
    tensor([[-0.0000, -1.0000, -1.5850],
            [-1.0000, -0.0000, -1.0000],
            [-1.0000, -0.6309, -0.0000]])
    """
    _check_matrix(distance)
    for name, value in (("rate", rate), ("threshold", threshold)):
        if not isinstance(value, Tensor):
            check_positive(name, value)
            if value > MOST_FIRE:
                raise ValueError(f"{name} must be at most {MOST_FIRE:g}, got {shown(value)}")
        elif value.numel() != 1 or not value.is_floating_point():
            raise ValueError(f"{name} must be one floating-point number, got {value.dtype} of {tuple(value.shape)}")
    if not callable(mlp):
        raise TypeError(f"mlp must be a function of a tensor, got {shown(mlp)}")
    away = distance.abs().float()
    at = distance[:, :1].float()  # position of the query: its distance from the first token
    most = torch.maximum(at, torch.as_tensor(threshold, dtype=at.dtype, device=at.device))
    share = torch.log1p(rate * away) / torch.log1p(rate * most)
    made = mlp(share.unsqueeze(-1))
    if not isinstance(made, Tensor):
        raise TypeError(f"mlp must give a tensor, got {type(made).__name__}")
    if made.ndim != 3 or made.shape[:2] != distance.shape:
        raise ValueError(f"mlp must give ({distance.shape[0]}, {distance.shape[1]}, heads), got {tuple(made.shape)}")
    return made.movedim(-1, 0)


# --- xPos ------------------------------------------------------------------------------------------------------------


def apply_xpos(
    q: Tensor,
    k: Tensor,
    positions: Tensor,
    frequencies: Tensor,
    *,
    layout: str,
    gamma: float = 0.4,
    scale_base: float = 512.0,
) -> tuple[Tensor, Tensor]:
    r"""xPos: RoPE whose pairs fade with the distance. Pair :math:`t` of the score is multiplied by

    .. math:: \zeta_t^{(m-n)/512}, \qquad \zeta_t = \frac{2t/d + \gamma}{1 + \gamma}

    so that the fast pairs, whose cosines swing most, fade first. The query gets :math:`\zeta_t^{m/512}`, the key
    :math:`\zeta_t^{-n/512}`; both are counted from the middle of the text, so that neither overflows early. The middle
    moves as a text grows: keys of a cache, turned in an earlier call, do not fit those of a later one. Causal only:
    towards later keys the factor grows.

    Args:
        q, k: queries and keys of the same tokens, ``(..., seq, head_dim)``.
        positions: int64 ``(seq,)``.
        frequencies: float64 ``(dim/2,)``.
        layout: as for :func:`~rope_lessons.apply_rotary`.
        gamma: :math:`\gamma`.
        scale_base: positions over which a pair fades by :math:`\zeta_t`.

    Returns:
        both, turned; attention over them needs no further positions (``scheme("nope")``).

    Raises:
        TypeError, ValueError: as :func:`~rope_lessons.apply_rotary`; numbers that are not positive.

    Source: Sun et al. 2023 (arXiv 2212.10554), section 2.2, and the published code. Chapter 14.

    >>> from rope_lessons import rope_frequencies
    >>> x = torch.tensor([[1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0]])
    >>> q, k = apply_xpos(x, x, torch.tensor([0, 512]), rope_frequencies(4), layout="interleaved")
    >>> (q[1, :2] * k[0, :2]).sum() / torch.tensor(512.0).cos()  # 0.4 / 1.4
    tensor(0.2857)
    """
    check_positive("gamma", gamma)
    check_positive("scale_base", scale_base)
    check_int64("positions", positions)
    check_frequencies(frequencies)
    if frequencies.ndim != 1:
        raise ValueError(f"frequencies must have shape (dim/2,), got {tuple(frequencies.shape)}")
    if positions.ndim != 1:
        raise ValueError(f"positions must have shape (seq,), got {tuple(positions.shape)}")
    for name, x in (("q", q), ("k", k)):
        check_tensor(name, x)
        if x.ndim < 2 or x.shape[-2] != len(positions) or x.shape[-1] < 2 * len(frequencies):
            raise ValueError(
                f"{name} must have shape (..., {len(positions)}, head_dim), the tokens of positions, with at least "
                f"{2 * len(frequencies)} channels, got {tuple(x.shape)}"
            )
        check_device(name, x, positions.device, like="positions")
    turned = [apply_rotary(x, positions, frequencies, layout=layout) for x in (q, k)]
    gamma, scale_base, pairs = as_float(gamma), as_float(scale_base), frequencies.shape[0]
    zeta = (torch.arange(pairs, dtype=torch.float64, device=frequencies.device) / pairs + gamma) / (1 + gamma)
    where = positions.to(zeta.device).to(torch.float64)
    power = (where - (where.min() + where.max()) / 2) / scale_base
    fade = zeta ** power.unsqueeze(-1)  # (seq, pairs)
    fade = fade.repeat_interleave(2, -1) if layout == "interleaved" else fade.repeat(1, 2)
    rest = torch.ones(fade.shape[0], q.shape[-1] - fade.shape[-1], dtype=fade.dtype, device=fade.device)
    factor = torch.cat((fade, rest), -1)
    work = torch.float64 if q.dtype == torch.float64 else torch.float32
    return (
        (turned[0].to(work) * factor.to(work).to(q.device)).to(q.dtype),
        (turned[1].to(work) * (1 / factor).to(work).to(k.device)).to(k.dtype),
    )


# --- checks ----------------------------------------------------------------------------------------------------------


def _check_matrix(distance: Tensor) -> None:
    check_int64("distance", distance)
    if distance.ndim != 2:
        raise ValueError(f"distance must have shape (q_len, k_len), got {tuple(distance.shape)}")


def _per_head(distance: Tensor, **numbers: Tensor) -> Tensor:
    """The distances without sign, in the dtype of the numbers of each head, which are checked."""
    _check_matrix(distance)
    first, like = next(iter(numbers.items()))
    for name, tensor in numbers.items():
        check_tensor(name, tensor)
        check_device(name, tensor, distance.device, like="distance")
        if tensor.ndim != 1 or tensor.shape != like.shape or tensor.dtype != like.dtype:
            raise ValueError(
                f"{name} must have shape (heads,), and the shape and dtype of {first} ({tuple(like.shape)}, "
                f"{like.dtype}), got {tuple(tensor.shape)}, {tensor.dtype}"
            )
    return distance.abs().to(like.dtype)
