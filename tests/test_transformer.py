"""The Transformer against its definition, written out in float64 with the attention pair by pair."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import rope_lessons as rl
from rope_lessons import METHODS, Scheme
from rope_lessons.lab import sizes
from rope_lessons.models.position_bias import BIASES, PositionBias
from rope_lessons.models.transformer import TransformerConfig, TransformerLM
from tests.equation import attention_by_equation

SMALL = TransformerConfig(vocabulary=11, width=12, layers=2, heads=4, kv_heads=2, head_dim=6, hidden=10)


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return weight * x / ((x * x).sum(dim=-1, keepdim=True) / x.shape[-1] + 1e-7).sqrt()


def literal(weights: dict[str, Tensor], config: TransformerConfig, tokens: Tensor, plan: list[Scheme]) -> Tensor:
    """Head by head, from the named weights."""
    d, embedding = config.head_dim, weights["embedding.weight"]
    omega = torch.tensor([10_000 ** (-2 * t / d) for t in range(d // 2)], dtype=torch.float64)
    x = embedding[tokens]
    for number, scheme in enumerate(plan):
        of = {name.split(".", 2)[2]: weight for name, weight in weights.items() if name.startswith(f"layers.{number}.")}
        projected = norm(x, of["attention_norm.weight"]) @ of["attention.project.weight"].T
        heads = [projected[..., d * h : d * (h + 1)] for h in range(config.heads + 2 * config.kv_heads)]
        q = torch.stack(heads[: config.heads], dim=1)
        k = torch.stack(heads[config.heads : config.heads + config.kv_heads], dim=1)
        v = torch.stack(heads[config.heads + config.kv_heads :], dim=1)
        if config.shift_keys:
            before = torch.stack([k[:, :, max(0, i - 1)] for i in range(k.shape[2])], dim=2)
            k = k + of["attention.key_shift.share"] * (before - k)
        mixed, _ = attention_by_equation(q, k, v, scheme, frequencies=None if scheme.frequencies is None else omega)
        for h in range(config.heads):  # each head has its own columns of the output matrix
            x = x + mixed[:, h] @ of["attention.out.weight"][:, d * h : d * (h + 1)].T
        gate_up = norm(x, of["network_norm.weight"]) @ of["network.gate_up.weight"].T
        gate, up = gate_up[..., : config.hidden], gate_up[..., config.hidden :]
        x = x + (gate / (1 + (-gate).exp()) * up) @ of["network.down.weight"].T
    return norm(x, weights["norm.weight"]) @ embedding.T


def random_model(config: TransformerConfig) -> TransformerLM:
    """In float64, with norms that are not all 1."""
    model = sizes.build(config, seed=1).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_definition(kv_heads: int) -> None:
    """With all, some and one group of query heads on a head of keys and values."""
    config = replace(SMALL, kv_heads=kv_heads, shift_keys=kv_heads == 2)
    model, tokens = random_model(config), torch.randint(11, (2, 7))
    wanted = literal(dict(model.named_parameters()), config, tokens, [rl.scheme("rope", dim=6)] * 2)
    assert torch.allclose(model(tokens), wanted, atol=1e-10)


@pytest.mark.parametrize("name", ["hwfa", "rerope"])
def test_plan_of_training_and_of_test(name: str) -> None:
    options = {"hwfa": {"visible_window": 3, "train_length": 9}, "rerope": {"window": 3}}[name]
    method = METHODS[name](layers=2, dim=6, **options)
    model, tokens = random_model(SMALL), torch.randint(11, (1, 8))
    model.plan = method.train
    for plan, found in ((method.train, model(tokens)), (method.test, model(tokens, method.test))):
        assert torch.allclose(found, literal(dict(model.named_parameters()), SMALL, tokens, list(plan)), atol=1e-10)


def test_number_of_parameters() -> None:
    model = sizes.build(SMALL, seed=0)
    by_hand = 11 * 12 + 2 * (12 * 6 * (4 + 2 * 2) + 4 * 6 * 12 + 3 * 12 * 10 + 2 * 12) + 12
    assert sum(parameter.numel() for parameter in model.parameters()) == by_hand == sizes.parameters(SMALL)
    assert sizes.parameters(replace(SMALL, shift_keys=True)) == by_hand + 2 * 6


@pytest.mark.parametrize(("size", "least", "most"), [("0.3m", 0.29e6, 0.30e6), ("25m", 24.9e6, 25.1e6),
                                                     ("87m", 87.2e6, 87.5e6)])  # fmt: skip
def test_pairs_of_sizes(size: str, least: float, most: float) -> None:
    """Both models of a size have about as many weights, so that a comparison means something."""
    found = [sizes.parameters(f"{kind}-{size}") for kind in ("gau", "transformer")]
    assert least < min(found) <= max(found) < most


def test_start() -> None:
    model = sizes.build("transformer-0.3m", seed=0)
    layer = model.layers[0]
    for weight, std in (
        (layer.attention.project.weight, 96**-0.5),
        (layer.attention.out.weight, (128 * 8) ** -0.5),
        (layer.network.gate_up.weight, 96**-0.5),
        (layer.network.down.weight, (104 * 8) ** -0.5),
        (model.embedding.weight, 0.5 * 96**-0.5),
    ):
        assert weight.std().item() == pytest.approx(std, rel=0.02)
    assert (layer.attention_norm.weight == 1).all()
    loss = torch.nn.functional.cross_entropy(model(torch.arange(256).view(4, 64)).flatten(0, 1), torch.arange(256))
    assert abs(loss.item() - math.log(256)) < 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 0}, "heads must be an int of at least 1"),
        ({"kv_heads": 5}, "kv_heads must divide heads"),
        ({"head_dim": 7}, "dim must be an even int"),
        ({"encoding": "sinus"}, "encoding must be one of '', 'sinusoidal', 'learned'"),
        ({"encoding": "learned"}, "table must be positive with encoding 'learned', and 0 without it, got 0"),
        ({"table": 8}, "table must be positive with encoding 'learned', and 0 without it, got 8"),
        ({"encoding": "sinusoidal", "width": 7}, "width must be even for a sinusoidal encoding, got 7"),
        ({"bias": "alibi", "bias_length": 64}, "bias must be one of '', 't5', 'kerple', 'sandwich', 'fire', 'shaw'"),
        ({"bias": "t5"}, "bias_length must be positive with a bias, and 0 without one, got 0"),
        ({"bias_length": 64}, "bias_length must be positive with a bias, and 0 without one, got 64"),
    ],
)
def test_errors(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TransformerConfig(**options)


# --- additive encodings ----------------------------------------------------------------------------------------------

ADDED = {"sinusoidal": replace(SMALL, encoding="sinusoidal"), "learned": replace(SMALL, encoding="learned", table=9)}


@pytest.mark.parametrize("encoding", ADDED)
def test_what_is_added_is_the_vector_of_the_position(encoding: str) -> None:
    """The same as a model without encoding whose tokens stand for (token, position) pairs."""
    model, positions = random_model(ADDED[encoding]), torch.tensor([0, 1, 5, 2])
    weights = dict(model.named_parameters())
    if encoding == "learned":
        vectors = weights["encoding.weight"][positions]
    else:
        rms = 0.5 / 12**0.5
        vectors = rl.sinusoidal_encoding(positions, 12).double()
        assert vectors.square().mean().sqrt().item() == pytest.approx(0.5**0.5)
        vectors = vectors * rms / 0.5**0.5
    tokens = torch.tensor([[7, 3, 3, 1]])
    plan = (rl.scheme("nope"),) * 2
    pairs = torch.cat((weights["embedding.weight"], weights["embedding.weight"][tokens[0]] + vectors.double()))
    wanted = literal({**weights, "embedding.weight": pairs}, SMALL, 11 + torch.arange(4)[None], list(plan))
    assert torch.allclose(model(tokens, plan, positions=positions), wanted[..., :11], atol=1e-6)


def test_positions_are_counted_from_0() -> None:
    for config in ADDED.values():
        model, tokens, plan = random_model(config), torch.randint(11, (2, 7)), (rl.scheme("nope"),) * 2
        assert torch.equal(model(tokens, plan), model(tokens, plan, positions=torch.arange(7)))


def test_the_other_weights_are_those_of_a_model_without_encoding() -> None:
    plain = dict(sizes.build(SMALL, seed=3).named_parameters())
    for config in ADDED.values():
        own = dict(sizes.build(config, seed=3).named_parameters())
        assert all(torch.equal(own[name], weight) for name, weight in plain.items())
        assert set(own) - set(plain) == ({"encoding.weight"} if config.table else set())


def test_a_learned_table_is_read_between_its_rows_and_ends() -> None:
    model, x = random_model(ADDED["learned"]), torch.zeros(1, 1, 12, dtype=torch.float64)
    table = model.encoding.weight
    between = model.encoding(x, torch.tensor([7.25], dtype=torch.float64))
    assert torch.allclose(between[0, 0], 0.75 * table[7] + 0.25 * table[8])
    model(torch.zeros(1, 9, dtype=torch.int64))
    told = "positions must be from 0 to 8: the learned table has 9 rows and ends there, got 9"
    with pytest.raises(ValueError, match=told):
        model(torch.zeros(1, 10, dtype=torch.int64))
    with pytest.raises(ValueError, match="got -1"):
        model.encoding(x, torch.tensor([-1]))


def test_an_encoding_takes_no_cache() -> None:
    for config in ADDED.values():
        with pytest.raises(ValueError, match="cache must be None for a model with an encoding"):
            random_model(config)(torch.zeros(1, 2, dtype=torch.int64), cache=rl.KVCache((rl.scheme("nope"),) * 2))


# --- biases ----------------------------------------------------------------------------------------------------------

BIASED = {bias: replace(SMALL, bias=bias, bias_length=16) for bias in BIASES}


def of_the_paper(kind: str, own: dict[str, Tensor], q: Tensor, m: int, n: int, head: int) -> Tensor:
    """The bias of one head between the query at m and the key at n, set for 16 tokens; ``q`` is the query's vector."""
    away, zero = m - n, torch.zeros(())
    if kind == "t5":  # 8 buckets: 4 of one distance, then to 8 by the logarithm
        grown = 4 + math.floor(4 * math.log(max(away, 1) / 4) / math.log(2) + 1e-9)
        return own["table"][away if away < 4 else min(grown, 7), head]
    if kind == "shaw":  # vectors of -4, …, 4
        return q @ own["table"][max(-away, -4) + 4] / 6**0.5
    if kind == "kerple":
        amount, rate = (own[name][head].clamp(min=0.01) for name in ("amount", "rate"))
        return -amount * (1 + rate * away).log()
    if kind == "sandwich":
        cosines = sum(math.cos(away * 10_000 ** (-t / 64)) - 1 for t in range(1, 65))
        return zero + 4 / (8 * (head + 1)) * cosines
    if kind == "alibi-random":
        return -own["slopes"][head] * away
    rate, threshold = own["rate"].abs(), own["threshold"].abs()
    share = (rate * away + 1).log() / (rate * torch.maximum(threshold, zero + m) + 1).log()
    hidden = (own["network.0.weight"][:, 0] * share + own["network.0.bias"]).clamp(min=0)
    return own["network.2.weight"][head] @ hidden + own["network.2.bias"][head]


