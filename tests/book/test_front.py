"""The front door: its numbers are the scoreboard's, its cards and paths name every chapter."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from bs4 import BeautifulSoup

import rope_lessons as rl
from rope_lessons import figures
from rope_lessons.figures import cheat
from rope_lessons.figures.scoreboard import measured
from rope_lessons.schemes import SCHEMES
from rope_lessons.scoreboard.recipe import RUNGS
from rope_lessons.stored import results
from tools import front, project, reading
from tools.myst import Directive, tags, walk
from tools.project import ROOT
from tools.sphinx_book import _direct

PATHS = (ROOT / "book" / "reading_paths.md").read_text("utf8")
INDEX = (ROOT / "book" / "index.md").read_text("utf8")
QUICKSTART = (ROOT / "book" / "quickstart.md").read_text("utf8")
BOARD = results("scoreboard")["rows"]
NUMBERS = re.compile(
    r"predicts (\d+) % of the bytes at 64 and only (\d+) % at 512.*? back to (\d+) %.*? 64 bytes, the model has (\d+) %"
)


def test_what_the_red_costs_is_measured() -> None:
    """And so is the control that spoils the fun, and what beats it and finds what is far."""
    shown = NUMBERS.search(INDEX)
    assert shown
    cases = (("rope", 64), ("rope", 512), ("yarn", 512), ("rope-window", 512))
    assert [int(number) for number in shown.groups()] == [
        round(measured(BOARD, row, "natural", length)[0]) for row, length in cases
    ]
    for metric, margin in (("far copies", 5), ("needle", 40)):
        beats, window = (measured(BOARD, row, metric, 512) for row in ("rerope-w32-logn-test", "rope-window"))
        assert beats[0] - window[0] > margin
        assert beats[1] > window[2], "the intervals do not overlap"
    assert RUNGS["small"].rows["rope-window"].method.test[0].visible_window == 64
    needles = [round(measured(BOARD, row, "needle", 512)[0]) for row in ("rope-window", "rerope-w32-logn-test")]
    untrained = {row for row in BOARD["row"] if BOARD.where(row=row)["training"][0] == "rope"}
    gains = [
        line["ahead_mean"]
        for line in BOARD.where(rung="small", metric="natural", length=512)
        if line["row"] in untrained and line["ahead_mean"] is not None
    ]
    assert f"Untrained, nothing here gains more than {100 * max(gains):.1f} points on that." in INDEX
    assert (
        "of numbers hidden in the text the window finds {} %, and ReRoPE with log n {} ({{doc}}`08_rerope`).".format(
            *needles
        )
        in INDEX
    )


def test_what_a_short_tuning_does() -> None:
    yarn, rope = (BOARD.where(rung="small-tuned-10", row=row, metric="needle", length=512) for row in ("yarn", "rope"))
    assert {*yarn["seeds"], *rope["seeds"]} == {3}
    told = "after a tenth more training YaRN finds {:.0f} % of the needles, plain RoPE tuned alike {:.0f}"
    assert told.format(100 * yarn["mean"][0], 100 * rope["mean"][0]) in QUICKSTART
    assert yarn["high"][0] - yarn["low"][0] > 1  # "far apart"


def red(name: str) -> list[int]:
    """The pairs with new angles, of a method of the Quickstart's pictures."""
    (_, row) = figures.dials(methods=[name]).drawn
    return [t for t, dial in enumerate(row) if dial.new > 0]


def test_new_angles_and_crowding() -> None:
    """Each sentence of Repair: what is red, what is slowed, and what the small model does."""
    assert red("none") == [3, 4, 5, 6, 7]
    assert red("PI") == red("YaRN") == []
    assert red("NTK-aware") == [3, 4, 5, 6]
    assert "the four red ones between are slowed, but by less than they need" in QUICKSTART
    speed = rl.yarn_frequencies(16, 8, 64) / rl.rope_frequencies(16)
    assert speed[0] == 1
    assert speed[3:].tolist() == pytest.approx([1 / 8] * 5)
    assert [1 / 8 < between < 1 for between in speed[1:3].tolist()] == [True, True]
    right = {row: measured(BOARD, row, "natural", 512)[0] for row in ("rope", "pi", "ntk-aware", "yarn")}
    assert min(right, key=right.__getitem__) == "pi"
    asked = (right["rope"], measured(BOARD, "rope", "natural", 64)[0])
    assert "model predicts {:.0f} % of the bytes there, and at its own length {:.0f}".format(*asked) in QUICKSTART
    assert min((60, 45, 30), key=lambda guess: abs(guess - right["pi"])) == 30
    assert "About 30, less than if nothing is done" in QUICKSTART
    home = measured(BOARD, "pi", "natural", 64)[0]
    assert f"even at 64, where no hand needed help, it has {home:.1f} %" in QUICKSTART
    small = rl.rope_frequencies(32)
    assert int((63 * small < 2 * torch.pi).sum()) == 11  # of its hands never came round
    assert "The small model has sixteen, of which eleven never came round" in QUICKSTART
    assert [f"{2 * torch.pi / speed:.3g}" for speed in (1, 0.01)] == ["6.28", "628"]


def test_of_the_table_only_rerope_finds_what_is_far() -> None:
    found = {
        row: measured(BOARD, row, "needle", 512)[0] for row in ("rope", "yarn", "rerope-w32-logn-test", "rope-window")
    }
    assert [row for row, share in found.items() if share > 100 / 3] == ["rerope-w32-logn-test"]
    assert measured(BOARD, "yarn", "needle", 64)[0] < 10
    assert measured(BOARD, "rope-window", "natural", 512)[1] > measured(BOARD, "yarn", "natural", 512)[2]


