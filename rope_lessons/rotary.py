"""The rotary position embedding: turn every pair of channels by position times frequency. Derived in chapter 02."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rope_lessons._checks import (
    as_float,
    check_choice,
    check_count,
    check_device,
    check_float_dtype,
    check_frequencies,
    check_positions,
    check_positive,
    check_tensor,
)
from rope_lessons._float64 import exact, float64_device

LAYOUTS = ("interleaved", "half")
TABLE_DTYPES = (torch.float32, torch.float64)


def rotary_table(
    positions: Tensor, frequencies: Tensor, *, scale: float = 1.0, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    r"""Cosines and sines of the angles :math:`m\,\omega_t`, computed in float64 and rounded once to ``dtype``.

    Args:
        positions: int64, or float64 when fractional; ``(seq,)`` or ``(batch, seq)``.
        frequencies: float64 ``(dim/2,)`` or ``(heads, dim/2)``, in radians per position.
        scale: both tables are multiplied by it (YaRN's attention factor).
        dtype: float32, or float64 for reference computations.

    Returns:
        two tensors ``(seq, dim/2)``, or with a batch ``(batch, 1, seq, dim/2)``, or with heads
        ``([batch,] heads, seq, dim/2)``: shapes that broadcast against ``(batch, heads, seq, dim/2)``.

    Raises:
        TypeError, ValueError: positions or frequencies of another dtype or shape; ``scale`` not positive; another
            ``dtype``.

    Chapter 02, "Where it breaks", measures what float32 or bfloat16 angles cost.

    >>> cos, sin = rotary_table(torch.tensor([0, 1]), torch.tensor([1.0, 0.01], dtype=torch.float64))
    >>> cos
    tensor([[1.0000, 1.0000],
            [0.5403, 0.9999]])
    """
    check_positions("positions", positions)
    check_frequencies(frequencies)
    check_positive("scale", scale)
    check_float_dtype(dtype, TABLE_DTYPES)
    scale = as_float(scale)
    if scale > torch.finfo(dtype).max:
        raise ValueError(f"scale must be a number of {dtype}, the dtype of the table, got {scale}")
    if positions.ndim not in (1, 2):
        raise ValueError(f"positions must have shape (seq,) or (batch, seq), got {tuple(positions.shape)}")
    device = positions.device
    where = exact(positions).unsqueeze(-1)  # (seq, 1) or (batch, seq, 1)
    check_device("frequencies", frequencies, where.device, like="positions")
    if positions.ndim == 2:
        where = where.unsqueeze(1)  # (batch, 1, seq, 1)
    if frequencies.ndim == 2:
        frequencies = frequencies.unsqueeze(1)  # (heads, 1, dim/2)
    angles = where * frequencies
    return (angles.cos() * scale).to(dtype).to(device), (angles.sin() * scale).to(dtype).to(device)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, *, layout: str) -> Tensor:
    r"""Turn the pairs of the first ``dim`` channels of ``x`` by the angles of a table; the rest pass unchanged.

    Each pair :math:`(x_0, x_1)` becomes
    :math:`(x_0\cos\varphi - x_1\sin\varphi,\; x_0\sin\varphi + x_1\cos\varphi)`.
    The work is done in the table's dtype and cast once to that of ``x``. Use it to share one table between
    queries, keys and layers; :func:`~rope_lessons.apply_rotary` makes the table itself.

    Args:
        x: ``(..., seq, head_dim)`` with ``head_dim >= dim``.
        cos, sin: from :func:`~rope_lessons.rotary_table`, ``(..., seq, dim/2)``.
        layout: ``"interleaved"`` pairs channels :math:`2t, 2t+1`; ``"half"`` pairs :math:`t, t+d/2`.

    Returns:
        tensor like ``x``.

    Raises:
        TypeError, ValueError: unknown layout; a table that is not float32 or float64; shapes that don't match.

    Source: Su et al. 2021, equation 34 (the sparse form). Chapter 02.

    >>> cos, sin = rotary_table(torch.tensor([1]), torch.tensor([torch.pi / 2], dtype=torch.float64))
    >>> rotate(torch.tensor([[1.0, 0.0, 5.0]]), cos, sin, layout="half").round(decimals=6)
    tensor([[0., 1., 5.]])
    """
    check_tensor("x", x)
    check_choice("layout", layout, LAYOUTS)
    _check_table(x, cos, sin)
    dim = 2 * cos.shape[-1]
    work, rest = x[..., :dim].to(cos.dtype), x[..., dim:]
    if layout == "interleaved":
        x0, x1 = work[..., 0::2], work[..., 1::2]
        turned = torch.stack((x0 * cos - x1 * sin, x0 * sin + x1 * cos), dim=-1).flatten(-2)
    else:
        x0, x1 = work.chunk(2, dim=-1)
        turned = torch.cat((x0 * cos - x1 * sin, x0 * sin + x1 * cos), dim=-1)
    turned = turned.to(x.dtype)
    return turned if rest.shape[-1] == 0 else torch.cat((turned, rest), dim=-1)


def _check_table(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    for name, table in (("cos", cos), ("sin", sin)):
        check_tensor(name, table)
        check_device(name, table, x.device, like="x")
        if table.dtype not in TABLE_DTYPES or table.dtype != cos.dtype:  # a bfloat16 table would round every angle
            raise TypeError(f"cos and sin must both be float32 or both float64, got {name} of {table.dtype}")
        if table.shape != cos.shape or table.ndim > x.ndim or table.ndim < 1:
            raise ValueError(
                f"cos and sin must have one shape, (..., seq, dim/2), that broadcasts against x {tuple(x.shape)}; "
                f"got {name} of shape {tuple(table.shape)}"
            )
    dim = 2 * cos.shape[-1]
    if x.shape[-1] < dim:
        raise ValueError(f"x must have at least dim = {dim} channels for these frequencies, got {x.shape[-1]}")
    if any(cos.shape[-n] not in (1, x.shape[-n]) for n in range(2, cos.ndim + 1)):
        raise ValueError(f"cos and sin must broadcast against x {tuple(x.shape)}, got shape {tuple(cos.shape)}")


def apply_rotary(x: Tensor, positions: Tensor, frequencies: Tensor, *, layout: str, scale: float = 1.0) -> Tensor:
    r"""Rotary position embedding :math:`\mathbf{R}(m\boldsymbol\omega)\,\mathbf{x}`.

    The first ``dim`` channels turn; the rest pass bitwise (partial rotary). Angles are computed in float64, the
    rotation in float32 (float64 for float64 ``x``), with one cast at the end: a bfloat16 result is exactly the
    float32 result cast once.

    Args:
        x: queries or keys ``(..., seq, head_dim)``, usually ``(batch, heads, seq, head_dim)``.
        positions: int64, or float64 when fractional; ``(seq,)``, or ``(batch, seq)`` for four-dimensional ``x``.
        frequencies: float64 ``(dim/2,)``, or ``(heads, dim/2)`` for four-dimensional ``x``; radians per position.
            Gradients flow to it.
        layout: ``"interleaved"`` pairs channels :math:`2t, 2t+1`; ``"half"`` pairs :math:`t, t+d/2`.
        scale: multiplies the turned channels (YaRN's attention factor; logits get its square).

    Returns:
        tensor like ``x``.

    Raises:
        TypeError, ValueError: positions that are not int64 or float64; shapes that don't match; unknown layout.

    Source: Su et al. 2021, equations 14 and 34. Chapter 02.

    >>> x = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    >>> apply_rotary(x, torch.tensor([1]), torch.tensor([1.0, 0.01], dtype=torch.float64), layout="interleaved")
    tensor([[0.5403, 0.8415, 0.9999, 0.0100]])
    """
    check_tensor("x", x)
    check_positions("positions", positions)
    check_frequencies(frequencies)
    _check_shapes(x, positions, frequencies)
    if positions.device != float64_device(x.device):  # fractional positions for MPS live on the CPU
        check_device("positions", positions, x.device, like="x")
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    cos, sin = rotary_table(positions, frequencies, scale=scale, dtype=dtype)
    return rotate(x, cos.to(x.device), sin.to(x.device), layout=layout)


def _check_shapes(x: Tensor, positions: Tensor, frequencies: Tensor) -> None:
    if x.ndim < 2:
        raise ValueError(f"x must have shape (..., seq, head_dim), got {tuple(x.shape)}")
    seq = x.shape[-2]
    if positions.ndim == 1 and positions.shape[0] != seq:
        raise ValueError(
            f"positions must have shape (seq,) = ({seq},), got {tuple(positions.shape)} for x {tuple(x.shape)}"
        )
    if (positions.ndim == 2 or frequencies.ndim == 2) and x.ndim != 4:
        raise ValueError(
            f"x must be (batch, heads, seq, head_dim) for positions per row or frequencies per head, "
            f"got {tuple(x.shape)}"
        )
    if positions.ndim == 2 and positions.shape != (x.shape[0], seq):
        raise ValueError(
            f"positions must have shape (batch, seq) = ({x.shape[0]}, {seq}), got {tuple(positions.shape)} "
            f"for x {tuple(x.shape)}"
        )
    if frequencies.ndim == 2 and frequencies.shape[0] != x.shape[1]:
        raise ValueError(
            f"frequencies must have one row per head, {x.shape[1]} rows, got shape {tuple(frequencies.shape)} "
            f"for x {tuple(x.shape)}"
        )


def interleaved_to_half(weight: Tensor, heads: int, *, rotary_dim: int | None = None) -> Tensor:
    r"""Reorder a query or key projection trained with interleaved pairs for use with ``layout="half"``.

    Row :math:`2t` of each head moves to row :math:`t`, row :math:`2t+1` to row :math:`t + d/2`. Scores are
    unchanged, because queries and keys are permuted alike.

    Args:
        weight: ``(heads * head_dim, ...)``, as in ``nn.Linear.weight`` or its bias.
        heads: number of heads in ``weight`` (``kv_heads`` for a key projection).
        rotary_dim: the first channels of each head that turn; all of them by default.

    Returns:
        tensor like ``weight``.

    Raises:
        TypeError, ValueError: rows that ``heads`` does not divide; an odd or too large ``rotary_dim``.

    Chapter 02 derives it.

    >>> interleaved_to_half(torch.arange(8), heads=2)
    tensor([0, 2, 1, 3, 4, 6, 5, 7])
    """
    return _reorder(weight, heads, rotary_dim, lambda dim: torch.arange(dim).view(-1, 2).T.reshape(-1))


def half_to_interleaved(weight: Tensor, heads: int, *, rotary_dim: int | None = None) -> Tensor:
    r"""Reorder a query or key projection trained with ``layout="half"`` for use with interleaved pairs.

    The inverse of :func:`interleaved_to_half`.

    Args:
        weight, heads, rotary_dim: as there.

    Returns:
        tensor like ``weight``.

    Raises:
        TypeError, ValueError: as there.

    Chapter 02.

    >>> half_to_interleaved(torch.tensor([0, 2, 1, 3]), heads=1)
    tensor([0, 1, 2, 3])
    """
    return _reorder(weight, heads, rotary_dim, lambda dim: torch.arange(dim).view(2, -1).T.reshape(-1))


def _reorder(weight: Tensor, heads: int, rotary_dim: int | None, order_of: Callable[[int], Tensor]) -> Tensor:
    if not isinstance(weight, Tensor):
        raise TypeError(f"weight must be a tensor, got {type(weight).__name__}")
    check_count("heads", heads, least=1)
    if weight.ndim < 1 or weight.shape[0] % heads:
        raise ValueError(f"weight must have heads * head_dim rows for heads = {heads}, got shape {tuple(weight.shape)}")
    head_dim = weight.shape[0] // heads
    dim = head_dim if rotary_dim is None else rotary_dim
    check_count("rotary_dim", dim, least=2)
    if dim % 2 or dim > head_dim:
        raise ValueError(
            f"rotary_dim must be even and at most head_dim = {head_dim}, got {dim} for weight of shape "
            f"{tuple(weight.shape)} and {heads} heads"
        )
    order = torch.cat((order_of(dim), torch.arange(dim, head_dim))).to(weight.device)
    return weight.reshape(heads, head_dim, *weight.shape[1:])[:, order].reshape(weight.shape)
