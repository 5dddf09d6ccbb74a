"""Trained models that are tuned for a method at a longer length, and the learning rate of each, which is chosen."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments import scoreboard_hits as hits
from experiments.scoreboard_jobs import SCRIPT, Job, model_of, trained
from rope_lessons.lab import training
from rope_lessons.lab.checkpoint import Checkpoint
from rope_lessons.lab.table.scoring import cut, score
from rope_lessons.lab.text import Corpus
from rope_lessons.scoreboard import scoring
from rope_lessons.stored import provenance, read_results, write_results

RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)


def settled(job: Job, folder: Path, corpus: Corpus) -> Job:
    """A job with the checkpoint that it begins with and the rate that was chosen for it, as far as they are measured.

    Args:
        job: any; what is not tuned stays as it is.
        folder: of what is measured.
        corpus: of the scoreboard.
    """
    if not job.tuned:
        return job
    starts = [_measured_checkpoint(each.base, folder) for each in (job, replace(job, seed=0))]
    found = _rates(replace(job, seed=0, rate=None, start=starts[1]), folder, corpus)
    return replace(job, start=starts[0], rate=_best(found) if len(found) == len(RATES) else None)


def prepared(job: Job, options: argparse.Namespace, corpus: Corpus, end: float) -> Job | None:
    """A job that can be trained: what it begins with is trained, and its rate chosen. None where the time was over."""
    if not job.tuned:
        return job
    start = trained(job.base, options, corpus, end)
    rate = None if start is None else choose(job, options, corpus, end)
    return None if start is None or rate is None else replace(job, start=start.sha256, rate=rate)


def choose(job: Job, options: argparse.Namespace, corpus: Corpus, end: float) -> float | None:
    """The learning rate with which seed 0 of a tuning has the lowest loss on the validation text, at the length that it
    is tuned for. Every rate is tried with all of the steps, and kept. None where the time was over."""
    first = replace(job, seed=0, rate=None)
    start = trained(first.base, options, corpus, end)
    if start is None:
        return None
    first = replace(first, start=start.sha256)
    found = _rates(first, options.out, corpus)
    for rate in RATES:
        if rate in found:
            continue
        if time.time() > end or (tried := trained(replace(first, rate=rate), options, corpus, end)) is None:
            return None
        found[rate] = _loss(first, tried, corpus)
        print(f"{first}: rate {rate:g}, loss {found[rate]:.4f} on validation text", flush=True)
        path = _path(first, options.out)
        path.parent.mkdir(parents=True, exist_ok=True)
        header = {"script": SCRIPT, **provenance(), "made_for": _made_for(first, corpus)}
        write_results(path, header, rates=[{"rate": rate, "loss": loss} for rate, loss in sorted(found.items())])
    return _best(found)


def _best(found: dict[float, float]) -> float:
    return min(found, key=lambda rate: found[rate])


def _loss(job: Job, found: Checkpoint, corpus: Corpus) -> float:
    """Nats per byte of the validation text."""
    windows = cut(scoring.texts(corpus, job.tests, "validation"), job.recipe.train_length)
    return score(model_of(found), job.recipe.row, windows)[1].mean().item()


def _path(job: Job, folder: Path) -> Path:
    return job.path(folder).with_name("rates.json")


def _made_for(job: Job, corpus: Corpus) -> dict[str, Any]:
    """What the losses depend on, beside the rate."""
    told = training.identity(job.recipe, corpus.about["sha256"])
    return {name: value for name, value in told.items() if name != "learning_rate"} | {"windows": job.tests.windows}


def _rates(job: Job, folder: Path, corpus: Corpus) -> dict[float, float]:
    """The loss of every rate that was tried, as long as it was tried for this.

    Raises:
        ValueError: a damaged file.
    """
    try:
        stored = read_results(_path(job, folder))
    except FileNotFoundError:
        return {}
    if stored.get("made_for") != _made_for(job, corpus):
        return {}
    return dict(zip(stored["rates"]["rate"], stored["rates"]["loss"], strict=True))


def _measured_checkpoint(job: Job, folder: Path) -> str:
    """The checkpoint whose hits are kept; an empty string where there are none."""
    try:
        return str(hits.read(job.path(folder))[0]["checkpoint"])
    except FileNotFoundError:
        return ""
