"""Figures of chapter 02: arrows that turn, scores against distance, layouts, and the cost of rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from matplotlib.figure import Figure as MatplotlibFigure
from torch import Tensor

from rope_lessons.figures import (
    BLUE,
    CYCLE,
    DIVERGING,
    GREEN,
    GREY,
    ORANGE,
    RED,
    SKY,
    Explorable,
    Knob,
    legend_below,
    new_figure,
    styled,
    svg_path,
)
from rope_lessons.figures.svg import ALWAYS_BLACK
from rope_lessons.sinusoidal import sinusoidal_kernel

__all__ = [
    "arrows",
    "channel_pairs",
    "copier_reach",
    "pairs_add_up",
    "position_matrix",
    "rounding_errors",
    "score_against_distance",
    "scores_and_their_mean",
    "unseen_distances",
]

SENTENCE = ("the", "cat", "saw", "the", "cat")


@styled
def position_matrix(
    distances: Tensor | None = None, words: Sequence[str] = SENTENCE, causal: bool = True
) -> tuple[MatplotlibFigure, str]:
    """The matrix of relative positions of a short sentence; later chapters redraw it with the distance bent."""
    count = len(words)
    index = torch.arange(count)
    values = (index[:, None] - index[None, :]).double() if distances is None else distances.double()
    shown = values.clone()
    if causal:
        shown[index[:, None] < index[None, :]] = torch.nan
    figure, axes = new_figure(height=3.6, width=4.6)
    axes.imshow(shown, cmap=DIVERGING, vmin=-count, vmax=count)
    for i in range(count):
        for j in range(count):
            if not math.isnan(float(shown[i, j])):
                axes.text(j, i, f"{float(shown[i, j]):g}", ha="center", va="center", fontsize=13)
    axes.set_xticks(range(count), [f"{word}\n{j}" for j, word in enumerate(words)])
    axes.set_yticks(range(count), [f"{word} {i}" for i, word in enumerate(words)])
    axes.set(xlabel="key", ylabel="query")
    axes.grid(False)
    seen = "at or before it" if causal else "on both sides"
    return figure, (
        f"Matrix of distances for the sentence '{' '.join(words)}': one row per query, one column per key {seen}. "
        f"Every diagonal holds one value; the first column, from the top, reads "
        f"{', '.join(f'{float(x):g}' for x in values[:, 0])}."
    )


@styled
def channel_pairs(dim: int = 8) -> tuple[MatplotlibFigure, str]:
    """Which channels turn together in the two layouts: same colour, same pair."""
    figure, axes = new_figure(height=2.6)
    rows = (("interleaved", [c // 2 for c in range(dim)]), ("half", [c % (dim // 2) for c in range(dim)]))
    for y, (_, pairs) in enumerate(rows):
        for channel, pair in enumerate(pairs):
            axes.barh(y, 0.92, left=channel - 0.46, height=0.6, color=CYCLE[pair % len(CYCLE)])
            colour = ALWAYS_BLACK if pair % len(CYCLE) else "white"  # white is read on the blue alone
            axes.text(channel, y, str(pair), ha="center", va="center", color=colour, weight="bold")
    axes.set_yticks([0, 1], [name for name, _ in rows])
    axes.set_xticks(range(dim), [str(channel) for channel in range(dim)])
    axes.set(xlabel="channel; on it, the number of its pair", xlim=(-0.6, dim - 0.4), ylim=(1.5, -0.5))
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure, (
        f"Two rows of {dim} channels coloured by pair. Interleaved: channels 0 and 1 are pair 0, 2 and 3 pair 1, "
        f"and so on. Half: channels 0 and {dim // 2} are pair 0, 1 and {dim // 2 + 1} pair 1, and so on."
    )


@styled
def score_against_distance(omega: float = 0.4, reach: int = 12) -> tuple[MatplotlibFigure, str]:
    """One pair's score against the distance, for three directions of the key relative to the query."""
    figure, axes = new_figure(height=3.4)
    distance = torch.linspace(-reach, reach, 400, dtype=torch.float64)
    cases = (
        (0.0, "k along q: cosine part", BLUE, "-"),
        (math.pi / 2, "k a quarter turn ahead: sine part", ORANGE, "-"),
    )
    for lead, label, colour, style in (*cases, (math.pi / 4, "k an eighth turn ahead: both", RED, "--")):
        axes.plot(distance, (distance * omega - lead).cos(), style, color=colour, label=label)
    axes.plot([0, 0], [-1.1, 1.1], color=GREY, linewidth=1)
    axes.set(xlabel="distance Δ = m − n", ylabel=f"score of a pair, ω = {omega:g}", ylim=(-1.15, 2.2))
    axes.set_yticks([-1, 0, 1])
    axes.legend(loc="upper center", ncols=1)
    return figure, (
        "Score of one pair against the distance, three curves. With the key along the query the curve is a cosine, "
        "the same on both sides of zero. With the key a quarter turn ahead it is a sine, which changes sign at zero. "
        "With an eighth turn it is a shifted cosine whose maximum lies at a positive distance."
    )


