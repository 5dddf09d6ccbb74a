"""A pretrained model of Hugging Face: its loss by length with several plans.

Needs transformers, the extra ``[hf]``. Only :func:`download` needs the network; everything else works
on any model that :func:`~rope_lessons.hf.extend` takes. No page of the book runs it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rope_lessons._extras import extra
from rope_lessons.circles import yarn_attention_factor
from rope_lessons.hf import plan_from_hf, using
from rope_lessons.schemes import FrequencySpec, LogN, Plan

MODEL = "HuggingFaceTB/SmolLM-135M"  # Llama's architecture, trained on texts of 2048 tokens, licence Apache 2.0
REVISIONS = {MODEL: "1d461723eec654e65efdc40cf49301c89c0c92f4"}  # the commit of a model's repository that is taken


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
    rerope = tuple(layer.replace(window=trained // 4, slope=0.0) for layer in plain)
    return {
        "RoPE": plain,
        "RoPE, log n†": tuple(layer.replace(scale=log) for layer in plain),
        f"YaRN {factor:g}": tuple(s.replace(frequencies=yarn(s.frequencies), rotary_scale=scale) for s in plain),
        "ReRoPE": rerope,
        "ReRoPE, log n†": tuple(layer.replace(scale=log) for layer in rerope),
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
        model: as for :func:`~rope_lessons.hf.extend`.
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
        with using(model, plan):
            for length in lengths:
                pieces = [tokens[end - length - 1 : end].to(model.device) for end in ends]
                loss = sum(_loss(model, piece, min(last, length)) for piece in pieces) / texts
                rows.append({"name": name, "length": length, "loss": round(loss, 4)})
    return rows


def _loss(model: Any, piece: Tensor, last: int) -> float:
    """Of the last tokens; only their scores over the vocabulary are made."""
    logits = model(piece[None, :-1], use_cache=False, logits_to_keep=last).logits[0]
    return F.cross_entropy(logits.float(), piece[-last:]).item()
