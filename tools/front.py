"""The front door: the cards of the chapters, each with a small picture, and the graph of which needs which.

A thumbnail is drawn from the package's own numbers, 96 by 60 units, in the colours of the theme.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch

import rope_lessons as rl
from rope_lessons.figures.axes import kernel_of
from rope_lessons.figures.scoreboard import measured
from rope_lessons.figures.theme import themed
from rope_lessons.stored import results
from tools import project, reading

WIDE, HIGH = 96, 60

# --- thumbnails -------------------------------------------------------------------------------------------------


def line(values: Iterable[float], low: float, high: float, colour: str = "blue") -> str:
    """A curve through values that are evenly spaced, from ``low`` at the bottom to ``high`` at the top."""
    known = list(values)
    points = " ".join(
        f"{4 + 88 * at / (len(known) - 1):.1f},{56 - 52 * (value - low) / (high - low):.1f}"
        for at, value in enumerate(known)
    )
    return f'<polyline points="{points}" fill="none" stroke="{themed(colour)}" stroke-width="2"/>'


def cells(rows: Sequence[Sequence[str]]) -> str:
    """A chequered picture: a colour for each cell, "" for none."""
    size = min(88 / len(rows[0]), 52 / len(rows))
    left, top = (WIDE - size * len(rows[0])) / 2, (HIGH - size * len(rows)) / 2
    return "".join(
        f'<rect x="{left + size * x:.1f}" y="{top + size * y:.1f}" width="{size - 1:.1f}" height="{size - 1:.1f}" '
        f'fill="{themed(colour)}"/>'
        for y, row in enumerate(rows)
        for x, colour in enumerate(row)
        if colour
    )


def hand(x: float, radius: float, angle: float, colour: str = "ink", part: float = 0.85) -> str:
    reach = radius * part
    return (
        f'<line x1="{x:.1f}" y1="30" x2="{x + reach * math.cos(angle):.1f}" y2="{30 - reach * math.sin(angle):.1f}" '
        f'stroke="{themed(colour)}" stroke-width="2" stroke-linecap="round"/>'
    )


def arc(x: float, radius: float, start: float, length: float, colour: str) -> str:
    """A part of a ring, in shares of the circle, counter-clockwise from three o'clock."""
    return (
        f'<circle cx="0" cy="0" r="{radius:g}" transform="translate({x:.1f} 30) scale(1 -1)" pathLength="100" '
        f'stroke-dasharray="0 {100 * start:.1f} {100 * length:.1f} 100" fill="none" stroke="{themed(colour)}" '
        'stroke-width="3"/>'
    )


def sinusoidal() -> str:
    speeds = rl.rope_frequencies(64).double()
    return line(torch.cos(torch.arange(0, 100, 1.5)[:, None] * speeds).mean(1).tolist(), 0, 1)


def rotary() -> str:
    ring = arc(48, 24, 0, 1, "line")
    return ring + hand(48, 24, 2.2, "ink") + hand(48, 24, 0.9, "orange") + arc(48, 12, 0.9 / 6.283, 1.3 / 6.283, "blue")


def radix() -> str:
    plain = rl.rope_frequencies(64)
    kinds = rl.pi_frequencies(64, 8), rl.ntk_frequencies(64, 8, variant="aware")
    return "".join(
        line((of / plain).tolist(), 0, 1.05, colour) for of, colour in zip(kinds, ("red", "blue"), strict=True)
    )


def mixed_radix() -> str:
    plain = rl.rope_frequencies(64)
    return "".join(
        line((rl.mixed_radix_frequencies(64, 8, b) / plain).tolist(), 0, 1.05, colour)
        for b, colour in ((0.3, "orange"), (0.625, "blue"), (1.0, "grey"))
    )


def circles() -> str:
    drawn = ""
    for at, turned in enumerate(rl.circles.turns(rl.rope_frequencies(16), 64).tolist()[1:5]):
        x, seen, now = 12 + 24 * at, min(1.0, turned), min(1.0, 8 * turned)
        drawn += arc(x, 9, 0, seen, "blue") + (arc(x, 9, seen, now - seen, "red") if seen < 1 else "")
        drawn += hand(x, 9, 2 * math.pi * (8 * turned % 1), "ink", 0.7)
    return drawn


def entropy() -> str:
    """The weight of one key that stands out, among more and more: without a factor, and with the logarithm."""
    counts = [2.0**power for power in range(3, 16)]
    kept = [math.exp(6) / (math.exp(6) + n) for n in counts]
    scaled = [n**1.5 / (n**1.5 + n) for n in counts]
    return line(kept, 0, 1, "red") + line(scaled, 0, 1, "blue")


