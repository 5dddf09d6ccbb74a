"""Document 001, the sections on interpolation, NTK-aware, YaRN and rotation that extrapolates. Chapters 03 and 05."""

import math

import numpy as np
import pytest
import torch
from claim_tools import frequencies, interval, mean_over_seeds, over_seeds, score_bytes

import rope_lessons as rl
from rope_lessons.lab.table.documents import difference
from rope_lessons.stored import results
from tests.seeds import ahead

DIM, TRAIN = 128, 4096


def test_distances_leave_the_trained_range():
    seen, met = ({i - j for i in range(length) for j in range(i + 1)} for length in (32, 256))
    assert met - seen == set(range(32, 256))
    assert max(met) * 32 / 256 < 32  # scaled by N/L all of them fall inside the range


def test_interpolated_positions():
    """Factor 4: positions 1 … 4n become 1/4, 2/4, …, n - 1/4, n; whole numbers are every fourth."""
    n = 16
    scaled = np.arange(1, 4 * n + 1) / 4
    np.testing.assert_allclose(scaled[:3], (0.25, 0.5, 0.75))
    np.testing.assert_allclose(scaled[-2:], (n - 0.25, n))
    assert scaled.max() == n
    turned = frequencies(16) * 4 * n
    np.testing.assert_allclose(rl.pi_frequencies(16, 4).numpy() * 4 * n, turned / 4)


def test_interpolation_lowers_every_frequency():
    scale = 1 / 8
    plain = frequencies(DIM)
    np.testing.assert_allclose(rl.pi_frequencies(DIM, 8).numpy(), scale * plain)
    assert (scale * plain < plain).all()
    np.testing.assert_allclose(2 * np.pi / (scale * plain), 8 * 2 * np.pi / plain)


def test_ntk_aware_slows_pairs_that_have_gone_round():
    """Both keep the first pair and interpolate the last. NTK-aware halves the speed of a pair that turned 37 times."""
    plain = rl.rope_frequencies(DIM)
    aware = (rl.ntk_frequencies(DIM, 8, variant="aware") / plain).numpy()
    yarn = (rl.yarn_frequencies(DIM, 8, TRAIN) / plain).numpy()
    for speed in (aware, yarn):
        assert speed[0] == pytest.approx(1)
        assert speed[-1] == pytest.approx(1 / 8)
    turns = TRAIN * plain.numpy() / (2 * math.pi)
    assert turns[20] == pytest.approx(36.7, abs=0.05)
    assert yarn[20] == 1
    assert aware[20] == pytest.approx(0.517, abs=5e-4)


def test_yarn_changes_the_scores_too():
    """transformers' YaRN multiplies cosine and sine by 0.1 ln κ + 1, and so every score by its square."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 8.0, "original_max_position_embeddings": TRAIN}
    config = LlamaConfig(rope_parameters=rope, max_position_embeddings=8 * TRAIN)
    _, factor = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")
    assert factor == pytest.approx(0.1 * math.log(8) + 1)
    assert factor**2 == pytest.approx(1.459, abs=5e-4)
    assert rl.yarn_attention_factor(8) == pytest.approx(factor)


def test_yarn_factor_is_folded_into_the_tables():
    """Turning by tables that carry the factor costs what turning costs, and gives the scores their square."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 9, 16, generator=generator, dtype=torch.float64) for _ in range(3))
    omega, factor = rl.yarn_frequencies(16, 8, 64), rl.yarn_attention_factor(8)
    positions = torch.arange(9)
    plain, scaled = (
        (
            rl.apply_rotary(q, positions, omega, layout="half", scale=scale)
            @ rl.apply_rotary(k, positions, omega, layout="half", scale=scale).mT
        )
        for scale in (1.0, factor)
    )
    torch.testing.assert_close(scaled, factor**2 * plain)
    in_scheme = rl.attention(q, k, v, rl.scheme("rope", dim=16, rotary_scale=factor), frequencies=omega)
    weights = (scaled / 4).masked_fill(torch.ones(9, 9).triu(1).bool(), -torch.inf).softmax(-1)
    torch.testing.assert_close(in_scheme, weights @ v)


def yarn_score(length: int, window: int) -> float:
    factor = length / window
    scheme = rl.scheme("rope", dim=64, rotary_scale=rl.yarn_attention_factor(factor))
    return score_bytes(length, scheme, rl.yarn_frequencies(64, factor, window))[0]


def test_yarn_is_behind_rerope_on_the_small_model():
    for first, second, points in (("yarn", "rope", 3.1), ("rerope-w32", "yarn", 4.4)):
        mean, low, _ = difference(first, second, "not repeated")
        assert low > 0
        assert 100 * mean == pytest.approx(points, abs=0.05)
    _, low, high = difference("rerope-w32", "yarn", "repeated")
    assert low < 0 < high
    for text, over, behind in (("natural", 19.2, 6.9), ("repeated", 29.4, 6.5)):
        for first, second, points in (("yarn", "rope", over), ("rerope-w32", "yarn", behind)):
            mean, low, _ = ahead(first, second, text)
            assert mean == points
            assert low > 0
    leaky = score_bytes(512, rl.scheme("leaky-rerope", dim=64, window=32, slope=1 / 16))[0]
    assert leaky > max(yarn_score(512, 64), score_bytes(512, rl.scheme("rerope", dim=64, window=32))[0]) + 0.02


def test_rotation_does_not_extrapolate_by_itself():
    rows = results("radix")["rows"]
    short, long = (mean_over_seeds(rows, "accuracy", method="rope", length=length) for length in (64, 512))
    assert short > 0.57
    assert long < 0.34


def test_factor_over_the_seen_length_is_not_always_best():
    """Trained on 64, served at 512. Over 64 the factor is 8; over a declared 85, as 4k stands to 3k, it is 6."""
    assert pytest.approx(8 / 3) == 8192 / 3072  # the case of the document: not 8192/4096 = 2
    for factor, inside in ((8 / 3, True), (2, False)):
        assert (8191 / factor < 3072) is inside
    rows = results("circles")["declared"].where(length=512)
    for method, points in (("pi", 1.5), ("yarn", 2.0), ("llama3", 4.1), ("ntk-aware", -1.3)):
        declared, seen = (over_seeds(rows, "accuracy", method=f"{method}-{which}") for which in ("declared", "seen"))
        mean, low, high = interval(declared - seen)
        assert 100 * mean == pytest.approx(points, abs=0.051)
        assert low * high > 0
