"""A table of many rows, as HTML: sorted by a click on a head, filtered by labelled buttons, a row opened by its name.

Without the script it is a plain table with every row.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rope_lessons.figures.explorable import STYLE as KNOBS
from rope_lessons.figures.explorable import Choice
from rope_lessons.figures.tables import number
from rope_lessons.figures.theme import themed

__all__ = ["SortableRow", "SortableTable"]

EVERY = "every"  # the value of a filter that lets all rows through
LINK = re.compile(r"\[([^\]]*)\]\((https://[^)\s]*)\)")

STYLE = f"""
.rl-sortable{{max-width:none}}
.rl-sortable table{{width:100%;border-collapse:collapse;margin:.6em 0 0;font-variant-numeric:tabular-nums;
font-size:15px;line-height:1.3}}
.rl-sortable th,.rl-sortable td{{padding:2px 6px;text-align:right;border:0;background:none;color:inherit;
border-bottom:1px solid {themed("line")}}}
.rl-sortable th:first-child{{text-align:left;padding-left:0;font-weight:400;width:34%}}
.rl-sortable thead th{{font-weight:600;vertical-align:bottom;border-bottom-width:2px}}
.rl-sortable thead button,.rl-sortable tbody button{{font:inherit;color:inherit;background:none;border:0;padding:2px 0;
min-height:28px;text-align:inherit;border-radius:0;cursor:pointer}}
.rl-sortable tbody button{{text-decoration:underline dotted;text-underline-offset:3px}}
.rl-sortable thead button[aria-pressed]{{box-shadow:none}}
.rl-sortable th[aria-sort=descending] button::after{{content:" ▾"}}
.rl-sortable th[aria-sort=ascending] button::after{{content:" ▴"}}
.rl-sortable td.rl-sure{{font-weight:700}}
.rl-sortable tr.rl-apart th,.rl-sortable tr.rl-apart td{{background:{themed("wash-grey")}}}
.rl-sortable tr.rl-more td{{text-align:left;padding:0 0 10px 14px}}
.rl-sortable tr.rl-more dl{{margin:4px 0;display:grid;grid-template-columns:max-content 1fr;gap:2px 12px;
font-size:14px}}
.rl-sortable tr.rl-more dt{{font-weight:600;margin:0}}
.rl-sortable tr.rl-more dd{{margin:0}}
.rl-sortable tr.rl-more code{{white-space:pre-wrap;overflow-wrap:anywhere}}
.rl-sortable .rl-count{{font-size:14px;margin:4px 0 0}}
.rl-sortable .rl-controls .rl-knob{{margin-top:5px}}
.rl-sortable .rl-controls .rl-name{{flex-basis:7.5em}}
.rl-sortable .rl-controls button{{min-height:30px;padding:0 9px}}
@media (max-width:600px){{
.rl-sortable th,.rl-sortable td{{padding:3px 2px;font-size:14px}}
.rl-sortable table,.rl-sortable thead,.rl-sortable tbody{{display:block}}
.rl-sortable tr{{display:grid;grid-template-columns:repeat(var(--rl-columns),minmax(0,1fr))}}
.rl-sortable tbody th:first-child{{grid-column:1/-1;width:auto;border:0;font-weight:600;padding-top:8px}}
.rl-sortable thead th{{overflow-wrap:anywhere;font-size:12px;padding-left:8px}}
.rl-sortable thead th:first-child{{grid-column:1/-1;width:auto;border:0;padding-left:0}}
.rl-sortable tr.rl-more td{{grid-column:1/-1}}
.rl-sortable tr.rl-more dl{{grid-template-columns:1fr}}
}}
""".strip()


@dataclass(frozen=True)
class SortableRow:
    """A row of a :class:`SortableTable`.

    Args:
        name: what it is called.
        values: a number for each column, None where there is none.
        tags: by filter, the values of that filter that let the row through.
        more: what a click on the name shows, a text by its head; a text in backticks is code, and
            ``[words](address)`` a link.
        short: whether the row is in the short list, which is shown first.
        sure: columns whose number is printed bold.
        apart: whether it is shaded, as a control is.
    """

    name: str
    values: tuple[float | None, ...]
    tags: Mapping[str, frozenset[str]] = field(default_factory=dict)
    more: Mapping[str, str] = field(default_factory=dict)
    short: bool = False
    sure: frozenset[int] = frozenset()
    apart: bool = False


@dataclass(frozen=True)
class SortableTable:
    """A table that displays itself as HTML, and as text where there is none.

    Args:
        name: an id for the page.
        columns: heads of the numbers; the rows come sorted by one of them.
        rows: from the top, as they stand at first.
        by: the column that they are sorted by, descending.
        filters: by label, what each value is called.
        caption: below the table.
        head: of the names.
        digits: after the point.

    Raises:
        ValueError: a row with another number of values; rows that are not sorted as ``by`` says.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[SortableRow, ...]
    by: int
    filters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    caption: str = ""
    head: str = ""
    digits: int = 1

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.values) != len(self.columns):
                raise ValueError(
                    f"rows must have {len(self.columns)} values each, got {len(row.values)} in {row.name!r}"
                )
        found = [-float("inf") if (value := row.values[self.by]) is None else value for row in self.rows]
        if found != sorted(found, reverse=True):
            raise ValueError(f"rows must be sorted by {self.columns[self.by]!r}, the largest first")

    # --- as text ---------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        width = max(len(row.name) for row in self.rows)
        heads = [self.head.ljust(width), *self.columns]
        lines = ["  ".join(heads).rstrip()]
        for row in self.rows:
            cells = (self._shown(value).rjust(len(head)) for value, head in zip(row.values, self.columns, strict=True))
            lines.append("  ".join((row.name.ljust(width), *cells)).rstrip())
        return "\n".join(lines)

    def _shown(self, value: float | None) -> str:
        return number(value, self.digits)

    # --- as HTML ---------------------------------------------------------------------------------------------------

    def _repr_html_(self) -> str:
        short = any(row.short for row in self.rows)
        choices = [
            Choice(f"filter{at}", label, dict(((EVERY, "any"), *options.items())), EVERY)
            for at, (label, options) in enumerate(self.filters.items())
        ]
        if short:
            choices.insert(
                0, Choice("list", "Rows", {"short": "the main ones", EVERY: f"all {len(self.rows)}"}, "short")
            )
        controls = "".join(choice.html() for choice in choices)
        heads = "".join(self._head(at) for at in range(len(self.columns)))
        body = "".join(self._row(row) for row in self.rows)
        return f"""<figure class="rl-explorable rl-sortable" id="rl-{self.name}"><style>{KNOBS}{STYLE}</style>
<div class="rl-controls" hidden="hidden">{controls}<p class="rl-count" aria-live="polite"></p></div>
<table style="--rl-columns:{len(self.columns)}">
<thead><tr><th scope="col">{html.escape(self.head)}</th>{heads}</tr></thead>
<tbody>{body}</tbody></table>
<figcaption>{html.escape(self.caption)}</figcaption>
<script>
(() => {{
  const root = document.getElementById("rl-{self.name}"), body = root.querySelector("tbody");
  const heads = [...root.querySelectorAll("thead th[data-column]")], count = root.querySelector(".rl-count");
  const pairs = [...body.querySelectorAll("tr[data-row]")].map((row) => [row, row.nextElementSibling]);
  const buttons = [...root.querySelectorAll(".rl-controls button")];
  const lists = [...root.querySelectorAll(".rl-controls select")];
  const update = () => {{
    const value = Object.fromEntries(lists.map((l) => [l.name, JSON.parse(l.value)]));
    buttons.forEach((b) => {{ if (b.getAttribute("aria-pressed") === "true") value[b.name] = JSON.parse(b.value); }});
    let shown = 0, all = 0;
    for (const [row, more] of pairs) {{
      const tags = JSON.parse(row.dataset.row);
      const on = Object.entries(value).every(([name, one]) => one === "{EVERY}" || (tags[name] || []).includes(one));
      row.hidden = !on; shown += on; all += value.list !== "short" || tags.list.length;
      more.hidden = !on || row.querySelector("button").getAttribute("aria-expanded") !== "true";
    }}
    count.textContent = shown ? `${{shown}} of ${{all}} rows` : "No row is all of that: choose any again.";
  }};
  for (const [row, more] of pairs) row.querySelector("button").addEventListener("click", (event) => {{
    const open = event.currentTarget.getAttribute("aria-expanded") !== "true";
    event.currentTarget.setAttribute("aria-expanded", open); more.hidden = !open;
  }});
  for (const head of heads) head.querySelector("button").addEventListener("click", () => {{
    const up = head.getAttribute("aria-sort") === "descending", at = head.dataset.column;
    heads.forEach((other) => other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = ([row]) => {{
      const value = row.querySelector(`td[data-column="${{at}}"]`).dataset.value;
      return value === "" ? (up ? Infinity : -Infinity) : Number(value);
    }};
    pairs.sort((a, b) => (up ? key(a) - key(b) : key(b) - key(a)));
    for (const pair of pairs) body.append(...pair);
  }});
  lists.forEach((l) => l.addEventListener("change", update));
  buttons.forEach((b) => b.addEventListener("click", () => {{
    for (const other of buttons) if (other.name === b.name) other.setAttribute("aria-pressed", other === b);
    update();
  }}));
  root.querySelector(".rl-controls").hidden = false;
  pairs.forEach(([row, more]) => {{ more.hidden = true; row.querySelector("button").disabled = false; }});
  update();
}})();
</script></figure>"""

    def _head(self, at: int) -> str:
        order = "descending" if at == self.by else "none"
        return (
            f'<th scope="col" data-column="{at}" aria-sort="{order}">'
            f'<button type="button">{html.escape(self.columns[at])}</button></th>'
        )

    def _row(self, row: SortableRow) -> str:
        tags = {f"filter{at}": sorted(row.tags.get(label, ())) for at, label in enumerate(self.filters)}
        tags["list"] = ["short"] if row.short else []
        cells = "".join(self._cell(row, at) for at in range(len(self.columns)))
        more = "".join(f"<dt>{html.escape(head)}</dt><dd>{_code(text)}</dd>" for head, text in row.more.items())
        data = html.escape(json.dumps(tags), quote=True)
        apart = ' class="rl-apart"' if row.apart else ""
        width = len(self.columns) + 1
        return (
            f'<tr data-row="{data}"{apart}><th scope="row"><button type="button" aria-expanded="false">'
            f"{html.escape(row.name)}</button></th>{cells}</tr>"
            f'<tr class="rl-more"><td colspan="{width}"><dl>{more}</dl></td></tr>'
        )

    def _cell(self, row: SortableRow, at: int) -> str:
        value = row.values[at]
        sure = ' class="rl-sure"' if at in row.sure else ""
        data = "" if value is None else f"{value:.{self.digits + 1}f}"
        return f'<td{sure} data-column="{at}" data-value="{data}">{self._shown(value)}</td>'


def _code(text: str) -> str:
    """Escaped; what stands between backticks as code, and ``[words](address)`` as a link."""
    parts = html.escape(text).split("`")
    marked = "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))
    return LINK.sub(r'<a href="\2">\1</a>', marked)
