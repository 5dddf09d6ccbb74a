"""Exercises of chapter 05."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rope_lessons.exercises import Exercise, Lab, WrongKind
from rope_lessons.schemes import scheme


def _turns(t: int, dim: int, length: int, base: float) -> float:
    return length * base ** (-2 * t / dim) / (2 * math.pi)


def _first_open(dim: int, length: int, base: float) -> int:
    """Number of the first pair with less than one turn; ``dim // 2`` if there is none."""
    t = 0
    while t < dim // 2 and _turns(t, dim, length, base) >= 1:
        t += 1
    return t


def _speed(turns: float, factor: float, slow: float, fast: float) -> float:
    kept = min(max((turns - slow) / (fast - slow), 0), 1)
    return kept + (1 - kept) / factor


def _speed_log(turns: float, factor: float, slow: float, fast: float) -> float:
    kept = min(max(math.log(turns / slow) / math.log(fast / slow), 0), 1)
    return kept + (1 - kept) / factor


def _speed_period(turns: float, factor: float, slow: float, fast: float) -> float:
    kept = min(max((turns - slow) / (fast - slow), 0), 1)
    return 1 / (kept + (1 - kept) * factor)


def _speed_unclipped(turns: float, factor: float, slow: float, fast: float) -> float:
    kept = (turns - slow) / (fast - slow)
    return kept + (1 - kept) / factor


def _logit_factor(factor: float) -> float:
    return (0.1 * math.log(factor) + 1) ** 2 if factor > 1 else 1.0


def _ramp_ends(dim: int, length: int, base: float, fast: float, slow: float) -> list[float]:
    def pair(turns: float) -> float:
        return dim / 2 * math.log(length / (2 * math.pi * turns)) / math.log(base)

    return [max(math.floor(pair(fast)), 0), min(math.ceil(pair(slow)), dim - 1)]


def _ramp_ends_exact(dim: int, length: int, base: float, fast: float, slow: float) -> list[float]:
    def pair(turns: float) -> float:
        return dim / 2 * math.log(length / (2 * math.pi * turns)) / math.log(base)

    return [max(pair(fast), 0), min(pair(slow), dim - 1)]


def _ramp_ends_unclipped(dim: int, length: int, base: float, fast: float, slow: float) -> list[float]:
    found = _ramp_ends_exact(dim, length, base, fast, slow)
    first = dim / 2 * math.log(length / (2 * math.pi * fast)) / math.log(base)
    return [math.floor(first), math.ceil(found[1])]


def _llama3(wavelength: float, length: int, factor: float, low: float, high: float) -> float:
    """Llama 3's rule as its code has it, by wavelengths."""
    if wavelength < length / high:
        return 1.0
    if wavelength > length / low:
        return 1 / factor
    smooth = (length / wavelength - low) / (high - low)
    return smooth + (1 - smooth) / factor


def _served_factor(prompt: int, max_new: int, seen: int, declared: int) -> float:
    return max(1.0, (prompt + max_new) / seen)


def _served_factor_exact(prompt: int, max_new: int, seen: int, declared: int) -> float:
    """By the largest distances, one less than the lengths."""
    return max(1.0, (prompt + max_new - 1) / (seen - 1))


def _longrope(
    length: int, train_length: int, frequencies: Sequence[float], short: Sequence[float], long: Sequence[float]
) -> list[float]:
    factors = long if length > train_length else short
    return [omega / factor for omega, factor in zip(frequencies, factors, strict=True)]


_OMEGAS = [1.0, 0.1, 0.01, 0.001]
_SHORT, _LONG = [1.0, 1.0, 1.1, 1.5], [1.0, 2.5, 8.0, 8.5]

LAB_NAMES = ("slow", "fast", "factor", "nu")
LAB_NEEDLES, LAB_BYTES = 85.0, 57.0  # percent: of the needles at home, and of all bytes at eight times the length


