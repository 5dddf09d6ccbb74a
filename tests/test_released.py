"""What files of released models say: beside transformers' own modules and models, and with its source."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING

import rope_lessons as rl
from rope_lessons.hf import released
from rope_lessons.hf.released import Released
from rope_lessons.stored import DATA
from tools import model_types
from tools.project import ROOT

ALL = rl.hf.models()
READ = [name for name, model in ALL.items() if model.refused is None]
REFUSED = [name for name in ALL if name not in READ]
STORED = json.loads((DATA / "models.json").read_text("utf8"))


def config_of(model: Released, **changes: Any) -> Any:
    """The config object of transformers."""
    keys = json.loads(json.dumps({**model.config, **changes}))  # it changes what it is given
    return CONFIG_MAPPING[keys["model_type"]](**keys)


def rotary_of(config: Any) -> torch.nn.Module:
    """The rotary module of transformers, on the CPU, without the model around it."""
    kind = MODEL_MAPPING[type(config)]
    module = sys.modules[kind.__module__]
    name = next(name for name in vars(module) if name.endswith("RotaryEmbedding"))
    return getattr(module, name)(config)


# --- beside transformers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", READ)
def test_frequencies_are_those_of_the_rotary_module(name: str) -> None:
    """Of the whole config, for each type of layers; and its attention factor."""
    model = ALL[name]
    rotary, plan = rotary_of(config_of(model)), model.plan()
    types = model.whole.get("layer_types", ["full_attention"] * len(plan))
    for layer_type, its in dict(zip(types, plan, strict=True)).items():
        if its.frequencies is None:
            continue
        nested = hasattr(rotary, f"{layer_type}_inv_freq")
        inv_freq = getattr(rotary, f"{layer_type}_inv_freq" if nested else "inv_freq")
        own = its.frequencies(16 if its.frequencies.needs_length else None)
        assert torch.allclose(inv_freq.double(), own, rtol=1e-6, atol=0)
        scaling = getattr(rotary, f"{layer_type}_attention_scaling" if nested else "attention_scaling")
        assert its.rotary_scale == pytest.approx(scaling, rel=1e-9)


@pytest.mark.parametrize("name", READ)
def test_a_small_model_of_the_same_settings_does_what_the_plan_says(name: str) -> None:
    """Windows, layers without positions, layout and scale: its logits beside those with the plan in our attention.

    Fewer layers and channels, and a window of a few tokens where there is one, so that it hides something.
    """
    model = ALL[name]
    small = small_keys(model)
    config = config_of(model, **small)
    plan = rl.plan_from_hf(config)
    assert [as_in(layer) for layer in plan] == [as_in(layer) for layer in model.plan()[: len(plan)]]
    assert model_types.difference(config, plan) < 1e-3


def small_keys(model: Released) -> dict[str, Any]:
    layers = 8 if len(set(model.layers)) > 1 else 2
    head_dim = model.config.get("head_dim", model.config["hidden_size"] // model.config["num_attention_heads"])
    keys = {"num_hidden_layers": layers, "hidden_size": head_dim, "num_attention_heads": 1, "vocab_size": 64}
    keys |= {"num_key_value_heads": 1, "intermediate_size": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    kind = CONFIG_MAPPING[model.config["model_type"]]().to_dict()
    sizes = {
        key: value for key, value in model_types.SIZES.items() if key in kind and ("expert" in key or "moe" in key)
    }
    keys = {key: value for key, value in {**sizes, **keys}.items() if key in kind}
    for key in ("layer_types", "no_rope_layers"):
        if key in model.whole:
            keys[key] = model.whole[key][:layers]
    if any(layer.sees == "window" for layer in model.layers):
        keys["sliding_window"] = 8
    return keys


def as_in(scheme: rl.Scheme) -> rl.Scheme:
    """A scheme but for the size of its window."""
    return scheme.replace(visible_window=None if scheme.visible_window is None else 1)


def test_only_these_differ_from_the_plan_in_the_size_of_a_window() -> None:
    """What the test above leaves out: the window itself is the config's."""
    for name in READ:
        windows = {layer.visible_window for layer in ALL[name].plan()} - {None}
        assert windows <= {config_of(ALL[name]).sliding_window if windows else None}


@pytest.mark.parametrize("name", list(ALL))
def test_what_is_filled_in_is_what_the_class_computes(name: str) -> None:
    model = ALL[name]
    if model.config["model_type"] not in CONFIG_MAPPING:
        assert not model.filled
        return
    config = config_of(model)
    for key, value in model.filled.items():
        assert key not in model.config
        assert getattr(config, key) == value


