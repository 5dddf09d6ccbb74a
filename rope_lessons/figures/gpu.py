"""Figures of chapter 13."""

from __future__ import annotations

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
    Explorable,
    Knob,
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
    "gpu_hierarchy",
    "gpu_memory",
    "gpu_peak",
    "gpu_ratios",
    "gpu_roofline",
    "gpu_split",
    "gpu_table",
    "gpu_tiles",
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
    rotary, prompt = cost.plain_cost(many)
    return {
        "merge": merge.intensity,
        "rotary": rotary.intensity,
        "decoding": cost.decode_cost(many)[0].intensity,
        "decoding, grouped": cost.decode_cost(grouped)[0].intensity,
        "tiles of 128": prompt.flops / prompt.again,
        "8k tokens, read once": prompt.intensity,
    }


@styled
def gpu_roofline() -> tuple[MatplotlibFigure, str]:
    """Peak speed against arithmetic intensity on a card, and where the kernels of a model stand."""
    figure, axis = new_figure(height=4.2)
    x = np.logspace(-1.3, 4.6, 200)
    axis.plot(x, np.minimum(CARD.flops, x * CARD.bandwidth) / 1e12, color=BLUE)
    axis.axvline(CARD.ridge, color=GREY, linewidth=1, linestyle=":")
    axis.text(CARD.ridge * 1.15, 0.012, f"ridge, {CARD.ridge:.0f}", va="bottom")
    points = roofline_points()
    for name, intensity in points.items():
        speed = min(CARD.flops, intensity * CARD.bandwidth) / 1e12
        axis.plot(intensity, speed, "o", color="black", markersize=5)
        before = name in ("merge", "rotary", "8k tokens, read once")  # the others have room behind the line
        axis.annotate(
            name, (intensity, speed), xytext=(-7, 4) if before else (8, -13), textcoords="offset points",
            ha="right" if before else "left", fontsize=12,
        )  # fmt: skip
        if name == "8k tokens, read once":
            axis.texts[-1].set(ha="center", position=(0, 8))
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_ylim(1e-2, 6e3)
    axis.set_xlim(x[0] / 12, x[-1])
    axis.set_xlabel("FLOPs per byte")
    axis.set_ylabel(f"{CARD.name}, at most, TFLOP/s")
    said = ", ".join(f"{name} at {value:.4g}" for name, value in points.items())
    alt = f"""Attainable speed against FLOPs per byte, both axes logarithmic, of an {CARD.name}. The line rises with the
        intensity and becomes flat at {CARD.ridge:.0f} FLOPs per byte. Dots mark kernels on the line: {said}. Only the
        last lies on the flat part."""
    return figure, alt


LEVELS = {"HBM, 80 GiB": 3.35, "L2 cache, 50 MiB": 12.0, "SRAM, 228 KiB\nper core": 31.0}  # TB/s of an H100


def tile_need(queries: int, card: cost.Device = cost.H100) -> float:
    """Bytes a second that keep the tensor cores busy, when all keys and values come for each tile of queries."""
    return card.flops / queries  # in 16 bits a tile does as many FLOPs per byte as it has queries


