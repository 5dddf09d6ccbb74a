"""Figures of the bug museum: where each mistake begins, where rounding hurts, a rotation that is none, and a window
that is one too wide; and which question finds which exhibit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import torch
from matplotlib.figure import Figure as MatplotlibFigure
from torch import Tensor

from rope_lessons.circles import yarn_attention_factor, yarn_frequencies
from rope_lessons.exercises.bug_museum import DIM, EXHIBIT_OF, HEAD, RIGHT, WRONG
from rope_lessons.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, legend_below, new_figure, styled
from rope_lessons.figures.explorable import Again, Choice, Explorable
from rope_lessons.figures.tables import ResultTable
from rope_lessons.local import dense_mask, lambda_mask
from rope_lessons.radix import dynamic_ntk_frequencies
from rope_lessons.rotary import apply_rotary, rotary_table
from rope_lessons.sinusoidal import rope_frequencies

__all__ = [
    "museum_begins",
    "museum_grid",
    "museum_guess",
    "museum_partners",
    "museum_rounding",
    "museum_stale",
    "museum_table",
    "museum_windows",
]

WRONG_FROM = 0.1  # of its length, by which the vector of a pair has been moved
LLAMA, NEOX = rope_frequencies(128, 500_000.0), rope_frequencies(32)
YARN = (8.0, 8192, 500_000.0)  # factor, training length and base of OLMo 3


def moved(wrong: Tensor, right: Tensor, scale: float = 1.0) -> Tensor:
    """By how much the end of a unit vector is off, in the pair where that is most: angles ``(positions, pairs)``; the
    wrong one may have another length, ``scale``."""
    return _ends(scale * _points(wrong.double()), _points(right.double()))


def _ends(wrong: Tensor, right: Tensor) -> Tensor:
    return (wrong - right).abs().amax(-1)


def _points(angles: Tensor) -> Tensor:
    """The ends of unit vectors, complex: angles ``(positions, pairs)``."""
    return torch.polar(torch.ones_like(angles), angles)


# What is rounded, and what becomes of the ends of unit vectors: positions (n,), frequencies, and the type to round to.
ROUNDED: dict[str, Callable[[Tensor, Tensor, torch.dtype], Tensor]] = {
    "frequencies": lambda m, omega, to: _points(m.double()[:, None] * omega.to(to).double()),
    "positions": lambda m, omega, to: _points(m.to(to).double()[:, None] * omega),
    "angles": lambda m, omega, to: _points((m[:, None] * omega).to(to).double()),
    "cosines and sines": lambda m, omega, to: torch.complex(
        (m[:, None] * omega).cos().to(to).double(), (m[:, None] * omega).sin().to(to).double()
    ),
}


@cache
def rounding(
    to: torch.dtype = torch.bfloat16, longest: int = 32_768
) -> dict[str, tuple[float, int | None, int | None]]:
    """Of each line of ``ROUNDED``, with 128 channels and a base of 10,000: the largest error up to a position, the
    first position with one of more than a tenth, and the first that is the same as the one before; None for neither."""
    omega, found = rope_frequencies(128), {}
    positions = torch.arange(longest + 1).double()
    for name, rounded in ROUNDED.items():
        worst, first, merged, last = 0.0, None, None, None
        for m in positions.split(4096):
            ends = rounded(m, omega, to)
            off = _ends(ends, _points(m[:, None] * omega))
            worst = max(worst, float(off.max()))
            if first is None and bool((off > WRONG_FROM).any()):
                first = int(m[0]) + _first(off)
            before = ends if last is None else torch.cat((last, ends))
            same = (before[1:] == before[:-1]).all(-1)
            if merged is None and bool(same.any()):
                merged = int(m[0]) + int(same.nonzero()[0]) + (last is None)
            last = ends[-1:]
        found[name] = worst, first, merged
    return found


def museum_rounding() -> ResultTable:
    """Where rounding hurts on the way from a position to its cosines, up to position 32,768, in both short types."""
    rows = {
        f"{name} in {kind}": (
            f"{worst:.4f}", *("never" if at is None else f"{at:,}" for at in (first, merged))
        )
        for kind, to in (("bfloat16", torch.bfloat16), ("float16", torch.float16))
        for name, (worst, first, merged) in rounding(to).items()
    }  # fmt: skip
    return ResultTable(
        columns=("off by, at most", "by a tenth from", "merges with its neighbour from"),
        rows=rows,
        apart=frozenset({"positions in float16"}),
        head="rounded, and nothing else",
        caption="128 channels, a base of 10,000, positions to 32,768. Off by: the end of a unit vector, in the worst "
        "pair.",
    )


def _first(off: Tensor) -> int:
    return int((off > WRONG_FROM).nonzero()[0])


def _rounded(m: Tensor) -> Tensor:
    return moved(m.half()[:, None] * NEOX.half(), m[:, None] * NEOX)


def _merged(m: Tensor) -> Tensor:
    return moved(m.bfloat16().double()[:, None] * LLAMA, m[:, None] * LLAMA)


def _lost_base(m: Tensor) -> Tensor:
    return moved(m[:, None] * rope_frequencies(128), m[:, None] * LLAMA)


def _yarn(m: Tensor) -> Tensor:
    """With its attention factor, which makes the vector longer."""
    return moved(m[:, None] * yarn_frequencies(128, *YARN), m[:, None] * LLAMA, yarn_attention_factor(YARN[0]))


def _rounded_last(m: Tensor) -> Tensor:
    return _ends(ROUNDED["cosines and sines"](m.double(), LLAMA, torch.bfloat16), _points(m[:, None] * LLAMA))


def _float32(m: Tensor) -> Tensor:
    return moved(m.float()[:, None] * LLAMA.float(), m[:, None] * LLAMA)


def _ours(m: Tensor) -> Tensor:
    cos, sin = rotary_table(m, LLAMA)
    exact = m[:, None] * LLAMA
    return torch.hypot(cos - exact.cos(), sin - exact.sin()).amax(-1)


def _by_exercise(name: str) -> int:
    """The first position at which a rotation of the exercise moves the vector of one channel too far."""
    right, vectors = RIGHT["computed in float64"](), torch.eye(HEAD)
    for position in range(1, 100):
        at = torch.full((HEAD,), position)
        if (WRONG[name]()(vectors, at) - right(vectors, at)).norm(dim=-1).max() > WRONG_FROM:
            return position
    raise AssertionError(name)


def stale(length: int, seen: int = 2048, factor: float = 2.0) -> Tensor:
    """By how much each key is off that was turned when the text had its length, if the query is the last of a text of
    that length; float64 ``(length,)``."""
    at = torch.arange(length)
    grown = torch.stack([dynamic_ntk_frequencies(128, max(n, seen), seen, factor) for n in range(1, length + 1)])
    return moved(at[:, None] * grown, at[:, None] * grown[-1])


def _stale(length: int = 2048) -> int:
    """The first length at which a key in the cache has another angle than one turned anew."""
    while stale(length).max() <= WRONG_FROM:
        length += 1
    return length


@styled
def museum_stale(lengths: Sequence[int] = (2050, 2060, 2100)) -> tuple[MatplotlibFigure, str]:
    """Dynamic NTK, trained at 2,048: how stale each key in the cache is, for texts of some lengths."""
    figure, axis = new_figure(height=3.0)
    said = []
    for length, color in zip(lengths, (SKY, BLUE, PURPLE), strict=True):
        off = stale(length)
        axis.plot(off, color=color, label=f"the text has {length:,} tokens")
        said.append(f"up to {float(off.max()):.2f} in a text of {length:,} tokens")
    axis.set_xlabel("position of the key")
    axis.set_ylabel("off by")
    axis.set_ylim(-0.05, 2.05)
    legend_below(figure, axis, columns=1)
    alt = f"""How far each key in the cache is from where it belongs, against its position: {"; ".join(said)}. The line
        rises with the position, and falls to 0 at the newest keys."""
    return figure, alt


def _remembered(seen: int = 2048, factor: float = 2.0) -> int:
    m = torch.arange(seen)[:, None]
    long = dynamic_ntk_frequencies(128, 4 * seen, seen, factor)
    return _first(moved(m * long, m * dynamic_ntk_frequencies(128, seen, seen, factor)))


def _misfiled(prompt: int = 5) -> int:
    """Which new token after a prompt is the first that is turned wrongly."""
    right, wrong, x = RIGHT["computed in float64"](), WRONG["the table under a wrong name"](), torch.ones(1, HEAD)
    wrong(x.expand(prompt, -1), torch.arange(prompt))
    steps = [torch.tensor([prompt + step]) for step in range(9)]
    return 1 + _first(torch.stack([(wrong(x, at) - right(x, at)).norm() / DIM**0.5 for at in steps]))


def _window(window: int = 4096) -> int:
    """The shortest text in which a query sees a key too many, where i - j may be as large as the window."""
    keys = torch.arange(2 * window).clamp(max=window) + 1
    return 1 + int((keys > window).nonzero()[0])


@cache
def exhibits() -> dict[str, tuple[str, str, str]]:
    """Of each exhibit what a user saw, what kept it silent, and from where on it is wrong."""
    positions, factor = torch.arange(4096), yarn_attention_factor(128)
    squared = abs(factor**2 - factor) / factor
    return {
        "1 The angle that was rounded": (
            "no right answer, at a large base",
            "right near the start",
            f"position {_first(_rounded(positions))}, or 1 at such a base",
        ),
        "2 The picture of one colour": (
            "flat images",
            "the code says float32",
            f"position {_first(_merged(positions))}",
        ),
        "3 The wrong partner": (
            "a worse spectrogram",
            "one shape, two layouts",
            f"position {_by_exercise('the wrong partner')}",
        ),
        "4 The width of the head": (
            "loops in long texts",
            "a test with the same formula",
            f"position {_by_exercise('the width of the head')}",
        ),
        "5 The lost theta": (
            "nonsense after 800 tokens or more",
            "a default",
            f"distance {_first(_lost_base(positions))}",
        ),
        "6 YaRN in the wrong layers": (
            "fewer right answers",
            "a wrong reference",
            f"distance {_first(_yarn(positions))}",
        ),
        "7 The factor that was applied twice": (
            "fewer right answers",
            "one word, two meanings",
            f"distance {_first(torch.tensor([squared]))}",
        ),
        "8 The stale keys": ("a cache changes the output", "right when it was stored", f"length {_stale():,}"),
        "9 The long text that stayed": ("one chat changes the next", "a state left over", f"position {_remembered()}"),
        "10 The table under a wrong name": ("offsets do nothing", "a state left over", f"new token {_misfiled()}"),
        "11 One key too many": ("two backends differ", "one word, two meanings", f"length {_window():,}"),
        "12 The memory that nobody wrote": (
            "loss as if untrained",
            "no key to miss",
            f"position {_by_exercise('the memory that nobody wrote')}",
        ),
    }


def _anchor(exhibit: str) -> str:
    """Of the exhibit's section: its title without the number."""
    return "#" + "-".join(exhibit.lower().split()[1:])


