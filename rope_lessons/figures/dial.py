"""The dials, the picture that runs through the book: one hand for each pair of channels, from fast to slow.

A hand starts at three o'clock and turns counter-clockwise, by the pair's frequency per token. The ring has the angles
that training showed in blue, and in red those that only the longer text reaches. Every number that is drawn comes from
the package's frequencies; the script of the explorable picks one of the frames that Python has computed.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from rope_lessons._checks import check_count, check_frequencies
from rope_lessons.circles import llama3_frequencies, turns, yarn_frequencies
from rope_lessons.figures.explorable import Choice, Explorable, Knob
from rope_lessons.figures.theme import themed
from rope_lessons.radix import ntk_frequencies, pi_frequencies
from rope_lessons.sinusoidal import rope_frequencies

__all__ = [
    "DialRow",
    "Dials",
    "dial_methods",
    "dials",
    "dials_explorable",
    "distance_explorable",
    "position_explorable",
]

Method = Callable[[float], Tensor]  # a factor to frequencies
RADIUS = 40  # of the ring; the dial's picture is 100 units wide

STYLE = f"""
.rl-dials{{margin:1em 0;max-width:760px;color:inherit}}
.rl-dials figcaption{{margin-top:8px;text-align:left;font-weight:400}}
.rl-dials-row{{display:grid;grid-template-columns:minmax(0,10.5em) minmax(0,1fr);gap:2px 12px;align-items:center;
padding:8px 0}}
.rl-dials-row+.rl-dials-row{{border-top:1px solid {themed("line")}}}
.rl-dials-row.rl-alone{{grid-template-columns:minmax(0,1fr)}}
.rl-dials-name{{line-height:1.3}}
.rl-dials-name b{{display:block}}
.rl-dials-name span,.rl-says{{font-size:14px;color:{themed("quiet")}}}
.rl-dials-pairs{{display:grid;grid-template-columns:repeat(auto-fit,minmax(56px,1fr));gap:6px 4px}}
.rl-dial{{text-align:center;font-size:13px;line-height:1.25;font-variant-numeric:tabular-nums}}
.rl-dial svg{{display:block;width:100%;max-width:96px;height:auto;margin:0 auto;background:none}}
.rl-dial small{{display:block;font-size:12px;color:{themed("quiet")}}}
.rl-dial.rl-marked{{outline:2px solid {themed("orange")};outline-offset:-1px;border-radius:6px}}
.rl-dial i{{font-style:normal}}
.rl-dial circle{{fill:none}}
.rl-track{{stroke:{themed("line")};stroke-width:8}}
.rl-seen{{stroke:{themed("blue")};stroke-width:8}}
.rl-sector{{stroke:{themed("blue")};stroke-width:36;opacity:.13}}
.rl-pale{{fill:{themed("blue")};opacity:.13}}
.rl-new{{stroke:{themed("red")};stroke-width:10}}
.rl-step{{stroke:{themed("blue")};stroke-width:28;opacity:.55}}
.rl-slow{{stroke:{themed("orange")};stroke-width:36}}
.rl-ghost{{stroke:{themed("blue")};stroke-width:28;opacity:.25}}
.rl-hand{{stroke:{themed("ink")};stroke-width:4;stroke-linecap:round}}
.rl-hand.rl-out{{stroke:{themed("red")}}}
.rl-hand.rl-second{{stroke:{themed("orange")}}}
.rl-hand.rl-under{{stroke-width:10}}
.rl-between{{stroke:{themed("blue")};stroke-width:28;opacity:.65}}
.rl-dial circle.rl-hub{{fill:{themed("ink")}}}
.rl-large .rl-dials-pairs{{grid-template-columns:repeat(4,minmax(0,1fr))}}
.rl-large .rl-dial svg{{max-width:128px}}
.rl-legend{{display:flex;flex-wrap:wrap;gap:2px 18px;margin-top:6px;font-size:14px}}
.rl-legend svg{{width:26px;height:14px;margin-right:6px;vertical-align:-2px;background:none}}
.rl-legend circle{{fill:none}}
.rl-phone{{display:none}}
@media (max-width:600px){{
.rl-dials-row{{grid-template-columns:minmax(0,1fr)}}
.rl-dials-pairs{{grid-template-columns:repeat(4,minmax(0,1fr));max-width:360px}}
.rl-wide{{display:none}}
.rl-phone{{display:flex}}
}}
""".strip()


@dataclass(frozen=True)
class DialRow:
    """One row of dials.

    Args:
        label: what the reader sees beside it.
        frequencies: of the row, ``(pairs,)`` in radians per token.
        length: tokens that the hands have turned by.
        hands: where they stand, in tokens: one hand at ``length`` by default; two for a query and a key, drawn with the
            angle from the key to the query and nothing of the training.
        note: a second line below the label; by default, whether a hand shows a new angle, or how far two are apart.
        more: a third line.
    """

    label: str
    frequencies: Tensor
    length: int
    hands: tuple[int, ...] | None = None
    note: str | None = None
    more: str = ""


@dataclass(frozen=True)
class _Dial:
    """What is drawn of one pair, in degrees."""

    seen: float  # the arc that training showed
    new: float  # what the row adds to it
    step: float  # one token
    plain_step: float  # one token in training
    hands: tuple[float, ...]

    @property
    def between(self) -> float:
        """From the second hand to the first, counter-clockwise."""
        return (self.hands[0] - self.hands[1]) % 360

    @property
    def token(self) -> str:
        """What stands below the dial: one token, or what is between two hands."""
        return _degrees(self.between if len(self.hands) == 2 else self.step)


def _degrees(angle: float) -> str:
    """Two digits, below a thousandth one, which is what fits below a dial.

    >>> _degrees(57.29), _degrees(5.729), _degrees(0.02265), _degrees(0.000498)
    ('57°', '5.7°', '0.023°', '0.0005°')
    """
    if angle <= 0:
        return "0°"
    digits = 2 if angle >= 1e-3 else 1
    return f"{angle:.{max(digits - 1 - math.floor(math.log10(angle)), 0)}f}°"


def _dials(row: DialRow, trained: Tensor, train_length: int | None) -> list[_Dial]:
    """One for each pair. Without a training length the arc is the one that the row's hand has run through."""
    own = turns(row.frequencies, row.length).tolist()
    known = turns(trained, train_length).tolist() if train_length else own
    steps, plain = (turns(frequencies, 1).tolist() for frequencies in (row.frequencies, trained))
    hands = (row.length,) if row.hands is None else row.hands
    return [
        _Dial(
            seen=360 * min(1.0, known[t]),
            new=360 * unseen(known[t], own[t]),
            step=360 * steps[t],
            plain_step=360 * plain[t],
            hands=tuple(360 * (steps[t] * at % 1) for at in hands),
        )
        for t in range(len(own))
    ]


