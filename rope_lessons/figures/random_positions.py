"""Figures of chapter 10."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

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
    Again,
    Choice,
    Explorable,
    Knob,
    doubling_axis,
    legend_below,
    new_figure,
    over_seeds,
    spoken,
    styled,
)
from rope_lessons.random_positions import equal_mean_positions, random_positions, skip_positions
from rope_lessons.sinusoidal import rope_frequencies
from rope_lessons.stored import Table

__all__ = [
    "random_draws",
    "random_lengths",
    "random_neighbours",
    "random_order",
    "random_reach",
    "random_sentence",
    "random_spacings",
    "random_steps",
]

COLOURS, MARKERS = (GREY, BLUE, GREEN, ORANGE, PURPLE, RED), "osD^vX"


SENTENCE = ("the", "cat", "saw", "the", "cat")
DRAWN = ((0, 1, 2, 3, 4), (1, 4, 6, 8, 13), (0, 1, 7, 12, 14), (3, 9, 10, 11, 15))


@styled
def random_sentence(draws: Sequence[Sequence[int]] = DRAWN, places: int = 16) -> tuple[MatplotlibFigure, str]:
    """The running sentence on a line of positions, one row for each draw, and how far apart *the cat* stand."""
    figure, axis = new_figure(height=4.0)
    said = []
    for row, draw in enumerate(draws):
        axis.hlines(-row, 0, places - 1, color=GREY, linewidth=0.8, alpha=0.6)
        axis.plot(range(places), [-row] * places, "|", color=GREY, markersize=5, alpha=0.6)
        low = False
        for word, position, before in zip(SENTENCE, draw, (-2, *draw), strict=False):
            low = position - before < 2 and not low  # neighbours' words would touch
            axis.plot(position, -row, "o", color=BLUE, markersize=6)
            axis.text(position, -row - (0.32 if low else 0.1), word, ha="center", va="top", fontsize=12)
        for first, colour in ((0, ORANGE), (3, GREEN)):
            begin, end = draw[first], draw[first + 1]
            axis.plot([begin, begin, end, end], [0.08 - row, 0.16 - row, 0.16 - row, 0.08 - row], color=colour)
            axis.text((begin + end) / 2, 0.17 - row, f"{end - begin}", ha="center", va="bottom", color=colour)
        said.append(f"{', '.join(map(str, draw))}: {draw[1] - draw[0]} and {draw[4] - draw[3]}")
    axis.set(xlim=(-0.8, places - 0.2), ylim=(-len(draws) + 0.3, 0.5))
    axis.set_yticks([])
    axis.set_xticks(range(0, places, 3))
    axis.set_xlabel("position")
    axis.grid(False)
    axis.spines["left"].set_visible(False)
    alt = f"""The words 'the cat saw the cat' as dots on a line of {places} positions, one row for each way to number
        them; a bracket over each 'the cat' says how far the two words are apart. Positions, and the two distances:
        {"; ".join(said)}."""
    return figure, alt


TRAINED = {
    "random subset": DRAWN[1:],
    "equal means": tuple(tuple(step * i for i in range(5)) for step in (0.3, 0.9, 1.8)),
    "one jump": ((0, 1, 2, 12, 13), (0, 4, 5, 6, 7), (0, 1, 2, 3, 15)),
}


@styled
def random_steps(places: int = 16) -> tuple[MatplotlibFigure, str]:
    """A text of the test above three training texts of each sampler; gaps that the test has are thick."""
    figure, axis = new_figure(height=4.3)
    row, said = 0.0, []
    for name, draws in {"at test, all three": [range(places)], **TRAINED}.items():
        axis.text(-0.3, 0.4 - row, name if row == 0 else f"{name}, in training", fontsize=12)
        alike = [0.5 < end - begin < 1.5 for draw in draws for begin, end in pairwise(draw)]
        for draw in draws:
            for begin, end in pairwise(draw):
                near = 0.5 < end - begin < 1.5
                axis.plot([begin, end], [-row, -row], color=GREEN if near else GREY, linewidth=5 if near else 1)
            axis.plot(draw, [-row] * len(draw), "o", color=BLUE if row else ORANGE, markersize=6)
            row += 0.6
        row += 0.7
        said.append(f"{name}: {sum(alike)} of {len(alike)}")
    axis.set(xlim=(-0.5, places - 0.5), ylim=(0.8 - row, 1), yticks=[], xticks=range(0, places, 3), xlabel="position")
    axis.grid(False)
    axis.spines["left"].set_visible(False)
    alt = f"""Tokens as dots on a line of {places} positions. On top a text of {places} tokens at test; below it, for
        each of three ways to number, three training texts of five tokens. Gaps of about 1, as at test, are thick.
        {"; ".join(said)}."""
    return figure, alt


def _log_choose(n: Tensor, k: Tensor) -> Tensor:
    n, k = n.double(), k.double()
    return torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)


def _position_pmf(index: int, length: int, max_length: int) -> Tensor:
    """Probability that token ``index`` gets position 0, 1, …, of a uniform random subset."""
    x = torch.arange(max_length)
    before, after = torch.tensor(index), torch.tensor(length - 1 - index)
    logs = _log_choose(x, before) + _log_choose(max_length - 1 - x, after)
    logs -= _log_choose(torch.tensor(max_length), torch.tensor(length))
    possible = (x >= before) & (max_length - 1 - x >= after)
    return torch.where(possible, logs.exp(), 0.0)


@styled
def random_order(length: int = 64, max_length: int = 2048) -> tuple[MatplotlibFigure, str]:
    """Where a token of a random subset stands, and how far it is from its neighbour: exact distributions."""
    figure, axes = new_figure(2, 1, height=6.4)
    tokens = (0, 15, 31, 47, length - 1)
    means = []
    for number, token in enumerate(tokens):
        pmf = _position_pmf(token, length, max_length)
        means.append(float((pmf * torch.arange(max_length)).sum()))
        axes[0].plot(pmf, color=COLOURS[number + 1], label=f"token {token}")
        axes[0].vlines(means[-1], 0, 0.0042, color=COLOURS[number + 1], linewidth=1, linestyle=":")
    axes[0].set_ylim(0, 0.006)
    axes[0].set_xlabel("position")
    axes[0].set_ylabel("probability")
    axes[0].legend(ncols=2, loc="upper center")
    gap = torch.arange(1, 161)
    pmf = _position_pmf(0, length, max_length)[gap - 1]  # distributed as the first position plus one
    mean = (max_length + 1) / (length + 1)
    axes[1].bar(gap, pmf, width=1.0, color=BLUE)
    axes[1].axvline(mean, color="black", linewidth=1.5, linestyle=":")
    axes[1].text(mean + 2, 0.027, f"mean {mean:.1f}")
    axes[1].set_xlabel("gap between neighbours")
    axes[1].set_ylabel("probability")
    alt = f"""Upper panel: probability of each position, for five of {length} tokens out of {max_length} positions. The
        tokens 0 and {length - 1} have narrow peaks at the two ends, the three between them broad bells; dotted lines at
        their means, {", ".join(f"{m:.0f}" for m in means)}. Lower panel: probability of the gap between neighbours. It
        is largest at 1, {float(pmf[0]):.3f}, and falls nearly like an exponential; a dotted line marks the mean,
        {mean:.1f}."""
    return figure, alt


def pairs_beyond(name: str, distance: Tensor, length: int = 64, max_length: int = 2048, test: int = 512) -> Tensor:
    """Expected number of pairs of tokens of one training text at ``distance`` or more, by sampler."""
    d, k = distance.double(), torch.arange(1, length).double()
    if name == "jump":
        # A pair k steps apart is cut with probability k / (N - 1), and then stands k + u apart, u from 0 to test - N.
        cut, jumps = k / (length - 1), test - length + 1
        far = (jumps - (d.unsqueeze(-1) - k).clamp(min=0)).clamp(min=0) / jumps
        return (((1 - cut) * (k >= d.unsqueeze(-1)) + cut * far) * (length - k)).sum(dim=-1)
    if name == "plain":
        return ((length - d) * (length - d + 1) / 2).where(d < length, 0.0)
    if name == "random":
        share = length * (length - 1) / (max_length * (max_length - 1))
        return (share * (max_length - d) * (max_length - d + 1) / 2).where(d < max_length, 0.0)
    step = d.unsqueeze(-1) / k  # puts k tokens at this distance; larger ones do too
    chance = (-step).exp() if name == "exponential" else beta_tail(float(name), step * (length - 1), length, test)
    return (chance * (length - k)).sum(dim=-1)


def beta_tail(alpha: float, end: Tensor, length: int, test: int) -> Tensor:
    """Probability that the last position of a beta draw is at least ``end``, by a sum over 100,000 strips.

    With u = x^alpha the density x^(alpha - 1) (1 - x)^(beta - 1) dx is (1 - u^(1/alpha))^(beta - 1) du, times a
    constant: without the pole at 0.
    """
    strips, beta = 100_000, alpha * ((test - 1) / (length - 1) - 1)
    u = (torch.arange(strips, dtype=torch.float64) + 0.5) / strips
    below = (1 - u ** (1 / alpha)).pow(beta - 1).cumsum(0)
    place = (strips * (end / (test - 1)).clamp(max=1.0) ** alpha).long()
    return 1 - torch.cat((below.new_zeros(1), below))[place] / below[-1]


REACHES = {
    "plain": "0, 1, 2, …",
    "random": "random subset of 2048",
    "exponential": "equal means",
    "jump": "one jump, up to 511",
    "0.25": "beta, α = 0.25",
    "1": "beta, α = 1",
}


@styled
def random_reach(length: int = 64, test: int = 512) -> tuple[MatplotlibFigure, str]:
    """How many pairs of a training text are at least that far apart, for each sampler of ``REACHES``."""
    figure, axis = new_figure(height=4.6)
    d = torch.cat((torch.arange(1, 129), torch.arange(130, 2049, 3)))
    styles, said = ("-", "-", "-", "--", "-.", ":"), []
    for number, name in enumerate(REACHES):
        pairs = pairs_beyond(name, d, length, test=test)
        style = {"color": COLOURS[number], "linestyle": styles[number], "label": REACHES[name]}
        axis.plot(d, pairs.where(pairs > 0, torch.nan), **style)
        at = pairs_beyond(name, torch.tensor([test // 2]), length, test=test)
        said.append(f"{REACHES[name]} {float(at):.3g}")
    axis.axvline(test - 1, color=GREY, linewidth=1, linestyle=":")
    doubling_axis(axis, [2**n for n in range(0, 12, 2)])
    axis.set_yscale("log")
    axis.set_ylim(1e-3, 3e3)
    axis.set_xlim(1, 2048)
    axis.set_xlabel("distance")
    axis.set_ylabel("pairs at least that far apart")
    legend_below(figure, axis)
    alt = f"""Expected number of pairs of tokens at least so far apart, in one training text of {length} tokens, against
        the distance, both on logarithmic axes; a dotted line marks the largest distance at test, {test - 1}. At
        {test // 2}: {"; ".join(said)}."""
    return figure, alt


NEIGHBOURS = ("0, 1, 2, …", "random subset", "equal means", "one jump")


def next_tokens(name: str, draws: int) -> Tensor:
    """How far the next token stands, in so many draws."""
    options: dict[str, Any] = {"batch": draws, "generator": torch.Generator().manual_seed(0)}
    if name == "random subset":
        drawn = random_positions(64, 2048, **options).double()
    elif name == "equal means":
        drawn = equal_mean_positions(64, **options)
    elif name == "one jump":
        drawn = skip_positions(64, 512, **options).double()
    else:
        drawn = torch.arange(64).double().expand(draws, 64)
    return drawn[:, 32] - drawn[:, 31]


def next_direction(name: str, omega: float) -> complex:
    """The mean direction of the next token."""
    if name == "equal means":
        return 1 / (1 - 1j * omega)
    gap = torch.arange(1, 2049)
    share = _position_pmf(0, 64, 2048) if name == "random subset" else (gap == 1).double()
    if name == "one jump":  # in one of the 63 places, by 0 to 512 - 64
        share = (62 * share + (gap < 450) / 449) / 63
    return complex((share * (1j * omega * gap).exp()).sum())


@styled
def random_neighbours(
    samplers: Sequence[str] = NEIGHBOURS, hands: Sequence[int] = (0, 8, 14, 22)
) -> tuple[MatplotlibFigure, str]:
    """Where four hands point for the next token, in 150 draws of each sampler, and the mean."""
    figure, axes = new_figure(len(samplers), len(hands), height=1.45 * len(samplers) + 0.3)
    frequencies, said = rope_frequencies(64), []
    circle = torch.linspace(0, 2 * math.pi, 121)
    for row, name in enumerate(samplers):
        shown, sizes = next_tokens(name, 150), []
        for column, hand in enumerate(hands):
            axis, omega = axes[row][column], float(frequencies[hand])
            axis.plot(circle.cos(), circle.sin(), color=GREY, linewidth=0.8)
            axis.plot((omega * shown).cos(), (omega * shown).sin(), "o", color=BLUE, markersize=4, alpha=0.35)
            mean = next_direction(name, omega)
            axis.plot([0, mean.real], [0, mean.imag], color=ORANGE, linewidth=3)
            axis.plot(0, 0, "o", color=ORANGE, markersize=4)
            axis.set(xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), aspect="equal")
            axis.axis("off")
            if row == 0:
                axis.set_title(f"hand {hand}", fontsize=12)
            sizes.append(abs(mean))
        axes[row][0].text(-1.45, 0, name, ha="right", va="center", rotation=90, fontsize=12)
        said.append(f"{name}: {spoken(sizes, 2)}")
    alt = f"""Circles, one row for each sampler and one column for each of the hands {", ".join(map(str, hands))} of
        {len(frequencies)}. Dots show where it points for the next token, in 150 draws; an orange line is the mean.
        Lengths of the mean, fastest hand first. {"; ".join(said)}."""
    return figure, alt


