"""The reference backend against the equation written out pair by pair (tests/equation.py)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

import rope_lessons as rl
from rope_lessons import FrequencySpec, LogN, Scheme
from tests.equation import attention_by_equation

ROPE = FrequencySpec("rope", dim=8, base=100.0)  # a small base: even the slowest pair turns within a few tokens
SLOPES = (0, 1 / 8, 1, 16)


def inputs(
    batch: int = 2, heads: int = 2, q_len: int = 7, k_len: int | None = None, kv_heads: int | None = None,
    head_dim: int = 8, value_dim: int = 5,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    k_len, kv_heads = k_len or q_len, kv_heads or heads
    q = torch.randn(batch, heads, q_len, head_dim, dtype=torch.float64)
    k = torch.randn(batch, kv_heads, k_len, head_dim, dtype=torch.float64)
    return q, k, torch.randn(batch, kv_heads, k_len, value_dim, dtype=torch.float64)


def check(
    qkv: tuple[Tensor, Tensor, Tensor], scheme: Scheme, device: torch.device, *, frequencies: Tensor | None = None,
    length: int | None = None, **options: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attention and the equation agree to 1e-12, log-sum-exp included. Returns what attention gave."""
    omega = frequencies
    if omega is None and scheme.frequencies is not None:
        omega = scheme.frequencies(length or qkv[1].shape[2])
    wanted_output, wanted_lse = attention_by_equation(*qkv, scheme, frequencies=omega, **options)
    moved: dict[str, Any] = {name: value if value is None else value.to(device) for name, value in options.items()}
    moved |= {"frequencies": frequencies if frequencies is None else frequencies.to(device), "length": length}
    q, k, v = (x.to(device) for x in qkv)
    output, lse = rl.attention(q, k, v, scheme, backend="reference", **moved, return_lse=True)
    assert output.dtype == lse.dtype == torch.float64
    torch.testing.assert_close(output.cpu(), wanted_output, atol=1e-12, rtol=0)
    torch.testing.assert_close(lse.cpu(), wanted_lse, atol=1e-11, rtol=0)
    torch.testing.assert_close(rl.attention(q, k, v, scheme, **moved), output, atol=0, rtol=0)
    return output.cpu(), lse.cpu()


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("window", [0, 1, 3, 7, 100])
@pytest.mark.parametrize("slope", SLOPES)
def test_distance_map(slope: float, window: int, causal: bool, device: torch.device) -> None:
    check(inputs(batch=1), Scheme(ROPE, window=window, slope=slope, causal=causal), device)


@pytest.mark.parametrize("slope", SLOPES)
@pytest.mark.parametrize("distance", [2, 3, 4])
def test_window_edge(distance: int, slope: float, device: torch.device) -> None:
    """One visible key at distance w - 1, w and w + 1: its score is the log-sum-exp."""
    scheme = Scheme(ROPE, window=3, slope=slope, causal=False)
    q, k, v = inputs(batch=1, heads=1, q_len=1)
    for sign in (1, -1):
        at = {"q_positions": torch.tensor([10]), "k_positions": torch.tensor([10 - sign * distance])}
        _, lse = check((q, k, v), scheme, device, **at)
        bent = sign * (distance if distance < 3 else 3 + slope * (distance - 3))
        turned = rl.apply_rotary(q, torch.tensor([bent], dtype=torch.float64), ROPE(), layout="half")
        torch.testing.assert_close(lse.view(()), (turned * k).sum() / 8**0.5, atol=1e-12, rtol=0)


@pytest.mark.parametrize("length", [1, 2, 7, 13])
def test_lengths_of_text(length: int, device: torch.device) -> None:
    check(inputs(batch=1, q_len=length), Scheme(ROPE, window=3, slope=0.125), device)


