"""Figures of chapter 03."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

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
    legend_below,
    new_figure,
    over_seeds,
    spoken,
    styled,
)
from rope_lessons.radix import decode_position, ntk_frequencies, pi_frequencies
from rope_lessons.sinusoidal import rope_frequencies
from rope_lessons.stored import Table

__all__ = [
    "radix_accuracy",
    "radix_budget",
    "radix_digits",
    "radix_noise",
    "radix_places",
    "radix_ratios",
    "radix_reading",
]


@styled
def radix_digits(base: int = 10, length: int = 3) -> tuple[MatplotlibFigure, str]:
    """Digit t of n, and the hand with frequency base**-t, both as the share of a turn that is done."""
    figure, axes = new_figure(length, 1, height=1.6 * length + 0.7)
    names = ("units", "tens", "hundreds") if base == 10 else [f"digit {t}" for t in range(length)]
    for t, axis in enumerate(axes):
        n = torch.arange(4 * base ** (t + 1) + 1)
        digit = (n // base**t) % base
        axis.step(n, digit / base, where="post", color=BLUE, label=f"digit / {base}")
        n = torch.linspace(0, 4 * base ** (t + 1), 2001, dtype=torch.float64)
        turned = (n * base**-t / (2 * math.pi)) % 1
        turned[1:][turned.diff() < 0] = math.nan  # no line where the hand passes the top
        axis.plot(n, turned, color=ORANGE, label="hand, share of its turn")
        axis.set_ylabel(names[t])
        axis.set_ylim(-0.05, 1.05)
        axis.set_yticks([0, 0.5, 1])
    axes[-1].set_xlabel("n (each row covers ten times more)" if base == 10 else "n")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    alt = f"""{length} rows of saw teeth against n. In each row a staircase, the digit of n in base {base}, climbs in
        {base} steps and falls back to zero, and a smooth ramp, the turn of a hand, climbs and falls back somewhat
        earlier, after 6.28 instead of {base} steps. Every row looks the same, with an axis {base} times longer."""
    return figure, alt


@styled
def radix_noise(dims: Sequence[int] = (4, 8, 16, 64)) -> tuple[MatplotlibFigure, str]:
    """Share of positions that are decoded to the right turn, against the largest error of the angles."""
    figure, axis = new_figure(height=4.0)
    generator = torch.Generator().manual_seed(0)
    positions = torch.randint(0, 280, (2000,), generator=generator)
    sizes = torch.logspace(-2.3, math.log10(2.5), 60, dtype=torch.float64)
    for dim, color in zip(dims, (BLUE, ORANGE, GREEN, PURPLE), strict=False):
        frequencies = rope_frequencies(dim)
        shares = [_share_decoded(positions, frequencies, float(size), generator) for size in sizes]
        radix = float(frequencies[0] / frequencies[1])
        axis.plot(sizes, shares, color=color, label=f"d = {dim}, β = {radix:.3g}")
        axis.axvline(math.pi / (1 + radix), color=color, linestyle=":", linewidth=1.5)
    axis.set_xscale("log")
    axis.set_xticks([0.01, 0.1, 1], ["0.01", "0.1", "1"])
    axis.set_xlabel("largest error of an angle, radians")
    axis.set_ylabel("decoded to the right turn")
    legend_below(figure, axis)
    alt = """Share of positions decoded to the right turn against the largest error of the angles, one curve for each
        number of channels. Each curve stays at 1 up to its dotted line, the bound pi over one plus beta, and falls
        beyond it: near 0.03 radians for d = 4, 0.29 for d = 8, 0.75 for d = 16 and 1.35 for d = 64."""
    return figure, alt


def _share_decoded(positions: Tensor, frequencies: Tensor, size: float, generator: torch.Generator) -> float:
    errors = (2 * torch.rand(len(positions), len(frequencies), generator=generator, dtype=torch.float64) - 1) * size
    angles = positions.unsqueeze(-1) * frequencies + errors
    encoding = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
    missed = (decode_position(encoding, frequencies) - positions).abs()
    return float((missed <= size + 1e-9).double().mean())  # only the error of the fastest hand is left


@styled
def radix_ratios(dim: int = 16, factor: float = 8.0) -> tuple[MatplotlibFigure, str]:
    """How much slower each pair turns, for PI and the three NTK forms."""
    figure, axis = new_figure(height=3.8)
    frequencies = rope_frequencies(dim)
    ratios = {"PI": pi_frequencies(dim, factor) / frequencies}
    for variant in ("old", "fixed", "aware"):
        ratios[f"NTK {variant}"] = ntk_frequencies(dim, factor, variant=variant) / frequencies
    styles = (("-s", GREY), ("-o", BLUE), ("-^", ORANGE), ("--D", RED))
    for (name, ratio), (line, color) in zip(ratios.items(), styles, strict=True):
        axis.plot(ratio, line, color=color, label=name)
    axis.axhline(1, color="black", linewidth=1)
    axis.set_yscale("log")
    axis.set_ylim(0.11, 1.12)
    axis.set_yticks([0.125, 0.25, 0.5, 1], ["1/8", "1/4", "1/2", "1"])
    axis.minorticks_off()
    axis.set_xlabel("pair t, fast to slow")
    axis.set_ylabel("speed: new / old")
    legend_below(figure, axis)
    old, fixed = float(ratios["NTK old"][-1]), float(ratios["NTK fixed"][0])
    alt = f"""Ratio of new to old frequency against the number of the pair, for d = {dim} and a factor of {factor:g}, on
        a logarithmic scale. Position interpolation is a flat line at 1/{factor:g}. The three NTK forms are falling
        straight lines: old from 1 to {old:.2f}, fixed from {fixed:.2f} to 1/{factor:g}, aware from 1 to
        1/{factor:g}."""
    return figure, alt


@styled
def radix_accuracy(rows: Table, names: Mapping[str, str]) -> tuple[MatplotlibFigure, str]:
    """Accuracy against position: a line for the mean over the seeds, bars from the worst seed to the best.

    ``rows`` as in ``data/radix.json``; ``names`` maps a method to its name in the legend.
    """
    figure, axis = new_figure(height=4.2)
    length = int(rows.max("length"))
    markers = "osD^vXP"
    said = []
    for (method, name), color, marker in zip(
        names.items(), (GREY, BLUE, GREEN, ORANGE, RED, PURPLE, SKY), markers, strict=False
    ):
        found = 100 * torch.tensor(rows.where(method=method, length=length)["accuracy_by_eighth"], dtype=torch.float64)
        centres = [(eighth + 0.5) * length / 8 for eighth in range(8)]
        mean = over_seeds(axis, centres, found.T.tolist(), color=color, marker=marker, label=name)
        said.append(f"{name} from {mean[0]:.0f} to {mean[-1]:.0f}")
    axis.axvline(length / 8, color="black", linewidth=1, linestyle="--")
    axis.text(length / 8 + 4, 1, "training length", va="bottom")
    axis.set_ylim(0, None)
    axis.set_xlim(0, length)
    axis.set_xticks(range(0, length + 1, length // 8))
    axis.set_xlabel("position in the text, bytes")
    axis.set_ylabel("next byte right, %")
    legend_below(figure, axis)
    alt = f"""Accuracy of the next byte against position, in eighths of {length} bytes, mean over the seeds with bars
        from worst to best. In percent, first eighth to last: {"; ".join(said)}."""
    return figure, alt


@styled
def radix_places(
    found: Mapping[str, Sequence[float]], reaches: Mapping[str, int], *, length: int = 512
) -> tuple[MatplotlibFigure, str]:
    """What is right in each part of a text, a line for each method; a dashed line where its reach ends.

    Args:
        found: percent in parts of equal length, by the name of the method.
        reaches: of some of the methods, in bytes.
        length: of the text.
    """
    figure, axis = new_figure(height=4.4)
    said = []
    for (name, percent), color, marker in zip(found.items(), (GREY, RED, BLUE, PURPLE, GREEN), "osD^v", strict=False):
        wide = length / len(percent)
        axis.plot(
            [(part + 0.5) * wide for part in range(len(percent))],
            percent,
            color=color,
            marker=marker,
            markersize=5,
            label=name,
        )
        said.append(f"{name}: {spoken(percent, 0)}")
        if name in reaches:
            axis.axvline(reaches[name], color=color, linewidth=1.5, linestyle="--")
    axis.set_xlim(0, length)
    axis.set_ylim(0, None)
    axis.set_xticks([0, *reaches.values(), 3 * length // 4, length])
    axis.set_xlabel("place in the text, bytes")
    axis.set_ylabel("next byte right, %")
    legend_below(figure, axis)
    lines = ", ".join(f"{reach} for {name}" for name, reach in reaches.items())
    alt = f"""Percent of bytes right against their place in a text of {length}, with dashed lines at {lines}. From the
        first part to the last: {"; ".join(said)}."""
    return figure, alt


@styled
def radix_reading(factor: float = 8.0, error: float = 0.3, count: int = 7) -> tuple[MatplotlibFigure, str]:
    """Where the fastest hand stands after each token, and the tokens that a reading with an error cannot tell apart."""
    figure, axes = new_figure(1, 2, height=3.6)
    turn = torch.linspace(0, 2 * math.pi, 200)
    told = []
    for axis, (name, speed) in zip(
        axes, (("as in training", 1.0), (f"PI, factor {factor:g}", 1 / factor)), strict=True
    ):
        middle = count // 2
        wedge = torch.linspace(middle * speed - error, middle * speed + error, 40)
        edge = [[0.0, *side.tolist(), 0.0] for side in (wedge.cos(), wedge.sin())]
        axis.fill(*edge, color=ORANGE, alpha=0.35, linewidth=0)
        axis.plot(turn.cos(), turn.sin(), color=GREY, linewidth=1)
        inside = [m for m in range(count) if abs(m - middle) * speed < error]
        told.append(inside)
        for m in range(count):
            x, y = math.cos(m * speed), math.sin(m * speed)
            axis.plot(x, y, "o", color=ORANGE if m in inside else BLUE, markersize=7)
            if speed == 1 or m in (inside[0], middle, inside[-1]):  # where they are crowded, those that matter
                axis.text(1.22 * x, 1.22 * y, str(m), ha="center", va="center", fontsize=12)
        axis.set(aspect="equal", xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), xticks=[], yticks=[])
        axis.set_title(name, fontsize=13)
        axis.grid(False)
        axis.spines[:].set_visible(False)
    alt = f"""Two circles with the fastest hand's place after tokens 0 to {count - 1} as dots, and a wedge of
        {error:g} radians to either side of token {count // 2}. As in training the dots are one radian apart, and the
        wedge holds token {count // 2} alone. Under PI they are {1 / factor:g} radian apart, and the wedge holds tokens
        {told[1][0]} to {told[1][-1]}."""
    return figure, alt


@styled
def radix_budget(dim: int = 8, train_length: int = 64, factor: float = 8.0) -> tuple[MatplotlibFigure, str]:
    """How each pair pays the factor: a part in crowding, the rest in stretch, as areas of one bar in doublings."""
    plain = rope_frequencies(dim)
    methods = {
        "plain RoPE": plain,
        "PI": pi_frequencies(dim, factor),
        "NTK-aware": ntk_frequencies(dim, factor, variant="aware"),
    }
    is_open = (train_length * plain < 2 * math.pi).tolist()
    figure, axes = new_figure(len(methods), 1, height=2.0 * len(methods) + 1.2, sharex=True)
    whole = math.log2(factor)
    said = []
    for axis, (name, frequencies) in zip(axes, methods.items(), strict=True):
        crowding = (plain / frequencies).log2().tolist()
        for t, paid in enumerate(crowding):
            axis.bar(t, paid, color=ORANGE, width=0.8)
            axis.bar(t, whole - paid, bottom=paid, color=RED if is_open[t] else BLUE, width=0.8)
        axis.set_ylabel(name)
        axis.set_ylim(0, whole)
        axis.set_yticks(range(int(whole) + 1), [f"×{2**k}" for k in range(int(whole) + 1)])
        axis.grid(axis="x", visible=False)
        said.append(f"{name}: {spoken((2**paid for paid in crowding), 2)}")
    axes[-1].set_xticks(range(dim // 2))
    axes[-1].set_xlabel("pair t, fast to slow")
    for color, label in (
        (ORANGE, "crowding"),
        (BLUE, "stretch that shows nothing new"),
        (RED, "stretch to new angles"),
    ):
        axes[0].bar(0, 0, color=color, label=label)
    legend_below(figure, axes[0], columns=1)
    alt = f"""Three panels with a bar for each of {dim // 2} pairs, all bars {factor:g} high on a scale of doublings.
        The lower part of a bar is crowding, the rest stretch, in red for pairs {is_open.index(True)} to
        {dim // 2 - 1}, which have not been all the way round. Crowding of each pair, {"; ".join(said)}."""
    return figure, alt
