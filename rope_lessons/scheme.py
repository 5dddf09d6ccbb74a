"""One equation, five knobs. A :class:`Scheme` is a setting of them for one layer; a plan is one scheme per layer.

The score of query i and key j is::

    score(i, j) = s_i * <R(f(p_i - p_j) ω) q_i, k_j> / sqrt(d) + b(i, j),    kept where visible(i, j)

and the knobs are the frequencies ω, the distance map f, the scale s, visibility and bias, and the positions p.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from rope_lessons._checks import check_bool, check_choice, check_count, check_not_negative, check_positive
from rope_lessons.entropy import log_n_scale
from rope_lessons.mixed_radix import mixed_radix_frequencies
from rope_lessons.radix import dynamic_ntk_frequencies, ntk_frequencies, pi_frequencies
from rope_lessons.random_positions import equal_mean_positions, grid_positions, random_positions
from rope_lessons.rotary import LAYOUTS
from rope_lessons.sinusoidal import rope_frequencies
from rope_lessons.yarn import (
    llama3_frequencies,
    longrope_attention_factor,
    longrope_frequencies,
    ntk_by_parts_frequencies,
    yarn_attention_factor,
    yarn_frequencies,
)


def _ntk(variant: str) -> Callable[..., Tensor]:
    def frequencies(dim: int, factor: float, base: float = 10_000.0, *, device: Any = None) -> Tensor:
        return ntk_frequencies(dim, factor, base, variant, device=device)

    return frequencies


# Knob 1: every way to choose the frequencies, by name. ``length`` and ``device`` are given at the call.
FREQUENCIES: dict[str, Callable[..., Tensor]] = {
    "rope": rope_frequencies,
    "pi": pi_frequencies,
    "ntk-old": _ntk("old"),
    "ntk-fixed": _ntk("fixed"),
    "ntk-aware": _ntk("aware"),
    "ntk-mixed": mixed_radix_frequencies,
    "dynamic-ntk": dynamic_ntk_frequencies,
    "ntk-by-parts": ntk_by_parts_frequencies,
    "yarn": yarn_frequencies,
    "llama3": llama3_frequencies,
    "longrope": longrope_frequencies,
}


@dataclass(frozen=True, init=False)
class FrequencySpec:
    """How to compute the frequencies: a name and its options. Holds no tensor, is hashable, prints itself.

    Args:
        kind: one of ``FREQUENCIES``: ``"rope"``, ``"pi"``, ``"ntk-old"``, ``"ntk-fixed"``, ``"ntk-aware"``,
            ``"ntk-mixed"``, ``"dynamic-ntk"``, ``"ntk-by-parts"``, ``"yarn"``, ``"llama3"``, ``"longrope"``.
        options: the arguments of that function, but for ``length`` and ``device``. Lists are kept as tuples.

    Raises:
        TypeError, ValueError: an unknown kind; unknown, missing or bad options.

    >>> spec = FrequencySpec("pi", dim=4, factor=8)
    >>> spec
    FrequencySpec('pi', dim=4, factor=8)
    >>> spec()
    tensor([0.1250, 0.0013], dtype=torch.float64)
    """

    kind: str
    options: tuple[tuple[str, Any], ...]

    def __init__(self, kind: str, **options: Any):
        check_choice("kind", kind, FREQUENCIES)
        known = inspect.signature(FREQUENCIES[kind]).parameters
        defaults = {name: p.default for name, p in known.items() if name not in ("length", "device")}
        names, required = list(defaults), [name for name in defaults if defaults[name] is inspect.Parameter.empty]
        for name in options:
            if name not in names:
                raise ValueError(f"options of {kind!r} must be among {', '.join(names)}, got {name!r}")
        missing = [name for name in required if name not in options]
        if missing:
            raise ValueError(f"options of {kind!r} must contain {', '.join(required)}; missing: {', '.join(missing)}")
        object.__setattr__(self, "kind", kind)
        # Defaults are written out, so that two specs with the same frequencies are equal.
        written = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
        object.__setattr__(self, "options", tuple({**defaults, **written}.items()))
        self(length=1)  # bad values fail here, not in the middle of a model

    @property
    def dim(self) -> int:
        """Number of channels that turn."""
        return dict(self.options)["dim"]

    @property
    def needs_length(self) -> bool:
        """Whether the frequencies depend on the length of the text."""
        return "length" in inspect.signature(FREQUENCIES[self.kind]).parameters

    def __call__(self, length: int | None = None, device: torch.device | str | None = None) -> Tensor:
        """The frequencies, float64 ``(dim/2,)``. ``length`` is used by the kinds that depend on it."""
        options = dict(self.options)
        if self.needs_length:
            if length is None:
                raise ValueError(f"length must be given: the frequencies of {self.kind!r} depend on it")
            options["length"] = length
        return FREQUENCIES[self.kind](**options, device=device)

    def __repr__(self) -> str:
        known = inspect.signature(FREQUENCIES[self.kind]).parameters
        options = "".join(f", {name}={value!r}" for name, value in self.options if value != known[name].default)
        return f"FrequencySpec({self.kind!r}{options})"


@dataclass(frozen=True)
class LogN:
    """Knob 3: the log n scale of :func:`~rope_lessons.log_n_scale`, as a setting. Call it with the counts.

    Args:
        train_length, clip, floor: as there.

    Raises:
        TypeError, ValueError: as there.

    >>> LogN(train_length=512)(torch.tensor([512, 4096]))
    tensor([1.0000, 1.3333], dtype=torch.float64)
    """

    train_length: int
    clip: bool = False
    floor: int = 16

    def __post_init__(self) -> None:
        self(torch.ones(1, dtype=torch.int64))

    def __call__(self, counts: Tensor) -> Tensor:
        return log_n_scale(counts, self.train_length, clip=self.clip, floor=self.floor)


@dataclass(frozen=True)
class Scheme:
    """A setting of the five knobs for one layer in one phase (training or test). Frozen, hashable, no tensors.

    Args:
        frequencies: a :class:`FrequencySpec`; None turns nothing (NoPE).
        layout: which channels form a pair, ``"half"`` or ``"interleaved"``.
        window, slope: the distance map of :func:`~rope_lessons.leaky_distance`; slope 1 is RoPE.
        scale: a :class:`LogN`, or None for 1.
        rotary_scale: multiplies turned queries and keys (YaRN's attention factor); logits get its square.
        base_scale: factor on the scores, :math:`1/\\sqrt{d}` of the head dimension by default.
        causal: a query sees itself and what came before it.
        visible_window: a query sees tokens at a distance below it, itself included; None for all.
        sinks: with a visible window, the first ``sinks`` tokens of a document stay visible.
        alibi: add ALiBi's bias, minus slope times distance between positions.

    Raises:
        TypeError, ValueError: a value outside what the argument takes.

    >>> Scheme(FrequencySpec("rope", dim=64), window=128, slope=0)
    Scheme(FrequencySpec('rope', dim=64), window=128, slope=0)
    """

    frequencies: FrequencySpec | None = None
    layout: str = "half"
    window: int = 0
    slope: float = 1.0
    scale: LogN | None = None
    rotary_scale: float = 1.0
    base_scale: float | None = None
    causal: bool = True
    visible_window: int | None = None
    sinks: int = 0
    alibi: bool = False

    def __post_init__(self) -> None:
        for name, kind in (("frequencies", FrequencySpec), ("scale", LogN)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise TypeError(f"{name} must be a {kind.__name__} or None, got {type(value).__name__}")
        check_choice("layout", self.layout, LAYOUTS)
        check_count("window", self.window)
        check_not_negative("slope", self.slope)
        check_positive("rotary_scale", self.rotary_scale)
        if self.base_scale is not None:
            check_positive("base_scale", self.base_scale)
        check_bool("causal", self.causal)
        check_bool("alibi", self.alibi)
        if self.visible_window is not None:
            check_count("visible_window", self.visible_window, least=1)
        check_count("sinks", self.sinks)
        if self.sinks and self.visible_window is None:
            raise ValueError(f"sinks must be 0 without a visible_window (all tokens are visible), got {self.sinks}")

    @property
    def rotary_dim(self) -> int:
        """Number of channels that turn; 0 for NoPE."""
        return 0 if self.frequencies is None else self.frequencies.dim

    def __repr__(self) -> str:
        shown = [repr(self.frequencies)]
        shown += [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self)[1:] if getattr(self, f.name) != f.default]
        return f"Scheme({', '.join(shown)})"

    @classmethod
    def from_hf(
        cls,
        rope: Mapping[str, Any],
        *,
        head_dim: int,
        rope_theta: float | None = None,
        max_position_embeddings: int | None = None,
        **knobs: Any,
    ) -> Scheme:
        """A scheme from Hugging Face's flat ``rope_parameters`` (or ``rope_scaling``) dictionary.

        Args:
            rope: keys as in a model's config. All types take ``rope_type`` (or ``type``, its older spelling),
                ``rope_theta`` and ``partial_rotary_factor``; the others are

                - ``"default"``: none;
                - ``"linear"``: ``factor``;
                - ``"dynamic"``: ``factor``, ``original_max_position_embeddings``;
                - ``"yarn"``: ``factor``, ``original_max_position_embeddings``, and if wanted ``beta_fast``,
                  ``beta_slow``, ``truncate``, and ``attention_factor`` or both ``mscale`` and ``mscale_all_dim``;
                - ``"llama3"``: ``factor``, ``original_max_position_embeddings``, ``low_freq_factor``,
                  ``high_freq_factor``;
                - ``"longrope"``: ``short_factor``, ``long_factor``, ``original_max_position_embeddings``, and
                  ``factor`` or ``attention_factor``;
                - ``"ntk"``, which vLLM has and transformers has not: ``factor``; with ``mixed_b``, NTK-RoPE-mixed
                  with that exponent.
            head_dim: channels of a head.
            rope_theta: the base, where it stands beside the dictionary (``rope_scaling`` of older configs).
            max_position_embeddings: of the config. As in transformers it is the training length where the dictionary
                has no ``original_max_position_embeddings``, and ``"yarn"`` and ``"longrope"`` without a ``factor``
                take its ratio to the training length.
            knobs: other arguments of :class:`Scheme`; a ``rotary_scale`` here replaces the attention factor.

        Raises:
            TypeError, ValueError: unknown, missing or contradictory keys.

        >>> Scheme.from_hf({"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}, head_dim=128)
        Scheme(FrequencySpec('pi', dim=128, factor=4.0))
        """
        from rope_lessons.hf import _scheme_from_hf  # that module imports this one

        return _scheme_from_hf(rope, head_dim, rope_theta, max_position_embeddings, **knobs)

    def to_hf(self, *, head_dim: int | None = None) -> dict[str, Any]:
        """Hugging Face's dictionary for the frequencies of this scheme. The inverse of :meth:`from_hf`.

        For ``"dynamic"``, transformers takes the training length from the config's ``max_position_embeddings`` and
        not from the dictionary: set both. An attention factor is written where it is not the default of ``"yarn"``.

        Args:
            head_dim: channels of a head; needed when only some of them turn.

        Raises:
            ValueError: frequencies, or another knob, that Hugging Face's dictionary cannot express.

        >>> Scheme(FrequencySpec("rope", dim=128)).to_hf()
        {'rope_type': 'default', 'rope_theta': 10000.0}
        """
        from rope_lessons.hf import _scheme_to_hf  # that module imports this one

        return _scheme_to_hf(self, head_dim)


Plan = tuple[Scheme, ...]  # one scheme per layer


def _yarn(factor: float, rotary_scale: float | None = None) -> dict[str, Any]:
    return {"rotary_scale": yarn_attention_factor(factor) if rotary_scale is None else rotary_scale}


def _longrope(train_length: int, factor: float | None = None, rotary_scale: float | None = None) -> dict[str, Any]:
    if rotary_scale is None:
        if factor is None:
            raise ValueError("scheme 'longrope' needs factor or rotary_scale (its attention factor); got neither")
        rotary_scale = longrope_attention_factor(factor, train_length)
    return {"rotary_scale": rotary_scale}


# A name and what it sets beside the frequencies: (kind of frequencies, arguments it needs, other knobs).
_ROWS: dict[str, tuple[str | None, Callable[..., dict[str, Any]]]] = {
    **{kind: (kind, dict) for kind in FREQUENCIES},
    "yarn": ("yarn", _yarn),  # the attention factor too, unless rotary_scale is given
    "longrope": ("longrope", _longrope),
    "nope": (None, dict),
    "alibi": (None, lambda: {"alibi": True}),
    "window": ("rope", lambda visible_window: {"visible_window": visible_window}),
    "lambda": ("rope", lambda visible_window, sinks=4: {"visible_window": visible_window, "sinks": sinks}),
    "rerope": ("rope", lambda window: {"window": window, "slope": 0.0}),
    "leaky-rerope": ("rope", lambda window, slope: {"window": window, "slope": slope}),
    "invleaky": ("rope", lambda window, slope: {"window": window, "slope": slope}),
}
SCHEMES = tuple(_ROWS)


def scheme(name: str, **options: Any) -> Scheme:
    """A scheme by its name in the table: one layer, one phase.

    Args:
        name: one of ``SCHEMES``: ``"rope"``, ``"pi"``, ``"ntk-old"``, ``"ntk-fixed"``, ``"ntk-aware"``,
            ``"ntk-mixed"``, ``"dynamic-ntk"``, ``"ntk-by-parts"``, ``"yarn"`` and ``"longrope"`` (both with their
            attention factor as ``rotary_scale``, unless that is given), ``"llama3"``, ``"nope"``, ``"alibi"``,
            ``"window"``, ``"lambda"``, ``"rerope"``, ``"leaky-rerope"``, ``"invleaky"``.
        options: what that name needs (``dim``, ``factor``, ``window``, …), and any other argument of
            :class:`Scheme`.

    Returns:
        the scheme.

    Raises:
        TypeError, ValueError: an unknown name; unknown or missing options; an option that the name itself sets.

    >>> scheme("ntk-fixed", dim=128, factor=8)
    Scheme(FrequencySpec('ntk-fixed', dim=128, factor=8))
    >>> scheme("rerope", dim=64, window=128, scale=LogN(512))
    Scheme(FrequencySpec('rope', dim=64), window=128, slope=0.0, scale=LogN(train_length=512, clip=False, floor=16))
    """
    check_choice("name", name, SCHEMES)
    kind, settings = _ROWS[name]
    wanted = _parameters(FREQUENCIES[kind]) if kind else {}
    own = {} if settings is dict else _parameters(settings)
    general = {f.name for f in fields(Scheme)} - {"frequencies"}
    for option in options:
        if option not in wanted.keys() | own.keys() | general:
            valid = ", ".join({**wanted, **own, **dict.fromkeys(sorted(general))})
            raise ValueError(f"options of scheme {name!r} must be among {valid}; got {option!r}")
    missing = [option for option, needed in {**wanted, **own}.items() if needed and option not in options]
    if missing:
        raise ValueError(f"scheme {name!r} needs {', '.join(missing)}; got {', '.join(options) or 'nothing'}")
    spec = FrequencySpec(kind, **{key: options[key] for key in wanted if key in options}) if kind else None
    knobs = settings(**{key: options[key] for key in own if key in options})
    fixed = [key for key in knobs if key in options and key not in own]
    if fixed:
        raise ValueError(f"options of scheme {name!r} must not contain {', '.join(fixed)}: the name sets it")
    rest = {key: value for key, value in options.items() if key not in wanted and key not in own}
    return Scheme(spec, **{**knobs, **rest})


def _parameters(function: Callable[..., Any]) -> dict[str, bool]:
    """Names of a function's arguments, but for length and device, and whether each must be given."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default is p.empty for p in parameters if p.name not in ("length", "device")}


Positions = Callable[..., Tensor]  # (length, *, batch, generator, device) -> positions, as the samplers of chapter 10


@dataclass(frozen=True)
class Method:
    """A row of the results table: what a model is trained with and what it is tested with.

    Args:
        name: of the row.
        train, test: plans, one scheme per layer. They differ where a method acts in one phase only.
        train_positions, test_positions: samplers of positions; None for 0, 1, 2, …

    Raises:
        TypeError, ValueError: plans that are not tuples of schemes, of different length, or empty.

    >>> METHODS["rope"](layers=2, dim=64).train[0]
    Scheme(FrequencySpec('rope', dim=64))
    """

    name: str
    train: Plan
    test: Plan
    train_positions: Positions | None = None
    test_positions: Positions | None = None

    def __post_init__(self) -> None:
        for name, plan in (("train", self.train), ("test", self.test)):
            if not isinstance(plan, tuple) or not all(isinstance(layer, Scheme) for layer in plan):
                raise TypeError(f"{name} must be a plan (a tuple of one Scheme per layer), got {plan!r}")
        if not self.train or len(self.train) != len(self.test):
            raise ValueError(
                f"train and test must be plans over the same layers, got {len(self.train)} and {len(self.test)} schemes"
            )


def _trained_scale(scale: LogN | None) -> LogN | None:
    """The clipped scale is for models trained without it; any other scale is there in training too."""
    return None if scale is None or scale.clip else scale


def _row(name: str, train: str | None = None) -> Callable[..., Method]:
    """A method that uses one scheme in every layer: ``name`` at test, and RoPE (or ``train``) in training."""

    def build(*, layers: int, dim: int, base: float = 10_000.0, **options: Any) -> Method:
        check_count("layers", layers, least=1)
        turning = {"dim": dim, "base": base}
        test = scheme(name, **options, **(turning if _ROWS[name][0] else {}))
        scale = _trained_scale(test.scale)
        if train == "rope":
            shared = {"layout": test.layout, "base_scale": test.base_scale, "causal": test.causal}
            before = scheme("rope", **turning, **shared, scale=scale)
        else:
            before = replace(test, scale=scale)
        return Method(name, (before,) * layers, (test,) * layers)

    return build


def _invleaky(*, layers: int, dim: int, window: int, slope: float, base: float = 10_000.0, **knobs: Any) -> Method:
    """InvLeaky ReRoPE: bend the distance in training, so that plain RoPE serves at test."""
    check_count("layers", layers, least=1)
    train = scheme("invleaky", dim=dim, base=base, window=window, slope=slope, **knobs)
    test = scheme("rope", dim=dim, base=base, **knobs)
    return Method("invleaky", (train,) * layers, (test,) * layers)


def _hwfa_plan(layers: int, full: tuple[int, ...], window_layer: Scheme, full_layer: Scheme) -> Plan:
    return tuple(full_layer if layer in full else window_layer for layer in range(layers))


def _hwfa(*, layers: int, dim: int, visible_window: int, train_length: int, base: float = 10_000.0) -> Method:
    """HWFA: windows with RoPE in all layers but the last, which sees everything, without position but with log n."""
    check_count("layers", layers, least=1)
    near = scheme("window", dim=dim, base=base, visible_window=visible_window)
    plan = _hwfa_plan(layers, (layers - 1,), near, scheme("nope", scale=LogN(train_length)))
    return Method("hwfa", plan, plan)


def _hwfa2(
    *,
    layers: int,
    dim: int,
    visible_window: int,
    window: int,
    full_layers: int = 1,
    train_length: int | None = None,
    base: float = 10_000.0,
) -> Method:
    """HWFA2: a few full RoPE layers among windows; at test those few switch to ReRoPE."""
    check_count("layers", layers, least=1)
    check_count("full_layers", full_layers, least=1)
    if full_layers > layers:
        raise ValueError(f"full_layers must be at most layers = {layers}, got {full_layers}")
    scale = None if train_length is None else LogN(train_length)
    full = tuple(layers * (n + 1) // (full_layers + 1) for n in range(full_layers))
    near = scheme("window", dim=dim, base=base, visible_window=visible_window)
    train = scheme("rope", dim=dim, base=base, scale=scale)
    test = scheme("rerope", dim=dim, base=base, window=window, scale=scale)
    return Method("hwfa2", _hwfa_plan(layers, full, near, train), _hwfa_plan(layers, full, near, test))


@cache
def _sampler(function: Callable[..., Tensor], **options: Any) -> Positions:
    """A sampler with its options. Cached, so that equal settings are one object, and two equal methods are equal."""
    return partial(function, **options)


def _encoder(
    name: str, layers: int, train_positions: Positions, test_positions: Positions | None, **knobs: Any
) -> Method:
    """A method of positions: RoPE in an encoder, which sees the whole text. A decoder does not know its length."""
    check_count("layers", layers, least=1)
    test = scheme("rope", **{"causal": False, **knobs})
    train = replace(test, scale=_trained_scale(test.scale))
    return Method(name, (train,) * layers, (test,) * layers, train_positions, test_positions)


def _random_positions(
    *, layers: int, dim: int, max_length: int = 2048, test: str = "grid", base: float = 10_000.0, **knobs: Any
) -> Method:
    """Sorted random subsets in training; at test the even grid, or ("random") the same draws, as published."""
    check_choice("test", test, ("grid", "random"))
    drawn = _sampler(random_positions, max_length=max_length)
    at_test = drawn if test == "random" else _sampler(grid_positions, max_length=max_length)
    return _encoder("random-positions", layers, drawn, at_test, dim=dim, base=base, **knobs)


def _equal_mean(
    *,
    layers: int,
    dim: int,
    distribution: str = "exponential",
    mean: float | None = None,
    max_length: int | None = None,
    alpha: float | None = None,
    base: float = 10_000.0,
    **knobs: Any,
) -> Method:
    """Evenly spaced positions with a random end in training; 0, 1, 2, … at test."""
    options = {"distribution": distribution, "mean": mean, "max_length": max_length, "alpha": alpha}
    drawn = _sampler(equal_mean_positions, **options)
    return _encoder("equal-mean", layers, drawn, None, dim=dim, base=base, **knobs)


# The rows of the table. What changes only at test is trained as RoPE.
METHODS: dict[str, Callable[..., Method]] = {
    **{name: _row(name) for name in ("rope", "nope", "alibi")},
    **{name: _row(name, train="rope") for name in SCHEMES if name not in ("rope", "nope", "alibi", "invleaky")},
    "invleaky": _invleaky,
    "random-positions": _random_positions,
    "equal-mean": _equal_mean,
    "hwfa": _hwfa,
    "hfwa": _hwfa,  # the spelling of the articles' tables
    "hwfa2": _hwfa2,
}


def default_base_scale(scheme: Scheme, head_dim: int) -> float:
    """The factor on the scores: ``scheme.base_scale``, or one over the square root of the head dimension."""
    return 1 / math.sqrt(head_dim) if scheme.base_scale is None else scheme.base_scale
