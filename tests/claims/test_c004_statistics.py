"""Document 004: its arithmetic with the published table, and its statistics. Chapter 09.

The table's models and data were not published. The numbers below are quoted from it, to check what is said *about* it.
"""

import math

import numpy as np
import pytest
from claim_tools import byte_model

from rope_lessons.lab.table.documents import difference
from rope_lessons.models import byte_lm
from tests.seeds import ahead

# Accuracies in %: at length 512, at 4096 with repeated texts among the others, at 4096 without.
TABLE = {
    "baseline": (49.41, 24.17, 23.16),
    "baseline, log n": (49.40, 24.60, 24.02),
    "NTK-fixed": (49.41, 51.86, 39.61),
    "NTK-fixed, log n after training": (49.41, 55.94, 41.11),
    "NTK-fixed, log n": (49.40, 62.85, 44.14),
    "NTK-mixed": (49.41, 53.09, 40.12),
    "NTK-mixed, log n after training": (49.41, 59.11, 42.38),
    "NTK-mixed, log n": (49.40, 68.91, 45.41),
    "ReRoPE": (49.41, 77.90, 48.48),
    "ReRoPE, log n after training": (49.41, 82.40, 48.85),
    "ReRoPE, log n": (49.40, 85.12, 49.07),
    "InvLeaky, log n": (49.38, 82.25, 48.32),
    "InvLeaky, base 80 000, log n": (49.62, 81.15, 48.85),
    "HFWA": (48.70, 80.84, 48.15),
}


def standard_error(share: float, n: int) -> float:
    return math.sqrt(share * (1 - share) / n)


def two_sided(z: float) -> float:
    return math.erfc(abs(z) / math.sqrt(2))


def test_order_of_the_published_rows():
    """Published: HWFA, InvLeaky, ReRoPE. On both small models of chapter 12: InvLeaky, ReRoPE, HWFA."""
    repeated, natural = ({name: row[column] for name, row in TABLE.items()} for column in (1, 2))
    for name in ("InvLeaky, log n", "InvLeaky, base 80 000, log n"):
        for column in (repeated, natural):
            assert column["HFWA"] < column[name] < column["ReRoPE, log n"]
    assert repeated["ReRoPE"] < repeated["InvLeaky, log n"]
    for kind, points in (("not repeated", 6), ("repeated", 11)):
        assert difference("rerope-w32-logn", "invleaky-w16-logn", kind)[1] > 0
        mean, low, _ = difference("hwfa-w16", "invleaky-w16-logn", kind)
        assert low > 0
        assert round(100 * mean) == points
    for text, behind, points in (("natural", 5.8, 9), ("repeated", 9.5, 24)):
        mean, low, _ = ahead("rerope-w32-logn", "invleaky-w16-logn", text)
        assert low > 0
        assert mean == behind
        mean, low, _ = ahead("hwfa-w16", "invleaky-w16-logn", text)
        assert low > 0
        assert round(mean) == points


def test_table_contradicts_clearly_better():
    """On natural text: 0.17 points over HFWA, 0.16 below ReRoPE without log n."""
    own, others = TABLE["InvLeaky, log n"][2], {name: row[2] for name, row in TABLE.items()}
    assert own - others["HFWA"] == pytest.approx(0.17)
    assert others["ReRoPE"] - own == pytest.approx(0.16)
    spread = 100 * math.sqrt(2) * standard_error(0.482, 10_000)
    assert own - others["HFWA"] < spread  # even from 10 000 independent tokens: less than one standard error


def test_ratios_mix_rows_with_and_without_log_n():
    theirs = {"baseline": 0.49, "NTK-mixed": 1.39, "ReRoPE": 1.72, "InvLeaky": 1.67}
    for name, ratio in theirs.items():
        taken = name if name == "baseline" else f"{name}, log n"
        assert TABLE[taken][1] / TABLE[taken][0] == pytest.approx(ratio, abs=6e-3)
    for name, ratio in (("NTK-mixed", 1.07), ("ReRoPE", 1.58)):  # the rows that have these names
        assert TABLE[name][1] / TABLE[name][0] == pytest.approx(ratio, abs=6e-3)


def test_no_ratio_above_one_on_natural_text():
    natural = {name: row[2] / row[0] for name, row in TABLE.items()}
    assert max(natural.values()) < 1
    assert natural["ReRoPE, log n"] == pytest.approx(0.993, abs=5e-4)
    assert sum(row[1] > row[0] for row in TABLE.values()) == 12


def test_effect_size():
    for deviation, effect in ((1, 2.87), (2, 1.435)):
        assert (85.12 - 82.25) / math.sqrt((deviation**2 + deviation**2) / 2) == pytest.approx(effect)
        assert effect > 0.8  # Cohen's "large"


def interval(share: float, n: int) -> tuple[float, float]:
    half = 1.96 * standard_error(share, n)
    return share - half, share + half


def test_intervals():
    assert standard_error(0.8225, 1000) == pytest.approx(0.0121, abs=5e-5)
    invleaky, rerope = interval(0.8225, 1000), interval(0.8512, 1000)
    assert invleaky == pytest.approx((0.7988, 0.8462), abs=5e-5)
    assert rerope == pytest.approx((0.8291, 0.8733), abs=5e-5)
    for ours, theirs in ((invleaky, (0.800, 0.845)), (rerope, (0.833, 0.869))):
        assert max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) > 1e-3


def test_overlapping_intervals_can_differ():
    """The same two shares: at n = 1000 p is 0.08; at 1500 the intervals still overlap and p is 0.03."""
    p_values = {}
    for n in (1000, 1500):
        low, high = interval(0.8225, n), interval(0.8512, n)
        assert low[1] > high[0]
        z = 0.0287 / math.hypot(standard_error(0.8225, n), standard_error(0.8512, n))
        p_values[n] = two_sided(z)
    assert p_values[1000] == pytest.approx(0.082, abs=1e-3)
    assert p_values[1500] == pytest.approx(0.033, abs=1e-3)
    rng = np.random.default_rng(0)
    wins = rng.binomial(1500, 0.8512, 20_000) - rng.binomial(1500, 0.8225, 20_000)
    assert (wins > 0).mean() > 0.98


def test_tokens_of_a_text_are_not_independent():
    """Small model at length 64, 26 windows of 512 bytes: the error of the mean is four times that of the formula."""
    model, windows = byte_model()
    hits, _ = byte_lm.evaluate(model, windows, 64)
    formula = standard_error(hits.mean().item(), hits.numel())
    between = hits.mean(1).std().item() / math.sqrt(len(hits))
    assert between > 3 * formula
