"""Chapter 12: the parts of the articles' model: gated attention units and the Transformer, with AdamW and with Tiger.

    python -m experiments lab_parts

Takes about 6 minutes on one CPU core.

Each pair of a model and an optimizer is trained with seed 0 at several learning rates, and once more with seed 1 at the
rate that was best: what is reported was not chosen by itself. Of these last trainings the rows of the embedding are
measured too. Writes lab_parts.json.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from experiments import command
from experiments.result import Result
from rope_lessons.lab import checkpoint, sizes, text, training
from rope_lessons.lab.table import scoring
from rope_lessons.lab.text import Corpus, batch_of, open_corpus
from rope_lessons.lab.tiger import Tiger

MODELS = ("gau-0.3m", "transformer-0.3m")
STEPS, BATCH, LAST, WINDOWS = 250, 16, 25, 32
RECIPES: dict[str, dict[str, Any]] = {
    "adamw": {"optimizer": "adamw", "weight_decay": 0.1},
    "tiger": {"optimizer": "tiger", "weight_decay": 0.01},
}
RATES = {"adamw": (3e-3, 1e-2), "tiger": (1.5e-3, 5e-3, 1.5e-2)}


def measure_all(corpus: Corpus, steps: int, out: Path, fresh: bool) -> None:
    settings = {
        "corpus": {"name": corpus.about["name"], "sha256": corpus.about["sha256"]},
        "parameters": {model: sizes.parameters(model) for model in MODELS},
        "steps": steps,
        "batch": BATCH,
        "length": 64,
        "last": LAST,
        "test_bytes": WINDOWS * 512,
    }
    empty: dict[str, Any] = {"runs": [], "rare": [], "bytes_there": 0}
    result = Result(out / "lab_parts.json", "lab_parts", settings, empty, fresh)
    for model in MODELS:
        for optimizer, rates in RATES.items():
            for rate in rates:
                add(result, corpus, steps, model, optimizer, rate, seed=0)
            add(result, corpus, steps, model, optimizer, best(result, model, optimizer), seed=1)
    if not result.found["bytes_there"]:
        result.set(bytes_there=len(np.unique(corpus.train)))
    if not result.found["rare"]:
        result.add(rare=[rare(*case) for case in (("tiger", False), ("tiger", True), ("adamw", True))])
    result.close()


def add(result: Result, corpus: Corpus, steps: int, model: str, optimizer: str, rate: float, seed: int) -> None:
    key = {"model": model, "optimizer": optimizer, "learning_rate": rate, "seed": seed}
    if result.lacks("runs", **key):
        result.add(runs=[key | trained(corpus, steps, key)])


def best(result: Result, model: str, optimizer: str) -> float:
    """The rate with the lowest test loss of seed 0."""
    runs = [
        run for run in result.found["runs"] if (run["model"], run["optimizer"], run["seed"]) == (model, optimizer, 0)
    ]
    return min(runs, key=lambda run: run["test_loss"])["learning_rate"]


def trained(corpus: Corpus, steps: int, key: dict[str, Any]) -> dict[str, Any]:
    """Losses in nats per byte, at the end of the training and on held-out text; and how far the weights went."""
    recipe = training.Recipe(
        key["model"],
        seed=key["seed"],
        steps=steps,
        batch=BATCH,
        learning_rate=key["learning_rate"],
        copies=0.0,
        **RECIPES[key["optimizer"]],
    )
    with tempfile.TemporaryDirectory() as folder:
        begin = time.process_time()
        training.train(recipe, corpus, Path(folder), training.Team(torch.device("cpu")), save_every=steps, quiet=True)
        seconds = time.process_time() - begin
        losses = training.read_losses(Path(folder))
        model, _, _ = training.load(checkpoint.stored(Path(folder))[-1])
    windows, _ = text.natural_windows(corpus, 512, WINDOWS)
    hits, test = scoring.score(model, recipe.row, scoring.cut(windows, recipe.train_length))
    fresh = sizes.build(recipe.config, recipe.seed)
    found: dict[str, Any] = {
        "train_loss": round(sum(losses[-LAST:]) / LAST, 4),
        "test_loss": round(test.mean().item(), 4),
        "test_accuracy": round(hits.mean().item(), 4),
        "moved": round(moved(fresh, model), 4),
        "seconds": round(seconds, 1),
    }
    if recipe.seed:
        found["rows"] = rows(fresh, model, bytes_read(recipe, corpus))
    return found


@torch.no_grad()
def moved(before: nn.Module, after: nn.Module) -> float:
    """Mean over the matrices: distance from start to end, by the size at the start."""
    pairs = zip(before.parameters(), after.parameters(), strict=True)
    shares = [((b - a).norm() / a.norm()).item() for a, b in pairs if a.ndim == 2]
    return sum(shares) / len(shares)


def bytes_read(recipe: training.Recipe, corpus: Corpus) -> torch.Tensor:
    """Which of the 256 bytes stand in a window of this training."""
    there = torch.zeros(256, dtype=torch.bool)
    for step in range(recipe.steps):
        windows = batch_of(corpus.train, step, seed=recipe.seed, batch=recipe.batch, length=recipe.train_length)
        there[windows.flatten()] = True
    return there


@torch.no_grad()
def rows(before: nn.Module, after: nn.Module, there: torch.Tensor) -> dict[str, float]:
    """How many times as large the rows of the embedding have become: of the bytes that were read, and of the others."""
    tables: list[Any] = [model.embedding for model in (before, after)]
    sizes_of = [table.weight.square().mean(dim=1).sqrt() for table in tables]
    growth = sizes_of[1] / sizes_of[0]
    seen, unseen = (round(growth[chosen].mean().item(), 3) for chosen in (there, ~there))
    return {"bytes": int(there.sum()), "seen": seen, "unseen": unseen}


def rare(optimizer: str, tied: bool, steps: int = 600, at: tuple[int, ...] = (1, 100, 300, 600)) -> dict[str, Any]:
    """The largest entry of the embedding of a token that comes once, in a toy of 12 tokens and 16 channels: the next
    token depends on the last one alone. With a weight decay of 0.1 the limit is 10."""
    draw = torch.Generator().manual_seed(0)
    last, channels = 11, 16
    embedding = nn.Parameter(0.3 * torch.randn(last + 1, channels, generator=draw))
    scores = embedding if tied else nn.Parameter(0.3 * torch.randn(last + 1, channels, generator=draw))
    matrix = nn.Parameter(torch.randn(channels, channels, generator=draw) / channels**0.5)
    follows = (2 * torch.randn(last, last, generator=draw)).softmax(dim=-1)
    others = [matrix] if tied else [matrix, scores]
    made: torch.optim.Optimizer
    if optimizer == "tiger":
        made = Tiger([{"params": [embedding], "kind": "rows"}, {"params": others}], lr=0.02, weight_decay=0.1)
    else:
        made = torch.optim.AdamW([embedding, *others], lr=3e-3, weight_decay=0.1)
    found = []
    for step in range(1, steps + 1):
        tokens = torch.randint(last, (64,), generator=draw)
        targets = torch.multinomial(follows[tokens], 1, generator=draw)[:, 0]
        if step == 1:
            tokens[0] = last
        states = F.rms_norm(embedding[tokens] @ matrix, (channels,))
        made.zero_grad()
        F.cross_entropy(states @ scores.T, targets).backward()
        made.step()
        if step in at:
            found.append(round(embedding[last].abs().max().item(), 3))
    largest = round(embedding[:last].abs().max().item(), 3)
    return {"optimizer": optimizer, "tied": tied, "steps": list(at), "rare": found, "others": largest}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("experiments lab_parts", __doc__)
    command.add_places(parser, models=False)
    command.add_fresh(parser)
    command.add_try(parser, "steps")
    options = command.parse(parser, arguments)
    steps = options.steps or STEPS
    return command.run(parser.prog, lambda: measure_all(open_corpus("stdlib"), steps, options.out, options.fresh))


if __name__ == "__main__":
    sys.exit(main())
