"""Hugging Face's config dictionaries, read as schemes and plans and written back. No import of transformers.

One layer: :meth:`Scheme.from_hf <rope_lessons.Scheme.from_hf>` and ``to_hf``. A model:
:func:`~rope_lessons.plan_from_hf` and :func:`~rope_lessons.plan_to_hf`. No key of a rope dictionary is ignored:
an unknown, missing or contradictory one is an error.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

from rope_lessons._checks import check_choice, check_count, check_positive
from rope_lessons.scheme import FREQUENCIES, FrequencySpec, Plan, Scheme
from rope_lessons.yarn import longrope_attention_factor, yarn_attention_factor


class _RopeType(NamedTuple):
    """What a ``rope_type`` is called here, and its keys beside those that all types share."""

    kind: str
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


TRAINED = "original_max_position_embeddings"
HF_TYPES: dict[str, _RopeType] = {
    "default": _RopeType("rope"),
    "linear": _RopeType("pi", ("factor",)),
    "dynamic": _RopeType("dynamic-ntk", ("factor", TRAINED)),
    "yarn": _RopeType(
        "yarn",
        ("factor", TRAINED),
        ("beta_fast", "beta_slow", "truncate", "attention_factor", "mscale", "mscale_all_dim"),
    ),
    "llama3": _RopeType("llama3", ("factor", TRAINED, "low_freq_factor", "high_freq_factor")),
    "longrope": _RopeType("longrope", ("short_factor", "long_factor", TRAINED), ("factor", "attention_factor")),
    "ntk": _RopeType("ntk-fixed", ("factor",), ("mixed_b",)),  # vLLM's; with mixed_b it is "ntk-mixed"
}
SHARED = ("rope_type", "rope_theta", "partial_rotary_factor")
OURS = {"rope_theta": "base", TRAINED: "train_length", "mixed_b": "exponent"}  # other options have the same name
KINDS = {**{row.kind: rope_type for rope_type, row in HF_TYPES.items()}, "ntk-mixed": "ntk"}

# Models whose attention does what these keys say, no less and no more: tests run each beside its plan.
CAUSAL = {
    **dict.fromkeys(("llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi", "phi3"), True),
    **dict.fromkeys(("gpt_neox", "granite", "olmo2", "olmo3", "smollm3", "modernbert-decoder"), True),
    "modernbert": False,
}
OLD = ("rope_local_base_freq", "global_rope_theta", "local_rope_theta", "rotary_pct", "rotary_dim", "rotary_emb_base")
# Keys that change attention in a way that a plan cannot hold, or that this module does not read.
UNREADABLE = {
    "attn_logit_softcapping": "no knob caps the scores",
    "use_bidirectional_attention": "give the keys of a causal model",
    "attention_chunk_size": "no knob makes chunks",
    "qk_rope_head_dim": "no knob turns a part of its own of queries and keys",
    "alibi": "plan_from_hf reads rotary models",
    "text_config": "give that part of the config",
    **dict.fromkeys(
        (
            "rope_local_base_freq",
            "global_rope_theta",
            "local_rope_theta",
            "rotary_pct",
            "rotary_dim",
            "rotary_emb_base",
        ),
        "an old spelling: load it with transformers' AutoConfig, and give the config object",
    ),
}
LAYER_TYPES = ("full_attention", "sliding_attention")


# --- one layer ----------------------------------------------------------------------------------------------------


def _scheme_from_hf(
    rope: Mapping[str, Any],
    head_dim: int,
    rope_theta: float | None = None,
    max_position_embeddings: int | None = None,
    **knobs: Any,
) -> Scheme:
    """What :meth:`Scheme.from_hf <rope_lessons.Scheme.from_hf>` does."""
    if not isinstance(rope, Mapping):
        raise TypeError(f"rope must be a dictionary with 'rope_type', got {type(rope).__name__}")
    check_count("head_dim", head_dim, least=2)
    if rope_theta is not None:
        if rope.get("rope_theta", rope_theta) != rope_theta:
            raise ValueError(f"rope_theta must agree with the dictionary's {rope['rope_theta']}, got {rope_theta}")
        rope = {**rope, "rope_theta": rope_theta}
    rope = _with_type(rope)
    row = HF_TYPES[rope["rope_type"]]
    valid = SHARED + row.required + row.optional
    for key in rope:
        if key not in valid:
            raise ValueError(f"keys of rope_type {rope['rope_type']!r} must be among {', '.join(valid)}, got {key!r}")
    # A null stands for a missing key, but for truncate: there transformers takes it for False.
    rope = {key: value for key, value in rope.items() if value is not None or key == "truncate"}
    rope = _with_lengths(rope, max_position_embeddings)
    missing = [key for key in row.required if key not in rope]
    if missing:
        raise ValueError(f"rope of rope_type {rope['rope_type']!r} must contain {missing[0]!r}, got {sorted(rope)}")
    if "rope_theta" not in rope:
        raise ValueError(f"rope must contain 'rope_theta', or rope_theta must be given; got {sorted(rope)}")
    kind = "ntk-mixed" if "mixed_b" in rope else row.kind
    known = inspect.signature(FREQUENCIES[kind]).parameters
    options = {OURS.get(key, key): value for key, value in rope.items() if OURS.get(key, key) in known}
    spec = FrequencySpec(kind, dim=_turning(rope, head_dim), **options)
    return Scheme(spec, **{"rotary_scale": _rotary_scale(rope), **knobs})


def _with_type(rope: Mapping[str, Any]) -> dict[str, Any]:
    """``type`` is the older spelling of ``rope_type``."""
    rope = {key: value for key, value in rope.items() if value is not None or key not in ("type", "rope_type")}
    old = rope.pop("type", None)
    if old is not None and rope.setdefault("rope_type", old) != old:
        raise ValueError(f"type must agree with rope_type {rope['rope_type']!r} where both are given, got {old!r}")
    if "rope_type" not in rope:
        raise ValueError(f"rope must contain 'rope_type', one of {', '.join(map(repr, HF_TYPES))}; got {sorted(rope)}")
    check_choice("rope_type", rope["rope_type"], HF_TYPES)
    return rope


def _with_lengths(rope: dict[str, Any], max_positions: int | None) -> dict[str, Any]:
    """Fill in, as transformers does, the training length and the factor that the config's length implies."""
    rope_type = rope["rope_type"]
    if TRAINED in HF_TYPES[rope_type].required and TRAINED not in rope:
        if max_positions is None:
            raise ValueError(
                f"rope of rope_type {rope_type!r} must contain {TRAINED!r}, or max_position_embeddings must be given; "
                f"got neither"
            )
        rope = {**rope, TRAINED: max_positions}
    if rope_type == "dynamic" and max_positions not in (None, rope[TRAINED]):
        raise ValueError(
            f"max_position_embeddings must equal {TRAINED!r} = {rope[TRAINED]} for rope_type 'dynamic', "
            f"got {max_positions}"
        )
    implied = rope_type == "yarn" or (rope_type == "longrope" and "attention_factor" not in rope)
    if implied and "factor" not in rope and max_positions is not None:
        check_count(TRAINED, rope[TRAINED], least=1)
        check_count("max_position_embeddings", max_positions, least=1)
        rope = {**rope, "factor": max_positions / rope[TRAINED]}
    return rope


