"""What both language models of the lab can do: plans, positions, caches, compilation, 16 bits, seeds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import rope_lessons as rl
from rope_lessons import METHODS, KVCache
from rope_lessons.lab import sizes
from rope_lessons.lab.gau import GAUConfig
from rope_lessons.models import byte_lm, recall
from rope_lessons.models.language_model import LanguageModel, generate
from rope_lessons.models.transformer import TransformerConfig

CONFIGS = {
    "gau": GAUConfig(vocabulary=23, width=16, layers=3, key_dim=8),
    "transformer": TransformerConfig(vocabulary=23, width=16, layers=3, heads=4, kv_heads=2, head_dim=8, hidden=12),
}
TOKENS = torch.randint(23, (2, 14), generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=CONFIGS)
def config(request: pytest.FixtureRequest) -> sizes.ModelConfig:
    return CONFIGS[request.param]


@pytest.fixture
def model(config: sizes.ModelConfig) -> LanguageModel:
    return sizes.build(config, seed=3)


def gradients(model: LanguageModel, tokens: Tensor = TOKENS, **options: object) -> list[Tensor]:
    model.zero_grad()
    model(tokens, **options).logsumexp(dim=-1).sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("shift_keys", [False, True])
def test_causal(config: sizes.ModelConfig, shift_keys: bool) -> None:
    """A token changes nothing before it, and something at it and after it."""
    model = sizes.build(replace(config, shift_keys=shift_keys), seed=3).double()
    other = TOKENS.clone()
    other[:, 6] = (other[:, 6] + 1) % 23
    changed = (model(TOKENS) != model(other)).any(dim=-1)
    assert not changed[:, :6].any()
    assert changed[:, 6:].all()


def test_every_weight_gets_a_gradient(config: sizes.ModelConfig) -> None:
    model = sizes.build(replace(config, shift_keys=True), seed=3)
    assert all(gradient.abs().max() > 0 for gradient in gradients(model))


def test_seed_decides_every_weight(config: sizes.ModelConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory may hold anything: it is filled with NaN here. PyTorch's own random state stays as it was."""
    fresh = torch.empty_like

    def empty_like(*args: object, **options: object) -> Tensor:
        made = fresh(*args, **options)
        return made.fill_(torch.nan) if made.device.type == "cpu" else made

    monkeypatch.setattr(torch, "empty_like", empty_like)
    config, state = replace(config, shift_keys=True), torch.get_rng_state()
    first, again, other = (sizes.build(config, seed) for seed in (0, 0, 1))
    assert torch.equal(state, torch.get_rng_state())
    for a, b in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.isfinite().all()
    assert not torch.equal(first.embedding.weight, other.embedding.weight)


def test_device(device: torch.device, config: sizes.ModelConfig) -> None:
    """The weights do not depend on where the model lives."""
    here, there = sizes.build(config, seed=3), sizes.build(config, seed=3, device=device)
    assert all(torch.equal(a, b.cpu()) for a, b in zip(here.parameters(), there.parameters(), strict=True))
    assert torch.allclose(there(TOKENS.to(device)).cpu(), here(TOKENS), atol=1e-4)


def test_positions(model: LanguageModel) -> None:
    """Only distances count: shifted positions change nothing, spread ones are interpolation backwards."""
    model = model.double()
    plain, token = model(TOKENS), torch.arange(14)
    assert torch.allclose(model(TOKENS, positions=token + 100), plain, atol=1e-9)
    spread = model(TOKENS, positions=3 * token)
    assert not torch.allclose(spread, plain, atol=1e-5)
    pi = METHODS["pi"](layers=3, dim=8, factor=3).test
    assert torch.allclose(model(TOKENS, pi, positions=3 * token), plain, atol=1e-9)
    per_row = torch.stack([token, 3 * token])
    assert torch.allclose(model(TOKENS, positions=per_row), torch.stack([plain[0], spread[1]]), atol=1e-9)


def test_length_is_needed_with_positions(model: LanguageModel) -> None:
    """For frequencies that depend on the length; the options reach every attention."""
    plan = METHODS["dynamic-ntk"](layers=3, dim=8, factor=2, train_length=7).test
    with pytest.raises(ValueError, match="length must be given"):
        model(TOKENS, plan, positions=torch.arange(14))
    given = model(TOKENS, plan, positions=torch.arange(14), length=14)
    assert torch.allclose(given, model(TOKENS, plan), atol=1e-6)


def test_documents_do_not_see_each_other(model: LanguageModel) -> None:
    ids = torch.tensor([0] * 5 + [1] * 9)
    packed = model(TOKENS, document_ids=ids)
    assert torch.allclose(packed[:, 5:], model(TOKENS[:, 5:]), atol=1e-5)


def test_attend_replaces_the_attention(model: LanguageModel) -> None:
    def values_of_the_token_itself(q: Tensor, k: Tensor, v: Tensor, scheme: rl.Scheme) -> Tensor:
        return v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)

    found = model(TOKENS, None, values_of_the_token_itself)
    near_sighted = (rl.scheme("window", dim=8, visible_window=1),) * 3
    assert torch.allclose(found, model(TOKENS, near_sighted), atol=1e-6)


