"""One executing pass for notebooks, HTML and nbval: a cache of executed chapters.

The cache is jupyter-cache's, as myst-nb uses it, in a folder named after everything a cell's output depends on
besides its own source: the package with its stored results and models, the pinned requirements. When one of them
changes, the folder's name changes, and every chapter runs again.
"""

from __future__ import annotations

import copy
import hashlib
import os
import shutil
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from filelock import FileLock
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.executors.utils import single_nb_execution
from myst_nb.core.read import read_myst_markdown_notebook
from nbformat import NotebookNode, from_dict
from traitlets.config import Config

from tools.kernels import ForkedManager
from tools.project import ROOT

CELL_TIMEOUT = 300  # seconds
# What a kernel would report; nbval does not ask it. The highlighting of the cells depends on it.
LANGUAGE = {"name": "python", "file_extension": ".py", "mimetype": "text/x-python", "pygments_lexer": "ipython3"}


def dependencies(root: Path = ROOT) -> list[Path]:
    """The files that decide what a chapter prints, besides its own source."""
    found = [path for path in (root / "rope_lessons").rglob("*") if path.is_file()]
    kept = [path for path in found if "__pycache__" not in path.parts and not path.name.startswith(".")]
    return sorted(kept) + [path for path in [root / "requirements.txt"] if path.exists()]


def cache_path(root: Path = ROOT) -> Path:
    digest = hashlib.sha256(f"{sys.version} torch {version('torch')}".encode())  # what runs may differ from the pins
    for path in dependencies(root):
        digest.update(f"{path.relative_to(root).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return root / "_build" / ".jupyter_cache" / digest.hexdigest()[:16]


def prepare(root: Path = ROOT) -> Path:
    """The cache's folder; the folders of earlier versions of the package are deleted."""
    path = cache_path(root)
    path.mkdir(parents=True, exist_ok=True)
    for sibling in path.parent.iterdir():
        if sibling != path:
            shutil.rmtree(sibling, ignore_errors=True)
    return path


def read_source(path: Path) -> NotebookNode:
    """A chapter as myst-nb reads it: the cache's key is made of its code cells and their tags."""
    return read_myst_markdown_notebook(path.read_text("utf8"), add_source_map=True, path=path)


def lookup(path: Path, root: Path = ROOT) -> NotebookNode | None:
    """The executed chapter from the cache, or None."""
    cache = get_cache(prepare(root))
    try:
        return cache.merge_match_into_notebook(read_source(path))[1]
    except KeyError:
        return None


def seconds(path: Path, root: Path = ROOT) -> float | None:
    """How long the chapter took when it was executed, or None."""
    cache = get_cache(prepare(root))
    try:
        return cache.match_cache_notebook(read_source(path)).data.get("execution_seconds")
    except KeyError:
        return None


def store(path: Path, outputs: list[list[Any]], duration: float, root: Path = ROOT) -> None:
    """Put a chapter's fresh outputs (one list for each code cell) into the cache."""
    notebook = read_source(path)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for count, (cell, cell_outputs) in enumerate(zip(cells, outputs, strict=True), start=1):
        cell.outputs = [_numbered(from_dict(copy.deepcopy(output)), count) for output in cell_outputs]
        cell.execution_count = count
    python = ".".join(str(part) for part in sys.version_info[:3])
    notebook.metadata["language_info"] = LANGUAGE | {"version": python}
    bundle = CacheBundleIn(notebook, str(path), data={"execution_seconds": duration})
    folder = prepare(root)
    with FileLock(root / "_build" / "execution.lock"):  # storing deletes, too, and others store at the same time
        get_cache(folder).cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def _numbered(output: NotebookNode, count: int) -> NotebookNode:
    if output.output_type == "execute_result":
        output.execution_count = count
    return output


def execute_all(paths: Iterable[Path], root: Path = ROOT) -> None:
    """Run every chapter that is not in the cache, as many side by side as there are processors."""
    missing = [path for path in paths if lookup(path, root) is None]
    longest_first = sorted(missing, key=lambda path: path.stat().st_size, reverse=True)
    workers = min(os.cpu_count() or 1, len(missing))
    if workers > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # or each would take all processors for itself
        with ThreadPoolExecutor(workers) as pool:  # the kernels are processes
            list(pool.map(partial(_run, root=root), longest_first))


def execute(path: Path, root: Path = ROOT) -> NotebookNode:
    """The executed chapter: from the cache, or by running it (and then it is in the cache)."""
    if lookup(path, root) is None:
        _run(path, root)
    executed = lookup(path, root)
    assert executed is not None
    return executed


def _run(path: Path, root: Path) -> None:
    notebook = read_source(path)
    # Kernels that start side by side may choose the same port, and then one of them never answers: they take files.
    with TemporaryDirectory() as sockets:
        by_files = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}})
        result = single_nb_execution(
            notebook,
            str(path.parent),
            CELL_TIMEOUT,
            allow_errors=False,
            config=by_files,
            kernel_manager_class=ForkedManager,
        )
    if result.err is not None:
        raise RuntimeError(f"{path}: a cell failed\n{result.exc_string}")
    code_cells = [cell for cell in result.nb.cells if cell.cell_type == "code"]
    store(path, [cell.outputs for cell in code_cells], result.time, root)
