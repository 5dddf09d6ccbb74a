"""Write ``book/notebooks/*.ipynb`` from the pages with code: ``python -m tools.notebooks [--check] [name …]``.

The cells are executed once and come from the shared cache (tools/execution.py). The files are byte-stable: the same
sources and outputs give the same bytes. ``--check`` writes nothing and fails on drift.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import rope_lessons as rl
from tools import execution, project
from tools.markdown import Converter, Labels, citations

BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
INSTALL = """\
import importlib.util
if importlib.util.find_spec("rope_lessons") is None:  # on Colab: install; elsewhere: nothing to do
    %pip install -q "rope-lessons[book] @ git+{address}"
    if importlib.util.find_spec("rope_lessons") is None:
        raise ImportError('Not installed, see above. From a file: %pip install "{wheel}[book]"')
"""
NOT_COMPARED = "nbval-ignore-output"
NOT_EXECUTED = "skip-execution"  # nbclient's tag, for what needs the network; nbval has its own


def folder(root: Path = project.ROOT) -> Path:
    return root / "book" / "notebooks"


def generate(path: Path, root: Path = project.ROOT, labels: Labels | None = None) -> NotebookNode:
    """The notebook of a page, with outputs."""
    source = path.read_text("utf8")
    converter = Converter(path, labels or Labels.of_book(root), root, citations(source))
    executed = execution.execute(path, root)
    lines = execution.read_source(path).metadata["source_map"]
    cells: list[NotebookNode] = []
    for cell, line in zip(executed.cells, lines, strict=True):
        cells += (
            [_markdown(converter.convert(cell.source, line + 1))]
            if cell.cell_type == "markdown"
            else _code(cell, converter, line + 1)
        )
    cells[:1] = _head(path, cells[0].source, root)
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number:03d}"
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    notebook = new_notebook(cells=cells, metadata=metadata)
    _number(notebook)
    nbformat.validate(notebook)
    return notebook


def _head(path: Path, first: str, root: Path) -> list[NotebookNode]:
    """The title with its badge, the install cell, the rest of the first text."""
    title, _, rest = first.partition("\n")
    badge = f"[![Open in Colab]({BADGE})]({project.colab_address(project.notebook_name(path, root), root)})"
    page = f"{project.pages_address(root)}/book/{project.page_name(path, root)}.html"
    top = f"{title}\n\n{badge} [Read this page of the book]({page})"
    return [
        _markdown(top),
        new_code_cell(install_cell(root)),
        *([_markdown(rest.strip("\n"))] if rest.strip() else []),
    ]


def install_cell(root: Path = project.ROOT) -> str:
    """Nothing where the package is there. A failed pip raises nothing, so the cell looks whether it came."""
    wheel = f"rope_lessons-{rl.__version__}-py3-none-any.whl"
    return INSTALL.format(address=project.address(root), wheel=wheel).rstrip()


def _markdown(text: str) -> NotebookNode:
    return new_markdown_cell(text)


def _code(cell: NotebookNode, converter: Converter, line: int) -> list[NotebookNode]:
    """A code cell with its outputs, and its caption as text below."""
    tags = list(cell.metadata.get("tags", []))
    tags += ["nbval-skip"] if NOT_EXECUTED in tags else []
    metadata: dict[str, Any] = {"tags": tags} if tags else {}
    if "hide-input" in tags:
        metadata["jupyter"] = {"source_hidden": True}
    result = [new_code_cell(cell.source, metadata=metadata, outputs=_merged(cell.outputs))]
    figure = cell.metadata.get("mystnb", {}).get("figure", {})
    if figure.get("caption"):
        number = converter.labels.labels[figure["name"]].text if figure.get("name") else "Figure"
        result.append(_markdown(f"*{number}.* {converter.inline(figure['caption'].strip(), line)}"))
    return result


def _merged(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """One stream where the kernel happened to send several pieces."""
    merged: list[NotebookNode] = []
    for output in map(_clean, outputs):
        last = merged[-1] if merged else None
        if last is not None and output.output_type == "stream" and last.get("name") == output.name:
            last.text += output.text
        else:
            merged.append(output)
    return merged


def _clean(output: NotebookNode) -> NotebookNode:
    """Without what changes from run to run; alt text stays."""
    kept = NotebookNode(output)
    if "metadata" in kept:
        kept["metadata"] = {kind: {"alt": value["alt"]} for kind, value in output.metadata.items() if "alt" in value}
    return kept


def _number(notebook: NotebookNode) -> None:
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for count, cell in enumerate(code, start=1):
        cell.execution_count = count
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output["execution_count"] = count


def as_text(notebook: NotebookNode) -> str:
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


# --- drift ----------------------------------------------------------------------------------------------------


def drift(fresh: NotebookNode, stored: NotebookNode) -> list[str]:
    """What differs: sources, text outputs, presence, size and alt text of pictures (their bytes may differ)."""
    if len(fresh.cells) != len(stored.cells):
        return [f"{len(stored.cells)} cells are stored, the source has {len(fresh.cells)}"]
    found = []
    for number, (new, old) in enumerate(zip(fresh.cells, stored.cells, strict=True)):
        for what in ("cell_type", "source", "metadata"):
            if new[what] != old[what]:
                found.append(f"cell {number}: another {what}")
        if NOT_COMPARED not in new.metadata.get("tags", []) and _outputs(new) != _outputs(old):
            found.append(f"cell {number}: other outputs")
    return found


def _outputs(cell: NotebookNode) -> list[Any]:
    return [_comparable(output) for output in cell.get("outputs", [])]


def _comparable(output: NotebookNode) -> Any:
    data = {
        kind: _picture_size(value) if kind == "image/png" else "".join(value)
        for kind, value in output.get("data", {}).items()
    }
    return [output.output_type, output.get("name"), "".join(output.get("text", "")), data, output.get("metadata")]


def _picture_size(png: str) -> tuple[int, int]:
    """Width and height stand in bytes 16 to 24 of a PNG."""
    width, height = struct.unpack(">II", b64decode(png)[16:24])
    return width, height


# --- command --------------------------------------------------------------------------------------------------


def check(path: Path, root: Path, labels: Labels) -> list[str]:
    name = project.notebook_name(path, root)
    stored = folder(root) / f"{name}.ipynb"
    if not stored.exists():
        return [f"{name}: there is no notebook"]
    old = nbformat.read(stored, as_version=4)
    return [f"{name}: {text}" for text in drift(generate(path, root, labels), old)]


def write(path: Path, root: Path, labels: Labels) -> None:
    folder(root).mkdir(exist_ok=True)
    target = folder(root) / f"{project.notebook_name(path, root)}.ipynb"
    target.write_text(as_text(generate(path, root, labels)), "utf8")
    print(f"wrote {target.relative_to(root)}")


def main(arguments: list[str] | None = None, root: Path = project.ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="notebooks, for example 02_rotary; all by default")
    parser.add_argument("--check", action="store_true", help="write nothing, fail when a notebook is out of date")
    options = parser.parse_args(arguments)
    pages = {project.notebook_name(path, root): path for path in project.notebook_pages(root)}
    unknown = sorted(set(options.names) - set(pages))
    if unknown:
        parser.error(f"no notebook is called {unknown[0]}; there are {', '.join(pages)}")
    chosen = [pages[name] for name in options.names] or list(pages.values())
    labels = Labels.of_book(root)
    execution.execute_all(chosen, root)
    if options.check:
        problems = [text for path in chosen for text in check(path, root, labels)]
        print("\n".join(problems) or "the notebooks are up to date")
        return 1 if problems else 0
    for path in chosen:
        write(path, root, labels)
    if not options.names:
        for stale in set(folder(root).glob("*.ipynb")) - {folder(root) / f"{name}.ipynb" for name in pages}:
            stale.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
