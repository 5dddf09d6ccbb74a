"""Figures of chapter 13."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure as MatplotlibFigure

from rope_lessons.engine import cost, targets
from rope_lessons.figures import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    Choice,
    Explorable,
    Knob,
    doubling_axis,
    legend_below,
    new_figure,
    styled,
)
from rope_lessons.lab.rows import OWN
from rope_lessons.lab.table.lines import Line, read_table, row_names
from rope_lessons.lab.table.scoring import SETS
from rope_lessons.schemes import scheme
from rope_lessons.stored import DATA

__all__ = [
    "gpu_cut",
    "gpu_memory",
    "gpu_peak",
    "gpu_ratios",
    "gpu_roofline",
    "gpu_split",
    "gpu_table",
    "gpu_tiles",
    "gpu_time",
]

Result = Mapping[str, Any] | None
CARD = cost.H100  # of all predictions: the card whose cache and exponentials are published
NOT_MEASURED = f"GPU: {targets.NOT_MEASURED}"


def _size(length: float) -> str:
    return f"{length / 1024:g}k" if length >= 1024 else f"{length:g}"


# --- the roofline ----------------------------------------------------------------------------------------------------


def roofline_points() -> dict[str, float]:
    """FLOPs per byte of some kernels in 16 bits, 32 heads of 128 channels."""
    many = cost.Sizes(8192, heads=32, kv_heads=32, head_dim=128)
    grouped = many._replace(kv_heads=8)
    rerope = scheme("rerope", dim=128, window=1024)
    merge = next(step for step in cost.engine_cost(rerope, many, slides=True) if step.name == "merge")
    turning, prompt = cost.plain_cost(many)
    return {
        "merge": merge.intensity,
        "turning": turning.intensity,
        "decoding": cost.decode_cost(many)[0].intensity,
        "decoding, grouped": cost.decode_cost(grouped)[0].intensity,
        "two matrices": 6 * 128 / (12 * 2),  # three products, twelve numbers
        "tiles of 128": prompt.flops / prompt.again,
        "8k tokens, read once": prompt.intensity,
    }


LATER = ("merge", "turning", "decoding", "decoding, grouped")  # the lesson comes to them further down
REACHED = (0.35, 0.75)  # of an H100's products, by FlashAttention-2 and -3: the paper on the latter


@styled
def gpu_roofline() -> tuple[MatplotlibFigure, str]:
    """Peak speed against arithmetic intensity on a card, from its memory and its cache, and where kernels stand."""
    figure, axis = new_figure(height=3.8)
    x, top = np.logspace(-1.3, 4.6, 400), CARD.flops / 1e12
    for rate, name, color, style in ((CARD.bandwidth, "HBM", BLUE, "-"), (CARD.cache, "L2", SKY, "--")):
        label = f"from {name}, {rate / 1e12:g} TB/s, ridge at {CARD.flops / rate:.0f}"
        axis.plot(x, np.minimum(CARD.flops, x * rate) / 1e12, style, color=color, label=label)
    points = roofline_points()
    for name, intensity in points.items():
        speed = min(CARD.flops, intensity * CARD.bandwidth) / 1e12
        color = GREY if name in LATER else "black"
        axis.plot(intensity, speed, "o", color=color, markersize=5)
        at, side = ((0, 8), "center") if "once" in name else ((9, -9), "left")
        if name == "turning":
            at, side = (-6, 4), "right"
        axis.annotate(
            name.replace(" tokens", ""), (intensity, speed), xytext=at, textcoords="offset points", ha=side,
            fontsize=12, color=color,
        )  # fmt: skip
    tile = points["tiles of 128"]
    axis.annotate(
        "", (tile, top), (tile, tile * CARD.bandwidth / 1e12), arrowprops={"arrowstyle": "->", "color": RED, "lw": 2}
    )
    axis.text(tile / 1.3, 1.25 * top, "found in L2", color=RED, ha="right", fontsize=12)
    named = f"FlashAttention-2 and -3: {', '.join(f'{100 * share:.0f}' for share in REACHED)} %"
    axis.hlines([share * top for share in REACHED], 1e4, 4e4, color=GREEN, linewidth=2.5, label=named)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_ylim(0.2, 6e3)
    axis.set_xlim(x[0], x[-1])
    axis.set_xlabel("FLOPs per byte")
    axis.set_ylabel(f"{CARD.name}, at most, TFLOP/s")
    legend_below(figure, axis, columns=1)
    said = ", ".join(f"{name} at {value:.4g}" for name, value in points.items())
    alt = f"""Attainable speed against FLOPs per byte, both axes logarithmic, of an {CARD.name}. A solid line rises with
        the intensity, for bytes that come from HBM, and becomes flat at {CARD.ridge:.0f} FLOPs per byte. A dashed one,
        for bytes from the L2 cache, lies above it and becomes flat at {CARD.flops / CARD.cache:.0f}. Dots mark
        kernels on the solid line: {said}. Only the last lies on the flat part; an arrow lifts
        tiles of 128 to it, if they find their keys in L2.
        Marks at 35 and 75 percent of the flat part are FlashAttention-2 and -3."""
    return figure, alt


# --- memory ----------------------------------------------------------------------------------------------------------


def memory_bytes(length: int, heads: int = 32, head_dim: int = 128) -> tuple[int, int, int]:
    """Forward, one layer, 16 bits, at the fullest moment: two matrices of scores, alone; what the engine holds, inputs
    and all: queries, keys, values, three turned tensors, the output, its float32 sum, one part's output in both types,
    two log-sum-exps; and plain RoPE in one call: inputs, two turned tensors, output, a log-sum-exp."""
    channels, lse = heads * length * head_dim, 4 * heads * length
    engine = (3 * 2 + 3 * 2 + 2 + 4 + 2 + 4) * channels + 2 * lse
    return 2 * 2 * heads * length**2, engine, (3 * 2 + 2 * 2 + 2) * channels + lse


@styled
def gpu_memory(heads: int = 32, head_dim: int = 128) -> tuple[MatplotlibFigure, str]:
    """Bytes of one layer's attention against the length."""
    figure, axis = new_figure(height=3.5)
    lengths = [2**power for power in range(10, 21)]
    found = np.array([memory_bytes(length, heads, head_dim) for length in lengths]).T / 1e9
    looks = (
        (RED, "s", "two matrices of scores"),
        (BLUE, "o", "two calls, merged"),
        (GREY, "^", "plain RoPE, one call"),
    )
    for line, (color, marker, label) in zip(found, looks, strict=True):
        axis.plot(lengths, line, color=color, marker=marker, label=label)
    axis.axhline(CARD.memory / 1e9, color="black", linewidth=1, linestyle=":")
    axis.text(lengths[0], CARD.memory / 1e9 * 1.4, f"{CARD.name}, {CARD.memory / 2**30:.0f} GiB")
    axis.set_yscale("log")
    doubling_axis(axis, lengths[::2], _size)
    axis.set_xlabel("tokens")
    axis.set_ylabel("gigabytes")
    legend_below(figure, axis)
    at = {n: [f"{b / 1e9:.3g}" for b in memory_bytes(n, heads, head_dim)] for n in (4096, 32_768, 131_072)}
    said = "; ".join(f"{_size(n)}: {a}, {b} and {c} GB" for n, (a, b, c) in at.items())
    alt = f"""Memory of one layer's attention with {heads} heads against the length, both axes logarithmic. Two matrices
        of scores rise with the square; two merged calls, and below them plain RoPE in one call, in proportion. {said}.
        A dotted line marks the memory of an {CARD.name}, which the matrices pass between 16k and 32k tokens."""
    return figure, alt


