"""PyTorch's own attention kernels behind one face. Every underscored operation of PyTorch is called in this file.

A kernel here takes queries ``(batch, heads, rows, head_dim)``, keys and values with as many heads or a divisor of it,
any strides, and any value dimension, and does two things: ``forward`` gives output and log-sum-exp, ``backward`` the
three gradients from an output and a log-sum-exp *that may cover more keys than these*: the weights are
``exp(score - lse)``, so with the log-sum-exp of all keys each call finds its share of the gradient.
``causal`` means a square: row a sees keys c <= a. A kernel that has a sliding window takes it as ``window``: the last
``window`` keys up to the row's own, where the last row's own is the last key.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

aten = torch.ops.aten
Forward = Callable[..., tuple[Tensor, Tensor]]
Backward = Callable[..., tuple[Tensor, Tensor, Tensor]]


def _yes() -> bool:
    return True


def _no() -> bool:
    return False


class Kernel(NamedTuple):
    """One stock kernel and what it asks of its inputs."""

    forward: Forward
    backward: Backward
    shares_keys: Callable[[], bool]  # several query heads on one key head, without being told so
    channels: int = 1  # the head dimension must be a multiple of it
    any_value_dim: bool = False  # the values may have another dimension than the keys
    slides: Callable[[], bool] = _no  # it has a sliding window
    grain: int = 0  # triangles are halved down to this side; see parts.py


def choose_kernel(device: torch.device, dtype: torch.dtype, head_dim: int) -> tuple[str | None, str]:
    """The name of the kernel for these tensors and why; None if there is none.

    >>> choose_kernel(torch.device("cpu"), torch.float32, 64)
    ('cpu', "PyTorch's flash kernel for the CPU")
    """
    if device.type == "cpu":
        if dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            return "cpu", "PyTorch's flash kernel for the CPU"
        return None, f"PyTorch's CPU kernel takes no {dtype}"
    if device.type != "cuda":
        return None, f"it has no kernel for {device.type} devices"
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return None, f"PyTorch's CUDA kernels take no {dtype}"
    return choose_on_card(_card(device), dtype, head_dim)


class Card(NamedTuple):
    """What is known of a CUDA device: compute capability, and the switches of ``torch.nn.attention.sdpa_kernel``."""

    capability: tuple[int, int]
    flash: bool = True
    cudnn: bool = True
    efficient: bool = True


def _card(device: torch.device) -> Card:
    switches = torch.backends.cuda
    return Card(
        torch.cuda.get_device_capability(device),
        switches.flash_sdp_enabled(),
        switches.cudnn_sdp_enabled(),
        switches.mem_efficient_sdp_enabled(),
    )


# What torch.compiler.assume_constant_result does: the answer is a constant of the compiled program. The decorator
# itself would import the whole compiler with the package.
_card._dynamo_marked_constant = True  # type: ignore[attr-defined]


def choose_on_card(card: Card, dtype: torch.dtype, head_dim: int) -> tuple[str | None, str]:
    """The name of a CUDA kernel, and why; None if there is none.

    >>> choose_on_card(Card((7, 5)), torch.float16, 64)
    ('efficient', "PyTorch's memory-efficient kernel: flash needs compute capability 8.0, this card has 7.5")
    """
    half, modern = dtype != torch.float32, card.capability >= (8, 0)
    version = f"{card.capability[0]}.{card.capability[1]}"
    small_cores = card.capability in ((8, 6), (8, 9)) or card.capability[0] == 12
    most = 192 if small_cores else 256  # the backward of wider heads needs more shared memory than these have
    if half and modern and head_dim <= most and card.flash:
        return "flash", f"PyTorch's FlashAttention kernel (compute capability {version})"
    if half and modern and head_dim <= 128 and card.cudnn:
        return "cudnn", f"cuDNN's kernel (compute capability {version}, flash is switched off)"
    if not card.efficient:
        return None, "every kernel that could do it is switched off (torch.nn.attention.sdpa_kernel)"
    if not half:
        return "efficient", "PyTorch's memory-efficient kernel: the others take no float32"
    if modern:
        return "efficient", f"PyTorch's memory-efficient kernel: the others are off or take no head_dim of {head_dim}"
    if dtype == torch.bfloat16:
        return None, f"bfloat16 kernels need compute capability 8.0, this card has {version}; use float16"
    return (
        "efficient",
        f"PyTorch's memory-efficient kernel: flash needs compute capability 8.0, this card has {version}",
    )


def forward(
    name: str, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, window: int = 0
) -> tuple[Tensor, Tensor]:
    """Output ``(batch, heads, rows, value_dim)`` and log-sum-exp ``(batch, heads, rows)``."""
    kernel, sliding = KERNELS[name], {"window": window} if window else {}
    shape = q.shape[:3]
    q, k, v = _share(kernel, q, k, v)
    q, k = _aligned(q, kernel.channels), _aligned(k, kernel.channels)
    outputs = []
    for chunk, width in _value_chunks(kernel, v, q.shape[-1]):
        output, lse = kernel.forward(q, k, chunk, causal, scale, **sliding)
        outputs.append(output[..., :width])
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
    return output.reshape(*shape, output.shape[-1]), lse.reshape(shape)


def backward(
    name: str, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor, causal: bool, scale: float,
    window: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k and v. The scores' gradient is linear in ``grad``, so chunks of the values add up."""
    kernel, sliding = KERNELS[name], {"window": window} if window else {}
    shapes = q.shape, k.shape, v.shape
    q, k, v = _share(kernel, q, k, v)
    grad, output = (x.reshape(*q.shape[:3], x.shape[-1]) for x in (grad, output))
    lse, head_dim = lse.reshape(q.shape[:3]), q.shape[-1]
    q, k = _aligned(q, kernel.channels), _aligned(k, kernel.channels)
    grad_q = grad_k = None
    grads_v: list[Tensor] = []
    for chunk, width in _value_chunks(kernel, v, q.shape[-1]):
        start = len(grads_v) * q.shape[-1]
        g, o = (_aligned(x[..., start : start + width], chunk.shape[-1]) for x in (grad, output))
        dq, dk, dv = kernel.backward(g, q, k, chunk, o, lse, causal, scale, **sliding)
        grad_q, grad_k = dq if grad_q is None else grad_q + dq, dk if grad_k is None else grad_k + dk
        grads_v.append(dv)
    assert grad_q is not None
    assert grad_k is not None
    grad_v = grads_v[0] if len(grads_v) == 1 else torch.cat(grads_v, dim=-1)
    grads = grad_q[..., :head_dim], grad_k[..., :head_dim], grad_v[..., : shapes[2][-1]]
    if grads[1].shape.numel() != shapes[1].numel():  # lent to a group of heads: their gradients add up
        grads = grads[0], grads[1].sum(1), grads[2].sum(1)
    return tuple(x.reshape(shape) for x, shape in zip(grads, shapes, strict=True))  # type: ignore[return-value]