def local() -> str:
    return cells([["orange" if j < 2 else "blue" if i - 4 < j else "wash-grey" for j in range(i + 1)] + [""] * (11 - i)
                  for i in range(12)])  # fmt: skip


def rerope() -> str:
    distances = range(65)
    return line(distances, 0, 64, "line") + line([min(x, 32) for x in distances], 0, 64)


def invleaky() -> str:
    """The distance in training grows faster beyond the window; at test it is the true one."""
    distances = range(65)
    trained = [x if x < 20 else 20 + 2 * (x - 20) for x in distances if x <= 42]
    return line(distances, 0, 64) + line([*trained, *[64] * (65 - len(trained))], 0, 64, "orange")


def random_positions() -> str:
    chosen = [torch.randperm(16, generator=torch.Generator().manual_seed(seed))[:6].tolist() for seed in range(5)]
    return cells([["blue" if at in row else "wash-grey" for at in range(16)] for row in chosen])


def chomsky() -> str:
    """Bits, and below them the parity of all so far."""
    bits = [1, 0, 1, 1, 0, 1, 0, 0, 1, 1]
    parity = [sum(bits[: at + 1]) % 2 for at in range(len(bits))]
    return cells([["ink" if bit else "wash-grey" for bit in row] if colour == "ink" else
                  ["orange" if bit else "wash-grey" for bit in row]
                  for row, colour in ((bits, "ink"), (parity, "orange"))])  # fmt: skip


def shootout() -> str:
    """What the scoreboard has at 512 bytes."""
    board = results("scoreboard")["rows"]
    names = ("rope", "ntk-aware", "yarn", "rope-window", "rerope-w32-logn-test")
    bars = [1.25 * measured(board, name, "natural", 512)[0] for name in names]
    fills = ["blue", "blue", "blue", "grey", "blue"]  # the window is the control
    return "".join(
        f'<rect x="4" y="{4 + 11 * at}" width="{bar:.1f}" height="8" fill="{themed(fill)}"/>'
        for at, (bar, fill) in enumerate(zip(bars, fills, strict=True))
    )


def gpu() -> str:
    return cells([["blue" if j == i else "wash-blue" if j < i else "" for j in range(8)] for i in range(8)])


def axes() -> str:
    """What a pixel sees of the others, by row and column: the colours are its scores."""
    seen = kernel_of(rl.axes.axial_frequencies(16, 2, base=100.0), 7)
    shades = (("blue", 0.9), ("wash-sky", 0.7), ("wash-blue", 0.6))
    return cells([[next((name for name, least in shades if value > least), "wash-grey") for value in row]
                  for row in seen.tolist()])  # fmt: skip


def models() -> str:
    """The layers of a model that mixes windows with full layers without positions."""
    layers = rl.hf.known("Command R7B").layers[:12]
    return "".join(
        f'<rect x="{5 + 7.2 * at:.1f}" y="{38 if layer.sees == "window" else 8}" width="5" '
        f'height="{16 if layer.sees == "window" else 46}" '
        + (f'fill="none" stroke="{themed("ink")}"' if layer.turns is None else f'fill="{themed("blue")}"')
        + "/>"
        for at, layer in enumerate(layers)
    )


THUMBNAILS: dict[str, Callable[[], str]] = {
    "01_sinusoidal": sinusoidal,
    "02_rotary": rotary,
    "03_radix": radix,
    "04_mixed_radix": mixed_radix,
    "05_circles": circles,
    "06_entropy": entropy,
    "07_local": local,
    "08_rerope": rerope,
    "09_invleaky": invleaky,
    "10_random_positions": random_positions,
    "11_chomsky": chomsky,
    "12_shootout": shootout,
    "13_gpu": gpu,
    "14_axes": axes,
    "15_models": models,
}


def thumbnail(name: str) -> str:
    """The picture of a chapter; of a new one a number."""
    drawn = THUMBNAILS[name]() if name in THUMBNAILS else ""
    return f'<svg viewBox="0 0 {WIDE} {HIGH}" aria-hidden="true">{drawn}</svg>'


# --- cards and graph --------------------------------------------------------------------------------------------


def named(path: Path) -> tuple[int, str, str]:
    """Number, name and the rest of the title: ``(5, "Circles", "which hands …")``."""
    number, words = project.title(path).split(" ", 1)
    name, _, rest = words.partition(": ")
    return int(number), name, rest


def cards(root: Path) -> str:
    """A card for each chapter, under the parts of the table of contents."""
    toc = project.parsed((root / "_toc.yml").read_text("utf8"))
    drawn = ""
    for part in toc["parts"]:
        paths = [root / f"{node['file']}.md" for node in part["chapters"]]
        kept = [path for path in paths if project.CHAPTER_NAME.fullmatch(project.page_name(path, root))]
        if kept:
            drawn += f'<p class="rl-part">{html.escape(part["caption"])}</p>'
            drawn += f'<div class="rl-cards">{"".join(map(card, kept))}</div>'
    return drawn


