"""Figures of chapter 12's table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure as MatplotlibFigure

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
    doubling_axis,
    legend_below,
    new_figure,
    styled,
    svg_path,
)
from rope_lessons.kinds import KINDS
from rope_lessons.lab.rows import OWN, TableRow
from rope_lessons.lab.table.documents import difference
from rope_lessons.lab.table.knobs import KNOBS, knobs
from rope_lessons.lab.table.lines import Line, pick, row_names
from rope_lessons.lab.table.published import beside_published
from rope_lessons.lab.table.scoring import SETS
from rope_lessons.scoreboard.summary import Pair, agreement, ranks

__all__ = [
    "shootout_passkey",
    "shootout_positions",
    "shootout_ranks",
    "shootout_rows",
    "shootout_table",
]

COLOURS, MARKERS = (GREY, BLUE, ORANGE, GREEN, RED, PURPLE, SKY), "osD^vXP"
NATURAL, REPEATED = SETS
VARIANTS = {"plain": (BLUE, "o", 0.25), "log n† at test": (ORANGE, "D", 0.0), "log n": (GREEN, "s", -0.25)}
GROUPS = {  # how the names of a knob's rows begin
    "frequencies": tuple(KINDS),
    "distance": ("rerope", "leaky", "invleaky"),
    "visibility and bias": ("window", "lambda", "alibi", "nope", "hwfa"),
    "scale: key norm": ("kna", "qna", "cosa"),
    "positions": ("equal-mean", "random"),
}
_WORDS = {
    **{name: kind.label for name, kind in KINDS.items()}, "rerope": "ReRoPE", "leaky-rerope": "Leaky",
    "invleaky": "InvLeaky", "lambda": "Λ-mask", "alibi": "ALiBi", "nope": "NoPE",
    "hwfa2": "HWFA2", "hwfa": "HWFA", "kna-": "KNA + ", "kna": "KNA", "qna-": "QNA + ", "qna": "QNA",
    "cosa-": "CosA + ", "cosa": "CosA",
}  # fmt: skip


def split_name(name: str) -> tuple[str, str]:
    """A row's name without what it says about the scale, and that."""
    if name.endswith("-logn-test"):
        return name.removesuffix("-logn-test"), "log n† at test"
    return name.replace("-logn", ""), "log n" if "-logn" in name else "plain"


def group_of(name: str) -> str:
    """The knob that a row turns."""
    return next(group for group, begins in GROUPS.items() if name.startswith(begins))


def label_of(name: str) -> str:
    """A row's name as a picture shows it, without the scale."""
    base = split_name(name)[0]
    begin = next((begin for begin in _WORDS if base.startswith(begin)), "")
    rest = base.removeprefix(begin)
    if begin in ("kna-", "qna-", "cosa-"):
        return _WORDS[begin] + label_of(rest)
    return _WORDS.get(begin, "") + rest.replace("-b", " base ").replace("-", " ")


def full_label(name: str) -> str:
    """A row's name as a picture shows it, with the scale."""
    scale = split_name(name)[1]
    return label_of(name) + {"plain": "", "log n": ", log n", "log n† at test": ", log n†"}[scale]


# --- the table as a picture ----------------------------------------------------------------------------------------


