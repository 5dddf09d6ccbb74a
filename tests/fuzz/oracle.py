"""The equation of the book in float64 and complex numbers, over all pairs at once, with gradients and error bounds.

``tests/equation.py`` writes it pair by pair, in plain Python; ``test_oracle.py`` compares the two. Nothing of the
package is called here.

**The bounds.** What a backend may be off by follows from where it rounds. With ``eps`` the rounding of the numbers it
works with, a score of size S is off by eps S, so a weight by eps S of itself; a weighted average of values by eps (1 +
S) times the average of their sizes, and, where parts are merged by shares that sum to 1, by eps times the largest of
them; a gradient by eps (1 + S) times the same sum of products with every term taken positive. A sum of n terms, one
after the other, loses up to n halves of a rounding, and about the root of it where they do not all point one way. Each
bound here is that sum, one number for each of the answer; the caller multiplies by ``eps`` and by a small factor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rope_lessons import Scheme
from tests.equation import alibi_slope, count_in_document


@dataclass
class Answer:
    """What a call must give, and the size of what was added up for each of its numbers."""

    output: Tensor
    lse: Tensor
    grads: dict[str, Tensor] = field(default_factory=dict)
    bounds: dict[str, Tensor] = field(default_factory=dict)  # of output, lse and each gradient
    angle: float = 0.0  # rounding of an angle in float64: below 2^-53 times the largest of them, twice


def bent(distance: Tensor, window: float, slope: float) -> Tensor:
    size = distance.abs()
    return distance.sign() * torch.where(size < window, size, window + slope * (size - window))


def visible_pairs(
    scheme: Scheme, batch: int, q_len: int, k_len: int, lengths: Tensor | None, document_ids: Tensor | None
) -> Tensor:
    """Boolean ``(batch, 1, q_len, k_len)``."""
    token = torch.arange(k_len)
    number, run, real = (token.expand(batch, k_len).clone() for _ in range(3))
    run, real = torch.zeros_like(run), torch.ones_like(real, dtype=torch.bool)
    if lengths is not None:
        real &= token < lengths.unsqueeze(-1)
    if document_ids is not None:
        for b in range(batch):
            ids = document_ids if document_ids.ndim == 1 else document_ids[b]
            number[b] = torch.tensor(count_in_document(ids.tolist(), k_len))
            run[b] = (number[b] == 0).cumsum(0)
            real[b] &= ids >= 0
    i, j = token[k_len - q_len :, None], token[None, :]
    seen = (run[:, k_len - q_len :, None] == run[:, None, :]) & real[:, k_len - q_len :, None] & real[:, None, :]
    if scheme.causal:
        seen = seen & (j <= i)
    if scheme.visible_window is not None:
        seen = seen & (((i - j).abs() < scheme.visible_window) | (number < scheme.sinks)[:, None, :])
    return seen.unsqueeze(1)


def paired(x: Tensor, pairs: int, layout: str) -> Tensor:
    """The channels that turn, as ``pairs`` complex numbers."""
    if layout == "interleaved":
        return torch.complex(x[..., 0 : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2])
    return torch.complex(x[..., :pairs], x[..., pairs : 2 * pairs])


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scheme: Scheme,
    *,
    frequencies: Tensor | None = None,
    q_positions: Tensor | None = None,
    k_positions: Tensor | None = None,
    lengths: Tensor | None = None,
    document_ids: Tensor | None = None,
    bias: Tensor | None = None,
    grads: tuple[str, ...] = (),
    grad: Tensor | None = None,
    grad_lse: Tensor | None = None,
) -> Answer:
    """Output, log-sum-exp, the gradients of what ``grads`` names (of ``q``, ``k``, ``v``, ``bias``, ``frequencies``)
    for the given gradients of the two, and their bounds.

    Arguments as for ``rope_lessons.attention``, of any dtype: the work is done in float64.
    """
    (batch, heads, q_len, head_dim), k_len, group = q.shape, k.shape[2], q.shape[1] // k.shape[1]
    visible = visible_pairs(scheme, batch, q_len, k_len, lengths, document_ids)
    inputs = {"q": q, "k": k, "v": v, "bias": bias, "frequencies": frequencies}
    leaves = {name: x.detach().double().contiguous() for name, x in inputs.items() if x is not None}
    for name in grads:
        leaves[name].requires_grad_()
    blind, unseen = ~visible.any(-1, keepdim=True), ~visible.any(-2).unsqueeze(-1)
    q = leaves["q"].masked_fill(blind, 0.0)  # what nobody sees may hold anything
    k, v = (leaves[name].masked_fill(unseen, 0.0).repeat_interleave(group, dim=1) for name in ("k", "v"))
    omega, bias = leaves.get("frequencies"), leaves.get("bias")

    tokens = torch.arange(k_len)
    places = [x for x in (q_positions, k_positions) if x is not None] or [tokens[k_len - q_len :], tokens]
    q_places, k_places = places[0], places[-1]  # one that is given stands for both
    distance = (q_places.unsqueeze(-1) - k_places.unsqueeze(-2)).double()  # (q_len, k_len), or one for each row
    distance = distance.reshape(-1, 1, q_len, k_len) if distance.numel() else distance.new_zeros(1, 1, q_len, k_len)

    pairs = 0 if omega is None else omega.shape[-1]
    product = torch.einsum("bhic,bhjc->bhij", q[..., 2 * pairs :], k[..., 2 * pairs :])
    if omega is not None:
        rates = omega.view(1, -1, 1, 1, pairs)  # one head for all, or each its own
        turn = torch.exp(1j * bent(distance, scheme.window, scheme.slope).unsqueeze(-1) * rates)
        z_q, z_k = paired(q, pairs, scheme.layout).unsqueeze(3), paired(k, pairs, scheme.layout).unsqueeze(2)
        product = product + scheme.rotary_scale**2 * (turn * z_q * z_k.conj()).real.sum(-1)

    factor = head_dim**-0.5 if scheme.base_scale is None else scheme.base_scale
    factor = factor * query_scales(scheme, visible)  # (batch, 1, q_len, 1)
    scores = factor * product
    penalty = torch.zeros(())
    if scheme.alibi:
        slopes = torch.tensor([alibi_slope(h, heads) for h in range(heads)], dtype=torch.float64).view(-1, 1, 1)
        penalty = slopes * distance.abs()
        scores = scores - penalty
    if bias is not None:
        scores = scores + bias
    scores = scores.masked_fill(~visible, -torch.inf)
    blind = (scores == -torch.inf).all(-1, keepdim=True)
    weights = scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)
    output = weights @ v
    lse = scores.masked_fill(blind, 0.0).logsumexp(-1).masked_fill(blind.squeeze(-1), -torch.inf)

    answer = Answer(output.detach(), lse.detach())
    if grads:
        loss = torch.zeros((), dtype=torch.float64)
        if grad is not None:
            loss = loss + (output * grad.double()).sum()
        if grad_lse is not None:
            loss = loss + (lse.masked_fill(blind.squeeze(-1), 0.0) * grad_lse.double()).sum()
        wanted = [leaves[name] for name in grads]
        # Of the values through the log-sum-exp alone, say, nothing comes.
        found: Sequence[Tensor | None] = [None] * len(wanted)
        if loss.requires_grad:
            found = torch.autograd.grad(loss, wanted, allow_unused=True)
        answer.grads = {
            name: torch.zeros_like(leaves[name]) if g is None else g for name, g in zip(grads, found, strict=True)
        }
    with torch.no_grad():
        _bound(answer, q, k, v, weights, factor, penalty, bias, scheme, grad, grad_lse, leaves, pairs)
        reach = _largest(q_places, k_places) * max(1.0, scheme.slope) + scheme.window * abs(1 - scheme.slope)
        rate = 0.0 if omega is None or not omega.numel() else float(omega.abs().max())
        answer.angle = 2.0**-52 * reach * rate
        if "frequencies" in answer.bounds:
            answer.bounds["frequencies"] *= max(reach, 1.0)
        added = k_len + q_len * group  # in a sum; where all terms are equal, their roundings point one way
        terms = 1 + max(math.sqrt(added), added / 8) / 8
        answer.bounds = {name: bound * terms for name, bound in answer.bounds.items()}
    return answer


def query_scales(scheme: Scheme, visible: Tensor) -> Tensor:
    """s_i, ``(batch, 1, q_len, 1)``."""
    if scheme.scale is None:
        return torch.ones(1, 1, 1, 1, dtype=torch.float64)
    counts = visible.sum(-1, keepdim=True).clamp(min=scheme.scale.floor)
    scale = counts.double().log() / math.log(scheme.scale.train_length)
    return scale.clamp(min=1.0) if scheme.scale.clip else scale


def _largest(*positions: Tensor) -> float:
    return max((float(p.abs().max()) for p in positions if p.numel()), default=0.0)


def _bound(
    answer: Answer, q: Tensor, k: Tensor, v: Tensor, weights: Tensor, factor: Tensor, penalty: Tensor,
    bias: Tensor | None, scheme: Scheme, grad: Tensor | None, grad_lse: Tensor | None,
    leaves: dict[str, Tensor], pairs: int,
) -> None:  # fmt: skip
    """See the top of this file. ``k`` and ``v`` have a row for each head of ``q``."""
    heads, kv_heads = q.shape[1], leaves["k"].shape[1]
    stretch = max(1.0, scheme.rotary_scale**2) if pairs else 1.0
    q_size, k_size, v_size = (x.norm(dim=-1) for x in (q, k, v))
    reach = factor * stretch * q_size.unsqueeze(-1) * k_size.unsqueeze(-2)  # of a score's turned part
    more = penalty + (torch.zeros(()) if bias is None else bias.abs().nan_to_num(posinf=0.0))
    seen = weights > 0
    size = 1 + 2 * ((reach + more) * seen).amax(-1, keepdim=True)  # 1 + S, (batch, heads, q_len, 1)
    largest = (v.abs().unsqueeze(2) * seen.unsqueeze(-1)).amax(3)  # of the values that a query sees
    answer.bounds["output"] = size * (weights @ v.abs()) + largest
    answer.bounds["lse"] = (size.squeeze(-1) + answer.lse.abs().nan_to_num(posinf=0.0)).expand(answer.lse.shape)
    if not answer.grads:
        return
    g_size = torch.zeros_like(q_size) if grad is None else grad.double().norm(dim=-1)
    gl_size = torch.zeros_like(q_size) if grad_lse is None else grad_lse.double().abs()
    values = v_size.unsqueeze(-2) + largest.norm(dim=-1, keepdim=True)
    terms = size * weights * (g_size.unsqueeze(-1) * values + gl_size.unsqueeze(-1))  # of the scores' gradient
    turned = factor * stretch * terms
    shared = kv_heads, heads // kv_heads
    grads_out = torch.zeros_like(answer.output) if grad is None else grad.double().abs()
    wholes = {
        "q": lambda: (turned @ k_size.unsqueeze(-1)).expand_as(q),
        "k": lambda: (turned.mT @ q_size.unsqueeze(-1)).unflatten(1, shared).sum(2).expand_as(leaves["k"]),
        "v": lambda: ((size * weights).mT @ grads_out).unflatten(1, shared).sum(2),
        "bias": lambda: terms.sum_to_size(leaves["bias"].shape),
        "frequencies": lambda: _of_frequencies(turned, q_size, k_size, leaves["frequencies"]),
    }  # fmt: skip
    for name in answer.grads:
        answer.bounds[name] = wholes[name]()


def _of_frequencies(turned: Tensor, q_size: Tensor, k_size: Tensor, frequencies: Tensor) -> Tensor:
    """Times the largest position, which the caller knows."""
    by_head = (turned * q_size.unsqueeze(-1) * k_size.unsqueeze(-2)).sum(dim=(0, 2, 3))
    return (by_head.unsqueeze(-1) if frequencies.ndim == 2 else by_head.sum()).expand_as(frequencies).clone()
