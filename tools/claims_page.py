"""The page of all claims: the articles' first, the extension's folded, refuted ones on top; a script filters them.

Without the script the page is a plain list. The filter is in ``book/_static/claims.js``.
"""

from __future__ import annotations

import ast
import functools
import html
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from docutils import nodes

from tools import ledger, project

Row = dict[str, Any]
Parse = Callable[[str], list[nodes.Node]]


def content(root: Path, parse: Parse) -> list[nodes.Node]:
    """What stands below the page's introduction.

    Args:
        root: of the repository.
        parse: makes nodes of MyST Markdown, on the page.
    """
    rows = ledger.claims(root)
    original = [row for row in rows if row["original"] == "original"]
    extension = [row for row in rows if row["original"] != "original"]
    articles = _section("articles", "What the articles say", [nodes.paragraph("", ledger.verdict_counts(original))])
    for document, name in ledger.DOCUMENTS.items():
        group = _of(original, document)
        title = nodes.title("", "", *_inline(parse(name)))
        articles += nodes.section("", title, _list(group, root, parse), ids=[f"article-{document}"], names=[document])
    added = _section("extensions", "What the extensions add", [nodes.paragraph("", ledger.verdict_counts(extension))])
    for document in ledger.DOCUMENTS:
        if group := _of(extension, document):
            added += _folded(document, group, _list(group, root, parse))
    meaning = parse(ledger.as_list_table(_meanings(original, extension), "rl-ledger rl-verdicts"))
    return [*meaning, nodes.raw("", _form(rows, root), format="html"), articles, added]


# What contradicts an article is what its readers want to know first.
ORDER = ("refuted", "not reproduced", "measured", "proved", "unverifiable")


def _of(rows: Sequence[Row], document: str) -> list[Row]:
    """The claims of one document, by verdict, and by its sections among equal ones."""
    return sorted((row for row in rows if row["document"] == document), key=lambda row: ORDER.index(row["verdict"]))


def _section(name: str, title: str, children: list[nodes.Node]) -> nodes.section:
    return nodes.section("", nodes.title("", title), *children, ids=[name], names=[name])


def _inline(parsed: list[nodes.Node]) -> list[nodes.Node]:
    """The contents of a single paragraph."""
    return list(parsed[0].children)


def _meanings(original: Sequence[Row], extension: Sequence[Row]) -> ledger.Table:
    """Each verdict, what it means and how often it was given."""
    articles, added = (Counter(row["verdict"] for row in rows) for rows in (original, extension))
    lines = [
        [f"**{verdict}**", meaning, f"{articles[verdict]} of the articles, {added[verdict]} of the extensions"]
        for verdict, meaning in ledger.VERDICTS.items()
    ]
    return [["Verdict", "Meaning", "Claims"], *lines]


def _list(rows: Sequence[Row], root: Path, parse: Parse) -> nodes.Node:
    (found,) = parse("\n".join(_item(row, root) for row in rows))
    for item, row in zip(found.children, rows, strict=True):
        item["ids"].append(row["id"])
        origin = "article" if row["original"] == "original" else "extension"
        item["classes"] += ["rl-claim", f"rl-chapter-{row['chapter']}", _slug(row["verdict"]), f"rl-origin-{origin}"]
        says, _, where = item.children
        says.insert(0, nodes.inline("", row["verdict"], classes=["rl-verdict"]))
        says.insert(1, nodes.Text(" "))
        where["classes"].append("rl-where")
        link = nodes.reference("", "", nodes.Text(f"#{row['id']}"), refid=row["id"], internal=True)
        where += [nodes.Text(" · "), link]
    found["classes"].append("rl-claim-list")
    return found


def _slug(verdict: str) -> str:
    return f"rl-verdict-{verdict.replace(' ', '-')}"


def _item(row: Row, root: Path) -> str:
    """A list item of three paragraphs: what the source says, what holds, where that is shown."""
    chapter = next(path.stem for path in project.chapters(root) if path.stem.startswith(row["chapter"]))
    where = [f"{{doc}}`Chapter {int(row['chapter'])} <{chapter}>`", ledger.one_line(row["section"])]
    if row["test"]:
        where.append(f"[test]({address_of_test(row['test'], root)})")
    says, holds = ledger.one_line(row["statement"]), ledger.one_line(row["correct"])
    return f"* {says}\n\n  {holds}\n\n  {' · '.join(where)}\n"


def address_of_test(test: str, root: Path) -> str:
    """The web address of a test, ``tests/claims/test_x.py::test_y``, at its line."""
    path, name = test.split("::")
    return f"{project.address(root)}/blob/{project.branch(root)}/{path}#L{_lines(root / path)[name]}"


@functools.cache
def _lines(path: Path) -> dict[str, int]:
    """The line of each function of a file."""
    tree = ast.parse(path.read_text("utf8"))
    return {node.name: node.lineno for node in tree.body if isinstance(node, ast.FunctionDef)}


def _folded(document: str, rows: Sequence[Row], listed: nodes.Node) -> list[nodes.Node]:
    name = ledger.DOCUMENTS[document].split(",")[0]
    summary = f"{name}, extended: {ledger.verdict_counts(list(rows))}"
    opening = f'<details class="rl-folded" id="extension-{document}"><summary>{html.escape(summary)}</summary>'
    return [nodes.raw("", opening, format="html"), listed, nodes.raw("", "</details>", format="html")]


def _form(rows: Sequence[Row], root: Path) -> str:
    """Hidden: the script shows it, since nothing else can make it work."""
    numbers = sorted({row["chapter"] for row in rows})
    titles = {path.stem[:2]: project.title(path) for path in project.chapters(root)}
    chapters = [(f"rl-chapter-{number}", f"{int(number)} {titles[number][3:]}") for number in numbers]
    verdicts = [(_slug(verdict), verdict) for verdict in ORDER]
    origins = [("rl-origin-article", "the articles"), ("rl-origin-extension", "the extensions")]
    return (
        '<form class="rl-filter" hidden role="search" aria-label="Filter the claims">'
        f"{_select('chapter', 'Chapter', chapters)}{_select('verdict', 'Verdict', verdicts)}"
        f"{_select('origin', 'From', origins)}"
        '<button type="reset">Show all</button><output aria-live="polite"></output></form>'
        '<script defer src="../_static/claims.js"></script>'
    )


def _select(name: str, label: str, choices: Sequence[tuple[str, str]]) -> str:
    options = "".join(f'<option value="{value}">{html.escape(text)}</option>' for value, text in choices)
    return f'<label>{label} <select name="{name}"><option value="">all</option>{options}</select></label>'