def _turning(rope: Mapping[str, Any], head_dim: int) -> int:
    share = rope.get("partial_rotary_factor", 1.0)
    check_positive("partial_rotary_factor", share)
    if share > 1:
        raise ValueError(f"partial_rotary_factor must be at most 1, got {share}")
    return int(head_dim * share)


def _rotary_scale(rope: Mapping[str, Any]) -> float:
    """The attention factor, for the types that have one."""
    given = [key for key in ("attention_factor", "mscale", "mscale_all_dim") if key in rope]
    if given == ["attention_factor"]:
        check_positive("attention_factor", rope["attention_factor"])
        return rope["attention_factor"]
    if given not in ([], ["mscale", "mscale_all_dim"]):
        raise ValueError(
            f"rope of rope_type 'yarn' must contain attention_factor, or both mscale and mscale_all_dim, or none of "
            f"them; got {', '.join(given)}"
        )
    if given:
        check_positive("mscale", rope["mscale"])
        check_positive("mscale_all_dim", rope["mscale_all_dim"])
        factors = [yarn_attention_factor(rope["factor"], rope[key]) for key in given]
        return factors[0] / factors[1]
    if rope["rope_type"] == "yarn":
        return yarn_attention_factor(rope["factor"])
    if rope["rope_type"] == "longrope":
        if "factor" not in rope:
            raise ValueError(
                f"rope of rope_type 'longrope' must contain 'factor' or 'attention_factor', or max_position_embeddings "
                f"must be given; got {sorted(rope)}"
            )
        return longrope_attention_factor(rope["factor"], rope[TRAINED])
    return 1.0


