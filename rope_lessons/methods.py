"""Methods, the rows of the table of results: a plan to train with and a plan to test with."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

from torch import Tensor

from rope_lessons._checks import (
    check_choice,
    check_count,
    check_not_negative,
    check_parts,
    check_positive,
    check_size,
    not_among,
    shown,
)
from rope_lessons.random_positions import (
    check_equal_mean,
    equal_mean_positions,
    grid_positions,
    random_positions,
    skip_positions,
)
from rope_lessons.schemes import (
    NAMED,
    SCHEMES,
    FrequencySpec,
    LogN,
    Plan,
    Scheme,
    check_options,
    options_of,
    scheme,
    with_knobs,
)
from rope_lessons.self_extend import self_extend_attention
from rope_lessons.streaming import streaming_attention

Positions = Callable[..., Tensor]  # (length, *, batch, generator, device) -> positions, as the samplers of chapter 10
Schedule = Callable[[int], Plan]  # the number of a step, from 0 -> the plan that it is trained with


@dataclass(frozen=True)
class Method:
    """A row of the results table: what a model is trained with and what it is tested with.

    Args:
        name: of the row.
        train, test: plans, one scheme per layer. They differ where a method acts in one phase only.
        train_positions, test_positions: samplers of positions; None for 0, 1, 2, …
        schedule: the plan of every step of the training, where it changes; None for ``train`` throughout. Then
            ``train`` is that of step 0.
        attend: the attention at test where no scheme says it, called as :func:`~rope_lessons.attention` is; None for
            that one.

    Raises:
        TypeError, ValueError: plans that are not tuples of schemes, of different length, or empty; samplers that cannot
            be called.

    >>> METHODS["rope"](layers=2, dim=64).train[0]
    Scheme(FrequencySpec('rope', dim=64))
    """

    name: str
    train: Plan
    test: Plan
    train_positions: Positions | None = None
    test_positions: Positions | None = None
    schedule: Schedule | None = None
    attend: Callable[..., Tensor] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"name must be a string, got {shown(self.name)}")
        for name, what in _FUNCTIONS.items():
            if (value := getattr(self, name)) is not None and not callable(value):
                raise TypeError(f"{name} must be {what}, a function, or None, got {shown(value)}")
        for name, plan in (("train", self.train), ("test", self.test)):
            if not isinstance(plan, tuple) or not all(isinstance(layer, Scheme) for layer in plan):
                raise TypeError(f"{name} must be a plan (a tuple of one Scheme per layer), got {shown(plan)}")
        if not self.train or len(self.train) != len(self.test):
            raise ValueError(
                f"train and test must be plans over the same layers, got {len(self.train)} and {len(self.test)} schemes"
            )

    def train_plan(self, step: int) -> Plan:
        """The plan that a step is trained with; steps are counted from 0."""
        return self.train if self.schedule is None else self.schedule(step)


# Fields of a method that hold functions, and of which kind.
_FUNCTIONS = {
    "train_positions": "a sampler of positions",
    "test_positions": "a sampler of positions",
    "schedule": "a schedule of plans",
    "attend": "an attention",
}


def _trained_scale(scale: LogN | None) -> LogN | None:
    """The clipped scale is for models trained without it; any other scale is there in training too."""
    return None if scale is None or scale.clip else scale


def _row(name: Any) -> Callable[..., Method]:
    """A method that uses one scheme in every layer, ``name`` at test; what needs no training of its own has RoPE's."""
    turns = NAMED[name].kind is not None

    def build(*, layers: int, dim: int, base: float = 10_000.0, **options: Any) -> Method:
        check_parts("layers", layers)
        turning: dict[str, Any] = {"dim": dim, "base": base}
        FrequencySpec("rope", **turning)  # a name that turns nothing does nothing with them, but takes no odd ones
        test = scheme(name, **options, **(turning if turns else {}))
        scale = _trained_scale(test.scale)
        before = test.replace(scale=scale)
        if turns and name != "rope":
            shared: dict[str, Any] = {"layout": test.layout, "base_scale": test.base_scale, "causal": test.causal}
            before = scheme("rope", **turning, **shared, scale=scale)
        return Method(name, (before,) * layers, (test,) * layers)

    return _listed(name, build, options_of(name))


