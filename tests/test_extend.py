"""A plan in a model of transformers: beside the model itself, a run without a cache, and each row alone."""

from __future__ import annotations

import copy
import json
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    DynamicCache,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    QuantizedCache,
    StaticCache,
)

import rope_lessons as rl
from rope_lessons.hf import live
from rope_lessons.hf.model_types import CODE, Code
from rope_lessons.hf.request import document_ids
from rope_lessons.hf.saving import as_dict, from_dict
from rope_lessons.kinds import KINDS
from tests.test_hf import MODELS, SMALL
from tools import model_types
from tools.project import ROOT

TYPES = sorted(name for name in MODELS if CODE.get(name, Code()).causal)
PADDING = (13, 2, 0)  # of each row
DECODE: dict[str, Any] = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False, "pad_token_id": 0}


def model(model_type: str = "llama", **options: Any) -> Any:
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **{**SMALL, "initializer_range": 0.3, **MODELS[model_type], **options})
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


def batch(length: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and the mask of rows that are padded on the left."""
    tokens = torch.randint(3, 50, (len(PADDING), length), generator=torch.Generator().manual_seed(2))
    mask = (torch.arange(length) >= torch.tensor(PADDING).unsqueeze(1)).long()
    return tokens * mask, mask


def depends_on_length(small: Any) -> bool:
    return any(its.frequencies is not None and its.frequencies.needs_length for its in rl.hf.plan_of(small))


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=2e-4, rtol=2e-4)


# --- every type of model --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_type", TYPES)
@torch.no_grad()
def test_a_models_own_plan_changes_nothing(model_type: str) -> None:
    small = model(model_type)
    tokens, mask = batch()
    if depends_on_length(small):
        tokens, mask = tokens[2:], mask[2:]
    # Where frequencies depend on the length, transformers keeps keys that were turned for a shorter text.
    decode = {**DECODE, "use_cache": not depends_on_length(small)}
    wanted = small(tokens, attention_mask=mask).logits
    text = copy.deepcopy(small).generate(tokens, attention_mask=mask, **decode)  # some rope types remember a length
    assert wanted.std() > 0.1
    rl.hf.extend(small, rl.hf.plan_of(small), through="attention")
    real = mask.bool()
    close(small(tokens, attention_mask=mask).logits[real], wanted[real])
    assert torch.equal(small.generate(tokens, attention_mask=mask, **decode), text)
    rl.hf.restore(small)
    assert torch.equal(small(tokens, attention_mask=mask).logits, wanted)
    assert "rope_lessons" not in repr(vars(small.config))


@pytest.mark.parametrize("model_type", TYPES)
@torch.no_grad()
def test_generation_in_a_padded_batch_is_that_of_each_row_alone(model_type: str) -> None:
    small = rl.hf.extend(model(model_type), "rerope", window=6)
    tokens, mask = batch()
    alone = [small.generate(row[None, pad:], **DECODE)[0, -8:] for row, pad in zip(tokens, PADDING, strict=True)]
    assert len({tuple(row.tolist()) for row in alone}) == 3
    for row, pad, wanted in zip(tokens, PADDING, alone, strict=True):
        assert torch.equal(small.generate(row[None, pad:], use_cache=False, **DECODE)[0, -8:], wanted)
    if depends_on_length(small):
        with pytest.raises(ValueError, match="attention_mask must be all ones with frequencies that depend on the len"):
            small.generate(tokens, attention_mask=mask, **DECODE)
        return
    assert torch.equal(small.generate(tokens, attention_mask=mask, **DECODE)[:, -8:], torch.stack(alone))


def other_frequencies(own: rl.Plan, kind: str) -> rl.Plan:
    """A plan with frequencies of this kind wherever there are any."""
    plan = []
    for its in own:
        if its.frequencies is not None:
            dim, base = its.rotary_dim, dict(its.frequencies.options)["base"]
            options = {**KINDS[kind].extended(dim, 4, 32), "base": base}
            spec = rl.FrequencySpec(kind, dim=dim, **options)
            factor = KINDS[kind].rotary_scale({"factor": 4, **options})
            its = replace(its, frequencies=spec, rotary_scale=factor)
        plan.append(its)
    return tuple(plan)


@torch.no_grad()
def check_through_config(small: Any, plan: rl.Plan, folder: Path, **options: Any) -> None:
    """Through the config: our attention's logits, a fresh model's, a loaded model's; then the model as it was."""
    tokens, mask = batch()
    real = mask.bool()
    before = small(tokens, attention_mask=mask).logits
    rotary, rope = small.base_model.rotary_emb, small.config.rope_parameters
    said, longest = copy.deepcopy(rope), small.config.max_position_embeddings
    rl.hf.extend(small, plan, **options)
    assert rl.hf.plan_of(small) == plan
    assert small.config._attn_implementation == "eager"
    assert type(small.base_model.rotary_emb) is type(rotary)
    assert small.config.max_position_embeddings == (128 if "'yarn'" in repr(plan) else longest)  # 4 times 32
    found = small(tokens, attention_mask=mask).logits
    assert (found - before)[real].abs().max() > 0.05
    text = small.generate(tokens, attention_mask=mask, cache_implementation="static", **DECODE)
    assert torch.equal(text, small.generate(tokens, attention_mask=mask, **DECODE))
    fresh = AutoModelForCausalLM.from_config(copy.deepcopy(small.config), attn_implementation="eager").eval()
    fresh.load_state_dict(small.state_dict())
    assert torch.equal(fresh(tokens, attention_mask=mask).logits, found)
    small.save_pretrained(folder)
    loaded = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    assert torch.equal(loaded(tokens, attention_mask=mask).logits, found)
    for read, wanted in zip(rl.hf.plan_of(loaded), plan, strict=True):
        assert replace(read, frequencies=None) == replace(wanted, frequencies=None)
        if read.frequencies is not None and wanted.frequencies is not None:
            torch.testing.assert_close(read.frequencies(length=99), wanted.frequencies(length=99), rtol=1e-12, atol=0)
    if not depends_on_length(small):
        rl.hf.extend(small, plan, through="attention")
        close(small(tokens, attention_mask=mask).logits[real], found[real])
    rl.hf.restore(small)
    assert small.base_model.rotary_emb is rotary
    assert small.config.rope_parameters is rope
    assert rope == said
    assert small.config.max_position_embeddings == longest
    assert torch.equal(small(tokens, attention_mask=mask).logits, before)


@pytest.mark.parametrize("model_type", TYPES)
def test_other_frequencies_go_into_the_config(model_type: str, tmp_path: Path) -> None:
    small = model(model_type)
    if depends_on_length(small):  # its own: what comes back with restore remembers the longest text
        small = model(model_type, rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    plan = other_frequencies(rl.hf.plan_of(small), "yarn")
    if model_type == "phi3":  # takes no type but longrope
        with pytest.raises(ValueError, match="plan must be one that transformers' 'phi3' allows"):
            rl.hf.extend(small, plan, through="config")
        assert rl.hf.extend(small, plan).config._attn_implementation == "rope_lessons"
        return
    if model_type in ("gemma2", "mixtral", "olmo2", "qwen2"):  # transformers' YaRN fails for Mixtral without a head_dim
        plan = other_frequencies(rl.hf.plan_of(small), "ntk-aware")
    check_through_config(small, plan, tmp_path)


@pytest.mark.parametrize("kind", ["rope", "pi", "ntk-old", "llama3", "proportional"])
def test_kinds_that_go_into_the_config(kind: str, tmp_path: Path) -> None:
    small = model(rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    plan = other_frequencies(rl.hf.plan_of(small), kind)
    if kind == "rope":
        plan = (rl.scheme("rope", dim=16, base=1e3),) * 4
    check_through_config(small, plan, tmp_path, through="config")


@pytest.mark.parametrize(("kind", "options"), [("dynamic-ntk", {}), ("longrope", {"rotary_scale": 1.2})])
@torch.no_grad()
def test_frequencies_that_depend_on_the_length_go_into_the_config_when_asked(kind: str, options: Any) -> None:
    """Without a cache, for one text; transformers' cached keys keep the turn of a shorter text."""
    small = model(rope_parameters={"rope_type": "default", "rope_theta": 1e4}, max_position_embeddings=24)
    options |= KINDS[kind].extended(16, 4, 24)
    tokens = batch()[0][2:]
    ours = rl.hf.extend(small, kind, **options)(tokens, use_cache=False).logits
    assert rl.hf.restore(small).base_model.rotary_emb is not None
    theirs = rl.hf.extend(small, kind, through="config", **options)
    close(theirs(tokens, use_cache=False).logits, ours)
    assert rl.hf.plan_of(small) == rl.plan_from_hf(small.config)


# --- what a name makes of a model's own plan --------------------------------------------------------------------------


def test_a_name_changes_what_it_is_about() -> None:
    own = rl.hf.plan_of(model("smollm3"))
    found = rl.hf.plan_of(rl.hf.extend(model("smollm3"), "rerope", window=6, scale=rl.LogN(32)))
    turned = [layer.frequencies is not None for layer in own]
    assert len(set(turned)) == 2
    for layer, before in zip(found, own, strict=True):
        bent = replace(before, window=6, slope=0.0, scale=rl.LogN(32))
        assert layer == (before if before.frequencies is None else bent)
    llama = model()  # Llama 3's frequencies stay
    assert rl.hf.plan_of(rl.hf.extend(llama, "lambda", visible_window=9))[0] == replace(
        rl.plan_from_hf(llama.config)[0], visible_window=9, sinks=4
    )
    mistral = rl.hf.extend(model("mistral"), "lambda", visible_window=9)
    assert {layer.visible_window for layer in rl.hf.plan_of(mistral)} == {5}
    with pytest.raises(ValueError, match=r"plan must not be a name of frequencies for a model whose own are .*llama3"):
        rl.hf.extend(llama, "yarn", factor=4)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("leaky-rerope", {"window": 6, "slope": 1 / 4}), ("yarn", {"factor": 4}), ("ntk-mixed", {"factor": 4}),
        ("pi", {"factor": 4}), ("nope", {}), ("alibi", {}), ("lambda", {"visible_window": 12}),
        ("rerope", {"window": 6, "scale": rl.LogN(16, clip=True)}), ("dynamic-ntk", {"factor": 2, "train_length": 16}),
    ],
)  # fmt: skip
@torch.no_grad()
def test_a_step_with_a_cache_is_the_call_without(name: str, options: dict[str, Any]) -> None:
    small = model(rope_parameters={"rope_type": "default", "rope_theta": 1e4}, num_hidden_layers=1)
    rl.hf.extend(small, name, **options)
    tokens = batch(40)[0][2:]
    at_once = small(tokens).logits
    cache = small(tokens[:, :21], use_cache=True).past_key_values
    steps = [small(tokens[:, 21:30], past_key_values=cache).logits]
    steps += [small(tokens[:, i : i + 1], past_key_values=cache).logits for i in range(30, 40)]
    if name != "dynamic-ntk":  # there, a chunk is turned for the text as long as it is by then
        close(torch.cat(steps, dim=1), at_once[:, 21:])
    close(steps[-1], at_once[:, -1:])


def test_yarn_by_name_is_transformers_own() -> None:
    options: dict[str, Any] = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}
    options["original_max_position_embeddings"] = SMALL["max_position_embeddings"]
    tokens = batch()[0][2:]
    plain = {"rope_type": "default", "rope_theta": 1e4}
    with torch.no_grad():
        wanted = model(rope_parameters=options)(tokens).logits
        ours = model(rope_parameters=plain)
        for _ in range(2):  # a name is about the model as it was loaded, not about the length that it claims now
            close(rl.hf.extend(ours, "yarn", factor=4.0)(tokens).logits, wanted)
            assert ours.config.max_position_embeddings == 4 * SMALL["max_position_embeddings"]


