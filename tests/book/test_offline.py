"""The book as the release packs it, unpacked elsewhere and opened by file://, without a server and a network."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tools.release import pack_book

pytestmark = [pytest.mark.book, pytest.mark.browser]
LESSON = "book/05_circles.html"


@pytest.fixture(scope="module")
def unpacked(html: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("offline")
    with zipfile.ZipFile(pack_book(html, out)) as archive:
        archive.extractall(out / "book of RoPE")  # a space in the path, as people have
    return out / "book of RoPE"


@pytest.fixture
def tab(browser: Browser) -> Iterator[tuple[Page, list[str]]]:
    """A page, and every warning and error in its console, all that it fails to load or loads from elsewhere.

    The theme logs two lines of its own on each page; those are neither.
    """
    page, said = browser.new_page(), []
    page.set_default_timeout(60_000)
    page.on("console", lambda message: said.append(message.text) if message.type in ("warning", "error") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfailed", lambda request: said.append(f"not loaded: {request.url}"))
    page.on("request", lambda request: None if request.url.startswith(("file:", "data:")) else said.append(request.url))
    yield page, said
    page.close()


def test_formulas_and_explorables(unpacked: Path, tab: tuple[Page, list[str]]) -> None:
    page, said = tab
    page.goto((unpacked / LESSON).as_uri(), wait_until="load")
    page.wait_for_function("document.querySelectorAll('mjx-container svg, mjx-container mjx-math').length > 10")
    explorable = page.locator(".rl-explorable:has(button[name])").first
    before = explorable.locator(".rl-picture, .rl-dials").first.inner_html()
    explorable.locator("button[name][aria-pressed=false]").first.click()
    assert explorable.locator(".rl-picture, .rl-dials").first.inner_html() != before
    assert said == []


def test_search(unpacked: Path, tab: tuple[Page, list[str]]) -> None:
    page, said = tab
    page.goto(f"{(unpacked / 'search.html').as_uri()}?q=ReRoPE", wait_until="load")
    page.wait_for_selector("#search-results li a")
    links = page.locator("#search-results li a").evaluate_all("(links) => links.map((a) => a.href)")
    assert any("08_rerope" in link for link in links)
    assert said == []


def test_the_table_of_all_rows(unpacked: Path, tab: tuple[Page, list[str]]) -> None:
    page, said = tab
    page.goto((unpacked / "book" / "12_shootout.html").as_uri(), wait_until="load")
    page.get_by_role("button", name="YaRN", exact=True).click()
    assert page.locator("tr.rl-more:visible").count() == 1
    assert said == []


@pytest.mark.parametrize("name", ["index.html", "book/index.html", "book/claims.html", "book/quickstart.html"])
def test_nothing_is_missing(name: str, unpacked: Path, tab: tuple[Page, list[str]]) -> None:
    page, said = tab
    page.goto((unpacked / name).as_uri(), wait_until="load")
    page.wait_for_selector("article")
    assert said == []