@styled
def gpu_peak(cpu: Result, cuda: Result) -> tuple[MatplotlibFigure, str]:
    """Measured peak memory of forward and backward against the length, a panel for each device."""
    found = {
        name: list(result["memory"])
        for name, result in (("CPU", cpu), ("GPU", cuda))
        if result and result.get("memory")
    }
    figure, axes = new_figure(max(len(found), 1), 1, height=1 + 2.2 * max(len(found), 1), squeeze=False)
    said = [f"{name}: {targets.NOT_MEASURED}" for name in ("CPU", "GPU") if name not in found]
    for axis, (name, rows) in zip(axes[:, 0], found.items(), strict=False):
        axis.set_title(f"{name}, forward and backward, one head")
        for side, color, marker, label in (
            ("eager", RED, "s", "two matrices"),
            ("rerope", BLUE, "o", "merged calls"),
            ("rope", GREY, "^", "plain RoPE, one call"),
        ):
            peaks = [(row["length"], row.get(f"{side}_megabytes")) for row in rows]
            points = [point for point in peaks if point[1] is not None]
            if not points:
                continue
            axis.plot(*zip(*points, strict=True), color=color, marker=marker, label=label)
            said.append(f"{name}, {label}: " + ", ".join(f"{mb} MB at {_size(n)}" for n, mb in points))
        axis.set_yscale("log")
        doubling_axis(axis, [row["length"] for row in rows], _size)
        axis.set_ylabel("peak, megabytes")
    axes[-1, 0].set_xlabel("tokens")
    legend_below(figure, axes[0, 0])
    alt = f"Peak memory against the length, both axes logarithmic. {'. '.join(said)}."
    return figure, alt


def _empty(axis: Any) -> str:
    """A panel that says why it is empty."""
    axis.text(0.5, 0.5, NOT_MEASURED, ha="center", va="center", transform=axis.transAxes, fontsize=14, color=RED)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.grid(False)
    axis.spines[:].set_visible(False)
    return NOT_MEASURED


# --- where the time goes -------------------------------------------------------------------------------------------


def split_shares(row: Mapping[str, Any]) -> dict[str, float]:
    """What ReRoPE takes longer than plain RoPE, in percent of plain RoPE's time: of bytes at the speed of a copy, of
    everything around the kernels beyond that, and in the kernels."""
    whole = row["beside_milliseconds"]
    kernels = row["kernels_milliseconds"] - row["beside_kernel_milliseconds"]
    around = row["milliseconds"] - whole - kernels
    parts = {"bytes": row["copy_milliseconds"], "around": around - row["copy_milliseconds"], "kernels": kernels}
    return {name: 100 * part / whole for name, part in parts.items()}


@styled
def gpu_split(cpu: Mapping[str, Any]) -> tuple[MatplotlibFigure, str]:
    """Where the time of ReRoPE beyond plain RoPE's goes, a bar for each length."""
    figure, axis = new_figure(height=3.1)
    rows, said = list(cpu["split"]), []
    looks = {"bytes": (BLUE, "the bytes we counted, at a copy's speed"), "around": (ORANGE, "the rest around kernels"),
             "kernels": (RED, "kernels on smaller pieces")}  # fmt: skip
    for place, row in enumerate(rows):
        left, shares = 0.0, split_shares(row)
        for part, (color, label) in looks.items():
            axis.barh(place, shares[part], left=left, height=0.6, color=color, label=label if not place else None)
            left += shares[part]
        axis.text(left + 0.5, place, f"{left:.0f} %", va="center")
        said.append(f"{row['length']} tokens: " + ", ".join(f"{looks[p][1]} {v:.1f}" for p, v in shares.items()))
    axis.set_yticks(range(len(rows)), [_size(row["length"]) for row in rows])
    axis.invert_yaxis()
    axis.set_xlim(0, 1.15 * max(sum(split_shares(row).values()) for row in rows))
    axis.set_ylabel("tokens")
    axis.set_xlabel("longer than plain RoPE, %")
    axis.grid(axis="y", visible=False)
    axis.set_axisbelow(True)
    legend_below(figure, axis, columns=1)
    alt = f"""Stacked bars of how much longer ReRoPE takes than plain RoPE on one CPU core, in percent.
        {"; ".join(said)}. The counted bytes are the smallest part."""
    return figure, alt


