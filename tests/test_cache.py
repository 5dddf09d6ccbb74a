"""The key-value cache: whatever the steps, the result is that of the call without a cache on all tokens so far."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import rope_lessons as rl
from rope_lessons import METHODS, FrequencySpec, KVCache, LogN, Scheme, scheme
from rope_lessons.models import byte_lm
from tests.test_attention import ROPE, SETTINGS, inputs

L = 13
DYNAMIC = FrequencySpec("dynamic-ntk", dim=8, factor=2, train_length=3)
SCHEMES = {
    **SETTINGS,
    "rope": Scheme(ROPE),
    **{
        f"window_{w}_slope_{slope}": Scheme(ROPE, window=w, slope=slope)
        for w, slope in product((0, 1, 3, L - 1, L, 100), (0.0, 0.125, 16.0))
    },
    "rerope_both_sides": Scheme(ROPE, window=3, slope=0.0, causal=False),
    "leaky_both_sides_log_n": Scheme(ROPE, window=2, slope=0.5, causal=False, scale=LogN(5, floor=1)),
    "rerope_in_a_window": Scheme(ROPE, window=2, slope=0.0, visible_window=5),
    "rerope_beyond_a_window": Scheme(ROPE, window=7, slope=0.0, visible_window=4),
    "rerope_and_sinks": Scheme(ROPE, window=2, slope=0.5, visible_window=5, sinks=2, scale=LogN(4, floor=1)),
    "sinks_near_but_not_in_the_window": Scheme(ROPE, window=6, slope=0.5, visible_window=3, sinks=2),
    "sinks_near_both_sides": Scheme(ROPE, window=6, slope=0.5, visible_window=3, sinks=2, causal=False),
    "more_sinks_than_tokens": Scheme(ROPE, window=3, slope=0.0, visible_window=2, sinks=20, scale=LogN(4, floor=1)),
    "sinks_log_n_both_sides": Scheme(ROPE, visible_window=2, sinks=2, causal=False, scale=LogN(4, floor=1)),
    "longrope": Scheme(
        FrequencySpec("longrope", dim=8, short_factor=(1.0,) * 4, long_factor=(1.0, 1.5, 2.0, 4.0), train_length=5),
        window=3, slope=0.5,
    ),
    "dynamic_leaky": Scheme(DYNAMIC, window=3, slope=0.5, visible_window=7, sinks=1),
    "rotary_scale_rerope": Scheme(ROPE, window=3, slope=0.0, rotary_scale=1.3),
    "sinks_after_the_query": Scheme(ROPE, visible_window=1, sinks=5, causal=False, scale=LogN(4, floor=1)),
    "nope_with_a_window": Scheme(window=3, slope=0.0, scale=LogN(4, floor=1)),
}  # fmt: skip


def ends(chunks: tuple[int, ...]) -> list[tuple[int, int]]:
    """(3, 1, 2) gives (0, 3), (3, 4), (4, 6)."""
    stops = [sum(chunks[: n + 1]) for n in range(len(chunks))]
    return list(zip([0, *stops], stops, strict=False))


def decode(
    qkv: tuple[Tensor, Tensor, Tensor], scheme: Scheme, cache: KVCache, chunks: tuple[int, ...], **options: Any
) -> tuple[Tensor, Tensor]:
    """Outputs and log-sum-exps of all steps."""
    steps = []
    for a, b in ends(chunks):
        q, k, v = (x[:, :, a:b] for x in qkv)
        steps.append(rl.attention(q, k, v, scheme, cache=cache, **options, return_lse=True))
    outputs, logs = zip(*steps, strict=True)
    return torch.cat(outputs, dim=2), torch.cat(logs, dim=2)


def one_shot(
    qkv: tuple[Tensor, Tensor, Tensor],
    scheme: Scheme,
    chunks: tuple[int, ...],
    ids: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """The same without a cache: each chunk sees all tokens so far."""
    q, k, v = qkv
    steps = []
    for a, b in ends(chunks):
        given = options | ({} if ids is None else {"document_ids": ids[..., :b]})
        steps.append(
            rl.attention(q[:, :, a:b], k[:, :, :b], v[:, :, :b], scheme, backend="reference", **given, return_lse=True)
        )
    outputs, logs = zip(*steps, strict=True)
    return torch.cat(outputs, dim=2), torch.cat(logs, dim=2)


def check(
    scheme: Scheme, chunks: tuple[int, ...], device: torch.device, *, padding: list[int] | None = None, **options: Any
) -> None:
    qkv = tuple(x.to(device) for x in inputs(batch=2, heads=4, kv_heads=2, q_len=sum(chunks)))
    ids = None
    if padding is not None:
        options["padding"] = torch.tensor(padding, device=device)
        ids = -(torch.arange(sum(chunks), device=device) < options["padding"].unsqueeze(-1)).long()
    output, lse = decode(qkv, scheme, KVCache(scheme, **options), chunks)
    length = {"length": options["length"]} if "length" in options else {}
    wanted, wanted_lse = one_shot(qkv, scheme, chunks, ids, **length)
    torch.testing.assert_close(output, wanted, atol=1e-12, rtol=0)
    torch.testing.assert_close(lse, wanted_lse, atol=1e-11, rtol=0)


SPLITS = [(1,) * L, (L,), (5,) + (1,) * (L - 5), (4, 4, 4, 1), (1, L - 1), (2, 1, 7, 1, 2)]


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme(name: str, device: torch.device) -> None:
    """Step by step, at once, a prompt and then steps, and chunks of every size."""
    for chunks in SPLITS:
        check(SCHEMES[name], chunks, device)


@pytest.mark.parametrize("name", ["rope", "window_3_slope_0.125", "everything", "sinks", "rerope_and_sinks", "alibi"])
def test_every_split(name: str) -> None:
    """All 32 ways to cut 6 tokens into chunks; causal and of fixed frequencies, so the full call gives every row."""
    settings = SCHEMES[name]
    qkv = inputs(batch=1, heads=2, kv_heads=1, q_len=6)
    wanted = rl.attention(*qkv, settings, backend="reference")
    for cuts in product((False, True), repeat=5):
        stops = [n + 1 for n, cut in enumerate(cuts) if cut] + [6]
        chunks = tuple(b - a for a, b in zip([0, *stops], stops, strict=False))
        output, _ = decode(qkv, settings, KVCache(settings), chunks)
        torch.testing.assert_close(output, wanted, atol=1e-12, rtol=0)


@given(data=st.data())
def test_random_settings_and_splits(data: st.DataObject) -> None:
    pick = data.draw
    visible = pick(st.sampled_from([None, 1, 2, 4, 9]))
    settings = Scheme(
        pick(st.sampled_from([None, ROPE, FrequencySpec("rope", dim=4), DYNAMIC])),
        layout=pick(st.sampled_from(["half", "interleaved"])),
        window=pick(st.integers(0, 9)), slope=pick(st.sampled_from([0.0, 0.25, 1.0, 3.0])),
        scale=pick(st.sampled_from([None, LogN(4, floor=1), LogN(3, clip=True, floor=2)])),
        rotary_scale=pick(st.sampled_from([1.0, 1.2])), base_scale=pick(st.sampled_from([None, 0.5])),
        causal=pick(st.booleans()), visible_window=visible, sinks=0 if visible is None else pick(st.integers(0, 3)),
        alibi=pick(st.booleans()),
    )  # fmt: skip
    chunks = tuple(pick(st.lists(st.integers(1, 5), min_size=1, max_size=6)))
    options: dict[str, Any] = {"max_length": pick(st.sampled_from([None, sum(chunks), 50]))}
    options["padding"] = pick(st.sampled_from([None, [0, 3], [2, 2], [1, 8]]))
    options["rollback"] = pick(st.integers(0, 3))
    if pick(st.booleans()):
        options["length"] = 50
    check(settings, chunks, torch.device("cpu"), **options)


@pytest.mark.parametrize(
    "name", ["rope", "interleaved_rerope", "everything", "rerope_and_sinks", "dynamic_ntk", "alibi"]
)
def test_padding_on_the_left(name: str, device: torch.device) -> None:
    """A padded row gives what its text gives alone, also when the padding comes in several chunks."""
    settings = SCHEMES[name]
    for chunks in ((6, 1, 1, 1), (2, 2, 2, 1, 1, 1), (1,) * 9, (9,)):
        check(settings, chunks, device, padding=[5, 0])
    if name == "dynamic_ntk":
        return  # its frequencies count the tokens of the axis, padding included
    q, k, v = inputs(batch=2, q_len=9)
    cache = KVCache(settings, padding=torch.tensor([5, 0]))
    output, _ = decode((q, k, v), settings, cache, (6, 1, 1, 1))
    alone = rl.attention(q[:1, :, 5:], k[:1, :, 5:], v[:1, :, 5:], settings)
    torch.testing.assert_close(output[:1, :, 5:], alone, atol=1e-12, rtol=0)
    assert (output[0, :, :5] == 0).all()
    for x in (q, k, v):
        x[0, :, :5] = torch.nan  # padding may hold anything
    for chunks in ((6, 1, 1, 1), (2, 2, 2, 3), (1,) * 9):
        again, _ = decode((q, k, v), settings, KVCache(settings, padding=torch.tensor([5, 0])), chunks)
        torch.testing.assert_close(again[:, :, 5:], output[:, :, 5:], atol=1e-12, rtol=0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_padding_as_an_attention_mask(dtype: torch.dtype) -> None:
    """The mask of a tokenizer says what the counts say; it may be of more tokens than the first call."""
    settings, counts, qkv = SCHEMES["rerope_and_sinks"], torch.tensor([5, 0]), inputs(batch=2, q_len=9)
    wanted, _ = decode(qkv, settings, KVCache(settings, padding=counts), (6, 3))
    for tokens in (6, 9):
        mask = (torch.arange(tokens) >= counts.unsqueeze(-1)).to(dtype)
        cache = KVCache(settings, padding=mask)
        assert torch.equal(cache.padding, counts)
        assert torch.equal(decode(qkv, settings, cache, (6, 3))[0], wanted)
    if dtype != torch.bool:
        assert torch.equal(KVCache(settings, padding=counts.to(dtype)).padding, counts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["rope", "window_3_slope_0.0", "window_3_slope_0.125", "everything", "sinks"])
def test_dtypes(name: str, dtype: torch.dtype, device: torch.device) -> None:
    """Turned queries and keys, the weights, each part's output and the result are rounded once; nothing else is.

    An error of eps/2 in each channel of q or k changes a score by at most eps/2 |q| |k| / sqrt(d), and the output by
    twice the score's change times the largest value. Float32 keeps 4 eps for its sums.
    """
    settings = SCHEMES[name]
    q, k, v = (x.to(device, dtype) for x in inputs(batch=2, heads=4, kv_heads=2, q_len=L))
    exact = rl.attention(q.double(), k.double(), v.double(), settings)
    output, lse = decode((q, k, v), settings, KVCache(settings), (4, 1, 1, 3) + (1,) * (L - 9))
    assert (output.dtype, lse.dtype) == (dtype, torch.float32)
    eps = torch.finfo(dtype).eps
    norms = q.double().norm(dim=-1).max() * k.double().norm(dim=-1).max()
    scale = settings.base_scale or q.shape[-1] ** -0.5
    most = settings.rotary_scale**2 * (1 if settings.scale is None else settings.scale(torch.tensor(L)).item())
    score_error = (eps + 4 * torch.finfo(torch.float32).eps) * norms * scale * most
    assert (output.double() - exact).abs().max() <= (2 * score_error + 3 * eps / 2) * v.double().abs().max()


# --- plans and models ---------------------------------------------------------------------------------------------


def test_a_plan_over_layers(device: torch.device) -> None:
    """HWFA2 has windows in most layers and ReRoPE in one: each layer keeps what its scheme needs."""
    plan = METHODS["hwfa2"](layers=4, dim=8, visible_window=3, window=2, train_length=4).test
    cache = KVCache(plan)
    qkv = [tuple(x.to(device) for x in inputs(q_len=L)) for _ in plan]
    outputs: list[list[Tensor]] = [[] for _ in plan]
    for a, b in ends((5,) + (1,) * 8):
        for n, settings in enumerate(plan):
            q, k, v = (x[:, :, a:b] for x in qkv[n])
            outputs[n].append(rl.attention(q, k, v, settings, cache=cache, layer=n))
    for n, settings in enumerate(plan):
        wanted = rl.attention(*qkv[n], settings)
        torch.testing.assert_close(torch.cat(outputs[n], dim=2), wanted, atol=1e-12, rtol=0)
    assert len(cache) == L


def logits(model: byte_lm.ByteLM, tokens: Tensor, cache: KVCache | None = None, **options: Any) -> Tensor:
    layers = iter(range(99))

    def attend(q: Tensor, k: Tensor, v: Tensor, settings: Scheme) -> Tensor:
        if cache is None:
            return rl.attention(q, k, v, settings, **options)
        return rl.attention(q, k, v, settings, cache=cache, layer=next(layers))

    return model(tokens, attend=attend)


MODELS = {
    "rope": scheme("rope", dim=8),
    "rerope": scheme("rerope", dim=8, window=4),
    "lambda": scheme("lambda", dim=8, visible_window=4, sinks=2),
    "dynamic-ntk": scheme("dynamic-ntk", dim=8, factor=4, train_length=4),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fixed", [False, True], ids=["length_of_the_step", "length_of_the_request"])
def test_a_whole_model(name: str, fixed: bool) -> None:
    """Step by step is one shot, except where frequencies grow with the text: deeper keys then come from states of a
    shorter text. With the length of the request given, they are equal there too."""
    config = byte_lm.Config(width=16, heads=2, layers=2, hidden=32)
    model = byte_lm.build(config, seed=0, plan=(MODELS[name],) * 2).double()
    tokens = torch.randint(256, (2, 12))
    with torch.no_grad():
        length = {"length": 12} if fixed else {}
        cache = KVCache(model.plan, **length)
        steps = torch.cat([logits(model, tokens[:, a:b], cache) for a, b in ends((4,) + (1,) * 8)], dim=1)
        wanted = logits(model, tokens, **length)
    error = (steps - wanted).abs().max()
    if name == "dynamic-ntk" and not fixed:
        assert error > 1e-3
    else:
        assert error < 1e-12


def test_growing_frequencies_in_one_layer(device: torch.device) -> None:
    """One cached row of dynamic NTK is a fresh row at that length: keys are kept raw and turned anew."""
    settings = SETTINGS["dynamic_ntk"]
    q, k, v = (x.to(device) for x in inputs(q_len=L))
    cache = KVCache(settings)
    for i in range(L):
        at = slice(i, i + 1)
        row = rl.attention(q[:, :, at], k[:, :, at], v[:, :, at], settings, cache=cache)
        fresh = rl.attention(q[:, :, : i + 1], k[:, :, : i + 1], v[:, :, : i + 1], settings)[:, :, -1:]
        torch.testing.assert_close(row, fresh, atol=1e-12, rtol=0)
    early = rl.attention(q[:, :, :5], k[:, :, :5], v[:, :, :5], settings)
    late = rl.attention(q, k, v, settings)[:, :, :5]
    assert (early - late).abs().max() > 1e-3  # no row of another length will do


def test_learned_frequencies(device: torch.device) -> None:
    module = rl.nn.Attention(Scheme(ROPE, window=3, slope=0.5), learned_frequencies=True).to(device)
    (parameter,) = module.parameters()
    with torch.no_grad():
        parameter.mul_(1.7)
        q, k, v = (x.to(device) for x in inputs(q_len=L))
        cache = KVCache(module.scheme)
        steps = [module(*(x[:, :, a:b] for x in (q, k, v)), cache=cache) for a, b in ends((5, 1, 1, 6))]
        torch.testing.assert_close(torch.cat(steps, dim=2), module(q, k, v), atol=1e-12, rtol=0)


def test_frequencies_per_head() -> None:
    frequencies = torch.rand(2, 4, dtype=torch.float64)
    qkv, settings = inputs(q_len=L), Scheme(ROPE, window=3, slope=0.5)
    output, _ = decode(qkv, settings, KVCache(settings), (5, 1, 1, 6), frequencies=frequencies)
    torch.testing.assert_close(output, rl.attention(*qkv, settings, frequencies=frequencies), atol=1e-12, rtol=0)


# --- memory -------------------------------------------------------------------------------------------------------


def key_tokens(settings: Scheme, tokens: int, **options: Any) -> float:
    """Keys held after so many steps, as a number of tokens."""
    q, k, v = inputs(batch=1, heads=1, q_len=tokens)
    cache = KVCache(settings, **options)
    decode((q, k, v), settings, cache, (3,) + (1,) * (tokens - 3))
    assert cache.nbytes == cache.key_bytes + v.shape[3] * 8 * (cache._layers[0].values.buffer.shape[2])
    return cache.key_bytes / (k.shape[3] * 8)


def test_memory_is_one_key_a_token_and_a_window() -> None:
    assert key_tokens(Scheme(ROPE), 60, max_length=60) == 60
    assert key_tokens(Scheme(ROPE, window=5, slope=0.0), 60, max_length=60) == 60 + 5
    assert key_tokens(Scheme(ROPE, window=5, slope=0.5), 60, max_length=60) == 60 + 5
    assert key_tokens(Scheme(FrequencySpec("pi", dim=8, factor=4)), 60, max_length=60) == 60
    assert key_tokens(SCHEMES["dynamic_leaky"], 60) == 7 + 1
    assert 60 <= key_tokens(Scheme(ROPE), 60) <= 120  # doubling


@pytest.mark.parametrize("tokens", [20, 200])
def test_memory_of_a_rolling_window_does_not_grow(tokens: int) -> None:
    assert key_tokens(Scheme(ROPE, visible_window=4, sinks=2), tokens) == 6
    assert key_tokens(Scheme(ROPE, visible_window=4), tokens, rollback=3) == 7
    assert key_tokens(Scheme(ROPE, visible_window=6, sinks=2, window=3, slope=0.0), tokens) == 8 + 3
    assert key_tokens(Scheme(ROPE, visible_window=3, window=9, slope=0.0), tokens) == 3
    assert key_tokens(Scheme(ROPE, visible_window=3, sinks=2, window=9, slope=0.0), tokens) == 5 + 5


@pytest.mark.parametrize("name", ["sinks", "window_3_slope_0.0", "rerope_and_sinks", "visible_window", "rope"])
def test_many_steps(name: str) -> None:
    """The rings go round many times."""
    settings = SCHEMES[name]
    qkv = inputs(batch=1, heads=1, q_len=150)
    output, _ = decode(qkv, settings, KVCache(settings), (7,) + (1,) * 80 + (11,) + (1,) * 52)
    torch.testing.assert_close(output, rl.attention(*qkv, settings), atol=1e-12, rtol=0)


def test_a_step_copies_no_cache() -> None:
    """Reserved memory stays where it is; doubling moves it a logarithmic number of times."""
    settings = Scheme(ROPE, window=3, slope=0.0)
    places = {}
    for most in (None, 200):
        cache = KVCache(settings, max_length=most)
        q, k, v = inputs(batch=1, heads=1, q_len=200)
        seen = set()
        for i in range(200):
            decode(tuple(x[:, :, i : i + 1] for x in (q, k, v)), settings, cache, (1,))
            seen.add(cache._layers[0].far.buffer.data_ptr())
        places[most] = len(seen)
    assert places[200] == 1
    assert places[None] <= 9


def test_a_step_reads_as_many_keys_as_plain_rope() -> None:
    """Every key is read once, far-ready or near-ready: the products of a step have one column a visible token."""
    columns = {"rope": 40, "window_3_slope_0.0": 40, "window_3_slope_0.125": 40, "visible_window": 3, "sinks": 4}
    for name, wanted in columns.items():
        settings, cache = SCHEMES[name], KVCache(SCHEMES[name], max_length=40)
        qkv = inputs(batch=1, heads=1, q_len=40)
        decode(tuple(x[:, :, :39] for x in qkv), settings, cache, (39,))
        with torch.profiler.profile(record_shapes=True) as profile:
            decode(tuple(x[:, :, 39:] for x in qkv), settings, cache, (1,))
        shapes = [event.input_shapes[1] for event in profile.events() if event.name == "aten::bmm"]
        assert sum(tokens for _, dim, tokens in shapes if dim == 8) == wanted, name


def test_a_chunk_makes_no_tensor_of_all_scores() -> None:
    """Only the window's edge and the chunk itself need a mask; what is before goes to a stock kernel. Padding too."""
    settings, tokens, chunk = Scheme(ROPE, window=3, slope=0.125), 2000, 20
    for padding in (None, torch.tensor([3])):
        cache = KVCache(settings, padding=padding, max_length=tokens + chunk)
        q, k, v = inputs(batch=1, heads=2, q_len=tokens + chunk, value_dim=8)
        cache.extend(k[:, :, :tokens], v[:, :, :tokens])
        with torch.profiler.profile(profile_memory=True) as profile:
            decode(tuple(x[:, :, tokens:] for x in (q, k, v)), settings, cache, (chunk,))
        most = max(event.self_cpu_memory_usage for event in profile.events())
        # Of the bytes that the scores of both heads have. The profiler of a busy machine takes two events for one.
        assert most < 8 * 2 * chunk * tokens / 2


