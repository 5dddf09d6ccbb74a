"""The colours of every picture: one palette that reads on white and on black, and one for each theme of the book.

Python draws with the first. In the book a colour is a CSS variable (``var(--rl-blue, #0072b2)``), which the theme of
the page sets; elsewhere nobody sets it, and the first palette is what is seen.
"""

from __future__ import annotations

import re

# After Okabe and Ito, told apart with every common kind of colour blindness; darker where theirs is too pale on white.
# On white and on #1e1e1e alike each has a contrast of at least 3:1, which lines and marks need.
BLUE, ORANGE, GREEN, RED = "#0072B2", "#B98300", "#009E73", "#D55E00"
PURPLE, SKY, GREY = "#C26B9B", "#3793C9", "#767676"
CYCLE = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY)

# Variable: (on any ground, in the light theme, in the dark theme). Type is in the ink, or the quiet ink, and needs
# 4.5:1. No colour has that on white and on black, so where the ground is unknown type is in the page's own colour.
PALETTE = {
    "ink": ("currentColor", "#1f2430", "#eceff4"),
    "quiet": ("currentColor", "#5b6472", "#a3adbd"),
    "line": ("rgba(128, 128, 128, 0.35)", "#dfe3ea", "#3d4655"),
    "blue": (BLUE, "#0072b2", "#56b4e9"),
    "orange": (ORANGE, "#b98300", "#f0b429"),
    "green": (GREEN, "#007f5b", "#2cc29a"),
    "red": (RED, "#cf3a24", "#ff6f5e"),
    "purple": (PURPLE, "#b8578f", "#e49bc4"),
    "sky": (SKY, "#2f8fc8", "#a5daf7"),
    "grey": (GREY, "#666666", "#a8a8a8"),
    # Type in a colour.
    "red-type": ("currentColor", "#a33c00", "#ff9a70"),
    "orange-type": ("currentColor", "#8a5a00", "#f0b429"),
    "sky-type": ("currentColor", "#1f6f9e", "#a5daf7"),
    "purple-type": ("currentColor", "#963f70", "#e49bc4"),
    # Areas, with type in the ink on them; and what is written on areas in full colour.
    "wash-blue": ("rgba(86, 180, 233, 0.35)", "#cfe6f5", "#1d4a66"),
    "wash-sky": ("rgba(60, 150, 210, 0.45)", "#8ec6e8", "#2a6489"),
    "wash-yellow": ("rgba(240, 180, 41, 0.3)", "#fdeab8", "#57470f"),
    "wash-orange": ("rgba(240, 160, 41, 0.38)", "#f5c97a", "#7a5716"),
    "wash-red": ("rgba(213, 94, 0, 0.45)", "#f0a585", "#853c20"),
    "wash-green": ("rgba(0, 158, 115, 0.4)", "#9fd8b4", "#27603f"),
    "wash-grey": ("rgba(128, 128, 128, 0.25)", "#e4e4e4", "#39414d"),
    "paper": ("#ffffff", "#ffffff", "#14181e"),
}
# What drawings have besides the palette's own colours.
ALSO = {
    "ink": ("#000", "#000000", "#1a1a1a", "#222", "#222222"),
    "quiet": ("#444", "#444444", "#555", "#555555"),
    "grey": ("#666", "#666666", "#999", "#999999"),
    "line": ("#ddd", "#d0d0d0", "#bbbbbb", "#b0b0b0"),
    "wash-grey": ("#e8e8e8",),
    "green": ("#00694d",),
    "paper": ("#fff",),
}


def themed(name: str) -> str:
    """A colour as CSS has it: the theme's, and on a page without one that of any ground.

    >>> themed("blue")
    'var(--rl-blue, #0072B2)'
    """
    return f"var(--rl-{name}, {PALETTE[name][0]})"


def _known() -> dict[str, str]:
    own = {value: name for name, (anywhere, light, _) in PALETTE.items() for value in (anywhere.lower(), light)}
    also = {value: name for name, values in ALSO.items() for value in values}
    return {value: name for value, name in {**own, **also}.items() if value.startswith("#")}


KNOWN = _known()
_COLOUR = re.compile("#(?:[0-9a-f]{6}|[0-9a-f]{3})(?![0-9a-f])", re.IGNORECASE)


def with_theme(drawing: str, fallback: bool = True) -> str:
    """A drawing (SVG, or the script that changes it) whose known colours follow the theme of the page.

    Without ``fallback`` only a page of the book, which has the style sheet, can show it.

    >>> with_theme('<path stroke="#0072B2" fill="#123456"/>')
    '<path stroke="var(--rl-blue, #0072B2)" fill="#123456"/>'
    """

    def replaced(found: re.Match[str]) -> str:
        name = KNOWN.get(found[0].lower())
        if not name:
            return found[0]
        return themed(name) if fallback else f"var(--rl-{name})"

    return _COLOUR.sub(replaced, drawing)


def book_css() -> str:
    """The style sheet that gives the variables their values in the two themes of the book."""
    blocks = [
        f'html[data-theme="{theme}"] {{ '
        + " ".join(f"--rl-{name}: {values[column]};" for name, values in PALETTE.items())
        + " }"
        for column, theme in ((1, "light"), (2, "dark"))
    ]
    return "\n".join(blocks) + "\n"
