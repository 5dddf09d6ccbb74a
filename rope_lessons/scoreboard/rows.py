"""The rows of the scoreboard: what is trained, and what is tested. Chapter 12."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rope_lessons.circles import turns, yarn_attention_factor
from rope_lessons.kinds import KINDS
from rope_lessons.lab.rows import Maker, TableRow, table_of
from rope_lessons.methods import Method
from rope_lessons.models.position_bias import BIASES
from rope_lessons.schemes import Scheme, scheme
from rope_lessons.sinusoidal import rope_frequencies
from rope_lessons.stored import DATA, read_results

# Frequencies that are changed at the test alone. LongRoPE's factors are searched for: its rows are there once they are
# found.
CHANGED = ("pi", "ntk-old", "ntk-fixed", "ntk-aware", "ntk-mixed", "dynamic-ntk", "ntk-by-parts", "yarn", "llama3")
HALF_A_TURN = {"alpha": 0.5, "beta": 2.0}  # limits of NTK-by-parts, lower than anybody ships; chosen on validation text
HEAD_BASES = (100.0, 1_000.0, 10_000.0, 100_000.0)  # of the heads in turn: fast ones for near words, slow for far ones
LONGROPE = DATA / "longrope.json"
BASES = (100.0, 1_000.0, 100_000.0, 1_000_000.0)  # in training; that of all others is 10 000
MAIN = ("rope", "rope-logn", "invleaky-w16-logn", "hwfa2-w16-logn")  # trainings with five seeds, and at the test length
TUNED = ("rope", "pi", "ntk-aware", "yarn", "longrope", "rerope-w32")  # what a trained model is tuned for


def rows(layers: int, dim: int, train_length: int, factor: float = 8.0) -> dict[str, TableRow]:
    r"""All rows by name, in the order of the table.

    Names end with what is added: ``-logn`` is the log n scale in training and at test, ``-logn-test`` its clipped form
    at test only (log n† in the book), ``-window`` the training tested with a window of the training length.

    Args:
        layers: of the model, at least 2.
        dim: channels of a head.
        train_length: :math:`N`, a multiple of 16.
        factor: :math:`\kappa`: how much longer than :math:`N` the methods are set for, at least 1. That length is at
            most :math:`2^{31}`.

    Raises:
        TypeError, ValueError: values out of range.

    Chapter 12.

    >>> table = rows(layers=4, dim=32, train_length=64)
    >>> table["rerope-w32"].method.test[0]
    Scheme(FrequencySpec('rope', dim=32), window=32, slope=0.0)
    """
    return table_of(_Scoreboard(layers, dim, train_length, factor))


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
            yield replace(row, name=f"{row.name}-window", method=replace(row.method, test=test, attend=None))


def as_tuned(row: TableRow) -> TableRow:
    """A row whose training has the plan of its test."""
    return replace(row, method=replace(row.method, train=row.method.test, schedule=None))


def longrope_options(factors: tuple[float, ...], train_length: int, factor: float) -> dict[str, Any]:
    """What a LongRoPE scheme takes: the factors beyond the training length, and plain RoPE up to it."""
    lists = {"short_factor": (1.0,) * len(factors), "long_factor": factors}
    return {**lists, "train_length": train_length, "factor": factor}


def searched(dim: int, train_length: int, factor: float) -> dict[str, tuple[float, ...]]:
    """The factors that a search found for a model, by the name of the search; nothing where none is stored.

    ``python -m experiments longrope`` searches. Chapter 05.
    """
    if not LONGROPE.exists():
        return {}
    stored = read_results(LONGROPE)
    if (stored["dim"], stored["train_length"], stored["factor"]) != (dim, train_length, factor):
        return {}
    return {name: tuple(found["long_factor"][-1]) for name, found in stored["searches"].by("name").items()}


def shifted(length: int, first: int, *, device: torch.device | str | None = None) -> Tensor:
    """Positions of a text that begins later, int64 ``(length,)``: what a relative encoding does not notice.

    >>> shifted(3, first=64)
    tensor([64, 65, 66])
    """
    return torch.arange(first, first + length, device=device)


def stretched(length: int, train_length: int, *, device: torch.device | str | None = None) -> Tensor:
    """Positions of a longer text squeezed into those of training, float64 ``(length,)``: its first and last token have
    the first and last position. How a learned table is read at a length that it was not made for.

    >>> stretched(5, train_length=3)
    tensor([0.0000, 0.5000, 1.0000, 1.5000, 2.0000], dtype=torch.float64)
    """
    step = (train_length - 1) / (length - 1) if length > train_length else 1.0
    return step * torch.arange(length, dtype=torch.float64, device=device)


class _Scoreboard(Maker):
    """The rows of the scoreboard, and of every training the control."""

    def all(self) -> Iterator[TableRow]:
        made: list[TableRow] = []
        parts = (
            self.frequencies,
            self.slowed,
            self.requests,
            self.bent,
            self.local,
            self.trained,
            self.hybrids,
            self.still,
            self.bases,
            self.added,
            self.positions,
            self.biased,
        )
        for part in parts:
            made += part()
        yield from made
        yield from _windows(made, self.train_length)

    def frequencies(self) -> Iterator[TableRow]:
        yield from self.scaled("rope", "rope")
        for name in CHANGED:
            yield from self.scaled(name, name, **KINDS[name].extended(self.dim, self.factor, self.train_length))
        yarn = KINDS["yarn"].extended(self.dim, self.factor, self.train_length)
        yield from self.scaled("yarn-without-factor", "yarn", **yarn, rotary_scale=1.0)
        parts = KINDS["ntk-by-parts"].extended(self.dim, self.factor, self.train_length)
        for suffix, scale in (("", 1.0), ("-factor", yarn_attention_factor(self.factor))):
            yield self.row(f"by-parts-half{suffix}", "ntk-by-parts", **{**parts, **HALF_A_TURN}, rotary_scale=scale)
        for name, factors in searched(self.dim, self.train_length, self.factor).items():
            alone: dict[str, Any] = {"rotary_scale": 1.0} if name.endswith("-without-factor") else {}
            options = longrope_options(factors, self.train_length, self.factor) | alone
            yield from self.scaled(name, "longrope", **options)

    def slowed(self) -> Iterator[TableRow]:
        """Some pairs alone are slowed, by the turns that they make in training: what does it cost at home?"""
        plain = rope_frequencies(self.dim)
        turned, whole = turns(plain, self.train_length), torch.full_like(plain, self.factor)
        llama3 = plain / KINDS["llama3"].function(self.dim, self.factor, self.train_length)
        chosen = {
            "below-a-quarter": (turned < 0.25, whole),
            "from-a-quarter": ((turned >= 0.25) & (turned < 1), whole),
            "open": (turned < 1, whole),
            "closed": (turned >= 1, llama3),
        }
        for name, (pairs, by) in chosen.items():
            factors = tuple(torch.where(pairs, by, torch.ones_like(by)).tolist())
            lists: dict[str, Any] = {"short_factor": factors, "long_factor": factors, "train_length": self.train_length}
            yield self.row(f"slowed-{name}", "longrope", **lists, factor=self.factor, rotary_scale=1.0)

    def requests(self) -> Iterator[TableRow]:
        """Set for texts of twice and of four times the training length, as for a request of that length."""
        for name in ("pi", "ntk-aware", "llama3", "yarn"):
            for factor in (2.0, 4.0):
                options = KINDS[name].extended(self.dim, factor, self.train_length)
                yield self.row(f"{name}-x{factor:g}", name, **options)

    def bent(self) -> Iterator[TableRow]:
        for window in (self.train_length // 4, self.train_length // 2):
            yield from self.scaled(f"rerope-w{window}", "rerope", window=window)
        window, group = self.train_length // 2, 2 * int(self.factor)
        yield from self.scaled(f"leaky-rerope-w{window}", "leaky-rerope", window=window, slope=1 / group)
        yield from self.scaled(f"self-extend-w{window}", "self-extend", window=window, group=group)

    def local(self) -> Iterator[TableRow]:
        length = self.train_length
        yield self.row("lambda", "lambda", visible_window=length - 4, sinks=4)  # N tokens in all
        yield self.row("streaming", "streaming", visible_window=length - 4, sinks=4)
        # LM-Infinite: the Λ mask, and distances that stop growing at the window.
        lm_infinite: dict[str, Any] = {"window": length - 5, "visible_window": length - 4, "sinks": 4}
        yield self.row("lm-infinite", "rerope", **lm_infinite)
        yield self.row("window-8", "window", visible_window=length // 8)
        yield self.row("alibi", "alibi")

    def trained(self) -> Iterator[TableRow]:
        window, slope = self.train_length // 4, 2 * int(self.factor)
        yield self.row(f"invleaky-w{window}-logn", "invleaky", window=window, slope=slope, scale=self.log_n)
        yield self.row(f"invleaky-w{window}", "invleaky", window=window, slope=slope)
        # Its tuning: other slopes and windows.
        for other in (slope // 2, slope * 11 // 16):
            yield self.row(f"invleaky-r{other}-logn", "invleaky", window=window, slope=other, scale=self.log_n)
        for other in (window // 2, 2 * window):
            yield self.row(f"invleaky-w{other}-logn", "invleaky", window=other, slope=slope, scale=self.log_n)
        visited = {
            "moving": (range(window, window + slope), (slope,)),
            # Controls: distances are jittered as much, but the residues modulo the slope that training visits stay.
            "same-residue": (range(window, window + 4 * slope, slope), (slope,)),
            "slopes": ((window,), (slope, 2 * slope)),
            # As few maps as the first control has, and gaps of a quarter: is it the gaps, or how many maps there are?
            "quarter-gaps": (range(window, window + slope, slope // 4), (slope,)),
            # As many maps as that and wide gaps; far pairs are practised three quarters as often.
            "four-slopes": ((window,), tuple(k * slope for k in (1, 2, 3, 4))),
        }
        for name, (windows, slopes) in visited.items():
            options: dict[str, Any] = {"windows": tuple(windows), "slopes": slopes, "scale": self.log_n}
            yield self.row(f"invleaky-{name}-logn", "invleaky-moving", **options)
        yield self.row("invleaky-moving", "invleaky-moving", windows=tuple(visited["moving"][0]), slopes=(slope,))

    def hybrids(self) -> Iterator[TableRow]:
        window = self.train_length // 4
        yield self.row(f"hwfa-w{window}", "hwfa", visible_window=window, train_length=self.train_length)
        hwfa2: dict[str, Any] = {"visible_window": window, "window": self.train_length // 2}
        yield self.row(f"hwfa2-w{window}-logn", "hwfa2", **hwfa2, train_length=self.train_length)
        yield self.row(f"hwfa2-w{window}", "hwfa2", **hwfa2)

    def still(self) -> Iterator[TableRow]:
        """Layers or pairs that do not turn."""
        for suffix, scale in (("", None), ("-logn", self.log_n)):
            yield self.row(f"nope{suffix}", "nope", scale=scale)
            turning, none = scheme("rope", dim=self.dim, scale=scale), scheme("nope", scale=scale)
            fourth = tuple(none if layer % 4 == 3 else turning for layer in range(self.layers))
            yield _same(f"nope-every-fourth{suffix}", *fourth)
        half = scheme("rope", dim=self.dim // 2)
        yield _same("partial-rotary", *(half,) * self.layers)
        turning = scheme("proportional", dim=self.dim, share=0.75)  # the share that is best in its paper
        yield _same("p-rope", *(turning,) * self.layers)

    def bases(self) -> Iterator[TableRow]:
        for base in BASES:
            yield self.row(f"rope-b{base:g}", "rope", base=base)
        yield replace(self.row("rope-per-head", "rope"), bases=HEAD_BASES)

    def added(self) -> Iterator[TableRow]:
        """Encodings that are added to the tokens, in a model whose attention knows no positions.

        A learned table has as many rows as training has positions. A longer text, or one that begins later, has no rows
        there: such a model refuses it, so what is tested is its own length, and the table stretched over more.
        """
        plan = (scheme("nope"),) * self.layers
        for encoding, table in (("sinusoidal", 0), ("learned", self.train_length)):
            row = replace(_same(encoding, *plan), encoding=encoding, table=table)
            yield row
            pi = partial(stretched, train_length=self.train_length)
            yield replace(row, name=f"{encoding}-pi", method=replace(row.method, test_positions=pi))
            if not table:
                later = partial(shifted, first=self.train_length)
                yield replace(row, name=f"{encoding}-shifted", method=replace(row.method, test_positions=later))

    def positions(self) -> Iterator[TableRow]:
        """Random positions in training; at test spread over as many, or 0, 1, 2, …. To spread them, the model is told
        how long the text will be, which a decoder does not know."""
        most = int(2 * self.factor * self.train_length)
        spread = self.row("random-positions", "random-positions", causal=True, max_length=most)
        yield spread
        yield replace(spread, name="random-positions-ordinary", method=replace(spread.method, test_positions=None))
        even, window = self.row("equal-mean", "equal-mean", causal=True), self.train_length // 2
        yield even
        # What stops them at length: distances, the number of steps, or how many keys there are?
        for name, kind, options in (
            ("rope", "rope", {}),
            ("pi", "pi", {"factor": self.factor}),
            (f"rerope-w{window}", "rerope", {"window": window}),
        ):
            for row in self.scaled(name, kind, **options):
                if row.method.train == even.method.train and row.name != "rope":
                    changed = replace(even.method, test=row.method.test)
                    yield replace(even, name=f"equal-mean-{row.name.removeprefix('rope-')}", method=changed)
        longest = int(self.factor * self.train_length)
        for suffix, scale in (("", None), ("-logn", self.log_n)):
            yield self.row(f"skip-positions{suffix}", "skip-positions", max_length=longest, scale=scale)

    def biased(self) -> Iterator[TableRow]:
        """Biases, in a model whose attention turns nothing; and xPos, which turns and fades, over half of the training
        length, as its paper has it."""
        plan = (scheme("nope"),) * self.layers
        for bias in BIASES:
            yield replace(_same(bias, *plan), bias=bias, bias_length=self.train_length)
        yield replace(_same("xpos", *plan), xpos=self.train_length // 2)


def _same(name: str, *plan: Scheme) -> TableRow:
    """A row that is tested as it is trained."""
    return TableRow(name, Method(name, plan, plan))
