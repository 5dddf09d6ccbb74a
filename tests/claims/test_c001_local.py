"""Document 001, the sections on ALiBi and window truncation. Chapter 07."""

import math

import numpy as np
import pytest
import torch
from claim_tools import byte_model, score_bytes

import rope_lessons as rl


def tiny_bloom(heads: int = 4, head_dim: int = 8):
    from transformers import BloomConfig, BloomModel

    torch.manual_seed(0)
    config = BloomConfig(vocab_size=30, hidden_size=heads * head_dim, n_layer=1, n_head=heads)
    model = BloomModel._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        model.h[0].self_attention.query_key_value.weight.normal_(std=0.5)
    return model


def first_attention(model, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The weights of the first layer, and the queries and keys that made them, each (1, heads, seq, …)."""
    caught = {}
    attention = model.h[0].self_attention
    hook = attention.query_key_value.register_forward_hook(lambda _module, _inputs, out: caught.update(fused=out))
    with torch.no_grad():
        weights = model(tokens, output_attentions=True).attentions[0]
    hook.remove()
    q, k, _ = attention._reshape(caught["fused"])
    return weights, q, k


def alibi_weights(q: torch.Tensor, k: torch.Tensor, slopes: torch.Tensor, divisor: float) -> torch.Tensor:
    """softmax(q k / divisor - slope (i - j)) under a causal mask, written from the formula."""
    position = torch.arange(q.shape[2])
    distance = position[:, None] - position
    scores = q @ k.mT / divisor - slopes[:, None, None] * distance
    return scores.masked_fill(distance < 0, -torch.inf).softmax(-1)


def test_alibi_adds_a_penalty_to_the_scores_alone():
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 4, 20, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    expected = alibi_weights(q, k, rl.alibi_slopes(4), math.sqrt(8)) @ v
    torch.testing.assert_close(rl.attention(q, k, v, rl.scheme("alibi")), expected)
    assert (rl.attention(q, k, v, rl.scheme("nope")) - expected).abs().max() > 0.1


def test_bloom_uses_alibi():
    """transformers' Bloom has no parameter for positions; its weights are those of the formula, penalty included."""
    model = tiny_bloom()
    assert not [name for name, _ in model.named_parameters() if "position" in name or "wpe" in name]
    weights, q, k = first_attention(model, torch.arange(12)[None])
    slopes = rl.alibi_slopes(4).float()
    torch.testing.assert_close(weights, alibi_weights(q, k, slopes, math.sqrt(8)), atol=1e-5, rtol=1e-4)
    assert (weights - alibi_weights(q, k, 0 * slopes, math.sqrt(8))).abs().max() > 0.1


def test_alibi_scores_are_divided_and_the_penalty_is_not():
    model = tiny_bloom()
    weights, q, k = first_attention(model, torch.arange(12)[None])
    slopes = rl.alibi_slopes(4).float()
    for scores_by, slope, right in ((math.sqrt(8), 1.0, True), (1.0, 1.0, False), (math.sqrt(8), 8**-0.5, False)):
        error = (weights - alibi_weights(q, k, slope * slopes, scores_by)).abs().max()
        assert bool(error < 1e-4) is right


def test_slopes_of_eight_and_sixteen_heads():
    """2^-1 … 2^-8 and 2^-0.5 … 2^-8. For 12 heads BLOOM's code does not follow 2^(-8h/n)."""
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    def bloom(heads: int) -> np.ndarray:
        bias = build_alibi_tensor(torch.ones(1, 2, dtype=torch.int64), heads, torch.float32)
        return bias[:, 0, 1].numpy()

    def formula(heads: int) -> np.ndarray:
        return 2.0 ** (-8 * np.arange(1, heads + 1) / heads)

    np.testing.assert_allclose(formula(8), 2.0 ** -np.arange(1, 9))
    np.testing.assert_allclose(formula(16)[[0, 1, -1]], (2**-0.5, 2**-1, 2**-8))
    for heads in (8, 16, 32):
        np.testing.assert_allclose(bloom(heads), formula(heads), rtol=1e-5)
    assert np.abs(np.sort(bloom(12)) - np.sort(formula(12))).max() > 0.05
    np.testing.assert_allclose(np.sort(bloom(12)), np.sort(np.r_[formula(8), formula(16)[:8:2]]), rtol=1e-5)


def test_smaller_slope_sees_farther():
    """Equal scores: the distance within which a head puts nine tenths of its weight, for each of the eight slopes."""
    reach = []
    for slope in 2.0 ** -np.arange(1, 9):
        weights = np.exp(-slope * np.arange(8192))
        reach.append(int(np.searchsorted(np.cumsum(weights) / weights.sum(), 0.9)) + 1)
    assert (np.diff(reach) > 0).all()
    assert (reach[0], reach[-1]) == (5, 590)


def test_bias_of_bloom_is_one_row_a_head():
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    for length in (64, 512):
        bias = build_alibi_tensor(torch.ones(1, length, dtype=torch.int64), 16, torch.float32)
        assert bias.numel() == 16 * length
    position = torch.arange(64)
    written_out = -(position[:, None] - position) * rl.alibi_slopes(16)[:, None, None]
    assert written_out.numel() == 16 * 64 * 64
    scores = torch.randn(16, 64, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one_row = rl.alibi_slopes(16)[:, None, None] * position
    torch.testing.assert_close((scores + one_row).softmax(-1), (scores + written_out).softmax(-1))


def test_alibi_forgets_at_any_length():
    """Scores within ±1: the weight beyond distance w is at most e^(2 - slope w): for the gentlest slope, far."""
    slope = 2.0**-8
    for length in (512, 4096, 65_536):
        scores = np.random.default_rng(0).uniform(-1, 1, length)
        weights = np.exp(scores - slope * np.arange(length))
        weights /= weights.sum()
        for window in (256, 1024, 2048):
            if window < length:
                assert weights[window:].sum() <= math.exp(2 - slope * window)
        if length == 512:
            assert weights[256:].sum() > 0.2
        else:
            assert weights[2048:].sum() < 1e-3


def test_loss_does_not_tell_what_is_seen():
    """Text: each bit repeats the one before it with 90 %; at the end comes the first bit once more. A reader of one
    byte has the best possible loss at every length, and does not know the answer."""
    rng = np.random.default_rng(0)
    for length in (16, 256):
        keep = rng.random((20_000, length)) < 0.9
        bits = np.cumsum(~keep, axis=1) % 2
        told = np.where(bits[:, 1:] == bits[:, :-1], 0.9, 0.1)  # what the reader of one bit gives the next bit
        loss = -np.log(told).mean()
        assert loss == pytest.approx(-(0.9 * math.log(0.9) + 0.1 * math.log(0.1)), abs=0.01)
        answers = (bits[:, -1] == bits[:, 0]).mean()  # its best guess of the first bit is the last one
        assert answers == pytest.approx((1 + 0.8 ** (length - 1)) / 2, abs=0.02)


def test_window_truncation_on_the_small_model():
    """Two layers, 64 bytes: cut to windows of its training length, or half of it, the model reads 512 as well as 64."""
    for window in (32, 64):
        accuracy, loss = score_bytes(512, rl.scheme("window", dim=64, visible_window=window))
        assert accuracy > score_bytes(64)[0]
        assert loss < score_bytes(64)[1]


def test_first_tokens_of_the_small_model():
    """No sink: its first four bytes get less than an even share, and keeping them at their true distance harms."""
    model, windows = byte_model()
    shares = []

    def attend(q, k, v, scheme):
        position, omega = torch.arange(q.shape[2]), rl.rope_frequencies(64)
        turned_q, turned_k = (rl.apply_rotary(x, position, omega, layout=scheme.layout) for x in (q, k))
        scores = turned_q @ turned_k.mT / 8
        weights = scores.masked_fill(position > position[:, None], -torch.inf).softmax(-1)
        shares.append(weights[:, :, 32:, :4].sum(-1).mean().item())
        return weights @ v

    with torch.no_grad():
        model(windows[:, :512].reshape(-1, 64), attend=attend)
    assert len(shares) == 2
    assert max(shares) < 0.01 < 4 / 64
    kept = score_bytes(512, rl.scheme("lambda", dim=64, visible_window=32, sinks=4))[0]
    cut = score_bytes(512, rl.scheme("window", dim=64, visible_window=32))[0]
    assert kept < cut - 0.02


def test_window_loses_what_is_beyond_its_reach():
    """Two layers of windows of 8: a byte 14 back changes the result, a byte 15 back does not."""
    model, windows = byte_model()
    tokens = windows[:4, :40].clone()
    plan = (rl.scheme("window", dim=64, visible_window=8),) * 2
    reach = rl.local.receptive_field(8, 2)
    assert reach == 15
    with torch.no_grad():
        before = model(tokens, plan)[:, -1]
        for back, seen in ((reach - 1, True), (reach, False)):
            changed = tokens.clone()
            changed[:, -1 - back] = (changed[:, -1 - back] + 1) % 128
            difference = (model(changed, plan)[:, -1] - before).abs().max()
            assert bool(difference > 1e-4) is seen
        full = tokens.clone()
        full[:, 0] = (full[:, 0] + 1) % 128
        assert (model(full)[:, -1] - model(tokens)[:, -1]).abs().max() > 1e-4


def test_loss_falls_with_length_without_any_long_range():
    """Two layers with a window of 16 read 31 bytes. The loss falls all the same: there are fewer beginnings."""
    scheme = rl.scheme("window", dim=64, visible_window=16)
    losses = [score_bytes(length, scheme)[1] for length in (64, 128, 512)]
    assert losses[0] > losses[1] + 0.01 > losses[2] + 0.02
