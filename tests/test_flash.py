"""``backend="flash"`` against the dense reference in float64, and against the equation written out pair by pair."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import rope_lessons as rl
from rope_lessons import FrequencySpec, LogN, Scheme
from rope_lessons.engine import bands, flash, kernels
from rope_lessons.engine.kernels import Card, choose_on_card
from rope_lessons.engine.merge import merge_
from rope_lessons.engine.parts import Part, causal_band
from tests import on_device
from tests.equation import attention_by_equation
from tests.on_device import make, with_gradients

ROPE = FrequencySpec("rope", dim=8, base=100.0)  # a small base: even the slowest pair turns within a few tokens
SLOPES = (0.0, 1 / 8, 1.0, 16.0)
EXACT = 1e-10  # what float64 rounding may leave, over all our sizes


def exact_dtype(device: torch.device) -> torch.dtype:
    """The widest dtype of the device's kernels."""
    return torch.float64 if device.type == "cpu" else torch.float32


def check(inputs: list[Tensor], scheme: Scheme, *, frequencies: Tensor | None = None, **options: Any) -> None:
    """Flash is the reference in float64: output, log-sum-exp and every gradient."""
    device, dtype = inputs[0].device, inputs[0].dtype
    learned = [] if frequencies is None else [frequencies.to(device)]

    def run(backend: str) -> Callable[..., tuple[Tensor, Tensor]]:
        return lambda q, k, v, *omega: rl.attention(
            q,
            k,
            v,
            scheme,
            backend=backend,
            frequencies=omega[0] if omega else None,
            **options,
            return_lse=True,
        )

    found = with_gradients(run("flash"), [*inputs, *learned])
    wanted = with_gradients(run("reference"), [*(x.double() for x in inputs), *learned])
    assert found[0].dtype == dtype
    bound = EXACT if dtype == torch.float64 else 1e-3
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a.double(), b.double(), atol=bound * (1 + float(b.abs().max())), rtol=0)


# --- the parts -------------------------------------------------------------------------------------------------------


def covered(q_len: int, k_len: int, parts: list[Part]) -> Tensor:
    """How often each pair is seen."""
    count = torch.zeros(q_len, k_len, dtype=torch.int64)
    for kind, (row, rows), (key, keys), blocks, pitch, window in parts:
        assert rows == keys or kind in ("full", "sliding")
        a, c = torch.arange(rows).unsqueeze(1), torch.arange(keys)
        last = a + keys - rows  # the row's own key
        seen = {
            "full": torch.ones(rows, keys, dtype=torch.bool),
            "causal": c <= a,
            "reversed": c > a,
            "sliding": (c <= last) & (c > last - window),
        }[kind]
        for n in range(blocks):
            at = slice(row + n * pitch, row + n * pitch + rows), slice(key + n * pitch, key + n * pitch + keys)
            assert count[at].shape == seen.shape
            count[at] += seen
    return count


@pytest.mark.parametrize(("grain", "slides"), [(0, False), (1, False), (2, False), (0, True)])
def test_each_pair_is_in_one_part(grain: int, slides: bool) -> None:
    for k_len, low in itertools.product(range(1, 10), range(10)):
        for q_len, high in itertools.product(range(1, k_len + 1), (None, *range(low, 12))):
            distance = torch.arange(k_len - q_len, k_len).unsqueeze(1) - torch.arange(k_len)
            wanted = (distance >= low) & (distance < (k_len if high is None else high))
            parts = causal_band(q_len, k_len, low, high, grain=grain, slides=slides)
            assert torch.equal(covered(q_len, k_len, parts), wanted.long()), (q_len, k_len, low, high)


def test_the_work_is_half_the_square() -> None:
    """Near and far together: as many pairs as plain causal attention, in a handful of calls."""
    length, window = 4096, 256
    parts = causal_band(length, length, 0, window) + causal_band(length, length, window)
    assert len(parts) == 3
    pairs = sum(
        part.blocks * part.rows[1] * (part.keys[1] + (1 if part.kind == "causal" else -1)) // 2 for part in parts
    )
    assert pairs == length * (length + 1) // 2


def test_merging_is_associative_and_an_empty_part_counts_nothing() -> None:
    outputs, lses = torch.randn(3, 5, 4, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    lses[1] = -torch.inf
    weights = lses.softmax(0).unsqueeze(-1)
    for order in itertools.permutations(range(3)):
        output, lse = torch.zeros(5, 4, dtype=torch.float64), torch.full((5,), -torch.inf, dtype=torch.float64)
        for part in order:
            merge_(output, lse, outputs[part], lses[part])
        torch.testing.assert_close(output, (weights * outputs).sum(0), atol=1e-14, rtol=0)
        torch.testing.assert_close(lse, lses.logsumexp(0), atol=1e-14, rtol=0)
    empty = torch.zeros(2, 4), torch.full((2,), -torch.inf)
    merge_(*empty, torch.zeros(2, 4), torch.full((2,), -torch.inf))
    assert (empty[0] == 0).all()
    assert (empty[1] == -torch.inf).all()


# --- the distance map ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slope", SLOPES)
@pytest.mark.parametrize("window", [0, 1, 3, 5, 12, 13, 100])
def test_distance_map(window: int, slope: float, device: torch.device) -> None:
    scheme = Scheme(ROPE, window=window, slope=slope)
    for q_len in (13, 6, 1):
        check(make(device, exact_dtype(device), q_len, 13, batch=2), scheme)


@pytest.mark.parametrize("slope", SLOPES)
def test_the_equation(slope: float, device: torch.device) -> None:
    q, k, v = make(device, exact_dtype(device), 7, 9, kv_heads=1, value_dim=5)
    scheme = Scheme(ROPE, window=3, slope=slope, scale=LogN(5, floor=2), rotary_scale=1.25, layout="interleaved")
    wanted = attention_by_equation(*(x.double().cpu() for x in (q, k, v)), scheme, frequencies=ROPE())
    found = rl.attention(q, k, v, scheme, backend="flash", return_lse=True)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a.double().cpu(), b, atol=1e-12 if a.dtype == torch.float64 else 1e-5, rtol=0)


