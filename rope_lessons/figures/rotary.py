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
    "peaks_return",
    "rounding_errors",
    "score_against_distance",
    "scores_and_their_mean",
    "unseen_distances",
]


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
def peaks_return(found: Mapping[str, tuple[Tensor, int]], back: int = 3) -> tuple[MatplotlibFigure, str]:
    """What heads that look ``back`` give to every distance of a long text: one panel for each name.

    ``found`` has the percent at each distance, and how many distances the head was made for: these are shaded. The two
    distances that get most are named.
    """
    figure, axes = new_figure(len(found), 1, height=2.2 * len(found) + 0.6, sharex=True)
    said = []
    for axis, (name, (percent, seen)) in zip(axes.flat, found.items(), strict=True):
        axis.vlines(range(len(percent)), 0, percent.tolist(), color=BLUE, linewidth=2)
        axis.axvspan(0, seen, color=ORANGE, alpha=0.25, linewidth=0)
        most = percent.topk(2).indices.tolist()
        for at in most:
            axis.annotate(
                f"{at}: {float(percent[at]):.0f} %", (at, float(percent[at])), (6, -4), textcoords="offset points"
            )
        axis.set(title=name, ylabel="attention, %", ylim=(0, 1.15 * float(percent.max())), xlim=(-8, len(percent)))
        named = " and ".join(f"{float(percent[at]):.0f} percent at distance {at}" for at in most)
        said.append(f"{name}, shaded to {seen}: {named}")
    axes.flat[-1].set(xlabel="distance Δ = m − n")
    return figure, (
        f"Attention against the distance, from 0 to {len(percent) - 1}; the distances that the head was made for are "
        f"shaded. Each panel has a bar at {back} and another tall one far outside the shade. {'. '.join(said)}."
    )


@styled
def copier_reach(
    starts: Mapping[str, Mapping[int, Sequence[float]]], lengths: Mapping[str, Mapping[int, Sequence[float]]]
) -> tuple[MatplotlibFigure, str]:
    """What copiers have right, by the position of the first token and by the length: of each method, each seed.

    ``starts`` and ``lengths`` have the percent of every seed, by method and then by position or length.
    """
    panels = ((starts, "first position"), (lengths, "tokens in the text"))
    figure, axes = new_figure(1, 2, height=3.4)
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


