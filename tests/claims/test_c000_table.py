"""Document 000: what its tables say, on the small model of chapter 12 (64 bytes in training, 512 at test).

Differences are in points of accuracy, with 95 % intervals over seeds and documents.
"""

from rope_lessons.lab.table.documents import difference

NATURAL, REPEATED = "not repeated", "repeated"
OTHERS = ("rope", "rope-logn", "pi", "pi-logn", "ntk-old", "ntk-fixed", "ntk-mixed")


def contains_zero(first: str, second: str, kind: str) -> bool:
    """Chance alone may have made this difference."""
    _, low, high = difference(first, second, kind)
    return low < 0 < high


def test_order_of_the_forms_with_log_n_is_within_chance():
    """First and second on natural text; but the steps between the forms are not sure."""
    for name in ("ntk-mixed-logn", "ntk-fixed-logn"):
        assert all(difference(name, other, NATURAL)[0] > 0 for other in (*OTHERS, "ntk-old-logn"))
        assert difference("window", name, NATURAL)[1] > 0
    for kind in (NATURAL, REPEATED):
        assert contains_zero("ntk-fixed-logn", "ntk-mixed", kind)
    assert contains_zero("ntk-mixed-logn", "ntk-fixed-logn", NATURAL)
    assert difference("ntk-mixed-logn", "ntk-fixed-logn", REPEATED)[1] > 0
    assert difference("ntk-mixed-logn", "ntk-old-logn", NATURAL)[1] > 0
    assert contains_zero("ntk-mixed-logn", "ntk-old-logn", REPEATED)


def test_trained_log_n_is_not_surely_ahead_of_the_factor_afterwards():
    for name in ("ntk-fixed", "ntk-mixed"):
        assert round(100 * difference(f"{name}-logn", f"{name}-logn-test", NATURAL)[0], 1) == 0.8
        assert round(100 * difference(f"{name}-logn", f"{name}-logn-test", REPEATED)[0], 1) == 2.4
        assert contains_zero(f"{name}-logn", f"{name}-logn-test", NATURAL)
    assert difference("ntk-fixed-logn", "ntk-fixed-logn-test", REPEATED)[1] > 0
    assert contains_zero("ntk-mixed-logn", "ntk-mixed-logn-test", REPEATED)
    assert all(contains_zero("rerope-w32-logn", "rerope-w32-logn-test", kind) for kind in (NATURAL, REPEATED))


def test_log_n_in_training_extends_every_variant_on_copies():
    for name in ("rope", "pi", "ntk-old", "ntk-fixed", "ntk-mixed"):
        gain, low, _ = difference(f"{name}-logn", name, REPEATED)
        assert low > 0
        assert 0.05 < gain < 0.07
        assert 0 < difference(f"{name}-logn", name, NATURAL)[0] < 0.01
        assert contains_zero(f"{name}-logn", name, NATURAL)


def test_interpolation_is_ahead_of_rope_on_copies():
    assert difference("pi", "rope", NATURAL)[2] < 0
    gain, low, _ = difference("pi", "rope", REPEATED)
    assert low > 0
    assert round(100 * gain) == 4