@pytest.mark.parametrize("window", [1, 4, 7])
@pytest.mark.parametrize("slope", SLOPES)
def test_window_edge(slope: float, window: int, device: torch.device) -> None:
    """Values that are unit vectors make the output the weights. Those at w - 1, w, w + 1 have the scores they should,
    up to the row's log-sum-exp."""
    length = 2 * window + 3
    q, k, _ = make(device, exact_dtype(device), length, heads=1)
    v = torch.eye(length, dtype=q.dtype, device=device)[None, None]
    weights, lse = rl.attention(q, k, v, Scheme(ROPE, window=window, slope=slope), backend="flash", return_lse=True)
    for i, distance in itertools.product(range(length), (window - 1, window, window + 1)):
        if distance > i:
            continue
        bent = distance if distance < window else window + slope * (distance - window)
        turn = torch.tensor([bent], dtype=torch.float64, device=device)
        turned = rl.apply_rotary(q[:, :, i : i + 1], turn, ROPE(device=device), layout="half")
        score = (turned * k[:, :, i - distance]).sum() / 8**0.5
        torch.testing.assert_close(weights[0, 0, i, i - distance].log() + lse[0, 0, i], score, atol=1e-5, rtol=0)


def test_special_cases(device: torch.device) -> None:
    q, k, v = make(device, exact_dtype(device), 13)

    def run(**knobs: Any) -> Tensor:
        return rl.attention(q, k, v, Scheme(**{"frequencies": ROPE, **knobs}), backend="flash")

    plain, bound = run(), {"atol": 1e-12 if q.dtype == torch.float64 else 2e-6, "rtol": 0}
    for slope in SLOPES:  # a window that nothing is beyond; f(w) = w whatever the slope
        torch.testing.assert_close(run(window=13, slope=slope), plain, **bound)
        torch.testing.assert_close(run(window=12, slope=slope), plain, **bound)
        torch.testing.assert_close(run(window=5, slope=slope)[:, :, :6], plain[:, :, :6], **bound)
    torch.testing.assert_close(run(window=5, slope=1.0), plain, **bound)
    interpolated = run(frequencies=FrequencySpec("pi", dim=8, factor=4, base=100.0))
    torch.testing.assert_close(run(window=0, slope=0.25), interpolated, **bound)
    torch.testing.assert_close(run(window=0, slope=0.0), run(frequencies=None), **bound)


