"""The tiny byte model of chapter 03: the shipped checkpoint, the stored results, the script that made both."""

from __future__ import annotations

import hashlib

import pytest
import torch

import rope_lessons as rl
from experiments import radix
from rope_lessons.models import byte_lm
from rope_lessons.stored import DATA, results

STORED = results("radix")
CONFIG = byte_lm.Config()


def row(method: str, length: int, seed: int = 0) -> dict:
    (found,) = STORED["rows"].where(method=method, length=length, seed=seed)
    return found


def accuracies(method: str, length: int = 512) -> list[float]:
    return STORED["rows"].where(method=method, length=length)["accuracy"]


@pytest.fixture(scope="module")
def model() -> byte_lm.ByteLM:
    return byte_lm.load()


@pytest.fixture(scope="module")
def windows() -> torch.Tensor:
    return byte_lm.evaluation_windows()


# --- the stored results --------------------------------------------------------------------------------------------


def test_results_say_where_they_come_from():
    for key in ("date", "hardware", "python", "torch", "config", "seeds", "chosen", "factor"):
        assert STORED[key]
    assert byte_lm.Config(**STORED["config"]) == CONFIG
    methods = {r["method"] for r in STORED["rows"]}
    for seed in STORED["seeds"]:
        assert {r["method"] for r in STORED["rows"] if r["seed"] == seed} == methods
    assert len(STORED["seeds"]) >= 3


def test_test_text_is_the_stored_one(windows):
    assert windows.shape == (104, 513)
    assert hashlib.sha256(windows.numpy().tobytes()).hexdigest() == STORED["test_text"]["sha256"]
    stored = results("radix_eval_text")
    assert all(byte_lm.is_held_out(name) for name in stored["files"])
    assert "PSF License" in stored["licence"]


def test_files_stay_small():
    sizes = {path.name: path.stat().st_size for path in DATA.glob("radix*")}
    assert sizes["radix_byte_lm.safetensors"] <= 700_000
    assert sizes["radix_eval_text.json"] <= 60_000


@pytest.mark.parametrize(("method", "length"), [("rope", 64), ("pi", 512), ("dynamic-ntk", 512)])
def test_stored_results_are_those_of_the_checkpoint(model, windows, method, length):
    """Recomputed here, on every piece. Other processors round differently: a few bytes of 53 248 may flip."""
    hits, losses = byte_lm.evaluate(model, windows, length, byte_lm.plans(CONFIG, STORED["factor"])[method])
    found = row(method, length)
    assert hits.mean().item() == pytest.approx(found["accuracy"], abs=1e-3)
    assert losses.mean().item() == pytest.approx(found["loss"], abs=1e-3)
    eighths = hits.view(len(hits), 8, -1).mean(dim=(0, 2))
    assert eighths.tolist() == pytest.approx(found["accuracy_by_eighth"], abs=3e-3)


def test_script_reproduces_its_first_losses_on_the_stored_text(windows):
    """The same seed, code and text give the same training, on any version of Python."""
    text = windows.flatten().to(torch.uint8)
    steps = len(STORED["rehearsal"])
    losses = byte_lm.train(byte_lm.build(CONFIG, 0), text, CONFIG, 0, steps=steps)
    assert losses == pytest.approx(STORED["rehearsal"], abs=2e-3)


def test_script_reproduces_its_first_losses_on_the_library():
    """On this Python's library: the same text gives the same losses; another version's text gives similar ones."""
    text = byte_lm.training_text()
    (stored,) = STORED["training"].where(seed=0)["first_losses"]
    losses = byte_lm.train(byte_lm.build(CONFIG, 0), text, CONFIG, 0, steps=len(stored))
    same = hashlib.sha256(text.numpy().tobytes()).hexdigest() == STORED["training_text"]["sha256"]
    assert losses == pytest.approx(stored, abs=2e-3 if same else 0.3)


# --- what chapter 03 says about the results -----------------------------------------------------------------------


def test_order_at_eight_times_the_length():
    """NTK is ahead of plain RoPE, and fixed ahead of old, in every seed; PI behind plain RoPE in four of five."""
    rope, pi, old, fixed, aware = (accuracies(m) for m in ("rope", "pi", "ntk-old", "ntk-fixed", "ntk-aware"))
    for variant in (old, fixed, aware):
        assert all(a > b for a, b in zip(variant, rope, strict=True))
    assert all(0 < f - o < 0.01 for f, o in zip(fixed, old, strict=True))
    assert sorted(a < b for a, b in zip(pi, rope, strict=True)) == [False, True, True, True, True]


