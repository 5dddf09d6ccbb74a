"""Document 003: what the author saw on a masked language model, on the small encoders of chapter 10."""

from statistics import mean

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


def test_equal_means_at_eight_times_the_length():
    """Below the random subset, and plain positions without the scale."""
    best = at("equal-mean", "0, 1, 2", 512, False)
    assert below(best, at("random", "grid", 512, True))
    assert below(best, at("random", "grid", 512, False))
    assert below(best, at("plain", "0, 1, 2", 512, False))


def test_log_n_adds_nothing_to_equal_means():
    without, with_scale = (mean(at("equal-mean", "0, 1, 2", 512, log_n)) for log_n in (False, True))
    assert with_scale > without
    assert mean(at("plain", "0, 1, 2", 512, True)) < with_scale


def gains(training: str, positions: str) -> list[float]:
    """What the scale takes off the loss at 512, by seed."""
    pairs = zip(at(training, positions, 512, False), at(training, positions, 512, True), strict=True)
    return [without - with_scale for without, with_scale in pairs]


def test_log_n_on_a_masked_language_model():
    assert min(gains("plain", "0, 1, 2")) > 0
    assert min(gains("random", "grid")) > 0


def test_log_n_gains_less_with_random_positions():
    assert below(gains("random", "grid"), gains("plain", "0, 1, 2"))


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


def test_the_gap_between_encodings_shrinks():
    def gap(training: str, positions: str) -> float:
        ours, theirs = (at(training, positions, 512, False, encoding) for encoding in ("rope", "sinusoidal"))
        return mean(theirs) - mean(ours)

    assert round(gap("plain", "0, 1, 2"), 2) == 0.67
    assert round(gap("random", "grid"), 2) == 0.39


def test_extrapolation_beats_interpolation_at_a_small_factor():
    assert below(at("plain", "0, 1, 2", 128, False), at("plain", "squeezed", 128, False))
