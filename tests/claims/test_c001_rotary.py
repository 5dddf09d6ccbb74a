"""Document 001, the section on RoPE and its box."""

import numpy as np
import pytest
import torch
from claim_tools import B, encoding, frequencies, is_toeplitz, kernel, rotation, spread_along_diagonals, turn

import rope_lessons as rl

COUNT = 12


def score_matrix(f, q, k):
    return np.array([[f(q, m) @ f(k, n) for n in range(COUNT)] for m in range(COUNT)])


def test_rotation_is_one_solution():
    q, k = np.array([1.0, 0.2]), np.array([-0.3, 1.0])
    fixed = np.random.default_rng(0).standard_normal((2, 2))
    mirror = np.diag([1.0, -1.0])
    solutions = [
        lambda x, m: turn(0.7 * m) @ x,
        lambda x, m: turn(-0.7 * m) @ x,
        lambda x, m: turn(0.7 * m) @ fixed @ x,
        lambda x, m: np.linalg.matrix_power(mirror, m) @ x,
    ]
    results = [score_matrix(f, q, k) for f in solutions]
    for result in results:
        assert is_toeplitz(result)
    assert min(np.abs(a - b).max() for i, a in enumerate(results) for b in results[:i]) > 0.1
    stretched = score_matrix(lambda x, m: (1 + 0.1 * m) * turn(0.7 * m) @ x, q, k)
    assert spread_along_diagonals(stretched) > 0.1


