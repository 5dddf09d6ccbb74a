"""One decode step of a whole model of transformers with a long cache: what a plan of this package adds to it.

    python -m experiments.benchmarks.pretrained

A small random Llama in four forms: as it is, with PyTorch's ``scaled_dot_product_attention``; with its own plan through
``rl.hf.extend``; with ReRoPE through ``rl.hf.extend``, whose cache keeps turned keys; and with ReRoPE as it is done
without such a cache, where all keys are kept as they came and turned anew at every step. Sides take turns; a ratio is
the median of the ratios of neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import rope_lessons as rl
from experiments.benchmarks import table
from experiments.benchmarks.timing import in_turns, milliseconds, ratio

LENGTHS = (1024, 4096, 16_384)
LAYERS, HEADS, HEAD_DIM, WINDOW = 2, 4, 64, 512
ANEW = "keys_turned_anew"  # an attention of transformers
SIDES = {  # and what they are
    "sdpa": "plain RoPE, transformers' own",
    "rope": "plain RoPE through extend",
    "rerope": "ReRoPE through extend",
    ANEW: "ReRoPE, all keys turned anew",
}


def rows(device: torch.device, lengths: tuple[int, ...] = LENGTHS, steps: int = 60) -> list[dict[str, Any]]:
    """One row for each length and side."""
    return [row for length in lengths for row in _rows(device, length, steps)]


@torch.no_grad()
def _rows(device: torch.device, length: int, steps: int) -> list[dict[str, Any]]:
    tokens = torch.randint(3, 50, (1, length), device=device)
    times = in_turns({name: _decoding(_model(name, device), tokens) for name in SIDES}, steps, device)
    return [
        {
            "what": what,
            "beside": SIDES["sdpa"],
            "length": length,
            "shape": f"{LAYERS} layers, {HEADS} heads, head_dim {HEAD_DIM}, w = {WINDOW}, torch.float32",
            "milliseconds": milliseconds(times, name),
            "beside_milliseconds": milliseconds(times, "sdpa"),
            "ratio": ratio(times, name, "sdpa"),
        }
        for name, what in SIDES.items()
    ]


def _decoding(model: Any, tokens: Tensor) -> Callable[[], Any]:
    """The next step of a model whose cache holds these tokens."""
    cache = model(tokens, use_cache=True, logits_to_keep=1).past_key_values
    return partial(model, tokens[:, -1:], past_key_values=cache, use_cache=True)


def _model(name: str, device: torch.device) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    width = HEADS * HEAD_DIM
    sizes = {"vocab_size": 50, "hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": LAYERS}
    options: dict[str, Any] = {**sizes, "num_attention_heads": HEADS, "attn_implementation": "sdpa"}
    model: Any = LlamaForCausalLM(LlamaConfig(**options))
    model = model.to(device).eval()
    if name == "rope":
        return rl.hf.extend(model, rl.hf.plan_of(model), through="attention")
    if name == "rerope":
        return rl.hf.extend(model, "rerope", window=WINDOW)
    return _turned_anew(model) if name == ANEW else model


# --- without a cache of turned keys -----------------------------------------------------------------------------------


class _Still(nn.Module):
    """A rotary module that turns nothing."""

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        shape = (*position_ids.shape, HEAD_DIM)
        return x.new_ones(shape), x.new_zeros(shape)


def _turned_anew(model: Any) -> Any:
    """ReRoPE on keys that transformers' own cache keeps as they came."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(ANEW, partial(_attend, rl.scheme("rerope", dim=HEAD_DIM, window=WINDOW)))
    AttentionMaskInterface.register(ANEW, _no_mask)
    model.model.rotary_emb = _Still()
    model.set_attn_implementation(ANEW)
    return model


def _attend(scheme: rl.Scheme, module: Any, q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
    return rl.attention(q, k, v, scheme).transpose(1, 2).contiguous(), None


def _no_mask(*_: Any, **__: Any) -> None:
    return None


if __name__ == "__main__":
    table.show("experiments.benchmarks.pretrained", __doc__, rows)
