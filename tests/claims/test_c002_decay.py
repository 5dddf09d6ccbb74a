"""Document 002, sections 1.3 and 2.3: how the inner product falls with the distance, and which frequencies do it."""

import mpmath as mp
import numpy as np
import pytest
import sympy as sp
from claim_tools import B, frequencies, integral, kernel

LN_B = float(np.log(B))
EULER = float(np.euler_gamma)


def real_integral(distances, base=B):
    return np.array([integral(float(x), base).real for x in distances])


def numeric_integral(phase, distance, low=0.0, high=1.0, pieces=40, weight=lambda u: 1):
    """Gauss-Legendre on many pieces: independent of the closed form."""
    points = mp.linspace(low, high, pieces + 1)
    return complex(mp.quad(lambda u: weight(u) * mp.expj(distance * phase(u)), points))


def test_finite_sum_has_no_power_law():
    top = max(kernel(np.arange(start, start + 200_000), 8).max() for start in range(20_000, 2_000_000, 200_000))
    assert top > 0.999
    near = kernel(np.arange(1, 1001), 8).max()
    assert top > near  # a distance beyond 20 000 brings the encodings closer together than any below 1000
    for dim in (64, 128):  # and at d = 64 and 128 as well there is no decay beyond B
        early, late = kernel(np.arange(20_000, 60_000), dim), kernel(np.arange(900_000, 940_000), dim)
        assert late.std() > 0.8 * early.std()


def test_many_schedules_decay():
    near, far = np.arange(0, 2), np.arange(64, 129)
    u = np.arange(64) / 64
    schedules = [base**-u for base in (100.0, 1000.0, 1e4, 1e5)] + [(1 - u) ** 2]
    for schedule in schedules:
        values = np.cos(near[:, None] * schedule).mean(1), np.cos(far[:, None] * schedule).mean(1)
        assert values[0][0] == 1
        assert values[0][1] > 0.85
        assert values[1].mean() < 0.6


def test_kernel_falls_with_the_logarithm():
    distances = np.unique(np.geomspace(2, 1000, 60).astype(int))
    law = 1 - (np.log(distances) + EULER) / LN_B
    assert np.abs(kernel(distances, 128) - law).max() < 0.15
    np.testing.assert_allclose(real_integral(distances[distances >= 10]), law[distances >= 10], atol=0.02)
    means = [kernel(np.arange(low, 2 * low), 128).mean() for low in (2, 8, 32, 128, 512, 2048)]
    assert (np.diff(means) < 0).all()  # a trend
    assert (np.diff(kernel(np.arange(1, 129), 128)) > 0).any()  # not monotone
    beyond = [kernel(np.arange(low, 2 * low), 128).mean() for low in (20_000, 80_000, 320_000)]
    assert np.abs(beyond).max() < 0.02


def test_sum_and_integral_agree_only_below_the_dimension():
    def error(low, high):
        distances = np.unique(np.linspace(low, high, 200).astype(int))
        return np.abs(kernel(distances, 128) - real_integral(distances)).max()

    assert error(1, 10) < 0.02
    assert error(10, 100) < 0.1
    beyond = np.arange(10_000, 20_000)
    assert max(abs(integral(float(x))) for x in range(10_000, 20_000, 97)) < 0.08
    assert np.abs(kernel(beyond, 128)).max() > 0.25


def test_oscillatory_integral_bound():
    cases = [
        # the two ends 1/|phi'|, and the integral of |phi''| / phi'^2, which is B^u for the article's phase
        (lambda u: B**-u, 1 / LN_B + B / LN_B + (B - 1) / LN_B),
        (lambda u: u + u**2 / 2, 1 + 1 / 2 + 1 / 2),  # phi' = 1 + u
    ]
    for phase, constant in cases:
        for scale in (3, 30, 300, 3000):
            assert abs(numeric_integral(phase, scale, pieces=200)) <= constant / scale
    np.testing.assert_allclose(2 * B / LN_B, 2171.5, atol=0.1)


