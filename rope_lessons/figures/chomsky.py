"""Figures of chapter 11."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle

from rope_lessons.chomsky import TASKS, Task, blind_accuracy
from rope_lessons.chomsky.results import Row, score
from rope_lessons.figures import (
    BLUE,
    CLEAR_TO_BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    Choice,
    Explorable,
    Knob,
    doubling_axis,
    legend_below,
    new_figure,
    over_seeds,
    styled,
)

__all__ = [
    "chomsky_automata",
    "chomsky_blind",
    "chomsky_followed",
    "chomsky_home",
    "chomsky_influence",
    "chomsky_ladder",
    "chomsky_lengths",
    "chomsky_machines",
    "chomsky_models",
    "chomsky_needs",
    "chomsky_playground",
    "chomsky_sensitive",
]

SOLVED = 0.9
COLOURS, MARKERS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY), "os^DvXP"


def _name(task: str) -> str:
    """A task as the lesson calls it."""
    return {"parity_check": "parity", "reverse_string": "reversing"}.get(task, task.replace("_", " "))


# --- what an answer depends on -------------------------------------------------------------------------------------


def needs(task: Task, length: int, strings: int = 64) -> torch.Tensor:
    """Bool ``(output_length, length)``: does output token t change for some string when input bit i is turned over?"""
    seen = torch.zeros(task.output_length(length), length, dtype=torch.bool)
    inputs, _, _ = task.sample(strings, length, torch.Generator().manual_seed(0))
    for string in inputs.tolist():
        before = task.answer(string)
        for i in range(length):
            after = task.answer([*string[:i], 1 - string[i], *string[i + 1 :]])
            seen[:, i] |= torch.tensor([a != b for a, b in zip(before, after, strict=True)])
    return seen


@styled
def chomsky_needs(
    tasks: Sequence[str] = ("even_pairs", "parity_check", "reverse_string", "odds_first"), length: int = 8
) -> tuple[MatplotlibFigure, str]:
    """Which input bit can change which output token, found by turning bits over."""
    found = [needs(TASKS[name], length) for name in tasks]
    # Panels as tall as they have rows, and an equal share for titles.
    figure, axes = new_figure(
        len(tasks), 1, height=0.8 * len(tasks) + 0.2 * sum(map(len, found)), width=4.8,
        height_ratios=[len(matrix) + 2 for matrix in found],
    )  # fmt: skip
    said = []
    for axis, name, matrix in zip(axes, tasks, found, strict=True):
        axis.imshow(matrix, cmap=CLEAR_TO_BLUE, vmin=0, vmax=1, aspect="auto")
        axis.set_title(_name(name), fontsize=12)
        axis.set_xticks(range(length), [str(i) for i in range(1, length + 1)])
        axis.set_yticks(*(([0, len(matrix) - 1], ["1", f"{len(matrix)}"]) if len(matrix) > 1 else ([],)))
        axis.set_ylabel("answer", fontsize=11)
        axis.set_xticks([x - 0.5 for x in range(1, length)], minor=True)
        axis.set_yticks([y - 0.5 for y in range(1, len(matrix))], minor=True)
        axis.grid(False)
        axis.grid(which="minor", color="#bbbbbb", linewidth=0.6)
        axis.tick_params(which="minor", length=0)
        rows = [[i + 1 for i in range(length) if row[i]] for row in matrix.tolist()]
        said.append(f"{_name(name)}: " + "; ".join(" ".join(map(str, row)) for row in rows))
    axes[-1].set_xlabel("input symbol")
    alt = f"""For {len(tasks)} tasks on {length} symbols, which input symbol can change which token of the answer: a
        blue cell. Row by row of the answer, the input symbols that matter. {". ".join(said)}."""
    return figure, alt


# --- machines ------------------------------------------------------------------------------------------------------


def _state(axis: Any, at: tuple[float, float], name: str, first: bool = False) -> None:
    axis.add_patch(Circle(at, 0.33, facecolor="#cfe6f5" if first else "white", edgecolor="black", linewidth=1.5))
    axis.text(*at, name, ha="center", va="center", fontsize=12)


def _arrow(axis: Any, start: tuple[float, float], end: tuple[float, float], bend: float, colour: str) -> None:
    style = f"arc3,rad={bend}"
    axis.add_patch(
        FancyArrowPatch(start, end, connectionstyle=style, arrowstyle="-|>", mutation_scale=14, color=colour,
                        shrinkA=17, shrinkB=17, linewidth=1.6)
    )  # fmt: skip


@styled
def chomsky_automata() -> tuple[MatplotlibFigure, str]:
    """The two states of parity and the five of the cycle."""
    figure, axes = new_figure(2, 1, height=5.6, width=4.8, height_ratios=[1.15, 2])
    parity, cycle = axes
    left, right = (-1.0, 0.0), (1.0, 0.0)
    _state(parity, left, "even", first=True)
    _state(parity, right, "odd")
    _arrow(parity, left, right, -0.3, RED)
    _arrow(parity, right, left, -0.3, RED)
    parity.text(0, 0.48, "1", color="#a33c00", ha="center", va="bottom", fontsize=13)
    parity.text(0, -0.48, "1", color="#a33c00", ha="center", va="top", fontsize=13)
    for side, x in ((-1, -1.8), (1, 1.8)):
        parity.annotate(
            "", xy=(side * 1.3, -0.14), xytext=(side * 1.3, 0.14),
            arrowprops={"arrowstyle": "-|>", "connectionstyle": f"arc3,rad={-side * 1.7}", "color": BLUE, "lw": 1.6},
        )  # fmt: skip
        parity.text(x, 0, "0", color=BLUE, ha="center", va="center", fontsize=13)
    parity.set_title("parity: two states", fontsize=12)
    angle = [math.pi / 2 - 2 * math.pi * place / 5 for place in range(5)]
    places = [(1.25 * math.cos(a), 1.25 * math.sin(a)) for a in angle]
    for place, at in enumerate(places):
        _state(cycle, at, str(place), first=place == 0)
    for place, at in enumerate(places):
        _arrow(cycle, at, places[(place + 1) % 5], -0.22, RED)
        _arrow(cycle, places[(place + 1) % 5], at, -0.22, BLUE)
    cycle.text(0, 0.14, "+1 clockwise", ha="center", color="#a33c00", fontsize=12)
    cycle.text(0, -0.2, "\N{MINUS SIGN}1 back", ha="center", color=BLUE, fontsize=12)
    cycle.set_title("cycle navigation: five states", fontsize=12)
    for axis, height in ((parity, 1.0), (cycle, 1.75)):
        axis.set_xlim(-2.3, 2.3)
        axis.set_ylim(-height, height)
        axis.set_aspect("equal")
        axis.axis("off")
    alt = """Above, the automaton of parity: two circles, even (where it starts) and odd. A 1 leads from each to the
        other, a 0 from each back to itself. Below, that of cycle navigation: five circles in a ring, 0 to 4, starting
        at 0; +1 leads clockwise to the next, -1 back."""
    return figure, alt


# --- what a score means --------------------------------------------------------------------------------------------


@styled
def chomsky_blind(
    tasks: Mapping[str, str] | None = None, lengths: Iterable[int] = (5, 7, 10, 15, 20, 30, 40, 60, 100, 200, 500)
) -> tuple[MatplotlibFigure, str]:
    """Accuracy of the best predictor that never sees the input, against the length. ``tasks``: name to label."""
    tasks = tasks or {
        "bucket_sort": "bucket sort",
        "stack_manipulation": "stack manipulation",
        "cycle_navigation": "cycle navigation",
    }
    lengths = list(lengths)
    figure, axis = new_figure(height=4.1)
    said = []
    for number, (name, label) in enumerate(tasks.items()):
        accuracy = [blind_accuracy(TASKS[name], length) for length in lengths]
        axis.plot(lengths, [100 * a for a in accuracy], color=COLOURS[number], marker=MARKERS[number], label=label)
        said.append(f"{label}: " + ", ".join(f"{100 * a:.0f}" for a in accuracy))
    axis.axhline(100 * SOLVED, color="black", linestyle=":", linewidth=1.5)
    axis.text(lengths[0], 100 * SOLVED + 1, '"solved"', va="bottom")
    axis.axvline(40, color=GREY, linewidth=1)
    axis.text(41, 2, "trained up to 40", color="#444444")
    doubling_axis(axis, [5, 10, 20, 40, 100, 200, 500])
    axis.set_ylim(0, 100)
    axis.set_xlabel("length of the input")
    axis.set_ylabel("accuracy without the input, %")
    legend_below(figure, axis)
    alt = f"""Accuracy of the best predictor that never sees the input, in percent, at the lengths
        {", ".join(map(str, lengths))}. {"; ".join(said)}. A dotted line marks 90 percent, which the benchmark calls
        solved: bucket sort crosses it."""
    return figure, alt


def _by_length(rows: Iterable[Row], **wanted: Any) -> dict[int, list[float]]:
    """Accuracies by length, over seeds, of the rows with these entries."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if all(getattr(row, key) == value for key, value in wanted.items()):
            found.setdefault(row.length, []).append(row.accuracy)
    return dict(sorted(found.items()))


