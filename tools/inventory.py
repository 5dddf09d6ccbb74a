"""What the book holds and where: ``book/inventory.yml`` beside the pages themselves.

An item of the inventory is a labelled equation, theorem, exercise or figure, a picture without a label
(``figures.circles_speeds``), or the claims of one document that one chapter shows (``claims-05-001``). Its value is the
place that holds it now, ``page#anchor``, or ``dropped: `` and the reason. An anchor is a label on that page or the
slug of one of its headings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import yaml
from docutils import nodes

from tools import ledger, project
from tools.myst import DOLLAR_MATH, TARGET, THEOREMS, Directive, Text, walk

DROPPED = "dropped:"
PICTURE = re.compile(r"\brl\.figures\.(\w+)\(")


def load(root: Path = project.ROOT) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """The items, and for each source document the place that mirrors each of its sections."""
    stored = yaml.safe_load((root / "book" / "inventory.yml").read_text("utf8"))
    return stored["items"], stored["sources"]


def labels(path: Path) -> set[str]:
    """Labels of what can be counted: equations, theorem-like blocks, exercises and figures."""
    found = {_label(block) for block in _blocks(path) if isinstance(block, Directive)}
    for block in _blocks(path):
        if isinstance(block, Text):
            found |= {match["label"] for match in DOLLAR_MATH.finditer(block.text)}
    return {label for label in found if label}


def _label(block: Directive) -> str | None:
    if block.name in (*THEOREMS, "math", "exercise"):
        return block.options.get("label")
    if block.name == "code-cell":
        name: str | None = block.options.get("mystnb", {}).get("figure", {}).get("name")
        picture = PICTURE.search(block.body)
        return name or (f"figures.{picture[1]}" if picture else None)
    return None


def anchors(path: Path) -> set[str]:
    """Labels, targets and the slugs of the headings."""
    texts = [block.text for block in _blocks(path) if isinstance(block, Text)]
    lines = [line for text in texts for line in text.split("\n")]
    headings = {nodes.make_id(line.lstrip("#")) for line in lines if re.match("#+ ", line)}
    targets = {match["label"] for line in lines if (match := TARGET.match(line))}
    return labels(path) | headings | targets


def claim_groups(root: Path = project.ROOT) -> set[str]:
    return {f"claims-{row['chapter']}-{row['document']}" for row in ledger.claims(root)}


def problems(items: dict[str, str], pages: dict[str, Path], groups: Iterable[str]) -> list[str]:
    """What is wrong with the items: places that are not there, things that no item names."""
    known = {name: anchors(path) for name, path in pages.items()}
    there = {label for path in pages.values() for label in labels(path)} | set(groups)
    found = [f"{label} is not in the inventory" for label in sorted(there - set(items))]
    for name, place in items.items():
        found += [f"{name}: {problem}" for problem in place_problems(place, known)]
        if place.startswith(DROPPED) and name in there - set(groups):
            found.append(f"{name}: dropped, but the book has it")
    return found


def place_problems(place: str, known: dict[str, set[str]]) -> list[str]:
    if place.startswith(DROPPED):
        return [] if place.removeprefix(DROPPED).strip() else ["dropped without a reason"]
    page, _, anchor = place.partition("#")
    if page not in known:
        return [f"no page {page!r}"]
    return [] if anchor in known[page] else [f"page {page} has no anchor {anchor!r}"]


def mirror_problems(sections: dict[str, str], items: dict[str, str], pages: dict[str, Path]) -> list[str]:
    """The same for the sections of a source: each names an item that is not dropped, a place, or a reason."""
    known = {name: anchors(path) for name, path in pages.items()}
    found = []
    for section, place in sections.items():
        if place in items:
            found += [f"{section}: {place} was dropped"] if items[place].startswith(DROPPED) else []
        else:
            found += [f"{section}: {problem}" for problem in place_problems(place, known)]
    return found


def _blocks(path: Path) -> list[Directive | Text]:
    return list(walk(path.read_text("utf8"), 1, path))
