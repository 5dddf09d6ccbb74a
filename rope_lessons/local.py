"""Who may see whom, and ALiBi: masks as FlexAttention mask functions ``(batch, head, query, key) -> bool``."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rope_lessons._checks import check_bool, check_count, check_int64
from rope_lessons._float64 import float64_device

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def causal_mask(b: Tensor, h: Tensor, q_index: Tensor, k_index: Tensor) -> Tensor:
    """A FlexAttention mask function: a query sees itself and what came before it.

    Args:
        b, h: number of the batch row and of the head; not used.
        q_index, k_index: int64, numbers of the query token and of the key token.

    Returns:
        bool tensor, True where ``k_index <= q_index``.

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

    Source: Han et al. 2023 (LM-Infinite), Xiao et al. 2023 (StreamingLLM).

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
        TypeError: indices that are not int64 tensors.

    >>> dense_mask(window_mask(1), torch.arange(2), torch.arange(2))
    tensor([[ True, False],
            [False,  True]])
    """
    check_int64("query_index", query_index)
    check_int64("key_index", key_index)
    zero = torch.zeros((), dtype=torch.int64, device=query_index.device)
    return mask_mod(zero, zero, query_index.unsqueeze(-1), key_index.unsqueeze(-2))


def alibi_slopes(heads: int, *, device: torch.device | str | None = None) -> Tensor:
    r"""ALiBi's slopes: :math:`2^{-8h/H}`, :math:`h = 1 \dots H`, for a power of two; for other counts those of the
    power of two below, then every second one of the power of two above.

    Args:
        heads: number of heads, at least 1.
        device: where the result lives.

    Returns:
        float64 tensor ``(heads,)``.

    Raises:
        TypeError, ValueError: ``heads`` that is not an int of at least 1.

    Source: Press et al. 2022, section 3, and the published code for other counts.

    >>> alibi_slopes(4)
    tensor([0.2500, 0.0625, 0.0156, 0.0039], dtype=torch.float64)
    """
    check_count("heads", heads, least=1)
    below = 2 ** (int(heads).bit_length() - 1)
    slopes = [2 ** (-8 * (h + 1) / below) for h in range(below)]
    slopes += [2 ** (-8 * (2 * h + 1) / (2 * below)) for h in range(heads - below)]
    return torch.tensor(slopes, dtype=torch.float64, device=float64_device(device))


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
        TypeError, ValueError: a count that is not an int of at least 1.

    Source: Su, article 9 (spaces.ac.cn/archives/9603), for the causal case.

    Raises:
        TypeError, ValueError: a window or a number of layers that is not an int of at least 1.

    >>> receptive_field(16, 23)
    346
    """
    check_count("window", window, least=1)
    check_count("layers", layers, least=1)
    check_bool("causal", causal)
    return (1 if causal else 2) * (window - 1) * layers + 1
