"""A question that only a far token answers: what the local methods of chapter 07 lose, and what a sink is for.

The small model of ``rope_lessons.models.byte_lm`` can guess most of its text from the last few bytes, so its loss
does not show how far it sees. Here every window of text hides one of 26 *secret* bytes. Later a *question* byte
stands in the text, and what must come next is the letter that belongs to the secret. Nothing near the question tells
which letter that is. Every window opens with a *start* byte, as the texts of large models open with a start token.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rope_lessons.engine import attention
from rope_lessons.models import byte_lm
from rope_lessons.schemes import Plan, Scheme

START, QUESTION = 0, 1  # bytes that no text contains
SECRET, ANSWER, LETTERS = 128, ord("A"), 26  # secret byte 128 + n, answer "A" + n


class RecallText:
    """The training text as :func:`~rope_lessons.models.byte_lm.train` reads it: a secret and two questions in each
    window, and the start byte in front of all unless told otherwise. The secret stands anywhere, the first question
    anywhere after it, and the second after the first, in the last third of the window. Of 64 bytes, more than a quarter
    of the questions are 32 or more from their secret."""

    def __init__(self, text: Tensor, seed: int, start: bool = True):
        self.text, self.start, self.generator = text, start, torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return len(self.text)

    def __getitem__(self, index: Tensor) -> Tensor:
        windows = self.text[index]  # a copy: (batch, length + 1)
        rows, end = torch.arange(len(windows)), windows.shape[1]
        letter = torch.randint(LETTERS, rows.shape, generator=self.generator)
        secret = self.draw(1, torch.full_like(letter, end - 5))
        first = self.draw(secret + 1, torch.full_like(letter, end - 4))
        second = self.draw((first + 2).clamp(min=2 * end // 3), torch.full_like(letter, end - 2))
        # Drawn on the CPU, the same for any device of the text.
        rows, letter, secret, first, second = (x.to(windows.device) for x in (rows, letter, secret, first, second))
        windows[rows, secret] = (SECRET + letter).to(windows.dtype)
        for question in (first, second):
            windows[rows, question] = QUESTION
            windows[rows, question + 1] = (ANSWER + letter).to(windows.dtype)
        return with_start(windows) if self.start else windows

    def draw(self, low: int | Tensor, high: Tensor) -> Tensor:
        """One random whole number from ``low`` to ``high`` for each row."""
        share = torch.rand(high.shape, generator=self.generator, dtype=torch.float64)
        return low + (share * (high - low + 1)).long()


def with_start(tokens: Tensor) -> Tensor:
    """A copy whose first byte in each row is the start byte."""
    started = tokens.clone()
    started[:, 0] = START
    return started


def started(model: byte_lm.ByteLM) -> Callable[..., Tensor]:
    """The model with the start byte in front of everything it reads, to be handed to ``byte_lm.evaluate``."""

    def forward(tokens: Tensor, plan: Plan | None = None, attend: Callable[..., Tensor] = attention) -> Tensor:
        return model(with_start(tokens), plan, attend)

    return forward


@torch.no_grad()
def answered(
    model: byte_lm.ByteLM,
    windows: Tensor,
    distance: int,
    length: int,
    plan: Plan | None = None,
    attend: Callable[..., Tensor] = attention,
    start: bool = True,
) -> Tensor:
    """Which questions are answered, bool ``(windows,)``. The question is the last of ``length`` bytes and the secret
    stands ``distance`` before it. Guessing gives 1 in 26."""
    tokens = with_start(windows[:, :length]) if start else windows[:, :length].clone()
    letter = torch.randint(LETTERS, (len(tokens),), generator=torch.Generator().manual_seed(distance)).to(tokens.device)
    tokens[:, -1], tokens[:, -1 - distance] = QUESTION, SECRET + letter
    rows = tokens.split(12)  # a few at a time: long windows take memory
    found = torch.cat([model(some, plan, attend)[:, -1].argmax(dim=-1) for some in rows])
    return found == ANSWER + letter


@torch.no_grad()
def attention_weights(model: byte_lm.ByteLM, tokens: Tensor, plan: Plan | None = None) -> list[Tensor]:
    """The weights of each layer, ``(batch, heads, seq, seq)``: what attention gives for the identity as values."""
    weights = []

    def attend(q: Tensor, k: Tensor, v: Tensor, scheme: Scheme) -> Tensor:
        one_hot = torch.eye(k.shape[2], dtype=v.dtype, device=v.device).expand(*k.shape[:3], k.shape[2])
        weights.append(attention(q, k, one_hot, scheme))
        return attention(q, k, v, scheme)

    model(tokens, plan, attend)
    return weights
