"""Self-Extend against its distances written out pair by pair."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import rope_lessons as rl
from rope_lessons.self_extend import self_extend_attention
from rope_lessons.streaming import streaming_attention


def by_loops(q: Tensor, k: Tensor, v: Tensor, omega: Tensor, window: int, group: int, scale: rl.LogN | None) -> Tensor:
    """float64, a query and a key at a time; pairs of channels as complex numbers."""
    batch, heads, seq, dim = q.shape
    shared = heads // k.shape[1]
    as_complex = lambda x: torch.complex(x[: dim // 2], x[dim // 2 :])  # noqa: E731
    out = torch.zeros(batch, heads, seq, v.shape[-1], dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            for i in range(seq):
                scores = []
                for j in range(i + 1):
                    told = i - j if i - j < window else i // group + window - window // group - j // group
                    pair = as_complex(q[b, h, i]) * as_complex(k[b, h // shared, j]).conj()
                    score = (pair * torch.polar(torch.ones_like(omega), told * omega)).real.sum() / math.sqrt(dim)
                    factor = 1.0 if scale is None else float(scale(torch.tensor([i + 1])))
                    scores.append(score * factor)
                out[b, h, i] = torch.stack(scores).softmax(0) @ v[b, h // shared, : i + 1]
    return out


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 13), st.integers(1, 14), st.integers(1, 5), st.sampled_from([(1, 1), (2, 1), (4, 2)]), st.booleans()
)
def test_against_loops(seq: int, window: int, group: int, heads: tuple[int, int], scaled: bool) -> None:
    """Odd sizes, windows longer than the text, groups that do not divide it, grouped heads, log n."""
    torch.manual_seed(seq)
    q, k, v = (torch.randn(2, n, seq, c, dtype=torch.float64) for n, c in ((heads[0], 4), (heads[1], 4), (heads[1], 3)))
    scale = rl.LogN(4) if scaled else None
    row = rl.scheme("rope", dim=4, base=100.0, scale=scale)
    expected = by_loops(q, k, v, rl.rope_frequencies(4, base=100.0), window, group, scale)
    found = self_extend_attention(q, k, v, row, window=window, group=group)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


def test_a_group_of_one_is_rope() -> None:
    q, k, v = torch.randn(3, 1, 2, 40, 8)
    row = rl.scheme("rope", dim=8)
    found = self_extend_attention(q, k, v, row, window=5, group=1)
    torch.testing.assert_close(found, rl.attention(q, k, v, row), atol=1e-5, rtol=0)


def test_gradients() -> None:
    inputs = [torch.randn(1, 1, 6, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    row = rl.scheme("rope", dim=4)
    assert torch.autograd.gradcheck(lambda q, k, v: self_extend_attention(q, k, v, row, window=2, group=2), inputs)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"window": 0}, "window must be an int of at least 1"),
        ({"group": 0}, "group must be an int of at least 1"),
        ({"scheme": rl.scheme("nope")}, "scheme must be causal RoPE"),
        ({"scheme": rl.scheme("rerope", dim=4, window=2)}, "scheme must be causal RoPE"),
        ({"scheme": rl.scheme("window", dim=4, visible_window=2)}, "scheme must be causal RoPE"),
        ({"scheme": rl.scheme("rope", dim=4, causal=False)}, "scheme must be causal RoPE"),
        ({"q": torch.ones(1, 1, 2, 4)}, "q must have as many tokens as k, 5, got 2"),
    ],
)
def test_bad_input(options: dict, told: str) -> None:
    x = torch.ones(1, 1, 5, 4)
    given = {"q": x, "k": x, "v": x, "scheme": rl.scheme("rope", dim=4), "window": 2, "group": 2, **options}
    with pytest.raises(ValueError, match=told):
        self_extend_attention(**given)


def test_streaming_with_grouped_heads() -> None:
    """Two heads of queries on each head of keys: as with the keys written out twice."""
    q, (k, v) = torch.randn(1, 4, 12, 4), torch.randn(2, 1, 2, 12, 4)
    row = rl.scheme("lambda", dim=4, visible_window=4, sinks=2)
    twice = [x.repeat_interleave(2, dim=1) for x in (k, v)]
    torch.testing.assert_close(streaming_attention(q, k, v, row), streaming_attention(q, *twice, row))


@pytest.mark.parametrize(
    "scheme",
    [
        rl.scheme("rope", dim=4),
        rl.scheme("lambda", dim=4, visible_window=4, scale=rl.LogN(4)),
        rl.scheme("rerope", dim=4, window=2, visible_window=4, sinks=1),
    ],
)
def test_streaming_refuses_other_schemes(scheme: rl.Scheme) -> None:
    with pytest.raises(ValueError, match="scheme must"):
        streaming_attention(*torch.randn(3, 1, 1, 9, 4), scheme)


def test_the_method() -> None:
    """Its row hands the attention on; it is trained as RoPE, and equal settings are equal."""
    made = rl.METHODS["self-extend"](layers=2, dim=4, window=2, group=2)
    assert made == rl.METHODS["self-extend"](layers=2, dim=4, window=2, group=2)
    assert made.train == rl.METHODS["rope"](layers=2, dim=4).train
    q, k, v = torch.randn(3, 1, 1, 9, 4)
    assert made.attend is not None
    expected = self_extend_attention(q, k, v, made.test[0], window=2, group=2)
    assert torch.equal(made.attend(q, k, v, made.test[0]), expected)
    with pytest.raises(ValueError, match="window must be an int of at least 1"):
        rl.METHODS["self-extend"](layers=2, dim=4, window=0, group=2)
