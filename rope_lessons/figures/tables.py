"""Tables of results as HTML: the best of a column is marked, and a phone shows every cell."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["ResultTable", "table"]

# Without the book's style sheet, as in a notebook, the colours are those of the page.
STYLE = """
.rl-table{border-collapse:collapse;margin:1em 0;font-variant-numeric:tabular-nums;font-size:15px;line-height:1.35}
.rl-table caption{caption-side:bottom;text-align:left;padding:8px 0 0;font-size:14px;color:inherit}
.rl-table th,.rl-table td{padding:5px 10px;text-align:right;border:0;
border-bottom:1px solid var(--rl-line,rgba(128,128,128,.35));background:none;color:inherit}
.rl-table th.rl-words,.rl-table td.rl-words{text-align:left}
.rl-table th:first-child{text-align:left;font-weight:400;padding-left:0}
.rl-table thead th{font-weight:600;vertical-align:bottom;border-bottom-width:2px}
.rl-table td small{display:block;font-size:12px;opacity:.8;white-space:nowrap}
.rl-table td.rl-best b{border-bottom:2px solid var(--rl-blue,#0072B2)}
.rl-table tr.rl-apart th,.rl-table tr.rl-apart td{border-top:2px solid var(--rl-line,rgba(128,128,128,.35))}
@media (max-width:600px){
.rl-table th,.rl-table td{padding:5px 4px;font-size:14px}
.rl-table tbody th{display:block;padding:8px 0 0;border:0}
.rl-table tbody tr{display:grid;grid-template-columns:repeat(var(--rl-columns),minmax(0,1fr))}
.rl-table tbody th{grid-column:1/-1;font-weight:600}
.rl-table thead tr{display:grid;grid-template-columns:repeat(var(--rl-columns),minmax(0,1fr))}
.rl-table thead th:first-child{grid-column:1/-1;padding-bottom:0;border:0}
.rl-table thead th:first-child:empty{display:none}
.rl-table tr.rl-apart td{border-top:0}
.rl-table{display:flex;flex-direction:column;width:100%}
.rl-table tbody,.rl-table thead{display:block;width:100%}
.rl-table caption{display:block;order:1}
}
""".strip()


@dataclass(frozen=True)
class ResultTable:
    """A table that displays itself as HTML, and as text where there is none.

    Args:
        columns: heads, without that of the names.
        rows: by name; a cell is a text.
        best: of each column, the rows whose cell is marked.
        below: a second, smaller line of a cell: ``(row, column)`` to a text.
        apart: rows with a line above, such as a control.
        head: of the names.
        caption: below the table.
        words: columns that are no numbers: they begin on the left.
        links: of the names, by name.
    """

    columns: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]
    best: Mapping[int, frozenset[str]] = field(default_factory=dict)
    below: Mapping[tuple[str, int], str] = field(default_factory=dict)
    apart: frozenset[str] = frozenset()
    head: str = ""
    caption: str = ""
    words: frozenset[int] = frozenset()
    links: Mapping[str, str] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        heads = f'<th scope="col">{html.escape(self.head)}</th>' + "".join(
            f'<th scope="col"{self._words(at)}>{html.escape(name)}</th>' for at, name in enumerate(self.columns)
        )
        body = "".join(self._row(name) for name in self.rows)
        caption = f"<caption>{html.escape(self.caption)}</caption>" if self.caption else ""
        return (
            f'<div class="rl-results"><style>{STYLE}</style>'
            f'<table class="rl-table" style="--rl-columns:{len(self.columns)}">{caption}'
            f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def _row(self, name: str) -> str:
        cells = "".join(self._cell(name, at) for at in range(len(self.columns)))
        apart = ' class="rl-apart"' if name in self.apart else ""
        title = html.escape(name)
        if name in self.links:
            title = f'<a href="{html.escape(self.links[name])}">{title}</a>'
        return f'<tr{apart}><th scope="row">{title}</th>{cells}</tr>'

    def _words(self, at: int) -> str:
        return ' class="rl-words"' if at in self.words else ""

    def _cell(self, name: str, at: int) -> str:
        text, below = html.escape(self.rows[name][at]), self.below.get((name, at))
        small = f"<small>{html.escape(below)}</small>" if below else ""
        if name in self.best.get(at, ()):
            return f'<td class="rl-best"><b>{text}</b>{small}</td>'
        return f"<td{self._words(at)}>{text}{small}</td>"

    def __repr__(self) -> str:
        names = [self.head, *self.rows]
        width = max(len(name) for name in names)
        columns = [(head, *(row[at] for row in self.rows.values())) for at, head in enumerate(self.columns)]
        widths = [max(len(cell) for cell in column) for column in columns]
        lines = []
        for number, name in enumerate(names):
            cells = (column[number].rjust(room) for column, room in zip(columns, widths, strict=True))
            lines.append("  ".join((name.ljust(width), *cells)))
        return "\n".join(line.rstrip() for line in lines)


def number(value: float | None, digits: int) -> str:
    """For a cell: with a true minus, never a negative zero, and a dash for None."""
    return "–" if value is None else f"{round(float(value), digits) + 0.0:,.{digits}f}".replace("-", "−")


def table(
    columns: Sequence[str],
    rows: Mapping[str, Sequence[float | None]],
    *,
    digits: int | Sequence[int] = 1,
    margins: Mapping[str, Sequence[float | None]] | None = None,
    best: str | None = "highest",
    apart: Sequence[str] = (),
    head: str = "",
    caption: str = "",
) -> ResultTable:
    """A table of numbers, in which the best of each column is marked.

    Args:
        columns: what each column is.
        rows: the numbers of each row by its name; None where there is none.
        digits: after the point, of all columns or of each.
        margins: what is written as ± below a number, for some rows or all.
        best: ``"highest"``, ``"lowest"``, or None to mark none. What is printed alike is marked alike.
        apart: rows with a line above, such as a control.
        head: of the names.
        caption: below the table.

    Returns:
        What displays itself.

    Raises:
        ValueError: no row; a row with another number of cells, or as many ``digits``; another ``best``; a row
            ``apart`` that is none.

    >>> table(["at 64", "at 512"], {"plain": [62.7, 36.9], "YaRN": [58.9, 56.5]}, head="method")
    method  at 64  at 512
    plain    62.7    36.9
    YaRN     58.9    56.5
    """
    if not rows:
        raise ValueError("rows must have at least one row, got none")
    if best not in ("highest", "lowest", None):
        raise ValueError(f"best must be 'highest', 'lowest' or None, got {best!r}")
    for name, values in rows.items():
        if len(values) != len(columns):
            raise ValueError(f"rows must have {len(columns)} numbers each, got {len(values)} in {name!r}")
    for name in apart:
        if name not in rows:
            raise ValueError(f"apart must be of {', '.join(rows)}, got {name!r}")
    places = [digits] * len(columns) if isinstance(digits, int) else list(digits)
    if len(places) != len(columns):
        raise ValueError(f"digits must be {len(columns)} numbers, one for each column, got {digits!r}")
    shown = {
        name: tuple(number(value, at) for value, at in zip(values, places, strict=True))
        for name, values in rows.items()
    }
    below = {
        (name, at): f"± {margin:,.{places[at]}f}"
        for name, of_row in (margins or {}).items()
        for at, margin in enumerate(of_row)
        if margin is not None
    }
    marked = {at: _best(rows, shown, at, best) for at in range(len(columns))} if best else {}
    return ResultTable(tuple(columns), shown, marked, below, frozenset(apart), head, caption)


def _best(
    rows: Mapping[str, Sequence[float | None]],
    shown: Mapping[str, Sequence[str]],
    at: int,
    best: str,
) -> frozenset[str]:
    found = {name: value for name, values in rows.items() if (value := values[at]) is not None}
    if not found:
        return frozenset()
    choose = max if best == "highest" else min
    winner = shown[choose(found, key=found.__getitem__)][at]
    return frozenset(name for name in found if shown[name][at] == winner)