CONTROLLED = (
    ("plain", "plain", "0, 1, 2"),
    ("random subset, grid", "random", "grid"),
    ("equal means", "equal-mean", "0, 1, 2"),
    ("one jump", "one jump", "0, 1, 2"),
    ("plain, ReRoPE and log n at test", "plain", "ReRoPE, log n"),
    ("plain, window of 16 at test", "plain", "window 16"),
)


def losses(stored: Mapping[str, Any], training: str, test: str) -> dict[int, list[float]]:
    """Losses of all seeds by the length of the text: encoders with RoPE, without log n or with that of the test."""
    controls = stored["controls"]
    if training in controls["training"] and test in controls["test"]:
        found = controls.where(training=training, test=test)
    else:
        found = stored["rows"].where(encoding="rope", training=training, positions=test, log_n=False)
    return {length: of["loss"] for length, of in found.by("length").items()}


@styled
def random_lengths(
    stored: Mapping[str, Any], cases: Sequence[tuple[str, str, str]] = CONTROLLED
) -> tuple[MatplotlibFigure, str]:
    """Loss against the length of the text. A case is its name, a training and a test of ``random_positions.json``."""
    figure, axis = new_figure(height=4.5)
    said = []
    for number, (name, training, test) in enumerate(cases):
        by_length = losses(stored, training, test)
        lengths = sorted(by_length)
        style = {"color": COLOURS[number], "marker": MARKERS[number]}
        line = "--" if training == "plain" and test != "0, 1, 2" else "-"
        beside = [n * 2 ** (0.05 * (number - (len(cases) - 1) / 2)) for n in lengths]  # so that no bar hides another
        mean = over_seeds(axis, beside, [by_length[n] for n in lengths], **style, linestyle=line, label=name)
        said.append(f"{name}: {spoken(mean, 2)}")
    doubling_axis(axis, lengths)
    axis.set_xlabel("length of the text, bytes (trained on 64)")
    axis.set_ylabel("nats per hidden byte")
    legend_below(figure, axis)
    alt = f"""Loss at hidden bytes against the length of the text, {lengths[0]} to {lengths[-1]} bytes, mean over the
        seeds with bars from best to worst; dashed, trained on 0, 1, 2 and changed only at test. In nats, shortest to
        longest text. {"; ".join(said)}."""
    return figure, alt


