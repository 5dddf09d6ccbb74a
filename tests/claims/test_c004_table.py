"""Document 004: what its table says, on the small model of chapter 12 (64 bytes in training, 512 at test).

The table's own models and data were not published: what can be tried is whether the order holds for another model.
"""

from claim_tools import over_seeds

from rope_lessons.lab.table.documents import difference
from rope_lessons.lab.table.lines import Line, pick, read_table
from rope_lessons.lab.table.published import published_rows
from rope_lessons.stored import results

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


def test_hwfa_is_ahead_of_rope_at_home():
    assert at_home("hwfa-w16").value > at_home("rope").value + 0.01


def test_invleaky_is_a_little_behind_rope_at_home():
    for name in ("invleaky-w16-logn", "invleaky-w16-logn-b80000"):
        assert round(100 * (at_home("rope-logn").value - at_home(name).value), 1) == 0.6
    rows = results("invleaky")["rows"].where(method="rope", scale="log n", length=64)
    plain, bent = (over_seeds(rows, "accuracy", model=model) for model in ("rope log n", "invleaky log n"))
    assert 0.009 < (plain - bent).min() < (plain - bent).max() < 0.03
