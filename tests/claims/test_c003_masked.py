"""Document 003: what the author saw on a masked language model, on the small encoders of chapter 10."""

from statistics import mean

from claim_tools import contains_zero, interval

from rope_lessons import stored
from rope_lessons.chomsky import results

STORED = stored.results("random_positions")
SEEDS = STORED["seeds"]


def losses(table: str = "rows", **wanted: object) -> list[float]:
    """One for each seed, in order."""
    found = STORED[table].where(**wanted)["loss"]
    assert len(found) == len(SEEDS) == 3
    return found


def at(training: str, positions: str, length: int, log_n: bool, encoding: str = "rope") -> list[float]:
    return losses(encoding=encoding, training=training, positions=positions, length=length, log_n=log_n)


def test_a_grid_is_better_than_draws_at_test():
    for log_n in (False, True):
        for length in (128, 256, 512):
            grid, drawn = at("random", "grid", length, log_n), at("random", "random", length, log_n)
            assert all(a < b for a, b in zip(grid, drawn, strict=True))


def test_the_class_of_all_orders_is_not_learned():
    """A model that saw the order only would have one loss for all steps."""
    by_step = {
        step: losses("spacings", encoding="rope", training="random", spacing=step) for step in (1.0, 4.0, 16.0, 32.0)
    }
    for seed in range(3):
        assert by_step[1.0][seed] > by_step[32.0][seed] + 1
        assert by_step[4.0][seed] > by_step[16.0][seed] + 0.3


def below(first: list[float], second: list[float]) -> bool:
    """In each seed."""
    return all(a < b for a, b in zip(first, second, strict=True))


def minus(first: list[float], second: list[float]) -> list[float]:
    return [a - b for a, b in zip(first, second, strict=True)]


def test_equal_means_at_eight_times_the_length():
    """Below the random subset, and plain positions without the scale; the second is not sure."""
    best, drawn, plain = (
        at(training, positions, 512, False)
        for training, positions in (("equal-mean", "0, 1, 2"), ("random", "grid"), ("plain", "0, 1, 2"))
    )
    assert below(best, drawn)
    assert below(best, plain)
    assert tuple(round(x, 2) for x in interval(minus(drawn, best))) == (0.48, 0.16, 0.79)
    assert contains_zero(minus(plain, best))


def test_log_n_adds_nothing_to_equal_means():
    without, with_scale = (at("equal-mean", "0, 1, 2", 512, log_n) for log_n in (False, True))
    cost, low, _ = interval(minus(with_scale, without))
    assert low > 0
    assert round(cost, 2) == 0.04
    assert contains_zero(minus(with_scale, at("plain", "0, 1, 2", 512, True)))


def gains(training: str, positions: str) -> list[float]:
    """What the scale takes off the loss at 512, by seed."""
    pairs = zip(at(training, positions, 512, False), at(training, positions, 512, True), strict=True)
    return [without - with_scale for without, with_scale in pairs]


def test_log_n_on_a_masked_language_model():
    """A gain in every seed; three are too few to be sure."""
    for training, positions, gain in (("plain", "0, 1, 2", 0.40), ("random", "grid", 0.12)):
        by_seed = gains(training, positions)
        assert min(by_seed) > 0
        assert round(mean(by_seed), 2) == gain
        assert contains_zero(by_seed)


def test_log_n_gains_less_with_random_positions():
    less = minus(gains("plain", "0, 1, 2"), gains("random", "grid"))
    assert min(less) > 0
    assert tuple(round(x, 2) for x in interval(less)[1:]) == (0.01, 0.55)


def test_both_cures_are_not_always_better_than_one():
    """On the text the scale alone is better than both. On even pairs both are better than one, in the mean."""
    assert below(at("plain", "0, 1, 2", 512, True), at("random", "grid", 512, True))
    rows = [row for row in results.read() if row[:3] == ("even_pairs", "transformer", "rope")]
    for tested in ("random", "grid"):
        both, one = (
            mean([row.accuracy for row in rows if row[3] == variant and row[6:8] == (tested, 500)])
            for variant in ("random+logn", "random")
        )
        assert both > one + 0.1


def test_the_gap_between_encodings_shrinks_in_two_of_three_seeds():
    def gap(training: str, positions: str) -> list[float]:
        ours, theirs = (at(training, positions, 512, False, encoding) for encoding in ("rope", "sinusoidal"))
        return minus(theirs, ours)

    plain, random = gap("plain", "0, 1, 2"), gap("random", "grid")
    assert (round(mean(plain), 2), round(mean(random), 2)) == (0.67, 0.39)
    change = minus(plain, random)
    assert sum(x > 0 for x in change) == 2
    assert contains_zero(change)


def test_extrapolation_beats_interpolation_at_a_small_factor():
    assert below(at("plain", "0, 1, 2", 128, False), at("plain", "squeezed", 128, False))
