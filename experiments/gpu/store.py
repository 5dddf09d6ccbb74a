"""From the records of a card to the results that the book shows: the same tables that chapter 13 has of a CPU."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

from experiments.gpu import records, trainings
from experiments.gpu.records import Record
from experiments.gpu.step import Row
from experiments.packed import unpack
from rope_lessons.chomsky import results as chomsky
from rope_lessons.engine.targets import DECODE, EAGER, METHODS, ROTARY, SPEED, TRAINING_STEP, WINDOW
from rope_lessons.lab.table import finished, summary
from rope_lessons.lab.table.scoring import Evaluation
from rope_lessons.lab.text import Corpus
from rope_lessons.stored import write_results

SHOWN = (
    "date",
    "hardware",
    "driver",
    "capability",
    "card_bytes",
    "cache_bytes",
    "cuda",
    "cudnn",
    "torch",
    "python",
    "numpy",
    "cpu",
)
PROFILED = 6  # kernels of a call


def write(known: Mapping[str, Record], folder: Path, say: Callable[[str], object] = print) -> None:
    """Write every result that there is something for.

    Args:
        known: the records that count, by step.
        folder: of the book's data.
        say: takes a line for each file.

    Raises:
        ValueError: there is nothing to write.
    """
    done = {name: one for name, one in known.items() if one.state == "done"}
    written = [
        path
        for write_one in (write_bench, write_checks, write_tables, write_chomsky)
        for path in write_one(known if write_one is write_checks else done, folder)
    ]
    if not written:
        raise ValueError("have must hold results of a card, measured in full; there are none")
    for path in written:
        say(f"written: {path}")


def of_group(known: Mapping[str, Record], begin: str) -> list[Record]:
    """The records whose names begin so, in the order of their names."""
    return [known[name] for name in sorted(known) if name.startswith(begin)]


def header(found: Sequence[Record]) -> dict[str, Any]:
    """Where results come from: the newest of them, and the date and commit of all."""
    newest = max(found, key=lambda one: str(one.content["date"]))
    leases = sorted({(one.content["date"][:10], one.content["commit"] or "unknown") for one in found})
    about = {name: newest.content[name] for name in SHOWN if name in newest.content}
    return {"script": records.SCRIPT, **about, "leases": [f"{date}, {commit}" for date, commit in leases]}


# --- times -----------------------------------------------------------------------------------------------------------


def compared(row: Row, beside: Row) -> dict[str, Any]:
    """A row beside another one whose calls took turns with its own: medians, and the ratio of neighbours with the
    middle half of all."""
    ratios = [a / b for a, b in zip(row["seconds"], beside["seconds"], strict=True)]
    low, _, high = quantiles(ratios, n=4)
    return {
        "milliseconds": round(1e3 * median(row["seconds"]), 4),
        "beside_milliseconds": round(1e3 * median(beside["seconds"]), 4),
        "ratio": round(median(ratios), 3),
        "ratio_low": round(low, 3),
        "ratio_high": round(high, 3),
        "rounds": len(ratios),
    }


def fastest(rows: Iterable[Row]) -> Row:
    """Of plain RoPE's, through each stock kernel."""
    return min((row for row in rows if row["what"].startswith("plain")), key=lambda row: median(row["seconds"]))


