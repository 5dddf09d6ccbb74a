"""Figures of chapter 09."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.patches import Rectangle
from torch import Tensor

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
    doubling_axis,
    legend_below,
    new_figure,
    over_seeds,
    spoken,
    styled,
)
from rope_lessons.figures.dial import DialRow, Dials
from rope_lessons.invleaky import covered_length, trained_distances
from rope_lessons.rerope import leaky_distance
from rope_lessons.sinusoidal import rope_frequencies
from rope_lessons.stored import Table

__all__ = [
    "invleaky_alias",
    "invleaky_dials",
    "invleaky_filled",
    "invleaky_lengths",
    "invleaky_looking",
    "invleaky_maps",
    "invleaky_matrices",
    "invleaky_plane",
    "invleaky_reach",
    "invleaky_seeds",
    "invleaky_visited",
]

SENTENCE = ("the", "cat", "saw", "the", "cat")
COLOURS, MARKERS = (GREY, BLUE, ORANGE, GREEN, RED, PURPLE, SKY), "osD^vXP"


class _OwnTrainings(Dials):
    """Every other dial; a training for each row."""

    def __init__(self, rows: Sequence[tuple[DialRow, int]], trained: Tensor):
        apart = [Dials([row], trained, known, nth=2) for row, known in rows]
        super().__init__([row for row, _ in rows], trained, rows[0][1], nth=2)
        self.drawn = self.every = [found.drawn[0] for found in apart]
        self.said = " ".join(f"{row.label}. {found.alt}" for (row, _), found in zip(rows, apart, strict=True))

    @property
    def alt(self) -> str:
        return f"Two rows of dials, each with its own training. {self.said}"


def invleaky_dials(
    train_length: int = 64, length: int = 512, window: int = 16, slope: float = 16, dim: int = 32
) -> Dials:
    """A long text under plain RoPE, for models trained without and with a bend.

    Args:
        train_length, length: of texts in training and at test.
        window, slope: of the bend.
        dim: of the head; every other hand is drawn.

    Chapter 09.
    """
    frequencies = rope_frequencies(dim)[::2]
    reach = covered_length(train_length, window, slope)
    rows = [
        (DialRow("trained with plain RoPE", frequencies, length), train_length),
        (DialRow("trained with a bend", frequencies, length, note="none out of range"), reach),
    ]
    return _OwnTrainings(rows, frequencies)


@styled
def invleaky_matrices(window: int = 1, slope: float = 3, train_length: int = 3) -> tuple[MatplotlibFigure, str]:
    """The sentence's distances: what training shows of its first words, and what plain RoPE shows of all at test."""
    figure, axes = new_figure(1, 2, height=3.7, width_ratios=(train_length, len(SENTENCE)))
    seen = set(trained_distances(train_length, window, slope).tolist())
    said = []
    for axis, words, how in ((axes[0], train_length, "training"), (axes[1], len(SENTENCE), "test")):
        index = torch.arange(words)
        told = index[:, None] - index
        if how == "training":
            told = leaky_distance(told, window, slope)
        for i in range(words):
            for j in range(i + 1):
                value = float(told[i, j])
                tint = "#cfe6f5" if value in seen else "#fdeab8"
                axis.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=tint, edgecolor="white", linewidth=2))
                axis.text(j, i, f"{value:g}", ha="center", va="center", fontsize=15)
        axis.set(xlim=(-0.5, words - 0.5), ylim=(words - 0.5, -0.5), aspect="equal", title=how)
        axis.set_xticks(index.tolist(), SENTENCE[:words], rotation=90)
        axis.set_yticks(index.tolist(), SENTENCE[:words])
        axis.grid(False)
        last = ", ".join(f"{float(value):g}" for value in told[-1])
        said.append(f"{how}, {words} words: the last row is {last}")
    alt = f"""Two lower triangles of distances. {"; ".join(said)}. At test the cells with 0, 1 and 4 have the colour of
        the training panel, those with 2 and 3 another one: training never showed them."""
    return figure, alt


