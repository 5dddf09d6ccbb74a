"""What several claim tests need: the encoding in float64, the kernel, its integral, and small attention models."""

from __future__ import annotations

from functools import cache
from typing import Any

import mpmath as mp
import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

import rope_lessons as rl
from rope_lessons.models import byte_lm
from rope_lessons.stored import Table

B = 10_000.0


def frequencies(dim: int, base: float = B) -> np.ndarray:
    return base ** (-np.arange(0, dim, 2) / dim)


def encoding(positions: ArrayLike, dim: int, base: float = B) -> np.ndarray:
    """Sine in even channels, cosine in odd ones; (..., dim), float64. Written apart from the package on purpose."""
    angles = np.asarray(positions, dtype=float)[..., None] * frequencies(dim, base)
    return np.stack((np.sin(angles), np.cos(angles)), axis=-1).reshape(*angles.shape[:-1], dim)


def kernel(distances: ArrayLike, dim: int, base: float = B) -> np.ndarray:
    return np.cos(np.asarray(distances, dtype=float)[..., None] * frequencies(dim, base)).mean(-1)


def integral(distance: float, base: float = B) -> complex:
    """The integral of exp(i distance base^-u) over u in [0, 1], in closed form."""
    return complex((mp.e1(-1j * distance / base) - mp.e1(-1j * distance)) / mp.log(base))


def is_toeplitz(matrix: np.ndarray, tolerance: float = 1e-9) -> bool:
    """Is every diagonal constant? That is: does entry (m, n) depend on m - n only?"""
    return bool(np.abs(matrix[1:, 1:] - matrix[:-1, :-1]).max() < tolerance)


def spread_along_diagonals(matrix: np.ndarray) -> float:
    return float(np.abs(matrix[1:, 1:] - matrix[:-1, :-1]).max())


def random_attention(dim: int, seed: int = 0) -> list[Tensor]:
    """Query, key and value weights of one head."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(dim, dim, generator=generator, dtype=torch.float64) / dim**0.5 for _ in range(3)]


def attend(x: Tensor, weights: list[Tensor], causal: bool = False) -> Tensor:
    """One head of softmax attention on rows x, (seq, dim)."""
    w_q, w_k, w_v = weights
    scores = (x @ w_q) @ (x @ w_k).T / x.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    return scores.softmax(-1) @ (x @ w_v)


def turn(angle: float) -> np.ndarray:
    """The rotation of the plane, counter-clockwise."""
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def rotation(position: float, dim: int, base: float = B) -> np.ndarray:
    """RoPE's matrix, interleaved pairs, (dim, dim)."""
    matrix = np.zeros((dim, dim))
    for t, frequency in enumerate(frequencies(dim, base)):
        matrix[2 * t : 2 * t + 2, 2 * t : 2 * t + 2] = turn(position * frequency)
    return matrix


def fit_distances(targets: np.ndarray, distances: np.ndarray, dim: int, ridge: float = 1e-6) -> np.ndarray:
    """Least squares in the cosines and sines of the distance: what any score of rotary or sinusoidal pairs can be."""
    features = encoding(distances, dim)
    return np.linalg.solve(features.T @ features + ridge * np.eye(dim), features.T @ targets)


def rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(x))))


@cache
def byte_model() -> tuple[byte_lm.ByteLM, Tensor]:
    """The small model of chapter 03 (seed 0, trained on 64 bytes), and every fourth window of its test text."""
    return byte_lm.load(), byte_lm.evaluation_windows()[::4]


def score_bytes(length: int, scheme: rl.Scheme | None = None, frequencies: Tensor | None = None) -> tuple[float, float]:
    """Accuracy and loss (nats) of the small model on 13 312 bytes, read in pieces of ``length``."""
    return _score(length, scheme, None if frequencies is None else tuple(frequencies.tolist()))


@cache
def _score(length: int, scheme: rl.Scheme | None, frequencies: tuple[float, ...] | None) -> tuple[float, float]:
    model, windows = byte_model()
    given = None if frequencies is None else torch.tensor(frequencies, dtype=torch.float64)

    def attend(q: Tensor, k: Tensor, v: Tensor, own: rl.Scheme) -> Tensor:
        return rl.attention(q, k, v, own, frequencies=given)

    hits, losses = byte_lm.evaluate(model, windows, length, (scheme,) * 2 if scheme else None, attend)
    return hits.mean().item(), losses.mean().item()


def over_seeds(rows: Table, value: str, **fixed: Any) -> np.ndarray:
    """This value of the rows with these entries, one per seed, in the order of the seeds."""
    found = rows.where(**fixed)
    by_seed = dict(zip(found["seed"], found[value], strict=True))
    assert len(found) == len(by_seed) >= 3, f"the seeds of {fixed} are {found['seed']}"
    return np.array([by_seed[seed] for seed in sorted(by_seed)])


def mean_over_seeds(rows: Table, value: str, **fixed: Any) -> float:
    return float(over_seeds(rows, value, **fixed).mean())


T_95 = {3: 4.303, 5: 2.776}  # two-sided 95 % quantiles of Student's t, by the number of seeds


def interval(differences: ArrayLike) -> tuple[float, float, float]:
    """Mean of a difference by seed, and its 95 % interval over seeds."""
    values = np.asarray(differences, dtype=float)
    mean, half = float(values.mean()), T_95[len(values)] * float(values.std(ddof=1)) / len(values) ** 0.5
    return mean, mean - half, mean + half


def contains_zero(differences: ArrayLike) -> bool:
    """Chance alone may have made this difference."""
    _, low, high = interval(differences)
    return low < 0 < high
