"""Figures of chapter 08."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.figure import Figure as MatplotlibFigure
from torch import Tensor

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
    over_seeds,
    spoken,
    styled,
    svg_path,
)
from rope_lessons.figures.local import recall_axes
from rope_lessons.rerope import leaky_distance, smooth_leaky_distance
from rope_lessons.stored import Table

__all__ = [
    "rerope_cache",
    "rerope_corner",
    "rerope_coverage",
    "rerope_handed",
    "rerope_lengths",
    "rerope_mark",
    "rerope_matrix",
    "rerope_places",
    "rerope_recall",
    "rerope_relatives",
    "rerope_split",
    "rerope_windows",
]

COLOURS, MARKERS = (GREY, BLUE, ORANGE, GREEN, RED, PURPLE, SKY), "osD^vXP"


def _square(x: float, y: float, tint: str, edge: str = "white") -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=tint, edgecolor=edge, linewidth=1)


@styled
def rerope_split(length: int = 12, window: int = 4) -> tuple[MatplotlibFigure, str]:
    """The causal triangle, near and far."""
    figure, axis = new_figure(height=3.6, width=4.2)
    index = torch.arange(length)
    for i in range(length):
        for j in range(i + 1):
            letter, tint = ("n", TINTS["near"]) if i - j < window else ("f", TINTS["far"])
            axis.add_patch(_square(j, i, tint))
            axis.text(j, i, letter, ha="center", va="center", fontsize=11)
    axis.set(xlim=(-0.5, length - 0.5), ylim=(length - 0.5, -0.5), aspect="equal")
    axis.plot([-0.5, length - window - 0.5], [window - 0.5] * 2, color=RED, linewidth=2.5)
    axis.plot([length - window - 0.5] * 2, [window - 0.5, length - 0.5], color=RED, linewidth=2.5)
    axis.set_xticks(index)
    axis.set_yticks(index)
    axis.set(xlabel="key j", ylabel="query i")
    axis.grid(False)
    alt = f"""The lower triangle of {length} queries and {length} keys. A band of {window} cells beside the diagonal is
        marked n for near; the triangle below it is marked f for far. Two lines show that the far cells are the lower
        triangle of a smaller square: queries {window} to {length - 1} against keys 0 to {length - 1 - window}."""
    return figure, alt


@styled
def rerope_cache(length: int = 12, window: int = 4) -> tuple[MatplotlibFigure, str]:
    """What a cache holds, and what a step of decoding reads of it."""
    figure, axis = new_figure(height=1.3)
    for row, tint in enumerate((TINTS["far"], TINTS["near"])):
        for j in range(row * (length - window), length):
            read = (j >= length - window) == (row == 1)
            axis.add_patch(_square(j, row, tint if read else "none", "black" if read else GREY))
            axis.text(j, row, str(j), ha="center", va="center", fontsize=12, color="black" if read else GREY)
    axis.set(xlim=(-0.6, length - 0.4), ylim=(1.6, -0.6), aspect="equal")
    axis.set_yticks([0, 1], ["far-ready", "near-ready"])
    axis.set_xticks([])
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)
    axis.grid(False)
    alt = f"""Two rows of keys. The cache holds all {length} keys far-ready, and keys {length - window} to {length - 1}
        near-ready as well. Filled, which the step reads: far-ready 0 to {length - window - 1} and near-ready
        {length - window} to {length - 1}. The far-ready copies of {length - window} to {length - 1} wait."""
    return figure, alt


@styled
def rerope_places(found: Mapping[str, Sequence[float]]) -> tuple[MatplotlibFigure, str]:
    """Needles read, by where they were hidden.

    Args:
        found: percent of the needles at each of five places, for each name.
    """
    places = ["at the\nstart", "¼", "in the\nmiddle", "¾", "before the\nquestion"]
    figure, axis = new_figure(height=2.9)
    styles: tuple[dict[str, Any], ...] = (
        {"color": GREEN, "marker": "o"},
        {"color": PURPLE, "marker": "s"},
        {"color": GREY, "marker": "D", "linewidth": 7, "markersize": 12, "alpha": 0.5},
        {"color": BLUE, "marker": "^"},
    )
    for (name, values), style in zip(found.items(), styles, strict=False):
        axis.plot(range(len(places)), values, label=name, **style)
    axis.set_xticks(range(len(places)), places)
    axis.set(ylim=(-5, 108), yticks=[0, 50, 100], ylabel="needles, %")
    axis.grid(axis="x", visible=False)
    legend_below(figure, axis)
    said = "; ".join(f"{name}: {spoken(values, 0)}" for name, values in found.items())
    alt = f"""Percent of the needles read against where they were hidden, at five places from the start of the text to
        right before the question. {said}."""
    return figure, alt


@styled
def rerope_handed(found: Mapping[str, Sequence[Sequence[float]]]) -> tuple[MatplotlibFigure, str]:
    """For each name a panel: of each digit of a needle, how far it is found and how often it is read, in percent."""
    figure, axes = new_figure(2, 2, height=3.7, sharex=True, sharey=True)
    said = []
    for axis, (name, pair) in zip(axes.flat, found.items(), strict=True):
        for side, color, label, values in zip((-0.2, 0.2), (ORANGE, BLUE), ("found", "read"), pair, strict=True):
            axis.bar([digit + side for digit in range(1, 6)], values, width=0.36, color=color, label=label)
            said.append(f"{name}, {label}: {spoken(values, 0)}")
        axis.set_title(name)
        axis.set(ylim=(0, 105), yticks=[0, 50, 100], xticks=range(1, 6))
        axis.grid(axis="x", visible=False)
    for axis in axes[1]:
        axis.set_xlabel("digit")
    for axis in axes[:, 0]:
        axis.set_ylabel("%")
    legend_below(figure, axes[0, 0])
    alt = f"""Four panels, by what the second layer is handed. In each, for the five digits, how much of a head's weight
        the digit gets (found) and how many answers are right (read), in percent. {"; ".join(said)}."""
    return figure, alt


@styled
def rerope_corner(window: int = 16, slope: float = 1 / 8, sigma: float = 8.0) -> tuple[MatplotlibFigure, str]:
    """Leaky ReRoPE and its smoothed form around the window, and the slope of each."""
    figure, axes = new_figure(2, 1, height=6.0, sharex=True)
    x = torch.linspace(0, 2 * window, 641, dtype=torch.float64)
    sharp, smooth = leaky_distance(x, window, slope), smooth_leaky_distance(x, window, slope, sigma)
    for values, color, style, name in ((sharp, GREY, "--", "Leaky"), (smooth, BLUE, "-", "smooth")):
        axes[0].plot(x, values, color=color, linestyle=style, label=name)
        axes[1].plot(x[1:] - x[1] / 2, values.diff() / x[1], color=color, linestyle=style)
    for axis, name in zip(axes, ("bent distance", "its slope"), strict=True):
        axis.axvspan(window - sigma, window + sigma, color=SKY, alpha=0.15, linewidth=0)
        axis.set_ylabel(name)
    axes[1].set_xlabel("distance in the text")
    legend_below(figure, axes[0])
    gap = float(sharp[320] - smooth[320])
    alt = f"""Upper panel: Leaky ReRoPE has a corner at {window}; the smooth form cuts it, between {window - sigma:g}
        and {window + sigma:g}, and lies {gap:.2g} below it at {window}. Lower panel: the slope of Leaky jumps from 1 to
        {slope:g} at {window}; that of the smooth form falls there in a straight line."""
    return figure, alt


@styled
def rerope_relatives(
    window: int = 16, group: int = 8, chunk: int = 24, query: int = 118
) -> tuple[MatplotlibFigure, str]:
    """The distances that one query is shown: Leaky ReRoPE, Self-Extend, dual chunk attention."""
    figure, axis = new_figure(height=3.4)
    key = torch.arange(query + 1)
    distance = query - key
    grouped = query // group - key // group + window - window // group
    self_extend = torch.where(distance < window, distance, grouped)
    axis.plot(distance, leaky_distance(distance, window, 1 / group), color=GREY, label=f"Leaky, k = {group}")
    axis.plot(distance, self_extend, "o", color=BLUE, markersize=3, label=f"Self-Extend, G = {group}")
    dual = _dual_chunk_distances(query + 1, chunk, chunk + window)[query]
    axis.plot(distance, dual, "^", color=ORANGE, markersize=3, label="dual chunk")
    axis.set_xlabel(f"distance in the text, from query {query}")
    axis.set_ylabel("distance shown")
    legend_below(figure, axis, columns=3)
    alt = f"""The distance that RoPE is shown against the distance in the text, for query {query}. Leaky ReRoPE is a
        line with a bend at {window}. Self-Extend is a row of points: on the line up to {window - 1}, then a staircase
        with steps of {group} beside it. Dual chunk attention follows the diagonal through the query's chunk and the
        next {window} tokens of the chunk before, then goes up and down like a saw, between
        {int(dual[: -2 * chunk].min())} and {int(dual.max())}, one tooth for each chunk of {chunk}."""
    return figure, alt


def _dual_chunk_distances(length: int, chunk: int, largest: int) -> Tensor:
    """The distances of dual chunk attention, int64 ``(length, length)``; only those with key <= query mean anything.

    A key stands at its place in its chunk. The query stands at its own place for keys of its chunk, one chunk farther,
    but at most at ``largest``, for the chunk before, and at ``largest`` for all chunks before that.

    Args:
        length: tokens of the text.
        chunk: tokens of a chunk.
        largest: where a query stands for what is far; between ``chunk`` and the training length less one.

    Source: An et al., arXiv 2402.17463.

    >>> _dual_chunk_distances(9, chunk=3, largest=4)[8].tolist()
    [4, 3, 2, 4, 3, 2, 2, 1, 0]
    """
    token = torch.arange(length)
    place, number = token % chunk, token // chunk
    before = number[:, None] - number  # chunks between query and key
    query = torch.stack((place, (place + chunk).clamp(max=largest), torch.full_like(place, largest)), dim=1)
    return query.gather(1, before.clamp(0, 2)) - place


def _style(number: int) -> dict[str, str]:
    return {"color": COLOURS[number], "marker": MARKERS[number]}


@styled
def rerope_lengths(rows: Table, cases: Mapping[str, tuple[str, str]], top: float = 2.0) -> tuple[MatplotlibFigure, str]:
    """Loss against the length of the text. ``cases`` maps a name to (model, method) in ``data/rerope.json``."""
    figure, axis = new_figure(height=4.6)
    said = []
    for number, (name, (model, method)) in enumerate(cases.items()):
        by_length = rows.where(model=model, method=method).by("length")
        lengths = sorted(by_length)
        mean = over_seeds(axis, lengths, [by_length[n]["loss"] for n in lengths], **_style(number), label=name)
        said.append(f"{name}: {spoken(mean, 2)}")
    doubling_axis(axis, lengths)
    axis.set_ylim(None, top)
    axis.set_xlabel("length of the text, bytes (trained on 64)")
    axis.set_ylabel("loss, nats per byte")
    legend_below(figure, axis)
    alt = f"""Loss against the length of the text, {lengths[0]} to {lengths[-1]} bytes, mean over the seeds with bars
        from best to worst; the axis ends at {top:g}. In nats per byte, shortest to longest text. {"; ".join(said)}."""
    return figure, alt


@styled
def rerope_coverage(
    found: Mapping[int, Mapping[int, list[int]]], train_length: int = 64, length: int = 512
) -> tuple[MatplotlibFigure, str]:
    """Needles found by Leaky ReRoPE and the largest distance shown, a cell for each window and k.

    Args:
        found: for each window and k, how many of 8 at each place.
        train_length, length: of the texts in training and at test.
    """
    figure, axis = new_figure(height=0.66 * len(found) + 0.6)
    said = []
    for row, (window, by_k) in enumerate(found.items()):
        cells = []
        for column, (k, right) in enumerate(by_k.items()):
            largest = window + (length - 1 - window) / k
            percent, each = 12.5 * sum(right) / len(right), ", ".join(map(str, right))
            tint = TINTS["beyond" if largest > train_length - 1 else "near"]
            axis.add_patch(_square(column, row, tint))
            axis.text(column, row - 0.26, f"{percent:.0f} %", ha="center", va="center", fontsize=15, weight="bold")
            axis.text(column, row + 0.21, f"{each}\n{largest:.1f}", ha="center", va="center", fontsize=12)
            cells.append(f"k = {k} up to {largest:.1f}, {percent:.0f} percent ({each})")
        said.append(f"w = {window}: " + ", ".join(cells))
    axis.set(xlim=(-0.5, len(by_k) - 0.5), ylim=(len(found) - 0.5, -0.5))
    axis.set_xticks(range(len(by_k)), [f"k = {k}" for k in by_k])
    axis.set_yticks(range(len(found)), [f"w = {window}" for window in found])
    axis.tick_params(length=0)
    axis.grid(False)
    alt = f"""A grid with a row for each window and a column for each k. A cell has the needles found in texts of
        {length} bytes: in percent and of 8 at each place; the largest distance, red beyond {train_length - 1}.
        {"; ".join(said)}."""
    return figure, alt


@styled
def rerope_windows(
    rows: Table, models: Sequence[str], train_length: int = 64, length: int = 512
) -> tuple[MatplotlibFigure, str]:
    """Loss of ReRoPE at a length against its window, a line for each model."""
    figure, axis = new_figure(height=4.6)
    said = []
    for number, name in enumerate(models):
        by_window = rows.where(model=name, length=length).by("window")
        windows = sorted(by_window)
        mean = over_seeds(axis, windows, [by_window[w]["loss"] for w in windows], **_style(number + 1), label=name)
        best = windows[mean.index(min(mean))]
        at = windows.index(train_length)
        said.append(f"{name}: best at {best} with {min(mean):.2f}, {mean[at]:.2f} at {train_length}")
    axis.axvline(train_length - 0.5, color="black", linewidth=1, linestyle=":")
    doubling_axis(axis, [2, 4, 8, 16, 32, 64])
    axis.set_xlabel("window w (trained on 64)")
    axis.set_ylabel(f"loss at {length} bytes, nats")
    legend_below(figure, axis, columns=3)
    alt = f"""Loss of ReRoPE on texts of {length} bytes against its window, from {windows[0]} to {windows[-1]}, one line
        for each model, mean over the seeds with bars from best to worst. {"; ".join(said)}. All lines fall to a
        minimum and rise towards the training length, {train_length}, which a dotted line marks."""
    return figure, alt


@styled
def rerope_recall(
    rows: Table, cases: Mapping[str, tuple[str, bool]], train_length: int = 64
) -> tuple[MatplotlibFigure, str]:
    """Questions answered against the distance. ``cases`` maps a name to (method, with log n†)."""
    figure, axis = new_figure(height=4.6)
    said = []
    for number, (name, (method, scale)) in enumerate(cases.items()):
        shares = rows.where(method=method, scale=scale)["recall"]
        distances = [int(distance) for distance in shares[0]]
        found = [[100 * of_seed[str(distance)] for of_seed in shares] for distance in distances]
        at = [distance * 1.02 ** (number - len(cases) / 2) for distance in distances]  # side by side
        mean = over_seeds(axis, at, found, **_style(number), label=name)
        said.append(f"{name}: {spoken(mean, 0)}")
    recall_axes(figure, axis, distances, train_length)
    alt = f"""Share of questions answered in a text of 512 bytes against the distance of the secret, mean over the
        seeds, bars from worst to best. A line marks the training length {train_length}, a dotted one guessing, 3.8
        percent. At the distances {", ".join(map(str, distances))}, in percent. {"; ".join(said)}."""
    return figure, alt


# --- the explorable: the matrix of relative positions, bent by the reader ------------------------------------------

TOKENS, TRAINED, CELL, LEFT, TOP = 10, 6, 34, 10, 62
AXIS, HEIGHT = 190, 130  # of the curve beside the matrix: its zero line, and the height of a distance of 10
TINTS = {"near": "#cfe6f5", "far": "#fdeab8", "beyond": "#f0a585", "squeezed": "#e4e4e4"}
EDGES = {  # on a dark ground some of the tints are close
    "beyond": f' stroke="{RED}" stroke-width="2"',
    "squeezed": f' stroke="{PURPLE}" stroke-width="2" stroke-dasharray="5 3"',
}
STYLE = """
.rl-bend{display:flex;flex-wrap:wrap;align-items:center;justify-content:center;gap:0 20px}
.rl-bend svg{flex:1 1 300px;max-width:400px;height:auto}
"""


def _kind(distance: int, window: int, slope: float) -> str:
    bent = float(leaky_distance(torch.tensor(distance), window, slope))
    if bent > TRAINED - 1 + 1e-9:
        return "beyond"
    if distance == 1 and bent < 1:
        return "squeezed"
    return "near" if distance < window else "far"


def _cells(kind: str, window: int, slope: float) -> str:
    """The ``d`` attribute of the squares of one kind."""
    return "".join(
        f"M{LEFT + CELL * j} {TOP + CELL * i}h33v33h-33z"
        for i in range(TOKENS)
        for j in range(i + 1)
        if _kind(i - j, window, slope) == kind
    )


def _number(value: float) -> str:
    return f"{round(value + 1e-9, 2):g}"


def _method(window: int, slope: float) -> str:
    if slope == 1 or window >= TOKENS:
        return "RoPE"
    if slope == 0:
        return "ReRoPE" if window else "no order"
    if window == 0:
        return "PI"
    return "Leaky ReRoPE"


def _title(window: int, slope: float) -> str:
    return f"{_method(window, slope)}: up to {_number(float(leaky_distance(torch.tensor(TOKENS - 1), window, slope)))}"


def _counts(window: int, slope: float) -> str:
    kinds = [_kind(i - j, window, slope) for i in range(TOKENS) for j in range(i + 1)]
    beyond, squeezed = kinds.count("beyond"), kinds.count("squeezed")
    also = f", {squeezed} neighbours squeezed" if squeezed else ""
    return f"{beyond} cell{'s' * (beyond != 1)} unseen{also}"


def _curve(window: int, slope: float) -> str:
    bent = leaky_distance(torch.arange(TOKENS), window, slope).tolist()
    return svg_path([20 + 34 * d for d in range(TOKENS)], [AXIS - HEIGHT * min(y, 10) / 10 for y in bent])


MATRIX_SCRIPT = r"""
    const w = value.window, s = value.slope / 12, size = 10, seen = 5;
    const g = (x) => x < w ? x : w + s * (x - w);
    const show = (x) => String(Number((x + 1e-9).toFixed(2)));
    const kind = (d) => g(d) > seen + 1e-9 ? "beyond" : d === 1 && g(1) < 1 ? "squeezed" : d < w ? "near" : "far";
    const cells = { near: "", far: "", beyond: "", squeezed: "" }, counts = { near: 0, far: 0, beyond: 0, squeezed: 0 };
    for (let i = 0; i < size; i++) for (let j = 0; j <= i; j++) {
      cells[kind(i - j)] += `M${10 + 34 * j} ${62 + 34 * i}h33v33h-33z`;
      counts[kind(i - j)]++;
    }
    for (const name in cells) svg.querySelector(".cells-" + name).setAttribute("d", cells[name]);
    for (const text of svg.querySelectorAll("text[data-d]")) text.textContent = show(g(Number(text.dataset.d)));
    const points = [];
    for (let d = 0; d < size; d++) {
      points.push(`${(20 + 34 * d).toFixed(1)} ${(190 - 13 * Math.min(g(d), 10)).toFixed(1)}`);
    }
    svg.querySelector(".curve").setAttribute("d", "M" + points.join("L"));
    const method = s === 1 || w >= size ? "RoPE" : s === 0 ? (w ? "ReRoPE" : "no order") :
      w === 0 ? "PI" : "Leaky ReRoPE";
    svg.querySelector(".title").textContent = `${method}: up to ${show(g(size - 1))}`;
    const also = counts.squeezed ? `, ${counts.squeezed} neighbours squeezed` : "";
    svg.querySelector(".counts").textContent = `${counts.beyond} cell${counts.beyond === 1 ? "" : "s"} unseen${also}`;
    const parts = [1, 2, 3, 4, 6, 12].find((n) => value.slope * n % 12 === 0);
    write("slope", parts === 1 ? String(value.slope / 12) : `${value.slope * parts / 12}/${parts}`);
