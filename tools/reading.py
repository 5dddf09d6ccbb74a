"""How much there is to read on a page, counted in its source: for the minutes at its head and for the budgets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tools import project
from tools.myst import (
    ADMONITIONS,
    DOLLAR_MATH,
    ROLE,
    TARGET,
    THEOREMS,
    TITLED,
    Block,
    Directive,
    Text,
    blocks,
    is_folded,
    tags,
)

# Adults read English non-fiction at about 238 words per minute (Brysbaert 2019, doi 10.1016/j.jml.2019.104047). The
# formulas, pictures and code of a page are not counted as words, and take the rest of the time.
WORDS_PER_MINUTE = 150

SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
EXERCISES = re.compile(r"^## Exercises\s*$", re.MULTILINE)
BOXES = (*THEOREMS, *ADMONITIONS, "prf:proof", "admonition", "dropdown")
HIDDEN = {"hide-input", "remove-input", "hide-cell", "remove-cell"}


@dataclass
class Reading:
    """What a page has before its exercises."""

    words: int = 0  # of visible prose; captions count, formulas do not
    folded: int = 0  # words in what is folded
    code: int = 0  # visible lines of code that are not blank
    pictures: int = 0


def minutes(path: Path) -> str:
    count = max(1, round(before_the_exercises(path).words / WORDS_PER_MINUTE))
    return f"{count} minute{'s' if count > 1 else ''}"


def needs(path: Path, root: Path = project.ROOT) -> str:
    """What to read first: links to the chapters that the front matter names, or to the lesson of a deeper page."""
    named = [path.stem] if project.is_deeper(path) else project.front_matter(path).get("prerequisites", [])
    if len(named) < 2:
        return f"after {{doc}}`/book/{named[0]}`" if named else "needs no other chapter"
    links = [f"{{doc}}`{int(name[:2])} </book/{name}>`" for name in named]
    return f"after chapters {', '.join(links[:-1])} and {links[-1]}"


def before_the_exercises(path: Path) -> Reading:
    return _counted(_body(path), path)


def of_a_section(path: Path, wanted: str, and_before: bool = False) -> Reading:
    """A section by its slug; with ``and_before`` all of the page up to its end."""
    body = _body(path)
    titles = [*SECTION.finditer(body), re.compile(r"\Z").search(body)]
    for title, after in pairwise(titles):
        if title and after and slug(title[1]) == wanted:
            return _counted(body[0 if and_before else title.start() : after.start()], path)
    raise ValueError(f"book/{path.name} has no section {wanted}")


def slug(title: str) -> str:
    """The anchor of a title.

    >>> slug("Does it work?")
    'does-it-work'
    """
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _body(path: Path) -> str:
    source = path.read_text("utf8")
    source = re.sub(r"\A---\n.*?\n---\n", lambda front: "\n" * front[0].count("\n"), source, flags=re.DOTALL)
    end = EXERCISES.search(source)
    return source[: end.start()] if end else source


def _counted(source: str, path: Path) -> Reading:
    reading = Reading()
    _add(blocks(source, 1, path), False, reading, path)
    return reading


def _add(found: Iterator[Block], folded: bool, reading: Reading, path: Path) -> None:
    for block in found:
        if isinstance(block, Text):
            _add_words(block.text, folded, reading)
        elif isinstance(block, Directive) and block.name == "code-cell":
            _add_cell(block, folded, reading)
        elif isinstance(block, Directive):
            inner = folded or is_folded(block)
            if block.name in BOXES:
                _add_words(block.argument, folded, reading)
                _add(blocks(block.body, block.body_line, path), inner, reading, path)


def _add_words(text: str, folded: bool, reading: Reading) -> None:
    count = words(text)
    if folded:
        reading.folded += count
    else:
        reading.words += count


def _add_cell(block: Directive, folded: bool, reading: Reading) -> None:
    figure = block.options.get("mystnb", {}).get("figure", {})
    _add_words(str(figure.get("caption", "")), folded, reading)
    reading.pictures += bool(figure or re.search(r"^rl\.figures\.", block.body, re.MULTILINE))
    if not folded and not HIDDEN.intersection(tags(block)):
        reading.code += sum(bool(line.strip()) for line in block.body.split("\n"))


def words(text: str) -> int:
    """Words of prose: no formula, target, comment or rule of a table; of a role what it shows."""
    text = DOLLAR_MATH.sub(" ", text)
    lines = [line for line in text.split("\n") if not TARGET.match(line) and not line.startswith("% ")]
    text = ROLE.sub(lambda role: "" if role["role"] in ("math", "eq") else _shown(role["text"]), "\n".join(lines))
    text = re.sub(r"\$[^$]+\$", " ", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return len([word for word in text.split() if re.search(r"\w", word)])


def _shown(text: str) -> str:
    titled = TITLED.fullmatch(text)
    return titled["title"] if titled else text
