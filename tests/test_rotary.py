"""The rotation: signs, layouts, shapes, and weight conversion on examples that can be checked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import rope_lessons as rl
from rope_lessons import FrequencySpec

QUARTER = torch.tensor([math.pi / 2], dtype=torch.float64)  # one quarter turn per position


def test_direction() -> None:
    """Counter-clockwise: a quarter turn takes (1, 0) to (0, 1), and (0, 1) to (-1, 0)."""
    x = torch.eye(2, dtype=torch.float64)
    for layout in ("half", "interleaved"):
        turned = rl.apply_rotary(x, torch.tensor([1, 1]), QUARTER, layout=layout)
        torch.testing.assert_close(turned, torch.tensor([[0, 1], [-1, 0]]).double(), atol=1e-15, rtol=0)


def test_layouts() -> None:
    """Half pairs channels t and t + d/2, interleaved 2t and 2t + 1; a quarter turn shows which."""
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64)
    frequencies = QUARTER.expand(2)
    for layout, wanted in (("half", [-3, -4, 1, 2]), ("interleaved", [-2, 1, -4, 3])):
        turned = rl.apply_rotary(x, torch.tensor([1]), frequencies, layout=layout)
        torch.testing.assert_close(turned, torch.tensor([wanted]).double(), atol=1e-14, rtol=0)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_positions_and_frequencies_per_row_and_head(layout: str, device: torch.device) -> None:
    """Each row and head gets what it gets alone."""
    x = torch.randn(2, 3, 5, 8, device=device)
    where = torch.randint(0, 1000, (2, 5), device=device)
    omega = torch.rand(3, 4, dtype=torch.float64, device=device)
    both = rl.apply_rotary(x, where, omega, layout=layout)
    rows = rl.apply_rotary(x, where, omega[0], layout=layout)
    heads = rl.apply_rotary(x, where[0], omega, layout=layout)
    assert both.shape == rows.shape == heads.shape == x.shape
    for b in range(2):
        for h in range(3):
            alone = rl.apply_rotary(x[b, h], where[b], omega[h], layout=layout)
            torch.testing.assert_close(both[b, h], alone, atol=0, rtol=0)
        torch.testing.assert_close(rows[b], rl.apply_rotary(x[b], where[b], omega[0], layout=layout), atol=0, rtol=0)
    torch.testing.assert_close(heads[1, 2], rl.apply_rotary(x[1, 2], where[0], omega[2], layout=layout), atol=0, rtol=0)


def test_tables(device: torch.device) -> None:
    omega = torch.rand(3, 4, dtype=torch.float64, device=device)
    where = torch.arange(10, device=device).view(2, 5)
    shapes = {(1, 1): (5, 4), (2, 1): (2, 1, 5, 4), (1, 2): (3, 5, 4), (2, 2): (2, 3, 5, 4)}
    for (p, f), shape in shapes.items():
        positions, frequencies = where if p == 2 else where[0], omega if f == 2 else omega[0]
        cos, sin = rl.rotary_table(positions, frequencies, scale=2.0, dtype=torch.float64)
        assert cos.shape == sin.shape == shape
        torch.testing.assert_close(cos.square() + sin.square(), torch.full_like(cos, 4.0), atol=1e-12, rtol=0)
    cos, _ = rl.rotary_table(where[0], omega[0])
    assert cos.dtype == torch.float32


def test_one_table_for_queries_keys_and_layers(device: torch.device) -> None:
    omega, where = rl.rope_frequencies(8, device=device), torch.arange(5, device=device)
    cos, sin = rl.rotary_table(where, omega, scale=1.3)
    for shape in ((5, 8), (3, 5, 10), (2, 3, 5, 8)):
        x = torch.randn(shape, device=device)
        for layout in ("half", "interleaved"):
            wanted = rl.apply_rotary(x, where, omega, layout=layout, scale=1.3)
            assert torch.equal(rl.rotary.rotate(x, cos, sin, layout=layout), wanted)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("shape", [(2,), (3, 2)])
def test_gradcheck(shape: tuple[int, ...], layout: str, device: torch.device) -> None:
    x = torch.randn(2, 3, 4, 5, dtype=torch.float64, device=device).requires_grad_()
    omega = torch.rand(shape, dtype=torch.float64, device=device).requires_grad_()
    where = torch.rand(2, 4, dtype=torch.float64, device=device)

    def run(x: Tensor, omega: Tensor) -> Tensor:
        return rl.apply_rotary(x, where, omega, layout=layout, scale=1.2)

    assert torch.autograd.gradcheck(run, (x, omega))


def test_input_is_left_alone(device: torch.device) -> None:
    x = torch.randn(5, 8, device=device)
    before = x.clone()
    rl.apply_rotary(x, torch.arange(5, device=device), rl.rope_frequencies(8, device=device), layout="half")
    assert torch.equal(x, before)


def test_weight_conversion_by_hand() -> None:
    rows = torch.arange(8)
    assert rl.interleaved_to_half(rows, heads=1).tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert rl.half_to_interleaved(rows, heads=1).tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    assert rl.interleaved_to_half(rows, heads=2, rotary_dim=2).tolist() == rows.tolist()
    assert rl.half_to_interleaved(torch.arange(12), heads=2, rotary_dim=4).tolist() == [
        0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11,
    ]  # fmt: skip
    transposed = torch.randn(3, 8).T  # not contiguous
    assert torch.equal(rl.interleaved_to_half(transposed, 2), rl.interleaved_to_half(transposed.contiguous(), 2))


def test_module(device: torch.device) -> None:
    x = torch.randn(2, 3, 5, 12, device=device)
    where = torch.arange(5, device=device)
    omega = rl.rope_frequencies(8, device=device)
    module = rl.nn.RotaryEmbedding(FrequencySpec("rope", dim=8), layout="interleaved", scale=1.1)
    assert torch.equal(module(x), rl.apply_rotary(x, where, omega, layout="interleaved", scale=1.1))
    assert torch.equal(module(x, where + 7), rl.apply_rotary(x, where + 7, omega, layout="interleaved", scale=1.1))
    assert not list(module.parameters())
    assert not list(module.buffers())
    dynamic = rl.nn.RotaryEmbedding(FrequencySpec("dynamic-ntk", dim=8, factor=2, train_length=4))
    for length in (3, 5, 9):
        omega = rl.dynamic_ntk_frequencies(8, length, 4, 2, device=device)
        assert torch.equal(dynamic(x, length=length), rl.apply_rotary(x, where, omega, layout="half"))
    assert torch.equal(dynamic(x), dynamic(x, length=5))


def test_learned_module(device: torch.device) -> None:
    module = rl.nn.RotaryEmbedding(FrequencySpec("rope", dim=8), learned=True).to(device)
    x = torch.randn(2, 3, 5, 8, device=device)
    plain = rl.nn.RotaryEmbedding(FrequencySpec("rope", dim=8))
    torch.testing.assert_close(module(x), plain(x), atol=1e-6, rtol=0)  # a GPU's powers differ in the last bit
    module(x)[..., 0].sum().backward()
    (parameter,) = module.parameters()
    assert parameter.grad is not None
    assert parameter.grad[0] != 0
