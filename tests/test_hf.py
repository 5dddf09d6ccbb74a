"""Config files of Hugging Face's transformers: the same frequencies and attention factors, and the same attention."""

from __future__ import annotations

import importlib
import random
from types import ModuleType
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import Gemma3TextConfig, LlamaConfig, ModernBertConfig, Phi3Config, Qwen3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import rope_lessons as rl
from rope_lessons import FrequencySpec, Scheme
from rope_lessons.hf.configs import HF_TYPES

# --- one layer: frequencies and attention factors -----------------------------------------------------------------


def llama_config(head_dim: int, length: int, rope: dict[str, Any]) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=4 * head_dim, num_attention_heads=4, head_dim=head_dim, max_position_embeddings=length,
        rope_parameters=dict(rope),
    )  # fmt: skip


def random_rope(rope_type: str, dim: int, draw: random.Random) -> dict[str, Any]:
    """A dictionary of this type with random numbers, every optional key there or not."""
    trained = draw.choice([256, 1000, 4096, 8192, 32_768])
    rope: dict[str, Any] = {"rope_type": rope_type, "rope_theta": draw.choice([1e4, 1.5e5, 5e5, 1e6])}
    rope |= {"factor": draw.choice([1.0, 2, 40.0, draw.uniform(1, 16)]), "original_max_position_embeddings": trained}
    optional: dict[str, Any] = {}
    if rope_type in ("linear", "dynamic", "proportional"):
        del rope["original_max_position_embeddings"]
    if rope_type == "yarn":
        optional = {
            "beta_fast": draw.uniform(8, 64),
            "beta_slow": draw.uniform(0.5, 4),
            "truncate": False,
        }
        if draw.random() < 0.5:
            optional["attention_factor"] = draw.uniform(0.5, 2)
        elif draw.random() < 0.5:
            rope |= {"mscale": draw.uniform(0.5, 1.5), "mscale_all_dim": draw.uniform(0.5, 1.5)}
    if rope_type == "llama3":
        rope |= {"low_freq_factor": draw.uniform(0.5, 2), "high_freq_factor": draw.uniform(3, 40)}
    if rope_type == "longrope":
        rope |= {name: [draw.uniform(1, 60) for _ in range(dim // 2)] for name in ("short_factor", "long_factor")}
        optional = {"attention_factor": draw.uniform(0.5, 2)}
    return rope | {key: value for key, value in optional.items() if draw.random() < 0.5}


@pytest.mark.parametrize("rope_type", sorted(HF_TYPES.keys() & ROPE_INIT_FUNCTIONS))
def test_frequencies_are_transformers(rope_type: str) -> None:
    """To float32 rounding, and the attention factors exactly, for random options, dims and lengths."""
    draw, seen = random.Random(5), set()
    for _ in range(60):
        head_dim = draw.choice([8, 64, 80, 96, 128, 256])
        share = draw.choice([1.0, 0.5, 0.75])
        rope = random_rope(rope_type, int(head_dim * share), draw)
        if share < 1:
            rope["partial_rotary_factor"] = share
        trained = rope.get("original_max_position_embeddings", draw.choice([256, 2048]))
        config = llama_config(head_dim, trained, rope)
        scheme = rl.scheme_from_hf(rope, head_dim=head_dim, max_position_embeddings=trained)
        for length in (trained // 2, trained, trained + 1, 5 * trained):
            wanted, factor = ROPE_INIT_FUNCTIONS[rope_type](config, "cpu", seq_len=length)
            found = scheme.frequencies(length=length)
            # the power, the division by it, the ramp and its two products; the base is a power too in dynamic NTK
            torch.testing.assert_close(found.float(), wanted, rtol=1e-5, atol=0)
            assert scheme.rotary_scale == factor
        seen.add(scheme)
    assert len(seen) > 50


def test_every_type_of_transformers_is_read() -> None:
    assert set(ROPE_INIT_FUNCTIONS) <= set(HF_TYPES)


@pytest.mark.parametrize("share", [None, 1.0, 0.5, 0.26, 0.25])
@pytest.mark.parametrize("factor", [None, 1.0, 8.0])
def test_proportional_is_transformers(share: float | None, factor: float | None) -> None:
    """All channels of the head: pairs that stand still are among them. There and back."""
    rope: dict[str, Any] = {"rope_type": "proportional", "rope_theta": 1e6}
    rope |= {} if share is None else {"partial_rotary_factor": share}
    rope |= {} if factor is None else {"factor": factor}
    scheme = rl.scheme_from_hf(rope, head_dim=64)
    wanted, scale = ROPE_INIT_FUNCTIONS["proportional"](llama_config(64, 512, rope), "cpu")
    assert scheme.rotary_dim == 64
    assert scale == scheme.rotary_scale == 1
    torch.testing.assert_close(scheme.frequencies().float(), wanted, rtol=1e-6, atol=0)
    assert int((scheme.frequencies() > 0).sum()) == int(64 * (share or 1)) // 2
    back = rl.scheme_to_hf(scheme, head_dim=64)
    assert rl.scheme_from_hf(back, head_dim=64) == scheme
    assert rl.plan_from_hf(rl.plan_to_hf((scheme,), head_dim=64)) == (scheme,)
    with pytest.raises(ValueError, match="frequencies must be of all 128 channels of a head for Hugging Face's 'propo"):
        rl.scheme_to_hf(scheme, head_dim=128)


def test_ntk_is_vllms() -> None:
    """vLLM's NTKScalingRotaryEmbedding, written out: with mixed_b it is NTK-RoPE-mixed, and without NTK-RoPE-fixed."""
    rope = {"rope_type": "ntk", "rope_theta": 1e4, "factor": 12.0}
    wanted = (1e4 * 12) ** (-torch.arange(0, 128, 2) / 128) / 12 ** (2 / 128)
    fixed = rl.scheme_from_hf(rope, head_dim=128)
    assert fixed == rl.scheme("ntk-fixed", dim=128, factor=12)
    torch.testing.assert_close(fixed.frequencies().float(), wanted, rtol=1e-5, atol=0)
    shares = (torch.tensor(12.0).log() / 64**0.75 * torch.arange(1, 65) ** 0.75).exp()
    mixed = rl.scheme_from_hf(rope | {"mixed_b": 0.75}, head_dim=128)
    assert mixed == rl.scheme("ntk-mixed", dim=128, factor=12, exponent=0.75)
    torch.testing.assert_close(mixed.frequencies().float(), 1e4 ** (-torch.arange(0, 128, 2) / 128) / shares)
    for scheme, back in ((fixed, rope), (mixed, rope | {"mixed_b": 0.75})):
        assert rl.scheme_to_hf(scheme) == back


def test_factor_implied_by_the_length() -> None:
    """A null or missing factor is max_position_embeddings over the training length, as in transformers."""
    yarn: dict[str, Any] = {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": None,
        "original_max_position_embeddings": 512,
    }
    long: dict[str, Any] = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 512}
    long |= {"short_factor": [1.0] * 32, "long_factor": [2.0] * 32}
    for rope in (yarn, long):
        wanted, factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](llama_config(64, 4096, rope), "cpu", seq_len=513)
        scheme = rl.scheme_from_hf(rope, head_dim=64, max_position_embeddings=4096)
        torch.testing.assert_close(scheme.frequencies(length=513).float(), wanted, rtol=1e-5, atol=0)
        assert scheme.rotary_scale == factor > 1
    for rope_type in ("yarn", "llama3"):  # and so is the training length
        rope = {"rope_type": rope_type, "rope_theta": 1e4, "factor": 2.0}
        rope |= {"low_freq_factor": 1, "high_freq_factor": 4} if rope_type == "llama3" else {}
        wanted, _ = ROPE_INIT_FUNCTIONS[rope_type](llama_config(64, 4096, rope), "cpu")
        scheme = rl.scheme_from_hf(rope, head_dim=64, max_position_embeddings=4096)
        torch.testing.assert_close(scheme.frequencies().float(), wanted, rtol=1e-5, atol=0)


def test_older_spelling_and_nulls() -> None:
    rope = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "rope_theta": 1e4}
    scheme = rl.scheme("yarn", dim=64, factor=4, train_length=512)
    assert rl.scheme_from_hf(rope, head_dim=64) == rl.scheme_from_hf(rope | {"rope_type": None}, head_dim=64) == scheme
    nulls = dict.fromkeys(("beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim"))
    assert rl.scheme_from_hf(rope | nulls | {"rope_type": "yarn"}, head_dim=64) == scheme
    assert rl.scheme_from_hf(rope, head_dim=64, rotary_scale=1.0).rotary_scale == 1


# --- a model: the plan beside the model itself --------------------------------------------------------------------

WINDOW, TOKENS = 5, 40
SMALL = {
    "vocab_size": 50, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
    "max_position_embeddings": 128, "pad_token_id": 0, "attn_implementation": "eager",
}  # fmt: skip
GROUPED, TYPES = {"num_key_value_heads": 2}, {"layer_types": ["sliding_attention", "full_attention"] * 2}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = YARN | {"rope_type": "llama3", "rope_theta": 1e4, "low_freq_factor": 1, "high_freq_factor": 4}
LONG: dict[str, Any] = {"rope_type": "longrope", "original_max_position_embeddings": 32}
LONG |= {"short_factor": [1.0 + t / 8 for t in range(8)], "long_factor": [1.0 + t for t in range(8)]}
BOTH = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
    "full_attention": YARN | {"rope_theta": 1e5},
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "llama": {**GROUPED, "rope_parameters": LLAMA3},
    "mistral": {**GROUPED, "sliding_window": WINDOW, "head_dim": 24},
    "mixtral": {**GROUPED, "sliding_window": WINDOW, "num_local_experts": 2},
    "qwen2": {**GROUPED, **TYPES, "use_sliding_window": True, "sliding_window": WINDOW, "rope_parameters": YARN},
    "qwen3": {**GROUPED, "head_dim": 16, "rope_parameters": {"rope_type": "linear", "factor": 4.0}},
    "gemma2": {**GROUPED, **TYPES, "head_dim": 16, "sliding_window": WINDOW, "query_pre_attn_scalar": 24}
    | {"attn_logit_softcapping": None},
    "gemma3_text": {**GROUPED, **TYPES, "head_dim": 16, "sliding_window": WINDOW, "query_pre_attn_scalar": 24}
    | {"rope_parameters": BOTH},
    "phi": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    "phi3": {**GROUPED, "sliding_window": WINDOW, "rope_parameters": LONG, "original_max_position_embeddings": 32},
    "gpt_neox": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}},
    "granite": {**GROUPED, "attention_multiplier": 0.3},
    "olmo2": {**GROUPED, "rope_parameters": {"rope_type": "dynamic", "factor": 4.0}, "max_position_embeddings": 24},
    "olmo3": {**GROUPED, **TYPES, "sliding_window": WINDOW, "rope_parameters": BOTH},
    "smollm3": {**GROUPED, "no_rope_layers": [1, 0, 1, 0]},
    "modernbert-decoder": {**TYPES, "local_attention": 2 * WINDOW, "rope_parameters": BOTH},
    "modernbert": {**TYPES, "local_attention": 2 * WINDOW, "rope_parameters": BOTH},
}  # fmt: skip