def gaps_by_step(steps: Sequence[float], length: int = 64, places: int = 2048) -> dict[str, list[float]]:
    """Which share of the gaps of training lies around each step, from half a doubling below it to half a one above."""

    def shares(beyond: Callable[[float], float]) -> list[float]:
        return [beyond(step / math.sqrt(2)) - beyond(step * math.sqrt(2)) for step in steps]

    def subset(gap: float) -> float:  # the share of gaps that are at least so wide
        return math.comb(places + 1 - math.ceil(gap), length) / math.comb(places, length)

    return {
        "plain": shares(lambda gap: float(gap <= 1)),
        "random": shares(subset),
        "equal-mean": shares(lambda gap: math.exp(-gap)),
    }


@styled
def random_spacings(rows: Table, encoding: str = "rope") -> tuple[MatplotlibFigure, str]:
    """Loss on 64 bytes against the step between their positions, and the gaps of each training."""
    figure, (above, below) = new_figure(height=5.2, rows=2, sharex=True, height_ratios=(2, 1))
    names = {"plain": "twin (0, 1, 2, …)", "random": "random subset", "equal-mean": "equal means"}
    said = []
    for number, (training, name) in enumerate(names.items()):
        by_step = rows.where(encoding=encoding, training=training).by("spacing")
        steps = sorted(by_step)
        style: dict[str, Any] = {"color": COLOURS[number], "marker": MARKERS[number]}
        mean = over_seeds(above, steps, [by_step[step]["loss"] for step in steps], label=name, **style)
        gaps = [100 * share for share in gaps_by_step(steps)[training]]
        below.plot(steps, [share or math.nan for share in gaps], **style)
        said.append(f"{name}: {spoken(mean, 2)}; gaps {spoken(gaps, 0)}")
    doubling_axis(above, steps)
    doubling_axis(below, steps)
    below.set_xlabel("step between neighbours, 64 bytes")
    above.set_ylabel("nats per hidden byte")
    below.set_ylabel("% of gaps\nin training")
    below.set_ylim(0, 105)
    legend_below(figure, above)
    alt = f"""Above, loss on texts of 64 bytes against the step between neighbouring positions at test, from
        {steps[0]:g} to {steps[-1]:g}, one line for each training, mean over the seeds with bars from best to worst.
        Below, the share of the gaps of training that lie around each step. In nats and percent, smallest step to
        largest. {"; ".join(said)}."""
    return figure, alt


