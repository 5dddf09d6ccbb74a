"""Chapter 12: is it the method, or more training? A window tuned like plain RoPE, YaRN and ReRoPE.

    python -m experiments tuned_window --minutes 30    # half an hour of it; the same line goes on from there

Takes about an hour and a half of one CPU thread.

Writes tuned_window.json: what each has right in 512 bytes after tuning with 0, 0.1, 1 and 10 percent of the bytes of
pretraining, and by how much it is ahead of the window after as much, in pairs; one seed, intervals over documents.

The models are those of the scoreboard's rungs small-tuned-P, seed 0, with a rate chosen for each as there. But all
begin with one model that is trained anew: the checkpoints that the scoreboard's began with are not kept, and on another
processor a training ends with other last bits. So the four are compared with each other. What is measured is kept in
MODELS/tuned_window.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from experiments import command, scoreboard
from experiments import scoreboard_table as table
from experiments.result import Result
from experiments.scoreboard_jobs import BASE, Job, kept
from experiments.scoreboard_tuning import settled
from rope_lessons.lab import text, training
from rope_lessons.lab.text import Corpus
from rope_lessons.scoreboard import recipe, scoring
from rope_lessons.scoreboard.scoring import Hits

WINDOW = "rope-window"
METHODS = (WINDOW, "rope", "yarn", "rerope-w32")
PERCENTS = (0.0, *sorted(recipe.SHARES))  # of the bytes of pretraining


def jobs(options: argparse.Namespace, percent: float) -> list[Job]:
    """A model for each method; untuned, one for all of them."""
    base = Job("small", BASE, 0, options.steps, options.windows)
    return [replace(base, rung=f"small-tuned-{percent:g}", training=name) for name in METHODS] if percent else [base]


def lines(found: Mapping[str, Hits], windows: Tensor, tests: scoring.Settings) -> Iterator[dict[str, Any]]:
    """Of one amount of tuning: each method's share at the longest length, and its lead over the window."""
    in_order = {name: found[name] for name in METHODS}
    for line in table.each_seed({BASE: {0: in_order}}, windows, tests):
        if line["length"] == tests.lengths[-1]:
            yield {name: value for name, value in line.items() if name != "training"}


def measure(options: argparse.Namespace, corpus: Corpus) -> None:
    end, options.rows = time.time() + 60 * options.minutes, METHODS
    tests = jobs(options, 0.0)[0].tests
    settings = {"home": tests.home, "documents": tests.windows, "steps": options.steps}
    result = Result(options.out / "tuned_window.json", "tuned_window", settings, {"rows": []}, options.fresh)
    options.out = options.models / "tuned_window"  # of the hits
    windows = scoring.texts(corpus, tests)
    for percent in PERCENTS:
        if not result.lacks("rows", percent=percent):
            continue
        found: dict[str, Hits] = {}
        for job in jobs(options, percent):
            if time.time() > end or not scoreboard.work(job, options, corpus, end):
                return print("The time is over. The same line goes on from there.")
            found |= kept(settled(job, options.out, corpus), options.out, corpus)[1]
        result.add(rows=[{"percent": percent, **line} for line in lines(found, windows, tests)])
    return result.close()


def parser() -> argparse.ArgumentParser:
    found = command.trained_parser("experiments tuned_window", __doc__, None)
    command.add_minutes(found)
    command.add_cache(found)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    options = command.parse(made, arguments)

    def begin() -> None:
        training.check_minutes(options.minutes)
        measure(options, text.open_corpus("stdlib", options.cache, held_out=recipe.HELD_OUT))

    return command.run(made.prog, begin)


if __name__ == "__main__":
    sys.exit(main())
