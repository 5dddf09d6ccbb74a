"""Document 002, sections 1.3 and 2.2: the equation <e_m, e_n> = g(m - n) and its solutions."""

import cmath

import numpy as np
import pytest
import sympy as sp
from claim_tools import encoding, frequencies, is_toeplitz, kernel, spread_along_diagonals, turn

POSITIONS = np.arange(12)


def circle(theta, positions=POSITIONS):
    return np.stack((np.cos(positions * theta), np.sin(positions * theta)), axis=-1)


def test_inner_product_needs_the_cosine_identity():
    a, b = sp.symbols("a b", real=True)
    assert sp.simplify(sp.sin(a) * sp.cos(b) - sp.cos(a) * sp.sin(b) - sp.sin(a - b)) == 0  # eq. 10 holds
    inner = sp.sin(a) * sp.sin(b) + sp.cos(a) * sp.cos(b)
    assert sp.simplify(inner - sp.cos(a - b)) == 0
    assert sp.simplify(inner - sp.sin(a - b)) != 0


def test_which_pair_resolves_which_distance():
    dim = 64
    for frequency in frequencies(dim):
        near = np.arange(0, 8)
        assert (1 - np.cos(near * frequency) <= (near * frequency) ** 2 / 2 + 1e-12).all()
    slow, fast = frequencies(dim)[-1], frequencies(dim)[0]
    assert 1 - np.cos(7 * slow) < 1e-6  # the slow pair cannot tell distance 7 from 0
    assert 1 - np.cos(1 * fast) > 0.4  # the fast one tells 1 from 0 ...
    distances = np.arange(1000)
    alike = np.abs(np.cos(distances * fast) - np.cos(20 * fast)) < 0.05
    assert alike.sum() > 20  # ... but gives 20 and many other distances the same value
    assert np.abs(np.cos(distances[1:] * slow) - 1).max() < 0.02
    assert (np.diff(np.cos(np.arange(0, 20_000, 100) * slow)) < 0).all()  # the slow one orders long distances


def test_complex_product():
    rng = np.random.default_rng(0)
    for r1, a1, r2, a2 in rng.uniform(0.1, 3, (20, 4)):
        product = cmath.rect(r1, a1) * cmath.rect(r2, a2)
        assert abs(product) == pytest.approx(r1 * r2)
        assert cmath.exp(1j * cmath.phase(product)) == pytest.approx(cmath.exp(1j * (a1 + a2)))


def test_inner_product_is_the_real_part():
    x0, y0, x1, y1 = sp.symbols("x0 y0 x1 y1", real=True)
    product = (x0 + sp.I * y0) * sp.conjugate(x1 + sp.I * y1)
    assert sp.simplify(sp.re(sp.expand(product)) - (x0 * x1 + y0 * y1)) == 0


def test_complex_equation_is_sufficient():
    encodings = 0.7 * np.exp(1j * (POSITIONS * 0.9 + 0.4))
    products = np.outer(encodings, encodings.conj())
    assert is_toeplitz(products)  # the complex equation ...
    assert is_toeplitz(products.real)  # ... gives the real one
    alternating = np.exp(1j * 0.9 * (POSITIONS % 2))
    products = np.outer(alternating, alternating.conj())
    assert is_toeplitz(products.real)
    assert spread_along_diagonals(products.imag) > 0.5  # but not the other way round


def test_all_encodings_have_the_same_length():
    for solution in (1.7 * circle(0.9), circle(0.9)[POSITIONS % 2]):  # a rotation, a reflection
        gram = solution @ solution.T
        assert is_toeplitz(gram)
        np.testing.assert_allclose(np.linalg.norm(solution, axis=1) ** 2, gram[0, 0])
    np.testing.assert_allclose(np.linalg.norm(encoding(POSITIONS, 128), axis=1), np.sqrt(64))
    uneven = circle(0.9) * (1 + POSITIONS[:, None])  # another length breaks the equation
    assert not is_toeplitz(uneven @ uneven.T)


def test_angles_form_a_progression():
    theta = 2.5  # large enough for the arguments to wrap
    encodings = np.exp(1j * POSITIONS * theta)
    steps = np.diff(np.angle(encodings))
    assert np.ptp(steps) > 1  # as numbers in (-pi, pi] the arguments are no progression ...
    np.testing.assert_allclose(np.exp(1j * steps), np.exp(1j * theta))  # ... modulo 2 pi they are
    np.testing.assert_allclose(encodings[0], 1)


