"""Document 000: what its tables say, on the small model of chapter 12 (64 bytes in training, 512 at test).

Differences are in points of accuracy, with 95 % intervals over seeds and documents.
"""

from rope_lessons.lab.table.documents import difference

NATURAL, REPEATED = "not repeated", "repeated"
OTHERS = ("rope", "rope-logn", "pi", "pi-logn", "ntk-old", "ntk-fixed", "ntk-mixed")


def test_mixed_and_fixed_with_log_n_are_ahead_of_the_others():
    """On natural text; old with log n is level with mixed without it."""
    for name in ("ntk-mixed-logn", "ntk-fixed-logn"):
        assert all(difference(name, other, NATURAL)[0] > 0 for other in (*OTHERS, "ntk-old-logn"))
        assert difference("window", name, NATURAL)[1] > 0
    assert difference("ntk-mixed-logn", "ntk-fixed-logn", NATURAL)[0] > 0
    _, low, high = difference("ntk-old-logn", "ntk-mixed", NATURAL)
    assert low < 0 < high


def test_trained_log_n_is_ahead_for_conversions_only():
    for name in ("ntk-fixed", "ntk-mixed"):
        assert difference(f"{name}-logn", f"{name}-logn-test", NATURAL)[0] > 0.005
    for window in (16, 32):
        name = f"rerope-w{window}"
        assert abs(difference(f"{name}-logn", f"{name}-logn-test", NATURAL)[0]) < 0.02


def test_interpolation_is_ahead_of_rope_on_copies():
    assert difference("pi", "rope", NATURAL)[2] < 0
    assert difference("pi", "rope", REPEATED)[0] > 0
