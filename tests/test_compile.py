"""``torch.compile(fullgraph=True, dynamic=True)``: no graph break, no recompilation over five lengths, same numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import rope_lessons as rl
from rope_lessons import FrequencySpec, LogN, Scheme

LENGTHS = (13, 7, 31, 64, 33)  # the first one differs from every other size: equal sizes are taken for the same one
ROPE = FrequencySpec("rope", dim=8)
SCHEMES = {
    "rope": Scheme(ROPE),
    "rope_interleaved": Scheme(ROPE, layout="interleaved"),
    "partial_bidirectional": Scheme(FrequencySpec("rope", dim=4), causal=False),
    "rerope": Scheme(ROPE, window=5, slope=0.0),
    "leaky_log_n": Scheme(ROPE, window=5, slope=0.25, scale=LogN(16, clip=True)),
    "log_n": Scheme(ROPE, scale=LogN(16)),
    "alibi": Scheme(alibi=True),
    "window": Scheme(ROPE, visible_window=4, sinks=2),
    "pi": Scheme(FrequencySpec("pi", dim=8, factor=4)),
    "dynamic_ntk": Scheme(FrequencySpec("dynamic-ntk", dim=8, factor=2, train_length=100)),
    "yarn": rl.scheme("yarn", dim=8, factor=2, train_length=100),
    "longrope": rl.scheme("longrope", dim=8, short_factor=[1] * 4, long_factor=[2] * 4, train_length=100, factor=2),
}


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def check(function: Callable[..., Any], inputs: Callable[[int], tuple], *, backend: str = "eager") -> None:
    """The first call compiles with dynamic shapes; a second compilation is an error."""
    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend=backend)
    compiled(*inputs(LENGTHS[0]))
    with torch._dynamo.config.patch(error_on_recompile=True):
        for length in LENGTHS:
            arguments = inputs(length)
            torch.testing.assert_close(compiled(*arguments), function(*arguments), atol=2e-6, rtol=1e-5)


def queries_keys_values(length: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(2, 4, length, 8), torch.randn(2, 2, length, 8), torch.randn(2, 2, length, 6)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_apply_rotary(layout: str) -> None:
    frequencies = rl.rope_frequencies(8)

    def turn(x: Tensor, positions: Tensor) -> Tensor:
        return rl.apply_rotary(x, positions, frequencies, layout=layout)

    check(turn, lambda length: (torch.randn(2, 3, length, 12), torch.arange(length)))
    check(turn, lambda length: (torch.randn(2, 3, length, 8), torch.rand(2, length, dtype=torch.float64)))


def test_apply_rotary_and_its_frequencies() -> None:
    def turn(x: Tensor, positions: Tensor) -> Tensor:
        return rl.apply_rotary(x, positions, rl.ntk_frequencies(8, 4.0), layout="half")

    check(turn, lambda length: (torch.randn(2, 3, length, 8), torch.arange(length)))


def test_sinusoidal_encoding() -> None:
    check(lambda positions: rl.sinusoidal_encoding(positions, 16), lambda length: (torch.arange(length) + 1000,))


@pytest.mark.parametrize("name", SCHEMES)
def test_attention(name: str) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return rl.attention(q, k, v, SCHEMES[name], return_lse=True)

    check(attend, queries_keys_values)


def test_attention_with_everything() -> None:
    scheme = Scheme(ROPE, window=5, slope=0.25, scale=LogN(16), visible_window=9, sinks=1, alibi=True)

    def attend(q: Tensor, k: Tensor, v: Tensor, positions: Tensor, ids: Tensor, bias: Tensor) -> Tensor:
        lengths = torch.full((2,), q.shape[2] - 1)
        return rl.attention(
            q, k, v, scheme, q_positions=positions, k_positions=positions, document_ids=ids, lengths=lengths, bias=bias
        )

    def inputs(length: int) -> tuple[Tensor, ...]:
        ids = torch.arange(length) // 5
        return (*queries_keys_values(length), 2 * torch.arange(length), ids, torch.randn(length, length))

    check(attend, inputs)


@pytest.mark.parametrize("learned", [False, True])
def test_modules(learned: bool) -> None:
    rotary = rl.nn.RotaryEmbedding(ROPE, learned=learned)
    check(rotary, lambda length: (torch.randn(2, 4, length, 8),))
    torch._dynamo.reset()
    check(rl.nn.Attention(SCHEMES["rerope"], learned_frequencies=learned), queries_keys_values)


def test_gradients() -> None:
    def loss(q: Tensor, k: Tensor, v: Tensor, frequencies: Tensor) -> Tensor:
        return rl.attention(q, k, v, SCHEMES["leaky_log_n"], frequencies=frequencies).square().sum()

    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend="aot_eager")
    for length in LENGTHS[:3]:
        inputs = [x.requires_grad_() for x in (*queries_keys_values(length), rl.rope_frequencies(8))]
        wanted = torch.autograd.grad(loss(*inputs), inputs)
        torch.testing.assert_close(torch.autograd.grad(compiled(*inputs), inputs), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # PyTorch's own
def test_inductor() -> None:
    """The default backend, generated C++ included."""
    check(lambda *qkv: rl.attention(*qkv, SCHEMES["rerope"]), queries_keys_values, backend="inductor")
