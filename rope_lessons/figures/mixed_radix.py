"""Figures of chapter 04."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from matplotlib.figure import Figure as MatplotlibFigure

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
    over_seeds,
    styled,
)
from rope_lessons.mixed_radix import mixed_digits, mixed_radix_frequencies
from rope_lessons.radix import ntk_frequencies, pi_frequencies
from rope_lessons.sinusoidal import rope_frequencies
from rope_lessons.stored import Table

__all__ = [
    "mixed_radix_counts",
    "mixed_radix_knob",
    "mixed_radix_shares",
    "mixed_radix_sharing",
    "mixed_radix_stability",
    "mixed_radix_sweep",
    "mixed_radix_trade",
]


@styled
def mixed_radix_sharing(
    exponents: Sequence[float] = (0.0, 0.5, 1.0, 1.5), pairs: int = 4, factor: float = 8.0
) -> tuple[MatplotlibFigure, str]:
    """How much each hand is slowed, and by whose share: a panel for each exponent."""
    figure, axes = new_figure(len(exponents), 1, height=1.6 * len(exponents) + 0.6, sharex=True, squeeze=False)
    said = []
    for axis, b in zip(axes[:, 0], exponents, strict=True):
        taken = [0.0, *(math.log2(factor) * ((t + 1) / pairs) ** b for t in range(pairs))]
        for t, color in zip(range(pairs), (BLUE, ORANGE, GREEN, PURPLE), strict=True):
            hands = range(t, pairs)  # a share slows its own hand and those to the right
            own = [taken[t + 1] - taken[t]] * len(hands)
            axis.bar(hands, own, bottom=taken[t], color=color, width=0.7, label=f"share of hand {t}")
        axis.set_ylabel("slower by")
        axis.set_yticks(range(4), ["×1", "×2", "×4", "×8"] if factor == 8 else None)
        name = _way(b)
        axis.set_title(name, fontsize=12, loc="left")
        axis.grid(axis="x", visible=False)
        slower = ", ".join(f"{2**level:.3g}" for level in taken[1:])
        said.append(f"{name}: {slower}")
    axes[-1, 0].set_xticks(range(pairs), [f"hand {t}" for t in range(pairs)])
    legend_below(figure, axes[0, 0], columns=2)
    alt = f"""Stacked bars for {pairs} hands, from fast to slow: how many times slower each turns, on a logarithmic
        scale, and the shares that make it up. A hand's own share lies on top of those of the hands to its left.
        {"; ".join(said)}."""
    return figure, alt


def _way(b: float) -> str:
    if b in (0, 1):
        return "equal shares" if b else "PI: the first takes all"
    return f"unequal shares, larger ones {'first' if b < 1 else 'last'}"


@styled
def mixed_radix_counts(length: int = 1000, bases: Sequence[int] = (10, 10, 10)) -> tuple[MatplotlibFigure, str]:
    """How often each distance occurs in a causal triangle, and how often each value of each of its digits."""
    figure, (top, bottom) = new_figure(2, 1, height=6.6, gridspec_kw={"hspace": 0.12})
    distance = torch.arange(length)
    count = length - distance
    top.fill_between(distance, count, color=SKY, alpha=0.6)
    top.plot(distance, count, color=BLUE)
    top.set_xlabel("distance Δ from key to query")
    top.set_ylabel("pairs of tokens")
    top.set_xlim(0, length)
    top.set_ylim(0, None)
    written = mixed_digits(distance, list(bases))
    names = ("units", "tens", "hundreds") if len(bases) == 3 else [f"digit {t}" for t in range(len(bases))]
    said = []
    for t, (base, name, color, marker) in enumerate(
        zip(bases, names, (BLUE, GREEN, RED, PURPLE), "os^D", strict=False)
    ):
        share = torch.zeros(base, dtype=torch.float64).index_add_(0, written[:, t], count.double()) / count.sum()
        bottom.plot(100 * share, color=color, marker=marker, label=name)
        said.append(f"{name} from {100 * share[0]:.1f} to {100 * share[-1]:.1f} percent")
    bottom.set_xlabel("value of the digit")
    bottom.set_ylabel("share of all pairs, %")
    bottom.set_ylim(0, None)
    bottom.set_xticks(range(max(bases)))
    bottom.legend()
    alt = f"""Two panels for a text of {length} tokens. Top: the number of token pairs at each distance, a straight line
        from {length} at distance 0 down to 1 at distance {length - 1}. Bottom: how often each value of a digit of the
        distance occurs, from the lowest to the highest value: {"; ".join(said)}."""
    return figure, alt


@styled
def mixed_radix_shares(dim: int = 64, factor: float = 8.0) -> tuple[MatplotlibFigure, str]:
    """The share of log κ that each pair takes, and the speeds that come of it, for some exponents."""
    figure, (top, bottom) = new_figure(2, 1, height=6.6, sharex=True)
    plain, pairs = rope_frequencies(dim), dim // 2
    styles = {0.0: ("s", GREY), 0.25: ("v", GREEN), 0.625: ("o", BLUE), 1.0: ("^", ORANGE), 2.0: ("D", RED)}
    names = {0.0: "b = 0, PI", 1.0: "b = 1, fixed"}
    for b, (marker, color) in styles.items():
        speed = mixed_radix_frequencies(dim, factor, b) / plain
        taken = -speed.log() / math.log(factor)  # by pairs 0 to t together
        own = torch.diff(taken, prepend=torch.zeros(1, dtype=torch.float64))
        label = names.get(b, f"b = {b:g}")
        top.plot(100 * own, marker=marker, color=color, label=label, markersize=4, linewidth=1.5)
        bottom.plot(speed, marker=marker, color=color, markersize=4, linewidth=1.5)
    top.set_yscale("symlog", linthresh=1, linscale=0.5)
    top.set_yticks([0, 1, 3, 10, 30, 100], ["0", "1", "3", "10", "30", "100"])
    top.set_ylabel("own share of log κ, %")
    bottom.set_yscale("log")
    bottom.set_yticks([0.125, 0.25, 0.5, 1], ["1/8", "1/4", "1/2", "1"] if factor == 8 else None)
    bottom.minorticks_off()
    bottom.set_ylabel("speed: new / old")
    bottom.set_xlabel("pair t, fast to slow")
    bottom.set_xticks(range(0, pairs, pairs // 8))
    legend_below(figure, top, columns=3)
    alt = f"""Two panels against the number of the pair, {pairs} pairs, factor {factor:g}. Top: each pair's own share of
        the factor. For b = 0 pair 0 takes all; for b = 0.25 and 0.625 the curves fall from pair 0 on; for b = 1 all
        shares are equal; for b = 2 they rise. Bottom: speed on a logarithmic scale. For b = 0 a flat line at
        1/{factor:g}; for larger b curves that start higher and meet at 1/{factor:g} on the last pair; b = 1 is a
        straight line."""
    return figure, alt


@styled
def mixed_radix_sweep(rows: Table, factors: Sequence[float]) -> tuple[MatplotlibFigure, str]:
    """Accuracy on the long text against the exponent b, a curve for each factor; rows of ``mixed_radix.json``."""
    figure, axis = new_figure(height=4.4)
    said = []
    styles = zip(factors, (BLUE, GREEN, ORANGE, RED, PURPLE), "osD^v", strict=False)
    for factor, color, marker in styles:
        by_method = rows.where(factor=factor, scale="plain", text="plain", length=512).by("method")
        by_exponent = {float(name[6:]): found for name, found in by_method.items() if name.startswith("mixed-")}
        b = sorted(by_exponent)
        found = [[100 * value for value in by_exponent[exponent]["accuracy"]] for exponent in b]
        mean = over_seeds(axis, b, found, color=color, marker=marker, label=f"κ = {factor:g}")
        best = mean.index(max(mean))
        said.append(f"factor {factor:g}: {mean[0]:.0f} at b = 0, highest {mean[best]:.1f} at b = {b[best]:g}")
    axis.axvline(0.625, color="black", linewidth=1, linestyle="--")
    axis.text(0.64, axis.get_ylim()[0], "0.625", va="bottom")
    axis.set_xlabel("exponent b")
    axis.set_ylabel("next byte right, %")
    legend_below(figure, axis, columns=3)
    alt = f"""Accuracy over 512 bytes against the exponent b, one curve for each factor, mean of the seeds with bars
        from worst to best. In percent: {"; ".join(said)}. The larger the factor, the larger the best exponent."""
    return figure, alt


@styled
def mixed_radix_trade(found: Mapping[float, Mapping[float, Sequence[float]]]) -> tuple[MatplotlibFigure, str]:
    """What is right far out against what is right at home, a line for each exponent, a point for each factor.

    Args:
        found: for each exponent b, by factor, percent of the bytes at the training length and at eight times that.
    """
    figure, axis = new_figure(height=4.4)
    said = []
    styles = zip(found.items(), (BLUE, ORANGE, RED), "o^D", strict=False)
    for (b, by_factor), color, marker in styles:
        home, far = zip(*by_factor.values(), strict=True)
        axis.plot(home, far, color=color, marker=marker, markersize=8, label=f"b = {b:g}")
        for factor, x, y in zip(by_factor, home, far, strict=True):
            last = b == max(found)  # what stands beside a point is not to lie on a line
            offset, side = ((0, 9), "center") if y == max(far) else ((9, -4), "left") if last else ((-9, -4), "right")
            axis.annotate(f"{factor:.3g}", (x, y), offset, textcoords="offset points", ha=side, color=color)
        points = zip(by_factor, home, far, strict=True)
        said.append(f"b = {b:g}: " + ", ".join(f"factor {factor:.3g}, {x:.0f} and {y:.0f}" for factor, x, y in points))
    axis.margins(x=0.18, y=0.14)
    axis.set_xlabel("right at 64 bytes, %")
    axis.set_ylabel("right at 512 bytes, %")
    legend_below(figure, axis, columns=3)
    alt = f"""Percent of the bytes right at 512 bytes against that at 64, a line for each exponent b and a point for
        each factor; up and to the right is better. At 64 and at 512 bytes, in percent: {"; ".join(said)}."""
    return figure, alt


@styled
def mixed_radix_stability(dim: int = 64, train_length: int = 64, factor: float = 8.0) -> tuple[MatplotlibFigure, str]:
    """The share of pairs that have not gone round within a length, which document 003 calls stability."""
    figure, axis = new_figure(height=4.2)
    methods = {
        "plain RoPE": (rope_frequencies(dim), GREY, "-"),
        "fixed": (ntk_frequencies(dim, factor), ORANGE, "-"),
        "mixed, b = 0.625": (mixed_radix_frequencies(dim, factor), BLUE, "-"),
        "PI": (pi_frequencies(dim, factor), RED, "-"),
    }
    lengths = torch.logspace(0, math.log10(80_000), 800, dtype=torch.float64)
    said = []
    for name, (frequencies, color, line) in methods.items():
        period = 2 * math.pi / frequencies
        share = (lengths.unsqueeze(-1) < period).double().mean(-1)
        axis.step(lengths, share, line, color=color, label=name, linewidth=1.8)
        at = float((train_length * factor < period).double().mean())
        said.append(f"{name} {at:.2f}")
    axis.plot(lengths, (1 - (lengths / (2 * math.pi)).log() / math.log(10_000)).clamp(0, 1), ":", color="black")
    axis.axvline(train_length * factor, color="black", linewidth=1, linestyle="--")
    axis.set_xscale("log")
    axis.set_xlim(1, 80_000)
    axis.set_ylim(0, 1.02)
    axis.set_xlabel("length")
    axis.set_ylabel("pairs that have not gone round")
    legend_below(figure, axis)
    alt = f"""Share of the pairs that do not go round within a length, against the length on a logarithmic scale, as
        falling staircases from 1 to 0. At length {train_length * factor:g}, marked by a dashed line: {"; ".join(said)}.
        A dotted straight line, the formula with the logarithm, follows the staircase of plain RoPE."""
    return figure, alt


# --- the explorable: one knob b ------------------------------------------------------------------------------------

PAIRS, FIRST, TRAINED = 16, 5, 64  # of the scoreboard's model: pair 5 is the first that does not go round in 64 bytes
LEFT, RIGHT = 66, 629.2  # 35.2 for a pair: no coordinate lies half-way between two roundings
TOP, HIGH = 64, 216  # the panel of the speeds: 24 for a doubling
FLOOR, BARS = 502, 120  # the panel of the shares
MOST = 9  # doublings of the largest factor, 512


def _taken(t: int, b: float) -> float:
    """The share of log κ that pairs 0 to t take together."""
    return ((t + 1) / PAIRS) ** b


def _x(t: float) -> float:
    return LEFT + (RIGHT - LEFT) * (t + 0.5) / PAIRS


def _y(taken: float, factor: float) -> float:
    """A logarithmic axis: speed 1 on top, 1 over the largest factor at the bottom, whatever κ is."""
    return TOP + HIGH * taken * math.log2(factor) / MOST


def _line(b: float, factor: float) -> str:
    return " ".join(f"{_x(t):.1f},{_y(_taken(t, b), factor) + 1e-9:.1f}" for t in range(PAIRS))


def _rival(b: float) -> float:
    """What equal shares take of log κ to reach as far: ln κ̃ / ln κ."""
    return _taken(FIRST, b) / _taken(FIRST, 1)


def _rival_line(b: float, factor: float) -> str:
    """Its speeds, down to the border of the panel: there the line ends, also between two pairs."""
    levels = [_y(_taken(t, 1) * _rival(b), factor) for t in range(PAIRS)]
    places: list[tuple[float, float]] = []
    for t, level in enumerate(levels):
        if level > TOP + HIGH + 1e-6:  # never at pair 0
            part = (TOP + HIGH - levels[t - 1]) / (level - levels[t - 1])
            places.append((_x(t - 1 + part), TOP + HIGH))
            break
        places.append((_x(t), level))
    return " ".join(f"{x + 1e-9:.1f},{y + 1e-9:.1f}" for x, y in places)


def _bar(t: int, b: float) -> tuple[float, float]:
    """Top and height of a bar: a pair's own share of log κ; a share of a quarter and more fills the panel."""
    own = _taken(t, b) - (_taken(t - 1, b) if t else 0)
    height = min(BARS, BARS * 4 * own)
    return FLOOR - height, height


