"""Figures of chapter 01: circles, Gram matrices, how the kernel decays, and what the choice of frequencies does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
from matplotlib.figure import Figure as MatplotlibFigure
from torch import Tensor

from rope_lessons.figures import (
    BLUE,
    CLEAR_TO_BLUE,
    CYCLE,
    DIVERGING,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    Explorable,
    Knob,
    legend_below,
    new_figure,
    styled,
    svg_path,
)
from rope_lessons.sinusoidal import rope_frequencies, sinusoidal_encoding, sinusoidal_kernel

__all__ = [
    "copier_places",
    "encoding_circles",
    "encoding_table",
    "encodings_compared",
    "go_on_or_back",
    "gram_matrices",
    "gram_matrix",
    "kernel_choices",
    "kernel_decay",
    "kernel_explorer",
    "position_attempts",
    "taylor_errors",
]

EULER_GAMMA = 0.5772156649015329


@styled
def encoding_circles(dim: int = 8, base: float = 10_000.0, count: int = 5) -> tuple[MatplotlibFigure, str]:
    """One circle per pair of channels, with the positions 0, 1, … as dots on it."""
    figure, axes = new_figure(1, dim // 2, height=2.3)
    turn = torch.linspace(0, 2 * math.pi, 200)
    for t, (ax, frequency) in enumerate(zip(axes, rope_frequencies(dim, base).tolist(), strict=True)):
        ax.plot(turn.cos(), turn.sin(), color=GREY, linewidth=1)
        for m in reversed(range(count)):
            x, y = math.cos(m * frequency), math.sin(m * frequency)
            ax.plot([0, x], [0, y], color=CYCLE[m], linewidth=1.5)
            ax.plot(x, y, "o", color=CYCLE[m], markersize=8)
            if frequency > 0.9:  # slower pairs have their dots too close to each other
                ax.text(1.32 * x, 1.32 * y, str(m), ha="center", va="center", fontsize=12)
        ax.set(aspect="equal", xlim=(-1.55, 1.55), ylim=(-1.55, 1.55), xticks=[], yticks=[])
        ax.set_title(f"pair {t}\nω = {frequency:.3g}", fontsize=12)
        ax.grid(False)
        ax.spines[:].set_visible(False)
    return figure, (
        f"{dim // 2} circles, one per pair of channels, each with the positions 0 to {count - 1} as dots. In pair 0 "
        "the dots are one radian apart and go more than half the way round. In every next pair they are "
        f"{base ** (2 / dim):.3g} times closer together; in the last one they lie on top of each other."
    )


@styled
def encoding_table(dim: int = 128, count: int = 100) -> tuple[MatplotlibFigure, str]:
    """Heat map of the table of encodings: one row per position, one column per channel."""
    figure, ax = new_figure(height=3.4)
    picture = ax.imshow(
        sinusoidal_encoding(torch.arange(count), dim),
        cmap=DIVERGING,
        vmin=-1,
        vmax=1,
        aspect="auto",
        interpolation="none",
    )
    ax.set(xticks=[0, dim // 4, dim // 2, 3 * dim // 4, dim - 1], yticks=[0, count - 1])
    ax.set(xlabel="channel (even: sine, odd: cosine)", ylabel="position m")
    ax.grid(False)
    figure.colorbar(picture, ax=ax, ticks=[-1, 0, 1])
    return figure, (
        f"Heat map of the encodings of the positions 0 to {count - 1}, one row each, {dim} channels wide. "
        "The channels on the left swing many times from top to bottom. Further right they swing ever more slowly, and "
        "on the right they hardly change: thin vertical stripes, the sines near 0 and the cosines near 1."
    )


@styled
def gram_matrix(frequencies: Tensor, count: int = 100) -> tuple[MatplotlibFigure, str]:
    """Heat map of the inner products of all pairs of positions."""
    figure, ax = new_figure(height=3.8, width=5.2)
    e = sinusoidal_encoding(torch.arange(count), 2 * len(frequencies), frequencies=frequencies, dtype=torch.float64)
    picture = ax.imshow(e @ e.T)
    ax.set(xticks=[0, count - 1], yticks=[0, count - 1], xlabel="n", ylabel="m")
    ax.grid(False)
    figure.colorbar(picture, ax=ax)
    return figure, (
        f"Heat map of the inner products of the encodings of the positions 0 to {count - 1}. Every diagonal has one "
        f"colour. The main diagonal is brightest, with the value {len(frequencies)}; away from it the colour fades, "
        "quickly at first and then slowly, with ripples beside the main diagonal."
    )


def attempts(count: int = 32) -> dict[str, Tensor]:
    """The inner products of all pairs of positions, for four ways to write a position."""
    m = torch.arange(count, dtype=torch.float64)
    ways = {
        "the integer": m[:, None],
        "one channel each": torch.eye(count, dtype=torch.float64),
        "binary digits": torch.stack([2 * (m.long() >> t & 1) - 1 for t in range(5)], dim=-1).double(),
        "turning hands": sinusoidal_encoding(m, 16, base=100.0, dtype=torch.float64),
    }
    return {name: vectors @ vectors.T for name, vectors in ways.items()}


@styled
def position_attempts(count: int = 32) -> tuple[MatplotlibFigure, str]:
    """What an inner product sees of positions that are written in four ways."""
    figure, axes = new_figure(2, 2, height=6.4)
    for ax, (name, seen) in zip(axes.flat, attempts(count).items(), strict=True):
        ax.imshow(seen, cmap=CLEAR_TO_BLUE)
        ax.set_title(name, fontsize=13)
        ax.set(xticks=[0, count - 1], yticks=[0, count - 1])
        ax.grid(False)
    return figure, (
        f"Four heat maps of the inner products of the positions 0 to {count - 1}, the stronger the blue, the "
        "larger. The integer: strong in the corner of the largest positions alone. One channel each: a blue diagonal "
        "and nothing else. Binary digits: a quilt of squares in squares. Turning hands: a strong diagonal band with "
        "paler stripes beside it, every diagonal of one colour."
    )


@styled
def go_on_or_back(angle: float = math.pi / 3) -> tuple[MatplotlibFigure, str]:
    """The first four arrows of each of the two solutions in the plane, and the steps from one to the next."""
    figure, axes = new_figure(1, 2, height=2.7)
    turn = torch.linspace(0, 2 * math.pi, 200)
    for ax, (name, steps) in zip(axes, {"go on": (0, 1, 2, 3), "go back": (0, 1, 0, 1)}.items(), strict=True):
        ax.plot(turn.cos(), turn.sin(), color=GREY, linewidth=1)
        for place in sorted(set(steps)):
            x, y = math.cos(place * angle), math.sin(place * angle)
            color = BLUE if place < 2 else ORANGE
            ax.plot([0, x], [0, y], color=color, linewidth=3)
            ax.plot(x, y, "o", color=color, markersize=9)
            label = ", ".join(str(m) for m, at in enumerate(steps) if at == place)
            ax.text(1.42 * x, 1.25 * y, label, ha="center", va="center", fontsize=14)
        for radius, color, (start, end) in ((0.4, BLUE, steps[:2]), (0.6, ORANGE, steps[1:3])):
            arc = torch.linspace(start + 0.12 * (end - start), end - 0.12 * (end - start), 30) * angle
            path = [(radius * math.cos(at), radius * math.sin(at)) for at in arc.tolist()]
            ax.plot(*zip(*path, strict=True), color=color, linewidth=2)
            ax.annotate(
                "",
                path[-1],
                path[-3],
                arrowprops={"arrowstyle": "-|>", "color": color, "mutation_scale": 16, "shrinkA": 0, "shrinkB": 0},
            )
        ax.set(aspect="equal", xlim=(-1.7, 1.7), ylim=(-1.1, 1.3), xticks=[], yticks=[])
        ax.set_xlabel(name, fontsize=14)
        ax.grid(False)
        for side in ax.spines.values():
            side.set_visible(False)
    return figure, (
        "Two circles with arrows 60 degrees apart. Go on: the positions 0, 1, 2 and 3 stand at 0, 60, 120 and 180 "
        "degrees, and both steps, from 0 to 1 and from 1 to 2, turn the same way. Go back: the positions 0 and 2 share "
        "one arrow, 1 and 3 the other, and the second step turns back."
    )


@styled
def gram_matrices(matrices: Mapping[str, Tensor], frequencies: Tensor, count: int = 40) -> tuple[MatplotlibFigure, str]:
    """Heat maps of e_mᵀ H e_n, one for each named H."""
    figure, axes = new_figure(1, len(matrices), height=2.7)
    encodings = sinusoidal_encoding(
        torch.arange(count), 2 * len(frequencies), frequencies=frequencies, dtype=torch.float64
    )
    for ax, (name, matrix) in zip(axes, matrices.items(), strict=True):
        gram = encodings @ matrix @ encodings.T
        limit = float(gram.abs().max())
        ax.imshow(gram, cmap=DIVERGING, vmin=-limit, vmax=limit)
        ax.set_title(name, fontsize=12)
        ax.set(xticks=[0, count - 1], yticks=[0, count - 1], xlabel="n")
        ax.grid(False)
    axes[0].set_ylabel("m")
    names = "; ".join(" ".join(name.split()) for name in matrices)
    return figure, (
        f"Heat maps of e_m transposed times H times e_n for the positions 0 to {count - 1}, one for each H: {names}. "
        "With the identity every diagonal has one colour. With the other matrices the colour changes along a diagonal."
    )


@styled
def taylor_errors(sizes: Sequence[float], errors: Mapping[str, Sequence[float]]) -> tuple[MatplotlibFigure, str]:
    """Error of the Taylor approximations against the size of the perturbation, both on logarithmic axes."""
    figure, ax = new_figure(height=3.3)
    for (name, values), marker in zip(errors.items(), "os^", strict=False):
        ax.loglog(sizes, values, marker=marker, label=name)
    ax.set(xlabel="size ε of the nudge", ylabel="error")
    ax.legend()
    return figure, (
        "Error against the size of the perturbation on logarithmic axes, three lines. For small sizes they "
        "are straight: halving the size halves the error of order 0, divides that of order 1 by four and that of "
        "order 2 by eight."
    )


@styled
def kernel_decay(
    dim: int = 128, base: float = 10_000.0, integral: tuple[Sequence[float], Sequence[float]] | None = None
) -> tuple[MatplotlibFigure, str]:
    """The kernel at integer distances, with the logarithmic law and (if given) the integral it approximates."""
    figure, ax = new_figure(height=3.8)
    distance = torch.logspace(0, 6, 700, dtype=torch.float64).round().unique().long()
    ax.plot(distance, sinusoidal_kernel(distance, rope_frequencies(dim, base)), ".", color=BLUE, markersize=3)
    ax.plot([], [], "o", color=BLUE, label=f"K(Δ), d = {dim}")
    straight = torch.logspace(0, math.log10(base), 50)
    ax.plot(straight, 1 - (straight.log() + EULER_GAMMA) / math.log(base), "--", color=ORANGE, label="logarithmic law")
    if integral is not None:
        ax.plot(*integral, color=RED, linewidth=1.5, label="integral (Ci)")
    ax.axhspan(-1 / math.sqrt(dim), 1 / math.sqrt(dim), color=GREY, alpha=0.15, label="± 1/√d")
    ax.axvline(base, color=GREY, linewidth=1)
    ax.text(base * 1.15, 0.9, "Δ = B", color=GREY)
    ax.set(xscale="log", xlabel="distance Δ", ylabel="K(Δ)", ylim=(-0.35, 1.05))
    ax.legend(loc="upper right", bbox_to_anchor=(1, 0.9))
    return figure, (
        "The kernel against the distance on a logarithmic axis from 1 to a million. From 1 to the base ten thousand "
        "the dots fall along a straight line from 1 to 0, with growing scatter. Beyond the base the integral "
        "settles on 0, and the dots keep scattering around 0 with a height of about one over the square root of d."
    )


@styled
def kernel_choices(choices: Mapping[str, Tensor], last: float = 3000) -> tuple[MatplotlibFigure, str]:
    """The kernels of several choices of frequencies, one panel each."""
    figure, axes = new_figure(len(choices), 1, height=1.35 * len(choices) + 0.5, sharex=True)
    distance = torch.arange(1, int(last) + 1)  # every one: the returns of the linear choice are a few positions wide
    for ax, (name, frequencies), colour in zip(axes, choices.items(), (BLUE, ORANGE, GREEN, RED, PURPLE), strict=False):
        ax.plot(distance, sinusoidal_kernel(distance, frequencies), color=colour, linewidth=1)
        ax.axhline(0, color=GREY, linewidth=0.8)
        ax.text(0.99, 0.95, name, transform=ax.transAxes, ha="right", va="top", fontsize=12)
        ax.set(xscale="log", ylim=(-0.5, 1.5), yticks=[0, 1])
    axes[-1].set_xlabel("distance Δ")
    return figure, (
        f"Kernels for {len(choices)} choices of frequencies, one panel each, distance on a logarithmic axis: "
        f"{'; '.join(choices)}. The linear choice drops to zero within a few positions and jumps back to nearly 1 at "
        "distance 402 and at its multiples. The square falls fast, the eighth power slowly; the exponential one falls "
        "along a straight line."
    )


@styled
def encodings_compared(results: Mapping[str, Sequence[tuple[float, float]]]) -> tuple[MatplotlibFigure, str]:
    """Accuracy at positions seen in training and beyond them, one mark per seed."""
    figure, ax = new_figure(height=3.0)
    for row, runs in enumerate(results.values()):
        for column, (marker, colour) in enumerate((("o", BLUE), ("s", ORANGE))):
            heights = [row + (0.2 if column else -0.2) + 0.1 * (k - (len(runs) - 1) / 2) for k in range(len(runs))]
            ax.plot([run[column] for run in runs], heights, marker, color=colour, markersize=5)
    for marker, colour, label in (("o", BLUE, "positions seen in training"), ("s", ORANGE, "positions beyond")):
        ax.plot([], [], marker, color=colour, label=label)
    ax.axvline(1 / 8, color=GREY, linestyle=":", label="guessing")
    ax.set_yticks(range(len(results)), list(results))
    ax.set(xlim=(0, 1.05), ylim=(len(results) - 0.5, -0.5), xlabel="accuracy")
    legend_below(figure, ax, columns=3)
    order = sorted(results, key=lambda name: -sum(beyond for _, beyond in results[name]))
    return figure, (
        f"Accuracy of {len(results)} kinds of encoding, one mark per seed, at positions seen in training and beyond. "
        f"Beyond, from best to worst: {', '.join(order)}. A dotted line marks guessing."
    )


@styled
def copier_places(
    found: Mapping[str, Mapping[int, Sequence[float]]], trained: Mapping[str, int], guessing: float, first: int = 3
) -> tuple[MatplotlibFigure, str]:
    """What copiers have right at each position of a letter: a row for each training, a line for each start.

    Args:
        found: by training and by the position that a text starts at, the percent right of each of its letters, from
            number ``first`` on.
        trained: by training, how many positions it showed, from 0 on: these are blue, others red.
        guessing: percent.
        first: number of the first letter that has one to copy.
    """
    starts = sorted(set().union(*found.values()))
    size = first + len(next(iter(next(iter(found.values())).values())))
    panels: list[list[int]] = []  # first and last position of each: starts that overlap share one
    for start in starts:
        if panels and start <= panels[-1][1]:
            panels[-1][1] = start + size
        else:
            panels.append([start, start + size])
    figure, axes = new_figure(
        len(found),
        len(panels),
        height=2.0 * len(found) + 0.7,
        sharey=True,
        squeeze=False,
        width_ratios=[end - begin + 8 for begin, end in panels],
    )
    said = []
    for row, (name, by_start) in zip(axes, found.items(), strict=True):
        home = trained[name]
        for axis, (begin, end) in zip(row, panels, strict=True):
            axis.axhline(guessing, color=GREY, linewidth=1, linestyle="--")
            if begin < home <= end:
                axis.axvline(home, color=GREY, linewidth=1)
            for start, right in by_start.items():
                if not begin <= start < end:
                    continue
                places = range(start + first, start + first + len(right))
                old = max(0, min(home - places[0], len(right)))  # how many of them training showed
                axis.plot(places[:old], right[:old], color=BLUE, linewidth=1.5)
                axis.plot(places[max(old - 1, 0) :], right[max(old - 1, 0) :], color=RED, linewidth=1.5, zorder=1)
            ticks = [begin] if end - begin == size else [begin, begin + size]
            axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
            axis.set(xlim=(begin - 4, end + 4), ylim=(0, 107), yticks=[0, 50, 100])
            if axis is not row[0]:
                axis.spines["left"].set_visible(False)
                axis.tick_params(left=False)
        row[0].set_title(name, loc="left", fontsize=12)
        row[0].set_ylabel("right, %")
        told = []
        for start, right in by_start.items():
            old = max(0, min(home - start - first, len(right)))
            halves = ((right[:old], "old"), (right[old:], "new"))
            told.append(f"{start}: {' and '.join(f'{fmean(part):.0f} {which}' for part, which in halves if part)}")
        said.append(f"{name}, by start: {'; '.join(told)}")
    axes[-1, 0].set_xlabel("position of the letter")
    lines: list[tuple[str, dict[str, Any]]] = [
        ("positions of the training", {"color": BLUE}),
        ("new positions", {"color": RED}),
        ("guessing", {"color": GREY, "linestyle": "--", "linewidth": 1}),
    ]
    for label, style in lines:
        axes[0, 0].plot([], [], label=label, **style)
    legend_below(figure, axes[0, 0], columns=3)
    return figure, (
        "Percent of letters copied, by the position of the letter; mean over positions that training showed (old) and "
        f"did not show (new). {'. '.join(said)}. A dashed line at {guessing:g} is guessing."
    )


# ---------------------------------------------------------------- the explorable: the kernel redrawn

LEFT, STEP, POINTS = 44.0, 1.1, 360  # pixels; x has one decimal only, so both languages round it alike
TOP, HIGH = 32.0, 210.0  # pixels: y of K = 1, and from there to the lowest value
HAND_TOP, HAND_HIGH = 286.0, 70.0  # the same of the hands' cosines, below
DECADES = 5
LEVELS = (-1.0, -0.5, 0.0, 0.5, 1.0)
SEEN = ("hidden", "visible")
LOWS = (-0.5, -1.0)  # where the axis ends: at the first, if the kernel stays above it


def _x(distance: float) -> float:
    return LEFT + STEP * POINTS * math.log10(distance) / DECADES


def _y(value: float, low: float) -> float:
    return TOP + HIGH * (1 - value) / (1 - low)


def _whole_distances(column: int) -> range:
    """The whole distances nearest to a column of pixels. Between them there is no kernel: it would be read wrongly."""
    first, end = (math.ceil(10 ** (DECADES * (column + side) / POINTS)) for side in (-0.5, 0.5))
    return range(first, end)


def _curve(frequencies: Tensor) -> tuple[list[float], list[float]]:
    """x in pixels, and the smallest and the largest kernel, of each column that has a whole distance."""
    x, values = [], []
    for column in range(POINTS + 1):
        if distances := _whole_distances(column):
            kernel = sinusoidal_kernel(torch.arange(distances.start, distances.stop), frequencies)
            x += [LEFT + STEP * column] * 2
            values += [float(kernel.min()), float(kernel.max())]
    return x, values


def _hands(distance: int, base: float, pairs: int) -> tuple[str, str, int]:
    """The dots of the hands that have begun to turn at a distance; of the others; how many these are.

    A hand has its dot where it begins to turn, at the distance 1/ω, as high as its cosine.
    """
    dots: tuple[list[str], list[str]] = ([], [])
    for t in range(pairs):
        angle = distance * base ** (-t / pairs)
        x, y = LEFT + STEP * POINTS * math.log10(base) * t / pairs / DECADES, _hand_y(math.cos(angle))
        dots[angle < 1 - 1e-9].append(f"M{_rounded(x)} {_rounded(y)}h0")
    return "".join(dots[0]), "".join(dots[1]), len(dots[1])


def _hand_y(cosine: float) -> float:
    return HAND_TOP + HAND_HIGH * (1 - cosine) / 2


def _rounded(value: float) -> str:
    """As the script does it, ties too.

    >>> _rounded(118.25), _rounded(0.04)
    ('118.3', '0.0')
    """
    return f"{math.floor(10 * value + 0.5) / 10:.1f}"


def kernel_explorer(log_base: float = 4, pairs: int = 64, log_distance: float = 1.75) -> Explorable:
    """The kernel against the distance, redrawn for any base and any number of pairs; below it, the hands.

    Args:
        log_base: of ten.
        pairs: of channels.
        log_distance: of ten; the distance, a whole one, at which the hands are drawn.
    """
    base, distance = 10.0**log_base, round(10.0**log_distance)
    x, values = _curve(rope_frequencies(2 * pairs, base))
    low = LOWS[min(values) < LOWS[0]]
    curve = svg_path(x, [_y(value, low) for value in values])
    ends = (1 - EULER_GAMMA / math.log(base), -EULER_GAMMA / math.log(base))
    law = svg_path([_x(1), _x(base)], [_y(value, low) for value in ends])
    turning, still, count = _hands(distance, base, pairs)
    seen = float(sinusoidal_kernel(torch.tensor(distance), rope_frequencies(2 * pairs, base)))
    bottom, end = HAND_TOP + HAND_HIGH, LEFT + STEP * POINTS
    ticks = (
        "".join(
            f'<path d="{svg_path([_x(10**k)] * 2, [TOP, TOP + HIGH])}{svg_path([_x(10**k)] * 2, [HAND_TOP, bottom])}" '
            f'stroke="#ddd"/><text x="{_x(10**k):.1f}" y="{bottom + 26:.1f}" text-anchor="middle">{label}</text>'
            for k, label in enumerate(("1", "10", "100", "1,000", "10⁴", "10⁵"))
        )
        + "".join(
            f'<g class="level" transform="translate(0 {_y(value, low):.1f})" visibility="{SEEN[value >= low]}">'
            f'<path d="M{LEFT:.1f} 0L{end:.1f} 0" stroke="#ddd"/>'
            f'<text x="{LEFT - 8:.1f}" y="5" text-anchor="end">{"−" * (value < 0)}{abs(value):g}</text></g>'
            for value in LEVELS
        )
        + "".join(
            f'<path d="M{LEFT:.1f} {_hand_y(value):.1f}L{end:.1f} {_hand_y(value):.1f}" stroke="#ddd"/>'
            f'<text x="{LEFT - 8:.1f}" y="{_hand_y(value) + 5:.1f}" text-anchor="end">'
            f"{'−' * (value < 0)}{abs(value):g}</text>"
            for value in (1, 0, -1)
        )
    )
    svg = f"""
