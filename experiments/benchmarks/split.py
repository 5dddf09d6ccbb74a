"""Where the time of ReRoPE goes beyond plain RoPE's: into the attention kernels, or around them. CPU only.

    python -m experiments.benchmarks.split

Beside it, how long a copy takes of as many bytes as ReRoPE moves more than plain RoPE: what the counts of
``engine.cost`` would predict with a bandwidth that is measured and not fitted. Forward, the processor's time.

Two controls, each a table of its own: the same calls on one head of four channels, which move next to nothing, so that
what they still take is the price of starting them; and how much of the published way's time its products take.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from experiments.benchmarks import table
from experiments.benchmarks.sides import eager_rerope, inputs, ours, plain_rope
from experiments.benchmarks.speed import DIMS, DTYPES, HEADS, once
from experiments.benchmarks.timing import in_turns, milliseconds
from rope_lessons import rope_frequencies, rotary_table
from rope_lessons.engine import targets
from rope_lessons.engine.kernels import KERNELS
from rope_lessons.rotary import rotate

LENGTHS, ROUNDS = (4096, 8192, 16_384), 15
SMALL = 4  # channels of the one head that moves next to nothing


def rows(device: torch.device, lengths: tuple[int, ...] = LENGTHS, rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """One row for each length: medians in milliseconds, of a whole call and of the attention kernels in it."""
    return [_row(device, length, rounds) for length in lengths] if device.type == "cpu" else []


def _row(device: torch.device, length: int, rounds: int) -> dict[str, Any]:
    (dim,), heads, dtype = DIMS["cpu"], HEADS["cpu"], DTYPES["cpu"]
    qkv = inputs(length, heads, dim, device, dtype)
    bent = partial(once, ours(dim, targets.WINDOW, 0.0), qkv, False)
    q, k, v = qkv
    kernel = partial(torch.nn.functional.scaled_dot_product_attention, q, k, v, is_causal=True)
    calls: dict[str, Callable[[], Any]] = {
        "rerope": bent,
        "rope": partial(once, plain_rope, qkv, False),
        "kernel": kernel,
        "copy": q.clone,
    }
    with kernels_timed() as kernels:
        times = in_turns(calls, rounds, device, warm_up=1)
    plain, engine = targets.steps("rerope", length, backward=False)
    more = sum(step.bytes for step in engine if not step.pairs) - sum(step.bytes for step in plain if not step.pairs)
    parts = len(kernels) // (rounds + 1)  # the first round is warming up
    each = [sum(kernels[at : at + parts]) for at in range(parts, len(kernels), parts)]
    rate = 2 * q.nbytes / median(times["copy"])
    return {
        "what": f"rerope, w = {targets.WINDOW}, forward",
        "length": length,
        "shape": f"{heads} heads, head_dim {dim}, {str(dtype).removeprefix('torch.')}",
        "milliseconds": milliseconds(times, "rerope"),
        "kernels_milliseconds": round(1e3 * median(each), 3),
        "beside_milliseconds": milliseconds(times, "rope"),
        "beside_kernel_milliseconds": milliseconds(times, "kernel"),
        "more_megabytes": round(more / 1e6, 1),
        "copy_gigabytes_a_second": round(rate / 1e9, 1),
        "copy_milliseconds": round(1e3 * more / rate, 3),
    }


# --- what the same calls take when they move next to nothing ----------------------------------------------------------


def small_rows(device: torch.device, lengths: tuple[int, ...] = LENGTHS, rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """One row for each length: medians in milliseconds, of what is around the attention kernels."""
    return [_small_row(device, length, rounds) for length in lengths] if device.type == "cpu" else []


def _small_row(device: torch.device, length: int, rounds: int) -> dict[str, Any]:
    q, k, v = inputs(length, 1, SMALL, device, DTYPES["cpu"])
    bent = partial(once, ours(SMALL, targets.WINDOW, 0.0), (q, k, v), False)
    calls: dict[str, Callable[[], Any]] = {"rerope": bent, "turns": partial(_turned, q, k)}
    with kernels_timed() as kernels, torch.no_grad():
        times = in_turns(calls, rounds, device, warm_up=1)
    parts = len(kernels) // (rounds + 1)
    inside = [sum(kernels[at : at + parts]) for at in range(parts, len(kernels), parts)]
    around = median(whole - kernel for whole, kernel in zip(times["rerope"], inside, strict=True))
    return {
        "what": f"rerope, w = {targets.WINDOW}, forward, around its kernels",
        "length": length,
        "shape": f"1 head, head_dim {SMALL}, {str(DTYPES['cpu']).removeprefix('torch.')}",
        "kernel_calls": parts,
        "milliseconds": round(1e3 * around, 3),
        "beside_milliseconds": milliseconds(times, "turns"),
    }


def _turned(q: Tensor, k: Tensor) -> None:
    """What plain RoPE does around its kernel."""
    cos, sin = rotary_table(torch.arange(q.shape[2]), rope_frequencies(q.shape[3]))
    for x in (q, k):
        rotate(x, cos, sin, layout="half")


# --- what the published way waits for ---------------------------------------------------------------------------------


class Timed(TorchDispatchMode):
    """Seconds in products of matrices, and in everything."""

    def __init__(self) -> None:
        super().__init__()
        self.products = self.all = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        begin = time.process_time()
        result = func(*args, **(kwargs or {}))
        seconds = time.process_time() - begin
        self.all += seconds
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.bmm):
            self.products += seconds
        return result


def eager_rows(device: torch.device, length: int = LENGTHS[0], rounds: int = 7) -> list[dict[str, Any]]:
    """How much of the published way's time its three products of matrices take, forward."""
    if device.type != "cpu":
        return []
    (dim,), heads, dtype = DIMS["cpu"], HEADS["cpu"], DTYPES["cpu"]
    qkv, shares, whole = inputs(length, heads, dim, device, dtype), [], []
    for turn in range(rounds + 1):
        with Timed() if turn else nullcontext(Timed()) as seen:
            once(partial(eager_rerope, window=targets.WINDOW, slope=0.0), qkv, False)
        if turn:
            shares.append(seen.products / seen.all)
            whole.append(seen.all)
    return [
        {
            "what": "eager ReRoPE, forward: share of its time in products of matrices",
            "length": length,
            "shape": f"{heads} heads, head_dim {dim}, {str(dtype).removeprefix('torch.')}",
            "milliseconds": round(1e3 * median(whole), 3),
            "products_share": round(median(shares), 3),
        }
    ]


@contextmanager
def kernels_timed() -> Iterator[list[float]]:
    """Seconds of each call of the engine's kernel, in a list."""
    found: list[float] = []
    before = KERNELS["cpu"]

    def forward(*arguments: Any, **options: Any) -> Any:
        begin = time.process_time()
        result = before.forward(*arguments, **options)
        found.append(time.process_time() - begin)
        return result

    KERNELS["cpu"] = before._replace(forward=forward)
    try:
        yield found
    finally:
        KERNELS["cpu"] = before


if __name__ == "__main__":
    table.show("experiments.benchmarks.split", __doc__, rows)