def _listed(name: str, build: Callable[..., Method], more: Mapping[str, bool] | None = None) -> Callable[..., Method]:
    """A row that tells which arguments it takes, where it gets another one or lacks one. ``more``: those that it hands
    on to :func:`scheme`, beside the knobs; None if it hands on nothing."""
    parameters = inspect.signature(build).parameters.values()
    own = {p.name: p.default is p.empty for p in parameters if p.kind is p.KEYWORD_ONLY}
    known = own if more is None else with_knobs({**more, **own})

    @wraps(build)
    def row(**options: Any) -> Method:
        check_options("method", name, options, known)
        return build(**options)

    row.__qualname__ = f"METHODS[{name!r}]"  # in Python's own errors
    return row


def _invleaky(*, layers: int, dim: int, window: int, slope: float, base: float = 10_000.0, **knobs: Any) -> Method:
    """InvLeaky ReRoPE: bend the distance in training, so that plain RoPE serves at test."""
    check_parts("layers", layers)
    train = scheme("invleaky", dim=dim, base=base, window=window, slope=slope, **knobs)
    test = scheme("rope", dim=dim, base=base, **knobs)
    return Method("invleaky", (train,) * layers, (test,) * layers)


@dataclass(frozen=True)
class _InTurn:
    """A schedule that takes its plans in turn."""

    plans: tuple[Plan, ...]

    def __call__(self, step: int) -> Plan:
        return self.plans[step % len(self.plans)]


def _invleaky_moving(
    *, layers: int, dim: int, windows: Sequence[int], slopes: Sequence[float], base: float = 10_000.0, **knobs: Any
) -> Method:
    """InvLeaky ReRoPE whose window and slope change with every step, so that training visits other distances."""
    check_parts("layers", layers)
    for name, values in (("windows", windows), ("slopes", slopes)):
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise TypeError(f"{name} must be a list of at least one number, got {shown(values)}")
    for window in windows:
        check_count("each of windows", window)
    for slope in slopes:
        check_not_negative("each of slopes", slope)
    visited = [(windows[n % len(windows)], slopes[n % len(slopes)]) for n in range(math.lcm(len(windows), len(slopes)))]
    bent = [scheme("invleaky", dim=dim, base=base, window=window, slope=slope, **knobs) for window, slope in visited]
    plans = tuple((row,) * layers for row in bent)
    test = scheme("rope", dim=dim, base=base, **knobs)
    return Method("invleaky-moving", plans[0], (test,) * layers, schedule=_InTurn(plans))


def _self_extend(*, layers: int, dim: int, window: int, group: int, base: float = 10_000.0, **knobs: Any) -> Method:
    """Self-Extend: far keys by the numbers of their groups. Its distances are no setting of a scheme."""
    check_parts("layers", layers)
    check_count("window", window, least=1)
    check_count("group", group, least=1)
    test = scheme("rope", dim=dim, base=base, **knobs)
    train = test.replace(scale=_trained_scale(test.scale))
    attend = _Bound(self_extend_attention, window=window, group=group)
    return Method("self-extend", (train,) * layers, (test,) * layers, attend=attend)


def _streaming(
    *, layers: int, dim: int, visible_window: int, sinks: int = 4, base: float = 10_000.0, **knobs: Any
) -> Method:
    """StreamingLLM: a window and the first tokens, which are seen from the query's place in the cache."""
    check_parts("layers", layers)
    options: dict[str, Any] = {"dim": dim, "base": base, **knobs}
    test = scheme("lambda", visible_window=visible_window, sinks=sinks, **options)
    train = scheme("rope", **options).replace(scale=_trained_scale(test.scale))
    return Method("streaming", (train,) * layers, (test,) * layers, attend=streaming_attention)


def _hwfa_plan(layers: int, full: tuple[int, ...], window_layer: Scheme, full_layer: Scheme) -> Plan:
    return tuple(full_layer if layer in full else window_layer for layer in range(layers))


