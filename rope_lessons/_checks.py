"""Checks of arguments. Every error names the argument, what it got and what it takes."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Collection, Iterable
from typing import Any

import torch

LARGEST = 2**63 - 1  # of PyTorch's whole numbers, int64
MOST_CHANNELS = 2**20  # a dim, in which only a slip of the pen is larger
MOST_PARTS = 2**16  # heads or layers: Python counts them one by one
MOST, TINIEST = sys.float_info.max, sys.float_info.min  # of float64; below the second, one over a number overflows


def shown(value: Any) -> str:
    """A value in a message. Python refuses to write out an int of thousands of digits."""
    try:
        return repr(value)
    except ValueError:
        return f"an int of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"


def as_float(number: float) -> float:
    """PyTorch's operations take Python's ints up to 64 bits, and floats of any size."""
    return float(number) if isinstance(number, int) else number


def check_dim(dim: Any, least: int = 2) -> None:
    what = f"dim must be an even int of at least {least}"
    if not isinstance(dim, (int, torch.SymInt)) or isinstance(dim, bool):
        raise TypeError(f"{what}, got {shown(dim)} of type {type(dim).__name__}")
    if dim < least or dim % 2:
        raise ValueError(f"{what}, got {shown(dim)}")
    if dim > MOST_CHANNELS:
        raise ValueError(f"{what} and at most {MOST_CHANNELS}, got {shown(dim)}")


def check_positive(name: str, value: Any) -> None:
    _check_number(name, value, "a positive finite number")
    if not 0 < value <= MOST:  # also false for NaN; torch.compile cannot trace math.isfinite
        raise ValueError(f"{name} must be a positive finite number, got {shown(value)}")
    if value < TINIEST:
        raise ValueError(f"{name} must be a positive finite number, and one over it finite too, got {shown(value)}")


def check_not_negative(name: str, value: Any) -> None:
    _check_number(name, value, "a finite number of at least 0")
    if not 0 <= value <= MOST:
        raise ValueError(f"{name} must be a finite number of at least 0, got {shown(value)}")


def check_share(name: str, value: Any) -> None:
    _check_number(name, value, "a number from 0 to 1")
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be a number from 0 to 1, got {shown(value)}")


def check_count(name: str, value: Any, least: int = 0, most: int = LARGEST, why: str = "the largest int64") -> None:
    """``why``: the reason for ``most``, in the message."""
    what = f"{name} must be an int of at least {least}"
    if not isinstance(value, (int, torch.SymInt)) or isinstance(value, bool):
        raise TypeError(f"{what}, got {shown(value)} of type {type(value).__name__}")
    if value < least:
        raise ValueError(f"{what}, got {shown(value)}")
    if isinstance(value, int) and value > most:  # a symbol of torch.compile is an int64
        raise ValueError(f"{what} and at most {most} ({why}), got {shown(value)}")


def check_size(name: str, value: Any, least: int = 1) -> None:
    """How many numbers a result is to hold. What fits into no memory here, PyTorch's allocator refuses."""
    check_count(name, value, least, most=2**59, why="8 bytes each, more than a tensor can have")


def check_parts(name: str, value: Any, least: int = 1) -> None:
    """Heads or layers."""
    check_count(name, value, least, most=MOST_PARTS, why="they are made one by one")


def check_bases(name: str, bases: Any) -> None:
    """The radices of a mixed-radix number: a list or tuple of ints of at least 2, at least one of them."""
    if not isinstance(bases, (list, tuple)):
        raise TypeError(f"{name} must be a list or tuple of ints of at least 2, got {shown(bases)}")
    if not bases:
        raise ValueError(f"{name} must have at least one entry, got {bases!r}")
    for place, base in enumerate(bases):
        check_count(f"{name}[{place}]", base, least=2)


def check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")


def _check_number(name: str, value: Any, what: str) -> None:
    numbers = (int, float, torch.SymInt, torch.SymFloat)
    if not isinstance(value, numbers) or isinstance(value, bool):
        raise TypeError(f"{name} must be {what}, got {shown(value)} of type {type(value).__name__}")


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    choices = tuple(choices)
    if not isinstance(value, str) or value not in choices:
        raise ValueError(not_among(name, value, choices))


