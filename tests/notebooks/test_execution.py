"""One executing pass, and no stale outputs: the real extension, plugin and generator on a book of one page."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml

from tools.project import ROOT

PAGE = """\
---
file_format: mystnb
kernelspec: {name: python3, display_name: Python 3}
prerequisites: []
---

# 01 Tiny

What does it print?

```{code-cell} ipython3
import os

from rope_lessons import value
```

```{code-cell} ipython3
with open(os.environ["EXECUTIONS"], "a") as log:
    log.write("x")
print("value", value)
```
"""


class TinyBook:
    """A copy of the tools and the configuration, with a package of one line and one page that counts its runs."""

    def __init__(self, root: Path):
        self.root = root
        shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "book" / "_static", root / "book" / "_static")
        config = yaml.safe_load((ROOT / "_config.yml").read_text("utf8"))
        (root / "_config.yml").write_text(yaml.safe_dump(config), "utf8")
        (root / "_toc.yml").write_text(
            "format: jb-book\nroot: book/index\nparts: [{numbered: 1, chapters: [{file: book/01_tiny}]}]\n", "utf8"
        )
        (root / "requirements.txt").write_text("", "utf8")
        (root / "book" / "index.md").write_text("# Index\n", "utf8")
        (root / "book" / "references.bib").write_text("", "utf8")
        (root / "book" / "01_tiny.md").write_text(PAGE, "utf8")
        (root / "rope_lessons").mkdir()
        self.set_package("value = 1\n")

    def set_package(self, text: str) -> None:
        version = '__version__ = "1.2.3"\n'  # the install cell names the wheel
        (self.root / "rope_lessons" / "__init__.py").write_text(version + text, "utf8")

    def run(self, *arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(self.root), "EXECUTIONS": str(self.root / "executions")}
        command = [sys.executable, "-m", *arguments]
        done = subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout

    def build(self) -> str:
        self.run("tools.build")
        return (self.root / "_build" / "html" / "book" / "01_tiny.html").read_text("utf8")

    def executions(self) -> int:
        log = self.root / "executions"
        return len(log.read_text()) if log.exists() else 0


@pytest.fixture
def tiny(tmp_path: Path) -> TinyBook:
    return TinyBook(tmp_path)


def test_a_changed_line_of_the_package_executes_the_chapters_again(tiny: TinyBook) -> None:
    assert "value 1" in tiny.build()
    assert tiny.executions() == 1
    assert "value 1" in tiny.build()
    assert tiny.executions() == 1, "nothing changed, nothing runs"
    tiny.set_package("value = 2\n")
    page = tiny.build()
    assert "value 2" in page
    assert "value 1" not in page
    assert tiny.executions() == 2
    assert len(list((tiny.root / "_build" / ".jupyter_cache").iterdir())) == 1, "the old outputs are deleted"


def test_notebooks_nbval_and_html_share_one_execution(tiny: TinyBook) -> None:
    tiny.run("tools.notebooks")
    assert tiny.executions() == 1
    tiny.run("tools.notebooks", "--check")
    assert "value 1" in tiny.build()
    assert tiny.executions() == 1, "the build found what the notebook's generation had executed"
    shutil.rmtree(tiny.root / "_build")  # a fresh clone, with the committed notebook
    nbval = ["pytest", "-q", "-p", "tools.nbval_cache", "--nbval", "--nbval-current-env", "book/notebooks"]
    tiny.run(*nbval)
    assert tiny.executions() == 2
    page = tiny.build()
    assert "value 1" in page
    assert 'class="highlight-ipython3' in page, "the cells keep their highlighting"
    tiny.run("tools.notebooks", "--check")
    assert tiny.executions() == 2, "the build and the check found what nbval had executed"


def test_several_chapters_are_executed_side_by_side(tiny: TinyBook) -> None:
    """Each once, with what all import there already, by files and not by ports that two could choose.

    A cell that fails is named with its page.
    """
    meet = "import ipykernel, json, time, pathlib\nmine = pathlib.Path(os.environ['EXECUTIONS'] + '{}')\n"
    meet += "mine.write_text(json.load(open(ipykernel.get_connection_file()))['transport'] + f', {{ready}}')\n"
    meet += "while not pathlib.Path(os.environ['EXECUTIONS'] + '{}').exists():\n    time.sleep(0.1)\n"
    page = PAGE.replace("import os\n", "import os, sys\nready = 'rope_lessons' in sys.modules\n")
    for mine, other in (("one", "two"), ("two", "one")):
        cell = f"\n```{{code-cell}} ipython3\n{meet.format(mine, other)}```\n"
        (tiny.root / "book" / f"{mine}.md").write_text(page.replace("01 Tiny", mine) + cell, "utf8")
    toc = tiny.root / "_toc.yml"
    toc.write_text(toc.read_text("utf8").replace("01_tiny}", "one}, {file: book/two}"), "utf8")
    tiny.run("tools.build")  # ends only if each sees the other run
    assert tiny.executions() == 2
    assert {(tiny.root / f"executions{page}").read_text("utf8") for page in ("one", "two")} == {"ipc, True"}
    failing = tiny.root / "book" / "two.md"
    failing.write_text(failing.read_text("utf8").replace("value)", "values)"), "utf8")
    (tiny.root / "book" / "one.md").write_text(PAGE.replace("value)", "value, 1)"), "utf8")
    with pytest.raises(AssertionError, match=r"(?s)two\.md: a cell failed.*name 'values' is not defined"):
        tiny.run("tools.build")


def test_a_cell_that_needs_the_network_is_never_executed(tiny: TinyBook) -> None:
    """Tagged skip-execution: shown on the page and in the notebook, left out by the build, by nbval and by nbclient."""
    page = tiny.root / "book" / "01_tiny.md"
    cell = "```{code-cell} ipython3\n:tags: [needs-network, skip-execution]\nraise OSError('no network')\n```\n"
    more = "```{code-cell} ipython3\nprint('after', value)\n```\n"
    page.write_text(f"{PAGE}\n{cell}\n{more}", "utf8")
    tiny.run("tools.notebooks")
    notebook = nbformat.read(tiny.root / "book" / "notebooks" / "01_tiny.ipynb", as_version=4)
    (skipped,) = [cell for cell in notebook.cells if "no network" in cell.source]
    assert skipped.metadata["tags"] == ["needs-network", "skip-execution", "nbval-skip"]
    assert skipped.outputs == []
    shutil.rmtree(tiny.root / "_build")
    told = tiny.run("pytest", "-p", "tools.nbval_cache", "--nbval", "--nbval-current-env", "book/notebooks")
    assert "1 skipped" in told
    tiny.run("tools.notebooks", "--check")
    assert tiny.executions() == 2, "what nbval had executed was found, the skipped cell without outputs"


def test_a_failing_comparison_fills_no_cache(tiny: TinyBook) -> None:
    """Outputs that do not agree with the committed notebook never reach the book through nbval."""
    tiny.run("tools.notebooks")
    notebook = tiny.root / "book" / "notebooks" / "01_tiny.ipynb"
    notebook.write_text(notebook.read_text("utf8").replace("value 1\\n", "value 7\\n"), "utf8")
    shutil.rmtree(tiny.root / "_build")
    with pytest.raises(AssertionError, match="value 7"):
        tiny.run("pytest", "-q", "-p", "tools.nbval_cache", "--nbval", "--nbval-current-env", "book/notebooks")
    assert not list((tiny.root / "_build" / ".jupyter_cache").rglob("base.ipynb"))


def test_a_failed_build_is_not_forgotten(tiny: TinyBook) -> None:
    """Sphinx warns about a page only when it reads it; the second build must fail as the first did."""
    page = tiny.root / "book" / "index.md"
    page.write_text("# Index\n\nSee {ref}`nowhere`.\n", "utf8")
    for _ in range(2):
        with pytest.raises(AssertionError, match="nowhere"):
            tiny.build()


def test_an_image_without_alt_text_fails_the_build(tiny: TinyBook) -> None:
    page = tiny.root / "book" / "01_tiny.md"
    draw = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.gcf()"
    page.write_text(PAGE + f"\n```{{code-cell}} ipython3\n{draw}\n```\n", "utf8")
    with pytest.raises(AssertionError, match="no alt text"):
        tiny.build()
