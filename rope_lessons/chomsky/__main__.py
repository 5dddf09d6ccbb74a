"""Train and test the models of the benchmark. Jobs that are done are skipped, and an interrupted one goes on.

    python -m rope_lessons.chomsky --task parity_check --model transformer --positions rope --variant random
    python -m rope_lessons.chomsky --list                                  # what would be done, and how many jobs

Several processes, on one machine or on several with a shared folder, may work on one results file: with --shard 0/4,
1/4, … or started by torchrun each takes its own part, and no job is ever done by two.

The whole grid at reduced steps on one GPU, in pieces of ten minutes: repeat until nothing is left. Small models leave
most of a GPU idle, so eight processes share it. (Written for that, and not yet run on a GPU.)

    torchrun --nproc-per-node 8 -m rope_lessons.chomsky --protocol reduced-gpu --seeds 0 1 2 --learning-rate 3e-4 \\
        --side-by-side 9 --minutes 9 --results results/chomsky_gpu.csv
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from rope_lessons.chomsky import TASKS, results
from rope_lessons.chomsky.encoder import POSITIONS
from rope_lessons.chomsky.grid import LEARNING_RATES, MODELS, SEEDS, VARIANTS, Job, groups, jobs
from rope_lessons.chomsky.training import PROTOCOLS, Protocol, Training


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    protocol = changed(PROTOCOLS[options.protocol], options.set)
    tasks = list(TASKS) if options.task == ["all"] else options.task
    wanted = jobs(tasks, options.model, options.positions, options.variant, options.seeds, options.learning_rate)
    shard, shards = which_shard(options.shard)
    mine = list(groups(wanted, options.side_by_side))[shard::shards]
    finished = results.done(options.results[0], protocol)
    left = sum(job.name not in finished for group in mine for job in group)
    print(f"{len(wanted)} jobs, {sum(map(len, mine))} in this part, {left} left; protocol {protocol.digest()}: "
          f"{protocol.changes() or 'as published'}", flush=True)  # fmt: skip
    if options.list:
        for group in mine:
            print(*(("done " if job.name in finished else "     ") + job.name for job in group), sep="\n")
        return
    deadline = time.monotonic() + 60 * options.minutes
    for group in mine:
        if time.monotonic() < deadline:
            work(group, protocol, options, deadline)


def work(group: tuple[Job, ...], protocol: Protocol, options: argparse.Namespace, deadline: float) -> None:
    """Train and test what is left of a group, unless another process is at it."""
    with ExitStack() as held:
        left = []
        for job in group:
            lock = options.checkpoints / "locks" / f"{protocol.digest()}-{short(job.name)}.lock"
            if held.enter_context(results.locked(lock, wait=False)):
                left.append(job)
        finished = results.done(options.results[0], protocol)  # read after the lock: another process may be through
        left = [job for job in left if job.name not in finished]
        if not left:
            return
        training = Training(left, protocol, options.device)
        path = options.checkpoints / f"{short(training.identity())}.checkpoint"
        training.resume(path)
        if train(training, path, options.save_every, deadline, options.quiet):
            begin = time.perf_counter()
            with tqdm(total=len(protocol.test_lengths), desc=f"testing {title(left)}", disable=options.quiet) as bar:
                found = training.evaluate(lambda length: bar.update())
            write(training, found, training.seconds + time.perf_counter() - begin, options.results)
            for old in (path, path.with_suffix(".previous")):
                old.unlink(missing_ok=True)


def train(training: Training, path: Path, save_every: float, deadline: float, quiet: bool = False) -> bool:
    """Train to the end, with a checkpoint every so many seconds; False if the deadline comes first."""
    steps = training.protocol.steps
    begin = saved = time.perf_counter()
    before = training.seconds

    def save() -> None:
        training.seconds = before + time.perf_counter() - begin
        training.save(path)

    with tqdm(total=steps, initial=training.step, desc=title(training.jobs), mininterval=5, disable=quiet) as bar:
        while training.step < steps:
            training.advance()
            bar.update()
            if training.step % 50 == 0:
                bar.set_postfix_str(f"loss {torch.stack(training.recent[-50:]).mean():.4f}", refresh=False)
            if time.monotonic() > deadline:
                save()
                return False
            if time.perf_counter() - saved > save_every:
                save()
                saved = time.perf_counter()
    save()
    return True


def write(training: Training, found: list[dict[str, Any]], seconds: float, paths: Sequence[Path]) -> None:
    losses = torch.stack(training.recent).double().mean(dim=0).tolist()
    by_job = dict(zip(training.jobs, losses, strict=True))
    lines = results.lines_of(
        found, training.protocol, training.task.level, by_job, seconds / len(training.jobs), training.device
    )
    for path in paths:
        results.append(path, lines)


def title(group: Sequence[Job]) -> str:
    """A name for the progress bar."""
    first = group[0]
    variants = "+".join(dict.fromkeys(job.variant for job in group))
    return f"{first.task} {first.model} {first.positions} {variants} x{len(group)}"


def short(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def which_shard(given: str | None) -> tuple[int, int]:
    """Number of this part and of all parts: what was given, or what torchrun says."""
    if given is None:
        return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    shard, _, shards = given.partition("/")
    if not (shard.isdecimal() and shards.isdecimal() and int(shard) < int(shards)):
        raise SystemExit(f"--shard must be i/n with i from 0 to n-1, got {given}")
    return int(shard), int(shards)


def own_device() -> torch.device:
    """The CPU, or a CUDA device; the processes that torchrun starts are dealt out to all of them."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())


