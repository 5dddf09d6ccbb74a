"""Exercises of chapter 03."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from rope_lessons.exercises import Exercise, Lab, WrongKind
from rope_lessons.schemes import scheme


def _digits(n: int, base: int, length: int) -> list[int]:
    return [n // base**t % base for t in range(length)]


def _smallest_base(limit: int, length: int) -> int:
    base = 2
    while base**length < limit:
        base += 1
    return base


def _ntk_ratios(dim: int, factor: float) -> list[float]:
    """First and last ratio of the old form, then of the fixed form."""
    share, last = factor ** (2 / dim), dim // 2 - 1
    return [1.0, share**-last, 1 / share, share ** -(last + 1)]


def _aware_base(dim: int, factor: float, base: float) -> float:
    return base * factor ** (dim / (dim - 2))


def _refine(rough: float, angle: float, frequency: float) -> float:
    period = 2 * math.pi / frequency
    fine = angle / frequency
    return fine + round((rough - fine) / period) * period


def _decode(angles: Sequence[float], frequencies: Sequence[float]) -> float:
    position = angles[-1] / frequencies[-1]
    for angle, frequency in zip(reversed(angles[:-1]), reversed(frequencies[:-1]), strict=True):
        position = _refine(position, angle, frequency)
    return position


def _decode_jump(angles: Sequence[float], frequencies: Sequence[float]) -> float:
    return _refine(angles[-1] / frequencies[-1], angles[0], frequencies[0])


def _decode_floor(angles: Sequence[float], frequencies: Sequence[float]) -> float:
    position = angles[-1] / frequencies[-1]
    for angle, frequency in zip(reversed(angles[:-1]), reversed(frequencies[:-1]), strict=True):
        period, fine = 2 * math.pi / frequency, angle / frequency
        position = fine + math.floor((position - fine) / period) * period
    return position


def _seen_distance(m: int, n: int, now: float, then: float) -> float:
    return (m * now - n * then) / now


def _came_round(dim: int, seen: int, base: float, turn: float = 2 * math.pi) -> int:
    """How many hands went all the way round, which is the number of the first that did not."""
    return sum((seen - 1) * base ** (-2 * t / dim) >= turn for t in range(dim // 2))


def _factor_needed(dim: int, seen: int, wanted: int, base: float) -> float:
    longer = max(1.0, (wanted - 1) / (seen - 1))
    return longer ** ((dim / 2 - 1) / _came_round(dim, seen, base))


LAB_HOME, LAB_LONG = 61.2, 55.0  # percent of all bytes: at 64, and at eight times that


def _lab(answer: Any) -> str:
    """Sixteen speeds, tried on the scoreboard's model."""
    if isinstance(answer, (str, dict)) or not hasattr(answer, "__len__") or len(answer) != 16:
        raise WrongKind("give a list of 16 speeds, one for each hand: nothing else may change")
    try:
        speeds = [float(speed) for speed in answer]
    except (TypeError, ValueError):
        raise WrongKind("give a list of 16 speeds, one for each hand: they must be numbers") from None
    if not all(1e-6 <= speed <= 1e6 for speed in speeds):
        raise WrongKind("a speed is the new frequency divided by the old one: a number above 0, at least 1e-6")
    if min(speeds) >= 1 and max(speeds) > 1:
        return f"a speed above 1 turns a hand faster; did you mean 1/{max(speeds):g}?"
    missing = short_of(home_and_long(tuple(speeds)), LAB_HOME, LAB_LONG, "512 bytes are still too long")
    if missing.startswith("512") and max(speeds[5:]) < 1 / 8:
        return f"slowing by more than the factor costs too: far keys then look near to the open hands. {missing}"
    return missing


def short_of(found: tuple[float, float], home_wanted: float, long_wanted: float, too_little: str) -> str:
    """What is missing of the percents that are wanted at 64 bytes and at 512; ``""`` if nothing is."""
    home, long = found
    told = _percents(found)
    if long < long_wanted:
        both = f", and {home_wanted:g} % at 64" if home < home_wanted else ""
        return f"{too_little}: {told}; {long_wanted:g} % at 512 are wanted{both}"
    if home < home_wanted:
        return f"the price at home is too high: {told}; {home_wanted:g} % at 64 are wanted"
    return ""


