"""Export the README's picture from the book: ``python -m tools.picture``."""

from __future__ import annotations

import argparse

import rope_lessons as rl
import rope_lessons.figures
from tools.project import ROOT

PATH = ROOT / "book" / "_static" / "readme.png"


def picture() -> rl.figures.Figure:
    return rl.figures.encoding_circles()


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m tools.picture", description=__doc__).parse_args()
    picture().save(str(PATH))
    print(f"wrote {PATH.relative_to(ROOT)}: {picture().alt}")
