"""Document 000 (article 11 and its extension): from the old to the fixed form, and the mixed radix. Chapter 04."""

import math
from datetime import datetime, timedelta
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from claim_tools import contains_zero, interval, is_toeplitz, over_seeds, score_bytes

import rope_lessons as rl
from rope_lessons.lab.table.documents import difference
from rope_lessons.stored import results
from tests.seeds import ahead

DIM, FACTOR = 128, 8
BASES = (12, 8, 4)  # 4 times the shares 3, 2, 1


def speeds(dim: int, factor: float, exponent: float, first: int = 1) -> np.ndarray:
    """1 / (λ_0 ⋯ λ_t) = exp(-a (t+1)^b), written apart from the package. ``first=0`` counts as the extension does."""
    place = np.arange(first, first + dim // 2, dtype=float)
    return np.exp(-math.log(factor) / (dim / 2) ** exponent * place**exponent)


def shares(dim: int, factor: float, exponent: float) -> np.ndarray:
    """λ_t, the share of pair t: what it adds to the product."""
    total = 1 / speeds(dim, factor, exponent)
    return total / np.concatenate(([1.0], total[:-1]))


def period(sequence: np.ndarray) -> int:
    """The smallest shift that maps the sequence onto itself."""
    return next(p for p in range(1, len(sequence)) if np.array_equal(sequence[p:], sequence[:-p]))


def digit(n: np.ndarray, bases: tuple[int, ...], t: int) -> np.ndarray:
    return n // math.prod(bases[:t]) % bases[t]


def test_time_of_day_is_a_mixed_radix():
    monday = datetime(2024, 1, 1)
    for seconds in np.random.default_rng(0).integers(0, 7 * 24 * 3600, 200).tolist():
        time = monday + timedelta(seconds=seconds)
        written = [int(digit(np.array(seconds), (60, 60, 24, 7), t)) for t in range(4)]
        assert written == [time.second, time.minute, time.hour, time.weekday()]


def test_digit_of_a_mixed_radix():
    """The formula gives what an odometer with these wheels shows, each of the 384 numbers once."""
    odometer = [row[::-1] for row in product(*(range(base) for base in reversed(BASES)))]
    n = np.arange(math.prod(BASES))
    written = np.stack([digit(n, BASES, t) for t in range(3)], axis=-1)
    np.testing.assert_array_equal(written, odometer)
    worth = np.cumprod((1, *BASES[:-1]))
    np.testing.assert_array_equal(written @ worth, n)  # definition 1.1: n is the sum of digit times worth
    np.testing.assert_array_equal(rl.mixed_radix.mixed_digits(torch.from_numpy(n), BASES).numpy(), written)


def test_relative_positions_form_a_toeplitz_matrix():
    position = np.arange(50)
    assert is_toeplitz((position[:, None] - position).astype(float))
    assert not is_toeplitz((position[:, None] - 2 * position).astype(float))


def test_how_often_a_distance_occurs():
    length = 60
    distance = np.subtract.outer(np.arange(length), np.arange(length))
    counts = np.bincount(distance[distance >= 0])
    np.testing.assert_array_equal(counts, length - np.arange(length))
    windowed = np.bincount(distance[(distance >= 0) & (distance < 8)], minlength=length)
    assert (windowed[8:] == 0).all()
    np.testing.assert_array_equal(windowed[:8], counts[:8])


def dial(length: int, frequency: float, bins: int = 16) -> np.ndarray:
    """Share of all causal pairs of tokens that show a hand in each sixteenth of its dial; 1 everywhere if even."""
    distance = np.arange(length)
    found, _ = np.histogram(distance * frequency % (2 * np.pi), bins, (0, 2 * np.pi), weights=length - distance)
    return found / found.sum() * bins


def test_slow_hands_see_a_part_of_their_dial():
    """512 tokens, d = 128: the fastest hand shows every angle about equally often, hand 40 a quarter of its dial."""
    assert 0.9 < dial(512, 1.0).min() < dial(512, 1.0).max() < 1.1
    slow = dial(512, 10_000 ** (-80 / 128))
    assert (slow[5:] == 0).all()
    assert slow[0] > 6
    assert (np.diff(slow[:5]) < 0).all()


def test_small_distances_are_not_the_low_digits():
    """Base 10, 1000 tokens: large distances run through the units as evenly as small ones; only high digits starve."""
    distance = np.arange(1000)
    count = 1000 - distance
    far = distance >= 500
    units = np.bincount(distance[far] % 10, weights=count[far])
    assert units.min() / units.sum() > 0.098
    hundreds = np.bincount(distance // 100, weights=count) / count.sum()
    assert hundreds[0] == pytest.approx(0.19, abs=1e-3)
    assert hundreds[9] == pytest.approx(0.01, abs=1e-3)


def test_period_of_a_converted_digit_grows_by_one_more_share():
    """From base 4 to base 8: digit t repeats 2^(t+1) times later. The old form slows the hand by 2^t only."""
    n = np.arange(4 * 512)
    for t in range(3):
        grown = period(digit(n, (8,) * 3, t)) / period(digit(n, (4,) * 3, t))
        assert grown == 2 ** (t + 1)
    dim, factor = 6, 8  # three digits, each with the share 2
    plain = rl.rope_frequencies(dim)
    for variant, late in (("old", 0), ("fixed", 1)):
        slowed = plain / rl.ntk_frequencies(dim, factor, variant=variant)
        torch.testing.assert_close(slowed, 2.0 ** (torch.arange(3, dtype=torch.float64) + late))


def test_formula_of_the_fixed_form():
    t = np.arange(DIM // 2)
    share, radix = FACTOR ** (2 / DIM), 10_000 ** (2 / DIM)
    fixed = rl.ntk_frequencies(DIM, FACTOR, variant="fixed").numpy()
    np.testing.assert_allclose(1 / (share * (radix * share) ** t), fixed)
    np.testing.assert_allclose(1 / (share ** (t + 1) * radix**t), fixed)


def test_mixed_digits_repeat_later_by_the_product_of_the_shares():
    """Base 4 becomes 12, 8, 4 (shares 3, 2, 1): the digits repeat 3, 6 and 6 times later, λ_0 ⋯ λ_t."""
    n = np.arange(4 * 384)
    for t, grown in enumerate((3, 6, 6)):
        assert period(digit(n, BASES, t)) == grown * period(digit(n, (4, 4, 4), t))


def test_range_of_the_mixed_radix():
    """Three digits in base 4 write 64 numbers, in 12, 8, 4 six times as many. The slowest hand gets 6 times slower."""
    for bases in ((4, 4, 4), BASES):
        n = np.arange(500)
        written = {tuple(int(digit(i, bases, t)) for t in range(3)) for i in n}
        assert len(written) == math.prod(bases)
    assert math.prod(BASES) == 6 * 4**3
    slowest = rl.rope_frequencies(DIM)[-1] / rl.mixed_radix_frequencies(DIM, FACTOR)[-1]
    assert slowest.item() == pytest.approx(FACTOR)


def test_last_pair_takes_the_whole_factor():
    for exponent in (0.0, 0.3, 0.625, 1.0):
        for dim, factor in ((128, 8), (64, 4)):
            ours = speeds(dim, factor, exponent)
            assert ours[-1] == pytest.approx(1 / factor)
            package = rl.mixed_radix_frequencies(dim, factor, exponent) / rl.rope_frequencies(dim)
            np.testing.assert_allclose(package.numpy(), ours)


def test_counting_from_zero_loses_the_first_share():
    """The extension's product λ_1 ⋯ λ_m with m from 0: b = 1 becomes the old form, and the last pair stops short."""
    plain = rl.rope_frequencies(DIM).numpy()
    np.testing.assert_allclose(plain * speeds(DIM, FACTOR, 1, first=0), rl.ntk_frequencies(DIM, FACTOR, variant="old"))
    slip = speeds(DIM, FACTOR, 0.625, first=0)
    assert slip[0] == 1
    assert slip[-1] == pytest.approx(0.1276, abs=5e-5)
    assert speeds(DIM, FACTOR, 0.625)[0] == pytest.approx(0.8568, abs=5e-5)


def test_range_in_which_shares_decrease_and_stay_above_one():
    for exponent in (0.0, 0.01, 0.5, 1.0):
        share = shares(DIM, FACTOR, exponent)
        assert (np.diff(share) <= 1e-12).all()
        assert (share >= 1 - 1e-12).all()
    negative = shares(DIM, FACTOR, -1.0)  # b = -1 ≤ 1, and a > 0
    assert negative[0] > 1
    assert (negative[1:] < 1).all()
    assert speeds(DIM, FACTOR, -1.0)[-1] == pytest.approx(1 / FACTOR)
    increasing = shares(DIM, FACTOR, 1.2)
    assert (np.diff(increasing) > 0).all()


def test_exponent_one_is_the_fixed_form():
    fixed = rl.ntk_frequencies(DIM, FACTOR, variant="fixed") / rl.rope_frequencies(DIM)
    np.testing.assert_allclose(speeds(DIM, FACTOR, 1.0), fixed.numpy())
    logs = np.log(1 / speeds(DIM, FACTOR, 1.0))
    np.testing.assert_allclose(np.diff(logs, 2), 0, atol=1e-12)  # ln of the product grows linearly


def test_exponent_zero_is_interpolation():
    pi = rl.pi_frequencies(DIM, FACTOR) / rl.rope_frequencies(DIM)
    np.testing.assert_allclose(speeds(DIM, FACTOR, 0.0), pi.numpy())


def test_exponent_zero_has_no_equal_shares():
    """λ_0 = κ and all other shares 1. Equal shares κ^(2/d) are b = 1. And exp(a/d) is κ^(1/d), not κ^(2/d)."""
    share = shares(DIM, FACTOR, 0.0)
    assert share[0] == pytest.approx(FACTOR)
    np.testing.assert_allclose(share[1:], 1)
    np.testing.assert_allclose(shares(DIM, FACTOR, 1.0), FACTOR ** (2 / DIM))
    assert math.exp(math.log(FACTOR) / DIM) == pytest.approx(FACTOR ** (1 / DIM))


def test_formula_of_a_share():
    place = np.arange(1, DIM // 2 + 1, dtype=float)
    a = math.log(FACTOR) / (DIM / 2) ** 0.625
    np.testing.assert_allclose(shares(DIM, FACTOR, 0.625), np.exp(a * (place**0.625 - (place - 1) ** 0.625)))


def test_between_interpolation_and_the_fixed_form():
    for exponent in (0.2, 0.625, 0.9):
        speed = speeds(DIM, FACTOR, exponent)
        assert (speeds(DIM, FACTOR, 0)[:-1] < speed[:-1]).all()
        assert (speed[:-1] < speeds(DIM, FACTOR, 1)[:-1]).all()
        assert (np.diff(speed) < 0).all()
        assert speed[-1] == pytest.approx(1 / FACTOR)
    for exponent, first in ((0.2, 0.40), (0.625, 0.86)):  # near 1 only for a large exponent
        assert speeds(DIM, FACTOR, exponent)[0] == pytest.approx(FACTOR ** -((2 / DIM) ** exponent))
        assert speeds(DIM, FACTOR, exponent)[0] == pytest.approx(first, abs=0.005)


def test_first_pair_takes_most_and_last_pair_is_slowed_most():
    share, speed = shares(DIM, FACTOR, 0.625), speeds(DIM, FACTOR, 0.625)
    assert share.argmax() == 0
    assert share[0] == pytest.approx(1.167, abs=5e-4)
    assert share[-1] == pytest.approx(1.0206, abs=5e-5)
    assert speed.argmin() == DIM // 2 - 1
    assert speed[0] / speed[-1] == pytest.approx(6.85, abs=5e-3)


def test_mixed_interpolates_every_pair_more_than_fixed():
    """No pair extrapolates more. What training showed a pair does not enter: the shares do not contain N."""
    ratio = speeds(DIM, FACTOR, 0.625) / speeds(DIM, FACTOR, 1.0)
    assert (ratio[:-1] < 1).all()
    assert ratio[-1] == pytest.approx(1)
    assert ratio.min() == pytest.approx(0.70, abs=5e-3)
    assert ratio[0] == pytest.approx(0.885, abs=5e-4)
    turns = {n: (n - 1) * rl.rope_frequencies(DIM).numpy() / (2 * math.pi) for n in (512, 4096)}
    open_pairs = {n: int((turns[n] < 1).sum()) for n in turns}
    assert open_pairs == {512: 33, 4096: 18}  # what training covers differs, and the same shares serve both


def test_mixed_is_ahead_of_fixed_and_old_but_not_clearly():
    """On each of two models two of the four intervals contain zero. At the training length mixed is far behind."""
    for text, other, gain, sure in (
        ("not repeated", "ntk-fixed", 0.6, False),
        ("repeated", "ntk-fixed", 4.4, True),
        ("not repeated", "ntk-old", 0.9, True),
        ("repeated", "ntk-old", 1.3, False),
    ):
        mean, low, high = difference("ntk-mixed", other, text)
        assert 100 * mean == pytest.approx(gain, abs=0.06)
        assert (low > 0) is sure
        assert high > 0
    for other, natural, repeated in (("ntk-fixed", 0.1, 2.9), ("ntk-old", 1.7, 3.9)):
        mean, low, high = ahead("ntk-mixed", other, "natural")
        assert mean == natural
        assert low < 0 < high
        mean, low, _ = ahead("ntk-mixed", other, "repeated")
        assert mean == repeated
        assert low > 0
    rows = results("mixed_radix")["rows"].where(scale="plain", text="plain", factor=8, length=64)
    short = {name: over_seeds(rows, "accuracy", method=name) for name in ("mixed-0.625", "ntk-fixed")}
    mean, _, high = interval(short["mixed-0.625"] - short["ntk-fixed"])
    assert mean == pytest.approx(-0.0576, abs=1e-4)
    assert high < 0


def test_loss_is_flat_around_the_published_exponent():
    """Five seeds: from 0.5 to 0.75 no difference is sure at eight times the length; at home every step is."""
    rows = results("mixed_radix")["rows"].where(scale="plain", text="plain", factor=8)

    def loss(exponent: float, length: int) -> np.ndarray:
        return over_seeds(rows, "loss", method=f"mixed-{exponent}", length=length)

    assert all(contains_zero(loss(b, 512) - loss(0.625, 512)) for b in (0.5, 0.75))
    assert all(interval(loss(b, 512) - loss(0.625, 512))[1] > 0 for b in (0.875, 1))
    assert all(interval(loss(a, 64) - loss(b, 64))[1] > 0 for a, b in pairwise((0.5, 0.625, 0.75, 1)))


def test_even_pressure_is_interpolation():
    """The variance of the pressures κ r_t is smallest at b = 0, where it is 0."""
    exponents = np.linspace(0, 1, 101)
    variance = [np.var(FACTOR * speeds(DIM, FACTOR, b)) for b in exponents]
    assert exponents[np.argmin(variance)] == 0
    assert variance[0] == pytest.approx(0, abs=1e-20)
    assert (np.diff(variance) > 0).all()


def test_pressure_of_the_last_pair_is_the_same_for_every_exponent():
    for exponent in (0, 0.3, 0.625, 1):
        assert FACTOR * speeds(DIM, FACTOR, exponent)[-1] == pytest.approx(1)
    assert FACTOR * speeds(DIM, FACTOR, 1)[0] == pytest.approx(7.74, abs=5e-3)
    assert FACTOR * speeds(DIM, FACTOR, 0.625)[0] == pytest.approx(6.85, abs=5e-3)


def test_angles_under_mixed_leave_the_trained_range():
    """The largest angle at 8 times the length, over that of training: 6.9 in the first pair, above 2 in half."""
    stretch = FACTOR * speeds(DIM, FACTOR, 0.625)
    assert stretch[0] == pytest.approx(6.85, abs=5e-3)
    assert (stretch > 2).mean() > 0.5
    assert (FACTOR * speeds(DIM, FACTOR, 0) < 1 + 1e-12).all()  # it is PI that keeps them all in range


def test_large_index_is_low_frequency():
    """The least trained pairs have the largest index and the lowest frequency, and a decreasing share."""
    omega = rl.rope_frequencies(DIM).numpy()
    assert (np.diff(omega) < 0).all()
    covered = np.minimum(511 * omega / (2 * math.pi), 1)  # share of the dial that 512 tokens show
    assert (np.diff(covered) <= 0).all()
    assert covered[-1] < 0.01 < covered[0]
    assert (np.diff(shares(DIM, FACTOR, 0.625)) < 0).all()


def test_negative_power_of_a_falling_sequence_grows():
    trained = np.minimum(511 * rl.rope_frequencies(DIM).numpy() / (2 * math.pi), 1)[-20:]
    assert (np.diff(trained) < 0).all()
    for alpha in (0.1, 0.5, 2.0):
        assert (np.diff(trained**-alpha) > 0).all()


def test_interpolation_is_behind_doing_nothing():
    """The ordering of theorem 26.1 has PI ahead of plain RoPE. It is behind, but for copies on one model."""
    mean, _, high = difference("pi", "rope", "not repeated")
    assert 100 * mean == pytest.approx(-4.8, abs=0.05)
    assert high < 0
    assert difference("pi", "rope", "repeated")[1] > 0
    for text, points in (("natural", -8.0), ("repeated", -5.6)):
        mean, _, high = ahead("pi", "rope", text)
        assert mean == points
        assert high < 0


def test_mixed_changes_the_step_in_every_pair():
    speed = speeds(DIM, FACTOR, 0.625)
    assert (speed < 0.86).all()
    assert speed[0] == pytest.approx(0.857, abs=5e-4)


def test_mixed_is_not_the_best_without_training():
    """ReRoPE with a window of 32 is far ahead on the small model, without training."""
    mixed = score_bytes(512, frequencies=rl.mixed_radix_frequencies(64, 8))[0]
    rerope = score_bytes(512, rl.scheme("rerope", dim=64, window=32))[0]
    assert rerope > mixed + 0.1


def test_constants_of_the_llama_example():
    """64^0.625 is 13.45 and not 12.13, so a is 0.103; with the document's a the factor would be 4.64, not 4."""
    assert pytest.approx(13.454, abs=5e-4) == 64**0.625
    assert math.log(4) / 64**0.625 == pytest.approx(0.1030, abs=5e-5)
    assert math.exp(0.114 * 64**0.625) == pytest.approx(4.64, abs=5e-3)


def test_share_of_the_llama_example():
    from transformers import LlamaConfig

    config = LlamaConfig()
    dim = config.hidden_size // config.num_attention_heads
    assert (config.max_position_embeddings, dim) == (2048, 128)
    factor = 8192 / config.max_position_embeddings
    assert factor == 4
    assert factor ** (2 / dim) == pytest.approx(1.0219, abs=5e-5)


def test_frequencies_per_head_fill_the_gaps():
    """β^-(t + h/H): the heads together form one finer ladder. Within it a head differs from the next by 1.8 %."""
    heads, radix = 8, 10_000 ** (2 / DIM)
    t, h = np.meshgrid(np.arange(DIM // 2), np.arange(heads), indexing="ij")
    ladder = np.sort((radix ** -(t + h / heads)).ravel())[::-1]
    np.testing.assert_allclose(ladder[:-1] / ladder[1:], radix ** (1 / heads))
    assert radix ** (1 / heads) == pytest.approx(1.0182, abs=5e-5)
    assert radix ** ((heads - 1) / heads) < radix  # the last head stays behind pair 1 of the first


def test_adaptive_factor_is_not_the_length():
    """exp(a m^b ln(n/N)) gives (n/N)^(ln κ) in the last pair. The factor n/N needs the exponent (m/(d/2))^b."""
    a = math.log(FACTOR) / (DIM / 2) ** 0.625

    def last(ratio: float) -> float:
        return math.exp(a * (DIM / 2) ** 0.625 * math.log(ratio))

    assert last(1) == 1
    assert last(8) == pytest.approx(75.5, abs=0.05)
    assert last(2) == pytest.approx(4.23, abs=5e-3)
    for ratio in (1, 2, 8):
        mended = np.exp((np.arange(1, 65) / 64) ** 0.625 * math.log(ratio))
        assert mended[-1] == pytest.approx(ratio)
        if ratio > 1:
            plain = rl.rope_frequencies(DIM) / rl.mixed_radix_frequencies(DIM, ratio)
            np.testing.assert_allclose(mended, plain.numpy())


def test_mixed_form_has_one_parameter():
    """The exponent, beside the factor: it fixes the shares of all pairs, whose product is the factor."""
    for exponent in (0.3, 0.625, 1.0):
        slowed = rl.rope_frequencies(DIM) / rl.mixed_radix_frequencies(DIM, FACTOR, exponent=exponent)
        torch.testing.assert_close(1 / slowed, torch.from_numpy(speeds(DIM, FACTOR, exponent)))
        assert slowed[-1].item() == pytest.approx(FACTOR)
