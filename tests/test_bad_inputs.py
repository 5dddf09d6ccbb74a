"""Odd values for every argument of every public name: finite numbers come back, or an error that names the argument.

Each case is a call that works, with one argument replaced by one odd value. What comes back must be finite; what is
raised must be a TypeError or a ValueError with the argument's name in its message. ``EXCEPTIONS`` lists what does
neither, and why.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import rope_lessons as rl
from rope_lessons import METHODS, FrequencySpec, LogN, Method, Scheme
from rope_lessons.kinds import KINDS
from rope_lessons.schemes import SCHEMES
from tests.public import PUBLIC

P3 = torch.arange(3)
OMEGA = rl.rope_frequencies(8)
AWAY, PLACES, SLANTED = rl.biases.distances(3), rl.axes.axial_positions((1, 3)), rl.axes.axial_frequencies(8, 2)
X = torch.randn(1, 2, 3, 8, generator=torch.Generator().manual_seed(0))
COS, SIN = rl.rotary_table(P3, OMEGA)
ROPE = rl.scheme("rope", dim=8)
CONFIG = {
    "num_hidden_layers": 2, "head_dim": 8, "hidden_size": 16, "num_attention_heads": 2, "sliding_window": None,
    "layer_types": ["full_attention", "full_attention"], "no_rope_layers": [1, 1], "query_pre_attn_scalar": 8,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "max_position_embeddings": 64, "model_type": None,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 64, "beta_fast": 32.0,
    "beta_slow": 1.0, "truncate": True, "mscale": 1.0, "mscale_all_dim": 1.0, "partial_rotary_factor": 1.0,
}  # fmt: skip
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "factor": 2.0,
    "original_max_position_embeddings": 64, "attention_factor": 1.0,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 64,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
}  # fmt: skip

VALUES: dict[str, Any] = {
    "None": None, "True": True, "False": False,
    "-1": -1, "0": 0, "1": 1, "2": 2, "7": 7, "2**31": 2**31, "2**62": 2**62, "2**63": 2**63, "-2**63": -(2**63),
    "2**64": 2**64, "2**70": 2**70, "10**400": 10**400, "10**5000": 10**5000,
    "nan": math.nan, "inf": math.inf, "-inf": -math.inf, "1e308": 1e308, "5e-324": 5e-324, "-0.0": -0.0, "0.5": 0.5,
    "-2.5": -2.5, "1j": 1j,
    "''": "", "'banana'": "banana", "'cpu'": "cpu", "'cuda:99'": "cuda:99", "b'x'": b"x",
    "[]": [], "[1]": [1], "[nan]": [math.nan], "[2**70] * 4": [2**70] * 4, "()": (), "('a',)": ("a",), "{}": {},
    "{'a': 1}": {"a": 1}, "{1}": {1}, "object()": object(), "int": int, "lambda": lambda *_: None,
    "float16": torch.float16, "device meta": torch.device("meta"), "Generator": torch.Generator(), "range": range(3),
    "Scheme": ROPE, "spec": FrequencySpec("rope", dim=4), "LogN": LogN(64),
    "int64 0-d": torch.tensor(1), "int64 3": P3, "int64 (2, 5)": torch.ones(2, 5).long(), "int64 negative": P3 - 5,
    "int64 max": torch.tensor([2**63 - 1] * 3),
    "int64 empty": P3[:0], "int32 3": P3.int(), "bool 3": P3 > 1, "float64 3": P3.double(),
    "float64 nan": OMEGA * math.nan,
    "float64 4": OMEGA, "float64 -4": -OMEGA, "float64 (3, 4)": OMEGA.expand(3, 4),
    "float64 (1, 2, 3)": torch.ones(1, 2, 3).double(),
    "float32 0-d": torch.tensor(0.5), "float32 (3, 4)": torch.ones(3, 4), "float32 x": X, "float64 x": X.double(),
    "bfloat16 x": X.bfloat16(), "complex x": X.to(torch.complex64), "5-d": X[None], "float32 empty": X[:, :, :0],
    "int64 x": X.long(), "meta int64": P3.to("meta"), "meta float64": OMEGA.to("meta"), "meta x": X.to("meta"),
    "gradient": X.clone().requires_grad_(),
}  # fmt: skip


# Every public function and class, by name, with arguments that work. Each of them is replaced in turn.
Entry = tuple[Callable[..., Any], dict[str, Any]]
LENGTHS = {"length": 3, "batch": 2, "generator": None, "device": None}
NUMBERS = {"dim": 8, "base": 10.0, "device": None}
QKV = {"q": X, "k": X, "v": X, "scheme": ROPE}
CALL = {
    **QKV, "q_positions": P3, "k_positions": P3, "lengths": torch.tensor([3]), "document_ids": torch.zeros(3).long(),
    "bias": torch.zeros(3, 3), "length": 3, "frequencies": OMEGA, "backend": "reference",
}  # fmt: skip


def turned(x: Any, positions: Any, length: Any) -> Any:
    return rl.nn.RotaryEmbedding(FrequencySpec("dynamic-ntk", dim=8, factor=2, train_length=4))(
        x, positions, length=length
    )


def attended(q: Any, k: Any, v: Any, frequencies: Any) -> Any:
    return rl.nn.Attention(ROPE)(q, k, v, frequencies=frequencies)


def resized(rows: Any, how: Any) -> Any:
    embed = rl.nn.LearnedEmbedding(3, 2)
    embed.resize(rows, how)
    return embed.weight


def of_mask(mask_mod: Any, **arguments: Any) -> Any:
    return rl.local.dense_mask(mask_mod(**arguments), P3, P3)


ENTRIES: dict[str, Entry] = {
    "rope_frequencies": (rl.rope_frequencies, NUMBERS),
    "proportional_frequencies": (rl.circles.proportional_frequencies, {**NUMBERS, "share": 0.5, "factor": 2}),
    "pi_frequencies": (rl.pi_frequencies, {**NUMBERS, "factor": 2}),
    "ntk_frequencies": (rl.ntk_frequencies, {**NUMBERS, "factor": 2, "variant": "fixed"}),
    "ntk_frequencies aware": (rl.ntk_frequencies, {**NUMBERS, "factor": 2, "variant": "aware"}),
    "mixed_radix_frequencies": (rl.mixed_radix_frequencies, {**NUMBERS, "factor": 2, "exponent": 0.5}),
    "dynamic_ntk_frequencies": (
        rl.dynamic_ntk_frequencies,
        {**NUMBERS, "length": 9, "train_length": 4, "factor": 2},
    ),
    "ntk_by_parts_frequencies": (
        rl.ntk_by_parts_frequencies,
        {**NUMBERS, "factor": 2, "train_length": 64, "alpha": 1, "beta": 32},
    ),
    "yarn_frequencies": (
        rl.yarn_frequencies,
        {**NUMBERS, "factor": 2, "train_length": 64, "beta_fast": 32, "beta_slow": 1, "truncate": True},
    ),
    "yarn_attention_factor": (rl.yarn_attention_factor, {"factor": 2, "mscale": 1}),
    "llama3_frequencies": (
        rl.llama3_frequencies,
        {**NUMBERS, "factor": 2, "train_length": 64, "low_freq_factor": 1, "high_freq_factor": 4},
    ),
    "longrope_frequencies": (
        rl.longrope_frequencies,
        {**NUMBERS, "short_factor": [1] * 4, "long_factor": [2] * 4, "length": 9, "train_length": 4},
    ),
    "longrope_attention_factor": (rl.longrope_attention_factor, {"factor": 2, "train_length": 64}),
    "turns": (rl.circles.turns, {"frequencies": OMEGA, "length": 64}),
    "sinusoidal_encoding": (
        rl.sinusoidal_encoding,
        {"positions": P3, "dim": 8, "base": 10.0, "frequencies": None, "dtype": torch.float32},
    ),
    "sinusoidal_encoding, given": (
        rl.sinusoidal_encoding,
        {"positions": P3, "dim": 8, "base": 10.0, "frequencies": OMEGA, "dtype": torch.float32},
    ),
    "sinusoidal_kernel": (rl.sinusoidal.sinusoidal_kernel, {"distance": P3, "frequencies": OMEGA}),
    "rotary_table": (
        rl.rotary_table,
        {"positions": P3, "frequencies": OMEGA, "scale": 1.0, "dtype": torch.float32},
    ),
    "rotate": (rl.rotary.rotate, {"x": X, "cos": COS, "sin": SIN, "layout": "half"}),
    "apply_rotary": (
        rl.apply_rotary,
        {"x": X, "positions": P3, "frequencies": OMEGA, "layout": "half", "scale": 1.0},
    ),
    "interleaved_to_half": (rl.interleaved_to_half, {"weight": torch.ones(16, 3), "heads": 2, "rotary_dim": 4}),
    "half_to_interleaved": (rl.half_to_interleaved, {"weight": torch.ones(16, 3), "heads": 2, "rotary_dim": 4}),
    "digits": (rl.radix.digits, {"n": 5, "base": 10, "length": 3}),
    "from_digits": (rl.radix.from_digits, {"digits": P3, "base": 10}),
    "from_digits mixed": (rl.radix.from_digits, {"digits": P3, "base": (5, 5, 5)}),
    "mixed_digits": (rl.mixed_radix.mixed_digits, {"n": 5, "bases": (60, 60)}),
    "decode_position": (rl.radix.decode_position, {"encoding": rl.sinusoidal_encoding(P3, 8), "frequencies": OMEGA}),
    "leaky_distance": (rl.rerope.leaky_distance, {"distance": P3, "window": 2, "slope": 0.5}),
    "smooth_leaky_distance": (
        rl.rerope.smooth_leaky_distance,
        {"distance": P3, "window": 2, "slope": 0.5, "sigma": 1},
    ),
    "trained_distances": (rl.invleaky.trained_distances, {"train_length": 9, "window": 2, "slope": 3}),
    "covered_length": (rl.invleaky.covered_length, {"train_length": 9, "window": 2, "slope": 3}),
    "slope_for": (rl.invleaky.slope_for, {"train_length": 9, "window": 2, "length": 64}),
    "invleaky_rule": (rl.invleaky.invleaky_rule, {"train_length": 64, "factor": 2}),
    "random_positions": (rl.random_positions.random_positions, {**LENGTHS, "max_length": 9}),
    "grid_positions": (rl.random_positions.grid_positions, {**LENGTHS, "max_length": 9}),
    "skip_positions": (rl.random_positions.skip_positions, {**LENGTHS, "max_length": 9}),
    "equal_mean_positions": (
        rl.random_positions.equal_mean_positions,
        {**LENGTHS, "distribution": "exponential", "mean": 2, "max_length": None, "alpha": None},
    ),
    "equal_mean_positions beta": (
        rl.random_positions.equal_mean_positions,
        {**LENGTHS, "distribution": "beta", "mean": 2, "max_length": 9, "alpha": 0.5},
    ),
    "log_n_scale": (rl.log_n_scale, {"counts": P3, "train_length": 64, "clip": True, "floor": 4}),
    "LogN": (LogN, {"train_length": 64, "clip": True, "floor": 4}),
    "attention_entropy": (rl.entropy.attention_entropy, {"weights": torch.ones(2, 3) / 3}),
    "alibi_slopes": (rl.alibi_slopes, {"heads": 2, "device": None}),
    "alibi_channels": (rl.local.alibi_channels, {"q": X, "k": X, "k_positions": P3, "digits": 2}),
    "window_mask": (lambda **found: of_mask(rl.local.window_mask, **found), {"window": 2}),
    "lambda_mask": (lambda **found: of_mask(rl.local.lambda_mask, **found), {"window": 2, "sinks": 1}),
    "dense_mask": (rl.local.dense_mask, {"mask_mod": rl.local.causal_mask, "query_index": P3, "key_index": P3}),
    "receptive_field": (rl.local.receptive_field, {"window": 2, "layers": 2, "causal": True}),
    "axial_positions": (rl.axes.axial_positions, {"sizes": (2, 3), "device": None}),
    "multimodal_positions": (rl.axes.multimodal_positions, {"parts": [2, (1, 2, 2)], "device": None}),
    "axial_frequencies": (rl.axes.axial_frequencies, {**NUMBERS, "axes": 2}),
    "sectioned_frequencies": (
        rl.axes.sectioned_frequencies,
        {"frequencies": OMEGA, "sections": (2, 2), "interleaved": True},
    ),
    "axial_table": (
        rl.axes.axial_table,
        {"positions": PLACES, "frequencies": SLANTED, "scale": 1.0, "dtype": torch.float32},
    ),
    "apply_axial": (
        rl.axes.apply_axial,
        {"x": X, "positions": PLACES, "frequencies": SLANTED, "layout": "half", "scale": 1.0},
    ),
    "distances": (rl.biases.distances, {"q_len": 2, "k_len": 3, "device": None}),
    "t5_buckets": (rl.biases.t5_buckets, {"distance": AWAY, "buckets": 8, "farthest": 16, "causal": True}),
    "t5_bias": (
        rl.biases.t5_bias,
        {"distance": AWAY, "table": torch.ones(8, 2), "farthest": 16, "causal": True},
    ),
    "shaw_bias": (rl.biases.shaw_bias, {"q": X, "table": torch.ones(3, 8), "distance": AWAY}),
    "kerple_log_bias": (
        rl.biases.kerple_log_bias,
        {"distance": AWAY, "amount": torch.ones(2), "rate": torch.ones(2)},
    ),
    "kerple_power_bias": (
        rl.biases.kerple_power_bias,
        {"distance": AWAY, "amount": torch.ones(2), "power": torch.ones(2)},
    ),
    "sandwich_bias": (rl.biases.sandwich_bias, {"distance": AWAY, "heads": 2, "dim": 8, "base": 10.0}),
    "fire_bias": (
        rl.biases.fire_bias,
        {"distance": AWAY, "mlp": torch.nn.Identity(), "rate": 0.1, "threshold": 8.0},
    ),
    "apply_xpos": (
        rl.biases.apply_xpos,
        {
            "q": X,
            "k": X,
            "positions": P3,
            "frequencies": OMEGA,
            "layout": "half",
            "gamma": 0.4,
            "scale_base": 512.0,
        },
    ),
    "Scheme": (
        Scheme,
        {
            "frequencies": FrequencySpec("rope", dim=8),
            "layout": "half",
            "window": 2,
            "slope": 0.5,
            "scale": LogN(64),
            "rotary_scale": 1.0,
            "base_scale": 1.0,
            "causal": True,
            "visible_window": 2,
            "sinks": 1,
            "alibi": False,
        },
    ),
    "Method": (
        Method,
        {
            "name": "m",
            "train": (ROPE,),
            "test": (ROPE,),
            "train_positions": rl.random_positions.random_positions,
            "test_positions": rl.random_positions.grid_positions,
            "schedule": METHODS["invleaky-moving"](layers=1, dim=8, windows=(2,), slopes=(4,)).schedule,
            "attend": rl.attention,
        },
    ),
    "scheme_from_hf": (
        rl.scheme_from_hf,
        {"rope": {"rope_type": "default"}, "head_dim": 8, "rope_theta": 1e4, "max_position_embeddings": 64},
    ),
    "scheme_to_hf": (rl.scheme_to_hf, {"scheme": ROPE, "head_dim": 8}),
    "plan_from_hf": (rl.plan_from_hf, {"config": CONFIG}),
    "plan_from_hf, knobs": (lambda **knobs: rl.plan_from_hf(CONFIG, **knobs), {"slope": 0.5, "window": 2}),
    "plan_from_hf, keys": (lambda **keys: rl.plan_from_hf(keys), CONFIG),
    "plan_to_hf": (rl.plan_to_hf, {"plan": (ROPE,), "head_dim": 8}),
    "nn.LearnedFrequencies": (rl.nn.LearnedFrequencies, {"spec": FrequencySpec("rope", dim=8)}),
    "nn.RotaryEmbedding": (
        rl.nn.RotaryEmbedding,
        {"frequencies": FrequencySpec("rope", dim=8), "layout": "half", "scale": 1.0, "learned": False},
    ),
    "nn.RotaryEmbedding()": (turned, {"x": X, "positions": P3, "length": 9}),
    "nn.RotaryEmbedding(), counted": (lambda x: turned(x, None, None), {"x": X}),
    "nn.Attention": (rl.nn.Attention, {"scheme": ROPE, "learned_frequencies": False}),
    "nn.SinusoidalEmbedding": (
        rl.nn.SinusoidalEmbedding,
        {"dim": 8, "base": 10.0, "scale": 1.0, "learned": False},
    ),
    "nn.SinusoidalEmbedding()": (rl.nn.SinusoidalEmbedding(8), {"x": X, "positions": P3}),
    "nn.LearnedEmbedding": (rl.nn.LearnedEmbedding, {"rows": 9, "dim": 8, "std": 0.1}),
    "nn.LearnedEmbedding()": (rl.nn.LearnedEmbedding(9, 8), {"x": X, "positions": P3}),
    "nn.LearnedEmbedding.resize": (resized, {"rows": 9, "how": "keep"}),
    "nn.Attention()": (attended, {"q": X, "k": X, "v": X, "frequencies": OMEGA}),
    **{
        f"from_hf {rope['rope_type']}": (
            lambda **rope: rl.scheme_from_hf(rope, head_dim=8, max_position_embeddings=128),
            rope,
        )
        for rope in (YARN, LONGROPE, LLAMA3)
    },
}

OPTIONS: dict[str, dict[str, Any]] = {  # what each kind of frequencies takes
    kind: {
        **{name: row.defaults[name] for name in row.defaults if name not in ("dim", "base", *row.required)},
        **row.extended(8, 2, 64),
    }
    for kind, row in KINDS.items()
}
ROWS: dict[str, dict[str, Any]] = {  # what the names of the table take beside dim and base
    **OPTIONS,
    **{
        kind: {**dict.fromkeys(row.factor_needs, 2), **OPTIONS[kind], "rotary_scale": None}
        for kind, row in KINDS.items()
        if row.attention_factor
    },
    "nope": {},
    "alibi": {},
    "window": {"visible_window": 2},
    "lambda": {"visible_window": 2, "sinks": 1},
    "rerope": {"window": 2},
    "leaky-rerope": {"window": 2, "slope": 0.5},
    "invleaky": {"window": 2, "slope": 4},
    "invleaky-moving": {"windows": (2, 3), "slopes": (4,)},
    "self-extend": {"window": 2, "group": 2},
    "streaming": {"visible_window": 2, "sinks": 1},
    "random-positions": {"max_length": 64, "test": "grid"},
    "equal-mean": {"distribution": "exponential", "mean": 2, "max_length": None, "alpha": None},
    "skip-positions": {"max_length": 64},
    "hwfa": {"visible_window": 2, "train_length": 64},
    "hfwa": {"visible_window": 2, "train_length": 64},
    "hwfa2": {"visible_window": 2, "window": 2, "full_layers": 1, "train_length": 64},
}
KNOBS: dict[str, Any] = {"layout": "half", "scale": None, "rotary_scale": 1.0, "base_scale": None, "causal": True}
TURNING = {"dim": 8, "base": 10.0}
ENTRIES |= {
    f"FrequencySpec {kind}": (lambda kind=kind, **options: FrequencySpec(kind, **options), {**TURNING, **options})
    for kind, options in OPTIONS.items()
}
ENTRIES |= {
    f"scheme {name}": (
        lambda name=name, **options: rl.scheme(name, **options),
        {**(KNOBS if name == "rope" else {}), **({} if name in ("nope", "alibi") else TURNING), **ROWS[name]},
    )
    for name in SCHEMES
}
ENTRIES |= {
    f"METHODS {name}": (
        METHODS[name],
        {"layers": 2, **TURNING, **ROWS[name]},
    )
    for name in METHODS
}
ENTRIES |= {
    "METHODS equal-mean beta": (
        METHODS["equal-mean"],
        {"layers": 2, "dim": 8, "distribution": "beta", "mean": 2, "max_length": 9, "alpha": 0.5},
    ),
    "kind of FrequencySpec": (lambda kind: FrequencySpec(kind, dim=8), {"kind": "rope"}),
    "name of scheme": (lambda name: rl.scheme(name, dim=8), {"name": "rope"}),
}
ENTRIES |= {
    "attention": (rl.attention, CALL),
    "explain_backend": (rl.explain_backend, CALL),
    "KVCache": (partial(rl.KVCache, ROPE), {"length": 9, "max_length": 9, "rollback": 1}),
}

# Results as large as they are asked to be: 2**31 of them would be made, and take minutes.
SAMPLERS = ("random_positions", "grid_positions", "skip_positions", "equal_mean_positions", "equal_mean_positions beta")
LARGE = {("trained_distances", "train_length"), ("random_positions", "max_length")}
LARGE |= {("distances", "k_len")}
LARGE |= {(name, size) for name in SAMPLERS for size in ("length", "batch")}

# What is neither finite nor refused by name, and why.
NEGATIVE = "the entropy of a negative weight is minus infinity, as PyTorch has it; to look would wait for the device"
OWN_ERROR = "a function that takes other arguments says so itself"
UNSEEN = "the log-sum-exp over no key is minus infinity, as documented"
OF_Q = "the other arguments do not fit this q, and are named"
EXCEPTIONS: dict[tuple[str, str, str], str] = {
    **{
        ("attention_entropy", "weights", label): NEGATIVE
        for label in ("float64 -4", "float32 x", "float64 x", "bfloat16 x", "5-d", "gradient")
    },
    **{("dense_mask", "mask_mod", label): OWN_ERROR for label in ("int", "spec", "LogN")},
    **{("fire_bias", "mlp", label): OWN_ERROR for label in ("int", "LogN")},
    **{(name, "q", "float32 empty"): OF_Q for name in ("attention", "explain_backend")},
}  # fmt: skip


def numbers(found: Any) -> Iterator[float]:
    """Every number in what a call gave."""
    if isinstance(found, Tensor):
        if found.is_floating_point() and not found.is_meta:
            yield from found.detach().flatten().tolist()
    elif isinstance(found, float):
        yield found
    elif isinstance(found, dict):
        yield from numbers(list(found.values()))
    elif isinstance(found, (list, tuple)):
        for item in found:
            yield from numbers(item)


def is_finite(found: Any) -> bool:
    return all(map(math.isfinite, numbers(found)))


def complaint(entry: Entry, argument: str, value: Any) -> str | None:
    """What is wrong with what a call does with this value; None if nothing is."""
    function, arguments = entry
    try:
        found = function(**{**arguments, argument: value})
    except (TypeError, ValueError) as error:
        if re.search(rf"\b{argument}\b", str(error)):
            return None
        return f"does not name the argument: {type(error).__name__}: {str(error)[:200]}"
    except Exception as error:
        return f"another exception: {type(error).__name__}: {str(error)[:200]}"
    if is_finite(found) or not is_finite(value):
        return None
    return f"not finite: {str(found)[:200]}"


def cases(name: str) -> Iterator[tuple[str, str, Any]]:
    """Argument, name of the value, value."""
    for argument in ENTRIES[name][1]:
        for label, value in VALUES.items():
            if label != "2**31" or (name, argument) not in LARGE:
                yield argument, label, value


@pytest.mark.parametrize("name", ENTRIES)
def test_odd_values(name: str) -> None:
    function, arguments = ENTRIES[name]
    assert is_finite(function(**arguments))
    found = {
        (name, argument, label): wrong
        for argument, label, value in cases(name)
        if (wrong := complaint(ENTRIES[name], argument, value)) is not None
    }
    expected = {case for case in EXCEPTIONS if case[0] == name}
    assert found.keys() == expected, "\n".join(f"{case}: {wrong}" for case, wrong in found.items())


def test_a_fault_is_found() -> None:
    def divide(size: Any) -> Any:
        if isinstance(size, str):
            raise ValueError("that is no number")
        return torch.ones(1) / size

    entry: Entry = (divide, {"size": 1})
    assert str(complaint(entry, "size", "x")).startswith("does not name the argument: ValueError: that is no number")
    assert str(complaint(entry, "size", 10**400)).startswith("another exception: OverflowError")
    assert str(complaint(entry, "size", 0)).startswith("not finite: tensor([inf])")
    assert complaint(entry, "size", math.nan) is None
    assert complaint(entry, "size", 2.0) is None


def test_every_public_name_is_swept() -> None:
    no_call = {"SCHEMES", "Plan", "nn", "causal_mask"}  # constants, a type, a module, and a mask of given indices
    swept = {re.split(r"[ .,(]", name)[0] for name in ENTRIES}
    assert PUBLIC.keys() - no_call <= swept
    in_nn = {name for name, value in vars(rl.nn).items() if getattr(value, "__module__", "") == rl.nn.__name__}
    assert {f"nn.{name}" for name in in_nn if not name.startswith("_")} <= ENTRIES.keys()
    assert {f"FrequencySpec {kind}" for kind in KINDS} <= ENTRIES.keys()
    assert {f"scheme {name}" for name in SCHEMES} | {f"METHODS {name}" for name in METHODS} <= ENTRIES.keys()


def test_every_argument_is_swept() -> None:
    swept: dict[Any, set[str]] = {}
    for function, arguments in ENTRIES.values():
        swept.setdefault(function, set()).update(arguments)
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    in_test_errors = {rl.attention: {"cache", "layer", "return_lse"}, rl.explain_backend: {"cache", "layer"}}
    for function, arguments in swept.items():
        parameters = inspect.signature(function).parameters.values()
        wanted = {p.name for p in parameters if p.kind not in kinds and p.name not in ("kind", "name", "padding")}
        assert wanted - arguments <= in_test_errors.get(function, set()), function