@lru_cache(maxsize=8)
def home_and_long(speeds: tuple[float, ...]) -> tuple[float, float]:
    """Percent of the bytes that the first seed of the scoreboard's model has right at 64 and at 512, on half of the
    documents, when its sixteen hands turn at these speeds."""
    from rope_lessons.scoreboard import live  # with PyTorch's models: only who does the lab waits for them

    slower = tuple(1 / speed for speed in speeds)
    lists: dict[str, Any] = {"short_factor": slower, "long_factor": slower}
    tried = scheme("longrope", dim=32, factor=8.0, train_length=64, rotary_scale=1.0, **lists)
    model, texts = live.load(), live.windows()[:32]
    home, long = (live.percent(model, tried, texts, length) for length in (64, 512))
    return home, long


def _percents(found: tuple[float, float]) -> str:
    return "you predict {:.1f} % of the bytes at 64 and {:.1f} % at 512".format(*found)


def _told(speeds: Sequence[float]) -> str:
    return _percents(home_and_long(tuple(float(speed) for speed in speeds)))


def _aware_speeds(factor: float, pairs: int = 16) -> list[float]:
    return [factor ** (-t / (pairs - 1)) for t in range(pairs)]


_OMEGAS = [1.0, 0.2, 0.04]


def _clock(position: float) -> tuple[list[float], list[float]]:
    """The angles in -π … π of three hands with radix 5, a little off, as a noisy encoding would give them."""
    noise = (0.3, -0.4, 0.4)  # below π/6 as the theorem asks, and too much for jumping from the slowest to the fastest
    turned = [math.remainder(position * w + e, 2 * math.pi) for w, e in zip(_OMEGAS, noise, strict=True)]
    return turned, _OMEGAS


