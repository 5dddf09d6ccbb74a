"""Who may see whom, and ALiBi: masks as FlexAttention mask functions ``(batch, head, query, key) -> bool``.

Derived in chapter 07.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rope_lessons._checks import (
    check_bool,
    check_count,
    check_device,
    check_heads,
    check_int64,
    check_parts,
    shown,
)
from rope_lessons._float64 import float64_device

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def causal_mask(b: Tensor, h: Tensor, q_index: Tensor, k_index: Tensor) -> Tensor:
    """A FlexAttention mask function: a query sees itself and what came before it.

    Args:
        b, h: number of the batch row and of the head; not used.
        q_index, k_index: int64, numbers of the query token and of the key token.

    Returns:
        bool tensor, True where ``k_index <= q_index``.

    Chapter 07.

    >>> dense_mask(causal_mask, torch.arange(3), torch.arange(3)).int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """
    return k_index <= q_index


def window_mask(window: int) -> MaskMod:
    """A FlexAttention mask function: a query sees tokens at a distance below ``window``, itself included, on both
    sides. Combine it with :func:`causal_mask` for a causal window.

    Args:
        window: number of tokens on one side, counting the token itself; at least 1.

    Returns:
        the mask function.

    Raises:
        TypeError, ValueError: a window that is not an int of at least 1.

    Chapter 07, also on how other libraries count their windows.

    >>> dense_mask(window_mask(2), torch.arange(4), torch.arange(4)).int()
    tensor([[1, 1, 0, 0],
            [1, 1, 1, 0],
            [0, 1, 1, 1],
            [0, 0, 1, 1]], dtype=torch.int32)
    """
    check_count("window", window, least=1)

    def mask_mod(b: Tensor, h: Tensor, q_index: Tensor, k_index: Tensor) -> Tensor:
        return (q_index - k_index < window) & (k_index - q_index < window)

    return mask_mod


def lambda_mask(window: int, sinks: int) -> MaskMod:
    """A FlexAttention mask function: the Λ-shaped mask, a causal window and the first ``sinks`` tokens.

    Args:
        window: number of last tokens that a query sees, itself included; at least 1.
        sinks: number of first tokens that every later query sees.

    Returns:
        the mask function.

    Raises:
        TypeError, ValueError: a window below 1 or negative sinks.

    Source: Han et al. 2023 (LM-Infinite), Xiao et al. 2023 (StreamingLLM). Chapter 07 derives it.

    >>> dense_mask(lambda_mask(2, sinks=1), torch.arange(4), torch.arange(4)).int()
    tensor([[1, 0, 0, 0],
            [1, 1, 0, 0],
            [1, 1, 1, 0],
            [1, 0, 1, 1]], dtype=torch.int32)
    """
    near = window_mask(window)
    check_count("sinks", sinks)

    def mask_mod(b: Tensor, h: Tensor, q_index: Tensor, k_index: Tensor) -> Tensor:
        return (near(b, h, q_index, k_index) | (k_index < sinks)) & causal_mask(b, h, q_index, k_index)

    return mask_mod


def dense_mask(mask_mod: MaskMod, query_index: Tensor, key_index: Tensor) -> Tensor:
    """A mask function as a boolean tensor: True where the query sees the key.

    Args:
        mask_mod: ``(batch, head, query, key) -> bool``, of elementwise operations.
        query_index, key_index: int64 ``(..., queries)`` and ``(..., keys)``.

    Returns:
        bool tensor ``(..., queries, keys)``.

    Raises:
        TypeError, ValueError: indices that are not int64 tensors, or on different devices; a ``mask_mod`` that is no
            function, or gives something else than a bool tensor.

    Chapter 07.

    >>> dense_mask(window_mask(1), torch.arange(2), torch.arange(2))
    tensor([[ True, False],
            [False,  True]])
    """
    for name, index in (("query_index", query_index), ("key_index", key_index)):
        check_int64(name, index)
        if not index.ndim:
            raise ValueError(f"{name} must have at least one dimension, got a single number")
    check_device("key_index", key_index, query_index.device, like="query_index")
    if not callable(mask_mod):
        raise TypeError(f"mask_mod must be a function of batch, head, query and key, got {shown(mask_mod)}")
    zero = torch.zeros((), dtype=torch.int64, device=query_index.device)
    seen = mask_mod(zero, zero, query_index.unsqueeze(-1), key_index.unsqueeze(-2))
    if not isinstance(seen, Tensor) or seen.dtype != torch.bool:
        raise TypeError(f"mask_mod must give a bool tensor, got {getattr(seen, 'dtype', type(seen).__name__)}")
    return seen


def alibi_slopes(heads: int, *, device: torch.device | str | None = None) -> Tensor:
    r"""ALiBi's slopes: :math:`2^{-8h/H}`, :math:`h = 1 \dots H`, for a power of two; for other counts those of the
    power of two below, then every second one of the power of two above.

    Args:
        heads: number of heads, at least 1.
        device: where the result lives.

    Returns:
        float64 tensor ``(heads,)``.

    Raises:
        TypeError, ValueError: ``heads`` that is not an int from 1 to 65,536.

    Source: Press et al. 2022, section 3, and the published code for other counts. Chapter 07 derives it.

    >>> alibi_slopes(4)
    tensor([0.2500, 0.0625, 0.0156, 0.0039], dtype=torch.float64)
    """
    check_parts("heads", heads)
    below = 2 ** (int(heads).bit_length() - 1)
    slopes = [2 ** (-8 * (h + 1) / below) for h in range(below)]
    slopes += [2 ** (-8 * (2 * h + 1) / (2 * below)) for h in range(heads - below)]
    return torch.tensor(slopes, dtype=torch.float64, device=float64_device(device))


def alibi_channels(
    q: Tensor, k: Tensor, *, k_positions: Tensor | None = None, digits: int = 1
) -> tuple[Tensor, Tensor]:
    r"""Queries and keys with extra channels that carry causal ALiBi, for kernels that take no bias.

    The query of a head with slope :math:`s` gets the channel :math:`s\sqrt d`, the key at position :math:`j` gets
    :math:`j`. Then :math:`\langle\mathbf{q}'_i, \mathbf{k}'_j\rangle/\sqrt d` is ALiBi's score plus :math:`s\,i`,
    the same for all keys of a query, which the softmax ignores. Call the kernel with ``is_causal=True`` and
    ``scale=1/sqrt(head_dim)`` of the *old* head dimension; its log-sum-exp is larger by :math:`s\,i`.

    bfloat16 holds whole numbers up to 256 only. With ``digits=2`` the position takes two channels,
    :math:`j \bmod 256` and :math:`j - j \bmod 256`, both exact up to 65,535; with 3, up to 16,777,215.

    Args:
        q: ``(batch, heads, q_len, head_dim)``.
        k: ``(batch, kv_heads, k_len, head_dim)``, ``kv_heads`` dividing ``heads``.
        k_positions: int64 ``(k_len,)``; 0, 1, 2, … by default.
        digits: number of extra channels, from 1 to 8: eight hold every int64.

    Returns:
        both with ``head_dim + digits`` channels, in the dtype of their input.

    Raises:
        TypeError, ValueError: tensors or positions that don't match.

    Chapter 07 derives it, and measures its precision.

    >>> q, k = alibi_channels(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4))
    >>> q[0, :, 0, 4], k[0, 0, :, 4]
    (tensor([0.1250, 0.0078]), tensor([0., 1., 2.]))
    """
    check_heads("q", q)
    check_heads("k", k)
    check_device("k", k, q.device, like="q")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3] or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"k must have shape ({q.shape[0]}, kv_heads, k_len, {q.shape[3]}) with kv_heads dividing {q.shape[1]} to "
            f"match q, got {tuple(k.shape)}"
        )
    check_count("digits", digits, least=1, most=8, why="they hold every int64")
    if k_positions is None:
        k_positions = torch.arange(k.shape[2], device=k.device)
    check_int64("k_positions", k_positions)
    check_device("k_positions", k_positions, k.device, like="k")
    if tuple(k_positions.shape) != (k.shape[2],):
        raise ValueError(
            f"k_positions must have shape ({k.shape[2]},) like the tokens of k, got {tuple(k_positions.shape)}"
        )
    slopes = alibi_slopes(q.shape[1], device=q.device) * q.shape[3] ** 0.5
    more_q = slopes.to(q.dtype).view(1, -1, 1, 1).expand(*q.shape[:3], digits)
    places = [k_positions % 256 ** (t + 1) - k_positions % 256**t for t in range(digits - 1)]
    places.append(k_positions - k_positions % 256 ** (digits - 1))  # the last channel takes all that is left
    more_k = torch.stack(places, dim=-1).to(k.dtype).expand(*k.shape[:3], digits)
    return torch.cat((q, more_q), dim=-1), torch.cat((k, more_k), dim=-1)


def receptive_field(window: int, layers: int, causal: bool = True) -> int:
    r"""How many tokens can reach one token through ``layers`` windows: :math:`(w-1)\ell + 1`, or
    :math:`2(w-1)\ell + 1` when windows look both ways.

    Args:
        window: :math:`w`, number of tokens that a layer sees on one side, the token itself included.
        layers: :math:`\ell`, number of layers.
        causal: windows look back only.

    Returns:
        number of tokens, the token itself included.

    Raises:
        TypeError, ValueError: a window or a number of layers that is not an int of at least 1.

    Source: Su, article 9 (spaces.ac.cn/archives/9603), for the causal case. Chapter 07 derives both.

    >>> receptive_field(16, 23)
    346
    """
    check_count("window", window, least=1)
    check_count("layers", layers, least=1)
    check_bool("causal", causal)
    return (1 if causal else 2) * (window - 1) * layers + 1
