"""Angles are computed in float64. Apple's GPUs (MPS) have none: there it is done on the CPU, and the result moved."""

from __future__ import annotations

import torch
from torch import Tensor

from rope_lessons._checks import device_named


def float64_device(device: torch.device | str | None) -> torch.device | None:
    """Where float64 tensors for ``device`` live: the device itself, or the CPU for MPS.

    >>> float64_device(torch.device("mps")), float64_device("cpu")
    (device(type='cpu'), device(type='cpu'))
    """
    device = device_named(device)
    return torch.device("cpu") if device is not None and device.type == "mps" else device


def exact(tensor: Tensor) -> Tensor:
    """The tensor in float64, on the device that has it."""
    return tensor.to(float64_device(tensor.device)).to(torch.float64)