def _scheme_to_hf(scheme: Scheme, head_dim: int | None = None) -> dict[str, Any]:
    """What :meth:`Scheme.to_hf <rope_lessons.Scheme.to_hf>` does."""
    spec = scheme.frequencies
    if spec is None or spec.kind not in KINDS:
        raise ValueError(f"frequencies must be one of {', '.join(map(repr, KINDS))} for Hugging Face, got {spec!r}")
    rope_type = KINDS[spec.kind]
    row = HF_TYPES[rope_type]
    expressed = {"frequencies", "layout", *(["rotary_scale"] if "attention_factor" in row.optional else [])}
    others = [f.name for f in fields(scheme) if f.name not in expressed and getattr(scheme, f.name) != f.default]
    if scheme.layout != "half" or others:
        raise ValueError(
            f"only the frequencies of a scheme with layout 'half' go into Hugging Face's dictionary, got {scheme!r}"
        )
    options = dict(spec.options)
    known = inspect.signature(FREQUENCIES[spec.kind]).parameters
    rope: dict[str, Any] = {"rope_type": rope_type, "rope_theta": options["base"]}
    for key in row.required + row.optional:
        ours = OURS.get(key, key)
        if ours in options and (key in row.required or key == "mixed_b" or options[ours] != known[ours].default):
            rope[key] = list(options[ours]) if isinstance(options[ours], tuple) else options[ours]
    if "attention_factor" in row.optional and (
        rope_type == "longrope" or scheme.rotary_scale != yarn_attention_factor(options["factor"])
    ):
        rope["attention_factor"] = scheme.rotary_scale
    if head_dim is not None:
        check_count("head_dim", head_dim, least=spec.dim)
        if head_dim != spec.dim:
            rope["partial_rotary_factor"] = _share(spec.dim, head_dim)
    return rope


def _share(dim: int, head_dim: int) -> float:
    """The share of the channels that Hugging Face's ``int(head_dim * share)`` reads back as ``dim``."""
    share = dim / head_dim
    return share if int(head_dim * share) == dim else math.nextafter(share, 1.0)


# --- a model ------------------------------------------------------------------------------------------------------