# --- going back, rows of a beam -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["rope", "window_3_slope_0.0", "window_3_slope_16.0", "nope", "dynamic_ntk", "rotary_scale_rerope"]
)
@pytest.mark.parametrize("back", [0, 1, 4, 9])
def test_truncate(name: str, back: int, device: torch.device) -> None:
    """A refused draft leaves no trace; without a visible window, any length can be gone back to."""
    settings = SCHEMES[name]
    q, k, v = (x.to(device) for x in inputs(q_len=L))
    cache = KVCache(settings)
    draft = tuple(torch.cat((x[:, :, :back], torch.randn_like(x[:, :, back:])), dim=2) for x in (q, k, v))
    decode(draft, settings, cache, (4, 1, 1, 1, 6))
    cache.truncate(back)
    assert len(cache) == back
    rest = tuple(x[:, :, back:] for x in (q, k, v))
    chunks = (2,) + (1,) * (L - back - 2)
    output, _ = decode(rest, settings, cache, chunks)
    wanted, _ = one_shot((q, k, v), settings, (back, *chunks) if back else chunks)
    torch.testing.assert_close(output, wanted[:, :, back:], atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["visible_window", "sinks", "rerope_and_sinks", "sinks_near_but_not_in_the_window"])
@pytest.mark.parametrize("rollback", [0, 1, 4])
def test_truncate_a_window(name: str, rollback: int) -> None:
    """As far as ``rollback``; further back is an error that says so, and changes nothing."""
    settings = SCHEMES[name]
    q, k, v = inputs(q_len=40)
    for repeated in (1, 2):
        cache = KVCache(settings, rollback=rollback)
        decode(tuple(x[:, :, :30] for x in (q, k, v)), settings, cache, (5,) + (1,) * 25)
        with pytest.raises(ValueError, match=f"length must be at least {30 - rollback - 1}: layer 0 sees a window"):
            cache.truncate(30 - rollback - 2)
        for _ in range(repeated):  # a draft of random tokens, refused
            draft = tuple(torch.randn_like(x[:, :, :rollback]) for x in (q, k, v))
            if rollback:
                decode(draft, settings, cache, (1,) * rollback)
            cache.truncate(30)
        output, _ = decode(tuple(x[:, :, 30:] for x in (q, k, v)), settings, cache, (3,) + (1,) * 7)
        torch.testing.assert_close(output, rl.attention(q, k, v, settings)[:, :, 30:], atol=1e-12, rtol=0)


