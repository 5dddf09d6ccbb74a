"""Attention for every setting of the five knobs.

``attention`` checks its arguments and hands over to a backend. The ``reference`` backend is dense and reads like the
equation; it is what the faster backends are tested against.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor

from rope_lessons._checks import check_bool, check_choice
from rope_lessons.engine import flash, flex, reference, several_axes
from rope_lessons.engine.cache import CachedLayer, KVCache
from rope_lessons.engine.call import Call, check_call, check_inputs, check_override, check_tensors
from rope_lessons.engine.merge import Attended
from rope_lessons.schemes import Scheme


class Backend(NamedTuple):
    """A way to compute attention."""

    supports: Callable[[Call], str | None]  # why it cannot do a call; None if it can
    worthwhile: Callable[[Call], str | None]  # why it would be no gain for this call; None if it is one
    waits: Callable[[Call], str | None]  # why the host would wait for the device; None if it would not
    describe: Callable[[Call], str]  # what it does with a call that it can do
    run: Callable[[Call], Attended]  # output and log-sum-exp


def _never(call: Call) -> None:
    """No reason against it."""


# In the order in which "auto" tries them. The last one takes every call.
_BACKENDS: dict[str, Backend] = {
    "flash": Backend(flash.supports, flash.worthwhile, flash.waits, flash.describe, flash.run),
    "flex": Backend(flex.supports, flex.worthwhile, _never, flex.describe, flex.run),
    "reference": Backend(_never, _never, _never, reference.describe, reference.run),
}
BACKENDS = ("auto", *_BACKENDS)


@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, scheme: Scheme, *, return_lse: Literal[True], **options: Any
) -> Attended: ...


@overload
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
    return_lse: Literal[False] = False,
) -> Tensor: ...


def attention(  # type: ignore[misc]  # the options of the first signature are those of the second
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
    return_lse: bool = False,
) -> Tensor | Attended:
    r"""Softmax attention with the five knobs of a scheme.

    The score of query :math:`i` and key :math:`j` is

    .. math:: s_i \, \langle \mathbf{R}(f(p_i - p_j)\,\boldsymbol\omega)\,\mathbf{q}_i, \mathbf{k}_j\rangle / \sqrt{d}
              \; + \; b(i, j)

    where :math:`j` is visible to :math:`i`, and the output the average of the values with its softmax. A query
    that sees no key (padding) gets zeros. Without positions, queries are the *last* tokens of the keys.

    Args:
        q: ``(batch, heads, q_len, head_dim)``, ``q_len <= k_len``.
        k: ``(batch, kv_heads, k_len, head_dim)``, ``kv_heads`` dividing ``heads``.
        v: ``(batch, kv_heads, k_len, value_dim)``, of any ``value_dim``. The three have one dtype, also under autocast;
            there, different ones become autocast's, as in PyTorch's own attention.
        scheme: the knobs. Queries and keys come unrotated.
        q_positions, k_positions: int64, or float64 when fractional; ``(len,)`` or ``(batch, len)``. By default
            0, 1, 2, … for keys, and those of the last tokens for queries. Only the distance map and ALiBi see them.
            With several axes, as of pixels, ``(batch, len, axes)``, batch perhaps 1: for a scheme whose distance map is
            straight, with ``frequencies`` ``(axes, dim/2)``.
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
            none); ``(axes, dim/2)`` for positions with several axes. Gradients flow to it; while they do, 16-bit
            inputs are computed in float32. Their error is about 1e-6 of their norm at 4,096 tokens, and grows with
            the positions: 1e-3 at a million.
        cache: a :class:`KVCache`. Then q, k and v hold the new tokens only, and positions, ``lengths``,
            ``document_ids``, ``bias`` and ``length`` are the cache's own business. Positions with several axes are
            given, those of the new tokens; the plan of the cache then has ``scheme("nope")`` for the layer.
        layer: number of the layer in the cache.
        backend: ``"reference"`` (dense), ``"flash"`` (PyTorch's own kernels, no tensor over all pairs), ``"flex"``
            (FlexAttention: every scheme on CUDA; forward only and slow on a CPU), or ``"auto"``: the fastest that
            takes the call; :func:`explain_backend` says which and why. Under ``torch.func`` transforms and in
            forward-mode differentiation that is the reference; a backward with ``create_graph=True`` is dense too.
        return_lse: also return the log-sum-exp of each query's scores. Two attentions over disjoint keys merge exactly
            by it: the output is the average of the two with weights :math:`e^{\text{lse}_1}` and
            :math:`e^{\text{lse}_2}`.

    Returns:
        tensor ``(batch, heads, q_len, value_dim)`` of the dtype of the inputs; with ``return_lse`` a pair of it and the
        log-sum-exp ``(batch, heads, q_len)`` in float32 (float64 for float64 inputs), minus infinity for a query that
        sees no key.

    Raises:
        TypeError, ValueError: shapes, dtypes or devices that don't match; an unknown backend, or one that cannot do
            this call.

    Chapter 02 derives it for RoPE; each later chapter turns one knob.

    >>> from rope_lessons import scheme
    >>> q = k = v = torch.zeros(1, 1, 2, 4)
    >>> attention(q, k, v, scheme("rope", dim=4)).shape
    torch.Size([1, 1, 2, 4])
    >>> attention(q, k, v, scheme("rope", dim=4), return_lse=True)[1]  # log of 1 and of 2 visible keys
    tensor([[[0.0000, 0.6931]]])
    """
    given: dict[str, Any] = {
        "q_positions": q_positions, "k_positions": k_positions, "lengths": lengths, "document_ids": document_ids,
        "bias": bias, "length": length,
    }  # fmt: skip
    check_choice("backend", backend, BACKENDS)
    check_bool("return_lse", return_lse)
    q, k, v = check_tensors(q=q, k=k, v=v)
    dtype = v.dtype
    if several_axes.are_given(given):
        q, k, v, scheme, given = several_axes.turned(q, k, v, scheme, {**given, "frequencies": frequencies})
        frequencies = None
    if cache is None:
        output, lse = _attend(check_call(q, k, v, scheme, frequencies=frequencies, **given), backend)
    else:
        state, first = _cached_call(q, k, v, scheme, cache, layer, frequencies, given)
        if first is None:
            output, lse = state.attend(q, k, v)
        else:
            with torch.no_grad():
                output, lse = _attend(first, backend)
            state.extend(k, v, frequencies)
    output = output.to(dtype)
    return (output, lse) if return_lse else output


def _attend(call: Call, backend: str) -> Attended:
    return _BACKENDS[_choose(call, backend)[0]].run(call)


def _cached_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scheme: Scheme,
    cache: KVCache,
    layer: int,
    frequencies: Tensor | None,
    others: dict[str, Any],
) -> tuple[CachedLayer, Call | None]:
    """The layer of the cache; and where the tokens are its first ones, a call like any other."""
    if not isinstance(cache, KVCache):
        raise TypeError(f"cache must be a KVCache, got {type(cache).__name__}")
    for name, value in others.items():
        if value is not None:
            raise ValueError(
                f"{name} must be None with a cache, which counts the tokens itself (KVCache takes length and padding), "
                f"got {value if isinstance(value, int) else 'a tensor'}"
            )
    shapes = check_inputs(q, k, v, scheme)
    if frequencies is not None:
        check_override(frequencies, shapes)
    state = cache.check(q, k, v, scheme, layer, frequencies)
    if state.seen:
        return state, None
    options: dict[str, Any] = {"length": cache.length, "document_ids": state.document_ids(k.shape[2])}
    return state, check_call(q, k, v, scheme, frequencies=frequencies, **options)


def explain_backend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scheme: Scheme,
    *,
    backend: str = "auto",
    cache: KVCache | None = None,
    layer: int = 0,
    **options: Any,
) -> str:
    """Which backend ``attention`` would use for these inputs, and why.

    Args:
        q, k, v, scheme, backend, cache, layer: as for :func:`attention`. Nothing is taken into the cache.
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
    check_choice("backend", backend, BACKENDS)
    known = ("q_positions", "k_positions", "lengths", "document_ids", "bias", "length", "frequencies")
    for name in options:
        check_choice("options", name, known)
    q, k, v = check_tensors(q=q, k=k, v=v)
    if several_axes.are_given(options):
        q, k, v, scheme, options = several_axes.turned(q, k, v, scheme, options)
    if cache is None:
        call = check_call(q, k, v, scheme, **options)
    else:
        frequencies = options.pop("frequencies", None)
        state, first = _cached_call(q, k, v, scheme, cache, layer, frequencies, options)
        if first is None:
            return f"cache: {state.describe(q.shape[2], v.dtype)}"
        call = first
    name, why = _choose(call, backend)
    return f"{name}: {_BACKENDS[name].describe(call)}{why}"


def _choose(call: Call, backend: str) -> tuple[str, str]:
    """The backend, and why not one that comes before it."""
    if backend != "auto":
        reason = _BACKENDS[backend].supports(call)
        if reason is not None:
            raise ValueError(f"backend must be 'auto' or another one for this call, got {backend!r}: {reason}")
        return backend, ""
    passed_over, waiting = "", None
    for name, candidate in _BACKENDS.items():
        if name == "reference" and waiting is not None:
            return waiting
        reason = candidate.supports(call) or candidate.worthwhile(call)
        if reason is None:
            reason = candidate.waits(call)
            if reason is None:
                return name, passed_over
            waiting = name, passed_over  # better than dense, unless the next one need not wait
        passed_over += f"; not {name}: {reason}"
    raise AssertionError("the reference takes every call")
