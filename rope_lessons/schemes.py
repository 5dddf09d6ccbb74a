"""One equation, five knobs. A :class:`Scheme` is a setting of them for one layer; a plan is one scheme per layer.

The score of query i and key j is::

    score(i, j) = s_i * <R(f(p_i - p_j) ω) q_i, k_j> / sqrt(d) + b(i, j),    kept where visible(i, j)

and the knobs are the frequencies ω, the distance map f, the scale s, visibility and bias, and the positions p.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, overload

import torch
from torch import Tensor

from rope_lessons._checks import (
    check_bool,
    check_choice,
    check_count,
    check_not_negative,
    check_positive,
    near,
    not_among,
)
from rope_lessons.entropy import log_n_scale
from rope_lessons.kinds import KINDS, OURS
from rope_lessons.rotary import LAYOUTS

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True, init=False)
class FrequencySpec:
    """How to compute the frequencies: a name and its options. Holds no tensor, is hashable, prints itself.

    Args:
        kind: a name in ``rope_lessons.kinds.KINDS``.
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
        check_choice("kind", kind, KINDS)
        defaults, required = KINDS[kind].defaults, KINDS[kind].required
        for name in options:
            if name not in defaults:
                raise ValueError(
                    f"options of {kind!r} must be among {', '.join(defaults)}, got {name!r}{_meant(name, defaults)}"
                )
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
        return KINDS[self.kind].needs_length

    def __call__(self, length: int | None = None, device: torch.device | str | None = None) -> Tensor:
        """The frequencies, float64 ``(dim/2,)``. ``length`` is used by the kinds that depend on it."""
        options = dict(self.options)
        if self.needs_length:
            if length is None:
                raise ValueError(f"length must be given: the frequencies of {self.kind!r} depend on it")
            options["length"] = length
        return KINDS[self.kind].function(**options, device=device)

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(FrequencySpec(state["kind"], **dict(state["options"])).__dict__)

    def __repr__(self) -> str:
        known = KINDS[self.kind].defaults
        options = "".join(f", {name}={value!r}" for name, value in self.options if value != known[name])
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

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(LogN(**state).__dict__)