def _hwfa(*, layers: int, dim: int, visible_window: int, train_length: int, base: float = 10_000.0) -> Method:
    """HWFA: windows with RoPE in all layers but the last, which sees everything, without position but with log n."""
    check_parts("layers", layers, least=2)  # one for a window
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
    check_parts("layers", layers)
    check_count("full_layers", full_layers, least=1)
    if full_layers > layers:
        raise ValueError(f"full_layers must be at most layers = {layers}, got {full_layers}")
    scale = None if train_length is None else LogN(train_length)
    full = tuple(layers * (n + 1) // (full_layers + 1) for n in range(full_layers))
    near = scheme("window", dim=dim, base=base, visible_window=visible_window)
    train = scheme("rope", dim=dim, base=base, scale=scale)
    test = scheme("rerope", dim=dim, base=base, window=window, scale=scale)
    return Method("hwfa2", _hwfa_plan(layers, full, near, train), _hwfa_plan(layers, full, near, test))


class _Bound(partial[Tensor]):
    """A function with its options. Equal settings are equal, so that two equal methods are, also after pickling."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Bound) and (self.func, self.keywords) == (other.func, other.keywords)

    def __hash__(self) -> int:
        return hash((self.func, frozenset(self.keywords.items())))


def _encoder(
    name: str, layers: int, train_positions: Positions, test_positions: Positions | None, **knobs: Any
) -> Method:
    """A method of positions: RoPE in an encoder, which sees the whole text. A decoder does not know its length."""
    check_parts("layers", layers)
    test = scheme("rope", **{"causal": False, **knobs})
    train = test.replace(scale=_trained_scale(test.scale))
    return Method(name, (train,) * layers, (test,) * layers, train_positions, test_positions)


def _random_positions(
    *, layers: int, dim: int, max_length: int = 2048, test: str = "grid", base: float = 10_000.0, **knobs: Any
) -> Method:
    """Sorted random subsets in training; at test the even grid, or ("random") the same draws, as published."""
    check_choice("test", test, ("grid", "random"))
    check_size("max_length", max_length)
    drawn = _Bound(random_positions, max_length=max_length)
    at_test = drawn if test == "random" else _Bound(grid_positions, max_length=max_length)
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
    check_equal_mean(distribution, mean, max_length, alpha)
    if mean is not None:
        check_positive("mean", mean)  # or every position is 0
    options = {"distribution": distribution, "mean": mean, "max_length": max_length, "alpha": alpha}
    drawn = _Bound(equal_mean_positions, **options)
    return _encoder("equal-mean", layers, drawn, None, dim=dim, base=base, **knobs)


def _skip_positions(*, layers: int, dim: int, max_length: int = 2048, base: float = 10_000.0, **knobs: Any) -> Method:
    """0, 1, 2, … with one random jump in training (PoSE), and without it at test: a server runs plain RoPE."""
    check_parts("layers", layers)
    check_count("max_length", max_length, least=2)
    test = scheme("rope", dim=dim, base=base, **knobs)
    train = test.replace(scale=_trained_scale(test.scale))
    drawn = _Bound(skip_positions, max_length=max_length)
    return Method("skip-positions", (train,) * layers, (test,) * layers, drawn)


class _Methods(dict[str, Callable[..., Method]]):
    def __missing__(self, name: Any) -> Callable[..., Method]:
        raise KeyError(not_among("name", name, self))


# The rows of the table. What changes only at test is trained as RoPE.
METHODS: dict[str, Callable[..., Method]] = _Methods(
    {
        **{name: _row(name) for name in SCHEMES},
        "invleaky": _listed("invleaky", _invleaky, {}),
        "invleaky-moving": _listed("invleaky-moving", _invleaky_moving, {}),
        "random-positions": _listed("random-positions", _random_positions, {}),
        "equal-mean": _listed("equal-mean", _equal_mean, {}),
        "skip-positions": _listed("skip-positions", _skip_positions, {}),
        "self-extend": _listed("self-extend", _self_extend, {}),
        "streaming": _listed("streaming", _streaming, {}),
        "hwfa": _listed("hwfa", _hwfa),
        "hfwa": _listed("hfwa", _hwfa),  # the spelling of the articles' tables
        "hwfa2": _listed("hwfa2", _hwfa2),
    }
)