@styled
def shootout_table(
    lines: Sequence[Line], groups: Sequence[str] = tuple(GROUPS), stored: Mapping[str, Any] | None = None
) -> tuple[MatplotlibFigure, str]:
    """Accuracy of every row of some knobs at 8 times the training length, on both sets. The bars are the intervals of
    the distance from the window: what makes a document hard for both has dropped out."""
    names = [name for name in row_names(lines) if group_of(name) in groups]
    shown: dict[str, dict[str, list[str]]] = {group: {} for group in groups}
    for name in names:
        shown[group_of(name)].setdefault(label_of(name), []).append(name)
    places, ticks, at = {}, [], 0.0
    for group, methods in shown.items():
        ticks.append((at, group, True))
        for label, members in methods.items():
            at -= 1
            ticks.append((at, label, False))
            places.update(dict.fromkeys(members, at))
        at -= 1.3
    figure, axes = new_figure(1, 2, height=1.5 + 0.25 * len(ticks), width=5.2, sharey=True)
    for axis, kind in zip(axes, (NATURAL, REPEATED), strict=True):
        axis.axvline(100 * pick(lines, OWN, kind, 1).value, color="black", linestyle=":", linewidth=1.5)
        window = pick(lines, "window", kind).value
        axis.axvline(100 * window, color=RED, linestyle="--", linewidth=1.5)
        for name, place in places.items():
            colour, marker, shift = VARIANTS[split_name(name)[1]]
            over, low, high = difference(name, "window", kind, stored)
            bar = [[100 * max(0.0, over - low)], [100 * max(0.0, high - over)]]
            axis.errorbar(100 * (window + over), place + shift, xerr=bar, color=colour, marker=marker, markersize=4,
                          linewidth=1.2)  # fmt: skip
        axis.set_title(kind, fontsize=12)
        axis.set_xlabel("right, %")
        axis.set_ylim(at + 0.8, 0.8)
    axes[0].set_yticks([place for place, *_ in ticks], [label for _, label, _ in ticks], fontsize=10)
    for text, (*_, is_group) in zip(axes[0].get_yticklabels(), ticks, strict=True):
        text.set_fontweight("bold" if is_group else "normal")
    for axis in axes:
        axis.tick_params(axis="y", length=0)
    handles = [axes[0].plot([], [], marker=m, color=c, linestyle="", label=n)[0] for n, (c, m, _) in VARIANTS.items()]
    handles += axes[0].plot([], [], color=RED, linestyle="--", label="window, 8 × N")
    handles += axes[0].plot([], [], color="black", linestyle=":", label="RoPE, 1 × N")
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=11)
    said = [
        f"{full_label(name)} {100 * pick(lines, name, NATURAL).value:.1f} and "
        f"{100 * pick(lines, name, REPEATED).value:.1f}"
        for name in names
    ]
    limits = " and ".join(f"{100 * pick(lines, 'window', kind).value:.1f}" for kind in (NATURAL, REPEATED))
    alt = f"""Share of tokens predicted right, in percent, at 8 times the training length, a line for each method under
        the knob that it turns, with 95 percent intervals of the distance from the window; left on natural text, right
        on repeated text. A dashed line marks the window, {limits}. {"; ".join(said)}."""
    return figure, alt


# --- accuracy against position -------------------------------------------------------------------------------------


@styled
def shootout_positions(lines: Sequence[Line], rows: Mapping[str, str], times: int = 8) -> tuple[MatplotlibFigure, str]:
    """Accuracy along the text, a line for each method: ``{label: row}``."""
    figure, axes = new_figure(2, 1, height=7.4, sharex=True)
    said = []
    length = pick(lines, OWN, NATURAL, 1).length
    for axis, kind in zip(axes, (NATURAL, REPEATED), strict=True):
        for number, (label, row) in enumerate(rows.items()):
            along = [100 * value for value in pick(lines, row, kind, times).along]
            step = times * length / len(along)
            at = [step * (place + 0.5) for place in range(len(along))]
            axis.plot(at, along, color=COLOURS[number % 7], marker=MARKERS[number % 7], markersize=4, label=label)
            said.append(f"{label}, {kind}: {along[0]:.0f}, {along[len(along) // 2]:.0f}, {along[-1]:.0f}")
        axis.axvline(length, color="black", linewidth=1, linestyle=":")
        axis.set_title(kind, fontsize=12)
        axis.set_ylabel("right, %")
    axes[1].set_xlabel(f"position in a text of {times * length} (dotted: the training length)")
    legend_below(figure, axes[0])
    alt = f"""Share of tokens predicted right, in percent, against the position in texts of {times * length} tokens, in
        sixteenths, on both test sets; the training length, {length}, is marked. At the begin, in the middle and at the
        end: {"; ".join(said)}."""
    return figure, alt


# --- our order and the published one -------------------------------------------------------------------------------


@styled
def shootout_ranks(lines: Sequence[Line], named: Sequence[str] = ()) -> tuple[MatplotlibFigure, str]:
    """Our rank of every published row against its published rank; some rows with their names."""
    figure, axes = new_figure(2, 1, height=9.6)
    said = []
    for axis, kind in zip(axes, (NATURAL, REPEATED), strict=True):
        rows, theirs, ours = zip(*beside_published(lines, kind), strict=True)
        x, y = ranks(theirs), ranks(ours)
        for number, group in enumerate(GROUPS):
            chosen = [place for place, row in enumerate(rows) if group_of(row) == group]
            if chosen:
                axis.plot([x[i] for i in chosen], [y[i] for i in chosen], MARKERS[number], color=COLOURS[number + 1],
                          markersize=6, label=group)  # fmt: skip
        axis.plot([1, len(rows)], [1, len(rows)], color="black", linewidth=1, linestyle=":")
        places = sorted(map(rows.index, named), key=lambda place: x[place])
        for turn, place in enumerate(places):  # from the best on, by turns below and above the point
            right = x[place] > 0.5 * len(rows)  # the axis runs from right to left
            axis.plot(x[place], y[place], "o", markersize=11, markerfacecolor="none", markeredgecolor="black")
            offset = (24 if right else -24, (-20, 18)[turn % 2])
            axis.annotate(full_label(rows[place]), (x[place], y[place]), textcoords="offset points", fontsize=10,
                          xytext=offset, ha="left" if right else "right", va="center",
                          bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
                          arrowprops={"arrowstyle": "-", "linewidth": 0.8, "shrinkB": 5})  # fmt: skip
        found = agreement([Pair(*row) for row in zip(rows, theirs, ours, strict=True)])
        correlation = f"rank correlation {found.all:.2f}, better half {found.better_half:.2f}"
        axis.set_title(f"{kind}: {correlation}", fontsize=12)
        axis.set_ylabel("our rank (1 is best)")
        ticks = [1, *range(10, len(rows) + 1, 10)]
        axis.set_xticks(ticks)
        axis.set_yticks(ticks)
        axis.set_xlim(len(rows) + 2, -1)
        axis.set_ylim(len(rows) + 7, -1)
        both = [f"{full_label(row)} {x[rows.index(row)]:.0f} there and {y[rows.index(row)]:.0f} here" for row in named]
        said.append(f"{kind}, {len(rows)} rows, {correlation}: {', '.join(both)}")
        axis.set_xlabel("published rank (1 is best)")
    legend_below(figure, axes[0])
    alt = f"""A point for every row that both tables have: its rank by accuracy at 8 times the training length in the
        published table and in ours. {". ".join(said)}."""
    return figure, alt


