"""What the HTML files say, without a browser: the numbers agree with the notebooks', nothing public is left out."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from sphinx.util.inventory import InventoryFile

import rope_lessons as rl
from tests.public import CHAPTERS, FLAT, defined
from tools.code_lines import PHONE, marked
from tools.markdown import Labels
from tools.project import ROOT, chapter_pages, chapters, page_name, pages_address, title, toc_files

pytestmark = pytest.mark.book


def soup(html: Path, page: str) -> BeautifulSoup:
    return BeautifulSoup((html / f"{page}.html").read_text("utf8"), "html.parser")


@pytest.mark.parametrize("path", chapter_pages(ROOT), ids=page_name)
def test_numbers_agree_with_the_notebooks(path: Path, html: Path) -> None:
    """Equation (2.3) of the page is equation (2.3) of the notebook, and so on for all that is numbered."""
    page = soup(html, f"book/{page_name(path)}")
    labels = {name: label for name, label in Labels.of_book().labels.items() if label.page == page_name(path)}
    compared = 0
    for name, label in labels.items():
        element = page.find(id=label.anchor)
        assert element is not None, f"the page has no anchor for {name}"
        numbered = re.fullmatch(r"\(?(?:(\w+) )?(\d+\.\d+)\)?", label.text)
        if numbered is None:
            continue  # a section: it has a title, no number
        text = " ".join(element.get_text(" ").split())
        found = re.search(rf"{numbered[1] or ''} ?\(?{re.escape(numbered[2])}\b", text)
        assert found, f"{name}: the notebook says {label.text}, the page {text[:80]!r}"
        compared += 1
    assert compared >= 3


def test_api_pages_have_every_public_name(html: Path) -> None:
    with (html / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, location: location)
    documented = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    flat = {
        f"rope_lessons.{name}" for name, thing in FLAT.items() if inspect.isclass(thing) or inspect.isfunction(thing)
    }
    public = flat | {f"{module.__name__}.{name}" for module in CHAPTERS for name in defined(module) if name not in FLAT}
    public |= {f"rope_lessons.hf.{name}" for name in rl.hf.__all__ if name not in FLAT}
    assert public - documented == set()


def test_api_pages_say_of_fields_what_they_are(html: Path) -> None:
    """Those of a NamedTuple are in its docstring; by itself Sphinx lists them as "Alias for field number 0"."""
    for page in (html / "book" / "api").glob("*.html"):
        assert "Alias for field number" not in page.read_text("utf8"), page


def test_every_module_is_on_an_api_page() -> None:
    """A new module has to be added by hand to a page below book/api; the checkers of exercises are not shown."""
    package = ROOT / "rope_lessons"
    modules = {".".join(path.relative_to(package).with_suffix("").parts) for path in package.rglob("*.py")}
    modules = {name.removesuffix(".__init__") for name in modules if not re.search(r"(^|\.)_(?!_init__)", name)}
    modules -= {"__init__"} | {name for name in modules if name.startswith("exercises.")}
    pages = "\n".join(path.read_text("utf8") for path in (ROOT / "book" / "api").glob("*.md"))
    shown = {name for match in re.finditer(r"\{api\} (.+)", pages) for name in match[1].split()}
    assert shown == modules


@pytest.mark.parametrize(
    ("line", "indent"),
    [("x" * PHONE, None), ("x" * (PHONE + 1), 0), ("    " + "&lt;" * PHONE, 4), ("&lt;" * PHONE, None)],
)
def test_a_long_line_of_code_is_marked(line: str, indent: int | None) -> None:
    html = f"<span>{line}</span>\n"
    assert marked(html) == (
        html if indent is None else f'<span class="rl-line" style="--indent:{indent}">{html}</span>'
    )


def test_the_front_door_opens_the_book(html: Path) -> None:
    assert "url=book/index.html" in (html / "index.html").read_text("utf8")


def test_formulas_come_from_here(html: Path) -> None:
    assert (html / "_static" / "mathjax" / "startup.js").exists()
    size = sum(path.stat().st_size for path in (html / "_static" / "mathjax").rglob("*") if path.is_file())
    assert size < 3e6, "only the part that the pages load is copied"


def test_status_page_has_run_times(html: Path) -> None:
    text = soup(html, "book/status").get_text(" ")
    for path in chapter_pages(ROOT):
        assert re.search(rf"{re.escape(title(path))} \d+\.\d s", " ".join(text.split())), page_name(path)
    assert "torch" in text


@pytest.mark.parametrize("path", chapters(ROOT), ids=page_name)
def test_every_chapter_has_an_explorable(path: Path, html: Path) -> None:
    """As the reading paths say to teachers."""
    assert soup(html, f"book/{page_name(path)}").select(".rl-controls")


def test_edit_links_name_the_source(html: Path) -> None:
    page = soup(html, "book/index")
    edit = [link["href"] for link in page.select("a[href*='/edit/']")]
    assert edit
    assert all(link.endswith("book/index.md") for link in edit)
    assert pages_address().startswith("https://")


def test_a_stored_page_holds_no_other(html: Path) -> None:
    """By one node of another document a page would be stored with all that Sphinx knows of the whole book."""
    stored = {path: path.read_bytes() for path in (ROOT / "_build" / ".doctrees").rglob("*.doctree")}
    assert len(stored) >= len(toc_files(ROOT))
    assert [path.stem for path, pickled in stored.items() if b"BuildEnvironment" in pickled] == []


def test_no_line_ends_before_a_percent_sign(html: Path) -> None:
    """Outside of code and of explorables; a notebook's text keeps its blanks."""
    kept = 0
    for page in sorted((html / "book").glob("*.html")):
        text = re.sub(r"<(pre|script|style|code|figure)\b.*?</\1>", "", page.read_text("utf8"), flags=re.S)
        if "<article" not in text:
            continue  # the slides
        body = text[text.index("<article") : text.index("</article>")]
        shown = re.sub("<[^>]*>", "", re.sub(r"<svg\b.*?</svg>|\\\(.*?\\\)|\\\[.*?\\\]", "", body, flags=re.S))
        assert not re.search(r"\d %", shown), (page.name, re.findall(r".{30}\d %.{10}", shown)[:2])
        kept += len(re.findall("\\d\N{NO-BREAK SPACE}%", shown))
    assert kept > 200
