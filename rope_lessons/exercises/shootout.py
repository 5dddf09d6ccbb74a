"""Exercises of chapter 12."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rope_lessons.exercises import Exercise

# --- the model and the optimizer -----------------------------------------------------------------------------------


def _gau_parameters(width: int, expansion: int, key_dim: int) -> int:
    hidden = expansion * width
    return width * (2 * hidden + key_dim) + hidden * width + 2 * key_dim


def _deep_start(branches: int, optimizer: str, order: int) -> tuple[float, float]:
    if optimizer == "sgd":
        gain = branches ** (-1 / (2 * order))
        return 1 / gain, gain
    gain = branches ** (-1 / order)
    return (1.0 if optimizer == "lamb" else 1 / gain), gain


def _runaway(start: float, lr: float, decay: float, steps: int) -> float:
    theta = start
    for _ in range(steps):
        theta += lr * abs(theta) * (1 - decay * theta)
    return theta


def _linear_runaway(start: float, lr: float, decay: float, steps: int) -> float:
    """With steps of one size, whatever the size of the row."""
    theta = start
    for _ in range(steps):
        theta += lr * (1 - decay * theta)
    return theta


def _apart_runaway(start: float, lr: float, decay: float, steps: int) -> float:
    """With a decay that is not multiplied by the size of the row."""
    theta = start
    for _ in range(steps):
        theta += lr * (abs(theta) - decay * theta)
    return theta


def _order_two(branches: int, optimizer: str, order: int) -> tuple[float, float]:
    return _deep_start(branches, optimizer, 2)


def _as_adam(branches: int, optimizer: str, order: int) -> tuple[float, float]:
    return _deep_start(branches, "adam", order)


def _always_symmetric(branches: int, optimizer: str, order: int) -> tuple[float, float]:
    _, gain = _deep_start(branches, optimizer, order)
    return 1 / gain, gain


EXERCISES = {
    "gau_parameters": Exercise(
        reference=_gau_parameters,
        cases=[(768, 2, 128), (100, 2, 64), (6, 2, 4), (6, 3, 2), (1, 1, 2)],
        mistakes={
            "queries and keys share one vector z: what is their own is a scale of s numbers each": (
                lambda d, expansion, s: _gau_parameters(d, expansion, s) + d * s
            ),
            "two small vectors are missing: the scales that make query and key from z": (
                lambda d, expansion, s: _gau_parameters(d, expansion, s) - 2 * s
            ),
            "the matrix on the way out is missing": (
                lambda d, expansion, s: _gau_parameters(d, expansion, s) - expansion * d * d
            ),
        },
    ),
    "deep_start": Exercise(
        reference=_deep_start,
        cases=[(16, "sgd", 2), (24, "adam", 2), (24, "lamb", 2), (27, "sgd", 3), (24, "lamb", 3), (64, "adam", 3)],
        mistakes={
            "with alpha = 1/gain, the gradient gain**(order - 1) / alpha is gain**order": _order_two,
            "a step of SGD is the gradient itself: its square, times the branches, has to stay the same": _as_adam,
            "LAMB's steps are relative already: alpha stays 1": _always_symmetric,
            "turn it round: alpha, which multiplies the stream, first; then the gain, below 1": (
                lambda branches, optimizer, order: _deep_start(branches, optimizer, order)[::-1]
            ),
        },
    ),
    "runaway": Exercise(
        reference=_runaway,
        cases=[(0.04, 1e-3, 0.01, 1), (0.04, 1e-3, 0.01, 5000), (0.5, 1e-2, 0.1, 2000), (250.0, 1e-3, 0.01, 3000)],
        mistakes={
            "Tiger's step is relative: multiply the learning rate by the size of the row": _linear_runaway,
            "nothing stops it: the weight decay is missing": (
                lambda start, lr, decay, steps: _runaway(start, lr, 0.0, steps)
            ),
            "the decay is part of the step: it is multiplied by the size of the row as the sign is": _apart_runaway,
            "the momentum is negative, so the row goes up": (
                lambda start, lr, decay, steps: -_runaway(-start, lr, -decay, steps)
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
            "turn the sign: a tax is what is lost, so as trained less as tested": lambda a, b: -_tax(a, b),
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
