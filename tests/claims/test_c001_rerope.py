"""Document 001, the section on Leaky ReRoPE and ReRoPE. Chapter 08."""

import numpy as np
import pytest
import torch
from claim_tools import interval, over_seeds, rotation

import rope_lessons as rl
from rope_lessons.stored import results

TRAIN, WINDOW = 64, 16


def bent(distance: np.ndarray, window: int, k: float) -> np.ndarray:
    """Up to the window as it is, beyond it w + (Δ - w)/k; the document's matrix, written apart from the package."""
    return np.where(distance < window, distance, window + (distance - window) / k)


def test_matrix_of_leaky_distances():
    length, k = 40, 4
    distance = np.arange(length)[:, None] - np.arange(length)
    matrix = np.where(distance >= 0, bent(distance, WINDOW, k), np.nan)
    assert matrix[-1, 0] == WINDOW + (length - 1 - WINDOW) / k
    assert list(matrix[WINDOW + 2, :4]) == [WINDOW + 2 / k, WINDOW + 1 / k, WINDOW, WINDOW - 1]
    package = rl.rerope.leaky_distance(torch.from_numpy(distance), WINDOW, 1 / k).numpy()
    lower = distance >= 0
    np.testing.assert_allclose(package[lower], matrix[lower])


def test_k_of_one_is_no_change():
    distance = np.arange(200)
    np.testing.assert_array_equal(bent(distance, WINDOW, 1), distance)
    for length, inside in ((TRAIN, True), (TRAIN + 1, False)):
        assert bool(bent(np.arange(length), WINDOW, 1).max() <= TRAIN - 1) is inside


def test_infinite_k_never_leaves_the_trained_range():
    far = bent(np.arange(10**6), WINDOW, np.inf)
    assert far.max() == WINDOW <= TRAIN - 1
    np.testing.assert_array_equal(
        rl.rerope.leaky_distance(torch.tensor([15, 16, 17, 10**6]), 16, 0.0), [15, 16, 16, 16]
    )
    assert bent(np.arange(10**6), TRAIN, np.inf).max() > TRAIN - 1  # a window of N or more is one step too many


def test_larger_k_reaches_farther():
    """All bent distances stay within N - 1 up to the length w + 1 + k (N - 1 - w), counted by trying."""
    reached = []
    for k in (1, 2, 4, 16):
        length = TRAIN
        while bent(np.array([length]), WINDOW, k)[0] <= TRAIN - 1:
            length += 1
        assert length == WINDOW + 1 + k * (TRAIN - 1 - WINDOW)
        reached.append(length)
    assert reached == sorted(reached)
    assert reached[0] == TRAIN


def test_rerope_costs_nothing_within_the_training_length():
    """Five seeds: half the training length as the window, at 64 as good as plain RoPE, at 512 far better."""
    for method in ("rerope-32", "leaky-32-16"):
        short, long = (loss("plain", method, n) - loss("plain", "rope", n) for n in (64, 512))
        assert np.abs(short).max() < 0.003
        assert long.max() < -1


def loss(model: str, method: str, length: int) -> np.ndarray:
    return over_seeds(results("rerope")["rows"], "loss", model=model, method=method, length=length)


def test_longer_context_does_not_always_lower_the_loss():
    """Five seeds, window 32: higher at 512 than at 64, lower at 128; with log n after training lower at 512 as well."""

    def change(model: str, method: str, length: int) -> tuple[float, float, float]:
        short, long = (loss(model, method, n) for n in (64, length))
        return interval(long - short)

    for method, more, less in (("rerope-32", 0.17, 0.01), ("leaky-32-16", 0.05, 0.02)):
        mean, low, _ = change("plain", method, 512)
        assert low > 0
        assert round(mean, 2) == more
        assert change("plain", method, 128)[2] < 0
        mean, _, high = change("log n†", method, 512)
        assert high < 0
        assert round(-mean, 2) == less


def test_leaky_interpolates_far_and_not_near():
    """Near distances keep whole steps, far ones have steps of 1/k; no single change of frequencies gives both."""
    k = 4
    steps = np.diff(bent(np.arange(60), WINDOW, k))
    np.testing.assert_allclose(steps[: WINDOW - 1], 1)
    np.testing.assert_allclose(steps[WINDOW:], 1 / k)
    dim = 8
    turned = [rotation(x, dim) for x in bent(np.arange(60), WINDOW, k)]
    near_step, far_step = turned[2] @ turned[1].T, turned[41] @ turned[40].T
    np.testing.assert_allclose(near_step, rotation(1, dim))
    np.testing.assert_allclose(far_step, rotation(1 / k, dim), atol=1e-12)
    assert np.abs(near_step - far_step).max() > 0.5
    offset = turned[40] @ rotation(40 / k, dim).T  # far: frequencies ω/k, behind a fixed turn by (1 - 1/k) w ω
    np.testing.assert_allclose(offset, rotation((1 - 1 / k) * WINDOW, dim), atol=1e-12)
    assert WINDOW * (1 - 1 / k) == pytest.approx(12)
