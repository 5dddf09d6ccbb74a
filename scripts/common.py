"""What the scripts that fill ``rope_lessons/data/`` share: trained models, how they are measured, provenance."""

from __future__ import annotations

import hashlib
import inspect
import platform
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rope_lessons.models import byte_lm
from rope_lessons.schemes import Plan
from rope_lessons.stored import DATA, Table, read_results, write_results, write_whole

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / ".models"  # not committed: several scripts test the same models


def trained(seed: int, config: byte_lm.Config | None = None, plan: Plan | None = None) -> byte_lm.ByteLM:
    """The byte model after its training, weights rounded to bfloat16 as a shipped file holds them.

    About 90 s on one CPU core; taken from ``.models/`` when the same training was done before.
    """
    config = config or byte_lm.Config()
    text = training_text()
    recipe = repr((asdict(config), plan, seed, digest(text), torch.__version__, source()))
    path = MODELS / f"{hashlib.sha256(recipe.encode()).hexdigest()[:16]}.safetensors"
    if not path.exists():
        train_and_keep(path, byte_lm.build(config, seed, plan), text, config, seed, f"seed {seed}: {plan}")
    return byte_lm.load(path, config, plan)


def train_and_keep(
    path: Path,
    model: Any,
    text: Any,
    config: byte_lm.Config,
    seed: int,
    name: str,
    train: Callable[..., list[float]] = byte_lm.train,
) -> None:
    """Train, and write the file at once and whole: an interrupted run leaves no half of it."""
    begin = time.perf_counter()
    losses = train(model, text, config, seed)
    path.parent.mkdir(exist_ok=True)
    write_whole(path, lambda unfinished: byte_lm.save(model, unfinished))
    last = sum(losses[-50:]) / 50
    print(f"trained {name}: {time.perf_counter() - begin:.0f} s, loss {last:.4f}", flush=True)


@cache
def training_text() -> Tensor:
    return byte_lm.training_text()


def source() -> str:
    """The code of the model and of its training: a change of it trains anew."""
    parts = (
        byte_lm.Block,
        byte_lm.ByteLM,
        byte_lm.build,
        byte_lm.batches,
        byte_lm.learning_rate,
        byte_lm.next_byte_loss,
        byte_lm.train,
    )
    return "".join(inspect.getsource(part) for part in parts)


def measure(model: byte_lm.ByteLM, windows: Tensor, length: int, plan: Plan | None = None, **options: Any) -> dict:
    """Mean accuracy and loss, and the accuracy in eighths of the predicted bytes."""
    hits, losses = byte_lm.evaluate(model, windows, length, plan, **options)
    eighths = hits.view(len(hits), 8, -1).mean(dim=(0, 2))
    return {
        "accuracy": round(hits.mean().item(), 5),
        "loss": round(losses.mean().item(), 5),
        "accuracy_by_eighth": [round(value, 4) for value in eighths.tolist()],
    }


def provenance(script: str) -> dict[str, Any]:
    """Where a result comes from: the first entries of every stored file."""
    return {
        "script": f"scripts/{Path(script).name}",
        "date": date.today().isoformat(),
        "hardware": f"{platform.machine()}, one CPU thread",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def store(name: str, result: dict[str, Any]) -> None:
    """Write ``rope_lessons/data/NAME.json``, which a chapter reads."""
    lists = {key: value for key, value in result.items() if isinstance(value, list) and value}
    tables = {key: value for key, value in lists.items() if isinstance(value[0], dict)}
    write_results(DATA / f"{name}.json", {key: result[key] for key in result if key not in tables}, **tables)


def stored(path: Path) -> dict[str, Any]:
    """What :func:`store` was given."""
    return {name: list(value) if isinstance(value, Table) else value for name, value in read_results(path).items()}


def digest(text: Tensor) -> str:
    return hashlib.sha256(text.numpy().tobytes()).hexdigest()
