"""What the command lines of the experiments share: a line is understood, all of it, before anything starts."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from rope_lessons.lab import command as lab
from rope_lessons.lab.text import CACHE
from rope_lessons.stored import DATA, check_writable


def parser(name: str, text: str | None) -> argparse.ArgumentParser:
    """``--help`` prints the text of the module. No option is guessed from its beginning."""
    return argparse.ArgumentParser(
        prog=f"python -m {name}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def trained_parser(name: str, text: str | None, seeds: Sequence[int] | None) -> argparse.ArgumentParser:
    """That of an experiment with trained models."""
    found = parser(name, text)
    if seeds is not None:
        add_seeds(found, seeds)
    add_places(found)
    add_fresh(found)
    add_try(found, "steps", "windows")
    return found


def add_seeds(parser: argparse.ArgumentParser, default: Sequence[int]) -> None:
    told = f"of the trainings; {' '.join(map(str, default))} if not given"
    parser.add_argument("--seeds", type=number, nargs="+", action=Different, default=tuple(default), help=told)


def add_places(parser: argparse.ArgumentParser, models: bool = True) -> None:
    """Where to write."""
    there = parser.add_mutually_exclusive_group()
    there.add_argument(
        "--out", type=Path, default=Path("results"), metavar="FOLDER", help="for what is measured; results if not given"
    )
    there.add_argument("--store", action="store_true", help="write the book's own data, rope_lessons/data, instead")
    if models:
        parser.add_argument(
            "--models", type=Path, default=Path(".models"), metavar="FOLDER",
            help="of trained models, which are trained if they are not there; .models if not given",
        )  # fmt: skip


def add_fresh(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fresh", action="store_true", help="measure again what is in the file of the results")


def add_minutes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=math.inf, help="then stop; the same line goes on from there")


def add_cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the prepared text is kept")


def add_try(parser: argparse.ArgumentParser, *names: str) -> None:
    """Less work, to see whether everything runs. The book's own data are not made so."""
    told = {"steps": "of each training, instead of all: for a try", "windows": "of the test text: for a try"}
    for name in names:
        parser.add_argument(f"--{name}", type=count, metavar="N", help=told[name])
    parser.set_defaults(tries=names)


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options, with the folder of the book's data in the place of ``out`` for ``--store``."""
    options = parser.parse_args(arguments)
    given = vars(options)
    if options.store:
        for name in given.get("tries", ()):
            if given[name] is not None:
                parser.error(f"argument --store: not allowed with --{name}, which is for a try")
        options.out = DATA
    elif options.out.resolve().is_relative_to(DATA.parent):
        parser.error(f"argument --out: {options.out} is in the package; --store writes the book's own data")
    for name in ("out", "models"):
        if name in given:
            try:
                check_writable("it", given[name], folder=True)
            except ValueError as error:
                parser.error(f"argument --{'store' if options.store and name == 'out' else name}: {error}")
    return options


def check_alone(parser: argparse.ArgumentParser, options: argparse.Namespace, name: str, others: Sequence[str]) -> None:
    """Refuse what an option has no use for.

    Args:
        name: of the option.
        others: what else may be given.
    """
    for other, value in vars(options).items():
        unset = value == parser.get_default(other) or (other == "out" and options.store)
        if getattr(options, name) and other not in (name, *others) and not unset:
            parser.error(f"argument --{name}: not allowed with --{other}")


def run(name: str, work: Callable[[], object]) -> int:
    """Do it on one thread; what can go wrong is told in a line. The status that the program ends with."""

    def done() -> None:
        torch.set_num_threads(1)
        lab.check_extra()
        work()

    return lab.run(name, done)


def count(text: str) -> int:
    return number(text, least=1)


def number(text: str, least: int = 0) -> int:
    """A whole number that PyTorch takes for a seed."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not least <= value < 2**63:
        raise argparse.ArgumentTypeError(f"must be an int from {least} to 2**63 - 1, got {text!r}")
    return value


class Different(argparse.Action):
    """A tuple of values, each of them once: a model that is tested twice would count twice."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        for value in values:
            if values.count(value) > 1:
                raise argparse.ArgumentError(self, f"{value} is there twice")
        setattr(namespace, self.dest, tuple(values))
