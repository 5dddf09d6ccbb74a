"""Every causal type of transformers: read right, or refused. The oracle is the model itself, small and random."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForImageTextToText

import rope_lessons as rl
from rope_lessons.hf.model_types import BESIDE, KEYS, OLD, find, table
from tools import model_types, types_table

ROWS = table()["types"]
RIGHT = sorted(name for name, row in ROWS.items() if row["reason"] is None)
# One of each convention, and what is most used; every type where transformers is not that of the stored table.
CHOSEN = [
    "apertus", "cohere", "cohere2", "deepseek_v3", "ernie4_5", "exaone4", "falcon_h1", "gemma", "gemma2",
    "gemma3_text", "gemma4_text", "glm", "glm4_moe", "gpt2", "gpt_neox", "gpt_oss", "granite", "laguna", "llama",
    "minimax_m2", "mistral", "modernbert", "nanochat", "olmo3", "phi", "phi3", "qwen2", "qwen3_moe",
    "smollm3", "stablelm",
]  # fmt: skip
ALL = "ROPE_LESSONS_ALL_TYPES" in os.environ or transformers.__version__ != table()["transformers"]


@pytest.mark.parametrize("name", model_types.TYPES if ALL else CHOSEN)
@pytest.mark.filterwarnings("ignore")
def test_a_type_is_right_or_refused(name: str) -> None:
    """Its row is what its small model shows now, and a feature that was not found right is refused."""
    row = json.loads(json.dumps(model_types.survey(name)))
    assert row == ROWS[name]
    if row["reason"] is not None:
        with pytest.raises(ValueError, match="model_type must be one that was found right"):
            rl.plan_from_hf({"model_type": name})
        return
    config = model_types.small(name)
    plan = rl.plan_from_hf(config)
    unturned = tuple(replace(layer, frequencies=None, rotary_scale=1.0) for layer in plan)
    assert model_types.difference(config, unturned) > 0.1  # the model would show a wrong plan
    right = {*row["rope_types"], *(["partial"] * row["partial"]), *(["window"] * row["windows"])}
    for feature, options in model_types.variants(find(name), max(layer.rotary_dim for layer in plan)).items():
        if feature not in right:
            try:
                config = model_types.small(name, **options)
            except (KeyError, RuntimeError, StrictDataclassError):  # the class itself does not take it
                continue
            with pytest.raises((TypeError, ValueError)):
                rl.plan_from_hf(config)


def test_thirty_of_the_types_are_tried_in_every_run() -> None:
    assert len(CHOSEN) == 30
    assert set(CHOSEN) <= set(ROWS) == set(model_types.TYPES)
    assert len(RIGHT) >= 50


def test_the_table_of_the_api_page() -> None:
    read, refused = types_table.read(), types_table.refused()
    assert [row[0].strip("`") for row in read[1:]] == RIGHT
    named = [name for row in refused[1:] for name in row[1].split(", ")]
    assert sorted(named) == sorted(f"`{name}`" for name in ROWS if name not in RIGHT)
    assert {len(row) for row in read} == {6}
    by_name = {row[0]: row for row in read}
    assert by_name["`cohere2`"][1:5] == ["interleaved", "no", "yes", "yes"]
    older = "`default`, `linear`, `dynamic`, `yarn`, `llama3`, `longrope`"
    assert by_name["`phi`"][1:] == ["half", "yes", "no", "no", older]  # a part of a head, which is not proportional
    assert by_name["`llama`"][5] == "all"
    assert by_name["`phi3`"][5] == "`default`, `longrope`"
    assert "`default`, `linear`, `dynamic`, `yarn`, `proportional`, `llama3`, `longrope`." in types_table.introduction()


# --- config files -----------------------------------------------------------------------------------------------------


def agrees(raw: dict[str, Any]) -> bool:
    """Whether a file is read, and then as the class of transformers reads it, if it takes the file at all."""
    try:
        found = rl.plan_from_hf(raw)
    except (TypeError, ValueError):
        return False
    try:
        config = CONFIG_MAPPING[raw["model_type"]].from_dict(raw)
    except (TypeError, ValueError, KeyError, StrictDataclassError):
        return False
    assert found == rl.plan_from_hf(config), raw
    return True


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.filterwarnings("ignore")
def test_a_file_that_leaves_out_what_its_class_fills_in(name: str) -> None:
    its, settings = find(name), model_types.SETTINGS.get(name, {})
    computed = set(its.computed)
    if its.defaults.get("use_sliding_window") is False:  # then all layers are alike
        computed -= {"layer_types"}
    if name == "glm4_moe":  # its class has 96 heads in 4096 channels, of which half of 42 would turn
        settings = {"head_dim": 128}
    for config in (CONFIG_MAPPING[name](**settings), model_types.small(name)):
        whole = config.to_dict()
        assert agrees(whole)
        for key in whole.keys() - {"model_type"}:
            read = agrees({other: value for other, value in whole.items() if other != key})
            if config.hidden_size != model_types.SIZES["hidden_size"]:  # else other keys go with it
                assert read == (key not in computed and key not in settings), key


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.filterwarnings("ignore")
def test_a_file_with_another_value(name: str) -> None:
    """Of each key that a plan depends on, and of keys that the type does not have."""
    whole = model_types.small(name).to_dict()
    del whole["rope_parameters"]
    values: dict[str, list[Any]] = {key: [None, 8, 32, 0.5, True, False, [1, 0] * 3] for key in KEYS}
    values["layer_types"] = [
        ["full_attention"] * 6,
        ["sliding_attention"] * 6,
        ["full_attention", "sliding_attention"] * 3,
    ]
    values |= {key: [None, 0.5, 1e6] for key in (*BESIDE, *OLD)}
    linear = {"rope_type": "linear", "factor": 2.0}
    both = {"full_attention": {**linear, "rope_theta": 1e6}, "sliding_attention": {"rope_type": "default"}}
    for key in ("rope_parameters", "rope_scaling"):
        values[key] = [None, linear, {"type": "linear", "factor": 2.0}, {**linear, "rope_theta": 1e6}, both]
    read = [agrees({**whole, key: value}) for key, given in values.items() for value in given]
    assert sum(read) >= 3


def test_the_published_spelling_of_olmo_3() -> None:
    """YaRN is for the layers that see everything; those with a window turn plainly. From the config of Olmo-3-7B."""
    yarn = {"attention_factor": 1.2079441541679836, "beta_fast": 32, "beta_slow": 1, "factor": 8.0}
    yarn |= {"original_max_position_embeddings": 8192, "rope_type": "yarn"}
    raw = {
        "model_type": "olmo3", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
        "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 8, "sliding_window": 4096,
        "max_position_embeddings": 65_536, "rope_theta": 500_000, "rope_scaling": yarn,
    }  # fmt: skip
    near = rl.scheme("window", dim=128, base=5e5, visible_window=4096)
    far = rl.scheme("yarn", dim=128, base=5e5, factor=8.0, train_length=8192, rotary_scale=yarn["attention_factor"])
    assert rl.plan_from_hf(raw) == (near, near, near, far) * 8
    assert agrees(raw)


def test_config_objects_of_transformers_4() -> None:
    """What to_dict of 4.57.1 gives: the bases and the share that turns under names of their own."""
    gemma = {
        "model_type": "gemma3_text", "num_hidden_layers": 2, "hidden_size": 2304, "num_attention_heads": 8,
        "head_dim": 256, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4096,
        "query_pre_attn_scalar": 256, "rope_local_base_freq": 20_000.0, "rope_theta": 2e6, "rope_scaling": None,
    }  # fmt: skip
    near = rl.scheme("window", dim=256, base=2e4, visible_window=4096)
    assert rl.plan_from_hf(gemma) == (near, rl.scheme("rope", dim=256, base=2e6))
    linear = {**gemma, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    assert rl.plan_from_hf(linear) == (near, rl.scheme("pi", dim=256, base=2e6, factor=8.0))
    neox = {
        "model_type": "gpt_neox", "num_hidden_layers": 1, "hidden_size": 512, "num_attention_heads": 8,
        "rotary_pct": 0.5, "rotary_emb_base": 20_000, "rope_theta": 20_000, "partial_rotary_factor": 0.5,
        "rope_scaling": None,
    }  # fmt: skip
    assert rl.plan_from_hf(neox) == (rl.scheme("rope", dim=32, base=20_000),)
    assert all(agrees(raw) for raw in (gemma, linear, neox))
    bert = {"model_type": "modernbert", "global_rope_theta": 160_000.0, "global_attn_every_n_layers": 3}
    with pytest.raises(
        ValueError, match=r"contain 'layer_types', .*: add it, or give the config object of transformers 5"
    ):
        rl.plan_from_hf(bert)
    types = ["full_attention", *["sliding_attention"] * 2]
    assert agrees({**bert, "num_hidden_layers": 3, "layer_types": types, "local_rope_theta": 20_000.0})


@pytest.mark.parametrize(
    ("model_type", "key", "value"),
    [("gemma3_text", "sliding_window_pattern", 6), ("cohere2", "sliding_window_pattern", 4),
     ("exaone4", "sliding_window_pattern", "LLLG"), ("modernbert", "global_attn_every_n_layers", 3)],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_which_layers_have_a_window_by_older_keys(model_type: str, key: str, value: Any) -> None:
    """A file that says it by a pattern is refused, whatever its type; beside layer types the pattern says nothing."""
    whole = CONFIG_MAPPING[model_type](**model_types.SETTINGS.get(model_type, {})).to_dict() | {key: value}
    assert agrees(whole)
    short = {name: its for name, its in whole.items() if name != "layer_types"}
    with pytest.raises(ValueError, match="config must contain 'layer_types'"):
        rl.plan_from_hf(short)
    plain = {"num_hidden_layers": 6, "head_dim": 8, "rope_theta": 1e4, "sliding_window": 8, "local_attention": 16}
    with pytest.raises(ValueError, match="config must contain 'layer_types' where only some layers have the sliding"):
        rl.plan_from_hf({**plain, "rope_parameters": {"rope_type": "default"}, key: value})


@pytest.mark.filterwarnings("ignore")
def test_gemma_4_by_hand() -> None:
    """Heads of two sizes, and of the larger a quarter of the pairs turns; scores without a scale; a full last layer."""
    config = CONFIG_MAPPING["gemma4_text"](num_hidden_layers=6)
    near = rl.scheme("window", dim=256, visible_window=512, base_scale=1.0)
    far = rl.scheme("proportional", dim=512, share=0.25, base=1e6, base_scale=1.0)
    raw = json.loads(json.dumps(config.to_dict()))
    assert rl.plan_from_hf(config) == rl.plan_from_hf(raw) == (near,) * 5 + (far,)
    for change, message in (
        (
            {"layer_types": ["sliding_attention"] * 6},
            "layer_types must end in 'full_attention' for model_type 'gemma4_",
        ),
        ({"per_layer_config": None}, "config must contain 'per_layer_config', which the class"),
        (
            {"per_layer_config": {"5": {"head_dim": 512, "sliding_window": 4}}},
            "keys of per_layer_config must be one of",
        ),
        ({"per_layer_config": None, "global_head_dim": 512}, "config must not contain 'global_head_dim'"),
        ({"num_kv_shared_layers": 2}, "config must not contain 'num_kv_shared_layers' .layers that share keys"),
    ):
        with pytest.raises(ValueError, match=message):
            rl.plan_from_hf({**raw, **change})
    with pytest.raises(TypeError, match="per_layer_config must be a dictionary for each number of a layer, got 3"):
        rl.plan_from_hf({**raw, "per_layer_config": 3})


@pytest.mark.parametrize(
    ("name", "text"), [("gemma3", "gemma3_text"), ("gemma4", "gemma4_text"), ("got_ocr2", "qwen2")]
)
@pytest.mark.filterwarnings("ignore")
def test_a_model_that_holds_others_says_what_to_give(name: str, text: str) -> None:
    config = CONFIG_MAPPING[name]()
    with pytest.raises(ValueError, match=f"it holds other models: give its text_config, of the type {text}"):
        rl.plan_from_hf(config)
    settings = model_types.SETTINGS.get(text, {})
    assert rl.plan_from_hf(config.text_config) == rl.plan_from_hf(
        CONFIG_MAPPING[text](**{**config.text_config.to_dict(), **settings})
    )


@pytest.mark.filterwarnings("ignore")
def test_the_language_model_inside_another() -> None:
    """It is extended where it stands, and does what it does alone; Gemma 3 hands it masks that a plan does not take."""
    tokens = torch.randint(3, 60, (1, 20), generator=torch.Generator().manual_seed(1))
    model = holding("got_ocr2", "qwen2")
    own = logits_of(model, tokens)
    inside = model.model.language_model
    rl.hf.extend(inside, "rerope", window=5)
    bent = logits_of(model, tokens)
    assert (bent - own).abs().max() > 1e-4
    alone = AutoModelForCausalLM.from_config(inside.config).float().eval()
    alone.model.load_state_dict(inside.state_dict())
    alone.lm_head.load_state_dict(model.lm_head.state_dict())
    assert torch.equal(logits_of(rl.hf.extend(alone, "rerope", window=5), tokens), bent)
    decode = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False}
    assert torch.equal(model.generate(tokens, **decode), model.generate(tokens, use_cache=False, **decode))
    rl.hf.restore(inside)
    assert torch.equal(logits_of(model, tokens), own)
    gemma = holding("gemma3", "gemma3_text")
    rl.hf.extend(gemma.model.language_model, "rerope", window=5)
    with pytest.raises(ValueError, match=r"attention_mask must be None or ones and zeros .* got dict"):
        logits_of(gemma, tokens)


def holding(name: str, text: str) -> Any:
    """A small model of this type around a language model."""
    vision = CONFIG_MAPPING[name]().vision_config
    for key, value in {"hidden_size": 32, "intermediate_size": 32, "mlp_dim": 32, "output_channels": 32}.items():
        if hasattr(vision, key):
            setattr(vision, key, value)
    vision.num_hidden_layers, vision.num_attention_heads = 1, 2
    config = CONFIG_MAPPING[name](text_config=model_types.small(text).to_dict(), vision_config=vision.to_dict())
    torch.manual_seed(0)
    return AutoModelForImageTextToText.from_config(config, attn_implementation="eager").float().eval()


@torch.no_grad()
def logits_of(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    return model(tokens).logits