def unseen(trained: float, now: float) -> float:
    """The share of the circle that ``now`` turns add to what ``trained`` turns have shown.

    A pair that has been all the way round has nothing new to show.

    >>> unseen(10.2, 81.5), unseen(0.25, 2.0), unseen(0.25, 0.5), unseen(0.25, 0.25)
    (0.0, 0.75, 0.25, 0.0)
    """
    if trained >= 1 or now <= trained * (1 + 1e-9):  # a rounding error is no new angle
        return 0.0
    return min(1.0, now) - trained


def _arc(kind: str, radius: float, length: float, start: float = 0.0) -> str:
    """A part of a circle, in degrees from three o'clock; with a stroke as wide as its diameter, a sector."""
    dashes = f"0 {start:.2f} {length:.2f} 360" if start else f"{length:.2f} 360"
    return f'<circle class="{kind}" r="{radius:g}" pathLength="360" stroke-dasharray="{dashes}"/>'


def _step_kind(dial: _Dial) -> str:
    return "rl-slow" if dial.step < dial.plain_step * (1 - 1e-9) else "rl-step"


def _hand_kind(dial: _Dial, which: int) -> str:
    if which:
        return "rl-hand rl-second"
    return "rl-hand rl-out" if dial.new and dial.hands[0] > dial.seen else "rl-hand"


def _draw(dial: _Dial, fixed: str = "") -> str:
    """One dial; ``fixed`` is what is drawn below its hands."""
    hands = "".join(
        f'<line class="{_hand_kind(dial, which)}" x2="{34 - 6 * which}" transform="rotate({angle:.1f})"/>'
        for which, angle in enumerate(dial.hands)
    )
    return (
        '<svg viewBox="-50 -50 100 100" aria-hidden="true"><g transform="scale(1 -1)">'
        f'<circle class="rl-track" r="{RADIUS}"/>{_arcs(dial)}{fixed}{hands}<circle class="rl-hub" r="4"/></g></svg>'
    )


