"""The rows of the results table: methods of the book, for one size of model, one training length and one factor.

A row is a :class:`~rope_lessons.Method` and what no plan of schemes can say: which vectors are normalized, what is
added to the tokens, heads with bases of their own. Rows that are trained alike share a model: most methods act at test
only. Chapter 12.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import log
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from rope_lessons._checks import check_choice, check_count, check_positive
from rope_lessons.biases import apply_xpos
from rope_lessons.engine import attention
from rope_lessons.kinds import KINDS
from rope_lessons.methods import METHODS, Method
from rope_lessons.schemes import LogN
from rope_lessons.sinusoidal import rope_frequencies

NORMALIZED = ("", "k", "q", "qk")
TRIED = ("pi", "ntk-old", "ntk-fixed", "ntk-mixed", "ntk-aware", "dynamic-ntk", "yarn")  # kinds that were measured
OWN = "as trained"  # the plan of training itself, at the training length: what the tax is counted from


@dataclass(frozen=True)
class TableRow:
    """A row of the table.

    Args:
        name: what the command line and the table call it. ``-logn`` is the log n scale in training and at test,
            ``-logn-test`` its clipped form at test only (log n† in the book), ``-w`` a window, ``-k`` the divisor of
            far distances, ``-f`` a number of full layers.
        method: what is trained, and what is tested.
        normalized: which of queries and keys are divided by their length: ``""``, ``"k"``, ``"q"`` or ``"qk"``.
        encoding, table, bias, bias_length: of the model, as
            :class:`~rope_lessons.models.transformer.TransformerConfig` has them.
        bases: of the heads, which take them in turn, in the place of those of the schemes; none if empty.
        xpos: over how many positions its pairs fade, where it is xPos, whose schemes turn nothing; 0 for others.

    Raises:
        TypeError, ValueError: another ``normalized``; bases that are no positive numbers; a negative ``xpos``.

    Chapter 12.
    """

    name: str
    method: Method
    normalized: str = ""
    encoding: str = ""
    table: int = 0
    bases: tuple[float, ...] = ()
    bias: str = ""
    bias_length: int = 0
    xpos: int = 0

    def __post_init__(self) -> None:
        check_choice("normalized", self.normalized, NORMALIZED)
        check_count("xpos", self.xpos)
        for base in self.bases:
            check_positive("each of bases", base)

    @property
    def outside(self) -> dict[str, Any]:
        """What of the training no plan says, by name; nothing for most rows."""
        names = ("encoding", "table", "bases", "bias", "bias_length", "xpos")
        return {name: value for name in names if (value := getattr(self, name))}

    @property
    def training(self) -> Any:
        """What decides the weights. Rows in which it is equal share a model."""
        method = self.method
        return method.train, method.schedule, method.train_positions, self.normalized, *self.outside.items()

    @property
    def longest(self) -> int | None:
        """The longest text that a row can read, or None. A learned table ends, unless it is stretched at test."""
        return self.table if self.table and self.method.test_positions is None else None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scheme: Any, **options: Any) -> Tensor:
        """The attention of a model of this row, to be handed to its ``forward``."""
        q, k = (_unit(x) if name in self.normalized else x for name, x in (("q", q), ("k", k)))
        if self.bases:
            options["frequencies"] = self._frequencies(heads=q.shape[1], dim=scheme.rotary_dim, device=q.device)
        if self.xpos:
            where = torch.arange(q.shape[2], device=q.device)
            own = rope_frequencies(q.shape[3], device=q.device)
            q, k = apply_xpos(q, k, where, own, layout=scheme.layout, scale_base=self.xpos)
        return (self.method.attend or attention)(q, k, v, scheme, **options)

    def _frequencies(self, heads: int, dim: int, device: torch.device) -> Tensor:
        """Those of each head, ``(heads, dim/2)``."""
        of_bases = [rope_frequencies(dim, base, device=device) for base in self.bases]
        return torch.stack([of_bases[head % len(of_bases)] for head in range(heads)])


def _unit(x: Tensor) -> Tensor:
    return F.normalize(x.float(), dim=-1).to(x.dtype)


@dataclass(frozen=True)
class Maker:
    r"""Makes the rows of a table for one size of model; a table is a subclass, its rows are in :meth:`all`.

    Args:
        layers: of the model, at least 2.
        dim: channels of a head that turn.
        train_length: :math:`N`, a multiple of 16. A table may set more than that as its ``least``.
        factor: :math:`\kappa`: how much longer than :math:`N` the methods are set for, at least 1. That length is at
            most :math:`2^{31}`.

    Raises:
        TypeError, ValueError: values out of range.

    Chapter 12.

    >>> [row.name for row in Maker(layers=4, dim=64, train_length=64).scaled("rope", "rope")]
    ['rope', 'rope-logn', 'rope-logn-test']
    """

    layers: int
    dim: int
    train_length: int
    factor: float = 8.0
    least: ClassVar[int] = 16  # of train_length

    def __post_init__(self) -> None:
        check_count("layers", self.layers, least=2)
        check_count("train_length", self.train_length, least=self.least)
        check_positive("factor", self.factor)
        if self.train_length % 16:
            raise ValueError(f"train_length must be a multiple of 16, got {self.train_length}")
        most = 2**31 // self.train_length
        if not 1 <= self.factor <= most:
            length = f"for a train_length of {self.train_length}"
            raise ValueError(f"factor must be from 1 to {most} {length}, got {self.factor}")

    @property
    def log_n(self) -> LogN:
        """The scale that is 1 at the training length."""
        return LogN(self.train_length)

    def row(self, name: str, method: str, normalized: str = "", **options: Any) -> TableRow:
        """A row of a method with its options."""
        return TableRow(name, METHODS[method](layers=self.layers, dim=self.dim, **options), normalized)

    def scaled(self, name: str, method: str, **options: Any) -> Iterator[TableRow]:
        """Plain, log n and log n†."""
        scales = {"": None, "-logn": self.log_n, "-logn-test": LogN(self.train_length, clip=True)}
        for suffix, scale in scales.items():
            yield self.row(name + suffix, method, **options, scale=scale)

    def all(self) -> Iterator[TableRow]:
        """The rows of the table, in its order."""
        raise NotImplementedError


@cache
def _all_rows(maker: Maker) -> tuple[TableRow, ...]:
    """Kept: a hundred schemes check themselves, and a training asks often."""
    return tuple(maker.all())


def table_of(maker: Maker) -> dict[str, TableRow]:
    """The rows of a maker by name, in the order of its table."""
    return {row.name: row for row in _all_rows(maker)}


def rows(layers: int, dim: int, train_length: int, factor: float = 8.0) -> dict[str, TableRow]:
    r"""All rows by name, in the order of the table.

    Args:
        layers: of the model.
        dim: channels of a head that turn.
        train_length: :math:`N`, a multiple of 16, at least 32.
        factor: :math:`\kappa`: how much longer than :math:`N` the methods are set for, at least 1. That length is at
            most :math:`2^{31}`.

    Raises:
        TypeError, ValueError: values out of range.

    Source: the tables of Su's articles 9 to 15 (spaces.ac.cn/archives/9603, 9675, 9706, 9708, 9728, 9731, 9859), whose
    windows are taken as shares of :math:`N = 512`. Chapter 12.

    >>> table = rows(layers=4, dim=64, train_length=64)
    >>> table["rerope-w32"].method.test[0]
    Scheme(FrequencySpec('rope', dim=64), window=32, slope=0.0)
    """
    return table_of(_Articles(layers, dim, train_length, factor))


def trainings(table: Iterable[TableRow]) -> dict[str, list[TableRow]]:
    """The trainings that some rows need, each named after the first row that needs it, and the rows of each.

    >>> list(trainings(rows(layers=4, dim=64, train_length=64).values()))[:2]
    ['rope', 'rope-logn']
    """
    found: dict[Any, list[TableRow]] = {}
    for row in table:
        found.setdefault(row.training, []).append(row)
    return {members[0].name: members for members in found.values()}


def own_row(row: TableRow) -> TableRow:
    """The plan of training as a row."""
    method = replace(row.method, test=row.method.train, test_positions=None, attend=None)
    return replace(row, name=OWN, method=method)


def hwfa_window(train_length: int, layers: int) -> int:
    """The window of HWFA: the windows together see at most 3/4 of N; the largest power of two, as the 16 of the source.

    >>> hwfa_window(512, layers=24), hwfa_window(64, layers=4)
    (16, 16)
    """
    most = (3 * train_length // 4 - 1) // (layers - 1) + 1
    return int(2 ** (most.bit_length() - 1))


class _Articles(Maker):
    """The rows of the results table."""

    least = 32  # the smallest window, a sixteenth, is two tokens then

    def all(self) -> Iterator[TableRow]:
        for part in (self.baselines, self.frequencies, self.bent, self.local, self.in_training, self.hybrids):
            yield from part()
        yield from self.key_norms()
        yield from self.positions()

    def baselines(self) -> Iterator[TableRow]:
        yield from self.scaled("rope", "rope")

    def frequencies(self) -> Iterator[TableRow]:
        for name in TRIED:
            yield from self.scaled(name, name, **KINDS[name].extended(self.dim, self.factor, self.train_length))

    def bent(self) -> Iterator[TableRow]:
        for window in (self.train_length * eighths // 8 for eighths in (1, 2, 4, 6, 8)):
            yield from self.scaled(f"rerope-w{window}", "rerope", window=window)
        for window in (self.train_length // 4, self.train_length // 2):
            for k in (self.factor * times for times in (8, 4, 2, 1)):
                name = f"leaky-rerope-w{window}-k{k:g}-logn"
                yield self.row(name, "leaky-rerope", window=window, slope=1 / k, scale=self.log_n)

    def local(self) -> Iterator[TableRow]:
        yield self.row("window", "window", visible_window=self.train_length)
        yield self.row("lambda", "lambda", visible_window=self.train_length - 4, sinks=4)  # N tokens in all
        yield self.row("alibi", "alibi")
        yield self.row("nope", "nope")

    def in_training(self) -> Iterator[TableRow]:
        window, slope = self.train_length // 4, 2 * self.factor
        name = f"invleaky-w{window}-logn"
        yield self.row(name, "invleaky", window=window, slope=slope, scale=self.log_n)
        base = 10_000 * self.factor
        yield self.row(f"{name}-b{base:g}", "invleaky", window=window, slope=slope, scale=self.log_n, base=base)

    def hybrids(self) -> Iterator[TableRow]:
        length, window = self.train_length, hwfa_window(self.train_length, self.layers)
        yield self.row(f"hwfa-w{window}", "hwfa", visible_window=window, train_length=length)
        for full in (1, 2) if self.layers >= 4 else (1,):
            for window in (length // part for part in (16, 8, 4, 2)):
                options: dict[str, Any] = {"visible_window": window, "window": length // 2, "full_layers": full}
                yield self.row(f"hwfa2-w{window}-f{full}", "hwfa2", **options)
            # Article 14 does not say whether the full layers keep the log n of HWFA. Its own choice of window with it:
            options["visible_window"] = length // 8
            yield self.row(f"hwfa2-w{length // 8}-f{full}-logn", "hwfa2", **options, train_length=length)

    def key_norms(self) -> Iterator[TableRow]:
        """Key norm, query norm and both (cosine), each also with what is done at test only."""
        length = self.train_length
        cosine = {None: 4 * log(length / 2), self.log_n: 4 * log(length)}  # with log n: 4 log n in all
        for name, normalized in (("kna", "k"), ("qna", "q"), ("cosa", "qk")):
            for suffix, scale in (("", None), ("-logn", self.log_n)):
                shared = {"scale": scale, "base_scale": cosine[scale] if name == "cosa" else 1.0}
                tricks: dict[str, tuple[str, dict[str, Any]]] = {
                    "": ("rope", {}),
                    "-ntk-fixed": ("ntk-fixed", {"factor": self.factor}),
                    "-yarn": ("yarn", {"factor": self.factor, "train_length": length}),
                    f"-rerope-w{length // 4}": ("rerope", {"window": length // 4}),
                }
                for trick, (method, options) in tricks.items():
                    yield self.row(f"{name}{suffix}{trick}", method, normalized, **options, **shared)

    def positions(self) -> Iterator[TableRow]:
        """Random positions in training. A decoder does not know how long its text will be; these rows do."""
        for suffix, scale in (("", None), ("-logn", self.log_n)):
            yield self.row(f"equal-mean{suffix}", "equal-mean", causal=True, scale=scale)
        most = int(2 * self.factor * self.train_length)
        yield self.row("random-positions", "random-positions", causal=True, max_length=most)
