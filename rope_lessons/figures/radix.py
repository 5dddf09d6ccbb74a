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
    Choice,
    Explorable,
    Knob,
    legend_below,
    new_figure,
    over_seeds,
    styled,
)
from rope_lessons.radix import decode_position, ntk_frequencies, pi_frequencies
from rope_lessons.sinusoidal import rope_frequencies
from rope_lessons.stored import Table

__all__ = ["radix_accuracy", "radix_digits", "radix_hands", "radix_noise", "radix_ratios"]


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


# --- the explorable: eight hands, and the arc that training never showed ------------------------------------------

HANDS, TRAINED = 8, 512
METHODS = ("plain RoPE", "PI", "NTK old", "NTK fixed", "NTK aware")


def _ratio(method: int, t: int, factor: float) -> float:
    share = factor ** (1 / HANDS)
    return (1.0, 1 / factor, share**-t, share ** -(t + 1), factor ** (-t / (HANDS - 1)))[method]


def _dial(t: int, method: int, factor: int) -> str:
    """One hand. The pie is what training showed, the ring what the longer text adds, the line its last position."""
    x, y = 80 + 160 * (t % 4), 132 + 206 * (t // 4)
    omega, ratio = 10_000 ** (-t / HANDS), _ratio(method, t, factor)
    angle = (TRAINED * factor - 1) * omega * ratio
    seen = min(100.0, (TRAINED - 1) * omega / (2 * math.pi) * 100)
    new = max(0.0, min(100.0, angle / (2 * math.pi) * 100) - seen)
    circle = f'<circle cx="{x}" cy="{y}" pathLength="100" fill="none" transform="rotate(-90 {x} {y})"'
    return (
        f'<circle cx="{x}" cy="{y}" r="54" fill="none" stroke="#666"/>'
        f'{circle} r="22" stroke="#8ec6e8" stroke-width="44" stroke-dasharray="{seen:.1f} 100"/>'
        f'{circle} r="49" stroke="{RED}" stroke-width="10" stroke-dasharray="0 {seen:.1f} {new:.1f} 100" class="new"/>'
        f'<line x1="{x}" y1="{y}" x2="{x + 44 * math.sin(angle):.1f}" y2="{y - 44 * math.cos(angle):.1f}" '
        f'stroke="#000" stroke-width="4" class="hand"/>'
        f'<text x="{x}" y="{y - 64}">pair {t}</text>'
        f'<text x="{x}" y="{y + 78}" class="speed">speed {ratio + 1e-9:.3f}</text>'
        f'<text x="{x}" y="{y + 103}" class="share">new {new:.0f} %</text>'
    )


def _title(method: int, factor: int) -> str:
    return f"{METHODS[method]}, {TRAINED * factor} tokens after training on {TRAINED}"


RADIX_SCRIPT = r"""
    const k = value.factor, m = value.method, L = Math.pow(k, 1 / 8);
    const names = ["plain RoPE", "PI", "NTK old", "NTK fixed", "NTK aware"];
    svg.querySelector(".title").textContent = `${names[m]}, ${512 * k} tokens after training on 512`;
    const news = svg.querySelectorAll(".new"), hands = svg.querySelectorAll(".hand");
    const speeds = svg.querySelectorAll(".speed"), shares = svg.querySelectorAll(".share");
    for (let t = 0; t < 8; t++) {
      const omega = Math.pow(10000, -t / 8);
      const ratio = [1, 1 / k, Math.pow(L, -t), Math.pow(L, -(t + 1)), Math.pow(k, -t / 7)][m];
      const angle = (512 * k - 1) * omega * ratio;
      const seen = Math.min(100, 511 * omega / (2 * Math.PI) * 100);
      const fresh = Math.max(0, Math.min(100, angle / (2 * Math.PI) * 100) - seen);
      const x = 80 + 160 * (t % 4), y = 132 + 206 * Math.floor(t / 4);
      news[t].setAttribute("stroke-dasharray", `0 ${seen.toFixed(1)} ${fresh.toFixed(1)} 100`);
      hands[t].setAttribute("x2", (x + 44 * Math.sin(angle)).toFixed(1));
      hands[t].setAttribute("y2", (y - 44 * Math.cos(angle)).toFixed(1));
      speeds[t].textContent = `speed ${(ratio + 1e-9).toFixed(3)}`;
      shares[t].textContent = `new ${fresh.toFixed(0)} %`;
    }
"""


def radix_hands(method: int = 0, factor: int = 8) -> Explorable:
    """Eight hands of RoPE (d = 16, base 10 000, trained on 512 tokens) under the methods of chapter 03."""
    dials = "".join(_dial(t, method, factor) for t in range(HANDS))
    svg = (
        '<svg viewBox="0 0 640 446" style="width:100%;height:auto;background:none" font-family="sans-serif" '
        'font-size="22" text-anchor="middle" fill="#1a1a1a">'
        f'<text x="320" y="30" class="title" font-weight="bold">{_title(method, factor)}</text>{dials}</svg>'
    )
    alt = f"""Eight dials, one for each pair of channels, from fast to slow. A blue pie shows the angles that training
        on {TRAINED} tokens showed: the full dial for pairs 0 to 3, then 81, 26, 8 and 3 percent. A red ring shows the
        angles that a longer text adds. With plain RoPE and a factor of 8 it covers 19, 74, 57 and 18 percent of the
        dials of pairs 4 to 7. With PI there is no red and every pair is 8 times slower. With NTK the slow pairs have
        next to no red, the middle pairs keep some, and the fast pairs keep most of their speed."""
    caption = """Blue: angles that training showed. Red ring: angles that the longer text adds. Line: the hand at the
        last token. Speed: new frequency divided by old. Press PI: the red is gone, and every hand is slow. Press one of
        the three NTK: fast hands are fast again, the slowest hands have next to no red, and some red is left in the
        middle."""
    knobs = (Choice("method", "Method", dict(enumerate(METHODS)), method), Knob("factor", "factor κ", 1, 16, factor))
    return Explorable("radix-hands", alt, caption, knobs, svg, RADIX_SCRIPT)
