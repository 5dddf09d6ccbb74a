"""Nothing of the book is lost unseen: ``book/inventory.yml`` names the place of everything, or why it was dropped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import inventory, ledger
from tools.project import ROOT, page_name, pages

ITEMS, SOURCES = inventory.load(ROOT)
PAGES = {page_name(path): path for path in pages(ROOT)}
# Headings of each source, its title excepted, and the openings and paragraphs without one that claims name.
SECTIONS = {"000": 38, "001": 15, "002": 66, "003": 59, "004": 22}

PAGE = """\
# 01 A page

## One *wish*, written

```{math}
:label: eq-x-wish
y
```

$$ z $$ (eq-x-short)

````{prf:theorem} T
:label: thm-x-t
t
````

```{code-cell} ipython3
rl.figures.x_explorable()
```
"""


@pytest.fixture
def page(tmp_path: Path) -> dict[str, Path]:
    path = tmp_path / "01_x.md"
    path.write_text(PAGE, "utf8")
    return {"01_x": path}


def complete() -> dict[str, str]:
    labels = ("eq-x-wish", "eq-x-short", "thm-x-t")
    return {label: f"01_x#{label}" for label in labels} | {"figures.x_explorable": "01_x#one-wish-written"}


def test_everything_has_its_place() -> None:
    assert inventory.problems(ITEMS, PAGES, inventory.claim_groups(ROOT)) == []


@pytest.mark.parametrize("document", SOURCES)
def test_every_section_of_a_source_has_its_mirror(document: str) -> None:
    assert inventory.mirror_problems(SOURCES[document], ITEMS, PAGES) == []
    assert len(SOURCES[document]) == SECTIONS[document]


def test_the_claims_name_sections_of_the_map() -> None:
    """A claim's section begins with the title of a section, or with the number of one."""
    for claim in ledger.claims(ROOT):
        titles = list(SOURCES[claim["document"]])
        numbers = {title.split(":")[0] for title in titles} | {title.split(" ")[0] for title in titles}
        first = re.sub(r"^(Extension|Extensions) (\d+)\b.*", r"Extension \2", claim["section"])
        known = first in numbers or first.split(" ")[0] in numbers or first.startswith(tuple(titles))
        assert known, (claim["id"], claim["section"])


# --- a fault of each kind is found --------------------------------------------------------------------------------


def test_complete(page: dict[str, Path]) -> None:
    assert inventory.problems(complete(), page, []) == []


@pytest.mark.parametrize("label", ["eq-x-wish", "eq-x-short", "thm-x-t", "figures.x_explorable"])
def test_what_no_item_names_is_found(label: str, page: dict[str, Path]) -> None:
    items = complete()
    del items[label]
    assert inventory.problems(items, page, []) == [f"{label} is not in the inventory"]


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("01_x#eq-x-gone", "page 01_x has no anchor 'eq-x-gone'"),
        ("02_y#eq-x-wish", "no page '02_y'"),
        ("dropped:  ", "dropped without a reason"),
        ("dropped: said twice", "dropped, but the book has it"),
    ],
)
def test_a_wrong_place_is_found(place: str, problem: str, page: dict[str, Path]) -> None:
    assert f"eq-x-wish: {problem}" in inventory.problems(complete() | {"eq-x-wish": place}, page, [])


def test_a_claim_group_without_a_place_is_found(page: dict[str, Path]) -> None:
    assert inventory.problems(complete(), page, ["claims-01-002"]) == ["claims-01-002 is not in the inventory"]


def test_a_mirror_of_what_was_dropped_is_found(page: dict[str, Path]) -> None:
    items = {"eq-x-old": "dropped: it was wrong"}
    assert inventory.mirror_problems({"Review": "eq-x-old"}, items, page) == ["Review: eq-x-old was dropped"]
    assert inventory.mirror_problems({"Review": "01_x#gone"}, items, page) != []
    assert inventory.mirror_problems({"Review": "01_x#one-wish-written"}, items, page) == []
