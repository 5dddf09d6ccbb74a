"""The book's two ledgers as tables: claims on trial (``book/claims.yml``) and libraries (``book/libraries.yml``).

A table is a list of rows, a row a list of cells, a cell a line of MyST Markdown. The HTML and the notebooks
print the same tables.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tools.project import ROOT, parsed

VERDICTS = {
    "proved": "true, and shown exactly or by a derivation that the test checks in numbers",
    "measured": "true on the scale that the row names; where chance has a part, the interval excludes zero",
    "refuted": "false as stated; what is true instead stands beside it",
    "not reproduced": "a finding about trained models that did not show on the small model that the row names, or not "
    "beyond chance; it may hold for others",
    "unverifiable": "nothing that was run here decides it; what would stands beside it",
}
Table = list[list[str]]

# The documents on trial, in the order of the claims page. The original articles are by Jianlin Su; four of our copies
# carry an unreviewed extension.
DOCUMENTS = {
    "002": "Article 1, [the sinusoidal encoding](https://spaces.ac.cn/archives/8231)",
    "003": "Article 8, [length extrapolation and robustness](https://spaces.ac.cn/archives/9444)",
    "000": "Article 11, [positions as numbers in base β](https://spaces.ac.cn/archives/9706)",
    "004": "Article 13, [Leaky ReRoPE in reverse](https://spaces.ac.cn/archives/9728)",
    "001": "A survey note on position encodings",
}


def load(name: str, root: Path = ROOT) -> Any:
    return parsed((root / "book" / name).read_text("utf8"))


def one_line(text: Any) -> str:
    return " ".join(str(text).split())


def claims(root: Path = ROOT, chapter: str | None = None) -> list[dict[str, Any]]:
    """The rows of the ledger, of one chapter (``"01"``) or all."""
    rows: list[dict[str, Any]] = load("claims.yml", root)
    return [row for row in rows if chapter is None or row["chapter"] == chapter]


def claims_table(rows: list[dict[str, Any]]) -> Table:
    header = ["The source says", "Verdict", "What holds"]
    return [header, *(_claim(row) for row in rows)]


def _claim(row: dict[str, Any]) -> list[str]:
    by = "" if row["original"] == "original" else ", in the extension"
    says = f"{one_line(row['statement'])} *(document {row['document']}, {one_line(row['section'])}{by})*"
    test = f" Test: `{row['test'].split('::')[-1]}`." if row["test"] else ""
    return [says, f"**{row['verdict']}**", one_line(row["correct"]) + test]


def verdict_counts(rows: list[dict[str, Any]]) -> str:
    counts = Counter(row["verdict"] for row in rows)
    parts = [f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]]
    return f"{len(rows)} claims: {', '.join(parts)}."


def libraries_table(root: Path = ROOT, chapter: str | None = None) -> Table:
    """What other libraries do, as of the ledger's date."""
    rows = [
        row for row in load("libraries.yml", root)["rows"] if chapter is None or chapter in map(str, row["chapters"])
    ]
    return [["Library", "What it does"], *(_library(row) for row in rows)]


def _library(row: dict[str, Any]) -> list[str]:
    does = f"**{one_line(row['subject'])}** {one_line(row['statement'])} Seen by: `{one_line(row['ran'])}`."
    return [f"{row['library']} {row['version']}", does]


def libraries_date(root: Path = ROOT) -> str:
    return str(load("libraries.yml", root)["date"])


def as_pipe_table(table: Table) -> str:
    """A Markdown table; a bar inside a cell would end the cell."""
    lines = [" | ".join(_no_bars(cell) for cell in row) for row in table]
    rule = " | ".join("---" for _ in table[0])
    return "\n".join(f"| {line} |" for line in [lines[0], rule, *lines[1:]])


def _no_bars(cell: str) -> str:
    """Bars become ``\\vert`` in formulas, ``\\|`` elsewhere."""
    parts = cell.replace("\\|", "\\Vert ").split("$")
    return "$".join(part.replace("|", r"\vert ") if i % 2 else part.replace("|", r"\|") for i, part in enumerate(parts))


def as_list_table(table: Table, classes: str) -> str:
    """A MyST ``list-table``, which takes any cell as it is."""
    rows = ["* - " + "\n  - ".join(row) for row in table]
    return "\n".join(["```{list-table}", ":header-rows: 1", f":class: {classes}", "", *rows, "```"])