SETTINGS = {
    "nope": Scheme(),
    "nope_log_n": Scheme(scale=LogN(5, floor=2)),
    "log_n": Scheme(ROPE, scale=LogN(5, floor=2)),
    "log_n_clipped": Scheme(ROPE, window=3, slope=0.0, scale=LogN(5, clip=True, floor=1)),
    "rerope_log_n": Scheme(ROPE, window=3, slope=0.0, scale=LogN(5, floor=2), rotary_scale=1.2, base_scale=0.4),
    "interleaved": Scheme(ROPE, layout="interleaved", window=2, slope=0.0),
    "partial": Scheme(FrequencySpec("rope", dim=4), window=3, slope=0.25, scale=LogN(5, floor=2)),
    "visible_window": Scheme(ROPE, visible_window=3),
    "visible_window_1": Scheme(ROPE, visible_window=1),
    "visible_window_log_n": Scheme(ROPE, visible_window=4, scale=LogN(3, floor=1)),
    "visible_beyond_window": Scheme(ROPE, window=2, slope=0.25, visible_window=5),
    "visible_within_window": Scheme(ROPE, window=5, slope=0.25, visible_window=5),
    "bidirectional": Scheme(ROPE, causal=False, scale=LogN(5, floor=2)),
    "bidirectional_pi": Scheme(ROPE, causal=False, slope=0.25),
    "dynamic_ntk": Scheme(FrequencySpec("dynamic-ntk", dim=8, factor=2, train_length=3)),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_setting(name: str, device: torch.device) -> None:
    dtype = exact_dtype(device)
    check(make(device, dtype, 11, batch=2), SETTINGS[name])
    check(make(device, dtype, 4, 11, batch=2, heads=4, kv_heads=2, value_dim=3), SETTINGS[name])


@pytest.mark.parametrize("positions", ["offset", "stepped", "per_row"])
def test_evenly_spaced_positions(positions: str) -> None:
    """Positions that are not 0, 1, 2, … can be read on the CPU only."""
    tokens = torch.arange(11)
    where = {"offset": tokens + 1000, "stepped": 3 * tokens - 7, "per_row": torch.stack((tokens, tokens + 5))}[
        positions
    ]
    inputs = make(torch.device("cpu"), torch.float64, 6, 11, batch=2)
    for window in (1, 3, 4, 6, 7):
        scheme = Scheme(ROPE, window=window, slope=0.25)
        check(inputs, scheme, k_positions=where, q_positions=where[..., 5:])


def test_any_positions_for_a_straight_distance(device: torch.device) -> None:
    where = torch.tensor([5.5, -3.0, 0.0, 12.0, 2.0, 2.0, 9.25], dtype=torch.float64, device=device)
    inputs = make(device, exact_dtype(device), 7)
    for scheme in (Scheme(ROPE), Scheme(ROPE, slope=0.25), Scheme(ROPE, causal=False), Scheme(ROPE, visible_window=3)):
        check(inputs, scheme, k_positions=where)


# --- padding and documents -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rerope_log_n", "log_n", "visible_beyond_window", "bidirectional", "nope"])
def test_padding_and_documents(name: str, device: torch.device) -> None:
    inputs = make(device, exact_dtype(device), 9, batch=2, heads=4, kv_heads=2)
    chunk = [inputs[0][:, :, -4:], *inputs[1:]]
    ids = torch.tensor([[4, 4, 4, 7, 7, 4, 4, 4, 4], [-1, -1, 0, 0, 0, 0, 2, 2, -1]], device=device)
    lengths = torch.tensor([8, 0], device=device)
    left = torch.where(torch.arange(9, device=device) < torch.tensor([[4], [0]], device=device), -1, 0)
    for options in ({"lengths": lengths}, {"document_ids": ids}, {"document_ids": left}, {"document_ids": ids[0]}):
        check(inputs, SETTINGS[name], **options)
        check(chunk, SETTINGS[name], **options)
    check(inputs, SETTINGS[name], document_ids=ids, lengths=torch.tensor([7, 7], device=device))


@pytest.mark.parametrize("how", ["lengths", "document_ids"])
def test_padding_may_hold_anything(how: str, device: torch.device) -> None:
    """NaN in tokens that nobody sees reaches neither an output nor a gradient, the frequencies' included."""
    q, k, v = (x.requires_grad_() for x in make(device, exact_dtype(device), 6, batch=2))
    ids = torch.tensor([[0, 0, 0, -1, -1, -1], [0] * 6], device=device)
    options = {"lengths": torch.tensor([3, 6], device=device)} if how == "lengths" else {"document_ids": ids}
    omega = ROPE(device=device).requires_grad_()
    scheme = Scheme(ROPE, window=2, slope=0.0)
    dirt = torch.where(ids < 0, torch.nan, 0.0).to(q.dtype)[:, None, :, None]
    found = []
    for noise in (dirt, torch.zeros_like(dirt)):
        output = rl.attention(q + noise, k + noise, v + noise, scheme, backend="flash", frequencies=omega, **options)
        found.append((output, *torch.autograd.grad(output.square().sum(), (q, k, v, omega))))
    for dirty, clean in zip(*found, strict=True):
        assert torch.equal(dirty, clean)


# --- shapes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 63, 113, 257])
def test_lengths_of_text(length: int, device: torch.device) -> None:
    for window in (1, 16, 64):
        check(make(device, exact_dtype(device), length), Scheme(ROPE, window=window, slope=0.125))


def test_triangles_in_halves(device: torch.device) -> None:
    """Long enough for the CPU kernel's triangles to be halved, twice; and windows that are odd, or that end a block."""
    for length, window in ((1023, 512), (1100, 257), (1280, 640)):
        check(make(device, exact_dtype(device), length, heads=1), Scheme(ROPE, window=window, slope=0.125))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 1), (6, 2), (6, 3)])
