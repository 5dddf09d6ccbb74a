"""What ends a process, fills a disk or damages a file: nothing is lost, and nothing else than was written is used."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import packed
from rope_lessons.lab import __main__ as lab
from rope_lessons.lab import checkpoint, sizes, training
from rope_lessons.lab.table import finished, jobs
from rope_lessons.lab.table.counts import read_file, read_zip, write_file
from rope_lessons.lab.table.finished import TableError
from rope_lessons.lab.training import Recipe, read_losses
from rope_lessons.stored import read_sealed, write_sealed
from tests.lab.conftest import TINY
from tools.project import ROOT

SEED = Path("tiny") / "rope" / "seed-0"
ROWS = ["--rows", "rope", "--factors", "1", "--windows", "2"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, folder_of_text: Path) -> Iterator[Path]:
    """A folder with a prepared corpus, a training, its table and its packed counts."""
    root = tmp_path_factory.mktemp("made") / "root"
    root.mkdir()
    (root / "texts").symlink_to(folder_of_text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sizes.SIZES, "tiny", TINY)
        patch.setitem(training.CONFIGS, "tiny", Recipe("tiny", train_length=32, batch=4, steps=6, warmup=3))
        patch.setattr(jobs, "provenance", lambda device: {"date": "today"})
        assert train(root) == table(root) == 0
        packed.pack(root / "runs", finished.find([root / "runs"]), root / "seed-0.zip")
        yield root


@pytest.fixture
def root(made, tmp_path) -> Path:
    """A copy of it, that may be changed."""
    return shutil.copytree(made, tmp_path / "root", symlinks=True)


def run(root: Path, *arguments: str) -> int:
    places = ["--corpus", str(root / "texts"), "--cache", str(root / "cache"), "--device", "cpu", "--quiet"]
    return lab.main([*arguments, *places])


def train(root: Path, *more: str) -> int:
    return run(root, "train", "--config", "tiny", "--save-every", "2", "--out", str(root / "runs"), *more)


def table(root: Path) -> int:
    return run(root, "table", str(root / "runs"), "--results", str(root / "table.json"), *ROWS)


def contents(root: Path) -> dict[str, Any]:
    """What the files say; not how checkpoints and zip files are written."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in root.rglob("*") if path.is_file() and path.suffix != ".zip"):
        name = path.relative_to(root).as_posix()
        if path.suffix == ".safetensors":
            found[name] = checkpoint.load(path).sha256
        elif path.suffix == ".npz":
            found[name] = read_zip(path)
        else:
            found[name] = path.read_bytes()
    return found


def files(root: Path) -> dict[str, bytes]:
    """What is on the disk, but for locks."""
    paths = (path for path in root.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


# --- killed --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crashes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What :mod:`tests.lab.crash` says."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.lab.crash", str(tmp_path_factory.mktemp("crash"))],
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("scenario", "operations", "cuts"), [("train", 50, 80), ("table", 20, 30), ("pack", 25, 35)])
def test_cut_off_at_any_file_operation(crashes, scenario, operations, cuts):
    """Then begun again: files, losses and checkpoints are those of a run without interruption, and nothing else."""
    found = crashes[scenario]
    assert len(found["operations"]) >= operations
    assert len(found["tried"]) >= cuts
    assert {what.split(" at ")[0] for what in found["tried"]} == {"killed", "power cut", "half"}
    assert not found["wrong"], "\n".join(found["wrong"])


# --- a full disk ---------------------------------------------------------------------------------------------------


class Disk:
    """A folder on a disk that can be full.

    Args:
        root: of the disk.
        own: whether it is one of its own, in memory. Otherwise files that become too large are refused instead.
    """

    def __init__(self, root: Path, own: bool):
        self.root, self.own = root, own

    @contextlib.contextmanager
    def full(self, room: int) -> Iterator[None]:
        """Room for some bytes."""
        if not self.own:
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
            try:
                yield
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            return
        free = os.statvfs(self.root)
        ballast = self.root / "ballast"
        ballast.write_bytes(bytes(free.f_bavail * free.f_frsize - room))
        try:
            yield
        finally:
            ballast.unlink()


@pytest.fixture(params=["a disk of its own", "a limit of sizes"])
def disk(request, tmp_path) -> Iterator[Disk]:
    """Mounted where that is allowed. The limit is tried everywhere."""
    root = tmp_path / "disk"
    root.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tests", str(root)]
    own = request.param == "a disk of its own" and shutil.which("mount") is not None
    own = own and subprocess.run(mount, capture_output=True).returncode == 0
    yield Disk(root, own)
    if own:
        subprocess.run(["umount", str(root)], check=True)


def told(capsys) -> str:
    """The one line that a command says."""
    said = capsys.readouterr()
    assert not said.out
    assert said.err.count("\n") == 1, said.err
    return said.err.rstrip("\n")