def _arcs(dial: _Dial) -> str:
    if len(dial.hands) == 2:
        return f'<g transform="rotate({dial.hands[1]:.1f})">{_arc("rl-between", 14, dial.between)}</g>'
    return (
        f"{_arc('rl-sector', 18, dial.seen)}{_arc('rl-seen', RADIUS, dial.seen)}"
        f"{_arc('rl-new', RADIUS, dial.new, dial.seen)}"
        f"{_arc('rl-ghost', 14, dial.plain_step)}{_arc(_step_kind(dial), 14, dial.step)}"
    )


def _cell(t: int, dial: _Dial, numbered: int, fixed: str = "", below: str = "", more: str = "") -> str:
    kind = f"rl-dial{more}"
    number = f"<small>pair {t * numbered}</small>" if numbered else ""
    return f'<div class="{kind}">{number}{_draw(dial, fixed)}<span>{dial.token}</span>{below}</div>'


def _row_html(
    row: DialRow,
    found: Sequence[_Dial],
    every: Sequence[_Dial],
    numbered: int,
    with_training: bool,
    marked: Collection[int] = (),
    phone: Collection[int] = (),
) -> str:
    """``found`` is drawn; the note counts ``every`` dial."""
    kinds = [" rl-marked" * (t in marked) + " rl-wide" * bool(phone and t not in phone) for t in range(len(found))]
    cells = "".join(_cell(t, dial, numbered, more=kinds[t]) for t, dial in enumerate(found))
    notes = (_note(row, every, with_training) if row.note is None else row.note, row.more)
    below = "<br>".join(html.escape(note) for note in notes if note)
    name = f'<div class="rl-dials-name"><b>{html.escape(row.label)}</b><span>{below}</span></div>'
    return f'<div class="rl-dials-row">{name}<div class="rl-dials-pairs">{cells}</div></div>'


def _note(row: DialRow, found: Sequence[_Dial], with_training: bool) -> str:
    if row.hands is not None and len(row.hands) == 2:
        return f"{row.hands[0] - row.hands[1]} tokens apart"
    if not with_training:
        return ""
    red = sum(dial.new > 0 for dial in found)
    if red == 0:
        return "no new angle"
    return f"{red} of {len(found)} met new angles"


def _sample(kind: str, words: str) -> str:
    if kind == "rl-seen":  # the ring, and the pale sector inside it
        shape = '<path class="rl-pale" d="M0 4H26V14H0Z"/><line class="rl-seen" x1="0" x2="26" y1="3" y2="3"/>'
    elif kind.startswith(("rl-new", "rl-hand")):
        shape = f'<line class="{kind}" x1="0" x2="26" y1="7" y2="7"/>'
    else:
        shape = f'<g transform="translate(1 13) scale(1 -1)">{_arc(kind, 12, 32)}</g>'
        shape = shape.replace('r="12"', 'r="12" style="stroke-width:24"')
    return f'<span><svg viewBox="0 0 26 14" aria-hidden="true">{shape}</svg>{words}</span>'


def _legend(found: Sequence[_Dial], with_training: bool) -> str:
    if all(len(dial.hands) == 2 for dial in found):
        between = "from the key to the query (number below)"
        of_two = (("rl-hand", "query"), ("rl-hand rl-second", "key"), ("rl-between", between))
        return f'<div class="rl-legend">{"".join(_sample(*sample) for sample in of_two)}</div>'
    samples = [("rl-seen", "the range of training" if with_training else "what the hand has run through")]
    if any(dial.new for dial in found):
        samples.append(("rl-new", "angles that it never showed"))
    kinds = {_step_kind(dial) for dial in found}
    steps = {"rl-step": "turn of one token", "rl-slow": "turn of one token, slowed"}
    first, *others = (step for step in steps.items() if step[0] in kinds)
    samples += [(first[0], f"{first[1]} (number below)"), *others]
    if kinds == {"rl-slow"}:  # else only the pale wedge shows it
        samples.append(("rl-ghost", "one token in training"))
    return f'<div class="rl-legend">{"".join(_sample(*sample) for sample in samples)}</div>'


def _spoken(row: DialRow, found: Sequence[_Dial], with_training: bool, nth: int = 1) -> str:
    if row.hands is not None and len(row.hands) == 2:
        query, key = row.hands
        between = ", ".join(dial.token for dial in found)
        return f"{row.label}: a query at {query} and a key at {key}; from the key's hand to the query's: {between}"
    if not with_training:
        return f"{row.label}: the hands point to {', '.join(_degrees(dial.hands[0]) for dial in found)}"
    red = [str(t * nth) for t, dial in enumerate(found) if dial.new > 0]
    new = f"new angles, in red, at pair{'s' * (len(red) > 1)} {', '.join(red)}" if red else "no red"
    last = nth * (len(found) - 1)
    return f"{row.label}: {new}; one token turns pair 0 by {found[0].token}, pair {last} by {found[-1].token}"


