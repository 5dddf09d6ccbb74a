"""Document 000: what its tables say, on two small models of chapter 12 (64 bytes in training, 512 at test).

`difference` asks the copy of the articles' model, `ahead` the scoreboard. Differences are in points of accuracy, with
95 % intervals over seeds and documents.
"""

from rope_lessons.lab.table.documents import difference
from tests.seeds import ahead, bits

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
    forms = ("ntk-old", "ntk-fixed", "ntk-mixed")
    assert all(ahead(f"{name}-logn", name, text)[2] < 0 for name in forms for text in ("natural", "repeated"))
    ten = (*OTHERS, *(f"{name}-logn" for name in forms))
    assert len(ten) == 10
    assert all(ahead("rope-window", name, "natural")[1] > 0 for name in ten)
    assert all(difference("window", name, NATURAL)[1] > 0 for name in ten)


def test_trained_log_n_is_not_surely_ahead_of_the_factor_afterwards():
    for name in ("ntk-fixed", "ntk-mixed"):
        assert round(100 * difference(f"{name}-logn", f"{name}-logn-test", NATURAL)[0], 1) == 0.8
        assert round(100 * difference(f"{name}-logn", f"{name}-logn-test", REPEATED)[0], 1) == 2.4
        assert contains_zero(f"{name}-logn", f"{name}-logn-test", NATURAL)
    assert difference("ntk-fixed-logn", "ntk-fixed-logn-test", REPEATED)[1] > 0
    assert contains_zero("ntk-mixed-logn", "ntk-mixed-logn-test", REPEATED)
    assert all(contains_zero("rerope-w32-logn", "rerope-w32-logn-test", kind) for kind in (NATURAL, REPEATED))
    assert ahead("ntk-fixed-logn", "ntk-fixed-logn-test", "repeated") == (-4.2, -6.5, -1.9)
    assert ahead("ntk-mixed-logn", "ntk-mixed-logn-test", "repeated") == (-3.6, -5.1, -2.1)
    for name, points in (("ntk-fixed", -1.5), ("ntk-mixed", -1.4)):
        assert len(bits(f"{name}-logn-test")) == 3
        mean, low, high = ahead(f"{name}-logn", f"{name}-logn-test", "natural")
        assert mean == points
        assert low < 0 < high
    assert all(ahead("rerope-w32-logn", "rerope-w32-logn-test", text)[2] < 0 for text in ("natural", "repeated"))


def test_log_n_in_training_helps_one_model_on_copies_and_not_the_other():
    for name in ("rope", "pi", "ntk-old", "ntk-fixed", "ntk-mixed"):
        gain, low, _ = difference(f"{name}-logn", name, REPEATED)
        assert low > 0
        assert 0.05 < gain < 0.07
        assert 0 < difference(f"{name}-logn", name, NATURAL)[0] < 0.01
        assert contains_zero(f"{name}-logn", name, NATURAL)
        assert len(bits(f"{name}-logn")) == 5
        assert len(bits(name)) == (3 if name in ("ntk-old", "ntk-fixed") else 5)
        for text in ("natural", "repeated"):
            mean, _, high = ahead(f"{name}-logn", name, text)
            assert -4 < mean < -1
            assert (high < 0) is name.startswith("ntk")


def test_interpolation_is_behind_rope_on_copies_on_one_model_and_ahead_on_the_other():
    assert ahead("pi", "rope", "repeated") == (-5.6, -8.9, -2.3)
    assert ahead("pi", "rope", "natural") == (-8.0, -10.8, -5.3)
    assert difference("pi", "rope", NATURAL)[2] < 0
    gain, low, _ = difference("pi", "rope", REPEATED)
    assert low > 0
    assert round(100 * gain) == 4
