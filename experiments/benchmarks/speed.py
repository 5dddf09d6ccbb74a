"""ReRoPE and Leaky ReRoPE, forward and backward, beside plain RoPE, and beside the way ReRoPE was published.

python -m experiments.benchmarks.speed
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.benchmarks import table
from experiments.benchmarks.sides import Side, eager_rerope, inputs, ours, plain_rope
from experiments.benchmarks.timing import in_turns, milliseconds, ratio
from rope_lessons.engine.targets import EAGER, SLOPES, SPEED, WINDOW

HEADS = {"cpu": 2, "cuda": 16}
DIMS = {"cpu": (64,), "cuda": (64, 128)}
DTYPES = {"cpu": torch.float32, "cuda": torch.bfloat16}


def beside_plain(device: torch.device, backward: bool, window: int = WINDOW) -> list[dict[str, Any]]:
    """One row for each length and method."""
    return [
        row
        for dim in DIMS[device.type]
        for times, limits in SPEED[device.type].items()
        for row in _beside_plain(device, dim, window, times * window, backward, limits[backward])
    ]


def _beside_plain(
    device: torch.device, dim: int, window: int, length: int, backward: bool, target: float
) -> list[dict[str, Any]]:
    heads = HEADS[device.type]
    qkv = inputs(length, heads, dim, device, DTYPES[device.type])
    sides = {**plain_sides(device), **_our_sides(device, dim, window)}
    calls = {name: partial(once, side, qkv, backward) for name, side in sides.items()}
    times = in_turns(calls, 7 if length <= 8192 or device.type == "cuda" else 3, device, warm_up=1)
    plain = min(plain_sides(device), key=lambda name: milliseconds(times, name))
    return [
        {
            "what": f"{name}, w = {window}, {'forward and backward' if backward else 'forward'}",
            "beside": f"plain RoPE, {plain}",
            "length": length,
            "shape": f"{heads} heads, head_dim {dim}, {str(DTYPES[device.type]).removeprefix('torch.')}",
            "milliseconds": milliseconds(times, name),
            "beside_milliseconds": milliseconds(times, plain),
            "ratio": ratio(times, name, plain),
            "target": target,
        }
        for name in _our_sides(device, dim, window)
    ]


def plain_sides(device: torch.device) -> dict[str, Side]:
    """Plain RoPE through each kernel of PyTorch that could be the fastest."""
    if device.type == "cpu":
        return {"SDPA": plain_rope}
    return {
        "SDPA, flash": partial(_only, plain_rope, SDPBackend.FLASH_ATTENTION),
        "SDPA, cuDNN": partial(_only, plain_rope, SDPBackend.CUDNN_ATTENTION),
    }


def _our_sides(device: torch.device, dim: int, window: int) -> dict[str, Side]:
    sides = {name: ours(dim, window, slope) for name, slope in SLOPES.items()}
    if device.type == "cpu":
        return sides
    cudnn = {f"{name}, cuDNN": partial(_only, side, SDPBackend.CUDNN_ATTENTION) for name, side in sides.items()}
    return {**sides, **cudnn}


def _only(side: Side, kernel: SDPBackend, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(kernel):
        return side(q, k, v)


def once(side: Side, qkv: tuple[Tensor, ...], backward: bool) -> None:
    """Forward, or forward and backward."""
    if not backward:
        with torch.no_grad():
            side(*qkv)
        return
    leaves = tuple(x.detach().requires_grad_() for x in qkv)
    output = side(*leaves)
    torch.autograd.grad(output, leaves, qkv[0])


def beside_eager(device: torch.device, window: int = WINDOW, length: int | None = None) -> list[dict[str, Any]]:
    """The engine and the published way; by default at a length where the published way still fits."""
    (fitting, target), heads, dim = EAGER[device.type], HEADS[device.type], 64
    length = length or fitting
    qkv = inputs(length, heads, dim, device, DTYPES[device.type])
    sides: dict[str, Side] = {
        "eager": partial(eager_rerope, window=window, slope=0.0),
        "rerope": ours(dim, window, 0.0),
    }
    found = []
    for backward in (False, True):
        calls = {name: partial(once, side, qkv, backward) for name, side in sides.items()}
        times = in_turns(calls, 5, device, warm_up=1)
        found.append(
            {
                "what": f"rerope, w = {window}, {'forward and backward' if backward else 'forward'}",
                "beside": "eager ReRoPE: two matrices of scores and a where",
                "length": length,
                "shape": f"{heads} heads, head_dim {dim}, {str(DTYPES[device.type]).removeprefix('torch.')}",
                "milliseconds": milliseconds(times, "rerope"),
                "beside_milliseconds": milliseconds(times, "eager"),
                "times_faster": ratio(times, "eager", "rerope"),
                "target_times_faster": target,
            }
        )
    return found


if __name__ == "__main__":
    table.show(
        "experiments.benchmarks.speed",
        __doc__,
        lambda device: beside_eager(device) + beside_plain(device, False) + beside_plain(device, True),
    )
