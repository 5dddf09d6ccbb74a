"""Exercises of chapter 14."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from rope_lessons.axes import axial_frequencies
from rope_lessons.exercises import Exercise, Lab, WrongKind
from rope_lessons.sinusoidal import rope_frequencies

LAB_HOME, LAB_LARGE = 95.0, 95.0  # percent of the pixels, in pictures of 8 by 8 and of 40 by 40


def _lab(answer: Any) -> str:
    """What a model finds that was trained with these frequencies, about five seconds."""
    if not isinstance(answer, torch.Tensor) or tuple(answer.shape) != (2, 16):
        raise WrongKind("give a tensor of shape (2, 16): radians per row and per column, for 16 hands")
    if answer.dtype != torch.float64 or not bool(answer.isfinite().all()):
        raise WrongKind("the frequencies must be finite and float64, as all frequencies of the book")
    from rope_lessons.models import pictures  # with PyTorch's models: only who does the lab waits for them

    model = pictures.train(answer, seed=0)
    home, large = (100 * pictures.right(model, side, side, count) for side, count in ((8, 32), (40, 4)))
    told = f"{home:.0f} % of the pixels find the one above in 8 by 8, {large:.0f} % in 40 by 40"
    if home < LAB_HOME:
        return f"it does not find the pixel at home: {told}; {LAB_HOME:.0f} % are wanted there"
    if large < LAB_LARGE:
        return f"it does not hold in the large picture: {told}; {LAB_LARGE:.0f} % are wanted there"
    return ""


_ROWS_ALONE = torch.stack((rope_frequencies(32, 10.0), torch.zeros(16, dtype=torch.float64)))

Part = int | Sequence[int]


def _steps_back(up: int, left: int, width: int) -> int:
    return up * width + left


def _alike(omega: Sequence[float], away: Sequence[int]) -> list[float]:
    return [sum(math.cos(w * a) for w in omega) / len(omega) for a in away]


def _bucket(distance: int, buckets: int, farthest: int) -> int:
    half = buckets // 2
    if distance < half:
        return distance
    grown = math.log(distance / half) / math.log(farthest / half)
    return min(half + int(half * grown), buckets - 1)


def _linear(distance: int, buckets: int, farthest: int) -> int:
    """The second half in equal steps."""
    half = buckets // 2
    if distance < half:
        return distance
    return min(half + int(half * (distance - half) / (farthest - half)), buckets - 1)


def _unclipped(distance: int, buckets: int, farthest: int) -> int:
    half = buckets // 2
    return distance if distance < half else half + int(half * math.log(distance / half) / math.log(farthest / half))


def _number(
    parts: Sequence[Part], *, widest: bool = True, count: bool = False, start: bool = True, frames_too: bool = False
) -> list[list[int]]:
    found: list[list[int]] = []
    at = 0
    for part in parts:
        if isinstance(part, int):
            found += [[at + n] * 3 for n in range(part)]
            at += part
            continue
        frames, rows, columns = part
        base = at if start else 0
        found += [[base + t, base + y, base + x] for t in range(frames) for y in range(rows) for x in range(columns)]
        longest = max(frames, rows, columns) if frames_too else max(rows, columns)
        at += frames * rows * columns if count else longest if widest else rows
    return found


def _share(m: int, n: int, rate: float, threshold: float) -> float:
    return math.log(rate * (m - n) + 1) / math.log(rate * max(m, threshold) + 1)


_OMEGA = [1.0, 0.6, 0.3, 0.2]

EXERCISES: dict[str, Exercise | Lab] = {
    "lab": Lab(
        grade=_lab,
        reference=axial_frequencies(32, 2, base=3.0),
        mistakes={
            "it does not hold in the large picture": axial_frequencies(32, 2, base=10.0),  # good in 24 by 24
            # Cheating: rows alone are the same in every width, and leave out which column is asked for.
            "it does not find the pixel at home": _ROWS_ALONE,
            "give a tensor of shape (2, 16)": rope_frequencies(32).unsqueeze(0),
            "the frequencies must be finite and float64": axial_frequencies(32, 2, base=10.0).float(),
        },
    ),
    "steps_back": Exercise(
        reference=_steps_back,
        cases=[(1, 0, 8), (1, 0, 12), (2, 3, 10), (0, 4, 28), (3, -2, 5)],
        mistakes={
            "one row up is a whole line back: multiply the rows by the width": lambda up, left, width: up + left,
            "to the left is back in the line too: add it": lambda up, left, width: up * width - left,
            "multiply the rows by the width, not the columns": lambda up, left, width: left * width + up,
        },
    ),
    "bucket": Exercise(
        reference=_bucket,
        cases=[(0, 32, 128), (15, 32, 128), (16, 32, 128), (30, 32, 128), (100, 32, 128), (5000, 32, 128), (7, 8, 20)],
        mistakes={
            "the second half grows with the logarithm of the distance": _linear,
            "the last bucket takes all that is farther: no number above buckets - 1": _unclipped,
            "half of the buckets hold one distance each: begin with the logarithm at buckets / 2": (
                lambda distance, buckets, farthest: min(
                    int(buckets * math.log(distance + 1) / math.log(farthest + 1)), buckets - 1
                )
            ),
        },
    ),
    "mirage": Exercise(
        reference=lambda omega, hands, away: max(_alike(omega[:hands], away)),
        cases=[(_OMEGA, 2, range(9, 41)), (_OMEGA, 3, range(2, 9)), (_OMEGA, 4, range(9, 41)), (_OMEGA, 1, [3])],
        mistakes={
            "take the first frequencies, as many as hands says": lambda omega, hands, away: max(_alike(omega, away)),
            "take the mean of the cosines, not the sum": (
                lambda omega, hands, away: hands * max(_alike(omega[:hands], away))
            ),
            "first the mean at each distance, then the highest": (
                lambda omega, hands, away: sum(max(_alike([w], away)) for w in omega[:hands]) / hands
            ),
        },
    ),
    "multimodal": Exercise(
        reference=_number,
        cases=[([2, (1, 2, 3), 1],), ([(1, 3, 2), 2],), ([1, (2, 2, 2), (1, 1, 4), 2],), ([1, (5, 1, 2), 2],)],
        mistakes={
            "the number of frames does not count: only rows and columns do": (
                lambda parts: _number(parts, frames_too=True)
            ),
            "what follows a picture goes on after its longer side, whichever that is": (
                lambda parts: _number(parts, widest=False)
            ),
            "a picture uses up as many numbers as its longer side, not as it has patches": (
                lambda parts: _number(parts, count=True)
            ),
            "a picture begins where the text has stopped: add that to all three numbers": (
                lambda parts: _number(parts, start=False)
            ),
        },
    ),
    "share": Exercise(
        reference=_share,
        cases=[(10, 4, 1.0, 64.0), (100, 4, 1.0, 64.0), (500, 0, 0.5, 64.0), (64, 64, 2.0, 16.0)],
        mistakes={
            "up to the threshold the divisor stays the same: take max(m, threshold)": (
                lambda m, n, rate, threshold: math.log(rate * (m - n) + 1) / math.log(rate * m + 1)
            ),
            "both numbers go through the logarithm": (lambda m, n, rate, threshold: (m - n) / max(m, threshold)),
            "beyond the threshold the divisor grows with the query's position": (
                lambda m, n, rate, threshold: math.log(rate * (m - n) + 1) / math.log(rate * threshold + 1)
            ),
        },
    ),
}
