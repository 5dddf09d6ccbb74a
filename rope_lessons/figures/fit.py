"""Make a figure fit a phone: type large enough, long titles in several lines, no tick labels on top of each other."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rope_lessons._extras import extra

with extra("book", "rope_lessons.figures"):
    from matplotlib.text import Annotation, Text
    from matplotlib.ticker import FuncFormatter, LogFormatter, NullFormatter


ROOM = 0.88
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power_of_ten(value: float, _: Any = None) -> str:
    """Of a tick on a logarithmic axis; others have no label.

    >>> power_of_ten(1000.0), power_of_ten(0.01), power_of_ten(1.0), power_of_ten(20.0)
    ('10³', '10⁻²', '1', '')
    """
    exponent = round(math.log10(value)) if value > 0 else 0
    if abs(value / 10.0**exponent - 1) > 1e-9:
        return ""
    return "1" if exponent == 0 else "10" + str(exponent).translate(SUPERSCRIPTS)


def plain_powers(figure: Any) -> None:
    """Powers of ten as plain text: matplotlib would set them small, letter by letter, in the font of its own."""
    for axis in figure.axes:
        for line in (axis.xaxis, axis.yaxis):
            if isinstance(line.get_major_formatter(), LogFormatter):
                of_ten = line.get_transform().base == 10
                line.set_major_formatter(FuncFormatter(power_of_ten if of_ten else lambda value, _: f"{value:g}"))
                line.set_minor_formatter(NullFormatter())


def fit(figure: Any, least_type: float) -> None:
    for text in figure.findobj(Text):
        text.set_fontsize(max(text.get_fontsize(), least_type))
    figure.canvas.draw()
    for axis in figure.axes:
        for text in (axis.title, axis.xaxis.label):
            box = text.get_window_extent()
            middle = (box.x0 + box.x1) / 2
            _break_lines(text, 2 * min(middle, figure.bbox.width - middle))
        box = axis.yaxis.label.get_window_extent()
        middle = (box.y0 + box.y1) / 2
        room = min(2 * min(middle, figure.bbox.height - middle), figure.bbox.height / max(len(figure.axes), 1))
        _break_lines(axis.yaxis.label, room)
        for text in axis.texts:
            _move_in(text, figure)
    if figure._suptitle is not None:
        _break_lines(figure._suptitle, figure.bbox.width)
    figure.canvas.draw()
    for axis in figure.axes:
        _thin(axis.xaxis.get_ticklabels())
    figure.canvas.draw()


def _move_in(text: Text, figure: Any) -> None:
    """What sticks out at the right ends where the figure ends."""
    beyond = text.get_window_extent().x1 - figure.bbox.width
    if beyond > 0 and isinstance(text, Annotation):
        x, y = text.xyann
        text.xyann = (x - 72 * beyond / figure.dpi, y)
    elif beyond > 0:
        text.set_horizontalalignment("right")


def _break_lines(text: Text, room: float) -> None:
    """In as many lines as it takes to be no longer than the room, less what another font of the reader takes more."""
    box = text.get_window_extent()
    length = max(box.width, box.height)
    if length > ROOM * room and "\n" not in text.get_text():
        lines = int(length / (ROOM * room)) + 1
        words = text.get_text()
        text.set_text("\n".join(textwrap.wrap(words, max(len(words) // lines + 4, 8))))


def _thin(labels: Sequence[Text]) -> None:
    """Leave out every other label of an axis while two of them touch."""
    shown = [label for label in labels if label.get_visible() and label.get_text()]
    while len(shown) > 2 and _touch(shown):
        for label in shown[1::2]:
            label.set_visible(False)
        shown = shown[::2]


def _touch(labels: Sequence[Text]) -> bool:
    boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: box.x0)
    return any(left.x1 + 2 > right.x0 for left, right in pairwise(boxes))
