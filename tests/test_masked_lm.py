"""The masked language model of chapter 10: both sides are seen, any positions taken, bytes hidden as said."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

import rope_lessons as rl
from rope_lessons.models import byte_lm, masked_lm

CONFIG = byte_lm.Config(width=32, heads=2, hidden=32, length=16, batch=4, steps=40)
ENCODER = (rl.scheme("rope", dim=16, causal=False),) * 2
NOPE = (rl.scheme("nope", causal=False),) * 2
TEXT = byte_lm.as_bytes(b"def f(x):\n    return x + 1\n" * 40)


def tokens(length: int = 20) -> torch.Tensor:
    return torch.randint(256, (3, length), generator=torch.Generator().manual_seed(0))


def test_number_of_parameters() -> None:
    """As the byte model of chapter 03, with one token more."""
    model = masked_lm.build(byte_lm.Config(), 0)
    assert sum(weight.numel() for weight in model.parameters()) == 295_552 + 128


def test_it_sees_both_sides() -> None:
    model, text = masked_lm.build(CONFIG, 0), tokens()
    before = model(text)
    text[0, 10] = masked_lm.MASK
    changed = (model(text) - before).abs().amax(dim=-1) > 1e-5
    assert before.shape == (3, 20, 256)
    assert changed[0].all()
    assert not changed[1:].any()
    with pytest.raises(ValueError, match="plan must be of schemes with causal=False"):
        masked_lm.build(CONFIG, 0, plan=(rl.scheme("rope", dim=16),) * 2)


@pytest.mark.parametrize("additive", [False, True])
def test_positions(additive: bool) -> None:
    """By default 0, 1, 2, …; RoPE sees distances only, the additive encoding positions too."""
    model = masked_lm.build(CONFIG, 0, NOPE if additive else ENCODER, additive)
    text, plain = tokens(), torch.arange(20)
    scores = model(text)
    assert torch.allclose(model(text, plain), scores, atol=1e-6)
    assert torch.allclose(model(text, plain.double().expand(3, 20)), scores, atol=1e-5)
    assert torch.allclose(model(text, plain + 100), scores, atol=1e-4) is not additive
    assert not torch.allclose(model(text, rl.random_positions.random_positions(20, 2048)), scores, atol=1e-3)
    each = rl.random_positions.equal_mean_positions(20, batch=3, generator=torch.Generator().manual_seed(0))
    rows = [model(text[i : i + 1], each[i]) for i in range(3)]
    assert torch.allclose(model(text, each), torch.cat(rows), atol=1e-5)


def test_only_some_places() -> None:
    model, text = masked_lm.build(CONFIG, 0), tokens()
    where = torch.rand(3, 20) < 0.3
    assert torch.allclose(model(text, only=where), model(text)[where], atol=1e-6)


def test_hiding() -> None:
    """15 percent, each byte on its own; what is not hidden stays as it was."""
    text = torch.randint(256, (400, 100))
    hidden_text, hidden = masked_lm.hide(text, torch.Generator().manual_seed(0))
    assert hidden.double().mean() == pytest.approx(0.15, abs=0.005)
    assert hidden.sum(dim=1).double().var() == pytest.approx(100 * 0.15 * 0.85, rel=0.25)
    assert (hidden_text[hidden] == masked_lm.MASK).all()
    assert torch.equal(hidden_text[~hidden], text[~hidden])


def test_seeds_decide_everything() -> None:
    draws = partial(rl.random_positions.random_positions, max_length=100)
    runs = []
    for seed, sampler in ((0, draws), (0, draws), (1, draws), (0, None)):
        model = masked_lm.build(CONFIG, seed, ENCODER)
        runs.append(masked_lm.train(model, TEXT, CONFIG, seed, sampler, steps=3))
    assert runs[0] == runs[1]
    assert runs[2] != runs[0] != runs[3]
    state = torch.get_rng_state()
    masked_lm.train(masked_lm.build(CONFIG, 5), TEXT, CONFIG, 5, steps=1)
    assert torch.equal(state, torch.get_rng_state())


def test_it_learns() -> None:
    model = masked_lm.build(CONFIG, 0)
    losses = masked_lm.train(model, TEXT, CONFIG, 0)
    assert len(losses) == 40
    assert sum(losses[-5:]) / 5 < 0.8 * losses[0]


def test_the_same_bytes_are_hidden_at_every_length() -> None:
    """Pieces do not see each other: the first piece is the same alone. The losses are of the same bytes."""
    model, windows = masked_lm.build(CONFIG, 0), byte_lm.evaluation_windows()[:13]
    hidden_text, hidden = masked_lm.hide(windows[:, :-1], torch.Generator().manual_seed(0))
    hits, losses = masked_lm.evaluate(model, windows, 64)
    assert len(hits) == len(losses) == hidden.sum()
    scores = model(hidden_text.reshape(-1, 64)).view(13, 512, 256)
    right = windows[:, :-1][hidden]
    assert torch.equal(hits, (scores[hidden].argmax(dim=-1) == right).double())
    expected = torch.nn.functional.cross_entropy(scores[hidden], right, reduction="none")
    assert torch.allclose(losses, expected.double(), atol=1e-5)
    longer = masked_lm.evaluate(model, windows, 512)[1]
    assert len(longer) == len(losses)
    assert not torch.allclose(longer, losses, atol=1e-3)


def test_evaluation_takes_plan_and_positions() -> None:
    model, windows = masked_lm.build(CONFIG, 0), byte_lm.evaluation_windows()[:2]
    plain = masked_lm.evaluate(model, windows, 128)[1]
    scaled = tuple(replace(layer, scale=rl.LogN(16)) for layer in ENCODER)
    assert not torch.equal(masked_lm.evaluate(model, windows, 128, plan=scaled)[1], plain)
    even = partial(rl.random_positions.grid_positions, max_length=256)
    assert not torch.equal(masked_lm.evaluate(model, windows, 128, sampler=even)[1], plain)
    draws = partial(rl.random_positions.random_positions, max_length=256)
    first, again, other = (masked_lm.evaluate(model, windows, 128, sampler=draws, seed=n)[1] for n in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    fast = masked_lm.evaluate(model, windows, 128, attend=partial(rl.attention, backend="flash"))[1]
    assert torch.allclose(fast, plain, atol=1e-4)


def test_save_and_load(tmp_path) -> None:
    model = masked_lm.build(CONFIG, 3, NOPE, additive=True)
    byte_lm.round_weights(model)
    byte_lm.save(model, tmp_path / "model.safetensors")
    loaded = masked_lm.load(tmp_path / "model.safetensors", CONFIG, NOPE, additive=True)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), loaded.parameters(), strict=True))
    assert loaded.additive