def _lab(answer: Any) -> str:
    """What the first seed of the scoreboard's model does with these four numbers."""
    if not isinstance(answer, dict) or set(answer) != set(LAB_NAMES):
        raise WrongKind("give a dictionary with slow, fast, factor and nu: these four numbers are all that may change")
    if not all(isinstance(value, (int, float)) and math.isfinite(value) for value in answer.values()):
        raise WrongKind("slow, fast, factor and nu must be numbers")
    if answer["slow"] >= answer["fast"]:
        raise WrongKind("fast must be above slow: the ramp ends at slow turns and begins at fast turns")
    if answer["slow"] <= 0 or answer["nu"] <= 0:
        raise WrongKind("slow and nu must be above 0")
    if answer["factor"] < 1:
        raise WrongKind("the factor must be at least 1: a smaller one makes the hands faster")
    from rope_lessons.scoreboard import live  # with PyTorch's models: only who does the lab waits for them

    slow, fast, factor, nu = (float(answer[name]) for name in LAB_NAMES)
    tried = scheme("ntk-by-parts", dim=32, factor=factor, train_length=64, alpha=slow, beta=fast, rotary_scale=nu)
    model, texts = live.load(), live.windows()
    kept = live.percent(model, tried, texts, 64, "needle")
    right = live.percent(model, tried, texts[:32], 512)
    told = f"you keep {kept:.1f} % of the needles at home and predict {right:.1f} % of the bytes at 512 (seed 0)"
    missing = ["the price at home is too high"] * (kept < LAB_NEEDLES)
    missing += ["512 bytes are still too long"] * (right < LAB_BYTES)
    wanted = f"{LAB_NEEDLES:.0f} % and {LAB_BYTES:.0f} % are wanted"
    return f"{' and '.join(missing)}: {told}; {wanted}" if missing else ""


