"""The cheat sheet: a picture, a formula, a line of code and what was measured, a row for each method. Chapter 12."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rope_lessons.figures.explorable import svg_path
from rope_lessons.figures.tables import number
from rope_lessons.figures.theme import themed
from rope_lessons.hf.released import who_ships
from rope_lessons.schemes import Scheme, TurningName, scheme
from rope_lessons.scoreboard.recipe import RUNGS
from rope_lessons.scoreboard.rows import longrope_options, searched
from rope_lessons.sinusoidal import rope_frequencies
from rope_lessons.stored import Table, results

__all__ = ["CheatSheet", "cheat_sheet"]

WIDE, HIGH = 96, 40  # of a picture
KNOBS = {
    "frequencies": "Turn the frequencies ω",
    "distance": "Bend the distance Δ",
    "scale": "Scale the scores",
    "visible": "Hide keys, or push them down",
    "positions": "Change the positions in training",
}
PICTURES = {  # what the pictures of a knob show
    "frequencies": "what is left of the speed of each pair, fast to slow",
    "distance": "the distance that is shown, by the distance in the text; dashed, the longest of training",
    "scale": "the factor on the scores, by the number of keys; dashed, 1",
    "visible": "which keys a query sees, a row for each query",
    "positions": "the positions of eight tokens",
}
TRAINING, OWN = "training", "own attention"
WIDE_OPEN = 0.5  # an interval as wide as half of all that is possible says little

STYLE = f"""
.rl-cheat{{border-collapse:collapse;width:100%;font-size:14px;line-height:1.3}}
.rl-cheat th,.rl-cheat td{{padding:5px 8px;text-align:left;border:0;border-bottom:1px solid {themed("line")};
background:none;color:inherit;vertical-align:middle}}
.rl-cheat thead th{{font-weight:600;vertical-align:bottom;border-bottom-width:2px}}
.rl-cheat .rl-number{{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}}
.rl-cheat tr.rl-knob-head th{{font-weight:700;padding-top:12px;border-bottom-width:2px}}
.rl-cheat tr.rl-knob-head small{{font-weight:400;font-size:13px;margin-left:1em}}
.rl-cheat tbody th{{font-weight:600}}
.rl-cheat .rl-whole{{white-space:nowrap}}
@container (min-width:861px){{
.rl-cheat td:nth-child(4){{min-width:200px}}
.rl-cheat td.rl-needs{{max-width:100px}}
}}
.rl-cheat code{{font-size:12px;white-space:normal;overflow-wrap:anywhere;background:none;border:0;padding:0;
color:inherit}}
.rl-cheat svg{{display:block;width:{WIDE}px;height:{HIGH}px;background:none;filter:none}}
.rl-cheat sub,.rl-cheat sup{{line-height:0}}
.rl-cheat-sheet{{container-type:inline-size}}
@container (max-width:860px){{
.rl-cheat,.rl-cheat tbody{{display:block;width:100%}}
.rl-cheat thead{{display:none}}
.rl-cheat tr{{display:grid;grid-template-columns:{WIDE + 14}px repeat(3,minmax(0,1fr));padding:10px 0;
border-bottom:1px solid {themed("line")}}}
.rl-cheat td,.rl-cheat tbody th{{display:block;padding:2px 6px 2px 0;border:0;grid-column:2/-1}}
.rl-cheat td:first-child{{grid-column:1;grid-row:1/span 6}}
.rl-cheat tr.rl-knob-head th{{grid-column:1/-1;font-size:16px}}
.rl-cheat td.rl-short{{grid-column:auto;text-align:left;white-space:normal;padding-top:5px}}
.rl-cheat td.rl-short::before{{content:attr(data-head);display:block;font-size:12px;opacity:.85}}
.rl-cheat td.rl-ships::before{{content:"ships: ";opacity:.85}}
.rl-cheat td.rl-needs::before{{content:"needs: ";opacity:.85}}
.rl-cheat tr[data-ships=no] td.rl-ships,.rl-cheat tr[data-needs=no] td.rl-needs{{display:none}}
}}
""".strip()


@dataclass(frozen=True)
class Entry:
    """A method on the sheet.

    Args:
        name: what it is called.
        knob: the one it turns, of ``KNOBS``.
        formula: HTML.
        code: a Python expression, with ``rl``, the head size ``d``, the training length ``N``, the ``factor``, and the
            number of ``layers``.
        row: of the scoreboard, which measured just that; none where it is empty.
        needs: beside the line of code; ``"training"`` first where a model has to be trained for it.
        idea: what :func:`~rope_lessons.hf.released.who_ships` is asked; nothing where it is empty.
        lesson: its page.
        draw: the picture.
        as_what: words before who ships it, where it is not just this.
    """

    name: str
    knob: str
    formula: str
    code: str
    row: str
    needs: str
    idea: str
    lesson: str
    draw: Callable[[], str]
    as_what: str = ""

    @property
    def ships(self) -> str:
        """Who has it in a released model or a program, from the data of chapter 15."""
        found = who_ships(self.idea, most=2) if self.idea else ""
        return f"{self.as_what}{found}" if found else ""


# --- pictures --------------------------------------------------------------------------------------------------------


def _svg(inside: str, alt: str) -> str:
    """In blue where nothing else is said."""
    label, blue = html.escape(alt, quote=True), themed("blue")
    return f'<svg viewBox="0 0 {WIDE} {HIGH}" fill="{blue}" role="img" aria-label="{label}">{inside}</svg>'


def _speeds(made: Scheme, alt: str, length: int = 512) -> str:
    """A bar for each pair, from fast to slow: what is left of its speed."""
    frequencies = made.frequencies
    assert frequencies is not None
    left = (frequencies(length if frequencies.needs_length else None) / rope_frequencies(frequencies.dim)).tolist()
    step = WIDE / len(left)
    bars = "".join(
        f'<rect x="{step * at + 0.8:.1f}" y="{HIGH - 2 - (HIGH - 4) * share:.1f}" width="{step - 1.6:.1f}" '
        f'height="{(HIGH - 4) * share:.1f}"/>'
        for at, share in enumerate(left)
    )
    top = f'<path d="M0 2H{WIDE}" stroke="{themed("grey")}" stroke-dasharray="3 3" fill="none"/>'
    return _svg(bars + top, alt)


def _curve(values: Sequence[float], most: float, line: float | None, alt: str) -> str:
    """Values from left to right, and a dashed line for what training had."""
    xs = [2 + (WIDE - 4) * at / (len(values) - 1) for at in range(len(values))]
    ys = [HIGH - 3 - (HIGH - 6) * min(1.0, value / most) for value in values]
    drawn = f'<path d="{svg_path(xs, ys)}" fill="none" stroke="{themed("blue")}" stroke-width="2.5"/>'
    if line is not None:
        at = HIGH - 3 - (HIGH - 6) * line / most
        drawn += f'<path d="M0 {at:.1f}H{WIDE}" stroke="{themed("grey")}" stroke-dasharray="3 3" fill="none"/>'
    return _svg(drawn, alt)


def _bent(shown: Callable[[float], float], alt: str) -> str:
    return _curve([shown(distance) for distance in range(0, 193, 4)], 128.0, 64.0, alt)


def _mask(weight: Callable[[int, int], float], alt: str, at: float = 28.0, size: int = 10) -> str:
    cell = (HIGH - 2) / size
    cells = "".join(
        f'<rect x="{at + cell * j:.1f}" y="{1 + cell * i:.1f}" width="{cell - 0.5:.1f}" height="{cell - 0.5:.1f}"'
        + (f' fill="{themed("line")}"' if weight(i, j) <= 0 else "")
        + (f' fill-opacity="{weight(i, j):.2f}"' if 0 < weight(i, j) < 1 else "")
        + "/>"
        for i in range(size)
        for j in range(i + 1)
    )
    return _svg(cells, alt) if alt else cells


def _hybrid() -> str:
    near = _mask(lambda i, j: float(i - j < 3), "", at=4)
    return _svg(near + _mask(lambda i, j: 1.0, "", at=54), "a window in most layers; one layer sees everything")


def _ticks(positions: Sequence[int], alt: str) -> str:
    most = max(positions)
    ticks = "".join(
        f'<path d="M{3 + (WIDE - 6) * p / most:.1f} 12V28" stroke="{themed("blue")}" stroke-width="2.5"/>'
        for p in positions
    )
    return _svg(f'<path d="M0 28H{WIDE}" stroke="{themed("grey")}"/>{ticks}', alt)


def _kind(name: TurningName, alt: str, **options: Any) -> Callable[[], str]:
    return lambda: _speeds(scheme(name, dim=32, **options), alt)


def _log_n(clipped: bool) -> str:
    alt = "the factor grows with the logarithm of the number of keys" + (", and is never below 1" * clipped)
    values = [math.log(n) / math.log(64) for n in range(16, 513, 8)]
    return _curve([max(1.0, v) if clipped else v for v in values], 1.6, 1.0, alt)


def _longrope() -> str:
    """With the factors that were found for the model of the scoreboard."""
    found = searched(32, 64, 8.0)["longrope"]
    made = scheme("longrope", dim=32, **longrope_options(found, 64, 8.0))
    return _speeds(made, "fast pairs keep their speed, the others have a sixth; where it changes was searched")


def _invleaky() -> str:
    """The steep line of training and the true one of the test, on the axes of the rows above."""
    steep = svg_path([2, 2 + (WIDE - 4) * 16 / 192, 2 + (WIDE - 4) * 23 / 192], [HIGH - 3, HIGH - 7, 3])
    drawn = f'<path d="{steep}" fill="none" stroke="{themed("orange")}" stroke-width="2.5"/>'
    alt = "in training distances beyond a window grow fast, orange; at test they are the true ones, blue"
    true = _curve([float(x) for x in range(0, 129, 4)], 128.0, None, alt)
    return true.replace("</svg>", f"{drawn}</svg>")


# --- the methods -----------------------------------------------------------------------------------------------------

_F, _N = "factor=factor", "train_length=N"
METHODS_ON_IT: tuple[Entry, ...] = (
    Entry("RoPE", "frequencies", "ω<sub>t</sub> = B<sup>−2t/d</sup>", 'rl.scheme("rope", dim=d)', "rope", "",
          "rope", "02_rotary", _kind("rope", "every pair at its own speed")),
    Entry("PI", "frequencies", "ω<sub>t</sub>/κ", f'rl.scheme("pi", dim=d, {_F})', "pi", "",
          "pi", "03_radix", _kind("pi", "every pair an eighth as fast", factor=8.0)),
    Entry("NTK-aware", "frequencies", "B → B·κ<sup>d/(d−2)</sup>", f'rl.scheme("ntk-aware", dim=d, {_F})', "ntk-aware",
          "", "larger base", "03_radix",
          _kind("ntk-aware", "fast pairs keep their speed, the slowest has an eighth", factor=8.0),
          as_what="as a larger base: "),
    Entry("Dynamic NTK", "frequencies", "NTK-aware, with 1 + κ(L/N − 1) for κ, L that of the request",
          f'rl.scheme("dynamic-ntk", dim=d, {_F}, {_N})', "dynamic-ntk", "", "dynamic-ntk", "03_radix",
          _kind("dynamic-ntk", "as NTK-aware, for the length of the request", factor=8.0, train_length=64)),
    Entry("NTK-mixed", "frequencies", "ω<sub>t</sub>·exp(−a (t+1)<sup>b</sup>)", f'rl.scheme("ntk-mixed", dim=d, {_F})',
          "ntk-mixed", "", "ntk-mixed", "04_mixed_radix",
          _kind("ntk-mixed", "every pair slower, the slow ones more", factor=8.0)),
    Entry("Llama 3’s rule", "frequencies", "ω<sub>t</sub> or ω<sub>t</sub>/κ, a ramp over the turns in N, 4 to 1",
          f'rl.scheme("llama3", dim=d, {_F}, {_N})', "llama3", "", "llama3", "05_circles",
          _kind("llama3", "pairs with few turns an eighth as fast, a ramp, the others as they were", factor=8.0,
                train_length=64)),
    Entry("YaRN", "frequencies", "ω<sub>t</sub> or ω<sub>t</sub>/κ, a ramp over t, between 32 turns in N and 1; "
          "<span class=\"rl-whole\">scores × (0.1 ln κ + 1)²</span>", f'rl.scheme("yarn", dim=d, {_F}, {_N})',
          "yarn", "", "yarn", "05_circles",
          _kind("yarn", "a ramp from the fast pairs to the slow ones", factor=8.0, train_length=64)),
    Entry("LongRoPE", "frequencies", "ω<sub>t</sub>/κ<sub>t</sub>, all κ<sub>t</sub> searched on long texts; "
          "<span class=\"rl-whole\">scores × (1 + ln κ / ln N)</span>",
          'rl.scheme("longrope", dim=d, short_factor=(1.0,) * (d // 2), long_factor=searched, '
          f'{_F}, {_N})', "longrope", "a search on long texts", "longrope", "05_circles", _longrope),
    Entry("ReRoPE, log n†", "distance", "min(Δ, w)",
          'rl.scheme("rerope", dim=d, window=N // 2, scale=rl.LogN(N, clip=True))', "rerope-w32-logn-test", OWN,
          "", "08_rerope",
          lambda: _bent(lambda x: min(x, 32), "the distance that is shown grows to the window and stops")),
    Entry("Leaky ReRoPE, log n†", "distance", "Δ &lt; w: Δ, else w + (Δ − w)/k",
          'rl.scheme("leaky-rerope", dim=d, window=N // 2, slope=1 / (2 * factor), scale=rl.LogN(N, clip=True))',
          "leaky-rerope-w32-logn-test", OWN, "", "08_rerope",
          lambda: _bent(lambda x: x if x < 32 else 32 + (x - 32) / 16, "beyond the window distances grow slowly")),
    Entry("Self-Extend, log n†", "distance", "Δ &lt; w: Δ, else ⌊i/k⌋ − ⌊j/k⌋ + w − ⌊w/k⌋",
          'rl.METHODS["self-extend"](layers=layers, dim=d, window=N // 2, group=2 * int(factor), '
          "scale=rl.LogN(N, clip=True))", "self-extend-w32-logn-test", OWN, "self-extend", "08_rerope",
          lambda: _bent(lambda x: x if x < 32 else 32 + (x - 32) // 16, "beyond the window distances grow in steps")),
    Entry("InvLeaky, moving window, log n", "distance",
          "in training (orange) Δ &lt; w: Δ, else w + r (Δ − w), w moves; at test Δ",
          'rl.METHODS["invleaky-moving"](layers=layers, dim=d, windows=tuple(range(N // 4, N // 2)), '
          "slopes=(2 * int(factor),), scale=rl.LogN(N))",
          "invleaky-moving-logn", f"{TRAINING}, with {OWN}", "", "09_invleaky", _invleaky),
    Entry("log n", "scale", "scores × log<sub>N</sub> n", 'rl.scheme("rope", dim=d, scale=rl.LogN(N))', "rope-logn",
          TRAINING, "", "06_entropy", lambda: _log_n(False)),
    Entry("log n†", "scale", "scores × max(1, log<sub>N</sub> n)",
          'rl.scheme("rope", dim=d, scale=rl.LogN(N, clip=True))', "rope-logn-test", "",
          "log n", "06_entropy", lambda: _log_n(True), as_what="by keys or by position: "),
    Entry("Window", "visible", "keys with Δ &lt; w", 'rl.scheme("window", dim=d, visible_window=N)', "rope-window",
          "a mask", "window", "07_local", lambda: _mask(lambda i, j: float(i - j < 4), "a band of keys"),
          as_what="in some layers or all: "),
    Entry("StreamingLLM", "visible", "first tokens and a window; positions counted in what is kept",
          'rl.METHODS["streaming"](layers=layers, dim=d, visible_window=N - 4, sinks=4)', "streaming", OWN,
          "", "07_local", lambda: _mask(lambda i, j: float(i - j < 4 or j < 2), "a band and the first columns")),
    Entry("ALiBi", "visible", "scores − δ<sub>h</sub> Δ, no rotation",
          'rl.METHODS["alibi"](layers=layers, dim=d)', "alibi", f"{TRAINING}, with a bias", "alibi", "07_local",
          lambda: _mask(lambda i, j: max(0.05, 1 - (i - j) / 9), "weights that fade with the distance")),
    Entry("HWFA", "visible", "windows; one layer sees all, without positions, with log n",
          'rl.METHODS["hwfa"](layers=layers, dim=d, visible_window=N // 4, train_length=N)', "hwfa-w16",
          f"{TRAINING}, with masks", "hwfa", "07_local", _hybrid, as_what="its like: "),
    Entry("Random positions", "positions",
          "0 ≤ p<sub>1</sub> &lt; p<sub>2</sub> &lt; … &lt; P, drawn; an even grid at test",
          'rl.METHODS["random-positions"](layers=layers, dim=d, max_length=2 * int(factor) * N, causal=True)',
          "random-positions", f"{TRAINING}; length at test", "", "10_random_positions",
          lambda: _ticks((2, 5, 11, 12, 20, 33, 37, 52), "places drawn at random")),
    Entry("PoSE, log n", "positions", "two runs of 0, 1, 2, … with a random jump between",
          'rl.METHODS["skip-positions"](layers=layers, dim=d, max_length=int(factor) * N, scale=rl.LogN(N))',
          "skip-positions-logn", TRAINING, "", "10_random_positions",
          lambda: _ticks((0, 1, 2, 3, 30, 31, 32, 33), "two runs and a jump")),
)  # fmt: skip


# --- the sheet -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CheatSheet:
    """The sheet, which displays itself as HTML, and as text where there is none.

    Args:
        entries: the methods, in order.
        measured: by name the tax, the far copies over a window and the needles at eight times the training length; None
            where nothing was measured.
        sure: by name and in the same order, how much each of the three says: ``"sure"`` for a difference whose interval
            leaves out 0, over two seeds or more, ``"open"`` for a share whose interval is wider than half of all that
            is possible, else ``""``.
    """

    entries: tuple[Entry, ...]
    measured: Mapping[str, tuple[float | None, float | None, float | None]]
    sure: Mapping[str, tuple[str, str, str]]

    HEADS = ("", "method", "what it does", "in code", "needs", "tax", "vs. window", "needles", "who ships it")

    def _repr_html_(self) -> str:
        heads = "".join(
            f'<th scope="col"{self._number(at)}>{html.escape(head)}</th>' for at, head in enumerate(self.HEADS)
        )
        body = "".join(self._group(knob) for knob in KNOBS)
        return (
            f'<div class="rl-cheat-sheet"><style>{STYLE}</style><table class="rl-cheat"><thead><tr>{heads}</tr></thead>'
            f"{body}</table></div>"
        )

    def _number(self, at: int) -> str:
        number = dict.fromkeys((5, 6, 7), "rl-short rl-number")
        classes = {4: "rl-needs", 8: "rl-ships", **number}
        return f' class="{classes[at]}"' if at in classes else ""

    def _group(self, knob: str) -> str:
        rows = "".join(self._row(entry) for entry in self.entries if entry.knob == knob)
        words = f"{KNOBS[knob]} <small>{PICTURES[knob]}</small>"
        title = f'<tr class="rl-knob-head"><th colspan="{len(self.HEADS)}" scope="colgroup">{words}</th></tr>'
        return f"<tbody>{title}{rows}</tbody>"

    def _row(self, entry: Entry) -> str:
        marked = {"sure": "<b>{}</b>", "open": "{}&nbsp;?", "": "{}"}
        both = zip(self.measured[entry.name], self.sure[entry.name], strict=True)
        numbers = [marked[mark].format(number(value, 1)) for value, mark in both]
        code = f"<code>{html.escape(entry.code)}</code>"
        needs, ships = html.escape(entry.needs) or "–", html.escape(entry.ships) or "–"
        cells = (entry.formula, code, needs, *numbers, ships)
        drawn = "".join(
            f'<td{self._number(at)} data-head="{self.HEADS[at]}">{cell}</td>' for at, cell in enumerate(cells, 2)
        )
        name = f'<a href="{entry.lesson}.html">{html.escape(entry.name)}</a>'
        head = f'<td>{entry.draw()}</td><th scope="row">{name}</th>'
        has = " ".join(
            f'data-{what}="{"yes" if said else "no"}"'
            for what, said in (("ships", entry.ships), ("needs", entry.needs))
        )
        return f"<tr {has}>{head}{drawn}</tr>"

    def __repr__(self) -> str:
        width = max(len(entry.name) for entry in self.entries)
        lines = []
        for entry in self.entries:
            tax, over, needles = (number(value, 1) for value in self.measured[entry.name])
            lines.append(f"{entry.name:{width}}  tax {tax:>5}  over a window {over:>5}  needles {needles:>5}")
        return "\n".join(lines)


def cheat_sheet(lines: Table | None = None) -> CheatSheet:
    """The main methods, a row for each: picture, formula, a line of code, what it costs and how far it reads.

    Args:
        lines: the table of the scoreboard; that of the package if None.

    Chapter 12.

    >>> print(repr(cheat_sheet()).splitlines()[1])
    PI                       tax  32.8  over a window −40.7  needles   0.0
    """
    own = (results("scoreboard")["rows"] if lines is None else lines).where(rung="small")
    found = {entry.name: _measured(own, entry.row) for entry in METHODS_ON_IT}
    return CheatSheet(
        METHODS_ON_IT,
        {name: numbers for name, (numbers, _) in found.items()},
        {name: marks for name, (_, marks) in found.items()},
    )


def _measured(own: Table, row: str) -> tuple[tuple[float | None, float | None, float | None], tuple[str, str, str]]:
    """The tax, the far copies over a window and the needles of a row, and how much each of them says."""
    home, longest = RUNGS["small"].home, int(RUNGS["small"].home * RUNGS["small"].factor)
    (tax,) = own.where(row=row, metric="tax", length=home)
    (far,) = own.where(row=row, metric="far copies", length=longest)
    (needle,) = own.where(row=row, metric="needle", length=longest)
    numbers = (tax["mean"], far["ahead_mean"], needle["mean"])
    more = tax["seeds"] > 1
    marks = (
        "sure" if more and tax["low"] * tax["high"] > 0 else "",
        "sure" if more and far["ahead_mean"] is not None and far["ahead_low"] * far["ahead_high"] > 0 else "",
        "open" if min(needle["high"], 1.0) - max(needle["low"], 0.0) > WIDE_OPEN else "",
    )
    over, points, found = (None if number is None else 100 * number for number in numbers)
    return (over, points, found), marks