@styled
def pairs_add_up(frequencies: Tensor, back: int = 3, reach: int = 64) -> tuple[MatplotlibFigure, str]:
    """The score of a head whose pairs all point at one distance: each pair's wave, their mean, and the attention."""
    figure, axes = new_figure(2, 1, height=5.0, sharex=True)
    distance = torch.linspace(0, reach - 1, 12 * (reach - 1) + 1, dtype=torch.float64)
    waves = ((distance[:, None] - back) * frequencies).cos()  # (distances, pairs)
    for t in range(waves.shape[1]):
        axes[0].plot(distance, waves[:, t], linewidth=1, color=SKY, alpha=0.7)
    axes[0].plot(distance, waves.mean(1), color=BLUE, linewidth=3)
    axes[0].axvline(back, color=GREY, linewidth=1, linestyle=":")
    axes[0].set(ylabel="each pair, and\ntheir mean", ylim=(-1.1, 1.15))
    whole = torch.arange(reach)
    scores = 64 * ((whole[:, None] - back) * frequencies).cos().mean(1) / math.sqrt(2 * len(frequencies))
    weights = 100 * scores.softmax(0)
    axes[1].bar(whole.tolist(), weights.tolist(), color=BLUE, width=0.8)
    axes[1].set(xlabel="distance Δ = m − n", ylabel="attention, %")
    return figure, (
        f"Above, {waves.shape[1]} thin waves against the distance from 0 to {reach - 1}, fast and slow, all highest at "
        f"{back}, and their mean as a thick line, with one clear peak there. Below, the attention as bars: "
        f"{float(weights[back]):.0f} percent at distance {back}, at most "
        f"{float(torch.cat((weights[:back], weights[back + 1 :])).max()):.0f} percent anywhere else."
    )


@styled
def copier_reach(
    starts: Mapping[str, Mapping[int, Sequence[float]]], lengths: Mapping[str, Mapping[int, Sequence[float]]]
) -> tuple[MatplotlibFigure, str]:
    """What copiers have right, by the position of the first token and by the length: of each method, each seed.

    ``starts`` and ``lengths`` have the percent of every seed, by method and then by position or length. Without
    ``lengths`` there is one panel.
    """
    panels = [(starts, "first position")] + [(lengths, "tokens in the text")] * bool(lengths)
    figure, axes = new_figure(1, len(panels), height=3.4, squeeze=False)
    said = []
    for axis, (found, label) in zip(axes.flat, panels, strict=True):
        for (method, rows), color, marker in zip(found.items(), (ORANGE, BLUE, GREEN), "so^", strict=False):
            ticks = list(rows)
            for seed, line in enumerate(zip(*rows.values(), strict=True)):
                name = method if seed == 0 else None
                axis.plot(range(len(ticks)), line, marker=marker, color=color, linewidth=1.5, label=name)
            said.append(
                f"{label}, {method}: "
                + ", ".join(f"{at} {min(of_seeds):.0f} to {max(of_seeds):.0f}" for at, of_seeds in rows.items())
            )
        axis.set_xticks(range(len(ticks)), [f"{at}" for at in ticks])
        axis.set(xlabel=label, ylabel="right, %", ylim=(0, 105))
        axis.axhline(100 / 8, color=GREY, linewidth=1, linestyle="--")
    legend_below(figure, axes.flat[-1])
    return figure, f"Percent right of each of the seeds; a dashed line at 12.5 is guessing. {'; '.join(said)}."


