"""The exercise of the quickstart."""

from __future__ import annotations

import torch

from rope_lessons.exercises import Exercise
from rope_lessons.rotary import apply_rotary
from rope_lessons.sinusoidal import rope_frequencies


def _turned(tokens, layout="interleaved"):
    return lambda q, m, n, speeds: apply_rotary(q, torch.tensor([tokens(m, n)]), speeds, layout=layout)


def _query(seed, dim):
    return torch.randn(1, dim, generator=torch.Generator().manual_seed(seed))


EXERCISES = {
    "turn_query": Exercise(
        reference=_turned(lambda m, n: m - n),
        cases=(
            (_query(0, 4), 3, 1, rope_frequencies(4)),
            (_query(1, 8), 103, 101, rope_frequencies(8)),
            (_query(2, 4), 2, 7, rope_frequencies(4)),
        ),
        tolerance=1e-5,
        mistakes={
            "this turns the query by its own position, but the key has not been turned by its": _turned(lambda m, n: m),
            "this turns it the wrong way: the query is m − n tokens ahead of the key": _turned(lambda m, n: n - m),
            "the key's turn has to be taken off, not added": _turned(lambda m, n: m + n),
            "the pairs are interleaved here: layout='interleaved'": _turned(lambda m, n: m - n, "half"),
            "n may be after m, and then the query turns back: m − n keeps its sign": _turned(lambda m, n: abs(m - n)),
            "the query has not been turned": lambda q, m, n, speeds: q,
        },
    ),
}
