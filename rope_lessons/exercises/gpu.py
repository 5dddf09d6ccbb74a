"""Exercises of chapter 13."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rope_lessons.exercises import Exercise, Lab, NotAnswered, WrongKind


def _decode_intensity(heads: int, kv_heads: int, itemsize: int) -> float:
    return 2 * heads / (kv_heads * itemsize)


def _largest(memory: int, heads: int, itemsize: int) -> int:
    return math.isqrt(memory // (2 * heads * itemsize))


def _roofline(operations: float, moved: float, peak: float, bandwidth: float) -> float:
    return max(operations / peak, moved / bandwidth)


Numbers = Sequence[float]


BY_BLOCKS = "read the scores a block at a time: scores[start : start + block]"
GONE_BY = "the scores stream past: keep top, total and output, and do not go back to a block that was read"


class Stream(Sequence[float]):
    """Scores that are read from the front, at most a block at a time."""

    def __init__(self, scores: Numbers, block: int):
        self.scores, self.block, self.at = list(scores), block, 0

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, index: Any) -> Any:
        places = range(len(self.scores))[index]
        read = list(places) if isinstance(index, slice) else [places]
        if read:
            if max(read) - min(read) >= self.block:
                raise WrongKind(BY_BLOCKS)
            if min(read) < self.at:
                raise WrongKind(GONE_BY)
            self.at = max(read) // self.block * self.block  # within a block any order will do
        return self.scores[index]

    def __iter__(self) -> Any:
        raise WrongKind(BY_BLOCKS)

    def __repr__(self) -> str:
        return repr(self.scores)


def _whole(scores: Numbers, values: Numbers, block: int) -> tuple[float, float]:
    """No blocks: the softmax that needs all scores before it begins."""
    top = max(scores)
    weights = [math.exp(x - top) for x in scores]
    total = sum(weights)
    return sum(w * v for w, v in zip(weights, values, strict=True)) / total, top + math.log(total)


def _two_passes(scores: Numbers, values: Numbers, block: int) -> tuple[float, float]:
    """Blocks, but the largest score of all is looked for first."""
    starts = range(0, len(scores), block)
    top = max(max(scores[start : start + block]) for start in starts)
    weights = [math.exp(x - top) for start in starts for x in scores[start : start + block]]
    return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights), top + math.log(sum(weights))


def _online(scores: Numbers, values: Numbers, block: int) -> tuple[float, float]:
    top, total, output = -math.inf, 0.0, 0.0
    for start in range(0, len(scores), block):
        piece = scores[start : start + block]
        new = max(top, *piece)
        shrink = math.exp(top - new)
        weights = [math.exp(x - new) for x in piece]
        total = total * shrink + sum(weights)
        output = output * shrink + sum(w * v for w, v in zip(weights, values[start:], strict=False))
        top = new
    return output / total, top + math.log(total)


def _without(what: str) -> Callable[[Numbers, Numbers, int], tuple[float, float]]:
    """The loop above, with one of its two rescalings left out."""

    def online(scores: Numbers, values: Numbers, block: int) -> tuple[float, float]:
        top, total, output = -math.inf, 0.0, 0.0
        for start in range(0, len(scores), block):
            piece = scores[start : start + block]
            new = max(top, *piece)
            shrink = math.exp(top - new)
            weights = [math.exp(x - new) for x in piece]
            total = total * (1 if "sum" in what else shrink) + sum(weights)
            old = output * (1 if "output" in what else shrink)
            output = old + sum(w * v for w, v in zip(weights, values[start:], strict=False))
            top = new
        return output / total, top + math.log(total)

    return online


def _cache_bytes(length: int, window: int, kv_heads: int, head_dim: int, itemsize: int) -> int:
    return (2 * length + min(window, length)) * kv_heads * head_dim * itemsize


def _pairs(length: int, window: int) -> list[int]:
    blocks, tail = divmod(length, window)
    diagonal = blocks * window * (window + 1) // 2 + tail * (tail + 1) // 2
    before = (blocks - 1) * window * (window - 1) // 2 + tail * (window - 1) - tail * (tail - 1) // 2
    return [diagonal, before, (length - window) * (length - window + 1) // 2]


def _tail_forgotten(length: int, window: int) -> list[int]:
    blocks, far = length // window, (length - window) * (length - window + 1) // 2
    return [blocks * window * (window + 1) // 2, (blocks - 1) * window * (window - 1) // 2, far]


def _long_enough(extra: float, ridge: float, itemsize: int, share: float) -> float:
    return (5 * itemsize + 24) / 2 * ridge * share / extra


# --- the lab: ReRoPE in tiles -----------------------------------------------------------------------------------------

LAB_LENGTH, LAB_DIM, LAB_WINDOW, LAB_NUMBERS, LAB_PRODUCTS = 1024, 16, 256, 65_536, 1.2
aten = torch.ops.aten
ATTENTION = ("scaled_dot_product", "flex_attention", "rope_lessons.")
Tiled = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, int], Tensor]


class Watched(TorchDispatchMode):
    """The largest tensor that is made, multiplications in products of matrices, and calls of whole attentions."""

    def __init__(self) -> None:
        super().__init__()
        self.largest, self.products, self.whole = 0, 0, ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(part in str(func) for part in ATTENTION):
            self.whole = str(func)
        result = func(*args, **(kwargs or {}))
        for made in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(made, Tensor):
                self.largest = max(self.largest, made.numel())
                if func.overloadpacket in (aten.mm, aten.bmm, aten.mv, aten.dot, aten.addmm, aten.baddbmm):
                    left = args[-2]
                    self.products += made.numel() * left.shape[-1]
        return result


def _lab_inputs() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    a, b, c, d, e = torch.randn(5, LAB_LENGTH, LAB_DIM, generator=generator, dtype=torch.float64)
    return a, b, c, d, e


def two_matrices(near_q: Tensor, near_k: Tensor, far_q: Tensor, far_k: Tensor, v: Tensor, window: int) -> Tensor:
    """The lesson's first way: right, and a matrix for each of near and far."""
    place = torch.arange(len(v))
    distance = place[:, None] - place
    scores = torch.where(distance < window, near_q @ near_k.T, far_q @ far_k.T) / near_q.shape[1] ** 0.5
    return scores.masked_fill(distance < 0, -torch.inf).softmax(-1) @ v