class Dials:
    """Rows of dials with their alt text. Displays as HTML with drawings in it, which needs no script."""

    def __init__(
        self,
        rows: Sequence[DialRow],
        trained: Tensor,
        train_length: int | None,
        pairs: int | None = None,
        marked: Collection[int] = (),
        phone: Collection[int] = (),
        nth: int = 1,  # pair of the model
    ):
        check_frequencies(trained)
        if pairs is not None:
            check_count("pairs", pairs, least=1)
        drawn = range(trained.shape[-1] if pairs is None else pairs)
        for name, some in (("marked", marked), ("phone", phone)):
            if unknown := [t for t in some if t not in drawn]:
                raise ValueError(f"{name} must be of the pairs that are drawn, 0 to {drawn[-1]}, got {unknown[0]}")
        self.marked, self.phone = frozenset(marked), frozenset(phone)
        if not rows:
            raise ValueError("rows must have at least one row of dials, got none")
        for row in rows:
            check_frequencies(row.frequencies)
            check_count("length", row.length, least=1)
            if row.frequencies.shape != trained.shape or trained.dim() != 1:
                shapes = (
                    f"{tuple(row.frequencies.shape)} in the row {row.label!r} and {tuple(trained.shape)} in training"
                )
                raise ValueError(f"frequencies must be one for each pair, as many as in training, got {shapes}")
        if train_length is not None:
            check_count("train_length", train_length, least=1)
        self.rows, self.train_length, self.nth = tuple(rows), train_length, nth
        self.every = [_dials(row, trained, train_length) for row in rows]
        self.drawn = [of_row[:pairs] for of_row in self.every]

    @property
    def alt(self) -> str:
        pairs, every = len(self.drawn[0]), len(self.every[0])
        of = f"the first {pairs} of {every}" if pairs < every else f"{pairs}"
        arcs = ", ".join(_degrees(dial.seen) for dial in self.drawn[0])
        training = f" Training on {self.train_length} tokens showed these arcs, in blue: {arcs}." * bool(
            self.train_length and any(len(dial.hands) < 2 for row in self.drawn for dial in row)
        )
        rows = zip(self.rows, self.drawn, strict=True)
        said = ". ".join(_spoken(row, found, self.train_length is not None, self.nth) for row, found in rows)
        marked = f" Marked: pairs {', '.join(map(str, sorted(self.marked)))}." * bool(self.marked)
        return f"Dials with one hand each for {of} pairs of channels, from fast to slow.{training} {said}.{marked}"

    def _repr_html_(self) -> str:
        rows = "".join(
            _row_html(row, found, every, (at == 0) * self.nth, self.train_length is not None, self.marked, self.phone)
            for at, (row, found, every) in enumerate(zip(self.rows, self.drawn, self.every, strict=True))
        )
        legend = _legend([dial for found in self.drawn for dial in found], self.train_length is not None)
        if self.phone:
            legend += f'<div class="rl-legend rl-phone">{len(self.phone)} of {len(self.every[0])} dials</div>'
        return (
            f'<div class="rl-dials{" rl-large" * (len(self.drawn[0]) < len(self.every[0]))}"><style>{STYLE}</style>'
            f'<div role="img" aria-label="{html.escape(self.alt, quote=True)}">{rows}{legend}</div></div>'
        )

    def __repr__(self) -> str:
        return f"Dials: {self.alt}"


def dial_methods(dim: int = 16, base: float = 10_000.0, train_length: int = 64) -> dict[str, Method]:
    """The methods of the dials by name: each a function from the factor to the frequencies.

    Args:
        dim: number of channels; even.
        base: of the frequencies.
        train_length: tokens in training.

    >>> [name for name in dial_methods()]
    ['none', 'PI', 'NTK-aware', 'YaRN', 'Llama 3']
    """
    return {
        "none": lambda factor: rope_frequencies(dim, base),
        "PI": lambda factor: pi_frequencies(dim, factor, base),
        "NTK-aware": lambda factor: ntk_frequencies(dim, factor, base, variant="aware"),
        "YaRN": lambda factor: yarn_frequencies(dim, factor, train_length, base),
        "Llama 3": lambda factor: llama3_frequencies(dim, factor, train_length, base),
    }


