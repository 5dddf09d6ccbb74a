"""The key-value cache as a machine: any sequence of its operations, and every answer compared with one call on all
tokens so far."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from torch import Tensor

import rope_lessons as rl
from rope_lessons import KVCache, Scheme
from tests.fuzz import oracle
from tests.fuzz.calls import is_decline, unclear
from tests.fuzz.case import DTYPES, Memory, inf, nan
from tests.fuzz.cases import Draw, memories, schemes
from tests.fuzz.memory import shown
from tests.fuzz.tally import Tally, Wrong, compare

__all__ = ["CacheMachine", "Setting"]
REFUSED = ("dtype", "heads", "channels", "scheme", "layer", "gradient", "queries", "rows", "frequencies")
Streams = dict[str, Tensor]  # q, k and v of all tokens so far


@dataclass(frozen=True, repr=False)
class Setting:
    """A cache and the tensors that it gets.

    Args:
        plan: a scheme for each layer.
        seed: of all numbers in tensors.
        batch, kv_heads, group, head_dim, value_dim, dtype: of the tensors; ``group`` heads to a key head.
        length, max_length, padding, rollback: as for ``KVCache``.
        filler: what the padding holds, None for numbers like the others.
        frequencies: how many pairs a tensor of the caller's own has, or None; ``per_head``: a row for each head.
        backend: of the first call.
    """

    plan: tuple[Scheme, ...]
    seed: int = 0
    batch: int = 1
    kv_heads: int = 1
    group: int = 1
    head_dim: int = 2
    value_dim: int = 1
    dtype: str = "float64"
    length: int | None = None
    max_length: int | None = None
    padding: tuple[int, ...] | None = None
    rollback: int = 0
    filler: float | None = None
    frequencies: int | None = None
    per_head: bool = False
    backend: str = "auto"

    __repr__ = shown


@st.composite
def settings_of_a_cache(draw: Draw) -> Setting:
    head_dim = draw(st.integers(1, 9))
    plan = tuple(schemes(draw, head_dim) for _ in range(draw(st.integers(1, 3))))
    batch, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    limit = st.none() | st.integers(4, 40)
    length = draw(limit)
    padded = st.lists(st.integers(0, 8), min_size=batch, max_size=batch).map(tuple)
    padding = draw(st.none() | padded)
    raw = length is None and any(s.frequencies is not None and s.frequencies.needs_length for s in plan)
    given = None if raw or head_dim < 2 else draw(st.none() | st.integers(1, head_dim // 2))
    return Setting(
        plan,
        seed=draw(st.integers(0, 2**16)),
        batch=batch,
        kv_heads=draw(st.integers(1, 2)),
        group=group,
        head_dim=head_dim,
        value_dim=draw(st.just(head_dim) | st.integers(1, 9)),
        dtype=draw(st.sampled_from(["float64", "float64", "float32", "float32", "bfloat16", "float16"])),
        length=length,
        max_length=draw(limit),
        padding=padding,
        rollback=draw(st.integers(0, 4)),
        filler=None if padding is None else draw(st.sampled_from([None, nan, inf, -inf])),
        frequencies=given,
        per_head=given is not None and group == 1 and draw(st.booleans()),
        backend=draw(st.sampled_from(["auto", "auto", "flash", "reference"])),
    )


Operation = Callable[..., None]


def operation(method: Operation) -> Operation:
    """A step that is written down, so that a failure can be printed as Python. After a failure whose cause is known,
    nothing more is done."""

    @functools.wraps(method)
    def run(self: CacheMachine, **arguments: Any) -> None:
        if self.failed:
            return
        given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        self.steps.append(f"m.{method.__name__}({given})")
        if self.watch is None:
            method(self, **arguments)
            return
        self.watch.look()
        try:
            method(self, **arguments)
        except Exception as error:
            self.failed = True
            fault = error if isinstance(error, Wrong) else unclear("cache", error)
            self.watch.failed([fault], "\n".join([*HEAD, *self.steps]))

    return run


HEAD = ("from tests.fuzz.case import *", "from tests.fuzz.machine import *", "m = CacheMachine()")


class CacheMachine(RuleBasedStateMachine):
    """``tally`` and ``watch`` belong to the class: hypothesis makes a machine for each sequence."""

    tally: Tally = Tally()
    watch: Any = None  # of the search, see search.py

    def __init__(self) -> None:
        super().__init__()
        self.failed, self.seen, self.longest = False, 0, 0
        self.steps: list[str] = []

    @initialize(setting=settings_of_a_cache())
    @operation
    def begin(self, setting: Setting) -> None:
        self.setting, self.dtype = setting, DTYPES[setting.dtype]
        self.generator = torch.Generator().manual_seed(setting.seed)
        self.padding = None if setting.padding is None else torch.tensor(setting.padding)
        self.cache = KVCache(
            setting.plan,
            padding=None if self.padding is None else self.padding.clone(),
            length=setting.length,
            max_length=setting.max_length,
            rollback=setting.rollback,
        )
        self.heads = setting.kv_heads * setting.group
        self.frequencies = None
        if setting.frequencies is not None:
            rows = (self.heads,) if setting.per_head else ()
            self.frequencies = torch.rand((*rows, setting.frequencies), generator=self.generator, dtype=torch.float64)
        self.batch = setting.batch
        self.limit = min((n for n in (setting.length, setting.max_length) if n is not None), default=None)
        self.forget()

    def forget(self) -> None:
        """No tokens yet."""
        sizes = {"q": self.heads, "k": self.setting.kv_heads, "v": self.setting.kv_heads}
        dims = {"v": self.setting.value_dim}
        self.layers: list[Streams] = [
            {
                name: torch.zeros(self.batch, heads, 0, dims.get(name, self.setting.head_dim), dtype=self.dtype)
                for name, heads in sizes.items()
            }
            for _ in self.setting.plan
        ]
        self.seen = self.longest = 0

    # --- operations --------------------------------------------------------------------------------------------------

    @rule(tokens=st.integers(1, 9), q=memories(), k=memories(), v=memories())
    @operation
    def chunk(self, tokens: int, q: Memory, k: Memory, v: Memory) -> None:
        """The next tokens in every layer, with their answers."""
        self.step(tokens, q, k, v)

    @rule(count=st.integers(1, 6), q=memories(), k=memories(), v=memories())
    @operation
    def decode(self, count: int, q: Memory, k: Memory, v: Memory) -> None:
        """One token after the other."""
        for _ in range(count):
            self.step(1, q, k, v)

    def step(self, tokens: int, q: Memory, k: Memory, v: Memory) -> None:
        for layer in range(len(self.layers)):
            new = self.draw(layer, tokens, {"q": q, "k": k, "v": v})
            laid = {name: memory.lay(new[name]) for name, memory in (("q", q), ("k", k), ("v", v))}
            if self.full(tokens):
                self.refuses(functools.partial(self.call, laid, layer), "k must fit into the cache")
                return
            output, lse = self.call(laid, layer)
            self.layers[layer] = {name: torch.cat((x, new[name]), 2) for name, x in self.layers[layer].items()}
            self.compare(layer, tokens, output, lse)
        self.grown(tokens)

    @rule(tokens=st.integers(1, 9), k=memories(), v=memories())
    @operation
    def extend(self, tokens: int, k: Memory, v: Memory) -> None:
        """The next tokens without answers."""
        for layer in range(len(self.layers)):
            new = self.draw(layer, tokens, {"k": k, "v": v})
            laid = k.lay(new["k"]), v.lay(new["v"])
            extend = functools.partial(self.cache.extend, *laid, layer=layer, frequencies=self.frequencies)
            if self.full(tokens):
                self.refuses(extend, "k must fit into the cache")
                return
            extend()
            self.layers[layer] = {name: torch.cat((x, new[name]), 2) for name, x in self.layers[layer].items()}
        self.grown(tokens)
        self.tally.add("cache", self.setting.dtype, "extended")

    @rule(back=st.integers(0, 6) | st.integers(0, 60))
    @operation
    def truncate(self, back: int) -> None:
        """Back by some tokens. A window need not hold more than ``rollback`` of the longest text so far."""
        length = max(0, self.seen - back)
        try:
            self.cache.truncate(length)
        except ValueError as error:
            windows = any(scheme.visible_window is not None for scheme in self.setting.plan)
            if not windows or self.longest - length <= self.setting.rollback:
                raise Wrong("cache, truncate: refused", f"{length} of {self.seen} tokens: {error}") from error
            self.tally.add("cache", self.setting.dtype, "refused")
            return
        self.layers = [{name: x[:, :, :length] for name, x in layer.items()} for layer in self.layers]
        self.seen = length
        self.tally.add("cache", self.setting.dtype, "truncated")

    @rule(rows=st.lists(st.integers(0, 5), min_size=1, max_size=4))
    @operation
    def reorder(self, rows: list[int]) -> None:
        """As in beam search."""
        chosen = torch.tensor(rows) % self.batch
        self.cache.reorder(chosen)
        self.layers = [{name: x[chosen] for name, x in layer.items()} for layer in self.layers]
        if self.padding is not None:
            self.padding = self.padding[chosen]
        self.batch = len(rows)
        self.tally.add("cache", self.setting.dtype, "reordered")

    @precondition(lambda self: len(self.layers) > 1)
    @rule(tokens=st.integers(1, 4))
    @operation
    def stop_between_layers(self, tokens: int) -> None:
        """A step that reaches the first layer only is taken back. Until then that layer takes no other."""
        if self.setting.plan[0].visible_window is not None:
            tokens = 0 if self.longest - self.seen > self.setting.rollback else min(tokens, self.setting.rollback)
        if not tokens or self.full(2 * tokens):
            return
        new = self.draw(0, tokens, {})
        self.call(new, 0)
        self.refuses(lambda: self.call(new, 0), "layer must be one whose turn it is")
        self.cache.truncate(self.seen)
        self.longest = max(self.longest, self.seen + tokens)

    @rule(pickled=st.booleans())
    @operation
    def copy(self, pickled: bool) -> None:
        """The copy goes on, and so could the other: what becomes of it must not matter."""
        old = self.cache
        self.cache = pickle.loads(pickle.dumps(old)) if pickled else deepcopy(old)
        if self.seen:
            old.truncate(self.seen)
            old.reorder(torch.zeros(1, dtype=torch.int64))
        old.reset()

    @rule()
    @operation
    def reset(self) -> None:
        """A new text."""
        self.cache.reset()
        self.forget()

    @precondition(lambda self: self.seen)
    @rule(what=st.sampled_from(REFUSED))
    @operation
    def bad_call(self, what: str) -> None:
        """What does not match the cache is refused, and the cache goes on as if it had not been asked."""
        x = self.draw(0, 1, {})
        scheme, layer = self.setting.plan[0], 0
        if what == "dtype":
            other = torch.float32 if self.dtype == torch.float64 else torch.float64
            x = {name: y.to(other) for name, y in x.items()}
        elif what == "heads":
            x = {name: torch.cat((y, y), dim=1) for name, y in x.items()}
        elif what == "channels":
            x["v"] = torch.cat((x["v"], x["v"]), dim=-1)
        elif what == "scheme":
            scheme = Scheme(base_scale=0.123)
        elif what == "layer":
            layer = len(self.layers)
        elif what == "gradient":
            x["v"] = x["v"].requires_grad_()
        elif what == "queries":
            x = {name: torch.cat((y, y), dim=2) if name != "q" else y for name, y in x.items()}
        if what == "rows":
            self.refuses(lambda: self.cache.reorder(torch.tensor([0, self.batch])), "rows must be from 0 to ")
            return
        frequencies = torch.full((1,), 0.5, dtype=torch.float64) if what == "frequencies" else self.frequencies
        options: dict[str, Any] = {"cache": self.cache, "layer": layer, "frequencies": frequencies}
        self.refuses(lambda: rl.attention(x["q"], x["k"], x["v"], scheme, **options), "")

    # --- what they need ----------------------------------------------------------------------------------------------

    def draw(self, layer: int, tokens: int, memory: dict[str, Memory]) -> Streams:
        """Numbers for the next tokens, with the padding filled."""
        found = {}
        for name, x in self.layers[layer].items():
            shape = (self.batch, x.shape[1], tokens, x.shape[3])
            how = memory.get(name, Memory())
            new = how.same(torch.randn(shape, generator=self.generator, dtype=torch.float64).to(self.dtype))
            if self.padding is not None and self.setting.filler is not None and not {0, 2} & set(how.shared):
                fake = torch.arange(self.seen, self.seen + tokens) < self.padding.unsqueeze(-1)
                new = new.masked_fill(fake[:, None, :, None], self.setting.filler)
            found[name] = new
        return found

    def grown(self, tokens: int) -> None:
        self.seen += tokens
        self.longest = max(self.longest, self.seen)

    def full(self, tokens: int) -> bool:
        return self.limit is not None and self.seen + tokens > self.limit

    def call(self, laid: Streams, layer: int) -> tuple[Tensor, Tensor]:
        frequencies = None if self.frequencies is None else self.frequencies.clone()  # an equal one is as good
        options: dict[str, Any] = {"cache": self.cache, "layer": layer, "frequencies": frequencies}
        arguments = laid["q"], laid["k"], laid["v"], self.setting.plan[layer]
        backend = self.setting.backend
        try:
            return rl.attention(*arguments, backend=backend, return_lse=True, **options)
        except ValueError as error:
            if backend == "auto" or not is_decline(error, backend):
                raise
            self.tally.add("cache", self.setting.dtype, "declined")
            return rl.attention(*arguments, return_lse=True, **options)

    def compare(self, layer: int, tokens: int, output: Tensor, lse: Tensor) -> None:
        scheme, streams = self.setting.plan[layer], self.layers[layer]
        q, k, v = streams["q"][:, :, -tokens:], streams["k"], streams["v"]
        so_far = k.shape[2]
        frequencies, ids = self.frequencies, None
        if frequencies is None and scheme.frequencies is not None:
            frequencies = scheme.frequencies(self.setting.length or so_far)
        if self.padding is not None:
            ids = -(torch.arange(so_far) < self.padding.unsqueeze(-1)).long()
        answer = oracle.attention(q, k, v, scheme, frequencies=frequencies, document_ids=ids)
        how: dict[str, Any] = {"work": self.dtype, "angle": answer.angle}
        compare(self.tally, "cache", "output", output, answer.output, answer.bounds["output"], **how)
        compare(self.tally, "cache", "log-sum-exp", lse, answer.lse, answer.bounds["lse"], **how)
        if output.dtype != self.dtype:
            raise Wrong("cache, output: dtype", f"got {output.dtype}, wanted {self.dtype}")
        self.tally.add("cache", self.setting.dtype, "answers")

    def refuses(self, ask: Callable[[], object], message: str) -> None:
        """It must say no, in the documented way. That nothing changed, the answers that follow will show."""
        try:
            ask()
        except (TypeError, ValueError) as error:
            if not str(error).startswith(message):
                raise unclear("cache", error) from error
            self.tally.add("cache", self.setting.dtype, "refused")
        else:
            raise Wrong("cache, refusal", f"a call that cannot be served was taken ({message or 'a bad call'})")