VARIANT_STYLE = {"plain": (GREY, "--", "o"), "random": (BLUE, "-", "s"), "random+logn": (ORANGE, "-.", "^")}


@styled
def chomsky_lengths(
    rows: Sequence[Row], task: str, positions: str = "rope", test_positions: str = "random"
) -> tuple[MatplotlibFigure, str]:
    """Accuracy on a task against length: the mean over the seeds, bars from worst to best."""
    shown = [row for row in rows if row[:3:2] == (task, positions) and row.test_positions in ("plain", test_positions)]
    if not shown:
        raise ValueError(f"rows must hold results of {task} with positions {positions}, got none")
    figure, axis = new_figure(height=3.7)
    said = []
    for number, (variant, (colour, line, marker)) in enumerate(VARIANT_STYLE.items()):
        found = _by_length(shown, variant=variant)
        found.pop(41, None)  # too near to 40
        if not found:
            continue
        at = [length * 1.015 ** (number - 1) for length in found]
        of_seeds = [[100 * value for value in values] for values in found.values()]
        mean = over_seeds(axis, at, of_seeds, color=colour, linestyle=line, marker=marker, markersize=5,
                          label=variant.replace("+logn", " + log n"))  # fmt: skip
        said.append(f"{variant}: {mean[0]:.0f} at {min(found)}, {mean[-1]:.0f} at {max(found)}")
    axis.axhline(100 * TASKS[task].chance, color="black", linewidth=1, linestyle=":")
    axis.axvline(40, color=GREY, linewidth=1)
    axis.set_ylabel("accuracy, %")
    doubling_axis(axis, [40, 64, 100, 160, 250, 500])
    axis.set_xlabel("length of the string (trained up to 40)")
    axis.set_ylim(-3 + 100 * min(TASKS[task].chance, *(row.accuracy for row in shown)), 103)
    legend_below(figure, axis, columns=3)
    alt = f"""Accuracy in percent against the length of the string for {task.replace("_", " ")}, mean over up to
        {len({row.seed for row in shown})} seeds, bars from worst to best. A dotted line marks chance, an upright one
        home, 40. {"; ".join(said)}."""
    return figure, alt


