"""What to set for a length: the numbers by hand, and a plan that the model takes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

import rope_lessons as rl
from rope_lessons.figures.cheat import METHODS_ON_IT
from rope_lessons.hf import released
from rope_lessons.scoreboard.recipe import RUNGS
from rope_lessons.stored import results
from tests.test_extend import batch, model
from tools.project import ROOT

LLAMA = {"num_hidden_layers": 2, "head_dim": 8, "rope_theta": 1e4, "max_position_embeddings": 4096}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024, "rope_theta": 1e4}


def test_the_numbers_by_hand() -> None:
    advice = rl.hf.advise(LLAMA, 16_384)
    assert (advice.length, advice.trained, advice.claimed) == (16_384, 4096, 4096)
    assert len(advice.lines) == 5
    assert str(advice) == repr(advice) == "\n".join(advice.lines)
    assert "frequencies made for 4096 tokens, claims 4096; you want 16384, 4 times the claim" in advice.lines[0]
    made = [4096 * 1e4 ** (-t / 4) / (2 * math.pi) for t in range(4)]  # 651.9, 65.2, 6.5, 0.65
    assert f"4 pairs turns {made[0]:.1f} times, the slowest {made[3]:.2g}; 1 make no full turn" in advice.lines[1]
    assert "not measured" not in advice.lines[3]
    assert "Set ReRoPE, window 2048, with log n† in 2 of 2 layers" in advice.lines[2]
    assert f"the scores of the last token by {math.log(16_384) / math.log(4096):.2f}." in advice.lines[4]
    assert 'rl.hf.extend(model, "window", visible_window=4096)' in advice.lines[4]
    assert advice.plan == (rl.scheme("rerope", dim=8, window=2048, scale=rl.LogN(4096, clip=True)),) * 2


def right(row: str, metric: str, length: int) -> str:
    """As chapters 5, 8 and 12 print it."""
    shown = rl.figures.scoreboard_table(results("scoreboard")["rows"], {row: "it"}, columns=[(metric, length)])
    return shown.rows["it"][0]


def test_its_numbers_are_those_of_the_chapters_it_names() -> None:
    """Row by row those of the tables on their pages, and the plan is the row whose numbers it gives."""
    said = rl.hf.advise(LLAMA, 16_384).lines
    rows = {"rerope-w32-logn-test": "with it", "rope": "as trained", "rope-window": "with a plain window"}
    for row, name in rows.items():
        assert f"{right(row, 'natural', 64)}% and {right(row, 'natural', 512)}% {name}" in said[3]
    assert f"long text: {', '.join(right(row, 'needle', 512) + '%' for row in rows)}. Where" in said[3]
    assert "(chapters 8 and 12)" in said[3]
    for chapter in ("08_rerope", "12_shootout"):
        page = (ROOT / "book" / f"{chapter}.md").read_text("utf8")
        assert '"rerope-w32-logn-test"' in page
        assert '"rope-window"' in page
    tested = RUNGS["small"].rows["rerope-w32-logn-test"].method.test
    small = {**LLAMA, "head_dim": 32, "max_position_embeddings": 64, "num_hidden_layers": 4}
    assert rl.hf.advise(small, 512).plan == tested
    home = rl.hf.advise(LLAMA, 4096).lines[3]
    shares = [right(row, "natural", 64) for row in ("rope", "yarn", "pi")]
    assert "(chapter 5)" in home
    assert f"{shares[0]}% with plain RoPE, {shares[1]}% with YaRN and {shares[2]}% with PI, both by 8." in home


def test_it_advises_what_chapter_12_and_the_cheat_sheet_do() -> None:
    said = (ROOT / "book" / "12_shootout.md").read_text("utf8"), (ROOT / "book" / "cheat_sheet.md").read_text("utf8")
    assert "| change its attention, and need what is far | **ReRoPE with log n†**" in said[0]
    assert r"For a first try: $w = N/2$, log n†, and two controls beside it" in said[0]
    assert "| change the attention of a trained model | ReRoPE with log n†; for needles, if it" in said[1]
    assert "| the same, and nothing far has to be found | a window of the training length |" in said[1]
    code = next(entry.code for entry in METHODS_ON_IT if entry.row == "rerope-w32-logn-test")
    assert rl.hf.advise(LLAMA, 16_384).plan[0] == eval(code, {"rl": rl, "d": 8, "N": 4096})


@pytest.mark.parametrize("length", [1, 512, 4096])
def test_nothing_within_the_claim(length: int) -> None:
    for rope in ({}, {"rope_parameters": YARN}):
        advice = rl.hf.advise({**LLAMA, **rope}, length)
        assert advice.plan == rl.plan_from_hf({**LLAMA, **rope})
        assert advice.lines[2].startswith(f"Set nothing: {length} is within the claim")


def test_a_config_that_is_stretched_already() -> None:
    """The turns are those of training; a factor claims what the config's length leaves out."""
    for longest in (4096, 1024):
        advice = rl.hf.advise({**LLAMA, "rope_parameters": YARN, "max_position_embeddings": longest}, 8192)
        assert (advice.trained, advice.claimed) == (1024, 4096)
        assert f"turns {1024 / (2 * math.pi):.1f} times" in advice.lines[1]
        assert "in 2 of 2 layers, on top of YaRN, by which the config stretches them: no distance" in advice.lines[2]
        assert advice.lines[3].endswith(" On frequencies of kind YaRN it was not measured.")
        assert "yarn" not in advice.lines[4]  # a name does not stretch what is stretched
        own = rl.plan_from_hf({**LLAMA, "rope_parameters": YARN})
        assert advice.plan == tuple(replace(its, window=2048, slope=0.0, scale=rl.LogN(4096, clip=True)) for its in own)


