"""What a card measured becomes the book's results, verdicts and figures. Every number here is made up."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.gpu import __main__ as command
from experiments.gpu import engine, grammars, store, trainings
from experiments.gpu.plan import queue, shapes
from experiments.gpu.records import Record, Records, record
from experiments.gpu.step import Found, Row, Setting
from rope_lessons.chomsky import results as chomsky
from rope_lessons.engine import cost, targets
from rope_lessons.figures import gpu as figures
from rope_lessons.lab.rows import OWN
from rope_lessons.lab.table.lines import Line
from rope_lessons.stored import DATA, read_results

ABOUT = {
    "script": "python -m experiments.gpu", "hardware": "a made-up card", "driver": "1.2", "torch": "2.5.0",
    "python": "3.10.0", "numpy": "2.0", "cuda": "12.4", "cudnn": 9, "capability": "9.0", "cpu": "16 cores",
}  # fmt: skip
ROUNDS = 8


def times(seconds: float) -> list[float]:
    return [seconds * (1 + n / 1000) for n in range(ROUNDS)]


def of_speed(shape: engine.Shape, ratio: float) -> Found:
    """Plain RoPE through two kernels, of which flash is faster, and the engine ``ratio`` times as slow as that."""
    rows: list[Row] = []
    for called, plain in (("forward", 1e-3), ("forward and backward", 3e-3)):
        sides = {"plain, flash": 1.0, "plain, cuDNN": 1.5, "rerope": ratio, "leaky-rerope": ratio + 0.1,
                 "rerope, torch.compile": ratio + 0.2, "eager rerope": 12 * ratio}  # fmt: skip
        labels = {**shape._asdict(), "window": 1024, "pass": called, "dtype": "torch.bfloat16", "peak_bytes": 10**6}
        rows += [{"what": name, **labels, "seconds": times(plain * times_)} for name, times_ in sides.items()]
    kernel = [
        {"what": "rerope, forward", "kernel": f"kernel {n}", "calls": 1, "microseconds": 9.0 - n} for n in range(9)
    ]
    return Found({"times": rows, "profile": kernel, "could_not": [{"what": "plain, flex", "why": "no compiler"}]})


def made_up(ratio: float = 1.07, turn: float = 0.9, merge: float = 0.9) -> dict[str, Found]:
    found = {f"engine/speed/{shape.name}": of_speed(shape, ratio) for shape in shapes("full")}
    peaks = [{"what": side, "length": n, "megabytes": n // 64} for side in ("rerope", "eager") for n in (8192, 131_072)]
    found["engine/memory"] = Found({"peaks": peaks})
    labels: dict[str, Any] = {"length": 16_384, "batch": 16, "heads": 32, "kv_heads": 8, "head_dim": 64}
    labels |= {"window": 1024, "dtype": "torch.bfloat16"}
    steps = [
        {"what": name, **labels, "seconds": times(1e-4 * share), "key_bytes": 10**8, "cache_bytes": 1}
        for name, share in (("plain", 1.0), ("rerope", 1.02), ("leaky-rerope", 1.04))
    ]  # fmt: skip
    found["engine/decode/16384/16"] = Found({"decode": steps})
    for length, share in ((8192, 1.02), (4096, 1.2)):
        labels = {"length": length, "window": length // 4, "width": 64, "layers": 2, "head_dim": 64}
        rows = [{"what": "plain, flash", **labels, "seconds": times(1.0)}]
        rows += [{"what": name, **labels, "seconds": times(share)} for name in targets.METHODS]
        found[f"engine/training/{length}"] = Found({"steps": rows})

    def moving(**seconds: float) -> list[Row]:
        return [{"what": name.replace("_", ", "), "bytes": 10**9, "seconds": times(s)} for name, s in seconds.items()]

    found["engine/rotation"] = Found({"turns": moving(copy=turn, ours=3.0, ours_compiled=1.0)})
    found["engine/merge"] = Found({"merges": moving(copy=merge, merge=1.0)})
    rates = {
        "copy": 4e12,
        "copy in the cache": 8e12,
        "exponentials": 4e12,
        "products, side 8192": 8e14,
        "products, side 64": 1e12,
    }
    found["engine/ceilings"] = Found({"ceilings": [{"what": w, "unit": "x", "a_second": r} for w, r in rates.items()]})
    found["right/kernels"] = Found({"checks": []}, {"calls": 3})
    found["right/lab"] = Found(wrong=["the loss is nan"])
    return found


def keep(folder: Path, found: dict[str, Found], scale: str = "full", device: str = "cuda") -> None:
    setting = Setting(torch.device(device), scale, folder, 0.0, "abc")
    for number, (name, one) in enumerate(found.items()):
        about = {**ABOUT, "date": f"2026-11-{1 + number // 20:02}T00:00Z"}
        Records(folder).keep(record(name, "failed" if one.wrong else "done", setting, about, one, minutes=1.0))


Stored = Callable[..., dict[str, Any]]


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stored:
    """What ``--store`` makes of made-up records: the results of a card."""
    data = tmp_path / "package" / "data"
    data.mkdir(parents=True)
    monkeypatch.setattr(command, "DATA", data)

    def store_all(found: dict[str, Found]) -> dict[str, Any]:
        keep(tmp_path / "have", found)
        assert command.main(["--store", "--have", str(tmp_path / "have"), "--out", str(tmp_path / "out")]) == 0
        return read_results(data / "bench_cuda.json")

    return store_all


def test_the_tables_of_a_card(stored: Stored, tmp_path: Path) -> None:
    result = stored(made_up())
    assert (result["hardware"], result["driver"], result["script"]) == (
        "a made-up card",
        "1.2",
        "python -m experiments.gpu",
    )
    assert result["leases"] == ["2026-11-01, abc", "2026-11-02, abc"]
    row = next(iter(result["forward"].where(length=8192, head_dim=128, heads=16)))
    assert (row["what"], row["beside"]) == ("rerope, w = 1024, forward", "plain, flash")
    assert (row["ratio"], row["milliseconds"], row["target"], row["rounds"]) == (
        1.07,
        pytest.approx(1.0737, 1e-3),
        1.25,
        8,
    )
    assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
    assert {row["length"] for row in result["forward_and_backward"]} == {n * 1024 for n in (4, 8, 16, 32, 64)}
    assert result["beside_eager_rerope"]["times_faster"] == [12.0, 12.0]
    assert result["could_not"]["why"] == ["no compiler"] * len(shapes("full"))
    assert max(map(len, (rows for rows in result["profile"].by("step").values()))) == store.PROFILED
    checks = read_results(tmp_path / "package" / "data" / "gpu_checks.json")["steps"]
    assert checks["state"] == ["done", "failed"]
    assert checks["first"] == [None, "the loss is nan"]
    assert {path.name for path in (tmp_path / "package" / "data").iterdir()} == {"bench_cuda.json", "gpu_checks.json"}


def test_verdicts_follow(stored: Stored) -> None:
    result = stored(made_up())
    rows = {row[1]: row[2:] for row in targets.verdicts({"cpu": None, "cuda": result}) if row[0] == "GPU"}
    assert not [name for name, row in rows.items() if row[-1] == targets.NOT_MEASURED]
    assert rows["time, forward, L/w = 8"] == ("<= 1.25", "1.07", "met")
    assert rows["time, with backward, L/w = 32"] == ("<= 1.1", "1.07", "met")
    assert rows["eager's time at 8192, with backward"] == (">= 10", "12.00", "met")
    assert rows["exponent of memory"] == ("<= 1.25", "1.00", "met")
    assert rows["decode step"] == ("<= 1.05", "1.04", "met")
    assert rows["training step, InvLeaky"] == ("<= 1.03", "1.02", "met")  # at 8192 tokens, where it was set
    assert rows["rotary, share of a copy's speed"] == (">= 0.86", "0.90", "met")
    assert rows["own kernel, rotation"] == ("", "", "not worth it")
    assert rows["own kernel, merge"] == ("", "", "not worth it")


@pytest.mark.parametrize(
    ("ratio", "turn", "merge", "decided"),
    [
        (1.07, 0.5, 0.9, ("worth it", "not worth it")),
        (1.5, 0.9, 0.9, ("not worth it", "worth it")),
        (1.5, 0.9, 0.3, ("not worth it", "worth it")),
    ],
)
def test_decisions_follow(ratio: float, turn: float, merge: float, decided: tuple[str, str], stored: Stored) -> None:
    assert tuple(targets.decisions(stored(made_up(ratio, turn, merge))).values()) == decided


def test_what_is_not_there_is_not_measured(stored: Stored) -> None:
    """A lease that did one step alone."""
    found = made_up()
    result = stored({name: found[name] for name in ("engine/rotation", "right/kernels")})
    verdicts = {row[1]: row[-1] for row in targets.verdicts({"cpu": None, "cuda": result}) if row[0] == "GPU"}
    assert {name for name, verdict in verdicts.items() if verdict != targets.NOT_MEASURED} == {
        "rotary, share of a copy's speed", "own kernel, rotation",
    }  # fmt: skip
    assert targets.counted(result) == []
    for draw in (figures.gpu_ratios, figures.gpu_peak):
        assert "made-up" not in draw(None, result).alt


def test_figures_show_what_was_measured_beside_the_predictions(stored: Stored) -> None:
    result = stored(made_up())
    alt = figures.gpu_ratios(None, result).alt
    assert "GPU, forward, measured: 1.07 to 1.27 at 4k, 1.07 to 1.27 at 8k, " in alt
    assert "GPU, forward, predicted from a copy's measured speed (crosses): " in alt
    assert "GPU, forward and backward, predicted from" in alt
    assert f"GPU: {targets.NOT_MEASURED}" not in alt
    assert "GPU, merged calls: 128 MB at 8k" in figures.gpu_peak(None, result).alt


def test_the_counted_prediction(stored: Stored) -> None:
    """Nothing is fitted: by hand from the counts, the rates of the card and plain RoPE's own time."""
    result = stored(made_up())
    device = targets.ceilings(result)
    assert device == cost.Device("a made-up card", 8e14, 4e12, float("inf"), exps=4e12, cache=8e12)
    rows = targets.counted(result)
    assert len(rows) == 2 * 2 * len(shapes("full"))  # two methods and two passes
    row = next(iter(result["forward"].where(length=8192, head_dim=128, heads=16)))
    plain, ours = targets.card_steps(row)
    more = sum(step.bytes for step in ours if not step.pairs) - sum(step.bytes for step in plain if not step.pairs)
    found = next(
        one for one in rows if (one["what"], one["shape"]) == (row["what"], row["shape"]) and one["length"] == 8192
    )
    assert found["from_plain"] == pytest.approx(1 + more / 4e12 / (row["beside_milliseconds"] / 1e3), abs=1e-3)
    low, high = found["from_counts"]
    assert 1 < high < low  # where attention takes longer, what surrounds it weighs less


