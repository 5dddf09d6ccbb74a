"""The stored benchmarks, the targets they are held against, and what the counts of ``engine.cost`` predict.

``python -m experiments.benchmarks`` measures; ``bench_cpu.json`` and ``bench_cuda.json`` keep the results. A device
that was not measured has no file, and everything here says so instead of guessing. Chapter 13 uses it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rope_lessons import stored
from rope_lessons.engine import cost
from rope_lessons.engine.kernels import KERNELS
from rope_lessons.schemes import scheme

NOT_MEASURED = "not yet measured"
Rows = Sequence[Mapping[str, Any]]
WINDOW, SLOPES = 1024, {"rerope": 0.0, "leaky-rerope": 1 / 8}  # of the benchmarks of speed


def results(device: str) -> stored.Results | None:
    """The stored result of a kind of device, ``"cpu"`` or ``"cuda"``; None if there is none."""
    name = f"bench_{device}"
    return stored.results(name) if (stored.DATA / f"{name}.json").exists() else None


# --- targets ---------------------------------------------------------------------------------------------------------


class Target(NamedTuple):
    """A number that was set before anything was measured."""

    device: str
    what: str
    limit: float
    measured: Callable[[Mapping[str, Any]], float]  # from a stored result
    at_most: bool = True  # or at least


def _ratio(table: str, length: int) -> Callable[[Mapping[str, Any]], float]:
    """ReRoPE at a length: the better of our kernels for each shape, and of the shapes the worst."""

    def find(result: Mapping[str, Any]) -> float:
        rows = [row for row in result[table] if row["what"].startswith("rerope,") and row["length"] == length]
        shapes = {row["shape"] for row in rows}
        return max(min(row["ratio"] for row in rows if row["shape"] == shape) for shape in shapes)

    return find


def _eager(backward: bool) -> Callable[[Mapping[str, Any]], float]:
    return lambda result: list(result["beside_eager_rerope"])[backward]["times_faster"]


def growth(result: Mapping[str, Any], side: str = "rerope") -> float:
    """The exponent with which the peak of memory grows, from the shortest to the longest text measured."""
    rows = [row for row in result["memory"] if row[f"{side}_megabytes"] is not None]
    memory = math.log(rows[-1][f"{side}_megabytes"] / rows[0][f"{side}_megabytes"])
    return memory / math.log(rows[-1]["length"] / rows[0]["length"])


def _worst(table: str) -> Callable[[Mapping[str, Any]], float]:
    return lambda result: max(row["ratio"] for row in result[table])


def _best_share(result: Mapping[str, Any]) -> float:
    return max(row["share_of_copy"] for row in result["rotary"] if "ours" in row["what"])


# length by window: at most so many times plain RoPE's time, forward and with backward
SPEED = {"cpu": {4: (1.35, 1.35), 8: (1.20, 1.20), 16: (1.10, 1.10)}}
SPEED["cuda"] = {8: (1.25, 1.25), 16: (1.12, 1.15), 32: (1.08, 1.10)}
EAGER = {"cpu": (4096, 8.0), "cuda": (8192, 10.0)}  # length; at least so many times faster than the published way
DECODE, TRAINING_STEP = 1.05, 1.03  # at most so many times plain RoPE's time
ROTARY = 0.86  # at least so much of the bandwidth of a copy


def _of_device(device: str) -> list[Target]:
    length, faster = EAGER[device]
    found = [
        Target(device, f"time, {name}, L/w = {times}", limits[backward], _ratio(table, times * WINDOW))
        for backward, name, table in (
            (False, "forward", "forward"),
            (True, "with backward", "forward_and_backward"),
        )
        for times, limits in SPEED[device].items()
    ]
    found += [
        Target(device, f"eager's time at {length}, {name}", faster, _eager(backward), at_most=False)
        for backward, name in ((False, "forward"), (True, "with backward"))
    ]
    found.append(Target(device, "exponent of memory", 1.25, growth))
    found.append(Target(device, "decode step", DECODE, _worst("decode")))
    found.append(Target(device, "training step, InvLeaky", TRAINING_STEP, _worst("training_step")))
    return found


TARGETS = (
    *_of_device("cpu"),
    *_of_device("cuda"),
    Target("cuda", "rotary, share of a copy's speed", ROTARY, _best_share, at_most=False),
)


def verdicts(measured: Mapping[str, Mapping[str, Any] | None]) -> list[tuple[str, str, str, str, str]]:
    """Device, what, target, measured, and met, missed or not yet measured, for every target.

    >>> verdicts({"cpu": None, "cuda": None})[0]
    ('CPU', 'time, forward, L/w = 4', '<= 1.35', '', 'not yet measured')
    """
    rows = []
    for target in TARGETS:
        result = measured[target.device]
        limit = f"{'<=' if target.at_most else '>='} {target.limit:g}"
        found, verdict = "", NOT_MEASURED
        if result is not None:
            value = target.measured(result)
            found = f"{value:.2f}"
            verdict = "met" if (value <= target.limit) == target.at_most or value == target.limit else "missed"
        rows.append(({"cpu": "CPU", "cuda": "GPU"}[target.device], target.what, limit, found, verdict))
    return rows


# --- prediction ------------------------------------------------------------------------------------------------------


def steps(name: str, length: int, backward: bool) -> tuple[list[cost.Step], list[cost.Step]]:
    """Plain RoPE's and the engine's steps for a row of the CPU's benchmark: two heads of 64 channels, float32."""
    sizes = cost.Sizes(length, heads=2, kv_heads=2, head_dim=64, itemsize=4)
    bent = scheme("leaky-rerope", dim=64, window=WINDOW, slope=SLOPES[name.partition(",")[0]])
    engine = cost.engine_cost(bent, sizes, grain=KERNELS["cpu"].grain, backward=backward)
    return cost.plain_cost(sizes, backward=backward), engine


def fit(row: Mapping[str, Any], backward: bool) -> cost.Device:
    """What one row of the CPU's benchmark says of the machine: two times, and two unknown speeds.

    Attention is taken to be bound by its products, everything else by its bytes.
    """
    plain, engine = steps(row["what"], row["length"], backward)
    (flops, moved), (same, more) = _split(plain), _split(engine)
    # a flops + b moved = plain time, a same + b more = our time, with a and b in seconds
    times = row["beside_milliseconds"] / 1000, row["ratio"] * row["beside_milliseconds"] / 1000
    determinant = flops * more - same * moved
    a = (times[0] * more - times[1] * moved) / determinant
    b = (times[1] * flops - times[0] * same) / determinant
    return cost.Device("the benchmark's CPU", 1 / a, 1 / b, math.inf)


def _split(found: Sequence[cost.Step]) -> tuple[int, int]:
    """Operations of the attention kernels, and bytes of all other steps."""
    kernels = [step for step in found if step.pairs]
    return sum(step.flops for step in kernels), sum(step.bytes for step in found if not step.pairs)


def seconds(found: Sequence[cost.Step], device: cost.Device) -> float:
    """As :func:`fit` takes it: attention by its products, everything else by its bytes."""
    flops, moved = _split(found)
    return flops / device.flops + moved / device.bandwidth


def predicted_ratio(name: str, length: int, backward: bool, device: cost.Device) -> float:
    """Time of the engine by the time of plain RoPE, from counts and two speeds."""
    plain, engine = steps(name, length, backward)
    return seconds(engine, device) / seconds(plain, device)
