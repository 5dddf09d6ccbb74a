"""Document 002, sections 1.1, 1.2 and 2.1: what attention sees without positions, and ways to give it positions."""

import numpy as np
import pytest
import torch
from claim_tools import attend, encoding, is_toeplitz, random_attention, rms, spread_along_diagonals, turn
from torch import nn

import rope_lessons as rl

DIM, SEQ = 8, 6


def tokens(seed=1, count=SEQ):
    return torch.randn(count, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_attention_is_not_permutation_invariant():
    x, weights = tokens(), random_attention(DIM)
    order = torch.tensor([3, 1, 4, 0, 5, 2])
    assert not torch.allclose(attend(x[order], weights), attend(x, weights), atol=1e-3)
    torch.testing.assert_close(attend(x[order], weights).mean(0), attend(x, weights).mean(0))  # pooled: invariant


def test_attention_is_permutation_equivariant():
    x, weights = tokens(), random_attention(DIM)
    permutation = torch.eye(SEQ, dtype=torch.float64)[[3, 1, 4, 0, 5, 2]]
    torch.testing.assert_close(attend(permutation @ x, weights), permutation @ attend(x, weights))
    orthogonal = torch.linalg.qr(tokens(2) @ tokens(3).T).Q
    torch.testing.assert_close(orthogonal.T @ orthogonal, torch.eye(SEQ, dtype=torch.float64))
    assert not torch.allclose(attend(orthogonal @ x, weights), orthogonal @ attend(x, weights), atol=1e-3)


@pytest.mark.parametrize(
    ("sentence", "other"),
    [("I love you", "you love I"), ("The cat sat on the mat", "mat the on sat cat The")],
)
def test_reordered_sentence_gives_each_word_the_same_vector(sentence, other):
    words = sorted(set(sentence.split()))
    embeddings = tokens(4, len(words))
    weights, second = random_attention(DIM), random_attention(DIM, seed=5)

    def outputs(text):
        x = torch.stack([embeddings[words.index(word)] for word in text.split()])
        return dict(zip(text.split(), attend(attend(x, weights), second), strict=True))

    one, two = outputs(sentence), outputs(other)
    assert sentence.split() != other.split()
    for word in words:
        torch.testing.assert_close(one[word], two[word])


def test_order_is_lost_without_a_mask_only():
    x, weights, second = tokens(), random_attention(DIM), random_attention(DIM, seed=5)
    swapped = x[[1, 0, 2, 3, 4, 5]]
    last = attend(attend(x, weights), second)[-1]
    torch.testing.assert_close(attend(attend(swapped, weights), second)[-1], last)
    one, one_swapped = attend(x, weights, causal=True), attend(swapped, weights, causal=True)
    torch.testing.assert_close(one[-1], one_swapped[-1])  # one causal layer: the last token sees a set
    two = attend(one, second, causal=True)
    two_swapped = attend(one_swapped, second, causal=True)
    assert (two[-1] - two_swapped[-1]).abs().max() > 1e-3


def test_causal_mask_alone_breaks_the_symmetry():
    x = tokens()[[0, 1, 0, 2, 3, 0]]  # one token at positions 0, 2 and 5
    plain, causal = attend(x, random_attention(DIM)), attend(x, random_attention(DIM), causal=True)
    torch.testing.assert_close(plain[0], plain[2])
    for a, b in ((0, 2), (0, 5), (2, 5)):
        assert (causal[a] - causal[b]).abs().max() > 1e-2


def test_rotation_is_no_addition():
    q = np.array([[1.0, 0.0], [0.0, 1.0]])
    added = q @ turn(1.0).T - q  # the vector that one would have to add, for two queries
    assert np.abs(added[0] - added[1]).max() > 0.5


def test_order_of_the_weights_in_the_score():
    w_q, w_k, _ = (w.numpy() for w in random_attention(DIM))
    x_i, x_j = tokens(6, 2).numpy()
    score = (x_i @ w_q) @ (x_j @ w_k)
    np.testing.assert_allclose(x_i @ (w_q @ w_k.T) @ x_j, score)
    assert abs(x_i @ (w_q.T @ w_k) @ x_j - score) > 0.1


def test_score_splits_into_four_terms():
    w_q, w_k, _ = (w.numpy() for w in random_attention(DIM))
    middle = w_q @ w_k.T
    x_i, x_j, other = tokens(6, 3).numpy()
    e_i, e_j = encoding([3, 7], DIM)
    terms = [x_i @ middle @ x_j, x_i @ middle @ e_j, e_i @ middle @ x_j, e_i @ middle @ e_j]
    np.testing.assert_allclose(sum(terms), ((x_i + e_i) @ w_q) @ ((x_j + e_j) @ w_k))
    # what is left of the other terms when the content changes, and of the last one: nothing
    changed = ((other + e_i) @ w_q) @ ((x_j + e_j) @ w_k) - (other @ middle @ x_j + other @ middle @ e_j)
    np.testing.assert_allclose(changed - e_i @ middle @ x_j, terms[3])


def test_bert_learns_512_positions():
    from transformers import BertConfig, BertModel

    assert BertConfig().max_position_embeddings == 512
    model = BertModel(BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16))
    table = model.embeddings.position_embeddings.weight
    assert table.shape[0] == 512
    assert table.requires_grad