def test_grouped_query_heads(
    heads: int, kv_heads: int, shared: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for kernels that do not share keys themselves: there, by a view."""
    if not shared:
        changed = {name: kernel._replace(shares_keys=lambda: False) for name, kernel in kernels.KERNELS.items()}
        monkeypatch.setattr(kernels, "KERNELS", changed)
    for batch in (1, 2):
        inputs = make(device, exact_dtype(device), 11, batch=batch, heads=heads, kv_heads=kv_heads)
        check(inputs, Scheme(ROPE, window=3, slope=0.5))
        check([inputs[0][:, :, -5:], *inputs[1:]], Scheme(ROPE, window=3, slope=0.5))


def dense(q: Tensor, k: Tensor, causal: bool, scale: float, window: int) -> Tensor:
    """The scores of a kernel that has a sliding window."""
    distance = torch.arange(k.shape[2] - q.shape[2], k.shape[2]).unsqueeze(1) - torch.arange(k.shape[2])
    scores = q @ k.mT * scale
    if causal or window:
        scores = scores.masked_fill(distance < 0, -torch.inf)
    return scores.masked_fill(distance >= window, -torch.inf) if window else scores


def dense_forward(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, window: int = 0
) -> tuple[Tensor, Tensor]:
    scores = dense(q, k, causal, scale, window)
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def dense_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor, causal: bool, scale: float,
    window: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    weights = (dense(q, k, causal, scale, window) - lse.unsqueeze(-1)).exp()
    inner = weights * (grad @ v.mT - (grad * output).sum(-1, keepdim=True)) * scale
    return inner @ k, inner.mT @ q, weights.mT @ grad


@pytest.mark.parametrize("name", ["rerope_log_n", "visible_window", "visible_beyond_window"])
def test_a_kernel_with_a_sliding_window(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As flash on CUDA: near is one call. A dense kernel stands in, so that the way there is tested without a card."""
    stand_in = kernels.Kernel(dense_forward, dense_backward, shares_keys=lambda: False, channels=8, slides=lambda: True)
    monkeypatch.setitem(kernels.KERNELS, "cpu", stand_in)
    for q_len in (11, 5, 1):
        for head_dim in (8, 12):
            inputs = make(
                torch.device("cpu"), torch.float64, q_len, 11, batch=2, heads=4, kv_heads=2, head_dim=head_dim
            )
            check(inputs, SETTINGS[name])


def test_a_group_of_heads_lends_its_keys_by_a_view() -> None:
    kernel = kernels.KERNELS["cpu"]._replace(shares_keys=lambda: False)
    q, k, v = make(torch.device("cpu"), torch.float32, 5, heads=6, kv_heads=2, batch=3)
    _, lent_k, lent_v = kernels._share(kernel, q, k, v)
    assert lent_k.shape == (6, 3, 5, 8)
    assert lent_k.data_ptr() == k.data_ptr()
    assert lent_v.data_ptr() == v.data_ptr()
    assert lent_k.stride(1) == lent_v.stride(1) == 0


@pytest.mark.parametrize("head_dim", [2, 20, 32, 64, 128, 256])
def test_head_dims(head_dim: int, device: torch.device) -> None:
    check(
        make(device, exact_dtype(device), 11, head_dim=head_dim),
        Scheme(FrequencySpec("rope", dim=2), window=4, slope=0.0),
    )


@pytest.mark.parametrize("value_dim", [1, 5, 8, 19, 64, 1536])
def test_value_dims(value_dim: int, device: torch.device) -> None:
    """1536 is the gated attention unit's, beside 128."""
    head_dim = 128 if value_dim == 1536 else 8
    inputs = make(device, exact_dtype(device), 11, heads=4, kv_heads=2, head_dim=head_dim, value_dim=value_dim)
    check(inputs, Scheme(ROPE, window=4, slope=0.0))


def test_inputs_that_are_not_contiguous(device: torch.device) -> None:
    dtype = exact_dtype(device)
    scheme = SETTINGS["rerope_log_n"]
    plain = make(device, dtype, 11, batch=2)
    wanted = rl.attention(*plain, scheme, backend="flash")
    swapped = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in plain]
    strided = [torch.stack((x, x), dim=-1)[..., 0] for x in plain]  # channels not next to each other
    turned = [x.transpose(2, 3).contiguous().transpose(2, 3) for x in plain]
    for inputs in (swapped, strided, turned):
        assert not inputs[0].is_contiguous()
        torch.testing.assert_close(rl.attention(*inputs, scheme, backend="flash"), wanted, atol=1e-6, rtol=0)
        check(inputs, scheme)
        check(inputs, Scheme())  # nothing is turned: the kernels get the strides as they are
    expanded = [plain[0][:1].expand(3, -1, -1, -1), *(x[:1].expand(3, -1, -1, -1) for x in plain[1:])]
    check(expanded, scheme)
    output = rl.attention(*(x.requires_grad_() for x in plain), scheme, backend="flash")
    assert torch.autograd.grad(output.sum(), plain)[0].isfinite().all()  # its gradient is an expanded one


# The same tensor (batch, heads, seq, channels) in another order of memory.
MEMORY: dict[str, Callable[[Tensor], Tensor]] = {
    "heads last": lambda x: x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
    "heads before channels": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "channels before tokens": lambda x: x.mT.contiguous().mT,
    "channels first": lambda x: x.permute(3, 0, 1, 2).contiguous().permute(1, 2, 3, 0),
    "every other channel": lambda x: torch.stack((x, x), dim=-1)[..., 0],
    "inside a larger one": lambda x: pad(x, (3, 2, 1, 4))[:, :, 1:-4, 3:-2],
}


@pytest.mark.parametrize("value_dim", [4, 8, 12])
@pytest.mark.parametrize("order", MEMORY)
def test_order_of_memory(order: str, value_dim: int, device: torch.device) -> None:
    """Whatever the value dimension: values that are filled up with zeros must be read in their own order."""
    inputs = make(device, exact_dtype(device), 11, batch=2, heads=4, kv_heads=2, head_dim=12, value_dim=value_dim)
    inputs = [MEMORY[order](x) for x in inputs]
    for scheme in (Scheme(), SETTINGS["rerope_log_n"], *(Scheme(visible_window=window) for window in (1, 2, 5))):
        check(inputs, scheme)


def test_one_head_out_of_a_fused_projection(device: torch.device) -> None:
    """The stride of an axis with one entry means nothing, but the CPU kernel lays its output out by those of q."""
    fused = torch.randn(2, 40, 3 * 5).to(device, exact_dtype(device))
    for rows in (fused, fused[:1]):
        q, k, v = (x.unsqueeze(-1).permute(0, 3, 1, 2) for x in rows.split(5, dim=-1))
        assert q.stride()[1:] == (1, 15, 1)
        check([q, k, v], Scheme())
        check([q[:, :, -30:], k, v], Scheme(visible_window=20))
        check([q[:, :, :1].expand_as(q), k, v], Scheme())  # one query for all


@pytest.mark.parametrize("order", MEMORY)
def test_kernels_get_channels_next_to_each_other(order: str) -> None:
    x = torch.randn(2, 4, 11, 12)
    for multiple in (1, 8, 12, 16):
        found = kernels._aligned(MEMORY[order](x), multiple)
        assert found.stride(-1) == 1
        assert found.shape[-1] % multiple == 0
        assert torch.equal(found[..., :12], x)
        assert not found[..., 12:].any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("keys", [1, 2, 3, 7, 8, 15, 16, 17])
