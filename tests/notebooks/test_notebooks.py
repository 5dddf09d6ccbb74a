"""The generated notebooks: up to date, plain Markdown, numbered as the pages are. tests/alone.py runs them."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import nbformat
import pytest
import tomllib

from tools import execution, notebooks, project
from tools.markdown import Converter, Label, Labels
from tools.myst import SourceError
from tools.project import ROOT, notebook_name, notebook_pages

each_page = pytest.mark.parametrize("path", notebook_pages(ROOT), ids=notebook_name)


def stored(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(notebooks.folder() / f"{notebook_name(path)}.ipynb", as_version=4)


@each_page
def test_regenerating_changes_nothing(path: Path) -> None:
    """Sources and text outputs are equal; pictures are there, with their size and alt text."""
    assert notebooks.check(path, ROOT, Labels.of_book()) == []


@each_page
def test_generated_twice_is_the_same_bytes(path: Path) -> None:
    assert notebooks.as_text(notebooks.generate(path)) == notebooks.as_text(notebooks.generate(path))


def test_drift_is_seen() -> None:
    """Each kind of change is a finding: source, output, alt text, a missing cell."""
    path = notebook_pages(ROOT)[0]
    changes = {
        "source": lambda nb: nb.cells[0].update(source="# Another title"),
        "outputs": lambda nb: first_output(nb).update(data={"text/plain": "0"}),
        "alt": lambda nb: first_output(nb).update(metadata={"image/png": {"alt": "another"}}),
        "cells": lambda nb: nb.cells.pop(),
    }
    for name, change in changes.items():
        changed = stored(path)
        change(changed)
        assert notebooks.drift(stored(path), changed), name


@each_page
def test_one_stream_per_cell(path: Path) -> None:
    """A kernel may send one text in several pieces, and in others the next time."""
    for cell in stored(path).cells:
        streams = [output.name for output in cell.get("outputs", []) if output.output_type == "stream"]
        assert len(streams) == len(set(streams))


def first_output(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    compared = (cell for cell in notebook.cells if notebooks.NOT_COMPARED not in cell.metadata.get("tags", []))
    outputs = (output for cell in compared for output in cell.get("outputs", []))
    return next(output for output in outputs if output.output_type == "execute_result")


def test_no_notebook_is_left_over() -> None:
    assert {path.stem for path in notebooks.folder().glob("*.ipynb")} == {*map(notebook_name, notebook_pages(ROOT))}


@each_page
def test_plain_markdown(path: Path) -> None:
    """No directive and no role is left, and no formula uses what only Sphinx knows."""
    for number, cell in enumerate(stored(path).cells):
        if cell.cell_type == "markdown":
            text = re.sub(r"^```\w*\n.*?^```", "", cell.source, flags=re.DOTALL | re.MULTILINE)
            assert ":::" not in text, f"cell {number}"
            assert "```{" not in text, f"cell {number}"
            assert not re.search(r"\{[\w:]+\}`", text), f"cell {number}"
            assert ":label:" not in text, f"cell {number}"


@each_page
def test_top_of_the_notebook(path: Path) -> None:
    """A title with the Colab badge, then the install cell."""
    title, install = stored(path).cells[:2]
    assert title.source.startswith("# ")
    assert f"]({project.colab_address(notebook_name(path))})" in title.source
    assert install.cell_type == "code"
    assert install.source == notebooks.install_cell()
    assert f"git+{project.address()}" in install.source


@each_page
def test_imports_are_what_the_install_cell_brings(path: Path) -> None:
    """On Colab there are the package, what it needs, and the extra [book]: nothing else may be imported."""
    project_table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]
    needed = [*project_table["dependencies"], *project_table["optional-dependencies"]["book"]]
    brought = {re.match(r"[\w-]+", requirement)[0] for requirement in needed} | {"rope_lessons"}
    for cell in stored(path).cells:
        if cell.cell_type == "code" and "%pip" not in cell.source:
            for node in ast.walk(ast.parse(cell.source)):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module] if isinstance(node, ast.ImportFrom) else []
                for name in names:
                    top = name.split(".")[0]
                    assert top in brought or top in sys.stdlib_module_names, f"{name} is not installed on Colab"


@each_page
def test_pictures_have_alt_text(path: Path) -> None:
    for cell in stored(path).cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                alt = output.metadata["image/png"]["alt"]
                assert len(alt.split()) >= 5, f"no description: {alt!r}"
                assert not re.search(r"[0-9a-f]{16}|\.png", alt), f"a path is no description: {alt!r}"


@each_page
def test_run_time(path: Path) -> None:
    """A chapter runs in a minute at most (it was executed a moment ago: the time is in the cache)."""
    execution.execute(path)
    seconds = execution.seconds(path)
    assert seconds is not None
    assert seconds <= 60


# --- the converter --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a\n\n```{mermaid}\nx\n```\n", r"page\.md:3: .*\{mermaid\}"),
        ("a\nb {kbd}`x`\n", r"page\.md:2: .*\{kbd\}"),
        ("see {eq}`eq-none`\n", r"page\.md:1: no label 'eq-none'"),
        ("```{note}\nsee {ref}`none`\n```\n", r"page\.md:2: no label 'none'"),
        ("```{note}\nx\n", r"page\.md:1: .*never closed"),
        (":::{note}\nx\n:::\n", r"page\.md:1: .*colons"),
        ("[x](other.md)", r"page\.md:1: a link inside the book"),
    ],
)
def test_unknown_syntax_names_file_and_line(source: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=message):
        Converter(tmp_path / "page.md", Labels()).convert(source, 1)


def test_a_folded_proof_and_the_head_of_a_lesson(tmp_path: Path) -> None:
    """As details, and as one line whose links say "chapter 3"; a link with a text of its own keeps it."""
    page = tmp_path / "book" / "05_x.md"
    page.parent.mkdir()
    (tmp_path / "_config.yml").write_text((ROOT / "_config.yml").read_text("utf8"), "utf8")
    for name in ("02_b", "03_c"):
        (page.parent / f"{name}.md").write_text(f"# {name}\n", "utf8")
    source = """\
