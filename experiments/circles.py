"""Chapter 05: test the byte model with YaRN and its relatives, inside and beyond its training length.

    python -m experiments circles

Takes about 10 minutes on one CPU core, and 90 s a seed if not trained yet.

Writes circles.json. The models are those of chapter 03: plain RoPE, trained on 64 bytes. The table rows takes the whole
test text, the other tables every fourth piece of it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import rope_lessons as rl
from experiments import command
from experiments.result import Result
from experiments.trained import Models, about, evaluation_windows, measure
from rope_lessons.models import byte_lm
from rope_lessons.schemes import scheme

SEEDS = (0, 1, 2, 3, 4)
CONFIG = byte_lm.Config()
DIM, N, FACTOR, LONG = CONFIG.head_dim, CONFIG.length, 8, 512
LENGTHS = (64, 128, 256, 512)
TABLES = ("rows", "limits", "temperatures", "declared", "stretches", "entropies")
DECLARED = 85  # a window that the model claims but has not been trained on: 64 of it, as 3k of 4k
SLOW, FAST = (0.25, 0.5, 1.0, 2.0), (2.0, 4.0, 8.0, 32.0)
TEMPERATURES = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5)
STRETCHES = (0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 8.0)  # of the factor, at 256 bytes

Method = tuple[Tensor, float]  # frequencies, attention factor


def attend_with(frequencies: Tensor) -> Callable[..., Tensor]:
    def attend(q: Tensor, k: Tensor, v: Tensor, scheme: rl.Scheme) -> Tensor:
        return rl.attention(q, k, v, scheme, frequencies=frequencies)

    return attend


def test(model: byte_lm.ByteLM, windows: Tensor, length: int, method: Method) -> dict[str, Any]:
    frequencies, attention_factor = method
    plan = (scheme("rope", dim=DIM, rotary_scale=attention_factor),) * CONFIG.layers
    return {"length": length, **measure(model, windows, length, plan, attend=attend_with(frequencies))}


def brief(model: byte_lm.ByteLM, windows: Tensor, length: int, method: Method) -> dict[str, Any]:
    """For the sweeps: without the eighths, which would make the file large."""
    found = test(model, windows, length, method)
    return {name: found[name] for name in ("length", "accuracy", "loss")}


@cache
def yarn(factor: float, train_length: int = N) -> Method:
    return rl.yarn_frequencies(DIM, factor, train_length), rl.yarn_attention_factor(factor)


def methods() -> dict[str, Method]:
    """What is set once for a factor of 8 and then kept, at every length."""
    plain, (ramp, warm) = rl.rope_frequencies(DIM), yarn(FACTOR)
    aware = rl.ntk_frequencies(DIM, FACTOR, variant="aware")
    return {
        "rope": (plain, 1.0),
        "rope-temperature": (plain, warm),
        "pi": (rl.pi_frequencies(DIM, FACTOR), 1.0),
        "pi-temperature": (rl.pi_frequencies(DIM, FACTOR), warm),
        "ntk-fixed": (rl.ntk_frequencies(DIM, FACTOR, variant="fixed"), 1.0),
        "ntk-mixed": (rl.mixed_radix_frequencies(DIM, FACTOR), 1.0),
        "ntk-aware": (aware, 1.0),
        "ntk-aware-temperature": (aware, warm),
        "by-parts": (rl.ntk_by_parts_frequencies(DIM, FACTOR, N), 1.0),
        "llama3": (rl.llama3_frequencies(DIM, FACTOR, N), 1.0),
        "llama3-temperature": (rl.llama3_frequencies(DIM, FACTOR, N), warm),
        "yarn-ramp": (ramp, 1.0),
        "yarn": (ramp, warm),
        "yarn-not-truncated": (rl.yarn_frequencies(DIM, FACTOR, N, truncate=False), warm),
    }


def per_request(length: int) -> dict[str, Method]:
    """What is set for each text by its length: the locally static rule."""
    factor = max(1.0, length / N)
    return {
        "pi-request": (rl.pi_frequencies(DIM, factor), 1.0),
        "ntk-aware-request": (rl.ntk_frequencies(DIM, factor, variant="aware"), 1.0),
        "dynamic-ntk-request": (rl.dynamic_ntk_frequencies(DIM, length, N, FACTOR), 1.0),
        "llama3-request": (rl.llama3_frequencies(DIM, factor, N), 1.0),
        "yarn-request": yarn(factor),
    }


def attend_dynamic(q: Tensor, k: Tensor, v: Tensor, scheme: rl.Scheme) -> Tensor:
    """YaRN set anew at every token by the length so far, over raw keys: what decoding step by step would compute."""
    steps = []
    for i in range(q.shape[2]):
        frequencies, attention_factor = yarn(max(1.0, (i + 1) / N))
        now = rl.scheme("rope", dim=DIM, rotary_scale=attention_factor)
        seen = slice(0, i + 1)
        steps.append(rl.attention(q[:, :, i : i + 1], k[:, :, seen], v[:, :, seen], now, frequencies=frequencies))
    return torch.cat(steps, dim=2)


def seen_or_declared(length: int) -> dict[str, Method]:
    """The factor over the length of training, and over the length that the model declares."""
    found = {}
    for name, window in (("seen", N), ("declared", DECLARED)):
        factor = length / window
        found[f"pi-{name}"] = (rl.pi_frequencies(DIM, factor), 1.0)
        found[f"ntk-aware-{name}"] = (rl.ntk_frequencies(DIM, factor, variant="aware"), 1.0)
        found[f"llama3-{name}"] = (rl.llama3_frequencies(DIM, factor, window), 1.0)
        found[f"yarn-{name}"] = yarn(factor, window)
    return found


@torch.no_grad()
def entropies(model: byte_lm.ByteLM, windows: Tensor, length: int, method: Method) -> list[float]:
    """Mean entropy, in nats, of the attention of the last eighth of the queries, for each layer."""
    frequencies, attention_factor = method
    found: list[float] = []

    def attend(q: Tensor, k: Tensor, v: Tensor, scheme: rl.Scheme) -> Tensor:
        positions, layout = torch.arange(length), scheme.layout
        last_q = rl.apply_rotary(q, positions, frequencies, layout=layout, scale=attention_factor)[:, :, -length // 8 :]
        all_k = rl.apply_rotary(k, positions, frequencies, layout=layout, scale=attention_factor)
        hidden = positions > positions[-length // 8 :, None]  # (length/8, length): keys that come later
        scores = (last_q @ all_k.mT / math.sqrt(DIM)).masked_fill(hidden, -math.inf)
        found.append(rl.entropy.attention_entropy(scores.softmax(dim=-1)).mean().item())
        return attend_with(frequencies)(q, k, v, scheme)

    plan = (scheme("rope", dim=DIM, rotary_scale=attention_factor),) * CONFIG.layers
    model(windows[:, :LONG].reshape(-1, length), plan, attend)
    return [round(entropy, 3) for entropy in found]


def rows_of(model: byte_lm.ByteLM, windows: Tensor, seed: int) -> dict[str, list[dict]]:
    some, plain = windows[::4], rl.rope_frequencies(DIM)
    rows: dict[str, list[dict]] = {name: [] for name in ("rows", "limits", "temperatures", "declared", "stretches")}
    for name, method in methods().items():
        lengths = LENGTHS if name in ("rope", "pi", "ntk-aware", "llama3", "yarn-ramp", "yarn") else (N, LONG)
        rows["rows"] += [{"method": name, **test(model, windows, length, method)} for length in lengths]
    for length in LENGTHS:
        rows["rows"] += [{"method": n, **test(model, windows, length, m)} for n, m in per_request(length).items()]
    dynamic = measure(model, windows, LONG, attend=attend_dynamic)
    rows["rows"].append({"method": "yarn-dynamic", "length": LONG, **dynamic})
    for slow in SLOW:
        for fast in (fast for fast in FAST if fast > slow):
            ramp = rl.ntk_by_parts_frequencies(DIM, FACTOR, N, alpha=slow, beta=fast)
            for factor, length in ((1.0, N), (1.0, LONG), (yarn(FACTOR)[1], LONG)):
                limits = {"slow": slow, "fast": fast, "attention_factor": round(factor, 4)}
                rows["limits"].append({**limits, **brief(model, some, length, (ramp, factor))})
    for factor in TEMPERATURES:
        for name, frequencies in (("rope", plain), ("yarn", yarn(FACTOR)[0])):
            for length in (N, LONG):
                setting = {"method": name, "attention_factor": factor}
                rows["temperatures"].append({**setting, **brief(model, some, length, (frequencies, factor))})
    for length in LENGTHS[1:]:
        for name, method in seen_or_declared(length).items():
            rows["declared"].append({"method": name, **brief(model, some, length, method)})
    for stretch in STRETCHES:
        factor = stretch * 256 / N
        for name, method in (
            ("pi", (rl.pi_frequencies(DIM, factor), 1.0)),
            ("ntk-aware", (rl.ntk_frequencies(DIM, factor, variant="aware"), 1.0)),
            ("yarn", yarn(factor)),
        ):
            rows["stretches"].append({"method": name, "factor": factor, **brief(model, some, 256, method)})
    chosen = (("rope", N), ("rope", LONG), ("ntk-aware", LONG), ("yarn-ramp", LONG), ("yarn", LONG))
    rows["entropies"] = [
        {"method": name, "length": length, "entropy": entropies(model, some, length, methods()[name])}
        for name, length in chosen
    ]
    return {table: [{"seed": seed, **row} for row in found] for table, found in rows.items()}


def measure_all(seeds: Sequence[int], models: Models, windows: Tensor, out: Path, fresh: bool) -> None:
    settings = {
        "factor": FACTOR,
        "declared_window": DECLARED,
        "config": asdict(models.config(CONFIG)),
        "test_text": about(windows),
    }
    result = Result(out / "circles.json", "circles", settings, {table: [] for table in TABLES}, fresh)
    for seed in seeds:
        if result.lacks("rows", seed=seed):
            result.add(**rows_of(models.byte_model(seed), windows, seed))
    result.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.trained_parser("experiments circles", __doc__, SEEDS)
    options = command.parse(parser, arguments)
    models, windows = Models(options.models, options.steps), evaluation_windows(options.windows)
    return command.run(parser.prog, lambda: measure_all(options.seeds, models, windows, options.out, options.fresh))


if __name__ == "__main__":
    sys.exit(main())