def test_no_method_gains_from_the_longer_text():
    best = STORED["rows"].where(length=512).max("accuracy")
    assert best < min(accuracies("rope", 64)) - 0.1


def test_price_within_the_training_length():
    """About a point for NTK, half of everything for PI."""
    rope = sum(accuracies("rope", 64)) / 5
    assert 0.4 < sum(accuracies("pi", 64)) / 5 / rope < 0.6
    for variant in ("ntk-old", "ntk-fixed", "ntk-aware"):
        assert 0.005 < rope - sum(accuracies(variant, 64)) / 5 < 0.02


def mean_eighths(method: str) -> torch.Tensor:
    rows = STORED["rows"].where(method=method, length=512)
    return torch.tensor([r["accuracy_by_eighth"] for r in rows]).mean(dim=0)


def test_reach_grows_with_the_factor():
    """The first eighth loses with every larger factor; the largest mean is at 128; PI does not fall."""
    names = ["rope", *(f"ntk-aware-{k}" if k != 8 else "ntk-aware" for k in (2, 4, 8, 16, 32, 64, 128, 512))]
    eighths = torch.stack([mean_eighths(name) for name in names])
    assert (eighths[1:, 0].diff() < 0).all()
    assert names[int(eighths.mean(dim=1).argmax())] == "ntk-aware-128"
    eight = mean_eighths("ntk-aware")
    assert (eight[1] - eight[0]).abs() < 0.01
    assert eight[3] < eight[1] - 0.15
    assert mean_eighths("pi").max() - mean_eighths("pi").min() < 0.03


def test_stale_cache():
    """Raw keys win in every seed; the loss is largest in bytes 64 to 127; from byte 256 on the stale cache leads."""
    assert all(raw > stale for raw, stale in zip(accuracies("cache-raw"), accuracies("cache-turned"), strict=True))
    difference = mean_eighths("cache-raw") - mean_eighths("cache-turned")
    assert int(difference.argmax()) == 1
    assert difference[1] > 0.15
    assert (difference[4:] < 0).all()
    ahead = [raw > fixed for raw, fixed in zip(accuracies("cache-raw"), accuracies("dynamic-ntk"), strict=True)]
    assert 0 < sum(ahead) < 5


def test_crowding_the_fast_hands_is_what_hurts(model, windows):
    frequencies = rl.rope_frequencies(64)
    assert int((63 * frequencies >= 2 * torch.pi).sum()) == 9
    found = {}
    for name, slowed in (("fast", slice(0, 9)), ("slow", slice(9, 32)), ("none", slice(0, 0))):
        changed = frequencies.clone()
        changed[slowed] /= 8

        def attend(q, k, v, scheme, changed=changed):
            return rl.attention(q, k, v, scheme, frequencies=changed)

        found[name] = byte_lm.evaluate(model, windows[::4], 64, attend=attend)[0].mean().item()
    assert found["none"] - found["slow"] < 0.07 < 0.2 < found["none"] - found["fast"]


# --- the parts -----------------------------------------------------------------------------------------------------


def test_number_of_parameters(model):
    by_hand = 256 * 128 + 2 * (4 * 128 * 128 + 2 * 128 * 256 + 2 * 128) + 128
    assert sum(weight.numel() for weight in model.parameters()) == by_hand == STORED["parameters"] == 295_552


def test_model_is_causal(model, windows):
    """A byte changes nothing before it."""
    tokens = windows[:1, :40].clone()
    before = model(tokens)
    tokens[0, 20] = 65
    after = model(tokens)
    assert torch.allclose(before[0, :20], after[0, :20], atol=1e-5)
    assert not torch.allclose(before[0, 20:], after[0, 20:], atol=1e-2)


def test_pieces_do_not_see_each_other(model, windows):
    """At length 64 every piece is on its own; the first piece is the same at every length."""
    short, _ = byte_lm.evaluate(model, windows[:4], 64)
    long, _ = byte_lm.evaluate(model, windows[:4], 512)
    assert torch.equal(short[:, :64], long[:, :64])
    alone, _ = byte_lm.evaluate(model, windows[:4, 64:129], 64)
    assert torch.equal(short[:, 64:128], alone)


