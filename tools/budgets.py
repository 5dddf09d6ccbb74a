"""What a lesson may take, by its source and by its built page, and the phrases that it may not use.

A budget of the source is checked here, one of the built page in a browser (tests/book/test_budgets.py).
"""

from __future__ import annotations

import re
from pathlib import Path

from tools import project, reading
from tools.myst import Directive, Text, walk

WORDS = 2800  # of visible prose before the exercises, captions among them
FOLDED = 800  # words more in folded parts before the exercises
CODE = 100  # visible lines before the exercises
PICTURES = 5
SCREENS = 20  # of 900 px, the whole page at a width of 1280 px

# Phrases that cannot be right in a lesson, whatever stands around them.
PHRASES = {
    r"\bshall\b": "is to, should, or the plain present",
    r"\bin the (root )?mean( square)?\b(?! (of|time))": "on average; with a standard deviation of",
    r"\bdistances? (is|are) told\b|\btells the distance\b": "is shown as; the model sees",
    r"\bwho of the (two|three|both)\b": "which of the two",
    r"\banother \w+ than\b": "a different … from",
    r"\bas it is, so it is\b|\bit happens that it is not\b": "say the thing",
    r"\bfades never\b|\btakes? the second way out\b": "never fades; name the way",
    r"\bkeep this for below\b|\bwe (shall|will) see\b": "link, or leave out",
    r"\bdocument 00\d\b|\bthe extension\b|\bthe source got wrong\b": "the trial stays out of the lessons",
}
# And in sources alone: on a page the labels of an axis look the same.
IN_SOURCES = {r"(?<![\d.,_^])\d{1,3}(?: \d{3})+\b": "a comma: 10,000"}


def of_the_source(path: Path) -> dict[str, str]:
    """Which budgets the source of a lesson exceeds, and by how much."""
    found = reading.before_the_exercises(path)
    limits = {"words": WORDS, "folded": FOLDED, "code": CODE}
    over = {name: f"{getattr(found, name)} of {limit}" for name, limit in limits.items()}
    over = {name: text for name, text in over.items() if getattr(found, name) > limits[name]}
    if found.pictures < PICTURES:
        over["pictures"] = f"{found.pictures} of at least {PICTURES}"
    return over


def phrases(path: Path, root: Path = project.ROOT) -> list[str]:
    """Each phrase of the list, with its line and what to write; and full titles of other chapters."""
    found = []
    titles = [project.title(other).split(" ", 1)[1] for other in project.chapters(root) if other.stem != path.stem]
    for block in walk(path.read_text("utf8"), 1, path):
        for text, line in _texts(block):
            for phrase, instead in (PHRASES | IN_SOURCES).items():
                for match in re.finditer(phrase, text, re.IGNORECASE):
                    found.append(f"line {line + text.count(chr(10), 0, match.start())}: {match[0]!r}: {instead}")
            found += [
                f"line {line}: the title {title!r}: chapter and number, linked" for title in titles if title in text
            ]
    return found


def _texts(block: Directive | Text) -> list[tuple[str, int]]:
    """What a reader reads of a block itself, its parts excepted."""
    if isinstance(block, Text):
        return [(block.text, block.line)]
    caption = block.options.get("mystnb", {}).get("figure", {}).get("caption", "") if block.name == "code-cell" else ""
    return [(str(caption), block.line), (block.argument, block.line)]