@styled
def chomsky_playground(
    accuracies: Mapping[str, Mapping[int, float]], longest: int, chance: float
) -> tuple[MatplotlibFigure, str]:
    """Accuracy against length of models that were just trained: ``{name: {length: accuracy}}``."""
    figure, axis = new_figure(height=3.6)
    said = []
    for number, (task, found) in enumerate(accuracies.items()):
        name = _name(task)
        lengths = sorted(found)
        values = [100 * found[length] for length in lengths]
        axis.plot(lengths, values, color=COLOURS[number], marker=MARKERS[number], label=name)
        said.append(f"{name}: {values[0]:.0f} at {lengths[0]}, {values[-1]:.0f} at {lengths[-1]}")
    axis.axvline(longest, color=GREY, linewidth=1)
    axis.axhline(100 * chance, color="black", linewidth=1, linestyle=":")
    doubling_axis(axis, lengths)
    axis.set_ylim(0, 103)
    axis.set_xlabel(f"length of the string (trained up to {longest})")
    axis.set_ylabel("accuracy, %")
    legend_below(figure, axis)
    alt = f"""Accuracy in percent against the length of the string. A line marks the longest training string, {longest},
        a dotted one chance. {"; ".join(said)}."""
    return figure, alt


# --- the ladder ----------------------------------------------------------------------------------------------------

NETWORKS = {"rnn": "RNN", "lstm": "LSTM", "stack_rnn": "stack", "tape_rnn": "tape", "transformer": "Transformer"}


def ahead_of_blind(accuracies: Mapping[int, float], task: str, beyond: int) -> float:
    """The score beyond a length, as a share of the way from a blind predictor (0) to all right (1).

    Args:
        accuracies: by length; the lengths beyond training up to the longest count, joined by lines.
        task: its name.
        beyond: the longest training length.
    """
    low, high = beyond + 1, max(accuracies)
    blind = score({length: blind_accuracy(TASKS[task], length) for length in accuracies}, low, high)
    return (score(accuracies, low, high) - blind) / (1 - blind)


def at_home(accuracies: Mapping[int, float], task: str, length: int) -> float:
    """The accuracy at one length, as a share of the way from a blind predictor to all right."""
    blind = blind_accuracy(TASKS[task], length)
    return (accuracies[length] - blind) / (1 - blind)


