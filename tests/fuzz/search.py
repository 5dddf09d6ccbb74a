"""Look for a failure among drawn cases, shrink it, and say how to repeat it."""

from __future__ import annotations

import math
import time
import traceback
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from tests.fuzz import calls, helpers, machine
from tests.fuzz.cases import cases
from tests.fuzz.tally import Tally, Wrong


class Failure(NamedTuple):
    """A wrong answer: what is wrong, in which way, and Python that repeats it."""

    where: str
    message: str
    code: str

    def __str__(self) -> str:
        return f"{self.message}\n\n{self.code}\n"


class TimeIsOver(KeyboardInterrupt):
    """Hypothesis lets it through, also while it shrinks."""


class Watch:
    """What a search knows while it runs.

    Args:
        tally: counts.
        known: causes that were found before: they are counted and passed over, so that others are found.
        ends: when to stop, by ``time.monotonic``.
    """

    def __init__(self, tally: Tally, known: Counter[str] | None = None, ends: float = math.inf):
        self.tally, self.known, self.ends = tally, Counter() if known is None else known, ends
        self.failure: Failure | None = None

    def look(self) -> None:
        """Called before each case and each step of a cache."""
        if time.monotonic() > self.ends:
            raise TimeIsOver

    def failed(self, faults: list[Wrong], code: str) -> None:
        """Raises the first one whose cause is not known."""
        for fault in faults:
            if fault.where in self.known:
                self.known[fault.where] += 1
                continue
            self.failure = Failure(fault.where, str(fault), code)  # the last one is the smallest
            raise fault


Run = Callable[[settings, int, Watch], None]


class Target(NamedTuple):
    """What is tried.

    ``run``: with these settings and this seed. ``examples``: in one go, in tens. ``shrinks``: failures are made small
    (not where a call takes long).
    """

    run: Run
    examples: int
    shrinks: bool = True


def over(strategy: st.SearchStrategy[Any], faults: Callable[[Any, Tally], list[Wrong]], code: str) -> Run:
    """Cases of a strategy, one by one. ``code``: a line of Python for a case, with ``{}`` in its place."""

    def run(options: settings, number: int, watch: Watch) -> None:
        @seed(number)
        @options
        @given(strategy)
        def try_out(case: Any) -> None:
            watch.look()
            try:
                found = faults(case, watch.tally)
            except Exception as error:
                found = [calls.unclear("the fuzz itself", error)]
            watch.failed(found, code.format(repr(case)))

        try_out()

    return run


def _calls(backends: tuple[str, ...], **options: Any) -> Run:
    code = "from tests.fuzz.calls import check\nfrom tests.fuzz.case import *\n" + f"check({{}}, {backends!r})"
    return over(cases(**options), lambda case, tally: calls.faults(case, backends, tally), code)


def _cache(options: settings, number: int, watch: Watch) -> None:
    drawn = type("CacheMachine", (machine.CacheMachine,), {"watch": watch, "tally": watch.tally})
    run_state_machine_as_test(seed(number)(drawn), settings=options)


TARGETS: dict[str, Target] = {
    # sizes that shrink to what can be followed by hand
    "calls": Target(_calls(calls.DENSE), 100),
    # windows, documents and lengths across the edges of flash's blocks
    "edges": Target(_calls(calls.DENSE, tokens=st.integers(13, 140), edges=True, dims=st.integers(1, 20)), 50),
    # where auto takes flash, and triangles are halved
    "long": Target(
        _calls(
            ("auto", "flash"), tokens=st.integers(513, 600), edges=True, flash=True, dims=st.integers(1, 8),
            most=(1, 2, 2),
        ),
        10, shrinks=False,
    ),
    "flex": Target(_calls(("flex",), gradients=False, tokens=st.integers(1, 20)), 10),
    "cache": Target(_cache, 25),
    "helpers": Target(over(helpers.drawn(), helpers.faults, "from tests.fuzz.helpers import *\ncheck({})"), 200),
}  # fmt: skip


def search(name: str, number: int, watch: Watch, examples: int | None = None, shrink: bool = True) -> Failure | None:
    """One go at a target: the first failure whose cause is not known, or None.

    Args:
        name: of the target.
        number: the seed.
        watch: what it knows.
        examples: how many; the target's own number by default.
        shrink: make a failure small, where the target allows.

    Raises:
        TimeIsOver: when the watch says so, and nothing was found.
    """
    target = TARGETS[name]
    phases = [Phase.generate, Phase.shrink] if shrink and target.shrinks else [Phase.generate]
    # Hypothesis follows each case after the tenth of a run by up to five that repeat parts of it. Runs of ten have
    # more that is new in them.
    options = settings(
        max_examples=10, stateful_step_count=12, deadline=None, database=None, derandomize=False, phases=phases,
        report_multiple_bugs=False, print_blob=False, suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    watch.failure = None
    seeds = Random(f"{name} {number}")
    try:
        for _ in range(0, examples or target.examples, 10):
            target.run(options, seeds.getrandbits(64), watch)
    except TimeIsOver:
        if watch.failure is None:
            raise
    except Exception as error:
        if watch.failure is None:  # of the fuzz itself, as while a case is drawn: the others go on
            fault = calls.unclear(f"the fuzz itself, {name}", error)
            if fault.where in watch.known:
                watch.known[fault.where] += 1
                return None
            return Failure(fault.where, str(fault), "".join(traceback.format_exception(error)))
    return watch.failure