FULL = r"\[Errno (28\] No space left on device|27\] File too large)"


def test_no_room_for_a_checkpoint(made, disk, capsys):
    """The last one stays, the command names the file, and with room it goes on as if nothing had been."""
    root, page = disk.root / "root", resource.getpagesize()
    shutil.copytree(made / "cache", root / "cache")
    (root / "texts").symlink_to(made / "texts")
    folder = root / "runs" / SEED
    assert train(root, "--minutes", "0") == 0
    before = contents(root)
    capsys.readouterr()
    with disk.full(room=3 * page):
        assert train(root) == 1
    assert re.search(rf"train: {FULL}, so this was not written: '{folder}/step-00000004\.safetensors'$", told(capsys))
    assert contents(root).keys() == before.keys()
    assert [path.name for path in checkpoint.stored(folder)] == ["step-00000002.safetensors"]
    assert read_losses(folder) == read_losses(made / "runs" / SEED)[:4]
    assert train(root) == 0
    found, wanted = contents(root), contents(made)
    assert found == {name: content for name, content in wanted.items() if name in found}
    assert len(found) == len(before) + 1


@pytest.mark.parametrize(
    ("gone", "command", "file"),
    [
        ("runs", train, "runs/{SEED}/losses.csv"),
        ("runs/{SEED}/trained.json", table, "runs/{SEED}/trained.json"),
        ("runs/{SEED}/tests/rope.npz", table, "runs/{SEED}/trained.json"),
        ("table.json", table, "table.json"),
    ],
)
def test_no_room_at_all(disk, made, capsys, gone, command, file):
    root = shutil.copytree(made, disk.root / "root", symlinks=True)
    lost = root / gone.format(SEED=SEED)
    shutil.rmtree(lost) if lost.is_dir() else lost.unlink()
    before = files(root)
    with disk.full(room=0):
        assert command(root) == 1
    wanted = rf"(train|table): {FULL}, so this was not written: '{root / file.format(SEED=SEED)}'$"
    assert re.search(wanted, told(capsys))
    assert files(root) == before
    assert command(root) == 0
    assert contents(root) == (contents(made) if command is table else contents(root))


def test_no_room_for_a_corpus(disk, made, capsys):
    root = disk.root / "root"
    root.mkdir()
    (root / "texts").symlink_to(made / "texts")
    with disk.full(room=resource.getpagesize()):
        assert train(root) == 1
    assert re.search(rf"corpus \S+ could not be prepared in {root}/cache/\S+: {FULL}", told(capsys))
    assert [path.name for path in (root / "cache").iterdir()] == [".lock"]
    assert train(root) == 0
    assert contents(root / "cache") == contents(made / "cache")


def test_no_room_for_packed_counts(disk, made):
    root = shutil.copytree(made, disk.root / "root", symlinks=True)
    models = finished.find([root / "runs"])
    with disk.full(room=0):
        with pytest.raises(OSError, match=rf"{FULL}, so this was not written: '.*/new\.zip'"):
            packed.pack(root / "runs", models, root / "new.zip")
        with pytest.raises(OSError, match=rf"{FULL}, so this was not written: '.*/tests/as trained\.npz'"):
            packed.unpack(root / "seed-0.zip", root / "there")
    assert not [path for path in root.rglob("*") if path.is_file() and "there" in path.parts]
    packed.pack(root / "runs", models, root / "new.zip")
    assert (root / "new.zip").read_bytes() == (root / "seed-0.zip").read_bytes()


# --- damaged files -------------------------------------------------------------------------------------------------


def put(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def with_another_bit(content: bytes) -> bytes:
    place = len(content) // 16  # of a zip file, in the first file's data: a date beside it says nothing
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]


