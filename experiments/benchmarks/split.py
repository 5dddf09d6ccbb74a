"""Where the time of ReRoPE goes beyond plain RoPE's: into the attention kernels, or around them. CPU only.

    python -m experiments.benchmarks.split

Beside it, how long a copy takes of as many bytes as ReRoPE moves more than plain RoPE: what the counts of
``engine.cost`` would predict with a bandwidth that is measured and not fitted. Forward, the processor's time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

import torch

from experiments.benchmarks import table
from experiments.benchmarks.sides import inputs, ours, plain_rope
from experiments.benchmarks.speed import DIMS, DTYPES, HEADS, once
from experiments.benchmarks.timing import in_turns, milliseconds
from rope_lessons.engine import targets
from rope_lessons.engine.kernels import KERNELS

LENGTHS, ROUNDS = (4096, 8192, 16_384), 15


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
