"""Figures of chapter 06."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.patches import FancyArrowPatch
from torch import Tensor

from rope_lessons.entropy import attention_entropy
from rope_lessons.figures import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    Explorable,
    Knob,
    doubling_axis,
    legend_below,
    new_figure,
    over_seeds,
    styled,
    svg_path,
)
from rope_lessons.stored import Table

__all__ = [
    "attention_rows",
    "entropy_heads",
    "entropy_lengths",
    "entropy_lookup",
    "entropy_needle",
    "entropy_of_heads",
    "entropy_share",
    "entropy_sphere",
    "entropy_spread",
]


@styled
def entropy_sphere(dim: int = 128) -> tuple[MatplotlibFigure, str]:
    """What the scores take off log n, per channel: the exact limit, and the straight line of the article."""
    figure, axis = new_figure(height=3.9)
    scale = torch.linspace(0.001, 2, 400, dtype=torch.float64)
    cosine = ((1 + 4 * scale**2).sqrt() - 1) / (2 * scale)
    axis.plot(scale, -(1 - cosine**2).log() / 2, color=BLUE, label="exact, many channels")
    axis.plot(scale, 0.24 * scale, "--", color=ORANGE, label="0.24 μ")
    axis.plot([1], [math.log((1 + math.sqrt(5)) / 2) / 2], "o", color=BLUE)
    used = 1 / math.sqrt(dim)
    axis.axvline(used, color=RED, linewidth=1.5, linestyle=":")
    axis.text(used + 0.03, 0.42, f"μ in use,\n1/√{dim} = {used:.3f}", color=RED)
    axis.set_xlabel("μ, the factor on q·k")
    axis.set_ylabel("(log n − entropy) / d")
    axis.set_xlim(0, 2)
    axis.set_ylim(0, 0.5)
    legend_below(figure, axis)
    alt = f"""What the scores of random keys take off the entropy, divided by d, against the factor μ. The exact curve
        starts flat, like μ squared over 2, and crosses the straight line 0.24 μ near μ = 1. The μ that attention uses,
        {used:.3f} for d = {dim}, lies far left, where the line is more than five times too high."""
    return figure, alt


@styled
def entropy_spread(
    spreads: Sequence[float] = (1, 2, 3), train_length: int = 512, seed: int = 0, in_keys: bool = False
) -> tuple[MatplotlibFigure, str]:
    """Entropy against the number of keys for Gaussian scores, without and with the log n scale.

    Args:
        spreads: standard deviations of the scores.
        train_length: where the scale is 1.
        seed: of the draws.
        in_keys: the entropy H as a number of keys, e to the power H, on a logarithmic axis; in nats otherwise.
    """
    figure, axes = new_figure(2, 1, height=6.6, sharex=True, sharey=True)
    counts = [2**k for k in range(4, 15)]
    said = []
    for spread, color, marker in zip(spreads, (BLUE, ORANGE, GREEN), "os^", strict=False):
        rows = torch.tensor([_mean_entropies(spread, n, train_length, seed) for n in counts])
        for axis, column in zip(axes, rows.T, strict=True):
            shown = column.exp() if in_keys else column
            axis.plot(counts, shown, color=color, marker=marker, markersize=5, label=f"spread σ = {spread:g}")
        plain, scaled = rows[-1].exp() if in_keys else rows[-1]
        said.append(f"for σ = {spread:g} {_digits(plain, in_keys)} and {_digits(scaled, in_keys)}")
    for axis, title in zip(axes, ("plain scores", f"scores times log n / log {train_length}"), strict=True):
        most = counts if in_keys else [math.log(n) for n in counts]
        axis.plot(counts, most, color=GREY, linestyle="--", label="all keys" if in_keys else "log n")
        axis.axvline(train_length, color="black", linewidth=1, linestyle=":")
        axis.set_title(title)
        axis.set_ylabel("keys looked at" if in_keys else "entropy, nats")
    axes[0].set_xscale("log", base=2)
    axes[0].set_xticks(counts[::2], [f"{n:,}" for n in counts[::2]])
    if in_keys:
        _keys_axis(axes[0], (1, 16, 256, 4096))
    else:
        axes[0].set_ylim(0, None)
    axes[0].minorticks_off()
    axes[1].set_xlabel("keys that the query sees" if in_keys else "number of keys n")
    legend_below(figure, axes[0])
    measure = "number of keys that attention is spread over" if in_keys else "entropy of attention"
    alt = f"""Two panels, {measure} against the number of keys from 16 to {counts[-1]:,}, for Gaussian
        scores. Upper panel, plain scores: all curves rise with {"it" if in_keys else "log n"}. Lower panel, scores
        times log n over log {train_length}: the curves for σ = 3 and, further up, σ = 2 become nearly flat; for σ = 1
        it rises. At {counts[-1]:,} keys the {"numbers" if in_keys else "entropies"} without and with the scale are
        {"; ".join(said)}."""
    return figure, alt


def _digits(value: Tensor, in_keys: bool) -> str:
    return f"{value:,.0f}" if in_keys else f"{value:.1f}"


def _keys_axis(axis: Axes, ticks: Sequence[int]) -> None:
    """Numbers of keys upwards, from one key on, each step as far as a doubling is."""
    axis.set_yscale("log", base=2)
    axis.set_yticks(ticks, [f"{n:,}" for n in ticks])
    axis.set_ylim(1, None)


def _mean_entropies(spread: float, n: int, train_length: int, seed: int) -> list[float]:
    """Mean entropy of n Gaussian scores, plain and with log n, over enough draws for a steady mean."""
    generator = torch.Generator().manual_seed(seed + n)  # the chapter's table has the same draws
    scores = spread * torch.randn(max(256, 2**18 // n), n, generator=generator)
    scale = math.log(n) / math.log(train_length)
    return [float(attention_entropy((s * scores).softmax(-1)).mean()) for s in (1.0, scale)]


@styled
def entropy_share(
    weight: float = 0.85, train_length: int = 64, lengths: Sequence[int] = (64, 128, 256, 512)
) -> tuple[MatplotlibFigure, str]:
    """How one key that matters shares the attention with a crowd that grows, without and with the log n scale."""
    figure, axes = new_figure(2, 1, height=4.6, sharex=True)
    score = math.log((train_length - 1) * weight / (1 - weight))
    said = []
    for axis, title in zip(axes, ("plain scores", f"scores times log n / log {train_length}"), strict=True):
        scales = [1.0 if axis is axes[0] else math.log(n) / math.log(train_length) for n in lengths]
        shares = [100 * _crowd(n, score, 0.0, scale)[0] for n, scale in zip(lengths, scales, strict=True)]
        axis.barh(range(len(lengths)), shares, color=BLUE, label="the key that matters")
        rest = [100 - share for share in shares]
        axis.barh(range(len(lengths)), rest, left=shares, color=GREY, alpha=0.4, label="all others")
        for at, share in enumerate(shares):
            axis.text(2, at, f"{share:.0f} %", va="center", color="white", fontsize=12)
        axis.set(title=title, yticks=range(len(lengths)), yticklabels=[f"{n} keys" for n in lengths])
        axis.invert_yaxis()
        axis.grid(False)
        said.append(", ".join(f"{share:.0f} % of {n}" for share, n in zip(shares, lengths, strict=True)))
    axes[1].set(xlabel="share of the attention, %", xlim=(0, 100))
    legend_below(figure, axes[0])
    alt = f"""Bars that show which share of the attention one key has, and which all others have together. Plain scores,
        it has {said[0]} keys. Scores times log n over log {train_length}: {said[1]} keys."""
    return figure, alt


@styled
def attention_rows(rows: Mapping[str, tuple[Tensor, int]]) -> tuple[MatplotlibFigure, str]:
    """Rows of attention weights, one panel each, over the places of their keys.

    Args:
        rows: by title, weights ``(keys,)`` and the place of the key that matters.
    """
    figure, axes = new_figure(len(rows), 1, height=1.75 * len(rows) + 0.5, sharex=True, sharey=True)
    said, least = [], 1e-5
    for axis, (title, (row, place)) in zip(axes, rows.items(), strict=True):
        weights = row.tolist()
        axis.vlines(range(len(weights)), least, weights, color=GREY, linewidth=1, alpha=0.7)
        axis.vlines([place], least, weights[place], color=BLUE, linewidth=5)
        wide = math.exp(float(attention_entropy(row)))
        keys = f"{wide:.1f}" if wide < 10 else f"{wide:.0f}"
        axis.set(title=f"{title}: {100 * weights[place]:.0f} %, {keys} keys")
        axis.set(yscale="log", ylim=(least, 1.5), ylabel="weight")
        axis.set_yticks([1, 1e-2, 1e-4], ["100 %", "1 %", "0.01 %"])
        axis.minorticks_off()
        said.append(
            f"{title}: {100 * weights[place]:.0f} % of the weight, at place {place} of {len(weights)}; "
            f"spread as over {keys} keys"
        )
    axes[-1].set(xlabel="place of the key in the text", xlim=(-6, max(len(row) for row, _ in rows.values()) + 5))
    alt = f"""Rows of attention: the weight that one query gives to each key of a text, on a logarithmic axis, the key
        that it needs in blue. {"; ".join(said)}. All others are grey. Where the blue key has most of the
        weight it stands far above them; where it has not, it is lost among them."""
    return figure, alt


@styled
def entropy_lookup(
    hidden: str,
    asked: str,
    cases: Mapping[str, tuple[float, float, float]],
    others: Sequence[tuple[int, int]],
    apart: int = 4,
) -> tuple[MatplotlibFigure, str]:
    """How two layers find a hidden digit: two arrows to the first letter of each copy, and one across.

    Args:
        hidden, asked: the two copies; the second has one character for each before the digit that is asked for.
        cases: by title, percent of the weight that the first layer gives from that digit and from the last character
            of ``asked`` to the first letter of its own copy, and the second layer from this to the digit.
        others: of the other digits, where they stand in ``hidden`` and where the first layer looks from there; thin, in
            the first panel.
        apart: characters between the copies.
    """
    figure, axes = new_figure(len(cases), 1, height=1.5 * len(cases))
    at, begin = len(asked), len(hidden) + apart
    query = begin + at - 1
    said = []
    for axis, (title, weights) in zip(axes, cases.items(), strict=True):
        for x, letter in [*enumerate(hidden), *enumerate(asked + "?", begin)]:
            strong, quiet = x in (0, at, begin, query), letter == "?"
            axis.text(x, 0, letter, ha="center", va="center", family="monospace", fontsize=13,
                      weight="bold" if strong else "normal", color=GREY if quiet else "black")  # fmt: skip
        axis.text(begin - apart / 2 - 0.5, 0, "…", ha="center", va="center", color=GREY, fontsize=13)
        arrows = ((at, 0, -1, ORANGE), (query, begin, -1, ORANGE), (query, at, 1, BLUE))
        for weight, (start, end, side, color) in zip(weights, arrows, strict=True):
            bend, y = 2.4 * side / (start - end), 0.28 * side  # all are as high
            axis.add_patch(
                FancyArrowPatch((start, y), (end, y), connectionstyle=f"arc3,rad={bend}", arrowstyle="-|>", color=color,
                                mutation_scale=12, linewidth=0.5 + weight / 20, shrinkA=0, shrinkB=0)
            )  # fmt: skip
            layer = 1 if side < 0 else 2
            axis.text((start + end) / 2, 1.5 * side, f"layer {layer}: {weight:.0f} %", ha="center", va="center")
        for start, end in others if axis is axes[0] else ():
            thin = {"arrowstyle": "->", "color": GREY, "connectionstyle": "arc3,rad=0.25"}
            axis.annotate("", (end, 0.28), (start, 0.28), arrowprops=thin)
        axis.set(xlim=(-0.8, begin + at + 0.8), ylim=(-1.8, 1.8), title=title)
        axis.axis("off")
        digit, asks, found = weights
        said.append(f"{title}: {digit:.0f} % and {asks:.0f} % in layer 1, {found:.0f} % in layer 2")
    alt = f"""The text {hidden}, and further on {asked}, in {len(cases)} panels. In the first layer an arrow leads from
        the digit {hidden[at]} at the end of the first copy back to its first letter, and one from the {asked[-1]} at
        the end of the second to its own; thin ones from other digits to {", ".join(hidden[end] for _, end in others)}.
        In the second layer one leads from that {asked[-1]} to the digit. Their weights, {"; ".join(said)}."""
    return figure, alt


@styled
def entropy_of_heads(
    counts: Sequence[int], cases: Mapping[str, Tensor], train_length: int = 64
) -> tuple[MatplotlibFigure, str]:
    """How many keys a model's heads look at, e to the power of their entropy, against how many they see: a line for
    each head, and the median.

    Args:
        counts: numbers of keys.
        cases: entropies ``(heads, counts)`` by title.
        train_length: marked by a line.
    """
    figure, axes = new_figure(1, len(cases), height=3.8, sharey=True)
    said = []
    for axis, (title, found), color in zip(axes, cases.items(), (BLUE, ORANGE), strict=True):
        keys = found.exp()
        median = keys.quantile(0.5, dim=0)
        for head in keys:
            axis.plot(counts, head, color=color, linewidth=1, alpha=0.6)
        axis.plot(counts, median, color=color, linewidth=3, marker="o")
        axis.plot(counts, counts, color=GREY, linestyle="--")
        axis.axvline(train_length, color="black", linewidth=1, linestyle=":")
        doubling_axis(axis, counts[::2])
        axis.set(title=title, xlabel="keys seen")
        home = median[counts.index(train_length)]
        said.append(f"{title}: {home:.1f} where {train_length} are seen, {median[-1]:.1f} where {counts[-1]} are")
    _keys_axis(axes[0], (1, 4, 16, 64, 256))
    axes[0].minorticks_off()
    axes[0].set(ylabel="keys looked at")
    alt = f"""Number of keys that a model's heads look at, against the number that they see, both axes logarithmic: a
        thin line for each head and a thick one for their median; dashed, all keys that are seen. Median:
        {"; ".join(said)}."""
    return figure, alt


@styled
def entropy_heads(rows: Table, cases: Mapping[str, str]) -> tuple[MatplotlibFigure, str]:
    """Entropy of the byte model's heads against the number of keys: mean over the seeds, a band from least to most.

    ``rows`` as under "entropy" in ``data/entropy.json``; ``cases`` maps a title to the scale at test.
    """
    figure, axes = new_figure(len(cases), 1, height=2.9 * len(cases) + 0.8, sharex=True, sharey=True)
    said = []
    for axis, (title, scale) in zip(axes, cases.items(), strict=True):
        found = Table(row for row in rows.where(scale=scale) if row["counts"][-1] == 512)
        counts = found["counts"][0]
        for layer, color, marker in ((0, BLUE, "o"), (1, ORANGE, "s")):
            curves = torch.tensor(found.where(layer=layer)["entropy"], dtype=torch.float64)
            axis.fill_between(counts, curves.amin(0), curves.amax(0), color=color, alpha=0.2, linewidth=0)
            axis.plot(counts, curves.mean(0), color=color, marker=marker, label=f"layer {layer}")
            said.append(f"{title}, layer {layer}: {curves.mean(0)[counts.index(64)]:.2f} to {curves.mean(0)[-1]:.2f}")
        axis.plot(counts, [math.log(n) for n in counts], color=GREY, linestyle="--", label="log n")
        axis.axvline(64, color="black", linewidth=1, linestyle=":")
        axis.set_title(title)
        axis.set_ylabel("entropy, nats")
    doubling_axis(axes[0], counts)
    axes[0].set_ylim(0, None)
    axes[-1].set_xlabel("number of keys n")
    legend_below(figure, axes[0], columns=3)
    alt = f"""Entropy of the heads of the byte model against the number of keys, from 8 to 512, a line for each layer
        and a band from the head and seed with the least to that with the most. Mean entropy, 64 to 512 keys, in nats:
        {"; ".join(said)}. All curves stay far below log n, the largest possible."""
    return figure, alt


@styled
def entropy_lengths(rows: Table, cases: Mapping[str, tuple[str, str, str]]) -> tuple[MatplotlibFigure, str]:
    """Accuracy against the length of the text: a line for the mean over the seeds, bars from worst to best.

    ``rows`` as under "accuracy" in ``data/entropy.json``; ``cases`` maps a name to (trained, method, scale).
    """
    figure, axis = new_figure(height=4.4)
    said = []
    for (name, case), color, marker in zip(cases.items(), (GREY, BLUE, ORANGE, GREEN, RED), "osD^v", strict=False):
        trained, method, scale = case
        by_length = rows.where(trained=trained, method=method, scale=scale).by("length")
        lengths = sorted(by_length)
        found = [[100 * value for value in by_length[n]["accuracy"]] for n in lengths]
        mean = over_seeds(axis, lengths, found, color=color, marker=marker, label=name)
        said.append(f"{name} from {mean[0]:.0f} to {mean[-1]:.0f}")
    doubling_axis(axis, lengths)
    axis.set_ylim(25, None)
    axis.set_xlabel("length of the text, bytes (trained on 64)")
    axis.set_ylabel("next byte right, %")
    legend_below(figure, axis, columns=1)
    alt = f"""Accuracy of the next byte against the length of the text, 64 to 512 bytes, mean over the seeds with bars
        from worst to best. In percent, shortest to longest: {"; ".join(said)}."""
    return figure, alt


# --- the explorable: one key that matters, in a growing crowd -----------------------------------------------------

POWERS, TRAINED = range(4, 17), 64
LEFT, RIGHT, TOPS, HEIGHT = 90, 620, (80, 310), 170  # of the two panels
MOST = POWERS[-1] * math.log(2)  # the entropy of an even look at all keys, as far up as the lower panel goes


def _crowd(n: int, needle: float, spread: float, scale: float) -> tuple[float, float]:
    """Weight of the one key with score ``needle`` among n - 1 Gaussian ones, and the entropy, both for large n."""
    crowd = math.log(n - 1) + (scale * spread) ** 2 / 2  # log of the sum of the other keys' exponentials
    weight = 1 / (1 + math.exp(crowd - scale * needle))
    inside = max(0.0, math.log(n - 1) - (scale * spread) ** 2 / 2)  # entropy among the others
    parts = [-x * math.log(x) for x in (weight, 1 - weight) if x > 0]
    return weight, sum(parts) + (1 - weight) * inside


def _curve(panel: int, values: Sequence[float], top: float) -> str:
    xs = [LEFT + (RIGHT - LEFT) * (k - 4) / 12 for k in POWERS]
    return svg_path(xs, [TOPS[panel] + HEIGHT * (1 - value / top) for value in values])


def _scales(log_n: bool) -> list[float]:
    return [math.log(2**k) / math.log(TRAINED) if log_n else 1.0 for k in POWERS]


def _title(needle: float, spread: float) -> str:
    return f"score of the needle {needle:.1f}, spread of the others {spread:.1f}"


NEEDLE_SCRIPT = r"""
    const a = value.needle, sd = value.spread, logN = Math.log(64), most = 16 * Math.log(2);
    const parts = [[], []], named = [".plain", ".scaled"];
    svg.querySelector(".title").textContent =
      `score of the needle ${a.toFixed(1)}, spread of the others ${sd.toFixed(1)}`;
    for (let which = 0; which < 2; which++) {
      const weights = [], entropies = [];
      for (let k = 4; k <= 16; k++) {
        const n = Math.pow(2, k), s = which ? Math.log(n) / logN : 1, half = s * sd * s * sd / 2;
        const w = 1 / (1 + Math.exp(Math.log(n - 1) + half - s * a));
        const inside = Math.max(0, Math.log(n - 1) - half);
        const h = (x) => x > 0 ? -x * Math.log(x) : 0;
        const x = (90 + 530 * (k - 4) / 12).toFixed(1);
        weights.push(`${x} ${(80 + 170 * (1 - w)).toFixed(1)}`);
        entropies.push(`${x} ${(310 + 170 * (1 - (h(w) + h(1 - w) + (1 - w) * inside) / most)).toFixed(1)}`);
      }
      svg.querySelector(named[which] + ".weight").setAttribute("d", "M" + weights.join("L"));
      svg.querySelector(named[which] + ".entropy").setAttribute("d", "M" + entropies.join("L"));
    }
    write("needle", a.toFixed(1)); write("spread", sd.toFixed(1));
