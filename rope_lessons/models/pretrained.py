"""A pretrained model of Hugging Face with a plan in place of its own rotary attention, and its loss by length.

Needs transformers, the extra ``[hf]``. Only :func:`download` needs the network; everything else works
on any causal model that ``plan_from_hf`` reads. Chapter 13 uses it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rope_lessons._extras import extra
from rope_lessons.circles import yarn_attention_factor
from rope_lessons.engine import attention
from rope_lessons.hf import plan_from_hf
from rope_lessons.schemes import FrequencySpec, LogN, Plan, Scheme

MODEL = "HuggingFaceTB/SmolLM-135M"  # Llama's architecture, trained on texts of 2048 tokens, licence Apache 2.0
REVISIONS = {MODEL: "1d461723eec654e65efdc40cf49301c89c0c92f4"}  # the commit of a model's repository that is taken
NAME = "rope_lessons"  # of our attention among those of transformers


def download(name: str = MODEL, device: str | torch.device = "cpu", *, revision: str | None = None) -> tuple[Any, Any]:
    """The model and its tokenizer, from Hugging Face's hub or the copy on this machine.

    What is taken is fixed: one commit, no code of the repository, and weights as safetensors (another format could run
    code when it is read).

    Args:
        name: on the hub.
        device: where it is to work; float16 on a GPU, else float32.
        revision: a full commit of the repository, 40 hexadecimal digits; that of ``REVISIONS`` by default.

    Returns:
        model and tokenizer.

    Raises:
        ValueError: a revision that is no full commit; none for a model that has none in ``REVISIONS``.
        OSError: neither the network nor a copy; no weights as safetensors.
    """
    revision = REVISIONS.get(name) if revision is None else revision
    if not isinstance(revision, str) or not re.fullmatch("[0-9a-f]{40}", revision):
        raise ValueError(
            f"revision must be a full commit of {name!r}, 40 hexadecimal digits (a branch or a tag can move), "
            f"got {revision!r}"
        )
    with extra("hf", "a model of Hugging Face"):
        from transformers import AutoModelForCausalLM, AutoTokenizer

    dtype = torch.float16 if torch.device(device).type == "cuda" else torch.float32
    try:
        fixed: dict[str, Any] = {"revision": revision, "trust_remote_code": False}
        tokenizer = AutoTokenizer.from_pretrained(name, **fixed)
        model: Any = AutoModelForCausalLM.from_pretrained(name, use_safetensors=True, **fixed)
    except OSError as error:
        raise OSError(
            f"{name} is not on this machine and could not be downloaded: this section needs the network. "
            f"Nothing else in the chapter does. ({str(error).partition(chr(10))[0]})"
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


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, dropout: float = 0.0, **_: Any
) -> tuple[Tensor, None]:
    """Our attention with the interface of transformers, which wants heads after tokens."""
    if dropout:
        raise ValueError(f"attention_dropout must be 0 in training with a plan, which drops nothing, got {dropout}")
    return attention(query, key, value, module.scheme).transpose(1, 2), None  # type: ignore[call-overload]


def _check_call(module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Before every call of the model: what would silently give other numbers is refused.

    Our attention takes the keys that it gets for the last tokens of the text, all of them."""
    given = inspect.signature(module.forward).bind_partial(*arguments, **options).arguments
    given = {**given, **given.get("kwargs", {})}
    mask, cache = given.get("attention_mask"), given.get("past_key_values")
    if mask is not None and (not isinstance(mask, Tensor) or mask.ndim != 2):
        shape = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(
            f"attention_mask must be None or ones of shape (batch, tokens): the plan says who sees whom, got {shape}"
        )
    if cache is not None:
        for number, layer in enumerate(_attentions(module)):
            _check_cache(cache, number, layer.scheme)


def _check_cache(cache: Any, number: int, scheme: Scheme) -> None:
    """It must hand out every key that the layer sees, and nothing else."""
    layers = getattr(cache, "layers", None)
    if layers is None:  # before transformers 4.54
        kind, window = type(cache).__name__.replace("DynamicCache", "DynamicLayer"), None
    elif number < len(layers):
        kind, window = type(layers[number]).__name__, getattr(layers[number], "sliding_window", None)
    else:  # still empty; its layers are made when they are needed
        kind, window = getattr(cache, "layer_class_to_replicate", type(cache)).__name__, None
    if kind == "DynamicLayer":
        return
    if kind != "DynamicSlidingWindowLayer":
        raise ValueError(
            f"past_key_values must be a DynamicCache with a plan (a static one has empty slots, which would count as "
            f"tokens), got {type(cache).__name__} with {kind} for layer {number}"
        )
    seen, spec = scheme.visible_window, scheme.frequencies
    if seen is None or window is None or seen > window or scheme.sinks or (spec is not None and spec.needs_length):
        raise ValueError(
            f"past_key_values must keep every key that the plan sees: for layer {number} it keeps the last {window} "
            f"tokens, got {scheme!r}. Give DynamicCache() without a config, or call with use_cache=False"
        )


def _no_mask(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> None:
    """The plan says who sees whom. Padding it cannot say: an error, not a wrong answer."""
    if attention_mask is not None and not bool(attention_mask.all()):
        raise ValueError("attention_mask must be all ones: with a plan, give texts of one length, got padding")


def _attentions(model: nn.Module) -> list[Any]:
    """The attention of each layer, in order."""
    found: list[Any] = [module for module in model.modules() if hasattr(module, "layer_idx")]
    return sorted((module for module in found if hasattr(module, "scaling")), key=lambda module: module.layer_idx)


def set_plan(model: Any, plan: Plan) -> Any:
    """Give a model this plan: our attention instead of its own, in every layer.

    Its keys are cached as they come, unturned, so ``generate`` works and turns them all at every step. A text begins
    at position 0; ``position_ids`` and packed documents are not read.

    A call that it cannot serve exactly is refused: a static cache, a sliding one that drops keys that the plan sees, a
    mask of four dimensions, padding, and dropout of attention weights.

    Args:
        model: a causal model of transformers whose rotary module is ``model.base_model.rotary_emb``.
        plan: one scheme per layer; :func:`~rope_lessons.plan_from_hf` reads the model's own.

    Returns:
        the same model. Call it again with another plan as often as you like.

    Raises:
        TypeError, ValueError: something else than a plan; a plan of another number of layers.
    """
    with extra("hf", "a model of Hugging Face"):
        from transformers import AttentionInterface, AttentionMaskInterface

    layers = _attentions(model)
    if not isinstance(plan, tuple) or not all(isinstance(scheme, Scheme) for scheme in plan):
        raise TypeError(f"plan must be a tuple of one Scheme per layer, got {type(plan).__name__}")
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
        base.register_forward_pre_hook(_check_call, with_kwargs=True)
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