def test_truncate_to_nothing() -> None:
    """Memory stays, frequencies may change, the shape may not."""
    settings, frequencies = SCHEMES["window_3_slope_0.125"], torch.rand(4, dtype=torch.float64)
    cache, qkv = KVCache(settings), inputs(q_len=9)
    decode(qkv, settings, cache, (7, 2), frequencies=frequencies)
    cache.truncate(0)
    output, _ = decode(qkv, settings, cache, (7, 2))
    torch.testing.assert_close(output, rl.attention(*qkv, settings), atol=1e-12, rtol=0)
    cache.truncate(0)
    with pytest.raises(ValueError, match="k must have shape"):
        decode(inputs(batch=1, q_len=9), settings, cache, (9,))


@pytest.mark.parametrize("name", ["window_3_slope_0.125", "rerope_and_sinks", "dynamic_ntk"])
def test_extend(name: str) -> None:
    """Tokens taken in without a query, the first ones or later ones, count like any others."""
    settings = SCHEMES[name]
    q, k, v = inputs(q_len=12)
    cache = KVCache(settings)
    cache.extend(k[:, :, :5], v[:, :, :5])
    decode(tuple(x[:, :, 5:7] for x in (q, k, v)), settings, cache, (1, 1))
    cache.extend(k[:, :, 7:11], v[:, :, 7:11])
    output, _ = decode(tuple(x[:, :, 11:] for x in (q, k, v)), settings, cache, (1,))
    torch.testing.assert_close(output, rl.attention(q, k, v, settings)[:, :, -1:], atol=1e-12, rtol=0)