EXERCISES: dict[str, Exercise | Lab] = {
    "lab": Lab(
        grade=_lab,
        reached=_told,
        reference=[1.0] * 5 + _aware_speeds(128)[5:],
        mistakes={
            "512 bytes are still too long": _aware_speeds(8),  # NTK-aware with the ratio of the lengths
            "512 bytes are still too long: you predict 2": [1 / 8] * 16,  # PI
            "slowing by more than the factor costs too": [1.0] * 5 + [1 / 16] * 11,
            "a speed above 1 turns a hand faster; did you mean 1/8?": [1] * 5 + [8] * 11,  # factors for speeds
            "the price at home is too high": _aware_speeds(128),
            "the price at home is too high: you predict 60.9": [1.0] * 5 + [1 / 8] * 11,  # a switch
            # Cheating: a window changes no hand, and sees nothing of what is far.
            "give a list of 16 speeds": scheme("rope", dim=32, visible_window=64),
        },
    ),
    "factor_needed": Exercise(
        reference=_factor_needed,
        also=(
            lambda dim, seen, wanted, base: (
                max(1.0, wanted / seen) ** ((dim / 2 - 1) / _came_round(dim, seen + 1, base))
            ),
        ),
        cases=[
            (128, 4096, 32_768, 10_000.0),
            (32, 64, 512, 10_000.0),
            (128, 8192, 131_072, 500_000.0),
            (8, 64, 253, 10_000.0),
            (64, 512, 300, 10_000.0),
        ],
        mistakes={
            "this is the ratio of the lengths: with that factor the first open hand is slowed too little": (
                lambda dim, seen, wanted, base: max(1.0, (wanted - 1) / (seen - 1))
            ),
            "that is the ratio of the lengths; NTK's first open hand gets only part of the factor": (
                lambda dim, seen, wanted, base: max(1.0, wanted / seen)
            ),
            "that is the ratio of the lengths: the first open hand is slowed by less than the factor": (
                lambda dim, seen, wanted, base: wanted / seen
            ),
            "this is the ratio of the lengths less one token: the first open hand is slowed by less than the factor": (
                lambda dim, seen, wanted, base: (wanted - 1) / (seen - 1)
            ),
            "one pair too far: pairs count from 0, so t* is the number of hands that did come round": (
                lambda dim, seen, wanted, base: (
                    max(1.0, (wanted - 1) / (seen - 1)) ** ((dim / 2 - 1) / (_came_round(dim, seen, base) + 1))
                )
            ),
            "the exponent is the wrong way round: solve the reach for the factor": (
                lambda dim, seen, wanted, base: (
                    max(1.0, (wanted - 1) / (seen - 1)) ** (_came_round(dim, seen, base) / (dim / 2 - 1))
                )
            ),
            "the last pair has number d/2 - 1, and that is what the exponent is divided by": (
                lambda dim, seen, wanted, base: (
                    max(1.0, (wanted - 1) / (seen - 1)) ** (dim / 2 / _came_round(dim, seen, base))
                )
            ),
            "off by one: t* is the first hand that did not come round, not the last that did": (
                lambda dim, seen, wanted, base: (
                    max(1.0, (wanted - 1) / (seen - 1)) ** ((dim / 2 - 1) / (_came_round(dim, seen, base) - 1))
                )
            ),
            "you forgot 2π: a turn is not one radian": (
                lambda dim, seen, wanted, base: (
                    max(1.0, (wanted - 1) / (seen - 1)) ** ((dim / 2 - 1) / _came_round(dim, seen, base, turn=1.0))
                )
            ),
            "a text that fits needs no change: the factor is at least 1": (
                lambda dim, seen, wanted, base: (
                    ((wanted - 1) / (seen - 1)) ** ((dim / 2 - 1) / _came_round(dim, seen, base))
                )
            ),
        },
    ),
    "digits": Exercise(
        reference=_digits,
        cases=[(2026, 10, 4), (5, 2, 6), (0, 7, 2), (1999, 16, 3)],
        mistakes={
            "the order is reversed: digit t is worth base**t, so the units come first": (
                lambda n, base, length: _digits(n, base, length)[::-1]
            ),
            "you divide but never take the remainder: each digit must be below the base": (
                lambda n, base, length: [n // base**t for t in range(length)]
            ),
            "you take the remainder by base**(t + 1), and then forget to divide by base**t": (
                lambda n, base, length: [n % base ** (t + 1) for t in range(length)]
            ),
            "a digit is a whole number: divide with //, which rounds down": (
                lambda n, base, length: [n / base**t % base for t in range(length)]
            ),
            "off by one: the first digit divides by base**0 = 1, not by base": (
                lambda n, base, length: [n // base ** (t + 1) % base for t in range(length)]
            ),
        },
    ),
    "smallest_base": Exercise(
        reference=_smallest_base,
        cases=[(2000, 3), (8000, 3), (1000, 3), (4097, 2), (256, 8), (3125, 5)],
        mistakes={
            "one too large where the numbers fit exactly: 0 counts, so the largest number is limit - 1": (
                lambda limit, length: _smallest_base(limit + 1, length)
            ),
            "a base is a whole number: round up": lambda limit, length: limit ** (1 / length),
            "rounded down: with that base the largest numbers need one digit more": (
                lambda limit, length: int(limit ** (1 / length))
            ),
            "rounded to the nearest: when the root is just above a whole number, that base is too small": (
                lambda limit, length: round(limit ** (1 / length))
            ),
            "right but for rounding: 3125 ** (1 / 5) is a little more than 5 in floating point. Count up instead": (
                lambda limit, length: math.ceil(limit ** (1 / length))
            ),
            "one too large where the root is a whole number: rounding down and adding 1 goes past it": (
                lambda limit, length: int(limit ** (1 / length)) + 1
            ),
            "you divided by the number of digits: every digit multiplies the range, so take a root": (
                lambda limit, length: -(-limit // length)
            ),
        },
    ),
    "ntk_ratios": Exercise(
        reference=_ntk_ratios,
        cases=[(128, 8.0), (64, 4.0), (4, 8.0)],
        mistakes={
            "the last pair has number d/2 - 1, not d/2: your pairs count from 1": (
                lambda dim, factor: [1.0, 1 / factor, factor ** (-2 / dim), factor ** (-2 / dim - 1)]
            ),
            "your old form ends at 1/factor: that is the aware form. The old one stops a little short": (
                lambda dim, factor: [1.0, 1 / factor, factor ** (-2 / dim), 1 / factor]
            ),
            "your fixed form ends like the old one: all its pairs, the last one too, are slower by one share more": (
                lambda dim, factor: [_ntk_ratios(dim, factor)[i] for i in (0, 1, 2, 1)]
            ),
            "these are the ratios of periods (at least 1); of frequencies they are the inverse": (
                lambda dim, factor: [1 / ratio for ratio in _ntk_ratios(dim, factor)]
            ),
            "the share per digit is factor**(2/dim): there are dim/2 digits, not dim": (
                lambda dim, factor: [
                    1.0,
                    factor ** (-(dim / 2 - 1) / dim),
                    factor ** (-1 / dim),
                    factor ** (-(dim / 2) / dim),
                ]
            ),
        },
    ),
    "aware_base": Exercise(
        reference=_aware_base,
        cases=[(128, 8.0, 10_000.0), (64, 4.0, 500_000.0), (4, 2.0, 10_000.0)],
        mistakes={
            "this is the old form: its last pair slows by factor**(1 - 2/dim), a little less than factor": (
                lambda dim, factor, base: base * factor
            ),
            "this is the radix; the base is its power d/2": (
                lambda dim, factor, base: base ** (2 / dim) * factor ** (2 / (dim - 2))
            ),
            "this multiplies the base by what the radix is multiplied by; the base is the radix to the power dim/2": (
                lambda dim, factor, base: base * factor ** (2 / (dim - 2))
            ),
            "the radix has dim/2 - 1 steps from the first pair to the last, so the base is multiplied by the power "
            "dim/2 of factor**(2/(dim - 2)), not of factor": (lambda dim, factor, base: base * factor ** (dim / 2)),
            "the exponent is the wrong way round: the last pair has exponent (dim - 2)/dim, so take that root": (
                lambda dim, factor, base: base * factor ** ((dim - 2) / dim)
            ),
        },
    ),
    "decode": Exercise(
        reference=_decode,
        cases=[*(_clock(position) for position in (0.0, 7.0, 33.0, 70.0, -12.0)), ([0.7], [0.2])],
        mistakes={
            "this is the fastest hand alone: it knows the place within a turn, but not which turn": (
                lambda angles, frequencies: angles[0] / frequencies[0]
            ),
            "rounded down: the rough position may lie a little below the right turn. Round to the nearest turn": (
                _decode_floor
            ),
            "the slowest hand is too rough to choose the turn of the fastest one: go from hand to hand": _decode_jump,
            "this is only as fine as the slowest hand: begin with it, then let every faster hand correct the result": (
                lambda angles, frequencies: angles[-1] / frequencies[-1]
            ),
        },
    ),
    "dynamic_factor": Exercise(
        reference=lambda length, train_length, factor: max(1.0, factor * length / train_length - (factor - 1)),
        cases=[(512, 64, 1.0), (64, 64, 8.0), (512, 64, 8.0), (32, 64, 8.0), (3000, 2048, 2.0)],
        mistakes={
            "up to the training length nothing may change: the result must be at least 1": (
                lambda length, train_length, factor: factor * length / train_length - (factor - 1)
            ),
            "this is one too small: just above L = N the result must be just above 1": (
                lambda length, train_length, factor: max(1.0, factor * length / train_length - factor)
            ),
            "this is the setting itself: it must grow with the length": (
                lambda length, train_length, factor: factor if length > train_length else 1.0
            ),
            "this is L/N times the factor: at L = N it gives the factor, but it must give 1": (
                lambda length, train_length, factor: max(1.0, factor * length / train_length)
            ),
            "this is L/N alone: the setting called factor is not used": (
                lambda length, train_length, factor: max(1.0, length / train_length)
            ),
        },
    ),
    "seen_distance": Exercise(
        reference=_seen_distance,
        cases=[(100, 40, 0.5, 0.8), (511, 0, 0.01, 0.02), (511, 500, 0.01, 0.02), (9, 3, 1.0, 1.0), (10, 3, 0.7, 0.9)],
        mistakes={
            "this is the true distance: the key was turned by the frequency of its own step, `then`": (
                lambda m, n, now, then: m - n
            ),
            "you gave both the old frequency: the query is turned now": (lambda m, n, now, then: (m - n) * then / now),
            "you divided by the old frequency: the query reads the angle with its own, `now`": (
                lambda m, n, now, then: (m * now - n * then) / then
            ),
            "the two frequencies are exchanged: the query was turned `now`, the key `then`": (
                lambda m, n, now, then: m - n * now / then
            ),
            "the sign is turned round: a key that comes first has a positive distance": (
                lambda m, n, now, then: (n * then - m * now) / now
            ),
            "this is the angle between the two; divide by `now` to read it as a distance": (
                lambda m, n, now, then: m * now - n * then
            ),
        },
    ),
}
