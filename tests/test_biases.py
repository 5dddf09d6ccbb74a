"""The other biases: each against its paper's formula in plain loops, and against a peer where there is one."""

import math

import pytest
import torch
from rotary_embedding_torch import RotaryEmbedding
from torch import nn
from transformers.models.t5.modeling_t5 import T5Attention

import rope_lessons as rl
from rope_lessons import biases

FAR = torch.cat((torch.arange(-300, 300), torch.tensor([-(10**6), 10**6])))
LENGTHS = [(1, 1), (3, 3), (5, 9), (1, 9)]


def filled(heads, q_len, k_len, formula):
    """A bias written out: ``formula(head, m, n)``, the query last of the tokens."""
    out = torch.empty(heads, q_len, k_len, dtype=torch.float64)
    for head in range(heads):
        for row in range(q_len):
            for n in range(k_len):
                out[head, row, n] = formula(head, k_len - q_len + row, n)
    return out


def test_distances():
    assert torch.equal(biases.distances(4), torch.arange(4)[:, None] - torch.arange(4))
    assert torch.equal(biases.distances(2, 4), biases.distances(4)[2:])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (16, 64), (8, 1000), (64, 65)])
def test_buckets_are_those_of_t5(buckets, farthest, causal):
    theirs = T5Attention._relative_position_bucket(-FAR, not causal, buckets, farthest)
    assert torch.equal(biases.t5_buckets(FAR, buckets=buckets, farthest=farthest, causal=causal), theirs)


@pytest.mark.parametrize(("q_len", "k_len"), LENGTHS)
def test_t5_bias(q_len, k_len):
    table = torch.randn(8, 3, dtype=torch.float64)
    found = biases.t5_bias(biases.distances(q_len, k_len), table, farthest=6)
    wanted = filled(
        3, q_len, k_len, lambda h, m, n: table[biases.t5_buckets(torch.tensor(m - n), buckets=8, farthest=6), h]
    )
    assert torch.equal(found, wanted)


@pytest.mark.parametrize(("q_len", "k_len"), LENGTHS)
def test_shaw_bias(q_len, k_len):
    """Equation 4 of the paper: the query with the key's vector and with that of the distance, over the root of d."""
    q, k = torch.randn(2, 3, q_len, 4), torch.randn(2, 3, k_len, 4)
    table = torch.randn(5, 4)
    found = biases.shaw_bias(q, table, biases.distances(q_len, k_len))
    for row in range(q_len):
        for n in range(k_len):
            vector = table[max(-2, min(2, n - (k_len - q_len + row))) + 2]
            whole = (q[:, :, row] * (k[:, :, n] + vector)).sum(-1) / 2
            own = (q[:, :, row] * k[:, :, n]).sum(-1) / 2 + found[:, :, row, n]
            torch.testing.assert_close(own, whole, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("q_len", "k_len"), LENGTHS)
def test_kerple(q_len, k_len):
    amount, other = torch.rand(2, 3, dtype=torch.float64) + 0.1
    distance = biases.distances(q_len, k_len)
    wanted = filled(3, q_len, k_len, lambda h, m, n: -amount[h] * math.log(1 + other[h] * abs(m - n)))
    torch.testing.assert_close(biases.kerple_log_bias(distance, amount, other), wanted)
    wanted = filled(3, q_len, k_len, lambda h, m, n: -amount[h] * float(abs(m - n)) ** other[h])
    torch.testing.assert_close(biases.kerple_power_bias(distance, amount, other), wanted)


def test_kerple_learns():
    amount, other = (torch.rand(2, 2, dtype=torch.float64) + 0.5).requires_grad_().unbind()
    for bias in (biases.kerple_log_bias, biases.kerple_power_bias):
        torch.autograd.gradcheck(lambda a, b, bias=bias: bias(biases.distances(4), a, b), (amount, other))


def test_the_power_one_is_alibi():
    q, k, v = torch.randn(3, 2, 4, 9, 8)
    slopes = rl.alibi_slopes(4).float()
    bias = biases.kerple_power_bias(biases.distances(9), slopes, torch.ones(4))
    found = rl.attention(q, k, v, rl.scheme("nope"), bias=bias)
    torch.testing.assert_close(found, rl.attention(q, k, v, rl.scheme("alibi")), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("q_len", "k_len"), LENGTHS)
