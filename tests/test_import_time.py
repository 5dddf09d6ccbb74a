"""``import rope_lessons`` costs at most 50 ms more than ``import torch``."""

from __future__ import annotations

import os
import re
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


def test_the_import_reads_no_data() -> None:
    """About a third of a megabyte of Python, and no file of the book's data."""
    program = """
import sys, torch
opened = []
sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
import rope_lessons
own = [path for path in opened if "rope_lessons" in path and not path.endswith((".py", ".pyc"))]
print(len(opened), own, sum(len(module.__loader__.get_data(module.__file__)) for name, module in sys.modules.items()
                            if name.partition(".")[0] == "rope_lessons"))
"""
    count, own, size = re.fullmatch(r"(\d+) (.*) (\d+)\n", run(program)).groups()
    assert int(count) > 20, "the hook sees the files"
    assert own == "[]"
    assert int(size) < 350_000


def test_what_waits_for_its_first_use_is_there() -> None:
    """By name, in dir(), and through pickle; the readers of configs are not read before."""
    program = """
import pickle, sys
import rope_lessons as rl
print("rope_lessons.hf.configs" in sys.modules, set(rl.__all__) - set(dir(rl)), set(rl.hf.__all__) - set(dir(rl.hf)))
from rope_lessons import plan_from_hf
print(pickle.loads(pickle.dumps(rl.plan_from_hf)) is plan_from_hf is rl.hf.plan_from_hf)
"""
    assert run(program) == "False set() set()\nTrue\n"
