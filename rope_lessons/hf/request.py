"""What a call of a model of transformers says of its tokens: which are padding, which belong to one text.

transformers says it by a mask of ones and zeros and by positions. Attention with a plan needs neither: it counts tokens
from the start of each text. So both become ids of documents, and what they say beyond that is refused.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor


def given(base: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call of a model by their names."""
    bound = dict(inspect.signature(base.forward).bind_partial(*arguments, **options).arguments)
    bound.update(bound.pop("kwargs", {}))
    return bound


def document_ids(mask: Tensor | None, positions: Tensor | None, shape: tuple[int, int], held: int) -> Tensor | None:
    """Ids of documents ``(batch, held + new tokens)``, negative for padding; None for one text in each row, all real.

    Reads the mask and the positions on the host, once for a call of the model.

    Args:
        mask: ``(batch, held + new tokens)``, zeros for padding at the start or the end of a row.
        positions: int64 ``(1 or batch, new tokens)``: one more for each token, from 0 on where a text begins. Where
            nothing is held and there is no mask, they may begin anew in the middle of a row (packed documents).
        shape: batch and new tokens.
        held: tokens in the cache.

    Raises:
        TypeError, ValueError: a mask or positions of another shape; holes in the mask; positions that leave some out.

    >>> document_ids(torch.tensor([[0, 0, 1, 1, 1]]), None, (1, 5), 0)
    tensor([[-1, -1,  0,  0,  0]])
    >>> document_ids(None, torch.tensor([[0, 1, 2, 0, 1]]), (1, 5), 0)
    tensor([[0, 0, 0, 1, 1]])
    """
    batch, new = shape
    total = held + new
    real = _real(mask, batch, total)
    if positions is None:
        return None if real is None else torch.where(real, 0, -1)
    positions = _positions(positions, batch, new)
    device = positions.device
    counted = torch.ones(batch, total, dtype=torch.bool, device=device) if real is None else real.to(device)
    here = counted[:, held:]
    both = here[:, 1:] & here[:, :-1]
    starts = (positions[:, 1:] == 0) & (mask is None) & (held == 0)
    if not bool(((positions.diff(dim=1) == 1) | starts | ~both).all()):
        raise ValueError(
            "position_ids must be one more for each token of a text: with a plan, tokens are counted from the start of "
            "their text (packed documents begin at 0 again, without an attention_mask and without a cache)"
        )
    if held:
        before = counted[:, :held].sum(dim=1, keepdim=True)
        if not bool(((positions[:, :1] == before) | ~here[:, :1]).all()):
            raise ValueError(
                f"position_ids must go on where the cache ends, at {before.flatten().tolist()}, got "
                f"{positions[:, 0].tolist()}"
            )
    if not bool(starts.any()):
        return None if real is None else torch.where(real, 0, -1)
    return torch.cat((torch.zeros_like(positions[:, :1]), starts.long().cumsum(dim=1)), dim=1)


def _real(mask: Any, batch: int, total: int) -> Tensor | None:
    """Which tokens are real; None where all are."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.ndim != 2:
        found = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(
            f"attention_mask must be None or ones and zeros of shape (batch, tokens): the plan says who sees whom, "
            f"got {found}"
        )
    if mask.shape != (batch, total):
        raise ValueError(
            f"attention_mask must have shape {(batch, total)}, the tokens of the cache and of the call, got "
            f"{tuple(mask.shape)}"
        )
    real = mask != 0
    if bool(real.all()):
        return None
    edges = real[:, 1:] & ~real[:, :-1]
    if bool((edges.sum(dim=1) + real[:, 0] > 1).any()):
        raise ValueError("attention_mask must have its zeros at the start or the end of a row: with a plan, what "
                         "follows a hole would be another text")  # fmt: skip
    return real


def _positions(positions: Any, batch: int, new: int) -> Tensor:
    if not isinstance(positions, Tensor) or positions.ndim != 2 or positions.dtype not in (torch.int64, torch.int32):
        found = tuple(positions.shape) if isinstance(positions, Tensor) else type(positions).__name__
        raise TypeError(f"position_ids must be whole numbers of shape (batch, new tokens), got {found}")
    if positions.shape[0] not in (1, batch) or positions.shape[1] != new:
        raise ValueError(f"position_ids must have shape {(batch, new)}, got {tuple(positions.shape)}")
    return positions.expand(batch, new).long()