def _summary(b: float, factor: float) -> tuple[str, str, str]:
    fast, reach = factor ** -_taken(0, b), 1 + (TRAINED - 1) * factor ** _taken(FIRST, b)
    rival = factor ** (-_taken(0, 1) * _rival(b))
    # The small number rounds halves up, as the script's toFixed does with these values.
    return (
        f"fastest hand at {fast + 1e-9:.2f} of its speed",
        f"reach {reach + 1e-9:.0f} of {TRAINED}κ = {TRAINED * factor:g} bytes",
        "the rival is the same line" if b == 1 else f"the rival's at {rival + 1e-9:.2f}",
    )


KNOB_SCRIPT = r"""
    const b = value.exponent, k = Math.pow(2, value.factor);
    const taken = (t, e) => Math.pow((t + 1) / 16, e);
    const own = (t) => taken(t, b) - (t ? taken(t - 1, b) : 0);
    const x = (t) => 66 + 35.2 * (t + 0.5), y = (s) => 64 + 216 * s * value.factor / 9;
    const more = taken(5, b) / taken(5, 1);
    const lines = {
      speed: (t) => y(taken(t, b)), flat: (t) => y(taken(t, 0)), rival: (t) => y(taken(t, 1) * more),
    };
    for (const [name, height] of Object.entries(lines)) {
      const points = [], point = (t, h) => points.push(`${(x(t) + 1e-9).toFixed(1)},${(h + 1e-9).toFixed(1)}`);
      for (let t = 0; t < 16; t++) {
        if (height(t) > 280 + 1e-6) {  // the line ends at the border of the panel
          point(t - 1 + (280 - height(t - 1)) / (height(t) - height(t - 1)), 280);
          break;
        }
        point(t, height(t));
      }
      svg.querySelector("." + name).setAttribute("points", points.join(" "));
    }
    svg.querySelectorAll(".share").forEach((bar, t) => {
      const height = Math.min(120, 120 * 4 * own(t));
      bar.setAttribute("y", (502 - height + 1e-9).toFixed(1));
      bar.setAttribute("height", height.toFixed(1));
    });
    const fast = Math.pow(k, -taken(0, b)), reach = 1 + 63 * Math.pow(k, taken(5, b));
    const ofRival = Math.pow(k, -taken(0, 1) * more);
    svg.querySelector(".fast").textContent = `fastest hand at ${(fast + 1e-9).toFixed(2)} of its speed`;
    svg.querySelector(".fast-rival").textContent =
      b === 1 ? "the rival is the same line" : `the rival's at ${(ofRival + 1e-9).toFixed(2)}`;
    svg.querySelector(".reach").textContent = `reach ${(reach + 1e-9).toFixed(0)} of 64κ = ${64 * k} bytes`;
    svg.querySelector(".bottom").textContent = `1/${k}`;
    svg.querySelector(".bottom").setAttribute("y", (y(1) + 7).toFixed(1));
    svg.querySelector(".title").textContent = `b = ${b}, factor ${k}`;
"""


