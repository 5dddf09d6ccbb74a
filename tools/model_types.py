"""A survey of transformers' causal models: which of them :func:`rope_lessons.plan_from_hf` reads right.

``python -m tools.model_types`` builds a small one of every type with random weights, beside the same model with its own
plan in our attention, and writes ``rope_lessons/data/model_types.json``: for each type why it is not read, or what its
class fills into a config file and which features were found right. With names, it prints the rows of these types.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import warnings
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import torch
import transformers
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForMaskedLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

import rope_lessons as rl
from rope_lessons.hf import configs, live, state
from rope_lessons.hf.model_types import CODE, FULL, KEYS, LAYER_TYPES, PER_LAYER, SLIDING, UNREADABLE, Code, ModelType
from rope_lessons.stored import DATA

PATH = DATA / "model_types.json"
TYPES = (*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *(name for name, code in CODE.items() if not code.causal))
LAYERS, HEAD_DIM, WINDOW, TOKENS, TRAINED = 6, 16, 8, 40, 24
# The keys by which a model becomes small, where its class has them.
SIZES: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": HEAD_DIM, "max_position_embeddings": 128, "sliding_window": WINDOW,
    "local_attention": 2 * WINDOW, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "ffn_hidden_size": 32, "num_experts": 4,
    "num_local_experts": 4, "n_routed_experts": 4, "n_shared_experts": 1, "moe_num_experts": 4,
    "num_experts_per_tok": 2, "moe_k": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8,
}  # fmt: skip
OPTIONAL = ("sliding_window", "local_attention")  # stay null where the class has null
MOST = 5_000_000  # numbers in a small model: one that has more has sizes under other names
SCALED = {"factor": 4.0, "original_max_position_embeddings": TRAINED}
# What the code of a type does that no plan holds, where neither its config nor its attention says so.
WHY: dict[str, str] = {
    "doge": "what a query sees depends on the values",
    "nanochat": "it turns queries and keys the other way",
    "cohere2_moe": "which of its layers are turned depends on more than their type",
    **dict.fromkeys(("hunyuan_v1_dense", "hunyuan_v1_moe"), "it normalises queries and keys after they are turned"),
    "minimax_m3_vl_text": "some of its layers choose the keys that are seen (sparse attention)",
    "jetmoe": "experts choose the queries, and the heads of keys are repeated in another order",
    "cohere_compass_text": "its rope parameters may be one dictionary, or one for each layer type",
    "gemma4_unified_text": "parts of a text may see each other in both directions",
    "ministral3": "it scales queries by their position",
    "zaya": "its layers are of types of their own",
    **dict.fromkeys(
        ("flint", "gpt_oss", "granite_swa", "granitemoe_swa", "mimo_v2_flash"), "its attention has learned sinks"
    ),
}
# What an error says to who looks up why a type is not read. A reason that has no row here stands as it is.
SENTENCES = {
    r"layer_types must be one of .*, got '(\w+)'.*": r"some of its layers are no attention of a plan: \1",
    r"model must have one attention for each of its \d+ layers, got 0": (
        "its attention is not one of transformers' AttentionInterface, which a plan needs"
    ),
    r"model must have one attention for each of its \d+ layers, got \d+": (
        "not each of its layers has an attention of its own"
    ),
    r"model must turn queries and keys in a rotary_emb of its own, .*": "its layers turn each for itself",
    r"config must not contain '(\w+)' \((.*?)\), got .*": r"\2 (\1 in its config)",
}
# Settings without which the defaults of a class are refused.
SETTINGS = {name: {"attn_logit_softcapping": None} for name in ("gemma2", "vaultgemma")}
# What else makes a model of a type small, or one that can be built at all.
SMALLER: dict[str, dict[str, Any]] = {
    "bamba": {"mamba_n_heads": 8, "attn_layer_indices": [1, 3]},
    "granitemoehybrid": {"mamba_n_heads": 8, "position_embedding_type": "rope"},
    "dots3_note_text": {"num_key_value_heads": 4},
    "gemma3n_text": {"layer_types": [SLIDING, FULL] * (LAYERS // 2), "num_kv_shared_layers": 2},
    "lfm2_moe": {"layer_types": ["conv", FULL] * (LAYERS // 2)},
    "mamba2": {"num_heads": 8, "head_dim": HEAD_DIM},
    "qwen4_exp_text": {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": HEAD_DIM},
    "reformer": {"axial_pos_embds_dim": [32, 32], "is_decoder": True},
    "zamba": {"num_hidden_layers": 20},
    "zamba2": {"layer_types": ["mamba", "hybrid"] * (LAYERS // 2)},
    "zaya": {"num_experts_per_tok": 1},
    "gemma4_text": {
        "global_head_dim": 2 * HEAD_DIM,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 64,
    },
}
ROPES: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": SCALED,
    "proportional": {"partial_rotary_factor": 0.5},
    "llama3": {**SCALED, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "longrope": SCALED,
}


# --- small models ---------------------------------------------------------------------------------------------------


def small(name: str, **options: Any) -> Any:
    """A small config of a type: the defaults of its class, but for its sizes."""
    made = CONFIG_MAPPING[name]().to_dict()
    sizes = {key: value for key, value in SIZES.items() if key in made and not (key in OPTIONAL and not made[key])}
    return CONFIG_MAPPING[name](**{**sizes, **SETTINGS.get(name, {}), **SMALLER.get(name, {}), **options})


def build(config: Any) -> Any:
    """A model with random weights, far enough from 0 that attention is not even."""
    kind = _auto(config.model_type)
    with torch.device("meta"):
        numbers = sum(parameter.numel() for parameter in kind.from_config(config).parameters())
    if numbers > MOST:
        raise ValueError(f"a model of {numbers} numbers is not small")
    torch.manual_seed(0)
    model = kind.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=1.5 * parameter.shape[-1] ** -0.5)
            else:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def _auto(name: str) -> Any:
    return AutoModelForCausalLM if CODE.get(name, Code()).causal else AutoModelForMaskedLM


@torch.no_grad()
def logits(model: Any) -> Tensor:
    tokens = torch.randint(3, 60, (1, TOKENS), generator=torch.Generator().manual_seed(1))
    return model(tokens, use_cache=False).logits


def difference(config: Any, plan: rl.Plan) -> float:
    """The largest difference between a model's logits and those with a plan, in units of their spread."""
    model = build(config)
    own = logits(model)
    spread = float(own.std())
    if not spread > 0.01:
        raise ValueError(f"its logits hardly differ from each other, by {spread:.1g}")
    return float((_with_plan(model, plan) - own).abs().max()) / spread


