r"""Attention over disjoint sets of keys, put together again by their log-sum-exp.

With :math:`L = \log \sum_j e^{s_j}` over one set of keys and :math:`o` their softmax average of the values, the two
of a union are :math:`L = \log(e^{L_1} + e^{L_2})` and :math:`o = e^{L_1 - L} o_1 + e^{L_2 - L} o_2`. The rule is
associative: any number of parts, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Attended = tuple[Tensor, Tensor]  # output and log-sum-exp, over all keys or some


def merge_(output: Tensor, lse: Tensor, other: Tensor, other_lse: Tensor) -> None:
    """Put the attention over other keys, with its log-sum-exp, into ``output`` and ``lse``.

    A set of keys that a query does not see has a log-sum-exp of minus infinity and counts nothing; a query that sees
    neither set keeps zeros.

    Args:
        output, other: ``(..., queries, value_dim)``.
        lse, other_lse: ``(..., queries)``.

    >>> output, lse = torch.tensor([[1.0]]), torch.tensor([0.0])
    >>> merge_(output, lse, torch.tensor([[3.0]]), torch.tensor([0.0]))
    >>> output, lse  # the mean, and log 2
    (tensor([[2.]]), tensor([0.6931]))
    """
    ahead = (other_lse - lse).nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)  # -inf twice: zeros, both
    share = torch.sigmoid(ahead).unsqueeze(-1)  # exp(other_lse) over the sum of the two
    output.lerp_(other.to(output.dtype), share.to(output.dtype))
    lse.copy_(torch.logaddexp(lse, other_lse))


def merge_parts(parts: Sequence[Attended]) -> Attended:
    """Outputs and log-sum-exps of any number of parts as one attention; gradients flow through it.

    Args:
        parts: pairs of ``(..., queries, value_dim)`` and ``(..., queries)``, as for :func:`merge_`.

    Returns:
        the same pair for the union of their keys.

    >>> one, three = (torch.tensor([[1.0]]), torch.tensor([0.0])), (torch.tensor([[3.0]]), torch.tensor([0.0]))
    >>> merge_parts([one, three])
    (tensor([[2.]]), tensor([0.6931]))
    """
    if len(parts) == 1:
        return parts[0]
    logs = torch.stack([lse for _, lse in parts])
    blind = (logs == -torch.inf).all(dim=0)  # of minus infinities alone, the gradient would be NaN
    lse = logs.masked_fill(blind, 0.0).logsumexp(dim=0)
    shares = (logs - lse).exp()  # a blind query's are 0
    weighted = [share.unsqueeze(-1) * part for share, (part, _) in zip(shares, parts, strict=True)]
    return torch.stack(weighted).sum(dim=0), lse.masked_fill(blind, -torch.inf)
