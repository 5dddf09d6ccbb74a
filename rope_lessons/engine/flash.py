"""``backend="flash"``: any bent distance from stock kernels, in the memory and, nearly, the time of plain attention.

Split the keys of each query by distance. On each piece the bent distance is a linear function of p_i - p_j, so the
piece is plain rotary attention over a band of distances, with its own turned queries and keys (``pieces.py``).
The bands are disjoint and cover everything seen. This file turns queries and keys; ``bands.py`` does the
attention over the bands and merges it by its log-sum-exp. Chapter 08 proves both steps.

No tensor here has two long axes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rope_lessons.engine import bands, kernels
from rope_lessons.engine.call import Call
from rope_lessons.engine.merge import Attended
from rope_lessons.engine.modes import own_precision, transformed
from rope_lessons.engine.pieces import Documents, Turn, documents_of, query_scale, turn_of, without_unseen
from rope_lessons.rotary import rotary_table, rotate
from rope_lessons.schemes import default_base_scale

# Scores (batch, heads, queries and keys multiplied) up to which "auto" stays dense on a CPU: so few take about as long
# either way, and the reference is the equation itself. The more there are, the more flash gains.
CPU_SCORES = 2**15
Table = tuple[Tensor, Tensor]  # cosines and sines

# --- what it takes ---------------------------------------------------------------------------------------------------


def supports(call: Call) -> str | None:
    """Why it cannot do this call; None if it can."""
    scheme = call.scheme
    if (reason := transformed()) is not None:
        return reason
    if call.bias is not None:
        return "a bias is a tensor over all pairs"
    if scheme.alibi:
        return "ALiBi adds to every score, and stock kernels take no such term without a tensor over all pairs"
    if scheme.sinks:
        return "sinks are keys outside the band of the visible window"
    if not scheme.causal and scheme.visible_window is not None:
        return "a visible window to both sides is not causal"
    if not scheme.causal and bends(call):
        return "a bent distance to both sides needs a third piece"
    if bends(call):
        uneven = _uneven(call)
        if uneven is not None:
            return uneven
    name, why = kernels.choose_kernel(call.q.device, call.q.dtype, call.q.shape[-1])
    return why if name is None else None


def kernel_of(call: Call) -> tuple[str, str]:
    """The stock kernel of this call, and why that one."""
    name, why = kernels.choose_kernel(call.q.device, call.q.dtype, call.q.shape[-1])
    assert name is not None
    return name, why


def worthwhile(call: Call) -> str | None:
    """Why it would be no gain; None if it is one."""
    batch, heads = call.q.shape[:2]
    if call.q.device.type == "cpu" and batch * heads * call.q_len * call.k_len <= CPU_SCORES:
        return f"up to {CPU_SCORES} scores, dense takes about as long on a CPU"
    return None


def waits(call: Call) -> str | None:
    """Why the host waits for the device in this call; None if it does not."""
    apart = call.document_ids is not None or (call.lengths is not None and not call.scheme.causal)
    if call.q.device.type == "cuda" and apart:
        return "it reads on the host where documents end, which waits for the device"
    return None


def describe(call: Call) -> str:
    """What it does with a call that it can do."""
    bands = "near and far keys in kernel calls of their own" if bends(call) else "one kernel call"
    if call.scheme.visible_window is not None:
        bands = "the visible window in blocks"
    apart = ", each document apart" if call.document_ids is not None else ""
    return f"{bands}{apart}, {kernel_of(call)[1]}"


def bends(call: Call) -> bool:
    """Whether near and far turn by different rules here."""
    scheme = call.scheme
    if call.frequencies is None or scheme.slope == 1.0 or scheme.window == 0:
        return False
    return call.positions_given or scheme.window < call.k_len


def _uneven(call: Call) -> str | None:
    """The pieces are slices of the axis, so the edge must lie at one distance in tokens: evenly spaced positions."""
    if not call.positions_given:
        return None
    if torch.compiler.is_compiling() or call.q.device.type != "cpu":
        return "positions are given, and whether they are evenly spaced cannot be read here without waiting"
    if call.k_positions.dtype != torch.int64:
        return "a bent distance needs evenly spaced positions, and fractional ones are not exactly so"
    if _step(call) is None:
        return "a bent distance needs evenly spaced positions, the queries' being the last of the keys'"
    return None


def _step(call: Call) -> int | None:
    """The one step between neighbouring positions, at least 1; None if there is none."""
    q_positions, k_positions = torch.atleast_2d(call.q_positions), torch.atleast_2d(call.k_positions)
    if not (k_positions[:, k_positions.shape[1] - q_positions.shape[1] :] == q_positions).all():
        return None
    steps = k_positions.diff(dim=1)
    inside = torch.ones_like(steps, dtype=torch.bool)
    if call.document_ids is not None:  # from one document to the next, any jump
        inside = inside & (torch.atleast_2d(call.document_ids).diff(dim=1) == 0)
    steps = steps.expand(inside.shape)[inside]
    if steps.numel() == 0:
        return 1
    step = int(steps[0])
    return step if step >= 1 and bool((steps == step).all()) else None


def _edge(call: Call) -> int:
    """The window in tokens: a distance of n tokens is near when n * step < window."""
    step = (_step(call) or 1) if call.positions_given else 1
    return -(-call.scheme.window // step)


# --- what it does ----------------------------------------------------------------------------------------------------


def run(call: Call) -> Attended:
    """Output and log-sum-exp."""
    with own_precision(call.q.device):
        documents = documents_of(call)
        real = None if documents is None else documents.real
        call = without_unseen(call, real)
        if call.frequencies is not None and call.frequencies.ndim == 2:  # each head turns its keys its own way
            group = call.q.shape[1] // call.k.shape[1]
            call = call._replace(k=call.k.repeat_interleave(group, 1), v=call.v.repeat_interleave(group, 1))
        queries, keys, edges = _turned(call, query_scale(call, documents))
        output, lse = bands.flash_op(
            queries, keys, call.v, edges, call.scheme.visible_window,
            default_base_scale(call.scheme, call.q.shape[-1]), call.scheme.causal, _apart(call, documents),
            kernel_of(call)[0],
        )  # fmt: skip
        if real is not None:
            blind = ~real[:, None, call.k_len - call.q_len :]
            output, lse = output.masked_fill(blind.unsqueeze(-1), 0.0), lse.masked_fill(blind, -torch.inf)
        return output, lse


def _apart(call: Call, documents: Documents | None) -> Tensor | None:
    """Ids of the documents to treat apart, the negative ones left out; None for one call over everything: padding on
    the right needs no care under a causal mask, nobody before it sees it."""
    if documents is None or (call.document_ids is None and call.scheme.causal):
        return None
    return torch.where(documents.real, documents.runs, -1)


def _turned(call: Call, scale: Tensor | None) -> tuple[list[Tensor], list[Tensor], list[int]]:
    """Queries and keys of each band, turned and scaled; and the distances in tokens where bands begin."""
    scheme, turns = call.scheme, band_turns(call)
    if call.frequencies is None:
        return [_scaled(call.q, scale).to(call.q.dtype)], [call.k], [0]
    queries, keys = [], []
    for turn, _ in turns:
        q_table, k_table = _tables(call, turn)
        wide = call.q if scale is None or call.q.dtype == torch.float64 else call.q.float()
        q = rotate(wide, *q_table, layout=scheme.layout)
        queries.append(_scaled(q, scale).to(call.q.dtype))
        keys.append(call.k if k_table is None else rotate(call.k, *k_table, layout=scheme.layout))
    return queries, keys, [edge for _, edge in turns]


def band_turns(call: Call) -> list[tuple[Turn, int]]:
    """For each band: how it turns, and the distance in tokens where it begins."""
    scheme = call.scheme
    near, far = (turn_of(kind, scheme.window, scheme.slope) for kind in ("near", "far"))
    if not bends(call):
        return [(far if scheme.window == 0 else near, 0)]
    reach = call.k_len if scheme.visible_window is None else scheme.visible_window
    return [(turn, edge) for turn, edge in ((near, 0), (far, _edge(call))) if edge < reach]


def _tables(call: Call, turn: Turn) -> tuple[Table, Table | None]:
    """Cosines and sines for queries and keys; None where no key turns."""
    assert call.frequencies is not None
    options: dict[str, Any] = {"scale": call.scheme.rotary_scale}
    options["dtype"] = torch.float64 if call.q.dtype == torch.float64 else torch.float32
    q_positions, k_positions = turn.of_queries(call.q_positions), turn.of_keys(call.k_positions)
    if turn.slope == 0.0 and call.scheme.rotary_scale == 1.0:  # all queries by one angle, no key at all
        return _on(call.q, rotary_table(q_positions[..., :1], call.frequencies, **options)), None
    k_table = _on(call.k, rotary_table(k_positions, call.frequencies, **options))
    if not turn.offset and not call.positions_given:  # the queries' positions are the last of the keys'
        return (k_table[0][..., call.k_len - call.q_len :, :], k_table[1][..., call.k_len - call.q_len :, :]), k_table
    return _on(call.q, rotary_table(q_positions, call.frequencies, **options)), k_table


def _on(x: Tensor, table: Table) -> Table:
    return table[0].to(x.device), table[1].to(x.device)


def _scaled(q: Tensor, scale: Tensor | None) -> Tensor:
    return q if scale is None else q * scale.to(torch.promote_types(q.dtype, torch.float32))