@pytest.mark.parametrize("kind", BIASES)
def test_a_bias_is_that_of_its_paper(kind: str) -> None:
    """Beyond the length that it is set for, too."""
    layer = random_model(BIASED[kind]).layers[1]
    bias, q = layer.attention.bias, torch.randn(2, 4, 21, 6, dtype=torch.float64)
    own, found = dict(bias.named_parameters()), bias(q).expand(2, 4, 21, 21)
    for m in range(21):
        for n in range(m + 1):
            wanted = torch.stack([of_the_paper(kind, own, q[1, head, m], m, n, head) for head in range(4)])
            assert torch.allclose(found[1, :, m, n], wanted.double(), atol=1e-5), (m, n)


@pytest.mark.parametrize("kind", BIASES)
def test_every_layer_adds_its_own_bias(kind: str) -> None:
    model, tokens, plan = random_model(BIASED[kind]), torch.randint(11, (2, 9)), (rl.scheme("nope"),) * 2
    seen = []

    def attend(q: Tensor, k: Tensor, v: Tensor, scheme: Scheme, *, bias: Tensor) -> Tensor:
        seen.append(bias)
        return attention_by_equation(q, k, v, scheme, frequencies=None, bias=bias.detach().expand(2, 4, 9, 9))[0]

    assert torch.allclose(model(tokens, plan), model(tokens, plan, attend=attend), atol=1e-9)
    assert len(seen) == 2
    assert torch.equal(*seen) == (kind == "sandwich"), "Sandwich alone has no numbers of its own"
    model(tokens, plan).sum().backward()
    still = {name for name, weight in model.named_parameters() if weight.grad is None}
    slopes = {f"layers.{layer}.attention.bias.slopes" for layer in range(2)}
    assert still == (slopes if kind == "alibi-random" else set())  # drawn, and never trained
    assert all(weight.grad.abs().sum() > 0 for weight in model.parameters() if weight.grad is not None)


