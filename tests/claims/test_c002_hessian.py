"""Document 002, sections 2.1, 2.4, 4.1, 4.2 and 4.7: the Taylor expansion and its Hessian term."""

import mpmath as mp
import numpy as np
import pytest
import sympy as sp
import torch
from claim_tools import attend, encoding, is_toeplitz, random_attention, spread_along_diagonals
from torch.func import jacrev

DIM, SEQ, M, N = 16, 6, 1, 4


def small_model(seed=0):
    """A scalar function of two encodings, added at positions M and N to random embeddings of norm about 4."""
    weights = random_attention(DIM, seed)
    x, readout = torch.randn(
        2, SEQ, DIM, generator=torch.Generator().manual_seed(seed + 100), dtype=torch.float64
    ).unbind()

    def f(e_m, e_n):
        y = torch.cat((x[:M], (x[M] + e_m)[None], x[M + 1 : N], (x[N] + e_n)[None], x[N + 1 :]))
        return torch.tanh(y + attend(y, weights)).mean(0) @ readout[0]

    return f


ZERO = torch.zeros(DIM, dtype=torch.float64)


def directions(count, size):
    pairs = torch.randn(count, 2, DIM, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    return size * pairs / pairs.norm(dim=-1, keepdim=True)


def mixed(f, e_m, e_n):
    return f(e_m, e_n) - f(e_m, ZERO) - f(ZERO, e_n) + f(ZERO, ZERO)


def test_taylor_expansion_to_second_order():
    f = small_model()
    gradient = [jacrev(f, i)(ZERO, ZERO) for i in (0, 1)]
    h_mm, h_mn, h_nn = (jacrev(jacrev(f, i), j)(ZERO, ZERO) for i, j in ((0, 0), (0, 1), (1, 1)))

    def remainder(e_m, e_n):
        linear = gradient[0] @ e_m + gradient[1] @ e_n
        return f(e_m, e_n) - f(ZERO, ZERO) - linear - e_m @ h_mm @ e_m / 2 - e_n @ h_nn @ e_n / 2 - e_m @ h_mn @ e_n

    for e_m, e_n in directions(5, 0.01):
        assert remainder(e_m, e_n) / remainder(e_m / 2, e_n / 2) == pytest.approx(8, rel=0.1)


def test_mixed_difference_is_the_hessian_term():
    f = small_model()
    h = jacrev(jacrev(f, 0), 1)(ZERO, ZERO)
    for e_m, e_n in directions(5, 1e-3):
        assert mixed(f, e_m, e_n) == pytest.approx((e_m @ h @ e_n).item(), rel=0.1)
        assert mixed(f, e_m, ZERO) == 0
    other = jacrev(jacrev(small_model(1), 0), 1)(ZERO, ZERO)
    assert (h - other).norm() > 0.5 * h.norm()  # other content (and weights), another Hessian


def test_linearised_model_has_no_interaction():
    f = small_model()
    gradient = [jacrev(f, i)(ZERO, ZERO) for i in (0, 1)]

    def linearised(e_m, e_n):
        return f(ZERO, ZERO) + gradient[0] @ e_m + gradient[1] @ e_n

    for e_m, e_n in directions(5, 1.0):
        assert mixed(linearised, e_m, e_n).abs() < 1e-12
        assert mixed(f, e_m, e_n).abs() > 1e-6


def test_expansion_fails_for_large_encodings():
    def relative_error(ratio):
        wrong, size = 0.0, 0.0
        for seed in range(8):
            f = small_model(seed)
            h = jacrev(jacrev(f, 0), 1)(ZERO, ZERO)
            for e_m, e_n in directions(15, 4 * ratio):
                wrong += (mixed(f, e_m, e_n) - e_m @ h @ e_n).abs().item()
                size += (e_m @ h @ e_n).abs().item()
        return wrong / size

    errors = [relative_error(ratio) for ratio in (1 / 64, 1 / 16, 0.62)]
    np.testing.assert_allclose(errors, [0.03, 0.12, 0.9], rtol=0.15)


def test_diagonal_hessian():
    m, n, w, a, b = sp.symbols("m n w a b", real=True)
    left = a * sp.cos(m * w) * sp.cos(n * w) + b * sp.sin(m * w) * sp.sin(n * w)
    right = (a + b) / 2 * sp.cos((m - n) * w) + (a - b) / 2 * sp.cos((m + n) * w)
    assert sp.simplify(sp.expand_trig(left - right)) == 0
    # the range of the sum: pairs 0 to d/2 - 1, sine in even and cosine in odd channels here
    dim = 8
    entries = np.random.default_rng(0).standard_normal(dim)
    e_m, e_n = encoding([9, 4], dim)
    t = np.arange(dim // 2)
    omega = 10_000.0 ** (-2 * t / dim)
    terms = (entries[1::2] + entries[::2]) / 2 * np.cos(5 * omega) + (entries[1::2] - entries[::2]) / 2 * np.cos(
        13 * omega
    )
    assert e_m @ np.diag(entries) @ e_n == pytest.approx(terms.sum())
    assert e_m @ np.diag(entries) @ e_n != pytest.approx(terms[1:].sum())


def gram(h, dim=16, count=24):
    e = encoding(np.arange(count), dim)
    return e @ h @ e.T


def test_equal_entries_remove_the_sum_of_positions():
    entries = np.random.default_rng(0).standard_normal(8)
    equal, unequal = np.diag(np.repeat(entries, 2)), np.diag(np.random.default_rng(1).standard_normal(16))
    assert spread_along_diagonals(gram(equal)) < 1e-9
    assert spread_along_diagonals(gram(unequal)) > 0.1
    wanted = (entries * np.cos(5 * 10_000.0 ** (-np.arange(0, 16, 2) / 16))).sum()
    assert gram(equal)[9, 4] == pytest.approx(wanted)


def test_weighted_integral_tends_to_zero():
    def weighted(distance):  # substitute v = B^-u: the weight h is a jump at u = 1/2, plus a slope
        b, ln_b = 100, mp.log(100)
        total = mp.mpf(0)
        for low, high, jump in ((mp.mpf(1) / b, mp.mpf(1) / 10, -1), (mp.mpf(1) / 10, mp.mpf(1), 1)):
            pieces = mp.linspace(low, high, 12 + int(distance * (high - low) / 12))
            total += mp.quad(lambda v, jump=jump: (jump - mp.log(v) / ln_b) * mp.expj(distance * v) / v, pieces)
        return abs(total / ln_b)

    sizes = [float(max(weighted(x), weighted(1.1 * x))) for x in (1, 30, 900)]
    assert sizes[0] > 2 * sizes[1] > 8 * sizes[2]
    assert sizes[2] < 0.05


def test_weights_can_remove_the_decay():
    one_pair = np.zeros(16)
    one_pair[6:8] = 1.0
    values = gram(np.diag(one_pair), count=3000)[0]
    assert values[2000:].max() > 0.999  # cos(0.0316 distance) keeps its amplitude
    slow_minus_fast = np.repeat([-1.0, -1, -1, -1, 1, 1, 1, 1], 2)
    values = gram(np.diag(slow_minus_fast), count=40)[0]
    assert values[20:].mean() > values[0] + 2  # it grows with the distance


def test_which_hessian_keeps_the_relative_property():
    rng = np.random.default_rng(0)
    dim, turn = 6, np.array([[0.0, -1.0], [1.0, 0.0]])
    commuting = np.zeros((dim, dim))
    for t in range(dim // 2):
        a, b = rng.standard_normal(2)
        commuting[2 * t : 2 * t + 2, 2 * t : 2 * t + 2] = a * np.eye(2) + b * turn
    assert np.abs(commuting - np.diag(np.diag(commuting))).max() > 0.1  # not diagonal
    assert spread_along_diagonals(gram(commuting, dim)) < 1e-9
    assert spread_along_diagonals(gram(np.diag(rng.standard_normal(dim)), dim)) > 0.1
    # nothing else does: H -> differences along the diagonals is linear; its kernel has dimension d = 2 (d/2)
    rows = []
    for entry in range(dim * dim):
        h = np.zeros(dim * dim)
        h[entry] = 1
        g = gram(h.reshape(dim, dim), dim, count=400)
        rows.append((g[1:, 1:] - g[:-1, :-1])[::7, ::5].ravel())
    singular = np.linalg.svd(np.array(rows), compute_uv=False)
    assert (singular < 1e-9 * singular[0]).sum() == dim


def test_dominant_diagonal():
    rng = np.random.default_rng(0)
    dim = 16
    off = 0.01 * rng.standard_normal((dim, dim)) * (1 - np.eye(dim))
    bound = np.linalg.norm(off, 2) * dim / 2
    diagonal = np.diag(rng.uniform(0.5, 1.5, dim))
    assert 0 < np.abs(gram(diagonal + off) - gram(diagonal)).max() <= bound
    equal = np.diag(np.repeat(rng.uniform(0.5, 1.5, dim // 2), 2))
    assert spread_along_diagonals(gram(equal + off)) <= 2 * bound
    assert spread_along_diagonals(gram(diagonal + off)) > 0.3  # what is kept is the diagonal case, m + n included
    # dominance entry by entry is not enough
    one_sign = 0.1 * (1 - np.eye(128))
    assert np.linalg.norm(one_sign, 2) == pytest.approx(12.7)
    change = gram(one_sign, dim=128)
    assert np.abs(change).max() > np.abs(gram(np.eye(128), dim=128)).max()


def test_covariance_does_not_determine_the_hessian():
    dense = torch.randn(DIM, DIM, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    x = torch.randn(2, DIM, generator=torch.Generator().manual_seed(4), dtype=torch.float64)  # covariance I
    for a in (torch.eye(DIM, dtype=torch.float64), dense):

        def f(x_m, x_n, a=a):
            return x_m @ a @ x_n

        torch.testing.assert_close(jacrev(jacrev(f, 0), 1)(x[0], x[1]), a)
    off = dense - torch.diag(dense.diag())
    assert off.abs().max() > dense.diag().abs().mean()


def test_correlation_of_attention_is_not_the_hessian():
    w_q, w_k, w_v = random_attention(DIM)
    x = torch.randn(SEQ, DIM, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    readout = torch.randn(DIM, generator=torch.Generator().manual_seed(6), dtype=torch.float64)

    def correlation_and_hessian(value_weights):
        weights = [w_q, w_k, value_weights]

        def f(x_m, x_n):
            y = torch.cat((x[:M], x_m[None], x[M + 1 : N], x_n[None], x[N + 1 :]))
            return attend(y, weights).mean(0) @ readout

        attention = ((x @ w_q) @ (x @ w_k).T / DIM**0.5).softmax(-1)
        return torch.corrcoef(attention), jacrev(jacrev(f, 0), 1)(x[M], x[N])

    one, two = correlation_and_hessian(w_v), correlation_and_hessian(w_v.roll(1, 0))
    assert one[0].shape == (SEQ, SEQ)
    assert one[1].shape == (DIM, DIM)
    torch.testing.assert_close(one[0], two[0])
    assert (one[1] - two[1]).norm() > 0.5 * one[1].norm()


def test_first_index_of_attentions_is_the_sequence():
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=20, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=8)
    config._attn_implementation = "eager"
    model = BertModel(config).eval()
    with torch.no_grad():
        attentions = model(torch.arange(14).view(2, 7), output_attentions=True).attentions
    assert attentions[0].shape == (2, 3, 7, 7)  # layers, then batch, heads, length, length
    assert attentions[0][0].shape == (3, 7, 7)  # one sequence, all heads


def test_diagonal_of_a_correlation_matrix_is_one():
    attention = torch.randn(3 * 7, 7, generator=torch.Generator().manual_seed(0)).softmax(-1)
    correlation = torch.corrcoef(attention)
    torch.testing.assert_close(correlation.diag(), torch.ones(21))
    assert correlation.diag().abs().mean() > 0.82 + 0.1


def test_entries_off_the_diagonal_need_not_mix():
    """Blocks I + 0.38 J: the score depends on the difference of positions alone, and still falls."""
    dim = 128
    block = np.array([[1, -0.38], [0.38, 1]])
    hessian = np.kron(np.eye(dim // 2), block)
    rows = encoding(np.arange(200), dim)
    scores = rows @ hessian @ rows.T / (dim / 2)
    assert np.abs(hessian - np.diag(np.diag(hessian))).max() == 0.38
    assert is_toeplitz(scores)
    assert scores[0, 0] == pytest.approx(1)
    assert scores[64:129, 0].mean() < 0.7
    assert scores[0, 64:129].mean() < 0.7
