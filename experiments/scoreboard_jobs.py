"""A training of the scoreboard, and what is kept of it."""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments import scoreboard_hits as hits
from rope_lessons.lab import checkpoint, sizes, training
from rope_lessons.lab.rows import TableRow, trainings
from rope_lessons.lab.text import Corpus
from rope_lessons.lab.training import Team
from rope_lessons.models.byte_lm import round_weights
from rope_lessons.scoreboard import recipe, rows
from rope_lessons.scoreboard.recipe import RUNGS, Recipe
from rope_lessons.scoreboard.scoring import Hits, Settings
from rope_lessons.stored import Refusal, tidy

SCRIPT = "python -m experiments scoreboard"
STORED = Path(__file__).parent / "stored" / "scoreboard"  # what was measured for the book; not in the wheel
FORMAT = "rope_lessons scoreboard 1"
SEEDS, MAIN_SEEDS, SECOND_SEEDS = 3, 5, 2
BASE = "rope"  # the training whose models are tuned for other methods
# Trainings of the first rung whose weights of seed 0 are kept, for other plans and tests: those that a lesson asks more
# of. The weights of all, and of the second rung, would be more than the 25 MB that the stored results may have.
WEIGHTS = ("rope", "hwfa-w16", "hwfa2-w16-logn", "invleaky-w16-logn", "invleaky-moving-logn")
# Trainings of the second rung, and what they are tested with beside their own plan and the window.
SECOND: dict[str, tuple[str, ...]] = {
    "rope": ("pi", "ntk-aware", "ntk-mixed", "yarn", "rope-logn-test", "rerope-w128"),
    "rope-logn": ("ntk-mixed-logn", "yarn-logn", "rerope-w128-logn"),
    "invleaky-w64-logn": (),
    "hwfa-w64": (),
    "hwfa2-w64-logn": (),
}


@dataclass(frozen=True)
class Job:
    """A training of one seed, and the rows that its model is tested with.

    Args:
        rung: of the scoreboard.
        training: its name, that of its first row.
        seed: of weights and batches.
        steps, windows: of the training and of the test text, where they are not those of the rung.
        rate, start: of a model that is tuned: the learning rate, and the checkpoint that it begins with. Both come from
            what was measured before; see :func:`experiments.scoreboard_tuning.settled`.
    """

    rung: str
    training: str
    seed: int
    steps: int | None = None
    windows: int | None = None
    rate: float | None = None
    start: str = ""

    @property
    def recipe(self) -> Recipe:
        whole = RUNGS[self.rung]
        rate = whole.learning_rate if self.rate is None else self.rate
        settings = replace(whole, steps=self.steps or whole.steps, learning_rate=rate, start=self.start)
        return replace(settings, scheme=self.training, seed=self.seed)

    @property
    def tuned(self) -> bool:
        return RUNGS[self.rung].tuned

    @property
    def keeps_weights(self) -> bool:
        return self.rung == "small" and self.seed == 0 and self.training in WEIGHTS

    @property
    def base(self) -> Job:
        """The training whose model is tuned: the plain one, with the same seed."""
        return Job(self.rung.partition("-")[0], BASE, self.seed, self.steps, self.windows)

    @property
    def rows(self) -> dict[str, TableRow]:
        """At the training length of a control there is one: what was trained."""
        own = self.recipe.row
        if self.recipe.train_length != self.recipe.home:
            return {self.training: own}
        found = {row.name: row for row in trainings_of(self.rung)[self.training]}
        if self.rung != "second":
            return found
        wanted = (self.training, f"{self.training}-window", *SECOND[self.training])
        return {name: found[name] for name in wanted}

    @property
    def tests(self) -> Settings:
        whole = tests_of(self.rung)
        return whole if self.windows is None else replace(whole, windows=self.windows)

    def path(self, folder: Path, ending: str = "npz") -> Path:
        return folder / self.rung / self.training / f"seed-{self.seed}.{ending}"

    def checkpoints(self, folder: Path) -> Path:
        """Where its training is kept; one that is tuned is tried with several rates."""
        return self.path(folder / "scoreboard", "training" if self.rate is None else f"rate-{self.rate:g}.training")

    def __str__(self) -> str:
        return f"{self.rung}, {self.training}, seed {self.seed}"