def in_tiles(queries: int = 64, keys: int = 64, choose: bool = True, near_only: bool = False) -> Tiled:
    """ReRoPE in tiles of so many queries and keys; without ``choose`` every tile does both products, and keys that no
    query of a tile sees are not skipped."""

    def tiled(near_q: Tensor, near_k: Tensor, far_q: Tensor, far_k: Tensor, v: Tensor, window: int) -> Tensor:
        output, scale = torch.empty_like(v), near_q.shape[1] ** -0.5
        for i in torch.arange(len(v)).split(queries):
            top, total, summed = v.new_full((len(i), 1), -torch.inf), v.new_zeros(len(i), 1), torch.zeros_like(v[i])
            for j in torch.arange(int(i[-1]) + 1 if choose else len(v)).split(keys):
                distance = i[:, None] - j
                least, most = int(distance.min()), int(distance.max())
                if near_only and least >= window:
                    continue
                if choose and most < window:
                    x = near_q[i] @ near_k[j].T
                elif choose and least >= window:
                    x = far_q[i] @ far_k[j].T
                else:
                    x = torch.where(distance < window, near_q[i] @ near_k[j].T, far_q[i] @ far_k[j].T)
                hidden = (distance < 0) | (distance >= window) if near_only else distance < 0
                x = (scale * x).masked_fill(hidden, -torch.inf)
                new = torch.maximum(top, x.amax(1, keepdim=True)).clamp(min=-1e300)
                shrink, weights = (top - new).exp(), (x - new).exp()
                total = total * shrink + weights.sum(1, keepdim=True)
                summed = summed * shrink + weights @ v[j]
                top = new
            output[i] = summed / total
        return output

    return tiled


def _grade_tiled(answer: Any) -> str:
    """What is missing of an output without matrices, at most so many products."""
    if not callable(answer):
        raise WrongKind(f"expected a function of 6 arguments, got {answer!r}")
    inputs = _lab_inputs()
    with Watched() as seen:
        output = answer(*(x.clone() for x in inputs), LAB_WINDOW)
    if output is None or output is ...:
        raise NotAnswered
    right = two_matrices(*inputs, LAB_WINDOW)
    if not isinstance(output, Tensor) or output.shape != right.shape:
        return f"expected a tensor of shape {tuple(right.shape)}, the output of every query"
    wrong = ~torch.isclose(output.double(), right, rtol=0, atol=1e-6).all(1)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        return f"the output of query {row} is not that of two_matrices, nor are {int(wrong.sum()) - 1} others"
    if seen.whole:
        return f"an attention that somebody else wrote was called ({seen.whole}): write the tiles yourself"
    pairs = LAB_LENGTH * (LAB_LENGTH + 1) // 2
    share = seen.products / (2 * LAB_DIM * pairs)
    if share < 1:
        return "right, but fewer products were seen than there are pairs: multiply tiles with @, in PyTorch"
    if seen.largest > LAB_NUMBERS:
        return f"right, but a tensor of {seen.largest} numbers was made; at most {LAB_NUMBERS}"
    if share > LAB_PRODUCTS:
        return f"right, but {share:.2f} times the products of plain causal attention; at most {LAB_PRODUCTS}"
    return ""