def build(model_type: str) -> tuple[nn.Module, ModuleType]:
    """A small model with random weights, and the module that its attention is written in."""
    config = transformers.AutoConfig.for_model(model_type, **{**SMALL, **MODELS[model_type]})
    model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:  # large enough that the attention is far from even
            nn.init.normal_(parameter, std=0.3)
    return model, importlib.import_module(type(model).__module__)


def listen(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, ...]]:
    """For each call of attention: queries and keys before they are turned, values, and what comes out."""
    heard: list[tuple[Tensor, ...]] = []
    turned: list[tuple[Tensor, Tensor]] = []
    turn, attend = module.apply_rotary_pos_emb, module.eager_attention_forward

    def turn_aloud(q: Tensor, k: Tensor, *rest: Any, **options: Any) -> Any:
        turned.append((q, k))
        return turn(q, k, *rest, **options)

    def attend_aloud(layer: nn.Module, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **options: Any) -> Any:
        output = attend(layer, q, k, v, *rest, **options)
        raw = turned.pop() if turned else (q, k)  # NoPE layers turn nothing; partial rotary passes a part only
        whole = [torch.cat((x, y[..., x.shape[-1] :]), dim=-1) for x, y in zip(raw, (q, k), strict=True)]
        heard.append((*whole, v, output[0].transpose(1, 2)))
        return output

    monkeypatch.setattr(module, "apply_rotary_pos_emb", turn_aloud)
    monkeypatch.setattr(module, "eager_attention_forward", attend_aloud)
    return heard


