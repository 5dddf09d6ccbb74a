"""Figures of chapter 15: what released models say of their layers, and a pretrained model with several plans."""

from __future__ import annotations

import html
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.figure import Figure as MatplotlibFigure

from rope_lessons.circles import turns
from rope_lessons.figures import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    Choice,
    Explorable,
    doubling_axis,
    legend_below,
    new_figure,
    spoken,
    styled,
)
from rope_lessons.figures.sortable import SortableRow, SortableTable
from rope_lessons.figures.theme import themed
from rope_lessons.hf.released import Layer, Released, label, models
from rope_lessons.sinusoidal import rope_frequencies

__all__ = [
    "ModelGallery",
    "models_bases",
    "models_explorable",
    "models_extended",
    "models_gallery",
    "models_put_in",
    "models_reads",
    "models_speeds",
    "models_table",
]

HIGH = 28  # of a strip; a layer is 10 wide
FULL, NEAR = 28, 12  # of a bar: a layer that sees everything, one that sees a window or a chunk


# --- what a layer looks like ------------------------------------------------------------------------------------------


def _turning(layer: Layer) -> str:
    """How a layer turns: the words of the legend."""
    if layer.sees == "none":
        return "no softmax attention"
    if layer.turns is None:
        return "no positions"
    return "RoPE" if layer.turns in ("rope", "mrope") else "RoPE with changed frequencies"


FILLS = {
    "RoPE": f'fill="{themed("blue")}"',
    "RoPE with changed frequencies": f'fill="{themed("orange")}"',
    "no positions": f'fill="none" stroke="{themed("ink")}" stroke-width="1.5"',
    "no softmax attention": f'fill="{themed("line")}"',
}


def _bar(layer: Layer, at: int) -> str:
    """The path of a layer's bar: tall where it sees everything, short for a window, short and split for a chunk."""
    left = 10 * at + 1.5
    if layer.sees == "chunk":
        return f"M{left} {HIGH - 5}h7v5h-7zM{left} {HIGH - NEAR}h7v5h-7z"
    high = NEAR if layer.sees == "window" else FULL - 1
    return f"M{left} {HIGH - high}h7v{high - 1}h-7z"


def _strip(layers: Sequence[Layer], alt: str = "") -> str:
    """All layers of a model, from the first on the left."""
    paths: dict[str, str] = {}
    for at, layer in enumerate(layers):
        paths[_turning(layer)] = paths.get(_turning(layer), "") + _bar(layer, at)
    drawn = "".join(f'<path d="{path}" {FILLS[name]}/>' for name, path in paths.items())
    return _svg(drawn, len(layers), alt)


def _svg(drawn: str, layers: int, alt: str) -> str:
    said = f'role="img" aria-label="{html.escape(alt, quote=True)}"' if alt else 'aria-hidden="true"'
    return f'<svg viewBox="0 0 {10 * layers} {HIGH}" preserveAspectRatio="none" {said}>{drawn}</svg>'


def _grouped(model: Released, say: Callable[[Layer], str]) -> str:
    """What layers have, and how many of them, in words."""
    found = Counter(map(say, model.layers))
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{count} layers {words}" for words, count in found.items())


def _sight(layer: Layer) -> str:
    return {
        "all": "see everything",
        "window": f"see the last {layer.size or 0:,} tokens",
        "chunk": f"see their own block of {layer.size or 0:,}",
        "none": "have no softmax attention",
    }[layer.sees]


def _frequencies(layer: Layer) -> str:
    if layer.turns is None:
        return "without positions" if layer.sees != "none" else "have no softmax attention"
    part = "" if layer.share == 1 else f", {100 * layer.share:.0f} % of the channels"
    return f"{label(layer.turns)}, base {layer.base:,.0f}{part}"


# --- one model: layers and knobs --------------------------------------------------------------------------------------

STYLE = f"""
.rl-model-row{{display:grid;grid-template-columns:7.5em minmax(0,1fr);gap:0 12px;align-items:center;padding:5px 0;
border-bottom:1px solid {themed("line")};line-height:1.3}}
.rl-model-row svg{{display:block;width:100%;height:26px}}
.rl-model-row span{{grid-column:2;font-size:14px;min-height:1.3em}}
.rl-model-row.rl-still{{opacity:.75}}
@media (max-width:600px){{.rl-model-row{{grid-template-columns:minmax(0,1fr)}}
.rl-model-row span{{grid-column:1;min-height:2.6em}}}}
"""


