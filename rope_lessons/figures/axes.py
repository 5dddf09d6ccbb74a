"""Figures of chapter 14, of positions with several axes: pictures read by line and by row and column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
from matplotlib.figure import Figure as MatplotlibFigure
from torch import Tensor

from rope_lessons.axes import axial_frequencies, axial_positions, multimodal_positions
from rope_lessons.figures import (
    BLUE,
    CLEAR_TO_BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    Explorable,
    Knob,
    _on_phone,
    legend_below,
    new_figure,
    spoken,
    styled,
)
from rope_lessons.figures.dial import DialRow, Dials
from rope_lessons.sinusoidal import rope_frequencies
from rope_lessons.stored import Table

__all__ = [
    "axes_dials",
    "multimodal_numbers",
    "picture_diagonals",
    "picture_kernels",
    "picture_looks",
    "picture_results",
    "picture_scores",
    "picture_widths",
]

GOLDEN = (math.sqrt(5) - 1) / 2  # of a half turn, from the direction of one pair to that of the next


def slanted_frequencies(ladder: Tensor) -> Tensor:
    """One direction for each pair, spread evenly over the half circle: float64 ``(2, pairs)``."""
    angle = math.pi * GOLDEN * torch.arange(len(ladder), dtype=torch.float64)
    return torch.stack((ladder * angle.sin(), ladder * angle.cos()))


def kernel_of(frequencies: Tensor, side: int) -> Tensor:
    """What the pixel in the middle scores with each of ``side`` by ``side`` pixels, if all have one content and 1 is
    the most: the mean cosine of all hands. With one row of frequencies the picture is read line by line."""
    grid = axial_positions((side, side))
    places = grid if len(frequencies) == 2 else axial_positions((side * side,))
    middle = side // 2 * (side + 1)
    return ((places - places[middle]).double() @ frequencies).cos().mean(-1).view(side, side)


def kernels(dim: int = 64, base: float = 100.0, side: int = 28) -> dict[str, Tensor]:
    ladder = rope_frequencies(dim, base)
    ways = {
        "read line by line": ladder[None],
        "a row and a column": axial_frequencies(dim, 2, base=base),
        "slanted hands": slanted_frequencies(ladder),
    }
    return {name: kernel_of(frequencies, side) for name, frequencies in ways.items()}


@styled
def picture_kernels(side: int = 28) -> tuple[MatplotlibFigure, str]:
    """What a pixel in the middle sees of all others: by line, by row and column, by slanted hands."""
    figure, axes = new_figure(1, 3, height=2.7)
    found = kernels(side=side)
    for axis, (name, seen) in zip(axes, found.items(), strict=True):
        axis.imshow(seen.clamp(min=0).numpy(), cmap=CLEAR_TO_BLUE, vmin=0, vmax=1)
        axis.set(title=name, xticks=[], yticks=[])
        axis.grid(False)
    middle = side // 2
    below, corner = ([float(seen[place]) for seen in found.values()]
                     for place in ((middle + 1, middle), (middle + 4, middle + 4)))  # fmt: skip
    return figure, (
        f"Heat maps of a picture of {side} by {side} pixels, bluer where a pixel scores higher with the one in "
        "the middle. Read line by line: a blue streak to the left and right, and hardly anything above and below. A "
        "row and a column: a cross with a blue middle. Slanted hands: a round spot. The pixel right below the middle "
        f"scores {spoken(below, 2)}; one that is 4 down and 4 to the right {spoken(corner, 2)}."
    )


def axes_dials(columns: int = 28, dim: int = 16, base: float = 100.0) -> Dials:
    """What one step to the right and one step down do to eight hands: line by line, and with two axes."""
    ladder, axial = rope_frequencies(dim, base), axial_frequencies(dim, 2, base=base)
    rows = [
        DialRow("By line: right", ladder, 1, hands=(1, 0), note="1 step"),
        DialRow("By line: down", ladder, columns, hands=(columns, 0), note=f"{columns} steps"),
        DialRow("Two axes: right", axial[1], 1, hands=(1, 0), note="pairs 4 to 7"),
        DialRow("Two axes: down", axial[0], 1, hands=(1, 0), note="pairs 0 to 3"),
    ]
    return Dials(rows, ladder, None)


def picture_widths(trained: int = 8, low: int = 5, high: int = 14, rows: int = 4) -> Explorable:
    """Pixels numbered line by line, in a picture of any width: the one that asks, the one above it, and the one
    as many steps back as that was in training."""
    size, at, width = 30, 4, trained + 4  # units of a pixel; the column of the one that asks; where the slider begins
    here = (rows - 1) * width + at
    fills = {here - trained: "#f0a585", here - width: "#cfe6f5", here: "#f5c97a"}
    cells = "".join(
        f'<g visibility="{"visible" if number < rows * width else "hidden"}" '
        f'transform="translate({size * (number % width)} {size * (number // width)})">'
        f'<rect width="{size}" height="{size}" fill="{fills.get(number, "none")}" stroke="{GREY}"/>'
        f'<text x="15" y="20" fill="#1a1a1a">{number}</text></g>'
        for number in range(rows * high)
    )
    svg = (
        f'<svg viewBox="-1 -1 {size * high + 2} {size * (rows + 1)}" width="100%" font-size="15" text-anchor="middle" '
        f'style="background:none;filter:none;display:block;max-width:{1.3 * size * high:.0f}px;margin:auto">{cells}'
        f'<text data-part="label" text-anchor="start" y="{size * rows + 21}" fill="#1a1a1a">'
        f"Above is {width} steps back.</text></svg>"
    )
    script = f"""
