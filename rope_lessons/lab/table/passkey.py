"""The passkey test: a number on a line of its own, and at the end of the text the question for it. Chapter 12."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

NEEDLE, QUESTION, DIGITS = '\nkey = "{}"\n', '\nkey = "{}', 5


def passkey_windows(windows: Tensor, depth: float) -> Tensor:
    """Text with a needle, ``key = "48213"`` on a line of its own, and at its end the question: the same line again.

    Args:
        windows: int64 ``(windows, length + 1)``.
        depth: of the needle: 0 at the begin of the text, 1 right before the question.

    Returns:
        like ``windows``. The last five tokens are the digits: what is before them has all that is needed.

    Raises:
        ValueError: windows that are too short for both lines.

    >>> window = torch.full((1, 33), ord("."))
    >>> bytes(passkey_windows(window, depth=0.5)[0].tolist()).decode().splitlines()
    ['..', 'key = "43784"', '...', 'key = "43784']
    """
    found, size = windows.clone(), windows.shape[1]
    digits = np.random.Generator(np.random.Philox(key=1)).integers(10, size=(len(windows), DIGITS))
    texts = ["".join(map(str, row)) for row in digits]
    needles = torch.tensor([list(NEEDLE.format(text).encode()) for text in texts], device=windows.device)
    questions = torch.tensor([list(QUESTION.format(text).encode()) for text in texts], device=windows.device)
    room = size - needles.shape[1] - questions.shape[1]
    if room < 0:
        raise ValueError(f"windows must have at least {size - room} tokens for needle and question, got {size}")
    begin = round(depth * room)
    found[:, begin : begin + needles.shape[1]] = needles
    found[:, size - questions.shape[1] :] = questions
    return found


def last_digit(windows: Tensor) -> Tensor:
    """Where the last digit of each window's needle stands, int64 ``(windows,)``.

    Args:
        windows: of :func:`passkey_windows`.

    >>> window = torch.full((1, 33), ord("."))
    >>> last_digit(passkey_windows(window, depth=0.5))
    tensor([14])
    """
    before = QUESTION.format("").encode()
    begin = [bytes(row).index(before) for row in windows.tolist()]
    return torch.tensor(begin, device=windows.device) + len(before) + DIGITS - 1
