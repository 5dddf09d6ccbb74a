"""The kinds of frequencies: one row of ``KINDS`` for each way to choose them.

Schemes, configs, tests, the labels of tables and figures and the API page loop over these rows. A new way is a function
and a row here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from torch import Tensor

from rope_lessons.circles import (
    llama3_frequencies,
    longrope_attention_factor,
    longrope_frequencies,
    ntk_by_parts_frequencies,
    proportional_frequencies,
    yarn_attention_factor,
    yarn_frequencies,
)
from rope_lessons.mixed_radix import mixed_radix_frequencies
from rope_lessons.radix import dynamic_ntk_frequencies, ntk_frequencies, pi_frequencies
from rope_lessons.sinusoidal import rope_frequencies

TRAINED = "original_max_position_embeddings"
# Names of Hugging Face's keys and ours, where they differ.
PARTIAL = "partial_rotary_factor"
OURS = {"rope_theta": "base", TRAINED: "train_length", "mixed_b": "exponent", PARTIAL: "share"}


class RopeType(NamedTuple):
    """How Hugging Face's rope dictionary says a kind.

    Args:
        name: the ``rope_type``. Kinds that share one differ in what is required.
        required, optional: keys beside those that all types share.
        longest: what the config's ``max_position_embeddings`` is where it matters: the ``"trained"`` length itself, or
            the ``"extended"`` one, whose ratio to the training length is the factor where none is given.
    """

    name: str
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    longest: Literal["trained", "extended"] | None = None


@dataclass(frozen=True)
class Kind:
    """A way to choose frequencies.

    Args:
        function: what computes them, from ``dim``, ``base`` and its options; ``length`` and ``device`` are given at the
            call and not among the options.
        label: its name in tables and figures.
        extended: ``(dim, factor, train_length)`` to options for a text ``factor`` times as long; with a factor of 1 it
            is plain RoPE up to the training length.
        attention_factor: of some options, where turned queries and keys are multiplied too.
        hf: how a config says it; None if it has no words of its own for it.
        plain_base: ``(dim, factor, base)`` to the base with which plain RoPE has these very frequencies, where one has.
    """

    function: Callable[..., Tensor]
    label: str
    extended: Callable[[int, float, int], dict[str, Any]]
    attention_factor: Callable[..., float] | None = None
    hf: RopeType | None = None
    plain_base: Callable[[int, float, float], float] | None = None
    # Read from the signatures once: a model asks at every call.
    defaults: dict[str, Any] = field(init=False)  # all options and their defaults, inspect.Parameter.empty for none
    needs_length: bool = field(init=False)
    factor_needs: tuple[str, ...] = field(init=False)  # options that the attention factor depends on

    @property
    def spans_head(self) -> bool:
        """Whether the frequencies are of all channels of a head, and the share that turns is one of the options."""
        return self.hf is not None and PARTIAL in self.hf.optional

    def __post_init__(self) -> None:
        arguments = {p.name: p.default for p in inspect.signature(self.function).parameters.values()}
        needs = inspect.signature(self.attention_factor).parameters if self.attention_factor else ()
        object.__setattr__(self, "needs_length", "length" in arguments)
        object.__setattr__(self, "factor_needs", tuple(needs))
        object.__setattr__(
            self, "defaults", {name: arguments[name] for name in arguments if name not in ("length", "device")}
        )

    @property
    def required(self) -> list[str]:
        """The options without a default."""
        return [name for name, default in self.defaults.items() if default is inspect.Parameter.empty]

    def rotary_scale(self, options: Mapping[str, Any]) -> float | None:
        """The attention factor, 1 for a kind without one; None if it does not follow from these options."""
        if self.attention_factor is None:
            return 1.0
        if any(options.get(name) is None for name in self.factor_needs):
            return None
        return self.attention_factor(**{name: options[name] for name in self.factor_needs})


def _ntk(variant: str) -> Callable[..., Tensor]:
    def frequencies(dim: int, factor: float, base: float = 10_000.0, *, device: Any = None) -> Tensor:
        return ntk_frequencies(dim, factor, base, variant, device=device)

    return frequencies


def _old_base(dim: int, factor: float, base: float) -> float:
    return base * factor


def _aware_base(dim: int, factor: float, base: float) -> float:
    return base * factor ** (dim / (dim - 2))


def _nothing(dim: int, factor: float, train_length: int) -> dict[str, Any]:
    return {}


def _by_factor(dim: int, factor: float, train_length: int) -> dict[str, Any]:
    return {"factor": factor}


def _by_lengths(dim: int, factor: float, train_length: int) -> dict[str, Any]:
    return {"factor": factor, "train_length": train_length}


def _by_lists(dim: int, factor: float, train_length: int) -> dict[str, Any]:
    pairs = dim // 2
    lists = {"short_factor": (1.0,) * pairs, "long_factor": (float(factor),) * pairs}
    return {**lists, "train_length": train_length}


def _yarn_factor(factor: float) -> float:
    return yarn_attention_factor(factor)  # the scheme has no mscale


_YARN = ("beta_fast", "beta_slow", "truncate", "attention_factor", "mscale", "mscale_all_dim")
_LLAMA3 = ("factor", TRAINED, "low_freq_factor", "high_freq_factor")
_LONGROPE = ("short_factor", "long_factor", TRAINED)
KINDS: dict[str, Kind] = {
    "rope": Kind(rope_frequencies, "RoPE", _nothing, hf=RopeType("default")),
    "pi": Kind(pi_frequencies, "PI", _by_factor, hf=RopeType("linear", ("factor",))),
    "ntk-old": Kind(_ntk("old"), "NTK-old", _by_factor, plain_base=_old_base),
    "ntk-fixed": Kind(_ntk("fixed"), "NTK-fixed", _by_factor, hf=RopeType("ntk", ("factor",))),  # vLLM's type
    "ntk-aware": Kind(_ntk("aware"), "NTK-aware", _by_factor, plain_base=_aware_base),
    "ntk-mixed": Kind(mixed_radix_frequencies, "NTK-mixed", _by_factor, hf=RopeType("ntk", ("factor", "mixed_b"))),
    "dynamic-ntk": Kind(
        dynamic_ntk_frequencies, "dynamic NTK", _by_lengths, hf=RopeType("dynamic", ("factor", TRAINED), (), "trained")
    ),
    "ntk-by-parts": Kind(ntk_by_parts_frequencies, "NTK-by-parts", _by_lengths),
    "yarn": Kind(
        yarn_frequencies, "YaRN", _by_lengths, _yarn_factor, RopeType("yarn", ("factor", TRAINED), _YARN, "extended")
    ),
    "llama3": Kind(llama3_frequencies, "Llama-3", _by_lengths, hf=RopeType("llama3", _LLAMA3)),
    "proportional": Kind(
        proportional_frequencies, "proportional", _by_factor, hf=RopeType("proportional", (), (PARTIAL, "factor"))
    ),
    "longrope": Kind(
        longrope_frequencies, "LongRoPE", _by_lists, longrope_attention_factor,
        RopeType("longrope", _LONGROPE, ("factor", "attention_factor"), "extended"),
    ),
}  # fmt: skip