# --- ratios ----------------------------------------------------------------------------------------------------------

SIDES = ((False, "forward", BLUE, "o"), (True, "forward_and_backward", GREEN, "s"))


@styled
def gpu_ratios(cpu: Result, cuda: Result) -> tuple[MatplotlibFigure, str]:
    """Time of ReRoPE by the time of plain RoPE against L/w: measured, predicted, and the targets."""
    figure, axes = new_figure(2, 1, height=7.4)
    said = [*_ratios_cpu(axes[0], cpu), *_ratios_gpu(axes[1], cuda)]
    for axis in axes:
        axis.set_ylim(0.98, 1.55)
        ticks = [4, 8, 16] if axis is axes[0] else [8, 16, 32]
        doubling_axis(axis, ticks)
        axis.set_xlim(ticks[0] / 1.25, ticks[-1] * 1.25)
        axis.set_ylabel("time, plain RoPE = 1")
    if targets.counted(cuda):
        axes[0].plot([], [], "x", color="black", markersize=8, label="GPU, from a copy's speed")
    axes[1].set_xlabel("length by window, w = 1024")
    legend_below(figure, axes[0])
    alt = f"""Time of ReRoPE divided by the time of plain RoPE against the length in windows of 1024. {"; ".join(said)}.
        All curves fall towards 1 as the text grows."""
    return figure, alt


def _targets(axis: Any, device: str) -> None:
    """Forward and with backward have the same target at most lengths."""
    for times, limits in targets.SPEED[device].items():
        for limit, color in zip(dict.fromkeys(limits), (RED, PURPLE), strict=False):
            axis.plot([times / 1.15, times * 1.15], [limit, limit], color=color, linewidth=2.5)


def _ratios_cpu(axis: Any, result: Result) -> list[str]:
    axis.set_title("CPU, float32, measured")
    _targets(axis, "cpu")
    axis.plot([], [], color=RED, linewidth=2.5, label="target")
    axis.plot([], [], color=PURPLE, linewidth=2.5, label="target with backward, if different")
    if result is None:
        axis.text(0.5, 0.7, f"CPU: {targets.NOT_MEASURED}", ha="center", transform=axis.transAxes, color=RED)
        return [f"CPU: {targets.NOT_MEASURED}"]
    said = []
    for backward, table, color, marker in SIDES:
        rows = [row for row in result[table] if row["what"].startswith("rerope")]
        times = [row["length"] / targets.WINDOW for row in rows]
        name = "with backward" if backward else "forward"
        axis.plot(times, [row["ratio"] for row in rows], marker=marker, color=color, markersize=8, label=name)
        pairs = [f"{row['ratio']:.2f} at {t:g}" for row, t in zip(rows, times, strict=True)]
        said.append(f"CPU, {name}, measured: {', '.join(pairs)}")
    return said


def gpu_ratio(
    length: int, window: int, efficiency: float, *, dim: int = 128, card: cost.Device = CARD, slides: bool = True,
    fused: bool = False,
) -> float:  # fmt: skip
    """What the counts predict for a card in 16 bits, forward, when kernels reach this share of the peak products."""
    sizes = cost.Sizes(length, heads=16, kv_heads=16, head_dim=dim)
    engine = cost.engine_cost(scheme("rerope", dim=dim, window=window), sizes, slides=slides, fused=fused)
    plain = cost.plain_cost(sizes)
    return cost.seconds(engine, card, efficiency) / cost.seconds(plain, card, efficiency)


def _ratios_gpu(axis: Any, result: Result) -> list[str]:
    axis.set_title(f"{CARD.name}, bfloat16, forward: " + ("predicted" if result is None else "lines are predictions"))
    _targets(axis, "cuda")
    said = []
    times = np.array([8, 11.3, 16, 22.6, 32])
    for efficiency, style in ((1.0, ":"), (0.75, "-."), (0.35, "--")):
        line = [gpu_ratio(int(t * targets.WINDOW), targets.WINDOW, efficiency) for t in times]
        axis.plot(times, line, style, color=BLUE, linewidth=1.5)
        axis.text(8.2, line[0] + 0.01, f"kernels at {100 * efficiency:.0f} % of the peak", fontsize=12)
        said.append(
            f"predicted for an {CARD.name} at {100 * efficiency:.0f} % of the peak: {line[0]:.2f} at 8, "
            f"{line[-1]:.2f} at 32"
        )
    if result is None:
        return [*said, NOT_MEASURED]
    for _, table, color, marker in SIDES:
        rows = [row for row in result.get(table, ()) if row["what"].startswith("rerope,")]
        axis.plot([row["length"] / targets.WINDOW for row in rows], [row["ratio"] for row in rows], marker, color=color)
        said.append(f"GPU, {table.replace('_', ' ')}, measured: {_by_length(rows, 'ratio')}")
    return [*said, *_ratios_counted(axis, result)]


def _by_length(rows: Sequence[Mapping[str, Any]], column: str) -> str:
    """The least and the largest of a column at each length: of several shapes and kernels."""
    found: dict[int, list[float]] = {}
    for row in rows:
        found.setdefault(row["length"], []).append(row[column])
    return ", ".join(f"{min(of):.2f} to {max(of):.2f} at {_size(n)}" for n, of in sorted(found.items())) or "nothing"