def museum_table() -> ResultTable:
    """The exhibits, what a user saw of each, why nothing raised, and from which position, distance or length on."""
    return ResultTable(
        columns=("what a user saw", "what kept it silent", "wrong from"),
        rows=exhibits(),
        words=frozenset({0, 1}),
        links={name: _anchor(name) for name in exhibits()},
        head="exhibit",
        caption="Wrong: in some pair, the end of a unit vector is off by more than a tenth, or the output differs. "
        "Sizes as in the cells below and in the threads; a window of 4,096, and 2,048 tokens seen in training where "
        "the length matters.",
    )


LINES: tuple[tuple[str, Callable[[Tensor], Tensor], str, str], ...] = (
    ("1 all in float16", _rounded, GREEN, "-"),
    ("2 positions in bfloat16", _merged, PURPLE, "-"),
    ("5 lost theta", _lost_base, RED, "-"),
    ("6 YaRN in a plain layer", _yarn, ORANGE, "-"),
    ("cos and sin in bfloat16", _rounded_last, GREY, "--"),
    ("angles in float32", _float32, SKY, "--"),
    ("angles in float64, table in float32", _ours, BLUE, "--"),
)


@cache
def worst_so_far(line: int, longest: int) -> Tensor:
    """The largest error of a line up to each position."""
    return LINES[line][1](torch.arange(longest + 1)).cummax(0).values