@dataclass(frozen=True)
class Scheme:
    """A setting of the five knobs for one layer in one phase (training or test). Frozen, hashable, no tensors.

    A scheme, or a plan of them, can be kept in a checkpoint: ``torch.load`` reads it by default (``weights_only``) and
    checks its values again.

    Args:
        frequencies: a :class:`FrequencySpec`; None turns nothing (NoPE).
        layout: which channels form a pair, ``"half"`` or ``"interleaved"``.
        window, slope: the distance map of :func:`~rope_lessons.rerope.leaky_distance`; slope 1 is RoPE.
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

    def replace(self, **knobs: Any) -> Scheme:
        """The same scheme with other values for some knobs.

        Args:
            knobs: arguments of a scheme.

        Raises:
            TypeError, ValueError: unknown knobs, or a value outside what one takes.

        >>> Scheme(FrequencySpec("rope", dim=64), window=128, slope=0).replace(window=256)
        Scheme(FrequencySpec('rope', dim=64), window=256, slope=0)
        """
        for knob in knobs:
            check_choice("knobs", knob, [f.name for f in fields(self)])
        return replace(self, **knobs)

    @property
    def rotary_dim(self) -> int:
        """Number of channels that turn; 0 for NoPE."""
        return 0 if self.frequencies is None else self.frequencies.dim

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(Scheme(**state).__dict__)

    def __repr__(self) -> str:
        shown = [repr(self.frequencies)]
        shown += [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self)[1:] if getattr(self, f.name) != f.default]
        return f"Scheme({', '.join(shown)})"


Plan = tuple[Scheme, ...]  # one scheme per layer
# torch.load reads them by default. A file may hold any values: __setstate__ checks them again.
torch.serialization.add_safe_globals([FrequencySpec, LogN, Scheme])
_KNOBS = sorted(f.name for f in fields(Scheme) if f.name != "frequencies")


class _Named(NamedTuple):
    """What a name of :func:`scheme` stands for beside its knobs: a kind of frequencies, and values of other knobs."""

    kind: str | None = "rope"
    needs: tuple[str, ...] = ()  # knobs that must be given
    sets: Mapping[str, Any] = {}  # knobs that the name is about: none of them can be given
    prefers: Mapping[str, Any] = {}  # knobs with another default


NAMED: dict[str, _Named] = {
    **{kind: _Named(kind) for kind in KINDS},
    "nope": _Named(None),
    "alibi": _Named(None, sets={"alibi": True}),
    "window": _Named(needs=("visible_window",)),
    "lambda": _Named(needs=("visible_window",), prefers={"sinks": 4}),
    "rerope": _Named(needs=("window",), sets={"slope": 0.0}),
    "leaky-rerope": _Named(needs=("window", "slope")),
    "invleaky": _Named(needs=("window", "slope")),
}
SCHEMES = tuple(NAMED)

# For editors and type checkers; a test compares them with the tables above.
TurningName = Literal[
    "rope", "pi", "ntk-old", "ntk-fixed", "ntk-aware", "ntk-mixed", "dynamic-ntk", "ntk-by-parts", "yarn", "llama3",
    "proportional", "longrope", "window", "lambda", "rerope", "leaky-rerope", "invleaky",
]  # fmt: skip
StillName = Literal["nope", "alibi"]


class _Knobs(TypedDict, total=False):
    layout: str
    window: int
    slope: float
    scale: LogN | None
    rotary_scale: float
    base_scale: float | None
    causal: bool
    visible_window: int | None
    sinks: int
    alibi: bool


class _Options(_Knobs, total=False):
    factor: float
    train_length: int
    exponent: float
    alpha: float
    beta: float
    beta_fast: float
    beta_slow: float
    truncate: bool
    low_freq_factor: float
    high_freq_factor: float
    share: float
    short_factor: Sequence[float]
    long_factor: Sequence[float]


@overload
def scheme(name: TurningName, *, dim: int, base: float = 10_000.0, **options: Unpack[_Options]) -> Scheme: ...


@overload
def scheme(name: StillName, **options: Unpack[_Knobs]) -> Scheme: ...


def scheme(name: str, **options: Any) -> Scheme:
    """A scheme by its name in the table: one layer, one phase.

    Args:
        name: one of ``SCHEMES``: a kind of frequencies (``rope_lessons.kinds.KINDS``), ``"nope"`` or ``"alibi"``, which
            turn nothing, or RoPE with other knobs: ``"window"``, ``"lambda"``, ``"rerope"``, ``"leaky-rerope"``,
            ``"invleaky"``.
        options: the options of its frequencies, what its attention factor depends on, and the other arguments of a
            :class:`Scheme`. A ``rotary_scale`` replaces the attention factor.

    Returns:
        the scheme.

    Raises:
        TypeError, ValueError: an unknown name; unknown or missing options; an option that the name itself sets; one
            that would do nothing, or nothing of what the name says: a ``visible_window`` of None for ``"window"``, a
            ``window`` without a ``slope``, both of them 0 (no pair would turn: that is ``"nope"``).

    >>> scheme("ntk-fixed", dim=128, factor=8)
    Scheme(FrequencySpec('ntk-fixed', dim=128, factor=8))
    >>> scheme("rerope", dim=64, window=128, scale=LogN(512))
    Scheme(FrequencySpec('rope', dim=64), window=128, slope=0.0, scale=LogN(train_length=512, clip=False, floor=16))
    """
    if not isinstance(name, str) or name not in NAMED:
        raise ValueError(not_among("name", name, NAMED, _meant(name, NAMED, _NAMES)))
    row = NAMED[name]
    check_options("scheme", name, options, with_knobs(options_of(name)))
    fixed = [key for key in row.sets if key in options]
    if fixed:
        raise ValueError(f"options of scheme {name!r} must not contain {', '.join(fixed)}: the name sets it")
    knobs = {**row.prefers, **row.sets, **{key: options[key] for key in options if key in _KNOBS}}
    if "visible_window" in row.needs:
        check_count("visible_window", options["visible_window"], least=1)  # None would be: everything is visible
    if row.kind is None:
        return Scheme(**knobs)
    kind = KINDS[row.kind]
    spec = FrequencySpec(row.kind, **{key: options[key] for key in options if key in kind.defaults})
    if kind.attention_factor is not None and knobs.get("rotary_scale") is None:
        knobs["rotary_scale"] = kind.rotary_scale(options)
        if knobs["rotary_scale"] is None:
            missing = ", ".join(key for key in kind.factor_needs if options.get(key) is None)
            raise ValueError(f"scheme {name!r} needs {missing} or rotary_scale (its attention factor); got neither")
    return _bends(Scheme(spec, **knobs), "slope" in knobs)


def _bends(made: Scheme, with_slope: bool) -> Scheme:
    """Refuse a distance map that does nothing, or turns nothing."""
    if made.window and not with_slope:
        raise ValueError(
            f"slope must be given with a window, which bends nothing by itself (what bounds who is seen is "
            f"visible_window), got window={made.window} alone"
        )
    if made.slope == 0 and made.window == 0:
        raise ValueError(
            f"window must be at least 1 with a slope of 0, or no pair turns (for no positions take scheme('nope')), "
            f"got {made.window}"
        )
    return made


def options_of(name: str) -> dict[str, bool]:
    """What a name takes beside the knobs that all names take, and whether it must be given."""
    row = NAMED[name]
    found = dict.fromkeys(row.needs, True) | dict.fromkeys(row.prefers, False)
    if row.kind is None:
        return found
    kind = KINDS[row.kind]
    frequencies = {option: option in kind.required for option in kind.defaults}
    factor = () if kind.attention_factor is None else (*kind.factor_needs, "rotary_scale")
    return {**frequencies, **{option: False for option in factor if option not in frequencies}, **found}


def check_options(what: str, name: str, options: Mapping[str, Any], known: Mapping[str, bool]) -> None:
    """``known``: the names of all options, and whether each must be given."""
    for option in options:
        if option not in known:
            raise ValueError(
                f"options of {what} {name!r} must be among {', '.join(known)}; got {option!r}{_meant(option, known)}"
            )
    missing = [option for option, needed in known.items() if needed and option not in options]
    if missing:
        raise ValueError(f"{what} {name!r} needs {', '.join(missing)}; got {', '.join(options) or 'nothing'}")


# What others call our schemes; of two with one name, the first. And our options.
_NAMES = {hf.name: kind for kind, hf in reversed([(kind, row.hf) for kind, row in KINDS.items()]) if hf}
_OTHERS = OURS | {
    "head_dim": "dim", "rotary_dim": "dim", "theta": "base", "sliding_window": "visible_window",
    "num_hidden_layers": "layers",
}  # fmt: skip


def _meant(word: Any, known: Collection[str], others: Mapping[str, str] = _OTHERS) -> str:
    """A hint at the option, or at another name, that was perhaps meant."""
    if word in ("rope_scaling", "rope_parameters", "rope_type"):
        return "; rl.scheme_from_hf reads the dictionary of a config"
    ours = others.get(word.lower()) if isinstance(word, str) else None
    return f"; did you mean {ours!r}?" if ours in known else near(word, known)


def with_knobs(needed: Mapping[str, bool]) -> dict[str, bool]:
    """And every other argument of a :class:`Scheme`."""
    return {**needed, **{knob: False for knob in _KNOBS if knob not in needed}}


def default_base_scale(scheme: Scheme, head_dim: int) -> float:
    """The factor on the scores: ``scheme.base_scale``, or one over the square root of the head dimension."""
    return 1 / math.sqrt(head_dim) if scheme.base_scale is None else scheme.base_scale
