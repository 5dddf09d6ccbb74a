"""One decode step with a long cache: ReRoPE and Leaky ReRoPE beside plain RoPE. Rotations are in, on all sides.

    python -m experiments.benchmarks.decode

All sides are the package's ``KVCache``; PyTorch's own ``scaled_dot_product_attention`` on keys that are already
turned, with no cache to keep, is timed too, to show that plain RoPE's step is no straw man. Sides take turns, so that
what else the machine does falls on all of them alike; a ratio is the median of the ratios of neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch

from experiments.benchmarks import table
from experiments.benchmarks.timing import in_turns
from rope_lessons import KVCache, Scheme, attention, scheme
from rope_lessons.engine.targets import DECODE, SLOPES, WINDOW

LENGTHS = (16_384, 65_536)
HEAD_DIM = 64
SHAPES = {"cpu": (8, 8, torch.float32), "cuda": (32, 8, torch.bfloat16)}  # heads, kv_heads, dtype
SIDES = {
    "rope": scheme("rope", dim=HEAD_DIM),
    **{name: scheme("leaky-rerope", dim=HEAD_DIM, window=WINDOW, slope=slope) for name, slope in SLOPES.items()},
}


def rows(device: str, lengths: tuple[int, ...] = LENGTHS, steps: int = 60) -> list[dict[str, Any]]:
    """One row a length and a scheme: median times of a step, ratio to plain RoPE, memory of the keys."""
    return [row for length in lengths for row in _rows(torch.device(device), length, steps)]


def _rows(device: torch.device, length: int, steps: int) -> list[dict[str, Any]]:
    heads, kv_heads, dtype = SHAPES[device.type]
    caches = {name: filled(side, length, steps + 3, device) for name, side in SIDES.items()}
    q = torch.randn(1, heads, 1, HEAD_DIM, device=device, dtype=dtype)
    k, v = torch.randn(2, 1, kv_heads, 1, HEAD_DIM, device=device, dtype=dtype)
    keys, values = torch.randn(2, 1, kv_heads, length, HEAD_DIM, device=device, dtype=dtype)
    calls: dict[str, Callable[[], Any]] = {
        name: partial(attention, q, k, v, side, cache=caches[name]) for name, side in SIDES.items()
    }
    sdpa = torch.nn.functional.scaled_dot_product_attention
    calls["sdpa"] = partial(sdpa, q, keys, values, enable_gqa=heads != kv_heads)
    times = in_turns(calls, steps, device)
    plain = caches["rope"].key_bytes
    key = kv_heads * HEAD_DIM * dtype.itemsize
    return [
        {
            "what": f"one decode step, {name}, w = {WINDOW}",
            "beside": "plain RoPE's step",
            "length": length,
            "shape": f"{heads} heads on {kv_heads}, head_dim {HEAD_DIM}, {dtype}",
            "milliseconds": round(1e3 * median(times[name]), 3),
            "beside_milliseconds": round(1e3 * median(times["rope"]), 3),
            "sdpa_milliseconds": round(1e3 * median(times["sdpa"]), 3),
            "ratio": round(median(a / b for a, b in zip(times[name], times["rope"], strict=True)), 3),
            "target": DECODE,
            "keys_more_than_rope": (caches[name].key_bytes - plain) // key,
            "cache_megabytes": round(caches[name].nbytes / 1e6, 1),
        }
        for name in ("rerope", "leaky-rerope")
    ]


def filled(side: Scheme, length: int, more: int, device: torch.device) -> KVCache:
    """A cache that holds ``length`` tokens of random keys, and has room for a few more."""
    _, kv_heads, dtype = SHAPES[device.type]
    cache, chunk = KVCache(side, max_length=length + more), 4096
    for start in range(0, length, chunk):
        tokens = min(chunk, length - start)
        k, v = torch.randn(2, 1, kv_heads, tokens, HEAD_DIM, device=device, dtype=dtype)
        cache.extend(k, v)
    return cache


if __name__ == "__main__":
    table.show("experiments.benchmarks.decode", __doc__, lambda device: rows(device.type))