def card(path: Path) -> str:
    number, name, rest = named(path)
    return (
        f'<a class="rl-card" href="{path.stem}.html">{thumbnail(path.stem)}<span><b>{number} {html.escape(name)}</b>'
        f"{html.escape(rest)}</span><small>{reading.minutes(path)}</small></a>"
    )


ROW = 40  # pixels
EVENING = ("02_rotary", "03_radix", "05_circles", "06_entropy", "08_rerope")


def graph(needs: dict[str, list[str]], paths: dict[str, Path]) -> str:
    """The chapters one below the other; on their left an arc from each to those that it builds on.

    The evening is drawn in a colour of its own. A chapter that no other needs has an empty dot.
    """
    at = {name: ROW * (place + 0.5) for place, name in enumerate(needs)}
    arcs = [(before, name) for name, befores in needs.items() for before in befores]
    arcs.sort(key=lambda ends: set(ends) <= set(EVENING))  # its arcs above the others
    drawn = "".join(
        f"<path{EVENING_CLASS * (set(ends) <= set(EVENING))} "
        f'd="M100 {low:g}C{100 - bend:g} {low:g} {100 - bend:g} {high:g} 100 {high:g}"/>'
        for ends in arcs
        for low, high in [(at[ends[0]], at[ends[1]])]
        for bend in [min(128.0, 20 + 0.34 * (high - low))]
    )
    needed = {before for befores in needs.values() for before in befores}
    dots = "".join(
        f'<circle{_dot(name, name in needed)} cx="100" cy="{y:g}" r="{4 + (name not in needed)}"/>'
        for name, y in at.items()
    )
    rows = "".join(_row(name, befores, paths) for name, befores in needs.items())
    height = ROW * len(needs)
    return (
        f'<div class="rl-graph"><svg viewBox="0 0 106 {height}" width="106" height="{height}" aria-hidden="true">'
        f"{drawn}{dots}</svg><ol>{rows}</ol></div>"
    )


EVENING_CLASS = ' class="rl-evening"'


def _dot(name: str, needed: bool) -> str:
    return EVENING_CLASS if name in EVENING else "" if needed else ' class="rl-end"'


def _row(name: str, befores: list[str], paths: dict[str, Path]) -> str:
    number, short, _ = named(paths[name])
    after = "after " + ", ".join(str(int(before[:2])) for before in befores) if befores else "a place to start"
    evening = EVENING_CLASS if name in EVENING else ""
    time = reading.minutes(paths[name])
    return f'<li{evening}><a href="{name}.html">{number} {html.escape(short)}</a><span>{time}, {after}</span></li>'


# --- minutes and sections -----------------------------------------------------------------------------------------


def minutes(names: str, root: Path) -> str:
    """How long some chapters take to read: ``"02_rotary 05_circles"``, or ``"all"``.

    Of a chapter also a section, ``"05_circles#does-it-work"``, or all to the end of one,
    ``"03_radix#:every-hand-pays-in-full"``.
    """
    chosen = [path.stem for path in project.chapters(root)] if names == "all" else names.split()
    # The sum of the minutes that stand beside each, so that a reader who adds them gets the same.
    count = sum(max(1, round(_part(name, root).words / reading.WORDS_PER_MINUTE)) for name in chosen)
    if count == 1:
        return "1 minute"
    return f"{count} minutes" if count < 100 else f"{count / 60:.0f} hours" if count > 300 else _hours(count)


def _part(name: str, root: Path) -> reading.Reading:
    chapter, _, part = name.partition("#")
    path = root / "book" / f"{chapter}.md"
    if not part:
        return reading.before_the_exercises(path)
    return reading.of_a_section(path, part.removeprefix(":"), and_before=part.startswith(":"))


def _hours(count: int) -> str:
    hours, rest = divmod(5 * round(count / 5), 60)
    return f"{hours} hour{'s' * (hours > 1)}" + (f" {rest} minutes" if rest else "")


def section(target: str, root: Path) -> tuple[str, str]:
    """The address and the title of a section: ``05_circles#count-the-turns``."""
    name, _, slug = target.partition("#")
    for title in re.findall(r"^##+ (.+)$", (root / "book" / f"{name}.md").read_text("utf8"), re.MULTILINE):
        if reading.slug(title) == slug:
            return f"{name}.html#{slug}", title
    raise ValueError(f"book/{name}.md has no section {slug}")
