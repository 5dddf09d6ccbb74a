"""``python -m rope_lessons.lab``: train models and test them. ``--help`` lists what there is."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from rope_lessons._extras import extra
from rope_lessons.lab import command, text, training
from rope_lessons.lab.rows import trainings
from rope_lessons.lab.table import finished, jobs, scoring, summary
from rope_lessons.lab.training import CONFIGS, DTYPES, OPTIMIZERS, PARALLEL, Recipe
from rope_lessons.stored import check_writable


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    whole: dict[str, Any] = {"allow_abbrev": False}  # no option is guessed from its beginning
    parser = argparse.ArgumentParser(prog="python -m rope_lessons.lab", description=__doc__, **whole)
    commands = parser.add_subparsers(dest="command", required=True)
    _train_arguments(commands.add_parser("train", help="train a model, or go on with a training", **whole))
    tested = "test trained models with every row they serve; write a table"
    _table_arguments(commands.add_parser("table", help=tested, **whole))
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)

    def work() -> None:
        command.check_extra()
        options.run(options)

    return command.run(f"python -m rope_lessons.lab {options.command}", work)


# --- train ---------------------------------------------------------------------------------------------------------

_RECIPE: dict[str, dict[str, Any]] = {
    "seed": {"type": int, "help": "of weights, batches and positions"},
    "train_length": {"type": int, "metavar": "N", "help": "tokens of a training window"},
    "factor": {"type": float, "help": "how much longer the methods are set for"},
    "batch": {"type": int, "help": "windows of a step, all processes together"},
    "steps": {"type": int, "help": "of the whole training"},
    "optimizer": {"choices": tuple(OPTIMIZERS), "help": "what moves the weights"},
    "learning_rate": {"type": float, "help": "the largest"},
    "warmup": {"type": int, "help": "steps until the largest learning rate"},
    "weight_decay": {"type": float, "help": "as the optimizer has it"},
    "copies": {"type": float, "help": "share of the windows with a pasted copy of an earlier piece"},
    "dtype": {"choices": tuple(DTYPES), "help": "of the products"},
}


def _train_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_train)
    parser.add_argument("--config", choices=tuple(CONFIGS), default="gau-0.3m", help="model and training by name")
    parser.add_argument("--scheme", default="rope", metavar="ROW", help="a row of the table; 'list' lists all")
    changes = parser.add_argument_group("changes of the config")
    for name, options in _RECIPE.items():
        changes.add_argument(f"--{name.replace('_', '-')}", **options)
    _text_arguments(parser)
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), help="folder of the trainings; each has its own in it"
    )
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    parser.add_argument("--parallel", choices=PARALLEL, default="ddp", help="how torchrun's processes share the work")
    parser.add_argument("--save-every", type=int, default=250, metavar="STEPS", help="between checkpoints")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after them, with a checkpoint")
    parser.add_argument("--device", help="cpu, cuda, …; a card if there is one")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def _text_arguments(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(("stdlib", *text.DOWNLOADS))
    parser.add_argument("--corpus", default="stdlib", help=f"{names}, or a folder of text")
    parser.add_argument("--cache", type=Path, default=text.CACHE, help="folder for prepared and downloaded corpora")


def _changed(options: argparse.Namespace) -> Recipe:
    """The config with its changes, for the first row."""
    known = {field.name for field in fields(Recipe)} & _RECIPE.keys()
    changes = {name: getattr(options, name) for name in known if getattr(options, name) is not None}
    return replace(CONFIGS[options.config], scheme="rope", **changes)


def recipe_of(options: argparse.Namespace) -> Recipe:
    """The config with its changes. A row that acts at test only is trained as the row whose model it takes."""
    recipe = _changed(options)
    shared = trainings(recipe.rows.values())
    scheme = {row.name: first for first, members in shared.items() for row in members}.get(options.scheme)
    return replace(recipe, scheme=scheme or options.scheme)


def _train(options: argparse.Namespace) -> None:
    if options.scheme == "list":
        for first, members in trainings(_changed(options).rows.values()).items():
            print(f"{first}: {', '.join(row.name for row in members)}")
        return
    recipe = recipe_of(options)
    folder = training.folder_of(recipe, options.config, options.out)
    text.check_source(options.corpus)
    with training.team(options.device) as own:
        training.check(recipe, own, options.parallel, options.save_every, options.minutes)
        if own.rank == 0:  # the only one that writes
            check_writable("out", folder, folder=True)
        corpus = training.one_at_a_time(lambda: text.open_corpus(options.corpus, options.cache), own)
        done = training.train(
            recipe,
            corpus,
            folder,
            own,
            compiler="inductor" if options.compile else None,
            parallel=options.parallel,
            save_every=options.save_every,
            minutes=options.minutes,
            quiet=options.quiet,
        )
        if own.rank == 0:
            more = "" if done == recipe.steps else " The same command goes on from there."
            print(f"{folder}: {done} of {recipe.steps} steps are done.{more}")


# --- table ---------------------------------------------------------------------------------------------------------


def _table_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_table)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of finished trainings; folders in them count too")
    parser.add_argument("--results", type=Path, default=Path("table.json"), help="where the table goes")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="test only these")
    parser.add_argument("--factors", type=int, nargs="+", help="lengths as multiples of the training length")
    parser.add_argument("--windows", type=int, help="pieces of held-out text, of the longest length each")
    _text_arguments(parser)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after them; the same command goes on")
    parser.add_argument("--device", help="cpu, cuda, …; a card if there is one")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def _table(options: argparse.Namespace) -> None:
    with extra("lab", "the table"):
        from tqdm import tqdm

    changes = {"factors": options.factors and tuple(options.factors), "windows": options.windows}
    tests = scoring.Evaluation(**{name: value for name, value in changes.items() if value is not None})
    training.check_minutes(options.minutes)
    text.check_source(options.corpus)
    check_writable("results", options.results)
    device = training.device_of(options.device)
    models = finished.find(options.runs)
    jobs.check_rows(models, options.rows)
    corpus = text.open_corpus(options.corpus, options.cache)
    progress = partial(tqdm, unit="row", disable=options.quiet)
    say = partial(print, file=sys.stderr)
    if not jobs.count_all(
        models, corpus, tests, options.rows, device, minutes=options.minutes, progress=progress, say=say
    ):
        print("The time is over. The same command goes on from there and then writes the table.", file=sys.stderr)
        return
    lines = summary.write_table(summary.records(models, corpus, tests, options.rows), options.results)
    print(f"{options.results}: {lines} lines, {len(models)} models")


if __name__ == "__main__":
    sys.exit(main())
