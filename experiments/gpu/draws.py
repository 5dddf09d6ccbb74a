"""Random calls of ``attention``, drawn without any package: every scheme in turn, at the edges of things."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import rope_lessons as rl
from rope_lessons import FrequencySpec, LogN, Scheme
from rope_lessons.kinds import KINDS
from rope_lessons.schemes import SCHEMES
from tests.fuzz.case import INPUTS, Case, Positions, inf, nan
from tests.fuzz.memory import ORDERS, Memory

HEAD_DIMS = (8, 16, 20, 64, 64, 72, 128)  # 20 is no multiple of what kernels ask for
LENGTHS = (1, 2, 31, 63, 64, 65, 127, 128, 129, 200, 255, 257)  # around the blocks of kernels


def case(number: int, dtype: str, lengths: tuple[int, ...] = LENGTHS, plain: bool = False) -> Case:
    """A call, a function of its number.

    Args:
        number: says which scheme, and is the seed of the rest.
        dtype: of queries, keys and values.
        lengths: of the keys.
        plain: contiguous, with all tokens, positions 0, 1, 2, …: what costs one compilation for each scheme.
    """
    draw = Random(f"{number} {dtype}")
    k_len = draw.choice(lengths)
    head_dim, group, kv_heads = draw.choice(HEAD_DIMS), draw.choice((1, 1, 2, 4)), draw.choice((1, 2))
    q_len = k_len if draw.random() < 0.7 else draw.randint(1, k_len)
    scheme = scheme_of(SCHEMES[number % len(SCHEMES)], head_dim, k_len, draw)
    batch = draw.choice((1, 2, 3))
    found = Case(
        scheme=scheme, seed=number, batch=batch, kv_heads=kv_heads, group=group, q_len=q_len, before=k_len - q_len,
        head_dim=head_dim, value_dim=draw.choice((head_dim, head_dim, 16, 136)), dtype=dtype,
        size=draw.choice((1.0, 1.0, 3.0)), requires=("q", "k", "v"), through=draw.choice(("output", "lse", "both")),
    )  # fmt: skip
    if plain:
        return replace(found, value_dim=head_dim)
    q, k, v, grad = (draw.choice((Memory(), memory_of(draw))) for _ in range(4))
    found = replace(found, q=q, k=k, v=v, grad=grad, strided=draw.random() < 0.3)
    kind = draw.choice(("", "", "lengths", "documents", "positions", "frequencies"))
    if kind == "lengths":
        some = tuple(draw.randint(0, k_len) for _ in range(batch))
        return replace(found, lengths=some, padding=draw.choice((None, nan, inf)))
    if kind == "documents":
        rows = tuple(
            tuple((draw.choice((0, 1, 5, -1)), draw.randint(1, k_len)) for _ in range(3)) for _ in range(batch)
        )
        return replace(found, documents=rows, padding=draw.choice((None, nan)))
    if kind == "positions":
        shape = draw.choice(("even", "even", "fractional", "jumps"))
        start, length = draw.choice((0, 17, 2**20)), k_len if needs_length(scheme) else None
        return replace(found, positions=Positions(shape, start, draw.choice((1, 2))), length=length)
    if kind == "frequencies":
        requires = (*INPUTS[:3], "frequencies")
        return replace(found, frequencies=head_dim // 4, per_head=draw.random() < 0.5, requires=requires)
    return found


def needs_length(scheme: Scheme) -> bool:
    return scheme.frequencies is not None and scheme.frequencies.needs_length


def scheme_of(name: str, head_dim: int, k_len: int, draw: Random) -> Scheme:
    """A scheme by its name, with windows at the edges."""
    window = max(1, draw.choice((1, 2, 63, 64, 65, k_len - 1, k_len, k_len + 1)))
    build: Any = rl.scheme  # its names are data here
    general: dict[str, Any] = {
        "layout": draw.choice(("half", "interleaved")),
        "scale": draw.choice((None, LogN(16), LogN(64, clip=True))),
        "causal": draw.random() < 0.8,
    }
    if name not in ("nope", "alibi"):
        dim = draw.choice((head_dim, head_dim, head_dim // 4 * 2))
        general |= options_of(name if name in KINDS else "rope", dim)
    if name in ("window", "lambda"):
        general["visible_window"] = window
    if name == "lambda":
        general["sinks"] = draw.randint(0, 3)
    if name in ("rerope", "leaky-rerope", "invleaky"):
        general["window"] = window
    if name in ("leaky-rerope", "invleaky"):
        general["slope"] = draw.choice((0.125, 0.5, 16.0))
    if name == "longrope":
        general["rotary_scale"] = 1.2
    scheme: Scheme = build(name, **general)
    return scheme


def options_of(kind: str, dim: int) -> dict[str, Any]:
    """What a kind of frequencies takes."""
    found: dict[str, Any] = {"dim": dim}
    if kind not in ("rope", "longrope"):
        found["factor"] = 4.0
    if kind in ("dynamic-ntk", "ntk-by-parts", "yarn", "llama3", "longrope"):
        found["train_length"] = 64
    if kind == "longrope":
        found |= {"short_factor": (1.0,) * (dim // 2), "long_factor": (2.0,) * (dim // 2)}
    FrequencySpec(kind, **found)  # says what a new kind is given too little of
    return found


def memory_of(draw: Random) -> Memory:
    """How a tensor lies: dense in any order, or a part of a larger one."""
    if draw.random() < 0.7:
        return Memory(order=draw.choice(ORDERS))
    return Memory(order=draw.choice(ORDERS), step=draw.choice((1, 2)), offset=draw.choice((0, 1, 3)))