@pytest.mark.parametrize("changed", [False, True])
def test_the_lines_for_a_model_run(changed: bool, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """On a small model; and one whose frequencies were changed already refuses, as the page says."""
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=8192,
    )  # fmt: skip
    if changed:
        llama = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
        config.rope_parameters |= llama | {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    small = transformers.LlamaForCausalLM(config)
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", lambda name: small)
    setup, tried = re.findall(r"```python\n(import.*?|tried =.*?)```", QUICKSTART, re.DOTALL)[:2]
    names: dict[str, Any] = {"name": "small", "torch": torch, "tokenizer": SimpleNamespace(decode=str)}
    if changed:
        (line,) = re.findall(r"`(rl\.hf\.extend\(model, \"yarn\".*?)`", QUICKSTART)
        with pytest.raises(ValueError, match="frequencies"):
            eval(line, {"rl": rl, "model": small})
        return
    exec(setup, names)
    own = rl.hf.plan_of(small)
    assert own == rl.hf.advise(small, 32_768).plan
    assert (own[0].window, own[0].slope, own[0].scale) == (4096, 0, rl.LogN(8192, clip=True))
    texts = torch.randint(50, (3, 40), generator=torch.Generator().manual_seed(0))
    names |= dict(zip(("short", "long", "asked"), (texts[:1, :12], texts[1:2], texts[2:]), strict=True))
    exec(tried, names)
    assert len(capsys.readouterr().out.splitlines()) == 6
    assert rl.hf.plan_of(small) == own, "as before"


def test_what_a_scheme_is_and_what_it_is_not() -> None:
    assert "a `Scheme` is one setting of the five knobs" in QUICKSTART
    made = rl.METHODS["hwfa"](layers=4, dim=32, visible_window=16, train_length=64)
    assert len(set(made.train)) == 2
    bent = rl.METHODS["invleaky"](layers=2, dim=32, window=16, slope=16)
    assert bent.train != bent.test
    jumps = rl.METHODS["skip-positions"](layers=2, dim=32)
    assert jumps.train_positions is not None
    assert jumps.test_positions is None
    assert not {"self-extend", "sinusoidal"} & set(SCHEMES)
    assert rl.METHODS["self-extend"](layers=2, dim=32, window=32, group=8).attend is not None


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
    (whole, short) = re.findall(r"{minutes}`([^`]*)`", PATHS)[:2]
    for path in (whole, short):
        assert tuple(dict.fromkeys(name.partition("#")[0] for name in path.split())) == front.EVENING
        assert front.minutes(path, ROOT).endswith("minutes"), "less than 100 of them: it is one evening"
    assert int(front.minutes(short, ROOT).split()[0]) < int(front.minutes(whole, ROOT).split()[0])
    assert [front._hours(count) for count in (104, 118)] == ["1 hour 45 minutes", "2 hours"]
    every = [int(reading.minutes(path).split()[0]) for path in project.chapters(ROOT)]
    assert front.minutes("all", ROOT) == front._hours(sum(every)), "the cards add up"
    parts = [int(front.minutes(part, ROOT).split()[0]) for part in short.split()]
    assert front.minutes(short, ROOT) == f"{sum(parts)} minutes"


def test_the_minutes_of_a_part_are_counted() -> None:
    """The sections of a chapter are all of it but for what stands before the first."""
    path = ROOT / "book" / "03_radix.md"
    titles = [reading.slug(title) for title in reading.SECTION.findall(reading._body(path))]
    sections = [reading.of_a_section(path, title).words for title in titles]
    so_far = [reading.of_a_section(path, title, and_before=True).words for title in titles]
    assert [after - before for before, after in pairwise(so_far)] == sections[1:]
    assert so_far[-1] == reading.before_the_exercises(path).words
    part = int(front.minutes("03_radix#:every-hand-pays-in-full", ROOT).split()[0])
    assert 1 < part < int(front.minutes("03_radix", ROOT).split()[0])
    assert front.minutes("03_radix#every-hand-pays-in-full", ROOT) in ("1 minute", "2 minutes", "3 minutes")
    with pytest.raises(ValueError, match=r"03_radix\.md has no section no-such"):
        front.minutes("03_radix#no-such", ROOT)


def test_the_graph_shows_minutes_the_evening_and_what_no_other_needs() -> None:
    paths = {path.stem: path for path in project.chapters(ROOT)}
    needs = {name: project.front_matter(path).get("prerequisites", []) for name, path in paths.items()}
    page = BeautifulSoup(front.graph({name: _direct(name, needs) for name in needs}, paths), "html.parser")
    rows, dots = page.select("li"), page.select("circle")
    assert [row.select_one("span").text.split(",")[0] for row in rows] == [*map(reading.minutes, paths.values())]
    assert [name for name, row in zip(paths, rows, strict=True) if row.get("class") == ["rl-evening"]] == [
        *front.EVENING
    ]
    ends = [name for name, dot in zip(paths, dots, strict=True) if dot.get("class") == ["rl-end"]]
    assert ends == [name for name in paths if not any(name in befores for befores in needs.values())]
    assert "04_mixed_radix" in ends, "a side road, as it says itself"
    assert {"04", "11", "13", "14"} <= {name[:2] for name in ends}
    assert "for six, leave out 4, 11, 13 and 14, which no later chapter needs" in PATHS
    assert len(page.select("path.rl-evening")) == len(front.EVENING) - 1


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


def test_each_knob_of_the_front_page_is_drawn_by_a_method_that_turns_it() -> None:
    drawn = re.findall(r"\{sketch\}`[^<`]+ <([^>]+)>`", INDEX)
    knob_of = {entry.name: entry.knob for entry in cheat.METHODS_ON_IT}
    assert [knob_of[method] for method in drawn] == list(cheat.KNOBS)
