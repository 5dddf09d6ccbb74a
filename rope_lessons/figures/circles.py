"""Figures of chapter 05."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.figure import Figure as MatplotlibFigure

from rope_lessons.circles import llama3_frequencies, ntk_by_parts_frequencies, turns, yarn_frequencies
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
    legend_below,
    new_figure,
    over_seeds,
    styled,
)
from rope_lessons.hf.released import known
from rope_lessons.radix import ntk_frequencies, pi_frequencies
from rope_lessons.sinusoidal import rope_frequencies
from rope_lessons.stored import Table

__all__ = ["circles_longrope", "circles_ramps", "circles_speeds", "circles_tax", "circles_temperature", "circles_turns"]


@styled
def circles_turns(dim: int = 128, train_length: int = 4096) -> tuple[MatplotlibFigure, str]:
    """How many turns each pair makes within the training length, and where 1 and 32 turns lie."""
    figure, axis = new_figure(height=3.9)
    done = turns(rope_frequencies(dim), train_length)
    groups = ((done >= 32, BLUE, "o", "32 turns or more"), ((done >= 1) & (done < 32), GREEN, "s", "1 to 32 turns"))
    for chosen, color, marker, name in (*groups, (done < 1, RED, "^", "not once round")):
        t = chosen.nonzero().flatten()
        label = f"{name}: {len(t)} pairs"
        axis.plot(t, done[t], marker, color=color, label=label, linestyle="none", markersize=5)
    for limit in (1, 32):
        axis.axhline(limit, color="black", linewidth=1, linestyle="--")
        axis.text(dim / 2 - 0.5, limit * 1.15, f"{limit} turn{'s' * (limit > 1)}", ha="right", va="bottom")
    axis.set_yscale("log")
    axis.set_xlabel("pair t, fast to slow")
    axis.set_ylabel(f"turns in {train_length:,} positions")
    legend_below(figure, axis, columns=1)
    alt = f"""Turns of each pair within {train_length} positions, on a logarithmic scale, for d = {dim}: a straight
        falling line of {dim // 2} points, from {float(done[0]):.0f} turns for pair 0 to {float(done[-1]):.2f} for the
        last. {int((done >= 32).sum())} pairs make 32 turns or more, {int(((done >= 1) & (done < 32)).sum())} between 1
        and 32, and {int((done < 1).sum())} do not go round once."""
    return figure, alt


@styled
def circles_ramps(dim: int = 128, train_length: int = 4096, factor: float = 8.0) -> tuple[MatplotlibFigure, str]:
    """The speed of each pair: the paper's ramp, the code's ramp, Llama-3's, between PI and NTK-aware."""
    figure, axis = new_figure(height=4.4)
    plain = rope_frequencies(dim)
    speeds = {
        "PI": pi_frequencies(dim, factor),
        "NTK-aware": ntk_frequencies(dim, factor, variant="aware"),
        "paper, 1 to 32 turns": ntk_by_parts_frequencies(dim, factor, train_length),
        "code, 1 to 32 turns": yarn_frequencies(dim, factor, train_length),
        "Llama-3, 1 to 4 turns": llama3_frequencies(dim, factor, train_length),
    }
    speeds = {name: frequencies / plain for name, frequencies in speeds.items()}
    styles = (("-", GREY), ("--", GREY), ("-o", BLUE), ("-s", ORANGE), ("-^", GREEN))
    for speed, (line, color) in zip(speeds.values(), styles, strict=True):
        axis.plot(speed, line, color=color, markersize=4)
    last = dim // 2 - 1
    axis.text(0, 1.05 / factor, "PI", va="bottom")
    axis.text(0.03 * last, factor**-0.4, "NTK-aware", va="center")
    for name, height, across, side in (("Llama-3, 1", 0.9, 0.75, "left"), ("code, 1", 0.6, 0.75, "left"),
                                       ("paper, 1", 0.2, 0.3, "right")):  # fmt: skip
        speed = next(of for key, of in speeds.items() if key.startswith(name))
        level = factor ** (height - 1)
        pair = int((speed - level).abs().argmin())
        axis.annotate(name.split(",")[0].replace("-", " "), (pair, float(speed[pair])), xytext=(across * last, level),
                      ha=side, va="center", arrowprops={"arrowstyle": "-", "color": GREY, "shrinkB": 4})  # fmt: skip
    axis.set_yscale("log")
    ticks = {1 / 8: "1/8", 1 / 4: "1/4", 1 / 2: "1/2", 1.0: "1"} if factor == 8 else {1 / factor: "1/κ", 1.0: "1"}
    axis.set_yticks(list(ticks), list(ticks.values()))
    axis.minorticks_off()
    axis.set_xlabel("pair t, fast to slow")
    axis.set_ylabel("speed: new / old")
    paper, code = speeds["paper, 1 to 32 turns"], speeds["code, 1 to 32 turns"]
    widest = int((code / paper).argmax())
    alt = f"""Speed of each pair on a logarithmic scale, for d = {dim}, a training length of {train_length} and a factor
        of {factor:g}. Position interpolation is flat at 1/{factor:g}, NTK-aware a straight falling line. The other
        three keep the speed 1 for the fast pairs and 1/{factor:g} for the slow ones. Between them the paper's ramp
        falls early and hangs low, the code's ramp stays high and falls late: at pair {widest} the speeds are
        {float(paper[widest]):.2f} and {float(code[widest]):.2f}. Llama-3's ramp is short and steep."""
    return figure, alt


# Where a name stands that would be in the way to the left of its point: offsets, and where the point is from it.
BESIDE = {
    "by-parts": (0, 22, "center", "bottom"),
    "pi": (0, 11, "center", "bottom"),
    "ntk-aware-temperature": (4, 20, "right", "bottom"),
    "llama3": (-9, -2, "right", "top"),
    "yarn-ramp": (-9, 2, "right", "bottom"),
    "llama3-temperature": (-4, -9, "right", "top"),
    "yarn-request": (6, 10, "right", "bottom"),
}


@styled
def circles_tax(rows: Table, names: Mapping[str, str]) -> tuple[MatplotlibFigure, str]:
    """Accuracy at 8 times the training length against accuracy at the training length, a point for each method.

    ``rows`` as in ``data/circles.json``; ``names`` maps a method to its name beside the point.
    """
    figure, axis = new_figure(height=5.0)
    lengths = sorted(set(rows["length"]))
    said = []
    colors = (GREY, GREY, BLUE, BLUE, ORANGE, ORANGE, GREEN, GREEN, RED, PURPLE, SKY)
    for (method, name), color, marker in zip(names.items(), colors, "osD^vXP*<>h", strict=False):
        points = []
        for length in (lengths[0], lengths[-1]):
            found = rows.where(method=method, length=length)["accuracy"]
            points.append(100 * torch.tensor(found, dtype=torch.float64))
        (x, y), spread = (
            [float(p.mean()) for p in points],
            [[[float(p.mean() - p.min())], [float(p.max() - p.mean())]] for p in points],
        )
        axis.errorbar(x, y, yerr=spread[1], xerr=spread[0], color=color, marker=marker, markersize=8,
                      linestyle="none", elinewidth=1)  # fmt: skip
        dx, dy, side, upright = BESIDE.get(method, (-9, 0, "right", "center"))
        axis.annotate(name, (x, y), xytext=(dx, dy), textcoords="offset points", ha=side, va=upright, fontsize=12)
        said.append(f"{name} {x:.0f} and {y:.0f}")
    axis.set_xlabel(f"next byte right at {lengths[0]} bytes, %")
    axis.set_ylabel(f"at {lengths[-1]} bytes, %")
    axis.margins(x=0.12, y=0.1)
    alt = f"""Accuracy at {lengths[-1]} bytes against accuracy at {lengths[0]} bytes, the training length; one point for
        each method, mean over the seeds with bars from worst to best. In percent, short and long: {"; ".join(said)}."""
    return figure, alt


@styled
def circles_longrope(name: str = "Phi-3.5 mini") -> tuple[MatplotlibFigure, str]:
    """The two factors of each pair of a model with LongRoPE, and YaRN's factor for the same stretch.

    ``name`` of ``rl.hf.models``.
    """
    model = known(name)
    spec = next(of for layer in model.plan() if (of := layer.frequencies) is not None and of.kind == "longrope")
    options: dict[str, Any] = dict(spec.options)
    length, base = options["train_length"], options["base"]
    if model.claimed is None:
        raise ValueError(f"name must be of a model whose longest text is known, got {name!r}")
    factor = model.claimed / length
    plain = rope_frequencies(spec.dim, base)
    yarn = plain / yarn_frequencies(spec.dim, factor, length, base)
    short, long = (torch.tensor(options[f"{which}_factor"], dtype=torch.float64) for which in ("short", "long"))
    figure, axis = new_figure(height=4.2)
    last = len(plain) - 1
    above = {"xytext": (0, 9), "ha": "center", "va": "bottom"}
    lines = (
        ("long texts", long, "-o", ORANGE, 0.75, above),
        ("YaRN", yarn, "-s", BLUE, 0.85, {"xytext": (0, -9), "ha": "center", "va": "top"}),
        ("short texts", short, "-^", GREEN, 0.75, above),
    )
    for said, factors, line, color, across, place in lines:
        axis.plot(factors, line, color=color, markersize=4)
        pair = round(across * last)
        at = (pair, float(factors[pair]))
        axis.annotate(said, at, textcoords="offset points", fontsize=12, **place)
    once = int((turns(plain, length) >= 1).sum()) - 0.5
    axis.axvline(once, color="black", linewidth=1, linestyle="--")
    axis.set_yscale("log", base=2)
    axis.set_yticks([1, 2, 4, 8, 16, 32, 64], ["1", "2", "4", "8", "16", "32", "64"])
    axis.set_ylim(0.9, 110)
    axis.minorticks_off()
    axis.set_xlabel("pair t, fast to slow")
    axis.set_ylabel("factor: slower by")
    alt = f"""The factor by which each of the {last + 1} pairs of {name} is slowed, on a logarithmic scale. For long
        texts it rises from {float(long[0]):.2f} at the first pair to {float(long[last // 2]):.0f} in the middle and
        {float(long[-1]):.0f} at the last; for short ones from {float(short[0]):.2f} to {float(short[-1]):.2f}. YaRN
        with a factor of {factor:.0f} stays at 1 for the first {int((yarn < 1 + 1e-9).sum())} pairs and reaches
        {float(yarn[-1]):.0f} right of the dashed line, where pairs have not been round once."""
    return figure, alt


@styled
def circles_temperature(rows: Table, rule: float) -> tuple[MatplotlibFigure, str]:
    """Accuracy against the attention factor: at the training length and at 8 times that.

    ``rows`` with ``attention_factor``, ``method``, ``length`` and ``accuracy``; ``rule`` is YaRN's attention factor.
    """
    figure, axis = new_figure(height=4.2)
    said = []
    lines = (
        ("rope", 64, GREY, ":o"),
        ("rope", 512, GREY, "-o"),
        ("yarn", 64, ORANGE, ":s"),
        ("yarn", 512, ORANGE, "-s"),
    )
    for method, length, color, line in lines:
        by_factor = rows.where(method=method, length=length).by("attention_factor")
        factors = sorted(by_factor)
        found = [[100 * value for value in by_factor[factor]["accuracy"]] for factor in factors]
        name = f"{'plain RoPE' if method == 'rope' else 'YaRN'}, {length} bytes"
        mean = over_seeds(axis, factors, found, fmt=line, color=color, label=name)
        best = factors[mean.index(max(mean))]
        said.append(f"{name}: {mean[0]:.0f} at {factors[0]:g}, highest {max(mean):.0f} at {best:g}")
    axis.axvline(rule, color="black", linewidth=1, linestyle="--")
    axis.text(rule + 0.005, 2, f"YaRN's rule, {rule:.2f}", va="bottom")
    axis.set_ylim(0, None)
    axis.set_xlabel("attention factor ν")
    axis.set_ylabel("next byte right, %")
    legend_below(figure, axis)
    alt = f"""Accuracy against the attention factor, mean over the seeds with bars from worst to best, for plain RoPE
        and for YaRN's frequencies with a factor of 8, each at 64 and at 512 bytes. A dashed line marks YaRN's rule. In
        percent: {"; ".join(said)}."""
    return figure, alt


# --- the explorable: the turns of each pair, and what two ramps make of them ---------------------------------------

PAIRS = 32  # d = 64, base 10,000
LEFT, RIGHT, TOP, BOTTOM = 70.0, 620.0, 60.0, 300.0  # of the plot
MOST, LEAST = 1e5, 1e-3  # turns at the left and the right end


def _across(done: float) -> float:
    """Where a number of turns stands, many turns at the left."""
    return LEFT + (RIGHT - LEFT) * (math.log10(MOST) - math.log10(done)) / math.log10(MOST / LEAST)


def _down(speed: float) -> float:
    return TOP + (BOTTOM - TOP) * (1 - speed)


def _speeds(factor: float, fast: float, train_length: float) -> tuple[list[float], list[float], list[float]]:
    """Turns of every pair, its speed by the paper's ramp (1 to ``fast`` turns), and by the code's."""
    done = [train_length * 10_000 ** (-t / PAIRS) / (2 * math.pi) for t in range(PAIRS)]
    low = max(math.floor(PAIRS * math.log(done[0] / fast) / math.log(10_000)), 0)
    high = min(math.ceil(PAIRS * math.log(done[0]) / math.log(10_000)), 2 * PAIRS - 1)
    paper, code = [], []
    for t in range(PAIRS):
        keep = min(max((done[t] - 1) / (fast - 1), 0), 1)
        paper.append(keep + (1 - keep) / factor)
        keep = 1 - min(max((t - low) / (high - low if high > low else 0.001), 0), 1)
        code.append(keep + (1 - keep) / factor)
    return done, paper, code


def _dots(xs: Sequence[float], speeds: Sequence[float], color: str, name: str) -> str:
    if name == "paper":
        shape = '<circle class="paper" cx="{x:.1f}" cy="{y:.1f}" r="7" fill="none" stroke="{c}" stroke-width="3"/>'
    else:
        shape = '<circle class="code" cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{c}"/>'
    return "".join(shape.format(x=x, y=_down(s), c=color) for x, s in zip(xs, speeds, strict=True))


CIRCLES_SCRIPT = r"""
    const k = value.factor, fast = value.fast, N = Math.pow(2, value.log_length), P = 32;
    const across = (r) => 70 + 550 * (5 - Math.log10(r)) / 8, down = (s) => 60 + 240 * (1 - s);
    const papers = svg.querySelectorAll(".paper"), codes = svg.querySelectorAll(".code");
    const first = N / (2 * Math.PI), whole = Math.log(10000);
    const low = Math.max(Math.floor(P * Math.log(first / fast) / whole), 0);
    const high = Math.min(Math.ceil(P * Math.log(first) / whole), 2 * P - 1);
    const clip = (x) => Math.min(Math.max(x, 0), 1);
    let open = 0;
    for (let t = 0; t < P; t++) {
      const r = first * Math.pow(10000, -t / P), x = across(r).toFixed(1);
      open += r < 1 ? 1 : 0;
      const paper = clip((r - 1) / (fast - 1)), code = 1 - clip((t - low) / (high > low ? high - low : 0.001));
      papers[t].setAttribute("cx", x);
      papers[t].setAttribute("cy", down(paper + (1 - paper) / k).toFixed(1));
      codes[t].setAttribute("cx", x);
      codes[t].setAttribute("cy", down(code + (1 - code) / k).toFixed(1));
    }
    const line = svg.querySelector(".fast"), name = svg.querySelector(".fast-name"), x = across(fast).toFixed(1);
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    name.setAttribute("x", x);
    name.textContent = `${fast}`;
    svg.querySelector(".title").textContent = `${open} of 32 pairs never went round in ${N} positions`;
"""


def circles_speeds(factor: int = 8, fast: int = 32, log_length: int = 12) -> Explorable:
    """The speed of 32 pairs (d = 64, base 10,000) against their turns, by the paper's ramp and by the code's."""
    done, paper, code = _speeds(factor, fast, 2**log_length)
    xs = [_across(r) for r in done]
    unseen = sum(r < 1 for r in done)
    ticks = "".join(
        f'<text x="{_across(10.0**p):.1f}" y="326">{10**p if p >= 0 else f"1/{10**-p}"}</text>' for p in range(-2, 5, 2)
    )
    levels = "".join(
        f'<line x1="{LEFT}" x2="{RIGHT}" y1="{_down(s):.1f}" y2="{_down(s):.1f}" stroke="#d0d0d0"/>'
        f'<text x="{LEFT - 12}" y="{_down(s) + 7:.1f}" text-anchor="end">{name}</text>'
        for s, name in ((1, "1"), (0.5, "1/2"), (0, "0"))
    )
    limits = "".join(
        f'<line x1="{_across(r):.1f}" x2="{_across(r):.1f}" y1="{TOP}" y2="{BOTTOM}" stroke="#666" '
        f'stroke-dasharray="6 5"{extra}/>'
        for r, extra in ((1, ""), (fast, ' class="fast"'))
    )
    svg = (
        '<svg viewBox="0 0 640 410" style="width:100%;height:auto;background:none" font-family="sans-serif" '
        'font-size="22" text-anchor="middle" fill="#1a1a1a">'
        f'<text x="320" y="24" class="title" font-weight="bold">'
        f"{unseen} of 32 pairs never went round in {2**log_length} positions</text>"
        f'<text x="{_across(1):.1f}" y="50">1</text>'
        f'<text x="{_across(fast):.1f}" y="50" class="fast-name">{fast}</text>'
        f"{levels}{limits}{ticks}{_dots(xs, paper, BLUE, 'paper')}{_dots(xs, code, RED, 'code')}"
        '<text x="345" y="352">turns within the training length (fast pairs left)</text>'
        f'<circle cx="120" cy="384" r="7" fill="none" stroke="{BLUE}" stroke-width="3"/>'
        '<text x="136" y="391" text-anchor="start">speed, paper</text>'
        f'<circle cx="370" cy="384" r="4.5" fill="{RED}"/><text x="386" y="391" text-anchor="start">speed, code</text>'
        "</svg>"
    )
    alt = """A plot of 32 points for each of two ramps: the speed of a pair, from 0 to 1, against the number of turns it
        makes within the training length, many turns at the left. With a factor of 8, an upper limit of 32 turns and a
        training length of 4096, pairs with more than 32 turns keep the speed 1 and the 9 pairs with less than one turn
        have the speed 1/8. Between the two limits the paper's points drop at once and run low, the code's points go
        down in a straight line."""
    caption = """Rings: the paper's ramp, linear in the number of turns. Dots: the ramp of the code, linear in the
        number of the pair. Dashed: 1 turn, and the upper limit. Move the limit from 32 to 4 and watch rings and dots
        come together. Then set it back and press the training length of 64: the paper's rings leave the top,
        even for the fastest pair; the dots do not."""
    knobs = (
        Knob("factor", "factor κ", 1, 32, factor),
        Knob("fast", "upper limit, turns", 2, 64, fast),
        Choice("log_length", "training length", {n: f"{2**n}" for n in (6, 9, 12, 13, 15)}, log_length),
    )
    return Explorable("circles-speeds", alt, caption, knobs, svg, CIRCLES_SCRIPT)
