"""Document 000 (article 11 and its extension): log n scaling before and after training, the centre. Chapter 06."""

import math

import numpy as np
import pytest
import torch
from claim_tools import over_seeds, score_bytes

import rope_lessons as rl
from rope_lessons.stored import results

TRAIN = 64  # of the small model


def dagger(n: int, train_length: int) -> float:
    return max(1.0, math.log(n) / math.log(train_length))


def random_text(seq: int, dim: int = 16) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, 2, seq, dim, generator=generator, dtype=torch.float64) for _ in range(3)]


def test_dagger_changes_nothing_within_the_training_length():
    assert all(dagger(n, 512) == 1 for n in range(1, 513))
    assert dagger(513, 512) > 1
    counts = torch.tensor([1, 512, 513, 4096])
    torch.testing.assert_close(
        rl.log_n_scale(counts, 512, clip=True), torch.tensor([dagger(n, 512) for n in counts.tolist()]).double()
    )
    q, k, v = random_text(40)
    plain = rl.attention(q, k, v, rl.scheme("rope", dim=16))
    scaled = rl.attention(q, k, v, rl.scheme("rope", dim=16, scale=rl.LogN(20, clip=True)))
    torch.testing.assert_close(scaled[:, :, :20], plain[:, :, :20], rtol=0, atol=1e-12)
    assert (scaled[:, :, 25:] - plain[:, :, 25:]).abs().max() > 1e-3


def test_dagger_is_continuous_with_a_kink():
    """No jump at N, but the slope jumps from 0 to 1/(N ln N)."""
    size, step = 512, 1e-3

    def scale(n: float) -> float:
        return max(1.0, math.log(n) / math.log(size))

    assert abs(scale(size + step) - scale(size - step)) < 1e-6
    right, left = (scale(size + step) - 1) / step, (1 - scale(size - step)) / step
    assert left == 0
    assert right == pytest.approx(1 / (size * math.log(size)), rel=1e-3)


def test_factor_may_be_put_on_the_query():
    q, k, v = random_text(40)
    factors = torch.tensor([dagger(n, 20) for n in range(1, 41)], dtype=torch.float64)
    on_query = rl.attention(q * factors[:, None], k, v, rl.scheme("rope", dim=16))
    on_scores = rl.attention(q, k, v, rl.scheme("rope", dim=16, scale=rl.LogN(20, clip=True)))
    torch.testing.assert_close(on_query, on_scores)
    on_key = rl.attention(q, k * factors[:, None], v, rl.scheme("rope", dim=16))
    assert (on_key - on_scores).abs().max() > 1e-3  # a key's factor would be that of another query


METHODS = ("rope", "ntk-fixed-8", "ntk-aware-64")


def accuracy(trained: str, scale: str, method: str, length: int = 512) -> np.ndarray:
    rows = results("entropy")["accuracy"]
    return over_seeds(rows, "accuracy", trained=trained, scale=scale, method=method, length=length)


def test_dagger_helps_a_model_trained_without_it():
    """Five seeds, length 512: more bytes right with the factor after training, in every seed."""
    for method in METHODS:
        gain = accuracy("plain", "log-n-after", method) - accuracy("plain", "none", method)
        assert len(gain) == 5
        assert gain.min() > 0.01
        assert 0.025 < gain.mean() < 0.06
        np.testing.assert_array_equal(
            accuracy("plain", "log-n-after", method, 64), accuracy("plain", "none", method, 64)
        )


def test_log_n_without_pretraining_costs_little():
    """The unclipped factor on a model trained without it: within a point at 64, and better than nothing at 512."""
    scale = rl.LogN(TRAIN)
    short = score_bytes(64, rl.scheme("rope", dim=64, scale=scale))[0]
    assert score_bytes(64)[0] - 0.01 < short < score_bytes(64)[0]
    assert score_bytes(512, rl.scheme("rope", dim=64, scale=scale))[0] > score_bytes(512)[0] + 0.03


def centre(scores: np.ndarray, i: int, scale: float = 1.0) -> float:
    """Mean position (from 1) that query i looks at, under a causal mask."""
    weights = np.exp(scale * scores[i - 1, :i])
    return float((np.arange(1, i + 1) * weights).sum() / weights.sum())


def test_centre_of_a_query_does_not_move():
    """With a causal mask a query sees what came before it. More text behind it changes nothing."""
    scores = np.random.default_rng(0).standard_normal((512, 512))
    for i in (10, 64):
        assert centre(scores[:64, :64], i) == centre(scores, i)
    bidirectional = [np.average(np.arange(1, n + 1), weights=np.exp(scores[9, :n])) for n in (64, 512)]
    assert bidirectional[1] > 4 * bidirectional[0]  # without the mask it moves, by far more than ln 8


def test_log_n_does_not_hold_the_centre():
    """Equal scores: the centre is (i + 1)/2 under any scale. And the factor written, log n, is 6.2 at n = N = 512."""
    equal = np.full((512, 512), 0.7)
    for i in (8, 64, 512):
        for scale in (0.1, 1.0, math.log(i)):
            assert centre(equal, i, scale) == pytest.approx((i + 1) / 2)
    assert math.log(512) == pytest.approx(6.24, abs=5e-3)
    assert rl.log_n_scale(torch.tensor([512]), 512).item() == 1