def test_a_plan_is_seen_in_the_print_of_a_model() -> None:
    for model_type, name, options in (("llama", "rerope", {"window": 6}), ("smollm3", "pi", {"factor": 4})):
        small = model(model_type)
        before = repr(small)
        rl.hf.extend(small, name, **options)
        for layer in rl.hf.plan_of(small):
            assert repr(layer) in repr(small)
        assert "layers 0" in repr(small)
        assert repr(copy.deepcopy(small)) == repr(small)
        assert repr(rl.hf.restore(small)) == before


# --- what generate and a loop of one's own do -------------------------------------------------------------------------


@torch.no_grad()
def test_beams_assistants_and_samples() -> None:
    small, helper = rl.hf.extend(model(), "rerope", window=6), model(num_hidden_layers=1)
    tokens, mask = batch()
    beams = {**DECODE, "num_beams": 3}
    found = small.generate(tokens, attention_mask=mask, **beams)
    for row, pad, text in zip(tokens, PADDING, found, strict=True):
        assert torch.equal(small.generate(row[None, pad:], **beams)[0, -8:], text[-8:])
        assert torch.equal(small.generate(row[None, pad:], use_cache=False, **beams)[0, -8:], text[-8:])
    wanted = small.generate(tokens[2:], **DECODE)
    assert torch.equal(small.generate(tokens[2:], assistant_model=helper, **DECODE), wanted)
    drawn = []
    for use_cache in (True, False):
        torch.manual_seed(3)
        drawn.append(
            small.generate(tokens, attention_mask=mask, **{**DECODE, "do_sample": True, "use_cache": use_cache})
        )
    assert torch.equal(*drawn)
    assert not torch.equal(drawn[0][2:], wanted)