"""


# Type that can be read on a phone is too large on a laptop.
WIDE = "@media (min-width:700px){#rl-entropy-needle svg text{font-size:17px}}"


def entropy_needle(needle: float = 5.9, spread: float = 0.0) -> Explorable:
    """One key with a high score among a crowd that grows: its weight and the entropy, without and with log n."""
    lines = []
    for log_n, name, color, dash in ((False, "plain", BLUE, ""), (True, "scaled", ORANGE, ' stroke-dasharray="9 5"')):
        pairs = [_crowd(2**k, needle, spread, s) for k, s in zip(POWERS, _scales(log_n), strict=True)]
        for panel, kind, top in ((0, "weight", 1.0), (1, "entropy", MOST)):
            path = _curve(panel, [pair[panel] for pair in pairs], top)
            lines.append(
                f'<path d="{path}" class="{name} {kind}" fill="none" stroke="{color}" stroke-width="4"{dash}/>'
            )
    frame = "".join(
        f'<path d="M{LEFT} {top}V{top + HEIGHT}H{RIGHT}" fill="none" stroke="#1a1a1a"/>'
        f'<text x="{LEFT - 8}" y="{top + 8}" text-anchor="end">{high}</text>'
        f'<text x="{LEFT - 8}" y="{top + HEIGHT + 4}" text-anchor="end">{low}</text>'
        f'<text x="{LEFT}" y="{top - 12}">{name}</text>'
        for top, high, low, name in (
            (TOPS[0], "1", "0", "weight of the needle"),
            (TOPS[1], f"{2 ** POWERS[-1]:,}", "1", "keys looked at, against keys seen"),
        )
    )
    trained = f"{LEFT + (RIGHT - LEFT) * 2 / 12:.1f}"
    upright = "".join(f"M{trained} {top}v{HEIGHT}" for top in TOPS)
    bound = _curve(1, [math.log(2**k) for k in POWERS], MOST)
    low = TOPS[1] + HEIGHT + 24
    ticks = "".join(
        f'<text x="{LEFT + (RIGHT - LEFT) * (k - 4) / 12:.1f}" y="{low}" text-anchor="middle">{n}</text>'
        for k, n in ((4, "16"), (6, "64"), (9, "512"), (12, "4,096"), (16, "65,536"))
    )
    svg = (
        '<svg viewBox="0 0 660 560" style="width:100%;height:auto;background:none" font-family="sans-serif" '
        'font-size="23" fill="#1a1a1a">'
        f'<text x="330" y="24" text-anchor="middle" font-weight="bold" class="title">{_title(needle, spread)}</text>'
        f'{frame}<path d="{bound}" fill="none" stroke="{GREY}" stroke-width="2" stroke-dasharray="2 5"/>'
        f'<path d="{upright}" stroke="#1a1a1a" stroke-dasharray="2 5"/>'
        f"{ticks}{''.join(lines)}"
        f'<path d="M90 542H130" stroke="{BLUE}" stroke-width="4"/><text x="138" y="549">plain</text>'
        f'<path d="M230 542H270" stroke="{ORANGE}" stroke-width="4" stroke-dasharray="9 5"/>'
        f'<text x="278" y="549">times log n / log 64</text>'
        f'<path d="M530 542H570" stroke="{GREY}" stroke-width="2" stroke-dasharray="2 5"/>'
        '<text x="578" y="549">all</text></svg>'
    )
    alt = """Two panels against the number of keys n, from 16 to 65,536 on a logarithmic axis, with a line at 64. Upper
        panel: the weight of one key with the score 5.9 among others with the score 0. Without the scale it falls from
        0.96 to 0.01; with log n it rises from 0.77 to 0.99; both are 0.85 at 64. Lower panel, upwards logarithmic too:
        how many keys the weight is spread over, which grows to nearly all of them without the scale and falls from 3.2
        to 1.2 with it, and all that are there as a dotted line."""
    caption = """Blue: plain scores. Orange, dashed: scores times log n / log 64. They meet at the vertical line, at 64
        keys, the training length. Dotted grey: all keys there are. Set the needle to 0 and the spread to 1: as far as
        this axis goes, the head looks at ever more keys, with the scale too."""
    knobs = (
        Knob("needle", "needle’s score", 0, 12, needle, 0.1),
        Knob("spread", "others’ spread", 0, 1.2, spread, 0.1),
    )
    return Explorable("entropy-needle", alt, caption, knobs, svg, NEEDLE_SCRIPT, WIDE)
