"""What ``python -m tests.alone`` sees: a notebook that needs the checkout, prints something else or leaves a file."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tests import alone

NOTEBOOKS = {  # code, and the output that is committed
    "good": ("import rope_lessons, sys\nprint(rope_lessons.__file__.startswith(sys.prefix))", "True\n"),
    "needs_checkout": ("import importlib.util\nprint(importlib.util.find_spec('tools.project'))", "found\n"),
    "prints_another": ("print(1 + 1)", "3\n"),
    "leaves_a_file": ("open('left.txt', 'w').close()", ""),
}


def test_what_is_seen(wheel: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, (code, printed) in NOTEBOOKS.items():
        outputs = [new_output("stream", name="stdout", text=printed)] if printed else []
        notebook = new_notebook(cells=[new_code_cell(code, execution_count=1, outputs=outputs)])
        nbformat.write(notebook, tmp_path / f"{name}.ipynb")
    (tmp_path / "work").mkdir()
    assert alone.run(tmp_path.glob("*.ipynb"), wheel, tmp_path / "work", "-q") == 1
    said = capfd.readouterr().out
    assert set(re.findall(r"^FAILED .*/(\w+)\.ipynb", said, re.MULTILINE)) == {"needs_checkout", "prints_another"}
    assert said.splitlines()[-1] == "left behind by a notebook: leaves_a_file/left.txt"
