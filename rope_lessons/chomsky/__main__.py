"""Train and test the models of the benchmark. Jobs that are done are skipped, and an interrupted one goes on.

    python -m rope_lessons.chomsky --task parity_check --model transformer --positions rope --variant random
    python -m rope_lessons.chomsky --list                                  # all jobs, and how many of them are done
    python -m rope_lessons.chomsky --all                                   # all of them: 9000, of a million steps each

Several processes, on one machine or on several with a shared folder, may work on one results file: with --shard 0/4,
1/4, … or started by torchrun each takes its own part, and no job is ever done by two.

The whole grid at reduced steps on one GPU, in pieces of ten minutes: repeat until nothing is left. Small models leave
most of a GPU idle, so eight processes share it. (Written for that, and not yet run on a GPU.)

    torchrun --nproc-per-node 8 -m rope_lessons.chomsky --protocol reduced-gpu --seeds 0 1 2 --learning-rate 3e-4 \\
        --side-by-side 9 --minutes 9 --results chomsky_gpu.json
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from rope_lessons._checks import check_count, check_not_negative, check_positive
from rope_lessons._extras import extra
from rope_lessons.chomsky import TASKS, results
from rope_lessons.chomsky.encoder import POSITIONS
from rope_lessons.chomsky.grid import LEARNING_RATES, MODELS, SEEDS, VARIANTS, Job, groups, jobs
from rope_lessons.chomsky.training import (
    PROTOCOLS,
    Protocol,
    Training,
    build,
    previous,
)
from rope_lessons.lab import checkpoint, command
from rope_lessons.lab.checkpoint import CheckpointError
from rope_lessons.lab.training import device_of
from rope_lessons.stored import InUseError, check_writable, locked

CHOICES = ("task", "model", "positions", "variant", "seeds", "learning_rate")  # the arguments that choose jobs


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return command.run("python -m rope_lessons.chomsky", lambda: run(options))


def run(options: argparse.Namespace) -> None:
    """List the jobs of this process, or do what is left of them."""
    check(options)
    protocol = changed(PROTOCOLS[options.protocol], options.set)
    wanted = chosen(options)
    shard, shards = which_shard(options.shard)
    mine = list(groups(wanted, options.side_by_side))[shard::shards]
    device = device_of(options.device) if options.device is not None else own_device()
    for path in options.results:
        check_writable("--results", path)
    check_writable("--checkpoints", options.checkpoints, folder=True)
    for group in mine:
        build(group, protocol)  # what cannot be is to be said before hours of work
    finished, *_ = [results.done(path, protocol) for path in options.results]  # a look at the others too
    left = sum(job.name not in finished for group in mine for job in group)
    print(f"{len(wanted)} jobs, {sum(map(len, mine))} in this part, {left} left; protocol {protocol.digest()}: "
          f"{protocol.changes() or 'as published'}", flush=True)  # fmt: skip
    if options.list:
        for group in mine:
            print(*(("done " if job.name in finished else "     ") + job.name for job in group), sep="\n")
        return
    if not (options.all or given(options)):
        raise ValueError(
            f"these are all {len(wanted)} jobs: choose some with {flags(CHOICES)}, see them with --list, or take all "
            f"of them with --all"
        )
    command.check_extra()
    tidy(options.checkpoints, protocol, finished)
    deadline = time.monotonic() + 60 * options.minutes
    for group in mine:
        if time.monotonic() < deadline:
            work(group, protocol, options, device, deadline)
    finished = results.done(options.results[0], protocol)
    done = sum(job.name in finished for group in mine for job in group)
    left = sum(map(len, mine)) - done
    more = " The same command goes on from there." if left else ""
    print(f"{options.results[0]}: {done} of these jobs are done, {left} left.{more}")


def check(options: argparse.Namespace) -> None:
    """Everything that is known from the arguments alone."""
    for seed in options.seeds or ():
        check_count("--seeds", seed)
    for rate in options.learning_rate or ():
        check_positive("--learning-rate", rate)
    for name in CHOICES:
        check_different(name, getattr(options, name) or ())
    check_different("results", [Path(os.path.normpath(path)) for path in options.results])
    check_count("--side-by-side", options.side_by_side, least=1)
    if not options.minutes > 0:  # also false for NaN; without end is the default
        raise ValueError(f"--minutes must be a positive number, got {options.minutes}")
    check_not_negative("--save-every", options.save_every)
    if options.all and given(options):
        raise ValueError(f"--all takes the whole grid: leave it out or leave out {flags(given(options))}")


def check_different(name: str, values: Sequence[Any]) -> None:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{flags([name])} has {value} twice")


def given(options: argparse.Namespace) -> list[str]:
    """The arguments that choose jobs, as far as they were given."""
    return [name for name in CHOICES if getattr(options, name) is not None]


def flags(names: Iterable[str]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


def chosen(options: argparse.Namespace) -> list[Job]:
    """The jobs that the arguments choose; all of them where there are none."""
    tasks = options.task or ["all"]
    if "all" in tasks and len(tasks) > 1:
        raise ValueError(f"--task must be all, or some of the tasks, got {' '.join(tasks)}")
    found = jobs(
        None if tasks == ["all"] else tasks,
        options.model or MODELS,
        options.positions or POSITIONS,
        options.variant or VARIANTS,
        SEEDS if options.seeds is None else options.seeds,
        LEARNING_RATES if options.learning_rate is None else options.learning_rate,
    )
    if not found:
        names = [name for name in ("model", "positions", "variant") if name in given(options)]
        asked = (f"{flags([name])} {' '.join(getattr(options, name))}" for name in names)
        raise ValueError(f"no configuration of the grid has {', '.join(asked)}")
    return found


def tidy(folder: Path, protocol: Protocol, finished: set[str]) -> None:
    """Delete the checkpoints of jobs that have their results: a process was killed just before it did so."""
    for path in folder.glob("*.checkpoint"):
        with suppress(CheckpointError):  # it is told of when its turn comes; or another process was faster
            found = checkpoint.load(path)
            names = found.recipe.get("jobs", ())
            same = found.recipe.get("protocol") == protocol.digest()
            if same and found.step == protocol.steps and finished.issuperset(names):
                with ExitStack() as held, suppress(InUseError):
                    for name in names:
                        held.enter_context(lock(folder, protocol, name))
                    delete(path)


def lock(folder: Path, protocol: Protocol, name: str) -> AbstractContextManager[None]:
    """What keeps other processes from a job."""
    path = folder / "locks" / f"{protocol.digest()}-{short(name)}.lock"
    return locked(path, f"{name} is done by another process")


def delete(path: Path) -> None:
    for old in (previous(path), path):  # in this order: tidy finds the second
        old.unlink(missing_ok=True)


def work(
    group: tuple[Job, ...], protocol: Protocol, options: argparse.Namespace, device: torch.device, deadline: float
) -> None:
    """Train and test what is left of a group, unless another process is at it."""
    with extra("lab", "a training"):
        from tqdm import tqdm

    with ExitStack() as held:
        left = []
        for job in group:
            with suppress(InUseError):
                held.enter_context(lock(options.checkpoints, protocol, job.name))
                left.append(job)
        finished = results.done(options.results[0], protocol)  # read after the lock: another process may be through
        left = [job for job in left if job.name not in finished]
        if not left:
            return
        training = Training(left, protocol, device)
        path = options.checkpoints / f"{short(repr(training.identity()))}.checkpoint"
        training.resume(path)
        if train(training, path, options.save_every, deadline, options.quiet):
            begin = time.perf_counter()
            with tqdm(total=len(protocol.test_lengths), desc=f"testing {title(left)}", disable=options.quiet) as bar:
                found = training.evaluate(lambda length: bar.update())
            write(training, found, training.seconds + time.perf_counter() - begin, options.results)
            delete(path)


def train(training: Training, path: Path, save_every: float, deadline: float, quiet: bool = False) -> bool:
    """Train to the end, with a checkpoint every so many seconds; False if the deadline comes first."""
    with extra("lab", "a training"):
        from tqdm import tqdm

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
    for path in reversed(paths):  # the first one says what is done: it comes last
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
    told, text = "--shard", given
    if text is None:
        told, text = "RANK/WORLD_SIZE", f"{os.environ.get('RANK', 0)}/{os.environ.get('WORLD_SIZE', 1)}"
    shard, _, shards = text.partition("/")
    if not (shard.isdecimal() and shards.isdecimal() and int(shard) < int(shards)):
        raise ValueError(f"{told} must be i/n with i from 0 to n-1, got {text!r}")
    return int(shard), int(shards)


def own_device() -> torch.device:
    """The CPU, or a CUDA device; the processes that torchrun starts are dealt out to all of them."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    rank = os.environ.get("LOCAL_RANK", "0")
    if not rank.isdecimal():
        raise ValueError(f"LOCAL_RANK must be an int of at least 0, got {rank!r}")
    return torch.device("cuda", int(rank) % torch.cuda.device_count())