def test_truncate_remembers_what_is_lost() -> None:
    """Going back does not bring dropped keys back: the limit stays, also after more tokens."""
    settings = SCHEMES["visible_window"]
    cache = KVCache(settings, rollback=4)
    decode(inputs(q_len=20), settings, cache, (20,))
    cache.truncate(15)
    decode(inputs(q_len=2), settings, cache, (1, 1))
    with pytest.raises(ValueError, match="length must be at least 15: layer 0 sees a window"):
        cache.truncate(14)
    cache.truncate(15)


def test_reset() -> None:
    settings = SCHEMES["rerope_and_sinks"]
    cache = KVCache(settings)
    decode(inputs(q_len=9), settings, cache, (9,))
    cache.reset()
    assert (len(cache), cache.nbytes) == (0, 0)
    qkv = inputs(batch=3, q_len=5)
    output, _ = decode(qkv, settings, cache, (2, 1, 1, 1))
    torch.testing.assert_close(output, rl.attention(*qkv, settings), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["rope", "window_3_slope_0.125", "rerope_and_sinks"])
def test_reorder(name: str, device: torch.device) -> None:
    """Beams: rows are chosen again, dropped or doubled, padding with them."""
    settings = SCHEMES[name]
    q, k, v = (x.to(device) for x in inputs(q_len=10))
    rows = torch.tensor([1, 1, 0], device=device)
    cache = KVCache(settings, padding=torch.tensor([3, 0], device=device))
    decode(tuple(x[:, :, :7] for x in (q, k, v)), settings, cache, (6, 1))
    cache.reorder(rows)
    beams = tuple(x[rows] for x in (q, k, v))
    output, _ = decode(tuple(x[:, :, 7:] for x in beams), settings, cache, (1, 2))
    ids = -(torch.arange(10, device=device) < torch.tensor([0, 0, 3], device=device).unsqueeze(-1)).long()
    wanted = rl.attention(*beams, settings, document_ids=ids)
    torch.testing.assert_close(output, wanted[:, :, 7:], atol=1e-12, rtol=0)