EXERCISES: dict[str, Exercise | Lab] = {
    "lab": Lab(
        grade=_lab,
        reference={"slow": 0.5, "fast": 2, "factor": 8, "nu": 1.2},
        mistakes={
            "the price at home is too high:": {"slow": 0.5, "fast": 4, "factor": 8, "nu": 1.2},
            "the price at home is too high and 512 bytes": {"slow": 1, "fast": 4, "factor": 8, "nu": 1.0},  # Llama 3's
            "512 bytes are still too long: you keep 9": {"slow": 1, "fast": 4, "factor": 1, "nu": 1.0},  # no change
            "the price at home is too high and 512 bytes are still too long: you keep 79": {
                "slow": 1,
                "fast": 1.001,
                "factor": 8,
                "nu": 1.0,
            },  # a switch
            "fast must be above slow": {"slow": 4, "fast": 1, "factor": 8, "nu": 1.0},
            "the factor must be at least 1": {"slow": 0.5, "fast": 2, "factor": 0.5, "nu": 1.2},
            # Cheating: a window changes no hand, and sees nothing of what is far.
            "give a dictionary with slow, fast, factor and nu": scheme("rope", dim=32, visible_window=64),
        },
    ),
    "turns": Exercise(
        reference=_turns,
        cases=[(0, 4, 64, 10_000.0), (1, 4, 64, 10_000.0), (45, 128, 4096, 10_000.0), (20, 128, 8192, 500_000.0)],
        mistakes={
            "this is the period, the positions in one turn: divide the length by it": (
                lambda t, dim, length, base: 2 * math.pi * base ** (2 * t / dim)
            ),
            "this is the angle in radians: a turn has 2π of them": (
                lambda t, dim, length, base: length * base ** (-2 * t / dim)
            ),
            "the exponent is -2t/d: there are d/2 pairs, not d": (
                lambda t, dim, length, base: length * base ** (-t / dim) / (2 * math.pi)
            ),
            "the sign of the exponent is turned round: pairs become slower as t grows": (
                lambda t, dim, length, base: length * base ** (2 * t / dim) / (2 * math.pi)
            ),
            "these are degrees: divide by 2π, not by 360": (
                lambda t, dim, length, base: length * base ** (-2 * t / dim) / 360
            ),
        },
    ),
    "first_open": Exercise(
        reference=_first_open,
        cases=[
            (128, 4096, 10_000.0),
            (64, 64, 10_000.0),
            (128, 8192, 500_000.0),
            (64, 131_072, 10_000.0),
            (4, 5, 10_000.0),
        ],
        mistakes={
            "one too small: the number is rounded down, and that pair has made its turn. Round up": (
                lambda dim, length, base: max(_first_open(dim, length, base) - 1, 0)
            ),
            "this counts the pairs that never went round; asked is the number of the first of them": (
                lambda dim, length, base: dim // 2 - _first_open(dim, length, base)
            ),
            "if every pair goes round, the answer is dim // 2: there is no pair of that number": (
                lambda dim, length, base: math.ceil(max(dim / 2 * math.log(length / (2 * math.pi)) / math.log(base), 0))
            ),
            "round up, and keep the result from 0 to dim // 2: this is the pair number of one turn, rounded down": (
                lambda dim, length, base: math.floor(dim / 2 * math.log(length / (2 * math.pi)) / math.log(base))
            ),
            "the exponent is -2t/d: there are d/2 pairs, not d": (
                lambda dim, length, base: sum(length * base ** (-t / dim) / (2 * math.pi) >= 1 for t in range(dim // 2))
            ),
            "you forgot 2π: a turn is not one radian": (
                lambda dim, length, base: min(math.ceil(dim / 2 * math.log(length) / math.log(base)), dim // 2)
            ),
        },
    ),
    "speed": Exercise(
        reference=_speed,
        cases=[
            (81.49, 8.0, 1.0, 32.0),
            (8.149, 8.0, 1.0, 32.0),
            (0.8149, 8.0, 1.0, 32.0),
            (2.0, 4.0, 1.0, 4.0),
            (3.0, 4.0, 2.0, 6.0),
        ],
        mistakes={
            "beyond the two limits the share must stop at 0 and at 1": _speed_unclipped,
            "your ramp is linear in the logarithm of the turns, as in the code; asked is the paper's": _speed_log,
            "you mixed the periods: the share is of the frequency, ω (μ + (1 - μ)/κ)": _speed_period,
            "this is the share that is kept; the rest of the speed is not lost, but divided by the factor": (
                lambda turns, factor, slow, fast: min(max((turns - slow) / (fast - slow), 0), 1)
            ),
            "turned round: pairs with many turns keep their speed": (
                lambda turns, factor, slow, fast: 1 + 1 / factor - _speed(turns, factor, slow, fast)
            ),
        },
    ),
    "ramp_ends": Exercise(
        reference=_ramp_ends,
        cases=[
            (128, 4096, 10_000.0, 32.0, 1.0),
            (8, 512, 10_000.0, 32.0, 1.0),
            (64, 64, 10_000.0, 32.0, 1.0),
            (64, 4096, 150_000.0, 32.0, 1.0),
            (64, 131_072, 10_000.0, 32.0, 1.0),
            (8, 131_072, 100.0, 32.0, 1.0),
            (128, 4096, 10_000.0, 16.0, 2.0),
        ],
        mistakes={
            "the ends are not rounded: this is `truncate=False`": _ramp_ends_exact,
            "the lower end may not be below 0: there is no pair before the first": _ramp_ends_unclipped,
            "you cut at the last pair, d/2 - 1. That would be reasonable, but the code cuts at d - 1": (
                lambda dim, length, base, fast, slow: [
                    _ramp_ends(dim, length, base, fast, slow)[0],
                    min(_ramp_ends(dim, length, base, fast, slow)[1], dim // 2 - 1),
                ]
            ),
            "the ends are exchanged: the pair with many turns is the first, since pairs become slower": (
                lambda dim, length, base, fast, slow: _ramp_ends(dim, length, base, fast, slow)[::-1]
            ),
            "both ends are rounded inwards; each is rounded away from the other": (
                lambda dim, length, base, fast, slow: [
                    math.ceil(_ramp_ends_exact(dim, length, base, fast, slow)[0]),
                    math.floor(_ramp_ends_exact(dim, length, base, fast, slow)[1]),
                ]
            ),
            "both ends are rounded down; the upper one is rounded up, away from the lower one": (
                lambda dim, length, base, fast, slow: [
                    math.floor(x) for x in _ramp_ends_exact(dim, length, base, fast, slow)
                ]
            ),
        },
    ),
    "logit_factor": Exercise(
        reference=_logit_factor,
        cases=[(8.0,), (2.0,), (32.0,), (1.0,), (0.5,)],
        mistakes={
            "this is the attention factor ν. Query and key both get it, so the logit gets its square": (
                lambda factor: 0.1 * math.log(factor) + 1 if factor > 1 else 1.0
            ),
            "that is an approximation, 1 + 0.2 ln κ: square the factor": (
                lambda factor: 1 + 0.2 * math.log(factor) if factor > 1 else 1.0
            ),
            "below 1 nothing may change: a text that is not longer needs no other temperature": (
                lambda factor: (0.1 * math.log(factor) + 1) ** 2
            ),
            "the logarithm is the natural one": (
                lambda factor: (0.1 * math.log10(factor) + 1) ** 2 if factor > 1 else 1.0
            ),
            "the logarithm is the natural one, not that of base 2": (
                lambda factor: (0.1 * math.log2(factor) + 1) ** 2 if factor > 1 else 1.0
            ),
            "the square is turned round: logits are multiplied, the temperature 1/ν² is what goes down": (
                lambda factor: 1 / _logit_factor(factor)
            ),
        },
    ),
    "llama3": Exercise(
        reference=_llama3,
        cases=[
            (100.0, 8192, 8.0, 1.0, 4.0),
            (3000.0, 8192, 8.0, 1.0, 4.0),
            (9000.0, 8192, 8.0, 1.0, 4.0),
            (4096.0, 8192, 4.0, 1.0, 4.0),
            (2048.0, 8192, 32.0, 1.0, 4.0),
            (1000.0, 4096, 8.0, 2.0, 8.0),
        ],
        mistakes={
            "your ramp is linear in the wavelength; it is linear in the number of turns, N / wavelength": (
                lambda wavelength, length, factor, low, high: _speed(
                    (length / low - wavelength) / (length / low - length / high), factor, 0, 1
                )
            ),
            "turned round: short wavelengths are the fast pairs, which keep their speed": (
                lambda wavelength, length, factor, low, high: (
                    1 + 1 / factor - _llama3(wavelength, length, factor, low, high)
                )
            ),
            "there is no ramp: between the two wavelengths the speeds are mixed": (
                lambda wavelength, length, factor, low, high: 1.0 if wavelength < length / low else 1 / factor
            ),
            "a limit in turns becomes a wavelength by dividing: N / low, not N times low": (
                lambda wavelength, length, factor, low, high: (
                    1.0 if wavelength < length * high else 1 / factor if wavelength > length * low else 0.5
                )
            ),
            "the limits are wavelengths: N / high_freq_factor and N / low_freq_factor, not the factors themselves": (
                lambda wavelength, length, factor, low, high: (
                    1.0 if wavelength < high else 1 / factor if wavelength > low else 0.5
                )
            ),
        },
    ),
    "served_factor": Exercise(
        reference=_served_factor,
        also=(_served_factor_exact,),
        cases=[(6000, 2192, 3072, 4096), (1000, 500, 3072, 4096), (3000, 500, 3072, 4096), (8192, 0, 2048, 8192)],
        mistakes={
            "the declared window has not been trained: divide by the length that the model has seen": (
                lambda prompt, max_new, seen, declared: max(1.0, (prompt + max_new) / declared)
            ),
            "a larger factor than needed slows the hands for nothing: do not round it up": (
                lambda prompt, max_new, seen, declared: max(1, math.ceil((prompt + max_new) / seen))
            ),
            "this stretches to the declared window, whatever the request: its own length is prompt + max_new": (
                lambda prompt, max_new, seen, declared: declared / seen
            ),
            "the declared window does not cap the length: a request beyond it still shows its angles": (
                lambda prompt, max_new, seen, declared: max(1.0, min(prompt + max_new, declared) / seen)
            ),
            "the answer counts too: its last token stands at prompt + max_new": (
                lambda prompt, max_new, seen, declared: max(1.0, prompt / seen)
            ),
            "a text that fits needs no change: the factor is at least 1": (
                lambda prompt, max_new, seen, declared: (prompt + max_new) / seen
            ),
            "this waits until the declared window is full, but angles are new from the seen length on": (
                lambda prompt, max_new, seen, declared: (
                    (prompt + max_new) / seen if prompt + max_new > declared else 1.0
                )
            ),
        },
    ),
    "longrope": Exercise(
        reference=_longrope,
        cases=[
            (4096, 4096, _OMEGAS, _SHORT, _LONG),
            (4097, 4096, _OMEGAS, _SHORT, _LONG),
            (100, 4096, _OMEGAS, _SHORT, _LONG),
            (131_072, 4096, _OMEGAS, _SHORT, _LONG),
            (300, 200, [1.0, 0.5], [1.0, 1.5], [2.0, 4.0]),
        ],
        mistakes={
            "off by one: a text of exactly the training length still has the short factors": (
                lambda length, train_length, frequencies, short, long: _longrope(
                    length + 1, train_length, frequencies, short, long
                )
            ),
            "the factors divide the frequencies: a factor of 8 makes a pair 8 times slower": (
                lambda length, train_length, frequencies, short, long: [
                    omega * factor
                    for omega, factor in zip(frequencies, long if length > train_length else short, strict=True)
                ]
            ),
            "turned round: the long factors are for texts beyond the training length": (
                lambda length, train_length, frequencies, short, long: _longrope(
                    length, train_length, frequencies, long, short
                )
            ),
            "short texts have factors of their own: they are not plain RoPE": (
                lambda length, train_length, frequencies, short, long: (
                    _longrope(length, train_length, frequencies, short, long)
                    if length > train_length
                    else list(frequencies)
                )
            ),
        },
    ),
}
