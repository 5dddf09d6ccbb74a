"""The front door: its numbers are the scoreboard's, its cards and paths name every chapter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup

from rope_lessons import figures
from rope_lessons.figures.scoreboard import measured
from rope_lessons.stored import results
from tools import front, project, reading
from tools.myst import Directive, tags, walk
from tools.project import ROOT

INDEX = (ROOT / "book" / "index.md").read_text("utf8")
NUMBERS = re.compile(r"predicts (\d+) % of the bytes at 64 and only (\d+) % at 512.*? back to (\d+) %")


def test_the_first_sentence_is_measured() -> None:
    board = results("scoreboard")["rows"]
    shown = NUMBERS.search(INDEX)
    assert shown
    cases = (("rope", 64), ("rope", 512), ("yarn", 512))
    assert [int(number) for number in shown.groups()] == [
        round(measured(board, row, "natural", length)[0]) for row, length in cases
    ]


def test_every_chapter_has_a_card_with_a_small_picture() -> None:
    page = BeautifulSoup(front.cards(ROOT), "html.parser")
    names = [path.stem for path in project.chapters(ROOT)]
    assert [card["href"] for card in page.select(".rl-card")] == [f"{name}.html" for name in names]
    assert all(card.svg.contents for card in page.select(".rl-card")), "a new chapter needs its thumbnail"
    assert all(len(front.thumbnail(name)) < 8_000 for name in names)
    assert [card.small.text for card in page.select(".rl-card")] == [
        reading.minutes(path) for path in project.chapters(ROOT)
    ]


def test_the_minutes_of_a_path_are_counted() -> None:
    one, both = (front.minutes(names, ROOT) for names in ("05_circles", "02_rotary 05_circles"))
    assert one == reading.minutes(ROOT / "book" / "05_circles.md")
    assert both.endswith("minutes")
    assert int(both.split()[0]) > int(one.split()[0])
    assert "hours" in front.minutes("all", ROOT)
    evening = front.minutes("02_rotary 03_radix 05_circles 06_entropy 08_rerope", ROOT)
    assert evening.endswith("minutes"), "less than 100 of them: it is one evening"
    assert [front._hours(count) for count in (104, 118)] == ["1 hour 40 minutes", "2 hours"]


def test_a_link_to_a_section_needs_the_section() -> None:
    assert front.section("05_circles#count-the-turns", ROOT) == ("05_circles.html#count-the-turns", "Count the turns")
    with pytest.raises(ValueError, match="no section no-such"):
        front.section("05_circles#no-such", ROOT)


def test_links_to_sections_lead_somewhere(html: Path) -> None:
    page = BeautifulSoup((html / "book" / "reading_paths.html").read_text("utf8"), "html.parser")
    links = [link["href"].split("#") for link in page.select("article a[href*='.html#']")]
    assert len(links) >= 8
    for name, anchor in links:
        target = BeautifulSoup((html / "book" / name).read_text("utf8"), "html.parser")
        assert target.find(id=anchor), f"{name}#{anchor}"


def test_the_visible_code_of_the_quickstart_runs_by_itself() -> None:
    """Who pastes what the page shows has every name: no cell counts on a folded one."""
    path = ROOT / "book" / "quickstart.md"
    cells = [block for block in walk(path.read_text("utf8"), 1, path) if isinstance(block, Directive)]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell.name == "code-cell" and not {"hide-input", "remove-input"}.intersection(tags(cell)):
            exec(cell.body, names)
    assert names["score"](3, 1) == names["score"](103, 101)


def test_the_readout_counts_the_red_hands() -> None:
    """Pair 3 at a distance of 200 has come round to an angle of training: it is black, and is told apart."""
    shown = figures.distance_explorable(distance=200, train_length=64)
    assert shown.svg.count("rl-out") == 4
    assert shown.says == "4 of 8 hands stand at an angle that training never showed; 1 more has passed through some."
    assert "Every hand stands where training has had it." in figures.distance_explorable(distance=63)._repr_html_()


def test_what_is_said_of_a_picture_is_heard() -> None:
    """An image has one fixed name, so what changes stands outside it."""
    page = BeautifulSoup(figures.distance_explorable()._repr_html_(), "html.parser")
    says = page.select_one("[aria-live=polite].rl-says")
    assert says is not None
    assert says.text == "Every hand stands where training has had it.", "the reader makes the first move"
    assert not says.find_parents(attrs={"role": "img"})


def test_red_begins_beyond_the_training_length() -> None:
    """Texts of 64 tokens have distances up to 63: no hand is new there, and every open one a token on."""
    assert "no red" in figures.distance_explorable(distance=63, train_length=64).alt
    beyond = figures.distance_explorable(distance=64, train_length=64)
    assert "in red, at pairs 3, 4, 5, 6, 7" in beyond.alt
    assert beyond.says.startswith("5 of 8 hands stand at")
    picture = BeautifulSoup(figures.distance_explorable()._repr_html_(), "html.parser").select(".rl-dial svg")
    assert all(len(dial.select("circle")) == 7 and len(dial.select("line")) == 2 for dial in picture), (
        "as the script counts"
    )
    with pytest.raises(ValueError, match="train_length must be a power of two from 16 to 4096, got 100"):
        figures.distance_explorable(train_length=100)
    with pytest.raises(ValueError, match="must be at most longest = 512, got 600 and 64"):
        figures.distance_explorable(distance=600)