@pytest.mark.parametrize("size", ["gau-0.3m", "transformer-0.3m"])
def test_earlier_evaluation_takes_them(size: str) -> None:
    """That of chapter 03, and the weights of chapter 07: the models are called alike."""
    model, windows = sizes.build(size, seed=0), byte_lm.evaluation_windows()[:2]
    plan = (rl.scheme("rerope", dim=64, window=8),) * 4
    hits, losses = byte_lm.evaluate(model, windows, 128, plan)
    assert hits.shape == losses.shape == (2, 512)
    scores = model(windows[:1, :128], plan)[0]
    assert losses[0, 5].item() == pytest.approx(-scores[5].log_softmax(dim=-1)[windows[0, 6]].item(), abs=1e-4)
    weights = recall.attention_weights(model, windows[:, :16], plan)
    assert len(weights) == 4
    assert torch.allclose(weights[0].sum(dim=-1), torch.ones(()), atol=1e-5)


@pytest.mark.parametrize("name", ["rope", "rerope", "hwfa"])
def test_cache(model: LanguageModel, name: str) -> None:
    """The prompt at once, then token by token: the scores of one run over everything."""
    options = {"rerope": {"window": 4}, "hwfa": {"visible_window": 4, "train_length": 8}}.get(name, {})
    plan = METHODS[name](layers=3, dim=8, **options).test
    whole, cache, model = model.double()(TOKENS, plan), KVCache(plan), model.double()
    with torch.no_grad():
        steps = [model(part, plan, cache=cache) for part in TOKENS.split([8, 1, 1, 3, 1], dim=1)]
    assert torch.allclose(torch.cat(steps, dim=1), whole, atol=1e-9)


def test_generate(model: LanguageModel) -> None:
    """Greedy decoding is the largest score of a run without a cache; drawn tokens follow the generator."""
    prompt = TOKENS[:, :5]
    found = generate(model, prompt, 6)
    wanted = prompt
    for _ in range(6):
        wanted = torch.cat((wanted, model(wanted)[:, -1:].argmax(dim=-1)), dim=1)
    assert torch.equal(found, wanted)
    draws = [
        generate(model, prompt, 6, temperature=2.0, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert torch.equal(generate(model, prompt, 0), prompt)


def test_recompute_keeps_less_and_gives_the_same(model: LanguageModel) -> None:
    wanted = gradients(model)

    def kept() -> int:
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
            model(TOKENS)
        return sum(sizes)

    everything = kept()
    model.recompute = True
    assert kept() < everything / 4
    for a, b in zip(gradients(model), wanted, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("shift_keys", [False, True])
def test_autocast(config: sizes.ModelConfig, shift_keys: bool) -> None:
    """In bfloat16 the scores are near, the weights and their gradients stay in float32."""
    model = sizes.build(replace(config, shift_keys=shift_keys), seed=3)
    wanted = model(TOKENS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model(TOKENS)
    assert found.dtype == torch.bfloat16
    assert (found - wanted).abs().max() < 0.05 * wanted.abs().max()
    found.float().square().sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())


def test_bfloat16_weights(model: LanguageModel) -> None:
    wanted = model(TOKENS)
    assert (model.to(torch.bfloat16)(TOKENS) - wanted).abs().max() < 0.1 * wanted.abs().max()


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # PyTorch's own
def test_compile_layers(model: LanguageModel) -> None:
    """No graph break, and one compilation for all three layers."""
    wanted = model(TOKENS)
    model.compile_layers(fullgraph=True, backend="eager")
    with torch._dynamo.config.patch(error_on_recompile=True):
        assert torch.allclose(model(TOKENS), wanted, atol=1e-6)


def test_loss_falls(model: LanguageModel) -> None:
    """A few steps on one batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(12):
        loss = torch.nn.functional.cross_entropy(model(TOKENS[:, :-1]).flatten(0, 1), TOKENS[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.5


def test_errors(config: sizes.ModelConfig, model: LanguageModel) -> None:
    plan = model.plan
    shifted = sizes.build(replace(config, shift_keys=True), seed=0)
    for error, message, call in (
        (TypeError, "tokens must be an int64 tensor", lambda: model(TOKENS.float())),
        (ValueError, r"tokens must have shape \(batch, seq\)", lambda: model(TOKENS[0])),
        (ValueError, "plan must have one scheme for each of 3 layers, got 2", lambda: model(TOKENS, plan[:2])),
        (TypeError, "plan must be a tuple of one Scheme per layer", lambda: model(TOKENS, plan[0])),
        (ValueError, "plan must have one scheme", lambda: sizes.build(config, 0, plan[:2])),
        (ValueError, "cache must be None for a model with shift_keys", lambda: shifted(TOKENS, cache=KVCache(plan))),
        (ValueError, "document_ids must be None", lambda: shifted(TOKENS, document_ids=torch.zeros(14).long())),
        (ValueError, "size must be one of", lambda: sizes.build("gau-1m", 0)),
        (ValueError, "count must be an int of at least 0", lambda: generate(model, TOKENS, -1)),
        (ValueError, "temperature must be a positive", lambda: generate(model, TOKENS, 1, temperature=-1.0)),
    ):
        with pytest.raises(error, match=message):
            call()