def of_seeds(rows: Iterable[Row], **wanted: Any) -> list[dict[int, float]]:
    """Accuracy by length for each seed, of the rows with these entries."""
    found: dict[int, dict[int, float]] = {}
    for row in rows:
        if all(getattr(row, key) == value for key, value in wanted.items()):
            found.setdefault(row.seed, {})[row.length] = row.accuracy
    return [found[seed] for seed in sorted(found)]


@styled
def chomsky_ladder(
    rows: Sequence[Row], tasks: Mapping[str, str], beyond: int, learned: float = 0.9
) -> tuple[MatplotlibFigure, str]:
    """Tasks and models: how far beyond the training lengths the best seed is, between a blind guess and all right.

    Args:
        rows: of one protocol, plain variants only are shown.
        tasks: name to label, from the top.
        beyond: the longest training length.
        learned: what no seed brings to this share at the longest training length is crossed.
    """
    figure, axis = new_figure(height=0.62 * len(tasks) + 1.2)
    axis.set_xlim(-0.5, len(NETWORKS) - 0.5)
    axis.set_ylim(len(tasks) - 0.5, -0.5)
    said = []
    for y, (task, label) in enumerate(tasks.items()):
        cells = []
        for x, (model, name) in enumerate(NETWORKS.items()):
            seeds = of_seeds(rows, task=task, model=model, variant="plain")
            if not seeds:
                continue
            found = [ahead_of_blind(seed, task, beyond) for seed in seeds]
            value, full = 100 * max(found), sum(share >= SOLVED for share in found)
            home = max(at_home(seed, task, beyond) for seed in seeds)
            share = min(max(value / 100, 0), 1)
            alpha = 1.0 if share >= SOLVED else 0.6 * share  # between the two no type can be read in both themes
            axis.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=BLUE, alpha=alpha, linewidth=0))
            told = (
                f"{value:.0f}" + ("" if home >= learned else "\n×") + (f"\n({full})" if 0 < full < len(seeds) else "")
            )
            axis.text(x, y, told, ha="center", va="center",
                      color="white" if share >= SOLVED else "black", fontsize=13)  # fmt: skip
            of_them = f" in {full} of {len(seeds)} seeds" if 0 < full < len(seeds) else ""
            cells.append(f"{name} {value:.0f}{of_them}{'' if home >= learned else ', not learned'}")
        said.append(f"{label}: {'; '.join(cells)}")
    axis.set_xticks(range(len(NETWORKS)), [n.replace("sf", "s-\nf") for n in NETWORKS.values()])
    axis.set_yticks(range(len(tasks)), tasks.values())
    axis.xaxis.tick_top()
    axis.tick_params(length=0)
    axis.grid(False)
    for side in axis.spines.values():
        side.set_visible(False)
    alt = f"""A table of colours: tasks in rows, networks in columns. A number is the mean accuracy beyond the training
        lengths as a percentage of the way from a blind predictor, 0, to all right, 100, of the best seed; the more,
        the bluer, and in full colour from 90 on, with the number of seeds that get there where not all do. A cross
        marks what was not even learned at the lengths of training. {". ".join(said)}."""
    return figure, alt


@styled
def chomsky_models(
    rows: Sequence[Row],
    task: str,
    beyond: int,
    models: Sequence[str] = ("rnn", "stack_rnn", "transformer"),
    kept: int = 0,
) -> tuple[MatplotlibFigure, str]:
    """Accuracy on one task against the length of the string, a line for each seed of each model.

    Args:
        rows: of one protocol, plain variants only are shown.
        task: its name.
        beyond: the longest training length.
        models: a colour for each.
        kept: bits of the string that a network may keep, which guesses the others: a dashed curve; 0 for none.
    """
    figure, axis = new_figure(height=4.2 if len(models) > 1 else 2.8)
    said, lengths = [], sorted({row.length for row in rows})
    for number, model in enumerate(models):
        for nth, seed in enumerate(of_seeds(rows, task=task, model=model, variant="plain")):
            seed.pop(beyond + 1, None)  # too near to tell apart
            values = [100 * seed[length] for length in sorted(seed)]
            axis.plot(sorted(seed), values, color=COLOURS[number], marker=MARKERS[number], markersize=5,
                      label=NETWORKS[model] if nth == 0 else None)  # fmt: skip
            said.append(f"{NETWORKS[model]}: {values[0]:.0f} at {min(seed)}, {values[-1]:.0f} at {max(seed)}")
    if kept:
        at = range(max(beyond, kept), max(lengths) + 1)
        axis.plot(at, [50 + 50 * kept / length for length in at], color="black", linestyle="--", linewidth=1.2,
                  label=f"{kept} bits")  # fmt: skip
    axis.axvline(beyond, color=GREY, linewidth=1)
    axis.axhline(100 * TASKS[task].chance, color="black", linewidth=1, linestyle=":")
    axis.set_xticks([length for length in lengths if length != beyond + 1])
    axis.set_xlabel(f"length of the string (trained up to {beyond})")
    axis.set_ylabel("accuracy, %")
    if len(models) > 1:
        legend_below(figure, axis)
    alt = f"""Accuracy in percent against the length of the string for {task.replace("_", " ")}, a line for each seed.
        {"; ".join(said)}. A dotted line marks chance, a line the longest training string, {beyond}.
        {f"A dashed curve is right in {kept} bits and guesses the others." if kept else ""}"""
    return figure, alt


