"""The command line of the long run."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from rope_lessons import KVCache
from tests.fuzz import __main__ as command
from tests.fuzz import calls
from tests.fuzz.__main__ import main
from tests.fuzz.search import TARGETS, Failure, TimeIsOver, Watch, search
from tests.fuzz.tally import Tally, Wrong


def test_a_tiny_run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    started = time.monotonic()
    assert main(["--minutes", "0.02", "--seed", "3", "--targets", "helpers", "calls"]) == 0
    assert time.monotonic() - started < 20  # it stops soon, also on a loaded machine
    said = capsys.readouterr().out
    assert said.startswith("seed 3; 0.02 minutes of helpers, calls\n")
    assert "0 causes of failure" in said
    assert re.search(r"^helpers .* \d+$", said, re.MULTILINE)
    assert not list(tmp_path.iterdir())


def test_a_seed_is_drawn_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        main(["--minutes", "0.0001", "--targets", "helpers"])
    seeds = re.findall(r"^seed (\d+);", capsys.readouterr().out, re.MULTILINE)
    assert len(set(seeds)) == 2


def test_it_says_how_far_it_is_and_what_failed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure in the first go, again in the second, and the end of the time in the third."""
    goes = []

    def search(name: str, number: int, watch: Watch) -> Failure | None:
        goes.append((name, number))
        watch.tally.add("flash", "float32", "calls", 7)
        if len(goes) == 3:
            raise TimeIsOver
        if len(goes) == 2:
            watch.known["flash, output: off"] += 1
            return None
        return Failure("flash, output: off", "flash, output: off: at (0,) got 2, wanted 1", "check(Case())")

    monkeypatch.setattr(command, "search", search)
    monkeypatch.setattr(command, "EVERY", 0.0)
    assert main(["--seed", "5", "--targets", "edges"]) == 1
    assert goes == [("edges", 5), ("edges", 6), ("edges", 7)]
    said = capsys.readouterr().out
    assert (
        "--- failure 1, target edges, go 0 ---\nflash, output: off: at (0,) got 2, wanted 1\n\ncheck(Case())\n" in said
    )
    assert "0.0 minutes, 1 causes of failure\n" in said
    assert re.search(r"^flash +float32 +14$", said, re.MULTILINE)
    assert said.endswith("1 causes of failure in 2 goes, seed 5\n  2 x flash, output: off\n")


def test_a_failure_is_shrunk_and_repeated_and_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference off by a thousandth."""
    right = calls.rl.attention

    def wrong(*arguments: Any, backend: str, **options: Any) -> Any:
        found = right(*arguments, backend=backend, **options)
        if backend != "reference" or arguments[0].dtype != torch.float64:
            return found
        return (found[0] * 1.001, found[1]) if isinstance(found, tuple) else found * 1.001

    monkeypatch.setattr(calls.rl, "attention", wrong)
    failure = search("calls", 0, Watch(Tally()))
    assert failure is not None
    assert failure.where == "reference, output: off"
    assert len(failure.code) < 400  # small
    with pytest.raises(Wrong, match="reference, output: off"):
        exec(failure.code, {})
    watch = Watch(Tally(), Counter({failure.where: 0}))
    assert search("calls", 0, watch, examples=20) is None
    assert watch.known[failure.where] > 0


def test_a_failure_of_the_cache_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A padding that does not move with its rows."""
    right = KVCache.reorder

    def wrong(self: KVCache, rows: torch.Tensor) -> None:
        right(self, rows)
        if self.padding is not None:
            self.padding = self.padding * 0

    monkeypatch.setattr(KVCache, "reorder", wrong)
    failure = search("cache", 0, Watch(Tally()), examples=100, shrink=False)
    assert failure is not None
    with pytest.raises(Wrong, match=re.escape(failure.where)):
        exec(failure.code, {})


def test_a_failure_of_the_fuzz_itself_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(options: Any, number: int, watch: Watch) -> None:
        raise KeyError("a strategy")

    monkeypatch.setitem(TARGETS, "calls", TARGETS["calls"]._replace(run=broken))
    watch = Watch(Tally())
    failure = search("calls", 0, watch)
    assert failure is not None
    assert failure.where == "the fuzz itself, calls, KeyError: 'a strategy'"
    assert "in broken" in failure.code
    watch.known[failure.where] = 0
    assert search("calls", 0, watch) is None
    assert watch.known[failure.where] == 1


@pytest.mark.parametrize(("arguments", "message"), [
    (["--minutes", "nan"], "--minutes: must be a positive finite number, got 'nan'"),
    (["--minutes", "inf"], "--minutes: must be a positive finite number, got 'inf'"),
    (["--minutes", "0"], "--minutes: must be a positive finite number, got '0'"),
    (["--minutes", "-3"], "--minutes: must be a positive finite number, got '-3'"),
    (["--minutes", "long"], "--minutes: must be a positive finite number, got 'long'"),
    (["--seed", "-1"], "--seed: must be a whole number of at least 0, got '-1'"),
    (["--seed", "x"], "--seed: must be a whole number of at least 0, got 'x'"),
    (["--targets", "banana"], "--targets: invalid choice: 'banana'"),
    (["--min", "3"], "unrecognized arguments: --min 3"),
])  # fmt: skip
def test_bad_arguments_are_refused_in_a_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert message in said.err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in TARGETS)
