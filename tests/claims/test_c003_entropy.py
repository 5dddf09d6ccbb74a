"""Document 003 (article 8 and its extension): attention entropy and log n scaling. Chapter 06."""

import math

import numpy as np
import pytest
from claim_tools import interval, over_seeds

from rope_lessons.stored import results

TRAIN = 512


def weights(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def entropy(logits: np.ndarray) -> np.ndarray:
    p = weights(logits)
    return -(p * np.log(np.where(p > 0, p, 1))).sum(-1)


def mean_entropy(spread: float, n: int, scale: float = 1.0) -> float:
    """Mean over 800 queries that see n keys with normal logits of this standard deviation."""
    logits = spread * np.random.default_rng(0).standard_normal((800, n))
    return float(entropy(scale * logits).mean())


def log_n(n: int) -> float:
    return math.log(n) / math.log(TRAIN)


def test_more_keys_more_entropy():
    for spread in (0.3, 1, 2, 3, 4):
        found = [mean_entropy(spread, n) for n in (64, 512, 4096)]
        assert found[0] + 0.5 < found[1] < found[2] - 0.5
    standout = np.zeros(4096)
    standout[0] = 40.0  # one key that leads by far more than ln n
    assert entropy(standout[:64]) < 1e-6
    assert entropy(standout) < 1e-6


def test_two_mismatches_between_training_and_test():
    """Five seeds, 512 bytes: without new distances (ReRoPE) a model gains most, with log n for more keys something."""

    def accuracy(model: str, method: str, length: int = 512) -> np.ndarray:
        return over_seeds(results("rerope")["rows"], "accuracy", model=model, method=method, length=length)

    plain, both = accuracy("plain", "rope"), accuracy("log n†", "rerope-32")
    no_new_distance, more_keys = accuracy("plain", "rerope-32"), accuracy("log n†", "rope")
    for gain, points in ((no_new_distance - plain, 24), (more_keys - plain, 3), (both - no_new_distance, 5)):
        mean, low, _ = interval(gain)
        assert low > 0
        assert round(100 * mean) == points
    assert np.abs(both - accuracy("plain", "rope", 64)).max() < 0.005


def test_log_n_steadies_the_entropy_of_peaked_attention():
    plain = [mean_entropy(3, n) for n in (64, 512, 4096)]
    scaled = [mean_entropy(3, n, log_n(n)) for n in (64, 512, 4096)]
    assert plain[2] - plain[1] > 1.3
    assert abs(scaled[2] - scaled[1]) < 0.1
    assert np.ptp(scaled) < 0.2 * np.ptp(plain)


def test_log_n_leaves_diffuse_attention_as_it_was():
    for spread, growth in ((0.3, 2.0), (1, 1.6)):
        scaled = [mean_entropy(spread, n, log_n(n)) for n in (512, 4096)]
        assert scaled[1] - scaled[0] > growth  # ln 8 = 2.08 is the largest growth there is


def test_entropy_of_equal_weights():
    for n in (1, 64, 4096):
        assert entropy(np.full(n, 1.7)) == pytest.approx(math.log(n))
    assert mean_entropy(3, 4096) < math.log(4096) - 3


def test_entropy_grows_by_less_than_log_of_the_length():
    """From 512 to 4096 keys ln n grows by 2.08. Normal logits of spread 3 and 4 give 1.5 and 0.9."""
    growth = {spread: mean_entropy(spread, 4096) - mean_entropy(spread, 512) for spread in (0.3, 3, 4)}
    assert growth[0.3] == pytest.approx(math.log(8), abs=0.02)
    assert growth[3] == pytest.approx(1.5, abs=0.1)
    assert growth[4] == pytest.approx(0.9, abs=0.1)


def test_limits_of_the_temperature():
    logits = np.random.default_rng(0).standard_normal(100)
    assert entropy(logits / 1e-3) < 1e-6
    assert entropy(logits / 1e6) == pytest.approx(math.log(100))
    tied = logits.copy()
    tied[:3] = 5.0
    assert entropy(tied / 1e-3) == pytest.approx(math.log(3))


def test_temperature_must_fall_with_the_length():
    """A temperature that grows with ln L makes the entropy grow faster than none; one that falls keeps it."""
    none, rising, falling = (
        mean_entropy(3, 4096, scale) - mean_entropy(3, TRAIN) for scale in (1, 1 / log_n(4096), log_n(4096))
    )
    assert rising > none + 1
    assert abs(falling) < 0.1


def test_temperature_of_log_n():
    """The document's s is already divided by √d. A temperature √d / log_N n on top divides by d at n = N."""
    dim, n = 64, 4096
    q, k = np.random.default_rng(0).standard_normal((2, n, dim))
    raw = k @ q[0]
    meant = weights(log_n(n) * raw / math.sqrt(dim))
    s = raw / math.sqrt(dim)
    np.testing.assert_allclose(weights(s / (1 / log_n(n))), meant)
    assert np.abs(weights(s / (math.sqrt(dim) / log_n(n))) - meant).max() > 0.5 * meant.max()


def test_logarithm_to_a_base_is_a_quotient():
    assert log_n(4096) == pytest.approx(4 / 3)
    assert math.log(4096) - math.log(TRAIN) == pytest.approx(2.08, abs=5e-3)
    assert math.log(TRAIN) - math.log(TRAIN) == 0  # so the "temperature" √d / 0 at the training length itself


def test_formula_for_the_scaled_entropy():
    """ln n - ln(log_N n) grows from 6.24 to 8.03 between 512 and 4096. It is no constant, and not the entropy."""

    def formula(n: int) -> float:
        return math.log(n) - math.log(log_n(n))

    assert formula(4096) - formula(TRAIN) == pytest.approx(1.79, abs=5e-3)
    assert mean_entropy(3, 4096, log_n(4096)) < formula(4096) - 4.5
    equal = np.zeros(4096)
    assert entropy(log_n(4096) * equal) == pytest.approx(math.log(4096))
    assert math.log(4096) > formula(4096) + 0.2
