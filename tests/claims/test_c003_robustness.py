"""Document 003: local attention, and the extension on robustness, interpolation, bounds. Chapters 02, 03, 07, 10."""

import math

import numpy as np
import pytest
import torch
from claim_tools import byte_model, contains_zero, frequencies, mean_over_seeds, over_seeds, rotation, score_bytes

import rope_lessons as rl
from rope_lessons.stored import results

DIM = 128


# --- local attention on a language model ---------------------------------------------------------------------------


def test_a_window_extends_a_language_model():
    """By its loss, the small model reads 512 bytes with a window of 64 as well as it reads 64; without, far worse."""
    stored = results("rerope")
    few = stored["rows"].where(seed=(0, 1, 2), model="plain")
    window = mean_over_seeds(stored["relatives"], "loss", method="window-64", length=512)
    assert window < mean_over_seeds(few, "loss", method="rope", length=64)
    assert window < mean_over_seeds(few, "loss", method="rope", length=512) - 1


def test_bytes_are_guessed_from_the_last_few():
    """Windows of 8 in two layers, 15 bytes in all, cost less than a point of accuracy; windows of 2 more than 10."""
    assert [rl.local.receptive_field(window, 2, causal=True) for window in (8, 2)] == [15, 3]
    full = score_bytes(64)[0]
    assert full - score_bytes(64, rl.scheme("rope", dim=64, visible_window=8))[0] < 0.01
    assert full - score_bytes(64, rl.scheme("rope", dim=64, visible_window=2))[0] > 0.1


def test_a_window_fails_where_the_task_is_not_local():
    """The row with the lowest loss only guesses beyond its window. ReRoPE, with more loss, answers everything."""
    tests = results("local")["rows"].where(method="rope").by("test")
    loss = {test: float(np.mean([row["long"]["loss"] for row in found])) for test, found in tests.items()}
    assert min(loss, key=loss.__getitem__) == "LM-Infinite, 1"
    far = [row["recall"][distance] for row in tests["LM-Infinite, 1"] for distance in ("40", "96", "192", "384")]
    assert len(far) == 12
    assert np.mean(far) < 0.06
    assert all(set(row["recall"].values()) == {1.0} for row in tests["ReRoPE, log n"])


# --- robustness: definitions ---------------------------------------------------------------------------------------


def test_direct_extrapolation_moves_no_position():
    """The first 64 of 512 bytes stand where they stood and get the same outputs. What fails are the others."""
    model, windows = byte_model()
    tokens = windows[:4, :512]
    with torch.no_grad():
        long, short = model(tokens)[:, :64], model(tokens[:, :64])
    assert (long - short).abs().max() < 1e-4
    assert score_bytes(512)[0] < score_bytes(64)[0] - 0.2


