"""Chapter 13: what the engine costs beside plain RoPE: time forward and backward, memory, decoding, a training step.

    python -m experiments.benchmarks                      # all tables
    python -m experiments.benchmarks memory decode        # these only; the others in the file stay

Takes about 5 minutes on a CPU.

Writes bench_DEVICE.json, again after each table. On a machine with CUDA the GPU rows, else the CPU rows: those with one
thread and by the processor's time, so that what else runs does not count.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from experiments.benchmarks import decode, memory, pretrained, rotary, speed, split, training
from experiments.benchmarks.table import Rows, device_here, one_thread
from experiments.command import add_places, parse, parser
from experiments.hardware import processor
from rope_lessons.stored import Table, provenance, read_results, write_results

TABLES: dict[str, Rows] = {
    "forward": lambda device: speed.beside_plain(device, backward=False),
    "forward_and_backward": lambda device: speed.beside_plain(device, backward=True),
    "beside_eager_rerope": speed.beside_eager,
    "memory": memory.rows,
    "decode": lambda device: decode.rows(device.type),
    "decode_pretrained": pretrained.rows,
    "training_step": training.rows,
    "rotary": rotary.rows,
    "split": split.rows,
    "split_small": split.small_rows,
    "split_eager": split.eager_rows,
}


def main(arguments: Sequence[str] | None = None, tables: Mapping[str, Rows] = TABLES) -> int:
    """Run, print, write."""
    device, options = device_here(), read(arguments, tables)
    path = options.out / f"bench_{device.type}.json"
    try:
        found = before(path, tables)
        one_thread(device)
        torch.manual_seed(0)
        chosen = {name: tables[name] for name in options.tables or tables}
        measure(chosen, device, found, path)
    except (OSError, ValueError) as error:
        print(f"python -m experiments.benchmarks: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("python -m experiments.benchmarks: interrupted. The tables that were done are kept", file=sys.stderr)
        return 130
    print(f"written: {path}")
    return 0


def read(arguments: Sequence[str] | None, tables: Mapping[str, Rows]) -> argparse.Namespace:
    own = parser("experiments.benchmarks", __doc__)
    own.add_argument("tables", nargs="*", metavar="TABLE", help=f"all, or some of {', '.join(tables)}")
    add_places(own, models=False)
    options = parse(own, arguments)
    for table in options.tables:
        if table not in tables:
            own.error(f"argument TABLE: {table!r} is none of {', '.join(tables)}")
        if options.tables.count(table) > 1:
            own.error(f"argument TABLE: {table!r} is there twice")
    return options


def before(path: Path, tables: Mapping[str, Rows]) -> dict[str, list[dict[str, Any]]]:
    """What a file of an earlier run has: the tables that are not measured now stay.

    Raises:
        ValueError: a file that this program did not write.
    """
    if not path.exists():
        return {}
    try:
        found = {name: list(rows) for name, rows in read_results(path).items() if isinstance(rows, Table)}
    except ValueError as error:
        raise ValueError(f"{path} is no result of this program and stays as it is: {error}") from error
    if not found or not found.keys() <= tables.keys():
        raise ValueError(f"{path} is no result of this program and stays as it is")
    return found


def measure(
    tables: Mapping[str, Rows], device: torch.device, found: dict[str, list[dict[str, Any]]], path: Path
) -> None:
    """One table after the other; what is done so far is written after each. Each row has the date of its own run."""
    for name, rows in tables.items():
        begin, date = time.perf_counter(), provenance(device)["date"]
        found[name] = [{**row, "date": date} for row in rows(device)]
        for row in found[name]:
            print(name, row, flush=True)
        print(f"{name}: {time.perf_counter() - begin:.0f} s", flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_results(path, where(device), **found)


def where(device: torch.device) -> dict[str, Any]:
    """Hardware, versions, date."""
    found: dict[str, Any] = {
        "script": "python -m experiments.benchmarks",
        **provenance(device),
        "threads": torch.get_num_threads(),
    }
    if device.type == "cuda":
        card = torch.cuda.get_device_properties(device)
        return {**found, "capability": f"{card.major}.{card.minor}", "cuda": torch.version.cuda}
    return {**found, "hardware": processor()}


if __name__ == "__main__":
    sys.exit(main())
