"""Every row of the benchmark table, in one run.

    python -m benchmarks                      # all tables, into bench_<device>.json in the current folder
    python -m benchmarks memory decode        # these only; the others in the file stay
    python -m benchmarks --store              # into the stored result, which the book reads:
                                              # rope_lessons/data/bench_<device>.json

On a machine with CUDA the GPU rows, else the CPU rows: those with one thread and by the processor's time, so that what
else runs does not count. About four minutes on a CPU. The file is written again after each table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks import command, decode, memory, rotary, speed, training
from rope_lessons.stored import DATA, check_writable, write_whole

ROOT = Path(__file__).resolve().parent.parent


TABLES: dict[str, command.Rows] = {
    "forward": lambda device: speed.beside_plain(device, backward=False),
    "forward_and_backward": lambda device: speed.beside_plain(device, backward=True),
    "beside_eager_rerope": speed.beside_eager,
    "memory": memory.rows,
    "decode": lambda device: decode.rows(device.type),
    "training_step": training.rows,
    "rotary": rotary.rows,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write."""
    device = command.device_here()
    name = f"bench_{device.type}.json"
    stored = DATA / name
    options = parse(arguments, name)
    path = stored if options.store else options.out
    try:
        if not options.store and options.out.resolve() == stored.resolve():
            raise ValueError(f"--out {options.out} is a stored result: --store writes it")
        check_writable("--store" if options.store else "--out", path)
        result = before(path)
    except (OSError, ValueError) as error:
        return refused(error)
    command.one_thread(device)
    torch.manual_seed(0)
    try:
        measure(options.tables, device, {**result, "where": where(device)}, path)
    except OSError as error:
        return refused(error)
    print(f"written: {path}")
    return 0


def refused(error: Exception) -> int:
    print(f"python -m benchmarks: {error}", file=sys.stderr)
    return 1


def parse(arguments: Sequence[str] | None, name: str) -> argparse.Namespace:
    parser = command.parser("benchmarks", __doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"all, or some of {', '.join(TABLES)}")
    there = parser.add_mutually_exclusive_group()
    there.add_argument("--out", type=Path, default=Path(name), metavar="FILE", help=f"{name} if not given")
    there.add_argument("--store", action="store_true", help="the stored result")
    options = parser.parse_args(arguments)
    for table in options.tables:
        if table not in TABLES:
            parser.error(f"argument TABLE: {table!r} is none of {', '.join(TABLES)}")
        if options.tables.count(table) > 1:
            parser.error(f"argument TABLE: {table!r} is there twice")
    options.tables = options.tables or list(TABLES)
    return options


def before(path: Path) -> dict[str, Any]:
    """What a file of an earlier run has: the tables that are not measured now stay.

    Raises:
        ValueError: a file that this program did not write.
    """
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text("utf8"))
    except ValueError as error:
        raise ValueError(f"{path} is no result of this program and stays as it is: {error}") from error
    if not isinstance(found, dict) or not found.keys() <= {"where", *TABLES}:
        raise ValueError(f"{path} is no result of this program and stays as it is")
    return found


def measure(tables: Sequence[str], device: torch.device, result: dict[str, Any], path: Path) -> None:
    """One table after the other; what is done so far is written after each."""
    for name in tables:
        begin = time.perf_counter()
        result[name] = TABLES[name](device)
        for row in result[name]:
            print(name, json.dumps(row), flush=True)
        print(f"{name}: {time.perf_counter() - begin:.0f} s", flush=True)
        text = json.dumps(result, indent=2) + "\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, partial(Path.write_text, data=text, encoding="utf8"))


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
    sys.exit(main())