# --- passkeys ------------------------------------------------------------------------------------------------------


@styled
def shootout_passkey(lines: Sequence[Line], rows: Mapping[str, str], times: int = 8) -> tuple[MatplotlibFigure, str]:
    """Share of passkeys found: against the length of the text, and against the depth of the needle."""
    figure, axes = new_figure(2, 1, height=7.0)
    said = []
    for number, (label, row) in enumerate(rows.items()):
        style = {"color": COLOURS[number % 7], "marker": MARKERS[number % 7]}
        own = [line for line in lines if (line.row, line.metric) == (row, "found")]
        by_length = [100 * line.value for line in own]
        by_depth = [100 * value for value in pick(lines, row, "passkey", times, "found").along]
        axes[0].plot([line.length for line in own], by_length, label=label, **style)
        axes[1].plot(range(len(by_depth)), by_depth, **style)
        said.append(f"{label}: {', '.join(f'{v:.0f}' for v in by_length)}; {', '.join(f'{v:.0f}' for v in by_depth)}")
    lengths = sorted({line.length for line in lines if line.metric == "found"})
    doubling_axis(axes[0], lengths)
    axes[0].set_xlabel("length of the text")
    depths = len(by_depth)
    between = ["middle"] if depths == 3 else [f"{n / (depths - 1):g}" for n in range(1, depths - 1)]
    axes[1].set_xticks(range(depths), ["beginning", *between, "end"])
    axes[1].set_xlabel(f"depth of the needle in {times * lengths[0]} tokens")
    for axis in axes:
        axis.set_ylabel("keys found, %")
        axis.set_ylim(bottom=0)
    legend_below(figure, axes[0])
    alt = f"""Share of passkeys with all digits right, in percent: against the lengths {", ".join(map(str, lengths))},
        then against the depth of the needle, from the beginning to the end. {"; ".join(said)}."""
    return figure, alt


# --- the explorable: any row, its five knobs and its accuracy ------------------------------------------------------

LEFT, RIGHT, TOP, BOTTOM, SIZE = 44, 348, 56, 236, 20
DRAWN = {NATURAL: (BLUE, "natural"), REPEATED: (ORANGE, "repeated")}


def _at(place: int, count: int) -> float:
    return LEFT + 10 + place * (RIGHT - LEFT - 20) / (count - 1)


ROWS_SCRIPT = r"""
    const row = data.rows[value.method - 1], many = data.lengths.length;
    const x = (place) => 54 + place * 284 / (many - 1);
    const y = (share) => 236 - 180 * (share / 10 - data.low) / (data.high - data.low);
    const path = (shares) => "M" + shares.map((s, i) => `${x(i).toFixed(1)} ${y(s).toFixed(1)}`).join("L");
    ["natural", "repeated"].forEach((name, number) => {
      svg.querySelector(".curve-" + name).setAttribute("d", path(row[2 + number]));
      svg.querySelectorAll(".dot-" + name).forEach((dot, place) => {
        dot.setAttribute("cy", y(row[2 + number][place]).toFixed(1));
      });
    });
    svg.querySelector(".title").textContent = row[0];
    svg.querySelectorAll(".knob").forEach((text, number) => { text.textContent = data.words[row[1][number]]; });
"""


