"""Exercises of chapter 07."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rope_lessons.exercises import Exercise, Lab, WrongKind
from rope_lessons.schemes import LogN, Scheme, scheme


def _slopes(heads: int) -> list[float]:
    return [2 ** (-8 * h / heads) for h in range(1, heads + 1)]


def _knows(last: int, window: int, layers: int) -> int:
    return max(0, last - (window - 1) * layers)


def _lambda(length: int, window: int, sinks: int) -> Tensor:
    i, j = torch.arange(length)[:, None], torch.arange(length)[None, :]
    return (j <= i) & ((i - j < window) | (j < sinks))


def _mask(rule: Callable[[Tensor, Tensor, int, int], Tensor]) -> Callable[[int, int, int], Tensor]:
    """A wrong mask from its rule for (query, key, window, sinks)."""
    return lambda length, window, sinks: rule(
        torch.arange(length)[:, None], torch.arange(length)[None, :], window, sinks
    )


def _largest_window(layers: int, length: int) -> int:
    return math.floor((0.75 * length - 1) / (layers - 1)) + 1


def _cache(i: int, window: int, sinks: int) -> list[tuple[int, int]]:
    kept = [j for j in range(i + 1) if j < sinks or i - j < window]
    return [(j, len(kept) - 1 - place) for place, j in enumerate(kept)]


def _kept_twice(i: int, window: int, sinks: int) -> list[tuple[int, int]]:
    kept = [*range(min(sinks, i + 1)), *range(max(0, i - window + 1), i + 1)]
    return [(j, len(kept) - 1 - place) for place, j in enumerate(kept)]


def _holds(heads: int, head: int, share: float) -> int:
    return math.ceil(math.log(1 / (1 - share)) / 2 ** (-8 * head / heads))


def _extra(q: Tensor, k: Tensor, slope: float) -> tuple[Tensor, Tensor]:
    ones = torch.ones_like(q[:, :1])
    position = torch.arange(len(k), dtype=k.dtype)[:, None]
    return torch.cat((q, ones), dim=-1), torch.cat((k, slope * position * q.shape[-1] ** 0.5), dim=-1)


def _weights(extended: tuple[Tensor, Tensor]) -> Tensor:
    """The causal attention weights that extended queries and keys give: it does not matter where a constant sits."""
    if not isinstance(extended, (tuple, list)) or len(extended) != 2:
        raise WrongKind("return both, the queries and the keys, with one more channel each")
    q, k = (torch.as_tensor(x) for x in extended)
    scores = q @ k.T / (q.shape[-1] - 1) ** 0.5
    return scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf).softmax(dim=-1)


LAB_LAYERS, LAB_LENGTH = 4, 512
LAB_LOOKS_UP = 1  # the layer whose head finds needles, counted from 0
LAB_KEYS, LAB_NEEDLES, LAB_BYTES = 600, 90.0, 63.0  # keys of all layers together; percent of needles and of all bytes


def lab_plan(windows: list[int | None]) -> tuple[Scheme, ...]:
    """A layer for each answer: a window, or for None everything, with ReRoPE of half the training length and log n†."""
    far = scheme("rerope", dim=32, window=32, scale=LogN(64, clip=True))
    return tuple(far if size is None else scheme("window", dim=32, visible_window=size) for size in windows)


def lab_heads(windows: list[int | None] | None = None) -> list[list[float]]:
    """Where the lab's model looks a number up: for each layer the weight in % that each of its heads, asked for the
    last digit, puts on that digit in the middle of the text. Mean of four texts.

    Args:
        windows: an answer of the lab; by default all layers see everything.
    """
    weights, digit = _lab_weights([None] * LAB_LAYERS if windows is None else windows)
    on_digit = weights[:, torch.arange(len(digit)), :, -1, digit].mean(0)  # (layers, heads): of the last query
    return [[round(100 * weight, 1) for weight in layer] for layer in on_digit.tolist()]


def lab_looks_back() -> list[int]:
    """How many bytes back each head of layer 1 looks most, from the last digit in the middle of the text. Four texts,
    all layers see everything.
    """
    weights, digit = _lab_weights([None] * LAB_LAYERS)
    keys = digit[:, None] - torch.arange(int(digit.min()) + 1)  # at the distances that all texts have
    rows = weights[0, torch.arange(len(digit)), :, digit]  # (texts, heads, keys)
    by_distance = rows.gather(-1, keys[:, None].expand(-1, rows.shape[1], -1)).mean(0)
    return by_distance.argmax(-1).tolist()


def _lab_weights(windows: list[int | None]) -> tuple[Tensor, Tensor]:
    """Weights ``(layers, texts, heads, queries, keys)``, and where the last digit of each text's needle stands."""
    from rope_lessons.lab.table.passkey import last_digit, passkey_windows
    from rope_lessons.scoreboard import live

    tokens = passkey_windows(live.windows()[:4, : LAB_LENGTH + 1], 0.5)
    return live.attended(live.load(), lab_plan(windows), tokens[:, :-1])[0], last_digit(tokens)


