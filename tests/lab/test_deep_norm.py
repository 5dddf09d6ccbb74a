"""Deep Norm: the table against the conditions that it solves, and the size of a first step at many depths."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from rope_lessons.lab import sizes
from rope_lessons.lab.deep_norm import deep_norm, first_step
from rope_lessons.lab.gau import GAUConfig
from rope_lessons.lab.tiger import Tiger, parameter_groups
from rope_lessons.models.initial import truncated_normal_

DEPTHS = (2, 8, 32)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("branches", [1, 24, 200])
def test_table_solves_its_conditions(order: int, branches: int) -> None:
    """M g², M g and M λ g are 1, with g = λ^(order - 1) / α, and α is 1/λ for SGD and Adam, 1 for LAMB."""
    for optimizer, change in (
        ("sgd", lambda lam, g: g * g),
        ("adam", lambda lam, g: g),
        ("lamb", lambda lam, g: lam * g),
    ):
        alpha, gain = deep_norm(branches, optimizer, order)
        assert branches * change(gain, gain ** (order - 1) / alpha) == pytest.approx(1)
        assert alpha == pytest.approx(1 if optimizer == "lamb" else 1 / gain)


def test_published_rows() -> None:
    """The table of article 8978 for N layers of two branches, and the gain in the code of GAU-α."""
    n = 12
    assert deep_norm(2 * n, "sgd") == pytest.approx(((2 * n) ** 0.25, (2 * n) ** -0.25))
    assert deep_norm(2 * n, "adam") == pytest.approx(((2 * n) ** 0.5, (2 * n) ** -0.5))
    assert deep_norm(2 * n, "lamb") == pytest.approx((1, (2 * n) ** -0.5))
    assert deep_norm(24, "lamb", order=3) == pytest.approx((1, 24 ** (-1 / 3)))
    assert deep_norm(24, "none", order=3) == (1, 1)


def test_truncated_normal() -> None:
    """The published factor before the cut, and the standard deviation after it."""
    std = 24 ** (-1 / 3) / math.sqrt(768)
    weight = truncated_normal_(torch.empty(3200, 768), std, torch.Generator().manual_seed(0))
    assert std == pytest.approx(0.01251, abs=1e-5)
    before = 1.13684723 * std
    assert before == pytest.approx(0.01422, abs=1e-5)
    assert weight.std().item() == pytest.approx(std, rel=2e-3)
    assert weight.abs().max().item() == pytest.approx(2 * before, rel=1e-4)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "lamb"])
def test_first_step_is_bounded_in_the_depth(optimizer: str, order: int) -> None:
    """Without Deep Norm the fall of the loss and the change of the outputs grow as the depth does, or faster. With it
    they do not grow. They fall a little, since swish is no homogeneous function: it halves small inputs."""
    for number, allowed in ((0, 1.7), (1, 3.0)):  # loss, outputs
        steady = [first_step(depth, optimizer, optimizer, order, 1e-5)[number] for depth in DEPTHS]
        growing = [first_step(depth, optimizer, "none", order, 1e-5)[number] for depth in DEPTHS]
        assert steady[0] / allowed < min(steady[1:]) <= max(steady[1:]) < 1.1 * steady[0]
        assert all(after > 3 * before for before, after in pairwise(growing))  # 4 times the depth


def moved_by_tiger(layers: int, start: str) -> float:
    """How far the scores of a gated attention model move in one step of Tiger, root mean square."""
    model = sizes.build(GAUConfig(width=32, layers=layers, key_dim=16, optimizer=start), seed=0)
    tokens = torch.randint(256, (2, 17), generator=torch.Generator().manual_seed(0))
    optimizer = Tiger(parameter_groups(model), lr=1e-3)
    before = model(tokens[:, :-1])
    torch.nn.functional.cross_entropy(before.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    model.embedding.weight.grad = None  # the layers alone
    optimizer.step()
    return ((model(tokens[:, :-1]) - before).square().mean() / before.square().mean()).sqrt().item()


def test_models_of_gated_attention_units() -> None:
    """The same in whole models, with softmax attention."""
    steady = [moved_by_tiger(layers, "lamb") for layers in (2, 24)]
    growing = [moved_by_tiger(layers, "none") for layers in (2, 24)]
    assert steady[0] / 3 < steady[1] < 1.1 * steady[0]
    assert growing[1] > 10 * growing[0]


def test_errors() -> None:
    for call, message in (
        (lambda: deep_norm(0, "sgd"), "branches must be an int of at least 1"),
        (lambda: deep_norm(4, "lion"), "optimizer must be one of"),
        (lambda: deep_norm(4, "sgd", order=0), "order must be an int of at least 1"),
        (lambda: first_step(4, "none", "sgd"), "optimizer must be one of"),
        (lambda: first_step(4, "sgd", "sgd", order=4), "order must be 2 or 3"),
        (lambda: truncated_normal_(torch.empty(2), 0.0), "std must be a positive"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