@styled
def chomsky_home(rows: Sequence[Row], tasks: Mapping[str, str], beyond: int) -> tuple[MatplotlibFigure, str]:
    """The Transformer with plain and with random positions, read on the grid: percent of the way from blind to all
    right against the length, a line for each seed, a panel for each task. ``tasks``: name to label."""
    figure, axes = new_figure(1, len(tasks), height=3.6, sharey=True)
    told = []
    for axis, (task, label) in zip(axes, tasks.items(), strict=True):
        for variant, tested in (("plain", "plain"), ("random", "grid")):
            color, line, marker = VARIANT_STYLE[variant]
            for nth, seed in enumerate(
                of_seeds(rows, task=task, model="transformer", variant=variant, test_positions=tested)
            ):
                seed.pop(beyond + 1, None)  # too near to tell apart
                share = [100 * at_home(seed, task, length) for length in sorted(seed)]
                axis.plot(sorted(seed), share, line, color=color, marker=marker, markersize=5,
                          label=None if nth else f"{variant} positions")  # fmt: skip
                told.append(f"{label}, {variant}: {share[0]:.0f} at {beyond}, {share[-1]:.0f} at {max(seed)}")
        axis.axvline(beyond, color=GREY, linewidth=1)
        axis.set_title(label, fontsize=12)
        axis.set_xticks([beyond, 40, 65, 100])
        axis.set_xlabel("length")
    axes[0].set_ylabel("percent of the way")
    legend_below(figure, axes[0])
    return (
        figure,
        f"""Percent of the way from blind to all right against the length, a line for each seed of a
        Transformer. {"; ".join(told)}. A line marks the longest training string, {beyond}.""",
    )


@styled
def chomsky_followed(shares: Mapping[int, Sequence[float]]) -> tuple[MatplotlibFigure, str]:
    """How often the answer turns over with each symbol, by length: the more often, the bluer a cell."""
    figure, axis = new_figure(height=0.6 + 0.42 * len(shares))
    for y, (length, row) in enumerate(shares.items()):
        for i, share in enumerate(row):
            place = (i / length, y - 0.35), 1 / length, 0.7
            axis.add_patch(Rectangle(*place, facecolor=BLUE, alpha=share, linewidth=0))
            axis.add_patch(Rectangle(*place, fill=False, edgecolor=GREY))
    axis.set(xlim=(0, 1), ylim=(len(shares) - 0.5, -0.5), xticks=[0, 1])
    axis.set_xticklabels(["first", "last symbol"])
    axis.set_yticks(range(len(shares)), [f"{length} symbols" for length in shares])
    axis.grid(False)
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)
    told = (f"of {n}: {', '.join(str(i + 1) for i, share in enumerate(row) if share > 0.5) or 'none'}"
            for n, row in shares.items())  # fmt: skip
    return (
        figure,
        f"""Rows of cells, a cell for each symbol of a string, blue where turning it over turns the answer.
        Blue are, {"; ".join(told)}.""",
    )


def sensitivity(task: Task, length: int, strings: int = 64) -> float:
    """How many input symbols change one token of the answer, when each is replaced alone by another one at random.

    The mean over strings and over the tokens that count.
    """
    generator = torch.Generator().manual_seed(0)
    inputs, answers, mask = task.sample(strings, length, generator)
    symbols = inputs.unique().tolist()
    changed, tokens = 0.0, 0
    for string, answer, counts in zip(inputs.tolist(), answers.tolist(), mask.tolist(), strict=True):
        where = [t for t, count in enumerate(counts) if count]
        tokens += len(where)
        for i, old in enumerate(string):
            others = [symbol for symbol in symbols if symbol != old]
            new = others[int(torch.randint(len(others), (), generator=generator))]
            after = task.answer([*string[:i], new, *string[i + 1 :]])
            changed += sum(after[t] != answer[t] for t in where)
    return changed / tokens


