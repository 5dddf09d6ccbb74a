"""What PyTorch may have switched on around a call: autocast, transforms, forward-mode differentiation."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.autograd import forward_ad


def own_precision(device: torch.device) -> AbstractContextManager[None]:
    """Autocast is off inside: attention has the precision of its inputs. Some devices (meta) have no autocast."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def in_one_dtype(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors of different dtypes in that of autocast, where it is on: what it does to the arguments of
    ``F.scaled_dot_product_attention``, float64 left alone. Others as they are."""
    device = tensors[0].device.type
    mixed = any(x.dtype != tensors[0].dtype for x in tensors)
    if not mixed or not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(x if x.dtype == torch.float64 else x.to(dtype) for x in tensors)


def transformed() -> str | None:
    """Why only plain PyTorch operations will do here, None if others will too. Derivatives by ``torch.func`` and in
    forward mode, and ``vmap``, know nothing of the operations that a fast backend is made of; in forward mode they
    would even be 0 without a word."""
    if torch._C._are_functorch_transforms_active():
        return "torch.func transforms (grad, vjp, jvp, vmap, …) go through plain operations only"
    if forward_ad._current_level >= 0:
        return "forward-mode differentiation goes through plain operations only"
    return None
