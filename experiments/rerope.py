"""Chapter 08: test the byte model with bent distances, inside and beyond its training length.

    python -m experiments rerope
    python -m experiments rerope --only recall      # only the questions about a far token

Takes about 20 minutes on one CPU core, and 90 s a model if not trained yet.

Writes rerope.json. The models are those of chapters 03 and 06 (plain RoPE, and RoPE with the log n scale, trained on 64
bytes), three that are trained with ReRoPE itself, and for the table recall the RoPE models of chapter 07, which answer
a question about a far token. The test text is every fourth piece of that of chapter 03.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import rope_lessons as rl
from experiments import command, local
from experiments.result import Result
from experiments.trained import Models, about, attend_fast, evaluation_windows, measure
from rope_lessons import LogN, Scheme, scheme
from rope_lessons.models import byte_lm, recall

SEEDS, FEW = (0, 1, 2, 3, 4), (0, 1, 2)  # the sweeps, the recall and the models trained with ReRoPE: a few seeds
CONFIG = byte_lm.Config()
DIM, N, LONG = CONFIG.head_dim, CONFIG.length, 512
LENGTHS = (64, 128, 256, 512)
WINDOWS = (4, 8, 16, 24, 32, 40, 48, 56, 60, 62, 63, 64, 80)
FACTORS = (4, 8, 16, 64)  # k: the slope is 1/k
TRAINED_WINDOW = 16  # of the models trained with ReRoPE

DISTANCES = (8, 40, 96, 192, 384)  # from a question to its answer

TABLES = ("rows", "windows", "factors", "relatives", "recall")

# A name for the model, its scale in training and that at test.
SCALES: dict[str, tuple[LogN | None, LogN | None]] = {
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
        bent = rl.rerope.smooth_leaky_distance(torch.tensor([distance]), window, slope, sigma)
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
        row = replace(rerope(N - 1), visible_window=N, sinks=sinks)
        yield f"lm-infinite-{sinks}", row, {"attend": rl.attention}  # sinks: no stock kernel
    yield "window-64", scheme("window", dim=DIM, visible_window=N), {}


# --- what is measured ----------------------------------------------------------------------------------------------


def test(
    model: byte_lm.ByteLM, windows: Tensor, length: int, row: Scheme, scale: LogN | None, **options: Any
) -> dict[str, Any]:
    plan = (replace(row, scale=scale),) * CONFIG.layers
    return {"length": length, **measure(model, windows, length, plan, **({"attend": attend_fast} | options))}


def brief(*arguments: Any, **options: Any) -> dict[str, Any]:
    """For the sweeps: without the eighths, which would make the file large."""
    found = test(*arguments, **options)
    return {name: found[name] for name in ("length", "accuracy", "loss")}


def rows_of(models: Models, seed: int, windows: Tensor) -> dict[str, list[dict]]:
    rows: dict[str, list[dict]] = {"rows": [], "windows": [], "factors": [], "relatives": []}
    for name, (at_training, scale) in SCALES.items():
        plan = None if at_training is None else (scheme("rope", dim=DIM, scale=at_training),) * CONFIG.layers
        model = models.byte_model(seed, plan)
        for method, row in methods().items():
            for length in LENGTHS:
                if method != "pi" or name == "plain":
                    found = test(model, windows, length, row, scale)
                    rows["rows"].append({"model": name, "method": method, **found})
        for window in WINDOWS if seed in FEW else ():
            for length in (N, LONG) if name == "plain" else (LONG,):
                found = brief(model, windows, length, rerope(window), scale)
                rows["windows"].append({"model": name, "window": window, **found})
        for window, factor in product((16, 32), FACTORS) if seed in FEW and name == "plain" else ():
            found = brief(model, windows, LONG, leaky(window, factor), scale)
            rows["factors"].append({"model": name, "window": window, "k": factor, **found})
    if seed in FEW:
        model = models.byte_model(seed)
        for method, row, options in relatives():
            rows["relatives"].append({"method": method, **brief(model, windows, LONG, row, None, **options)})
        own = rerope(TRAINED_WINDOW)
        model = models.byte_model(seed, (own,) * CONFIG.layers)
        for method, row in (("rerope-16", own), ("rope", scheme("rope", dim=DIM)), ("leaky-16-16", leaky(16, 16))):
            for length in LENGTHS:
                found = test(model, windows, length, row, None)
                rows["rows"].append({"model": "rerope-16", "method": method, **found})
    return {table: [{"seed": seed, **row} for row in found] for table, found in rows.items()}


def recall_rows(models: Models, seed: int, windows: Tensor) -> list[dict]:
    """Share of questions answered at 512 bytes, by the distance from the question to what it asks for."""
    model, rows = local.trained_model(models, "rope", seed), []
    shown = {name: methods()[name] for name in ("rope", "rerope-32", "leaky-32-16")}
    shown["window-64"] = scheme("window", dim=DIM, visible_window=N)
    for (method, row), scale in product(shown.items(), (None, LogN(N, clip=True))):
        plan = (replace(row, scale=scale),) * CONFIG.layers
        shares = {}
        for distance in DISTANCES:
            right = recall.answered(model, windows, distance, LONG, plan, attend=attend_fast)
            shares[str(distance)] = round(right.double().mean().item(), 4)
        rows.append({"seed": seed, "method": method, "scale": scale is not None, "recall": shares})
    return rows


def measure_all(
    seeds: Sequence[int], only: str | None, models: Models, windows: Tensor, out: Path, fresh: bool
) -> None:
    settings = {
        "trained_window": TRAINED_WINDOW,
        "few_seeds": list(FEW),
        "config": asdict(models.config(CONFIG)),
        "test_text": about(windows),
    }
    result = Result(out / "rerope.json", "rerope", settings, {table: [] for table in TABLES}, fresh)
    for seed in seeds:
        if only != "recall" and result.lacks("rows", seed=seed):
            result.add(**rows_of(models, seed, windows))
        if only != "rows" and seed in FEW and result.lacks("recall", seed=seed):
            result.add(recall=recall_rows(models, seed, windows))
    result.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.trained_parser("experiments rerope", __doc__, SEEDS)
    parser.add_argument("--only", choices=("rows", "recall"), help="the byte models, or the questions")
    options = command.parse(parser, arguments)
    if options.only == "recall" and not set(options.seeds) & set(FEW):
        parser.error(f"argument --seeds: the questions have seeds {', '.join(map(str, FEW))} only")
    models, windows = Models(options.models, options.steps), evaluation_windows(options.windows, every=4)
    chosen = options.seeds, options.only
    return command.run(parser.prog, lambda: measure_all(*chosen, models, windows, options.out, options.fresh))


if __name__ == "__main__":
    sys.exit(main())
