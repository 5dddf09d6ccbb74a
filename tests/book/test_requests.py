"""A page asks no other host for anything, whatever a reader does with its formulas, and no script of it could."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request

pytestmark = pytest.mark.book

# --- what the files name --------------------------------------------------------------------------------------

# Addresses in scripts that no script asks, each with the file (a pattern) and the reason.
NAMED = {
    "http://www.w3.org/": (r".*", "the name of an XML namespace"),
    "https://clipboardjs.com/": (r"clipboard\.min\.js", "a comment"),
    "https://developer.mozilla.org/": (r"searchtools\.js", "a comment"),
    "https://pydata-sphinx-theme.readthedocs.io/": (r"pydata-sphinx-theme\.js", "told in the console to the builder"),
    "http://www.apache.org/licenses/": (r"(mhchem|all-packages)\.js", "a comment"),
    "https://github.com/mhchem/": (r"(mhchem|all-packages)\.js", "a comment"),
}
ADDRESS = re.compile(r"(?:https?|wss?|ftp)://[^\s\"'`<>)\\]+|(?<=[\"'`])//[\w-]+\.[\w.-]+")
IN_CSS = re.compile(r"(?:url\(\s*[\"']?|@import\s+[\"'])((?:https?:)?//[^)\"']+)")


def named_elsewhere(name: str, script: str) -> list[str]:
    """The addresses in a script that are neither this site's nor known as harmless."""
    return [
        f"{name}: {address}"
        for address in ADDRESS.findall(script)
        if not any(address.startswith(known) and re.fullmatch(file, name) for known, (file, _) in NAMED.items())
    ]


class Loaded(HTMLParser):
    """What the tags of a page load, and its own scripts. A link is not loaded: it takes a click."""

    LOADING = ("src", "srcset", "href", "data", "action", "poster")
    NOT_FOLLOWED = ("canonical", "search", "index", "next", "prev", "license")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.scripts: list[str] = []
        self.in_script = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.in_script = tag == "script"
        if tag != "a" and dict(attrs).get("rel") not in self.NOT_FOLLOWED:
            self.addresses += [value for key, value in attrs if key in self.LOADING and value]

    def handle_data(self, data: str) -> None:
        if self.in_script:
            self.scripts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self.in_script = False

    def elsewhere(self) -> list[str]:
        return [address for address in self.addresses if re.match(r"(https?:)?//", address)]


def test_scripts_name_no_other_host(html: Path) -> None:
    """In every script, styles and page of the built book; what the list above allows is still there."""
    found: list[str] = []
    known = set()
    for path in sorted(html.rglob("*.js")):
        if path.name != "searchindex.js":  # the words of the pages, data
            script = path.read_text("utf8")
            found += named_elsewhere(path.name, script)
            known |= {address for address in NAMED if address in script}
    for path in sorted(html.rglob("*.css")):
        found += [f"{path.name}: {address}" for address in IN_CSS.findall(path.read_text("utf8"))]
    for path in sorted(html.rglob("*.html")):
        page = Loaded(path.read_text("utf8"))
        found += [f"{path.name}: {address}" for address in page.elsewhere()]
        found += [address for script in page.scripts for address in named_elsewhere(path.name, script)]
    assert found == []
    assert known == set(NAMED)


def test_other_hosts_are_seen() -> None:
    script = 'a="https://cdn.jsdelivr.net/npm/x@"+version;b="//cdn.example.org/x.js";c="http://www.w3.org/2000/svg"//no'
    assert named_elsewhere("x.js", script) == ["x.js: https://cdn.jsdelivr.net/npm/x@", "x.js: //cdn.example.org"]
    assert named_elsewhere("x.js", "// https://clipboardjs.com/") == ["x.js: https://clipboardjs.com/"]
    styles = "a{b:url('https://x.org/f.woff')} @import \"//y.org/z.css\"; c{b:url(data:image/svg+xml,http://x)}"
    assert IN_CSS.findall(styles) == ["https://x.org/f.woff", "//y.org/z.css"]
    page = Loaded(
        "<a href=https://a.org>x</a><img src=//b.org/x.png><link rel=stylesheet href=https://c.org/x.css>"
        "<link rel=canonical href=https://d.org><img src=d.png><script>'<b>'</script>x<script src=e.js></script>"
    )
    assert page.elsewhere() == ["//b.org/x.png", "https://c.org/x.css"]
    assert page.scripts == ["'<b>'"]


# --- what a browser asks --------------------------------------------------------------------------------------

