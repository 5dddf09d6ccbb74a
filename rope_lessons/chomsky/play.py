"""One small model, trained in a minute on one CPU core, for trying things out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from rope_lessons.chomsky.grid import Job
from rope_lessons.chomsky.training import Protocol, Training

#: Strings of 1 to 16 symbols, tested up to 128; an encoder of two blocks of width 32, without dropout.
PLAYGROUND = Protocol(
    longest=16,
    batch=64,
    steps=600,
    dropout=0.0,
    dropout_at_test=False,
    max_position=512,
    draw="forward",
    test_lengths=(4, 8, 12, 16, 24, 32, 48, 64, 96, 128),
    samples=128,
    test_batch=128,
    width=32,
    layers=2,
    heads=4,
    feed_forward=64,
    hidden=64,
    tape_cells=128,
)


def playground(
    task: str = "even_pairs",
    positions: str = "rope",
    variant: str = "random",
    *,
    model: str = "transformer",
    seed: int = 0,
    learning_rate: float = 2e-3,
    test_positions: str = "random",
    device: torch.device | str = "cpu",
    **changes: Any,
) -> dict[int, float]:
    """Train one small model on one task, and test it up to eight times the length.

    Much smaller than the benchmark's models, and trained for a moment: it shows how a thing goes, not how well it can.

    Args:
        task, positions, variant, model, seed, learning_rate: as in :class:`~rope_lessons.chomsky.grid.Job`. A
            recurrent model takes positions "none" and variant "plain".
        test_positions: "random" draws or the even "grid", for a model with random positions.
        device: where.
        changes: fields of :class:`~rope_lessons.chomsky.training.Protocol` that replace those of ``PLAYGROUND``.

    Returns:
        dictionary of the share of right answer tokens by test length.

    Raises:
        TypeError, ValueError: an unknown name, or a combination that is not in the grid.

    Chapter 11.

    >>> playground("parity_check", "none", "plain", model="rnn", steps=1, test_lengths=(2, 4)).keys()
    dict_keys([2, 4])
    """
    protocol = replace(PLAYGROUND, test_positions=(test_positions,), **changes)
    training = Training([Job(task, model, positions, variant, seed, learning_rate)], protocol, device)
    for _ in range(protocol.steps):
        training.advance()
    return {row["length"]: row["accuracy"] for row in training.evaluate()}
