"""The optional section of chapter 13, on small random models of the architectures that it is meant for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, GPTNeoXConfig, LlamaConfig, MistralConfig

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


@pytest.mark.parametrize(
    ("kind", "options"), [(LlamaConfig, {}), (LlamaConfig, {"rope_parameters": YARN}), (GPTNeoXConfig, {})]
)
@torch.no_grad()
def test_a_models_own_plan_changes_nothing(kind: type, options: dict[str, Any]) -> None:
    small, tokens = model(kind, **options), TOKENS[None, :50]
    wanted = small(tokens).logits
    assert wanted.std() > 0.1
    pretrained.set_plan(small, rl.plan_from_hf(small.config))
    torch.testing.assert_close(small(tokens).logits, wanted, atol=2e-4, rtol=1e-4)


@torch.no_grad()
def test_generation_with_a_cache_of_unturned_keys() -> None:
    small = model()
    pretrained.set_plan(small, pretrained.plans(small.config, 4)["ReRoPE, log n†"])
    at_once = small(TOKENS[None, :60]).logits
    cache = small(TOKENS[None, :55], use_cache=True).past_key_values
    for i in range(55, 60):
        step = small(TOKENS[None, i : i + 1], past_key_values=cache, use_cache=True)
        torch.testing.assert_close(step.logits[:, -1], at_once[:, i], atol=1e-4, rtol=1e-4)
    prompt = TOKENS[None, :40]
    text = small.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=3, do_sample=False)
    assert text.shape == (1, 43)


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
    pretrained.set_plan(small, plans["ReRoPE"])
    wanted = []
    for end in (129, 300):
        logits = small(TOKENS[None, end - 129 : end - 1]).logits[0, -8:]
        wanted.append(F.cross_entropy(logits, TOKENS[end - 8 : end]).item())
    assert by["ReRoPE", 128] == pytest.approx(sum(wanted) / 2, abs=1e-4)
    assert by["RoPE", 16] == by["RoPE, log n†", 16]  # nothing is beyond the training length
    assert by["RoPE", 128] != by["ReRoPE", 128]


def test_errors() -> None:
    small = model()
    plan = rl.plan_from_hf(small.config)
    with pytest.raises(TypeError, match="plan must be a tuple of one Scheme per layer, got list"):
        pretrained.set_plan(small, list(plan))
    with pytest.raises(ValueError, match="plan must have one scheme for each of the model's 2 layers, got 1"):
        pretrained.set_plan(small, plan[:1])
    pretrained.set_plan(small, plan)
    mask = torch.ones(1, 9, dtype=torch.int64)
    small(TOKENS[None, :9], attention_mask=mask)
    mask[0, 0] = 0
    with pytest.raises(ValueError, match="attention_mask must be all ones"):
        small(TOKENS[None, :9], attention_mask=mask)
    with pytest.raises(ValueError, match="tokens must be more than the longest length, 300, got 300"):
        pretrained.losses(small, TOKENS, {"RoPE": plan}, (300,))


@pytest.mark.parametrize("revision", [None, "main", "v1.0", "1d46172", "A" * 40, 7])
def test_only_a_full_commit_is_downloaded(revision: Any) -> None:
    with pytest.raises(ValueError, match=r"revision must be a full commit of 'x', 40 hexadecimal digits .*, got "):
        pretrained.download("x", revision=revision)


def generate(small: Any, **options: Any) -> torch.Tensor:
    prompt = TOKENS[None, :12]
    return small.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12, do_sample=False, pad_token_id=0, **options
    )


def test_caches_that_do_not_hand_out_the_keys_of_the_plan_are_refused() -> None:
    small = model()
    wanted = generate(small)
    pretrained.set_plan(small, rl.plan_from_hf(small.config))
    assert torch.equal(generate(small), wanted)
    with pytest.raises(ValueError, match=r"past_key_values must be a DynamicCache with a plan .* got StaticCache"):
        generate(small, cache_implementation="static")
    assert torch.equal(generate(small, use_cache=False), wanted)  # nothing is left behind


def test_a_sliding_cache_serves_plans_that_see_no_more() -> None:
    torch.manual_seed(0)
    small = AutoModelForCausalLM.from_config(MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=8)).eval()
    plan, wanted = rl.plan_from_hf(small.config), generate(small)
    assert [layer.visible_window for layer in plan] == [8, 8]
    narrow = tuple(replace(layer, visible_window=4) for layer in plan)
    for own in (plan, narrow):
        pretrained.set_plan(small, own)
        found = generate(small)
        assert torch.equal(found, generate(small, use_cache=False))
        assert torch.equal(found, wanted) is (own is plan)
    for wide in (
        tuple(replace(layer, visible_window=None) for layer in plan),
        tuple(replace(layer, visible_window=9) for layer in plan),
        tuple(replace(layer, sinks=1) for layer in plan),
        (plan[0], replace(plan[1], frequencies=rl.FrequencySpec("dynamic-ntk", dim=8, factor=2, train_length=8))),
    ):
        pretrained.set_plan(small, wide)
        with pytest.raises(ValueError, match="past_key_values must keep every key that the plan sees: for layer "):
            generate(small)
        assert torch.equal(generate(small, past_key_values=DynamicCache()), generate(small, use_cache=False))


def test_a_mask_for_every_pair_and_dropout_are_refused() -> None:
    small = model(attention_dropout=0.1)
    pretrained.set_plan(small, rl.plan_from_hf(small.config))
    tokens = TOKENS[None, :9]
    for mask in (torch.ones(1, 1, 9, 9), {"full_attention": None}):
        with pytest.raises(ValueError, match=r"attention_mask must be None or ones of shape \(batch, tokens\)"):
            small(tokens, attention_mask=mask)
    assert small(tokens).logits.isfinite().all()
    with pytest.raises(ValueError, match=r"attention_dropout must be 0 in training with a plan, .* got 0.1"):
        small.train()(tokens)


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
