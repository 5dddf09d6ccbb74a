"""Everything that a call of ``attention`` depends on, as plain values: a case is drawn, printed and made again.

A case prints itself as Python. ``from tests.fuzz.case import *`` has all names that it needs. PyTorch is enough to make
one; ``cases.py`` draws them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rope_lessons import FrequencySpec, LogN, Scheme
from tests.fuzz.memory import PLAIN, Memory, shown

__all__ = ["Bias", "Case", "FrequencySpec", "LogN", "Memory", "Positions", "Scheme", "inf", "nan"]
inf, nan = float("inf"), float("nan")
CPU = torch.device("cpu")

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
INPUTS = ("q", "k", "v", "bias", "frequencies")


@dataclass(frozen=True, repr=False)
class Positions:
    """Positions of the tokens.

    Args:
        kind: ``"even"`` (start, start + step, …), ``"fractional"`` (the same in float64, with a step that is none),
            ``"jumps"`` (sorted, uneven), ``"unordered"``, or ``"same"``.
        start, step: of an even row.
        rows: each row of the batch has its own.
        given: ``"both"``, the queries' being the last of the keys'; ``"apart"``, the queries' drawn on their own; or
            one of ``"q"`` and ``"k"`` alone, for as many queries as keys.
    """

    kind: str = "even"
    start: int = 0
    step: int = 1
    rows: bool = False
    given: str = "both"

    __repr__ = shown

    def __call__(self, batch: int, tokens: int, generator: torch.Generator) -> Tensor:
        count = batch if self.rows else 1
        steps = torch.arange(tokens).expand(count, -1)
        spread = 3 * tokens * self.step
        drawn = torch.randint(-spread, spread + 1, (count, tokens), generator=generator)
        own = torch.randint(0, 50, (count, 1), generator=generator) * self.rows  # rows start apart
        found = {
            "even": steps * self.step,
            "fractional": steps.double() * (self.step * 0.37) + 0.25,
            "jumps": drawn.sort(dim=-1).values,
            "unordered": drawn,
            "same": steps * 0,
        }[self.kind]
        found = found + own + self.start
        return found if self.rows else found[0]


@dataclass(frozen=True, repr=False)
class Bias:
    """A bias.

    Args:
        axes: for each axis of ``(batch, heads, q_len, k_len)`` from the first one that it has, whether it has it in
            full or broadcasts.
        dtype: its own.
        hidden: share of its entries that are minus infinity.
        memory: how it lies.
    """

    axes: tuple[bool, ...] = (True, True, True, True)
    dtype: str = "float32"
    hidden: float = 0.0
    memory: Memory = PLAIN

    __repr__ = shown


@dataclass(frozen=True, repr=False)
class Case:
    """A call of ``attention``, forward and backward.

    Args:
        scheme: its knobs.
        seed: of all numbers in tensors.
        batch, kv_heads, group, q_len, before, head_dim, value_dim: sizes. There are ``group`` heads to a key head,
            and ``before`` keys before the first query's own.
        dtype: of queries, keys and values.
        size: standard deviation of queries and keys.
        q, k, v: how they lie in memory. ``grad``: so does the incoming gradient.
        positions: None for 0, 1, 2, …
        documents: for each row (or one for all) runs of ids, as ``((id, tokens), …)``; the last run goes on.
        lengths: real tokens of each row.
        padding: what padded tokens hold, None for numbers like the others.
        bias: or None.
        frequencies: how many pairs a tensor of the caller's own has, in place of the scheme's; or None. With
            ``per_head`` each head has a row of its own.
        length: of the text, where it is given.
        requires: the inputs that require gradients.
        through: what the gradient comes through: ``"output"``, ``"lse"`` or ``"both"``.
        strided: integer tensors are every second number of a larger one.
    """

    scheme: Scheme = Scheme()  # noqa: RUF009 (it is frozen)
    seed: int = 0
    batch: int = 1
    kv_heads: int = 1
    group: int = 1
    q_len: int = 1
    before: int = 0
    head_dim: int = 2
    value_dim: int = 1
    dtype: str = "float64"
    size: float = 1.0
    q: Memory = PLAIN
    k: Memory = PLAIN
    v: Memory = PLAIN
    grad: Memory = PLAIN
    positions: Positions | None = None
    documents: tuple[tuple[tuple[int, int], ...], ...] | None = None
    lengths: tuple[int, ...] | None = None
    padding: float | None = None
    bias: Bias | None = None
    frequencies: int | None = None
    per_head: bool = False
    length: int | None = None
    requires: tuple[str, ...] = ()
    through: str = "output"
    strided: bool = False

    __repr__ = shown

    @property
    def heads(self) -> int:
        return self.kv_heads * self.group

    @property
    def k_len(self) -> int:
        return self.q_len + self.before


class Inputs(NamedTuple):
    """The tensors of a case."""

    q: Tensor
    k: Tensor
    v: Tensor
    options: dict[str, Any]  # keyword arguments of attention
    grad: Tensor
    grad_lse: Tensor

    def tensor(self, name: str) -> Tensor:
        return getattr(self, name) if name in self._fields else self.options[name]


def build(case: Case, device: torch.device = CPU) -> Inputs:
    """The tensors of a case: the same numbers on every device."""
    generator = torch.Generator().manual_seed(case.seed)
    dtype = DTYPES[case.dtype]

    def normal(*shape: int, size: float = 1.0, memory: Memory = PLAIN, dtype: torch.dtype = dtype) -> Tensor:
        x = torch.randn(shape, generator=generator, dtype=torch.float64) * size
        return memory.same(x.to(dtype)).to(device)

    def lay(x: Tensor) -> Tensor:
        """An integer tensor."""
        x = x.to(device)
        return torch.stack((x, x), dim=-1).flatten(-2)[..., ::2] if case.strided else x

    (batch, heads, q_len, k_len), last = (case.batch, case.heads, case.q_len, case.k_len), slice(case.before, None)
    q = normal(batch, heads, q_len, case.head_dim, size=case.size, memory=case.q)
    k = normal(batch, case.kv_heads, k_len, case.head_dim, size=case.size, memory=case.k)
    v = normal(batch, case.kv_heads, k_len, case.value_dim, memory=case.v)
    grad = normal(batch, heads, q_len, case.value_dim, memory=case.grad)
    grad_lse = normal(batch, heads, q_len, dtype=torch.promote_types(dtype, torch.float32))
    options: dict[str, Any] = {}
    if case.lengths is not None:
        options["lengths"] = lay(torch.tensor(case.lengths, dtype=torch.int64))
    if case.documents is not None:
        rows = [torch.tensor(_ids(runs, k_len), dtype=torch.int64) for runs in case.documents]
        shared = len(rows) == 1
        options["document_ids"] = lay(rows[0] if shared else torch.stack(rows))
    if case.padding is not None:
        fake = _padding(case, options).to(device)[:, None, :, None]
        q, k, v = (
            x if {0, 2} & set(memory.shared) else x.masked_fill(where, case.padding)  # rows that are one differ nowhere
            for x, memory, where in ((q, case.q, fake[:, :, last]), (k, case.k, fake), (v, case.v, fake))
        )
    if case.positions is not None:
        k_positions = case.positions(batch, k_len, generator)
        q_positions = k_positions[..., last]
        if case.positions.given == "apart":
            q_positions = case.positions(batch, q_len, generator) + case.before
        if case.positions.given != "k":
            options["q_positions"] = lay(q_positions)
        if case.positions.given != "q":
            options["k_positions"] = lay(k_positions)
    if case.bias is not None:
        full = (batch, heads, q_len, k_len)[4 - len(case.bias.axes) :]
        shape = [n if whole else 1 for n, whole in zip(full, case.bias.axes, strict=True)]
        bias = normal(*shape, dtype=DTYPES[case.bias.dtype])
        hidden = torch.rand(shape, generator=generator) < case.bias.hidden
        options["bias"] = case.bias.memory.lay(case.bias.memory.same(bias.masked_fill(hidden.to(device), -inf)))
    if case.frequencies is not None:
        by_head = (heads,) if case.per_head else ()
        drawn = torch.rand((*by_head, case.frequencies), generator=generator, dtype=torch.float64)
        options["frequencies"] = drawn.to(device) * 1.5
    if case.length is not None:
        options["length"] = case.length
    return Inputs(case.q.lay(q), case.k.lay(k), case.v.lay(v), options, case.grad.lay(grad), grad_lse)


def _ids(runs: tuple[tuple[int, int], ...], tokens: int) -> list[int]:
    ids = [number for number, count in runs for _ in range(count)]
    return (ids + [runs[-1][0]] * tokens)[:tokens]


def _padding(case: Case, options: dict[str, Any]) -> Tensor:
    """Boolean ``(batch, k_len)``: tokens that are none."""
    fake = torch.zeros(case.batch, case.k_len, dtype=torch.bool)
    if "lengths" in options:
        fake = fake | (torch.arange(case.k_len) >= options["lengths"].cpu().unsqueeze(-1))
    if "document_ids" in options:
        fake = fake | (options["document_ids"].cpu() < 0)
    return fake