@styled
def gpu_hierarchy() -> tuple[MatplotlibFigure, str]:
    """Bytes a second that the memories of an H100 give, and that tiles of queries take."""
    figure, axis = new_figure(height=3.6)
    for place, rate in enumerate(LEVELS.values()):
        axis.barh(place, rate, height=0.55, color=(ORANGE, SKY, BLUE)[place])
        axis.text(rate + 0.4, place, f"{rate:g}", va="center")
    for queries in (128, 64, 32):
        need = tile_need(queries) / 1e12
        axis.plot([need, need], [2.5, -0.6], color=RED, linewidth=1.5, linestyle="--")  # its name stands above
        name = f"{queries}" if queries > 32 else "tiles of 32"
        axis.text(need, -0.75, name, ha="center", va="bottom", color=RED, fontsize=12)
    axis.set_yticks(range(len(LEVELS)), list(LEVELS))
    axis.set_ylim(2.5, -1.0)
    axis.set_xlim(0, 36)
    axis.set_xlabel("terabytes per second, H100")
    axis.grid(False)
    said = ", ".join(f"{name.replace(chr(10), ' ')}: {rate:g}" for name, rate in LEVELS.items())
    needs = ", ".join(f"{tile_need(n) / 1e12:.1f} for tiles of {n} queries" for n in (128, 64, 32))
    alt = f"""Bars of terabytes per second that the memories of an H100 give. {said}. Dashed lines mark what keeps its
        tensor cores busy: {needs}. The line for tiles of 128 lies beyond the bar of HBM and within that of the L2
        cache."""
    return figure, alt


# --- memory ----------------------------------------------------------------------------------------------------------


def memory_bytes(length: int, heads: int = 32, head_dim: int = 128) -> tuple[int, int]:
    """Forward, one layer, 16 bits: two matrices of scores; and what the engine makes: three turned tensors, the output,
    its float32 sum, one part's output in both types, two log-sum-exps."""
    channels = heads * length * head_dim
    return 2 * 2 * heads * length**2, (3 * 2 + 2 + 4 + 2 + 4) * channels + 2 * 4 * heads * length


@styled
def gpu_memory(heads: int = 32, head_dim: int = 128) -> tuple[MatplotlibFigure, str]:
    """Bytes of one layer's attention against the length, and where cards are full."""
    figure, axis = new_figure(height=4.4)
    lengths = 2 ** np.arange(10, 21)
    eager, engine = zip(*(memory_bytes(int(length), heads, head_dim) for length in lengths), strict=True)
    axis.plot(lengths, np.array(eager) / 1e9, color=RED, marker="s", label="two matrices of scores")
    axis.plot(lengths, np.array(engine) / 1e9, color=BLUE, marker="o", label="two calls, merged")
    axis.axhline(CARD.memory / 1e9, color="black", linewidth=1, linestyle=":")
    axis.text(lengths[0], CARD.memory / 1e9 * 1.15, f"{CARD.name}, {CARD.memory / 2**30:g} GiB")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(lengths[::2], [_size(length) for length in lengths[::2]])
    axis.minorticks_off()
    axis.set_xlabel("tokens")
    axis.set_ylabel("gigabytes")
    legend_below(figure, axis)
    at = {n: [f"{b / 1e9:.3g}" for b in memory_bytes(n, heads, head_dim)] for n in (4096, 32_768, 131_072)}
    said = "; ".join(f"{_size(n)}: {a} against {b} GB" for n, (a, b) in at.items())
    alt = f"""Memory of one layer's attention with {heads} heads against the length, both axes logarithmic. Two matrices
        of scores rise with the square, two merged calls in proportion. {said}. A dotted line marks the memory of an
        {CARD.name}, which the matrices pass between 16k and 32k tokens."""
    return figure, alt