@torch.no_grad()
def test_a_loop_of_ones_own_with_a_padded_batch() -> None:
    small = rl.hf.extend(model(), "rerope", window=6)
    tokens, mask = batch(24)
    wanted = small(tokens, attention_mask=mask).logits
    cache = DynamicCache(config=small.config)
    first = small(tokens[:, :20], attention_mask=mask[:, :20], past_key_values=cache)
    assert first.past_key_values is cache
    assert cache.get_seq_length() == 20
    for i in range(20, 24):
        step = small(tokens[:, i : i + 1], attention_mask=mask[:, : i + 1], past_key_values=cache)
        close(step.logits[:, 0], wanted[:, i])
    cache.crop(-4)
    close(small(tokens[:, 20:], attention_mask=mask, past_key_values=cache).logits, wanted[:, 20:])
    again = copy.deepcopy(cache)
    again.crop(-1)
    again.batch_select_indices(torch.tensor([2, 0]))
    step = small(tokens[[2, 0], 23:], attention_mask=mask[[2, 0]], past_key_values=again)
    close(step.logits[:, 0], wanted[[2, 0], 23])


@torch.no_grad()
def test_packed_documents_and_padding_on_the_right() -> None:
    small = rl.hf.extend(model(), "rerope", window=6)
    tokens, mask = batch()
    positions = torch.cat((torch.arange(11), torch.arange(19)))[None]
    found = small(tokens[2:], position_ids=positions).logits
    close(found, torch.cat((small(tokens[2:, :11]).logits, small(tokens[2:, 11:]).logits), dim=1))
    right = mask.flip(1)
    found = small(tokens.flip(1), attention_mask=right).logits
    for row, real, pad in zip(tokens.flip(1), found, PADDING, strict=True):
        close(real[: 30 - pad], small(row[None, : 30 - pad]).logits[0])


