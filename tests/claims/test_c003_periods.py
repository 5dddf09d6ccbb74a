"""Document 003, extension: periods, aliases, the stability index, slower frequencies. Chapters 04 and 05."""

import math

import numpy as np
import pytest
import torch
from claim_tools import B, encoding, frequencies, interval, over_seeds, score_bytes

import rope_lessons as rl
from rope_lessons.lab.table.documents import difference
from rope_lessons.stored import results

DIM = 128


def periods(dim: int = DIM, base: float = B) -> np.ndarray:
    return 2 * np.pi / frequencies(dim, base)


def index(length: float, omega: np.ndarray) -> float:
    """The document's stability index: the share of pairs whose period is longer than the text."""
    return float(np.mean(length * omega < 2 * np.pi))


def test_period_of_a_pair():
    t = np.arange(DIM // 2)
    np.testing.assert_allclose(periods(), 2 * np.pi * B ** (2 * t / DIM))
    for pair, period in enumerate(periods(6)):
        shifted = encoding(np.arange(50) + period, 6) - encoding(np.arange(50), 6)
        assert np.abs(shifted[:, 2 * pair : 2 * pair + 2]).max() < 1e-9
        assert np.abs(shifted).max() > 1e-2  # the others are elsewhere


def test_longest_period_is_shorter_than_two_pi_base():
    assert periods()[0] == pytest.approx(2 * np.pi)
    assert periods()[-1] == pytest.approx(2 * np.pi * B ** (1 - 2 / DIM))
    assert periods()[-1] == pytest.approx(54_410, abs=1)
    assert 2 * np.pi * B == pytest.approx(62_832, abs=1)
    assert periods()[-1] / 2 == pytest.approx(27_205, abs=1)


def test_no_two_positions_share_an_encoding():
    """Far beyond the period of the fast pairs: a pair comes near to an old place, and the others tell them apart."""
    codes = encoding(np.arange(4096), 64)
    nearest = np.min([np.linalg.norm(codes[i:] - codes[:-i], axis=1).min() for i in range(1, 4096)])
    assert nearest > 1
    fast = encoding(np.arange(4096), 2)  # pair 0 alone: never the same place twice on the integers
    gaps = np.diff(np.sort(np.angle(fast[:, 1] + 1j * fast[:, 0])))
    assert 0 < gaps.min() < 1e-2


def test_slow_pairs_meet_the_unseen_angles():
    """Trained on 512, read at 4096: pairs that had gone round see nothing new, the slowest mostly new angles."""
    turns = 511 * frequencies(DIM) / (2 * np.pi)
    later = 4095 * frequencies(DIM) / (2 * np.pi)
    unseen = np.minimum(later, 1) - np.minimum(turns, 1)  # share of the dial
    assert (unseen[turns >= 1] == 0).all()
    assert (unseen[turns < 1] > 0).all()
    assert unseen.max() > 0.8


def test_slowing_the_slow_pairs_helps_and_the_fast_ones_harms():
    """Small model at 512: its first 9 pairs have gone round in training, the other 23 have not."""
    plain = rl.rope_frequencies(64)
    assert int((63 * plain >= 2 * math.pi).sum()) == 9
    slow, fast = plain.clone(), plain.clone()
    slow[9:] /= 8
    fast[:9] /= 8
    assert score_bytes(512, frequencies=slow)[0] > score_bytes(512)[0] + 0.03
    assert score_bytes(512, frequencies=fast)[0] < score_bytes(512)[0] - 0.03


def test_index_counts_pairs_logarithmically():
    """The index is 1 - log_B(L / 2π) to within one pair, and the pair with period L is d/2 times that logarithm."""
    for length in np.geomspace(2 * np.pi, 2 * np.pi * B ** (1 - 2 / DIM), 200):
        formula = 1 - math.log(length / (2 * np.pi), B)
        assert abs(index(length, frequencies(DIM)) - formula) <= 2 / DIM + 1e-9
        critical = DIM / 2 * math.log(length / (2 * np.pi), B)
        assert 2 * np.pi * B ** (2 * critical / DIM) == pytest.approx(length)


def test_index_of_short_texts_is_not_one():
    assert index(512, frequencies(DIM)) == pytest.approx(0.516, abs=1e-3)
    assert index(64, frequencies(DIM)) == pytest.approx(0.734, abs=1e-3)


def test_index_at_the_base_is_not_zero():
    assert index(10_000, frequencies(DIM)) == pytest.approx(0.1875)
    assert index(54_411, frequencies(DIM)) == 0


def test_a_higher_index_is_no_better_model():
    """Frequencies of 0 have the index 1 at every length, and PI a higher one than RoPE. Both are behind RoPE."""
    omega = rl.rope_frequencies(64).numpy()
    assert index(512, 0 * omega) == 1
    assert index(512, omega / 8) > index(512, omega)
    without = score_bytes(512, frequencies=torch.zeros(32, dtype=torch.float64))[0]
    assert without < score_bytes(512)[0] - 0.2
    assert difference("pi", "rope", "not repeated")[2] < 0


def test_decay_slows_the_slow_pairs():
    """ω_t γ^t is RoPE with the base B γ^(-d/2): pair 0 keeps its speed, the last pair loses most."""
    decay = 0.98
    slowed = frequencies(DIM) * decay ** np.arange(DIM // 2)
    assert slowed[0] == 1
    np.testing.assert_allclose(slowed, frequencies(DIM, B * decay ** (-DIM / 2)))
    factor = decay ** (-DIM / 2)
    np.testing.assert_allclose(slowed, rl.ntk_frequencies(DIM, factor, variant="old").numpy())


def test_larger_base_leaves_the_first_period():
    for base in (8e4, 1e6):
        longer = periods(DIM, base) / periods()
        assert longer[0] == 1
        assert (np.diff(longer) > 0).all()


def test_step_between_neighbours_under_a_larger_base():
    """It falls, from 2.761 to 2.531 at 8 times the base. The document adds the pairs' matrices and gets 10.26."""

    def step(base: float) -> float:
        turn = np.exp(1j * frequencies(DIM, base)) - 1
        return math.sqrt(2 * (np.abs(turn) ** 2).sum())  # Frobenius norm of R(ω) - I, block by block

    assert step(B) == pytest.approx(2.761, abs=5e-4)
    assert step(8 * B) == pytest.approx(2.531, abs=5e-4)
    added = abs((np.exp(1j * frequencies(DIM)) - 1).sum()) * math.sqrt(2)
    assert added == pytest.approx(10.26, abs=5e-3)
    sizes = np.abs(np.exp(1j * frequencies(DIM)) - 1)
    smaller = np.abs(np.exp(1j * frequencies(DIM, 8 * B)) - 1)
    assert (smaller[1:] < sizes[1:]).all()


def test_half_a_turn_is_the_farthest_on_the_dial():
    """The chord grows up to half a turn and shrinks again; sine and cosine together know the whole turn."""
    period = periods(8)[1]
    distance = np.linspace(0, period, 201)[:-1]
    chord = np.abs(np.exp(2j * np.pi * distance / period) - 1)
    assert distance[chord.argmax()] == pytest.approx(period / 2)
    angles = np.angle(np.exp(2j * np.pi * distance / period)) % (2 * np.pi)
    np.testing.assert_allclose(angles / (2 * np.pi) * period, distance, atol=1e-9)


def test_a_larger_base_after_training_extends():
    """The old NTK form with the factor 8 is RoPE with 8 times the base."""
    torch.testing.assert_close(rl.ntk_frequencies(64, 8, variant="old"), rl.rope_frequencies(64, base=8 * B))
    rows = results("radix")["rows"]
    larger, plain = (over_seeds(rows, "accuracy", method=name, length=512) for name in ("ntk-old", "rope"))
    assert tuple(round(100 * x) for x in interval(larger - plain)) == (6, 5, 8)
