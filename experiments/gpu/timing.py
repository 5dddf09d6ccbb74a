"""Times of calls that take turns, every repetition of them; memory; and what a call does on the device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from experiments.benchmarks.timing import Times, in_turns, wait
from experiments.gpu.step import Row, Setting

Calls = Mapping[str, Callable[[], Any]]
ENOUGH = 0.7  # seconds of a call, if that is more than LEAST rounds
LEAST, MOST = 7, 40


def usable(calls: Calls, device: torch.device) -> tuple[dict[str, Callable[[], Any]], dict[str, str], float]:
    """The calls that this device can do, why it cannot do the others, and seconds of the slowest. Compiles them too."""
    good, reasons, slowest = {}, {}, 0.0
    for name, call in calls.items():
        try:
            call()
            wait(device)
            slowest = max(slowest, *in_turns({name: call}, 1, device, warm_up=1)[name])
        except Exception as error:
            reasons[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"[:300]
            if is_broken(device):
                raise
            continue
        good[name] = call
    return good, reasons, slowest


def forget_compiled() -> None:
    """Compiled code of one shape makes that of the next dynamic, and after a few shapes PyTorch compiles no more."""
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()


def is_broken(device: torch.device) -> bool:
    """Whether the device answers nothing any more: after some errors of a kernel it does not."""
    try:
        torch.zeros(1, device=device).add_(1)
        wait(device)
    except RuntimeError:
        return True
    return False


def measure(calls: Calls, setting: Setting) -> tuple[Times, dict[str, str]]:
    """Seconds of every repetition of the calls that can be done, and why the others cannot."""
    good, reasons, slowest = usable(calls, setting.device)
    setting.check_time()
    rounds = min(MOST, max(LEAST, int(ENOUGH / max(slowest, 1e-6))))
    return in_turns(good, setting.by_scale(rounds, 3, 2), setting.device, warm_up=1), reasons


def peak_bytes(call: Callable[[], Any], device: torch.device) -> int | None:
    """Above what there was before; None on a CPU, where only a process as a whole can be asked."""
    if device.type != "cuda":
        return None
    wait(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    wait(device)
    return torch.cuda.max_memory_allocated(device) - before


def profile(call: Callable[[], Any], device: torch.device, what: str, most: int = 12) -> list[Row]:
    """The kernels of a call: how often, and the device's time of all of them. On a CPU the operations."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as seen:
        call()
        wait(device)
    rows = []
    for event in seen.key_averages():
        on_device = device.type == "cuda" and event.device_type.name == "CUDA"
        time = event.self_device_time_total if on_device else event.self_cpu_time_total
        if time > 0 and (on_device or device.type == "cpu"):
            rows.append({"what": what, "kernel": event.key[:160], "calls": event.count, "microseconds": round(time, 2)})
    return sorted(rows, key=lambda row: -row["microseconds"])[:most]


def rows_of(times: Times, **labels: Any) -> list[Row]:
    """A row for each call, with all of its seconds."""
    return [
        {"what": name, **labels, "seconds": [float(f"{s:.5g}") for s in seconds]} for name, seconds in times.items()
    ]
