"""Where things are, and the one address of the public repository (it stands in ``_config.yml``)."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
CHAPTER_NAME = re.compile(r"(deeper/)?\d\d_\w+")  # of a page of the book, as page_name says it


@functools.cache
def parsed(text: str) -> Any:
    """A YAML file's content, parsed once: a build asks for the same ones thousands of times. Nobody changes it."""
    return yaml.safe_load(text)


def address(root: Path = ROOT) -> str:
    """The web address of the public repository, without a slash at the end."""
    return str(parsed((root / "_config.yml").read_text("utf8"))["repository"]["url"]).rstrip("/")


def branch(root: Path = ROOT) -> str:
    return str(parsed((root / "_config.yml").read_text("utf8"))["repository"]["branch"])


def pages_address(root: Path = ROOT) -> str:
    """Where GitHub Pages shows the built book."""
    owner, name = address(root).split("/")[-2:]
    return f"https://{owner}.github.io/{name}"


def colab_address(notebook: str, root: Path = ROOT) -> str:
    owner, repository = address(root).split("/")[-2:]
    at = f"{owner}/{repository}/blob/{branch(root)}/book/notebooks/{notebook}.ipynb"
    return f"https://colab.research.google.com/github/{at}"


def toc_files(root: Path = ROOT) -> list[str]:
    """Every page of the book, in the order of ``_toc.yml``, without the suffix."""
    toc = parsed((root / "_toc.yml").read_text("utf8"))

    def walk(node: dict[str, Any]) -> list[str]:
        below = [*node.get("parts", []), *node.get("chapters", []), *node.get("sections", [])]
        return ([node["file"]] if "file" in node else []) + [name for child in below for name in walk(child)]

    return [toc["root"], *walk(toc)]


def pages(root: Path = ROOT) -> list[Path]:
    """The source files of all pages, in the order of ``_toc.yml``."""
    return [root / f"{name}.md" for name in toc_files(root)]


def page_name(path: Path, root: Path = ROOT) -> str:
    """A page below ``book/``, without the suffix: ``05_circles``, ``deeper/05_circles``, ``api/circles``."""
    book = root / "book"
    return (path.relative_to(book) if path.is_relative_to(book) else Path(path.name)).with_suffix("").as_posix()


def notebook_name(path: Path, root: Path = ROOT) -> str:
    """Its notebook, without the suffix: ``05_circles``, ``deeper_05_circles``. All notebooks lie in one folder."""
    return page_name(path, root).replace("/", "_")


def chapter_pages(root: Path = ROOT) -> list[Path]:
    """The pages of the chapters, in order: each chapter, and after it the page that goes deeper, if it has one."""
    return [path for path in pages(root) if CHAPTER_NAME.fullmatch(page_name(path, root))]


def chapters(root: Path = ROOT) -> list[Path]:
    """The chapters alone, in order."""
    return [path for path in chapter_pages(root) if not is_deeper(path)]


def chapter_reference(path: Path, root: Path = ROOT) -> str | None:
    """What a link to a page of a chapter says: ``chapter 5``; None for other pages, whose title it says."""
    if not CHAPTER_NAME.fullmatch(page_name(path, root)):
        return None
    return f"chapter {int(path.stem[:2])}" + (", going deeper" if is_deeper(path) else "")


def is_deeper(path: Path) -> bool:
    return path.parent.name == "deeper"


def is_lesson(path: Path) -> bool:
    """Whether a page has the form of a lesson (front matter ``form: lesson``), as in time all chapters will."""
    return front_matter(path).get("form") == "lesson"


def notebook_pages(root: Path = ROOT) -> list[Path]:
    """The pages with code cells: those of the chapters, and the quickstart. Each has a generated notebook."""
    return [path for path in pages(root) if front_matter(path).get("file_format") == "mystnb"]


def front_matter(path: Path) -> dict[str, Any]:
    """The YAML between the two ``---`` lines on top of a page."""
    match = re.match(r"---\n(.*?)\n---\n", path.read_text("utf8"), re.DOTALL)
    return (parsed(match.group(1)) or {}) if match else {}


def title(path: Path) -> str:
    match = re.search(r"^# (.+)$", path.read_text("utf8"), re.MULTILINE)
    if match is None:
        raise ValueError(f"{path} has no title")
    return match.group(1).strip()
