"""The page of claims: a plain list with anchors and links, and the filter that a script adds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse

import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import Browser, Page

from tools import ledger
from tools.claims_page import ORDER
from tools.project import ROOT, address

pytestmark = pytest.mark.book
ROWS = ledger.claims()
ORIGINAL = [row for row in ROWS if row["original"] == "original"]


def of(verdict: str, rows: list[dict[str, str]], chapter: str = "") -> int:
    return sum(row["verdict"] == verdict and chapter in ("", row["chapter"]) for row in rows)


@pytest.fixture(scope="module")
def plain(html: Path) -> BeautifulSoup:
    return BeautifulSoup((html / "book" / "claims.html").read_text("utf8"), "html.parser")


def test_every_claim_has_its_anchor_chapter_and_test(html: Path, plain: BeautifulSoup) -> None:
    items = {item["id"]: item for item in plain.select("li.rl-claim")}
    assert sorted(items) == sorted(row["id"] for row in ROWS)
    for row in ROWS:
        item = items[row["id"]]
        assert item.select_one(".rl-verdict").get_text() == row["verdict"]
        links = {link.get_text(): link["href"] for link in item.select(".rl-where a")}
        assert links[f"#{row['id']}"] == f"#{row['id']}"
        page = links[f"Chapter {int(row['chapter'])}"]
        assert (html / "book" / page).exists()
        assert page.startswith(row["chapter"])
        assert ("test" in links) is bool(row["test"])


def test_links_to_tests_lead_to_their_lines(plain: BeautifulSoup) -> None:
    for row in ROWS:
        if not row["test"]:
            continue
        item = plain.find(id=row["id"])
        link = next(link["href"] for link in item.select(".rl-where a") if link.get_text() == "test")
        path, name = row["test"].split("::")
        assert link.startswith(address())
        assert urlparse(link).path.endswith(path)
        line = int(urlparse(link).fragment.removeprefix("L"))
        assert f"def {name}(" in (ROOT / path).read_text("utf8").splitlines()[line - 1]


def test_the_articles_come_first_and_the_extension_is_folded(plain: BeautifulSoup) -> None:
    order = [item["id"] for item in plain.select("li.rl-claim")]
    assert set(order[: len(ORIGINAL)]) == {row["id"] for row in ORIGINAL}
    assert not plain.select("details[open]")
    folded = [item["id"] for item in plain.select("details.rl-folded li.rl-claim")]
    assert folded == order[len(ORIGINAL) :]
    rows = {row["id"]: row for row in ROWS}
    for listed in plain.select(".rl-claim-list"):  # refuted ones on top
        verdicts = [rows[item["id"]]["verdict"] for item in listed.select("li.rl-claim")]
        assert verdicts == sorted(verdicts, key=ORDER.index)
    text = re.sub(r"\s+", " ", plain.get_text())
    assert ledger.verdict_counts(ORIGINAL) in text
    assert "Document 0" not in text


@pytest.fixture
def page(browser: Browser, server: str) -> Iterator[Page]:
    found = browser.new_page(viewport={"width": 390, "height": 844})
    found.set_default_timeout(120_000)
    found.goto(f"{server}/book/claims.html", wait_until="domcontentloaded")
    found.wait_for_selector("form.rl-filter")
    yield found
    found.close()


def shown(page: Page) -> int:
    return int(page.evaluate("document.querySelectorAll('li.rl-claim:not([hidden])').length"))


def count(page: Page) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", page.inner_text(".rl-filter output"))]


@pytest.mark.browser
def test_the_filter_counts_and_keeps_its_choice_in_the_address(page: Page) -> None:
    assert count(page) == [len(ORIGINAL), len(ROWS) - len(ORIGINAL)]
    page.select_option("select[name=verdict]", label="not reproduced")
    articles = of("not reproduced", ORIGINAL)
    assert count(page) == [articles, of("not reproduced", ROWS) - articles]
    page.select_option("select[name=chapter]", value="rl-chapter-08")
    assert shown(page) == of("not reproduced", ROWS, "08") > 0
    assert page.url.endswith("?verdict=not-reproduced&chapter=08")
    page.reload(wait_until="domcontentloaded")
    page.wait_for_selector("form.rl-filter")
    assert shown(page) == of("not reproduced", ROWS, "08")
    page.select_option("select[name=origin]", label="the extensions")
    assert count(page) == [0, of("not reproduced", [row for row in ROWS if row not in ORIGINAL], "08")]
    assert page.url.endswith("&origin=extension")
    page.click("text=Show all")
    page.wait_for_function(f"document.querySelectorAll('li.rl-claim:not([hidden])').length === {len(ROWS)}")


@pytest.mark.browser
def test_the_filter_works_by_keyboard(page: Page) -> None:
    page.focus("select[name=verdict]")
    page.keyboard.type("refuted")
    assert page.input_value("select[name=verdict]") == "rl-verdict-refuted"
    assert shown(page) == of("refuted", ROWS)
    for _ in ("the origin", "the button"):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.type") == "reset"
    page.keyboard.press("Enter")
    page.wait_for_function(f"document.querySelectorAll('li.rl-claim:not([hidden])').length === {len(ROWS)}")


@pytest.mark.browser
def test_a_link_to_a_folded_claim_opens_it(page: Page) -> None:
    """Also where the filter had hidden it."""
    assert next(row for row in ROWS if row["id"] == "c004-near-share")["verdict"] == "proved"
    page.select_option("select[name=verdict]", label="refuted")
    page.evaluate("location.hash = 'c004-near-share'")
    page.wait_for_function("document.getElementById('c004-near-share').checkVisibility()")
    assert page.evaluate("document.getElementById('c004-near-share').closest('details').open")


@pytest.mark.browser
def test_without_a_script_the_page_is_a_list(browser: Browser, server: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.goto(f"{server}/book/claims.html", wait_until="domcontentloaded")
    assert not page.is_visible("form.rl-filter")
    assert page.is_visible(f"li#{ORIGINAL[0]['id']}")
    context.close()
