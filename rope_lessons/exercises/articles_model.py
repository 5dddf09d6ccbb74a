"""Exercises of the page on the articles' model."""

from __future__ import annotations

from rope_lessons.exercises import Exercise


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