@pytest.mark.parametrize("model_type", MODELS)
def test_plan_is_what_the_model_does(model_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every layer of the model, run with its own weights, and our attention on its queries, keys and values."""
    torch.manual_seed(0)
    model, module = build(model_type)
    plan = rl.plan_from_hf(model.config)
    heard = listen(module, monkeypatch)
    with torch.no_grad():
        model(torch.randint(1, 50, (2, TOKENS)), attention_mask=torch.ones(2, TOKENS, dtype=torch.long))
    assert len(plan) == len(heard) == 4
    for scheme, (q, k, v, output) in zip(plan, heard, strict=True):
        torch.testing.assert_close(rl.attention(q, k, v, scheme, backend="reference"), output, rtol=1e-5, atol=2e-5)
        plain = rl.attention(q, k, v, Scheme(causal=scheme.causal), backend="reference")
        if scheme != Scheme():  # far from what no positions, no window and no scale give
            assert (plain - output).abs().max() > 0.05


def test_plans_of_real_configs() -> None:
    """The defaults of transformers' classes, which are those of the first models of each family."""
    plan = rl.plan_from_hf(Gemma3TextConfig())
    near = rl.scheme("window", dim=256, visible_window=4096)
    far = rl.scheme("rope", dim=256, base=1e6)
    assert plan == (near, near, near, near, near, far) * 4 + (near, near)
    assert rl.plan_from_hf(Gemma3TextConfig(query_pre_attn_scalar=168))[5].base_scale == 168**-0.5
    near = rl.scheme("window", dim=64, visible_window=65, causal=False)  # 64 tokens on each side, and itself
    far = rl.scheme("rope", dim=64, base=160_000.0, causal=False)
    assert rl.plan_from_hf(ModernBertConfig()) == (far, near, near) * 7 + (far,)
    assert rl.plan_from_hf(Qwen3Config()) == (rl.scheme("rope", dim=128),) * 32
    assert rl.plan_from_hf(Phi3Config(num_hidden_layers=1)) == (rl.scheme("rope", dim=96),)


def test_a_config_file_of_before_transformers_5() -> None:
    """rope_scaling and rope_theta beside each other; nulls; Phi-3's training length on top."""
    config = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "head_dim": None, "rope_theta": 5e5}
    assert rl.plan_from_hf({**config, "rope_scaling": None}) == (rl.scheme("rope", dim=16, base=5e5),) * 2
    old = {**config, "rope_scaling": {"type": "linear", "factor": 2.0}, "partial_rotary_factor": 0.5}
    assert rl.plan_from_hf(old) == (rl.scheme("pi", dim=8, base=5e5, factor=2),) * 2
    long = {"type": "longrope", "short_factor": [1] * 8, "long_factor": [2] * 8}
    top = {**config, "rope_scaling": long, "original_max_position_embeddings": 64, "max_position_embeddings": 512}
    found = rl.plan_from_hf(top)[0]
    wanted = rl.scheme(
        "longrope", dim=16, base=5e5, short_factor=[1] * 8, long_factor=[2] * 8, train_length=64, factor=8
    )  # fmt: skip
    assert found == wanted
    unused = {**config, "use_sliding_window": False, "sliding_window": 64, "max_window_layers": 1}
    assert rl.plan_from_hf(unused) == (rl.scheme("rope", dim=16, base=5e5),) * 2


