"""Peak memory of a forward and backward pass: the engine's, plain RoPE's and that of the published way, each in its own
process.

python -m experiments.benchmarks.memory                          # the table
python -m experiments.benchmarks.memory SIDE LENGTH [DEVICE]     # one row: bytes above those of the inputs
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from experiments import command
from experiments.benchmarks import table
from experiments.benchmarks.sides import Side, eager_rerope, inputs, ours, plain_rope
from experiments.benchmarks.speed import DTYPES, once
from rope_lessons.engine.targets import WINDOW

HEADS, DIM = 1, 64
LENGTHS = {"cpu": (2048, 4096, 8192, 16_384, 32_768, 65_536), "cuda": (8192, 16_384, 32_768, 65_536, 131_072)}
SIDES: dict[str, Side] = {
    "rope": plain_rope,
    "rerope": ours(DIM, WINDOW, 0.0),
    "eager": partial(eager_rerope, window=WINDOW, slope=0.0),
}
ROOM = 0.5  # of the machine's memory: beyond it the eager side is not tried


def rows(device: torch.device) -> list[dict[str, Any]]:
    """One row a length, with the peaks of all sides; that of the eager side is extrapolated where it no longer fits."""
    found: list[dict[str, Any]] = []
    expected = 0
    for length in LENGTHS[device.type]:
        linear = {f"{side}_megabytes": _in_a_process(side, length, device) for side in ("rope", "rerope")}
        row: dict[str, Any] = {"length": length, **linear}
        if expected <= ROOM * _machine_megabytes(device):
            row["eager_megabytes"] = expected = _in_a_process("eager", length, device)
        else:
            row["eager_would_need_megabytes"] = expected
        found.append(row)
        expected *= 4  # the lengths double
    return found


def _in_a_process(side: str, length: int, device: torch.device) -> int:
    words = [sys.executable, "-m", "experiments.benchmarks.memory", side, str(length), device.type]
    return round(int(subprocess.run(words, check=True, capture_output=True, text=True).stdout) / 1e6)


def _machine_megabytes(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory / 1e6
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak(side: str, length: int, device: torch.device) -> int:
    """Bytes at the peak of one forward and backward pass, above those before it."""
    once(SIDES[side], inputs(256, HEADS, DIM, device, DTYPES[device.type]), backward=True)  # libraries are loaded
    qkv = inputs(length, HEADS, DIM, device, DTYPES[device.type])
    before = _most(device)
    once(SIDES[side], qkv, backward=True)
    return _most(device) - before


def main(arguments: Sequence[str] | None = None) -> None:
    """The table, or one row of it: an own process for each is what makes peaks comparable."""
    parser = command.parser("experiments.benchmarks.memory", __doc__)
    parser.add_argument("side", nargs="?", choices=SIDES, help="only this one")
    parser.add_argument("length", nargs="?", type=int, help="tokens")
    parser.add_argument("device", nargs="?", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args(arguments)
    if options.side is None:
        return table.show("experiments.benchmarks.memory", __doc__, rows, [])
    if options.length is None or options.length < 1:
        parser.error(f"argument length: must be an int of at least 1, got {options.length}")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("argument device: there is no CUDA device here")
    torch.set_num_threads(1)
    return print(peak(options.side, options.length, torch.device(options.device)))


def _most(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:  # Linux; its ru_maxrss would begin at what the parent process held
        lines = Path("/proc/self/status").read_text("utf8").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except OSError:
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
