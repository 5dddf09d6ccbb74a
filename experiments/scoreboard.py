"""Chapter 12: train the models of the scoreboard and test every row, at 64 bytes and at up to eight times that.

    python -m experiments scoreboard --plan                          # what is missing, and what it costs
    python -m experiments scoreboard --minutes 60                    # an hour of it; the same line goes on from there
    python -m experiments scoreboard --trainings rope --seeds 0 1    # some of it
    python -m experiments scoreboard --choose --rungs small-tuned-1  # learning rates of the models that are tuned
    python -m experiments scoreboard --store                         # and the table of the book from all that is there

Takes about 8 minutes of one CPU thread for a training, and 15 seconds for each row that it is tested with; on the
second rung half an hour, and two minutes for each row.

What a model had right is kept in RUNG/TRAINING/seed-K.npz, a bit per byte, again after every row; so a new row tests
that row alone, and a new metric that the text decides needs no model. The weights of seed 0 of some trainings
(``scoreboard_jobs.WEIGHTS``) lie beside it in bfloat16, as they are tested; those of all stay in .models until they
are deleted. An interrupted training goes on from its last checkpoint, with the bits that it would have had. Trainings
are in the order of their worth: all seeds of the main ones first.

The rungs small-tuned-P go on from the plain models of the rung small, at 512 bytes and with P percent of the bytes that
these were trained with. Each method has the learning rate with which seed 0 is best on the validation text; the losses
of all rates that were tried are in RUNG/TRAINING/rates.json. With 0 percent they are rows of the rung small.

The rung second has a model of two million weights, and 256 bytes to train on and 2048 to test with.

The table of all that is there is written at the end, scoreboard.json. With --store it is the book's own, and the hits
and weights go to experiments/stored.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from experiments import command
from experiments import scoreboard_hits as hits
from experiments import scoreboard_table as table
from experiments.scoreboard_jobs import (
    MAIN_SEEDS,
    SCRIPT,
    STORED,
    Job,
    about,
    described,
    export,
    kept,
    lengths_of,
    missing,
    seeds_of,
    tested,
    trainings_of,
)
from experiments.scoreboard_tuning import RATES, choose, prepared, settled
from rope_lessons.lab import checkpoint, text, training
from rope_lessons.lab.command import check_extra
from rope_lessons.scoreboard import live, recipe, scoring
from rope_lessons.scoreboard.metrics import far_copies
from rope_lessons.scoreboard.recipe import RUNGS
from rope_lessons.scoreboard.scoring import Hits, Settings
from rope_lessons.stored import DATA, provenance, write_results, write_whole

# Minutes of one thread, for --plan: a training and a row that it is tested with. Other rungs than these have the model
# of the small one, and read less.
MINUTES = {"small": (8.0, 0.25), "second": (33.0, 2.2)}
BY_SEED = ("second",)  # two seeds: an interval over them says little, so the table has each of them, too


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    """The jobs of a command, the most worth first: the main trainings seed by seed, then the others."""
    for main in (True, False):
        for seed in range(MAIN_SEEDS) if options.seeds is None else options.seeds:
            for rung in options.rungs:
                for name in trainings_of(rung):
                    wanted = options.trainings is None or name in options.trainings
                    count = seeds_of(rung, name)
                    planned = seed < count if options.seeds is None else count > 0
                    if wanted and planned and (count == MAIN_SEEDS) == main:
                        yield Job(rung, name, seed, options.steps, options.windows)


def work(asked: Job, options: argparse.Namespace, corpus: text.Corpus, end: float) -> bool:
    """Train and test what is missing of a job; whether all of it is there."""
    if not missing(settled(asked, options.out, corpus), options.out, corpus, options.rows):
        return True
    if asked.tuned:  # it is compared with the model that it begins with, and its rate is chosen on seed 0
        bases = dict.fromkeys((asked.base, replace(asked, seed=0).base))
        if not all(work(base, options, corpus, end) for base in bases):
            return False
    job = prepared(asked, options, corpus, end)
    found = None if job is None else tested(job, options, corpus, end, options.out)
    if job is None or found is None:
        return False
    model, sha256 = found
    if job.keeps_weights:
        export(model, sha256, job, corpus, job.path(options.out, "safetensors"))
    windows = scoring.texts(corpus, job.tests)
    told, measured = kept(job, options.out, corpus, named=True)
    if told.get("checkpoint") != sha256:
        measured = {}
    begin, lacking = time.process_time(), missing(job, options.out, corpus, options.rows)
    for row in lacking:
        if time.time() > end:
            return False
        measured[row.name] = scoring.hits_of(model, row, windows, job.tests, lengths_of(job, row))
        described_rows = {name: described(job.rows[name]) for name in measured}
        origin = {**about(job, sha256, corpus), **provenance(), "rows": described_rows}
        hits.write(job.path(options.out), origin, measured)
    print(f"{job}: {len(lacking)} rows tested, {time.process_time() - begin:.0f} s", flush=True)
    return True


def plan(options: argparse.Namespace, corpus: text.Corpus) -> None:
    """Say what is missing, and what it would cost."""
    total, chosen = 0.0, [settled(job, options.out, corpus) for job in jobs(options)]
    for job in chosen:
        lacking = missing(job, options.out, corpus, options.rows)
        if not lacking:
            continue
        there = checkpoint.path_of(job.checkpoints(options.models), job.recipe.steps).exists()
        chooses = job.tuned and job.rate is None and job.seed == 0
        trials = len(RATES) - 1 if chooses else 0  # beside the one that is taken
        whole, row = minutes_of(job)
        minutes = whole * (trials + (not there)) + row * len(lacking)
        total += minutes
        state = "trained" if there else "not trained" + (", no rate is chosen" if trials else "")
        print(f"{job}: {state}, {len(lacking)} rows missing, {minutes:.1f} minutes")
    print(f"{len(chosen)} trainings in all; {total / 60:.1f} hours of one thread are missing")


def minutes_of(job: Job) -> tuple[float, float]:
    """What a training takes, and each of its rows: as long for every byte as on the first rung with this model."""
    rung = job.rung.partition("-")[0]
    read, whole = (each.steps * each.batch * each.train_length for each in (job.recipe, RUNGS[rung]))
    return MINUTES[rung][0] * read / whole, MINUTES[rung][1]


def choices(options: argparse.Namespace, corpus: text.Corpus, end: float) -> bool:
    """Choose the learning rates of the models that are tuned; whether all of them are chosen."""
    for job in dict.fromkeys(Job(job.rung, job.training, 0, job.steps, job.windows) for job in jobs(options)):
        if job.tuned:
            rate = choose(job, options, corpus, end)
            if rate is None:
                return False
            print(f"{job.rung}, {job.training}: the rate is {rate:g}")
    return True


def there(options: argparse.Namespace, corpus: text.Corpus) -> dict[str, dict[str, dict[int, dict[str, Hits]]]]:
    """What is measured, of every rung and training, by seed and row."""
    found: dict[str, dict[str, dict[int, dict[str, Hits]]]] = {}
    for rung in RUNGS:
        for name in trainings_of(rung):
            for path in sorted((options.out / rung / name).glob("seed-*.npz")):
                job = Job(rung, name, int(path.stem.removeprefix("seed-")), options.steps, options.windows)
                job = settled(job, options.out, corpus)
                if measured := kept(job, options.out, corpus, named=True)[1]:
                    found.setdefault(rung, {}).setdefault(name, {})[job.seed] = measured
    return found


def write_table(options: argparse.Namespace, corpus: text.Corpus) -> None:
    """The table of all that is there, whatever was asked for."""
    found = there(options, corpus)
    if not found:
        return print(f"There is nothing in {options.out} yet.")
    lines, each_seed, needles, texts = [], [], [], {}
    for rung, measured in found.items():
        tests = Job(rung, "rope", 0, windows=options.windows).tests
        windows = scoring.texts(corpus, tests)
        lines += [{"rung": rung, **line} for line in table.lines(measured, windows, tests)]
        if rung in BY_SEED:
            each_seed += [{"rung": rung, **line} for line in table.each_seed(measured, windows, tests)]
        needles += [{"rung": rung, **line} for line in table.needles_by_seed(measured, tests)]
        texts[rung] = {**asdict(tests), **text_of(windows, tests)}
    header = {
        "script": SCRIPT,
        **provenance(),
        "recipes": {rung: asdict(RUNGS[rung]) for rung in found},
        "tests": texts,
        "corpus": {name: corpus.about[name] for name in ("name", "train_bytes", "test_bytes", "sha256")},
    }
    if options.store:
        write_live(options, corpus)
    path = (DATA if options.store else options.out) / "scoreboard.json"
    write_results(path, header, rows=lines, each_seed=each_seed, needles=needles)
    return print(f"written: {path}, {len(lines)} lines")


def write_live(options: argparse.Namespace, corpus: text.Corpus) -> None:
    """What the cells of the book load: the texts, and the weights of seed 0."""
    tests = Job("small", "rope", 0, windows=options.windows).tests
    lines = [
        {"which": which, "text": bytes(window).decode("latin-1")}
        for which in ("test", "validation")
        for window in scoring.texts(corpus, tests, which).tolist()
    ]
    header = {"script": SCRIPT, **provenance(), "corpus": corpus.about["sha256"], "which": ["test", "validation"]}
    write_results(DATA / "scoreboard_texts.json", header, windows=lines)
    for name in live.TRAININGS:
        weights = Job("small", name, 0).path(options.out, "safetensors")
        write_whole(DATA / f"scoreboard_{name}.safetensors", partial(shutil.copyfile, weights))


def text_of(windows: Tensor, tests: Settings) -> dict[str, Any]:
    """What the test text is, and what a copier could find in it."""
    copies, contexts = far_copies(windows, tests.home)
    return {
        "sha256": hashlib.sha256(windows.numpy().tobytes()).hexdigest(),
        "far_copies": round(copies.double().mean().item(), 5),  # of all predicted bytes
        "far_contexts": round(contexts.double().mean().item(), 5),  # of which a perfect copier has far_copies
    }


def measure_all(options: argparse.Namespace) -> None:
    end = time.time() + 60 * options.minutes
    torch.set_num_threads(1)
    corpus = text.open_corpus("stdlib", options.cache, held_out=recipe.HELD_OUT)
    if options.plan:
        return plan(options, corpus)
    if options.choose:
        done = choices(options, corpus, end)
    else:
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
    command.add_minutes(found)
    found.add_argument(
        "--choose", action="store_true", help="choose the learning rates of the models that are tuned, and stop"
    )
    found.add_argument("--plan", action="store_true", help="say what is missing and what it costs, and stop")
    command.add_cache(found)
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