def test_knobs_go_to_every_layer() -> None:
    config = {"num_hidden_layers": 2, "head_dim": 8, "rope_theta": 1e4}
    wanted = rl.scheme("rerope", dim=8, window=4, layout="interleaved")
    assert rl.plan_from_hf(config, window=4, slope=0.0, layout="interleaved") == (wanted,) * 2


@pytest.mark.parametrize("plan", [
    (rl.scheme("rope", dim=8),) * 3,
    (rl.scheme("yarn", dim=8, factor=4, train_length=64, base=5e5, rotary_scale=1.1, base_scale=0.3),) * 2,
    (rl.scheme("window", dim=8, visible_window=4),) * 2,
    (rl.scheme("window", dim=4, visible_window=4, base_scale=168**-0.5),) * 2
    + (rl.scheme("pi", dim=8, factor=8, base=1e6, base_scale=168**-0.5),),
])  # fmt: skip
def test_plan_round_trip(plan: rl.Plan) -> None:
    config = rl.plan_to_hf(plan, head_dim=8)
    assert rl.plan_from_hf(config) == plan
    assert rl.plan_to_hf(rl.plan_from_hf(config), head_dim=8) == config


def test_plan_through_a_config_of_transformers() -> None:
    near = rl.scheme("window", dim=32, visible_window=16, base_scale=24**-0.5)
    far = Scheme(FrequencySpec("yarn", dim=32, factor=4.0, train_length=64, base=1e6), rotary_scale=1.2)
    plan = (near, near, rl.Scheme(**{**vars(far), "base_scale": 24**-0.5}))
    config = Gemma3TextConfig(hidden_size=128, num_attention_heads=4, **rl.plan_to_hf(plan, head_dim=32))
    assert rl.plan_from_hf(config) == plan
