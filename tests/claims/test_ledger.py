"""The ledger of claims itself: its form, and that every verdict has its test and every test its claim."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from claim_tools import encoding, kernel, rotation

import rope_lessons as rl
from tools import ledger

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = yaml.safe_load((ROOT / "book" / "claims.yml").read_text(encoding="utf-8"))
KEYS = ["id", "document", "section", "chapter", "original", "statement", "verdict", "correct", "test"]
DOCUMENTS = {"000", "001", "002", "003", "004"}
CHAPTERS = {f"{number:02}" for number in range(1, 14)}  # that mirror a source; chapter 14 goes beyond them


def all_test_functions():
    """Node ids of all test functions in this directory, this file's own excepted."""
    found = set()
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if path.name == Path(__file__).name:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.add(f"tests/claims/{path.name}::{node.name}")
    return found


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: str(claim.get("id")))
def test_form_of_a_claim(claim):
    assert list(claim) == KEYS
    assert claim["document"] in DOCUMENTS
    assert re.fullmatch(rf"c{claim['document']}(-[a-z0-9]+)+", claim["id"])
    assert claim["original"] in {"original", "extension"}
    for key in ("section", "statement", "correct"):
        text = claim[key]
        assert isinstance(text, str)
        assert text.strip()
        assert text.count("$") % 2 == 0, f"{key} has an unpaired $"
        assert text.count("`") % 2 == 0, f"{key} has an unpaired backtick"


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: str(claim.get("id")))
def test_verdict_of_a_claim(claim):
    """What is decided names its test. What did not show on a small model says on which, and on how many seeds."""
    assert tuple(ledger.VERDICTS) == ("proved", "measured", "refuted", "not reproduced", "unverifiable")
    assert claim["verdict"] in ledger.VERDICTS
    assert claim["test"] or claim["verdict"] == "unverifiable"
    if claim["verdict"] == "not reproduced":
        correct = ledger.one_line(claim["correct"])
        assert re.search(r"small (model|models|encoders) of chapter \d+\b", correct), "on what model?"
        assert re.search(r"\bseed 0\b|\b(three|five) seeds\b", correct), "on how many seeds?"


def test_no_statement_is_about_a_verdict():
    """A claim says what the source says; what became of it stands beside it."""
    for claim in CLAIMS:
        assert not re.search(r"\b(refuted|not reproduced|unverifiable)\b", claim["statement"]), claim["id"]


def test_ids_are_unique():
    ids = [claim["id"] for claim in CLAIMS]
    assert len(set(ids)) == len(ids)


def test_every_test_exists_and_belongs_to_one_claim():
    named = [claim["test"] for claim in CLAIMS if claim["test"]]
    assert len(set(named)) == len(named), "two claims name the same test"
    assert set(named) - all_test_functions() == set(), "named in the ledger, but not there"
    assert all_test_functions() - set(named) == set(), "a test that no claim names"


def test_every_test_can_fail():
    """A test function contains an assertion, or expects an error."""
    for path in sorted(Path(__file__).parent.glob("test_c*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                body = ast.unparse(node)
                assert re.search(r"\bassert\b|assert_|pytest\.raises", body), f"{path.name}::{node.name}"


def test_every_claim_is_shown():
    """By its chapter, which prints the claims of its own number; or, before that is written, by the appendix alone."""
    assert {claim["chapter"] for claim in CLAIMS} <= CHAPTERS
    for chapter in CHAPTERS & {path.stem[:2] for path in (ROOT / "book").glob("[0-9][0-9]_*.md")}:
        assert [claim for claim in CLAIMS if claim["chapter"] == chapter], f"chapter {chapter} has no claim"
    shown = "\n".join(cell for row in ledger.claims_table(ledger.claims(ROOT)) for cell in row)
    for claim in CLAIMS:
        assert ledger.one_line(claim["statement"]) in shown, claim["id"]


def test_the_tests_own_helpers_agree_with_the_package():
    positions = torch.tensor([0, 1, 17, 4096])
    for dim in (8, 64):
        got = rl.sinusoidal_encoding(positions, dim, dtype=torch.float64).numpy()
        np.testing.assert_allclose(got, encoding(positions.numpy(), dim), atol=1e-9)
        omega = rl.rope_frequencies(dim)
        np.testing.assert_allclose(
            rl.sinusoidal.sinusoidal_kernel(positions, omega).numpy(), kernel(positions, dim), atol=1e-9
        )
        x = torch.randn(1, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        turned = rl.apply_rotary(x, torch.tensor([17]), omega, layout="interleaved")[0].numpy()
        np.testing.assert_allclose(turned, rotation(17, dim) @ x[0].numpy(), atol=1e-9)
