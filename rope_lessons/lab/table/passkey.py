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


def needle_depth(back: int, length: int) -> float:
    """The depth of a needle whose digits stand ``back`` tokens before those of the question.

    Args:
        back: tokens from a digit of the question to the same digit of the needle.
        length: of the text that is read; :func:`passkey_windows` takes windows with one token more.

    Raises:
        ValueError: a needle that would overlap with the question, or begin before the text.

    >>> [needle_depth(back, 512) for back in (15, 500)]
    [1.0, 0.0]
    >>> window = torch.full((1, 513), ord("."))
    >>> text = bytes(passkey_windows(window, needle_depth(64, 512))[0].tolist())
    >>> text.rindex(b"key") - text.index(b"key")
    64
    """
    needle, question = (len(line.format("0" * DIGITS)) for line in (NEEDLE, QUESTION))
    most = length + 1 - question
    if not needle <= back <= most:
        raise ValueError(f"back must be from {needle} to {most} in texts of {length} tokens, got {back}")
    return (most - back) / (most - needle)


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
