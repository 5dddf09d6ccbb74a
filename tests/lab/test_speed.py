"""Operations of a training against PyTorch's counter, and what is measured."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from rope_lessons import attention
from rope_lessons.lab import sizes, speed
from rope_lessons.schemes import Plan, scheme

CPU = torch.device("cpu")


def counted(size: str, plan: Plan, length: int, batch: int = 2) -> float:
    """What PyTorch counts for a token, forward and backward. The reference makes every score, seen or not."""
    model = sizes.build(size, seed=0, plan=plan)
    tokens = torch.zeros(batch, length, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        model(tokens, attend=partial(attention, backend="reference")).sum().backward()
    return counter.get_total_flops() / (batch * length)


@pytest.mark.parametrize("size", ["gau-0.3m", "transformer-0.3m"])
@pytest.mark.parametrize("length", [16, 64])
def test_flops_are_what_pytorch_counts(size, length):
    """With every key visible to every query, nothing is made that is not needed."""
    config = sizes.config_of(size)
    plan = (scheme("rope", dim=config.head_dim, causal=False),) * config.layers
    assert speed.training_flops(size, length, plan) == counted(size, plan, length)


def test_flops_of_pairs_that_are_seen():
    """By hand: width 100, four layers, 64 channels of keys and 200 of values, six operations a weight or channel."""
    rope, near = scheme("rope", dim=64), scheme("rope", dim=64, visible_window=2)
    weights = 256 * 100 + 4 * 100 * (200 + 200 + 64 + 200)
    all_before, last_two = 36 / 8, 15 / 8  # 1 + 2 + … + 8 pairs, 1 + 2 + 2 + … + 2
    flops = partial(speed.training_flops, "gau-0.3m", 8)
    assert flops() == flops((rope,) * 4) == 6 * (weights + 4 * all_before * 264)
    assert flops((rope, near, near, near)) == 6 * (weights + (all_before + 3 * last_two) * 264)


@pytest.mark.parametrize("size", ["gau-0.3m", "transformer-0.3m", "gau-87m"])
def test_matrices_are_all_weights_but_scales(size):
    count = sum(rows * inputs * number for (rows, inputs), number in speed.matrices(sizes.config_of(size)).items())
    assert 0.99 * sizes.parameters(size) < count <= sizes.parameters(size)


def test_median_time_of_a_call():
    naps = iter([0.0, 0.0, 0.02, 0.01, 0.0])  # two to warm up

    def busy() -> None:
        end = time.process_time() + next(naps)
        while time.process_time() < end:
            pass

    assert 0.01 <= speed._seconds(busy, CPU, rounds=3) < 0.02


def test_rate_of_square_matrices():
    rates = speed.matrix_rate(CPU, torch.float32, (64, 128))
    assert list(rates) == [64, 128]
    assert all(1e7 < rate < 1e13 for rate in rates.values())


def test_measure(tiny, corpus):
    """The numbers belong together: the rate of the steps is their share of the rate of the matrices."""
    recipe = replace(tiny, scheme="random-positions")  # positions are drawn in each step
    model = sizes.build(recipe.config, 0, recipe.row.method.train)
    before = model.embedding.weight.clone()
    found = speed.measure(model, recipe, corpus, CPU)
    assert not torch.equal(model.embedding.weight, before), "no step was made"
    assert found["flops_per_token"] == round(speed.training_flops(recipe.config, 32, recipe.row.method.train))
    assert found["matrix_side"] in speed.SIDES["cpu"]
    used = found["tokens_per_second"] * found["flops_per_token"] / found["matrix_rate"]
    assert found["utilisation"] == pytest.approx(used, abs=1e-4)
    assert 0 < found["utilisation"] < 1
    assert 0 < found["products_share"] < 1
