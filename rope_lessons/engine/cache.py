"""The key-value cache: decode one token, or a chunk of tokens, at the cost of a plain RoPE step.

A key is turned once, when it comes, and never again. With a bent distance each score needs one of two products, so a
layer keeps two sets of keys: every key *far-ready*, turned by slope times its position (for slope 0 that is the key
as it came), and the last ``window`` keys also *near-ready*, turned by their position. A step reads far-ready keys up
to the window and near-ready keys within it: as many as plain RoPE reads. The parts meet by their log-sum-exp.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from rope_lessons._checks import check_count, check_device, check_frequencies, check_int64, check_readable
from rope_lessons._float64 import exact
from rope_lessons.engine import kernels
from rope_lessons.engine.call import HEADS_FIRST, check_tensors
from rope_lessons.engine.merge import Attended, merge_parts
from rope_lessons.engine.modes import own_precision
from rope_lessons.engine.pieces import turn_of, visible_count
from rope_lessons.local import alibi_slopes
from rope_lessons.rotary import apply_rotary
from rope_lessons.schemes import Plan, Scheme, default_base_scale


class KVCache:
    r"""Keys and values of the tokens so far, for decoding with any scheme or plan.

    Give it to :func:`~rope_lessons.attention` with the queries, keys and values of the *new* tokens only. The result
    is that of the call without a cache on all tokens so far, whatever the steps they came in:

        ``attention(q_new, k_new, v_new, scheme, cache=cache, layer=0)``

    What a layer holds for :math:`L` tokens:

    - plain schemes (slope 1, or a window of 0): one turned key a token;
    - a bent distance: one far-ready key :math:`\mathbf{R}(\text{slope}\cdot j\,\boldsymbol\omega)\mathbf{k}_j` a token,
      and the near-ready keys :math:`\mathbf{R}(j\boldsymbol\omega)\mathbf{k}_j` of the last ``window`` tokens;
    - a visible window: the sinks and the last ``visible_window`` tokens, however long the text gets. The sinks of
      ``scheme("lambda", …)`` keep their true distances; with a bent distance of slope 0 they are capped, which is
      LM-Infinite. StreamingLLM counts anew in the cache: :func:`~rope_lessons.streaming.streaming_attention` says why
      that is no scheme;
    - frequencies that depend on the length (dynamic NTK): keys as they came, all turned anew at every step. With
      ``length=`` the frequencies are fixed, and turned keys are kept instead.

    Only the last case can differ from a one-shot run of a whole *model*: there, deeper keys come from states that
    were made under the frequencies of a shorter text. With ``length=`` the two agree.

    Positions are 0, 1, 2, … and a bidirectional scheme sees the tokens so far. The first call may take any
    ``backend``; later calls are the cache's own.

    Args:
        plan: one scheme per layer, or a scheme for a single layer.
        length: length of the text of this request, prompt and new tokens, for frequencies that depend on it. More
            tokens are an error.
        max_length: reserve memory for so many tokens at the first call; more are an error. By default the memory
            doubles as needed.
        padding: of a batch padded on the left: whole numbers ``(batch,)``, how many tokens at the start of each row are
            padding, or the attention mask of a tokenizer, ``(batch, tokens)``, zeros for padding. These tokens neither
            see nor are seen, whatever steps they come in.
        rollback: how many tokens :meth:`truncate` can take back from a layer with a visible window; that many more
            are held there. Other layers can go back to any length.

    Raises:
        TypeError, ValueError: a plan that is none; counts below 1; padding of another dtype or shape, below 0, or not
            at the start of a row.

    Chapter 08 derives the two kinds of keys.

    >>> from rope_lessons import attention, scheme
    >>> rerope = scheme("rerope", dim=8, window=4)
    >>> q, k, v = torch.ones(3, 1, 2, 10, 8)
    >>> cache = KVCache(rerope)
    >>> prompt = attention(q[:, :, :7], k[:, :, :7], v[:, :, :7], rerope, cache=cache)
    >>> for i in range(7, 10):
    ...     step = attention(q[:, :, i : i + 1], k[:, :, i : i + 1], v[:, :, i : i + 1], rerope, cache=cache)
    >>> torch.allclose(step, attention(q, k, v, rerope)[:, :, -1:])
    True
    >>> cache
    KVCache(Scheme(FrequencySpec('rope', dim=8), window=4, slope=0.0), tokens=10)
    """

    def __init__(
        self,
        plan: tuple[Scheme, ...] | Scheme,
        *,
        length: int | None = None,
        max_length: int | None = None,
        padding: torch.Tensor | None = None,
        rollback: int = 0,
    ):
        self.plan: Plan = (plan,) if isinstance(plan, Scheme) else plan
        if not isinstance(self.plan, tuple) or not all(isinstance(layer, Scheme) for layer in self.plan):
            raise TypeError(f"plan must be a Scheme or a plan (a tuple of one Scheme per layer), got {plan!r}")
        if not self.plan:
            raise ValueError("plan must have at least one layer, got ()")
        for name, count in (("length", length), ("max_length", max_length)):
            if count is not None:
                check_count(name, count, least=1)
        check_count("rollback", rollback)
        self.length, self.max_length, self.rollback = length, max_length, rollback
        self.padding = None if padding is None else _padding_counts(padding)
        # A cache is made once per request: here the host may wait for the device.
        self._most_padding = 0 if self.padding is None else int(self.padding.max())
        self._layers = self._new_layers()

    def __len__(self) -> int:
        """How many tokens every layer has seen."""
        return min(layer.seen for layer in self._layers)

    def __repr__(self) -> str:
        given = {
            "length": self.length, "max_length": self.max_length, "padding": self.padding,
            "rollback": self.rollback or None,
        }  # fmt: skip
        options = [f"{name}={value!r}" for name, value in given.items() if value is not None]
        return f"KVCache({', '.join([_plan_in_short(self.plan), *options])}, tokens={len(self)})"

    @property
    def nbytes(self) -> int:
        """Bytes reserved for keys and values."""
        return sum(track.nbytes for layer in self._layers for track in layer.tracks)

    @property
    def key_bytes(self) -> int:
        """Bytes reserved for keys alone."""
        return sum(track.nbytes for layer in self._layers for track in layer.tracks if track is not layer.values)

    def _new_layers(self) -> list[CachedLayer]:
        options = self.length, self.max_length, self._most_padding, self.rollback
        return [CachedLayer(layer, *options) for layer in self.plan]

    def reset(self) -> None:
        """Forget everything, memory included. The next call starts a new text of the same plan and padding."""
        self._layers = self._new_layers()

    def truncate(self, length: int) -> None:
        """Go back to the first ``length`` tokens, as when a draft of speculative decoding is refused.

        Near-ready keys that the ring has dropped are made again from far-ready ones, which in a 16-bit dtype rounds
        once more unless the slope is 0.

        Args:
            length: at most ``len(cache)``.

        Raises:
            TypeError, ValueError: another length; more tokens taken back than a visible window holds.
        """
        check_count("length", length)
        if length > len(self):
            raise ValueError(f"length must be at most the {len(self)} tokens of the cache, got {length}")
        for number, layer in enumerate(self._layers):
            least = layer.least_length()
            if least < layer.seen and length < least:
                raise ValueError(
                    f"length must be at least {least}: layer {number} sees a window and has dropped what came before "
                    f"(rollback={self.rollback} of KVCache), got {length}"
                )
        for layer in self._layers:
            layer.truncate(length)

    def reorder(self, rows: Tensor) -> None:
        """Row ``b`` of the batch becomes what row ``rows[b]`` was, as in beam search. The batch may change its size.

        Args:
            rows: int64 ``(new_batch,)``.

        Raises:
            TypeError, ValueError: rows of another dtype, shape or device; on the CPU also rows that do not exist
                (on other devices PyTorch says so, and only later).
        """
        check_int64("rows", rows)
        if rows.ndim != 1 or not len(rows):
            raise ValueError(f"rows must have shape (new_batch,), got {tuple(rows.shape)}")
        held = [(track, track.buffer) for layer in self._layers for track in layer.tracks if track.buffer is not None]
        for old in [buffer for _, buffer in held] or ([] if self.padding is None else [self.padding.to(rows.device)]):
            check_device("rows", rows, old.device)
            _check_rows(rows, len(old))
        for track, buffer in held:
            track.buffer = buffer.index_select(0, rows)
        if self.padding is not None:
            self.padding = self.padding.index_select(0, rows.to(self.padding.device))

    def extend(self, k: Tensor, v: Tensor, *, layer: int = 0, frequencies: Tensor | None = None) -> None:
        """Take in tokens without asking for their outputs, such as a prompt whose attention ran elsewhere.

        Args:
            k: ``(batch, kv_heads, tokens, head_dim)``, not turned.
            v: ``(batch, kv_heads, tokens, value_dim)``.
            layer: number of the layer.
            frequencies: as for :func:`~rope_lessons.attention`.

        Raises:
            TypeError, ValueError: tensors that do not match each other or what is cached; too many tokens.
        """
        k, v = check_tensors(k=k, v=v)
        if v.shape[:3] != k.shape[:3]:
            raise ValueError(f"v must have shape {(*k.shape[:3], 'value_dim')} to match k, got {tuple(v.shape)}")
        if frequencies is not None:
            check_frequencies(frequencies)
        self._check((k, v), layer, frequencies).extend(k, v, frequencies)

    def check(
        self, q: Tensor, k: Tensor, v: Tensor, scheme: Scheme, layer: int, frequencies: Tensor | None
    ) -> CachedLayer:
        """What ``attention(..., cache=self)`` calls, with shapes checked: the layer, which can take these tokens."""
        state = self._check((k, v, q), layer, frequencies)
        if scheme != self.plan[layer]:
            raise ValueError(f"scheme must be that of layer {layer} of the cache, {self.plan[layer]!r}, got {scheme!r}")
        if q.shape[2] != k.shape[2]:
            raise ValueError(f"q must hold the new tokens like k with a cache, {k.shape[2]}, got {q.shape[2]}")
        return state

    def _check(self, tensors: tuple[Tensor, ...], layer: int, frequencies: Tensor | None) -> CachedLayer:
        """The layer, if it can take ``tensors`` (k, v and perhaps q)."""
        check_count("layer", layer)
        if layer >= len(self.plan):
            raise ValueError(f"layer must be below {len(self.plan)}, the layers of the cache, got {layer}")
        given = tensors if frequencies is None else (*tensors, frequencies)
        if torch.is_grad_enabled() and any(x.requires_grad for x in given):
            raise ValueError(
                "q, k, v and frequencies must not require gradients with a cache, which keeps none: "
                "call it under torch.no_grad()"
            )
        state, tokens = self._layers[layer], tensors[0].shape[2]
        state.check(tensors[0], tensors[1], frequencies)
        for number, other in enumerate(self._layers):
            if other.seen not in (state.seen, state.seen + tokens):
                raise ValueError(
                    f"layer must be one whose turn it is: each layer takes the same tokens in each step. Layer {layer} "
                    f"holds {state.seen} and would get {tokens}, layer {number} holds {other.seen} "
                    "(truncate to the shortest takes an unfinished step back)"
                )
        for name, most in (("length", self.length), ("max_length", self.max_length)):
            if most is not None and state.seen + tokens > most:
                raise ValueError(
                    f"k must fit into the cache, which takes {most} tokens ({name}) and holds {state.seen}, "
                    f"got {tokens} more"
                )
        state.padding = self._padding_like(tensors[0])
        return state

    def _padding_like(self, k: Tensor) -> Tensor | None:
        if self.padding is None:
            return None
        if len(self.padding) != k.shape[0]:
            raise ValueError(f"padding of the cache must have one entry per row, {k.shape[0]}, got {len(self.padding)}")
        self.padding = self.padding.to(k.device)
        return self.padding


def _plan_in_short(plan: Plan) -> str:
    """As Python would take it, equal layers in a row written once."""
    if len(plan) == 1:
        return repr(plan[0])
    runs = [(layer, len(list(run))) for layer, run in groupby(plan)]
    return " + ".join(f"({layer!r},) * {count}".removesuffix(" * 1") for layer, count in runs)


def _padding_counts(padding: Tensor) -> Tensor:
    """Tokens of padding at the start of each row, int64 ``(batch,)``; a new tensor, as the caller's may change."""
    what = "padding must be whole numbers (batch,), or an attention mask (batch, tokens) of ones and zeros"
    if not isinstance(padding, Tensor):
        hint = " (torch.tensor makes one of it)" if isinstance(padding, (list, tuple)) else ""
        raise TypeError(f"{what}, got a {type(padding).__name__}{hint}")
    got = f"{padding.dtype} of shape {tuple(padding.shape)}"
    if padding.is_floating_point() or padding.is_complex() or (padding.dtype == torch.bool and padding.ndim < 2):
        raise TypeError(f"{what}, got {got}")
    if padding.ndim not in (1, 2) or not padding.numel():
        raise ValueError(f"{what}, got {got}")
    check_readable("padding", padding)
    numbers = padding.to(torch.int64, copy=True)
    return _counts_of_mask(numbers) if numbers.ndim == 2 else _counts(numbers)