def influence(length: int, lead: float) -> float:
    """How far the weighted mean of a head moves when the symbol is turned over that it looks at.

    It sees ``length`` bits; the score of one is ahead of the others by ``lead``. With a lead of 0 it averages.
    """
    weights = torch.tensor([lead, *[0.0] * (length - 1)], dtype=torch.float64).softmax(0)
    return float(weights[0])


@styled
def chomsky_influence(length: int = 20, longest: int = 500, lead: float = 10.0) -> tuple[MatplotlibFigure, str]:
    """What one flipped symbol does to a head, and to the answer of parity.

    Args:
        length: of the strings whose right answers are drawn against what an averaging head reads.
        longest: as far as the influence is drawn.
        lead: by how much the score of one place is ahead, for a head that looks there.
    """
    figure, (moved, answers, places) = new_figure(3, 1, height=6.6, height_ratios=[2, 1, 1])
    lengths = sorted({*(round(2**x) for x in torch.linspace(1, math.log2(longest), 40).tolist()), length})
    lines = (
        ("what parity's answer must do", GREEN, "-", 7, [1.0] * len(lengths)),
        (f"a head that looks at one place (score +{lead:g})", ORANGE, "--", 2, [influence(n, lead) for n in lengths]),
        ("a head that averages", BLUE, "-", 2, [influence(n, 0.0) for n in lengths]),
    )
    for label, colour, line, wide, values in lines:
        moved.plot(
            lengths, values, color=colour, linestyle=line, linewidth=wide, alpha=0.4 if wide > 2 else 1, label=label
        )
    for n in (length, longest):
        moved.plot(n, influence(n, 0.0), "o", color=BLUE)
        moved.annotate(f"{influence(n, 0.0):g}", (n, influence(n, 0.0)), xytext=(-6, -4), textcoords="offset points",
                       ha="right", va="top")  # fmt: skip
    moved.set_yscale("log")
    doubling_axis(moved, [2, 5, 20, 100, 500])
    moved.set_ylim(5e-4, 2.5)
    moved.set_xlabel("symbols in the string")
    moved.set_ylabel("moved by one flip")
    ones = range(length + 1)
    answers.plot([n / length for n in ones], [n % 2 for n in ones], color=GREY, marker="o", markersize=5)
    answers.set_yticks([0, 1], ["even", "odd"])
    answers.set_ylim(-0.3, 1.3)
    answers.set_xlabel(f"what the averaging head reads ({length} bits)")
    answers.set_ylabel("parity")
    places.plot([n / length for n in ones], [n % 5 for n in ones], color=GREY, marker="o", markersize=5)
    places.set(yticks=[0, 2, 4], ylim=(-0.5, 4.5), ylabel="the cycle")
    places.set_xlabel(f"the same for {length} steps of 0 or +1")
    figure.legend(loc="outside upper center")
    alt = f"""Upper panel: how far one flipped symbol moves what a head reads, against the length of the string, both on
        logarithmic axes. A head that averages: {influence(length, 0.0):g} at {length} symbols,
        {influence(longest, 0.0):g} at {longest}. A head whose score for one place is ahead by {lead:g}:
        {influence(longest, lead):.2f} at {longest}. The answer of parity must move by 1 at every length. Below it the
        right answers against what the averaging head reads of {length} symbols, the share of ones: parity goes up and
        down at each of {length} steps; the place on the cycle climbs for four steps and falls back at the fifth."""
    return figure, alt


