"""Tables of results answer or refuse, and come back as they were written. A stored file is there whole or not at all:
after errors, on a full disk, and after a kill; one process at a time."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rope_lessons import stored
from rope_lessons.stored import DATA, InUseError, Table, locked, read_results, results, write_results, write_whole

# --- asking ----------------------------------------------------------------------------------------------------------

RUNS = Table(
    {"method": method, "length": length, "seed": seed, "loss": loss}
    for method, length, seed, loss in (
        ("rope", 64, 0, 1.5), ("rope", 64, 1, 2.5), ("rope", 512, 0, 4.0), ("rope", 512, 1, 8.0), ("pi", 512, 0, 3.0),
    )
)  # fmt: skip


def test_rows_that_have_a_value():
    found = RUNS.where(method="rope", length=512)
    assert list(found) == [row for row in RUNS if row["method"] == "rope" and row["length"] == 512]
    assert (found["loss"], found["seed"], len(found)) == ([4.0, 8.0], [0, 1], 2)
    assert (found.mean("loss"), found.min("loss"), found.max("loss")) == (6.0, 4.0, 8.0)
    assert list(RUNS.where()) == list(RUNS)


@pytest.mark.parametrize("several", [(64, 512), [64, 512], {64, 512}, frozenset((64, 512)), range(64, 513, 448)])
def test_rows_that_have_one_of_several_values(several):
    assert RUNS.where(method="rope", length=several)["loss"] == [1.5, 2.5, 4.0, 8.0]


def test_a_text_is_one_value():
    with pytest.raises(ValueError, match=r"^method must be one of 'rope', 'pi', got 'ro'; did you mean 'rope'\?$"):
        RUNS.where(method="ro")


def test_groups_stand_as_they_first_come():
    assert {length: found["loss"] for length, found in RUNS.by("length").items()} == {64: [1.5, 2.5], 512: [4, 8, 3]}
    assert list(Table([{"n": 2}, {"n": 1}, {"n": 2}]).by("n")) == [2, 1]


@pytest.mark.parametrize(
    "ask",
    [
        lambda: RUNS["los"],
        lambda: RUNS.mean("los"),
        lambda: RUNS.by("los"),
        lambda: RUNS.where(los=1.5),
    ],
)
def test_unknown_columns(ask):
    told = "column must be one of 'method', 'length', 'seed', 'loss', got 'los'; did you mean 'loss'?"
    with pytest.raises(ValueError, match=f"^{re.escape(told)}$"):
        ask()


def test_values_that_no_row_has():
    with pytest.raises(ValueError, match=r"^length must be one of 64, 512, got 500$"):
        RUNS.where(length=500)
    with pytest.raises(ValueError, match=r"^length must be one of 64, 512, got 500$"):
        RUNS.where(length=(64, 500))
    with pytest.raises(ValueError, match=r"^length must be one of 512, got 64$"):
        RUNS.where(method="pi").where(length=64)


@pytest.mark.parametrize("wanted", [{"method": "pi", "length": 64}, {"length": (64, 512), "method": "pi"}])
def test_values_that_no_row_has_together(wanted):
    with pytest.raises(ValueError, match=r"^no row has \w+ = .* together with \w+ = "):
        RUNS.where(**wanted)


def test_no_value_is_no_question():
    with pytest.raises(ValueError, match=r"^method must be a value, or one or more of them, got \(\)$"):
        RUNS.where(method=())


@pytest.mark.parametrize("value", [None, True, "1.5", [1.5]])
def test_a_mean_of_what_is_no_number(value):
    rows = Table([{"loss": 1.5}, {"loss": value}])
    told = f"column must have numbers only, got 'loss' with {value!r}"
    for answer in (rows.mean, rows.min, rows.max):
        with pytest.raises(ValueError, match=f"^{re.escape(told)}$"):
            answer("loss")


def test_a_table_without_rows_has_no_answer():
    with pytest.raises(ValueError, match="column must be one of nothing, got 'loss'"):
        Table([]).mean("loss")


# --- results ---------------------------------------------------------------------------------------------------------

ODD = [
    {"text": 'a "b"\n, c\u2028', "number": 1, "list": [1, [2.5]], "same": {"a": 1}, "mixed": 1, "nothing": None},
    {"text": "log n†", "number": 1e300, "list": [], "same": {"a": 1}, "mixed": 1.0, "nothing": None},
    {"text": "", "number": -0.1, "list": [{}], "same": {"a": 1}, "mixed": True, "nothing": None},
]


@pytest.mark.parametrize("rows", [[], [{"seed": 0}], [{}, {}], [{"seed": 0}] * 3, ODD])
def test_tables_come_back(tmp_path, rows):
    """Every value with its type; the columns that all rows share come first."""
    header = {"script": "a.py", "config": {"width": 3}, "seeds": [0, 1]}
    write_results(tmp_path / "a.json", header, rows=rows, others=[{"a": 1}])
    found = read_results(tmp_path / "a.json")
    assert list(found) == ["script", "config", "seeds", "rows", "others"]
    assert {name: found[name] for name in header} == header
    assert list(found["others"]) == [{"a": 1}]
    assert [shown(row) for row in found["rows"]] == [shown(row) for row in rows]


def shown(row: dict) -> list[tuple[str, str]]:
    return sorted((name, repr(value)) for name, value in row.items())


def test_what_all_rows_share_is_written_once(tmp_path):
    write_results(tmp_path / "a.json", {}, rows=ODD)
    table = json.loads((tmp_path / "a.json").read_text("utf8"))["tables"]["rows"]
    assert table["same"] == {"same": {"a": 1}, "nothing": None}
    assert table["columns"] == ["text", "number", "list", "mixed"]


def test_a_column_that_a_row_lacks(tmp_path):
    write_results(tmp_path / "a.json", {}, rows=[{"a": 1}, {"b": 2}])
    assert list(read_results(tmp_path / "a.json")["rows"]) == [{"a": 1, "b": None}, {"a": None, "b": 2}]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_number(tmp_path, value):
    with pytest.raises(ValueError, match="Out of range float values"):
        write_results(tmp_path / "a.json", {}, rows=[{"loss": value}])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("header", "table"), [({"rows": 1}, "rows"), ({}, "tables"), ({"tables": 1}, "rows")])
def test_a_name_twice(tmp_path, header, table):
    with pytest.raises(ValueError, match="tables and header must have different names, and none be 'tables', got"):
        write_results(tmp_path / "a.json", header, **{table: []})


def test_unknown_names():
    names = sorted(path.stem for path in DATA.glob("*.json"))
    told = f"name must be one of {', '.join(map(repr, names))}, got 'radx'; did you mean 'radix'?"
    with pytest.raises(ValueError, match=f"^{re.escape(told)}$"):
        results("radx")
    with pytest.raises(ValueError, match=r"^name must be one of 'script', .*'rows', got 'row'; did you mean 'rows'\?$"):
        results("radix")["row"]


@pytest.mark.parametrize("name", sorted(path.stem for path in DATA.glob("*.json")))
def test_every_stored_result_is_read(name):
    assert results(name)


def test_a_file_cut_short(tmp_path):
    path = tmp_path / "a.json"
    write_results(path, {"seeds": [0, 1]}, rows=ODD)
    whole = path.read_text("utf8").rstrip()
    for end in range(len(whole)):
        path.write_text(whole[:end], "utf8")
        with pytest.raises(ValueError, match=r"a\.json is no file of results, or damaged: "):
            read_results(path)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff",
        b"[1]",
        b'{"tables": [1]}',
        b'{"tables": {"rows": {}}}',
        b'{"tables": {"rows": {"same": {}, "columns": ["a", "b"], "rows": [[1]]}}}',
    ],
)
def test_files_that_are_no_results(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.json is no file of results, or damaged: "):
        read_results(tmp_path / "a.json")


# --- files -----------------------------------------------------------------------------------------------------------


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