def _scale(model: Released) -> tuple[str, list[bool]]:
    """The scale of the scores in words, and in which layers it differs from 1/√d."""
    layers = model.layers
    if model.scale is not None:
        return model.scale, [True] * len(layers)
    if "log n" in model.ideas:
        every = not any(layer.turns is None for layer in layers)
        where = "" if every else " in the layers without positions"
        grows = "the keys, log n†" if model.config.get("use_logn_attn") else "the logarithm of the position"
        return f"grows with {grows}{where}", [every or layer.turns is None for layer in layers]
    if model.refused is None:
        factors = [1.0 if layer.turns is None else its.rotary_scale for its, layer in zip(
            model.plan(), layers, strict=True)]  # fmt: skip
        most = max(factors)
        if most != 1:
            return f"scores × {most**2:.2f}, the square of the attention factor", [factor != 1 for factor in factors]
    elif any(layer.turns == "yarn" for layer in layers):
        return "YaRN’s attention factor", [layer.turns == "yarn" for layer in layers]
    return "1/√d, as always", [False] * len(layers)


def _flat(on: Sequence[bool], colour: str) -> str:
    """A strip of low bars, filled where a knob is turned."""
    paths = {colour: "", "line": ""}
    for at, turned in enumerate(on):
        paths[colour if turned else "line"] += f"M{10 * at + 1.5} {HIGH - NEAR}h7v{NEAR - 1}h-7z"
    drawn = "".join(f'<path d="{path}" fill="{themed(name)}"/>' for name, path in paths.items() if path)
    return _svg(drawn, len(on), "")


def _rows(model: Released) -> str:
    """The five knobs of a model, a row for each."""
    layers = model.layers
    scale, scaled = _scale(model)
    axes = any(layer.turns == "mrope" for layer in layers)
    nothing = [False] * len(layers)
    tall = [layer if layer.sees == "none" else replace(layer, sees="all") for layer in layers]
    near = [layer.sees != "all" for layer in layers]
    rows = (
        ("frequencies", _strip(tall), _grouped(model, _frequencies), True),
        ("distance", _flat(nothing, "blue"), "the true one", False),
        ("scale", _flat(scaled, "orange"), scale, any(scaled)),
        ("visible", _flat(near, "blue"), _grouped(model, _sight), any(near)),
        ("positions", _flat([axes] * len(layers), "blue"), "time, row and column" if axes else "0, 1, 2, …", axes),
    )
    beyond = ", ".join(model.outside) or model.refused or "nothing that we know of"
    drawn = "".join(
        f'<div class="rl-model-row{"" if turned else " rl-still"}"><b>{name}</b>{strip}'
        f"<span>{html.escape(words)}</span></div>"
        for name, strip, words, turned in rows
    )
    source = f"{beyond}. Read in {model.sources[0].repository}."
    return f'{drawn}<div class="rl-model-row"><b>outside</b><span>{html.escape(source)}</span></div>'


def models_explorable(first: str = "Gemma 3 4B") -> Explorable:
    """The layers of a model that the reader selects, and how the five knobs stand in each.

    Args:
        first: the model that is shown at first.
    """
    pictures = {name: _rows(model) for name, model in models().items()}
    chosen = models()[first]
    words = (_grouped(chosen, _frequencies), _scale(chosen)[0], _grouped(chosen, _sight))
    alt = f"""The layers of a model from left to right, and for each of the five knobs how it stands in them. For
        {first}: frequencies: {words[0]}; distances as they are; scale: {words[1]}; visible: {words[2]}; positions 0,
        1, 2 and so on. {len(pictures)} models can be chosen."""
    return Explorable(
        "models-knobs",
        alt,
        "A bar is a layer, the first on the left. First row: blue for RoPE, orange for changed frequencies, an outline "
        "for no positions, grey for no softmax attention. Other rows: a colour where a layer is not as in plain RoPE.",
        [Choice("model", "Model", {name: name for name in pictures}, first)],
        f'<div class="rl-model">{pictures[first]}</div>',
        f"const pictures = {json.dumps(pictures, ensure_ascii=False)};\nsvg.innerHTML = pictures[value.model];",
        STYLE,
    )