@styled
def chomsky_sensitive(
    rows: Sequence[Row], tasks: Mapping[str, str], length: int, models: Sequence[str] = ("lstm", "transformer")
) -> tuple[MatplotlibFigure, str]:
    """What was learned at one length, tasks in the order of their sensitivity: a mark for each seed of each model.

    Args:
        rows: of one protocol, plain variants.
        tasks: name to label.
    """
    order = sorted(tasks, key=lambda task: round(sensitivity(TASKS[task], length)))
    figure, axis = new_figure(height=0.47 * len(order) + 1.5)
    for y in range(1, len(order)):
        axis.axhline(y - 0.5, color=GREY, linewidth=0.5, alpha=0.5)
    said = []
    for number, model in enumerate(models):
        told = []
        for y, task in enumerate(order):
            seeds = of_seeds(rows, task=task, model=model, variant="plain")
            values = [100 * at_home(seed, task, length) for seed in seeds]
            apart = [0.11 * (nth - (len(values) - 1) / 2) for nth in range(len(values))]  # where values are alike
            axis.plot(values, [y + 0.44 * number - 0.22 + shift for shift in apart], linestyle="",
                      marker=MARKERS[number], markersize=7, color=COLOURS[number], alpha=0.8,
                      label=None if y else NETWORKS[model])  # fmt: skip
            told.append(f"{tasks[task]} {', '.join(f'{value:.0f}' for value in sorted(values))}")
        said.append(f"{NETWORKS[model]}: {'; '.join(told)}")
    given = [TASKS[task].sample(4096, length, torch.Generator().manual_seed(0))[2].sum() / 4096 for task in order]
    labels = [
        f"{tasks[task]} ({sensitivity(TASKS[task], length):.0f}; {n:.0f})" for task, n in zip(order, given, strict=True)
    ]
    axis.set_yticks(range(len(order)), labels)
    axis.set_ylim(len(order) - 0.5, -0.5)
    axis.grid(axis="y", visible=False)
    axis.set_xlim(-14, 106)
    axis.set_xlabel("0 blind, 100 all right")
    legend_below(figure, axis)
    alt = f"""A row for each task, with its sensitivity and the answers that a string gives: {", ".join(labels)}. A
        mark for each seed of a model at {length} symbols, from blind, 0, to all right, 100. {". ".join(said)}."""
    return figure, alt


# --- the explorable: parity and reverse, a symbol at a time --------------------------------------------------------

BITS, COPIES, CELL, LEFT = 5, 2, 21, 12
INPUT, STATES, FLOOR, HELD, COPIED = 62, 126, 270, 314, 352  # heights of the rows
PILE, OUT = 138, 240  # where the stack stands, and where what it writes begins
STEPS = BITS * (1 + COPIES)
LIT, DARK = "#fdeab8", "none"
STRINGS = (13, 18, 28, 21)


def _bits(string: int) -> list[int]:
    return [string >> (BITS - 1 - i) & 1 for i in range(BITS)]


def _machine(string: int, step: int) -> tuple[str, int, list[int], list[int], list[int]]:
    """What is said, parity's state, the stack from the bottom, and what stack and tape have written, after steps."""
    bits = _bits(string)
    read, after = bits[:step], max(0, step - BITS)
    popped = min(after, BITS)
    stack, reverse = read[: len(read) - popped], bits[::-1][:popped]
    copied = (bits * COPIES)[:after]
    state = sum(read) % 2
    if step == 0:
        return "nothing read yet", state, stack, reverse, copied
    if step <= BITS:
        return f"read {read[-1]}{', change state' if read[-1] else ''}", state, stack, reverse, copied
    if step <= 2 * BITS:
        return f"pop {reverse[-1]}; copy {copied[-1]}", state, stack, reverse, copied
    return f"the stack is empty; copy {copied[-1]} again", state, stack, reverse, copied


def _head(step: int) -> int:
    """The cell at which the head of the tape stands after a step: the one just written or copied."""
    return max(0, step - 1) % BITS


MACHINE_SCRIPT = r"""
    const n = 5, bits = [];
    for (let i = 0; i < n; i++) bits.push((value.string >> (n - 1 - i)) & 1);
    const step = value.step, read = bits.slice(0, Math.min(step, n)), after = Math.max(0, step - n);
    const popped = Math.min(after, n), stack = read.slice(0, read.length - popped);
    const reverse = bits.slice().reverse().slice(0, popped), copied = [...bits, ...bits].slice(0, after);
    const state = read.reduce((a, b) => a + b, 0) % 2;
    const said = step === 0 ? "nothing read yet" : step <= n ?
      `read ${read[step - 1]}${read[step - 1] ? ", change state" : ""}` : step <= 2 * n ?
      `pop ${reverse[popped - 1]}; copy ${copied[after - 1]}` : `the stack is empty; copy ${copied[after - 1]} again`;
    svg.querySelector(".said").textContent = `step ${step}: ${said}`;
    const each = (name, set) => svg.querySelectorAll(name).forEach(set);
    const fill = (name, lit, colour) => each(name, (e, i) => e.setAttribute("fill", lit(i) ? colour : "none"));
    const print = (name, list) => each(name, (e, i) => { e.textContent = i < list.length ? String(list[i]) : ""; });
    fill(".cell", (i) => i === step - 1, "#fdeab8");
    fill(".state", (i) => i === state, "#fdeab8");
    fill(".stack", (i) => i < stack.length, "#cfe6f5");
    fill(".tape", (i) => step > 0 && i === (step - 1) % n, "#fdeab8");
    print(".bit", bits);
    print(".stacked", stack);
    print(".reverse", reverse);
    print(".held", read);
    print(".copied", copied);
"""