@styled
def museum_begins(longest: int = 32_768) -> tuple[MatplotlibFigure, str]:
    """The largest error of a turned vector in texts of all lengths, for mistakes and for what rounds late or little."""
    figure, axis = new_figure(height=4.4)
    shown = torch.logspace(0, 15, 181, base=2.0, dtype=torch.float64).round().long().clamp(max=longest).unique()
    said = []
    for number, (name, _, color, line) in enumerate(LINES):
        worst = worst_so_far(number, longest)
        axis.plot(shown, worst[shown].clamp(min=1e-9), line, color=color, label=name)
        late = bool(worst[-1] > WRONG_FROM)
        said.append(f"{name}: " + (f"from {_first(worst)}" if late else f"never, at most {float(worst[-1]):.0e}"))
    axis.axhline(WRONG_FROM, color="black", linewidth=1, linestyle=":")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    ticks = [2**n for n in range(0, 16, 3)]
    axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axis.set_ylim(1e-9, 4)
    axis.set_xlabel("last position of the text")
    axis.set_ylabel("off by, at most")
    legend_below(figure, axis, columns=2)
    alt = f"""The largest error of a turned unit vector in a text, against the text's last position, from 1 to
        {longest:,}, both axes logarithmic. Where each passes {WRONG_FROM}: {"; ".join(said)}. The float32 line climbs
        with the position; the float64 line stays flat."""
    return figure, alt


