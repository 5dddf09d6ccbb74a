"""Everything that a call of ``attention`` depends on, as plain values: a case is drawn, printed and made again.

A case prints itself as Python. ``from tests.fuzz.cases import *`` has all names that it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from hypothesis import assume
from hypothesis import strategies as st
from torch import Tensor

import rope_lessons as rl
from rope_lessons import FrequencySpec, LogN, Scheme
from rope_lessons.kinds import KINDS
from rope_lessons.schemes import SCHEMES
from tests.fuzz.memory import PLAIN, Memory, memories, shown

__all__ = ["Bias", "Case", "FrequencySpec", "LogN", "Memory", "Positions", "Scheme", "inf", "nan"]
inf, nan = float("inf"), float("nan")

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
INPUTS = ("q", "k", "v", "bias", "frequencies")
Draw = Callable[[st.SearchStrategy[Any]], Any]


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


def build(case: Case) -> Inputs:
    """The tensors of a case, on the CPU."""
    generator = torch.Generator().manual_seed(case.seed)
    dtype = DTYPES[case.dtype]

    def normal(*shape: int, size: float = 1.0, memory: Memory = PLAIN, dtype: torch.dtype = dtype) -> Tensor:
        x = torch.randn(shape, generator=generator, dtype=torch.float64) * size
        return memory.same(x.to(dtype))

    def lay(x: Tensor) -> Tensor:
        """An integer tensor."""
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
        fake = _padding(case, options)[:, None, :, None]
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
        options["bias"] = case.bias.memory.lay(case.bias.memory.same(bias.masked_fill(hidden, -inf)))
    if case.frequencies is not None:
        by_head = (heads,) if case.per_head else ()
        drawn = torch.rand((*by_head, case.frequencies), generator=generator, dtype=torch.float64)
        options["frequencies"] = drawn * 1.5
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
        fake = fake | (torch.arange(case.k_len) >= options["lengths"].unsqueeze(-1))
    if "document_ids" in options:
        fake = fake | (options["document_ids"] < 0)
    return fake


# --- drawing ---------------------------------------------------------------------------------------------------------

WINDOWS = st.integers(0, 20)
SLOPES = st.sampled_from([0.0, 0.125, 0.5, 1.0, 3.0, 16.0])
BASES = st.sampled_from([10_000.0, 2.0, 100, 500_000.0])
FACTORS = st.sampled_from([1, 2.0, 8, 0.5])
RARELY = st.integers(0, 9).map(lambda n: n == 9)
TRAINED = st.sampled_from([4, 7, 16, 64])


def _options_of(draw: Draw, kind: str, dim: int) -> dict[str, Any]:
    """What ``KINDS[kind]`` takes."""
    found: dict[str, Any] = {"dim": dim, "base": draw(BASES)}
    if kind != "rope" and kind != "longrope":
        found["factor"] = draw(FACTORS)
    if kind in ("dynamic-ntk", "ntk-by-parts", "yarn", "llama3", "longrope"):
        found["train_length"] = draw(TRAINED)
    if kind == "longrope":
        numbers = st.lists(st.sampled_from([1.0, 1.5, 4.0]), min_size=dim // 2, max_size=dim // 2).map(tuple)
        found["short_factor"], found["long_factor"] = draw(numbers), draw(numbers)
    if kind == "ntk-mixed":
        found["exponent"] = draw(st.sampled_from([0.625, 0.0, 1.0]))
    if kind == "yarn":
        found["truncate"] = draw(st.booleans())
    return found


def specs(draw: Draw, head_dim: int, kind: str | None = None) -> FrequencySpec | None:
    """Frequencies of this kind (or any) for some or all channels of a head; None if it has too few."""
    least = {name: 4 if name in ("dynamic-ntk", "ntk-aware") else 2 for name in KINDS}
    kinds = [name for name in ([kind] if kind else KINDS) if least[name] <= head_dim]
    if not kinds:
        return None
    kind = draw(st.sampled_from(kinds))
    pairs = draw(st.just(head_dim // 2) | st.integers(least[kind] // 2, head_dim // 2))
    try:
        return FrequencySpec(kind, **_options_of(draw, kind, 2 * pairs))
    except ValueError as error:
        assume("ramp does not run backwards" not in str(error))  # a base of 2 for YaRN
        raise


def scales(draw: Draw) -> LogN | None:
    return draw(st.none() | st.builds(
        LogN, st.sampled_from([4, 16, 512]), clip=st.booleans(), floor=st.sampled_from([1, 2, 16])
    ))  # fmt: skip


def _general(draw: Draw) -> dict[str, Any]:
    """Knobs that every name takes."""
    return {
        "layout": draw(st.sampled_from(["half", "interleaved"])),
        "scale": scales(draw),
        "base_scale": draw(st.sampled_from([None, None, 0.7])),
        "causal": draw(st.sampled_from([True, True, True, False])),
    }


def schemes(draw: Draw, head_dim: int, windows: st.SearchStrategy[int] = WINDOWS) -> Scheme:
    """A free combination of all knobs, or a name of the table with the others added."""
    visible = draw(st.none() | windows.map(lambda w: max(w, 1)))
    if draw(st.booleans()):
        return Scheme(
            draw(st.none()) if draw(st.integers(0, 5)) == 5 else specs(draw, head_dim),
            window=draw(windows), slope=draw(SLOPES), rotary_scale=draw(st.sampled_from([1.0, 1.0, 1.25])),
            visible_window=visible, sinks=0 if visible is None else draw(st.sampled_from([0, 0, 1, 3])),
            alibi=draw(st.sampled_from([False, False, False, True])), **_general(draw),
        )  # fmt: skip
    return named(draw, draw(st.sampled_from(SCHEMES)), head_dim, windows)


def named(draw: Draw, name: Any, head_dim: int, windows: st.SearchStrategy[int] = WINDOWS) -> Scheme:
    """A scheme by its name."""
    options = _general(draw)
    kind = name if name in KINDS else None if name in ("nope", "alibi") else "rope"
    if kind is not None:
        spec = specs(draw, head_dim, kind)
        if spec is None:
            return Scheme(**options)
        options |= dict(spec.options)
    if name in ("window", "lambda"):
        options["visible_window"] = max(1, draw(windows))
    if name == "lambda":
        options["sinks"] = draw(st.integers(0, 3))
    if name in ("rerope", "leaky-rerope", "invleaky"):
        options["window"] = max(1, draw(windows))  # 0 and a slope of 0 turn nothing: refused under these names
    if name in ("leaky-rerope", "invleaky"):
        options["slope"] = draw(SLOPES)
    if name == "longrope":
        options["rotary_scale"] = draw(st.sampled_from([1.0, 1.2]))
    return rl.scheme(name, **options)


def document_rows(draw: Draw, batch: int, tokens: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Runs of ids, which may come back, and padding anywhere."""
    runs = st.lists(
        st.tuples(st.sampled_from([0, 1, 5, -1, -7]), st.integers(1, max(1, tokens))), min_size=1, max_size=4
    )
    rows = 1 if draw(st.booleans()) else max(batch, 1)
    return tuple(tuple(draw(runs)) for _ in range(rows))