def check(config: Any, plan: rl.Plan) -> None:
    """That the model of a config does what the plan says.

    Raises:
        Exception: it cannot be built, or not have the plan, or it does something else.
    """
    found = difference(config, plan)
    if not found < 1e-3:
        raise ValueError(f"its logits differ by {found:.1g} of their spread")


def _with_plan(model: Any, plan: rl.Plan) -> Tensor:
    """Logits with a plan that need not be the one that is read of the model."""
    with patch.object(state, "own_plan", lambda _: plan):
        if plan[0].causal:
            rl.hf.extend(model, plan, through="attention")
        else:  # extend serves causal models alone, but attention can be compared
            layers = [
                module for module in model.modules() if hasattr(module, "layer_idx") and hasattr(module, "head_dim")
            ]
            model.base_model.rope_lessons = live._put_attention(model, layers, state.as_loaded(model))
    return logits(model)


# --- what a class fills in --------------------------------------------------------------------------------------------


def class_defaults(name: str) -> ModelType:
    """A type with what its class fills into a file, and every feature taken for right."""
    kind = CONFIG_MAPPING[name]
    made = kind().to_dict()
    declared = {field.name: field.default for field in dataclasses.fields(kind)}
    known = {key: declared[key] for key in (*KEYS, *UNREADABLE) if key in declared}
    computed = tuple(
        key for key, value in known.items() if value is None and made.get(key) is not None and key != "head_dim"
    )
    if made.get(PER_LAYER):
        computed += (PER_LAYER,)
    known |= {key: None for key in KEYS if key in made and key not in (*known, *computed)}  # properties
    defaults = {key: value for key, value in known.items() if key not in computed}
    rope = made.get("rope_parameters") or {}
    nested = any(isinstance(value, Mapping) for value in rope.values())
    plain: dict[str, Any] = {"rope_type": "default"}
    given = {key: dict(plain) for key in LAYER_TYPES} if nested else plain
    filled = kind.from_dict({"rope_parameters": given}).to_dict().get("rope_parameters") or {}
    if nested:
        filled = {key: _without_type(filled[key]) for key in LAYER_TYPES}
        rope = {key: {} if rope[key] and _without_type(rope[key]) == filled[key] else rope[key] for key in LAYER_TYPES}
    else:
        filled = _without_type(filled)
        rope = {} if _without_type(rope) == filled else rope
    return ModelType(name, CODE.get(name, Code()), defaults, computed, rope, filled)


def _without_type(rope: Mapping[str, Any]) -> dict[str, Any]:
    """What stands in a dictionary of plain RoPE beside its type."""
    return {key: value for key, value in rope.items() if (key, value) != ("rope_type", "default")}


# --- the survey -------------------------------------------------------------------------------------------------------


