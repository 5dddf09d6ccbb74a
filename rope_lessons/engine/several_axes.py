"""Positions with several axes: queries and keys are turned before the call, and no backend need know."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rope_lessons._checks import check_device, check_positions, check_tensor
from rope_lessons.axes import apply_axial
from rope_lessons.engine.call import Shapes, check_inputs
from rope_lessons.schemes import Scheme


def are_given(options: dict[str, Any]) -> bool:
    """Whether positions have three dimensions, ``(batch, tokens, axes)``."""
    return any(getattr(options.get(name), "ndim", 0) == 3 for name in ("q_positions", "k_positions"))


def turned(
    q: Tensor, k: Tensor, v: Tensor, scheme: Scheme, options: dict[str, Any]
) -> tuple[Tensor, Tensor, Tensor, Scheme, dict[str, Any]]:
    """The same call without positions: queries and keys turned, a scheme that turns nothing, and the other options.

    That is exact where the distance map is a straight line, since rotations by several axes commute. A map with a bend
    needs one distance, and two tokens have as many as there are axes.
    """
    shapes = check_inputs(q, k, v, scheme)
    if scheme.window and scheme.slope != 1:
        raise ValueError(
            f"scheme must have a straight distance map (a window of 0, or a slope of 1) for positions with several "
            f"axes, which have no one distance to bend, got window={scheme.window}, slope={scheme.slope}"
        )
    if scheme.alibi:
        raise ValueError("scheme must have no ALiBi with positions of several axes, which have no one distance")
    frequencies = _frequencies(options, shapes)
    places = _positions(options, shapes, frequencies, q.device)
    if frequencies.requires_grad and torch.is_grad_enabled():  # as in call.check_call
        q, k, v = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k, v))
    straight = frequencies if scheme.window else frequencies * scheme.slope
    q, k = (
        apply_axial(x, at, straight, layout=scheme.layout, scale=scheme.rotary_scale)
        for x, at in zip((q, k), places, strict=True)
    )
    still = scheme.replace(frequencies=None, window=0, slope=1.0, rotary_scale=1.0)
    own = ("q_positions", "k_positions", "frequencies")
    return q, k, v, still, {name: value for name, value in options.items() if name not in own}


def _frequencies(options: dict[str, Any], shapes: Shapes) -> Tensor:
    frequencies = options.get("frequencies")
    if frequencies is None or getattr(frequencies, "ndim", 2) == 1:
        name = next(name for name in ("q_positions", "k_positions") if getattr(options.get(name), "ndim", 0) == 3)
        raise ValueError(
            f"{name} must have shape (tokens,) or (batch, tokens), or (batch, tokens, axes) with frequencies "
            f"(axes, dim/2), which rope_lessons.axes makes; got {tuple(options[name].shape)} with "
            f"{'no frequencies' if frequencies is None else f'frequencies {tuple(frequencies.shape)}'}"
        )
    check_tensor("frequencies", frequencies)
    if frequencies.ndim != 2 or not 0 < 2 * frequencies.shape[1] <= shapes.head_dim:
        raise ValueError(
            f"frequencies must have shape (axes, dim/2), with dim at most {shapes.head_dim}, for positions with "
            f"several axes, got {tuple(frequencies.shape)}"
        )
    return frequencies


def _positions(
    options: dict[str, Any], shapes: Shapes, frequencies: Tensor, device: torch.device
) -> tuple[Tensor, Tensor]:
    q_positions, k_positions = options.get("q_positions"), options.get("k_positions")
    if (q_positions is None) != (k_positions is None):
        if shapes.q_len != shapes.k_len:
            raise ValueError("q_positions and k_positions must be given together when q_len and k_len differ")
        q_positions = k_positions = q_positions if k_positions is None else k_positions
    for name, positions, seq in (
        ("q_positions", q_positions, shapes.q_len),
        ("k_positions", k_positions, shapes.k_len),
    ):
        check_positions(name, positions)
        assert isinstance(positions, Tensor)
        check_device(name, positions, device)
        wanted = (seq, frequencies.shape[0])
        if positions.ndim != 3 or tuple(positions.shape[1:]) != wanted or positions.shape[0] not in (1, shapes.batch):
            raise ValueError(
                f"{name} must have shape (1 or {shapes.batch}, {seq}, {wanted[1]}), the rows of frequencies its axes, "
                f"got {tuple(positions.shape)}"
            )
    assert isinstance(q_positions, Tensor)
    assert isinstance(k_positions, Tensor)
    return q_positions, k_positions
