"""What the book measures, by name.

    python -m experiments                   # this list
    python -m experiments NAME --help       # what it writes, how long it takes, what can be chosen
    python -m experiments NAME              # into the folder results
    python -m experiments.gpu --help        # on a machine with a GPU: all that one is needed for, in pieces

Whoever is interrupted gives the same line again: what is measured is not measured again.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

NAMES = (
    "radix", "mixed_radix", "circles", "entropy", "local", "rerope", "invleaky", "random_positions", "chomsky",
    "lab_parts", "table", "scoreboard", "tuned_window", "longrope", "axes", "put_in", "benchmarks",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """List the experiments, or do one."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("options", nargs=argparse.REMAINDER, metavar="…", help="those of the experiment")
    options = parser.parse_args(arguments)
    if options.name is None:
        print(__doc__, *map(line, NAMES), sep="\n")
        return 0
    if options.name not in NAMES:
        parser.error(f"argument NAME: {options.name!r} is none of {', '.join(NAMES)}")
    status: int = importlib.import_module(module(options.name)).main(options.options)
    return status


def module(name: str) -> str:
    """Where an experiment is."""
    return "experiments.benchmarks.__main__" if name == "benchmarks" else f"experiments.{name}"


def line(name: str) -> str:
    """An experiment in two lines: the first of its text, and the one that says how long it takes."""
    text = (importlib.import_module(module(name)).__doc__ or "").splitlines()
    takes = next(told for told in text if told.startswith("Takes "))
    return f"{name:17} {text[0]}\n{'':17} {takes}"


if __name__ == "__main__":
    sys.exit(main())
