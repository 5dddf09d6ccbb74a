"""The small functions, for random arguments: frequencies, tables, slopes and digits in 50 digits or in Python's ints,
and rotary configs as transformers reads them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import torch
from hypothesis import strategies as st
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import rope_lessons as rl
from rope_lessons import FrequencySpec, LogN
from rope_lessons.kinds import KINDS
from tests.fuzz.memory import shown
from tests.fuzz.tally import Tally, Wrong

__all__ = ["Helper", "check"]
mpf = mpmath.mpf
Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True, repr=False)
class Helper:
    """A call of one of ``CHECKS``."""

    name: str
    arguments: tuple[Any, ...] = ()

    __repr__ = shown


def check(helper: Helper) -> None:
    """Raise ``Wrong`` where an answer is further from the exact one than float64 (or its table) explains."""
    for fault in faults(helper, Tally()):
        raise fault


def faults(helper: Helper, tally: Tally) -> list[Wrong]:
    """What is wrong."""
    found = []
    with mpmath.workdps(50):
        for what, got, wanted, allowed in CHECKS[helper.name][1](*helper.arguments):
            if not abs(mpf(got) - wanted) <= allowed:  # also for NaN
                off = f"got {got!r}, wanted {mpmath.nstr(wanted, 20)} within {mpmath.nstr(allowed, 3)}"
                found.append(Wrong(f"helpers, {helper.name}: {what}", off))
    tally.add("helpers", helper.name, "calls")
    return found


Rows = list[tuple[str, float, Any, Any]]  # what, got, wanted, allowed


def near(what: str, got: Tensor, wanted: list[Any], relative: float, absolute: Any = 0) -> Rows:
    """One row for each number; the error may be a share of the wanted one."""
    if got.numel() != len(wanted):
        raise Wrong(f"helpers: {what}", f"got {got.numel()} numbers, wanted {len(wanted)}")
    return [
        (what, float(x), y, abs(y) * mpf(relative) + mpf(absolute))
        for x, y in zip(got.double().flatten().tolist(), wanted, strict=True)
    ]


# --- frequencies -----------------------------------------------------------------------------------------------------

ROUNDED = 2.0**-47  # a power of a number near 10^7 is a few roundings, and more with large exponents


def plain(dim: int, base: Any) -> list[Any]:
    return [mpmath.power(base, -mpf(2 * t) / dim) for t in range(dim // 2)]


def by_parts(dim: int, factor: float, length: int, base: float, alpha: float, beta: float) -> list[Any]:
    found = []
    for omega in plain(dim, mpf(base)):
        turns = length * omega / (2 * mpmath.pi)
        kept = min(mpf(1), max(mpf(0), (turns - mpf(alpha)) / (mpf(beta) - mpf(alpha))))
        found.append(omega * (kept + (1 - kept) / mpf(factor)))
    return found


def yarn(dim: int, factor: float, length: int, base: float, fast: float, slow: float, truncate: bool) -> list[Any]:
    ends = [
        dim * mpmath.log(length / (2 * mpmath.pi * mpf(turns))) / (2 * mpmath.log(mpf(base))) for turns in (fast, slow)
    ]
    if truncate:
        ends = [mpmath.floor(ends[0]), mpmath.ceil(ends[1])]
    low, high = max(ends[0], 0), min(ends[1], dim - 1)
    high += mpf("0.001") if low == high else 0
    kept = [1 - min(mpf(1), max(mpf(0), (t - low) / (high - low))) for t in range(dim // 2)]
    return [
        omega * (share + (1 - share) / mpf(factor)) for omega, share in zip(plain(dim, mpf(base)), kept, strict=True)
    ]


def dynamic(dim: int, length: int, trained: int, factor: float, base: float) -> list[Any]:
    if length <= trained:
        return plain(dim, mpf(base))
    growth = mpf(factor) * length / trained - (mpf(factor) - 1)
    return plain(dim, mpf(base) * growth ** (mpf(dim) / (dim - 2)))


def frequencies(kind: str, dim: int, factor: float, base: float, trained: int, length: int, more: tuple) -> Rows:
    """Every way to choose them, as ``FrequencySpec`` does."""
    kappa = mpf(factor)
    options: dict[str, Any] = {"dim": dim, "base": base}
    if kind not in ("rope", "longrope"):
        options["factor"] = factor
    if kind in ("dynamic-ntk", "ntk-by-parts", "yarn", "llama3", "longrope"):
        options["train_length"] = trained
    if kind == "ntk-mixed":
        options["exponent"] = more[0]
    elif kind == "ntk-by-parts":
        options["alpha"], options["beta"] = more
    elif kind == "llama3":
        options["low_freq_factor"], options["high_freq_factor"] = more
    elif kind == "yarn":
        options["beta_slow"], options["beta_fast"], options["truncate"] = more
    elif kind == "proportional":
        options["share"] = more[0]
    elif kind == "longrope":
        options["short_factor"], options["long_factor"] = more
    try:
        got = FrequencySpec(kind, **options)(length=length)
    except ValueError as error:
        if kind == "yarn" and "ramp does not run backwards" in str(error):
            return []
        raise
    omega = plain(dim, mpf(base))
    wanted = {
        "rope": lambda: omega,
        "pi": lambda: [x / kappa for x in omega],
        "ntk-old": lambda: plain(dim, mpf(base) * kappa),
        "ntk-fixed": lambda: [x / kappa ** (mpf(2) / dim) for x in plain(dim, mpf(base) * kappa)],
        "ntk-aware": lambda: plain(dim, mpf(base) * kappa ** (mpf(dim) / (dim - 2))),
        "ntk-mixed": lambda: [x / kappa ** (mpf(2 * (t + 1)) / dim) ** mpf(more[0]) for t, x in enumerate(omega)],
        "dynamic-ntk": lambda: dynamic(dim, length, trained, factor, base),
        "ntk-by-parts": lambda: by_parts(dim, factor, trained, base, *more),
        "llama3": lambda: by_parts(dim, factor, trained, base, *more),
        "yarn": lambda: yarn(dim, factor, trained, base, more[1], more[0], more[2]),
        "proportional": lambda: [
            x / kappa if t < int(more[0] * dim // 2) else mpf(0) for t, x in enumerate(omega)
        ],
        "longrope": lambda: [x / mpf(c) for x, c in zip(omega, more[length > trained], strict=True)],
    }[kind]()  # fmt: skip
    # A ramp between two ends that lie close together is steep: the share kept is off by the ends' rounding over it.
    steep = 1e-9 if kind in ("yarn", "ntk-by-parts", "llama3") else 0.0
    return near(kind, got, wanted, ROUNDED + steep * max(1.0, 1 / factor))


def _draw_frequencies(draw: Draw) -> tuple[Any, ...]:
    kind = draw(st.sampled_from(list(KINDS)))
    dim = 2 * draw(st.integers(2, 64))
    positive = st.floats(0.5, 20)
    pair = st.tuples(st.floats(0.25, 8), st.floats(0.25, 64)).map(lambda p: (p[0], p[0] + p[1]))
    numbers = st.lists(positive, min_size=dim // 2, max_size=dim // 2).map(tuple)
    more = {
        "proportional": st.tuples(st.floats(0.5, 1)), "ntk-mixed": st.tuples(st.floats(0, 2)),
        "ntk-by-parts": pair, "llama3": pair,
        "yarn": st.tuples(pair, st.booleans()).map(lambda p: (*p[0], p[1])), "longrope": st.tuples(numbers, numbers),
    }.get(kind, st.just(()))  # fmt: skip
    return (
        kind, dim, draw(st.floats(0.5, 64)), draw(st.floats(2, 1e7)), draw(st.integers(2, 10**5)),
        draw(st.integers(1, 10**6)), draw(more),
    )  # fmt: skip


# --- tables ----------------------------------------------------------------------------------------------------------


def table(position: float, dim: int, base: float, scale: float, dtype: str) -> Rows:
    """Cosines and sines. The angle is a product of float64 numbers."""
    kind = torch.float64 if isinstance(position, float) else torch.int64
    where, omega = torch.tensor([position], dtype=kind), rl.rope_frequencies(dim, base)
    cos, sin = rl.rotary_table(where, omega, scale=scale, dtype=getattr(torch, dtype))
    angles = [mpf(position) * mpf(x) for x in omega.tolist()]
    eps = 2.0**-24 if dtype == "float32" else 2.0**-52
    allowed = scale * (eps + abs(float(position)) * 2.0**-52)
    return [
        *near("cos", cos, [mpf(scale) * mpmath.cos(x) for x in angles], eps, allowed),
        *near("sin", sin, [mpf(scale) * mpmath.sin(x) for x in angles], eps, allowed),
    ]


def encoding(position: int, dim: int, base: float) -> Rows:
    """The sinusoidal encoding, and the kernel of two of them."""
    got = rl.sinusoidal_encoding(torch.tensor([position]), dim, base, dtype=torch.float64)[0]
    omega = rl.rope_frequencies(dim, base)
    angles = [mpf(position) * mpf(x) for x in omega.tolist()]
    allowed = 2.0**-51 * (1 + abs(position))
    kernel = rl.sinusoidal.sinusoidal_kernel(torch.tensor([position]), omega)
    return [
        *near("sin", got[0::2], [mpmath.sin(x) for x in angles], 0, allowed),
        *near("cos", got[1::2], [mpmath.cos(x) for x in angles], 0, allowed),
        *near("kernel", kernel, [mpmath.fsum(map(mpmath.cos, angles)) / (dim // 2)], 0, allowed),
    ]


def turned(position: int, dim: int, rest: int, layout: str, seed: int) -> Rows:
    """A vector turned by a position, pair by pair."""
    x = torch.randn(1, dim + rest, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    omega = rl.rope_frequencies(dim)
    got = rl.apply_rotary(x, torch.tensor([position]), omega, layout=layout)[0]
    wanted = [mpf(value) for value in x[0].tolist()]
    for t, rate in enumerate(omega.tolist()):
        first, second = (2 * t, 2 * t + 1) if layout == "interleaved" else (t, t + dim // 2)
        z = mpmath.mpc(wanted[first], wanted[second]) * mpmath.expj(mpf(position) * mpf(rate))
        wanted[first], wanted[second] = z.real, z.imag
    return near("apply_rotary", got, wanted, 0, 2.0**-48 * (1 + abs(position)))


# --- digits, slopes, scales ------------------------------------------------------------------------------------------


def digits(n: int, bases: tuple[int, ...]) -> Rows:
    """Digits in one base and in a mixed one, and the way back."""
    base, largest = bases[0], math.prod(bases)
    most = next(count for count in range(1, 65) if base**count > 2**63 - 1)  # the digits of the largest int64
    pure, mixed = rl.radix.digits(n, base, most), rl.mixed_radix.mixed_digits(n % largest, bases)
    wanted, left = [], n % largest
    for b in bases:
        wanted.append(mpf(left % b))
        left //= b
    rows = near("digits", pure, [mpf(n // base**t % base) for t in range(most)], 0)
    rows += near("mixed_digits", mixed, wanted, 0)
    rows.append(("from_digits, mixed", float(int(rl.radix.from_digits(mixed, bases)) - n % largest), mpf(0), 0))
    needed = next(count for count in range(1, most + 1) if base**count > n)
    if base**needed <= 2**63:  # more than that from_digits refuses
        rows.append(("from_digits", float(int(rl.radix.from_digits(pure[:needed], base)) - n), mpf(0), 0))
    return rows


def slopes(heads: int) -> Rows:
    """ALiBi's."""
    below = 2 ** (heads.bit_length() - 1)
    wanted = [mpf(2) ** (mpf(-8 * (h + 1)) / below) for h in range(below)]
    wanted += [mpf(2) ** (mpf(-4 * (2 * h + 1)) / below) for h in range(heads - below)]
    return near("alibi_slopes", rl.alibi_slopes(heads), wanted, 2.0**-50)