@pytest.mark.parametrize("name", ["Llama 3.1 8B", "Llama 3.2 1B"])
def test_a_rule_of_llamas_kind_claims_nothing(name: str) -> None:
    """Its factor is half of what Llama 3.1 claims and twice what Llama 3.2 does."""
    found = released.known(name)
    assert rl.hf.advise(found.config, 500_000).claimed == found.claimed == 131_072


def test_dynamic_ntk_is_not_bent() -> None:
    """It is plain RoPE up to the training length, and would stretch what is near in a longer text."""
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}
    advice = rl.hf.advise({**LLAMA, "rope_parameters": rope}, 100_000)
    assert "in 2 of 2 layers, in place of dynamic NTK, which stretches what is near too: no" in advice.lines[2]
    assert advice.plan == (rl.scheme("rerope", dim=8, window=8192, scale=rl.LogN(16_384, clip=True)),) * 2
    assert "not measured" not in advice.lines[3]
    within = rl.hf.advise({**LLAMA, "rope_parameters": rope}, 8192)
    assert within.plan == rl.plan_from_hf({**LLAMA, "rope_parameters": rope})


def test_yarn_beside_it() -> None:
    said = rl.hf.advise(LLAMA, 10_000).lines[4]
    assert 'rl.hf.extend(model, "yarn", factor=3), which every cache' in said
    assert "for long texts only (chapter 5)" in said
    found = {metric: [f"{right('yarn', metric, n)}%" for n in (64, 512)] for metric in ("natural", "needle")}
    assert f"by 8 it had {' and '.join(found['natural'])} of the bytes, and {' and '.join(found['needle'])} of" in said
    assert "YaRN" not in rl.hf.advise(LLAMA, 4096).lines[4]


def test_windows_and_layers_without_positions_stay() -> None:
    kinds: dict[str, Any] = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 64}
    near, far = rl.hf.advise({**LLAMA, **kinds}, 10_000).plan
    assert (near.visible_window, near.slope) == (64, 1.0)
    assert (far.window, far.slope, far.scale) == (2048, 0.0, rl.LogN(4096, clip=True))
    assert near.scale is None
    all_near = {**LLAMA, "sliding_window": 64}
    advice = rl.hf.advise(all_near, 10_000)
    assert advice.plan == rl.plan_from_hf(all_near)
    assert advice.lines[2] == "Set nothing: no layer that turns sees farther than 4096 tokens."
    plan = rl.hf.advise({**LLAMA, "no_rope_layers": [1, 0]}, 10_000).plan
    assert [its.slope for its in plan] == [0.0, 1.0]


@torch.no_grad()
def test_a_model_takes_its_advice() -> None:
    small, tokens = model(rope_parameters={"rope_type": "default", "rope_theta": 1e4}), batch()[0][2:]
    own = rl.hf.plan_of(small)
    advice = rl.hf.advise(small, 1000)
    assert advice == rl.hf.advise(small.config, 1000)
    rl.hf.extend(small, advice.plan)
    assert rl.hf.plan_of(small)[0] == replace(own[0], window=64, slope=0.0, scale=rl.LogN(128, clip=True))
    assert small(tokens).logits.isfinite().all()
    assert rl.hf.advise(small, 1000) == advice  # of the model as it was loaded
    rl.hf.extend(small, "yarn", factor=4)
    assert rl.hf.advise(small, 1000) == advice


@pytest.mark.parametrize(
    ("config", "length", "error", "message"),
    [
        (LLAMA, 0, ValueError, "length must be an int of at least 1, got 0"),
        (LLAMA, 2.5, TypeError, "length must be"),
        (3, 10, TypeError, "config must be a dictionary or have to_dict, got int"),
        ({**LLAMA, "max_position_embeddings": None}, 10, ValueError, "config must contain 'max_position_embeddings'"),
        ({**LLAMA, "no_rope_layers": [0, 0]}, 10, ValueError, "model_or_config must have a layer that turns"),
    ],
)
def test_refusals(config: Any, length: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        rl.hf.advise(config, length)
