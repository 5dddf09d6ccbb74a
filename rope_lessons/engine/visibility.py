"""Which keys each query sees. Visibility counts tokens, never positions."""

from __future__ import annotations

import torch
from torch import Tensor

from rope_lessons._checks import check_device, check_int64
from rope_lessons.engine.modes import transformed
from rope_lessons.local import causal_mask, dense_mask, window_mask
from rope_lessons.schemes import Scheme


def visible_keys(
    scheme: Scheme,
    q_len: int,
    k_len: int,
    batch: int,
    device: torch.device,
    lengths: Tensor | None = None,
    document_ids: Tensor | None = None,
) -> Tensor:
    """Boolean ``(batch or 1, 1, q_len, k_len)``: True where a query sees a key. Queries are the last tokens."""
    check_padding(lengths, document_ids, batch, k_len, device)
    token = torch.arange(k_len, device=device).unsqueeze(0)  # (1, k_len): number of each token
    real, document = torch.ones_like(token, dtype=torch.bool), torch.zeros_like(token)
    if lengths is not None:
        real = token < lengths.unsqueeze(-1)  # (batch, k_len)
    if document_ids is not None:
        ids = torch.atleast_2d(document_ids)
        real = real & (ids >= 0)
        document, token = document_runs(ids)
    last = slice(k_len - q_len, k_len)
    q_token = token[..., last]
    visible = document[..., last].unsqueeze(-1) == document.unsqueeze(-2)
    visible = visible & real[..., last].unsqueeze(-1) & real.unsqueeze(-2)
    if scheme.causal:
        visible = visible & dense_mask(causal_mask, q_token, token)
    if scheme.visible_window is not None:
        near = dense_mask(window_mask(scheme.visible_window), q_token, token)
        visible = visible & (near | (token < scheme.sinks).unsqueeze(-2))
    return visible.unsqueeze(1)


def check_padding(
    lengths: Tensor | None, document_ids: Tensor | None, batch: int, k_len: int, device: torch.device
) -> None:
    """Dtypes, devices and shapes of what says which tokens are real; values too, where they can be read."""
    if lengths is not None:
        _check_ids("lengths", lengths, device, ((batch,),))
        _check_lengths(lengths, k_len)
    if document_ids is not None:
        _check_ids("document_ids", document_ids, device, ((k_len,), (batch, k_len)))


def document_runs(ids: Tensor) -> tuple[Tensor, Tensor]:
    """For each token the number of its run of equal ids, and its own number within the run:
    ``[3, 3, 5, 5, 5]`` gives ``[0, 0, 1, 1, 1]`` and ``[0, 1, 0, 1, 2]``."""
    index = torch.arange(ids.shape[-1], device=ids.device).expand(ids.shape)
    starts = torch.zeros_like(ids, dtype=torch.bool)
    starts[..., 1:] = ids[..., 1:] != ids[..., :-1]
    return starts.cumsum(dim=-1), index - torch.where(starts, index, 0).cummax(dim=-1).values


def _check_lengths(lengths: Tensor, k_len: int) -> None:
    """Only where values can be read: on another device that would wait, and in a program that is traced or mapped there
    are none. There, lengths out of bounds count as none or all."""
    known = lengths.device.type == "cpu" and not torch.compiler.is_compiling() and transformed() is None
    if not known or not len(lengths):
        return
    low, high = int(lengths.min()), int(lengths.max())
    if low < 0 or high > k_len:
        raise ValueError(f"lengths must be from 0 to k_len = {k_len}, got {low} to {high}")


def _check_ids(name: str, ids: Tensor, device: torch.device, shapes: tuple[tuple[int, ...], ...]) -> None:
    check_int64(name, ids)
    check_device(name, ids, device)
    if not any(tuple(ids.shape) == shape for shape in shapes):
        raise ValueError(f"{name} must have shape {' or '.join(map(str, shapes))}, got {tuple(ids.shape)}")
