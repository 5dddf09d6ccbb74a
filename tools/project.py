"""Where things are, and the one address of the public repository (it stands in ``_config.yml``)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
CHAPTER_NAME = re.compile(r"\d\d_\w+")


def address(root: Path = ROOT) -> str:
    """The web address of the public repository, without a slash at the end."""
    return str(yaml.safe_load((root / "_config.yml").read_text("utf8"))["repository"]["url"]).rstrip("/")


def branch(root: Path = ROOT) -> str:
    return str(yaml.safe_load((root / "_config.yml").read_text("utf8"))["repository"]["branch"])


def pages_address(root: Path = ROOT) -> str:
    """Where GitHub Pages shows the built book."""
    owner, name = address(root).split("/")[-2:]
    return f"https://{owner}.github.io/{name}"


def colab_address(name: str, root: Path = ROOT) -> str:
    owner, repository = address(root).split("/")[-2:]
    return (
        f"https://colab.research.google.com/github/{owner}/{repository}/blob/{branch(root)}/book/notebooks/{name}.ipynb"
    )


def toc_files(root: Path = ROOT) -> list[str]:
    """Every page of the book, in the order of ``_toc.yml``, without the suffix."""
    toc = yaml.safe_load((root / "_toc.yml").read_text("utf8"))

    def walk(node: dict[str, Any]) -> list[str]:
        below = [*node.get("parts", []), *node.get("chapters", []), *node.get("sections", [])]
        return ([node["file"]] if "file" in node else []) + [name for child in below for name in walk(child)]

    return [toc["root"], *walk(toc)]


def chapters(root: Path = ROOT) -> list[Path]:
    """The source files of the chapters, in order."""
    return [root / f"{name}.md" for name in toc_files(root) if CHAPTER_NAME.fullmatch(name.rsplit("/")[-1])]


def notebook_pages(root: Path = ROOT) -> list[Path]:
    """The pages with code cells: the chapters and the quickstart. Each has a generated notebook."""
    pages = [root / f"{name}.md" for name in toc_files(root)]
    return [path for path in pages if front_matter(path).get("file_format") == "mystnb"]


def front_matter(path: Path) -> dict[str, Any]:
    """The YAML between the two ``---`` lines on top of a page."""
    match = re.match(r"---\n(.*?)\n---\n", path.read_text("utf8"), re.DOTALL)
    return (yaml.safe_load(match.group(1)) or {}) if match else {}


def title(path: Path) -> str:
    match = re.search(r"^# (.+)$", path.read_text("utf8"), re.MULTILINE)
    if match is None:
        raise ValueError(f"{path} has no title")
    return match.group(1).strip()