def _ratios_counted(axis: Any, result: Mapping[str, Any]) -> list[str]:
    """A cross beside each point: plain RoPE's own time, and what ReRoPE moves beyond it at the speed of a copy."""
    said = []
    for backward, name, color, _ in SIDES:
        ending = "forward and backward" if backward else ", forward"
        rows = [row for row in targets.counted(result) if row["what"].startswith("rerope,")]
        rows = [row for row in rows if row["what"].endswith(ending)]
        if rows:
            times = [row["length"] / targets.WINDOW for row in rows]
            axis.plot(times, [row["from_plain"] for row in rows], "x", color=color, markersize=8)
            pairs = _by_length(rows, "from_plain")
            said.append(f"GPU, {name.replace('_', ' ')}, predicted from a copy's measured speed (crosses): {pairs}")
    return said


# --- the articles' table ---------------------------------------------------------------------------------------------

SIZES = {"gau-0.3m": "0.3 million parameters", "gau-25m": "25 million", "gau-87m": "87 million"}
TRAINED = {"rope": "RoPE", "rope-logn": "RoPE, log n", "invleaky": "InvLeaky, log n", "hwfa": "HWFA", "hwfa2": "HWFA2"}


def stored_tables() -> dict[str, list[Line] | None]:
    """The tables of ``python -m experiments.gpu`` by size; None for one that was not measured."""
    paths = {size: DATA / f"table_card_{size}.json" for size in SIZES}
    return {size: read_table(path) if path.exists() else None for size, path in paths.items()}


def trained_row(lines: Sequence[Line], kind: str) -> str | None:
    """The row that is called so, with a window or without: what was trained, and is tested as it was trained."""
    names = row_names(lines)
    return kind if kind in names else next((name for name in names if name.startswith(f"{kind}-w")), None)


@styled
def gpu_table(tables: Mapping[str, Sequence[Line] | None]) -> tuple[MatplotlibFigure, str]:
    """Accuracy on repeated text against the length, a panel for each size; a strip that says so where there is none."""
    if not any(tables.values()):
        figure, axis = new_figure(height=0.7)
        return figure, f"An empty strip for models of {', '.join(SIZES[size] for size in tables)}: {_empty(axis)}."
    shares = [1.0 if lines else 0.3 for lines in tables.values()]
    figure, axes = new_figure(len(tables), 1, height=1 + 2.8 * sum(shares), gridspec_kw={"height_ratios": shares})
    said = []
    for axis, (size, lines) in zip(axes, tables.items(), strict=True):
        axis.set_title(SIZES[size])
        if not lines:
            said.append(f"{SIZES[size]}: {_empty(axis)}")
            continue
        own = next(line.length for line in lines if line.row == OWN)
        looks = zip(TRAINED.items(), (GREY, SKY, BLUE, GREEN, ORANGE), "osD^v", strict=True)
        for (kind, label), color, marker in looks:
            row = trained_row(lines, kind)
            found = [
                (line.length, 100 * line.value)
                for line in lines
                if (line.row, line.set, line.metric) == (row, SETS[1], "accuracy")
            ]
            if found:
                axis.plot(*zip(*found, strict=True), color=color, marker=marker, label=label)
                said.append(f"{SIZES[size]}, {label}: " + ", ".join(f"{right:.0f} at {_size(n)}" for n, right in found))
        axis.axvline(own, color="black", linewidth=1, linestyle=":")
        doubling_axis(axis, sorted({line.length for line in lines}), _size)
        axis.set_ylabel("right, %")
    axes[-1].set_xlabel("tokens (dotted: the training length)")
    legend_below(figure, next((axis for axis in axes if axis.get_legend_handles_labels()[0]), axes[0]))
    alt = f"Share of tokens predicted right on repeated text, in percent, against the length. {'; '.join(said)}."
    return figure, alt


# --- the explorable: how the engine cuts the triangle --------------------------------------------------------------

SIDE, LEFT, TOP, CUT_LENGTH = 300, 30, 44, 8
COLOURS = {"diagonal": "#8ec6e8", "before": "#f5c97a", "far": "#9fd8b4"}
NAMES = {"diagonal": "near: diagonal blocks", "before": "near: the blocks before them", "far": "the far triangle"}
BAND = "near: the sliding window"
NEAR: dict[str | int | float, str] = {
    "triangles": "in triangles",
    "window": "with a sliding window",
}  # how the near pairs are done


def _x(n: float) -> str:
    return f"{LEFT + n * SIDE / CUT_LENGTH:.1f}"


def _y(n: float) -> str:
    return f"{TOP + n * SIDE / CUT_LENGTH:.1f}"


def _paths(window: int, near: str) -> dict[str, str]:
    """The ``d`` attributes of the three kinds of pieces; with a sliding window the first is the whole band."""
    length = CUT_LENGTH
    found = {"diagonal": "", "before": "", "far": ""}
    if near == "window":
        low = f"L{_x(length - window)} {_y(length)}L{_x(0)} {_y(window)}" if window < length else f"H{_x(0)}"
        found["diagonal"] = f"M{_x(0)} {_y(0)}L{_x(length)} {_y(length)}{low}Z"
    for start in range(0, length if near == "triangles" else 0, window):
        end = start + window
        found["diagonal"] += f"M{_x(start)} {_y(start)}V{_y(end)}H{_x(end)}Z"
        if start:
            found["before"] += f"M{_x(start - window)} {_y(start)}H{_x(start)}V{_y(end)}Z"
    if window < length:
        found["far"] = f"M{_x(0)} {_y(window)}V{_y(length)}H{_x(length - window)}Z"
    return found


def cut_shares(length: int, window: int) -> dict[str, float]:
    """Shares of all pairs."""
    blocks, whole = length // window, length**2
    return {
        "diagonal": blocks * window**2 / whole,
        "before": (blocks - 1) * window**2 / whole,
        "far": (length - window) ** 2 / whole,
    }


def cut_calls(window: int, near: str) -> str:
    """Kernel calls and merges."""
    if window == CUT_LENGTH:
        return "1 kernel call, nothing to merge"
    return "2 kernel calls, 1 merge" if near == "window" else "3 kernel calls, 2 merges"


