"""What the installed package does with the packages that are there: tests/test_wheel.py runs this file in a new
environment, with the modules to import and the commands as JSON, and reads what it prints."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import json
import runpy
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any


def error_of(call: Callable[[], object]) -> str | None:
    """Kind and words of the error that a call ends with."""
    try:
        call()
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return None


def command(module: str, *arguments: str) -> list[Any]:
    """As ``python -m MODULE ARGUMENTS``: the exit status, and all that it says."""
    said = io.StringIO()
    sys.argv = [module, *arguments]
    sys.modules.pop(f"{module}.__main__", None)  # imported as a module a moment ago
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            status: object = 0
        except SystemExit as end:
            status = end.code
    return [status, said.getvalue()]


def calls(folder: Path) -> dict[str, Callable[[], object]]:
    """One call for each place that needs an extra. With the extra it does what it is for, or wants another argument."""
    import rope_lessons as rl
    from rope_lessons.lab import checkpoint
    from rope_lessons.lab.table import shipped
    from rope_lessons.models import byte_lm, masked_lm, pretrained

    absent = folder / "absent.safetensors"
    model = byte_lm.build(byte_lm.Config(), seed=0)
    return {
        "figures": lambda: rl.figures.CYCLE,
        "byte_lm.load": byte_lm.load,
        "byte_lm.save": lambda: byte_lm.save(model, folder / "model.safetensors"),
        "masked_lm.load": lambda: masked_lm.load(absent, masked_lm.Config()),
        "checkpoint.save": lambda: checkpoint.save(folder, 1, {}, {}),
        "checkpoint.load": lambda: checkpoint.load(absent),
        "shipped.load": lambda: shipped.load("rope"),
        "hf.extend": lambda: rl.hf.extend(model, "nope"),
        "download": lambda: pretrained.download("a/b", "no device", revision="0" * 40),
    }


def main() -> None:
    asked = json.loads(sys.argv[1])
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        failures = sum(doctest.testfile(path, module_relative=False).failed for path in asked["doctests"])
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "modules": {name: error_of(partial(importlib.import_module, name)) for name in asked["modules"]},
            "commands": {" ".join(words): command(*words) for words in asked["commands"]},
            "calls": {name: error_of(call) for name, call in calls(Path(folder)).items()},
            "doctests": [failures, said.getvalue()],
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