def dials(
    rows: Sequence[DialRow] | None = None,
    *,
    dim: int = 16,
    base: float = 10_000.0,
    train_length: int | None = 64,
    factor: int = 8,
    methods: Sequence[str] = ("none", "PI", "NTK-aware", "YaRN"),
    more: Sequence[str] = (),
    pairs: int | None = None,
    marked: Collection[int] = (),
    phone: Collection[int] = (),
) -> Dials:
    r"""Rows of dials: what training showed of each pair, and what a longer text asks of it.

    The blue arc of pair t is :math:`\min(1, N\omega_t/2\pi)` of its circle. With the row's frequencies ω′ and length L
    the rest up to :math:`\min(1, L\omega'_t/2\pi)` is red, where :math:`L\omega'_t > N\omega_t` and the blue arc is not
    the whole circle. The number below a dial is what one token turns.

    Args:
        rows: what to draw; by default plain RoPE at the training length, and each of the ``methods`` at ``factor``
            times that.
        dim, base: of the frequencies in training, :func:`~rope_lessons.rope_frequencies`.
        train_length: tokens in training; None if there is no training to speak of, and the blue arc is simply what the
            row's own hand has run through.
        factor: how much longer the text is than in training, and the factor of the methods.
        methods: names from :func:`dial_methods`.
        more: to say of each row, that of training first; nothing by default.
        pairs: how many are drawn, from the fastest on, then larger; all by default. What is counted, is counted of all.
        marked: pairs that get a frame, in every row.
        phone: pairs that a phone shows; all by default.

    Returns:
        What displays itself, with ``alt``.

    Raises:
        TypeError, ValueError: a row whose frequencies do not fit ``dim``; a length below 1; an unknown method; as many
            texts ``more`` as there are rows, or none.

    Chapters 01 to 05.

    >>> shown = dials(methods=["none", "PI"])
    >>> [[round(dial.new) for dial in row] for row in shown.drawn]
    [[0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 244, 257, 81, 26, 8], [0, 0, 0, 0, 0, 0, 0, 0]]
    """
    trained = rope_frequencies(dim, base)
    if rows is None:
        check_count("factor", factor, least=1)
        if train_length is None:
            raise ValueError("train_length must be a number of tokens where rows is None, got None")
        rows = _method_rows(trained, dial_methods(dim, base, train_length), methods, train_length, factor)
    if len(more) not in (0, len(rows)):
        raise ValueError(f"more must have a text for each of the {len(rows)} rows, got {len(more)}")
    rows = [replace(row, more=said) for row, said in zip(rows, more, strict=True)] if more else rows
    return Dials(rows, trained, train_length, pairs, marked, phone)


def _method_rows(
    trained: Tensor, known: Mapping[str, Method], names: Sequence[str], train_length: int, factor: int
) -> list[DialRow]:
    for name in names:
        if name not in known:
            raise ValueError(f"methods must be of {', '.join(known)}, got {name!r}")
    long = train_length * factor
    rows = [DialRow(f"{train_length} tokens", trained, train_length, note="as in training")]
    for name in names:
        label = f"{long} tokens" if name == "none" else name
        rows.append(DialRow(label, known[name](factor), long))
    return rows


# --- the explorable ------------------------------------------------------------------------------------------------

SCRIPT = r"""
    const frame = FRAMES[value.method][value.factor][value.length];
    const idle = WITHOUT_FACTOR.includes(value.method);
    root.querySelectorAll('button[name="factor"]').forEach((b) => b.setAttribute("aria-disabled", idle));
    svg.querySelector("b").textContent = frame.label;
    root.querySelector(".rl-says").textContent = frame.says;
    svg.querySelectorAll(".rl-dial").forEach((dial, t) => {
      const [seen, fresh, step, slow, hand, out, token] = frame.dials[t];
      const circles = dial.querySelectorAll("circle"), line = dial.querySelector("line");
      circles[3].setAttribute("stroke-dasharray", seen ? `0 ${seen} ${fresh} 360` : `${fresh} 360`);
      circles[5].setAttribute("stroke-dasharray", `${step} 360`);
      circles[5].setAttribute("class", slow ? "rl-slow" : "rl-step");
      line.setAttribute("class", out ? "rl-hand rl-out" : "rl-hand");
      line.setAttribute("transform", `rotate(${hand})`);
      dial.querySelector("span").textContent = token;
    });
"""


