"""Run the code cells of a notebook, top to bottom, without Jupyter: ``python cells.py NOTEBOOK REPORT DEVICE [MOST]``.

A program of its own, which imports nothing of this repository: the package is what a reader installs. REPORT is JSON:
seconds and error of each cell, the device that the notebook found, and the peak of the card's memory.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

SKIPPED = "skip-execution"  # the tag of cells that need the network
FORMATS = ("_repr_mimebundle_", "_repr_html_", "_repr_png_", "_repr_svg_", "_repr_markdown_")


def without_magic(source: str) -> str:
    """IPython's commands, such as those of the install cell, become nothing: they install what is here."""
    lines = []
    for line in source.splitlines():
        code = line.lstrip()
        lines.append(line[: len(line) - len(code)] + "pass" if code.startswith(("%", "!")) else line)
    return "\n".join(lines)


def display(*values: Any) -> None:
    """What a notebook does with a value: every picture of it is drawn."""
    for value in values:
        for name in FORMATS:
            if value is not None and not isinstance(value, type) and hasattr(value, name):
                getattr(value, name)()
        repr(value)


def run_cell(source: str, names: dict[str, Any], name: str) -> None:
    """All statements of a cell; the value of the last one is displayed, if it is an expression."""
    tree = ast.parse(without_magic(source), filename=name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    if last is not None:
        assert isinstance(last, ast.Expr)
        display(eval(compile(ast.Expression(last.value), name, "eval"), names))


def run(notebook: dict[str, Any], most: int | None = None, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Seconds and error of each cell. After an error the next cell is run: what it shows stands by itself or fails."""
    names = {"__name__": "__main__", "display": display, **(names or {})}
    rows: list[dict[str, Any]] = []
    cells = [(number, cell) for number, cell in enumerate(notebook["cells"]) if cell["cell_type"] == "code"]
    for number, cell in cells[:most]:
        row: dict[str, Any] = {"cell": number, "error": None, "skipped": SKIPPED in cell["metadata"].get("tags", [])}
        begin = time.perf_counter()
        if not row["skipped"]:
            try:
                with contextlib.redirect_stdout(io.StringIO()) as said:
                    run_cell("".join(cell["source"]), names, f"cell {number}")
                row["printed"] = len(said.getvalue())
            except Exception as error:
                row["error"] = f"{type(error).__name__}: {error}"[:600]
                row["line"] = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)][-1]
                row["needs"] = error.name if isinstance(error, ImportError) else None
        row["seconds"] = round(time.perf_counter() - begin, 3)
        rows.append(row)
    device = names.get("device")
    return {"cells": rows, "device": None if device is None else str(device)}


def main(arguments: list[str]) -> None:
    path, report, device = arguments[:3]
    import torch

    with contextlib.suppress(ImportError):
        import matplotlib

        matplotlib.use("agg")
    found = run(json.loads(Path(path).read_text("utf8")), int(arguments[3]) if len(arguments) > 3 else None)
    found["peak_bytes"] = torch.cuda.max_memory_allocated() if device == "cuda" else None
    package = importlib.util.find_spec("rope_lessons")
    found["package"] = None if package is None else str(package.origin)
    Path(report).write_text(json.dumps(found), "utf8")


if __name__ == "__main__":
    main(sys.argv[1:])
