"""The rows: what shares a training, and what is tested beside it."""

from __future__ import annotations

import pytest

from experiments.scoreboard_jobs import SECOND
from rope_lessons.lab.rows import trainings
from rope_lessons.scoreboard import rows
from rope_lessons.scoreboard.recipe import RUNGS

TABLE = rows.rows(4, 32, 64)


def test_every_training_has_its_window() -> None:
    """The control: the same weights, and nobody sees farther than the training length."""
    shared = trainings(TABLE.values())
    for name, members in shared.items():
        control = TABLE[f"{name}-window"]
        assert control in members
        assert all(layer.visible_window is not None and layer.visible_window <= 64 for layer in control.method.test)
        assert control.method.train_plan(3) == TABLE[name].method.train_plan(3)


def test_the_main_trainings_are_there() -> None:
    assert set(rows.MAIN) <= trainings(TABLE.values()).keys()


def test_what_changes_at_the_test_alone_shares_the_training_of_rope() -> None:
    assert len(trainings(TABLE.values())["rope"]) > 25
    for name in ("yarn", "rerope-w32", "self-extend-w32", "streaming", "lm-infinite", "rope-logn-test"):
        assert TABLE[name].training == TABLE["rope"].training


def test_the_second_rung_has_its_rows_and_8_megabytes() -> None:
    """Its windows are the same shares of the training length as those of the first."""
    own, table = RUNGS["second"], RUNGS["second"].rows
    assert own.steps * own.batch * own.train_length <= 8e6
    shared = trainings(table.values())
    for name, tested in SECOND.items():
        members = {row.name for row in shared[name]}
        assert {name, f"{name}-window", *tested} <= members
    assert table["hwfa2-w64-logn"].method.test[3].window == 128
    assert {name.replace("w64", "w16") for name in SECOND} <= set(trainings(TABLE.values()))


def test_a_tuned_row_is_trained_with_its_test() -> None:
    tuned = rows.as_tuned(TABLE["yarn"])
    assert tuned.method.train == tuned.method.test == TABLE["yarn"].method.test


def test_recipes_draw_the_same_windows_whole_or_in_part() -> None:
    """A step's needles do not depend on which of its windows are asked for, nor its text on the needles."""
    import numpy as np
    import torch

    text, recipe = np.arange(5000).astype(np.uint8), RUNGS["small"]
    whole = recipe.windows(text, 7)
    assert torch.equal(recipe.windows(text, 7, slice(1, 9, 2)), whole[1:9:2])
    assert not torch.equal(recipe.windows(text, 8), whole)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"layers": 1}, "layers must be an int of at least 2"),
        ({"train_length": 24}, "train_length must be a multiple of 16, got 24"),
        ({"factor": 0.5}, "factor must be from 1 to 33554432 for a train_length of 64, got 0.5"),
        ({"factor": 2.0**26}, "factor must be from 1 to 33554432 for a train_length of 64, got 67108864"),
        ({"train_length": 0}, "train_length must be an int of at least 16, got 0"),
    ],
)
def test_bad_input(options: dict, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        rows.rows(**{"layers": 4, "dim": 32, "train_length": 64, **options})


def test_rows_that_slow_some_pairs_add_up_to_the_rule_of_llama_3() -> None:
    """Every pair is slowed by exactly one of them: the closed ones, those from a quarter turn on, and the slowest."""
    import torch

    from rope_lessons.circles import llama3_frequencies
    from rope_lessons.sinusoidal import rope_frequencies

    parts = ("slowed-closed", "slowed-from-a-quarter", "slowed-below-a-quarter")
    factors = [torch.tensor(dict(TABLE[name].method.test[0].frequencies.options)["long_factor"]) for name in parts]
    speeds = llama3_frequencies(32, 8, 64) / rope_frequencies(32)
    assert torch.allclose(1 / torch.stack(factors).prod(dim=0).double(), speeds, rtol=1e-6)
    opened = torch.tensor(dict(TABLE["slowed-open"].method.test[0].frequencies.options)["long_factor"])
    assert torch.equal(opened, factors[1] * factors[2])
