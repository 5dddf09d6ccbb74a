"""References as plain Markdown, for the notebooks: ``{cite}`` keys and lists of ``book/references.bib``."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from pybtex.database import BibliographyData, Entry, parse_file
from pybtex.plugin import find_plugin

from tools.project import ROOT


@lru_cache
def bibliography(root: Path = ROOT) -> BibliographyData:
    return parse_file(str(root / "book" / "references.bib"))


def entry(key: str, root: Path = ROOT) -> Entry:
    entries = bibliography(root).entries
    if key not in entries:
        raise KeyError(f"book/references.bib has no entry {key!r}")
    return entries[key]


def authors(item: Entry) -> str:
    """The family names: one, two, or the first "et al."."""
    people = item.persons.get("author") or item.persons.get("editor") or []
    names = [" ".join(str(part) for part in person.prelast_names + person.last_names) for person in people]
    if not names:
        return str(item.fields.get("key") or item.fields["title"])
    return " and ".join(names) if len(names) < 3 else f"{names[0]} *et al.*"


def cite(keys: str, textual: bool, root: Path = ROOT) -> str:
    """``Vaswani et al. [2017]`` when the names are part of the sentence, else ``[Vaswani et al., 2017]``."""
    items = [entry(key.strip(), root) for key in keys.split(",")]
    if textual:
        return ", ".join(f"{authors(item)} [{item.fields['year']}]" for item in items)
    return "[" + "; ".join(f"{authors(item)}, {item.fields['year']}" for item in items) + "]"


def listing(keys: list[str], root: Path = ROOT) -> str:
    """The list of references of a chapter, sorted by author and year."""
    style = find_plugin("pybtex.style.formatting", "plain")()
    backend = find_plugin("pybtex.backends", "markdown")()
    items = [entry(key, root) for key in set(keys)]
    items.sort(key=lambda item: (authors(item), item.fields["year"], item.key))
    texts = (formatted.text.render(backend) for formatted in style.format_entries(items))
    return "\n".join("- " + " ".join(text.split()) for text in texts)
