"""Figures of chapter 12's table."""

from __future__ import annotations

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
    doubling_axis,
    legend_below,
    new_figure,
    styled,
)
from rope_lessons.figures.sortable import SortableRow, SortableTable
from rope_lessons.kinds import KINDS
from rope_lessons.lab.rows import OWN, TableRow
from rope_lessons.lab.table.documents import difference
from rope_lessons.lab.table.knobs import knobs
from rope_lessons.lab.table.lines import Line, pick, row_names
from rope_lessons.lab.table.published import beside_published
from rope_lessons.lab.table.scoring import SETS
from rope_lessons.scoreboard.summary import Pair, agreement, ranks

__all__ = [
    "shootout_columns",
    "shootout_layers",
    "shootout_passkey",
    "shootout_positions",
    "shootout_ranks",
    "shootout_rows",
    "shootout_table",
]

COLOURS, MARKERS = (GREY, BLUE, ORANGE, GREEN, RED, PURPLE, SKY), "osD^vXP"
NATURAL, REPEATED = SETS
SHORT = (  # shown first
    "hwfa-w16", "hwfa2-w8-f1-logn", "cosa-logn-rerope-w16", "rerope-w32-logn", "rerope-w32-logn-test", "rerope-w32",
    "invleaky-w16-logn", "kna", "window", "yarn", "dynamic-ntk", "ntk-mixed", "ntk-fixed", "rope-logn", "rope", "pi",
    "alibi", "nope",
)  # fmt: skip
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


# --- every row -----------------------------------------------------------------------------------------------------

COLUMNS = (
    ("natural, 64", NATURAL, 1, "accuracy"),
    ("natural, 512", NATURAL, 8, "accuracy"),
    ("repeated, 512", REPEATED, 8, "accuracy"),
    ("tax", NATURAL, 1, "tax"),
    ("needles, 512", "passkey", 8, "found"),
)


def shootout_rows(lines: Sequence[Line], rows: Mapping[str, TableRow]) -> SortableTable:
    """Every row of the second model, to be sorted and filtered; a click on a name shows the five knobs."""
    there = [name for name in row_names(lines) if name in rows]
    by = 1
    made = sorted((_row(lines, name, rows[name]) for name in there), key=lambda row: -(row.values[by] or 0.0))
    return SortableTable(
        name="shootout-rows",
        columns=tuple(head for head, *_ in COLUMNS),
        rows=tuple(made),
        by=by,
        filters={"Changed": {group: group for group in GROUPS}},
        head="method",
        caption="Percent right; the tax in points.",
    )


def _row(lines: Sequence[Line], name: str, row: TableRow) -> SortableRow:
    found = [pick(lines, name, kind, times, metric) for _, kind, times, metric in COLUMNS]
    intervals = [
        f"{head}: {100 * x.low:.1f} to {100 * x.high:.1f}" for (head, *_), x in zip(COLUMNS, found, strict=True)
    ]
    return SortableRow(
        name=full_label(name),
        values=tuple(100 * line.value for line in found),
        tags={"Changed": frozenset({group_of(name)})},
        more={**knobs(row), "95 % intervals": "; ".join(intervals), "on the command line": f"`{name}`"},
        short=name in SHORT,
        apart=name == "window",
    )


# --- what is asked -------------------------------------------------------------------------------------------------

ASKED = {  # what a column asks: where the answer stands, on a strip of 100, and how the text ends
    "all bytes: the last few bytes mostly tell": ((), "return sel", "f"),
    "far copies: it was there before, but far back": (((12, "parse_header"),), "parse_hea", "d"),
    "needles: a line at one of three places": (((12, 'key = "48213"'), (50, ""), (70, "")), 'key = "', "4"),
}


@styled
def shootout_columns() -> tuple[MatplotlibFigure, str]:
    """What the columns of the scoreboard ask for: a strip of text with its last 64 bytes for each.

    Chapter 12.
    """
    figure, axis = new_figure(height=2.9)
    axis.axvspan(64, 100, color="#e8e8e8")
    for row, (title, (sources, tail, byte)) in enumerate(ASKED.items()):
        y = -2.1 * row
        axis.text(0, y + 0.95, title, va="center", fontsize=12)
        axis.plot([0, 100, 100, 0, 0], [y, y, y + 0.6, y + 0.6, y], color=GREY, linewidth=1)
        axis.text(95, y + 0.3, tail, ha="right", va="center", fontsize=11)
        axis.text(97.5, y + 0.3, byte, ha="center", va="center", fontsize=11, fontweight="bold", color=ORANGE)
        for x, text in sources:
            axis.text(x, y + 0.3, text, va="center", fontsize=11)
        for x in [x + 3 for x, _ in sources] or [92]:
            axis.plot([x, x, 97.5], [y, y - 0.25, y - 0.25], color=BLUE, linewidth=1.5)
        axis.annotate("", (97.5, y), (97.5, y - 0.3), arrowprops={"arrowstyle": "->", "color": BLUE, "linewidth": 1.5})
    axis.text(0, -5.1, "512 bytes back", va="center", fontsize=12)
    axis.text(100, -5.1, "the last 64", ha="right", va="center", fontsize=12)
    axis.set_xlim(-0.5, 100.5)
    axis.set_ylim(-5.5, 1.3)
    axis.set_axis_off()
    said = [
        f"{title}, {' and '.join(text for _, text in sources if text) or 'near'}"
        for title, (sources, *_) in ASKED.items()
    ]
    return (
        figure,
        f"""Three strips of text, of which a window sees the last 64 bytes, shaded; an arrow leads from where the
        answer stands to the byte that is asked. {"; ".join(said)}.""",
    )


# --- which layers look far -----------------------------------------------------------------------------------------


@styled
def shootout_layers(found: Mapping[str, Sequence[float]]) -> tuple[MatplotlibFigure, str]:
    """What a model gets right when some of its layers look far: a group of bars for each choice of layers.

    Args:
        found: by what looks far, the percent right of all bytes, far copies and needles.

    Raises:
        ValueError: nothing; another number of values.
    """
    metrics = ("all bytes", "far copies", "needles")
    if not found or any(len(values) != len(metrics) for values in found.values()):
        raise ValueError(f"found must have {len(metrics)} values for each choice, got {dict(found)!r}")
    figure, axis = new_figure(height=1.2 + 0.6 * len(found))
    said = []
    for place, (name, values) in enumerate(found.items()):
        for shift, (metric, value) in enumerate(zip(metrics, values, strict=True)):
            at = place + 0.26 * (shift - 1)
            label = metric if not place else None
            axis.barh(at, value, height=0.24, color=(GREY, BLUE, ORANGE)[shift], label=label)
            axis.text(value + 1, at, f"{value:.1f}", va="center", fontsize=10)
        said.append(f"{name}: {values[0]:.0f}, {values[1]:.0f} and {values[2]:.0f}")
    axis.set_yticks(range(len(found)), list(found))
    axis.invert_yaxis()
    axis.set_xlim(0, 110)
    axis.set_xlabel("right at 512 bytes, %")
    axis.grid(axis="y", visible=False)
    legend_below(figure, axis)
    return figure, f"Percent of all bytes, far copies and needles, by which layers look far. {'; '.join(said)}."