# --- all models: small multiples --------------------------------------------------------------------------------------

GALLERY = f"""
.rl-gallery{{margin:1em 0;color:inherit;padding:0}}
.rl-gallery p{{margin:14px 0 4px;font-weight:600}}
.rl-gallery ul{{list-style:none;margin:0;padding:0;display:grid;gap:10px 18px;
grid-template-columns:repeat(auto-fill,minmax(155px,1fr))}}
.rl-gallery ul.rl-alike{{gap:4px 18px;border-left:3px solid {themed("line")};padding-left:12px;margin-top:6px}}
.rl-gallery li{{margin:0;padding:0;line-height:1.3;font-size:14px}}
.rl-gallery li b{{display:block;font-size:14px}}
.rl-gallery li svg,.rl-gallery .rl-one svg{{display:block;width:100%;height:28px;background:none;filter:none}}
.rl-gallery .rl-one svg{{width:155px}}
.rl-gallery .rl-keys{{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:14px;margin:0 0 4px}}
.rl-gallery .rl-keys span{{display:flex;gap:6px;align-items:center}}
.rl-gallery .rl-keys svg{{width:10px;height:28px;background:none;filter:none}}
.rl-gallery .rl-below{{margin-top:10px;font-weight:400}}
"""
PLAIN = "All layers alike, RoPE with the base it was given"  # a count says it; the table below names them
GROUPS: dict[str, Callable[[Released], bool]] = {
    "Near layers turn, far layers have no positions": lambda model: "hwfa" in model.ideas,
    "Layers without positions, and no window": lambda model: "nope" in model.ideas,
    "Windows and full layers, all of them turn": lambda model: (
        "window" in model.ideas and any(layer.sees == "all" for layer in model.layers)
    ),
    "Every layer has a window": lambda model: "window" in model.ideas,
    "Some layers have no softmax attention": lambda model: any(layer.sees == "none" for layer in model.layers),
    "All layers alike, frequencies changed for length": lambda model: any(
        layer.turns not in (None, "rope", "mrope") for layer in model.layers
    ),
    PLAIN: lambda model: True,
}


def _group(model: Released) -> str:
    return next(name for name, holds in GROUPS.items() if holds(model))


@dataclass(frozen=True)
class ModelGallery:
    """Small pictures of models, which display themselves as HTML, and as text where there is none.

    Args:
        groups: names of models by the title of their group.
        caption: below.
    """

    groups: Mapping[str, Sequence[str]]
    caption: str

    def _repr_html_(self) -> str:
        keys = (
            *((name, Layer("none" if "softmax" in name else "all", None, _KEYS[name], None, 1.0)) for name in FILLS),
            ("sees a window", Layer("window", 1, "rope", None, 1.0)),
            ("sees a block", Layer("chunk", 1, "rope", None, 1.0)),
        )
        legend = "".join(f"<span>{_strip([layer])}{name}</span>" for name, layer in keys)
        found = models()
        body = "".join(self._group(title, [found[name] for name in names]) for title, names in self.groups.items())
        return (
            f'<div class="rl-gallery"><style>{GALLERY}</style><div class="rl-keys">{legend}</div>{body}'
            f'<p class="rl-below">{html.escape(self.caption)}</p></div>'
        )

    def _group(self, title: str, of: Sequence[Released]) -> str:
        """A picture for each model; a single one where all are drawn alike."""
        alike = len({_bar(layer, 0) + _turning(layer) for model in of for layer in model.layers}) == 1 < len(of)
        one = f'<div class="rl-one">{_strip(of[0].layers[:1] * 32, alike_said(of))}</div>' if alike else ""
        cards = "".join(self._card(model, not alike) for model in of)
        count = f": {len(of)} models" if alike else ""
        cards = f"<ul{' class=rl-alike' if alike else ''}>{cards}</ul>"
        return f"<p>{html.escape(title)}{count}</p>{one}{'' if title == PLAIN else cards}"

    def _card(self, model: Released, drawn: bool) -> str:
        strip = _strip(model.layers, said(model)) if drawn else ""
        return f"<li><b>{html.escape(model.name)}</b>{strip}{html.escape(_in_short(model))}</li>"

    def __repr__(self) -> str:
        return "\n".join(f"{title}: {', '.join(names)}" for title, names in self.groups.items())


