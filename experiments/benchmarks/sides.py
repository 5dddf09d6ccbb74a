"""What is compared. Every side gets raw queries and keys and turns them itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from rope_lessons import Scheme, apply_rotary, attention, rope_frequencies, rotary_table, scheme
from rope_lessons.rotary import rotate

Side = Callable[[Tensor, Tensor, Tensor], Tensor]


def plain_rope(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """RoPE through PyTorch's ``scaled_dot_product_attention``; queries and keys share one table."""
    positions = torch.arange(q.shape[2], device=q.device)
    cos, sin = rotary_table(positions, rope_frequencies(q.shape[3], device=q.device))
    q, k = (rotate(x, cos, sin, layout="half") for x in (q, k))
    return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


def eager_rerope(q: Tensor, k: Tensor, v: Tensor, window: int, slope: float) -> Tensor:
    """ReRoPE as it was published: both matrices of scores, and a ``where`` between them."""
    positions = torch.arange(q.shape[2], device=q.device)
    frequencies = rope_frequencies(q.shape[3], device=q.device)

    def turn(x: Tensor, rate: float, start: float = 0.0) -> Tensor:
        return apply_rotary(x, positions.double() * rate + start, frequencies, layout="half")

    near = turn(q, 1.0) @ turn(k, 1.0).mT
    far = turn(q, slope, window * (1 - slope)) @ turn(k, slope).mT
    distance = positions.unsqueeze(1) - positions
    scores = torch.where(distance < window, near, far) * q.shape[3] ** -0.5
    return scores.masked_fill(distance < 0, -torch.inf).softmax(-1) @ v


def ours(dim: int, window: int, slope: float) -> Side:
    """The engine: ReRoPE for slope 0, else Leaky ReRoPE (or InvLeaky, for a slope above 1)."""
    return partial(_ours, knobs=scheme("leaky-rerope", dim=dim, window=window, slope=slope))


def _ours(q: Tensor, k: Tensor, v: Tensor, knobs: Scheme) -> Tensor:
    return attention(q, k, v, knobs, backend="flash")


def inputs(length: int, heads: int, dim: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Queries, keys and values of a text."""
    return tuple(torch.randn(3, 1, heads, length, dim, device=device, dtype=dtype).unbind())
