"""A fixed sample of what ``python -m tests.fuzz`` tries without end."""

from __future__ import annotations

import pytest

from tests.fuzz.search import TARGETS, Watch, search
from tests.fuzz.tally import Tally

# Goes at each target, and what each go must have compared at least, in calls and gradients: a backend that declines
# everything would otherwise pass.
SAMPLE: dict[str, tuple[int, dict[str, tuple[int, int]]]] = {
    "calls": (7, {"reference": (80, 150), "flash": (30, 60), "auto (reference)": (80, 150)}),
    "edges": (5, {"reference": (40, 80), "flash": (15, 30), "auto (reference)": (40, 80)}),
    "long": (3, {"auto (flash)": (6, 6), "flash": (6, 6)}),
    "flex": (2, {"flex": (7, 0)}),
    "cache": (7, {"cache": (40, 0)}),
    "helpers": (4, {"helpers": (190, 0)}),
}


def test_every_target_is_sampled() -> None:
    assert SAMPLE.keys() == TARGETS.keys()


@pytest.mark.parametrize(("name", "go"), [(name, go) for name, (goes, _) in SAMPLE.items() for go in range(goes)])
def test_sample(name: str, go: int) -> None:
    tally = Tally()
    failure = search(name, go, Watch(tally))
    assert failure is None, str(failure)
    for called, (calls, gradients) in SAMPLE[name][1].items():
        assert tally.of("answers" if name == "cache" else "calls", called) >= calls, tally.table()
        assert tally.of("gradients", called) >= gradients, tally.table()
