"""Document 002, section 3: clocks, tables, analogies, "theorem 3" and the pictures."""

import numpy as np
import pytest
import torch
from claim_tools import B, encoding, frequencies, is_toeplitz, kernel, spread_along_diagonals, turn

import rope_lessons as rl


def test_encoding_is_not_localised_like_a_wavelet():
    length = 6000
    waves = encoding(np.arange(length), 16)[:, :8]  # the pairs that go round many times in this length
    energy = np.square(waves)
    halves = energy[: length // 2].sum(0) / energy.sum(0)
    np.testing.assert_allclose(halves, 0.5, atol=0.05)  # as much energy in one half as in the other
    x = np.arange(length) - 1500
    wavelet = (1 - (x / 100) ** 2) * np.exp(-((x / 100) ** 2) / 2)
    assert np.square(wavelet[: length // 2]).sum() / np.square(wavelet).sum() > 0.999
    ratios = frequencies(16)[:-1] / frequencies(16)[1:]
    np.testing.assert_allclose(ratios, ratios[0])  # the geometric ladder is shared


def test_hands_of_the_clock():
    slower = frequencies(512)[0] / frequencies(512)
    assert slower[1] == pytest.approx(1.037, abs=5e-4)
    assert np.abs(np.log(slower / 60)).argmin() == 114
    assert np.abs(np.log(slower / 720)).argmin() == 183
    assert slower[-1] == pytest.approx(9647, abs=1)
    np.testing.assert_allclose(slower[1:] / slower[:-1], B ** (2 / 512))


def test_position_zero():
    pairs = encoding(0, 16).reshape(8, 2)
    np.testing.assert_array_equal(pairs[:, ::-1], np.tile([1.0, 0.0], (8, 1)))  # cosine first
    np.testing.assert_array_equal(rl.sinusoidal_encoding(torch.tensor(0), 16).view(8, 2), np.tile([0.0, 1.0], (8, 1)))


def test_shift_turns_each_pair():
    m, n, dim = 37, 11, 16
    cosine_first = encoding([m, n], dim).reshape(2, dim // 2, 2)[..., ::-1]
    for t, frequency in enumerate(frequencies(dim)):
        np.testing.assert_allclose(turn(frequency * (m - n)) @ cosine_first[1, t], cosine_first[0, t], atol=1e-12)


def test_first_row_of_the_table():
    for dim in (128, 256, 512):
        assert frequencies(dim)[0] == 1.0
        assert 2 * np.pi / frequencies(dim)[0] == pytest.approx(6.28, abs=0.005)


def test_middle_row_of_the_table():
    assert frequencies(512)[128 // 2] == pytest.approx(0.1)
    assert 2 * np.pi / frequencies(512)[64] == pytest.approx(62.8, abs=0.05)
    assert frequencies(256)[128 // 2] == pytest.approx(0.01)
    assert frequencies(512)[128] == pytest.approx(0.01)


def test_last_row_of_the_table():
    assert 255 // 2 != 256 // 2  # channels 255 and 256 are not in one pair
    assert 2 * np.pi / frequencies(256)[-1] == pytest.approx(58_470, abs=1)
    assert 2 * np.pi / frequencies(512)[-1] == pytest.approx(60_611, abs=1)
    for dim in (256, 512):
        assert frequencies(dim)[-1] > 1.03e-4


def test_range_of_a_pair_is_its_period():
    for frequency, period in ((1.0, 6), (0.01, 628), (0.0001, 62_831)):
        angles = np.arange(period + 1) * frequency
        assert (np.diff(angles) > 0).all()
        assert angles[-1] < 2 * np.pi  # one turn: every position at its own place on the circle
        assert (period + 1) * frequency > 2 * np.pi  # the next one passes the start
        half = int(np.pi / frequency)
        assert half == {6: 3, 628: 314, 62_831: 31_415}[period]
        cosines = np.cos(np.arange(half + 1) * frequency)
        assert (np.diff(cosines) < 0).all()
        assert np.cos((half + 2) * frequency) > np.cos((half + 1) * frequency)


def test_frequencies_are_no_harmonics():
    ratios = frequencies(64)[:-1] / frequencies(64)[1:]
    np.testing.assert_allclose(ratios, B ** (2 / 64))
    multiples = frequencies(64) / frequencies(64)[-1]
    assert (np.abs(multiples - np.round(multiples)) > 0.02).mean() > 0.7
    distances = np.arange(1, 300_000)
    assert kernel(distances, 16).max() < 1 - 1e-3  # no distance in reach is a period of the whole


def test_undamped_sum_comes_back():
    def kernel_maximum(start, stop):
        return max(kernel(np.arange(s, s + 200_000), 8).max() for s in range(start, stop, 200_000))

    assert kernel_maximum(20_000, 2_000_000) > 0.999
    assert np.exp(-0.001 * 20_000) < 1e-8  # an oscillator with damping 0.001 by then


def oscillators(count, seed):
    """Two undamped oscillators with random phases, at times 0 .. 9: (2, count, 10)."""
    phases = np.random.default_rng(seed).uniform(0, 2 * np.pi, (2, count, 1))
    return np.cos(np.array([0.7, 1.3])[:, None, None] * np.arange(10) + phases)


def test_correlation_of_different_oscillators_is_zero():
    x = oscillators(100_000, seed=0)
    same = (x[0, :, :1] * x[0]).mean(0)
    different = (x[0, :, :1] * x[1]).mean(0)
    np.testing.assert_allclose(same, 0.5 * np.cos(0.7 * np.arange(10)), atol=0.01)
    np.testing.assert_allclose(different, 0, atol=0.01)


def test_total_correlation():
    amplitudes = np.array([1.0, 2.0])[:, None, None]
    total = (amplitudes * oscillators(100_000, seed=1)).sum(0)
    measured = (total[:, :1] * total).mean(0)
    steps = np.arange(10)
    np.testing.assert_allclose(measured, 0.5 * np.cos(0.7 * steps) + 2 * np.cos(1.3 * steps), atol=0.04)


def test_positions_are_distinct():
    pair = encoding(np.arange(100_000), 2)
    order = np.sort(np.arange(100_000) % (2 * np.pi))
    assert np.diff(order).min() > 1e-6  # no two angles of pair 0 are equal modulo 2 pi
    assert np.linalg.norm(pair[710] - pair[0]) == pytest.approx(6e-5, abs=1e-5)
    step = 1e-6
    slope = (encoding(5 + step, 8) - encoding(5 - step, 8)) / (2 * step)
    angles = 5 * frequencies(8)
    wanted = np.stack((frequencies(8) * np.cos(angles), -frequencies(8) * np.sin(angles)), -1).ravel()
    np.testing.assert_allclose(slope, wanted, atol=1e-8)


def test_norm_does_not_depend_on_position():
    for dim in (8, 128, 512):
        norms = np.linalg.norm(encoding([0, 1, 500, 10**6], dim), axis=1)
        np.testing.assert_allclose(norms, np.sqrt(dim / 2))


def test_channels_are_not_orthogonal():
    e = encoding(np.arange(512), 512)
    correlation = np.corrcoef(e.T)
    off = correlation[~np.eye(512, dtype=bool)]
    assert np.abs(off).mean() > 0.2
    assert abs(correlation[-2, -4]) > 0.999  # the slowest two sines
    energy = np.square(np.linalg.svd(e, compute_uv=False))
    assert int(np.searchsorted(np.cumsum(energy) / energy.sum(), 0.9)) + 1 == 62


def test_channels_are_not_complete():
    channels = encoding(np.arange(512), 64)
    targets = np.random.default_rng(0).standard_normal((512, 100))
    rest = targets - channels @ np.linalg.lstsq(channels, targets, rcond=None)[0]
    assert np.square(rest).sum() / np.square(targets).sum() > 0.87
    assert np.linalg.matrix_rank(channels) <= 64


def test_channels_have_no_compact_support():
    for start in (0, 10**4, 10**6):
        window = encoding(np.arange(start, start + 70_000), 16)
        assert np.abs(window).max(0).min() > 0.99  # every channel is far from zero in every such window
    assert np.abs(encoding(np.arange(10**5), 16)).max() <= 1


def test_variance_is_not_maximal():
    variances = encoding(np.arange(512), 512).var(0)
    assert variances.max() < 0.6
    assert variances[0] == pytest.approx(0.5, abs=0.01)
    assert variances[-2:].max() < 3e-4
    assert np.array([-1.0, 1.0] * 256).var() == 1.0


def test_cosine_first_is_another_table():
    standard = encoding(np.arange(64), 16)
    cosine_first = standard.copy()
    angles = np.arange(64)[:, None] * frequencies(16)
    cosine_first[:, 0::2], cosine_first[:, 1::2] = np.cos(angles), np.sin(angles)
    assert np.abs(cosine_first - standard).max() > 1
    np.testing.assert_allclose(cosine_first @ cosine_first.T, standard @ standard.T, atol=1e-9)
    np.testing.assert_allclose(cosine_first.reshape(64, 8, 2)[..., ::-1].reshape(64, 16), standard)


def tsne(x, seed, perplexity=30.0, steps=400):
    """Plain t-SNE (van der Maaten and Hinton 2008): exact gradient, momentum, early exaggeration."""
    count = len(x)
    squared = np.square(x[:, None] - x[None]).sum(-1)
    joint = np.zeros((count, count))
    for row in range(count):
        low, high = 1e-6, 1e3
        for _ in range(50):  # bisection for the bandwidth that gives the wanted entropy
            precision = np.sqrt(low * high)
            p = np.exp(-precision * (squared[row] - np.partition(squared[row], 1)[1]))
            p[row] = 0
            p /= p.sum()
            entropy = -(p[p > 0] * np.log(p[p > 0])).sum()
            low, high = (precision, high) if entropy > np.log(perplexity) else (low, precision)
        joint[row] = p
    joint = np.maximum((joint + joint.T) / (2 * count), 1e-12)
    y = 1e-4 * np.random.default_rng(seed).standard_normal((count, 2))
    velocity, gains = np.zeros_like(y), np.ones_like(y)
    for step in range(steps):
        near = 1 / (1 + np.square(y[:, None] - y[None]).sum(-1))
        np.fill_diagonal(near, 0)
        forces = ((12 if step < 100 else 1) * joint - near / near.sum()) * near
        gradient = 4 * (forces.sum(1)[:, None] * y - forces @ y)
        gains = np.clip(np.where(np.sign(gradient) != np.sign(velocity), gains + 0.2, gains * 0.8), 0.01, None)
        velocity = (0.5 if step < 100 else 0.8) * velocity - 50 * gains * gradient
        y = y + velocity - (y + velocity).mean(0)
    return y


def one_sided_turning(curve):
    """Of all the turning along a curve, the share left over in one direction: 1 for a circle or a spiral."""
    steps = curve[4:] - curve[:-4]
    bends = np.diff(np.unwrap(np.arctan2(steps[:, 1], steps[:, 0])))
    return abs(bends.sum()) / np.abs(bends).sum()


def test_tsne_is_no_spiral():
    e = encoding(np.arange(128), 512)
    assert max(one_sided_turning(tsne(e, seed)) for seed in range(3)) < 0.5
    grid = np.arange(128)
    circle = np.stack((np.cos(grid * 0.2), np.sin(grid * 0.2)), -1)
    noise = np.random.default_rng(0).normal(0, 0.03, (128, 2))
    for curve in (circle + noise, circle * (1 + grid[:, None])):
        assert one_sided_turning(curve) > 0.9


def test_neighbours_are_nearest():
    e = encoding(np.arange(128), 512)
    squared = np.square(e[:, None] - e[None]).sum(-1)
    np.testing.assert_allclose(squared[0], 512 * (1 - kernel(np.arange(128), 512)), atol=1e-8)
    np.fill_diagonal(squared, np.inf)
    nearest = squared.argmin(1)
    assert (np.abs(nearest - np.arange(128)) == 1).all()
    growth = np.polyfit(np.log(np.arange(2, 128)), 512 - 512 * kernel(np.arange(2, 128), 512), 1)
    assert growth[0] == pytest.approx(512 / np.log(B), rel=0.05)
    residual = 512 - 512 * kernel(np.arange(2, 128), 512) - np.polyval(growth, np.log(np.arange(2, 128)))
    assert np.abs(residual).max() < 0.05 * 512


def test_diagonal_of_the_gram_matrix():
    e = encoding(np.arange(64), 128)
    np.testing.assert_allclose(np.diag(e @ e.T), 64)


def test_gram_matrix_is_toeplitz():
    e = encoding(np.arange(64), 128)
    assert is_toeplitz(e @ e.T)
    other = np.random.default_rng(0).standard_normal((64, 128))
    assert spread_along_diagonals(other @ other.T) > 1


def test_gram_matrix_stays_far_from_zero():
    e = encoding(np.arange(64), 128)
    gram = e @ e.T
    assert gram.min() / 64 > 0.42
