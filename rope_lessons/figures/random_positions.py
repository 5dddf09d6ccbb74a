"""Figures of chapter 10."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.figure import Figure as MatplotlibFigure
from torch import Tensor

from rope_lessons.figures import (
    BLUE,
    DIVERGING,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
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
from rope_lessons.stored import Table

__all__ = [
    "random_draws",
    "random_lengths",
    "random_order",
    "random_reach",
    "random_sentence",
    "random_spacings",
]

COLOURS, MARKERS = (GREY, BLUE, GREEN, ORANGE, PURPLE, RED), "osD^vX"


@styled
def random_sentence(positions: Sequence[float] = (1, 4, 5, 11, 14)) -> tuple[MatplotlibFigure, str]:
    """The matrix of distances of the running sentence, with other positions than 0 to 4; an encoder sees all of it."""
    words = ("the", "cat", "saw", "the", "cat")
    figure, axis = new_figure(height=3.8, width=4.8)
    p = torch.tensor(positions, dtype=torch.float64)
    distance = p[:, None] - p
    axis.imshow(distance, cmap=DIVERGING, vmin=-1.3 * float(p.max()), vmax=1.3 * float(p.max()))
    for i, row in enumerate(distance.tolist()):
        for j, value in enumerate(row):
            axis.text(j, i, f"{value:g}", ha="center", va="center", fontsize=13)
    axis.set_xticks(range(len(p)), [f"{word}\n{n:g}" for word, n in zip(words, positions, strict=True)])
    axis.set_yticks(range(len(p)), [f"{word} {n:g}" for word, n in zip(words, positions, strict=True)])
    axis.set(xlabel="key", ylabel="query")
    axis.grid(False)
    alt = f"""Matrix of distances for the sentence 'the cat saw the cat' with the positions
        {", ".join(f"{n:g}" for n in positions)}: one row for each query, one column for each key, on both sides. A
        diagonal no longer holds one value. The first column, from the top, reads
        {", ".join(f"{n:g}" for n in distance[:, 0].tolist())}."""
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
    pmf = _position_pmf(0, length, max_length)[gap - 1]  # a gap is distributed as the first position plus one
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
    if name == "plain":
        return ((length - d) * (length - d + 1) / 2).where(d < length, 0.0)
    if name == "random":
        share = length * (length - 1) / (max_length * (max_length - 1))
        return (share * (max_length - d) * (max_length - d + 1) / 2).where(d < max_length, 0.0)
    step = d.unsqueeze(-1) / k  # the step that puts k tokens at this distance: larger ones do too
    chance = (-step).exp() if name == "exponential" else beta_tail(float(name), step * (length - 1), length, test)
    return (chance * (length - k)).sum(dim=-1)


def beta_tail(alpha: float, end: Tensor, length: int, test: int) -> Tensor:
    """Probability that the last position of a beta draw is at least ``end``, by a sum over 100 000 strips.

    With u = x^alpha the density x^(alpha - 1) (1 - x)^(beta - 1) dx is (1 - u^(1/alpha))^(beta - 1) du, times a
    constant: without the pole at 0.
    """
    strips, beta = 100_000, alpha * ((test - 1) / (length - 1) - 1)
    u = (torch.arange(strips, dtype=torch.float64) + 0.5) / strips
    below = (1 - u ** (1 / alpha)).pow(beta - 1).cumsum(0)
    place = (strips * (end / (test - 1)).clamp(max=1.0) ** alpha).long()
    return 1 - torch.cat((below.new_zeros(1), below))[place] / below[-1]


@styled
def random_reach(length: int = 64, max_length: int = 2048, test: int = 512) -> tuple[MatplotlibFigure, str]:
    """How many pairs of a training text are at least that far apart, for each sampler."""
    figure, axis = new_figure(height=4.8)
    names = {
        "plain": "0, 1, 2, …",
        "random": f"random subset of {max_length}",
        "exponential": "equal-mean, exponential",
        "0.25": "equal-mean, beta, α = 0.25",
        "1": "equal-mean, beta, α = 1",
    }
    d = torch.cat((torch.arange(1, 129), torch.arange(130, 2049, 3)))
    styles, said = ("-", "-", "-", "--", "-."), []
    for number, (name, label) in enumerate(names.items()):
        pairs = pairs_beyond(name, d, length, max_length, test)
        axis.plot(d, pairs.where(pairs > 0, torch.nan), color=COLOURS[number], linestyle=styles[number], label=label)
        at = pairs_beyond(name, torch.tensor([test // 2]), length, max_length, test)
        said.append(f"{label} {float(at):.3g}")
    axis.axvline(test - 1, color="black", linewidth=1, linestyle=":")
    axis.text(test * 1.04, 3, f"largest\nat test,\n{test - 1}")
    doubling_axis(axis, [2**n for n in range(0, 12, 2)])
    axis.set_yscale("log")
    axis.set_ylim(1e-3, 3e3)
    axis.set_xlim(1, max_length)
    axis.set_xlabel("distance")
    axis.set_ylabel("pairs at least that far apart")
    legend_below(figure, axis)
    alt = f"""Expected number of pairs of tokens at least so far apart, in one training text of {length} tokens, against
        the distance, both on logarithmic axes. Positions 0, 1, 2 end at {length - 1}. The random subset falls least and
        reaches {max_length - 1}. The exponential and the two beta samplers bend down between 100 and 500; a dotted line
        marks the largest distance at test, {test - 1}. At {test // 2}: {"; ".join(said)}."""
    return figure, alt


@styled
def random_lengths(
    rows: Table, cases: Mapping[str, tuple[str, str]], encoding: str = "rope"
) -> tuple[MatplotlibFigure, str]:
    """Loss against the length of the text, without and with log n. ``cases`` maps a name to (training, positions at
    test) in ``data/random_positions.json``."""
    figure, axis = new_figure(height=5.0)
    said = []
    for number, (name, (training, positions)) in enumerate(cases.items()):
        by_length = rows.where(encoding=encoding, training=training, positions=positions).by("length")
        lengths = sorted(by_length)
        style = {"color": COLOURS[number], "marker": MARKERS[number]}
        for log_n, line, label in ((False, "-", name), (True, "--", None)):
            # At the training length the scale is 1: stored once, without it.
            found = [by_length[n].where(log_n=log_n and n > 64)["loss"] for n in lengths]
            mean = over_seeds(axis, lengths, found, **style, linestyle=line, label=label)
            said.append(f"{name}{' with log n' * log_n}: {spoken(mean, 2)}")
    axis.plot([], [], color="black", linestyle="--", label="with log n at test")
    doubling_axis(axis, lengths)
    axis.set_xlabel("length of the text, bytes (trained on 64)")
    axis.set_ylabel("loss, nats per hidden byte")
    legend_below(figure, axis)
    alt = f"""Loss at hidden bytes against the length of the text, {lengths[0]} to {lengths[-1]} bytes, mean over the
        seeds with bars from best to worst; dashed with log n at test. In nats, shortest to longest text.
        {"; ".join(said)}."""
    return figure, alt


@styled
def random_spacings(rows: Table, encoding: str = "rope") -> tuple[MatplotlibFigure, str]:
    """Loss on 64 bytes against the step between their positions, a line for each training."""
    figure, axis = new_figure(height=4.6)
    names = {"plain": "0, 1, 2, …", "random": "random subset", "equal-mean": "equal-mean, exponential"}
    said = []
    for number, (training, name) in enumerate(names.items()):
        by_step = rows.where(encoding=encoding, training=training).by("spacing")
        steps = sorted(by_step)
        found = [by_step[step]["loss"] for step in steps]
        mean = over_seeds(axis, steps, found, color=COLOURS[number], marker=MARKERS[number], label=name)
        said.append(f"{name}: {spoken(mean, 2)}")
    doubling_axis(axis, steps)
    axis.set_xlabel("step between neighbours at test, 64 bytes")
    axis.set_ylabel("loss, nats per hidden byte")
    legend_below(figure, axis)
    alt = f"""Loss on texts of 64 bytes against the step between neighbouring positions at test, from {steps[0]:g} to
        {steps[-1]:g}, one line for each training, mean over the seeds with bars from best to worst. In nats, smallest
        step to largest. {"; ".join(said)}."""
    return figure, alt


# --- the explorable: ten draws of a sampler ------------------------------------------------------------------------

SPACE, DRAWS, ROW = 512, 10, 24  # positions at test; draws shown; height of a row
NAMES = ("0, 1, 2, …", "random subset", "equal-mean")


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
    end = -(tokens - 1) * math.log(next(numbers))
    return [end * i / (tokens - 1) for i in range(tokens)]


def _ticks(draws: list[list[float]]) -> str:
    """The ``d`` attribute of all ticks; those beyond the axis are left out."""
    marks = [(p, row) for row, draw in enumerate(draws) for p in draw if p < SPACE]
    return "".join(f"M{10 + 340 * p / (SPACE - 1):.1f} {70 + ROW * row}v14" for p, row in marks)


def _beyond(draws: list[list[float]]) -> str:
    """A triangle at the right end of each row whose draw goes on beyond the axis."""
    return "".join(f"M350 {72 + ROW * row}l8 5l-8 5z" for row, draw in enumerate(draws) if draw[-1] >= SPACE)


def _title(draws: list[list[float]]) -> str:
    ends = [draw[-1] for draw in draws]
    steps = sum(ends) - sum(draw[0] for draw in draws)
    mean = steps / (len(draws) * (len(draws[0]) - 1))
    return f"farthest: {max(ends):.0f}, mean step: {mean:.2f}"


DRAWS_SCRIPT = r"""
    const space = 512, rows = 10, tokens = value.tokens;
    let state = 1000 * value.seed + 12345;
    const next = () => { state = (16807 * state) % 2147483647; return state / 2147483647; };
    let ticks = "", beyond = "", farthest = 0, steps = 0;
    for (let row = 0; row < rows; row++) {
      const draw = [];
      if (value.sampler === 1) {
        for (let p = 0; p < space; p++) if (next() * (space - p) < tokens - draw.length) draw.push(p);
      } else {
        const end = value.sampler === 0 ? tokens - 1 : -(tokens - 1) * Math.log(next());
        for (let i = 0; i < tokens; i++) draw.push(end * i / (tokens - 1));
      }
      const y = 70 + 24 * row, last = draw[tokens - 1];
      for (const p of draw) if (p < space) ticks += `M${(10 + 340 * p / (space - 1)).toFixed(1)} ${y}v14`;
      if (last >= space) beyond += `M350 ${y + 2}l8 5l-8 5z`;
      farthest = Math.max(farthest, last);
      steps += (last - draw[0]) / (tokens - 1) / rows;
    }
    svg.querySelector(".ticks").setAttribute("d", ticks);
    svg.querySelector(".beyond").setAttribute("d", beyond);
    svg.querySelector(".title").textContent = `farthest: ${farthest.toFixed(0)}, mean step: ${steps.toFixed(2)}`;
"""


def random_draws(sampler: int = 1, tokens: int = 16, seed: int = 1) -> Explorable:
    """Ten draws of a sampler on the positions that a text of 512 has at test."""
    numbers = _uniform(seed)
    draws = [_draw(sampler, tokens, numbers) for _ in range(DRAWS)]
    bottom = 70 + ROW * DRAWS
    svg = (
        f'<svg viewBox="0 0 360 {bottom + 34}" style="width:100%;max-width:560px;height:auto;background:none;'
        'display:block;margin:auto" font-family="sans-serif" font-size="14" fill="#1a1a1a">'
        f'<text x="10" y="24" font-weight="bold" font-size="15" class="title">{_title(draws)}</text>'
        f'<text x="10" y="52">ten draws, one in each row</text>'
        f'<path class="ticks" d="{_ticks(draws)}" fill="none" stroke="{BLUE}" stroke-width="1.5"/>'
        f'<path class="beyond" d="{_beyond(draws)}" fill="{RED}"/>'
        f'<path d="M10 {bottom}H350" stroke="#1a1a1a" fill="none"/>'
        f'<text x="10" y="{bottom + 20}">0</text>'
        f'<text x="180" y="{bottom + 20}" text-anchor="middle">position</text>'
        f'<text x="350" y="{bottom + 20}" text-anchor="end">{SPACE - 1}</text></svg>'
    )
    alt = f"""Ten rows of ticks on a line from 0 to {SPACE - 1}: in each row the positions of {tokens} tokens, drawn as
        a random subset of {SPACE}. The ticks lie all over the line and unevenly: neighbours may touch, or leave a large
        gap. With the equal-mean sampler the ticks of a row are evenly spaced from 0 on, most rows end early, and a red
        triangle marks a row that goes on beyond the line. With the positions 0, 1, 2 all rows are the same short block
        at the left."""
    caption = f"""The line is what a text of {SPACE} tokens needs at test. Go from 0, 1, 2 to the random subset
        and to equal-mean positions (exponential), and look where the ticks go. With 64 tokens the mean step of
        the subset is near 8, that of equal-mean near 1."""
    knobs = (
        Choice("sampler", "Sampler", dict(enumerate(NAMES)), sampler),
        Knob("tokens", "tokens N", 4, 64, tokens, 4),
        Knob("seed", "another ten", 1, 20, seed),
    )
    return Explorable("random-draws", alt, caption, knobs, svg, DRAWS_SCRIPT)
