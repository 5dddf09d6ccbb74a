"""Terms of the glossary: where a chapter uses one of its own for the first time, a link leads there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docutils import nodes

GLOSSARY = "book/glossary"
FRONT = ("book/index", "book/quickstart")  # they come before any chapter
# Words that are common in another sense, too: linked only where the text sets them in italic or bold.
COMMON = frozenset(
    ["base", "cache", "closed", "control", "digit", "distance", "embedding", "exact match", "gap", "hand", "head",
     "interval", "key", "open", "peaked", "diffuse", "query", "regular", "score", "share", "sink", "slope", "stack",
     "state", "stretch", "tape", "tax", "token", "turns", "value", "window"]
)  # fmt: skip
NOT_AFTER = {"hand": "by "}  # a sum done by hand has no dial
# Inside of these no link is set.
CLOSED = (nodes.reference, nodes.literal, nodes.math, nodes.title, nodes.caption, nodes.table, nodes.literal_block)


@dataclass(frozen=True)
class Term:
    """One entry: its names, what it says, and the page of its chapter."""

    names: tuple[str, ...]
    text: str
    chapter: str

    def pattern(self, name: str) -> re.Pattern[str]:
        """Where a text uses a name: as a word, also in the plural; small and large letters alike, but in initials."""
        plural = "" if name.endswith("s") else "s?"
        before = rf"(?<!\b{NOT_AFTER[name]})" if name in NOT_AFTER else ""
        return re.compile(
            rf"(?<![\w-]){before}{re.escape(name)}{plural}(?![\w-])", 0 if name.isupper() else re.IGNORECASE
        )


def read(path: Path) -> list[Term]:
    """The entries of the glossary.

    Raises:
        ValueError: an entry that names no chapter.
    """
    inside = path.read_text("utf8").split("```{glossary}\n:sorted:\n", 1)[1].split("\n```", 1)[0]
    found = []
    for block in inside.strip().split("\n\n"):
        lines = block.splitlines()
        names = tuple(line for line in lines if not line.startswith(" "))
        text = " ".join(line.strip() for line in lines[len(names) :])
        chapter = re.search(r"\{doc\}`(\d\d_\w+|articles_model)`", text)
        if chapter is None:
            raise ValueError(f"{names[0]} in {path.name} must name its chapter with {{doc}}")
        found.append(Term(names, text, f"book/{chapter[1]}"))
    return found


def link_first(app: Any, doctree: nodes.document, docname: str) -> None:
    """Link the first use of each term of this chapter to the glossary; on the first pages, of every term."""
    if GLOSSARY not in app.env.found_docs:
        return
    terms = [term for term in read(Path(app.srcdir) / f"{GLOSSARY}.md") if term.chapter == docname or docname in FRONT]
    places = {name: anchor for (kind, name), (_, anchor) in app.env.get_domain("std").objects.items() if kind == "term"}
    for term in terms:
        used = next(_uses(doctree, term), None)
        if used is not None:
            node, match = used
            address = app.builder.get_relative_uri(docname, GLOSSARY) + "#" + places[term.names[0]]
            _link(node, match, address)


def _uses(doctree: nodes.document, term: Term) -> Iterator[tuple[nodes.Text, re.Match[str]]]:
    """Where the running text uses a term, from the top."""
    for paragraph in doctree.findall(nodes.paragraph):
        for node in paragraph.findall(nodes.Text):
            around = list(_around(node))
            if any(isinstance(parent, CLOSED) for parent in around):
                continue
            marked = any(isinstance(parent, nodes.strong | nodes.emphasis) for parent in around)
            for name in term.names:
                match = term.pattern(name).search(node) if marked or name.lower() not in COMMON else None
                if match is not None:
                    yield node, match


def _around(node: nodes.Node) -> Iterator[nodes.Node]:
    parent = node.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def _link(node: nodes.Text, match: re.Match[str], address: str) -> None:
    """Split a text at a match, and make the match a link."""
    text = str(node)
    link = nodes.reference("", match[0], refuri=address, internal=True, classes=["term"])
    pieces = [nodes.Text(text[: match.start()]), link, nodes.Text(text[match.end() :])]
    node.parent.replace(node, [piece for piece in pieces if piece.astext()])
