"""``import rope_lessons`` costs at most 50 ms more than ``import torch``."""

from __future__ import annotations

import os
import subprocess
import sys

LIMIT = 0.050
PROGRAM = """
import time
import torch
before = time.perf_counter()
import rope_lessons
print(time.perf_counter() - before)
"""


def run(program: str) -> str:
    # pip compiles what it installs. A machine that keeps no bytecode would compile the package in every process.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_import_time() -> None:
    """The least of several fresh processes: what a loaded machine adds is not the package's."""
    seconds = []
    for _ in range(15):
        seconds.append(float(run(PROGRAM)))
        if min(seconds) <= LIMIT and len(seconds) >= 2:
            break
    assert min(seconds) <= LIMIT, seconds


def test_nothing_heavy_is_imported() -> None:
    """What only figures, exercises, the lab or the book need waits for its first use."""
    heavy = {"matplotlib", "sympy", "mpmath", "transformers", "safetensors", "tqdm", "torch._dynamo"}
    program = "import sys, torch; had = set(sys.modules); import rope_lessons; print(*(set(sys.modules) - had))"
    new = run(program).split()
    assert "rope_lessons" in new
    assert not [name for name in new if name in heavy or name.split(".")[0] in heavy]
    assert not [name for name in new if name.startswith(("rope_lessons.figures", "rope_lessons.lab"))]