def test_training() -> None:
    """Gradients with checkpointing, with padding; two calls before one backward."""
    small = rl.hf.extend(model(), "rerope", window=6).train()
    tokens, mask = batch()

    def gradients() -> list[torch.Tensor]:
        small.zero_grad()
        losses = [small(tokens, attention_mask=mask, labels=tokens).loss, small(tokens, labels=tokens).loss]
        sum(losses).backward()
        return [parameter.grad.clone() for parameter in small.parameters()]

    plain = gradients()
    assert sum(g.abs().sum() for g in plain) > 0
    renamed = getattr(small, "activation_checkpointing_enable", None)  # transformers 5.20 has the old name alone
    (renamed or small.gradient_checkpointing_enable)()
    assert all(map(torch.equal, gradients(), plain))
    small(tokens, attention_mask=mask, labels=tokens).loss.backward()
    assert small(tokens).past_key_values is None
    with pytest.raises(ValueError, match=r"use_cache must be False while gradients are recorded: .*no_grad"):
        small.eval()(tokens, use_cache=True)


def adapted(small: Any) -> Any:
    """A LoRA on top that changes what the model says."""
    torch.manual_seed(1)
    options = {"target_modules": ["q_proj", "v_proj"], "init_lora_weights": False, "task_type": "CAUSAL_LM"}
    return peft.get_peft_model(small, peft.LoraConfig(r=4, **options))


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # PEFT asks for it
def test_lora_on_top_trains() -> None:
    tokens, mask = batch()
    plain, ours = adapted(model()), adapted(model())
    rl.hf.extend(ours, rl.hf.plan_of(ours), through="attention")
    for one in (plain, ours):
        one(tokens[2:], labels=tokens[2:]).loss.backward()
    for (name, its), other in zip(plain.named_parameters(), ours.parameters(), strict=True):
        assert (its.grad is not None) == (other.grad is not None) == ("lora_" in name)
        if its.grad is not None:
            torch.testing.assert_close(other.grad, its.grad, rtol=2e-3, atol=2e-4)
    rl.hf.extend(ours, "rerope", window=6).train()
    optimizer = torch.optim.AdamW([its for its in ours.parameters() if its.requires_grad], lr=1e-2)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = ours(tokens, attention_mask=mask, labels=tokens).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 1


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # PEFT asks for it
@torch.no_grad()
def test_a_plan_in_a_model_of_peft(tmp_path: Path) -> None:
    """Around an extended model or extended itself; merged, saved, loaded, and taken out again."""
    tokens, mask = batch()
    whole = adapted(model())
    own = whole(tokens, attention_mask=mask).logits
    assert rl.hf.extend(whole, "rerope", window=6) is whole
    around = adapted(rl.hf.extend(model(), "rerope", window=6))
    wanted = around(tokens, attention_mask=mask).logits
    assert torch.equal(whole(tokens, attention_mask=mask).logits, wanted)
    assert rl.hf.plan_of(whole) == rl.hf.plan_of(around)
    text = whole.generate(input_ids=tokens, attention_mask=mask, **DECODE)
    assert torch.equal(whole.generate(input_ids=tokens, attention_mask=mask, use_cache=False, **DECODE), text)
    whole.save_pretrained(tmp_path / "adapter")
    again = peft.PeftModel.from_pretrained(model(), tmp_path / "adapter")
    close(rl.hf.extend(again, "rerope", window=6)(tokens, attention_mask=mask).logits, wanted)
    merged = around.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    close(rl.hf.load(tmp_path / "merged")(tokens, attention_mask=mask).logits, wanted)
    with rl.hf.using(whole, "lambda", visible_window=9):
        assert not torch.equal(whole(tokens, attention_mask=mask).logits, wanted)
    assert torch.equal(whole(tokens, attention_mask=mask).logits, wanted)
    assert rl.hf.restore(whole) is whole
    assert torch.equal(whole(tokens, attention_mask=mask).logits, own)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # PEFT asks for it
def test_an_adapter_on_a_model_that_was_loaded_with_a_plan(tmp_path: Path) -> None:
    """The adapter's folder names that of the model, which needs its plan: nothing loads the two without it."""
    rl.hf.extend(model(), "rerope", window=6).save_pretrained(tmp_path / "base")
    tuned, tokens = adapted(rl.hf.load(tmp_path / "base")), batch()[0]
    tuned.save_pretrained(tmp_path / "lora")
    with pytest.raises(KeyError, match="rope_lessons"):
        peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "lora")
    again = peft.PeftModel.from_pretrained(rl.hf.load(tmp_path / "base"), tmp_path / "lora")
    with torch.no_grad():
        assert torch.equal(again(tokens).logits, tuned(tokens).logits)