def _share(kernel: Kernel, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Grouped-query heads: the key heads become the batch, and a view with stride 0 lends each to its group."""
    heads, kv_heads = q.shape[1], k.shape[1]
    if heads == kv_heads or kernel.shares_keys():
        return q, k, v
    group = heads // kv_heads
    q = q.reshape(-1, group, *q.shape[2:])
    k, v = (x.reshape(-1, 1, *x.shape[2:]).expand(-1, group, -1, -1) for x in (k, v))
    return q, k, v


def _aligned(x: Tensor, multiple: int) -> Tensor:
    """Channels next to each other in memory (the kernels ask it, and the CPU's does not check), zeros behind them."""
    missing = -x.shape[-1] % multiple
    if missing:
        x = pad(x, (0, missing))  # in the memory order of x, whatever that is
    x = x if x.stride(-1) == 1 else x.contiguous()
    if 1 not in x.shape[:-1]:
        return x
    # The CPU kernel lays its output out by the strides of the queries, those of axes with one entry included, which
    # mean nothing and may be that of the channels.
    outermost = max(stride * size for stride, size in zip(x.stride(), x.shape, strict=True))
    strides = [outermost if size == 1 else stride for stride, size in zip(x.stride(), x.shape, strict=True)]
    return x.as_strided(x.shape, [*strides[:-1], x.stride(-1)])


def _value_chunks(kernel: Kernel, v: Tensor, head_dim: int) -> list[tuple[Tensor, int]]:
    """Values in pieces of the head dimension, the last one filled up with zeros; and their true widths."""
    value_dim = v.shape[-1]
    if value_dim == head_dim or (kernel.any_value_dim and value_dim % kernel.channels == 0):
        return [(_aligned(v, 1), value_dim)]
    found = []
    for start in range(0, value_dim, head_dim):
        chunk = v[..., start : start + head_dim]
        found.append((_aligned(chunk, head_dim), chunk.shape[-1]))
    return found


# --- the CPU ---------------------------------------------------------------------------------------------------------

# For fewer keys than the processor's vectors have entries (16 floats at most), the kernel takes the maximum of a row
# one by one, and by comparisons that NaN never wins: a query of NaN would get zeros.
FEW_KEYS = 16


def _cpu_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    if k.shape[2] < FEW_KEYS:
        return _cpu_few_keys(q, k, v, causal, scale)
    return aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, scale=scale)


def _cpu_few_keys(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """The same, dense: with so few keys no tensor is longer than the inputs."""
    wide = torch.promote_types(q.dtype, torch.float32)
    k, v = (x.to(wide).repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = (q.to(wide) @ k.mT) * scale
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    return (scores.softmax(-1) @ v).to(q.dtype), scores.logsumexp(-1)


def _cpu_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    # The kernel reads the log-sum-exp as its forward writes it: heads next to each other.
    lse = lse.transpose(1, 2).contiguous().transpose(1, 2)
    return aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad, q, k, v, output, lse, 0.0, causal, scale=scale
    )


@functools.cache
def _cpu_shares_keys() -> bool:
    """Asked once, by a small call: older versions of PyTorch read past the end, or refuse."""
    if tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2]) < (2, 6):
        return False
    x = torch.arange(8.0 * FEW_KEYS).sin().view(1, 4, FEW_KEYS, 2)
    k = x[:, :2]
    wide = k.repeat_interleave(2, dim=1)
    try:
        output, lse = _cpu_forward(x, k, k, True, 1.0)
        wanted, wanted_lse = _cpu_forward(x, wide, wide, True, 1.0)
        grads = _cpu_backward(x, x, k, k, output, lse, True, 1.0)
        wanted_grads = _cpu_backward(x, x, wide, wide, wanted, wanted_lse, True, 1.0)
    except RuntimeError:
        return False
    sums = (wanted_grads[0], *(g.unflatten(1, (2, 2)).sum(2) for g in wanted_grads[1:]))
    pairs = zip((output, *grads), (wanted, *sums), strict=True)
    return all(a.shape == b.shape and torch.allclose(a, b, atol=1e-4) for a, b in pairs)