def test_learned_table_can_hold_any_encoding():
    table = nn.Embedding(64, DIM, dtype=torch.float64)
    for wanted in (torch.from_numpy(encoding(np.arange(64), DIM)), tokens(7, 64)):
        with torch.no_grad():
            table.weight.copy_(wanted)
        torch.testing.assert_close(table(torch.arange(64)), wanted)
    # the other way round it does not go: random vectors are no sinusoidal encoding, whatever the base
    best = min(rms(tokens(7, 64).numpy() - encoding(np.arange(64), DIM, base)) for base in (10, 100, 1e4, 1e6))
    assert best > 0.5


def test_learned_table_ends():
    table = nn.Embedding(512, DIM)
    with pytest.raises(IndexError):
        table(torch.tensor([512]))
    table(torch.arange(300)).square().sum().backward()
    assert table.weight.grad[:300].abs().min() > 0
    assert table.weight.grad[300:].abs().max() == 0


def test_learned_table_parameters():
    counts = [sum(p.numel() for p in nn.Embedding(length, DIM).parameters()) for length in (100, 200, 400)]
    assert counts == [100 * DIM, 200 * DIM, 400 * DIM]


def test_learned_table_is_not_tied_to_distance():
    table = nn.Embedding(32, DIM, dtype=torch.float64).weight.detach().numpy()
    assert spread_along_diagonals(table @ table.T) > 1.0
    sinusoidal = encoding(np.arange(32), DIM)
    assert is_toeplitz(sinusoidal @ sinusoidal.T)


def test_definition_of_the_sinusoidal_encoding():
    positions, dim = torch.tensor([0, 1, 17, 511]), 16
    got = rl.sinusoidal_encoding(positions, dim, dtype=torch.float64).numpy()
    for row, m in zip(got, positions.tolist(), strict=True):
        for t in range(dim // 2):
            angle = m / 10_000 ** (2 * t / dim)
            np.testing.assert_allclose(row[2 * t : 2 * t + 2], [np.sin(angle), np.cos(angle)], atol=1e-12)


def test_sinusoidal_encoding_has_no_parameters():
    positions = torch.arange(10)
    first, second = rl.sinusoidal_encoding(positions, DIM), rl.sinusoidal_encoding(positions, DIM)
    assert torch.equal(first, second)
    assert not first.requires_grad


def test_sinusoidal_readout_does_not_extrapolate():
    dim, seen, unseen = 64, np.arange(512), np.arange(512, 2048)
    far = encoding(np.concatenate([seen, unseen]), dim)
    assert np.isfinite(far).all()  # defined at any position
    features = encoding(seen, dim)
    readout = np.linalg.solve(features.T @ features + 1e-6 * np.eye(dim), features.T @ seen)
    assert np.abs(features @ readout - seen).mean() < 0.1
    assert np.abs(encoding(unseen, dim) @ readout - unseen).mean() > 500


def test_shaw_is_relative_but_no_bias():
    w_q, w_k, _ = (w.numpy() for w in random_attention(DIM))
    relative = dict(zip(range(-5, 6), tokens(8, 11).numpy(), strict=True))

    def score(x_i, x_j, i, j):
        return (x_i @ w_q) @ (x_j @ w_k + relative[i - j]) / DIM**0.5

    x_i, x_j, other = tokens(6, 3).numpy()
    np.testing.assert_allclose(score(x_i, x_j, 4, 1), score(x_i, x_j, 5, 2))
    plain = (x_i @ w_q) @ (x_j @ w_k) / DIM**0.5, (other @ w_q) @ (x_j @ w_k) / DIM**0.5
    added = score(x_i, x_j, 4, 1) - plain[0], score(other, x_j, 4, 1) - plain[1]
    assert abs(added[0] - added[1]) > 0.1  # a bias would add the same for both queries


def test_alibi_keeps_the_scale_of_the_scores():
    q, k = tokens(9), tokens(10)
    positions = torch.arange(SEQ)
    bias = -0.5 * (positions[:, None] - positions[None, :]).abs()
    scaled, unscaled = (q @ k.T / DIM**0.5 + bias).softmax(-1), (q @ k.T + bias).softmax(-1)
    assert (scaled - unscaled).abs().max() > 0.1
    # with the scale, dividing the bias as well would be a third thing
    assert (scaled - ((q @ k.T + bias) / DIM**0.5).softmax(-1)).abs().max() > 0.01


def test_pooled_attention_is_symmetric():
    x, weights = tokens(), random_attention(DIM)
    swapped = x[[0, 4, 2, 3, 1, 5]]  # positions 1 and 4 change places
    readout = tokens(11, 1)[0]

    def pooled(y):
        return (torch.tanh(attend(y, weights)) @ readout).sum()

    def first_token(y):
        return torch.tanh(attend(y, weights))[0] @ readout

    torch.testing.assert_close(pooled(x), pooled(swapped))
    torch.testing.assert_close(first_token(x), first_token(swapped))  # it reads token 0, which stayed
    assert (first_token(x) - first_token(x[[1, 0, 2, 3, 4, 5]])).abs() > 1e-3


def test_distinct_vectors_break_the_symmetry():
    x, weights = tokens(), random_attention(DIM)
    swapped = x[[0, 4, 2, 3, 1, 5]]
    added = torch.from_numpy(encoding(np.arange(SEQ), DIM))
    readout = tokens(11, 1)[0]

    def pooled(y):
        return (torch.tanh(attend(y, weights)) @ readout).sum()

    assert (pooled(x + added) - pooled(swapped + added)).abs() > 1e-3
    torch.testing.assert_close(pooled(x + added[0]), pooled(swapped + added[0]))  # one vector for all: still symmetric
    torch.testing.assert_close((x + added).sum(0) @ readout, (swapped + added).sum(0) @ readout)  # linear: still so