```{lesson-head}
```

````{prf:proof}
:class: dropdown
By {doc}`03_c` and {doc}`this <02_b>`.
````
"""
    page.write_text(f"---\nprerequisites: [02_b, 03_c]\n---\n{source}", "utf8")
    at = f"{project.pages_address()}/book"
    head, proof = Converter(page, Labels(), tmp_path).convert(source, 1).split("\n\n", 1)
    needs = f"after chapters [2]({at}/02_b.html) and [3]({at}/03_c.html)"
    assert head == f"1 minute · runs in less than a minute on 2 CPU cores · {needs}"
    inside = f"By [chapter 3]({at}/03_c.html) and [this]({at}/02_b.html). $\\square$"
    assert proof == f"<details><summary>Proof</summary>\n\n{inside}\n\n</details>"


def test_conversion_of_a_small_page(tmp_path: Path) -> None:
    labels = Labels({"eq-a": Label("(2.3)", "page", "equation-eq-a"), "thm-b": Label("Theorem 1.1", "01_b", "thm-b")})
    source = """\
````{prf:theorem} Pairs
:label: thm-b
By {eq}`eq-a`:

```{math}
:label: eq-a
x \\\\ y
```
````

```{admonition} Predict first
:class: tip
$$
a
$$
```

{ref}`this <thm-b>` and `{eq}` and {term}`radix`.
"""
    expected = """\
**Theorem 1.1** (Pairs). By (2.3):

$$
\\begin{split}x \\\\ y\\end{split}
\\tag{2.3}
$$

> **Predict first**
>
> $$a$$

[this](https://OWNER.github.io/NAME/book/01_b.html#thm-b) and `{eq}` and radix."""
    owner, name = project.address().split("/")[-2:]
    expected = expected.replace("OWNER", owner).replace("NAME", name)
    assert Converter(tmp_path / "page.md", labels).convert(source, 1) == expected
