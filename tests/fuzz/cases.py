"""Any call of ``attention``, drawn by hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

import rope_lessons as rl
from rope_lessons import FrequencySpec, LogN, Scheme
from rope_lessons.kinds import KINDS
from rope_lessons.schemes import SCHEMES
from tests.fuzz.case import INPUTS, Bias, Case, Positions, inf, nan
from tests.fuzz.memory import ORDERS, Memory

Draw = Callable[[st.SearchStrategy[Any]], Any]


def memories(shared: bool = True) -> st.SearchStrategy[Memory]:
    """Two thirds are dense; ``shared``: the others may have axes of stride 0."""
    usual = st.sampled_from([Memory(order=order) for order in ORDERS])
    axes = st.lists(st.integers(0, 3), max_size=2, unique=True).map(sorted).map(tuple) if shared else st.just(())
    odd = st.builds(
        Memory, order=st.permutations(range(4)).map(tuple), shared=axes, step=st.integers(1, 2),
        offset=st.sampled_from([0, 1, 3]), flipped=st.sampled_from([None, 0, 1, 2, 3]),
    )  # fmt: skip
    return usual | usual | odd


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
    if kind == "proportional":
        found["share"] = draw(st.sampled_from([1.0, 0.75] if dim > 2 else [1.0]))  # a pair or more has to turn
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
