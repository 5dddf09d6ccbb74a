"""The reduced grid of chapter 11: models of one task that train side by side, one step for each kind of model."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

from experiments.gpu.step import Found, OutOfTime, Setting
from rope_lessons.chomsky import TASKS, results
from rope_lessons.chomsky.__main__ import delete, short, train
from rope_lessons.chomsky.grid import CELLS, VARIANTS, jobs
from rope_lessons.chomsky.training import REDUCED_GPU, Protocol, Training

SEEDS, RATE = (0, 1, 2), 3e-4
# Rotary positions are the book's own; the cells show what can be learned in so many steps at all; then the others.
KINDS = (
    ("transformer", "rope"),
    *((cell, "none") for cell in CELLS),
    *(("transformer", kind) for kind in ("relative", "none", "alibi", "sinusoidal", "learned")),
)
TINY = Protocol(
    longest=6, batch=3, steps=2, max_position=64, test_lengths=(7,), samples=4, test_batch=4, width=16, layers=2,
    heads=4, feed_forward=24, hidden=8, cell_width=4, tape_cells=8, test_positions=("random", "grid"),
)  # fmt: skip


def cells() -> Iterator[tuple[str, str, str]]:
    """Task, model and positions, the most informative first: a kind of model on one task of every level, then the next
    task of each; and so kind by kind."""
    by_level: dict[str, list[str]] = {}
    for name, task in TASKS.items():
        by_level.setdefault(task.level, []).append(name)
    rank = {name: number for names in by_level.values() for number, name in enumerate(names)}
    for model, positions in KINDS:
        for name in sorted(TASKS, key=rank.__getitem__):
            yield name, model, positions


def one(setting: Setting, task: str, model: str, positions: str) -> Found:
    """Train and test.

    Raises:
        OutOfTime: in the middle. The same step goes on from the checkpoint, on this machine.
    """
    protocol = setting.by_scale(REDUCED_GPU, TINY, TINY)
    some = jobs([task], [model], [positions], VARIANTS, SEEDS[: setting.by_scale(3, 1, 1)], [RATE])
    training = Training(some, protocol, setting.device)
    folder = setting.work / "chomsky"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{short(repr(training.identity()))}.checkpoint"
    training.resume(path)
    if not train(training, path, 60.0, time.monotonic() + setting.left, quiet=True):
        raise OutOfTime
    begin = time.perf_counter()
    found = training.evaluate(lambda length: setting.check_time())
    seconds = (training.seconds + time.perf_counter() - begin) / len(some)
    losses = dict(zip(some, torch.stack(training.recent).double().mean(dim=0).tolist(), strict=True))
    lines = results.lines_of(found, protocol, training.task.level, losses, seconds, setting.device)
    delete(path)
    return Found({"rows": lines}, {"seeds": list(SEEDS), "learning_rate": RATE, "protocol": protocol.digest()})
