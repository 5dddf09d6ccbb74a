"""Rotary on queries and keys beside the bandwidth of a copy on the device, and beside other libraries. CUDA only.

python -m experiments.benchmarks.rotary
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from experiments.benchmarks import table
from experiments.benchmarks.timing import in_turns
from rope_lessons import rope_frequencies, rotary_table
from rope_lessons.engine.targets import ROTARY
from rope_lessons.rotary import rotate

BATCH, HEADS, KV_HEADS, LENGTH, DIM = 4, 32, 8, 8192, 128


def rows(device: torch.device) -> list[dict[str, Any]]:
    """Bytes read and written a second, each side; the same table of angles for all, made beforehand."""
    if device.type != "cuda":
        return []
    q = torch.randn(BATCH, HEADS, LENGTH, DIM, device=device, dtype=torch.bfloat16)
    k = torch.randn(BATCH, KV_HEADS, LENGTH, DIM, device=device, dtype=torch.bfloat16)
    moved = 2 * (q.nbytes + k.nbytes)  # read and written
    cos, sin = rotary_table(torch.arange(LENGTH, device=device), rope_frequencies(DIM, device=device))
    ours = partial(_ours, q, k, cos, sin)
    calls: dict[str, Callable[[], Any]] = {
        "copy": lambda: (q.clone(), k.clone()),
        "ours, eager": ours,
        "ours, torch.compile": torch.compile(ours, fullgraph=True),
        **_peers(q, k, cos, sin),
    }
    times = in_turns(calls, 20, device, warm_up=5)
    speed = {name: moved / median(seconds) / 1e9 for name, seconds in times.items()}
    return [
        {
            "what": f"rotary on q and k, {name}",
            "beside": "a copy of both",
            "shape": f"q {tuple(q.shape)}, k {tuple(k.shape)}, bfloat16, {moved / 1e6:.0f} MB moved",
            "gigabytes_a_second": round(speed[name]),
            "share_of_copy": round(speed[name] / speed["copy"], 3),
            "target": ROTARY,
        }
        for name in calls
    ]


def _ours(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return rotate(q, cos, sin, layout="half"), rotate(k, cos, sin, layout="half")


def _peers(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> dict[str, Callable[[], Any]]:
    """Those that are installed."""
    found: dict[str, Callable[[], Any]] = {}
    wide = [torch.cat((x, x), dim=-1)[None].to(q.dtype) for x in (cos, sin)]  # (1, length, dim), as they take it
    try:
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

        found["transformers"] = lambda: apply_rotary_pos_emb(q, k, *wide)
    except ImportError:
        pass
    try:
        from liger_kernel.transformers.rope import liger_rotary_pos_emb  # type: ignore[import-not-found]

        found["Liger"] = lambda: liger_rotary_pos_emb(q.clone(), k.clone(), *wide)  # it works in place
    except ImportError:
        pass
    try:
        from rotary_embedding_torch import RotaryEmbedding

        module = RotaryEmbedding(dim=DIM).to(q.device)
        found["rotary-embedding-torch"] = lambda: (
            module.rotate_queries_or_keys(q),
            module.rotate_queries_or_keys(k),
        )
    except ImportError:
        pass
    return found


if __name__ == "__main__":
    table.show("experiments.benchmarks.rotary", __doc__, rows)
