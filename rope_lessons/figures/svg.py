"""A matplotlib figure as a piece of a page: an SVG whose colours follow the theme and whose type is the page's."""

from __future__ import annotations

import hashlib
import io
import re
from collections import Counter
from typing import Any

from rope_lessons._extras import extra
from rope_lessons.figures.theme import with_theme

with extra("book", "rope_lessons.figures"):
    from matplotlib.colors import to_rgb

# Text as text, no time stamp, and the same names of parts each time.
SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rope-lessons",
    "image.interpolation": "none",
    "path.simplify_threshold": 0.5,
}
ALWAYS_BLACK, ALWAYS_WHITE = "#010101", "#fefefe"  # no colours of the palette, so they do not change
NUMBER = re.compile(r"(?<![\w#.])-?\d+\.\d{2,}(?:e-?\d+)?(?![\w.])")
FONT = re.compile(r"font: (?:(?P<weight>bold|\d{3}) )?(?P<size>[\d.]+px) [^;\"]*")
FAMILY = re.compile(r";? ?font-family: [^;\"]*")
PER_POINT = 1.35  # pixels at most, on a laptop


def themed_svg(figure: Any, css_class: str) -> str:
    """The figure as an ``<svg>`` element for a page: no size of its own, no fonts, names of its own.

    Coordinates are rounded to a tenth of a point, numbers below 1 to three decimals; what is written stays.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = svg.replace("xlink:href", "href").replace("base64,\n", "base64,")
    svg = re.sub(r"\s*\n\s*", " ", svg).replace("> <", "><")
    svg = re.sub("<[^>]*>", lambda tag: NUMBER.sub(_rounded, tag[0]), svg)
    svg = FONT.sub(lambda found: f"font-size: {found['size']}" + _weight(found["weight"]), svg)
    svg = FAMILY.sub("", svg)
    svg = re.sub(r' transform="rotate\(-0 [^"]*"|<g/>', "", svg)
    # After a move, lines go without saying; not after a curve.
    svg = re.sub(r' d="[^"QC]*"', lambda found: found[0].replace(" L ", " "), svg)
    svg = _without_bare_groups(svg)
    svg = _own_names(_shared_styles(_coloured_type(with_theme(svg, fallback=False))))
    box = re.search(r'viewBox="([^"]*)"', svg)
    assert box
    widest = float(box[1].split()[2]) * PER_POINT
    head = (
        f'<svg class="{css_class}" viewBox="{box[1]}" style="max-width:{widest:.0f}px" aria-hidden="true" '
        'fill="var(--rl-ink)" stroke-linejoin="round">'
    )
    return head + svg[svg.index(">") + 1 :]


def keep_type_on_images(figure: Any) -> None:
    """What is written on the cells of an image keeps its black or white: the image does not follow the theme."""
    for axis in figure.axes:
        for text in axis.texts if axis.images else ():
            black = sum(to_rgb(text.get_color())) < 1.5
            text.set_color(ALWAYS_BLACK if black else ALWAYS_WHITE)


def _rounded(found: re.Match[str]) -> str:
    value = float(found[0])
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 1 else f"{value:.3f}".rstrip("0").rstrip(".")


def _weight(weight: str | None) -> str:
    return f"; font-weight: {weight}" if weight else ""


def _coloured_type(svg: str) -> str:
    """Type needs more contrast than lines: red and orange type has colours of its own."""
    return re.sub(r"(<text [^>]*fill: var\(--rl-(?:red|orange|sky|purple))\)", r"\1-type)", svg)


def _without_bare_groups(svg: str) -> str:
    """Groups that say nothing of their parts are left out."""
    kept: list[bool] = []

    def group(found: re.Match[str]) -> str:
        if found[0] == "</g>":
            return found[0] if kept.pop() else ""
        kept.append("=" in re.sub(r' id="[^"]*"', "", found[0]))
        return found[0] if kept[-1] else ""

    return re.sub(r"<g\b[^>]*>|</g>", group, svg)


def _shared_styles(svg: str) -> str:
    """A style that many marks in a row repeat stands once, around them."""

    def around(found: re.Match[str]) -> str:
        return f"<g{found['style']}>" + found[0].replace(found["style"], "") + "</g>"

    return re.sub(r"<use [^>]*?(?P<style> style=\"[^\"]*\")/>(?:<use [^>]*?(?P=style)/>)+", around, svg)


def _named_styles(svg: str, mark: str) -> str:
    """A style that stands three times or more gets a name."""
    styles = Counter(re.findall(r' style="([^"]*)"', svg))
    names = {style: f"{mark}-s{number}" for number, style in enumerate(styles) if styles[style] >= 3}
    rules = "".join(f".{name}{{{style}}}" for style, name in names.items())

    def named(found: re.Match[str]) -> str:
        return f' class="{names[found[1]]}"' if found[1] in names else found[0]

    head, body = svg.split(">", 1)
    return head + f"><style>{rules}</style>" + re.sub(r' style="([^"]*)"', named, body)


def _own_names(svg: str) -> str:
    """Only the parts that are used again keep a name, and it is unlike that of any other figure on the page."""
    used = re.findall(r'(?:href="#|url\(#)([^")]+)', svg)
    mark = "f" + hashlib.sha256(svg.encode()).hexdigest()[:4]
    names = {old: f"{mark}-{number}" for number, old in enumerate(dict.fromkeys(used))}
    svg = re.sub(r' id="([^"]*)"', lambda found: f' id="{names[found[1]]}"' if found[1] in names else "", svg)
    svg = re.sub(r'href="#([^"]+)"', lambda found: f'href="#{names[found[1]]}"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", lambda found: f"url(#{names[found[1]]})", svg)
    return _named_styles(svg, mark)