def biases(draw: Draw, dtype: str) -> Bias:
    axes = tuple(draw(st.lists(st.booleans(), max_size=4)))
    own = draw(st.sampled_from([dtype, "float32", "float64"]))
    return Bias(axes, own, draw(st.sampled_from([0.0, 0.2, 0.9])), draw(memories()))


def position_rules(draw: Draw, square: bool) -> Positions:
    kind = draw(st.sampled_from(["even", "even", "fractional", "jumps", "unordered", "same"]))
    start = draw(st.sampled_from([0, -3, 17, 1000, 2**20, -(2**20)]))
    given = draw(st.sampled_from(["both", "both", "apart", *(["q", "k"] if square else [])]))
    return Positions(kind, start, draw(st.sampled_from([1, 1, 2, 7])), draw(st.booleans()), given)


@st.composite
def cases(
    draw: Draw,
    tokens: st.SearchStrategy[int] = st.integers(1, 24),  # noqa: B008 (strategies are values)
    edges: bool = False,
    flash: bool = False,
    dims: st.SearchStrategy[int] = st.integers(1, 12),  # noqa: B008
    gradients: bool = True,
    most: tuple[int, int, int] = (3, 2, 3),
) -> Case:
    """Any call.

    Args:
        tokens: how many keys.
        edges: windows lie anywhere up to the number of keys and one beyond.
        flash: without what it declines, and with enough queries that ``auto`` takes it for more than 512 keys.
        dims: of queries and keys, and of values.
        gradients: some inputs may require them.
        most: rows of the batch, key heads, and heads to a key head.
    """
    k_len = draw(tokens)
    some = st.integers(0, k_len)
    q_len = k_len if draw(st.booleans()) else draw(st.integers(min(k_len, 513), k_len) if flash else some)
    windows = st.sampled_from([1, 2, 3, k_len - 1, k_len, k_len + 1]) | st.integers(1, k_len + 1) if edges else WINDOWS
    head_dim = draw(dims)
    scheme = schemes(draw, head_dim, windows)
    if flash:
        bends = scheme.slope != 1.0 or scheme.visible_window is not None
        scheme = replace(scheme, alibi=False, sinks=0, causal=scheme.causal or bends)
    batch = 0 if draw(RARELY) else draw(st.integers(1, most[0]))
    dtype = draw(st.sampled_from(["float64", "float64", "float32", "float32", "bfloat16", "float16"]))
    sometimes = st.sampled_from([False, False, False, True])
    positions = position_rules(draw, q_len == k_len) if draw(sometimes) else None
    if flash and positions is not None and scheme.slope != 1.0:
        positions = replace(positions, kind="even", given="both")
    documents = document_rows(draw, batch, k_len) if draw(sometimes) else None
    lengths = tuple(draw(st.lists(some, min_size=batch, max_size=batch))) if draw(sometimes) else None
    bias = biases(draw, dtype) if not flash and draw(sometimes) else None
    frequencies = draw(st.integers(1, head_dim // 2)) if head_dim > 1 and draw(sometimes) else None
    needs = scheme.frequencies is not None and scheme.frequencies.needs_length and frequencies is None
    there = [name for name in INPUTS if name in ("q", "k", "v") or {"bias": bias, "frequencies": frequencies}[name]]
    requires = draw(st.just(there) | st.lists(st.sampled_from(there), unique=True)) if gradients else []
    return Case(
        scheme=scheme,
        seed=draw(st.integers(0, 2**16)),
        batch=batch,
        kv_heads=draw(st.integers(1, most[1])),
        group=draw(st.integers(1, most[2])),
        q_len=q_len,
        before=k_len - q_len,
        head_dim=head_dim,
        value_dim=draw(st.just(head_dim) | dims),
        dtype=dtype,
        size=draw(st.sampled_from([1.0, 1.0, 3.0, 0.0])),
        q=draw(memories()),
        k=draw(memories()),
        v=draw(memories()),
        grad=draw(memories()),
        positions=positions,
        documents=documents,
        lengths=lengths,
        padding=draw(st.sampled_from([None, nan, inf, -inf])) if documents or lengths else None,
        bias=bias,
        frequencies=frequencies,
        per_head=frequencies is not None and draw(st.booleans()),
        length=draw(st.integers(1, 40)) if (positions is not None and needs) or draw(sometimes) else None,
        requires=tuple(sorted(requires, key=INPUTS.index)),
        through=draw(st.sampled_from(["output", "lse", "both"])),
        strided=draw(st.booleans()),
    )
