"""``python -m tests.fuzz``: random calls against an oracle for as long as wanted. Writes nothing but its report."""

from __future__ import annotations

import argparse
import math
import secrets
import sys
import time
from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import NoReturn

from tests.fuzz.search import TARGETS, Failure, TimeIsOver, Watch, search
from tests.fuzz.tally import Tally

EVERY = 60.0  # seconds between two reports of progress


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a positive finite number, got {text!r}")
    return value


def seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, got {text!r}")
    return int(text)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = Parser(prog="python -m tests.fuzz", description=__doc__, allow_abbrev=False)
    parser.add_argument("--minutes", type=minutes, default=5.0, help="how long; 5 by default")
    parser.add_argument("--seed", type=seed, help="repeats a run that printed it, as far as the time goes")
    parser.add_argument(
        "--targets", nargs="+", choices=tuple(TARGETS), default=tuple(TARGETS), metavar="TARGET",
        help=f"what to try, all by default: {', '.join(TARGETS)}",
    )  # fmt: skip
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        options = parse(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    number = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {number}; {options.minutes:g} minutes of {', '.join(options.targets)}", flush=True)
    failures, tally, known = run(options.targets, number, options.minutes * 60)
    print(f"\n{tally.table()}\n\n{len(failures)} causes of failure in {tally.of('goes')} goes, seed {number}")
    for failure in failures:
        print(f"  {1 + known[failure.where]} x {failure.where}")
    return 1 if failures else 0


def run(targets: Sequence[str], number: int, seconds: float) -> tuple[list[Failure], Tally, Counter[str]]:
    """Go round the targets until the time is over. Failures, counts, and how often each cause came again."""
    started = time.monotonic()
    watch = Watch(Tally(), ends=started + seconds)
    failures: list[Failure] = []
    said = started
    for go in count():
        for name in targets:
            try:
                failure = search(name, number + go, watch)
            except (TimeIsOver, KeyboardInterrupt):
                return failures, watch.tally, watch.known
            watch.tally.add(name, "", "goes")
            if failure is not None:
                failures.append(failure)
                watch.known[failure.where] = 0
                print(f"\n--- failure {len(failures)}, target {name}, go {go} ---\n{failure}", flush=True)
            if time.monotonic() - said > EVERY:
                said = time.monotonic()
                print(f"\n{(said - started) / 60:.1f} minutes, {len(failures)} causes of failure", flush=True)
                print(watch.tally.table(), flush=True)
    raise AssertionError("the count has no end")


if __name__ == "__main__":
    sys.exit(main())
