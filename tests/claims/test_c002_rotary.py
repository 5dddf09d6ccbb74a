"""Document 002, section 3.6: what it says about RoPE."""

import numpy as np
import pytest
import torch
from claim_tools import encoding, fit_distances, is_toeplitz, rms, rotation, spread_along_diagonals, turn
from torch.utils._python_dispatch import TorchDispatchMode

import rope_lessons as rl

THETA = 0.7


def scores_of(q, k, turned_q, turned_k, count=12):
    """Matrix of scores over positions m (rows) and n (columns)."""
    return np.array([[turned_q(q, m) @ turned_k(k, n) for n in range(count)] for m in range(count)])


def test_rotation_acts_on_channels_not_on_query_and_key():
    q, k = np.array([1.0, 0.5]), np.array([-0.3, 2.0])
    proper = scores_of(q, k, lambda x, m: turn(m * THETA) @ x, lambda x, n: turn(n * THETA) @ x)
    assert is_toeplitz(proper)
    # eq. 50 for one channel of each: the products of the two results
    stacked = [turn(m * THETA) @ np.array([1.0, 2.0]) for m in range(12)]
    products = np.array([q_m * k_m for q_m, k_m in stacked])
    assert np.ptp(products) > 1  # depends on m, for one and the same distance


def test_inner_product_has_a_sine_part():
    rng = np.random.default_rng(0)
    for q, k in rng.standard_normal((10, 2, 2)):
        for m, n in ((5, 2), (2, 5)):
            angle = (m - n) * THETA
            score = (turn(m * THETA) @ q) @ (turn(n * THETA) @ k)
            sine_part = (q[0] * k[1] - q[1] * k[0]) * np.sin(angle)
            assert score == pytest.approx(q @ k * np.cos(angle) + sine_part)
            assert abs(sine_part) > 1e-3
            assert abs(score - q @ k * np.cos(angle)) > 1e-3


def test_commuting_is_not_the_reason():
    a, b = rotation(3, 8), rotation(5, 8)
    np.testing.assert_allclose(a @ b, b @ a, atol=1e-12)  # they commute
    np.testing.assert_allclose(a.T @ b, rotation(2, 8), atol=1e-12)  # and this is what is used
    q, k = np.random.default_rng(0).standard_normal((2, 8))
    scaled = scores_of(q, k, lambda x, m: (1 + m) * x, lambda x, n: (1 + n) * x)  # multiples of I commute with all
    assert spread_along_diagonals(scaled) > 1
    skewed = np.random.default_rng(1).standard_normal((8, 8))
    skewed = skewed - skewed.T
    powers = [np.linalg.matrix_power(np.linalg.solve(np.eye(8) - skewed, np.eye(8) + skewed), m) for m in range(12)]
    assert is_toeplitz(scores_of(q, k, lambda x, m: powers[m] @ x, lambda x, n: powers[n] @ x))


def test_rope_is_relative_without_approximation():
    frequencies = rl.rope_frequencies(64)
    for size in (1e-3, 1.0, 1e3):
        q, k = size * torch.randn(2, 1, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        scores = []
        for offset in (0, 17, 4096):
            turned = [
                rl.apply_rotary(x, torch.tensor([p + offset]), frequencies, layout="interleaved")
                for x, p in ((q, 9), (k, 2))
            ]
            scores.append((turned[0] * turned[1]).sum().item())
        np.testing.assert_allclose(scores, scores[0], rtol=1e-9)


def test_relative_is_not_extrapolating():
    seen, unseen = np.arange(64), np.arange(64, 256)
    coefficients = fit_distances(-0.05 * seen, seen, dim=64)
    assert rms(encoding(seen, 64) @ coefficients + 0.05 * seen) < 0.01
    assert rms(encoding(unseen, 64) @ coefficients + 0.05 * unseen) > 5
    # these coefficients are a RoPE score: q fixed to (0, 1) in every pair, k carrying them
    q, k = np.tile([0.0, 1.0], 32), coefficients * np.tile([-1.0, 1.0], 32)
    assert is_toeplitz(scores_of(q, k, lambda x, m: rotation(m, 64) @ x, lambda x, n: rotation(n, 64) @ x))
    for distance in (3, 100):
        score = (rotation(distance, 64) @ q) @ k
        assert score == pytest.approx(encoding(distance, 64) @ coefficients)


class ElementCounter(TorchDispatchMode):
    """Counts the elements that multiplications, additions and subtractions make."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten.mul, torch.ops.aten.add, torch.ops.aten.sub):
            self.count += result.numel()
        return result


def test_count_of_operations():
    from rope_lessons.rotary import rotary_table, rotate

    length, dim = 10, 512
    x = torch.randn(length, dim)
    table = rl.sinusoidal_encoding(torch.arange(length), dim)
    cos, sin = rotary_table(torch.arange(length), rl.rope_frequencies(dim))  # computed beforehand, like the table
    with ElementCounter() as adding:
        x + table
    with ElementCounter() as turning:
        rotate(x, cos, sin, layout="interleaved")  # queries
        rotate(x, cos, sin, layout="interleaved")  # keys
    assert adding.count == length * dim
    assert turning.count == 6 * length * dim
    assert turning.count / length / (8 * dim**2) < 0.002
