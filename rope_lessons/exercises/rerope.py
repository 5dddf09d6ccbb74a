"""Exercises of chapter 08."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rope_lessons.exercises import Exercise, Lab, WrongKind


def _bent(distance: float, window: float, slope: float) -> float:
    size = abs(distance)
    return math.copysign(size if size < window else window + slope * (size - window), distance)


def _coverage(train_length: int, window: int, k: float) -> int:
    return math.floor(window + 1 + k * (train_length - 1 - window))


def _far_key(j: int, window: int, slope: float) -> float:
    return slope * j - window * (1 - slope)


Parts = Sequence[tuple[float, float]]


def _merge(parts: Parts) -> tuple[float, float]:
    top = max(lse for _, lse in parts)
    total = top + math.log(sum(math.exp(lse - top) for _, lse in parts))
    return sum(math.exp(lse - total) * output for output, lse in parts), total


def _merge_by(weight: Callable[[float], float]) -> Callable[[Parts], tuple[float, float]]:
    """A merge with other weights for the outputs."""

    def merge(parts: Parts) -> tuple[float, float]:
        weights = [weight(lse) for _, lse in parts]
        output = sum(w * part for w, (part, _) in zip(weights, parts, strict=True)) / sum(weights)
        return output, _merge(parts)[1]

    return merge


def _grouped(i: int, j: int, window: int, group: int) -> int:
    return i - j if i - j < window else i // group - j // group + window - window // group


def _smooth(x: float, window: float, slope: float, sigma: float) -> float:
    if abs(x - window) >= sigma:
        return _bent(x, window, slope)
    return x - (1 - slope) * (x - window + sigma) ** 2 / (4 * sigma)


def _score_gradient(score: float, grad_v: float, grad_output: float, lse: float) -> float:
    return math.exp(score - lse) * (grad_v - grad_output)


LAB_LENGTH, LAB_APART, LAB_NEEDLES, LAB_COPIES = 512, 16, 95.0, 81.0


def _lab(answer: Any) -> str:
    """What the first seed of the scoreboard's model reads with this bend."""
    if not isinstance(answer, Mapping) or set(answer) != {"window", "slope"}:
        raise WrongKind('give {"window": …, "slope": …}')
    window, slope = answer["window"], answer["slope"]
    if type(window) is not int or window < 0:
        raise WrongKind("the window is a whole number, not negative")
    if not isinstance(slope, (int, float)) or not 0 <= slope < math.inf:
        raise WrongKind("the slope is a finite number, not negative")
    if slope * LAB_APART < 1:
        return (
            f"order is lost: bytes {LAB_APART} apart, far away, are shown {slope * LAB_APART:.2g} apart; "
            "at least one step is wanted"
        )
    from rope_lessons.schemes import LogN, scheme
    from rope_lessons.scoreboard import live  # with PyTorch's models: only who does the lab waits for them

    bent = scheme("leaky-rerope", dim=32, window=window, slope=slope, scale=LogN(64, clip=True))
    model, texts = live.load(), live.windows()[:16]
    found = live.percent(model, bent, texts, LAB_LENGTH, "needle")
    copied = live.percent(model, bent, texts, LAB_LENGTH, "far copies")
    told = f"you find {found:.1f} % of the needles and predict {copied:.1f} % of the far copies"
    if found < LAB_NEEDLES:
        return f"needles are lost: {told}; {LAB_NEEDLES:.1f} % of the needles are wanted"
    if copied < LAB_COPIES:
        return f"too few far copies: {told}; {LAB_COPIES:.1f} % of them are wanted"
    return ""


