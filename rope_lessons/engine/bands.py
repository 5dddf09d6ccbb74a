"""Attention over bands of distances, as PyTorch operations with a backward: ``torch.ops.rope_lessons.flash``.

Band n holds the pairs whose distance in tokens is from ``edges[n]`` on, up to the next edge, or ``reach``; its scores
are ``scale * <queries[n], keys[n]>``. What makes the queries and keys of the bands differ is not known here.

``parts.py`` cuts each band into kernel calls, ``kernels.py`` makes them, ``merge.py`` puts the pieces together.
Backward, each call gets the output and the log-sum-exp of the *whole*, and the gradients add up.

PyTorch's kernels have no second backward: a backward that will be differentiated again goes through the definition of
the operation, ``dense``, which holds all pairs.

To ``torch.compile`` these operations are opaque: how many calls there are, and of what shapes, is settled inside, from
the true lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rope_lessons.engine import kernels
from rope_lessons.engine.merge import merge_
from rope_lessons.engine.parts import Part, causal_band
from rope_lessons.engine.reference import softmax_average
from rope_lessons.engine.visibility import document_runs

_BANDS = (
    "Tensor[] queries, Tensor[] keys, Tensor value, {more}SymInt[] edges, SymInt? reach, float scale, bool causal, "
    "Tensor? documents, str kernel"
)
Fold = Callable[[Tensor], Tensor]
Span = tuple[slice, slice, slice]  # rows of the batch, queries and keys of one document


def _flash(
    queries: Sequence[Tensor],
    keys: Sequence[Tensor],
    value: Tensor,
    edges: Sequence[int],
    reach: int | None,
    scale: float,
    causal: bool,
    documents: Tensor | None,
    kernel: str,
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp. ``documents``: ids ``(1 or batch, k_len)``, each run of equal ones apart, the negative
    ones left out."""
    q, k_len = queries[0], value.shape[2]
    output, lse = _empty(q, value)
    pieces = _pieces(documents, q.shape[2], k_len)
    if documents is not None:
        output.zero_()
        lse.fill_(-torch.inf)
    for rows, q_span, k_span in pieces:
        target = output[rows, :, q_span], lse[rows, :, q_span]
        calls = _calls(target[0].shape[2], k_span.stop - k_span.start, edges, reach, causal, kernel)
        _forward_piece(
            target, [x[rows, :, q_span] for x in queries], [x[rows, :, k_span] for x in keys], value[rows, :, k_span],
            calls, scale, kernel,
        )  # fmt: skip
    return output, lse


def _forward_piece(
    target: tuple[Tensor, Tensor],
    queries: Sequence[Tensor],
    keys: Sequence[Tensor],
    value: Tensor,
    calls: list[tuple[int, Part]],
    scale: float,
    kernel: str,
) -> None:
    """One document: its parts, merged into the target. Sums are float32 where the target is narrower."""
    output, lse = target
    merged = len(calls) > 1 and output.dtype != lse.dtype
    wide = torch.empty_like(output, dtype=lse.dtype) if merged else output
    for band, part in calls:
        q, k, v = _rows(queries[band], part), _keys(keys[band], part), _keys(value, part)
        other, other_lse = _folded_forward(kernel, q, k, v, part, scale)
        here = _view(wide, part), _view(lse, part)
        if band == 0 and (part.kind in ("causal", "sliding") or len(calls) == 1):  # each row's first
            here[0].copy_(other)
            here[1].copy_(other_lse)
        else:
            merge_(*here, _turn_back(other, part), _turn_back(other_lse, part))
    if wide is not output:
        output.copy_(wide)