def changed(protocol: Protocol, changes: Sequence[str]) -> Protocol:
    """The protocol with some fields set, each written ``name=value``; lists are written ``a+b``."""
    types = {f.name: type(f.default) for f in fields(Protocol)}
    takes = {int: "an int", float: "a number", bool: "True or False", str: "a name", tuple: "a list"}
    convert: dict[type, Callable[[str], Any]] = {
        bool: lambda text: {"True": True, "False": False}[text],
        tuple: lambda text: tuple(int(x) if x.isdecimal() else x for x in text.split("+")),
    }
    values: dict[str, Any] = {}
    for change in changes:
        name, _, text = change.partition("=")
        if name not in types:
            raise ValueError(f"--set must name one of {', '.join(types)}, got {change}")
        kind = types[name]
        try:
            values[name] = convert.get(kind, kind)(text)
        except (KeyError, ValueError):
            raise ValueError(f"--set {name} must be {takes[kind]}, got {text!r}") from None
    return replace(protocol, **values)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m rope_lessons.chomsky", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    some = p.add_argument_group("which jobs", "every one that has all its parts named; at least one of these, or --all")
    some.add_argument("--task", nargs="+", choices=["all", *TASKS], metavar="TASK",
                      help=f"all, or some of {', '.join(TASKS)}")  # fmt: skip
    some.add_argument("--model", nargs="+", choices=MODELS)
    some.add_argument("--positions", nargs="+", choices=POSITIONS)
    some.add_argument("--variant", nargs="+", choices=VARIANTS)
    some.add_argument("--seeds", nargs="+", type=int, help="0 to 9 if not given")
    some.add_argument("--learning-rate", nargs="+", type=float, help="the three published ones if not given")
    some.add_argument("--all", action="store_true", help="the whole grid")
    p.add_argument("--protocol", default="published", choices=PROTOCOLS)
    p.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="fields of the protocol to change")
    p.add_argument("--results", nargs="+", type=Path, default=[Path("chomsky.json")],
                   help="where results are appended; the first file also says what is done")  # fmt: skip
    p.add_argument("--checkpoints", type=Path, default=Path(".models/chomsky"), help="folder of unfinished trainings")
    p.add_argument("--side-by-side", type=int, default=3, help="most models that train in one process at once")
    p.add_argument("--shard", metavar="I/N", help="do part I (from 0) of N; torchrun's RANK and WORLD_SIZE otherwise")
    p.add_argument("--device", help="cpu, cuda, …; otherwise the CUDA device with torchrun's number if there is one")
    p.add_argument("--minutes", type=float, default=math.inf, help="stop after so long, with a checkpoint")
    p.add_argument("--save-every", type=float, default=60.0, help="seconds between checkpoints")
    p.add_argument("--list", action="store_true", help="print the jobs of this part and stop")
    p.add_argument("--quiet", action="store_true", help="no progress bars")
    return p


if __name__ == "__main__":
    sys.exit(main())
