"""The counts of ``engine/cost.py`` beside what the engine does: the kernels' arguments, the merges, the turns."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import rope_lessons as rl
from rope_lessons.engine import bands, cost, flash, kernels
from rope_lessons.engine.cost import Sizes, Step
from rope_lessons.engine.parts import causal_band

GRAIN = kernels.KERNELS["cpu"].grain
SCHEMES = {
    "rope": rl.scheme("rope", dim=8),
    "rerope": rl.scheme("rerope", dim=8, window=150),
    "leaky": rl.scheme("leaky-rerope", dim=8, window=150, slope=1 / 8),
    "visible": rl.scheme("window", dim=8, visible_window=100),
    "nope": rl.Scheme(),
}


def inputs(sizes: Sizes) -> list[Tensor]:
    q = torch.randn(1, sizes.heads, sizes.length, sizes.head_dim)
    k, v = torch.randn(2, 1, sizes.kv_heads, sizes.length, sizes.head_dim)
    return [q, k, v]


def total(steps: list[Step], name: str, what: str) -> int:
    return sum(getattr(step, what) for step in steps if step.name.startswith(name))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What kernels, merges and turns get: pairs and bytes, rows, channels."""
    count: Counter[str] = Counter()
    forward, backward, merge, rotate = kernels.forward, kernels.backward, bands.merge_, flash.rotate

    def count_kernel(name: str, q: Tensor, k: Tensor, causal: bool, moved: tuple[Tensor, ...]) -> None:
        rows, keys = q.shape[2], k.shape[2]
        count[f"{name} pairs"] += q.shape[0] * q.shape[1] * (rows * (rows + 1) // 2 if causal else rows * keys)
        count[f"{name} bytes"] += sum(x.nbytes for x in moved)

    def counting_forward(kernel: str, q: Tensor, k: Tensor, v: Tensor, causal: bool, *rest: Any) -> Any:
        output, lse = forward(kernel, q, k, v, causal, *rest)
        count_kernel("forward", q, k, causal, (q, k, v, output, lse))
        return output, lse

    def counting_backward(kernel: str, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
                          causal: bool, *rest: Any) -> Any:  # fmt: skip
        grads = backward(kernel, grad, q, k, v, o, lse, causal, *rest)
        count_kernel("backward", q, k, causal, (grad, q, k, v, o, lse, *grads))
        return grads

    def counting_merge(output: Tensor, *rest: Tensor) -> None:
        count["merged"] += output.numel()
        merge(output, *rest)

    def counting_rotate(x: Tensor, *rest: Tensor, **options: Any) -> Tensor:
        count["turned"] += x.numel()
        return rotate(x, *rest, **options)

    monkeypatch.setattr(kernels, "forward", counting_forward)
    monkeypatch.setattr(kernels, "backward", counting_backward)
    monkeypatch.setattr(bands, "merge_", counting_merge)
    monkeypatch.setattr(flash, "rotate", counting_rotate)
    return count


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_the_engine_does_what_is_counted(name: str, kv_heads: int, seen: Counter[str]) -> None:
    scheme, sizes = SCHEMES[name], Sizes(700, 4, kv_heads, 8, 4)
    qkv = [x.requires_grad_() for x in inputs(sizes)]
    rl.attention(*qkv, scheme, backend="flash").sum().backward()
    steps = cost.engine_cost(scheme, sizes, grain=GRAIN)
    assert total(steps, "attention", "pairs") == seen["forward pairs"]
    assert total(steps, "attention", "flops") == 4 * 8 * seen["forward pairs"]
    assert total(steps, "attention", "bytes") == seen["forward bytes"]
    assert total(steps, "merge", "flops") == 3 * seen["merged"]
    assert total(steps, "turn", "bytes") == 2 * 4 * seen["turned"]
    both = cost.engine_cost(scheme, sizes, grain=GRAIN, backward=True)
    assert both[: len(steps)] == steps
    assert total(both, "backward", "pairs") == seen["backward pairs"]
    assert total(both, "backward", "bytes") == seen["backward bytes"]


class Traffic(TorchDispatchMode):
    """Bytes that operations read and write; views and empty tensors move none, a copy does not read its target."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = [x for x in (result if isinstance(result, (tuple, list)) else [result]) if isinstance(x, Tensor)]
        given = [x for x in args if isinstance(x, Tensor)]
        storages = {x.untyped_storage().data_ptr() for x in given}
        name = func._schema.name
        fresh = any(x.untyped_storage().data_ptr() not in storages for x in made)
        if "empty" not in name and (name.endswith("_") or fresh):
            self.bytes += sum(x.nbytes for x in (*given[name == "aten::copy_" :], *made))
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bytes_of_the_operations(dtype: torch.dtype) -> None:
    """Forward, without turning: what PyTorch's operations move in all is what is counted, to a tenth."""
    length, heads, dim, window = 1200, 2, 64, 256
    q, k, v = torch.randn(3, 1, heads, length, dim, dtype=dtype)
    with Traffic() as traffic:
        bands._flash([q, q], [k, k], v, [0, window], None, 0.125, True, None, "cpu")
    sizes = Sizes(length, heads, heads, dim, dtype.itemsize)
    steps = cost.engine_cost(rl.scheme("rerope", dim=dim, window=window), sizes, grain=GRAIN)
    counted = sum(step.bytes for step in steps if step.name != "turn")
    assert traffic.bytes == pytest.approx(counted, rel=0.1)


def test_pairs_of_parts() -> None:
    """Every plan of a band has as many pairs as the band."""
    for q_len, k_len, low, high in ((9, 9, 0, 4), (9, 9, 4, None), (7, 12, 0, 5), (7, 12, 2, 9), (1, 6, 0, 3)):
        distance = torch.arange(k_len - q_len, k_len).unsqueeze(1) - torch.arange(k_len)
        wanted = ((distance >= low) & (distance < (k_len if high is None else high))).sum().item()
        for options in ({}, {"grain": 1}, {"slides": True}):
            assert sum(part.pairs for part in causal_band(q_len, k_len, low, high, **options)) == wanted


def test_plain_is_the_engines_one_call() -> None:
    """The engine on RoPE: the same turns and the same call, and a copy."""
    for backward in (False, True):
        sizes = Sizes(640, 4, 2, 16, 2)
        plain = cost.plain_cost(sizes, backward=backward)
        engine = cost.engine_cost(rl.scheme("rope", dim=16), sizes, backward=backward)
        assert [step for step in engine if step.name.split(",")[0] in ("turn", "attention", "backward")] == plain


def test_a_fused_merge_reads_each_output_once() -> None:
    """In the place of copies, merges and casts; kernels, turns and flips stay."""
    sizes = Sizes(700, 4, 2, 8, 2)
    for options in ({"slides": True}, {}, {"grain": GRAIN}):
        ours, fused = (cost.engine_cost(SCHEMES["rerope"], sizes, fused=fused, **options) for fused in (False, True))
        around = ("copy", "merge", "cast")
        assert fused[:-1] == [step for step in ours if step.name not in around]
        assert fused[-1].name == "merge, fused"
        assert fused[-1].bytes < total(ours, "copy", "bytes") + total(ours, "merge", "bytes")
    rows = 700 + (700 - 150) + 700  # near, far, and the whole
    assert cost.engine_cost(SCHEMES["rerope"], sizes, slides=True, fused=True)[-1].bytes == rows * 4 * (8 * 2 + 4)
    assert cost.engine_cost(SCHEMES["rope"], sizes, fused=True) == cost.plain_cost(sizes)


def test_by_hand() -> None:
    """Five words, d = 4, float32: 15 pairs of 16 operations; five vectors of 16 bytes, four times, and five numbers."""
    (turn, attend) = cost.plain_cost(Sizes(5, 1, 1, 4, 4))
    assert (attend.pairs, attend.flops, attend.bytes) == (15, 240, 4 * 5 * 16 + 5 * 4)
    assert (turn.flops, turn.bytes) == (2 * 5 * 4 * 3, 2 * 2 * 5 * 16)
    (near_far,) = [cost.engine_cost(rl.scheme("rerope", dim=4, window=2), Sizes(5, 1, 1, 4, 4))]
    assert total(near_far, "attention", "pairs") == 15


def test_roofline() -> None:
    device = cost.Device("toy", flops=100.0, bandwidth=10.0, memory=1.0)
    assert device.ridge == 10.0
    assert Step("few products", 50, 10).seconds(device) == 1.0
    assert Step("many products", 500, 10).seconds(device) == 5.0
    assert Step("many products", 500, 10).seconds(device, efficiency=0.5) == 10.0
    assert Step("many products", 500, 10).intensity == 50.0
    assert cost.seconds([Step("a", 0, 10), Step("b", 500, 10)], device) == 6.0


def test_exponentials_and_rereads() -> None:
    """Five words, d = 4, float32: 15 exponentials; a tile of 128 queries reads 15/128 of a key and value a pair."""
    attend = cost.plain_cost(Sizes(5, 1, 1, 4, 4))[1]
    assert (attend.pairs, attend.again) == (15, 2 * 4 * 4 * 15 // cost.TILE)
    slow = cost.Device("toy", flops=1e9, bandwidth=1e9, memory=1.0, exps=10.0)
    assert attend.seconds(slow) == 1.5
    assert attend.seconds(slow, overlap=False) == pytest.approx(1.5 + 240e-9)
    narrow = cost.Device("toy", flops=1e9, bandwidth=1e9, memory=1.0, cache=1.0)
    assert attend.seconds(narrow) == attend.again
    plain = cost.Device("toy", flops=1e9, bandwidth=1e9, memory=1.0)
    assert attend.seconds(plain) == max(240e-9, attend.bytes / 1e9)  # nobody knows the other two: they do not count


def test_a_long_text_is_read_again_by_every_tile() -> None:
    """Of 8192 keys and as many queries: half the square in tiles, each with its keys and values."""
    sizes = Sizes(8192, 16, 16, 128)
    attend, backward = (step for step in cost.plain_cost(sizes, backward=True) if step.pairs)
    pairs = 16 * 8192 * 8193 // 2
    assert attend.again == pairs // 128 * 2 * 128 * 2
    assert backward.again == pairs // 128 * 2 * 128 * (2 + 4)


def test_length_is_checked() -> None:
    with pytest.raises(ValueError, match="length must be an int of at least 1, got 0"):
        cost.engine_cost(SCHEMES["rerope"], Sizes(0))
