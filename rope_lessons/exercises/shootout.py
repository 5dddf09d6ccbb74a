"""Exercises of chapter 12."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rope_lessons.exercises import Exercise, Lab, WrongKind
from rope_lessons.schemes import LogN, Scheme, scheme

# --- the lesson ------------------------------------------------------------------------------------------------------

LAB_NEEDLES, LAB_COPIES, LAB_DOCUMENTS = 95.0, 76.0, 24  # percent at 512 bytes; of the test documents
LAB_KEYS, LAB_LENGTH = 800, 512


def _lab(answer: Any) -> str:
    """What the first seed of the scoreboard's model gets right with these four layers."""
    if isinstance(answer, Scheme) or not isinstance(answer, Sequence) or len(answer) != 4:
        raise WrongKind("give a list of four schemes, one per layer")
    if not all(isinstance(layer, Scheme) for layer in answer):
        raise WrongKind("each of the four layers must be a Scheme, made by rl.scheme")
    keys = sum(min(LAB_LENGTH, layer.visible_window or LAB_LENGTH) + layer.sinks for layer in answer)
    if keys > LAB_KEYS:
        return f"too dear: the four layers read {keys} keys, and {LAB_KEYS} are allowed"
    from rope_lessons.scoreboard import live  # with PyTorch's models: only who does the lab waits for them

    model, texts = live.load(), live.windows()[-LAB_DOCUMENTS:]
    needles, copies = (
        live.percent(model, tuple(answer), texts, LAB_LENGTH, metric) for metric in ("needle", "far copies")
    )
    told = f"{needles:.0f} % of the needles and {copies:.0f} % of the far copies"
    if needles < LAB_NEEDLES:
        return f"it does not find enough: {told}; {LAB_NEEDLES:.0f} % of the needles are wanted"
    if copies < LAB_COPIES:
        return f"it does not copy enough: {told}; {LAB_COPIES:.0f} % of the far copies are wanted"
    return ""


_NEAR = scheme("window", dim=32, visible_window=16)
_FAR = scheme("rerope", dim=32, window=32, scale=LogN(64, clip=True))
_HALF = _FAR.replace(visible_window=256)
_WINDOW = _NEAR.replace(visible_window=64)

Rows = dict[str, dict[str, Any]]


def _choose(
    rows: Rows,
    most_tax: float,
    window: float,
    *,
    sure: bool = True,
    free: bool = True,
    by: int = 0,
    below: bool = False,
) -> str | None:
    able = [
        name
        for name, row in rows.items()
        if (row["far"][1] > 0 or not sure)
        and (not row["trained"] or not free)
        and (row["tax"] < most_tax if below else row["tax"] <= most_tax)
        and row["level"] >= window
    ]
    return max(able, key=lambda name: rows[name]["far"][by], default=None)


_ROWS: Rows = {
    "bent": {"far": (7.4, 5.0), "level": 79.8, "tax": 0.0, "trained": False},
    "wide": {"far": (7.9, 1.2), "level": 80.3, "tax": 0.0, "trained": False},  # larger gain, lower end lower
    "lucky": {"far": (9.7, -4.4), "level": 82.1, "tax": 0.0, "trained": False},
    "dear": {"far": (8.5, 6.1), "level": 78.4, "tax": 2.5, "trained": False},
    "own": {"far": (14.4, 11.8), "level": 87.7, "tax": -0.3, "trained": True},
    "turned": {"far": (-3.9, -7.3), "level": 68.5, "tax": 4.0, "trained": False},
    "ruined": {"far": (17.0, 12.1), "level": 31.0, "tax": 0.0, "trained": False},  # as its control is
}

EXERCISES: dict[str, Exercise | Lab] = {
    "lab": Lab(
        grade=_lab,
        reference=[_NEAR, _FAR, _HALF, _NEAR],
        mistakes={
            "too dear: the four layers read 2048 keys": [_FAR] * 4,
            "too dear: the four layers read 1152 keys": [_WINDOW, _FAR, _FAR, _WINDOW],  # the pair of the figure
            "it does not find enough": [_NEAR, _HALF, _FAR, _NEAR],  # the short one of the two is the wrong one
            "it does not copy enough": [_WINDOW, _FAR, _WINDOW, _WINDOW],
            # Cheating: one scheme for all layers, which nobody counts.
            "give a list of four schemes": _FAR,
        },
    ),
    "choose": Exercise(
        reference=_choose,
        cases=[
            (_ROWS, 1.0, 72.4),
            (_ROWS, 5.0, 72.4),
            (_ROWS, 2.5, 72.4),  # what "dear" costs
            (_ROWS, 1.0, 80.3),  # what "wide" has
            (_ROWS, -1.0, 72.4),
            ({name: _ROWS[name] for name in ("own", "turned")}, 9.0, 72.4),
        ],
        mistakes={
            "surely ahead: the lower end of the interval, the second of the pair, must be above 0": (
                lambda rows, most_tax, window: _choose(rows, most_tax, window, sure=False)
            ),
            "leave out what needs a training of its own": (
                lambda rows, most_tax, window: _choose(rows, most_tax, window, free=False)
            ),
            "the tax must be at most most_tax": lambda rows, most_tax, window: _choose(rows, 9, window),
            "a tax of most_tax itself is still allowed": (
                lambda rows, most_tax, window: _choose(rows, most_tax, window, below=True)
            ),
            "a gain over a ruined control is no reach: look at the level": (
                lambda rows, most_tax, window: _choose(rows, most_tax, 0)
            ),
            "of those that are surely ahead the largest gain counts, not the largest lower end": (
                lambda rows, most_tax, window: _choose(rows, most_tax, window, by=1)
            ),
        },
    ),
}


