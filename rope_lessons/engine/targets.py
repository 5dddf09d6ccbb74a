"""The stored benchmarks, the targets they are held against, and what the counts of ``engine.cost`` predict.

``python -m experiments.benchmarks`` measures a CPU and ``python -m experiments.gpu`` a card; ``bench_cpu.json`` and
``bench_cuda.json`` keep the results. A device that was not measured has no file, and a file may lack tables that were
not measured yet: everything here says so instead of guessing. Chapter 13 uses it.
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
METHODS = {**SLOPES, "invleaky": 16.0}  # of those on a card


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
    measured: Callable[[Mapping[str, Any]], float | None]  # from a stored result; None where that was not measured
    at_most: bool = True  # or at least

    def verdict(self, result: Mapping[str, Any] | None) -> tuple[str, str]:
        """What was measured, and met, missed or not yet measured."""
        value = None if result is None else self.measured(result)
        if value is None:
            return "", NOT_MEASURED
        met = value <= self.limit if self.at_most else value >= self.limit
        return f"{value:.2f}", "met" if met else "missed"


def _rows(result: Mapping[str, Any], table: str) -> list[Mapping[str, Any]]:
    """Of a table; none where it was not measured."""
    return list(result.get(table) or ())


def _ratio(table: str, length: int) -> Callable[[Mapping[str, Any]], float | None]:
    """ReRoPE at a length: the better of our kernels for each shape, and of the shapes the worst."""

    def find(result: Mapping[str, Any]) -> float | None:
        rows = [row for row in _rows(result, table) if row["what"].startswith("rerope,") and row["length"] == length]
        shapes = {row["shape"] for row in rows}
        return max((min(row["ratio"] for row in rows if row["shape"] == shape) for shape in shapes), default=None)

    return find


def _eager(backward: bool) -> Callable[[Mapping[str, Any]], float | None]:
    def find(result: Mapping[str, Any]) -> float | None:
        rows = _rows(result, "beside_eager_rerope")
        return float(rows[backward]["times_faster"]) if len(rows) == 2 else None

    return find


def growth(result: Mapping[str, Any], side: str = "rerope") -> float | None:
    """The exponent with which the peak of memory grows, from the shortest to the longest text measured; None where
    fewer than two were."""
    rows = [row for row in _rows(result, "memory") if row[f"{side}_megabytes"] is not None]
    if len(rows) < 2:
        return None
    memory = math.log(rows[-1][f"{side}_megabytes"] / rows[0][f"{side}_megabytes"])
    return memory / math.log(rows[-1]["length"] / rows[0]["length"])


def _worst(table: str) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda result: max((row["ratio"] for row in _rows(result, table)), default=None)


def _step(length: int) -> Callable[[Mapping[str, Any]], float | None]:
    """A training step with InvLeaky at a length."""

    def find(result: Mapping[str, Any]) -> float | None:
        rows = [row for row in _rows(result, "training_step") if "InvLeaky" in row["what"] and row["length"] == length]
        return max((row["ratio"] for row in rows), default=None)

    return find


def _best_share(result: Mapping[str, Any]) -> float | None:
    return max((row["share_of_copy"] for row in _rows(result, "rotary") if "ours" in row["what"]), default=None)


# length by window: at most so many times plain RoPE's time, forward and with backward
SPEED = {"cpu": {4: (1.35, 1.35), 8: (1.20, 1.20), 16: (1.10, 1.10)}}
SPEED["cuda"] = {8: (1.25, 1.25), 16: (1.12, 1.15), 32: (1.08, 1.10)}
EAGER = {"cpu": (4096, 8.0), "cuda": (8192, 10.0)}  # length; at least so many times faster than the published way
DECODE, TRAINING_STEP = 1.05, 1.03  # at most so many times plain RoPE's time
STEP_LENGTH = {"cpu": 1024, "cuda": 8192}  # tokens of the training step
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
    found.append(Target(device, "training step, InvLeaky", TRAINING_STEP, _step(STEP_LENGTH[device])))
    return found


TARGETS = (
    *_of_device("cpu"),
    *_of_device("cuda"),
    Target("cuda", "rotary, share of a copy's speed", ROTARY, _best_share, at_most=False),
)


def verdicts(measured: Mapping[str, Mapping[str, Any] | None]) -> list[tuple[str, str, str, str, str]]:
    """Device, what, target, measured, and met, missed or not yet measured, for every target; and what is decided by it.

    >>> verdicts({"cpu": None, "cuda": None})[0]
    ('CPU', 'time, forward, L/w = 4', '<= 1.35', '', 'not yet measured')
    """
    rows = []
    for target in TARGETS:
        limit = f"{'<=' if target.at_most else '>='} {target.limit:g}"
        name = {"cpu": "CPU", "cuda": "GPU"}[target.device]
        rows.append((name, target.what, limit, *target.verdict(measured[target.device])))
    return [*rows, *(("GPU", what, "", "", verdict) for what, verdict in decisions(measured["cuda"]).items())]


def decisions(result: Mapping[str, Any] | None) -> dict[str, str]:
    """Is a kernel of our own worth it? The figures of a card decide.

    One that turns queries and keys is, where neither eager PyTorch nor ``torch.compile`` reaches the target. One that
    merges is, where a target of speed is missed: with the turn of the queries it would move 10 bytes per token and
    channel in 16 bits, where copies, merges and casts make it 34, so the speed of these says nothing against it.

    >>> set(decisions(None).values())
    {'not yet measured'}
    """
    result = result or {}
    turns = _best_share(result)
    speeds = [target.verdict(result)[1] for target in TARGETS if target.device == "cuda" and "L/w" in target.what]
    rotation = NOT_MEASURED if turns is None else "not worth it" if turns >= ROTARY else "worth it"
    merge = NOT_MEASURED
    if NOT_MEASURED not in speeds:
        merge = "worth it" if "missed" in speeds else "not worth it"
    return {"own kernel, rotation": rotation, "own kernel, merge": merge}


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


# --- prediction for a card, from what it was measured to do at most ---------------------------------------------------

CEILINGS = {"bandwidth": "copy", "cache": "copy in the cache", "exps": "exponentials"}


def ceilings(result: Mapping[str, Any] | None) -> cost.Device | None:
    """A card as it was measured: its fastest products, a copy of its memory and of its cache, exponentials. None where
    one of them was not measured."""
    rows = {row["what"]: row["a_second"] for row in _rows(result or {}, "ceilings")}
    flops = max((rate for what, rate in rows.items() if what.startswith("products")), default=None)
    if flops is None or not rows.keys() >= set(CEILINGS.values()):
        return None
    rates = {name: rows[what] for name, what in CEILINGS.items()}
    return cost.Device(str((result or {}).get("hardware", "a card")), flops, memory=math.inf, **rates)


def card_steps(row: Mapping[str, Any]) -> tuple[list[cost.Step], list[cost.Step]]:
    """Plain RoPE's and the engine's steps for a row of a card's benchmark, through a kernel with a sliding window."""
    sizes = cost.Sizes(row["length"], row["heads"], row["kv_heads"], row["head_dim"])
    slope = METHODS[row["what"].partition(",")[0]]
    bent = scheme("leaky-rerope", dim=sizes.head_dim, window=row["window"], slope=slope)
    backward = row["what"].endswith("backward")
    engine = cost.engine_cost(bent, sizes, slides=True, backward=backward)
    return cost.plain_cost(sizes, backward=backward), engine