_KEYS = {"RoPE": "rope", "RoPE with changed frequencies": "pi", "no positions": None, "no softmax attention": None}


def said(model: Released) -> str:
    """A model's picture in words."""
    layers = f"{len(model.layers)} layers"
    return f"{model.name}, {layers}: {_grouped(model, _frequencies)}; {_grouped(model, _sight)}"


def alike_said(of: Sequence[Released]) -> str:
    """In words, the one picture of models that are drawn alike."""
    return f"{len(of)} models, in each of which all layers look the same: {', '.join(model.name for model in of)}"


def _in_short(model: Released) -> str:
    """Its longest window, its largest base, and what else no bar shows."""
    near = max(layer.size or 0 for layer in model.layers)
    base = max(layer.base or 0 for layer in model.layers)
    kinds = {label(layer.turns) for layer in model.layers if layer.turns not in (None, "rope")}
    grows = {"log n": "log n†", "temperature": "a temperature"}
    what = "temperature" if "temperature by position" in model.outside else "log n"
    words = [f"base {base:,.0f}", *sorted(kinds), *([grows[what]] if "log n" in model.ideas else [])]
    return ", ".join([f"w = {near:,}", *words] if near else words)


def models_gallery(names: Sequence[str] | None = None) -> ModelGallery:
    """Small multiples: the layers of each model, in groups by how far they see and whether they turn.

    Args:
        names: of the models; all by default.

    >>> models_gallery(["Command A", "Llama 3.1 8B"])
    Near layers turn, far layers have no positions: Command A
    All layers alike, frequencies changed for length: Llama 3.1 8B
    """
    chosen = [model for name, model in models().items() if names is None or name in names]
    groups = {title: [model.name for model in chosen if _group(model) == title] for title in GROUPS}
    return ModelGallery(
        {title: found for title, found in groups.items() if found},
        "A bar is a layer, the first on the left: tall if it sees everything. Below each model stand its longest "
        "window, w, and its largest base. Of the rules, proportional turns the fastest quarter of the pairs (p-RoPE, "
        "chapter 14), and dynamic NTK raises the base as the text grows. A temperature and log n† are scales that grow "
        "with the text.",
    )


# --- the table --------------------------------------------------------------------------------------------------------


def _row(model: Released) -> SortableRow:
    layers = model.layers
    base = max(layer.base or 0 for layer in layers)
    near = sum(layer.sees in ("window", "chunk") for layer in layers)
    unturned = sum(layer.turns is None and layer.sees != "none" for layer in layers)
    more = {
        "frequencies": _grouped(model, _frequencies),
        "sees": _grouped(model, _sight),
        "outside": "; ".join(f"{name}: {words}" for name, words in model.outside.items())
        or model.refused
        or "nothing that we know of",
        "plan": "read by `rl.plan_from_hf`" if model.refused is None else f"refused: {model.refused}",
        "source": "; ".join(f"[{source}]({source.url})" for source in model.sources)
        + (", in another program’s names" if model.what == "translated" else ""),
    }
    kinds = {label(layer.turns) if layer.turns else "no positions" for layer in layers if layer.sees != "none"}
    return SortableRow(
        model.name,
        (
            model.trained and model.trained / 1024,
            model.claimed and model.claimed / 1024,
            base / 1000,
            100 * near / len(layers),
            100 * unturned / len(layers),
        ),
        {"Frequencies": frozenset(kinds), "Plan": frozenset({"yes" if model.refused is None else "no"})},
        more,
        short=model.name in SHORT,
    )


SHORT = (
    "Llama 2 7B", "Mistral 7B v0.1", "Llama 3.1 8B", "Gemma 3 4B", "Phi-3.5 mini", "Command R7B", "DeepSeek-V3",
    "Llama 4 Scout", "Qwen3 8B, YaRN on", "SmolLM3 3B", "EXAONE 4.0 32B", "gpt-oss 20B", "Olmo 3.1 32B", "Gemma 4 31B",
)  # fmt: skip


