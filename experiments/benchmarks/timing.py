"""Time as ratios: sides take turns, so that what else the machine does falls on all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch

Times = dict[str, list[float]]


def in_turns(calls: Mapping[str, Callable[[], Any]], rounds: int, device: torch.device, warm_up: int = 3) -> Times:
    """Seconds of each call in each round. On a CPU it is the processor's time, all threads together, so that other
    programs do not count; on CUDA the time until the device is done."""
    times: Times = {name: [] for name in calls}
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    for turn in range(rounds + warm_up):
        for name, call in calls.items():
            wait(device)
            begin = clock()
            call()
            wait(device)
            if turn >= warm_up:
                times[name].append(clock() - begin)
    return times


def ratio(times: Times, name: str, beside: str) -> float:
    """The median of the ratios of neighbours."""
    return round(median(a / b for a, b in zip(times[name], times[beside], strict=True)), 3)


def milliseconds(times: Times, name: str) -> float:
    """The median."""
    return round(1e3 * median(times[name]), 3)


def wait(device: torch.device) -> None:
    """Until the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
