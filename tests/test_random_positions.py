"""The samplers of chapter 10: what they promise about shape, order, device and generator, and their distributions."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import pytest
import torch

import rope_lessons as rl
from rope_lessons import METHODS, LogN, Method
from rope_lessons.random_positions import PROPOSALS

DRAWS = 100_000


def generator(seed: int = 0, device: torch.device | str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


SAMPLERS: dict[str, dict[str, Any]] = {
    "random_positions": {"max_length": 100},
    "grid_positions": {"max_length": 100},
    "skip_positions": {"max_length": 100},
    "equal_mean_positions": {},
    "equal_mean_positions, beta": {"distribution": "beta", "max_length": 100, "alpha": 0.5},
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_keep_their_promises(name: str, device: torch.device) -> None:
    sampler, options = getattr(rl.random_positions, name.split(",")[0]), SAMPLERS[name]
    one = sampler(16, **options, generator=generator(1, device))
    many = sampler(16, **options, batch=50, generator=generator(1, device), device=device)
    assert one.shape == (16,)
    assert many.shape == (50, 16)
    assert one.device.type == many.device.type == device.type
    assert one.dtype == (torch.float64 if "mean" in name else torch.int64)
    assert (many.diff(dim=1) > 0).all()  # in order, none twice
    assert (many >= 0).all()
    assert many.max() < (math.inf if name == "equal_mean_positions" else 100)
    assert torch.equal(many, sampler(16, **options, batch=50, generator=generator(1, device)))
    if name != "grid_positions":
        assert not torch.equal(many[0], many[1])
        assert not torch.equal(many, sampler(16, **options, batch=50, generator=generator(2, device)))


def test_global_generator_stays_untouched_by_an_explicit_one() -> None:
    state = torch.get_rng_state()
    for name, options in SAMPLERS.items():
        getattr(rl.random_positions, name.split(",")[0])(16, **options, batch=3, generator=generator())
    assert torch.equal(state, torch.get_rng_state())
    rl.random_positions.random_positions(16, 100)
    assert not torch.equal(state, torch.get_rng_state())


def test_the_grid_is_exact_where_its_products_are_not() -> None:
    """Length times max_length may be beyond int64: position i is still floor(i P / L), as Python's ints have it."""
    cases = [(10**5, 10**15), (7, 2**63 - 1), (10**5, 2**63 - 1), (3, 2**62), (2**20 - 1, 2**63 - 1), (5, 20), (1, 1)]
    for length, max_length in cases:
        found = rl.random_positions.grid_positions(length, max_length)
        some = [0, 1, length // 2, length - 2, length - 1] if length > 2 else range(length)
        assert [int(found[i]) for i in some] == [i * max_length // length for i in some], (length, max_length)
        assert bool((found.diff() > 0).all())
        assert int(found[-1]) < max_length


def test_one_jump() -> None:
    """Every cut and every jump is equally likely; all else is a step of one."""
    drawn = rl.random_positions.skip_positions(5, 8, batch=16_000, generator=generator())
    assert (drawn[:, 0] == 0).all()
    jumps = drawn.diff(dim=1) - 1  # of 0 to 3 places
    assert ((jumps > 0).sum(dim=1) <= 1).all()
    counts = torch.bincount((jumps * torch.tensor([1, 4, 16, 64])).sum(dim=1), minlength=256)
    some = torch.tensor([counts[jump * 4**cut] for cut in range(4) for jump in (1, 2, 3)]).double()
    assert ((some - 1000).square() / 1000).sum() < 33  # 12 cells: passed with probability 0.999
    assert abs(int(counts[0]) - 4000) < 200  # no jump
    far = rl.random_positions.skip_positions(64, 512, batch=4000, generator=generator())
    distances = (far[:, :, None] - far[:, None, :]).flatten().unique()
    assert set(range(512)) <= set(distances.tolist())
    assert rl.random_positions.skip_positions(9, 9).tolist() == list(range(9))
    with pytest.raises(ValueError, match="length must be at least 2, or there is nothing to cut, got 1"):
        rl.random_positions.skip_positions(1, 9)


def test_every_subset_is_equally_likely() -> None:
    """All 35 subsets of three out of seven, counted; chi squared with 34 degrees of freedom."""
    drawn = rl.random_positions.random_positions(3, 7, batch=35_000, generator=generator())
    counts = torch.bincount((drawn * torch.tensor([49, 7, 1])).sum(dim=1), minlength=343)
    found = torch.stack([counts[49 * a + 7 * b + c] for a, b, c in combinations(range(7), 3)]).double()
    assert found.sum() == 35_000
    assert ((found - 1000).square() / 1000).sum() < 65  # passed with probability 0.999


def test_all_positions_is_the_only_subset() -> None:
    assert rl.random_positions.random_positions(9, 9).tolist() == list(range(9))
    assert rl.random_positions.grid_positions(9, 9).tolist() == list(range(9))


def test_grid_is_that_of_the_article() -> None:
    assert rl.random_positions.grid_positions(512, 2048).tolist() == list(range(0, 2048, 4))
    uneven = rl.random_positions.grid_positions(300, 2048)
    assert set(uneven.diff().tolist()) == {6, 7}
    assert uneven[-1] < 2048


@pytest.mark.parametrize("mean", [None, 64.0])
def test_exponential(mean: float | None) -> None:
    """Mean and tails; the points are evenly spaced from 0 on; the mean of position i is i."""
    drawn = rl.random_positions.equal_mean_positions(64, batch=DRAWS, mean=mean, generator=generator())
    end, centre = drawn[:, -1], mean or 63
    for times in (0.5, 1, 3, 5):
        p = math.exp(-times)
        assert (end > times * centre).double().mean() == pytest.approx(p, abs=4 * math.sqrt(p / DRAWS))
    assert drawn[:, 0].max() == 0
    wanted = torch.arange(64).double() / 63 * centre
    assert torch.allclose(drawn.mean(dim=0), wanted, rtol=4 / math.sqrt(DRAWS), atol=1e-12)
    assert torch.allclose(drawn / end.unsqueeze(1), torch.linspace(0, 1, 64).double().expand_as(drawn))


@pytest.mark.parametrize("alpha", [0.1, 0.25, 1.0, 4.0])
def test_beta(alpha: float) -> None:
    """Mean and variance, and the whole distribution against PyTorch's own draws (which take no generator)."""
    drawn = rl.random_positions.equal_mean_positions(
        64, batch=DRAWS, distribution="beta", max_length=512, alpha=alpha, generator=generator()
    )
    x, centre = drawn[:, -1] / 511, 63 / 511
    beta = alpha * (511 / 63 - 1)
    variance = centre * (1 - centre) / (alpha + beta + 1)
    assert x.mean() == pytest.approx(centre, abs=4 * math.sqrt(variance / DRAWS))
    assert x.var() == pytest.approx(variance, rel=0.03)
    peer = torch.distributions.Beta(*torch.tensor([alpha, beta], dtype=torch.float64)).sample((DRAWS,)).sort().values
    gap = (torch.searchsorted(peer, x.sort().values) - torch.arange(DRAWS)).abs().max() / DRAWS
    assert gap < 1.95 * math.sqrt(2 / DRAWS)  # Kolmogorov and Smirnov: passed with probability 0.999


def test_beta_of_tiny_shapes_is_a_number() -> None:
    """Both gamma variables are 0 in float64 then; their logarithms are not."""
    drawn = rl.random_positions.equal_mean_positions(4, batch=1000, distribution="beta", max_length=32, alpha=1e-4)
    assert drawn.isfinite().all()
    assert (drawn[:, -1] > 15).double().mean() == pytest.approx(3 / 31, abs=0.04)


def test_enough_proposals() -> None:
    """The acceptance of Marsaglia and Tsang's method is lowest at shape 1."""
    z, u = torch.randn(DRAWS, dtype=torch.float64), torch.rand(DRAWS, dtype=torch.float64)
    v = (1 + z / (3 * (2 / 3) ** 0.5)) ** 3
    rejected = 1 - (u.log() < z**2 / 2 + 2 / 3 * (1 - v + v.log())).double().mean()
    assert rejected < 0.05
    assert 0.05**PROPOSALS < 1e-15


# --- the rows of the table -----------------------------------------------------------------------------------------


def test_method_random_positions() -> None:
    method = METHODS["random-positions"](layers=2, dim=8)
    encoder = rl.scheme("rope", dim=8, causal=False)
    assert method.train == method.test == (encoder,) * 2
    assert method.train_positions is not None
    assert method.test_positions is not None
    drawn = method.train_positions(64, generator=generator())
    assert torch.equal(drawn, rl.random_positions.random_positions(64, 2048, generator=generator()))
    assert torch.equal(method.test_positions(512), rl.random_positions.grid_positions(512, 2048))
    same = METHODS["random-positions"](layers=2, dim=8, max_length=100, test="random")
    assert same.test_positions == same.train_positions
    assert same.test_positions is not None
    assert same.test_positions(8, batch=3).shape == (3, 8)
    with pytest.raises(ValueError, match="test must be one of"):
        METHODS["random-positions"](layers=2, dim=8, test="even")


def test_method_equal_mean() -> None:
    method = METHODS["equal-mean"](layers=2, dim=8, scale=LogN(64))
    assert method.train == method.test == (rl.scheme("rope", dim=8, causal=False, scale=LogN(64)),) * 2
    assert method.test_positions is None
    assert method.train_positions is not None
    drawn = method.train_positions(64, batch=3, generator=generator())
    assert torch.equal(drawn, rl.random_positions.equal_mean_positions(64, batch=3, generator=generator()))
    beta = METHODS["equal-mean"](layers=2, dim=8, distribution="beta", max_length=512, alpha=0.25)
    assert beta.train_positions is not None
    assert beta.train_positions(64).max() <= 511


@pytest.mark.parametrize("name", ["random-positions", "equal-mean"])
def test_methods_are_values(name: str) -> None:
    """Equal settings are equal, and log n is trained with unless it is clipped."""
    build = METHODS[name]
    assert build(layers=2, dim=8) == build(layers=2, dim=8)
    clipped: Method = build(layers=1, dim=8, scale=LogN(64, clip=True))
    assert clipped.train[0].scale is None
    assert clipped.test[0].scale == LogN(64, clip=True)
    assert clipped.test[0].causal is False