def models_table() -> SortableTable:
    """Every model in a row: lengths, base, windows, layers without positions; a click on its name shows the source."""
    rows = sorted(map(_row, models().values()), key=lambda row: -(row.values[1] or -1))
    kinds = sorted({kind for row in rows for kind in row.tags["Frequencies"]})
    return SortableTable(
        "models-table",
        ("before, k", "allowed, k", "base, k", "near, %", "no pos., %"),
        tuple(rows),
        by=1,
        filters={"Frequencies": {kind: kind for kind in kinds}, "Plan": {"yes": "yes", "no": "refused"}},
        caption="Lengths in 1,024 tokens: before the file’s rule, or as its makers say; and the longest that the "
        "source allows, where makers may claim less. Base in thousands, the largest of the layers. Near: layers that "
        "see a window or a block. No pos.: layers without positions. A click on a name shows the file.",
        head="model",
        digits=0,
    )


# --- frequencies ------------------------------------------------------------------------------------------------------

SPEEDS = {
    "Olmo 3.1 32B": ("Olmo 3.1", "below"),
    "Llama 3.1 8B": ("Llama 3.1", "above"),
    "Llama 3.2 1B": ("Llama 3.2", "above"),
    "Qwen3 8B, YaRN on": ("Qwen3", "above"),
    "Phi-3.5 mini": ("Phi-3.5", "above"),
}
WIDE: dict[str, Any] = {"linewidth": 7, "alpha": 0.45}


@styled
def models_speeds(names: Mapping[str, tuple[str, str]] = SPEEDS) -> tuple[MatplotlibFigure, str]:
    """What is left of the speed of each pair, against the turns that it made within the length before.

    ``names`` of models with a plan, each with what stands beside its line and on which side; of their layers the first
    whose frequencies are changed.
    """
    figure, axis = new_figure(height=4.2)
    spoken_of = []
    for (name, (short, side)), color, marker in zip(
        names.items(), (RED, BLUE, GREEN, ORANGE, PURPLE, GREY), "Dos^v*", strict=False
    ):
        model = models()[name]
        spec = next(
            its.frequencies for its in model.plan() if its.frequencies is not None and its.frequencies.kind != "rope"
        )
        plain = rope_frequencies(spec.dim, base=dict(spec.options)["base"])
        if model.trained is None:
            raise ValueError(f"names must be of models with a length before, got {name!r}")
        left = spec(model.claimed if spec.needs_length else None) / plain
        round_before = turns(plain, model.trained)
        above = side == "above"  # what lies under another line is wide and pale, and named below it
        axis.plot(round_before, left, color=color, **({"marker": marker, "markersize": 4} if above else WIDE))
        axis.annotate(short, (round_before[-1], left[-1]), (0, 5 if above else -7), textcoords="offset points",
                      va="bottom" if above else "top", color=color)  # fmt: skip
        spoken_of.append(f"{name}: {float(left[0]):.2f} for the fastest pair, {float(left[-1]):.3f} for the slowest")
    axis.set_xscale("log")
    axis.set_yscale("log", base=2)
    axis.set_yticks([1 / 2**n for n in range(7)], ["1", *(f"1/{2**n}" for n in range(1, 7))])
    axis.minorticks_off()
    axis.axvline(1, color="black", linewidth=1, linestyle="--")
    axis.axhline(1 / 8, color="black", linewidth=1.5, linestyle=":")
    axis.text(axis.get_xlim()[1], 1 / 8, "Gemma 3 4B ", ha="right", va="bottom")
    axis.set_xlabel("turns within the length before")
    axis.set_ylabel("speed: new / old")
    alt = f"""What is left of the speed of each pair, against its turns within the length before, both on logarithmic
        scales, with a dashed line at one turn and a dotted one at an eighth, Gemma 3 4B. {"; ".join(spoken_of)}."""
    return figure, alt


def turns_once(length: int) -> float:
    """The base with which the slowest of 64 pairs turns just once within a length: 2π B^(126/128) = L."""
    return (length / (2 * math.pi)) ** (128 / 126)