@styled
def museum_partners(
    scores: Sequence[float], q: Tensor, k: Tensor, omega: Tensor, distance: int = 5
) -> tuple[MatplotlibFigure, str]:
    """The score of a query and a key at a fixed distance, while both move on: it has to stay.

    Args:
        scores: with the wrong partner, for a key at 0, 1, 2, …
        q: the query ``(dim,)``.
        k: the key.
        omega: the frequencies.
        distance: from the key to the query.
    """
    figure, axis = new_figure(height=3.0)
    at = torch.arange(len(scores))
    turned = [
        apply_rotary(x.expand(len(at), -1), at + first, omega, layout="half") for x, first in ((q, distance), (k, 0))
    ]
    right = (turned[0] * turned[1]).sum(-1)
    axis.plot(scores, color=RED, label="angles for halves, partners for neighbours")
    axis.plot(right, color=BLUE, label="one layout for both")
    axis.set_xlabel(f"position of the key; the query is {distance} further on")
    axis.set_ylabel("score")
    legend_below(figure, axis, columns=1)
    alt = f"""The score of one query and one key, {distance} tokens apart, while both walk from position 0 to
        {len(at) - 1}. With one layout it is a flat line at {float(right[0]):.2f}; with the two mixed it jumps between
        {min(scores):.2f} and {max(scores):.2f}."""
    return figure, alt


QUESTIONS = {
    "position 0 turns nothing": "position 0", "one step is omega": "one step", "many steps are, too": "many steps",
    "lengths are kept": "lengths", "only distance counts": "shift", "the past is forgotten": "past",
    "near, far, near": "near, far, near",
}  # fmt: skip


# Exhibits that are in no rotation: no question of one can find them.
ELSEWHERE = ("8 the stale keys", "11 one key too many")