def test_autocast_changes_nothing(device: torch.device) -> None:
    settings = SCHEMES["everything"]
    qkv = tuple(x.to(device, torch.float32) for x in inputs(q_len=9))
    plain, _ = decode(qkv, settings, KVCache(settings), (4, 1, 1, 3))
    with torch.autocast(device.type, dtype=torch.bfloat16):
        under, _ = decode(qkv, settings, KVCache(settings), (4, 1, 1, 3))
    assert torch.equal(plain, under)


def test_mixed_dtypes_under_autocast() -> None:
    """Keys that were normed in float32, values in bfloat16: the cache holds both in autocast's dtype."""
    settings, half = SCHEMES["everything"], torch.bfloat16
    q, k, v = (x.float() for x in inputs(q_len=9))
    wanted, _ = decode((q.to(half), k.to(half), v.to(half)), settings, KVCache(settings), (4, 1, 4))
    with torch.autocast("cpu", dtype=half):
        output, _ = decode((q, k, v.to(half)), settings, KVCache(settings), (4, 1, 4))
        assert torch.equal(output, wanted)
        cache = KVCache(settings)
        cache.extend(k[:, :, :5], v[:, :, :5].to(half))
        step = rl.attention(q[:, :, 5:], k[:, :, 5:], v[:, :, 5:].to(half), settings, cache=cache)
        assert torch.equal(step, wanted[:, :, 5:])
    with pytest.raises(ValueError, match=r"v must have the dtype and device of q .*got torch\.bfloat16"):
        rl.attention(q, k, v.to(half), settings, cache=KVCache(settings))
    with pytest.raises(ValueError, match=r"v must have the dtype and device of k .*got torch\.bfloat16"):
        KVCache(settings).extend(k, v.to(half))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_explained(dtype: torch.dtype) -> None:
    """The first call is one without a cache; later ones are the cache's own. To ask changes nothing."""
    settings, qkv = SCHEMES["window_3_slope_0.125"], tuple(x.to(dtype) for x in inputs(q_len=9))
    cache, ids = KVCache(settings, padding=torch.tensor([2, 0])), torch.tensor([[-1, -1, 0, 0], [0] * 4])
    told, outputs = [], []
    for a, b in ends((4, 1, 4)):
        q, k, v = (x[:, :, a:b] for x in qkv)
        told.append(rl.explain_backend(q, k, v, settings, cache=cache))
        outputs.append(rl.attention(q, k, v, settings, cache=cache))
    q, k, v = (x[:, :, :4] for x in qkv)
    one = "one softmax" if dtype == torch.float32 else "parts merged by their log-sum-exp"
    assert told == [
        rl.explain_backend(q, k, v, settings, document_ids=ids),
        f"cache: 1 new token after 4, {one}",
        "cache: 4 new tokens after 5, parts merged by their log-sum-exp",
    ]
    alone, _ = decode(qkv, settings, KVCache(settings, padding=torch.tensor([2, 0])), (4, 1, 4))
    assert torch.equal(torch.cat(outputs, dim=2), alone)


