"""Self-Extend: near keys at their distance, far ones by the numbers of their groups. No setting of the five knobs."""

from __future__ import annotations

import torch
from torch import Tensor

from rope_lessons._checks import check_count
from rope_lessons.engine import attention
from rope_lessons.engine.merge import Attended, merge_parts
from rope_lessons.schemes import Scheme


def self_extend_attention(q: Tensor, k: Tensor, v: Tensor, scheme: Scheme, *, window: int, group: int) -> Tensor:
    r"""Causal attention that shows a model the distance of a far key in steps of a group of tokens.

    Query :math:`i` sees key :math:`j \le i` at the distance

    .. math:: \begin{cases} i - j & i - j < w \\
                            \lfloor i/G \rfloor + w - \lfloor w/G \rfloor - \lfloor j/G \rfloor & i - j \ge w
              \end{cases}

    which is that of Leaky ReRoPE with slope :math:`1/G`, rounded; it depends on both positions and not on their
    difference alone. A text of :math:`L` tokens needs distances up to about :math:`w + (L - w)/G`. The two cases are
    two attentions over disjoint keys, merged by their log-sum-exp: no tensor over all pairs.

    Args:
        q: ``(batch, heads, seq, head_dim)``, not turned.
        k, v: ``(batch, kv_heads, seq, …)``, ``kv_heads`` dividing ``heads``.
        scheme: plain RoPE of any frequencies, with or without a scale.
        window: :math:`w`, tokens that keep their distance, at least 1.
        group: :math:`G`, tokens in a group, at least 1 (then it is plain RoPE).

    Returns:
        like :func:`~rope_lessons.attention`, ``(batch, heads, seq, value_dim)``.

    Raises:
        TypeError, ValueError: counts out of range; a scheme that bends distances, hides keys, adds a bias, or is not
            causal; queries that are fewer than the keys.

    Source: Jin et al., arXiv 2401.01325. Chapter 08.

    >>> from rope_lessons import scheme
    >>> q = k = v = torch.ones(1, 1, 6, 4)
    >>> self_extend_attention(q, k, v, scheme("rope", dim=4), window=2, group=2).shape
    torch.Size([1, 1, 6, 4])
    """
    check_count("window", window, least=1)
    check_count("group", group, least=1)
    _check_plain(scheme)
    seq = k.shape[2]
    if q.shape[2] != seq:
        raise ValueError(f"q must have as many tokens as k, {seq}, got {q.shape[2]}")
    if scheme.scale is not None:  # of all visible keys, which neither part sees whole
        q = q * scheme.scale(torch.arange(1, seq + 1, device=q.device)).to(q.dtype).unsqueeze(-1)
        scheme = scheme.replace(scale=None)
    near: Attended = attention(q, k, v, scheme.replace(visible_window=window), return_lse=True)
    if seq <= window:
        return near[0]
    token = torch.arange(seq, device=q.device)
    output, lse = attention(  # query w + n and keys 0 to n
        q[:, :, window:],
        k[:, :, :-window],
        v[:, :, :-window],
        scheme,
        q_positions=token[window:] // group + window - window // group,
        k_positions=token[:-window] // group,
        length=seq,
        return_lse=True,
    )
    ahead = (*q.shape[:2], window)  # queries without a far key
    far = torch.cat((output.new_zeros(*ahead, v.shape[-1]), output), dim=2)
    far_lse = torch.cat((lse.new_full(ahead, -torch.inf), lse), dim=2)
    return merge_parts([near, (far, far_lse)])[0].to(v.dtype)


def _check_plain(scheme: Scheme) -> None:
    bent = scheme.slope != 1 or scheme.visible_window is not None or scheme.alibi or not scheme.causal
    if bent or scheme.frequencies is None:
        raise ValueError(f"scheme must be causal RoPE without bend, visible_window or ALiBi, got {scheme!r}")