# --- the table -----------------------------------------------------------------------------------------------------


def _tax(as_trained: Sequence[int], as_tested: Sequence[int]) -> float:
    return 100 * (sum(as_trained) - sum(as_tested)) / len(as_trained)


def _copyable(train_length: int, length: int) -> float:
    periods = []
    period = train_length // 2
    while period <= length // 2:
        periods.append(period)
        period *= 2
    return 1 - sum(periods) / len(periods) / length


def _copyable_from(train_length: int, length: int, first: int, last: int) -> float:
    """With other first and last periods."""
    periods = [first * 2**n for n in range(64) if first * 2**n <= last]
    return 1 - sum(periods) / len(periods) / length


def _pieces(tokens: Sequence[int], length: int, step: int = 0) -> list[tuple[list[int], list[int]]]:
    begins = range(0, len(tokens) - length, step or length)
    return [(list(tokens[b : b + length]), list(tokens[b + 1 : b + length + 1])) for b in begins]


def _standard_error(hits: Sequence[float], tokens: Sequence[float]) -> float:
    mean = sum(hits) / sum(tokens)
    squares = sum((h - mean * n) ** 2 for h, n in zip(hits, tokens, strict=True))
    return math.sqrt(squares) / sum(tokens)


def _binomial(hits: Sequence[float], tokens: Sequence[float]) -> float:
    mean = sum(hits) / sum(tokens)
    return math.sqrt(mean * (1 - mean) / sum(tokens))


def _spread(hits: Sequence[float], tokens: Sequence[float]) -> float:
    """Of one document, not of the mean."""
    return _standard_error(hits, tokens) * math.sqrt(len(hits))


EXERCISES |= {
    "tax": Exercise(
        reference=_tax,
        cases=[([1, 1, 0, 1], [1, 0, 0, 1]), ([0, 1], [1, 1]), ([1, 0, 1], [1, 0, 1]), ([1, 1, 0], [0, 1, 0])],
        mistakes={
            "turn the sign: a tax is what is lost, so plain less method": lambda a, b: -_tax(a, b),
            "a share is the answer, and points are wanted: times 100": lambda a, b: _tax(a, b) / 100,
            "that is the number of bytes lost; divide by how many there are, times 100": (
                lambda a, b: float(sum(a) - sum(b))
            ),
            "in points: the difference of the two shares, not divided by the first": (
                lambda a, b: 100 * (sum(a) - sum(b)) / max(1, sum(a))
            ),
            "count the difference, not the places that differ: a token may be gained as well": (
                lambda a, b: 100 * sum(x != y for x, y in zip(a, b, strict=True)) / len(a)
            ),
        },
    ),
    "pieces": Exercise(
        reference=_pieces,
        cases=[([0, 1, 2, 3, 4], 2), (list(range(9)), 4), (list(range(7)), 1), (list(range(4)), 3)],
        mistakes={
            "every token is predicted once: begin the next piece where the last one's inputs end": (
                lambda tokens, length: _pieces(tokens, length, step=1)
            ),
            "the targets are the tokens after the inputs: one place later": (
                lambda tokens, length: [(a, a) for a, _ in _pieces(tokens, length)]
            ),
            "no token is lost between two pieces: the last target of one is the first input of the next": (
                lambda tokens, length: _pieces(tokens, length, step=length + 1)
            ),
        },
    ),
    "copyable": Exercise(
        reference=_copyable,
        cases=[(64, 512), (64, 64), (4, 8), (512, 4096), (64, 128), (64, 256)],
        mistakes={
            "the longest period is half the text: one of the whole length repeats nothing": (
                lambda n, length: _copyable_from(n, length, n // 2, length)
            ),
            "the shortest period is half the training length": (
                lambda n, length: _copyable_from(n, max(2 * n, length), n, max(2 * n, length) // 2)
            ),
            "that is the share which cannot be copied: the first period of each text": (
                lambda n, length: 1 - _copyable(n, length)
            ),
        },
    ),
    "standard_error": Exercise(
        reference=_standard_error,
        cases=[([30, 60], [100, 100]), ([50, 50], [100, 100]), ([1, 2, 9], [10, 10, 10]), ([5, 40], [10, 100])],
        mistakes={
            "this takes every token for independent; those of one document are not": _binomial,
            "that is the spread of one document; a mean over several varies less": _spread,
            "weigh documents by their tokens: compare hits with the mean times the document's own tokens": (
                lambda hits, n: _standard_error([a / b for a, b in zip(hits, n, strict=True)], [1] * len(hits))
            ),
        },
    ),
}
