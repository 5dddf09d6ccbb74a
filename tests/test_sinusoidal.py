"""The sinusoidal encoding and its kernel."""

from __future__ import annotations

import math

import pytest
import torch

import rope_lessons as rl


def test_frequencies_by_hand(device: torch.device) -> None:
    frequencies = rl.rope_frequencies(8, base=16, device=device)
    assert frequencies.device.type == device.type
    torch.testing.assert_close(frequencies.cpu(), torch.tensor([1, 1 / 2, 1 / 4, 1 / 8], dtype=torch.float64))
    assert rl.rope_frequencies(2).tolist() == [1.0]


@pytest.mark.parametrize("position", [0, 1, 17, 1000, 2.5, -3.25])
def test_encoding_by_definition(position: float, device: torch.device) -> None:
    """Channel 2t is sin(m B^(-2t/d)), channel 2t + 1 its cosine."""
    dim, base = 12, 300.0
    where = torch.tensor(position, dtype=torch.float64, device=device)
    encoding = rl.sinusoidal_encoding(where, dim, base, dtype=torch.float64)
    assert encoding.shape == (dim,)
    for t in range(dim // 2):
        angle = position * base ** (-2 * t / dim)
        assert math.isclose(encoding[2 * t], math.sin(angle), abs_tol=1e-12)
        assert math.isclose(encoding[2 * t + 1], math.cos(angle), abs_tol=1e-12)


def test_shapes_and_dtypes(device: torch.device) -> None:
    where = torch.arange(6, device=device).view(2, 3)
    assert rl.sinusoidal_encoding(where, 8).shape == (2, 3, 8)
    assert rl.sinusoidal_encoding(where, 8).dtype == torch.float32
    assert rl.sinusoidal_encoding(where, 8, dtype=torch.bfloat16).dtype == torch.bfloat16
    assert torch.equal(rl.sinusoidal_encoding(where, 8), rl.sinusoidal_encoding(where.double(), 8))


def test_given_frequencies(device: torch.device) -> None:
    where = torch.arange(5, device=device)
    assert torch.equal(
        rl.sinusoidal_encoding(where, 8, 77.0),
        rl.sinusoidal_encoding(where, 8, frequencies=rl.rope_frequencies(8, 77.0, device=device)),
    )
    frequencies = torch.rand(4, dtype=torch.float64, device=device).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda omega: rl.sinusoidal_encoding(where, 8, frequencies=omega, dtype=torch.float64), (frequencies,)
    )
    assert torch.autograd.gradcheck(lambda omega: rl.sinusoidal.sinusoidal_kernel(where, omega), (frequencies,))


def test_kernel_by_definition(device: torch.device) -> None:
    frequencies = rl.rope_frequencies(10, 50.0, device=device)
    distance = torch.tensor([[0, 1], [-4, 100]], device=device)
    kernel = rl.sinusoidal.sinusoidal_kernel(distance, frequencies)
    assert kernel.shape == (2, 2)
    for number, value in zip(distance.flatten().tolist(), kernel.flatten().tolist(), strict=True):
        assert math.isclose(value, sum(math.cos(number * 50.0 ** (-2 * t / 10)) for t in range(5)) / 5, abs_tol=1e-12)
    assert kernel[0, 0] == 1
