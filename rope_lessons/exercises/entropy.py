"""Exercises of chapter 06."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rope_lessons.entropy import attention_entropy
from rope_lessons.exercises import Exercise, Lab, WrongKind


def _weights(scores: Sequence[float]) -> list[float]:
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    return [power / sum(powers) for power in powers]


def _entropy(scores: Sequence[float]) -> float:
    return -sum(a * math.log(a) for a in _weights(scores) if a > 0)


def _scale_after(seen: int, train_length: int) -> float:
    return max(1.0, math.log(seen) / math.log(train_length))


def _grown(weight: float, train_length: int, length: int, scaled: bool) -> float:
    """Weight of a needle at another length."""
    score = math.log((train_length - 1) * weight / (1 - weight))
    scale = math.log(length) / math.log(train_length) if scaled else 1.0
    return 1 / (1 + (length - 1) * math.exp(-scale * score))


def _needle(weight: float, train_length: int, length: int) -> list[float]:
    return [_grown(weight, train_length, length, scaled) for scaled in (False, True)]


def _needle_among(home: int, away: int, weight: float, train_length: int, length: int) -> list[float]:
    """As :func:`_needle`, with so many keys too many at the training length and at the new one."""
    odds = (train_length - 1 + home) * weight / (1 - weight)
    scale = math.log(length) / math.log(train_length)
    return [1 / (1 + (length - 1 + away) * odds**-s) for s in (1.0, scale)]


def _counts(real: Sequence[bool], window: int) -> list[int]:
    return [sum(real[max(0, i - window + 1) : i + 1]) if real[i] else 0 for i in range(len(real))]


def _constant_scale(n: int, train_length: int, spread: float) -> float:
    return math.sqrt(1 + 2 / spread**2 * math.log(n / train_length))


def _root(function: Callable[[float], float]) -> float:
    """The zero of a rising function between 0 and 100, by bisection."""
    low, high = 0.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return (low + high) / 2


def _best_scale(n: int) -> float:
    return _root(lambda s: s**2 + math.log(1 + 2 * s**2) - math.log(n))


# What stands out of each head of the lab, the standard deviation of its other scores, and what is added to all.
HEADS: dict[str, tuple[list[float], float, float]] = {
    "A": ([5.9], 0.3, 0.0),
    "B": ([3.5], 0.3, 0.0),
    "C": ([], 1.0, 0.0),
    "D": ([], 3.0, 0.0),
    "E": ([], 0.1, 0.0),
    "F": ([6.0] * 4, 0.3, 20.0),
}
SPREADS = {name: spread for name, (_, spread, _) in HEADS.items()}
LAB_SHORT, LAB_LONG, LAB_DRIFT = 64, 4096, 0.3


def _head(name: str, keys: int, draws: int) -> Tensor:
    """Scores ``(draws, keys)`` of one head of the lab."""
    out, spread, more = HEADS[name]
    generator = torch.Generator().manual_seed(ord(name))
    scores = spread * torch.randn(draws, keys, generator=generator, dtype=torch.float64)
    places = torch.randperm(min(keys, LAB_SHORT), generator=generator)[: len(out)]
    scores[:, places] = torch.tensor(out, dtype=torch.float64)
    return scores + more


def six_heads() -> dict[str, Tensor]:
    """The heads of the lab: scores of 64 keys each, float64 ``(64,)``.

    Those that do not stand out have the standard deviation of ``SPREADS`` exactly, as a reader may measure it.

    >>> sorted(six_heads())
    ['A', 'B', 'C', 'D', 'E', 'F']
    """
    return {name: _as_named(name, _head(name, LAB_SHORT, 1)[0]) for name in HEADS}


def _as_named(name: str, scores: Tensor) -> Tensor:
    out, spread, more = HEADS[name]
    hay = torch.ones(len(scores), dtype=torch.bool)
    for score in out:
        hay &= scores != score + more
    scores[hay] = more + spread * (scores[hay] - scores[hay].mean()) / scores[hay].std()
    return scores


def _drift(name: str) -> tuple[float, float]:
    """The entropy of a head as given, and in a longer text with log n: a mean over draws."""
    scale = math.log(LAB_LONG) / math.log(LAB_SHORT)
    now, then = (
        float(attention_entropy(scores.softmax(dim=-1)).mean())
        for scores in (six_heads()[name], scale * _head(name, LAB_LONG, 64))
    )
    return now, then


def _lab(answer: Any) -> str:
    several = isinstance(answer, set | frozenset | list | tuple | str)
    if not several or not {str(name).upper() for name in answer} <= set(HEADS):
        raise WrongKind("give a set of names, such as {'A', 'B'}")
    if not set(answer) <= set(HEADS):
        raise WrongKind("the names are capital letters, such as {'A', 'B'}")
    for name in HEADS:
        now, then = _drift(name)
        holds = then <= now + LAB_DRIFT
        if holds != (name in answer):
            told = f"its entropy goes from {now:.1f} nats to {then:.1f} on average over normal draws"
            return f"{name} {'holds' if holds else 'does not hold'}: {told}"
    return ""


_LINE = [True] * 6
_FRONT = [False, False, True, True, True, True, True]
_MIDDLE = [True, True, False, False, True, True, True]
_BEHIND = [True, True, True, True, False, False]

EXERCISES: dict[str, Exercise | Lab] = {
    "lab": Lab(
        grade=_lab,
        reference={"A", "D", "F"},
        mistakes={
            "B does not hold": {"A", "B", "D", "F"},  # naive: whatever has a largest weight
            "D holds": {"A", "F"},  # what has a needle, and nothing else
            "F holds": {"A", "D"},
            "C does not hold": {"A", "C", "D", "F"},
            # Cheating: a set that leaves nothing out.
            "B does not hold: its entropy goes from": set("ABCDEF"),
            "A holds": set(),
            "give a set of names": {"A", "G"},
            "the names are capital letters": {"a", "d", "f"},
        },
    ),
    "entropy": Exercise(
        reference=_entropy,
        cases=[
            ([2.0, 0.0, 0.0, 0.0, 0.0],),
            ([1.0, 1.0, 1.0],),
            ([3.0, -1.0],),
            ([900.0, 899.0, 0.0],),
            ([-900.0, -899.0],),
            ([5.0],),
        ],
        mistakes={
            "this is in bits: the book uses the natural logarithm (nats)": (
                lambda scores: _entropy(scores) / math.log(2)
            ),
            "this is the number of keys, exp(H): the entropy is its logarithm": lambda scores: math.exp(
                _entropy(scores)
            ),
            "the sign is turned round: logarithms of weights are negative, the entropy is not": (
                lambda scores: -_entropy(scores)
            ),
            "this is the largest possible entropy, log n: it does not use the scores": lambda scores: math.log(
                len(scores)
            ),
        },
    ),
    "scale": Exercise(
        reference=_scale_after,
        cases=[(1, 512), (512, 512), (4096, 512), (513, 512), (64, 4096), (32_768, 4096)],
        mistakes={
            "up to the training length nothing may change: never below 1": (
                lambda seen, train_length: math.log(seen) / math.log(train_length)
            ),
            "this changes short texts and leaves long ones alone: take the larger of the two, not the smaller": (
                lambda seen, train_length: min(1.0, math.log(seen) / math.log(train_length))
            ),
            "this is the ratio of the lengths: take the ratio of their logarithms": (
                lambda seen, train_length: max(1.0, seen / train_length)
            ),
            "this is the logarithm of the ratio, 0 at the training length: log n over log N is 1 there": (
                lambda seen, train_length: max(1.0, math.log(seen / train_length))
            ),
            "this is log n without the base: divide by log N, so that the factor is 1 at the training length": (
                lambda seen, train_length: max(1.0, math.log(max(seen, 2)))
            ),
            "1 + log(n/N) grows too fast: what is added has to be divided by log N": (
                lambda seen, train_length: max(1.0, 1 + math.log(seen / train_length))
            ),
            "this is a root of log n over log N, which grows too slowly: every needle is lost in the end": (
                lambda seen, train_length: max(1.0, math.sqrt(math.log(seen) / math.log(train_length)))
            ),
            "off by one: `seen` counts the query itself already, so nothing is to be added": (
                lambda seen, train_length: _scale_after(seen + 1, train_length)
            ),
        },
    ),
    "needle": Exercise(
        reference=_needle,
        cases=[(0.85, 512, 4096), (0.5, 64, 512), (0.01, 512, 32_768), (0.9, 4096, 4096)],
        mistakes={
            "the order is turned round: first without the scale, then with it": (
                lambda weight, train_length, length: _needle(weight, train_length, length)[::-1]
            ),
            "you divided the weight by the growth; what is divided is the odds, weight over 1 - weight": (
                lambda weight, train_length, length: [
                    weight * train_length / length,
                    _grown(weight, train_length, length, True),
                ]
            ),
            "the score is the logarithm of N - 1 times the odds, since each of the others has one part of the rest": (
                lambda weight, train_length, length: [
                    1 / (1 + (length - 1) * ((1 - weight) / weight) ** s)
                    for s in (1.0, math.log(length) / math.log(train_length))
                ]
            ),
            "these are the odds: the weight is odds over 1 + odds": (
                lambda weight, train_length, length: [
                    value / (1 - value) for value in _needle(weight, train_length, length)
                ]
            ),
            "off by one, twice: beside the needle there are N - 1 and n - 1 keys": partial(_needle_among, 1, 1),
            "off by one at the training length: beside the needle there are N - 1 keys": partial(_needle_among, 1, 0),
            "off by one at the new length: beside the needle there are n - 1 keys": partial(_needle_among, 0, 1),
            "the lengths are N and n: N - 1 and n - 1 count the other keys, and stand in the odds alone": (
                lambda weight, train_length, length: _needle(weight, train_length + 1, length + 1)
            ),
            "what is divided by the growth is the odds, and log n does not bring every needle back to its old weight": (
                lambda weight, train_length, length: [weight * train_length / length, weight]
            ),
            "log n does not bring every needle back to its old weight: use the equation again, with the scale": (
                lambda weight, train_length, length: [_grown(weight, train_length, length, False), weight]
            ),
            "the scale is upside down: log n over log N, more than 1 for a longer text": (
                lambda weight, train_length, length: [
                    _grown(weight, train_length, length, False),
                    1
                    / (
                        1
                        + (length - 1)
                        * ((train_length - 1) * weight / (1 - weight)) ** -(math.log(train_length) / math.log(length))
                    ),
                ]
            ),
            "this is in percent: a weight lies between 0 and 1": (
                lambda weight, train_length, length: [100 * value for value in _needle(weight, train_length, length)]
            ),
            "you multiplied the weight by the scale: the scale multiplies the score, before the softmax": (
                lambda weight, train_length, length: [
                    _grown(weight, train_length, length, False),
                    _grown(weight, train_length, length, False) * math.log(length) / math.log(train_length),
                ]
            ),
        },
    ),
    "counts": Exercise(
        reference=_counts,
        cases=[
            (_LINE, 3),
            (_LINE, 100),
            (_FRONT, 100),
            (_FRONT, 2),
            (_LINE, 1),
            (_MIDDLE, 100),
            (_MIDDLE, 2),
            (_BEHIND, 2),
        ],
        mistakes={
            "these are positions: padding in front must not be counted, and what is outside the window neither": (
                lambda real, window: [i + 1 for i in range(len(real))]
            ),
            "this is the position: padding in front is not seen": (
                lambda real, window: [min(i + 1, window) if real[i] else 0 for i in range(len(real))]
            ),
            "this is the position: padding in front is not seen, nor what is outside the window": (
                lambda real, window: [i + 1 if real[i] else 0 for i in range(len(real))]
            ),
            "these are positions, counted from 0: count the keys that a query sees, itself among them": (
                lambda real, window: list(range(len(real)))
            ),
            "you cut the running count at the window: padding inside the window takes a place, too": (
                lambda real, window: [min(sum(real[: i + 1]), window) if real[i] else 0 for i in range(len(real))]
            ),
            "off by one: a query sees itself too": (
                lambda real, window: [max(0, count - 1) for count in _counts(real, window)]
            ),
            "off by one: a window of w holds the query itself and w - 1 keys before it": (
                lambda real, window: _counts(real, window + 1)
            ),
            "you forgot the window: what is farther back is not seen": (lambda real, window: _counts(real, len(real))),
            "you counted padding: only real tokens are seen": (
                lambda real, window: _counts([True] * len(real), window)
            ),
            "padding sees nothing: its own number is 0": (
                lambda real, window: [sum(real[max(0, i - window + 1) : i + 1]) for i in range(len(real))]
            ),
        },
    ),
    "constant": Exercise(
        reference=_constant_scale,
        cases=[(512, 512, 1.0), (4096, 512, 1.0), (16_384, 512, 2.0), (400, 512, 1.0), (4096, 1024, 1.5)],
        mistakes={
            "this is the square of the scale: take the root": lambda n, N, spread: _constant_scale(n, N, spread) ** 2,
            "you used the spread where its square belongs: the deficit is s²σ²/2": (
                lambda n, N, spread: math.sqrt(1 + 2 / spread * math.log(n / N))
            ),
            "the factor 2 is missing: half of s²σ² has to grow by log(n/N)": (
                lambda n, N, spread: math.sqrt(1 + math.log(n / N) / spread**2)
            ),
            "this makes the entropy zero change from n = 1: compare with N, the training length": (
                lambda n, N, spread: math.sqrt(2 / spread**2 * math.log(n))
            ),
            "this is log n scaling: it does not know the spread": lambda n, N, spread: math.log(n) / math.log(N),
        },
    ),
    "best_scale": Exercise(
        reference=_best_scale,
        cases=[(64,), (512,), (4096,), (32_768,)],
        tolerance=1e-3,
        mistakes={
            "this is the article's approximation 0.84 √log n, off by up to a tenth: solve the equation": (
                lambda n: 0.84 * math.sqrt(math.log(n))
            ),
            "this is √log n, where s (1 - e^(s²)/n) is zero: find where it is largest": lambda n: math.sqrt(
                math.log(n)
            ),
            "this is the square of the scale": lambda n: _best_scale(n) ** 2,
            "log(1 + s²) in place of log(1 + 2s²): e^(s²) has the derivative 2s e^(s²)": (
                lambda n: _root(lambda s: s**2 + math.log(1 + s**2) - math.log(n))
            ),
        },
    ),
}
