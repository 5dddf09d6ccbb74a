"""Counting what has not been counted yet: every model with every row that it serves.

An interrupted table goes on where it stopped. Chapter 12.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

import rope_lessons
from rope_lessons.lab import training
from rope_lessons.lab.rows import TableRow
from rope_lessons.lab.table.counts import find_counts, keep_counts
from rope_lessons.lab.table.finished import TableError, Trained, about_of, rows_of
from rope_lessons.lab.table.scoring import Evaluation, count
from rope_lessons.lab.text import Corpus, natural_windows
from rope_lessons.lab.training import DTYPES
from rope_lessons.stored import provenance


def count_all(
    models: Sequence[Trained],
    corpus: Corpus,
    tests: Evaluation,
    wanted: Sequence[str] | None = None,
    device: torch.device | str = "cpu",
    minutes: float = math.inf,
    progress: Callable[[Any], Any] = lambda jobs: jobs,
    say: Callable[[str], None] = print,
) -> bool:
    """Count what has not been counted yet, and keep it beside the checkpoints.

    Args:
        models: trainings.
        corpus: with the held-out text; the one that the models were trained on.
        tests: what to test with.
        wanted: names of rows; all if None.
        device: where to test.
        minutes: after which to stop; at least 0.
        progress: wraps the list of jobs, as ``tqdm`` does.
        say: takes a message about each file that is damaged, and so counted again.

    Returns:
        whether all is counted.

    Raises:
        TypeError, ValueError: minutes out of range.
        TableError: a model of another corpus, which may have seen the test text; an unknown row; something that is not
            counted, of a model whose weights are not here.
        CorpusError: no document is as long as the longest test.
        InUseError: another process trains or tests one of the models.
        OSError: the disk is full.

    Chapter 12.
    """
    training.check_minutes(minutes)
    end = time.monotonic() + 60 * minutes
    for model in models:
        if model.corpus != corpus.about["sha256"]:
            raise TableError(
                f"{model.folder} was trained on another corpus (SHA-256 {model.corpus[:12]}…) than the given one "
                f"({corpus.about['sha256'][:12]}…): it may have seen the test text"
            )
    _check_known(models, wanted)
    jobs = [
        (model, row) for model in models for row in _uncounted(model, rows_of(model.recipe, wanted), corpus, tests, say)
    ]
    if without := [(model, row) for model, row in jobs if model.weights is None]:
        model, row = without[0]
        raise TableError(f"{model.folder} is not tested with {row.name!r} yet, and its weights are not here")
    for length in {model.recipe.train_length for model, _ in jobs}:
        natural_windows(corpus, length * tests.factors[-1], 1)  # is there a document of that length?
    with contextlib.ExitStack() as held:
        for folder in {model.folder: None for model, _ in jobs}:
            held.enter_context(training.only_one(folder))
        loaded: tuple[Trained, nn.Module] | None = None
        for model, row in progress(jobs):
            if time.monotonic() > end:
                return False
            if loaded is None or loaded[0] != model:
                loaded = model, model.load(device)
                tested = {"rope_lessons": rope_lessons.__version__, **provenance(device)}
                model.keep_about(tested)  # first: whoever is interrupted from here on comes back
            recipe = model.recipe
            counts = count(loaded[1], row, corpus, recipe.train_length, tests, DTYPES[recipe.dtype])
            keep_counts(model, row, corpus, tests, counts)
    return True


def check_rows(models: Sequence[Trained], wanted: Sequence[str] | None) -> None:
    """Refuse rows that cannot stand in the table of some models.

    Raises:
        TableError: an unknown row, or one that none of the models serves.
    """
    _check_known(models, wanted)
    served = {row.name for model in models for row in rows_of(model.recipe, wanted)}
    if missing := sorted(set(wanted or ()) - served):
        raise TableError(f"rows must be ones that the given trainings serve; none serves {', '.join(missing)}")


def _check_known(models: Sequence[Trained], wanted: Sequence[str] | None) -> None:
    known = {name for model in models for name in model.recipe.rows}
    if unknown := sorted(set(wanted or ()) - known):
        raise TableError(f"rows must be among those of the table, got {', '.join(unknown)}")


def _uncounted(
    model: Trained, rows: list[TableRow], corpus: Corpus, tests: Evaluation, say: Callable[[str], None]
) -> list[TableRow]:
    """The rows that are to be counted: those that are not yet, and what is damaged, which is told."""
    try:
        about_of(model.folder)
    except FileNotFoundError:
        return rows
    except ValueError as error:
        say(f"{error}. All rows are counted again")
        return rows
    found = []
    for row in rows:
        try:
            if find_counts(model, row, corpus, tests) is None:
                found.append(row)
        except ValueError as error:
            say(f"{error}. The row is counted again")
            found.append(row)
    return found
