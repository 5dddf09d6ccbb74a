"""The rows of the scoreboard: what is trained, and what is tested. Chapter 12."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from rope_lessons._checks import check_count, check_positive
from rope_lessons.kinds import KINDS
from rope_lessons.lab.rows import TableRow
from rope_lessons.methods import METHODS, Method
from rope_lessons.schemes import LogN, Scheme, scheme

# Frequencies that are changed at the test alone. LongRoPE's lists are searched for, and come with the search.
CHANGED = ("pi", "ntk-old", "ntk-fixed", "ntk-aware", "ntk-mixed", "dynamic-ntk", "ntk-by-parts", "yarn", "llama3")
BASES = (100.0, 1_000.0, 100_000.0, 1_000_000.0)  # in training; that of all others is 10 000
MAIN = ("rope", "rope-logn", "invleaky-w16-logn", "hwfa2-w16-logn")  # trainings with five seeds, and at the test length


@cache
def rows(layers: int, dim: int, train_length: int, factor: float = 8.0) -> dict[str, TableRow]:
    r"""All rows by name, in the order of the table.

    Names end with what is added: ``-logn`` is the log n scale in training and at test, ``-logn-test`` its clipped form
    at test only (log n† in the book), ``-window`` the training tested with a window of the training length.

    Args:
        layers: of the model, at least 2.
        dim: channels of a head.
        train_length: :math:`N`, a multiple of 16.
        factor: :math:`\kappa`: how much longer than :math:`N` the methods are set for, at least 1.

    Raises:
        TypeError, ValueError: values out of range.

    Chapter 12.

    >>> table = rows(layers=4, dim=32, train_length=64)
    >>> table["rerope-w32"].method.test[0]
    Scheme(FrequencySpec('rope', dim=32), window=32, slope=0.0)
    """
    check_count("layers", layers, least=2)
    check_count("train_length", train_length, least=16)
    check_positive("factor", factor)
    if train_length % 16:
        raise ValueError(f"train_length must be a multiple of 16, got {train_length}")
    if factor < 1:
        raise ValueError(f"factor must be at least 1, got {factor}")
    made = list(_Maker(layers, dim, train_length, factor).all())
    return {row.name: row for row in (*made, *_windows(made, train_length))}


def _windows(made: list[TableRow], length: int) -> Iterator[TableRow]:
    """The control of every training: its own plan, but nobody sees farther than in training."""
    seen = []
    for row in made:
        if row.training in seen:
            continue
        seen.append(row.training)
        if any(layer.visible_window is None for layer in row.method.train):
            test = tuple(
                layer if layer.visible_window is not None else layer.replace(visible_window=length)
                for layer in row.method.train
            )
            yield TableRow(f"{row.name}-window", replace(row.method, test=test, attend=None), row.normalized)


def as_tuned(row: TableRow) -> TableRow:
    """A row whose training has the plan of its test."""
    return TableRow(row.name, replace(row.method, train=row.method.test, schedule=None), row.normalized)


@dataclass(frozen=True)
class _Maker:
    """The rows, a part of the table at a time."""

    layers: int
    dim: int
    length: int
    factor: float

    def all(self) -> Iterator[TableRow]:
        for part in (self.frequencies, self.bent, self.local, self.trained, self.hybrids, self.still, self.bases):
            yield from part()

    def row(self, name: str, method: str, **options: Any) -> TableRow:
        return TableRow(name, METHODS[method](layers=self.layers, dim=self.dim, **options))

    def scaled(self, name: str, method: str, **options: Any) -> Iterator[TableRow]:
        """Plain, log n and log n†."""
        scales = {"": None, "-logn": LogN(self.length), "-logn-test": LogN(self.length, clip=True)}
        for suffix, scale in scales.items():
            yield self.row(name + suffix, method, **options, scale=scale)

    def frequencies(self) -> Iterator[TableRow]:
        yield from self.scaled("rope", "rope")
        for name in CHANGED:
            yield from self.scaled(name, name, **KINDS[name].extended(self.dim, self.factor, self.length))
        yarn = KINDS["yarn"].extended(self.dim, self.factor, self.length)
        yield from self.scaled("yarn-without-factor", "yarn", **yarn, rotary_scale=1.0)

    def bent(self) -> Iterator[TableRow]:
        for window in (self.length // 4, self.length // 2):
            yield from self.scaled(f"rerope-w{window}", "rerope", window=window)
        window, group = self.length // 2, 2 * int(self.factor)
        yield from self.scaled(f"leaky-rerope-w{window}", "leaky-rerope", window=window, slope=1 / group)
        yield from self.scaled(f"self-extend-w{window}", "self-extend", window=window, group=group)

    def local(self) -> Iterator[TableRow]:
        yield self.row("lambda", "lambda", visible_window=self.length - 4, sinks=4)  # N tokens in all
        yield self.row("streaming", "streaming", visible_window=self.length - 4, sinks=4)
        # LM-Infinite: the Λ mask, and distances that stop growing at the window.
        lm_infinite: dict[str, Any] = {"window": self.length - 5, "visible_window": self.length - 4, "sinks": 4}
        yield self.row("lm-infinite", "rerope", **lm_infinite)
        yield self.row("window-8", "window", visible_window=self.length // 8)
        yield self.row("alibi", "alibi")

    def trained(self) -> Iterator[TableRow]:
        window, slope = self.length // 4, 2 * int(self.factor)
        log_n = LogN(self.length)
        yield self.row(f"invleaky-w{window}-logn", "invleaky", window=window, slope=slope, scale=log_n)
        yield self.row(f"invleaky-w{window}", "invleaky", window=window, slope=slope)
        visited = {
            "moving": (range(window, window + slope), (slope,)),
            # Controls: distances are jittered as much, but the residues modulo the slope that training visits stay.
            "same-residue": (range(window, window + 4 * slope, slope), (slope,)),
            "slopes": ((window,), (slope, 2 * slope)),
        }
        for name, (windows, slopes) in visited.items():
            options: dict[str, Any] = {"windows": tuple(windows), "slopes": slopes, "scale": log_n}
            yield self.row(f"invleaky-{name}-logn", "invleaky-moving", **options)

    def hybrids(self) -> Iterator[TableRow]:
        window = self.length // 4
        yield self.row(f"hwfa-w{window}", "hwfa", visible_window=window, train_length=self.length)
        hwfa2: dict[str, Any] = {"visible_window": window, "window": self.length // 2}
        yield self.row(f"hwfa2-w{window}-logn", "hwfa2", **hwfa2, train_length=self.length)
        yield self.row(f"hwfa2-w{window}", "hwfa2", **hwfa2)

    def still(self) -> Iterator[TableRow]:
        """Layers or pairs that do not turn."""
        for suffix, scale in (("", None), ("-logn", LogN(self.length))):
            yield self.row(f"nope{suffix}", "nope", scale=scale)
            turning, none = scheme("rope", dim=self.dim, scale=scale), scheme("nope", scale=scale)
            fourth = tuple(none if layer % 4 == 3 else turning for layer in range(self.layers))
            yield _same(f"nope-every-fourth{suffix}", *fourth)
        half = scheme("rope", dim=self.dim // 2)
        yield _same("partial-rotary", *(half,) * self.layers)

    def bases(self) -> Iterator[TableRow]:
        for base in BASES:
            yield self.row(f"rope-b{base:g}", "rope", base=base)


def _same(name: str, *plan: Scheme) -> TableRow:
    """A row that is tested as it is trained."""
    return TableRow(name, Method(name, plan, plan))
