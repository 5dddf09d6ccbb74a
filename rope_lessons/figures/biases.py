"""Figures of chapter 14, of biases: what each says of a distance, and of how many distances it was ever asked."""

from __future__ import annotations

import torch
from matplotlib.figure import Figure as MatplotlibFigure
from torch import Tensor

from rope_lessons.biases import (
    apply_xpos,
    fire_bias,
    kerple_log_bias,
    sandwich_bias,
    shaw_bias,
    t5_bias,
    t5_buckets,
)
from rope_lessons.circles import proportional_frequencies
from rope_lessons.figures import BLUE, GREY, ORANGE, RED, legend_below, new_figure, spoken, styled
from rope_lessons.figures.dial import DialRow, Dials
from rope_lessons.sinusoidal import rope_frequencies, sinusoidal_kernel

__all__ = ["bias_shapes", "still_dials", "xpos_fade"]

CLIP = 16  # of Shaw's table in the picture


def shapes(trained: int = 64, length: int = 512) -> dict[str, tuple[Tensor, Tensor]]:
    """By name: the bias at the distances 0, 1, …, and whether training on texts of ``trained`` tokens has met it.

    A learned number is one that training could set any other way; those here are drawn to be seen.
    """
    away = torch.arange(length)
    row = away.flip(0).unsqueeze(0)  # the distances of the last query, as of rope_lessons.biases.distances
    one = torch.ones(1, dtype=torch.float64)
    near = away < trained

    def of(bias: Tensor) -> Tensor:
        return bias.double().flatten().flip(0)

    seen = t5_buckets(away)
    table = _table(32)
    clipped = _table(2 * CLIP + 1, CLIP)
    return {
        "ALiBi": (-away.double() / 16, near),
        "KERPLE, logarithmic": (of(kerple_log_bias(row, one, one)), near),
        "Sandwich": (of(sandwich_bias(row, 1)), near),
        "T5’s buckets": (of(t5_bias(row, table)), seen <= seen[trained - 1]),
        "Shaw, clipped": (of(shaw_bias(torch.ones(1, 1, 1, 1).double(), clipped, row)), torch.ones_like(near)),
        "FIRE": (fire_at(length - 1, trained), torch.ones_like(near)),
    }


def fire_at(query: int, trained: int) -> Tensor:
    """FIRE's bias of a query at the distances 0, 1, … up to the first token."""
    row = torch.arange(query + 1).flip(0).unsqueeze(0)
    return fire_bias(row, _wave, rate=1.0, threshold=float(trained)).double().flatten().flip(0)


def _table(rows: int, middle: int = 0) -> Tensor:
    """Numbers such as training might leave, ``(rows, 1)``: they fall with the distance, and not evenly."""
    at = (torch.arange(rows, dtype=torch.float64) - middle).abs()
    return (-0.12 * at + 0.25 * torch.sin(1.7 * at)).unsqueeze(1)


def _wave(share: Tensor) -> Tensor:
    """A function that a small network might have learned."""
    return -3 * share + 0.6 * torch.sin(9 * share)


@styled
def bias_shapes(trained: int = 64, length: int = 512) -> tuple[MatplotlibFigure, str]:
    """Six biases against the distance: blue where training has met the number, red where it has not."""
    figure, axes = new_figure(3, 2, height=4.5, sharex=True)
    said = []
    for axis, (name, (bias, seen)) in zip(axes.flat, shapes(trained, length).items(), strict=True):
        away = torch.arange(length)
        for mask, colour in ((seen, BLUE), (~seen, RED)):
            axis.plot(away, torch.where(mask, bias, torch.nan), color=colour)
        if name == "FIRE":  # the last query of training; that of the long text is the one drawn above
            axis.lines[0].set(color=ORANGE, linestyle="--")
            axis.plot(away[:trained], fire_at(trained - 1, trained), color=BLUE)
        axis.axvline(trained, color=GREY, linestyle="--", linewidth=1)
        axis.set_title(name, fontsize=12)
        axis.set_xscale("symlog", linthresh=8)
        axis.set_xticks([0, 8, 64, 512], ["0", "8", "64", "512"])
        axis.minorticks_off()
        kind = "met all along" if bool(seen.all()) else f"met up to {int(seen.nonzero().max())}"
        said.append(f"{name}, {kind}: {spoken([float(bias[d]) for d in (0, 8, 63, length - 1)], 1)}")
    for axis in axes[-1]:
        axis.set_xlabel("distance")
    for axis in axes[:, 0]:
        axis.set_ylabel("bias")
    return figure, (
        f"Six small plots of a bias against the distance, 0 to {length - 1}, blue where training on {trained} tokens "
        f"has met the number and red beyond; FIRE at token {trained} in blue and at token {length} in orange. At "
        f"distances 0, 8, 63 and {length - 1}: {'; '.join(said)}."
    )


@styled
def xpos_fade(dim: int = 32, length: int = 512) -> tuple[MatplotlibFigure, str]:
    """What a query scores with a key of its own content, against the distance: RoPE, and xPos."""
    frequencies = rope_frequencies(dim)
    rope = sinusoidal_kernel(torch.arange(length), frequencies)
    x = torch.ones(length, dim, dtype=torch.float64)
    q, k = apply_xpos(x, x, torch.arange(length), frequencies, layout="half")
    xpos = (q @ k.T)[:, 0] / dim
    figure, axis = new_figure(height=3.2)
    for name, seen, colour in (("RoPE", rope, BLUE), ("xPos", xpos, ORANGE)):
        axis.plot(seen, color=colour, label=name)
    axis.set_xlabel("distance")
    axis.set_ylabel("score of equal vectors")
    legend_below(figure, axis)
    at = (0, 64, length - 1)
    return figure, (
        f"Scores of equal vectors against the distance, 1 at distance 0. At {spoken(at, 0)}: RoPE "
        f"{spoken([float(rope[d]) for d in at], 2)}; xPos {spoken([float(xpos[d]) for d in at], 2)}."
    )


def still_dials(dim: int = 16) -> Dials:
    """Hands that do not turn: none, the slow half of p-RoPE, and half of the channels."""
    ladder = rope_frequencies(dim)
    half = torch.cat((rope_frequencies(dim // 2), torch.zeros(dim // 4, dtype=torch.float64)))
    rows = [
        DialRow("RoPE", ladder, 64, note="all hands turn"),
        DialRow("p-RoPE, a half", proportional_frequencies(dim, 0.5), 64, note="the slow ones stand still"),
        DialRow("half the channels", half, 64, note="a whole ladder on four"),
    ]
    return Dials(rows, torch.zeros_like(ladder), None)