CUT_SCRIPT = r"""
    const L = 8, w = Math.pow(2, value.window), band = value.near === "window", unit = 300 / L;
    const x = (n) => (30 + n * unit).toFixed(1), y = (n) => (44 + n * unit).toFixed(1);
    const d = { diagonal: "", before: "", far: "" };
    if (band) d.diagonal = `M${x(0)} ${y(0)}L${x(L)} ${y(L)}`
      + (w < L ? `L${x(L - w)} ${y(L)}L${x(0)} ${y(w)}` : `H${x(0)}`) + "Z";
    else for (let a = 0; a < L; a += w) {
      d.diagonal += `M${x(a)} ${y(a)}V${y(a + w)}H${x(a + w)}Z`;
      if (a) d.before += `M${x(a - w)} ${y(a)}H${x(a)}V${y(a + w)}Z`;
    }
    if (w < L) d.far = `M${x(0)} ${y(w)}V${y(L)}H${x(L - w)}Z`;
    const blocks = L / w, all = L * L;
    const share = { diagonal: blocks * w * w / all, before: (blocks - 1) * w * w / all, far: (L - w) * (L - w) / all };
    if (band) { share.diagonal += share.before; share.before = 0; }
    for (const name in d) {
      svg.querySelector(".cut-" + name).setAttribute("d", d[name]);
      svg.querySelector(".share-" + name).textContent = (100 * share[name]).toFixed(1) + " %";
    }
    svg.querySelector(".name-diagonal").textContent = band ? "BAND" : "DIAGONAL";
    svg.querySelector(".row-before").setAttribute("opacity", band ? "0" : "1");
    svg.querySelector(".calls").textContent = w === L ? "1 kernel call, nothing to merge"
      : band ? "2 kernel calls, 1 merge" : "3 kernel calls, 2 merges";
"""


def gpu_cut(window: int = 0, near: str = "triangles") -> Explorable:
    """The causal triangle of 8,192 tokens as the engine cuts it, with a window of 1,024 to the power of two."""
    paths, shares, band = _paths(2**window, near), cut_shares(CUT_LENGTH, 2**window), near == "window"
    if band:
        shares = {"diagonal": shares["diagonal"] + shares["before"], "before": 0.0, "far": shares["far"]}
    shapes = "".join(
        f'<path class="cut-{kind}" d="{paths[kind]}" fill="{colour}" stroke="#1a1a1a" stroke-width="1"/>'
        for kind, colour in COLOURS.items()
    )
    legend = "".join(
        f'<g class="row-{kind}" opacity="{0 if band and kind == "before" else 1}">'
        f'<rect x="{LEFT}" y="{at}" width="18" height="18" fill="{COLOURS[kind]}" stroke="#1a1a1a"/>'
        f'<text x="{LEFT + 26}" y="{at + 15}" class="name-{kind}">'
        f"{BAND if band and kind == 'diagonal' else NAMES[kind]}</text>"
        f'<text x="{LEFT + SIDE}" y="{at + 15}" text-anchor="end" class="share-{kind}">'
        f"{100 * shares[kind]:.1f} %</text></g>"
        for at, kind in zip((388, 414, 362), ("diagonal", "before", "far"), strict=True)
    )
    svg = (
        '<svg viewBox="0 0 360 470" style="width:100%;max-width:400px;height:auto;background:none;display:block;'
        'margin:auto" font-family="sans-serif" font-size="14" fill="#1a1a1a">'
        f'<text x="{LEFT}" y="24">keys</text><text x="{LEFT - 8}" y="{TOP + SIDE}" text-anchor="middle" '
        f'transform="rotate(-90 {LEFT - 8} {TOP + SIDE})" dx="24">queries</text>{shapes}{legend}'
        f'<text x="{LEFT}" y="458" font-weight="bold" class="calls">{cut_calls(2**window, near)}</text></svg>'
    )
    alt = f"""The causal triangle of a text of 8,192 tokens, cut into triangles: one on the diagonal for every block of
        one window, one reversed triangle before each but the first, and one large triangle for all far pairs. At the
        start the window has 1,024 tokens, and the far triangle is {100 * shares["far"]:.0f} percent of the pairs. With
        a sliding window the small triangles are one band."""
    caption = """8,192 tokens. Triangles of one colour are one call at best. Set the window: pairs move between the
        colours, and their sum never changes. A kernel with a sliding window melts the small triangles into one band."""
    knobs = (
        Choice("near", "near pairs", NEAR, near),
        Knob("window", "w, in units of 1,024", 0, 3, window, power=2),
    )
    script = CUT_SCRIPT.replace("BAND", BAND).replace("DIAGONAL", NAMES["diagonal"])
    return Explorable("gpu-cut", alt, caption, knobs, svg, script)


# --- the explorable: what the cut is expected to take -----------------------------------------------------------------

# One token and head of 128 channels in bfloat16: bytes of plain RoPE's turns; of ours; of copy and cast; of a merge of
# one row, and of turning one round; of one output with its log-sum-exp. A test compares them with engine/cost.py.
PLAIN, TURNS, ALWAYS, MERGE, FLIP, VECTOR = 1024, 1536, 776 + 768, 2352, 2048, 260
MOVED = 1028  # by a kernel for each row of as many keys: four vectors and a log-sum-exp
PLANS: dict[str | int | float, str] = {
    "window": "sliding window",
    "triangles": "triangles",
    "fused": "sliding window, fused merge",
}
PARTS = {
    "kernels": ("#8ec6e8", "attention kernels"),
    "turns": ("#f5c97a", "turning"),
    "merges": ("#9fd8b4", "copy, merge, cast"),
    "flips": ("#e8e8e8", "rows reversed"),
}
BAR_LEFT, BAR_WIDE = 74, 276
HIDDEN = ' hidden=""'
SLOWEST = 35  # percent of the peak; the axis is as long as this kernel takes, so that only what is faster gets shorter