def beside_plain(found: Sequence[Record], backward: bool) -> list[Row]:
    """The engine beside the fastest plain RoPE, for each shape."""
    limits, rows = SPEED["cuda"], []
    called = "forward and backward" if backward else "forward"
    for one in found:
        times = [row for row in one.rows("times") if row["pass"] == called]
        plain = fastest(times)
        for row in times:
            name = row["what"].partition(",")[0]
            if name not in METHODS:
                continue
            target = limits.get(row["length"] // row["window"], (None, None))[backward] if name == "rerope" else None
            kept = {key: row[key] for key in ("length", "head_dim", "heads", "kv_heads", "window")}
            rows.append({
                "what": f"{row['what']}, w = {row['window']}, {called}", "beside": plain["what"],
                "shape": f"{row['heads']} heads on {row['kv_heads']}, head_dim {row['head_dim']}, {row['dtype'][6:]}",
                **kept, **compared(row, plain), "peak_bytes": row.get("peak_bytes"), "target": target,
            })  # fmt: skip
    return rows


def all_plain(found: Sequence[Record]) -> list[Row]:
    """Plain RoPE through each stock kernel, and the published way."""
    keys = ("what", "pass", "length", "head_dim", "heads", "kv_heads")
    return [
        {**{key: row[key] for key in keys}, "milliseconds": round(1e3 * median(row["seconds"]), 4)}
        for one in found
        for row in one.rows("times")
        if row["what"].partition(",")[0] not in METHODS
    ]


def beside_eager(found: Sequence[Record]) -> list[Row]:
    """Forward, and with backward, at the length of the target: of the shapes the one that gains least."""
    length, target = EAGER["cuda"]
    rows = []
    for called in ("forward", "forward and backward"):
        gains: list[Row] = []
        for one in found:
            times = {row["what"]: row for row in one.rows("times") if row["pass"] == called and row["length"] == length}
            if "eager rerope" in times:
                both = compared(times["eager rerope"], times["rerope"])
                shape = f"{times['rerope']['heads']} heads, head_dim {times['rerope']['head_dim']}"
                gains.append({
                    "what": f"rerope, w = {times['rerope']['window']}, {called}", "shape": shape, "length": length,
                    "beside": "eager ReRoPE: two matrices of scores and a where", "times_faster": both["ratio"],
                    "milliseconds": both["beside_milliseconds"], "beside_milliseconds": both["milliseconds"],
                    "target_times_faster": target,
                })  # fmt: skip
        rows += sorted(gains, key=lambda row: row["times_faster"])[:1]
    return rows


def memory(found: Sequence[Record]) -> list[Row]:
    peaks: dict[int, dict[str, int]] = {}
    for one in found:
        for row in one.rows("peaks"):
            peaks.setdefault(row["length"], {})[row["what"]] = row["megabytes"]
    sides = ("rope", "rerope", "eager")
    return [{"length": n, **{f"{side}_megabytes": of.get(side) for side in sides}} for n, of in sorted(peaks.items())]


def decode(found: Sequence[Record]) -> list[Row]:
    """Each scheme's step beside plain RoPE's."""
    rows = []
    for one in found:
        times = {row["what"]: row for row in one.rows("decode")}
        for name, row in times.items():
            if name not in METHODS:
                continue
            key_bytes = row["batch"] * row["kv_heads"] * row["head_dim"] * 2
            rows.append({
                "what": f"one decode step, {name}, w = {row['window']}", "beside": "plain RoPE's step",
                "length": row["length"], "batch": row["batch"],
                "shape": f"{row['heads']} heads on {row['kv_heads']}, head_dim {row['head_dim']}, {row['dtype'][6:]}",
                **compared(row, times["plain"]), "target": DECODE,
                "sdpa_milliseconds": round(1e3 * median(times["SDPA"]["seconds"]), 4) if "SDPA" in times else None,
                "keys_more_than_rope": (row["key_bytes"] - times["plain"]["key_bytes"]) // key_bytes,
                "cache_megabytes": round(row["cache_bytes"] / 1e6, 1),
            })  # fmt: skip
    return rows


STEPS = {"rerope": "ReRoPE", "leaky-rerope": "Leaky ReRoPE", "invleaky": "InvLeaky"}


def training_step(found: Sequence[Record]) -> list[Row]:
    rows = []
    for one in found:
        times = {row["what"]: row for row in one.rows("steps")}
        for name, called in STEPS.items():
            if name in times:
                row, plain = times[name], fastest(times.values())
                rows.append({
                    "what": f"a training step with {called}, w = {row['window']}, slope {METHODS[name]:g}",
                    "beside": plain["what"], "length": row["length"],
                    "shape": f"{row['layers']} layers, width {row['width']}, head_dim {row['head_dim']}",
                    **compared(row, plain), "target": TRAINING_STEP if name == "invleaky" else None,
                })  # fmt: skip
    return rows


def shares_of_copy(found: Sequence[Record], name: str, called: str) -> list[Row]:
    """Bytes a second, beside a copy's in the same rounds."""
    rows = []
    for one in found:
        times = {row["what"]: row for row in one.rows(name)}
        for what, row in times.items():
            both = compared(times["copy"], row)
            rows.append({
                "what": f"{called}{what}", "beside": "a copy of as many bytes", "bytes": row["bytes"],
                "gigabytes_a_second": round(row["bytes"] / median(row["seconds"]) / 1e9),
                "share_of_copy": both["ratio"], "share_low": both["ratio_low"], "share_high": both["ratio_high"],
            })  # fmt: skip
    return rows


def bench(known: Mapping[str, Record]) -> dict[str, list[Row]]:
    """All tables of times; those that nothing was measured of are not there."""
    speeds = of_group(known, "engine/speed/")
    profiles = [
        {"step": one.step, **row}
        for one in of_group(known, "engine/")
        for what in dict.fromkeys(row["what"] for row in one.rows("profile"))
        for row in [row for row in one.rows("profile") if row["what"] == what][:PROFILED]
    ]
    tables = {
        "forward": beside_plain(speeds, False),
        "forward_and_backward": beside_plain(speeds, True),
        "plain": all_plain(speeds),
        "beside_eager_rerope": beside_eager(speeds),
        "memory": memory(of_group(known, "engine/memory")),
        "decode": decode(of_group(known, "engine/decode/")),
        "training_step": training_step(of_group(known, "engine/training/")),
        "rotary": shares_of_copy(of_group(known, "engine/rotation"), "turns", "rotary on q and k, "),
        "merge": shares_of_copy(of_group(known, "engine/merge"), "merges", ""),
        "ceilings": [
            {key: row[key] for key in ("what", "unit", "a_second")}
            for one in of_group(known, "engine/ceilings")
            for row in one.rows("ceilings")
        ],
        "profile": profiles,
        "could_not": [{"step": one.step, **row} for one in known.values() for row in one.rows("could_not")],
    }
    return {name: rows for name, rows in tables.items() if rows}


def write_bench(known: Mapping[str, Record], folder: Path) -> list[Path]:
    found, path = of_group(known, "engine/"), folder / "bench_cuda.json"
    if not found:
        return []
    about = {"window": WINDOW, "rotary_target": ROTARY}
    write_results(path, {**header(found), **about}, **bench({one.step: one for one in found}))
    return [path]


# --- what is no time -------------------------------------------------------------------------------------------------


def write_checks(known: Mapping[str, Record], folder: Path) -> list[Path]:
    """What was tried on the card: kernels, random calls, models, notebooks; and what was wrong."""
    found, path = [*of_group(known, "right/"), *of_group(known, "notebooks/")], folder / "gpu_checks.json"
    if not found:
        return []
    rows = [
        {
            "step": one.step, "state": one.state, "date": one.content["date"], "commit": one.content["commit"],
            "minutes": one.content.get("minutes"), "wrong": len(one.content["wrong"]),
            "first": one.content["wrong"][0][-300:] if one.content["wrong"] else None,
            **{key: one.content["about"].get(key) for key in ("calls", "tests", "seconds", "peak_bytes", "missing")},
        }
        for one in found
    ]  # fmt: skip
    write_results(path, header(found), steps=rows)
    return [path]


def write_tables(known: Mapping[str, Record], folder: Path) -> list[Path]:
    """The articles' table for each size, of the counts of all its trainings, which must be of one text."""
    written = []
    for size in trainings.SIZES:
        found = of_group(known, f"table/{size}/")
        if not found:
            continue
        texts = {one.content["about"]["corpus"]["sha256"] for one in found}
        if len(texts) > 1:
            raise ValueError(f"have must hold trainings of {size} on one text, got those on {len(texts)}")
        path, about_path = folder / f"table_card_{size}.json", folder / f"table_card_{size}_trainings.json"
        with tempfile.TemporaryDirectory() as root:
            for number, one in enumerate(found):
                counts = Path(root) / f"{number}.zip"
                counts.write_bytes(one.files["counts.zip"])
                unpack(counts, Path(root) / "counts")
            models = finished.find([Path(root) / "counts"])
            nothing = np.zeros(0, np.uint8)
            corpus = Corpus(nothing, nothing, nothing, found[0].content["about"]["corpus"])
            tests = Evaluation(**found[0].content["about"]["tests"])
            rows = [one.content["about"]["rows"] for one in found]
            wanted = None if None in rows else [name for some in rows for name in some]
            lines = list(summary.records(models, corpus, tests, wanted, script=records.SCRIPT))
        summary.write_table(lines, path)
        write_results(about_path, header(found), trainings=[row for one in found for row in one.rows("trainings")])
        written += [path, about_path]
    return written


def write_chomsky(known: Mapping[str, Record], folder: Path) -> list[Path]:
    found, path = of_group(known, "chomsky/"), folder / "chomsky_gpu.json"
    if not found:
        return []
    write_results(path, {}, rows=[row for one in found for row in one.rows("rows")])
    chomsky.read(path)  # is it what the chapter reads?
    return [path]
