"""Document 004 (article 13 and its extension): maps of the distance, and how far a training text reaches.

By enumeration of the distances that training visits. Chapters 08 and 09.
"""

import numpy as np
import pytest
import sympy as sp
import torch

import rope_lessons as rl

TRAIN, TEST, WINDOW = 512, 4096, 128  # the article's experiment


def bent(distance, window, slope):
    """The map, written apart from the package."""
    distance = np.asarray(distance, dtype=float)
    return np.where(distance < window, distance, window + slope * (distance - window))


def visited(slope, window=WINDOW, train=TRAIN) -> np.ndarray:
    """All distances that training shows."""
    return bent(np.arange(train), window, slope)


def reach(slope, window=WINDOW, train=TRAIN) -> int:
    """Tokens that plain RoPE can read until a distance exceeds all that training showed; found by trying."""
    farthest, length = visited(slope, window, train).max(), 1
    while length <= farthest + 1e-9:  # one more token brings the distance `length`
        length += 1
    return length


# --- Leaky ReRoPE and its smooth form -------------------------------------------------------------------------------


def test_leak_rate_is_the_reciprocal():
    for k in (2, 16):
        far = np.diff(rl.rerope.leaky_distance(torch.arange(WINDOW, 4 * WINDOW), WINDOW, 1 / k).numpy())
        near = np.diff(rl.rerope.leaky_distance(torch.arange(WINDOW), WINDOW, 1 / k).numpy())
        np.testing.assert_allclose(far, near.mean() / k)
    assert far.mean() == pytest.approx(0.0625)


def test_far_distance_is_that_of_interpolation_in_the_limit():
    w, k, m = sp.symbols("w k m", positive=True)
    far = w + (m - w) / k
    assert sp.simplify(far - (w * (1 - 1 / k) + m / k)) == 0
    assert sp.simplify(far - (w * (k - 1) / k + m / k)) == 0
    assert sp.limit(far / (m / k), m, sp.oo) == 1
    assert sp.simplify(far - m / k - w * (1 - 1 / k)) == 0  # the difference does not shrink
    assert bent(4096, WINDOW, 1 / 16) == 376
    assert 4096 / 16 == 256
    assert abs(bent(38_400, WINDOW, 1 / 16) / (38_400 / 16) - 1.05) < 1e-9


def test_continuous_with_a_corner():
    w, k, e = sp.symbols("w k e", positive=True)
    below, beyond = w - e, w + e / k
    assert sp.limit(below, e, 0) == sp.limit(beyond, e, 0) == w
    assert sp.limit((w - below) / e, e, 0) == 1
    assert sp.limit((beyond - w) / e, e, 0) == 1 / k
    x = torch.tensor([WINDOW - 1e-6, WINDOW, WINDOW + 1e-6], dtype=torch.float64)
    for factor, corner in ((16, True), (1, False)):
        left, right = np.diff(rl.rerope.leaky_distance(x, WINDOW, 1 / factor).numpy()) / 1e-6
        assert left == pytest.approx(1, abs=1e-6)
        assert bool(abs(left - right) > 0.5) is corner


def hermite():
    """The document's transition, and its letters."""
    t, w, s, k = sp.symbols("t w sigma k", positive=True)
    ends = (1 - t) ** 2 * (1 + 2 * t) * (w - s) + t**2 * (3 - 2 * t) * (w + s / k)
    return ends + (1 - t) ** 2 * t * 2 * s + t**2 * (t - 1) * 2 * s / k, (t, w, s, k)


def test_hermite_cubic_meets_its_four_conditions():
    h, (t, w, s, k) = hermite()
    slope = sp.diff(h, t) / (2 * s)  # by the distance, of which t takes 2σ from end to end
    assert sp.simplify(h.subs(t, 0) - (w - s)) == 0
    assert sp.simplify(h.subs(t, 1) - (w + s / k)) == 0
    assert sp.simplify(slope.subs(t, 0) - 1) == 0
    assert sp.simplify(slope.subs(t, 1) - 1 / k) == 0
    assert sp.simplify(sp.Poly(sp.expand(h), t).coeff_monomial(t**3)) == 0
    at = h.subs({w: 128, s: sp.Rational(32, 5), k: 16})
    x = torch.linspace(121.7, 134.3, 30, dtype=torch.float64)
    ours = rl.rerope.smooth_leaky_distance(x, 128, 1 / 16, 6.4).numpy()
    theirs = [float(at.subs(t, (float(a) - 121.6) / 12.8)) for a in x]
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_slope_of_the_smooth_map_is_between():
    x = torch.linspace(100, 160, 6001, dtype=torch.float64)
    for slope in (1 / 16, 1 / 2, 16.0):
        got = np.diff(rl.rerope.smooth_leaky_distance(x, 128, slope, 20).numpy()) / 0.01
        low, high = sorted((slope, 1.0))
        assert low - 1e-6 <= got.min()
        assert got.max() <= high + 1e-6
    assert got.max() > 15  # a slope above 1, as in reverse use: beyond the document's upper bound of 1


