"""The cheat sheet: every line of code is what was measured, and the page prints on two sheets."""

from __future__ import annotations

import html
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser

import rope_lessons as rl
from rope_lessons.figures.cheat import KNOBS, METHODS_ON_IT, PICTURES, TRAINING, Entry
from rope_lessons.scoreboard.recipe import RUNGS
from rope_lessons.scoreboard.rows import searched
from rope_lessons.stored import results
from tools.cheat_sheet import FOOT, PAGE
from tools.project import ROOT, address, pages_address

BOARD = results("scoreboard")["rows"].where(rung="small")
each_entry = pytest.mark.parametrize("entry", METHODS_ON_IT, ids=lambda entry: entry.name)


@each_entry
def test_the_line_of_code_is_the_row_that_was_measured(entry: Entry) -> None:
    measured = RUNGS["small"].rows[entry.row].method
    found = searched(32, 64, 8.0)["longrope"]
    made = eval(entry.code, {"rl": rl, "d": 32, "N": 64, "factor": 8.0, "layers": 4, "searched": found})
    if isinstance(made, rl.Method):
        assert (made.train, made.test) == (measured.train, measured.test)
        assert (made.attend is None) == (measured.attend is None)
        assert repr(made.train_positions) == repr(measured.train_positions)
    else:
        assert (made,) * 4 == measured.test
    own = (isinstance(made, rl.Method) and made.attend is not None) or entry.name.endswith("ReRoPE, log n†")
    assert own == (entry.needs == "own attention")
    assert entry.needs.startswith(TRAINING) == (BOARD.where(row=entry.row)["training"][0] != "rope")


@each_entry
def test_numbers_are_those_of_the_scoreboard(entry: Entry) -> None:
    tax, over, needles = rl.figures.cheat_sheet().measured[entry.name]
    lines = {(line["metric"], line["length"]): line for line in BOARD.where(row=entry.row)}
    assert tax == 100 * lines["tax", 64]["mean"]
    assert needles == 100 * lines["needle", 512]["mean"]
    ahead = lines["far copies", 512]["ahead_mean"]
    assert over == (None if ahead is None else 100 * ahead)


@each_entry
def test_marks_say_what_the_intervals_say(entry: Entry) -> None:
    tax, over, needles = rl.figures.cheat_sheet().sure[entry.name]
    lines = {(line["metric"], line["length"]): line for line in BOARD.where(row=entry.row)}
    home, far, found = lines["tax", 64], lines["far copies", 512], lines["needle", 512]
    assert (tax == "sure") is (home["seeds"] > 1 and (home["low"] > 0 or home["high"] < 0))
    ahead = far["ahead_low"] is not None and (far["ahead_low"] > 0 or far["ahead_high"] < 0)
    assert (over == "sure") is (ahead and far["seeds"] > 1)
    assert (needles == "open") is (min(1, found["high"]) - max(0, found["low"]) > 0.5)


def test_few_seeds_look_like_no_fact() -> None:
    shown = rl.figures.cheat_sheet()._repr_html_()
    assert "78.0&nbsp;?" in shown
    assert "<b>14.4</b>" in shown


def test_the_ramps_of_yarn_and_of_llama3_differ() -> None:
    """As the sheet says: linear in the pair's number, or in the turns; from 32 turns, or from 4; both end at 1."""
    dim, length, factor = 128, 8192, 8.0
    plain = rl.rope_frequencies(dim)
    turned = (length * plain / (2 * math.pi)).tolist()
    kept = {}
    for name in ("yarn", "llama3"):
        spec = rl.scheme(name, dim=dim, factor=factor, train_length=length).frequencies
        assert spec is not None
        kept[name] = ((spec(length) / plain - 1 / factor) / (1 - 1 / factor)).tolist()
    ramp = {name: [t for t, share in enumerate(shares) if 0.02 < share < 0.98] for name, shares in kept.items()}
    assert max(turned[t] for t in ramp["yarn"]) == pytest.approx(32, rel=0.2)
    assert max(turned[t] for t in ramp["llama3"]) == pytest.approx(4, rel=0.2)
    steps = [kept["yarn"][t] - kept["yarn"][t + 1] for t in ramp["yarn"][:-1]]
    assert max(steps) == pytest.approx(min(steps), rel=1e-6)  # over the pair number
    for t in ramp["llama3"]:
        assert kept["llama3"][t] == pytest.approx((turned[t] - 1) / 3)  # over the turns
    formulas = {entry.name: entry.formula for entry in METHODS_ON_IT}
    assert "a ramp over t, between 32 turns in N and 1" in formulas["YaRN"]
    assert "a ramp over the turns in N, 4 to 1" in formulas["Llama 3’s rule"]


