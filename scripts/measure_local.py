"""Train byte models that must answer a question about a far token (chapter 07), and test what local attention loses.

    python scripts/measure_local.py                         # everything: about 70 s of training for each of 18 models
    python scripts/measure_local.py --train window 0        # only train one model, into .models/

Writes results/local.json with a copy in rope_lessons/checkpoints/, and there local_byte_lm.safetensors (RoPE, seed 0).
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from common import MODELS, digest, measure, provenance, source, store, trained, training_text
from torch import Tensor

from rope_lessons.lab import byte_lm, recall
from rope_lessons.scheme import METHODS, Method, Plan, scheme

SEEDS = (0, 1, 2)
CONFIG = byte_lm.Config(steps=800)
DIM, WINDOW, LENGTH = CONFIG.head_dim, 32, 512
DISTANCES = (8, 24, 31, 40, 56, 96, 192, 384)
ROWS: dict[str, Method] = {
    "rope": METHODS["rope"](layers=2, dim=DIM),
    "window": METHODS["window"](layers=2, dim=DIM, visible_window=WINDOW),
    "alibi": METHODS["alibi"](layers=2, dim=DIM),
    "hwfa": METHODS["hwfa"](layers=2, dim=DIM, visible_window=WINDOW, train_length=CONFIG.length),
    "hwfa2": METHODS["hwfa2"](layers=2, dim=DIM, visible_window=WINDOW, window=WINDOW),
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
        model, begin = byte_lm.build(CONFIG, seed, plan), time.perf_counter()
        text = recall.RecallText(training_text(), seed, start=name != WITHOUT_START)
        losses = byte_lm.train(model, text, CONFIG, seed)  # type: ignore[arg-type]  # it reads windows, as from a tensor
        MODELS.mkdir(exist_ok=True)
        unfinished = path.with_suffix(f".{time.time_ns()}")  # an interrupted run leaves no half of a file
        byte_lm.save(model, unfinished)
        unfinished.rename(path)
        last = sum(losses[-50:]) / 50
        print(f"trained {name}, seed {seed}: {time.perf_counter() - begin:.0f} s, loss {last:.4f}", flush=True)
    return byte_lm.load(path, CONFIG, plan)


def recalled(model: byte_lm.ByteLM, windows: Tensor, plan: Plan | None, **options: Any) -> dict[str, float]:
    """Share of questions answered, by distance."""
    found = {d: recall.recall(model, windows, d, LENGTH, plan, **options) for d in DISTANCES}
    return {str(distance): round(right.double().mean().item(), 4) for distance, right in found.items()}


def long_rows(windows: Tensor) -> list[dict]:
    """Loss and recall at 8 times the training length: models trained with a method, and the RoPE model with a mask
    at test only."""
    rows = []
    for seed in SEEDS:
        for name, method in ROWS.items():
            model = trained_model(name, seed)
            rows.append(
                {"seed": seed, "method": name, "test": "as the method says", **both(model, windows, method.test)}
            )
            if name == "rope":
                for test, (plan, options) in masks().items():
                    rows.append({"seed": seed, "method": name, "test": test, **both(model, windows, plan, **options)})
    return rows


def masks() -> dict[str, tuple[Plan, dict]]:
    """What a RoPE model can be given at test: a window alone, and two ways to keep one or four sinks."""
    found: dict[str, tuple[Plan, dict]] = {"window": ((scheme("window", dim=DIM, visible_window=WINDOW),) * 2, {})}
    for sinks in (1, 4):
        true = scheme("lambda", dim=DIM, visible_window=WINDOW, sinks=sinks)
        capped = scheme("rerope", dim=DIM, window=WINDOW, visible_window=WINDOW, sinks=sinks)
        found[f"true distance, {sinks}"] = ((true,) * 2, {})
        found[f"StreamingLLM, {sinks}"] = ((true,) * 2, {"attend": recall.attend_streaming})
        found[f"LM-Infinite, {sinks}"] = ((capped,) * 2, {})
    return found


def both(model: byte_lm.ByteLM, windows: Tensor, plan: Plan, **options: Any) -> dict:
    """Accuracy and loss on plain text at both lengths, with the start byte in front; and recall."""
    reader: Any = recall.started(model)
    short = measure(reader, windows, CONFIG.length, plan, **options)
    long = measure(reader, windows, LENGTH, plan, **options)
    return {"short": short, "long": long, "recall": recalled(model, windows, plan, **options)}


def sink_rows(windows: Tensor) -> list[dict]:
    """Which models look at the first token, and what a window without it costs. Three trainings with RoPE."""
    kinds = {
        "rope": lambda seed: (trained_model("rope", seed), True),
        WITHOUT_START: lambda seed: (trained_model(WITHOUT_START, seed), False),
        "chapter 03": lambda seed: (trained(seed), False),
    }
    rows = []
    for seed in SEEDS:
        for kind, get in kinds.items():
            model, start = get(seed)
            reader: Any = recall.started(model) if start else model
            tokens = windows[:, : CONFIG.length]
            weights = recall.attention_weights(model, recall.with_start(tokens) if start else tokens)
            late = slice(CONFIG.length // 2, None)
            first = [layer[:, :, late, 0].mean(dim=(0, 2)).tolist() for layer in weights]
            losses = {"64": measure(reader, windows, CONFIG.length)["loss"]}
            for window in (16, WINDOW, 48):
                losses[f"window {window}"] = measure(
                    reader, windows, LENGTH, (scheme("window", dim=DIM, visible_window=window),) * 2
                )["loss"]
            for name, (plan, options) in masks().items():
                losses[name] = measure(reader, windows, LENGTH, plan, **options)["loss"]
            mass = [[round(value, 4) for value in layer] for layer in first]
            rows.append({"seed": seed, "model": kind, "first_token": mass, "loss": losses})
    return rows


def main() -> None:
    windows = byte_lm.evaluation_windows()
    rows, sinks = long_rows(windows), sink_rows(windows)
    shutil.copy(path_of("rope", 0), byte_lm.CHECKPOINTS / "local_byte_lm.safetensors")
    result = {
        **provenance(__file__),
        "seeds": list(SEEDS),
        "config": asdict(CONFIG),
        "window": WINDOW,
        "length": LENGTH,
        "distances": list(DISTANCES),
        "questions": len(windows),
        "rows": rows,
        "sinks": sinks,
    }
    store("local", result)


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", nargs=2, metavar=("METHOD", "SEED"), help="only train one model")
    arguments = parser.parse_args()
    if arguments.train:
        trained_model(arguments.train[0], int(arguments.train[1]))
    else:
        main()
