"""Exercises of chapter 10."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rope_lessons.exercises import Exercise


def _mean(token: int, length: int, max_length: int) -> float:
    return (token + 1) * (max_length + 1) / (length + 1) - 1


def _grid(length: int, max_length: int) -> list[int]:
    return [i * max_length // length for i in range(length)]


def _gap(gap: int, length: int, max_length: int) -> float:
    return math.comb(max_length - gap, length - 1) / math.comb(max_length, length)


def _chance(draws: int, mean: float, end: float) -> float:
    return 1 - (1 - math.exp(-end / mean)) ** draws


def _beta(alpha: float, length: int, max_length: int) -> float:
    return alpha * ((max_length - 1) / (length - 1) - 1)


def _subset(keys: Tensor, length: int) -> Tensor:
    return keys.topk(length, dim=-1).indices.sort(dim=-1).values


def _pairs(distance: int, length: int, max_length: int) -> float:
    return (max_length - distance) * length * (length - 1) / (max_length * (max_length - 1))


_keys = torch.rand(3, 9, generator=torch.Generator().manual_seed(0))

EXERCISES = {
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
            "begin at 0": lambda n, p: [(i + 1) * p // n for i in range(n)],
        },
    ),
    "gap": Exercise(
        reference=_gap,
        cases=[(1, 3, 5), (2, 3, 5), (3, 3, 5), (1, 64, 2048), (32, 64, 2048), (4, 3, 5)],
        mistakes={
            "the smallest gap is 1: neighbours never stand on the same place": (
                lambda g, n, p: math.comb(p - g - 1, n - 1) / math.comb(p, n)
            ),
            "with the first gap fixed, N - 1 tokens are left to place, not N": (
                lambda g, n, p: math.comb(p - g, n) / math.comb(p, n)
            ),
            "you drew each place on its own, with probability N / P: that gives a geometric gap; a subset has exactly "
            "N places": lambda g, n, p: n / p * (1 - n / p) ** (g - 1),
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
            "this counts the pairs that are at least so far apart": (
                lambda d, n, p: (p - d) * (p - d + 1) / 2 * n * (n - 1) / (p * (p - 1))
            ),
        },
    ),
}