def arrows(degrees: int = 15, query: int = 7, key: int = 3) -> Explorable:
    """Two arrows of one pair, turned by their positions; the score sees only the angle between them."""
    ahead, reach = math.pi / 6, 24  # from the unturned query to the unturned key; the largest distance
    centre_x, centre_y = WIDE / 2, 104
    left, width, middle, height = 32, 307.2, 312, 70  # the box of the curve, below the dial
    omega = math.radians(degrees)

    def point(angle: float, radius: float) -> tuple[str, str]:
        return f"{centre_x + radius * math.cos(angle):.1f}", f"{centre_y - radius * math.sin(angle):.1f}"

    def arrow(name: str, angle: float, colour: str, width: int) -> str:
        x, y = point(angle, RADIUS)
        return (
            f'<line data-part="{name}" x1="{centre_x}" y1="{centre_y}" x2="{x}" y2="{y}" stroke="{colour}" '
            f'stroke-width="{width}" stroke-linecap="round"/>'
            f'<circle data-part="{name}-tip" cx="{x}" cy="{y}" r="{width + 2}" fill="{colour}"/>'
        )

    def tick(angle: int) -> str:
        (x1, y1), (x2, y2) = (point(math.radians(angle), RADIUS + away) for away in (0, 5 if angle % 90 else 9))
        return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#999"/>'

    def text(x: float, y: float, shown: str, anchor: str) -> str:
        return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="14" fill="#222">{shown}</text>'

    fine = 8  # points of the curve per position
    shown = [step / fine - reach for step in range(2 * fine * reach + 1)]
    xs = [left + width * (distance + reach) / (2 * reach) for distance in shown]
    ys = [middle - height * math.cos(distance * omega - ahead) for distance in shown]
    whole = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in zip(xs[::fine], ys[::fine], strict=True))
    score = math.cos((query - key) * omega - ahead)
    ticks = "".join(
        f'<line x1="{x:g}" y1="{middle}" x2="{x:g}" y2="{middle + 5}" stroke="#999"/>'
        + text(x, middle + 94, _signed(at), "middle")
        for at in range(-reach, reach + 1, 12)
        for x in [left + width * (at + reach) / (2 * reach)]
    )
    levels = "".join(text(left - 6, middle - height * at + 5, _signed(at), "end") for at in (1, 0, -1))
    turned = (
        text(centre_x + RADIUS + 14, centre_y + 5, "0°", "start")
        + text(centre_x, centre_y - RADIUS - 14, "90°", "middle")
        + text(centre_x - RADIUS - 14, centre_y + 5, "180°", "end")
    )
    dot_x = left + width * (query - key + reach) / (2 * reach)
    svg = f"""
<svg viewBox="0 0 {WIDE} 444" width="100%" font-family="sans-serif" font-size="17"
 style="background:none;filter:none;display:block;max-width:460px;margin:auto">
<circle cx="{centre_x}" cy="{centre_y}" r="{RADIUS}" fill="none" stroke="#999" stroke-width="1.5"/>
{"".join(map(tick, range(0, 360, 15)))}{turned}
{arrow("q", query * omega, "#222", 9)}
{arrow("k", key * omega + ahead, ORANGE, 4)}
<text x="10" y="24" fill="#222">query</text><text x="10" y="48" fill="{ORANGE}">key</text>
<text x="{left}" y="222" fill="#222">score against Δ = m − n</text>
<line x1="{left}" y1="{middle}" x2="{left + width}" y2="{middle}" stroke="#999"/>
<line x1="{left + width / 2:g}" y1="{middle - 74}" x2="{left + width / 2:g}" y2="{middle + 74}" stroke="#999"/>
{ticks}{levels}
<path data-part="curve" d="{svg_path(xs, ys)}" fill="none" stroke="#444" stroke-width="1.5"/>
<path data-part="whole" d="{whole}" fill="none" stroke="{BLUE}" stroke-width="5" stroke-linecap="round"/>
<circle data-part="dot" cx="{dot_x:.1f}" cy="{middle - height * score:.1f}" r="8" fill="{BLUE}" stroke="#222"/>
<text data-part="label" x="{left}" y="436" fill="#222">Δ = {_signed(query - key)}, score = {_signed(score, 2)}</text>
</svg>"""
    script = f"""
const part = (name) => svg.querySelector(`[data-part="${{name}}"]`);
const point = (name, angle) => {{
  const x = ({centre_x} + {RADIUS} * Math.cos(angle)).toFixed(1);
  const y = ({centre_y} - {RADIUS} * Math.sin(angle)).toFixed(1);
  part(name).setAttribute("x2", x); part(name).setAttribute("y2", y);
  part(name + "-tip").setAttribute("cx", x); part(name + "-tip").setAttribute("cy", y);
}};
const omega = value.degrees * Math.PI / 180, m = value.m + value.shift, n = value.n + value.shift, delta = m - n;
const scoreAt = (distance) => Math.cos(distance * omega - {ahead});
const x = (distance) => ({left} + {width} * (distance + {reach}) / {2 * reach}).toFixed(1);
const y = (distance) => ({middle} - {height} * scoreAt(distance)).toFixed(1);
point("q", m * omega); point("k", n * omega + {ahead});
const steps = Array.from({{length: {2 * fine * reach + 1}}}, (_, step) => step / {fine} - {reach});
const at = (distance) => `${{x(distance)}} ${{y(distance)}}`;
part("curve").setAttribute("d", "M" + steps.map(at).join("L"));
const whole = steps.filter((distance) => Number.isInteger(distance));
part("whole").setAttribute("d", whole.map((distance) => `M${{at(distance)}}h0`).join(""));
part("dot").setAttribute("cx", x(delta)); part("dot").setAttribute("cy", y(delta));
const signed = (number, digits) => number.toFixed(digits).replace("-", "−");
part("label").textContent = `Δ = ${{signed(delta, 0)}}, score = ${{signed(scoreAt(delta), 2)}}`;
const shifted = (place) => value.shift ? `${{place}} + ${{value.shift}} = ${{place + value.shift}}` : place;
write("m", shifted(value.m)); write("n", shifted(value.n)); write("degrees", `${{value.degrees}}°`);
"""
    return Explorable(
        name="rotary-arrows",
        alt="A dial with two arrows of one pair, a thick query and a thin key, each turned by its position; below it "
        f"the score as a curve over the distance from −{reach} to {reach}, with small dots at whole distances and a "
        f"large one at the present distance. At first each position turns by {degrees} degrees. Moving one position "
        "turns one arrow and moves the large dot. Moving both by the same shift turns both arrows and leaves the dot "
        "where it is. More degrees per position make the waves of the curve shorter.",
        caption="Move one position: one arrow turns and the dot slides along the curve. Shift both: the arrows turn "
        "together and the score stays.",
        knobs=(
            Knob("m", "query's position", 0, reach, query),
            Knob("n", "key's position", 0, reach, key),
            Knob("shift", "shift both", 0, 42, 0),  # at 48, two turns, all would look as at 0
            Knob("degrees", "degrees per position", 1, 90, degrees),
        ),
        svg=svg,
        script=script,
        style="#rl-rotary-arrows output{flex-basis:7.5em}"  # wide enough for a sum
        "@media (min-width:601px){#rl-rotary-arrows .rl-name{flex-basis:11em}}",
    )