# --- the explorable: ten draws of a sampler ------------------------------------------------------------------------

SPACE, NEAR, DRAWS, ROW = 512, 32, 10, 24  # positions at test; those of the magnifier; draws shown; height of a row
NAMES = ("0, 1, 2, …", "random subset", "equal means", "one jump")


def _uniform(seed: int) -> Any:
    """Numbers in (0, 1) that Python and the script of the page compute alike: x -> 16807 x mod 2^31 - 1."""
    state = 1000 * seed + 12345
    while True:
        state = 16807 * state % 2147483647
        yield state / 2147483647


def _draw(sampler: int, tokens: int, numbers: Any) -> list[float]:
    if sampler == 0:
        return list(range(tokens))
    if sampler == 1:  # take each position with the probability that the rest of the draw leaves to it
        taken: list[float] = []
        for p in range(SPACE):
            if next(numbers) * (SPACE - p) < tokens - len(taken):
                taken.append(p)
        return taken
    if sampler == 3:
        cut = 1 + math.floor((tokens - 1) * next(numbers))
        skip = math.floor((SPACE - tokens + 1) * next(numbers))
        return [i + skip * (i >= cut) for i in range(tokens)]
    end = -(tokens - 1) * math.log(next(numbers))
    return [end * i / (tokens - 1) for i in range(tokens)]


