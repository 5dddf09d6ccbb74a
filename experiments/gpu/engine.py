"""The engine's times beside plain RoPE through each stock kernel: forward, with backward, a training step, memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.benchmarks import memory as peaks
from experiments.benchmarks.sides import Side, eager_rerope, ours, plain_rope
from experiments.benchmarks.speed import once
from experiments.benchmarks.training import Block, _step
from experiments.gpu import timing
from experiments.gpu.step import Found, Setting, could_not
from rope_lessons import attention, scheme
from rope_lessons.engine import kernels
from rope_lessons.engine.merge import merge_
from rope_lessons.engine.targets import METHODS, WINDOW

# The near band has its own kernel where there is a sliding window, so cuDNN is tried for ours as well.
STOCK = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
EAGER_SHARE = 0.4  # of the card's memory: the published way is tried where its matrices take less


class Shape(NamedTuple):
    """Of the inputs."""

    length: int
    head_dim: int
    heads: int
    kv_heads: int

    @property
    def name(self) -> str:
        return f"{self.length}/d{self.head_dim}/{self.heads}-{self.kv_heads}"


def half(device: torch.device) -> torch.dtype:
    """The 16 bits of this device's attention kernels: bfloat16, but float16 on a card before 8.0."""
    name, _ = kernels.choose_kernel(device, torch.bfloat16, 64)
    return torch.bfloat16 if name is not None else torch.float16


def dtype_of(setting: Setting) -> torch.dtype:
    return half(setting.device) if setting.device.type == "cuda" else torch.float32


def window_of(setting: Setting) -> int:
    return int(setting.by_scale(WINDOW, 256, 16))


def inputs(shape: Shape, setting: Setting) -> tuple[Tensor, ...]:
    """Queries, keys and values of a text."""
    dtype, on = dtype_of(setting), setting.device
    return tuple(
        torch.randn(1, heads, shape.length, shape.head_dim, device=on, dtype=dtype)
        for heads in (shape.heads, shape.kv_heads, shape.kv_heads)
    )


