"""Attention for every setting of the five knobs.

``attention`` checks its arguments and hands over to a backend. The ``reference`` backend is dense and reads like the
equation; it is what the faster backends are tested against.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rope_lessons._checks import (
    check_choice,
    check_count,
    check_device,
    check_frequencies,
    check_positions,
    check_tensor,
)
from rope_lessons.attention import flash, flex, reference
from rope_lessons.attention.cache import KVCache
from rope_lessons.attention.call import Call
from rope_lessons.attention.visibility import check_padding
from rope_lessons.scheme import Scheme


class Backend(NamedTuple):
    """A way to compute attention."""

    supports: Callable[[Call], str | None]  # why it cannot do a call; None if it can
    worthwhile: Callable[[Call], str | None]  # why it would be no gain for this call; None if it is one
    describe: Callable[[Call], str]  # what it does with a call that it can do
    run: Callable[[Call], tuple[Tensor, Tensor]]  # output and log-sum-exp


# In the order in which "auto" tries them. The last one takes every call.
_BACKENDS: dict[str, Backend] = {
    "flash": Backend(flash.supports, flash.worthwhile, flash.describe, flash.run),
    "flex": Backend(flex.supports, flex.worthwhile, flex.describe, flex.run),
    "reference": Backend(reference.supports, reference.supports, reference.describe, reference.run),
}
BACKENDS = ("auto", *_BACKENDS)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scheme: Scheme,
    *,
    q_positions: Tensor | None = None,
    k_positions: Tensor | None = None,
    lengths: Tensor | None = None,
    document_ids: Tensor | None = None,
    bias: Tensor | None = None,
    length: int | None = None,
    frequencies: Tensor | None = None,
    cache: KVCache | None = None,
    layer: int = 0,
    backend: str = "auto",
) -> Tensor:
    r"""Softmax attention with the five knobs of a scheme.

    The score of query :math:`i` and key :math:`j` is

    .. math:: s_i \, \langle \mathbf{R}(f(p_i - p_j)\,\boldsymbol\omega)\,\mathbf{q}_i, \mathbf{k}_j\rangle / \sqrt{d}
              \; + \; b(i, j)

    where :math:`j` is visible to :math:`i`, and the output the average of the values with its softmax. A query
    that sees no key (padding) gets zeros. Without positions, queries are the *last* tokens of the keys.

    Args:
        q: ``(batch, heads, q_len, head_dim)``, ``q_len <= k_len``.
        k: ``(batch, kv_heads, k_len, head_dim)``, ``kv_heads`` dividing ``heads``.
        v: ``(batch, kv_heads, k_len, value_dim)``, of any ``value_dim``.
        scheme: the knobs. Queries and keys come unrotated.
        q_positions, k_positions: int64, or float64 when fractional; ``(len,)`` or ``(batch, len)``. By default
            0, 1, 2, … for keys, and those of the last tokens for queries. Only the distance map and ALiBi see them.
        lengths: int64 ``(batch,)``: only the first ``lengths[b]`` tokens of row ``b`` are real (padding on the right).
            Queries are still the last tokens of the axis, padding included; for rows that end at different places
            and fewer queries than keys, pad on the left with ``document_ids``.
        document_ids: int64 ``(k_len,)`` or ``(batch, k_len)``: tokens see their own document only (packed documents);
            a document is a run of equal ids, so an id that comes back later is another document. Negative ids are
            padding, on either side.
        bias: added to the scores, after scale and :math:`1/\sqrt d`; broadcasts to ``(batch, heads, q_len, k_len)``.
        length: length of the text, for frequencies that depend on it (dynamic NTK): ``k_len`` by default, and needed
            when positions are given.
        frequencies: float64 ``(dim/2,)`` or ``(heads, dim/2)``, in place of the scheme's (also for a scheme that has
            none). Gradients flow to it.
        cache: a :class:`KVCache`. Then q, k and v hold the new tokens only, and positions, ``lengths``,
            ``document_ids``, ``bias`` and ``length`` are the cache's own business.
        layer: number of the layer in the cache.
        backend: ``"reference"`` (dense), ``"flash"`` (PyTorch's own kernels, no tensor over all pairs), ``"flex"``
            (FlexAttention: every scheme on CUDA; forward only and slow on a CPU), or ``"auto"``: the fastest that
            takes the call; :func:`explain_backend` says which and why.

    Returns:
        tensor ``(batch, heads, q_len, value_dim)`` of the dtype of ``v``.

    Raises:
        TypeError, ValueError: shapes, dtypes or devices that don't match; an unknown backend, or one that cannot do
            this call.

    Chapter 02 derives it for RoPE; each later chapter turns one knob.

    >>> from rope_lessons import scheme
    >>> q = k = v = torch.ones(1, 2, 3, 8)
    >>> attention(q, k, v, scheme("rope", dim=8)).shape
    torch.Size([1, 2, 3, 8])
    """
    return attention_with_lse(
        q,
        k,
        v,
        scheme,
        q_positions=q_positions,
        k_positions=k_positions,
        lengths=lengths,
        document_ids=document_ids,
        bias=bias,
        length=length,
        frequencies=frequencies,
        cache=cache,
        layer=layer,
        backend=backend,
    )[0]


def attention_with_lse(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scheme: Scheme,
    *,
    q_positions: Tensor | None = None,
    k_positions: Tensor | None = None,
    lengths: Tensor | None = None,
    document_ids: Tensor | None = None,
    bias: Tensor | None = None,
    length: int | None = None,
    frequencies: Tensor | None = None,
    cache: KVCache | None = None,
    layer: int = 0,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    r"""As :func:`attention`, with the log-sum-exp of each query's scores.

    Two attentions over disjoint keys merge exactly by their log-sum-exp: the output is the average of the two
    with weights :math:`e^{\text{lse}_1}` and :math:`e^{\text{lse}_2}`.

    Args:
        q, k, v, scheme: as there, and so are the keyword arguments.

    Returns:
        the output, and the log-sum-exp ``(batch, heads, q_len)`` in float32 (float64 for float64 inputs);
        minus infinity for a query that sees no key.

    Raises:
        TypeError, ValueError: as there.

    >>> from rope_lessons import scheme
    >>> q = k = v = torch.zeros(1, 1, 2, 4)
    >>> attention_with_lse(q, k, v, scheme("rope", dim=4))[1]  # log of 1 and of 2 visible keys
    tensor([[[0.0000, 0.6931]]])
    """
    shapes = _check_inputs(q, k, v, scheme)
    check_choice("backend", backend, BACKENDS)
    if cache is not None:
        not_with_a_cache = {
            "q_positions": q_positions, "k_positions": k_positions, "lengths": lengths, "document_ids": document_ids,
            "bias": bias, "length": length,
        }  # fmt: skip
        _check_cache(cache, not_with_a_cache)
        if frequencies is not None:
            _check_override(frequencies, shapes)
        return cache.attend(q, k, v, scheme, layer, frequencies, partial(attention_with_lse, backend=backend))
    call = _call(q, k, v, scheme, shapes, q_positions, k_positions, lengths, document_ids, bias, length, frequencies)
    return _BACKENDS[_choose(call, backend)[0]].run(call)


def explain_backend(q: Tensor, k: Tensor, v: Tensor, scheme: Scheme, *, backend: str = "auto", **options: Any) -> str:
    """Which backend ``attention`` would use for these inputs, and why.

    Args:
        q, k, v, scheme, backend: as for :func:`attention`.
        options: its other keyword arguments: positions, ``lengths``, ``document_ids``, ``bias``, ….

    Returns:
        a line of text.

    Raises:
        TypeError, ValueError: as for :func:`attention`.

    >>> from rope_lessons import scheme
    >>> q = k = v = torch.zeros(1, 1, 2, 4)
    >>> explain_backend(q, k, v, scheme("rope", dim=4), backend="reference")
    'reference: dense, every score is computed'
    >>> explain_backend(q, k, v, scheme("rope", dim=4), backend="flash")
    "flash: one kernel call, PyTorch's flash kernel for the CPU"
    """
    shapes = _check_inputs(q, k, v, scheme)
    check_choice("backend", backend, BACKENDS)
    known = ("q_positions", "k_positions", "lengths", "document_ids", "bias", "length", "frequencies")
    for name in options:
        check_choice("options", name, known)
    call = _call(q, k, v, scheme, shapes, *(options.get(name) for name in known))
    name, why = _choose(call, backend)
    return f"{name}: {_BACKENDS[name].describe(call)}{why}"


def _choose(call: Call, backend: str) -> tuple[str, str]:
    """The backend, and why not one that comes before it."""
    if backend != "auto":
        reason = _BACKENDS[backend].supports(call)
        if reason is not None:
            raise ValueError(f"backend must be 'auto' or another one for this call, got {backend!r}: {reason}")
        return backend, ""
    passed_over = ""
    for name, candidate in _BACKENDS.items():
        reason = candidate.supports(call) or candidate.worthwhile(call)
        if reason is None:
            return name, passed_over
        passed_over += f"; not {name}: {reason}"
    raise AssertionError("the reference takes every call")


def _call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scheme: Scheme,
    shapes: _Shapes,
    q_positions: Tensor | None,
    k_positions: Tensor | None,
    lengths: Tensor | None,
    document_ids: Tensor | None,
    bias: Tensor | None,
    length: int | None,
    frequencies: Tensor | None,
) -> Call:
    """The arguments, checked and filled in."""
    check_padding(lengths, document_ids, shapes.batch, shapes.k_len, q.device)
    given = q_positions is not None or k_positions is not None
    if length is None and not given:
        length = shapes.k_len  # with positions given, only the caller knows: a scheme that needs the length says so
    elif length is not None:
        check_count("length", length, least=1)
    q_positions, k_positions = _positions(q_positions, k_positions, shapes, q.device)
    if frequencies is not None:
        _check_override(frequencies, shapes)
    elif scheme.frequencies is not None:
        frequencies = scheme.frequencies(length, device=q.device)
    _check_bias(bias, shapes, q.device)
    return Call(
        q, k, v, scheme, q_positions, k_positions, given, lengths, document_ids, bias, frequencies,
        shapes.q_len, shapes.k_len,
    )  # fmt: skip


class _Shapes(NamedTuple):
    batch: int
    heads: int
    q_len: int
    k_len: int
    head_dim: int


def _check_inputs(q: Tensor, k: Tensor, v: Tensor, scheme: Scheme) -> _Shapes:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_tensor(name, tensor, dims=4)
        if tensor.dtype != q.dtype or tensor.device != q.device:
            raise ValueError(
                f"{name} must have the dtype and device of q ({q.dtype}, {q.device}), "
                f"got {tensor.dtype}, {tensor.device}"
            )
    if not isinstance(scheme, Scheme):
        raise TypeError(f"scheme must be a Scheme (one layer, one phase), got {type(scheme).__name__}")
    batch, heads, q_len, head_dim = q.shape
    kv_heads, k_len = k.shape[1], k.shape[2]
    if k.shape[0] != batch or k.shape[3] != head_dim:
        raise ValueError(f"k must have shape ({batch}, kv_heads, k_len, {head_dim}) to match q, got {tuple(k.shape)}")
    if tuple(v.shape[:3]) != (batch, kv_heads, k_len):
        raise ValueError(
            f"v must have shape ({batch}, {kv_heads}, {k_len}, value_dim) to match k, got {tuple(v.shape)}"
        )
    if k_len < 1 or kv_heads < 1:
        raise ValueError(f"k must have at least one head and one token, got shape {tuple(k.shape)}")
    if heads % kv_heads:
        raise ValueError(f"kv_heads must divide heads = {heads}, got {kv_heads}")
    if q_len > k_len:
        raise ValueError(f"q_len must be at most k_len = {k_len} (queries are the last tokens), got {q_len}")
    if scheme.rotary_dim > head_dim:
        raise ValueError(f"the scheme turns {scheme.rotary_dim} channels, but q has head_dim {head_dim}")
    return _Shapes(batch, heads, q_len, k_len, head_dim)


def _positions(
    q_positions: Tensor | None, k_positions: Tensor | None, shapes: _Shapes, device: torch.device
) -> tuple[Tensor, Tensor]:
    if (q_positions is None) != (k_positions is None):
        if shapes.q_len != shapes.k_len:
            raise ValueError("q_positions and k_positions must be given together when q_len and k_len differ")
        q_positions = k_positions = q_positions if k_positions is None else k_positions
    if q_positions is None or k_positions is None:
        k_positions = torch.arange(shapes.k_len, device=device)
        return k_positions[shapes.k_len - shapes.q_len :], k_positions
    for name, positions, seq in (
        ("q_positions", q_positions, shapes.q_len),
        ("k_positions", k_positions, shapes.k_len),
    ):
        check_positions(name, positions)
        check_device(name, positions, device)
        if tuple(positions.shape) != (seq,) and tuple(positions.shape) != (shapes.batch, seq):
            raise ValueError(
                f"{name} must have shape ({seq},) or ({shapes.batch}, {seq}), got {tuple(positions.shape)}"
            )
    return q_positions, k_positions


def _check_cache(cache: KVCache, options: dict[str, Any]) -> None:
    if not isinstance(cache, KVCache):
        raise TypeError(f"cache must be a KVCache, got {type(cache).__name__}")
    for name, value in options.items():
        if value is not None:
            raise ValueError(
                f"{name} must be None with a cache, which counts the tokens itself (KVCache takes length and padding), "
                f"got {value if isinstance(value, int) else 'a tensor'}"
            )


def _check_override(frequencies: Tensor, shapes: _Shapes) -> None:
    check_frequencies(frequencies)
    if 2 * frequencies.shape[-1] > shapes.head_dim:
        raise ValueError(
            f"frequencies must have at most head_dim/2 = {shapes.head_dim // 2} columns, got {frequencies.shape[-1]}"
        )
    if frequencies.ndim == 2 and frequencies.shape[0] != shapes.heads:
        raise ValueError(f"frequencies must have one row per head ({shapes.heads}), got {frequencies.shape[0]} rows")


def _check_bias(bias: Tensor | None, shapes: _Shapes, device: torch.device) -> None:
    if bias is None:
        return
    check_tensor("bias", bias)
    check_device("bias", bias, device)
    full = (shapes.batch, shapes.heads, shapes.q_len, shapes.k_len)
    if bias.ndim > 4 or any(bias.shape[-n] not in (1, full[-n]) for n in range(1, bias.ndim + 1)):
        raise ValueError(f"bias must broadcast to (batch, heads, q_len, k_len) = {full}, got {tuple(bias.shape)}")