@torch.no_grad()
def test_compiled() -> None:
    small = rl.hf.extend(model(), "rerope", window=6)
    tokens, mask = batch()
    compiled = torch.compile(small, backend="aot_eager")
    for arguments in ({}, {"attention_mask": mask}):
        close(compiled(tokens, use_cache=False, **arguments).logits, small(tokens, **arguments).logits)


@torch.no_grad()
def test_in_bfloat16() -> None:
    """A padded batch is each row alone; steps with a cache are as near float32's numbers as one call without is."""
    small = rl.hf.extend(model(), "rerope", window=6)
    tokens, mask = batch()
    exact = small(tokens, attention_mask=mask).logits
    half = small.to(torch.bfloat16)
    at_once = half(tokens, attention_mask=mask).logits
    for row, found, pad in zip(tokens, at_once, PADDING, strict=True):
        assert torch.equal(half(row[None, pad:]).logits[0], found[pad:])
    cache = half(tokens[:, :20], attention_mask=mask[:, :20]).past_key_values
    steps = [
        half(tokens[:, i : i + 1], attention_mask=mask[:, : i + 1], past_key_values=cache).logits for i in range(20, 30)
    ]
    rounded = (at_once.float() - exact)[mask.bool()].abs().max()
    assert (torch.cat(steps, dim=1).float() - exact[:, 20:]).abs().max() < 2 * rounded < exact.std()


# --- what changes and what comes back ---------------------------------------------------------------------------------


@torch.no_grad()
def test_using_and_restore() -> None:
    small, tokens = model(), batch()[0][2:]
    rotary, wanted = small.model.rotary_emb, small(tokens).logits
    with rl.hf.using(small, "rerope", window=6) as inside:
        assert inside is small
        bent = small(tokens).logits
        with rl.hf.using(small, "nope"):
            assert not torch.equal(small(tokens).logits, bent)
        assert torch.equal(small(tokens).logits, bent)
    assert not torch.equal(bent, wanted)
    assert torch.equal(small(tokens).logits, wanted)
    assert small.model.rotary_emb is rotary
    assert small.config._attn_implementation == "eager"
    with pytest.raises(RuntimeError, match="stop"), rl.hf.using(small, "rerope", window=6):
        raise RuntimeError("stop")
    assert torch.equal(small(tokens).logits, wanted)
    with pytest.raises(ValueError, match=r"model must have a plan, which rl\.hf\.extend gives it"):
        rl.hf.restore(small)


@torch.no_grad()
def test_a_copy_is_a_model_of_its_own() -> None:
    small, tokens = model(), batch()[0][2:]
    wanted = small(tokens).logits
    bent = rl.hf.extend(small, "rerope", window=6)(tokens).logits
    other = copy.deepcopy(small)
    assert torch.equal(other(tokens).logits, bent)
    rl.hf.restore(other)
    assert torch.equal(other(tokens).logits, wanted)
    assert torch.equal(small(tokens).logits, bent)
    with pytest.raises(ValueError, match="this model has the config of a model with a plan, and no plan"):
        LlamaForCausalLM(small.config)(tokens)


@torch.no_grad()
def test_another_attention_cannot_leave_a_model_without_positions() -> None:
    small, tokens = rl.hf.extend(model(), "rerope", window=6), batch()[0][2:]
    small.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match="the model's attention was set to 'sdpa' while it has a plan"):
        small(tokens)
    rl.hf.restore(small)
    assert small(tokens).logits.isfinite().all()


@pytest.mark.parametrize(
    ("name", "options"),
    [("pi", {"factor": 4}), ("pi", {"factor": 2, "through": "attention"}), ("rerope", {"window": 6})],
)
@torch.no_grad()
def test_a_cache_belongs_to_its_plan(name: str, options: dict[str, Any]) -> None:
    """Filled before a plan, under one, or under another of the same name; one of the user's or the model's; a copy."""
    small, tokens = model(rope_parameters={"rope_type": "default", "rope_theta": 1e4}), batch()[0][2:]
    refused = pytest.raises(ValueError, match=r"past_key_values must be a cache that was made under .* 29 tokens")

    def filled(*given: Any) -> Any:
        return small(tokens[:, :29], past_key_values=given[0] if given else None, use_cache=True).past_key_values

    def step(cache: Any) -> torch.Tensor:
        return small(tokens[:, 29:], past_key_values=copy.deepcopy(cache)).logits[:, -1]

    plain, wanted = filled(), small(tokens).logits[:, -1]
    close(step(plain), wanted)
    rl.hf.extend(small, name, **options)
    with refused:
        step(plain)
    ours, other = [filled(), filled(DynamicCache(config=small.config))], small(tokens).logits[:, -1]
    for cache in ours:
        close(step(cache), other)
        close(step(pickle.loads(pickle.dumps(cache))), other)
    with rl.hf.using(small, "pi", factor=8), refused:
        step(ours[0])
    close(step(ours[0]), other)  # it is this plan again
    rl.hf.restore(small)
    for cache in ours:
        with refused:
            step(cache)
    close(step(plain), wanted)
    close(step(filled()), wanted)