def log_n(count: int, trained: int, clip: bool, floor: int) -> Rows:
    """The log n scale."""
    wanted = mpmath.log(max(count, floor)) / mpmath.log(trained)
    got = LogN(trained, clip=clip, floor=floor)(torch.tensor([count]))
    return near("LogN", got, [max(mpf(1), wanted) if clip else wanted], 2.0**-50)


def attention_factors(factor: float, trained: int, mscale: float) -> Rows:
    """YaRN's and LongRoPE's."""
    log = max(mpmath.log(mpf(factor)), mpf(0))
    got = torch.tensor(
        [rl.yarn_attention_factor(factor, mscale), rl.longrope_attention_factor(factor, trained)], dtype=torch.float64
    )
    return near("factors", got, [1 + log * mpf(mscale) / 10, mpmath.sqrt(1 + log / mpmath.log(trained))], 2.0**-48)


def distances(distance: int, window: float, slope: float, sigma: float) -> Rows:
    """The bent distance, sharp and with its corner rounded off."""
    size, w, r, s = abs(mpf(distance)), mpf(window), mpf(slope), mpf(sigma) * mpf(window)
    sharp = size if size < w else w + r * (size - w)
    smooth = size - (1 - r) * (size - w + s) ** 2 / (4 * s) if abs(size - w) < s else sharp
    sign, where = (distance > 0) - (distance < 0), torch.tensor([distance])
    allowed = 2.0**-49 * (1 + abs(distance)) * (1 + slope)
    return [
        *near("leaky", rl.rerope.leaky_distance(where, window, slope), [sign * sharp], 0, allowed),
        *near(
            "smooth",
            rl.rerope.smooth_leaky_distance(where, window, slope, sigma * window),
            [sign * smooth],
            0,
            allowed * 8,
        ),
    ]


