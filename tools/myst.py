"""The parts of a page's MyST Markdown: directives, fences of code, and the text between them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,}|:{3,})(?P<info>.*)$")
DIRECTIVE = re.compile(r"\{(?P<name>[\w:.-]+)\}\s*(?P<argument>.*)")
ROLE = re.compile(r"(?:\{(?P<role>[\w:]+)\})?(?P<ticks>`+)(?P<text>.+?)(?<!`)(?P=ticks)(?!`)", re.DOTALL)
TITLED = re.compile(r"(?P<title>.*\S)\s*<(?P<target>[^<>]+)>", re.DOTALL)
TARGET = re.compile(r"^\((?P<label>[\w-]+)\)=\s*$")
DOLLAR_MATH = re.compile(r"^\$\$(?P<body>.*?)\$\$(?: *\((?P<label>[\w-]+)\))?", re.DOTALL | re.MULTILINE)

THEOREMS = {
    f"prf:{name}": name.capitalize()
    for name in ("definition", "theorem", "lemma", "corollary", "proposition", "example", "remark", "assumption")
}
ADMONITIONS = ("note", "tip", "warning", "important", "hint", "attention", "caution")


class SourceError(ValueError):
    """Something in a page that is not read here, with file and line."""


@dataclass
class Directive:
    name: str
    argument: str
    options: dict[str, Any]
    body: str
    line: int  # of the opening fence, in the file
    body_line: int


@dataclass
class Text:
    text: str
    line: int


@dataclass
class Code:
    """A fence without braces: kept as it is."""

    text: str
    line: int


Block = Directive | Text | Code


def blocks(source: str, line: int, path: Path) -> Iterator[Block]:
    """Split Markdown into directives, code fences and the text between them. ``line`` is that of its first line."""
    lines = source.split("\n")
    pending: list[str] = []
    at = start = 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        if fence is None:
            pending.append(lines[at])
            at += 1
            continue
        if pending:
            yield Text("\n".join(pending), line + start)
            pending = []
        if fence["fence"].startswith(":"):
            raise SourceError(f"{path}:{line + at}: a fence of colons; use backquotes")
        end = _closing(lines, at, fence, line, path)
        directive = DIRECTIVE.fullmatch(fence["info"].strip())
        if directive is None:
            yield Code("\n".join(lines[at : end + 1]), line + at)
        else:
            indent = len(fence["indent"])
            body = [text[indent:] if text[:indent].isspace() else text for text in lines[at + 1 : end]]
            yield _directive(directive, body, line + at)
        at = start = end + 1
    if pending:
        yield Text("\n".join(pending), line + start)


def _closing(lines: list[str], at: int, fence: re.Match[str], line: int, path: Path) -> int:
    marks = fence["fence"]
    for end in range(at + 1, len(lines)):
        stripped = lines[end].strip()
        if len(stripped) >= len(marks) and set(stripped) == {marks[0]}:
            return end
    raise SourceError(f"{path}:{line + at}: the fence is never closed")


def _directive(match: re.Match[str], body: list[str], line: int) -> Directive:
    """Options stand on top of the body, as ``:key: value`` lines or as YAML between ``---`` lines."""
    options: dict[str, Any] = {}
    skipped = 0
    if body and body[0].strip() == "---":
        end = body.index("---", 1)
        options, skipped = yaml.safe_load("\n".join(body[1:end])) or {}, end + 1
    else:
        while skipped < len(body) and (option := re.match(r":([\w-]+):\s*(.*)", body[skipped])):
            options[option[1]] = option[2].strip()
            skipped += 1
    rest = "\n".join(body[skipped:])
    return Directive(match["name"], match["argument"].strip(), options, rest.strip("\n"), line, line + 1 + skipped)


def walk(source: str, line: int, path: Path) -> Iterator[Directive | Text]:
    """Every directive and text, nested ones too, in the order of the page."""
    for block in blocks(source, line, path):
        if isinstance(block, Directive):
            yield block
            if block.name not in ("math", "code-cell", "raw-cell"):
                yield from walk(block.body, block.body_line, path)
        elif isinstance(block, Text):
            yield block


def tags(cell: Directive) -> list[str]:
    """Of a code cell; on the page they hide or remove it."""
    given = cell.options.get("tags", [])
    return re.findall(r"[\w-]+", given) if isinstance(given, str) else list(given)


def is_folded(block: Directive) -> bool:
    """Whether a reader has to open it: a dropdown, or a box of that class."""
    return block.name == "dropdown" or "dropdown" in str(block.options.get("class", "")).split()
