"""A Transformer of this package as a Llama of transformers: the same numbers under other names. Chapter 15."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn

from rope_lessons._checks import shown
from rope_lessons._extras import extra
from rope_lessons.hf import plan_from_hf
from rope_lessons.models.language_model import EPSILON
from rope_lessons.models.transformer import TransformerLM


@torch.no_grad()
def as_llama(model: nn.Module, length: int) -> Any:
    """The model as transformers' ``LlamaForCausalLM``, with copies of its weights, on its device, ready to be tested.

    Args:
        model: trained with plain RoPE of the half layout on whole heads, in every layer, without shifted keys and
            without an encoding that is added.
        length: that it was trained on, ``max_position_embeddings`` of the config.

    Returns:
        the Llama.

    Raises:
        TypeError, ValueError: another model; one that a Llama cannot be.

    Chapter 15.

    >>> from rope_lessons.scoreboard import live
    >>> own, tokens = live.load(), torch.tensor([[82, 111, 80, 69]])
    >>> bool((as_llama(own, 64)(tokens).logits - own(tokens)).abs().max() < 1e-4)
    True
    """
    if not isinstance(model, TransformerLM):
        raise TypeError(f"model must be a TransformerLM, got {type(model).__name__}")
    config = model.config
    if config.shift_keys or config.encoding:
        raise ValueError(f"model must be without shift_keys and without an encoding to be a Llama, got {config}")
    with extra("hf", "a model as a Llama"), warnings.catch_warnings():
        # transformers imports tqdm, which in a notebook without widgets would print where its bars are missing.
        warnings.filterwarnings("ignore", message="IProgress not found")
        from transformers import LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = {
        "vocab_size": config.vocabulary, "hidden_size": config.width, "intermediate_size": config.hidden,
        "num_hidden_layers": config.layers, "num_attention_heads": config.heads, "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim, "max_position_embeddings": length, "rms_norm_eps": EPSILON,
        "tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": None,
    }  # fmt: skip
    made = LlamaConfig(**sizes)
    if model.plan != plan_from_hf(made):
        raise ValueError(f"plan of model must be plain RoPE in every layer to be a Llama, got {shown(model.plan)}")
    llama: Any = LlamaForCausalLM(made)
    llama.load_state_dict(_renamed(model), strict=True)
    return llama.to(model.embedding.weight.device).eval()


def _renamed(model: TransformerLM) -> dict[str, torch.Tensor]:
    """Its weights under the names that a Llama has."""
    own = model.state_dict()
    found = {
        "model.embed_tokens.weight": own["embedding.weight"],
        "lm_head.weight": own["embedding.weight"],
        "model.norm.weight": own["norm.weight"],
    }
    heads, kv, dim = model.config.heads, model.config.kv_heads, model.config.head_dim
    for number in range(model.config.layers):
        here, there = f"layers.{number}.", f"model.layers.{number}."
        q, k, v = own[here + "attention.project.weight"].split([heads * dim, kv * dim, kv * dim])
        gate, up = own[here + "network.gate_up.weight"].chunk(2)
        found |= {
            there + "input_layernorm.weight": own[here + "attention_norm.weight"],
            there + "self_attn.q_proj.weight": q,
            there + "self_attn.k_proj.weight": k,
            there + "self_attn.v_proj.weight": v,
            there + "self_attn.o_proj.weight": own[here + "attention.out.weight"],
            there + "post_attention_layernorm.weight": own[here + "network_norm.weight"],
            there + "mlp.gate_proj.weight": gate,
            there + "mlp.up_proj.weight": up,
            there + "mlp.down_proj.weight": own[here + "network.down.weight"],
        }
    return found