def test_nan_in_nan_out(keys: int, dtype: torch.dtype, device: torch.device) -> None:
    """A query of NaN has an output of NaN however few keys it sees, and leaves the others alone."""
    if kernels.choose_kernel(device, dtype, 8)[0] is None:
        pytest.skip(f"no kernel for {dtype} here")
    for scheme in (Scheme(ROPE, visible_window=keys), Scheme(ROPE, window=keys, slope=0.0)):
        q, k, v = make(device, dtype, 40)
        q[:, :, 20] = torch.nan
        inputs = [x.requires_grad_() for x in (q, k, v)]
        output, lse = rl.attention(*inputs, scheme, backend="flash", return_lse=True)
        sick = torch.arange(40, device=device) == 20
        assert torch.equal(output.isnan(), sick.view(-1, 1).expand_as(output))
        assert torch.equal(lse.isnan(), sick.expand_as(lse))
        assert torch.autograd.grad(output.sum(), inputs)[0][:, :, 20].isnan().all()


def test_chunks_are_the_whole(device: torch.device) -> None:
    """Prefill in chunks, for every place to cut."""
    q, k, v = make(device, exact_dtype(device), 13, kv_heads=1)
    scheme = SETTINGS["rerope_log_n"]
    whole = rl.attention(q, k, v, scheme, backend="flash")
    for cut in range(1, 13):
        first = rl.attention(q[:, :, :cut], k[:, :, :cut], v[:, :, :cut], scheme, backend="flash")
        second = rl.attention(q[:, :, cut:], k, v, scheme, backend="flash")
        torch.testing.assert_close(torch.cat((first, second), dim=2), whole, atol=1e-6, rtol=0)


class LargestTensor(TorchDispatchMode):
    """The most elements that any operation inside returns."""

    most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(x, Tensor):
                self.most = max(self.most, x.untyped_storage().nbytes() // x.element_size())
        return result


def test_no_tensor_over_all_pairs(device: torch.device) -> None:
    """Forward and backward, every tensor made on the way is of the order of the inputs."""
    length, dtype = 2048, exact_dtype(device)
    q, k, v = make(device, dtype, length, heads=1)
    name = kernels.choose_kernel(device, dtype, 8)[0]
    options = ([0, 128], None, 0.35, True, None, name)
    with LargestTensor() as forward:
        output, lse = bands._flash([q, q], [k, k], v, *options)
    with LargestTensor() as backward:
        bands._flash_backward(output, lse, [q, q], [k, k], v, output, lse, *options)
    assert max(forward.most, backward.most) <= 4 * q.numel()
    assert 4 * q.numel() < length**2 / 60


def test_a_long_text(device: torch.device) -> None:
    """More than 65 536 tokens: the end of the one call is what a dense call gives to the last queries."""
    length, last = 65_541, 3
    q, k, v = make(device, torch.float32, length, heads=1)
    scheme = Scheme(ROPE, window=4096, slope=0.125, scale=LogN(4096, clip=True))
    assert rl.explain_backend(q, k, v, scheme).startswith("flash")
    wanted = rl.attention(q[:, :, -last:].double(), k.double(), v.double(), scheme, backend="reference")
    for output in (
        rl.attention(q[:, :, -last:], k, v, scheme, backend="flash"),
        rl.attention(q, k, v, scheme)[:, :, -last:],
    ):
        torch.testing.assert_close(output.double(), wanted, atol=2e-5, rtol=0)


# --- precision -------------------------------------------------------------------------------------------------------


def eager(q: Tensor, k: Tensor, v: Tensor, window: int, slope: float) -> tuple[Tensor, Tensor]:
    """The published way: two matrices of scores and a ``where``, in the dtype of the inputs."""
    omega, where = ROPE(device=q.device), torch.arange(q.shape[2], device=q.device)

    def turn(x: Tensor, rate: float, start: float = 0.0) -> Tensor:
        return rl.apply_rotary(x, where.double() * rate + start, omega, layout="half")

    near = turn(q, 1.0) @ turn(k, 1.0).mT
    far = turn(q, slope, window * (1 - slope)) @ turn(k, slope).mT
    distance = where.unsqueeze(1) - where
    scores = torch.where(distance < window, near, far) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(distance < 0, -torch.inf)
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("length", "window"), [(63, 16), (113, 113), (500, 128)])
def test_error_beside_eager(length: int, window: int, dtype: torch.dtype, device: torch.device) -> None:
    """At most twice the error of the eager computation in the same dtype, for the output and each gradient."""
    name, why = kernels.choose_kernel(device, dtype, 8)
    if name is None:
        pytest.skip(f"no kernel for {dtype} here: {why}")
    inputs = make(device, dtype, length)
    scheme = Scheme(ROPE, window=window, slope=0.125)

    def run(backend: str) -> Callable[..., tuple[Tensor, Tensor]]:
        return lambda *qkv: rl.attention(*qkv, scheme, backend=backend, return_lse=True)

    wanted = with_gradients(run("reference"), [x.double() for x in inputs], of_lse=False)
    ours = with_gradients(run("flash"), inputs, of_lse=False)
    theirs = with_gradients(lambda *qkv: eager(*qkv, window, 0.125), inputs, of_lse=False)
    for a, b, exact in zip(ours, theirs, wanted, strict=True):
        error, allowed = (a.double() - exact.double()).abs().max(), (b.double() - exact.double()).abs().max()
        assert error <= 2 * allowed + 1e-5


