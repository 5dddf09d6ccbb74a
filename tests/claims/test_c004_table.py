"""Document 004: what its table says, on two small models of chapter 12 (64 bytes in training, 512 at test).

`difference` asks the copy of the articles' model, `ahead` the scoreboard.

The table's own models and data were not published: what can be tried is whether the order holds for another model.
"""

from claim_tools import over_seeds

from rope_lessons.lab.table.documents import difference
from rope_lessons.lab.table.lines import Line, pick, read_table
from rope_lessons.lab.table.published import published_rows
from rope_lessons.stored import results
from tests.seeds import ahead, bits

NATURAL, REPEATED = "not repeated", "repeated"
LINES = read_table()


def at_home(row: str) -> Line:
    """Accuracy at the training length."""
    return pick(LINES, row, NATURAL, 1)


def test_hwfa_is_ahead_of_rerope_with_log_n():
    others = [row.ours(64, 8.0, 4) for row in published_rows() if row.name.startswith("ReRoPE-w256")]
    assert set(others) == {"rerope-w32", "rerope-w32-logn-test", "rerope-w32-logn"}
    for name in (*others, "invleaky-w16-logn", "invleaky-w16-logn-b80000"):
        assert difference("hwfa-w16", name, NATURAL)[1] > 0, name
        assert difference("hwfa-w16", name, REPEATED)[0] > 0, name
    assert len(bits("hwfa-w16")) == 3
    for text, least, most in (("natural", 2, 4), ("repeated", 9, 13)):
        found = [ahead("hwfa-w16", name, text) for name in others]
        assert min(low for _, low, _ in found) > 0
        assert [round(limit(mean for mean, _, _ in found)) for limit in (min, max)] == [least, most]
    assert ahead("hwfa-w16", "invleaky-w16-logn", "natural") == (9.3, 4.6, 14.1)
    assert ahead("hwfa-w16", "invleaky-w16-logn", "repeated") == (23.7, 1.9, 45.5)


def test_hwfa_is_ahead_of_rope_at_home():
    assert at_home("hwfa-w16").value > at_home("rope").value + 0.01
    assert ahead("hwfa-w16", "rope", "natural", 64) == (0.3, 0, 0.6)
    assert str(ahead("hwfa-w16", "rope", "natural", 64)[1]) == "-0.0"  # just below


def test_invleaky_is_a_little_behind_rope_at_home():
    for name in ("invleaky-w16-logn", "invleaky-w16-logn-b80000"):
        assert round(100 * (at_home("rope-logn").value - at_home(name).value), 1) == 0.6
    assert ahead("invleaky-w16-logn", "rope-logn", "natural", 64) == (-0.7, -1.1, -0.4)
    rows = results("invleaky")["rows"].where(method="rope", scale="log n", length=64)
    plain, bent = (over_seeds(rows, "accuracy", model=model) for model in ("rope log n", "invleaky log n"))
    assert 0.009 < (plain - bent).min() < (plain - bent).max() < 0.03
