"""The tables of the types of models, for the API page: which are read, and why others are not."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from rope_lessons.hf import model_types
from tools.ledger import Table


def read() -> Table:
    """A row for each type that is read."""
    head = ["`model_type`", "Layout", "A part of a head", "Windows", "Layers without positions", "`rope_type`"]
    return [head, *(_row(name, row) for name, row in sorted(_types().items()) if row["reason"] is None)]


def refused() -> Table:
    """A row for each reason."""
    found = defaultdict(list)
    for name, row in sorted(_types().items()):
        if row["reason"] is not None:
            found[row["reason"]].append(f"`{name}`")
    reasons = sorted(found, key=lambda reason: -len(found[reason]))
    return [["Why", "`model_type`"], *([_plain(reason), ", ".join(found[reason])] for reason in reasons)]


def introduction() -> str:
    """Beside which version of transformers the types were tried, and what "all" means in the table."""
    version = model_types.table()["transformers"]
    return f"Tried beside transformers {version}. All rope types are {_in_words(_most_rope_types())}."


def _types() -> dict[str, dict[str, Any]]:
    types: dict[str, dict[str, Any]] = model_types.table()["types"]
    return types


def _most_rope_types() -> list[str]:
    return max((row["rope_types"] for row in _types().values() if row["reason"] is None), key=len)


def _in_words(rope_types: list[str]) -> str:
    return ", ".join(f"`{rope}`" for rope in ("default", *rope_types))


def _row(name: str, row: dict[str, Any]) -> list[str]:
    yes = {True: "yes", False: "no"}
    ropes = "all" if row["rope_types"] == _most_rope_types() else _in_words(row["rope_types"])
    return [f"`{name}`", row["layout"], yes[row["partial"]], yes[row["windows"]], yes[row["unturned"] > 0], ropes]


def _plain(reason: str) -> str:
    """An error of Python's in a cell of Markdown."""
    return reason.replace("`", "'").replace("[", "(").replace("]", ")").replace("{", "(").replace("}", ")")
