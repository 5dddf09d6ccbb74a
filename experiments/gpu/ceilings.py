"""What the card can do at most, measured: bytes of its memory and of its cache, products, exponentials."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor

from experiments.gpu import timing
from experiments.gpu.engine import dtype_of
from experiments.gpu.step import Found, Row, Setting, could_not
from rope_lessons.lab import speed

TIMES = 64  # exponentials of a number in one kernel, so that its bytes do not count
COPIES = 8  # of a small buffer, one after the other


def exponentials(x: Tensor) -> Tensor:
    """Many for each number that is read: ``2^(-x)`` again and again, which stays between 0 and 1."""
    for _ in range(TIMES):
        x = torch.exp2(-x)
    return x


def measure(setting: Setting) -> Found:
    """A rate for each. Copies count bytes read and bytes written."""
    on = setting.device
    large, small = setting.by_scale((2**32, 2**23), (2**26, 2**18), (2**16, 2**12))
    whole = torch.rand(large // 4, device=on)
    piece, target = torch.rand(2, small // 4, device=on)
    numbers = torch.rand(setting.by_scale(2**26, 2**18, 2**10), device=on)
    powers = torch.compile(exponentials) if on.type == "cuda" else exponentials

    def in_cache() -> None:
        for _ in range(COPIES):
            target.copy_(piece)

    calls: dict[str, tuple[Callable[[], Any], str, float]] = {
        "copy": (lambda: whole.clone(), "bytes", 2 * whole.nbytes),
        "copy in the cache": (in_cache, "bytes", 2 * COPIES * piece.nbytes),
        "exponentials": (lambda: powers(numbers), "exponentials", TIMES * numbers.numel()),
    }
    rows: list[Row] = []
    reasons: dict[str, str] = {}
    for name, (call, unit, amount) in calls.items():
        times, why = timing.measure({name: call}, setting)
        for row in timing.rows_of(times, unit=unit, amount=amount):
            rows.append({**row, "a_second": amount / median(row["seconds"])})
        reasons |= why
    dtype = dtype_of(setting)
    for side, rate in speed.matrix_rate(on, dtype, setting.by_scale(None, (256, 512), (16,))).items():
        rows.append({"what": f"products, side {side}", "unit": "operations", "dtype": str(dtype), "a_second": rate})
    return Found({"ceilings": rows, "could_not": could_not(reasons)})
