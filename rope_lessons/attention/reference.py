"""The dense reference: every score is computed, for any setting of the five knobs and any dtype.

The bent distance needs one trick. ``f`` is linear on each of its three pieces (near, far before, far after), and a
linear function of p_i - p_j splits into a part that turns the query and a part that turns the key. So each piece is
a plain rotary product, and each score is picked from the piece that its distance falls in. The tests compare this
with the equation written out pair by pair.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rope_lessons._float64 import exact
from rope_lessons.attention.call import Call
from rope_lessons.attention.visibility import visible_keys
from rope_lessons.local import alibi_slopes
from rope_lessons.rotary import apply_rotary
from rope_lessons.scheme import Scheme, default_base_scale


def supports(call: Call) -> str | None:
    """It takes every call."""
    return None


def describe(call: Call) -> str:
    """What it does."""
    return "dense, every score is computed"


def run(call: Call) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp."""
    visible = visible_keys(
        call.scheme, call.q_len, call.k_len, call.q.shape[0], call.q.device, call.lengths, call.document_ids
    )
    return reference_attention(
        call.q, call.k, call.v, call.scheme, call.q_positions, call.k_positions, visible, call.bias, call.frequencies
    )


def reference_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scheme: Scheme,
    q_positions: Tensor,
    k_positions: Tensor,
    visible: Tensor,
    bias: Tensor | None,
    frequencies: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp. Arguments as in ``attention``, already checked and filled in; ``visible`` is
    boolean ``(batch or 1, 1, q_len, k_len)``."""
    dtype, out_dtype = torch.float64 if q.dtype == torch.float64 else torch.float32, v.dtype
    # What nobody sees (padding) may hold anything: without this, 0 times NaN would be NaN.
    unseen = ~visible.any(dim=-2).unsqueeze(-1)  # (batch or 1, 1, k_len, 1)
    q, k, v = q.to(dtype), k.masked_fill(unseen, 0.0).to(dtype), v.masked_fill(unseen, 0.0).to(dtype)
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    with torch.autocast(q.device.type, enabled=False):  # the reference keeps the precision of its inputs
        products = rotary_products(q, k, scheme, q_positions, k_positions, frequencies)
        scores = products * default_base_scale(scheme, q.shape[-1])
        if scheme.scale is not None:
            counts = visible.sum(dim=-1, keepdim=True)
            scores = scores * scheme.scale(counts).to(scores)
        if scheme.alibi:
            slopes = alibi_slopes(q.shape[1], device=q.device).view(-1, 1, 1)
            scores = scores - (slopes * exact(distances(q_positions, k_positions)).abs()).to(scores)
        if bias is not None:
            scores = scores + bias.to(scores.dtype)
        output, lse = softmax_average(scores, visible, v)
        return output.to(out_dtype), lse  # the one cast


def distances(q_positions: Tensor, k_positions: Tensor) -> Tensor:
    """p_i - p_j as ``(batch or 1, 1, q_len, k_len)``."""
    difference = q_positions.unsqueeze(-1) - k_positions.unsqueeze(-2)
    return difference.view(-1, 1, *difference.shape[-2:])


def rotary_products(
    q: Tensor, k: Tensor, scheme: Scheme, q_positions: Tensor, k_positions: Tensor, frequencies: Tensor | None
) -> Tensor:
    """The products <R(f(p_i - p_j) ω) q_i, k_j>, ``(batch, heads, q_len, k_len)`` in float32 or float64."""
    if frequencies is None:
        return _products(q, k)

    def turned(x: Tensor, positions: Tensor) -> Tensor:
        return apply_rotary(x, positions, frequencies, layout=scheme.layout, scale=scheme.rotary_scale)

    near = _products(turned(q, q_positions), turned(k, k_positions))
    if scheme.slope == 1.0:
        return near
    # Far before: f = w + slope (p_i - p_j - w) = (offset + slope p_i) - slope p_j. Far after: with -offset.
    offset = scheme.window * (1.0 - scheme.slope)
    slow_q, slow_k = scheme.slope * exact(q_positions), scheme.slope * exact(k_positions)
    far_k = turned(k, slow_k)
    before, after = _products(turned(q, slow_q + offset), far_k), _products(turned(q, slow_q - offset), far_k)
    distance = distances(q_positions, k_positions)
    return torch.where(distance.abs() < scheme.window, near, torch.where(distance >= 0, before, after))


def _products(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2)


def softmax_average(scores: Tensor, visible: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax over the visible keys, and the values averaged with it. A query that sees nothing gets zeros."""
    scores = scores.masked_fill(~visible, -torch.inf)
    blind = (scores == -torch.inf).all(dim=-1, keepdim=True)  # also where a bias of -inf hides every key
    scores = scores.masked_fill(blind, 0.0)  # the softmax of a row of only -inf is NaN, and so are its gradients
    weights = scores.softmax(dim=-1).masked_fill(blind, 0.0)
    return weights @ v, scores.logsumexp(dim=-1).masked_fill(blind.squeeze(-1), -torch.inf)
