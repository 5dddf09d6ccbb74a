"""Chapter 12: train the models of the scoreboard and test every row, at 64 bytes and at up to eight times that.

    python -m experiments scoreboard --plan                          # what is missing, and what it costs
    python -m experiments scoreboard --minutes 60                    # an hour of it; the same line goes on from there
    python -m experiments scoreboard --trainings rope --seeds 0 1    # some of it
    python -m experiments scoreboard --store                         # and the table of the book from all that is there

Takes about 6 minutes of one CPU thread for a training, and 15 seconds for each row that it is tested with.

What a model had right is kept in RUNG/TRAINING/seed-K.npz, a bit per byte, again after every row; so a new row tests
that row alone, and a new metric that the text decides needs no model. The weights of seed 0 lie beside it in bfloat16,
as they are tested; those of all seeds stay in .models until they are deleted. An interrupted training goes on from its
last checkpoint, with the bits that it would have had. Trainings are in the order of their worth: all seeds of the main
ones first.

The table of all that is there is written at the end, scoreboard.json. With --store it is the book's own, and the hits
and weights go to experiments/stored.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments import command
from rope_lessons.lab import checkpoint, text, training
from rope_lessons.lab.command import check_extra
from rope_lessons.lab.rows import TableRow, trainings
from rope_lessons.lab.training import Team
from rope_lessons.models.byte_lm import round_weights
from rope_lessons.scoreboard import hits, recipe, rows, scoring, table
from rope_lessons.scoreboard.metrics import far_copies
from rope_lessons.scoreboard.recipe import RUNGS, Recipe
from rope_lessons.scoreboard.scoring import Hits, Settings
from rope_lessons.stored import DATA, provenance, tidy, write_results

STORED = Path(__file__).parent / "stored" / "scoreboard"  # what was measured for the book; not in the wheel
SCRIPT = "python -m experiments scoreboard"
SEEDS, MAIN_SEEDS = 3, 5
FORMAT = "rope_lessons scoreboard 1"
MINUTES_A_TRAINING, MINUTES_A_ROW = 6.0, 0.25  # of one thread, for --plan
# Settings of a rung: what its models are asked.
TESTS = {"small": Settings(), "small-at-512": Settings()}


@dataclass(frozen=True)
class Job:
    """A training of one seed, and the rows that its model is tested with.

    Args:
        rung: of the scoreboard.
        training: its name, that of its first row.
        seed: of weights and batches.
        steps, windows: of the training and of the test text, where they are not those of the rung.
    """

    rung: str
    training: str
    seed: int
    steps: int | None = None
    windows: int | None = None

    @property
    def recipe(self) -> Recipe:
        whole = replace(RUNGS[self.rung], scheme=self.training, seed=self.seed)
        return whole if self.steps is None else replace(whole, steps=self.steps)

    @property
    def rows(self) -> dict[str, TableRow]:
        """At the training length of a control there is one: what was trained."""
        own = self.recipe.row
        if self.recipe.train_length != self.recipe.home:
            return {self.training: own}
        return {row.name: row for row in trainings_of(self.rung)[self.training]}

    @property
    def tests(self) -> Settings:
        whole = TESTS[self.rung]
        return whole if self.windows is None else replace(whole, windows=self.windows)

    def path(self, folder: Path, ending: str = "npz") -> Path:
        return folder / self.rung / self.training / f"seed-{self.seed}.{ending}"

    def __str__(self) -> str:
        return f"{self.rung}, {self.training}, seed {self.seed}"


@cache
def trainings_of(rung: str) -> dict[str, list[TableRow]]:
    return trainings(RUNGS[rung].rows.values())


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    """The jobs of a command, the most worth first: the main trainings seed by seed, then the others."""
    for main in (True, False):
        for seed in range(MAIN_SEEDS if main else SEEDS) if options.seeds is None else options.seeds:
            for rung in options.rungs:
                control = RUNGS[rung].train_length != RUNGS[rung].home
                for name in trainings_of(rung):
                    wanted = options.trainings is None or name in options.trainings
                    if wanted and (name in rows.MAIN) == main and (main or not control):
                        yield Job(rung, name, seed, options.steps, options.windows)


# --- one job ---------------------------------------------------------------------------------------------------------


def described(row: TableRow) -> str:
    """What a row tests: another description is another test."""
    return f"{row.method.test!r} {row.method.attend!r} {row.normalized}"


def about(job: Job, sha256: str, corpus: text.Corpus) -> dict[str, Any]:
    """What all hits of a job depend on."""
    return {
        "format": FORMAT,
        "script": SCRIPT,
        "recipe": training.identity(job.recipe, corpus.about["sha256"]),
        "corpus": {name: corpus.about[name] for name in ("name", "train_bytes", "test_bytes", "sha256")},
        "checkpoint": sha256,
        "tests": asdict(job.tests),
    }


def kept(job: Job, folder: Path, corpus: text.Corpus) -> tuple[dict[str, Any], dict[str, Hits]]:
    """What is measured of a job, as long as it is of this recipe, text and test; nothing otherwise.

    Raises:
        ValueError: a damaged file.
    """
    try:
        found, measured = hits.read(job.path(folder))
    except FileNotFoundError:
        return {}, {}
    as_read = about(job, found["checkpoint"], corpus)
    if {name: found.get(name) for name in as_read} != _as_json(as_read):
        return {}, {}
    same = {name: found["rows"][name] for name, row in job.rows.items() if found["rows"].get(name) == described(row)}
    return found, {name: measured[name] for name in same}


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _as_json(inner) for name, inner in value.items()}
    return [_as_json(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def missing(job: Job, folder: Path, corpus: text.Corpus, wanted: Sequence[str] | None = None) -> list[TableRow]:
    """The rows of a job that are not measured yet."""
    found = kept(job, folder, corpus)[1]
    return [row for name, row in job.rows.items() if name not in found and (wanted is None or name in wanted)]


def trained(job: Job, options: argparse.Namespace, corpus: text.Corpus, end: float) -> checkpoint.Checkpoint | None:
    """The last checkpoint of a training; None where the time was over before it."""
    own = job.path(options.models / "scoreboard", "training")
    last = checkpoint.path_of(own, job.recipe.steps)
    if not last.exists():
        begin, left = time.process_time(), max(0.0, (end - time.time()) / 60)
        done = training.train(job.recipe, corpus, own, Team(torch.device("cpu")), minutes=left, quiet=True)
        losses = training.read_losses(own)[-50:]
        loss = sum(losses) / len(losses)
        print(f"{job}: step {done}, {time.process_time() - begin:.0f} s, loss {loss:.4f}", flush=True)
        if done < job.recipe.steps:
            return None
        for path in checkpoint.stored(own):
            if path != last:
                path.unlink()
        tidy(own)
    return checkpoint.load(last, training.identity(job.recipe, corpus.about["sha256"]))


def model_of(found: checkpoint.Checkpoint) -> nn.Module:
    """The model of a checkpoint, its weights rounded to bfloat16, as those of seed 0 are stored."""
    model = training.load(found.path, kind=recipe.Recipe)[0]
    round_weights(model)
    return model


def export(model: nn.Module, found: checkpoint.Checkpoint, path: Path) -> None:
    """Weights in bfloat16 and the recipe."""
    weights = {name: weight.to(torch.bfloat16) for name, weight in model.state_dict().items()}
    told = {"format": FORMAT, "recipe": json.dumps(found.recipe, sort_keys=True), "checkpoint": found.sha256}
    path.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.write_tensors(path, weights, told)


def work(job: Job, options: argparse.Namespace, corpus: text.Corpus, end: float) -> bool:
    """Train and test what is missing of a job; whether all of it is there."""
    lacking = missing(job, options.out, corpus, options.rows)
    if not lacking:
        return True
    found = trained(job, options, corpus, end)
    if found is None:
        return False
    model, windows = model_of(found), scoring.texts(corpus, job.tests)
    if job.seed == 0:
        export(model, found, job.path(options.out, "safetensors"))
    told, measured = kept(job, options.out, corpus)
    if told.get("checkpoint") != found.sha256:
        measured = {}
    begin = time.process_time()
    for row in lacking:
        if time.time() > end:
            return False
        measured[row.name] = scoring.hits_of(model, row, windows, job.tests, lengths_of(job))
        described_rows = {name: described(job.rows[name]) for name in measured}
        origin = {**about(job, found.sha256, corpus), **provenance(), "rows": described_rows}
        hits.write(job.path(options.out), origin, measured)
    print(f"{job}: {len(lacking)} rows tested, {time.process_time() - begin:.0f} s", flush=True)
    return True


def lengths_of(job: Job) -> tuple[int, ...]:
    """A control that was trained at the longest length is tested there."""
    return tuple(
        length for length in job.tests.lengths if length >= min(job.recipe.train_length, job.tests.lengths[-1])
    )


# --- all jobs --------------------------------------------------------------------------------------------------------


def plan(options: argparse.Namespace, corpus: text.Corpus) -> None:
    """Say what is missing, and what it would cost."""
    total, chosen = 0.0, list(jobs(options))
    for job in chosen:
        lacking = missing(job, options.out, corpus, options.rows)
        if not lacking:
            continue
        own = job.path(options.models / "scoreboard", "training")
        there = checkpoint.path_of(own, job.recipe.steps).exists()
        minutes = (0.0 if there else MINUTES_A_TRAINING) + MINUTES_A_ROW * len(lacking)
        total += minutes
        print(f"{job}: {'trained' if there else 'not trained'}, {len(lacking)} rows missing, {minutes:.0f} minutes")
    print(f"{len(chosen)} trainings in all; {total / 60:.1f} hours of one thread are missing")


def there(options: argparse.Namespace, corpus: text.Corpus) -> dict[str, dict[str, dict[int, dict[str, Hits]]]]:
    """What is measured, of every rung and training, by seed and row."""
    found: dict[str, dict[str, dict[int, dict[str, Hits]]]] = {}
    for rung in RUNGS:
        for name in trainings_of(rung):
            for path in sorted((options.out / rung / name).glob("seed-*.npz")):
                job = Job(rung, name, int(path.stem.removeprefix("seed-")), options.steps, options.windows)
                if measured := kept(job, options.out, corpus)[1]:
                    found.setdefault(rung, {}).setdefault(name, {})[job.seed] = measured
    return found


def write_table(options: argparse.Namespace, corpus: text.Corpus) -> None:
    """The table of all that is there, whatever was asked for."""
    found = there(options, corpus)
    if not found:
        return print(f"There is nothing in {options.out} yet.")
    tests = Job("small", "rope", 0, options.steps, options.windows).tests
    windows = scoring.texts(corpus, tests)
    lines = [
        {"rung": rung, **line} for rung, measured in found.items() for line in table.lines(measured, windows, tests)
    ]
    copies, contexts = far_copies(windows, tests.home)
    header = {
        "script": SCRIPT,
        **provenance(),
        "recipes": {rung: asdict(RUNGS[rung]) for rung in found},
        "tests": asdict(tests),
        "corpus": {name: corpus.about[name] for name in ("name", "train_bytes", "test_bytes", "sha256")},
        "test_text": {
            "sha256": hashlib.sha256(windows.numpy().tobytes()).hexdigest(),
            "far_copies": round(copies.double().mean().item(), 5),  # of all predicted bytes
            "far_contexts": round(contexts.double().mean().item(), 5),  # of which a perfect copier has far_copies
        },
    }
    path = (DATA if options.store else options.out) / "scoreboard.json"
    write_results(path, header, rows=lines)
    return print(f"written: {path}, {len(lines)} lines")


def measure_all(options: argparse.Namespace) -> None:
    end = time.time() + 60 * options.minutes
    torch.set_num_threads(1)
    corpus = text.open_corpus("stdlib", options.cache, held_out=recipe.HELD_OUT)
    if options.plan:
        return plan(options, corpus)
    done = all(time.time() < end and work(job, options, corpus, end) for job in jobs(options))
    write_table(options, corpus)
    if not done:
        print("The time is over. The same line goes on from there.")


def parser() -> argparse.ArgumentParser:
    found = command.parser("experiments scoreboard", __doc__)
    found.add_argument(
        "--rungs", nargs="+", choices=list(RUNGS), default=list(RUNGS), metavar="RUNG", help=", ".join(RUNGS)
    )
    names = sorted({name for rung in RUNGS for name in trainings_of(rung)})
    found.add_argument(
        "--trainings", nargs="+", choices=names, metavar="TRAINING", help="some only; the default is all"
    )
    known = sorted({name for rung in RUNGS for name in RUNGS[rung].rows})
    found.add_argument("--rows", nargs="+", choices=known, metavar="ROW", help="some only; the default is all")
    found.add_argument(
        "--seeds",
        nargs="+",
        type=command.number,
        metavar="K",
        help="the default is 5 of the main trainings, 3 of others",
    )
    found.add_argument("--minutes", type=float, default=math.inf, help="then stop; the same line goes on from there")
    found.add_argument("--plan", action="store_true", help="say what is missing and what it costs, and stop")
    found.add_argument("--cache", type=Path, default=text.CACHE, help="where the prepared text is kept")
    command.add_places(found)
    command.add_try(found, "steps", "windows")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    options = command.parse(made, arguments)
    if options.store:
        options.out = STORED

    def begin() -> None:
        check_extra()
        training.check_minutes(options.minutes)
        measure_all(options)

    return command.run(made.prog, begin)


if __name__ == "__main__":
    sys.exit(main())