def test_the_page_says_where_it_is_from_and_what_its_letters_mean() -> None:
    page = (ROOT / "book" / "cheat_sheet.md").read_text("utf8")
    assert f"{pages_address()} · `pip install" in page
    assert f"git+{address()}" in page
    assert f"RoPE Lessons {rl.__version__} · {pages_address()}" in FOOT
    letters = page[page.index("**Letters.**") : page.index("**To run a row.**")]
    for letter in ("B", "a", "b", "w", "k", "r", r"\delta_h", r"\kappa_t", "P"):
        assert f"${letter}$" in letters
    assert "Every method of the book" not in page
    assert set(PICTURES) == set(KNOBS)


def test_what_the_page_says_of_numbers() -> None:
    page = " ".join((ROOT / "book" / "cheat_sheet.md").read_text("utf8").split())

    def percent(row: str, metric: str, length: int, column: str = "mean", rung: str = "small") -> float:
        (line,) = results("scoreboard")["rows"].where(rung=rung, row=row, metric=metric, length=length)
        return 100 * line[column]

    assert f"plain RoPE finds {percent('rope', 'needle', 64):.0f} % at $N$" in page
    seeds = results("scoreboard")["each_seed"].where(rung="second", row="yarn", metric="far copies", length=2048)
    ahead = [100 * each for each in seeds["ahead_mean"]]
    assert "YaRN is *ahead* of the window, by {:.1f} and {:.1f} points (two seeds)".format(*ahead) in page
    assert {round(percent(row, "tax", 64)) for row in ("yarn", "llama3")} == {4}
    assert all(percent(row, "far copies", 512, "ahead_high") < 0 for row in ("yarn", "llama3"))
    tuned = [percent(row, "far copies", 512, rung="small-tuned-10") for row in ("yarn", "rope")]
    names = ("rope", "pi", "ntk-aware", "yarn", "longrope", "rerope-w32")
    best = {s: {row: percent(row, "far copies", 512, rung=f"small-tuned-{s}") for row in names} for s in ("1", "10")}
    assert max(best["10"], key=best["10"].__getitem__) == "rerope-w32"
    behind = [round(best["10"][row] - tuned[1]) for row in ("yarn", "rerope-w32")]
    said = "after 10 % plain RoPE is {} point of far copies behind YaRN, {} behind ReRoPE."
    assert said.format(*behind) in page
    assert sorted(best["1"], key=best["1"].__getitem__)[-2:] == ["yarn", "rerope-w32"]
    assert best["1"]["rerope-w32"] - percent("rerope-w32-logn-test", "far copies", 512) < 1.5
    assert "with 1 % of the steps still the first line, or YaRN where the kernel must stay;" in page
    assert len(rl.hf.models()) == 42


def test_the_choice_has_the_numbers_of_the_sheet() -> None:
    page = (ROOT / "book" / "cheat_sheet.md").read_text("utf8")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
    chosen = {take: numbers for _, take, *numbers in cells[2:]}
    names = ("ReRoPE, log n†", "Window", "LongRoPE", "YaRN", "HWFA", "PoSE, log n", "InvLeaky, moving window, log n")
    assert len(chosen) == len(names)
    for name, (take, numbers) in zip(names, chosen.items(), strict=True):
        assert take.lower().removeprefix("a ").startswith(name.split(",")[0].lower())
        measured = rl.figures.cheat_sheet().measured[name]
        assert numbers == ["–" if x is None else f"{round(x, 1) + 0.0:.1f}".replace("-", "−") for x in measured]


def test_longrope_is_shown_with_its_factor() -> None:
    (entry,) = (entry for entry in METHODS_ON_IT if entry.name == "LongRoPE")
    found = searched(32, 64, 8.0)["longrope"]
    made = eval(entry.code, {"rl": rl, "d": 32, "N": 64, "factor": 8.0, "searched": found})
    assert made.rotary_scale**2 == pytest.approx(1 + math.log(8) / math.log(64))
    assert "scores × (1 + ln κ / ln N)" in entry.formula


@each_entry
def test_who_ships_it_is_what_the_files_say(entry: Entry) -> None:
    """Every family that is named has the idea by a file that was read; of the others the number is right."""
    families = {model.family: model for model in reversed(rl.hf.models().values()) if entry.idea in model.ideas}
    programs = {row["who"] for row in results("models")["elsewhere"] if row["method"] == entry.idea}
    assert bool(entry.ships) == bool(families or programs)
    if not entry.ships:
        assert entry.name.startswith(("ReRoPE", "Leaky", "InvLeaky", "log n", "StreamingLLM", "Random", "PoSE"))
        return
    told, _, rest = entry.ships.removeprefix(entry.as_what).partition(" and ")
    named = set(families) & set(told.split(", "))
    assert programs <= {told, *told.split(", ")} | {program for program in programs if program in told}
    assert len(named) == min(2, len(families))
    assert rest == (f"{len(families) - 2} more" if len(families) > 2 else "")