@styled
def scores_and_their_mean(
    frequencies: Tensor, reach: int = 256, pairs: int = 8, seed: int = 0
) -> tuple[MatplotlibFigure, str]:
    """Scores of single random query-key pairs, and the mean over many queries read by themselves."""
    generator = torch.Generator().manual_seed(seed)
    half = frequencies.shape[0]
    distance = torch.arange(reach)
    figure, axes = new_figure(1, 2, height=3.4, sharey=True)
    turn = torch.exp(1j * distance[:, None] * frequencies)  # (reach, dim/2)
    for _ in range(pairs):
        q, k = torch.randn(2, half, 2, generator=generator, dtype=torch.float64)
        product = torch.view_as_complex(q) * torch.view_as_complex(k).conj()
        axes[0].plot(distance, (turn * product).real.sum(-1) / (2 * half) ** 0.5, linewidth=1, alpha=0.5, color=GREY)
    axes[0].set(title=f"{pairs} unrelated pairs", xlabel="distance Δ", ylabel="score / √d")
    k = torch.randn(200, half, 2, generator=generator, dtype=torch.float64)
    size = torch.view_as_complex(k).abs().square()  # (200, dim/2): the query equals the key
    scores = (turn.real @ size.T) / (2 * half) ** 0.5  # (reach, 200)
    axes[1].plot(distance, scores[:, :pairs], linewidth=1, alpha=0.35, color=GREY)
    expected = sinusoidal_kernel(distance, frequencies) * (2 * half) ** 0.5
    axes[1].plot(distance, expected, color=RED, label="√d K(Δ)")
    axes[1].plot(distance, scores.mean(-1), "--", color=BLUE, label="mean of 200")
    axes[1].set(title="key = query", xlabel="distance Δ")
    axes[1].legend()
    return figure, (
        f"Two panels of scores against distances from 0 to {reach - 1}. Left: {pairs} unrelated random pairs; "
        "the curves wander around zero with the same spread at every distance. Right: keys equal to their queries; "
        "the curves start high and fall, and their mean follows the kernel K times the root of d."
    )


@styled
def rounding_errors(positions: Tensor, errors: Mapping[str, Tensor]) -> tuple[MatplotlibFigure, str]:
    """Largest error of the cosine table against the position, one curve for each way to compute it."""
    figure, axes = new_figure(height=4.2)
    for (label, error), marker in zip(errors.items(), "os^D", strict=False):
        axes.loglog(positions, error.clamp(min=1e-12), marker=marker, markersize=5, label=label)
    axes.axhline(1.0, color=GREY, linewidth=1, linestyle=":")
    axes.set(xlabel="position m", ylabel="largest error of cos(mω)", ylim=(1e-9, 10))
    legend_below(figure, axes)
    last = "; ".join(f"{label}: {float(error[-1]):.0e}" for label, error in errors.items())
    return figure, (
        "Largest error of the cosine table against the position, both axes logarithmic. The curve of bfloat16 is "
        "above 1 from about a thousand positions on; those of float32 climb with the position; the one "
        "with float64 angles stays flat. At the last position "
        f"({int(positions[-1])}): {last}."
    )


@styled
def unseen_distances(distance: Tensor, target: Tensor, fit: Tensor, train_length: int) -> tuple[MatplotlibFigure, str]:
    """A score fitted on the distances of training, drawn far beyond them."""
    figure, axes = new_figure(1, 2, height=3.2)
    near = distance < train_length
    axes[0].plot(distance[near], target[near], color=GREY, linewidth=4, alpha=0.5, label="target")
    axes[0].plot(distance[near], fit[near], color=BLUE, label="fit")
    axes[0].set(title=f"trained on Δ < {train_length}", xlabel="distance Δ", ylabel="score")
    axes[0].legend()
    axes[1].plot(distance, target, color=GREY, linewidth=4, alpha=0.5)
    axes[1].plot(distance, fit, color=BLUE)
    axes[1].axvspan(0, train_length, color=ORANGE, alpha=0.25)
    axes[1].set(title="the same curve, further on", xlabel="distance Δ")
    worst_in = float((fit - target)[near].abs().max())
    worst_out = float((fit - target)[~near].abs().max())
    return figure, (
        f"Left: on the trained distances below {train_length} the fitted score lies on the target, with an error of at "
        f"most {worst_in:.2g}. Right: the same curve up to distance {int(distance[-1])}; beyond the shaded trained "
        f"range it leaves the target, by up to {worst_out:.2g}."
    )


WIDE, RADIUS = 360, 76  # of the explorable, in SVG units: narrow enough that its letters are legible on a phone


def _signed(number: float, digits: int = 0) -> str:
    """With a minus, not a hyphen.

    >>> _signed(-3), _signed(0.5, 2)
    ('−3', '0.50')
    """
    return f"{number:.{digits}f}".replace("-", "−")