# Where a name stands beside its mark: offsets in points, and which of its sides is at the mark.
NAMED = {
    "Phi-3.5 mini": ("Phi-3.5, Phi-4 mini", (9, -5), "left", "top"),
    "DeepSeek-V3": ("DeepSeek-V2, V3", (9, 5), "left", "bottom"),
    "Llama 4 Scout": ("Llama 4", (7, -9), "right", "top"),
    "Mistral 7B v0.1": ("Mistral v0.1", (5, 9), "right", "bottom"),
    "Qwen3 8B": ("Mistral v0.3,\nMixtral, Qwen3,\nQwen2.5", (3, 9), "right", "bottom"),
    "Command R7B": ("Command R7B", (-10, 0), "right", "center"),
    "SmolLM3 3B": ("SmolLM3", (4, 9), "center", "bottom"),
    "Llama 3.1 8B": ("Llama 3.1", (9, 0), "left", "center"),
    "Qwen3-Next 80B-A3B": ("Qwen3 30B, Qwen3-Next", (0, 10), "center", "bottom"),
    "Gemma 4 31B": ("frames: EXAONE 4\nand Gemma 4", (2, 13), "left", "bottom"),
    "gpt-oss 20B": ("gpt-oss", (-8, -3), "right", "center"),
    "Olmo 3.1 32B": ("Olmo 3.1", (0, -7), "center", "top"),
}


def seen_far(model: Released) -> bool:
    """Whether slow hands turn in a layer that meets every distance of the text."""
    return any(layer.turns not in (None, "proportional") and layer.sees == "all" for layer in model.layers)


@styled
def models_bases() -> tuple[MatplotlibFigure, str]:
    """The largest base of each model against the longest text that is allowed, and the base that turns just once.

    Filled where slow hands turn in a layer that sees everything, hollow where there is no such layer.
    """
    figure, axis = new_figure(height=5.0)
    at: Counter[tuple[bool, bool, int, float]] = Counter()
    below, hollow = [], []
    for model in models().values():
        bases = [(layer.base, layer.turns) for layer in model.layers if layer.base is not None]
        if model.claimed is None:
            continue
        base, kind = max(bases)
        far = seen_far(model)
        at[not far, kind not in ("rope", "mrope"), model.claimed, base] += 1
        below += [model.name] * (base < turns_once(model.claimed))
        hollow += [model.name] * (not far)
        if model.name in NAMED:
            short, offset, side, upright = NAMED[model.name]
            axis.annotate(short, (model.claimed, base), offset, textcoords="offset points", ha=side, va=upright)
    kinds = ("RoPE", BLUE, "o"), ("frequencies changed", ORANGE, "s")
    for (apart, changed, claimed, base), count in sorted(at.items()):
        _, color, marker = kinds[changed]
        axis.scatter(claimed, base, s=170 if apart else 35 * count, marker=marker, edgecolors=color, linewidths=1.5,
                     facecolors="none" if apart else color, zorder=3)  # fmt: skip
    for which, (name, color, marker) in enumerate(kinds):
        total = sum(count for key, count in at.items() if key[1] == which)
        axis.plot([], [], marker, color=color, label=f"{name}: {total} models")
    axis.plot([], [], "o", color=GREY, markerfacecolor="none", label="hollow: no slow hand turns far", markersize=9)
    lengths = 2**15, 2**23  # straight between them
    once = [*map(turns_once, lengths)]
    axis.plot(lengths, once, color=GREY, linestyle="--", label="the slowest of 64 pairs turns once")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    ticks = {11: "2k", 13: "8k", 15: "32k", 17: "128k", 20: "1M", 23: "8M"}
    axis.set_xticks([2**power for power in ticks], list(ticks.values()))
    axis.set_ylim(4e3, 5e7)
    axis.minorticks_off()
    axis.set_xlabel("longest text that is allowed, tokens")
    axis.set_ylabel("base")
    legend_below(figure, axis, columns=1)
    alt = f"""The base of {at.total()} models against the longest text that is allowed, on
        logarithmic scales. A dashed line shows the base with which the slowest of 64 pairs turns just once. All
        models are above it but {", ".join(below)}. Hollow marks, where no slow hand turns far: {", ".join(hollow)}."""
    return figure, alt


def share_read(model: Released) -> float:
    """Keys that a step reads at the allowed length, as a share of what full layers would read. Of chunks the mean."""
    assert model.claimed is not None
    read = {"all": lambda size: 1.0, "none": lambda size: 0.0, "window": lambda size: size / model.claimed,
            "chunk": lambda size: (size + 1) / 2 / model.claimed}  # fmt: skip
    return sum(read[layer.sees](layer.size) for layer in model.layers) / len(model.layers)


