"""What a lesson takes: words, screens, code, pictures; and the phrases that STYLE rules out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import Browser

from tools import budgets, reading
from tools.project import ROOT, chapter_pages, chapters, is_lesson, page_name

LESSONS = {path.stem: path for path in chapters(ROOT) if is_lesson(path)}
PAGES = {page_name(path): path for path in chapter_pages(ROOT) if path.stem in LESSONS}

FRONT = ("index", "quickstart", "reading_paths", "notation", "glossary", "cheat_sheet", "open_questions", "bug_museum")

# What a lesson or its deeper page still exceeds.
NOT_YET: dict[str, set[str]] = {}
# For good: (page, budget) and the reason. Two at most in the whole book.
EXCEPTIONS: dict[tuple[str, str], str] = {}


def excess(name: str, found: set[str]) -> set[str]:
    """Of the budgets exceeded, those that may not be."""
    return found - NOT_YET.get(name, set()) - {budget for page, budget in EXCEPTIONS if page == name}


def test_exceptions_are_few_and_have_reasons() -> None:
    assert len(EXCEPTIONS) <= 2
    assert all(page in PAGES and reason.strip() for (page, _), reason in EXCEPTIONS.items())
    assert set(NOT_YET) <= set(PAGES)


@pytest.mark.parametrize("name", LESSONS)
def test_source_keeps_its_budgets(name: str) -> None:
    found = budgets.of_the_source(LESSONS[name])
    assert not excess(name, set(found)), found


@pytest.mark.parametrize("name", PAGES)
def test_no_phrase_of_the_list(name: str) -> None:
    found = budgets.phrases(PAGES[name])
    assert not excess(name, {"phrases"} if found else set()), "\n".join(found)


# --- the sources: each excess is found ----------------------------------------------------------------------------

SMALL = """\
---
form: lesson
---

# 01 A lesson

One {doc}`two words <02_rotary>` $x + y$ three.

```{math}
:label: eq-x-y
not a word of it
```

```{admonition} Title words
five *six* seven
```

````{prf:proof}
:class: dropdown
folded words here
````

```{code-cell} ipython3
---
tags: [hide-input]
mystnb:
  figure:
    name: fig-x-y
    caption: Eight nine.
---
rl.figures.x()
```

```{code-cell} ipython3
:tags: [remove-input]
import torch
```

```{code-cell} ipython3
print(1)

print(2)
```

## Exercises

