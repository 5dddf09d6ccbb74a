"""Document 003: what the author saw on a masked language model, on the small encoders of chapter 10."""

import json

from rope_lessons.lab import byte_lm

STORED = json.loads((byte_lm.CHECKPOINTS / "random_positions.json").read_text("utf8"))
SEEDS = STORED["seeds"]


def losses(table: str = "rows", **wanted: object) -> list[float]:
    """One for each seed, in order."""
    found = [row["loss"] for row in STORED[table] if all(row[key] == value for key, value in wanted.items())]
    assert len(found) == len(SEEDS) == 3
    return found


def at(training: str, positions: str, length: int, log_n: bool, encoding: str = "rope") -> list[float]:
    return losses(encoding=encoding, training=training, positions=positions, length=length, log_n=log_n)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


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


def test_equal_means_at_eight_times_the_length():
    """Below the random subset and plain positions without the scale; with it, the scale does not help."""
    best = at("equal-mean", "0, 1, 2", 512, False)
    for other in (
        at("random", "grid", 512, True),
        at("random", "grid", 512, False),
        at("plain", "0, 1, 2", 512, False),
    ):
        assert all(a < b for a, b in zip(best, other, strict=True))
    assert mean(at("equal-mean", "0, 1, 2", 512, True)) > mean(best)


def test_log_n_on_a_masked_language_model():
    """It lowers the loss of plain positions at 512 by more than that of the random subset."""
    gains = {}
    for name, positions in (("plain", "0, 1, 2"), ("random", "grid")):
        pairs = zip(at(name, positions, 512, False), at(name, positions, 512, True), strict=True)
        gains[name] = [without - with_scale for without, with_scale in pairs]
        assert min(gains[name]) > 0
    assert all(a > b for a, b in zip(gains["plain"], gains["random"], strict=True))