def time_parts(length: int, percent: int, plan: str, window: int = 1024) -> tuple[float, dict[str, float]]:
    """Seconds per head on an H100, in closed form as the script has it: plain RoPE, and the parts of ReRoPE; ``window``
    divides the length."""
    far, blocks = length - window, length // window

    def kernel(pairs: float, rows: int) -> float:
        return max(4 * 128 * pairs / (percent / 100 * CARD.flops), MOVED * rows / CARD.bandwidth)

    whole, beyond = length * (length + 1) / 2, far * (far + 1) / 2
    near, strict, back = kernel(whole - beyond, length), 0.0, 0
    if plan == "triangles":
        back = (blocks - 1) * (window - 1)  # rows of the reversed blocks
        strict = kernel(back * window / 2, back)
        near = kernel(blocks * window * (window + 1) / 2, length)
    merges = VECTOR * (2 * length + far) if plan == "fused" else ALWAYS * length + MERGE * (far + back)
    parts = {
        "kernels": near + strict + kernel(beyond, far),
        "turns": TURNS * length / CARD.bandwidth,
        "merges": merges / CARD.bandwidth,
        "flips": FLIP * back / CARD.bandwidth,
    }
    return kernel(whole, length) + PLAIN * length / CARD.bandwidth, parts


TIME_SCRIPT = r"""
    const n = Math.pow(2, value.length), w = 1024, far = n - w, blocks = n / w, B = 3.35e12;
    const timed = (percent, plan) => {
      const kernel = (pairs, rows) => Math.max(4 * 128 * pairs / (percent / 100 * 989e12), 1028 * rows / B);
      const whole = n * (n + 1) / 2, beyond = far * (far + 1) / 2;
      let near = kernel(whole - beyond, n), strict = 0, back = 0;
      if (plan === "triangles") {
        back = (blocks - 1) * (w - 1);
        strict = kernel(back * w / 2, back);
        near = kernel(blocks * w * (w + 1) / 2, n);
      }
      const merges = plan === "fused" ? 260 * (2 * n + far) : 1544 * n + 2352 * (far + back);
      return [
        { kernels: kernel(whole, n), turns: 1024 * n / B },
        { kernels: near + strict + kernel(beyond, far), turns: 1536 * n / B, merges: merges / B,
          flips: 2048 * back / B }
      ];
    };
    const sum = of => Object.values(of).reduce((a, b) => a + b, 0);
    const round = x => {
      const p = Math.pow(10, Math.floor(Math.log10(x)));
      return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find(m => m * p >= x) * p;
    };
    const shown = x => x < 1e-3 ? +(1e6 * x).toPrecision(3) + " µs" : +(1e3 * x).toPrecision(3) + " ms";
    const longest = round(sum(timed(SLOWEST, "triangles")[1])), unit = WIDE / longest;
    const [alone, parts] = timed(value.percent, value.plan), plain = sum(alone), ours = sum(parts);
    const bar = (of, name) => {
      let at = LEFT;
      for (const part in of) {
        const e = svg.querySelector(`.${name}-${part}`), width = of[part] * unit;
        e.setAttribute("x", at.toFixed(1));
        e.setAttribute("width", width.toFixed(1));
        at += width;
      }
    };
    bar(alone, "plain");
    bar(parts, "ours");
    for (const part in parts) {
      svg.querySelector(".of-" + part).textContent = shown(parts[part]);
      svg.querySelector(".share-" + part).textContent = (100 * parts[part] / plain).toFixed(1) + " %";
    }
    svg.querySelector(".row-flips").toggleAttribute("hidden", value.plan !== "triangles");
    svg.querySelector(".half").textContent = shown(longest / 2);
    svg.querySelector(".full").textContent = shown(longest);
    svg.querySelector(".ratio").textContent = "ReRoPE takes " + (ours / plain).toFixed(2) + " times as long as RoPE";
    write("length", n.toLocaleString("en-US"));
"""


def time_axis(length: int) -> float:
    """Seconds at the end of the axis: what the slowest kernel takes, rounded up."""
    slowest = sum(time_parts(length, SLOWEST, "triangles")[1].values())
    power = 10.0 ** math.floor(math.log10(slowest))
    return next(times * power for times in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if times * power >= slowest)


def _seconds(time: float) -> str:
    return f"{float(f'{1e6 * time:.3g}'):g} µs" if time < 1e-3 else f"{float(f'{1e3 * time:.3g}'):g} ms"


def _bar(of: Mapping[str, float], name: str, y: int, unit: float) -> str:
    at, drawn = float(BAR_LEFT), ""
    for part, seconds in of.items():
        wide = seconds * unit
        drawn += (
            f'<rect class="{name}-{part}" x="{at:.1f}" y="{y}" width="{wide:.1f}" height="30" '
            f'fill="{PARTS[part][0]}" stroke="#1a1a1a" stroke-width="0.5"/>'
        )
        at += wide
    return drawn


def _time_ruler(longest: float) -> str:
    """Three ticks under the bars: one axis for all kernels and plans, so that lengths on the screen compare."""
    ticks = (("", 0.0, "start", "0"), ("half", 0.5, "middle", _seconds(longest / 2)),
             ("full", 1.0, "end", _seconds(longest)))  # fmt: skip
    return f'<path d="M{BAR_LEFT} 90H{BAR_LEFT + BAR_WIDE}" stroke="#1a1a1a"/>' + "".join(
        f'<path d="M{BAR_LEFT + share * BAR_WIDE:.0f} 90v6" stroke="#1a1a1a"/><text class="{name}" '
        f'x="{BAR_LEFT + share * BAR_WIDE:.0f}" y="111" text-anchor="{anchor}" font-size="13">{said}</text>'
        for name, share, anchor, said in ticks
    )


