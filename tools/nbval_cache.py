"""A pytest plugin: what nbval executes is kept for the book (``pytest --nbval -p tools.nbval_cache``, tests/alone.py).

nbval runs the committed notebooks and compares outputs. When every cell of a notebook has passed, its fresh outputs go
into the execution cache under the key of the chapter's *source*, so the build that follows executes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tools import execution, project


@dataclass
class Pass:
    """One notebook: the outputs of the cells so far, in order."""

    cells: int
    outputs: list[list[Any]] = field(default_factory=list)
    seconds: float = 0.0


_passes: dict[Path, Pass] = {}


def pytest_configure(config: pytest.Config) -> None:
    execution.prepare()  # once, before any worker


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    start = time.perf_counter()
    try:
        result = yield  # raises when the cell fails: then nothing below runs, and the notebook stays incomplete
    except pytest.skip.Exception:
        if hasattr(item, "cell"):  # tagged as not to be executed: it has no outputs
            _keep(item, [], 0.0)
        raise
    if hasattr(item, "test_outputs"):
        _keep(item, list(item.test_outputs), time.perf_counter() - start)
    return result


def _keep(item: Any, outputs: list[Any], seconds: float) -> None:
    notebook = item.parent.nb
    total = sum(cell.cell_type == "code" for cell in notebook.cells)
    kept = _passes.setdefault(item.path, Pass(total))
    kept.outputs.append(outputs)
    kept.seconds += seconds
    if len(kept.outputs) == kept.cells:
        source = {project.notebook_name(path): path for path in project.notebook_pages()}[item.path.stem]
        installed = kept.outputs[1:]  # the first cell is the generated install cell
        execution.store(source, installed, kept.seconds)
