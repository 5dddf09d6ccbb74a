"""Thin modules around the functions. What they compute from positions, ``.to(bfloat16)`` cannot round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lessons._checks import (
    MOST_CHANNELS,
    check_bool,
    check_choice,
    check_count,
    check_device,
    check_dim,
    check_not_negative,
    check_positions,
    check_positive,
    check_tensor,
)
from rope_lessons.engine import attention
from rope_lessons.rotary import LAYOUTS, apply_rotary
from rope_lessons.schemes import FrequencySpec, Scheme
from rope_lessons.sinusoidal import sinusoidal_encoding

RESIZINGS = ("interpolate", "keep")
MOST_ROWS = 2**24  # of a learned table


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


# --- added to the tokens, before the first layer ---------------------------------------------------------------------


def _check_stream(x: Any, dim: int) -> None:
    check_tensor("x", x)
    if x.ndim < 2 or x.shape[-1] != dim:
        raise ValueError(f"x must have shape (..., seq, dim) with dim = {dim}, got {tuple(x.shape)}")


def _check_rows(rows: Any) -> None:
    check_count("rows", rows, 1, most=MOST_ROWS, why="each is a vector to be learned")


def _check_places(positions: Any, x: Tensor) -> None:
    """One position for each token of ``x``, or the same for all texts of a batch."""
    check_positions("positions", positions)
    check_device("positions", positions, x.device, like="x")
    places = x.shape[:-1]
    if positions.shape not in (places, places[-1:]):
        shapes = " or ".join(str(tuple(shape)) for shape in dict.fromkeys((places[-1:], places)))
        raise ValueError(f"positions must have shape {shapes}, as x has tokens, got {tuple(positions.shape)}")


class SinusoidalEmbedding(nn.Module):
    r"""The sinusoidal encoding, added to the tokens: :math:`\mathbf{x}_m + c\,\mathbf{e}_m`.

    The vectors of the positions 0, 1, 2, … are kept in a float32 table, which doubles when a longer text comes. It is
    no buffer: no checkpoint holds it, ``.to(bfloat16)`` does not round it, and a text of any length is encoded.

    Args:
        dim: channels of the tokens; even.
        base: :math:`B` of the frequencies.
        scale: :math:`c`. Embeddings of another size than :math:`\sqrt{d/2}`, the length of an encoding, want another.
        learned: make the scale a parameter ``(1,)``, started at ``scale``.

    Raises:
        TypeError, ValueError: arguments of another kind; an odd ``dim``.

    Source: Vaswani et al. 2017, sections 3.4 and 3.5. Chapter 01.

    >>> embed = SinusoidalEmbedding(4)
    >>> embed(torch.zeros(1, 2, 4))
    tensor([[[0.0000, 1.0000, 0.0000, 1.0000],
             [0.8415, 0.5403, 0.0100, 0.9999]]])
    >>> SinusoidalEmbedding(4, scale=0.1, learned=True)
    SinusoidalEmbedding(4, scale=0.1, learned=True)
    """

    def __init__(self, dim: int, *, base: float = 10_000.0, scale: float = 1.0, learned: bool = False):
        super().__init__()
        check_dim(dim)
        check_positive("base", base)
        check_positive("scale", scale)
        check_bool("learned", learned)
        self.dim, self.base, self.start = dim, base, float(scale)
        self.scale: nn.Parameter | float = nn.Parameter(torch.full((1,), self.start)) if learned else self.start
        self._table: Tensor | None = None

    def reset_parameters(self) -> None:
        """A learned scale is what it was at the start again."""
        if isinstance(self.scale, nn.Parameter):
            nn.init.constant_(self.scale, self.start)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Tokens ``(..., seq, dim)`` to their sum with the encodings. Positions are 0, 1, 2, … by default; others are
        ``(seq,)`` or ``(..., seq)``, int64, or float64 when fractional, and computed without the table."""
        _check_stream(x, self.dim)
        if positions is None:
            vectors = self._first(x)
        else:
            _check_places(positions, x)
            vectors = sinusoidal_encoding(positions, self.dim, self.base)
        return x + (self.scale * vectors).to(x.dtype)

    def _first(self, x: Tensor) -> Tensor:
        """The encodings of the positions 0, 1, 2, … as far as ``x`` has tokens, ``(seq, dim)``."""
        length, table = x.shape[-2], self._table
        if torch.compiler.is_compiling() or type(x) not in (Tensor, nn.Parameter):
            # A compiled graph computes them itself, and what is not a plain tensor (a fake one) must not stay behind.
            return sinusoidal_encoding(torch.arange(length, device=x.device), self.dim, self.base)
        if table is None or table.device != x.device:
            rows = length
        elif len(table) < length:
            rows = max(length, 2 * len(table))
        else:
            return table[:length]
        with torch.inference_mode(False):  # a table made for inference could not take part in training
            self._table = sinusoidal_encoding(torch.arange(rows, device=x.device), self.dim, self.base)
        return self._table[:length]

    def __getstate__(self) -> dict[str, Any]:
        """A copy, or a pickled module, makes a table of its own."""
        return {**self.__dict__, "_table": None}

    def extra_repr(self) -> str:
        base = "" if self.base == 10_000 else f", base={self.base!r}"
        scale = "" if self.start == 1 else f", scale={self.start!r}"
        return f"{self.dim}{base}{scale}" + (", learned=True" if isinstance(self.scale, nn.Parameter) else "")