@torch.no_grad()
def test_a_cache_that_was_emptied_takes_the_next_plan() -> None:
    small, tokens = model(rope_parameters={"rope_type": "default", "rope_theta": 1e4}), batch()[0][2:]
    cache = StaticCache(small.config, 40)
    for factor in (None, 2, 4):
        if factor is not None:
            rl.hf.extend(small, "pi", factor=factor)
        cache.reset()
        small(tokens[:, :29], past_key_values=cache)
        step = small(tokens[:, 29:], past_key_values=cache, position_ids=torch.tensor([[29]]))
        close(step.logits[:, -1], small(tokens).logits[:, -1])
        text = small.generate(tokens, cache_implementation="static", **DECODE)  # transformers keeps that cache
        assert torch.equal(small.generate(tokens, use_cache=False, **DECODE), text)
    rl.hf.extend(small, "rerope", window=6)
    cache = small(tokens).past_key_values
    rl.hf.extend(small, "rerope", window=5)
    cache.reset()
    small(tokens[:, :29], past_key_values=cache)
    close(small(tokens[:, 29:], past_key_values=cache).logits[:, -1], small(tokens).logits[:, -1])


@torch.no_grad()
def test_a_model_whose_caches_are_stamped_is_compiled_copied_and_pickled() -> None:
    plain: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4}
    small, tokens = model(rope_parameters=plain, num_hidden_layers=1), batch()[0][2:]
    rl.hf.extend(small, "pi", factor=4)
    wanted = small(tokens).logits
    compiled = torch.compile(small, backend="aot_eager", fullgraph=True)
    cache = compiled(tokens[:, :29], use_cache=True).past_key_values
    close(compiled(tokens[:, 29:], past_key_values=cache).logits[:, -1], wanted[:, -1])
    for other in (copy.deepcopy(small), pickle.loads(pickle.dumps(small))):
        assert torch.equal(other(tokens).logits, wanted)
        rl.hf.restore(other)
        with pytest.raises(ValueError, match="past_key_values must be a cache that was made under the model's present"):
            other(tokens[:, 29:], past_key_values=cache)
        assert torch.equal(small(tokens).logits, wanted)


@torch.no_grad()
def test_a_full_plan_in_a_model_whose_own_cache_drops_keys() -> None:
    """A window in the config, and none in the plan: transformers' cache for this config would keep the window alone."""
    small, tokens = model("mistral"), batch()[0][2:]
    own = rl.hf.plan_of(small)
    assert {its.visible_window for its in own} == {5}
    rl.hf.extend(small, tuple(replace(its, visible_window=None) for its in own))
    text = small.generate(tokens, **DECODE)
    assert torch.equal(small.generate(tokens, use_cache=False, **DECODE), text)
    cache = DynamicCache(config=small.config)
    small(tokens[:, :29], past_key_values=cache)
    close(small(tokens[:, 29:], past_key_values=cache).logits[:, -1], small(tokens).logits[:, -1])