def _lab(answer: Any) -> str:
    """What the first seed of the scoreboard's model reads with these windows."""
    if not isinstance(answer, (list, tuple)) or len(answer) != LAB_LAYERS:
        raise WrongKind(f"give a list of {LAB_LAYERS}, one for each layer: a window, or None for everything")
    if not all(size is None or (type(size) is int and size >= 1) for size in answer):
        raise WrongKind("a window is a whole number of at least 1; None sees everything")
    keys = sum(LAB_LENGTH if size is None else min(size, LAB_LENGTH) for size in answer)
    if keys > LAB_KEYS:
        return f"too much memory: your layers keep {keys} keys at {LAB_LENGTH} bytes, and {LAB_KEYS} are allowed"
    from rope_lessons.scoreboard import live  # with PyTorch's models: only who does the lab waits for them

    model, texts, plan = live.load(), live.windows()[:24], lab_plan(list(answer))
    found = live.percent(model, plan, texts, LAB_LENGTH, "needle")
    right = live.percent(model, plan, texts, LAB_LENGTH)
    told = f"with {keys} keys you find {found:.0f} % of the needles and predict {right:.1f} % of the bytes"
    if found < LAB_NEEDLES and None in answer and answer[LAB_LOOKS_UP] is not None:
        return f"the full layer is in a place where this model does not look up: {told}"
    if found < LAB_NEEDLES and None in answer:
        return f"the right layer sees everything, but the layer below it too little to lead it there: {told}"
    if found < LAB_NEEDLES:
        return f"the needles are lost: {told}; {LAB_NEEDLES:.0f} % of the needles are wanted"
    if right < LAB_BYTES:
        return f"the near text suffers: {told}; {LAB_BYTES:.0f} % of the bytes are wanted"
    return ""


_GENERATOR = torch.Generator().manual_seed(7)
_Q, _K = torch.randn(2, 6, 16, generator=_GENERATOR, dtype=torch.float64)