def test_cubic_with_the_same_slopes_can_overshoot():
    """Slopes 1 and 1/16 at the ends, but 3 units of rise in between instead of 17/32: some slope is above 4."""
    t = sp.symbols("t")
    slope = sp.diff(t**2 * (3 - 2 * t) * 3 + (1 - t) ** 2 * t + t**2 * (t - 1) / 16, t)
    assert slope.subs(t, 0) == 1
    assert slope.subs(t, 1) == sp.Rational(1, 16)
    assert slope.subs(t, sp.Rational(1, 2)) > 4


def test_width_of_the_transition():
    sigma = 0.05 * 128
    assert (128 - sigma, 128 + sigma) == pytest.approx((121.6, 134.4))
    assert 2 * sigma / 128 == pytest.approx(0.10)
    x = torch.arange(300)
    changed = (rl.rerope.smooth_leaky_distance(x, 128, 1 / 16, sigma) - rl.rerope.leaky_distance(x, 128, 1 / 16)).abs()
    assert x[changed > 1e-12].tolist() == list(range(122, 135))
    assert changed.max().item() == pytest.approx(15 / 16 * sigma / 4)


# --- the map in reverse ---------------------------------------------------------------------------------------------


def test_training_map_of_invleaky():
    method = rl.METHODS["invleaky"](layers=1, dim=64, window=WINDOW, slope=16)
    trained = rl.rerope.leaky_distance(torch.arange(TRAIN), method.train[0].window, method.train[0].slope).numpy()
    np.testing.assert_allclose(trained, visited(16))
    w, r, n, m = sp.symbols("w r n m", positive=True)
    assert sp.simplify((w + (m - w) / (1 / r)) - (w + r * (m - w))) == 0
    largest = w + r * (n - 1 - w)
    assert sp.expand(largest - (w * (1 - r) + r * (n - 1))) == 0
    assert trained.max() == int(largest.subs({w: WINDOW, r: 16, n: TRAIN})) == 6256


def test_step_beyond_the_window_is_smaller_at_test():
    for name, slope in (("leaky-rerope", 1 / 16), ("invleaky", 16.0)):
        method = rl.METHODS[name](layers=1, dim=64, window=WINDOW, slope=slope)
        far, near = [], []
        for phase in (method.train[0], method.test[0]):
            steps = rl.rerope.leaky_distance(torch.arange(TEST), phase.window, phase.slope).diff()
            near.append(steps[0].item())
            far.append(steps[-1].item())
        assert near == [1, 1]
        assert far[1] / far[0] == 1 / 16
    assert far[1] == 1


def test_reach_of_invleaky():
    """512 tokens, window 128, slope 16: 6257, not 6272 (the theorem) nor 6273 (its proof)."""
    for window, slope in ((128, 16), (128, 8), (64, 4), (0, 3)):
        assert reach(slope, window) == window + 1 + slope * (TRAIN - 1 - window)
    assert reach(16) == 6257
    theorem = WINDOW + 16 * (TRAIN - WINDOW)
    assert theorem == 6272
    assert theorem - 1 > visited(16).max()
    assert reach(16) + 15 == theorem


def slope_needed(test, window=WINDOW, train=TRAIN) -> float:
    return (test - 1 - window) / (train - 1 - window)


def test_slope_needed_for_a_target():
    theirs = ((8 - 1) * TRAIN + WINDOW) / (TRAIN - WINDOW)
    assert theirs == pytest.approx(9.67, abs=5e-3)
    assert reach(theirs) == 3831 < TEST
    assert slope_needed(TEST) == pytest.approx(10.36, abs=5e-3)
    assert reach(slope_needed(TEST)) == TEST
    by_their_theorem = (TEST - WINDOW) / (TRAIN - WINDOW)  # w + r (N - w) = L, solved for r
    assert by_their_theorem == pytest.approx(10.33, abs=5e-3)


def test_slope_equal_to_the_factor_falls_short():
    assert reach(8) == 3193 < TEST
    assert reach(7) < reach(8)
    for window in (16, 64, 256):
        assert reach(TEST / TRAIN, window) < TEST


def test_reach_of_leaky_formula():
    """The longest text whose bent distances stay within N - 1, by trying, against w + k (N - w)."""
    for window, k in ((128, 8), (128, 16), (256, 4)):
        length = TRAIN
        while bent(length, window, 1 / k) <= TRAIN - 1:
            length += 1
        assert length == window + 1 + k * (TRAIN - 1 - window)
        assert window + k * (TRAIN - window) == length + k - 1


