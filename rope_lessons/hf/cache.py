"""Our cache behind the interface of transformers: a step with a plan reads what a step of plain RoPE reads.

The layers of a ``DynamicCache`` keep all keys as they come and hand all of them out. These keep what
:class:`~rope_lessons.KVCache` keeps, keys that are turned already, and hand out the new ones alone; attention finds the
layer by the keys that it gets.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rope_lessons._extras import extra
from rope_lessons.engine import KVCache
from rope_lessons.schemes import Plan, Scheme

with extra("hf", "a plan in a model of Hugging Face"):
    from transformers.cache_utils import DynamicCache, DynamicLayer

MARK = "rope_lessons_layer"  # attribute of the keys on their way from the cache to attention


class PlanLayer(DynamicLayer):
    """One layer of a model with a plan.

    Args:
        scheme: of the layer.
        padding: int64 ``(batch,)``, tokens of padding at the start of each row.
        rollback: tokens that a layer with a visible window can give back (assisted decoding).
    """

    def __init__(self, scheme: Scheme, padding: Tensor | None, rollback: int = 0):
        super().__init__()
        self.scheme, self.taken, self.rows = scheme, True, 0
        self.cache = KVCache(scheme, padding=padding, rollback=rollback)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """The new keys and values as they are; attention takes them into the cache."""
        if not self.taken:
            raise RuntimeError("this model does not hand the keys of its cache on to attention as they are: "
                               "call it with use_cache=False")  # fmt: skip
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.taken, self.rows = False, len(key_states)
        keys = key_states.view_as(key_states)  # the mark must not stay on a tensor of the model's
        setattr(keys, MARK, self)
        return keys, value_states

    def get_seq_length(self) -> int:
        return len(self.cache)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def reset(self) -> None:
        self.cache.reset()
        self.taken = True

    def crop(self, tokens_to_remove: int) -> None:
        if tokens_to_remove > 0:
            raise ValueError(f"tokens_to_remove must be 0 or negative, as in transformers, got {tokens_to_remove}")
        self.cache.truncate(len(self.cache) + tokens_to_remove)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        if len(self.cache):
            self.cache.reorder(beam_idx.long())
            self.rows = len(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if len(self.cache):
            self.reorder_cache(torch.arange(self.rows, device=self.device).repeat_interleave(repeats))

    def offload(self) -> None:
        raise ValueError("past_key_values must stay on its device with a plan: offloading is not served")


def fill(cache: Any, plan: Plan, padding: Tensor | None) -> None:
    """Give an empty cache of transformers layers for a plan.

    Raises:
        ValueError: a cache of another kind.
    """
    if type(cache) is not DynamicCache or getattr(cache, "offloading", False):
        raise ValueError(
            f"past_key_values must be a DynamicCache with a plan, got {type(cache).__name__}"
            f"{' with offloading' if getattr(cache, 'offloading', False) else ''} (a static one has empty slots, which "
            "would count as tokens; others change their keys)"
        )
    cache.layers = [PlanLayer(scheme, padding) for scheme in plan]
    cache.layer_class_to_replicate = None


def new(plan: Plan, padding: Tensor | None) -> Any:
    cache = DynamicCache()
    fill(cache, plan, padding)
    return cache
