"""The short names of methods are spelled out in the glossary."""

from __future__ import annotations

import pytest

from tools.project import ROOT

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
    rows = [row for row in (ROOT / "book" / "glossary.md").read_text("utf8").splitlines() if row.startswith("| ")]
    own = [
        row for row in rows if name in row.split("|")[1].replace("(", " ").replace(")", " ").replace(",", " ").split()
    ]
    assert any(NAMES[name].lower() in row.lower() for row in own), own