def _row_data(lines: Sequence[Line], rows: Mapping[str, TableRow]) -> dict[str, Any]:
    """What the script draws from: shares in tenths of a percent, words once each."""
    lengths = sorted({line.length for line in lines if line.metric == "accuracy" and line.row != OWN})
    words: list[str] = []
    found: list[list[Any]] = []
    there = row_names(lines)
    for name in (name for name in rows if name in there):
        said = knobs(rows[name])
        words += [text for text in dict.fromkeys(said.values()) if text not in words]
        own = [line for line in lines if line.row == name and line.metric == "accuracy"]
        curves = [[round(1000 * line.value) for line in own if line.set == kind] for kind in DRAWN]
        found.append([full_label(name), [words.index(said[knob]) for knob in KNOBS], *curves])
    shares = [share for _, _, *curves in found for curve in curves for share in curve]
    low, high = 10 * (min(shares) // 100), 10 * (max(shares) // 100 + 1)
    return {"low": low, "high": high, "lengths": lengths, "words": words, "rows": found}


def shootout_rows(lines: Sequence[Line], rows: Mapping[str, TableRow], method: int = 1) -> Explorable:
    """Accuracy against the length of the text and the five knobs of any row of the table."""
    data = _row_data(lines, rows)
    low, high, lengths = data["low"], data["high"], data["lengths"]
    label, words, *curves = data["rows"][method - 1]

    def y(share: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (share / 10 - low) / (high - low)

    grid = "".join(
        f'<path d="M{LEFT} {y(10 * percent):.1f}H{RIGHT}" stroke="#ddd"/>'
        f'<text x="{LEFT - 6}" y="{y(10 * percent) + 4:.1f}" text-anchor="end">{percent}</text>'
        for percent in range(low, high + 1, 20 if high - low > 60 else 10)
    )
    grid += "".join(
        f'<text x="{_at(place, len(lengths)):.1f}" y="{BOTTOM + 18}" text-anchor="middle">{length}</text>'
        for place, length in enumerate(lengths)
    )
    reference = data["rows"][0][2]
    xs = [_at(place, len(lengths)) for place in range(len(lengths))]
    drawn = f'<path d="{svg_path(xs, [y(s) for s in reference])}" fill="none" stroke="{GREY}" stroke-dasharray="4 4"/>'
    for (colour, name), curve in zip(DRAWN.values(), curves, strict=True):
        ys = [y(share) for share in curve]
        drawn += f'<path class="curve-{name}" d="{svg_path(xs, ys)}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
        drawn += "".join(
            f'<circle class="dot-{name}" cx="{a:.1f}" cy="{b:.1f}" r="4" fill="{colour}"/>'
            for a, b in zip(xs, ys, strict=True)
        )
    legend = "".join(
        f'<rect x="{x}" y="{TOP - 22}" width="14" height="4" fill="{colour}"/>'
        f'<text x="{x + 20}" y="{TOP - 15}">{text}</text>'
        for x, colour, text in ((LEFT, BLUE, "not repeated"), (150, ORANGE, "repeated"), (232, GREY, "RoPE, not rep."))
    )
    table = "".join(
        f'<text x="6" y="{BOTTOM + 66 + SIZE * number}" fill="#555">{knob}</text>'
        f'<text class="knob" x="84" y="{BOTTOM + 66 + SIZE * number}">{data["words"][words[number]]}</text>'
        for number, knob in enumerate(KNOBS)
    )
    svg = (
        f'<svg viewBox="0 0 360 {BOTTOM + 74 + SIZE * (len(KNOBS) - 1)}" style="width:100%;max-width:560px;height:auto;'
        'background:none;display:block;margin:auto" font-family="sans-serif" font-size="12" fill="#1a1a1a">'
        f'<text class="title" x="6" y="18" font-size="15" font-weight="bold">{label}</text>{legend}{grid}{drawn}'
        f'<text x="{(LEFT + RIGHT) / 2:g}" y="{BOTTOM + 36}" text-anchor="middle">length of the text; right, %</text>'
        f"{table}</svg>"
    )
    script = f"    const data = {json.dumps(data, ensure_ascii=False, separators=(',', ':'))};{ROWS_SCRIPT}"
    told = "; ".join(f"{knob}: {data['words'][words[number]]}" for number, knob in enumerate(KNOBS))
    alt = f"""Accuracy against the lengths {", ".join(map(str, lengths))} of one of {len(data["rows"])} methods on both
        test sets, and its five knobs in words. At the start, {label}: {", ".join(f"{s / 10:.1f}" for s in curves[0])}
        percent on natural text, {", ".join(f"{s / 10:.1f}" for s in curves[1])} on repeated text. {told}."""
    caption = """Move through the methods, in the order of the table. An arrow separates what training has from what the
        test has. Look for a method whose orange line rises with the length, and for one that is flat to the end. Which
        knob does it turn?"""
    names: dict[str | int | float, str] = {number: row[0] for number, row in enumerate(data["rows"], start=1)}
    choice = (Choice("method", f"Method, of {len(names)}", names, method),)
    return Explorable("shootout-rows", alt, caption, choice, svg, script)
