"""Document 003: random positions, equal-mean random positions, their distributions. Chapter 10."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

import rope_lessons as rl

N, M, L = 64, 512, 2048  # the article's example: tokens in training, at test, and positions to draw from


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_position_ids(n: int, length: int, rng: np.random.Generator) -> np.ndarray:
    """The document's reference code, with a seed."""
    return np.sort(rng.permutation(length)[:n])


def order_statistics(n: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of every position of a random sorted subset, summed exactly over where it can lie."""
    at = np.arange(length)
    log_choose = np.array([math.lgamma(x + 1) for x in range(length + 1)])
    means, variances = [], []
    for i in range(n):  # i below, n - 1 - i above
        below, above = at, length - 1 - at
        fits = (below >= i) & (above >= n - 1 - i)
        x = at[fits]
        log_ways = log_choose[x] - log_choose[x - i] - log_choose[i]
        log_ways += log_choose[length - 1 - x] - log_choose[length - 1 - x - (n - 1 - i)] - log_choose[n - 1 - i]
        weights = np.exp(log_ways - log_ways.max())
        weights /= weights.sum()
        means.append(weights @ x)
        variances.append(weights @ x**2 - (weights @ x) ** 2)
    return np.array(means), np.array(variances)


# --- the method ----------------------------------------------------------------------------------------------------


def test_reference_code_draws_every_subset_equally_often():
    """All 120 orders of 5 positions: each of the 10 sorted pairs comes from 12 of them."""
    counts: dict[tuple[int, ...], int] = {}
    for order in itertools.permutations(range(5)):
        pair = tuple(sorted(order[:2]))
        counts[pair] = counts.get(pair, 0) + 1
    assert set(counts.values()) == {12}
    assert len(counts) == math.comb(5, 2)
    drawn = random_position_ids(N, L, np.random.default_rng(0))
    assert len(drawn) == N
    assert (np.diff(drawn) > 0).all()
    ours = rl.random_positions.random_positions(2, 5, batch=20_000, generator=generator())
    found = torch.bincount(5 * ours[:, 0] + ours[:, 1], minlength=25)
    assert (found[found > 0].double() / 20_000 - 0.1).abs().max() < 0.01
    assert (found > 0).sum() == 10


def test_every_position_is_trained_but_far_distances_seldom():
    """Each position is in a draw with probability N/L. Distance D is met by N(N-1)/(L(L-1)) · (L-D) pairs."""
    drawn = rl.random_positions.random_positions(40, 200, batch=20_000, generator=generator())
    often = torch.bincount(drawn.flatten(), minlength=200) / 20_000
    assert (often - 40 / 200).abs().max() < 0.02
    pairs = (drawn[:, :, None] - drawn[:, None, :]).clamp(min=0).flatten()
    found = torch.bincount(pairs, minlength=200)[1:] / 20_000
    expected = 40 * 39 / (200 * 199) * (200 - torch.arange(1, 200))
    assert (found - expected).abs().max() < 0.25
    largest = 40 * 39 / (2048 * 2047)  # pairs at the largest distance, per draw
    assert largest == pytest.approx(3.7e-4, rel=0.01)
    assert expected[0] / expected[-1] == pytest.approx(199)


def test_sampling_with_repetition_merges_positions():
    """Drawing each position by itself, as the definition says, gives 40 different ones of 2048 in 68 % of the draws."""
    different = math.prod(Fraction(2048 - i, 2048) for i in range(40))
    assert float(different) == pytest.approx(0.682, abs=1e-3)
    drawn = np.random.default_rng(0).integers(0, 2048, (4000, 40))
    found = np.mean([len(set(row)) == 40 for row in drawn])
    assert found == pytest.approx(float(different), abs=0.03)
    assert (rl.random_positions.random_positions(40, 2048, batch=4000, generator=generator()).diff() > 0).all()


def test_any_encoding_takes_them():
    """Sinusoidal, RoPE and a learned table of L rows take positions as numbers; attention itself is unchanged."""
    at = rl.random_positions.random_positions(8, 100, generator=generator())
    assert rl.sinusoidal_encoding(at, 16).shape == (8, 16)
    assert torch.nn.Embedding(100, 16)(at).shape == (8, 16)
    q, k, v = torch.randn(3, 1, 2, 8, 16, generator=generator(), dtype=torch.float64)
    drawn = rl.attention(q, k, v, rl.scheme("rope", dim=16), q_positions=at, k_positions=at)
    turned = [rl.apply_rotary(x, at, rl.rope_frequencies(16), layout="half") for x in (q, k)]
    plain = torch.nn.functional.scaled_dot_product_attention(*turned, v, is_causal=True)
    assert torch.allclose(drawn, plain, atol=1e-6)


# --- averages, gaps, order -----------------------------------------------------------------------------------------


def test_mean_positions_of_the_example():
    """Not 0, 32, …, 2016 but 30.5, 62.0, …, 2016.5: the i-th of N has the mean i (L+1)/(N+1) - 1."""
    means, _ = order_statistics(N, L)
    formula = np.arange(1, N + 1) * (L + 1) / (N + 1) - 1
    np.testing.assert_allclose(means, formula, atol=1e-6)
    assert means[[0, 1, -1]].round(1).tolist() == [30.5, 62.0, 2016.5]
    drawn = rl.random_positions.random_positions(N, L, batch=5000, generator=generator()).double().mean(0).numpy()
    assert np.abs(drawn - formula).max() < 8


def test_positions_at_test_in_the_example():
    """The even grid is 0, 4, …, 2044; the mean of random draws at test is 3.0, 7.0, …, 2044.0."""
    assert rl.random_positions.grid_positions(M, L).tolist() == list(range(0, 2048, 4))
    means = np.arange(1, M + 1) * (L + 1) / (M + 1) - 1
    assert means[[0, 1, -1]].round(1).tolist() == [3.0, 7.0, 2044.0]


def test_gaps_differ_between_training_and_test():
    """Mean gaps of 31.5 and 4.0. But a gap of at most 4 is in training too, one in nine."""
    in_training, at_test = (L + 1) / (N + 1), (L + 1) / (M + 1)
    assert in_training == pytest.approx(31.5, abs=0.05)
    assert at_test == pytest.approx(4.0, abs=0.01)
    gaps = rl.random_positions.random_positions(N, L, batch=4000, generator=generator()).diff().flatten()
    small = 1 - math.comb(L - 4, N) / math.comb(L, N)  # a gap is above g with probability C(L-g, N) / C(L, N)
    assert (gaps <= 4).double().mean().item() == pytest.approx(small, abs=5e-3)
    assert small == pytest.approx(0.119, abs=1e-3)


def test_a_random_position_still_tells_the_rank():
    """Its standard deviation is at most 126 of 2048, four mean gaps; at the ends about one."""
    _, variances = order_statistics(N, L)
    deviation = np.sqrt(variances)
    assert deviation.max() == pytest.approx(125, abs=2)
    assert deviation.max() / ((L + 1) / (N + 1)) == pytest.approx(4, abs=0.1)
    assert deviation[0] / ((L + 1) / (N + 1)) == pytest.approx(0.97, abs=0.02)


def test_draws_are_not_all_increasing_sequences():
    """40 of 2048 positions: the largest minus the smallest is below 500 with probability 10⁻²³, 39 with 10⁻⁸¹."""

    def within(span: int) -> float:
        """The chance that the span, largest minus smallest, is at most this."""
        ways = sum((2048 - s) * math.comb(s - 1, 38) for s in range(39, span + 1))
        return ways / math.comb(2048, 40)

    assert within(2047) == pytest.approx(1)
    assert -24 < math.log10(within(499)) < -22
    assert math.log10(within(39)) < -75
    spans = rl.random_positions.random_positions(40, 2048, batch=4000, generator=generator())
    assert ((spans[:, -1] - spans[:, 0]) > 1000).all()


def test_masks_count_tokens():
    """With a window of 3 tokens, token 0 does not reach token 3, however near their positions are drawn."""
    q, k, v = torch.randn(3, 1, 2, 8, 16, generator=generator(), dtype=torch.float64)
    row = rl.scheme("rope", dim=16, visible_window=3)
    changed = v.clone()
    changed[..., 0, :] += 1
    for at in (torch.arange(8), rl.random_positions.random_positions(8, 1000, generator=generator())):
        one, other = (rl.attention(q, k, x, row, q_positions=at, k_positions=at) for x in (v, changed))
        assert torch.equal((one - other).abs().amax((0, 1, 3)) > 1e-9, torch.arange(8) < 3)


def mean_gap(n: int, length: int) -> Fraction:
    """By listing every subset."""
    subsets = list(itertools.combinations(range(length), n))
    return Fraction(sum(b - a for s in subsets for a, b in itertools.pairwise(s)), len(subsets) * (n - 1))


def test_mean_gap():
    """(L+1)/(N+1), not L/N: 9/4 and not 8/3 for three of eight positions."""
    assert mean_gap(3, 8) == Fraction(9, 4)
    for n, length in ((2, 6), (3, 8), (4, 9)):
        assert mean_gap(n, length) == Fraction(length + 1, n + 1)
        assert mean_gap(n, length) != Fraction(length, n)
    uniform = np.diff(np.sort(np.random.default_rng(0).random((20_000, 3))), axis=1)
    assert uniform.mean() == pytest.approx(1 / 4, abs=5e-3)  # the document's proof: N + 1 pieces


def test_variance_of_the_gap():
    """N(L+1)(L-N)/((N+1)²(N+2)), 933 in the example; the document's formula gives 16."""
    for n, length in ((2, 6), (3, 8), (4, 9)):
        subsets = list(itertools.combinations(range(length), n))
        gaps = [b - a for s in subsets for a, b in itertools.pairwise(s)]
        second = Fraction(sum(g * g for g in gaps), len(gaps))
        exact = Fraction(n * (length + 1) * (length - n), (n + 1) ** 2 * (n + 2))
        assert second - mean_gap(n, length) ** 2 == exact
    exactly, theirs = N * (L + 1) * (L - N) / ((N + 1) ** 2 * (N + 2)), L**2 / (N**2 * (N + 1))
    assert exactly == pytest.approx(933, abs=0.5)
    assert theirs == pytest.approx(15.8, abs=0.05)
    drawn = rl.random_positions.random_positions(N, L, batch=4000, generator=generator()).diff().double()
    assert drawn.var().item() == pytest.approx(933, rel=0.05)


def test_gaps_do_not_concentrate():
    """Their standard deviation, 30.5, is as large as their mean, 31.5: one in 20 is above 3 means, as for waiting
    times."""
    gaps = rl.random_positions.random_positions(N, L, batch=4000, generator=generator()).diff().double()
    assert (gaps.std() / gaps.mean()).item() == pytest.approx(0.97, abs=0.02)
    assert (gaps > 3 * gaps.mean()).double().mean().item() == pytest.approx(math.exp(-3), abs=0.01)


# --- equal-mean random positions -----------------------------------------------------------------------------------


def test_positions_are_fractions():
    at = rl.random_positions.equal_mean_positions(8, generator=generator())
    assert at.dtype == torch.float64
    assert (at[1:] % 1 > 0).any()
    with pytest.raises((TypeError, RuntimeError, IndexError)):
        torch.nn.Embedding(100, 4)(at)
    assert rl.sinusoidal_encoding(at, 8).shape == (8, 8)


def test_mean_of_the_equal_mean():
    """E[n] = N puts the mean of token i at i N/(N-1), not i. It has to be N - 1."""
    i = np.arange(N)
    assert (i / (N - 1) * N)[-1] == N
    np.testing.assert_allclose(i / (N - 1) * (N - 1), i)
    drawn = rl.random_positions.equal_mean_positions(N, batch=200_000, mean=N, generator=generator()).mean(0)
    assert drawn[-1].item() == pytest.approx(N, rel=0.02)
    assert abs(drawn[-1].item() - (N - 1)) > 0.4


def test_step_of_the_example():
    """0, 4, …, 252 needs E[n] = 252, 4 (N - 1). With 4 N the last is 256."""
    assert list(range(0, 2048, 4))[:N][-1] == 4 * (N - 1) == 252


def poisson_tail(mean: float, above: int) -> float:
    return 1 - sum(math.exp(-mean + x * math.log(mean) - math.lgamma(x + 1)) for x in range(above + 1))


def test_poisson_reaches_no_further():
    """Mean and variance 64: 3 deviations are 88, and 88 is passed in 0.2 % of the draws, 512 in none."""
    drawn = np.random.default_rng(0).poisson(64, 100_000)
    assert drawn.mean() == pytest.approx(64, abs=0.2)
    assert drawn.var() == pytest.approx(64, rel=0.02)
    assert 64 + 3 * math.sqrt(64) == 88
    assert poisson_tail(64, 88) == pytest.approx(0.0016, abs=2e-4)
    assert abs(poisson_tail(64, 511)) < 1e-12


def test_exponential_three_sigma():
    """Mean and deviation are equal, so three deviations above the mean is 4 N; 1.8 % of the draws pass it."""
    drawn = np.random.default_rng(0).exponential(64, 400_000)
    assert drawn.std() == pytest.approx(drawn.mean(), rel=0.01)
    assert (drawn > 4 * 64).mean() == pytest.approx(math.exp(-4), abs=1e-3)
    assert math.exp(-4) == pytest.approx(0.0183, abs=1e-4)
    normal = math.erfc(3 / math.sqrt(2)) / 2
    assert math.exp(-4) / normal == pytest.approx(13.6, abs=0.1)


def test_exponential_seldom_reaches_eight():
    """P(n > 512 | mean 64) = e^-8 = 3.4e-4: of 10 000 draws, three."""
    assert math.exp(-512 / 64) == pytest.approx(3.4e-4, rel=0.02)


def test_exponential_is_memoryless():
    drawn = np.random.default_rng(0).exponential(64, 400_000)
    for s, t in ((64, 64), (128, 32)):
        assert (drawn[drawn > s] > s + t).mean() == pytest.approx((drawn > t).mean(), abs=0.01)
        assert math.exp(-(s + t) / 64) / math.exp(-s / 64) == pytest.approx(math.exp(-t / 64))


def test_exponential_prefers_short():
    """63 % of the draws are below the mean, 22 % below a quarter of it: the density is largest at 0."""
    drawn = np.random.default_rng(0).exponential(64, 400_000)
    assert (drawn < 64).mean() == pytest.approx(1 - math.exp(-1), abs=5e-3)
    assert (drawn < 16).mean() == pytest.approx(0.221, abs=5e-3)
    histogram = np.histogram(drawn, bins=10, range=(0, 320))[0]
    assert (np.diff(histogram) < 0).all()


def test_exponential_tails():
    assert math.exp(-2) == pytest.approx(0.135, abs=5e-4)
    assert math.exp(-3) == pytest.approx(0.050, abs=5e-4)


def test_the_draw_is_no_length():
    """n is the last position. The training sequence has N tokens, whatever n is."""
    at = rl.random_positions.equal_mean_positions(N, batch=2000, mean=N, generator=generator())
    assert at.shape == (2000, N)
    assert (at[:, -1] > 2 * N).double().mean().item() == pytest.approx(math.exp(-2), abs=0.03)


def beta_moments(a: float, b: float) -> tuple[float, float]:
    """Mean and variance by integration."""
    x = (np.arange(200_000) + 0.5) / 200_000
    density = x ** (a - 1) * (1 - x) ** (b - 1)
    density /= density.sum()
    mean = float(density @ x)
    return mean, float(density @ (x - mean) ** 2)


def test_beta_mean_and_variance():
    for a, b in ((2, 3), (1, 7), (4, 28)):
        mean, variance = beta_moments(a, b)
        assert mean == pytest.approx(a / (a + b), abs=1e-6)
        assert variance == pytest.approx(a * b / ((a + b) ** 2 * (a + b + 1)), abs=1e-6)


def test_beta_has_a_free_parameter():
    """β = 7α keeps the mean at 1/8. P(x > 0.9) is (1 - 0.9)⁷ = 10⁻⁷ at α = 1 and 3 % at α = 0.1."""
    rng = np.random.default_rng(0)
    near = {}
    for a in (0.1, 0.25, 1.0):
        drawn = rng.beta(a, 7 * a, 400_000)
        assert drawn.mean() == pytest.approx(1 / 8, abs=3e-3)
        near[a] = (drawn > 0.9).mean()
    assert near[0.1] == pytest.approx(0.028, abs=2e-3)
    assert near[0.25] == pytest.approx(3.2e-3, abs=6e-4)
    assert near[1.0] < 1e-4


def test_beta_two_three():
    """Mean 0.4: a training length of 40 % of the test's, not the 1/8 of the article. Near 1 it puts 0.4 %."""
    assert beta_moments(2, 3)[0] == pytest.approx(0.4, abs=1e-6)
    x = 0.9
    beyond = 1 - (6 * x**2 - 8 * x**3 + 3 * x**4)
    assert beyond == pytest.approx(0.0037, abs=1e-4)
    assert (np.random.default_rng(0).beta(2, 3, 400_000) > 0.9).mean() == pytest.approx(beyond, abs=5e-4)
    assert N / M == 1 / 8


# --- explanations and advice ---------------------------------------------------------------------------------------


def test_equal_means_are_not_equal_distributions():
    """With E[n] = L - 1 the mean of N points is an even grid over L; the draws are never near it, and its step is not
    that of L tokens."""
    at = rl.random_positions.equal_mean_positions(N, batch=20_000, mean=M - 1, generator=generator())
    assert (at.mean(0)[-1] / (M - 1)).item() == pytest.approx(1, abs=0.03)
    assert (at[:, -1].std() / (M - 1)).item() == pytest.approx(1, abs=0.03)  # the grid at test has none
    assert (at.mean(0).diff()[0]).item() == pytest.approx((M - 1) / (N - 1), rel=0.03)  # 8.1; at test 1


def test_drawing_costs_nothing():
    """One draw for a batch sorts at most 2048 numbers. A training step of the encoder multiplies 9 · 10⁹ times."""
    tokens, width, hidden, blocks, batch = 80, 64, 256, 5, 128
    products = batch * tokens * blocks * (4 * width**2 + 2 * width * hidden + 2 * tokens * width)
    comparisons = 2048 * math.log2(2048)
    assert comparisons / (3 * products) < 1e-5  # forward and backward
    assert 3 * products > 9e9


def test_mean_and_deviation_are_the_training_length():
    """Of 200 000 draws with the training length 64."""
    generator = np.random.default_rng(0)
    poisson, exponential = generator.poisson(64, 200_000), generator.exponential(64, 200_000)
    assert (poisson.mean(), poisson.var()) == pytest.approx((64, 64), rel=0.01)
    assert (exponential.mean(), exponential.std()) == pytest.approx((64, 64), rel=0.01)


def test_no_error_does_not_make_outputs_equal():
    """Logits that grow with the first position: right for every draw, and different for every two."""
    generator = np.random.default_rng(0)
    draws = np.sort(np.stack([generator.permutation(2048)[:40] for _ in range(200)]), axis=1)
    logits = 1 + draws[:, 0]  # of the right answer, against 0 for the wrong one
    assert (logits > 0).all()  # no error
    assert np.abs(np.diff(logits)).mean() > 10
