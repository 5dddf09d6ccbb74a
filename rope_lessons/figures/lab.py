"""Figures of chapter 12: the model and the optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from rope_lessons.figures import BLUE, GREEN, GREY, ORANGE, RED, doubling_axis, legend_below, new_figure, styled

__all__ = ["lab_first_step", "lab_gau_block", "lab_runaway"]

# --- the unit as blocks --------------------------------------------------------------------------------------------

PAPER = {"stream": "#e8e8e8", "matrix": "#cfe6f5", "part": "#fdeab8", "step": "#ffffff"}


def _box(axis: Any, at: tuple[float, float], width: float, text: str, kind: str) -> None:
    x, y = at
    shape = "round,pad=0.02,rounding_size=0.12"
    axis.add_patch(
        FancyBboxPatch((x - width / 2, y - 0.36), width, 0.72, boxstyle=shape, facecolor=PAPER[kind], edgecolor=GREY)
    )
    axis.text(x, y, text, ha="center", va="center", fontsize=12)


def _arrow(axis: Any, start: tuple[float, float], end: tuple[float, float], style: str = "arc3,rad=0") -> None:
    axis.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=13, color=GREY, linewidth=1.4,
                        connectionstyle=style, shrinkA=0, shrinkB=0)
    )  # fmt: skip


@styled
def lab_gau_block(width: int = 768, hidden: int = 1536, key_dim: int = 128) -> tuple[MatplotlibFigure, str]:
    """A layer of the articles' model, from bottom to top, with the number of channels of every part."""
    figure, axis = new_figure(height=6.4)
    gate, values, shared = 1.3, 4.3, 7.6  # the three columns
    _box(axis, (4.3, 0.5), 3.6, f"stream x, {width}", "stream")
    _box(axis, (4.3, 1.8), 7.6, f"one matrix {width} × {2 * hidden + key_dim}, then swish", "matrix")
    for x, text in ((gate, f"gate u, {hidden}"), (values, f"values v, {hidden}"), (shared, f"z, {key_dim}")):
        _box(axis, (x, 3.1), 2.3, text, "part")
        _arrow(axis, (x, 2.18), (x, 2.72))
    _box(axis, (shared, 4.4), 2.5, "two scales:\nq and k, RoPE", "step")
    _box(axis, (5.2, 5.7), 4.4, "softmax attention A v", "step")
    _box(axis, (2.3, 7.0), 3.2, "u times A v", "step")
    _box(axis, (2.3, 8.3), 3.6, f"matrix {hidden} × {width}", "matrix")
    _box(axis, (4.3, 9.6), 6.2, "α x + what comes out, then norm", "stream")
    _arrow(axis, (4.3, 0.86), (4.3, 1.42))
    _arrow(axis, (shared, 3.48), (shared, 4.02))
    _arrow(axis, (shared, 4.78), (6.6, 5.32))
    _arrow(axis, (values, 3.48), (values, 5.32))
    _arrow(axis, (gate, 3.48), (gate, 6.62))
    _arrow(axis, (4.4, 6.08), (3.4, 6.62))
    _arrow(axis, (2.3, 7.38), (2.3, 7.92))
    _arrow(axis, (2.3, 8.68), (2.9, 9.22))
    axis.plot([6.1, 9.3, 9.3, 6.6], [0.5, 0.5, 8.6, 8.6], color=GREY, linewidth=1.4)  # the stream, past everything
    _arrow(axis, (6.6, 8.6), (6.3, 9.22))
    axis.set(xlim=(-0.1, 9.6), ylim=(0, 10.1))
    axis.axis("off")
    alt = f"""Blocks from bottom to top. The stream x of {width} channels enters one matrix of {width} by
        {2 * hidden + key_dim} with a swish behind it. What comes out is cut into a gate u of {hidden}, values v of
        {hidden} and a vector z of {key_dim}. Two scales make query and key from z, RoPE turns them, and softmax
        attention averages the values. The result is multiplied with the gate, goes through a matrix of {hidden} by
        {width}, and is added to alpha times x, which came past all of it. Then comes the norm."""
    return figure, alt


# --- first steps ---------------------------------------------------------------------------------------------------


@styled
def lab_first_step(
    depths: Sequence[int], falls: Mapping[str, tuple[Sequence[float], Sequence[float]]]
) -> tuple[MatplotlibFigure, str]:
    """How much the first step lowers the loss against the depth: for each optimizer started plainly, and with Deep
    Norm. Divided by the value of the smallest depth, so that only the growth shows."""
    figure, axis = new_figure(height=3.9)
    said = []
    styles = ((BLUE, "o", 2.0, 6), (ORANGE, "s", 5.0, 11), (GREEN, "D", 2.0, 5))  # the second may lie below the third
    for (name, (plain, steady)), (colour, marker, thick, size) in zip(falls.items(), styles, strict=False):
        for values, style, how in ((plain, "--", "plain start"), (steady, "-", "Deep Norm")):
            grown = [value / values[0] for value in values]
            label = f"{name}, {how}"
            axis.plot(depths, grown, style, marker=marker, markersize=size, linewidth=thick, color=colour, label=label)
            said.append(f"{name}, {how}: {', '.join(f'{value:.2g}' for value in grown)}")
    axis.set_yscale("log")
    doubling_axis(axis, depths)
    axis.set_xlabel("branches")
    axis.set_ylabel(f"fall of the loss,\n{depths[0]} branches = 1")
    legend_below(figure, axis)
    alt = f"""Two logarithmic axes: number of branches, {", ".join(map(str, depths))}, and by how much the first step
        lowers the loss, divided by the value at {depths[0]} branches. {"; ".join(said)}. The dashed lines of the plain
        start climb ever faster, those of Deep Norm stay about level."""
    return figure, alt


# --- a row that runs away ------------------------------------------------------------------------------------------


@styled
def lab_runaway(paths: Mapping[str, Sequence[float]], decay: float) -> tuple[MatplotlibFigure, str]:
    """One component of a row that got one gradient and then none, step by step."""
    figure, axis = new_figure(height=3.7)
    said = []
    for (name, path), colour, style in zip(paths.items(), (RED, BLUE, GREEN), ("-", "--", "-."), strict=False):
        axis.plot(range(1, len(path) + 1), path, style, color=colour, label=name)
        said.append(f"{name}: {path[0]:.3g} after the first step, {path[-1]:.3g} after {len(path)}")
    axis.axhline(1 / decay, color=GREY, linewidth=1.2, linestyle=":")
    axis.text(0, 1.15 / decay, f"1 / λ = {1 / decay:g}", color=GREY, va="bottom")
    axis.set_yscale("log")
    axis.set_ylim(None, 4 / decay)
    axis.set_xlabel("step")
    axis.set_ylabel("component of the row")
    legend_below(figure, axis)
    alt = f"""A component of one row of an embedding against the step, on a logarithmic axis. There was a gradient
        at the first step and none ever after. {"; ".join(said)}. A dotted line marks 1/lambda = {1 / decay:g}."""
    return figure, alt