def variants(its: ModelType, rotary_dim: int) -> dict[str, dict[str, Any]]:
    """Settings that a type may have beside the defaults of its class, by feature."""
    found: dict[str, dict[str, Any]] = {}
    pairs = range(rotary_dim // 2)
    lists = {"short_factor": [1.0 + t / 8 for t in pairs], "long_factor": [1.0 + t for t in pairs]}
    if its.defaults.get("max_position_embeddings"):
        for rope_type, rope in ROPES.items():
            full = {"rope_type": rope_type, "rope_theta": 1e4, **rope, **(lists if rope_type == "longrope" else {})}
            length = {"max_position_embeddings": TRAINED} if rope_type == "dynamic" else {}
            found[rope_type] = {"rope_parameters": _for_all(its, full), **length}
        partial = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
        found["partial"] = {"rope_parameters": _for_all(its, partial)}
    if "sliding_window" in its.defaults:
        window: dict[str, Any] = {"sliding_window": WINDOW}
        if "use_sliding_window" in its.defaults:
            window["use_sliding_window"] = True
        if "layer_types" in its.computed:
            window["layer_types"] = [SLIDING, FULL] * (LAYERS // 2)
        found["window"] = window
    return found


def _for_all(its: ModelType, full: dict[str, Any]) -> dict[str, Any]:
    """Rope parameters of this type of model, with these in the layers that see everything."""
    return {FULL: full, SLIDING: {"rope_type": "default", "rope_theta": 1e3}} if its.nested else full


def survey(name: str) -> dict[str, Any]:
    """The row of a type."""
    reason = refused(name)
    row: dict[str, Any] = {"reason": reason}
    if reason is not None:
        return row
    its = class_defaults(name)
    wide = dataclasses.replace(its, defaults={"head_dim": None, **its.defaults})  # some heed it that do not declare it
    if _is_right(name, wide, {"head_dim": HEAD_DIM + 8}):
        its = wide
    plan = configs.read(small(name).to_dict(), its)
    tried = variants(its, max(layer.rotary_dim for layer in plan))
    right = [feature for feature, options in tried.items() if _is_right(name, its, options)]
    return row | {
        "layout": its.code.layout,
        "unturned": sum(layer.frequencies is None for layer in plan),
        "partial": "partial" in right,
        "windows": "window" in right or its.defaults.get("local_attention") is not None,
        "rope_types": [feature for feature in right if feature in ROPES],
        "defaults": dict(its.defaults), "computed": list(its.computed), "rope": its.rope, "filled": its.filled,
    }  # fmt: skip


def refused(name: str) -> str | None:
    """Why a type is not read; None if its logits are right."""
    if name in WHY:
        return WHY[name]
    if CONFIG_MAPPING[name].sub_configs_defaults:
        return _holds_others(name)
    try:
        config = small(name)
        with torch.device("meta"):
            model = _auto(name).from_config(config)
    except Exception:
        return _not_built(name)
    if any(key in config.to_dict() for key in ("kv_lora_rank", "q_lora_rank")):
        return "latent attention turns a part of its own of queries and keys"
    if not any("rotary" in type(module).__name__.lower() for module in model.modules()):
        return "it has no rotary module: learned positions, a bias, turning inside attention, or no attention at all"
    try:
        check(config, configs.read(config.to_dict(), class_defaults(name)))
    except Exception as error:
        return _sentence(" ".join(str(error).split()))
    return None


def _sentence(error: str) -> str:
    for pattern, sentence in SENTENCES.items():
        if re.fullmatch(pattern, error):
            return re.sub(pattern, sentence, error)
    return error[:200]


def _holds_others(name: str) -> str:
    """Whether the text model among those that it holds can be read alone."""
    try:
        text = getattr(getattr(CONFIG_MAPPING[name](), "text_config", None), "model_type", None)
    except Exception:
        return "it holds other models, and its class has no defaults"
    if text not in TYPES:
        return "it holds other models, and no text_config that is a causal model of transformers alone"
    if refused(text) is None:
        return f"it holds other models: give its text_config, of the type {text}"
    return f"it holds other models, and the type of its text_config, {text}, is not read"


def _not_built(name: str) -> str:
    try:
        with torch.device("meta"):
            _auto(name).from_config(CONFIG_MAPPING[name]())
    except Exception:
        return "transformers makes no model of the defaults of its class"
    return "not tried: its class makes no model of these small sizes"


def _is_right(name: str, its: ModelType, options: dict[str, Any]) -> bool:
    try:
        config = small(name, **options)
        check(config, configs.read(config.to_dict(), its))
    except Exception:
        return False
    return True


def main() -> None:
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    names = sys.argv[1:]
    if names:
        for name in names:
            print(name, json.dumps(survey(name)), flush=True)
        return
    rows = {}
    for name in TYPES:
        rows[name] = survey(name)
        print(f"{name:30s} {rows[name]['reason'] or 'right'}", flush=True)
    table = {"transformers": transformers.__version__, "types": rows}
    PATH.write_text(_lines(table), "utf8")


def _lines(table: Mapping[str, Any]) -> str:
    """JSON with a line for each type."""
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in table["types"].items())
    return f'{{\n "transformers": {json.dumps(table["transformers"])},\n "types": {{\n{rows}\n }}\n}}\n'


if __name__ == "__main__":
    main()