# --- CUDA ------------------------------------------------------------------------------------------------------------


def _flash_forward(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, window: int = 0
) -> tuple[Tensor, Tensor]:
    if not window:
        return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False, scale=scale)[:2]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # the operation below takes heads after rows
    output, lse = aten._flash_attention_forward(
        q, k, v, None, None, q.shape[1], k.shape[1], 0.0, False, False, scale=scale,
        window_size_left=window - 1, window_size_right=0,
    )[:2]  # fmt: skip
    return output.transpose(1, 2), lse


def _flash_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor, causal: bool, scale: float,
    window: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    seed, offset = _no_dropout(q)
    grad, output = grad.contiguous(), output.contiguous()
    if not window:
        return aten._scaled_dot_product_flash_attention_backward(
            grad, q, k, v, output, lse.contiguous(), None, None, q.shape[2], k.shape[2], 0.0, causal, seed, offset,
            scale=scale,
        )  # fmt: skip
    grad, q, k, v, output = (x.transpose(1, 2) for x in (grad, q, k, v, output))
    grads = aten._flash_attention_backward(
        grad, q, k, v, output, lse.contiguous(), None, None, q.shape[1], k.shape[1], 0.0, False, seed, offset,
        scale=scale, window_size_left=window - 1, window_size_right=0,
    )  # fmt: skip
    return tuple(x.transpose(1, 2) for x in grads)