const width = value.width, here = {rows - 1} * width + {at};
const fills = {{[here - {trained}]: "#f0a585", [here - width]: "#cfe6f5", [here]: "#f5c97a"}};
svg.querySelectorAll("g").forEach((cell, number) => {{
  cell.setAttribute("visibility", number < {rows} * width ? "visible" : "hidden");
  cell.setAttribute("transform", `translate(${{{size} * (number % width)}} ${{{size} * Math.floor(number / width)}})`);
  cell.firstChild.setAttribute("fill", fills[number] ?? "none");
}});
svg.querySelector('[data-part="label"]').textContent = `Above is ${{width}} steps back.`;
"""
    return Explorable(
        name="axes-widths",
        alt=f"A picture of {rows} rows whose pixels are numbered line by line. The pixel that asks is orange, the one "
        f"above it blue, and the one {trained} steps back red; where the picture is {trained} wide, the last two are "
        "one pixel.",
        caption=f"Orange asks for blue. A model trained {trained} wide looks at red, {trained} "
        f"steps back; at width {trained} they are one.",
        knobs=(Knob("width", "picture width", low, high, width),),
        svg=svg,
        script=script,
    )


@styled
def picture_looks(maps: Mapping[str, Tensor], at: tuple[int, int]) -> tuple[MatplotlibFigure, str]:
    """Where the pixel ``at`` a row and column looks: by name, ``(rows, columns)`` weights, coloured by their roots."""
    figure, axes = new_figure(1, len(maps), height=2.6, squeeze=False)
    said = []
    for axis, (name, weights) in zip(axes.flat, maps.items(), strict=True):
        axis.imshow(weights.sqrt().numpy(), cmap=CLEAR_TO_BLUE, vmin=0)
        axis.plot(at[1], at[0], "s", color=ORANGE, markersize=7)
        axis.set(title=name, xticks=[], yticks=[])
        axis.grid(False)
        y, x = divmod(int(weights.argmax()), weights.shape[1])
        said.append(f"{name}: most, {float(weights.max()):.2f}, on row {y}, column {x}")
    return figure, (
        f"Heat maps of the weights of the pixel in row {at[0]}, column {at[1]}, which is marked. {'; '.join(said)}."
    )


@styled
def picture_scores(
    found: Mapping[str, Tensor], marks: Sequence[int] = (1, 13, 20), trained: int = 8
) -> tuple[MatplotlibFigure, str]:
    """Scores by rows up, ``trained`` shaded: three fast hands and, with dots at ``marks``, all.

    ``found``: by name, what each hand adds, ``(hands, rows up)``.
    """
    height = 0.9 + (1.55 if _on_phone.get() else 1.05) * len(found)
    figure, axes = new_figure(len(found), 1, height=height, sharex=True, squeeze=False)
    said = []
    for axis, (name, parts) in zip(axes[:, 0], found.items(), strict=True):
        whole = parts.sum(0)
        axis.axvspan(0, trained - 1, color=ORANGE, alpha=0.25, linewidth=0)
        for color, nth, part in zip((RED, GREEN, PURPLE), ("fastest hand", "second", "third"), parts, strict=False):
            axis.plot(part, color=color, linewidth=1.2, label=nth)
        axis.plot(whole, color=BLUE, linewidth=3, label="all hands")
        axis.axhline(whole[marks[0]], color=BLUE, linestyle=":")
        axis.plot(marks, whole[list(marks)], "o", color=BLUE, markersize=9)
        axis.set(title=name, ylabel="score", xticks=[0, *marks], yticks=[-5, 5], ylim=(-8, 9))
        said.append(f"{name}: {spoken([float(whole[up]) for up in marks], 1)}")
    axes[-1, 0].set_xlabel("rows up")
    legend_below(figure, axes[0, 0], columns=4)
    return figure, (
        f"Scores against the rows up, a thick line for all hands and thin ones for three. At {spoken(marks, 0)} rows "
        f"up: {'; '.join(said)}."
    )


@styled
def picture_results(rows: Table, names: Mapping[str, str], chance: float) -> tuple[MatplotlibFigure, str]:
    """How many pixels find the one above, by shape of the picture: a line for each model.

    Args:
        rows: the stored table, with ``kind``, ``rows``, ``columns`` and ``right`` of each seed.
        names: of the kinds, from the top.
        chance: the share that guessing has.
    """
    figure, axis = new_figure(height=1.3 + 0.34 * len(names))
    shapes = list(dict.fromkeys(zip(rows["rows"], rows["columns"], strict=True)))
    said = []
    for place, (kind, name) in enumerate(names.items()):
        means = []
        for number, (height, width) in enumerate(shapes):
            found = [100 * value for value in rows.where(kind=kind, rows=height, columns=width)["right"]]
            at = place + 0.17 * (number - (len(shapes) - 1) / 2)
            color, marker = (GREY, GREEN, BLUE, ORANGE)[number % 4], "so^D"[number % 4]
            label = None if place else f"{height} × {width}"
            axis.plot([min(found), max(found)], [at, at], color=color, linewidth=2)
            axis.plot(fmean(found), at, marker, color=color, markersize=7, label=label)
            means.append(fmean(found))
        said.append(f"{name}: {spoken(means, 0)}")
    axis.axvline(100 * chance, color=GREY, linestyle="--", linewidth=1, zorder=0)
    axis.set_yticks(range(len(names)), list(names.values()))
    axis.invert_yaxis()
    axis.set_xlim(0, 103)
    axis.set_xlabel("find the one above, %")
    axis.grid(axis="y", visible=False)
    legend_below(figure, axis, columns=4)
    listed = ", ".join(f"{height} by {width}" for height, width in shapes)
    return figure, (
        f"Percent of pixels that find the one above, for pictures of {listed} (rows by columns); trained on the first "
        f"shape; a dashed line at chance, {100 * chance:.0f}. {'; '.join(said)}."
    )


@styled
def picture_diagonals(reach: int = 3) -> tuple[MatplotlibFigure, str]:
    """Along one diagonal: what hands of their own axis can do, and what slanted ones can."""
    figure, axes = new_figure(1, 2, height=2.3, sharey=True)
    side = 2 * reach + 1
    found = diagonals(reach)
    for axis, (name, seen) in zip(axes, found.items(), strict=True):
        axis.imshow(seen.numpy(), cmap=CLEAR_TO_BLUE, vmin=0)
        axis.set(title=name, xticks=[], yticks=[])
        axis.grid(False)
    up, down = ([float(seen[place]) for seen in found.values()] for place in ((0, 0), (0, side - 1)))
    return figure, (
        f"Heat maps of scores, {side} by {side} pixels around the one that asks. Hands of one axis: a symmetric "
        f"pattern, the same on both diagonals, {up[0]:.2f} and {down[0]:.2f} at the upper corners. One slanted hand: "
        f"a blue stripe along the diagonal from the upper left, {up[1]:.2f} and {down[1]:.2f}."
    )


def diagonals(reach: int = 3) -> dict[str, Tensor]:
    """Scores of the pixels around one: a hand on each axis, and one hand that turns by x - y."""
    grid = (axial_positions((2 * reach + 1,) * 2) - reach).double()
    omega = 0.5
    own = torch.diag(torch.tensor([omega, omega], dtype=torch.float64))
    slanted = torch.tensor([[omega], [-omega]], dtype=torch.float64)
    ways = {"a hand on each axis": own, "one slanted hand": slanted}
    return {name: (grid @ each).cos().mean(-1).view(2 * reach + 1, -1) for name, each in ways.items()}


@styled
def multimodal_numbers(parts: Sequence[Any] = (3, (1, 2, 4), 3)) -> tuple[MatplotlibFigure, str]:
    """The three numbers of every token of a text with a picture in it, as M-RoPE counts them."""
    places = multimodal_positions(parts)
    figure, axis = new_figure(height=1.7)
    inside = [
        not isinstance(part, int) for part in parts for _ in range(math.prod([part] if isinstance(part, int) else part))
    ]
    names, colours = ("time", "row", "column"), ("#cfe6f5", "#9fd8b4", "#f5c97a")
    for token, numbers in enumerate(places.tolist()):
        for row, number in enumerate(numbers):
            fill = colours[row] if inside[token] else "none"
            axis.fill_between((token - 0.5, token + 0.5), row - 0.5, row + 0.5, facecolor=fill, edgecolor=GREY)
            axis.text(token, row, str(number), ha="center", va="center", fontsize=10)
    axis.set(xlim=(-0.6, len(places) - 0.4), ylim=(2.6, -0.6), xticks=[], yticks=range(3), yticklabels=names)
    axis.tick_params(length=0)
    axis.grid(False)
    axis.spines[:].set_visible(False)
    said = "; ".join(f"{name} {', '.join(map(str, of))}" for name, of in zip(names, places.T.tolist(), strict=True))
    return figure, f"A table of {len(places)} tokens with three numbers each. {said}."