def not_among(name: str, value: Any, choices: Collection[str], hint: str | None = None) -> str:
    hint = near(value, choices) if hint is None else hint
    return f"{name} must be one of {', '.join(map(repr, choices))}, got {shown(value)}{hint}"


def near(value: Any, choices: Iterable[str]) -> str:
    """A hint at the name that was perhaps meant, whatever its capitals."""
    if not isinstance(value, str):
        return ""
    small = {choice.lower(): choice for choice in choices}
    found = difflib.get_close_matches(value.lower(), small, n=1)
    return f"; did you mean {small[found[0]]!r}?" if found else ""


def check_positions(name: str, positions: Any) -> None:
    """Positions must be exact: int64, or float64 where they are fractional. bfloat16 merges them past 256."""
    if not isinstance(positions, torch.Tensor):
        raise TypeError(f"{name} must be a tensor of int64 or float64, got {type(positions).__name__}")
    if positions.dtype not in (torch.int64, torch.float64):
        raise TypeError(f"{name} must be int64, or float64 when fractional, got {positions.dtype}; convert on purpose")


def check_int64(name: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.int64:
        raise TypeError(f"{name} must be an int64 tensor, got {getattr(tensor, 'dtype', type(tensor).__name__)}")


def check_tensor(name: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
    if not tensor.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got {tensor.dtype}")


def check_heads(name: str, tensor: Any) -> None:
    """Queries, keys or values."""
    check_tensor(name, tensor)
    if tensor.ndim != 4:
        raise ValueError(
            f"{name} must have 4 dimensions (batch, heads, tokens, channels), got shape {tuple(tensor.shape)}"
        )


def check_readable(name: str, tensor: torch.Tensor) -> None:
    """For functions that look at the values of a tensor."""
    if tensor.is_meta:
        raise ValueError(f"{name} must hold values, which are read here, got a tensor on the meta device")


def device_named(device: Any) -> torch.device | None:
    """The device that an argument ``device`` names; a name that PyTorch knows may be of a device that is not here."""
    if device is None or isinstance(device, torch.device):
        return device
    what = "device must be a torch.device, the name of one that PyTorch can use here, or None"
    if not isinstance(device, str):
        raise TypeError(f"{what}, got {shown(device)}")
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, ImportError) as error:  # each kind of device has its own
        raise ValueError(f"{what}, got {device!r} ({str(error).partition(chr(10))[0][:200]})") from error


def check_device(name: str, tensor: torch.Tensor, device: torch.device, like: str = "the other tensors") -> None:
    if tensor.device != device:
        raise ValueError(f"{name} must be on {device} like {like}, got {tensor.device}")


def check_float_dtype(dtype: Any, choices: tuple[torch.dtype, ...]) -> None:
    if not isinstance(dtype, torch.dtype) or dtype not in choices:
        raise TypeError(f"dtype must be one of {', '.join(map(str, choices))}, got {shown(dtype)}")


def check_frequencies(frequencies: Any, dims: tuple[int, ...] = (1, 2)) -> None:
    if not isinstance(frequencies, torch.Tensor):
        raise TypeError(f"frequencies must be a float64 tensor, got {type(frequencies).__name__}")
    if frequencies.dtype != torch.float64:
        raise TypeError(f"frequencies must be float64 (angles are computed in float64), got {frequencies.dtype}")
    if frequencies.ndim not in dims:
        shapes = {1: "(dim/2,)", 2: "(heads, dim/2)"}
        wanted = " or ".join(shapes[d] for d in dims)
        raise ValueError(f"frequencies must have shape {wanted}, got {tuple(frequencies.shape)}")


def check_whole(n: int | torch.Tensor) -> torch.Tensor:
    """The argument ``n`` of ``digits`` and ``mixed_digits`` as an int64 tensor."""
    if isinstance(n, int) and not isinstance(n, bool) and abs(n) < 2**63:
        return torch.tensor(n)
    if not isinstance(n, torch.Tensor) or n.dtype != torch.int64:
        raise TypeError(f"n must be an int or an int64 tensor, got {shown(n)} of type {type(n).__name__}")
    check_readable("n", n)
    return n