"""


def rerope_matrix(window: int = 4, twelfths: int = 0) -> Explorable:
    """The matrix of relative positions of ten tokens for a model trained on six, and the map behind it.

    Args:
        window: at the start.
        twelfths: the slope at the start, times 12.
    """
    slope = twelfths / 12
    tints = "".join(
        f'<path class="cells-{kind}" d="{_cells(kind, window, slope)}" fill="{tint}"{EDGES.get(kind, "")}/>'
        for kind, tint in TINTS.items()
    )
    bent = leaky_distance(torch.arange(TOKENS), window, slope).tolist()
    numbers = "".join(
        f'<text x="{LEFT + CELL * j + 16.5:g}" y="{TOP + CELL * i + 22}" text-anchor="middle" data-d="{i - j}">'
        f"{_number(bent[i - j])}</text>"
        for i in range(TOKENS)
        for j in range(i + 1)
    )
    legend = "".join(
        f'<rect x="176" y="{y}" width="18" height="18" fill="{TINTS[kind]}"{EDGES.get(kind, "")}/>'
        f'<text x="200" y="{y + 15}">{name}</text>'
        for y, kind, name in (
            (60, "near", "in the window"),
            (84, "far", "beyond the window"),
            (108, "beyond", "beyond training"),
            (132, "squeezed", "neighbours squeezed"),
        )
    )
    end, seen = 20 + 34 * (TOKENS - 1), AXIS - HEIGHT * (TRAINED - 1) / 10
    look = 'width="360" style="background:none" font-family="sans-serif" font-size="14" fill="#1a1a1a"'
    svg = (
        f'<div class="rl-bend"><svg viewBox="0 0 360 406" {look}>'
        f'<text x="10" y="20" font-weight="bold" font-size="15" class="title">{_title(window, slope)}</text>'
        f'<text x="10" y="42" class="counts">{_counts(window, slope)}</text>{tints}{numbers}{legend}</svg>'
        f'<svg viewBox="0 0 360 216" {look}>'
        f'<text x="20" y="{AXIS - HEIGHT - 26}">distance shown, against distance in the text</text>'
        f'<path d="M20 {AXIS - HEIGHT}V{AXIS}H{end}" fill="none" stroke="#1a1a1a"/>'
        f'<path d="M20 {AXIS}L{end} {AXIS - HEIGHT * 0.9:g}" stroke="{GREY}" stroke-dasharray="3 4"/>'
        f'<path d="M20 {seen:g}H{end}" stroke="{RED}" stroke-width="2" stroke-dasharray="8 4"/>'
        f'<text x="28" y="{seen - 8:g}" fill="#a33c00">largest in training: {TRAINED - 1}</text>'
        f'<path class="curve" d="{_curve(window, slope)}" fill="none" stroke="{BLUE}" stroke-width="4"/>'
        f'<text x="20" y="{AXIS + 20}" text-anchor="middle">0</text>'
        f'<text x="{end}" y="{AXIS + 20}" text-anchor="middle">{TOKENS - 1}</text></svg></div>'
    )
    alt = f"""The lower triangle of ten tokens with the distance that RoPE is shown in each cell, and beside it that
        distance as a curve. The model was trained on {TRAINED} tokens, so distances up to {TRAINED - 1} are known. At
        the start the window is 4 and the slope 0: the lower left corner holds 4 everywhere, and no cell is unseen. With
        the slope 1 every cell holds the true distance, and the ten cells with 6 to 9 in the corner are marked as never
        seen. With a window of 0 and the slope 1/2 no cell is unseen, but the nine neighbours are marked as squeezed,
        shown half a step apart."""
    caption = f"""A model trained on {TRAINED} tokens reads {TOKENS}, first with ReRoPE. Slope 1 is plain RoPE. Window 0
        and slope 1/2 is PI: nothing unseen, and every neighbour at half a step. What is the largest slope that leaves
        no cell unseen, with a window of 3, and of 1?"""
    knobs = (
        Knob("window", "window w", 0, TOKENS, window),
        Knob("slope", "slope beyond it", 0, 12, twelfths),
    )
    return Explorable("rerope-matrix", alt, caption, knobs, svg, MATRIX_SCRIPT, STYLE)


# --- the explorable: the mark that the first layer writes ------------------------------------------------------------

LINE, QUESTION, THIRD = '↵key␣=␣"48213', '↵key␣=␣"48?', 10  # and the third digit's place
HIDDEN = ' hidden=""'
BYTE, BYTES_LEFT, LINE_TOP, ASK_TOP = 26, 10, 106, 242
MARK = "#f5c97a"
BACK = (8, 10)  # where the mark stands before the third digit
MARKED = " and ".join(LINE[THIRD - back] for back in BACK)
STATES: dict[str | int | float, str] = {"whole": "64 bytes", "crowd": "512 bytes", "sharp": "512, log n†"}
MARK_SCRIPT = """
    for (const part of svg.querySelectorAll("[data-state]"))
      part.toggleAttribute("hidden", part.dataset.state !== value.state);
