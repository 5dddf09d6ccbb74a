"""Chapters 12 and 13: all that a GPU has to tell the book, a small step at a time, the most valuable missing one first.

    python -m experiments.gpu --minutes 9 --out results/gpu/1 --have results/gpu      # what fits into nine minutes
    python -m experiments.gpu --list --have results/gpu                               # what is done, and what is left
    python -m experiments.gpu --store --have results/gpu                              # into the book, once it is there

Takes about 3 to 4 hours of an H200 in all, in pieces of any length: an estimate, for it has not run on one yet.

A result is written as soon as its step is done, into one of at most six files of at most 15 MB in the folder of --out.
What is in the folder of --have, or in a folder in it, is not done again; nor is what is in that of --out already. What
failed, or was at work when the process was killed, comes again after everything else. Checkpoints stay in the folder of
--work: on the same machine an interrupted training goes on from there; only what was counted leaves it.

Runs from a copy of the tree, without git, on Linux with Python 3.10 or newer and PyTorch 2.5 or newer. PyTorch and
NumPy are enough for right, fast, decode and rotation; each other step names what it needs. What could not be compared
with, since it is not installed or the card has no such kernel, stands in the table could_not of a step.

    right        the kernels of the card, random calls against the oracle, caches, a step of every model
    notebooks    the cells of every notebook, from the wheel, without the repository
    engine       times beside plain RoPE through each stock kernel; decoding; rotation; what the card can do at most
    table        the articles' table, 512 tokens in training and up to 8192 at test
    chomsky      the reduced grid

--dry does all of it in tiny on a CPU, as the tests do. --device cpu --small does the first three on a CPU for real, in
sizes that take a quarter of an hour.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from experiments import command
from experiments.gpu import records, store
from experiments.gpu.plan import queue
from experiments.gpu.records import Record, Records
from experiments.gpu.step import Setting, Step
from experiments.gpu.work import in_order, limits, work
from rope_lessons._checks import check_positive
from rope_lessons.lab import command as lab
from rope_lessons.stored import DATA, check_writable

NAME = "python -m experiments.gpu"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    own = command.parser("experiments.gpu", __doc__)
    what = own.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="print the steps, their state and their minutes, and stop")
    what.add_argument("--store", action="store_true", help="write the book's own data from what --have has, and stop")
    own.add_argument("--minutes", type=float, help="stop after them; needed, but with --list, --store and --dry")
    own.add_argument("--out", type=Path, default=Path("results/gpu"), metavar="FOLDER", help="results/gpu if not given")
    own.add_argument("--have", type=Path, nargs="+", default=[], metavar="FOLDER", help="with results of earlier runs")
    own.add_argument("--work", type=Path, default=Path(".models/gpu"), metavar="FOLDER", help="what stays here")
    own.add_argument("--commit", metavar="ID", help="of the code; asked of git if not given, where there is git")
    own.add_argument("--only", nargs="+", metavar="NAME", help="only steps whose names begin so")
    own.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    size = own.add_mutually_exclusive_group()
    size.add_argument("--small", action="store_true", help="sizes for a CPU")
    size.add_argument("--dry", action="store_true", help="all of it in tiny, on a CPU")
    options = own.parse_args(arguments)
    if options.dry:
        options.device, options.minutes = "cpu", options.minutes or 10.0
    if options.minutes is None and not (options.list or options.store):
        own.error("argument --minutes: how long may it take?")
    for name in ("out", "work"):
        try:
            check_writable(f"--{name}", getattr(options, name), folder=True)
        except ValueError as error:
            own.error(str(error))
        if getattr(options, name).resolve().is_relative_to(DATA.parent):
            own.error(
                f"argument --{name}: {getattr(options, name)} is in the package; --store writes the book's own data"
            )
    for folder in options.have:
        if not folder.is_dir():
            own.error(f"argument --have: {folder} is no folder")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    return lab.run(NAME, lambda: run(options))


def run(options: argparse.Namespace) -> None:
    scale = "tiny" if options.dry else "small" if options.small else "full"
    steps = chosen(queue(scale, options.device), options.only)
    found = records.read([*options.have, options.out], print)
    if options.store:
        return store.write(records.best(found, ("cuda", "full")), DATA)
    known = records.best(found, (options.device, scale))
    if options.list:
        return print(*listed(steps, known), sep="\n")
    check_positive("minutes", options.minutes)
    if options.device == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "device must be one that is here, got 'cuda': only --dry and --device cpu --small need no card"
        )
    if scale == "full" and options.device == "cpu":
        raise ValueError("small or dry must be given for a CPU: the sizes of a card are too large for it")
    end = time.time() + 60 * options.minutes
    setting = Setting(torch.device(options.device), scale, options.work, end, options.commit or commit())
    options.work.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or PyTorch's profiler says when it begins and ends
    states = work(steps, known, setting, Records(options.out))
    counts = {state: list(states.values()).count(state) for state in records.STATES}
    return print(", ".join(f"{count} {state}" for state, count in counts.items() if count) or "nothing is left to do")


def chosen(steps: list[Step], only: Sequence[str] | None) -> list[Step]:
    """The steps whose names begin as it was asked.

    Raises:
        ValueError: none begins so.
    """
    for begin in only or ():
        if not any(step.name.startswith(begin) for step in steps):
            groups = ", ".join(dict.fromkeys(step.group for step in steps))
            raise ValueError(f"only must be the beginning of a step's name, of {groups}; got {begin!r}")
    return [step for step in steps if only is None or step.name.startswith(tuple(only))]


def listed(steps: Sequence[Step], known: dict[str, Record]) -> list[str]:
    """A line for each step in the order in which they are done, those that are done last; and how much is left."""
    left = in_order(steps, known)
    done = [step for step in steps if step not in left]
    rows = [(step, "to do" if step.name not in known else known[step.name].state) for step in (*left, *done)]
    wide = max(len(step.name) for step in steps)
    lines = []
    for step, state in rows:
        took = f", {known[step.name].content['minutes']:.1f} taken" if state == "done" else ""
        needs = f"; needs {', '.join(step.missing())}" if step.missing() else ""
        state = "killed" if state == "begun" else state
        lines.append(f"{step.name:{wide}}  {state:7} {step.minutes:5.1f} minutes{took}{needs}")
    most = limits(torch.device("cuda"), cores=16)  # as on the machine whose minutes these are
    minutes = sum(step.minutes / most[step.lane] for step in left)
    return [*lines, f"{len(left)} of {len(rows)} steps are left, about {minutes:.0f} minutes"]


def commit() -> str | None:
    """What git says of this tree; None where it is none."""
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


if __name__ == "__main__":
    sys.exit(main())
