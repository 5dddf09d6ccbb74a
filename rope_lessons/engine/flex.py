"""``backend="flex"``: every scheme through PyTorch's FlexAttention, an independent check of the other backends.

One score cannot choose between two products of turned vectors, so near and far pairs are a call each: its own turned
queries and keys, and a mask that keeps its pairs. The calls cover disjoint pairs and merge by their log-sum-exp.
What a scheme sees is a mask function (chapter 07), ALiBi and a bias are score functions; FlexAttention skips the
blocks of 128 by 128 pairs that a mask leaves empty. Any positions will do: the edge of the window may be ragged.

On CUDA the calls are compiled, forward and backward, and nothing has two long axes but a bias and given positions'
masks while blocks are marked. On a CPU FlexAttention computes every score, forward only: good for tests, not for use.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from rope_lessons.engine.call import Call
from rope_lessons.engine.merge import Attended, merge_parts
from rope_lessons.engine.modes import own_precision, transformed
from rope_lessons.engine.pieces import Documents, documents_of, query_scale, turn_of, without_unseen
from rope_lessons.local import MaskMod, alibi_slopes, causal_mask, window_mask
from rope_lessons.rotary import apply_rotary
from rope_lessons.schemes import default_base_scale

CUDA_PAIRS = 2**24  # queries times keys; below, compiling takes longer than the dense reference

# --- what it takes ---------------------------------------------------------------------------------------------------


def supports(call: Call) -> str | None:
    """Why it cannot do this call; None if it can. On CUDA the last word is that of a small call, made at first use."""
    device = call.q.device.type
    if not call.q.numel():
        return "PyTorch's FlexAttention takes no call without queries or rows"
    if torch.compiler.is_compiling():
        return "FlexAttention compiles its calls itself; inside torch.compile it cannot be tried out first"
    if (reason := transformed()) is not None:
        return reason
    if _module() is None:
        return f"PyTorch {torch.__version__} has no FlexAttention"
    if device not in ("cpu", "cuda"):
        return f"PyTorch's FlexAttention is not for {device} devices"
    inputs = (call.q, call.k, call.v, call.bias, call.frequencies)
    if device == "cpu" and torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs):
        return "PyTorch's FlexAttention has no backward on a CPU; it needs CUDA for that"
    if device == "cuda" and call.q.dtype == torch.float64:
        return "PyTorch's FlexAttention takes no float64 on CUDA"
    return None


def worthwhile(call: Call) -> str | None:
    """Why it would be no gain; None if it is one."""
    if call.q.device.type == "cpu":
        return "on a CPU FlexAttention computes every score, like the reference"
    if call.q_len * call.k_len < CUDA_PAIRS:
        return f"for fewer than {CUDA_PAIRS} pairs the dense reference takes less time than compiling"
    return _fails(call)


def _fails(call: Call) -> str | None:
    """Why a small call of this kind failed, None if it did not."""
    if call.q.device.type == "cpu":
        return _probe(call.q.device, torch.float32, 16, 8)  # uncompiled, all dtypes and dimensions are the same
    return _probe(call.q.device, call.q.dtype, call.q.shape[-1], call.v.shape[-1])


def describe(call: Call) -> str:
    """What it does with a call that it can do."""
    calls = "one call" if len(_kinds(call)) == 1 else f"{len(_kinds(call))} calls, by kind of distance,"
    how = "uncompiled, every score is computed" if call.q.device.type == "cpu" else "compiled, with block masks"
    return f"{calls} of FlexAttention, {how}"


@functools.cache
def _module() -> ModuleType | None:
    """FlexAttention, from PyTorch 2.5 on. Imported at first use: it brings the compiler with it."""
    try:
        import torch.nn.attention.flex_attention as module
    except ImportError:
        return None
    return module


@functools.cache
def _probe(device: torch.device, dtype: torch.dtype, head_dim: int, value_dim: int) -> str | None:
    """Much depends on the card and the version: try a small call once, with all that we use, and compare. None if all
    is well. (PyTorch 2.5, say, cannot read a tensor in a mask unless lengths are multiples of 128.)"""
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 4, 200, head_dim), (2, 2, 200, head_dim), (2, 2, 200, value_dim))
    q, k, v = (torch.randn(shape, generator=generator) for shape in shapes)
    place, slopes = torch.randint(1, 9, (200,), generator=generator).cumsum(0), alibi_slopes(4)
    distance = place.unsqueeze(-1) - place
    scores = q @ k.repeat_interleave(2, 1).transpose(-1, -2) * head_dim**-0.5 - slopes.view(4, 1, 1) * distance
    scores = scores.masked_fill((distance < 0) | (distance >= 300), -torch.inf)
    wanted, wanted_lse = scores.softmax(-1) @ v.repeat_interleave(2, 1).double(), scores.logsumexp(-1)
    q, k, v = (x.to(device, dtype) for x in (q, k, v))
    place, slopes = place.to(device), slopes.to(device)

    def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return causal_mask(b, h, i, j) & (place[i] - place[j] < 300)

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score - (slopes[h] * (place[i] - place[j])).to(score.dtype)

    try:
        output, lse = _attend(q, k, v, score_mod, mask_mod, head_dim**-0.5)
    except Exception as error:  # whatever it is that this version cannot do
        return f"PyTorch's FlexAttention failed on a small call: {type(error).__name__}: {str(error).splitlines()[0]}"
    errors = [(got.cpu().double() - right).abs().max() for got, right in ((output, wanted), (lse, wanted_lse))]
    if not max(errors) < 0.1:  # also where it is NaN; 16 bits round by less
        return "PyTorch's FlexAttention gave wrong numbers on a small call"
    return None


# --- what it does ----------------------------------------------------------------------------------------------------


def run(call: Call) -> Attended:
    """Output and log-sum-exp."""
    reason = _fails(call)
    if reason is not None:
        raise ValueError(f"backend must be 'auto' or another one for this call, got 'flex': {reason}")
    with own_precision(call.q.device):
        documents = documents_of(call)
        call = without_unseen(call, None if documents is None else documents.real)
        if call.frequencies is not None and call.frequencies.ndim == 2:  # each head turns its keys its own way
            group = call.q.shape[1] // call.k.shape[1]
            call = call._replace(k=call.k.repeat_interleave(group, 1), v=call.v.repeat_interleave(group, 1))
        scale, visible = query_scale(call, documents), _scheme_mask(call, documents)
        factor = default_base_scale(call.scheme, call.q.shape[-1])
        parts = []
        for kind in _kinds(call):
            q, k = _turned(call, kind, scale)
            mask = _both(visible, _distance_mask(call, kind))
            parts.append(_attend(q, k, call.v, _score_mod(call), mask, factor))
        output, lse = merge_parts(parts)
        return output.to(call.v.dtype), lse.to(torch.promote_types(call.q.dtype, torch.float32))


def _attend(q: Tensor, k: Tensor, v: Tensor, score_mod: Any, mask_mod: MaskMod, scale: float) -> Attended:
    """One call of FlexAttention: output and log-sum-exp; zeros and minus infinity for a query that sees nothing."""
    flex = _module()
    assert flex is not None
    on_cpu = q.device.type == "cpu"
    attend, block_mask = (flex.flex_attention, flex.create_block_mask) if on_cpu else _compiled()
    (batch, heads), value_dim = q.shape[:2], v.shape[-1]
    q, k, v = _widened(q), _widened(k), _widened(v)
    blocks = block_mask(mask_mod, batch, None, q.shape[2], k.shape[2], device=q.device)
    options = {"score_mod": score_mod, "block_mask": blocks, "scale": scale, "enable_gqa": heads != k.shape[1]}
    # PyTorch 2.9 renamed the request for the log-sum-exp.
    renamed = "return_aux" in inspect.signature(flex.flex_attention).parameters
    options |= {"return_aux": flex.AuxRequest(lse=True)} if renamed else {"return_lse": True}
    if on_cpu:
        q, k, v = q.detach(), k.detach(), v.detach()  # it refuses tensors that require gradients, even under no_grad
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # it says that an uncompiled call is slow, and so do we
            output, extra = attend(q, k, v, **options)
    else:
        output, extra = attend(q, k, v, **options)
    return output[..., :value_dim], extra.lse if renamed else extra


def _widened(x: Tensor) -> Tensor:
    """Zeros behind the channels: the kernels on CUDA take 16 at least."""
    return pad(x, (0, 16 - x.shape[-1])) if x.device.type == "cuda" and x.shape[-1] < 16 else x


@functools.cache
def _compiled() -> tuple[Callable[..., Any], Callable[..., Any]]:
    flex = _module()
    assert flex is not None
    return torch.compile(flex.flex_attention), torch.compile(flex.create_block_mask)


# --- the three kinds of pairs ----------------------------------------------------------------------------------------


def _kinds(call: Call) -> list[str]:
    """Which of ``near``, ``far`` (the key is before) and ``after`` (the key is behind) there are."""
    scheme = call.scheme
    if call.frequencies is None or scheme.slope == 1.0:
        return ["near"]
    if scheme.window == 0:
        return ["far"]  # slope times distance, on either side
    given = call.positions_given
    kinds = ["near", "far"] if given or scheme.window < call.k_len else ["near"]
    # Under a causal mask a key comes earlier in the text; its position may still be larger, if positions are given.
    return [*kinds, "after"] if len(kinds) == 2 and (given or not scheme.causal) else kinds


def _turned(call: Call, kind: str, scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """Queries, times s_i, and keys, turned for this kind of pair."""
    scheme, turn = call.scheme, turn_of(kind, call.scheme.window, call.scheme.slope)
    q, k = call.q.to(torch.promote_types(call.q.dtype, torch.float32)), call.k
    if call.frequencies is not None:
        q, k = (
            apply_rotary(x, positions, call.frequencies, layout=scheme.layout, scale=scheme.rotary_scale)
            for x, positions in ((q, turn.of_queries(call.q_positions)), (k, turn.of_keys(call.k_positions)))
        )
    if scale is not None:
        q = q * scale.to(q)
    return q.to(call.q.dtype), k


def _distance(call: Call) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The distance of a pair, from the numbers of row, query and key: in positions if given, else in tokens."""
    if not call.positions_given:
        first = call.k_len - call.q_len
        return lambda b, i, j: i + first - j
    q_positions, k_positions = (x.expand(call.q.shape[0], -1) for x in (call.q_positions, call.k_positions))
    return lambda b, i, j: q_positions[b, i] - k_positions[b, j]