@pytest.mark.parametrize("name", ["rerope_log_n", "visible_window", "partial", "bidirectional"])
def test_gradcheck(name: str) -> None:
    inputs = [x.requires_grad_() for x in make(torch.device("cpu"), torch.float64, 3, 5, kv_heads=1)]
    assert torch.autograd.gradcheck(
        lambda *qkv: rl.attention(*qkv, SETTINGS[name], backend="flash", return_lse=True), inputs
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_differentiated_twice(name: str) -> None:
    """A second derivative, and a third: the backward of the kernels is replaced by the definition of the operation."""
    scheme = SETTINGS[name]
    inputs = [x.requires_grad_() for x in make(torch.device("cpu"), torch.float64, 3, 5, kv_heads=1)]

    def thrice(backend: str) -> Tensor:
        value = rl.attention(*inputs, scheme, backend=backend).pow(3).sum()
        for _ in range(3):
            value = torch.autograd.grad(value, inputs[0], create_graph=True)[0].square().sum()
        return value

    torch.testing.assert_close(thrice("flash"), thrice("reference"), atol=1e-12, rtol=1e-10)
    if name == "rerope_log_n":
        function = partial(rl.attention, scheme=scheme, backend="flash", return_lse=True)
        assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


def test_differentiated_twice_with_documents_and_shared_tensors() -> None:
    """One tensor as query, key and value: each use has its own share of the derivative."""
    x = torch.randn(2, 2, 9, 8, dtype=torch.float64, requires_grad=True)
    omega = ROPE().requires_grad_()
    ids = torch.tensor([[4, 4, 4, 7, 7, 4, 4, 4, 4], [-1, -1, 0, 0, 0, 0, 2, 2, -1]])

    def second(backend: str) -> tuple[Tensor, ...]:
        output = rl.attention(x, x, x, SETTINGS["rerope_log_n"], frequencies=omega, document_ids=ids, backend=backend)
        first = torch.autograd.grad(output.square().sum(), (x, omega), create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), (x, omega))

    torch.testing.assert_close(second("flash"), second("reference"), atol=1e-9, rtol=1e-9)