def _time_legend(parts: Mapping[str, float], plain: float) -> str:
    right = BAR_LEFT + BAR_WIDE
    return f'<text x="{right}" y="140" text-anchor="end" font-size="13">ReRoPE&#8195;% of RoPE</text>' + "".join(
        f'<g class="row-{part}"{"" if part != "flips" or parts[part] else HIDDEN}>'
        f'<rect x="10" y="{at}" width="18" height="18" fill="{colour}" stroke="#1a1a1a"/>'
        f'<text x="36" y="{at + 15}">{name}</text>'
        f'<text x="268" y="{at + 15}" text-anchor="end" class="of-{part}">{_seconds(parts[part])}</text>'
        f'<text x="{right}" y="{at + 15}" text-anchor="end" class="share-{part}">'
        f"{100 * parts[part] / plain:.1f} %</text></g>"
        for at, (part, (colour, name)) in zip((150, 174, 198, 222), PARTS.items(), strict=True)
    )


def gpu_time(length: int = 13, percent: int = 75, plan: str = "window") -> Explorable:
    """What the counts predict for an H100, part by part: RoPE and ReRoPE at 2 to the power of ``length`` tokens."""
    plain, parts = time_parts(2**length, percent, plan)
    turns, ours = PLAIN * 2**length / CARD.bandwidth, sum(parts.values())
    longest = time_axis(2**length)
    unit = BAR_WIDE / longest
    svg = (
        '<svg viewBox="0 0 360 276" style="width:100%;max-width:370px;height:auto;background:none;display:block;'
        'margin:auto" font-family="sans-serif" font-size="14" fill="#1a1a1a">'
        f'<text x="{BAR_LEFT - 8}" y="30" text-anchor="end">RoPE</text>'
        f'<text x="{BAR_LEFT - 8}" y="70" text-anchor="end">ReRoPE</text>'
        f"{_bar({'kernels': plain - turns, 'turns': turns}, 'plain', 10, unit)}{_bar(parts, 'ours', 50, unit)}"
        f"{_time_ruler(longest)}{_time_legend(parts, plain)}"
        f'<text x="180" y="266" text-anchor="middle" font-weight="bold" class="ratio">'
        f"ReRoPE takes {ours / plain:.2f} times as long as RoPE</text></svg>"
    )
    alt = f"""Two bars of predicted time on an {CARD.name}, over one axis for all kernels. RoPE's is attention and a
        little turning. ReRoPE's is the same attention, more turning, and copy, merge and cast. At the start, at
        {2**length:,} tokens, with a kernel at {percent} percent of the peak, ReRoPE takes {ours / plain:.2f} times as
        long."""
    caption = """Predicted for an H100, not measured: time per head, with enough heads to fill the card, 16 bits,
        d = 128, w = 1,024, forward. Speed the kernel up: only the blue shrinks."""
    knobs = (
        Knob("percent", "kernel, % of peak", SLOWEST, 100, percent, 5),
        Knob("length", "length L", 12, 17, length, power=2),
        Choice("plan", "calls", PLANS, plan),
    )
    script = TIME_SCRIPT.replace("WIDE", str(BAR_WIDE)).replace("LEFT", str(BAR_LEFT)).replace("SLOWEST", str(SLOWEST))
    return Explorable("gpu-time", alt, caption, knobs, svg, script)


# --- the explorable: tiles stream past ------------------------------------------------------------------------------

TILES, TILE_SIDE, TILE_LEFT, TILE_TOP = 4, 50, 100, 60
TILE_STEPS = [(i, j) for i in range(TILES) for j in range(i + 1)]
NOW, OUT, WARN = "#8ec6e8", "#f0a585", "#fdeab8"
# The exponentials of one query's scores, two keys to a tile, for each block of queries; and the values of the keys.
# The second row is the lesson's example by hand.
EXPONENTIALS = (
    ((2, 1),),
    ((1, 2), (4, 1)),
    ((4, 2), (1, 4), (8, 2)),
    ((1, 1), (2, 1), (2, 1), (1, 8)),
)
VALUES = ((1, 3), (5, 7), (2, 6), (4, 8))


def tile_sums(step: int) -> dict[str, float]:
    """Of one query after a tile: e to the largest score, the factor, sum and output."""
    i, j = TILE_STEPS[step]
    top = shrink = total = output = 0.0
    for weights, values in zip(EXPONENTIALS[i][: j + 1], VALUES, strict=False):
        new = max(top, *weights)
        shrink = top / new
        total = shrink * total + sum(weights) / new
        output = shrink * output + sum(w * v for w, v in zip(weights, values, strict=True)) / new
        top = new
    return {"top": top, "shrink": shrink, "total": total, "output": output}


def _tile_words(step: int) -> dict[str, str]:
    """What stands beside the picture at a step."""
    (i, j), sums = TILE_STEPS[step], tile_sums(step)
    shrink = sums["shrink"]
    what = "nothing to shrink yet" if not j else "the old sums stay" if shrink == 1 else "the old sums shrink"
    ends = f"o/Z = {sums['output'] / sums['total']:.2f} goes to HBM" if i == j else "nothing goes to HBM"
    return {
        "queries-now": f"query block {i + 1}",
        "keys-now": f"key block {j + 1}",
        "sums": f"x* = ln {sums['top']:g}, Z = {sums['total']:g}, o = {sums['output']:g}",
        "shrink": f"ρ = {shrink:g}: {what}",
        "count": f"tile {step + 1} of {len(TILE_STEPS)}; {ends}",
    }


