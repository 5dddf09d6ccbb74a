r"""The pieces of the distance map, and what all backends must agree on beside them.

f is linear on each of three kinds of pairs: ``near`` (distance below w), ``far`` (the key is w or more before the
query) and ``after`` (w or more behind it). A linear function of p_i - p_j splits into a part that turns the query and
a part that turns the key, so on each piece the bent distance is plain rotary attention::

    near    f = p_i - p_j                             R(p_i) q_i                      and  R(p_j) k_j
    far     f = w + slope (p_i - p_j - w)             R(offset + slope p_i) q_i       and  R(slope p_j) k_j
    after   f = -w + slope (p_i - p_j + w)            R(-offset + slope p_i) q_i      and  R(slope p_j) k_j

with offset = w (1 - slope). Chapter 08 derives it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rope_lessons._float64 import exact
from rope_lessons.engine.call import Call
from rope_lessons.engine.visibility import document_runs
from rope_lessons.schemes import Scheme


class Turn(NamedTuple):
    """How a piece turns: a query at p by (offset + slope p) ω, a key at p by (slope p) ω."""

    slope: float = 1.0
    offset: float = 0.0

    def of_queries(self, positions: Tensor) -> Tensor:
        """Where queries at ``positions`` are turned to; whole numbers stay int64.

        >>> Turn(0.5, 2.0).of_queries(torch.tensor([4])), Turn().of_queries(torch.tensor([4]))
        (tensor([4.], dtype=torch.float64), tensor([4]))
        """
        return positions if self == Turn() else self.slope * exact(positions) + self.offset

    def of_keys(self, positions: Tensor) -> Tensor:
        """Where keys at ``positions`` are turned to."""
        return positions if self.slope == 1.0 else self.slope * exact(positions)


def turn_of(kind: str, window: float, slope: float) -> Turn:
    """How pairs of a kind turn: ``"near"``, ``"far"`` or ``"after"``.

    >>> turn_of("far", window=4, slope=0.25), turn_of("near", window=4, slope=0.25)
    (Turn(slope=0.25, offset=3.0), Turn(slope=1.0, offset=0.0))
    """
    if kind == "near":
        return Turn()
    offset = window * (1.0 - slope)
    return Turn(slope, offset if kind == "far" else -offset)


# --- padding and documents -------------------------------------------------------------------------------------------


class Documents(NamedTuple):
    """What is known of each token, all ``(batch or 1, k_len)``: ``runs``, the number of its document; ``number``, its
    own in the document; ``size`` of the document; and whether it is ``real`` (not padding)."""

    runs: Tensor
    number: Tensor
    size: Tensor
    real: Tensor


def documents_of(call: Call) -> Documents | None:
    """None where all tokens are of one document, and real. Padding is a document of its own."""
    ids, token = call.document_ids, torch.arange(call.k_len, device=call.q.device)
    if call.lengths is not None:
        ids = torch.where(token < call.lengths.unsqueeze(-1), torch.zeros_like(token) if ids is None else ids, -1)
    if ids is None:
        return None
    ids = torch.atleast_2d(ids)
    runs, number = document_runs(ids)
    size = torch.zeros_like(runs).scatter_add_(1, runs, torch.ones_like(runs)).gather(1, runs)
    return Documents(runs, number, size, ids >= 0)


def without_unseen(call: Call, real: Tensor | None) -> Call:
    """The call with zeros where a token is padding, which may hold anything: 0 times NaN would be NaN. ``real`` is
    ``(batch or 1, k_len)``, or None where all are."""
    if real is None:
        return call
    unseen = ~real[:, None, :, None]
    q = call.q.masked_fill(unseen[:, :, call.k_len - call.q_len :], 0.0)
    return call._replace(q=q, k=call.k.masked_fill(unseen, 0.0), v=call.v.masked_fill(unseen, 0.0))


def visible_count(scheme: Scheme, number: Tensor, size: Tensor) -> Tensor:
    """How many keys a query sees that has this ``number`` (from 0) in a document of ``size`` tokens; int64, any shape.

    >>> visible_count(Scheme(visible_window=3, sinks=1), torch.arange(6), torch.tensor(6))
    tensor([1, 2, 3, 4, 4, 4])
    """
    end = torch.minimum(number + 1, size) if scheme.causal else size  # of what is not after it
    if scheme.visible_window is None:
        return end.clamp(min=0)
    low = (number - scheme.visible_window + 1).clamp(min=0)
    high = torch.minimum(number + scheme.visible_window, end)
    last_sink = end.clamp(max=scheme.sinks)
    in_the_window, before, after = high - low, torch.minimum(last_sink, low), last_sink - high
    return in_the_window.clamp(min=0) + before.clamp(min=0) + after.clamp(min=0)


def query_scale(call: Call, documents: Documents | None) -> Tensor | None:
    """s_i as ``(batch or 1, 1, q_len, 1)``, from how many keys each query sees."""
    if call.scheme.scale is None:
        return None
    token = torch.arange(call.k_len, device=call.q.device).unsqueeze(0)
    number, size = (token, torch.full_like(token, call.k_len)) if documents is None else documents[1:3]
    last = slice(call.k_len - call.q_len, call.k_len)
    return call.scheme.scale(visible_count(call.scheme, number[:, last], size[:, last]))[:, None, :, None]