@styled
def invleaky_visited(
    train_length: int = 64, length: int = 512, cases: Sequence[tuple[int, float]] = ((16, 8), (16, 16), (32, 16))
) -> tuple[MatplotlibFigure, str]:
    """A stroke for every distance that training shows: RoPE's, and InvLeaky's for some (window, slope)."""
    figure, axis = new_figure(height=3.6)
    rows = [("RoPE", 0, 1.0), *((f"w = {w}, r = {r:g}", w, r) for w, r in cases)]
    said = []
    for number, (name, window, slope) in enumerate(rows):
        told = trained_distances(train_length, window, slope)
        axis.eventplot(told, lineoffsets=-number, linelengths=0.7, linewidths=1.2, colors=COLOURS[number])
        seen = int(((told == told.round()) & (told < length)).sum())
        said.append(f"{name} up to {float(told[-1]):g}, {seen} of the {length}")
    axis.axvspan(0, length - 1, color=GREEN, alpha=0.12, linewidth=0)
    axis.text(length - 8, 0.62, f"the test: 0 to {length - 1}", color="#00694d", ha="right", va="center")
    axis.set_yticks([-n for n in range(len(rows))], [name for name, *_ in rows])
    axis.grid(False)
    axis.set(xlim=(-8, 850), ylim=(0.5 - len(rows), 0.95), xlabel=f"distances shown in {train_length} tokens")
    alt = f"""Strokes at the distances that a training text of {train_length} tokens shows; those of a test of {length}
        tokens are shaded. Largest distance, and how many of the test's are seen: {"; ".join(said)}. Every InvLeaky row
        is solid up to its window and a comb beyond."""
    return figure, alt


@styled
def invleaky_alias(
    pairs: tuple[int, int] = (0, 3), dim: int = 32, window: int = 16, slope: int = 16, until: int = 112
) -> tuple[MatplotlibFigure, str]:
    """The cosines of two pairs at far distances; at the seen ones they agree."""
    figure, axis = new_figure(height=2.9)
    x = torch.linspace(window, until, 1281, dtype=torch.float64)
    seen = torch.arange(window, until + 1, slope)
    said = []
    for pair, omega, style in zip(pairs, rope_frequencies(dim)[list(pairs)].tolist(), ("-", "--"), strict=True):
        said.append(f"pair {pair}, period {2 * math.pi / omega:.1f}")
        axis.plot(x, (x * omega).cos(), style, label=said[-1])
    axis.plot(seen, (seen * omega).cos(), "o", color="black", label="seen in training")
    axis.set(xticks=seen.tolist(), xlabel="distance", ylabel="cosine")
    legend_below(figure, axis)
    alt = f"""Two waves between the distances {window} and {until}: {" and ".join(said)}. Both pass through dots, every
        {slope}: distances that training shows."""
    return figure, alt


@styled
def invleaky_plane(
    fast: int = 2, slow: int = 8, dim: int = 32, train_length: int = 64, window: int = 16, slope: int = 16,
    until: int = 511, unseen: int = 462, near: tuple[int, int] = (144, 464),
) -> tuple[MatplotlibFigure, str]:  # fmt: skip
    """Where two hands point together, a fast one across and a slow one up: at all distances of the test, and at all
    that training showed; ``near`` are two of these, with nearly the fast and the slow angle of ``unseen``."""
    figure, axis = new_figure(height=4.0)
    omega = rope_frequencies(dim)
    every = torch.arange(until + 1)
    told = trained_distances(train_length, window, slope)

    def degrees(x: Tensor, pair: int) -> Tensor:
        return torch.rad2deg(x.double() * omega[pair]) % 360

    axis.plot(degrees(every, fast), degrees(every, slow), "o", color=SKY, markersize=3, label="plain RoPE at test")
    axis.plot(degrees(told, fast), degrees(told, slow), "o", color="black", markersize=6, label="seen in training")
    marked = torch.tensor((unseen, *near))
    here, *others = zip(degrees(marked, fast).tolist(), degrees(marked, slow).tolist(), strict=True)
    for there in others:
        axis.plot(*zip(here, there, strict=True), "--", color=ORANGE, linewidth=1.5)
    axis.plot(*here, "o", color=ORANGE, markersize=10, label=f"distance {unseen}, not seen")
    for each in (axis.xaxis, axis.yaxis):
        each.set_ticks(range(0, 361, 90), [f"{a}°" for a in range(0, 361, 90)])
    axis.set(xlim=(0, 360), ylim=(0, 360), xlabel=f"a fast hand (pair {fast})", ylabel=f"a slow hand (pair {slow})")
    legend_below(figure, axis)
    alt = f"""Two hands of a head of {dim // 2} pairs together: pair {fast} across, once round in
        {2 * math.pi / omega[fast].item():.0f} tokens, pair {slow} up. At all distances up to {until} the points fill
        the plane with slanted strands. The {len(told)} distances that training has seen are black dots: {window} on one
        strand at the bottom, then one in {slope}, on a few strands far apart. The point of distance {unseen} is
        marked: one dot has nearly its fast angle, another nearly its slow angle, and no dot is near it."""
    return figure, alt