def _with_sdpa(near_q: Tensor, near_k: Tensor, far_q: Tensor, far_k: Tensor, v: Tensor, window: int) -> Tensor:
    """Somebody else's kernel, with a mask; the part that it cannot do is patched up."""
    torch.nn.functional.scaled_dot_product_attention(near_q[None, None], near_k[None, None], v[None, None])
    return in_tiles()(near_q, near_k, far_q, far_k, v, window)


def _hidden_products(near_q: Tensor, near_k: Tensor, far_q: Tensor, far_k: Tensor, v: Tensor, window: int) -> Tensor:
    """Somewhere else, where nobody looks: in NumPy."""
    a, b, c, d, e = (x.numpy() for x in (near_q, near_k, far_q, far_k, v))
    place = np.arange(len(e))
    distance = place[:, None] - place
    scores = np.where(distance < window, a @ b.T, c @ d.T) / a.shape[1] ** 0.5
    weights = np.exp(np.where(distance < 0, -np.inf, scores))
    return torch.from_numpy(weights / weights.sum(1, keepdims=True) @ e)


EXERCISES: dict[str, Exercise | Lab] = {
    "lab": Lab(
        grade=_grade_tiled,
        reference=in_tiles(),
        mistakes={
            "right, but a tensor of 1048576 numbers was made": two_matrices,
            "right, but 3.00 times the products": in_tiles(64, 64, choose=False),
            "the output of query 256 is not that of two_matrices": in_tiles(near_only=True),
            "right, but fewer products were seen than there are pairs": _hidden_products,
            "an attention that somebody else wrote was called": _with_sdpa,
            "right, but 1.44 times the products": in_tiles(256, 256),
        },
    ),
    "decode_intensity": Exercise(
        reference=_decode_intensity,
        cases=[(8, 8, 2), (32, 8, 2), (32, 8, 4), (71, 1, 2), (32, 4, 1), (8, 8, 4)],
        mistakes={
            "heads that share a key read it once: divide by the bytes of the key heads only": (lambda h, g, c: 2 / c),
            "a key and a value are read for each pair: two vectors, so half of this": lambda h, g, c: 4 * h / (g * c),
            "a product and a sum are two operations, so twice this": lambda h, g, c: h / (g * c),
            "the quotient is upside down: operations for each byte": lambda h, g, c: g * c / (2 * h),
            "more heads on one key do more with each byte: heads of queries above, of keys below": (
                lambda h, g, c: 2 * g / (h * c)
            ),
        },
    ),
    "largest": Exercise(
        reference=_largest,
        cases=[(16 * 10**9, 32, 2), (141 * 10**9, 32, 2), (80 * 10**9, 8, 4), (10**9, 1, 2)],
        mistakes={
            "there are two matrices, near and far": lambda m, h, c: math.isqrt(m // (h * c)),
            "every head has matrices of its own": lambda m, h, c: math.isqrt(m // (2 * c)),
            "a matrix of L by L numbers grows with the square: take the root": lambda m, h, c: m // (2 * h * c),
            "a number takes itemsize bytes": lambda m, h, c: math.isqrt(m // (2 * h)),
        },
    ),
    "roofline": Exercise(
        reference=_roofline,
        cases=[(1e12, 1e9, 1e15, 5e12), (1e9, 1e9, 1e15, 5e12), (4e9, 2e9, 65e12, 320e9), (0.0, 3e9, 1e14, 1e12)],
        tolerance=1e-9,
        mistakes={
            "products and bytes go on at the same time: the longer of the two counts, not their sum": (
                lambda f, b, p, w: f / p + b / w
            ),
            "the longer of the two counts, not the shorter: the kernel waits for both": (
                lambda f, b, p, w: min(f / p, b / w)
            ),
            "the bytes count too, and where products are few they take longer": lambda f, b, p, w: f / p,
        },
    ),
    "online": Exercise(
        reference=_online,
        cases=[
            (Stream(scores, block), values, block)
            for scores, values, block in (
                ([0.0, 0.0, math.log(2), -1.0], [1.0, 3.0, 5.0, 7.0], 2),
                ([3.0, 1.0, 2.0, 5.0, 4.0], [1.0, -2.0, 0.5, 4.0, 1.0], 2),
                ([1.0, 2.0, 3.0], [2.0, 0.0, 1.0], 1),
                ([1000.0, 1001.0, 999.0], [1.0, 2.0, 3.0], 2),
                ([-1000.0, -1001.0, -999.0], [1.0, 2.0, 3.0], 2),
                ([2.0, 1.0], [3.0, 5.0], 8),
                ([1000.0, 0.0], [3.0, 5.0], 1),
            )
        ],
        mistakes={
            "the sum shrinks with every new maximum; the output so far must shrink by the same factor": (
                _without("output")
            ),
            "the output shrinks with every new maximum; the sum so far must shrink by the same factor": (
                _without("sum")
            ),
            "with a new maximum, what was summed before is too large: multiply sum and output by exp(old - new)": (
                _without("sum and output")
            ),
            "the output is right; the log-sum-exp is the maximum plus the logarithm of the sum": (
                lambda scores, values, block: (_online(scores, values, block)[0], max(scores.scores))
            ),
            "return the log-sum-exp as well: the output, and the maximum plus the logarithm of the sum": (
                lambda scores, values, block: _online(scores, values, block)[0]
            ),
            "the sum is measured from the maximum: the log-sum-exp is the maximum plus its logarithm": (
                lambda scores, values, block: (
                    _online(Stream(scores.scores, block), values, block)[0],
                    _online(scores, values, block)[1] - max(scores.scores),
                )
            ),
            BY_BLOCKS: _whole,
            GONE_BY: _two_passes,
        },
    ),
    "cache_bytes": Exercise(
        reference=_cache_bytes,
        cases=[(16_384, 1024, 8, 128, 2), (65_536, 1024, 8, 64, 4), (100, 1024, 2, 8, 2), (5000, 0, 1, 64, 2)],
        mistakes={
            "the near-ready keys of the last window are missing": lambda n, w, h, d, c: 2 * n * h * d * c,
            "near-ready keys are kept for the last window only, not for every token": (
                lambda n, w, h, d, c: 3 * n * h * d * c
            ),
            "values are kept too, one for each token": lambda n, w, h, d, c: (n + min(w, n)) * h * d * c,
            "a ring holds no more tokens than there are": lambda n, w, h, d, c: (2 * n + w) * h * d * c,
            "the ring holds keys only; a value is the same near and far": (
                lambda n, w, h, d, c: 2 * (n + min(w, n)) * h * d * c
            ),
        },
    ),
    "pairs": Exercise(
        reference=_pairs,
        cases=[(12, 4), (14, 4), (10, 3), (7, 7), (9, 1), (4096, 1000)],
        mistakes={
            "right where the window divides the length; the last, shorter block has its triangles too": _tail_forgotten,
            "the triangle before a block is strict, w (w - 1)/2 pairs: key c is kept for query a where c > a": (
                lambda n, w: [_pairs(n, w)[0], _pairs(n, w)[1] + n - w, _pairs(n, w)[2]]
            ),
            "the far triangle has its diagonal, the pairs at the distance w: (L - w)(L - w + 1)/2": (
                lambda n, w: [*_pairs(n, w)[:2], (n - w) * (n - w - 1) // 2]
            ),
        },
    ),
    "long_enough": Exercise(
        reference=_long_enough,
        also=[lambda *case: math.ceil(_long_enough(*case))],
        cases=[
            (0.25, 206.0, 2, 1.0),
            (0.25, 206.0, 2, 0.35),
            (0.08, 203.0, 2, 0.5),
            (0.1, 20.0, 2, 1.0),
            (0.1, 20.0, 1, 0.5),
        ],
        mistakes={
            "a slower kernel makes the same extra a smaller part: multiply by the share of the peak": (
                lambda x, r, c, s: (5 * c + 24) / 2 * r / x
            ),
            "the share is on the wrong side: a slower kernel needs a shorter text": (
                lambda x, r, c, s: (5 * c + 24) / 2 * r / (s * x)
            ),
            "half as long: a token sees half the text on average, which is where the 2 comes from": (
                lambda x, r, c, s: (5 * c + 24) * r * s / x
            ),
            "34 is 5 c + 24 for numbers of two bytes": (lambda x, r, c, s: 17 * r * s / x),
        },
    ),
}
