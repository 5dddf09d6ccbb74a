"""One test for each labelled equation of chapter 15, and for what its text says of the models."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser

import rope_lessons as rl
from rope_lessons.figures import models as figures
from rope_lessons.figures.sortable import SortableTable
from rope_lessons.hf.released import label
from rope_lessons.models.llama import as_llama
from rope_lessons.scoreboard import live

ROOT = Path(__file__).parents[2]
LESSON = (ROOT / "book" / "15_models.md").read_text("utf8")
DEEPER = (ROOT / "book" / "deeper" / "15_models.md").read_text("utf8")
MODELS = rl.hf.models()


def with_idea(idea: str) -> list[str]:
    return [name for name, model in MODELS.items() if idea in model.ideas]


def families(names: list[str]) -> list[str]:
    return list(dict.fromkeys(MODELS[name].family for name in names))


# --- equations -------------------------------------------------------------------------------------------------------


def test_eq_models_llama3() -> None:
    """Pair by pair in plain numbers, and those that the text does by hand."""
    for name in ("Llama 3.1 8B", "Llama 3.2 1B"):
        config = MODELS[name].config
        rope, base = config["rope_scaling"], config["rope_theta"]
        d = config["hidden_size"] // config["num_attention_heads"]
        spec = MODELS[name].plan()[0].frequencies
        assert spec is not None
        for t, found in enumerate(spec().tolist()):
            omega = base ** (-2 * t / d)
            tau = rope["original_max_position_embeddings"] * omega / (2 * math.pi)
            mu = min(1, max(0, (tau - 1) / (4 - 1)))
            assert found == pytest.approx(omega * (mu + (1 - mu) / rope["factor"]), rel=1e-12)


def test_pair_32_by_hand() -> None:
    omega = 1 / 707
    assert omega == pytest.approx(500_000**-0.5, rel=1e-3)
    radians = 8192 * omega
    assert radians == pytest.approx(11.6, abs=0.05)
    tau = radians / (2 * math.pi)
    assert tau == pytest.approx(1.84, abs=0.005)
    share = (1.84 - 1) / (4 - 1)
    assert share == pytest.approx(0.28, abs=0.005)
    left = 0.28 + 0.72 / 8
    assert left == pytest.approx(0.37, abs=0.005)


def test_eq_models_chunks() -> None:
    """Beside transformers' own mask, and the mean of the text."""
    from transformers import Llama4TextConfig
    from transformers.masking_utils import create_chunked_causal_mask

    length, chunk = 24, 8
    config: Any = Llama4TextConfig(attention_chunk_size=chunk)
    config._attn_implementation = "eager"
    mask: Any = create_chunked_causal_mask(
        config, torch.zeros(1, length, 4), torch.ones(1, length), past_key_values=None,
        position_ids=torch.arange(length)[None],
    )  # fmt: skip
    i, j = torch.arange(length)[:, None], torch.arange(length)
    visible = (i // chunk == j // chunk) & (j <= i)
    assert (mask[0, 0] == 0).tolist() == visible.tolist()
    assert visible.sum(1).double().mean() == (chunk + 1) / 2
    assert not visible[chunk, chunk - 1]  # neighbours on both sides of a border


def test_eq_models_mla() -> None:
    """The two parts are partial RoPE on one long key, whose turning channels all heads share."""
    generator = torch.Generator().manual_seed(0)
    heads, tokens, normal, turning, rank, width = 3, 7, 6, 4, 5, 8
    q = torch.randn(1, heads, tokens, normal + turning, generator=generator, dtype=torch.float64)
    c = torch.randn(tokens, rank, generator=generator, dtype=torch.float64)
    x = torch.randn(tokens, width, generator=generator, dtype=torch.float64)
    up = torch.randn(heads, normal, rank, generator=generator, dtype=torch.float64)
    w = torch.randn(turning, width, generator=generator, dtype=torch.float64)
    omega = rl.rope_frequencies(turning)
    shared = (x @ w.T).expand(1, heads, tokens, turning)
    long_key = torch.cat([shared, (c @ up.transpose(1, 2))[None]], dim=-1)
    long_query = torch.cat([q[..., normal:], q[..., :normal]], dim=-1)
    v = torch.eye(tokens, dtype=torch.float64).expand(1, heads, tokens, tokens).contiguous()
    weights = rl.attention(
        long_query, long_key, v, rl.Scheme(rl.FrequencySpec("rope", dim=turning)), backend="reference"
    )
    for head in range(heads):
        for i in range(tokens):
            scores = []
            for j in range(i + 1):
                r = rl.apply_rotary(
                    q[:, head : head + 1, i : i + 1, normal:], torch.tensor([i - j]), omega, layout="half"
                )
                turned = r[0, 0, 0] @ (w @ x[j])
                scores.append((q[0, head, i, :normal] @ (up[head] @ c[j]) + turned) / math.sqrt(normal + turning))
            expected = torch.stack(scores).softmax(0)
            assert torch.allclose(weights[0, head, i, : i + 1], expected, atol=1e-6)


# --- what the text says ----------------------------------------------------------------------------------------------


def test_numbers_of_models_in_the_text() -> None:
    refused = [name for name, model in MODELS.items() if model.refused is not None]
    assert len(MODELS) == 42
    assert "Each of the 42 was read" in LESSON
    assert len(refused) == 13
    assert "Thirteen of the 42 are refused" in LESSON
    mixed = [name for name, model in MODELS.items() if {"all"} < {layer.sees for layer in model.layers} - {"none"}]
    makers = {MODELS[name].family.split()[0] for name in mixed}
    assert len(mixed) == 11
    assert makers == {"Gemma", "Command", "Llama", "EXAONE", "gpt-oss", "Olmo"}
    assert "eleven models of our list, from six makers" in LESSON
    plain = {name: model for name, model in MODELS.items()
             if all(layer.turns in (None, "rope", "mrope") for layer in model.layers)}  # fmt: skip
    far = [name for name, model in plain.items() if (model.claimed or 0) >= 32_768]
    raised = [name for name in far if max(layer.base or 0 for layer in plain[name].layers) > 10_000]
    assert len(far) == 11
    assert set(far) - set(raised) == {"Mistral 7B v0.1"}
    assert "Eleven of the files that change no frequencies claim 32k to 256k" in LESSON
    assert max(plain[name].claimed or 0 for name in far) == 262_144
    assert len(families(with_idea("nope"))) == 5
    assert "*No positions where one sees far*: five." in LESSON
    assert families(with_idea("log n")) == ["Qwen", "Llama 4", "Ministral 3"]
    assert families(with_idea("hwfa")) == ["Command R7B", "Command A", "Llama 4", "EXAONE 4"]
    rules = [
        name
        for name, model in MODELS.items()
        if any(layer.turns not in (None, "rope", "mrope") for layer in model.layers)
    ]
    assert len({*with_idea("larger base"), *rules}) == 33
    assert "33 of the 42, by a rule or by a base above 10,000" in LESSON
    for name in with_idea("hwfa"):
        counted = Counter(layer.turns is None for layer in MODELS[name].layers)
        assert counted[False] == 3 * counted[True]  # three to one


def test_the_guess() -> None:
    """Of Command R7B: eight layers see everything, none of them turns; the class computes one, its code the other."""
    plan = MODELS["Command R7B"].plan()
    far = [layer for layer in plan if layer.visible_window is None]
    assert len(plan) == 32
    assert len(far) == 8
    assert all(layer.frequencies is None for layer in far)
    assert "Eight layers can look at the first line, and none of the eight has positions" in LESSON
    from transformers import Cohere2Config

    code = (Path(inspect.getfile(Cohere2Config)).parent / "modeling_cohere2.py").read_text("utf8")
    assert "if self.sliding_window is not None:" in code
    assert "if self.sliding_window is not None" in LESSON


def test_only_models_with_changed_frequencies_are_below_the_line() -> None:
    below = []
    for name, model in MODELS.items():
        base = max((layer.base or 0 for layer in model.layers), default=0)
        if model.claimed is not None and base < figures.turns_once(model.claimed):
            below.append(name)
            assert any(layer.turns not in (None, "rope") for layer in model.layers)
    assert below == ["Phi-3.5 mini", "Phi-4 mini", "DeepSeek-V2 Lite", "DeepSeek-V3", "Llama 4 Scout"]
    length = 2 * math.pi * figures.turns_once(4096) ** (126 / 128)
    assert length == pytest.approx(4096)


def test_gemma_3() -> None:
    layers = MODELS["Gemma 3 4B"].layers
    assert [at for at, layer in enumerate(layers) if layer.sees == "all"] == [5, 11, 17, 23, 29]
    assert {(layer.turns, layer.base) for layer in layers if layer.sees == "all"} == {("pi", 1e6)}
    assert figures.share_read(MODELS["Gemma 3 4B"]) == pytest.approx(0.15, abs=0.005)


def test_exaone() -> None:
    """Its hands are slowed in windows alone, which see less than the length before."""
    model = MODELS["EXAONE 4.0 32B"]
    turning = [layer for layer in model.layers if layer.turns is not None]
    assert {(layer.turns, layer.sees, layer.size) for layer in turning} == {("llama3", "window", 4096)}
    assert model.trained == 8192
    assert model.config["rope_scaling"]["factor"] == 16


def test_llama_is_16_times_and_the_factor_is_8() -> None:
    model = MODELS["Llama 3.1 8B"]
    assert model.trained is not None
    assert model.claimed == 16 * model.trained
    assert model.config["rope_scaling"]["factor"] == 8


def test_olmos_recipe_is_ahead_in_what_the_text_says() -> None:
    """The table of the page, as the page computes it."""
    near, yarn = rl.scheme("window", dim=32, visible_window=64), rl.scheme("yarn", dim=32, factor=8.0, train_length=64)
    own, texts = live.load(), live.windows()[:12]

    def asked(plan: list[rl.Scheme]) -> list[float]:
        return [live.percent(own, tuple(plan), texts, 512, metric) for metric in ("natural", "far copies", "needle")]

    olmo, window, qwen = asked([near, yarn, yarn, near]), asked([near] * 4), asked([yarn] * 4)
    bare = asked([near, rl.scheme("nope"), rl.scheme("nope"), near])
    rerope = rl.scheme("rerope", dim=32, window=32, scale=rl.LogN(64, clip=True))
    bent = asked([near, rerope, rerope, near])
    assert bent[1] > olmo[1] > window[1] > qwen[1] > bare[1]
    assert bent[2] == 100
    assert olmo[2] > 50 > window[2] > qwen[2] >= bare[2]
    assert window[0] - olmo[0] == pytest.approx(2, abs=0.5)
    home = [live.percent(own, tuple(plan), texts, 64) for plan in (
        [near, rerope, rerope, near], [near] * 4, [near, yarn, yarn, near], [yarn] * 4,
        [near, rl.scheme("nope"), rl.scheme("nope"), near])]  # fmt: skip
    assert home[0] == pytest.approx(home[1], abs=0.5)
    assert home[1:] == sorted(home[1:], reverse=True)


def test_the_small_model_as_a_llama() -> None:
    own, tokens = live.load(), live.windows()[:2, :64]
    with torch.no_grad():
        assert (as_llama(own, 64)(tokens).logits - own(tokens)).abs().max() < 1e-3


def test_links_are_those_of_the_data() -> None:
    """Each address of a file on GitHub has a commit, and where the data has the file, the same one."""
    known = {(source.repository, source.path): source.revision for m in MODELS.values() for source in m.sources}
    pattern = re.compile(r"https://github.com/([^/]+/[^/]+)/blob/([^/]+)/([^)\s]+)")
    found = pattern.findall(LESSON + DEEPER)
    assert len(found) >= 6
    for repository, revision, path in found:
        assert re.fullmatch("[0-9a-f]{40}", revision)
        assert known.get((repository, path), revision) == revision


# --- figures ---------------------------------------------------------------------------------------------------------


def test_one_picture_for_each_model() -> None:
    shown = figures.models_explorable()._repr_html_()
    pictures = json.loads(shown.split("const pictures = ", 1)[1].split(";\nsvg.innerHTML", 1)[0])
    assert list(pictures) == list(MODELS)
    for name, picture in pictures.items():
        assert picture.count("<svg ") == 5  # a strip for each knob
        assert MODELS[name].sources[0].repository in picture
    assert "29 layers RoPE, base 10,000; 5 layers PI, base 1,000,000" in pictures["Gemma 3 4B"]
    assert "without positions" in pictures["Command A"]


def bars(strip: str) -> int:
    return strip.count("M")


def test_a_strip_has_a_bar_for_each_layer() -> None:
    for model in MODELS.values():
        strip = figures._strip(model.layers)
        chunks = sum(layer.sees == "chunk" for layer in model.layers)
        assert bars(strip) == len(model.layers) + chunks  # a chunk is drawn in two parts
        unturned = sum(layer.turns is None and layer.sees != "none" for layer in model.layers)
        outlined = re.findall(r'd="([^"]*)" fill="none"', strip)
        assert sum(map(bars, outlined)) == unturned


def test_the_gallery_has_every_model_once() -> None:
    gallery = rl.figures.models_gallery()
    names = [name for group in gallery.groups.values() for name in group]
    assert sorted(names) == sorted(MODELS)
    shown = gallery._repr_html_()
    assert shown.count('role="img"') == len(MODELS)
    assert all(float(size) >= 12 for size in re.findall(r"font-size:([\d.]+)px", shown))


def test_the_table_has_every_model_and_its_source() -> None:
    shown = rl.figures.models_table()
    assert isinstance(shown, SortableTable)
    assert {row.name for row in shown.rows} == set(MODELS)
    page = shown._repr_html_()
    for model in MODELS.values():
        for source in model.sources:
            assert f'<a href="{source.url}">' in page
    assert {kind for row in shown.rows for kind in row.tags["Frequencies"]} >= {label("yarn"), "no positions", "M-RoPE"}


def test_speeds_need_a_length_before() -> None:
    with pytest.raises(ValueError, match="names must be of models with a length before, got 'Gemma 3 4B'"):
        rl.figures.models_speeds(["Gemma 3 4B"])
    assert "Phi-3.5 mini" in rl.figures.models_speeds().alt


@pytest.mark.book
@pytest.mark.browser
def test_another_model_is_drawn(server: str, browser: Browser) -> None:
    tab = browser.new_page()
    tab.goto(f"{server}/book/15_models.html")
    root = tab.locator("#rl-models-knobs")
    root.locator("select").select_option(label="Command A")
    assert "without positions" in root.locator(".rl-picture").inner_text()
    assert root.locator(".rl-picture svg").count() == 5
    tab.close()
