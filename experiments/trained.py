"""Byte models after their training: taken from a folder where the same training was done before, else trained."""

from __future__ import annotations

import hashlib
import inspect
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rope_lessons.engine import attention
from rope_lessons.models import byte_lm
from rope_lessons.schemes import Plan, Scheme
from rope_lessons.stored import write_whole


@dataclass(frozen=True)
class Models:
    """A folder of trained models; several experiments test the same ones."""

    folder: Path
    steps: int | None = None  # of each training, where these are not those of its configuration

    def config(self, base: byte_lm.Config) -> byte_lm.Config:
        return with_steps(base, self.steps)

    def byte_model(self, seed: int, plan: Plan | None = None) -> byte_lm.ByteLM:
        """The byte model of chapter 03 after its training, about 90 s on one CPU core."""
        config = self.config(byte_lm.Config())
        recipe = (asdict(config), plan, seed, *surroundings())
        path = self.path(recipe, lambda: byte_lm.build(config, seed, plan), config, seed, f"seed {seed}: {plan}")
        return byte_lm.load(path, config, plan)

    def path(
        self,
        recipe: tuple[Any, ...],
        build: Callable[[], Any],
        config: byte_lm.Config,
        seed: int,
        name: str,
        kind: str = "",
        text: Any = None,
        train: Callable[..., list[float]] = byte_lm.train,
    ) -> Path:
        """The file of the weights after a training, rounded to bfloat16 as a shipped file holds them.

        Args:
            recipe: all that the weights depend on; another recipe has another file.
            build: the model before its training.
            config: with the number of steps.
            seed: of the batches.
            name: of the training, for the line that it ends with.
            kind: begins the name of the file.
            text: to train on; that of chapter 03 if None.
            train: takes model, text, config and seed; returns the losses.
        """
        path = self.folder / f"{kind}{hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]}.safetensors"
        if not path.exists():
            begin, model = time.perf_counter(), build()
            losses = train(model, training_text() if text is None else text, config, seed)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, lambda unfinished: byte_lm.save(model, unfinished))
            last = sum(losses[-50:]) / len(losses[-50:])
            print(f"trained {name}: {time.perf_counter() - begin:.0f} s, loss {last:.4f}", flush=True)
        return path


def with_steps(config: byte_lm.Config, steps: int | None) -> byte_lm.Config:
    """A configuration; with fewer steps for a try."""
    return config if steps is None else replace(config, steps=steps)


def surroundings() -> tuple[str, str, str]:
    """What every training depends on: its text, PyTorch, and the code of the model and of its training."""
    parts = (
        byte_lm.Block,
        byte_lm.ByteLM,
        byte_lm.build,
        byte_lm.batches,
        byte_lm.learning_rate,
        byte_lm.next_byte_loss,
        byte_lm.train,
    )
    return digest(training_text()), torch.__version__, "".join(inspect.getsource(part) for part in parts)


@cache
def training_text() -> Tensor:
    return byte_lm.training_text()


def evaluation_windows(most: int | None = None, every: int = 1) -> Tensor:
    """The test text of chapter 03: of its first windows, every second, third, …."""
    return byte_lm.evaluation_windows()[:most:every]


def attend_fast(q: Tensor, k: Tensor, v: Tensor, scheme: Scheme, **options: Any) -> Tensor:
    """Attention on PyTorch's own kernels."""
    return attention(q, k, v, scheme, backend="flash", **options)


def measure(model: byte_lm.ByteLM, windows: Tensor, length: int, plan: Plan | None = None, **options: Any) -> dict:
    """Mean accuracy and loss, and the accuracy in eighths of the predicted bytes."""
    hits, losses = byte_lm.evaluate(model, windows, length, plan, **options)
    eighths = hits.view(len(hits), 8, -1).mean(dim=(0, 2))
    return {
        "accuracy": round(hits.mean().item(), 5),
        "loss": round(losses.mean().item(), 5),
        "accuracy_by_eighth": [round(value, 4) for value in eighths.tolist()],
    }


def about(windows: Tensor) -> dict[str, Any]:
    """What a stored result says of its test text."""
    return {"windows": len(windows), "bytes_predicted": windows[:, 1:].numel(), "sha256": digest(windows)}


def digest(text: Tensor) -> str:
    return hashlib.sha256(text.numpy().tobytes()).hexdigest()
