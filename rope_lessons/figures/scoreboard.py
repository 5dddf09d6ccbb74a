"""Tables and figures of the scoreboard, which every chapter reads its own rows of. Chapter 12."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure

from rope_lessons.figures import (
    BLUE,
    CYCLE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    SKY,
    doubling_axis,
    legend_below,
    new_figure,
    spoken,
    styled,
)
from rope_lessons.figures.sortable import SortableRow, SortableTable
from rope_lessons.figures.tables import ResultTable, table
from rope_lessons.lab.rows import TableRow
from rope_lessons.lab.table.knobs import KNOBS, knobs
from rope_lessons.scoreboard.recipe import RUNGS
from rope_lessons.scoreboard.summary import CHAPTERS, Pair, agreement, find, plain_name, ranks, tuned_curves
from rope_lessons.stored import Table

__all__ = [
    "request_table",
    "scoreboard_chooser",
    "scoreboard_cuts",
    "scoreboard_gaps",
    "scoreboard_lengths",
    "scoreboard_order",
    "scoreboard_reach",
    "scoreboard_rungs",
    "scoreboard_table",
    "scoreboard_trade",
    "scoreboard_tuned",
]

RUNG = "small"
HEADS = {
    "natural": "all bytes",
    "far copies": "far copies",
    "repeated": "repeated text",
    "needle": "needles",
    "tax": "tax",
}
COLUMNS = (("natural", 64), ("natural", 512), ("far copies", 512), ("needle", 64), ("needle", 512))


def measured(lines: Table, row: str, metric: str, length: int) -> tuple[float, float, float]:
    """Mean of a row and the ends of its 95 % interval, in percent.

    Args:
        lines: the table of the scoreboard.
        row, metric, length: of the line.

    Raises:
        ValueError: a line that the table does not have.
    """
    line = lines.where(rung=RUNG, row=row, metric=metric, length=length)
    mean, low, high = (100 * line[column][0] for column in ("mean", "low", "high"))
    return mean, low, high


def scoreboard_table(
    lines: Table,
    names: Mapping[str, str],
    *,
    columns: Sequence[tuple[str, int]] = COLUMNS,
    ahead: Sequence[tuple[str, int]] = (),
    control: str | None = None,
    counted: Mapping[str, Sequence[float]] | None = None,
    head: str = "",
) -> ResultTable:
    """Some rows of the scoreboard, in percent, with the margins of their 95 % intervals.

    An interval that passes 0 or 100 is cut there and written out; one without width, where all documents of all seeds
    are alike, is a dash.

    Args:
        lines: the table of the scoreboard.
        names: of the rows, from the top; what each is called.
        columns: metrics and lengths.
        ahead: those with, behind the others, the points over the row's own cut.
        control: a row that is set apart.
        counted: rows that need no model, such as an answer that is always the same, set apart at the end: by what each
            is called, a number for each column.
        head: of the names.

    Raises:
        ValueError: rows that the table does not have. What a row has not been asked is a dash.

    Chapter 12.
    """
    found = {name: [_asked(lines, row, *column) for column in columns] for row, name in names.items()}
    seeds = sorted({seeds for row in names for seeds in lines.where(rung=RUNG, row=row)["seeds"]})
    ends = {
        (name, at): _ends(max(low, 0), min(high, 100))
        for name, cells in found.items()
        for at, cell in enumerate(cells)
        if cell is not None
        for _, low, high in [cell]
        if low < 0 or high > 100 or low == high
    }
    for row, name in names.items():
        found[name] += [_ahead(lines, row, *column) for column in ahead]
    heads = [f"{HEADS[metric]}, {length}" for metric, length in (*columns, *ahead)]
    shown = table(
        [head + ", minus own cut at 64" * (at >= len(columns)) for at, head in enumerate(heads)],
        {name: [cell and cell[0] for cell in cells] for name, cells in found.items()} | dict(counted or {}),
        margins={name: [cell and (cell[2] - cell[1]) / 2 for cell in cells] for name, cells in found.items()},
        apart=[*([] if control is None else [names[control]]), *list(counted or {})[:1]],
        head=head,
        caption=f"Percent right, {' to '.join(str(number) for number in dict.fromkeys((seeds[0], seeds[-1])))} seeds "
        "and 64 held-out documents; ± is half of a 95 % interval over seeds and documents"
        + ("; where ± would pass 0 or 100, the two ends stand instead; a dash where all are alike." if ends else ".")
        + " Differences are taken document by document, so the last column is the surest." * bool(ahead),
    )
    return replace(shown, below={**shown.below, **ends})


def _ends(low: float, high: float) -> str:
    """The ends of an interval that was cut at 0 or 100: with a decimal where it is narrow, a dash if it has no width.

    >>> _ends(0.0, 0.31), _ends(17.1, 94.7), _ends(97.24, 100.0), _ends(0.0, 0.0)
    ('0–0.3', '17–95', '97.2–100', '–')
    """
    if low == high:
        return "–"
    digits = 1 if high - low < 5 else 0
    return "–".join(f"{end:.0f}" if end in (0, 100) else f"{end:.{digits}f}" for end in (low, high))


def _ahead(lines: Table, row: str, metric: str, length: int) -> tuple[float, float, float] | None:
    line = lines.where(rung=RUNG, row=row, metric=metric, length=length)
    mean, low, high = (line[f"ahead_{end}"][0] for end in ("mean", "low", "high"))
    return None if mean is None else (100 * mean, 100 * low, 100 * high)


def _asked(lines: Table, row: str, metric: str, length: int) -> tuple[float, float, float] | None:
    """What :func:`measured` finds; None for a length or a metric that the row has not."""
    known = lines.where(rung=RUNG, row=row)
    if len(known) and find(known, row, metric, length) is None:
        return None
    return measured(lines, row, metric, length)


def request_table(
    lines: Table,
    names: Mapping[str, str],
    *,
    control: Mapping[str, str] | None = None,
    lengths: Sequence[int] = (64, 128, 256, 512),
) -> ResultTable:
    """All bytes at several lengths: each method set for the longest, and set for the length of the request.

    Args:
        lines: the table of the scoreboard, with the rows ``NAME-x2`` and so on.
        names: of the methods; what each is called.
        control: rows that are set apart, the same at every length; what each is called.
        lengths: of the texts; the first is the training length.
    """
    home, longest = lengths[0], lengths[-1]
    rows = {"plain RoPE": ["rope"] * len(lengths)}
    for method, name in names.items():
        rows[f"{name}, factor {longest // home}"] = [method] * len(lengths)
        between = [f"{method}-x{length // home}" for length in lengths[1:-1]]
        rows[f"{name}, per request"] = ["rope", *between, method]
    apart = dict(control or {})
    rows |= {name: [row] * len(lengths) for row, name in apart.items()}
    found = {
        name: [measured(lines, row, "natural", length) for row, length in zip(of_name, lengths, strict=True)]
        for name, of_name in rows.items()
    }
    return table(
        [f"{length} bytes" for length in lengths],
        {name: [mean for mean, _, _ in cells] for name, cells in found.items()},
        margins={name: [(high - low) / 2 for _, low, high in cells] for name, cells in found.items()},
        apart=list(apart.values()),
        head="factor",
        caption="Bytes predicted right, %; ± is half of a 95 % interval over documents and seeds.",
    )


# --- all rows --------------------------------------------------------------------------------------------------------

LABELS = {
    "rope": "Plain RoPE", "pi": "PI", "ntk-old": "NTK-old", "ntk-fixed": "NTK-fixed", "ntk-aware": "NTK-aware",
    "ntk-mixed": "NTK-mixed", "dynamic-ntk": "Dynamic NTK", "ntk-by-parts": "NTK-by-parts", "yarn": "YaRN",
    "yarn-without-factor": "YaRN without its factor", "llama3": "Llama 3’s rule",
    "by-parts-half": "NTK-by-parts from half a turn", "by-parts-half-factor": "NTK-by-parts from half a turn, factor",
    "slowed-below-a-quarter": "Slowed: below a quarter turn", "slowed-from-a-quarter": "Slowed: a quarter turn to one",
    "slowed-open": "Slowed: below one turn", "slowed-closed": "Slowed: from one turn on",
    "rerope": "ReRoPE", "leaky-rerope": "Leaky ReRoPE", "self-extend": "Self-Extend",
    "lambda": "Λ mask, 4 first bytes", "streaming": "StreamingLLM", "lm-infinite": "LM-Infinite",
    "window-8": "A window of 8 bytes", "alibi": "ALiBi", "invleaky": "InvLeaky",
    "invleaky-r8": "InvLeaky, slope 8", "invleaky-r11": "InvLeaky, slope 11",
    "invleaky-moving": "InvLeaky, moving window", "invleaky-same-residue": "InvLeaky, windows 16 to 64",
    "invleaky-slopes": "InvLeaky, two slopes", "invleaky-quarter-gaps": "InvLeaky, windows 16 to 28",
    "invleaky-four-slopes": "InvLeaky, four slopes",
    "hwfa": "HWFA", "hwfa2": "HWFA2", "sinusoidal": "Sinusoidal", "sinusoidal-shifted": "Sinusoidal, begins at 64",
    "sinusoidal-pi": "Sinusoidal, squeezed", "learned": "Learned table", "learned-pi": "Learned table, squeezed",
    "random-positions": "Random subset, even grid", "random-positions-ordinary": "Random subset, 0, 1, 2, …",
    "skip-positions": "PoSE (one jump)", "nope": "No positions",
    "nope-every-fourth": "Every fourth layer without positions",
    "partial-rotary": "Half of the channels turned", "p-rope": "p-RoPE", "rope-per-head": "A base for each head",
    "equal-mean": "Equal means",
    "equal-mean-pi": "Equal means, steps of 1/8 at test",
    "equal-mean-rerope": "Equal means, ReRoPE at test",
    "t5": "T5’s buckets", "kerple": "KERPLE", "sandwich": "Sandwich", "fire": "FIRE", "shaw": "Shaw", "xpos": "xPos",
    "alibi-random": "ALiBi, random slopes",
    "rope-b100": "RoPE, base 100", "rope-b1000": "RoPE, base 1,000", "rope-b100000": "RoPE, base 100,000",
    "rope-b1e+06": "RoPE, base 1,000,000", "longrope": "LongRoPE, searched",
    "longrope-without-factor": "LongRoPE, searched, without its factor",
}  # fmt: skip
SHORT = (
    "hwfa-w16", "hwfa2-w16-logn", "self-extend-w32-logn-test", "rerope-w32-logn-test", "rerope-w32", "alibi",
    "rope-window", "streaming", "invleaky-moving-logn", "skip-positions-logn", "window-8", "yarn", "llama3",
    "longrope", "ntk-aware", "rope", "pi",
)  # fmt: skip
PLAIN = {"frequencies": "RoPE", "distance": "true", "scale": "1", "visible": "all before", "positions": "0, 1, 2, …"}
NEEDS = {"rope": "a trained model", "rope-logn": "log n in training"}
OUTSIDE = {"self-extend": "distance", "streaming": "positions"}  # what a method changes that no scheme can say
# Methods that a scheme alone does not say, for the model of this table: four layers, heads of 32, N = 64.
MADE_BY = {
    "self-extend": "layers=4, dim=32, window=32, group=16",
    "streaming": "layers=4, dim=32, visible_window=60, sinks=4",
    "invleaky": "layers=4, dim=32, window=16, slope=16",
    "invleaky-r8": "layers=4, dim=32, window=16, slope=8",
    "invleaky-r11": "layers=4, dim=32, window=16, slope=11",
    "invleaky-w8": "layers=4, dim=32, window=8, slope=16",
    "invleaky-w32": "layers=4, dim=32, window=32, slope=16",
    "invleaky-moving": "layers=4, dim=32, windows=range(16, 32), slopes=(16,)",
    "invleaky-same-residue": "layers=4, dim=32, windows=range(16, 80, 16), slopes=(16,)",
    "invleaky-slopes": "layers=4, dim=32, windows=(16,), slopes=(16, 32)",
    "invleaky-quarter-gaps": "layers=4, dim=32, windows=range(16, 32, 4), slopes=(16,)",
    "invleaky-four-slopes": "layers=4, dim=32, windows=(16,), slopes=(16, 32, 48, 64)",
    "hwfa": "layers=4, dim=32, visible_window=16, train_length=64",
    "hwfa2": "layers=4, dim=32, visible_window=16, window=32",
    "random-positions": "layers=4, dim=32, max_length=1024, causal=True",
    "equal-mean": "layers=4, dim=32, causal=True",
    "skip-positions": "layers=4, dim=32, max_length=512",
}
METHOD_OF = {
    name: "invleaky-moving" if "windows=" in made else "invleaky"
    for name, made in MADE_BY.items()
    if name.startswith("invleaky")
}
ABOUT = {
    "rope": "02", "rope-logn": "06", "rope-logn-test": "06", "rope-window": "07", "rerope": "08", "hwfa2": "07",
    "nope": "14", "nope-every-fourth": "14", "partial-rotary": "14", "rope-per-head": "14",
}  # fmt: skip
CHOOSER = (("natural", 64), ("natural", 512), ("far copies", 512), ("needle", 512))
MEANT = {  # several windows of one method
    "rerope-w16": "ReRoPE, window 16", "rerope-w32": "ReRoPE",
    "invleaky-w8": "InvLeaky, window 8", "invleaky-w32": "InvLeaky, window 32",
}  # fmt: skip


def row_label(row: str) -> str:
    """What readers see for the name of a row.

    >>> row_label("rerope-w16-logn-test"), row_label("yarn-x4"), row_label("rope-window")
    ('ReRoPE, window 16, log n†', 'YaRN, factor 4', 'A window of 64 bytes')
    """
    if row == "rope-window":
        return "A window of 64 bytes"
    bare, _, factor = row.partition("-x")
    base = plain_name(bare)
    label = next((MEANT[name] for name in MEANT if bare.startswith(name)), LABELS.get(base, base))
    scale = ", log n†" if "-logn-test" in bare else ", log n" if "-logn" in bare else ""
    if base in ("hwfa", "hwfa2"):  # which have it by definition, in the layer that sees everything
        scale = ", no log n" if base == "hwfa2" and not scale else ""
    control = ", window of 64" if bare.endswith("-window") else ""
    return label + (f", factor {factor}" if factor else "") + scale + control


def scoreboard_chooser(lines: Table) -> SortableTable:
    """Every row of the scoreboard, to be sorted and filtered; a click on a name shows the five knobs.

    The controls have no rows, but plain RoPE's: by how much a row is ahead of its own is a column.

    Args:
        lines: the table of the scoreboard.

    Chapter 12.
    """
    own, plans = lines.where(rung=RUNG), RUNGS[RUNG].rows
    names = [name for name in dict.fromkeys(own["row"]) if not name.endswith("-window") or name == "rope-window"]
    rows = [_chooser_row(own, name, plans[name]) for name in names]
    at = 2
    rows.sort(key=lambda row: -1.0 if row.values[at] is None else row.values[at] or 0.0, reverse=True)
    return SortableTable(
        name="scoreboard-chooser",
        columns=("all bytes, 64", "all bytes, 512", "far copies, 512", "over a window", "needles, 512"),
        rows=tuple(rows),
        by=at,
        filters={
            "I have": {"model": "a trained model", "train": "time to train one"},
            "Changed": {knob: knob for knob in KNOBS},
        },
        head="method",
        caption="Percent right. Over a window: lead in far copies, in points, over the same weights run as trained "
        "with every layer limited to the last 64 bytes, bold if sure over two seeds or more. Grey rows are "
        "controls. Click a heading to sort, a name for intervals and lesson.",
    )


def _chooser_row(own: Table, name: str, plan: TableRow) -> SortableRow:
    of_row = own.where(row=name)
    training, seeds = of_row["training"][0], of_row["seeds"][0]
    found = [find(of_row, name, *asked) for asked in CHOOSER]
    natural, long, far, needles = (None if each is None else 100 * each.mean for each in found)
    ahead = {
        line["metric"]: tuple(100 * line[f"ahead_{end}"] for end in ("mean", "low", "high"))
        for line in of_row
        if line["length"] == 512 and line["metric"] in HEADS and line["ahead_mean"] is not None
    }
    over, low, _ = ahead.get("far copies", (None, None, None))
    words = knobs(plan)
    if plan.method.attend is not None:  # no setting of the knobs
        words |= {OUTSIDE[plain_name(name)]: "in its own attention"}
    changed = {knob for knob, said in words.items() if said != PLAIN[knob]}
    intervals = [
        f"{HEADS[metric]} at {length}: {max(0.0, 100 * each.low):.1f} to {min(100.0, 100 * each.high):.1f}"
        for (metric, length), each in zip(CHOOSER, found, strict=True)
        if each is not None
    ]
    more = {
        "needs": NEEDS.get(training, "a training of its own"),
        "knobs": ", ".join(f"{knob}: {said}" for knob, said in words.items() if knob in changed) or "none is turned",
        "as code": row_code(name, plan),
        "95 % intervals": "; ".join(intervals),
        "ahead of its window": "; ".join(
            f"{HEADS[name]}: {_signed(max(low, -100))} to {_signed(min(high, 100))}"
            for name, (_, low, high) in ahead.items()
        )
        or "–",
        "needles at 64, 128, 256, 512": _by_length(of_row, name, "needle"),
        "measured on": "1 seed: no interval over seeds, 64 documents" if seeds == 1 else f"{seeds} seeds, 64 documents",
        "lesson": f"chapter {int(chapter)}" if (chapter := _chapter(name)) else "this one",
    }
    return SortableRow(
        name=row_label(name),
        values=(natural, long, far, over, needles),
        tags={
            "I have": frozenset({"model", "train"} if training == "rope" else {"train"}),
            "Changed": frozenset(changed),
        },
        more=more,
        short=name in SHORT,
        sure=frozenset({3} if low is not None and low > 0 and seeds > 1 else ()),
        apart=name in ("rope-window", "window-8"),
    )


def _by_length(own: Table, row: str, metric: str) -> str:
    found = [find(own, row, metric, length) for length in (64, 128, 256, 512)]
    return ", ".join("–" if each is None else f"{100 * each.mean:.0f}" for each in found) + " %"


def row_code(row: str, plan: TableRow) -> str:
    """What makes a row: the scheme of its layers, or the method where a scheme alone does not say it; and what of the
    model or of the test is neither.

    >>> row_code("self-extend-w32-logn-test", RUNGS["small"].rows["self-extend-w32-logn-test"])
    '`rl.METHODS["self-extend"](layers=4, dim=32, window=32, group=16, scale=rl.LogN(64, clip=True))`'
    """
    base = plain_name(row.removesuffix("-ordinary"))
    with_window = row.partition("-logn")[0]
    base = with_window if with_window in MADE_BY else base
    if base in MADE_BY:
        scale = ", scale=rl.LogN(64, clip=True)" if "-logn-test" in row else ", scale=rl.LogN(64)"
        added = "" if "-logn" not in row else ", train_length=64" if base == "hwfa2" else scale
        found = f'`rl.METHODS["{METHOD_OF.get(base, base)}"]({MADE_BY[base]}{added})`'
        return found + (", at test 0, 1, 2, …" if row.endswith("-ordinary") else "")
    layers = dict.fromkeys(plan.method.test)
    found = " | ".join(f"{plan.method.test.count(layer)} × `{layer!r}`" for layer in layers)
    found = f"`{plan.method.test[0]!r}`" if len(layers) == 1 else found
    if plan.outside:
        found += " in a model with " + ", ".join(f"`{name}={value!r}`" for name, value in plan.outside.items())
    if plan.method.train_positions is not None:
        trained = next(name for name in MADE_BY if base.startswith(name))
        found += f', trained as `rl.METHODS["{trained}"]({MADE_BY[trained]})`'
    at_test: Any = plan.method.test_positions
    if at_test is not None:
        options = ", ".join(f"{name}={value}" for name, value in at_test.keywords.items())
        found += f", positions `{at_test.func.__name__}({options})`"
    return found


def _signed(value: float) -> str:
    return f"{value:.1f}".replace("-", "−")


def _chapter(row: str) -> str:
    """The lesson that is about a row, where others show it, too."""
    bare = row.partition("-x")[0]
    base = plain_name(bare)
    shown = (chapter for chapter, bases in CHAPTERS.items() if base in bases)
    return ABOUT.get(bare) or ABOUT.get(base) or next(shown, "")


@styled
def scoreboard_lengths(
    lines: Table, names: Mapping[str, str], *, metric: str = "natural"
) -> tuple[MatplotlibFigure, str]:
    """Some rows of the scoreboard against the length of the text, with 95 % intervals.

    Args:
        lines: the table of the scoreboard.
        names: of the rows; what each is called.
        metric: what is drawn.

    Raises:
        ValueError: rows or metrics that the table does not have.

    Chapters 06 and 12.
    """
    figure, axis = new_figure(height=4.4)
    lengths = (64, 128, 256, 512)
    said = []
    for (row, name), color, marker in zip(names.items(), (GREY, RED, BLUE, GREEN, ORANGE), "osD^v", strict=False):
        found = [measured(lines, row, metric, length) for length in lengths]
        mean = [each[0] for each in found]
        bars = [[m - max(low, 0) for m, low, _ in found], [min(high, 100) - m for m, _, high in found]]
        axis.errorbar(lengths, mean, bars, color=color, marker=marker, capsize=3, label=name)
        said.append(f"{name}: {spoken(mean, 0)}")
    doubling_axis(axis, lengths)
    axis.set_ylim(0, None)
    axis.set_xlabel("length of the text, bytes (trained on 64)")
    axis.set_ylabel("next byte right, %" if metric == "natural" else f"{HEADS[metric]}, % right")
    legend_below(figure, axis)
    alt = f"""{HEADS[metric].capitalize()} right in percent against the length of the text, {spoken(lengths, 0)} bytes,
        with 95 % intervals. {"; ".join(said)}."""
    return figure, alt


def _name_lines(axis: Axes, names: Iterable[str]) -> None:
    """A line for each name, from the top."""
    axis.set_yticks(range(len(labels := list(names))), labels)
    axis.set_ylim(len(labels) - 0.5, -0.5)
    axis.grid(axis="y", visible=False)


def _dumbbell(axis: Axes, place: int, ends: Mapping[str, list[float]], marker: str = "o", color: str = BLUE) -> None:
    """Ends by their names in the legend: hollow, of that marker and color, and filled."""
    for (name, end), of, edge, fill in zip(ends.items(), (marker, "o"), (color, BLUE), ("none", BLUE), strict=True):
        axis.plot(end, [place] * len(end), of, ms=9, mew=2, mec=edge, mfc=fill, label=None if place else name)
    both = [value for end in ends.values() for value in end]
    axis.plot(both, [place] * len(both), color=GREY, linewidth=2, zorder=1)


@styled
def scoreboard_reach(
    lines: Table, names: Mapping[str, str], *, control: str, metric: str = "far copies"
) -> tuple[MatplotlibFigure, str]:
    """A metric of some rows, with intervals, and a line where the control stands: a point beyond it reads farther.

    Args:
        lines: the table of the scoreboard.
        names: of the rows that are drawn, from the top; what each is called.
        control: the row that draws the line, named too.
        metric: of the lines that are read.

    Raises:
        ValueError: a control that is not among the names; rows that the table does not have.
    """
    if control not in names:
        raise ValueError(f"control must be one of {', '.join(names)}, got {control!r}")
    figure, axis = new_figure(height=0.9 + 0.4 * len(names))
    said = []
    for place, (row, name) in enumerate(names.items()):
        mean, low, high = measured(lines, row, metric, 512)
        color, marker = (ORANGE, "D") if row == control else (BLUE, "o")
        axis.plot([low, high], [place, place], color=color, linewidth=2)
        axis.plot(mean, place, marker, color=color, markersize=8)
        said.append(f"{name} {mean:.0f}")
        if row == control:
            axis.axvline(mean, color=GREY, linestyle="--", linewidth=1, zorder=0)
    _name_lines(axis, names.values())
    axis.set_xlabel(f"{HEADS[metric]}, % right")
    alt = f"""Percent of {HEADS[metric]} right at 512 bytes, with 95 % intervals, one row for each method; a dashed
        line marks the control, {names[control]}. {"; ".join(said)}."""
    return figure, alt


@styled
def scoreboard_cuts(
    lines: Table,
    names: Mapping[str, tuple[str, str]],
    *,
    metrics: Sequence[str] = ("far copies", "needle"),
    seeds: Mapping[str, Sequence[float]] | None = None,
) -> tuple[MatplotlibFigure, str]:
    """Rows beside their own weights cut at 64: a filled dot and a hollow diamond for each, a panel a metric.

    Args:
        lines: the table of the scoreboard.
        names: of the rows that are drawn, from the top; what each is called, and the row of its control.
        metrics: a panel for each.
        seeds: of some rows, small dots in the first panel.

    Raises:
        ValueError: rows that the table does not have.

    Chapters 10 and 14.
    """
    figure, axes = new_figure(len(metrics), 1, height=1.1 + 0.33 * len(metrics) * len(names), squeeze=False)
    said = []
    for axis, metric in zip(axes[:, 0], metrics, strict=True):
        for place, (row, (name, control)) in enumerate(names.items()):
            whole, cut = (measured(lines, each, metric, 512)[0] for each in (row, control))
            _dumbbell(axis, place, {"cut at 64": [cut], "all that is there": [whole]}, "D", ORANGE)
            said.append(f"{HEADS[metric]}, {name}: {whole:.0f}, cut {cut:.0f}")
            if seeds and row in seeds and metric == metrics[0]:
                axis.plot(seeds[row], [place] * len(seeds[row]), ".", color=RED)
                said.append(f"its seeds {spoken(seeds[row], 0)}")
        _name_lines(axis, [name for name, _ in names.values()])
        axis.set_xlim(-4, 104)
        axis.set_xlabel(f"{HEADS[metric]} at 512, % right")
    legend_below(figure, axes[0, 0])
    alt = f"""Percent right at 512 bytes, a panel for {" and one for ".join(HEADS[m] for m in metrics)}: a dot for
        each training, and a diamond for the same weights that see 64 bytes. {"; ".join(said)}."""
    return figure, alt


@styled
def scoreboard_gaps(
    lines: Table, names: Mapping[str, str], *, metrics: Sequence[str] = ("natural", "far copies")
) -> tuple[MatplotlibFigure, str]:
    """By how much each row is ahead of its own weights behind a window, in points with 95 % intervals, on two metrics.

    Args:
        lines: the table of the scoreboard.
        names: of the rows that are drawn, from the top; what each is called.
        metrics: the hollow dots and the filled ones.

    Raises:
        ValueError: rows that the table does not have.

    Chapter 12.
    """
    figure, axis = new_figure(height=1.3 + 0.38 * len(names))
    said = []
    for place, (row, name) in enumerate(names.items()):
        gaps = []
        for metric, shift, inside in zip(metrics, (-0.15, 0.15), ("none", BLUE), strict=True):
            line = lines.where(rung=RUNG, row=row, metric=metric, length=512)
            mean, low, high = (100 * line[f"ahead_{end}"][0] for end in ("mean", "low", "high"))
            label = None if place else HEADS[metric]
            axis.plot([low, high], [place + shift] * 2, color=GREY, linewidth=2, zorder=1)
            axis.plot(mean, place + shift, "o", color=BLUE, markersize=8, markerfacecolor=inside, label=label)
            gaps.append(f"{mean:.1f}")
        said.append(f"{name} {' and '.join(gaps)}")
    axis.axvline(0, color=ORANGE, linestyle="--", linewidth=1.5, zorder=0)
    _name_lines(axis, names.values())
    axis.set_xlabel("points over a window")
    legend_below(figure, axis)
    ends = " and ".join(HEADS[metric] for metric in metrics)
    alt = f"""Points above the same weights with a window of 64, at 512 bytes, on {ends}: two dots with intervals
        for each method, a dash at 0. {"; ".join(said)}."""
    return figure, alt


@styled
def scoreboard_trade(
    lines: Table, names: Mapping[str, str], *, control: str, more: Mapping[str, Sequence[float]] | None = None
) -> tuple[MatplotlibFigure, str]:
    """All bytes at the training length across, and at another length up: a method that costs nothing moves up alone.

    Args:
        lines: the table of the scoreboard.
        names: of the rows; what each is called.
        control: a row among them, drawn apart.
        more: points that the table does not have, drawn hollow: the percents at 64 and at 512 by name.

    Raises:
        ValueError: a control that is not among the names; rows that the table does not have.
    """
    if control not in names:
        raise ValueError(f"control must be one of {', '.join(names)}, got {control!r}")
    figure, axis = new_figure(height=4.2)
    more = more or {}
    found = {name: [measured(lines, row, "natural", of)[0] for of in (64, 512)] for row, name in names.items()}
    found |= {name: list(both) for name, both in more.items()}
    for (x, y), name in zip(found.values(), found, strict=True):
        color, marker = (ORANGE, "D") if name == names[control] else (BLUE, "o")
        axis.plot(x, y, marker, color=color, markersize=9, fillstyle="none" if name in more else "full")
        taken = any(abs(x - other) < 1 and 0 < above - y < 4 for other, above in found.values())
        place = {"xytext": (9, 0), "ha": "left", "va": "center"}  # beside the point, where something stands above it
        if not taken:
            place = {"xytext": (0, 11), "ha": "center", "va": "bottom"}
        axis.annotate(name, (x, y), textcoords="offset points", fontsize=12, **place)
    axis.set_xlabel("all bytes at 64, % right")
    axis.set_ylabel("all bytes at 512, % right")
    axis.margins(x=0.2, y=0.15)
    said = [f"{name} {x:.0f} and {y:.0f}" for name, (x, y) in found.items()]
    return figure, f"Percent of bytes right at 64 across and at 512 up. {'; '.join(said)}."


@styled
def scoreboard_tuned(
    lines: Table,
    names: Mapping[str, str],
    *,
    metrics: Sequence[str] = ("natural", "far copies"),
    length: int = 512,
    control: Mapping[str, str] | None = None,
) -> tuple[MatplotlibFigure, str]:
    """What tuning at the test length does for each method, by the share of the pretraining bytes: with 0 the method
    acts at test alone. Bars are 95 % intervals; a dashed line is plain RoPE, trained at that length from the start.

    Args:
        lines: the table of the scoreboard, with the rungs of the models that are tuned.
        names: of the rows; what each is called. Plain RoPE is tuned alike.
        metrics: a panel for each.
        length: that they were tuned for.
        control: up to two rows of models that nobody tuned, dotted lines; what each is called.

    Raises:
        ValueError: rows of which nothing is tuned; a control that the table does not have.
    """
    figure, axes = new_figure(len(metrics), 1, height=1.6 + 2.7 * len(metrics), sharex=True, squeeze=False)
    said = []
    for axis, metric in zip(axes[:, 0], metrics, strict=True):
        curves = tuned_curves(lines, metric, length, tuple(names))
        if missing := [row for row in names if row not in curves]:
            raise ValueError(f"names must be of rows that were tuned, got {missing[0]!r}")
        shares = sorted({percent for curve in curves.values() for percent in curve})
        for number, (row, curve) in enumerate(curves.items()):
            at = [shares.index(percent) + 0.04 * (number - len(curves) / 2) for percent in curve]
            means = [100 * found.mean for found in curve.values()]
            bars = [[100 * (i.mean - max(i.low, 0.0)) for i in curve.values()],
                    [100 * max(min(i.high, 1.0) - i.mean, 0.0) for i in curve.values()]]  # fmt: skip
            style: dict[str, Any] = {"color": CYCLE[number % len(CYCLE)], "marker": "osD^vXP"[number % 7], "capsize": 3}
            if row == "rope":  # tuned alike: the line to watch
                style |= {"color": "black", "linewidth": 3}
            axis.errorbar(at, means, bars, label=names[row], **style)
            said.append(f"{HEADS[metric]}, {names[row]}: {spoken(means, 1)}")
        bound = _bound(lines, metric, length)
        if bound is not None:
            axis.axhline(bound, color=GREY, linestyle="--", linewidth=1.5, label="trained there")
            said.append(f"{HEADS[metric]}, trained there: {bound:.1f}")
        for (row, name), color in zip((control or {}).items(), ("black", SKY), strict=False):
            untuned, _, _ = measured(lines, row, metric, length)
            axis.axhline(untuned, color=color, linestyle=":", linewidth=2, label=name)
            said.append(f"{HEADS[metric]}, {name}: {untuned:.1f}")
        axis.set_xticks(range(len(shares)), [f"{percent:g}" for percent in shares])
        axis.set_ylabel(f"{HEADS[metric]}, %")
        axis.locator_params(axis="y", nbins=5)  # a label at the very top would be cut on a phone
    axes[-1, 0].set_xlabel(f"tuning at {length}, % of pretraining bytes")
    legend_below(figure, axes[0, 0])
    alt = f"""Percent right at {length} bytes after tuning with a growing share of the pretraining bytes, a line for
        each method. At {spoken(shares, 1)} percent: {"; ".join(said)}."""
    return figure, alt


def _bound(lines: Table, metric: str, length: int) -> float | None:
    """Plain RoPE that was trained at the test length, where that was measured."""
    rung = f"{RUNG}-at-{length}"
    found = find(lines.where(rung=rung), "rope", metric, length) if rung in lines["rung"] else None
    return None if found is None else 100 * found.mean


@styled
def scoreboard_rungs(
    pairs: Mapping[str, Sequence[Pair]], names: Mapping[str, str], *, seeds: Table, control: str, there: str, here: str
) -> tuple[MatplotlibFigure, str]:
    """By how much rows are above a control on two rungs, in points: each seed there, and the mean here.

    Args:
        pairs: of :func:`~rope_lessons.scoreboard.summary.on_two_rungs`, by metric: a panel for each.
        names: of the rows that are drawn, from the top; what each is called.
        seeds: the lines of each seed there.
        control: the row that they are compared with.
        there, here: what the two rungs are called.

    Raises:
        ValueError: a row or a control that the rungs do not share.

    Chapter 12.
    """
    figure, axes = new_figure(len(pairs), 1, height=1.0 + 0.33 * len(pairs) * (len(names) + 2), squeeze=False)
    said = []
    for axis, (metric, both) in zip(axes[:, 0], pairs.items(), strict=True):
        found = {pair.row: 100 * pair.here for pair in both}
        if missing := [row for row in (*names, control) if row not in found]:
            raise ValueError(f"names must be of rows on both rungs, {', '.join(found)}; got {missing[0]!r}")
        for place, (row, name) in enumerate(names.items()):
            ends = (seeds.where(row=of, metric=metric, length=seeds.max("length"))["mean"] for of in (row, control))
            gaps = [100 * (own - cut) for own, cut in zip(*ends, strict=True)]
            gap = found[row] - found[control]
            _dumbbell(axis, place, {here: [gap], there: gaps})
            said.append(f"{HEADS[metric]}, {name}: {spoken(gaps, 1)} and {gap:.1f}")
        axis.axvline(0, color=ORANGE, linestyle="--", linewidth=1.5, zorder=0)
        _name_lines(axis, names.values())
        axis.set_xlabel(f"{HEADS[metric]}: points above the control")
    legend_below(figure, axes[0, 0])
    alt = f"""Points above the control on two models, {there} and {here}; a panel for each metric, the seeds of each
        method and the other model, a dash at 0. {"; ".join(said)}."""
    return figure, alt


@styled
def scoreboard_order(
    pairs: Sequence[Pair], *, there: str, here: str, named: Mapping[str, str] | None = None
) -> tuple[MatplotlibFigure, str]:
    """Does the order of the methods survive? A point for each row, by its rank in two tables; 1 is the best.

    Args:
        pairs: of :func:`~rope_lessons.scoreboard.summary.on_two_rungs` or
            :func:`~rope_lessons.scoreboard.summary.beside_published`.
        there, here: what the two tables are called.
        named: rows that are written out; what each is called.

    Raises:
        ValueError: fewer than four rows; a name of another row.
    """
    named, rows = named or {}, [pair.row for pair in pairs]
    if unknown := [row for row in named if row not in rows]:
        raise ValueError(f"named must be of {', '.join(rows)}, got {unknown[0]!r}")
    found = agreement(pairs)
    x, y = ranks([pair.there for pair in pairs]), ranks([pair.here for pair in pairs])
    figure, axis = new_figure(height=3.9)
    axis.plot([1, len(rows)], [1, len(rows)], color=GREY, linestyle="--", linewidth=1)
    half = len(rows) / 2 + 0.5
    axis.axvline(half, color=GREY, linestyle=":", linewidth=1)
    axis.axhline(half, color=GREY, linestyle=":", linewidth=1)
    axis.plot(x, y, "o", color=BLUE, markersize=7)
    for row, name in named.items():
        place = rows.index(row)
        axis.plot(x[place], y[place], "D", color=ORANGE, markersize=9)
        up = (x[place] > 0.6 * len(rows)) - (0 < y[place] - x[place] < 3)  # not where the dashed line runs
        look = {"ha": ("left", "center", "right")[up], "va": ("center", "bottom", "top")[up], "fontsize": 12}
        at = (0 if up > 0 else 9, 9 * up)
        axis.annotate(name, (x[place], y[place]), xytext=at, textcoords="offset points", **look)
    axis.set_xlim(0, len(rows) + 1)
    axis.set_ylim(len(rows) + 1, 0)
    ticks = [1, *range(5, len(rows) + 1, 5)]
    axis.set_xticks(ticks)
    axis.set_yticks(ticks)
    axis.set_xlabel(f"rank, {there}")
    axis.set_ylabel(f"rank, {here}")
    said = [f"{name} {x[rows.index(row)]:g} and {y[rows.index(row)]:g}" for row, name in named.items()]
    alt = f"""Ranks of {found.rows} rows, {there} across and {here} down, 1 the best. The rank correlation is
        {found.all:.2f} over all rows, and {found.better_half:.2f} over the better half of {there}.
        {"; ".join(said)}."""
    return figure, alt
