"""Faults planted in the package: a small share of a go finds each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor
from torch.nn.functional import pad

import rope_lessons as rl
from rope_lessons import KVCache, LogN
from rope_lessons.engine import bands, cache, flash, flex, kernels, reference, visibility
from tests.fuzz.search import Watch, search
from tests.fuzz.tally import Tally

Patch = Callable[[pytest.MonkeyPatch], None]


def replaced(owner: Any, name: str, by: Callable[[Any], Any]) -> Patch:
    """``by`` gets what was there."""
    return lambda monkeypatch: monkeypatch.setattr(owner, name, by(getattr(owner, name)))


def without_offset(band_turns: Any) -> Any:
    return lambda call: [(turn._replace(offset=0.0), edge) for turn, edge in band_turns(call)]


def without_merging(merge: Any) -> Any:
    def merged(output: Tensor, lse: Tensor, other: Tensor, other_lse: Tensor) -> None:
        kept = lse.clone()
        merge(output, lse, other, other_lse)
        lse.copy_(kept)

    return merged


def as_the_strides_are(aligned: Any) -> Any:
    """What the package did once: padded channels keep their place in memory, and the CPU's kernel does not look."""

    def kept(x: Tensor, multiple: int) -> Tensor:
        missing = -x.shape[-1] % multiple
        return pad(x, (0, missing)) if missing else aligned(x, multiple)

    return kept


def with_other_key_heads(widened: Any) -> Any:
    def called(call: Any) -> Any:
        wide, group = widened(call), call.q.shape[1] // call.k.shape[1]
        k, v = (x.to(wide.q.dtype).repeat(1, group, 1, 1) for x in (call.k, call.v))
        return wide._replace(k=k, v=v)

    return called


def padding_stays(reorder: Any) -> Any:
    def called(self: KVCache, rows: Tensor) -> None:
        padding = self.padding
        reorder(self, rows)
        self.padding = None if padding is None else padding[: len(rows)].expand(len(rows))

    return called


def ring_is_stale(truncate: Any) -> Any:
    def called(self: Any, length: int) -> None:
        self.seen = length

    return called


def rounded(table: Any) -> Any:
    def called(positions: Tensor, frequencies: Tensor, **options: Any) -> Any:
        return table(positions, frequencies.float().double(), **options)

    return called


FAULTS: dict[str, tuple[str, str, int, Patch]] = {
    # wider by one would be the same: both rules give the window's own distance
    "a window one token narrower": (
        "calls", "flash", 100, replaced(flash, "_edge", lambda f: lambda call: f(call) - 1),
    ),
    "far queries without their offset": ("calls", "flash", 100, replaced(flash, "band_turns", without_offset)),
    "a log-sum-exp that is not merged": ("edges", "flash", 30, replaced(bands, "merge_", without_merging)),
    "values read in another order": ("edges", "flash", 100, replaced(kernels, "_aligned", as_the_strides_are)),
    "a log-sum-exp without a gradient": (
        "calls", "flash", 100, replaced(bands, "_backward_piece_lse", lambda f: lambda *arguments: None),
    ),
    "key heads in another order": (
        "calls", "reference", 60, replaced(reference, "_widened", with_other_key_heads),
    ),
    "a visible window one token wider": (
        "calls", "reference", 60, replaced(visibility, "window_mask", lambda f: lambda window: f(window + 1)),
    ),
    "slopes of the next head": (
        "calls", "reference", 60, replaced(reference, "alibi_slopes", lambda f: lambda *a, **o: f(*a, **o).roll(1)),
    ),
    "one key too many in log n": (
        "calls", "reference", 60, replaced(LogN, "__call__", lambda f: lambda self, counts: f(self, counts + 1)),
    ),
    "far pairs counted as near ones too": (
        "flex", "flex", 60, replaced(flex, "_distance_mask", lambda f: lambda call, kind: None),
    ),
    "padding that does not move with its rows": ("cache", "cache", 60, replaced(KVCache, "reorder", padding_stays)),
    "a ring that is not mended": ("cache", "cache", 250, replaced(cache.CachedLayer, "truncate", ring_is_stale)),
    "angles of float32 frequencies": ("helpers", "helpers", 100, replaced(rl, "rotary_table", rounded)),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, called, examples, plant = FAULTS[fault]
    plant(monkeypatch)
    failure = search(target, 0, Watch(Tally()), examples=examples, shrink=False)
    assert failure is not None
    assert called in failure.where
