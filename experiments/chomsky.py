"""Chapter 11: how fast the 15 tasks are sampled, and what is reached on them without the input.

    python -m experiments chomsky
    python -m experiments chomsky --speed   # the speeds again; the faster of both measurements is kept

Takes about 5 minutes on one CPU core.

Writes chomsky_tasks.json. (The trainings of chapter 11 are ``python -m rope_lessons.chomsky``.)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from experiments import command
from experiments.result import Result
from rope_lessons.chomsky import TASKS, Task, blind_accuracy
from rope_lessons.chomsky.blind import TEST_LENGTHS, token_table
from rope_lessons.chomsky.context_free import SolveEquation

BATCH, SPEED_LENGTHS, SECONDS = 128, (10, 40, 500), 1.0
SHOWN = (40, 100, 500)  # lengths whose blind accuracy is stored by itself
# Strings to choose the guesses on, and as many to score them: for the mean, for one length.
SAMPLES, MANY = 2048, 65_536
SOLVED = 0.9
EQUATIONS = 2000


def measured(task: Task) -> dict[str, list[dict[str, Any]]]:
    """Its rows, by table."""
    key = {"task": task.name, "variant": task.variant}
    generator = torch.Generator().manual_seed(0)
    accuracies = {length: blind_accuracy(task, length, SAMPLES, generator) for length in TEST_LENGTHS}
    below = [length for length, accuracy in accuracies.items() if accuracy < SOLVED]
    row = {
        **key,
        "level": task.level,
        "chance": task.chance,
        "blind": "exact" if token_table(task, 41) is not None else "counted",
        "blind_score": round(sum(accuracies.values()) / len(accuracies), 4),
        "blind_solved_from": max(below) + 1 if max(below) < TEST_LENGTHS[-1] else None,
    }
    blind, speeds = [], []
    for length in SHOWN:
        accuracy = blind_accuracy(task, length, MANY, generator)
        blind.append({**key, "length": length, "accuracy": round(accuracy, 4)})
    for length in SPEED_LENGTHS:
        speeds.append({**key, "length": length, "tokens_per_second": tokens_per_second(task, length)})
    return {"tasks": [row], "blind": blind, "speeds": speeds}


def tokens_per_second(task: Task, length: int) -> int:
    """Input tokens; the fastest quarter of a second counts, as other programs may run."""
    generator = torch.Generator().manual_seed(0)
    best = 0.0
    for _ in range(4):
        begin, batches = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - begin) < SECONDS / 4:
            task.sample(BATCH, length, generator)
            batches += 1
        best = max(best, batches * BATCH * task.input_length(length) / elapsed)
    return int(float(f"{best:.2g}"))


def equations() -> list[dict[str, Any]]:
    """How many equations with products have more than one solution, and how many are true for every digit."""
    task = replace(TASKS["solve_equation"], variant="paper")
    assert isinstance(task, SolveEquation)
    rows = []
    for length in (10, *SHOWN):
        inputs, _, _ = task.sample(EQUATIONS, length, torch.Generator().manual_seed(0))
        counts = [len(task.solutions(tokens)) for tokens in inputs.tolist()]
        several = round(sum(count > 1 for count in counts) / EQUATIONS, 3)
        all_five = round(counts.count(5) / EQUATIONS, 3)
        rows.append({"length": length, "sampled": EQUATIONS, "several": several, "all_five": all_five})
    return rows


def measure_all(out: Path, fresh: bool, speed: bool) -> None:
    settings = {
        "batch": BATCH,
        "samples": {"score": SAMPLES, "one_length": MANY},
        "score_lengths": [TEST_LENGTHS[0], TEST_LENGTHS[-1]],
        "seed": 0,
    }
    tables: dict[str, list[dict[str, Any]]] = {"tasks": [], "blind": [], "speeds": [], "equations": []}
    result = Result(out / "chomsky_tasks.json", "chomsky", settings, tables, fresh)
    tasks = {
        (base.name, variant): replace(base, variant=variant) for base in TASKS.values() for variant in base.variants
    }
    if speed:
        for row in result.found["speeds"]:
            again = tokens_per_second(tasks[row["task"], row["variant"]], row["length"])
            row["tokens_per_second"] = max(row["tokens_per_second"], again)
        result.write()
    for (name, variant), task in tasks.items():
        if result.lacks("tasks", task=name, variant=variant):
            result.add(**measured(task))
    if not result.found["equations"]:
        result.add(equations=equations())
    result.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("experiments chomsky", __doc__)
    parser.add_argument("--speed", action="store_true", help="measure the speeds again and keep the faster")
    command.add_places(parser, models=False)
    command.add_fresh(parser)
    options = command.parse(parser, arguments)
    return command.run(parser.prog, lambda: measure_all(options.out, options.fresh, options.speed))


if __name__ == "__main__":
    sys.exit(main())
