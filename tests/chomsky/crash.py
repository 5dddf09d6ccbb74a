"""Kill ``python -m rope_lessons.chomsky`` at each of its file operations, or let its disk be full, start it again, and
look at what is there.

Run by test_crash.py as a process of its own: it forks once for each run, and a process that has used PyTorch's threads
or a GPU cannot do that. Prints a line of JSON for each of them.

    python tests/chomsky/crash.py FOLDER [DISK BYTES]      # DISK is a folder that is a disk of so many bytes
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rope_lessons.chomsky import results
from rope_lessons.chomsky.__main__ import main

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

RUN = [
    "--task", "even_pairs", "--model", "rnn", "--seeds", "0", "1", "--learning-rate", "1e-2", "--side-by-side", "2",
    "--device", "cpu", "--quiet", "--save-every", "0", "--results", "new/a.json", "copy.json",
    "--checkpoints", "unfinished", "--set", "longest=6", "batch=3", "steps=2", "test_lengths=7+9", "samples=4",
    "hidden=8",
]  # fmt: skip
KILLED = 137
ON_THE_WALL = ("seconds", "date")  # columns that no two runs share
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
FEW = 100  # bytes after which a process is killed in the middle of a write

Operation = tuple[str, str]  # its name, and that of the file


def begun(folder: Path, before: Callable[[], None] | None = None) -> tuple[int, str]:
    """The exit code of a run in a process of its own, minus the number of the signal where one killed it, and what it
    told. ``before`` is called in it before it begins."""
    read, write = os.pipe()
    if (child := os.fork()) > 0:
        os.close(write)
        with os.fdopen(read) as told:
            text = told.read()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text
    code = KILLED + 1
    try:
        os.chdir(folder)
        torch.set_num_threads(1)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(write, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        results.code_version = lambda: "0"  # asks git, twice for each line: most of the time of these runs
        if before is not None:
            before()
        code = main(RUN)
    finally:
        os._exit(code)


def watch(at_each: Callable[[Operation], None]) -> None:
    """Call before each operation that changes something on the disk. The events are Python's own: they come however a
    library calls the system. Only flushing has none."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"):
            at_each((event, str(arguments[0])))
        elif event == "open" and isinstance(arguments[0], str) and arguments[2] & WRITES:
            at_each(("open" if arguments[1] else "os.open", arguments[0]))

    sys.addaudithook(hook)
    flush = os.fsync

    def told(fd: FileDescriptorLike) -> None:
        at_each(("os.fsync", ""))
        flush(fd)

    os.fsync = told


def operations(folder: Path) -> list[Operation]:
    """All of them, of a run that nobody disturbs."""
    code, told = begun(folder, lambda: watch(lambda operation: print(json.dumps(operation), file=sys.stderr)))
    assert code == 0
    return [tuple(json.loads(line)) for line in told.splitlines()]


def kill_at(number: int, in_the_middle: bool) -> None:
    """Be killed before an operation, or in the middle of the write after it."""
    left = number

    def at_each(operation: Operation) -> None:
        nonlocal left
        if left == 0 and not in_the_middle:
            os._exit(KILLED)
        if left == 0:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            limit(FEW)
        left -= 1

    watch(at_each)


def limit(size: int) -> None:
    """No file may be longer: the system ends a write there, with an error where the signal is ignored, as Python does,
    and otherwise with the process."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def facts(folder: Path) -> dict[str, Any]:
    """What a run leaves: names of files, and the results without what is read off a clock."""
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    found = {
        name: [{key: value for key, value in line.items() if key not in ON_THE_WALL} for line in results.lines(path)]
        for name in ("new/a.json", "copy.json")
        if (path := folder / name).exists()
    }
    return {"files": files, "results": found}


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def report(folder: Path, wanted: dict[str, Any], first: tuple[int, str], **about: Any) -> None:
    """Run once more, and tell what came of it."""
    code, told = first
    again = begun(folder)
    same = facts(folder) == wanted
    print(json.dumps(about | {"code": code, "told": told, "again": again, "same": same}), flush=True)
    shutil.rmtree(folder)


def kill_everywhere(root: Path, steps: list[Operation], wanted: dict[str, Any]) -> None:
    for number, (name, path) in enumerate(steps):
        for middle in (False, True) if (name, path[-11:]) == ("open", ".unfinished") else (False,):
            folder = made(root / f"{number}-{middle}")
            first = begun(folder, partial(kill_at, number, middle))
            report(folder, wanted, first, kind="kill", operation=name, file=path, number=number, middle=middle)


def limit_files(root: Path, wanted: dict[str, Any]) -> None:
    """Files may be longer and longer, until a run has enough."""
    for size in (8**power for power in range(20)):
        folder = made(root / f"limit-{size}")
        first = begun(folder, partial(limit, size))
        report(folder, wanted, first, kind="limit", free=size)
        if first[0] == 0:
            return


def fill_disk(root: Path, size: int, wanted: dict[str, Any]) -> None:
    """More and more of the disk is free, until a run has enough."""
    filler = root / "filler"
    for free in range(0, size, os.sysconf("SC_PAGE_SIZE")):
        folder = made(root / str(free))
        filler.write_bytes(bytes(size - free))
        first = begun(folder)
        filler.unlink()
        report(folder, wanted, first, kind="disk", free=free)
        if first[0] == 0:
            return


def everything(root: Path, disk: Path | None = None, size: int = 0) -> None:
    whole = made(root / "whole")
    steps, wanted = operations(whole), facts(whole)
    assert [len(found) for found in wanted["results"].values()] == [4, 4]
    kill_everywhere(root, steps, wanted)
    limit_files(root, wanted)
    if disk is not None:
        fill_disk(disk, size, wanted)


if __name__ == "__main__":
    root, *disk = sys.argv[1:]
    if disk:
        everything(Path(root), Path(disk[0]), int(disk[1]))
    else:
        everything(Path(root))
