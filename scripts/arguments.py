"""What the command lines of the scripts share: a line is understood, all of it, before anything starts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def parser(text: str | None) -> argparse.ArgumentParser:
    """``--help`` prints the text of the script. No option is guessed from its beginning."""
    return argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )


def with_seeds(text: str | None, default: Sequence[int]) -> argparse.ArgumentParser:
    found = parser(text)
    found.add_argument("--seeds", type=number, nargs="+", action=Different, default=tuple(default))
    return found


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

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        for value in values:
            if values.count(value) > 1:
                raise argparse.ArgumentError(self, f"{value} is there twice")
        setattr(namespace, self.dest, tuple(values))