def plan_from_hf(config: Any, **knobs: Any) -> Plan:
    """The plan of a model, one scheme per layer, from its Hugging Face config.

    Reads ``num_hidden_layers``; ``head_dim``, or ``hidden_size`` and ``num_attention_heads``; ``rope_parameters``, flat
    or with one dictionary per layer type, or the older ``rope_scaling`` and ``rope_theta``; ``layer_types``;
    ``sliding_window`` (``local_attention`` of ModernBERT) for the layers of type ``"sliding_attention"``, and for all
    layers where there are no layer types; ``no_rope_layers``; ``query_pre_attn_scalar`` or ``attention_multiplier``.

    A causal sliding window of transformers counts the token itself, as ``visible_window`` does. Its bidirectional one
    does not: ModernBERT's window of 64 shows 64 tokens on each side, a ``visible_window`` of 65.

    A config does not hold all that a model does: some turn neighbouring channels, leave some layers unturned, or cap
    the scores, in their code only. So a ``model_type`` must be one that is tested here beside its model. A config
    without it is taken at its word.

    Args:
        config: a dictionary as in ``config.json``, or a config object of transformers (anything with ``to_dict``).
        knobs: other arguments of :class:`~rope_lessons.Scheme`, for every layer.

    Returns:
        tuple of schemes.

    Raises:
        TypeError, ValueError: a missing, unknown or contradictory key; a model that is not tested.

    Chapter 05.

    >>> plan_from_hf({
    ...     "num_hidden_layers": 2, "head_dim": 64, "sliding_window": 128,
    ...     "layer_types": ["sliding_attention", "full_attention"],
    ...     "rope_parameters": {
    ...         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    ...         "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
    ...     },
    ... })
    (Scheme(FrequencySpec('rope', dim=64), visible_window=128), \
Scheme(FrequencySpec('pi', dim=64, factor=8.0, base=1000000.0)))
    """
    if hasattr(config, "to_dict"):
        config = config.to_dict()
    if not isinstance(config, Mapping):
        raise TypeError(f"config must be a dictionary or have to_dict, got {type(config).__name__}")
    for key, reason in UNREADABLE.items():
        if config.get(key):
            raise ValueError(f"config must not contain {key!r} ({reason}), got {config[key]!r}")
    model_type = config.get("model_type")
    if model_type is not None and model_type not in CAUSAL:
        raise ValueError(
            f"model_type must be one that is tested ({', '.join(CAUSAL)}), or be left out for a model whose code does "
            f"what the config says, no more; got {model_type!r}"
        )
    causal = knobs.get("causal", model_type is None or CAUSAL[model_type])
    head_dim = _head_dim(config)
    base_scale = _base_scale(config, head_dim)
    layer_types = _layer_types(config)
    ropes = _ropes(config, layer_types)
    windows = {"full_attention": None, "sliding_attention": _window(config, causal)}
    turned = config.get("no_rope_layers") or [1] * len(layer_types)  # 1: turned, 0: not
    if len(turned) != len(layer_types):
        raise ValueError(f"no_rope_layers must have one number per layer, {len(layer_types)}, got {len(turned)}")
    longest = config.get("max_position_embeddings")
    plan = []
    for layer_type, turns in zip(layer_types, turned, strict=True):
        if layer_type == "sliding_attention" and windows[layer_type] is None:
            raise ValueError("config must contain 'sliding_window' for layers of type 'sliding_attention', got None")
        layer = _scheme_from_hf(ropes[layer_type], head_dim, max_position_embeddings=longest)
        layer = replace(layer, causal=causal, visible_window=windows[layer_type], base_scale=base_scale)
        if not turns:
            layer = replace(layer, frequencies=None, rotary_scale=1.0)
        plan.append(replace(layer, **knobs))
    return tuple(plan)


def _need(config: Mapping[str, Any], key: str, instead: str = "") -> Any:
    if config.get(key) is None:
        raise ValueError(f"config must contain {key!r}{instead}, got {sorted(map(str, config))}")
    return config[key]


def _head_dim(config: Mapping[str, Any]) -> int:
    if config.get("head_dim") is not None:
        return config["head_dim"]
    instead = ", or 'head_dim'"
    hidden, heads = _need(config, "hidden_size", instead), _need(config, "num_attention_heads", instead)
    check_count("hidden_size", hidden, least=1)
    check_count("num_attention_heads", heads, least=1)
    return hidden // heads


def _base_scale(config: Mapping[str, Any], head_dim: int) -> float | None:
    scalar, multiplier = config.get("query_pre_attn_scalar"), config.get("attention_multiplier")
    if scalar is not None and multiplier is not None:
        raise ValueError(
            f"config must contain query_pre_attn_scalar or attention_multiplier, not both; got {scalar}, {multiplier}"
        )
    if scalar is not None:
        check_positive("query_pre_attn_scalar", scalar)
        return None if scalar == head_dim else scalar**-0.5  # None is 1/sqrt(head_dim)
    return multiplier


def _layer_types(config: Mapping[str, Any]) -> list[str]:
    layers = _need(config, "num_hidden_layers")
    check_count("num_hidden_layers", layers, least=1)
    layer_types = config.get("layer_types")
    if layer_types is None:
        slides = config.get("sliding_window") is not None and config.get("use_sliding_window") is not False
        if slides and (config.get("use_sliding_window") or config.get("sliding_window_pattern")):
            raise ValueError(
                "config must contain 'layer_types' where only some layers have the sliding window: load it with "
                "transformers' AutoConfig, and give the config object; got none"
            )
        return ["sliding_attention" if slides else "full_attention"] * layers
    for layer_type in layer_types:
        check_choice("layer_types", layer_type, LAYER_TYPES)
    if len(layer_types) != layers:
        raise ValueError(f"layer_types must have num_hidden_layers = {layers} entries, got {len(layer_types)}")
    return list(layer_types)


