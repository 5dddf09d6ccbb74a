"""What a PNG without a ground of its own needs, to be read on white and on black alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rope_lessons._extras import extra
from rope_lessons.figures.theme import GREY

with extra("book", "rope_lessons.figures"):
    from matplotlib.artist import Artist
    from matplotlib.colors import to_rgb, to_rgba
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.patheffects import AbstractPathEffect, withStroke
    from matplotlib.text import Text

HALO: list[AbstractPathEffect] = [withStroke(linewidth=3, foreground="white")]
TYPE = 0.7  # of red, green and blue: so dark is type in a colour, for a contrast of 4.5:1 against its halo
DARK = 0.75  # the sum of red, green and blue up to which a line is lost on black


def is_dark(color: Any) -> bool:
    return sum(to_rgb(color)) <= DARK


@contextmanager
def for_any(figure: Any) -> Iterator[None]:
    """Within it, black lines are grey and dark type has a white halo, which no one sees on white."""
    undo: list[Callable[[], Any]] = []
    for artist in figure.findobj(Artist):
        undo += _changed(artist)
    try:
        yield
    finally:
        for back in undo:
            back()


def _changed(artist: Artist) -> list[Callable[[], Any]]:
    """Change an artist; what takes it back."""
    if isinstance(artist, Text):
        if sum(to_rgb(artist.get_color())) > 2.4:  # light type stands on a dark area of its own
            return []
        written = artist.get_color()
        red, green, blue = (TYPE * part for part in to_rgb(written))
        artist.set_color((red, green, blue))
        artist.set_path_effects(HALO)
        return [lambda: artist.set_path_effects([]), lambda: artist.set_color(written)]
    if isinstance(artist, Line2D) and is_dark(artist.get_color()):
        color = artist.get_color()
        artist.set_color(GREY)
        return [lambda: artist.set_color(color)]
    if isinstance(artist, Patch) and to_rgba(artist.get_edgecolor())[3] and is_dark(artist.get_edgecolor()):
        edge = artist.get_edgecolor()
        artist.set_edgecolor(GREY)
        return [lambda: artist.set_edgecolor(edge)]
    return []
