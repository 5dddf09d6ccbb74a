"""What is asked of a model. Which bytes are asked for, the text alone decides, so one set of hits answers all of it.

- *home*: all bytes, at the training length. What a change of the model costs there is its tax.
- *far copies*: bytes of natural text that can be copied, but only from farther back than the training length.
- *repeated*: text whose beginning comes again and again.
- *needles*: a number on a line of its own, and at the end of the text the question for it.

Accuracy on all bytes of a long text measures the tax too: a byte can often be guessed from the few before it.
Chapter 12.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rope_lessons._checks import check_count, check_share
from rope_lessons.lab.table.passkey import DIGITS, NEEDLE

CONTEXT = 8  # bytes that must agree before a byte counts as a copy
MOST_LINES = 3  # a needle and its questions


def latest_copies(window: bytes, context: int = CONTEXT) -> list[int]:
    """For every place, where the bytes before it were last seen: the place after them, or -1.

    Args:
        window: a text.
        context: how many bytes must agree.

    Returns:
        as many places as the text has bytes.

    >>> latest_copies(b"abcabc", context=2)
    [-1, -1, -1, -1, -1, 2]
    """
    check_count("context", context, least=1)
    seen: dict[bytes, int] = {}
    found = []
    for place in range(len(window)):
        before = window[place - context : place] if place >= context else b""
        found.append(seen.get(before, -1) if before else -1)
        if before:
            seen[before] = place
    return found


def far_copies(windows: Tensor, beyond: int, context: int = CONTEXT) -> tuple[Tensor, Tensor]:
    """Which bytes can be copied from far, and only from far.

    The last ``context`` bytes before such a byte occurred earlier in the window, the latest time more than ``beyond``
    bytes back; so a model that sees ``beyond`` bytes does not see them. The byte is a *far copy* if the one that came
    then comes again.

    Args:
        windows: of natural text, int64 ``(windows, length + 1)``.
        beyond: the training length.
        context: how many bytes must agree.

    Returns:
        two masks over the predicted bytes, bool ``(windows, length)``: the far copies, and all bytes whose context
        occurred only far back, copied or not. A perfect copier has every one of the first, and of the second the share
        that the first has in it.

    Raises:
        TypeError, ValueError: counts out of range.

    Chapter 12.

    >>> text = torch.tensor([list(b"key = 48; a line between; key = 48; ")])
    >>> copies, contexts = far_copies(text, beyond=16, context=6)
    >>> bytes(text[0, 1:][copies[0]].tolist())
    b'48; '
    """
    check_count("beyond", beyond, least=1)
    copies, contexts = (torch.zeros(windows.shape[0], windows.shape[1] - 1, dtype=torch.bool) for _ in range(2))
    for number, row in enumerate(windows.tolist()):
        window = bytes(row)
        for place, last in enumerate(latest_copies(window, context)):
            if place and last >= 0 and place - last > beyond:
                contexts[number, place - 1] = True
                copies[number, place - 1] = window[place] == window[last]
    return copies, contexts


def with_needles(windows: Tensor, share: float, random: np.random.Generator) -> Tensor:
    """Windows of training text, some with a needle and one or two questions for it.

    All of them are the same line, anywhere in the window: the first is the needle, and whoever reads on has to know
    the digits of the others. With one question alone it is luck of the seed whether a small model learns to copy.

    Args:
        windows: int64 ``(windows, length + 1)``.
        share: of the windows that get a needle, each by chance.
        random: decides which, where, how many, and the digits.

    Returns:
        like ``windows``.

    Raises:
        ValueError: a share that is none; windows that are too short for needle and question.

    Chapter 12.

    >>> window = torch.full((1, 49), ord("."))
    >>> found = with_needles(window, 1.0, np.random.Generator(np.random.Philox(key=0)))
    >>> bytes(found[0].tolist()).decode().count('key = "')
    3
    """
    check_share("share", share)
    (count, size), line = windows.shape, len(NEEDLE.format("0" * DIGITS))
    most = min(MOST_LINES, size // line)
    if most < 2:
        raise ValueError(f"windows must have at least {2 * line} tokens, got {size}")
    found = windows.clone()
    chosen = random.random(count) < share
    lines = random.integers(2, most, size=count, endpoint=True)
    where = random.random((count, most))
    digits = random.integers(10, size=(count, DIGITS))
    for row in np.flatnonzero(chosen):
        put = torch.tensor(list(NEEDLE.format("".join(map(str, digits[row]))).encode()))
        room = size - lines[row] * line
        before = np.sort((where[row, : lines[row]] * (room + 1)).astype(int))  # bytes of text before each line
        for number, begin in enumerate(before):
            found[row, begin + number * line : begin + (number + 1) * line] = put
    return found
