"""Figures of chapter 07."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.patches import Rectangle

from rope_lessons.figures import (
    BLUE,
    DIVERGING,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    SEQUENTIAL,
    SKY,
    Choice,
    Explorable,
    Knob,
    doubling_axis,
    legend_below,
    new_figure,
    over_seeds,
    styled,
)
from rope_lessons.figures.scoreboard import measured
from rope_lessons.local import dense_mask, lambda_mask
from rope_lessons.stored import Table

__all__ = [
    "local_attention",
    "local_cache",
    "local_cliff",
    "local_distances",
    "local_hybrid",
    "local_mended",
    "local_needles",
    "local_reach",
    "local_recall",
]


@styled
def local_distances(
    window: int = 2, sinks: int = 2, length: int = 7, methods: Sequence[str] = ("StreamingLLM", "LM-Infinite")
) -> tuple[MatplotlibFigure, str]:
    """Distances under a Λ-mask: true, in StreamingLLM's cache, and capped by LM-Infinite.

    Args:
        window, sinks: what a query sees.
        length: of the text.
        methods: drawn beside the true distances.
    """
    index = torch.arange(length)
    distance = (index[:, None] - index[None, :]).double()
    visible = dense_mask(lambda_mask(window, sinks), index, index)
    gone = visible & (distance >= window)  # sinks that have left the window
    in_cache = index.clamp(max=window + sinks - 1)[:, None] - index[None, :].double()
    shown = {
        "StreamingLLM": torch.where(gone, in_cache, distance),
        "LM-Infinite": torch.where(gone, torch.tensor(float(window)).double(), distance),
    }
    panels = {"true distance": distance} | {name: shown[name] for name in methods}
    figure, axes = new_figure(1, len(panels), height=2.8, sharey=True)
    for axis, (name, values) in zip(axes, panels.items(), strict=True):
        axis.imshow(
            values.masked_fill(~visible, torch.nan).numpy(), cmap=DIVERGING, vmin=-1.6 * length, vmax=1.6 * length
        )
        for i, j in visible.nonzero().tolist():
            weight = "bold" if gone[i, j] else "normal"
            axis.text(j, i, f"{values[i, j]:g}", ha="center", va="center", fontsize=12, weight=weight)
        axis.set_title(name)
        axis.set_xticks([0, length - 1])
        axis.set_yticks([0, length - 1])
        axis.grid(False)
    axes[0].set_ylabel("query")
    for axis in axes:
        axis.set_xlabel("key")
    last = {name: [f"{float(v):g}" for v in values[-1][visible[-1]]] for name, values in panels.items()}
    alt = f"""{len(panels)} matrices of {length} by {length}. A query sees its window of {window}, a band along the
        diagonal, and {sinks} sinks, an upright leg on the left: a Λ. The last row reads: {
        "; ".join(f"{name}: {', '.join(row)}" for name, row in last.items())
    }."""
    return figure, alt


@styled
def local_mended(losses: Mapping[str, float]) -> tuple[MatplotlibFigure, str]:
    """How a loss is brought down, step by step: where it begins, and what each step leads to."""
    figure, axis = new_figure(height=2.2)
    names, ends = list(losses), list(losses.values())
    gained = [before - after for before, after in pairwise(ends)]
    for place, (nats, left) in enumerate(zip(gained, ends[1:], strict=True)):
        axis.barh(place, nats, left=left, color=BLUE)
        axis.text(left - 0.025, place, f"{nats:.2f}", ha="right", va="center", fontsize=12)
    axis.set_yticks(range(len(gained)), names[1:])
    axis.set_ylim(len(gained) - 0.5, -0.5)
    axis.set_xlim(ends[-1] - 0.25, ends[0] + 0.05)
    axis.grid(axis="y", visible=False)
    axis.set_xticks([ends[-1], ends[0]], [f"{ends[-1]:.2f}", f"{ends[0]:.2f}"])
    axis.set_xlabel("nats per byte")
    said = ", ".join(f"{name} {nats:.2f}" for name, nats in zip(names[1:], gained, strict=True))
    alt = f"""Nats per byte in steps, a bar for each, from {ends[0]:.2f} down to {ends[-1]:.2f}: {said}."""
    return figure, alt


@styled
def local_attention(panels: Mapping[str, Mapping[str, Any]]) -> tuple[MatplotlibFigure, str]:
    """Attention weights of one head, one panel for each model, with the share that the first byte gets.

    Args:
        panels: by name, a row of the stored table.
    """
    figure, axes = new_figure(1, len(panels), height=4.4)
    said = []
    for axis, (name, row) in zip(axes, panels.items(), strict=True):
        count = len(row["weights"])
        shown = torch.tensor([[*weights, *[0.0] * (count - len(weights))] for weights in row["weights"]])
        image = axis.imshow(shown.clamp(min=1e-4).sqrt().numpy(), cmap=SEQUENTIAL, vmin=0, vmax=1)
        axis.add_patch(Rectangle((-0.5, 0.5), 1, count - 1, fill=False, edgecolor=ORANGE, linewidth=2))
        here = float(shown[1:, 0].mean())  # the first query has nothing but the first byte
        axis.set_title(f"{name}\nfirst byte: {100 * here:.0f} % here")
        axis.set_xlabel("key")
        axis.set_ylabel("query")
        axis.grid(False)
        said.append(f"{name}: {100 * here:.0f} percent in the picture, {100 * row['first']:.0f} percent later")
    ticks = (0, 0.01, 0.1, 0.3, 1)
    bar = figure.colorbar(image, ax=axes, location="bottom", shrink=0.7, aspect=35, ticks=[tick**0.5 for tick in ticks])
    bar.ax.set_xticklabels([f"{tick:g}" for tick in ticks])
    bar.set_label("weight (square-root scale)")
    alt = f"""Attention weights of one head, a row per query and a column per key, for the first {count} bytes; an
        outline marks the column of the first byte, filled from top to bottom where its share is large. That share, from
        the queries after it, and from those in the second half of all texts: {"; ".join(said)}."""
    return figure, alt


def recall_axes(figure: MatplotlibFigure, axis: Any, distances: Sequence[int], train_length: int) -> None:
    """What every figure of answered questions has in common: guessing, the training length, names."""
    axis.axhline(100 / 26, color="black", linewidth=1, linestyle=":")
    axis.axvline(train_length, color="black", linewidth=1)
    doubling_axis(axis, distances)
    axis.set_ylim(-3, 106)
    axis.set_xlabel("distance from the question to the secret, bytes")
    axis.set_ylabel("questions answered, %")
    legend_below(figure, axis)


@styled
def local_recall(
    rows: Table, names: Mapping[tuple[str, str], str], window: int, train_length: int
) -> tuple[MatplotlibFigure, str]:
    """Questions answered against the distance of the secret: mean of the seeds, bars from worst to best.

    ``rows`` as in ``data/local.json``; ``names`` maps (method, test) to a name in the legend.
    """
    figure, axis = new_figure(height=4.4)
    said = []
    colours, markers = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY), "osD^vXP"
    for number, ((method, test), name) in enumerate(names.items()):
        shares = rows.where(method=method, test=test)["recall"]
        distances = [int(distance) for distance in shares[0]]
        found = [[100 * of_seed[str(distance)] for of_seed in shares] for distance in distances]
        at = [distance * 1.02 ** (number - len(names) / 2) for distance in distances]  # side by side
        mean = over_seeds(axis, at, found, color=colours[number], marker=markers[number], label=name)
        said.append(f"{name}: {', '.join(f'{value:.0f} at {d}' for d, value in zip(distances, mean, strict=True))}")
    axis.axvline(window - 0.5, color="black", linewidth=1, linestyle="--")
    recall_axes(figure, axis, distances, train_length)
    alt = f"""Share of questions answered against the distance of the secret, mean over the seeds, bars from worst to
        best. Vertical lines at the window of {window} (dashed) and at the training length {train_length}; a dotted line
        for guessing, 3.8 percent. In percent: {"; ".join(said)}."""
    return figure, alt


@styled
def local_cliff(found: Mapping[int, Mapping[int, float]], layers: int = 4) -> tuple[MatplotlibFigure, str]:
    """Digits found, by how far back the number stands: for each window the percent by bytes back; and its field."""
    figure, axis = new_figure(height=3.2)
    said = []
    for (window, curve), color, marker in zip(found.items(), (BLUE, ORANGE), "os", strict=True):
        field = (window - 1) * layers + 1
        axis.plot(list(curve), list(curve.values()), color=color, marker=marker, label=f"windows of {window}")
        axis.axvline(field, color=color, linestyle="--", linewidth=1.5)
        axis.text(field / 1.04, 62, f"field {field}", color=color, rotation=90, ha="right", va="center", fontsize=12)
        said.append(f"windows of {window}: {', '.join(f'{y:.0f} at {x}' for x, y in curve.items())}")
    doubling_axis(axis, (16, 32, 64, 128, 256, 512))
    axis.set_xlabel("bytes back to the digit")
    axis.set_ylabel("digits right, %")
    axis.set_ylim(-5, 108)
    axis.set_yticks([0, 50, 100])
    legend_below(figure, axis)
    alt = f"""Percent of a hidden number's digits that are right, by bytes back, for two windows in {layers} layers;
        dashed lines mark their fields. Each curve falls from 100 at its own window, far before its field.
        {"; ".join(said)}."""
    return figure, alt


@styled
def local_needles(lines: Table, names: Mapping[str, str], length: int = 512) -> tuple[MatplotlibFigure, str]:
    """Needles found in the scoreboard's texts, by where they were hidden.

    Args:
        lines, names: the scoreboard, and what its rows are called.
        length: of the texts.
    """
    places = {"needle 0": "at the start", "needle 0.5": "in the middle", "needle 1": "before the\nquestion"}
    figure, axis = new_figure(height=3.3)
    said, width = [], 0.9 / len(names)
    colours = (GREY, ORANGE, GREEN, BLUE, SKY)
    for number, ((row, name), color) in enumerate(zip(names.items(), colours, strict=False)):
        found = [measured(lines, row, metric, length)[0] for metric in places]
        at = [place + width * (number - (len(names) - 1) / 2) for place in range(len(places))]
        axis.bar(at, found, width=0.9 * width, color=color, label=name)
        for x, value in zip(at, found, strict=True):
            axis.text(x, value + 2, f"{value:.0f}", ha="center", va="bottom", fontsize=11)
        said.append(f"{name} {', '.join(f'{value:.0f}' for value in found)}")
    axis.set_xticks(range(len(places)), list(places.values()))
    axis.set_ylim(0, 118)
    axis.set_yticks([0, 50, 100])
    axis.set_ylabel("needles found, %")
    axis.grid(axis="x", visible=False)
    legend_below(figure, axis)
    alt = f"""Percent of needles found in texts of {length} bytes, in three groups of bars: hidden at the start of the
        text, in its middle, and right before the question. {"; ".join(said)}."""
    return figure, alt


@styled
def local_hybrid(
    layers: int = 4, window: int = 5, cap: int = 10, methods: Sequence[str] = ("HWFA", "HWFA2")
) -> tuple[MatplotlibFigure, str]:
    """Who sees whom in each layer of HWFA, and of HWFA2 at test.

    Args:
        layers: of the model. HWFA's last layer sees everything, HWFA2's middle one.
        window: of the others.
        cap: of the distances, in HWFA2.
        methods: drawn one below the other.
    """
    fulls = {"HWFA": layers - 1, "HWFA2": layers // 2}
    figure, axes = new_figure(
        len(methods), layers, height=1.9 * len(methods), sharey=True, squeeze=False, width_ratios=[1] * layers
    )
    for row, name in zip(axes, methods, strict=True):
        full = fulls[name]
        for number, axis in enumerate(row):
            for i in range(20):
                near = min(cap if number == full else window, i + 1)
                colour = BLUE
                if number == full and name == "HWFA":
                    near, colour = i + 1, GREEN
                beyond = ORANGE if number == full else "#e4e4e4"
                axis.barh(i, near, 1.5, i + 1 - near, align="edge", color=colour)
                axis.barh(i, i + 1 - near, 1.5, align="edge", color=beyond)  # no seams: half is under the next row
            axis.set(xlim=(0, 20), ylim=(20, 0), aspect="equal", xticks=[], yticks=[], xlabel="key")
            axis.set_title(f"layer {number + 1}", fontsize=12)
            axis.grid(False)
        row[0].set_ylabel(name if len(methods) > 1 else "query")
    said = {
        "HWFA": f"HWFA: in layer {layers} everything is seen, green throughout.",
        "HWFA2": f"""HWFA2: in layer {layers // 2 + 1} everything is seen, a broader blue band along the diagonal, and
        all that is farther away in orange.""",
    }
    alt = f"""For each method a row of {layers} triangles, one per layer, of queries by keys. In all layers but one a
        narrow band along the diagonal is blue, the window, the rest grey. {" ".join(said[name] for name in methods)}"""
    return figure, alt


# --- the explorable: a cache that evicts, byte by byte -----------------------------------------------------------

STREAM = "▸def␣mul(w,␣h):␣re"  # the first stands for the start byte
SLOT, CACHED, KNOWN, AT = 32, 6, 8, 14  # width of a box; bytes of the window; distances of training; the first position


def _cached(i: int, policy: str) -> list[tuple[int, int]]:
    """What a query finds in the cache: (number of the byte, distance at which it sees it)."""
    kept = [j for j in range(i + 1) if policy == "all" or i - j < CACHED or (policy != "window" and j == 0)]
    if policy == "closed up":
        return [(j, len(kept) - 1 - place) for place, j in enumerate(kept)]
    return [(j, i - j) for j in kept]


def _cache_colour(j: int, distance: int, i: int) -> str:
    if distance >= KNOWN:
        return "#f0a585"
    return "#9fd8b4" if j == 0 and i >= CACHED else "#cfe6f5"


CACHE_SCRIPT = r"""
    const i = value.token, policy = value.policy, stream = STREAM, losses = LOSSES;
    const kept = [];
    for (let j = 0; j <= i; j++)
      if (policy === "all" || i - j < CACHED || (policy !== "window" && j === 0)) kept.push(j);
    const seen = kept.map((j, place) => policy === "closed up" ? kept.length - 1 - place : i - j);
    const colour = (j, far) => far >= KNOWN ? "#f0a585" : j === 0 && i >= CACHED ? "#9fd8b4" : "#cfe6f5";
    for (let j = 0; j < stream.length; j++) {
      const place = kept.indexOf(j);
      svg.querySelector(`.box${j}`).setAttribute("fill", place < 0 ? "none" : colour(j, seen[place]));
      svg.querySelector(`.box${j}`).setAttribute("stroke-width", j === i ? 3 : 1);
      svg.querySelector(`.byte${j}`).setAttribute("opacity", place < 0 ? 0.35 : 1);
      const used = j < kept.length;
      svg.querySelector(`.slot${j}`).setAttribute("fill", used ? colour(kept[j], seen[j]) : "none");
      svg.querySelector(`.key${j}`).textContent = used ? stream[kept[j]] : "";
      svg.querySelector(`.far${j}`).textContent = used ? seen[j] : "";
    }
    const far = Math.max(...seen), keys = i ? "keys" : "key";
    svg.querySelector(".title").textContent = `Byte ${i} sees ${kept.length} ${keys}, the farthest at ${far}`;
    Object.keys(losses).forEach((name, n) => {
      svg.querySelector(`.way${n}`).setAttribute("font-weight", name === policy ? "bold" : "normal");
      svg.querySelector(`.bar${n}`).setAttribute("fill", name === policy ? "BLUE" : "#cfe6f5");
    });
"""
POLICIES = {"all": "everything", "window": "a window", "true": "… + first byte", "closed up": "… moved up"}


def local_cache(losses: Mapping[str, float], home: float, token: int = AT, policy: str = "window") -> Explorable:
    """A cache of keys that fills and evicts, byte by byte, under four policies, with what each costs.

    Args:
        losses: nats per byte at 512 bytes, by the names of the policies.
        home: the same at the training length.
        token, policy: what is shown at first.

    Chapter 07.
    """
    shown = {name: f"{loss:.2f}" for name, loss in losses.items()}
    seen = _cached(token, policy)
    distances, parts = dict(seen), []
    for j, byte in enumerate(STREAM):
        x = 10 + SLOT * j
        fill = _cache_colour(j, distances[j], token) if j in distances else "none"
        parts.append(
            f'<rect class="box{j}" x="{x}" y="74" width="{SLOT}" height="32" fill="{fill}" stroke="#555" '
            f'stroke-width="{3 if j == token else 1}"/>'
            f'<text class="byte{j}" x="{x + SLOT // 2}" y="97" opacity="{1 if j in distances else 0.35}">'
            f"{byte}</text>"
        )
        used = j < len(seen)
        fill = _cache_colour(*seen[j], token) if used else "none"
        parts.append(
            f'<rect class="slot{j}" x="{x}" y="150" width="{SLOT}" height="32" fill="{fill}" stroke="#d0d0d0"/>'
            f'<text class="key{j}" x="{x + SLOT // 2}" y="173">{STREAM[seen[j][0]] if used else ""}</text>'
            f'<text class="far{j}" x="{x + SLOT // 2}" y="206">{seen[j][1] if used else ""}</text>'
        )
    title = f"Byte {token} sees {len(seen)} key{'s' if token else ''}, the farthest at {max(far for _, far in seen)}"
    bars = ""
    for n, (name, said) in enumerate(POLICIES.items()):
        y, weight, fill = 255 + 25 * n, *(("bold", BLUE) if name == policy else ("normal", "#cfe6f5"))
        bars += (
            f'<g class="way{n}" font-weight="{weight}"><text x="10" y="{y + 16}">{said}</text><rect class="bar{n}" '
            f'x="180" y="{y}" width="{60 * losses[name]:.0f}" height="18" fill="{fill}"/>'
            f'<text x="{188 + 60 * max(losses[name], home):.0f}" y="{y + 16}">{shown[name]}</text></g>'
        )
    svg = (
        '<svg viewBox="0 0 600 360" style="width:100%;height:auto;background:none" font-family="sans-serif" '
        f'font-size="21" fill="#1a1a1a"><text x="300" y="24" text-anchor="middle" font-weight="bold" class="title">'
        f'{title}</text><text x="10" y="64">the text</text>'
        '<text x="10" y="140">the cache, and at what distance each byte is seen</text>'
        f'<text x="10" y="244" font-weight="bold">nats per byte, recall model, 512 bytes</text>{bars}'
        f'<path d="M{180 + 60 * home:.0f} 250v104" stroke="#1a1a1a" stroke-dasharray="5 4"/>'
        f'<g text-anchor="middle">{"".join(parts)}</g></svg>'
    )
    alt = f"""A row of {len(STREAM)} boxes, the bytes of a text; those in the cache are filled, others pale. Below, the
        cache, and under each byte its distance, orange where training never showed it. With everything kept the far
        distances are orange. With a window {CACHED} bytes are kept. The first byte, kept, is orange at its true
        distance; closed up it stays at {CACHED}. Bars, nats per byte at 512 bytes: {
        "; ".join(f"{said} {shown[name]}" for name, said in POLICIES.items())
    }; a dashed line at {home:.2f}, at home."""
    caption = f"""Move the slider, then press the other buttons. Orange: a distance that training never showed. Green:
        the first byte, ▸, kept; ␣ is a space. The drawing has a window of {CACHED} and training texts of {KNOWN} bytes;
        the bars were measured with 32 and 64. Dashed: {home:.2f}, at home."""
    knobs = (
        Choice("policy", "keep", dict(POLICIES.items()), policy),
        Knob("token", "byte that is read", 0, len(STREAM) - 1, token),
    )
    script = (
        CACHE_SCRIPT.replace("STREAM", json.dumps(list(STREAM)))
        .replace("LOSSES", json.dumps(shown))
        .replace("CACHED", str(CACHED))
        .replace("KNOWN", str(KNOWN))
        .replace("BLUE", BLUE)
    )
    return Explorable("local-cache", alt, caption, knobs, svg, script)


# --- the explorable: what the last token can know through several layers of windows ------------------------------

TOKENS, CELL, LEFT, TOP, STEP, MOST = 24, 20, 100, 44, 42, 6  # STEP: from one layer to the next; MOST: layers


def _reached(window: int, layers: int) -> list[list[int]]:
    """Tokens whose state the last token's end depends on: after all layers, after one less, …, in the text."""
    reached = [[TOKENS - 1]]
    for _ in range(layers):
        oldest = max(0, min(reached[-1]) - window + 1)
        reached.append(list(range(oldest, TOKENS)))
    return reached


def _height(level: int) -> int:
    """Where the cells of a layer begin; level 0 is the text, at the bottom."""
    return TOP + STEP * (MOST - level)


def _cells(cells: Sequence[tuple[int, int]]) -> str:
    """The ``d`` attribute of squares at (level, token)."""
    return "".join(f"M{LEFT + CELL * j + 1} {_height(level)}h18v18h-18z" for level, j in cells)


def _rays(reached: Sequence[Sequence[int]], window: int) -> str:
    """From the oldest state of each layer down to all that its window sees."""
    found, layers = "", len(reached) - 1
    for depth, tokens in enumerate(reached[:-1]):
        level, i = layers - depth, tokens[0]
        for j in range(max(0, i - window + 1), i + 1):
            found += f"M{LEFT + CELL * i + 10} {_height(level) + 18}L{LEFT + CELL * j + 10} {_height(level - 1)}"
    return found


def _title(count: int, layers: int) -> str:
    return f"{layers} layer{'' if layers == 1 else 's'}: the last token can know {count} of {TOKENS}"


LOCAL_SCRIPT = r"""
    const w = value.window, n = value.layers, size = TOKENS;
    const x = (j) => LEFT + CELL * j, y = (level) => TOP + STEP * (MOST - level);
    let oldest = size - 1, cells = "", rays = "";
    for (let level = n; level >= 0; level--) {
      for (let j = oldest; j < size; j++) cells += `M${x(j) + 1} ${y(level)}h18v18h-18z`;
      if (level === 0) break;
      const next = Math.max(0, oldest - w + 1);
      for (let j = next; j <= oldest; j++) rays += `M${x(oldest) + 10} ${y(level) + 18}L${x(j) + 10} ${y(level - 1)}`;
      oldest = next;
    }
    svg.querySelector(".reached").setAttribute("d", cells);
    svg.querySelector(".rays").setAttribute("d", rays);
    for (let level = 1; level <= MOST; level++)
      svg.querySelector(`.level${level}`).setAttribute("opacity", level <= n ? 1 : 0.25);
    svg.querySelector(".title").textContent =
      `${n} layer${n === 1 ? "" : "s"}: the last token can know ${size - oldest} of ${size}`;
"""


def local_reach(window: int = 5, layers: int = 3) -> Explorable:
    """A stack of windows, and what the last token can know through it: a cone that widens from layer to layer."""
    reached = _reached(window, layers)
    green = _cells([(layers - depth, j) for depth, tokens in enumerate(reached) for j in tokens])
    bottom, parts = _height(0) + 18, []
    for level in range(MOST + 1):
        name = f"layer {level}" if level else "the text"
        parts.append(
            f'<g class="level{level}" opacity="{1 if level <= layers else 0.25}">'
            f'<text x="{LEFT - 8}" y="{_height(level) + 17}" text-anchor="end">{name}</text>'
            f'<path d="{_cells([(level, j) for j in range(TOKENS)])}" fill="#e4e4e4"/></g>'
        )
    svg = (
        f'<svg viewBox="0 0 600 {bottom + 32}" style="width:100%;height:auto;background:none" '
        'font-family="sans-serif" font-size="21" fill="#1a1a1a">'
        f'<text x="300" y="26" text-anchor="middle" font-weight="bold" class="title">'
        f"{_title(len(reached[-1]), layers)}</text>{''.join(parts)}"
        f'<path d="{_rays(reached, window)}" fill="none" stroke="{GREEN}" stroke-width="1.5" class="rays"/>'
        f'<path d="{green}" fill="{GREEN}" class="reached"/>'
        f'<text x="{LEFT}" y="{bottom + 24}">token 0</text>'
        f'<text x="{LEFT + CELL * TOKENS}" y="{bottom + 24}" text-anchor="end">{TOKENS - 1}</text></svg>'
    )
    alt = f"""Rows of {TOKENS} cells, the text at the bottom and above it the states after each of up to {MOST} layers.
        After the last layer one cell is green, that of the last token; in each row below more are, those that its state
        depends on: a cone that widens by the window less one per layer. Lines lead from the oldest green cell of a row
        to those that its window sees. With a window of 5 and 3 layers the cone has 13 tokens."""
    caption = """Green: what the last token's state depends on. Window 5 and 3 layers: 4 · 3 + 1 = 13 tokens. Add a
        layer, and the cone reaches 4 further."""
    knobs = (Knob("window", "window", 1, 12, window), Knob("layers", "layers", 1, MOST, layers))
    numbers = {"TOKENS": TOKENS, "CELL": CELL, "LEFT": LEFT, "TOP": TOP, "STEP": STEP, "MOST": MOST}
    script = LOCAL_SCRIPT
    for name, number in numbers.items():
        script = re.sub(rf"\b{name}\b", str(number), script)
    return Explorable("local-reach", alt, caption, knobs, svg, script)