def test_only_the_turning_channels_are_even():
    with pytest.raises(ValueError, match="dim"):
        rl.rope_frequencies(5)
    q, k = torch.randn(2, 1, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def turned(x, position):  # four channels turn, the fifth passes
        omega = rl.rope_frequencies(4)
        return rl.apply_rotary(x, torch.tensor([position]), omega, layout="interleaved")[0].numpy()

    assert turned(q, 3)[4] == q[0, 4]
    assert is_toeplitz(score_matrix(turned, q, k))


def test_identity_and_its_sign():
    q, k = np.random.default_rng(0).standard_normal((2, 8))
    for m, n in ((7, 3), (3, 7), (5, 5)):
        score = (rotation(m, 8) @ q) @ (rotation(n, 8) @ k)
        assert score == pytest.approx(q @ rotation(n - m, 8) @ k)
        assert score == pytest.approx(q @ rotation(m - n, 8).T @ k)
        if m != n:
            assert abs(score - q @ rotation(m - n, 8) @ k) > 0.1  # the wrong sign


def test_additive_and_multiplicative():
    x, y = torch.randn(2, 1, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    position, omega = torch.tensor([9]), rl.rope_frequencies(16)
    added = rl.sinusoidal_encoding(position, 16, dtype=torch.float64)

    def turned(v):
        return rl.apply_rotary(v, position, omega, layout="interleaved")

    torch.testing.assert_close(turned(2 * x + y), 2 * turned(x) + turned(y))
    torch.testing.assert_close(turned(x).norm(), x.norm())
    assert ((2 * x + y) + added - 2 * (x + added) - (y + added)).abs().max() > 0.5
    assert ((x + added).norm() - x.norm()).abs() > 0.1
    sines, cosines = added[0, 0::2], added[0, 1::2]  # the same angles make both
    one = torch.tensor([[1.0, 0.0]], dtype=torch.float64).repeat(1, 8)
    torch.testing.assert_close(turned(one)[0, 0::2], cosines)
    torch.testing.assert_close(turned(one)[0, 1::2], sines)


def test_decay_of_the_kernel_and_not_of_every_score():
    dim, distances = 128, np.arange(400)
    turned = np.stack([rotation(x, dim) for x in distances])
    ones = np.ones(dim)
    same = (turned @ ones) @ ones
    np.testing.assert_allclose(same / dim, kernel(distances, dim), atol=1e-9)
    assert same[300:].mean() < 0.5 * same[:10].mean()
    k = np.random.default_rng(0).standard_normal(dim)
    q = rotation(-100, dim) @ k
    assert ((turned @ q) @ k).argmax() == 100
    qs, ks = np.random.default_rng(1).standard_normal((2, 4000, dim))
    for distance in (0, 10, 300):
        products = ((qs @ turned[distance].T) * ks).sum(1)
        assert abs(products.mean()) < 4 * np.sqrt(dim / 4000)  # four standard errors around 0
        assert products.std() == pytest.approx(np.sqrt(dim), rel=0.05)  # and no smaller far away


def test_share_of_zeros_in_the_matrix():
    matrix = rotation(3, 128)
    assert (matrix != 0).sum() == 2 * 128
    assert (matrix == 0).mean() > 0.98


def test_sparse_form():
    dim, m = 16, 9
    q = np.random.default_rng(0).standard_normal(dim)
    angles = np.repeat(m * frequencies(dim), 2)
    partner = np.stack((-q[1::2], q[0::2]), -1).ravel()
    sparse = q * np.cos(angles) + partner * np.sin(angles)
    np.testing.assert_allclose(sparse, rotation(m, dim) @ q)
    package = rl.apply_rotary(
        torch.from_numpy(q)[None], torch.tensor([m]), rl.rope_frequencies(dim), layout="interleaved"
    )
    np.testing.assert_allclose(sparse, package[0].numpy())
    half = rl.apply_rotary(torch.from_numpy(q)[None], torch.tensor([m]), rl.rope_frequencies(dim), layout="half")
    assert np.abs(sparse - half[0].numpy()).max() > 0.1


def test_rotation_in_every_layer(monkeypatch):
    from transformers import LlamaConfig, LlamaModel, SmolLM3Config
    from transformers.models.llama import modeling_llama

    original, calls = modeling_llama.apply_rotary_pos_emb, []

    def counting(*args, **kwargs):
        calls.append(1)
        return original(*args, **kwargs)

    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", counting)
    config = LlamaConfig(
        vocab_size=20, hidden_size=16, intermediate_size=16, num_hidden_layers=3, num_attention_heads=2
    )
    with torch.no_grad():
        LlamaModel(config).eval()(torch.arange(7)[None])
    assert len(calls) == 3
    assert SmolLM3Config().no_rope_layers[:8] == [1, 1, 1, 0, 1, 1, 1, 0]  # 0: no RoPE in this layer


def test_index_counts_pairs():
    dim = 128
    as_component = B ** (-2 * np.arange(dim) / dim)
    assert as_component[-1] < 1.2e-8
    as_pair = B ** (-2 * np.arange(dim // 2) / dim)
    np.testing.assert_allclose(rl.rope_frequencies(dim).numpy(), as_pair)


def test_default_base_of_some_models():
    from transformers import GPTNeoXConfig, LlamaConfig, MistralConfig, Qwen2Config, SmolLM3Config

    for config in (GPTNeoXConfig, LlamaConfig, MistralConfig, Qwen2Config):
        assert config().rope_parameters["rope_theta"] == 10_000
    assert SmolLM3Config().rope_parameters["rope_theta"] == 2_000_000


def test_direction_and_end_of_the_frequencies():
    omega = rl.rope_frequencies(128).numpy()
    assert (np.diff(omega) < 0).all()
    assert omega[0] == 1
    assert omega[-1] == pytest.approx(B ** (-126 / 128))
    assert omega[-1] == pytest.approx(1.15e-4, abs=5e-7)


def test_periods_of_low_and_high_channels():
    periods = 2 * np.pi / rl.rope_frequencies(128).numpy()
    assert periods[0] == pytest.approx(6.28, abs=0.005)
    assert periods[-1] == pytest.approx(54_410, abs=1)
    assert (np.diff(periods) > 0).all()


def test_each_pair_stays_on_its_circle():
    pairs = encoding(np.arange(100_000), 8).reshape(-1, 4, 2)
    np.testing.assert_allclose(np.linalg.norm(pairs, axis=-1), 1)
    steps = np.angle(np.exp(1j * np.diff(np.arctan2(pairs[..., 0], pairs[..., 1]), axis=0)))
    np.testing.assert_allclose(steps, np.tile(frequencies(8), (len(steps), 1)), atol=1e-9)
    assert kernel(np.arange(1, 15_000), 8).max() < 1 - 1e-5  # and the vector has not been where it was
