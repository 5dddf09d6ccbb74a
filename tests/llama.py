"""A small random Llama of transformers: what tests of chapters 03 and 05 compare with."""

from __future__ import annotations

from typing import Any

import torch


def llama(rope: dict[str, Any], length: int = 16, head_dim: int = 16, **options: Any) -> Any:
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=2 * head_dim,
        num_attention_heads=2,
        num_hidden_layers=1,
        intermediate_size=32,
        vocab_size=50,
        initializer_range=0.5,  # large enough for attention to have preferences
        max_position_embeddings=length,
        rope_parameters={"rope_theta": 10_000.0, **rope},
        **options,
    )
    return LlamaModel(config).eval()


def last_states(model: Any, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The last token's state, from one call, and token by token with a cache."""
    at_once = model(tokens, use_cache=False).last_hidden_state[:, -1]
    cache = None
    for i in range(tokens.shape[1]):
        out = model(tokens[:, i : i + 1], past_key_values=cache, use_cache=True)
        cache = out.past_key_values
    return at_once, out.last_hidden_state[:, -1]