@pytest.mark.parametrize(
    ("model_type", "message"),
    [
        ("gemma2", "config must not contain 'attn_logit_softcapping' .no knob caps the scores"),
        ("gpt_oss", "model_type must be .*: its attention has learned sinks"),
        ("cohere", "plan must have the model's layout 'interleaved', got"),
        ("llama4_text", "model_type must be .* no knob makes chunks .attention_chunk_size"),
        ("deepseek_v3", "model_type must be .*: latent attention"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_plan_by_hand_is_no_way_around_a_refusal(model_type: str, message: str) -> None:
    """Soft-caps, learned sinks, neighbouring channels, chunks, latent attention: none is passed over in silence."""
    config = model_types.small(model_type, **({"attn_logit_softcapping": 50.0} if model_type == "gemma2" else {}))
    small = AutoModelForCausalLM.from_config(config)
    with pytest.raises(ValueError, match=message):
        rl.hf.extend(small, rl.scheme("rope", dim=16))


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "plan", "options", "message"),
    [
        (lambda: AutoModelForCausalLM.from_config(GPT2Config(n_layer=1, n_head=2, n_embd=16)), "rerope", {"window": 4},
         "model_type must be one that was found right"),
        (lambda: model("gemma2", attn_logit_softcapping=50.0), "rerope", {"window": 4}, "no knob caps the scores"),
        (lambda: torch.nn.Linear(2, 2), "rerope", {"window": 4}, "model must be a model of transformers, got Linear"),
        (model, "rerop", {"window": 4}, r"name must be .*rerop"),
        (model, "rerope", {}, "scheme 'rerope' needs window"),
        (model, "rerope", {"window": 4, "dim": 8}, "dim must be left out, the model's is 16; got 8"),
        (model, "linear", {"factor": 2}, "name must be .* got 'linear'; did you mean 'pi'"),
        (model, {"rope_type": "yarn"}, {}, r"got dict .rl\.scheme_from_hf reads the dictionary of a config"),
        (model, [rl.scheme("rope", dim=16)], {}, "plan must be a name, a Scheme, or a tuple of one Scheme per layer"),
        (model, rl.METHODS["rerope"](layers=4, dim=16, window=4), {}, r"a method has two plans: give its \.train"),
        (model, (rl.scheme("rope", dim=16),), {}, "plan must have one scheme for each of the model's 4 layers, got 1"),
        (model, rl.scheme("rope", dim=16), {"window": 4}, "options go with a name of a scheme, got window with Scheme"),
        (model, rl.scheme("rope", dim=32), {}, "plan must turn at most the 16 channels of a head"),
        (model, rl.scheme("rope", dim=16, layout="interleaved"), {}, "plan must have the model's layout 'half'"),
        (model, rl.scheme("rope", dim=16, causal=False), {}, "plan must be causal like the model"),
        (model, rl.scheme("rope", dim=16), {"through": "sdpa"}, "through must be one of 'config', 'attention'"),
        (model, "rerope", {"window": 4, "through": "config"}, "plan must change frequencies and rotary_scale alone"),
        (model, rl.scheme("rope", dim=8), {"through": "config"}, "plan must change frequencies and rotary_scale alone"),
        (model, rl.scheme("ntk-by-parts", dim=16, factor=2, train_length=64), {"through": "config"},
         "frequencies must be one of .* for Hugging Face"),
        (model, rl.scheme("ntk-fixed", dim=16, factor=2), {"through": "config"},
         "plan must have frequencies that transformers knows"),
        (model, rl.scheme("dynamic-ntk", dim=16, factor=2, train_length=64), {"through": "config"},
         "max_position_embeddings must equal"),
        (model, (rl.scheme("rope", dim=16), *[rl.scheme("pi", dim=16, factor=2)] * 3), {"through": "config"},
         "plan must have the same frequencies in all layers that turn to go into transformers' config"),
    ],
)  # fmt: skip
def test_nothing_is_changed_before_everything_is_checked(make: Any, plan: Any, options: Any, message: str) -> None:
    small = make()
    before = [(name, id(module)) for name, module in small.named_modules()]
    attention = getattr(getattr(small, "config", None), "_attn_implementation", None)
    with pytest.raises((TypeError, ValueError), match=message):
        rl.hf.extend(small, plan, **options)
    assert before == [(name, id(module)) for name, module in small.named_modules()]
    assert attention == getattr(getattr(small, "config", None), "_attn_implementation", None)
    assert not any(hasattr(module, "rope_scheme") or module._forward_pre_hooks for module in small.modules())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention_mask": torch.ones(1, 1, 9, 9)}, r"attention_mask must be None or ones and zeros .*\(1, 1, 9, 9\)"),
        ({"attention_mask": {"full_attention": None}}, "attention_mask must be None or ones and zeros .* got dict"),
        ({"attention_mask": torch.ones(1, 8)}, r"attention_mask must have shape \(1, 9\), .* got \(1, 8\)"),
        ({"attention_mask": torch.tensor([[1, 1, 0, 1, 1, 1, 1, 1, 1]])}, "attention_mask must have its zeros"),
        ({"position_ids": torch.arange(0, 18, 2)[None]}, "position_ids must be one more for each token of a text"),
        ({"position_ids": torch.zeros(1, 9)}, "position_ids must be whole numbers of shape"),
        ({"position_ids": torch.arange(8)[None]}, r"position_ids must have shape \(1, 9\), got \(1, 8\)"),
        ({"position_ids": torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]]), "attention_mask": torch.ones(1, 9)},
         "position_ids must be one more for each token of a text"),
        ({"position_ids": torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]]), "use_cache": True},
         "position_ids must not begin anew; or call with use_cache=False"),
        ({"output_attentions": True}, "output_attentions must be False"),
        ({"past_key_values": QuantizedCache}, "past_key_values must be a DynamicCache with a plan, got"),
        ({"s_aux": torch.ones(4)}, "attention of this model must do no more than its plan says, got s_aux"),
    ],
)  # fmt: skip
@torch.no_grad()
def test_calls_that_are_refused(options: dict[str, Any], message: str) -> None:
    small, tokens = rl.hf.extend(model(), "rerope", window=6), batch(9)[0][2:]
    if "past_key_values" in options:
        options = {"past_key_values": DynamicCache(offloading=False)}
        options["past_key_values"].__class__ = type("OtherCache", (DynamicCache,), {})
    with pytest.raises((TypeError, ValueError), match=message):
        small(tokens, **options)
    assert small(tokens).logits.isfinite().all()  # nothing is left behind


