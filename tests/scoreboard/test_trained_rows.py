"""Rows that no plan of schemes says whole: what they train, and what they are tested with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import rope_lessons as rl
from rope_lessons.lab import training
from rope_lessons.lab.text import Corpus
from rope_lessons.lab.training import Team
from rope_lessons.scoreboard import recipe, scoring
from tests.scoreboard.conftest import TESTS

TRAININGS = ("sinusoidal", "learned", "rope-per-head", "random-positions", "equal-mean", "t5", "fire", "xpos")


@pytest.mark.parametrize("scheme", TRAININGS)
def test_training_goes_on_with_the_same_bits(scheme: str, tiny: recipe.Recipe, corpus: Corpus, tmp_path: Path) -> None:
    own, cpu = replace(tiny, scheme=scheme), Team(torch.device("cpu"))
    for folder, minutes in (("whole", 1.0), ("parts", 0.0), ("parts", 1.0)):
        training.train(own, corpus, tmp_path / folder, cpu, save_every=1, minutes=minutes, quiet=True)
    whole, parts = (training.load(tmp_path / name / "step-00000003.safetensors", kind=recipe.Recipe)
                    for name in ("whole", "parts"))  # fmt: skip
    assert whole[1] == own
    assert whole[2].sha256 == parts[2].sha256
    windows = scoring.texts(corpus, TESTS)
    for name, row in own.rows.items():
        if row.training == own.row.training:
            lengths = tuple(length for length in TESTS.lengths if row.longest is None or length <= row.longest)
            found = scoring.hits_of(whole[0], row, windows, TESTS, lengths)
            assert np.isfinite(found["loss 32"]).all(), name
            assert (f"natural {TESTS.lengths[-1]}" in found) == (name not in ("learned", "learned-window"))


def test_a_learned_table_cannot_be_read_beyond_its_end(tiny: recipe.Recipe, corpus: Corpus) -> None:
    from rope_lessons.lab import sizes

    own = replace(tiny, scheme="learned")
    model = sizes.build(own.config, 0, own.row.method.train)
    with pytest.raises(ValueError, match="the learned table has 32 rows and ends there, got 32"):
        scoring.hits_of(model, own.row, scoring.texts(corpus, TESTS), TESTS, TESTS.lengths)


def test_at_home_the_stretched_positions_are_those_of_training(tiny: recipe.Recipe) -> None:
    for name in ("sinusoidal-pi", "learned-pi"):
        draw = tiny.rows[name].method.test_positions
        assert draw is not None
        assert torch.equal(draw(32).long(), torch.arange(32))
        assert draw(128)[-1].item() == pytest.approx(31, abs=1e-12)
        assert draw(128).diff().allclose(torch.tensor(31 / 127, dtype=torch.float64))


def test_heads_take_their_bases_in_turn(tiny: recipe.Recipe) -> None:
    """Head by head the same as plain RoPE with one of the bases."""
    row = replace(tiny.rows["rope-per-head"], bases=(100.0, 7.0))
    q, k, v = torch.randn(3, 2, 3, 9, 4).unbind()
    found = row.attend(q, k, v, row.method.test[0])
    for head, base in enumerate((100.0, 7.0, 100.0)):
        alone = [x[:, head : head + 1] for x in (q, k, v)]
        wanted = rl.attention(*alone, rl.scheme("rope", dim=4, base=base))
        assert torch.allclose(found[:, head : head + 1], wanted, atol=1e-6)


def test_xpos_fades_over_half_of_the_training_length(tiny: recipe.Recipe) -> None:
    """Pair by pair: RoPE's share of the score, times zeta to the distance over 16."""
    row, (q, k) = tiny.rows["xpos"], torch.randn(2, 1, 1, 9, 4).unbind()
    values = torch.eye(9).expand(1, 1, 9, 9)
    found = row.attend(q, k, values, row.method.test[0])[0, 0]
    turned = [rl.apply_rotary(x, torch.arange(9), rl.rope_frequencies(4), layout="half")[0, 0] for x in (q, k)]
    away = rl.biases.distances(9)
    scores = sum(
        turned[0][:, pair::2] @ turned[1][:, pair::2].T * ((pair / 2 + 0.4) / 1.4) ** (away / 16) for pair in (0, 1)
    )
    wanted = (scores / 2).masked_fill(away < 0, -torch.inf).softmax(dim=-1)
    assert torch.allclose(found, wanted, atol=1e-5)


def test_positions_at_test_are_spread_or_ordinary(tiny: recipe.Recipe) -> None:
    spread, ordinary = (tiny.rows[f"random-positions{more}"] for more in ("", "-ordinary"))
    assert spread.training == ordinary.training
    assert spread.method.test_positions is not None
    assert spread.method.test_positions(128).tolist() == list(range(0, 512, 4))
    assert ordinary.method.test_positions is None


def test_what_no_plan_says_is_part_of_what_a_checkpoint_is_compared_by(tiny: recipe.Recipe) -> None:
    """And of nothing else: a row that was measured before there were such rows is what it was."""
    told = {name: training.identity(replace(tiny, scheme=name), "…") for name in ("rope", *TRAININGS)}
    more = {name: sorted(set(found) - set(told["rope"])) for name, found in told.items()}
    assert more["rope"] == more["equal-mean"] == []
    assert more["sinusoidal"] == ["encoding"]
    assert more["learned"] == ["encoding", "table"]
    assert more["rope-per-head"] == ["bases"]
    assert more["t5"] == ["bias", "bias_length"]
    assert more["xpos"] == ["xpos"]
    assert told["equal-mean"]["positions"].startswith("equal_mean_positions ")
