"""Every page of the built book in headless Chromium, as readers have it: laptop and phone, light and dark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from bs4 import BeautifulSoup
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, Response, expect

from tools.project import ROOT, chapters, colab_address, notebook_name, notebook_pages, page_name, toc_files

pytestmark = [pytest.mark.book, pytest.mark.browser]

NAMES = [*toc_files(ROOT), "search", "genindex"]
SCREENS = {"laptop": (1280, 900), "phone": (390, 844)}
# Loaded in the first theme, then switched to the second, as by a reader whose machine changes at sunset.
THEMES = {"laptop": ("dark", "light"), "phone": ("light", "dark")}

# What only the rendered page knows: {problem: [examples]}.
INSPECT = """() => {
  const article = document.querySelector("article") || document.body, seen = (e) => e.checkVisibility();
  const short = (e) => e.outerHTML.slice(0, 160);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const box = (e, kinds) => { for (let p = e; p && p !== document.body; p = p.parentElement) {
    if (kinds.includes(getComputedStyle(p).overflowX)) return p; } };
  const scrolls = (e) => box(e, ["auto", "scroll"]), right = (e) => e.getBoundingClientRect().right;
  const left = (e) => e.getBoundingClientRect().left;
  const text = (() => { const copy = article.cloneNode(true);
    copy.querySelectorAll("script, style, pre, code, mjx-container, svg, annotation").forEach((e) => e.remove());
    return copy.textContent; })();
  const wide = document.documentElement.clientWidth;
  return {
    "not typeset": all(".math", article).filter((e) => !e.querySelector("mjx-container")).map(short),
    "raw formula": (text.match(/.{0,30}(\\$\\$|\\\\begin\\{|\\\\\\(|\\\\frac).{0,30}/g) || []),
    "raw directive": (text.match(/.{0,20}(:::|\\{(eq|ref|doc|cite|term|prf:ref|code-cell)\\}).{0,30}/g) || []),
    "formula with an error": all("mjx-merror, [data-mjx-error]").map(short),
    "image not loaded": all("img").filter((e) => !e.complete || e.naturalWidth === 0).map(short),
    "image without alt text": all("img").filter((e) => !(e.getAttribute("alt") || "").trim()).map(short),
    "alt text is a path": all("img").filter((e) => /[0-9a-f]{20}|\\.(png|svg)$/.test(e.alt)).map(short),
    "picture without a name": all("svg", article).filter((e) => seen(e) && !e.getAttribute("aria-hidden")
      && !e.closest("mjx-container, button, a, summary, [role=img][aria-label]")
      && !e.getAttribute("aria-label")).map(short),
    "page wider than the screen": document.documentElement.scrollWidth > wide
      ? all("body *").filter((e) => seen(e) && right(e) > wide + 1 && !scrolls(e)).map(short) : [],
    "sticks out": all("p, li, table, pre, figure, img, svg, mjx-container, dt, h1, h2, h3, input", article)
      .filter((e) => seen(e) && !e.closest("mjx-assistive-mml") && right(e) > wide + 1 && !scrolls(e)).map(short),
    "type below 12 px": all(":is(.rl-figure, .rl-explorable) svg text, .rl-dials *", article).filter((e) => {
      if (!seen(e) || !e.textContent.trim()) return false;
      const scale = e.getScreenCTM ? Math.hypot(e.getScreenCTM().a, e.getScreenCTM().b) : 1;
      return parseFloat(getComputedStyle(e).fontSize) * scale < 11.9; }).map(short),
    "figure cut off": all(".rl-figure svg", article).filter((e) => {
      const frame = e.getBoundingClientRect();
      return seen(e) && all("text", e).some((t) => { const b = t.getBoundingClientRect();
        return b.left < frame.left - 3 || b.right > frame.right + 3 || b.top < frame.top - 3
          || b.bottom > frame.bottom + 3; }); }).map((e) => e.parentElement.getAttribute("aria-label").slice(0, 120)),
    "formula that only a mouse can scroll": all("mjx-container", article).filter((e) =>
      e.querySelector("mjx-math").getBoundingClientRect().width > Math.max(e.clientWidth, right(e) - left(e)) + 1
      && e.tabIndex < 0).map(short),
    "clipped formula": all("mjx-container", article).filter((e) => {
      const around = box(e, ["auto", "scroll", "hidden"]);
      return seen(e) && around && getComputedStyle(around).overflowX === "hidden" && right(e) > right(around) + 1;
    }).map(short),
  };
}"""


KEYBOARD = """() => {
  const all = [...document.querySelectorAll("a[href], button, input, summary, select, textarea")]
    .filter((e) => e.checkVisibility({visibilityProperty: true}) && !e.disabled && e.type !== "hidden");
  all.forEach((e, i) => { e.dataset.wanted = i; });
  window.visited = new Set();
  document.addEventListener("focusin", (event) => {
    if (event.target.dataset.wanted) window.visited.add(event.target.dataset.wanted); });
  document.activeElement.blur();
  return all.length;
}"""
# The contents beside a page unfold where a reader is: a link of theirs that is folded by now was not missed.
MISSED = """() => [...document.querySelectorAll("[data-wanted]")]
  .filter((e) => !window.visited.has(e.dataset.wanted)
    && (e.checkVisibility({visibilityProperty: true}) || !e.closest(".bd-sidebar-secondary")))
  .map((e) => e.outerHTML.slice(0, 200))"""


# Whether a text can be read depends on its colour, size and weight, and on what is painted below it. Of the thousands
# of words that look alike in all of these (the tokens of code, above all) axe looks at one.
ONE_OF_EACH_LOOK = """() => {
  const seen = new Set(), bare = "rgba(0, 0, 0, 0)|none|1|static|none|normal";
  const look = (e, below) => {
    const s = getComputedStyle(e);
    const own = [s.backgroundColor, s.backgroundImage, s.opacity, s.position, s.filter, s.mixBlendMode].join("|");
    if (own !== bare) below += " > " + own;
    const says = [...e.childNodes].some((c) => c.nodeType === 3 && c.data.trim());
    if (says || e.matches("input, textarea, select, button")) {
      const one = [e.localName, s.color, s.fontSize, s.fontWeight, s.textShadow, s.visibility, s.display, below].join();
      if (!seen.has(one)) e.dataset.look = "";
      seen.add(one);
    }
    for (const child of e.children) look(child, below);
  };
  document.querySelectorAll("[data-look]").forEach((e) => delete e.dataset.look);
  look(document.body, "");
  axe.configure({rules: [{id: "color-contrast", selector: "[data-look]"}]});
}"""


@pytest.fixture(scope="module")
def tabs(browser: Browser) -> Iterator[dict[str, Page]]:
    """One tab for each screen, used for every page of the book."""
    opened = {}
    for screen, (width, height) in SCREENS.items():
        context = browser.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce")
        opened[screen] = context.new_page()
    yield opened
    for tab in opened.values():
        tab.context.close()


@pytest.fixture
def tab(tabs: dict[str, Page]) -> Page:
    tabs["laptop"].emulate_media(color_scheme="light")
    return tabs["laptop"]


def open_page(tab: Page, address: str) -> None:
    """Load a page, open what is folded, and wait for its formulas."""
    tab.goto(address, wait_until="load")
    tab.evaluate("() => document.querySelectorAll('article details').forEach((e) => { e.open = true; })")
    tab.evaluate("async () => { if (window.MathJax && MathJax.startup) await MathJax.startup.promise; }")
    wait_for_animations(tab)


def set_theme(tab: Page, theme: str) -> None:
    """What the reader's machine wants; an open page follows."""
    tab.emulate_media(color_scheme=theme)
    tab.wait_for_function("(theme) => document.documentElement.dataset.theme === theme", arg=theme, timeout=10_000)
    wait_for_animations(tab)


def wait_for_animations(tab: Page) -> None:
    tab.evaluate("() => Promise.all(document.getAnimations().map((one) => one.finished.catch(() => 0)))")


def loading_problems(tab: Page, server: str, name: str) -> list[str]:
    """Open a page: messages in the console, errors of scripts, requests that fail or go elsewhere."""
    found: list[str] = []

    def request(one: Request) -> None:
        if not one.url.startswith((f"{server}/", "data:")):
            found.append(f"request to {one.url}")

    def response(one: Response) -> None:
        if one.status >= 400:
            found.append(f"{one.status}: {one.url}")

    def message(one: ConsoleMessage) -> None:
        if one.type in ("error", "warning"):
            found.append(f"console: {one.text}")

    def error(one: Exception) -> None:
        found.append(f"script error: {one}")

    listeners = {"request": request, "response": response, "console": message, "pageerror": error}
    for event, listener in listeners.items():
        tab.on(event, listener)
    open_page(tab, f"{server}/{name}.html")
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)
    return found


def empty_formulas(tab: Page) -> None:
    """Take the glyphs out, most of a page's elements.

    They are hidden from screen readers, which get a formula's MathML, and are no stops of the keyboard.
    """
    tab.evaluate("() => document.querySelectorAll('mjx-container > *').forEach((e) => e.remove())")


def accessibility_problems(tab: Page, theme: str) -> list[str]:
    """Serious findings of axe; in the dark theme only colours can be different."""
    options = {"resultTypes": ["violations"], **({"runOnly": ["color-contrast"]} if theme == "dark" else {})}
    if not tab.evaluate("() => 'axe' in window"):
        tab.evaluate(Axe().axe_script)
    tab.evaluate(ONE_OF_EACH_LOOK)
    findings = tab.evaluate("(options) => axe.run(options)", options)["violations"]
    serious = [finding for finding in findings if finding["impact"] in ("serious", "critical")]
    return [
        f"{finding['id']}: {node['html'][:200]}: {node['failureSummary'][:300]}"
        for finding in serious
        for node in finding["nodes"][:3]
    ]


def keyboard_problems(tab: Page) -> list[str]:
    """Visible links, buttons, inputs and folds that pressing Tab never reaches."""
    wanted = tab.evaluate(KEYBOARD)
    visited, idle = 0, 0
    while visited < wanted and idle < 3:  # boxes that scroll are stops too: go on while there is progress
        for _ in range(20):
            tab.keyboard.press("Tab")
        before, visited = visited, tab.evaluate("window.visited.size")
        idle = 0 if visited > before else idle + 1
    if tab.evaluate(MISSED):  # contents beside the page that unfolded as it scrolled on: once round from here
        for _ in range(wanted):
            tab.keyboard.press("Tab")
    return [f"out of the keyboard's reach: {element}" for element in tab.evaluate(MISSED)[:5]]


# The picture of each explorable (a sortable table has tests of its own) as the server sent it, before its script ran.
SENT = """async () => {
  const page = new DOMParser().parseFromString(await (await fetch(location.href)).text(), "text/html");
  return [...page.querySelectorAll(".rl-explorable:not(.rl-sortable) .rl-picture")].map((e) => e.innerHTML);
}"""


def explorable_problems(tab: Page) -> list[str]:
    """The script draws the first frame of Python; every slider and every row of buttons, by keyboard, changes it."""
    found = []
    for figure, sent in zip(tab.locator(".rl-explorable:not(.rl-sortable)").all(), tab.evaluate(SENT), strict=True):
        picture = figure.locator(".rl-picture")
        if drawn(picture) != sent:
            found.append("the script does not draw the first frame of Python")
        for slider in figure.locator("input[type=range]").all():
            found += slider_problems(tab, slider, picture)
        for choice in figure.locator("select").all():
            found += list_problems(choice, picture)
        found += button_problems(tab, figure, picture)
        for player in figure.locator("button[data-play]").all():
            found += player_problems(figure, player)
        for again in figure.locator("button[data-again]").all():
            found += again_problems(figure, again, picture)
    return found


def drawn(picture: Locator) -> str:
    """Without the marks of ONE_OF_EACH_LOOK, which a picture that is drawn anew has lost."""
    return picture.inner_html().replace(' data-look=""', "")


def slider_problems(tab: Page, slider: Locator, picture: Locator) -> list[str]:
    """It changes the picture, and back again restores it."""
    low, high, value = (float(slider.get_attribute(key) or "nan") for key in ("min", "max", "value"))
    there, back = ("ArrowRight", "ArrowLeft") if value < high else ("ArrowLeft", "ArrowRight")
    name, before = slider.get_attribute("name"), picture.inner_html()
    slider.focus()
    tab.keyboard.press(there)
    if not low < high or float(slider.input_value()) == value or picture.inner_html() == before:
        return [f"the slider {name} moves nothing"]
    tab.keyboard.press(back)
    if float(slider.input_value()) != value or picture.inner_html() != before:
        return [f"the slider {name} does not come back"]
    return []


def list_problems(choice: Locator, picture: Locator) -> list[str]:
    """Another choice changes the picture, and the first one restores it."""
    name, value, before = choice.get_attribute("name"), choice.input_value(), drawn(picture)
    choice.select_option(index=1 if choice.evaluate("(e) => e.selectedIndex") == 0 else 0)
    if drawn(picture) == before:
        return [f"the list {name} changes nothing"]
    choice.select_option(value=value)
    return [] if drawn(picture) == before else [f"the list {name} does not come back"]


def button_problems(tab: Page, figure: Locator, picture: Locator) -> list[str]:
    """Each row of buttons changes the picture, perhaps only when a button of another row is pressed.

    "factor" does nothing to plain RoPE.
    """
    rows: dict[str, list[Locator]] = {}
    for button in figure.locator("button[name]").all():
        rows.setdefault(button.get_attribute("name") or "", []).append(button)
    dead = set(rows)
    for pressed in [None, *(button for row in rows.values() for button in row)]:
        for name in sorted(dead):
            if pressed:
                pressed.press("Enter")
            seen = set()
            for button in rows[name]:
                button.press("Enter")
                seen.add(picture.inner_html())
                if button.get_attribute("aria-pressed") != "true":
                    return [f"a button of {name} cannot be pressed"]
            if len(seen) > 1:
                dead.discard(name)
    return [f"the buttons {name} change nothing" for name in sorted(dead)]


def player_problems(figure: Locator, player: Locator) -> list[str]:
    """It moves its slider by steps, stops when pressed again, and begins anew at the end."""
    name = player.get_attribute("data-play")
    slider = figure.locator(f"input[name={name}]")
    first, label = slider.input_value(), player.inner_text()
    player.press("Enter")
    try:
        expect(slider).not_to_have_value(first, timeout=3000)
    except AssertionError:
        return [f"the player {name} moves nothing"]
    player.press("Enter")
    problems = [] if player.inner_text() == label else [f"the player {name} does not stop"]
    slider.press("End")
    player.press("Enter")
    if slider.input_value() != slider.get_attribute("min"):
        problems.append(f"the player {name} does not begin anew")
    slider.press("Home")  # who touches the slider stops it
    return problems


def again_problems(figure: Locator, again: Locator, picture: Locator) -> list[str]:
    """It draws something else, and what was first after as many as there are."""
    name, before = again.get_attribute("data-again"), picture.inner_html()
    most = int(figure.locator(f"input[name={name}]").get_attribute("data-most") or 1)
    again.press("Enter")
    if picture.inner_html() == before:
        return [f"the button {name} draws nothing else"]
    for _ in range(most - 1):
        again.press("Enter")
    return [] if picture.inner_html() == before else [f"the button {name} does not come back"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("screen", SCREENS)
def test_page(name: str, screen: str, tabs: dict[str, Page], server: str) -> None:
    """One page as one reader has it, in both themes. What does not depend on the theme is looked at in the light."""
    tab = tabs[screen]
    tab.emulate_media(color_scheme=THEMES[screen][0])
    problems = loading_problems(tab, server, name)
    for theme in THEMES[screen]:
        set_theme(tab, theme)
        problems += [f"{what}: {examples[:3]}" for what, examples in tab.evaluate(INSPECT).items() if examples]
    empty_formulas(tab)
    for theme in reversed(THEMES[screen]):
        if screen == "laptop" or theme == "light":
            set_theme(tab, theme)
            if theme == "light":  # before axe scrolls: the contents beside the page unfold where a reader is
                problems += keyboard_problems(tab)
            problems += [f"{theme}: {problem}" for problem in accessibility_problems(tab, theme)]
    if screen == "laptop":
        problems += explorable_problems(tab)
    assert not problems, "\n".join(problems)


def test_problems_are_seen(tab: Page, server: str, html: Path) -> None:
    """The checks above find what they are for, on a page that has everything wrong."""
    bad = html / "bad_page.html"
    bad.write_text(
        "<html lang=en><title>x</title><article><p>raw $$x$$ and {eq}`a`</p><img src=none.png><img src=data: alt=''>"
        "<span class=math>x</span><mjx-merror>x</mjx-merror><p style='width:3000px'>wide</p>"
        "<svg width=9 height=9></svg><a href=# tabindex=-1>x</a><script>console.error('e'); throw Error('t')</script>"
        "<script src=http://elsewhere.invalid/x.js></script><button></button><p>black</p><p>black"
        "<i style='color:#bbb'>pale</i><b style='background:#111'>dark</b><b style='background:#111'>dark</b></p>"
        "<div class=rl-explorable><div class=rl-picture><svg></svg></div>"
        "<input type=range name=dead min=0 max=9 value=5>"
        "<select aria-label=l name=l><option>1<option>2</select>"
        "<button name=c aria-pressed=true>a</button><button name=c aria-pressed=true>b</button>"
        "<button data-play=dead>Play</button>"
        "<input type=hidden name=still data-most=3><button data-again=still>Again</button>"
        "<script>document.querySelector('.rl-picture').firstChild.id = 'other'</script></div>"
        "</article></html>",
        "utf8",
    )
    try:
        loading = "\n".join(loading_problems(tab, server, "bad_page"))
        for expected in ("request to http://elsewhere.invalid", "404", "console: e", "script error: t"):
            assert expected in loading
        seen = {what for what, examples in tab.evaluate(INSPECT).items() if examples}
        assert seen >= {
            "not typeset", "raw formula", "raw directive", "formula with an error", "image not loaded",
            "image without alt text", "picture without a name", "page wider than the screen", "sticks out",
        }  # fmt: skip
        assert explorable_problems(tab) == [
            "the script does not draw the first frame of Python",
            "the slider dead moves nothing",
            "the list l changes nothing",
            "the buttons c change nothing",
            "the player dead moves nothing",
            "the button still draws nothing else",
        ]
        empty_formulas(tab)
        assert len(keyboard_problems(tab)) == 1
        accessibility = "\n".join(accessibility_problems(tab, "light"))
        assert "button-name" in accessibility
        assert ">pale</i>" in accessibility
        assert accessibility.count(">dark</b>") == 1, "one of two that look alike"
    finally:
        bad.unlink()


FIRST, NEXT = 2_500_000, 600_000  # bytes, as served


def weight(tab: Page, address: str) -> int:
    """What a page loads, formulas included; what the browser has kept from an earlier page weighs nothing."""
    answers: list[Response] = []

    def keep(one: Response) -> None:
        answers.append(one)

    tab.on("response", keep)
    open_page(tab, address)
    tab.wait_for_load_state("networkidle")
    tab.remove_listener("response", keep)
    return sum(one.request.sizes()["responseBodySize"] for one in answers if one.url.startswith("http"))


def test_pages_are_light(browser: Browser, server: str) -> None:
    """The first page that a reader opens, and each page after it."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    first = weight(tab, f"{server}/book/index.html")
    assert first <= FIRST
    weight(tab, f"{server}/book/02_rotary.html")  # the fonts of its formulas
    weights = {path.stem: weight(tab, f"{server}/book/{path.stem}.html") for path in chapters(ROOT)}
    context.close()
    assert {name: bytes_ for name, bytes_ in weights.items() if bytes_ > NEXT} == {}


def test_long_lines_of_code_go_on_below(browser: Browser, server: str) -> None:
    """On a phone no box of code scrolls sideways, and the rest of a line stands further in than its beginning."""
    context = browser.new_context(viewport={"width": 390, "height": 800})
    tab = context.new_page()
    open_page(tab, f"{server}/book/02_rotary.html")
    found = tab.evaluate(
        """() => [...document.querySelectorAll("article div.highlight pre")].map((pre) => [
             pre.scrollWidth <= pre.clientWidth, [...pre.querySelectorAll(".rl-line")].map((line) => [
               parseFloat(getComputedStyle(line).paddingLeft), +line.style.getPropertyValue("--indent"),
               line.getClientRects()[0].height])])"""
    )
    context.close()
    lines = [line for _, of_box in found for line in of_box if line[2]]  # of boxes that are not folded
    assert lines
    assert all(fits for fits, _ in found)
    assert all(
        left == pytest.approx((indent + 4) * lines[0][0] / (lines[0][1] + 4), rel=0.01) for left, indent, _ in lines
    )


@pytest.mark.parametrize("page", ["02_rotary", "12_shootout", "15_models"])
def test_no_number_in_code_is_cut_in_two(browser: Browser, server: str, page: str) -> None:
    """On a phone a line breaks behind a bracket or a comma before it breaks within what stands there."""
    context = browser.new_context(viewport={"width": 390, "height": 800})
    tab = context.new_page()
    open_page(tab, f"{server}/book/{page}.html")
    found = tab.evaluate(
        """() => [...document.querySelectorAll("article div.highlight .mi, article div.highlight .mf")]
                 .map((number) => [number.textContent, number.getClientRects().length])"""
    )
    context.close()
    assert len(found) > 10
    assert [number for number, lines in found if lines > 1] == []


def test_search_finds_a_term(tab: Page, server: str) -> None:
    open_page(tab, f"{server}/book/quickstart.html")
    tab.keyboard.press("Control+k")
    tab.keyboard.type("interpolation")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("ul.search li a[href*='quickstart']", timeout=10_000)
    assert "q=interpolation" in tab.url


@pytest.mark.parametrize("path", chapters(ROOT), ids=lambda path: path.stem)
def test_a_chapter_has_an_explorable(path: Path, html: Path) -> None:
    page = BeautifulSoup((html / "book" / f"{path.stem}.html").read_text("utf8"), "html.parser")
    assert page.select(".rl-explorable .rl-controls :is(input, button, select)")


@pytest.mark.parametrize("path", notebook_pages(ROOT), ids=page_name)
def test_links_to_notebooks(path: Path, html: Path) -> None:
    """The Colab link names a notebook that exists; the download is that notebook, not raw directives."""
    page = (html / "book" / f"{page_name(path)}.html").read_text("utf8")
    links = BeautifulSoup(page, "html.parser").select("a[href*='colab.research.google.com']")
    assert [link["href"] for link in links] == [colab_address(notebook_name(path))]
    notebook = ROOT / "book" / "notebooks" / f"{notebook_name(path)}.ipynb"
    assert notebook.exists()
    offered = html / "_sources" / "book" / f"{page_name(path)}.ipynb"
    assert json.loads(offered.read_text("utf8")) == json.loads(notebook.read_text("utf8"))


def test_no_other_page_links_to_colab(html: Path) -> None:
    for name in toc_files(ROOT):
        if ROOT / f"{name}.md" not in notebook_pages(ROOT):
            assert "colab.research.google.com" not in (html / f"{name}.html").read_text("utf8"), name