def changed(protocol: Protocol, changes: Sequence[str]) -> Protocol:
    """The protocol with some fields set, each written ``name=value``; lists are written ``a+b``."""
    types = {f.name: type(f.default) for f in fields(Protocol)}
    values: dict[str, Any] = {}
    for change in changes:
        name, _, text = change.partition("=")
        if name not in types:
            raise SystemExit(f"--set must name one of {', '.join(types)}, got {change}")
        convert: dict[type, Callable[[str], Any]] = {
            bool: lambda text: {"True": True, "False": False}[text],
            tuple: lambda text: tuple(int(x) if x.isdecimal() else x for x in text.split("+")),
        }
        try:
            values[name] = convert.get(types[name], types[name])(text)
        except (KeyError, ValueError):
            raise SystemExit(f"--set {name} must be a {types[name].__name__}, got {text!r}") from None
    return replace(protocol, **values)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m rope_lessons.chomsky", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--task", nargs="+", default=["all"], choices=["all", *TASKS], metavar="TASK",
                   help=f"all (the default), or some of {', '.join(TASKS)}")  # fmt: skip
    p.add_argument("--model", nargs="+", default=list(MODELS), choices=MODELS)
    p.add_argument("--positions", nargs="+", default=list(POSITIONS), choices=POSITIONS)
    p.add_argument("--variant", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    p.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    p.add_argument("--learning-rate", nargs="+", type=float, default=list(LEARNING_RATES))
    p.add_argument("--protocol", default="published", choices=PROTOCOLS)
    p.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="fields of the protocol to change")
    p.add_argument("--results", nargs="+", type=Path, default=[Path("chomsky.csv")],
                   help="where results are appended; the first file also says what is done")  # fmt: skip
    p.add_argument("--checkpoints", type=Path, default=Path(".models/chomsky"), help="folder of unfinished trainings")
    p.add_argument("--side-by-side", type=int, default=3, help="most models that train in one process at once")
    p.add_argument("--shard", metavar="I/N", help="do part I (from 0) of N; torchrun's RANK and WORLD_SIZE otherwise")
    p.add_argument("--device", type=torch.device, default=own_device(), help="the CUDA device with torchrun's number")
    p.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long, with a checkpoint")
    p.add_argument("--save-every", type=float, default=60.0, help="seconds between checkpoints")
    p.add_argument("--list", action="store_true", help="print the jobs of this part and stop")
    p.add_argument("--quiet", action="store_true", help="no progress bars")
    return p


if __name__ == "__main__":
    main()
