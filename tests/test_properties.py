"""Algebra that must hold for any input, tried on many by hypothesis."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import rope_lessons as rl
from rope_lessons import FrequencySpec, Scheme
from rope_lessons.kinds import KINDS

positions = st.integers(-(2**20), 2**20)
fractions = st.floats(-(2.0**20), 2.0**20)
dims = st.integers(1, 24).map(lambda pairs: 2 * pairs)
layouts = st.sampled_from(["half", "interleaved"])
seeds = st.integers(0, 2**31)
bases = st.floats(1.5, 1e7)
factors = st.floats(0.1, 100)


def vector(dim: int, seed: int, rows: int = 1) -> Tensor:
    return torch.randn(rows, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def turn(x: Tensor, position: float, layout: str, base: float = 10_000.0, scale: float = 1.0) -> Tensor:
    where = torch.full((x.shape[0],), position, dtype=torch.float64)
    return rl.apply_rotary(x, where, rl.rope_frequencies(x.shape[1], base), layout=layout, scale=scale)


def close(a: Tensor, b: Tensor, atol: float = 1e-8) -> None:
    """Angles of up to 2^20 radians are rounded at 2^20 · 2^-53 = 1e-10."""
    torch.testing.assert_close(a, b, atol=atol, rtol=0)


@given(dims, fractions, layouts, seeds, bases)
def test_norm_is_kept(dim: int, m: float, layout: str, seed: int, base: float) -> None:
    x = vector(dim, seed)
    close(turn(x, m, layout, base).norm(), x.norm(), 1e-12)


@given(dims, fractions, layouts, seeds, st.floats(0.01, 10))
def test_scale_multiplies(dim: int, m: float, layout: str, seed: int, scale: float) -> None:
    x = vector(dim, seed)
    close(turn(x, m, layout, scale=scale), scale * turn(x, m, layout), 1e-12)


@given(dims, fractions, fractions, layouts, seeds)
def test_rotations_add(dim: int, a: float, b: float, layout: str, seed: int) -> None:
    x = vector(dim, seed)
    close(turn(turn(x, b, layout), a, layout), turn(x, a + b, layout))
    close(turn(turn(x, a, layout), -a, layout), x, 1e-12)


@given(dims, positions, positions, layouts, seeds)
def test_adjoint(dim: int, m: int, n: int, layout: str, seed: int) -> None:
    q, k = vector(dim, seed), vector(dim, seed + 1)
    product = (turn(q, m, layout) * turn(k, n, layout)).sum()
    close(product, (q * turn(k, n - m, layout)).sum())
    close(product, (turn(q, m - n, layout) * k).sum())


@given(dims, layouts, seeds, st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]))
def test_position_0_is_the_identity(dim: int, layout: str, seed: int, dtype: torch.dtype) -> None:
    x = vector(dim, seed, rows=3).to(dtype)
    at = torch.zeros(3, dtype=torch.int64)
    assert torch.equal(rl.apply_rotary(x, at, rl.rope_frequencies(dim), layout=layout), x)


@given(dims, st.integers(0, 7), fractions, layouts, seeds)
def test_other_channels_pass_bitwise(dim: int, more: int, m: float, layout: str, seed: int) -> None:
    x = vector(dim + more, seed).to(torch.bfloat16)
    at = torch.tensor([m], dtype=torch.float64)
    turned = rl.apply_rotary(x, at, rl.rope_frequencies(dim), layout=layout)
    assert torch.equal(turned[:, dim:], x[:, dim:])
    assert torch.equal(turned[:, :dim], rl.apply_rotary(x[:, :dim], at, rl.rope_frequencies(dim), layout=layout))


@given(dims, fractions, seeds)
def test_interleaved_is_permuted_half(dim: int, m: float, seed: int) -> None:
    x = vector(dim, seed)
    to_half = torch.cat((torch.arange(0, dim, 2), torch.arange(1, dim, 2)))
    assert torch.equal(turn(x, m, "interleaved")[:, to_half], turn(x[:, to_half], m, "half"))


@given(dims, fractions, layouts, seeds)
def test_rotation_is_multiplication_of_complex_numbers(dim: int, m: float, layout: str, seed: int) -> None:
    x = vector(dim, seed)
    pairs = x.view(-1, 2) if layout == "interleaved" else x.view(2, -1).T
    angles = m * rl.rope_frequencies(dim)
    unit = torch.polar(torch.ones_like(angles), angles)
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * unit)
    close(turn(x, m, layout), (turned if layout == "interleaved" else turned.T).reshape(1, dim), 1e-12)


@given(st.integers(1, 4), st.integers(1, 8), st.integers(0, 5), seeds)
def test_weight_converters_are_inverse(heads: int, pairs: int, rest: int, seed: int) -> None:
    weight = vector(3, seed, rows=heads * (2 * pairs + rest))
    options = {"heads": heads, "rotary_dim": 2 * pairs}
    for there, back in (
        (rl.interleaved_to_half, rl.half_to_interleaved), (rl.half_to_interleaved, rl.interleaved_to_half)
    ):  # fmt: skip
        assert torch.equal(back(there(weight, **options), **options), weight)
        assert torch.equal(there(weight, **options)[:, 0], there(weight[:, 0], **options))  # a bias


@given(st.sampled_from([(4, 4), (6, 2), (3, 1)]), st.sampled_from([(8, 8), (8, 4), (7, 6)]), seeds)
def test_converted_weights_give_the_same_scores(heads: tuple[int, int], dims: tuple[int, int], seed: int) -> None:
    (q_heads, kv_heads), (head_dim, dim) = heads, dims
    x = vector(5, seed, rows=9)
    w_q, w_k = vector(5, seed + 1, rows=q_heads * head_dim), vector(5, seed + 2, rows=kv_heads * head_dim)

    def scores(w_q: Tensor, w_k: Tensor, layout: str) -> Tensor:
        q, k = ((x @ w.T).view(9, -1, head_dim).transpose(0, 1) for w in (w_q, w_k))
        q, k = (rl.apply_rotary(y, torch.arange(9), rl.rope_frequencies(dim), layout=layout) for y in (q, k))
        return q @ k.repeat_interleave(q_heads // kv_heads, dim=0).mT

    rotary_dim = None if dim == head_dim else dim
    half_q = rl.interleaved_to_half(w_q, q_heads, rotary_dim=rotary_dim)
    half_k = rl.interleaved_to_half(w_k, kv_heads, rotary_dim=rotary_dim)
    close(scores(half_q, half_k, "half"), scores(w_q, w_k, "interleaved"), 1e-11)
    there_q = rl.half_to_interleaved(w_q, q_heads, rotary_dim=rotary_dim)
    there_k = rl.half_to_interleaved(w_k, kv_heads, rotary_dim=rotary_dim)
    close(scores(there_q, there_k, "interleaved"), scores(w_q, w_k, "half"), 1e-11)


@pytest.mark.parametrize("kind", KINDS)
@given(st.integers(2, 64), bases)
def test_factor_1_changes_nothing(kind: str, pairs: int, base: float) -> None:
    spec = FrequencySpec(kind, dim=2 * pairs, base=base, **KINDS[kind].extended(2 * pairs, 1, 64))
    torch.testing.assert_close(spec(length=64), rl.rope_frequencies(2 * pairs, base), rtol=1e-14, atol=0)


@given(st.integers(2, 64), bases, factors, st.integers(1, 64))
def test_dynamic_ntk_changes_nothing_up_to_the_training_length(
    pairs: int, base: float, factor: float, length: int
) -> None:
    frequencies = rl.dynamic_ntk_frequencies(2 * pairs, length, 64, factor, base)
    assert torch.equal(frequencies, rl.rope_frequencies(2 * pairs, base))


@given(st.integers(2, 64), bases, factors, st.integers(65, 10_000))
def test_dynamic_ntk_is_ntk_aware_with_a_growing_factor(pairs: int, base: float, factor: float, length: int) -> None:
    growth = 1 + factor * (length / 64 - 1)
    torch.testing.assert_close(
        rl.dynamic_ntk_frequencies(2 * pairs, length, 64, factor, base),
        rl.ntk_frequencies(2 * pairs, growth, base, variant="aware"), rtol=1e-12, atol=0,
    )  # fmt: skip


@given(st.integers(2, 64), bases, factors)
def test_ntk_variants_at_both_ends(pairs: int, base: float, factor: float) -> None:
    """First and last frequency over those of RoPE, as the docstring's table has them."""
    dim = 2 * pairs
    ends = {
        "old": (1, factor ** (2 / dim - 1)),
        "fixed": (factor ** (-2 / dim), 1 / factor),
        "aware": (1, 1 / factor),
    }
    for variant, (first, last) in ends.items():
        ratio = rl.ntk_frequencies(dim, factor, base, variant=variant) / rl.rope_frequencies(dim, base)
        assert math.isclose(ratio[0], first, rel_tol=1e-12)
        assert math.isclose(ratio[-1], last, rel_tol=1e-12)
        steps = ratio[1:] / ratio[:-1]  # in between the ratio changes by the same factor from pair to pair
        torch.testing.assert_close(steps, steps[:1].expand_as(steps), rtol=1e-11, atol=0)


