"""Test the byte models with the bent distances of chapter 08, inside and beyond the training length.

    python scripts/measure_rerope.py        # about 20 minutes on one CPU core, and 90 s a model if not trained yet

Writes results/rerope.json with a copy in rope_lessons/checkpoints/. The models are those of chapters 03 and 06 (plain
RoPE, and RoPE with the log n scale, trained on 64 bytes), three that are trained with ReRoPE itself, and for the table
recall the RoPE models of chapter 07, which answer a question about a far token. The table rows takes the whole test
text, the sweeps every fourth piece of it.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch
from common import digest, measure, provenance, store, trained
from measure_local import trained_model
from torch import Tensor

import rope_lessons as rl
from rope_lessons import LogN, Scheme, scheme
from rope_lessons.lab import byte_lm, recall

SEEDS, RETRAINED = (0, 1, 2, 3, 4), (0, 1, 2)
CONFIG = byte_lm.Config()
DIM, N, LONG = CONFIG.head_dim, CONFIG.length, 512
LENGTHS = (64, 128, 256, 512)
WINDOWS = (2, 4, 8, 16, 24, 32, 40, 48, 56, 60, 62, 63, 64, 80)
FACTORS = (4, 8, 16, 32, 64)  # k: the slope is 1/k
TRAINED_WINDOW = 16  # of the models trained with ReRoPE

DISTANCES = (8, 24, 40, 56, 96, 192, 384)  # from a question to its answer

# A name for the model of training and for the scale at test.
MODELS: dict[str, tuple[LogN | None, LogN | None]] = {
    "plain": (None, None),
    "log n†": (None, LogN(N, clip=True)),
    "log n": (LogN(N), LogN(N)),
}


def rerope(window: int) -> Scheme:
    return scheme("rerope", dim=DIM, window=window)


def leaky(window: int, factor: float) -> Scheme:
    return scheme("leaky-rerope", dim=DIM, window=window, slope=1 / factor)


def methods() -> dict[str, Scheme]:
    """The rows that every length is tested with."""
    return {
        "rope": scheme("rope", dim=DIM),
        "pi": scheme("pi", dim=DIM, factor=8),
        "rerope-16": rerope(16),
        "rerope-32": rerope(32),
        "leaky-16-16": leaky(16, 16),
        "leaky-32-16": leaky(32, 16),
    }


# --- relatives that are no setting of window and slope: dense attention with other distances -----------------------


def dense(scores: Tensor, v: Tensor) -> Tensor:
    """Causal softmax attention from scores before the division by the root of the head dimension."""
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return (scores / math.sqrt(DIM)).masked_fill(hidden, -math.inf).softmax(dim=-1) @ v


def attend_grouped(q: Tensor, k: Tensor, v: Tensor, scheme: Scheme, *, window: int, group: int) -> Tensor:
    """Self-Extend: near as it is; far keys and queries by the number of their group."""
    index, frequencies = torch.arange(q.shape[2]), rl.rope_frequencies(DIM)
    turn = partial(rl.apply_rotary, frequencies=frequencies, layout=scheme.layout)
    near = turn(q, index) @ turn(k, index).mT
    far = turn(q, index // group + window - window // group) @ turn(k, index // group).mT
    return dense(torch.where(index[:, None] - index < window, near, far), v)


def attend_smooth(
    q: Tensor, k: Tensor, v: Tensor, scheme: Scheme, *, window: int, slope: float, sigma: float
) -> Tensor:
    """The smoothed map: Leaky ReRoPE, and the diagonals inside the transition each with its own turn."""
    index, frequencies = torch.arange(q.shape[2]), rl.rope_frequencies(DIM)
    turn = partial(rl.apply_rotary, frequencies=frequencies, layout=scheme.layout)
    near = turn(q, index) @ turn(k, index).mT
    far = turn(q, window * (1 - slope) + slope * index.double()) @ turn(k, slope * index.double()).mT
    scores = torch.where(index[:, None] - index < window, near, far)
    for distance in range(max(1, math.ceil(window - sigma)), math.floor(window + sigma) + 1):
        if distance >= len(index):
            break
        bent = rl.smooth_leaky_distance(torch.tensor([distance]), window, slope, sigma)
        pairs = len(index) - distance
        values = (turn(q[:, :, distance:], bent.expand(pairs)) * k[:, :, :pairs]).sum(dim=-1)
        torch.diagonal(scores, offset=-distance, dim1=-2, dim2=-1).copy_(values)
    return dense(scores, v)


def relatives() -> Iterator[tuple[str, Scheme, dict[str, Any]]]:
    plain = scheme("rope", dim=DIM)
    for window, group in ((16, 16), (32, 16), (32, 8)):
        attend: Callable[..., Tensor] = partial(attend_grouped, window=window, group=group)
        yield f"self-extend-{window}-{group}", plain, {"attend": attend}
    for sigma in (1.6, 16.0):
        attend = partial(attend_smooth, window=32, slope=1 / 16, sigma=sigma)
        yield f"smooth-32-16-{sigma:g}", plain, {"attend": attend}
    for sinks in (4, 10):
        yield f"lm-infinite-{sinks}", replace(rerope(N - 1), visible_window=N, sinks=sinks), {}
    yield "window-64", scheme("window", dim=DIM, visible_window=N), {}


# --- what is measured ----------------------------------------------------------------------------------------------


def test(
    model: byte_lm.ByteLM, windows: Tensor, length: int, row: Scheme, scale: LogN | None, **options: Any
) -> dict[str, Any]:
    plan = (replace(row, scale=scale),) * CONFIG.layers
    return {"length": length, **measure(model, windows, length, plan, **options)}


def brief(*arguments: Any, **options: Any) -> dict[str, Any]:
    """For the sweeps: without the eighths, which would make the file large."""
    found = test(*arguments, **options)
    return {name: found[name] for name in ("length", "accuracy", "loss")}


def rows_of(seed: int, windows: Tensor) -> dict[str, list[dict]]:
    some = windows[::4]
    rows: dict[str, list[dict]] = {name: [] for name in ("rows", "windows", "factors", "relatives")}
    for name, (at_training, scale) in MODELS.items():
        plan = None if at_training is None else (scheme("rope", dim=DIM, scale=at_training),) * CONFIG.layers
        model = trained(seed, plan=plan)
        for method, row in methods().items():
            for length in LENGTHS:
                rows["rows"].append({"model": name, "method": method, **test(model, windows, length, row, scale)})
        for window in WINDOWS:
            for length in (N, LONG):
                found = brief(model, some, length, rerope(window), scale)
                rows["windows"].append({"model": name, "window": window, **found})
        for window in (16, 32):
            for factor in FACTORS:
                found = brief(model, some, LONG, leaky(window, factor), scale)
                rows["factors"].append({"model": name, "window": window, "k": factor, **found})
    model = trained(seed)
    for method, row, options in relatives():
        rows["relatives"].append({"method": method, **brief(model, some, LONG, row, None, **options)})
    for method, row in methods().items():  # on the same pieces
        rows["relatives"].append({"method": method, **brief(model, some, LONG, row, None)})
    if seed in RETRAINED:
        own = rerope(TRAINED_WINDOW)
        model = trained(seed, plan=(own,) * CONFIG.layers)
        for method, row in (("rerope-16", own), ("rope", scheme("rope", dim=DIM)), ("leaky-16-16", leaky(16, 16))):
            for length in LENGTHS:
                rows["rows"].append({"model": "rerope-16", "method": method, **test(model, windows, length, row, None)})
    return {table: [{"seed": seed, **row} for row in found] for table, found in rows.items()}


def recall_rows(seed: int, windows: Tensor) -> list[dict]:
    """Share of questions answered at 512 bytes, by the distance from the question to what it asks for."""
    model, rows = trained_model("rope", seed), []
    near = {"window-64": scheme("window", dim=DIM, visible_window=N)}
    for method, row in (methods() | near).items():
        for scale in (None, LogN(N, clip=True)):
            plan = (replace(row, scale=scale),) * CONFIG.layers
            found = {d: recall.recall(model, windows, d, LONG, plan).double().mean().item() for d in DISTANCES}
            shares = {str(distance): round(share, 4) for distance, share in found.items()}
            rows.append({"seed": seed, "method": method, "scale": scale is not None, "recall": shares})
    return rows


def main(seeds: tuple[int, ...] = SEEDS) -> None:
    torch.set_num_threads(1)
    windows = byte_lm.evaluation_windows()
    test_text = {"windows": len(windows), "bytes_predicted": windows[:, 1:].numel(), "sha256": digest(windows)}
    settings = {
        "trained_window": TRAINED_WINDOW,
        "retrained_seeds": list(RETRAINED),
        "config": asdict(CONFIG),
        "test_text": test_text,
    }
    tables: dict[str, list[dict]] = {}
    for number, seed in enumerate(seeds, start=1):
        begin = time.perf_counter()
        for table, rows in rows_of(seed, windows).items():
            tables.setdefault(table, []).extend(rows)
        if seed in RETRAINED:
            tables.setdefault("recall", []).extend(recall_rows(seed, windows[::2]))
        print(f"seed {seed}: {time.perf_counter() - begin:.0f} s", flush=True)
        # After every seed: an interrupted run keeps what is done.
        store("rerope", {**provenance(__file__), "seeds": list(seeds[:number]), **settings, **tables})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    main(tuple(parser.parse_args().seeds))
