"""Exercises of chapter 04."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from rope_lessons.exercises import Exercise, Lab, WrongKind
from rope_lessons.exercises.radix import home_and_long, short_of


def _digits(n: int, bases: Sequence[int]) -> list[int]:
    found = []
    for base in bases:
        found.append(n % base)
        n //= base
    return found


def _far_share(length: int, distance: int) -> float:
    left = length - distance  # the farthest of these distances occurs once, the nearest this often
    return left * (left + 1) / (length * (length + 1))


def _shares(pairs: int, factor: float, exponent: float) -> list[float]:
    taken = [0.0] + [((t + 1) / pairs) ** exponent for t in range(pairs)]
    return [factor ** (after - before) for before, after in itertools.pairwise(taken)]


def _head_frequencies(pairs: int, heads: int, base: float) -> list[list[float]]:
    return [[base ** (-(t + h / heads) / pairs) for t in range(pairs)] for h in range(heads)]


def _growing_speed(t: int, pairs: int, length: int, train_length: int, exponent: float) -> float:
    return max(1.0, length / train_length) ** -(((t + 1) / pairs) ** exponent)


def _decay_base(gamma: float, dim: int, base: float) -> float:
    return base * gamma ** (-dim / 2)


def _same_reach(first: int, pairs: int, factor: float, exponent: float) -> float:
    return factor ** (((first + 1) / pairs) ** (exponent - 1))


def _stability(frequencies: Sequence[float], length: float) -> float:
    return sum(length < 2 * math.pi / frequency for frequency in frequencies) / len(frequencies)


# Percent of all bytes, at 64 and at eight times that: hardly worse at home than the last row of the lesson (60.4 and
# 56.2), and better far out.
LAB_HOME, LAB_LONG = 60, 56.5


def _lab(answer: Any) -> str:
    """A factor and an exponent, tried on the scoreboard's model."""
    try:
        factor, exponent = (float(number) for number in answer)
    except (TypeError, ValueError):
        raise WrongKind("give a tuple of two numbers, (factor, exponent): nothing else may change") from None
    if not (1 <= factor <= 1e6 and 0 <= exponent <= 100):
        raise WrongKind("the factor must be from 1 to 1e6 and the exponent from 0 to 100")
    speeds = [factor ** -(((t + 1) / 16) ** exponent) for t in range(16)]
    home, long = home_and_long(tuple(speeds))
    as_told = round(home, 1), round(long, 1)  # so that no message tells what is wanted, and refuses it
    missing = short_of(as_told, LAB_HOME, LAB_LONG, "not enough at 512")
    if missing:
        missing += f". The reach is {1 + 63 * factor ** ((6 / 16) ** exponent):.0f} bytes"
    return missing


_ROPE_16 = [10_000 ** (-t / 8) for t in range(8)]

