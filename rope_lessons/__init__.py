"""Rotary position embeddings and length extrapolation: every method as a setting of five knobs.

What a program needs is flat, like ``torch.nn.functional``: tensors in, tensors out. The rest of a chapter lives in its
module: ``sinusoidal``, ``rotary``, ``radix``, ``mixed_radix``, ``circles``, ``entropy``, ``local``, ``rerope``,
``invleaky``, ``random_positions``, ``axes``, ``biases``, so ``rl.radix.digits``. Each function names the chapter that
derives it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rope_lessons import (
    axes,
    biases,
    circles,
    entropy,
    hf,
    invleaky,
    local,
    mixed_radix,
    nn,
    radix,
    random_positions,
    rerope,
    rotary,
    schemes,
    sinusoidal,
)
from rope_lessons.circles import (
    llama3_frequencies,
    longrope_attention_factor,
    longrope_frequencies,
    ntk_by_parts_frequencies,
    yarn_attention_factor,
    yarn_frequencies,
)
from rope_lessons.engine import KVCache, attention, explain_backend
from rope_lessons.entropy import log_n_scale
from rope_lessons.local import alibi_slopes
from rope_lessons.methods import METHODS, Method
from rope_lessons.mixed_radix import mixed_radix_frequencies
from rope_lessons.radix import dynamic_ntk_frequencies, ntk_frequencies, pi_frequencies
from rope_lessons.rotary import apply_rotary, half_to_interleaved, interleaved_to_half, rotary_table
from rope_lessons.schemes import FrequencySpec, LogN, Plan, Scheme, scheme
from rope_lessons.sinusoidal import rope_frequencies, sinusoidal_encoding

if TYPE_CHECKING:
    from rope_lessons.hf import plan_from_hf, plan_to_hf, scheme_from_hf, scheme_to_hf

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "FrequencySpec",
    "KVCache",
    "LogN",
    "Method",
    "Plan",
    "Scheme",
    "alibi_slopes",
    "apply_rotary",
    "attention",
    "axes",
    "biases",
    "circles",
    "dynamic_ntk_frequencies",
    "entropy",
    "explain_backend",
    "half_to_interleaved",
    "hf",
    "interleaved_to_half",
    "invleaky",
    "llama3_frequencies",
    "local",
    "log_n_scale",
    "longrope_attention_factor",
    "longrope_frequencies",
    "mixed_radix",
    "mixed_radix_frequencies",
    "nn",
    "ntk_by_parts_frequencies",
    "ntk_frequencies",
    "pi_frequencies",
    "plan_from_hf",
    "plan_to_hf",
    "radix",
    "random_positions",
    "rerope",
    "rope_frequencies",
    "rotary",
    "rotary_table",
    "scheme",
    "scheme_from_hf",
    "scheme_to_hf",
    "schemes",
    "sinusoidal",
    "sinusoidal_encoding",
    "yarn_attention_factor",
    "yarn_frequencies",
]

# Imported on first use: few programs need them.
_MODULES = ("chomsky", "exercises", "figures", "lab", "models", "scoreboard")
_OF_HF = ("plan_from_hf", "plan_to_hf", "scheme_from_hf", "scheme_to_hf")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_OF_HF})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _OF_HF:
        return getattr(hf, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
