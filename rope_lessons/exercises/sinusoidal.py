"""Exercises of chapter 01."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rope_lessons.exercises import Exercise
from rope_lessons.sinusoidal import rope_frequencies, sinusoidal_kernel

EULER_GAMMA = 0.5772156649015329


def _encoding(positions, dim, exponent=2.0, cosine_first=False, halves=False):
    angles = positions.double().unsqueeze(-1) * 10_000.0 ** (-exponent * torch.arange(dim // 2).double() / dim)
    parts = (angles.cos(), angles.sin()) if cosine_first else (angles.sin(), angles.cos())
    return torch.cat(parts, dim=-1) if halves else torch.stack(parts, dim=-1).flatten(-2)


def _shift(k, frequencies, sign=1):
    blocks = []
    for angle in (sign * k * frequencies).tolist():
        blocks.append(torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]).double())
    return torch.block_diag(*blocks)


def _split(block):
    (p, q), (r, s) = torch.as_tensor(block).tolist()
    return (p + s) / 2, (q - r) / 2, (s - p) / 2, (q + r) / 2


def _swap(order, signs=(1, 1, 1, 1)):
    return lambda block: tuple(sign * _split(block)[k] for k, sign in zip(order, signs, strict=True))


def _first_return(frequencies, tolerance, limit, start=1, size=False):
    distance = torch.arange(start, limit + 1)
    kernel = sinusoidal_kernel(distance, frequencies)
    hits = distance[(kernel.abs() if size else kernel) > 1 - tolerance]
    return int(hits[0]) if len(hits) else -1


def _power_frequencies(dim, exponent):
    u = torch.arange(0, dim, 2, dtype=torch.float64) / dim
    return (1 - u) ** exponent


def _as_tensor(answer) -> Tensor:
    return torch.as_tensor(answer).double()


EXERCISES = {
    "inner_product": Exercise(
        reference=math.cos(2) + math.cos(0.02),
        tolerance=1e-3,
        mistakes={
            "this is the kernel K, already divided by d/2 = 2": (math.cos(2) + math.cos(0.02)) / 2,
            "you used m + n = 8; the two cosines take the difference m − n": math.cos(8) + math.cos(0.08),
            "this is the fast pair alone; the slow pair adds cos(0.02)": math.cos(2),
        },
    ),
    "encoding": Exercise(
        reference=_encoding,
        cases=((torch.arange(5), 4), (torch.tensor([[0, 7], [100, 4095]]), 8)),
        normalise=_as_tensor,
        mistakes={
            "sine and cosine are swapped: the even channel 2t is the sine": lambda p, d: _encoding(
                p, d, cosine_first=True
            ),
            "the exponent is 2t/d, not t/d: the last pair should have a frequency near 1/10000": lambda p, d: _encoding(
                p, d, exponent=1.0
            ),
            "all sines come first here; the book's order is sine, cosine, sine, cosine, …": lambda p, d: _encoding(
                p, d, halves=True
            ),
        },
    ),
    "shift_matrix": Exercise(
        reference=_shift,
        cases=((1, rope_frequencies(4)), (5, rope_frequencies(6)), (-3, rope_frequencies(4))),
        normalise=_as_tensor,
        mistakes={
            "this goes k positions back: transpose it (sin(a + b) = sin a cos b + cos a sin b)": lambda k, w: _shift(
                k, w, sign=-1
            ),
            "this moves one position whatever k is: the angle is k times the frequency": lambda k, w: _shift(1, w),
        },
    ),
    "half_distance": Exercise(
        reference=lambda base: math.sqrt(base) * math.exp(-EULER_GAMMA),
        cases=((10_000.0,), (100.0,), (500_000.0,)),
        tolerance=1e-3,
        mistakes={
            "nearly: you left out Euler's γ": lambda base: math.sqrt(base),
            "this is where the law reaches 0, not one half": lambda base: base * math.exp(-EULER_GAMMA),
            "half of the base is not where the law is one half: it is linear in ln Δ, not in Δ": lambda base: base / 2,
        },
    ),
    "split_block": Exercise(
        reference=_split,
        cases=(
            (torch.tensor([[1.0, 2.0], [3.0, 5.0]]),),
            (torch.tensor([[2.0, -1.0], [1.0, 2.0]]),),
            (torch.tensor([[1.0, 0.5], [0.5, -1.0]]),),
        ),
        mistakes={
            "the term with sin((m − n)ω) has the wrong sign: sin mω cos nω carries +1/2 of it": _swap(
                (0, 1, 2, 3), (1, -1, 1, 1)
            ),
            "the term with cos((m + n)ω) has the wrong sign: sin mω sin nω carries −1/2 of it": _swap(
                (0, 1, 2, 3), (1, 1, -1, 1)
            ),
            "m − n and m + n are swapped: the difference comes first": _swap((2, 3, 0, 1)),
        },
    ),
    "first_return": Exercise(
        reference=_first_return,
        cases=(
            (rope_frequencies(4), 0.05, 1000),
            (rope_frequencies(4), 0.002, 1000),
            (rope_frequencies(6, 100.0), 0.05, 20_000),
            (rope_frequencies(2), 1.5, 10),
        ),
        mistakes={
            "you found distance 0, which every kernel starts from: begin at 1": lambda w, e, limit: _first_return(
                w, e, limit, start=0
            ),
            "K near −1 is as far from 1 as it gets: don't take the absolute value": lambda w, e, limit: _first_return(
                w, e, limit, size=True
            ),
        },
    ),
    "power_frequencies": Exercise(
        reference=lambda dim, alpha: _power_frequencies(dim, 1 / alpha),
        cases=((8, 0.5), (16, 0.25), (64, 0.125)),
        normalise=_as_tensor,
        mistakes={
            "the exponent is upside down: frequencies v**a give a decay with power 1/a": lambda dim, alpha: (
                _power_frequencies(dim, alpha)
            ),
            "right power, but the slowest pair comes first: pair 0 should have frequency 1": lambda dim, alpha: (
                _power_frequencies(dim, 1 / alpha).flip(0)
            ),
        },
    ),
}
