"""Thin modules around the functions. They own learned frequencies and nothing that ``.to(bfloat16)`` could round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from rope_lessons._checks import check_bool, check_choice, check_positive, check_tensor
from rope_lessons.engine import attention
from rope_lessons.rotary import LAYOUTS, apply_rotary
from rope_lessons.schemes import FrequencySpec, Scheme


def _check_type(name: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {type(value).__name__}")


class LearnedFrequencies(nn.Module):
    """Frequencies as a float64 parameter ``(dim/2,)``. They move with the model and keep their dtype.

    On the meta device they hold nothing; ``to_empty``, which gives the other parameters memory of any content, gives
    them the frequencies of the spec. FSDP wants one dtype in a group, so the module that owns them is a group of its
    own: ``fully_shard(attention)`` before ``fully_shard(model)``.

    Args:
        spec: where they start; not one that depends on the length of the text.

    Raises:
        TypeError, ValueError: something else than such a spec.

    >>> from rope_lessons import FrequencySpec
    >>> LearnedFrequencies(FrequencySpec("rope", dim=4)).to(torch.bfloat16).value.dtype
    torch.float64
    """

    def __init__(self, spec: FrequencySpec):
        super().__init__()
        _check_type("spec", spec, FrequencySpec)
        if spec.needs_length:
            raise ValueError(f"spec must not depend on the length of the text to be learned, got {spec!r}")
        self.spec = spec
        self.value = nn.Parameter(spec())

    def reset_parameters(self) -> None:
        """The frequencies of the spec again, in the same parameter."""
        value: Any = self.value
        start = self.spec(device=value.device)
        if hasattr(value, "device_mesh"):  # each process holds a part of it (FSDP)
            from torch.distributed.tensor import distribute_tensor

            start = distribute_tensor(start, value.device_mesh, value.placements)
        with torch.no_grad():
            value.copy_(start)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LearnedFrequencies:
        def keep_dtype(tensor: Tensor) -> Tensor:  # .to(bfloat16) and the like: follow the device, not the dtype
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        held_nothing = self.value.is_meta
        super()._apply(keep_dtype, recurse)
        if held_nothing and not self.value.is_meta:  # to_empty: zeros in this memory would be no positions at all
            self.reset_parameters()
        return self

    def extra_repr(self) -> str:
        return repr(self.spec)


class RotaryEmbedding(nn.Module):
    r"""Rotary position embedding as a module: :func:`~rope_lessons.apply_rotary` with its frequencies.

    Args:
        frequencies: how to compute them.
        layout: ``"half"`` or ``"interleaved"``.
        scale: multiplies the turned channels.
        learned: make the frequencies a float64 parameter, started at those of the spec.

    Raises:
        TypeError, ValueError: arguments of another kind; learned frequencies for a spec that depends on the length.

    Chapter 02.

    >>> rotary = RotaryEmbedding(FrequencySpec("rope", dim=8))
    >>> rotary(torch.ones(1, 2, 5, 8)).shape
    torch.Size([1, 2, 5, 8])
    """

    def __init__(self, frequencies: FrequencySpec, *, layout: str = "half", scale: float = 1.0, learned: bool = False):
        super().__init__()
        _check_type("frequencies", frequencies, FrequencySpec)
        check_choice("layout", layout, LAYOUTS)
        check_positive("scale", scale)
        check_bool("learned", learned)
        self.spec, self.layout, self.scale = frequencies, layout, scale
        self.learned = LearnedFrequencies(frequencies) if learned else None

    def forward(self, x: Tensor, positions: Tensor | None = None, *, length: int | None = None) -> Tensor:
        """Turn ``x`` ``(..., seq, head_dim)``. Positions are 0, 1, 2, … by default; with others, a spec that depends
        on the length needs ``length``."""
        check_tensor("x", x)
        if x.ndim < 2:
            raise ValueError(f"x must have shape (..., seq, head_dim), got {tuple(x.shape)}")
        if positions is None:
            positions = torch.arange(x.shape[-2], device=x.device)
            length = (x.shape[-2] or 1) if length is None else length  # no tokens: nothing turns
        # With positions given, only the caller knows the length: a spec that needs it says so.
        frequencies = self.spec(length, device=x.device) if self.learned is None else self.learned.value
        return apply_rotary(x, positions, frequencies, layout=self.layout, scale=self.scale)

    def extra_repr(self) -> str:
        layout = "" if self.layout == "half" else f", layout={self.layout!r}"
        return f"{self.spec!r}{layout}" + ("" if self.scale == 1 else f", scale={self.scale!r}")


class Attention(nn.Module):
    """:func:`~rope_lessons.attention` with a scheme, as a module.

    Args:
        scheme: the five knobs.
        learned_frequencies: make the frequencies a float64 parameter, started at those of the scheme.

    Raises:
        TypeError, ValueError: arguments of another kind; learned frequencies for a scheme without frequencies.

    >>> from rope_lessons import scheme
    >>> x = torch.ones(1, 2, 5, 8)
    >>> module = Attention(scheme("rope", dim=8))
    >>> module(x, x, x).shape
    torch.Size([1, 2, 5, 8])
    >>> module
    Attention(Scheme(FrequencySpec('rope', dim=8)))
    """

    def __init__(self, scheme: Scheme, *, learned_frequencies: bool = False):
        super().__init__()
        _check_type("scheme", scheme, Scheme)
        check_bool("learned_frequencies", learned_frequencies)
        if learned_frequencies and scheme.frequencies is None:
            raise ValueError("learned_frequencies must be False for a scheme without frequencies, got True")
        self.scheme = scheme
        start = scheme.frequencies if learned_frequencies else None
        self.learned = LearnedFrequencies(start) if start is not None else None

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, frequencies: Tensor | None = None, **options: Any) -> Tensor:
        """As :func:`~rope_lessons.attention`, with its keyword arguments."""
        if self.learned is not None:
            if frequencies is not None:
                raise ValueError("frequencies must be None for a module that has learned its own, got a tensor")
            frequencies = self.learned.value
        return attention(q, k, v, self.scheme, frequencies=frequencies, **options)

    def extra_repr(self) -> str:
        return repr(self.scheme)
