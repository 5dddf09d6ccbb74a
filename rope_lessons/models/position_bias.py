"""A bias on the scores as a module of a model: what ``rl.biases`` computes, with the numbers that it
learns. Chapter 14."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rope_lessons._checks import check_choice, check_count
from rope_lessons.biases import distances, fire_bias, kerple_log_bias, sandwich_bias, shaw_bias, t5_bias
from rope_lessons.models.initial import truncated_normal_

BIASES = ("t5", "kerple", "sandwich", "fire", "shaw", "alibi-random")
BUCKETS = 32  # of T5, where the training length has room for them
HIDDEN = 32  # units of FIRE's network
LEAST = 0.01  # of KERPLE's numbers, as in the code of GPT-NeoX


class PositionBias(nn.Module):
    """The bias of one layer of causal attention.

    What the papers set for their own training lengths is set for ``length`` here: T5's last bucket begins at half of
    it, Shaw's table ends at a quarter, FIRE's threshold starts at a quarter.

    Args:
        kind: one of ``"t5"``, ``"kerple"`` (its logarithmic kernel), ``"sandwich"``, ``"fire"``, ``"shaw"``, or
            ``"alibi-random"``: ALiBi with slopes that are drawn between 0 and 1 and stay.
        heads: of queries.
        head_dim: channels of a head.
        length: the training length, at least 16.

    Raises:
        TypeError, ValueError: an unknown kind; numbers out of range.

    Chapter 14.

    >>> bias = PositionBias("kerple", heads=2, head_dim=4, length=64)
    >>> bias.initialise(torch.Generator().manual_seed(0))
    >>> bias(torch.zeros(1, 2, 3, 4)).shape
    torch.Size([2, 3, 3])
    """

    def __init__(self, kind: str, heads: int, head_dim: int, length: int):
        super().__init__()
        check_choice("kind", kind, BIASES)
        check_count("heads", heads, least=1)
        check_count("length", length, least=16)
        self.kind, self.heads, self.farthest = kind, heads, length // 2
        if kind == "t5":
            self.table = nn.Parameter(torch.empty(min(BUCKETS, length // 4 * 2), heads))
        elif kind == "shaw":
            self.table = nn.Parameter(torch.empty(2 * (length // 4) + 1, head_dim))
        elif kind == "kerple":
            self.amount, self.rate = (nn.Parameter(torch.empty(heads)) for _ in range(2))
        elif kind == "alibi-random":
            self.slopes = nn.Parameter(torch.empty(heads), requires_grad=False)
        elif kind == "fire":
            self.network = nn.Sequential(nn.Linear(1, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, heads))
            self.rate, self.threshold = nn.Parameter(torch.empty(1)), nn.Parameter(torch.empty(1))

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Fill every weight: tables small, KERPLE's numbers as in GPT-NeoX, FIRE's as in its paper, slopes anywhere
        between 0 and 1."""
        if self.kind in ("t5", "shaw"):
            truncated_normal_(self.table, self.table.shape[1] ** -0.5, generator)
        elif self.kind == "kerple":
            self.amount.copy_(2 * torch.rand(self.heads, generator=generator))
            self.rate.copy_(torch.rand(self.heads, generator=generator))
        elif self.kind == "alibi-random":
            self.slopes.copy_(torch.rand(self.heads, generator=generator))
        elif self.kind == "fire":
            for linear, inputs in ((self.network[0], 1), (self.network[2], HIDDEN)):
                for weight in linear.parameters():
                    weight.copy_((2 * torch.rand(weight.shape, generator=generator) - 1) * inputs**-0.5)
            self.rate.fill_(0.1)
            self.threshold.fill_(self.farthest / 2)

    def forward(self, q: Tensor) -> Tensor:
        """Queries ``(batch, heads, seq, head_dim)`` to a bias that broadcasts to ``(batch, heads, seq, seq)``."""
        distance = distances(q.shape[2], device=q.device)
        if self.kind == "shaw":
            return shaw_bias(q, self.table, distance)
        if self.kind == "t5":
            return t5_bias(distance, self.table, farthest=self.farthest)
        if self.kind == "kerple":
            return kerple_log_bias(distance, self.amount.clamp(min=LEAST), self.rate.clamp(min=LEAST))
        if self.kind == "sandwich":
            return sandwich_bias(distance, self.heads).to(q.dtype)
        if self.kind == "alibi-random":
            return -self.slopes[:, None, None] * distance.clamp(min=0)
        return fire_bias(distance, self.network, rate=self.rate.abs(), threshold=self.threshold.abs())
