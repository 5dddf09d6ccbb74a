"""The page that names our kinds of frequencies as others do: every kind, and transformers' types as they are."""

from __future__ import annotations

import re

from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from rope_lessons.kinds import KINDS
from tools.project import ROOT

ROWS = re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) \|", (ROOT / "book/api/elsewhere.md").read_text("utf8"), re.MULTILINE)


def names(cell: str) -> list[str]:
    return re.findall(r"`([\w-]+)`", cell)


def test_every_kind_stands_once() -> None:
    assert sorted(name for row in ROWS for name in names(row[0])) == sorted(KINDS.keys() - {"rope"})


def test_types_are_those_of_the_table_of_kinds() -> None:
    known = {*ROPE_INIT_FUNCTIONS, "default"}
    for kinds, in_transformers, in_vllm in ROWS:
        for kind in map(KINDS.__getitem__, names(kinds)):
            if kind.plain_base is not None:
                assert (names(in_transformers), in_vllm) == (["default", "rope_theta"], "the same")
            elif kind.hf is None:
                assert (in_transformers, in_vllm) == ("none", "none")
            else:
                assert names(in_vllm)[0] == kind.hf.name
                assert names(in_transformers) == ([kind.hf.name] if kind.hf.name in known else [])
