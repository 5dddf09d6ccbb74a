"""The benchmarks run, on sizes that take no time, and the stored CPU result has what the book plots."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch

from benchmarks import decode, memory, rotary, speed, training
from benchmarks.__main__ import where
from benchmarks.sides import bent, eager_rerope, inputs, ours, plain_rope
from benchmarks.timing import in_turns, milliseconds, ratio
from rope_lessons import attention

RESULT = Path(__file__).resolve().parent.parent / "results" / "bench_cpu.json"


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