def grid(length: int, more: int) -> Rows:
    """Evenly spaced positions."""
    wanted = [mpf(i * (length + more) // length) for i in range(length)]
    return near("grid_positions", rl.random_positions.grid_positions(length, length + more), wanted, 0)


def covered(trained: int, window: int, slope: float, more: int) -> Rows:
    """How far InvLeaky reaches, and the slope for a length: the smallest that reaches it."""
    last = mpf(trained - 1)
    reach = last if last < window else window + mpf(slope) * (last - window)
    rows: Rows = []
    if abs(reach - mpmath.nint(reach)) > 1e-9 or slope == int(slope):  # beside a whole number, rounding decides
        rows = [("covered_length", rl.invleaky.covered_length(trained, window, slope), mpmath.floor(reach) + 1, 0)]
    if window < trained - 1:
        needed = rl.invleaky.slope_for(trained, window, trained + more)
        exact = mpf(trained + more - 1 - window) / (trained - 1 - window)
        rows.append(("slope_for", needed, exact, exact * mpf(2) ** -50))
        short = trained + more - rl.invleaky.covered_length(trained, window, needed)
        rows.append(("slope_for reaches", float(max(short, 0)), mpf(0), 0))
    return rows


# --- transformers ----------------------------------------------------------------------------------------------------


def config(rope_type: str, dim: int, base: float, factor: float, trained: int, longest: int, more: tuple) -> Rows:
    """Frequencies and attention factor that transformers makes of a dictionary, in float32."""
    rope: dict[str, Any] = {"rope_type": rope_type, "rope_theta": base}
    if rope_type != "default":
        rope["factor"] = factor
    if rope_type in ("yarn", "llama3", "longrope"):
        rope["original_max_position_embeddings"] = trained
    rope |= dict(more)
    made = LlamaConfig(
        hidden_size=dim * 2, num_attention_heads=2, head_dim=dim, max_position_embeddings=longest, rope_parameters=rope
    )
    assert made.rope_parameters is not None
    try:
        scheme = rl.scheme_from_hf(made.rope_parameters, head_dim=dim, max_position_embeddings=longest)
    except ValueError as error:
        if rope_type == "yarn" and "ramp does not run backwards" in str(error):  # tested in test_peers.py
            return []
        raise
    length = {"dynamic": 3 * longest, "longrope": trained + 1}.get(rope_type, longest)
    if rope_type == "default":
        theirs, attention = 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim)), 1.0
    else:
        theirs, attention = ROPE_INIT_FUNCTIONS[rope_type](made, "cpu", seq_len=length)
    assert scheme.frequencies is not None
    wanted = [mpf(x) for x in theirs.tolist()]
    # Their ramps are float32: near an end that is no whole number, they keep another share by its rounding.
    loose = 2e-5 if rope_type in ("yarn", "llama3") else 2e-6
    return [
        *near(rope_type, scheme.frequencies(length=length), wanted, loose * max(1.0, factor)),
        ("attention factor", scheme.rotary_scale, mpf(attention), mpf(10) ** -12),
    ]