def _ropes(config: Mapping[str, Any], layer_types: list[str]) -> dict[str, dict[str, Any]]:
    """The rope dictionary of each layer type."""
    ropes = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(ropes, Mapping):
        raise TypeError(f"rope_parameters must be a dictionary, got {type(ropes).__name__}")
    nested = any(isinstance(value, Mapping) for value in ropes.values())
    if not nested:
        return dict.fromkeys(set(layer_types), _with_shared(config, ropes))
    for key in ropes:
        check_choice("keys of rope_parameters", key, LAYER_TYPES)
    for layer_type in layer_types:
        if not isinstance(ropes.get(layer_type), Mapping):
            raise ValueError(f"rope_parameters must contain a dictionary for {layer_type!r}, got {list(ropes)}")
    return {key: _with_shared(config, ropes[key], nested=True) for key in set(layer_types)}


def _with_shared(config: Mapping[str, Any], rope: Mapping[str, Any], nested: bool = False) -> dict[str, Any]:
    """The keys that a config holds beside its rope dictionary."""
    rope = {key: value for key, value in rope.items() if value is not None or key == "truncate"}
    if "type" not in rope:
        rope.setdefault("rope_type", "default")
    beside = ["rope_theta", "partial_rotary_factor"]
    if not nested and rope.get("rope_type", rope.get("type")) in ("yarn", "llama3", "longrope"):
        beside.append(TRAINED)  # Phi-3
    for key in beside:
        value = config.get(key)
        if value is not None and rope.setdefault(key, value) != value:
            raise ValueError(f"{key} must agree with the {rope[key]} of rope_parameters, got {value}")
    return rope


def _window(config: Mapping[str, Any], causal: bool) -> int | None:
    window = config.get("sliding_window")
    if window is None and config.get("local_attention") is not None:  # ModernBERT: the sum of both sides
        window = config["local_attention"] // 2
    if window is None:
        return None
    check_count("sliding_window", window, least=1)
    return window if causal else window + 1


def plan_to_hf(plan: Plan, *, head_dim: int) -> dict[str, Any]:
    """The keys of a Hugging Face config that :func:`plan_from_hf` reads back as this plan.

    Args:
        plan: one scheme per layer. Layers with a visible window must be alike, and so must those without.
        head_dim: channels of a head.

    Returns:
        dictionary with ``num_hidden_layers``, ``head_dim``, ``layer_types``, ``rope_parameters``, ``sliding_window``
        and ``query_pre_attn_scalar`` or ``attention_multiplier`` where they are needed.

    Raises:
        TypeError, ValueError: what is not a plan; a knob that the config cannot express.

    Chapter 05.

    >>> from rope_lessons import scheme
    >>> plan_to_hf((scheme("window", dim=64, visible_window=128), scheme("pi", dim=64, factor=8)), head_dim=64)[
    ...     "rope_parameters"]["full_attention"]
    {'rope_type': 'linear', 'rope_theta': 10000.0, 'factor': 8}
    """
    if not isinstance(plan, tuple) or not plan or not all(isinstance(layer, Scheme) for layer in plan):
        raise TypeError(f"plan must be a tuple of one Scheme per layer, got {plan!r}")
    layers = {LAYER_TYPES[layer.visible_window is not None]: layer for layer in plan}
    for layer in plan:
        like = layers[LAYER_TYPES[layer.visible_window is not None]]
        if layer != like:
            raise ValueError(
                f"layers of plan with a window must be alike, and those without; got {layer!r} and {like!r}"
            )
    scales = {layer.base_scale for layer in plan}
    if len(scales) > 1 or not all(layer.causal for layer in plan):
        raise ValueError(f"plan must be causal and have one base_scale to go into a config, got {plan!r}")
    config: dict[str, Any] = {"num_hidden_layers": len(plan), "head_dim": head_dim}
    config["layer_types"] = [LAYER_TYPES[layer.visible_window is not None] for layer in plan]
    ropes = {
        layer_type: _scheme_to_hf(replace(layer, visible_window=None, base_scale=None), head_dim)
        for layer_type, layer in layers.items()
    }
    config["rope_parameters"] = ropes if len(ropes) > 1 else next(iter(ropes.values()))
    if "sliding_attention" in layers:
        config["sliding_window"] = layers["sliding_attention"].visible_window
    scale = plan[0].base_scale
    if scale is not None:
        scalar = round(scale**-2)
        exact = scalar > 0 and scalar**-0.5 == scale and scalar != head_dim
        config |= {"query_pre_attn_scalar": scalar} if exact else {"attention_multiplier": scale}
    return config
