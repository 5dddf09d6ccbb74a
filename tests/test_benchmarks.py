"""The benchmarks run, on sizes that take no time, and the stored CPU result has what the book plots."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch

from benchmarks import __main__ as program
from benchmarks import command, decode, memory, rotary, speed, training
from benchmarks.__main__ import main, where
from benchmarks.sides import bent, eager_rerope, inputs, ours, plain_rope
from benchmarks.timing import in_turns, milliseconds, ratio
from rope_lessons import attention
from rope_lessons.stored import DATA

RESULT = DATA / "bench_cpu.json"


@pytest.mark.parametrize("slope", [0.0, 0.125, 16.0])
def test_all_sides_compute_the_same(slope: float, device: torch.device) -> None:
    qkv = inputs(50, 2, 8, device, torch.float32)
    wanted = attention(*qkv, bent(8, 7, slope), backend="reference")
    torch.testing.assert_close(eager_rerope(*qkv, 7, slope), wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(ours(8, 7, slope)(*qkv), wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(plain_rope(*qkv), ours(8, 50, slope)(*qkv), atol=1e-5, rtol=0)


def test_turns_and_ratios() -> None:
    order: list[str] = []
    times = in_turns(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 2, torch.device("cpu"), warm_up=1
    )
    assert order == ["a", "b"] * 3
    assert [len(seconds) for seconds in times.values()] == [2, 2]
    fixed = {"a": [1.0, 2.0, 30.0], "b": [1.0, 1.0, 10.0]}
    assert ratio(fixed, "a", "b") == 2.0
    assert milliseconds(fixed, "a") == 2000.0


def test_rows_on_tiny_sizes(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "WINDOW", 16)
    monkeypatch.setattr(speed, "EAGER", {device.type: (64, 8.0)})
    monkeypatch.setattr(training, "SIZES", {device.type: (16, 1, 8, 64, torch.float32)})
    plain = speed.beside_plain(device, False) + speed.beside_plain(device, True)
    assert len(plain) == 2 * 2 * len(speed.TARGETS[device.type]) * len(speed.DIMS[device.type]) * (
        1 if device.type == "cpu" else 2
    )
    for row in [*plain, *speed.beside_eager(device), *training.rows(device)]:
        assert row["milliseconds"] > 0
        assert row["beside_milliseconds"] > 0
        assert {"what", "beside", "length", "shape"} <= set(row)
    assert decode.rows(device.type, lengths=(64,), steps=1)
    if device.type == "cpu":
        assert rotary.rows(device) == []


def test_memory_of_the_engine_grows_with_the_length(device: torch.device) -> None:
    """Four times the length: the peak of the engine is about four times as high, that of eager about sixteen."""
    short, long = (memory._in_a_process("rerope", length, device) for length in (4096, 16_384))
    assert 0 < long < 9 * short  # what the allocator keeps varies
    short, long = (memory._in_a_process("eager", length, device) for length in (1024, 4096))
    assert long > 10 * short > 0


def test_the_stored_result() -> None:
    result = json.loads(RESULT.read_text("utf8"))
    assert set(where(torch.device("cpu"))) <= set(result["where"])
    rows = result["forward"] + result["forward_and_backward"]
    assert {row["length"] for row in rows} == {4096, 8192, 16_384}
    for row in rows:  # a ratio is the median of neighbours' ratios, near that of the medians
        assert row["ratio"] == pytest.approx(row["milliseconds"] / row["beside_milliseconds"], rel=0.1)
    for row in result["beside_eager_rerope"]:
        assert row["times_faster"] == pytest.approx(row["beside_milliseconds"] / row["milliseconds"], rel=0.1)
    memory_rows = result["memory"]
    assert memory_rows[-1]["length"] >= 65_536
    for row, twice in itertools.pairwise(memory_rows):
        assert twice["rerope_megabytes"] < 2.6 * row["rerope_megabytes"]


# --- the command line ----------------------------------------------------------------------------------------------


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In a folder of its own, with a stored result of its own, and what was measured of two tables."""
    measured: list[str] = []

    def table(name: str) -> command.Rows:
        return lambda device: [{"what": name, "number": measured.append(name) or len(measured)}]

    monkeypatch.setattr(program, "TABLES", {name: table(name) for name in ("speed", "memory")})
    monkeypatch.setattr(program, "DATA", tmp_path / "package")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return measured


def test_the_stored_result_is_written_on_demand_only(tables, tmp_path, capsys):
    assert main([]) == 0
    assert tables == ["speed", "memory"]
    assert [path.name for path in tmp_path.rglob("*.json")] == ["bench_cpu.json"]
    assert capsys.readouterr().out.splitlines()[-1] == "written: bench_cpu.json"
    written = json.loads(Path("bench_cpu.json").read_text("utf8"))
    assert written["speed"] == [{"what": "speed", "number": 1}]
    assert main(["--store"]) == 0
    stored = tmp_path / "package" / "bench_cpu.json"
    assert capsys.readouterr().out.splitlines()[-1] == f"written: {stored}"
    assert json.loads(stored.read_text("utf8"))["speed"] == [{"what": "speed", "number": 3}]
    assert json.loads(Path("bench_cpu.json").read_text("utf8")) == written
    assert main(["--out", str(stored)]) == 1
    assert "is a stored result: --store writes it" in capsys.readouterr().err


def test_tables_that_are_not_measured_stay(tables, capsys):
    assert main(["--out", "mine.json"]) == 0
    assert main(["memory", "--out", "mine.json"]) == 0
    found = json.loads(Path("mine.json").read_text("utf8"))
    assert (found["speed"][0]["number"], found["memory"][0]["number"]) == (1, 3)


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"mine": 1}', b"\xff\xfe"])
def test_another_file_is_not_overwritten(tables, capsys, content):
    given = content if isinstance(content, bytes) else content.encode()
    Path("mine.json").write_bytes(given)
    assert main(["--out", "mine.json"]) == 1
    assert "mine.json is no result of this program and stays as it is" in capsys.readouterr().err
    assert Path("mine.json").read_bytes() == given
    assert tables == []


def test_a_full_disk_keeps_the_tables_before(tables, monkeypatch, capsys):
    def full(path: Path, write: object) -> None:
        raise OSError(28, "No space left on device, so this was not written", str(path))

    assert main(["speed"]) == 0
    monkeypatch.setattr(program, "write_whole", full)
    assert main(["memory"]) == 1
    error = capsys.readouterr().err
    assert (
        error == "python -m benchmarks: [Errno 28] No space left on device, so this was not written: 'bench_cpu.json'\n"
    )
    assert "memory" not in json.loads(Path("bench_cpu.json").read_text("utf8"))