def test_reflection_is_another_solution():
    mirror = np.array([[np.cos(0.9), np.sin(0.9)], [np.sin(0.9), -np.cos(0.9)]])
    assert np.linalg.det(mirror) == pytest.approx(-1)
    solution = np.stack([np.linalg.matrix_power(mirror, m) @ [1.0, 0.0] for m in POSITIONS])
    assert is_toeplitz(solution @ solution.T)
    np.testing.assert_allclose(solution[::2], solution[:1].repeat(6, 0), atol=1e-12)  # it alternates
    assert np.abs(solution[1] - solution[0]).max() > 0.5
    for theta in np.linspace(-np.pi, np.pi, 721):  # no rotation does that from the same start, with the same g(1)
        if np.isclose(np.cos(theta), np.cos(0.9), atol=0.01):
            assert np.abs(circle(theta)[2] - solution[2]).max() > 0.5
    # any orthogonal matrix gives a solution, in any dimension
    orthogonal = np.linalg.qr(np.random.default_rng(0).standard_normal((5, 5)))[0]
    powers = np.stack([np.linalg.matrix_power(orthogonal, m)[:, 0] for m in POSITIONS])
    assert is_toeplitz(powers @ powers.T)
    # and every solution is of this form: the map e_m -> e_(m+1) keeps inner products
    map_back, *_ = np.linalg.lstsq(solution[:-1], solution[1:], rcond=None)
    np.testing.assert_allclose(map_back @ map_back.T, np.eye(2), atol=1e-9)
    np.testing.assert_allclose(solution[:-1] @ map_back, solution[1:], atol=1e-9)


def test_rotation_solves_the_equation():
    m, n, theta = sp.symbols("m n theta", real=True)
    inner = sp.cos(m * theta) * sp.cos(n * theta) + sp.sin(m * theta) * sp.sin(n * theta)
    assert sp.simplify(inner - sp.cos((m - n) * theta)) == 0


def test_kernel_of_one_pair_is_periodic():
    theta, distances = 0.7, np.linspace(0, 30, 301)
    np.testing.assert_allclose(np.cos((distances + 2 * np.pi / theta) * theta), np.cos(distances * theta))
    turns = np.arange(1, 100_000) / (2 * np.pi)  # theta = 1: an integer distance is never a whole number of turns
    assert np.abs(turns - np.round(turns)).min() > 1e-6


def test_kernel_is_even():
    e = encoding(np.arange(-50, 51), 64)
    np.testing.assert_allclose(e[50] @ e.T, (e[50] @ e.T)[::-1])


def test_one_pair_decreases_for_half_a_period():
    for theta in (1.0, 0.1):
        distances = np.linspace(0, np.pi / theta, 200)
        assert (np.diff(np.cos(distances * theta)) < 0).all()
        beyond = np.linspace(np.pi / theta, 2 * np.pi / theta, 200)
        assert (np.diff(np.cos(beyond * theta)) > 0).all()
    assert np.floor(np.pi / 1.0) == 3


def test_concatenated_pairs_add_their_kernels():
    e = encoding(POSITIONS, 16)
    wanted = 8 * kernel(POSITIONS[:, None] - POSITIONS[None, :], 16)
    np.testing.assert_allclose(e @ e.T, wanted, atol=1e-9)
    lengths = np.repeat(np.arange(1.0, 9.0), 2)
    assert is_toeplitz((e * lengths) @ (e * lengths).T)


def test_order_of_channels_does_not_matter():
    e = encoding(POSITIONS, 16)
    swapped = e.reshape(-1, 8, 2)[..., ::-1].reshape(-1, 16)
    shuffled = e[:, np.random.default_rng(0).permutation(16)]
    assert np.abs(swapped - e).max() > 0.5
    for other in (swapped, shuffled):
        np.testing.assert_allclose(other @ other.T, e @ e.T, atol=1e-9)


def test_phase_offset():
    angles, phase = POSITIONS[:, None] * frequencies(16), np.linspace(0.1, 2, 8)
    both = np.concatenate((np.cos(angles + phase), np.sin(angles + phase)), axis=1)
    one = np.concatenate((np.cos(angles + phase), np.sin(angles)), axis=1)
    assert is_toeplitz(both @ both.T)
    assert not is_toeplitz(one @ one.T, tolerance=0.1)


def test_chebyshev_polynomials_do_not_solve_it():
    length = 64
    nodes = np.cos(np.pi * (np.arange(length) + 0.5) / length)
    polynomials = np.stack([np.polynomial.Chebyshev.basis(k)(nodes) for k in range(length)], axis=1)
    gram = polynomials.T @ polynomials
    np.testing.assert_allclose(gram - np.diag(np.diag(gram)), 0, atol=1e-9)  # they are orthogonal, as claimed ...
    for positions in (nodes, np.linspace(-1, 1, length)):  # ... but neither at their nodes nor at even spacing relative
        encodings = np.stack([np.polynomial.Chebyshev.basis(k)(positions) for k in range(1, 9)], axis=1)
        assert spread_along_diagonals(encodings @ encodings.T) > 0.5
    rotated = np.stack([turn(0.3 * m) @ [1, 0] for m in range(length)])
    assert is_toeplitz(rotated @ rotated.T)
