"""Chapter 01: every labelled equation and theorem, and the rows of its library table."""

from __future__ import annotations

import functools
import itertools
import math
import re
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy
import torch
from torch.func import hessian

import rope_lessons as rl
from experiments import scoreboard_hits as hits
from rope_lessons.figures import sinusoidal as figures
from rope_lessons.figures.scoreboard import measured
from rope_lessons.stored import results
from tests.book.cells import run_cells
from tools.project import ROOT

# torch.func's first derivative calls torch.jit.script inside PyTorch.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]

F64 = torch.float64
GAMMA = float(mpmath.euler)
PAGE = ROOT / "book" / "01_sinusoidal.md"
TEXT = PAGE.read_text("utf8")


def attend(x, W_q, W_k, W_v, mask=None):
    scores = (x @ W_q.T) @ (x @ W_k.T).T / math.sqrt(x.shape[1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(dim=-1) @ (x @ W_v.T)


def weights(dim=6, seed=0):
    return torch.randn(3, dim, dim, dtype=F64, generator=torch.Generator().manual_seed(seed))


WEIGHTS, READOUT = weights(), torch.linspace(-1, 1, 6, dtype=F64)


def pooled_model(x):
    return (x + attend(x, *WEIGHTS)).tanh().mean(dim=0) @ READOUT


def tokens(count=5, dim=6, seed=1):
    return torch.randn(count, dim, dtype=F64, generator=torch.Generator().manual_seed(seed))


def gram(encodings):
    return encodings @ encodings.T


def is_toeplitz(matrix, tolerance=1e-10):
    return (matrix[1:, 1:] - matrix[:-1, :-1]).abs().max() < tolerance


def integral(distance, base):
    return (mpmath.ci(distance) - mpmath.ci(mpmath.mpf(distance) / base)) / mpmath.log(base)


def test_thm_sinusoidal_equivariance():
    x = tokens(4)
    out = attend(x, *weights())
    for order in itertools.permutations(range(4)):
        torch.testing.assert_close(attend(x[list(order)], *weights()), out[list(order)], rtol=0, atol=1e-12)
    assert (out[[1, 0, 2, 3]] - out).abs().max() > 0.1  # equivariant, not invariant

    twice = x[[0, 1, 2, 0, 1]]  # the cat saw the cat
    out = attend(twice, *weights())
    torch.testing.assert_close(out[:2], out[3:], rtol=0, atol=1e-12)
    causal = attend(twice, *weights(), mask=torch.ones(5, 5, dtype=torch.bool).tril())
    assert (causal[0] - causal[3]).abs().max() > 0.1  # a causal mask ends it
    torch.testing.assert_close(pooled_model(x[[2, 0, 3, 1]]), pooled_model(x))


def test_eq_sinusoidal_taylor():
    x, (e_m, e_n), m, n = tokens(), tokens(2, seed=2), 1, 2
    full = hessian(pooled_model)(x)
    gradient = torch.func.grad(pooled_model)(x)

    def rest(size):
        moved = x.clone()
        moved[m] += size * e_m
        moved[n] += size * e_n
        expansion = pooled_model(x) + size * (e_m @ gradient[m] + e_n @ gradient[n])
        expansion += size**2 * (e_m @ full[m, :, m] @ e_m / 2 + e_n @ full[n, :, n] @ e_n / 2)
        expansion += size**2 * e_m @ full[m, :, n] @ e_n
        return (pooled_model(moved) - expansion).item()

    assert abs(rest(0.01)) < 1e-4
    for size in (0.04, 0.02, 0.01):
        assert rest(size) / rest(size / 2) == pytest.approx(8, rel=0.15)  # third order


def test_eq_sinusoidal_mixed():
    x, (e_m, e_n), m, n = tokens(), tokens(2, seed=2), 1, 2
    expected = e_m @ hessian(pooled_model)(x)[m, :, n] @ e_n

    def moved(a, b):
        y = x.clone()
        y[m] += a * e_m
        y[n] += b * e_n
        return pooled_model(y)

    errors = []
    for size in (1e-2, 1e-3):
        difference = moved(size, size) - moved(size, 0) - moved(0, size) + moved(0, 0)
        errors.append(abs(difference / size**2 - expected).item())
    assert errors[1] < 0.2 * abs(expected)
    assert errors[1] < 0.2 * errors[0]  # the rest is of third order


def test_eq_sinusoidal_score():
    x, e = tokens(2), tokens(2, seed=3)
    W_q, W_k, _ = weights()
    H = W_q.T @ W_k
    score = (W_q @ (x[0] + e[0])) @ (W_k @ (x[1] + e[1]))
    terms = x[0] @ H @ x[1] + x[0] @ H @ e[1] + e[0] @ H @ x[1] + e[0] @ H @ e[1]
    torch.testing.assert_close(score, terms)


def test_eq_sinusoidal_wish():
    assert is_toeplitz(gram(rl.sinusoidal_encoding(torch.arange(50), 16, dtype=F64)))
    assert not is_toeplitz(gram(tokens(50, 16)))
    # Chebyshev polynomials are orthogonal too, and do not grant the wish.
    grid = torch.linspace(-1, 1, 50, dtype=F64).acos()
    assert not is_toeplitz(gram(torch.stack([(k * grid).cos() for k in range(16)], dim=1)), tolerance=0.1)


def test_thm_sinusoidal_plane():
    m = torch.arange(12, dtype=F64)
    turning = torch.stack(((0.3 + 1.1 * m).cos(), (0.3 + 1.1 * m).sin()), dim=1)
    alternating = torch.stack(((0.3 + 1.1 * (m % 2)).cos(), (0.3 + 1.1 * (m % 2)).sin()), dim=1)
    assert is_toeplitz(gram(turning))
    assert is_toeplitz(gram(alternating))

    # Every other choice of signs breaks the wish: try all walks of six steps of ±θ.
    kept = []
    for signs in itertools.product((1, -1), repeat=6):
        angles = torch.tensor([0, *itertools.accumulate(signs)], dtype=F64) * 1.1
        if is_toeplitz((angles[:, None] - angles).cos()):
            kept.append(signs)
    assert sorted(kept) == sorted([(1,) * 6, (-1,) * 6, (1, -1) * 3, (-1, 1) * 3])


def test_eq_sinusoidal_complex():
    theta, phi, r = sympy.symbols("theta phi r", positive=True)
    m, n = sympy.symbols("m n", integer=True)

    def e(k):
        return r * sympy.exp(sympy.I * (phi + k * theta))

    product = sympy.simplify(e(m) * sympy.conjugate(e(n)))
    assert sympy.simplify(product - r**2 * sympy.exp(sympy.I * (m - n) * theta)) == 0
    # The alternating solution grants the real wish only: the imaginary part changes its sign.
    alternating = torch.polar(torch.ones(6, dtype=F64), 0.7 * (torch.arange(6) % 2).double())
    products = alternating[:, None] * alternating.conj()
    assert is_toeplitz(products.real)
    assert not is_toeplitz(products.imag)
    # Conversely, every walk of six unequal steps breaks the complex wish, in its first off-diagonal.
    for signs in itertools.product((1, -1), repeat=6):
        walk = torch.polar(torch.ones(7, dtype=F64), 1.1 * torch.tensor([0, *itertools.accumulate(signs)]).double())
        products = walk[:, None] * walk.conj()
        granted = is_toeplitz(products.real) and is_toeplitz(products.imag)
        assert granted == (len(set(signs)) == 1)


def orthogonal(dim, seed):
    return torch.linalg.qr(tokens(dim, dim, seed)).Q


def test_thm_sinusoidal_orbit():
    # Every orbit of an orthogonal matrix grants the wish ...
    for dim, seed in itertools.product((3, 4, 5, 7), (0, 1, 2)):
        Q, encoding = orthogonal(dim, seed), tokens(1, dim, seed + 50)[0]
        orbit = [encoding]
        for _ in range(30):
            orbit.append(Q @ orbit[-1])
        G = gram(torch.stack(orbit))
        assert is_toeplitz(G)
        # ... its G has the form of the theorem: sizes A_t² and angles are those of Q ...
        values, vectors = torch.linalg.eig(Q)
        sizes = (vectors.conj().T @ encoding.to(vectors.dtype)).abs() ** 2
        predicted = torch.stack([(sizes * (values.angle() * k).cos()).sum() for k in range(31)])
        torch.testing.assert_close(G[:, 0], predicted, rtol=0, atol=1e-9)
        # ... and any vectors with these inner products, whatever their basis, are the orbit of some orthogonal matrix.
        spectrum, axes = torch.linalg.eigh(G)
        other = axes[:, -dim:] * spectrum[-dim:].clamp(min=0).sqrt()  # (31, dim), same Gram matrix
        step = torch.linalg.lstsq(other[:-1], other[1:]).solution.T
        torch.testing.assert_close(other[:-1] @ step.T, other[1:], rtol=0, atol=1e-6)
        torch.testing.assert_close(step @ step.T, torch.eye(dim, dtype=F64), rtol=0, atol=1e-5)


def test_eq_sinusoidal_encoding():
    dim = 10
    table = rl.sinusoidal_encoding(torch.arange(200), dim, dtype=F64)
    for m, t in itertools.product((0, 1, 7, 199), range(dim // 2)):
        angle = mpmath.mpf(m) / mpmath.mpf(10_000) ** (mpmath.mpf(2 * t) / dim)
        assert table[m, 2 * t].item() == pytest.approx(float(mpmath.sin(angle)), abs=1e-12)
        assert table[m, 2 * t + 1].item() == pytest.approx(float(mpmath.cos(angle)), abs=1e-12)


def test_eq_sinusoidal_kernel():
    positions, frequencies = torch.arange(300), rl.rope_frequencies(32)
    G = gram(rl.sinusoidal_encoding(positions, 32, dtype=F64))
    distances = positions[:, None] - positions
    cosines = (distances.double()[..., None] * frequencies).cos().sum(dim=-1)
    torch.testing.assert_close(G, cosines)
    torch.testing.assert_close(G, 16 * rl.sinusoidal.sinusoidal_kernel(distances, frequencies))
    assert rl.sinusoidal.sinusoidal_kernel(torch.tensor(0), frequencies) == 1


def test_eq_sinusoidal_shift():
    frequencies = rl.rope_frequencies(8)
    for m, k in itertools.product((0, 3, 100), (1, 5, -2)):
        here, there = rl.sinusoidal_encoding(torch.tensor([m, m + k]), 8, dtype=F64)
        for t, angle in enumerate((k * frequencies).tolist()):
            block = torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]], dtype=F64)
            pair = slice(2 * t, 2 * t + 2)
            torch.testing.assert_close(block @ here[pair], there[pair])


@pytest.mark.parametrize("base", [10, 10_000])
def test_thm_sinusoidal_integral(base):
    for distance in (0.5, 3, 40):
        for function, closed in ((mpmath.cos, mpmath.ci), (mpmath.sin, mpmath.si)):
            pieces = mpmath.linspace(0, 1, 21)
            numeric = mpmath.quad(lambda u, f=function, D=distance: f(D * mpmath.mpf(base) ** -u), pieces)
            exact = (closed(distance) - closed(mpmath.mpf(distance) / base)) / mpmath.log(base)
            assert abs(numeric - exact) < 1e-10
    # The sum tends to the integral as the channels grow.
    errors = [
        abs(
            rl.sinusoidal.sinusoidal_kernel(torch.tensor(7), rl.rope_frequencies(d, float(base))).item()
            - integral(7, base)
        )
        for d in (64, 128, 256)
    ]
    assert errors[0] > 1.8 * errors[1] > 3.2 * errors[2]


def test_eq_sinusoidal_log_law():
    for base in (100, 10_000, 10**6):
        for distance in (1, 2, 10, 56, base // 20, base // 2, base):
            law = 1 - (math.log(distance) + GAMMA) / math.log(base)
            bound = (2 / distance + distance**2 / (4 * base**2)) / math.log(base)
            assert abs(integral(distance, base) - law) <= bound
    assert abs(integral(100, 10_000) - 0.4368) < 1e-4
    assert abs(1 - (math.log(math.sqrt(10_000) * math.exp(-GAMMA)) + GAMMA) / math.log(10_000) - 0.5) < 1e-12


def test_thm_sinusoidal_bound():
    for base in (2, 100, 10_000):
        tightest = 0.0
        for k in range(0, 90):
            distance = 10 ** (k / 10)
            ratio = abs(integral(distance, base)) * distance * mpmath.log(base) / (2 * base)
            assert ratio <= 1
            tightest = max(tightest, float(ratio))
        assert tightest > 0.3  # not by an order of magnitude: the factor B is really there
    assert integral(100, 10_000) > 100 * 0.22 / 100  # the bound without the factor B is false


def test_thm_sinusoidal_mean_square():
    distance = torch.arange(200_000)
    for frequencies in (rl.rope_frequencies(4), rl.rope_frequencies(16), torch.tensor([0.5, 1.0, 3.0], dtype=F64)):
        mean = rl.sinusoidal.sinusoidal_kernel(distance, frequencies).square().mean().item()
        assert mean == pytest.approx(1 / (2 * len(frequencies)), rel=0.01)
    doubled = rl.sinusoidal.sinusoidal_kernel(distance, torch.tensor([1.0, 1.0], dtype=F64)).square().mean().item()
    assert doubled == pytest.approx(1 / 2, rel=0.01)  # equal frequencies: the condition is needed


@pytest.mark.parametrize(("dim", "base"), [(128, 10_000), (1024, 10_000), (128, 500_000)])
def test_eq_sinusoidal_scatter(dim, base):
    generator = torch.Generator().manual_seed(dim)
    start = math.pi * dim / math.log(base)
    frequencies = rl.rope_frequencies(dim, float(base))
    for turns in (10, 100, 1000):  # mean over distances from Δ₁·turns/3 to Δ₁·turns·3
        distance = (turns * start * 3 ** (2 * torch.rand(300, generator=generator) - 1)).round().long()
        exact = torch.tensor([float(integral(k, base)) for k in distance.tolist()], dtype=F64)
        measured = (rl.sinusoidal.sinusoidal_kernel(distance, frequencies) - exact).square().mean()
        rule = (distance / start).log().mean() / math.log(base) / dim
        assert measured == pytest.approx(rule.item(), rel=0.35)
    near = torch.arange(1, int(start / 3))
    exact = torch.tensor([float(integral(k, base)) for k in near.tolist()], dtype=F64)
    assert (
        rl.sinusoidal.sinusoidal_kernel(near, frequencies) - exact
    ).abs().max() < 2.2 / dim  # in step: only the error at the ends


@pytest.mark.parametrize(("pairs", "parts"), [(1, 7), (2, 20), (3, 12), (4, 8)])
def test_thm_sinusoidal_return(pairs, parts):
    generator = torch.Generator().manual_seed(pairs)
    for _ in range(20):
        frequencies = 3 * torch.rand(pairs, dtype=F64, generator=generator)
        kernel = rl.sinusoidal.sinusoidal_kernel(torch.arange(1, parts**pairs + 1), frequencies)
        assert kernel.max() >= math.cos(2 * math.pi / parts)
    # Again and again: also beyond any distance already passed.
    toy = rl.sinusoidal.sinusoidal_kernel(torch.arange(50_000, 100_001), rl.rope_frequencies(4))
    assert toy.max() > 0.9999


@pytest.mark.parametrize("a", [2, 3, 8])
def test_eq_sinusoidal_power_law(a):
    # With w = Δ v^a the integral is Δ^(-1/a)/a times ∫_0^Δ cos(w) w^(1/a - 1) dw.
    ratios = []
    for periods in (50, 500):
        distance = 2 * mpmath.pi * periods
        head = mpmath.quad(lambda v, D=distance: mpmath.cos(D * v**a), mpmath.linspace(0, (4 / distance) ** (1 / a), 9))
        zeros = [mpmath.pi * (k + 0.5) for k in range(2 * periods)]
        inner = [4, *[z for z in zeros if z > 4], distance]
        tail = sum(
            mpmath.quad(lambda w: mpmath.cos(w) * w ** (mpmath.mpf(1) / a - 1), [lo, hi], maxdegree=3)
            for lo, hi in itertools.pairwise(inner)
        )
        value = head + distance ** (-mpmath.mpf(1) / a) / a * tail
        law = mpmath.gamma(1 + mpmath.mpf(1) / a) * mpmath.cos(mpmath.pi / (2 * a)) * distance ** (-mpmath.mpf(1) / a)
        ratios.append(float(abs(value / law - 1)))
    assert ratios[0] < 0.02
    assert ratios[1] < 0.2 * ratios[0]


def test_linear_frequencies_are_periodic():
    frequencies = 1 - torch.arange(64, dtype=F64) / 64
    assert rl.sinusoidal.sinusoidal_kernel(torch.tensor(128 * math.pi, dtype=F64), frequencies).item() == pytest.approx(
        1
    )
    assert rl.sinusoidal.sinusoidal_kernel(torch.tensor(402), frequencies) > 0.99
    # The harmonic choice breaks the other condition: no frequency is below 1/100, yet K(100) is far from 0.
    assert rl.sinusoidal.sinusoidal_kernel(torch.tensor(100), 1 / torch.arange(1, 65, dtype=F64)) < -0.25


def test_sines_stay_level():
    level = math.pi / (2 * math.log(10_000))
    for distance in (2, 10, 100, 1000):
        exact = (mpmath.si(distance) - mpmath.si(distance / 10_000)) / mpmath.log(10_000)
        assert abs(exact - level) < 0.012
        sines = (distance * rl.rope_frequencies(8192)).sin().mean()
        assert sines.item() == pytest.approx(float(exact), abs=0.01)


def test_eq_sinusoidal_diagonal():
    m, n, w, hs, hc = sympy.symbols("m n omega h_s h_c", real=True)
    left = hs * sympy.sin(m * w) * sympy.sin(n * w) + hc * sympy.cos(m * w) * sympy.cos(n * w)
    right = (hc + hs) / 2 * sympy.cos((m - n) * w) + (hc - hs) / 2 * sympy.cos((m + n) * w)
    assert sympy.simplify(sympy.expand_trig(left - right)) == 0


@pytest.mark.parametrize("dim", [4, 6])
def test_thm_sinusoidal_general_h(dim):
    frequencies = rl.rope_frequencies(dim, base=20.0)
    positions = torch.arange(2 * dim)
    e = rl.sinusoidal_encoding(positions, dim, frequencies=frequencies, dtype=F64)
    # The linear map from H to the changes along the diagonals of its Gram matrix has exactly the kernel claimed.
    columns = []
    for k in range(dim * dim):
        H = torch.zeros(dim * dim, dtype=F64)
        H[k] = 1
        G = e @ H.reshape(dim, dim) @ e.T
        columns.append((G[1:, 1:] - G[:-1, :-1]).flatten())
    changes = torch.stack(columns, dim=1)
    assert dim * dim - torch.linalg.matrix_rank(changes, rtol=1e-9) == dim  # two free numbers for each pair

    a, b = tokens(2, dim // 2, seed=4)
    H = torch.block_diag(*[torch.tensor([[x, y], [-y, x]], dtype=F64) for x, y in zip(a, b, strict=True)])
    angles = (positions[:, None] - positions).double()[..., None] * frequencies
    torch.testing.assert_close(e @ H @ e.T, (a * angles.cos() + b * angles.sin()).sum(dim=-1))


def test_eq_sinusoidal_chord():
    m = torch.arange(100, dtype=F64)
    e, between = (rl.sinusoidal_encoding(p, 16, dtype=F64) for p in (m, m[:-1] + 0.5))
    shrink = (rl.rope_frequencies(16) / 2).cos().repeat_interleave(2)
    torch.testing.assert_close((e[:-1] + e[1:]) / 2, shrink * between)
    assert shrink[0].item() == pytest.approx(0.878, abs=1e-3)
    # PyTorch takes the midpoints only near the ends, and by default nowhere.
    table = rl.sinusoidal_encoding(torch.arange(512), 16, dtype=F64).T[None]
    corners, default = (
        torch.nn.functional.interpolate(table, size=1024, mode="linear", align_corners=align)[0, :2].norm(dim=0)
        for align in (True, False)
    )
    assert (corners[:4] - torch.tensor([1, 0.878, 1, 0.878])).abs().max() < 1e-3
    assert (corners[510:514] - 0.910).abs().max() < 1e-3
    assert (default[1:-1] - 0.910).abs().max() < 1e-3


# ---------------------------------------------------------------- what libraries do (book/libraries.yml)


def in_halves(table):
    return torch.cat((table[..., 0::2], table[..., 1::2]), dim=-1)


def last_frequency_is_one_over_base(dim, base=10_000.0):
    return base ** -(torch.arange(dim // 2, dtype=F64) / (dim // 2 - 1))


def test_transformers_whisper_spreads_to_the_base():
    from transformers.models.whisper.modeling_whisper import sinusoids

    ours = rl.sinusoidal_encoding(torch.arange(200), 64, frequencies=last_frequency_is_one_over_base(64))
    torch.testing.assert_close(sinusoids(200, 64), in_halves(ours), rtol=0, atol=2e-4)
    paper = in_halves(rl.sinusoidal_encoding(torch.arange(200), 64))
    assert (sinusoids(200, 64) - paper).abs().max() > 1


def test_transformers_m2m100_spreads_to_the_base():
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding

    theirs = M2M100SinusoidalPositionalEmbedding.get_embedding(200, 64)
    ours = rl.sinusoidal_encoding(torch.arange(200), 64, frequencies=last_frequency_is_one_over_base(64))
    torch.testing.assert_close(theirs, in_halves(ours), rtol=0, atol=2e-4)
    positions = M2M100SinusoidalPositionalEmbedding.create_position_ids_from_inputs_embeds(torch.zeros(1, 3, 4), 0, 1)
    assert positions.tolist() == [[2, 3, 4]]


def test_transformers_marian_has_the_sines_first():
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    theirs = MarianSinusoidalPositionalEmbedding(200, 64).create_weight()
    torch.testing.assert_close(theirs, in_halves(rl.sinusoidal_encoding(torch.arange(200), 64)), rtol=0, atol=1e-6)


def test_transformers_distilbert_follows_the_paper_but_learns_by_default():
    from transformers import DistilBertConfig
    from transformers.models.distilbert.modeling_distilbert import create_sinusoidal_embeddings

    theirs = create_sinusoidal_embeddings(200, 64, torch.empty(200, 64))
    torch.testing.assert_close(theirs, rl.sinusoidal_encoding(torch.arange(200), 64), rtol=0, atol=1e-6)
    assert DistilBertConfig().sinusoidal_pos_embds is False


@pytest.mark.parametrize(("log_base", "pairs"), [(4, 2), (4, 64), (2, 1)])
def test_the_explorer_draws_whole_distances(log_base, pairs):
    """Each column reaches from the smallest to the largest value that its distances have, and to no value between."""
    drawn = explored(log_base, pairs)
    kernel = rl.sinusoidal.sinusoidal_kernel(torch.arange(100_000), rl.rope_frequencies(2 * pairs, 10.0**log_base))
    column = (figures.POINTS / figures.DECADES * torch.arange(1, 100_000).double().log10()).round()
    for x, values in drawn.items():
        own = kernel[1:][column == round((x - figures.LEFT) / figures.STEP)]
        if len(own) and x < figures._x(98_000):  # the last column has a part of its distances here
            assert values == pytest.approx([float(own.min()), float(own.max())], abs=0.001)


def explored(log_base, pairs):
    """The ends of each column of the explorer, by its x: smallest and largest kernel."""
    svg = figures.kernel_explorer(log_base, pairs).svg
    levels = re.findall(r'translate\(0 ([\d.]+)\)" visibility="visible">.*?end">(−?[\d.]+)</text>', svg)
    (y_low, low), (y_top, top) = ((float(y), float(level.replace("−", "-"))) for y, level in (levels[0], levels[-1]))
    drawn = {}
    for point in svg.partition('id="curve" d="M')[2].partition('"')[0].split("L"):
        x, y = map(float, point.split())
        drawn.setdefault(x, []).append(low + (y_low - y) / (y_low - y_top) * (top - low))
    return drawn


def test_the_explorer_has_no_empty_half():
    """The axis ends at −1 only where the kernel goes below one half of that."""
    assert [figures.kernel_explorer(4, pairs).svg.count('visibility="hidden"') for pairs in (64, 1)] == [1, 0]


@pytest.mark.parametrize(("log_base", "pairs", "log_distance"), [(4, 64, 1.75), (4, 64, 1.5), (2, 16, 3), (4, 2, 2.8)])
def test_the_kernel_is_the_mean_of_the_dots(log_base, pairs, log_distance):
    """Each dot stands at 1/ω; those right of the distance have not begun to turn, and their share is the law's."""
    shown = figures.kernel_explorer(log_base, pairs, log_distance)
    distance, frequencies = round(10**log_distance), rl.rope_frequencies(2 * pairs, 10.0**log_base)
    dots = {
        kind: [tuple(map(float, dot.split())) for dot in re.findall(r"M([\d. ]+)h0", path)]
        for kind, path in re.findall(r'id="(turning|still)" d="([^"]*)"', shown.svg)
    }
    heights = [1 - 2 * (y - figures.HAND_TOP) / figures.HAND_HIGH for _, y in dots["turning"] + dots["still"]]
    kernel = rl.sinusoidal.sinusoidal_kernel(torch.tensor(distance), frequencies).item()
    assert sum(heights) / pairs == pytest.approx(kernel, abs=0.002)
    assert all(x > figures._x(distance) for x, _ in dots["still"])
    assert all(x <= figures._x(distance) + 0.1 for x, _ in dots["turning"])
    assert len(dots["still"]) == int((distance * frequencies < 1).sum())
    share = max(0, 1 - math.log(distance) / math.log(10.0**log_base))
    assert len(dots["still"]) / pairs == pytest.approx(share, abs=1 / pairs)
    said = f"Δ = {distance}: K = {kernel:.2f}; not begun: {len(dots['still'])} of {pairs} hands".replace("-", "−")
    assert said in shown.svg


def test_the_explorer_shows_the_return_of_the_toy():
    """At 622, as the text says. Before, distances between the whole ones stood there, and the return was not seen."""
    near = [max(values) for x, values in explored(4, 2).items() if figures._x(600) < x < figures._x(650)]
    assert max(near) == pytest.approx(0.9987, abs=0.001)


def test_numbers_of_the_lesson():
    """What a reader can check by hand, and what the lab's text says."""
    rows = rl.sinusoidal_encoding(torch.arange(3), 4, dtype=F64)
    columns = ([0, 1, 0, 1], [0.841, 0.540, 0.010, 1.000], [0.909, -0.416, 0.020, 1.000])
    torch.testing.assert_close(rows, torch.tensor(columns, dtype=F64), atol=5e-4, rtol=0)
    assert [round((rows[m] @ rows[m + 1]).item(), 3) for m in (0, 1)] == [1.540, 1.540]
    assert [round((rows[1] * rows[2])[c].item(), 3) for c in range(4)] == [0.765, -0.225, 0.000, 1.000]

    law = lambda distance, base: 1 - (math.log(distance) + GAMMA) / math.log(base)  # noqa: E731
    assert math.exp(-GAMMA) == pytest.approx(0.56, abs=0.005)
    assert law(56, 10_000) == pytest.approx(0.5, abs=1e-3)
    assert law(56, 10_000) - law(560, 10_000) == pytest.approx(0.25)
    assert round((math.exp(GAMMA) * 20) ** 2, -1) == 1270
    assert round((math.exp(GAMMA) * 10) ** 2) == 317
    assert round((math.exp(GAMMA) * 500) ** 2, -3) == 793_000
    # Euler's constant in two parts: hands that have tilted before the cut, and hands that point backwards after it.
    before = mpmath.quad(lambda v: (mpmath.cos(v) - 1) / v, [0, 1])
    after = -mpmath.ci(1)
    assert before < -0.2
    assert after < -0.3
    assert before + after == pytest.approx(-GAMMA)
    # At a distance of 30: hands that have not begun to turn.
    assert round(100 * (1 - math.log(30) / math.log(10_000))) == 63
    assert (1 * 2, 500 * 501) == (2, 250_500)  # what the inner product of two integers says of neighbours
    # The slowest of the eight hands in the figure of the attempts.
    assert 0.017 < rl.rope_frequencies(16, base=100.0)[-1] < 0.02
    # One step is no linear map of binary digits, written as −1 and 1.
    digits = {n: torch.tensor([2 * (n >> t & 1) - 1 for t in range(4)]) for n in (3, 4, 12, 13)}
    assert not (digits[3] + digits[12]).any()
    assert (digits[4] + digits[13]).any()
    # With an H of one's own the integer is seen by its distance.
    own = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    integers = torch.stack((torch.arange(9.0), torch.ones(9)), dim=-1)
    torch.testing.assert_close(integers @ own @ integers.T, torch.arange(9.0)[:, None] - torch.arange(9.0))

    def kernel(frequencies):
        distances = torch.arange(20_001, dtype=F64)
        return (distances[:, None] * frequencies.double()).cos().mean(dim=1)

    original, base_alone = kernel(rl.rope_frequencies(128)), kernel(rl.rope_frequencies(128, base=1270))
    forgets = kernel(0.5 * rl.rope_frequencies(128, base=317))
    assert (int((original < 0.5).nonzero()[0]), int((original > 0.5).nonzero()[-1])) == (46, 88)
    assert f"{2047:012b}" == "011111111111"
    assert f"{2048:012b}" == "100000000000"
    assert round(forgets[200:].abs().max().item(), 2) == 0.25
    assert [round(of[5].item(), 2) for of in (base_alone, forgets)] == [0.66, 0.78]


def test_the_deeper_page_shows_its_tables_as_tables():
    """None is printed; what its text says of them."""
    page = (ROOT / "book" / "deeper" / "01_sinusoidal.md").read_text("utf8")
    assert "print(" not in page
    frequencies = rl.rope_frequencies(128)
    kernel = rl.sinusoidal.sinusoidal_kernel(torch.tensor([3, 4, 300, 301]), frequencies)
    assert [round(value, 3) for value in kernel.tolist()] == [0.815, 0.759, 0.307, 0.301]
    assert "from 0.815 to 0.759. Between 300 and 301 it goes from 0.307 to 0.301" in page


def test_no_base_alone_solves_the_lab():
    """With those that reach one half from 18 to 22, positions 5 apart differ too much."""
    near = torch.tensor([5.0, 22.0], dtype=F64)
    for base in range(600, 3000, 20):
        five, last = rl.sinusoidal.sinusoidal_kernel(near, rl.rope_frequencies(128, float(base))).tolist()
        assert five < 0.75 or last > 0.5, base


def test_peaks_of_the_noise():
    """In units of 1/√d: more than three within 100 000 distances, more than four within a million, and none near 1."""
    peaks = [
        max(
            rl.sinusoidal.sinusoidal_kernel(piece, rl.rope_frequencies(128)).abs().max().item()
            for piece in torch.arange(first, last).split(50_000)
        )
        * math.sqrt(128)
        for first, last in ((10_000, 100_000), (100_000, 1_000_000))
    ]
    assert [int(peak) for peak in peaks] == [3, 4]  # and not 11, the size of a return to 1: "Not within a million"


def test_one_channel_per_position_is_hands():
    """In the basis of sines and cosines; each step turns a pair by 2πt/d."""
    d = 12
    m = torch.arange(d, dtype=F64)
    rows = [torch.ones(d, dtype=F64), (-1.0) ** m]  # the channel that never changes, and the one that flips its sign
    for t in range(1, d // 2):
        rows += [(2 * math.pi * t / d * m).cos(), (2 * math.pi * t / d * m).sin()]
    turn = torch.stack([row / row.norm() for row in rows])
    torch.testing.assert_close(turn @ turn.T, torch.eye(d, dtype=F64))
    seen = turn @ torch.eye(d, dtype=F64)  # column m: the encoding of m in the new axes
    for t in range(1, d // 2):
        x, y = seen[2 * t], seen[2 * t + 1]
        hand = torch.polar(torch.full((d,), (2 / d) ** 0.5, dtype=F64), 2 * math.pi * t / d * m)
        torch.testing.assert_close(torch.complex(x, y), hand)


def test_the_position_has_sixteen_numbers():
    shown = rl.figures.position_explorable(position=2)
    numbers = [float(number.replace("−", "-")) for number in re.findall(r"<i>(.*?)</i>", shown.svg)]
    table = rl.sinusoidal_encoding(torch.tensor([2]), 16, dtype=F64)[0].tolist()
    assert numbers == pytest.approx(table, abs=0.0051)
    assert "sin <i>0.91</i>" in shown.svg
    assert shown.knobs[0].low == 0
    with pytest.raises(ValueError, match="position must be from 1 to longest = 1000, got 1001"):
        rl.figures.position_explorable(position=1001)


def test_what_the_attempts_see():
    seen = figures.attempts()
    assert [is_toeplitz(matrix) for matrix in seen.values()] == [False, True, False, True]
    assert list(seen) == ["the integer", "one channel each", "binary digits", "turning hands"]
    integers, channels, digits, hands = seen.values()
    assert integers.argmax() == 32 * 32 - 1
    assert torch.equal(channels, torch.eye(32, dtype=F64))
    assert digits[6, 7] > digits[7, 8]  # one digit changes, or four do
    assert hands[0, 0] > hands[0, 1] > hands[0, 8] > hands[0, 31]


def test_a_learned_table_has_no_rows_beyond_home():
    """Where it cannot be asked, the table of the lesson has a dash."""
    rows = results("scoreboard")["rows"]
    assert rows.where(rung="small", row="learned", metric="natural")["length"] == [64]
    shown = rl.figures.scoreboard_table(rows, {"learned": "learned table"}, columns=[("natural", 64), ("natural", 512)])
    assert shown.rows["learned table"] == ("61.9", "–")
    with pytest.raises(ValueError, match="no-such"):
        rl.figures.scoreboard_table(rows, {"no-such": "x"})


# ---------------------------------------------------------------- does it work?


def test_the_table_costs_more_than_the_documents_explain():
    """The ± of two rows overlap, since both have the documents in them; the paired difference is sure."""
    rows = results("scoreboard")["rows"]
    (_, low, high), (_, rope_low, rope_high) = (measured(rows, row, "natural", 64) for row in ("sinusoidal", "rope"))
    assert low < rope_low < high < rope_high
    tax, least, most = measured(rows, "sinusoidal", "tax", 64)
    assert f"costs {tax:.1f} bytes in a hundred against RoPE (95 % interval {least:.1f} to {most:.1f}, compared" in TEXT
    assert most - least < 0.4 * (high - low)  # "mostly the documents"
    assert {
        rows.where(rung="small", row=row)["seeds"][0] for row in ("sinusoidal", "sinusoidal-shifted", "learned")
    } == {3}
    assert rows.where(rung="small", row="rope")["seeds"][0] == 5


def test_beyond_home_it_is_worse_than_a_space():
    board = results("scoreboard")
    predicted = "".join(text[1:] for text in results("scoreboard_texts")["windows"].where(which="test")["text"])
    assert len(predicted) == 64 * 512
    space = 100 * predicted.count(" ") / len(predicted)
    assert max(predicted.count(chr(byte)) for byte in range(256)) == predicted.count(" ")
    shifted = [measured(board["rows"], "sinusoidal-shifted", "natural", length)[2] for length in (64, 128, 512)]
    assert max(shifted) < space  # the upper ends of the intervals, too
    assert measured(board["rows"], "sinusoidal", "natural", 512)[2] < space
    assert measured(board["rows"], "rope", "natural", 512)[1] > space
    shown = rl.figures.scoreboard_table(
        board["rows"],
        {"rope": "RoPE"},
        columns=[("natural", 64), ("natural", 512)],
        counted={"always a space": [space] * 2, "never": [0, 0]},
    )
    assert shown.rows["always a space"] == (f"{space:.1f}",) * 2
    assert shown.apart == {"always a space"}


def test_the_cliff_of_the_language_model():
    """Of texts of 128 bytes: 60 % in the first half and 21 % in the second, and 40.4 is their mean."""
    folder = ROOT / "experiments" / "stored" / "scoreboard" / "small" / "sinusoidal"
    found = [hits.read(folder / f"seed-{seed}.npz")[1]["sinusoidal"]["natural 128"] for seed in range(3)]
    halves = 100 * np.mean([of_seed.reshape(-1, 2, 64).mean(axis=(0, 2)) for of_seed in found], axis=0)
    assert [f"{half:.0f}" for half in halves] == ["60", "21"]
    assert halves.mean() == pytest.approx(
        measured(results("scoreboard")["rows"], "sinusoidal", "natural", 128)[0], abs=0.1
    )
    assert "The 40.4 at 128 is the cliff again, 60 % of the first 64 bytes and 21 % of the others" in TEXT


@functools.cache
def cells() -> dict[str, Any]:
    """What the lesson's cells have made when the copiers have been tested."""
    return run_cells(PAGE, until="every")


def test_equal_words_and_no_others_have_equal_outputs():
    out = cells()["out"]
    torch.testing.assert_close(out[[0, 1]], out[[3, 4]])
    assert min((out[a] - out[b]).abs().max() for a, b in ((0, 1), (0, 2), (1, 2))) > 0.5


def test_copiers_fail_where_no_training_was():
    """At every start: all that stands at a position of the training is right, and the mistakes begin behind it."""
    made = cells()
    names = list(made["LAST"])
    assert made["starts"] == (0, 8, 16, 24, 32, 100, 1000, 5000)
    for start in made["starts"]:
        plain, anywhere = (made["right"](made["copiers"][name], start) for name in names)  # at start + 3 to start + 31
        home = max(0, 32 - start - 3)
        assert bool((plain[:home] > 99).all())
        assert start == 0 or plain[home:].mean() < 90
        assert bool((anywhere > 97).all()) == (start <= 1000)
    assert made["right"](made["copiers"][names[0]], 8)[21:].mean() < 60  # positions 32 to 39
    assert made["right"](made["copiers"][names[1]], 5000).mean() < 97


def test_other_starts_turn_h_towards_the_relative_directions():
    """And the mixed terms are not why the others fail: it is the rest of H."""
    made = cells()
    share = {name: sum(map(made["along"], three)) / 3 for name, three in made["every"].items()}
    later = {
        name: sum(made["right"](three, start).mean().item() for start in range(32, 1001, 88)) / 12
        for name, three in made["every"].items()
    }
    plain, anywhere, plain_alone, anywhere_alone, cut = share
    assert min(made["right"](three, 0).mean() for three in made["every"].values()) > 99.5
    assert min(later[anywhere], later[anywhere_alone]) > 99
    assert later[plain] < later[plain_alone] < later[plain] + 15 < 90  # hardly better
    assert share[plain] + 15 < share[anywhere]
    assert share[plain_alone] + 50 < share[anywhere_alone]
    assert round(share[plain_alone]) == pytest.approx(19, abs=3)
    assert share[cut] == pytest.approx(100, abs=1e-3)
    assert later[cut] > 99.5  # right everywhere, with the same blocks
    for before, after in zip(made["every"][plain_alone], made["every"][cut], strict=True):
        torch.testing.assert_close(made["matrix"](after), made["blocks"](made["matrix"](before)))
    # With the mixed terms H reads the letters, too, and the cut spoils what was right.
    assert made["right"]([made["without_the_rest"](copier) for copier in made["every"][plain]], 0).mean() < 50
    torch.manual_seed(0)
    assert sum(made["along"](made["Copier"]()) for _ in range(50)) / 50 == pytest.approx(100 / 32, abs=1)
    # The share is that of the matrices of thm-sinusoidal-general-h: 100 for one of them.
    relative = made["Copier"]()
    a, b = tokens(2, 16, seed=4).float()
    H = torch.block_diag(*[torch.tensor([[x, y], [-y, x]]) for x, y in zip(a, b, strict=True)])
    relative.query.weight.data, relative.key.weight.data = torch.eye(32), H
    assert made["along"](relative) == pytest.approx(100, abs=1e-3)
    # Turned by 3ω in each block, the score is largest three back.
    e = rl.sinusoidal_encoding(torch.arange(40), 32, dtype=F64)
    turns = [(math.cos(3 * w), math.sin(3 * w)) for w in rl.rope_frequencies(32).tolist()]
    back = torch.block_diag(*[torch.tensor([[c, s], [-s, c]], dtype=F64) for c, s in turns])
    assert torch.equal((e @ back @ e.T)[3:].argmax(dim=1), torch.arange(37))


def test_the_places_are_blue_where_training_was():
    found = {"from 0": {0: [100.0] * 29, 8: [100.0] * 21 + [40.0] * 8, 100: [50.0] * 29}}
    shown = figures.copier_places(found, {"from 0": 32}, guessing=12.5)
    near, far = shown.figure.axes
    lines = {
        colour: [
            list(line.get_xdata())
            for line in near.lines + far.lines
            if line.get_color() == colour and len(line.get_xdata()) > 2
        ]
        for colour in (figures.BLUE, figures.RED)
    }
    assert max(place for line in lines[figures.BLUE] for place in line) == 31
    assert [min(line) for line in lines[figures.RED]] == [31, 103]  # from the last old position on
    assert "8: 100 old and 40 new; 100: 50 new" in shown.alt
