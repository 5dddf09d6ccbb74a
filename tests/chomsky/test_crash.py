"""A run that is killed, on a full disk, or that finds damaged files: nothing is lost, and nothing is believed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rope_lessons.chomsky import results
from rope_lessons.chomsky.__main__ import main
from rope_lessons.chomsky.training import Training
from rope_lessons.stored import write_results
from tests.chomsky.crash import KILLED, RUN, facts
from tools.project import ROOT

DISK = 128 * 1024  # bytes
Report = list[dict[str, Any]]


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """A small disk, where one can be mounted."""
    folder = tmp_path_factory.mktemp("disk")
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(folder)]
    mounted = shutil.which("mount") is not None and subprocess.run(command, capture_output=True).returncode == 0
    yield folder if mounted else None
    if mounted:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="module")
def report(disk: Path | None, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What became of each kill and of each full disk."""
    more = [] if disk is None else [str(disk), str(DISK)]
    command = [sys.executable, str(Path(__file__).with_name("crash.py")), str(tmp_path_factory.mktemp("crash")), *more]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    found = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in found.splitlines()]


def test_killed_at_every_operation(report):
    """The same results, line by line in both files, and the same files, no more and no less."""
    kills = [run for run in report if run["kind"] == "kill"]
    assert {run["operation"] for run in kills} == {
        "open", "os.open", "os.fsync", "os.mkdir", "os.remove", "os.rename",
    }  # fmt: skip
    assert len(kills) > 50
    assert {run["code"] for run in kills if not run["middle"]} == {KILLED}
    in_the_middle = [run["code"] for run in kills if run["middle"]]
    assert in_the_middle == [-signal.SIGXFSZ] * 5  # three checkpoints and two files of results
    assert [run for run in kills if run["again"] != [0, ""] or not run["same"]] == []


def test_a_full_disk_is_one_line_and_loses_nothing(report, disk):
    """It names the file. With more room the same command goes on. Where no disk can be mounted there is still the
    system's limit on the length of files: another number, the same way through the code."""
    kinds = {"limit": "File too large"} | ({} if disk is None else {"disk": "No space left on device"})
    for kind, reason in kinds.items():
        *full, enough = (run for run in report if run["kind"] == kind)
        assert len(full) >= 4
        assert (enough["code"], enough["told"]) == (0, "")
        files = set()
        for run in full:
            begin, file, end = run["told"].split("'")
            assert begin.endswith(f"] {reason}, so this was not written: ")
            assert begin.startswith("python -m rope_lessons.chomsky: [Errno ")
            assert (run["code"], end) == (1, "\n")
            files.add(Path(file).suffix)
        assert files == ({".checkpoint"} if kind == "limit" else {".checkpoint", ".json"})
        assert [run for run in (*full, enough) if run["again"] != [0, ""] or not run["same"]] == []


