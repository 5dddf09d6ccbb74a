"""What the cells of a page make, run here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tools.myst import Directive, walk


def run_cells(page: Path, until: str) -> dict[str, Any]:
    """The names that the cells of a page have made when one of them is there, as on a machine without a GPU.

    Args:
        page: its source.
        until: a name; the cell that makes it is the last one that runs.

    Raises:
        AssertionError: no cell makes it.
    """
    made: dict[str, Any] = {}
    torch.set_default_dtype(torch.float32)
    for block in walk(page.read_text("utf8"), 1, page):
        if isinstance(block, Directive) and block.name == "code-cell":
            exec(block.body.replace("torch.cuda.is_available()", "False"), made)
            if until in made:
                return made
    raise AssertionError(f"no cell of {page.name} makes {until}")
