"""The types of models that are read: what attention of each does that its config does not say.

A config leaves out two things: what only the code says (``CODE``, by hand), and the values that the class of
transformers fills in (``data/model_types.json``, written by ``python -m tools.model_types``, which also tries every
type against its model). A type is read only if the model's logits were found equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from rope_lessons._checks import near, shown
from rope_lessons.kinds import PARTIAL
from rope_lessons.stored import DATA

FULL, SLIDING = LAYER_TYPES = ("full_attention", "sliding_attention")
OBJECT = "load it with transformers' AutoConfig, and give the config object"
PER_LAYER = "per_layer_config"  # by the number of a layer, what is not as in the others
# What a plan is read from, but for the rope dictionary and what stands beside it.
KEYS = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "head_dim", "max_position_embeddings",
    "original_max_position_embeddings", "layer_types", "sliding_window", "use_sliding_window", "local_attention",
    "no_rope_layers", "query_pre_attn_scalar", "attention_multiplier", PER_LAYER,
)  # fmt: skip
# Keys that change attention in a way that a plan cannot hold, or that are not read.
UNREADABLE = {
    "attn_logit_softcapping": "no knob caps the scores",
    "use_bidirectional_attention": "give the keys of a causal model",
    "attention_chunk_size": "no knob makes chunks",
    "qk_rope_head_dim": "no knob turns a part of its own of queries and keys",
    "alibi": "plan_from_hf reads rotary models",
    "text_config": "give that part of the config",
    "num_kv_shared_layers": "layers that share keys and values",
    "global_head_dim": f"it becomes part of {PER_LAYER!r}: {OBJECT}",
    "rope_lessons": "the plan of a model that rl.hf.extend changed: rl.hf.load reads its folder",
    "rotary_dim": f"an old spelling: {OBJECT}",
}


# Where values of the rope dictionary may stand beside it: the key there, and the key in the dictionary.
BESIDE = {"rope_theta": "rope_theta", PARTIAL: PARTIAL}
# Where they stood in files of some types; others must not have them.
OLD = ("rotary_pct", "rotary_emb_base", "rope_local_base_freq", "global_rope_theta", "local_rope_theta")


def _full(layer_type: str, window: int | None) -> bool:
    return layer_type == FULL


def _full_beside_windows(layer_type: str, window: int | None) -> bool:
    return layer_type == FULL and window is not None


def _none(layer_type: str, window: int | None) -> bool:
    return False


@dataclass(frozen=True)
class Code:
    """What the code of a type does, and its config does not say.

    Args:
        layout: which channels form a pair.
        causal: a token sees itself and what came before.
        unturned: which layers have no positions, by their type and the sliding window of the config.
        beside: names of the values beside the rope dictionary where they are not those of ``BESIDE``. For a type with
            one dictionary for each layer type, also the layer type: ``(layer type, key)``.
        scale: the factor on the scores, where it is not by the size of a head.
        last: the type of the last layer, where transformers does not leave it to the config.
        flat: the layer type that a flat ``rope_scaling`` is about, where there are several; the others turn plainly.
    """

    layout: str = "half"
    causal: bool = True
    unturned: Callable[[str, int | None], bool] = _none
    beside: Mapping[str, str | tuple[str, str]] | None = None
    scale: float | None = None
    last: str | None = None
    flat: str | None = None


_MODERN_BERT = {"global_rope_theta": (FULL, "rope_theta"), "local_rope_theta": (SLIDING, "rope_theta")}
CODE: dict[str, Code] = {
    **dict.fromkeys(("cohere", "ernie4_5", "ernie4_5_moe", "glm", "glm4", "helium"), Code(layout="interleaved")),
    "afmoe": Code(unturned=_full),
    "cohere2": Code(layout="interleaved", unturned=_full),
    **dict.fromkeys(("exaone4", "exaone_moe", "kolibri1"), Code(unturned=_full_beside_windows)),
    "gpt_neox": Code(beside={"rotary_emb_base": "rope_theta", "rotary_pct": "partial_rotary_factor"}),
    "gemma3_text": Code(
        beside={"rope_theta": (FULL, "rope_theta"), "rope_local_base_freq": (SLIDING, "rope_theta")}, flat=FULL
    ),
    "gemma4_text": Code(scale=1.0, last=FULL),
    "olmo3": Code(flat=FULL),
    "modernbert-decoder": Code(beside=_MODERN_BERT),
    "modernbert": Code(causal=False, beside=_MODERN_BERT),
}


@dataclass(frozen=True)
class ModelType:
    """How the config of a type of model is read.

    Args:
        name: its ``model_type``; None for a config without one, which is taken at its word.
        code: what its code does.
        defaults: the value of each of ``KEYS`` and ``UNREADABLE`` that its class has, for a file without that key.
        computed: of these keys, those whose value follows from others by rules of the class.
        rope: the rope dictionary of a file without one, flat or one for each layer type.
        filled: what the class fills into one that is there.
        rope_types: its rope types that were found right, beside ``"default"``; None for all.
        partial: whether ``partial_rotary_factor`` was found right.
        windows: whether a sliding window was.
    """

    name: str | None = None
    code: Code = Code()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    computed: tuple[str, ...] = ()
    rope: Mapping[str, Any] = field(default_factory=dict)
    filled: Mapping[str, Any] = field(default_factory=dict)
    rope_types: tuple[str, ...] | None = None
    partial: bool = True
    windows: bool = True

    @property
    def nested(self) -> bool:
        """Whether its rope parameters are one dictionary for each layer type."""
        return any(isinstance(value, Mapping) for value in self.rope.values())

    @property
    def beside(self) -> Mapping[str, str | tuple[str, str]]:
        """The keys of values that stand beside the rope dictionary, and where they go in it."""
        if self.code.beside is not None:
            return self.code.beside
        return {} if self.nested else BESIDE

    def complete(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """A config with the values that its class fills in.

        Raises:
            ValueError: a key that is not read, or that attention of this type does not heed; one that is missing and
                that the class computes.
        """
        whole = {**self.defaults, **config}
        for key, reason in UNREADABLE.items():
            if whole.get(key):
                raise ValueError(f"config must not contain {key!r} ({reason}), got {shown(whole[key])}")
        for key in OLD:
            if whole.get(key) is not None and key not in self.beside:
                raise ValueError(f"config must not contain {key!r} (an old spelling: {OBJECT}), got {whole[key]!r}")
        known = KEYS if self.name is None else (*self.defaults, *self.computed)
        for key in KEYS:
            if key not in known and whole.get(key) not in (None, False):
                raise ValueError(
                    f"config must not contain {key!r}, which attention of model_type {self.name!r} does not heed, got "
                    f"{shown(whole[key])}"
                )
        for key in self.computed:
            if whole.get(key) is None and not (key == "layer_types" and whole.get("use_sliding_window") is False):
                raise ValueError(
                    f"config must contain {key!r}, which the class of model_type {self.name!r} computes where a file "
                    f"leaves it out: add it, or give the config object of transformers 5 (AutoConfig); got "
                    f"{sorted(map(str, config))}"
                )
        return whole


@cache
def table() -> dict[str, Any]:
    """The stored survey: the version of transformers, and a row for each of its causal types."""
    return json.loads((DATA / "model_types.json").read_text("utf8"))


def find(name: Any) -> ModelType:
    """The type of this name.

    Raises:
        ValueError: it is not known here, or not read, and why.
    """
    rows: dict[str, Any] = table()["types"]
    right = [other for other, row in rows.items() if row["reason"] is None]
    if not isinstance(name, str) or name not in right:
        row = rows.get(name) if isinstance(name, str) else None
        why = near(name, right) if row is None else f": {row['reason']}"
        raise ValueError(
            f"model_type must be one that was found right beside its model, got {shown(name)}{why}. The API page lists "
            "those that are; without model_type a config is taken at its word"
        )
    row = rows[name]
    return ModelType(
        name, CODE.get(name, Code()), row["defaults"], tuple(row["computed"]), row["rope"], row["filled"],
        tuple(row["rope_types"]), row["partial"], row["windows"],
    )  # fmt: skip
