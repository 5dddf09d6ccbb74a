"""The dense reference: every score is computed, for any setting of the five knobs and any dtype.

The bent distance needs one trick: each of its three kinds of pairs is a plain rotary product (see ``pieces.py``), and
each score is picked from the kind that its pair is of. The tests compare this with the equation written out pair by
pair.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from rope_lessons._float64 import exact
from rope_lessons.engine.call import Call
from rope_lessons.engine.merge import Attended
from rope_lessons.engine.modes import own_precision
from rope_lessons.engine.pieces import turn_of, without_unseen
from rope_lessons.engine.visibility import visible_keys
from rope_lessons.local import alibi_slopes
from rope_lessons.rotary import apply_rotary
from rope_lessons.schemes import default_base_scale


def describe(call: Call) -> str:
    """What it does."""
    return "dense, every score is computed"


def run(call: Call) -> Attended:
    """Output and log-sum-exp."""
    scheme, out_dtype = call.scheme, call.v.dtype
    visible = visible_keys(
        scheme, call.q_len, call.k_len, call.q.shape[0], call.q.device, call.lengths, call.document_ids
    )
    call = _widened(without_unseen(call, visible.any(dim=-2).squeeze(1)))
    with own_precision(call.q.device):
        scores = rotary_products(call) * default_base_scale(scheme, call.q.shape[-1])
        if scheme.scale is not None:
            scores = scores * scheme.scale(visible.sum(dim=-1, keepdim=True)).to(scores)
        if scheme.alibi:
            slopes = alibi_slopes(call.q.shape[1], device=call.q.device).view(-1, 1, 1)
            scores = scores - (slopes * exact(distances(call.q_positions, call.k_positions)).abs()).to(scores)
        if call.bias is not None:
            scores = scores + call.bias.to(scores.dtype)
        output, lse = softmax_average(scores, visible, call.v)
        return output.to(out_dtype), lse  # the one cast


def _widened(call: Call) -> Call:
    """In float32 at least, and each head with keys of its own."""
    wide, group = torch.promote_types(call.q.dtype, torch.float32), call.q.shape[1] // call.k.shape[1]
    k, v = (x.to(wide).repeat_interleave(group, dim=1) for x in (call.k, call.v))
    return call._replace(q=call.q.to(wide), k=k, v=v)


def distances(q_positions: Tensor, k_positions: Tensor) -> Tensor:
    """p_i - p_j as ``(batch or 1, 1, q_len, k_len)``."""
    difference = q_positions.unsqueeze(-1) - k_positions.unsqueeze(-2)
    return difference[None, None] if difference.ndim == 2 else difference.unsqueeze(1)


def rotary_products(call: Call) -> Tensor:
    """The products <R(f(p_i - p_j) ω) q_i, k_j>, ``(batch, heads, q_len, k_len)``."""
    if call.frequencies is None:
        return _products(call.q, call.k)
    scheme, omega = call.scheme, call.frequencies

    def products(kind: str) -> Tensor:
        turn = turn_of(kind, scheme.window, scheme.slope)
        turned = partial(apply_rotary, frequencies=omega, layout=scheme.layout, scale=scheme.rotary_scale)
        q, k = turned(call.q, turn.of_queries(call.q_positions)), turned(call.k, turn.of_keys(call.k_positions))
        return _products(q, k)

    if scheme.slope == 1.0:
        return products("near")
    distance = distances(call.q_positions, call.k_positions)
    beyond = torch.where(distance >= 0, products("far"), products("after"))
    return torch.where(distance.abs() < scheme.window, products("near"), beyond)


def _products(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2)


def softmax_average(scores: Tensor, visible: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax over the visible keys, and the values averaged with it. A query that sees nothing gets zeros."""
    scores = scores.masked_fill(~visible, -torch.inf)
    blind = (scores == -torch.inf).all(dim=-1, keepdim=True)  # also where a bias of -inf hides every key
    scores = scores.masked_fill(blind, 0.0)  # the softmax of a row of only -inf is NaN, and so are its gradients
    weights = scores.softmax(dim=-1).masked_fill(blind, 0.0)
    return weights @ v, scores.logsumexp(dim=-1).masked_fill(blind.squeeze(-1), -torch.inf)
