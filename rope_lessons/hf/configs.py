"""Hugging Face's config dictionaries, read as schemes and plans and written back. No import of transformers.

One layer: :func:`~rope_lessons.scheme_from_hf` and :func:`~rope_lessons.scheme_to_hf`. A model:
:func:`~rope_lessons.plan_from_hf` and :func:`~rope_lessons.plan_to_hf`. No key of a rope dictionary is ignored:
an unknown, missing or contradictory one is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any

from rope_lessons._checks import (
    MOST_CHANNELS,
    check_bool,
    check_choice,
    check_count,
    check_not_negative,
    check_parts,
    check_positive,
    near,
    shown,
)
from rope_lessons.circles import yarn_attention_factor
from rope_lessons.hf.model_types import BESIDE, FULL, LAYER_TYPES, OBJECT, PER_LAYER, SLIDING, ModelType, find
from rope_lessons.kinds import KINDS, OURS, PARTIAL, TRAINED, Kind, RopeType
from rope_lessons.schemes import FrequencySpec, Plan, Scheme

# Keys by which only some layers have the sliding window.
SOME_LAYERS = ("use_sliding_window", "sliding_window_pattern", "global_attn_every_n_layers")
SHARED = ("rope_type", "rope_theta", "partial_rotary_factor")
# Numbers are checked under Hugging Face's names, before they become options with ours.
CHECKS: dict[str, Callable[[str, Any], None]] = {
    TRAINED: partial(check_count, least=1),
    "truncate": check_bool,
    "mixed_b": check_not_negative,
    **dict.fromkeys(("rope_theta", "partial_rotary_factor", "factor", "attention_factor"), check_positive),
    **dict.fromkeys(("beta_fast", "beta_slow", "mscale", "mscale_all_dim"), check_positive),
    **dict.fromkeys(("low_freq_factor", "high_freq_factor"), check_positive),
}
SAID: dict[str, RopeType] = {kind: row.hf for kind, row in KINDS.items() if row.hf is not None}
WITH_SHARE = [hf.name for kind, hf in SAID.items() if KINDS[kind].spans_head]  # PARTIAL is an option of its own there
# The kinds that each rope_type stands for: of several, the one of which the dictionary has the most keys.
HF_TYPES: dict[str, list[str]] = {
    hf.name: [kind for kind, other in SAID.items() if other.name == hf.name] for hf in SAID.values()
}


# --- one layer ----------------------------------------------------------------------------------------------------


def scheme_from_hf(
    rope: Mapping[str, Any],
    *,
    head_dim: int,
    rope_theta: float | None = None,
    max_position_embeddings: int | None = None,
    **knobs: Any,
) -> Scheme:
    """A scheme from Hugging Face's flat ``rope_parameters`` (or ``rope_scaling``) dictionary.

    Args:
        rope: keys as in a model's config. All types take ``rope_type`` (or ``type``, its older spelling),
            ``rope_theta`` and ``partial_rotary_factor``; the table of kinds in the API reference has the others. The
            attention factor is said by ``attention_factor``, or by both ``mscale`` and ``mscale_all_dim``, or follows
            from the factor. The type ``"ntk"`` is vLLM's; transformers has not got it.
        head_dim: channels of a head.
        rope_theta: the base, where it stands beside the dictionary (``rope_scaling`` of older configs).
        max_position_embeddings: of the config. As in transformers it is the training length where the dictionary
            has no ``original_max_position_embeddings``, and ``"yarn"`` and ``"longrope"`` without a ``factor``
            take its ratio to the training length.
        knobs: other arguments of :class:`~rope_lessons.Scheme`; a ``rotary_scale`` here replaces the attention factor.

    Returns:
        the scheme.

    Raises:
        TypeError, ValueError: unknown, missing or contradictory keys.

    Chapter 05.

    >>> scheme_from_hf({"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}, head_dim=128)
    Scheme(FrequencySpec('pi', dim=128, factor=4.0))
    """
    if not isinstance(rope, Mapping):
        raise TypeError(f"rope must be a dictionary with 'rope_type', got {type(rope).__name__}")
    check_count("head_dim", head_dim, least=2)
    if max_position_embeddings is not None:
        check_count("max_position_embeddings", max_position_embeddings, least=1)
    for key, check in CHECKS.items():
        if rope.get(key) is not None:
            check(key, rope[key])
    if rope_theta is not None:
        check_positive("rope_theta", rope_theta)
        if rope.get("rope_theta", rope_theta) != rope_theta:
            raise ValueError(f"rope_theta must agree with the dictionary's {rope['rope_theta']}, got {rope_theta}")
        rope = {**rope, "rope_theta": rope_theta}
    rope = _with_type(rope)
    types = [SAID[kind] for kind in HF_TYPES[rope["rope_type"]]]
    valid = list(dict.fromkeys((*SHARED, *(key for hf in types for key in hf.required + hf.optional))))
    for key in rope:
        if key not in valid:
            raise ValueError(
                f"keys of rope_type {rope['rope_type']!r} must be among {', '.join(valid)}, got {shown(key)} "
                f"in the rope dictionary (rope_parameters of a config){near(key, valid)}"
            )
    # A null stands for a missing key, but for truncate: there transformers takes it for False.
    rope = {key: value for key, value in rope.items() if value is not None or key == "truncate"}
    name = max(HF_TYPES[rope["rope_type"]], key=lambda kind: len(rope.keys() & SAID[kind].required))
    kind, hf = KINDS[name], SAID[name]
    rope = _with_lengths(rope, hf, max_position_embeddings)
    missing = [key for key in hf.required if key not in rope]
    if missing:
        raise ValueError(
            f"rope of rope_type {rope['rope_type']!r} must contain {missing[0]!r}, got {sorted(map(str, rope))}"
        )
    if "rope_theta" not in rope:
        raise ValueError(
            f"rope must contain 'rope_theta', or rope_theta must be given (in or beside rope_parameters of a config); "
            f"got {sorted(map(str, rope))}"
        )
    ours = {OURS.get(key, key): value for key, value in rope.items()}
    dim = head_dim if kind.spans_head else _turning(rope, head_dim)
    try:
        spec = FrequencySpec(name, dim=dim, **{key: ours[key] for key in ours if key in kind.defaults})
    except ValueError as error:  # values that do not fit each other
        raise ValueError(
            f"rope must have values that fit (base is rope_theta, train_length {TRAINED}): {error}"
        ) from error
    return Scheme(spec, **{"rotary_scale": _rotary_scale(rope, ours, kind), **knobs})


def _with_type(rope: Mapping[str, Any]) -> dict[str, Any]:
    """``type`` is the older spelling of ``rope_type``."""
    rope = {key: value for key, value in rope.items() if value is not None or key not in ("type", "rope_type")}
    old = rope.pop("type", None)
    if old is not None and rope.setdefault("rope_type", old) != old:
        raise ValueError(f"type must agree with rope_type {rope['rope_type']!r} where both are given, got {old!r}")
    if "rope_type" not in rope:
        raise ValueError(
            f"rope must contain 'rope_type', one of {', '.join(map(repr, HF_TYPES))}; got {sorted(map(str, rope))}"
        )
    check_choice("rope_type", rope["rope_type"], HF_TYPES)
    return rope


def _with_lengths(rope: dict[str, Any], hf: RopeType, max_positions: int | None) -> dict[str, Any]:
    """Fill in, as transformers does, the training length and the factor that the config's length implies."""
    if TRAINED in hf.required and TRAINED not in rope:
        if max_positions is None:
            raise ValueError(
                f"rope of rope_type {hf.name!r} must contain {TRAINED!r}, or max_position_embeddings must be given; "
                f"got neither"
            )
        rope = {**rope, TRAINED: max_positions}
    if hf.longest == "trained" and max_positions not in (None, rope[TRAINED]):
        raise ValueError(
            f"max_position_embeddings must equal {TRAINED!r} = {rope[TRAINED]} for rope_type {hf.name!r}, "
            f"got {max_positions}"
        )
    if hf.longest == "extended" and "factor" not in rope and max_positions is not None:
        rope = {**rope, "factor": max_positions / rope[TRAINED]}
    return rope


def _turning(rope: Mapping[str, Any], head_dim: int) -> int:
    share = rope.get("partial_rotary_factor", 1.0)
    if share > 1:
        raise ValueError(f"partial_rotary_factor must be at most 1, got {share}")
    dim = int(head_dim * share)
    if dim < 2 or dim % 2 or dim > MOST_CHANNELS:
        raise ValueError(
            f"partial_rotary_factor times head_dim must be an even number from 2 to {MOST_CHANNELS}, rounded down; got "
            f"{share} times {head_dim}"
        )
    return dim


def _rotary_scale(rope: Mapping[str, Any], ours: Mapping[str, Any], kind: Kind) -> float:
    """The attention factor, for the kinds that have one. ``ours``: the dictionary under the names of options."""
    given = [key for key in ("attention_factor", "mscale", "mscale_all_dim") if key in rope]
    if given == ["attention_factor"]:
        return rope["attention_factor"]
    if given not in ([], ["mscale", "mscale_all_dim"]):
        raise ValueError(
            f"rope of rope_type {rope['rope_type']!r} must contain attention_factor, or both mscale and "
            f"mscale_all_dim, or none of them; got {', '.join(given)}"
        )
    if given:
        factors = [yarn_attention_factor(rope["factor"], rope[key]) for key in given]
        return factors[0] / factors[1]
    scale = kind.rotary_scale(ours)
    if scale is None:
        raise ValueError(
            f"rope of rope_type {rope['rope_type']!r} must contain 'factor' or 'attention_factor', or "
            f"max_position_embeddings must be given; got {sorted(map(str, rope))}"
        )
    return scale


def scheme_to_hf(scheme: Scheme, *, head_dim: int | None = None) -> dict[str, Any]:
    """Hugging Face's dictionary for the frequencies of a scheme. The inverse of :func:`scheme_from_hf`.

    The frequencies of NTK-old and NTK-aware are those of plain RoPE with another base, and are written as that: what is
    read back is plain RoPE with this base.

    For ``"dynamic"``, transformers takes the training length from the config's ``max_position_embeddings`` and
    not from the dictionary: set both. An attention factor is written where it does not follow from the factor.

    Args:
        scheme: one layer.
        head_dim: channels of a head; needed when only some of them turn.

    Returns:
        the dictionary, flat.

    Raises:
        TypeError, ValueError: no scheme; frequencies, or another knob, that Hugging Face's dictionary cannot express.

    Chapter 05.

    >>> scheme_to_hf(Scheme(FrequencySpec("rope", dim=128)))
    {'rope_type': 'default', 'rope_theta': 10000.0}
    >>> scheme_to_hf(Scheme(FrequencySpec("ntk-old", dim=128, factor=8)))
    {'rope_type': 'default', 'rope_theta': 80000.0}
    """
    if not isinstance(scheme, Scheme):
        raise TypeError(f"scheme must be a Scheme, got {shown(scheme)}")
    spec = None if scheme.frequencies is None else in_hf_words(scheme.frequencies)
    if spec is None or spec.kind not in SAID:
        sayable = [kind for kind, row in KINDS.items() if row.hf is not None or row.plain_base is not None]
        raise ValueError(f"frequencies must be one of {', '.join(map(repr, sayable))} for Hugging Face, got {spec!r}")
    kind, hf = KINDS[spec.kind], SAID[spec.kind]
    expressed = {"frequencies", "layout", *(["rotary_scale"] if "attention_factor" in hf.optional else [])}
    others = [f.name for f in fields(scheme) if f.name not in expressed and getattr(scheme, f.name) != f.default]
    if scheme.layout != "half" or others:
        raise ValueError(
            f"only the frequencies of a scheme with layout 'half' go into Hugging Face's dictionary, got {scheme!r}"
        )
    options = dict(spec.options)
    rope: dict[str, Any] = {"rope_type": hf.name, "rope_theta": options["base"]}
    for key in hf.required + hf.optional:
        ours = OURS.get(key, key)
        if ours in options and (key in hf.required or options[ours] != kind.defaults[ours]):
            rope[key] = list(options[ours]) if isinstance(options[ours], tuple) else options[ours]
    if "attention_factor" in hf.optional and scheme.rotary_scale != kind.rotary_scale(options):
        rope["attention_factor"] = scheme.rotary_scale
    if head_dim is not None:
        check_count("head_dim", head_dim, least=spec.dim)
        if head_dim != spec.dim and kind.spans_head:
            raise ValueError(
                f"frequencies must be of all {head_dim} channels of a head for Hugging Face's {hf.name!r}, got {spec!r}"
            )
        if head_dim != spec.dim:
            rope["partial_rotary_factor"] = _share(spec.dim, head_dim)
    return rope


def in_hf_words(spec: FrequencySpec) -> FrequencySpec:
    """The same frequencies as plain RoPE with another base, for the kinds that are just that."""
    plain_base, options = KINDS[spec.kind].plain_base, dict(spec.options)
    if plain_base is None:
        return spec
    return FrequencySpec("rope", dim=spec.dim, base=plain_base(spec.dim, options["factor"], options["base"]))


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
    the scores, in their code only. So a ``model_type`` must be one that was found right beside its model, and so must
    its rope type (the API page has the table). What a file leaves out is what the class of transformers 5 fills in;
    what that class computes, such as ``layer_types``, must be there. A config without a type is taken at its word.

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
    model_type = config.get("model_type")
    return read(config, ModelType() if model_type is None else find(model_type), **knobs)


def read(config: Mapping[str, Any], its: ModelType, **knobs: Any) -> Plan:
    """The plan of a config whose type is known."""
    config = its.complete(config)
    causal = knobs.get("causal", its.code.causal)
    check_bool("causal", causal)
    window = _window(config, causal)
    layer_types = _layer_types(config, its, window)
    ropes = _ropes(config, its, layer_types)
    turned = _turned(config, len(layer_types))
    longest = config.get("max_position_embeddings")
    plan = []
    for number, (layer_type, turns) in enumerate(zip(layer_types, turned, strict=True)):
        head_dim = _head_dim(_of_layer(config, number))
        base_scale = _base_scale(config, head_dim) if its.code.scale is None else its.code.scale
        rope, layer = ropes[layer_type], Scheme()
        if rope is not None:
            layer = scheme_from_hf(rope, head_dim=head_dim, max_position_embeddings=longest)
        if not turns or its.code.unturned(layer_type, window):
            layer = Scheme()
        seen = window if layer_type == SLIDING else None
        layer = replace(layer, layout=its.code.layout, causal=causal, visible_window=seen, base_scale=base_scale)
        plan.append(replace(layer, **knobs))
    return tuple(plan)


def _need(config: Mapping[str, Any], key: str, instead: str = "") -> Any:
    if config.get(key) is None:
        raise ValueError(f"config must contain {key!r}{instead}, got {sorted(map(str, config))}")
    return config[key]


def _of_layer(config: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """A config with what is not as in other layers."""
    own = {} if config.get(PER_LAYER) is None else config[PER_LAYER]
    if not isinstance(own, Mapping) or not all(isinstance(its, Mapping) for its in own.values()):
        raise TypeError(f"{PER_LAYER} must be a dictionary for each number of a layer, got {shown(own)}")
    its = own.get(number, own.get(str(number), {}))  # numbers are names in a file
    for key in its:
        check_choice(f"keys of {PER_LAYER}", key, ("head_dim", "num_key_value_heads"))
    return {**config, **its}


def _head_dim(config: Mapping[str, Any]) -> int:
    if config.get("head_dim") is not None:
        check_count("head_dim", config["head_dim"], least=2)
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
    if multiplier is not None:
        check_positive("attention_multiplier", multiplier)
    return multiplier


def _window(config: Mapping[str, Any], causal: bool) -> int | None:
    window = config.get("sliding_window")
    if window is None and config.get("local_attention") is not None:  # ModernBERT: the sum of both sides
        window = config["local_attention"] // 2
    if window is None or config.get("use_sliding_window") is False:
        return None
    check_count("sliding_window", window, least=1)
    return window if causal else window + 1


def _layer_types(config: Mapping[str, Any], its: ModelType, window: int | None) -> list[str]:
    layers = _need(config, "num_hidden_layers")
    check_parts("num_hidden_layers", layers)
    layer_types = config.get("layer_types")
    if layer_types is None:
        if its.name is None and window and any(config.get(key) for key in SOME_LAYERS):
            raise ValueError(
                f"config must contain 'layer_types' where only some layers have the sliding window: {OBJECT}; got none"
            )
        layer_types = [FULL if window is None else SLIDING] * layers
    if not isinstance(layer_types, (list, tuple)):
        raise TypeError(f"layer_types must be a list of names, got {shown(layer_types)}")
    for layer_type in layer_types:
        check_choice("layer_types", layer_type, LAYER_TYPES)
    if len(layer_types) != layers:
        raise ValueError(f"layer_types must have num_hidden_layers = {layers} entries, got {len(layer_types)}")
    if its.code.last not in (None, layer_types[-1]):
        raise ValueError(
            f"layer_types must end in {its.code.last!r} for model_type {its.name!r}, as transformers makes the last "
            f"layer, got {layer_types[-1]!r}"
        )
    if SLIDING in layer_types and window is None:
        raise ValueError(f"config must contain 'sliding_window' for layers of type {SLIDING!r}, got None")
    if SLIDING in layer_types and not its.windows:
        raise ValueError(
            f"sliding_window must be null for model_type {its.name!r}, whose window is not one of a plan, got {window}"
        )
    return list(layer_types)


def _turned(config: Mapping[str, Any], layers: int) -> list[int]:
    """For each layer 1 if it turns queries and keys, or 0."""
    turned = config.get("no_rope_layers")
    turned = [1] * layers if turned is None or turned == [] else turned
    if not isinstance(turned, (list, tuple)) or not all(isinstance(turns, int) and turns in (0, 1) for turns in turned):
        raise TypeError(f"no_rope_layers must be a list of ones (turned) and zeros, got {shown(turned)}")
    if len(turned) != layers:
        raise ValueError(f"no_rope_layers must have one number per layer, {layers}, got {len(turned)}")
    return list(turned)


def _ropes(config: Mapping[str, Any], its: ModelType, layer_types: list[str]) -> dict[str, dict[str, Any] | None]:
    """The rope dictionary of each layer type, None for one whose layers do not turn."""
    ropes = _given(config, its)
    for key, value in (("rope_theta", config.get("rope_theta")), (TRAINED, config.get(TRAINED))):
        if value is not None:
            CHECKS[key](key, value)
    if its.nested or any(isinstance(value, Mapping) for value in ropes.values()):
        for key in ropes:
            check_choice("keys of rope_parameters", key, LAYER_TYPES)
        for layer_type in set(layer_types):
            if not isinstance(ropes.get(layer_type, ()), (Mapping, type(None))):
                raise ValueError(f"rope_parameters must contain a dictionary for {layer_type!r}, got {list(ropes)}")
        given = {key: ropes[key] for key in set(layer_types)}
        return {key: None if rope is None else _with_shared(config, its, rope, key) for key, rope in given.items()}
    return dict.fromkeys(set(layer_types), _with_shared(config, its, ropes))


def _given(config: Mapping[str, Any], its: ModelType) -> Mapping[str, Any]:
    """The rope dictionary of a config as it is given, or that of its class."""
    found = {key: config[key] for key in ("rope_parameters", "rope_scaling") if config.get(key) not in (None, {})}
    for key, ropes in found.items():
        if not isinstance(ropes, Mapping):
            raise TypeError(f"{key} must be a dictionary, got {type(ropes).__name__}")
    if len(found) == 2 and found["rope_parameters"] != found["rope_scaling"]:
        raise ValueError(f"rope_scaling must agree with rope_parameters where both are given, got {found}")
    if not found:
        return its.rope
    key, ropes = next(iter(found.items()))
    nested = any(isinstance(value, Mapping) for value in ropes.values())
    if its.name is None:
        return ropes
    if its.nested and key == "rope_scaling":  # of before transformers 5
        if nested or its.code.flat is None or "rope_type" not in ropes:
            raise ValueError(
                f"rope_scaling must be rope_parameters with one dictionary for each layer type for model_type "
                f"{its.name!r}{'' if its.code.flat is None else ', or flat with a rope_type'}, got {shown(ropes)}"
            )
        return {layer_type: ropes if layer_type == its.code.flat else {} for layer_type in LAYER_TYPES}
    if nested != its.nested:
        wanted = "one for each layer type" if its.nested else "one for all layers"
        raise ValueError(f"{key} must be {wanted} for model_type {its.name!r}, got {shown(ropes)}")
    return ropes


def _with_shared(
    config: Mapping[str, Any], its: ModelType, rope: Mapping[str, Any], layer_type: str | None = None
) -> dict[str, Any]:
    """A rope dictionary with what stands beside it, and with what the class fills in."""
    rope = {key: value for key, value in rope.items() if value is not None or key == "truncate"}
    if "type" not in rope:
        rope.setdefault("rope_type", "default")
    rope_type = rope.get("rope_type", rope.get("type"))
    beside: dict[str, Any] = dict(its.beside)
    if layer_type is None and any(
        hf.name == rope_type and TRAINED in hf.required and hf.longest != "trained" for hf in SAID.values()
    ):
        beside[TRAINED] = TRAINED  # Phi-3
    for key, place in beside.items():
        value, (where, name) = config.get(key), (place if isinstance(place, tuple) else (layer_type, place))
        if value is not None and where == layer_type and rope.setdefault(name, value) != value:
            raise ValueError(f"{key} must agree with the {rope[name]} of rope_parameters, got {value}")
    for key, value in (its.filled if layer_type is None else its.filled.get(layer_type, {})).items():
        rope.setdefault(key, value)
    if its.rope_types is not None and rope_type not in ("default", *its.rope_types):
        raise ValueError(
            f"rope_type must be one that was found right for model_type {its.name!r}: "
            f"{', '.join(('default', *its.rope_types))}; got {shown(rope_type)}"
        )
    if not its.partial and rope.get(PARTIAL, 1) != 1 and rope_type not in WITH_SHARE:
        raise ValueError(
            f"partial_rotary_factor must be 1 for model_type {its.name!r}, whose code turns whole heads, got "
            f"{shown(rope['partial_rotary_factor'])}"
        )
    for key in BESIDE.keys() - beside.keys():
        if config.get(key) is not None and config[key] != rope.get(key):
            raise ValueError(
                f"{key} must be left out beside the rope_parameters of model_type {its.name!r}, or agree with the "
                f"{rope.get(key)} there, got {config[key]}"
            )
    return rope


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
        raise TypeError(f"plan must be a tuple of one Scheme per layer, got {shown(plan)}")
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
        layer_type: scheme_to_hf(replace(layer, visible_window=None, base_scale=None), head_dim=head_dim)
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
