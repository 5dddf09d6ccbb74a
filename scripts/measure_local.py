"""Train byte models that must answer a question about a far token (chapter 07), and test what local attention loses.

    python scripts/measure_local.py                         # everything: about 70 s of training for each of 15 models
    python scripts/measure_local.py --train window 0        # only train one model, into .models/

Writes rope_lessons/data/local.json, and there local_byte_lm.safetensors (RoPE, seed 0).
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import arguments
import torch
from common import MODELS, digest, measure, provenance, source, store, train_and_keep, trained, training_text
from torch import Tensor

from rope_lessons import attention
from rope_lessons.local import alibi_slopes
from rope_lessons.methods import METHODS, Method
from rope_lessons.models import byte_lm, recall
from rope_lessons.schemes import LogN, Plan, Scheme, scheme
from rope_lessons.stored import DATA

SEEDS = (0, 1, 2)
CONFIG = byte_lm.Config(steps=800)
DIM, WINDOW, LENGTH = CONFIG.head_dim, 32, 512
DISTANCES, SHORT_DISTANCES = (8, 24, 40, 56, 96, 192, 384), (8, 24, 40, 56)
ROWS: dict[str, Method] = {
    "rope": METHODS["rope"](layers=2, dim=DIM),
    "window": METHODS["window"](layers=2, dim=DIM, visible_window=WINDOW),
    "alibi": METHODS["alibi"](layers=2, dim=DIM),
    "hwfa": METHODS["hwfa"](layers=2, dim=DIM, visible_window=WINDOW, train_length=CONFIG.length),
}
# "window" in METHODS is a window at test after RoPE in training; here the window is there in training too.
TRAIN: dict[str, Plan] = {name: row.train for name, row in ROWS.items()} | {"window": ROWS["window"].test}
WITHOUT_START = "rope without start"  # the same training as "rope", but no start byte: has it a sink?


def path_of(name: str, seed: int) -> Path:
    plan = TRAIN.get(name, TRAIN["rope"])
    parts = (asdict(CONFIG), plan, seed, name == WITHOUT_START, digest(training_text()), torch.__version__, source())
    recipe = repr((*parts, inspect.getsource(recall.RecallText)))
    return MODELS / f"local-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}.safetensors"


def trained_model(name: str, seed: int) -> byte_lm.ByteLM:
    """A model of this chapter after its training, weights rounded as a shipped file holds them."""
    path, plan = path_of(name, seed), TRAIN.get(name, TRAIN["rope"])
    if not path.exists():
        # it reads windows from this, as from a tensor
        text = recall.RecallText(training_text(), seed, start=name != WITHOUT_START)
        train_and_keep(path, byte_lm.build(CONFIG, seed, plan), text, CONFIG, seed, f"{name}, seed {seed}")
    return byte_lm.load(path, CONFIG, plan)


def recalled(model: byte_lm.ByteLM, windows: Tensor, plan: Plan, length: int, distances: tuple[int, ...]) -> dict:
    """Share of questions answered, by distance; every second piece of the test text."""
    found = {d: recall.answered(model, windows[::2], d, length, plan) for d in distances}
    return {str(distance): round(right.double().mean().item(), 4) for distance, right in found.items()}


def long_rows(windows: Tensor, seeds: tuple[int, ...]) -> list[dict]:
    """Loss and recall at 8 times the training length, and recall within it: models trained with a method, and the RoPE
    model with other schemes at test only."""
    capped = {"dim": DIM, "window": WINDOW}
    at_test = {
        "LM-Infinite, 1": scheme("rerope", **capped, visible_window=WINDOW, sinks=1),
        "ReRoPE": scheme("rerope", **capped),  # the same cap on distances, and everything visible
        "ReRoPE, log n": scheme("rerope", **capped, scale=LogN(CONFIG.length, clip=True)),
    }
    rows = []
    for seed in seeds:
        tests = [(name, "as the method says", method.test) for name, method in ROWS.items()]
        tests += [("rope", name, (row,) * 2) for name, row in at_test.items()]
        for name, test, plan in tests:
            model = trained_model(name, seed)
            reader: Any = recall.started(model)
            rows.append(
                {
                    "seed": seed,
                    "method": name,
                    "test": test,
                    "short": measure(reader, windows, CONFIG.length, plan),
                    "long": measure(reader, windows, LENGTH, plan),
                    "recall": recalled(model, windows, plan, LENGTH, DISTANCES),
                    "recall_short": recalled(model, windows, plan, CONFIG.length, SHORT_DISTANCES),
                }
            )
            print(rows[-1], flush=True)
    return rows


def masks() -> dict[str, tuple[Plan, dict]]:
    """What a RoPE model can be given at test: a window alone, and ways to keep one or four sinks."""
    found: dict[str, tuple[Plan, dict]] = {"window": ((scheme("window", dim=DIM, visible_window=WINDOW),) * 2, {})}
    for sinks in (1, 4):
        true = scheme("lambda", dim=DIM, visible_window=WINDOW, sinks=sinks)
        capped = scheme("rerope", dim=DIM, window=WINDOW, visible_window=WINDOW, sinks=sinks)
        found[f"true distance, {sinks}"] = ((true,) * 2, {})
        found[f"StreamingLLM, {sinks}"] = ((true,) * 2, {"attend": recall.attend_streaming})
        found[f"LM-Infinite, {sinks}"] = ((capped,) * 2, {})
    return found


def sink_rows(windows: Tensor, seeds: tuple[int, ...]) -> list[dict]:
    """Which models look at the first token, and what a window without it costs. Three trainings with RoPE."""
    rows = []
    for seed in seeds:
        for kind in ("rope", WITHOUT_START, "chapter 03"):
            model = trained(seed) if kind == "chapter 03" else trained_model(kind, seed)
            tokens, reader = windows[:, : CONFIG.length], model
            if kind == "rope":
                tokens, reader = recall.with_start(tokens), recall.started(model)  # type: ignore[assignment]
            late = slice(CONFIG.length // 2, None)
            first = [layer[:, :, late, 0].mean(dim=(0, 2)) for layer in recall.attention_weights(model, tokens)]
            losses = {str(length): measure(reader, windows, length)["loss"] for length in (CONFIG.length, LENGTH)}
            for name, (plan, options) in masks().items():
                losses[name] = measure(reader, windows, LENGTH, plan, **options)["loss"]
            mass = [[round(value, 4) for value in layer.tolist()] for layer in first]
            rows.append({"seed": seed, "model": kind, "first_token": mass, "loss": losses})
            print(rows[-1], flush=True)
    return rows


def alibi_rows(windows: Tensor, seeds: tuple[int, ...]) -> list[dict]:
    """What ALiBi lacks on a long text: its sink, which grows dearer with the distance, and a shorter view."""

    def sink_capped(q: Tensor, k: Tensor, v: Tensor, row: Scheme) -> Tensor:
        index = torch.arange(k.shape[2])
        back = torch.zeros(q.shape[1], len(index), len(index))  # what the first token pays too much
        back[:, :, 0] = alibi_slopes(q.shape[1]).unsqueeze(-1) * (index - WINDOW).clamp(min=0)
        return attention(q, k, v, row, bias=back)

    everything, window = scheme("alibi"), scheme("alibi", visible_window=WINDOW)
    tests: dict[str, tuple[int, Scheme, Callable[..., Tensor]]] = {
        "64": (CONFIG.length, everything, attention),
        "512": (LENGTH, everything, attention),
        "sink capped": (LENGTH, everything, sink_capped),
        "window": (LENGTH, window, attention),
        "window, sink capped": (LENGTH, replace(window, sinks=1), sink_capped),
    }
    rows = []
    for seed in seeds:
        reader: Any = recall.started(trained_model("alibi", seed))
        losses = {}
        for name, (length, row, attend) in tests.items():
            losses[name] = measure(reader, windows, length, (row,) * 2, attend=attend)["loss"]
        rows.append({"seed": seed, "loss": losses})
        print(rows[-1], flush=True)
    return rows


def main(seeds: tuple[int, ...]) -> None:
    windows = byte_lm.evaluation_windows()
    sinks, rows = sink_rows(windows, seeds), long_rows(windows, seeds)
    shutil.copyfile(path_of("rope", 0), DATA / "local_byte_lm.safetensors")
    result = {
        **provenance(__file__),
        "seeds": list(seeds),
        "config": asdict(CONFIG),
        "window": WINDOW,
        "length": LENGTH,
        "questions": len(windows[::2]),
        "sinks": sinks,
        "rows": rows,
        "alibi": alibi_rows(windows, seeds),
    }
    store("local", result)


if __name__ == "__main__":
    parser = arguments.with_seeds(__doc__, SEEDS)
    parser.add_argument("--train", nargs=2, metavar=("METHOD", "SEED"), help="only train one model")
    options = parser.parse_args()
    if options.train and options.train[0] not in (*TRAIN, WITHOUT_START):
        parser.error(f"argument --train: {options.train[0]!r} is none of {', '.join((*TRAIN, WITHOUT_START))}")
    try:
        seed = arguments.number(options.train[1]) if options.train else 0
    except argparse.ArgumentTypeError as error:
        parser.error(f"argument --train: SEED {error}")
    torch.set_num_threads(1)
    if options.train:
        trained_model(options.train[0], seed)
    else:
        main(options.seeds)