@functools.cache
def _flash_slides() -> bool:
    """Asked once, by a call of a few numbers: whether the window means what is said above. Reads the answer from the
    device, the only time that this waits for it."""
    q, k = (torch.arange(8.0 * n, device="cuda").sin().view(1, 1, n, 8).half() for n in (5, 7))
    try:
        output, lse = _flash_forward(q, k, k, False, 1.0, window=3)
        grads = _flash_backward(output, q, k, k, output, lse, False, 1.0, window=3)
    except (RuntimeError, TypeError):
        return False
    distance = torch.arange(2, 7, device="cuda").unsqueeze(1) - torch.arange(7, device="cuda")
    grad, q, k = output.float(), q.float(), k.float()
    weights = (q @ k.mT).masked_fill((distance < 0) | (distance >= 3), -math.inf).softmax(-1)
    inner = weights * (grad @ k.mT - (grad * grad).sum(-1, keepdim=True))
    wanted = (weights @ k, inner @ k, inner.mT @ q, weights.mT @ grad)
    return all(torch.allclose(a.float(), b, atol=0.05) for a, b in zip((output, *grads), wanted, strict=True))


def _cudnn_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    return aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, False, scale=scale)[:2]


def _cudnn_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    seed, offset = _no_dropout(q)
    grad, output = grad.contiguous(), output.contiguous()
    return aten._scaled_dot_product_cudnn_attention_backward(
        grad, q, k, v, output, lse.unsqueeze(-1).contiguous(), seed, offset, None, None, None, q.shape[2], k.shape[2],
        0.0, causal, scale=scale,
    )  # fmt: skip


def _efficient_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    output, lse = aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal, scale=scale)[:2]
    return output, lse[..., : q.shape[2]]  # it comes filled up to a multiple of 32


def _efficient_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    seed, offset = _no_dropout(q)
    lse = pad(lse, (0, -lse.shape[-1] % 32), value=math.inf).contiguous()  # weights of 0 there
    grad = grad.contiguous()
    output = output.transpose(1, 2).contiguous().transpose(1, 2)  # it reads rows as its forward lays them out
    return aten._scaled_dot_product_efficient_attention_backward(
        grad, q, k, v, None, output, lse, seed, offset, 0.0, [True, True, True, False], causal, scale=scale
    )[:3]


def _no_dropout(q: Tensor) -> tuple[Tensor, Tensor]:
    """State of the random numbers for dropout, which is off: never read."""
    state = torch.zeros(2, dtype=torch.int64, device=q.device)
    return state, state


KERNELS: dict[str, Kernel] = {
    "cpu": Kernel(_cpu_forward, _cpu_backward, _cpu_shares_keys, grain=128),
    "flash": Kernel(_flash_forward, _flash_backward, _yes, channels=8, slides=_flash_slides),
    "cudnn": Kernel(_cudnn_forward, _cudnn_backward, _no, channels=8),
    "efficient": Kernel(_efficient_forward, _efficient_backward, _no, channels=8, any_value_dim=True),
}