def _says(found: Sequence[_Dial], length: int, train_length: int) -> str:
    red = sum(dial.new > 0 for dial in found)
    slowed = sum(_step_kind(dial) == "rl-slow" for dial in found)
    first = found[0]
    shown = f"{red} of {len(found)} hands show{'s' * (red == 1)} new angles" if red else "No hand shows a new angle"
    slower = f"{slowed} of {len(found)} turn{'s' * (slowed == 1)}" if slowed else "None turns"
    now = "as in training" if _step_kind(first) == "rl-step" else f"not {_degrees(first.plain_step)} as in training"
    times, longer = found[-1].plain_step / found[-1].step, length / train_length
    enough = f"; {longer:.3g} would do" if longer > 1 else ", for nothing"
    last = f" The last hand is slowed {times:.3g} times{enough}." if times > longer * (1 + 1e-9) else ""
    return (
        f"{shown} within {length} tokens. {slower} slower than in training. "
        f"One token turns the first hand by {first.token}, {now}.{last}"
    )


def _frame(label: str, found: Sequence[_Dial], says: str) -> dict[str, Any]:
    """What the script draws: texts, and for each dial [seen, new, step, slowed?, hand, hand at a new angle?, step]."""
    numbers = [
        [f"{dial.seen:.2f}", f"{dial.new:.2f}", f"{dial.step:.2f}", int(_step_kind(dial) == "rl-slow"),
         f"{dial.hands[0]:.1f}", int("rl-out" in _hand_kind(dial, 0)), dial.token]
        for dial in found
    ]  # fmt: skip
    return {"label": label, "says": says, "dials": numbers}


def dials_explorable(
    *,
    dim: int = 16,
    base: float = 10_000.0,
    train_length: int = 64,
    lengths: Sequence[int] = (64, 128, 256, 512),
    factors: Sequence[int] = (2, 4, 8),
    methods: Mapping[str, Method] | None = None,
    method: str = "none",
    length: int | None = None,
    factor: int | None = None,
    name: str = "dials",
    caption: str | None = None,
) -> Explorable:
    """The dials to play with: buttons for the method, the length of the text and the factor.

    Args:
        dim, base: of the frequencies in training.
        train_length: tokens in training.
        lengths, factors: what the buttons offer.
        methods: by the word on the button, a function from the factor to the frequencies; :func:`dial_methods` by
            default.
        method, length, factor: what is chosen at first; the longest text and the largest factor by default.
        name: of the explorable; two on one page need two names.
        caption: below the dials; by default, what is drawn.

    Returns:
        An :class:`~rope_lessons.figures.explorable.Explorable` whose first frame needs no script.

    Raises:
        ValueError: a method, length or factor that no button offers.

    Chapters 01 to 05.

    >>> dials_explorable(method="PI").knobs[0].value
    'PI'
    """
    methods = dial_methods(dim, base, train_length) if methods is None else methods
    length, factor = lengths[-1] if length is None else length, factors[-1] if factor is None else factor
    knobs = (
        Choice("method", "Method", {word: _shown(word) for word in methods}, method),
        Choice("length", "Tokens", {number: f"{number}" for number in lengths}, length),
        Choice("factor", "Factor", {number: f"{number}" for number in factors}, factor),
    )
    trained = rope_frequencies(dim, base)
    rows = {
        (word, number, tokens): DialRow(_title(word, number, tokens), frequencies(number), tokens)
        for word, frequencies in methods.items()
        for number in factors
        for tokens in lengths
    }
    shown = {key: Dials([row], trained, train_length).drawn[0] for key, row in rows.items()}
    frames: dict[str, Any] = {}
    for (word, number, tokens), found in shown.items():
        at = frames.setdefault(word, {}).setdefault(number, {})
        at[tokens] = _frame(_title(word, number, tokens), found, _says(found, tokens, train_length))
    first = shown[method, factor, length]
    idle = [
        word for word, frequencies in methods.items() if len({tuple(frequencies(k).tolist()) for k in factors}) == 1
    ]
    numbers = json.dumps(frames, separators=(",", ":"), ensure_ascii=False)
    script = f"const FRAMES = {numbers};\nconst WITHOUT_FACTOR = {json.dumps(idle, ensure_ascii=False)};\n{SCRIPT}"
    drawn = f"""One hand for each pair of channels, from fast to slow; all start at three o'clock and turn
        counter-clockwise. Blue, ring and pale sector: what training on {train_length} tokens showed. Red: what only a
        longer text reaches. The wedge in the middle, and the number below, is what one token turns; it is orange where
        a method has slowed the hand."""
    alt = f"""{len(first)} dials, from fast to slow, with buttons for the method, the length and the factor. At first:
        {_spoken(rows[method, factor, length], first, with_training=True)}."""
    picture = _drawn(_title(method, factor, length), first)
    says = _says(first, length, train_length)
    return Explorable(name, alt, drawn if caption is None else caption, knobs, picture, script, STYLE, says)