def test_one_backward_holds_no_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dense way is for create_graph=True only: not for a plain backward, a checkpointed or a compiled one."""

    def refuse(*_: Any) -> None:
        raise AssertionError("dense")

    monkeypatch.setattr(bands, "_differentiable_backward", refuse)
    inputs = [x.requires_grad_() for x in make(torch.device("cpu"), torch.float32, 33)]

    def run(*qkv: Tensor) -> Tensor:
        return rl.attention(*qkv, SETTINGS["rerope_log_n"], backend="flash").square().sum()

    torch._dynamo.reset()
    for function in (
        run,
        torch.compile(run, fullgraph=True, backend="aot_eager"),
        lambda *qkv: checkpoint(run, *qkv, use_reentrant=False),
    ):
        assert all(g.isfinite().all() for g in torch.autograd.grad(function(*inputs), inputs))
    with pytest.raises(AssertionError, match="dense"):
        torch.autograd.grad(run(*inputs), inputs, create_graph=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("window", [0, 256])
def test_gradients_of_the_frequencies_in_16_bits(window: int, dtype: torch.dtype) -> None:
    """They are those of float32: terms as large as the positions nearly cancel, and 16 bits would leave noise (an
    error of four times the derivative of one pair, with this window and 4096 tokens)."""
    scheme = Scheme(ROPE, window=window, slope=0.0) if window else Scheme(ROPE)
    inputs = [torch.randn(1, 1, 2048, 8).to(dtype) for _ in range(3)]
    weights = torch.randn(1, 1, 2048, 8).to(dtype)
    assert rl.attention(*inputs, scheme, frequencies=ROPE().requires_grad_(), backend="flash").dtype == dtype

    def gradient(wide: torch.dtype) -> Tensor:
        omega = ROPE().requires_grad_()
        output = rl.attention(*(x.to(wide) for x in inputs), scheme, frequencies=omega, backend="flash")
        return torch.autograd.grad((output.double() * weights.double()).sum(), omega)[0]

    wanted = gradient(torch.float64)
    assert ((gradient(dtype) - wanted).abs() <= 1e-3 * wanted.abs() + 1e-5 * wanted.norm()).all()


@pytest.mark.parametrize("shape", [(4,), (3,), (4, 4)])
def test_gradients_of_the_frequencies(shape: tuple[int, ...], device: torch.device) -> None:
    frequencies = torch.rand(shape, dtype=torch.float64)
    inputs = make(device, exact_dtype(device), 7, heads=4, kv_heads=2)
    for scheme in (Scheme(ROPE, window=2, slope=0.5), Scheme(window=3, slope=0.0), Scheme(ROPE)):
        check(inputs, scheme, frequencies=frequencies)


def test_one_of_the_two_outputs_is_enough(device: torch.device) -> None:
    """The gradient of the output alone and of the log-sum-exp alone add up to that of both."""
    inputs = [x.requires_grad_() for x in make(device, exact_dtype(device), 7)]
    output, lse = rl.attention(*inputs, SETTINGS["rerope_log_n"], backend="flash", return_lse=True)
    both, one, other = (
        torch.autograd.grad(loss, inputs, retain_graph=True, allow_unused=True)
        for loss in (output.square().sum() + lse.square().sum(), output.square().sum(), lse.square().sum())
    )
    for a, b, c in zip(both, one, other, strict=True):
        torch.testing.assert_close(a, b + c)
    assert (other[2] == 0).all()  # the log-sum-exp does not depend on the values


def test_repeatable(device: torch.device) -> None:
    inputs = [x.requires_grad_() for x in make(device, torch.float32, 300, kv_heads=1)]
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        runs = [
            torch.autograd.grad(rl.attention(*inputs, SETTINGS["rerope_log_n"], backend="flash").square().sum(), inputs)
            for _ in range(3)
        ]
    finally:
        torch.use_deterministic_algorithms(before)
    for again in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], again, strict=True))


# --- PyTorch's machinery ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("documents", [False, True])
def test_opcheck(documents: bool, device: torch.device) -> None:
    q, k, v = (x.requires_grad_() for x in make(device, torch.float32, 9, kv_heads=1))
    far_q, far_k = (x.detach().clone().requires_grad_() for x in (q, k))
    name = kernels.choose_kernel(device, torch.float32, 8)[0]
    ids = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, -1]], device=device) if documents else None
    arguments = ([q, far_q], [k, far_k], v, [0, 4], 7, 0.3, True, ids, name)
    torch.library.opcheck(bands.flash_op, arguments)
    with torch.no_grad():
        output, lse = bands.flash_op(*arguments)
    detached = ([x.detach() for x in arguments[0]], [x.detach() for x in arguments[1]], v.detach())
    torch.library.opcheck(
        bands.flash_backward_op, (output, lse, *detached, output, lse, *arguments[3:]), test_utils="test_schema"
    )
    torch.library.opcheck(
        bands.flash_backward_op, (output, lse, *detached, output, lse, *arguments[3:]), test_utils="test_faketensor"
    )


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize("name", ["rerope_log_n", "visible_window"])
def test_compile(name: str, device: torch.device) -> None:
    """No graph break, one compilation for all lengths, the same gradients."""

    def loss(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return rl.attention(q, k, v, SETTINGS[name], backend="flash").square().sum()

    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend="aot_eager")
    for number, length in enumerate((13, 7, 31)):
        inputs = [
            x.requires_grad_() for x in make(device, torch.float32, length, batch=2, heads=4, kv_heads=2, value_dim=6)
        ]
        known = contextlib.nullcontext() if number == 0 else torch._dynamo.config.patch(error_on_recompile=True)
        with known:
            found = torch.autograd.grad(compiled(*inputs), inputs)
        torch.testing.assert_close(found, torch.autograd.grad(loss(*inputs), inputs), atol=1e-4, rtol=1e-4)


@pytest.mark.usefixtures("_fresh_compiler")
def test_compile_with_padding_and_positions(device: torch.device) -> None:
    """What would have to be read falls back to the reference, without a graph break."""
    scheme = Scheme(ROPE, window=3, slope=0.5)

    def run(q: Tensor, k: Tensor, v: Tensor, ids: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        apart = rl.attention(q, k, v, scheme, document_ids=ids, backend="flash")
        return apart, rl.attention(q, k, v, scheme, k_positions=positions)

    compiled = torch.compile(run, fullgraph=True, backend="eager")
    arguments = *make(device, torch.float32, 9), torch.arange(9, device=device) // 4, torch.arange(9, device=device)
    torch.testing.assert_close(compiled(*arguments), run(*arguments), atol=1e-5, rtol=1e-5)


def test_checkpointing(device: torch.device) -> None:
    inputs = [x.requires_grad_() for x in make(device, torch.float32, 33)]

    def run(*qkv: Tensor) -> Tensor:
        return rl.attention(*qkv, SETTINGS["rerope_log_n"], backend="flash").square().sum()

    wanted = torch.autograd.grad(run(*inputs), inputs)
    found = torch.autograd.grad(checkpoint(run, *inputs, use_reentrant=False), inputs)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_autocast(device: torch.device) -> None:
    """Inside autocast the precision is that of the inputs, as for the reference."""
    inputs = [x.requires_grad_() for x in make(device, torch.float32, 33)]

    def run() -> list[Tensor]:
        output = rl.attention(*inputs, SETTINGS["rerope_log_n"], backend="flash")
        return [output, *torch.autograd.grad(output.square().sum(), inputs)]

    wanted = run()
    with torch.autocast(device.type, dtype=torch.bfloat16):
        found = run()
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


class Layer(torch.nn.Module):
    """A projection and attention with learned frequencies."""

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(16, 48, bias=False)
        self.frequencies = torch.nn.Parameter(ROPE())

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        scheme = Scheme(ROPE, window=4, slope=0.125)
        return rl.attention(q, k, v, scheme, frequencies=self.frequencies, backend="flash")


def test_distributed_data_parallel(tmp_path: Any) -> None:
    """One process is enough to go through DDP's hooks."""
    if not torch.distributed.is_available():
        pytest.skip("this PyTorch is built without torch.distributed")
    layer, x = Layer(), torch.randn(2, 11, 16)
    alone = copy.deepcopy(layer)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        torch.nn.parallel.DistributedDataParallel(layer)(x).square().sum().backward()
    finally:
        torch.distributed.destroy_process_group()
    alone(x).square().sum().backward()
    for a, b in zip(layer.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


# --- what is chosen, and why -----------------------------------------------------------------------------------------

UNEVEN = torch.tensor([0, 1, 2, 4, 8, 16, 32])
CANNOT: dict[str, tuple[Scheme, dict[str, Any], str]] = {
    "bias": (Scheme(ROPE), {"bias": torch.zeros(7, 7)}, "bias"),
    "alibi": (Scheme(ROPE, alibi=True), {}, "ALiBi"),
    "sinks": (Scheme(ROPE, visible_window=3, sinks=1), {}, "sinks"),
    "bent_both_sides": (Scheme(ROPE, window=3, slope=0.0, causal=False), {}, "both sides"),
    "window_both_sides": (Scheme(ROPE, visible_window=3, causal=False), {}, "both sides"),
    "uneven": (Scheme(ROPE, window=3, slope=0.0), {"k_positions": UNEVEN}, "evenly spaced"),
    "backwards": (Scheme(ROPE, window=3, slope=0.0), {"k_positions": -torch.arange(7)}, "evenly spaced"),
    "fractional": (Scheme(ROPE, window=3, slope=0.0), {"k_positions": torch.arange(7).double() / 2}, "fractional"),
    "shifted": (
        Scheme(ROPE, window=3, slope=0.0),
        {"k_positions": torch.arange(7), "q_positions": torch.arange(7) + 1},
        "the last of the keys'",
    ),
}


@pytest.mark.parametrize("name", CANNOT)
def test_what_it_cannot_do(name: str) -> None:
    """Under "flash" an error with the reason; under "auto" the reference, with the reason on request."""
    scheme, options, reason = CANNOT[name]
    q, k, v = make(torch.device("cpu"), torch.float32, 7)
    with pytest.raises(ValueError, match=rf"backend must be .*'flash': .*{reason}"):
        rl.attention(q, k, v, scheme, backend="flash", **options)
    said = rl.explain_backend(q, k, v, scheme, **options)
    assert said.startswith("reference: ")
    assert reason in said
    wanted = rl.attention(q, k, v, scheme, backend="reference", **options)
    assert torch.equal(rl.attention(q, k, v, scheme, **options), wanted)


def test_auto() -> None:
    """Short texts and what flash cannot do go to the reference, the rest to flash. What counts is all scores: those
    of every row of the batch and every head."""
    scheme = Scheme(ROPE, window=16, slope=0.0)
    for heads in (1, 8):
        most = math.isqrt(flash.CPU_SCORES // heads)
        for length, name in ((most, "reference"), (most + 1, "flash")):
            inputs = make(torch.device("cpu"), torch.float32, length, heads=heads)
            assert rl.explain_backend(*inputs, scheme).startswith(f"{name}: ")
            assert torch.equal(rl.attention(*inputs, scheme), rl.attention(*inputs, scheme, backend=name))
    inputs = make(torch.device("cpu"), torch.float32, 513, heads=1)
    assert "near and far" in rl.explain_backend(*inputs, scheme)
    assert "one kernel call" in rl.explain_backend(*inputs, Scheme(ROPE))
    assert "document" in rl.explain_backend(*inputs, Scheme(ROPE), document_ids=torch.arange(513) // 100)


@pytest.mark.parametrize(
    ("card", "dtype", "head_dim", "wanted"),
    [
        (Card((9, 0)), torch.bfloat16, 64, "flash"),
        (Card((9, 0)), torch.float16, 256, "flash"),
        (Card((8, 9)), torch.float16, 256, "efficient"),
        (Card((9, 0)), torch.bfloat16, 512, "efficient"),
        (Card((9, 0), flash=False), torch.bfloat16, 128, "cudnn"),
        (Card((9, 0), flash=False, cudnn=False), torch.bfloat16, 128, "efficient"),
        (Card((9, 0)), torch.float32, 64, "efficient"),
        (Card((7, 5)), torch.float16, 64, "efficient"),
        (Card((7, 5)), torch.float32, 64, "efficient"),
        (Card((7, 5)), torch.bfloat16, 64, None),
        (Card((9, 0), efficient=False), torch.float32, 64, None),
    ],
)
def test_kernel_of_a_card(card: Card, dtype: torch.dtype, head_dim: int, wanted: str | None) -> None:
    name, why = choose_on_card(card, dtype, head_dim)
    assert name == wanted
    assert why


@pytest.mark.parametrize("name", ["flash", "cudnn", "efficient"])
@pytest.mark.parametrize(("head_dim", "value_dim"), [(64, 64), (20, 20), (64, 136)])
def test_cuda_calls_fit_their_signatures(name: str, head_dim: int, value_dim: int) -> None:
    """Without a card: shapes only, on the meta device. PyTorch checks the arguments against its own schemas."""
    q, k, v = (
        torch.empty(2, heads, 40, dim, device="meta", dtype=torch.bfloat16)
        for heads, dim in ((4, head_dim), (2, head_dim), (2, value_dim))
    )
    for causal, window in ((True, 0), (False, 0), *([(False, 7)] if name == "flash" else [])):
        output, lse = kernels.forward(name, q, k, v, causal, 0.1, window)
        assert output.shape == (2, 4, 40, value_dim)
        assert (lse.shape, lse.dtype) == ((2, 4, 40), torch.float32)
        grads = kernels.backward(name, output, q, k, v, output, lse, causal, 0.1, window)
        assert [x.shape for x in grads] == [q.shape, k.shape, v.shape]


# --- on a card: what tests/on_device.py checks, which the GPU queue calls without pytest ---------------------------


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("name", on_device.CHECKS)
def test_on_cuda(name: str) -> None:
    if (why := on_device.CHECKS[name](torch.device("cuda"))) is not None:
        pytest.skip(f"not on this card: {why}")


def test_the_checks_on_a_cpu() -> None:
    """The kernel of the CPU is checked like the others; what needs CUDA says so."""
    cpu = torch.device("cpu")
    assert on_device.CHECKS["kernel, bfloat16"](cpu) is None
    others = [check for name, check in on_device.CHECKS.items() if not name.startswith("kernel, ")]
    assert [check(cpu) for check in others] == ["it needs CUDA"] * 12


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_checks_can_fail(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = kernels.forward
    monkeypatch.setattr(kernels, "forward", lambda *a: tuple(x + 0.5 for x in forward(*a)))
    with pytest.raises(AssertionError, match="not close"):
        on_device.check_kernel(torch.device("cpu"), None, dtype)
