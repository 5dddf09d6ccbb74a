"""The teacher's slides: one for each lesson, whole on a screen and on a sheet, without the network."""

from __future__ import annotations

from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import Browser

from tools import project, slides
from tools.project import ROOT

LESSONS = [path.stem for path in project.chapters(ROOT) if project.is_lesson(path)]


def test_a_slide_for_each_lesson(html: Path) -> None:
    page = BeautifulSoup((html / "book" / "slides.html").read_text("utf8"), "html.parser")
    sections = page.select("section")
    assert [link["href"] for link in page.select("section > h1 > a")] == [f"{name}.html" for name in LESSONS]
    assert len(sections) == len(LESSONS)
    for section in sections:
        (question,) = section.select("section > p")
        assert question.get_text().rstrip().endswith(("?", "."))
        assert section.select(".picture svg")
    assert not page.select("script")
    for link in page.select("link[href], a[href]"):
        assert (html / "book" / str(link["href"])).exists(), link


@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)])
def test_each_fills_a_screen_and_no_more(size: tuple[int, int], html: Path, browser: Browser) -> None:
    tab = browser.new_page(viewport={"width": size[0], "height": size[1]})
    tab.goto((html / "book" / "slides.html").as_uri())
    heights = tab.evaluate("[...document.querySelectorAll('section')].map((e) => e.getBoundingClientRect().height)")
    assert heights == [size[1]] * len(LESSONS)
    low = tab.evaluate("[...document.querySelectorAll('svg')].map((e) => e.getBoundingClientRect().width)")
    assert max(low) > 300
    sheets = tab.pdf(prefer_css_page_size=True).count(b"/Type /Page\n")
    tab.close()
    assert sheets == len(LESSONS)


def test_a_lesson_without_a_picture_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "book").mkdir()
    page = tmp_path / "book" / f"{LESSONS[0]}.html"
    page.write_text("<article><h1>One</h1><p><em>Why?</em></p></article>", "utf8")
    with pytest.raises(ValueError, match="must have"):
        slides.write(tmp_path)