def test_sandwich(q_len, k_len):
    """The sum of the products of two sinusoidal vectors, less that of a vector with itself."""
    dim, heads = 16, 3

    def vector(m):
        angles = [m / 10_000 ** (2 * i / dim) for i in range(1, dim // 2 + 1)]
        return torch.tensor([f(a) for a in angles for f in (math.sin, math.cos)], dtype=torch.float64)

    wanted = filled(
        heads, q_len, k_len, lambda h, m, n: (vector(m) @ vector(n) - dim / 2) / (8 * (h + 1) / heads)
    )  # fmt: skip
    found = biases.sandwich_bias(biases.distances(q_len, k_len), heads, dim=dim)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("q_len", "k_len"), LENGTHS)
@pytest.mark.parametrize("threshold", [2.0, 100.0])
def test_fire(q_len, k_len, threshold):
    mlp = nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, 2))

    def formula(head, m, n):
        psi = [math.log(0.1 * x + 1) for x in (abs(m - n), max(m, threshold))]
        return mlp(torch.tensor([psi[0] / psi[1]]))[head].item()

    found = biases.fire_bias(biases.distances(q_len, k_len), mlp, rate=0.1, threshold=threshold)
    torch.testing.assert_close(found.double(), filled(2, q_len, k_len, formula), rtol=0, atol=1e-6)


def test_fire_learns_its_two_numbers():
    rate, threshold = torch.tensor(0.1, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    biases.fire_bias(biases.distances(5), nn.Linear(1, 2), rate=rate, threshold=threshold).square().sum().backward()
    assert rate.grad != 0
    assert threshold.grad != 0


@pytest.mark.parametrize("layout", rl.rotary.LAYOUTS)
def test_xpos(layout):
    """Each pair of the score is RoPE's, times zeta to the distance over 512."""
    torch.manual_seed(0)
    positions = torch.tensor([0, 3, 700, 2000])
    frequencies = rl.rope_frequencies(8)
    q, k = torch.randn(2, 4, 10, dtype=torch.float64)
    own_q, own_k = biases.apply_xpos(q, k, positions, frequencies, layout=layout)
    plain_q, plain_k = (rl.apply_rotary(x, positions, frequencies, layout=layout) for x in (q, k))
    products = plain_q[:, None] * plain_k[None]
    split = products[..., :8].unflatten(-1, (4, 2) if layout == "interleaved" else (2, 4))
    pairs = split.sum(-1 if layout == "interleaved" else -2)  # (4, 4, pairs)
    zeta = torch.tensor([(2 * t / 8 + 0.4) / 1.4 for t in range(4)], dtype=torch.float64)
    wanted = (pairs * zeta ** ((positions[:, None] - positions) / 512).unsqueeze(-1)).sum(-1) + products[..., 8:].sum(
        -1
    )
    torch.testing.assert_close(own_q @ own_k.T, wanted)


def test_xpos_beside_a_peer():
    peer = RotaryEmbedding(16, use_xpos=True, cache_if_possible=False)
    q, k = torch.randn(2, 1, 2, 50, 16)
    theirs_q, theirs_k = peer.rotate_queries_and_keys(q, k)
    own_q, own_k = biases.apply_xpos(q, k, torch.arange(50), rl.rope_frequencies(16), layout="interleaved")
    torch.testing.assert_close(own_q @ own_k.mT, theirs_q @ theirs_k.mT, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["t5", "kerple", "sandwich", "shaw"])
@pytest.mark.parametrize("q_len", [9, 3])
def test_through_attention(name, q_len):
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, q_len, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 8)
    away = biases.distances(q_len, 9)
    bias = {
        "t5": lambda: biases.t5_bias(away, torch.randn(32, 4)),
        "kerple": lambda: biases.kerple_log_bias(away, torch.rand(4), torch.rand(4)),
        "sandwich": lambda: biases.sandwich_bias(away, 4),
        "shaw": lambda: biases.shaw_bias(q, torch.randn(5, 8), away),
    }[name]()
    found = rl.attention(q, k, v, rl.scheme("nope"), bias=bias)
    scores = q @ k.repeat_interleave(2, 1).mT / 8**0.5 + bias
    weights = scores.masked_fill(away < 0, -torch.inf).softmax(-1)
    torch.testing.assert_close(found, (weights.float() @ v.repeat_interleave(2, 1)), rtol=0, atol=1e-5)