def _draw_config(draw: Draw) -> tuple[Any, ...]:
    rope_type = draw(st.sampled_from(["default", "linear", "dynamic", "yarn", "llama3", "longrope"]))
    dim, trained = 2 * draw(st.integers(2, 64)), draw(st.integers(128, 8192))
    more: dict[str, Any] = {}
    if rope_type == "yarn":
        more = draw(st.fixed_dictionaries({}, optional={
            "beta_fast": st.floats(16, 64), "beta_slow": st.floats(0.5, 8), "truncate": st.booleans(),
            "attention_factor": st.floats(0.5, 2),
        }))  # fmt: skip
        if "attention_factor" not in more and draw(st.booleans()):
            more |= {"mscale": draw(st.floats(0.5, 2)), "mscale_all_dim": draw(st.floats(0.5, 2))}
    elif rope_type == "llama3":
        low = draw(st.floats(0.5, 4))
        more = {"low_freq_factor": low, "high_freq_factor": low + draw(st.floats(0.5, 8))}
    elif rope_type == "longrope":
        numbers = st.lists(st.floats(1, 30), min_size=dim // 2, max_size=dim // 2)
        more = {"short_factor": draw(numbers), "long_factor": draw(numbers)}
    longest = trained * draw(st.integers(1, 32)) + draw(st.integers(0, 100))
    return rope_type, dim, draw(st.floats(1000, 1e6)), longest / trained, trained, longest, tuple(more.items())


# --- all of them -----------------------------------------------------------------------------------------------------

INTS = st.integers(-(2**24), 2**24)
BASES = st.floats(1.5, 1e7)
DIMS = st.integers(1, 32).map(lambda pairs: 2 * pairs)


def _tuples(*parts: st.SearchStrategy[Any]) -> Callable[[Draw], tuple[Any, ...]]:
    return lambda draw: tuple(draw(part) for part in parts)


CHECKS: dict[str, tuple[Callable[[Draw], tuple[Any, ...]], Callable[..., Rows]]] = {
    "frequencies": (_draw_frequencies, frequencies),
    "config": (_draw_config, config),
    "table": (
        _tuples(
            INTS | st.floats(-(2.0**24), 2.0**24), DIMS, BASES, st.floats(0.5, 2),
            st.sampled_from(["float32", "float64"]),
        ),
        table,
    ),
    "encoding": (_tuples(INTS, DIMS, BASES), encoding),
    "turned": (
        _tuples(INTS, DIMS, st.integers(0, 3), st.sampled_from(["half", "interleaved"]), st.integers(0, 2**16)), turned,
    ),
    "digits": (
        _tuples(st.integers(0, 2**62), st.lists(st.integers(2, 100), min_size=1, max_size=8).map(tuple)), digits,
    ),
    "slopes": (_tuples(st.integers(1, 200)), slopes),
    "log_n": (_tuples(st.integers(0, 10**7), st.integers(2, 10**6), st.booleans(), st.integers(1, 64)), log_n),
    "attention_factors": (
        _tuples(st.floats(0.1, 1000), st.integers(2, 10**6), st.floats(0.1, 3)), attention_factors,
    ),
    "distances": (
        _tuples(st.integers(-(10**6), 10**6), st.floats(1, 1000), st.floats(0, 20), st.floats(0.01, 1)), distances,
    ),
    "grid": (_tuples(st.integers(1, 300), st.integers(0, 10**9)), grid),
    "covered": (
        _tuples(
            st.integers(1, 4096), st.integers(0, 4096), st.integers(0, 64) | st.floats(0, 64), st.integers(0, 10**6)
        ),
        covered,
    ),
}  # fmt: skip


@st.composite
def drawn(draw: Draw) -> Helper:
    """Any of them; the two with many kinds more often."""
    name = draw(st.sampled_from([*CHECKS, "frequencies", "config"]))
    return Helper(name, CHECKS[name][0](draw))