def _distance_mask(call: Call, kind: str) -> MaskMod | None:
    """Keeps the pairs of one kind; None if there is no other."""
    if len(_kinds(call)) == 1:
        return None
    distance, w = _distance(call), call.scheme.window
    tests: dict[str, Callable[[Tensor], Tensor]] = {
        "near": lambda d: (d < w) & (d > -w),
        "far": lambda d: d >= w,
        "after": lambda d: d <= -w,
    }
    test = tests[kind]
    return lambda b, h, i, j: test(distance(b, i, j))


def _score_mod(call: Call) -> Callable[..., Tensor] | None:
    """ALiBi and a bias, added to the scores."""
    if not call.scheme.alibi and call.bias is None:
        return None
    steps = []
    if call.scheme.alibi:
        slopes, distance = alibi_slopes(call.q.shape[1], device=call.q.device), _distance(call)
        steps.append(lambda score, b, h, i, j: score - (slopes[h] * distance(b, i, j).abs()).to(score.dtype))
    if call.bias is not None:
        bias = call.bias.expand(call.q.shape[0], call.q.shape[1], call.q_len, call.k_len)
        steps.append(lambda score, b, h, i, j: score + bias[b, h, i, j].to(score.dtype))
    if len(steps) == 1:
        return steps[0]
    return lambda score, b, h, i, j: steps[1](steps[0](score, b, h, i, j), b, h, i, j)


# --- who sees whom ---------------------------------------------------------------------------------------------------


def _scheme_mask(call: Call, documents: Documents | None) -> MaskMod:
    """Causal, window, sinks and documents as one mask function. The mask functions of chapter 07 do not care from
    where tokens are counted, so they get numbers in the axis; sinks are counted within a document."""
    scheme, first = call.scheme, call.k_len - call.q_len
    near = None if scheme.visible_window is None else window_mask(scheme.visible_window)
    if documents is not None:
        runs, number, real = (x.expand(call.q.shape[0], -1) for x in (documents.runs, documents.number, documents.real))

    def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        i = i + first
        seen = j >= 0
        if documents is not None:
            seen = (runs[b, i] == runs[b, j]) & real[b, i] & real[b, j]
        if scheme.causal:
            seen = seen & causal_mask(b, h, i, j)
        if near is not None:
            sink = (j if documents is None else number[b, j]) < scheme.sinks
            seen = seen & (near(b, h, i, j) | sink)
        return seen

    return mask_mod


def _both(one: MaskMod, other: MaskMod | None) -> MaskMod:
    if other is None:
        return one
    return lambda b, h, i, j: one(b, h, i, j) & other(b, h, i, j)