def _box(x: float, y: float, kind: str, text_kind: str, fill: str, text: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{CELL}" height="{CELL}" fill="{fill}" stroke="#1a1a1a"/>'
        f'<text class="{text_kind}" x="{x + CELL / 2:g}" y="{y + 16:g}" text-anchor="middle">{text}</text>'
    )


def _row(x: float, y: float, places: int, kind: str, text_kind: str, shown: Sequence[int], lit: int = -1) -> str:
    """Boxes side by side, with numbers in the first ones."""
    return "".join(
        _box(x + CELL * i, y, kind, text_kind, LIT if i == lit else DARK, str(shown[i]) if i < len(shown) else "")
        for i in range(places)
    )


def chomsky_machines(string: int = 13, step: int = 0) -> Explorable:
    """Five bits read by two states (parity), a stack (reverse) and a tape (duplicate), a step at a time."""
    bits = _bits(string)
    said, state, stack, reverse, copied = _machine(string, step)
    given = "".join(
        _box(LEFT + CELL * i, INPUT, "cell", "bit" if i < BITS else "empty", LIT if i == step - 1 else DARK,
             str(bits[i]) if i < BITS else "·")
        for i in range(STEPS)
    )  # fmt: skip
    circles = "".join(
        f'<circle class="state" cx="{x}" cy="{STATES}" r="24" fill="{LIT if i == state else DARK}" stroke="#1a1a1a"/>'
        f'<text x="{x}" y="{STATES + 5}" text-anchor="middle">{name}</text>'
        for i, (x, name) in enumerate(((180, "even"), (290, "odd")))
    )
    pile = "".join(
        _box(PILE, FLOOR - CELL * (i + 1), "stack", "stacked", "#cfe6f5" if i < len(stack) else DARK,
             str(stack[i]) if i < len(stack) else "")
        for i in range(BITS)
    )  # fmt: skip
    head = _head(step) if step else -1
    svg = (
        '<svg viewBox="0 0 360 362" style="width:100%;max-width:520px;height:auto;background:none;display:block;'
        'margin:auto" font-family="sans-serif" font-size="14" fill="#1a1a1a">'
        f'<text class="said" x="12" y="26" font-weight="bold" font-size="15">step {step}: {said}</text>'
        f'<text x="12" y="52">string, then empty tokens for the answer</text>{given}'
        f'<text x="12" y="{STATES + 5}">two states</text>'
        f'<path d="M204 {STATES - 9}H264m-8 -5l8 5l-8 5M266 {STATES + 9}H206m8 -5l-8 5l8 5" fill="none" '
        f'stroke="#1a1a1a"/><text x="235" y="{STATES - 15}" text-anchor="middle">1</text>'
        f'<text x="235" y="{STATES + 26}" text-anchor="middle">1</text>{circles}'
        f'<text x="12" y="{FLOOR - 8}">a stack</text>{pile}'
        f'<text x="{PILE + CELL + 12}" y="{FLOOR - 6}">writes</text>'
        f"{_row(OUT, FLOOR - CELL, BITS, 'answer', 'reverse', reverse)}"
        f'<text x="12" y="{HELD - 6}">a tape</text>{_row(PILE, HELD - CELL, BITS, "tape", "held", bits[:step], head)}'
        f'<text x="12" y="{COPIED - 6}">it writes</text>'
        f"{_row(PILE, COPIED - CELL, BITS * COPIES, 'answer', 'copied', copied)}</svg>"
    )
    alt = """A string of five bits and ten empty tokens, read from left to right; the token being read is marked. Below
        it the two states of parity, of which the current one is marked; a stack of five places and what it writes; a
        tape of five cells with its head marked, and what it writes. At the start nothing is read, the state is even,
        stack and tape are empty. For 01101, after five steps the state is odd, and stack and tape hold 01101. After
        ten the stack is empty and 10110 is written; the tape has written 01101, and in five more steps writes it
        again."""
    caption = """Press Play. The automaton decides whether the number of ones is odd: a 0 leaves its state as it is.
        Stack and tape keep everything. At the empty tokens the stack gives the bits back, the last one first, once:
        the string reversed. The head of the tape goes back to the start, as often as it likes: the string, twice."""
    knobs = (
        Knob("step", "steps done", 0, STEPS, step, play=True),
        Choice("string", "String", {number: "".join(map(str, _bits(number))) for number in STRINGS}, string),
    )
    return Explorable("chomsky-machines", alt, caption, knobs, svg, MACHINE_SCRIPT)