@given(st.integers(0, 2**63 - 1), st.integers(2, 1000), st.integers(0, 3))
def test_digits_are_pythons(n: int, base: int, more: int) -> None:
    wanted, rest = [], n
    while rest:
        rest, digit = divmod(rest, base)
        wanted.append(digit)
    wanted += [0] * (more or not wanted)
    digits = rl.radix.digits(n, base, len(wanted))
    assert digits.tolist() == wanted
    assert torch.equal(rl.radix.digits(torch.tensor([[n, 0]]), base, len(wanted))[0, 0], digits)
    if base ** len(wanted) <= 2**63:
        assert int(rl.radix.from_digits(digits, base)) == n


@given(st.integers(0, 2**63 - 1))
def test_digits_are_those_python_prints(n: int) -> None:
    for base, text in ((10, str(n)), (2, f"{n:b}"), (16, f"{n:x}"), (8, f"{n:o}")):
        assert [int(digit, base) for digit in reversed(text)] == rl.radix.digits(n, base, len(text)).tolist()


@given(st.integers(2, 100), st.integers(1, 6), st.data())
def test_from_digits_and_back(base: int, length: int, data: st.DataObject) -> None:
    digits = torch.tensor(data.draw(st.lists(st.integers(0, base - 1), min_size=length, max_size=length)))
    n = rl.radix.from_digits(digits, base)
    assert int(n) == sum(int(digit) * base**t for t, digit in enumerate(digits))
    assert torch.equal(rl.radix.digits(n, base, length), digits)


