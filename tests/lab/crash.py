"""Commands that are cut off at a file operation. ``test_crash.py`` runs this as a program: a fork of a process with
PyTorch in it takes milliseconds, but is safe only where PyTorch has started no threads, unlike in the tests themselves.

    python -m tests.lab.crash FOLDER

Each command runs once without interruption. Before each of its file operations a copy is made of what is on the disk:
what a process that is killed there leaves. After a power cut, what is not flushed is zeros. Besides, a process is ended
in the middle of each file that it writes. From each of these the command is begun again, and what is there afterwards
must be what the first run left. Prints what was tried and what went wrong, as JSON.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from experiments import packed
from rope_lessons.lab import __main__ as lab
from rope_lessons.lab import checkpoint, sizes, training
from rope_lessons.lab.gau import GAUConfig
from rope_lessons.lab.table import finished, jobs
from rope_lessons.lab.training import Recipe

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.fsync"}


class Files:
    """Sees the file operations below a folder, by Python's audit events.

    Args:
        root: the folder.
        before: called before each operation with its number.
    """

    def __init__(self, root: Path, before: Callable[[int], None] = lambda number: None):
        self.root, self.before = str(root), before
        self.done: list[str] = []
        self.opened: dict[int, tuple[str, int, int]] = {}  # number: path, size before and after
        self.flushed = {state(path) for path in files(self.root)}
        sys.addaudithook(self.hook)
        fsync = os.fsync

        def audited_fsync(fd: FileDescriptorLike) -> None:
            path = os.readlink(f"/proc/self/fd/{fd}")
            sys.audit("os.fsync", path)
            fsync(fd)
            self.flushed.add(state(path))

        os.fsync = audited_fsync

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        opens = event == "open" and arguments[2] & (os.O_CREAT | os.O_TRUNC)
        if not (opens or event in CHANGES) or not str(arguments[0]).startswith(self.root):
            return
        for number, (path, before, after) in self.opened.items():
            if os.path.exists(path):  # not under another name
                self.opened[number] = path, before, max(after, os.path.getsize(path))
        self.before(len(self.done))
        if opens:
            path = str(arguments[0])
            size = os.path.getsize(path) if os.path.exists(path) and not arguments[2] & os.O_TRUNC else 0
            self.opened[len(self.done)] = path, size, size
        self.done.append(f"{event} {str(arguments[0]).removeprefix(self.root)}")

    @property
    def unflushed(self) -> list[str]:
        return [path for path in files(self.root) if os.path.getsize(path) and state(path) not in self.flushed]

    @property
    def halves(self) -> dict[int, int]:
        """For each operation that begins a file, the size at half of what is written then."""
        return {number: (before + after) // 2 for number, (_, before, after) in self.opened.items() if after > before}


def files(root: str) -> list[str]:
    return [os.path.join(folder, file) for folder, _, names in os.walk(root) for file in names]


def state(path: str) -> tuple[int, int, int]:
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns


# --- what is interrupted -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """A command, and the one after which it comes."""

    name: str
    run: Callable[[Path], object]
    after: Scenario | None = None


def command(root: Path, *arguments: str) -> None:
    shared = ["--corpus", str(root.parent / "texts"), "--cache", str(root / "cache"), "--device", "cpu", "--quiet"]
    if lab.main([*arguments, *shared]):
        raise SystemExit("the command has failed")


def train(root: Path) -> None:
    command(root, "train", "--config", "tiny", "--save-every", "1", "--out", str(root / "runs"))


def table(root: Path) -> None:
    rows = ["--rows", "rope", "--factors", "1", "--windows", "2"]
    command(root, "table", str(root / "runs"), "--results", str(root / "table.json"), *rows)


def pack(root: Path) -> None:
    """Counts go out and come in elsewhere."""
    packed.pack(root / "runs", finished.find([root / "runs"]), root / "packed" / "seed-0.zip")
    packed.unpack(root / "packed" / "seed-0.zip", root / "there")
    finished.find([root / "there"])


TRAIN = Scenario("train", train)  # with the preparation of the corpus
TABLE = Scenario("table", table, TRAIN)
SCENARIOS = (TRAIN, TABLE, Scenario("pack", pack, TABLE))


def prepare(folder: Path) -> None:
    """The texts, a tiny model, and a machine that has no name."""
    random = np.random.Generator(np.random.Philox(key=6))
    (folder / "texts").mkdir()
    for number in range(4):
        (folder / "texts" / f"{number}.txt").write_bytes(random.integers(97, 123, size=800, dtype=np.uint8).tobytes())
    sizes.SIZES["tiny"] = GAUConfig(width=16, layers=2, key_dim=8)
    training.CONFIGS["tiny"] = Recipe("tiny", train_length=32, batch=2, steps=3, warmup=1, shift_keys=True)
    jobs.provenance = lambda device="cpu": {"date": "today"}  # a day may end meanwhile


# --- the runs ------------------------------------------------------------------------------------------------------


def forked(work: Callable[[], object]) -> int:
    """The exit status of a fork of this process that does some work."""
    child = os.fork()
    if not child:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def record(scenario: Scenario, root: Path, copies: Path) -> None:
    """Run a scenario, with copies of what is on the disk, and what it did in ``done.json``."""

    def copy(number: int) -> None:
        shutil.copytree(root, copies / f"{number} killed")
        if unflushed := seen.unflushed:
            cut = shutil.copytree(root, copies / f"{number} power cut")
            for path in unflushed:
                (cut / Path(path).relative_to(root)).write_bytes(bytes(os.path.getsize(path)))

    seen = Files(root, copy)
    scenario.run(root)
    (copies / "done.json").write_text(json.dumps({"done": seen.done, "halves": seen.halves}))


def cut_off(scenario: Scenario, root: Path, number: int, size: int) -> None:
    """Run a scenario until the file that it opens then has a size."""

    def limit(now: int) -> None:
        if now == number:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    Files(root, limit)
    scenario.run(root)


def left(root: Path) -> dict[str, str]:
    """What every file below a folder says."""
    found = {}
    for name in files(str(root)):
        path = Path(name)
        if path.suffix == ".safetensors":
            content = checkpoint.load(path).sha256.encode()
        elif path.suffix == ".npz":  # without the time at which it was written
            with zipfile.ZipFile(path) as file:
                content = b"".join(file.read(member) for member in sorted(file.namelist()))
        else:
            content = path.read_bytes()
        found[path.relative_to(root).as_posix()] = hashlib.sha256(content).hexdigest()
    return found


def interrupt(scenario: Scenario, folder: Path) -> dict[str, Any]:
    """Cut a scenario off at each of its file operations, in each way, and begin it again."""
    begin, root, copies = time.monotonic(), folder / "root", folder / "copies"
    whole = folder / f"{scenario.name} done"
    if scenario.after:
        shutil.copytree(folder / f"{scenario.after.name} done", root)
    else:
        root.mkdir()
    shutil.copytree(root, folder / "start")
    copies.mkdir()
    assert forked(lambda: record(scenario, root, copies)) == 0
    told = json.loads((copies / "done.json").read_text())
    (copies / "done.json").unlink()
    root.rename(whole)
    for number, size in told["halves"].items():
        shutil.copytree(folder / "start", root)
        assert forked(lambda: cut_off(scenario, root, int(number), size)) == -signal.SIGXFSZ, (number, told)  # noqa: B023
        root.rename(copies / f"{number} half")
    tried, wrong, known, wanted = [], [], {}, left(whole)
    for copy in sorted(copies.iterdir()):
        number, how = copy.name.split(maxsplit=1)
        tried.append(f"{how} at {told['done'][int(number)]}")
        copy.rename(root)
        state_then = json.dumps(sorted((path, Path(path).read_bytes().hex()) for path in files(str(root))))
        if state_then not in known:  # what follows is decided by what is on the disk
            known[state_then] = again(scenario, root, wanted)
        if known[state_then]:
            wrong.append(f"{tried[-1]}: {known[state_then]}")
        shutil.rmtree(root)
    copies.rmdir()
    shutil.rmtree(folder / "start")
    seconds = round(time.monotonic() - begin, 1)
    return {"operations": told["done"], "tried": tried, "begun": len(known), "wrong": wrong, "seconds": seconds}


def again(scenario: Scenario, root: Path, wanted: dict[str, str]) -> str:
    """What is wrong after a scenario that was cut off is run again; nothing if nothing is."""
    if (status := forked(lambda: scenario.run(root))) != 0:
        return f"the next one ended with {status}"
    found = left(root)
    return ", ".join(sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    place = Path(sys.argv[1]).resolve()
    prepare(place)
    for scenario in SCENARIOS:  # what PyTorch imports at the first step takes seconds, and so is there in every fork
        with contextlib.redirect_stdout(sys.stderr):
            scenario.run(place / "warm")
    shutil.rmtree(place / "warm")
    print(json.dumps({scenario.name: interrupt(scenario, place) for scenario in SCENARIOS}))
