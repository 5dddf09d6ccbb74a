"""The table of the kinds of frequencies, for the API page."""

from __future__ import annotations

from rope_lessons.kinds import KINDS, Kind
from tools.ledger import Table


def table() -> Table:
    """A row for each kind: its names, its options, and what a config says."""
    head = ["`kind`", "Name", "Options", "Attention factor from", "`rope_type` and its keys"]
    return [head, *(_row(name, row) for name, row in KINDS.items())]


def _row(name: str, row: Kind) -> list[str]:
    optional = [option for option in row.defaults if option not in row.required]
    return [f"`{name}`", row.label, _keys(row.required, optional), _keys(row.factor_needs), _said(row)]


def _said(row: Kind) -> str:
    if row.plain_base is not None:
        return "`default`, with another `rope_theta`"
    if row.hf is None:
        return "none"
    keys = _keys(row.hf.required, row.hf.optional)
    return f"`{row.hf.name}`" + ("" if keys == "none" else f": {keys}")


def _keys(required: list[str] | tuple[str, ...], optional: list[str] | tuple[str, ...] = ()) -> str:
    """Optional ones in brackets."""
    said = ", ".join(f"`{key}`" for key in required)
    if optional:
        said += f" ({', '.join(f'`{key}`' for key in optional)})"
    return said.strip() or "none"