def test_inside_a_compiled_model() -> None:
    """The cache counts in Python numbers, so what is compiled goes around it: two graphs, however many steps."""
    settings, weight = SCHEMES["window_3_slope_0.125"], torch.randn(8, 8, dtype=torch.float64)
    q, k, v = inputs(q_len=30, value_dim=8)
    attend = torch.compiler.disable(rl.attention)

    def model(q: Tensor, k: Tensor, v: Tensor, cache: KVCache) -> Tensor:
        return torch.relu(attend(q @ weight, k, v, settings, cache=cache) @ weight)

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(model, backend="eager")
    cache = KVCache(settings)
    cache.extend(k[:, :, :10], v[:, :, :10])
    steps = [compiled(*(x[:, :, i : i + 1] for x in (q, k, v)), cache) for i in range(10, 30)]
    wanted = torch.relu(rl.attention(q @ weight, k, v, settings) @ weight)[:, :, 10:]
    torch.testing.assert_close(torch.cat(steps, dim=2), wanted, atol=1e-10, rtol=0)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2
    torch._dynamo.reset()


# --- what it is handed, and when ----------------------------------------------------------------------------------


def test_rows_that_do_not_exist() -> None:
    settings = SCHEMES["rope"]
    for padding in (None, torch.tensor([1, 0])):
        cache, qkv = KVCache(settings, padding=padding), inputs(q_len=5)
        decode(tuple(x[:, :, :4] for x in qkv), settings, cache, (4,))
        for rows in ([0, 2], [-1, 0]):
            with pytest.raises(ValueError, match=f"rows must be from 0 to 1, .*got {min(rows)} to {max(rows)}"):
                cache.reorder(torch.tensor(rows))
        output, _ = decode(tuple(x[:, :, 4:] for x in qkv), settings, cache, (1,))  # nothing was changed
        ids = None if padding is None else torch.tensor([[-1, 0, 0, 0, 0], [0] * 5])
        wanted = rl.attention(*qkv, settings, document_ids=ids)
        torch.testing.assert_close(output, wanted[:, :, 4:], atol=1e-12, rtol=0)


