"""What chapter 15 measures on a pretrained model, on small random models of the architectures that it is meant for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

import rope_lessons as rl
from rope_lessons.lab.table import passkey
from rope_lessons.models import pretrained
from rope_lessons.models.llama import as_llama
from rope_lessons.scoreboard import live

SMALL: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 61,
    "max_position_embeddings": 32, "initializer_range": 0.3,
}  # fmt: skip
TOKENS = torch.randint(0, 61, (300,), generator=torch.Generator().manual_seed(1))


def model(kind: type = LlamaConfig, **options: Any) -> Any:
    torch.manual_seed(0)
    if kind is LlamaConfig:
        options = {"num_key_value_heads": 2, **options}
    return AutoModelForCausalLM.from_config(kind(**{**SMALL, **options})).eval()


YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 32}


def test_plans() -> None:
    small = model()
    found = pretrained.plans(small.config, 4)
    plain = rl.plan_from_hf(small.config)
    assert found["RoPE"] == plain
    assert found["YaRN 4"] == rl.plan_from_hf(model(rope_parameters=YARN).config)
    assert found["ReRoPE"] == tuple(replace(layer, window=8, slope=0.0) for layer in plain)
    assert all(layer.scale == rl.LogN(32, clip=True) for layer in found["ReRoPE, log n†"])
    assert found["a window (control)"] == tuple(replace(layer, visible_window=32) for layer in plain)
    with pytest.raises(ValueError, match="config must be of a model with plain RoPE"):
        pretrained.plans(model(rope_parameters=YARN).config, 4)


@torch.no_grad()
def test_losses_are_of_the_same_last_tokens() -> None:
    small = model()
    plans = pretrained.plans(small.config, 4)
    rows = pretrained.losses(small, TOKENS, plans, (16, 32, 128), texts=2, last=8)
    assert [(row["name"], row["length"]) for row in rows] == [(name, n) for name in plans for n in (16, 32, 128)]
    by = {(row["name"], row["length"]): row["loss"] for row in rows}
    rl.hf.extend(small, plans["ReRoPE"])
    wanted = []
    for end in (129, 300):
        logits = small(TOKENS[None, end - 129 : end - 1]).logits[0, -8:]
        wanted.append(F.cross_entropy(logits, TOKENS[end - 8 : end]).item())
    assert by["ReRoPE", 128] == pytest.approx(sum(wanted) / 2, abs=1e-4)
    assert by["RoPE", 16] == by["RoPE, log n†", 16]  # nothing is beyond the training length
    assert by["RoPE", 128] != by["ReRoPE", 128]


# --- needles ---------------------------------------------------------------------------------------------------------


def encode(text: str) -> list[int]:
    """A tokenizer with 61 tokens: digits are tokens of their own."""
    return [int(letter) if letter.isdigit() else 10 + ord(letter) % 51 for letter in text]


@torch.no_grad()
def test_needles_are_found_where_every_digit_is_the_best() -> None:
    """Beside a plain loop: the text is built by hand, and the model asked token by token."""
    small, wording = model(), ("<{0}>", "<{0}")
    plan = {"RoPE": rl.plan_from_hf(small.config)}
    rows = pretrained.needles(small, encode, TOKENS, plan, (24, 40), wording=wording, texts=3)
    assert [(row["name"], row["length"]) for row in rows] == [("RoPE", 24), ("RoPE", 40)]
    keys = np.random.Generator(np.random.Philox(key=1)).integers(10, size=(3, pretrained.DIGITS))
    for row in rows:
        found = []
        for end, key in zip((41, 170, 300), keys, strict=True):
            digits = "".join(map(str, key))
            needle, question = encode(f"<{digits}>"), encode("<")
            room = row["length"] + 1 - len(needle) - len(question) - 5
            filler = TOKENS[end - room : end].tolist()
            for depth in pretrained.DEPTHS:
                before = [*filler[: round(depth * room)], *needle, *filler[round(depth * room) :], *question]
                said = []
                for digit in encode(digits):
                    said.append(int(small(torch.tensor([before])).logits[0, -1].argmax()) == digit)
                    before.append(digit)
                assert len(before) == row["length"] + 1
                found.append(all(said))
        assert row["needles"] == pytest.approx(100 * sum(found) / len(found), abs=0.05)


def test_a_model_that_copies_finds_its_needles() -> None:
    """The scoreboard's, as a Llama: nearly all at home, none of them with RoPE at eight times the length."""
    small = as_llama(live.load(), 64)
    text = "".join(bytes(row.tolist()).decode("latin-1") for row in live.windows()[:8])
    plans = pretrained.plans(small.config, 8)
    rows = pretrained.measure(
        small, lambda part: list(part.encode("latin-1")), text, (64, 512), texts=4, last=64,
        named_plans={name: plans[name] for name in ("RoPE", "ReRoPE, log n†")},
        wording=(passkey.NEEDLE, passkey.QUESTION),
    )  # fmt: skip
    by = {(row["name"], row["length"]): row for row in rows}
    assert by["RoPE", 64]["needles"] > 90 > 10 > by["RoPE", 512]["needles"]
    assert by["ReRoPE, log n†", 512]["needles"] > 60
    assert by["RoPE", 512]["loss"] > by["RoPE", 64]["loss"] + 1 > by["ReRoPE, log n†", 512]["loss"]