@cache
def trainings_of(rung: str) -> dict[str, list[TableRow]]:
    return trainings(RUNGS[rung].rows.values())


def tests_of(rung: str) -> Settings:
    """What the models of a rung are asked."""
    return Settings(home=256, lengths=(256, 2048)) if rung == "second" else Settings()


def seeds_of(rung: str, training: str) -> int:
    """How many seeds of a training a rung has; 0 of one that it does not have."""
    if rung == "second":
        return SECOND_SEEDS if training in SECOND else 0
    if RUNGS[rung].tuned:
        return SEEDS if training in rows.TUNED else 0
    if training in rows.MAIN:
        return MAIN_SEEDS
    return SEEDS if RUNGS[rung].train_length == RUNGS[rung].home else 0


def described(row: TableRow) -> str:
    """What a row tests: another description is another test."""
    more = [each for each in (row.method.test_positions, row.outside) if each]
    told: list[Any] = [row.method.test, row.method.attend, *more]
    return " ".join((*(_without_addresses(repr(each)) for each in told), row.normalized))


def _without_addresses(told: str) -> str:
    """Python says where a function lies in memory, which is elsewhere the next time."""
    return re.sub(" at 0x[0-9a-f]+", "", told)


def about(job: Job, sha256: str, corpus: Corpus) -> dict[str, Any]:
    """What all hits of a job depend on."""
    return {
        "format": FORMAT,
        "script": SCRIPT,
        "recipe": training.identity(job.recipe, corpus.about["sha256"]),
        "corpus": {name: corpus.about[name] for name in ("name", "train_bytes", "test_bytes", "sha256")},
        "checkpoint": sha256,
        "tests": asdict(job.tests),
    }


def foreign(found: dict[str, Any], job: Job, corpus: Corpus) -> str:
    """What kept hits say of themselves that is not so of a job: its recipe, text or tests, in words; empty where all
    agrees.

    Args:
        found: what a file of hits says, as :func:`about` has it.
        job, corpus: that it is wanted for.
    """
    return checkpoint.differences(_flat(found), _flat(about(job, found["checkpoint"], corpus)))


def _flat(told: dict[str, Any]) -> dict[str, Any]:
    parts = {name: told.get(name, {}) for name in ("recipe", "corpus", "tests")}
    values = {f"{part}: {name}": value for part, whole in parts.items() for name, value in whole.items()}
    return {"format": told.get("format"), "script": told.get("script"), **values}


def kept(job: Job, folder: Path, corpus: Corpus, *, named: bool = False) -> tuple[dict[str, Any], dict[str, Hits]]:
    """What is measured of a job, as long as it is of this recipe, text and test; nothing otherwise.

    Args:
        job, folder, corpus: of the hits.
        named: say what is there and of another recipe, text or test.

    Raises:
        ValueError: a damaged file.
    """
    try:
        found, measured = hits.read(job.path(folder))
    except FileNotFoundError:
        return {}, {}
    if others := foreign(found, job, corpus):
        if named:
            print(f"{job}: what is kept is not used, as it is of another one ({others})", flush=True)
        return {}, {}
    told = {name: _without_addresses(text) for name, text in found["rows"].items()}
    return found, {name: measured[name] for name, row in job.rows.items() if told.get(name) == described(row)}


def missing(job: Job, folder: Path, corpus: Corpus, wanted: Sequence[str] | None = None) -> list[TableRow]:
    """The rows of a job that are not measured yet."""
    found = kept(job, folder, corpus)[1]
    return [row for name, row in job.rows.items() if name not in found and (wanted is None or name in wanted)]


