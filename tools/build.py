"""Build the HTML, as the raw command in the README does, and say where it is: ``python -m tools.build``.

Chapters that have to be executed are executed side by side first; the raw command does it one after the other.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from tools import execution
from tools.project import ROOT, notebook_pages

COMMAND = ["jupyter-book", "build", ".", "-n", "-W", "--keep-going"]


def build(root: Path = ROOT, quiet: bool = False) -> None:
    try:
        execution.execute_all(notebook_pages(root), root)
    except RuntimeError as error:
        sys.exit(f"The build failed: {error}")
    program = [str(Path(sys.executable).with_name(COMMAND[0])), *COMMAND[1:], *(["-q"] if quiet else [])]
    result = subprocess.run(program, cwd=root)
    if result.returncode != 0:
        # Sphinx warns about a page only when it reads it: without this the next build would find nothing wrong.
        shutil.rmtree(root / "_build" / ".doctrees", ignore_errors=True)
        sys.exit(f"The build failed with code {result.returncode}; the warnings above say where.")
    print(f"\nThe book: {root / '_build' / 'html' / 'index.html'}")


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m tools.build", description=__doc__).parse_args()
    build()