def test_seeds_decide_everything():
    text = byte_lm.as_bytes(b"def f(x):\n    return x + 1\n" * 40)
    config = byte_lm.Config(width=32, heads=2, hidden=32, length=16, batch=4)
    runs = [byte_lm.train(byte_lm.build(config, seed), text, config, seed, steps=3) for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]
    state = torch.get_rng_state()
    byte_lm.build(config, 5)
    assert torch.equal(state, torch.get_rng_state())


def test_learning_rate_goes_up_and_down():
    rates = [
        byte_lm.learning_rate(step, CONFIG.learning_rate, CONFIG.warmup, CONFIG.steps) for step in range(CONFIG.steps)
    ]
    assert max(rates) == pytest.approx(CONFIG.learning_rate)
    assert rates.index(max(rates)) in (CONFIG.warmup - 1, CONFIG.warmup)
    assert rates[-1] == pytest.approx(CONFIG.learning_rate / 10, rel=1e-2)


def test_held_out_files_are_not_in_training():
    names = [name for name, _ in byte_lm.stdlib_files()]
    held = [name for name in names if byte_lm.is_held_out(name)]
    assert 0.02 < len(held) / len(names) < 0.1
    assert not any("test" in name.split("/") or "site-packages" in name for name in names)


def small_qkv(seq: int = 40) -> tuple[torch.Tensor, ...]:
    return torch.randn(3, 1, 2, seq, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).unbind(0)


def test_attend_raw_is_decoding_with_raw_keys():
    """One query at a time, all keys turned by the frequencies of the length so far."""
    q, k, v = small_qkv()
    scheme = rl.scheme("dynamic-ntk", dim=16, factor=4, train_length=10)
    found = byte_lm.attend_raw(q, k, v, scheme)
    for i in (0, 5, 12, 39):
        frequencies = rl.dynamic_ntk_frequencies(16, length=i + 1, train_length=10, factor=4)
        positions = torch.arange(i + 1)
        turned_q = rl.apply_rotary(q[:, :, i : i + 1], positions[-1:], frequencies, layout="half")
        turned_k = rl.apply_rotary(k[:, :, : i + 1], positions, frequencies, layout="half")
        weights = (turned_q @ turned_k.mT / 4).softmax(dim=-1)
        assert torch.allclose(found[:, :, i], (weights @ v[:, :, : i + 1])[:, :, 0], atol=1e-12)


def test_attend_stale_is_decoding_with_a_cache_of_turned_keys():
    """A loop that turns each key once, at its own step, and keeps it."""
    q, k, v = small_qkv()
    scheme = rl.scheme("dynamic-ntk", dim=16, factor=4, train_length=10)
    found = radix.attend_stale(q, k, v, scheme)
    cache = []
    for i in range(q.shape[2]):
        now, here = rl.dynamic_ntk_frequencies(16, length=i + 1, train_length=10, factor=4), torch.tensor([i])
        cache.append(rl.apply_rotary(k[:, :, i : i + 1], here, now, layout="half"))
        turned_q = rl.apply_rotary(q[:, :, i : i + 1], here, now, layout="half")
        weights = (turned_q @ torch.cat(cache, dim=2).mT / 4).softmax(dim=-1)
        assert torch.allclose(found[:, :, i], (weights @ v[:, :, : i + 1])[:, :, 0], atol=1e-12)
    with pytest.raises(ValueError, match="scheme must have frequencies"):
        radix.attend_stale(q, k, v, rl.scheme("nope"))


def test_both_ways_are_plain_attention_when_frequencies_are_fixed():
    q, k, v = small_qkv()
    scheme = rl.scheme("ntk-aware", dim=16, factor=4)
    plain = rl.attention(q, k, v, scheme)
    for attend in (radix.attend_stale, byte_lm.attend_raw):
        assert torch.allclose(attend(q, k, v, scheme), plain, atol=1e-12)


def test_save_and_load(tmp_path):
    model = byte_lm.build(CONFIG, 3)
    byte_lm.round_weights(model)
    byte_lm.save(model, tmp_path / "model.safetensors")
    loaded = byte_lm.load(tmp_path / "model.safetensors")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), loaded.parameters(), strict=True))
