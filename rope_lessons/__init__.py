"""Rotary position embeddings and length extrapolation: every method as a setting of five knobs.

The functions here are flat and functional, like ``torch.nn.functional``. Each names the chapter that derives it.
"""

from __future__ import annotations

import importlib
from typing import Any

from rope_lessons import nn
from rope_lessons.attention import KVCache, attention, explain_backend
from rope_lessons.circles import (
    llama3_frequencies,
    longrope_attention_factor,
    longrope_frequencies,
    ntk_by_parts_frequencies,
    turns,
    yarn_attention_factor,
    yarn_frequencies,
)
from rope_lessons.entropy import attention_entropy, log_n_scale
from rope_lessons.hf import plan_from_hf, plan_to_hf, scheme_from_hf, scheme_to_hf
from rope_lessons.invleaky import covered_length, invleaky_rule, slope_for, trained_distances
from rope_lessons.local import (
    alibi_channels,
    alibi_slopes,
    causal_mask,
    dense_mask,
    lambda_mask,
    receptive_field,
    window_mask,
)
from rope_lessons.methods import METHODS, Method
from rope_lessons.mixed_radix import mixed_digits, mixed_radix_frequencies
from rope_lessons.radix import (
    decode_position,
    digits,
    dynamic_ntk_frequencies,
    from_digits,
    ntk_frequencies,
    pi_frequencies,
)
from rope_lessons.random_positions import equal_mean_positions, grid_positions, random_positions
from rope_lessons.rerope import leaky_distance, smooth_leaky_distance
from rope_lessons.rotary import apply_rotary, half_to_interleaved, interleaved_to_half, rotary_table, rotate
from rope_lessons.schemes import SCHEMES, FrequencySpec, LogN, Plan, Scheme, scheme
from rope_lessons.sinusoidal import rope_frequencies, sinusoidal_encoding, sinusoidal_kernel

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "SCHEMES",
    "FrequencySpec",
    "KVCache",
    "LogN",
    "Method",
    "Plan",
    "Scheme",
    "alibi_channels",
    "alibi_slopes",
    "apply_rotary",
    "attention",
    "attention_entropy",
    "causal_mask",
    "covered_length",
    "decode_position",
    "dense_mask",
    "digits",
    "dynamic_ntk_frequencies",
    "equal_mean_positions",
    "explain_backend",
    "from_digits",
    "grid_positions",
    "half_to_interleaved",
    "interleaved_to_half",
    "invleaky_rule",
    "lambda_mask",
    "leaky_distance",
    "llama3_frequencies",
    "log_n_scale",
    "longrope_attention_factor",
    "longrope_frequencies",
    "mixed_digits",
    "mixed_radix_frequencies",
    "nn",
    "ntk_by_parts_frequencies",
    "ntk_frequencies",
    "pi_frequencies",
    "plan_from_hf",
    "plan_to_hf",
    "random_positions",
    "receptive_field",
    "rope_frequencies",
    "rotary_table",
    "rotate",
    "scheme",
    "scheme_from_hf",
    "scheme_to_hf",
    "sinusoidal_encoding",
    "sinusoidal_kernel",
    "slope_for",
    "smooth_leaky_distance",
    "trained_distances",
    "turns",
    "window_mask",
    "yarn_attention_factor",
    "yarn_frequencies",
]

_LAZY = ("chomsky", "exercises", "figures", "lab")  # these need matplotlib or are used by few: imported on first use


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