def test_all_of_the_colab_part_on_a_random_model_of_its_form() -> None:
    """SmolLM's 9 heads that share 3 of keys, and every plan that is drawn."""
    small = model(hidden_size=36, num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True)
    rows = pretrained.measure(small, encode, "a text 123. " * 40, (16, 32, 64), wording=("{0}", "{0}"), texts=2, last=8)
    assert len(rows) == 3 * len(pretrained.plans(small.config, 2))
    assert all(row["loss"] > 0 and 0 <= row["needles"] <= 100 for row in rows)
    assert not hasattr(small.base_model, "rope_lessons")  # as it was before
    shown = rl.figures.models_extended(rows, trained=32)
    assert all(row["name"] in shown.alt for row in rows)


def test_errors() -> None:
    small = model()
    plain = {"RoPE": rl.plan_from_hf(small.config)}
    with pytest.raises(ValueError, match="tokens must be more than the longest length, 300, got 300"):
        pretrained.losses(small, TOKENS, plain, (300,))
    with pytest.raises(ValueError, match="lengths must be at least 12 for needle and question, got 8"):
        pretrained.needles(small, encode, TOKENS, plain, (8,), wording=("<{0}>", "<{0}"))


@pytest.mark.parametrize("revision", [None, "main", "v1.0", "1d46172", "A" * 40, 7])
def test_only_a_full_commit_is_downloaded(revision: Any) -> None:
    with pytest.raises(ValueError, match=r"revision must be a full commit of 'x', 40 hexadecimal digits .*, got "):
        pretrained.download("x", revision=revision)


def test_without_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("We couldn't connect")

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", fail)
    with pytest.raises(OSError, match=r"SmolLM-135M is not on this machine .* needs the network"):
        pretrained.download()


def test_downloaded_model_and_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    small = model()
    asked = []

    def fake(kind: str, found: Any) -> Any:
        return lambda name, **options: asked.append((kind, name, options)) or found

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", fake("tokenizer", "a tokenizer"))
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", fake("model", small))
    assert pretrained.download("x", revision="a" * 40) == (small, "a tokenizer")
    fixed = {"revision": "a" * 40, "trust_remote_code": False}
    assert asked == [("tokenizer", "x", fixed), ("model", "x", {**fixed, "use_safetensors": True})]
    pretrained.download()
    assert {options["revision"] for _, name, options in asked if name == pretrained.MODEL} == {
        pretrained.REVISIONS[pretrained.MODEL]
    }
    assert len(pretrained.stdlib_text()) > 300_000