def test_derivative_of_the_phase():
    u = sp.symbols("u", real=True)
    derivative = sp.diff(sp.Integer(10_000) ** (-u), u)
    assert sp.simplify(derivative + sp.log(10_000) * sp.Integer(10_000) ** (-u)) == 0
    values = [float(derivative.subs(u, x)) for x in np.linspace(0, 1, 11)]
    assert max(values) < 0
    assert min(map(abs, values)) == pytest.approx(LN_B / B)


def test_integral_tends_to_zero():
    sizes = [abs(integral(10.0**k)) for k in range(9)]
    assert (np.diff(sizes) < 0).all()
    assert sizes[-1] < 2e-5
    ratios = [sizes[k + 1] / sizes[k] for k in (1, 2, 6, 7)]
    assert min(ratios[:2]) > 0.5  # a factor of 10 in the distance, below B
    assert max(ratios[2:]) < 0.12  # and beyond B: the rate 1 / distance


def test_limits_of_the_integral():
    distance = 100
    direct = numeric_integral(lambda u: B**-u, distance)
    right = complex(mp.quad(lambda v: mp.expj(distance * v) / v, mp.linspace(1 / B, 1, 400))) / LN_B
    assert direct == pytest.approx(0.4368 + 0.1685j, abs=1e-4)
    assert right == pytest.approx(direct, abs=1e-6)
    wrong = complex(mp.e1(-1j * distance) - mp.e1(-1j * distance * B)) / LN_B  # from 1 to B
    assert abs(wrong) == pytest.approx(0.0011, abs=1e-4)


def test_integral_in_closed_form():
    for distance in (1, 7, 100, 1000):
        closed = complex((mp.ci(distance) - mp.ci(distance / B)) / LN_B, (mp.si(distance) - mp.si(distance / B)) / LN_B)
        numeric = numeric_integral(lambda u: B**-u, distance, pieces=100)
        assert closed == pytest.approx(numeric, abs=1e-8)
        assert integral(distance) == pytest.approx(numeric, abs=1e-8)


def test_sign_in_the_integration_by_parts():
    distance, low, high = 3.0, 1.0, 5.0

    def boundary(v):
        return mp.expj(distance * v) / (1j * distance * v)

    left = complex(mp.quad(lambda v: mp.expj(distance * v) / v, [low, 2, 3, 4, high]))
    rest = complex(mp.quad(lambda v: mp.expj(distance * v) / (1j * distance * v**2), [low, 2, 3, 4, high]))
    ends = complex(boundary(high) - boundary(low))
    assert left == pytest.approx(ends + rest, abs=1e-10)
    assert abs(left - (ends - rest)) > 0.05


def test_leading_term_of_the_integral():
    for distance in (1e6, 3.3e6, 1e7):
        right = (np.exp(1j * distance) - B * np.exp(1j * distance / B)) / (1j * distance * LN_B)
        wrong = (np.exp(1j * distance * B) - np.exp(1j * distance)) / (1j * distance * B * LN_B)
        value = integral(distance)
        assert abs(right - value) < 0.02 * abs(value)
        assert abs(wrong) < 1e-3 * abs(value)
    early = (np.exp(1j * 100) - B * np.exp(1j * 100 / B)) / (1j * 100 * LN_B)
    assert abs(early) > 10 * abs(integral(100.0))  # below B it leads nowhere
    np.testing.assert_allclose(B / LN_B, 1085.7, atol=0.1)


def test_bound_of_022_fails():
    np.testing.assert_allclose(2 / LN_B, 0.217, atol=1e-3)
    assert abs(integral(100.0)) == pytest.approx(0.468, abs=1e-3)
    for distance in (10, 100, 1000, 1e4, 1e6):
        assert abs(integral(float(distance))) > 2 / (LN_B * distance)
    assert abs(integral(1e7)) * 1e7 == pytest.approx(B / LN_B, rel=0.01)