def arrows(omega: float = math.pi / 12, query: int = 7, key: int = 3) -> Explorable:
    """Two arrows of one pair, turned by their positions; the score sees only the angle between them."""
    start_q, start_k = 0.0, math.pi / 6  # angles of the unturned query and key
    centre_x, centre_y = WIDE / 2, 100
    left, width, middle, height = 20, 320, 300, 70  # the box of the curve, below the dial

    def arrow(name: str, angle: float, colour: str, width: int) -> str:
        x, y = f"{centre_x + RADIUS * math.cos(angle):.1f}", f"{centre_y - RADIUS * math.sin(angle):.1f}"
        return (
            f'<line data-part="{name}" x1="{centre_x}" y1="{centre_y}" x2="{x}" y2="{y}" stroke="{colour}" '
            f'stroke-width="{width}" stroke-linecap="round"/>'
            f'<circle data-part="{name}-tip" cx="{x}" cy="{y}" r="{width + 2}" fill="{colour}"/>'
        )

    angle_q, angle_k = start_q + query * omega, start_k + key * omega
    distances = [quarter / 4 for quarter in range(-96, 97)]
    xs = [left + width * (delta + 24) / 48 for delta in distances]
    ys = [middle - height * math.cos(delta * omega + start_q - start_k) for delta in distances]
    score = math.cos(angle_q - angle_k)
    ticks = "".join(
        f'<line x1="{left + width * (at + 24) / 48:g}" y1="{middle}" x2="{left + width * (at + 24) / 48:g}" '
        f'y2="{middle + 5}" stroke="#999"/><text x="{left + width * (at + 24) / 48:g}" y="{middle + 94}" '
        f'text-anchor="middle" font-size="14" fill="#222">{_signed(at)}</text>'
        for at in range(-24, 25, 12)
    )
    dot_x = left + width * (query - key + 24) / 48
    svg = f"""
<svg viewBox="0 0 {WIDE} 430" width="100%" font-family="sans-serif" font-size="17"
 style="background:none;filter:none;display:block;max-width:460px;margin:auto">
<circle cx="{centre_x}" cy="{centre_y}" r="{RADIUS}" fill="none" stroke="#999" stroke-width="1.5"/>
{arrow("q", angle_q, "#222", 9)}
{arrow("k", angle_k, ORANGE, 4)}
<text x="10" y="24" fill="#222">query</text><text x="10" y="48" fill="{ORANGE}">key</text>
<text x="{left}" y="216" fill="#222">score against Δ = m − n</text>
<line x1="{left}" y1="{middle}" x2="{left + width}" y2="{middle}" stroke="#999"/>
<line x1="{left + width / 2}" y1="{middle - 74}" x2="{left + width / 2}" y2="{middle + 74}" stroke="#999"/>
{ticks}
<path d="{svg_path(xs, ys)}" fill="none" stroke="#444" stroke-width="2"/>
<circle data-part="dot" cx="{dot_x:.1f}" cy="{middle - height * score:.1f}" r="8" fill="{BLUE}" stroke="#222"/>
<text data-part="label" x="{left}" y="424" fill="#222">Δ = {_signed(query - key)}, score = {_signed(score, 2)}</text>
</svg>"""
    script = f"""
const part = (name) => svg.querySelector(`[data-part="${{name}}"]`);
const point = (name, angle) => {{
  const x = ({centre_x} + {RADIUS} * Math.cos(angle)).toFixed(1);
  const y = ({centre_y} - {RADIUS} * Math.sin(angle)).toFixed(1);
  part(name).setAttribute("x2", x); part(name).setAttribute("y2", y);
  part(name + "-tip").setAttribute("cx", x); part(name + "-tip").setAttribute("cy", y);
}};
const m = value.m + value.shift, n = value.n + value.shift, delta = m - n;
point("q", {start_q} + m * {omega}); point("k", {start_k} + n * {omega});
const score = Math.cos(delta * {omega} + {start_q - start_k});
part("dot").setAttribute("cx", ({left} + {width} * (delta + 24) / 48).toFixed(1));
part("dot").setAttribute("cy", ({middle} - {height} * score).toFixed(1));
const signed = (x, digits) => x.toFixed(digits).replace("-", "−");
part("label").textContent = `Δ = ${{signed(delta, 0)}}, score = ${{signed(score, 2)}}`;
write("m", m); write("n", n);
"""
    return Explorable(
        name="rotary-arrows",
        alt="A dial with two arrows of one pair, a thick query and a thin key, each turned by its position; below it "
        "the score as a curve over the distance with a dot at the present distance. Moving one position turns one "
        "arrow and moves the dot. Moving both by the same shift turns both arrows and leaves the dot where it is.",
        caption="Move one position: one arrow turns and the dot slides along the curve. Shift both: the arrows turn "
        "together and the score stays.",
        knobs=(
            Knob("m", "query's position", 0, 24, query),
            Knob("n", "key's position", 0, 24, key),
            Knob("shift", "shift both", 0, 42, 0),  # at 48, two turns, all would look as at 0
        ),
        svg=svg,
        script=script,
    )