def _shown(word: str) -> str:
    """A method's name as the reader has it."""
    return "plain RoPE" if word == "none" else word


def _title(word: str, factor: int, length: int) -> str:
    how = _shown(word) if word == "none" else f"{word}, factor {factor}"
    return f"{length} tokens, {how}"


def _drawn(label: str, found: Sequence[_Dial], fixed: str = "") -> str:
    return _alone(label, "".join(_cell(t, dial, numbered=True, fixed=fixed) for t, dial in enumerate(found)))


def _alone(label: str, cells: str) -> str:
    return (
        f'<div class="rl-dials-row rl-alone"><div class="rl-dials-name"><b>{html.escape(label)}</b></div>'
        f'<div class="rl-dials-pairs">{cells}</div></div>'
    )


# --- one position ---------------------------------------------------------------------------------------------------

POSITION_SCRIPT = r"""
    svg.querySelector("b").textContent = `position ${value.position}`;
    svg.querySelectorAll(".rl-dial").forEach((dial, t) => {
      const turned = SPEEDS[t] * value.position, circles = dial.querySelectorAll("circle");
      const run = (360 * Math.min(1, turned)).toFixed(2);
      for (const c of [1, 2]) circles[c].setAttribute("stroke-dasharray", `${run} 360`);
      circles[3].setAttribute("stroke-dasharray", `0 ${run} 0.00 360`);
      dial.querySelector("line").setAttribute("transform", `rotate(${(360 * (turned % 1)).toFixed(1)})`);
      [Math.sin, Math.cos].forEach((of, at) => {
        dial.querySelectorAll("i")[at].textContent = of(2 * Math.PI * turned).toFixed(2).replace("-", "−");
      });
    });
"""


def position_explorable(
    *, dim: int = 16, base: float = 10_000.0, position: int = 200, longest: int = 1000, name: str = "position"
) -> Explorable:
    """One position on the dials, with the sine and the cosine of each hand, and a slider to move it.

    Args:
        dim, base: of the frequencies, :func:`~rope_lessons.rope_frequencies`.
        position: at first, in tokens.
        longest: where the slider ends; it begins at 0.
        name: of the explorable; two on one page need two names.

    Returns:
        An :class:`~rope_lessons.figures.explorable.Explorable` whose first frame needs no script.

    Raises:
        ValueError: a position that the slider does not reach.

    Chapter 01.

    >>> position_explorable(position=2).knobs[0].value
    2
    """
    if not 1 <= position <= longest:
        raise ValueError(f"position must be from 1 to longest = {longest}, got {position}")
    frequencies = rope_frequencies(dim, base)
    found = _dials(DialRow(f"position {position}", frequencies, position), frequencies, None)
    angles = (position * frequencies).tolist()
    cells = "".join(
        _cell(t, dial, numbered=True, below=f"<div>sin <i>{_signed(math.sin(angle))}</i></div>"
              f"<div>cos <i>{_signed(math.cos(angle))}</i></div>")
        for t, (dial, angle) in enumerate(zip(found, angles, strict=True))
    )  # fmt: skip
    caption = """The small wedge, and the angle below each dial, is what one token turns the hand by. The ring shows how
        far the hand has come."""
    alt = f"""{len(found)} dials, from fast to slow, with a slider for the position. At position {position} the hands
        point to {", ".join(_degrees(dial.hands[0]) for dial in found)}; below each dial stand its sine and its cosine,
        {"; ".join(f"{_signed(math.sin(a))} and {_signed(math.cos(a))}" for a in angles)}."""
    script = f"const SPEEDS = {json.dumps(turns(frequencies, 1).tolist())};\n{POSITION_SCRIPT}"
    knobs = (Knob("position", "Position", 0, longest, position),)
    return Explorable(name, alt, caption, knobs, _alone(f"position {position}", cells), script, STYLE)


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


# --- a query and a key ---------------------------------------------------------------------------------------------

