"""The optional section of chapter 13, on small random models of the architectures that it is meant for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

import rope_lessons as rl
from rope_lessons.models import pretrained

SMALL: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 61,
    "max_position_embeddings": 32, "initializer_range": 0.3,
}  # fmt: skip
TOKENS = torch.randint(0, 61, (300,), generator=torch.Generator().manual_seed(1))


def model(kind: type = LlamaConfig, **options: Any) -> Any:
    torch.manual_seed(0)
    if kind is LlamaConfig:
        options = {"num_key_value_heads": 2, **options}
    return AutoModelForCausalLM.from_config(kind(**SMALL, **options)).eval()


YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 32}


def test_plans() -> None:
    small = model()
    found = pretrained.plans(small.config, 4)
    plain = rl.plan_from_hf(small.config)
    assert found["RoPE"] == plain
    assert found["YaRN 4"] == rl.plan_from_hf(model(rope_parameters=YARN).config)
    assert found["ReRoPE"] == tuple(replace(layer, window=8, slope=0.0) for layer in plain)
    assert all(layer.scale == rl.LogN(32, clip=True) for layer in found["ReRoPE, log n†"])
    with pytest.raises(ValueError, match="config must be of a model with plain RoPE"):
        pretrained.plans(model(rope_parameters=YARN).config, 4)


@torch.no_grad()
def test_losses_are_of_the_same_last_tokens() -> None:
    small = model()
    plans = pretrained.plans(small.config, 4)
    rows = pretrained.losses(small, TOKENS, plans, (16, 32, 128), texts=2, last=8)
    assert [(row["name"], row["length"]) for row in rows] == [(name, n) for name in plans for n in (16, 32, 128)]
    by = {(row["name"], row["length"]): row["loss"] for row in rows}
    rl.hf.extend(small, plans["ReRoPE"])
    wanted = []
    for end in (129, 300):
        logits = small(TOKENS[None, end - 129 : end - 1]).logits[0, -8:]
        wanted.append(F.cross_entropy(logits, TOKENS[end - 8 : end]).item())
    assert by["ReRoPE", 128] == pytest.approx(sum(wanted) / 2, abs=1e-4)
    assert by["RoPE", 16] == by["RoPE, log n†", 16]  # nothing is beyond the training length
    assert by["RoPE", 128] != by["ReRoPE", 128]


def test_errors() -> None:
    small = model()
    with pytest.raises(ValueError, match="tokens must be more than the longest length, 300, got 300"):
        pretrained.losses(small, TOKENS, {"RoPE": rl.plan_from_hf(small.config)}, (300,))


@pytest.mark.parametrize("revision", [None, "main", "v1.0", "1d46172", "A" * 40, 7])
def test_only_a_full_commit_is_downloaded(revision: Any) -> None:
    with pytest.raises(ValueError, match=r"revision must be a full commit of 'x', 40 hexadecimal digits .*, got "):
        pretrained.download("x", revision=revision)


def test_without_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("We couldn't connect")

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", fail)
    with pytest.raises(OSError, match=r"SmolLM-135M is not on this machine .* needs the network"):
        pretrained.download()


def test_downloaded_model_and_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    small = model()
    asked = []

    def fake(kind: str, found: Any) -> Any:
        return lambda name, **options: asked.append((kind, name, options)) or found

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", fake("tokenizer", "a tokenizer"))
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", fake("model", small))
    assert pretrained.download("x", revision="a" * 40) == (small, "a tokenizer")
    fixed = {"revision": "a" * 40, "trust_remote_code": False}
    assert asked == [("tokenizer", "x", fixed), ("model", "x", {**fixed, "use_safetensors": True})]
    pretrained.download()
    assert {options["revision"] for _, name, options in asked if name == pretrained.MODEL} == {
        pretrained.REVISIONS[pretrained.MODEL]
    }
    assert len(pretrained.stdlib_text()) > 300_000