def _counts(counts: Tensor) -> Tensor:
    if int(counts.min()) < 0:
        raise ValueError(f"padding must be at least 0, got {int(counts.min())}")
    return counts


def _counts_of_mask(mask: Tensor) -> Tensor:
    low, high = int(mask.min()), int(mask.max())
    if low < 0 or high > 1:
        raise ValueError(
            f"padding must hold ones and zeros as an attention mask (counts have shape (batch,)), got {low} to {high}"
        )
    after_a_one = (mask.diff(dim=1) < 0).any(dim=1)
    if bool(after_a_one.any()):
        raise ValueError(
            "padding must have its zeros at the start of each row (pad on the left), got a zero after a one in row "
            f"{int(after_a_one.int().argmax())}"
        )
    return (1 - mask).sum(dim=1)


def _check_rows(rows: Tensor, batch: int) -> None:
    """Only on the CPU: reading values on another device would make it wait."""
    if rows.device.type != "cpu":
        return
    low, high = int(rows.min()), int(rows.max())
    if low < 0 or high >= batch:
        raise ValueError(f"rows must be from 0 to {batch - 1}, the rows of the cache, got {low} to {high}")


class _Track:
    """Vectors of the tokens of a text: the first ``prefix`` and the last ``reach`` of the others (None: all).

    Token j lies in slot j of the prefix, or in slot ``prefix + (j - prefix) % reach`` of the ring behind it. Tokens
    in a row lie in few runs of slots, so they are read without a copy.
    """

    def __init__(self, prefix: int, reach: int | None, max_length: int | None):
        self.prefix, self.reach, self.max_length = prefix, reach, max_length
        self.buffer: Tensor | None = None  # (batch, heads, slots, dim)
        self.lost = prefix  # tokens from the prefix up to here are gone

    @property
    def nbytes(self) -> int:
        return 0 if self.buffer is None else self.buffer.numel() * self.buffer.element_size()

    def slot(self, token: int) -> int:
        if token < self.prefix or self.reach is None:
            return token
        return self.prefix + (token - self.prefix) % self.reach

    def runs(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Tokens ``low`` to ``high`` in pieces whose slots follow one another."""
        while low < high:
            end = high
            if low < self.prefix:
                end = min(high, self.prefix)
            elif self.reach is not None:
                end = min(high, low + self.prefix + self.reach - self.slot(low))
            yield low, end
            low = end

    def read(self, low: int, high: int) -> Tensor:
        """A view of the tokens of one run."""
        assert self.buffer is not None
        return self.buffer[:, :, self.slot(low) : self.slot(low) + high - low]

    def put(self, token: int, x: Tensor) -> None:
        """Write the tokens from number ``token`` on, ``(batch, heads, tokens, dim)``."""
        end = token + x.shape[2]
        self._grow(end, x)
        kept = end if self.reach is None else max(self.prefix, end - self.reach)
        ranges = [(token, end)] if self.reach is None else [(token, min(end, self.prefix)), (max(token, kept), end)]
        for low, high in (run for part in ranges for run in self.runs(*part)):
            self.read(low, high).copy_(x[:, :, low - token : high - token])
        if self.reach is not None:
            self.lost = max(self.lost, kept)

    def _grow(self, tokens: int, x: Tensor) -> None:
        """Room for so many tokens. Doubling: the copies cost a constant a token in all."""
        most = None if self.reach is None else self.prefix + self.reach
        if self.max_length is not None:
            most = self.max_length if most is None else min(most, self.max_length)
        held = 0 if self.buffer is None else self.buffer.shape[2]
        needed = tokens if most is None else min(tokens, most)
        if needed <= held:
            return
        slots = max(needed, 2 * held)
        if most is not None:
            slots = most if self.max_length is not None else min(slots, most)
        larger = x.new_empty(x.shape[0], x.shape[1], slots, x.shape[3])
        if self.buffer is not None:
            larger[:, :, :held] = self.buffer
        self.buffer = larger


class CachedLayer:
    """The cache of one layer."""

    def __init__(self, scheme: Scheme, length: int | None, max_length: int | None, padding: int, rollback: int):
        self.scheme, self.length, self.most_padding, self.seen = scheme, length, padding, 0
        self.frequencies: Tensor | None = None  # those of the text, once they are known
        self.padding: Tensor | None = None  # of the rows of the call, (batch,)
        self.given: Tensor | None = None  # the tensor that the caller gave in place of the scheme's
        self.window, self.slope = _bend(scheme)
        visible = scheme.visible_window
        reach = None if visible is None else visible + rollback
        prefix = padding + scheme.sinks if scheme.sinks else 0
        self.far, self.values = _Track(prefix, reach, max_length), _Track(prefix, reach, max_length)
        self.near: _Track | None = None
        if self.window and not self.raw:
            shorter = visible is not None and visible < self.window  # then sinks may be near, but not in the ring
            near_reach = min(self.window, visible) if visible is not None else self.window
            self.near = _Track(prefix if shorter else 0, near_reach, max_length)

    @property
    def raw(self) -> bool:
        """Whether keys are kept as they came, because what turns them is not known yet."""
        spec = self.scheme.frequencies
        return self.given is None and spec is not None and spec.needs_length and self.length is None

    @property
    def tracks(self) -> list[_Track]:
        return [track for track in (self.far, self.near, self.values) if track is not None]

    def check(self, k: Tensor, v: Tensor, frequencies: Tensor | None) -> None:
        """Every call is like the first."""
        if self.seen and frequencies is not self.given:
            # An equal one is as good: a cache that was copied or unpickled has its own.
            if frequencies is None or self.given is None or not torch.equal(frequencies, self.given):
                raise ValueError("frequencies must be the tensor of the first call, whose keys it turned; got another")
            self.given = frequencies
        if frequencies is not None and frequencies.ndim == 2 and frequencies.shape[0] != k.shape[1]:
            raise ValueError(
                f"frequencies must be (dim/2,) with a cache and grouped keys ({k.shape[1]} kv_heads): heads that turn "
                f"a key differently cannot share it, got {tuple(frequencies.shape)}"
            )
        if frequencies is not None and not self.seen and self.raw:
            raise ValueError(
                "frequencies must be None with a cache for a scheme whose own depend on the length: "
                "give length to KVCache, or take a scheme with fixed ones; got a tensor"
            )
        for name, new, held in (("k", k, self.far.buffer), ("v", v, self.values.buffer)):
            if held is None:
                continue
            if new.dtype != held.dtype or new.device != held.device:
                raise ValueError(
                    f"{name} must have the dtype and device of the cache ({held.dtype}, {held.device}), "
                    f"got {new.dtype}, {new.device}"
                )
            if new.shape[:2] != held.shape[:2] or new.shape[3] != held.shape[3]:
                wanted = f"({held.shape[0]}, {held.shape[1]}, tokens, {held.shape[3]})"
                hint = HEADS_FIRST if new.shape[2] == held.shape[1] != new.shape[1] else ""
                raise ValueError(f"{name} must have shape {wanted} like what is cached, got {tuple(new.shape)}{hint}")

    def extend(self, k: Tensor, v: Tensor, frequencies: Tensor | None) -> None:
        """Take tokens in."""
        with torch.no_grad(), own_precision(k.device):
            if not self.seen:
                self.given, self.frequencies = frequencies, None
            self._append(*self._prepare(k, v))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Attended:
        """Take tokens in, after others, and answer their queries."""
        start, tokens = self.seen, k.shape[2]
        with torch.no_grad(), own_precision(q.device):
            k, v = self._prepare(k, v)
            if tokens == 1:  # the rings have room for one, so a step reads stored keys only
                self._append(k, v)
                return self._answer(q, v.dtype, start, None)
            found = self._answer(q, v.dtype, start, (k, v))  # before: the chunk may push out what its first tokens see
            self._append(k, v)
            return found

    def describe(self, tokens: int, dtype: torch.dtype) -> str:
        """What ``attend`` does with so many tokens."""
        how = "one softmax" if in_a_row(tokens, dtype) else "parts merged by their log-sum-exp"
        return f"{tokens} new token{'' if tokens == 1 else 's'} after {self.seen}, {how}"

    def document_ids(self, tokens: int) -> Tensor | None:
        """The padding among the first tokens, as ``attention`` takes it."""
        if self.padding is None:
            return None
        return -(torch.arange(tokens, device=self.padding.device) < self.padding.unsqueeze(-1)).long()

    def _prepare(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Fix what turns the keys, and clear the padding, which may hold anything: 0 times NaN would be NaN."""
        tokens = k.shape[2]
        self._fix_frequencies(self.seen + tokens, k.device)
        if self.padding is None or self.seen >= self.most_padding:
            return k, v
        unseen = torch.arange(self.seen, self.seen + tokens, device=k.device) < self.padding.unsqueeze(-1)
        unseen = unseen.view(-1, 1, tokens, 1)
        return k.masked_fill(unseen, 0.0), v.masked_fill(unseen, 0.0)

    def _fix_frequencies(self, length: int, device: torch.device) -> None:
        spec = self.scheme.frequencies
        if self.given is not None:
            self.frequencies = self.given
        elif spec is not None and (self.frequencies is None or self.raw):
            self.frequencies = spec(self.length or length, device=device)

    # --- what is kept -------------------------------------------------------------------------------------------

    @property
    def turning(self) -> Turning:
        return Turning(self.scheme, self.window, self.slope, self.frequencies)

    def _append(self, k: Tensor, v: Tensor) -> None:
        token, turning = self.seen, self.turning
        self.values.put(token, v)
        self.far.put(token, k if self.raw else turning.keys(k, token, "far"))
        if self.near is not None:
            self.near.put(token, turning.keys(k, token, "near"))
        self.seen += k.shape[2]

    def least_length(self) -> int:
        """How far back this layer can go: to where everything visible is still held."""
        if self.scheme.visible_window is None or self.far.lost == self.far.prefix:
            return 0
        return self.far.lost + self.scheme.visible_window - 1

    def truncate(self, length: int) -> None:
        self.seen = length
        if self.near is None or self.near.reach is None:
            return
        # The ring went on: the last near-ready keys of the shorter text come from its far-ready ones.
        low, high = max(self.near.prefix, length - self.near.reach + 1), min(length, self.near.lost)
        for a, b in self.far.runs(low, high):
            j = torch.arange(a, b, device=self.far.read(a, b).device)
            self.near.put(a, self.turning.turned(self.far.read(a, b), (1 - self.slope) * exact(j), scale=1.0))

    # --- what is read -------------------------------------------------------------------------------------------

    def _answer(self, q: Tensor, dtype: torch.dtype, start: int, new: tuple[Tensor, Tensor] | None) -> Attended:
        """Attention of the tokens from ``start`` on: over the stored keys, and over the ``new`` ones if not stored."""
        view = View(self.turning, q, start, self.padding, self.most_padding, self.far.prefix)
        output, lse = self._row(view) if in_a_row(q.shape[2], dtype) else merge_parts(self._parts(view, new))
        return output.to(dtype), lse

    def _row(self, view: View) -> Attended:
        """The one query of a step: its scores in a row, from far-ready keys, then near-ready ones, and one softmax."""
        scores, values = [], []
        for low, high in view.stored_tokens(self.seen):
            for kind, a, b in view.kinds(low, high):
                scores += [view.scores(kind, *piece) for piece in self._stored_keys(kind, a, b)]
            values += [self.values.read(*run) for run in self.values.runs(low, high)]
        return view.average(torch.cat(scores, dim=-1), values)

    def _parts(self, view: View, new: tuple[Tensor, Tensor] | None) -> list[Attended]:
        """Attention over pieces of the keys, to be merged."""
        parts = []
        for low, high in view.stored_tokens(view.start if new else self.seen):
            for kind, a, b in view.kinds(low, high):
                for x, y, k in self._stored_keys(kind, a, b):
                    for run in self.values.runs(x, y):
                        at = slice(run[0] - x, run[1] - x)
                        parts.append(view.part(kind, *run, k[:, :, at], self.values.read(*run)))
        if new is not None:
            k, v = new
            for kind, a, b in view.kinds(view.start, view.end):
                at = slice(a - view.start, b - view.start)
                parts.append(
                    view.part(
                        kind, a, b, view.turning.keys(k[:, :, at], a, "near" if kind == "near" else "far"), v[:, :, at]
                    )
                )
        return parts

    def _stored_keys(self, kind: str, low: int, high: int) -> Iterator[tuple[int, int, Tensor]]:
        """The keys of these tokens, ready for this kind, in runs."""
        keys = self.near if kind == "near" and self.near is not None else self.far
        for a, b in keys.runs(low, high):
            k = keys.read(a, b)
            yield a, b, self.turning.keys(k, a, kind) if self.raw else k


def in_a_row(tokens: int, dtype: torch.dtype) -> bool:
    """Whether all scores of new tokens go through one softmax: a step, but in 16 bits PyTorch's kernels are better."""
    return tokens == 1 and dtype == torch.promote_types(dtype, torch.float32)


def _bend(scheme: Scheme) -> tuple[int, float]:
    """Window and slope of the distance map; (0, 1) where it bends nothing that is visible."""
    always_near = scheme.visible_window is not None and scheme.visible_window <= scheme.window and not scheme.sinks
    return (0, 1.0) if scheme.slope == 1.0 or always_near else (scheme.window, scheme.slope)


class Turning(NamedTuple):
    """What turns the vectors of a layer; ``window`` and ``slope`` are 0 and 1 where nothing bends."""

    scheme: Scheme
    window: int
    slope: float
    frequencies: Tensor | None

    def keys(self, k: Tensor, token: int, kind: str) -> Tensor:
        """Keys of the tokens from number ``token`` on, ready for pairs of this kind."""
        turn = turn_of(kind, self.window, self.slope)
        if turn.slope == 0 and self.scheme.rotary_scale == 1:
            return k  # turned by nothing
        return self.turned(k, turn.of_keys(torch.arange(token, token + k.shape[2], device=k.device)))

    def queries(self, q: Tensor, token: int, kind: str) -> Tensor:
        """Queries of the tokens from number ``token`` on."""
        i = torch.arange(token, token + q.shape[2], device=q.device)
        return self.turned(q, turn_of(kind, self.window, self.slope).of_queries(i))

    def turned(self, x: Tensor, positions: Tensor, scale: float | None = None) -> Tensor:
        if self.frequencies is None:
            return x
        scale = self.scheme.rotary_scale if scale is None else scale
        return apply_rotary(x, positions, self.frequencies, layout=self.scheme.layout, scale=scale)


class View:
    """The queries of one call, tokens ``start`` to ``end``: which tokens they see, and under which turn.

    There are three kinds of pairs: near, far (the key is before) and after (the key is far behind the query; only
    in bidirectional attention). A plain scheme has only far ones, with a window of 0. The first ``prefix`` tokens are
    kept apart from the ring, for the sinks.
    """

    def __init__(self, turning: Turning, q: Tensor, start: int, padding: Tensor | None, most_padding: int, prefix: int):
        self.turning, self.scheme, self.window, self.slope = turning, turning.scheme, turning.window, turning.slope
        self.start, self.end, self.prefix = start, start + q.shape[2], prefix
        self.padding = padding  # (batch,) or None
        # From here on there is neither padding nor a sink that the ring does not hold.
        self.plain_from = max(prefix, 0 if padding is None else most_padding)
        self.q = q.to(torch.promote_types(q.dtype, torch.float32))
        self.i = torch.arange(start, self.end, device=q.device).unsqueeze(-1)  # (q_len, 1)
        if self.scheme.scale is not None:
            number, size = self.i - self._first(), torch.full_like(self.i, self.end) - self._first()
            self.q = self.q * self.scheme.scale(visible_count(self.scheme, number, size)).to(self.q)
        self.factor = default_base_scale(self.scheme, q.shape[-1])
        self.queries: dict[str, Tensor] = {}  # turned, by kind of pair

    def stored_tokens(self, stored: int) -> list[tuple[int, int]]:
        """Ranges of the first ``stored`` tokens that some query may see."""
        if self.scheme.visible_window is None:
            first = min(self.plain_from, stored)  # what is padding in some row needs a mask, and the rest none
            return [(0, first), (first, stored)]
        prefix = min(self.prefix, stored)
        return [(0, prefix), (max(prefix, self.start - self.scheme.visible_window + 1), stored)]

    def kinds(self, low: int, high: int) -> Iterator[tuple[str, int, int]]:
        """The tokens ``low`` to ``high`` by kind of pair; a token that is near to some queries comes twice."""
        w = self.window
        ranges = [("far", low, high)]
        if w:
            all_far = max(low, min(high, self.start - w + 1))  # below it, every query is far: no mask is needed
            last = self.end if self.scheme.causal else self.end - 1 + w
            ranges = [
                ("far", low, all_far),
                ("far", all_far, min(high, self.end - w)),
                ("near", max(low, self.start - w + 1), min(high, last)),
                ("after", max(low, self.start + w), high if not self.scheme.causal else low),
            ]
        yield from ((kind, a, b) for kind, a, b in ranges if a < b)

    def part(self, kind: str, low: int, high: int, k: Tensor, v: Tensor) -> Attended:
        """Attention over the tokens ``low`` to ``high``, whose keys are ready for this kind."""
        # A stock kernel makes no tensor of all scores, and in 16 bits it keeps what is between in float32.
        if not self.scheme.alibi and self._sees_all(kind, low, high):
            kernel, _ = kernels.choose_kernel(k.device, k.dtype, k.shape[-1])
            if kernel is not None:
                q = self._grouped(kind, k).to(k.dtype)
                return self._apart(*kernels.forward(kernel, q, k, v, False, self.factor))
        return self.average(self.scores(kind, low, high, k), [v])

    def scores(self, kind: str, low: int, high: int, k: Tensor) -> Tensor:
        """The scores of all queries for these tokens, ``(batch, kv_heads, rows, tokens)``; minus infinity where one
        does not see the other, in this way. Rows are the queries of all heads that share a key."""
        found = (self._grouped(kind, k) * self.factor) @ k.to(self.q.dtype).transpose(-1, -2)
        mask = None if self._sees_all(kind, low, high) else self._mask(kind, low, high)
        if mask is None and not self.scheme.alibi:
            return found
        shape, found = found.shape, found.view(*self.q.shape[:3], -1)  # each head apart
        if self.scheme.alibi:
            slopes = alibi_slopes(self.q.shape[1], device=self.q.device).view(-1, 1, 1)
            found = found - (slopes * exact(self._distance(low, high)).abs()).to(found)
        if mask is not None:
            found = found.masked_fill(~mask, -torch.inf)
        return found.view(shape)

    def average(self, scores: Tensor, values: list[Tensor]) -> Attended:
        """The values averaged with the softmax of the scores, and the log-sum-exp. ``values`` come in pieces."""
        top = scores.amax(dim=-1, keepdim=True)
        weights = (scores - top.masked_fill(top == -torch.inf, 0.0)).exp_()
        total = weights.sum(dim=-1, keepdim=True)
        pieces = zip(weights.split([v.shape[2] for v in values], dim=-1), values, strict=True)
        output = torch.stack([w @ v.to(w.dtype) for w, v in pieces]).sum(dim=0)
        return self._apart(output / total.masked_fill(total == 0, 1.0), (top + total.log()).squeeze(-1))

    def _grouped(self, kind: str, k: Tensor) -> Tensor:
        """The queries turned for this kind, ``(batch, kv_heads, rows, head_dim)``: heads that share a key are rows of
        one product, so that no key is repeated in memory."""
        if kind not in self.queries:
            self.queries[kind] = self.turning.queries(self.q, self.start, kind)
        return self.queries[kind].reshape(k.shape[0], k.shape[1], -1, k.shape[3])

    def _apart(self, output: Tensor, lse: Tensor) -> Attended:
        """Each head apart again, in the dtype of the scores."""
        shape = self.q.shape[:3]
        return output.reshape(*shape, -1).to(self.q.dtype), lse.reshape(shape)

    def _distance(self, low: int, high: int) -> Tensor:
        return self.i - torch.arange(low, high, device=self.i.device)  # (q_len, tokens)

    def _sees_all(self, kind: str, low: int, high: int) -> bool:
        """Whether every query sees every one of these tokens in this way: the usual case, which needs no mask."""
        least, most = self.start - (high - 1), self.end - 1 - low  # of the distances
        visible = self.scheme.visible_window
        if self.scheme.causal and least < 0:
            return False
        if self.padding is not None and low < self.plain_from:
            return False
        if visible is not None and high > self.plain_from and most >= visible:
            return False
        w = self.window
        return not w or {"near": most < w, "far": least >= w, "after": most <= -w}[kind]

    def _mask(self, kind: str, low: int, high: int) -> Tensor:
        """Boolean ``(batch or 1, 1, q_len, tokens)``."""
        distance, j = self._distance(low, high), torch.arange(low, high, device=self.i.device)
        seen = torch.ones_like(distance, dtype=torch.bool)
        if self.window:
            near, far = distance.abs() < self.window, distance >= self.window
            seen = {"near": near, "far": far, "after": ~near & ~far}[kind]
        if self.scheme.causal:
            seen = seen & (distance >= 0)
        first = self._first()
        if self.scheme.visible_window is not None:
            sink = j - first < self.scheme.sinks
            seen = seen & ((distance.abs() < self.scheme.visible_window) | sink)
        if self.padding is not None:
            seen = seen & (j >= first) & (self.i >= first)
        return seen.view(-1, 1, *seen.shape[-2:])

    def _first(self) -> Tensor | int:
        """The first token of each row that is not padding, ``(batch, 1, 1, 1)``, or 0."""
        return 0 if self.padding is None else self.padding.view(-1, 1, 1, 1)