@styled
def models_reads() -> tuple[MatplotlibFigure, str]:
    """What a step of decoding reads at the allowed length, for the models that do not read everything."""
    shares = {name: 100 * share_read(model) for name, model in models().items() if model.claimed is not None}
    shares = {name: share for name, share in sorted(shares.items(), key=lambda pair: pair[1]) if share < 100}
    figure, axis = new_figure(height=0.8 + 0.36 * len(shares))
    axis.barh(list(shares), list(shares.values()), color=BLUE, height=0.6)
    for at, share in enumerate(shares.values()):
        axis.text(share + 1, at, f"{share:.0f}", va="center")
    axis.set_xlim(0, 105)
    axis.set_xlabel("keys that a step reads, %")
    axis.grid(visible=False, axis="y")
    alt = f"""Keys that a step of decoding reads at the allowed length, in percent of what it would be if each layer saw
        everything, one bar for each model: {"; ".join(f"{name} {share:.0f}" for name, share in shares.items())}."""
    return figure, alt


# --- a pretrained model with several plans ----------------------------------------------------------------------------


@styled
def models_put_in(found: Mapping[str, Sequence[float]], heads: Mapping[int, str]) -> tuple[MatplotlibFigure, str]:
    """Needles at home and at eight times as many bytes, a row for each recipe, with all bytes at home.

    ``found``: percent of all bytes at home and far, of far copies, and of needles at home and far, by recipe.
    ``heads``: what stands above a group, by the number of its first recipe.
    """
    last = len(found) - 1 + 0.75 * len(heads)
    figure, axis = new_figure(height=1.5 + 0.34 * last)
    told, y = [], 0.0
    for row, (name, (right, _, _, home, far)) in enumerate(found.items()):
        told.append(f"{heads.get(row, '')} {name}: needles {home:.0f} and {far:.0f}, bytes {right:.1f}")
        if row in heads:
            y += 0.75
            axis.text(-3, y - 0.8, heads[row], va="bottom", weight="bold")
        color = GREY if name.startswith("control") else ORANGE if name.startswith("no maker") else BLUE
        axis.plot([home, far], [y, y], color=color, linewidth=2)
        for at, look, what in ((home, "none", "needles at 64 bytes"), (far, "full", "at 512")):
            axis.plot(at, y, "o", color=color, fillstyle=look, markersize=9, label=None if y else what)
        axis.text(-3, y - 0.22, name.removeprefix("control: "), va="bottom")
        axis.text(119, y, f"{right:.1f}", ha="right", va="center")
        y += 1
    axis.text(119, -0.9, "bytes at 64", ha="right")
    axis.set(xlim=(-4, 120), ylim=(last + 0.5, -1.2), yticks=[], xticks=range(0, 101, 25))
    axis.set_xlabel("right, %")
    axis.grid(axis="y", visible=False)
    legend_below(figure, axis)
    return figure, f"Needles found at 64 bytes and at 512, and bytes right at 64, in percent. {'; '.join(told)}."


@styled
def models_extended(rows: Sequence[Mapping[str, Any]], trained: int) -> tuple[MatplotlibFigure, str]:
    """Loss and needles against the length, a line for each plan.

    Args:
        rows: of :func:`rope_lessons.models.pretrained.measure`.
        trained: the training length, a dashed line.
    """
    figure, (left, right) = new_figure(1, 2, height=4.4)
    names = list(dict.fromkeys(row["name"] for row in rows))
    lengths = sorted({row["length"] for row in rows})
    told = []
    for name, color, marker in zip(names, (GREY, BLUE, ORANGE, GREEN, RED, PURPLE), "osD^v*", strict=False):
        found = {row["length"]: row for row in rows if row["name"] == name}
        for axis, what in ((left, "loss"), (right, "needles")):
            axis.plot(lengths, [found[n][what] for n in lengths], color=color, marker=marker, label=name)
        values = [[found[n][what] for n in lengths] for what in ("loss", "needles")]
        told.append(f"{name}: loss {spoken(values[0], 2)}, needles {spoken(values[1], 0)}")
    for axis, title in ((left, "loss, nats per token"), (right, "needles found, %")):
        doubling_axis(axis, lengths)
        axis.axvline(trained, color="black", linewidth=1, linestyle="--")
        axis.set_xlabel("tokens")
        axis.set_title(title)
    right.set_ylim(-4, 104)
    legend_below(figure, left)
    alt = f"""Loss, and needles found in percent, against the length of the text, {spoken(lengths, 0)} tokens, with a
        dashed line at the training length, {trained}. {"; ".join(told)}."""
    return figure, alt