def test_larger_k_compresses_more():
    corners = [bent(TEST - 1, WINDOW, 1 / k).item() for k in (2, 4, 8, 16)]
    assert corners == sorted(corners, reverse=True)
    farther = [visited(1 / k).max() for k in (1, 1 / 2, 1 / 4, 1 / 8)]
    assert farther == sorted(farther)


def test_safety_factor_of_one_does_not_cover():
    for train, window, factor in ((512, 128, 8), (512, 64, 4), (4096, 1024, 16)):
        assert reach(factor, window, train) < factor * train
        beta = slope_needed(factor * train, window, train) / factor
        assert beta > 1
        assert reach(beta * factor, window, train) == factor * train
    assert slope_needed(TEST) / 8 == pytest.approx(1.295, abs=1e-3)
    kappa = 10**6  # window N/4, large factor: 4/3
    assert slope_needed(kappa * TRAIN) / kappa == pytest.approx(4 / 3, abs=4e-3)


def test_slopes_of_twelve_and_sixteen_cover():
    assert (reach(12), reach(16)) == (4725, 6257)
    assert min(reach(12), reach(16)) >= TEST


def test_range_condition():
    for window in (0, 64, 128, 256):
        needed = slope_needed(TEST, window)
        for slope, enough in ((needed, True), (0.999 * needed, False), (1.2 * needed, True)):
            assert bool(visited(slope, window).max() >= TEST - 1 - 1e-9) is enough
    assert all(slope_needed(TEST, window) > TEST / TRAIN for window in range(TRAIN - 1))  # at w = 0 too


def test_most_test_distances_were_never_seen():
    """Slope 16 shows 128, 144, 160, …: of the 3968 distances from 128 to 4095, one in sixteen."""
    beyond = np.arange(WINDOW, TEST)
    seen = np.isin(beyond, visited(16))
    assert len(beyond) == 3968
    assert seen.sum() == 248
    gaps = np.diff(beyond[seen])
    assert set(gaps) == {16}


def test_only_interpolation_shortens_the_near_steps():
    steps = {}
    for name, options in (("pi", {"factor": 8}), ("invleaky", {"window": WINDOW, "slope": 16})):
        method = rl.METHODS[name](layers=1, dim=64, **options)
        found = []
        for phase in (method.train[0], method.test[0]):
            assert phase.frequencies is not None
            speed = (phase.frequencies() / rl.rope_frequencies(64)).max().item()  # PI: all pairs alike
            found.append(np.diff(bent(np.arange(TRAIN), phase.window, phase.slope)) * speed)
        steps[name] = found[1] / found[0]
    np.testing.assert_allclose(steps["pi"], 1 / 8)
    np.testing.assert_allclose(steps["invleaky"][:WINDOW], 1)
    np.testing.assert_allclose(steps["invleaky"][WINDOW:], 1 / 16)


def mismatch(distance, slope, window=WINDOW) -> np.ndarray:
    return np.abs(bent(distance, window, slope) - distance)


def test_mismatch_of_training_and_test():
    m = np.arange(TRAIN)
    for r in (2, 16):
        np.testing.assert_allclose(mismatch(m, r)[:WINDOW], 0)
        np.testing.assert_allclose(mismatch(m, r)[WINDOW:], (r - 1) * (m[WINDOW:] - WINDOW))


def test_average_mismatch_over_pairs():
    """Far pairs are fewer the farther: the mean over pairs is a third of the range, not half of it."""
    i, j = np.indices((TRAIN, TRAIN))
    far = i - j >= WINDOW
    average = mismatch((i - j)[far], 16).mean()
    assert average == pytest.approx(15 * (TRAIN - 1 - WINDOW) / 3)
    theirs = 15 * (TRAIN - WINDOW) / 2
    assert theirs == pytest.approx(1.504 * average, rel=1e-3)


def test_mean_over_distances_is_not_the_mean_over_pairs():
    """L = 512, r = 16: three numbers for what the document writes as one."""
    i, j = np.indices((TRAIN, TRAIN))
    squares = np.where(i >= j, mismatch(np.abs(i - j), 16) ** 2, 0)
    over_distances = (mismatch(np.arange(TRAIN), 16) ** 2).mean()
    over_all = squares.sum() / TRAIN**2
    over_seen = squares.sum() / (TRAIN * (TRAIN + 1) / 2)
    assert over_distances == pytest.approx(8_268_000, rel=1e-3)
    assert over_seen == pytest.approx(3_104_000, rel=1e-3)
    assert over_all == pytest.approx(over_seen / 2, rel=3e-3)