Not counted.
"""


@pytest.fixture
def lesson(tmp_path: Path) -> Path:
    path = tmp_path / "01_lesson.md"
    path.write_text(SMALL, "utf8")
    return path


def test_what_is_counted(lesson: Path) -> None:
    # "01 A lesson"; One two words three; Title words; five six seven; Eight nine
    assert reading.before_the_exercises(lesson) == reading.Reading(words=14, folded=3, code=2, pictures=1)


@pytest.mark.parametrize(
    ("budget", "extra"),
    [
        ("words", "word " * budgets.WORDS),
        ("folded", "```{dropdown} More\n" + "word " * budgets.FOLDED + "\nand one\n```"),
        ("code", "```{code-cell} ipython3\n" + "x = 1\n" * budgets.CODE + "```"),
    ],
)
def test_excess_in_a_source_is_found(budget: str, extra: str, lesson: Path) -> None:
    assert set(budgets.of_the_source(lesson)) == {"pictures"}
    figure = SMALL[SMALL.index("```{code-cell}") : SMALL.index("```{code-cell} ipython3\n:tags")]
    lesson.write_text(SMALL.replace("## Exercises", f"{figure * 4}\n{extra}\n\n## Exercises"), "utf8")
    assert set(budgets.of_the_source(lesson)) == {budget}


@pytest.mark.parametrize(
    "text",
    [
        "We shall return.",
        "It is 3 in the mean.",
        "See document 003 for that.",
        "Who of the two is right?",
        "It takes another value than before.",
        "```{admonition} What the extension says\nx\n```",
        "as {doc}`x <02_rotary>` Rotary: absolute in form, relative in effect found",
    ],
)
def test_a_phrase_is_found(text: str, lesson: Path) -> None:
    assert budgets.phrases(lesson) == []
    lesson.write_text(SMALL + text, "utf8")
    assert len(budgets.phrases(lesson)) == 1


@pytest.mark.parametrize(
    "text", ["In the meantime it fades.", "The mean is 3.", "a shallow model", "in the mean of five"]
)
def test_what_may_be_said(text: str, lesson: Path) -> None:
    lesson.write_text(SMALL + text, "utf8")
    assert budgets.phrases(lesson) == []


# --- the built pages ----------------------------------------------------------------------------------------------

# As loaded, folds closed. What is measured: words, screens, pictures, printed tables, what is wider than its column.
MEASURE = """() => {
  const article = document.querySelector("article") || document.body;
  const seen = (e) => e.checkVisibility(), all = (s, root = article) => [...root.querySelectorAll(s)];
  const top = (e) => e.getBoundingClientRect().top + scrollY, height = (e) => e.getBoundingClientRect().height;
  const end = all("section#exercises")[0];
  const before = (e) => !end || !(end === e || end.contains(e)
    || end.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING);
  const quiet = "pre, code.literal, script, style, svg, math, mjx-container, .math, .headerlink, .cell_input, summary";
  const count = (folded) => {
    const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT); let words = 0;
    while (walker.nextNode()) { const text = walker.currentNode, parent = text.parentElement;
      if (!before(parent) || parent.closest(quiet) || !!parent.closest("details:not([open])") !== folded) continue;
      if (parent.closest(".cell_output") && !parent.closest("figcaption")) continue;  // no prose, but its caption
      if (!folded && !seen(parent)) continue;
      words += text.data.split(/\\s+/).filter((w) => /[\\p{L}\\p{N}]/u.test(w)).length; }
    return words; };
  const picture = "figure, .rl-explorable, .rl-dials, img, svg";
  const pictures = all(picture).filter((e) => seen(e) && before(e) && e.getBoundingClientRect().width > 150
    && (e.matches("img, svg") || e.querySelector("img, svg"))
    && !e.closest("mjx-container, summary, button, a") && !e.parentElement.closest(picture));
  const column = /\\S( {2,}|\\t)\\S/;
  return {
    words: count(false), folded: count(true),
    screens: document.documentElement.scrollHeight / 900,
    pictures: pictures.length,
    first: pictures.length ? top(pictures[0]) + height(pictures[0]) / 2 : Infinity,
    printed: all(".cell_output pre").filter((e) => before(e)
      && e.textContent.split("\\n").filter((line) => column.test(line.trim())).length >= 3)
      .map((e) => e.textContent.slice(0, 80)),
    wide: all("table, img, svg, figure, pre, div.math, mjx-container, .cell_output *").filter((e) => seen(e)
      && before(e) && !e.closest("mjx-assistive-mml, details:not([open])")
      && (!e.closest("pre") || e.closest(".cell_output"))  // code may be scrolled
      && (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== "visible"
          || e.getBoundingClientRect().right > document.documentElement.clientWidth + 1))
      .map((e) => e.outerHTML.slice(0, 80)),
  };
}"""


def measured(browser: Browser, address: str) -> dict[str, str]:
    """Which budgets a built page exceeds, on a laptop and (what is too wide) on a phone."""
    found = {}
    for width, height in ((1280, 900), (390, 844)):
        context = browser.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce")
        tab = context.new_page()
        tab.goto(address, wait_until="load")
        tab.evaluate("async () => { if (window.MathJax && MathJax.startup) await MathJax.startup.promise; }")
        page = tab.evaluate(MEASURE)
        context.close()
        if width == 390:
            found |= {"wide": str(page["wide"][:3])} if page["wide"] else {}
            continue
        for budget, limit in (("words", budgets.WORDS), ("folded", budgets.FOLDED), ("screens", budgets.SCREENS)):
            if page[budget] > limit:
                found[budget] = f"{page[budget]:.0f} of {limit}"
        if page["pictures"] < budgets.PICTURES:
            found["pictures"] = f"{page['pictures']} of at least {budgets.PICTURES}"
        if page["first"] > height:
            found["first picture"] = f"its middle is at {page['first']:.0f} px"
        if page["printed"]:
            found["printed table"] = str(page["printed"][:3])
    return found


@pytest.mark.book
@pytest.mark.browser
@pytest.mark.parametrize("name", LESSONS)
def test_built_page_keeps_its_budgets(name: str, server: str, browser: Browser) -> None:
    found = measured(browser, f"{server}/book/{name}.html")
    assert not excess(name, set(found)), found


@pytest.mark.book
@pytest.mark.browser
@pytest.mark.parametrize("name", ["index", "quickstart"])
def test_the_front_door_keeps_them_too(name: str, server: str, browser: Browser) -> None:
    """But for the number of pictures: there is one for each thing that the page shows."""
    found = measured(browser, f"{server}/book/{name}.html")
    assert not found.keys() - {"pictures"}, found


@pytest.mark.book
@pytest.mark.parametrize("name", [*PAGES, *FRONT])
def test_no_phrase_of_the_list_on_a_built_page(name: str, html: Path) -> None:
    """What cells and stored results print counts, too."""
    page = BeautifulSoup((html / "book" / f"{name}.html").read_text("utf8"), "html.parser")
    article = page.select_one("article").get_text(" ")
    found = [match[0] for phrase in budgets.PHRASES for match in re.finditer(phrase, article, re.IGNORECASE)]
    assert found == []


PICTURE = "<svg role=img aria-label=x width=300 height=200></svg>"
GOOD = {
    "head": PICTURE,
    "words": "<p>" + "word " * 50 + "</p>",
    "folded": "<details><summary>More</summary><p>" + "word " * 50 + "</p></details>",
    "printed table": "<div class=cell_output><pre>one line\nof text, not\na table</pre></div>",
    "pictures": PICTURE * 4,
}
BAD = {
    "words": ("words", "<p>" + "word " * (budgets.WORDS + 1) + "</p>"),
    "folded": ("folded", GOOD["folded"].replace("word ", "word " * budgets.FOLDED)),
    "screens": ("words", f"<div style='height:{(budgets.SCREENS + 1) * 900}px'></div>"),
    "pictures": ("pictures", PICTURE * 3),
    "first picture": ("head", f"<div style='height:900px'></div>{PICTURE}"),
    "printed table": ("printed table", "<div class=cell_output><pre>a    b\n1    2\n3    4</pre></div>"),
    "wide": ("head", f"{PICTURE}<div class=cell_output style='overflow-x:auto'><p style='width:700px'>x</p></div>"),
}


def as_page(parts: dict[str, str], folder: Path) -> str:
    path = folder / "page.html"
    tail = "<section id=exercises><p>" + "word " * 5000 + "</p></section>"
    view = "<meta name=viewport content='width=device-width'>"
    small = "<style>section#exercises { font-size: 1px }</style>"
    path.write_text(f"<html lang=en>{view}{small}<article>{''.join(parts.values())}{tail}</article></html>", "utf8")
    return path.as_uri()


@pytest.mark.browser
def test_a_good_page_is_good(browser: Browser, tmp_path: Path) -> None:
    assert measured(browser, as_page(GOOD, tmp_path)) == {}


@pytest.mark.browser
@pytest.mark.parametrize("budget", BAD)
def test_excess_on_a_page_is_found(budget: str, browser: Browser, tmp_path: Path) -> None:
    part, html = BAD[budget]
    assert set(measured(browser, as_page(GOOD | {part: html}, tmp_path))) == {budget}