@styled
def gpu_peak(cpu: Result, cuda: Result) -> tuple[MatplotlibFigure, str]:
    """Measured peak memory of forward and backward against the length, a panel for each device that was measured."""
    found = {
        name: list(result["memory"])
        for name, result in (("CPU", cpu), ("GPU", cuda))
        if result and result.get("memory")
    }
    figure, axes = new_figure(max(len(found), 1), 1, height=1 + 2.6 * max(len(found), 1), squeeze=False)
    said = [f"{name}: {targets.NOT_MEASURED}" for name in ("CPU", "GPU") if name not in found]
    for axis, (name, rows) in zip(axes[:, 0], found.items(), strict=False):
        axis.set_title(f"{name}, forward and backward, one head")
        for side, color, marker in (("eager", RED, "s"), ("rerope", BLUE, "o")):
            points = [(row["length"], row[f"{side}_megabytes"]) for row in rows if row[f"{side}_megabytes"] is not None]
            label = "two matrices" if side == "eager" else "two calls, merged"
            axis.plot(*zip(*points, strict=True), color=color, marker=marker, label=label)
            said.append(f"{name}, {label}: " + ", ".join(f"{mb} MB at {_size(n)}" for n, mb in points))
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks([row["length"] for row in rows], [_size(row["length"]) for row in rows])
        axis.minorticks_off()
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
    """Where the time of ReRoPE beyond plain RoPE's goes, on a CPU, a bar for each length."""
    figure, axis = new_figure(height=3.4)
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
        axis.set_xscale("log", base=2)
        ticks = [4, 8, 16] if axis is axes[0] else [8, 16, 32]
        axis.set_xlim(ticks[0] / 1.25, ticks[-1] * 1.25)
        axis.set_xticks(ticks, [f"{tick}" for tick in ticks])
        axis.minorticks_off()
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
    length: int, window: int, efficiency: float, *, dim: int = 128, card: cost.Device = CARD, slides: bool = True
) -> float:
    """What the counts predict for a card in 16 bits, forward, when kernels reach this share of the peak products."""
    sizes = cost.Sizes(length, heads=16, kv_heads=16, head_dim=dim)
    engine = cost.engine_cost(scheme("rerope", dim=dim, window=window), sizes, slides=slides)
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
        axis.text(8.2, line[0] + 0.01, f"kernels at {efficiency:.0%} of the peak", fontsize=12)
        said.append(
            f"predicted for an {CARD.name} at {efficiency:.0%} of the peak: {line[0]:.2f} at 8, {line[-1]:.2f} at 32"
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
        axis.set_xscale("log", base=2)
        lengths = sorted({line.length for line in lines})
        axis.set_xticks(lengths, [_size(length) for length in lengths])
        axis.minorticks_off()
        axis.set_ylabel("right, %")
    axes[-1].set_xlabel("tokens (dotted: the training length)")
    legend_below(figure, next((axis for axis in axes if axis.get_legend_handles_labels()[0]), axes[0]))
    alt = f"Share of tokens predicted right on repeated text, in percent, against the length. {'; '.join(said)}."
    return figure, alt


# --- the explorable: how the engine cuts the triangle --------------------------------------------------------------

SIDE, LEFT, TOP = 300, 30, 44
COLOURS = {"diagonal": "#8ec6e8", "before": "#f5c97a", "far": "#9fd8b4"}
NAMES = {"diagonal": "diagonal blocks", "before": "the blocks before them", "far": "the far triangle"}
# One token and head of 128 channels in bfloat16: bytes of plain RoPE's turns; of ours, the copy and the cast; of a
# merge. A test compares them with engine/cost.py.
PLAIN, ALWAYS, MERGE, ALONE = 1024, 1536 + 776 + 768, 2352, 1024 + 520
MOVED = 1028  # by a kernel for each row of as many keys: four vectors and a log-sum-exp


def cut_ratio(length: int, window: int, percent: int) -> float:
    """The prediction for an H100, in closed form as the script has it; both in units of 1024 tokens."""
    tokens, far = 1024 * length, 1024 * max(length - window, 0)

    def kernel(pairs: float, rows: int) -> float:
        return max(4 * 128 * pairs / (percent / 100 * CARD.flops), MOVED * rows / CARD.bandwidth)

    whole, beyond = tokens * (tokens + 1) / 2, far * (far + 1) / 2
    extra = ALWAYS * tokens + MERGE * far if far else ALONE * tokens
    ours = kernel(whole - beyond, tokens) + kernel(beyond, far) + extra / CARD.bandwidth
    return ours / (kernel(whole, tokens) + PLAIN * tokens / CARD.bandwidth)


def _paths(length: int, window: int) -> dict[str, str]:
    """The ``d`` attributes of the three kinds of triangles."""
    unit = SIDE / length

    def x(n: float) -> str:
        return f"{LEFT + n * unit:.1f}"

    def y(n: float) -> str:
        return f"{TOP + n * unit:.1f}"

    window = min(window, length)
    found = {"diagonal": "", "before": "", "far": ""}
    for start in range(0, length, window):
        end = min(start + window, length)
        found["diagonal"] += f"M{x(start)} {y(start)}V{y(end)}H{x(end)}Z"
        if start:
            before = start - window
            found["before"] += f"M{x(before)} {y(start)}H{x(start)}V{y(end)}H{x(before + end - start)}Z"
    if window < length:
        found["far"] = f"M{x(0)} {y(window)}V{y(length)}H{x(length - window)}Z"
    return found


def cut_shares(length: int, window: int) -> dict[str, float]:
    """Shares of all pairs."""
    window = min(window, length)
    blocks, tail = divmod(length, window)
    whole = length**2
    return {
        "diagonal": (blocks * window**2 + tail**2) / whole,
        "before": ((blocks - 1) * window**2 + 2 * tail * window - tail**2) / whole,
        "far": (length - window) ** 2 / whole,
    }


CUT_SCRIPT = r"""
    const L = value.length, w = Math.min(value.window, L), unit = 300 / L;
    const x = (n) => (30 + n * unit).toFixed(1), y = (n) => (44 + n * unit).toFixed(1);
    const d = { diagonal: "", before: "", far: "" };
    for (let a = 0; a < L; a += w) {
      const b = Math.min(a + w, L);
      d.diagonal += `M${x(a)} ${y(a)}V${y(b)}H${x(b)}Z`;
      if (a) d.before += `M${x(a - w)} ${y(a)}H${x(a)}V${y(b)}H${x(b - w)}Z`;
    }
    if (w < L) d.far = `M${x(0)} ${y(w)}V${y(L)}H${x(L - w)}Z`;
    const blocks = Math.floor(L / w), tail = L % w, all = L * L;
    const share = {
      diagonal: (blocks * w * w + tail * tail) / all,
      before: ((blocks - 1) * w * w + 2 * tail * w - tail * tail) / all,
      far: (L - w) * (L - w) / all,
    };
    for (const name in d) {
      svg.querySelector(".cut-" + name).setAttribute("d", d[name]);
      svg.querySelector(".share-" + name).textContent = (100 * share[name]).toFixed(1) + "%";
    }
    const n = 1024 * L, far = 1024 * Math.max(L - w, 0);
    const kernel = (pairs, rows) => Math.max(4 * 128 * pairs / (value.percent / 100 * 989e12), 1028 * rows / 3.35e12);
    const whole = n * (n + 1) / 2, beyond = far * (far + 1) / 2;
    const extra = far ? 3080 * n + 2352 * far : 1544 * n;
    const ours = kernel(whole - beyond, n) + kernel(beyond, far) + extra / 3.35e12;
    const ratio = ours / (kernel(whole, n) + 1024 * n / 3.35e12);
    svg.querySelector(".ratio").textContent = "expected on an H100, RoPE = 1: " + ratio.toFixed(2);
    write("window", value.window < L ? `${value.window}` : `${L} = L`);
"""


def gpu_cut(length: int = 8, window: int = 1, percent: int = 75) -> Explorable:
    """The causal triangle as the engine cuts it, and what the cut is expected to cost on an H100."""
    paths, shares = _paths(length, window), cut_shares(length, window)
    shapes = "".join(
        f'<path class="cut-{kind}" d="{paths[kind]}" fill="{colour}" stroke="#1a1a1a" stroke-width="1"/>'
        for kind, colour in COLOURS.items()
    )
    legend = "".join(
        f'<rect x="{LEFT}" y="{at}" width="18" height="18" fill="{COLOURS[kind]}" stroke="#1a1a1a"/>'
        f'<text x="{LEFT + 26}" y="{at + 15}">{NAMES[kind]}</text>'
        f'<text x="{LEFT + SIDE}" y="{at + 15}" text-anchor="end" class="share-{kind}">{shares[kind]:.1%}</text>'
        for at, kind in zip((362, 388, 414), COLOURS, strict=True)
    )
    ratio = f"expected on an H100, RoPE = 1: {cut_ratio(length, window, percent):.2f}"
    svg = (
        '<svg viewBox="0 0 360 480" style="width:100%;max-width:520px;height:auto;background:none;display:block;'
        'margin:auto" font-family="sans-serif" font-size="14" fill="#1a1a1a">'
        f'<text x="{LEFT}" y="24">keys</text><text x="{LEFT - 8}" y="{TOP + SIDE}" text-anchor="middle" '
        f'transform="rotate(-90 {LEFT - 8} {TOP + SIDE})" dx="24">queries</text>{shapes}{legend}'
        f'<text x="{LEFT}" y="460" font-weight="bold" class="ratio">{ratio}</text></svg>'
    )
    alt = f"""The causal triangle of a text, cut into triangles: one on the diagonal for every block of one window, one
        reversed triangle before each but the first, and one large triangle for all far pairs. At the start the text
        has {length} thousand tokens and the window one thousand: the far triangle is
        {100 * shares["far"]:.0f} percent of the pairs. Below it the time that the counts predict for an H100."""
    caption = """Set the window: the pairs move between the colours, and their sum never changes. Then the length: the
        expected time falls towards 1. Last, the share of the peak that the attention kernel reaches: the slower the
        kernel, the less the merges matter; 75 % is what FlashAttention-3 reaches. Where w = L nothing is far, and
        what is left is one copy of the output."""
    knobs = (
        Knob("length", "length L, in 1024", 2, 32, length),
        Knob("window", "window w, in 1024", 1, 8, window),
        Knob("percent", "kernel, % of peak", 20, 100, percent, 5),
    )
    return Explorable("gpu-cut", alt, caption, knobs, svg, CUT_SCRIPT)


# --- the explorable: tiles stream past ------------------------------------------------------------------------------

TILES, TILE_SIDE, TILE_LEFT, TILE_TOP = 6, 42, 86, 74
TILE_STEPS = [(i, j) for i in range(TILES) for j in range(i + 1)]
NOW, GONE, WAITING = "#8ec6e8", "#e8e8e8", "none"


def _tile_fill(number: int, step: int) -> str:
    """Of a tile of scores: it is held, it was thrown away, or it is still to come."""
    return NOW if number == step else GONE if number < step else WAITING


TILE_SCRIPT = r"""
    const step = value.step - 1, i = STEPS[step][0], j = STEPS[step][1];
    STEPS.forEach(([a, b], n) => svg.querySelector(`.tile-${a}-${b}`)
      .setAttribute("fill", n === step ? "NOW" : n < step ? "GONE" : "WAITING"));
    for (let n = 0; n < TILES; n++) {
      svg.querySelector(`.keys-${n}`).setAttribute("fill", n === j ? "KEYS" : "none");
      svg.querySelector(`.queries-${n}`).setAttribute("fill", n === i ? "QUERIES" : "none");
      svg.querySelector(`.out-${n}`).setAttribute("fill", n < i || (n === i && j === i) ? "DONE" : "none");
    }
    svg.querySelector(".held-now").textContent = `queries ${i + 1}, keys and values ${j + 1}, their scores`;
    svg.querySelector(".held-row").textContent = `x*, Z and o of queries ${i + 1}, over keys ` +
      (j ? `1 to ${j + 1}` : "1");
    svg.querySelector(".count").textContent = `tile ${step + 1} of ${STEPS.length}; `
      + (j === i ? `output ${i + 1} goes back to HBM` : "nothing goes back to HBM");
"""


def gpu_tiles(step: int = 8) -> Explorable:
    """Tiles of queries and keys that stream from the memory of the card past a small fast one."""
    i, j = TILE_STEPS[step]
    left, top, side = TILE_LEFT, TILE_TOP, TILE_SIDE
    box = '<rect class="{0}" x="{1}" y="{2}" width="{3}" height="{4}" fill="{5}" stroke="#666" stroke-width="1"/>'
    tiles = "".join(
        box.format(f"tile-{a}-{b}", left + side * b, top + side * a, side, side, _tile_fill(number, step))
        for number, (a, b) in enumerate(TILE_STEPS)
    )
    beside = "".join(
        box.format(f"keys-{n}", left + side * n, top - 26, side, 20, COLOURS["before"] if n == j else "none")
        + box.format(f"queries-{n}", left - 26, top + side * n, 20, side, COLOURS["far"] if n == i else "none")
        + box.format(
            f"out-{n}", left + side * TILES + 8, top + side * n, 20, side,
            "#f0a585" if n < i or n == i == j else "none",
        )
        for n in range(TILES)
    )  # fmt: skip
    turned = left - 36, top + side * TILES // 2
    out = left + side * TILES + 44, top + side * TILES // 2
    below = top + side * TILES + 18
    keys = f"1 to {j + 1}" if j else "1"
    ends = f"output {i + 1} goes back to HBM" if i == j else "nothing goes back to HBM"
    svg = (
        '<svg viewBox="0 0 400 470" style="width:100%;max-width:540px;height:auto;background:none;display:block;'
        'margin:auto" font-family="sans-serif" font-size="14" fill="#1a1a1a">'
        f'<text x="{left}" y="20" font-weight="bold">in HBM, the large slow memory</text>'
        f'<text x="{left}" y="42">keys and values</text>'
        f'<text x="{turned[0]}" y="{turned[1]}" text-anchor="middle" transform="rotate(-90 {turned[0]} {turned[1]})">'
        f'queries</text><text x="{out[0]}" y="{out[1]}" text-anchor="middle" '
        f'transform="rotate(-90 {out[0]} {out[1]})">outputs</text>{tiles}{beside}'
        f'<rect x="16" y="{below}" width="368" height="82" rx="8" fill="none" stroke="#1a1a1a" stroke-width="2"/>'
        f'<text x="28" y="{below + 22}" font-weight="bold">in SRAM, the small fast one</text>'
        f'<text x="28" y="{below + 46}" class="held-now">queries {i + 1}, keys and values {j + 1}, their scores</text>'
        f'<text x="28" y="{below + 68}" class="held-row">x*, Z and o of queries {i + 1}, over keys {keys}</text>'
        f'<text x="28" y="{below + 106}" font-weight="bold" class="count">'
        f"tile {step + 1} of {len(TILE_STEPS)}; {ends}</text></svg>"
    )
    alt = f"""A triangle of {len(TILE_STEPS)} tiles of scores, between {TILES} blocks of keys above, as many blocks of
        queries on the left and of outputs on the right. One tile is filled: it is held in the small fast memory,
        together with its block of queries, its block of keys and values, and three running sums of its row. Tiles
        before it are grey, they were thrown away. An output is written when its row is at the diagonal."""
    caption = """Press Play. A block of queries stays while keys and values stream past it, a tile at a time. A tile of
        scores is made, used and forgotten; HBM never sees it."""
    words = {"STEPS": str([list(pair) for pair in TILE_STEPS]), "TILES": str(TILES), "NOW": NOW, "GONE": GONE,
             "WAITING": WAITING, "KEYS": COLOURS["before"], "QUERIES": COLOURS["far"], "DONE": "#f0a585"}  # fmt: skip
    script = re.sub("|".join(words), lambda found: words[found[0]], TILE_SCRIPT)
    knobs = (Knob("step", "tile", 1, len(TILE_STEPS), step + 1, play=True),)
    return Explorable("gpu-tiles", alt, caption, knobs, svg, script)