# --- damaged files -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of a run that was stopped between training and testing, with both checkpoints and the results of
    another job; and what it would have left."""
    cut, whole = (tmp_path_factory.mktemp(name) for name in ("cut", "whole"))

    def stopped(self: Training, progress: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "code_version", lambda: "0")
        patch.chdir(whole)
        assert main([*RUN, "--seeds", "7"]) == 0
        shutil.copytree(whole, cut, dirs_exist_ok=True)
        assert main(RUN) == 0
        patch.chdir(cut)
        patch.setattr(Training, "evaluate", stopped)
        assert main(RUN) == 130
    return cut, facts(whole)


def flip(place: float) -> Callable[[Path], object]:
    """Another bit, somewhere between the first byte and the last."""

    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[round(place * (len(content) - 1))] ^= 1
        path.write_bytes(content)

    return damage


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def last_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 20)


def foreign(path: Path) -> None:
    torch.save({"weights": torch.ones(3)}, path)


def other_columns(path: Path) -> None:
    write_results(path, {}, rows=[{"a": 1, "b": 2}])


def folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def nowhere(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("nowhere")


def gone(path: Path) -> None:
    path.unlink()


BYTES = [flip(0), flip(0.5), flip(1), cut, last_byte, longer, empty, garbage, foreign]
TEXT = [cut, longer, empty, zeros, garbage, foreign, other_columns, folder]
CHECKPOINT, PREVIOUS, LOCK = "unfinished/*.checkpoint", "unfinished/*.previous", "unfinished/locks/*.lock"
UNFINISHED = [f"{name}.unfinished" for name in ("unfinished/*.checkpoint", "new/a.json", "copy.json")]

# What is damaged, how, and what is told; None where the run goes on as if nothing had been.
DAMAGES: list[tuple[list[str], Callable[[Path], object], str | None]] = [
    *(([CHECKPOINT], damage, None) for damage in (*BYTES, nowhere, gone)),
    *(([PREVIOUS], damage, None) for damage in (*BYTES, nowhere, gone)),
    *(([CHECKPOINT, PREVIOUS], damage, r"\.checkpoint is .*; .*\.previous is .*\. Delete what") for damage in BYTES),
    ([CHECKPOINT, PREVIOUS], gone, None),
    ([CHECKPOINT], folder, r"Is a directory: 'unfinished/.*\.checkpoint'"),
    ([PREVIOUS], folder, r"Is a directory: 'unfinished/.*\.checkpoint' -> 'unfinished/.*\.previous'"),
    *((["new/a.json"], damage, r"new/a\.json.* (is no file of results|must have|it is a folder)") for damage in TEXT),
    *((["copy.json"], damage, r"copy\.json.* (is no file of results|must have|it is a folder)") for damage in TEXT),
    *(([name], damage, None) for name in UNFINISHED for damage in (garbage, empty)),
    *(([name], folder, r"Is a directory, so this was not written: '.*'") for name in UNFINISHED),
    *(([LOCK], damage, None) for damage in (garbage, empty)),
    ([LOCK], folder, r"Is a directory: '.*unfinished/locks/.*\.lock'"),
]


def found(pattern: str) -> list[Path]:
    """The files of a pattern; of one that are not there yet, what they would be called."""
    there = sorted(Path().glob(pattern.removesuffix(".unfinished")))
    return [path.with_name(f"{path.name}.unfinished") for path in there] if pattern.endswith("hed") else there


@pytest.mark.parametrize(
    ("patterns", "damage", "told"),
    DAMAGES,
    ids=[f"{'+'.join(patterns)}-{damage.__name__}-{i}" for i, (patterns, damage, _) in enumerate(DAMAGES)],
)
def test_damaged_files(interrupted, tmp_path, monkeypatch, capsys, patterns, damage, told):
    """Either the run ends as it would have, or it is refused by the file's name, nothing is done, and after the file
    was put right or deleted it ends as it would have."""
    start, wanted = interrupted
    shutil.copytree(start, tmp_path, dirs_exist_ok=True, symlinks=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(results, "code_version", lambda: "0")
    damaged = [path for pattern in patterns for path in found(pattern)]
    assert damaged
    for path in damaged:
        damage(path)
    before = contents()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        code = main(RUN)
    errors = capsys.readouterr().err
    if told is None:
        assert (code, errors) == (0, "")
        passed_over = CHECKPOINT in patterns and damage not in (nowhere, gone)
        assert [("going on from the one before it" in str(w.message)) for w in warned] == [True] * passed_over
    else:
        assert code == 1
        assert re.fullmatch(f"python -m rope_lessons.chomsky: .*{told}.*\n", errors), errors
        if not patterns[0].endswith(".unfinished"):  # a checkpoint was put aside by then
            assert contents() == before
        for path in damaged:
            put_right(path, start)
        with warnings.catch_warnings(record=True):
            assert main(RUN) == 0
    assert facts(tmp_path) == wanted


def contents() -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(Path().rglob("*"))}


def put_right(path: Path, start: Path) -> None:
    """Delete a checkpoint or a leftover; results and locks come from elsewhere."""
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink()
    if path.suffix in (".json", ".lock"):
        shutil.copy(start / path, path)
