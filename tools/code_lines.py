"""Lines of code that are longer than a phone is wide know how far they are indented.

There they go on below (book/_static/book.css), four columns further in than they began.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

from pygments.formatters import HtmlFormatter
from sphinx.highlighting import PygmentsBridge

PHONE = 42  # characters of a line of code that a phone of 390 px shows


class LongLines(HtmlFormatter):
    """Code as HTML, with a ``<span class="rl-line" style="--indent:4">`` around each long line."""

    def wrap(self, source: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        return super().wrap((is_line, marked(html) if is_line else html) for is_line, html in source)


def marked(html: str) -> str:
    """A line of highlighted code; a long one in a span that says how many blanks it begins with.

    >>> marked("<span>x</span> = 1\\n")
    '<span>x</span> = 1\\n'
    """
    line = unescape(re.sub("<[^>]*>", "", html)).rstrip()
    if len(line) <= PHONE:
        return html
    return f'<span class="rl-line" style="--indent:{len(line) - len(line.lstrip())}">{html}</span>'


def register() -> None:
    """Let Sphinx write all code with it."""
    PygmentsBridge.html_formatter = LongLines