def _ticks(draws: list[list[float]], space: int = SPACE) -> str:
    """The ``d`` attribute of all ticks; those beyond the axis are left out."""
    marks = [(p, row) for row, draw in enumerate(draws) for p in draw if p <= space - 1]
    return "".join(f"M{10 + 340 * p / (space - 1):.1f} {70 + ROW * row}v14" for p, row in marks)


def _beyond(draws: list[list[float]], space: int = SPACE) -> str:
    """A triangle at the right end of each row whose draw goes on beyond the axis."""
    return "".join(f"M350 {72 + ROW * row}l8 5l-8 5z" for row, draw in enumerate(draws) if draw[-1] > space - 1)


def _near(draws: list[list[float]]) -> str:
    """How many of all neighbours are about one apart."""
    gaps = [b - a for draw in draws for a, b in pairwise(draw)]
    return f"neighbours about 1 apart: {100 * sum(0.5 < gap < 1.5 for gap in gaps) / len(gaps):.0f} %"


def _far(draws: list[list[float]]) -> str:
    return f"largest distance in these ten texts: {max(draw[-1] - draw[0] for draw in draws):.0f}"


DRAWS_SCRIPT = r"""
    const space = 512, shown = value.shown, rows = 10, tokens = value.tokens;
    let state = 1000 * value.seed + 12345;
    const next = () => { state = (16807 * state) % 2147483647; return state / 2147483647; };
    let ticks = "", beyond = "", far = 0, near = 0;
    for (let row = 0; row < rows; row++) {
      const draw = [];
      if (value.sampler === 1) {
        for (let p = 0; p < space; p++) if (next() * (space - p) < tokens - draw.length) draw.push(p);
      } else if (value.sampler === 3) {
        const cut = 1 + Math.floor((tokens - 1) * next()), skip = Math.floor((space - tokens + 1) * next());
        for (let i = 0; i < tokens; i++) draw.push(i + (i >= cut ? skip : 0));
      } else {
        const end = value.sampler === 0 ? tokens - 1 : -(tokens - 1) * Math.log(next());
        for (let i = 0; i < tokens; i++) draw.push(end * i / (tokens - 1));
      }
      const y = 70 + 24 * row, last = draw[tokens - 1];
      for (const p of draw) if (p <= shown - 1) ticks += `M${(10 + 340 * p / (shown - 1)).toFixed(1)} ${y}v14`;
      if (last > shown - 1) beyond += `M350 ${y + 2}l8 5l-8 5z`;
      far = Math.max(far, last - draw[0]);
      for (let i = 1; i < tokens; i++) near += draw[i] - draw[i - 1] > 0.5 && draw[i] - draw[i - 1] < 1.5;
    }
    svg.querySelector(".ticks").setAttribute("d", ticks);
    svg.querySelector(".beyond").setAttribute("d", beyond);
    const share = (100 * near / (rows * (tokens - 1))).toFixed(0);
    svg.querySelector(".title").textContent = `neighbours about 1 apart: ${share} %`;
    svg.querySelector(".reach").textContent = `largest distance in these ten texts: ${far.toFixed(0)}`;
    svg.querySelector(".end").textContent = shown - 1;
"""