KEY = '<line class="rl-hand rl-second rl-under" x2="24" transform="rotate(0.0)"/>'  # wide: seen below the query
DISTANCE_SCRIPT = r"""
    const trained = 2 ** value.length, at = value.distance;  // whose largest distance is trained - 1
    let away = 0, past = 0;
    SPEEDS.forEach((speed, t) => {
      const known = speed * (trained - 1), now = speed * at, seen = 360 * Math.min(1, known);
      const fresh = known >= 1 || now <= known * (1 + 1e-9) ? 0 : 360 * (Math.min(1, now) - known);
      const hand = 360 * (now % 1), dial = svg.querySelectorAll(".rl-dial")[t];
      const circles = dial.querySelectorAll("circle"), line = dial.querySelector("line:not(.rl-second)");
      for (const c of [1, 2]) circles[c].setAttribute("stroke-dasharray", `${seen.toFixed(2)} 360`);
      circles[3].setAttribute("stroke-dasharray", `0 ${seen.toFixed(2)} ${fresh.toFixed(2)} 360`);
      line.setAttribute("class", fresh && hand > seen ? "rl-hand rl-out" : "rl-hand");
      line.setAttribute("transform", `rotate(${hand.toFixed(1)})`);
      if (fresh && hand > seen) away += 1;
      else if (fresh) past += 1;
    });
    svg.querySelector("b").textContent = `trained on ${trained} tokens (distances to ${trained - 1}), now ${at} apart`;
    root.querySelector(".rl-says").textContent =
      away ? `${away} of ${SPEEDS.length} hands ${away > 1 ? "stand" : "stands"} at an angle that training never showed`
             + (past ? `; ${past} more ${past > 1 ? "have" : "has"} passed through some.` : ".")
      : past ? `No hand stands at a new angle now, but ${past} ${past > 1 ? "have" : "has"} passed through some.`
      : "Every hand stands where training has had it.";
"""


def _says_now(found: Sequence[_Dial]) -> str:
    """How many hands stand at a new angle, in red, and how many have only passed through some."""
    away = sum("rl-out" in _hand_kind(dial, 0) for dial in found)
    past = sum(dial.new > 0 for dial in found) - away
    have = "have" if past > 1 else "has"
    if away:
        more = f"; {past} more {have} passed through some." if past else "."
        stand = "stand" if away > 1 else "stands"
        return f"{away} of {len(found)} hands {stand} at an angle that training never showed{more}"
    if past:
        return f"No hand stands at a new angle now, but {past} {have} passed through some."
    return "Every hand stands where training has had it."


def distance_explorable(
    *,
    dim: int = 16,
    base: float = 10_000.0,
    distance: int = 40,
    train_length: int = 64,
    longest: int = 512,
    name: str = "distance",
) -> Explorable:
    """A query and a key on the dials, with one slider for their distance and one for the training length.

    A text of 64 tokens has distances up to 63: 64 is the first that is new.

    Args:
        dim, base: of the frequencies, :func:`~rope_lessons.rope_frequencies`.
        distance: from the key to the query at first, in tokens.
        train_length: at first; a power of two from 16 to ``longest``.
        longest: where both sliders end; a power of two.
        name: of the explorable; two on one page need two names.

    Returns:
        An :class:`~rope_lessons.figures.explorable.Explorable` whose first frame needs no script.

    Raises:
        ValueError: a distance or a training length that no slider reaches.

    The front page.

    >>> [knob.value for knob in distance_explorable().knobs]
    [40, 6]
    """
    for what, number in (("train_length", train_length), ("longest", longest)):
        if number not in [2**power for power in range(4, 13)]:
            raise ValueError(f"{what} must be a power of two from 16 to 4096, got {number}")
    if not 1 <= distance <= longest or train_length > longest:
        raise ValueError(
            f"distance and train_length must be at most longest = {longest}, got {distance} and {train_length}"
        )
    frequencies = rope_frequencies(dim, base)
    row = DialRow(
        f"trained on {train_length} tokens (distances to {train_length - 1}), now {distance} apart",
        frequencies,
        distance,
    )
    found = _dials(row, frequencies, train_length - 1)
    says = _says_now(found)
    knobs = (
        Knob("distance", "Distance", 1, longest, distance),
        Knob("length", "Trained on", 4, math.log2(longest), round(math.log2(train_length)), power=2),
    )
    script = f"const SPEEDS = {json.dumps(turns(frequencies, 1).tolist())};\n{DISTANCE_SCRIPT}"
    caption = """Each dial is one pair of channels of a head. The short, wide orange hand is the key; the long one is
        the query as the key sees it. The wedge, and the number below, is what one token turns it by. Blue: angles
        that training showed; red: new ones."""
    alt = f"""{len(found)} dials, from fast to slow, with sliders for the distance of query and key and for the training
        length. At first: {_spoken(row, found, with_training=True)}."""
    return Explorable(name, alt, caption, knobs, _drawn(row.label, found, KEY), script, STYLE, says)