def folder_in_place(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: put(path, path.read_bytes()[: path.stat().st_size // 2]),
    "zeroed": lambda path: put(path, bytes(path.stat().st_size)),
    "a bit": lambda path: put(path, with_another_bit(path.read_bytes())),
    "empty": lambda path: put(path, b""),
    "a folder": folder_in_place,
}
NEWEST, WEIGHTS = "step-00000006.safetensors", "step-*.safetensors"


@pytest.fixture(params=DAMAGES)
def damage(request) -> Callable[[Path], object]:
    return DAMAGES[request.param]


def refused(root: Path, command: Callable[[Path], int], capsys) -> str:
    """What a command says that must change nothing."""
    capsys.readouterr()
    before = files(root)
    assert command(root) == 1
    assert files(root) == before
    return told(capsys)


@pytest.mark.parametrize("command", [train, table])
@pytest.mark.parametrize("file", ["train.bin", "test.bin", "starts.npy", "about.json"])
def test_a_damaged_corpus(root, capsys, damage, command, file):
    """Refused by name; made anew when its folder is gone, for the texts are there."""
    [folder] = (root / "cache").glob("texts*-*")
    damage(folder / file)
    said = refused(root, command, capsys)
    assert f"{folder / file} is damaged: " in said
    assert said.endswith(f". Delete the folder {folder} to prepare the corpus anew")
    if command is train:
        shutil.rmtree(folder)
        assert command(root) == 0


def test_a_damaged_checkpoint(root, made, capsys, damage):
    """Passed over by a training, which ends as it did; refused by a table."""
    newest = root / "runs" / SEED / NEWEST
    damage(newest)
    assert f"table: {newest} is damaged" in refused(root, table, capsys)
    if newest.is_dir():  # it may hold anything, and so stays
        assert train(root) == 1
        assert f"Is a directory, so this was not written: '{newest}'" in capsys.readouterr().err
        newest.rmdir()
        assert train(root) == 0
    else:
        assert train(root) == 0
        said = capsys.readouterr()
        assert said.err.startswith(f"{newest} is damaged")
        assert said.err.rstrip().endswith("Going on from step-00000004.safetensors, the one before.")
        assert "6 of 6 steps are done" in said.out
    assert contents(root) == contents(made)


def test_both_checkpoints_damaged(root, capsys, damage):
    for path in checkpoint.stored(root / "runs" / SEED):
        damage(path)
    said = refused(root, train, capsys)
    assert re.search(r"train: no checkpoint in .* can be used: .*-00000006\.safetensors is damaged.*Delete", said)


@pytest.mark.parametrize(("file", "command"), [(f"runs/{SEED}/losses.csv", train), ("table.json", table)])
def test_what_is_written_anew_in_any_case(root, made, capsys, damage, file, command):
    damage(root / file)
    if (root / file).is_dir():
        assert re.search(rf"Is a directory.*{file}|results must be .*{file}", refused(root, command, capsys))
    else:
        assert command(root) == 0
        assert contents(root) == contents(made)


@pytest.mark.parametrize("command", [train, table])
def test_a_folder_in_place_of_the_lock(root, capsys, command):
    folder_in_place(root / "runs" / SEED / ".lock")
    (root / "runs" / SEED / "trained.json").unlink()
    assert re.search(rf"Is a directory: '{root}/runs/{SEED}/\.lock'", refused(root, command, capsys))


@pytest.mark.parametrize(
    ("file", "what"), [("trained.json", "All rows are counted again"), ("tests/rope.npz", "The row is counted again")]
)
def test_damaged_counts(root, made, capsys, damage, file, what):
    """Counted again where the weights are; refused by name where they are not."""
    path = root / "runs" / SEED / file
    damage(path)
    without = shutil.copytree(root, root.parent / "without", symlinks=True)
    for weights in without.rglob(WEIGHTS):
        weights.unlink()
    capsys.readouterr()
    status = table(root)
    first, *more = capsys.readouterr().err.splitlines()
    assert first.startswith(f"{path} is damaged: ")
    assert first.endswith(f". {what}")
    if path.is_dir():
        assert status == 1
        assert more[0].endswith(f"Is a directory, so this was not written: '{path}'")
    else:
        assert status == 0
        assert contents(root) == contents(made)
    assert table(without) == 1
    assert f"{without / 'runs' / SEED / file} is damaged: " in capsys.readouterr().err


def test_a_damaged_packed_file(root, damage):
    damage(root / "seed-0.zip")
    with pytest.raises(TableError, match=r"seed-0\.zip must be a file of packed counts: "):
        packed.unpack(root / "seed-0.zip", root / "there")
    assert not (root / "there").exists()


def test_every_byte_of_counts_counts(root):
    """Wherever one bit changes, the counts are refused, or are the same: a date in a zip file says nothing."""
    path = root / "counts.npz"
    write_file(path, "of these", {"1 hits": np.arange(6.0).reshape(2, 3), "1 tokens": np.full(2, 7.0)})
    content = path.read_bytes()
    whole, refusals = read_file(path, "of these"), 0
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        try:
            found = read_file(path, "of these")
        except ValueError:
            refusals += 1
        else:
            assert found is not None
            assert found.keys() == whole.keys()
            assert all(np.array_equal(found[name], whole[name]) for name in whole)
    assert refusals > len(content) / 2


def test_every_byte_of_sealed_json_counts(tmp_path):
    path, content = tmp_path / "about.json", {"name": "a text", "bytes": 17, "share": 0.25, "files": {"a": [1, None]}}
    write_sealed(path, content)
    assert read_sealed(path) == content
    written = path.read_bytes()
    for place in range(len(written)):
        path.write_bytes(written[:place] + bytes([written[place] ^ 1 << place % 8]) + written[place + 1 :])
        with contextlib.suppress(ValueError):
            assert read_sealed(path) == content