def lengths_of(job: Job, row: TableRow) -> tuple[int, ...]:
    """A control that was trained at the longest length is tested there, a learned table as far as it goes."""
    least = job.recipe.home if job.tuned else min(job.recipe.train_length, job.tests.lengths[-1])
    most = row.longest or job.tests.lengths[-1]
    return tuple(length for length in job.tests.lengths if least <= length <= most)


def trained(job: Job, options: argparse.Namespace, corpus: Corpus, end: float) -> checkpoint.Checkpoint | None:
    """The last checkpoint of a training; None where the time was over before it.

    Raises:
        Refusal: the model that it is to begin with is another one now.
    """
    own = job.checkpoints(options.models)
    last = checkpoint.path_of(own, job.recipe.steps)
    if not last.exists():
        base = trained(job.base, options, corpus, end) if job.tuned else None
        if job.tuned and base is None:
            return None
        if base is not None and base.sha256 != job.start:
            raise Refusal(f"{base.path} must be the checkpoint {job.start[:12]} that {job} begins with")
        begin, left = time.process_time(), max(0.0, (end - time.time()) / 60)
        cpu = Team(torch.device("cpu"))
        done = training.train(job.recipe, corpus, own, cpu, minutes=left, quiet=True, tuned_from=base)
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


def tested(
    job: Job, options: argparse.Namespace, corpus: Corpus, end: float, folder: Path
) -> tuple[nn.Module, str] | None:
    """The model that is tested, and the digest of its checkpoint; None where the time was over before it was trained.

    Args:
        job: with its rate, where it is tuned.
        options: of the command.
        corpus: of the training.
        end: the time at which to stop.
        folder: of results, whose weights will do where the checkpoint is gone.

    Raises:
        Refusal: damaged weights.
    """
    weights, wanted = job.path(folder, "safetensors"), training.identity(job.recipe, corpus.about["sha256"])
    last = checkpoint.path_of(job.checkpoints(options.models), job.recipe.steps)
    if weights.exists() and not last.exists():
        model, told = with_weights(job, weights)
        if not checkpoint.differences(json.loads(told["recipe"]), wanted):
            return model, told["checkpoint"]
    found = trained(job, options, corpus, end)
    return None if found is None else (model_of(found), found.sha256)


def with_weights(job: Job, path: Path) -> tuple[nn.Module, dict[str, str]]:
    """The model of a job with the weights of a file, and what the file says of them.

    Raises:
        Refusal: a file that is not there, or is damaged.
    """
    tensors, told, _ = checkpoint.read_tensors(path, FORMAT)
    model = sizes.build(job.recipe.config, job.seed, job.recipe.row.method.train, "cpu")
    model.load_state_dict({name: weight.float() for name, weight in tensors.items()})
    return model.eval(), told


def kept_model(training: str) -> nn.Module:
    """The first seed of a training of the first rung, from the weights that the book keeps (``WEIGHTS``)."""
    job = Job("small", training, 0)
    return with_weights(job, job.path(STORED, "safetensors"))[0]


def model_of(found: checkpoint.Checkpoint) -> nn.Module:
    """The model of a checkpoint, its weights rounded to bfloat16, as those of seed 0 are stored."""
    model = training.load(found.path, kind=recipe.Recipe)[0]
    round_weights(model)
    return model


def export(model: nn.Module, sha256: str, job: Job, corpus: Corpus, path: Path) -> None:
    """Weights in bfloat16 and the recipe, unless they are there: written again the same file would have other bytes.

    Raises:
        Refusal: the file that is there is damaged.
    """
    if path.exists() and checkpoint.read_tensors(path, FORMAT)[1].get("checkpoint") == sha256:
        return
    weights = {name: weight.to(torch.bfloat16) for name, weight in model.state_dict().items()}
    own = json.loads(json.dumps(training.identity(job.recipe, corpus.about["sha256"])))
    told = {"format": FORMAT, "recipe": json.dumps(own, sort_keys=True), "checkpoint": sha256}
    path.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.write_tensors(path, weights, told)