def through(side: Side, kernel: SDPBackend, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(kernel):
        return side(q, k, v)


def by_flex(dim: int) -> Side:
    """Plain RoPE through FlexAttention."""
    rope = scheme("rope", dim=dim)
    return lambda q, k, v: attention(q, k, v, rope, backend="flex")


def sides(setting: Setting, shape: Shape) -> dict[str, Side]:
    """Who is compared. On a CPU there is one stock kernel."""
    dim, window = shape.head_dim, window_of(setting)
    own: dict[str, Side] = {name: ours(dim, window, slope) for name, slope in METHODS.items()}
    if setting.device.type == "cpu":
        return {"plain, SDPA": plain_rope, **own, **eager(setting, shape)}
    plain: dict[str, Side] = {f"plain, {name}": partial(through, plain_rope, kernel) for name, kernel in STOCK.items()}
    cudnn: dict[str, Side] = {f"{name}, cuDNN": partial(through, side, STOCK["cuDNN"]) for name, side in own.items()}
    compiled: dict[str, Side] = {"rerope, torch.compile": torch.compile(own["rerope"])}
    return {**plain, "plain, flex": by_flex(dim), **own, **cudnn, **compiled, **eager(setting, shape)}


def eager(setting: Setting, shape: Shape) -> dict[str, Side]:
    """The published way, where its matrices fit: with backward about eight of them."""
    needed = 8 * shape.heads * shape.length**2 * dtype_of(setting).itemsize
    room = 2**31 if setting.device.type == "cpu" else torch.cuda.get_device_properties(setting.device).total_memory
    if shape.heads != shape.kv_heads or needed > EAGER_SHARE * room:
        return {}
    return {"eager rerope": partial(eager_rerope, window=window_of(setting), slope=0.0)}


def speed(setting: Setting, shape: Shape) -> Found:
    """Seconds of every side and repetition, forward and with backward; peaks of memory; the kernels of two of them."""
    qkv, found = inputs(shape, setting), Found()
    reasons: dict[str, str] = {}
    for backward in (False, True):
        what = "forward and backward" if backward else "forward"
        calls = {name: partial(once, side, qkv, backward) for name, side in sides(setting, shape).items()}
        times, why = timing.measure(calls, setting)
        reasons |= {f"{name}, {what}": reason for name, reason in why.items()}
        labels = {**shape._asdict(), "window": window_of(setting), "pass": what, "dtype": str(qkv[0].dtype)}
        found.tables.setdefault("times", []).extend(timing.rows_of(times, **labels))
        for row in found.tables["times"]:
            if row["pass"] == what and row["what"] in times:
                row["peak_bytes"] = timing.peak_bytes(calls[row["what"]], setting.device)
        for name in ("rerope", min((name for name in times if name.startswith("plain")), key=lambda n: min(times[n]))):
            found.tables.setdefault("profile", []).extend(
                timing.profile(calls[name], setting.device, f"{name}, {what}")
            )
    found.tables["could_not"] = could_not(reasons)
    return found


# --- a training step -------------------------------------------------------------------------------------------------


def training_step(setting: Setting, length: int) -> Found:
    """A step of a transformer with RoPE, ReRoPE, Leaky ReRoPE and InvLeaky, whose window is a quarter of the text."""
    width, layers, head_dim = setting.by_scale((2048, 8, 128), (256, 2, 64), (16, 1, 8))
    dtype, window = dtype_of(setting), length // 4
    plain: dict[str, Side] = {"plain, SDPA": plain_rope}
    if setting.device.type == "cuda":
        plain = {f"plain, {name}": partial(through, plain_rope, kernel) for name, kernel in STOCK.items()}
    both = {**plain, **{name: ours(head_dim, window, slope) for name, slope in METHODS.items()}}
    x = torch.randn(1, length, width, device=setting.device, dtype=dtype)
    calls: dict[str, Callable[[], Any]] = {}
    for name, side in both.items():
        model = nn.Sequential(*(Block(width, head_dim, side) for _ in range(layers))).to(setting.device, dtype)
        calls[name] = partial(_step, model, torch.optim.AdamW(model.parameters(), lr=1e-6), x)
    times, why = timing.measure(calls, setting)
    labels = {
        "length": length,
        "window": window,
        "width": width,
        "layers": layers,
        "head_dim": head_dim,
        "dtype": str(dtype),
    }
    return Found({"steps": timing.rows_of(times, **labels), "could_not": could_not(why)})


# --- memory ----------------------------------------------------------------------------------------------------------


def memory(setting: Setting) -> Found:
    """Peaks of forward and backward at growing lengths, one head; each in a process of its own."""
    lengths = setting.by_scale(peaks.LENGTHS["cuda"], (1024, 2048, 4096), (512,))
    found = Found()
    for length in lengths:
        for side in ("rope", "rerope", "eager"):
            setting.check_time()
            if side == "eager" and 8 * 4 * length**2 > EAGER_SHARE * peaks._machine_megabytes(setting.device) * 1e6:
                continue
            megabytes = peaks._in_a_process(side, length, setting.device)
            found.tables.setdefault("peaks", []).append({"what": side, "length": length, "megabytes": megabytes})
    return found


# --- what a miss would be mended by ----------------------------------------------------------------------------------


def merging(setting: Setting) -> Found:
    """A merge in place, as it is and compiled, beside a copy that moves the same bytes."""
    length, heads, dim = setting.by_scale((32_768, 16, 128), (1024, 2, 64), (64, 1, 8))
    dtype, on = dtype_of(setting), setting.device
    output, lse = torch.randn(1, heads, length, dim, device=on), torch.randn(1, heads, length, device=on)
    other, other_lse = torch.randn_like(output).to(dtype), torch.randn_like(lse)
    moved = 2 * (output.nbytes + lse.nbytes) + other.nbytes + other_lse.nbytes  # what must be read and written
    buffer = torch.empty(moved // 8, device=on)  # read once and written once: as many bytes
    calls: dict[str, Callable[[], Any]] = {
        "copy": lambda: buffer.clone(),
        "merge": lambda: merge_(output, lse, other, other_lse),
    }
    if on.type == "cuda":
        compiled = torch.compile(merge_)
        calls["merge, torch.compile"] = lambda: compiled(output, lse, other, other_lse)
    times, why = timing.measure(calls, setting)
    rows = timing.rows_of(times, bytes=moved, length=length, heads=heads, head_dim=dim, dtype=str(dtype))
    return Found({"merges": rows, "could_not": could_not(why)})