def test_the_callers_padding_may_change() -> None:
    settings, padding = SCHEMES["rope"], torch.tensor([2, 0])
    cache, qkv = KVCache(settings, padding=padding), inputs(q_len=5)
    padding.fill_(4)
    output, _ = decode(qkv, settings, cache, (3, 2))
    ids = torch.tensor([[-1, -1, 0, 0, 0], [0] * 5])
    torch.testing.assert_close(output, rl.attention(*qkv, settings, document_ids=ids), atol=1e-12, rtol=0)


def test_layers_out_of_step() -> None:
    """Every layer takes the same tokens: a layer that is named wrongly, or left out, is noticed at the next call."""
    settings = SCHEMES["rerope_in_a_window"]
    cache, (q, k, v) = KVCache((settings,) * 3), inputs(q_len=9)

    def step(layer: int, a: int, b: int) -> None:
        rl.attention(*(x[:, :, a:b] for x in (q, k, v)), settings, cache=cache, layer=layer)

    for layer in (0, 1, 2):
        step(layer, 0, 4)
    step(1, 4, 5)  # any order within a step
    for layer, a, b in ((1, 5, 6), (0, 4, 6), (2, 4, 7)):
        with pytest.raises(ValueError, match=rf"layer must be one whose turn it is: .*Layer {layer} holds"):
            step(layer, a, b)
    with pytest.raises(ValueError, match="layer must be one whose turn it is"):
        cache.extend(k[:, :, 5:6], v[:, :, 5:6], layer=1)
    cache.truncate(len(cache))  # the unfinished step is taken back
    for layer in (0, 1, 2):
        step(layer, 4, 9)
    assert len(cache) == 9