class LearnedEmbedding(nn.Module):
    r"""A vector for each of the first positions, learned as those of the tokens are, and added to them.

    A fractional position gets what lies between its two rows, so a table can be stretched over a longer text. Beyond
    the last row there is nothing, and that is an error; :meth:`resize` makes more rows.

    Args:
        rows: of the table: how many positions there are.
        dim: channels of the tokens.
        std: standard deviation at the start.

    Raises:
        TypeError, ValueError: arguments of another kind.

    Source: Devlin et al. 2019 (BERT); the standard deviation is that of their code. Chapter 01.

    >>> embed = LearnedEmbedding(512, 8)
    >>> embed(torch.zeros(1, 5, 8)).shape
    torch.Size([1, 5, 8])
    >>> embed.resize(1024)
    >>> embed
    LearnedEmbedding(1024, 8)
    """

    def __init__(self, rows: int, dim: int, *, std: float = 0.02):
        super().__init__()
        _check_rows(rows)
        check_count("dim", dim, 1, most=MOST_CHANNELS, why="channels of a token")
        check_not_negative("std", std)
        self.std = std
        self.weight = nn.Parameter(torch.empty(rows, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fill the table as at the start."""
        nn.init.normal_(self.weight, std=self.std)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Tokens ``(..., seq, dim)`` to their sum with the rows. Positions are 0, 1, 2, … by default; others are
        ``(seq,)`` or ``(..., seq)``, int64, or float64 when fractional.

        Raises:
            ValueError: a position outside the table. On a GPU PyTorch's own look-up stops at positions that are given:
                reading them first would make the host wait for the device.
        """
        _check_stream(x, self.weight.shape[1])
        check_device("x", x, self.weight.device, like="the table")
        if positions is None:
            if x.shape[-2] > len(self.weight):
                raise self._outside(len(self.weight))
            return x + self.weight[: x.shape[-2]].to(x.dtype)
        _check_places(positions, x)
        if positions.device.type == "cpu" and not torch.compiler.is_compiling():
            self._check(positions)
        return x + self._at(positions).to(x.dtype)

    def resize(self, rows: int, how: str = "interpolate") -> None:
        """Another number of rows, in a new parameter: make the optimizer afterwards.

        Args:
            rows: of the new table.
            how: ``"interpolate"`` stretches the old table, end on end; between two rows lies a straight line.
                ``"keep"`` leaves the old rows where they are, and more start as all did.

        Raises:
            TypeError, ValueError: arguments of another kind.

        Chapter 01 says what either does to the distances.
        """
        _check_rows(rows)
        check_choice("how", how, RESIZINGS)
        old, kept = self.weight, min(rows, len(self.weight))
        with torch.no_grad():
            if how == "interpolate":
                step = (len(old) - 1) / max(rows - 1, 1)
                places = torch.arange(rows, dtype=torch.float64, device=old.device) * step
                new = self._at(places.clamp(max=len(old) - 1))
            else:
                new = torch.cat((old[:kept], old.new_empty(rows - kept, old.shape[1]).normal_(std=self.std)))
        self.weight = nn.Parameter(new, requires_grad=old.requires_grad)

    def _at(self, positions: Tensor) -> Tensor:
        """The rows at these positions, or between them."""
        if not positions.is_floating_point():
            return F.embedding(positions, self.weight)
        before, after = (F.embedding(row.long(), self.weight) for row in (positions.floor(), positions.ceil()))
        return torch.lerp(before, after, positions.frac().unsqueeze(-1).to(before.dtype))

    def _check(self, positions: Tensor) -> None:
        outside = positions[~((positions >= 0) & (positions <= len(self.weight) - 1))]  # NaN is outside too
        if outside.numel():
            raise self._outside(outside[0].item())

    def _outside(self, position: float) -> ValueError:
        rows = len(self.weight)
        return ValueError(
            f"positions must be from 0 to {rows - 1}: the learned table has {rows} rows and ends there, got "
            f"{position:g}"
        )

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, {self.weight.shape[1]}" + ("" if self.std == 0.02 else f", std={self.std!r}")
