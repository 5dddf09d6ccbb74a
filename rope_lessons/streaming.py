"""StreamingLLM: a window and the first tokens, as its cache shows them to a query. No setting of the five knobs."""

from __future__ import annotations

import torch
from torch import Tensor

from rope_lessons.engine import attention
from rope_lessons.rotary import apply_rotary
from rope_lessons.schemes import Scheme, default_base_scale


def streaming_attention(q: Tensor, k: Tensor, v: Tensor, scheme: Scheme) -> Tensor:
    """StreamingLLM over a whole text at once, for a scheme with a visible window and sinks: what its cache gives.

    Two attentions over disjoint keys, merged by their log-sum-exp: the window at its true distances, and the sinks
    that have left the window, seen from the place of the query in the cache. The scores of the sinks are
    ``(seq, sinks)``.

    It reads a whole text and is no cache. The distances depend on the place of the query in the cache, not on
    :math:`i - j` alone, so no scheme and no :class:`~rope_lessons.KVCache` has them. To decode, keep the last keys and
    the sinks unrotated, and count anew at every step, as ``my_streaming`` in the chapter does.

    Args:
        q: ``(batch, heads, seq, head_dim)``, not turned.
        k, v: ``(batch, kv_heads, seq, …)``, ``kv_heads`` dividing ``heads``.
        scheme: RoPE with a ``visible_window`` and ``sinks``, as ``scheme("lambda", …)``.

    Returns:
        ``(batch, heads, seq, value_dim)``.

    Raises:
        ValueError: any other scheme.

    Source: Xiao et al., arXiv 2309.17453. Chapter 07.

    >>> from rope_lessons import scheme
    >>> q = k = v = torch.ones(1, 1, 9, 4)
    >>> streaming_attention(q, k, v, scheme("lambda", dim=4, visible_window=4, sinks=1)).shape
    torch.Size([1, 1, 9, 4])
    """
    window, sinks = scheme.visible_window, scheme.sinks
    if window is None or scheme.frequencies is None or not sinks:
        raise ValueError(f"scheme must have frequencies, a visible_window and sinks, got {scheme!r}")
    if scheme.slope != 1 or scheme.scale is not None or scheme.alibi or not scheme.causal:
        raise ValueError(f"scheme must be causal, without bend, scale or ALiBi, got {scheme!r}")
    near, near_lse = attention(q, k, v, scheme.replace(sinks=0), return_lse=True)
    frequencies = scheme.frequencies(k.shape[2], q.device)
    token = torch.arange(q.shape[2], device=q.device)
    in_cache = token.clamp(max=window + sinks - 1)  # place of the query in the cache, which grows until it is full
    turned_q = apply_rotary(q, in_cache, frequencies, layout=scheme.layout)
    shared = q.shape[1] // k.shape[1]  # heads of queries to a head of keys and values
    first_k, first_v = (x[:, :, :sinks].repeat_interleave(shared, dim=1) for x in (k, v))
    turned_k = apply_rotary(first_k, token[:sinks], frequencies, layout=scheme.layout)
    in_window = token.unsqueeze(-1) - token[:sinks] < window  # (seq, sinks): there the window has them already
    scores = turned_q @ turned_k.transpose(-1, -2) * default_base_scale(scheme, q.shape[-1])
    scores = scores.masked_fill(in_window, -torch.inf)
    total = torch.logaddexp(near_lse, scores.logsumexp(dim=-1)).unsqueeze(-1)
    return near * (near_lse.unsqueeze(-1) - total).exp() + (scores - total).exp() @ first_v