@styled
def invleaky_maps(window: int = 16, slope: int = 16, until: int = 96) -> tuple[MatplotlibFigure, str]:
    """What a model is shown for each distance at test, the truth or rounded in two ways."""
    figure, axis = new_figure(height=3.8)
    x = torch.arange(until + 1)
    told = [*range(window), *range(window, until + 1, slope)]
    axis.plot(x, x, label="plain RoPE")
    for by, style, label in ((0, "-", "rounded to the dots"), (slope // 2, "--", f"moved by {slope // 2}")):
        snapped = torch.where(x < window, x, window + by + slope * torch.floor((x - window - by) / slope + 0.5))
        axis.plot(x, snapped, style, drawstyle="steps-mid", label=label)
    axis.plot(told, told, "o", color="black", markersize=5, label="seen in training")
    ticks = range(0, until + 1, slope)
    axis.set(xticks=ticks, yticks=ticks, xlabel="distance", ylabel="what the model is shown")
    legend_below(figure, axis)
    alt = f"""What the model is shown against the true distance, up to {until}. Plain RoPE is the diagonal. Dots on it
        mark what training showed: all up to {window}, then every {slope}. From there a staircase has steps of {slope}
        through the dots, a dashed one between them."""
    return figure, alt


@styled
def invleaky_filled(
    train_length: int = 64, slope: int = 16, first: int = 16, until: int = 100
) -> tuple[MatplotlibFigure, str]:
    """The combs of a window that moves, one row for each window, and all of them together."""
    figure, axis = new_figure(height=4.0)
    windows = range(first, first + slope)
    together: set[float] = set()
    for row, window in enumerate(windows):
        told = [x for x in trained_distances(train_length, window, slope).tolist() if x <= until]
        together.update(told)
        axis.eventplot(told, lineoffsets=-row, linelengths=0.8, linewidths=1.6, colors=BLUE)
    last = slope + 1.5
    axis.eventplot(sorted(together), lineoffsets=-last, linelengths=2, linewidths=1.6, colors=ORANGE)
    rows = [0, slope // 2, slope - 1]
    axis.set_yticks([*(-row for row in rows), -last], [*(f"w = {windows[row]}" for row in rows), "together"])
    axis.grid(False)
    axis.set(xlim=(-1, until + 1), ylim=(-last - 1.6, 1), xlabel="distances shown in training")
    alt = f"""Strokes at the distances up to {until} that training shows, a row for each window from {first} to
        {first + slope - 1}. Each row is solid up to its window and then has a stroke every {slope}, one place farther
        right than in the row above. The row below, all together, has {len(together)} of {until + 1} distances."""
    return figure, alt


@styled
def invleaky_lengths(rows: Table, cases: Mapping[str, tuple[str, str, str]]) -> tuple[MatplotlibFigure, str]:
    """Accuracy against the length of the text, and along the longest texts. ``cases`` maps a name to (model, method,
    scale) in ``data/invleaky.json``."""
    figure, axes = new_figure(2, 1, height=7.2)
    said = []
    for number, (name, (model, method, scale)) in enumerate(cases.items()):
        by_length = rows.where(model=model, method=method, scale=scale).by("length")
        lengths = sorted(by_length)
        whole = [by_length[n]["accuracy"] for n in lengths]
        along = zip(*by_length[lengths[-1]]["accuracy_by_eighth"], strict=True)
        for axis, at, shares in ((axes[0], lengths, whole), (axes[1], range(1, 9), along)):
            found = [[100 * share for share in of_seeds] for of_seeds in shares]
            mean = over_seeds(axis, at, found, color=COLOURS[number], marker=MARKERS[number], label=name)
            said.append(f"{name}: {spoken(mean, 1)}")
    doubling_axis(axes[0], lengths)
    axes[0].set_xlabel("length of the text, bytes (trained on 64)")
    axes[1].set_xlabel(f"eighth of a text of {lengths[-1]} bytes")
    for axis in axes:
        axis.set_ylabel("next bytes right, %")
    legend_below(figure, axes[0])
    alt = f"""Share of bytes predicted right, in percent, mean over the seeds, bars from least to greatest. Upper panel:
        against the length of the text, {lengths[0]} to {lengths[-1]} bytes. {"; ".join(said[::2])}. Lower panel: along
        the texts of {lengths[-1]} bytes, in eighths. {"; ".join(said[1::2])}."""
    return figure, alt


@styled
def invleaky_seeds(
    rows: Table, names: Mapping[str, str], places: Mapping[str, str], length: int = 512
) -> tuple[MatplotlibFigure, str]:
    """What each seed finds, by where the needle stands: dots, and a line from least to most.

    Args:
        rows: the table ``each_seed`` of ``data/invleaky.json``.
        names: of the rows that are drawn, from the top; what each is called.
        places: columns of the table, and what each is called.
        length: of the texts.
    """
    figure, axis = new_figure(height=1.3 + 0.57 * len(names))
    said = []
    for number, (column, place) in enumerate(places.items()):
        style: dict[str, Any] = {"color": (BLUE, GREY, ORANGE)[number], "marker": "osD"[number]}
        for at, row in enumerate(names):
            found, height = rows.where(row=row)[column], at + 0.22 * (number - 1)
            axis.plot([min(found), max(found)], [height, height], color=style["color"], linewidth=1)
            axis.plot(found, [height] * len(found), linestyle="none", markersize=5, alpha=0.5, **style)
            axis.plot(fmean(found), height, markersize=10, linestyle="none", label=None if at else place, **style)
            said.append(f"{names[row]}, {place}: {spoken(found, 0)}")
            if not number:
                axis.text(111, at, len(found), ha="center", va="center")
    axis.text(111, -0.7, "seeds", ha="center", va="center")
    axis.set_yticks(range(len(names)), list(names.values()))
    axis.set_xticks(range(0, 101, 20))
    axis.set(xlim=(-3, 121), ylim=(len(names) - 0.5, -1), xlabel=f"needles at {length}, % right")
    axis.grid(axis="y", visible=False)
    legend_below(figure, axis)
    return (
        figure,
        f"""A row for each training, needles at {length} bytes by where they stand, a small mark for each seed and a
        large one for the mean, in percent. {"; ".join(said)}.""",
    )


@styled
def invleaky_looking(rows: Table, cases: Mapping[str, tuple[str, str]]) -> tuple[MatplotlibFigure, str]:
    """Where the copying head looks for a needle, and how many are found.

    Args:
        rows: the table ``looking`` of ``data/invleaky.json``.
        cases: training and way of each bar, from the top, by what it is called.
    """
    figure, axis = new_figure(height=3.4)
    said = []
    parts = (("needle", "the needle", BLUE), ("near", "other keys up to 63", GREY), ("far", "64 and farther", ORANGE))
    for at, (name, (training, way)) in enumerate(cases.items()):
        (row,) = rows.where(training=training, way=way)
        shares, left = {**row, "near": 100 - row["needle"] - row["far"]}, 0.0
        for part, label, color in parts:
            axis.barh(at, shares[part], left=left, height=0.65, color=color, label=None if at else label)
            left += shares[part]
        axis.text(103, at, f"{row['right']:.0f} %", va="center")
        said.append(
            f"{name}: {', '.join(f'{label} {shares[part]:.0f}' for part, label, _ in parts)}; {row['right']:.0f} found"
        )
    axis.text(103, -0.75, "found", va="center")
    axis.set_yticks(range(len(cases)), list(cases))
    axis.set_xlim(0, 118)
    axis.set(ylim=(len(cases) - 0.5, -1.1), xticks=range(0, 101, 25), xlabel="attention of the copying head, %")
    axis.grid(False)
    legend_below(figure, axis, 3)
    return figure, f"Bars of the attention of one head, and needles found, all in percent. {'. '.join(said)}."


# --- the explorable ------------------------------------------------------------------------------------------------

TRAINED, LENGTH, COLUMNS, CELL, LEFT, TOP = 12, 96, 12, 28, 6, 56
TINTS = {"seen": BLUE, "between": "#e8e8e8", "beyond": "#f0a585"}


def _kind(distance: int, told: Sequence[float]) -> str:
    return "seen" if distance in told else "between" if distance < told[-1] else "beyond"


def _told(window: int, slope: float) -> list[float]:
    return trained_distances(TRAINED, window, slope).tolist()


def _cells(kind: str, window: int, slope: float) -> str:
    """The ``d`` attribute of the squares of one kind."""
    told = _told(window, slope)
    return "".join(
        f"M{LEFT + CELL * (d % COLUMNS)} {TOP + CELL * (d // COLUMNS)}h27v27h-27z"
        for d in range(LENGTH)
        if _kind(d, told) == kind
    )


REACH_SCRIPT = r"""
    const w = value.window, r = value.slope, trained = 12, length = 96;
    const told = new Set();
    for (let x = 0; x < trained; x++) told.add(x < w ? x : w + r * (x - w));
    const largest = Math.max(...told);
    const cells = { seen: "", between: "", beyond: "" }, counts = { seen: 0, between: 0, beyond: 0 };
    const numbers = svg.querySelectorAll("text[data-d]");
    for (let d = 0; d < length; d++) {
      const kind = told.has(d) ? "seen" : d < largest ? "between" : "beyond";
      cells[kind] += `M${6 + 28 * (d % 12)} ${56 + 28 * Math.floor(d / 12)}h27v27h-27z`;
      counts[kind]++;
      numbers[d].setAttribute("fill", kind === "seen" ? "#fff" : "#1a1a1a");
    }
    for (const name in cells) svg.querySelector(".cells-" + name).setAttribute("d", cells[name]);
    svg.querySelector(".title").textContent = `covers ${Math.floor(largest) + 1} tokens (the test has ${length})`;
    svg.querySelector(".count").textContent = Object.entries(counts).map(([k, n]) => `${n} ${k}`).join(", ");
"""


def invleaky_reach(window: int = 3, slope: int = 24) -> Explorable:
    """Which distances of a test of 96 tokens a training text of 12 visits, covers, or leaves out."""
    told = _told(window, slope)
    kinds = [_kind(d, told) for d in range(LENGTH)]
    count = ", ".join(f"{kinds.count(kind)} {kind}" for kind in TINTS)
    tints = "".join(
        f'<path class="cells-{kind}" d="{_cells(kind, window, slope)}" fill="{tint}"/>' for kind, tint in TINTS.items()
    )
    numbers = "".join(
        f'<text x="{LEFT + CELL * (d % COLUMNS) + 13.5:g}" y="{TOP + CELL * (d // COLUMNS) + 18}" '
        f'text-anchor="middle" data-d="{d}" fill="{"#fff" if kind == "seen" else "#1a1a1a"}">{d}</text>'
        for d, kind in enumerate(kinds)
    )
    bottom = TOP + CELL * (LENGTH // COLUMNS)
    legend = "".join(
        f'<rect x="{LEFT + 112 * n}" y="{bottom + 10}" width="16" height="16" fill="{tint}"/>'
        f'<text x="{LEFT + 112 * n + 22}" y="{bottom + 23}" font-size="13">{name}</text>'
        for n, (name, tint) in enumerate(TINTS.items())
    )
    svg = (
        f'<svg viewBox="0 0 348 {bottom + 34}" style="width:100%;max-width:520px;height:auto;background:none;'
        'display:block;margin:auto" font-family="sans-serif" font-size="12" fill="#1a1a1a">'
        f'<text x="{LEFT}" y="20" font-weight="bold" font-size="15" class="title">'
        f"covers {covered_length(TRAINED, window, slope)} tokens (the test has {LENGTH})</text>"
        f'<text x="{LEFT}" y="42" font-size="14" class="count">{count}</text>'
        f"{tints}{numbers}{legend}</svg>"
    )
    alt = f"""The distances 0 to {LENGTH - 1} of a test as a grid of {LENGTH} numbered squares, for a model trained on
        {TRAINED} tokens. At the start the window is 3 and the slope 24, and the test is covered: 0, 1, 2, 3,
        27, 51 and 75 are seen; the other 89 lie between. With the slope 12 it still is: 0, 1,
        2, 3, 15, 27 and so on to 87 are seen, 11 of 96. With the slope 2, 8 squares lie between and 76 are beyond."""
    caption = f"""A model trained on {TRAINED} tokens is to read {LENGTH} with plain RoPE. Lower the slope until
        the next step would leave squares beyond, and watch how many are seen. Then move the window. With the test
        covered, how many can you see?"""
    knobs = (
        Knob("window", "window w", 0, TRAINED - 2, window),  # one more, and nothing is bent
        Knob("slope", "slope r in training", 1, 24, slope),
    )
    return Explorable("invleaky-reach", alt, caption, knobs, svg, REACH_SCRIPT)