def test_the_rows_that_stood_there_by_hand() -> None:
    """What the lessons say of who ships what, found in the data again."""
    has = {name: model.ideas for name, model in rl.hf.models().items()}
    assert "llama3" in has["Llama 3.1 8B"]
    assert "yarn" in has["gpt-oss 20B"]
    assert "log n" in has["Qwen 1.8B"] & has["Llama 4 Scout"] & has["Ministral 3 3B"]
    assert "hwfa" in has["Command R7B"]
    assert {layer.sees for layer in rl.hf.known("Mistral 7B v0.1").layers} == {"window"}
    assert "longrope" in has["Phi-3.5 mini"]


def test_the_sheet_shows_every_method_once() -> None:
    shown = rl.figures.cheat_sheet()._repr_html_()
    for entry in METHODS_ON_IT:
        lesson = ROOT / "book" / f"{entry.lesson}.md"
        assert lesson.exists()
        assert shown.count(f'<th scope="row"><a href="{lesson.stem}.html">{html.escape(entry.name)}</a></th>') == 1
        assert html.escape(entry.code) in shown
    assert shown.count("<svg ") == len(METHODS_ON_IT) == shown.count('aria-label="')
    assert {entry.knob for entry in METHODS_ON_IT} == set(KNOBS)


@pytest.mark.book
@pytest.mark.browser
def test_it_prints_on_two_sheets(html: Path, tmp_path: Path) -> None:
    out = tmp_path / "sheet.pdf"  # by its command: the session's own browser is open in this process
    subprocess.run([sys.executable, "-m", "tools.cheat_sheet", out, "--book", html], cwd=ROOT, check=True, timeout=120)
    pdf = out.read_bytes()
    assert len(re.findall(rb"/Type /Page\s", pdf)) == 2
    boxes = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    assert {(round(float(wide)), round(float(high))) for wide, high in boxes} == {(842, 595)}  # A4, across, in points


@pytest.mark.book
@pytest.mark.browser
def test_nothing_is_cut_off_in_print(html: Path, browser: Browser) -> None:
    wide = round((297 - 20) / 25.4 * 96)  # what the margins leave, in CSS pixels
    tab = browser.new_page(viewport={"width": wide, "height": 700})
    tab.goto((html / PAGE).as_uri())
    tab.emulate_media(media="print")
    ends = tab.evaluate("[...document.querySelectorAll('.rl-cheat tr *')].map((e) => e.getBoundingClientRect().right)")
    assert max(ends) <= wide + 1
    names = tab.locator(".rl-cheat tbody th[scope=row]:visible").all_inner_texts()
    assert names == [entry.name for entry in METHODS_ON_IT]
    assert tab.locator(".bd-sidebar-primary:visible, .bd-header:visible").count() == 0
    tab.close()


@pytest.mark.book
@pytest.mark.browser
def test_a_phone_shows_cards(html: Path, browser: Browser) -> None:
    tab = browser.new_page(viewport={"width": 390, "height": 844})
    tab.goto((html / PAGE).as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    assert tab.locator(".rl-cheat thead:visible").count() == 0
    assert tab.locator(".rl-cheat svg:visible").count() == len(METHODS_ON_IT)
    cut = "(boxes) => boxes.filter((box) => box.scrollWidth > box.clientWidth).length"  # that scroll sideways
    assert tab.locator(".pst-scrollable-table-container").evaluate_all(cut) == 0
    tab.close()


@pytest.mark.book
@pytest.mark.browser
def test_a_laptop_shows_the_table_on_the_ground_of_the_page(html: Path, browser: Browser) -> None:
    for theme in ("light", "dark"):
        tab = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=theme)
        tab.goto((html / PAGE).as_uri())
        assert tab.locator(".rl-cheat thead:visible").count() == 1
        ground = "(e) => getComputedStyle(e).backgroundColor"
        assert tab.locator(".text_html:has(.rl-cheat)").evaluate(ground) == "rgba(0, 0, 0, 0)", theme
        ends = "[...document.querySelectorAll('.rl-cheat tr *')].map((e) => e.getBoundingClientRect().right)"
        assert max(tab.evaluate(ends)) <= 1280
        tab.close()