EXERCISES: dict[str, Exercise | Lab] = {
    "lab": Lab(
        grade=_lab,
        reference={"window": 16, "slope": 1 / 14},
        mistakes={
            "order is lost: bytes 16 apart, far away, are shown 0 apart": {"window": 32, "slope": 0.0},  # ReRoPE
            "needles are lost: you find 2.1 %": {"window": 32, "slope": 1 / 8},  # "eight times as long, so k = 8"
            "needles are lost: you find 9": {"window": 32, "slope": 1 / 16},  # the figure's last cell
            "needles are lost: you find 0.0 %": {"window": 8, "slope": 1 / 10},
            # Cheating: a slope that only seems to keep the order, and no bend at all.
            "order is lost: bytes 16 apart, far away, are shown 1.6e-08 apart": {"window": 16, "slope": 1e-9},
            "needles are lost: you find 0.0 % of the needles and predict 3": {"window": 512, "slope": 1.0},
            "give {": (16, 1 / 14),
        },
    ),
    "bent": Exercise(
        reference=_bent,
        cases=[
            (3, 4, 0.5),
            (4, 4, 0.5),
            (10, 4, 0.0),
            (10, 4, 0.25),
            (-9, 4, 0.5),
            (7, 0, 0.125),
            (-2, 4, 0.5),
            (0, 4, 0.5),
        ],
        mistakes={
            "jumps at the window: far distances start at w and grow from there, so take w off before you multiply": (
                lambda x, w, s: x if abs(x) < w else math.copysign(w + s * abs(x), x)
            ),
            "this scales the whole distance: the part below the window keeps its length": (
                lambda x, w, s: x if abs(x) < w else s * x
            ),
            "right for keys before the query; a key after it has a negative distance, which bends the same way": (
                lambda x, w, s: float(x) if x < w else w + s * (x - w)
            ),
            "the sign is lost: f is odd, so a negative distance stays negative": (lambda x, w, s: abs(_bent(x, w, s))),
            "you divided by the slope: the slope is 1/k already": (
                lambda x, w, s: x if abs(x) < w else math.copysign(w + (abs(x) - w) / (s or 1), x)
            ),
        },
    ),
    "coverage": Exercise(
        reference=_coverage,
        cases=[(3, 1, 3), (512, 128, 16), (512, 128, 8), (512, 256, 16), (64, 63, 8), (64, 16, 1.5)],
        mistakes={
            "a text of L tokens has distances up to L - 1: the length is one more than the largest distance": (
                lambda n, w, k: math.floor(w + k * (n - 1 - w))
            ),
            "a number of tokens is whole: round down": lambda n, w, k: w + 1 + k * (n - 1 - w),
            "add 1, since a text of L tokens has distances up to L - 1; then round down": (
                lambda n, w, k: w + k * (n - 1 - w)
            ),
            "this is PI's, where every distance is divided by k: here those inside the window are not": (
                lambda n, w, k: k * n
            ),
            "a text of L tokens, trained on N: their largest distances are L - 1 and N - 1": (
                lambda n, w, k: math.floor(w + k * (n - w))
            ),
            "the largest distance of training is N - 1, not N": lambda n, w, k: math.floor(w + 1 + k * (n - w)),
            "the window is covered one to one, only what is beyond it k times": (
                lambda n, w, k: math.floor(1 + k * (n - 1))
            ),
            "you gave the window k times its length too, and then once more": (
                lambda n, w, k: math.floor(w + 1 + k * (n - 1))
            ),
        },
    ),
    "far_key": Exercise(
        reference=_far_key,
        cases=[(4, 1, 0.5), (100, 16, 0.0), (100, 16, 0.125), (50, 16, 1.0), (30, 4, 2.0)],
        mistakes={
            "with this the key right at the window's edge is at slope * w, not at w: take off w * (1 - slope)": (
                lambda j, w, s: s * j
            ),
            "you took off the whole window: at the edge the distance would be w + slope * w": lambda j, w, s: s * j - w,
            "the distance is query minus key: a farther key stands farther back": (lambda j, w, s: s * j + w * (1 - s)),
            "this is the position of plain RoPE: the queries are turned by slope * i, so the key slows down too": (
                lambda j, w, s: j
            ),
            "this is ReRoPE's, where the slope is 0: with a slope the keys move, too": (lambda j, w, s: -w),
            "the position itself moves slowly too: multiply j by the slope": lambda j, w, s: j - w * (1 - s),
        },
    ),
    "merge": Exercise(
        reference=_merge,
        cases=[
            ([(1.0, 0.0), (3.0, 0.0)],),
            ([(1.0, 2.0), (5.0, 0.5), (-2.0, -1.0)],),
            ([(4.0, 1000.0), (0.0, 1001.0)],),
            ([(2.0, -3.0), (7.0, -math.inf)],),
            ([(7.0, -math.inf), (2.0, -3.0)],),
            ([(1.0, -1000.0), (3.0, -1000.5)],),
            ([(4.0, 0.5)],),
        ],
        mistakes={
            "you took the plain mean: a part counts by the sum of its exponentials, exp(lse)": _merge_by(lambda x: 1.0),
            "the output is right, the log-sum-exp is not: add exponentials, not logarithms": (
                lambda parts: (_merge(parts)[0], sum(lse for _, lse in parts))
            ),
            "the output is right; the other number must be a logarithm, of the sum of all exponentials": (
                lambda parts: (_merge(parts)[0], max(lse for _, lse in parts))
            ),
            "the output comes first, then the log-sum-exp: you exchanged them": lambda parts: _merge(parts)[::-1],
            "the maximum was taken off before the exponentials and not put back: the log-sum-exp is the whole one": (
                lambda parts: (_merge(parts)[0], _merge(parts)[1] - max(lse for _, lse in parts))
            ),
        },
        raises={
            OverflowError: "subtract the largest log-sum-exp first, and add it again at the end",
            ZeroDivisionError: "a part counts by exp(lse), not by lse itself, which may be 0 or negative",
        },
    ),
    "grouped": Exercise(
        reference=_grouped,
        cases=[
            (20, 15, 8, 4),
            (20, 12, 8, 4),
            (21, 7, 8, 4),
            (24, 0, 8, 4),
            (31, 3, 10, 4),
            (33, 23, 10, 4),
            (100, 1, 16, 16),
        ],
        mistakes={
            "Self-Extend rounds the two positions, each by itself, not their distance": (
                lambda i, j, w, g: i - j if i - j < w else (i - j) // g + w - w // g
            ),
            "two whole positions, each divided with //: their difference is whole": (
                lambda i, j, w, g: i - j if i - j < w else i / g - j / g + w - w / g
            ),
            "far keys start too near: shift them by w - w // group, so that the two pieces meet": (
                lambda i, j, w, g: i - j if i - j < w else i // g - j // g
            ),
            "far keys start too far: the grouped distance at the window is already about w // group": (
                lambda i, j, w, g: i - j if i - j < w else i // g - j // g + w
            ),
            "a window of w counts the token itself: the distance w is far": (
                lambda i, j, w, g: i - j if i - j <= w else _grouped(i, j, w, g)
            ),
        },
    ),
    "smooth": Exercise(
        reference=_smooth,
        cases=[
            (3.0, 8.0, 0.5, 2.0),
            (6.0, 8.0, 0.5, 2.0),
            (8.0, 8.0, 0.0, 2.0),
            (9.0, 8.0, 0.25, 4.0),
            (10.0, 8.0, 0.5, 2.0),
            (30.0, 8.0, 0.125, 4.0),
            (11.0, 12.0, 0.5, 3.0),
        ],
        mistakes={
            "this is Leaky ReRoPE with its corner": lambda x, w, s, sigma: _bent(x, w, s),
            "divide by 4 sigma: the slope must fall by 1 - slope over a width of 2 sigma, and the square has slope 2": (
                lambda x, w, s, sigma: (
                    _bent(x, w, s) if abs(x - w) >= sigma else x - (1 - s) * (x - w + sigma) ** 2 / (2 * sigma)
                )
            ),
            "measure from the start of the transition, w - sigma, not from w": (
                lambda x, w, s, sigma: (
                    _bent(x, w, s) if abs(x - w) >= sigma else x - (1 - s) * (x - w) ** 2 / (4 * sigma)
                )
            ),
        },
    ),
    "score_gradient": Exercise(
        reference=_score_gradient,
        cases=[(0.5, 2.0, 0.7, 1.5), (-3.0, -1.0, 0.2, 0.4), (4.0, 0.3, 0.3, 5.0), (1.0, 1.5, -0.5, 3.0)],
        mistakes={
            "the mean is missing: raising one score takes weight from all other keys": (
                lambda x, gv, go, lse: math.exp(x - lse) * gv
            ),
            "the weight is exp(score - lse): with exp(score) alone it is not divided by the sum of all keys": (
                lambda x, gv, go, lse: math.exp(x) * (gv - go)
            ),
            "the sign is turned round: a key whose value is better than the mean should get a higher score": (
                lambda x, gv, go, lse: math.exp(x - lse) * (go - gv)
            ),
        },
    ),
}