def test_random_slopes_are_alibis_with_its_slopes() -> None:
    bias, q = PositionBias("alibi-random", heads=4, head_dim=6, length=16), torch.randn(2, 4, 21, 6)
    bias.initialise(torch.Generator().manual_seed(0))
    assert ((bias.slopes > 0) & (bias.slopes < 1)).all()
    bias.slopes.copy_(rl.alibi_slopes(4))
    k, v = torch.randn(2, 2, 4, 21, 6)
    found = rl.attention(q, k, v, rl.scheme("nope"), bias=bias(q))
    torch.testing.assert_close(found, rl.attention(q, k, v, rl.scheme("alibi")))


def test_the_other_weights_are_those_of_a_model_without_bias() -> None:
    plain = dict(sizes.build(SMALL, seed=3).named_parameters())
    for config in BIASED.values():
        own = dict(sizes.build(config, seed=3).named_parameters())
        assert all(torch.equal(own[name], weight) for name, weight in plain.items())
        assert all(torch.isfinite(weight).all() for weight in own.values())


def test_a_bias_takes_no_cache_and_no_positions() -> None:
    model, tokens = random_model(BIASED["fire"]), torch.zeros(1, 2, dtype=torch.int64)
    told = "must be None for a model with a bias: it counts every text from 0"
    with pytest.raises(ValueError, match=f"cache {told}"):
        model(tokens, cache=rl.KVCache((rl.scheme("nope"),) * 2))
    with pytest.raises(ValueError, match=f"document_ids {told}"):
        model(tokens, document_ids=torch.zeros(1, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match=f"positions {told}"):
        model(tokens, positions=torch.arange(2))
