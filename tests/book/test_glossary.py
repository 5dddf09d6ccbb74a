"""Every term of the glossary is used, its short names are spelled out, and its first use in a chapter leads to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from docutils import nodes
from docutils.core import publish_doctree

from tools import terms
from tools.project import ROOT

TERMS = terms.read(ROOT / "book" / "glossary.md")
NAMES = {
    "NTK": "neural tangent kernel",
    "YaRN": "yet another RoPE extension",
    "ALiBi": "attention with linear biases",
    "HWFA": "hybrid window-full attention",
    "NoPE": "no position encoding",
    "RoPE": "rotary position embedding",
    "PI": "position interpolation",
    "GAU": "gated attention unit",
    "ReRoPE": "rectified RoPE",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_short_name_is_spelled_out(name: str) -> None:
    (term,) = (term for term in TERMS if name in term.names)
    assert NAMES[name].lower() in " ".join((*term.names, term.text)).lower()


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.names[0])
def test_a_term_is_used_in_its_chapter(term: terms.Term) -> None:
    pages = [ROOT / f"{term.chapter}.md", ROOT / "book" / "deeper" / f"{Path(term.chapter).name}.md"]
    text = "".join(page.read_text("utf8") for page in pages if page.exists())
    assert any(term.pattern(name).search(text) for name in term.names)


def test_every_entry_names_its_chapter(tmp_path: Path) -> None:
    page = tmp_path / "glossary.md"
    page.write_text("```{glossary}\n:sorted:\n\nsink\n    A token.\n```\n", "utf8")
    with pytest.raises(ValueError, match=r"^sink in glossary\.md must name its chapter"):
        terms.read(page)


def used(text: str, *names: str) -> list[str]:
    """What would be linked in a text in reStructuredText, in order."""
    term = terms.Term(names, "", "book/01_x")
    return [match[0] for _, match in terms._uses(publish_doctree(text), term)]


def test_which_words_count_as_a_use() -> None:
    assert used("Two sliding windows. A window.", "sliding window") == ["sliding windows"]
    assert used("The pi of a circle, PIs.", "PI") == ["PIs"]
    assert used("An NTK-aware model", "NTK") == []
    assert used("``radix`` and a `radix <x>`_ are no use, radix is.\n\n.. _x: y", "radix") == ["radix"]


def test_a_common_word_counts_where_it_is_marked() -> None:
    assert used("A key, and a *key* or **keys**.", "key") == ["key", "keys"]


def test_a_sum_done_by_hand_is_no_hand_of_a_dial() -> None:
    assert used("**By hand**, for d = 4. A *hand* turns.", "hand") == ["hand"]


def test_the_link_takes_the_place_of_the_word() -> None:
    tree = publish_doctree("Of radices and a radix, a radix.")
    node, match = next(terms._uses(tree, terms.Term(("radix",), "", "book/03_radix")))
    terms._link(node, match, "glossary.html#term-radix")
    (link,) = tree.findall(nodes.reference)
    assert (link.astext(), link["refuri"]) == ("radix", "glossary.html#term-radix")
    assert tree.astext() == "Of radices and a radix, a radix."
