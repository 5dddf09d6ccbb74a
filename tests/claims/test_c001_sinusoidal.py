"""Document 001, the section on the sinusoidal encoding."""

import mpmath as mp
import numpy as np
import pytest
import torch
from claim_tools import B, encoding, frequencies, is_toeplitz, rotation, spread_along_diagonals, turn

import rope_lessons as rl


def test_positions_enter_the_values():
    token = torch.randn(8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    w_v = torch.randn(8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = token.expand(5, 8)  # one token five times
    added = x + torch.from_numpy(encoding(np.arange(5), 8))
    values = added @ w_v
    assert (values[0] - values[3]).abs().max() > 0.1  # each value tells its position
    torch.testing.assert_close(values - x @ w_v, torch.from_numpy(encoding(np.arange(5), 8)) @ w_v)
    assert torch.equal((x @ w_v)[0], (x @ w_v)[3])  # with RoPE the values are these


def test_definition_to_fifty_digits():
    with mp.workdps(50):
        for m in (1, 4096, 1_000_003):
            row = rl.sinusoidal_encoding(torch.tensor(m), 32)
            for t in range(16):
                angle = m / mp.mpf(10_000) ** (mp.mpf(2 * t) / 32)
                assert float(row[2 * t]) == pytest.approx(float(mp.sin(angle)), abs=6e-8)
                assert float(row[2 * t + 1]) == pytest.approx(float(mp.cos(angle)), abs=6e-8)


def test_frequencies_fall_with_the_channel():
    for dim in (8, 128):
        omega = rl.rope_frequencies(dim).numpy()
        assert len(set(omega)) == dim // 2
        np.testing.assert_allclose(omega[:-1] / omega[1:], B ** (2 / dim))
        assert (np.diff(2 * np.pi / omega) > 0).all()


def test_shift_is_a_linear_map():
    dim, k = 16, 5
    e = encoding(np.arange(200), dim)
    fitted, *_ = np.linalg.lstsq(e[:100], e[k : 100 + k], rcond=None)  # one matrix for all positions
    np.testing.assert_allclose(e[100 : 200 - k] @ fitted, e[100 + k :], atol=1e-4)
    for t, omega in enumerate(frequencies(dim)):
        pair = e[:, 2 * t : 2 * t + 2]
        np.testing.assert_allclose(pair[:-k] @ turn(k * omega), pair[k:], atol=1e-9)  # sine first: the transpose


def test_bert_adds_positions_once():
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=20, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=8)
    model, calls = BertModel(config).eval(), []
    model.embeddings.position_embeddings.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        model(torch.arange(7)[None])
    assert len(calls) == 1
    tables = [name for name, module in model.named_modules() if "position_embeddings" in name]
    assert tables == ["embeddings.position_embeddings"]


def scores(matrices, seed=0):
    q, k = np.random.default_rng(seed).standard_normal((2, matrices.shape[-1]))
    return (matrices @ q) @ (matrices @ k).T


def test_dense_rotation_is_pairs_in_another_basis():
    rng = np.random.default_rng(0)
    dim = 6
    half = rng.standard_normal((dim, dim))
    generator = torch.from_numpy((half - half.T) / 4)
    dense = np.stack([torch.linalg.matrix_exp(m * generator).numpy() for m in range(12)])
    assert (np.abs(dense[1]) > 1e-3).mean() > 0.9
    assert is_toeplitz(scores(dense))
    # the eigenvalues of the generator are +-i times three frequencies: three pairs, in the basis of its eigenvectors
    angles = np.sort(np.linalg.eigvals(generator.numpy()).imag)
    np.testing.assert_allclose(angles[:3], -angles[:2:-1], atol=1e-12)
    values, vectors = np.linalg.eig(generator.numpy())
    upper = vectors[:, values.imag > 0]
    basis = np.sqrt(2) * np.concatenate([np.stack((v.real, v.imag)) for v in upper.T])  # rows: an orthonormal basis
    np.testing.assert_allclose(basis @ basis.T, np.eye(dim), atol=1e-9)
    in_pairs = basis @ dense[1] @ basis.T
    for t in range(3):
        in_pairs[2 * t : 2 * t + 2, 2 * t : 2 * t + 2] = 0
    np.testing.assert_allclose(in_pairs, 0, atol=1e-9)
    # an arbitrary rotation at each position is not relative
    arbitrary = np.stack([np.linalg.qr(rng.standard_normal((dim, dim)))[0] for _ in range(12)])
    assert spread_along_diagonals(scores(arbitrary)) > 0.5


def test_dense_rotation_costs_more():
    dim = 128
    used = (rotation(3, dim) != 0).sum()
    assert used == 2 * dim
    assert dim * dim / used == 64


def test_several_granularities_separate_positions():
    dim = 64
    e = encoding(np.arange(10_000), dim)
    fast, slow = e[:, :2], e[:, -2:]
    assert np.linalg.norm(fast[44] - fast[0]) == pytest.approx(0.018, abs=5e-4)
    assert np.linalg.norm(slow[1] - slow[0]) == pytest.approx(1.3e-4, abs=1e-5)
    distances = np.linalg.norm(e - e[0], axis=1)  # it depends on the distance only, so row 0 stands for all
    assert distances[1:].min() == distances[1]
    np.testing.assert_allclose(frequencies(dim)[:-1] / frequencies(dim)[1:], B ** (2 / dim))
