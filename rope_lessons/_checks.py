"""Checks of arguments. Every error names the argument, what it got and what it takes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch


def check_dim(dim: Any, least: int = 2) -> None:
    if not isinstance(dim, (int, torch.SymInt)) or isinstance(dim, bool):
        raise TypeError(f"dim must be an even int of at least {least}, got {dim!r} of type {type(dim).__name__}")
    if dim < least or dim % 2:
        raise ValueError(f"dim must be an even int of at least {least}, got {dim}")


def check_positive(name: str, value: Any) -> None:
    _check_number(name, value, "a positive finite number")
    if not 0 < value < math.inf:  # also false for NaN; torch.compile cannot trace math.isfinite
        raise ValueError(f"{name} must be a positive finite number, got {value}")


def check_not_negative(name: str, value: Any) -> None:
    _check_number(name, value, "a finite number of at least 0")
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a finite number of at least 0, got {value}")


def check_share(name: str, value: Any) -> None:
    _check_number(name, value, "a number from 0 to 1")
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be a number from 0 to 1, got {value}")


def check_count(name: str, value: Any, least: int = 0) -> None:
    if not isinstance(value, (int, torch.SymInt)) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int of at least {least}, got {value!r} of type {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be an int of at least {least}, got {value}")


def check_bases(name: str, bases: Any) -> None:
    """The radices of a mixed-radix number: a list or tuple of ints of at least 2, at least one of them."""
    if not isinstance(bases, (list, tuple)):
        raise TypeError(f"{name} must be a list or tuple of ints of at least 2, got {bases!r}")
    if not bases:
        raise ValueError(f"{name} must have at least one entry, got {bases!r}")
    for place, base in enumerate(bases):
        check_count(f"{name}[{place}]", base, least=2)


def check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def _check_number(name: str, value: Any, what: str) -> None:
    numbers = (int, float, torch.SymInt, torch.SymFloat)
    if not isinstance(value, numbers) or isinstance(value, bool):
        raise TypeError(f"{name} must be {what}, got {value!r} of type {type(value).__name__}")


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    choices = tuple(choices)
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def check_positions(name: str, positions: Any) -> None:
    """Positions must be exact: int64, or float64 where they are fractional. bfloat16 merges them past 256."""
    if not isinstance(positions, torch.Tensor):
        raise TypeError(f"{name} must be a tensor of int64 or float64, got {type(positions).__name__}")
    if positions.dtype not in (torch.int64, torch.float64):
        raise TypeError(f"{name} must be int64, or float64 when fractional, got {positions.dtype}; convert on purpose")


def check_int64(name: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.int64:
        raise TypeError(f"{name} must be an int64 tensor, got {getattr(tensor, 'dtype', type(tensor).__name__)}")


def check_tensor(name: str, tensor: Any, dims: int | None = None) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
    if not tensor.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got {tensor.dtype}")
    if dims is not None and tensor.ndim != dims:
        raise ValueError(f"{name} must have {dims} dimensions, got shape {tuple(tensor.shape)}")


def check_device(name: str, tensor: torch.Tensor, device: torch.device) -> None:
    if tensor.device != device:
        raise ValueError(f"{name} must be on {device} like the other tensors, got {tensor.device}")


def check_float_dtype(dtype: Any, choices: tuple[torch.dtype, ...]) -> None:
    if dtype not in choices:
        raise TypeError(f"dtype must be one of {', '.join(map(str, choices))}, got {dtype!r}")


def check_frequencies(frequencies: Any, dims: tuple[int, ...] = (1, 2)) -> None:
    if not isinstance(frequencies, torch.Tensor):
        raise TypeError(f"frequencies must be a float64 tensor, got {type(frequencies).__name__}")
    if frequencies.dtype != torch.float64:
        raise TypeError(f"frequencies must be float64 (angles are computed in float64), got {frequencies.dtype}")
    if frequencies.ndim not in dims:
        shapes = {1: "(dim/2,)", 2: "(heads, dim/2)"}
        wanted = " or ".join(shapes[d] for d in dims)
        raise ValueError(f"frequencies must have shape {wanted}, got {tuple(frequencies.shape)}")