def test_rule_of_thumb_reaches_past_the_target():
    """Slope twice the factor, window a quarter: about (3κ/2 + 1/4) N tokens, for κ = 8 a half more than needed."""
    for train, factor in ((512, 8), (4096, 4), (2048, 16)):
        tokens = reach(2 * factor, train // 4, train)
        assert tokens == pytest.approx((1.5 * factor + 0.25) * train, rel=0.01)
        assert tokens > factor * train
    assert reach(16) / TEST == pytest.approx(1.53, abs=5e-3)
    assert (1 / (2 * TEST / TRAIN), TRAIN / 4, 10_000 * TEST / TRAIN) == (1 / 16, WINDOW, 80_000)


# --- its variants ---------------------------------------------------------------------------------------------------


def test_adaptive_ranges_do_not_all_cover():
    """w = α N, r = β κ: with the largest β, α = 0.4 falls short; with the smallest, α = 0.2 does."""
    covers = {}
    for alpha in (0.2, 0.3, 0.4):
        for beta in (1.2, 1.3, 1.5):
            covers[alpha, beta] = reach(beta * 8, round(alpha * TRAIN)) >= TEST
    assert not covers[0.2, 1.2]
    assert not covers[0.4, 1.5]
    assert covers[0.2, 1.3]
    assert covers[0.3, 1.5]
    assert sum(covers.values()) == 3  # of 9


def test_schedule_of_the_slope():
    largest, warmup = 16.0, 1000
    slopes = np.array([1 + (largest - 1) * min(t / warmup, 1) for t in range(3 * warmup)])
    assert slopes[0] == 1
    assert (np.diff(slopes) >= 0).all()
    assert (slopes[warmup:] == largest).all()
    np.testing.assert_array_equal(visited(slopes[0]), np.arange(TRAIN))


def test_bounded_training_range_bounds_the_reach():
    """Trained distances up to 1.5 N let plain RoPE read 1.5 N tokens. The article's own setting shows 12 N."""
    slope = (1.5 * TRAIN - WINDOW) / (TRAIN - 1 - WINDOW)
    assert visited(slope).max() == pytest.approx(1.5 * TRAIN)
    assert reach(slope) == 1.5 * TRAIN + 1
    assert visited(16).max() / TRAIN == pytest.approx(12.2, abs=0.05)


def test_constrained_optimum_is_not_stationary():
    """The reach grows with the slope up to the bound on the trained range, and its derivative there is N - 1 - w."""
    r = sp.symbols("r")
    tokens = WINDOW + 1 + r * (TRAIN - 1 - WINDOW)
    allowed = np.linspace(1, 1.67, 50)
    values = [float(tokens.subs(r, float(x))) for x in allowed]
    assert int(np.argmax(values)) == len(allowed) - 1
    assert sp.diff(tokens, r) == 383


def test_share_of_near_pairs():
    share = {}
    for length in (TRAIN, TEST):
        near = sum(min(i + 1, WINDOW) for i in range(length))  # query i has i + 1 keys
        share[length] = near / (length * (length + 1) / 2)
        assert near == length * WINDOW - WINDOW * (WINDOW - 1) // 2
        assert share[length] == pytest.approx((length * WINDOW - WINDOW**2 / 2) / (length**2 / 2), rel=3e-3)
    short = {length: 2 * WINDOW / length for length in share}
    assert short[TEST] / share[TEST] == pytest.approx(1.016, abs=2e-3)
    assert (short[TRAIN], share[TRAIN]) == pytest.approx((0.5, 0.437), abs=5e-4)  # N is not long beside w


# --- the base -------------------------------------------------------------------------------------------------------


def test_base_slows_each_pair_by_its_own_factor():
    slowed = (rl.rope_frequencies(128, base=80_000.0) / rl.rope_frequencies(128)).numpy()
    np.testing.assert_allclose(slowed, 8.0 ** (-np.arange(0, 128, 2) / 128))
    assert slowed[0] == 1
    assert slowed[-1] == pytest.approx(0.1291, abs=5e-5)
    np.testing.assert_allclose((rl.pi_frequencies(128, 8) / rl.rope_frequencies(128)).numpy(), 1 / 8)


def test_base_adds_no_reach():
    """Largest angle at test by the largest in training, pair by pair: 1 at 6257 tokens whatever the base."""
    for base in (10_000.0, 80_000.0):
        method = rl.METHODS["invleaky"](layers=1, dim=128, window=WINDOW, slope=16, base=base)
        train, test = (phase[0].frequencies() for phase in (method.train, method.test))
        ratio = (6256 * test) / (visited(16).max() * train)
        torch.testing.assert_close(ratio, torch.ones_like(ratio))
    only_at_test = rl.rope_frequencies(128, base=80_000.0) / rl.rope_frequencies(128)
    assert only_at_test[0] == 1  # a base changed after training gives the first pair nothing, and no pair all of 8
    assert only_at_test.min() > 1 / 8


def test_reach_of_the_experiment():
    assert 8 * (128 + 16 * (512 - 128)) == 50_176
    assert reach(16) == 6257
    assert np.arange(50_176).max() > 8 * visited(16).max()