def museum_grid(found: Mapping[str, Sequence[str]]) -> ResultTable:
    """Which question finds which exhibit.

    Args:
        found: the questions that say no, by the name of a rotation of the exercise, or another name.
    """

    def cells(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        return {
            f"{EXHIBIT_OF[name]} {name}" if name in EXHIBIT_OF else name: tuple(
                "●" if question in found[name] else "–" for question in QUESTIONS
            )
            for name in names
        }

    right = [name for name in found if name not in EXHIBIT_OF]
    rows = {
        **cells([name for name in found if name in EXHIBIT_OF]),
        **{name: ("",) * len(QUESTIONS) for name in ELSEWHERE},
        **cells(right),
    }
    anchors = {name.split()[0]: _anchor(name) for name in exhibits()}
    return ResultTable(
        columns=tuple(QUESTIONS.values()),
        rows=rows,
        apart=frozenset({ELSEWHERE[0], *right[:1]}),
        head="exhibit",
        caption="● The question finds it. 8 and 11 are in no rotation: compare a step with the cache with the whole "
        "call, and count the keys of a query.",
        links={name: anchors[name.split()[0]] for name in rows if name.split()[0] in anchors},
    )


def museum_guess(found: Mapping[str, Sequence[str]]) -> Explorable:
    """Which exhibit is it? ``found`` as for :func:`museum_grid`."""
    cases: dict[str, list[int]] = {}
    for number, name in enumerate(EXHIBIT_OF, 1):
        cases.setdefault("".join("○●"[question in found[name]] for question in QUESTIONS), []).append(number)
    lamps = sorted(cases)
    lines = "".join(f"<li><b>{lamp}</b> {question}</li>" for lamp, question in zip(lamps[0], QUESTIONS, strict=True))
    names = ["choose", *(f"{exhibit} {name}" for name, exhibit in EXHIBIT_OF.items())]
    script = f"""
const lamps = {json.dumps(lamps)}, rows = {json.dumps([cases[each] for each in lamps])};
const nth = value.nth - 1, list = root.querySelector("select"), said = svg.querySelector("li:last-child");
if (root.nth !== nth) {{ root.nth = nth; list.value = value.guess = 0; }}
svg.querySelectorAll("b").forEach((lamp, n) => {{ lamp.textContent = lamps[nth][n]; }});
said.textContent = !value.guess ? "Which may it be?" : rows[nth].includes(value.guess) ?
  `Yes. These lamps mean ${{rows[nth].map((n) => list.options[n].text).join(", or ")}}.` : "No, it lights other lamps.";
"""
    return Explorable(
        name="museum-guess",
        alt="Seven questions, each with a lamp that is lit where a rotation fails it.",
        caption="● The rotation fails this question. One of the museum's, and only its lamps are shown.",
        knobs=(
            Choice("guess", "your guess", {**dict(enumerate(names))}, 0),
            Again("nth", "another one", len(lamps)),
        ),
        svg=f'<ul style="list-style:none;padding:0">{lines}<li>Which may it be?</li></ul>',
        script=script,
    )


@styled
def museum_windows(window: int = 4, length: int = 9) -> tuple[MatplotlibFigure, str]:
    """Which keys each query sees: a window that counts the token itself, and one that does not."""
    figure, axes = new_figure(1, 2, height=3.2, sharey=True)
    index = torch.arange(length)
    right, wrong = (dense_mask(lambda_mask(seen, 0), index, index) for seen in (window, window + 1))
    for axis, mask, name in ((axes[0], right, f"i − j < {window}"), (axes[1], wrong, f"i − j ≤ {window}")):
        axis.imshow(torch.where(mask, torch.where(right, 1.0, 2.0), torch.nan), cmap="RdBu_r", vmin=0.4, vmax=2.2)
        axis.set_title(f"{name}: {int(mask[-1].sum())} keys")
        axis.set_xlabel("key j")
        axis.set_xticks([0, window, length - 1])
        axis.set_yticks([0, window, length - 1])
        axis.grid(False)
    axes[0].set_ylabel("query i")
    alt = f"""Two {length} by {length} masks of queries and keys. Left, a key is seen where i − j < {window}: {window}
        keys for each late query, itself among them. Right, where i − j ≤ {window}: one diagonal more,
        {window + 1} keys, first for query {window}."""
    return figure, alt