<svg viewBox="0 0 460 410" width="100%" style="display:block;max-width:480px;margin:auto"
 xmlns="http://www.w3.org/2000/svg" font-size="17" fill="#1a1a1a">
{ticks}
<path id="curve" d="{curve}" fill="none" stroke="{BLUE}" stroke-width="1.6"/>
<path id="law" d="{law}" fill="none" stroke="{ORANGE}" stroke-width="3" stroke-dasharray="8 6"/>
<g id="cut" transform="translate({_x(distance):.1f} 0)">
<path d="M0 {TOP}V{TOP + HIGH}M0 {HAND_TOP - 6:g}V{bottom + 6:g}" stroke="#1a1a1a" stroke-width="1.6"/>
<circle id="at" cy="{_y(seen, low):.1f}" r="5.5"/></g>
<path id="turning" d="{turning}" stroke="{GREY}" stroke-width="5" stroke-linecap="round"/>
<path id="still" d="{still}" stroke="{BLUE}" stroke-width="5" stroke-linecap="round"/>
<text x="440" y="20" text-anchor="end" id="says">base {base:.0f}, {pairs} pairs</text>
<text x="44" y="20" fill="{BLUE}">K(Δ)</text>
<text x="90" y="20" fill="#8a5a00">dashed: the law</text>
<text x="44" y="270" id="counts">{_counts(distance, seen, count, pairs)}</text>
<text x="242" y="403" text-anchor="middle">distance Δ; a hand’s dot is at 1/ω</text>
</svg>"""
    script = f"""
    const base = Math.pow(10, value.base), gamma = {EULER_GAMMA};
    // K at every distance: each pair is a hand that is turned by its angle, from one distance to the next.
    const kernel = new Float64Array({_whole_distances(POINTS).stop});
    for (let t = 0; t < value.pairs; t++) {{
      const w = Math.pow(base, -t / value.pairs), c = Math.cos(w), s = Math.sin(w);
      let x = 1 / value.pairs, y = 0;
      for (let distance = 0; distance < kernel.length; distance++) {{
        kernel[distance] += x;
        const turned = x * c - y * s;
        y = x * s + y * c;
        x = turned;
      }}
    }}
    const columns = [];
    for (let i = 0; i <= {POINTS}; i++) {{
      const [first, end] = [-0.5, 0.5].map((side) => Math.ceil(Math.pow(10, {DECADES} * (i + side) / {POINTS})));
      if (first >= end) continue;
      let least = Infinity, greatest = -Infinity;
      for (let distance = first; distance < end; distance++) {{
        least = Math.min(least, kernel[distance]);
        greatest = Math.max(greatest, kernel[distance]);
      }}
      columns.push([({LEFT:g} + {STEP:g} * i).toFixed(1), least, greatest]);
    }}
    const low = Math.min(...columns.map((column) => column[1])) < {LOWS[0]:g} ? {LOWS[1]:g} : {LOWS[0]:g};
    const y = (k) => ({TOP:g} + {HIGH:g} * (1 - k) / (1 - low)).toFixed(1);
    const points = columns.flatMap(([x, least, greatest]) => [x + " " + y(least), x + " " + y(greatest)]);
    svg.querySelector("#curve").setAttribute("d", "M" + points.join("L"));
    const end = ({LEFT:g} + {STEP * POINTS:g} * value.base / {DECADES}).toFixed(1), at = -gamma / Math.log(base);
    svg.querySelector("#law").setAttribute("d", `M{LEFT:.1f} ${{y(1 + at)}}L${{end}} ${{y(at)}}`);
    {list(LEVELS)}.forEach((level, at) => {{
      const drawn = svg.querySelectorAll(".level")[at];
      drawn.setAttribute("transform", `translate(0 ${{y(level)}})`);
      drawn.setAttribute("visibility", {list(SEEN)}[Number(level >= low)]);
    }});
    svg.querySelector("#says").textContent = `base ${{base.toFixed(0)}}, ${{value.pairs}} pairs`;
    // The hands at one distance: a dot at 1/ω, as high as the cosine.
    const distance = Math.round(Math.pow(10, value.distance)), dots = ["", ""];
    const rounded = (v) => (Math.floor(10 * v + 0.5) / 10).toFixed(1);
    let count = 0;
    for (let t = 0; t < value.pairs; t++) {{
      const angle = distance * Math.pow(base, -t / value.pairs), still = angle < 1 - 1e-9;
      const x = {LEFT!r} + {STEP * POINTS!r} * value.base * t / value.pairs / {DECADES};
      const high = {HAND_TOP!r} + {HAND_HIGH!r} * (1 - Math.cos(angle)) / 2;
      dots[Number(still)] += `M${{rounded(x)}} ${{rounded(high)}}h0`;
      count += still;
    }}
    ["turning", "still"].forEach((kind, at) => svg.querySelector("#" + kind).setAttribute("d", dots[at]));
    const place = ({LEFT!r} + {STEP * POINTS!r} * Math.log10(distance) / {DECADES}).toFixed(1);
    svg.querySelector("#cut").setAttribute("transform", `translate(${{place}} 0)`);
    svg.querySelector("#at").setAttribute("cy", y(kernel[distance]));
    const seen = kernel[distance].toFixed(2).replace("-", "−");
    svg.querySelector("#counts").textContent =
      `Δ = ${{distance}}: K = ${{seen}}; not begun: ${{count}} of ${{value.pairs}} hands`;"""
    return Explorable(
        name="kernel",
        alt=f"""The kernel against the distance from 1 to 100,000, base {base:.0f}, {pairs} pairs. Up to the base it
        follows the dashed straight line of the logarithmic law from about 1 to about 0; beyond it scatters around 0.
        Below, a dot for each hand, where it begins to turn, as high as its cosine at the distance {distance}. The
        {count} hands to the right of this distance have turned by less than a radian: dots above 0.5. Those to the left
        are anywhere.""",
        caption="Above, whole distances only; where many of them share a place, the line goes from the smallest value "
        "to the largest, and the dashed line ends at the base. Below, the hands at the distance of the vertical line: "
        "blue have turned by less than a radian, grey by more. The mean height of all dots is K.",
        knobs=(
            Knob("distance", "distance Δ", 0, DECADES, log_distance, 0.05, power=10),
            Knob("base", "base", 1, DECADES, log_base, 0.1, power=10),
            Knob("pairs", "pairs of channels", 1, 128, pairs, 1),
        ),
        svg=svg,
        script=script,
    )


def _counts(distance: int, seen: float, count: int, pairs: int) -> str:
    return f"Δ = {distance}: K = {seen:.2f}; not begun: {count} of {pairs} hands".replace("-", "−")
