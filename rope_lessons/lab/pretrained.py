"""A pretrained model of Hugging Face with a plan in place of its own rotary attention, and its loss by length.

Needs transformers (``pip install "rope-lessons[hf]"``). Only :func:`download` needs the network; everything else works
on any causal model that ``plan_from_hf`` reads. Chapter 13 uses it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rope_lessons.attention import attention
from rope_lessons.hf import plan_from_hf
from rope_lessons.scheme import FrequencySpec, LogN, Plan
from rope_lessons.yarn import yarn_attention_factor

MODEL = "HuggingFaceTB/SmolLM-135M"  # Llama's architecture, trained on texts of 2048 tokens, licence Apache 2.0
NAME = "rope_lessons"  # of our attention among those of transformers


def download(name: str = MODEL, device: str | torch.device = "cpu") -> tuple[Any, Any]:
    """The model and its tokenizer, from Hugging Face's hub or the copy on this machine.

    Args:
        name: on the hub.
        device: where it shall work; float16 on a GPU, else float32.

    Returns:
        model and tokenizer.

    Raises:
        OSError: neither the network nor a copy.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    dtype = torch.float16 if torch.device(device).type == "cuda" else torch.float32
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        model: Any = AutoModelForCausalLM.from_pretrained(name)
    except OSError as error:
        raise OSError(
            f"{name} is not on this machine and could not be downloaded: this section needs the network. "
            f"Nothing else in the chapter does."
        ) from error
    return model.to(device, dtype).eval(), tokenizer


class _Unturned(nn.Module):
    """In place of a model's rotary module: cosines of 1 and sines of 0, so queries and keys stay as they are."""

    def __init__(self, original: nn.Module):
        super().__init__()
        self.original = original

    def forward(self, *arguments: Any, **options: Any) -> tuple[Tensor, Tensor]:
        cos, sin = self.original(*arguments, **options)
        return torch.ones_like(cos), torch.zeros_like(sin)


def _attend(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **_: Any) -> tuple[Tensor, None]:
    """Our attention with the interface of transformers, which wants heads after tokens."""
    return attention(query, key, value, module.scheme).transpose(1, 2), None  # type: ignore[arg-type]


def _no_mask(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> None:
    """The plan says who sees whom. Padding it cannot say: an error, not a wrong answer."""
    if attention_mask is not None and not bool(attention_mask.all()):
        raise ValueError("attention_mask must be all ones: with a plan, give texts of one length, got padding")


def set_plan(model: Any, plan: Plan) -> Any:
    """Give a model this plan: our attention instead of its own, in every layer.

    Its keys are cached as they come, unturned, so ``generate`` works and turns them all at every step. A text begins
    at position 0; ``position_ids`` and packed documents are not read.

    Args:
        model: a causal model of transformers whose rotary module is ``model.base_model.rotary_emb``.
        plan: one scheme per layer; :func:`~rope_lessons.plan_from_hf` reads the model's own.

    Returns:
        the same model. Call it again with another plan as often as you like.

    Raises:
        ValueError: a plan of another number of layers.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    layers = [module for module in model.modules() if hasattr(module, "layer_idx") and hasattr(module, "scaling")]
    if len(layers) != len(plan):
        raise ValueError(f"plan must have one scheme for each of the model's {len(layers)} layers, got {len(plan)}")
    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, _no_mask)
    model.set_attn_implementation(NAME)
    for layer in layers:
        layer.scheme = plan[layer.layer_idx]
    base = model.base_model
    if not isinstance(base.rotary_emb, _Unturned):
        base.rotary_emb = _Unturned(base.rotary_emb)
    return model


def plans(config: Any, factor: float) -> dict[str, Plan]:
    """What to compare on a model that was trained with plain RoPE: for texts ``factor`` times as long.

    Args:
        config: the model's config.
        factor: of YaRN; ReRoPE has no factor, its window is a quarter of the training length.

    Returns:
        what to compare, by name. RoPE, YaRN and ReRoPE; the first and the last with log n† too.

    Raises:
        TypeError, ValueError: a config that ``plan_from_hf`` does not read, or whose frequencies are not RoPE's.
    """
    plain, trained = plan_from_hf(config), config.max_position_embeddings

    def yarn(spec: FrequencySpec | None) -> FrequencySpec:
        if spec is None or spec.kind != "rope":
            raise ValueError(f"config must be of a model with plain RoPE in every layer, got {spec!r}")
        return FrequencySpec("yarn", **{**dict(spec.options), "factor": factor, "train_length": trained})

    scale, log = yarn_attention_factor(factor), LogN(trained, clip=True)
    rerope = tuple(replace(layer, window=trained // 4, slope=0.0) for layer in plain)
    return {
        "RoPE": plain,
        "RoPE, log n†": tuple(replace(layer, scale=log) for layer in plain),
        f"YaRN {factor:g}": tuple(replace(s, frequencies=yarn(s.frequencies), rotary_scale=scale) for s in plain),
        "ReRoPE": rerope,
        "ReRoPE, log n†": tuple(replace(layer, scale=log) for layer in rerope),
    }


def stdlib_text() -> str:
    """A long English text that every machine has: Python's own help topics."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


@torch.no_grad()
def losses(
    model: Any,
    tokens: Tensor,
    named_plans: Mapping[str, Plan],
    lengths: Sequence[int],
    *,
    texts: int = 4,
    last: int = 256,
) -> list[dict[str, Any]]:
    """Loss on the same last tokens of a text, read with more and more of what comes before.

    Args:
        model: as for :func:`set_plan`.
        tokens: int64 ``(n,)``, one long text.
        named_plans: dictionary of plans.
        lengths: tokens that the model reads; the last of them are scored.
        texts: how many pieces of the text, spread evenly.
        last: how many tokens are scored in each.

    Returns:
        rows with ``name``, ``length`` and ``loss``, nats a token.

    Raises:
        ValueError: a text that is shorter than the longest length.
    """
    longest = max(lengths)
    if len(tokens) <= longest:
        raise ValueError(f"tokens must be more than the longest length, {longest}, got {len(tokens)}")
    ends = torch.linspace(longest + 1, len(tokens), texts).long().tolist()
    rows = []
    for name, plan in named_plans.items():
        set_plan(model, plan)
        for length in lengths:
            pieces = [tokens[end - length - 1 : end].to(model.device) for end in ends]
            loss = sum(_loss(model, piece, min(last, length)) for piece in pieces) / texts
            rows.append({"name": name, "length": length, "loss": round(loss, 4)})
    return rows


def _loss(model: Any, piece: Tensor, last: int) -> float:
    """Of the last tokens; only their scores over the vocabulary are made."""
    logits = model(piece[None, :-1], use_cache=False, logits_to_keep=last).logits[0]
    return F.cross_entropy(logits.float(), piece[-last:]).item()