@given(st.integers(2, 32), st.floats(50, 1e6), st.data())
def test_decode_position_without_noise(pairs: int, base: float, data: st.DataObject) -> None:
    frequencies = rl.rope_frequencies(2 * pairs, base)
    limit = math.pi / float(frequencies[-1])
    n = data.draw(st.floats(-0.999 * limit, 0.999 * limit))
    where = torch.tensor([n], dtype=torch.float64)
    encoding = rl.sinusoidal_encoding(where, 2 * pairs, base, dtype=torch.float64)
    assert math.isclose(rl.radix.decode_position(3.5 * encoding, frequencies), n, abs_tol=1e-7)


def with_angle_errors(n: float, frequencies: Tensor, errors: Tensor) -> Tensor:
    angles = n * frequencies + errors
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten()


@given(st.integers(2, 32), st.floats(50, 1e6), seeds, st.floats(-0.8, 0.8))
def test_decode_position_below_the_noise_bound(pairs: int, base: float, seed: int, share: float) -> None:
    """Angle errors below π/(1 + ω_t/ω_{t+1}) leave the error of the fastest pair alone: |error of n| = that of pair 0
    over ω_0 = 1."""
    frequencies = rl.rope_frequencies(2 * pairs, base)
    bound = math.pi / (1 + float(frequencies[0] / frequencies[1]))
    n = share * (math.pi - bound) / float(frequencies[-1])
    noise = torch.rand(pairs, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    errors = 0.999 * bound * noise.sign()  # the worst: every angle off by nearly the bound
    decoded = float(rl.radix.decode_position(with_angle_errors(n, frequencies, errors), frequencies))
    assert math.isclose(decoded - n, float(errors[0]), abs_tol=1e-6)


def test_decode_position_above_the_noise_bound() -> None:
    """The bound is sharp: neighbouring pairs off by a little more, in opposite directions, give a wrong turn."""
    frequencies = rl.rope_frequencies(4, 100.0)  # 1 and 0.1
    bound = math.pi / (1 + 10)
    for share, wrong in ((0.99, 0.0), (1.01, 2 * math.pi)):
        errors = share * bound * torch.tensor([-1.0, 1.0], dtype=torch.float64)
        decoded = float(rl.radix.decode_position(with_angle_errors(0.0, frequencies, errors), frequencies))
        assert math.isclose(decoded, errors[0] + wrong, abs_tol=1e-12)


@given(st.integers(-60, 60).map(lambda n: n / 4), st.integers(0, 8), st.floats(0, 20))
def test_distance_map(distance: float, window: int, slope: float) -> None:
    x = torch.tensor(distance, dtype=torch.float64)
    bent = float(rl.rerope.leaky_distance(x, window, slope))
    assert bent == -float(rl.rerope.leaky_distance(-x, window, slope))  # odd
    assert math.isclose(float(rl.rerope.leaky_distance(x, window, 1.0)), distance, rel_tol=1e-12)  # slope 1 is RoPE
    assert math.isclose(float(rl.rerope.leaky_distance(x, 0, slope)), slope * distance, rel_tol=1e-12)  # w = 0 is PI
    if abs(distance) < window:
        assert bent == distance
    elif slope == 0:
        assert bent == math.copysign(window, distance)
    edge = torch.tensor([window, math.nextafter(window, -1)], dtype=torch.float64)  # continuous at w
    at, before = rl.rerope.leaky_distance(edge, window, slope)
    assert abs(at - before) <= 1e-9


KNOBS = st.sampled_from([(False, "half"), (True, "interleaved")])


@given(KNOBS, seeds)
def test_special_settings_of_the_distance_map(knobs: tuple[bool, str], seed: int) -> None:
    causal, layout = knobs
    x = vector(8, seed, rows=3 * 9).view(3, 1, 1, 9, 8)
    rope, pi = FrequencySpec("rope", dim=8), FrequencySpec("pi", dim=8, factor=4)

    def run(frequencies: FrequencySpec | None, window: int, slope: float) -> Tensor:
        scheme = Scheme(frequencies, window=window, slope=slope, causal=causal, layout=layout)
        return rl.attention(*x, scheme)

    plain = run(rope, 0, 1.0)
    for slope in (0.0, 0.25, 16.0):
        close(run(rope, 9, slope), plain, 1e-12)  # a window as long as the text is plain RoPE
        close(run(rope, 1000, slope), plain, 1e-12)
    close(run(rope, 5, 1.0), plain, 1e-12)  # slope 1 is RoPE for any window
    close(run(rope, 0, 0.25), run(pi, 0, 1.0), 1e-12)  # w = 0 and slope 1/κ is position interpolation
    close(run(rope, 0, 0.0), run(None, 0, 1.0), 1e-12)  # w = 0 and slope 0 is NoPE


@given(dims.filter(lambda dim: dim > 2), positions, positions)
def test_kernel_is_the_inner_product_of_encodings(dim: int, m: int, n: int) -> None:
    encodings = rl.sinusoidal_encoding(torch.tensor([m, n]), dim, dtype=torch.float64)
    kernel = rl.sinusoidal.sinusoidal_kernel(torch.tensor(m - n), rl.rope_frequencies(dim))
    close(encodings[0] @ encodings[1] / (dim / 2), kernel)


@given(st.integers(1, 300))
def test_alibi_slopes(heads: int) -> None:
    slopes = rl.alibi_slopes(heads)
    below = 2 ** math.floor(math.log2(heads))
    assert slopes[:below].tolist() == [2 ** (-8 * (h + 1) / below) for h in range(below)]
    above = rl.alibi_slopes(2 * below)[0::2][: heads - below]
    assert torch.equal(slopes[below:], above)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=20), st.integers(2, 10**5), st.integers(1, 100))
def test_log_n_scale(counts: list[int], train_length: int, floor: int) -> None:
    scale = rl.log_n_scale(torch.tensor(counts), train_length, floor=floor)
    clipped = rl.log_n_scale(torch.tensor(counts), train_length, clip=True, floor=floor)
    for count, one, other in zip(counts, scale.tolist(), clipped.tolist(), strict=True):
        wanted = math.log(max(count, floor), train_length)
        assert math.isclose(one, wanted, rel_tol=1e-9, abs_tol=1e-12)
        assert math.isclose(other, max(1.0, wanted), rel_tol=1e-9)
