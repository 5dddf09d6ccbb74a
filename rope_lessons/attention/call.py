"""One call of ``attention``, checked and filled in: what a backend gets."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from rope_lessons.scheme import Scheme


class Call(NamedTuple):
    """The arguments of ``attention``. Positions are always there; ``positions_given`` tells whether the caller gave
    them, or they are 0, 1, 2, …. ``frequencies`` are those to use, None to turn nothing. The ``q_len`` queries are the
    last of the ``k_len`` tokens."""

    q: Tensor
    k: Tensor
    v: Tensor
    scheme: Scheme
    q_positions: Tensor
    k_positions: Tensor
    positions_given: bool
    lengths: Tensor | None
    document_ids: Tensor | None
    bias: Tensor | None
    frequencies: Tensor | None
    q_len: int
    k_len: int
