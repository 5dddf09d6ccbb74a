"""A stored file is there whole or not at all: after errors, on a full disk, and after a kill; one process at a time."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rope_lessons import stored
from rope_lessons.stored import InUseError, locked, write_whole


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "results.v2.csv"
    path.write_text("old")
    return path


def test_the_new_file_takes_the_place_of_the_old_one(path):
    write_whole(path, lambda unfinished: unfinished.write_text("new"))
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


def test_content_and_name_are_on_the_disk_in_this_order(path, monkeypatch):
    done = []
    monkeypatch.setattr(os, "fsync", lambda handle: done.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name))
    real = Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, to: [done.append("renamed"), real(self, to)])
    write_whole(path, lambda unfinished: unfinished.write_text("new"))
    assert done == ["results.v2.csv.unfinished", "renamed", path.parent.name]


@pytest.mark.parametrize("error", [ValueError("of the writer"), KeyboardInterrupt()])
def test_an_error_leaves_the_old_file(path, error):
    def write(unfinished: Path) -> None:
        unfinished.write_text("ne")
        raise error

    with pytest.raises(type(error)) as raised:
        write_whole(path, write)
    assert raised.value is error
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("error", "number", "reason"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), errno.ENOSPC, "No space left on device"),
        (OSError("4096 requested and 8 written"), errno.EIO, "4096 requested and 8 written"),  # NumPy's full disk
    ],
)
def test_a_full_disk_is_told_with_the_name_of_the_file(path, monkeypatch, error, number, reason):
    def full(handle: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=reason) as raised:
        write_whole(path, lambda unfinished: unfinished.write_text("new"))
    assert str(raised.value) == f"[Errno {number}] {reason}, so this was not written: '{path}'"
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_in_the_place_of_the_file(tmp_path):
    (tmp_path / "here").mkdir()
    with pytest.raises(IsADirectoryError, match=r"Is a directory, so this was not written: '.*/here'"):
        write_whole(tmp_path / "here", lambda unfinished: unfinished.write_text("new"))
    assert list(tmp_path.iterdir()) == [tmp_path / "here"]


def test_what_a_killed_process_left_is_overwritten(path):
    path.with_name(f"{path.name}.unfinished").write_text("a longer text than the new one")
    write_whole(path, lambda unfinished: unfinished.write_text("new"))
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


def test_flush_takes_files_and_folders(path, monkeypatch):
    stored.flush(path)
    stored.flush(path.parent)
    assert path.read_text() == "old"
    with pytest.raises(FileNotFoundError, match="gone"):
        stored.flush(path.parent / "gone")


def test_safetensors_has_a_kind_of_its_own_for_a_full_disk(path):
    from safetensors import SafetensorError

    def write(unfinished: Path) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    told = r"No space left on device, so this was not written: '.*results\.v2\.csv'"
    with pytest.raises(OSError, match=told) as raised:
        write_whole(path, write)
    assert raised.value.errno == errno.ENOSPC

    def wrong(unfinished: Path) -> None:
        raise SafetensorError("another of its errors")

    with pytest.raises(SafetensorError, match="another of its errors"):
        write_whole(path, wrong)


# --- locks ---------------------------------------------------------------------------------------------------------

HOLD = """
import runpy, sys
from pathlib import Path
with runpy.run_path(sys.argv[1])["locked"](Path(sys.argv[2]), "taken"):  # without the package, which takes seconds
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds a lock until it is killed, or its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, stored.__file__, str(tmp_path / "new" / ".lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_lock_is_held_by_one_process_and_ends_with_it(holder, tmp_path):
    lock = tmp_path / "new" / ".lock"
    with pytest.raises(InUseError, match="another one is there"), locked(lock, "another one is there"):
        pytest.fail("two hold it")
    holder.kill()
    holder.wait()
    with locked(lock, "still there"), pytest.raises(InUseError, match="and twice"), locked(lock, "and twice"):
        pytest.fail("two hold it")
    with locked(lock, "still there"):
        pass


def test_without_a_refusal_it_waits(holder, tmp_path):
    threading.Timer(0.2, holder.stdin.close).start()
    begin = time.monotonic()
    with locked(tmp_path / "new" / ".lock"):
        assert time.monotonic() - begin > 0.15