PAGE = "book/07_local"  # formulas of every kind, and not too many
# MathJax keeps a reader's choices for the whole host, so they may come from another book there.
CHOICES = {
    "explorer": True, "collapsible": True, "speech": True, "braille": True, "subtitles": True, "viewBraille": True,
    "locale": "de", "speechRules": "clearspeak-default", "magnification": "Keyboard", "inTabOrder": True,
}  # fmt: skip
READERS = {
    "as it comes": "",
    "with speech and braille": f"localStorage.setItem('MathJax-Menu-Settings', {json.dumps(json.dumps(CHOICES))})",
    # What MathJax's speech engine took for these browsers, it gave a script from a CDN.
    "like Internet Explorer": "window.ActiveXObject = function () {}; window.clipboardData = {};",
    "like the first Edge": "window.MSGestureEvent = function () {}; window.chrome = {loadTimes: null};",
}
TRY_FORMULAS = """() => {
  const formulas = [...document.querySelectorAll("mjx-container")];
  for (const one of formulas) {
    one.tabIndex = 0;
    one.focus();
    for (const key of ["Enter", " ", "ArrowDown", "ArrowRight", "Shift", "x", "d", "b", "s", "Escape"])
      for (const kind of ["keydown", "keyup"]) one.dispatchEvent(new KeyboardEvent(kind, {key, bubbles: true}));
    for (const kind of ["mouseover", "mousemove", "mousedown", "mouseup", "click", "dblclick", "contextmenu"])
      one.dispatchEvent(new MouseEvent(kind, {bubbles: true, cancelable: true}));
  }
  return formulas.length;
}"""


def use_formulas(tab: Page) -> int:
    """Every formula is focused, pointed at, clicked and typed on by a script; the first few by mouse and keyboard."""
    tab.evaluate("() => MathJax.startup.promise")
    for formula in tab.locator("p mjx-container:visible").all()[:2]:
        formula.scroll_into_view_if_needed()
        formula.hover()
        for button in ("left", "right"):
            formula.click(button=button)
        formula.focus()
        for key in ("Enter", "Space", "ArrowDown", "ArrowRight", "Shift+Space", "Escape"):
            tab.keyboard.press(key)
    return tab.evaluate(TRY_FORMULAS)


def wait_for_answers(tab: Page, waiting: list[Request]) -> None:
    """Until no request waits for its answer. A page that was idle once stays ``networkidle`` whatever it asks later."""
    tab.wait_for_timeout(500)
    for _ in range(100):
        if not waiting:
            return
        tab.wait_for_timeout(100)
    pytest.fail(f"no answer within ten seconds: {[one.url for one in waiting]}")


@pytest.fixture
def asked(browser: Browser, server: str) -> Callable[[str, str], tuple[int, list[str]]]:
    """(number of formulas, requests that go elsewhere or fail), after a reader has used a page's formulas."""

    def use(name: str, before: str) -> tuple[int, list[str]]:
        found: list[str] = []
        waiting: list[Request] = []
        with browser.new_context() as context:
            context.route(lambda address: not address.startswith(server), lambda route: route.abort())
            tab = context.new_page()
            tab.set_default_timeout(10_000)
            tab.on(
                "request", lambda one: None if one.url.startswith((f"{server}/", "data:")) else found.append(one.url)
            )
            # Functions of our own: playwright takes no built-in methods.
            tab.on("request", lambda one: waiting.append(one))
            for end in ("requestfinished", "requestfailed"):
                tab.on(end, lambda one: waiting.remove(one))
            tab.on("response", lambda one: found.append(f"{one.status}: {one.url}") if one.status >= 400 else None)
            tab.add_init_script(before)
            tab.goto(f"{server}/{name}.html")
            count = use_formulas(tab)
            wait_for_answers(tab, waiting)
        return count, found

    return use


@pytest.mark.browser
@pytest.mark.parametrize("reader", READERS)
def test_formulas_ask_no_other_host(reader: str, asked: Callable[[str, str], tuple[int, list[str]]]) -> None:
    count, elsewhere = asked(PAGE, READERS[reader])
    assert count > 50
    assert elsewhere == []


@pytest.mark.browser
def test_a_request_elsewhere_is_seen(asked: Callable[[str, str], tuple[int, list[str]]]) -> None:
    """Also one that only a click on a formula makes, and one that fails here."""
    late = """document.addEventListener("dblclick", () => {
      fetch("https://elsewhere.invalid/a").catch(() => 0); fetch("/none.json");
    }, {once: true})"""
    _, elsewhere = asked(PAGE, late)
    assert "https://elsewhere.invalid/a" in elsewhere
    assert any(one.startswith("404: ") and one.endswith("/none.json") for one in elsewhere)