def random_draws(sampler: int = 1, tokens: int = 16, seed: int = 1, shown: int = SPACE) -> Explorable:
    """Ten draws of a sampler on the positions that a text of 512 has at test."""
    numbers = _uniform(seed)
    draws = [_draw(sampler, tokens, numbers) for _ in range(DRAWS)]
    bottom = 70 + ROW * DRAWS
    svg = (
        f'<svg viewBox="0 0 360 {bottom + 34}" style="width:100%;max-width:560px;height:auto;background:none;'
        'display:block;margin:auto" font-family="sans-serif" font-size="14" fill="#1a1a1a">'
        f'<text x="10" y="24" font-weight="bold" font-size="15" class="title">{_near(draws)}</text>'
        f'<text x="10" y="50" class="reach">{_far(draws)}</text>'
        f'<path class="ticks" d="{_ticks(draws, shown)}" fill="none" stroke="{BLUE}" stroke-width="1.5"/>'
        f'<path class="beyond" d="{_beyond(draws, shown)}" fill="{RED}"/>'
        f'<path d="M10 {bottom}H350" stroke="#1a1a1a" fill="none"/>'
        f'<text x="10" y="{bottom + 20}">0</text>'
        f'<text x="180" y="{bottom + 20}" text-anchor="middle">position</text>'
        f'<text x="350" y="{bottom + 20}" text-anchor="end" class="end">{shown - 1}</text></svg>'
    )
    alt = f"""Ten rows of ticks on a line from 0 to {SPACE - 1}: in each row the positions of {tokens} tokens, drawn
        with {NAMES[sampler]}. A random subset of {SPACE} lies all over the line, unevenly. With equal means they are
        evenly spaced from 0 on, most rows end early, and a red triangle marks one that goes on. With one jump each row
        is two dense blocks, the first at the left. With 0, 1, 2 all rows are the same short block there."""
    caption = f"""N tokens of a training text, numbered ten times, a row each, on the {SPACE} positions of a text at
        test. “About 1 apart” is a gap between ½ and 1½; choose 0 to {NEAR - 1} to see them. A red triangle: the text
        goes on."""
    knobs = (
        Choice("sampler", "Sampler", dict(enumerate(NAMES)), sampler),
        Choice("shown", "Positions", {SPACE: f"0 to {SPACE - 1}", NEAR: f"0 to {NEAR - 1}"}, shown),
        Knob("tokens", "tokens N", 4, 64, tokens, 4),
        Again("seed", "another ten", 20, seed),
    )
    return Explorable("random-draws", alt, caption, knobs, svg, DRAWS_SCRIPT)
