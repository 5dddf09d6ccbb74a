"""One call of ``attention``, checked and filled in: what a backend gets."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rope_lessons._checks import (
    check_count,
    check_device,
    check_frequencies,
    check_heads,
    check_positions,
    check_tensor,
)
from rope_lessons.engine.modes import in_one_dtype
from rope_lessons.engine.visibility import check_padding
from rope_lessons.schemes import Scheme


class Call(NamedTuple):
    """The arguments of ``attention``. Positions are always there; ``positions_given`` tells whether the caller gave
    them, or they are 0, 1, 2, …. ``frequencies`` are those to use, None to turn nothing. The ``q_len`` queries are the
    last of the ``k_len`` tokens."""

    q: Tensor
    k: Tensor
    v: Tensor
    scheme: Scheme
    q_positions: Tensor
    k_positions: Tensor
    positions_given: bool
    lengths: Tensor | None
    document_ids: Tensor | None
    bias: Tensor | None
    frequencies: Tensor | None
    q_len: int
    k_len: int


HEADS_FIRST = "; did you pass heads after tokens? They come before: x.transpose(1, 2)"

# --- checks ----------------------------------------------------------------------------------------------------------


def check_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scheme: Scheme,
    *,
    q_positions: Tensor | None = None,
    k_positions: Tensor | None = None,
    lengths: Tensor | None = None,
    document_ids: Tensor | None = None,
    bias: Tensor | None = None,
    length: int | None = None,
    frequencies: Tensor | None = None,
) -> Call:
    """The arguments of ``attention``, checked and filled in."""
    shapes = check_inputs(q, k, v, scheme)
    check_padding(lengths, document_ids, shapes.batch, shapes.k_len, q.device)
    given = q_positions is not None or k_positions is not None
    if length is None and not given:
        length = shapes.k_len  # with positions given, only the caller knows: a scheme that needs the length says so
    elif length is not None:
        check_count("length", length, least=1)
    q_positions, k_positions = _positions(q_positions, k_positions, shapes, q.device)
    if frequencies is not None:
        check_override(frequencies, shapes)
    elif scheme.frequencies is not None:
        frequencies = scheme.frequencies(length, device=q.device)
    _check_bias(bias, shapes, q.device)
    if frequencies is not None and frequencies.requires_grad and torch.is_grad_enabled():
        # The gradient of a frequency is a sum over all tokens of terms as large as their positions that nearly cancel.
        # Turned queries and keys in 16 bits, and their gradients, leave nothing of it for some pairs.
        q, k, v = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k, v))
    return Call(
        q, k, v, scheme, q_positions, k_positions, given, lengths, document_ids, bias, frequencies,
        shapes.q_len, shapes.k_len,
    )  # fmt: skip


class Shapes(NamedTuple):
    batch: int
    heads: int
    q_len: int
    k_len: int
    head_dim: int


def check_tensors(**tensors: Tensor) -> tuple[Tensor, ...]:
    """Queries, keys and values by their names, on one device and in one dtype: under autocast, different dtypes become
    its own."""
    for name, tensor in tensors.items():
        check_heads(name, tensor)
    found = dict(zip(tensors, in_one_dtype(*tensors.values()), strict=True))
    first, like = next(iter(found.items()))
    for name, tensor in found.items():
        if tensor.dtype != like.dtype or tensor.device != like.device:
            raise ValueError(
                f"{name} must have the dtype and device of {first} ({like.dtype}, {like.device}), "
                f"got {tensors[name].dtype}, {tensor.device}"
            )
    return tuple(found.values())


def check_inputs(q: Tensor, k: Tensor, v: Tensor, scheme: Scheme) -> Shapes:
    if not isinstance(scheme, Scheme):
        raise TypeError(f"scheme must be a Scheme (one layer, one phase), got {type(scheme).__name__}")
    batch, heads, q_len, head_dim = q.shape
    kv_heads, k_len = k.shape[1], k.shape[2]
    if k.shape[0] != batch or k.shape[3] != head_dim:
        raise ValueError(f"k must have shape ({batch}, kv_heads, k_len, {head_dim}) to match q, got {tuple(k.shape)}")
    if tuple(v.shape[:3]) != (batch, kv_heads, k_len):
        raise ValueError(
            f"v must have shape ({batch}, {kv_heads}, {k_len}, value_dim) to match k, got {tuple(v.shape)}"
        )
    if heads < 1 or head_dim < 1:
        raise ValueError(f"q must have at least one head and one channel, got shape {tuple(q.shape)}")
    if k_len < 1 or kv_heads < 1:
        raise ValueError(f"k must have at least one head and one token, got shape {tuple(k.shape)}")
    if v.shape[3] < 1:
        raise ValueError(f"v must have at least one channel, got shape {tuple(v.shape)}")
    if heads % kv_heads:
        hint = HEADS_FIRST if (q_len, heads) == (kv_heads, k_len) else ""
        raise ValueError(f"kv_heads must divide heads = {heads}, got {kv_heads}{hint}")
    if q_len > k_len:
        hint = HEADS_FIRST if heads == kv_heads and q_len % k_len == 0 else ""
        raise ValueError(f"q_len must be at most k_len = {k_len} (queries are the last tokens), got {q_len}{hint}")
    if scheme.rotary_dim > head_dim:
        raise ValueError(f"the scheme turns {scheme.rotary_dim} channels, but q has head_dim {head_dim}")
    return Shapes(batch, heads, q_len, k_len, head_dim)


def _positions(
    q_positions: Tensor | None, k_positions: Tensor | None, shapes: Shapes, device: torch.device
) -> tuple[Tensor, Tensor]:
    if (q_positions is None) != (k_positions is None):
        if shapes.q_len != shapes.k_len:
            raise ValueError("q_positions and k_positions must be given together when q_len and k_len differ")
        q_positions = k_positions = q_positions if k_positions is None else k_positions
    if q_positions is None or k_positions is None:
        k_positions = torch.arange(shapes.k_len, device=device)
        return k_positions[shapes.k_len - shapes.q_len :], k_positions
    for name, positions, seq in (
        ("q_positions", q_positions, shapes.q_len),
        ("k_positions", k_positions, shapes.k_len),
    ):
        check_positions(name, positions)
        check_device(name, positions, device)
        if tuple(positions.shape) != (seq,) and tuple(positions.shape) != (shapes.batch, seq):
            raise ValueError(
                f"{name} must have shape ({seq},) or ({shapes.batch}, {seq}), got {tuple(positions.shape)}"
            )
    return q_positions, k_positions


def check_override(frequencies: Tensor, shapes: Shapes) -> None:
    check_frequencies(frequencies)
    if 2 * frequencies.shape[-1] > shapes.head_dim:
        raise ValueError(
            f"frequencies must have at most head_dim/2 = {shapes.head_dim // 2} columns, got {frequencies.shape[-1]}"
        )
    if frequencies.ndim == 2 and frequencies.shape[0] != shapes.heads:
        raise ValueError(f"frequencies must have one row per head ({shapes.heads}), got {frequencies.shape[0]} rows")


def _check_bias(bias: Tensor | None, shapes: Shapes, device: torch.device) -> None:
    if bias is None:
        return
    check_tensor("bias", bias)
    check_device("bias", bias, device)
    full = (shapes.batch, shapes.heads, shapes.q_len, shapes.k_len)
    if bias.ndim > 4 or any(bias.shape[-n] not in (1, full[-n]) for n in range(1, bias.ndim + 1)):
        raise ValueError(f"bias must broadcast to (batch, heads, q_len, k_len) = {full}, got {tuple(bias.shape)}")