SETTINGS = {
    "log_n": Scheme(ROPE, scale=LogN(5, floor=2)),
    "log_n_clipped": Scheme(ROPE, scale=LogN(5, clip=True, floor=1)),
    "log_n_floor": Scheme(ROPE, scale=LogN(512)),
    "visible_window": Scheme(ROPE, visible_window=3),
    "visible_window_1": Scheme(ROPE, visible_window=1),
    "visible_window_both_sides": Scheme(ROPE, visible_window=2, causal=False),
    "sinks": Scheme(ROPE, visible_window=2, sinks=2),
    "sinks_both_sides": Scheme(ROPE, visible_window=2, sinks=1, causal=False),
    "window_and_log_n": Scheme(ROPE, visible_window=3, scale=LogN(4, floor=2)),
    "alibi": Scheme(alibi=True),
    "alibi_and_rope": Scheme(ROPE, alibi=True, causal=False),
    "nope": Scheme(),
    "interleaved": Scheme(ROPE, layout="interleaved"),
    "interleaved_rerope": Scheme(ROPE, layout="interleaved", window=2, slope=0.0),
    "partial": Scheme(FrequencySpec("rope", dim=4)),
    "partial_interleaved": Scheme(FrequencySpec("rope", dim=6), layout="interleaved", window=3, slope=0.25),
    "rotary_scale": Scheme(FrequencySpec("rope", dim=4), rotary_scale=1.25),
    "base_scale": Scheme(ROPE, base_scale=0.7, scale=LogN(5, floor=2), alibi=True),
    "dynamic_ntk": Scheme(FrequencySpec("dynamic-ntk", dim=8, factor=2, train_length=3)),
    "everything": Scheme(
        FrequencySpec("ntk-fixed", dim=4, factor=3), layout="interleaved", window=2, slope=0.5, scale=LogN(5, floor=2),
        rotary_scale=1.1, base_scale=0.4, visible_window=4, sinks=1, alibi=True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_setting(name: str, device: torch.device) -> None:
    check(inputs(), SETTINGS[name], device)


def random_positions(batch: int | None, tokens: int) -> Tensor:
    rows = [torch.randperm(40)[:tokens].sort().values for _ in range(batch or 1)]
    return torch.stack(rows) if batch else rows[0]


POSITIONS = {
    "random_sorted": lambda: random_positions(None, 7),
    "per_row": lambda: random_positions(2, 7),
    "fractional": lambda: torch.rand(7, dtype=torch.float64).cumsum(0) * 3,
    "fractional_per_row": lambda: torch.rand(2, 7, dtype=torch.float64).cumsum(1) * 3,
    "unsorted": lambda: torch.tensor([5, -3, 0, 12, 2, 2, 9]),
}


@pytest.mark.parametrize("scheme", [SETTINGS["everything"], Scheme(ROPE, window=4, slope=0.0, causal=False)])
@pytest.mark.parametrize("name", POSITIONS)
def test_positions(name: str, scheme: Scheme, device: torch.device) -> None:
    """Only the distance map and ALiBi see positions; visibility and scale count tokens."""
    positions = POSITIONS[name]()
    check(inputs(), scheme, device, q_positions=positions, k_positions=positions)


def test_only_differences_of_positions_count(device: torch.device) -> None:
    q, k, v = (x.to(device) for x in inputs())
    near = random_positions(2, 7).to(device)
    far = near + 1_000_000  # where a float64 angle is rounded at 1e6 · 2^-53 = 1.1e-10
    for name in ("everything", "alibi", "interleaved_rerope"):
        output = rl.attention(q, k, v, SETTINGS[name], q_positions=far, k_positions=far)
        wanted = rl.attention(q, k, v, SETTINGS[name], q_positions=near, k_positions=near)
        torch.testing.assert_close(output, wanted, atol=1e-9, rtol=0)


def test_one_of_the_positions_is_enough_for_equal_lengths() -> None:
    q, k, v = inputs()
    positions = random_positions(None, 7)
    both = rl.attention(q, k, v, Scheme(ROPE), q_positions=positions, k_positions=positions)
    assert torch.equal(rl.attention(q, k, v, Scheme(ROPE), q_positions=positions), both)
    assert torch.equal(rl.attention(q, k, v, Scheme(ROPE), k_positions=positions), both)


@pytest.mark.parametrize("name", ["everything", "sinks", "alibi", "sinks_both_sides", "dynamic_ntk"])
@pytest.mark.parametrize("q_len", [1, 3])
def test_chunk_of_queries(q_len: int, name: str, device: torch.device) -> None:
    """Fewer queries than keys: they are the last tokens, and get what they get in the full call."""
    scheme = SETTINGS[name]
    q, k, v = inputs(q_len=7)
    output, _ = check((q[:, :, -q_len:], k, v), scheme, device)
    torch.testing.assert_close(output, rl.attention(q, k, v, scheme)[:, :, -q_len:], atol=1e-12, rtol=0)
    positions = random_positions(2, 7)
    length = 7 if name == "dynamic_ntk" else None  # with positions given, only the caller knows it
    given = {"q_positions": positions[:, -q_len:], "k_positions": positions}
    check((q[:, :, -q_len:], k, v), scheme, device, length=length, **given)


def test_padding_may_hold_anything(device: torch.device) -> None:
    """NaN in rows that nobody sees, such as a fresh cache, reaches neither the output nor a gradient."""
    q, k, v = (x.to(device).requires_grad_() for x in inputs(batch=2, q_len=6))
    lengths = torch.tensor([3, 6], device=device)
    clean = rl.attention(q, k, v, Scheme(ROPE), lengths=lengths)
    dirt = torch.zeros(2, 1, 6, 1, dtype=torch.float64, device=device)
    dirt[0, :, 3:] = torch.nan
    dirty = rl.attention(q, k + dirt, v + dirt, Scheme(ROPE), lengths=lengths)
    assert torch.equal(clean, dirty)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(dirty.sum(), (q, k, v)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["everything", "alibi"])
def test_low_precision_is_cast_once(name: str, dtype: torch.dtype, device: torch.device) -> None:
    """Attention in bfloat16 is exactly the float32 result cast once: nothing in between is rounded."""
    q, k, v = (x.to(device, dtype) for x in inputs(q_len=7))
    wide, lse = rl.attention(q.float(), k.float(), v.float(), SETTINGS[name], return_lse=True)
    narrow, narrow_lse = rl.attention(q, k, v, SETTINGS[name], return_lse=True)
    assert narrow.dtype == dtype
    assert torch.equal(narrow, wide.to(dtype))
    assert torch.equal(narrow_lse, lse)


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_grouped_query_heads(kv_heads: int, device: torch.device) -> None:
    qkv = inputs(batch=2, heads=6, kv_heads=kv_heads, q_len=5, head_dim=4, value_dim=3)
    check(qkv, Scheme(FrequencySpec("rope", dim=4), window=2, slope=0.5, alibi=True), device)


@pytest.mark.parametrize("value_dim", [1, 8, 19])
def test_value_dim(value_dim: int, device: torch.device) -> None:
    check(inputs(value_dim=value_dim), Scheme(ROPE), device)


@pytest.mark.parametrize("causal", [True, False])
def test_right_padding(causal: bool, device: torch.device) -> None:
    """Padding neither sees nor is seen: a padded row gives what the short text gives alone, then zeros."""
    scheme = Scheme(ROPE, window=2, slope=0.5, scale=LogN(4, floor=1), causal=causal)
    q, k, v = inputs(batch=3)
    lengths = torch.tensor([7, 4, 0])
    output, lse = check((q, k, v), scheme, device, lengths=lengths)
    alone = rl.attention(q[1:2, :, :4], k[1:2, :, :4], v[1:2, :, :4], scheme)
    torch.testing.assert_close(output[1:2, :, :4], alone, atol=1e-12, rtol=0)
    assert (output[1, :, 4:] == 0).all()
    assert (output[2] == 0).all()
    assert (lse[2] == -torch.inf).all()


@pytest.mark.parametrize("name", ["everything", "sinks", "log_n", "sinks_both_sides", "interleaved_rerope"])
def test_packed_documents(name: str, device: torch.device) -> None:
    """Each document gets what it gets alone; an id that comes back is a new document; negative ids are padding."""
    scheme = SETTINGS[name]
    q, k, v = inputs(batch=2, q_len=9)
    ids = torch.tensor([[4, 4, 4, 7, 7, 4, 4, 4, 4], [-1, -1, 0, 0, 0, 0, 2, 2, -1]])
    output, _ = check((q, k, v), scheme, device, document_ids=ids)
    for b, start, end in ((0, 0, 3), (0, 3, 5), (0, 5, 9), (1, 2, 6), (1, 6, 8)):
        part = slice(b, b + 1), slice(None), slice(start, end)
        torch.testing.assert_close(output[part], rl.attention(q[part], k[part], v[part], scheme), atol=1e-12, rtol=0)
    assert (output[1, :, [0, 1, 8]] == 0).all()
    check((q, k, v), scheme, device, document_ids=ids[0])
    check((q, k, v), scheme, device, document_ids=ids, lengths=torch.tensor([8, 7]))
    check((q[:, :, -3:], k, v), scheme, device, document_ids=ids)


@pytest.mark.parametrize("shape", [(7, 7), (2, 7, 7), (1, 1, 7, 7), (2, 1, 1, 7), (2, 2, 7, 7), (1,), ()])
def test_bias(shape: tuple[int, ...], device: torch.device) -> None:
    """The bias is neither scaled by s_i nor divided by sqrt(d)."""
    check(inputs(), SETTINGS["everything"], device, bias=torch.randn(shape, dtype=torch.float64))


def test_bias_of_minus_infinity_hides(device: torch.device) -> None:
    q, k, v = (x.to(device).requires_grad_() for x in inputs())
    bias = torch.zeros(7, 7, dtype=torch.float64, device=device)
    bias[3, :] = -torch.inf
    bias[5, 2] = -torch.inf
    output, lse = rl.attention(q, k, v, Scheme(ROPE), bias=bias, return_lse=True)
    assert (output[:, :, 3] == 0).all()
    assert (lse[:, :, 3] == -torch.inf).all()
    hidden = rl.attention(q, k, v, Scheme(ROPE), bias=torch.where(bias == 0, bias, -1e9))
    torch.testing.assert_close(output[:, :, 5], hidden[:, :, 5], atol=1e-12, rtol=0)
    output.sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in (q, k, v))


@pytest.mark.parametrize("scheme", [Scheme(ROPE), Scheme(ROPE, window=2, slope=0.5), Scheme()])
def test_frequencies_override_the_scheme(scheme: Scheme, device: torch.device) -> None:
    qkv = inputs(heads=4, kv_heads=2)
    check(qkv, scheme, device, frequencies=torch.rand(4, dtype=torch.float64))
    check(qkv, scheme, device, frequencies=torch.rand(3, dtype=torch.float64))  # partial
    check(qkv, scheme, device, frequencies=torch.rand(4, 4, dtype=torch.float64))  # one row per head


def test_length_reaches_the_frequencies(device: torch.device) -> None:
    scheme = SETTINGS["dynamic_ntk"]
    long, _ = check(inputs(), scheme, device, length=50)
    torch.manual_seed(0)
    short, _ = check(inputs(), scheme, device)
    assert (long - short).abs().max() > 1e-3


def random_case(seed: int) -> tuple[tuple[Tensor, Tensor, Tensor], Scheme, dict[str, Any]]:
    """Knobs, shapes and options drawn at random."""
    generator = torch.Generator().manual_seed(seed)

    def pick(*choices: Any) -> Any:
        return choices[int(torch.randint(len(choices), (), generator=generator))]

    heads, kv_heads = pick((1, 1), (2, 1), (6, 2), (3, 3))
    k_len, batch, dim = pick(1, 2, 5, 7), pick(1, 2, 3), pick(2, 4, 6)
    q_len = pick(k_len, max(1, k_len - 2))
    window = pick(None, None, 1, 3)
    scheme = Scheme(
        pick(None, FrequencySpec("rope", dim=dim, base=50.0), FrequencySpec("pi", dim=dim, factor=2.5)),
        layout=pick("half", "interleaved"), window=pick(0, 1, 3, 50), slope=pick(*SLOPES),
        scale=pick(None, LogN(3, floor=1), LogN(4, clip=True, floor=2)), rotary_scale=pick(1.0, 1.3),
        base_scale=pick(None, 0.3), causal=pick(True, False), visible_window=window,
        sinks=0 if window is None else pick(0, 1, 2), alibi=pick(True, False),
    )  # fmt: skip
    options: dict[str, Any] = {}
    if pick(True, False):
        shape = pick((k_len,), (batch, k_len))
        options["k_positions"] = (torch.rand(shape, dtype=torch.float64, generator=generator) * 4).cumsum(-1)
        if pick(True, False):
            options["k_positions"] = options["k_positions"].long()
        options["q_positions"] = options["k_positions"][..., k_len - q_len :]
    if pick(True, False):
        options["lengths"] = torch.randint(0, k_len + 1, (batch,), generator=generator)
    if pick(True, False):
        options["document_ids"] = torch.randint(-1, 2, pick((k_len,), (batch, k_len)), generator=generator)
    if pick(True, False):
        options["bias"] = torch.randn(pick((q_len, k_len), (batch, 1, 1, k_len)), generator=generator).double()
    if pick(True, False):
        shape = pick((dim // 2,), (heads, dim // 2))
        options["frequencies"] = torch.rand(shape, dtype=torch.float64, generator=generator)
    return inputs(batch, heads, q_len, k_len, kv_heads, head_dim=6, value_dim=pick(1, 6)), scheme, options


@pytest.mark.parametrize("seed", range(60))
def test_random_setting(seed: int, device: torch.device) -> None:
    qkv, scheme, options = random_case(seed)
    check(qkv, scheme, device, **options)


def test_merging_by_log_sum_exp(device: torch.device) -> None:
    """Two attentions over disjoint keys, merged, are one attention over all of them."""
    q, k, v = (x.to(device) for x in inputs())
    scheme = Scheme(ROPE, window=3, slope=0.5, causal=False)
    far = torch.where(torch.arange(7, device=device) < 4, 0.0, -torch.inf)
    near = torch.where(torch.arange(7, device=device) < 4, -torch.inf, 0.0)
    (out_far, lse_far), (out_near, lse_near) = (
        rl.attention(q, k, v, scheme, bias=b, return_lse=True) for b in (far, near)
    )
    share = torch.sigmoid(lse_far - lse_near).unsqueeze(-1)
    merged = share * out_far + (1 - share) * out_near
    torch.testing.assert_close(merged, rl.attention(q, k, v, scheme), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["log_n", "sinks", "everything", "interleaved_rerope", "alibi", "partial"])
def test_gradcheck(name: str, device: torch.device) -> None:
    scheme = SETTINGS[name]
    q, k, v = (x.to(device).requires_grad_() for x in inputs(batch=1, heads=2, kv_heads=1, q_len=4))

    def run(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return rl.attention(q, k, v, scheme, return_lse=True)

    assert torch.autograd.gradcheck(run, (q, k, v))


@pytest.mark.parametrize("shape", [(4,), (3,), (2, 4)])
def test_gradcheck_frequencies(shape: tuple[int, ...], device: torch.device) -> None:
    q, k, v = (x.to(device) for x in inputs(batch=1, q_len=4))
    frequencies = torch.rand(shape, dtype=torch.float64, device=device).requires_grad_()
    scheme = Scheme(ROPE, window=2, slope=0.5)
    assert torch.autograd.gradcheck(lambda omega: rl.attention(q, k, v, scheme, frequencies=omega), (frequencies,))


def test_blind_rows_have_finite_gradients(device: torch.device) -> None:
    q, k, v = (x.to(device).requires_grad_() for x in inputs())
    ids = torch.tensor([-1, -1, 0, 0, 1, 1, -1], device=device)
    output, lse = rl.attention(
        q, k, v, Scheme(ROPE, window=2, slope=0.0, scale=LogN(4)), document_ids=ids, return_lse=True
    )
    (output.square().sum() + lse[:, :, 2:6].sum()).backward()
    for x in (q, k, v):
        assert x.grad is not None
        assert x.grad.isfinite().all()
        assert (x.grad[:, :, [0, 1, 6]] == 0).all()
        assert (x.grad[:, :, 2:6] != 0).any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_dtypes(dtype: torch.dtype, device: torch.device) -> None:
    """Scores and softmax are float32 whatever the inputs: the result is that of the same numbers, cast once."""
    q, k, v = (x.to(device=device, dtype=dtype) for x in inputs())
    output, lse = rl.attention(q, k, v, SETTINGS["sinks"], return_lse=True)
    assert (output.dtype, lse.dtype) == (dtype, torch.float32)
    exact = rl.attention(q.double(), k.double(), v.double(), SETTINGS["sinks"])
    error = (output.double() - exact).abs()
    rounding_of_turned_q_and_k = 4 * torch.finfo(dtype).eps
    assert error.max() <= rounding_of_turned_q_and_k * v.double().abs().max() * 4
    assert error.max() > 0


def test_explain_backend() -> None:
    q, k, v = inputs()
    assert rl.explain_backend(q, k, v, Scheme(ROPE)).startswith("reference")
    assert rl.explain_backend(q, k, v, Scheme(ROPE), backend="reference").startswith("reference")


def test_module_is_the_function() -> None:
    q, k, v = inputs()
    for scheme in SETTINGS.values():
        assert torch.equal(rl.nn.Attention(scheme)(q, k, v), rl.attention(q, k, v, scheme))
    bias = torch.randn(7, 7, dtype=torch.float64)
    scheme = SETTINGS["everything"]
    assert torch.equal(rl.nn.Attention(scheme)(q, k, v, bias=bias), rl.attention(q, k, v, scheme, bias=bias))


def test_learned_frequencies_get_gradients() -> None:
    module = rl.nn.Attention(Scheme(ROPE, window=2, slope=0.5), learned_frequencies=True)
    q, k, v = (x.float() for x in inputs())
    before = module(q, k, v)
    torch.testing.assert_close(before, rl.attention(q, k, v, module.scheme), atol=0, rtol=0)
    before.square().sum().backward()
    (parameter,) = module.parameters()
    assert parameter.grad is not None
    assert (parameter.grad != 0).all()
    with torch.no_grad():
        parameter.add_(0.1)
    assert (module(q, k, v) - before).abs().max() > 1e-3


def test_every_knob_matters() -> None:
    """Turning one knob of a scheme changes the result: a knob that nothing reads would pass the tests above."""
    q, k, v = inputs(q_len=13)
    start = Scheme(ROPE, window=2, slope=0.5, visible_window=4, sinks=1)
    turned = {
        "frequencies": FrequencySpec("pi", dim=8, factor=2), "layout": "interleaved", "window": 1, "slope": 2.0,
        "scale": LogN(3, floor=1), "rotary_scale": 1.5, "base_scale": 1.0, "causal": False, "visible_window": 5,
        "sinks": 2, "alibi": True,
    }  # fmt: skip
    assert set(turned) == {field.name for field in dataclasses.fields(Scheme)}
    plain = rl.attention(q, k, v, start)
    for name, value in turned.items():
        changed = rl.attention(q, k, v, dataclasses.replace(start, **{name: value}))
        assert (changed - plain).abs().max() > 1e-3, name
