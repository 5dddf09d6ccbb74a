"""One decoding step with a long cache, beside plain RoPE's. Rotations are in, on all sides."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from experiments.gpu import timing
from experiments.gpu.engine import dtype_of, window_of
from experiments.gpu.step import Found, Setting, could_not
from rope_lessons import KVCache, Scheme, attention, scheme
from rope_lessons.engine.targets import SLOPES

HEADS, KV_HEADS, DIM, CHUNK = 32, 8, 64, 4096
MOST_STEPS = timing.MOST + 8  # that a cache has room for


def filled(side: Scheme, length: int, batch: int, setting: Setting) -> KVCache:
    """A cache that holds ``length`` tokens of random keys, and has room for the steps."""
    cache = KVCache(side, max_length=length + MOST_STEPS)
    for start in range(0, length, CHUNK):
        tokens = min(CHUNK, length - start)
        k, v = torch.randn(2, batch, KV_HEADS, tokens, DIM, device=setting.device, dtype=dtype_of(setting))
        cache.extend(k, v)
    return cache


def step(setting: Setting, length: int, batch: int) -> Found:
    """Seconds of RoPE's step, ReRoPE's and Leaky ReRoPE's, and of one call of SDPA on keys that are ready."""
    window, on, dtype = window_of(setting), setting.device, dtype_of(setting)
    schemes = {"plain": scheme("rope", dim=DIM)} | {
        name: scheme("leaky-rerope", dim=DIM, window=window, slope=slope) for name, slope in SLOPES.items()
    }
    caches = {name: filled(side, length, batch, setting) for name, side in schemes.items()}
    q = torch.randn(batch, HEADS, 1, DIM, device=on, dtype=dtype)
    k, v = torch.randn(2, batch, KV_HEADS, 1, DIM, device=on, dtype=dtype)
    keys, values = torch.randn(2, batch, KV_HEADS, length, DIM, device=on, dtype=dtype)
    calls: dict[str, Callable[[], Any]] = {
        name: partial(attention, q, k, v, side, cache=caches[name]) for name, side in schemes.items()
    }
    calls["SDPA"] = partial(scaled_dot_product_attention, q, keys, values, enable_gqa=True)
    with torch.no_grad():
        times, why = timing.measure(calls, setting)
        seen = [row for name in schemes for row in timing.profile(calls[name], on, name)]
    labels = {"length": length, "batch": batch, "heads": HEADS, "kv_heads": KV_HEADS, "head_dim": DIM, "window": window}
    rows = timing.rows_of(times, **labels, dtype=str(dtype))
    for row in rows:
        if row["what"] in caches:
            row["key_bytes"], row["cache_bytes"] = caches[row["what"]].key_bytes, caches[row["what"]].nbytes
    return Found({"decode": rows, "profile": seen, "could_not": could_not(why)})