@pytest.mark.parametrize("name", READ)
def test_layers_are_those_of_the_plan(name: str) -> None:
    model = ALL[name]
    for layer, its in zip(model.layers, model.plan(), strict=True):
        spec = its.frequencies
        assert layer.turns == (None if spec is None else spec.kind)
        head_dim = model.config.get("head_dim", model.config["hidden_size"] // model.config["num_attention_heads"])
        if spec is not None:
            assert layer.base == dict(spec.options)["base"]
            assert round(layer.share * head_dim) == spec.dim
        window = its.visible_window
        if window is not None and window >= model.config.get("max_position_embeddings", window + 1):
            window = None  # Phi: a window that no text is long enough for
        assert (layer.sees, layer.size) == (("all", None) if window is None else ("window", window))


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_is_refused_for_the_reason_that_the_data_states(name: str) -> None:
    model = ALL[name]
    assert model.outside or model.config["model_type"] == "gptj"
    with pytest.raises(ValueError, match=re.escape(str(model.refused))):
        model.plan()


# --- sources ---------------------------------------------------------------------------------------------------------


def test_every_model_has_a_source_with_a_revision() -> None:
    for source in STORED["sources"].values():
        assert re.fullmatch("[0-9a-f]{40}|v5.23.0|pull request", source["revision"]), source
    assert all(model.sources for model in ALL.values())
    assert {model.what for model in ALL.values()} == set(STORED["what"])
    used = {name for row in (*STORED["models"], *STORED["elsewhere"]) for name in row["sources"]}
    assert used == set(STORED["sources"])


def test_addresses() -> None:
    found = ALL["Llama 3.1 8B"].sources[0]
    assert found.url == f"https://github.com/{found.repository}/blob/{found.revision}/{found.path}"
    assert str(found).endswith(f"at {found.revision[:12]}")
    pull = released.Source("ggml-org/llama.cpp", "pull/4815", "pull request")
    assert pull.url == "https://github.com/ggml-org/llama.cpp/pull/4815"


@pytest.mark.parametrize("row", STORED["models"], ids=lambda row: row["name"])
def test_rows_hold_only_keys_about_positions(row: Mapping[str, Any]) -> None:
    known = {*model_types.KEYS, *model_types.UNREADABLE, "rope_theta", "rope_scaling", "rope_parameters", "model_type"}
    known |= {"partial_rotary_factor", "rotary_pct", "rotary_emb_base", "rope_local_base_freq", "floor_scale"}
    known |= {"sliding_window_pattern", "attn_temperature_tuning", "attn_scale", "use_logn_attn", "qk_nope_head_dim"}
    known |= {"full_attention_interval", "use_dynamic_ntk", "seq_length"}
    assert set(row["config"]) <= known
    assert set(row["filled"]) <= {"layer_types"}


# What a key's name says if it is about positions or attention.
ABOUT_POSITIONS = re.compile(
    "rope|rotary|theta|ntk|logn|position|window|sliding|chunk|sink|layer_types|nope|temperature|tuning|scaling|softcap|"
    "head_dim|head_size|qk_|norm_qk|seq_length|block_size|context|interleav|pattern|partial|alibi|channels|bidirect|"
    "max_length|local|global|interpol|attn_mod|timescale|indices|scalar"
)
# Of such keys those that a row leaves out although they say something: the row's key for it, or why it is none.
SAID_OTHERWISE = {
    "block_size": "max_position_embeddings", "n_positions": "max_position_embeddings", "rope_base": "rope_theta",
    "rope_max_timescale": "rope_theta", "sliding_window_size": "sliding_window", "head_size": "head_dim",
    "rope_adjustments": "rope_scaling", "attention_scores_scalar": "query_pre_attn_scalar", "rotary": "rotary_dim",
    "sliding_window_indices": "sliding_window_pattern", "rope_indices": "sliding_window_pattern",
    "nope_layer_interval": "no_rope_layers", "no_rope_layer": "no_rope_layers", "kv_channels": "hidden_size",
    "chunk_attn_window_size": "attention_chunk_size", "temperature_tuning": "attn_temperature_tuning",
    "initial_context_length": "rope_scaling", "rope_type": "rope_scaling",
}  # fmt: skip
NOTHING_HERE = {
    "rope_scaling": "GPT-J's has only the name of its type, which is MLC's",
    "rotary_percentage": "all channels",
    "max_window_layers": "without a window: use_sliding_window is false, or there is none",
    "full_attn_mod": "1: every layer is a full one",
    "interpolate_factor": "1",
    "norm_qk": "in outside", "use_qk_norm": "in outside",
    "context_window_size": "the server's", "prefill_chunk_size": "the server's", "attention_sink_size": "the server's",
    "max_length": "of generation", "temperature": "of generation",
    "_fused_rotary_emb": "a kernel", "v_head_dim": "of values", "final_logit_softcapping": "of the vocabulary's logits",
    "linear_key_head_dim": "of linear attention", "linear_value_head_dim": "of linear attention",
    "num_global_key_value_heads": "how many heads share a key",
    **dict.fromkeys(("chunk_size_feed_forward", "finetuning_task", "interleave_moe_layer_step", "num_channels_for_vit",
                     "num_local_experts", "routed_scaling_factor"), "of other parts of the model"),
}  # fmt: skip


@pytest.mark.parametrize("row", STORED["models"], ids=lambda row: row["name"])
def test_no_key_about_positions_was_left_out_in_silence(row: Mapping[str, Any]) -> None:
    """By the names of all keys of the dictionary that the first source has of the model."""
    cited = json.loads((ROOT / "tests" / "cited_keys.json").read_text("utf8"))[row["name"]]
    left = {key for key in cited["keys"].split() if ABOUT_POSITIONS.search(key)} - set(row["config"])
    assert left == set(cited["left"])
    for key in left:
        value = cited["left"][key]
        says_nothing = value in (None, False) or key in NOTHING_HERE
        assert says_nothing or SAID_OTHERWISE[key] in {*row["config"], *row["filled"]}, (key, value)
        if key == "rotary_percentage":
            assert value == 1
        if key in ("norm_qk", "use_qk_norm"):
            assert "QK-norm" in row["outside"]
        if key == "max_window_layers":
            assert row["config"].get("use_sliding_window") is False or row["config"].get("sliding_window") is None


@pytest.mark.parametrize("name", [name for name in ALL if ALL[name].config["model_type"] in CONFIG_MAPPING])
def test_scale_and_norms_are_those_of_the_class(name: str) -> None:
    """What no file says: by what a class multiplies scores, and whether it normalizes queries and keys."""
    model = ALL[name]
    config = config_of(model)
    projections = ("q_proj", "qkv_proj", "query_key_value", "q_a_proj")
    with torch.device("meta"):
        kind: Any = MODEL_MAPPING[type(config)]
        parts = kind(shallow(config)).modules()
    layer = next(part for part in parts if any(hasattr(part, name) for name in projections))
    normed = any(hasattr(layer, norm) for norm in ("q_norm", "qk_norm"))
    assert normed == ("QK-norm" in model.outside)
    if "MLA" in model.outside or model.family == "GPT-J":  # YaRN’s factor is in it; another name
        return
    head_dim = layer.head_dim if hasattr(layer, "head_dim") else layer.head_size
    assert (layer.scaling == pytest.approx(head_dim**-0.5)) == (model.scale is None)


def shallow(config: Any) -> Any:
    """A config of as few layers as have attention."""
    types = getattr(config, "layer_types", None) or []
    layers = types.index("full_attention") + 1 if "full_attention" in types else 1
    config.num_hidden_layers = layers
    if types:
        config.layer_types = types[:layers]
    return config


def test_class_defaults_that_a_release_shares() -> None:
    """Where a class names its checkpoint and its defaults are those settings, both agree: a second source."""
    for name, keys in {
        "gpt-oss 20B": ("head_dim", "sliding_window", "num_attention_heads", "max_position_embeddings"),
        "SmolLM3 3B": ("num_hidden_layers", "hidden_size", "no_rope_layers"),
        "Llama 4 Scout": ("attention_chunk_size", "no_rope_layers", "floor_scale", "attn_scale", "num_hidden_layers"),
        "Mistral 7B v0.1": ("sliding_window", "num_hidden_layers", "hidden_size"),
        "Command R7B": ("sliding_window",),
    }.items():
        default = CONFIG_MAPPING[ALL[name].config["model_type"]]()
        for key in keys:
            assert getattr(default, key) == ALL[name].whole[key], (name, key)
    assert CONFIG_MAPPING["gpt_oss"]().rope_parameters["factor"] == ALL["gpt-oss 20B"].config["rope_scaling"]["factor"]


# --- asking ----------------------------------------------------------------------------------------------------------


def test_an_unknown_name_lists_the_names() -> None:
    with pytest.raises(ValueError, match=r"^name must be one of Pythia 1B, .*; got 'Llama 3.1'; did you mean 'Llama 3"):
        rl.hf.known("Llama 3.1")
    with pytest.raises(ValueError, match=r"^name must be one of .*; got None$"):
        rl.hf.known(None)  # type: ignore[arg-type]


def test_ideas_by_hand() -> None:
    assert ALL["Command A"].ideas == {"rope", "larger base", "window", "nope", "hwfa"}
    assert ALL["Llama 4 Scout"].ideas == {"llama3", "larger base", "chunks", "nope", "hwfa", "log n"}
    assert ALL["SmolLM3 3B"].ideas == {"rope", "larger base", "nope"}
    assert ALL["gpt-oss 20B"].ideas == {"yarn", "larger base", "window"}
    assert ALL["Qwen 1.8B"].ideas == {"dynamic-ntk", "log n"}
    assert ALL["Devstral 2 123B"].ideas == {"yarn", "larger base"}  # its factor by position is 0
    assert ALL["Pythia 1B"].ideas == {"rope", "partial"}


def test_who_ships() -> None:
    assert released.who_ships("hwfa", most=9) == "Command R7B, Command A, Llama 4, EXAONE 4"
    assert released.who_ships("alibi") == "BLOOM, MPT"
    assert released.who_ships("rerope") == ""
