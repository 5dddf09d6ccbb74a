"""Every notebook as a reader runs it: ``python -m tests.alone``.

Each lies alone in a folder, and its kernel has the built wheel and third-party packages, but not this checkout. nbval
compares what the cells show with what is committed, and tools/nbval_cache.py keeps it, so that the book that is built
next executes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests import fresh
from tools import notebooks
from tools.project import ROOT
from tools.release import build_package

KERNEL = "wheel-only"


def environment(wheel: Path, folder: Path) -> Path:
    """The Python of a new environment: the wheel, and third-party packages, but not this checkout."""
    python = fresh.new_environment(folder)
    fresh.install(python, wheel)
    # A path file, read last: the packages of this environment without its own path files (the editable install).
    (fresh.site_packages(python) / "third_party.pth").write_text(f"{fresh.THIRD_PARTY}\n", "utf8")
    return python


def add_kernel(python: Path, jupyter: Path) -> None:
    """Make a Python a kernel of a folder in ``JUPYTER_PATH``."""
    command = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": command, "display_name": KERNEL, "language": "python", "env": {"PYTHONPATH": ""}}
    file = jupyter / "kernels" / KERNEL / "kernel.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(spec), "utf8")


def run(paths: Iterable[Path], wheel: Path, folder: Path, *arguments: str) -> int:
    """Execute and compare; the exit status.

    Args:
        paths: notebooks.
        wheel: of the package.
        folder: an empty one to work in.
        arguments: more of pytest's.
    """
    add_kernel(environment(wheel, folder / "environment"), folder / "jupyter")
    copies = folder / "notebooks"
    for path in paths:
        (copies / path.stem).mkdir(parents=True)
        shutil.copy(path, copies / path.stem)
    nbval = ["--nbval", f"--nbval-kernel-name={KERNEL}", "--dist=loadfile", f"--config-file={ROOT / 'pyproject.toml'}"]
    command = [sys.executable, "-m", "pytest", *nbval, f"--rootdir={ROOT}", *arguments, str(copies)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "JUPYTER_PATH": str(folder / "jupyter")})
    left = left_behind(copies)
    for name in left:
        print(f"left behind by a notebook: {name}")
    return done.returncode or bool(left)


def left_behind(copies: Path) -> list[str]:
    """What notebooks have put beside themselves."""
    own = {copies / folder.name / f"{folder.name}.ipynb" for folder in copies.iterdir()}
    return sorted(path.relative_to(copies).as_posix() for path in set(copies.glob("*/*")) - own)


def main() -> int:
    argparse.ArgumentParser(prog="python -m tests.alone", description=__doc__.splitlines()[0]).parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "release").mkdir()
        _, wheel = build_package(ROOT, folder / "release")
        return run(notebooks.folder().glob("*.ipynb"), wheel, folder, "-n", "2", "-p", "tools.nbval_cache")


if __name__ == "__main__":
    sys.exit(main())