TILE_SCRIPT = r"""
    const step = value.step - 1, i = STEPS[step][0], j = STEPS[step][1];
    STEPS.forEach(([a, b], n) => {
      svg.querySelector(`.tile-${a}-${b}`).setAttribute("fill", n === step ? "NOW" : "none");
      svg.querySelector(`.used-${a}-${b}`).setAttribute("opacity", n < step ? "1" : "0");
    });
    for (let n = 0; n < TILES; n++) {
      svg.querySelector(`.keys-${n}`).setAttribute("fill", n === j ? "KEYS" : "none");
      svg.querySelector(`.queries-${n}`).setAttribute("fill", n === i ? "QUERIES" : "none");
      svg.querySelector(`.out-${n}`).setAttribute("fill", n < i || (n === i && j === i) ? "DONE" : "none");
    }
    for (const name in WORDS[step]) svg.querySelector("." + name).textContent = WORDS[step][name];
    svg.querySelector(".flash").setAttribute("fill", j && SHRINKS[step] ? "WARN" : "none");
"""


def gpu_tiles(step: int = 2) -> Explorable:
    """Tiles of queries and keys that stream from a card's memory past a small fast one."""
    i, j = TILE_STEPS[step]
    words, shrinks = (
        _tile_words(step),
        [n_j > 0 and tile_sums(n)["shrink"] < 1 for n, (_, n_j) in enumerate(TILE_STEPS)],
    )
    left, top, side = TILE_LEFT, TILE_TOP, TILE_SIDE
    wide, box = side * TILES, '<rect class="{}" x="{}" y="{}" width="{}" height="{}" fill="{}" stroke="#666" {}/>'
    tiles = "".join(
        box.format(f"tile-{a}-{b}", left + side * b, top + side * a, side, side,
                   NOW if number == step else "none", 'stroke-width="1" stroke-dasharray="3 4"')
        + f'<text class="used-{a}-{b}" x="{left + side * b + side // 2}" y="{top + side * a + side // 2 + 5}" '
        f'text-anchor="middle" fill="#444" opacity="{1 if number < step else 0}">✓</text>'
        for number, (a, b) in enumerate(TILE_STEPS)
    )  # fmt: skip
    solid = 'stroke-width="1"'
    beside = "".join(
        box.format(f"keys-{n}", left + side * n, top - 28, side, 20, COLOURS["before"] if n == j else "none", solid)
        + box.format(f"queries-{n}", left - 28, top + side * n, 20, side, COLOURS["far"] if n == i else "none", solid)
        + box.format(
            f"out-{n}", left + wide + 8, top + side * n, 20, side, OUT if n < i or n == i == j else "none", solid
        )
        for n in range(TILES)
    )
    turned = (
        f'<text x="{x}" y="{top + wide // 2}" text-anchor="middle" '
        f'transform="rotate(-90 {x} {top + wide // 2})">{word}</text>'
        for x, word in ((left - 36, "queries, in HBM"), (left + wide + 44, "outputs, in HBM"))
    )
    y = top + wide + 16  # of the box of SRAM
    held = (
        box.format("held-queries", 26, y + 34, 16, 32, COLOURS["far"], solid)
        + f'<text x="50" y="{y + 55}" class="queries-now">{words["queries-now"]}</text>'
        + box.format("held-keys", 156, y + 42, 32, 16, COLOURS["before"], solid)
        + f'<text x="195" y="{y + 55}" class="keys-now">{words["keys-now"]}</text>'
        + box.format("held-scores", 287, y + 34, 32, 32, NOW, solid)
        + f'<text x="326" y="{y + 55}">scores</text>'
    )
    flash, note = WARN if shrinks[step] else "none", f'<text x="{left + side + 10}" y="'
    svg = (
        '<svg viewBox="0 0 400 430" style="width:100%;max-width:460px;height:auto;background:none;display:block;'
        'margin:auto" font-family="sans-serif" font-size="14" fill="#1a1a1a">'
        f'<text x="{left}" y="22">keys and values, in HBM</text>{"".join(turned)}{tiles}{beside}'
        f'{note}{top + 13}">a tile of scores</text>{note}{top + 29}">exists only while</text>'
        f'{note}{top + 45}">it is blue</text>'
        f'<rect x="12" y="{y}" width="376" height="116" rx="8" fill="none" stroke="#1a1a1a" stroke-width="2"/>'
        f'<text x="26" y="{y + 22}" font-weight="bold">in SRAM, the small fast memory</text>{held}'
        f'<text x="26" y="{y + 86}">one query: <tspan class="sums">{words["sums"]}</tspan></text>'
        f'<rect class="flash" x="22" y="{y + 92}" width="356" height="20" rx="4" fill="{flash}"/>'
        f'<text x="26" y="{y + 107}" class="shrink">{words["shrink"]}</text>'
        f'<text x="26" y="{y + 140}" font-weight="bold" class="count">{words["count"]}</text></svg>'
    )
    alt = f"""A triangle of {len(TILE_STEPS)} tiles of scores with dashed outlines, between {TILES} blocks of keys
        above, as many blocks of queries on the left and of outputs on the right, all three in HBM. One tile is blue:
        its scores exist, in a box below that is SRAM, together with its block of queries, its block of keys and values,
        and the running sums of one query. Tiles before it have a tick and are empty. An output is written when its
        row is at the diagonal. At the start it is the second tile of the second row, the example by hand:
        {words["sums"]}; {words["shrink"]}."""
    caption = """Press Play. A block of queries stays while keys and values stream past it, a tile at a time; of its
        scores only two numbers and one vector per query remain. Shown is one query of each block; the second is the
        example above."""
    replaced = {
        "STEPS": str([list(pair) for pair in TILE_STEPS]), "TILES": str(TILES), "NOW": NOW, "KEYS": COLOURS["before"],
        "QUERIES": COLOURS["far"], "DONE": OUT, "WARN": WARN, "SHRINKS": json.dumps(shrinks),
        "WORDS": json.dumps([_tile_words(n) for n in range(len(TILE_STEPS))], ensure_ascii=False),
    }  # fmt: skip
    script = re.sub("|".join(replaced), lambda found: replaced[found[0]], TILE_SCRIPT)
    knobs = (Knob("step", "tile", 1, len(TILE_STEPS), step + 1, play=True),)
    return Explorable("gpu-tiles", alt, caption, knobs, svg, script)
