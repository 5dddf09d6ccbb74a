"""Slides for the teacher: what opens each lesson, on a screen or a sheet of its own, made from the built pages."""

from __future__ import annotations

from html import escape
from pathlib import Path

from bs4 import BeautifulSoup, Tag

from tools import project

PICTURES = ".rl-dials, .rl-explorable:not(.rl-sortable), .rl-figure"  # no table on a slide

PAGE = """<!DOCTYPE html>
<html lang="en" data-theme="light"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Slides – RoPE Lessons</title>
<link rel="icon" href="../_static/favicon.svg"><link rel="stylesheet" href="../_static/theme.css">
<link rel="stylesheet" href="../_static/book.css">
<style>
html {{ background: #fff; color: #1a1a1a; font: 20px/1.4 system-ui, sans-serif; }}
body {{ margin: 0; }}
section {{ box-sizing: border-box; min-height: 100vh; padding: 4vh 6vw; scroll-snap-align: start; break-after: page;
  display: flex; flex-direction: column; align-items: center; justify-content: center; }}
h1 {{ font-size: 1.6em; margin: 0; text-align: center; }}
p {{ max-width: 42em; margin: .8em 0; text-align: center; }}
a {{ color: inherit; text-decoration: none; }}
.picture {{ width: min(100%, 900px); }}
.picture > * {{ max-width: none !important; margin: 0 auto; }}
.picture svg {{ max-height: 58vh; }}
.picture figcaption, .picture .rl-controls {{ display: none; }}
.rl-figure svg {{ max-width: 900px; }}
.rl-dials:has(.rl-dials-row ~ .rl-dials-row ~ .rl-dials-row ~ .rl-dials-row) .rl-dials-row {{ padding: 3px 0; }}
.rl-dials:has(.rl-dials-row ~ .rl-dials-row ~ .rl-dials-row ~ .rl-dials-row) .rl-dial svg {{ max-width: 48px; }}
@media (min-width: 900px) {{ html {{ scroll-snap-type: y mandatory; }} }}
@page {{ size: A4 landscape; margin: 0; }}
@media print {{ section {{ height: 100vh; }} }}
</style></head><body>
{sections}
</body></html>
"""


def write(html: Path, root: Path = project.ROOT) -> Path:
    """Write ``book/slides.html`` beside the built pages.

    Args:
        html: the folder of the built book.
        root: of the sources, which say what is a lesson.
    """
    lessons = [path for path in project.chapters(root) if project.is_lesson(path)]
    sections = [_slide(html / "book" / f"{path.stem}.html") for path in lessons]
    out = html / "book" / "slides.html"
    out.write_text(PAGE.format(sections="\n".join(sections)), "utf8")
    return out


def _slide(page: Path) -> str:
    """Title, question and first picture of a lesson, which stands still here."""
    opening = BeautifulSoup(page.read_text("utf8"), "html.parser")
    title, question, picture = (_first(opening, what, page) for what in ("h1", "p > em", PICTURES))
    for link in question.select("a"):  # the glossary is not beside a sheet of paper
        link.unwrap()
    return (
        f'<section><h1><a href="{page.name}">{escape(title.get_text().strip().rstrip("#"))}</a></h1>\n'
        f"<p>{question.decode_contents()}</p>\n"
        f'<div class="picture">{_still(picture)}</div></section>'
    )


def _first(page: BeautifulSoup, what: str, path: Path) -> Tag:
    found = page.select_one(f"article :is({what})")
    if found is None:
        raise ValueError(f"{path} must have {what}: a lesson opens with a title, a question and a picture")
    return found


def _still(picture: Tag) -> str:
    """The picture without its script: on a slide nobody moves it."""
    for script in picture.select("script"):
        script.decompose()
    return str(picture)
