"""Exercises of chapter 02."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from rope_lessons.exercises import Exercise, Lab, WrongKind
from rope_lessons.rotary import apply_rotary
from rope_lessons.sinusoidal import rope_frequencies


def _turn(x0, x1, angle):
    return x0 * math.cos(angle) - x1 * math.sin(angle), x0 * math.sin(angle) + x1 * math.cos(angle)


def _turn_overwritten(x0, x1, angle):
    x0 = x0 * math.cos(angle) - x1 * math.sin(angle)
    return x0, x0 * math.sin(angle) + x1 * math.cos(angle)


def _rotary(layout, sign=1):
    return lambda x, positions, frequencies: apply_rotary(x, sign * positions, frequencies, layout=layout)


def _move_key(change):
    return lambda key, old, new, frequencies: apply_rotary(
        key, torch.tensor([change(old, new)]), frequencies, layout="half"
    )


def _interleave(x):
    return torch.stack(x.chunk(2, dim=-1), dim=-1).flatten(-2)


def _example(seq, dim, seed=0, start=5):
    x = torch.randn(seq, dim, generator=torch.Generator().manual_seed(seed))
    return x, torch.arange(seq) + start, rope_frequencies(dim)


def _rotary_float32(x, positions, frequencies):
    angles = positions[:, None].float() * frequencies.float()
    x0, x1 = x.chunk(2, dim=-1)
    return torch.cat((x0 * angles.cos() - x1 * angles.sin(), x0 * angles.sin() + x1 * angles.cos()), dim=-1)


def _half_overwritten(x, positions, frequencies):
    angles = positions[:, None] * frequencies
    x0, x1 = x.chunk(2, dim=-1)
    x0 = x0 * angles.cos() - x1 * angles.sin()
    return torch.cat((x0, x0 * angles.sin() + x1 * angles.cos()), dim=-1)


def _cut_interleaved(x, positions, frequencies):
    """The right end, the wrong beginning."""
    turned = _rotary("interleaved")(x, positions, frequencies)
    return torch.cat((turned[..., 0::2], turned[..., 1::2]), dim=-1)


LAB_DIM, LAB_BACK, LAB_LENGTH = 16, 3, 8.0
LAB_WANTED = {64: 85.0, 512: 80.0}  # tokens in the text: percent of the attention


def _lab_attention(answer: Any, length: int) -> torch.Tensor:
    """What the last token of a text gives to each distance, in percent."""
    q, k = (torch.as_tensor(vector, dtype=torch.float64) for vector in answer)
    frequencies = rope_frequencies(LAB_DIM)
    query = apply_rotary(q[None], torch.tensor([length - 1]), frequencies, layout="interleaved")
    keys = apply_rotary(k.expand(length, -1), torch.arange(length), frequencies, layout="interleaved")
    return 100 * (keys @ query[0] / math.sqrt(LAB_DIM)).softmax(0).flip(0)


def _lab_told(answer: Any) -> str:
    """What the token three back gets; one decimal, so that what is just too little does not look enough."""
    shares = {length: float(_lab_attention(answer, length)[LAB_BACK]) for length in LAB_WANTED}
    return " and ".join(f"{share:.1f} % in {length} tokens" for length, share in shares.items())


def _lab(answer: Any) -> str:
    """How much of the attention of one head goes to the token three back, in a short text and in a long one."""
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise WrongKind("give a pair (q, k): a query and a key, for all tokens the same")
    q, k = (torch.as_tensor(vector, dtype=torch.float64) for vector in answer)
    if q.shape != (LAB_DIM,) or k.shape != (LAB_DIM,) or not bool(torch.isfinite(q).all() and torch.isfinite(k).all()):
        raise WrongKind(f"query and key must be {LAB_DIM} finite numbers each, for every token the same")
    if max(float(q.norm()), float(k.norm())) > LAB_LENGTH + 1e-6:
        return f"an arrow is too long: neither q nor k may be longer than {LAB_LENGTH:g}"
    found = {length: _lab_attention(answer, length) for length in LAB_WANTED}
    swapped = _lab_attention((k, q), 64)
    if float(found[64][LAB_BACK]) < LAB_WANTED[64] / 2 < float(swapped[LAB_BACK]):
        return f"query and key are swapped: the score is largest at a distance of −{LAB_BACK}, ahead of the query"
    for length, place in ((64, "too little at home"), (512, "lost in the long text")):
        if float(found[length][LAB_BACK]) < LAB_WANTED[length]:
            others = found[length].clone()
            others[LAB_BACK] = 0
            rival = int(others.argmax())
            return (
                f"{place}: {_lab_told(answer)}; {LAB_WANTED[length]:.0f} % in {length} tokens are wanted, and there "
                f"the distance {rival} takes {float(others[rival]):.1f} %"
            )
    return ""


def _lab_head(shares: Sequence[float], back: int = LAB_BACK, length: float = LAB_LENGTH) -> tuple[Any, Any]:
    """Query and key whose arrows have these shares of the squared length, the key's ahead by ``back`` tokens."""
    size = (torch.tensor(shares, dtype=torch.float64) / sum(shares)).sqrt() * length
    angle = back * rope_frequencies(LAB_DIM)
    q = torch.stack((size, torch.zeros_like(size)), dim=-1).flatten()
    return q, torch.stack((size * angle.cos(), size * angle.sin()), dim=-1).flatten()


