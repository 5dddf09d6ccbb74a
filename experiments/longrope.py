"""Chapter 05: search LongRoPE's factors on validation text, for the plain model of the scoreboard.

    python -m experiments longrope --minutes 20    # the same line goes on from there
    python -m experiments longrope --store         # and the rows longrope and longrope-without-factor are there

Takes about 20 minutes of one CPU thread for each of the two searches, and the training of the model where it is not
there yet.

A factor for each pair, from 1 to twice the extension, none smaller than the one of the pair before. The search begins
with the factors of every other way to change frequencies and changes the best ones so far, a few neighbouring pairs at
a time. What it lowers is the loss of seed 0 at eight times the training length, over natural and repeated text of the
validation set. One search has LongRoPE's attention factor, the other none: what frequencies can do alone. Only their
number and the best factors before it decide which factors are tried next, so an interrupted search finds the same ones.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from experiments import command
from experiments.result import Result
from experiments.scoreboard_jobs import STORED, Job, tested
from rope_lessons.kinds import KINDS
from rope_lessons.lab import text, training
from rope_lessons.lab.table.scoring import cut, score
from rope_lessons.lab.text import repeated_windows
from rope_lessons.methods import METHODS
from rope_lessons.schemes import scheme
from rope_lessons.scoreboard import recipe, rows, scoring
from rope_lessons.scoreboard.recipe import Recipe

SEARCHES: dict[str, dict[str, float]] = {"longrope": {}, "longrope-without-factor": {"rotary_scale": 1.0}}
EVALUATIONS = 600  # of each search
STEPS = (0.05, 0.2, 0.8)  # standard deviations of a change, of the logarithm of a factor
SAVE_EVERY = 20
Factors = tuple[float, ...]


def beginnings(own: Recipe) -> Iterator[Factors]:
    """The factors of plain RoPE and of every way to change frequencies: what it divides those of RoPE by."""
    dim, length = own.config.head_dim, int(own.factor * own.home)
    plain = scheme("rope", dim=dim).frequencies
    assert plain is not None
    for name in ("rope", *rows.CHANGED):
        changed = scheme(name, dim=dim, **KINDS[name].extended(dim, own.factor, own.home)).frequencies  # type: ignore[call-overload]
        yield allowed((plain() / changed(length)).numpy(), own.factor)


def allowed(factors: np.ndarray, extension: float) -> Factors:
    """The nearest factors that the search may have, rounded as they are stored."""
    return tuple(np.maximum.accumulate(factors.clip(1.0, 2 * extension)).round(4).tolist())


def neighbour(best: Factors, number: int, extension: float) -> Factors:
    """What is tried at an evaluation: some pairs in a row get one change, all of the same size."""
    random = np.random.Generator(np.random.Philox(key=0, counter=[0, 0, 0, number]))
    first, last = np.sort(random.integers(len(best), size=2))
    changed = np.array(best)
    changed[first : last + 1] *= math.exp(random.choice(STEPS) * random.standard_normal())
    return allowed(changed, extension)


def search(name: str, own: Recipe, loss_of: Callable[[Factors], float], found: Result, most: int, end: float) -> bool:
    """One search, from where it is; whether it is done.

    Args:
        name: of ``SEARCHES``.
        own: the recipe of the model.
        loss_of: some factors.
        found: gets a row for every improvement, and the number of evaluations.
        most: evaluations.
        end: the time at which to stop.
    """
    improved = [row for row in found.found["searches"] if row["name"] == name]
    best, least = (tuple(improved[-1]["long_factor"]), improved[-1]["loss"]) if improved else ((), math.inf)
    given = list(beginnings(own))
    begun = done = found.found["evaluations"].get(name, 0)
    while done < most and time.time() < end:
        tried = given[done] if done < len(given) else neighbour(best, done, own.factor)
        loss = loss_of(tried)
        done += 1
        found.found["evaluations"] = {**found.found["evaluations"], name: done}
        if loss < least:
            best, least = tried, loss
            found.add(searches=[{"name": name, "evaluation": done, "loss": loss, "long_factor": list(tried)}])
        elif done % SAVE_EVERY == 0:
            found.write()
    if done != begun:
        found.write()
    return done >= most


def row_of(name: str, own: Recipe, factors: Factors) -> rows.TableRow:
    """A row of the scoreboard with some factors, as the table has it once they are stored."""
    size = own.config
    options: dict[str, Any] = rows.longrope_options(factors, own.home, own.factor) | SEARCHES[name]
    return rows.TableRow(name, METHODS["longrope"](layers=size.layers, dim=size.head_dim, **options))


def search_all(options: argparse.Namespace) -> None:
    end = time.time() + 60 * options.minutes
    corpus = text.open_corpus("stdlib", options.cache, held_out=recipe.HELD_OUT)
    job = Job("small", "rope", 0, options.steps, options.windows)
    source = tested(job, options, corpus, end, STORED)
    if source is None:
        return print("The time is over. The same line goes on from there.")
    own, (model, sha256) = job.recipe, source
    windows = scoring.texts(corpus, job.tests, "validation")
    natural = cut(windows, int(own.factor * own.home))
    texts = (natural, repeated_windows(natural, own.home))
    settings = {
        "checkpoint": sha256,
        "recipe": training.identity(own, corpus.about["sha256"]),
        "tests": asdict(job.tests),
        "windows": len(windows),
        "layers": own.config.layers, "dim": own.config.head_dim, "train_length": own.home, "factor": own.factor,
    }  # fmt: skip
    empty: dict[str, Any] = {"evaluations": {}, "searches": []}
    found = Result(options.out / "longrope.json", "longrope", settings, empty, options.fresh)
    done = True
    for name in SEARCHES:

        def loss_of(factors: Factors, name: str = name) -> float:
            losses = [score(model, row_of(name, own, factors), tokens)[1].mean().item() for tokens in texts]
            return round(sum(losses) / len(losses), 6)

        done = search(name, own, loss_of, found, options.evaluations, end) and done
    found.close()
    return None if done else print("The time is over. The same line goes on from there.")


def parser() -> argparse.ArgumentParser:
    found = command.parser("experiments longrope", __doc__)
    command.add_minutes(found)
    found.add_argument(
        "--evaluations", type=command.count, default=EVALUATIONS, metavar="N", help=f"of a search; {EVALUATIONS}"
    )
    command.add_cache(found)
    command.add_places(found)
    command.add_fresh(found)
    command.add_try(found, "steps", "windows")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    options = command.parse(made, arguments)

    def begin() -> None:
        training.check_minutes(options.minutes)
        search_all(options)

    return command.run(made.prog, begin)


if __name__ == "__main__":
    sys.exit(main())