def saved_and_loaded(cache: KVCache) -> KVCache:
    file = io.BytesIO()
    torch.save(cache, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("name", ["rerope_and_sinks", "dynamic_ntk"])
@pytest.mark.parametrize("way", [copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache)), saved_and_loaded])
def test_copied_and_pickled(name: str, way: Callable[[KVCache], KVCache]) -> None:
    settings, omega = SCHEMES[name], None if name == "dynamic_ntk" else ROPE()
    cache, qkv = KVCache(settings, padding=torch.tensor([1, 0])), inputs(q_len=9)
    decode(tuple(x[:, :, :7] for x in qkv), settings, cache, (6, 1), frequencies=omega)
    other = way(cache)
    output, _ = decode(tuple(x[:, :, 7:] for x in qkv), settings, other, (1, 1), frequencies=omega)
    ids = torch.tensor([[-1] + [0] * 8, [0] * 9])
    wanted, _ = one_shot(qkv, settings, (7, 1, 1), ids, frequencies=omega)
    torch.testing.assert_close(output, wanted[:, :, 7:], atol=1e-12, rtol=0)
    other.reset()
    assert len(other) == 0


def test_it_says_what_it_holds() -> None:
    rope, rerope = SCHEMES["rope"], SCHEMES["window_3_slope_0.0"]
    cache = KVCache(rope)
    assert repr(cache) == f"KVCache({rope!r}, tokens=0)"
    decode(inputs(q_len=5), rope, cache, (3, 2))
    assert repr(cache) == f"KVCache({rope!r}, tokens=5)"
    cache = KVCache((rope, rope, rerope), length=9, max_length=8, padding=torch.tensor([2, 0]), rollback=1)
    told = "length=9, max_length=8, padding=tensor([2, 0]), rollback=1, tokens=0"
    assert repr(cache) == f"KVCache(({rope!r},) * 2 + ({rerope!r},), {told})"


def test_frequencies_that_are_none() -> None:
    cache, (_, k, v) = KVCache(SCHEMES["rope"]), inputs(q_len=3)
    for wrong, got in (([1.0], "list"), (torch.ones(4), "torch.float32")):
        with pytest.raises(TypeError, match=f"frequencies must be .*got {got}"):
            cache.extend(k, v, frequencies=wrong)
    assert len(cache) == 0