def _flash_backward(
    grad: Tensor | None,
    grad_lse: Tensor | None,
    queries: Sequence[Tensor],
    keys: Sequence[Tensor],
    value: Tensor,
    output: Tensor,
    lse: Tensor,
    edges: Sequence[int],
    reach: int | None,
    scale: float,
    causal: bool,
    documents: Tensor | None,
    kernel: str,
) -> list[Tensor]:
    """Gradients of the queries, the keys and the value, in this order."""
    inputs = [*queries, *keys, value]
    grads = [torch.zeros_like(x, dtype=lse.dtype, memory_format=torch.contiguous_format) for x in inputs]
    n = len(queries)
    for rows, q_span, k_span in _pieces(documents, queries[0].shape[2], value.shape[2]):
        spans = [(rows, slice(None), q_span)] * n + [(rows, slice(None), k_span)] * (n + 1)
        here = [x[span] for x, span in zip(inputs, spans, strict=True)]
        sums = [x[span] for x, span in zip(grads, spans, strict=True)]
        whole = [x[rows, :, q_span] for x in (output, lse)]
        calls = _calls(here[0].shape[2], here[-1].shape[2], edges, reach, causal, kernel)
        if grad is not None:
            _backward_piece(sums, grad[rows, :, q_span], here, whole, calls, scale, kernel)
        if grad_lse is not None:
            _backward_piece_lse(sums, grad_lse[rows, :, q_span], here, whole, calls, scale, kernel)
    return [x.to(like.dtype) for x, like in zip(grads, inputs, strict=True)]


def _backward_piece(
    sums: list[Tensor],
    grad: Tensor,
    inputs: list[Tensor],
    whole: list[Tensor],
    calls: list[tuple[int, Part]],
    scale: float,
    kernel: str,
) -> None:
    """One document: each part's own backward with the output and log-sum-exp of the whole, added up."""
    n = len(inputs) // 2
    for band, part in calls:
        q, k, v = _rows(inputs[band], part), _keys(inputs[n + band], part), _keys(inputs[-1], part)
        g, output, lse = _rows(grad, part), _rows(whole[0], part), _rows(whole[1], part)
        grads = _folded_backward(kernel, g, q, k, v, output, lse, part, scale)
        _view(sums[band], part).add_(_turn_back(grads[0], part))
        _view_keys(sums[n + band], part).add_(_turn_back(grads[1], part))
        _view_keys(sums[-1], part).add_(_turn_back(grads[2], part))


