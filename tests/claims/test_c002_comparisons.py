"""Document 002, sections 4.3 to 4.7: comparisons, and reasons given for failing at greater lengths."""

import numpy as np
import pytest
import torch
from claim_tools import attend, encoding, fit_distances, frequencies, kernel, random_attention, rms
from torch import nn


def test_parameters_of_berts_table():
    from transformers import BertConfig

    config = BertConfig()
    assert config.max_position_embeddings * config.hidden_size == 393_216


def test_memory_of_stored_and_learned_tables():
    def megabytes(tensors):
        return sum(x.numel() * x.element_size() for x in tensors) / 1e6

    learned = nn.Embedding(512, 768)
    optimiser = torch.optim.Adam(learned.parameters())
    learned(torch.arange(512)).sum().backward()
    optimiser.step()
    moments = [x for x in optimiser.state[learned.weight].values() if x.numel() > 1]
    assert len(moments) == 2
    assert megabytes([learned.weight, learned.weight.grad, *moments]) == pytest.approx(6.3, abs=0.05)
    stored = nn.Module()
    stored.register_buffer("table", torch.zeros(512, 768))
    assert not list(stored.parameters())
    assert megabytes(stored.state_dict().values()) == pytest.approx(1.6, abs=0.05)
    assert megabytes(learned.state_dict().values()) == megabytes(stored.state_dict().values())
    stored.register_buffer("table", torch.zeros(1, 5000, 512))  # the document's default
    assert megabytes(stored.state_dict().values()) == pytest.approx(10.2, abs=0.05)


def test_small_base_resolves_short_distances_better():
    falls = {}
    for base in (100.0, 1e4):
        values = kernel([1, 10], 512, base)
        falls[base] = values[0] - values[1]
    assert falls[100.0] == pytest.approx(0.58, abs=0.01)
    assert falls[1e4] == pytest.approx(0.29, abs=0.01)
    assert 2 * np.pi / frequencies(512, 100.0)[-1] == pytest.approx(617, abs=1)


def test_shuffle_code_does_not_run():
    table = encoding(np.arange(8), 8)
    with pytest.raises(IndexError):
        table[:, [1, 0, 3, 2, 5, 4, ...]]
    order = np.arange(8).reshape(4, 2)[:, ::-1].ravel()  # what was meant
    np.testing.assert_array_equal(table[:, order][:, 0::2], table[:, 1::2])


def test_training_does_not_see_the_order_of_channels():
    dim, seq, steps = 8, 6, 50
    order = torch.arange(dim).view(-1, 2).flip(1).flatten()  # sine and cosine change places
    generator = torch.Generator().manual_seed(0)
    words = torch.randn(32, seq, dim, generator=generator, dtype=torch.float64)
    targets = torch.randn(32, seq, dim, generator=generator, dtype=torch.float64)
    positions = torch.from_numpy(encoding(np.arange(seq), dim))

    def train(channels):
        weights = [w[channels].clone().requires_grad_() for w in random_attention(dim)]  # rows follow the channels
        optimiser = torch.optim.Adam(weights, lr=0.01)
        losses = []
        for _ in range(steps):
            x = (words + positions)[..., channels]
            scores = (x @ weights[0]) @ (x @ weights[1]).mT / dim**0.5
            loss = (scores.softmax(-1) @ (x @ weights[2]) - targets).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        return losses

    plain, swapped = train(torch.arange(dim)), train(order)
    assert plain[-1] < 0.9 * plain[0]
    np.testing.assert_allclose(swapped, plain, rtol=1e-6)


def test_score_fitted_at_512_fails_at_2048():
    dim, seen, unseen = 64, np.arange(512), np.arange(512, 2048)
    coefficients = fit_distances(-seen / 160, seen, dim)
    # as a form e_m^T A e_n: block a I + b J in every pair gives a cos + b sin of the distance
    form = np.zeros((dim, dim))
    for t in range(dim // 2):
        b, a = coefficients[2 * t : 2 * t + 2]
        form[2 * t : 2 * t + 2, 2 * t : 2 * t + 2] = [[a, b], [-b, a]]
    start = encoding(0, dim)
    assert rms(encoding(seen, dim) @ form @ start + seen / 160) < 0.01
    assert rms(encoding(unseen, dim) @ form @ start + unseen / 160) > 1


def test_unfinished_periods_are_not_aliasing():
    assert frequencies(512).max() == 1 < np.pi
    assert (2 * np.pi / frequencies(512) > 512).sum() == 133


def test_fast_channels_do_not_saturate():
    dim = 64
    omega = frequencies(dim)
    for start in (0, 512, 100_000):
        positions = np.arange(start, start + 512)
        angles = positions[:, None] * omega
        derivative = np.stack((omega * np.cos(angles), -omega * np.sin(angles)), -1)
        np.testing.assert_allclose(np.linalg.norm(derivative, axis=-1), np.tile(omega, (512, 1)), rtol=1e-9)
    x = torch.randn(3, dim, requires_grad=True, dtype=torch.float64)
    for start in (0, 100_000):
        added = torch.from_numpy(encoding(np.arange(start, start + 3), dim))
        (gradient,) = torch.autograd.grad((x + added).sum(), x)
        assert torch.equal(gradient, torch.ones_like(x))


def entropies(count, samples=100):
    scores = np.random.default_rng(0).standard_normal((samples, count))
    weights = np.exp(scores)
    weights /= weights.sum(1, keepdims=True)
    return -(weights * np.log(weights)).sum(1)


def test_entropy_grows_with_length():
    means = [entropies(count).mean() for count in (64, 512, 4096)]
    np.testing.assert_allclose(means, [3.7, 5.7, 7.8], atol=0.06)
    np.testing.assert_allclose(means, np.log([64, 512, 4096]) - 0.5, atol=0.06)


def test_growing_entropy_is_not_collapse():
    largest = []
    for count in (64, 512, 4096):
        scores = np.random.default_rng(0).standard_normal((100, count))
        weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        largest.append(weights.max(1).mean())
    assert largest[0] > largest[1] > largest[2]  # weight spreads, where collapse would gather it on one key
    assert entropies(4096).min() > 7
    x = 30 * torch.randn(6, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    w_q, _, _ = random_attention(8)
    collapsed = ((x @ w_q) @ (x @ w_q).T).softmax(-1)  # collapse looks like this: one weight is 1, the entropy 0
    assert collapsed.max(1).values.min() > 0.999
    assert torch.isfinite(attend(x, random_attention(8))).all()
