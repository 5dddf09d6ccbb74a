"""Angles in float64, tables in float32, one cast at the end: what that gives, measured."""

from __future__ import annotations

import mpmath
import pytest
import torch
from torch import Tensor

import rope_lessons as rl
from rope_lessons import FrequencySpec

FAR = (4_096, 32_768, 131_072, 1_000_000)
OFFSET = 2**20
LAYOUTS = ("half", "interleaved")
SHORT_TYPES = (torch.bfloat16, torch.float16)


def exact_table(position: int, dim: int, base: float) -> tuple[list, list]:
    """cos and sin of position · base^(-2t/dim), in 50 digits."""
    with mpmath.workdps(50):
        angles = [position * mpmath.power(base, -mpmath.mpf(2 * t) / dim) for t in range(dim // 2)]
        return [mpmath.cos(angle) for angle in angles], [mpmath.sin(angle) for angle in angles]


def largest_error(table: Tensor, exact: list) -> float:
    with mpmath.workdps(50):
        return float(max(abs(mpmath.mpf(x) - y) for x, y in zip(table.double().tolist(), exact, strict=True)))


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
@pytest.mark.parametrize("dim", [2, 64, 128])
@pytest.mark.parametrize("position", [0, 1, *FAR, FAR[-1] - 1, 2**24 + 1])  # the last is not a float32
def test_table_error(position: int, dim: int, base: float, device: torch.device) -> None:
    cos, sin = rl.rotary_table(torch.tensor([position], device=device), rl.rope_frequencies(dim, base, device=device))
    encoding = rl.sinusoidal_encoding(torch.tensor(position, device=device), dim, base)
    exact_cos, exact_sin = exact_table(position, dim, base)
    for table, exact in (
        (cos[0], exact_cos), (sin[0], exact_sin), (encoding[1::2], exact_cos), (encoding[0::2], exact_sin)
    ):  # fmt: skip
        assert table.dtype == torch.float32
        assert largest_error(table, exact) <= 6e-8


@pytest.mark.parametrize("kind", ["pi", "ntk-old", "ntk-fixed", "ntk-aware", "ntk-mixed"])
def test_frequencies_against_50_digits(kind: str) -> None:
    """Relative error of a frequency of at most 2^-50: at position 1M that moves an angle by 1e-9."""
    dim, factor, base = 128, 8, mpmath.mpf(10_000)
    with mpmath.workdps(50):
        kappa = mpmath.mpf(factor)
        exact = {
            "pi": lambda t: base ** (-mpmath.mpf(2 * t) / dim) / kappa,
            "ntk-old": lambda t: (base * kappa) ** (-mpmath.mpf(2 * t) / dim),
            "ntk-fixed": lambda t: (base * kappa) ** (-mpmath.mpf(2 * t) / dim) / kappa ** (mpmath.mpf(2) / dim),
            "ntk-aware": lambda t: (base * kappa ** (mpmath.mpf(dim) / (dim - 2))) ** (-mpmath.mpf(2 * t) / dim),
            "ntk-mixed": lambda t: (
                base ** (-mpmath.mpf(2 * t) / dim) / kappa ** (mpmath.mpf(2 * (t + 1)) / dim) ** mpmath.mpf("0.625")
            ),
        }[kind]
        got = FrequencySpec(kind, dim=dim, factor=factor)().tolist()
        for t, frequency in enumerate(got):
            assert abs(mpmath.mpf(frequency) / exact(t) - 1) < mpmath.mpf(2) ** -50


def scores(q: Tensor, k: Tensor, shift: int, frequencies: Tensor, layout: str) -> Tensor:
    """<R(m + shift) q_m, R(n + shift) k_n>; the products themselves are summed in float64."""
    positions = torch.arange(q.shape[-2], device=q.device) + shift
    turned_q = rl.apply_rotary(q, positions, frequencies, layout=layout).double()
    return turned_q @ rl.apply_rotary(k, positions, frequencies, layout=layout).double().T


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shift", [*FAR, OFFSET])
def test_same_score_far_away(shift: int, layout: str, device: torch.device) -> None:
    frequencies = rl.rope_frequencies(128, device=device)
    q, k = torch.randn(2, 64, 128, device=device)
    error = (scores(q, k, shift, frequencies, layout) - scores(q, k, 0, frequencies, layout)).abs()
    bound = 4 * 2**-24 * q.norm(dim=-1, keepdim=True) * k.norm(dim=-1)
    assert (error <= bound).all()
    assert error.max() > 0  # float32 tables do round: the comparison is not of equal things


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", SHORT_TYPES)
@pytest.mark.parametrize("shift", [0, OFFSET])
@pytest.mark.parametrize("dim", [128, 32])
def test_short_result_is_the_float32_result_cast_once(
    dim: int, shift: int, dtype: torch.dtype, layout: str, device: torch.device
) -> None:
    frequencies = rl.rope_frequencies(dim, device=device)
    positions = torch.arange(300, device=device) + shift
    x = torch.randn(2, 3, 300, 128, device=device).to(dtype)
    for scale in (1.0, 1.21):
        result = rl.apply_rotary(x, positions, frequencies, layout=layout, scale=scale)
        in_float32 = rl.apply_rotary(x.float(), positions, frequencies, layout=layout, scale=scale)
        assert torch.equal(result, in_float32.to(dtype))
        cos, sin = rl.rotary_table(positions, frequencies, scale=scale)
        assert torch.equal(rl.rotary.rotate(x, cos, sin, layout=layout), in_float32.to(dtype))


@pytest.mark.parametrize("dtype", SHORT_TYPES)
def test_short_encoding_is_the_float64_encoding_cast_once(dtype: torch.dtype, device: torch.device) -> None:
    positions = torch.arange(1000, device=device) + OFFSET
    exact = rl.sinusoidal_encoding(positions, 64, dtype=torch.float64)
    assert torch.equal(rl.sinusoidal_encoding(positions, 64, dtype=dtype), exact.to(dtype))


@pytest.mark.parametrize("dtype", SHORT_TYPES)
def test_short_call_leaves_no_trace(dtype: torch.dtype, device: torch.device) -> None:
    """A bfloat16 call before a float32 call changes nothing, in functions and in modules."""
    x = torch.randn(1, 2, 50, 64, device=device)
    module = rl.nn.RotaryEmbedding(FrequencySpec("rope", dim=64)).to(device)
    attend = rl.nn.Attention(rl.scheme("rerope", dim=64, window=8)).to(device)
    first = module(x), attend(x, x, x)
    module(x.to(dtype)), attend(x.to(dtype), x.to(dtype), x.to(dtype))
    assert torch.equal(module(x), first[0])
    assert torch.equal(attend(x, x, x), first[1])


def cast(model: torch.nn.Module, how: str) -> torch.nn.Module:
    return {
        "to": lambda: model.to(torch.bfloat16),
        "bfloat16": model.bfloat16,
        "half": model.half,
        "float": model.float,
        "double": model.double,
        "twice": lambda: model.half().bfloat16().float(),
    }[how]()


@pytest.mark.parametrize("how", ["to", "bfloat16", "half", "float", "double", "twice"])
@pytest.mark.parametrize("learned", [False, True])
def test_casting_a_model_changes_no_frequency(learned: bool, how: str, device: torch.device) -> None:
    spec = FrequencySpec("rope", dim=64)
    model = torch.nn.ModuleDict(
        {
            "linear": torch.nn.Linear(4, 4),
            "rotary": rl.nn.RotaryEmbedding(spec, learned=learned),
            "attention": rl.nn.Attention(rl.scheme("rope", dim=64), learned_frequencies=learned),
        }
    ).to(device)
    x = torch.randn(1, 2, 50, 64, device=device)
    positions = torch.arange(50, device=device) + OFFSET
    before = model["rotary"](x, positions), model["attention"](x, x, x)
    parameters = dict(model.named_parameters())
    cast(model, how)
    assert torch.equal(model["rotary"](x, positions), before[0])
    assert torch.equal(model["attention"](x, x, x), before[1])
    for name, parameter in model.named_parameters():
        assert parameter is parameters[name]  # an optimizer made before the cast still holds it
        if "learned" in name:
            assert parameter.dtype == torch.float64
            assert torch.equal(parameter, spec().to(device))
    assert sum("learned" in name for name in parameters) == (2 if learned else 0)
    assert all(not buffer.is_floating_point() for buffer in model.buffers())


def test_casting_keeps_gradients_and_what_was_learned() -> None:
    learned = rl.nn.LearnedFrequencies(FrequencySpec("rope", dim=8))
    with torch.no_grad():
        learned.value.mul_(1 / 3)
    learned.value.square().sum().backward()
    value, gradient = learned.value.detach().clone(), learned.value.grad.clone()
    learned.to(torch.bfloat16)
    assert torch.equal(learned.value, value)
    assert torch.equal(learned.value.grad, gradient)
    copy = rl.nn.LearnedFrequencies(FrequencySpec("rope", dim=8)).half()
    copy.load_state_dict(learned.state_dict())
    assert torch.equal(copy.value, value)


@pytest.mark.parametrize("scheme", [rl.scheme("rope", dim=64), rl.scheme("rerope", dim=64, window=4)])
def test_autocast_changes_nothing(scheme: rl.Scheme, device: torch.device) -> None:
    frequencies = rl.rope_frequencies(64, device=device)
    positions = torch.arange(20, device=device) + OFFSET
    x = torch.randn(1, 2, 20, 64, device=device)
    options = {"q_positions": positions, "k_positions": positions}

    def everything() -> list[Tensor]:
        return [
            rl.apply_rotary(x, positions, frequencies, layout="half"),
            *rl.rotary_table(positions, frequencies),
            rl.sinusoidal_encoding(positions, 64),
            rl.sinusoidal.sinusoidal_kernel(positions, frequencies),
            rl.nn.RotaryEmbedding(FrequencySpec("rope", dim=64))(x, positions),
            *rl.attention(x, x, x, scheme, **options, return_lse=True),
            rl.attention(x.bfloat16(), x.bfloat16(), x.bfloat16(), scheme, **options),
        ]

    before = everything()
    with torch.autocast(device.type, dtype=torch.bfloat16):
        assert (x @ x.mT).dtype == torch.bfloat16  # autocast is on
        after = everything()
    for wanted, got in zip(before, after, strict=True):
        assert got.dtype == wanted.dtype
        assert torch.equal(got, wanted)


def test_default_dtype_changes_nothing() -> None:
    before = rl.rope_frequencies(64), rl.sinusoidal_encoding(torch.arange(5), 64)
    torch.set_default_dtype(torch.bfloat16)
    try:
        after = rl.rope_frequencies(64), rl.sinusoidal_encoding(torch.arange(5), 64)
        x = torch.randn(3, 64, dtype=torch.float32)
        assert rl.apply_rotary(x, torch.arange(3), after[0], layout="half").dtype == torch.float32
        assert rl.alibi_slopes(4).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    for wanted, got in zip(before, after, strict=True):
        assert got.dtype == wanted.dtype
        assert torch.equal(got, wanted)


@pytest.mark.parametrize(
    ("dtype", "first_wrong"), [(torch.bfloat16, 257), (torch.float16, 2049), (torch.float32, 2**24 + 1)]
)
def test_where_a_short_type_merges_positions(dtype: torch.dtype, first_wrong: int) -> None:
    """Integers are exact up to 2^8, 2^11, 2^24; the next one merges with its neighbour. Such positions are refused."""
    exact = torch.arange(min(first_wrong, 4096))
    assert torch.equal(exact.to(dtype).long(), exact)
    assert torch.tensor(first_wrong).to(dtype) == torch.tensor(first_wrong - 1).to(dtype)
    with pytest.raises(TypeError, match="positions must be int64"):
        rl.sinusoidal_encoding(exact.to(dtype), 8)
