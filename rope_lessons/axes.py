"""Positions with several axes, of pixels, patches and frames: rotations that commute. Derived in chapter 14."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rope_lessons._checks import (
    as_float,
    check_bool,
    check_count,
    check_device,
    check_dim,
    check_float_dtype,
    check_frequencies,
    check_parts,
    check_positions,
    check_positive,
    check_size,
    check_tensor,
    device_named,
    shown,
)
from rope_lessons._float64 import exact, float64_device
from rope_lessons.rotary import TABLE_DTYPES, rotate
from rope_lessons.sinusoidal import rope_frequencies

# --- positions -------------------------------------------------------------------------------------------------------


def axial_positions(sizes: Sequence[int], *, device: torch.device | str | None = None) -> Tensor:
    r"""Positions of a grid, line by line: row and column of each pixel, or frame, row and column.

    Args:
        sizes: how many places each axis has, ``(rows, columns)``; the last axis runs fastest.
        device: where the result lives.

    Returns:
        int64 tensor ``(places, axes)``.

    Raises:
        TypeError, ValueError: sizes that are no list or tuple of ints of at least 1, or none.

    Chapter 14.

    >>> axial_positions((2, 3)).tolist()
    [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    """
    if not isinstance(sizes, (list, tuple)):
        raise TypeError(f"sizes must be a list or tuple of ints of at least 1, got {shown(sizes)}")
    if not sizes:
        raise ValueError(f"sizes must have at least one entry, got {sizes!r}")
    places = 1
    for number, size in enumerate(sizes):
        check_count(f"sizes[{number}]", size, least=1)
        places *= size
    check_size("the product of sizes", places * len(sizes))
    device = device_named(device)
    axes = [torch.arange(size, device=device) for size in sizes]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).flatten(0, -2)


def multimodal_positions(parts: Sequence[int | Sequence[int]], *, device: torch.device | str | None = None) -> Tensor:
    r"""Positions (time, row, column) of a text with pictures in it, as M-RoPE counts them.

    A token of text stands at the same number on all three axes, as in RoPE. A picture of :math:`T \times H \times W`
    patches begins where the text stopped, at :math:`(s, s, s)`, and its patch :math:`(t, y, x)` stands at
    :math:`(s + t, s + y, s + x)`. What comes after it goes on at :math:`s + \max(H, W)`: frames do not count, so after
    a film of more than that many the text begins before the last frame.

    Args:
        parts: of the text, in order: an int, so many tokens of text; or ``(frames, rows, columns)`` of a picture.
        device: where the result lives.

    Returns:
        int64 tensor ``(tokens, 3)``.

    Raises:
        TypeError, ValueError: no parts; parts of another kind.

    Source: Wang et al., "Qwen2-VL" (arXiv 2409.12191), section 2.1, where frames count; transformers 5.3. Chapter 14.

    >>> multimodal_positions([2, (1, 2, 3), 1]).tolist()
    [[0, 0, 0], [1, 1, 1], [2, 2, 2], [2, 2, 3], [2, 2, 4], [2, 3, 2], [2, 3, 3], [2, 3, 4], [5, 5, 5]]
    """
    if not isinstance(parts, (list, tuple)) or not parts:
        raise ValueError(f"parts must be a list of ints and of (frames, rows, columns), got {shown(parts)}")
    found, start = [], 0
    for number, part in enumerate(parts):
        if isinstance(part, (list, tuple)):
            if len(part) != 3:
                raise ValueError(f"parts[{number}] must be (frames, rows, columns), got {shown(part)}")
            found.append(axial_positions(part, device=device) + start)
            start += max(part[1:])
        else:
            check_count(f"parts[{number}]", part, least=1)
            found.append(axial_positions((part,), device=device).expand(-1, 3) + start)
            start += part
    return torch.cat(found)


# --- frequencies: one row per axis -----------------------------------------------------------------------------------


def axial_frequencies(
    dim: int, axes: int, *, base: float = 10_000.0, device: torch.device | str | None = None
) -> Tensor:
    r"""Frequencies of axial RoPE: each axis has pairs of its own, and a whole ladder of RoPE on them.

    Pair :math:`t` of axis :math:`a` is pair :math:`a\,d/2n + t` of the head, and turns by

    .. math:: \Omega_{a,\,a d/2n + t} = B^{-2t\,n/d}, \qquad t = 0, \dots, \tfrac{d}{2n} - 1

    radians per step on its axis, and not at all on the others; :math:`n` is the number of axes.

    Args:
        dim: channels that turn, :math:`d`; a multiple of ``2 * axes``.
        axes: number of axes, :math:`n`.
        base: :math:`B`.
        device: where the result lives.

    Returns:
        float64 tensor ``(axes, dim/2)``, one entry per column not zero.

    Raises:
        TypeError, ValueError: numbers out of range; axes that do not divide the pairs.

    Source: Heo et al., "Rotary Position Embedding for Vision Transformer" (arXiv 2403.13298), "axial frequency";
    Qwen2-VL's images. Chapter 14.

    >>> axial_frequencies(8, 2, base=100)
    tensor([[1.0000, 0.1000, 0.0000, 0.0000],
            [0.0000, 0.0000, 1.0000, 0.1000]], dtype=torch.float64)
    """
    check_dim(dim)
    check_parts("axes", axes)
    check_positive("base", base)
    if dim % (2 * axes):
        raise ValueError(f"dim must be a multiple of 2 * axes = {2 * axes}, so that all axes get pairs, got {dim}")
    ladder = rope_frequencies(dim // axes, base=base, device=device)
    return torch.block_diag(*[ladder] * axes)


def sectioned_frequencies(frequencies: Tensor, sections: Sequence[int], *, interleaved: bool = False) -> Tensor:
    r"""Frequencies of M-RoPE: one ladder, whose pairs are shared out among the axes. Where all positions of a token are
    the same number, as in text, it is RoPE.

    Args:
        frequencies: float64 ``(dim/2,)``, those of RoPE or of any other ladder.
        sections: how many pairs each axis gets; together ``dim/2``.
        interleaved: deal the pairs out in turn (axis 0, 1, 2, 0, 1, 2, …) as long as an axis has any left to get, and
            the rest to axis 0, instead of one section after the other.

    Returns:
        float64 tensor ``(axes, dim/2)``.

    Raises:
        TypeError, ValueError: frequencies of another kind; sections that are not as many pairs; ``interleaved`` with
            an axis that has more pairs than axis 0.

    Source: Wang et al., "Qwen2-VL" (arXiv 2409.12191): sections 16, 24, 24; transformers' Qwen3-VL for the order
    in turn. Chapter 14.

    >>> ladder = torch.tensor([1.0, 0.1, 0.01, 0.001], dtype=torch.float64)
    >>> sectioned_frequencies(ladder, (1, 3))
    tensor([[1.0000, 0.0000, 0.0000, 0.0000],
            [0.0000, 0.1000, 0.0100, 0.0010]], dtype=torch.float64)
    """
    check_frequencies(frequencies)
    check_bool("interleaved", interleaved)
    if frequencies.ndim != 1:
        raise ValueError(f"frequencies must have shape (dim/2,), got {tuple(frequencies.shape)}")
    if not isinstance(sections, (list, tuple)) or not sections:
        raise TypeError(f"sections must be a list or tuple of ints, got {shown(sections)}")
    for number, size in enumerate(sections):
        check_count(f"sections[{number}]", size)
    if sum(sections) != len(frequencies):
        raise ValueError(
            f"sections must have as many pairs together as frequencies, {len(frequencies)}, got {shown(sum(sections))}"
        )
    if not interleaved:
        owner = [axis for axis, size in enumerate(sections) for _ in range(size)]
    else:
        if max(sections) > sections[0]:
            raise ValueError(f"sections must be largest for axis 0 when interleaved, got {list(sections)}")
        axes = len(sections)
        owner = [t % axes if t // axes < sections[t % axes] else 0 for t in range(len(frequencies))]
    own = torch.tensor(owner, device=frequencies.device) == torch.arange(
        len(sections), device=frequencies.device
    ).unsqueeze(1)
    return own * frequencies


# --- the rotation ----------------------------------------------------------------------------------------------------


def axial_table(
    positions: Tensor, frequencies: Tensor, *, scale: float = 1.0, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    r"""Cosines and sines of the angles :math:`\varphi_t = \sum_a p_a\,\Omega_{a,t}`, for
    :func:`~rope_lessons.rotary.rotate`; computed in float64, and rounded once.

    Args:
        positions: int64, or float64 when fractional; ``(seq, axes)`` or ``(batch, seq, axes)``.
        frequencies: float64 ``(axes, dim/2)``, radians per step on each axis. Several entries of a column may differ
            from zero: such a pair turns along a slanted direction. Gradients flow to it.
        scale: both tables are multiplied by it.
        dtype: float32, or float64 for reference computations.

    Returns:
        two tensors ``(seq, dim/2)``, or with a batch ``(batch, 1, seq, dim/2)``.

    Raises:
        TypeError, ValueError: positions or frequencies of another dtype, or of shapes that do not match.

    Chapter 14.

    >>> cos, sin = axial_table(torch.tensor([[0, 0], [2, 1]]), torch.eye(2, dtype=torch.float64))
    >>> cos  # of 0 and 0, and of 2 and 1
    tensor([[ 1.0000,  1.0000],
            [-0.4161,  0.5403]])
    """
    check_positions("positions", positions)
    check_frequencies(frequencies)
    check_positive("scale", scale)
    check_float_dtype(dtype, TABLE_DTYPES)
    scale = as_float(scale)
    if scale > torch.finfo(dtype).max:
        raise ValueError(f"scale must be a number of {dtype}, the dtype of the table, got {scale}")
    if frequencies.ndim != 2:
        raise ValueError(f"frequencies must have shape (axes, dim/2), got {tuple(frequencies.shape)}")
    if positions.ndim not in (2, 3) or positions.shape[-1] != frequencies.shape[0]:
        raise ValueError(
            f"positions must have shape ([batch,] seq, axes) with {frequencies.shape[0]} axes, the rows of "
            f"frequencies, got {tuple(positions.shape)}"
        )
    where = exact(positions)
    check_device("frequencies", frequencies, where.device, like="positions")
    angles = where.to(torch.float64) @ frequencies
    if positions.ndim == 3:
        angles = angles.unsqueeze(1)
    device = positions.device
    return (angles.cos() * scale).to(dtype).to(device), (angles.sin() * scale).to(dtype).to(device)


def apply_axial(x: Tensor, positions: Tensor, frequencies: Tensor, *, layout: str, scale: float = 1.0) -> Tensor:
    r"""Rotary position embedding with several axes: :math:`\mathbf{R}(\mathbf{p}\,\boldsymbol\Omega)\,\mathbf{x}`, pair
    :math:`t` turned by :math:`\sum_a p_a\,\Omega_{a,t}`.

    Rotations of one plane commute, so a score depends on the difference of two positions alone, axis by axis:
    :math:`\langle\mathbf{R}(\mathbf{p}\boldsymbol\Omega)\mathbf{q},
    \mathbf{R}(\mathbf{p}'\boldsymbol\Omega)\mathbf{k}\rangle
    = \langle\mathbf{R}((\mathbf{p}-\mathbf{p}')\boldsymbol\Omega)\mathbf{q}, \mathbf{k}\rangle`.

    Args:
        x: queries or keys ``(..., seq, head_dim)``; ``(batch, heads, seq, head_dim)`` for positions per row.
        positions: int64, or float64 when fractional; ``(seq, axes)`` or ``(batch, seq, axes)``.
        frequencies: float64 ``(axes, dim/2)``. Gradients flow to it.
        layout: ``"interleaved"`` pairs channels :math:`2t, 2t+1`; ``"half"`` pairs :math:`t, t+d/2`.
        scale: multiplies the turned channels.

    Returns:
        tensor like ``x``.

    Raises:
        TypeError, ValueError: as :func:`axial_table` and :func:`~rope_lessons.rotary.rotate`; as many positions as
            ``x`` does not have.

    Source: Heo et al. (arXiv 2403.13298), of which RoPE-Axial and RoPE-Mixed are two choices of :math:`\Omega`.
    Chapter 14.

    >>> x = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    >>> apply_axial(x, torch.tensor([[1, 2]]), torch.eye(2, dtype=torch.float64), layout="interleaved")
    tensor([[ 0.5403,  0.8415, -0.4161,  0.9093]])
    """
    check_tensor("x", x)
    check_positions("positions", positions)
    if x.ndim < 2:
        raise ValueError(f"x must have shape (..., seq, head_dim), got {tuple(x.shape)}")
    if positions.ndim not in (2, 3) or positions.shape[-2] != x.shape[-2]:
        raise ValueError(
            f"positions must have shape ([batch,] {x.shape[-2]}, axes) for x {tuple(x.shape)}, "
            f"got {tuple(positions.shape)}"
        )
    if positions.ndim == 3 and (x.ndim != 4 or positions.shape[0] not in (1, x.shape[0])):
        raise ValueError(
            f"positions must have one row for each row of x (batch, heads, seq, head_dim), "
            f"got {tuple(positions.shape)} for x {tuple(x.shape)}"
        )
    if positions.device != float64_device(x.device):  # fractional positions for MPS live on the CPU
        check_device("positions", positions, x.device, like="x")
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    cos, sin = axial_table(positions, frequencies, scale=scale, dtype=dtype)
    return rotate(x, cos.to(x.device), sin.to(x.device), layout=layout)