EXERCISES: dict[str, Exercise | Lab] = {
    "lab": Lab(
        grade=_lab,
        reference=[16, None, 16, 16],
        mistakes={
            # As HWFA would have it.
            "the full layer is in a place where this model does not look up: with 560 keys you find 33 %": [
                16,
                16,
                16,
                None,
            ],
            "the near text suffers: with 532 keys you find 100 %": [16, None, 2, 2],
            "the needles are lost: with 256 keys": [64, 64, 64, 64],
            "the right layer sees everything, but the layer below it too little": [8, None, 40, 40],
            "too much memory: your layers keep 2048 keys": [None, None, None, None],
            # Cheating: a "window" of the whole text is no window.
            "too much memory: your layers keep 640 keys": [512, 64, 32, 32],
            "a window is a whole number of at least 1": [16, None, 16, 0],
            "give a list of 4, one for each layer": scheme("window", dim=32, visible_window=64),
        },
    ),
    "slopes": Exercise(
        reference=_slopes,
        cases=[(8,), (16,), (4,), (1,)],
        mistakes={
            "the first head has h = 1, not 0: no head has the slope 1": (
                lambda heads: [2 ** (-8 * h / heads) for h in range(heads)]
            ),
            "this is right for 8 heads only: the last head has 2**-8 for any number of heads": (
                lambda heads: [2.0**-h for h in range(1, heads + 1)]
            ),
            "the order is reversed: the first head is the steepest, so it sees least far": (
                lambda heads: _slopes(heads)[::-1]
            ),
            "a slope is what a token of distance costs: a positive number": (
                lambda heads: [-slope for slope in _slopes(heads)]
            ),
            "slopes fall by a constant ratio, not by a constant step": (
                lambda heads: [1 - h / heads * (1 - 2**-8) for h in range(1, heads + 1)]
            ),
        },
    ),
    "knows": Exercise(
        reference=_knows,
        cases=[(23, 5, 3), (10, 5, 3), (511, 32, 2), (345, 16, 23), (7, 1, 9)],
        mistakes={
            "a layer reaches window - 1 tokens back, not window: the token itself is one of the window": (
                lambda last, window, layers: max(0, last - window * layers)
            ),
            "this is the number of tokens in the field; the question is the number of the first of them": (
                lambda last, window, layers: (window - 1) * layers + 1
            ),
            "this is one layer: what it hands on has seen window - 1 further, so multiply by the layers": (
                lambda last, window, layers: max(0, last - (window - 1))
            ),
            "there is no token before 0: cut off there": lambda last, window, layers: last - (window - 1) * layers,
            "one too many: (window - 1) * layers steps back from `last`, and `last` itself is in the field": (
                lambda last, window, layers: max(0, last - (window - 1) * layers + 1)
            ),
            "fields add up, they do not multiply: each layer reaches window - 1 further": (
                lambda last, window, layers: max(0, last - (window**layers - 1))
            ),
        },
    ),
    "lambda_mask": Exercise(
        reference=_lambda,
        cases=[(6, 2, 1), (9, 3, 2), (5, 1, 0), (4, 9, 1)],
        mistakes={
            "a query sees sinks that come after it: the causal mask holds for sinks too": _mask(
                lambda i, j, w, s: ((j <= i) & (i - j < w)) | (j < s)
            ),
            "your window has one token too many: it counts the query itself, so i - j must be below it": _mask(
                lambda i, j, w, s: (j <= i) & ((i - j <= w) | (j < s))
            ),
            "your sinks are one too many: with one sink, only token 0 is one": _mask(
                lambda i, j, w, s: (j <= i) & ((i - j < w) | (j <= s))
            ),
            "rows are queries and columns keys: your mask is turned over": lambda length, window, sinks: (
                _lambda(length, window, sinks).T
            ),
            "turned round: True is where a key is visible": lambda *case: ~_lambda(*case),
            "a key must be in the window *or* a sink": _mask(lambda i, j, w, s: (j <= i) & (i - j < w) & (j < s)),
        },
    ),
    "largest_window": Exercise(
        reference=_largest_window,
        cases=[(24, 512), (2, 64), (12, 2048), (24, 4096)],
        mistakes={
            "only layers - 1 of the layers have windows: the last one sees everything": (
                lambda layers, length: math.floor((0.75 * length - 1) / layers) + 1
            ),
            "a window is a whole number: round down": lambda layers, length: (0.75 * length - 1) / (layers - 1) + 1,
            "one too small: a window of w reaches w - 1 tokens back, so add 1 at the end": (
                lambda layers, length: math.floor((0.75 * length - 1) / (layers - 1))
            ),
            "one too large: round down, the field must not exceed three quarters": (
                lambda layers, length: math.ceil((0.75 * length - 1) / (layers - 1)) + 1
            ),
            "this is for the whole length; the rule allows three quarters of it": (
                lambda layers, length: math.floor((length - 1) / (layers - 1)) + 1
            ),
        },
    ),
    "cache": Exercise(
        reference=_cache,
        cases=[(7, 3, 2), (1, 3, 2), (100, 4, 1), (3, 3, 2), (9, 2, 0)],
        mistakes={
            "these are the true distances i - j; in the cache, the query stands right behind what is kept": (
                lambda i, window, sinks: [(j, i - j) for j in range(i + 1) if j < sinks or i - j < window]
            ),
            "these are the places in the cache; the distance is the place of the query minus that of the key": (
                lambda i, window, sinks: [
                    (j, place) for place, j in enumerate(j for j in range(i + 1) if j < sinks or i - j < window)
                ]
            ),
            "this is LM-Infinite: there all sinks are at the distance `window`. A cache keeps them apart": (
                lambda i, window, sinks: [(j, min(i - j, window)) for j in range(i + 1) if j < sinks or i - j < window]
            ),
            "your window counts the sinks: it does not include them, so window + sinks tokens are kept": (
                lambda i, window, sinks: _cache(i, max(1, window - sinks), sinks)
            ),
            "a token that is a sink and in the window is kept twice: list every token once": _kept_twice,
            "your cache keeps one token too many: the query itself is one of the window": (
                lambda i, window, sinks: _cache(i, window + 1, sinks)
            ),
        },
    ),
    "holds": Exercise(
        reference=_holds,
        cases=[(8, 1, 0.99), (8, 8, 0.99), (2, 1, 0.5), (16, 3, 0.9)],
        mistakes={
            "this is the share beyond n tokens, not within: use 1 - share": (
                lambda heads, head, share: math.ceil(math.log(1 / share) / 2 ** (-8 * head / heads))
            ),
            "a whole number of tokens: round up": lambda heads, head, share: (
                math.log(1 / (1 - share)) / 2 ** (-8 * head / heads)
            ),
            "8 is divided by the number of heads: the slopes are 2**-h for 8 heads only": (
                lambda heads, head, share: math.ceil(math.log(1 / (1 - share)) * 2**head)
            ),
            "natural logarithm: the weights are powers of e": (
                lambda heads, head, share: math.ceil(math.log10(1 / (1 - share)) / 2 ** (-8 * head / heads))
            ),
            "heads count from 1 here: head 1 is the steepest": (
                lambda heads, head, share: _holds(heads, head - 1, share)
            ),
            "round up: with fewer tokens the share is not reached": (
                lambda heads, head, share: math.floor(math.log(1 / (1 - share)) / 2 ** (-8 * head / heads))
            ),
        },
    ),
    "extra_channel": Exercise(
        reference=_extra,
        cases=[(_Q, _K, 0.25), (_Q, _K, 0.5), (_Q[:, :4], _K[:, :4], 0.25)],
        normalise=_weights,
        mistakes={
            "the kernel divides this channel by the root of d too: multiply it by that root": (
                lambda q, k, slope: _extra(q, k, slope / q.shape[-1] ** 0.5)
            ),
            "the sign is turned round: a later key is nearer to the query, so it must get more": (
                lambda q, k, slope: _extra(q, k, -slope)
            ),
            "the root is that of the old d, which stays the kernel's scale; the new d is one larger": (
                lambda q, k, slope: _extra(q, k, slope * (1 + 1 / q.shape[-1]) ** 0.5)
            ),
            "this adds the same to all keys of a query, which the softmax ignores: the key must carry its position": (
                lambda q, k, slope: _extra(q, k, 0.0)
            ),
        },
    ),
}