def test_a_common_shift_changes_nothing():
    """A relative encoding is blind to the same offset for all, so such an offset measures nothing."""
    q, k, v = torch.randn(3, 1, 2, 20, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    row, at = rl.scheme("rope", dim=16), torch.arange(20)
    here = rl.attention(q, k, v, row, q_positions=at, k_positions=at)
    there = rl.attention(q, k, v, row, q_positions=at + 1000, k_positions=at + 1000)
    stretched = rl.attention(q, k, v, row, q_positions=2 * at, k_positions=2 * at)
    assert (here - there).abs().max() < 1e-6
    assert (here - stretched).abs().max() > 1e-2


def test_equal_differences_are_not_equal_order():
    """[1, 3, 5] and [2, 4, 8] have one order and different differences; equal differences leave a shift only."""
    a, b = np.array([1, 3, 5]), np.array([2, 4, 8])

    def differences(p):
        return p[:, None] - p

    assert (np.argsort(a) == np.argsort(b)).all()
    assert (differences(a) != differences(b)).any()
    same = [p for p in np.ndindex(9, 9, 9) if p[0] < p[1] < p[2] and (differences(np.array(p)) == differences(a)).all()]
    assert same == [(s, s + 2, s + 4) for s in range(5)]
    ordered = sum(p[0] < p[1] < p[2] for p in np.ndindex(9, 9, 9))
    assert ordered == math.comb(9, 3)  # 84 sequences of that order, 5 with those differences


def test_the_most_robust_model_sees_no_position():
    """Frequencies of 0: the output does not depend on positions at all, and the small model is at 11 %."""
    q, k, v = torch.randn(3, 1, 2, 12, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    zero, row = torch.zeros(8, dtype=torch.float64), rl.scheme("rope", dim=16)
    outputs = []
    for at in (torch.arange(12), torch.arange(12).square()):
        outputs.append(rl.attention(q, k, v, row, q_positions=at, k_positions=at, frequencies=zero))
    assert torch.equal(*outputs)
    blind = score_bytes(512, frequencies=torch.zeros(32, dtype=torch.float64))[0]
    assert blind < score_bytes(512)[0] - 0.2


def test_turned_twice_and_turned_by_the_difference():
    v = np.random.default_rng(0).standard_normal(16)
    for m, n in ((5, 2), (1000, 997), (3, 40)):
        apart = np.linalg.norm(rotation(m, 16) @ v - rotation(n, 16) @ v)
        assert apart == pytest.approx(np.linalg.norm(rotation(m - n, 16) @ v - v))


def test_lipschitz_constant_is_one_number():
    """‖R(m) - R(n)‖ / |m - n| depends on the distance; the constant is its supremum, the highest frequency, 1."""

    def ratio(distance: float) -> float:
        return float(np.linalg.norm(rotation(distance, 8) - np.eye(8), 2) / distance)

    assert ratio(1) > ratio(2) + 0.1 > ratio(3) + 0.2
    assert max(ratio(x) for x in np.linspace(1e-3, 50, 2000)) <= 1
    assert ratio(1e-4) == pytest.approx(1, abs=1e-8)


def test_rope_is_lipschitz():
    """In the spectral norm with the constant 1; for one vector, too."""
    v = np.random.default_rng(0).standard_normal(8)
    for m, n in ((0, 1), (7, 4), (100, 3), (2.5, 2.25)):
        gap = rotation(m, 8) - rotation(n, 8)
        assert np.linalg.norm(gap, 2) <= abs(m - n)
        assert np.linalg.norm(gap @ v) <= abs(m - n) * np.linalg.norm(v)


def test_frobenius_norm_is_larger_by_root_two():
    """One pair: 4 - 4 cos, not 2 - 2 cos. All pairs near 0: √2 times the document's bound."""
    for angle in (0.1, 1.0, 2.0):
        one = rotation(angle, 2) - np.eye(2)
        assert np.linalg.norm(one) ** 2 == pytest.approx(4 - 4 * math.cos(angle))
        assert np.linalg.norm(one, 2) ** 2 == pytest.approx(2 - 2 * math.cos(angle))
    distance = 0.01
    bound = distance * math.sqrt((frequencies(8) ** 2).sum())
    found = np.linalg.norm(rotation(distance, 8) - np.eye(8))
    assert found == pytest.approx(math.sqrt(2) * bound, rel=1e-4)


def test_rope_sets_planes_side_by_side():
    v, m = np.random.default_rng(0).standard_normal(8), 37
    turned = np.concatenate(
        [rotation(m * w, 2) @ block for w, block in zip(frequencies(8), v.reshape(-1, 2), strict=True)]
    )
    np.testing.assert_allclose(rotation(m, 8) @ v, turned)


def test_roles_of_fast_and_slow_pairs():
    """d = 128. The 13 pairs that turn by more than 0.16 carry more than 96 % of the squared step between neighbours.
    Half of the pairs turn by less than 0.01 from one token to the next."""
    step = (2 * np.sin(frequencies(DIM) / 2)) ** 2
    assert step[frequencies(DIM) > 0.16].sum() / step.sum() > 0.96
    assert (frequencies(DIM) > 0.16).sum() == 13
    assert (frequencies(DIM) < 0.01).mean() == pytest.approx(0.484, abs=1e-3)
    chord = 2 * np.abs(np.sin(np.arange(1, 1001)[:, None] * frequencies(DIM) / 2))
    rising = (np.diff(chord, axis=0) > 0).all(axis=0)  # a longer distance is always a longer chord, up to 1000
    assert (rising == (frequencies(DIM) * 999.5 < math.pi)).all()
    assert rising.sum() == 23


# --- interpolation against extrapolation ---------------------------------------------------------------------------


def test_interpolated_positions_are_slower_frequencies():
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    omega, at = rl.rope_frequencies(16), torch.arange(64)
    divided = rl.apply_rotary(x, at.double() / 8, omega, layout="half")
    slower = rl.apply_rotary(x, at, omega / 8, layout="half")
    assert torch.allclose(divided, slower, atol=1e-6)
    assert torch.allclose(rl.pi_frequencies(16, 8), omega / 8)


def test_interpolation_does_not_stop_the_turning():
    """All positions below 64; still 9 of 32 pairs go round, as they did in training."""
    places = np.arange(512) / 8
    assert places.max() < 64
    assert ((places.max() * frequencies(64)) > 2 * math.pi).sum() == 9
    assert ((63 * frequencies(64)) > 2 * math.pi).sum() == 9


def test_fractions_were_never_trained():
    """7 of 8 interpolated positions are no whole numbers; at the training length, PI costs 28 points."""
    assert (np.arange(512) / 8 % 1 > 0).mean() == 7 / 8
    rows = results("radix")["rows"]
    at_64 = {name: mean_over_seeds(rows, "accuracy", method=name, length=64) for name in ("rope", "pi")}
    assert at_64["rope"] - at_64["pi"] == pytest.approx(0.28, abs=0.01)


def test_interpolation_shrinks_every_distance():
    at = np.arange(40) / 8
    np.testing.assert_allclose(at[:, None] - at, (np.arange(40)[:, None] - np.arange(40)) / 8)
    assert np.diff(at).max() == 1 / 8


def test_extrapolation_keeps_near_scores():
    """Direct extrapolation: the score of two near tokens is the same anywhere in the text; under PI it is not."""
    q, k = torch.randn(2, 1, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    omega = rl.rope_frequencies(64)

    def score(i: int, j: int, frequencies=omega) -> float:
        turned = [rl.apply_rotary(x, torch.tensor([n]), frequencies, layout="half") for x, n in ((q, i), (k, j))]
        return float((turned[0] * turned[1]).sum())

    assert score(500, 497) == pytest.approx(score(3, 0), abs=1e-4)
    assert abs(score(500, 497, omega / 8) - score(3, 0)) > 0.1


def test_error_of_interpolation_is_not_linear():
    """An accuracy cannot fall by more than 1, and α - 1 has no bound. Measured: 28 points at α = 8 on 64 bytes."""
    rows = results("radix")["rows"]
    short = mean_over_seeds(rows, "accuracy", method="pi", length=64)
    long = mean_over_seeds(rows, "accuracy", method="pi", length=512)
    assert abs(short - long) < 0.03  # the error is that of the factor, hardly that of the length
    assert mean_over_seeds(rows, "accuracy", method="rope", length=64) - short > 0.25


def extrapolation_term(length: int, omega: np.ndarray) -> float:
    """The document's sum: 1/d for each pair whose period is shorter than the text."""
    return float((2 * np.pi / omega < length).sum() / (2 * len(omega)))


def test_error_of_extrapolation_is_not_the_share_of_round_pairs():
    """At the training length, where nothing is extrapolated, the sum is 0.14; without positions it is 0 at 512."""
    omega = frequencies(64)
    assert extrapolation_term(64, omega) == pytest.approx(9 / 64)
    assert extrapolation_term(512, omega) == pytest.approx(16 / 64)
    assert extrapolation_term(512, omega * 1e-9) == 0
    blind = score_bytes(512, frequencies=torch.zeros(32, dtype=torch.float64))[0]
    assert blind < score_bytes(512)[0] - 0.2


def test_interpolation_is_steadier_and_not_better_at_a_large_factor():
    """α = 8, five seeds, without training: PI is flat along the text; over the whole text nothing is sure."""
    rows = results("radix")["rows"]
    for what in ("accuracy", "loss"):
        pi, rope = (over_seeds(rows, what, method=name, length=512) for name in ("pi", "rope"))
        assert contains_zero(pi - rope)
    along = {}
    for name in ("pi", "rope"):
        found = [row for row in rows if (row["method"], row["length"]) == (name, 512)]
        along[name] = np.array([row["accuracy_by_eighth"] for row in found])
    assert along["pi"].shape == along["rope"].shape == (5, 8)
    spread = {name: float(np.ptp(found.mean(axis=0))) for name, found in along.items()}
    assert spread["pi"] < 0.03 < 0.3 < spread["rope"]
    assert (along["pi"][:, 6:] > along["rope"][:, 6:]).all()


# --- bounds --------------------------------------------------------------------------------------------------------


def test_rademacher_says_nothing_about_other_lengths():
    """A class of one function has Rademacher complexity 0. This one is right up to 40 tokens and wrong beyond: the gap
    between the lengths is 1 for any number of samples."""
    rng = np.random.default_rng(0)

    def parity_up_to_40(bits: np.ndarray) -> int:
        return int(bits[:40].sum() % 2) if len(bits) <= 40 else int(1 - bits.sum() % 2)

    for samples in (10, 1000):
        signs = rng.choice([-1, 1], size=(200, samples))
        values = np.array([parity_up_to_40(rng.integers(0, 2, rng.integers(1, 41))) for _ in range(samples)])
        complexity = abs((signs @ values / samples).mean())  # E sup over one function: E of a centred mean
        assert complexity < 0.1

        def error(lengths: tuple[int, int], count: int) -> float:
            texts = [rng.integers(0, 2, rng.integers(*lengths)) for _ in range(count)]
            return float(np.mean([parity_up_to_40(bits) != bits.sum() % 2 for bits in texts]))

        assert error((41, 501), samples) - error((1, 41), samples) == 1
