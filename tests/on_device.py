"""Checks of the kernels of a device. PyTorch is enough for them, so that they run where there is a card and no pytest.

A check takes the device. It raises AssertionError for a wrong answer, and returns why it says nothing about this
device, or None.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import rope_lessons as rl
from rope_lessons import FrequencySpec, Scheme
from rope_lessons.engine import kernels

Check = Callable[[torch.device], str | None]
BOUND = {torch.float32: 1e-3, torch.float16: 0.02, torch.bfloat16: 0.1}  # absolute and relative
LEAKY = Scheme(FrequencySpec("rope", dim=64), window=100, slope=0.125)
NO_CUDA = "it needs CUDA"


def make(
    device: torch.device, dtype: torch.dtype, q_len: int, k_len: int | None = None, *, batch: int = 1, heads: int = 2,
    kv_heads: int | None = None, head_dim: int = 8, value_dim: int | None = None,
) -> list[Tensor]:  # fmt: skip
    k_len, kv_heads = k_len or q_len, kv_heads or heads
    shapes = (heads, q_len, head_dim), (kv_heads, k_len, head_dim), (kv_heads, k_len, value_dim or head_dim)
    return [torch.randn(batch, *shape).to(device, dtype) for shape in shapes]


def with_gradients(
    function: Callable[..., tuple[Tensor, Tensor]], inputs: list[Tensor], *, of_lse: bool = True
) -> list[Tensor]:
    """Output, log-sum-exp (0 for queries that see nothing) and the gradients of a fixed mixture of the two."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    output, lse = function(*inputs)
    lse = lse.masked_fill(lse == -torch.inf, 0.0)
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(x.shape, generator=generator).to(x) for x in (output, lse)]
    loss = (output * weights[0]).sum() + ((lse * weights[1]).sum() if of_lse else 0.0)
    return [output.detach(), lse.detach(), *torch.autograd.grad(loss, inputs)]


def close(found: list[Tensor], wanted: list[Tensor], dtype: torch.dtype) -> None:
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a.double(), b.double(), atol=BOUND[dtype], rtol=BOUND[dtype])


def both(inputs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """A bent distance by the engine's kernels, and by the reference in float64: with gradients."""

    def attend(backend: str, qkv: list[Tensor]) -> list[Tensor]:
        return with_gradients(lambda q, k, v: rl.attention(q, k, v, LEAKY, backend=backend, return_lse=True), qkv)

    return attend("flash", inputs), attend("reference", [x.double() for x in inputs])


def check_kernel(device: torch.device, only: SDPBackend | None, dtype: torch.dtype) -> str | None:
    """The switches of ``sdpa_kernel`` choose; backward keeps the kernel of its forward. None: as it comes."""
    if only is not None and device.type != "cuda":
        return NO_CUDA
    with contextlib.nullcontext() if only is None else sdpa_kernel(only):
        name, why = kernels.choose_kernel(device, dtype, 64)
        if name is None:
            return why
        assert only is None or name == only.name.split("_")[0].lower(), name
        found, wanted = both(make(device, dtype, 777, batch=2, heads=4, kv_heads=2, head_dim=64))
    close(found, wanted, dtype)
    return None


def check_near(device: torch.device, slides: bool) -> str | None:
    """The near band by a sliding window of the flash kernel, and without one."""
    if device.type != "cuda":
        return NO_CUDA
    name, why = kernels.choose_kernel(device, torch.float16, 64)
    if name != "flash":
        return why
    assert kernels._flash_slides()
    flash = kernels.KERNELS["flash"]
    kernels.KERNELS["flash"] = flash._replace(slides=lambda: slides)
    try:
        found, wanted = both(make(device, torch.float16, 500, 777, batch=2, heads=4, kv_heads=2, head_dim=64))
    finally:
        kernels.KERNELS["flash"] = flash
    close(found, wanted, torch.float16)
    return None


def check_no_wait(device: torch.device) -> str | None:
    """CUDA's own check of waiting: forward and backward, padding included."""
    if device.type != "cuda":
        return NO_CUDA
    dtype = torch.float16 if kernels.choose_kernel(device, torch.bfloat16, 64)[0] is None else torch.bfloat16
    q, k, v = (x.requires_grad_() for x in make(device, dtype, 600, batch=2, head_dim=64))
    scheme, lengths = rl.scheme("rerope", dim=64, window=100), torch.tensor([600, 31], device=device)
    rl.attention(q, k, v, scheme, backend="flash").sum().backward()  # the first call may set things up
    torch.cuda.set_sync_debug_mode("error")
    try:
        rl.attention(q, k, v, scheme, backend="flash", lengths=lengths).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return None


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
KERNELS = (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
CHECKS: dict[str, Check] = {
    **{f"kernel, {name}": partial(check_kernel, only=None, dtype=dtype) for name, dtype in DTYPES.items()},
    **{
        f"{only.name.split('_')[0].lower()} kernel, {name}": partial(check_kernel, only=only, dtype=dtype)
        for only in KERNELS
        for name, dtype in DTYPES.items()
    },
    "near band, sliding": partial(check_near, slides=True),
    "near band, in triangles": partial(check_near, slides=False),
    "no wait for the device": check_no_wait,
}