@torch.no_grad()
def test_other_caches_and_dropout_are_refused() -> None:
    small, tokens = rl.hf.extend(model(attention_dropout=0.1), "rerope", window=6), batch(9)[0][2:]
    with pytest.raises(ValueError, match=r"past_key_values must be a DynamicCache with a plan, got StaticCache"):
        small.generate(tokens, cache_implementation="static", **DECODE)
    with pytest.raises(ValueError, match=r"attention_dropout must be 0 in training with a plan, .* got 0.1"):
        small.train()(tokens)
    small.eval()
    tokens = batch(9)[0][:2].clamp(min=3)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1, 1, 1]])
    cache = small(tokens, attention_mask=mask).past_key_values
    one = torch.ones(2, 1, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"attention_mask must pad each row as at the first call .*\[2, 1\], got 0"):
        small(tokens[:, :1], past_key_values=cache)
    with pytest.raises(ValueError, match=r"position_ids must go on where the cache ends, at \[7, 8\], got \[9, 9\]"):
        small(tokens[:, :1], past_key_values=cache, attention_mask=torch.cat((mask, one), 1), position_ids=9 * one)


def test_documents_by_hand() -> None:
    mask = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0]])
    assert document_ids(mask, None, (3, 4), 0).tolist() == [[-1, 0, 0, 0], [0, 0, 0, 0], [0, 0, -1, -1]]  # type: ignore[union-attr]
    assert document_ids(torch.ones(3, 4), None, (3, 4), 0) is None
    assert document_ids(None, torch.arange(4)[None], (3, 4), 0) is None
    assert document_ids(None, torch.arange(7, 11)[None], (3, 4), 0) is None  # only distances count
    counted = (mask.cumsum(1) - 1).clamp(min=0)
    assert document_ids(mask, counted, (3, 4), 0) is not None
    assert document_ids(mask[:2], torch.tensor([[2], [3]]), (2, 1), 3) is not None
    with pytest.raises(ValueError, match="must go on where the cache ends"):
        document_ids(mask[:2], torch.tensor([[3], [3]]), (2, 1), 3)


def test_an_older_transformers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    small = model()
    monkeypatch.setattr(live, "FLOOR", (99, 0, 1))
    told = f"a plan in a model of Hugging Face needs transformers 99.0.1 or newer, got {transformers.__version__}: pip"
    with pytest.raises(ImportError, match=re.escape(told)):
        rl.hf.extend(small, "rerope", window=6)


def test_the_floor_is_that_of_the_extra() -> None:
    floor = ".".join(map(str, live.FLOOR))
    assert f'hf = ["transformers>={floor}"]' in (ROOT / "pyproject.toml").read_text("utf8")
    assert f'"transformers=={floor}"' in (ROOT / ".github/workflows/tests.yml").read_text("utf8")


# --- saved and loaded -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text", "smollm3"])
@torch.no_grad()
def test_saved_and_loaded(model_type: str, tmp_path: Path) -> None:
    small, tokens = model(model_type), batch()[0][2:]
    own = copy.deepcopy(small.config.rope_parameters)
    rl.hf.extend(small, "rerope", window=6, scale=rl.LogN(16, clip=True))
    small.save_pretrained(tmp_path)
    with pytest.raises(KeyError, match="rope_lessons"):  # not in silence: without this package it does not load
        AutoModelForCausalLM.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"rl\.hf\.load reads its folder"):
        rl.plan_from_hf(json.loads((tmp_path / "config.json").read_text("utf8")))
    other = rl.hf.load(tmp_path)
    assert rl.hf.plan_of(other) == rl.hf.plan_of(small)
    assert torch.equal(other(tokens).logits, small(tokens).logits)
    assert other.config.rope_parameters == own
    rl.hf.restore(small).save_pretrained(tmp_path / "plain")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "plain")
    close(plain(tokens).logits, small(tokens).logits)
    with pytest.raises(ValueError, match="must have a plan under 'rope_lessons'"):
        rl.hf.load(tmp_path / "plain")


@pytest.mark.parametrize("kind", KINDS)
def test_a_scheme_as_a_dictionary(kind: str) -> None:
    spec = rl.FrequencySpec(kind, dim=8, **KINDS[kind].extended(8, 4, 16))
    for scheme in (
        rl.Scheme(spec),
        rl.Scheme(spec, window=3, slope=0.5, scale=rl.LogN(64, floor=2), visible_window=7, sinks=2, base_scale=0.3),
        rl.scheme("alibi"),
    ):
        assert from_dict(json.loads(json.dumps(as_dict(scheme)))) == scheme
    with pytest.raises(TypeError, match="a layer of a plan must be a dictionary, got 3"):
        from_dict(3)  # type: ignore[arg-type]


def test_a_model_without_rope_parameters_of_its_own() -> None:
    """The example of the docstring, and what a config says that was never saved."""
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 50}
    small = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4))
    assert rl.hf.plan_of(small) == (rl.scheme("rope", dim=8),) * 2