def test_a_try_is_stored_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "DATA", tmp_path / "package" / "data")
    found = made_up()
    keep(tmp_path / "have", found, device="cpu")
    keep(tmp_path / "have" / "tiny", found, scale="tiny")
    assert command.main(["--store", "--have", str(tmp_path / "have"), "--out", str(tmp_path / "out")]) == 1
    assert "have must hold results of a card, measured in full; there are none" in capsys.readouterr().err


def test_no_made_up_figure_is_stored() -> None:
    for path in DATA.glob("*.json"):
        assert "made-up" not in path.read_text("utf8")


def test_the_table_of_several_runs(stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings that were real, if tiny, become one table, which the figure of chapter 12 shows."""
    setting = Setting(torch.device("cpu"), "tiny", tmp_path / "work", time.time() + 600)
    setting.work.mkdir()
    found = {
        f"table/gau-25m/0/{row}": trainings.one(setting, "gau-25m", row, 0) for row in ("rope", "invleaky-w128-logn")
    }
    stored({**found, "engine/merge": made_up()["engine/merge"]})
    data = tmp_path / "package" / "data"
    assert len(read_results(data / "table_card_gau-25m_trainings.json")["trainings"]) == 2
    monkeypatch.setattr(figures, "DATA", data)
    tables = figures.stored_tables()
    assert [size for size, lines in tables.items() if lines] == ["gau-25m"]
    lines = tables["gau-25m"] or []
    assert {line.row for line in lines} >= {"rope", OWN}
    assert {line.length for line in lines} == {32, 64, 128, 256, 512}
    alt = figures.gpu_table(tables).alt
    assert "25 million, RoPE: " in alt
    assert "25 million, InvLeaky, log n: " in alt
    assert "87 million: GPU: not yet measured" in alt


def test_without_a_table_its_figure_is_a_strip() -> None:
    strip = figures.gpu_table(dict.fromkeys(figures.SIZES))
    assert "GPU: not yet measured" in strip.alt
    assert strip.figure.get_size_inches()[1] < 1


def test_the_grid_of_chapter_11(stored: Stored, tmp_path: Path) -> None:
    setting = Setting(torch.device("cpu"), "tiny", tmp_path / "work", time.time() + 600)
    name = "chomsky/even_pairs/rnn/none"
    stored({name: grammars.one(setting, *name.split("/")[1:]), "engine/merge": made_up()["engine/merge"]})
    assert {row.model for row in chomsky.read(tmp_path / "package" / "data" / "chomsky_gpu.json")} == {"rnn"}


def test_the_trainings_are_rows_of_the_table() -> None:
    full = Setting(torch.device("cpu"), "full", Path(), 0.0)
    for step in queue("full", "cuda"):
        if step.group == "table":
            recipe = trainings.recipe_of(full, **step.run.keywords)  # type: ignore[attr-defined]
            assert recipe.row.name == recipe.scheme
            assert figures.trained_row([line_of(recipe.scheme)], kind_of(recipe.scheme)) == recipe.scheme


def kind_of(scheme: str) -> str:
    return next(kind for kind in reversed(figures.TRAINED) if scheme == kind or scheme.startswith(f"{kind}-w"))


def line_of(row: str) -> Line:
    return Line(row, row, "repeated", 512, 1, "accuracy", 0.5, 0.4, 0.6, (0.5,), 1, 1, 1)


def test_two_texts_make_no_table() -> None:
    def one(seed: int, sha256: str) -> Record:
        content = {"step": f"table/gau-25m/{seed}/rope", "state": "done", "about": {"corpus": {"sha256": sha256}}}
        return Record(content, {})

    known = {one.step: one for one in (one(0, "a"), one(1, "b"))}
    with pytest.raises(ValueError, match="have must hold trainings of gau-25m on one text, got those on 2"):
        store.write_tables(known, Path())