EXERCISES: dict[str, Exercise | Lab] = {
    "lab": Lab(
        grade=_lab,
        reference=(65_536, 2),
        mistakes={
            "not enough at 512: you predict 54": (8, 0.625),  # as published
            "not enough at 512: you predict 60.4": (512, 1.5),  # the lesson's last row
            "not enough at 512: you predict 62": (4096, 2.5),  # no reach
            "the price at home is too high": (1024, 1.5),
            "not enough at 512: you predict 2": (8, 0),  # PI
            # Cheating: sixteen speeds of one's own, as in the lab of chapter 3, are no exponent.
            "give a tuple of two numbers": [1.0] * 5 + [1 / 128] * 11,
        },
    ),
    "digits": Exercise(
        reference=_digits,
        cases=[
            (363_900, (60, 60, 24, 7)),
            (0, (2, 3)),
            (5, (2, 3)),
            (1439, (60, 24)),
            (999, (10, 10, 10)),
            (700_000, (60, 60, 24, 7)),
        ],
        mistakes={
            "the order is reversed: the units come first, as in the bases": lambda n, bases: _digits(n, bases)[::-1],
            "you divide but never take the remainder: each digit must be below its own base": (
                lambda n, bases: [n // math.prod(bases[:t]) for t in range(len(bases))]
            ),
            "the top digit too is taken mod its base: after seven days this clock begins again": (
                lambda n, bases: [*_digits(n, bases)[:-1], n // math.prod(bases[:-1])]
            ),
            "a digit is a whole number: divide with //, which rounds down": (
                lambda n, bases: [n / math.prod(bases[:t]) % base for t, base in enumerate(bases)]
            ),
            "the bases are taken from the wrong end: the first belongs to the units": (
                lambda n, bases: _digits(n, bases[::-1])
            ),
            "the bases are taken from the wrong end, and the digits are reversed: both begin with the units": (
                lambda n, bases: _digits(n, bases[::-1])[::-1]
            ),
            "each digit must be divided by the bases before it, not by its own base as well": (
                lambda n, bases: [n // math.prod(bases[: t + 1]) % base for t, base in enumerate(bases)]
            ),
            "the worth of a digit is the product of all bases before it, not a power of its own base": (
                lambda n, bases: [n // base**t % base for t, base in enumerate(bases)]
            ),
        },
    ),
    "far_share": Exercise(
        reference=_far_share,
        cases=[(5, 0), (5, 4), (5, 3), (1000, 900), (64, 32)],
        mistakes={
            "distances are not equally common: distance Δ occurs length - Δ times": (
                lambda length, distance: (length - distance) / length
            ),
            "this is the share of one distance; add up all distances from there on": (
                lambda length, distance: (length - distance) / (length * (length + 1) / 2)
            ),
            "the diagonal is missing from the total: a token also sees itself, at distance 0": (
                lambda length, distance: (length - distance) * (length - distance + 1) / (length * (length - 1))
            ),
            "this is the share of the nearer pairs; subtract it from 1": (
                lambda length, distance: 1 - _far_share(length, distance)
            ),
            "near, but this is the limit for long texts; count exactly": (
                lambda length, distance: (1 - distance / length) ** 2
            ),
        },
    ),
    "shares": Exercise(
        reference=_shares,
        cases=[(4, 8.0, 0.5), (64, 8.0, 0.75), (3, 8.0, 1.0), (2, 4.0, 2.0), (3, 8.0, 0.0)],
        mistakes={
            "these are the products λ_0 … λ_t; divide each by the one before it": (
                lambda pairs, factor, exponent: [factor ** (((t + 1) / pairs) ** exponent) for t in range(pairs)]
            ),
            "before hand 0 the product is 1, with b = 0 too: Python takes 0**0 for 1, so start from a 1 of your own": (
                lambda pairs, factor, exponent: [
                    factor ** (((t + 1) / pairs) ** exponent - (t / pairs) ** exponent) for t in range(pairs)
                ]
            ),
            "off by one: hand t is digit number t + 1 of the formula, so hand 0 already takes a share": (
                lambda pairs, factor, exponent: [1.0, *_shares(pairs, factor, exponent)[:-1]]
            ),
            "off by one: hands 0 to t together take the part (t + 1)/D to the power b, not t/D": (
                lambda pairs, factor, exponent: [
                    factor ** ((t / pairs) ** exponent) / (factor ** (((t - 1) / pairs) ** exponent) if t else 1.0)
                    for t in range(pairs)
                ]
            ),
            "the first hand pays too: hands 0 to t together take ((t + 1)/D) to the power b; then divide the totals": (
                lambda pairs, factor, exponent: [factor ** ((t / pairs) ** exponent) for t in range(pairs)]
            ),
            "the units come first: hand 0 is the fastest, and takes the first share": (
                lambda pairs, factor, exponent: _shares(pairs, factor, exponent)[::-1]
            ),
            "these are parts of log κ, which add up to log κ; λ_t is e to that power": (
                lambda pairs, factor, exponent: [math.log(share) for share in _shares(pairs, factor, exponent)]
            ),
            "these are parts of log κ, and added up; λ_t is the factor that hand t adds to the total": (
                lambda pairs, factor, exponent: [((t + 1) / pairs) ** exponent for t in range(pairs)]
            ),
            "these are parts of log κ; λ_t is κ to that power, and with b = 0 begin from 0: Python takes 0**0 for 1": (
                lambda pairs, factor, exponent: [
                    ((t + 1) / pairs) ** exponent - (t / pairs) ** exponent for t in range(pairs)
                ]
            ),
            "these are speeds (at most 1); a share is a factor on the period (at least 1)": (
                lambda pairs, factor, exponent: [1 / share for share in _shares(pairs, factor, exponent)]
            ),
            "these are equal shares; with an exponent other than 1 they differ": (
                lambda pairs, factor, exponent: [factor ** (1 / pairs)] * pairs
            ),
            "these are shares of log κ, which add up to 1; λ_t is κ to that power": (
                lambda pairs, factor, exponent: [
                    math.log(share) / math.log(factor) for share in _shares(pairs, factor, exponent)
                ]
            ),
        },
    ),
    "head_frequencies": Exercise(
        reference=_head_frequencies,
        cases=[(4, 2, 10_000.0), (2, 3, 100.0), (8, 1, 10_000.0)],
        mistakes={
            "all heads are equal: head h is shifted by h/heads of a pair": (
                lambda pairs, heads, base: [_head_frequencies(pairs, heads, base)[0]] * heads
            ),
            "the shift has the wrong sign: it makes head h faster than head 0": (
                lambda pairs, heads, base: [
                    [base ** (-(t - h / heads) / pairs) for t in range(pairs)] for h in range(heads)
                ]
            ),
            "a shift of h whole pairs makes the heads repeat each other; shift by h/heads": (
                lambda pairs, heads, base: [[base ** (-(t + h) / pairs) for t in range(pairs)] for h in range(heads)]
            ),
            "rows and columns are exchanged: one row for each head": (
                lambda pairs, heads, base: [
                    list(row) for row in zip(*_head_frequencies(pairs, heads, base), strict=True)
                ]
            ),
        },
    ),
    "growing_speed": Exercise(
        reference=_growing_speed,
        cases=[
            (31, 32, 512, 64, 0.625),
            (0, 32, 512, 64, 0.625),
            (5, 8, 40, 64, 0.5),
            (7, 8, 128, 64, 1.0),
            (3, 8, 3000, 2048, 0.625),
        ],
        mistakes={
            "up to the training length nothing may change: the factor must be at least 1": (
                lambda t, pairs, length, train_length, exponent: (
                    (length / train_length) ** -(((t + 1) / pairs) ** exponent)
                )
            ),
            "this slows the last pair by L/N to the power log(L/N): the logarithm is in there twice": (
                lambda t, pairs, length, train_length, exponent: math.exp(
                    -(math.log(max(1.0, length / train_length)) ** 2) * ((t + 1) / pairs) ** exponent
                )
            ),
            "this is how much slower the pair turns; its speed is the inverse": (
                lambda t, pairs, length, train_length, exponent: (
                    1 / _growing_speed(t, pairs, length, train_length, exponent)
                )
            ),
            "off by one: the pairs count from 0, and the last one must be L/N times slower": (
                lambda t, pairs, length, train_length, exponent: (
                    max(1.0, length / train_length) ** -((t / pairs) ** exponent)
                )
            ),
        },
    ),
    "decay_base": Exercise(
        reference=_decay_base,
        cases=[(0.97, 128, 10_000.0), (0.5, 4, 100.0), (1.0, 64, 10_000.0)],
        mistakes={
            "a decay makes the pairs slower, so the base must grow: the sign of the exponent is wrong": (
                lambda gamma, dim, base: base * gamma ** (dim / 2)
            ),
            "this is what the radix is divided by; the base is the radix to the power dim/2": (
                lambda gamma, dim, base: base / gamma
            ),
            "a base below the old one makes the pairs faster, and a decay is to make them slower": (
                lambda gamma, dim, base: base * gamma
            ),
            "there are dim/2 pairs, not dim": lambda gamma, dim, base: base * gamma**-dim,
            "the last pair is decayed dim/2 - 1 times, but the base is where pair dim/2 would stand": (
                lambda gamma, dim, base: base * gamma ** (1 - dim / 2)
            ),
        },
    ),
    "same_reach": Exercise(
        reference=_same_reach,
        cases=[(9, 32, 8.0, 0.625), (46, 64, 8.0, 0.625), (3, 8, 4.0, 1.0)],
        tolerance=1e-4,
        mistakes={
            "this is the exponent b alone: with equal shares hands 0 to t* take (t* + 1)/D of log κ; divide by that": (
                lambda first, pairs, factor, exponent: factor ** (((first + 1) / pairs) ** exponent)
            ),
            "off by one: hand t* takes its own share too, so t* + 1 shares in all": (
                lambda first, pairs, factor, exponent: factor ** ((first / pairs) ** (exponent - 1))
            ),
            "this is the factor of mixed: with it equal shares reach less far": (
                lambda first, pairs, factor, exponent: factor
            ),
            "the wrong way round: equal shares need the larger factor": (
                lambda first, pairs, factor, exponent: factor ** (((first + 1) / pairs) ** (1 - exponent))
            ),
        },
    ),
    "stability": Exercise(
        reference=_stability,
        cases=[(_ROPE_16, 512), (_ROPE_16, 1), ([w / 8 for w in _ROPE_16], 512), (_ROPE_16, 50_000), ([1.0, 0.2], 6)],
        mistakes={
            "this is the share that does go round; the index counts the others": (
                lambda frequencies, length: 1 - _stability(frequencies, length)
            ),
            "the period is 2π divided by the frequency, not 1 divided by it": (
                lambda frequencies, length: _stability([2 * math.pi * w for w in frequencies], length)
            ),
            "this is a count; divide by the number of pairs": (
                lambda frequencies, length: len(frequencies) * _stability(frequencies, length)
            ),
        },
    ),
}
