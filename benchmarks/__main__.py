"""Every row of the benchmark table, in one run; the result goes to ``results/bench_<device>.json``, and
a copy into the package.

    python -m benchmarks                 # all tables
    python -m benchmarks memory decode   # these only; the others in the file stay

On a machine with CUDA the GPU rows, else the CPU rows: those with one thread and by the processor's time, so that what
else runs does not count. About four minutes on a CPU.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch

from benchmarks import decode, memory, rotary, speed, training
from rope_lessons.lab.byte_lm import CHECKPOINTS

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Run, print, store."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    if device.type == "cpu":
        torch.set_num_threads(1)
    tables: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "forward": lambda: speed.beside_plain(device, backward=False),
        "forward_and_backward": lambda: speed.beside_plain(device, backward=True),
        "beside_eager_rerope": lambda: speed.beside_eager(device),
        "memory": lambda: memory.rows(device),
        "decode": lambda: decode.rows(device.type),
        "training_step": lambda: training.rows(device),
        "rotary": lambda: rotary.rows(device),
    }
    path = ROOT / "results" / f"bench_{device.type}.json"
    result: dict[str, Any] = {"where": where(device)}
    chosen = sys.argv[1:] or list(tables)
    if path.exists() and sys.argv[1:]:
        result = {**json.loads(path.read_text("utf8")), **result}
    for name in chosen:
        begin = time.perf_counter()
        result[name] = tables[name]()
        for row in result[name]:
            print(name, json.dumps(row), flush=True)
        print(f"{name}: {time.perf_counter() - begin:.0f} s", flush=True)
        for copy in (path, CHECKPOINTS / path.name):  # the second travels with the package, for chapter 13
            copy.parent.mkdir(exist_ok=True)
            copy.write_text(json.dumps(result, indent=2) + "\n", "utf8")
    print(f"stored in {path.relative_to(ROOT)}")


def where(device: torch.device) -> dict[str, Any]:
    """Hardware, versions, date."""
    found: dict[str, Any] = {
        "command": "python -m benchmarks",
        "date": date.today().isoformat(),
        "hardware": _processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if device.type == "cuda":
        card = torch.cuda.get_device_properties(device)
        found |= {"hardware": card.name, "capability": f"{card.major}.{card.minor}", "cuda": torch.version.cuda}
    return found


def _processor() -> str:
    """Its name, and what PyTorch uses of it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}"


if __name__ == "__main__":
    main()
