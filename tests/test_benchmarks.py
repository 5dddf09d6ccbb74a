"""The benchmarks run, on sizes that take no time, and the stored CPU result has what the book plots."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.benchmarks import decode, memory, pretrained, rotary, speed, split, training
from experiments.benchmarks.__main__ import main, read, where
from experiments.benchmarks.sides import eager_rerope, inputs, ours, plain_rope
from experiments.benchmarks.table import Rows, device_here
from experiments.benchmarks.timing import in_turns, milliseconds, ratio
from rope_lessons import attention, scheme, stored
from rope_lessons.engine import bands, kernels
from rope_lessons.engine.targets import SPEED
from rope_lessons.stored import DATA, read_results, results


@pytest.mark.parametrize("slope", [0.0, 0.125, 16.0])
def test_all_sides_compute_the_same(slope: float, device: torch.device) -> None:
    qkv = inputs(50, 2, 8, device, torch.float32)
    wanted = attention(*qkv, scheme("leaky-rerope", dim=8, window=7, slope=slope), backend="reference")
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


def test_rows_on_tiny_sizes(device: torch.device) -> None:
    size = training.Size(width=16, layers=1, head_dim=8, length=64, dtype=torch.float32)
    plain = speed.beside_plain(device, False, window=16) + speed.beside_plain(device, True, window=16)
    assert len(plain) == 2 * 2 * len(SPEED[device.type]) * len(speed.DIMS[device.type]) * (
        1 if device.type == "cpu" else 2
    )
    for row in [*plain, *speed.beside_eager(device, window=16, length=64), *training.rows(device, size)]:
        assert row["milliseconds"] > 0
        assert row["beside_milliseconds"] > 0
        assert {"what", "beside", "length", "shape"} <= set(row)
    assert decode.rows(device.type, lengths=(64,), steps=1)
    assert len(pretrained.rows(device, lengths=(64,), steps=1)) == len(pretrained.SIDES)
    if device.type == "cpu":
        assert rotary.rows(device) == []
    for row in split.rows(device, lengths=(1100,), rounds=2):
        assert device.type == "cpu"
        assert 0 < row["kernels_milliseconds"] < 1.5 * row["milliseconds"]
        assert row["copy_milliseconds"] > 0
        assert kernels.KERNELS["cpu"].forward.__module__ == kernels.__name__  # put back
    for row in split.small_rows(device, lengths=(1100,), rounds=2):
        calls = bands.plan(1100, 1100, [0, 1024], None, True, grain=kernels.KERNELS["cpu"].grain, slides=False)
        assert row["kernel_calls"] == len(calls)
        assert row["milliseconds"] > 0
    for row in split.eager_rows(device, length=300, rounds=2):
        assert 0 < row["products_share"] < 1


@torch.no_grad()
def test_models_that_decode_the_same(device: torch.device) -> None:
    """With plain RoPE and with ReRoPE, whatever cache they have."""
    tokens = torch.randint(3, 50, (1, pretrained.WINDOW + 40), device=device)
    found = {}
    for name in pretrained.SIDES:
        model = pretrained._model(name, device)
        cache = model(tokens[:, :-1]).past_key_values
        found[name] = model(tokens[:, -1:], past_key_values=cache).logits
        torch.testing.assert_close(found[name], model(tokens).logits[:, -1:], atol=1e-4, rtol=0)
    torch.testing.assert_close(found["rope"], found["sdpa"], atol=1e-4, rtol=0)
    torch.testing.assert_close(found["rerope"], found[pretrained.ANEW], atol=1e-4, rtol=0)
    assert (found["rerope"] - found["rope"]).abs().max() > 1e-3


def test_memory_of_the_engine_grows_with_the_length(device: torch.device) -> None:
    """Four times the length: the peak of the engine is about four times as high, that of eager about sixteen."""
    short, long = (memory._in_a_process("rerope", length, device) for length in (4096, 16_384))
    assert 0 < long < 9 * short  # what the allocator keeps varies
    short, long = (memory._in_a_process("eager", length, device) for length in (1024, 4096))
    assert long > 10 * short > 0


def test_the_stored_result() -> None:
    result = results("bench_cpu")
    assert where(torch.device("cpu")).keys() <= result.keys()
    rows = [*result["forward"], *result["forward_and_backward"]]
    assert {row["length"] for row in rows} == {4096, 8192, 16_384}
    for row in rows:  # a ratio is the median of neighbours' ratios, near that of the medians
        assert row["ratio"] == pytest.approx(row["milliseconds"] / row["beside_milliseconds"], rel=0.1)
    for row in result["beside_eager_rerope"]:
        assert row["times_faster"] == pytest.approx(row["beside_milliseconds"] / row["milliseconds"], rel=0.1)
    decoding = result["decode_pretrained"]
    assert sorted(set(decoding["length"])) == sorted(pretrained.LENGTHS)
    for row in decoding:
        assert row["ratio"] == pytest.approx(row["milliseconds"] / row["beside_milliseconds"], rel=0.15)
    ours, anew = (decoding.where(what=pretrained.SIDES[name])["ratio"] for name in ("rerope", pretrained.ANEW))
    assert all(2 * a < b for a, b in zip(ours, anew, strict=True))  # as chapter 13 says
    memory_rows = list(result["memory"])
    assert memory_rows[-1]["length"] >= 65_536
    assert all(row["rope_megabytes"] < row["rerope_megabytes"] for row in memory_rows)
    for row, twice in itertools.pairwise(memory_rows):
        assert twice["rerope_megabytes"] < 2.6 * row["rerope_megabytes"]


# --- the command line ----------------------------------------------------------------------------------------------


NAME = f"bench_{device_here().type}.json"
Measured = tuple[dict[str, Rows], list[str]]


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measured:
    """Two tables, in a folder of its own; and which of them were measured."""
    measured: list[str] = []

    def table(name: str) -> Rows:
        def rows(device: torch.device) -> list[dict[str, Any]]:
            measured.append(name)
            return [{"what": name, "number": len(measured)}]

        return rows

    monkeypatch.chdir(tmp_path)
    return {name: table(name) for name in ("speed", "memory")}, measured


def test_only_the_folder_of_results_is_written(tables: Measured, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], tables[0]) == 0
    assert tables[1] == ["speed", "memory"]
    assert [str(path) for path in Path().rglob("*") if path.is_file()] == [f"results/{NAME}"]
    assert capsys.readouterr().out.splitlines()[-1] == f"written: results/{NAME}"
    written = read_results(Path("results", NAME))
    assert [(row["what"], row["number"]) for row in written["speed"]] == [("speed", 1)]
    assert written.keys() >= {"script", "date", "hardware", "python", "torch", "threads"}


def test_the_stored_result_is_written_on_demand_only() -> None:
    assert read(["--store"], {}).out == DATA
    assert read([], {}).out == Path("results")


def test_tables_that_are_not_measured_stay(tables: Measured) -> None:
    assert main(["--out", "mine"], tables[0]) == 0
    assert main(["memory", "--out", "mine"], tables[0]) == 0
    found = read_results(Path("mine", NAME))
    assert (found["speed"]["number"], found["memory"]["number"]) == ([1], [3])
    assert found["speed"]["date"][0] <= found["memory"]["date"][0] <= found["date"]  # of its own run


MINE = b'{"tables": {"mine": {"same": {}, "columns": ["a"], "rows": [[1]]}}}'


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"{}", b'{"mine": 1}', MINE, b"\xff\xfe"])
def test_another_file_is_not_overwritten(tables: Measured, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    Path(NAME).write_bytes(content)
    assert main(["--out", "."], tables[0]) == 1
    assert f"{NAME} is no result of this program and stays as it is" in capsys.readouterr().err
    assert Path(NAME).read_bytes() == content
    assert tables[1] == []


def test_a_full_disk_keeps_the_tables_before(
    tables: Measured, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, write: object) -> None:
        raise OSError(28, "No space left on device, so this was not written", str(path))

    assert main(["speed"], tables[0]) == 0
    monkeypatch.setattr(stored, "write_whole", full)
    assert main(["memory"], tables[0]) == 1
    told = "[Errno 28] No space left on device, so this was not written"
    assert capsys.readouterr().err == f"python -m experiments.benchmarks: {told}: 'results/{NAME}'\n"
    assert "memory" not in read_results(Path("results", NAME))


def test_interrupted(tables: Measured, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(device: torch.device) -> list[dict[str, Any]]:
        raise KeyboardInterrupt

    assert main([], tables[0] | {"memory": interrupted}) == 130
    assert (
        capsys.readouterr().err == "python -m experiments.benchmarks: interrupted. The tables that were done are kept\n"
    )
    assert read_results(Path("results", NAME)).keys() == {*where(device_here()), "speed"}
