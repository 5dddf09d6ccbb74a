"""Bad input: each message names the argument, says what it takes and what it got. Nothing is clamped in silence."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import rope_lessons as rl
from rope_lessons import (
    METHODS,
    FrequencySpec,
    LogN,
    Method,
    Scheme,
    axes,
    biases,
    circles,
    entropy,
    invleaky,
    local,
    mixed_radix,
    radix,
    random_positions,
    rerope,
    rotary,
    sinusoidal,
)
from rope_lessons.hf.configs import HF_TYPES
from tests.public import PUBLIC

P3 = torch.arange(3)
OMEGA = rl.rope_frequencies(4)
X = torch.randn(1, 2, 3, 8)
PLACES, SLANTED, AWAY = axes.axial_positions((1, 3)), axes.axial_frequencies(8, 2), biases.distances(3)
ONE = torch.ones(1)
TABLE = rl.rotary_table(P3, OMEGA)
ROPE = Scheme(FrequencySpec("rope", dim=4))
DYNAMIC = Scheme(FrequencySpec("dynamic-ntk", dim=4, factor=2, train_length=4))
PADDING = "padding must be whole numbers (batch,), or an attention mask (batch, tokens) of ones and zeros"
META = torch.device("meta")  # a second device that every machine has


def turn(x: Any = X, positions: Any = P3, frequencies: Any = OMEGA, layout: Any = "half", scale: Any = 1.0) -> Any:
    return rl.apply_rotary(x, positions, frequencies, layout=layout, scale=scale)


def rotate(x: Any = X, cos: Any = TABLE[0], sin: Any = TABLE[1], layout: Any = "half") -> Any:
    return rotary.rotate(x, cos, sin, layout=layout)


def attend(q: Any = X, k: Any = X, v: Any = X, scheme: Any = ROPE, **options: Any) -> Any:
    return rl.attention(q, k, v, scheme, **options)


def beta_positions(max_length: Any = 9, alpha: Any = 1.0) -> Any:
    return random_positions.equal_mean_positions(4, distribution="beta", max_length=max_length, alpha=alpha)


def cached(scheme: Any = ROPE, **options: Any) -> rl.KVCache:
    """A cache that holds three tokens."""
    cache = rl.KVCache(scheme, **options)
    attend(scheme=scheme, cache=cache)
    return cache


def ntk(dim: Any = 8, factor: Any = 2, base: Any = 10.0, variant: Any = "fixed") -> Any:
    return rl.ntk_frequencies(dim, factor, base, variant)


def mixed(dim: Any = 8, factor: Any = 2, exponent: Any = 0.625, base: Any = 10.0) -> Any:
    return rl.mixed_radix_frequencies(dim, factor, exponent, base)


def dynamic(dim: Any = 8, length: Any = 8, train_length: Any = 4, factor: Any = 2, base: Any = 10.0) -> Any:
    return rl.dynamic_ntk_frequencies(dim, length, train_length, factor, base)


def parts(dim: Any = 8, factor: Any = 2, train_length: Any = 64, base: Any = 10.0, **options: Any) -> Any:
    return rl.ntk_by_parts_frequencies(dim, factor, train_length, base, **options)


def yarn(dim: Any = 8, factor: Any = 2, train_length: Any = 64, base: Any = 1e4, **options: Any) -> Any:
    return rl.yarn_frequencies(dim, factor, train_length, base, **options)


def llama3(dim: Any = 8, factor: Any = 2, train_length: Any = 64, base: Any = 10.0, **options: Any) -> Any:
    return rl.llama3_frequencies(dim, factor, train_length, base, **options)


def longrope(
    dim: Any = 4, short: Any = (1, 1), long: Any = (1, 2), length: Any = 8, train_length: Any = 4, base: Any = 10.0
) -> Any:
    return rl.longrope_frequencies(dim, short, long, length, train_length, base)


def encode(positions: Any = P3, dim: Any = 8, base: Any = 10.0, **options: Any) -> Any:
    return rl.sinusoidal_encoding(positions, dim, base, **options)


def hf(rope: dict, head_dim: Any = 8, **options: Any) -> Scheme:
    return rl.scheme_from_hf(rope, head_dim=head_dim, **{"rope_theta": rope.get("rope_theta", 1e4), **options})


YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}
LLAMA3 = {**YARN, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONGROPE = {
    "rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4,
    "original_max_position_embeddings": 64, "attention_factor": 1.0,
}  # fmt: skip
CONFIG = {
    "num_hidden_layers": 2, "head_dim": 8, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
}  # fmt: skip


def plan(config: Any = None, knobs: Any = None, **keys: Any) -> Any:
    return rl.plan_from_hf({**CONFIG, **keys} if config is None else config, **(knobs or {}))


Case = tuple[Callable[[], Any], type[Exception], str]  # call, kind of error, its beginning (… stands for anything)


def not_positive(name: str, call: Callable[[Any], Any]) -> list[Case]:
    what = f"{name} must be a positive finite number, got"
    values = [(0, "0"), (-2.5, "-2.5"), (math.nan, "nan"), (math.inf, "inf")]
    cases: list[Case] = [(lambda v=v: call(v), ValueError, f"{what} {shown}") for v, shown in values]
    wrong = [("2", "'2' of type str"), (None, "None of type NoneType"), (True, "True of type bool")]
    return cases + [(lambda v=v: call(v), TypeError, f"{what} {shown}") for v, shown in wrong]


def not_finite_from_0(name: str, call: Callable[[Any], Any]) -> list[Case]:
    what = f"{name} must be a finite number of at least 0, got"
    values = [(-0.5, "-0.5"), (math.nan, "nan"), (math.inf, "inf")]
    cases: list[Case] = [(lambda v=v: call(v), ValueError, f"{what} {shown}") for v, shown in values]
    return [*cases, (lambda: call("1"), TypeError, f"{what} '1' of type str")]


def not_a_count(name: str, call: Callable[[Any], Any], least: int) -> list[Case]:
    what = f"{name} must be an int of at least {least}, got"
    return [
        (lambda: call(least - 1), ValueError, f"{what} {least - 1}"),
        (lambda: call(4.0), TypeError, f"{what} 4.0 of type float"),
        (lambda: call(True), TypeError, f"{what} True of type bool"),
        (lambda: call("4"), TypeError, f"{what} '4' of type str"),
    ]


def not_even(call: Callable[[Any], Any], least: int = 2) -> list[Case]:
    what = f"dim must be an even int of at least {least}, got"
    wrong = [(5, "5"), (0, "0"), (-2, "-2"), *([(2, "2")] if least > 2 else [])]
    cases: list[Case] = [(lambda v=v: call(v), ValueError, f"{what} {shown}") for v, shown in wrong]
    return [*cases, (lambda: call(8.0), TypeError, f"{what} 8.0 of type float")]


def not_positions(name: str, call: Callable[[Any], Any]) -> list[Case]:
    what = f"{name} must be int64, or float64 when fractional, got"
    dtypes = (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.bool)
    cases: list[Case] = [(lambda d=d: call(P3.to(d)), TypeError, f"{what} {d}") for d in dtypes]
    return [*cases, (lambda: call([0, 1, 2]), TypeError, f"{name} must be a tensor of int64 or float64, got list")]


def not_frequencies(call: Callable[[Any], Any]) -> list[Case]:
    return [
        (lambda: call([1.0]), TypeError, "frequencies must be a float64 tensor, got list"),
        (lambda: call(OMEGA.float()), TypeError, "frequencies must be float64 … got torch.float32"),
        (lambda: call(OMEGA.view(1, 1, 2)), ValueError, "frequencies must have shape (dim/2,)…, got (1, 1, 2)"),
        (lambda: call(OMEGA.to(META)), ValueError, "frequencies must be on cpu … got meta"),
    ]


def not_bases(name: str, call: Callable[[Any], Any]) -> list[Case]:
    cases = not_a_count(f"{name}[1]", lambda v: call([60, v, 24]), 2)
    return [*cases, (lambda: call([]), ValueError, f"{name} must have at least one entry, got []")]


def not_a_generator(call: Callable[[Any, Any], Any]) -> list[Case]:
    return [
        (lambda: call(7, None), TypeError, "generator must be a torch.Generator or None, got int"),
        (lambda: call(torch.Generator(), META), ValueError, "generator must be on meta … got one on cpu"),
    ]


def not_a_flag(name: str, call: Callable[[Any], Any]) -> list[Case]:
    return [(lambda: call(1), TypeError, f"{name} must be True or False, got 1")]


CASES: dict[str, list[Case]] = {
    "rope_frequencies": [
        *not_even(lambda v: rl.rope_frequencies(v)),
        (
            lambda: rl.rope_frequencies(2**31),
            ValueError,
            "dim must be an even int of at least 2 and at most 1048576, got 2147483648",
        ),
        (
            lambda: rl.rope_frequencies(8, device="banana"),
            ValueError,
            "device must be … or None, got 'banana' (Expected",
        ),
        (lambda: rl.rope_frequencies(8, device="cuda:77"), ValueError, "device must be … or None, got 'cuda:77' ("),
        (lambda: rl.rope_frequencies(8, device=1.5), TypeError, "device must be a torch.device, … or None, got 1.5"),
        (
            lambda: rl.rope_frequencies(8, 5e-324),
            ValueError,
            "base must be a positive finite number, and one over it finite too, got 5e-324",
        ),
        *not_positive("base", lambda v: rl.rope_frequencies(8, v)),
    ],
    "proportional_frequencies": [
        *not_even(lambda v: rl.circles.proportional_frequencies(v, 0.5)),
        *not_positive("share", lambda v: rl.circles.proportional_frequencies(8, v)),
        *not_positive("factor", lambda v: rl.circles.proportional_frequencies(8, 0.5, v)),
        *not_positive("base", lambda v: rl.circles.proportional_frequencies(8, 0.5, 2, v)),
        (
            lambda: rl.circles.proportional_frequencies(8, 1.5),
            ValueError,
            "share must be at most 1, and of dim = 8 leave a pair or more to turn, got 1.5",
        ),
        (
            lambda: rl.circles.proportional_frequencies(8, 0.2),
            ValueError,
            "share must be at most 1, and of dim = 8 leave a pair or more to turn, got 0.2",
        ),
    ],
    "pi_frequencies": [
        *not_even(lambda v: rl.pi_frequencies(v, 2)),
        *not_positive("factor", lambda v: rl.pi_frequencies(8, v)),
        *not_positive("base", lambda v: rl.pi_frequencies(8, 2, v)),
    ],
    "ntk_frequencies": [
        *not_even(lambda v: ntk(dim=v)),
        *not_even(lambda v: ntk(dim=v, variant="aware"), least=4),
        *not_positive("factor", lambda v: ntk(factor=v)),
        *[
            case
            for kind in ("old", "fixed", "aware")
            for case in not_positive("base", lambda v, k=kind: ntk(8, 8, v, k))
        ],
        (
            lambda: ntk(factor=1e300, base=1e300),
            ValueError,
            "factor must be smaller with a base of 1e+300: … it is inf",
        ),
        (
            lambda: ntk(factor=1e300, variant="aware"),
            ValueError,
            "factor must be smaller with a base of 10.0: 1e+300**1",
        ),
        (lambda: ntk(variant="mixed"), ValueError, "variant must be one of 'old', 'fixed', 'aware', got 'mixed'"),
    ],
    "mixed_radix_frequencies": [
        *not_even(lambda v: mixed(dim=v)),
        *not_positive("factor", lambda v: mixed(factor=v)),
        *not_positive("base", lambda v: mixed(base=v)),
        *not_finite_from_0("exponent", lambda v: mixed(exponent=v)),
    ],
    "dynamic_ntk_frequencies": [
        *not_even(lambda v: dynamic(dim=v), least=4),
        *not_a_count("length", lambda v: dynamic(length=v), 1),
        *not_a_count("train_length", lambda v: dynamic(train_length=v), 1),
        *not_positive("factor", lambda v: dynamic(factor=v)),
        *not_positive("base", lambda v: dynamic(base=v, length=2)),
        *not_positive("base", lambda v: dynamic(base=v)),
        (
            lambda: dynamic(factor=1e300),
            ValueError,
            "factor must be smaller with a base of 10.0: 1e+300**1.33333 times",
        ),
    ],
    "turns": [
        *not_frequencies(lambda v: circles.turns(v, 64))[:3],
        *not_a_count("length", lambda v: circles.turns(OMEGA, v), 1),
    ],
    "ntk_by_parts_frequencies": [
        *not_even(lambda v: parts(dim=v)),
        *not_positive("factor", lambda v: parts(factor=v)),
        *not_a_count("train_length", lambda v: parts(train_length=v), 1),
        *not_positive("base", lambda v: parts(base=v)),
        *not_finite_from_0("alpha", lambda v: parts(alpha=v)),
        *not_positive("beta", lambda v: parts(beta=v)),
        (lambda: parts(alpha=4, beta=4), ValueError, "beta must be above alpha = 4, got 4"),
    ],
    "yarn_frequencies": [
        *not_even(lambda v: yarn(dim=v)),
        *not_positive("factor", lambda v: yarn(factor=v)),
        *not_a_count("train_length", lambda v: yarn(train_length=v), 1),
        *not_positive("base", lambda v: yarn(base=v)),
        (lambda: yarn(beta_fast=1e308), ValueError, "beta_fast must be smaller: … got 1e+308"),
        (lambda: yarn(base=1), ValueError, "base must be above 1 (pairs must differ in speed), got 1"),
        *not_positive("beta_fast", lambda v: yarn(beta_fast=v)),
        *not_positive("beta_slow", lambda v: yarn(beta_slow=v)),
        (lambda: yarn(beta_fast=2, beta_slow=3), ValueError, "beta_fast must be at least beta_slow = 3, got 2"),
        *not_a_flag("truncate", lambda v: yarn(truncate=v)),
        (
            lambda: yarn(dim=64, train_length=3),
            ValueError,
            "train_length must be such that the common code's ramp does not run backwards (here from pair 0 to pair -2",
        ),
        (
            lambda: yarn(dim=64, train_length=100_000, base=10),
            ValueError,
            "train_length must be such that … (here from pair 86 to pair 63; … got 100000",
        ),
    ],
    "yarn_attention_factor": [
        *not_positive("factor", lambda v: rl.yarn_attention_factor(v)),
        *not_positive("mscale", lambda v: rl.yarn_attention_factor(2, v)),
    ],
    "llama3_frequencies": [
        *not_even(lambda v: llama3(dim=v)),
        *not_positive("factor", lambda v: llama3(factor=v)),
        *not_a_count("train_length", lambda v: llama3(train_length=v), 1),
        *not_positive("base", lambda v: llama3(base=v)),
        *not_positive("low_freq_factor", lambda v: llama3(low_freq_factor=v)),
        *not_positive("high_freq_factor", lambda v: llama3(high_freq_factor=v)),
        (
            lambda: llama3(low_freq_factor=4),
            ValueError,
            "high_freq_factor must be above low_freq_factor = 4, got 4.0",
        ),
    ],
    "longrope_frequencies": [
        *not_even(lambda v: longrope(dim=v)),
        *not_a_count("length", lambda v: longrope(length=v), 1),
        *not_a_count("train_length", lambda v: longrope(train_length=v), 1),
        *not_positive("base", lambda v: longrope(base=v)),
        *not_positive("short_factor[1]", lambda v: longrope(short=(1, v))),
        *not_positive("long_factor[0]", lambda v: longrope(long=[v, 1])),
        (lambda: longrope(short=8.0), TypeError, "short_factor must be a list or tuple of dim/2 numbers, got float"),
        (lambda: longrope(long=OMEGA), TypeError, "long_factor must be a list or tuple of dim/2 numbers, got Tensor"),
        (lambda: longrope(long=(1, 2, 3)), ValueError, "long_factor must have dim/2 = 2 numbers, got 3"),
    ],
    "longrope_attention_factor": [
        *not_positive("factor", lambda v: rl.longrope_attention_factor(v, 512)),
        *not_a_count("train_length", lambda v: rl.longrope_attention_factor(2, v), 2),
    ],
    "sinusoidal_encoding": [
        *not_positions("positions", lambda v: encode(v)),
        *not_even(lambda v: encode(dim=v)),
        *not_positive("base", lambda v: encode(base=v)),
        *not_frequencies(lambda v: encode(dim=4, frequencies=v)),
        (lambda: encode(frequencies=OMEGA), ValueError, "frequencies must have shape (dim/2,) = (4,), got (2,)"),
        (lambda: encode(dtype=torch.int64), TypeError, "dtype must be one of torch.float32, … got torch.int64"),
    ],
    "sinusoidal_kernel": [
        *not_positions("distance", lambda v: sinusoidal.sinusoidal_kernel(v, OMEGA)),
        *not_frequencies(lambda v: sinusoidal.sinusoidal_kernel(P3, v)),
    ],
    "rotary_table": [
        *not_positions("positions", lambda v: rl.rotary_table(v, OMEGA)),
        *not_frequencies(lambda v: rl.rotary_table(P3, v)),
        *not_positive("scale", lambda v: rl.rotary_table(P3, OMEGA, scale=v)),
        (
            lambda: rl.rotary_table(P3, OMEGA, scale=1e39),
            ValueError,
            "scale must be a number of torch.float32, … 1e+39",
        ),
        (lambda: rl.rotary_table(P3[0], OMEGA), ValueError, "positions must have shape (seq,) or (batch, seq), got ()"),
        (
            lambda: rl.rotary_table(P3, OMEGA, dtype=torch.bfloat16),
            TypeError,
            "dtype must be one of torch.float32, torch.float64, got torch.bfloat16",
        ),
    ],
    "rotate": [
        (lambda: rotate(x=[1.0]), TypeError, "x must be a tensor, got list"),
        (lambda: rotate(x=X.long()), TypeError, "x must be a floating-point tensor, got torch.int64"),
        (lambda: rotate(layout="neox"), ValueError, "layout must be one of 'interleaved', 'half', got 'neox'"),
        (lambda: rotate(x=X[..., :3]), ValueError, "x must have at least dim = 4 channels … got 3"),
        (lambda: rotate(cos=TABLE[0].bfloat16()), TypeError, "cos and sin must both be float32 … got cos of torch.bfl"),
        (
            lambda: rotate(sin=TABLE[1].double()),
            TypeError,
            "cos and sin must both be float32 … got sin of torch.float64",
        ),
        (lambda: rotate(sin=TABLE[1][:, :1]), ValueError, "cos and sin must have one shape, … got sin of shape (3, 1)"),
        (
            lambda: rotate(x=X[:, :, :2]),
            ValueError,
            "cos and sin must broadcast against x (1, 2, 2, 8), got shape (3, 2)",
        ),
        (
            lambda: rotate(x=X[0, 0], cos=TABLE[0][None, None], sin=TABLE[1][None, None]),
            ValueError,
            "cos and sin must have one shape, … against x (3, 8); got cos of shape (1, 1, 3, 2)",
        ),
        (lambda: rotate(cos=TABLE[0].to(META)), ValueError, "cos must be on cpu … got meta"),
    ],
    "apply_rotary": [
        *not_positions("positions", lambda v: turn(positions=v)),
        *not_frequencies(lambda v: turn(frequencies=v)),
        *not_positive("scale", lambda v: turn(scale=v)),
        (lambda: turn(x="x"), TypeError, "x must be a tensor, got str"),
        (lambda: turn(x=X.int()), TypeError, "x must be a floating-point tensor, got torch.int32"),
        (lambda: turn(x=X[0, 0, 0]), ValueError, "x must have shape (..., seq, head_dim), got (8,)"),
        (lambda: turn(layout="Half"), ValueError, "layout must be one of 'interleaved', 'half', got 'Half'"),
        (lambda: turn(layout=None), ValueError, "layout must be one of 'interleaved', 'half', got None"),
        (lambda: turn(positions=torch.arange(4)), ValueError, "positions must have shape (seq,) = (3,), got (4,)"),
        (
            lambda: turn(positions=P3.expand(2, 3)),
            ValueError,
            "positions must have shape (batch, seq) = (1, 3), got (2, 3)",
        ),
        (lambda: turn(positions=P3[0]), ValueError, "positions must have shape (seq,) or (batch, seq), got ()"),
        (lambda: turn(positions=P3.to(META)), ValueError, "positions must be on cpu … got meta"),
        (
            lambda: turn(x=X[0], positions=P3[None]),
            ValueError,
            "x must be (batch, heads, seq, head_dim) … got (2, 3, 8)",
        ),
        (
            lambda: turn(frequencies=OMEGA.expand(3, 2)),
            ValueError,
            "frequencies must have one row per head, 2 rows, got shape (3, 2)",
        ),
        (
            lambda: turn(frequencies=rl.rope_frequencies(10)),
            ValueError,
            "x must have at least dim = 10 channels for these frequencies, got 8",
        ),
    ],
    "interleaved_to_half": [
        (lambda: rl.interleaved_to_half([1.0], 1), TypeError, "weight must be a tensor, got list"),
        (
            lambda: rl.interleaved_to_half(torch.ones(7), 2),
            ValueError,
            "weight must have heads * head_dim … got shape (7,)",
        ),
        (
            lambda: rl.interleaved_to_half(torch.ones(()), 1),
            ValueError,
            "weight must have heads * head_dim … got shape ()",
        ),
        (lambda: rl.interleaved_to_half(torch.ones(6), 2), ValueError, "rotary_dim must be even and at most … got 3"),
        *not_a_count("heads", lambda v: rl.interleaved_to_half(torch.ones(8), v), 1),
        *not_a_count("rotary_dim", lambda v: rl.interleaved_to_half(torch.ones(8), 1, rotary_dim=v), 2),
    ],
    "half_to_interleaved": [
        (
            lambda: rl.half_to_interleaved(torch.ones(8), 3),
            ValueError,
            "weight must have heads * head_dim … got shape (8,)",
        ),
        (
            lambda: rl.half_to_interleaved(torch.ones(8), 2, rotary_dim=6),
            ValueError,
            "rotary_dim must be even and at most head_dim = 4, got 6",
        ),
    ],
    "digits": [
        *not_a_count("base", lambda v: radix.digits(5, v, 3), 2),
        *not_a_count("length", lambda v: radix.digits(5, 10, v), 1),
        (
            lambda: radix.digits(5, 10, 2**31),
            ValueError,
            "length must be an int of at least 1 and at most 63 (the digits of the largest int64 in base 2), got 214",
        ),
        (
            lambda: radix.digits(P3.to(META), 10, 3),
            ValueError,
            "n must hold values, which are read here, got a tensor on",
        ),
        (lambda: radix.digits(-1, 10, 3), ValueError, "n must be from 0 to base**length - 1 = 999, got -1"),
        (lambda: radix.digits(1000, 10, 3), ValueError, "n must be from 0 to base**length - 1 = 999, got 1000"),
        (
            lambda: radix.digits(torch.tensor([4, 8]), 2, 3),
            ValueError,
            "n must be from 0 to base**length - 1 = 7, got 4 to 8",
        ),
        (lambda: radix.digits(1.5, 10, 3), TypeError, "n must be an int or an int64 tensor, got 1.5 of type float"),
        (lambda: radix.digits(True, 10, 3), TypeError, "n must be an int or an int64 tensor, got True of type bool"),
        (lambda: radix.digits(P3.float(), 10, 3), TypeError, "n must be an int or an int64 tensor, got tensor("),
        (
            lambda: radix.digits(2**63, 10, 30),
            TypeError,
            "n must be an int or an int64 tensor, got 9223372036854775808",
        ),
    ],
    "from_digits": [
        *not_a_count("base", lambda v: radix.from_digits(P3, v), 2),
        (lambda: radix.from_digits(P3, 2), ValueError, "digits must be from 0 to base - 1 = 1, got [0, 1, 2]"),
        (lambda: radix.from_digits(-P3, 5), ValueError, "digits must be from 0 to base - 1 = 4, got [0, -1, -2]"),
        (lambda: radix.from_digits(P3.double(), 5), TypeError, "digits must be an int64 tensor, got torch.float64"),
        (lambda: radix.from_digits([1], 5), TypeError, "digits must be an int64 tensor, got list"),
        (
            lambda: radix.from_digits(torch.arange(30) % 10, 10),
            ValueError,
            "digits must have shape (..., length) … got shape (30,",
        ),
        *not_bases("base", lambda v: radix.from_digits(P3, v)),
        (
            lambda: radix.from_digits(P3, (60, 60)),
            ValueError,
            "digits must have shape (..., 2) with a product of the bases of at most 2**63, got shape (3,)",
        ),
        (
            lambda: radix.from_digits(P3, [2**21] * 3 + [2]),
            ValueError,
            "digits must have shape (..., 4) with a product",
        ),
        (
            lambda: radix.from_digits(P3, (5, 5, 2)),
            ValueError,
            "digits must be from 0 to base - 1 = [4, 4, 1], got [0, ",
        ),
        (
            lambda: radix.from_digits(-P3, (5, 5, 5)),
            ValueError,
            "digits must be from 0 to base - 1 = [4, 4, 4], got [0, ",
        ),
    ],
    "mixed_digits": [
        *not_bases("bases", lambda v: mixed_radix.mixed_digits(5, v)),
        (
            lambda: mixed_radix.mixed_digits(-1, (60, 24)),
            ValueError,
            "n must be from 0 to the product of bases minus 1 = 1439",
        ),
        (lambda: mixed_radix.mixed_digits(1440, (60, 24)), ValueError, "n must be from 0 … = 1439, got 1440"),
        (lambda: mixed_radix.mixed_digits(P3 + 1, (2,)), ValueError, "n must be from 0 … = 1, got 1 to 3"),
        (
            lambda: mixed_radix.mixed_digits(1.5, (60,)),
            TypeError,
            "n must be an int or an int64 tensor, got 1.5 of type float",
        ),
        (
            lambda: mixed_radix.mixed_digits(True, (60,)),
            TypeError,
            "n must be an int or an int64 tensor, got True of type bool",
        ),
        (
            lambda: mixed_radix.mixed_digits(P3.float(), (60,)),
            TypeError,
            "n must be an int or an int64 tensor, got tensor(",
        ),
        (lambda: mixed_radix.mixed_digits(2**63, (60,)), TypeError, "n must be an int … got 9223372036854775808"),
    ],
    "decode_position": [
        *not_frequencies(lambda v: radix.decode_position(torch.ones(4), v)),
        (
            lambda: radix.decode_position(torch.ones(6), OMEGA),
            ValueError,
            "encoding must have 2 * 2 channels … got shape (6,)",
        ),
        (
            lambda: radix.decode_position(P3, OMEGA),
            TypeError,
            "encoding must be a floating-point tensor, got torch.int64",
        ),
        (
            lambda: radix.decode_position(torch.ones(4), OMEGA.flip(0)),
            ValueError,
            "frequencies must be positive and decrease",
        ),
        (
            lambda: radix.decode_position(torch.ones(4), OMEGA * 0),
            ValueError,
            "frequencies must be positive and decrease",
        ),
        (
            lambda: radix.decode_position(torch.ones(4), -OMEGA),
            ValueError,
            "frequencies must be positive and decrease",
        ),
    ],
    "smooth_leaky_distance": [
        *not_positions("distance", lambda v: rerope.smooth_leaky_distance(v, 4, 0.5, 1)),
        (
            lambda: rerope.smooth_leaky_distance(P3, -1, 0.5, 0),
            ValueError,
            "window must be a finite number of at least 0",
        ),
        (
            lambda: rerope.smooth_leaky_distance(P3, 4, -0.5, 1),
            ValueError,
            "slope must be a finite number of at least 0",
        ),
        (
            lambda: rerope.smooth_leaky_distance(P3, 4, 0.5, -1),
            ValueError,
            "sigma must be a finite number of at least 0",
        ),
        (
            lambda: rerope.smooth_leaky_distance(P3, 4, 0.5, 4.5),
            ValueError,
            "sigma must be at most the window, 4, got 4.5",
        ),
    ],
    "leaky_distance": [
        *not_positions("distance", lambda v: rerope.leaky_distance(v, 4, 0.5)),
        (
            lambda: rerope.leaky_distance(P3, -1, 0.5),
            ValueError,
            "window must be a finite number of at least 0, got -1",
        ),
        (
            lambda: rerope.leaky_distance(P3, 4, -0.5),
            ValueError,
            "slope must be a finite number of at least 0, got -0.5",
        ),
        (
            lambda: rerope.leaky_distance(P3, 4, math.inf),
            ValueError,
            "slope must be a finite number of at least 0, got inf",
        ),
        (
            lambda: rerope.leaky_distance(P3, 4, math.nan),
            ValueError,
            "slope must be a finite number of at least 0, got nan",
        ),
        (
            lambda: rerope.leaky_distance(P3, "4", 1),
            TypeError,
            "window must be a finite number of at least 0, got '4'",
        ),
    ],
    "trained_distances": [
        *not_a_count("train_length", lambda v: invleaky.trained_distances(v, 4, 2), 1),
        (
            lambda: invleaky.trained_distances(8, -1, 2),
            ValueError,
            "window must be a finite number of at least 0, got -1",
        ),
        (
            lambda: invleaky.trained_distances(8, 4, -2),
            ValueError,
            "slope must be a finite number of at least 0, got -2",
        ),
    ],
    "covered_length": [
        *not_a_count("train_length", lambda v: invleaky.covered_length(v, 4, 2), 1),
        (
            lambda: invleaky.covered_length(8, -1, 2),
            ValueError,
            "window must be a finite number of at least 0, got -1",
        ),
        (
            lambda: invleaky.covered_length(8, 4, 1e308),
            ValueError,
            "slope must be smaller: distances are beyond … got 1e+308",
        ),
        (
            lambda: invleaky.covered_length(8, 4, math.nan),
            ValueError,
            "slope must be a finite number of at least 0, got nan",
        ),
    ],
    "slope_for": [
        *not_a_count("train_length", lambda v: invleaky.slope_for(v, 0, 64), 1),
        *not_a_count("length", lambda v: invleaky.slope_for(8, 2, v), 1),
        (lambda: invleaky.slope_for(8, 2, 7), ValueError, "length must be at least train_length = 8, got 7"),
        (lambda: invleaky.slope_for(8, -1, 64), ValueError, "window must be a finite number of at least 0, got -1"),
        (lambda: invleaky.slope_for(8, "2", 64), TypeError, "window must be a finite number of at least 0, got '2'"),
        (lambda: invleaky.slope_for(8, 7, 64), ValueError, "window must be below train_length - 1 = 7, got 7"),
        (lambda: invleaky.slope_for(1, 0, 64), ValueError, "window must be below train_length - 1 = 0, got 0"),
    ],
    "invleaky_rule": [
        *not_a_count("train_length", lambda v: invleaky.invleaky_rule(v, 8), 1),
        *not_positive("factor", lambda v: invleaky.invleaky_rule(512, v)),
        (
            lambda: invleaky.invleaky_rule(512, 1e308),
            ValueError,
            "factor must be smaller: the slope is twice as much, got 1e",
        ),
    ],
    "random_positions": [
        *not_a_count("length", lambda v: random_positions.random_positions(v, 5), 1),
        *not_a_count("max_length", lambda v: random_positions.random_positions(1, v), 1),
        *not_a_count("batch", lambda v: random_positions.random_positions(2, 5, batch=v), 1),
        (
            lambda: random_positions.random_positions(6, 5),
            ValueError,
            "max_length must be at least length = 6: no position is used twice, got 5",
        ),
        *not_a_generator(lambda g, device: random_positions.random_positions(2, 5, generator=g, device=device)),
    ],
    "grid_positions": [
        *not_a_count("length", lambda v: random_positions.grid_positions(v, 5), 1),
        *not_a_count("max_length", lambda v: random_positions.grid_positions(1, v), 1),
        *not_a_count("batch", lambda v: random_positions.grid_positions(2, 5, batch=v), 1),
        (
            lambda: random_positions.grid_positions(6, 5),
            ValueError,
            "max_length must be at least length = 6: no position is used twice, got 5",
        ),
        *not_a_generator(lambda g, device: random_positions.grid_positions(2, 5, generator=g, device=device)),
        (
            lambda: random_positions.grid_positions(3_037_000_501, 2 * 3_037_000_501 - 1),
            ValueError,
            "length must be at most 3037000499, whose square is an int64, got 3037000501",
        ),
        (
            lambda: random_positions.grid_positions(2, 5, device="banana"),
            ValueError,
            "device must be … got 'banana'",
        ),
    ],
    "skip_positions": [
        *not_a_count("length", lambda v: random_positions.skip_positions(v, 5), 1),
        *not_a_count("max_length", lambda v: random_positions.skip_positions(2, v), 1),
        *not_a_count("batch", lambda v: random_positions.skip_positions(2, 5, batch=v), 1),
        (
            lambda: random_positions.skip_positions(6, 5),
            ValueError,
            "max_length must be at least length = 6: no position is used twice, got 5",
        ),
        (
            lambda: random_positions.skip_positions(1, 5),
            ValueError,
            "length must be at least 2, or there is nothing to cut, got 1",
        ),
        *not_a_generator(lambda g, device: random_positions.skip_positions(2, 5, generator=g, device=device)),
    ],
    "equal_mean_positions": [
        *not_a_count("length", lambda v: random_positions.equal_mean_positions(v), 1),
        *not_a_count("batch", lambda v: random_positions.equal_mean_positions(4, batch=v), 1),
        *not_a_count("max_length", lambda v: beta_positions(max_length=v), 2),
        *not_positive("alpha", lambda v: beta_positions(alpha=v)),
        *not_finite_from_0("mean", lambda v: random_positions.equal_mean_positions(4, mean=v)),
        *not_a_generator(lambda g, device: random_positions.equal_mean_positions(4, generator=g, device=device)),
        (
            lambda: random_positions.equal_mean_positions(4, distribution="poisson"),
            ValueError,
            "distribution must be one of 'exponential', 'beta', got 'poisson'",
        ),
        (
            lambda: random_positions.equal_mean_positions(4, alpha=1),
            ValueError,
            "alpha must be left out: it belongs to distribution 'beta', got 1",
        ),
        (
            lambda: random_positions.equal_mean_positions(4, max_length=9),
            ValueError,
            "max_length must be left out: it belongs to distribution 'beta', got 9",
        ),
        (
            lambda: beta_positions(max_length=4),
            ValueError,
            "mean must be above 0 and below max_length - 1 = 3, got 3",
        ),
        (
            lambda: random_positions.equal_mean_positions(4, mean=2**54),
            ValueError,
            "mean must be at most 9007199254740992, where positions become too coarse, got 18014398509481984",
        ),
        (
            lambda: beta_positions(alpha=1e-300),
            ValueError,
            "alpha, and beta = … must be from 1e-280 to 1e+280, got alp",
        ),
    ],
    "log_n_scale": [
        (lambda: rl.log_n_scale([4], 512), TypeError, "counts must be an int64 tensor, got list"),
        (lambda: rl.log_n_scale(P3.double(), 512), TypeError, "counts must be an int64 tensor, got torch.float64"),
        *not_a_count("train_length", lambda v: rl.log_n_scale(P3, v), 2),
        *not_a_count("floor", lambda v: rl.log_n_scale(P3, 512, floor=v), 1),
        *not_a_flag("clip", lambda v: rl.log_n_scale(P3, 512, clip=v)),
    ],
    "LogN": [
        *not_a_count("train_length", lambda v: LogN(v), 2),
        *not_a_count("floor", lambda v: LogN(512, floor=v), 1),
        *not_a_flag("clip", lambda v: LogN(512, clip=v)),
    ],
    "attention_entropy": [
        (lambda: entropy.attention_entropy([0.5, 0.5]), TypeError, "weights must be a tensor, got list"),
        (
            lambda: entropy.attention_entropy(P3),
            TypeError,
            "weights must be a floating-point tensor, got torch.int64",
        ),
    ],
    "alibi_channels": [
        (lambda: local.alibi_channels(P3, X), TypeError, "q must be a floating-point tensor, got torch.int64"),
        (
            lambda: local.alibi_channels(X, X[0]),
            ValueError,
            "k must have 4 dimensions (batch, heads, tokens, channels), got shape (2, 3, 8)",
        ),
        (
            lambda: local.alibi_channels(X, X[..., :4]),
            ValueError,
            "k must have shape (1, kv_heads, k_len, 8) with kv_heads dividing 2 to match q, got (1, 2, 3, 4)",
        ),
        (
            lambda: local.alibi_channels(X[:, :1], X),
            ValueError,
            "k must have … dividing 1 to match q, got (1, 2, 3, 8)",
        ),
        (lambda: local.alibi_channels(X, X.to(META)), ValueError, "k must be on cpu like q, got meta"),
        *not_a_count("digits", lambda v: local.alibi_channels(X, X, digits=v), 1),
        (
            lambda: local.alibi_channels(X, X, k_positions=P3.float()),
            TypeError,
            "k_positions must be an int64 tensor, got torch.float32",
        ),
        (
            lambda: local.alibi_channels(X, X, k_positions=P3[:2]),
            ValueError,
            "k_positions must have shape (3,) like the tokens of k, got (2,)",
        ),
    ],
    "alibi_slopes": [
        *not_a_count("heads", lambda v: rl.alibi_slopes(v), 1),
        (
            lambda: rl.alibi_slopes(2**31),
            ValueError,
            "heads must be an int of at least 1 and at most 65536 (they are made one by one), got 2147483648",
        ),
    ],
    "window_mask": [
        *not_a_count("window", lambda v: local.window_mask(v), 1),
        (
            lambda: local.window_mask(2**63),
            ValueError,
            "window must be an int of at least 1 and at most 9223372036854775807 (the largest int64), got 922",
        ),
        (lambda: local.window_mask(10**5000), ValueError, "window must be an int … got an int of 16610 bits"),
    ],
    "lambda_mask": [
        *not_a_count("window", lambda v: local.lambda_mask(v, 1), 1),
        *not_a_count("sinks", lambda v: local.lambda_mask(2, v), 0),
    ],
    "dense_mask": [
        (
            lambda: local.dense_mask("causal", P3, P3),
            TypeError,
            "mask_mod must be a function of batch, … got 'causal'",
        ),
        (
            lambda: local.dense_mask(lambda *_: P3, P3, P3),
            TypeError,
            "mask_mod must give a bool tensor, got torch.int64",
        ),
        (
            lambda: local.dense_mask(local.causal_mask, P3[0], P3),
            ValueError,
            "query_index must have at least one dimension",
        ),
        (
            lambda: local.dense_mask(local.causal_mask, P3, P3.to(META)),
            ValueError,
            "key_index must be on cpu … got meta",
        ),
        (
            lambda: local.dense_mask(local.causal_mask, [0], P3),
            TypeError,
            "query_index must be an int64 tensor, got list",
        ),
        (
            lambda: local.dense_mask(local.causal_mask, P3, P3.float()),
            TypeError,
            "key_index must be an int64 tensor, got torch.float32",
        ),
    ],
    "axial_positions": [
        (lambda: axes.axial_positions(()), ValueError, "sizes must have at least one entry, got ()"),
        (lambda: axes.axial_positions(4), TypeError, "sizes must be a list or tuple of ints of at least 1, got 4"),
        *not_a_count("sizes[1]", lambda v: axes.axial_positions((2, v)), 1),
    ],
    "multimodal_positions": [
        (lambda: axes.multimodal_positions(5), ValueError, "parts must be a list of ints and of (frames"),
        (lambda: axes.multimodal_positions([]), ValueError, "parts must be a list of ints and of (frames"),
        (
            lambda: axes.multimodal_positions([(2, 3)]),
            ValueError,
            "parts[0] must be (frames, rows, columns), got (2, 3)",
        ),
        *not_a_count("parts[0]", lambda v: axes.multimodal_positions([v]), 1),
    ],
    "axial_frequencies": [
        *not_even(lambda v: axes.axial_frequencies(v, 1)),
        *not_a_count("axes", lambda v: axes.axial_frequencies(8, v), 1),
        *not_positive("base", lambda v: axes.axial_frequencies(8, 2, base=v)),
        (lambda: axes.axial_frequencies(10, 2), ValueError, "dim must be a multiple of 2 * axes = 4, … got 10"),
    ],
    "sectioned_frequencies": [
        (
            lambda: axes.sectioned_frequencies(SLANTED, (2, 2)),
            ValueError,
            "frequencies must have shape (dim/2,), got (2, 4)",
        ),
        (
            lambda: axes.sectioned_frequencies(OMEGA, (1, 2)),
            ValueError,
            "sections must have as many pairs together as frequencies, 2, got 3",
        ),
        (lambda: axes.sectioned_frequencies(OMEGA, 2), TypeError, "sections must be a list or tuple of ints, got 2"),
        *not_a_count("sections[0]", lambda v: axes.sectioned_frequencies(OMEGA, (v, 2)), 0),
        *not_a_flag("interleaved", lambda v: axes.sectioned_frequencies(OMEGA, (1, 1), interleaved=v)),
        (
            lambda: axes.sectioned_frequencies(OMEGA, (0, 2), interleaved=True),
            ValueError,
            "sections must be largest for axis 0 when interleaved, got [0, 2]",
        ),
    ],
    "axial_table": [
        (lambda: axes.axial_table(PLACES.float(), SLANTED), TypeError, "positions must be int64, or float64"),
        (
            lambda: axes.axial_table(PLACES, OMEGA),
            ValueError,
            "frequencies must have shape (axes, dim/2), got (2,)",
        ),
        (
            lambda: axes.axial_table(PLACES[:, :1], SLANTED),
            ValueError,
            "positions must have … with 2 axes, … got (3, 1)",
        ),
        *not_positive("scale", lambda v: axes.axial_table(PLACES, SLANTED, scale=v)),
        (lambda: axes.axial_table(PLACES, SLANTED, dtype=torch.float16), TypeError, "dtype must be"),
        (lambda: axes.axial_table(PLACES, SLANTED.to(META)), ValueError, "frequencies must be on cpu like positions"),
    ],
    "apply_axial": [
        (
            lambda: axes.apply_axial(X[0, 0], PLACES[None], SLANTED, layout="half"),
            ValueError,
            "positions must have one row for each row of x (batch, heads, seq, head_dim), got (1, 3, 2)",
        ),
        (
            lambda: axes.apply_axial(X, PLACES[:2], SLANTED, layout="half"),
            ValueError,
            "positions must have shape ([batch,] 3, axes) … got (2, 2)",
        ),
        (lambda: axes.apply_axial(ONE, PLACES, SLANTED, layout="half"), ValueError, "x must have shape (..., seq"),
        (lambda: axes.apply_axial(X, PLACES, SLANTED, layout="x"), ValueError, "layout must be one of"),
    ],
    "distances": [
        *not_a_count("q_len", lambda v: biases.distances(v, 3), 1),
        *not_a_count("k_len", lambda v: biases.distances(1, v), 1)[:-1],  # None is the default
        (lambda: biases.distances(3, 2), ValueError, "k_len must be at least q_len = 3, got 2"),
    ],
    "t5_buckets": [
        (lambda: biases.t5_buckets(AWAY.float()), TypeError, "distance must be an int64 tensor, got torch.float32"),
        *not_a_count("buckets", lambda v: biases.t5_buckets(AWAY, buckets=v), 2),
        (lambda: biases.t5_buckets(AWAY, buckets=7), ValueError, "buckets must be a multiple of 2, got 7"),
        (
            lambda: biases.t5_buckets(AWAY, buckets=6, causal=False),
            ValueError,
            "buckets must be a multiple of 4, got 6",
        ),
        *not_a_count("farthest", lambda v: biases.t5_buckets(AWAY, farthest=v), 1),
        (lambda: biases.t5_buckets(AWAY, farthest=16), ValueError, "farthest must be above the 16 buckets … got 16"),
        *not_a_flag("causal", lambda v: biases.t5_buckets(AWAY, causal=v)),
    ],
    "t5_bias": [
        (lambda: biases.t5_bias(AWAY, ONE), ValueError, "table must have shape (buckets, heads), … got (1,)"),
        (
            lambda: biases.t5_bias(AWAY[0], torch.ones(32, 1)),
            ValueError,
            "distance must have shape (q_len, k_len), got (3,)",
        ),
        (lambda: biases.t5_bias(AWAY, torch.ones(32, 1, device=META)), ValueError, "table must be on cpu"),
    ],
    "shaw_bias": [
        (
            lambda: biases.shaw_bias(X, torch.ones(4, 8), AWAY),
            ValueError,
            "table must have shape (2k + 1, 8) to match q, got (4, 8)",
        ),
        (
            lambda: biases.shaw_bias(X, torch.ones(3, 8), AWAY[:2]),
            ValueError,
            "distance must have shape (3, k_len) to match q, got (2, 3)",
        ),
        (lambda: biases.shaw_bias(X, torch.ones(3, 8, device=META), AWAY), ValueError, "table must be on cpu like q"),
    ],
    "kerple_log_bias": [
        (
            lambda: biases.kerple_log_bias(AWAY, ONE, torch.ones(2)),
            ValueError,
            "rate must have shape (heads,), … got (2,), torch.float32",
        ),
        (lambda: biases.kerple_log_bias(AWAY, P3, ONE), TypeError, "amount must be a floating-point tensor"),
    ],
    "kerple_power_bias": [
        (
            lambda: biases.kerple_power_bias(AWAY, torch.tensor(1.0), ONE),
            ValueError,
            "amount must have shape (heads,)",
        ),
        (
            lambda: biases.kerple_power_bias(AWAY, ONE, ONE.double()),
            ValueError,
            "power must have shape (heads,), … got (1,), torch.float64",
        ),
    ],
    "sandwich_bias": [
        *not_a_count("heads", lambda v: biases.sandwich_bias(AWAY, v), 1),
        *not_even(lambda v: biases.sandwich_bias(AWAY, 1, dim=v)),
        *not_positive("base", lambda v: biases.sandwich_bias(AWAY, 1, base=v)),
    ],
    "fire_bias": [
        *not_positive("rate", lambda v: biases.fire_bias(AWAY, torch.nn.Identity(), rate=v, threshold=1.0)),
        *not_positive("threshold", lambda v: biases.fire_bias(AWAY, torch.nn.Identity(), rate=1.0, threshold=v)),
        (
            lambda: biases.fire_bias(AWAY, torch.nn.Identity(), rate=torch.ones(2), threshold=1.0),
            ValueError,
            "rate must be one floating-point number, got torch.float32 of (2,)",
        ),
        (
            lambda: biases.fire_bias(AWAY, torch.nn.Flatten(0), rate=1.0, threshold=1.0),
            ValueError,
            "mlp must give (3, 3, heads), got (9,)",
        ),
        (
            lambda: biases.fire_bias(AWAY, 1, rate=1.0, threshold=1.0),
            TypeError,
            "mlp must be a function of a tensor, got 1",
        ),
        (lambda: biases.fire_bias(AWAY, len, rate=1.0, threshold=1.0), TypeError, "mlp must give a tensor, got int"),
        (
            lambda: biases.fire_bias(AWAY, torch.nn.Identity(), rate=1e10, threshold=1.0),
            ValueError,
            "rate must be at most 1e+09, got 10000000000.0",
        ),
    ],
    "apply_xpos": [
        (
            lambda: biases.apply_xpos(X, X, P3, SLANTED, layout="half"),
            ValueError,
            "frequencies must have shape (dim/2,), got (2, 4)",
        ),
        *not_positive("gamma", lambda v: biases.apply_xpos(X, X, P3, OMEGA, layout="half", gamma=v)),
        *not_positive("scale_base", lambda v: biases.apply_xpos(X, X, P3, OMEGA, layout="half", scale_base=v)),
        (lambda: biases.apply_xpos(X, X[:, :, :2], P3, OMEGA, layout="half"), ValueError, "k must have shape (..., 3,"),
        (
            lambda: biases.apply_xpos(X, X, P3[None], OMEGA, layout="half"),
            ValueError,
            "positions must have shape (seq,)",
        ),
        (lambda: biases.apply_xpos(X, X, P3.double(), OMEGA, layout="half"), TypeError, "positions must be an int64"),
    ],
    "receptive_field": [
        *not_a_count("window", lambda v: local.receptive_field(v, 2), 1),
        *not_a_count("layers", lambda v: local.receptive_field(2, v), 1),
        *not_a_flag("causal", lambda v: local.receptive_field(2, 2, v)),
    ],
    "FrequencySpec": [
        (lambda: FrequencySpec("yarnn", dim=8), ValueError, "kind must be one of 'rope', 'pi', … got 'yarnn'"),
        (lambda: FrequencySpec("pi", dim=8), ValueError, "options of 'pi' must contain dim, factor; missing: factor"),
        (
            lambda: FrequencySpec("rope", dim=8, factor=2),
            ValueError,
            "options of 'rope' must be among dim, base, got 'factor'",
        ),
        (
            lambda: FrequencySpec("rope", dim=8, device="cpu"),
            ValueError,
            "options of 'rope' must be among … got 'device'",
        ),
        *not_even(lambda v: FrequencySpec("rope", dim=v)),
        *not_positive("factor", lambda v: FrequencySpec("ntk-fixed", dim=8, factor=v)),
        *not_a_count("train_length", lambda v: FrequencySpec("dynamic-ntk", dim=8, factor=2, train_length=v), 1),
        (
            lambda: FrequencySpec("dynamic-ntk", dim=8, factor=2, train_length=4)(),
            ValueError,
            "length must be given: the frequencies of 'dynamic-ntk' depend on it",
        ),
    ],
    "Scheme": [
        (
            lambda: ROPE.replace(windw=4),
            ValueError,
            "knobs must be one of 'frequencies', … got 'windw'; did you mean 'window'?",
        ),
        (lambda: ROPE.replace(layout="x"), ValueError, "layout must be one of"),
        (lambda: Scheme("rope"), TypeError, "frequencies must be a FrequencySpec or None, got str"),
        (lambda: Scheme(scale=2.0), TypeError, "scale must be a LogN or None, got float"),
        (lambda: Scheme(layout="gptj"), ValueError, "layout must be one of 'interleaved', 'half', got 'gptj'"),
        *not_a_count("window", lambda v: Scheme(window=v), 0),
        (lambda: Scheme(slope=-1), ValueError, "slope must be a finite number of at least 0, got -1"),
        (lambda: Scheme(slope=math.nan), ValueError, "slope must be a finite number of at least 0, got nan"),
        (lambda: Scheme(slope="0"), TypeError, "slope must be a finite number of at least 0, got '0' of type str"),
        *not_positive("rotary_scale", lambda v: Scheme(rotary_scale=v)),
        *not_positive("base_scale", lambda v: Scheme(base_scale=v))[:4],  # None is the default
        *not_a_flag("causal", lambda v: Scheme(causal=v)),
        *not_a_flag("alibi", lambda v: Scheme(alibi=v)),
        *not_a_count("visible_window", lambda v: Scheme(visible_window=v), 1),
        *not_a_count("sinks", lambda v: Scheme(visible_window=4, sinks=v), 0),
        (lambda: Scheme(sinks=2), ValueError, "sinks must be 0 without a visible_window … got 2"),
    ],
    "scheme": [
        *[
            (
                lambda other=other, make=make: make(other),
                ValueError,
                f"options of {of} must be among … got {other!r}; did you mean {meant!r}?",
            )
            for of, make in (
                ("'yarn'", lambda other: FrequencySpec("yarn", **{other: 8})),
                ("scheme 'yarn'", lambda other: rl.scheme("yarn", **{other: 8})),
            )
            for other, meant in (
                ("dims", "dim"),
                ("head_dim", "dim"),
                ("rotary_dim", "dim"),
                ("theta", "base"),
                ("rope_theta", "base"),
                ("original_max_position_embeddings", "train_length"),
                ("scaling_factor", "factor"),
            )
        ],
        (
            lambda: rl.scheme("lambda", dim=8, sliding_window=8),
            ValueError,
            "options of scheme 'lambda' must be among … got 'sliding_window'; did you mean 'visible_window'?",
        ),
        (
            lambda: rl.scheme("nope", head_dim=8),
            ValueError,
            "options of scheme 'nope' must be among alibi, … window; got 'head_dim'",
        ),
        (lambda: rl.scheme("rotary", dim=8), ValueError, "name must be one of 'rope', … got 'rotary'"),
        (
            lambda: rl.scheme("linear", dim=8),
            ValueError,
            "name must be one of 'rope', … got 'linear'; did you mean 'pi'?",
        ),
        (
            lambda: rl.scheme("YaRN", dim=8),
            ValueError,
            "name must be one of 'rope', … got 'YaRN'; did you mean 'yarn'?",
        ),
        (
            lambda: rl.scheme("dynamic", dim=8),
            ValueError,
            "name must be one of 'rope', … got 'dynamic'; did you mean 'dynamic-ntk'?",
        ),
        (
            lambda: rl.scheme("default", dim=8),
            ValueError,
            "name must be one of 'rope', … got 'default'; did you mean 'rope'?",
        ),
        (
            lambda: rl.scheme("rope_scaling"),
            ValueError,
            "name must be one of 'rope', … got 'rope_scaling'; rl.scheme_from_hf reads the dictionary of a config",
        ),
        (
            lambda: rl.scheme("yarn", dim=8, rope_scaling={}),
            ValueError,
            "options of scheme 'yarn' must be among … got 'rope_scaling'; rl.scheme_from_hf reads the dictionary of a",
        ),
        (
            lambda: rl.scheme("yarnn", dim=8),
            ValueError,
            "name must be one of 'rope', … got 'yarnn'; did you mean",
        ),
        (lambda: rl.scheme([], dim=8), ValueError, "name must be one of 'rope', … got []"),
        (
            lambda: rl.scheme("rerope", dim=8, windw=4),
            ValueError,
            "options of scheme 'rerope' must be among dim, base, window, … got 'windw'; did you mean 'window'?",
        ),
        (
            lambda: rl.scheme("window", dim=8, visible_window=None),
            TypeError,
            "visible_window must be an int of at least 1, got None of type NoneType",
        ),
        (
            lambda: rl.scheme("lambda", dim=8, visible_window=None, sinks=0),
            TypeError,
            "visible_window must be an int of at least 1, got None of type NoneType",
        ),
        *[
            (
                lambda name=name, options=options: rl.scheme(name, dim=8, **options),
                ValueError,
                "window must be at least 1 with a slope of 0, or no pair turns (for no positions take scheme(",
            )
            for name, options in (
                ("rerope", {"window": 0}),
                ("leaky-rerope", {"window": 0, "slope": 0}),
                ("invleaky", {"window": 0, "slope": 0.0}),
                ("rope", {"slope": 0}),
            )
        ],
        (
            lambda: rl.scheme("rope", dim=8, window=128),
            ValueError,
            "slope must be given with a window, which bends nothing by itself … got window=128 alone",
        ),
        (lambda: rl.scheme("pi", dim=8), ValueError, "scheme 'pi' needs factor; got dim"),
        (lambda: rl.scheme("rerope"), ValueError, "scheme 'rerope' needs dim, window; got nothing"),
        (
            lambda: rl.scheme("rope", dim=8, factor=2),
            ValueError,
            "options of scheme 'rope' must be among dim, base, … got 'factor'",
        ),
        (lambda: rl.scheme("nope", dim=8), ValueError, "options of scheme 'nope' must be among … got 'dim'"),
        (
            lambda: rl.scheme("rerope", dim=8, window=4, slope=0.5),
            ValueError,
            "options of scheme 'rerope' must not contain slope",
        ),
        (lambda: rl.scheme("rerope", dim=8, window=-4), ValueError, "window must be an int of at least 0, got -4"),
        (lambda: rl.scheme("yarn", dim=8, factor=2), ValueError, "scheme 'yarn' needs train_length; got dim, factor"),
        (
            lambda: rl.scheme("yarn", dim=8, factor=2, train_length=8, rotary_scale=-1),
            ValueError,
            "rotary_scale must be a positive finite number, got -1",
        ),
        (
            lambda: rl.scheme("longrope", dim=2, short_factor=[1], long_factor=[2], train_length=8),
            ValueError,
            "scheme 'longrope' needs factor or rotary_scale (its attention factor); got neither",
        ),
    ],
    "scheme_from_hf": [
        (
            lambda: rl.scheme_from_hf(None, head_dim=8),
            TypeError,
            "rope must be a dictionary with 'rope_type', got NoneType",
        ),
        (
            lambda: rl.scheme_from_hf({"rope_type": "default"}, head_dim=8),
            ValueError,
            "rope must contain 'rope_theta', or rope_theta must be given (… of a config); got ['rope_type']",
        ),
        (
            lambda: rl.scheme_from_hf({"rope_type": "default", "rope_theta": 1e4}, head_dim=8, rope_theta=5e5),
            ValueError,
            "rope_theta must agree with the dictionary's 10000.0, got 500000.0",
        ),
        (
            lambda: hf({"factor": 2.0}),
            ValueError,
            "rope must contain 'rope_type', one of 'default', … got ['factor', 'rope_theta']",
        ),
        (
            lambda: hf({"rope_type": "lin"}),
            ValueError,
            f"rope_type must be one of {', '.join(map(repr, HF_TYPES))}, got 'lin'",
        ),
        (
            lambda: hf({"rope_type": "linear"}),
            ValueError,
            "rope of rope_type 'linear' must contain 'factor', got ['rope_theta', 'rope_type']",
        ),
        (
            lambda: hf({"rope_type": "default", "factr": 2}),
            ValueError,
            "keys of rope_type 'default' must be among … got 'factr'",
        ),
        (
            lambda: hf({"rope_type": "dynamic", "factor": 2.0}),
            ValueError,
            "rope of rope_type 'dynamic' must contain 'orig",
        ),
        (
            lambda: hf(
                {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 4},
                max_position_embeddings=8,
            ),
            ValueError,
            "max_position_embeddings must equal 'original_max_position_embeddings' = 4 … got 8",
        ),
        (
            lambda: hf({"rope_type": "linear", "type": "yarn", "factor": 2.0}),
            ValueError,
            "type must agree with rope_type 'linear' where both are given, got 'yarn'",
        ),
        (lambda: hf({"type": "su"}), ValueError, "rope_type must be one of 'default', … got 'su'"),
        *[
            (
                lambda rope=rope, key=key: hf({k: v for k, v in rope.items() if k != key}),
                ValueError,
                f"rope of rope_type {rope['rope_type']!r} must contain {key!r}",
            )
            for rope in (YARN, LLAMA3, LONGROPE)
            for key in rope
            if key not in ("rope_type", "attention_factor")
        ],
        *[
            (
                lambda rope=rope: hf({**rope, "beta": 32}),
                ValueError,
                f"keys of rope_type {rope['rope_type']!r} must be among rope_type, rope_theta, … got 'beta'",
            )
            for rope in (YARN, LLAMA3, LONGROPE)
        ],
        (lambda: hf({**LLAMA3, "attention_factor": 1.0}), ValueError, "keys of rope_type 'llama3' must be among"),
        (lambda: hf({**LLAMA3, "factor": None}), ValueError, "rope of rope_type 'llama3' must contain 'factor'"),
        (lambda: hf({**YARN, "truncate": None}), TypeError, "truncate must be True or False, got None"),
        (
            lambda: hf({**YARN, "mscale": 0.7}),
            ValueError,
            "rope of rope_type 'yarn' must contain attention_factor, or both mscale and mscale_all_dim, … got mscale",
        ),
        (
            lambda: hf({**YARN, "attention_factor": 1.0, "mscale": 0.7, "mscale_all_dim": 0.7}),
            ValueError,
            "rope of rope_type 'yarn' must contain … got attention_factor, mscale, mscale_all_dim",
        ),
        *not_positive("mscale", lambda v: hf({**YARN, "mscale": v, "mscale_all_dim": 1.0}))[:5],  # None is missing
        *not_positive("mscale_all_dim", lambda v: hf({**YARN, "mscale_all_dim": v, "mscale": 1.0}))[:5],
        *not_positive("attention_factor", lambda v: hf({**YARN, "attention_factor": v}))[:5],
        (
            lambda: hf({k: v for k, v in LONGROPE.items() if k != "attention_factor"}),
            ValueError,
            "rope of rope_type 'longrope' must contain 'factor' or 'attention_factor', or max_position_embeddings",
        ),
        *not_a_count("max_position_embeddings", lambda v: hf({**YARN, "factor": None}, max_position_embeddings=v), 1),
        (
            lambda: hf({"rope_type": "linear", "factor": -1}),
            ValueError,
            "factor must be a positive finite number, got -1",
        ),
        (
            lambda: hf({"rope_type": "default", "rope_theta": "1e4"}),
            TypeError,
            "rope_theta must be a positive finite number, got '1e4'",
        ),
        (
            lambda: hf({"rope_type": "default", "partial_rotary_factor": 1.5}),
            ValueError,
            "partial_rotary_factor must be at most 1",
        ),
        *not_positive("partial_rotary_factor", lambda v: hf({"rope_type": "default", "partial_rotary_factor": v}))[:5],
        (
            lambda: hf({"rope_type": "default", "partial_rotary_factor": 0.7}),
            ValueError,
            "partial_rotary_factor times head_dim must be an even number from 2 … got 0.7 times 8",
        ),
        *not_a_count("head_dim", lambda v: hf({"rope_type": "default"}, head_dim=v), 2),
        (
            lambda: hf({"rope_type": "default"}, slope=-1),
            ValueError,
            "slope must be a finite number of at least 0, got -1",
        ),
    ],
    "scheme_to_hf": [
        (lambda: rl.scheme_to_hf("rope"), TypeError, "scheme must be a Scheme, got 'rope'"),
        (lambda: rl.scheme_to_hf(Scheme()), ValueError, "frequencies must be one of 'rope', 'pi', … got None"),
        (
            lambda: rl.scheme_to_hf(rl.scheme("ntk-by-parts", dim=8, factor=2, train_length=64)),
            ValueError,
            "frequencies must be one of … got FrequencySpec(",
        ),
        (
            lambda: rl.scheme_to_hf(rl.scheme("rerope", dim=8, window=4)),
            ValueError,
            "only the frequencies of a scheme … got Scheme(",
        ),
        (
            lambda: rl.scheme_to_hf(rl.scheme("rope", dim=8, layout="interleaved")),
            ValueError,
            "only the frequencies … layout 'half'",
        ),
        (
            lambda: rl.scheme_to_hf(rl.scheme("rope", dim=8), head_dim=4),
            ValueError,
            "head_dim must be an int of at least 8, got 4",
        ),
    ],
    "Method": [
        (lambda: Method("m", (), ()), ValueError, "train and test must be plans over the same layers, got 0 and 0"),
        (lambda: Method("m", (ROPE,), (ROPE, ROPE)), ValueError, "train and test must be plans … got 1 and 2 schemes"),
        (
            lambda: Method("m", ROPE, (ROPE,)),
            TypeError,
            "train must be a plan (a tuple of one Scheme per layer), got Scheme(",
        ),
        (lambda: Method("m", (ROPE,), ("rope",)), TypeError, "test must be a plan (a tuple … got ('rope',)"),
        (lambda: Method(3, (ROPE,), (ROPE,)), TypeError, "name must be a string, got 3"),
        (
            lambda: Method("m", (ROPE,), (ROPE,), 3),
            TypeError,
            "train_positions must be a sampler of positions, … got 3",
        ),
        (lambda: Method("m", (ROPE,), (ROPE,), None, "x"), TypeError, "test_positions must be a sampler … got 'x'"),
    ],
    "METHODS": [
        (
            lambda: METHODS["invleeky"],
            KeyError,
            "\"name must be one of 'rope', … got 'invleeky'; did you mean 'invleaky'?",
        ),
        (lambda: METHODS["rope"](2, 8), TypeError, "METHODS['rope']() takes 0 positional arguments but 2 were given"),
        *[
            (
                lambda name=name, other=other: METHODS[name](**{other: 2}),
                ValueError,
                f"options of method {name!r} must be among … got {other!r}; did you mean {meant!r}?",
            )
            for name in ("rope", "hwfa")
            for other, meant in (("head_dim", "dim"), ("rope_theta", "base"), ("num_hidden_layers", "layers"))
        ],
        *not_a_count("layers", lambda v: METHODS["rope"](layers=v, dim=8), 1),
        *not_a_count("layers", lambda v: METHODS["invleaky"](layers=v, dim=8, window=2, slope=4), 1),
        (
            lambda: METHODS["invleaky-moving"](layers=2, dim=8, windows=(), slopes=(4,)),
            TypeError,
            "windows must be a list of at least one number, got ()",
        ),
        (
            lambda: METHODS["invleaky-moving"](layers=2, dim=8, windows=(4,), slopes=16),
            TypeError,
            "slopes must be a list of at least one number, got 16",
        ),
        (
            lambda: Method("m", (ROPE,), (ROPE,), schedule=3),
            TypeError,
            "schedule must be a schedule of plans, a function",
        ),
        *not_a_count("layers", lambda v: METHODS["hwfa"](layers=v, dim=8, visible_window=2, train_length=4), 2),
        *not_a_count("layers", lambda v: METHODS["hwfa2"](layers=v, dim=8, visible_window=2, window=4), 1),
        *not_a_count(
            "full_layers", lambda v: METHODS["hwfa2"](layers=4, dim=8, visible_window=2, window=4, full_layers=v), 1
        ),
        (
            lambda: METHODS["hwfa2"](layers=1, dim=8, visible_window=2, window=4, full_layers=2),
            ValueError,
            "full_layers must be at most layers = 1, got 2",
        ),
        (lambda: METHODS["rerope"](layers=2, dim=8), ValueError, "method 'rerope' needs window; got layers, dim"),
        (
            lambda: METHODS["hwfa"](layers=2, dim=8, window=2),
            ValueError,
            "options of method 'hwfa' must be among layers, ",
        ),
        (
            lambda: METHODS["hwfa2"](layers=2, dim=8),
            ValueError,
            "method 'hwfa2' needs visible_window, window; got layers",
        ),
        (
            lambda: METHODS["random-positions"](layers=2, dim=8, maxlength=9),
            ValueError,
            "options of method 'random-positions' must be among layers, dim, max_length, … did you mean 'max_length'?",
        ),
        (
            lambda: METHODS["rerope"](layers=2, dim=8, window=4, factor=8),
            ValueError,
            "options of method 'rerope' must be among … got 'factor'",
        ),
        *[
            (
                lambda name=name, layers=layers: METHODS[name](
                    layers=layers, dim=8, **({"visible_window": 2, "train_length": 9} if name == "hwfa" else {})
                ),
                ValueError,
                f"layers must be an int of at least {2 if name == 'hwfa' else 1} and at most 65536 (they are made one",
            )
            for name in ("hwfa", "rope", "equal-mean")
            for layers in (2**31, 2**70)
        ],
        *[
            (
                lambda name=name, more=more: METHODS[name](layers=2, dim=8, visible_window=None, **more),
                TypeError,
                "visible_window must be an int of at least 1, got None of type NoneType",
            )
            for name, more in (
                ("hwfa", {"train_length": 9}),
                ("hwfa2", {"window": 2}),
                ("window", {}),
                ("lambda", {}),
            )
        ],
        (
            lambda: METHODS["rerope"](layers=2, dim=8, window=0),
            ValueError,
            "window must be at least 1 with a slope of 0",
        ),
        (lambda: METHODS["nope"](layers=2, dim="x"), TypeError, "dim must be an even int of at least 2, got 'x'"),
        (
            lambda: METHODS["random-positions"](layers=2, dim=8, max_length=-5),
            ValueError,
            "max_length must be an int of at least 1, got -5",
        ),
        (
            lambda: METHODS["random-positions"](layers=2, dim=8, max_length=[]),
            TypeError,
            "max_length must be an int of at least 1, got [] of type list",
        ),
        (
            lambda: METHODS["equal-mean"](layers=2, dim=8, distribution="banana", mean=math.nan),
            ValueError,
            "distribution must be one of 'exponential', 'beta', got 'banana'",
        ),
        *not_positive("mean", lambda v: METHODS["equal-mean"](layers=2, dim=8, mean=v))[:1],
        (
            lambda: METHODS["equal-mean"](layers=2, dim=8, mean=math.nan),
            ValueError,
            "mean must be a finite number of at least 0, got nan",
        ),
        (
            lambda: METHODS["equal-mean"](layers=2, dim=8, distribution="beta", max_length=64, alpha=-1),
            ValueError,
            "alpha must be a positive finite number, got -1",
        ),
        (
            lambda: METHODS["equal-mean"](layers=2, dim=8, distribution="beta", max_length=64, alpha=1, mean=63),
            ValueError,
            "mean must be above 0 and below max_length - 1 = 63, got 63",
        ),
        (
            lambda: METHODS["pi"](layers=2, dim=8, factor=0),
            ValueError,
            "factor must be a positive finite number, got 0",
        ),
    ],
    "plan_from_hf": [
        (lambda: plan(config=["x"]), TypeError, "config must be a dictionary or have to_dict, got list"),
        (
            lambda: plan(model_type="nanochat"),
            ValueError,
            "model_type must be one that was found right … 'nanochat': it turns queries and keys the other way",
        ),
        (lambda: plan(model_type="lama"), ValueError, "model_type must be one … got 'lama'; did you mean 'llama'?"),
        (
            lambda: plan(model_type="llama", sliding_window=4),
            ValueError,
            "config must not contain 'sliding_window', which attention of model_type 'llama' does not heed, got 4",
        ),
        (
            lambda: plan(model_type="gemma3_text", sliding_window=4),
            ValueError,
            "config must contain 'layer_types', which the class of model_type 'gemma3_text' computes where … add it",
        ),
        (
            lambda: rl.plan_from_hf({"model_type": "olmo3", "layer_types": ["full_attention"] * 32, "rope_theta": 1e4}),
            ValueError,
            "rope_theta must be left out beside the rope_parameters of model_type 'olmo3', or agree with the 500000.0",
        ),
        (
            lambda: plan(model_type="gemma3_text", layer_types=["full_attention"] * 2),
            ValueError,
            "rope_parameters must be one for each layer type for model_type 'gemma3_text', got {'rope_type': 'default'",
        ),
        (
            lambda: rl.plan_from_hf(
                {"model_type": "olmo3", "layer_types": ["full_attention"] * 32, "rope_scaling": {"type": "yarn"}}
            ),
            ValueError,
            "rope_scaling must be rope_parameters with one dictionary for each layer type for … or flat with a rope_t",
        ),
        (
            lambda: plan(rope_scaling={"rope_type": "linear"}),
            ValueError,
            "rope_scaling must agree with rope_parameters where both are given, got {'rope_parameters': ",
        ),
        (
            lambda: plan(model_type="llama", partial_rotary_factor=0.5),
            ValueError,
            "partial_rotary_factor must be 1 for model_type 'llama', whose code turns whole heads, got 0.5",
        ),
        (
            lambda: plan(model_type="minimax_m2", rope_parameters={"rope_type": "ntk", "factor": 2, "rope_theta": 1e4}),
            ValueError,
            "rope_type must be one that was found right for model_type 'minimax_m2': default, … got 'ntk'",
        ),
        (
            lambda: plan(attn_logit_softcapping=50.0),
            ValueError,
            "config must not contain 'attn_logit_softcapping' (no k",
        ),
        (
            lambda: plan(rotary_pct=0.25),
            ValueError,
            "config must not contain 'rotary_pct' (an old spelling: … got 0.25",
        ),
        (lambda: plan(qk_rope_head_dim=64), ValueError, "config must not contain 'qk_rope_head_dim' … got 64"),
        (lambda: plan(num_hidden_layers=None), ValueError, "config must contain 'num_hidden_layers', got ['head_dim'"),
        *not_a_count("num_hidden_layers", lambda v: plan(num_hidden_layers=v), 1),
        (lambda: plan(head_dim=None), ValueError, "config must contain 'hidden_size', or 'head_dim', got ['head_dim'"),
        (
            lambda: plan(head_dim=None, hidden_size=64),
            ValueError,
            "config must contain 'num_attention_heads', or 'head_dim', got",
        ),
        *not_a_count("hidden_size", lambda v: plan(head_dim=None, hidden_size=v, num_attention_heads=2), 1),
        *not_a_count("num_attention_heads", lambda v: plan(head_dim=None, hidden_size=8, num_attention_heads=v), 1),
        *not_a_count("head_dim", lambda v: plan(head_dim=v), 2),
        (
            lambda: plan(layer_types=["linear_attention"] * 2),
            ValueError,
            "layer_types must be one of 'full_attention', ",
        ),
        (
            lambda: plan(layer_types=["full_attention"]),
            ValueError,
            "layer_types must have num_hidden_layers = 2 … got 1",
        ),
        (
            lambda: plan(layer_types=["sliding_attention"] * 2),
            ValueError,
            "config must contain 'sliding_window' for layers of type 'sliding_attention', got None",
        ),
        (
            lambda: plan(sliding_window=4, use_sliding_window=True),
            ValueError,
            "config must contain 'layer_types' where only some layers have the sliding window",
        ),
        *not_a_count("sliding_window", lambda v: plan(sliding_window=v), 1),
        (lambda: plan(no_rope_layers=[1]), ValueError, "no_rope_layers must have one number per layer, 2, got 1"),
        (
            lambda: plan(query_pre_attn_scalar=4, attention_multiplier=0.5),
            ValueError,
            "config must contain query_pre_attn_scalar or attention_multiplier, not both; got 4, 0.5",
        ),
        *not_positive("query_pre_attn_scalar", lambda v: plan(query_pre_attn_scalar=v))[:5],
        *not_positive("attention_multiplier", lambda v: plan(attention_multiplier=v))[:5],
        (lambda: plan(rope_parameters=[1]), TypeError, "rope_parameters must be a dictionary, got list"),
        (lambda: plan(rope_parameters=None), ValueError, "rope must contain 'rope_theta', or rope_theta must be given"),
        (
            lambda: plan(rope_theta=5e5),
            ValueError,
            "rope_theta must agree with the 10000.0 of rope_parameters, got 5000",
        ),
        (
            lambda: plan(rope_parameters={"rope_theta": 1e4, "factor": 2}),
            ValueError,
            "keys of rope_type 'default' must ",
        ),
        (
            lambda: plan(rope_parameters={"sliding_attention": {"rope_theta": 1e4}}),
            ValueError,
            "rope_parameters must contain a dictionary for 'full_attention', got ['sliding_attention']",
        ),
        (
            lambda: plan(rope_parameters={"full_attention": {"rope_theta": 1e4}, "rope_theta": 1e4}),
            ValueError,
            "keys of rope_parameters must be one of 'full_attention', 'sliding_attention', got 'rope_theta'",
        ),
        (lambda: plan(knobs={"slope": -1}), ValueError, "slope must be a finite number of at least 0, got -1"),
    ],
    "plan_to_hf": [
        (
            lambda: rl.plan_to_hf(ROPE, head_dim=8),
            TypeError,
            "plan must be a tuple of one Scheme per layer, got Scheme(",
        ),
        (lambda: rl.plan_to_hf((), head_dim=8), TypeError, "plan must be a tuple of one Scheme per layer, got ()"),
        (
            lambda: rl.plan_to_hf((ROPE, rl.scheme("pi", dim=4, factor=2)), head_dim=8),
            ValueError,
            "layers of plan with a window must be alike, and those without; got Scheme(",
        ),
        (
            lambda: rl.plan_to_hf((rl.scheme("rope", dim=4, causal=False),), head_dim=8),
            ValueError,
            "plan must be causal and have one base_scale to go into a config, got (Scheme(",
        ),
        (
            lambda: rl.plan_to_hf((rl.scheme("rerope", dim=4, window=4),), head_dim=8),
            ValueError,
            "only the frequencies of a scheme … got Scheme(",
        ),
        *not_a_count("head_dim", lambda v: rl.plan_to_hf((ROPE,), head_dim=v), 4),
    ],
    "attention": [
        (lambda: attend(q=None), TypeError, "q must be a tensor, got NoneType"),
        (
            lambda: attend(scheme=rl.scheme("dynamic-ntk", dim=8, factor=2, train_length=4), k_positions=P3),
            ValueError,
            "length must be given: the frequencies of 'dynamic-ntk' depend on it",
        ),
        (lambda: attend(k=X.long()), TypeError, "k must be a floating-point tensor, got torch.int64"),
        (
            lambda: attend(v=X[0]),
            ValueError,
            "v must have 4 dimensions (batch, heads, tokens, channels), got shape (2, 3, 8)",
        ),
        (
            lambda: attend(q=torch.ones(1, 7, 4, 8), k=torch.ones(1, 7, 2, 8), v=torch.ones(1, 7, 2, 8)),
            ValueError,
            "q_len must be at most k_len = 2 (queries are the last tokens), got 4; did you pass heads after tokens? "
            "They come before: x.transpose(1, 2)",
        ),
        (
            lambda: attend(q=torch.ones(1, 7, 4, 8), k=torch.ones(1, 4, 7, 8), v=torch.ones(1, 4, 7, 8)),
            ValueError,
            "kv_heads must divide heads = 7, got 4; did you pass heads after tokens?",
        ),
        (lambda: attend(k=X.double()), ValueError, "k must have the dtype and device of q … got torch.float64, cpu"),
        (lambda: attend(v=X.to(META)), ValueError, "v must have the dtype and device of q … got torch.float32, meta"),
        (lambda: attend(scheme="rope"), TypeError, "scheme must be a Scheme (one layer, one phase), got str"),
        (lambda: attend(scheme=(ROPE,)), TypeError, "scheme must be a Scheme (one layer, one phase), got tuple"),
        (lambda: attend(k=X[..., :4]), ValueError, "k must have shape (1, kv_heads, k_len, 8) … got (1, 2, 3, 4)"),
        (
            lambda: attend(k=X.expand(2, 2, 3, 8)),
            ValueError,
            "k must have shape (1, kv_heads, k_len, 8) … got (2, 2, 3, 8)",
        ),
        (lambda: attend(v=X[:, :1]), ValueError, "v must have shape (1, 2, 3, value_dim) to match k, got (1, 1, 3, 8)"),
        (
            lambda: attend(v=X[:, :, :2]),
            ValueError,
            "v must have shape (1, 2, 3, value_dim) to match k, got (1, 2, 2, 8)",
        ),
        (
            lambda: attend(q=torch.ones(1, 3, 3, 8)),
            ValueError,
            "kv_heads must divide heads = 3, got 2",
        ),
        (
            lambda: attend(k=X[:, :0], v=X[:, :0]),
            ValueError,
            "k must have at least one head and one token, got shape (1, 0, 3",
        ),
        (
            lambda: attend(X[:, :, :0], X[:, :, :0], X[:, :, :0]),
            ValueError,
            "k must have at least one head and one token, got shape (1, 2, 0, 8)",
        ),
        (lambda: attend(k=X[:, :, :2], v=X[:, :, :2]), ValueError, "q_len must be at most k_len = 2 … got 3"),
        (
            lambda: attend(scheme=rl.scheme("rope", dim=10)),
            ValueError,
            "the scheme turns 10 channels, but q has head_dim 8",
        ),
        (
            lambda: attend(backend="fused"),
            ValueError,
            "backend must be one of 'auto', 'flash', 'flex', 'reference', got 'fused'",
        ),
        (
            lambda: attend(backend="flash", bias=torch.zeros(3)),
            ValueError,
            "backend must be 'auto' or another one for this call, got 'flash': a bias is a tensor over all pairs",
        ),
        *not_positions("q_positions", lambda v: attend(q_positions=v)),
        *not_positions("k_positions", lambda v: attend(q_positions=P3, k_positions=v)),
        (
            lambda: attend(q_positions=torch.arange(4)),
            ValueError,
            "q_positions must have shape (3,) or (1, 3), got (4,)",
        ),
        (
            lambda: attend(q_positions=P3.expand(2, 3)),
            ValueError,
            "q_positions must have shape (3,) or (1, 3), got (2, 3)",
        ),
        (
            lambda: attend(q=X[:, :, 1:], q_positions=P3[1:]),
            ValueError,
            "q_positions and k_positions must be given together when q_len and k_len differ",
        ),
        (lambda: attend(q_positions=P3.to(META)), ValueError, "q_positions must be on cpu … got meta"),
        (lambda: attend(lengths=[3]), TypeError, "lengths must be an int64 tensor, got list"),
        (lambda: attend(lengths=torch.ones(1)), TypeError, "lengths must be an int64 tensor, got torch.float32"),
        (lambda: attend(lengths=P3), ValueError, "lengths must have shape (1,), got (3,)"),
        (lambda: attend(lengths=P3[:1].to(META)), ValueError, "lengths must be on cpu … got meta"),
        (lambda: attend(lengths=torch.tensor([99])), ValueError, "lengths must be from 0 to k_len = … got 99 to 99"),
        (lambda: attend(lengths=torch.tensor([-1])), ValueError, "lengths must be from 0 to k_len = … got -1 to -1"),
        (lambda: attend(document_ids=P3.int()), TypeError, "document_ids must be an int64 tensor, got torch.int32"),
        (lambda: attend(document_ids=P3[:2]), ValueError, "document_ids must have shape (3,) or (1, 3), got (2,)"),
        (lambda: attend(document_ids=P3.to(META)), ValueError, "document_ids must be on cpu … got meta"),
        (lambda: attend(bias=0.5), TypeError, "bias must be a tensor, got float"),
        (
            lambda: attend(bias=torch.ones(3, 3, dtype=torch.bool)),
            TypeError,
            "bias must be a floating-point … got torch.bool",
        ),
        (
            lambda: attend(bias=torch.zeros(2, 3)),
            ValueError,
            "bias must broadcast to (batch, heads, q_len, k_len) = (1, 2, 3, 3), got (2, 3)",
        ),
        (lambda: attend(bias=torch.zeros(1, 1, 1, 3, 3)), ValueError, "bias must broadcast to … got (1, 1, 1, 3, 3)"),
        (lambda: attend(bias=torch.zeros(3, 3, device=META)), ValueError, "bias must be on cpu … got meta"),
        *not_a_count("length", lambda v: attend(length=v), 1),
        *not_a_count("length", lambda v: attend(length=v, frequencies=OMEGA), 1),
        *not_frequencies(lambda v: attend(frequencies=v)),
        (
            lambda: attend(frequencies=rl.rope_frequencies(10)),
            ValueError,
            "frequencies must have at most head_dim/2 = 4 … got 5",
        ),
        (
            lambda: attend(frequencies=OMEGA.expand(3, 2)),
            ValueError,
            "frequencies must have one row per head (2), got 3 rows",
        ),
        (lambda: attend(return_lse=1), TypeError, "return_lse must be True or False, got 1"),
        (
            lambda: attend(backend="triton"),
            ValueError,
            "backend must be one of 'auto', 'flash', 'flex', 'reference', got 'triton'",
        ),
        (
            lambda: attend(X.clone().requires_grad_(), backend="flex"),
            ValueError,
            "backend must be 'auto' or another one for this call, got 'flex': PyTorch's FlexAttention has no backward",
        ),
    ],
    "KVCache": [
        (lambda: rl.KVCache("rope"), TypeError, "plan must be a Scheme or a plan … got 'rope'"),
        (lambda: rl.KVCache([ROPE]), TypeError, "plan must be a Scheme or a plan (a tuple of one Scheme per layer)"),
        (lambda: rl.KVCache(()), ValueError, "plan must have at least one layer, got ()"),
        *not_a_count("length", lambda v: rl.KVCache(ROPE, length=v), 1),
        *not_a_count("max_length", lambda v: rl.KVCache(ROPE, max_length=v), 1),
        *not_a_count("rollback", lambda v: rl.KVCache(ROPE, rollback=v), 0),
        *[
            (lambda wrong=wrong: rl.KVCache(ROPE, padding=wrong), TypeError, f"{PADDING}, got {got}")
            for wrong, got in (
                ([1], "a list (torch.tensor makes one of it)"),
                (P3.double(), "torch.float64 of shape (3,)"),
                (P3 > 0, "torch.bool of shape (3,)"),
            )
        ],
        *[
            (lambda wrong=wrong: rl.KVCache(ROPE, padding=wrong), ValueError, f"{PADDING}, got {got}")
            for wrong, got in (
                (P3[:0], "torch.int64 of shape (0,)"),
                (P3.view(1, 1, 3), "torch.int64 of shape (1, 1, 3)"),
                (P3[:0].view(3, 0), "torch.int64 of shape (3, 0)"),
            )
        ],
        (lambda: rl.KVCache(ROPE, padding=P3.to(META)), ValueError, "padding must hold values"),
        (lambda: rl.KVCache(ROPE, padding=P3 - 1), ValueError, "padding must be at least 0, got -1"),
        (
            lambda: rl.KVCache(ROPE, padding=P3.view(1, 3)),
            ValueError,
            "padding must hold ones and zeros as an attention mask (counts have shape (batch,)), got 0 to 2",
        ),
        (
            lambda: rl.KVCache(ROPE, padding=torch.tensor([[0, 1, 1], [1, 1, 0]])),
            ValueError,
            "padding must have its zeros at the start of each row (pad on the left), got a zero after a one in row 1",
        ),
        *not_a_count("length", lambda v: rl.KVCache(ROPE).truncate(v), 0),
        (lambda: rl.KVCache(ROPE).truncate(4), ValueError, "length must be at most the 0 tokens of the cache, got 4"),
        (
            lambda: cached(Scheme(None, visible_window=2)).truncate(1),
            ValueError,
            "length must be at least 2: layer 0 sees a window and has dropped what came before (rollback=0 … got 1",
        ),
        (lambda: cached().reorder([0]), TypeError, "rows must be an int64 tensor, got list"),
        (lambda: cached().reorder(P3.view(1, 3)), ValueError, "rows must have shape (new_batch,), got (1, 3)"),
        (lambda: cached().reorder(P3[:0]), ValueError, "rows must have shape (new_batch,), got (0,)"),
        (lambda: cached().reorder(P3.to(META)), ValueError, "rows must be on cpu … got meta"),
        (lambda: cached().extend(X.int(), X), TypeError, "k must be a floating-point tensor, got torch.int32"),
        (
            lambda: cached().extend(X, X[0]),
            ValueError,
            "v must have 4 dimensions (batch, heads, tokens, channels), got shape (2, 3, 8)",
        ),
        (
            lambda: cached().extend(X, X[:, :1]),
            ValueError,
            "v must have shape (1, 2, 3, 'value_dim') to match k, got (1, 1, 3, 8)",
        ),
        (lambda: attend(cache={}), TypeError, "cache must be a KVCache, got dict"),
        *[
            (lambda name=name: attend(cache=rl.KVCache(ROPE), **{name: P3}), ValueError, f"{name} must be None with a")
            for name in ("q_positions", "k_positions", "lengths", "document_ids", "bias")
        ],
        (lambda: attend(cache=rl.KVCache(ROPE), length=9), ValueError, "length must be None with a cache… got 9"),
        *not_a_count("layer", lambda v: attend(cache=rl.KVCache(ROPE), layer=v), 0),
        (
            lambda: attend(cache=rl.KVCache((ROPE, ROPE)), layer=2),
            ValueError,
            "layer must be below 2, the layers of the cache, got 2",
        ),
        (
            lambda: attend(cache=rl.KVCache((ROPE, Scheme())), layer=1),
            ValueError,
            "scheme must be that of layer 1 of the cache, Scheme(None), got Scheme(FrequencySpec('rope', dim=4))",
        ),
        (
            lambda: attend(q=X[:, :, 1:], cache=rl.KVCache(ROPE)),
            ValueError,
            "q must hold the new tokens like k with a cache, 3, got 2",
        ),
        (
            lambda: attend(k=X.clone().requires_grad_(), cache=rl.KVCache(ROPE)),
            ValueError,
            "q, k, v and frequencies must not require gradients with a cache… torch.no_grad()",
        ),
        (
            lambda: attend(cache=cached(max_length=4)),
            ValueError,
            "k must fit into the cache, which takes 4 tokens (max_length) and holds 3, got 3 more",
        ),
        (
            lambda: attend(cache=cached(length=5)),
            ValueError,
            "k must fit into the cache, which takes 5 tokens (length) and holds 3, got 3 more",
        ),
        (
            lambda: attend(*[X.double()] * 3, cache=cached()),
            ValueError,
            "k must have the dtype and device of the cache (torch.float32, cpu), got torch.float64, cpu",
        ),
        (
            lambda: attend(*[torch.ones(1, 5, 2, 8)] * 3, cache=cached()),
            ValueError,
            "k must have shape (1, 2, tokens, 8) like what is cached, got (1, 5, 2, 8); did you pass heads after",
        ),
        (
            lambda: attend(*[X.expand(2, 2, 3, 8)] * 3, cache=cached()),
            ValueError,
            "k must have shape (1, 2, tokens, 8) like what is cached, got (2, 2, 3, 8)",
        ),
        (
            lambda: attend(v=X[..., :5], cache=cached()),
            ValueError,
            "v must have shape (1, 2, tokens, 8) like what is cached, got (1, 2, 3, 5)",
        ),
        (
            lambda: attend(cache=rl.KVCache(ROPE, padding=P3)),
            ValueError,
            "padding of the cache must have one entry per row, 1, got 3",
        ),
        (
            lambda: attend(cache=cached(), frequencies=OMEGA),
            ValueError,
            "frequencies must be the tensor of the first call, whose keys it turned; got another",
        ),
        (
            lambda: attend(k=X[:, :1], v=X[:, :1], cache=rl.KVCache(ROPE), frequencies=OMEGA.expand(2, 2)),
            ValueError,
            "frequencies must be (dim/2,) with a cache and grouped keys (1 kv_heads)… got (2, 2)",
        ),
        (
            lambda: attend(scheme=DYNAMIC, cache=rl.KVCache(DYNAMIC), frequencies=OMEGA),
            ValueError,
            "frequencies must be None with a cache for a scheme whose own depend on the length: … got a tensor",
        ),
    ],
    "explain_backend": [
        (lambda: rl.explain_backend(X, X, X, ROPE, backend=""), ValueError, "backend must be one of 'auto', … got ''"),
        (lambda: rl.explain_backend(X, X, X, "rope"), TypeError, "scheme must be a Scheme … got str"),
        (
            lambda: rl.explain_backend(X, X, X, ROPE, return_lse=True),
            ValueError,
            "options must be one of 'q_positions', 'k_positions', … got 'return_lse'",
        ),
        (lambda: rl.explain_backend(X, X, X, ROPE, cache={}), TypeError, "cache must be a KVCache, got dict"),
        (
            lambda: rl.explain_backend(X, X, X, ROPE, cache=cached(), length=3),
            ValueError,
            "length must be None with a cache",
        ),
        *not_a_count("layer", lambda v: rl.explain_backend(X, X, X, ROPE, cache=cached(), layer=v), 0),
    ],
    "nn": [
        (lambda: rl.nn.LearnedFrequencies(OMEGA), TypeError, "spec must be a FrequencySpec, got Tensor"),
        (lambda: rl.nn.RotaryEmbedding(OMEGA), TypeError, "frequencies must be a FrequencySpec, got Tensor"),
        (
            lambda: rl.nn.RotaryEmbedding(FrequencySpec("rope", dim=8), layout="x"),
            ValueError,
            "layout must be one of 'interleaved', 'half', got 'x'",
        ),
        *not_positive("scale", lambda v: rl.nn.RotaryEmbedding(FrequencySpec("rope", dim=8), scale=v)),
        (lambda: rl.nn.Attention("rope"), TypeError, "scheme must be a Scheme, got str"),
        (lambda: rl.nn.RotaryEmbedding(FrequencySpec("rope", dim=8))("x"), TypeError, "x must be a tensor, got str"),
        (
            lambda: rl.nn.RotaryEmbedding(FrequencySpec("rope", dim=8))(torch.ones(8)),
            ValueError,
            "x must have shape (..., seq, head_dim), got (8,)",
        ),
        *not_a_flag("learned", lambda v: rl.nn.RotaryEmbedding(FrequencySpec("rope", dim=8), learned=v)),
        *not_a_flag("learned_frequencies", lambda v: rl.nn.Attention(ROPE, learned_frequencies=v)),
        (
            lambda: rl.nn.RotaryEmbedding(FrequencySpec("dynamic-ntk", dim=8, factor=2, train_length=4), learned=True),
            ValueError,
            "spec must not depend on the length of the text to be learned, got FrequencySpec('dynamic-ntk'",
        ),
        (
            lambda: rl.nn.RotaryEmbedding(FrequencySpec("dynamic-ntk", dim=8, factor=2, train_length=4))(
                torch.ones(1, 8), torch.tensor([5000])
            ),
            ValueError,
            "length must be given: the frequencies of 'dynamic-ntk' depend on it",
        ),
        (
            lambda: rl.nn.Attention(Scheme(FrequencySpec("rope", dim=8)), learned_frequencies=True)(
                *[torch.ones(1, 1, 2, 8)] * 3, frequencies=torch.ones(4, dtype=torch.float64)
            ),
            ValueError,
            "frequencies must be None for a module that has learned its own, got a tensor",
        ),
        (
            lambda: rl.nn.Attention(Scheme(), learned_frequencies=True),
            ValueError,
            "learned_frequencies must be False for a scheme without frequencies, got True",
        ),
        (lambda: rl.nn.SinusoidalEmbedding(7), ValueError, "dim must be an even int of at least 2, got 7"),
        *not_positive("base", lambda v: rl.nn.SinusoidalEmbedding(8, base=v)),
        *not_positive("scale", lambda v: rl.nn.SinusoidalEmbedding(8, scale=v)),
        *not_a_flag("learned", lambda v: rl.nn.SinusoidalEmbedding(8, learned=v)),
        (
            lambda: rl.nn.SinusoidalEmbedding(8)(torch.ones(2, 5, 6)),
            ValueError,
            "x must have shape (..., seq, dim) with dim = 8, got (2, 5, 6)",
        ),
        (
            lambda: rl.nn.SinusoidalEmbedding(8)(torch.ones(2, 5, 8), torch.arange(4)),
            ValueError,
            "positions must have shape (5,) or (2, 5), as x has tokens, got (4,)",
        ),
        *not_a_count("rows", lambda v: rl.nn.LearnedEmbedding(v, 8), 1),
        *not_a_count("dim", lambda v: rl.nn.LearnedEmbedding(9, v), 1),
        (lambda: rl.nn.LearnedEmbedding(9, 8, std=-1), ValueError, "std must be a finite number of at least 0, got -1"),
        (
            lambda: rl.nn.LearnedEmbedding(9, 8)(torch.ones(10, 8)),
            ValueError,
            "positions must be from 0 to 8: the learned table has 9 rows and ends there, got 9",
        ),
        (
            lambda: rl.nn.LearnedEmbedding(9, 8)(torch.ones(1, 8), torch.tensor([-1])),
            ValueError,
            "positions must be from 0 to 8: the learned table has 9 rows and ends there, got -1",
        ),
        (
            lambda: rl.nn.LearnedEmbedding(9, 8)(torch.ones(1, 8), torch.tensor([math.nan]).double()),
            ValueError,
            "positions must be from 0 to 8: the learned table has 9 rows and ends there, got nan",
        ),
        *not_a_count("rows", lambda v: rl.nn.LearnedEmbedding(9, 8).resize(v), 1),
        (
            lambda: rl.nn.LearnedEmbedding(9, 8).resize(9, "stretch"),
            ValueError,
            "how must be one of 'interpolate', 'keep', got 'stretch'",
        ),
    ],
}
TABLE_OF_CASES = [(name, *case) for name, cases in CASES.items() for case in cases]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [case[1:] for case in TABLE_OF_CASES],
    ids=[f"{name}-{n}" for n, (name, *_) in enumerate(TABLE_OF_CASES)],
)
def test_message(call: Callable[[], Any], kind: type[Exception], message: str) -> None:
    pattern = "^" + re.escape(message).replace("…", ".*")
    with pytest.raises(kind, match=re.compile(pattern, re.DOTALL)) as caught:
        call()
    assert type(caught.value) is kind


def test_every_public_name_is_in_the_table() -> None:
    no_arguments_of_its_own = {"SCHEMES", "Plan", "causal_mask"}  # constants, a type, and a mask of given indices
    assert {name.split(".")[0] for name in CASES} == PUBLIC.keys() - no_arguments_of_its_own


def test_unknown_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'rope_lessons' has no attribute 'yarnn'"):
        _ = rl.yarnn
