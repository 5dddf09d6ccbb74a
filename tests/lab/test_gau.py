"""The gated attention model against its definition, written out in float64 with the attention pair by pair."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import rope_lessons as rl
from rope_lessons import METHODS, Scheme
from rope_lessons.lab import sizes
from rope_lessons.lab.gau import GatedAttentionLM, GatedAttentionUnit, GAUConfig
from tests.equation import attention_by_equation

SMALL = GAUConfig(vocabulary=11, width=12, layers=3, key_dim=8)


def swish(x: Tensor) -> Tensor:
    return x / (1 + (-x).exp())


def norm(x: Tensor) -> Tensor:
    return x / ((x * x).sum(dim=-1, keepdim=True) / x.shape[-1] + 1e-7).sqrt()


def frequencies(dim: int) -> Tensor:
    return torch.tensor([10_000 ** (-2 * t / dim) for t in range(dim // 2)], dtype=torch.float64)


def literal(weights: dict[str, Tensor], config: GAUConfig, alpha: float, tokens: Tensor, plan: list[Scheme]) -> Tensor:
    """The equations of the module's text, from the named weights."""
    embedding, e = weights["embedding.weight"], config.hidden
    x = norm(embedding[tokens])
    for number, scheme in enumerate(plan):
        part = {name: weights[f"layers.{number}.unit.{name}"] for name in ("project.weight", "out.weight")}
        uvz = swish(x @ part["project.weight"].T)
        u, v, z = uvz[..., :e], uvz[..., e : 2 * e], uvz[..., 2 * e :]
        q = weights[f"layers.{number}.unit.query_scale"] * z
        k = weights[f"layers.{number}.unit.key_scale"] * z
        if config.shift_keys:
            share = weights[f"layers.{number}.unit.key_shift.share"]
            before = torch.stack([k[:, max(0, i - 1)] for i in range(k.shape[1])], dim=1)
            k = (1 - share) * k + share * before
        omega = None if scheme.frequencies is None else frequencies(config.key_dim)
        mixed, _ = attention_by_equation(q[:, None], k[:, None], v[:, None], scheme, frequencies=omega)
        x = norm(alpha * x + (u * mixed[:, 0]) @ part["out.weight"].T)
    return x @ embedding.T


def random_model(config: GAUConfig) -> GatedAttentionLM:
    """In float64, with scales that are not all 1 and weights large enough to matter."""
    model = sizes.build(config, seed=1).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("shift_keys", [False, True])
@pytest.mark.parametrize("optimizer", ["lamb", "adam"])
def test_definition(optimizer: str, shift_keys: bool) -> None:
    config = replace(SMALL, optimizer=optimizer, shift_keys=shift_keys)
    model, tokens = random_model(config), torch.randint(11, (2, 9))
    alpha = 1.0 if optimizer == "lamb" else 3 ** (1 / 3)  # three branches of three matrices
    wanted = literal(dict(model.named_parameters()), config, alpha, tokens, [rl.scheme("rope", dim=8)] * 3)
    assert torch.allclose(model(tokens), wanted, atol=1e-10)


@pytest.mark.parametrize("name", ["hwfa", "hwfa2", "invleaky"])
def test_plan_of_training_and_of_test(name: str) -> None:
    options = {
        "hwfa": {"visible_window": 3, "train_length": 9},
        "hwfa2": {"visible_window": 3, "window": 4},
        "invleaky": {"window": 4, "slope": 3.0},
    }[name]
    method = METHODS[name](layers=3, dim=8, **options)
    model, tokens = random_model(SMALL), torch.randint(11, (1, 9))
    model.plan = method.train
    for plan, found in ((method.train, model(tokens)), (method.test, model(tokens, method.test))):
        wanted = literal(dict(model.named_parameters()), SMALL, 1.0, tokens, list(plan))
        assert torch.allclose(found, wanted, atol=1e-10)


def test_number_of_parameters() -> None:
    """FACTS of GAU-α base: 24 (768·3200 + 1536·768 + 256) and the embedding."""
    layers = 24 * (768 * 3200 + 1536 * 768 + 256)
    assert layers == 87_300_096
    assert sizes.parameters("gau-87m") == layers + 256 * 768 == 87_496_704
    assert sizes.parameters("gau-96m") == layers + 12_000 * 768 == 96_516_096
    for config in (SMALL, replace(SMALL, shift_keys=True)):
        model = sizes.build(config, seed=0)
        by_hand = 11 * 12 + 3 * (12 * (2 * 24 + 8) + 24 * 12 + (3 if config.shift_keys else 2) * 8)
        assert sum(parameter.numel() for parameter in model.parameters()) == by_hand == sizes.parameters(config)


def test_start() -> None:
    """Standard deviations by the number of inputs, the embedding's by the width; scales of one."""
    config = GAUConfig(layers=4, width=256, key_dim=64)
    model = sizes.build(config, seed=0)
    gain = 4 ** (-1 / 3)
    unit = model.layers[0].unit
    assert isinstance(unit, GatedAttentionUnit)
    for weight, inputs in ((model.embedding.weight, 256), (unit.project.weight, 256), (unit.out.weight, 512)):
        std = gain / math.sqrt(inputs)
        assert weight.std().item() == pytest.approx(std, rel=0.01)
        assert weight.abs().max().item() == pytest.approx(2 * 1.13684723 * std, rel=1e-3)
    assert (unit.query_scale == 1).all()
    assert (unit.key_scale == 1).all()
    assert not torch.equal(unit.project.weight, model.layers[1].unit.project.weight)


def test_the_stream_has_norm_one_and_a_layer_changes_it_little() -> None:
    """What makes a start without warm-up possible: one layer of 24 moves the stream by about a hundredth."""
    model = sizes.build("gau-0.3m", seed=0)
    model = sizes.build(replace(model.config, layers=24), seed=0)
    x = model.enter(model.embedding(torch.randint(256, (2, 64))))
    layer, scheme = model.layers[0], model.plan[0]
    after = layer(x, lambda q, k, v: rl.attention(q, k, v, scheme))
    for stream in (x, after):
        assert torch.allclose(stream.square().mean(dim=-1), torch.ones(2, 64), atol=1e-2)
    assert (after - x).square().mean().sqrt() < 0.02


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": 0}, "layers must be an int of at least 1"),
        ({"key_dim": 7}, "dim must be an even int"),
        ({"optimizer": "lion"}, "optimizer must be one of"),
    ],
)
def test_errors(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GAUConfig(**options)