def from_plain(row: Mapping[str, Any], device: cost.Device) -> float:
    """The ratio of a row, predicted from plain RoPE's own time: what the engine moves beyond it, at the speed of a
    copy. Nothing is fitted."""
    plain, engine = card_steps(row)
    more = _split(engine)[1] - _split(plain)[1]
    return 1 + 1000 * more / device.bandwidth / row["beside_milliseconds"]


def from_counts(row: Mapping[str, Any], device: cost.Device) -> tuple[float, float]:
    """The ratio of a row, predicted without any time of attention: where exponentials and products are done at the same
    time, and where they follow one another."""
    plain, engine = card_steps(row)
    with_overlap, without = (
        cost.seconds(engine, device, overlap=overlap) / cost.seconds(plain, device, overlap=overlap)
        for overlap in (True, False)
    )
    return with_overlap, without


def counted(result: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """For every row of the engine through its own kernels: the measured ratio, and the predictions of it. None of them
    where nothing was measured."""
    device = ceilings(result)
    if result is None or device is None:
        return []
    rows = [row for table in ("forward", "forward_and_backward") for row in _rows(result, table)]
    kept = [row for row in rows if row["what"].partition(", w =")[0] in METHODS]
    return [
        {
            **{name: row[name] for name in ("what", "length", "shape", "ratio")},
            "from_plain": round(from_plain(row, device), 3),
            "from_counts": [round(ratio, 3) for ratio in from_counts(row, device)],
        }
        for row in kept
    ]
