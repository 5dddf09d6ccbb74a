r"""What attention costs: products and bytes, step by step, counted on the engine's own plan of kernel calls.

A *step* is one kernel: an attention call over one part, a turn of queries or keys, a merge. It costs the time of its
products or of its bytes, whichever is longer (the roofline); steps follow one another, so their times add up. Bytes
are those that must move: each step reads its inputs once and writes its output once. What a cache keeps between two
steps is not in it. Chapter 13 explains and tests it.

A device may also say how many exponentials it does a second, and how many bytes its cache gives. Then a step takes at
least the time of its exponentials, one a pair, and that of the bytes which its tiles read again: a kernel works on
``TILE`` queries at a time, and all of their keys and values come from the cache for each such tile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from rope_lessons._checks import check_count
from rope_lessons.engine import bands, flash
from rope_lessons.engine.call import Call
from rope_lessons.engine.parts import Part
from rope_lessons.schemes import Scheme

LSE = 4  # bytes of a log-sum-exp, float32
MERGED_LSE = 48  # bytes that five small operations on two log-sum-exps read and write, a row
TURN = 3  # products and sums a channel: a pair takes four products and two sums
TILE = 128  # queries that FlashAttention works on at a time; backward it works on as many keys


class Device(NamedTuple):
    """Peak numbers of a card: products and sums a second with its tensor cores, bytes a second, bytes of memory; where
    they are known, exponentials a second, and bytes a second out of its cache."""

    name: str
    flops: float
    bandwidth: float
    memory: float
    exps: float = math.inf
    cache: float = math.inf

    @property
    def ridge(self) -> float:
        """Operations a byte from which on a kernel is bound by its products."""
        return self.flops / self.bandwidth


# NVIDIA's data sheets. H200 SXM, bfloat16, dense: half of the 1979 that are printed "with sparsity".
# T4, float16: 256 bits at 10 Gbit/s are 320 GB/s; 300 is printed too. The H100 is that of the FlashAttention-3 paper
# (arXiv 2407.08608, table 1 and section 3.1), which also has its exponentials and its L2 cache.
H200 = Device("H200", 989.5e12, 4.8e12, 141e9)
H100 = Device("H100", 989e12, 3.35e12, 80 * 2**30, exps=3.9e12, cache=12e12)
T4 = Device("T4", 65e12, 320e9, 16e9)


class Step(NamedTuple):
    """One kernel, or several alike: operations (a product and a sum are two), bytes, pairs of query and key, and bytes
    that its tiles read again."""

    name: str
    flops: int
    bytes: int
    pairs: int = 0
    again: int = 0

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.flops / self.bytes

    def seconds(self, device: Device, efficiency: float = 1.0, overlap: bool = True) -> float:
        """The roofline, with a share of the peak products that a kernel gets at most. ``overlap``: the exponentials of
        one tile are done during the products of another, and not after them."""
        products, exps = self.flops / (efficiency * device.flops), self.pairs / device.exps
        work = max(products, exps) if overlap else products + exps
        return max(work, self.bytes / device.bandwidth, self.again / device.cache)


class Sizes(NamedTuple):
    """Of one call with a batch of 1; ``itemsize`` is 2 for 16-bit numbers."""

    length: int
    heads: int = 1
    kv_heads: int = 1
    head_dim: int = 64
    itemsize: int = 2


def seconds(steps: Sequence[Step], device: Device, efficiency: float = 1.0, overlap: bool = True) -> float:
    """Of all steps, one after the other.

    >>> rope = plain_cost(Sizes(8192, heads=16, kv_heads=16, head_dim=128))
    >>> round(1000 * seconds(rope, H200), 2)  # milliseconds
    0.31
    """
    return sum(step.seconds(device, efficiency, overlap) for step in steps)


def plain_cost(sizes: Sizes, *, backward: bool = False) -> list[Step]:
    """RoPE and one fused causal call: what everything is compared with.

    >>> [step.name for step in plain_cost(Sizes(8))]
    ['turn', 'attention, causal']
    """
    length, part = sizes.length, Part("causal", (0, sizes.length), (0, sizes.length))
    turn = _turn(sizes, length * (sizes.heads + sizes.kv_heads))
    return [turn, _kernel(sizes, part)] + ([_kernel_backward(sizes, part), turn] if backward else [])


def engine_cost(
    scheme: Scheme, sizes: Sizes, *, grain: int = 0, slides: bool = False, backward: bool = False, fused: bool = False
) -> list[Step]:
    """What ``backend="flash"`` does for a scheme, from its own plan; ``grain`` and ``slides`` as in ``parts.py``.

    ``fused``: what it would do forward with one more kernel, which the engine has not: it reads the outputs of all
    calls once and writes their merge once, in the place of copies, merges and casts.

    >>> from rope_lessons import scheme
    >>> rerope = scheme("rerope", dim=64, window=2)
    >>> [step.name for step in engine_cost(rerope, Sizes(8), slides=True)]
    ['turn', 'attention, sliding', 'copy', 'attention, causal', 'merge', 'cast']
    >>> [step.name for step in engine_cost(rerope, Sizes(8), slides=True, fused=True)]
    ['turn', 'attention, sliding', 'attention, causal', 'merge, fused']
    """
    check_count("length", sizes.length, least=1)
    call = _call(scheme, sizes)
    turns = flash.band_turns(call)
    edges = [edge for _, edge in turns]
    reach, causal, length = scheme.visible_window, scheme.causal, sizes.length
    calls = bands.plan(length, length, edges, reach, causal, grain=grain, slides=slides)
    # A slope of 0 turns every key by nothing.
    keys = [slope != 0.0 or scheme.rotary_scale != 1.0 for (slope, _), _ in turns]
    vectors = 0 if call.frequencies is None else length * (sizes.heads * len(turns) + sizes.kv_heads * sum(keys))
    steps = [_turn(sizes, vectors), *(_forward_fused(sizes, calls) if fused else _forward(sizes, calls))]
    if backward:
        steps += [*_backward(sizes, calls, len(turns)), _turn(sizes, vectors)]
        if len(turns) > 1:  # two gradients of the queries, and of the keys, become one
            both = length * (sizes.heads + sizes.kv_heads) * sizes.head_dim
            steps.append(Step("add", both, 3 * both * sizes.itemsize))
    return steps


def decode_cost(sizes: Sizes, *, raw_keys: bool = False) -> list[Step]:
    """One new token against ``length`` keys that are ready to use; or that are raw, and are all turned anew.

    >>> ready, raw = (sum(s.bytes for s in decode_cost(Sizes(1000), raw_keys=raw)) for raw in (False, True))
    >>> raw / ready
    2.0
    """
    stored = sizes.length * sizes.kv_heads * sizes.head_dim
    read = Step("attention", 4 * sizes.length * sizes.heads * sizes.head_dim, 2 * stored * sizes.itemsize)
    if not raw_keys:
        return [read]
    return [Step("turn", TURN * stored, 2 * stored * sizes.itemsize), read]


# --- steps -----------------------------------------------------------------------------------------------------------


def _call(scheme: Scheme, sizes: Sizes) -> Call:
    """A call of these sizes without memory."""
    length = sizes.length
    q = torch.empty(1, sizes.heads, length, sizes.head_dim, device="meta")
    k = torch.empty(1, sizes.kv_heads, length, sizes.head_dim, device="meta")
    positions = torch.empty(length, dtype=torch.int64, device="meta")
    frequencies = None if scheme.frequencies is None else scheme.frequencies(length)
    return Call(q, k, k, scheme, positions, positions, False, None, None, None, frequencies, length, length)


def _turn(sizes: Sizes, vectors: int) -> Step:
    """Read and write; the table of angles is shared by all heads and not counted."""
    channels = vectors * sizes.head_dim
    return Step("turn", TURN * channels, 2 * channels * sizes.itemsize)


def _forward(sizes: Sizes, calls: list[tuple[int, Part]]) -> list[Step]:
    steps, item = [], sizes.itemsize
    wide = item if len(calls) == 1 else max(item, 4)  # sums are float32 at least
    for band, part in calls:
        steps += [*_flips(sizes, part), _kernel(sizes, part)]
        rows = _rows(part) * sizes.heads
        if band == 0 and (part.kind in ("causal", "sliding") or len(calls) == 1):
            steps.append(Step("copy", 0, rows * sizes.head_dim * (item + wide) + 2 * rows * LSE))
        else:
            cast = item + wide if item != wide else 0
            steps.append(
                Step("merge", 3 * rows * sizes.head_dim, rows * (sizes.head_dim * (cast + 3 * wide) + MERGED_LSE))
            )
    if wide != item:
        steps.append(Step("cast", 0, sizes.length * sizes.heads * sizes.head_dim * (wide + item)))
    return steps


def _forward_fused(sizes: Sizes, calls: list[tuple[int, Part]]) -> list[Step]:
    steps = [step for _, part in calls for step in (*_flips(sizes, part), _kernel(sizes, part))]
    if len(calls) == 1:
        return steps  # nothing to merge
    rows, whole = sum(_rows(part) for _, part in calls) * sizes.heads, sizes.length * sizes.heads
    vector = sizes.head_dim * sizes.itemsize + LSE
    flops = 3 * (rows - whole) * sizes.head_dim
    return [*steps, Step("merge, fused", flops, (rows + whole) * vector)]


def _backward(sizes: Sizes, calls: list[tuple[int, Part]], rules: int) -> list[Step]:
    item, wide = sizes.itemsize, max(sizes.itemsize, 4)
    inputs = sizes.length * sizes.head_dim * (rules * (sizes.heads + sizes.kv_heads) + sizes.kv_heads)
    steps = [Step("zero", 0, inputs * wide)]
    for _, part in calls:
        grads = sizes.head_dim * (_rows(part) * sizes.heads + 2 * _keys(part) * sizes.kv_heads)
        steps += [*_flips(sizes, part, backward=True), _kernel_backward(sizes, part)]
        steps.append(Step("add", grads, grads * (item + 2 * wide)))
    if wide != item:
        steps.append(Step("cast", 0, inputs * (wide + item)))
    return steps


def _kernel(sizes: Sizes, part: Part) -> Step:
    """Score and average: two products of ``head_dim`` numbers a pair. Reads q, k, v, writes output and log-sum-exp."""
    pairs = part.pairs * sizes.heads
    rows, keys = _rows(part) * sizes.heads, _keys(part) * sizes.kv_heads
    moved = 2 * sizes.head_dim * (rows + keys) * sizes.itemsize + rows * LSE
    again = 2 * sizes.head_dim * sizes.itemsize * pairs // TILE  # a key and a value for each tile of queries
    return Step(f"attention, {part.kind}", 4 * sizes.head_dim * pairs, moved, pairs, again)


def _kernel_backward(sizes: Sizes, part: Part) -> Step:
    """Five products: the scores again, and the gradients of weights, values, queries and keys."""
    pairs = part.pairs * sizes.heads
    rows, keys = _rows(part) * sizes.heads, _keys(part) * sizes.kv_heads
    moved = 4 * sizes.head_dim * (rows + keys) * sizes.itemsize + rows * LSE  # q, o, do, dq; k, v, dk, dv
    # For each tile of keys: a query and the gradient of its output, and a gradient that is read, added to and written.
    again = 2 * sizes.head_dim * (sizes.itemsize + LSE) * pairs // TILE
    return Step(f"backward, {part.kind}", 10 * sizes.head_dim * pairs, moved, pairs, again)


def _flips(sizes: Sizes, part: Part, backward: bool = False) -> list[Step]:
    """A reversed part copies what it reads and what it gives, rows and keys from the other end."""
    if part.kind != "reversed":
        return []
    row_copies, key_copies = (4, 4) if backward else (2, 2)  # q, o (and do, dq); k, v (and dk, dv)
    channels = sizes.head_dim * (row_copies * _rows(part) * sizes.heads + key_copies * _keys(part) * sizes.kv_heads)
    return [Step("flip", 0, 2 * channels * sizes.itemsize)]


def _rows(part: Part) -> int:
    """The kernel gets neither the last row nor the first key of a reversed block."""
    return part.blocks * (part.rows[1] - (part.kind == "reversed"))


def _keys(part: Part) -> int:
    return part.blocks * (part.keys[1] - (part.kind == "reversed"))