EXERCISES: dict[str, Exercise | Lab] = {
    "lab": Lab(
        grade=_lab,
        reference=_lab_head([3, 1, 1, 1, 1, 0, 0, 0]),
        mistakes={
            # Equal shares, of however many pairs.
            "too little at home: 48.8 % in 64 tokens and 45.8 % in 512 tokens": _lab_head([1] * 8),
            "too little at home: 70.4 % in 64 tokens and 69.8 % in 512 tokens": _lab_head([1] * 5 + [0] * 3),
            "too little at home: 79.1 % in 64 tokens and 50.5 % in 512 tokens": _lab_head([1] * 4 + [0] * 4),
            "too little at home: 84.5 % in 64 tokens and 26.1 % in 512 tokens": _lab_head([1] * 3 + [0] * 5),
            "too little at home: 0.4 %": (torch.ones(16) * 2, torch.ones(16) * 2),  # looks at itself
            "lost in the long text: 90.6 % in 64 tokens and 44.9 % in 512 tokens; 80 % in 512 tokens are wanted, and "
            "there the distance 380 takes 30.6 %": _lab_head([4, 3, 2, 1, 0, 0, 0, 0]),
            "query and key are swapped": _lab_head([3, 1, 1, 1, 1, 0, 0, 0])[::-1],
            # Cheating: with long enough arrows any head is sharp.
            "an arrow is too long": _lab_head([1] * 8, length=100.0),
            "query and key must be 16 finite numbers": (torch.full((16,), math.inf), torch.ones(16)),
        },
        reached=_lab_told,
    ),
    "turn": Exercise(
        reference=_turn,
        cases=((1.0, 0.0, 0.3), (2.0, -1.0, 1.2), (0.5, 0.25, -2.0)),
        mistakes={
            "this turns clockwise: look at the sign of the two sines": lambda a, b, angle: _turn(a, b, -angle),
            "the two results are swapped: the first channel comes first": lambda a, b, angle: _turn(a, b, angle)[::-1],
            "you overwrote x0 before x1 was computed: both results need the old x0": _turn_overwritten,
            "the angle is in radians": lambda a, b, angle: _turn(a, b, math.radians(angle)),
        },
        raises={TypeError: "the angle is a Python float: take math.cos and math.sin"},
    ),
    "direction": Exercise(
        reference=6.0,
        mistakes={
            "this is the cosine part alone: q and k are perpendicular, and the sine part is what is left": 0.0,
            "right size, wrong sign: the score turns the query by +Δω, and here Δ = 8 − 7 = +1": -6.0,
        },
    ),
    "half_layout": Exercise(
        reference=_rotary("half"),
        cases=(_example(3, 8), _example(5, 4), _example(2, 8, start=100_003)),
        tolerance=1e-5,
        mistakes={
            "these are interleaved pairs (2t, 2t + 1); here channel t goes with channel t + d/2": _rotary(
                "interleaved"
            ),
            "every pair turns the wrong way: check which of the two products with the sine is subtracted": _rotary(
                "half", sign=-1
            ),
            "the channels turn rightly but come back interleaved: put the two halves together with torch.cat": (
                lambda *case: _interleave(_rotary("half")(*case))
            ),
            "you cut the pairs as neighbours, x[..., 0::2], and joined them as halves: cut with x.chunk(2, dim=-1)": (
                _cut_interleaved
            ),
            "you overwrote x0 before x1 was computed: both results need the old x0": _half_overwritten,
            "right up to rounding: position 100,003 shows that the angles are in float32; keep them in float64": (
                _rotary_float32
            ),
        },
    ),
    "reorder": Exercise(
        reference=lambda dim: [*range(0, dim, 2), *range(1, dim, 2)],
        cases=((4,), (8,), (12,)),
        mistakes={
            "this is the inverse, from half to interleaved: entry c must say which old channel comes to place c": (
                lambda dim: [c // 2 + (c % 2) * (dim // 2) for c in range(dim)]
            ),
            "the number of a channel is whole: divide with //": (
                lambda dim: [2 * c % dim + 2 * c / dim for c in range(dim)]
            ),
            "this leaves the channels where they are": lambda dim: list(range(dim)),
            "the first half must hold the first members of the pairs, the even channels": (
                lambda dim: [*range(1, dim, 2), *range(0, dim, 2)]
            ),
        },
    ),
    "merge": Exercise(
        reference=407,  # 0 … 255, every second one to 510, every fourth one to 600
        mistakes={
            "that would be all of them, but past 256 not every integer exists in bfloat16": 600,
            "the last tokens are rounded up: 599 lies nearer to 600 than to 596": 406,
            "past 256 positions still exist, only not all of them": 257,
            "the spacing doubles again at 512: from there on only every fourth one exists": 429,
        },
    ),
    "move_key": Exercise(
        reference=_move_key(lambda old, new: new - old),
        cases=(
            (_example(1, 8, seed=1)[0], 5, 2, rope_frequencies(8)),
            (_example(1, 8, seed=2)[0], 0, 9, rope_frequencies(8)),
            (_example(1, 8, seed=3)[0], 40, 41, rope_frequencies(8)),
            (_example(1, 6)[0], 7, 3, rope_frequencies(6, 100.0)),
        ),
        tolerance=1e-5,
        mistakes={
            "the key has been turned by its old position already: turn it only by what is missing": _move_key(
                lambda old, new: new
            ),
            "this turns it the wrong way: from old to new is new − old": _move_key(lambda old, new: old - new),
            "the pairs are interleaved here; the cache is in the half layout": lambda key, old, new, frequencies: (
                apply_rotary(key, torch.tensor([new - old]), frequencies, layout="interleaved")
            ),
            "the key has not moved": lambda key, old, new, frequencies: key,
        },
    ),
    "covered": Exercise(
        reference=lambda frequencies, train_length: [
            int(t) for t in range(len(frequencies)) if frequencies[t] * (train_length - 1) < 2 * math.pi
        ],
        cases=((rope_frequencies(16), 64), (rope_frequencies(64), 512), (rope_frequencies(64), 63)),
        mistakes={
            "these are the pairs that do complete a turn; the question asks for the others": lambda frequencies, n: [
                t for t in range(len(frequencies)) if frequencies[t] * (n - 1) >= 2 * math.pi
            ],
            "a whole turn is 2π radians, not 1": lambda frequencies, n: [
                t for t in range(len(frequencies)) if frequencies[t] * (n - 1) < 1
            ],
            "a whole turn is 2π radians, not π": lambda frequencies, n: [
                t for t in range(len(frequencies)) if frequencies[t] * (n - 1) < math.pi
            ],
            "the largest distance in training is one less than the length": lambda frequencies, n: [
                t for t in range(len(frequencies)) if frequencies[t] * n < 2 * math.pi
            ],
            "this is the first of them only; list them all": lambda frequencies, n: next(
                t for t in range(len(frequencies)) if frequencies[t] * (n - 1) < 2 * math.pi
            ),
            "this is one truth value for each pair; list the numbers t of the pairs": lambda frequencies, n: [
                frequencies[t] * (n - 1) < 2 * math.pi for t in range(len(frequencies))
            ],
        },
    ),
}
