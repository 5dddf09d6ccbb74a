"""Exercises of chapter 09."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rope_lessons.exercises import NO_ORDER, Exercise, Lab, WrongKind


def _shown(train_length: int, window: float, slope: float) -> list[float]:
    return [x if x < window else window + slope * (x - window) for x in range(train_length)]


def _covered(train_length: int, window: int, slope: float) -> int:
    return math.floor(max(_shown(train_length, window, slope))) + 1


def _slope_needed(train_length: int, window: int, factor: float) -> float:
    return (factor * train_length - 1 - window) / (train_length - 1 - window)


def _seen(train_length: int, window: int, slope: int, length: int) -> int:
    return len(set(_shown(train_length, window, slope)) & set(range(length)))


def _alias(omega: float, step: int) -> float:
    turn = 2 * math.pi / step
    return abs(omega - turn * round(omega / turn))


def _all_seen(train_length: int, windows: Sequence[int], slope: int, length: int) -> bool:
    told = {x for window in windows for x in _shown(train_length, window, slope)}
    return set(range(length)) <= told


LAB_TRAINED, LAB_LENGTH, LAB_NEAR = 128, 1024, 32
LAB_STEPS = 12  # the fewest: each of 11 would have to show 12 of the last 132 distances, which slope 11 alone can


def _lab(answer: Any) -> str:
    """Which distances of the test the maps show together."""
    try:
        maps = [(float(window), float(slope)) for window, slope in answer]
    except (TypeError, ValueError):
        raise WrongKind("give a list of pairs (window, slope), one for each training step in turn") from None
    if not all(math.isfinite(window) and math.isfinite(slope) and slope >= 0 for window, slope in maps):
        raise WrongKind("windows and slopes are finite numbers, and no slope is negative")
    if len(maps) > LAB_STEPS:
        return f"too many steps: it can be done with fewer than {len(maps)}"
    wanted = set(range(LAB_LENGTH))
    shown = [set(_shown(LAB_TRAINED, window, slope)) for window, slope in maps]
    for (window, slope), told in zip(maps, shown, strict=True):
        if not told >= set(range(LAB_NEAR)):
            return f"near distances are bent: ({window:g}, {slope:g}) does not show all of 0 to {LAB_NEAR - 1}"
    missing = sorted(wanted.difference(*shown))
    if not missing:
        return ""
    kind = "too short" if missing[0] > max(map(max, shown), default=-1) else "gaps"
    return f"{kind}: {LAB_LENGTH - len(missing)} of {LAB_LENGTH} distances are shown; the first missing is {missing[0]}"


EXERCISES: dict[str, Exercise | Lab] = {
    "lab": Lab(
        grade=_lab,
        reference=[(window, 12) for window in range(32, 44)],
        mistakes={
            "gaps: 94 of 1024 distances are shown; the first missing is 33": [(32, 16)],  # the rule of thumb
            "gaps: 1014 of 1024": [(window, 11) for window in range(32, 43)],  # the last windows end too early
            "too short: 128 of 1024": [(128, 1)],  # plain RoPE
            "too many steps": [(window, 16) for window in range(32, 48)],  # it does fill every gap
            # Cheating: a window of 0 stretches the near distances too, and leaves more for the far ones.
            "near distances are bent": [(window, 8) for window in range(8)],
            "give a list of pairs": 12,
        },
    ),
    "shown": Exercise(
        reference=_shown,
        cases=[(3, 1, 3), (6, 2, 3), (6, 0, 2), (4, 6, 5), (5, 2, 1.5)],
        mistakes={
            NO_ORDER: lambda n, w, r: set(_shown(n, w, r)),
            "a text of N tokens has the distances 0 to N - 1: leave N out": lambda n, w, r: _shown(n + 1, w, r),
            "you bent as Leaky ReRoPE does at test: in training the far steps are multiplied by r": (
                lambda n, w, r: _shown(n, w, 1 / r)
            ),
            "the part below the window keeps its length: multiply x - w, not x": (
                lambda n, w, r: [x if x < w else r * x for x in range(n)]
            ),
        },
    ),
    "slope_needed": Exercise(
        reference=_slope_needed,
        cases=[(512, 128, 8), (64, 16, 8), (4096, 1024, 4), (64, 0, 2), (3, 1, 2)],
        mistakes={
            "this loses a window, and uses N where the largest distance is N - 1": (
                lambda n, w, factor: ((factor - 1) * n + w) / (n - w)
            ),
            "the factor itself is too little: the window is covered one to one, so the rest must grow faster": (
                lambda n, w, factor: factor
            ),
            "the slope need not be whole: do not round it up": lambda n, w, factor: math.ceil(
                _slope_needed(n, w, factor)
            ),
            "that is the rule of thumb; what is needed is less": lambda n, w, factor: 2 * factor,
            "count distances, not tokens: a text of L tokens has distances up to L - 1": (
                lambda n, w, factor: (factor * n - w) / (n - w)
            ),
        },
    ),
    "seen": Exercise(
        reference=_seen,
        cases=[
            (3, 1, 3, 5),
            (512, 128, 16, 4096),
            (64, 16, 16, 512),
            (64, 16, 1, 512),
            (64, 16, 8, 512),
            (6, 2, 3, 8),
            (64, 16, 4, 10),
        ],
        mistakes={
            "the theorem's formula, outside its conditions: here the range may end before the test does": (
                lambda n, w, r, length: w + (length - 1 - w) // r + 1
            ),
            "cut off at N, the formula is still wrong: a test that ends within the window has its own distances only": (
                lambda n, w, r, length: min(n, w + (length - 1 - w) // r + 1)
            ),
            "these are the far ones; the distances inside the window are seen too": (
                lambda n, w, r, length: _seen(n, w, r, length) - w
            ),
            "every distance of training counted, also those that the test does not reach": lambda n, w, r, length: n,
            "this is the reach; most distances within it are never shown": (
                lambda n, w, r, length: min(length, _covered(n, w, r))
            ),
        },
    ),
    "alias": Exercise(
        reference=_alias,
        cases=[(0.4216965, 16), (1.0, 16), (0.01, 16), (0.3, 8), (0.7498942, 16)],
        mistakes={
            "a slower pair goes through the points: take off whole turns per step": lambda omega, step: omega,
            "round to the nearest number of whole turns; rounding down leaves a pair that may be faster than needed": (
                lambda omega, step: omega % (2 * math.pi / step)
            ),
            "a frequency of at least 0 is asked: an angle and its opposite look alike, so take the size": (
                lambda omega, step: omega - 2 * math.pi / step * round(omega * step / (2 * math.pi))
            ),
            "that is the angle from one visited distance to the next; divide it by the step": (
                lambda omega, step: _alias(omega, step) * step
            ),
        },
    ),
    "all_seen": Exercise(
        reference=_all_seen,
        cases=[
            (64, list(range(16, 32)), 16, 512),
            (64, [16], 16, 512),
            (64, list(range(16, 31)), 16, 512),
            (64, list(range(16, 32)), 16, 600),
            (6, [1, 2], 2, 9),
            (6, [1, 3], 2, 9),
            (6, [6], 3, 6),
        ],
        mistakes={
            "in range is not enough: every distance must be shown with one of the windows": (
                lambda n, windows, r, length: max(_covered(n, w, r) for w in windows) >= length
            ),
            "you asked that every window see everything; together is enough": (
                lambda n, windows, r, length: all(_all_seen(n, [w], r, length) for w in windows)
            ),
            "the right remainders are not enough: the largest window must reach the end as well": (
                lambda n, windows, r, length: {w % r for w in windows} == set(range(r))
            ),
        },
    ),
}
