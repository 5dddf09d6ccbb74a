"""The five knobs of a row in words. Chapter 12."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rope_lessons.kinds import KINDS
from rope_lessons.lab.rows import TableRow
from rope_lessons.methods import Method
from rope_lessons.schemes import LogN, Scheme

KNOBS = ("frequencies", "distance", "scale", "visible", "positions")
_NORMALIZED = {"k": "unit k", "q": "unit q", "qk": "cosine"}


def knobs(row: TableRow) -> dict[str, str]:
    """The five knobs of a row in a few words each; what training has before an arrow, where the test has another.

    Args:
        row: of a table.

    Returns:
        ``{knob: words}`` for frequencies, distance map, scale, visibility and positions.

    Chapter 12.

    >>> from rope_lessons.lab.rows import rows
    >>> knobs(rows(layers=4, dim=64, train_length=64)["rerope-w32-logn-test"])["distance"]
    'true → 32 at most'
    """
    describe: dict[str, Callable[[Scheme], str]] = {
        "frequencies": _frequencies,
        "distance": _distance,
        "scale": partial(_scale, normalized=row.normalized),
        "visible": _visible,
    }
    found = {}
    for name, words in describe.items():
        phases = [_layers([words(scheme) for scheme in plan]) for plan in (row.method.train, row.method.test)]
        found[name] = " → ".join(dict.fromkeys(phases))
    found["positions"] = _positions(row.method)
    return found


def _layers(words: Sequence[str]) -> str:
    """One word for all layers, or how many layers have which."""
    kinds = list(dict.fromkeys(words))
    if len(kinds) == 1:
        return kinds[0]
    return "; ".join(f"{words.count(kind)} × {kind}" for kind in kinds)


def _frequencies(scheme: Scheme) -> str:
    if scheme.frequencies is None:
        return "none"
    kind, base = scheme.frequencies.kind, dict(scheme.frequencies.options)["base"]
    name = KINDS[kind].label
    return name if base == 10_000 else f"{name}, base {base:g}"


def _distance(scheme: Scheme) -> str:
    if scheme.frequencies is None:
        return "none"
    if scheme.slope == 1:
        return "true"
    if scheme.slope == 0:
        return f"{scheme.window:g} at most"
    step = f"{scheme.slope:g}" if scheme.slope > 1 else f"1/{1 / scheme.slope:g}"
    return f"from {scheme.window:g} in steps of {step}"


def _scale(scheme: Scheme, normalized: str) -> str:
    words = [] if not normalized else [_NORMALIZED[normalized]]
    if normalized == "qk":
        words = [f"{scheme.base_scale:.3g} cos"]
    if scheme.rotary_scale != 1:
        words.append(f"{scheme.rotary_scale**2:.3g}")
    if isinstance(scheme.scale, LogN):
        words.append("log n†" if scheme.scale.clip else "log n")
    return " × ".join(words) or "1"


def _visible(scheme: Scheme) -> str:
    words = "all before" if scheme.visible_window is None else f"last {scheme.visible_window}"
    words += f" and first {scheme.sinks}" if scheme.sinks else ""
    return words + (", ALiBi" if scheme.alibi else "")


def _positions(method: Method) -> str:
    drawn: Any = method.train_positions
    if drawn is None:
        return "0, 1, 2, …"
    name = drawn.func.__name__
    if name == "random_positions":
        return f"random below {drawn.keywords['max_length']} → even grid"
    return {"skip_positions": "jumps", "equal_mean_positions": "random step"}[name] + " → 0, 1, 2, …"
