"""Exercises of chapter 10."""

from __future__ import annotations

import math
from functools import partial
from itertools import combinations
from secrets import randbits
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from rope_lessons.exercises import Exercise, Lab, NotAnswered, WrongKind
from rope_lessons.random_positions import random_positions, skip_positions
from rope_lessons.sinusoidal import rope_frequencies


def _mean(token: int, length: int, max_length: int) -> float:
    return (token + 1) * (max_length + 1) / (length + 1) - 1


def _grid(length: int, max_length: int) -> list[int]:
    return [i * max_length // length for i in range(length)]


def _lines(length: int, max_length: int, omegas: Tensor) -> Tensor:
    gaps = range(1, max_length - length + 2)
    shares = torch.tensor([math.comb(max_length - g, length - 1) / math.comb(max_length, length) for g in gaps])
    return (shares * torch.exp(1j * omegas[:, None] * torch.tensor(gaps))).sum(dim=1)


def _lost(length: int, max_length: int, omegas: Tensor) -> int:
    return int((_lines(length, max_length, omegas).abs() < 0.5**0.5).sum())


def _chance(draws: int, mean: float, end: float) -> float:
    return 1 - (1 - math.exp(-end / mean)) ** draws


def _beta(alpha: float, length: int, max_length: int) -> float:
    return alpha * ((max_length - 1) / (length - 1) - 1)


def _subset(keys: Tensor, length: int) -> Tensor:
    return keys.topk(length, dim=-1).indices.sort(dim=-1).values


def _pairs(distance: int, length: int, max_length: int) -> float:
    return (max_length - distance) * length * (length - 1) / (max_length * (max_length - 1))


def _often(draws: Tensor, distance: float) -> float:
    return (draws[:, -1] - draws[:, 0] >= distance).double().mean().item()


LAB_TOKENS, LAB_LENGTH, LAB_TEXTS = 64, 512, 3000
LAB_NEIGHBOURS, LAB_JUMPS = 0.95, 0.2  # of all neighbours one apart; of the texts with more than one jump
LAB_SKIP = 16  # a gap above that is a jump


def _lab(positions: Any) -> str:
    """What so many texts show."""
    if not callable(positions):
        raise WrongKind("give a function that takes a generator")
    drawn = _drawn(positions, 0, LAB_TEXTS)
    if not torch.equal(drawn[:50], _drawn(positions, 0, 50)):
        return "not reproducible: two generators with one seed gave different texts"
    if torch.equal(drawn[:50], _drawn(positions, 1, 50)):
        return "no chance: generators with different seeds gave the same texts"
    gaps = drawn.diff(dim=1)
    kept = (gaps == 1).double().mean().item()
    if kept < LAB_NEIGHBOURS:
        return f"neighbours disturbed: {kept:.1%} of them are one apart"
    apart = drawn[:, None, :] - drawn[:, :, None]
    missing = sorted(set(range(1, LAB_LENGTH)) - set(apart.unique().tolist()))
    if missing:
        return f"not all shown: {len(missing)} of {LAB_LENGTH - 1} distances are missing; the first is {missing[0]}"
    several = ((gaps > LAB_SKIP).sum(dim=1) > 1).double().mean().item()
    if several < LAB_JUMPS:
        return f"one jump only: {several:.1%} of the texts have two gaps above {LAB_SKIP}"
    return ""


def _drawn(positions: Any, seed: int, texts: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    found = [positions(generator) for _ in range(texts)]
    if found[0] is None:
        raise NotAnswered
    drawn = [torch.as_tensor(text) for text in found]
    if any(text.shape != (LAB_TOKENS,) or text.is_floating_point() for text in drawn):
        raise WrongKind(f"give a list of {LAB_TOKENS} whole numbers")
    together = torch.stack(drawn)
    if together.min() < 0 or together.max() >= LAB_LENGTH or together.diff(dim=1).min() < 1:
        raise WrongKind(f"give increasing numbers from 0 to {LAB_LENGTH - 1}")
    return together


def _jumps(jumps: int, generator: torch.Generator) -> list[int]:
    """``jumps`` cuts at different places, which share what there is to skip."""
    cuts = torch.randperm(LAB_TOKENS - 1, generator=generator)[:jumps] + 1
    skipped = torch.randint(LAB_LENGTH - LAB_TOKENS + 1, (jumps,), generator=generator).sort().values.tolist()
    token = torch.arange(LAB_TOKENS)
    for cut, skip, before in zip(cuts.sort().values.tolist(), skipped, [0, *skipped], strict=False):
        token = token + (skip - before) * (torch.arange(LAB_TOKENS) >= cut)
    return token.tolist()


def _half(generator: torch.Generator) -> list[int]:
    """Two jumps which use at most half of what there is to skip."""
    return [position - (position - i) // 2 for i, position in enumerate(_jumps(2, generator))]


def _small_second(generator: torch.Generator) -> list[int]:
    """One jump, and a gap of 2 elsewhere that brings nothing far together."""
    token, cut = torch.arange(LAB_TOKENS), int(torch.randint(1, LAB_TOKENS, (1,), generator=generator))
    positions = skip_positions(LAB_TOKENS, LAB_LENGTH - 1, generator=generator) + (token >= cut)
    return positions.tolist()


_keys = torch.rand(3, 9, generator=torch.Generator().manual_seed(0))

EXERCISES: dict[str, Exercise | Lab] = {
    "lab": Lab(
        grade=_lab,
        reference=partial(_jumps, 2),
        mistakes={
            "neighbours disturbed": lambda generator: random_positions(64, 512, generator=generator),
            "one jump only": lambda generator: skip_positions(64, 512, generator=generator),
            "one jump only: 0.0% of the texts have two gaps above 16": _small_second,
            "neighbours disturbed: 93": partial(_jumps, 4),
            "not all shown": _half,
            # Cheating: a fixed text, or chance from elsewhere.
            "no chance": lambda generator: [*range(63), 511],
            "not reproducible": lambda generator: _jumps(2, torch.Generator().manual_seed(randbits(32))),
            "give a function": [*range(64)],
            "give a list of 64 whole numbers": lambda generator: [8.0 * i for i in range(64)],
            "give increasing numbers": lambda generator: [0] * 64,
        },
    ),
    "often": Exercise(
        reference=_often,
        cases=[(torch.tensor([[0, 1, 2, 7], [3, 4, 5, 8], [5, 7, 8, 9.5]]), distance) for distance in (3, 4.5, 5, 7)],
        mistakes={
            "at least: a pair at exactly this distance counts": lambda x, d: _often(x, d + 1e-3),
            "all pairs of a text count, not only neighbours": lambda x, d: (x.diff().amax(1) >= d).double().mean(),
            "count texts, not pairs": lambda x, d: fmean(
                _often(x[:, [i, j]], d) for i, j in combinations(range(x.shape[1]), 2)
            ),
            "a text need not begin at 0: ask for a distance, not a position": lambda x, d: (
                (x[:, -1] >= d).double().mean()
            ),
            "a share: divide by the number of texts": lambda x, d: len(x) * _often(x, d),
        },
    ),
    "mean": Exercise(
        reference=_mean,
        cases=[(0, 3, 5), (1, 3, 5), (2, 3, 5), (0, 64, 2048), (31, 64, 2048), (4, 5, 5)],
        mistakes={
            "token i has i + 1 gaps before it, and the first of them begins at -1, one place before position 0": (
                lambda i, n, p: i * (p + 1) / (n + 1)
            ),
            "take 1 off: the first gap begins one place before position 0": lambda i, n, p: (i + 1) * (p + 1) / (n + 1),
            "this is an even grid from end to end; the draws leave a gap at both ends": (
                lambda i, n, p: i * (p - 1) / (n - 1)
            ),
            "this is the grid of the test, which begins at 0; the draws leave a gap at both ends": lambda i, n, p: (
                i * p / n
            ),
            "a mean need not be whole: divide with /": lambda i, n, p: (i + 1) * (p + 1) // (n + 1) - 1,
            "there are N + 1 gaps, one more than tokens, and together they are P + 1 long": (
                lambda i, n, p: (i + 1) * p / n - 1
            ),
        },
    ),
    "grid": Exercise(
        reference=_grid,
        cases=[(5, 20), (4, 4), (3, 10), (7, 16), (1, 9)],
        mistakes={
            "this ends at P - 1; here the step is P / L, so that one more step would end at P": (
                lambda n, p: [i * (p - 1) // max(1, n - 1) for i in range(n)]
            ),
            "divide last: a step that is rounded first leaves the end of the range empty": (
                lambda n, p: [i * (p // n) for i in range(n)]
            ),
            "positions are whole numbers: round down": lambda n, p: [i * p / n for i in range(n)],
            "round down, not to the nearest": lambda n, p: [round(i * p / n) for i in range(n)],
            "begin at 0": lambda n, p: [(i + 1) * p // n for i in range(n)],
        },
    ),
    "lost": Exercise(
        reference=_lost,
        cases=[(n, p, rope_frequencies(64)) for n, p in ((64, 512), (64, 2048), (4, 99))],
        mistakes={
            "gaps are not exponential: take their own distribution": lambda n, p, w: (w * (p + 1) > n + 1).sum(),
            "these are not lost": lambda n, p, w: len(w) - _lost(n, p, w),
            "the sines count, too": lambda n, p, w: (_lines(n, p, w).real < 0.5**0.5).sum(),
            "average the directions, not the gaps": lambda n, p, w: 0,
        },
    ),
    "chance": Exercise(
        reference=_chance,
        cases=[(1, 63, 63), (1000, 63, 511), (16000, 63, 511), (10, 1, 2.5)],
        mistakes={
            "this is the expected number of such draws; it may be above 1": (
                lambda s, mean, end: s * math.exp(-end / mean)
            ),
            "this is the chance that all draws are so long": lambda s, mean, end: math.exp(-end / mean) ** s,
            "this is the chance that none is so long": lambda s, mean, end: (1 - math.exp(-end / mean)) ** s,
            "this is the chance that not all draws are so long": lambda s, mean, end: 1 - math.exp(-end / mean) ** s,
            "the exponent is end / mean": lambda s, mean, end: 1 - (1 - math.exp(-mean / end)) ** s,
        },
    ),
    "beta": Exercise(
        reference=_beta,
        cases=[(0.25, 64, 512), (1.0, 64, 512), (0.5, 2, 11), (2.0, 64, 127)],
        mistakes={
            "the mean of Beta(α, β) is α / (α + β): you took the share for β itself": (
                lambda a, n, m: a * (m - 1) / (n - 1)
            ),
            "the last position of N tokens is N - 1, and of L tokens L - 1": lambda a, n, m: a * (m / n - 1),
            "turned round: this makes the mean of 1 - x right": lambda a, n, m: a / ((m - 1) / (n - 1) - 1),
        },
    ),
    "subset": Exercise(
        reference=_subset,
        also=(lambda keys, length: _subset(-keys, length),),
        cases=[(_keys, 4), (_keys, 1), (_keys[:1], 9)],
        mistakes={
            "the right places, in the order of their keys: sort them": lambda x, n: x.topk(n, dim=-1).indices,
            "these are the keys; the positions are where the keys stand": (
                lambda x, n: x.topk(n, dim=-1).values.sort(dim=-1).values
            ),
            "all rows got the draw of the first row": (lambda x, n: _subset(x[:1], n).expand(len(x), n)),
        },
    ),
    "pairs": Exercise(
        reference=_pairs,
        cases=[(1, 3, 5), (4, 3, 5), (1, 64, 2048), (511, 64, 2048), (2047, 64, 2048)],
        mistakes={
            "that many pairs of places there are; a pair of places is only sometimes a pair of tokens": (
                lambda d, n, p: float(p - d)
            ),
            "the two draws are not independent: after the first, N - 1 tokens are left for P - 1 places": (
                lambda d, n, p: (p - d) * (n / p) ** 2
            ),
            "you counted every pair of tokens twice": lambda d, n, p: 2 * _pairs(d, n, p),
            "this counts the pairs that are at least so far apart": (
                lambda d, n, p: (p - d) * (p - d + 1) / 2 * n * (n - 1) / (p * (p - 1))
            ),
        },
    ),
}