def mixed_radix_knob(exponent: float = 0.625, factor: int = 8) -> Explorable:
    """Speeds and shares of the scoreboard's 16 hands under the exponent b, and those of its rival.

    Args:
        exponent: b at first.
        factor: κ at first; a power of two from 2 to 512.
    """
    if factor not in [2**power for power in range(1, MOST + 1)]:
        raise ValueError(f"factor must be a power of two from 2 to {2**MOST}, got {factor}")
    fast, reach, rival = _summary(exponent, factor)
    bars = "".join(
        f'<rect class="share" x="{_x(t) - 12:.1f}" y="{_bar(t, exponent)[0] + 1e-9:.1f}" width="24" '
        f'height="{_bar(t, exponent)[1]:.1f}" fill="{BLUE}"/>'
        for t in range(PAIRS)
    )
    dotted = f'fill="none" stroke="{GREY}" stroke-width="2" stroke-dasharray="3 5"'
    opened = LEFT + (RIGHT - LEFT) * FIRST / PAIRS
    svg = (
        '<svg viewBox="-14 0 654 546" style="width:100%;max-width:500px;height:auto;background:none;'
        'display:block;margin:auto" font-family="sans-serif" '
        'font-size="23" fill="#1a1a1a">'
        f'<text x="320" y="26" text-anchor="middle" font-weight="bold" class="title">'
        f"b = {exponent:g}, factor {factor}</text>"
        f'<rect x="{opened:.1f}" y="{TOP}" width="{RIGHT - opened:.1f}" height="{HIGH}" '
        f'fill="{ORANGE}" opacity="0.15"/>'
        f'<text x="{RIGHT - 4:.1f}" y="{TOP - 8}" text-anchor="end">open hands</text>'
        f'<text x="{LEFT}" y="{TOP - 8}">speed</text>'
        f'<line x1="{LEFT}" y1="{TOP}" x2="{RIGHT}" y2="{TOP}" stroke="#999"/>'
        f'<line x1="{LEFT}" y1="{TOP + HIGH}" x2="{RIGHT}" y2="{TOP + HIGH}" stroke="#999"/>'
        f'<text x="{LEFT - 8}" y="{TOP + 7}" text-anchor="end">1</text>'
        f'<text x="{LEFT - 8}" y="{_y(1, factor) + 7:.1f}" text-anchor="end" class="bottom">1/{factor}</text>'
        f'<polyline class="flat" points="{_line(0, factor)}" {dotted}/>'
        f'<polyline class="rival" points="{_rival_line(exponent, factor)}" fill="none" stroke="{ORANGE}" '
        'stroke-width="3" stroke-dasharray="9 5"/>'
        f'<polyline class="speed" points="{_line(exponent, factor)}" fill="none" stroke="{BLUE}" stroke-width="4"/>'
        f'<text x="{LEFT}" y="{TOP + HIGH + 34}" class="fast">{fast}</text>'
        f'<text x="{LEFT}" y="{TOP + HIGH + 60}" class="fast-rival" fill="{ORANGE}">{rival}</text>'
        f'<text x="{LEFT}" y="{TOP + HIGH + 86}" class="reach">{reach}</text>'
        f"{bars}"
        f'<line x1="{LEFT}" y1="{FLOOR}" x2="{RIGHT}" y2="{FLOOR}" stroke="#999"/>'
        f'<text x="{LEFT - 8}" y="{FLOOR - BARS + 14}" text-anchor="end">1/4</text>'
        f'<text x="{LEFT - 8}" y="{FLOOR + 7}" text-anchor="end">0</text>'
        f'<text x="{RIGHT}" y="{FLOOR - BARS + 14}" text-anchor="end">own share of log κ</text>'
        f'<text x="{LEFT}" y="{FLOOR + 28}">hand 0</text>'
        f'<text x="{RIGHT}" y="{FLOOR + 28}" text-anchor="end">hand {PAIRS - 1}</text></svg>'
    )
    alt = """Two panels for the 16 hands of the model. Upper panel: speed against hand, on a logarithmic scale from 1
        down to 1/512. A blue curve for the chosen exponent b, a dotted grey line for b = 0, flat at 1 over the factor,
        and a dashed orange line for equal shares with the same reach, down to the border. Blue and orange
        cross at hand 5; for b below 1 orange is above blue before it. Hands 5 to 15 are shaded: they do not go round in
        training. Lower panel: bars, the share of the factor that each hand takes. They fall from left to right
        for b below 1, are equal at 1 and rise beyond. With b = 0.625 and a factor of 8 the fastest hand keeps 0.69 of
        its speed, the rival's 0.83, and the reach is 195 of 512 bytes."""
    caption = """Blue: the speed of each hand, on a scale of halvings, and below it the hand's own share of log κ, up to
        a quarter. Orange: the rival, down to 1/512. Dotted: PI. Shaded: open hands."""
    knobs = (
        Knob("exponent", "exponent b", 0, 2, exponent, 0.125),
        Knob("factor", "factor κ", 1, MOST, round(math.log2(factor)), power=2),
    )
    return Explorable("mixed-radix-knob", alt, caption, knobs, svg, KNOB_SCRIPT)
