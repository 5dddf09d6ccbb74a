"""The style of the bibliography: an entry bears the label that the text cites, such as "Su, 2023b"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pybtex.database import Entry
from pybtex.plugin import register_plugin
from pybtex.style.formatting.unsrt import Style
from pybtex.style.labels import BaseLabelStyle


class AuthorYearLabels(BaseLabelStyle):
    def format_labels(self, sorted_entries: Iterable[Entry]) -> Iterator[str]:
        for entry in sorted_entries:
            names = [
                " ".join(map(str, person.rich_prelast_names + person.rich_last_names))
                for person in entry.persons["author"]
            ]
            short = " and ".join(names) if len(names) < 3 else f"{names[0]} et al."
            yield f"{short}, {entry.fields['year']}"


class AuthorYearStyle(Style):
    default_label_style = AuthorYearLabels
    default_sorting_style = "author_year_title"


def register() -> None:
    register_plugin("pybtex.style.formatting", "author_year", AuthorYearStyle)
