"""What is found by turning unit vectors: beside the plans of models, and modules made by hand."""

from __future__ import annotations

from typing import Any

import peft
import pytest
import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

import rope_lessons as rl
from rope_lessons.hf import identify
from tests.test_model_types import ALL, CHOSEN, RIGHT
from tools import model_types

TYPES = RIGHT if ALL else [name for name in CHOSEN if name in RIGHT]


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.filterwarnings("ignore")
def test_a_model_is_what_its_plan_says(name: str) -> None:
    config = model_types.small(name)
    model = model_types.build(config)
    kinds = dict(zip(config.layer_types, rl.plan_from_hf(config), strict=True)) if nested(config) else {None: None}
    for layer_type, layer in kinds.items():
        layer = layer or next(layer for layer in rl.plan_from_hf(config) if layer.frequencies is not None)
        if layer.frequencies is None:
            with pytest.raises(ValueError, match=f"layer_type must be of layers that turn, got '{layer_type}'"):
                identify(model, layer_type=layer_type)
            continue
        found = identify(model, layer_type=layer_type)
        wanted = layer.frequencies(length=2)
        wanted = wanted[wanted > 0]  # pairs that stand still are none that turn
        assert (found.layout, found.sign, found.rotary_dim) == (layer.layout, 1, 2 * len(wanted))
        assert found.scale == pytest.approx(layer.rotary_scale, abs=1e-5)
        assert found.angles == torch.float32
        torch.testing.assert_close(torch.tensor(found.frequencies).double(), wanted, rtol=1e-5, atol=0)


def nested(config: Any) -> bool:
    return any(isinstance(value, dict) for value in config.rope_parameters.values())


@pytest.mark.filterwarnings("ignore")
def test_models_that_no_plan_holds() -> None:
    assert identify(model_types.build(model_types.small("nanochat"))).sign == -1
    sinks = identify(model_types.build(model_types.small("gpt_oss")))
    assert (sinks.layout, sinks.sign, sinks.scale > 1.2) == ("half", 1, True)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("rotary_dim", [4, 8])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_functions_by_hand(layout: str, sign: int, rotary_dim: int, dtype: torch.dtype) -> None:
    """Pairs as complex numbers."""
    frequencies = rl.rope_frequencies(rotary_dim)

    def turn(x: Tensor, positions: Tensor) -> Tensor:
        angles = (positions.to(dtype)[..., None] * frequencies.to(dtype)).double()[:, None]
        part = x[..., :rotary_dim].double()
        pairs = (part[..., ::2], part[..., 1::2]) if layout == "interleaved" else part.chunk(2, dim=-1)
        turned = torch.complex(*pairs) * torch.polar(torch.full_like(angles, 1.5), sign * angles)
        both = (turned.real, turned.imag)
        back = torch.stack(both, dim=-1).flatten(-2) if layout == "interleaved" else torch.cat(both, dim=-1)
        return torch.cat((back, x[..., rotary_dim:].double()), dim=-1)

    found = identify(turn, head_dim=8)
    assert found == rl.hf.Convention(layout, sign, 8, rotary_dim, 1.5, dtype, found.frequencies)
    torch.testing.assert_close(torch.tensor(found.frequencies).double(), frequencies, rtol=1e-2, atol=0)


@pytest.mark.filterwarnings("ignore")
def test_an_extended_model_is_still_itself() -> None:
    model = model_types.build(model_types.small("glm"))
    before = identify(model)
    assert identify(rl.hf.extend(model, "nope", through="attention")) == before
    lora = peft.LoraConfig(target_modules=["q_proj"])
    assert identify(peft.get_peft_model(model, lora)) == before


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: identify("llama"), TypeError, "model must be a model of transformers or a function .* got 'llama'"),
        (lambda: identify(lambda x, p: x), ValueError, "head_dim must be given with a function, got None"),
        (lambda: identify(lambda x, p: x, head_dim=1), ValueError, "head_dim must be an int of at least 2, got 1"),
        (lambda: identify(lambda x, p: x, head_dim=4), ValueError, "by pairs, got nothing turned at position 1"),
        (lambda: identify(lambda x, p: x.cumsum(-1), head_dim=4), ValueError, "by pairs, got channel 0 turned into"),
        (lambda: identify(GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=9))), ValueError,
         "model must turn queries and keys by a rotary_emb .* got GPT2LMHeadModel: give a function"),
        (lambda: identify(model_types.build(model_types.small("llama")), layer_type="full_attention"), ValueError,
         "layer_type must be None for a model that turns all layers alike, got 'full_attention'"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_what_is_refused(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