"""


def _center(place: int) -> int:
    return BYTES_LEFT + BYTE * place + BYTE // 2


def _row_of_bytes(text: str, top: int, marked: int) -> str:
    return "".join(
        f'<rect x="{_center(place) - BYTE // 2}" y="{top}" width="{BYTE}" height="28" stroke="#1a1a1a" '
        f'fill="{MARK if place == marked else "none"}"/>'
        f'<text x="{_center(place)}" y="{top + 19}" text-anchor="middle">{html.escape(byte)}</text>'
        for place, byte in enumerate(text)
    )


def _arcs(places: Sequence[int], look: str) -> str:
    """From bytes of the line to its third digit."""
    end = _center(THIRD)
    paths = "".join(
        f"M{_center(place)} {LINE_TOP}Q{(_center(place) + end) / 2:g} {LINE_TOP - 24 - 14 * (THIRD - place)} {end} "
        f"{LINE_TOP}"
        for place in places
    )
    return f'<path d="{paths}" fill="none" {look}/>'


def _bars(values: Sequence[float]) -> str:
    """In percent."""
    return "".join(
        f'<text x="{BYTES_LEFT}" y="{y + 13}">{name}</text><text x="{60 + 2.4 * value:.0f}" y="{y + 13}">'
        f'{value:.0f} %</text><rect x="54" y="{y}" width="{2.4 * value:.0f}" height="16" fill="{tint}"/>'
        for y, name, tint, value in zip((296, 320), ("found", "read"), (ORANGE, BLUE), values, strict=True)
    )


def rerope_mark(measured: Mapping[str, Sequence[float]], state: str = "whole") -> Explorable:
    """How the third digit of a needle is found and read: what layer 1 writes onto it, also with too many keys.

    Args:
        measured: for each state how far it is found and how often read, in percent.
        state: at the start.
    """
    sure, pale, crowd = (f'stroke="{c}" stroke-width="{w}"' for c, w in ((BLUE, 3), (BLUE, 1), (GREY, 1)))
    mark = [THIRD - back for back in BACK]
    others = _arcs([place for place in range(THIRD) if place not in mark], f'{pale} stroke-opacity="0.35"')
    x, ask = _center(THIRD), _center(len(QUESTION) - 2)
    digit = f'<text x="{x}" y="{LINE_TOP + 19}" text-anchor="middle"'
    loop = f'<path d="M{x} {LINE_TOP}c-4-54 54-48 9 0" fill="none" {sure}'
    drawn = {
        "whole": _arcs(mark, sure) + f"{loop}/>{digit}>{LINE[THIRD]}</text>",
        "crowd": _arcs(mark, f'{sure} stroke-opacity="0.8"')
        + "".join(f'<path d="M0 {y}Q150 {y - 30} {x} {LINE_TOP}" fill="none" {crowd}/>' for y in range(48, 104, 6))
        + f'{loop} stroke-opacity="0.3"/>{digit} fill-opacity="0.6">?</text>',
    }
    words = "".join(
        f'<g data-state="{name}"{"" if name == state else HIDDEN}>{others}{drawn.get(str(name), drawn["whole"])}'
        f'<text x="{BYTES_LEFT}" y="{LINE_TOP + 109}" font-size="13">'
        f"{'135 away, shown as 32' if name in ('crowd', 'sharp') else '23 away'}</text>"
        f"{_bars(measured[str(name)])}</g>"
        for name in STATES
    )
    svg = (
        '<svg viewBox="0 0 360 342" style="width:100%;max-width:380px;height:auto;background:none;display:block;'
        'margin:auto" font-family="sans-serif" font-size="14" fill="#1a1a1a">'
        f'<text x="{BYTES_LEFT}" y="14" font-size="13">two heads of layer 1 write the mark, a third the 2</text>'
        f"{_row_of_bytes(LINE[:THIRD] + ' ' + LINE[THIRD + 1 :], LINE_TOP, THIRD)}{words}"
        f'<path d="M{x} {LINE_TOP + 30}v12" stroke="#1a1a1a"/>'
        f'<path d="M{ask} {ASK_TOP - 26}L{x} {LINE_TOP + 66}" stroke-width="3" stroke="{GREEN}"/>'
        f'<text x="{x}" y="{LINE_TOP + 58}" text-anchor="middle">mark: {MARKED}</text>'
        f'<text x="{ask}" y="{ASK_TOP - 8}" text-anchor="middle">wants: {MARKED}</text>'
        f'<text x="{BYTES_LEFT}" y="{LINE_TOP + 92}" font-size="13">a later layer looks for it,</text>'
        f"{_row_of_bytes(QUESTION, ASK_TOP, len(QUESTION) - 2)}"
        "</svg>"
    )
    said = "; ".join(f"{STATES[name]} {spoken(values, 0)}" for name, values in measured.items())
    alt = f"""Two lines of bytes. Above, the hidden line with its number; of the ten bytes before its third digit, a 2,
        two send strong arcs to it, the e eight back and the ↵ ten back: its mark. A strong loop goes from the 2 to
        itself. Below, the question, the same line up to its second digit; its last byte looks for this mark, and finds
        the 2, 23 away. In 512 bytes it is 135 away; among many others the loop is faint, the arcs paler, the
        2 a question mark. With log n† all are as before. Found and read, in percent: {said}."""
    caption = """A sketch. Measured (see the deeper page) are the mark's arcs and the third head's loop, paler with less
        weight, the distances and the bars, for the third digit at ¾ of the text. Found: the weight of layer 2's best
        head on the digit. Read: the share of right answers. One seed, 16 questions. All layers have w = 32; the last
        button gives log n† to layer 1 alone. ↵ is the line's end, ␣ a space."""
    buttons = Choice("state", "text", STATES, state)
    return Explorable("rerope-mark", alt, caption, (buttons,), svg, MARK_SCRIPT)