def test_rate_is_not_one_over_distance():
    assert integral(10.0).real / integral(1000.0).real < 5
    sampled = kernel(np.arange(8, 13), 128).mean(), kernel(np.arange(800, 1200), 128).mean()
    assert sampled[0] / sampled[1] < 5
    for low in (20_000, 200_000, 2_000_000):
        assert kernel(np.arange(low, 2 * low, max(1, low // 50_000)), 128).std() == pytest.approx(0.08, abs=0.02)


def test_plot_shows_decay():
    assert real_integral([1e-9])[0] == pytest.approx(1)
    assert real_integral([128])[0] == pytest.approx(0.411, abs=1e-3)
    np.testing.assert_allclose(real_integral([-5, -100]), real_integral([5, 100]))
    assert (np.diff(real_integral(np.arange(1, 129, 10))) < 0).all()


def test_plot_below_distance_10():
    np.testing.assert_allclose(real_integral([1, 5, 10]), [0.974, 0.742, 0.682], atol=6e-4)


def test_plot_between_10_and_100():
    at = real_integral([10, 100, 1000, 3000])
    np.testing.assert_allclose(at[:2], [0.682, 0.437], atol=6e-4)
    assert at[0] - at[1] == pytest.approx(0.25, abs=0.01)
    assert at[1] - at[2] == pytest.approx(0.25, abs=0.01)


def test_plot_above_distance_100():
    plotted = real_integral(np.arange(100, 129, 0.1))
    assert np.diff(plotted).max() < 1e-4
    np.testing.assert_allclose(real_integral([100, 1000]), [0.437, 0.188], atol=6e-4)
    # the sum oscillates about it, by 1 / sqrt(d), which does not shrink with the distance
    for low in (100_000, 1_000_000):
        spreads = [kernel(np.arange(low, low + 20_000), dim).std() * np.sqrt(dim) for dim in (64, 256)]
        np.testing.assert_allclose(spreads, 1, atol=0.25)


def power_sum(alpha, distance, dim=128):
    return float(np.cos(distance * np.arange(1, dim // 2 + 1) ** -alpha).mean())


def power_integral(alpha, distance):
    """The document's integral, with v = u^-alpha from 1 to infinity, along v = 1 + iy where it does not oscillate."""

    def integrand(y):
        return 1j * mp.expj(distance * (1 + 1j * y)) * (1 + 1j * y) ** (-1 / mp.mpf(alpha) - 1) / alpha

    return complex(mp.quad(integrand, [0, 0.1, 1, 10, mp.inf]))


def test_power_frequencies_and_their_integral():
    assert (np.arange(1, 65) ** -1.0 <= 1).all()
    assert (np.linspace(0.01, 1, 100) ** -1.0 >= 1).all()
    assert power_sum(1.0, 10) == pytest.approx(0.76, abs=0.005)
    assert abs(power_integral(1.0, 10)) == pytest.approx(0.10, abs=0.005)


def test_order_of_the_power_schedules():
    sums = [power_sum(alpha, 10) for alpha in (0.5, 1.0, 2.0)]
    np.testing.assert_allclose(sums, [-0.20, 0.76, 0.93], atol=0.005)
    typical = [np.mean([abs(power_sum(alpha, x)) for x in range(10, 101)]) for alpha in (0.5, 1.0, 2.0)]
    assert typical[0] < typical[1] < typical[2]
    sizes = [abs(power_integral(alpha, 100)) for alpha in (0.5, 1.0, 2.0)]
    np.testing.assert_allclose(sizes, [1 / (alpha * 100) for alpha in (0.5, 1.0, 2.0)], rtol=0.01)


def test_linear_frequencies_and_their_integral():
    dim, index = 4096, np.arange(2048)
    for distance in (1.0, 5.0, 11.0):
        formula = np.exp(1j * distance) * (1 - np.exp(-1j * distance)) / (1j * distance)
        assert numeric_integral(lambda u: 1 - u, distance) == pytest.approx(formula, abs=1e-9)
        claimed, meant = (np.exp(1j * distance * (1 - c * index / dim)).mean() for c in (1, 2))
        assert abs(meant - formula) < 5e-3
        assert abs(claimed - formula) > 0.04
        half = numeric_integral(lambda u: 1 - u / 2, distance)
        assert abs(claimed - half) < 5e-3


def test_zeros_of_the_linear_schedule():
    for k in (1, 2, 3):
        assert abs(numeric_integral(lambda u: 1 - u, 2 * np.pi * k)) < 1e-9
        assert (
            abs(numeric_integral(lambda u: 1 - u, np.pi * (2 * k - 1)).real) < 1e-9
        )  # the inner product, twice as often
    distances = np.arange(1, 10_000)
    assert np.abs(np.sin(distances)).min() > 1e-5  # no integer hits a zero exactly
    assert (np.diff(kernel(np.arange(1, 129), 128)) > 0).any()


def test_shortest_wavelength():
    for dim in (4, 128, 512):
        for base in (100.0, B):
            assert 2 * np.pi / frequencies(dim, base)[0] == pytest.approx(6.28, abs=0.005)


def test_longest_wavelength():
    longest = {dim: 2 * np.pi / frequencies(dim)[-1] for dim in (128, 512, 4096)}
    assert longest[128] == pytest.approx(54_410, abs=1)
    assert longest[512] == pytest.approx(60_611, abs=1)
    assert max(longest.values()) < 2 * np.pi * B
    assert frequencies(512)[-1] > 1 / B


def test_base_that_covers_a_length():
    dim, length = 512, 2048
    needed = (length / (2 * np.pi)) ** (dim / (dim - 2))
    assert needed == pytest.approx(333.4, abs=0.05)
    assert 2 * np.pi / frequencies(dim, needed)[-1] == pytest.approx(length)
    ratios = frequencies(dim)[:-1] / frequencies(dim)[1:]
    np.testing.assert_allclose(ratios, B ** (2 / dim))  # what the document compared with the length


def test_base_10000_covers_2048():
    assert np.log(B) < 256 * np.log(2048 / (2 * np.pi))  # the document's inequality
    longest = 2 * np.pi / frequencies(512)[-1]
    assert longest > 2048
    assert B / (2048 / (2 * np.pi)) ** (512 / 510) == pytest.approx(30, abs=0.1)


def test_speed_of_decay_by_base():
    for base, share in ((1e3, 1 / 3), (1e4, 1 / 4), (1e5, 1 / 5)):
        values = real_integral([10, 100], base)
        assert values[0] - values[1] == pytest.approx(share, abs=0.01)
        sums = kernel(np.arange(8, 13), 512, base).mean() - kernel(np.arange(80, 121), 512, base).mean()
        assert sums == pytest.approx(share, abs=0.03)


def test_lemma_is_about_integrals():
    assert frequencies(4).tolist() == [1.0, 0.01]
    assert kernel(np.arange(1000, 100_000), 4).max() > 0.9999
    for distance in (10.0, 300.0):  # at a fixed distance the sum approaches the integral as the dimension grows
        errors = [abs(kernel(distance, dim) - integral(distance).real) for dim in (64, 1024, 16_384)]
        assert errors[0] > errors[1] > errors[2]
        assert errors[2] < 2e-3


def test_riemann_lebesgue_gives_no_rate():
    """The integral of exp(iλu)/√u over [0, 1] tends to zero, as the lemma says, like √(π/λ): slower than any C/λ."""
    for scale in (10, 1000, 100_000):
        # with u = v² it is twice a Fresnel integral
        end = mp.sqrt(2 * scale / mp.pi)
        value = 2 * mp.sqrt(mp.pi / (2 * scale)) * (mp.fresnelc(end) + 1j * mp.fresnels(end))
        assert abs(abs(value) * mp.sqrt(scale) - mp.sqrt(mp.pi)) < 3 / mp.sqrt(scale)
