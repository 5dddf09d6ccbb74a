"""Turning queries and keys, beside a copy of both and beside other libraries."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from experiments.benchmarks.rotary import _ours
from experiments.gpu import timing
from experiments.gpu.engine import dtype_of
from experiments.gpu.step import Found, Setting, could_not
from rope_lessons import rope_frequencies, rotary_table

Turn = Callable[[], Any]


def speed(setting: Setting) -> Found:
    """Seconds of each; all read and write the same bytes."""
    batch, heads, kv_heads, length, dim = setting.by_scale((4, 32, 8, 8192, 128), (1, 4, 2, 2048, 64), (1, 2, 1, 16, 8))
    on, dtype = setting.device, dtype_of(setting)
    q, k = (torch.randn(batch, n, length, dim, device=on, dtype=dtype) for n in (heads, kv_heads))
    cos, sin = rotary_table(torch.arange(length, device=on), rope_frequencies(dim, device=on))
    calls: dict[str, Turn] = {"copy": lambda: (q.clone(), k.clone()), "ours": partial(_ours, q, k, cos, sin)}
    if on.type == "cuda":
        calls["ours, torch.compile"] = partial(torch.compile(_ours, fullgraph=True), q, k, cos, sin)
    others, reasons = peers(q, k, cos, sin)
    with torch.no_grad():
        times, why = timing.measure({**calls, **others}, setting)
    labels = {"bytes": 2 * (q.nbytes + k.nbytes), "q": list(q.shape), "k": list(k.shape), "dtype": str(dtype)}
    return Found({"turns": timing.rows_of(times, **labels), "could_not": could_not({**reasons, **why})})


def peers(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[dict[str, Turn], dict[str, str]]:
    """Other libraries' ways, and why not those that are not here."""
    found: dict[str, Turn] = {}
    reasons: dict[str, str] = {}
    for name, make in PEERS.items():
        try:
            found[name] = make(q, k, cos, sin)
        except Exception as error:  # some cannot even be imported without a card
            reasons[name] = f"{type(error).__name__}: {error}"[:300]
    return found, reasons


def _wide(cos: Tensor, sin: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """The table as Hugging Face has it: ``(1, length, dim)``."""
    return [torch.cat((x, x), dim=-1)[None].to(dtype) for x in (cos, sin)]


def _transformers(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Turn:
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    return partial(apply_rotary_pos_emb, q, k, *_wide(cos, sin, q.dtype))


def _liger(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Turn:
    from liger_kernel.transformers.rope import liger_rotary_pos_emb  # type: ignore[import-not-found]

    return partial(liger_rotary_pos_emb, q, k, *_wide(cos, sin, q.dtype))  # in place: as many bytes


def _lucidrains(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Turn:
    from rotary_embedding_torch import RotaryEmbedding

    module = RotaryEmbedding(dim=q.shape[-1]).to(q.device)
    return lambda: (module.rotate_queries_or_keys(q), module.rotate_queries_or_keys(k))


def _flash_attn(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Turn:
    from flash_attn.layers.rotary import apply_rotary_emb  # type: ignore[import-not-found]

    rows = [x.transpose(1, 2).contiguous() for x in (q, k)]  # it takes heads after rows
    table = cos.to(q.dtype), sin.to(q.dtype)
    return lambda: [apply_rotary_emb(x, *table) for x in rows]


PEERS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Turn]] = {
    "transformers": _transformers,
    "Liger": _liger,
    "rotary-embedding-torch": _lucidrains,
    "flash-attn": _flash_attn,
}