def _backward_piece_lse(
    sums: list[Tensor],
    grad_lse: Tensor,
    inputs: list[Tensor],
    whole: list[Tensor],
    calls: list[tuple[int, Part]],
    scale: float,
    kernel: str,
) -> None:
    """The log-sum-exp's gradient, from the same kernels. They give the scores the gradient
    ``weight * (<grad, v_j> - <grad, output>)``, and what is wanted is ``weight * grad_lse``: take values of 0,
    a ``grad`` of 1 in one channel, and an "output" of ``-grad_lse`` there."""
    output, grad, value = (torch.zeros_like(x) for x in (inputs[0], inputs[0], inputs[len(inputs) // 2]))
    output[..., 0] = -grad_lse
    grad[..., 0] = 1.0
    unused = torch.zeros_like(value, dtype=sums[-1].dtype)
    _backward_piece([*sums[:-1], unused], grad, [*inputs[:-1], value], [output, whole[1]], calls, scale, kernel)


def _calls(
    q_len: int, k_len: int, edges: Sequence[int], reach: int | None, causal: bool, kernel: str
) -> list[tuple[int, Part]]:
    """Every call of this kernel."""
    slides = causal and kernels.KERNELS[kernel].slides()
    return plan(q_len, k_len, edges, reach, causal, grain=kernels.KERNELS[kernel].grain, slides=slides)


def plan(
    q_len: int, k_len: int, edges: Sequence[int], reach: int | None, causal: bool, *, grain: int, slides: bool
) -> list[tuple[int, Part]]:
    """Every kernel call: the number of its band, and the part. ``grain`` and ``slides``: see ``parts.py``."""
    if not causal:
        return [(0, Part("full", (0, q_len), (0, k_len)))] if q_len else []
    stop = k_len if reach is None else min(reach, k_len)
    ends = [min(end, stop) for end in (*edges[1:], stop)]
    cut = [
        causal_band(q_len, k_len, low, high, grain=grain, slides=slides) for low, high in zip(edges, ends, strict=True)
    ]
    return [(band, part) for band, parts in enumerate(cut) for part in parts]


def _pieces(documents: Tensor | None, q_len: int, k_len: int) -> list[Span]:
    """The documents, each a span of the axis in some rows of the batch. Their ends are read on the host."""
    if documents is None:
        return [(slice(None), slice(0, q_len), slice(0, k_len))]
    before = k_len - q_len
    table = documents.cpu()
    if (table == table[:1]).all():
        table = table[:1]  # one layout for all rows
    found = []
    for number, ids in enumerate(table):
        rows = slice(None) if len(table) == 1 else slice(number, number + 1)
        ends = [*(ids.diff().nonzero().flatten() + 1).tolist(), k_len]
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            if ids[start] >= 0 and end > before:
                found.append((rows, slice(max(start - before, 0), end - before), slice(start, end)))
    return found


# Blocks: (batch, heads, length, ...) as (batch, heads, blocks, block, ...). A reversed part leaves out the last row
# of each block, which sees nothing, and the first key, which nobody sees; see parts.py.


def _cut(x: Tensor, span: tuple[int, int], part: Part) -> Tensor:
    start, length = span
    if part.blocks == 1:
        return x[:, :, start : start + length].unsqueeze(2)
    stop = start + (part.blocks - 1) * part.pitch + length
    return x[:, :, start:stop].unfold(2, length, part.pitch).movedim(-1, 3)


def _view(x: Tensor, part: Part) -> Tensor:
    x = _cut(x, part.rows, part)
    return x[:, :, :, :-1] if part.kind == "reversed" else x


def _view_keys(x: Tensor, part: Part) -> Tensor:
    x = _cut(x, part.keys, part)
    return x[:, :, :, 1:] if part.kind == "reversed" else x


def _turn_back(x: Tensor, part: Part) -> Tensor:
    return x.flip(3) if part.kind == "reversed" else x


def _rows(x: Tensor, part: Part) -> Tensor:
    return _turn_back(_view(x, part), part)


def _keys(x: Tensor, part: Part) -> Tensor:
    return _turn_back(_view_keys(x, part), part)


def _folded_forward(kernel: str, q: Tensor, k: Tensor, v: Tensor, part: Part, scale: float) -> tuple[Tensor, Tensor]:
    """A kernel call with the blocks folded into the batch."""
    causal = part.kind in ("causal", "reversed")
    fold, unfold = _folding(q, k)
    output, lse = kernels.forward(kernel, fold(q), fold(k), fold(v), causal, scale, part.window)
    return unfold(output), unfold(lse)


def _folded_backward(
    kernel: str, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor, part: Part, scale: float
) -> list[Tensor]:
    causal = part.kind in ("causal", "reversed")
    fold, unfold = _folding(q, k)
    grad, q, k, v, output, lse = (fold(x) for x in (grad, q, k, v, output, lse))
    return [unfold(x) for x in kernels.backward(kernel, grad, q, k, v, output, lse, causal, scale, part.window)]


def _folding(q: Tensor, k: Tensor) -> tuple[Fold, Fold]:
    """To what a kernel takes, ``(batch, heads, block, ...)``, and back; without a copy where strides allow."""
    batch, heads, blocks = q.shape[:3]
    if blocks == 1:
        return (lambda x: x[:, :, 0]), (lambda x: x.unsqueeze(2))
    if heads == k.shape[1]:  # heads join the batch, blocks take their place
        return (lambda x: x.flatten(0, 1)), (lambda x: x.unflatten(0, (batch, heads)))
    return (
        lambda x: x.transpose(1, 2).flatten(0, 1),
        lambda x: x.unflatten(0, (batch, blocks)).transpose(1, 2),
    )


def _empty(q: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    shape = q.shape[:3]
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    return value.new_empty((*shape, value.shape[-1])), value.new_empty(shape, dtype=wide)


flash_op = torch.library.custom_op(
    "rope_lessons::flash", _flash, mutates_args=(), schema=f"({_BANDS.format(more='')}) -> (Tensor, Tensor)"
)
flash_backward_op = torch.library.custom_op(
    "rope_lessons::flash_backward",
    _flash_backward,
    mutates_args=(),
    schema=f"(Tensor? grad, Tensor? grad_lse, {_BANDS.format(more='Tensor output, Tensor lse, ')}) -> Tensor[]",
)


@flash_op.register_fake
def _(queries: Sequence[Tensor], keys: Sequence[Tensor], value: Tensor, *options: Any) -> tuple[Tensor, Tensor]:
    return _empty(queries[0], value)


@flash_backward_op.register_fake
def _(grad: Any, grad_lse: Any, queries: Sequence[Tensor], keys: Sequence[Tensor], value: Tensor, *rest: Any) -> Any:
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (*queries, *keys, value)]


def _save(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    queries, keys, value, edges, reach, scale, causal, documents, kernel = inputs
    ctx.set_materialize_grads(False)
    ctx.bands = len(queries)
    ctx.options = edges, reach, scale, causal
    ctx.kernel = kernel
    ctx.save_for_backward(*queries, *keys, value, *output, documents)


def _backward(ctx: Any, grad: Tensor | None, grad_lse: Tensor | None) -> tuple:
    saved, n = ctx.saved_tensors, ctx.bands
    queries, keys, (value, output, lse, documents) = saved[:n], saved[n : 2 * n], saved[2 * n :]
    if grad is None and grad_lse is None:
        return [None] * n, [None] * n, *(None,) * 7
    if torch.is_grad_enabled():  # create_graph=True
        grads = _differentiable_backward(grad, grad_lse, [*queries, *keys, value], ctx.options, documents)
    else:
        grads = torch.ops.rope_lessons.flash_backward(
            grad, grad_lse, list(queries), list(keys), value, output, lse, *ctx.options, documents, ctx.kernel
        )
    return list(grads[:n]), list(grads[n : 2 * n]), grads[2 * n], None, None, None, None, None, None


flash_op.register_autograd(_backward, setup_context=_save)


def _differentiable_backward(
    grad: Tensor | None, grad_lse: Tensor | None, inputs: list[Tensor], options: tuple, documents: Tensor | None
) -> tuple[Tensor, ...]:
    # Views: two inputs may be one tensor, or one come from another, and each use has a gradient of its own.
    inputs = [x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in inputs]
    n = len(inputs) // 2
    edges, reach, scale, causal = options
    results = dense(inputs[:n], inputs[n : 2 * n], inputs[-1], edges, reach, scale, causal, documents)
    ends = [(y, g) for y, g in zip(results, (grad, grad_lse), strict=True) if g is not None]
    outputs, grads = zip(*ends, strict=True)
    return torch.autograd.grad(outputs, inputs, grads, create_graph=True, materialize_grads=True)


def dense(
    queries: Sequence[Tensor],
    keys: Sequence[Tensor],
    value: Tensor,
    edges: Sequence[int],
    reach: int | None,
    scale: float,
    causal: bool,
    documents: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The definition of ``torch.ops.rope_lessons.flash``: every score, its band chosen by the distance in tokens."""
    q_len, k_len = queries[0].shape[2], value.shape[2]
    group = queries[0].shape[1] // value.shape[1]
    wide = torch.promote_types(value.dtype, torch.float32)
    token = torch.arange(k_len, device=value.device)
    distance = token[k_len - q_len :].unsqueeze(1) - token
    bands = [q.to(wide) @ k.to(wide).repeat_interleave(group, 1).mT * scale for q, k in zip(queries, keys, strict=True)]
    scores = bands[0]
    for edge, band in zip(edges[1:], bands[1:], strict=True):
        scores = torch.where(distance >= edge, band, scores)
    visible = torch.ones_like(distance, dtype=torch.bool)
    if causal:
        visible = (distance >= 0) & (distance < (k_len if reach is None else reach))
    if documents is not None:
        runs, _ = document_runs(documents)
        same = runs[:, k_len - q_len :].unsqueeze(2) == runs.unsqueeze(1)
        visible = (visible & same & (documents >= 0).unsqueeze(1)).unsqueeze(1)
    output, lse = softmax_average(scores, visible, value.to(wide).repeat_interleave(group, 1))
    return output.to(value.dtype), lse
